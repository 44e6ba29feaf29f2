#!/bin/bash
# What the programs write, and over what: files beside and renamed, behind links, into devices, pipes and fifos; standard output that cannot be written;
# directories that hold weights or runs already, and locks on them. Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
root=$PWD
programs=$PWD/${BUILD:-build}/checked
oracle=$PWD/tests/oracle/data
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
exec 5>&1
[ -c /dev/full ] || skip '/dev/full is missing'
# Who may write into /dev tries devices of his own: a program that is wrong would put a file in place of one.
dev=/dev
if [ -w /dev ]; then
    dev=$work/dev
    mkdir dev && ln -s /proc/self/fd/1 dev/stdout && mknod dev/null c 1 3 && mknod dev/zero c 1 5 && mknod dev/full c 1 7 && : > dev/null ||
        skip 'devices cannot be made here'
fi
head -c 20000 "$root/hetrain.h" > text
tiny=(--model gpt2:layers=1,width=16,heads=1,context=16 --sequences 2 --evaluate-every 0 --quiet --devices cpu:1)
run=(--data text "${tiny[@]}")

holds() { report "$([ "$2" = "$3" ]; echo $?)" "$1" "'$2', not '$3'"; } # holds NAME VALUE WANTED
# fails NAME WORDS COMMAND...: status 1 and one line on standard error with the words; standard output is the caller's
fails() {
    local name=$1 words=$2 status
    shift 2
    "$@" 2> err < /dev/null
    status=$?
    [ $status = 1 ] && [ "$(wc -l < err)" = 1 ] && grep -qF -- "$words" err
    report $? "$name" "$*" "status $status" "$(head -n 3 err)" >&5
}

# ---- standard output ----
"$programs/train" "${run[@]}" --steps 2 --out run --hash > /dev/null 2> err
report $? 'a run' "$(cat err)"
"$programs/train" "${run[@]}" --init run --lora 2 --steps 1 --out adapter > /dev/null 2> err
report $? 'and factors' "$(cat err)"
for program in train generate evaluate plan convert inspect tokenize merge het_bench; do
    fails "$program --help > /dev/full" "$program: standard output: No space left" "$programs/$program" --help > /dev/full
    fails "$program --help, standard output closed" "$program: standard output: Bad file descriptor" "$programs/$program" --help >&-
done
fails 'train > /dev/full' 'standard output' "$programs/train" "${run[@]}" --steps 2 --hash > /dev/full
fails 'generate > /dev/full' 'standard output' "$programs/generate" --init run --tokens 3 > /dev/full
fails 'generate, of tokens without end, > /dev/full' 'standard output' timeout 60 "$programs/generate" --init run --tokens 1000000 > /dev/full
fails 'evaluate > /dev/full' 'standard output' "$programs/evaluate" --init run --data text > /dev/full
fails 'plan > /dev/full' 'standard output' "$programs/plan" --simulate 1f1b --ranks 4 --micro-batches 8 --cost F=1,B=2 > /dev/full
fails 'inspect > /dev/full' 'standard output' "$programs/inspect" run > /dev/full
fails 'inspect --json > /dev/full' 'standard output' "$programs/inspect" run --json > /dev/full
fails 'convert > /dev/full' 'standard output' "$programs/convert" --init run --gguf x.gguf > /dev/full
fails 'merge > /dev/full' 'standard output' "$programs/merge" --init run --adapter adapter --out merged1 > /dev/full
fails 'tokenize > /dev/full' 'standard output' "$programs/tokenize" --train 260 --text text --tokenizer tok.json > /dev/full
"$programs/tokenize" --tokenizer tok.json --text text --out text.bin > /dev/null
fails 'tokenize --decode > /dev/full' 'standard output' "$programs/tokenize" --tokenizer tok.json --decode text.bin > /dev/full
fails 'het_bench > /dev/full' 'standard output' "$programs/het_bench" --what scaling > /dev/full
{ timeout 60 "$programs/generate" --init run --tokens 1000000 2> err; echo $? > status; } | head -c 1 > /dev/null
report "$([ "$(cat status)" = 1 ] && grep -q 'standard output' err; echo $?)" 'a pipe that is read no more ends generation' "$(cat status err)"
fails 'a run into a standard output that is closed' 'standard output' "$programs/train" --data text "${tiny[@]/--quiet/--hash}" --steps 3 --out closed >&-
report "$([ "$(grep -vc '^{' closed/log.jsonl)" = 0 ] && [ -s closed/model.safetensors ]; echo $?)" 'is saved, and nothing printed goes into its files' "$(head -c 300 closed/log.jsonl)"

