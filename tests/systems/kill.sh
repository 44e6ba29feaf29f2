#!/bin/bash
# One of three processes is killed: the others end and name it, two go on from the last checkpoint, and the weights are those of a run that
# nobody disturbed. A rank that is slowed down on purpose is named.
. "$(dirname "$0")/common.sh"
T=(--data "$text" --model llama:layers=2,width=64,heads=2,context=64,vocab=256 --sequences 2 --micro-batches 6 --granule 1 --steps 40 --quiet --hash)
does whole train "${T[@]}" --devices cpu:2
for p in 0 1 2; do
    "$programs/train" "${T[@]}" --devices cpu:1@0.3 --plan dp --out run --checkpoint-every 5 --world $p/3@file:"$work/meeting" > out.$p 2>&1 &
    pid[p]=$!
done
for _ in $(seq 200); do
    grep -q '"step":12,' run/log.jsonl 2> /dev/null && break
    sleep 0.1
done
kill -9 ${pid[1]}
begin=$(date +%s%N)
wait ${pid[0]} ${pid[2]}
took=$((($(date +%s%N) - begin) / 1000000))
cat out.0 out.2 | grep -q 'process 1' || short "nobody names process 1: $(tail -qn 1 out.0 out.2)"
at=$(ls -d run/step-* | tail -n 1)
for p in 0 1; do
    timeout 40 "$programs/train" --data "$text" --resume run --devices cpu:1@0.3 --hash --quiet --world $p/2@file:"$work/again" > on.$p 2>&1 &
    on[p]=$!
done
wait ${on[0]} ${on[1]}
[ -n "$(hash_of whole)" ] && [ "$(hash_of whole)" = "$(hash_of on.0)" ] || short "weights $(hash_of whole) and, gone on from $at, $(hash_of on.0)"
does slowed train "${T[@]}" --steps 24 --devices cpu:1@0.3,cpu:1@0.3,cpu:1@0.3 --plan dp --adapt 1.5 --adapt-shares --slow 10:2@0.05 --log slowed.jsonl
line=$(grep -oE 'rank 2: speed [0-9.]+ is now [0-9.]+' slowed.jsonl | tail -n 1)
[ -n "$line" ] || short "nobody names rank 2, slowed down six times: $(grep event slowed.jsonl | tail -n 1 | cut -c1-200)"
works "the others ended $took ms after SIGKILL of process 1 and named it; two went on from ${at##*/} to weights $(hash_of on.0), those of one undisturbed process;"\
 "a slowed rank is named: $line"
