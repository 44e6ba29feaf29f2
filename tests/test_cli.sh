#!/bin/bash
# build/train and build/generate as a user meets them: bad command lines and files give exit status 2 and one line that names the option,
# file, offset or value; good ones train, write what they say, resume and repeat bit for bit. Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
programs=$PWD/${BUILD:-build}/checked
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tiny=(--model gpt2:layers=1,width=32,heads=2,context=16 --sequences 2)

# refuses WORDS PROGRAM ARGUMENTS...   WORDS: what the line must hold, separated by |
refuses() {
    local words=$1 program=$2
    shift 2
    refusal "$words" "$programs/$program" "$@"
    report "$([ -z "$bad" ]; echo $?)" "$program refuses $words" "$program $*" "$bad" "$line" "$(cat out)"
}

# accepts NAME PROGRAM ARGUMENTS...   standard output goes to $work/out
accepts() {
    local name=$1 program=$2 status
    shift 2
    "$programs/$program" "$@" > "$work/out" 2> "$work/err" < /dev/null
    status=$?
    report "$status" "$name" "$program $*" "exit status $status" "$(tail -n 3 "$work/err")"
}

cd "$work" || exit 2
for i in $(seq 300); do echo "line $i: the quick brown fox jumps over the lazy dog"; done > text
: > empty
printf 'too short' > short
printf '\001\002\003' > odd.bin
head -c 2000 /dev/zero | tr '\0' '\377' > large.bin # tokens of 65535
words() { local w; for w in "$@"; do printf "\\x$(printf %02x $((w & 255)))\\x$(printf %02x $((w >> 8 & 255)))\\x$(printf %02x $((w >> 16 & 255)))\\x$(printf %02x $((w >> 24 & 255)))"; done; }
{ words 20240520 1 500; head -c 1012 /dev/zero; head -c 1000 /dev/zero | tr '\0' '\001'; } > tokens.llmc  # tokens of 257
{ words 20240520 1 501; head -c 1012 /dev/zero; head -c 1000 /dev/zero; } > cut.llmc
{ words 20240520 9 500; head -c 1012 /dev/zero; head -c 1000 /dev/zero; } > version.llmc
mkdir directory

