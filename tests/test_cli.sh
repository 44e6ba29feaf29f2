#!/bin/bash
# build/train and build/generate as a user meets them: bad command lines and files give exit status 2 and one line that names the option,
# file, offset or value; good ones train, write what they say, resume and repeat bit for bit. Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
root=$PWD
programs=$PWD/${BUILD:-build}/checked
pages=("$PWD/README.md" "$PWD"/docs/*.md)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tiny=(--model gpt2:layers=1,width=32,heads=2,context=16 --sequences 2 --granule 1)

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
printf '{"pipelines":[{"stages":[{"rank":0,"units":[0,4]}]}],"slices":1}' > one_gap.json

# ---- help ----
same() { # same NAME A B: two files
    diff "$2" "$3" > difference 2>&1
    report $? "$1" "$(head -n 5 difference)"
}
"$programs/train" --help > help
"$programs/train" -h > brief
same '-h is --help' brief help
for program in train generate evaluate merge convert inspect plan tokenize advise; do
    "$programs/$program" --help > help
    long=$(awk 'length($0) > 100' help)
    grep -q '^  --version ' help && grep -q '^[A-Z].*:$' help && [ -z "$long" ]
    report $? "$program --help: groups, lines of at most 100 columns" "$long" "$(head -n 3 help)"
    version=$("$programs/$program" --version)
    [[ $version =~ ^$program\ of\ hetrain\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
    report $? "$program --version" "$version"
done
"$programs/het_bench" --help > help
report "$(grep -q '|islands$' help && ! grep -q '.\{101\}' help; echo $?)" 'a long list of words is broken, not cut off' "$(head -n 8 help)"
for script in supervise finetune; do
    bash "$root/programs/$script.sh" --help > help 2> err
    report "$([ $? = 0 ] && [ ! -s err ] && grep -q "programs/$script.sh .*OUT" help; echo $?)" "$script.sh --help" "$(cat help err)"
done
refuses '--step:|did you mean --steps?|--help' train --data text --step 3
refuses '--learning-rate=1|no such option;' train --data text --learning-rate=1
refuses '--recompte|did you mean --recompute?' train --data text --recompte
refuses '--recompute|not one of no|unit|stage; did you mean stage?' train --data text --recompute stages
refuses '--schedule-lr cosin|did you mean cosine?' train --data text --schedule-lr cosin
refuses '--dtype fp16|not one of f32|bf16' train --data text --dtype fp16
refuses 'streams is bf16, dtype is f32' train --data text --streams bf16
refuses 'streams is bf16|unit 0 (embed)|device cpu' train --data text --dtype bf16 --streams bf16
refuses '--temprature|did you mean --temperature?' generate --temprature 1

# ---- command lines ----
refuses '--lr|1e-12' train --data text --lr 1e-13
for value in 1e-300 1e-46 1e-4000; do refuses "--clip $value|a float holds" train --data text --clip $value; done
refuses '--spike 1e-300|a float holds' train --data text --spike 1e-300
refuses '--temperature 1e-60|a float holds' generate --temperature 1e-60
refuses 'dropout|a float holds' train --data text --model llama:layers=1,dropout=1e-300
refuses '--min-lr 0.002|above --lr 0.001' train --data text --lr 0.001 --min-lr 0.002
refuses '--beta1 1|0.999999' train --data text --beta1 1
refuses '--epsilon 0|1e-30' train --data text --epsilon 0
echo '{"pipelines":[{"stages":[{"rank":0,"units":[0,2]},{"rank":1,"units":[2,4]}]}],"slices":3}' > sliced.json
refuses '--slices: 3 slices of a micro-batch of 2 granules' train --data text --slices 3 "${tiny[@]}"
refuses '--plan: 3 slices of a micro-batch of 2 granules' train --data text --devices cpu:1,cpu:1 --plan sliced.json "${tiny[@]}"
refuses '--data' train
refuses '--frobnicate' train --data text --frobnicate 3
refuses 'stray: belongs to no option' train --data text stray
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
refuses '--devices|cpu:1:sse|expected plain, avx2' train --data text --devices cpu:1:sse
refuses '--devices|cpu:1:|expected plain, avx2' train --data text --devices cpu:1:@0.5
refuses '--devices|cpu:0:plain|threads' train --data text --devices cpu:0:plain
refuses '--devices|rank 1|--devices .../SIZE) of 2 kB|--recompute' train --data text --devices cpu:1,cpu:1/2K "${tiny[@]}"
refuses '--devices|#0: the most tokens' train --data text --devices cpu:1#0
refuses '--adapt|cpu:1#16|of 32 tokens|--plan auto' train --data text --devices cpu:1,cpu:1#16 --plan dp --adapt "${tiny[@]}"
refuses '--plan auto|smallest|of 16 tokens|device 1 (cpu:1#15)|takes 15' train --data text --devices cpu:1#8,cpu:1#15 --plan auto "${tiny[@]}"
refuses '--devices|rank 1|15 tokens at most|have 16' train --data text --devices cpu:1,cpu:1#15 "${tiny[@]}"
OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=3 refuses 'Open MPI|3 processes|train_mpi' train --data text
refuses '--devices|cuda:0|built without CUDA|make cuda' train --data text --devices cuda:0
refuses '--devices|cuda|expected cpu:N or cuda:N' train --data text --devices cuda
refuses '--devices|cpu:1/1K' train --data text --devices cpu:1/1K "${tiny[@]}"
refuses '--length|17|16' train --data text --length 17 "${tiny[@]}"
refuses '--checkpoint-every' train --data text --checkpoint-every 5
refuses '--links|0-1|expected' train --data text --devices cpu:1,cpu:1 --links 0-1 "${tiny[@]}"
refuses '--links|5parsecs' train --data text --devices cpu:1,cpu:1 --links 0-1:5parsecs "${tiny[@]}"
refuses '--links 0-5:1ms: 0-5:1ms|below 2' train --data text --devices cpu:1,cpu:1 --links 0-5:1ms "${tiny[@]}"
refuses '--links|1-1:1ms|below 2' train --data text --devices cpu:1,cpu:1 --links 0-1:1ms,1-1:1ms "${tiny[@]}"
refuses '--links|1-0:2ms|twice' train --data text --devices cpu:1,cpu:1 --links 0-1:1ms,1-0:2ms "${tiny[@]}"
refuses '--experts 4,5: 5 of 4 experts' train --data text --experts 4,5 "${tiny[@]}"
refuses '--experts|of width 999999999|all together below 2^31' train --data text --experts 4,2,width=999999999 "${tiny[@]}"
refuses "--experts|'auxiliary=' is none of" train --data text --experts 4,2,auxiliary= "${tiny[@]}"
refuses '--experts|capacity inf|from 0 to 1e6' train --data text --experts 4,2,capacity=1e300 "${tiny[@]}"
refuses '--plan auto|csv' train --data text --plan auto --schedule lists.csv "${tiny[@]}"
refuses '--profile|nothere' train --data text --plan auto --profile nothere "${tiny[@]}"
refuses '--adapt|-3' train --data text --adapt=-3 "${tiny[@]}"
refuses '--adapt|no plan is looked for with schedule|sliced-1f1b' train --data text --devices cpu:1,cpu:1 --plan pp --slices 2 --schedule sliced-1f1b --adapt "${tiny[@]}"
refuses '--adapt|--schedule timed' train --data text --devices cpu:1,cpu:1 --plan pp --schedule timed --adapt "${tiny[@]}"
refuses '--adapt|--schedule timed' train --data text --devices cpu:1,cpu:1 --plan auto --schedule timed --adapt "${tiny[@]}"
refuses '--memory-limit|greedy or timed' train --data text --devices cpu:1,cpu:1 --plan pp --schedule zb-h1 --memory-limit 2 "${tiny[@]}"
refuses '--plan|pp3' train --data text --devices cpu:1,cpu:1 --plan pp3 "${tiny[@]}"
refuses '--plan|unit' train --data text --devices cpu:1,cpu:1 --plan 'pp:0-1|3-5' "${tiny[@]}"
refuses '--schedule|zb-9' train --data text --devices cpu:1,cpu:1 --plan pp --schedule zb-9 "${tiny[@]}"
printf '{"pipelines":[{"stages":[{"rank":0,"units":[0,3]},{"rank":0,"units":[4,6]}]}]}' > gap.json
refuses '--plan|gap.json|pipeline 0|unit 3' train --data text --plan gap.json "${tiny[@]}"
printf '0F0,0X1\n' > bad.csv
refuses '--schedule|bad.csv|line 1|0X1' train --data text --schedule bad.csv "${tiny[@]}"
for bad in '0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1|deadlock' '0F0,0F1,0B0,0B1\n1F0,1B0,1F1|1B1 is missing' '0F0,0F1,0B0,1B1\n1F0,1B0,1F1,0B1|1B1|on rank 1' \
    '0F0,0B0\n1F0,1B0|lists of 1 micro-batches; a step has 2'; do
    printf "${bad%%|*}\n" > bad.csv
    refuses "--schedule bad.csv: |${bad#*|}" train --data text --devices cpu:1,cpu:1 --plan pp --micro-batches 2 --schedule bad.csv "${tiny[@]}"
done
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

for nearly in 'lama:tiny llama' 'llama:tinny tiny' 'gpt2:124n 124m' 'llama:layer=2 layers' 'gpt2:activation=gelu_tan gelu_tanh' 'GPT2:tiny gpt2'; do
    refuses "--model ${nearly% *}|did you mean ${nearly#* }?" train --data text --model "${nearly% *}"
done
refuses '--model gpt2:wi=2|dropout lora_rank' train --data text --model gpt2:wi=2 # all keys
refuses 'lora_rank=2|--lora' train --data text --model gpt2:tiny,lora_rank=2 --steps 1 # on weights that nothing would keep
refuses "--schedule text: unknown schedule|; a file's name ends in .csv" train --data text --schedule text "${tiny[@]}"
lists=$(printf './%.0s' $(seq 40))text
refuses "--schedule $lists: unknown schedule|; a file's name ends in .csv" train --data text --schedule "$lists" "${tiny[@]}"
refuses '--schedule zbh1|did you mean zb-h1?' train --data text --schedule zbh1 --devices cpu:1,cpu:1 "${tiny[@]}"
refuses '--plan DP|did you mean dp?' train --data text --plan DP "${tiny[@]}"
echo '{' > tp2
accepts 'a shorthand, beside a file of that name' train --data text --steps 1 --quiet --devices cpu:1,cpu:1 --plan tp2 "${tiny[@]}"
refuses '--plan ./tp2: |byte 2' train --data text --devices cpu:1,cpu:1 --plan ./tp2 "${tiny[@]}"
refuses '--plan aut|did you mean auto?' train --data text --plan aut "${tiny[@]}"
refuses '--replan ppp|did you mean pp?' train --data text --replan 3:ppp "${tiny[@]}"
refuses '--replan aut: ' train --data text --replan 3:aut "${tiny[@]}"
report "$([[ $line != *'did you mean'* ]]; echo $?)" 'which no plan of a later step can be' "$line"

# ---- long paths: what is wrong stands at the end, and stays ----
long=$(printf 'directory-of-a-long-name-%.0s' $(seq 40))
for option in --data --init --tokenizer --profile; do
    refuses "$option directory-of|No such file or directory" train --data text --plan auto $option "${long:0:250}/${long:0:250}/${long:0:250}/${long:0:250}/end" "${tiny[@]}"
done
huge=$(head -c 20000 /dev/zero | tr '\0' x)
for option in --data --tokenizer; do refuses "$option xxx|xxx: File name too long" train --data text $option "$huge"; done
refuses '--steps xxx|not an integer from 0' train --data text --steps "$huge"
refuses '--devices xxx|expected cpu:N' train --data text --devices "$huge"
refuses '--replan xxx|expected STEP:' train --data text --replan "$huge" "${tiny[@]}"
refuses '--devices cpu:1/99999999T|expected a size' train --data text --devices cpu:1/99999999T
refuses "--resume directory-of|No such file or directory" train --resume "${long:0:250}/${long:0:250}/end"
deep=${long:0:240}/${long:0:240}/${long:0:240}
mkdir -p "$deep"
cp text "$deep/model.safetensors"
"$programs/train" --data text --steps 1 --quiet --out made "${tiny[@]}" > /dev/null 2>&1
cp made/config.json "$deep"
refuses "--init directory-of|header" train --data text --init "$deep"

# ---- memory in MB ----
refuses '--devices cpu:1/1M|MB more than its limit|of 1 MB; --recompute' train --data text --devices cpu:1/1M
refuses 'of 1.0486 MB' train --data text --devices cpu:1/1Mi
refuses 'of 1 MB; fewer --sequences' train --data text --devices cpu:1/1M --recompute

# ---- data files ----
refuses '--data|nothere|No such file' train --data nothere
refuses '--data|directory' train --data directory
mkfifo pipe # that nobody writes to
refuses '--data pipe: a pipe or device, not a file' train --data pipe
refuses '--tokenizer pipe: a pipe or device, not a file' train --data text --tokenizer pipe
refuses '--init pipe: a pipe or device, not a file' train --data text --init pipe
refuses 'pipe: a pipe or device, not a file' inspect pipe
refuses 'nothere: No such file' inspect --json nothere
report "$([ ! -s out ]; echo $?)" 'and begins no JSON' "$(cat out)"
refuses '--data|empty' train --data empty
refuses '--data|short|9 tokens|17' train --data short "${tiny[@]}"
refuses '--data|odd.bin|3 bytes' train --data odd.bin "${tiny[@]}"
refuses '--data|large.bin|65535|offset 0|256' train --data large.bin "${tiny[@]}"
refuses '--data|tokens.llmc|257|offset 1024|256' train --data tokens.llmc "${tiny[@]}"
refuses '--data|cut.llmc|501|2026|2024' train --data cut.llmc "${tiny[@]}"
refuses '--data|version.llmc|version 9|offset 4' train --data version.llmc "${tiny[@]}"
refuses '--val|nothere' train --data text --val nothere "${tiny[@]}"
refuses '--val|empty' train --data text --val empty "${tiny[@]}"
brief=(--data text --model gpt2:layers=2,width=32,heads=2,context=16 --sequences 6 --micro-batches 2 --granule 3 --steps 1 --quiet --overwrite)
for windows in 1 14; do # of 16 tokens; a step has 12 of them, in granules of 3
    head -c $((16 * windows + 1)) text > few
    first=
    for layout in cpu:1/dp cpu:1,cpu:1/dp cpu:1,cpu:1/pp cpu:1#96,cpu:1#48/dp; do
        accepts "--val of $windows windows, $layout" train "${brief[@]}" --val few --devices "${layout%/*}" --plan "${layout#*/}" --out few.out
        line=$(grep -o '"val_loss".*' few.out/log.jsonl)
        first=${first:-$line}
        report "$([ -n "$line" ] && [ "$line" = "$first" ]; echo $?)" 'the same loss' "$first" "$line"
    done
    "$programs/evaluate" --init few.out --data few --json > out
    read -r loss tokens <<< "$(sed 's/.*"val_loss":\(.*\),"val_tokens":\(.*\)}/\1 \2/' <<< "$first")"
    report "$([ "$tokens" = $((16 * windows)) ] && grep -qF "\"loss\":${loss::10}" out; echo $?)" 'of every window once' "$first" "$(cat out)"
