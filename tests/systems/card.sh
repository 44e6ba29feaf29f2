#!/bin/bash
# Rows that want a CUDA card: with make cuda build/bench_cuda cuda-tests, where nvidia-smi finds one. Elsewhere the same on the stand-in, with tiny
# shapes: lines "works on the stand-in: ...", which say nothing of a card, and status 77: skipped.
# usage: tests/systems/card.sh fused|ablate|sweep|beside|layouts    layouts: on no card
. "$(dirname "$0")/common.sh"
programs=${programs%/checked}
card=$(nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null | head -n 1)
if [ -n "$card" ]; then
    suites=on_cuda shape=width=768,heads=12,vocab=512,context=1024 sequences=16 length=1024
    model=gpt2:124m all=64 steps=5
else
    suites=../tests programs=$programs/standin shape=width=16,heads=2,vocab=256,context=16 sequences=2 length=16
    model=gpt2:layers=2,$shape all=16 steps=2
    works() { echo "works on the stand-in: $*"; }
fi
peak=989e12 # FLOP/s: dense bf16 of an H100 or H200, SXM, as published
field() { sed -n 's/^{"name":"'"$2"'",.*"'"$3"'":\([0-9.e+-]*\).*/\1/p' "$1"; } # field LOG NAME KEY
# holds 'EXPRESSION' TEXT: of figures that only a card has; on the stand-in anything does
holds() { [ -z "$card" ] || is "$1" || short "$2"; }

# A layer's kernels a step, forward and backward: what two layers start more than one, but for the update and copies.
launches() {
    sed -nE '/"op":"(adamw|sum_squares|verdict|round|copy|clear)/d; s/.*"launches":([0-9]+).*/\1/p' "$1" | awk '{ n += $1 } END { print n }'
}

# One op at a time, as the formulas stand, a kernel for each product, sum over rows or columns and elementwise operation of a GPT-2 layer; matrices of
# queries, keys and values are one; casts, transpositions and adding up gradients are free.
# Forward 44. Norms 2 x 8: mean, x - mean, its square, that one's mean, rstd, times rstd, times gain, plus bias. Linear layers 4 x 2: product, bias.
#   Attention 9: q k^T, scale, mask, maximum, difference, exp, sum, quotient, times v. GELU 9: x x, x x x, times c, plus x, times d, t = tanh of it,
#   1 + t, times x, halved. Residual sums 2.
# Backward 54. Norms 2 x 11: dy gain, its mean, times xhat, that one's mean, times xhat, two differences, times rstd; dy xhat and its sum, the sum of
#   dy. Linear layers 4 x 3: two products, the bias's sum. Attention 9: dv, dp, dp p, its sum, difference, times p, scale, dq, dk. GELU 9: t t,
#   1 - t t, x x scaled, plus d, their product, times x / 2, (1 + t) / 2, sum, times dy. Residual sums 2.
# Coarser, with norms (backward 2), softmax and GELU a kernel each: 18 + 25.
plain=98 coarse=43
fused() {
    local worst kernels
    HETRAIN_TEST_ONLY='*_trains_in_bf16' does agree "$suites/test_cuda_device"
    worst=$(grep -oE '(gpt2|llama) bf16 [a-z]+: loss.*' agree | paste -sd , | sed 's/,\([gl]\)/; \1/g')
    [ -n "$worst" ] || short "no test of bf16 ran: $(tail -n 1 agree)"
    does lengths bench_cuda lengths "gpt2:layers=1,$shape" $sequences $length 2
    [ "$(field lengths lengths_round_2 allocations) $(field lengths lengths_round_2 less_free)" = '0 0' ] || short "memory was taken: $(cat lengths)"
    does one bench_cuda count "gpt2:layers=1,$shape" $sequences $length 2
    does two bench_cuda count "gpt2:layers=2,$shape" $sequences $length 2
    kernels=$((($(launches two) - $(launches one)) / 2))
    is "$kernels > 0 && $kernels <= $plain / 2" || short "a layer starts $kernels kernels, of $plain one op at a time"
    works "${card:+$card: }against the CPU, shares of the largest value: $worst; 0 allocations in 2 x $length steps of lengths 1 to $length," \
        "free memory $(field lengths lengths_round_1 less_free) bytes less in the first round (kernels that are loaded), 0 in the second;" \
        "a layer of $shape starts $kernels kernels forward and backward, one op at a time would $plain (a count, not a run;" \
        "$coarse with norms, softmax and GELU a kernel each)"
}

