#!/bin/bash
# Weights updated several times a step.   usage: tests/systems/versions.sh gears|hogbatch|waves|predicted
. "$(dirname "$0")/common.sh"
# val LOG: the last validation loss; until LOG LOSS: seconds of training until the validation loss is that low
val() { sed -n 's/.*"val_loss":\([0-9.]*\),.*/\1/p' "$1" | tail -n 1; }
until_loss() {
    awk -v goal="$2" '
        /"step_ms"/ { sub(/.*"step_ms":/, ""); seconds += $0 / 1000 }
        /"val_loss"/ { sub(/.*"val_loss":/, ""); if ($0 + 0 <= goal) { print seconds; exit } }' "$1"
}
# busy TRACE RANK: the part of a step in which a rank computes or updates
busy() {
    tr '}' '\n' < "$1" | awk -v rank="$2" '
        function number(key) { return match($0, "\"" key "\":[0-9.]+") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 : -1 }
        /"ph":"X"/ { end = number("ts") + number("dur"); if (end > last) last = end
            if (number("pid") == rank && /"name":"([0-9]+[FBIW]|STEP)/) sum += number("dur") }
        END { printf "%.3f", sum / last }'
}
T=(--data "$text" --model llama:layers=4,width=64,heads=2,context=64,vocab=256 --sequences 2 --granule 2 --quiet --hash --clip 0 --warmup 5 --lr 0.001)

case $1 in
gears)
    gear='{"pipelines":[{"stages":[{"rank":0,"units":[0,5],"updates":%d},{"rank":1,"units":[5,10],"updates":%d}]}],"updates":4,"staleness":1}'
    one=$(printf "$gear" 1 1) mixed=$(printf "$gear" 1 4)
    does plain train "${T[@]}" --steps 60 --micro-batches 8 --devices cpu:1,cpu:1 --plan pp:0-4'|'5-9 --log plain.jsonl
    does ones train "${T[@]}" --steps 60 --micro-batches 8 --devices cpu:1,cpu:1 --plan "$one" --log ones.jsonl
    does mixed train "${T[@]}" --steps 60 --micro-batches 8 --devices cpu:1,cpu:1 --plan "$mixed" --log mixed.jsonl
    does again train "${T[@]}" --steps 60 --micro-batches 8 --devices cpu:1 --plan "${mixed//\"rank\":1/\"rank\":0}"
    [ "$(hash_of plain)" = "$(hash_of ones)" ] || short "gears of 1 give $(hash_of ones), a synchronous step $(hash_of plain)"
    [ "$(hash_of mixed)" = "$(hash_of again)" ] || short "gears 1 and 4 give $(hash_of mixed) on two ranks, $(hash_of again) on one"
    is "$(val mixed.jsonl) <= $(val plain.jsonl)" || short "validation $(val mixed.jsonl) with gears, $(val plain.jsonl) without"
    works "gears 1, 1: the weights of a synchronous step, $(hash_of ones); gears 1, 4: validation $(val mixed.jsonl) after 60 steps, $(val plain.jsonl) synchronous; $(hash_of mixed) on one rank and on two" ;;
hogbatch)
    S=(--data "$text" --model llama:layers=4,width=64,heads=2,context=64,vocab=256 --sequences 2 --granule 2 --clip 0)
    fast=cpu:1@0.3 slow=cpu:1@0.1
    plan='{"pipelines":[{"share":3,"stages":[{"rank":0,"units":[0,10]}]},{"stages":[{"rank":1,"units":[0,10]}]}],"state_shares":[3,1]}'
    does alone train "${T[@]}" --steps 12 --micro-batches 16 --devices $fast --updates 4 --evaluate-every 1 --log alone.jsonl
    does both train "${T[@]}" --steps 12 --micro-batches 16 --devices $fast,$slow --plan "$plan" --schedule hogbatch --updates 8 \
        --evaluate-every 1 --log both.jsonl --trace both.json
    does same train "${T[@]}" --steps 12 --micro-batches 16 --devices cpu:2,cpu:1 --plan "$plan" --schedule hogbatch --updates 8
    [ "$(hash_of both)" = "$(hash_of same)" ] || short "other weights with other speeds"
    does adapted train "${S[@]}" --steps 9 --micro-batches 16 --devices $fast,$slow --plan "${plan/\"share\":3,/}" --schedule hogbatch --updates 4 --staleness 3 \
        --adapt 0.2 --adapt-shares
    shares=$(sed -n 's/^replan.*shares \([0-9]* [0-9]*\);.*/\1/p' adapted | tail -n 1)
    is "${shares/ / \/ } >= 2" 2> no || short "shares ${shares:-as they were} of 1 and 1 after 9 steps on devices of 3 and 1: $(grep ^replan adapted)"
    goal=$(val alone.jsonl) a=$(until_loss alone.jsonl "$goal") b=$(until_loss both.jsonl "$goal")
    is "${b:-1e9} <= $a" || short "validation $goal after $a s on the fast device, after ${b:-more than all} on both"
    works "each device made 4 updates a step, from 3 micro-batches and from 1; --adapt goes from equal shares to ${shares/ / : }; validation $goal after $a s on the fast device alone, $b s on both; busy $(busy both.json 0) and $(busy both.json 1)" ;;
