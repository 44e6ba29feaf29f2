#!/bin/bash
# Runs an example, which checks itself, and says its last lines.   usage: tests/systems/example.sh NAME [LINES]
. "$(dirname "$0")/common.sh"
arguments=()
case $1 in dual_batch | hpo) arguments=("$text") ;; esac
does said "$1" "${arguments[@]}"
works "$(tail -n "${2:-3}" said | tr -s ' ' | paste -sd ';' | sed 's/;/; /g')"
