#!/bin/bash
# From a Hugging Face directory to a fine-tuned one, in one command.
#
#     programs/finetune.sh MODEL TEXT OUT [options of build/train]
#     programs/finetune.sh gpt2 book.txt build/book                      all weights
#     programs/finetune.sh gpt2 book.txt build/book --lora 8             low-rank factors: OUT has them in PEFT's layout, OUT/merged is a whole model
#
# MODEL holds config.json, model.safetensors and tokenizer.json. The text becomes tokens with that tokenizer; its last 5 % are for validation. The
# result loads with transformers, with build/generate --init and with build/evaluate --init. Programs are taken from $BUILD, by default build.
set -e
root=$(dirname "$0")/..
build=${BUILD:-$root/build}
usage() { sed -n '4,6s/^# *//p' "$0"; }
case ${1-} in -h | --help) usage; exit ;; esac
[ $# -ge 3 ] || { usage >&2; exit 2; }
model=$1 text=$2 out=$3
shift 3
for program in train merge; do
    [ -x "$build/$program" ] || make -s -C "$root" "${BUILD:-build}/$program"
done
rate=2e-5 lora= again=
for option in "$@"; do
    case $option in --lora|--lora=*|--init-adapter|--init-adapter=*) rate=2e-4 lora=yes ;; --overwrite) again=$option ;; esac
done
# What is given on the command line counts: of two equal options the last one does.
"$build/train" --init "$model" --data "$text" --out "$out" --lr $rate --min-lr 0 --schedule-lr linear --warmup 10 --weight-decay 0 --steps 100 \
    --sequences 4 "$@"
# shellcheck disable=SC2086 # none or one
[ -z "$lora" ] || "$build/merge" --init "$model" --adapter "$out" --out "$out/merged" $again