done
refuses '--out|text' train --data text --out text "${tiny[@]}"

# ---- several files of data: the mix trains what one file with the same tokens trains ----
mkdir parts
head -n 100 text > parts/a && tail -n 120 text > 'parts/b c'
printf '# twice and a half, then half\r\n 2.5 a\n\n0.5\tb c\r\n' > parts/text.mix
half() { head -c $(($(wc -c < "$1") / 2)) "$1"; }
{ cat parts/a parts/a; half parts/a; half 'parts/b c'; } > mixed
mix() { # mix NAME DATA PLAIN ARGUMENTS...
    local name=$1 data=$2 plain=$3 hash
    shift 3
    accepts "$name" train --data "$data" --val text --steps 6 --hash --quiet "$@"
    hash=$(grep '^weights' out)
    accepts "$name in one file" train --data "$plain" --val text --steps 6 --hash --quiet "$@"
    report "$([ -n "$hash" ] && [ "$hash" = "$(grep '^weights' out)" ]; echo $?)" 'trains the same' "$hash" "$(cat out err)"
}
mix 'text of several files' parts/text.mix mixed "${tiny[@]}"
mix 'text of several files, read between steps' parts/text.mix mixed --loaders 0 "${tiny[@]}"
accepts 'a tokenizer' tokenize --train 300 --text text --tokenizer mixed.json
mix 'text of several files as tokens' parts/text.mix mixed --tokenizer mixed.json --model gpt2:layers=1,width=32,heads=2,context=16,vocab=300 --sequences 2
{ words 20240520 1 400; head -c 1012 /dev/zero; head -c 800 /dev/zero | tr '\0' '\001'; } > parts/dated.llmc # tokens of 257
head -c 600 /dev/zero > parts/plain.bin
printf '1.25 dated.llmc\n3 plain.bin\n' > parts/short.mix
{ tail -c 800 parts/dated.llmc; tail -c 200 parts/dated.llmc; for i in 1 2 3; do cat parts/plain.bin; done; } > mixed.bin
mix 'tokens of 16 bits, with and without a header' parts/short.mix mixed.bin --model gpt2:layers=1,width=32,heads=2,context=16,vocab=300 --sequences 2
long_tokens() { local w; for w in "$@"; do words "$w"; done; }
{ words 20240801 7 40; head -c 1012 /dev/zero; long_tokens $(seq 40); } > parts/one.llmc
{ words 20240801 7 30; head -c 1012 /dev/zero; long_tokens $(seq 101 130); } > parts/two.llmc
{ words 20240801 7 95; head -c 1012 /dev/zero; long_tokens $(seq 40) $(seq 40) $(seq 101 115); } > mixed.llmc
printf '2 one.llmc\n0.5 two.llmc' > parts/long.mix
mix 'tokens of 32 bits' parts/long.mix mixed.llmc "${tiny[@]}"
accepts 'a run of a mix' train --data parts/text.mix --steps 6 --checkpoint-every 3 --hash --quiet --out mixing "${tiny[@]}"
hash=$(grep '^weights' out)
accepts 'its second half' train --resume mixing/step-00000003 --out mixing2 --hash --quiet
report "$([ "$hash" = "$(grep '^weights' out)" ]; echo $?)" 'to the same weights' "$hash" "$(cat out)"
cp -r parts elsewhere
printf 'X' | dd of=elsewhere/a bs=1 seek=50 conv=notrunc 2> /dev/null
refuses '--data elsewhere/text.mix: is not what the resumed run had' train --resume mixing/step-00000003 --out mixing3 --data elsewhere/text.mix
try() { printf "$1" > parts/bad.mix; shift; refuses "$@"; }
try '1 a\nmuch a\n' '--data parts/bad.mix: line 2: expected WEIGHT PATH' train --data parts/bad.mix "${tiny[@]}"
try '0 a\n' 'line 1: expected WEIGHT PATH' train --data parts/bad.mix "${tiny[@]}"
try 'nan a\n' 'line 1: expected WEIGHT PATH' train --data parts/bad.mix "${tiny[@]}"
try '# none\n' '--data parts/bad.mix: names no file' train --data parts/bad.mix "${tiny[@]}"
try '1 a\n\n1 gone\n' '--data parts/bad.mix: line 3: parts/gone: No such file' train --data parts/bad.mix "${tiny[@]}"
try '1 bad.mix\n' 'a mix has no mixes' train --data parts/bad.mix "${tiny[@]}"
try '1e-5 a\n' '--data parts/bad.mix: line 1: parts/a: a weight of 1e-05 leaves none of its' train --data parts/bad.mix "${tiny[@]}"
try '1 a\n1 dated.llmc\n' '--data parts/bad.mix: line 2: parts/dated.llmc: tokens of 2 bytes|text of 1|one kind' train --data parts/bad.mix --model gpt2:layers=1,width=32,heads=2,context=16,vocab=300
try '1 dated.llmc\n' '--data parts/bad.mix: line 1: parts/dated.llmc: token 257|offset 1024|256' train --data parts/bad.mix "${tiny[@]}"
try '1 a\n' '--log parts/a: is the file of --data' train --data parts/bad.mix --log parts/a "${tiny[@]}"
"$programs/train" --data parts/text.mix --steps 300000 --quiet --out cutting "${tiny[@]}" > out 2> err &
child=$!
for _ in $(seq 400); do grep -q '"loss"' cutting/log.jsonl 2> /dev/null && break; sleep 0.05; done
: > 'parts/b c'
wait $child
report "$([ $? = 2 ] && grep -q '^train: --data: parts/text.mix: reading .* failed (-1); cut off: parts/b c$' err; echo $?)" 'a file of a mix that is cut off during the run is named' "$(cat err)"
saved=$(sed -n 's/^train: step \([0-9]*\) is saved in cutting$/\1/p' err)
report "$([ "${saved:-0}" -gt 0 ] && [ -s "$(printf cutting/step-%08d/state.json "$saved")" ] && "$programs/train" --data text --resume cutting --steps $((saved + 1)) --force-resume --quiet; echo $?)" \
    'what was trained until then is saved' "$(cat err)" "$(ls cutting)"
