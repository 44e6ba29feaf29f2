#!/bin/bash
# train in several processes over TCP: by --world, a file or torchrun's variables, layouts, checkpoints; one hash. Processes that are killed or given
# something bad end all others. Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
. tests/tools/late_lists.sh
programs=$PWD/${BUILD:-build}
program=$programs/checked/train
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
head -c 60000 hetrain.h > "$work/text"
cd "$work" || exit 2
unset HETRAIN_WORLD_SECRET RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE
run=(--data text --model gpt2:layers=3,width=32,heads=2,context=16 --length 16 --sequences 4 --micro-batches 6 --evaluate-every 4 --seed 3 --hash --quiet)
"$program" "${run[@]}" --steps 8 --devices cpu:1 > out 2>&1
hash=$(grep '^weights' out)
report "$([ -n "$hash" ]; echo $?)" 'one process' "$(cat out)"

# Process 1 of two stops while it reads its data. Process 0, which waits for it before the first step, has half a minute; it is looked at in the end
if [ -d /proc/self/fd ]; then
    truncate -s 4G sparse
    for i in 0 1; do
        data=(text sparse)
        "$program" --world "$i/2@file:$work/silent" "${run[@]}" --data "${data[i]}" --steps 8 --devices cpu:1 > silent.$i 2>&1 < /dev/null &
        silent[i]=$!
    done
    trap 'kill -9 "${silent[1]}"; rm -rf "$work"' EXIT
    for _ in $(seq 3000); do find "/proc/${silent[1]}/fd" -lname '*/sparse' 2> /dev/null | grep -q . && break; sleep 0.01; done
    kill -STOP "${silent[1]}"
fi

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
same 3 --devices cpu:1 --plan dp --shard weights
keeper='{"pipelines":[{"share":2,"stages":[{"rank":0,"units":[0,3]},{"rank":2,"units":[3,8]}]},{"stages":[{"rank":1,"units":[0,8]}]}],"keepers":[3],"state_shares":[1,0,2,2],"near":[0,0,1,1]}'
same 2 --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan "$keeper"
same 4 --devices cpu:1 --plan "$keeper" --shard weights --schedule zb-h1
same 3 --devices cpu:1 --plan cp:2,1,1
same 2 --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan pp2xhp2 --schedule zb-h1 --shard-gradients
same 2 --devices cpu:1 --plan hp:1,2
same 2 --devices cpu:1 --plan tp:2,1
same 2 --devices cpu:1 --replan '2:tp:2,1,5:pp,7:tp2'
same 2 --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan dp2xtp2 --shard gradients
together 2 "${run[@]}" --steps 1 --log threads.jsonl
status=$?
share=$(nproc)
[ "$share" != "$(getconf _NPROCESSORS_ONLN)" ] || share=$((share / 2)) # else they are bound to some
report "$([ $status = 0 ] && grep -q "\"threads\":$((share > 0 ? share : 1))," threads.jsonl; echo $?)" '2 processes without --devices share the processors' "$(tail -n 5 out)" "$(head -c 600 threads.jsonl)"
# energy and clocks: of one machine once, a clock for each process
mkdir -p meter/sys/class/powercap/intel-rapl:0 meter/proc/sys/kernel/random
printf 'package-0\n' > meter/sys/class/powercap/intel-rapl:0/name
printf '5\n' > meter/sys/class/powercap/intel-rapl:0/energy_uj
printf 'cpu MHz\t\t: 1500\n' > meter/proc/cpuinfo
printf 'abcd-ef\n' > meter/proc/sys/kernel/random/boot_id
same 2 --devices cpu:1 --plan pp --power meter --log power.jsonl
report "$([ "$(grep -c '"watts":0,"tokens_per_joule":null,"mhz":\[1500.0,1500.0\]' power.jsonl)" = 8 ]; echo $?)" 'a clock for each process' "$(tail -n 1 power.jsonl)"
# several updates a step: bits of their own, of one rank as of two processes, and of pipelines that share micro-batches, which are others
once=$hash often=(--updates 3 --staleness 1)
hash=$("$program" "${run[@]}" --steps 8 --devices cpu:1 "${often[@]}" | grep '^weights')
same 2 --devices cpu:1 --plan pp --schedule 1f1b "${often[@]}"
served='{"pipelines":[{"share":2,"stages":[{"rank":0,"units":[0,8]}]},{"stages":[{"rank":1,"units":[0,8]}]}],"keepers":[2],"state_shares":[0,1,2]}'
hash=$("$program" "${run[@]}" --steps 8 --devices cpu:1,cpu:1,cpu:1 --plan "$served" "${often[@]}" | grep '^weights')
same 3 --devices cpu:1 --plan "$served" "${often[@]}"
late_lists "$program"
# experts divided among two processes of two ranks each
moe=(--model llama:layers=3,width=32,heads=4,context=16 --experts 4,2)
hash=$("$program" "${run[@]}" --steps 8 --devices cpu:1 "${moe[@]}" | grep '^weights')
same 2 --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan tp4 "${moe[@]}"
# frozen weights of int8: parts of them, slices, stages recomputed as a whole, activations on the host
"$program" "${run[@]}" --steps 1 --devices cpu:1 --out base > out
narrow=(--init base --lora 2 --weights int8 --granule 1)
hash=$("$program" "${run[@]}" --steps 8 --devices cpu:1 "${narrow[@]}" | grep '^weights')
same 3 --devices cpu:1 --plan dp --shard weights --slices 2 --recompute stage "${narrow[@]}"
same 2 --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan "$keeper" --shard weights --store 1 "${narrow[@]}"
hash=$once
same 3 --devices cpu:1,cpu:1,cpu:1,cpu:1 --plan pp --schedule zb-h1 --replan '3x2:dp2xpp2,5:pp:0-1|2-3|4-5|6-7,7x24:dp' --slow 2:3@0.5
same 2 --devices cpu:1 --plan auto --plan-seconds 1 --adapt --slow 4:1@0.3

