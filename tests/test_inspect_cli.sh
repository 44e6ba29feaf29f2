#!/bin/bash
# build/inspect as a user meets it: files and directories as text and as JSON, and bad ones, which give exit status 2 and one line that names the
# file, the byte and the rule. Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
root=$PWD
inspect=$PWD/${BUILD:-build}/checked/inspect
train=$PWD/${BUILD:-build}/checked/train
data=$root/tests/oracle/data/files
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2

shows() { # shows NAME WORDS ARGUMENTS...   WORDS separated by |
    local name=$1 words=$2 word missing=
    shift 2
    "$inspect" "$@" > out 2> err < /dev/null
    local status=$?
    while IFS= read -r word; do grep -qF -- "$word" out || missing="$missing [$word]"; done < <(tr '|' '\n' <<< "$words")
    [ $status = 0 ] && [ -z "$missing" ] && [ ! -s err ]
    report $? "$name" "status $status, missing:$missing" "$(cat err)"
}
refuses() { # refuses WORDS ARGUMENTS...
    local words=$1
    shift
    refusal "$words" timeout 20 "$inspect" "$@"
    "$inspect" --json "$@" > out 2> /dev/null < /dev/null
    [ ! -s out ] || bad="$bad; begins a JSON object: $(head -c 100 out)"
    report "$([ -z "$bad" ]; echo $?)" "refuses $words" "$*" "$bad" "$line"
}

shows 'a file' 'reference.safetensors: 1720 bytes, header 1464, |U64|F8_E5M2|[0, 4]|\x' "$data/reference.safetensors"
shows 'a directory' 'model qwen3:layers=2,width=24|model-00001-of-00002.safetensors: |model.layers.1.self_attn.q_norm.weight|format = pt' "$data/qwen3"
shows 'JSON' '"dtype":"BF16"|"metadata":{"for\"mat":' --json "$data/reference.safetensors"
for what in reference.safetensors qwen3; do
    "$inspect" --json "$data/$what" > out.json && python3 - "$data" "$what" > log 2>&1 <<'END'
import glob, json, os, struct, sys
folder, what = sys.argv[1:]
told = json.load(open("out.json", encoding="utf-8"))["files"]
paths = sorted(glob.glob(os.path.join(folder, what, "*.safetensors"))) or [os.path.join(folder, what)]
assert [t["file"] for t in told] == paths
for table, path in zip(told, paths):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    assert table["metadata"] == header.pop("__metadata__") and table["bytes"] == len(data)
    assert {t["name"]: (t["dtype"], t["shape"], [o - 8 - n for o in t["offsets"]]) for t in table["tensors"]} == \
           {name: (t["dtype"], t["shape"], t["data_offsets"]) for name, t in header.items()}
END
    report $? "JSON of $what says what Python reads" "$(tail -n 1 log)"
done

head -c 1000 "$data/reference.safetensors" > cut.safetensors
printf 'abc' > short.safetensors
mkdir -p empty broken
cp cut.safetensors broken/model.safetensors
printf '{"model_type": "t5"}' > broken/config.json
refuses 'cut.safetensors: byte 0: |header of 1456 bytes is over 992' cut.safetensors
refuses 'short.safetensors: 3 bytes are too few' short.safetensors
refuses 'nothing.safetensors' nothing.safetensors
refuses 'empty: holds no safetensors file' empty
refuses 'model_type "t5" is not supported' broken
rm broken/config.json
refuses 'broken/model.safetensors: byte 0: ' broken
"$inspect" het_missing > out 2> err # a word of the user's is no function of the library's
[ $? = 2 ] && [ "$(cat err)" = 'inspect: het_missing: No such file or directory' ]
report $? 'a file that begins with het_ is named' "$(cat err)"
refuses 'FILE or DIR is missing'
refuses '--what: no such option' --what
refuses 'one FILE or DIR is enough' a b
# Indexes of shards: the good one, and one for each rule.
index=model.safetensors.index.json
shows 'an index' 'index of |model-00001-of-00002.safetensors: ' "$data/qwen3"
edited() { # edited WORDS PYTHON   of m, the weight_map
    rm -rf shards
    cp -r "$data/qwen3" shards
    python3 - "$2" << 'END'
import json, sys
index = json.load(open("shards/model.safetensors.index.json"))
m = index["weight_map"]
exec(sys.argv[1])
json.dump(index, open("shards/model.safetensors.index.json", "w"))
END
    refuses "$1" shards
}
edited "$index: byte |is no name in this directory" 'm[sorted(m)[0]] = "../" + m[sorted(m)[0]]'
edited "$index: byte |which is not there" 'm[sorted(m)[0]] = "model-00009-of-00009.safetensors"'
edited "$index: byte |tensor x is not in model-" 'm["x"] = m[sorted(m)[0]]'
edited "$index: lacks tensor model.norm.weight" 'del m["model.norm.weight"]'
edited "$index: weight_map is missing" 'del index["weight_map"]'
rm -rf shards; cp -r "$data/qwen3" shards; sed -i '0,/"weight_map": {/s//"weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors",/' "shards/$index"
refuses "$index: byte |" shards
head -c 100 "$data/qwen3/$index" > "shards/$index"
refuses "$index: byte 100: " shards

