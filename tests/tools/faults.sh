#!/bin/bash
# Seeded bugs: applies each entry of tests/faults/faults.txt to a copy of the headers (of util/hetrain_tcp.c and hetrain.h for that suite), builds the suite it names, and expects it to fail.
# Where an entry names the test of the suite, only that one is run. An entry whose text is not in them exactly once is an error. Prints TAP, and last
# "N faults, N caught".
# What was caught is recorded in build/faults under a checksum of the headers, the suite and the fault; the next run takes it from there.
# usage: tests/tools/faults.sh [words of the names to try]
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root" || exit 2
CC=${CC:-cc}
wanted=$*
records=$build/faults
mkdir -p "$records"

# One directory a fault: name, suite, old, new.
awk -v work="$work" -v wanted="$wanted" -v processor=" $(grep -m1 '^flags' /proc/cpuinfo 2> /dev/null) " '
    function lacks() {
        if (needs == "" || index(processor, " " needs " ")) return 0
        print "# left out: " name ": this processor has no " needs
        return 1
    }
    function flush(  d) {
        if (name != "" && (wanted == "" || index(name, wanted)) && !lacks()) {
            d = sprintf("%s/%03d", work, ++count)
            system("mkdir " d)
            split(suite, part, ":")
            print name > (d "/name"); print part[1] > (d "/suite"); print part[2] > (d "/test"); print old > (d "/old"); print new > (d "/new")
            close(d "/name"); close(d "/suite"); close(d "/test"); close(d "/old"); close(d "/new")
        }
        name = ""
    }
    /^= / { flush(); split(substr($0, 3), part, " [|] "); name = part[1]; suite = part[2]; needs = part[3]; old = new = "" }
    /^- / { old = substr($0, 3); sub(/^ +/, "", old) }
    /^\+ / { new = substr($0, 3); sub(/^ +/, "", new) }
    END { flush() }' tests/faults/faults.txt

# Writes the headers, with the fault in one of them, to $1, and where to $1/changed and $1/line; says so when the text is not there exactly once.
apply() {
    local header changed count=0 files='hetrain*.h util/*.h programs/choices.h programs/llmc.h programs/power.h'
    mkdir -p "$1/util" "$1/programs"
    [ "$(cat "$1/suite")" = test_tcp ] && files='util/hetrain_tcp.c hetrain.h'
    for header in $files; do
        cp "$header" "$1/$header"
        changed=$(grep -cF -f "$1/old" "$header")
        [ "$changed" = 0 ] && continue
        count=$((count + changed))
        echo "$header" > "$1/changed"
        grep -nF -m1 -f "$1/old" "$header" | cut -d: -f1 > "$1/line"
        awk -v oldfile="$1/old" -v newfile="$1/new" '
            BEGIN { getline old < oldfile; getline new < newfile }
            { at = index($0, old); if (at) $0 = substr($0, 1, at - 1) new substr($0, at + length(old)); print }' "$header" > "$1/$header"
    done
    [ $count = 1 ]
}

# The record of a fault: anything that could change its outcome is in the name.
record_of() {
    local suite source
    suite=$(cat "$1/suite")
    case $suite in
    golden*) source="tests/golden.c tests/golden/expected.txt" ;;
    test_tcp) source="tests/test_tcp.c util/hetrain_tcp.c tests/support.c tests/*.h" ;;
    *) source="tests/$suite.c tests/support.c tests/*.h" ;;
    esac
    # shellcheck disable=SC2086
    echo "$records/$({ cat "$1/suite" "$1/test" "$1/old" "$1/new" hetrain*.h util/*.h programs/choices.h programs/llmc.h programs/power.h $source; "$CC" --version; } | cksum | tr ' ' -)"
}

# Runs the program $1 with its output in $2, the test $3 alone or all, until its first failing test. Fails when a test fails or the program ends
# badly.
until_failure() {
    local program=$1 out=$2 pid
    : > "$out"
    env ${3:+HETRAIN_TEST_ONLY="$3"} CMOCKA_MESSAGE_OUTPUT=TAP timeout 600 stdbuf -oL "$program" > "$out" 2>&1 &
    pid=$!
    while kill -0 $pid 2> /dev/null; do
        if grep -q '^not ok [0-9]* - ' "$out"; then
            kill $pid 2> /dev/null
            break
        fi
        sleep 0.1
    done
    wait $pid
}

flags="-std=c99 -w"