ablate() {
    local one said table whole
    does log bench_cuda ablate $model $sequences $length $steps
    for one in base f32 exact recompute atomic eager timed; do
        said+="${said:+, }$one $(field log ablate_$one ms) ms ($(field log ablate_$one rate) tokens/s, $(field log ablate_$one bytes) bytes)"
    done
    for one in attention products head norms update copies other; do table+="${table:+, }$one $(field log module_$one ms)"; done
    whole=$(field log modules of_eager)
    holds "$whole >= 0.95 && $whole <= 1.1" "modules ($table ms) sum to $whole of the eager step; $said"
    works "${card:+$card: }$model, $sequences x $length tokens, one thing at a time (base: bf16, fast sums, graphs, nothing recomputed): $said;" \
        "modules in ms: $table: $(field log modules ms), $whole of the eager step, $(field log modules of_timed) of the step whose ops are timed"
}

# Model FLOPs of a token: 6 for each parameter, and 6 T E a layer for causal attention over T tokens; what is recomputed does not count.
# Then the planner, from a profile of the card and the step's sequences: its micro-batch and recomputation are to be the best ones, or within 2 %.
sweep() {
    local said chosen rate best
    does log bench_cuda sweep $model $all $length 3
    sed -n 's/.*"name":"sweep_\([^"]*\)".*"rate":\([0-9.e+]*\).*"bytes":\([0-9]*\),"flops":\([0-9.e+]*\).*/\1 \2 \3 \4/p' log |
        awk -v peak=$peak '{ printf "%s %.0f tokens/s, MFU %.1f %%, %d bytes\n", $1, $2, 100 * $2 * $4 / peak, $3 }' | sort -k2,2gr > table
    [ "$(wc -l < table)" = 8 ] || short "$(cat log)"
    said="${card:+$card: }$model, $all x $length tokens a step as micro-batches x sequences, best first (peak: $peak FLOP/s): $(paste -sd ';' table |
        sed 's/;/; /g')"
    does profile train_cuda --data "$text" --model $model --length $length --sequences 1 --micro-batches $all --granule 1 --dtype bf16 --reduce fast \
        --devices cuda:0 --steps 0 --quiet --save-profile p.json
    "${programs%/standin}/plan" --profile p.json --devices cuda:0 --sequences 1 --micro-batches $all --length $length --granule 1 --seconds 2 \
        --schedules 1f1b --out plan.json > plan 2>&1 || short "plan: $(tail -n 1 plan); $said"
    chosen=$(sed -n 's/.*"micro_batch": \([0-9]*\).*/\1/p' plan.json)
    chosen=$((all / chosen))x$chosen$(grep -q '"recompute": [^f0]' plan.json && echo _recompute)
    rate=$(awk -v name="$chosen" '$1 == name { print $2 }' table) best=$(awk 'NR == 1 { print $2 }' table)
    [ -n "$rate" ] || short "the planner proposes $chosen, which the sweep has not; $said"
    holds "$rate >= 0.98 * $best" "the planner proposes $chosen; $said"
    works "$said; the planner proposes $chosen, $(awk "BEGIN { printf \"%.3f\", $rate / $best }") of the best"
}

