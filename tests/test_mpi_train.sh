#!/bin/bash
# train under mpirun: as many processes, ranks a process and plans as there may be, one hash; processes that are killed or given something
# bad end the job. HETRAIN_TEST_KILLS sets how many kills (make soak: 50). Prints TAP.
cd "$(dirname "$0")/.." || exit 2
program=$PWD/${BUILD:-build}/mpi/train_mpi
alone=$PWD/${BUILD:-build}/checked/train
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
count=0
failures=0
export ASAN_OPTIONS=detect_leaks=0 # MPI and what it loads keep much until the end

report() { # report STATUS NAME DETAIL...
    count=$((count + 1))
    if [ "$1" = 0 ]; then
        echo "ok $count - $2"
    else
        echo "not ok $count - $2"
        printf '%s\n' "${@:3}" | sed 's/^/# /'
        failures=$((failures + 1))
    fi
}

if ! command -v mpirun > /dev/null || ! [ -x "$program" ]; then
    echo 'not ok 1 # SKIP mpirun or mpicc is missing: nothing was trained in several processes (Debian: openmpi-bin libopenmpi-dev)'
    echo '1..1'
    exit 0
fi

launch=(timeout -k 5 180 mpirun)
if mpirun --version 2> /dev/null | grep -q 'Open MPI'; then
    launch+=(--oversubscribe --mca mpi_yield_when_idle 1) # more processes than cores: the waiting ones yield
    [ "$(id -u)" = 0 ] && launch+=(--allow-run-as-root)
fi

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
same 2 --devices cpu:1 --replan '2:pp,4x3:dp,6x1:pp:0-0|1-7'
same 3 --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan pp --schedule zb-h1 --replan '3x2:dp2xpp2,5:pp:0-1|2-3|4-5|6-7,7x24:dp' --slow 2:3@0.5
same 2 --devices cpu:1 --plan auto --plan-seconds 1 --adapt --slow 4:1@0.3
same 3 --devices cpu:1,cpu:1@0.5,cpu:1,cpu:1@0.5 --plan auto --plan-seconds 1

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
refuses 'memory_limit' --devices cpu:1,cpu:1/2K
refuses 'step 4|rank 1|memory_limit' --devices cpu:1,cpu:1/1450K --plan 'pp:0-6|7-7' --replan 4:pp

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

echo "1..$count"
[ $failures = 0 ]