refuses '--data parts/text.mix: a mix is for train' evaluate --init mixing --data parts/text.mix

# ---- a run, what it writes, and going on from it ----
accepts 'a run' train --data text --out run --steps 20 --hash "${tiny[@]}"
first=$(grep -E '^weights [0-9a-f]{16}$' out)
report "$([ -n "$first" ]; echo $?)" 'the run ends with its hash' "$(tail -n 2 out)"
missing=
for file in model.safetensors config.json step-00000020/state.json log.jsonl loss.svg; do [ -s run/$file ] || missing="$missing $file"; done
report "$([ -z "$missing" ]; echo $?)" 'weights, state, log and picture are written' "missing:$missing"
report "$([ "$(grep -c '"loss":' run/log.jsonl)" -ge 20 ]; echo $?)" 'the log has every step' "$(wc -l run/log.jsonl)"
long=$(printf 'a_long_name_of_a_text%.0s' 1 2 3 4 5 6 7)
cp text "$long"
accepts 'one step' train --data "$long" --steps 1 --out single "${tiny[@]}"
# 9 pixels a letter of the title, 7.6 of the legend
report "$([ "$(grep -c '<circle ' single/loss.svg)" = 3 ] && awk -F'"' '/<text x=/ && !/text-anchor/ { sub(/.*<text/, "<text"); text = $NF; sub(/<\/text>.*/, "", text)
    sub(/^>/, "", text); if ($2 + length(text) * (/font-size/ ? 9 : 7.6) > 890) print }' single/loss.svg | wc -l | grep -q '^0$'; echo $?)" \
    'one point is a dot, and all texts are inside the picture' "$(grep '<text x=\|circle' single/loss.svg | grep -v middle)"
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
    cp text $'caf\xe9 \xc3\xa9 "\n'
    accepts 'data whose name is not UTF-8' train --data $'caf\xe9 \xc3\xa9 "\n' --steps 1 --quiet --out latin "${tiny[@]}"
    mv latin $'lat\xefn'
    "$programs/inspect" --json $'lat\xefn' > out
    python3 -c 'import json; name = json.loads(open(b"lat\xefn/log.jsonl", encoding="utf-8").readline())["options"]["data"]
assert name == "caf? \u00e9 \"\n", name; assert json.load(open("out", encoding="utf-8"))["files"][0]["file"] == "lat?n/model.safetensors"' > py 2>&1
    report $? 'is named in a log that is' "$(tail -n 3 py)"
    python3 -c 'from xml.dom.minidom import parse; text = parse(open(b"lat\xefn/loss.svg", "rb")).documentElement.toxml()
assert "caf? \u00e9" in text, text' > py 2>&1
    report $? 'and in a picture that is' "$(tail -n 1 py)"
fi

if command -v taskset > /dev/null; then
    taskset -c "$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')" "$programs/train" --data text --steps 1 "${tiny[@]}" > out 2> err
    report "$(grep -q '^device   cpu:1, ' out; echo $?)" 'a process that may use one processor starts one thread' "$(cat out err)"
fi
accepts 'the same run again, on other threads, in slices' train --data text --steps 20 --hash --quiet --devices cpu:3 --slices 2 --backward split --recompute "${tiny[@]}"
report "$([ "$first" = "$(grep '^weights' out)" ]; echo $?)" 'has the same hash' "$first" "$(cat out)"
accepts 'the same run, short micro-batches not cut' train --data text --steps 20 --hash --quiet --devices cpu:2 --slices 2 --slice-tokens 20 --save-plan short.json "${tiny[@]}"
report "$([ "$first" = "$(grep '^weights' out)" ] && grep -q '"slice_tokens": 20' short.json; echo $?)" 'has the same hash and says so' "$first" "$(cat out)"
accepts 'the same run, whole stages recomputed' train --data text --steps 20 --hash --quiet --devices cpu:2 --recompute stage --save-plan whole.json "${tiny[@]}"
report "$([ "$first" = "$(grep '^weights' out)" ] && grep -q '"recompute": "stage"' whole.json; echo $?)" 'has the same hash and says so' "$first" "$(cat out)"
accepts 'the same run on two ranks in a pipeline' train --data text --steps 20 --hash --quiet --devices cpu:all,cpu:2@0.9 --plan pp --schedule zb-h1 --links 0-1:1us \
    --save-plan plan.json --trace trace.json --timeline timeline.svg "${tiny[@]}"
report "$([ "$first" = "$(grep '^weights' out)" ]; echo $?)" 'has the same hash' "$first" "$(cat out)"
report "$([ -s plan.json ] && [ -s trace.json ] && grep -q '</svg>' timeline.svg; echo $?)" 'plan, trace and picture are written' "$(ls)"
accepts 'the same run beside a rank that takes single sequences' train --data text --steps 20 --hash --devices cpu:1@0.9/1G#16,cpu:1 --plan dp "${tiny[@]}"
report "$([ "$first" = "$(grep '^weights' out)" ] && grep -q 'in 2 micro-batches of at most 2 granules' out; echo $?)" \
    'has the same hash, and says so' "$first" "$(cat out)"
accepts 'the same run with plain loops on that rank' train --data text --steps 20 --hash --devices cpu:1:plain@0.9#16,cpu:1 --plan dp "${tiny[@]}"
report "$([ "$first" = "$(grep '^weights' out)" ] && grep -q '^rank 0   cpu:1:plain@0.9, ' out; echo $?)" 'has the same hash, and says so' "$first" "$(cat out)"
accepts 'the same run on one rank, whose plan is saved' train --data text --steps 20 --hash --quiet --devices cpu:1 --save-plan alone.json "${tiny[@]}"
accepts 'and runs' train --data text --steps 20 --hash --quiet --devices cpu:1 --plan alone.json "${tiny[@]}"
report "$([ "$first" = "$(grep '^weights' out)" ]; echo $?)" 'has the same hash' "$first" "$(cat out)"
accepts 'the same run on the plan saved, by another schedule' train --data text --steps 20 --hash --quiet --devices cpu:1,cpu:1 --plan plan.json --schedule gpipe "${tiny[@]}"
report "$([ "$first" = "$(grep '^weights' out)" ]; echo $?)" 'has the same hash' "$first" "$(cat out)"
accepts 'the same run on plans that change on the way' train --data text --steps 20 --hash --devices cpu:1,cpu:1,cpu:1 --replan '3:pp,9x1:dp,14x2:pp:0-0|1-1|2-3' \
    --slow 5:1@0.7,10:1@1 --log changes.jsonl "${tiny[@]}"
