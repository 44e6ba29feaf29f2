#!/bin/bash
# One model in every parallel mode there is, on four ranks: tokens a second, the most memory of a rank, and the loss after the same samples.
. "$(dirname "$0")/common.sh"
T=(--data "$text" --model gpt2:layers=6,width=64,heads=2,context=64,vocab=256 --sequences 2 --micro-batches 8 --granule 1 --steps 10 --quiet --hash)
four=cpu:1@0.25,cpu:1@0.25,cpu:1@0.25,cpu:1@0.25
modes=0 losses=
mode() { # mode NAME OPTIONS...
    local name=$1
    shift
    does run train "${T[@]}" --log run.jsonl "$@"
    printf '%-28s %9s %12s %10s  %s\n' "$name" "$(median run.jsonl tokens_per_s 3 10 | cut -d. -f1)" "$(sed -n 's/.*"memory_bytes":\([0-9]*\).*/\1/p' run.jsonl | head -n 1)" \
        "$(median run.jsonl loss 10 10 | cut -c1-8)" "$(hash_of run)" | tee -a table
    rm run.jsonl
    modes=$((modes + 1))
}
printf '%-28s %9s %12s %10s  %s\n' mode 'tokens/s' 'bytes rank 0' loss weights
mode 'one device' --devices cpu:1@0.25
mode 'data' --devices $four --plan dp
mode 'data, gradients sharded' --devices $four --plan dp --shard-gradients
mode 'pipeline, gpipe' --devices $four --plan pp --schedule gpipe
mode 'pipeline, 1f1b' --devices $four --plan pp
mode 'pipeline, 1f1b, recompute' --devices $four --plan pp --recompute
mode 'pipeline, zb-h1' --devices $four --plan pp --schedule zb-h1
mode 'pipeline, zb-v' --devices $four --plan pp --schedule zb-v
mode 'pipeline, interleaved' --devices $four --plan pp --schedule interleaved
mode 'two ways, bitpipe' --devices $four --plan pp --schedule bitpipe
mode 'slices, terapipe' --devices $four --plan pp --schedule terapipe --slices 2
mode 'data x pipeline' --devices $four --plan dp2xpp2
[ "$(awk '{ print $NF }' table | sort -u | wc -l)" = 1 ] || short 'other weights in some mode'
works "$modes modes, all with weights $(hash_of run): tokens a second$(sed 's/  */ /g' table | awk '{ printf "%s %s", (NR > 1 ? "," : ""), $0 }' |
    sed -E 's/([0-9]+) ([0-9]+) [0-9.]+ [0-9a-f]{16}/\1 (\2 bytes)/g')"