# ranks and whole processes without work: they hear of every outcome, evaluate and save with the others, and start to work
for idle in 0 1 2 3; do
    awk -v idle=$idle 'BEGIN { a = idle == 0; b = idle <= 1 ? 2 : 1; c = idle <= 2 ? 3 : 2
        printf "{\"pipelines\":[{\"stages\":[{\"rank\":%d,\"units\":[0,3]},{\"rank\":%d,\"units\":[3,5]},{\"rank\":%d,\"units\":[5,8]}]}]}", b, a, c }' > idle.json
    same 4 --devices cpu:1 --plan idle.json --verify 3
done
echo '{"pipelines":[{"stages":[{"rank":4,"units":[0,3]},{"rank":6,"units":[3,8]}]},{"share":2,"stages":[{"rank":3,"units":[0,8]}]}]}' > idle.json
eight=cpu:1,cpu:1,cpu:1,cpu:1,cpu:1,cpu:1,cpu:1,cpu:1
same 4 --devices $eight --plan idle.json --verify 2 --schedule zb-h1
same 2 --devices $eight --plan idle.json --replan '3:dp,5x2:pp' --verify 4
same 4 --devices $eight --plan dp --replan '3:idle.json,6:pp' --verify 4 --shard-gradients

# saved by two processes, continued by one and by three
together 2 "${run[@]}" --steps 8 --devices cpu:1 --plan pp --out saved --checkpoint-every 5
report "$([ $? = 0 ] && [ "$hash" = "$(grep '^weights' out)" ]; echo $?)" 'two processes save' "$(tail -n 5 out)"
mkdir -p from && cp -r saved/step-*5 from/ 2> /dev/null
"$program" --data text --resume from --devices cpu:1 --hash --quiet > out 2>&1
report "$([ "$hash" = "$(grep '^weights' out)" ]; echo $?)" 'one process goes on' "$(tail -n 5 out)"
together 3 --data text --resume from --devices cpu:1 --hash --quiet
report "$([ $? = 0 ] && [ "$hash" = "$(grep '^weights' out)" ]; echo $?)" 'three processes go on' "$(tail -n 5 out)"