report "$([ "$first" = "$(grep '^weights' out)" ]; echo $?)" 'has the same hash' "$first" "$(cat out)"
report "$([ "$(grep -c '"event":"replan"' changes.jsonl)" = 3 ] && [ "$(grep -c '^replan  ' out)" = 3 ]; echo $?)" 'and says when' "$(grep replan out)"
refuses '--replan|0:pp|STEP' train --data text --replan 0:pp "${tiny[@]}"
refuses '--replan 2x0:pp: 2x0:pp: expected STEP: in front, as in 50:, or STEPxN:' train --data text --replan 2x0:pp "${tiny[@]}"
refuses '--slow 2x3:0@0.5: 2x3:0@0.5: expected STEP: in front' train --data text --slow 2x3:0@0.5 "${tiny[@]}"
refuses '--replan nowhere.json: No such file' train --data text --steps 20 --replan 4:nowhere.json "${tiny[@]}"
refuses '--plan nowhere.json: No such file' train --data text --plan nowhere.json "${tiny[@]}"
refuses '--replan 9:pp,21:dp: 21:dp: the run ends with step 20' train --data text --steps 20 --replan 9:pp,21:dp "${tiny[@]}"
refuses '--slow 21:0@0.5|ends with step 20' train --data text --steps 20 --slow 21:0@0.5 "${tiny[@]}"
refuses '--slow|2:1@7|0.001' train --data text --devices cpu:1,cpu:1 --slow 2:1@7 "${tiny[@]}"
accepts 'the same run beside a link that becomes slow' train --data text --steps 20 --hash --quiet --devices cpu:1,cpu:1 --plan pp --links 0-1:1us \
    --slow 8:1-0:2ms:1G,15:0-1:0 "${tiny[@]}"
report "$([ "$first" = "$(grep '^weights' out)" ]; echo $?)" 'has the same hash' "$first" "$(cat out)"
refuses '--slow|2:0-1:5ms|no such link' train --data text --devices cpu:1,cpu:1 --slow 2:0-1:5ms "${tiny[@]}"
refuses '--adapt: has no effect with one rank' train --data text --devices cpu:1 --adapt "${tiny[@]}"
refuses '--adapt -1: not a number' train --data text --devices cpu:1,cpu:1 --adapt -1 "${tiny[@]}"
# ---- advice ----
refuses '--scaling|2= comes twice' advise --scaling 1=1:4,2=0.9:4,2=0.8:4 --cut 2=1.4
refuses '--scaling|1=inf:4' advise --scaling 1=inf:4 --cut 2=1.4
refuses '--cut inf=1.4' advise --scaling 1=1:4 --cut inf=1.4
refuses '--cut: M=S is needed' advise --scaling 1=1:4
refuses '--scaling|2=: numbers of devices begin with 1 and ascend' advise --scaling 2=0.9:4,1=1:4 --cut 2=1.4
refuses '--workers: has no effect with --scaling' advise --scaling 1=1:4 --cut 2=1.4 --workers 2
accepts 'measured efficiencies have many digits' advise --scaling 1=1:4,2=0.83333333333333:4.25000000001 --cut 2=1.4
# on 2 devices two halves are faster than two copies; of 3 nothing is known
advise=$("$programs/advise" --scaling 1=1:4,2=0.6:4,3=0.5:4 --cut 2=1.4 --json 2>&1)
report "$([ "$advise" = '{"cut":2,"from_devices":2}' ]; echo $?)" 'what is not known says nothing against the cut' "$advise"
accepts 'a profile to advise from' train --data text --steps 0 --save-profile advice.json --devices cpu:1 --quiet "${tiny[@]}"
for length in '' '--length 16' '--length 8'; do "$programs/advise" --profile advice.json --json $length > "advice$length" 2>&1; done
report "$(cmp -s advice 'advice--length 16' && ! cmp -s advice 'advice--length 8'; echo $?)" "sequences are as long as the model's context" "$(cat advice advice-*)"
refuses '--cut: has no effect without --scaling' advise --profile advice.json --cut 2=1.4
refuses '--workers 1,2,zero: zero: expected numbers from 1 to 64' advise --profile advice.json --json --workers 1,2,zero # and no half of the JSON
# Three units, 4 micro-batches: the first two take 8 s each a micro-batch, the third 1 s, and 30 s more for its parameters to go between four workers,
# 20 between two; its input takes 1 s each way. One worker: 68 s. On 4, 4 and 1 the step is 8 + 8 + 4 + 6 s and 92 of devices, on 4, 1 and 1 44 and 68.
cat > byhand.json <<'END'
{"hetrain_profile": 1, "model": "by hand", "granule": 1,
 "bytes": {"weight": 4, "gradient": 8, "state": 8, "reduce": 8, "gather": 8},
 "kinds": [{"name": "embed"}, {"name": "mlp"}, {"name": "head", "input": 40, "loss": true}], "units": ["embed", "mlp", "head"],
 "blocks": [{"elements": 1, "units": [0], "frozen": true}, {"elements": 1, "units": [1], "frozen": true}, {"elements": 100, "units": [2]}],
 "devices": [{"name": "d", "alone": {"embed": {"forward": [8, 0, 0]}, "mlp": {"forward": [8, 0, 0]}, "head": {"backward": [1, 0, 0]}}}],
 "links": [{"name": "wire", "latency": 0, "bandwidth": 40}]}
END
refuses '--device d@1e-9: expected NAME[@SPEED][/SIZE], a speed from 1e-6 to 1000' advise --profile byhand.json --device d@1e-9
bursts() { # bursts LIMIT WORKERS SECONDS DEVICE_TIME
    local got
    got=$("$programs/advise" --profile byhand.json --workers 4,1,2 --micro-batches 4 --length 1 --burst "$1" --json |
        sed 's/{"begin":[0-9]*,"end":\([0-9]*\),"workers":\([0-9]*\)}/\1:\2/g; s/^{"units":\[\(.*\)\],"formula":\([^,]*\),"device_time":\([^,]*\),.*/\1 \2 \3/')
    report "$([ "$got" = "$2 $3 $4" ]; echo $?)" "workers of each unit, $1" "got $got, expected $2 $3 $4"
}
bursts 1.01 1:4,3:1 44 1
bursts 1.12 1:4,2:2,3:1 32 1.11764706
bursts 1.36 2:4,3:1 26 1.35294118
# Data parallelism computes 68, 34 and 17 s a worker, in steps of 68, 34 + 20 and 17 + 30 s: with 100 W computing and 20 W waiting 68 x 100,
# 2 (34 x 100 + 20 x 20) and 4 (17 x 100 + 30 x 20) J for 4 tokens; with 100 W all the time 4 x 47 x 100 J.
energy() { # energy WATTS JOULES TOKENS_PER_JOULE...: of 1, 2 and 4 workers
    local got
    got=$("$programs/advise" --profile byhand.json --workers 1,2,4 --micro-batches 4 --length 1 --watts "$1" --json | grep -o '"joules":[^}]*' |
        tr -d '"a-z_:' | tr ',\n' '  ')
    report "$([ "$got" = "${*:2} " ]; echo $?)" "energy of a step, $1 W" "got $got, expected ${*:2}"
}
energy 100,20 6800 0.000588235294 7600 0.000526315789 9200 0.000434782609
energy 100 6800 0.000588235294 10800 0.00037037037 18800 0.000212765957
accepts 'as a table' advise --profile byhand.json --workers 4 --micro-batches 4 --length 1 --watts 100,20
report "$(grep -q '^      4  47000.000 .* 9200  *0.000434783$' out && grep -q '^joules  *sum over workers of 100 W x .* 20 W x' out; echo $?)" \
    'with the formula' "$(cat out)"
accepts 'and without watts' advise --profile byhand.json --workers 4 --micro-batches 4 --length 1
report "$(! grep -q joule out; echo $?)" 'no energy' "$(cat out)"
for watts in 0 -1 x nan , 100, 100,0 100,-20 100,20,3 1.00000000000000000000000000000000x; do
    refuses "--watts $watts: expected W or W,IDLE above 0" advise --profile byhand.json --json --watts "$watts"
done
refuses '--watts: has no effect with --burst' advise --profile byhand.json --burst 2 --watts 100
refuses '--watts: has no effect with --scaling' advise --scaling 1=1:4 --cut 2=1.4 --watts 100
refuses '--micro-batches 6: no multiple of 4 workers' advise --profile byhand.json --workers 1,4 --micro-batches 6 --burst 2
refuses '--workers 1,3,4: 3 does not divide 4' advise --profile byhand.json --workers 1,3,4 --burst 2
refuses '--workers 2,4: 1 must be among them' advise --profile byhand.json --workers 2,4 --burst 2
sed 's/\[8, 0, 0\]/[0, 0, 0]/g; s/\[1, 0, 0\]/[0, 0, 0]/' byhand.json > timeless.json
refuses 'timeless.json: its units take no time' advise --profile timeless.json --workers 1,2 --burst 2
refuses '--burst 0.5' advise --profile byhand.json --burst 0.5
# a device that takes 7 tokens: 3 sequences of 2, whatever its memory
sed 's/{"name": "d", /{"name": "d", "max_tokens": 7, /' byhand.json > small.json
advise=$("$programs/advise" --profile small.json --device d/1T --workers 1 --sequences 1 --length 2 --micro-batches 1 --json 2>&1)
report "$(case $advise in '{"largest_micro_batch":3,'*) echo 0 ;; *) echo 1 ;; esac)" 'the largest micro-batch is one that the device takes' "$advise"
refuses '--out: has no effect without --burst' advise --profile byhand.json --out plan.json
# ---- power and clocks ----
mkdir -p meter/sys/class/powercap/intel-rapl:0 meter/proc
printf 'package-0\n' > meter/sys/class/powercap/intel-rapl:0/name
printf '1000000\n' > meter/sys/class/powercap/intel-rapl:0/energy_uj
printf 'cpu MHz\t\t: 2400.125\ncpu MHz\t\t: 1800\n' > meter/proc/cpuinfo
accepts 'the same run that reads energy and clocks' train --data text --steps 20 --hash --quiet --devices cpu:1 --power meter --log meter.jsonl "${tiny[@]}"
report "$([ "$first" = "$(grep '^weights' out)" ] && [ "$(grep -c '"watts":0,"tokens_per_joule":null,"mhz":\[2400.1\]' meter.jsonl)" = 20 ]; echo $?)" 'has the same hash, and logs them' "$(tail -n 1 meter.jsonl)"
report "$([ "$(cat meter/sys/class/powercap/intel-rapl:0/energy_uj)" = 1000000 ]; echo $?)" 'and leaves the counter alone'
rm -r meter/sys
accepts 'the same run where there are clocks alone' train --data text --steps 2 --quiet --devices cpu:2 --power meter --log meter.jsonl "${tiny[@]}"
report "$(grep -q 'no watts.*intel-rapl' err && ! grep -q 'watts\|joule' meter.jsonl && grep -q '"mhz":\[2100.1\]' meter.jsonl; echo $?)" 'says so, and logs the mean of two' "$(cat err)" "$(tail -n 1 meter.jsonl)"
refuses '--power directory|intel-rapl|No such file|cpuinfo' train --data text --power directory --log meter.jsonl "${tiny[@]}"
refuses '--power: has no effect without --out, --log or --adapt' train --data text --power meter "${tiny[@]}"

