#!/bin/bash
# Runs of build/train that are stopped, killed and continued: the weights of one that never was. HETRAIN_TEST_KILLS sets how many times one is killed
# with SIGKILL (12; make soak: 2000), HETRAIN_TEST_LINKS how many times it is stopped and continued on other devices (3), HETRAIN_TEST_FIRST_ROUND when.
# Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
root=$PWD
programs=$PWD/${BUILD:-build}
program=$programs/checked/train
tests=$PWD/tests
parallel=$PWD/${BUILD:-build}/mpi/train_mpi
supervise=$PWD/programs/supervise.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
head -c 30000 hetrain.h > "$work/text"
cp hetrain.h "$work"
cd "$work" || exit 2
run=(--data text --model gpt2:layers=1,width=16,heads=1,context=16 --sequences 4 --micro-batches 2 --granule 1 --schedule-lr constant --evaluate-every 0 --quiet)

random=$((12345 + ${HETRAIN_TEST_FIRST_ROUND:-0}))
below() { random=$(((random * 1103515245 + 12345) % 2147483648)); picked=$(((random >> 12) % $1)); }
hash_of() { grep -E '^weights [0-9a-f]{16}$' "$1"; }
# whole STEPS: the hash of a run that was never stopped
whole() { "$program" "${run[@]}" --steps "$1" --hash > whole.out 2>&1; hash_of whole.out; }
# step_of DIR: of its newest checkpoint
step_of() { local latest; latest=$(cat "$1/latest" 2> /dev/null); latest=${latest#step-}; echo $((10#${latest:-0})); }
# started FILE: waits until a run has logged a step there
started() { local i; for i in $(seq 1200); do grep -q '"loss"' "$1" 2> /dev/null && return 0; sleep 0.05; done; return 1; }

# ---- links in place of what a save clears away: they go, and what they lead to stays ----
for name in saving.tmp removing.tmp step-00000002 step-00000004 step-00000005; do
    rm -rf out elsewhere
    "$program" "${run[@]}" --steps 3 --checkpoint-every 2 --out out > stopped.out 2>&1
    mkdir elsewhere
    if [ -d out/$name ]; then mv out/$name elsewhere; else cp -r out/step-00000002 elsewhere; fi
    ln -s ../elsewhere/step-00000002 out/$name
    ln -s nowhere out/step-00000001
    "$program" --resume out --steps 7 > on.out 2>&1
    report "$([ $? = 0 ] && [ -s elsewhere/step-00000002/state.json ] && [ "$(cd out && echo step-* *.tmp)" = 'step-00000006 step-00000007 *.tmp' ]; echo $?)" \
        "$name is a link" "$(tail -n 1 on.out)" "$(ls out elsewhere/*)"
done

# ---- signals: the step is finished and saved, the program ends well and says how to go on ----
for signal in INT TERM HUP USR1; do
    rm -rf out
    set -m # else a job in the background would ignore SIGINT
    "$program" "${run[@]}" --steps 1000000 --out out > stopped.out 2>&1 &
    set +m
    child=$!
    started out/log.jsonl
    kill -$signal $child
    case $signal in HUP | TERM) sleep 0.002; kill -$signal $child ;; esac # kernel and shell may both send the one, timeout sends the other twice
    wait $child
    status=$?
    n=$(step_of out)
    line=$(grep '^stopped after step' stopped.out)
    report "$([ $status = 0 ] && [ "$n" -gt 0 ] && [ "$line" = "stopped after step $n of 1000000; continue with: $program --resume out" ]; echo $?)" \
        "SIG$signal: saved, status 0, a line" "status $status, step $n" "$(tail -n 3 stopped.out)"
    ${line#*continue with: } --steps $((n + 4)) --hash > on.out 2>&1
    report "$([ -n "$(hash_of on.out)" ] && [ "$(hash_of on.out)" = "$(whole $((n + 4)))" ]; echo $?)" 'continued as it says: the same bits' "$(tail -n 3 on.out)"
done

rm -rf out
set -m
"$program" "${run[@]}" --steps 9 --devices cpu:1,cpu:1 --plan pp --links 0-1:9s --out out > stopped.out 2>&1 & # steps take 18 s
set +m
child=$!
for _ in $(seq 400); do [ -s out/log.jsonl ] && break; sleep 0.05; done
kill -INT $child
sleep 0.3
kill -INT $child
begin=$SECONDS
wait $child
status=$?
report "$([ $status = 130 ] && [ $((SECONDS - begin)) -lt 6 ]; echo $?)" 'a second SIGINT, some time later, ends it at once' "status $status, $((SECONDS - begin)) s" "$(cat stopped.out)"

rm -rf out
set -m
"$program" "${run[@]}" --steps 9 --devices cpu:1,cpu:1@0.5 --plan auto --out out > early.out 2>&1 & # measures first
set +m
child=$!
for _ in $(seq 400); do [ -e out/hetrain.lock ] && break; sleep 0.02; done
kill -INT $child
wait $child
status=$?
"$program" "${run[@]}" --steps 9 --out out --hash >> early.out 2>&1
report "$([ $status = 130 ] && [ "$(hash_of early.out)" = "$(whole 9)" ]; echo $?)" 'SIGINT before the first step ends it, and the folder can be used' "status $status" \
    "$(tail -n 3 early.out)"

rm -rf out
(trap '' HUP; exec "$program" "${run[@]}" --steps 40 --out out > ignored.out 2>&1) &
child=$!
started out/log.jsonl
kill -HUP $child
wait $child
status=$?
report "$([ $status = 0 ] && [ "$(step_of out)" = 40 ]; echo $?)" 'SIGHUP that nohup has ignored stops nothing' "status $status, step $(step_of out)"

"$program" --resume out --steps 1000000 > stopped.out 2>&1 &
child=$!
for _ in $(seq 1200); do grep -q '"step":41,' out/log.jsonl && break; sleep 0.05; done
kill -TERM $child
wait $child
line=$(grep '^stopped after step' stopped.out)
report "$([ "${line#*continue with: }" = "$program --resume out" ]; echo $?)" 'one that went on is stopped: the same line' "$(tail -n 3 stopped.out)"

# stop_at_once DIR COMMAND...: starts it, stops it with SIGTERM once a step is logged in DIR; its last line is in line, the command it names in on
stop_at_once() {
    local out=$1
    shift
    rm -rf "$out"
    mkdir "$out"
    "$@" > stopped.out 2>&1 < /dev/null &
    child=$!
    started "$out/log.jsonl"
    kill -TERM $child
    wait $child
    line=$(tail -n 1 stopped.out)
    on=${line#*continue with: }
}
goes_on() { # goes_on NAME WORDS: the line has the words, and the command in it goes on with the same bits
    local n bad='' word IFS='|'
    n=$(step_of out)
    for word in $2; do case $line in *"$word"*) ;; *) bad="$bad; does not name $word" ;; esac; done
    unset IFS
    bash -c "${on/ # / --steps $((n + 2)) --hash --quiet # } --steps $((n + 2)) --hash --quiet" > on.out 2>&1 < /dev/null
    report "$([ -z "$bad" ] && [ "$n" -gt 0 ] && [ -n "$(hash_of on.out)" ] && [ "$(hash_of on.out)" = "$(whole $((n + 2)))" ]; echo $?)" "$1" "$line" "$bad" "$(tail -n 3 on.out)"
}
stop_at_once out "$program" "${run[@]}" --steps 1000000 --devices cpu:1,cpu:1@0.5/2G --links 0-1:1us --plan 'pp:0-1|2-3' --schedule zb-h1 --slow 1:0@0.9 --out out
goes_on 'devices, links, plan and schedule are named, as a shell takes them' \
    "--resume out --devices cpu:1,cpu:1@0.5/2G --links 0-1:1us --slow 1:0@0.9 --plan 'pp:0-1|2-3' --schedule zb-h1"
stop_at_once out "$program" "${run[@]}" --steps 1000000 --out out --export weights
goes_on '--export, which the stop has filled, may be filled again' '--resume out --export weights --overwrite'
for export in '' '--export weights --overwrite'; do
    # shellcheck disable=SC2086
    stop_at_once out "$program" "${run[@]}" --steps 1000000 --log out/log.jsonl $export
    words="; nothing${export:+ but what --export asks for} was saved (no --out)"
    report "$([ "${line#*1000000}" = "$words" ]; echo $?)" "without --out: stopped $export" "$line"
done
"$program" --world "1/2@file:$work/meeting" "${run[@]}" --steps 1000000 --devices cpu:1 --plan pp --out out > one.out 2>&1 < /dev/null &
other=$!
stop_at_once out "$program" --world "0/2@file:$work/meeting" "${run[@]}" --steps 1000000 --devices cpu:1 --plan pp --out out
wait $other
"$program" --world "1/2@file:$work/meeting" --resume out --devices cpu:1 --plan pp --steps $(($(step_of out) + 2)) --hash --quiet > one.out 2>&1 < /dev/null &
goes_on 'two processes: the world is named' "--world 0/2@file:$work/meeting --devices cpu:1 --plan pp # the others: --world 1/2@file:$work/meeting"
wait
for name in HETRAIN_RANK/HETRAIN_SIZE RANK/WORLD_SIZE; do
    at=(MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 10000)) "${name#*/}=2")
    env "${at[@]}" "${name%/*}=1" "$program" "${run[@]}" --steps 1000000 --devices cpu:1 --out out > one.out 2>&1 < /dev/null &
    other=$!
    stop_at_once out env "${at[@]}" "${name%/*}=0" "$program" "${run[@]}" --steps 1000000 --devices cpu:1 --out out
    wait $other
    report "$([ "$on" = "${name%/*}=0 ${at[2]} ${at[0]} ${at[1]} $program --resume out --devices cpu:1 # the others: ${name%/*}=1" ]; echo $?)" \
        "two processes by ${name%/*}: named" "$line"
done

# ---- continued from another directory ----
mkdir -p first/second
cp text first/words
"$program" "${run[@]}" --data first/words --val first/words --log first/run.jsonl --steps 4 --checkpoint-every 2 --keep 3 --out moved --hash > whole.out 2>&1
rm -r moved/step-00000004 moved/*.safetensors
(cd first/second && "$program" --resume ../../moved --quiet --hash > "$work/on.out" 2>&1)
report "$([ -n "$(hash_of on.out)" ] && [ "$(hash_of on.out)" = "$(hash_of whole.out)" ] && [ ! -e first/second/first ] && grep -q '"step":4' first/run.jsonl; echo $?)" \
    'resumed in another directory: data, validation and log are found' "$(cat on.out)"
rm -r moved/step-00000004 moved/*.safetensors
(cd first && "$program" --resume ../moved/step-00000002 --out ../moved --quiet --hash > "$work/on.out" 2>&1) # saves "directory" anew
rm -rf moved/*.safetensors
(cd / && "$program" --resume "$work/moved" --steps 4 --quiet --hash > "$work/on.out" 2>&1)
report "$([ "$(hash_of on.out)" = "$(hash_of whole.out)" ]; echo $?)" 'and again from elsewhere' "$(cat on.out)"
cp first/run.jsonl first/log.before
"$program" --resume moved/step-00000002 --out branch --quiet > on.out 2>&1
report "$([ $? = 0 ] && cmp first/run.jsonl first/log.before && grep -q '"step":4' branch/log.jsonl; echo $?)" \
    'one that goes on elsewhere leaves the first run its log' "$(cat on.out)" "$(ls branch)"
mv first/words first/other
(cd first/second && refusal "--data|first/words|$work/first/words|--data FILE" "$program" --resume ../../moved/step-00000002 --quiet; printf '%s\n' "$bad" "$line" > "$work/refused")
report "$([ -z "$(head -n 1 refused)" ]; echo $?)" 'data that is gone: the file that was looked for' "$(cat refused)"
(cd first/second && "$program" --resume ../../moved/step-00000002 --data ../other --val ../other --out new --quiet --hash > "$work/on.out" 2>&1)
report "$([ "$(hash_of on.out)" = "$(hash_of whole.out)" ]; echo $?)" 'and --data FILE says where it is' "$(cat on.out)"

# ---- plans of later steps are proven before the first one ----
# later WORDS OPTION...: refused with a line of the words, and no step was done
later() {
    local words=$1
    shift
    rm -rf later out
    refusal "$words" "$program" "${run[@]}" --steps 4 --out later "$@"
    report "$([ -z "$bad" ] && ! grep -q '"step"' later/log.jsonl 2> /dev/null; echo $?)" "before the first step: $*" "$bad" "$line"
}
two=(--devices cpu:1,cpu:1)
later '--replan nonsense' "${two[@]}" --replan 3:nonsense
later '--replan dp3|3 ranks' "${two[@]}" --replan 3:dp3
later '--replan pp:0-1|2-9' "${two[@]}" --replan '2:dp,3:pp:0-1|2-9'
later '--replan ./nothere.json|No such file' "${two[@]}" --replan 3:./nothere.json
printf '{"pipelines": [{"stages": [{"rank": 0, "units": [0, 2]}, {"rank": 1, "units": [3, 4]}]}]}' > hole.json
later '--replan hole.json|unit 2 is not held' "${two[@]}" --replan 3:hole.json
later '--replan 3:pp:0-2|rank 0' --devices cpu:1/400K,cpu:1 --plan 'pp:0-0|1-3' --replan '3:pp:0-2|3-3'
later '--slow|a rank below 2' "${two[@]}" --slow 3:2@0.5
later '--val nothere' --val nothere
later '--save-plan nothere/plan' "${two[@]}" --save-plan nothere/plan
later '--trace nothere/trace' --trace nothere/trace
printf '{"pipelines": [{"stages": [{"rank": 0, "units": [0, 2]}, {"rank": 1, "units": [2, 4]}]}]}' > dp
printf 'garbage' > pp
"$program" "${run[@]}" --steps 4 "${two[@]}" --plan dp --replan 2:./dp,3:pp --save-plan saved.json --out later --hash > on.out 2>&1
report "$([ "$(hash_of on.out)" = "$(whole 4)" ] && [ "$(grep -c '"units": \[0, 4\]' saved.json)" = 2 ] && grep -q '"why":"--replan ./dp"' later/log.jsonl; echo $?)" \
    'a file called dp is ./dp; a plan called dp is none' "$(cat on.out)"
rm -f dp pp

# ---- every key of every family goes through a stop: what was not given again does not override the model ----
declare -A values=(
    [layers]=2 [width]=48 [heads]=4 [kv_heads]=1 [head_size]=8 [mlp_width]=40 [vocab]=300 [context]=24 [norm]='layernorm rmsnorm'
    [activation]='gelu_tanh gelu_erf swiglu' [position]='learned rotary none' [tied]='yes no' [qkv_bias]='yes no' [linear_bias]='yes no'
    [qk_norm]='yes no' [parallel]='yes no' [causal]='yes no' [window]=8 [norm_epsilon]=0.003 [rotary_theta]=5000 [rotary_fraction]=0.5
    [rotary_factor]=2 [rotary_low]=2 [rotary_high]=8 [rotary_original]=64 [init_std]=0.05 [dropout]=0.1 [local_loss]=1)
mapfile -t keys < <(sed -n '/^Keys: /,/^$/p' "$root/docs/models.md" | grep -o '`[a-z_]*`' | tr -d '`')
mapfile -t families < <(sed -n '/^| family | presets/,/^$/s/^| `\([a-z0-9]*\)`.*/\1/p' "$root/docs/models.md")
every=3 # of the keys of a family, which are others in the next one; make soak, which has more kills, tries them all
[ "${HETRAIN_TEST_KILLS:-12}" -gt 12 ] && every=1
stop_and_go() { # stop_and_go FAMILY NUMBER: prints what differs, and how many keys there were
    local key value spec rest tried=0 place=$2
    for key in "${keys[@]}"; do
        place=$((place + 1))
        for value in ${values[$key]:-none}; do
            tried=$((tried + 1))
            [ $((place % every)) = 0 ] || continue
            rest=$(printf '%s\n' layers=1 width=32 heads=2 context=16 rotary_factor=2 | grep -v "^$key=" | paste -sd,)
            [[ $key = rotary_* ]] || rest=${rest/,rotary_factor=2/}
            spec=$1:$rest,$key=$value
            rm -rf "$1"
            "$program" --data text --model "$spec" --length 16 --sequences 2 --steps 2 --warmup 0 --evaluate-every 0 --checkpoint-every 1 --out "$1" \
                --quiet --hash > "$1.whole" 2>&1
            "$program" --resume "$1/step-00000001" --out "$1/again" --quiet --hash > "$1.on" 2>&1
            if [ -z "$(hash_of "$1.whole")" ] || ! cmp -s "$1.whole" "$1.on"; then echo "$spec: $(tail -n 1 "$1.whole"), $(tail -n 1 "$1.on")"; fi
        done
    done
    echo "$tried"
}
for number in "${!families[@]}"; do stop_and_go "${families[number]}" "$number" > "${families[number]}.keys" & done
wait
for family in "${families[@]}"; do
    tried=$(tail -n 1 "$family.keys")
    report "$([ "$(wc -l < "$family.keys")" = 1 ] && [ "$tried" -ge "${#keys[@]}" ] && [ "${#keys[@]}" -ge 27 ]; echo $?)" \
        "$family: keys stopped and resumed: the same bits" "$(cat "$family.keys")"
done
report "$([ "${#families[@]}" = 6 ]; echo $?)" 'of all families' "${families[*]}"

# ---- refused, and forced ----
"$program" "${run[@]}" --steps 6 --checkpoint-every 2 --keep 3 --out good > /dev/null 2>&1
refuses() {
    local words=$1 word bad=
    shift
    "$program" "$@" > out.txt 2>&1 && bad='exit status 0'
    IFS='|' read -ra list <<< "$words"
    for word in "${list[@]}"; do grep -qF -- "$word" out.txt || bad="$bad no '$word'"; done
    report "$([ -z "$bad" ]; echo $?)" "refused: $words" "$bad" "$(head -n 3 out.txt)"
}
refuses '--lr|0.001|0.5|--force-resume' --resume good --lr 0.5
refuses '--granule|1|2' --resume good --granule 2
refuses '--schedule-lr|constant|linear' --resume good --schedule-lr linear
refuses '--seed|0|7' --resume good --seed=7
tr 'e' 'E' < text > other
refuses '--data other|fingerprint' --resume good --data other
head -c 20000 text > shorter
refuses '--data shorter|20000|30000' --resume good --data shorter
refuses '--force-resume|--resume' "${run[@]}" --force-resume
cp -r good forced
"$program" --resume forced --lr 0.5 --steps 8 --force-resume --hash > out.txt 2>&1
report "$([ -n "$(hash_of out.txt)" ] && [ "$(hash_of out.txt)" != "$(whole 8)" ]; echo $?)" 'forced: goes on with another rate' "$(tail -n 3 out.txt)"

"$program" --resume good --steps 3 > out.txt 2>&1
report "$([ $? = 0 ] && grep -q 'warning: --steps 3: the saved run is at step 6 already' out.txt; echo $?)" 'a run that is further says so' "$(cat out.txt)"

model=gpt2:layers=1,width=16,heads=1,context=16,dropout=0.25
"$program" "${run[@]}" --model $model --lr 5e-5 --steps 2 --checkpoint-every 1 --out drop --hash > whole.out 2>&1
for same in '' '--dropout 0.25' '--beta1 0.9 --beta2 0.95' '--min-lr 5e-6'; do
    # shellcheck disable=SC2086
    "$program" --resume drop/step-00000001 --out again --overwrite $same --quiet --hash > on.out 2>&1
    report "$([ -n "$(hash_of on.out)" ] && [ "$(hash_of on.out)" = "$(hash_of whole.out)" ]; echo $?)" "resumed with ${same:-nothing}: the same bits" "$(cat on.out)"
done
refuses '--dropout 0.5|0.25|--force-resume' --resume drop --steps 6 --dropout 0.5
refuses '--beta1 0.8|0.9|--force-resume' --resume drop --steps 6 --beta1 0.8
refuses '--beta2 0.99|0.95|--force-resume' --resume drop --steps 6 --beta2 0.99
refuses '--epsilon 1e-06|1e-08|--force-resume' --resume drop --steps 6 --epsilon 1e-6
refuses '--min-lr 0.0001|5e-06|--force-resume' --resume drop --steps 6 --min-lr 1e-4

# ---- several updates a step: plan and schedule decide what is trained. Any that gives the same versions goes on, others are refused ----
late=(--data text --model gpt2:layers=1,width=16,heads=1,context=16 --sequences 4 --micro-batches 4 --granule 1 --schedule-lr constant --evaluate-every 0 --quiet)
"$program" "${late[@]}" --devices cpu:1,cpu:1 --plan pp --schedule 2bw --updates 4 --steps 4 --checkpoint-every 2 --out late --hash > whole.out 2>&1
for way in '' '--devices cpu:1,cpu:1 --plan pp --schedule 2bw' '--devices cpu:1,cpu:1 --plan pp:0-0|1-3 --schedule 1f1b'; do
    # shellcheck disable=SC2086
    "$program" --resume late/step-00000002 --out again --overwrite $way --quiet --hash > on.out 2>&1
    report "$([ -n "$(hash_of on.out)" ] && [ "$(hash_of on.out)" = "$(hash_of whole.out)" ]; echo $?)" "2bw resumed with ${way:-nothing}: the same bits" "$(cat on.out)"
done
refuses '--updates|4 updates a step by 2bw, staleness 1|2 updates a step by 1f1b|--force-resume' --resume late --steps 6 --updates 2
refuses '4 updates a step by 2bw, staleness 1|this one 4 updates a step by 1f1b, staleness 2' --resume late --steps 6 --staleness 2
refuses 'this one 1 update a step' --resume late --steps 6 --updates 1
refuses 'this one 4 updates a step by pipedream' --resume late --steps 6 --devices cpu:1,cpu:1 --plan pp --schedule pipedream --staleness 0
refuses 'this one 4 updates a step by hogbatch' --resume late --steps 6 --devices cpu:1,cpu:1 --plan dp --schedule hogbatch
refuses 'the saved run has 1 update a step, this one 2 updates' --resume good --steps 10 --updates 2
"$program" --resume late --steps 6 --updates 2 --force-resume --hash > out.txt 2>&1
report "$([ -n "$(hash_of out.txt)" ]; echo $?)" 'forced: goes on with other updates' "$(tail -n 3 out.txt)"
"$program" "${late[@]}" --devices cpu:1,cpu:1 --plan dp --updates 2 --staleness 1 --steps 2 --out dealt > out.txt 2>&1
refuses '2 updates a step by 1f1b, staleness 1' --resume dealt --steps 4 # of one rank other micro-batches join each
"$program" "${late[@]}" --devices cpu:1,cpu:1 --plan dp --updates 2 --staleness 1 --steps 4 --replan 3:pp --checkpoint-every 3 --out gone --hash > whole.out 2>&1
for way in '--plan dp --replan 3:pp' '--plan pp'; do # what is said is what there was when it was saved
    # shellcheck disable=SC2086
    "$program" --resume gone/step-00000003 --out again --overwrite --devices cpu:1,cpu:1 $way --quiet --hash > on.out 2>&1
    report "$([ -n "$(hash_of on.out)" ] && [ "$(hash_of on.out)" = "$(hash_of whole.out)" ]; echo $?)" "gone over, resumed with $way: the same bits" "$(cat on.out)"
done
refuses '--plan: the saved run has 2 updates a step by 1f1b' --resume gone/step-00000003 --steps 6 --devices cpu:1,cpu:1 --plan dp
twice=(--devices cpu:1,cpu:1 --plan dp --replan 2x1:dp,3:pp) # pp has as few granules a micro-batch as the plan before
"$program" "${late[@]}" "${twice[@]}" --updates 2 --staleness 1 --steps 4 --checkpoint-every 3 --out gone2 --hash > whole.out 2>&1
for replan in 2x1:dp,3:pp 3:pp,2x1:dp; do # by step, in whatever order they are listed
    "$program" --resume gone2/step-00000003 --out again --overwrite "${twice[@]}" --replan $replan --quiet --hash > on.out 2>&1
    report "$([ -n "$(hash_of on.out)" ] && [ "$(hash_of on.out)" = "$(hash_of whole.out)" ]; echo $?)" \
        "gone over twice, $replan: the same bits" "$(cat on.out)"
done

# ---- fingerprints: every byte of the data, and the weights below factors ----
cat hetrain.h hetrain.h | head -c 700000 > wide
cat wide wide wide wide wide wide wide > large
"$program" "${run[@]}" --data large --steps 2 --out seen > /dev/null 2>&1
for byte in 0 65536 2500001 4899999; do
    cp -p large before
    printf '\001' | dd of=large bs=1 seek=$byte conv=notrunc 2> /dev/null
    touch -r before large
    refuses '--data large|fingerprint|--force-resume' --resume seen --steps 3
    mv before large
done
"$program" --resume seen --steps 3 > out.txt 2>&1
report "$?" 'and goes on with the data it had' "$(cat out.txt)"
cp -r "$tests/data/old_run" .
(cd old_run && "$program" --resume step-00000004 --steps 8 --hash > on.out 2>&1
    "$program" --data data.txt --model step-00000004/config.json --sequences 2 --steps 8 --schedule-lr constant --min-lr 0.0001 --evaluate-every 0 --quiet \
        --devices cpu:1 --hash > whole.out 2>&1)
report "$([ -n "$(hash_of old_run/on.out)" ] && [ "$(hash_of old_run/on.out)" = "$(hash_of old_run/whole.out)" ]; echo $?)" \
    'a checkpoint whose fingerprint is of pieces of the data goes on' "$(cat old_run/on.out)"
printf 9 | dd of=old_run/data.txt bs=1 seek=500 conv=notrunc 2> /dev/null
cd old_run && refuses '--data data.txt|fingerprint' --resume step-00000004 --steps 8
cd ..
for i in 1 2; do
    mkdir base$i
    "$program" "${run[@]}" --seed $i --steps 1 --export base$i > /dev/null 2>&1
done
factors=(--data text --sequences 4 --micro-batches 2 --schedule-lr constant --evaluate-every 0 --quiet --devices cpu:1)
"$program" "${factors[@]}" --lora 2 --init base1 --steps 3 --out low > out.txt 2>&1
mkdir placed shards
cp base1/* placed
"$programs/checked/convert" --init base1 --out shards --shard 3000 > /dev/null
for base in placed shards; do
    "$program" "${factors[@]}" --init $base --init-adapter low --steps 1 > out.txt 2>&1
    report "$?" "factors start on the same weights in $base" "$(cat out.txt)"
done
known=$(grep -ao '"base_fingerprint":"[0-9a-f]*"' low/adapter_model.safetensors | grep -o '[0-9a-f]\{16\}')
refuses "--init-adapter low|other base weights|$known|base2/model.safetensors|--any-base" "${factors[@]}" --init base2 --init-adapter low --steps 1
"$program" "${factors[@]}" --init base2 --init-adapter low --any-base --steps 1 > out.txt 2>&1
report "$?" '--any-base takes other weights' "$(cat out.txt)"
refuses '--any-base|--init-adapter' "${run[@]}" --any-base
rm -rf out
for use in 'generate --prompt a --tokens 2' 'merge --out merged' 'convert --out merged' 'evaluate --data text'; do
    wrong= name=${use%% *}
    # shellcheck disable=SC2086
    "$programs/checked/$name" ${use#* } --init base1 --adapter low > out.txt 2>&1 || wrong="the right ones: $(tail -n 1 out.txt)"
    rm -rf merged
    # shellcheck disable=SC2086
    refusal "--adapter low|other base weights|$known|base2|--any-base" "$programs/checked/$name" ${use#* } --init base2 --adapter low
    # shellcheck disable=SC2086
    "$programs/checked/$name" ${use#* } --init base2 --adapter low --any-base > out.txt 2>&1 || wrong="$wrong any: $(tail -n 1 out.txt)"
    rm -rf merged
    report "$([ -z "$bad$wrong" ]; echo $?)" "$name knows the weights below factors" "$bad" "$wrong"
done
cp -r low low2
"$program" --resume low2 --steps 5 --hash > whole.out 2>&1
rm -r low2 && cp -r low low2 && mv base1 base3
refuses "--resume low2|base1/model.safetensors|--init FILE|DIR" --resume low2 --steps 5
refuses "--resume low2|other base weights|base2/model.safetensors|--force-resume" --resume low2 --init base2 --steps 5
refuses '--init: not together with --resume|factors' --resume good --init base2 --steps 8
for way in '--init base3 --steps 4' '--steps 5'; do # a checkpoint that is saved has the new place
    # shellcheck disable=SC2086
    "$program" --resume low2 $way --hash > on.out 2>&1
done
report "$([ -n "$(hash_of on.out)" ] && [ "$(hash_of on.out)" = "$(hash_of whole.out)" ]; echo $?)" 'weights below factors that were moved: --init' \
    "$(cat on.out)"
mv base3 base1
cp base2/model.safetensors base1
refuses "--resume low|other base weights|$known|base1/model.safetensors|--force-resume" --resume low --steps 5
"$program" --resume low --steps 5 --force-resume > out.txt 2>&1
report "$?" 'and --force-resume goes on with others' "$(cat out.txt)"

# ---- damaged: named, and the one before is used ----
cp -r good damaged
printf 'X' | dd of=damaged/step-00000006/optimizer.safetensors bs=1 seek=4000 conv=notrunc 2> /dev/null
"$program" --resume damaged --steps 8 --hash > out.txt 2>&1
report "$(grep -q 'damaged: damaged/step-00000006/optimizer.safetensors: bytes .*; an older checkpoint is used: damaged/step-00000004' out.txt &&
    [ "$(hash_of out.txt)" = "$(whole 8)" ]; echo $?)" 'a damaged checkpoint is named, the one before goes on' "$(head -n 3 out.txt)"
for f in damaged/step-*/state.json; do : > "$f"; done
refuses 'damaged/step-0000000|state.json|too few' --resume damaged
mkdir empty
refuses '--resume empty|no checkpoint' --resume empty

# ---- memory: what saving needs is there before the first step, or the run is refused then ----
wide=(--data text --model llama:layers=2,width=128,heads=2,context=16 --sequences 4 --granule 1 --schedule-lr constant --evaluate-every 0 --devices cpu:1)
rm -rf out
"$program" "${wide[@]}" --steps 1 --out out > out.txt 2>&1
report "$(grep -q '^device   cpu:1, [0-9.]* MB, 5.9 MB for saving' out.txt && grep -q '"memory_bytes":[0-9]*,"saving_bytes":58[0-9]*,' out/log.jsonl
    echo $?)" 'the start line and the log count what saving needs' "$(cat out.txt)"
# limited KIB: 0 saved, 1 refused before the first step, naming bytes that are missing, 2 anything else
limited() {
    rm -rf out
    (ulimit -v "$1" && exec "$program" "${wide[@]}" --steps 4 --checkpoint-every 2 --quiet --out out) > out.txt 2>&1
    local status=$?
    [ $status = 0 ] && [ "$(step_of out)" = 4 ] && [ -s out/model.safetensors ] && return 0
    [ $status = 1 ] && [ ! -e out ] && [ "$(grep -c '^train: ' out.txt)" = 1 ] && grep -qE 'no memory|bytes' out.txt && return 1
    return 2
}
low=1000 high=4000000
limited $high && can_limit=1 || can_limit=0 # a sanitizer wants more addresses than there are bytes
if [ $can_limit = 1 ]; then
    bad= refused=0
    while [ $((high - low)) -gt 64 ]; do
        middle=$(((low + high) / 2))
        limited $middle && high=$middle || low=$middle
    done
    for i in $(seq 0 29); do
        limited $((high + 400 - 250 * i))
        case $? in
        1) grep -q 'memory for saving: .*[0-9] bytes are missing' out.txt && refused=$((refused + 1)) ;;
        2) bad="$bad $((high + 400 - 250 * i)) KiB: $(tail -n 1 out.txt)" ;;
        esac
    done
    report "$([ -z "$bad" ] && [ $refused -ge 15 ]; echo $?)" "30 limits of memory about $high KiB: saved, or $refused times refused at the start" "$bad"
else
    leave_out 'the program does not run under a limit of memory'
fi
# starved OPTION...: a run that gets no memory at all any more after its first steps
starved() {
    rm -rf out
    "$program" "$@" --steps 1000000 --out out > out.txt 2>&1 &
    child=$!
    started out/log.jsonl
    prlimit --pid $child --as=4096 --data=4096
    sleep 0.1
    kill -TERM $child
    wait $child
    status=$?
    n=$(step_of out)
}
if [ $can_limit = 1 ] && command -v prlimit > /dev/null; then
    rm -rf exported
    mkdir exported
    starved "${wide[@]}" --export exported
    "$program" --resume out --steps $((n + 1)) > on.out 2>&1
    report "$([ $status = 0 ] && [ "$n" -gt 0 ] && grep -q '"step":'$((n + 1)), out/log.jsonl && [ -s exported/config.json ] && [ -s exported/model.safetensors ]; echo $?)" \
        'no memory any more after the first step: saved and exported all the same' "status $status, step $n" "$(tail -n 2 out.txt on.out)"
    starved --data text --init exported --lora 2 --lora-target all --sequences 4 --evaluate-every 0 --devices cpu:1 --checkpoint-every 3
    report "$([ $status = 0 ] && [ "$n" -gt 0 ] && [ -s out/adapter_model.safetensors ]; echo $?)" 'and so are low-rank factors' "status $status, step $n" "$(tail -n 2 out.txt)"
    rm -rf out
    for i in 0 1; do
        "$program" --world "$i/2@file:$work/meeting" "${wide[@]}" --plan pp --steps 1000000 --out out > pair.$i 2>&1 < /dev/null &
        pair[i]=$!
    done
    started out/log.jsonl
    for i in 0 1; do prlimit --pid "${pair[i]}" --as=4096 --data=4096; done
    sleep 0.1
    kill -TERM "${pair[1]}"
    wait "${pair[0]}" && wait "${pair[1]}"
    status=$?
    report "$([ $status = 0 ] && [ "$(step_of out)" -gt 0 ]; echo $?)" 'and so are the weights of two processes' "status $status" "$(head -n 12 pair.0 pair.1)"
fi

rm -rf out
"$program" "${run[@]}" --steps 3 --out out --trace /dev/full > out.txt 2>&1
status=$?
report "$([ $status != 0 ] && [ "$(step_of out)" = 3 ]; echo $?)" 'what else cannot be written in the end keeps nothing from being saved' "status $status, step $(step_of out)" "$(cat out.txt)"

# ---- stopped and continued on other devices ----
layouts=('--devices cpu:1' '--devices cpu:2' '--devices cpu:1,cpu:1' '--devices cpu:1,cpu:1 --plan pp' '--devices cpu:1,cpu:1 --plan pp --schedule zb-h1'
    '--devices cpu:1,cpu:1@0.5 --shard-gradients' '--devices cpu:1,cpu:1@0.5 --shard weights' '--devices cpu:1,cpu:1,cpu:1,cpu:1 --plan pp' '--devices cpu:1 --recompute --slices 2'
    '--devices cpu:1,cpu:1 --plan {"pipelines":[{"stages":[{"rank":0,"units":[0,4]}]}],"keepers":[1],"state_shares":[1,3]}'
    '--devices cpu:1,cpu:1 --plan pp --schedule gpipe --store 1')
rm -rf out
"$program" "${run[@]}" --steps 3 --out out > /dev/null 2>&1
bad=
links=${HETRAIN_TEST_LINKS:-3}
for link in $(seq "$links"); do
    below ${#layouts[@]}
    # shellcheck disable=SC2086
    "$program" --resume out ${layouts[picked]} --steps $((3 + 2 * link)) --hash > on.out 2>&1 || bad="$bad ${layouts[picked]}: $(tail -n 1 on.out)"
done
report "$([ -z "$bad" ] && [ "$(hash_of on.out)" = "$(whole $((3 + 2 * links)))" ]; echo $?)" "$links times on other devices: the same bits" "$bad"

# ---- bad steps: a run that goes on skips the same ones, one that stops says why ----
bad=("${run[@]}" --spike 1.2 --on-bad-step skip --verify 7)
"$program" "${bad[@]}" --steps 60 --hash > whole.out 2> whole.err
rm -rf spiky
"$program" "${bad[@]}" --steps 40 --checkpoint-every 20 --out spiky > /dev/null 2> on.err
"$program" --resume spiky --steps 60 --devices cpu:1,cpu:1 --hash > on.out 2>> on.err
report "$([ "$(grep -c 'skipped: .*deviations' whole.err)" -ge 2 ] && [ -n "$(hash_of on.out)" ] && [ "$(hash_of on.out)" = "$(hash_of whole.out)" ] &&
    [ "$(sed 's/;.*//' on.err)" = "$(sed 's/;.*//' whole.err)" ]; echo $?)" 'spikes: a run that goes on skips the same steps' "$(head -n 3 whole.err on.err)"
refuses '--spike|1.2|9' --resume spiky --steps 60 --spike 9
rm -rf spiky
"$program" "${run[@]}" --spike 1.2 --steps 60 --checkpoint-every 2 --out spiky > on.out 2>&1
status=$?
n=$(($(grep -o 'train: step [0-9]*' on.out | grep -o '[0-9]*$') - 1))
report "$([ $status = 1 ] && grep -q 'above .* deviations; .*; unit [0-9]* (.*), rank 0' on.out && [ "$n" -ge 32 ] && [ "$(step_of spiky)" -ge $((n - 1)) ]; echo $?)" \
    'a spike stops the run, its checkpoints stay' "status $status, step $n, saved $(step_of spiky)" "$(tail -n 2 on.out)"

# ---- killed ----
rm -rf out
kills=${HETRAIN_TEST_KILLS:-12}
bad=
for i in $(seq "$kills"); do
    rm -f killed.jsonl
    if [ "$(step_of out)" -gt 0 ]; then "$program" --resume out --quiet --log killed.jsonl > killed.out 2>&1 &
    else rm -rf out; "$program" "${run[@]}" --steps 1000000 --checkpoint-every 2 --out out --log killed.jsonl > killed.out 2>&1 & fi
    child=$!
    below 4
    [ $picked = 0 ] || started killed.jsonl # else while it starts
    below 200
    sleep "0.$(printf %03d $picked)"
    kill -9 $child 2> /dev/null || bad="$bad run $i had ended: $(tail -n 1 killed.out)"
    wait $child 2> /dev/null
done
n=$(step_of out)
"$program" --resume out --steps $((n + 3)) --hash > on.out 2>&1
report "$([ -z "$bad" ] && [ -n "$(hash_of on.out)" ] && [ "$(hash_of on.out)" = "$(whole $((n + 3)))" ] && ! grep -q damaged on.out; echo $?)" \
    "killed $kills times, at step $n: the same bits" "$bad" "$(tail -n 3 on.out)"
report "$([ -z "$(find out -name '*.tmp' -o -name '*.old')" ] && [ "$(find out -name 'step-*' | wc -l)" = 2 ]; echo $?)" 'nothing else is left behind' "$(ls out)"

# ---- started again by itself ----
rm -rf out
export SUPERVISE_PAUSE=0
bash "$supervise" out "$program" "${run[@]}" --steps 40 --checkpoint-every 1 --out out --hash > supervised.out 2> supervised.err &
child=$!
for i in 1 2; do
    for _ in $(seq 1200); do [ "$(step_of out)" -ge $((5 * i)) ] && break; sleep 0.05; done
    pkill -9 -P $child
done
wait $child
status=$?
report "$([ $status = 0 ] && [ "$(hash_of supervised.out)" = "$(whole 40)" ] && [ "$(grep -c 'starting again' supervised.err)" -ge 1 ]; echo $?)" \
    'supervised: killed, started again, the same bits' "status $status" "$(tail -n 4 supervised.err)"
rm -rf out
printf '#!/bin/bash\n[ -e out/latest ] && exec "$@" --steps 4\n"$@" --steps 2\nexit 1 # as if it had died\n' > dies.sh
chmod +x dies.sh
weak=(--devices cpu:1,cpu:1 --scaling weak)
bash "$supervise" --retries 1 out ./dies.sh "$program" "${run[@]}" "${weak[@]}" --checkpoint-every 1 --out out --hash \
    > supervised.out 2> supervised.err
status=$?
"$program" "${run[@]}" "${weak[@]}" --steps 4 --hash > whole.out 2>&1
report "$([ $status = 0 ] && [ -n "$(hash_of whole.out)" ] && [ "$(hash_of supervised.out | tail -n 1)" = "$(hash_of whole.out)" ]; echo $?)" \
    'and with --scaling weak, which a checkpoint has in its micro-batches' "status $status" "$(tail -n 4 supervised.err)"
printf '#!/bin/sh\n[ "$1" != b ]\n' > ping.sh
chmod +x ping.sh
SUPERVISE_PING=./ping.sh bash "$supervise" --hosts a,b,c out sh -c 'echo {np} {hosts} > said' 2> /dev/null
report "$([ "$(cat said)" = '2 a,c' ]; echo $?)" 'hosts that do not answer are left out' "$(cat said)"
bash "$supervise" --retries 2 nothing sh -c 'exit 1' 2> supervised.err
report "$([ $? = 1 ] && grep -q '2 restarts brought no new checkpoint' supervised.err; echo $?)" 'it gives up where nothing gets on' "$(tail -n 2 supervised.err)"
bash "$supervise" nothing "$program" --data nothere 2> supervised.err
report "$([ $? = 2 ]; echo $?)" 'and at once where the command is wrong' "$(tail -n 2 supervised.err)"
SUPERVISE_PAUSE=0.1 timeout 5 bash "$supervise" nothing ./nowhere --out nothing 2> supervised.err
report "$([ $? = 2 ]; echo $?)" 'or names no program' "$(tail -n 2 supervised.err)"
rm -f said
SUPERVISE_PAUSE=2 bash "$supervise" nothing sh -c 'echo >> said; exit 1' 2> supervised.err &
child=$!
for _ in $(seq 200); do grep -q 'starting again' supervised.err && break; sleep 0.05; done
kill -TERM $child
wait $child
status=$?
report "$([ $status = 1 ] && [ "$(wc -l < said)" = 1 ]; echo $?)" 'stopped in its pause, it starts nothing more' "status $status" "$(cat supervised.err)"
for wrong in '--retries often nothing false' '--retries' '--hosts'; do
    # shellcheck disable=SC2086 # words
    SUPERVISE_PAUSE=0.1 timeout 5 bash "$supervise" $wrong > supervised.out 2> supervised.err
    status=$?
    report "$([ $status = 2 ] && [ "$(wc -l < supervised.err)" = 1 ] && grep -q -- "${wrong%% *}" supervised.err; echo $?)" "or $wrong is" \
        "status $status" "$(tail -n 2 supervised.err)"
done

# ---- several processes: one dies, the others save nothing broken, and fewer go on ----
if ! command -v mpirun > /dev/null || ! [ -x "$parallel" ]; then
    leave_out 'mpirun or mpicc is missing: a rank that dies under mpirun was not tested'
    finish
    exit
fi
use_mpirun 180 "$parallel"
rm -rf out
"${launch[@]}" -n 3 "$parallel" "${run[@]}" --steps 1000000 --checkpoint-every 2 --devices cpu:1 --out out > died.out 2>&1 < /dev/null &
child=$!
for _ in $(seq 1200); do [ "$(step_of out)" -ge 4 ] && break; sleep 0.05; done
kill -9 "$(pgrep -f "^$parallel .*--out out" | sed -n 2p)"
wait $child
status=$?
n=$(step_of out)
"${launch[@]}" -n 2 "$parallel" --resume out --devices cpu:1 --steps $((n + 3)) --hash > on.out 2>&1 < /dev/null
again=$?
report "$([ $status != 0 ] && [ $again = 0 ] && [ "$n" -ge 4 ] && [ "$(hash_of on.out)" = "$(whole $((n + 3)))" ] && ! grep -q damaged on.out; echo $?)" \
    'one of three processes killed, two go on: the same bits' "status $status, step $n, then status $again, not $(hash_of whole.out)" "$(tail -n 4 on.out)"

# A signal to mpirun that it gives on, maybe twice, and signals to one process: all save the same step, and a run goes on bit-equal.
for signal in USR1 'USR1 1' 'TERM 1' 'INT 2' 'HUP 0' 'TERM 0'; do
    rm -rf out
    "${launch[@]}" -n 3 "$parallel" "${run[@]}" --steps 1000000 --checkpoint-every 1000 --devices cpu:1 --out out > stopped.out 2>&1 < /dev/null &
    child=$!
    started out/log.jsonl
    who=${signal#* }
    [ "$who" != "$signal" ] && who=$(pgrep -f "^$parallel .*--out out" | sed -n "$((who + 1))p") || who=$(pgrep -f '^mpirun .*--out out' | head -n 1)
    kill "-${signal% *}" "$who"
    [ "$signal" != USR1 ] || { sleep 0.01; kill -USR1 "$who"; }
    wait $child
    status=$?
    n=$(step_of out)
    "$program" --resume out --devices cpu:1 --steps $((n + 3)) --hash > on.out 2>&1
    report "$([ $status = 0 ] && [ "$n" -gt 0 ] && grep -q "^stopped after step $n of" stopped.out && [ -n "$(hash_of on.out)" ] &&
        [ "$(hash_of on.out)" = "$(whole $((n + 3)))" ]; echo $?)" "mpirun, SIG${signal/ / to process }: all save and stop" "status $status, step $n" "$(tail -n 3 stopped.out)"
done

# A supervised mpirun is stopped in a step of some seconds, more than it gives its processes behind SIGTERM: all end it and save
rm -rf out
bash "$supervise" out "${launch[@]:4}" -n 2 "$parallel" "${run[@]}" --model gpt2:layers=4,width=64,heads=2,context=64 --steps 1000000 --devices cpu:1@0.05 \
    --plan pp --out out > supervised.out 2> supervised.err < /dev/null &
child=$!
started out/log.jsonl
kill -TERM $child
wait $child
status=$?
report "$([ $status = 0 ] && [ "$(step_of out)" -gt 0 ] && grep -q "^stopped after step $(step_of out) of" supervised.out &&
    ! pgrep -f "^$parallel .*--out out" > supervised.left; echo $?)" 'a supervised mpirun is stopped: all end the step and save' "status $status" \
    "$(cat supervised.left)" "$(tail -n 4 supervised.err)"

