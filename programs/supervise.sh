#!/bin/bash
# Keeps a run of train going: starts it, and again from its newest checkpoint when it dies, with the hosts that answer.
#   programs/supervise.sh [--retries N] [--hosts a,b,c] OUT COMMAND...
# COMMAND is the whole first command line, mpirun and all, with --out OUT in it; a word {np} becomes the number of processes and {hosts} the list
# of hosts. After a death it is run again with --resume OUT in place of the options that --resume takes from the checkpoint (--model, --init) and of
# --overwrite; before the first checkpoint with --overwrite, as there is nothing but a log. Its lock on OUT is taken away, whatever host it died on.
# Hosts answer if `ssh -o BatchMode=yes -o ConnectTimeout=5 HOST true` succeeds (SUPERVISE_PING: another command, to which the host is added).
# Without --hosts, or where all answer but a process died on this machine, the same number is tried first, then one process fewer each time that
# no new checkpoint came. Ends with status 0 when the run does; with 2 when it said that the command was wrong; with 1 when N restarts (10) in a
# row brought no new checkpoint. SIGINT or SIGTERM stop the run: mpirun is sent SIGUSR1, which it gives on to all, as behind others it gives its
# processes two seconds, too few to finish a step; a second one ends it at once.
set -u
retries=10 hosts=
usage() { sed -n '2,12s/^# \{0,1\}//p' "$0"; }
wrong() { echo "supervise: $1" >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
        --retries) [[ ${2-} =~ ^[0-9]{1,9}$ ]] || wrong "--retries ${2-}: how many? A number from 0 on"
                   retries=$2; shift 2 ;;
        --hosts) [ -n "${2-}" ] || wrong '--hosts: which? Names with commas between'
                 hosts=$2; shift 2 ;;
        -h | --help) usage; exit ;;
        *) break ;;
    esac
done
[ $# -ge 2 ] || { usage >&2; exit 2; }
out=$1
shift
ping=${SUPERVISE_PING:-ssh -o BatchMode=yes -o ConnectTimeout=5 -n}
child=
ends=TERM
[[ ${1##*/} = @(mpirun|mpiexec|orterun)* ]] && ends=USR1
trap '[ -n "$stopped" ] && ends=TERM; [ -n "$child" ] && kill -$ends "$child" 2> /dev/null; stopped=1' INT TERM
stopped=

newest() { cat "$out/latest" 2> /dev/null; }

# answering: the hosts of the list that do, with commas between
answering() {
    local host list=
    for host in ${hosts//,/ }; do
        # shellcheck disable=SC2086
        if [[ $ping = ssh* ]]; then $ping "$host" true > /dev/null 2>&1 || continue
        else $ping "$host" > /dev/null 2>&1 || continue; fi
        list=$list,$host
    done
    echo "${list#,}"
}

# command RESUME NP HOSTS COMMAND...: fills the array line
command_line() {
    local resume=$1 np=$2 list=$3 skip=
    shift 3
    line=()
    for word in "$@"; do
        [ -n "$skip" ] && { skip=; continue; }
        case $word in
            --model | --init | --init-adapter | --scaling | --micro-batches) [ "$resume" = 1 ] && { skip=1; continue; } ;;
            --model=* | --init=* | --init-adapter=* | --scaling=* | --micro-batches=* | --any-base | --overwrite)
                [ "$resume" = 1 ] && continue ;;
        esac
        word=${word//\{np\}/$np}
        line+=("${word//\{hosts\}/$list}")
    done
    [ "$resume" = 1 ] && line+=(--resume "$out")
    [ "$resume" = 0 ] && [ -n "$again" ] && line+=(--overwrite)
}

processes=${SUPERVISE_PROCESSES:-$(awk -F, '{print NF}' <<< "$hosts")}
[ "$processes" -gt 0 ] || processes=1
failed=0 resume=0 again=
before=$(newest)
while :; do
    list=$(answering)
    [ -n "$hosts" ] && { [ -n "$list" ] || { echo "supervise: none of $hosts answers" >&2; exit 1; }; }
    alive=$(awk -F, '{print NF}' <<< "$list")
    [ -n "$hosts" ] && [ "$alive" -lt "$processes" ] && processes=$alive
    command_line $resume "$processes" "$list" "$@"
    echo "supervise: ${line[*]}" >&2
    "${line[@]}" &
    child=$!
    [ -n "$stopped" ] && kill -TERM "$child" 2> /dev/null # it came while hosts were asked
    wait "$child"
    n=0
    while kill -0 "$child" 2> /dev/null; do # a signal ended the wait early
        [ $ends = TERM ] && { wait "$child"; continue; }
        sleep 1
        n=$((n + 1)) # 1, 2, 4, ... seconds later it is given anew, for processes that were just being started
        [ $((n & (n - 1))) = 0 ] && kill -USR1 "$child" 2> /dev/null
    done
    wait "$child"
    status=$?
    child=
    [ $status = 0 ] && exit 0
    [ -n "$stopped" ] && exit $status
    [ "$resume" = 0 ] && case $status in 2 | 126 | 127) exit 2 ;; esac # 126, 127: the shell found no such program
    now=$(newest)
    if [ "$now" != "$before" ]; then failed=0
    else
        failed=$((failed + 1))
        [ "$failed" -gt 1 ] && [ "$processes" -gt 1 ] && processes=$((processes - 1))
    fi
    [ "$failed" -gt "$retries" ] && { echo "supervise: $retries restarts brought no new checkpoint; the last ended with status $status" >&2; exit 1; }
    before=$now again=1
    [ -n "$now" ] && resume=1
    [ $status = 2 ] || rm -f "$out/hetrain.lock" # a run that says no has no lock there
    echo "supervise: ended with status $status; newest checkpoint: ${now:-none}; starting again" >&2
    sleep "${SUPERVISE_PAUSE:-2}"
    [ -n "$stopped" ] && exit $status
done
