#!/bin/bash
# A virtual worker that is slowed down 3 times for a while: seconds of UPDATES updates, a step each (synchronous) and 8 a step, one late (D = 1). Two
# workers of two ranks, of which one is twice as fast as the others; the second worker, whose 2 of 5 micro-batches leave its pipeline idle most, is
# slow from a third of the updates on until two thirds. Emulated speeds: a quiet machine. tests/bench/slowed.sh DATA [build/train]
data=${1:?usage: tests/bench/slowed.sh DATA [build/train]} program=${2:-build/train}
updates=${UPDATES:-96} model=${MODEL:-llama:layers=4,width=64,heads=4,context=64} # UPDATES: a multiple of 24
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
plan='{"pipelines":[{"share":3,"stages":[{"rank":0,"units":[0,7]},{"rank":1,"units":[7,10]}]},
                    {"share":2,"stages":[{"rank":2,"units":[0,5]},{"rank":3,"units":[5,10]}]}]}'
third=$((updates / 3))

# seconds NAME UPDATES-A-STEP options...: of all steps; both ranks are slow from step third / n + 1 on
seconds() {
    local name=$1 n=$2 from until
    shift 2
    from=$((third / n + 1)) until=$((2 * third / n + 1))
    "$program" --data "$data" --model "$model" --sequences 2 --granule 2 --clip 0 --quiet --devices cpu:1@0.2,cpu:1@0.1,cpu:1@0.1,cpu:1@0.1 \
        --plan "$plan" --schedule 1f1b --steps $((updates / n)) --micro-batches $((5 * n)) --warmup 4 --evaluate-every 0 --log "$work/$name" \
        --slow "$from:2@0.0333,$from:3@0.0333,$until:2@0.1,$until:3@0.1" "$@" > "$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
    awk '/"step_ms"/ { sub(/.*"step_ms":/, ""); sum += $0 / 1000 } END { print sum }' "$work/$name"
}

a=$(seconds synchronous 1) && b=$(seconds wsp 8 --updates 8 --staleness 1) || exit 1
awk -v a="$a" -v b="$b" -v n="$updates" 'BEGIN {
    printf "%d updates, one worker 3 times slower for a third of them: synchronous %.1f s, D = 1 %.1f s: %.2f times as fast (goal: 1.2)\n", n, a, b, a / b }'
