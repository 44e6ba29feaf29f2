#!/bin/bash
# A pipeline over two sites with about half a forward pass and about two of them between: the schedule for measured times, predicted and run,
# beside 1f1b's with as many activations. Other programs disturb both measurements: two tries a delay.
. "$(dirname "$0")/common.sh"
model=llama:layers=4,width=256,heads=4,context=128,vocab=256
HETRAIN_TEST_ONLY='timed_*' does tests tests/test_simulate
said=$(grep -E '^[0-9]+ of [0-9]+ as short|^bubbles within' tests | paste -sd ';' | sed 's/;/; /g')
for delay in 4ms 16ms; do
    T=(--data "$text" --model $model --sequences 1 --micro-batches 8 --granule 1 --evaluate-batches 1 --quiet --hash --devices cpu:1@0.25,cpu:1@0.25,cpu:1@0.25,cpu:1@0.25
        --links 0-2:$delay,0-3:$delay,1-2:$delay,1-3:$delay)
    for try in 1 2; do
        does found train "${T[@]}" --steps 1 --plan auto --plan-seconds 0.2 --save-plan found.json
        P=(--model $model --profile found.profile.json --cluster found.cluster.json --plan pp --micro-batches 8 --sequences 1 --length 128 --json)
        does simulated plan "${P[@]}" --simulate timed --memory-limit 4
        does timed train "${T[@]}" --steps 7 --plan pp --schedule timed --memory-limit 4 --profile found.profile.json --log timed.jsonl
        predicted=$(sed -n 's/{"makespan":\([^,]*\),.*/\1/p' simulated | awk '{ printf "%.1f", 1000 * $1 }')
        measured=$(median timed.jsonl step_ms 3 7 | awk '{ printf "%.1f", $1 }')
        is "$predicted / $measured < 1.1 && $measured / $predicted < 1.1" && break
    done
    is "$predicted / $measured < 1.1 && $measured / $predicted < 1.1" || short "$delay: predicted $predicted ms, measured $measured ms"
    said+="${said:+; }$delay: predicted $predicted ms, measured $measured (try $try"
    does 1f1b train "${T[@]}" --steps 7 --plan pp --schedule 1f1b --log 1f1b.jsonl
    [ "$(hash_of 1f1b)" = "$(hash_of timed)" ] || short 'other weights with 1f1b'
    said+=", 1f1b $(median 1f1b.jsonl step_ms 3 7 | awk '{ printf "%.1f", $1 }'))"
done
works "$said"
