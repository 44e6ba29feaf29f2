#!/bin/bash
# build/advise beside what it speaks of.   usage: tests/systems/advise.sh workers|burst|cut
. "$(dirname "$0")/common.sh"
case $1 in
workers) # speed-ups of 1, 2 and 4 workers, from the profile of one, and measured
    T=(--data "$text" --model llama:layers=2,width=96,heads=3,context=128,vocab=256 --sequences 1 --micro-batches 8 --granule 1 --quiet)
    does profile train "${T[@]}" --steps 0 --devices cpu:1@0.2,cpu:1@0.2 --save-profile p.json
    does advice advise --profile p.json --device cpu:1@0.2/64M --workers 1,2,4 --micro-batches 8 --sequences 1 --length 128 --json
    for round in 1 2 3; do # in turns: what other programs do meets all alike
        for g in 1 2 4; do
            devices=$(printf 'cpu:1@0.2,%.0s' $(seq $g))
            does run train "${T[@]}" --steps 14 --devices "${devices%,}" --plan dp --log round.jsonl
            cat round.jsonl >> $g.jsonl
            rm round.jsonl
        done
    done
    for g in 1 2 4; do
        measured=$(awk "BEGIN { print $(median 1.jsonl step_ms 3 14) / $(median $g.jsonl step_ms 3 14) }")
        predicted=$(grep -o "\"workers\":$g,[^}]*" advice | sed 's/.*"speed_up":\([0-9.]*\).*/\1/')
        said+="$g workers: $(printf %.2f "$predicted") predicted, $(printf %.2f "$measured") measured; "
        is "$predicted / $measured < 1.15 && $measured / $predicted < 1.15" || bad=1
    done
    [ -z "$bad" ] || short "${said%; }"
    works "${said}largest micro-batch in 64 MB: $(sed 's/.*"largest_micro_batch":\([0-9]*\).*/\1/' advice) sequences; servers for 4 workers: $(grep -o '"workers":4,[^}]*' advice |
        sed 's/.*"servers":\([0-9]*\).*/\1/')"
    does fits train "${T[@]}" --sequences "$(sed 's/.*"largest_micro_batch":\([0-9]*\).*/\1/' advice)" --micro-batches 1 --steps 1 --devices cpu:1/64M ;;
burst) # numbers of workers, unit by unit, within less of one worker's device time than the shortest step takes; that plan's weights are one worker's
    T=(--data "$text" --model llama:layers=4,width=96,heads=3,context=128,vocab=1024 --sequences 1 --micro-batches 8 --granule 1)
    does profile train "${T[@]}" --steps 0 --devices cpu:1,cpu:1 --save-profile p.json
    A=(--profile p.json --device cpu:1 --workers 1,2,4 --micro-batches 8 --length 128 --link 50us:2G)
    number() { sed 's/.*"'"$1"'":\([0-9.e+-]*\).*/\1/' advice; }
    does advice advise "${A[@]}" --burst 4 --json
    limit=$(awk "BEGIN { printf \"%.3f\", 1 + 0.6 * ($(number device_time) - 1) }")
    does advice advise "${A[@]}" --burst $limit --out plan.json --json
    does table advise "${A[@]}" --burst $limit
    widths=$(grep -o '"workers":[0-9]*' advice | sort -u | wc -l)
    said="$(sed -n 's/^ *\([0-9]*-[0-9]*\)  *\([0-9]*\) .*/units \1 on \2/p' table | paste -sd , | sed 's/,/, /g'): $(tail -n 2 table | paste -sd ';' | sed 's/; */; /g')"
    is "$widths > 1 && $(number device_time) <= $limit && $(number seconds) < $(number one)" || short "$said"
    does burst train "${T[@]}" --steps 3 --hash --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan plan.json
    does one train "${T[@]}" --steps 3 --hash --devices cpu:1
    [ "$(hash_of burst)" = "$(hash_of one)" ] || short "weights $(hash_of burst), one worker's are $(hash_of one)"
    works "$said; weights $(hash_of one) of both" ;;
cut) # by hand: 16 x 0.8 x 4/6 = 8.5333 and 1.4 x 8 x 0.9 = 10.08; 32 x 0.7 x 4/9 = 9.9556 and 1.4 x 16 x 0.8 x 4/6 = 11.9467
    does table advise --scaling 1=1:4,2=0.99:4,4=0.97:4,8=0.9:4,16=0.8:6,32=0.7:9 --cut 2=1.4
    grep -q '^     16 .* 8.5333 .* 10.0800$' table && grep -q '^     32 .* 9.9556 .* 11.9467$' table && grep -q '^from 16 devices' table || short "$(cat table)"
    works "$(tail -n 1 table); speed-ups as by hand: 8.5333 and 10.0800 on 16, 9.9556 and 11.9467 on 32" ;;
esac
