#!/bin/bash
# Steps to the same validation loss: Muon beside AdamW, each at the best of its own learning rates. tests/bench/muon.sh DATA [build/train]
# For every seed: AdamW at each of ADAMW_LR, Muon at each of MUON_LR (its matrices; all else at the best AdamW's rate), a constant rate after WARMUP
# steps, so that a run of fewer steps is the beginning of a longer one. The mark is the lowest validation loss that the best AdamW reaches in STEPS
# steps. Prints a line a run, and one a seed: steps that either needs for the mark, and their ratio. Bounds: STEPS, EVERY, SEEDS, SEQUENCES (of
# 128 tokens a step), MODEL.
data=${1:?usage: tests/bench/muon.sh DATA [build/train]}
program=${2:-build/train}
steps=${STEPS:-400} every=${EVERY:-10} seeds=${SEEDS:-1 2 3} sequences=${SEQUENCES:-128} warmup=${WARMUP:-20}
model=${MODEL:-llama:layers=4,width=128,heads=4,context=128}
adamw_rates=${ADAMW_LR:-1e-3 2e-3 3e-3 6e-3} muon_rates=${MUON_LR:-3e-3 6e-3 1.2e-2 2.4e-2}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# run SEED NAME OPTION...: its log in $work/NAME; prints the lowest validation loss
run() {
    local seed=$1 name=$2
    shift 2
    nice -n 19 "$program" --data "$data" --model "$model" --sequences "$sequences" --steps "$steps" --warmup "$warmup" --schedule-lr constant \
        --evaluate-every "$every" --seed "$seed" --log "$work/$name" --quiet "$@" > "$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
    losses "$work/$name" | awk -v n="$name" -v s="$seed" -v best=1e9 '$2 < best { best = $2; at = $1 } END { print s, n, best, at }' | tee -a "$work/all" >&2
}
# STEP LOSS of every validation
losses() { sed -n 's/^{"step":\([0-9]*\),"val_loss":\([0-9.eE+-]*\).*/\1 \2/p' "$1"; }
best() { awk -v s="$1" -v kind="$2" '$1 == s && index($2, kind) == 1 && (name == "" || $3 < low) { low = $3; name = $2 } END { print name, low }' "$work/all"; }

for seed in $seeds; do
    for rate in $adamw_rates; do run "$seed" "adamw-$rate" --lr "$rate"; done
    read -r adamw mark <<< "$(best "$seed" adamw)"
    for rate in $muon_rates; do run "$seed" "muon-$rate" --optimizer muon --lr "${adamw#adamw-}" --matrix-lr "$rate"; done
    a=$(losses "$work/$adamw" | awk -v m="$mark" '$2 <= m { print $1; exit }')
    least=
    for rate in $muon_rates; do
        m=$(losses "$work/muon-$rate" | awk -v m="$mark" '$2 <= m { print $1; exit }')
        [ -n "$m" ] && { [ -z "$least" ] || [ "$m" -lt "$least" ]; } && least=$m && muon=muon-$rate
    done
    echo "seed $seed: validation loss $mark: $adamw $a steps, ${muon:-muon} ${least:-never}$([ -n "$least" ] && awk -v a="$a" -v m="$least" 'BEGIN { printf ", %.2f times fewer", a / m }')"
done
