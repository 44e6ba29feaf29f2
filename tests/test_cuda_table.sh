#!/bin/bash
# tests/cuda/table.sh, the last part of tests/cuda/on_gpu.sh, on files made up here: every kind of row, above, between and below its limits, and what
# is not there; on_gpu.sh itself, with programs that fail or end it; bench_cuda on the stand-in, where an op fails. Where Python has PyTorch,
# tests/cuda/torch_cuda.py runs small on the CPU as well, and names its measurements as the table does. Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shows NAME WORDS...: the row that starts with NAME, a comma and blank or a blank behind it, ends with WORDS.
shows() {
    local name=$1 row
    shift
    row=$(grep -m 1 -F -- "$name " "$work/table" | tr -s ' ')
    report "$([ "${row% }" != "${row%"$*"}" ]; echo $?)" "$name: $*" "$row"
}

made() { # made SET NAME RATE UNIT [BYTES]
    local file=$work/$1.jsonl bytes=${5:+,\"bytes\":$5}
    echo "{\"name\":\"$2\",\"ms\":1.5,\"rate\":$3,\"unit\":\"$4\"$bytes}" >> "$file"
}

# ---- nothing measured ----
bash tests/cuda/table.sh "$work" > "$work/table"
report $? 'an empty folder gives a table'
asked=$(sed -n 's/^\([0-9]*\) asked for: .*/\1/p' "$work/table")
report "$([ "$(grep -c 'not measured$' "$work/table")" = $((asked + 1)) ] && [ "$asked" -ge 30 ]; echo $?)" 'each of its rows says not measured' \
    "$(cat "$work/table")"
shows 'step_gpt2:1558m_bf16_fast, thousands/s' - - - - - - 48 53 not measured

# ---- everything there is a kind of row for ----
made bench_ops copy 2000 GB/s
made bench_ops linear_forward_8192x8192_bf16 600 TFLOP/s
made bench_ops_fast linear_forward_8192x8192_bf16 800 TFLOP/s
made bench_ops linear_forward_768x3072_bf16 100 TFLOP/s
made bench_gemm gemm_768x3072_bf16_none 380 TFLOP/s
made bench_gemm_fast gemm_768x3072_bf16_none 400 TFLOP/s
made bench_gemm_fast gemm_768x3072_bf16_gelu 384 TFLOP/s
made bench_gemm gemm_768x3072_bf16_dgelu 416 TFLOP/s
made bench_gemm gemm_768x3072_f32_weight 450 TFLOP/s
made bench_gemm gemm_3072x768_bf16_none 500 TFLOP/s
made bench_ops attention_backward_head64_T1024 300 TFLOP/s
made bench_ops_fast attention_backward_head64_T1024 500 TFLOP/s
made bench_ops attention_backward_head64_T1024_atomic 330 TFLOP/s
made bench_ops attention_backward_head128_T4096_atomic 330 TFLOP/s
made bench_ops attention_forward_head128_T4096 480 TFLOP/s
made bench_ops norm_backward 1500 GB/s
made bench_ops cross_entropy 1700 GB/s 800
made bench_ops adamw 1690 GB/s
made bench_steps step_gpt2:124m_bf16_fast 400000 tokens/s 6000000000
made bench_steps_fast step_gpt2:124m_bf16_fast 480000 tokens/s 5500000000
made bench_steps_fast step_gpt2:1558m_bf16_fast 47000.5 tokens/s 40000000000
made bench_steps_fast step_gpt2:1558m_2x16_bf16_fast 50000 tokens/s
echo 'a line that is no measurement, and {"rate":1} one without a name' >> "$work/bench_ops.jsonl"
cat >> "$work/torch_ops.jsonl" <<'LINES'
{"name": "linear_forward_768x3072_bf16", "ms": 0.19, "rate": 400.0, "unit": "TFLOP/s"}
{"name": "linear_backward_input_3072x768_bf16", "ms": 0.19, "rate": 400.0, "unit": "TFLOP/s"}
{"name": "linear_backward_input_768x3072_bf16", "ms": 0.19, "rate": 520.0, "unit": "TFLOP/s"}
{"name": "linear_backward_weight_768x3072_bf16", "ms": 0.19, "rate": 500.0, "unit": "TFLOP/s"}
{"name": "attention_backward_head64_T1024", "ms": 0.19, "rate": 400.0, "unit": "TFLOP/s"}
{"name": "attention_forward_head128_T4096", "ms": 0.19, "rate": 3e2, "unit": "TFLOP/s"}
{"name": "norm_backward", "ms": 0.19, "rate": 1200.0, "unit": "GB/s"}
{"name": "cross_entropy", "ms": 0.19, "rate": 800.0, "unit": "GB/s", "bytes": 2000}
LINES
echo '{"name": "step_gpt2:124m_bf16_fast", "ms": 1.0, "rate": 400000.0, "unit": "tokens/s", "bytes": 10000000000}' > "$work/torch_steps.jsonl"
bash tests/cuda/table.sh "$work" > "$work/table"
report $? 'the table of made up files'
shows 'gemm_768x3072_bf16_none, forward_768x3072' 400 380 '50 %' 400 1.00 0.97 1.00 1.05 good
shows 'gemm_768x3072_bf16_gelu, forward_768x3072' 384 - '48 %' 400 0.96 0.97 1.00 1.05 below
shows 'gemm_768x3072_bf16_dgelu, backward_input_3072x768' - 416 '52 %' 400 1.04 0.97 1.00 1.05 good
shows 'gemm_768x3072_f32_weight, backward_weight_768x3072' - 450 '56 %' 500 0.90 0.97 1.00 1.05 below
shows 'gemm_3072x768_bf16_none, backward_input_768x3072' - 500 '62 %' 520 0.96 0.97 1.00 1.05 below
shows 'gemm_3072x768_bf16_none, forward_3072x768' - 500 '62 %' - - 0.97 1.00 1.05 PyTorch not measured
shows 'gemm_1600x6400_bf16_none, forward_1600x6400' - - - - - 0.97 1.00 1.05 not measured
shows 'attention_backward_head64_T1024' 500 300 '62 %' 400 1.25 0.75 1.00 1.20 stretch
shows 'attention_backward_head64_T1024, deterministic/timed' 500 300 '62 %' - 0.60 0.75 - - below
shows 'attention_backward_head64_T1024, atomic/determin.' 500 300 '62 %' - 1.10 1.00 - - accept
shows 'attention_backward_head128_T4096, atomic/determin.' - - - - - 1.00 - - deterministic not measured
shows 'attention_forward_head128_T4096' - 480 '60 %' 300 1.60 0.80 1.00 1.60 stretch
shows 'norm_backward' - 1500 '75 %' 1200 1.25 1.3 1.7 2.0 below
shows 'cross_entropy' - 1700 '85 %' 800 2.12 1.3 2 3 good
shows 'cross_entropy, bytes' - 800 - 2000 0.40 0.5 - - accept
shows 'adamw, of copy' - 1690 '84 %' - 0.84 0.85 - - below
shows 'step_gpt2:124m_bf16_fast' 4.8e+05 4e+05 '48 %' 4e+05 1.20 1.05 1.15 1.30 good
shows 'step_gpt2:124m_bf16_fast, thousands/s' 4.8e+05 4e+05 - - 480.00 - 470 520 good
shows 'step_gpt2:124m_bf16_fast, deterministic/timed' 4.8e+05 4e+05 - - 0.83 0.75 - - accept
shows 'step_gpt2:124m_bf16_fast, bytes' 5.5e+09 6e+09 - 1e+10 0.55 0.6 0.5 - accept
shows 'step_gpt2:1558m_2x16_bf16_fast' 5e+04 - '61 %' - - 1.05 1.15 1.30 PyTorch not measured
shows 'step_gpt2:1558m_bf16_fast, thousands/s' 4.7e+04 - - - 47.00 - 48 53 below
shows 'linear_forward_8192x8192_bf16 (timed)' 800 TFLOP/s '100 %' - - - -
report "$(grep -q "^$asked asked for: 11 reached, 7 below, $((asked - 18)) not measured\$" "$work/table"; echo $?)" 'they are counted' \
    "$(grep 'asked for:' "$work/table")"

# ---- on_gpu.sh with programs made up here: what fails, hangs or is not there leaves the rest, and what was finished is kept ----
root=$work/root
mkdir -p "$root/tests/cuda" "$root/build/standin" "$root/build/tests" "$root/path"
cp tests/cuda/on_gpu.sh tests/cuda/table.sh tests/cuda/model.py "$root/tests/cuda"
cat > "$root/build/standin/bench_cuda" <<'PROGRAM'
#!/bin/bash
case $1 in
    count) echo '{"model":"one","vocab":9}'; echo '{"op":"adamw","shape":[8,0,0],"calls":2,"ms":3,"least":1,"bytes":1.6e8,"flops":0,"launches":2}' ;;
    steps) echo '{"name":"step_gpt2:124m_bf16_fast","ms":1,"rate":480000,"unit":"tokens/s"}' ;;
    ops) seq -f '{"name":"op_%g","ms":1,"rate":100,"unit":"GB/s"}' 300; echo '{"name":"copy","ms":1,"rate":100,"unit":"GB/s"}' ;;
    *) [ -z "$ENDS" ] || kill -KILL "$(ps -o ppid= -p $PPID)"; echo 'no products'; exit 1 ;;
