#!/bin/bash
# Two processes with a rank each on one card. NCCL refuses two ranks of one machine there and takes these for two machines, since their NCCL_HOSTID
# differ; they talk over sockets on loopback.
# usage: tests/cuda/two_processes.sh run|kill FOLDER PROGRAM [options]    run: both end well. kill: one is killed in the middle of training, and the
#        other must end with an error within 60 seconds. FOLDER: what they print.
what=$1 folder=$2
shift 2
mkdir -p "$folder" || exit 2
export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_DEBUG=${NCCL_DEBUG:-WARN}
rm -f "$folder/world"

# start NUMBER COMMAND...: as that process of two; its id is $!
start() {
    local number=$1
    shift
    NCCL_HOSTID=machine-$number "$@" --devices cuda:0 --world "$number/2@file:$folder/world" > "$folder/$what$number.txt" 2>&1 &
}

start 0 "$@"
first=$!
start 1 "$@"
second=$!

if [ "$what" = run ]; then
    wait "$first"; a=$?
    wait "$second"; b=$?
    grep 'groups\|weights' "$folder/run0.txt"
    [ "$a" = 0 ] && [ "$b" = 0 ] && grep -q 'groups .*nccl' "$folder/run0.txt" && exit 0
    echo "the processes ended with status $a and $b: $(tail -n 1 "$folder/run0.txt") / $(tail -n 1 "$folder/run1.txt")"
    exit 1
fi

# Killed after its first steps: 30 s for them.
for ((i = 0; i < 300; i++)); do grep -q '^step ' "$folder/kill0.txt" && break; sleep 0.1; done
begin=$SECONDS
kill -9 "$second"
for ((i = 0; i < 600; i++)); do kill -0 "$first" 2> /dev/null || break; sleep 0.1; done
kill -0 "$first" 2> /dev/null && { kill "$first"; echo 'the other process goes on 60 s after one was killed'; exit 1; }
wait "$first"
status=$?
tail -n 1 "$folder/kill0.txt"
[ "$status" != 0 ] || { echo 'the other process ended well although one was killed'; exit 1; }
echo "ended with status $status, $((SECONDS - begin)) s later"
