#!/bin/bash
# The lines of every file of the engine and of every room (section) of it, beside what they are to have. Fails where a file has grown past
# its ceiling in tests/tools/house.txt: a new room makes space for itself. Prints the table, then TAP.
# usage: tests/tools/house.sh [--rooms]   --rooms: the sections too
cd "$(dirname "$0")/../.." || exit 1
. tests/tools/tap.sh

rooms() { # rooms FILE: its sections with their lines; what stands before the first tag is its manual
    awk -v whole="$(wc -l < "$1")" '
        function close_room(at) { if (name != "") printf "    %-26s %6d\n", name, at - from; from = at }
        BEGIN { name = "manual"; from = 1 }
        match($0, /^(   >>[a-z_]+  |\/\* ---- >>[a-z_]+)/) {
            tag = substr($0, RSTART, RLENGTH); gsub(/[^a-z_]/, "", tag); close_room(NR); name = tag
        }
        END { close_room(whole + 1) }' "$1"
}

printf '%-30s %6s %6s %8s\n' file lines goal ceiling
total=0 goals=0 over=
while read -r file goal ceiling; do
    [ "${file:0:1}" = '#' ] && continue
    if [ ! -e "$file" ]; then over+="$file is not there"$'\n'; continue; fi
    lines=$(wc -l < "$file")
    total=$((total + lines)) goals=$((goals + goal))
    printf '%-30s %6d %6d %8d\n' "$file" "$lines" "$goal" "$ceiling"
    [ "$1" = --rooms ] && rooms "$file"
    [ "$lines" -le "$ceiling" ] || over+="$file: $lines lines, its ceiling is $ceiling"$'\n'
done < tests/tools/house.txt
printf '%-30s %6d %6d\n' sum "$total" "$goals"
unlisted=$(for file in hetrain*.* util/*; do grep -q "^$file " tests/tools/house.txt || echo "$file"; done)
report "$([ -z "$over" ]; echo $?)" 'no file of the engine has outgrown its ceiling' "$over"
report "$([ -z "$unlisted" ]; echo $?)" 'every file of the engine has one' "$unlisted"
finish
