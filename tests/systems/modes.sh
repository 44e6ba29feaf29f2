#!/bin/bash
# One model in every parallel mode there is, on four ranks: tokens a second, the most memory of a rank, and the loss after the same samples;
# and one with experts in place of its MLPs.
. "$(dirname "$0")/common.sh"
T=(--data "$text" --model gpt2:layers=6,width=64,heads=4,context=64,vocab=256 --sequences 2 --micro-batches 8 --granule 1 --steps 4 --quiet --hash)
four=cpu:1@0.25,cpu:1@0.25,cpu:1@0.25,cpu:1@0.25
modes=0
mode() { # mode NAME OPTIONS...
    local name=$1
    shift
    does run train "${T[@]}" --log run.jsonl "$@"
    printf '%-28s %9s %12s %10s  %s\n' "$name" "$(median run.jsonl tokens_per_s 2 4 | cut -d. -f1)" "$(sed -n 's/.*"memory_bytes":\([0-9]*\).*/\1/p' run.jsonl | head -n 1)" \
        "$(median run.jsonl loss 4 4 | cut -c1-8)" "$(hash_of run)" | tee -a table
    rm run.jsonl
    modes=$((modes + 1))
}
# alike WHAT: all modes of the table have one hash; its figures go to $said
alike() {
    [ "$(awk '{ print $NF }' table | sort -u | wc -l)" = 1 ] || short "other weights in some mode of $1"
    said+="${said:+; }$1, all with weights $(hash_of run): tokens a second$(sed 's/  */ /g' table | awk '{ printf "%s %s", (NR > 1 ? "," : ""), $0 }' |
        sed -E 's/([0-9]+) ([0-9]+) [0-9.]+ [0-9a-f]{16}/\1 (\2 bytes)/g')"
    rm table
}
# plan NAME RANKS REST: data parallelism of so many ranks, weights sharded
plan() { printf '{"pipelines":[%s],"shard":"weights",%s}' "$(printf '{"stages":[{"rank":%d,"units":[0,14]}]}\n' $(seq 0 $(($2 - 1))) | paste -sd ,)" "$3" > "$1.json"; }
plan near 4 '"near":[0,0,1,1]'
plan keeper 3 '"keepers":[3],"state_shares":[0,0,0,1]'
printf '%-28s %9s %12s %10s  %s\n' mode 'tokens/s' 'bytes rank 0' loss weights
mode 'one device' --devices cpu:1@0.25
mode 'data' --devices $four --plan dp
mode 'data, gradients sharded' --devices $four --plan dp --shard gradients
mode 'data, weights sharded' --devices $four --plan dp --shard weights
mode 'the same, near sets' --devices $four --plan ./near.json
mode 'the same, a keeper of three' --devices $four --plan ./keeper.json
mode 'team, by context' --devices $four --plan cp4
mode 'team, by heads, x data' --devices $four --plan dp2xhp2
mode 'team, by columns' --devices $four --plan tp4
mode 'the same, x data' --devices $four --plan dp2xtp2
mode 'pipeline, gpipe' --devices $four --plan pp --schedule gpipe
mode 'pipeline, 1f1b' --devices $four --plan pp
mode 'pipeline, 1f1b, recompute' --devices $four --plan pp --recompute
mode 'pipeline, gpipe, store' --devices $four --plan pp --schedule gpipe --store 1
mode 'pipeline, zb-h1' --devices $four --plan pp --schedule zb-h1
mode 'pipeline, zb-v' --devices $four --plan pp --schedule zb-v
mode 'pipeline, interleaved' --devices $four --plan pp --schedule interleaved
mode 'two ways, bitpipe' --devices $four --plan pp --schedule bitpipe
mode 'slices, terapipe' --devices $four --plan pp --schedule terapipe --slices 2
mode 'data x pipeline' --devices $four --plan dp2xpp2
mode 'the same, weights sharded' --devices $four --plan dp2xpp2 --shard weights
alike 'one model'
T+=(--experts 8,2,width=64)
mode 'one device' --devices cpu:1@0.25
mode 'data' --devices $four --plan dp
mode 'data, weights sharded' --devices $four --plan dp --shard weights
mode 'pipeline, 1f1b' --devices $four --plan pp
mode 'team, by context' --devices $four --plan cp4
mode 'team, by columns' --devices $four --plan tp4
alike 'one with 2 of 8 experts'
works "$modes modes: $said"
