#!/bin/bash
# hetrain_plan.h, or with the argument "files" hetrain_files.h, as test subject: warnings, symbols, include orders, options, and the manual against the
# code. Prints TAP.
root=$(cd "$(dirname "$0")/../.." && pwd)
name=${1:-plan}
case $name in
plan) private=heti_p_ free=het_simulation_free ;;
files) private=heti_f_ free=het_tokenizer_free ;;
*) exit 2 ;;
esac
upper=$(echo "$name" | tr a-z A-Z)
macro=$(echo "$private" | tr a-z A-Z)
header=$root/hetrain_$name.h
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
count=0
failures=0

result() { # result STATUS NAME [FILE with details]
    count=$((count + 1))
    if [ "$1" = 0 ]; then
        echo "ok $count - $2"
    else
        echo "not ok $count - $2"
        [ -n "${3:-}" ] && grep -v '^$' "$3" | head -n 8 | cut -c1-240 | sed 's/^/# /'
        failures=$((failures + 1))
    fi
}
# quiet NAME COMMAND...: succeeds and prints nothing; skipped where the compiler is missing
quiet() {
    local name=$1
    shift
    if ! command -v "$1" > /dev/null; then
        count=$((count + 1))
        echo "not ok $count # SKIP $name: $1 is not installed"
        return
    fi
    "$@" > log 2>&1 && [ ! -s log ]
    result $? "$name" log
}
# nothing NAME: standard input is empty
nothing() {
    grep -v '^$' > list
    [ ! -s list ]
    result $? "$1" list
}

warnings="-Wall -Wextra -Wpedantic -Werror -Wconversion -Wsign-conversion -Wfloat-conversion -Wdouble-promotion -Wshadow -Wundef -Wcast-qual -Wvla -Wformat=2"
c_warnings="$warnings -Wstrict-prototypes -Wmissing-prototypes -Wc++-compat"
include="-I$root"
printf "#define HETRAIN_${upper}_IMPLEMENTATION\n#include \"hetrain.h\"\n#include \"hetrain_$name.h\"\n" > whole.c
printf "#include \"hetrain.h\"\n#include \"hetrain_$name.h\"\nint used(void);\nint used(void) { return HETRAIN_VERSION_MAJOR; }\n" > declare.c
cp whole.c whole.cpp
cp declare.c declare.cpp

# ---- warnings ----
for compiler in gcc clang; do
    for standard in c99 c11 c17; do quiet "$compiler -std=$standard, no warnings" $compiler -std=$standard $c_warnings $include -c whole.c; done
    quiet "$compiler -O3, no warnings" $compiler -std=c99 -O3 $c_warnings $include -c whole.c
done
for standard in c++11 c++17 c++20; do
    quiet "g++ -std=$standard, no warnings" g++ -std=$standard $warnings -Wold-style-cast $include -c whole.cpp
    quiet "clang++ -std=$standard, no warnings" clang++ -std=$standard $warnings $include -c whole.cpp
done
quiet 'declarations alone, clang -Weverything' clang -std=c11 -Weverything -Werror -Wno-padded -Wno-declaration-after-statement $include -c declare.c
quiet 'declarations alone, clang++ -Weverything' clang++ -std=c++17 -Weverything -Werror -Wno-padded -Wno-c++98-compat-pedantic $include -c declare.cpp
quiet 'no reserved identifier, C' clang -std=c11 -Werror -Wreserved-identifier -Wreserved-macro-identifier $include -c whole.c
quiet 'no reserved identifier, C++' clang++ -std=c++17 -Werror -Wreserved-identifier -Wreserved-macro-identifier $include -c whole.cpp
quiet 'HETRAIN_NO_STDIO and HETRAIN_NO_DEFAULT_ALLOCATOR, no warnings' gcc -std=c99 $c_warnings $include -DHETRAIN_NO_STDIO -DHETRAIN_NO_DEFAULT_ALLOCATOR -c whole.c

# ---- include orders and copies ----
self="#include \"hetrain_$name.h\"\n"
printf "$self$self#define HETRAIN_${upper}_IMPLEMENTATION\n$self$self" > again.c
quiet 'declared, implemented, included again, without hetrain.h before it' gcc -std=c11 $c_warnings $include -c again.c
both="#define HETRAIN_IMPLEMENTATION\n#define HETRAIN_${upper}_IMPLEMENTATION\n#include \"hetrain.h\"\n$self"
for copy in first second; do
    printf '#define HETRAIN_STATIC\n'"$both"'int %s(void);\nint %s(void) { %s(NULL); return (int)het_version(); }\n' $copy $copy $free > $copy.c
done
printf 'int first(void);\nint second(void);\nint main(void) { return first() - second(); }\n' > main.c
quiet 'two static copies of both headers in one program' gcc -std=c11 -O0 -DHETRAIN_NO_SIMD $c_warnings $include first.c second.c main.c -o both -lm -lpthread
nothing 'HETRAIN_STATIC exports nothing' < <(gcc -std=c11 -DHETRAIN_NO_SIMD $include -c first.c -o first.o && nm -g --defined-only first.o | awk '{ print $3 }' | grep -v '^first$')
printf "$both" > both.cpp
quiet 'both implementations in one C++ file' g++ -std=c++11 -DHETRAIN_NO_SIMD $warnings -Wold-style-cast $include -c both.cpp
nothing 'no private name is one of hetrain.h' < <(
    grep -Eo "\b$private[a-z_0-9]+|\b$macro[A-Z_0-9]+" "$root/hetrain.h" | sort -u)

