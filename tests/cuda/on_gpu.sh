#!/bin/bash
# What wants a GPU, in calls of under nine minutes, each useful alone. Prints what matters last and in under 8,000 characters; a folder has all of it in
# at most 8 files a call, written anew after every part.
# usage: tests/cuda/on_gpu.sh speed|right|anchor|tune|rows [FOLDER]
#   speed    does it run, is it right in its kernels, how fast: ops, products, steps, which op takes what; beside them what the model predicts
#   right    the suites, training and its bits, NCCL on one card, CUDA's sanitizers over the kernels' tests
#   anchor   PyTorch's ops and steps on the same card
#   tune     algorithms chosen by timing; slower and faster forms of a step beside each other
#   rows     the rows of docs/systems.md that want a card (tests/systems/card.sh); rows_said.txt has what they say
# STANDIN=1: the same on the stand-in, with tiny shapes: says that this script works, and nothing of a GPU.
# LIMIT=SECONDS for all of it (530); SKIP=EXPRESSION: parts with such names are left out. Programs that are in build/ already, from another machine, are
# used as they are.
cd "$(dirname "$0")/../.." || exit 2
phase=$1
case $phase in speed|right|anchor|tune|rows) ;; *) sed -n '2,12p' "$0" >&2; exit 2 ;; esac
folder=${2:-build/on_gpu}
mkdir -p "$folder" || exit 2
folder=$(cd "$folder" && pwd)
: "${LIMIT:=530}" "${SKIP:=}" "${STANDIN:=}" "${JOBS:=$(nproc)}"
table=$folder/$phase.txt
logs=$(mktemp -d)
: > "$table"
failures=0

# All logs of the call in one file, so that what was finished is there whenever it ends.
keep() { tar -czf "$folder/$phase.logs.tar.gz" -C "$logs" . 2> /dev/null; }
trap 'keep; rm -rf "$logs"' EXIT

left() { echo $((LIMIT - SECONDS)); }

# row NAME RESULT DETAIL: a line of the table.
row() { printf '%-58s %-10s %s\n' "$1" "$2" "$3" | tee -a "$table"; }

# try SECONDS NAME LOG COMMAND...: runs it for so long at most, and no longer than is left. LOG *.jsonl: goes to the folder.
try() {
    local limit=$1 name=$2 log=$logs/$3 begin=$SECONDS status
    case $3 in *.jsonl) log=$folder/$3 ;; esac
    shift 3
    if [ -n "$SKIP" ] && [[ $name =~ $SKIP ]]; then row "$name" 'left out' ''; return 1; fi
    [ "$limit" -gt "$(left)" ] && limit=$(left)
    if [ "$limit" -lt 5 ]; then row "$name" 'not run' 'no time left'; return 1; fi
    timeout -k 10 "$limit" "$@" > "$log" 2>&1
    status=$?
    keep
    if [ $status = 124 ] || [ $status = 137 ]; then row "$name" 'cut off' "after $limit s"; return 1; fi
    if [ $status != 0 ]; then
        failures=$((failures + 1))
        row "$name" FAILED "status $status: $(grep -v '^$\|^{' "$log" | tail -n 1 | cut -c1-120)"
        return 1
    fi
    row "$name" passed "$((SECONDS - begin)) s"
}

# ---- what there is ----
if [ -n "$STANDIN" ]; then
    card='stand-in: no GPU' programs=build/standin tests=build/tests small=(--small)
    targets=(build/tests/test_cuda_device build/tests/test_kernels build/tests/test_nccl standin-programs)
    [ "$phase" = rows ] && targets=(build/tests/test_cuda_device build/standin/train_cuda build/standin/bench_cuda build/plan)
    model=gpt2:layers=1,width=16,heads=2,context=16 counts=('gpt2:layers=1,width=16,heads=2,vocab=32,context=16 2 16 2')
