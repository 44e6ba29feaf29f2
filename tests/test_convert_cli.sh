#!/bin/bash
# build/convert as a user meets it: a directory of transformers into GGUF files and other directories. Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
programs=$PWD/${BUILD:-build}/checked
data=$PWD/tests/oracle/data/files/qwen3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2

refuses() { # refuses WORDS ARGUMENTS...
    local words=$1
    shift
    refusal "$words" "$programs/convert" "$@"
    report "$([ -z "$bad" ]; echo $?)" "refuses $words" "$*" "$bad" "$line"
}

for type in f32 f16 bf16; do
    "$programs/convert" --init "$data" --gguf $type.gguf --name small --save-dtype $type > out 2>&1
    [ $? = 0 ] && [ "$(head -c 4 $type.gguf)" = GGUF ] && [ ! -e $type.gguf.tmp ] && grep -q "wrote    $type.gguf" out
    report $? "GGUF in $type" "$(cat out)"
done
[ "$(wc -c < f16.gguf)" = "$(wc -c < bf16.gguf)" ] && [ "$(wc -c < f16.gguf)" -lt "$(wc -c < f32.gguf)" ]
report $? 'two bytes an element take less than four' "$(wc -c ./*.gguf)"
"$programs/convert" --init "$data" --out there --shard 20000 --gguf again.gguf > out 2>&1 && "$programs/convert" --init there --gguf back.gguf >> out 2>&1 &&
    "$programs/inspect" there > listed && grep -q 'index of' listed && "$programs/convert" --init "$data" --gguf first.gguf >> out 2>&1 && cmp first.gguf back.gguf
report $? 'through a directory of shards and back: the same GGUF' "$(cat out)"

for name in model.safetensors config.json; do
    refuses "--gguf ./both/$name: --out both writes a file of that name" --init "$data" --gguf ./both/$name --out both
done
refuses '--gguf or --out: missing' --init "$data"
refuses '--init: missing' --gguf x.gguf
refuses '--save-dtype' --init "$data" --gguf x.gguf --save-dtype q4
refuses '--gguf ./no/x.gguf: ' --init "$data" --gguf ./no/x.gguf
cp -r "$data" window && sed -i 's/"model_type": "qwen3"/"model_type": "qwen3", "hidden_act": "relu"/; s/"hidden_act": "silu",//' window/config.json
refuses 'relu' --init window --gguf x.gguf
[ ! -e x.gguf ] && [ ! -e x.gguf.tmp ]
report $? 'what is refused leaves no file' "$(ls)"

finish