# ---- files: beside and renamed ----
# replaces NAME FILE COMMAND...: FILE, of mode 640 and linked to twice, gets other content; its other name keeps the old one
replaces() {
    local name=$1 file=$2
    shift 2
    echo old > "$file"
    chmod 640 "$file"
    rm -f other.name
    ln "$file" other.name
    "$@" > out 2> err < "$dev/null"
    report "$([ $? = 0 ] && [ "$(cat other.name)" = old ] && [ -s "$file" ] && ! grep -qx old "$file" && [ "$(stat -c %a "$file")" = 640 ]; echo $?)" \
        "$name replaces a file as a whole and keeps its mode" "$(cat err)" "$(ls -l "$file" other.name)" "$(head -c 100 "$file")"
    rm -f other.name
    # behind two links, one of them relative to its own directory; then where the last one leads nowhere yet
    mkdir -p links
    mv "$file" links/real
    (cd links && ln -sf real second)
    ln -sf links/second "$file"
    "$@" > out 2> err < "$dev/null"
    report "$([ $? = 0 ] && [ -L "$file" ] && [ -L links/second ] && [ -f links/real ] && [ ! -L links/real ]; echo $?)" "$name follows links" "$(cat err)" "$(ls -l . links)"
    rm links/real
    "$@" > out 2> err < "$dev/null"
    report "$([ $? = 0 ] && [ -L "$file" ] && [ -s links/real ]; echo $?)" "$name follows a link to what is not there yet" "$(cat err)" "$(ls -l links)"
    rm -rf links "$file"
}
# in_place NAME COMMAND...: the file is the last argument
in_place() {
    local name=$1 reader
    shift
    rm -f fifo
    mkfifo fifo
    timeout 20 cat fifo > read &
    reader=$!
    timeout 20 "$@" fifo > out 2> err < "$dev/null"
    report "$([ $? = 0 ] && [ -p fifo ]; echo $?)" "$name writes into a fifo" "$(cat err)"
    wait $reader
    report "$([ -s read ]; echo $?)" 'what is read there' "$(head -c 100 read)"
    "$@" "$dev/stdout" > out 2> err < "$dev/null"
    report "$([ $? = 0 ] && [ "$(wc -c < out)" -gt $(($(wc -c < read) / 2)) ]; echo $?)" "$name writes into standard output" "$(cat err)" "$(wc -c out read)"
    "$@" "$dev/stdout" 2> err < "$dev/null" | cat > piped
    report "$([ "$(wc -c < piped)" -gt $(($(wc -c < read) / 2)) ]; echo $?)" "$name writes into a pipe" "$(cat err)" "$(wc -c piped read)"
    "$@" "$dev/null" > out 2> err < "$dev/null"
    report "$([ $? = 0 ] && [ -c "$dev/null" ]; echo $?)" "$name leaves "$dev/null" a device" "$(cat err)"
    refusal "$dev/full: cannot be written: No space left on device" "$@" "$dev/full"
    report "$([ -z "$bad" ] && [ -c "$dev/full" ]; echo $?)" "$name says that /dev/full takes nothing" "$bad" "$line"
    refusal "nowhere/x|No such file" "$@" nowhere/x
    report "$([ -z "$bad" ]; echo $?)" "$name refuses a directory that is not there" "$bad" "$line"
    refusal "$work/text/x|Not a directory" "$@" "$work/text/x"
    report "$([ -z "$bad" ]; echo $?)" "$name refuses a file in place of a directory" "$bad" "$line"
    refusal "$work/adapter|directory" "$@" "$work/adapter"
    report "$([ -z "$bad" ]; echo $?)" "$name refuses a directory" "$bad" "$line"
}
pairs=(--devices cpu:1,cpu:1 --plan pp --micro-batches 2)
for option in save-plan trace timeline; do
    replaces "train --$option" file "$programs/train" "${run[@]}" "${pairs[@]}" --steps 1 --$option file
    in_place "train --$option" "$programs/train" "${run[@]}" "${pairs[@]}" --steps 1 --$option
