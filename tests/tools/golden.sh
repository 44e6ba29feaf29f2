#!/bin/bash
# One hash from every compiler, set of flags, instruction set and processor at hand. Prints TAP.
# usage: tests/tools/golden.sh [--all | --write]   --all: the long list, as in make golden; --write: takes what a plain build prints as the expected
# lines
cd "$(dirname "$0")/../.." || exit 2
out=build/golden
expected=tests/golden/expected.txt
mkdir -p $out
CC=${CC:-cc}

if [ "${1:-}" = --write ]; then
    $CC -O2 -I. -Iutil tests/golden.c -o $out/write -lm -lpthread && $out/write > $expected && cat $expected
    exit
fi

warnings="-Wall -Wextra -Wpedantic -Werror -Wconversion -Wsign-conversion -Wfloat-conversion -Wdouble-promotion -Wshadow -Wundef -Wcast-qual -Wvla -Wformat=2"
# the optimised engine that all suites link, where it has been built
object=${BUILD:-build}/tests/implementation.o
linked=
[ -f "$object" ] && linked="as the tests are built, -O2|$CC|-std=c99 -O2 -DHETRAIN_IMPLEMENTATION_DONE=1 -DHETRAIN_TEXT_IMPLEMENTATION_DONE=1 $object||"
# name | compiler | flags | environment of a run; of another run | how to run it. Those with + are left to --all: what is special about them the
# others have too, each in another combination. gcc contracts with -fexpensive-optimizations, which -O1 alone has not.
configurations="
$linked
gcc -std=c99 -O0, no instruction sets, no threads|gcc|-std=c99 -O0 -DHETRAIN_NO_SIMD -DHETRAIN_NO_THREADS||
+gcc -std=c99 -O0|gcc|-std=c99 -O0||
+gcc -std=gnu17 -O2, avx2, 3 threads, and the reference device|gcc|-std=gnu17 -O2|HETRAIN_TEST_ISA=avx2 HETRAIN_TEST_THREADS=3;HETRAIN_TEST_ISA=reference|
gcc -O1 -march=native -ffp-contract=fast, no warnings: native, plain, the reference device|gcc|-std=gnu17 -O1 -fexpensive-optimizations -march=native -ffp-contract=fast $warnings|HETRAIN_TEST_ISA=;HETRAIN_TEST_ISA=plain;HETRAIN_TEST_ISA=reference|
+gcc -O3 -march=native -ffp-contract=fast, no warnings: native, plain, the reference device|gcc|-std=gnu17 -O3 -march=native -ffp-contract=fast $warnings|HETRAIN_TEST_ISA=;HETRAIN_TEST_ISA=plain;HETRAIN_TEST_ISA=reference|
+gcc -O1 -ffp-contract=off, avx512|gcc|-std=c99 -O1 -ffp-contract=off|HETRAIN_TEST_ISA=avx512|
gcc -O0, hetrain.h alone|gcc|-std=gnu17 -O0 -march=native -DHETRAIN_NO_CPU||
+gcc -O2, hetrain.h alone|gcc|-std=gnu17 -O2 -march=native -DHETRAIN_NO_CPU||
+gcc -O2, no instruction sets, no threads|gcc|-std=c99 -O2 -DHETRAIN_NO_SIMD -DHETRAIN_NO_THREADS||
g++ -std=c++11 -O0, avx512|g++|-x c++ -std=c++11 -O0|HETRAIN_TEST_ISA=avx512|
+g++ -std=c++11 -O1 -ffp-contract=off, avx512|g++|-x c++ -std=c++11 -O1 -ffp-contract=off|HETRAIN_TEST_ISA=avx512|
+g++ -std=c++11 -O1|g++|-x c++ -std=c++11 -O1||
clang -std=c99 -O0|clang|-std=c99 -O0||
+clang -std=c99 -O0, plain|clang|-std=c99 -O0|HETRAIN_TEST_ISA=plain|
+clang -std=gnu17 -O1, 2 threads|clang|-std=gnu17 -O1|HETRAIN_TEST_THREADS=2|
clang -O1 -march=native -ffp-contract=fast: native, plain, the reference device|clang|-std=gnu17 -O1 -march=native -ffp-contract=fast|HETRAIN_TEST_ISA=;HETRAIN_TEST_ISA=plain;HETRAIN_TEST_ISA=reference|
+clang -O3 -march=native -ffp-contract=fast: native, plain, the reference device|clang|-std=gnu17 -O3 -march=native -ffp-contract=fast|HETRAIN_TEST_ISA=;HETRAIN_TEST_ISA=plain;HETRAIN_TEST_ISA=reference|
+clang++ -std=c++11 -O2 -ffp-contract=off, avx2|clang++|-x c++ -std=c++11 -O2 -ffp-contract=off|HETRAIN_TEST_ISA=avx2|
clang++ -std=c++11 -O0, avx2, 3 threads|clang++|-x c++ -std=c++11 -O0|HETRAIN_TEST_ISA=avx2 HETRAIN_TEST_THREADS=3|
+clang++ -std=c++11 -O1, avx2, 3 threads|clang++|-x c++ -std=c++11 -O1|HETRAIN_TEST_ISA=avx2 HETRAIN_TEST_THREADS=3|
aarch64 gcc -O1 -ffp-contract=fast: neon|aarch64-linux-gnu-gcc|-std=gnu17 -O1 -fexpensive-optimizations -ffp-contract=fast -static|HETRAIN_TEST_ISA=neon HETRAIN_TEST_THREADS=2|qemu-aarch64
+aarch64 gcc -O2 -ffp-contract=fast: neon, plain, the reference device|aarch64-linux-gnu-gcc|-std=gnu17 -O2 -ffp-contract=fast -static|HETRAIN_TEST_ISA=neon HETRAIN_TEST_THREADS=2;HETRAIN_TEST_ISA=plain;HETRAIN_TEST_ISA=reference|qemu-aarch64
+aarch64 gcc -O3 -ffp-contract=fast: neon, plain, the reference device|aarch64-linux-gnu-gcc|-std=gnu17 -O3 -ffp-contract=fast -static|HETRAIN_TEST_ISA=neon HETRAIN_TEST_THREADS=2;HETRAIN_TEST_ISA=plain;HETRAIN_TEST_ISA=reference|qemu-aarch64
+musl gcc -O2: native, plain|musl-gcc|-std=gnu17 -O2 -static|HETRAIN_TEST_ISA=;HETRAIN_TEST_ISA=plain|
+riscv64 gcc -O2 -ffp-contract=fast: plain, the reference device|riscv64-linux-gnu-gcc|-std=gnu17 -O2 -ffp-contract=fast -static|HETRAIN_TEST_ISA=plain;HETRAIN_TEST_ISA=reference|qemu-riscv64
+mingw gcc -O2 -mfma: native, 3 threads, 2 ranks, plain, the reference device|x86_64-w64-mingw32-gcc-posix|-std=gnu17 -O2 -mfma -static|HETRAIN_TEST_THREADS=3;HETRAIN_TEST_RANKS=2;HETRAIN_TEST_ISA=plain;HETRAIN_TEST_ISA=reference|wine
"
if [ "${1:-}" = --all ]; then configurations=$(sed 's/^+//' <<< "$configurations"); else configurations=$(grep -v '^+' <<< "$configurations"); fi

