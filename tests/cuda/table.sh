#!/bin/bash
# The table of on_gpu.sh, from the JSON lines that bench_cuda and torch_cuda.py left in a folder: what was asked for, measured and reached, and then
# all measurements. What is not there was not measured, and says so. Prints nothing that is not in the files.
# usage: tests/cuda/table.sh FOLDER   with bench_ops.jsonl bench_gemm.jsonl bench_steps.jsonl (deterministic), the same as bench_..._fast.jsonl
#        (algorithms chosen by timing), torch_ops.jsonl torch_steps.jsonl
folder=${1:?usage: tests/cuda/table.sh FOLDER}

# Each line of the files as: SET NAME KEY VALUE. SET: plain, timed or torch. The name comes first in a line.
facts() {
    local set=$1 file
    shift
    for file in "$@"; do
        [ ! -f "$folder/$file" ] || awk -v set="$set" '{
            name = ""
            for (rest = $0; match(rest, /"[a-z_]+": *("[^"]*"|[^,}"]+)/); rest = substr(rest, RSTART + RLENGTH)) {
                key = value = substr(rest, RSTART + 1, RLENGTH - 1)
                sub(/".*/, "", key)
                sub(/^[a-z_]+": *"?/, "", value)
                sub(/"$/, "", value)
                if (key == "name") name = value
                else if (name != "" && value !~ /[^0-9A-Za-z.:\/+-]/) print set, name, key, value
            } }' "$folder/$file"
    done
}