done
narrow=(--data text --model gpt2:layers=1,width=8,heads=1,context=8 --sequences 1 --steps 0 --quiet --devices cpu:1)
replaces 'train --save-profile' file "$programs/train" "${narrow[@]}" --save-profile file
in_place 'train --save-profile' "$programs/train" "${narrow[@]}" --save-profile
simulate=("$programs/plan" --simulate 1f1b --ranks 4 --micro-batches 8 --cost F=1,B=2)
"$programs/train" "${narrow[@]}" --save-profile profile.json 2> err
best=("$programs/plan" --model gpt2:layers=1,width=8,heads=1,context=8 --profile profile.json --devices cpu:1,cpu:1 --micro-batches 2 --seconds 0.1)
for option in trace svg; do
    replaces "plan --$option" file "${simulate[@]}" --$option file
    in_place "plan --$option" "${simulate[@]}" --$option
done
replaces 'plan --out' file "${best[@]}" --out file
in_place 'plan --out' "${best[@]}" --out
replaces 'convert --gguf' file "$programs/convert" --init run --gguf file
in_place 'convert --gguf' "$programs/convert" --init run --gguf
replaces 'tokenize --out' file "$programs/tokenize" --tokenizer tok.json --text text --out file
in_place 'tokenize --out' "$programs/tokenize" --tokenizer tok.json --text text --out
replaces 'tokenize --decode' file "$programs/tokenize" --tokenizer tok.json --decode text.bin --out file
in_place 'tokenize --decode' "$programs/tokenize" --tokenizer tok.json --decode text.bin --out
replaces 'tokenize --train' file "$programs/tokenize" --train 260 --text text --tokenizer file
in_place 'tokenize --train' "$programs/tokenize" --train 260 --text text --tokenizer
mkdir drawn
ln -s ../picture.svg drawn/loss.svg
does 'a run whose picture is a link' train "${run[@]}" --steps 2 --out drawn
report "$([ -L drawn/loss.svg ] && grep -q '</svg>' picture.svg; echo $?)" 'draws where it leads' "$(ls -l drawn/loss.svg)"
holds 'nothing is left beside any of them' "$(find . -name '*.tmp')" ''
refuses '--trace text|--data' train "${run[@]}" --steps 1 --trace text
refuses '--trace folder/model.safetensors: --out folder writes a file of that name' train "${run[@]}" --steps 1 --out folder --trace folder/model.safetensors
refuses '--timeline ./folder/latest: --out' train "${run[@]}" --steps 1 --out "$(mkdir -p folder; echo folder)" --timeline ./folder/latest
for name in hetrain.lock latest loss.svg tokenizer.json step-00000002; do
    refuses "--log folder/$name: --out folder writes a file of that name" train "${run[@]}" --steps 1 --out folder --log folder/$name
done
refuses '--save-plan run/log.jsonl: --resume run writes a file of that name' train --resume run --save-plan run/log.jsonl
for out in '' '--out gone_on'; do
    # shellcheck disable=SC2086
    refuses '--trace run/step-00000002/state.json: is a file of --resume run/step-00000002' train --resume run $out --trace run/step-00000002/state.json
