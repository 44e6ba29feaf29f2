#!/bin/bash
# 50 ms between two pairs of ranks: the planner lets a pipeline cross there, and its step beside data parallelism's.
. "$(dirname "$0")/common.sh"
T=(--data "$text" --model llama:layers=4,width=128,heads=4,context=64,vocab=256 --sequences 1 --micro-batches 8 --granule 1 --steps 9 --quiet --hash
    --devices cpu:1@0.5,cpu:1@0.5,cpu:1@0.5,cpu:1@0.5 --links 0-2:50ms:20M,0-3:50ms:20M,1-2:50ms:20M,1-3:50ms:20M)
does auto train "${T[@]}" --plan auto --plan-seconds 4 --save-plan plan.json --log auto.jsonl
does dp train "${T[@]}" --plan dp --log dp.jsonl
[ "$(hash_of auto)" = "$(hash_of dp)" ] || short 'other weights'
# of every pipeline: does it have ranks of both pairs? Then no block is reduced over the slow link where holders are inside a pair
crosses=$(tr -d ' \n' < plan.json | grep -o '"stages":\[[^]]*\([^]]*\]\)*' | grep -o '"rank":[0-9]' | sort -u | wc -l)
a=$(median auto.jsonl step_ms 3 9) d=$(median dp.jsonl step_ms 3 9)
is "$d / $a >= 3" || short "planned $a ms, data parallelism over the link $d ms"
works "planned $a ms a step ($(sed -n 's/.*"schedule": *"\([^"]*\)".*/\1/p' plan.json | head -n 1), $crosses ranks), data parallelism over the link $d ms"