# The implementation of the headers under $2 as objects in $1, one a header, compiled with $3: those of the headers named behind; all, for "all".
# hetrain_cpu is the CPU device, cut out of the implementation of hetrain.h that has it inside; hetrain then is the rest of it.
parts="hetrain hetrain_cpu hetrain_text hetrain_plan hetrain_search hetrain_tokenizer hetrain_files"
: > "$work/nothing.h"
build_parts() {
    local out=$1 from=$2 optimize=$3 part define source
    shift 3
    # shellcheck disable=SC2086
    [ "$1" = all ] && set -- $parts
    for part; do
        source=$part
        define=-D${part^^}_IMPLEMENTATION
        case $part in
        hetrain) define="$define -DHETRAIN_CPU=\"$work/nothing.h\"" ;;
        hetrain_cpu) source=hetrain define=-DHETRAIN_IMPLEMENTATION optimize=-O1 ;;
        esac
        echo "#include \"$source.h\"" > "$out/$part.c"
        [ "$part" = hetrain_files ] && sed -i '1i #include "hetrain_tokenizer.h"' "$out/$part.c" # het_save_gguf comes with it
        # shellcheck disable=SC2086
        $CC $flags $optimize $define -I"$from" -I"$from/util" -c "$out/$part.c" -o "$out/$part.o" 2>> "$out/log" || return 1
        [ "$part" != hetrain_cpu ] || objcopy --keep-global-symbol=het_cpu_device "$out/$part.o" || return 1
    done
}

# $1/program: suite $2 with the fault in $1. Objects that the fault cannot change are taken from what stands: a line in the implementation of a
# header changes that header's object, and the CPU device's too where it comes before it; one above it, all; one of a header that is no part, the
# suite.
link_suite() {
    local d=$1 suite=$2 object=$build/tests/$2.o header part line
    header=$(cat "$d/changed")
    line=$(cat "$d/line")
    part=$(basename "$header" .h)
    if [[ " $parts " != *" $part "* ]]; then
        part=
    elif [ "$part" != hetrain_cpu ] && [ "$line" -lt "$(grep -n -m1 "defined(${part^^}_IMPLEMENTATION)" "$header" | cut -d: -f1)" ]; then
        part=all
    elif [ "$part" = hetrain ] && [ "$line" -lt "$(grep -n -m1 "include HETRAIN_CPU" "$header" | cut -d: -f1)" ]; then
        part="hetrain hetrain_cpu"
    fi
    # shellcheck disable=SC2086
    build_parts "$d" "$d" -O0 $part || return 1
    if [ "${part:-all}" = all ]; then
        object=$d/$suite.o
        # shellcheck disable=SC2086
        $CC $flags -O1 -I"$d" -I"$d/util" -I"$d/programs" -I. -Iutil -Itests -c "tests/$suite.c" -o "$object" 2>> "$d/log" || return 1
    fi
    for part in $parts; do [ -f "$d/$part.o" ] || ln "$work/whole/$part.o" "$d/$part.o"; done
    # shellcheck disable=SC2046,SC2086,SC2059
    $CC "$object" "$build/tests/support.o" $(printf "$d/%s.o " $parts) -o "$d/program" -lcmocka -lm -lpthread 2>> "$d/log"
}
mkdir "$work/whole"
build_parts "$work/whole" "$root" -O1 all || { cat "$work/whole/log"; exit 1; }

try() {
    local d=$1 suite isa record
    suite=$(cat "$d/suite")
    record=$(record_of "$d")
    if [ -s "$record" ]; then
        cp "$record" "$d/caught"
        return
    fi
    if ! apply "$d"; then
        echo "its text is not in the headers exactly once" > "$d/wrong"
        return
    fi
    case $suite in
    golden*) $CC -std=gnu17 -O2 -w -march=native -ffp-contract=fast -I"$d" -I"$d/util" tests/golden.c -o "$d/program" -lm -lpthread 2> "$d/log" ;;
    test_inside | test_choices | test_llmc | test_power) $CC $flags -O1 -I"$d" -I"$d/util" -I. -Iutil -Itests "tests/$suite.c" "$build/tests/support.o" "$build/tests/implementation.o" -o "$d/program" -lcmocka -lm -lpthread 2> "$d/log" ;;
    *) link_suite "$d" "$suite" ;;
    esac
    if [ $? -ne 0 ]; then
        echo "does not build: $(grep -m1 error "$d/log")" > "$d/wrong"
    elif [ "${suite%_vector}" = golden ]; then
        isa=plain
        [ "$suite" = golden_vector ] && isa=
        HETRAIN_TEST_ISA=$isa timeout 300 "$d/program" > "$d/out" 2>&1
        if diff -q tests/golden/expected.txt "$d/out" > /dev/null; then echo "not caught by $suite" > "$d/wrong"; else echo "other bits" > "$d/caught"; fi
    elif until_failure "$d/program" "$d/out" "$(cat "$d/test")"; then
        echo "not caught by $suite $(cat "$d/test")" > "$d/wrong"
    else
        sed -n 's/^not ok [0-9]* - //p' "$d/out" | tr '\n' ' ' | cut -c1-150 > "$d/caught"
        [ -s "$d/caught" ] || echo "ended early: $(tail -n 1 "$d/out" | cut -c1-100)" > "$d/caught"
    fi
    if [ -f "$d/caught" ]; then
        sed -i "s/^/$suite: /" "$d/caught"
        cp "$d/caught" "$record"
    fi
    rm -rf "$d/program" "$d"/*.o "$d"/hetrain* "$d/util" "$d/programs"
}

. tests/tools/faults_run.sh