done
mkdir older && cp -r run/* older && cp -r run/step-00000002 older/step-00000001
refuses '--trace older/step-00000001/state.json: --resume older writes a file of that name' train --resume older --trace older/step-00000001/state.json
refuses '--log older/step-00000001/log: --out older writes a file' train "${run[@]}" --steps 1 --out older --overwrite --log older/step-00000001/log
refuses '--export run/step-00000002: is the directory of --resume run/step-00000002' train --resume run --export run/step-00000002 --overwrite
cmp -s run/step-00000002/state.json older/step-00000001/state.json
report $? 'and the checkpoint is as it was'
refuses '--trace weights/config.json: --export weights writes a file' train "${run[@]}" --steps 1 --export weights --trace weights/config.json
for option in log trace save-profile; do
    refuses "--$option run/loss.svg: is a file of --init run" train "${run[@]}" --init run --steps 1 --$option run/loss.svg
done
refuses '--timeline ./adapter/adapter_config.json: is a file of --init-adapter adapter' train "${run[@]}" --steps 1 --init run \
    --init-adapter adapter --timeline ./adapter/adapter_config.json
does 'the log of --out may be named' train "${run[@]}" --steps 1 --out named --log named/log.jsonl --trace named/trace.json
refuses '--timeline one.file: is the file of --trace' train "${run[@]}" --steps 1 --trace one.file --timeline one.file
printf '0F0,0B0\n' > lists.csv
refuses '--trace lists.csv: is the file of --schedule' train "${run[@]}" --steps 1 --schedule lists.csv --trace lists.csv
echo '{"pipelines": [{"stages": [{"rank": 0, "units": [0, 4]}]}]}' > later.json
for option in save-plan trace; do
    refuses "--$option later.json: is the file of --replan" train "${run[@]}" --steps 4 --replan 2:dp,3:./later.json --$option later.json
done
cp profile.json second.json
mine=(--profile profile.json,second.json)
refuses '--trace second.json: is the file of --profile' train "${run[@]}" "${pairs[@]}" --steps 1 --adapt "${mine[@]}" --trace second.json
refuses '--save-plan profile.json: is the file of --profile' train "${run[@]}" --steps 1 --plan auto --profile profile.json --save-plan profile.json
cp text x.cluster.json
cp text x.profile.json
for name in cluster profile; do
    refuses "--save-plan x.$name.json: is the file of --data" train --data x.$name.json "${tiny[@]}" --steps 1 --plan auto --save-plan x.json
    refuses "--save-plan x.$name.json: is the file of --log" train "${run[@]}" --steps 1 --plan auto --save-plan x --log x.$name.json
done
cmp -s text x.cluster.json && cmp -s text x.profile.json
report $? 'and both are as they were'
does 'beside a plan that is given nothing is written' train --data x.cluster.json "${tiny[@]}" --steps 1 --plan dp --save-plan x.json
refuses '--out second.json: is the file of --profile' "${best[@]##*/}" "${mine[@]}" --out second.json
refuses '--out second.json: is the file of --profile' advise --workers 1,2 --burst 1.2 "${mine[@]}" --out second.json
refuses '--trace one.file: is the file of --log' train "${run[@]}" --steps 1 --log one.file --trace one.file
does 'both into standard output' train "${run[@]}" --steps 1 --trace "$dev/stdout" --timeline "$dev/stdout"
refuses '--log data|--data' train --data ./text "${tiny[@]}" --steps 1 --log "$(ln -s text data; echo data)"

# ---- what fails leaves nothing ----
# short BLOCKS COMMAND...: files cannot grow beyond so many KiB
short() { (ulimit -f "$1"; shift; "$@"); }
fails 'a checkpoint that does not fit' 'saving step 2: cannot write' short 16 "$programs/train" "${run[@]}" --steps 2 --out full > out
holds 'leaves none of it' "$(find full -name '*.tmp' -o -name 'step-*')" ''
fails 'a merge that does not fit' '--out merged2/model.safetensors: cannot be written' short 4 "$programs/merge" --init run --adapter adapter --out merged2 > out
holds 'leaves no directory' "$(ls -d merged2 2> /dev/null)" ''
fails 'nor the ones above it' 'cannot be written' short 4 "$programs/merge" --init run --adapter adapter --out above/merged3 > out
holds 'that it made' "$(ls -d above 2> /dev/null)" ''
fails 'a conversion that does not fit' 'failed: File too large' short 4 "$programs/convert" --init run --out converted1 > out
holds 'leaves no directory' "$(ls -d converted1 2> /dev/null)" ''
said=$(short 0 "$programs/convert" --init run --out locked 2>&1)
holds 'one that has not even room for its lock says so' "$said" 'convert: --out locked: cannot write locked/hetrain.lock: File too large'
holds 'leaves no lock' "$(ls locked/hetrain.lock 2> /dev/null)" ''
echo old > kept.gguf
fails 'a file that does not fit' '--gguf kept.gguf: cannot be written: File too large' short 4 "$programs/convert" --init run --gguf kept.gguf > out
holds 'stays what it was' "$(cat kept.gguf; find . -name '*.tmp')" old

# ---- the log ----
for device in zero full; do
    refuses "--log $dev/$device|--resume|never ends" train --resume run --quiet --log "$dev/$device"
done
does 'a log into "$dev/null" of a run that goes on' train --resume run --quiet --log "$dev/null"
fails 'a log into /dev/full' "cannot write $dev/full" "$programs/train" "${run[@]}" --steps 2 --log "$dev/full" > out
cp -r run longer
"$programs/train" --resume longer --force-resume --steps 4 --log "$dev/stdout" --quiet 2> err < "$dev/null" > log
report "$([ $? = 0 ] && [ "$(grep -c '"loss"' log)" = 2 ] && ! grep -qv '^{' log; echo $?)" 'a log into standard output that is a file' "$(cat err)" "$(head -c 200 log)"

