#!/bin/bash
# Everything that wants a GPU, in one go: builds, tests, CUDA's sanitizers on small shapes, mixed training runs, benchmarks and PyTorch beside them.
# Prints a table last; all of it goes to a folder. Under nine minutes: what does not fit is cut off and said to be.
# usage: tests/cuda/on_gpu.sh [FOLDER]     STANDIN=1: the same on the stand-in, with tiny shapes: says that this script works, and nothing of a GPU.
#        LIMIT=SECONDS for all of it (530); PROGRAMS_BUILT=1: uses what is in build/
cd "$(dirname "$0")/../.." || exit 2
folder=${1:-build/on_gpu}
mkdir -p "$folder" || exit 2
folder=$(cd "$folder" && pwd)
: "${LIMIT:=530}" "${STANDIN:=}" "${JOBS:=$(nproc)}"
table=$folder/table.txt
: > "$table"
failures=0

left() { echo $((LIMIT - SECONDS)); }

# row NAME RESULT DETAIL: a line of the table.
row() { printf '%-58s %-10s %s\n' "$1" "$2" "$3" | tee -a "$table"; }

# try SECONDS NAME LOG COMMAND...: runs it for so long at most, and no longer than is left.
try() {
    local limit=$1 name=$2 log=$folder/$3 begin=$SECONDS status
    shift 3
    [ "$limit" -gt "$(left)" ] && limit=$(left)
    if [ "$limit" -lt 5 ]; then row "$name" 'not run' 'no time left'; return 1; fi
    timeout "$limit" "$@" > "$log" 2>&1
    status=$?
    if [ $status = 124 ]; then row "$name" 'cut off' "after $limit s"; return 1; fi
    if [ $status != 0 ]; then
        failures=$((failures + 1))
        row "$name" FAILED "status $status: $(grep -v '^$' "$log" | tail -n 1 | cut -c1-120)"
        return 1
    fi
    row "$name" passed "$((SECONDS - begin)) s"
}

# ---- what there is ----
if [ -n "$STANDIN" ]; then
    card='stand-in: no GPU' programs=build/standin tests=build/tests small=(--small)
    targets=(build/tests/test_cuda_device build/tests/test_kernels build/tests/test_nccl standin-programs)
    model=gpt2:layers=1,width=16,heads=2,context=16
else
    card=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null | head -n 1)
    [ -n "$card" ] || { echo 'on_gpu.sh: nvidia-smi finds no GPU; STANDIN=1 tries the script without one' >&2; exit 2; }
    programs=build tests=build/on_cuda small=()
    targets=(cuda cuda-tests build/bench_cuda)
    model=gpt2:layers=2,width=128,heads=4,context=128
fi
{
    date -u +%Y-%m-%dT%H:%MZ
    echo "card: $card"
    git log -1 --format='source: %h' 2> /dev/null
    [ -n "$STANDIN" ] || "${NVCC:-nvcc}" --version | tail -n 2 | head -n 1
    lscpu | grep 'Model name'
} | tee "$folder/machine.txt"

if [ -z "$PROGRAMS_BUILT" ]; then
    try 300 build build.txt make -j"$JOBS" "${targets[@]}" || { tail -n 5 "$folder/build.txt"; exit 1; }
fi

# ---- tests ----
for suite in test_cuda_device test_kernels; do
    [ -x "$tests/$suite" ] && try 150 "$suite" "$suite.txt" env CMOCKA_MESSAGE_OUTPUT=STDOUT "$tests/$suite"
done

train=("$programs/train_cuda" --data tests/data/shakespeare.txt --model "$model" --sequences 2 --micro-batches 2 --steps 3 --quiet --hash)
if [ -n "$STANDIN" ]; then
    row 'compute-sanitizer' 'not run' 'needs a GPU'
elif command -v compute-sanitizer > /dev/null; then
    for tool in memcheck racecheck initcheck synccheck; do
        try 45 "compute-sanitizer $tool: bf16 step" "sanitizer_$tool.txt" \
            compute-sanitizer --tool "$tool" --error-exitcode 9 "${train[@]}" --devices cuda:0 --dtype bf16 --steps 2
    done