# what process 0 cannot write in the end is an error of all
for option in '--log /dev/full' '--trace /dev/full'; do
    statuses=
    for i in 0 1; do
        # shellcheck disable=SC2086
        timeout 60 "$program" --world "$i/2@file:$work/meeting" "${run[@]}" --steps 2 --devices cpu:1 $option > out.$i 2>&1 < /dev/null &
        children[i]=$!
    done
    for i in 0 1; do wait "${children[i]}"; statuses="$statuses $?"; done
    report "$([[ "$statuses" =~ ^\ [12]\ 1$ ]] && grep -q 'train: .*/dev/full.*' out.0 && [ ! -s out.1 ]; echo $?)" "$option: no process ends with status 0" "$statuses" \
        "$(cat out.0 out.1)"
done

# a disk that takes longer for a checkpoint than a rank may wait for another: eleven minutes, so only with HETRAIN_TEST_SLOW_DISK=640
if [ "${HETRAIN_TEST_SLOW_DISK:-0}" -gt 0 ]; then
    printf '#include <unistd.h>\nint fsync(int f) { static int n; (void)f; if (n++ == 0) sleep(%d); return 0; }\n' "$HETRAIN_TEST_SLOW_DISK" > slow.c
    cc -shared -fPIC slow.c -o slow.so
    timeout 900 "$program" --world "1/2@file:$work/meeting" "${run[@]}" --steps 8 --devices cpu:1 --out slow --checkpoint-every 3 > out.1 2>&1 < /dev/null &
    LD_PRELOAD=$work/slow.so "$program" --world "0/2@file:$work/meeting" "${run[@]}" --steps 8 --devices cpu:1 --out slow --checkpoint-every 3 \
        > out.0 2>&1 < /dev/null
    status=$?
    wait $! && [ $status = 0 ]
    report "$([ $? = 0 ] && [ "$hash" = "$(grep -h '^weights' out.0 out.1)" ]; echo $?)" 'a slow disk' "$(cat out.0 out.1)"
fi

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
# late WHO WORDS: the other of two processes comes when the first has said that it waits; it says for whom, once
late() {
    rm -f meeting
    timeout 60 "$program" "${run[@]}" --steps 8 --devices cpu:1 --world "$1/2@file:$work/meeting" > out.$1 2>&1 < /dev/null &
    for _ in {1..100}; do grep -q 'waits for process' out.$1 && break; sleep 0.2; done
    sleep 0.5
    timeout 60 "$program" "${run[@]}" --steps 8 --devices cpu:1 --world "$((1 - $1))/2@file:$work/meeting" > out.$((1 - $1)) 2>&1 < /dev/null
    wait $!
    report "$([ "$(grep -c 'waits for process' out.$1)" = 1 ] && grep -qF "$2" out.$1 && [ "$hash" = "$(grep -h '^weights' out.0 out.1)" ]; echo $?)" \
        "process $1 waits, and says so" "$(cat out.$1)"
}
late 0 'process 0 of 2 waits for process 1'
late 1 "process 1 of 2 waits for process 0 (file $work/meeting)"
launcher=$(command -v torchrun)
for with in "$program" "$programs/mpi/train_mpi"; do # the latter goes by torchrun's variables as well
    [ -n "$launcher" ] && [ -x "$with" ] || continue
    timeout 200 "$launcher" --standalone --nproc-per-node 2 --no-python "$with" "${run[@]}" --steps 8 --devices cpu:1 > out 2>&1 < /dev/null
    report "$([ "$hash" = "$(grep '^weights' out)" ]; echo $?)" "torchrun ${with##*/}" "$(tail -n 5 out)"
