#!/bin/bash
# train --islands: over TCP and MPI, unequal islands, one hash; fewer bits; an island that is killed comes back; what is refused. Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
programs=$PWD/${BUILD:-build}
program=$programs/checked/train
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
head -c 60000 hetrain.h > "$work/text"; cat hetrain.h > "$work/long"
cd "$work" || exit 2
unset HETRAIN_WORLD_SECRET RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE
run=(--data text --model gpt2:layers=2,width=32,heads=2,context=32 --sequences 4 --micro-batches 2 --evaluate-every 0 --seed 3 --hash --quiet)
island() { # island I N OPTION...: in the background
    local i=$1 n=$2 what=("${run[@]}")
    shift 2
    [ -z "$1" ] && shift && what=(--hash --quiet) # "": nothing but OPTION...
    timeout -k 5 120 "$program" --world "$i/$n@file:$work/meeting" "${what[@]}" "$@" > out.$i 2>&1 < /dev/null &
    child[i]=$!
}
ended() { # ended N: waits for all; the hashes, one if they are one
    local i status=0
    for ((i = 0; i < $1; i++)); do wait "${child[i]}" || status=1; done
    hash=$(for ((i = 0; i < $1; i++)); do grep '^weights' out.$i || echo none; done | sort -u)
    [ $status = 0 ] && [ "$(wc -l <<< "$hash")" = 1 ] && [ "$hash" != none ]
}
reached() { for ((t = 0; t < 600; t++)); do grep -qs -- "$1" "$2" && break; sleep 0.05; done; } # reached TEXT FILE: until it is there
crash() { kill -9 "$(pgrep -P "${child[$1]}")" 2> /dev/null; wait "${child[$1]}" 2> /dev/null; } # crash I

# One that was started again has to wait for the others' next join, longer than processes of one run wait; the other comes in the end
"$program" --world "1/2@file:$work/late" "${run[@]}" --steps 12 --islands 4 --devices cpu:1 > late.1 2>&1 < /dev/null &
late=$! begin=$SECONDS
trap 'kill "$late" 2> /dev/null; rm -rf "$work"' EXIT
island 0 2 --steps 12 --islands 4 --devices cpu:1
island 1 2 --steps 12 --islands 4 --devices cpu:1,cpu:1 --plan pp
ended 2; report $? 'two islands over TCP, one of two ranks: one hash' "$hash" "$(cat out.0 out.1)"
plain=$hash
island 0 2 --steps 12 --islands 4 --devices cpu:1,cpu:1 --plan dp --slow 3:0@0.3
island 1 2 --steps 12 --islands 4 --devices cpu:2
ended 2; report "$([ $? = 0 ] && [ "$hash" = "$plain" ]; echo $?)" 'other devices and plans: the same' "$hash" "$plain"
island 0 2 --steps 12 --islands 4 --devices cpu:1
island 1 2 --steps 6 --islands 2 --devices cpu:1
ended 2; report "$([ $? = 0 ] && [ "$hash" != "$plain" ]; echo $?)" 'islands of 4 and 2 steps a round' "$hash"
for slow in 1.0 0.2; do # joins at 1, 2, 2.5, 3, 4 and, both together, 5
    island 0 2 --steps 100 --islands 20 --devices cpu:1@$slow --island-seconds 1
    island 1 2 --steps 80 --islands 40 --devices cpu:1,cpu:1 --plan pp --island-seconds 2.5
    ended 2; status=$?
    [ $slow = 1.0 ] && paced=$hash
    report "$([ $status = 0 ] && [ "$hash" = "$paced" ]; echo $?)" "joins in the order of what rounds were simulated to take, speed $slow" "$hash" "$paced" \
        "$(cat out.0 out.1)"
