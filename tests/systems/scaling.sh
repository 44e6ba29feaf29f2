#!/bin/bash
# Strong scaling: one curve on 1, 2, 4 and 8 ranks. Weak scaling: another batch, which the log names, with tokens a second and the share of
# each step in which its data were waited for.   usage: tests/systems/scaling.sh strong|weak
. "$(dirname "$0")/common.sh"
T=(--data "$text" --model llama:layers=2,width=64,heads=2,context=64,vocab=256 --sequences 2 --granule 1 --steps 12 --quiet --hash)
for ranks in 1 2 4 8; do
    devices=$(printf 'cpu:1@0.2,%.0s' $(seq $ranks))
    does strong.$ranks train "${T[@]}" --micro-batches 8 --devices "${devices%,}" --plan dp --log strong.$ranks.jsonl
    [ $ranks = 8 ] && [ "$1" = strong ] && break
    [ $ranks = 8 ] && continue
    does weak.$ranks train "${T[@]}" --micro-batches 2 --scaling weak --devices "${devices%,}" --plan dp --log weak.$ranks.jsonl
    speeds+="$ranks ranks $(median weak.$ranks.jsonl tokens_per_s 3 12 | cut -d. -f1), "
done
case $1 in
strong)
    for ranks in 2 4 8; do
        cmp -s <(sed -n 's/.*"loss":\([^,]*\),.*/\1/p' strong.1.jsonl) <(sed -n 's/.*"loss":\([^,]*\),.*/\1/p' strong.$ranks.jsonl) || short "other losses on $ranks ranks"
    done
    does weak.2 train "${T[@]}" --micro-batches 8 --scaling weak --devices cpu:1,cpu:1 --plan dp --log weak.2.jsonl
    grep -q '"weak_scaling_from_micro_batches":8' weak.2.jsonl || short 'the log does not name the batch that --scaling weak changed'
    works "12 equal losses on 1, 2, 4 and 8 ranks; --scaling weak on 2: $(grep -o '"weak_scaling_from_micro_batches":8' weak.2.jsonl) in the log" ;;
weak)
    most=$(for f in weak.*.jsonl; do median "$f" data_wait_share 2 12; done | sort -g | tail -n 1)
    is "$most < 0.02" || short "data were waited for $most of a step"
    works "tokens a second under weak scaling: ${speeds%, }; data waited for at most $(awk "BEGIN { printf \"%.3f\", 100 * $most }") % of a median step" ;;
esac
