#!/bin/bash
# Runs a suite of make test and says whether the named tests passed.   usage: tests/systems/suite.sh SUITE TEST...
# TEST: a name of the suite, with _ for blanks in shell suites
cd "$(dirname "$0")/../.." || exit 2
suite=$1
shift
output=$(mktemp)
trap 'rm -f "$output"' EXIT
case $suite in
*.sh) bash "tests/$suite" > "$output" 2>&1 ;;
*) for name in "$@"; do HETRAIN_TEST_ONLY="*$name*" CMOCKA_MESSAGE_OUTPUT=TAP "${BUILD:-build}/tests/$suite"; done > "$output" 2>&1 ;;
esac
missing=
for name in "$@"; do
    grep -qE "^ok [0-9]+ - .*${name//_/[_ ]}" "$output" || missing+=" $name"
done
if [ -n "$missing" ]; then
    grep '^not ok' "$output" | head -n 5
    echo "short: $suite:$missing did not pass"
    exit 1
fi
echo "works: $suite:$(printf ' %s' "$@")"