refuses '--momentum|without --optimizer muon' train --data text --momentum 0.9 "${tiny[@]}"
refuses '--outer-lr|without --islands' train --data text --outer-lr 0.5 "${tiny[@]}"
refuses '--clip 0, no --spike and --on-bad-step stop' train --data text --updates 2 --micro-batches 4 --clip 1 "${tiny[@]}"
refuses '--plan pp: too many stages: 8 for 4 units' train --data text --schedule zb-v --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan pp "${tiny[@]}"
report "$([[ $line != *'did you mean'* ]]; echo $?)" 'and does not propose what was said' "$line"
refuses "--updates 3: of the step's 2 micro-batches none joins its update 3" train --data text --updates 3 --micro-batches 2 "${tiny[@]}"
apart=(--data text --steps 2 --quiet --devices cpu:1,cpu:1 --plan dp "${tiny[@]}") # each pipeline divides its own
refuses "--updates 4: of the step's 4 micro-batches none joins its update 2" train "${apart[@]}" --updates 4 --micro-batches 4
refuses "of the step's 3 micro-batches none joins its update 4" train "${apart[@]}" --schedule hogbatch --updates 4 --micro-batches 3
accepts 'pipelines that update in turn' train "${apart[@]}" --schedule hogbatch --updates 4 --micro-batches 4
refuses "of the step's 2 micro-batches none joins its update 2" train "${apart[@]}" --updates 2 --micro-batches 4 --replan 2x4:dp
accepts 'as many micro-batches as updates in one of two pipelines' train "${apart[@]}" --updates 2 --micro-batches 3
refuses '2bw|--updates is 1' train --data text --schedule 2bw --micro-batches 4 "${tiny[@]}"
refuses '--adapt-shares|without --adapt' train --data text --devices cpu:1,cpu:1 --adapt-shares "${tiny[@]}"
refuses 'one update a step, this run makes 2|--adapt-shares' train --data text --devices cpu:1,cpu:1 --updates 2 --micro-batches 4 --adapt "${tiny[@]}"
for loaders in 0 5; do
    accepts "the same run with $loaders threads that read ahead" train --data text --steps 20 --hash --quiet --devices cpu:1 --loaders $loaders --log loaded.jsonl "${tiny[@]}"
    report "$([ "$first" = "$(grep '^weights' out)" ] && [ "$(grep -c '"data_wait_share":' loaded.jsonl)" = 20 ]; echo $?)" 'has the same hash, and logs what it waited' "$(cat out)"
done
accepts 'a batch that grows with the ranks' train --data text --steps 2 --hash --devices cpu:1,cpu:1,cpu:1 --scaling weak --micro-batches 2 --log weak.jsonl "${tiny[@]}"
report "$(grep -q '^scaling  weak: 6 micro-batches a step in place of 2, for 3 ranks$' out && grep -q '"weak_scaling_from_micro_batches":2' weak.jsonl; echo $?)" 'says so' "$(cat out)"
weak=$(grep '^weights' out)
accepts 'is that of one rank with so many' train --data text --steps 2 --hash --devices cpu:1 --micro-batches 6 "${tiny[@]}"
report "$([ "$weak" = "$(grep '^weights' out)" ]; echo $?)" 'has the same hash' "$weak" "$(cat out)"
refuses '--scaling weak|65536' train --data text --devices cpu:1,cpu:1 --scaling weak --micro-batches 40000 "${tiny[@]}"
refuses '--slow|2:2@1|below 2' train --data text --devices cpu:1,cpu:1 --slow 2:2@1 "${tiny[@]}"
accepts 'the same run on the best plan for a fast and a slow rank' train --data text --steps 20 --hash --devices cpu:1,cpu:1@0.4 --granule 1 --plan auto \
    --save-profile profile.json --save-plan auto.json "${tiny[@]}"
best=$(grep '^weights' out)
report "$(grep -q 'no plan can take less' out && grep -q '^profile ' out && [ -s auto.json ] && [ -s profile.json ]; echo $?)" 'it is shown and saved' "$(cat out)"
accepts 'the same run that adapts, with a rank that takes one sequence' train --data text --steps 20 --hash --quiet --devices cpu:1,cpu:1@0.4#16 --granule 1 --plan auto --profile profile.json --plan-seconds 1 \
    --adapt --slow 6:0@0.2 --log adapted.jsonl "${tiny[@]}"
report "$([ "$best" = "$(grep '^weights' out)" ]; echo $?)" 'has the same hash' "$best" "$(cat out)"
accepts 'the same run on one rank' train --data text --steps 20 --hash --quiet --devices cpu:1 --granule 1 "${tiny[@]}"
report "$([ "$best" = "$(grep '^weights' out)" ]; echo $?)" 'has the same hash' "$best" "$(cat out)"
accepts 'the same run with a checkpoint' train --data text --out half --steps 20 --checkpoint-every 8 --keep 3 --hash "${tiny[@]}"
rm -rf from; mkdir from; cp -r half/step-*8 from/ 2> /dev/null
accepts 'resumed at step 8' train --data text --resume from --hash --quiet
report "$([ "$first" = "$(grep '^weights' out)" ]; echo $?)" 'ends with the same hash' "$first" "$(cat out)"

refuses '--resume|nothere' train --data text --resume nothere
refuses '--resume directory: holds no checkpoint' train --data text --resume directory
accepts 'resumed on two other ranks' train --data text --resume from --hash --quiet --devices cpu:1,cpu:1
report "$([ "$first" = "$(grep '^weights' out)" ]; echo $?)" 'ends with the same hash' "$first" "$(cat out)"
refuses '--model' train --data text --resume from --model gpt2:tiny
refuses '--val text: the saved run has none and holds out|--force-resume' train --data text --resume from --val text
accepts 'trained on what was held out' train --data text --resume from --val text --quiet --force-resume
accepts 'late gradients with feedback' train --data text --steps 4 --hash --quiet --devices cpu:1,cpu:1 --plan pp --schedule 2bw --updates 4 --staleness 1 \
    --micro-batches 8 --checkpoint-every 2 --out late "${tiny[@]}"
first=$(grep '^weights' out)
late=(--data text --steps 4 --hash --quiet --devices cpu:1 --updates 4 --staleness 1 --micro-batches 8 "${tiny[@]}")
accepts 'as much as is said to an update late by one' train "${late[@]}" --feedback 1 --feedback-change 1
report "$([ "$first" = "$(grep '^weights' out)" ]; echo $?)" "is what 2bw takes by itself" "$first" "$(cat out)"
accepts 'an update late by one' train "${late[@]}"
alone=$(grep '^weights' out)
accepts '2bw without feedback' train "${late[@]}" --devices cpu:1,cpu:1 --plan pp --schedule 2bw --feedback 0
report "$([ "$alone" = "$(grep '^weights' out)" ] && [ "$alone" != "$first" ]; echo $?)" 'is that alone' "$alone" "$(cat out)"
rm -rf from; mkdir from; cp -r late/step-*2 from/ 2> /dev/null
accepts 'resumed on one rank' train --data text --resume from --hash --quiet --devices cpu:1
report "$([ "$first" = "$(grep '^weights' out)" ]; echo $?)" 'ends with the same hash' "$first" "$(cat out)"
refuses '--feedback 0.5|the saved run has 1' train --data text --resume from --feedback 0.5
refuses '--experts 4,2: the saved run has none' train --data text --resume from --experts 4,2
refuses '--shard-gradients: --shard says something else' train --data text --shard weights --shard-gradients "${tiny[@]}"
pair=(--devices cpu:1,cpu:1 --quiet)
accepts 'a plan that divides weights' train --data text --steps 2 --micro-batches 2 --shard weights --save-plan divided.json "${pair[@]}" "${tiny[@]}"
accepts 'a run that follows it' train --data text --steps 2 --micro-batches 2 --schedule-lr constant --plan divided.json --out divided "${pair[@]}" "${tiny[@]}"
accepts 'and goes on with it' train --resume divided --steps 3 --plan divided.json --save-plan resumed.json "${pair[@]}"
same 'divides them still' divided.json resumed.json
accepts 'and with gradients divided' train --resume divided --steps 4 --plan dp --shard-gradients --save-plan resumed.json "${pair[@]}"
report "$(grep -q '"shard": "gradients"' resumed.json; echo $?)" 'as the plan says' "$(cat resumed.json)"
accepts 'and with weights divided' train --resume divided --steps 5 --plan dp --shard weights --save-plan resumed.json "${pair[@]}"
same 'as the option says' divided.json resumed.json
refuses 'adamw predicts none with feedback' train --data text --steps 1 --devices cpu:1,cpu:1 --plan pp --schedule xpipe --updates 4 --micro-batches 8 --feedback 1 \
    --model llama:layers=1,width=32,heads=2,context=16 --sequences 2 --granule 1