esac
PROGRAM
timeout=$(command -v timeout)
printf '#!/bin/bash\necho "$1 $2" >> "%s/limits"\nexec "%s" "$@"\n' "$work" "$timeout" > "$root/path/timeout"
chmod +x "$root/build/standin/bench_cuda" "$root/path/timeout"
# a program built elsewhere, whose library is nowhere but in a wheel of Python's
wheel=$work/site/nvidia/cu13/lib
mkdir -p "$wheel"
echo 'int far(void) { return 0; }' > "$work/far.c"
echo 'int far(void); int main(void) { return far(); }' > "$work/main.c"
${CC:-cc} -shared -fPIC "$work/far.c" -Wl,-soname,libfar.so.1 -o "$wheel/libfar.so.1" &&
    ${CC:-cc} "$work/main.c" "$wheel/libfar.so.1" -o "$root/build/standin/train_cuda"
call() { TMPDIR=$work PATH=$root/path:$PATH STANDIN=1 bash "$root/tests/cuda/on_gpu.sh" "$1" "$work/$1" > "$work/said" 2>&1; }
call speed
report "$([ $? = 1 ] && grep -q '^build  *FAILED' "$work/said" && grep -q '^benchmark of products  *FAILED .*: no products' "$work/said" &&
    grep -q '^benchmark of ops  *passed' "$work/said"; echo $?)" 'what cannot be built, or fails, leaves the rest' "$(cat "$work/said")"
