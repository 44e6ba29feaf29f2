#!/bin/bash
# Runs the rows of docs/systems.md: the command of each, whose lines "works: ..." and "short: ..." say what was measured. A row is met when
# the command ends with status 0 and says no "short:"; one that falls short is asked once more. Rows whose command is no command in backticks are
# skipped, with what they wait for; so are those that end with status 77, for want of a card. What stands behind "# partly: " in a command is what
# the row does not show: it counts as passed, and says so.
# usage: tests/systems.sh [--write] [ROW...]    --write: also puts what was printed, and the date, into the page
cd "$(dirname "$0")/.." || exit 2
page=docs/systems.md
write=
[ "$1" = --write ] && { write=1; shift; }
export BUILD=${BUILD:-build}
LIMIT=${LIMIT:-60}
results=$BUILD/systems
mkdir -p "$results"
passed=0 failed=0 skipped=0

# told ID WHAT: the row's last columns become WHAT and today's date
told() {
    [ -n "$write" ] || return
    awk -F ' [|] ' -v id="| $1" -v what="$2" -v day="$(date +%Y-%m-%d)" '
        $1 == id { print $1 " | " $2 " | " $3 " | " $4 " | " what " | " day " |"; next } { print }' "$page" > "$results/page" && cp "$results/page" "$page"
}

while IFS= read -r line; do
    id=$(awk -F ' [|] ' '{ print substr($1, 3) }' <<< "$line")
    [ $# = 0 ] || [[ " $* " == *" $id "* ]] || continue
    command=$(awk -F ' [|] ' '{ print $4 }' <<< "$line")
    name=$(awk -F ' [|] ' '{ print $2 }' <<< "$line")
    if [ "${command:0:1}" != '`' ]; then
        skipped=$((skipped + 1))
        printf '%-10s skipped  %s: %s\n' "$id" "$name" "$command"
        continue
    fi
    begin=$SECONDS output=$results/${id//[ ,]/_}.txt
    for try in 1 2; do # other programs can make a row that a clock decides fall short
        timeout "$LIMIT" bash -c "set -o pipefail; ${command//\`/}" > "$output" 2>&1 < /dev/null
        status=$?
        [ $status = 124 ] && echo "short: not done after $LIMIT s" >> "$output"
        [ $status = 77 ] || { [ $status = 0 ] && ! grep -q '^short: ' "$output"; } && break
        [ $try = 1 ] && printf '%-10s again    %s: %s\n' "$id" "$name" "$(sed -n 's/^short: //p' "$output" | tail -n 1)"
    done
    if [ $status = 77 ]; then
        skipped=$((skipped + 1))
        printf '%-10s skipped  %s: %s\n' "$id" "$name" "$(tail -n 1 "$output")"
        continue
    fi
    said=$(sed -n 's/^works: //p' "$output" | paste -sd $'\x01' | sed 's/\x01/; /g')
    short=$(sed -n 's/^short: //p' "$output" | paste -sd $'\x01' | sed 's/\x01/; /g')
    if [ $status = 0 ] && [ -n "$said" ] && [ -z "$short" ]; then
        passed=$((passed + 1)) verdict=works lacks=$(sed -n 's/.* # partly: \(.*\)`.*/\1/p' <<< "$command")
        [ -n "$lacks" ] && verdict=partly
        printf '%-10s %-8s %s: %s (%d s)\n' "$id" $verdict "$name" "${lacks:+$lacks: }$said" $((SECONDS - begin))
        told "$id" "$said"
    else
        failed=$((failed + 1))
        printf '%-10s short    %s: %s (%d s, status %d)\n' "$id" "$name" "${short:-see $output}" $((SECONDS - begin)) $status
        told "$id" "short: ${short:-status $status}"
    fi
done < <(awk -F ' [|] ' '/^\| [0-9]/ && NF == 6' "$page")
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
