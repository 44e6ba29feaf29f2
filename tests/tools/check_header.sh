#!/bin/bash
# The headers as test subjects: warnings, symbols, include orders, every option, and the manual against the code. Prints TAP.
# usage: tests/tools/check_header.sh [--all] [HEADER PREFIX [BEFORE]]   PREFIX: what its private names start with; BEFORE: a companion that it takes
# more from where that is included before it. Without them: all headers, listed here. --all: also with -O3, as make check-header does
headers='
hetrain.h heti_
util/hetrain_text.h heti_t_
util/hetrain_plan.h heti_p_
util/hetrain_search.h heti_s_
util/hetrain_tokenizer.h heti_k_
util/hetrain_files.h heti_f_ hetrain_tokenizer.h
util/hetrain_outer.h heti_o_
util/hetrain_experts.h heti_x_
'
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/tools/tap.sh"
CC=${CC:-gcc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
whole=
[ "${1:-}" = --all ] && { whole=1; shift; }
[ $# -ge 2 ] && headers="$1 $2 ${3:-}"

warnings="-Wall -Wextra -Wpedantic -Werror -Wconversion -Wsign-conversion -Wfloat-conversion -Wdouble-promotion -Wshadow -Wundef -Wcast-qual -Wvla -Wformat=2"
c_warnings="$warnings -Wstrict-prototypes -Wmissing-prototypes -Wc++-compat"
include="-I$root -I$root/util"

result() { # result STATUS NAME [FILE with details]
    report "$1" "$name: $2" "$(grep -v '^$' "${3:-/dev/null}" | head -n 8 | cut -c1-240)"
}
# quiet NAME COMMAND...: succeeds and prints nothing
quiet() {
    local what=$1
    shift
    "$@" > log 2>&1 && [ ! -s log ]
    result $? "$what" log
}
# nothing NAME: standard input is empty
nothing() {
    grep -v '^$' > list
    [ ! -s list ]
    result $? "$1" list
}
# The main header, which the others build on; they are companions of it.
is_main() { [ "$name" = hetrain.h ]; }
has_option() { grep -qx "$1" options; }

# options_of HEADER: those of the table in its manual
options_of() { sed -n '1,/\*\//p' "$1" | sed -n '/^ *OPTIONS/,/^ *MEMORY/p' | grep -Eo '^ *HETRAIN_[A-Z_]+' | tr -d ' ' | sort -u; }
all_off=$(options_of "$root/hetrain.h" | sed -n 's/^HETRAIN_NO_/-D&/p' | tr '\n' ' ')

# Sources: whole has the implementation, both also that of hetrain.h, declare neither. The manual is the first comment of the header, the code the
# rest, the API what stands before "end of the API".
prepare() {
    local suffix other
    [ -z "$before" ] || before="#include \"$before\"\n"
    printf '#define %s\n'"$before"'#include "%s"\n' "$implementation" "$name" > whole.c
    printf '#define HETRAIN_IMPLEMENTATION\n#define HETRAIN_TOKENIZER_IMPLEMENTATION\n#define HETRAIN_PLAN_IMPLEMENTATION\n#define %s\n#include "hetrain.h"\n'"$before"'#include "%s"\n' \
        "$implementation" "$name" > both.c
    printf "$before"'#include "%s"\nint used(void);\nint used(void) { return HETRAIN_VERSION_MAJOR; }\n' "$name" > declare.c
    for suffix in whole declare; do cp $suffix.c $suffix.cpp; done
    is_main && while read -r other _; do
        other=${other##*/} suffix=$(tr a-z. A-Z_ <<< "$other")
        [ -z "$other" ] || printf '#define %s\n#include "%s"\n' "${suffix%_H}_IMPLEMENTATION" "$other"
    done <<< "$headers" > together.cpp
    awk '{ print } /\*\// { exit }' "$header" > manual
    awk 'done { print } /\*\// { done = 1 }' "$header" > code
    if is_main; then cat code "$root/hetrain_cpu.h" > all; else cp code all; fi
    sed '/end of the API/q' code > api
    options_of "$header" > options
}

# ---- warnings ----

# compile NAME COMMAND [OBJECT]. Several run at once: each writes its status and log, and the results are told in order.
compile() { printf '%s|%s|%s\n' "$1" "$2" "${3:-}" >> jobs; }
run_jobs() {
    local number=0 what command object status
    while IFS='|' read -r what command object; do
        number=$((number + 1))
        {
            if command -v "${command%% *}" > /dev/null; then
                $command -o "${object:-job$number.o}" > job$number.log 2>&1
                echo $? > job$number.status
            else
                echo skip > job$number.status
            fi
        } &
        while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
    done < jobs
    wait
    number=0
    while IFS='|' read -r what command object; do
        number=$((number + 1))
        status=$(cat job$number.status)
        if [ "$status" = skip ]; then
            leave_out "$name: $what: ${command%% *} is not installed"
        else
            [ "$status" = 0 ] && [ ! -s job$number.log ]
            result $? "$what" job$number.log
        fi
    done < jobs
}

# The front ends say what another compiler, standard or option brings out; code comes of what has symbols that are looked at below. Of newer standards
# one compiler each. --all has both with all, code of each compiler for what a target lacks (golden.sh builds hetrain.h with each as well), and -O3, for
# what only gcc's optimiser sees (-O2 in the Makefile, which builds every test with these warnings). An option is tried without the loops for instruction
# sets, which have none.
check_warnings() {
    local standard compiler off fewer front=-fsyntax-only reserved='-Wreserved-identifier -Wreserved-macro-identifier'
    [ -n "$whole" ] && front=-c
    for standard in ${whole:+c11} c17; do
        [ -z "$whole" ] || compile "gcc -std=$standard, no warnings" "gcc -std=$standard $c_warnings $include -fsyntax-only whole.c"
        compile "clang -std=$standard, no warnings, no reserved identifier" "clang -std=$standard $c_warnings $reserved $include -fsyntax-only whole.c"
    done
    for standard in ${whole:+c++17} c++20; do
        compile "g++ -std=$standard, no warnings" "g++ -std=$standard $warnings -Wold-style-cast $include -fsyntax-only whole.cpp"
        [ -z "$whole" ] || compile "clang++ -std=$standard, no warnings" "clang++ -std=$standard $warnings $include -fsyntax-only whole.cpp"
    done
    compile 'gcc -std=c99, no warnings' "gcc -std=c99 $c_warnings $include -c whole.c" plain.o
    compile 'clang -std=c99, no warnings' "clang -std=c99 $c_warnings $include $front whole.c"
    compile 'g++ -std=c++11, no warnings' "g++ -std=c++11 $warnings -Wold-style-cast $include $front whole.cpp"
    compile 'clang++ -std=c++11, no warnings, no reserved identifier' "clang++ -std=c++11 $warnings $reserved $include $front whole.cpp"
    [ -n "$whole" ] && compile 'gcc -O3 -march=native, no warnings' "gcc -std=c17 -O3 -march=native $c_warnings $include -c whole.c"
    compile 'aarch64 gcc, no warnings' "aarch64-linux-gnu-gcc -std=c99 $c_warnings $include $front whole.c"
    compile 'mingw gcc behind windows.h, no warnings' "x86_64-w64-mingw32-gcc-posix -std=c99 $c_warnings $include -include windows.h $front whole.c"
    compile 'mingw g++, no warnings' "x86_64-w64-mingw32-g++-posix -std=c++11 $warnings -Wold-style-cast $include $front whole.cpp"
    compile 'declarations alone, clang -Weverything' "clang -std=c11 -Weverything -Werror -Wno-padded -Wno-declaration-after-statement $include -c declare.c"
    compile 'declarations alone, clang++ -Weverything' "clang++ -std=c++17 -Weverything -Werror -Wno-padded -Wno-c++98-compat-pedantic $include -c declare.cpp"
    for off in $(grep '^HETRAIN_NO_' options); do
        [ $off = HETRAIN_NO_SIMD ] && fewer= || fewer=-DHETRAIN_NO_SIMD
        case $off in HETRAIN_NO_SIMD | HETRAIN_NO_CPU) front=-c ;; *) [ -n "$whole" ] && front=-c || front=-fsyntax-only ;; esac
        compile "$off, gcc, no warnings" "gcc -std=c99 $c_warnings $include -D$off $fewer $front whole.c" $off.o
        is_main && compile "$off and HETRAIN_STATIC, clang, no warnings" "clang -std=c99 $c_warnings $include -DHETRAIN_STATIC -D$off $fewer -fsyntax-only whole.c"
    done
    compile 'all HETRAIN_NO_* together, gcc' "gcc -std=c99 $c_warnings $include $all_off -c whole.c" bare.o
    compile 'all HETRAIN_NO_* together, g++' "g++ -std=c++11 $warnings -Wold-style-cast $include $all_off -fsyntax-only whole.cpp"
    has_option HETRAIN_ASSERT && compile 'HETRAIN_ASSERT is used as given' "gcc -std=c11 $c_warnings $include -include assert.h -DHETRAIN_ASSERT=assert -fsyntax-only whole.c"
    is_main && compile 'all implementations in one C++ file' "g++ -std=c++11 -DHETRAIN_NO_SIMD $warnings -Wold-style-cast $include -fsyntax-only together.cpp"
    { echo '#define HETRAIN_STATIC'; cat both.c; printf 'int first(void);\nint first(void) { return het_cpu_device() != NULL; }\n'; } > first.c
    compile 'a static copy, clang, no warnings' "clang -std=c11 $quick $c_warnings $include -c first.c" first.o
    run_jobs
}

# ---- include orders and copies ----

check_copies() {
    local built=both.c self="#include \"$name\"\n"
    printf "$self$self#define $implementation\n$self$self#undef $implementation\n$self" > again.c
    quiet 'declared, implemented, included again' gcc -std=c11 $c_warnings $include -fsyntax-only again.c
    printf '#include <string.h>\n#include <math.h>\n#include <stdio.h>\n'"$self"'int main(void) { return het_cpu_device() != het_reference_device() && HETRAIN_VERSION == HETRAIN_VERSION_MAJOR * 10000 + HETRAIN_VERSION_MINOR * 100 + HETRAIN_VERSION_PATCH ? 0 : 1; }\n' > uses.c
    cp plain.o "$name.o" && ar rc ../engine.a "$name.o" # what is checked alone has nothing to link with yet
    { is_main || ar t ../engine.a | grep -q '^hetrain.h.o'; } && built="$name.o ../engine.a"
    quiet 'a program and the implementation in two files' sh -c "gcc -std=c99 $quick $c_warnings $include uses.c $built -o uses -lm -lpthread && ./uses"
    printf 'int first(void);\nint second(void);\nint main(void) { return first() - second(); }\n' > main.c
    quiet 'two of them in one program' sh -c "objcopy --redefine-sym first=second first.o second.o && gcc -std=c11 main.c first.o second.o -o copies -lm -lpthread && ./copies"
    nothing 'HETRAIN_STATIC exports nothing' < <(nm -g --defined-only first.o | awk '{ print $3 }' | grep -v '^first$')
    is_main || nothing 'no private name is one of hetrain.h' < <(grep -Eo "\b$private[a-z_0-9]+|\b$macros[A-Z_0-9]+" "$root/hetrain.h" | sort -u)
    is_main && check_folders
}

# What is copied into a folder: the header and hetrain_cpu.h, or one of them, or both under other names. --all also runs a program of each, which fails
# where its CPU device is the reference device; else it is enough that the preprocessor takes the file or does not.
check_folders() {
    local program='#define HETRAIN_IMPLEMENTATION\n#include "%s"\nint main(void) { return het_cpu_device() == het_reference_device(); }\n'
    mkdir alone pair renamed
    cp "$header" alone
    cp "$header" "$root/hetrain_cpu.h" pair
    cp "$header" renamed/trainer.h
    cp "$root/hetrain_cpu.h" renamed/loops.h
    printf "$program" hetrain.h > folder.c
    printf '#define HETRAIN_CPU "loops.h"\n'"$program" trainer.h > renamed.c
    cp folder.c folder.cpp
    sed 1d folder.c > called.c
    quiet 'a folder of two files takes the second' sh -c "gcc -E -Ipair folder.c | grep -q '\"pair/hetrain_cpu.h\"'"
    quiet 'one of renamed copies too (HETRAIN_CPU)' sh -c "gcc -E -Irenamed renamed.c | grep -q '\"renamed/loops.h\"'"
    quiet 'and the header alone nothing' sh -c "gcc -E -Ialone folder.c > taken && ! grep -E '^# [0-9]+ \"[^/<\"]' taken | grep -Ev '\"(alone/hetrain.h|folder.c)\"'"
    quiet 'HETRAIN_NO_CPU leaves it out' sh -c "gcc -std=c99 $c_warnings -DHETRAIN_NO_CPU -Ipair called.c HETRAIN_NO_CPU.o -o folder -lm -lpthread && ! ./folder"
    [ -n "$whole" ] || return
    quiet 'a folder of two files has the CPU device' sh -c "gcc -std=c99 $c_warnings -DHETRAIN_NO_SIMD -Ipair folder.c -o folder -lm -lpthread && ./folder"
    quiet 'and in C++17' sh -c "g++ -std=c++17 $warnings -Wold-style-cast -DHETRAIN_NO_SIMD -Ipair folder.cpp -o folder -lm -lpthread && ./folder"
    quiet 'the header alone has the reference device' sh -c "gcc -std=c99 $c_warnings -DHETRAIN_NO_SIMD -Ialone folder.c -o folder -lm -lpthread && ! ./folder"
    quiet 'and in C++17' sh -c "g++ -std=c++17 $warnings -Wold-style-cast -DHETRAIN_NO_SIMD -Ialone folder.cpp -o folder -lm -lpthread && ! ./folder"
    quiet 'renamed copies (HETRAIN_CPU)' sh -c "gcc -std=c99 $c_warnings -DHETRAIN_NO_SIMD -Irenamed renamed.c -o folder -lm -lpthread && ./folder"
}

# ---- arithmetic that is refused ----

refused() { # refused NAME WORD COMMAND...
    local what=$1 word=$2
    shift 2
    "$@" > log 2>&1
    [ $? -ne 0 ] && grep -q "error.*hetrain.*$word" log
    result $? "$what" log
}
check_arithmetic() {
    has_option HETRAIN_NO_BIT_PROMISE || return
    refused 'big-endian floats are refused' 'little-endian' gcc -std=c99 -Wfatal-errors -U__BYTE_ORDER__ -D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__ $include -fsyntax-only whole.c
    refused '-ffast-math is refused' 'fast-math' gcc -std=c99 -Wfatal-errors -ffast-math $include -fsyntax-only whole.c
    refused '-Ofast is refused' 'fast-math' gcc -std=c99 -Wfatal-errors -Ofast $include -fsyntax-only whole.c
    [ "$(uname -m)" = x86_64 ] && refused 'excess precision is refused' 'excess precision' gcc -std=c99 -Wfatal-errors -mfpmath=387 $include -fsyntax-only whole.c
    cat > once.c << 'END'
#include <math.h>
#include <string.h>
#define fma(x, y, z) ((x) * (y) + (z))
#include "whole.c"
int main(void) {
    het_desc desc;
    het_ctx *ctx;
    het_error error;
    memset(&desc, 0, sizeof desc);
    return het_create(&desc, &ctx, &error) == HET_ERR_UNSUPPORTED && strstr(error.text, "rounds more than once") != NULL ? 0 : 1;
}
END
    gcc -std=gnu99 -ffp-contract=off -DHETRAIN_NO_CPU $include once.c -o once -lm -lpthread > log 2>&1 && ./once >> log 2>&1
    result $? 'an fma that rounds more than once is refused' log
    quiet 'HETRAIN_NO_BIT_PROMISE allows both' gcc -std=c99 -ffast-math $include -DHETRAIN_NO_BIT_PROMISE -fsyntax-only whole.c
}

# ---- symbols ----

imported() { nm -u "$1" | awk '{ print $2 }'; }
# imports OPTION PATTERN NAME: the build with the option imports nothing that matches, and the plain one does. Without --all there is none: the front end
# has refused what is called undeclared, and what everything off leaves is looked at below
imports() {
    has_option "$1" && [ -n "$whole" ] || return
    imported "$1.o" | grep -Ex "$2" > list
    # what hetrain_text.h allocates, it does in the objects of others
    imported plain.o | grep -Exq "$2" || [ "$name" = hetrain_text.h ] || echo "the plain build imports nothing of this either: the check proves nothing" >> list
    [ ! -s list ]
    result $? "$1: $3" list
}
check_symbols() {
    local public='HETRAIN_' compilers='__stack_chk_fail|_GLOBAL_OFFSET_TABLE_|__cpu_model|__cpu_indicator_init'
    local memory='mem(cpy|set|move|cmp|chr)|str[a-z]+' rounding='fmaf?|sqrtf?|floorf?|rintf?|nearbyintf?|ldexpf?|frexpf?|scalbnf?|fabsf?|copysignf?|fe[a-z]+'
    local forbidden='exit|_exit|_Exit|quick_exit|atexit|abort|raise|signal|sigaction|printf|puts|putchar|vprintf|perror|getenv|setenv|setlocale|rand|srand|random|time|clock|gettimeofday|system|longjmp|__assert_fail'
    local own_math='exp|expf|log|logf|log2|log2f|pow|powf|sin|sinf|cos|cosf|tan|tanf|tanh|tanhf|erf|erff|cbrt|exp2|exp2f|log1p|expm1'
    is_main && public='HETRAIN_|HET_'
    is_main || memory="het_[a-z_0-9]+|mem(cpy|set|move|cmp|chr)|str(len|n?cmp|r?chr|str|c?spn)|fma" rounding=
    local files=-
    has_option HETRAIN_NO_STDIO && files='f(open|close|write|flush|error)|remove|rename'
    nothing 'every exported symbol starts with het_' < <(nm plain.o | awk '$2 ~ /^[A-TV-Z]$/ { print $3 }' | grep -v '^het_')
    nothing "every other symbol starts with $private" < <(nm plain.o | awk '$2 ~ /^[a-z]$/ { print $3 }' | sed 's/\.[a-z0-9.]*$//' | grep -Ev "^(het_|$private|heti_t_|\.|\$)" | sort -u)
    nothing 'no writable variable' < <(objdump -t plain.o | awk '($3 == "O" || $2 == "O") && /\.(data|bss|tdata|tbss)/ && !/\.data\.rel\.ro/ { print $NF }')
    nothing 'neither ends the process, nor talks, nor asks for environment, randomness or, but for clock_gettime, the time' < <(imported plain.o | grep -Ex "$forbidden")
    nothing 'no function of libm that is not correctly rounded' < <(imported plain.o | grep -Ex "$own_math")
    is_main || nothing 'only public functions of hetrain.h, memory, strings, malloc and files are imported' < <(imported plain.o | grep -Evx "$memory|malloc|free|$files|$compilers")
    nothing "every macro left behind starts with ${public//|/, } or $macros" < <(gcc -std=c11 -dD -E $include whole.c 2> /dev/null | awk -v header="$header" '
        /^# [0-9]+ "/ { file = $3; gsub(/"/, "", file) }
        file == header && /^#define / && $3 !~ /_is_now_/ { split($2, parts, "("); defined[parts[1]] = 1 }
        /^#undef / { delete defined[$2] }
        END { for (name in defined) print name }' | grep -Ev "^($public|$macros)")
    imports HETRAIN_NO_STDIO 'f(open|close|read|write|seek|seeko|tell|tello|flush|printf|puts|putc|gets|error|eof)|v?s?n?printf|v?fprintf|rename|remove|tmpfile|stderr|stdout|stdin|fileno|fsync|perror' 'no function of stdio'
    imports HETRAIN_NO_THREADS 'pthread_.*|sched_yield|sem_.*|thrd_.*|mtx_.*|nanosleep|usleep' 'no function of threads'
    imports HETRAIN_NO_DEFAULT_ALLOCATOR 'malloc|calloc|realloc|free|aligned_alloc|posix_memalign|memalign' 'no function of malloc'
    if has_option HETRAIN_NO_SIMD && [ "$(uname -m)" = x86_64 ]; then
        nothing 'HETRAIN_NO_SIMD: no instruction set beyond the compiler'"'"'s own' < <({ nm HETRAIN_NO_SIMD.o | grep -E 'heti_(avx|neon)'; objdump -d HETRAIN_NO_SIMD.o | grep -Eo '%[yz]mm[0-9]+' | sort | uniq -c | head -n 3; })
        nm plain.o | grep -q heti_avx512
        result $? 'the plain build has AVX-512 loops'
    fi
    nothing 'with everything off, only memory, strings and rounding are imported' < <(imported bare.o | grep -Evx "$memory|$rounding|$compilers")
}

# ---- the manual ----

check_manual() {
    local lines version latest files=("$header")
    lines=$(wc -l < manual)
    [ "$lines" -le 400 ]
    result $? "the manual has at most 400 lines ($lines)"
    sed -n '/^ *CONTENTS/,$p' manual | grep -Eo '^ *>>[a-z_0-9]+' | tr -d ' ' | sort > contents
    grep -Eo '^ *(/\* -+ +)?>>[a-z_0-9]+' code | grep -Eo '>>[a-z_0-9]+' | sort > banners
    nothing 'every tag of the contents has a banner' < <(comm -23 contents banners | sed 's/$/ is in the contents and has no banner/')
    nothing 'every banner is in the contents' < <(comm -13 contents banners | sed 's/$/ is not in the contents/')
    nothing 'no banner comes twice' < <(uniq -d banners)
    nothing 'every tag the manual mentions exists' < <(grep -Eo '>>[a-z_]+' manual | sort -u | comm -23 - banners)
    # what HETRAIN_STATIC means, hetrain.h says
    if is_main; then cp options table; else grep -vx HETRAIN_STATIC options > table; fi
    grep -E '^ *# *(if|ifdef|ifndef|elif)' all | grep -Eo 'HETRAIN_[A-Z_]+' | sort -u | grep -Evx "HETRAIN_([A-Z]+_)?H|${implementation}_DONE" > tested
    # what all companions share, hetrain_text.h tests
    is_main || grep -E '^ *# *if' "$root/util/hetrain_text.h" | grep -Eo 'HETRAIN_NO_[A-Z_]+' | sort -u | comm -12 - table | sort -u - tested -o tested
    nothing 'every option of the table is tested in the code' < <(comm -23 table tested | sed 's/$/ is in the table and not in the code/')
    nothing 'every option tested in the code is in the table' < <(comm -13 table tested | sed 's/$/ is tested in the code and not in the table/')

    awk '
        /^\/\*/ { comment = ""; open = 1 }
        open { comment = comment $0 }
        open && /\*\// { open = 0; if ($0 !~ /^HETRAIN_API/) next }
        /^HETRAIN_API/ {
            name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
            own = $0; sub(/^[^;]*;/, "", own)
            print name, ((own comment) ~ /Threads: (any|owner)/ ? "yes" : "no")
        }' api > functions
    nothing 'every public function says from which threads it may be called' < <(grep ' no$' functions | sed 's/ no$/ has no Threads: word/')
    awk '{ print $1 }' functions | sort > declared
    nothing 'what is declared and what is exported agree' < <(nm -g --defined-only plain.o | awk '{ print $3 }' | sort | comm -3 declared -)
    nothing 'every public function is in the list of the manual' < <(sed -n '/^ *FUNCTIONS/,/^ *CONTENTS/p' manual | grep -Eo '\bhet_[a-z_0-9]+' | sort | comm -3 declared -)
    is_main && files+=("$root"/hetrain_cpu.h "$root"/hetrain_*.c* "$root"/util/*.c)
    nothing 'no line is longer than 120 columns' < <(awk '{ if (length($0) > 120) print FILENAME ": " FNR ": " length($0) " columns" }' "${files[@]}")
    nothing 'no comment between lines of code is wider than 100 columns' < <(awk '
        /^ *\/\*/ { inside = 1 }
        inside && length($0) > 100 && !/----/ && !/[^ ]    +[^ ]/ { print FILENAME ": " FNR ": " length($0) " columns" }
        /\*\// { inside = 0 }' "${files[@]}" | grep -v ': [0-9][0-9]: ') # a manual's tables may be wider
    nothing 'a function begins on the line of its head' < <(grep -n -B1 '^{$' "${files[@]}" | grep -E '\)$')
    is_main && files+=("$root"/programs/* "$root"/examples/* "$root"/tests/*.[ch] "$root"/tests/*/*.c)
    nothing 'no line is longer than 150 columns' < <(awk '{ if (length($0) > 150) print FILENAME ": " FNR ": " length($0) " columns" }' "${files[@]}")
    nothing 'nothing is marked as unfinished' < <(grep -nE '\b(TODO|FIXME|XXX)\b' "$header")
    nothing 'plain ASCII' < <(grep -nP '[^\x00-\x7F]' "$header")
    latest=$(awk '/^\/\* -+ changes/ { found = 1; next } found && /^ *[0-9]+\.[0-9]+\.[0-9]+ / { print $1; exit }' "$header")
    head -n 1 "$header" | grep -q "$name $latest:"
    result $? 'the first line and the changelog name the same version'
    tail -n 25 "$header" | grep -q 'MIT No Attribution'
    result $? 'the licence stands at the end'
    is_main || return
    [ "$(wc -l < functions)" -le 100 ] && [ "$(wc -l < functions)" -ge 40 ]
    result $? "at most 100 public functions ($(wc -l < functions))" functions
    version=$(sed -nE 's/^#define HETRAIN_VERSION_(MAJOR|MINOR|PATCH) ([0-9]+)$/\2/p' "$header" | paste -sd.)
    [ "$latest" = "$version" ]
    result $? "the changelog starts with version $version" <(echo "it starts with ${latest:-nothing}")
}

# As one file, by one command. tests/test_examples.sh runs it.
check_program() {
    sed -n '/---- begin program ----/,/---- end program ----/p' manual | sed '1d;$d' > program.c
    [ -s program.c ]
    result $? 'the manual holds a program'
    quiet 'it has no warnings' gcc -std=c99 $c_warnings $include -fsyntax-only program.c
    [ "$(wc -l < program.c)" -le 40 ]
    result $? "and has at most 40 lines ($(wc -l < program.c))"
    diff program.c "$root/examples/minimal.c" > log
    result $? 'and is examples/minimal.c' log
}

while read -r header private before; do
    [ -n "$header" ] || continue
    header=$root/$header
    name=${header##*/}
    guard=$(echo "$name" | tr a-z. A-Z_)       # HETRAIN_PLAN_H
    implementation=${guard%_H}_IMPLEMENTATION
    macros=$(echo "$private" | tr a-z A-Z)     # HETI_P_
    quick=-DHETRAIN_NO_SIMD                    # a companion's check builds hetrain.h only to link it
    is_main && quick=
    mkdir "$work/$name"
    cd "$work/$name" || exit 2
    prepare
    check_warnings
    check_copies
    check_arithmetic
    check_symbols
    check_manual
    is_main && check_program
done <<< "$headers"

finish
