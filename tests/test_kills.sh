#!/bin/bash
# Runs of three processes, over TCP and under mpirun, of which one gets a signal again and again: SIGKILL ends all, the others save and stop all; what
# is there goes on in another layout, and ends with the bits of a run that never stopped. HETRAIN_TEST_KILLS: how many times by each signal on each
# process (tests/tools/soak.sh signals: 100; without it each signal once, on one of the processes), HETRAIN_TEST_FIRST_ROUND when and in which layouts,
# HETRAIN_TEST_TRANSPORTS which ones (tcp mpi). Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
program=$PWD/${BUILD:-build}/checked/train
parallel=$PWD/${BUILD:-build}/mpi/train_mpi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
head -c 30000 hetrain.h > "$work/text"
cd "$work" || exit 2
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE
run=(--data text --model gpt2:layers=2,width=16,heads=1,context=16 --sequences 4 --micro-batches 3 --granule 1 --schedule-lr constant --evaluate-every 0 --quiet)
layouts=('--plan dp' '--plan pp' '--plan pp --schedule zb-h1' '--plan dp --shard-gradients' '--plan dp --shard weights' '--plan pp:0-1|2-3|4-5 --schedule gpipe'
    '--plan {"pipelines":[{"stages":[{"rank":0,"units":[0,6]}]},{"stages":[{"rank":1,"units":[0,6]}]}],"keepers":[2],"state_shares":[0,1,2]} --shard weights'
    '--plan pp --schedule gpipe --store 1')
first=${HETRAIN_TEST_FIRST_ROUND:-0}
rounds=${HETRAIN_TEST_KILLS:-1}

random=$((54321 + first))
below() { random=$(((random * 1103515245 + 12345) % 2147483648)); picked=$(((random >> 12) % $1)); }
step_of() { local latest; latest=$(cat "$1/latest" 2> /dev/null); latest=${latest#step-}; echo $((10#${latest:-0})); }
# until SECONDS COMMAND...: it succeeds within that time
until_true() {
    local i most=$(($1 * 50))
    shift
    for ((i = 0; i < most; i++)); do "$@" && return 0; sleep 0.02; done
    return 1
}
opened() { [ -s killed.jsonl ]; }
stepped() { grep -q '"loss"' killed.jsonl 2> /dev/null; }
gone() { ! kill -0 "${children[@]}" 2> /dev/null; }
process_of() { # process_of NUMBER: sets pid to that of a process that mpirun started
    for pid in $(pgrep -f "^$parallel .*$work/killed.jsonl"); do
        tr '\0' '\n' 2> /dev/null < "/proc/$pid/environ" | grep -qxE "(OMPI_COMM_WORLD|PMI)_RANK=$1" && return 0
    done
    return 1
}

# begin TRANSPORT: starts the run, or goes on with it; sets children
begin() {
    local i options
    rm -f killed.jsonl meeting
    below ${#layouts[@]}
    read -ra options <<< "${layouts[picked]}"
    options+=(--devices cpu:1 --quiet --log "$work/killed.jsonl")
    if [ "$(step_of out)" -gt 0 ]; then options+=(--resume out)
    else
        rm -rf out
        options+=("${run[@]}" --steps 1000000 --checkpoint-every 3 --out out)
    fi
    children=()
    set -m # else a job in the background would ignore SIGINT
    if [ "$1" = mpi ]; then
        "${launch[@]}" -n 3 "$parallel" "${options[@]}" > out.0 2>&1 < /dev/null &
        children=($!)
    else
        for i in 0 1 2; do
            "$program" --world "$i/3@file:$work/meeting" "${options[@]}" > out.$i 2>&1 < /dev/null &
            children[i]=$!
        done
    fi
    set +m
}

# strike TRANSPORT SIGNAL PROCESS: one kill; sets wrong to what is not as it should be
strike() {
    local i status statuses=
    wrong=
    begin "$1"
    below 4
    if [ "$2" = KILL ] && [ $picked = 0 ]; then until_true 60 opened # while it starts
    else until_true 60 stepped; fi || wrong="it did not start: $(tail -n 1 out.0)"
    below 120
    sleep "0.$(printf %03d $picked)"
    pid=${children[$3]:-}
    [ "$1" = tcp ] || until_true 20 process_of "$3" || wrong="$wrong no process $3"
    kill -"$2" "$pid" 2> /dev/null || wrong="$wrong process $3 had ended"
    if ! until_true 60 gone; then
        wrong="$wrong it does not end"
        kill -9 "${children[@]}" 2> /dev/null
    fi
    for i in "${children[@]}"; do
        wait "$i"
        status=$?
        statuses="$statuses $status"
        if [ "$2" = KILL ]; then [ $status != 0 ] || wrong="$wrong one ends well"
        else [ $status = 0 ] || wrong="$wrong one ends badly"; fi
    done 2> /dev/null
    [ "$2" = KILL ] || grep -q "^stopped after step $(step_of out) of" out.0 || wrong="$wrong no line about step $(step_of out)"
    grep -q damaged out.[0-2] && wrong="$wrong damaged"
    [ -z "$wrong" ] || wrong="SIG$2 to process $3:$wrong (status$statuses) $(grep -h '^train: ' out.[0-2] | head -n 2)"
}

for transport in ${HETRAIN_TEST_TRANSPORTS:-tcp mpi}; do
    if [ "$transport" = mpi ] && { ! command -v mpirun > /dev/null || ! [ -x "$parallel" ]; }; then
        leave_out 'mpirun or mpicc is missing: processes under mpirun were not killed'
        continue
    fi
    [ "$transport" = tcp ] || use_mpirun 300 "$parallel"
    for ((round = first; round < first + rounds; round++)); do
        bad= kills=0 number=$round
        rm -rf out
        for signal in KILL TERM INT HUP USR1; do
            number=$((number + 1))
            for who in 0 1 2; do
                [ -n "${HETRAIN_TEST_KILLS:-}" ] || [ $who = $((number % 3)) ] || continue
                strike "$transport" $signal $who
                [ -z "$wrong" ] || bad="$bad
$wrong"
                kills=$((kills + 1))
            done
        done
        n=$(step_of out)
        "$program" --resume out --devices cpu:1 --steps $((n + 3)) --hash > on.out 2>&1
        "$program" "${run[@]}" --devices cpu:1 --steps $((n + 3)) --hash > whole.out 2>&1
        hash=$(grep -E '^weights [0-9a-f]{16}$' whole.out)
        [ -n "$hash" ] && [ "$(grep '^weights' on.out)" = "$hash" ] || bad="$bad
step $n: other bits: $(tail -n 1 on.out)"
        left=$(find out -name '*.tmp' -o -name '*.old')
        [ -z "$left" ] || bad="$bad
left behind: $left"
        report "$([ -z "$bad" ]; echo $?)" "$transport, round $round: $kills kills, at step $n the same bits" "$bad"
    done
done
finish
