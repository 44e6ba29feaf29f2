#!/bin/bash
# Rows that want a CUDA card: with make cuda build/bench_cuda cuda-tests, where nvidia-smi finds one. Elsewhere the same on the stand-in, with tiny
# shapes: lines "works on the stand-in: ...", which say nothing of a card, and status 77: skipped.
# usage: tests/systems/card.sh ablate
. "$(dirname "$0")/common.sh"
programs=${programs%/checked}
card=$(nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null | head -n 1)
if [ -n "$card" ]; then
    shape=width=768,heads=12,vocab=512,context=1024 sequences=16 length=1024
    model=gpt2:124m steps=5
else
    programs=$programs/standin shape=width=16,heads=2,vocab=256,context=16 sequences=2 length=16
    model=gpt2:layers=2,$shape steps=2
    works() { echo "works on the stand-in: $*"; }
fi

[ -x "$programs/bench_cuda" ] || { echo "no $programs/bench_cuda: make cuda build/bench_cuda cuda-tests, or standin-programs"; exit 77; }

field() { sed -n 's/^{"name":"'"$2"'",.*"'"$3"'":\([0-9.e+-]*\).*/\1/p' "$1"; } # field LOG NAME KEY
# holds 'EXPRESSION' TEXT: of figures that only a card has; on the stand-in anything does
holds() { [ -z "$card" ] || is "$1" || short "$2"; }

ablate() {
    local one said table whole
    does log bench_cuda ablate $model $sequences $length $steps
    for one in base f32 exact recompute eager timed; do
        said+="${said:+, }$one $(field log ablate_$one ms) ms ($(field log ablate_$one rate) tokens/s, $(field log ablate_$one bytes) bytes)"
    done
    for one in attention products head norms update copies other; do table+="${table:+, }$one $(field log module_$one ms)"; done
    whole=$(field log modules of_eager)
    holds "$whole >= 0.95 && $whole <= 1.1" "modules ($table ms) sum to $whole of the eager step; $said"
    works "${card:+$card: }$model, $sequences x $length tokens, one thing at a time (base: bf16, fast sums, graphs, nothing recomputed): $said;" \
        "modules in ms: $table: $(field log modules ms), $whole of the eager step, $(field log modules of_timed) of the step whose ops are timed"
}

case $1 in ablate) "$1" ;; *) short "$0 ablate" ;; esac
[ -n "$card" ] || exit 77
