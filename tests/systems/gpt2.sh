#!/bin/bash
# A GPT-2 by data parallelism, each rank with the whole model (DDP) and with a part of it (FSDP, ZeRO-3): losses, tokens a second, memory.
. "$(dirname "$0")/common.sh"
T=(--data "$text" --model gpt2:layers=12,width=128,heads=4,context=128,vocab=256 --sequences 1 --micro-batches 4 --granule 1 --steps 10 --quiet --hash
    --devices cpu:1@0.25,cpu:1@0.25,cpu:1@0.25,cpu:1@0.25 --plan dp)
for how in state weights; do
    does $how train "${T[@]}" --shard $how --log $how.jsonl
    bytes[${#bytes[@]}]=$(sed -n 's/.*"memory_bytes":\([0-9]*\).*/\1/p' $how.jsonl | head -n 1)
    speed[${#speed[@]}]=$(median $how.jsonl tokens_per_s 3 10 | cut -d. -f1)
done
cmp -s <(sed -n 's/.*"loss":\([^,]*\),.*/\1/p' state.jsonl) <(sed -n 's/.*"loss":\([^,]*\),.*/\1/p' weights.jsonl) || short 'other losses'
[ -n "$(hash_of state)" ] && [ "$(hash_of state)" = "$(hash_of weights)" ] || short "weights $(hash_of state) and $(hash_of weights)"
is "${bytes[1]} < 0.7 * ${bytes[0]}" || short "${bytes[0]} and ${bytes[1]} bytes"
works "10 equal losses (the last $(median weights.jsonl loss 10 10 | cut -c1-8)) on 4 ranks: whole ${speed[0]} tokens a second and ${bytes[0]} bytes a rank,"\
 "sharded ${speed[1]} and ${bytes[1]}"
