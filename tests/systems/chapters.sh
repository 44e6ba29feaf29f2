#!/bin/bash
# A table of docs/systems.md that names tests: every test there passes, every row without one says why.
# usage: tests/systems/chapters.sh 'The chapters'|'Three classes'    how the table's heading begins
cd "$(dirname "$0")/../.." || exit 2
results=${BUILD:-build}/systems
mkdir -p "$results"
rows=$(awk -v heading="## $1" '/^## /{ here = index($0, heading) == 1 } here && /^\| [0-9]/' docs/systems.md)
tests=$(grep -oE '`test_[a-z_]+ [a-z_0-9]+`' <<< "$rows" | tr -d '`' | sort -u)
silent=$(grep -vE '`test_[a-z_]+ [a-z_0-9]+`|out of scope: |waits for ' <<< "$rows")
bad=
while read -r suite name; do
    HETRAIN_TEST_ONLY=$name CMOCKA_MESSAGE_OUTPUT=TAP "${BUILD:-build}/tests/$suite" > "$results/chapters.$suite.$name" 2>&1 < /dev/null
    grep -q "^ok [0-9]* - $name\$" "$results/chapters.$suite.$name" || bad+=" $suite:$name"
done <<< "$tests"
if [ -z "$rows" ] || [ -n "$bad$silent" ]; then
    echo "short: did not pass:$bad; says nothing: $silent"
    exit 1
fi
echo "works: $(wc -l <<< "$rows") rows: $(wc -l <<< "$tests") tests pass, $(grep -c 'out of scope: ' <<< "$rows") are out of scope, $(grep -c 'waits for ' <<< "$rows") wait"