done
island 0 2 --steps 100 --islands 20 --devices cpu:1@0.05 --island-seconds 1
island 1 2 --steps 80 --islands 40 --devices cpu:1@0.02 --island-seconds 2.5 --out kept.1 --checkpoint-every 5 # killed long before step 40
reached step kept.1/latest
crash 1
island 1 2 "" --resume kept.1 --islands 40 --devices cpu:1
ended 2; report "$([ $? = 0 ] && [ "$hash" = "$paced" ]; echo $?)" 'one of them killed, and gone on' "$hash" "$paced" "$(cat out.0 out.1)"
rm -r kept.1
for option in '--island-bits 2' '--island-fragments 2' '--outer-lr 0.5' '--outer-momentum 0'; do
    # shellcheck disable=SC2086
    for i in 0 1; do island $i 2 --steps 12 --islands 4 --devices cpu:1 $option --out kept.$i --checkpoint-every 2 --keep 9 --overwrite; done
    ended 2; report "$([ $? = 0 ] && [ "$hash" != "$plain" ]; echo $?)" "$option" "$hash" "$(cat out.0 out.1)"
    whole=$hash
    rm -r kept.?/step-0000001* kept.?/step-00000008 # what is left last is in the middle of a round
    for i in 0 1; do island $i 2 "" --resume kept.$i --islands 4; done
    ended 2; report "$([ $? = 0 ] && [ "$hash" = "$whole" ]; echo $?)" "$option: stopped within a round, all go on with the same bits" "$hash" "$whole" \
        "$(cat out.0 out.1)"
done
rm -r kept.?/step-0000001* kept.0/step-00000008
"$program" --resume kept.0 > out 2>&1
report "$([ $? = 2 ] && grep -q -- '--islands 4: the saved run is one of islands; give it' out; echo $?)" \
    'one of several goes on alone only where that is said' "$(cat out)"
for i in 0 1; do island $i 2 "" --resume kept.$i --islands 4; done
ended 2; report $? 'an island whose checkpoint is older takes the weights of the other' "$hash" "$(cat out.0 out.1)"
# Both are stopped while the fast one waits for a join, its last: it is saved, and makes that join when it goes on
for option in '--outer-lr 0.7' '--island-bits 2'; do
    # shellcheck disable=SC2086
    for i in 0 1; do island $i 2 --steps 12 --islands 12 --devices cpu:1 $option; done
    ended 2
    whole=$hash
    rm -rf kept.?
    # shellcheck disable=SC2086
    for i in 0 1; do island $i 2 --steps 12 --islands 12 --devices cpu:1@0.0$((1 + 8 * i)) $option --out kept.$i; done
    for ((t = 0; t < 600; t++)); do grep -qs '"step":11,' kept.1/log.jsonl && grep -qs '"step":1,' kept.0/log.jsonl && break; sleep 0.05; done
    sleep 0.3
    kill -TERM "${child[@]:0:2}"
    wait "${child[0]}"; status=$?
    wait "${child[1]}"
    report "$([ $((status + $?)) = 0 ] && grep -q '^stopped after step 12 of 12' out.1; echo $?)" "$option: stopped in a join" "$(cat out.0 out.1)"
    for i in 0 1; do island $i 2 "" --resume kept.$i --islands 12 --devices cpu:1; done
    ended 2; report "$([ $? = 0 ] && [ "$hash" = "$whole" ]; echo $?)" "$option: which is made later, with the same bits" "$hash" "$whole" "$(cat out.0 out.1)"
done
rm -rf kept.?
for victim in 0 1; do
    other=$((1 - victim))
    for i in 0 1; do island $i 2 --steps 400 --islands 4 --devices cpu:1@0.1 --out kept.$i; done
    reached '"step":7,' kept.$victim/log.jsonl
    crash $victim
    reached "waits for process $victim" out.$other
    kill -TERM "${child[other]}"
    begun=$SECONDS
    wait "${child[other]}"
    report "$([ $? = 0 ] && [ $((SECONDS - begun)) -le 2 ] && grep -q '^stopped after step' out.$other; echo $?)" \
        "stopped while it waits for island $victim to come back: at once" "$((SECONDS - begun)) s" "$(cat out.$other)"
    rm -r kept.?
done
"$program" "${run[@]}" --steps 12 --devices cpu:1 > out 2>&1
for i in 0 1; do island $i 2 --steps 12 --islands 0 --devices cpu:1; done
ended 2
report "$([ "$(grep -h '^weights' out.0 out.1)" = "$(grep '^weights' out)" ]; echo $?)" '--islands 0: two processes are one run' "$(cat out.0 out.1)" "$(cat out)"
"$program" "${run[@]}" --steps 12 --islands 4 --devices cpu:1 > out.0 2>&1
alone=$(grep '^weights' out.0)
"$program" "${run[@]}" --steps 12 --devices cpu:1 > out.1 2>&1
report "$([ -n "$alone" ] && [ "$alone" != "$(grep '^weights' out.1)" ]; echo $?)" 'one island is an outer step on one machine' "$(cat out.0)"
# model.safetensors and the last validation are of the weights that --hash is of, whenever checkpoints are saved
brief=(--data text --val text --sequences 4 --seed 3 --quiet --devices cpu:1)
fragments=("${brief[@]}" --model gpt2:layers=2,width=32,heads=2,context=32 --schedule-lr constant --evaluate-every 0 --hash --islands 3
    --island-fragments 3)
