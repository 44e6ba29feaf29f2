#!/bin/bash
# Runs an example, which checks itself, and says its last lines.   usage: tests/systems/example.sh NAME [LINES]
. "$(dirname "$0")/common.sh"
arguments=()
case $1 in buckets | dual_batch | hpo | low_rank) arguments=("$text") ;; esac
does said "$1" "${arguments[@]}"
if [ "$1" = recsys ]; then # time is no test of the example's, but of the row
    hidden=$(sed -n 's/^one batch ahead: .*, \([0-9]*\) % of it hidden.*/\1/p' said)
    [ "${hidden:-0}" -ge 80 ] || short "$hidden % of lookups hidden"
fi
works "$(tail -n "${2:-3}" said | tr -s ' ' | paste -sd ';' | sed 's/;/; /g')"
