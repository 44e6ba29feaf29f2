#!/bin/bash
# hetrain_mpi.c under mpirun with 1 to 4 processes: tests/mpi/test_mpi.c, twice compiled (test_mpi_pieces cuts messages every 1,000 bytes), and
# tests/mpi/test_fake.c, which needs no mpirun. Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
programs=$PWD/${BUILD:-build}/mpi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
use_mpirun 120 "$programs/test_mpi"

# runs PROCESSES PROGRAM CASE [NUMBER]: ends with status 0 and "done"
runs() {
    local n=$1 program=$2 status
    shift 2
    "${launch[@]}" -n "$n" "$programs/$program" "$@" > "$work/out" 2>&1 < /dev/null
    status=$?
    [ $status = 0 ] && ! grep -q '^done' "$work/out" && status=1
    report "$status" "$n processes: $program $*" "exit status $status" "$(grep -v '^ *$' "$work/out" | head -n 20)"
}

# nobody_left PROGRAM: no process of it is there two seconds after its launcher ended
nobody_left() {
    local i
    for i in 1 2 3 4 5 6 7 8 9 10; do
        ps -eo args | grep -qF "$1 " || return 0
        [ "$(ps -eo args | grep -F "$1 " | grep -cv grep)" = 0 ] && return 0
        sleep 0.2
    done
    return 1
}

# ends PROCESSES CASE SECONDS WORDS: the job fails within SECONDS, says WORDS, and nobody is left behind
ends() {
    local n=$1 name=$2 limit=$3 words=$4 status begin=$SECONDS bad= copy=$work/test_mpi_$2_$1
    cp "$programs/test_mpi" "$copy"
    "${launch[@]}" -n "$n" "$copy" "$name" > "$work/out" 2>&1 < /dev/null
    status=$?
    [ $status = 0 ] && bad='exit status 0'
    [ $((SECONDS - begin)) -le "$limit" ] || bad="$bad; it took $((SECONDS - begin)) s, not $limit"
    grep -q "$words" "$work/out" || bad="$bad; does not say: $words"
    grep -q 'not so' "$work/out" && bad="$bad; a check failed"
    nobody_left "$copy" || bad="$bad; left behind: $(ps -eo pid,stat,args | grep -F "$copy ")"
    report "$([ -z "$bad" ] && echo 0 || echo 1)" "$n processes: $name ends the job" "$bad" "$(grep -v '^ *$' "$work/out" | head -n 20)"
}

# left_out CASE: with 1 and 4 processes only what is another thing there; all of it where HETRAIN_TEST_ROUNDS is above 1
left_out() {
    [ "${HETRAIN_TEST_ROUNDS:-1}" -le 1 ] || return 1
    case $1 in 1many | 1line | 1threads | [134]cycles | 4order | 4mismatch | [134]pieces_mismatch | 4pieces | 4abort[12]) ;; *) return 1 ;; esac
}
for n in 1 2 3 4; do
    for name in order many line threads mismatch close_busy abort_all cycles; do left_out $n$name || runs $n test_mpi $name; done
    left_out ${n}pieces || runs $n test_mpi_pieces pieces
    left_out ${n}pieces_mismatch || runs $n test_mpi_pieces mismatch
    for ((who = 0; who < n; who++)); do left_out ${n}abort$who || runs $n test_mpi abort $who; done
done
runs 1 test_mpi sizes 5
runs 2 test_mpi sizes 5
runs 3 test_mpi sizes 4
runs 1 test_mpi misuse
runs 3 test_mpi misuse
runs 2 test_mpi funneled
runs 2 test_mpi goodbye
runs 3 test_mpi silence
runs 2 test_mpi suspended
for n in 2 4; do
    ends $n kill 20 'signal 9'
    ends $n stop 30 'process [0-9] gave up: .*silent for'
    ends $n stop_abort 30 'process [0-9] gave up: .*aborted: lost'
done
runs 2 test_mpi speed
grep '^# [0-9]* bytes' "$work/out"
if [ -x "$programs/test_fake" ]; then
    timeout 300 "$programs/test_fake" > "$work/out" 2>&1
    report $? 'threads as processes over an MPI of the test, under a sanitizer' "$(head -n 30 "$work/out")"
fi

finish