else
    row 'compute-sanitizer' 'not run' 'it is not installed'
fi

try 60 'train --devices cuda:0, twice the same bits' train_cuda.txt bash -c '
    a=$("$@" | tail -n 1) && b=$("$@" | tail -n 1) && echo "$a" && echo "$b" && [ "$a" = "$b" ]' - "${train[@]}" --devices cuda:0
try 60 'train --devices cuda:0:eager: graphs change no bits' train_eager.txt bash -c '
    a=$("$@" cuda:0 | tail -n 1) && b=$("$@" cuda:0:eager | tail -n 1) && echo "$a" && echo "$b" && [ "$a" = "$b" ]' - "${train[@]}" --devices
try 60 'train --devices cuda:0,cpu:12 --plan dp' train_mixed.txt "${train[@]}" --devices cuda:0,cpu:12 --plan dp
try 60 'train --devices cuda:0,cpu:12 --plan pp' train_pipeline.txt "${train[@]}" --devices cuda:0,cpu:12 --plan pp

# NCCL: what one card can say of it. Two processes on it, which NCCL takes for two machines; one of them killed.
if [ -n "$STANDIN" ]; then
    try 150 'test_nccl' test_nccl.txt env CMOCKA_MESSAGE_OUTPUT=STDOUT "$tests/test_nccl"
    row 'two processes on one card, NCCL over sockets' 'not run' 'the stand-in is of one process'
    row 'one of two processes killed' 'not run' 'the stand-in is of one process'
elif echo '#include <nccl.h>' | "${NVCC:-nvcc}" ${NCCL_HOME:+-I"$NCCL_HOME/include"} -E -x cu - > /dev/null 2>&1; then
    [ -n "$PROGRAMS_BUILT" ] || try 200 'build NCCL' build_nccl.txt make -j"$JOBS" nccl build/on_cuda/test_nccl
    try 100 'test_nccl' test_nccl.txt env CMOCKA_MESSAGE_OUTPUT=STDOUT "$tests/test_nccl"
    pair=("$programs/train_nccl" --data tests/data/shakespeare.txt --model "$model" --sequences 2 --micro-batches 2 --hash)
    for plan in dp pp; do
        try 60 "two processes on one card, NCCL over sockets, $plan" "nccl_$plan.txt" \
            bash tests/cuda/two_processes.sh run "$folder/nccl_$plan" "${pair[@]}" --steps 5 --plan "$plan"
    done
    try 100 'one of two processes killed' nccl_kill.txt \
        bash tests/cuda/two_processes.sh kill "$folder/nccl_kill" "${pair[@]}" --steps 1000000 --plan dp
else
    row 'NCCL' 'not run' 'there is no nccl.h'
fi

# ---- benchmarks ----
try 120 'benchmark of ops' bench_ops.jsonl "$programs/bench_cuda" ops "${small[@]}"
try 60 'benchmark of ops, tf32 and timed algorithms' bench_ops_fast.jsonl "$programs/bench_cuda" ops --fast "${small[@]}"
try 90 'benchmark of steps' bench_steps.jsonl "$programs/bench_cuda" steps "${small[@]}"
try 90 'benchmark of steps, timed algorithms' bench_steps_fast.jsonl "$programs/bench_cuda" steps --fast "${small[@]}"
if [ -n "$STANDIN" ]; then row 'PyTorch' 'not run' 'needs a GPU'
elif python3 -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; then
    try 90 'PyTorch, ops' torch_ops.jsonl python3 tests/cuda/torch_cuda.py ops
    try 170 'PyTorch, compiled steps' torch_steps.jsonl python3 tests/cuda/torch_cuda.py steps
else
    row 'PyTorch' 'not run' 'python3 has no torch that finds the GPU'
fi

# ---- the table ----
echo
{
    cat "$folder/machine.txt"
    bash tests/cuda/table.sh "$folder"
    echo
    cat "$table"
    echo "$SECONDS seconds, $failures failed; all of it: $folder"
} | tee "$folder/summary.txt"
[ "$failures" = 0 ]
