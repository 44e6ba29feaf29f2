#!/bin/bash
# Runs test suites and adds up what they say. Every suite prints TAP: a plan "1..N", then "ok 1 - name", "not ok 2 - name" or
# "not ok 3 # SKIP why". Tests of the plan that are never reported (the suite died) count as failed.
# JOBS suites run at a time (one more than there are processors: some wait for processes); they are reported in their order.
# usage: tests/tools/run_tests.sh BUILD SUITE...    SUITE: a name in BUILD/tests, or a shell script
build=$1
shift
export BUILD=$build
export CMOCKA_MESSAGE_OUTPUT=TAP
mkdir -p "$build/output"
line_buffered= # so that messages on standard error stand beside their test
command -v stdbuf > /dev/null && line_buffered="stdbuf -oL"
# stdbuf preloads a library before the sanitizer's own; it replaces no function, so that order does no harm
export ASAN_OPTIONS=verify_asan_link_order=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
passed=0 failed=0 skipped=0 start=$SECONDS

# run SUITE: its output, then its status, its seconds and those it had a processor in a file beside that
run() {
    local output=$build/output/$(basename "$1" .sh).txt begin=$SECONDS status
    case $1 in
    *.sh) bash "$1" > "$output" 2>&1 ;;
    *) $line_buffered "$build/tests/$1" > "$output" 2>&1 ;;
    esac
    status=$?
    times > "$output.times" # the shell's own, then its children's: 1m2.3s 0m4.5s
    echo "$status $((SECONDS - begin)) $(awk -F'[ms ]+' 'NR == 2 { printf "%.0f", $1 * 60 + $2 + $3 * 60 + $4 }' "$output.times")" > "$output.ended"
}

report() {
    local name output status seconds busy ok skip bad planned lost
    name=$(basename "$1" .sh)
    output=$build/output/$name.txt
    read -r status seconds busy < "$output.ended"
    ok=$(grep -c '^ok [0-9]' "$output")
    skip=$(grep -c '^not ok [0-9]* # SKIP' "$output")
    bad=$(grep '^not ok [0-9]' "$output" | grep -vc '# SKIP')
    planned=$(sed -n 's/^1\.\.\([0-9]*\)$/\1/p' "$output" | head -n 1)
    lost=$((${planned:-1} - ok - skip - bad))
    [ $lost -lt 0 ] && lost=0
    # a suite that reports no failure and still ends badly (a sanitizer, a signal) is one
    [ "$status" -ne 0 ] && [ $((bad + lost)) = 0 ] && lost=1
    printf '%-16s %3d passed' "$name" "$ok"
    [ "$skip" -gt 0 ] && printf ', %d skipped' "$skip"
    [ $((bad + lost)) -gt 0 ] && printf ', %d FAILED' $((bad + lost))
    printf '  (%d s, busy %d)\n' "$seconds" "$busy"
    sed -n 's/^not ok [0-9]* # SKIP /    skipped: /p' "$output"
    if [ $((bad + lost)) -gt 0 ]; then
        grep -Ev '^ok |^1\.\.|# SKIP|^# not ok' "$output" | head -n 60 | cut -c1-300 | sed 's/^/    /'
        [ $lost -gt 0 ] && { echo "    ended with status $status; its last lines:"; tail -n 8 "$output" | cut -c1-300 | sed 's/^/    /'; }
        echo "    all of it: $output"
    fi
    passed=$((passed + ok)) failed=$((failed + bad + lost)) skipped=$((skipped + skip))
}

suites=("$@")
reported=0
# Reports the suites that have ended, up to the first one that has not.
catch_up() {
    while [ $reported -lt ${#suites[@]} ] && [ -f "$build/output/$(basename "${suites[reported]}" .sh).txt.ended" ]; do
        report "${suites[reported]}"
        reported=$((reported + 1))
    done
}

# The longest start first, for at the end they would keep one processor busy alone; the others follow as they come.
longest=' check_header test_islands test_mpi_train test_tcp_train golden test_search test_cuda_device test_survive test_cli test_ops test_mpi test_examples test_tcp test_nccl '
in_order() {
    local name suite
    for name in $longest; do
        for suite in "${suites[@]}"; do [ "$(basename "$suite" .sh)" != "$name" ] || echo "$suite"; done
    done
    for suite in "${suites[@]}"; do [[ $longest = *" $(basename "$suite" .sh) "* ]] || echo "$suite"; done
}

rm -f "$build"/output/*.ended
for suite in $(in_order); do
    while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-$(($(nproc) + 1))}" ]; do wait -n; done
    catch_up
    run "$suite" &
done
wait
catch_up

[ $skipped -gt 0 ] && echo "$skipped skipped"
echo "$((SECONDS - start)) seconds"
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