{
    facts plain bench_ops.jsonl bench_gemm.jsonl bench_steps.jsonl
    facts timed bench_ops_fast.jsonl bench_gemm_fast.jsonl bench_steps_fast.jsonl
    facts torch torch_ops.jsonl torch_steps.jsonl
    # What is asked for. ROW KIND NAME PYTORCH ACCEPT GOOD STRETCH [WORK]   KIND: speed, of PyTorch's; copy, of the copy's; self, deterministic of
    # timed; atomic, NAME_atomic of deterministic; memory, of PyTorch's, less is better; rate, in thousands a second. WORK: TFLOP of a token.
    # -: nothing is asked
    # Products: operands are bf16 already on both sides, as in a step; results too, but for our gradient of a matrix. gemm_AxB: x [rows][A] to
    # y [rows][B], with dgelu dy [rows][A] to dx [rows][B]. A dx without GELU has no name of its own: it is the product of its shape.
    sed 's/^/row /' <<'ROWS'
speed gemm_768x2304_bf16_none linear_forward_768x2304_bf16 0.97 1.00 1.05
speed gemm_768x3072_bf16_none linear_forward_768x3072_bf16 0.97 1.00 1.05
speed gemm_768x3072_bf16_gelu linear_forward_768x3072_bf16 0.97 1.00 1.05
speed gemm_3072x768_bf16_none linear_forward_3072x768_bf16 0.97 1.00 1.05
speed gemm_1600x6400_bf16_none linear_forward_1600x6400_bf16 0.97 1.00 1.05
speed gemm_3072x768_bf16_none linear_backward_input_768x3072_bf16 0.97 1.00 1.05
speed gemm_768x3072_bf16_dgelu linear_backward_input_3072x768_bf16 0.97 1.00 1.05
speed gemm_768x3072_f32_weight linear_backward_weight_768x3072_bf16 0.97 1.00 1.05
speed attention_forward_head64_T1024 attention_forward_head64_T1024 0.80 1.00 1.15
speed attention_forward_head64_T4096 attention_forward_head64_T4096 0.80 1.00 1.15
speed attention_backward_head64_T1024 attention_backward_head64_T1024 0.75 1.00 1.20
speed attention_backward_head64_T4096 attention_backward_head64_T4096 0.75 1.00 1.20
speed attention_forward_head128_T1024 attention_forward_head128_T1024 0.80 1.00 1.60
speed attention_forward_head128_T4096 attention_forward_head128_T4096 0.80 1.00 1.60
speed attention_backward_head128_T1024 attention_backward_head128_T1024 0.70 1.00 1.30
speed attention_backward_head128_T4096 attention_backward_head128_T4096 0.70 1.00 1.30
self attention_backward_head64_T1024 - 0.75 - -
self attention_backward_head64_T4096 - 0.75 - -
atomic attention_backward_head64_T1024 - 1.00 - -
atomic attention_backward_head64_T4096 - 1.00 - -
atomic attention_backward_head128_T4096 - 1.00 - -
speed norm_backward norm_backward 1.3 1.7 2.0
speed cross_entropy cross_entropy 1.3 2 3
memory cross_entropy cross_entropy 0.5 - -
copy adamw - 0.85 - -
speed step_gpt2:124m_bf16_fast step_gpt2:124m_bf16_fast 1.05 1.15 1.30 803e-6
rate step_gpt2:124m_bf16_fast - - 470 520
self step_gpt2:124m_bf16_fast - 0.75 - -
memory step_gpt2:124m_bf16_fast step_gpt2:124m_bf16_fast 0.6 0.5 -
speed step_gpt2:1558m_bf16_fast step_gpt2:1558m_bf16_fast 1.05 1.15 1.30 9.82e-3
speed step_gpt2:1558m_2x16_bf16_fast step_gpt2:1558m_2x16_bf16_fast 1.05 1.15 1.30 9.82e-3
rate step_gpt2:1558m_bf16_fast - - 48 53
self step_gpt2:1558m_bf16_fast - 0.75 - -
memory step_gpt2:1558m_bf16_fast step_gpt2:1558m_bf16_fast 0.6 0.5 -
ROWS
} | awk '
    function number(x) { return x == "" ? "-" : sprintf("%.4g", x) }
    function share_of(rate, unit, work,   whole) {
        if (rate != "" && work != "") { rate = rate * work; unit = "TFLOP/s" }
        whole = unit == "TFLOP/s" ? peak : unit == "GB/s" ? copy : 0
        return rate != "" && whole > 0 ? sprintf("%.0f %%", 100 * rate / whole) : "-"
    }
    # What a ratio reaches; with less: the smaller, the better.
    function reached(ratio, accept, good, stretch, less,   s) {
        s = less ? -1 : 1
        if (stretch != "-" && s * ratio >= s * stretch) return "stretch"
        if (good != "-" && s * ratio >= s * good) return "good"
        if (accept != "-" && s * ratio >= s * accept) return "accept"
        return "below"
    }
    function line(a, b, c, d, e, f, g, h, i, j) { printf "%-52s %10s %10s %7s %10s %7s %7s %5s %7s  %s\n", a, b, c, d, e, f, g, h, i, j }
    $1 != "row" { fact[$1, $2, $3] = $4; if (!(($1, $2) in seen)) { seen[$1, $2] = 1; if ($1 != "torch") order[++count] = $1 " " $2 }; next }
    $1 == "row" { rows++; for (i = 2; i <= 8; i++) row[rows, i] = $i }
    END {
        for (i = 0; i < 4; i++) {
            rate = fact[i % 2 ? "timed" : "plain", i < 2 ? "linear_forward_8192x8192_bf16" : "gemm_8192x8192_bf16_none", "rate"] + 0
            if (peak < rate) peak = rate
        }
        copy = fact["plain", "copy", "rate"] + 0
        line("asked for", "timed", "determin.", "share", "PyTorch", "ratio", "accept", "good", "stretch", "reached")
        for (r = 1; r <= rows; r++) {
            kind = row[r, 2]; name = row[r, 3]; torch = row[r, 4]; accept = row[r, 5]; good = row[r, 6]; stretch = row[r, 7]; work = row[r, 8]
            key = kind == "memory" ? "bytes" : "rate"
            timed = fact["timed", name, key]; plain = fact["plain", name, key]; theirs = torch == "-" ? "" : fact["torch", torch, key]
            unit = ("plain", name, "unit") in fact ? fact["plain", name, "unit"] : fact["timed", name, "unit"]
            own = timed != "" ? timed : plain
            under = kind == "copy" ? (copy > 0 ? copy : "") : kind == "self" ? timed : kind == "atomic" ? plain : kind == "rate" ? 1000 : theirs
            over = kind == "self" ? plain : kind == "atomic" ? fact["plain", name "_atomic", key] : own
            product = torch == "-" ? name : torch
            if (product != name) gsub(/^linear_|_bf16$/, "", product)
            title = name (kind == "memory" ? ", bytes" : kind == "self" ? ", deterministic/timed" : \
                          kind == "atomic" ? ", atomic/determin." : kind == "copy" ? ", of copy" : \
                          kind == "rate" ? ", thousands/s" : product != name ? ", " product : "")
            if (over == "" || under == "") {
                line(title, number(timed), number(plain), share_of(own, key == "bytes" ? "" : unit, work), number(theirs), "-", accept, good,
                     stretch, (over == "" ? "" : kind == "copy" ? "copy " : kind == "self" ? "timed " : kind == "atomic" ? "deterministic " : \
                     "PyTorch ") "not measured")
                missing++
                continue
            }
            ratio = over / under
            what = reached(ratio, accept, good, stretch, kind == "memory")
            if (what == "below") below++
            line(title, number(timed), number(plain), share_of(own, key == "bytes" ? "" : unit, work), number(theirs), sprintf("%.2f", ratio), accept,
                 good, stretch, what)
        }
        printf "\n%d asked for: %d reached, %d below, %d not measured\n\n", rows, rows - below - missing, below, missing
        # algos: that the heuristic has found; gain: how many times as fast as its first the fastest of them is
        printf "%-60s %12s %-9s %7s %12s %7s %6s %6s\n", "all measurements", "rate", "unit", "share", "PyTorch", "ratio", "algos", "gain"
        for (i = 1; i <= count; i++) {
            split(order[i], at, " ")
            rate = fact[at[1], at[2], "rate"]; unit = fact[at[1], at[2], "unit"]; theirs = fact["torch", at[2], "rate"]
            best = fact[at[1], at[2], "best_ms"]
            printf "%-60s %12s %-9s %7s %12s %7s %6s %6s\n", at[2] (at[1] == "timed" ? " (timed)" : ""), number(rate), unit, \
                   share_of(rate, unit, ""), number(theirs), theirs != "" ? sprintf("%.2f", rate / theirs) : "-", \
                   number(fact[at[1], at[2], "algorithms"]), best != "" ? sprintf("%.2f", fact[at[1], at[2], "first_ms"] / best) : "-"
        }
    }'