done

# ---- a secret ----
head -c 32 /dev/urandom | base64 > secret
address=$(hostname -I 2> /dev/null | tr ' ' '\n' | grep -m 1 -F .)
for way in option variable insecure master one; do # by an address that others reach as well, where this machine has one
    port=$(free_port)
    options=() where=${address:-127.0.0.1}
    (
        case $way in
        option) options=(--world-secret secret) ;;
        variable) export HETRAIN_WORLD_SECRET=$(cat secret) ;;
        insecure) options=(--insecure-world) ;;
        master) export WORLD_SIZE=2 MASTER_ADDR=$where MASTER_PORT=$port HETRAIN_WORLD_SECRET=$(cat secret) ;;
        one) export WORLD_SIZE=2 MASTER_ADDR=$where MASTER_PORT=$port LOCAL_WORLD_SIZE=2 ;; # all on this machine: nobody else can come
        esac
        case $way in
        master | one)
            RANK=0 LOCAL_RANK=0 timeout 60 "$program" "${run[@]}" --steps 8 --devices cpu:1 > out.0 2>&1 &
            RANK=1 LOCAL_RANK=1 timeout 60 "$program" "${run[@]}" --steps 8 --devices cpu:1 > out.1 2>&1 ;;
        *)
            timeout 60 "$program" "${run[@]}" --steps 8 --devices cpu:1 "${options[@]}" --world "0/2@$where:$port" > out.0 2>&1 &
            timeout 60 "$program" "${run[@]}" --steps 8 --devices cpu:1 "${options[@]}" --world "1/2@$where:$port" > out.1 2>&1 ;;
        esac
        first=$?
        wait $! && [ $first = 0 ])
    report "$([ $? = 0 ] && [ "$hash" = "$(grep -h '^weights' out.0 out.1)" ]; echo $?)" "over ${where%%.*}...: $way" "$(tail -n 3 out.0 out.1)"
done

# Without --devices processes that a launcher has started on this machine share its processors, unless they may run on some alone
port=$(free_port) shared=$(nproc)
[ "$shared" != "$(nproc --all)" ] || shared=$((shared > 1 ? shared / 2 : 1))
for i in 1 0; do
    RANK=$i LOCAL_RANK=$i WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 60 "$program" \
        "${run[@]:0:${#run[@]}-1}" --steps 1 > out.$i 2>&1 < /dev/null &
    child[i]=$!
done
wait "${child[0]}"; wait "${child[1]}"
report "$(grep -q "^rank 0 *cpu:$shared, " out.0; echo $?)" "each takes $shared threads" "$(cat out.0 out.1)"

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
for who in 0 1; do fails '--world nowhere/x: No such file' "$program" "${run[@]}" --world "$who/2@file:nowhere/x"; done
fails '--world .: Is a directory' "$program" "${run[@]}" --world 0/2@file:.
mkfifo pipe
fails '--world pipe: a pipe or device' "$program" "${run[@]}" --world 0/2@file:pipe
fails 'MASTER_PORT 0' env RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=0 "$program" "${run[@]}"
fails 'torchrun started 2 processes|MASTER_ADDR' env RANK=0 WORLD_SIZE=2 "$program" "${run[@]}"

for who in 0 1; do
    fails '--world 192.0.2.7|--world-secret FILE|HETRAIN_WORLD_SECRET|--insecure-world' "$program" "${run[@]}" --world "$who/2@192.0.2.7:29500"
    fails 'MASTER_ADDR 192.0.2.7|--world-secret FILE|HETRAIN_WORLD_SECRET|--insecure-world' env RANK=$who WORLD_SIZE=2 MASTER_ADDR=192.0.2.7 MASTER_PORT=29500 "$program" "${run[@]}"