else
    card=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null | head -n 1)
    [ -n "$card" ] || card='nvidia-smi finds no GPU'
    programs=build tests=build/on_cuda small=()
    targets=(cuda build/bench_cuda cuda-tests)
    [ "$phase" = rows ] && targets=(cuda build/bench_cuda build/on_cuda/test_cuda_device build/plan)
    model=gpt2:layers=2,width=128,heads=4,context=128 counts=('gpt2:124m 16 1024 3' 'gpt2:1558m 4 1024 2')
fi
{
    date -u +%Y-%m-%dT%H:%MZ
    echo "card: $card"
    git log -1 --format='source: %h' 2> /dev/null
    [ -n "$STANDIN" ] || "${NVCC:-nvcc}" --version 2> /dev/null | tail -n 2 | head -n 1
    lscpu | grep 'Model name'
} | tee "$folder/machine.txt"

# What cannot be built leaves the rest to be run; what was built elsewhere must find its libraries: in Python's wheels, where the system has none.
lacks() { ldd "$programs/$1" 2> /dev/null | grep 'not found'; }
if lacks train_cuda > /dev/null; then
    wheels=$(python3 -c 'import glob, nvidia; print(":".join(lib for path in nvidia.__path__ for lib in glob.glob(path + "/*/lib")))' 2> /dev/null)
    [ -z "$wheels" ] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$wheels
fi
if [ "$phase" != anchor ]; then
    if [ -n "$STANDIN" ] || command -v "${NVCC:-nvcc}" > /dev/null; then try 200 build build.txt make -k -j"$JOBS" "${targets[@]}"; fi
    for program in train_cuda bench_cuda; do
        [ -x "$programs/$program" ] || row "$program" 'not there' 'it was not built'
        missing=$(lacks "$program")
        [ -z "$missing" ] || row "$program" 'no library' "$(echo "$missing" | tr -s ' \t\n' ' ' | cut -c1-100)"
    done
fi
train=("$programs/train_cuda" --data tests/data/shakespeare.txt --model "$model" --sequences 2 --micro-batches 2 --steps 3 --quiet --hash)
bench() { # bench SECONDS NAME LOG ARGUMENTS...
    local seconds=$1 name=$2 log=$3
    shift 3
    try "$seconds" "$name" "$log" "$programs/bench_cuda" "$@" "${small[@]}"
}

# Which op takes what, over whole steps.
count_steps() {
    local number=0 one
    for one in "${counts[@]}"; do
        number=$((number + 1))
        # shellcheck disable=SC2086
        try 60 "op timer, ${one%% *}" "op_timer_$number.jsonl" "$programs/bench_cuda" count $one
    done
}

# The same as a table, by op and shape, beside what the model predicts.
count_table() {
    command -v python3 > /dev/null && python3 tests/cuda/model.py --measured "$folder" >> "$table"
}

phase_speed() {
    try 90 'tests of the kernels' test_kernels.txt "$tests/test_kernels"
    try 40 'graphs change no bits' train_eager.txt bash -c '
        a=$("$@" cuda:0 | tail -n 1) && b=$("$@" cuda:0:eager | tail -n 1) && echo "$a" && echo "$b" && [ "$a" = "$b" ]' - "${train[@]}" --devices
    bench 180 'benchmark of steps' bench_steps.jsonl steps
    count_steps
    bench 60 'benchmark of products' bench_gemm.jsonl gemm
    bench 90 'benchmark of ops' bench_ops.jsonl ops
    count_table
    command -v ncu > /dev/null && [ -z "$STANDIN" ] && try 90 'ncu over two layers' ncu.csv ncu --clock-control none --csv --metrics \
        gpu__time_duration.sum,dram__bytes.sum,smsp__inst_issued.sum,sm__inst_executed_pipe_tensor.sum,l1tex__data_bank_conflicts_pipe_lsu.sum \
        "$programs/bench_cuda" count gpt2:layers=2,width=768,heads=12,vocab=50257,context=1024 16 1024 1
    if [ -x build/standin/bench_cuda ] && command -v python3 > /dev/null; then
        python3 tests/cuda/model.py build/standin/bench_cuda > "$logs/model.txt" 2>&1 && cat "$logs/model.txt" >> "$table"
    fi
}