# ---- directories that hold something ----
sums() { (cd "$1" && find . -type f ! -name '*.lock' -exec sha256sum {} + | sort); }
untouched() { report "$([ "$2" = "$(sums "$1")" ] && [ ! -e "$1/hetrain.lock" ]; echo $?)" "$1 is as it was" "$(ls "$1")"; } # untouched DIR SUMS
cp -r "$oracle/files/qwen3" base # as transformers wrote it, in shards
cp -r "$oracle/adapter/llama" single # one file, and PEFT's factors
cp -r run own # hetrain's, to start from
rm -r own/step-* own/latest own/log.jsonl
printf 'GGUF\003\000\000\000\001\000\000\000\000\000\000\000' > foreign.gguf
mkdir torch llmc gguf && printf 'PK\003\004' > torch/pytorch_model.bin && printf '\206\333\064\001' > llmc/gpt2_124M.bin && cp foreign.gguf gguf
base=$(sums base) single=$(sums single) own=$(sums own)
step=(--data text --steps 1 --sequences 1 --evaluate-every 0 --quiet --devices cpu:1 --length 8)
ln -s base linked
mkdir -p nested/deep
for out in base ./base "$work/nested/../base" linked linked/; do
    refuses "--out $out: is the directory of --init base" train "${step[@]}" --init base --out $out
    refuses "--out $out: is the directory of --init base" train "${step[@]}" --init base --out $out --overwrite
    refuses "--out $out: is the directory of --init base" convert --init base --out $out --overwrite
done
ln -s "$work/own/model.safetensors" nested/alias.safetensors
ln own/model.safetensors nested/hard.safetensors
cp own/config.json nested
refuses '--out own: is the directory of --init own/model.safetensors' train "${step[@]}" --init own/model.safetensors --out own --overwrite
refuses '--out own: is the directory of --init nested/alias.safetensors' train "${step[@]}" --init nested/alias.safetensors --out own --overwrite
refuses '--out own: its model.safetensors is a file of --init nested/hard.safetensors' train "${step[@]}" --init nested/hard.safetensors --out own --overwrite
mkdir pointed && ln -s ../own/model.safetensors pointed/model.safetensors
refuses '--out pointed: its model.safetensors is a file of --init own' train "${step[@]}" --init own --out pointed --overwrite
refuses '--out pointed: its model.safetensors is a file of --init own' convert --init own --out pointed --overwrite
refuses '--out own: is the directory of --model own' train "${step[@]}" --model own --out own --overwrite
refuses '--out single: is the directory of --init single' merge --init single --adapter "$oracle/adapter/llama" --out single --overwrite
cp -r "$oracle/adapter/llama" factors
refuses '--out factors: is the directory of --adapter factors' merge --init single --adapter factors --out factors --overwrite
refuses '--export own: is the directory of --init own' train "${step[@]}" --init own --export own --overwrite
refuses '--gguf linked/config.json: is a file of --init base' convert --init base --gguf linked/config.json
for holds in base:model-0000 single:.safetensors torch:pytorch_model.bin llmc:gpt2_124M.bin gguf:foreign.gguf; do
    for also in '' --overwrite; do
        # shellcheck disable=SC2086
        refuses "--out ${holds%:*}: holds weights that hetrain did not make|${holds#*:}" train "${run[@]}" --steps 1 --out ${holds%:*} $also
    done
done
refuses '--out base: holds weights that hetrain did not make' merge --init run --adapter adapter --out base --overwrite
refuses '--out base: holds weights that hetrain did not make' convert --init run --out base --overwrite
refuses '--export base: holds weights that hetrain did not make' train "${run[@]}" --steps 1 --export base --overwrite
cp base/model-00001* run/ && old=$(sums run)
refuses '--out run: holds weights that hetrain did not make' train --resume run --quiet --out run
refuses '--out run: holds weights that hetrain did not make' train --resume run --quiet
untouched run "$old"
rm run/model-00001*
cp -r run old && rm old/model.safetensors && cp "$(ls base/model-00001* | head -n 1)" old/model.safetensors
does 'a run whose weights have no mark goes on in its directory' train --resume old --quiet
untouched base "$base"
untouched single "$single"
untouched own "$own"