done
fails 'processes is 3000|2048' env RANK=0 WORLD_SIZE=3000 MASTER_ADDR=localhost MASTER_PORT=29500 "$program" "${run[@]}"
fails '--world-secret nothere|No such file' "$program" "${run[@]}" --world 0/2@localhost:1 --world-secret nothere
fails '--world-secret .|cannot be read' "$program" "${run[@]}" --world 0/2@localhost:1 --world-secret .
echo short > short
fails '--world-secret short|fewer than 16 bytes' "$program" "${run[@]}" --world 0/2@localhost:1 --world-secret=short
fails 'HETRAIN_WORLD_SECRET|fewer than 16 bytes' env HETRAIN_WORLD_SECRET=short "$program" "${run[@]}" --world 0/2@localhost:1
fails '--world-secret|--world, MASTER_ADDR' "$program" "${run[@]}" --world-secret secret
fails '--insecure-world|--world, MASTER_ADDR' "$program" "${run[@]}" --insecure-world

refuses() { # refuses WORDS OPTION...: all fail, with one line of the program
    local words=$1 word bad=
    shift
    together 2 "${run[@]}" --steps 8 "$@" && bad='success'
    [ "$(grep '^train: ' out | grep -vc 'waits for process')" = 1 ] || bad="$bad $(grep -c '^train: ' out) lines"
    IFS='|' read -ra list <<< "$words"
    for word in "${list[@]}"; do grep '^train: ' out | grep -qF -- "$word" || bad="$bad no '$word'"; done
    report "$([ -z "$bad" ]; echo $?)" "refused: $*" "$bad" "$(head -n 8 out)"
}
refuses '--plan|pp3' --devices cpu:1 --plan pp3
refuses '--data|nothere' --data nothere
refuses '--devices|more than its limit' --devices cpu:1,cpu:1/2K

