#!/bin/bash
# Two ranks of capped memory: the largest micro-batch that a pipeline cut evenly takes, and twice as much with the planner's cut, whose stages
# keep, recompute or put activations on the host. A micro-batch is one granule here, which nothing cuts.
. "$(dirname "$0")/common.sh"
T=(--data "$text" --model llama:layers=6,width=64,heads=2,context=128,vocab=256 --micro-batches 4 --steps 3 --quiet --hash)
cap=14000000 two=cpu:1/14M,cpu:1/14M
most=0
while "$programs/train" "${T[@]}" --sequences $((most + 1)) --granule $((most + 1)) --devices $two --plan pp > even 2>&1 && [ $most -lt 20 ]; do most=$((most + 1)); done
grep -q 'more than its limit' even && [ $most -gt 0 ] || short "$(tail -n 1 even)"
T+=(--sequences $((2 * most)) --granule $((2 * most)))
does one train "${T[@]}" --devices cpu:1
does planned train "${T[@]}" --devices $two --plan auto --plan-seconds 3 --save-plan plan.json --log planned.jsonl
[ "$(hash_of one)" = "$(hash_of planned)" ] || short "weights $(hash_of one) and $(hash_of planned)"
bytes=$(sed -n 's/.*"memory_bytes":\([0-9]*\).*/\1/p' planned.jsonl | head -n 1)
is "$bytes <= $cap" || short "$bytes bytes of $cap"
stages=$(tr -d ' \n' < plan.json | grep -oE '"units":\[[0-9,]*\][^}]*' | sed 's/"units"://; s/"//g' | paste -sd ' ')
is "$(grep -c -e recompute -e store <<< "$stages") > 0" || short "every stage keeps all: $stages"
works "under $((cap / 1000000)) MB a rank a pipeline of even stages takes micro-batches of $most sequences ($(grep -oE 'needs .* limit' even | head -n 1) with one more),"\
 "the planner's of $((2 * most)) with $bytes bytes on rank 0: units $stages; one device's weights $(hash_of one)"