old=$(sums run)
refuses '--out run: holds a run (step-00000002)|--resume run goes on with it|--overwrite' train "${run[@]}" --steps 3 --out run
refuses '--out ./run/: holds a run|--resume ./run/|--overwrite' train "${run[@]}" --steps 3 --out ./run/
refuses '--out run: holds a run|--overwrite' train --resume closed --out run
refuses '--out own: holds|--overwrite' train "${run[@]}" --steps 3 --out own
refuses '--overwrite: not together with --resume' train --resume run --overwrite
refuses '--overwrite: needs --out' train "${run[@]}" --overwrite
untouched run "$old"
"$programs/tokenize" --tokenizer words.json --train 270 --text text > out 2> err
words=(--data text --tokenizer tok.json --model llama:layers=1,width=16,heads=1,context=16 --sequences 2 --evaluate-every 0 --quiet --devices cpu:1)
does 'a run with a tokenizer' train "${words[@]}" --steps 1 --out worded
for out in out export; do
    rm -rf theirs && mkdir theirs && cp words.json theirs/tokenizer.json
    refuses "--$out theirs: holds another tokenizer.json: --overwrite" train "${words[@]}" --steps 1 --$out theirs
done
refuses '--out theirs: holds another tokenizer.json: --overwrite' train --resume worded --out theirs --quiet
refuses '--out theirs: holds another tokenizer.json: --overwrite' convert --init worded --out theirs
cmp -s words.json theirs/tokenizer.json && [ "$(ls -A theirs)" = tokenizer.json ]
report $? 'and it is as it was' "$(ls -A theirs)"
cp -r run told && echo '{"eos_token_id": 7}' > told/generation_config.json && echo '{"eos_token_id": 8}' > theirs/generation_config.json
refuses '--out theirs: holds another generation_config.json: --overwrite' merge --init told --adapter adapter --out theirs
does 'but with --overwrite' convert --init told --out theirs --overwrite
cmp -s told/generation_config.json theirs/generation_config.json
report $? 'it is' "$(cat theirs/generation_config.json)"
rm -rf theirs && mkdir theirs && cp tok.json theirs/tokenizer.json
does 'and the same one may lie there' train "${words[@]}" --steps 1 --out theirs
cp -r run begin && cp text begin/step-00000002
refuses '--out begin: its step-00000002 is a file of --init begin/step-00000002/model.safetensors' train "${run[@]}" --steps 1 \
    --init begin/step-00000002/model.safetensors --out begin --overwrite
refuses '--out begin: its step-00000002 is a file of --data begin/step-00000002/text' train --data begin/step-00000002/text "${tiny[@]}" --steps 1 \
    --out begin --overwrite
report "$([ -s begin/step-00000002/model.safetensors ] && [ -s begin/step-00000002/text ]; echo $?)" 'both are there still' "$(ls begin/*)"
does 'what takes no checkpoint away may begin with one' convert --init begin/step-00000002/model.safetensors --out begin --overwrite
cp -r run again
touch again/notes.txt
does 'a new run in the place of an old one' train "${run[@]}" --init run --lora 2 --steps 1 --out again --overwrite
holds 'has its checkpoint and weights alone' "$(cd again && echo *)" \
    'adapter_config.json adapter_model.safetensors config.json latest log.jsonl loss.svg notes.txt step-00000001'
cp -r run again2
"$programs/train" "${run[@]}" --steps 2 --seed 9 --checkpoint-every 1 --out again2 --overwrite --lr 1e-12 > out 2> err
holds 'nor can an earlier checkpoint be taken for one of it' "$(cd again2 && echo step-*)" 'step-00000001 step-00000002'
mkdir begun && echo '{"hetrain":"0.1.0"}' > begun/log.jsonl
refuses '--out begun: holds log.jsonl of an earlier run|--overwrite|--resume' train "${run[@]}" --steps 1 --out begun
mkdir started && : > started/log.jsonl
does 'a run where one ended before its first line' train "${run[@]}" --steps 1 --out started
does 'a run whose directory is named as a checkpoint' train "${run[@]}" --steps 2 --out stages/step-1
does 'goes on there' train --resume stages/step-1/ --steps 3 --force-resume --quiet
holds 'and not in the directory above' "$(echo stages/* stages/step-1/step-*3/state.json)" 'stages/step-1 stages/step-1/step-00000003/state.json'
cp -r run/step-00000002 best && old=$(sums best)
for way in best run/step-00000002/. 'best --out best' 'run/step-00000002 --out run/step-00000002 --overwrite'; do
    # shellcheck disable=SC2086
    refuses "--resume ${way%% *}: a checkpoint, which the run would write over; --out DIR" train --force-resume --steps 3 --quiet --resume $way