refuses 'predicts no block of several ranks' train --data text --steps 1 --devices cpu:1,cpu:1 --plan pp --schedule xpipe --updates 4 --micro-batches 4 \
    --model gpt2:layers=1,width=32,heads=2,context=16 --sequences 2 --granule 1
cp -r run damaged
printf 'X' | dd of=damaged/step-00000020/model.safetensors bs=1 seek=3000 conv=notrunc 2> /dev/null
refuses '--resume|model.safetensors' train --data text --resume damaged
head -c 1000 run/model.safetensors > damaged/model.safetensors
refuses '--init|model.safetensors' train --data text --init damaged "${tiny[@]:2}"
refuses '--init|nothere' train --data text --init nothere
accepts 'starting from weights' train --data text --init run --steps 2 --quiet --sequences 2
report "$([ ! -s err ]; echo $?)" 'says nothing' "$(cat err)"
accepts 'a model of more than bytes' train --data text --steps 1 --quiet --out wide --model gpt2:layers=1,width=32,heads=2,context=16,vocab=300 --sequences 2
accepts 'bytes from its weights' train --data text --init wide --steps 2 --quiet --sequences 2
report "$(grep -q '^train: warning: --data text: its bytes are the tokens.*vocabulary is 300 (--tokenizer FILE)$' err; echo $?)" 'are said to be bytes' "$(cat err)"
mkdir wide/tokenizer.json
refuses '--init wide/tokenizer.json: is a directory' train --data text --init wide --steps 2