losses() { grep -o '"val_loss":[^,]*' "$1/log.jsonl"; }
for every in 0 3; do "$program" "${fragments[@]}" --steps 6 --out last.$every --checkpoint-every $every > out.$every 2>&1; done
"$program" "${brief[@]}" --init last.0 --lr 1e-12 --steps 1 --out last.same > out 2>&1
report "$(cmp last.0/model.safetensors last.3/model.safetensors && cmp out.0 out.3 && [ "$(losses last.0)" = "$(losses last.3)" ] &&
    [ "$(losses last.0 | cut -c -18)" = "$(losses last.same | cut -c -18)" ]; echo $?)" 'fragments: what is saved and validated last has all joins' \
    "$(losses last.0)" "$(losses last.3)" "$(losses last.same)" "$(cat out.0 out.3 out)"
"$program" "${fragments[@]}" --steps 9 > whole 2>&1
for every in 0 3; do
    "$program" --resume last.$every --steps 9 --hash --quiet > out 2>&1
    report "$(cmp whole out; echo $?)" "its last checkpoint goes on as a run of more steps, --checkpoint-every $every" "$(cat whole out)"
done
for i in 0 1; do
    pace=(--steps $((8 - 4 * i)) --islands $((4 - 2 * i)) --island-seconds $((1 + i)))
    island $i 2 "${pace[@]}" --devices cpu:1 --out last.$i --overwrite --checkpoint-every 2
done
ended 2
report "$([ $? = 0 ] && cmp last.0/model.safetensors last.1/model.safetensors; echo $?)" 'islands of unequal pace: one model' "$(cat out.0 out.1)"
rm -r last.?
if [ -x "$programs/mpi/train_mpi" ] && command -v mpirun > /dev/null; then
    leaks=$ASAN_OPTIONS
    use_mpirun 120 "$programs/mpi/train_mpi"
    "${launch[@]}" -n 2 "$programs/mpi/train_mpi" "${run[@]}" --steps 12 \
        --islands 4 --devices cpu:1 > out 2>&1
    report "$([ "$(grep '^weights' out | sort -u)" = "$plain" ]; echo $?)" 'over MPI: the same' "$plain" "$(tail -n 3 out)"
    timeout -k 5 120 "$program" --island-world "0/2@file:$work/sea" "${run[@]}" --steps 12 --islands 4 --devices cpu:1 > out.0 2>&1 < /dev/null &
    child[0]=$!
    "${launch[@]}" -n 2 "$programs/mpi/train_mpi" "${run[@]}" --steps 12 \
        --islands 4 --devices cpu:1 --plan pp --island-world "1/2@file:$work/sea" > out.1 2>&1 < /dev/null &
    child[1]=$!
    ended 2; report "$([ $? = 0 ] && [ "$hash" = "$plain" ]; echo $?)" 'an island of two processes under MPI, over TCP to the other: the same' "$plain" "$(cat out.0 out.1)"
    export ASAN_OPTIONS=$leaks
else
    leave_out 'over MPI: there is none'
fi

# Of three processes 1 and 2 are island 1, with a rank each
member() { # member I OPTION...
    local i=$1 where=(--island-world "0/2@file:$work/sea")
    shift
    [ $i = 0 ] || where=(--island-world "1/2@file:$work/sea" --world "$((i - 1))/2@file:$work/inner")
    timeout -k 5 120 "$program" "${where[@]}" --hash --quiet "$@" > out.$i 2>&1 < /dev/null &
    child[i]=$!
}
of_two() { [ "$1" = 0 ] || echo --plan pp; }
all_ended() { wait "${child[2]}"; local status=$?; ended 2 && [ $status = 0 ] && [ ! -s out.2 ]; }
# shellcheck disable=SC2046
for i in 0 1 2; do
    member $i "${run[@]}" --steps 12 --islands 4 --devices cpu:1 $(of_two $i) --out kept.$((i > 0)) --checkpoint-every 2 --keep 9