tail -c 8000 "$work/said" > "$work/last"
report "$(grep -q '^asked for .*reached' "$work/last" && grep -q '^step_gpt2:124m.* 480.00 .*good' "$work/last" &&
    tail -n 1 "$work/last" | grep -q ' seconds, [1-9][0-9]* failed'; echo $?)" 'ratios come last, in under 8,000 characters' "$(cat "$work/last")"
report "$(grep -q '^train_cuda  *no library  *libfar' "$work/said"; echo $?)" 'a program without its library says so' "$(cat "$work/said")"
if command -v python3 > /dev/null; then
    PYTHONPATH=$work/site call speed
    report "$(grep -q '^benchmark of ops  *passed' "$work/said" && ! grep -q 'no library' "$work/said"; echo $?)" "libraries are looked for in Python's wheels" \
        "$(cat "$work/said")"
else leave_out 'no python3: no wheels'; fi
report "$(tar -tzf "$work/speed/speed.logs.tar.gz" | grep -q build.txt; echo $?)" 'logs are kept' "$(ls "$work/speed")"
report "$(grep -q '^    adamw  *8  *2  *2\.000  *0\.041 .* 80 %$' "$work/speed/speed.txt"; echo $?)" 'ops by shape, beside the prediction, with their share of what a copy reaches' \
    "$(cat "$work/speed/speed.txt")"
{ ENDS=1 call tune; } 2> /dev/null
report "$([ $? -gt 1 ] && tar -tzf "$work/tune/tune.logs.tar.gz" | grep -q build.txt; echo $?)" 'what a call has finished is kept whenever it ends' \
    "$(cat "$work/said")"
call right
call anchor
call rows
for phase in speed right anchor tune rows; do
    files=$(ls "$work/$phase")
    report "$([ "$(wc -l <<< "$files")" -le 8 ] && [ -s "$work/$phase/$phase.txt" ]; echo $?)" "$phase: at most 8 files" "$files"