# Processes that would begin with different frozen weights: refused before the first step, so nothing is saved.
"$program" "${run[@]}" --steps 1 --export . > /dev/null 2>&1
mkdir -p base flipped
cp config.json model.safetensors base
cp config.json model.safetensors flipped
size=$(wc -c < model.safetensors)
byte=$(od -An -tu1 -j $((size - 400)) -N 1 model.safetensors)
printf "\\$(printf %03o $((byte ^ 1)))" | dd of=flipped/model.safetensors bs=1 seek=$((size - 400)) conv=notrunc 2> /dev/null
lora=(--data text --lora 2 --lora-target o --sequences 4 --micro-batches 2 --steps 8 --evaluate-every 0 --quiet --devices cpu:1 --checkpoint-every 5 --verify 3)
rm -rf out
"${launch[@]}" -n 1 "$parallel" "${lora[@]}" --init base --out out : -n 2 "$parallel" "${lora[@]}" --init flipped --out out > on.out 2>&1 < /dev/null
status=$?
report "$([ $status != 0 ] && grep -q -- '--init: process [12] has weights with fingerprint [0-9a-f]*, process 0 has weights with fingerprint' on.out &&
    [ "$(step_of out)" = 0 ] && ! grep -q '^step' on.out; echo $?)" 'weights of processes that differ are refused before the first step' "status $status" "$(tail -n 4 on.out)"
finish