done
all_ended; report "$([ $? = 0 ] && [ "$hash" = "$plain" ]; echo $?)" 'an island of two processes: the same' "$hash" "$plain" "$(cat out.?)"
rm -r kept.?/step-0000001*
for i in 0 1 2; do member $i --resume kept.$((i > 0)) --islands 4 --devices cpu:1; done
all_ended; report "$([ $? = 0 ] && [ "$hash" = "$plain" ]; echo $?)" 'stopped within a round, it goes on with the same bits' "$hash" "$plain" "$(cat out.?)"
rm -r kept.?
# Its second process is told to stop while the first waits for a join
for i in 0 1 2; do
    # shellcheck disable=SC2046
    member $i "${run[@]}" --steps 12 --islands 12 --devices cpu:1@0.0$((i > 0 ? 9 : 1)) $(of_two $i) --out kept.$((i > 0))
done
reached '"step":11,' kept.1/log.jsonl
reached '"step":1,' kept.0/log.jsonl
sleep 0.3
kill -TERM "${child[2]}"
wait "${child[2]}"; status=$?
wait "${child[1]}"
report "$([ $((status + $?)) = 0 ] && grep -q '^stopped after step 12 of 12' out.1; echo $?)" 'it is stopped in a join, by its second process' "$(cat out.?)"
for i in 1 2; do member $i --resume kept.1 --islands 12 --devices cpu:1; done
all_ended; report $? 'which is made later' "$hash" "$(cat out.?)"
# Process 0, which waits for other islands, hears that its second process differs, is gone, or is told to stop in the last wait of all
two() { for i in 1 2; do member $i "${run[@]}" --devices cpu:1 --plan pp "$@"; done; }
soon() { local begun=$SECONDS; wait "${child[1]}"; [ $? = "$1" ] && [ $((SECONDS - begun)) -le 9 ]; } # soon STATUS
for i in 1 2; do member $i "${run[@]}" --steps 12 --islands 4 --island-world "0/$i@file:$work/sea"; done
soon 2; report "$([ $? = 0 ] && grep -q 'process 1 has island 0 of 2, process 0 has island 0 of 1' out.1; echo $?)" 'processes of two islands are told' "$(cat out.?)"
member 1 "${run[@]}" --steps 12 --islands 4 --world "0/2@file:$work/sea"
soon 2; report "$([ $? = 0 ] && grep -q 'has the same place' out.1; echo $?)" 'islands and the processes of one cannot meet at one place' "$(cat out.1)"
two --steps 12 --islands 4
reached 'waits for process 0' out.1
crash 2
soon 1; report "$([ $? = 0 ] && grep -q 'process 1 .* is gone' out.1; echo $?)" 'gone while the islands meet' "$(cat out.1)"
for way in join end; do
    rm -rf kept.? out.?
    if [ $way = join ]; then
        member 0 "${run[@]}" --steps 40 --islands 20 --devices cpu:1@0.005
        two --steps 40 --islands 20 --out kept.1
        reached '"step":19,' kept.1/log.jsonl
        sleep 0.5
        crash 2
        soon 1; report "$([ $? = 0 ] && grep -q 'process 1 .* is gone' out.1; echo $?)" 'gone while the first waits for a join' "$(cat out.?)"
    else
        member 0 "${run[@]}" --steps 12 --islands 4 --devices cpu:1 --val long --evaluate-batches 100000
        two --steps 12 --islands 4 --val long --evaluate-batches 1 --out kept.1
        reached '^weights' out.1
        kill -TERM "${child[2]}"
        soon 0; report "$([ $? = 0 ] && wait "${child[2]}" && [ -z "$(grep -v '^weights' out.1; cat out.2)" ]; echo $?)" 'told to stop behind the end' "$(cat out.?)"
    fi
    crash 0
done
for victim in 1 2; do
    rm -rf kept.?
    # shellcheck disable=SC2046
    for i in 0 1 2; do member $i "${run[@]}" --steps 400 --islands 4 --devices cpu:1@0.1 $(of_two $i) --out kept.$((i > 0)); done
    reached '"step":7,' kept.1/log.jsonl
    crash $victim; wait "${child[3 - victim]}"; status=$?
    reached 'waits for process 1' out.0
    for i in 1 2; do member $i "${run[@]}" --steps 400 --islands 4 --devices cpu:1 --plan pp --out kept.1 --overwrite; done
    all_ended; report "$([ $? = 0 ] && [ $status != 0 ]; echo $?)" "its process $((victim - 1)) is killed, the other ends, both come back" "$hash" "$(cat out.?)"
done
rm -r kept.?