phase_right() {
    try 120 'test_cuda_device' test_cuda_device.txt "$tests/test_cuda_device"
    try 30 'test_cuda_oracle' test_cuda_oracle.txt "$tests/test_cuda_oracle"
    try 60 'train --devices cuda:0, twice the same bits' train_cuda.txt bash -c '
        a=$("$@" | tail -n 1) && b=$("$@" | tail -n 1) && echo "$a" && echo "$b" && [ "$a" = "$b" ]' - "${train[@]}" --devices cuda:0
    try 40 'train --dtype bf16' train_bf16.txt "${train[@]}" --devices cuda:0 --dtype bf16
    try 40 'train --dtype bf16 --optimizer muon' train_muon.txt "${train[@]}" --devices cuda:0 --dtype bf16 --optimizer muon
    try 40 'train --devices cuda:0:atomic' train_atomic.txt "${train[@]}" --devices cuda:0:atomic --dtype bf16
    try 40 'train --devices cuda:0,cpu:12 --plan dp' train_mixed.txt "${train[@]}" --devices cuda:0,cpu:12 --plan dp
    try 40 'train --devices cuda:0,cpu:12 --plan pp' train_pipeline.txt "${train[@]}" --devices cuda:0,cpu:12 --plan pp
    # NCCL: what one card can say of it. Two processes on it, which NCCL takes for two machines; one of them killed.
    if [ -z "$STANDIN" ] && command -v "${NVCC:-nvcc}" > /dev/null; then
        try 120 'build NCCL' build_nccl.txt make -k -j"$JOBS" nccl build/on_cuda/test_nccl
    fi
    if [ -x "$tests/test_nccl" ]; then
        try 90 'test_nccl' test_nccl.txt "$tests/test_nccl"
    else row 'test_nccl' 'not run' 'it was not built'; fi
    pair=("$programs/train_nccl" --data tests/data/shakespeare.txt --model "$model" --sequences 2 --micro-batches 2 --hash)
    if [ -n "$STANDIN" ]; then row 'two processes on one card, NCCL over sockets' 'not run' 'the stand-in is of one process'
    elif [ -x "$programs/train_nccl" ]; then
        for plan in dp pp; do
            try 40 "two processes on one card, NCCL over sockets, $plan" "nccl_$plan.txt" \
                bash tests/cuda/two_processes.sh run "$logs/nccl_$plan" "${pair[@]}" --steps 5 --plan "$plan"
        done
        try 80 'one of two processes killed' nccl_kill.txt bash tests/cuda/two_processes.sh kill "$logs/nccl_kill" "${pair[@]}" --steps 1000000 --plan dp
    fi
    # Over the kernels' own tests: cuBLAS would take the time of whole trainings, and reports of its own.
    for tool in memcheck racecheck initcheck synccheck; do
        if [ -n "$STANDIN" ] || ! command -v compute-sanitizer > /dev/null; then
            row "compute-sanitizer $tool" 'not run' "$([ -n "$STANDIN" ] && echo 'needs a GPU' || echo 'it is not installed')"
            continue
        fi
        try 45 "compute-sanitizer $tool" "sanitizer_$tool.txt" env HETRAIN_TEST_ONLY='*bf16*' \
            compute-sanitizer --tool "$tool" --kernel-regex kns=hetc_ --error-exitcode 9 "$tests/test_kernels"
    done
}