# ---- command lines ----
refuses '--data' train
refuses '--frobnicate' train --data text --frobnicate 3
refuses 'stray' train --data text stray
refuses '--steps' train --data text --steps
refuses '--steps|ten' train --data text --steps ten
refuses '--steps|0' train --data text --steps 0
refuses '--steps|-5' train --data text --steps -5
refuses '--steps|99999999999999999999' train --data text --steps 99999999999999999999
refuses '--steps|1e3' train --data text --steps 1e3
refuses '--lr|nan' train --data text --lr nan
refuses '--lr|-1' train --data text --lr -1
refuses '--lr|1x' train --data text --lr 1x
refuses '--dropout|1' train --data text --dropout 1
refuses '--seed|-1' train --data text --seed -1
refuses '--dtype|f16' train --data text --dtype f16
refuses '--reduce|sloppy' train --data text --reduce sloppy
refuses '--schedule-lr|stairs' train --data text --schedule-lr stairs
refuses '--quiet' train --data text --quiet=yes
refuses '--devices|gpu' train --data text --devices gpu
refuses '--devices|cpu:0' train --data text --devices cpu:0
refuses '--devices|cpu:1@2' train --data text --devices cpu:1@2
refuses '--devices|cpu:1,|expected' train --data text --devices cpu:1,
refuses '--devices|cpu:0|threads' train --data text --devices cpu:1,cpu:0
refuses '--devices|rank 1|memory_limit is 2048' train --data text --devices cpu:1,cpu:1/2K "${tiny[@]}"
OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=3 refuses 'Open MPI|3 processes|train_mpi' train --data text
refuses '--devices|cuda:0|built without CUDA|make cuda' train --data text --devices cuda:0
refuses '--devices|cuda|expected cpu:N or cuda:N' train --data text --devices cuda
refuses '--devices|cpu:1/1K' train --data text --devices cpu:1/1K "${tiny[@]}"
refuses '--length|17|16' train --data text --length 17 "${tiny[@]}"
refuses '--checkpoint-every' train --data text --checkpoint-every 5
refuses '--links|0-1|expected' train --data text --devices cpu:1,cpu:1 --links 0-1 "${tiny[@]}"
refuses '--links|5parsecs' train --data text --devices cpu:1,cpu:1 --links 0-1:5parsecs "${tiny[@]}"
refuses 'links[0]|0 and 5 of 2' train --data text --devices cpu:1,cpu:1 --links 0-5:1ms "${tiny[@]}"
refuses '--plan auto|csv' train --data text --plan auto --schedule lists.csv "${tiny[@]}"
refuses '--profile|nothere' train --data text --plan auto --profile nothere "${tiny[@]}"
refuses '--adapt|-3' train --data text --adapt=-3 "${tiny[@]}"
refuses '--plan|pp3' train --data text --devices cpu:1,cpu:1 --plan pp3 "${tiny[@]}"
refuses '--plan|unit' train --data text --devices cpu:1,cpu:1 --plan 'pp:0-1|3-5' "${tiny[@]}"
refuses '--plan|schedule|zb-9' train --data text --devices cpu:1,cpu:1 --plan pp --schedule zb-9 "${tiny[@]}"
printf '{"pipelines":[{"stages":[{"rank":0,"units":[0,3]},{"rank":0,"units":[4,6]}]}]}' > gap.json
refuses '--plan|gap.json|pipeline 0|unit 3' train --data text --plan gap.json "${tiny[@]}"
printf '0F0,0X1\n' > bad.csv
refuses '--schedule|bad.csv|line 1|0X1' train --data text --schedule bad.csv "${tiny[@]}"
refuses '--schedule|none.csv|No such file' train --data text --schedule none.csv "${tiny[@]}"
refuses '--save-plan|nowhere/plan' train --data text --save-plan nowhere/plan "${tiny[@]}"
refuses '--trace|nowhere/t.json' train --data text --trace nowhere/t.json "${tiny[@]}"
refuses '--timeline|nowhere/t.svg' train --data text --timeline nowhere/t.svg "${tiny[@]}"
refuses '--tokenizer x' train --data text --tokenizer x
refuses '--tokenizer text|byte 0' train --data text --tokenizer text

# ---- models ----
refuses '--model|gpt5' train --data text --model gpt5:small
refuses '--model|colour' train --data text --model gpt2:colour=3
refuses '--model|65|4' train --data text --model gpt2:width=65,heads=4
refuses '--model|layers|-3' train --data text --model gpt2:layers=-3
refuses '--model|nothere.json' train --data text --model nothere.json
echo '{"model_type": "gpt2", "n_embd": }' > broken.json
refuses '--model|broken.json|byte' train --data text --model broken.json
refuses '--model|vocab|100' train --data text --model gpt2:layers=1,width=32,vocab=100

# ---- data files ----
refuses '--data|nothere|No such file' train --data nothere
refuses '--data|directory' train --data directory
refuses '--data|empty' train --data empty
refuses '--data|short|9 tokens|17' train --data short "${tiny[@]}"
refuses '--data|odd.bin|3 bytes' train --data odd.bin "${tiny[@]}"
refuses '--data|large.bin|65535|offset 0|256' train --data large.bin "${tiny[@]}"
refuses '--data|tokens.llmc|257|offset 1024|256' train --data tokens.llmc "${tiny[@]}"
refuses '--data|cut.llmc|501|2026|2024' train --data cut.llmc "${tiny[@]}"
refuses '--data|version.llmc|version 9|offset 4' train --data version.llmc "${tiny[@]}"
refuses '--val|nothere' train --data text --val nothere "${tiny[@]}"
refuses '--val|empty' train --data text --val empty "${tiny[@]}"
refuses '--out|text' train --data text --out text "${tiny[@]}"

