#!/bin/bash
# The long tests of files and of runs that survive, in portions: what a portion has proven is noted in build/soak/state under a checksum of the
# sources it is about, and the next call goes on from there. Status 0: all counts are reached, or the time is up; 1: a portion failed, its log is
# named. usage: tests/tools/soak.sh [--seconds N] [--show] [PIECE ...]
#   kill        2,000 times kill -9 while a run saves every other step; it goes on with the same bits
#   signals     100 times SIGKILL, SIGTERM, SIGINT, SIGHUP and SIGUSR1 on each of three processes, over TCP and under mpirun; they go on with the same bits
#   islands     100 times SIGKILL on one of two islands, which is started again and joins
#   layouts     120 changes of layout over a checkpoint
#   chain       a chain of 20 layouts
#   teams       1,000 random plans with teams
#   shards      1,000 random divisions of state, gradients and weights, with near sets and keepers
#   versions    1,000 random lists of several updates a step
#   runs        1,000 drawn command lines of train, generate and evaluate, in several layouts each (tests/tools/drawn_runs.py)
#   damage      every truncation and every flipped bit of a small checkpoint; every failing call of the disk; 40 losses of power for each prefix
#   fuzz-NAME   10,000,000 executions of each fuzz target, with and without assertions in turn
cd "$(dirname "$0")/../.." || exit 2
build=${BUILD:-build}
folder=$build/soak
state=$folder/state
runs=${SOAK_RUNS:-10000000}
mkdir -p "$folder"
touch "$state"
limit=0 show=0 wanted=()
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) limit=$2; shift ;;
    --show) show=1 ;;
    -*) echo "soak: $1: no such option" >&2; exit 2 ;;
    *) wanted+=("$1") ;;
    esac
    shift
done
began=$(date +%s)
mapfile -t targets < <(ls tests/fuzz/fuzz_*.c | sed 's|.*/fuzz_||; s|\.c$||')
[ ${#wanted[@]} -gt 0 ] || wanted=(kill signals islands layouts chain teams shards versions runs damage "${targets[@]/#/fuzz-}")

# the suite whose rounds a piece counts
suite_of() { case $1 in versions) echo versions ;; *) echo "${1%s}" ;; esac; }

