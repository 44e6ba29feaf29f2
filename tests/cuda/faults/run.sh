#!/bin/bash
# Seeded bugs: applies each entry of faults.txt to a copy of hetrain_cuda.cu, builds test_kernels with it, and expects a test to fail.
# "@ N" after an entry: its text is in the file several times, the N-th is meant. "& FILE TESTS": the bug is in hetrain.h, hetrain_cuda.cu or
# hetrain_nccl.c, and those of test_cuda_device, or of test_nccl for the last, whose names match TESTS have to fail. Prints TAP, and last "N faults, N
# caught".
# usage: tests/cuda/faults/run.sh [REGULAR EXPRESSION of the names to try]
root=$(cd "$(dirname "$0")/../../.." && pwd)
cd "$root" || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wanted=$*

awk -v work="$work" -v wanted="$wanted" '
    function flush(  d) {
        if (name != "" && name ~ wanted) {
            d = sprintf("%s/%03d", work, ++count)
            system("mkdir " d)
            print name > (d "/name"); print old > (d "/fault_old"); print new > (d "/fault_new")
            print which > (d "/which"); print place > (d "/place")
            close(d "/name"); close(d "/fault_old"); close(d "/fault_new"); close(d "/which"); close(d "/place")
        }
        name = ""
    }
    /^= / { flush(); name = substr($0, 3); old = new = ""; which = 0; place = "hetrain_cuda.cu" }
    /^- / { old = substr($0, 3) }
    /^\+ / { new = substr($0, 3) }
    /^@ / { which = substr($0, 3) + 0 }
    /^& / { place = substr($0, 3) }
    END { flush() }' tests/cuda/faults/faults.txt

# The file $2 with the fault into $1; fails when the text is not there exactly once, or fewer than N times.
apply() {
    awk -v oldfile="$1/fault_old" -v newfile="$1/fault_new" -v which="$(cat "$1/which")" '
        BEGIN { getline old < oldfile; getline new < newfile }
        { at = index($0, old); if (at && (++found == which || !which)) $0 = substr($0, 1, at - 1) new substr($0, at + length(old)); print }
        END { exit which ? found < which : found != 1 }' "$2" > "$1/$2"
}

${CC:-cc} -std=c99 -O1 -w -DHETRAIN_NO_SIMD -I. -Iutil -c tests/implementation.c -o "$work/implementation.o" || exit 2
${CC:-cc} -std=c99 -O1 -w -D_POSIX_C_SOURCE=200809L -I. -Iutil -Itests/cuda/cmocka -Itests -c tests/support.c -o "$work/support.o" || exit 2
${CXX:-g++} -std=c++17 -O1 -w -Itests/cuda -Itests/cuda/standin -c tests/cuda/standin/standin.cpp -o "$work/standin.o" || exit 2
# Kernels and device, of a directory with another hetrain_cuda.cu or of the repository.
build_device() {
    ${CXX:-g++} -std=c++17 -O1 -w -DHETC_EMULATED=1 '-DHETC_BLAS_WORKSPACE=size_t(4096)' -I. -Itests/cuda -Itests/cuda/standin -x c++ \
        -c "$1/hetrain_cuda.cu" -o "$2/hetrain_cuda.o"
}
build_device . "$work" || exit 2

# The suite with $1's files in front of the repository's.
build() {
    local d=$1 suite=$2 implementation=$work/implementation.o device=$work/hetrain_cuda.o
    if [ "$suite" = test_kernels ]; then
        device= # inside
    elif [ -f "$d/hetrain_cuda.cu" ]; then
        device=$d/hetrain_cuda.o
        build_device "$d" "$d" || return 1
    fi
    if [ -f "$d/hetrain.h" ]; then
        implementation=$d/implementation.o
        ${CC:-cc} -std=c99 -O1 -w -DHETRAIN_NO_SIMD -I"$d" -I. -Iutil -c tests/implementation.c -o "$implementation" || return 1
    fi
    ${CXX:-g++} -std=c++17 -O1 -w -I"$d" -I. -Iutil -Itests/cuda/cmocka -Itests -Itests/cuda -Itests/cuda/standin "tests/cuda/$suite.cpp" "$implementation" "$work/support.o" \
        "$work/standin.o" $device -o "$d/program" -lm -lpthread
}

try() {
    local d=$1 file tests suite=kernels
    read -r file tests < "$d/place"
    [ -n "$tests" ] && suite=cuda_device
    [ "$file" = hetrain_nccl.c ] && suite=nccl
    if ! apply "$d" "$file"; then
        echo "its text is not in the file as often as said" > "$d/wrong"
    elif ! build "$d" "test_$suite" 2> "$d/log"; then
        echo "does not build: $(grep -m1 error "$d/log")" > "$d/wrong"
    elif HETRAIN_TEST_ONLY=${tests:-*} timeout 300 "$d/program" > "$d/out" 2>&1; then
        echo "not caught" > "$d/wrong"
    else
        grep '^not ok' "$d/out" | sed 's/^not ok [0-9]* - //' | paste -sd' ' | cut -c1-110 > "$d/caught"
        [ -s "$d/caught" ] || echo "ended early: $(tail -n 1 "$d/out" | cut -c1-100)" > "$d/caught"
    fi
    rm -f "$d/program" "$d/$file" "$d"/*.o
}

. tests/tools/faults_run.sh