phase_anchor() {
    if [ -n "$STANDIN" ]; then row 'PyTorch' 'not run' 'needs a GPU'
    elif python3 -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; then
        try 280 'PyTorch, compiled steps' torch_steps.jsonl python3 tests/cuda/torch_cuda.py steps
        try 120 'PyTorch, ops' torch_ops.jsonl python3 tests/cuda/torch_cuda.py ops
    else row 'PyTorch' 'not run' 'python3 has no torch that finds the GPU'; fi
}

phase_tune() {
    bench 120 'benchmark of steps, timed algorithms' bench_steps_fast.jsonl steps --fast
    bench 120 'benchmark of ops, tf32 and timed algorithms' bench_ops_fast.jsonl ops --fast
    bench 90 'benchmark of products, timed algorithms' bench_gemm_fast.jsonl gemm --fast
}

phase_rows() {
    local one
    : > "$folder/rows_said.txt"
    for one in fused ablate sweep beside layouts; do
        try 110 "row $one" "row_$one.txt" bash -c '
            bash tests/systems/card.sh "$1"; status=$?; [ $status = 77 ] && [ -n "$2" ] && exit 0; exit $status' - "$one" "$STANDIN"
        sed -n "s/^\(works\|short\)/$one \1/p" "$logs/row_$one.txt" >> "$folder/rows_said.txt" 2> /dev/null
    done
}

# What the rows say, and of it the ratios: NAME RATIO, and what is asked for where something is.
rows_ratios() {
    local said=$folder/rows_said.txt
    fold -s -w 148 "$said"
    echo
    {
        sed -n 's/^fused .* starts \([0-9]*\) kernels.* would \([0-9]*\) .*/\1 \2/p' "$said" |
            awk '{ print "kernels of a layer, of one op at a time|" $1 / $2 "|at most 0.5" }'
        grep '^ablate ' "$said" | grep -oE '[a-z0-9]+ [0-9.e+-]+ ms \(' | awk '
            $1 == "base" { base = $2; next } base > 0 { print "step, " $1 ", of the base|" $2 / base "|" }'
        sed -n 's/^ablate .* ms: .*: [0-9.]*, \([0-9.]*\) of the eager step, .*/modules, of the eager step|\1|0.95 to 1.1/p' "$said"
        grep '^sweep ' "$said" | grep -oE '[0-9]+x[0-9]+[a-z_]* [0-9.e+]+ tokens/s' | awk '
            NR == 1 { best = $2 } best > 0 { print "micro-batches x sequences, " $1 ", of the best|" $2 / best "|" }'
        sed -n 's/^sweep .* the planner proposes \([^ ]*\), \([0-9.]*\) of the best$/the planner proposes \1, of the best|\2|at least 0.98/p' "$said"
        grep '^beside ' "$said" | grep -oE 'beside[_0-9a-z]* [0-9.]+ and [0-9.]+' | awk '
            { asked = $1 == "beside_16th"; print "step, " $1 ", of alone|" $2 "|" (asked ? "at most 1.05" : "")
              print "speed of the other, " $1 ", of alone|" $4 "|" (asked ? "above 0" : "") }'
        sed -n 's/^layouts .* in %) \([0-9.]*\) .* is the best, .* the planner proposes \([0-9.]*\).*/\2 \1/p' "$said" |
            awk '{ print "step of the layout proposed, of the best|" $1 / $2 "|at most 1" }'
    } | awk -F '|' 'BEGIN { printf "%-58s %10s  %s\n", "ratio", "measured", "asked for" } { printf "%-58s %10.4g%s\n", $1, $2, $3 ? "  " $3 : "" }'
    echo
}

"phase_$phase"

# ---- the ratios last ----
echo
{
    if [ "$phase" = rows ]; then rows_ratios; else
        bash tests/cuda/table.sh "$folder" > "$logs/ratios.txt"
        sed '/^all measurements/,$d' "$logs/ratios.txt"
    fi
    echo "$SECONDS seconds, $failures failed; all of it: $folder"
} | tee -a "$table" | cut -c1-150 | tail -c 7900
[ "$failures" = 0 ]