# ---- what processes were given is compared before they do anything together ----
# differs WORDS OPTION...: the last process also gets the options in ${extra[@]}; all end with status 2, one line of the program with the words
differs() {
    local words=$1 n=3 i child=() bad= word begin=$SECONDS
    shift
    for ((i = 0; i < n; i++)); do
        timeout -k 5 60 "$program" --world "$i/$n@file:$work/meeting" "${run[@]}" --steps 8 --devices cpu:1 "$@" \
            $([ $i -lt $((n - 1)) ] || printf '%s\n' "${extra[@]}") > out.$i 2>&1 < /dev/null &
        child[i]=$!
    done
    for ((i = 0; i < n; i++)); do
        wait "${child[i]}"
        [ $? = 2 ] || bad="$bad process $i does not end with status 2"
    done
    cat out.0 out.1 out.2 > out
    [ "$(grep '^train: ' out | grep -vc 'waits for process')" = 1 ] || bad="$bad $(grep -c '^train: ' out) lines"
    IFS='|' read -ra list <<< "$words"
    for word in "${list[@]}"; do grep '^train: ' out.0 | grep -qF -- "$word" || bad="$bad no '$word'"; done
    [ $((SECONDS - begin)) -le 30 ] || bad="$bad it took $((SECONDS - begin)) s"
    report "$([ -z "$bad" ]; echo $?)" "refused: process 2 with ${extra[*]}" "$bad" "$(head -n 8 out)"
}
tr 'e' 'E' < text > other
head -c 30000 text > val
tr 'a' 'A' < val > val2
extra=(--micro-batches 4); differs '--micro-batches: process 2 has 4, process 0 has 6'
extra=(--seed 4); differs '--seed: process 2 has 4, process 0 has 3'
extra=(--data other); differs '--data: process 2 has 60000 tokens with fingerprint|process 0 has 60000 tokens with fingerprint'
extra=(--val val2); differs '--val: process 2 has 30000 tokens with fingerprint|process 0' --val val
extra=(--val val); differs '--val: process 2 has one, process 0 has none'
extra=(--evaluate-every 3); differs '--evaluate-every: process 2 has 3, process 0 has 4'
extra=(--evaluate-batches 3); differs '--evaluate-batches: process 2 has 3, process 0 has 8'
extra=(--checkpoint-every 3); differs '--checkpoint-every: process 2 has 3, process 0 has 2' --out differs --checkpoint-every 2
extra=(--out elsewhere); differs '--out: process 2 has elsewhere, process 0 has differs' --out differs
extra=(--out elsewhere); differs '--out: process 2 has elsewhere, process 0 has none'
extra=(--keep 3); differs '--keep: process 2 has 3, process 0 has 2' --out differs
extra=(--verify 3); differs '--verify: process 2 has 3, process 0 has 0'
extra=(--replan 3:pp); differs '--replan: process 2 has 3:pp, process 0 has none'
extra=(--replan 3:pp); differs '--replan: process 2 has 3:pp, process 0 has 4:pp' --replan 4:pp
extra=(--adapt); differs '--adapt: process 2 has 0.2, process 0 has 0'
extra=(--plan auto); differs '--plan: process 2 has auto, process 0 has pp' --plan pp
extra=(--schedule gpipe); differs '--schedule: process 2 has gpipe, process 0 has none'
extra=(--hash --trace trace.json); differs '--trace: process 2 has one, process 0 has none'
extra=(--steps 9); differs '--steps: process 2 has 9, process 0 has 8'
extra=(--on-bad-step skip); differs '--on-bad-step: process 2 has skip, process 0 has stop'
extra=(--shard weights); differs '--shard: process 2 has weights, process 0 has state'
extra=(--shard-gradients); differs '--shard-gradients: process 2 has yes, process 0 has none'
extra=(--devices cpu:1,cpu:1,cpu:1,cpu:1); differs '--devices: process 2 has 4 ranks, process 0 has 3 ranks'
extra=(--save-profile profile.json); differs '--save-profile: process 2 has one, process 0 has none'
extra=(--save-plan plan.json); differs '--save-plan: process 2 has one, process 0 has none'
extra=(--dropout 0.1); differs '--dropout: process 2 has 0.1, process 0 has 0'
extra=(--model gpt2:layers=4,width=32,heads=2,context=16); differs '--model: process 2 has gpt2:layers=4,width=32|process 0 has gpt2:layers=3'
for seed in 1 2; do # other contents under what could be one name on several machines
    "$program" "${run[@]}" --devices cpu:1 --seed $seed --steps 1 --out weights$seed > out
    "$program" "${run[@]}" --devices cpu:1 --seed $seed --steps 1 --init weights1 --lora 2 --out factors$seed > out
done
extra=(--init weights2); differs '--init: process 2 has weights with fingerprint|process 0 has weights with fingerprint' --init weights1
extra=(--init weights2); differs '--init: process 2 has weights with fingerprint' --init weights1 --plan pp --lora 2
extra=(--init-adapter factors2)
differs '--init-adapter: process 2 has factors with fingerprint|process 0 has factors with fingerprint' --init weights1 --init-adapter factors1
given=("${run[@]}") run=(--force-resume --seed 3)
extra=(--resume weights2); differs '--resume: process 2 has checkpoint with fingerprint' --resume weights1 --out resumed
run=("${given[@]}")
extra=(--recompute stage); differs '--recompute: process 2 has stage, process 0 has none'
timeout -k 5 120 "$program" --world "1/2@file:$work/meeting" "${run[@]}" --steps 8 --devices cpu:2 --recompute > out.1 2>&1 < /dev/null &
timeout -k 5 120 "$program" --world "0/2@file:$work/meeting" "${run[@]/--quiet/--hash}" --steps 8 --devices cpu:1 --log log.0 > out 2>&1 < /dev/null
wait $! && [ "$hash" = "$(grep '^weights' out)" ]
report $? 'what is each process'"'"'s own may differ' "$(tail -n 5 out out.1)"
report "$(grep -q 'product peak [0-9]* GFLOP/s of all processes' out; echo $?)" 'their tokens are held against the peak of all' "$(head -n 5 out)"
together 2 "${run[@]}" --steps 8 --devices cpu:1 --plan pp --schedule gpipe --store 1
report "$([ $? = 0 ] && [ "$hash" = "$(grep '^weights' out)" ]; echo $?)" 'activations that wait on the host do not change the bits' "$(tail -n 5 out)"

