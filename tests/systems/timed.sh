#!/bin/bash
# A pipeline over two sites with about half a forward pass and about two of them between: the schedule for measured times, predicted and run,
# beside 1f1b's with as many activations. Other programs disturb profiles and steps: where a prediction misses, all is measured once more.
. "$(dirname "$0")/common.sh"
model=llama:layers=4,width=256,heads=4,context=128,vocab=256
T=(--data "$text" --model $model --sequences 1 --micro-batches 8 --granule 1 --evaluate-batches 1 --quiet --hash
    --devices cpu:1@0.25,cpu:1@0.25,cpu:1@0.25,cpu:1@0.25)
P=(--model $model --profile found.profile.json --plan pp --micro-batches 8 --sequences 1 --length 128 --json)
links() { echo "0-2:$1,0-3:$1,1-2:$1,1-3:$1"; }
# run DELAY SCHEDULE OPTIONS...: milliseconds of a step
run() {
    local delay=$1 schedule=$2
    shift 2
    does $schedule train "${T[@]}" --steps 7 --links "$(links $delay)" --plan pp --schedule $schedule --log $schedule.jsonl "$@"
    milliseconds=$(median $schedule.jsonl step_ms 3 7 | awk '{ printf "%.1f", $1 }')
}

HETRAIN_TEST_ONLY='timed_*' does tests tests/test_simulate
said=$(grep -E '^[0-9]+ of [0-9]+ as short|^bubbles within' tests | paste -sd ';' | sed 's/;/; /g')
for try in 1 2; do
    does found train "${T[@]}" --steps 1 --links "$(links 4ms)" --plan auto --plan-seconds 0.2 --save-plan found.json
    sed 's/"latency":4e-3/"latency":1.6e-2/' found.cluster.json > 16ms.json
    cp found.cluster.json 4ms.json
    figures= missed=
    for delay in 4ms 16ms; do
        does simulated plan "${P[@]}" --cluster $delay.json --simulate timed --memory-limit 4
        predicted=$(sed -n 's/{"makespan":\([^,]*\),.*/\1/p' simulated | awk '{ printf "%.1f", 1000 * $1 }')
        run $delay timed --memory-limit 4 --profile found.profile.json
        is "$predicted / $milliseconds < 1.1 && $milliseconds / $predicted < 1.1" || missed+=" $delay: predicted $predicted ms, measured $milliseconds"
        figures+="; $delay: predicted $predicted ms, measured $milliseconds"
        run $delay 1f1b
        [ "$(hash_of 1f1b)" = "$(hash_of timed)" ] || short 'other weights with 1f1b'
        figures+=", 1f1b $milliseconds"
    done
    [ -z "$missed" ] && break
done
[ -z "$missed" ] || short "$missed"
works "$said$figures"
