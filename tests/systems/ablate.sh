#!/bin/bash
# One thing changed at a time beside a base (f32, exact sums, nothing recomputed, one rank): tokens a second, the bytes of rank 0, the last loss.
# Then what each module takes of a step: every unit a stage of its own on one rank, so that the trace has each one's calls.
. "$(dirname "$0")/common.sh"
layers=4 steps=5
T=(--data "$text" --model gpt2:layers=$layers,width=64,heads=4,context=128,vocab=256 --sequences 2 --micro-batches 4 --granule 1 --steps $steps
    --evaluate-batches 1 --quiet --hash)
one=cpu:1 two=cpu:1,cpu:1
run() { # run NAME OPTIONS...: one of the rounds
    local name=$1
    shift
    does "$name" train "${T[@]}" --log round.jsonl "$@"
    cat round.jsonl >> "$name.jsonl"
    rm round.jsonl
}
for round in 1 2; do # in turns: what other programs do meets all alike
    run base --devices $one
    run recompute --devices $one --recompute
    run bf16 --devices $one --dtype bf16
    run fast --devices $one --reduce fast
    run two_ranks --devices $two --plan dp
    run gradients_divided --devices $two --plan dp --shard gradients
    run weights_divided --devices $two --plan dp --shard weights
done
bytes() { sed -n 's/.*"memory_bytes":\([0-9]*\).*/\1/p' "$1.jsonl" | head -n 1; }
for name in base recompute bf16 fast two_ranks gradients_divided weights_divided; do
    loss=$(median $name.jsonl loss $steps $steps)
    rate=$(median $name.jsonl tokens_per_s 2 $steps)
    said+="${said:+, }${name//_/ } ${rate%.*} tokens/s ($(bytes $name) bytes, loss $(printf %.6f "$loss"))"
    case $name in
    bf16|fast) is "($loss / $(median base.jsonl loss $steps $steps) - 1) ^ 2 < 1e-3 ^ 2" || short "the loss of $name is another: $said" ;;
    *) [ "$(hash_of $name)" = "$(hash_of base)" ] || short "weights of $name $(hash_of $name), of base $(hash_of base)" ;;
    esac
done
is "$(bytes recompute) < $(bytes base) && $(bytes fast) < $(bytes base)" || short "recomputing and fast sums take no fewer bytes: $said"
is "$(bytes weights_divided) < $(bytes gradients_divided) && $(bytes gradients_divided) < $(bytes two_ranks)" || short "nor does dividing: $said"

units=$((2 * layers + 2))
stages=$(for ((i = 0; i < units; i++)); do echo "{\"rank\":0,\"units\":[$i,$((i + 1))]}"; done | paste -sd ,)
echo "{\"pipelines\":[{\"stages\":[$stages]}]}" > units.json
for try in 1 2 3; do # a step of few ms; another program may take the processor between two calls
    rm -f modules.jsonl
    does modules train "${T[@]}" --devices $one --plan ./units.json --trace trace.json --log modules.jsonl
    [ "$(hash_of modules)" = "$(hash_of base)" ] || short "weights of a stage a unit $(hash_of modules), of base $(hash_of base)"
    # embedding, attention and MLP in turns, head: unit 0, odd, even, the last one; updates with the gradient's norm
    tr '}' '\n' < trace.json | awk -v units=$units -v step="$(median modules.jsonl step_ms $steps $steps)" '
        /"ph":"X"/ && match($0, /"name":"[A-Z0-9@]*/) {
            name = substr($0, RSTART + 8, RLENGTH - 8)
            match($0, /"dur":[0-9.]+/)
            ms = substr($0, RSTART + 6, RLENGTH - 6) / 1000
            if (name ~ /^[0-9]+[FB]/) { u = name + 0; time[u == 0 ? "embed" : u == units - 1 ? "head" : u % 2 ? "attention" : "mlp"] += ms; calls++ }
            else time["update"] += ms
        }
        END {
            for (i = split("embed attention mlp head update", order, " "); i > 0; i--) {
                text = sprintf("%s %.2f (%.1f %%)", order[i], time[order[i]], 100 * time[order[i]] / step) (text != "" ? ", " : "") text
                sum += time[order[i]]
            }
            printf "%d %.4f %s: %.2f of a step of %.2f ms\n", calls, sum / step, text, sum, step
        }' > table
    read -r calls share table < table
    [ "$calls" = $((2 * 4 * units)) ] || short "$calls calls of units in the trace, not $((2 * 4 * units))"
    is "$share >= 0.95 && $share <= 1.05" && break
done
is "$share >= 0.95 && $share <= 1.05" || short "modules sum to $share of the step: $table"
works "one thing at a time: $said; weights $(hash_of base) of all but bf16 and fast sums; modules in ms: $table, $share of it"