# ---- signals: to any process, all of them save the same step and end well; a second one ends at once ----
short=(--data text --model gpt2:layers=1,width=16,heads=1,context=16 --sequences 4 --micro-batches 3 --granule 1 --schedule-lr constant --evaluate-every 0 --quiet)
step_of() { local latest; latest=$(cat "$1/latest" 2> /dev/null); latest=${latest#step-}; echo $((10#${latest:-0})); }
begin_three() { # begin_three OPTION...: sets children, returns when a step is in the log
    local i
    rm -rf stopped meeting
    set -m # else a job in the background would ignore SIGINT
    for i in 0 1 2; do
        "$program" --world "$i/3@file:$work/meeting" "${short[@]}" --devices cpu:1 --out stopped "$@" > out.$i 2>&1 < /dev/null &
        children[i]=$!
    done
    set +m
    for i in $(seq 600); do grep -q '"loss"' stopped/log.jsonl 2> /dev/null && return; sleep 0.05; done
}
# a signal to each process, and two of them to process 0; make soak sends every signal to every process
for case in INT:0 TERM:1 HUP:2 USR1:0 TERM:0; do
    signal=${case%:*} who=${case#*:}
    begin_three --steps 1000000
    kill -$signal "${children[who]}"
    [ $signal != USR1 ] || { sleep 0.01; kill -USR1 "${children[@]}" 2> /dev/null; } # mpirun may send it twice, and to all
    bad=
    for i in 0 1 2; do wait "${children[i]}" || bad="$bad process $i ended with status $?"; done
    n=$(step_of stopped)
    [ "$n" -gt 0 ] && grep -q "^stopped after step $n of 1000000; continue with" out.0 || bad="$bad no line"
    "$program" --resume stopped --steps $((n + 3)) --devices cpu:1 --hash > on.out 2>&1
    "$program" "${short[@]}" --steps $((n + 3)) --devices cpu:1 --hash > whole.out 2>&1
    [ -n "$(grep '^weights' on.out)" ] && [ "$(grep '^weights' on.out)" = "$(grep '^weights' whole.out)" ] || bad="$bad other bits"
    report "$([ -z "$bad" ]; echo $?)" "SIG$signal to process $who of three: all save step n and go on bit-equal" "$bad, step $n" "$(head -n 3 out.0 out.1 out.2)"
done
for signals in 'TERM TERM' 'INT INT' 'HUP TERM' 'USR1 INT'; do # a step takes half a minute: only the second ends the process
    begin_three --steps 1000000 --slow 2:0@0.001 --checkpoint-every 1000
    sleep 0.5
    begin=$SECONDS
    bad=
    for signal in $signals; do
        kill -0 "${children[1]}" 2> /dev/null || bad="$bad it ended before SIG$signal"
        kill -"$signal" "${children[1]}"
        sleep 0.3
    done
    wait "${children[1]}"
    status=$?
    [ $status -gt 128 ] || bad="$bad status $status"
    wait "${children[0]}" && bad="$bad process 0 succeeded"
    wait "${children[2]}" && bad="$bad process 2 succeeded"
    [ $((SECONDS - begin)) -le 15 ] || bad="$bad it took $((SECONDS - begin)) s"
    report "$([ -z "$bad" ]; echo $?)" "SIG${signals/ /, then SIG}: at once" "$bad" "$(head -n 3 out.0 out.1 out.2)"
done
# A process that waits for others ends at once by any signal.
large=(--model gpt2:layers=12,width=96,heads=4,context=64 --sequences 8 --micro-batches 8 --devices cpu:1,cpu:1@0.3,cpu:1@0.7,cpu:1@0.2)
"$program" --data text "${large[@]}" --granule 1 --steps 0 --devices cpu:1 --save-profile measured.json > /dev/null 2>&1
for case in 'INT:for process 0' 'HUP:for process 0' 'TERM:for process 1' 'USR1:for process 1' 'INT:while it measures' \
    'USR1:while process 0 plans'; do
    signal=${case%%:*} what=${case#*:}
    who=1 both=1 options=()
    [ "$what" = 'for process 0' ] && both=0
    [ "$what" = 'for process 1' ] && both=0 who=0
    [ "$what" = 'while it measures' ] && options=(--save-profile again.json)
    [ "$what" = 'while process 0 plans' ] && options=(--plan auto --profile measured.json --plan-seconds 4)
    rm -f meeting
    set -m
    for i in 0 1; do
        children[i]=
        [ $both = 1 ] || [ $i = $who ] || continue
        "$program" --world "$i/2@file:$work/meeting" "${short[@]}" "${large[@]}" --steps 4 "${options[@]}" > out.$i 2>&1 < /dev/null &
        children[i]=$!
    done
    set +m
    sleep 0.8
    begin=$SECONDS
    bad=
    kill -$signal "${children[who]}" || bad='it has ended before'
    wait "${children[who]}" 2> /dev/null
    status=$?
    [ $((SECONDS - begin)) -le 3 ] && [ $status -gt 128 ] || bad="$bad status $status after $((SECONDS - begin)) s"
    [ $both = 0 ] || { wait "${children[0]}" && bad="$bad process 0 succeeded"; }
    report "$([ -z "$bad" ]; echo $?)" "SIG$signal to a process that waits $what" "$bad" "$(head -n 3 out.0 out.1 2> /dev/null)"
done

# killed N OPTION...: process N of three dies in the midst of a long run; the others end by themselves, soon, and name it
killed() {
    local i children=() begin bad= who=$1
    shift
    for i in 2 1 0; do
        "$program" --world "$i/3@file:$work/meeting" "${run[@]}" --steps 100000 --devices cpu:1 "$@" --log log > out.$i 2>&1 < /dev/null &
        children[i]=$!
    done
    for i in $(seq 300); do
        [ -s log ] && [ "$(wc -l < log)" -gt 3 ] && break
        sleep 0.1
    done
    rm -f log
    begin=$SECONDS
    kill -9 "${children[who]}"
    for i in 0 1 2; do
        wait "${children[i]}" 2> /dev/null && bad="$bad process $i succeeded"
    done
    [ $((SECONDS - begin)) -le 20 ] || bad="$bad it took $((SECONDS - begin)) s to end"
    cat out.* | grep -q "tcp: process $who (127.0.0.1:[0-9]*) is gone" || bad="$bad nobody names it"
    report "$([ -z "$bad" ]; echo $?)" "process $who of three is killed: $*" "$bad" "$(head -n 3 out.0 out.1 out.2)"
}
for i in 0 1 2; do killed $i --plan pp; done
kept='{"pipelines":[{"stages":[{"rank":0,"units":[0,8]}]},{"stages":[{"rank":1,"units":[0,8]}]}],"keepers":[2],"state_shares":[0,1,2]}'
killed 2 --plan "$kept"
killed 1 --plan "$kept" --shard weights
if [ ${#silent[@]} = 2 ]; then
    wait "${silent[0]}"
    status=$?
    kill -9 "${silent[1]}"
    wait "${silent[1]}" 2> /dev/null
    trap 'rm -rf "$work"' EXIT
    report "$([ $status = 1 ] && grep -qx 'train: process 1: no sign of life for 30 s' silent.0; echo $?)" \
        'a process that stops before the first step is named' "status $status" "$(cat silent.0)"
else
    leave_out 'there is no /proc: a process that stops before the first step was not tried'
fi

finish