done
untouched best "$old"
does 'a checkpoint of another name goes on elsewhere' train --resume best --force-resume --steps 3 --quiet --out best2
does 'a run that goes on elsewhere' train --resume run --out elsewhere --quiet
does 'factors into weights' merge --init run --adapter adapter --out whole
refuses '--out whole: holds|--overwrite' merge --init run --adapter adapter --out whole
refuses '--out whole: holds|--overwrite' convert --init run --out whole
does 'once more in their place' merge --init run --adapter adapter --out whole --overwrite
does 'shards in their place' convert --init run --out whole --shard 4000 --overwrite
does 'one file in theirs' convert --init whole --out whole2
does 'and in place of shards' convert --init run --out whole --overwrite --gguf whole/model.gguf
holds 'leaves no shard' "$(cd whole && echo *)" 'config.json model.gguf model.safetensors'
does 'which holds a GGUF file of hetrain' convert --init run --out whole --overwrite
# linked NAME FILE...: these files of shelf become links, one relative to its own directory and one behind it, on another shelf
linked() {
    local file
    rm -rf far && mkdir -p far/er
    for file in "$@"; do
        mv "shelf/$file" far/er/"$file"
        ln -s er/"$file" far/"$file"
        ln -s ../far/"$file" shelf/"$file"
    done
    sum=$(cat far/er/* | sha256sum)
}
# leads NAME FILE...: they still are links, and lead to other contents of one file each
leads() {
    local name=$1 file bad=
    shift
    for file in "$@"; do [ -L "shelf/$file" ] && [ -L "far/$file" ] && [ -f "far/er/$file" ] && [ ! -L "far/er/$file" ] || bad="$bad $file"; done
    [ "$sum" != "$(cat far/er/* | sha256sum)" ] || bad="$bad same contents"
    [ "$(cd far/er && echo *)" = "$(printf '%s\n' "$@" | sort | xargs)" ] || bad="$bad $(ls far/er)"
    report "$([ -z "$bad" ]; echo $?)" "$name" "$bad" "$(ls -l shelf far far/er)"
}
cp -r run shelf
linked model.safetensors config.json
does 'a run goes on whose weights are links' train --resume shelf --steps 3 --force-resume --quiet
leads 'which are followed' model.safetensors config.json
does 'and once more from them' generate --init shelf --tokens 2
rm -rf shelf && cp -r run shelf && linked model.safetensors config.json
does 'a new run in the place of one with links' train "${run[@]}" --seed 5 --steps 3 --out shelf --overwrite
leads 'follows them' model.safetensors config.json
rm -rf shelf && mkdir shelf && cp run/config.json run/model.safetensors shelf && linked model.safetensors config.json
does 'weights for transformers over links' train "${run[@]}" --steps 1 --seed 5 --export shelf --overwrite
leads 'follow them' model.safetensors config.json
rm -rf shelf && mkdir shelf && cp run/config.json run/model.safetensors shelf && linked model.safetensors
does 'a conversion over a link' convert --init run --out shelf --overwrite --save-dtype bf16
leads 'follows it' model.safetensors
cp shelf/model.safetensors far/er/model.safetensors && sum=
does 'a merge over a link' merge --init run --adapter adapter --out shelf --overwrite
leads 'follows it' model.safetensors
for to in nowhere/x "$dev/null" model.safetensors "$work/adapter"; do
    rm -rf shelf && mkdir shelf && ln -s "$to" shelf/model.safetensors
    refuses '--out shelf: its model.safetensors is a link, and nothing can be put where it leads|remove the link' train "${run[@]}" --steps 1 --out shelf
    refuses '--out shelf: its model.safetensors is a link, and nothing' convert --init run --out shelf --overwrite
done
report "$([ -c "$dev/null" ]; echo $?)" 'the device is one' "$(ls -l "$dev")"
mkdir hf
does 'weights for transformers' train "${run[@]}" --steps 1 --export hf
if [ -d /sys ] && [ ! -e /sys/none ]; then
    refuses '--out /sys/none/run: cannot make /sys/none: ' train "${run[@]}" --steps 1 --out /sys/none/run
    report "$([[ $line != *'No such file'* ]]; echo $?)" 'for the reason that there is' "$line"
fi
refuses '--export text: not a directory' train "${run[@]}" --steps 1 --export text
refuses '--export hf: holds|--overwrite' train "${run[@]}" --steps 1 --export hf
does 'and new ones in their place' train "${run[@]}" --steps 1 --export hf --overwrite
does 'a directory with other files' train "${run[@]}" --steps 1 --out directory_of_text --trace t.json
holds 'no lock is left' "$(find . -name hetrain.lock)" ''

# ---- the lock ----
set -m # children are to be stopped one by one
"$programs/train" "${run[@]}" --steps 100000000 --out locked > out.locked 2>&1 &
child=$!
set +m
for _ in $(seq 600); do grep -q '"loss"' locked/log.jsonl 2> /dev/null && break; sleep 0.05; done
words="process $child on $(hostname) has been writing there since 2"
refuses "--out locked|$words" train "${run[@]}" --steps 1 --out locked --overwrite
refuses "--resume locked|$words" train --resume locked
refuses "--out locked|$words" convert --init run --out locked --overwrite
refuses "--out locked|$words" merge --init run --adapter adapter --out locked --overwrite
kill -0 $child
report $? 'the run that has it goes on'
kill -TERM $child
wait $child
holds 'and takes its lock away when it is stopped' "$? $(ls locked/hetrain.lock 2> /dev/null)" '0 '
set -m
"$programs/train" --resume locked --steps 100000000 --quiet --checkpoint-every 100 > out.locked 2>&1 &
child=$!
set +m
for _ in $(seq 600); do [ -s locked/hetrain.lock ] && break; sleep 0.05; done
kill -9 $child
wait $child 2> /dev/null
report "$([ -s locked/hetrain.lock ]; echo $?)" 'one that is killed leaves it' "$(ls locked)"
does 'which the next one takes over' convert --init run --out locked --overwrite
mkdir kept
lock() { printf 'process %s\nhost %s\nstart 2026-01-02T03:04:05Z\nbirth %s\n' "$@" > kept/hetrain.lock; } # lock PROCESS HOST BIRTH
birth=$(sed 's/.*) //' /proc/$$/stat | cut -d ' ' -f 20)
lock $$ "$(hostname)" "$birth"
refuses "--out kept: process $$ on $(hostname) has been writing there since 2026-01-02T03:04:05Z" train "${run[@]}" --steps 1 --out kept
lock $$ elsewhere.example 12345
refuses "--out kept: process $$ on elsewhere.example|if it ended, remove kept/hetrain.lock" train "${run[@]}" --steps 1 --out kept
echo 'a key to the door' > kept/hetrain.lock
refuses '--out kept: kept/hetrain.lock is no lock' train "${run[@]}" --steps 1 --out kept
holds 'a file that is none stays' "$(cat kept/hetrain.lock)" 'a key to the door'
lock $$ "$(hostname)" $((birth + 1))
does 'a lock of another process of that number is stale' train "${run[@]}" --steps 1 --out kept
(sleep 0.1 & echo $! > zombie; exec sleep 60) &
parent=$!
for _ in $(seq 100); do grep -qs ') Z' "/proc/$(cat zombie 2> /dev/null)/stat" && break; sleep 0.05; done
lock "$(cat zombie)" "$(hostname)" "$(sed 's/.*) //' "/proc/$(cat zombie)/stat" | cut -d ' ' -f 20)"
does 'and so is one of a process that ended, of which its parent has not heard' train "${run[@]}" --steps 1 --out kept --overwrite
kill $parent
lock 999999999 "$(hostname)" 5
does 'and so is one of no process' train "${run[@]}" --steps 1 --out kept --overwrite
: > kept/hetrain.lock
does 'and an empty one' train "${run[@]}" --steps 1 --out kept --overwrite
fails 'a run that fails' 'step' short 64 "$programs/train" "${run[@]}" --steps 400 --checkpoint-every 1 --out kept --overwrite > out
holds 'takes its lock away' "$(find kept -name '*.lock')" ''
refuses '--data nothere' train --data nothere --out never/made
holds 'one that is refused leaves no directory' "$(ls -d never 2> /dev/null)" ''
# Of several that start at once one gets the directory.
for i in 1 2 3 4 5 6; do { "$programs/train" "${run[@]}" --steps 3000 --out race > race.$i 2>&1; echo $? > race.status.$i; } & done
wait
holds 'six start at once: one trains' "$(cat race.status.* | sort | tr -d '\n')" 022222

finish
