#!/bin/bash
# Four processes over TCP, two pipelines of two: the losses and weights of one process; nothing but libc, libm and threads is linked.
. "$(dirname "$0")/common.sh"
T=(--data "$text" --model gpt2:layers=4,width=64,heads=2,context=64,vocab=256 --sequences 2 --micro-batches 4 --granule 1 --steps 20 --quiet --hash)
does one train "${T[@]}" --devices cpu:1 --log one.jsonl
for p in 0 1 2 3; do
    timeout 50 "$programs/train" "${T[@]}" --devices cpu:1 --plan dp2xpp2 --world $p/4@file:"$work/meeting" $([ $p = 0 ] && echo --log four.jsonl) > four.$p 2>&1 &
done
wait
[ -n "$(hash_of one)" ] && [ "$(hash_of one)" = "$(hash_of four.0)" ] || short "weights $(hash_of one) and $(hash_of four.0)"
losses=$(for f in one four; do sed -n 's/.*"loss":\([^,]*\),.*/\1/p' $f.jsonl | md5sum; done | sort -u | wc -l)
[ "$losses" = 1 ] || short 'other losses'
others=$(ldd "$programs/train" | grep -vE 'libm\.|libc\.|libpthread|linux-vdso|ld-linux|libasan|libubsan|libtsan' | paste -sd ' ')
[ -z "$others" ] || short "linked with $others"
works "20 equal losses and weights $(hash_of one) of 4 processes (dp2xpp2 over TCP) and of one; linked with libc and libm only"