# one of them is killed when its log has 7 to 106 steps, and started again
kills=${HETRAIN_TEST_KILLS:-2} round=${HETRAIN_TEST_FIRST_ROUND:-0}
for ((k = round; k < round + kills; k++)); do
    victim=$((k % 2)) at=$((7 + k * 37 % 100))
    rm -f log.0 log.1 log.again
    for i in 0 1; do island $i 2 --steps 400 --islands 4 --devices cpu:1@0.1 --log log.$i; done
    reached "\"step\":$at," log.$victim
    crash $victim
    island $victim 2 --steps 400 --islands 4 --devices cpu:1 --log log.again
    ended 2
    report "$([ $? = 0 ] && [ "$(grep -c '"loss"' log.again)" -lt 400 ]; echo $?)" \
        "island $victim is killed behind step $at, comes back, and all end with one hash" "$hash" "$(cat out.0 out.1)"
done

# what is started again with other settings is refused, and ends nobody else's run
rm -f log.1
for i in 0 1; do island $i 2 --steps 400 --islands 4 --devices cpu:1@0.1 --log log.$i; done
reached '"step":7,' log.1
crash 1
island 1 2 --steps 400 --islands 4 --devices cpu:1 --outer-lr 0.5
wait "${child[1]}"
report "$([ $? = 2 ] && grep -q 'other settings' out.1; echo $?)" 'an island that comes with other settings is refused' "$(cat out.1)"
island 1 2 --steps 400 --islands 4 --devices cpu:1
ended 2; report $? 'the others went on, and take it with the right ones' "$hash" "$(cat out.0 out.1)"

# killed, and started again with what it had saved in this round: it trains its own part again, for which the other waits, and nothing is lost
for i in 0 1; do island $i 2 --steps 80 --islands 40 --devices cpu:1; done
ended 2; whole=$hash
for i in 0 1; do island $i 2 --steps 80 --islands 40 --devices cpu:1@0.02 --out kept.$i --checkpoint-every 5; done
reached step kept.1/latest
crash 1
island 1 2 "" --resume kept.1 --islands 40 --devices cpu:1
ended 2
report "$([ $? = 0 ] && [ "$hash" = "$whole" ]; echo $?)" 'killed, and gone on with --resume: the hash of a run without' "$hash" "$whole" "$(cat out.0 out.1)"

# killed behind its last join: the other, which has ended all but this, is still there; when both have ended well, one that goes on needs nobody
rm -rf kept.?
last=(--steps 12 --islands 4 --devices cpu:1 --val long --evaluate-batches)
for i in 0 1; do island $i 2 "${last[@]}" 1; done
ended 2; whole=$hash
for victim in 0 1; do
    other=$((1 - victim))
    rm -f out.?
    for i in 0 1; do island $i 2 "${last[@]}" $((i == victim ? 100000 : 1)) --out kept.$i; done
    reached '^weights' out.$other
    crash $victim
    rm -r kept.$victim
    island $victim 2 "${last[@]}" 1 --out kept.$victim
    ended 2; report "$([ $? = 0 ] && [ "$hash" = "$whole" ]; echo $?)" "island $victim, killed behind the last join, gets the last weights" "$hash" "$(cat out.0 out.1)"
    rm out.$other # has weights, too
    island $other 2 "" --resume kept.$other --islands 4
    reached '^weights' out.$other
    kill -TERM "${child[other]}"
    wait "${child[other]}"
    report "$([ $? = 0 ] && [ "$(grep '^weights' out.$other)" = "$whole" ]; echo $?)" "island $other is resumed behind the end, and waits with all done" "$(cat out.$other)"
    rm -r kept.?
done

# factors are trained on frozen weights, which must be the same
for i in 0 1; do "$program" "${run[@]}" --steps $((1 + i)) --devices cpu:1 --out base.$i > out 2>&1; done
lora=(--data text --sequences 4 --steps 4 --islands 2 --lora 2 --evaluate-every 0 --devices cpu:1 --hash --quiet)
for i in 0 1; do island $i 2 "" "${lora[@]}" --init base.0; done
ended 2; report $? 'low-rank factors: one hash' "$(cat out.0 out.1)"
for i in 0 1; do island $i 2 "" "${lora[@]}" --init base.$i; done
ended 2
report "$([ $? != 0 ] && grep -q 'another model or other settings' out.0; echo $?)" 'low-rank factors of other weights are refused' "$(cat out.0 out.1)"