# ---- a run, what it writes, and going on from it ----
accepts 'a run' train --data text --out run --steps 20 --hash "${tiny[@]}"
first=$(grep -E '^weights [0-9a-f]{16}$' out)
report "$([ -n "$first" ]; echo $?)" 'the run ends with its hash' "$(tail -n 2 out)"
missing=
for file in model.safetensors config.json step-00000020/state.json log.jsonl loss.svg; do [ -s run/$file ] || missing="$missing $file"; done
report "$([ -z "$missing" ]; echo $?)" 'weights, state, log and picture are written' "missing:$missing"
report "$([ "$(grep -c '"loss":' run/log.jsonl)" -ge 20 ]; echo $?)" 'the log has every step' "$(wc -l run/log.jsonl)"
if [ -c /dev/full ]; then
    "$programs/train" --data text --steps 2 --quiet --log /dev/full "${tiny[@]}" > out 2> err
    report "$([ $? = 1 ] && grep -q 'cannot write /dev/full' err; echo $?)" 'a log that is not whole is an error' "$(cat err)"
fi
if command -v python3 > /dev/null; then
    python3 - > py 2>&1 << 'PY'
import json, struct
for line in open('run/log.jsonl'):
    record = json.loads(line)
    if 'step' in record and 'loss' in record:
        for key in ('step', 'loss', 'grad_norm', 'lr', 'tokens', 'step_ms', 'tokens_per_s'):
            assert key in record, key
json.load(open('run/config.json'))
json.load(open('run/step-00000020/state.json'))
data = open('run/model.safetensors', 'rb').read()
size = struct.unpack('<Q', data[:8])[0]
header = json.loads(data[8:8 + size])
assert max(t['data_offsets'][1] for n, t in header.items() if n != '__metadata__') == len(data) - 8 - size
PY
    report $? 'log, config, state and weights can be read by others' "$(tail -n 3 py)"
fi

accepts 'the same run again, on other threads, in slices' train --data text --steps 20 --hash --quiet --devices cpu:3 --slices 2 --backward split --recompute "${tiny[@]}"
report "$([ "$first" = "$(grep '^weights' out)" ]; echo $?)" 'has the same hash' "$first" "$(cat out)"
accepts 'the same run on two ranks in a pipeline' train --data text --steps 20 --hash --quiet --devices cpu:1,cpu:2@0.9 --plan pp --schedule zb-h1 --links 0-1:1us \
    --save-plan plan.json --trace trace.json --timeline timeline.svg "${tiny[@]}"
report "$([ "$first" = "$(grep '^weights' out)" ]; echo $?)" 'has the same hash' "$first" "$(cat out)"
report "$([ -s plan.json ] && [ -s trace.json ] && grep -q '</svg>' timeline.svg; echo $?)" 'plan, trace and picture are written' "$(ls)"
accepts 'the same run on the plan saved, by another schedule' train --data text --steps 20 --hash --quiet --devices cpu:1,cpu:1 --plan plan.json --schedule gpipe "${tiny[@]}"
report "$([ "$first" = "$(grep '^weights' out)" ]; echo $?)" 'has the same hash' "$first" "$(cat out)"
accepts 'the same run on plans that change on the way' train --data text --steps 20 --hash --devices cpu:1,cpu:1,cpu:1 --replan '3:pp,9x1:dp,14x2:pp:0-0|1-1|2-3' \
    --slow 5:1@0.7,10:1@1 --log changes.jsonl "${tiny[@]}"
report "$([ "$first" = "$(grep '^weights' out)" ]; echo $?)" 'has the same hash' "$first" "$(cat out)"
report "$([ "$(grep -c '"event":"replan"' changes.jsonl)" = 3 ] && [ "$(grep -c '^replan  ' out)" = 3 ]; echo $?)" 'and says when' "$(grep replan out)"
refuses '--replan|0:pp|STEP' train --data text --replan 0:pp "${tiny[@]}"
refuses '--slow|2:1@7|0.001' train --data text --devices cpu:1,cpu:1 --slow 2:1@7 "${tiny[@]}"
refuses '--slow|2:2@1|below 2' train --data text --devices cpu:1,cpu:1 --slow 2:2@1 "${tiny[@]}"
accepts 'the same run on the best plan for a fast and a slow rank' train --data text --steps 20 --hash --devices cpu:1,cpu:1@0.4 --granule 1 --plan auto \
    --save-profile profile.json --save-plan auto.json "${tiny[@]}"
