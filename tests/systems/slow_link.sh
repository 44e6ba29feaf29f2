#!/bin/bash
# 50 ms between two pairs of ranks: the planner lets pipelines cross there, and their step beside data parallelism's. Devices are as much slower than this
# machine as makes 16 micro-batches take one of them 2.7 s: on faster ones two would do without the link.
. "$(dirname "$0")/common.sh"
T=(--data "$text" --model llama:layers=10,width=176,heads=4,context=128,vocab=256 --sequences 1 --micro-batches 16 --granule 1 --steps 3
    --quiet --hash)
does one train "${T[@]}" --devices cpu:1 --log one.jsonl
device=cpu:1@$(awk "BEGIN { s = $(median one.jsonl step_ms 2 3) / 2700; print s < 1 ? s : 1 }")
T+=(--devices "$device,$device,$device,$device" --links 0-2:50ms:3M,0-3:50ms:3M,1-2:50ms:3M,1-3:50ms:3M)
does auto train "${T[@]}" --plan auto --plan-seconds 2 --save-plan plan.json --log auto.jsonl
does dp train "${T[@]}" --plan dp --log dp.jsonl
[ "$(hash_of auto)" = "$(hash_of dp)" ] || short 'other weights'
# of every pipeline the ranks of its stages: it has some of both pairs
for ranks in $(tr -d ' \n' < plan.json | sed 's/{"share"/\n,/g; s/"rank":/\n@/g' | sed -n 's/^@\([0-9]\).*/\1/p; s/^,.*/,/p' | tr -d '\n' |
    tr , ' '); do
    [[ $ranks = *[01]* && $ranks = *[23]* ]] || short "a pipeline on ranks $ranks does not cross"
    said+="${said:+, }$(sed 's/./-&/g; s/^-//' <<< "$ranks")"
done
a=$(median auto.jsonl step_ms 2 3) d=$(median dp.jsonl step_ms 2 3)
is "$d / $a >= 3" || short "planned $a ms (pipelines $said), data parallelism over the link $d ms"
works "planned $a ms a step ($(sed -n 's/.*"schedule": *"\([^"]*\)".*/\1/p' plan.json | head -n 1), pipelines over ranks $said), data parallelism over the link $d ms"