# ---- ranks without work are named, with what would feed them; nothing changes for them ----
warns() { # warns WORDS ARGUMENTS...   WORDS: what a line on standard error must hold, separated by |; '': there is no warning
    local words=$1 word bad= IFS=' '
    shift
    "$programs/train" --data text --steps 2 --hash --quiet --model gpt2:layers=2,width=32,heads=2,context=16 "$@" > out 2> err < /dev/null || bad='failed'
    [ -z "$words" ] && [ -s err ] && bad="$bad; warns"
    [ -n "$words" ] && [ "$(grep -c '^train: warning: ' err)" = 0 ] && bad="$bad; no warning"
    IFS='|'
    for word in $words; do grep -qF -- "$word" err || bad="$bad; does not name $word"; done
    report "$([ -z "$bad" ]; echo $?)" "warns: ${words:-no}" "$*" "$bad" "$(cat err)"
}
warns '' --devices cpu:1
alone=$(cat out)
warns 'rank 1 of 2 gets no micro-batch|the step has 1|--micro-batches 2 --sequences 4 feeds all, with as many sequences a step' --devices cpu:1,cpu:1
report "$([ "$alone" = "$(cat out)" ]; echo $?)" 'a rank without work changes no bit' "$alone" "$(cat out)"
warns '' --devices cpu:1,cpu:1 --micro-batches 2 --sequences 4 --granule 4
warns 'ranks 1 to 3 of 4 get no|--micro-batches 4 --sequences 2' --devices cpu:1,cpu:1,cpu:1,cpu:1
warns 'pipeline 0 has fewer micro-batches than stages|--micro-batches 3 feeds all' --devices cpu:1,cpu:1,cpu:1 --plan pp --sequences 1 --micro-batches 1
warns 'pipelines 0 to 1 have fewer|the step has 2|--micro-batches 4 --sequences 4' --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan dp2xpp2 --micro-batches 2
warns '' --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan dp2xpp2 --micro-batches 4
printf '{"pipelines":[{"stages":[{"rank":1,"units":[0,6]}]}]}' > second.json
warns 'rank 0 of 2 gets no micro-batch|the plan has none for it' --devices cpu:1,cpu:1 --plan second.json
printf '{"pipelines":[{"stages":[{"rank":0,"units":[0,6]}]}],"keepers":[1],"state_shares":[0,1]}' > kept.json
warns '' --devices cpu:1,cpu:1 --plan kept.json
warns '--granule 1 or more --micro-batches' --devices cpu:1,cpu:1@0.1 --plan auto --plan-seconds 0.1
warns 'rank 1 of 2 gets no|the step has 1; fewer granules a micro-batch (STEPxN of --replan' --devices cpu:1,cpu:1 --micro-batches 2 --replan 2x2:dp
"$programs/train" --data text --steps 2 --out idle --model gpt2:layers=2,width=32,heads=2,context=16 --quiet
"$programs/train" --data text --resume idle --quiet --devices cpu:1,cpu:1 > out 2> err
report "$([ $? = 0 ] && grep -q 'warning: rank 1 of 2 gets no micro-batch.*a resumed run keeps its micro-batches' err; echo $?)" 'also after a resume' "$(cat err)"
# Commands of README and docs/ for several devices, on small processors here: none leaves a rank without work
sed -n '/^```/,/^```/p' "${pages[@]}" | grep -E '^T=|^(build/train|mpirun|torchrun).*--devices' | grep -vE -- '--resume|--plan auto' | sed 's/  *#.*//' > commands
report "$([ "$(grep -vc '^T=' commands)" -ge 17 ]; echo $?)" 'README and docs have commands for several devices' "$(cat commands)"
while read -r command; do
    if [[ $command = T=* ]]; then eval "$command"; continue; fi
    options=${command#*build/train* }
    options=${options//\$T/$T}
    devices=$(sed -n 's/.*--devices \([^ ]*\).*/\1/p' <<< "$options")
    processes=$(sed -n 's/.*mpirun -n \([0-9]*\).*/\1/p' <<< "$command")
    [[ $command = torchrun* ]] && processes=$(sed -n 's/.*--nnodes \([0-9]*\) --nproc-per-node \([0-9]*\).*/\1 \2/p; s/.*--nnodes \([0-9]*\) --node-rank.*/\1 1/p' <<< "$command" | awk '{ print $1 * $2 }')
    ranks=$(tr ',' '\n' <<< "$devices" | wc -l)
    [ "$ranks" -lt "${processes:-1}" ] && ranks=$processes
    list=cpu:1
    for _ in $(seq 2 "$ranks"); do list+=,cpu:1; done
    options=$(sed -E 's/--(data|devices|dtype|world) [^ ]*//g; s/width=128,/width=32,/; s/(context=|--length )2048/\1256/g; s/--steps 600/--steps 60/' <<< "$options") # small models, too
    [[ $options = *--islands* ]] || options=$(sed -E 's/--steps [^ ]*//' <<< "$options") # rounds of islands have so many
    eval "set -- $options"
    [ "$ranks" = 1 ] || warns '' --devices "$list" --model llama:layers=4,width=32,heads=2,context=32 "$@"
done < commands
# README's three commands, as they stand: one hash, and the one that README names
(cd "$root" && sed -n '/^## The same bits$/,/^## /p' README.md | sed -n '/^```/,/^```/p' | sed "/^\`\`\`/d; s|^build|$programs|" > "$work/commands" && bash "$work/commands") > out 2> err
report "$([ "$(wc -l < out)" = 4 ] && [ "$(sort -u out)" = "$(grep -o 'weights [0-9a-f]\{16\}' "$root/README.md")" ]; echo $?)" "README's layouts end with README's hash" "$(cat out err)"

# ---- a plan is simulated again from files, to the same number ----
shape=(--model llama:layers=2,width=32,heads=2,context=32 --sequences 3 --micro-batches 4 --granule 1)
again() { # again NAME ARGUMENTS...: trains, and runs the command that it prints elsewhere
    local name=$1 said got command
    shift
    rm -rf 'saved plans'
    mkdir 'saved plans'
    "$programs/train" --data text --steps 1 "${shape[@]}" --plan auto --plan-seconds "${seconds:-1}" --save-plan 'saved plans/best.json' "$@" > out 2> err < /dev/null
    said=$(sed -n 's/^.* on --devices: \([0-9.]* ms\) a step, simulated.*/\1/p' out)
    command=$(sed -n 's/^again *//p' out)
    got=$(mkdir -p moved && cd moved && rm -rf 'saved plans' && mv '../saved plans' . && [ -e ../given.json ] && cp ../given.json . ; eval "$command" 2>&1)
    report "$([ -n "$said" ] && case $got in *"step"*": $said, "*) true ;; *) false ;; esac; echo $?)" "$name" "train says $said" "$command" "$(head -n 3 <<< "$got")" "$(cat err)"
}
again 'two ranks' --devices cpu:1,cpu:1@0.33
again 'links that do not follow the order of ranks' --devices cpu:1,cpu:1,cpu:1@0.5,cpu:1 --links 0-1:5ms,0-3:5ms:1M,1-2:5ms,2-3:5ms
report "$(grep -q '"ranks":' 'moved/saved plans/best.cluster.json' && grep -q '"wires":true' 'moved/saved plans/best.cluster.json' \
    && [ -s 'moved/saved plans/best.profile.json' ]; echo $?)" 'whose cluster says which ranks its devices are, and that any two have a wire' \
    "$(cat 'moved/saved plans/best.cluster.json')"
report "$(grep -q '"step": {"granules": 12, "sequences": 1, "length": 32, "micro_batch": [0-9]*}' 'moved/saved plans/best.json'; echo $?)" 'the plan says for which step it is' \
    "$(tail -n 3 'moved/saved plans/best.json')"
cp 'moved/saved plans/best.profile.json' given.json
again 'a profile that was given, with memory caps' --devices cpu:1/40M,cpu:1/40M --profile given.json
# The two commands of docs/planning.md, on a small model: what the first prints last is the second, and both say the same number
small=llama:layers=4,width=32,heads=2,context=32
mkdir -p example/build
ln -sf "$programs"/{train,plan} example/build/
mkdir -p example/tests/data
cp text example/tests/data/shakespeare.txt
(cd example && sed -n '/^build\/train .*--plan auto \\$/,/^```/p' "$root/docs/planning.md" | sed '/^```/d; /--plan auto/s/$/\n--model MODEL \\/' | sed "s/MODEL/$small/; s/llama:layers=4,width=192,heads=6,context=128/$small/" > commands
    bash commands) > out 2> err
said=$(sed -n 's/^.* on --devices: \([0-9.]* ms\) a step, simulated.*/\1/p' out)
report "$([ "$(grep -c build example/commands)" = 2 ] && [ -n "$said" ] && grep -q "tokens a step.*: $said, " out && [ -s example/predicted.svg ] &&
    grep -qF "again    $(sed -n 's/ \\$//; s/^\(build\/plan .*best.json\).*/\1/p' example/commands)" out; echo $?)" 'the example of a plan in docs/planning.md' "$(cat example/commands err)" "$(grep 'again\|simulated:\|tokens a step' out)"
printf '{"pipelines":[{"stages":[{"rank":0,"units":[0,6]}]}],"step":{"granules":12,"sequences":1,"length":32,"micro_batch":5}}' > fives.json
accepts 'a plan with its own micro-batches' train --data text --steps 1 "${shape[@]}" --plan fives.json
report "$(grep -q '^step     4 x 3 sequences of 32 tokens, in 3 micro-batches of 5 granules, the last of 2; f32' out && [ ! -s err ]; echo $?)" 'they are shown' "$(cat out err)"
accepts 'the same on another step' train --data text --steps 1 "${shape[@]}" --sequences 2 --plan fives.json
report "$(grep -q 'warning: --plan fives.json was made for a step of 12 granules of 1 x 32 tokens; this one has 8 of 1 x 32' err; echo $?)" 'is said' "$(cat err)"
for other in 'model "llama:layers=2,width=32|not of --model|--model llama:layers=2,width=48,heads=2,context=32' 'dtype f32, this is bf16|--dtype bf16' \
    'reduce exact, this is fast|--reduce fast' 'granules of 32 tokens, here they have 96|--granule 3' '6 units|has 8|--model llama:layers=3,width=32,heads=2,context=32'; do
    # shellcheck disable=SC2086
    refuses "--profile given.json|${other%|*}" train --data text --steps 1 "${shape[@]}" --plan auto --profile given.json ${other##*|}
done
report "$("$programs/plan" --profile given.json --model llama:layers=2,width=48,heads=2,context=32 --micro-batches 4 --ranks 1 2>&1 | grep -q 'given.json: is of model "llama.*not of --model llama'; echo $?)" 'plan refuses it too'

# Times under which lists made for them are the best: of two ranks with a slow link
shape=(--model llama:layers=3,width=32,heads=2,context=32 "${shape[@]:2}")
two=(--devices cpu:1,cpu:1 --links 0-1:1ms:5M --profile given.json)
accepts 'a profile of one rank' train --data text --steps 0 --quiet --devices cpu:1 --save-profile measured.json "${shape[@]}"
cost() { sed -E "s/^( *\"$1\": \{\"forward\": ).*/\1[0, $2, 0], \"backward\": [0, $3, 0], \"input\": [0, $4, 0], \"weight\": [0, $5, 0], \"recompute\": [0, $2, 0]},/"; }
cost embed 1e-6 1e-6 0 1e-6 < measured.json | cost attention 2e-5 4e-5 2e-5 2e-5 | cost mlp 1e-5 3e-5 1e-5 2e-5 > given.json
seconds=5 # it ends before, but for a machine that is busy
again 'lists made for its times' "${two[@]}" --hash
hash=$(grep '^weights' out)
accepts 'one rank' train --data text --steps 1 --hash --quiet "${shape[@]}"
report "$(grep -q '"schedule": "timed"' 'moved/saved plans/best.json' && [ "$hash" = "$(grep '^weights' out)" ]; echo $?)" \
    'they are found, and end with its hash' "$hash" "$(cat out 'moved/saved plans/best.json')"
accepts 'the saved plan' train --data text --steps 1 --hash "${shape[@]}" "${two[@]}" --plan 'moved/saved plans/best.json'
report "$([ "$hash" = "$(grep '^weights' out)" ] && grep -q '^plan .*schedule timed' out; echo $?)" 'too' "$hash" "$(cat out)"

# ---- options that would be ignored ----
refuses '--links|one rank' train --data text --links 0-1:1ms "${tiny[@]}"
refuses '--profile|--save-profile' train --data text --profile x --save-profile y --plan auto "${tiny[@]}"
refuses '--profile|--plan auto, --schedule timed or --adapt' train --data text --profile x "${tiny[@]}"
refuses '--plan-seconds|--plan auto' train --data text --plan-seconds 3 "${tiny[@]}"
refuses '--slice-tokens|without --slices' train --data text --slice-tokens 20 "${tiny[@]}"
refuses '--slice-tokens|without --slices' train --data text --slice-tokens 20 --devices cpu:1,cpu:1 --plan pp "${tiny[@]}"
refuses '--allow-nonfinite: has no effect without --init or --resume' train --data text --allow-nonfinite "${tiny[@]}"
refuses '--local-loss: has no effect' train --data text --local-loss 3 "${tiny[@]}"
refuses '--recompute|--plan auto' train --data text --recompute --plan auto "${tiny[@]}"
refuses '--slices 2|gap|has 1' train --data text --slices 2 --plan one_gap.json "${tiny[@]}"
refuses '--keep|--out' train --data text --keep 3 "${tiny[@]}"
refuses '--save-dtype|--export' train --data text --save-dtype f16 "${tiny[@]}"
refuses '--weights|--lora' train --data text --weights bf16 "${tiny[@]}"
refuses '--top-k|--temperature 0' generate --init run --temperature 0 --top-k 5
refuses '--links|one rank' generate --init run --links 0-1:1ms
refuses '--questions|--choices' evaluate --init run --data text --questions 3
refuses '--stride|--choices' evaluate --init run --choices text --stride 3
refuses '--sequences|windows that overlap' evaluate --init run --data text --stride 3 --sequences 2
refuses 'falls to pipeline 1|of rank 1 there is 8' evaluate --init run --data text --devices cpu:1,cpu:1#8 --plan dp
refuses '--devices cpu:1#8: they hold 8 tokens|take 16' generate --init run --devices cpu:1#8 --tokens 40
refuses '--devices cpu:1,cpu:1#8: they hold 8 tokens' generate --init run --devices cpu:1,cpu:1#8 --plan hp2 --tokens 40
accepts 'generation on the device that holds enough' generate --init run --devices cpu:1,cpu:1#8 --plan dp --tokens 40
accepts 'a bidirectional model' train --data text --steps 1 --quiet --evaluate-every 0 --out both --model llama:layers=1,width=16,heads=2,context=16,causal=no
accepts 'which generates' generate --init both --tokens 5 --prompt text
cp out generated
accepts 'without a cache' generate --init both --tokens 5 --prompt text --no-cache
report "$(cmp -s generated out; echo $?)" 'the same text' "$(cat generated)" "$(cat out)"
refuses '--choices pipe: a pipe or device, not a file' evaluate --init run --choices pipe
refuses '--name|--gguf' convert --init run --out other --name x
refuses '--shard|--out' convert --init run --gguf x.gguf --shard 1000
refuses '--split|--train' tokenize --tokenizer x --text text --out y --split qwen2
refuses '--format|--decode' tokenize --tokenizer x --decode text --format nanogpt
refuses '--wrap|--train' tokenize --tokenizer x --text text --train 300 --wrap yes
refuses '--backward: has no effect with --plan auto' train --data text --plan auto --devices cpu:1,cpu:1 --backward split "${tiny[@]}"
accepts 'a plan that divides less than it may' train --data text --steps 1 --quiet --plan auto --plan-seconds 0.2 --shard gradients --devices cpu:1,cpu:1@0.5/600K \
    --model gpt2:layers=2,width=32,heads=2,context=32 --sequences 4 --micro-batches 2 --granule 1
refuses '--plan|--steps 0' train --data text --steps 0 --save-profile p.json --plan dp "${tiny[@]}"
accepts 'a profile and a plan, and no step' train --data text --steps 0 --save-profile p.json --plan auto --plan-seconds 0.2 "${tiny[@]}"
report "$(grep -q 'simulated:' out && [ -s p.json ]; echo $?)" 'are measured and shown' "$(cat out)"
refuses '--out|--steps 0' train --data text --steps 0 --save-profile p.json --out x "${tiny[@]}"
accepts 'a model with experts on one rank' train --data text --steps 2 --hash --quiet --devices cpu:1 --granule 1 --experts 4,2 "${tiny[@]}"
routed=$(grep '^weights' out)
accepts 'on the best plan for two' train --data text --steps 2 --hash --devices cpu:1,cpu:1 --granule 1 --experts 4,2 --plan auto --plan-seconds 0.5 --save-plan moe.json "${tiny[@]}"
report "$([ "$routed" = "$(grep '^weights' out)" ] && grep -q '^again .* --experts 4,2 --profile' out; echo $?)" 'has the same hash' "$routed" "$(cat out)"
accepts 'which plan simulates' plan "${tiny[@]:0:2}" --experts 4,2 --profile moe.profile.json --cluster moe.cluster.json --plan moe.json
refuses '--profile moe.profile.json|is of model' plan "${tiny[@]:0:2}" --profile moe.profile.json --cluster moe.cluster.json --plan moe.json
refuses '--experts|--model' plan --experts 4,2 --profile moe.profile.json --cluster moe.cluster.json --plan moe.json

# what --experts saved is read by its config.json: the same text and loss in any layout and from a copy, and trained on
for routed in qwen3:6,2,width=16 neox:4,2,hash,capacity=0.5,drop=probability; do
    accepts "experts of $routed are saved" train --data text --steps 8 --lr 0.01 --warmup 1 --quiet --evaluate-every 0 --out routed --overwrite --export alone \
        --model "${routed%%:*}:layers=2,width=32,heads=4,context=32" --experts "${routed#*:}"
    report "$(cmp -s routed/model.safetensors alone/model.safetensors; echo $?)" 'and exported'
    use=(generate --tokens 20 --prompt 'static int x' --seed 2)
    accepts 'and generate' "${use[@]}" --init routed
    cp out one
    for way in --no-cache '--devices cpu:1,cpu:1 --plan pp' '--devices cpu:1,cpu:1 --plan tp2'; do
        # shellcheck disable=SC2086
        accepts "and with $way" "${use[@]}" --init routed $way
        report "$(cmp -s one out; echo $?)" 'the same text' "$(cat one)" "$(cat out)"
    done
    accepts 'and in int8' "${use[@]}" --init routed --weights int8
    cp out narrow
    accepts 'on two ranks' "${use[@]}" --init routed --weights int8 --devices cpu:1,cpu:1 --plan tp2
    report "$(cmp -s narrow out; echo $?)" 'the same text' "$(cat narrow)" "$(cat out)"
    accepts 'and are copied' convert --init routed --out copied --overwrite
    report "$(cmp -s routed/model.safetensors copied/model.safetensors; echo $?)" 'byte by byte'
    accepts 'and the copy generates' "${use[@]}" --init copied
    report "$(cmp -s one out; echo $?)" 'the same text' "$(cat one)" "$(cat out)"
    accepts 'and they train on' train --data text --steps 2 --warmup 1 --quiet --evaluate-every 0 --hash --init routed
    cp out one
    accepts 'on two ranks' train --data text --steps 2 --warmup 1 --quiet --evaluate-every 0 --hash --init routed --devices cpu:1,cpu:1 --plan pp
    report "$(cmp -s one out; echo $?)" 'to the same weights' "$(cat one)" "$(cat out)"
done
accepts 'a loss of theirs' evaluate --init routed --data text --json
report "$(grep -q '"loss":[1-5][.]' out; echo $?)" 'is that of a model' "$(cat out)"
accepts 'they are shown' inspect routed
report "$(grep -q '^experts 4 of width 128, 2 used$' out; echo $?)" 'with their numbers' "$(head -n 2 out)"
for wrong in 'decoder_sparse_step": 1 decoder_sparse_step": 2 some layers' 'mlp_only_layers": \[\] mlp_only_layers": [0] some layers' \
    'num_experts": 4 num_experts": 3 no such tensor' 'num_experts": 4 num_experts": 600 at most 16 of 512' 'num_experts": 4 num_experts": "x" a number'; do
    read -r a b c d words <<< "$wrong"
    sed "s/$a $b/$c $d/" routed/config.json > copied/config.json
    refuses "--init|$words" generate --init copied
done

# gates that are not normalised stay so, and without num_experts_per_tok 8 are used, as transformers has it
few=(--data text --steps 4 --warmup 1 --sequences 2 --quiet --evaluate-every 0)
accepts 'nine experts' train "${few[@]}" --model qwen3:layers=1,width=32,heads=2,context=16 --experts 9,8,width=16 --out nine
mkdir gates
sed 's/"norm_topk_prob": true/"norm_topk_prob": false/; /"num_experts_per_tok"/d' nine/config.json > gates/config.json
other=(--init nine/model.safetensors --model gates/config.json)
accepts 'trained on with gates that are not normalised' train "${few[@]}" "${other[@]}" --checkpoint-every 2 --keep 9 --out kept --hash
whole=$(grep '^weights' out)
says() {
    grep -q '"norm_topk_prob": false' "$1" && grep -q '"num_experts_per_tok": 8' "$1"
    report $? "$1 says so" "$(grep -E 'norm_topk|per_tok' "$1")"
}
says kept/step-00000002/config.json
says kept/config.json
accepts 'resumed' train --data text --resume kept/step-00000002 --hash --quiet
report "$([ "$whole" = "$(grep '^weights' out)" ]; echo $?)" 'has the same hash' "$whole" "$(cat out)"
accepts 'without --model' train "${few[@]}" --init nine --hash
report "$([ "$whole" != "$(grep '^weights' out)" ]; echo $?)" 'has another' "$whole" "$(cat out)"
accepts 'generates' generate --tokens 10 --prompt line "${other[@]}"
cp out one
accepts 'is converted' convert "${other[@]}" --out converted
says converted/config.json
accepts 'which generates' generate --tokens 10 --prompt line --init converted
report "$(cmp -s one out; echo $?)" 'the same text' "$(cat one)" "$(cat out)"
accepts 'factors of it' train "${few[@]}" "${other[@]}" --lora 1 --out factors
accepts 'are merged' merge "${other[@]}" --adapter factors --out merged
says merged/config.json
accepts 'which generates' generate --tokens 10 --prompt line --init merged

# what transformers 5 writes of a Qwen3-MoE, or leaves out, is the same model: num_local_experts, no head_dim, no max_window_layers
loss_with() { # the loss of `nine` with a changed config.json
    sed "$1" nine/config.json > gates/config.json
    accepts "a loss with $1" evaluate --init nine/model.safetensors --model gates/config.json --data text --json
    loss=$(grep -o '"loss":[0-9.]*' out)
}
loss_with ''
same=$loss
for change in 's/"num_experts"/"num_local_experts"/' '/"head_dim"/d' '/"max_window_layers"/d'; do
    loss_with "$change"
    report "$([ -n "$same" ] && [ "$same" = "$loss" ]; echo $?)" "$change changes nothing" "$same" "$loss"
done
window='s/"use_sliding_window": false/"use_sliding_window": true/; s/"sliding_window": null/"sliding_window": 3/'
loss_with "$window"
slides=$loss
report "$([ "$same" != "$loss" ]; echo $?)" 'a window changes it' "$same" "$loss"
for change in '/"max_window_layers"/d' 's/"max_window_layers": 0/"max_window_layers": 28/'; do
    loss_with "$window; $change"
    report "$([ "$slides" = "$loss" ]; echo $?)" "it is every layer's, also with $change" "$slides" "$loss"
done
loss_with 's/"num_experts"/"num_local_experts"/; '"$window"'; /"max_window_layers"/d'
accepts 'such a model is converted' convert "${other[@]}" --out converted --overwrite
report "$(grep -q '"model_type": "qwen3_moe"' converted/config.json; echo $?)" 'to a Qwen3-MoE' "$(cat converted/config.json)"
accepts 'with a loss' evaluate --init converted --data text --json
report "$([ "$loss" = "$(grep -o '"loss":[0-9.]*' out)" ]; echo $?)" 'that stays' "$loss" "$(cat out)"

# a checkpoint without a model, whose checksums are right
if command -v python3 > /dev/null; then
    cp -r kept/step-00000002 hollow
    : > hollow/config.json
    python3 - << 'PY'
import json
M, P = 2**64 - 1, (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261)
def turned(x, by): return (x << by | x >> 64 - by) & M
def word(b): return int.from_bytes(b, "little")
def mixed(sum, w): return turned((sum + w * P[1]) & M, 31) * P[0] & M
def xxh64(b):
    n, at, v = len(b), 0, [P[0] + P[1] & M, P[1], 0, -P[0] & M]
    while at + 32 <= n:
        v = [mixed(v[k], word(b[at + 8 * k:at + 8 * k + 8])) for k in range(4)]
        at += 32
    h = sum(turned(v[k], (1, 7, 12, 18)[k]) for k in range(4)) & M if n >= 32 else P[4]
    for k in range(4 if n >= 32 else 0): h = ((h ^ mixed(0, v[k])) * P[0] + P[3]) & M
    h = h + n & M
    while at + 8 <= n: h, at = (turned(h ^ mixed(0, word(b[at:at + 8])), 27) * P[0] + P[3]) & M, at + 8
    if at + 4 <= n: h, at = (turned(h ^ word(b[at:at + 4]) * P[0] & M, 23) * P[1] + P[2]) & M, at + 4
    for one in b[at:]: h = turned(h ^ one * P[4] & M, 11) * P[0] & M
    h = (h ^ h >> 33) * P[1] & M
    h = (h ^ h >> 29) * P[2] & M
    return h ^ h >> 32
text = open("hollow/state.json", "rb").read()
body, sign = text.rsplit(b',\n"checksum":"', 1)
assert int(sign[:16], 16) == xxh64(body)
begin = body.index(b'"config.json":{')
end = body.index(b'}', begin)
body = body[:begin] + b'"config.json":{"size":0,"xxh64":[]' + body[end:]
open("hollow/state.json", "wb").write(body + b',\n"checksum":"%016x"}\n' % xxh64(body))
PY
    report $? 'the checksum of state.json is the XXH64 of what is before it'
    refuses '--resume hollow: byte 0' train --data text --resume hollow --out hollow2
else
    leave_out 'python3 is missing: an empty config.json with its checksum'
fi

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