refused() { # refused TEXT OPTION...
    local text=$1
    shift
    "$program" "${run[@]}" "$@" > out 2>&1
    report "$([ $? = 2 ] && grep -q -- "$text" out && [ "$(wc -l < out)" = 1 ]; echo $?)" "refused: $*" "$(cat out)"
}
refused 'multiple' --steps 10 --islands 4
refused '2 fragments; pace wants 1' --steps 12 --islands 4 --island-fragments 2 --island-seconds 1
refused 'without --islands' --steps 12 --island-seconds 1
refused 'below a microsecond' --steps 12 --islands 4 --island-seconds 1e-9
refused 'island-fragments 3' --steps 12 --islands 4 --island-fragments 3
"$program" "${run[@]}" --steps 12 --islands 4 --devices cpu:1 --out kept --checkpoint-every 4 --keep 9 > out 2>&1 && rm -r kept/step-00000012
report $? 'a run of islands with checkpoints' "$(cat out)"
"$program" --resume kept --out again --quiet --hash > out 2>&1
report "$([ "$(grep '^weights' out)" = "$alone" ] && [ ! -e again/islands.bin ] && [ -e again/step-00000012/islands.bin ]; echo $?)" \
    'and goes on' "$(cat out)"
for i in 0 1; do island $i 2 "" --resume kept; done
ended 2
report "$([ $? != 0 ] && grep -q -- '--islands 4: the saved run is one of islands; give it on the command line' out.0; echo $?)" \
    'processes that were islands and would meet as one run' "$(cat out.0 out.1)"
"$program" "${run[@]}" --steps 12 --devices cpu:1 --out one --checkpoint-every 4 > out 2>&1
for option in '' --force-resume; do
    # shellcheck disable=SC2086
    "$program" --resume one/step-00000008 --out one.2 --islands 4 $option --hash > out 2>&1
    status=$?
    report "$([ $status = $((${#option} > 0 ? 0 : 2)) ] && { [ -n "$option" ] || grep -q -- '--islands 4: the saved run has 0' out; }; echo $?)" \
        "a run without islands goes on with them: $option" "$(cat out)"
done
"$program" --data text --steps 0 --save-profile profile.json --islands 3 > out 2>&1
report "$([ $? = 2 ] && grep -q -- '--islands: has no effect with --steps 0' out; echo $?)" 'nor with no step' "$(cat out)"
"$program" --resume kept --islands 0 > out 2>&1
report "$([ $? = 2 ] && grep -q -- '--islands 0: the saved run has 4' out; echo $?)" 'nor silently without them' "$(cat out)"
"$program" --resume kept --islands 0 --force-resume --quiet --hash > out 2>&1
report "$([ $? = 0 ] && grep -q '^weights' out; echo $?)" 'but so where that is allowed' "$(cat out)"
refused '3 bits (0, 2, 4 or 8)' --steps 12 --islands 4 --island-bits 3
island 0 2 --steps 12 --islands 4 --devices cpu:1 --island-bits 4
island 1 2 --steps 12 --islands 4 --devices cpu:1
ended 2
report "$([ $? != 0 ] && grep -q 'other settings' out.0 out.1; echo $?)" 'islands with other settings' "$(cat out.0 out.1)"
for i in 0 1; do island $i 2 --steps $((12 + 4 * i)) --islands 4 --devices cpu:1; done
ended 2
report "$([ $? != 0 ] && grep -q -- '--steps / --islands must be equal' out.0 out.1; echo $?)" 'nor with other numbers of joins' "$(cat out.0 out.1)"
for odd in 0 1; do
    island $odd 2 --steps 12 --islands 4 --devices cpu:1
    island $((1 - odd)) 2 --steps 12 --devices cpu:1
    ended 2
    report "$([ $? != 0 ] && grep -q 'all processes want --islands, or none' out.0; echo $?)" "of two processes $odd alone is an island" "$(cat out.0 out.1)"
done
while [ $((SECONDS - begin)) -lt 125 ]; do sleep 1; done
timeout -k 5 60 "$program" --world "0/2@file:$work/late" "${run[@]}" --steps 12 --islands 4 --devices cpu:1 > late.0 2>&1 < /dev/null
status=$?
wait "$late" && [ $status = 0 ]
report "$([ $? = 0 ] && [ "$(grep -h '^weights' late.0 late.1 | sort -u)" = "$plain" ]; echo $?)" 'an island waits for the others for more than two minutes' \
    "$(cat late.0 late.1)"
finish
