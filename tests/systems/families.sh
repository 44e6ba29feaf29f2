#!/bin/bash
# NeoX and Llama blocks on the same text with the same seed; their gradients are checked by test_model.
. "$(dirname "$0")/common.sh"
for family in neox llama; do
    does $family train --data "$text" --model $family:layers=2,width=64,heads=2,context=64,vocab=256 --seed 3 --steps 60 --lr 2e-3 --quiet --log $family.jsonl
    first=$(median $family.jsonl loss 1 3) last=$(median $family.jsonl loss 50 60)
    is "$last < $first - 1.5" || short "$family: loss $first to $last"
    said+="$family: loss $first to $last; "
done
works "${said%; }"