# A checkpoint: shown with its checksums, and one of each kind of damage.
head -c 20000 "$root/hetrain.h" > text
"$train" --data text --model gpt2:layers=2,width=128,heads=2,context=16 --steps 3 --quiet --out run > log 2>&1
saved=run/step-00000003
shows 'a checkpoint' "state after step 3|lr = 0.001|optimizer.safetensors: | blocks good: | ...|config.json: |XXH64 of 1 block good: |wte.weight" $saved
"$inspect" --json $saved > out.json && python3 - $saved > log 2>&1 << 'END'
import json, os, sys
told, state = json.load(open("out.json")), json.load(open(sys.argv[1] + "/state.json"))
assert told["step"] == 3 and told["options"] == state["options"] and set(told["checksums"]) == set(os.listdir(sys.argv[1])) - {"state.json"}
assert told["checksums"] == {name: f["xxh64"] for name, f in state["files"].items()}
assert all(len(h) == -(-os.path.getsize(sys.argv[1] + "/" + name) // 2**20) for name, h in told["checksums"].items())
END
report $? 'a checkpoint as JSON says what its files say' "$(tail -n 1 log)"
mkdir killed # before its last step: it has checkpoints alone
cp -r $saved killed
cp -r $saved killed/step-100000000
mkdir killed/step-200000000 killed/step-x
refuses 'killed: holds no safetensors file; killed/step-100000000 has one' killed
for use in 'generate --init killed' 'evaluate --init killed --data text' 'train --init killed --data text'; do
    # shellcheck disable=SC2086
    refusal '--init killed/model.safetensors: No such file or directory; killed/step-100000000 has one' "${inspect%/*}"/$use
    report "$([ -z "$bad" ]; echo $?)" "so does $use" "$bad" "$line"
done
refusal '--model killed/config.json: No such file or directory; killed/step-100000000 has one' "$train" --model killed --data text
report "$([ -z "$bad" ]; echo $?)" 'so does a model without weights' "$bad" "$line"
mkdir killed/model.safetensors
refusal '--init killed/model.safetensors: is a directory' "${inspect%/*}"/generate --init killed
report "$([ -z "$bad" ] && [[ $line != *' has one' ]]; echo $?)" 'but where it is no file' "$bad" "$line"
spoilt() { # spoilt WORDS FILE BYTE
    rm -rf spoilt
    cp -r $saved spoilt
    printf '\001' | dd of="spoilt/$2" bs=1 seek="$3" conv=notrunc 2> /dev/null
    refuses "$1" spoilt
}
spoilt 'spoilt/optimizer.safetensors: bytes 2097152 to 3145727: XXH64 is |, state.json says ' optimizer.safetensors 2100001
spoilt 'spoilt/model.safetensors: bytes 0 to 1048575: XXH64 is ' model.safetensors 1048575
spoilt 'spoilt/config.json: bytes 0 to ' config.json 40
spoilt 'spoilt/state.json: its last line is not the checksum' state.json 30
rm -rf spoilt; cp -r $saved spoilt; printf x >> spoilt/config.json
refuses 'spoilt/config.json: ' spoilt
rm spoilt/config.json
refuses 'spoilt/config.json' spoilt
rm -rf spoilt; cp -r $saved spoilt; printf '{"step":17}' > spoilt/state.json
refuses 'spoilt/state.json: 11 bytes are too few' spoilt

# Pipes that nobody writes to are not waited for, in whatever place.
piped() { # piped FROM FILE COMMAND...   in a copy of the directory FROM, which the command calls spoilt
    rm -rf spoilt
    cp -r "$1" spoilt
    rm -f "spoilt/$2"
    mkfifo "spoilt/$2"
    refusal "spoilt/$2: a pipe or device, not a file" timeout 20 "${inspect%/*}/$3" "${@:4}"
    report "$([ -z "$bad" ]; echo $?)" "$3: a pipe in place of $2" "$bad" "$line"
}
for file in model.safetensors optimizer.safetensors config.json state.json; do
    piped $saved $file inspect spoilt
    piped $saved $file train --resume spoilt
done
for file in model.safetensors config.json; do
    piped run $file inspect spoilt
    piped run $file generate --init spoilt --tokens 1
done
for file in model-00001-of-00002.safetensors model.safetensors.index.json; do
    piped "$data/qwen3" $file inspect spoilt
    piped "$data/qwen3" $file generate --init spoilt --tokens 1
done

finish