# ---- symbols ----
gcc -std=c11 -O1 $include -c whole.c -o plain.o 2> log || result 1 'object for the symbol checks' log
nothing 'every exported symbol starts with het_' < <(nm plain.o | awk '$2 ~ /^[A-TV-Z]$/ { print $3 }' | grep -v '^het_')
nothing "every other symbol starts with $private" < <(nm plain.o | awk '$2 ~ /^[a-z]$/ { print $3 }' | sed 's/\.[a-z0-9.]*$//' | grep -Ev "^(het_|$private|\.|\$)" | sort -u)
nothing 'no writable variable' < <(objdump -t plain.o | awk '($3 == "O" || $2 == "O") && /\.(data|bss|tdata|tbss)/ && !/\.data\.rel\.ro/ { print $NF }')
nothing 'only hetrain.h'"'"'s public functions, memory, strings and malloc are imported' < <(nm -u plain.o | awk '{ print $2 }' | grep -Evx 'het_[a-z0-9_]+|mem(cpy|set|move|cmp|chr)|str(len|cmp|cspn)|malloc|free|__stack_chk_fail|_GLOBAL_OFFSET_TABLE_')
gcc -std=c11 -O1 $include -DHETRAIN_NO_DEFAULT_ALLOCATOR -c whole.c -o bare.o
nothing 'HETRAIN_NO_DEFAULT_ALLOCATOR: no malloc' < <(nm -u bare.o | awk '{ print $2 }' | grep -Ex 'malloc|free')
nothing "every macro left behind starts with HETRAIN_ or $macro" < <(gcc -std=c11 -dD -E $include whole.c 2> /dev/null | awk -v header="$header" '
    /^# [0-9]+ "/ { file = $3; gsub(/"/, "", file) }
    file == header && /^#define / { split($2, parts, "("); defined[parts[1]] = 1 }
    file == header && /^#undef / { delete defined[$2] }
    END { for (name in defined) print name }' | grep -Ev "^(HETRAIN_|$macro)")

# ---- the manual ----
awk '{ print } /\*\// { exit }' "$header" > manual
awk 'done { print } /\*\// { done = 1 }' "$header" > code
sed -n '/^ *CONTENTS/,$p' manual | grep -Eo '^ *>>[a-z_0-9]+' | tr -d ' ' | sort > contents
grep -Eo '^ *(/\* -+ +)?>>[a-z_0-9]+' code | grep -Eo '>>[a-z_0-9]+' | sort > banners
nothing 'contents and banners agree' < <(comm -3 contents banners)
nothing 'no banner comes twice' < <(uniq -d banners)
sed -n '/^ *OPTIONS/,/^ *MEMORY/p' manual | grep -Eo '^ *HETRAIN_[A-Z_]+' | tr -d ' ' | grep -vx HETRAIN_STATIC | sort -u > options
grep -E '^ *# *(if|ifdef|ifndef|elif)' code | grep -Eo 'HETRAIN_[A-Z_]+' | sort -u | grep -Evx "HETRAIN_H|HETRAIN_${upper}_H|HETRAIN_${upper}_IMPLEMENTATION_DONE" > tested
nothing 'options of the table and of the code agree' < <(comm -3 options tested)
sed '/end of the API/q' code > api
awk '
    /^\/\*/ { comment = ""; open = 1 }
    open { comment = comment $0 }
    open && /\*\// { open = 0; if ($0 !~ /^HETRAIN_API/) next }
    /^HETRAIN_API/ {
        name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
        own = $0; sub(/^[^;]*;/, "", own)
        print name, ((own comment) ~ /Threads: (any|owner)/ ? "yes" : "no")
    }' api > functions
nothing 'every public function says from which threads it may be called' < <(grep ' no$' functions)
nothing 'what is declared and what is exported agree' < <(awk '{ print $1 }' functions | sort | comm -3 - <(nm -g --defined-only plain.o | awk '{ print $3 }' | sort))
nothing 'every public function is in the list of the manual' < <(awk '{ print $1 }' functions | sort | comm -3 - <(sed -n '/^ *FUNCTIONS/,/^ *CONTENTS/p' manual | grep -Eo '\bhet_[a-z_]+' | sort))
nothing 'no line is longer than 150 columns' < <(awk '{ if (length($0) > 150) print FILENAME ": " FNR ": " length($0) " columns" }' "$header")
nothing 'nothing is marked as unfinished' < <(grep -nE '\b(TODO|FIXME|XXX)\b' "$header")
nothing 'plain ASCII' < <(grep -nP '[^\x00-\x7F]' "$header")
latest=$(awk '/^\/\* -+ changes/ { found = 1; next } found && /^ *[0-9]+\.[0-9]+\.[0-9]+ / { print $1; exit }' "$header")
head -n 1 "$header" | grep -q "hetrain_$name.h $latest:"
result $? 'the first line and the changelog name the same version'
tail -n 25 "$header" | grep -q 'MIT No Attribution'
result $? 'the licence stands at the end'

echo "1..$count"
[ $failures = 0 ]
