#!/bin/bash
# train under mpirun: as many processes, ranks a process and plans as there may be, one hash; processes that are killed or given something
# bad end the job. HETRAIN_TEST_KILLS sets how many kills (make soak: 50), HETRAIN_TEST_DRAWN how many
# layouts are drawn (100). Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
. tests/tools/late_lists.sh
program=$PWD/${BUILD:-build}/mpi/train_mpi
alone=$PWD/${BUILD:-build}/checked/train
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
use_mpirun 180 "$program"

head -c 60000 hetrain.h > "$work/text"
cd "$work" || exit 2
run=(--data text --model gpt2:layers=3,width=32,heads=2,context=16 --length 16 --sequences 4 --micro-batches 6 --evaluate-every 4 --seed 3 --hash --quiet)
"$alone" "${run[@]}" --steps 8 --devices cpu:1 > out 2>&1
hash=$(grep '^weights' out)
report "$([ -n "$hash" ]; echo $?)" 'one process without MPI' "$(cat out)"

# same PROCESSES OPTION...
same() {
    local n=$1
    shift
    "${launch[@]}" -n "$n" "$program" "${run[@]}" --steps 8 "$@" > out 2>&1 < /dev/null
    report "$([ $? = 0 ] && [ "$hash" = "$(grep '^weights' out)" ]; echo $?)" "$n processes: $*" "$hash" "$(tail -n 5 out)"
}
same 1 --devices cpu:2
same 2 --devices cpu:1
same 2 --devices cpu:1 --plan pp --schedule zb-h1
same 3 --devices cpu:1 --plan 'pp:0-1|2-5|6-7' --schedule 1f1b
same 4 --devices cpu:1 --plan dp2xpp2 --schedule gpipe
same 2 --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan dp
same 2 --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan pp --schedule interleaved
same 2 --devices cpu:1,cpu:1,cpu:1 --plan pp --schedule v-half
same 2 --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan dp --shard-gradients
same 3 --devices cpu:1 --plan dp --shard weights
keeper='{"pipelines":[{"share":2,"stages":[{"rank":0,"units":[0,3]},{"rank":2,"units":[3,8]}]},{"stages":[{"rank":1,"units":[0,8]}]}],"keepers":[3],"state_shares":[1,0,2,2],"near":[0,0,1,1]}'
same 2 --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan "$keeper"
same 4 --devices cpu:1 --plan "$keeper" --shard weights --schedule zb-h1
same 3 --devices cpu:1 --plan cp:2,1,1
same 2 --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan pp2xhp2 --schedule zb-h1 --shard-gradients
same 2 --devices cpu:1 --plan hp:1,2
same 2 --devices cpu:1 --plan tp:2,1
same 2 --devices cpu:1 --replan '2:tp2,5:pp,7:tp2'
same 2 --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan dp2xtp2 --shard gradients
# several updates a step: bits of their own, of one rank as of two processes, and of pipelines that share micro-batches, which are others
once=$hash often=(--updates 3 --staleness 1)
hash=$("$alone" "${run[@]}" --steps 8 --devices cpu:1 "${often[@]}" | grep '^weights')
same 2 --devices cpu:1 --plan pp --schedule 1f1b "${often[@]}"
served='{"pipelines":[{"share":2,"stages":[{"rank":0,"units":[0,8]}]},{"stages":[{"rank":1,"units":[0,8]}]}],"keepers":[2],"state_shares":[0,1,2]}'
hash=$("$alone" "${run[@]}" --steps 8 --devices cpu:1,cpu:1,cpu:1 --plan "$served" "${often[@]}" | grep '^weights')
same 3 --devices cpu:1 --plan "$served" "${often[@]}"
late_lists "$alone"
# experts divided among two processes of two ranks each
moe=(--model llama:layers=3,width=32,heads=4,context=16 --experts 4,2)
hash=$("$alone" "${run[@]}" --steps 8 --devices cpu:1 "${moe[@]}" | grep '^weights')
same 2 --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan tp4 "${moe[@]}"
# frozen weights of int8: parts of them, slices, stages recomputed as a whole, activations on the host
"$alone" "${run[@]}" --steps 1 --devices cpu:1 --out base > out
narrow=(--init base --lora 2 --weights int8 --granule 1)
hash=$("$alone" "${run[@]}" --steps 8 --devices cpu:1 "${narrow[@]}" | grep '^weights')
same 3 --devices cpu:1 --plan dp --shard weights --slices 2 --recompute stage "${narrow[@]}"
same 2 --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan "$keeper" --shard weights --store 1 "${narrow[@]}"
hash=$once
same 3 --devices cpu:1 --plan 'pp:0-1|2-5|6-7' --schedule zb-h1 --shard-gradients
same 2 --devices cpu:1 --replan '2:pp,4x3:dp,6x1:pp:0-0|1-7'
same 3 --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan pp --schedule zb-h1 --replan '3x2:dp2xpp2,5:pp:0-1|2-3|4-5|6-7,7x24:dp' --slow 2:3@0.5
same 2 --devices cpu:1 --plan auto --plan-seconds 1 --adapt --slow 4:1@0.3
same 3 --devices cpu:1,cpu:1@0.5,cpu:1,cpu:1@0.5 --plan auto --plan-seconds 1
same 2 --devices cpu:1 --plan pp --schedule gpipe --store 1