waves)
    plan='{"pipelines":[{"share":3,"stages":[{"rank":0,"units":[0,7]},{"rank":1,"units":[7,10]}]},{"share":2,"stages":[{"rank":2,"units":[0,5]},{"rank":3,"units":[5,10]}]}]}'
    devices=cpu:1@0.2,cpu:1@0.1,cpu:1@0.1,cpu:1@0.1
    does dp train "${T[@]}" --steps 10 --micro-batches 20 --devices $devices --plan dp --evaluate-every 1 --log dp.jsonl
    does waves train "${T[@]}" --steps 10 --micro-batches 20 --devices $devices --plan "$plan" --schedule 1f1b --updates 4 --staleness 2 \
        --evaluate-every 1 --log waves.jsonl
    # two workers without a pipeline, whose third wave still uses the first weights
    printf '%s\n' 0F0,0B0,0F1,0B1/1,0F2,0B2/2 0F0@1,0B0@1,0F1@1,0B1@1/1,0F2@1,0B2@1/2 > late.csv
    late=("${T[@]}" --steps 1 --micro-batches 6 --devices cpu:1,cpu:1 --plan dp --schedule late.csv --updates 3)
    "$programs/train" "${late[@]}" --staleness 1 > gap 2>&1 && short 'a clock gap of 2 was not refused where D = 1'
    grep -q 'staleness is 1' gap || short "refused for another reason: $(tail -n 1 gap)"
    does allowed train "${late[@]}" --staleness 2
    goal=$(val dp.jsonl) a=$(until_loss dp.jsonl "$goal") b=$(until_loss waves.jsonl "$goal")
    is "${b:-1e9} < $a" || short "validation $goal after $a s of synchronous steps bound by the slowest rank, after ${b:-more than all} in waves"
    works "validation $goal after $a s of synchronous data parallelism, $b s of two virtual workers, D = 2; a gap of 2 runs with D = 2, with D = 1: $(tail -n 1 gap | sed 's/.*the gradient/the gradient/')" ;;
predicted)
    S=(--data "$text" --model llama:layers=4,width=64,heads=2,context=64,vocab=256 --sequences 2 --quiet --clip 0 --seed 2)
    four=cpu:1,cpu:1,cpu:1,cpu:1 slow=cpu:1@0.1,cpu:1@0.1,cpu:1@0.1,cpu:1@0.1
    late=(--steps 20 --warmup 3 --micro-batches 80 --updates 20 --evaluate-every 20 --devices $four --plan pp)
    does plain train "${S[@]}" --steps 400 --warmup 60 --micro-batches 4 --evaluate-every 400 --log plain.jsonl
    for schedule in 2bw xpipe; do does $schedule train "${S[@]}" "${late[@]}" --schedule $schedule --feedback 0 --log $schedule.jsonl; done
    does flush train "${S[@]}" --steps 3 --micro-batches 4 --devices $slow --plan pp --trace flush.json
    does none train "${S[@]}" --steps 2 --micro-batches 40 --updates 10 --devices $slow --plan pp --schedule xpipe --trace none.json
    all() { for rank in 0 1 2 3; do busy "$1" $rank; echo; done | awk '{ sum += $1 } END { printf "%.3f", sum / NR }'; } # of four ranks
    ratio() { awk "BEGIN { printf \"%.3f\", $(val "$1.jsonl") / $(val plain.jsonl) }"; }
    is "$(ratio xpipe) <= 1.02" || short "xpipe ends at $(ratio xpipe) of the synchronous validation loss"
    is "$(ratio 2bw) > 1.02" || short "2bw, without a prediction, ends at $(ratio 2bw) of the synchronous validation loss too"
    is "$(all none.json) >= $(all flush.json) + 0.1" || short "ranks are busy for $(all none.json) of a step, $(all flush.json) with a flush behind every update"
    works "400 updates in 4 stages: xpipe ends at $(ratio xpipe) of the synchronous validation loss, 2bw without a prediction at $(ratio 2bw); ranks are busy for $(all none.json) of a step with 10 updates, for $(all flush.json) where every update is a step" ;;
esac
