#!/bin/bash
# train in several processes over TCP: by --world, a file or torchrun's variables, layouts, checkpoints; one hash. Processes that are killed or given
# something bad end all others. Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
programs=$PWD/${BUILD:-build}
program=$programs/checked/train
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
head -c 60000 hetrain.h > "$work/text"
cd "$work" || exit 2
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE
run=(--data text --model gpt2:layers=3,width=32,heads=2,context=16 --length 16 --sequences 4 --micro-batches 6 --evaluate-every 4 --seed 3 --hash --quiet)
"$program" "${run[@]}" --steps 8 --devices cpu:1 > out 2>&1
hash=$(grep '^weights' out)
report "$([ -n "$hash" ]; echo $?)" 'one process' "$(cat out)"

# together PROCESSES OPTION...: all of them, with --world; their output is in out.0 and so on. Succeeds when all do
together() {
    local n=$1 i status=0 children=()
    shift
    for ((i = n - 1; i >= 0; i--)); do
        timeout -k 5 120 "$program" --world "$i/$n@file:$work/meeting" "$@" > out.$i 2>&1 < /dev/null &
        children+=($!)
    done
    for i in "${children[@]}"; do wait "$i" || status=1; done
    cat $(seq -f out.%g 0 $((n - 1))) > out
    return $status
}

same() { # same PROCESSES OPTION...
    local n=$1
    shift
    together "$n" "${run[@]}" --steps 8 "$@"
    report "$([ $? = 0 ] && [ "$hash" = "$(grep '^weights' out)" ] && [ ! -e meeting ]; echo $?)" "$n processes: $*" "$hash" "$(tail -n 5 out)"
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
same 3 --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan pp --schedule zb-h1 --replan '3x2:dp2xpp2,5:pp:0-1|2-3|4-5|6-7,7x24:dp' --slow 2:3@0.5
same 2 --devices cpu:1 --plan auto --plan-seconds 1 --adapt --slow 4:1@0.3

# saved by two processes, continued by one and by three
together 2 "${run[@]}" --steps 8 --devices cpu:1 --plan pp --out saved --checkpoint-every 5
report "$([ $? = 0 ] && [ "$hash" = "$(grep '^weights' out)" ]; echo $?)" 'two processes save' "$(tail -n 5 out)"
mkdir -p from && cp -r saved/step-*5 from/ 2> /dev/null
"$program" --data text --resume from --devices cpu:1 --hash --quiet > out 2>&1
report "$([ "$hash" = "$(grep '^weights' out)" ]; echo $?)" 'one process goes on' "$(tail -n 5 out)"
together 3 --data text --resume from --devices cpu:1 --hash --quiet
report "$([ $? = 0 ] && [ "$hash" = "$(grep '^weights' out)" ]; echo $?)" 'three processes go on' "$(tail -n 5 out)"

# ---- host and port, as variables and as an option ----
free_port() { # one that nobody listens at now
    local port
    for port in $(seq $((20000 + $$ % 10000)) 31000); do
        (: < "/dev/tcp/127.0.0.1/$port") 2> /dev/null || { echo "$port"; return; }
    done
}
port=$(free_port)
(export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
    RANK=0 timeout 120 "$program" "${run[@]}" --steps 8 --devices cpu:1 > out.0 2>&1 &
    RANK=1 timeout 120 "$program" "${run[@]}" --steps 8 --devices cpu:1 > out.1 2>&1
    first=$?
    wait $! && [ $first = 0 ])
report "$([ $? = 0 ] && [ "$hash" = "$(grep -h '^weights' out.0 out.1)" ]; echo $?)" 'RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT' "$(tail -n 3 out.0 out.1)"
port=$(free_port)
timeout 120 "$program" "${run[@]}" --steps 8 --devices cpu:1 --world "0/2@localhost:$port" > out.0 2>&1 &
timeout 120 "$program" "${run[@]}" --steps 8 --devices cpu:1 --world="1/2@localhost:$port" > out.1 2>&1
status=$?
wait $! || status=1
report "$([ $status = 0 ] && [ "$hash" = "$(grep -h '^weights' out.0 out.1)" ]; echo $?)" 'HOST:PORT' "$(tail -n 3 out.0 out.1)"
launcher=$(command -v torchrun)
for with in "$program" "$programs/mpi/train_mpi"; do # the latter goes by torchrun's variables as well
    [ -n "$launcher" ] && [ -x "$with" ] || continue
    timeout 200 "$launcher" --standalone --nproc-per-node 2 --no-python "$with" "${run[@]}" --steps 8 --devices cpu:1 > out 2>&1 < /dev/null
    report "$([ "$hash" = "$(grep '^weights' out)" ]; echo $?)" "torchrun ${with##*/}" "$(tail -n 5 out)"
done

# ---- what is refused ----
fails() { # fails WORDS COMMAND...: status 2, one line with the words
    local words=$1
    shift
    refusal "$words" "$@"
    report "$([ -z "$bad" ]; echo $?)" "refused: $words" "$bad" "$line"
}
for where in 2/2@h:1 -1/2@h:1 x/2@h:1 1/2 1/2@h 1/2@:1 1/2@h:0 1/2@h:65536 1/2@file: 1/3000@h:1 1@h:1/2 1/2@::1:5 0/0@h:1; do
    fails "--world $where" "$program" "${run[@]}" --world "$where"
done
fails 'MASTER_PORT 0' env RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=0 "$program" "${run[@]}"
fails 'torchrun started 2 processes|MASTER_ADDR' env RANK=0 WORLD_SIZE=2 "$program" "${run[@]}"

refuses() { # refuses WORDS OPTION...: all fail, with one line of the program
    local words=$1 word bad=
    shift
    together 2 "${run[@]}" --steps 8 "$@" && bad='success'
    [ "$(grep -c '^train: ' out)" = 1 ] || bad="$bad $(grep -c '^train: ' out) lines"
    IFS='|' read -ra list <<< "$words"
    for word in "${list[@]}"; do grep '^train: ' out | grep -qF -- "$word" || bad="$bad no '$word'"; done
    report "$([ -z "$bad" ]; echo $?)" "refused: $*" "$bad" "$(head -n 8 out)"
}
refuses '--plan|pp3' --devices cpu:1 --plan pp3
refuses '--data|nothere' --data nothere
refuses 'memory_limit' --devices cpu:1,cpu:1/2K

# killed N: process N of three dies in the midst of a long run; the others end by themselves, soon, and name it
killed() {
    local i children=() begin bad=
    for i in 2 1 0; do
        "$program" --world "$i/3@file:$work/meeting" "${run[@]}" --steps 100000 --devices cpu:1 --plan pp --log log > out.$i 2>&1 < /dev/null &
        children[i]=$!
    done
    for i in $(seq 300); do
        [ -s log ] && [ "$(wc -l < log)" -gt 3 ] && break
        sleep 0.1
    done
    rm -f log
    begin=$SECONDS
    kill -9 "${children[$1]}"
    for i in 0 1 2; do
        wait "${children[i]}" 2> /dev/null && bad="$bad process $i succeeded"
    done
    [ $((SECONDS - begin)) -le 20 ] || bad="$bad it took $((SECONDS - begin)) s to end"
    cat out.* | grep -q "tcp: process $1 (127.0.0.1:[0-9]*) is gone" || bad="$bad nobody names it"
    report "$([ -z "$bad" ]; echo $?)" "process $1 of three is killed" "$bad" "$(head -n 3 out.0 out.1 out.2)"
}
for i in 0 1 2; do killed $i; done

finish
