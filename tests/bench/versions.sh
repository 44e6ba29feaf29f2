#!/bin/bash
# What late gradients cost: validation loss after UPDATES updates, one at a time and several a step. tests/bench/versions.sh DATA [build/train]
# Four stages; every update is made from 4 micro-batches of 2 sequences of 128 tokens. synchronous: a step an update. The others: 20 updates a step.
# Prints a line a run and the means over SEEDS. Bounds: UPDATES (a multiple of 100), SEEDS, MODEL, MODES; OPTIONS for all runs.
data=${1:?usage: tests/bench/versions.sh DATA [build/train]}
program=${2:-build/train}
updates=${UPDATES:-2000} seeds=${SEEDS:-1 2 3} model=${MODEL:-llama:layers=4,width=128,heads=4,context=128}
modes=${MODES:-synchronous 2bw pipedream late-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# MODE: its options
options() {
    local many="--steps $((updates / 20)) --warmup 3 --micro-batches 80 --updates 20 --evaluate-every $((updates / 100))"
    case $1 in
    synchronous) echo "--steps $updates --warmup 60 --micro-batches 4 --evaluate-every $((updates / 5))" ;;
    late-*) echo "$many --staleness ${1#late-}" ;; # bits do not depend on stages
    *) echo "$many --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan pp --schedule $1" ;;
    esac
}

for mode in $modes; do
    for seed in $seeds; do
        # shellcheck disable=SC2046
        nice -n 19 "$program" --data "$data" --model "$model" --sequences 2 --clip 0 --seed "$seed" --log "$work/log" --quiet ${OPTIONS:-} \
            $(options "$mode") > "$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
        loss=$(sed -n 's/^{"step":\([0-9]*\),"val_loss":\([0-9.eE+-]*\).*/\2/p' "$work/log" | tail -1)
        echo "$mode seed $seed validation loss $loss"
        rm -f "$work/log"
    done
done | tee "$work/all"
awk '{ sum[$1] += $6; n[$1]++ } END {
    for (m in sum) printf "%s mean %.4f%s\n", m, sum[m] / n[m],
        n["synchronous"] ? sprintf(", %.3f of synchronous", sum[m] / n[m] / (sum["synchronous"] / n["synchronous"])) : "" }' "$work/all"
