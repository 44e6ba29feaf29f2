#!/bin/bash
# Two unlike devices, each alone and both in one pipeline that the planner cuts: tokens a second beside the sum of the two alone.
. "$(dirname "$0")/common.sh"
T=(--data "$text" --model llama:layers=8,width=48,heads=2,context=64,vocab=256 --sequences 1 --micro-batches 20 --granule 1 --steps 9 --quiet --hash)
fast=cpu:1@0.25 slow=cpu:1@0.1
does a train "${T[@]}" --devices $fast --log a.jsonl
does b train "${T[@]}" --devices $slow --log b.jsonl
does both train "${T[@]}" --devices $fast,$slow --links 0-1:1ms:20M --plan auto --plan-seconds 4 --log both.jsonl --save-plan plan.json
[ "$(hash_of a)" = "$(hash_of both)" ] || short 'other weights'
cut=$(tr -d ' \n' < plan.json | grep -oE '"units":\[[0-9]+,[0-9]+\]' | sed 's/"units"://' | paste -sd ' ')
one=$(tr -d ' \n' < plan.json | grep -o '"stages"' | wc -l)
[ "$one" = 1 ] || short "the planner took no pipeline: $cut"
least() { sed -n 's/.*"step":\([0-9]*\),.*"step_ms":\([0-9.]*\).*/\1 \2/p' "$1" | awk '$1 > 2 { print $2 }' | sort -g | head -n 1; } # other programs only make steps longer
share=$(awk "BEGIN { print (1 / $(least both.jsonl)) / (1 / $(least a.jsonl) + 1 / $(least b.jsonl)) }")
is "$share <= 1.05" || short "disturbed by other programs: both together reach $share of the sum"
is "$share >= 0.9" || short "both together reach $share of the sum: $(least a.jsonl), $(least b.jsonl) and $(least both.jsonl) ms a step; units $cut"
works "a step takes $(least a.jsonl) ms on the fast device, $(least b.jsonl) on the slow one, $(least both.jsonl) on both (units $cut): $share of the sum of their speeds"