# Builds and runs one configuration; writes its TAP line (without a number) to a file.
one() {
    local number=$1 name compiler flags environments environment emulator isa
    IFS='|' read -r name compiler flags environments emulator <<< "$2"
    local program=$out/golden$number.exe result=$out/golden$number.tap
    isa=$(grep -Eo '\<(avx2|avx512)\>' <<< "$environments")
    if ! command -v "$compiler" > /dev/null || { [ -n "$emulator" ] && ! command -v "$emulator" > /dev/null; }; then
        echo "skip $name # $compiler or $emulator is not installed" > "$result"
    elif [ -n "$isa" ] && ! grep -qw "${isa/avx512/avx512f}" /proc/cpuinfo 2> /dev/null; then
        echo "skip $name # this processor has no $isa" > "$result"
    # shellcheck disable=SC2086
    elif ! $compiler $flags -I. -Iutil tests/golden.c -o "$program" -lm -lpthread 2> "$program.err"; then
        { echo "fail $name: does not build"; sed 's/^/# /' "$program.err" | head -n 5; } > "$result"
    else
        echo "pass $name" > "$result"
        while IFS= read -r -d ';' environment; do
            if ! timeout 300 env $environment $emulator "$program" > "$program.txt" 2> "$program.err"; then
                { echo "fail $name: $environment does not run"; sed 's/^/# /' "$program.err" | head -n 5; } > "$result"
            elif ! tr -d '\r' < "$program.txt" | diff $expected - > "$program.diff"; then
                { echo "fail $name: $environment has other bits"; sed 's/^/# /' "$program.diff" | head -n 12; } > "$result"
            fi
        done <<< "$environments;"
    fi
}

rm -f $out/*.tap
count=0
while IFS= read -r line; do
    [ -n "$line" ] || continue
    count=$((count + 1))
    one $count "$line" &
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
done <<< "$configurations"
wait

echo "1..$count"
bad=0
for number in $(seq $count); do
    read -r verdict rest < $out/golden$number.tap
    case $verdict in
    pass) echo "ok $number - $rest" ;;
    skip) echo "not ok $number # SKIP $rest" ;;
    *) echo "not ok $number - $rest"; tail -n +2 $out/golden$number.tap; bad=1 ;;
    esac
done
exit $bad