done
report "$([ -s "$work/limits" ] && ! grep -qv '^-k 10$' "$work/limits"; echo $?)" 'what does not end is killed' "$(sort -u "$work/limits")"

# ---- bench_cuda: what it says of products; an op that fails leaves the others ----
bench=${BUILD:-build}/standin/bench_cuda
if [ -x "$bench" ]; then
    mkdir "$work/gemm"
    ASAN_OPTIONS=detect_leaks=0 timeout 100 "$bench" gemm --small > "$work/gemm/bench_gemm.jsonl" 2> "$work/errors"
    report $? 'products are measured' "$(cat "$work/errors")"
    # the stand-in has three, and the second is the fastest
    said=$(sed -n 's/.*TFLOP.*"algorithms":\([0-9]*\),"first_ms":\([0-9.e+-]*\),"best_ms":\([0-9.e+-]*\)}$/\1 \2 \3/p' "$work/gemm/bench_gemm.jsonl")
    report "$([ "$(wc -l <<< "$said")" = "$(grep -c TFLOP "$work/gemm/bench_gemm.jsonl")" ] &&
        awk '!($1 == 3 && $3 > 0 && $2 > $3) { exit 1 }' <<< "$said"; echo $?)" \
        'each with how many algorithms were found, and what the first and the fastest take' "$(cat "$work/gemm/bench_gemm.jsonl")"
    bash tests/cuda/table.sh "$work/gemm" > "$work/table"
    report "$(grep -q '^gemm_32x48_bf16_gelu .* 3  *2.29$' "$work/table" && grep -q '^gemm_32x48_f32_sums .* -  *-$' "$work/table"; echo $?)" \
        'the table shows both' "$(tail -n 20 "$work/table")"
    STANDIN_FAIL=300 ASAN_OPTIONS=detect_leaks=0 timeout 100 "$bench" ops --small > "$work/ops" 2> "$work/errors"
    report "$([ $? = 1 ] && grep -q '"copy"' "$work/ops" && grep -q '"adamw"' "$work/ops" && grep -q 'told by' "$work/errors"; echo $?)" \
        'an op that fails leaves the others to be measured' "$(cat "$work/errors" "$work/ops")"
else
    leave_out "bench_cuda fails: $bench has not been built"
fi

# ---- the names are those of the programs ----
for name in copy norm_backward cross_entropy adamw linear_forward_ linear_backward_input_ linear_backward_weight_ attention_ step_; do
    report "$(grep -q "\"$name" tests/cuda/bench_cuda.c && grep -q "\"$name" tests/cuda/torch_cuda.py; echo $?)" "both programs measure $name"
done
while read -r a b epilogue; do
    report "$(grep -q "{ $a, $b }" tests/cuda/bench_cuda.c && grep -q "\"$epilogue\"" tests/cuda/bench_cuda.c; echo $?)" \
        "bench_cuda measures gemm_${a}x${b}, $epilogue"
done < <(sed -n 's/^speed gemm_\([0-9]*\)x\([0-9]*\)_[a-z0-9]*_\([a-z]*\) .*/\1 \2 \3/p' tests/cuda/table.sh)
while read -r a b; do
    report "$(grep -q "($a, $b, rows)" tests/cuda/torch_cuda.py; echo $?)" "torch_cuda.py measures products of ${a}x${b}"
done < <(sed -n 's/^speed .* linear_[a-z_]*_\([0-9]*\)x\([0-9]*\)_bf16 .*/\1 \2/p' tests/cuda/table.sh | sort -u)
if python3 -c 'import torch' 2> /dev/null; then
    timeout 200 python3 tests/cuda/torch_cuda.py all --small --eager --device cpu > "$work/torch.jsonl" 2> "$work/errors"
    report $? 'torch_cuda.py runs small on the CPU' "$(tail -n 3 "$work/errors")"
    report "$([ "$(grep -c '^{"name": ".*"rate": .*"unit": ".*}$' "$work/torch.jsonl")" = 16 ]; echo $?)" 'one line a measurement' "$(cat "$work/torch.jsonl")"
else
    leave_out 'torch_cuda.py: python3 has no torch'
fi
echo "1..$count"
[ $failures = 0 ]