best=$(grep '^weights' out)
report "$(grep -q 'no plan can take less' out && grep -q '^profile ' out && [ -s auto.json ] && [ -s profile.json ]; echo $?)" 'it is shown and saved' "$(cat out)"
accepts 'the same run that adapts' train --data text --steps 20 --hash --quiet --devices cpu:1,cpu:1@0.4 --granule 1 --plan auto --profile profile.json --plan-seconds 1 \
    --adapt --slow 6:0@0.2 --log adapted.jsonl "${tiny[@]}"
report "$([ "$best" = "$(grep '^weights' out)" ]; echo $?)" 'has the same hash' "$best" "$(cat out)"
accepts 'the same run on one rank' train --data text --steps 20 --hash --quiet --devices cpu:1 --granule 1 "${tiny[@]}"
report "$([ "$best" = "$(grep '^weights' out)" ]; echo $?)" 'has the same hash' "$best" "$(cat out)"
accepts 'the same run with a checkpoint' train --data text --out half --steps 20 --checkpoint-every 8 --keep 3 --hash "${tiny[@]}"
rm -rf from; mkdir from; cp -r half/step-*8 from/ 2> /dev/null
accepts 'resumed at step 8' train --data text --resume from --hash --quiet
report "$([ "$first" = "$(grep '^weights' out)" ]; echo $?)" 'ends with the same hash' "$first" "$(cat out)"

refuses '--resume|nothere' train --data text --resume nothere
refuses '--resume|directory' train --data text --resume directory
accepts 'resumed on two other ranks' train --data text --resume from --hash --quiet --devices cpu:1,cpu:1
report "$([ "$first" = "$(grep '^weights' out)" ]; echo $?)" 'ends with the same hash' "$first" "$(cat out)"
refuses '--model' train --data text --resume from --model gpt2:tiny
cp -r run damaged
printf 'X' | dd of=damaged/step-00000020/model.safetensors bs=1 seek=3000 conv=notrunc 2> /dev/null
refuses '--resume|model.safetensors' train --data text --resume damaged
head -c 1000 run/model.safetensors > damaged/model.safetensors
refuses '--init|model.safetensors' train --data text --init damaged "${tiny[@]:2}"
refuses '--init|nothere' train --data text --init nothere
accepts 'starting from weights' train --data text --init run --steps 2 --quiet --sequences 2

# ---- profile ----
narrow=(--model llama:layers=1,width=16,heads=2,context=32 --sequences 2 --quiet)
refuses '--steps 0|--save-profile' train --data text --steps 0
refuses '--save-profile|no/such/place' train --data text --steps 0 --save-profile no/such/place "${narrow[@]}"
accepts 'only a profile' train --data text --steps 0 --save-profile profile.json --devices cpu:1,cpu:1 "${narrow[@]}"
# busy processors may hide the latency: then it is 0
report "$(grep -q '"name": "cpu:1"' profile.json && grep -q '"name": "threads", "latency": [0-9].*"bandwidth": [1-9]' profile.json; echo $?)" 'of one kind of device and a link' \
    "$(head -c 600 profile.json)"

# ---- generate ----
refuses '--init' generate
refuses '--init|nothere' generate --init nothere
refuses '--init|model.safetensors' generate --init damaged
refuses '--tokens|-1' generate --init run --tokens -1
refuses '--temperature|hot' generate --init run --temperature hot
refuses '--frobnicate' generate --init run --frobnicate
accepts 'a sample' generate --init run --prompt line --tokens 50
cp out sample
report "$([ "$(wc -c < sample)" -ge 50 ]; echo $?)" 'has its 50 bytes' "$(wc -c < sample)"
accepts 'the same sample again' generate --init run --prompt line --tokens 50
report "$(cmp -s out sample; echo $?)" 'is the same'
accepts 'a sample of another seed' generate --init run --prompt line --tokens 50 --seed 7
report "$(! cmp -s out sample; echo $?)" 'is another'

finish
