#!/bin/bash
# Runs every example program but train, generate, plan and tokenize (test_cli.sh, test_plan_cli.sh and test_tokenize_cli.sh have those). Each checks itself and ends with status 0. Prints TAP.
cd "$(dirname "$0")/.." || exit 2
root=$PWD
programs=$PWD/${BUILD:-build}/checked
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
count=0
failures=0

for source in "$root"/examples/*.c "$root"/examples/*.cpp; do
    name=$(basename "${source%.*}")
    case $name in train | generate | plan | tokenize) continue ;; esac
    count=$((count + 1))
    arguments=()
    [ $name = minimal ] && arguments=("$root/examples/minimal.c") # its default is the path it was compiled from
    [ $name = own_loop ] && arguments=("$root/examples/own_loop.c")
    [ $name = packed ] && arguments=("$root/README.md" 2)
    if timeout 300 "$programs/$name" "${arguments[@]}" > output 2>&1; then
        echo "ok $count - $name: $(tail -n 1 output | cut -c1-120)"
    else
        echo "not ok $count - $name"
        tail -n 5 output | sed 's/^/# /'
        failures=$((failures + 1))
    fi
done

count=$((count + 1))
long=
for source in "$root"/examples/*.c "$root"/examples/*.cpp; do
    case $source in */train.c | */generate.c | */plan.c | */tokenize.c | */packed.c) continue ;; esac
    [ "$(wc -l < "$source")" -le 150 ] || long="$long $(basename "$source")"
done
if [ -z "$long" ]; then echo "ok $count - no example is longer than 150 lines"; else echo "not ok $count - longer than 150 lines:$long"; failures=$((failures + 1)); fi

echo "1..$count"
[ $failures = 0 ]