# sources PIECE: what a piece is about, as one word
sources() {
    local files=(hetrain*.h util/*.h)
    case $1 in
    kill) files+=(programs/*.[ch] programs/supervise.sh util/hetrain_mpi.c tests/test_survive.sh) ;;
    signals) files+=(programs/*.[ch] util/hetrain_mpi.c util/hetrain_tcp.c tests/test_kills.sh) ;;
    islands) files+=(programs/*.[ch] util/hetrain_mpi.c util/hetrain_tcp.c tests/test_islands.sh) ;;
    teams | shards | versions) files+=("tests/test_$(suite_of "$1").c") ;;
    runs) files+=(hetrain_cuda.cu hetrain_nccl.c programs/*.[ch] tests/tools/drawn_runs.py) ;;
    fuzz-*) files+=("tests/fuzz/fuzz_${1#fuzz-}.c" tests/fuzz/fuzz.h) ;;
    *) files+=(tests/test_checkpoint.c) ;;
    esac
    cat "${files[@]}" | cksum | tr ' ' -
}
goal() {
    case $1 in
    kill) echo 2000 ;;
    signals | islands) echo 100 ;;
    layouts) echo 120 ;;
    chain) echo 20 ;;
    teams | shards | versions | runs) echo 1000 ;;
    damage) echo 1 ;;
    *) echo "$runs" ;;
    esac
}
reached() { awk -v p="$1" -v k="$(sources "$1")" '$1 == p && $2 == k { n += $3 } END { print n + 0 }' "$state"; }

# portion PIECE COUNT: one portion after COUNT; prints by how much the count grows
portion() {
    local piece=$1 count=$2 log=$folder/$1.log kind name
    case $piece in
    kill)
        HETRAIN_TEST_FIRST_ROUND=$count HETRAIN_TEST_KILLS=50 bash tests/test_survive.sh > "$log" 2>&1 || return 1
        grep -q '^not ok' "$log" && return 1
        echo 50 ;;
    signals)
        HETRAIN_TEST_FIRST_ROUND=$count HETRAIN_TEST_KILLS=5 bash tests/test_kills.sh > "$log" 2>&1 || return 1
        grep -q '^not ok' "$log" && return 1
        echo 5 ;;
    islands)
        HETRAIN_TEST_FIRST_ROUND=$count HETRAIN_TEST_KILLS=50 bash tests/test_islands.sh > "$log" 2>&1 || return 1
        grep -q '^not ok' "$log" && return 1
        echo 50 ;;
    layouts) HETRAIN_TEST_FIRST_ROUND=$count HETRAIN_TEST_ROUNDS=20 "$build/tests/test_checkpoint" > "$log" 2>&1 || return 1; echo 20 ;;
    chain) HETRAIN_TEST_CHAIN=20 "$build/tests/test_checkpoint" > "$log" 2>&1 || return 1; echo 20 ;;
    teams | shards | versions) HETRAIN_TEST_FIRST_ROUND=$count HETRAIN_TEST_ROUNDS=100 "$build/tests/test_$(suite_of "$piece")" > "$log" 2>&1 || return 1; echo 100 ;;
    runs) python3 tests/tools/drawn_runs.py "$count" 50 "$build/checked" > "$log" 2>&1 || return 1; echo 50 ;;
    damage) HETRAIN_TEST_EVERY=1 HETRAIN_TEST_LOSSES=40 "$build/tests/test_checkpoint" > "$log" 2>&1 || return 1; echo 1 ;;
    fuzz-*)
        name=${piece#fuzz-} kind=plain
        [ $(($(grep -c "^$piece " "$state") % 2)) = 1 ] && kind=asserting
        bash tests/tools/fuzz.sh "$name" $kind "${SOAK_PORTION:-120}" > "$log" 2>&1 || return 1
        sed -n 's/.*) \([0-9]*\) runs in .*/\1/p' "$log" ;;
    esac
}

# prepare PIECE: what it needs is built
prepare() {
    case $1 in
    kill) make --no-print-directory "$build"/checked/{train,generate,merge,evaluate,convert} mpi-test-programs ;;
    signals | islands) make --no-print-directory "$build/checked/train" mpi-test-programs ;;
    teams | shards | versions) make --no-print-directory "$build/tests/test_$(suite_of "$1")" ;;
    runs) make --no-print-directory "$build"/checked/{train,generate,evaluate} "$build/standin/train_nccl" ;;
    fuzz-*) make --no-print-directory "$build/fuzz/${1#fuzz-}-plain" "$build/fuzz/${1#fuzz-}-asserting" ;;
    *) make --no-print-directory "$build/tests/test_checkpoint" ;;
    esac > "$folder/$1.log" 2>&1
}

for piece in "${wanted[@]}"; do
    case $piece in
    kill | signals | islands | layouts | chain | teams | shards | versions | runs | damage) ;;
    fuzz-*) [ -f "tests/fuzz/fuzz_${piece#fuzz-}.c" ] || { echo "soak: $piece: no such target" >&2; exit 2; } ;;
    *) echo "soak: $piece: no such piece" >&2; exit 2 ;;
    esac
    count=$(reached "$piece") most=$(goal "$piece")
    if [ $show = 1 ] || [ "$count" -ge "$most" ]; then
        echo "soak: $piece: $count of $most"
        continue
    fi
    if ! prepare "$piece"; then
        echo "soak: $piece does not build: $folder/$piece.log" >&2
        exit 1
    fi
    while [ "$count" -lt "$most" ]; do
        if [ "$limit" -gt 0 ] && [ $(($(date +%s) - began)) -ge "$limit" ]; then
            echo "soak: $piece: $count of $most, the time is up"
            continue 2
        fi
        if ! grown=$(portion "$piece" "$count") || [ -z "$grown" ]; then
            tail -n 20 "$folder/$piece.log" >&2
            echo "soak: $piece failed after $count of $most: $folder/$piece.log" >&2
            exit 1
        fi
        echo "$piece $(sources "$piece") $grown" >> "$state"
        count=$((count + grown))
    done
    [ "$count" -lt "$most" ] || echo "soak: $piece: $count of $most"
done
