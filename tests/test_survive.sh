#!/bin/bash
# Runs of build/train that are stopped, killed and continued: the weights of one that never was. HETRAIN_TEST_KILLS sets how many times one is killed
# with SIGKILL (20; make soak: 2000), HETRAIN_TEST_LINKS how many times it is stopped and continued on other devices (3), HETRAIN_TEST_FIRST_ROUND when.
# Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
program=$PWD/${BUILD:-build}/checked/train
parallel=$PWD/${BUILD:-build}/mpi/train_mpi
supervise=$PWD/examples/supervise.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
head -c 30000 hetrain.h > "$work/text"
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

# ---- signals: the step is finished and saved, the program ends well and says how to go on ----
for signal in INT TERM HUP; do
    rm -rf out
    set -m # else a job in the background would ignore SIGINT
    "$program" "${run[@]}" --steps 1000000 --out out > stopped.out 2>&1 &
    set +m
    child=$!
    started out/log.jsonl
    kill -$signal $child
    wait $child
    status=$?
    n=$(step_of out)
    line=$(grep '^stopped after step' stopped.out)
    report "$([ $status = 0 ] && [ "$n" -gt 0 ] && [ "$line" = "stopped after step $n of 1000000; continue with: $program --resume out" ]; echo $?)" \
        "SIG$signal: saved, status 0, a line" "status $status, step $n" "$(tail -n 3 stopped.out)"
    ${line#*continue with: } --steps $((n + 4)) --hash > on.out 2>&1
    report "$([ -n "$(hash_of on.out)" ] && [ "$(hash_of on.out)" = "$(whole $((n + 4)))" ]; echo $?)" 'continued as it says: the same bits' "$(tail -n 3 on.out)"
done

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

# ---- stopped and continued on other devices ----
layouts=('--devices cpu:1' '--devices cpu:2' '--devices cpu:1,cpu:1' '--devices cpu:1,cpu:1 --plan pp' '--devices cpu:1,cpu:1 --plan pp --schedule zb-h1'
    '--devices cpu:1,cpu:1@0.5 --shard-gradients' '--devices cpu:1,cpu:1,cpu:1,cpu:1 --plan pp' '--devices cpu:1 --recompute --slices 2')
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
kills=${HETRAIN_TEST_KILLS:-20}
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
printf '#!/bin/sh\n[ "$1" != b ]\n' > ping.sh
chmod +x ping.sh
SUPERVISE_PING=./ping.sh bash "$supervise" --hosts a,b,c out sh -c 'echo {np} {hosts} > said' 2> /dev/null
report "$([ "$(cat said)" = '2 a,c' ]; echo $?)" 'hosts that do not answer are left out' "$(cat said)"
bash "$supervise" --retries 2 nothing sh -c 'exit 1' 2> supervised.err
report "$([ $? = 1 ] && grep -q '2 restarts brought no new checkpoint' supervised.err; echo $?)" 'it gives up where nothing gets on' "$(tail -n 2 supervised.err)"
bash "$supervise" nothing "$program" --data nothere 2> supervised.err
report "$([ $? = 2 ]; echo $?)" 'and at once where the command is wrong' "$(tail -n 2 supervised.err)"

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

# Processes that began with different frozen weights: found before anything is saved.
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
report "$([ $status != 0 ] && grep -q -- '--verify: step 3: copies of [a-z0-9._]* (block [0-9]*) differ: rank 1, 2 against rank 0' on.out && [ "$(step_of out)" = 0 ]
    echo $?)" 'weights of processes that differ are found before anything is saved' "status $status" "$(tail -n 4 on.out)"
finish
