#!/bin/bash
# The chapters of the survey in docs/systems.md: every test named there passes, every other chapter says why it has none.
cd "$(dirname "$0")/../.." || exit 2
rows=$(sed -n '/^## The chapters/,/^## Left out/p' docs/systems.md | grep '^| [0-9]')
tests=$(grep -oE '`test_[a-z_]+ [a-z_0-9]+`' <<< "$rows" | tr -d '`' | sort -u)
silent=$(grep -vE '`test_[a-z_]+ [a-z_0-9]+`|out of scope: |waits for ' <<< "$rows")
bad=
for suite in $(cut -d ' ' -f 1 <<< "$tests" | sort -u); do
    CMOCKA_MESSAGE_OUTPUT=TAP "${BUILD:-build}/tests/$suite" > "${BUILD:-build}/systems/survey.$suite" 2>&1
    while read -r name; do
        grep -q "^ok [0-9]* - $name\$" "${BUILD:-build}/systems/survey.$suite" || bad+=" $suite:$name"
    done < <(sed -n "s/^$suite //p" <<< "$tests")
done
if [ -n "$bad$silent" ]; then
    echo "short: did not pass:$bad; says nothing: $silent"
    exit 1
fi
echo "works: $(wc -l <<< "$rows") chapters: $(wc -l <<< "$tests") tests pass, $(grep -c 'out of scope: ' <<< "$rows") are out of scope, $(grep -c 'waits for ' <<< "$rows") wait"