# The same for eight such cards, simulated from what their maker publishes: micro-batches of 1 to 8 sequences, without and with recomputation,
# pipelines of 1 to 8 stages beside each other, weights divided among them. The planner's step is to be as short as the best one.
layouts() {
    local plan=("${programs%/standin}/plan" --hardware cards.json --model gpt2:1558m --dtype bf16 --devices "$(printf 'h100,%.0s' {1..7})h100")
    local batch stages again note best chosen runs
    echo '{ "devices": [ { "name": "h100", "f32": "67T", "bf16": "989T", "bandwidth": "3.35T", "memory": "80G", "launch": "4us" } ],
            "links": [ { "name": "nvlink", "latency": "3us", "bandwidth": "450G" } ] }' > cards.json
    for batch in 1 2 4 8; do for stages in 1 2 4 8; do for again in false true; do
        awk -v s=$stages -v again=$again 'BEGIN { printf "{\"schedule\":\"1f1b\",\"shard\":\"weights\",\"pipelines\":["
            for (r = 0; r < 8; r++) { i = r % s; printf "%s%s{\"rank\":%d,\"units\":[%d,%d],\"recompute\":%s}%s", r ? "," : "",
                i ? "" : "{\"stages\":[", r, int(98 * i / s), int(98 * (i + 1) / s), again, i == s - 1 ? "]}" : "" }
            print "]}" }' > layout.json
        "${plan[@]}" --plan layout.json --simulate 1f1b --micro-batches $((64 / batch)) --sequences $batch > run 2>&1 || short "plan: $(cat run)"
        note="$((8 / stages)) x $stages stages, micro-batches of $batch"
        [ $again = true ] && note+=', recomputing'
        sed -n "1s/.*tokens a step: \([0-9.]*\) ms, .*MFU \(.*\) %.*/\1 \2 $note/p" run >> runs
    done; done; done
    runs=$(wc -l < runs) best=$(sort -g runs | head -n 1)
    "${plan[@]}" --micro-batches 64 --sequences 1 --granule 1 --seconds 3 --out plan.json > chosen 2>&1 || short "plan: $(cat chosen)"
    chosen=$(sed -n '1s/.*: \([0-9.]*\) ms a step, simulated: /\1 /p; s/^MFU  *\([0-9.]*\) .*/MFU \1/p' chosen | paste -sd , | sed 's/,MFU/, MFU/')
    is "$runs == 32 && ${chosen%% *} <= ${best%% *}" || short "of $runs layouts $best is the best, the planner proposes $chosen"
    echo "works: gpt2:1558m, 64 x 1024 tokens a step on 8 simulated H100: of $runs layouts (ms, MFU in %) $best is the best," \
        "$(sort -g runs | tail -n 1) the slowest; the planner proposes $chosen"
}

# What a context leaves of the card, given to another one behind it: a step of few tokens, which alone leaves much.
beside() {
    local said form
    does log bench_cuda beside $model 1 $((length / 4)) $(is "$length < 1024" && echo 2 || echo 250)
    for form in beside beside_8th beside_16th; do
        said+="${said:+, }$form $(field log $form of_alone) and $(field log $form behind_of_alone)"
    done
    holds "$(field log beside_16th of_alone) <= 1.05 && $(field log beside_16th behind_of_alone) > 0" "$(cat log)"
    works "${card:+$card: }$model, 1 x $((length / 4)) tokens: $(field log beside_first_alone ms | tail -n 1) ms alone; its time, and the speed of" \
        "another that goes behind, on all multiprocessors or an 8th or 16th of them, in shares of alone: $said"
}

case $1 in
layouts) layouts; exit ;;
fused|ablate|sweep|beside) [ -x "$programs/bench_cuda" ] || { echo "no $programs/bench_cuda: make cuda build/bench_cuda cuda-tests"; exit 77; } ;;
*) short "$0 fused|ablate|sweep|beside|layouts" ;;
esac
"$1"
[ -n "$card" ] || exit 77