# drawn N: processes, ranks, plan, schedule, slices and the rest by chance; N fixes all of it
drawn() {
    local seed=$((($1 * 7919 + 11) % 2147483648)) ranks processes devices plans schedules options=()
    below() { seed=$(((seed * 1103515245 + 12345) % 2147483648)); picked=$(((seed >> 12) % $1)); }
    below 4; ranks=$((picked + 1))
    below $ranks; processes=$((picked + 1))
    devices=cpu:1
    for _ in $(seq 2 $ranks); do below 3; devices+=,cpu:$((1 + (picked == 0))); done
    schedules=(1f1b gpipe zb-h1 zb-h2 greedy sliced-1f1b terapipe)
    plans=(dp pp dp)
    [ $ranks = 4 ] && plans=(dp pp dp2xpp2 dp2xpp "$keeper")
    [ $ranks = 3 ] && plans=('pp:0-1|2-5|6-7' pp '{"pipelines":[{"share":2,"stages":[{"rank":2,"units":[0,3]},{"rank":0,"units":[3,8]}]},{"share":1,"stages":[{"rank":1,"units":[0,8]}]}],"state_shares":[1,0,2]}')
    below ${#plans[@]}; options+=(--plan "${plans[picked]}")
    [ "${plans[picked]}" = pp ] && [ $ranks -gt 1 ] && schedules+=(interleaved zb-v v-half v-min)
    below ${#schedules[@]}; options+=(--schedule "${schedules[picked]}")
    below 3; [ $picked = 0 ] && options+=(--slices 2)
    below 3; [ $picked = 0 ] && options+=(--recompute)
    below 4; [ $picked = 0 ] && options+=(--shard-gradients); [ $picked = 1 ] && options+=(--shard weights)
    below 3; [ $picked != 0 ] && options+=(--store $picked)
    below 3; [ $picked = 0 ] && options+=(--sequences 2 --micro-batches 12)
    if [ "${options[1]:0:1}" = '{' ]; then
        printf '%s' "${options[1]}" > drawn.json
        options[1]=drawn.json
    fi
    same $processes --granule 1 --devices "$devices" "${options[@]}"
}
"$alone" "${run[@]}" --granule 1 --steps 8 --devices cpu:1 > out 2>&1
hash_before=$hash
hash=$(grep '^weights' out)
for i in $(seq "${HETRAIN_TEST_DRAWN:-4}"); do drawn "$i"; done
hash=$hash_before

# saved by two processes, continued by one and by three
"${launch[@]}" -n 2 "$program" "${run[@]}" --steps 8 --devices cpu:1 --plan pp --out saved --checkpoint-every 5 --timeline t.svg > out 2>&1 < /dev/null
report "$([ $? = 0 ] && [ "$hash" = "$(grep '^weights' out)" ] && grep -q '</svg>' t.svg; echo $?)" 'two processes save' "$(tail -n 5 out)"
mkdir -p from && cp -r saved/step-*5 from/ 2> /dev/null
"$alone" --data text --resume from --devices cpu:1 --hash --quiet > out 2>&1
report "$([ "$hash" = "$(grep '^weights' out)" ]; echo $?)" 'one process goes on' "$(tail -n 5 out)"
"${launch[@]}" -n 3 "$program" --data text --resume from --devices cpu:1 --hash --quiet > out 2>&1 < /dev/null
report "$([ "$hash" = "$(grep '^weights' out)" ]; echo $?)" 'three processes go on' "$(tail -n 5 out)"

# refuses WORDS OPTION...: fails before training, with one line of the program
refuses() {
    local words=$1 word bad=
    shift
    "${launch[@]}" -n 2 "$program" "${run[@]}" --steps 8 "$@" > out 2>&1 < /dev/null && bad='exit status 0'
    [ "$(grep -c '^train: ' out)" = 1 ] || bad="$bad $(grep -c '^train: ' out) lines"
    IFS='|' read -ra list <<< "$words"
    for word in "${list[@]}"; do grep '^train: ' out | grep -qF -- "$word" || bad="$bad no '$word'"; done
    report "$([ -z "$bad" ]; echo $?)" "refused: $*" "$bad" "$(head -n 8 out)"
}
refuses '--plan|pp3' --devices cpu:1 --plan pp3
refuses '--data|nothere' --data nothere
refuses '--devices|threads' --devices cpu:1,cpu:0
refuses '--devices|more than its limit' --devices cpu:1,cpu:1/2K
refuses 'rank 1|--devices|more than its limit' --devices cpu:1,cpu:1/1485K --plan 'pp:0-6|7-7' --replan 4:pp

# what only one process finds wrong is said by the one that speaks
"${launch[@]}" -n 1 "$program" "${run[@]}" --steps 8 --devices cpu:1 : -n 1 "$program" "${run[@]}" --data nothere --steps 8 --devices cpu:1 > out 2>&1 < /dev/null
report "$(! [ $? = 0 ] && grep '^train: ' out | grep -q 'process 1 failed: .*nothere'; echo $?)" 'one of two processes has no data' "$(head -n 8 out)"

# killed N: one of three processes dies somewhere in a long run; the job ends by itself, soon, and nobody is left
killed() {
    local copy=$work/train_mpi_$1 begin bad= victim
    cp "$program" "$copy"
    "${launch[@]}" -n 3 "$copy" "${run[@]}" --steps 100000 --devices cpu:1 --plan pp > out 2>&1 < /dev/null &
    for _ in $(seq 100); do
        victim=$(pgrep -f "^$copy " | sed -n "$((1 + $1 % 3))p")
        [ -n "$victim" ] && break
        sleep 0.1
    done
    sleep "1.$(($1 * 37 % 90))"
    begin=$SECONDS
    kill -9 "$victim" 2> /dev/null || bad='no process to kill'
    wait $! && bad="$bad the job succeeded"
    [ $((SECONDS - begin)) -le 20 ] || bad="$bad it took $((SECONDS - begin)) s to end"
    sleep 0.3
    pgrep -f "^$copy " > /dev/null && bad="$bad processes are left" && pkill -9 -f "^$copy "
    report "$([ -z "$bad" ]; echo $?)" "kill $1" "$bad" "$(head -n 8 out)"
}
for i in $(seq "${HETRAIN_TEST_KILLS:-2}"); do killed "$i"; done

finish
