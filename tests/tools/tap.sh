# For shell suites, to be sourced: results as TAP, and how to start several processes.

# Who starts the tests may ignore signals (nohup, a job in the background), which a shell cannot take back: the suite begins again without that.
if [ -z "${TAP_LISTENS:-}" ] && [ -f "tests/${0##*/}" ] && env --default-signal=HUP,INT,TERM,USR1 true 2> /dev/null; then
    TAP_LISTENS=1 exec env --default-signal=HUP,INT,TERM,USR1 bash "tests/${0##*/}" "$@"
fi
count=0
failures=0

report() { # report STATUS NAME DETAIL...
    count=$((count + 1))
    if [ "$1" = 0 ]; then
        echo "ok $count - $2"
    else
        echo "not ok $count - $2"
        printf '%s\n' "${@:3}" | cut -c1-300 | sed 's/^/# /'
        failures=$((failures + 1))
    fi
}

# refusal WORDS COMMAND...: the command ends with status 2 and one printable line on standard error that holds all WORDS (separated by |). Sets bad to
# what is wrong, and line to the line; standard output is in the file out.
refusal() {
    local words=$1 status word errors IFS=' '
    shift
    errors=$(mktemp)
    "$@" > out 2> "$errors" < /dev/null
    status=$?
    bad=
    line=$(cat "$errors")
    [ $status = 2 ] || bad="exit status $status, not 2"
    [ "$(wc -l < "$errors")" = 1 ] || bad="$bad; $(wc -l < "$errors") lines on standard error, not 1"
    LC_ALL=C grep -q '[^[:print:][:space:]]' "$errors" && bad="$bad; unprintable bytes"
    rm -f "$errors"
    [[ $line =~ het_[a-z] ]] && bad="$bad; names what only a C program knows"
    IFS='|'
    for word in $words; do
        case $line in *"$word"*) ;; *) bad="$bad; does not name $word" ;; esac
    done
}

# Of suites that set programs, the directory of the programs:
refuses() { # refuses WORDS PROGRAM ARGUMENTS...
    local words=$1 program=$2
    shift 2
    refusal "$words" "$programs/$program" "$@"
    report "$([ -z "$bad" ]; echo $?)" "$program refuses $words" "$program $*" "$bad" "$line" "$(cat out)"
}
does() { # does NAME PROGRAM ARGUMENTS...: it ends with status 0; what it says is in the files out and err
    local name=$1 program=$2
    shift 2
    "$programs/$program" "$@" > out 2> err < /dev/null
    report $? "$name" "$program $*" "$(tail -n 3 err)"
}

leave_out() { # leave_out REASON: one test
    count=$((count + 1))
    echo "not ok $count # SKIP $1"
}

finish() { # the last command of a suite
    echo "1..$count"
    [ $failures = 0 ]
}

skip() { # skip REASON: the whole suite
    echo "not ok 1 # SKIP $1"
    echo '1..1'
    exit 0
}

use_mpirun() { # use_mpirun SECONDS PROGRAM: sets launch, or skips the suite where there is no MPI
    if ! command -v mpirun > /dev/null || ! [ -x "$2" ]; then
        skip 'mpirun or mpicc is missing: nothing was tested with several processes (Debian: openmpi-bin libopenmpi-dev)'
    fi
    export ASAN_OPTIONS=detect_leaks=0 # MPI and what it loads keep much until the end
    launch=(timeout -k 5 "$1" mpirun)
    if mpirun --version 2> /dev/null | grep -q 'Open MPI'; then
        # more processes than cores; ranks sleep while they wait, and to yield at every look for messages costs a time slice each beside busy suites
        launch+=(--oversubscribe --mca mpi_yield_when_idle 0)
        [ "$(id -u)" = 0 ] && launch+=(--allow-run-as-root)
    fi
}
