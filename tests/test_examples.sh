#!/bin/bash
# Runs every example. Each checks itself and ends with status 0. Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
root=$PWD
programs=$PWD/${BUILD:-build}/checked
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2

long=
for source in "$root"/examples/*.c "$root"/examples/*.cpp; do
    name=$(basename "${source%.*}")
    arguments=()
    case $name in minimal | buckets | own_loop | long_context | mapped_state) arguments=("$root/examples/$name.c") ;; packed) arguments=("$root/tests/data/shakespeare.txt" 2) ;; dual_batch | hpo | low_rank) arguments=("$root/tests/data/shakespeare.txt") ;; esac # else: the path it was compiled from
    rm -f model.safetensors
    timeout 300 "$programs/$name" "${arguments[@]}" > output 2>&1
    report $? "$name: $(tail -n 1 output | cut -c1-120)" "$(tail -n 5 output)"
    [ "$name" != minimal ] || { [ -s model.safetensors ] && awk '/loss/ { loss = $NF } END { exit !(loss > 0 && loss < 3) }' output; report $? "it learns, and saves"; }
done
for wrong in 'ecg 1' 'grpo 0' 'hpo nowhere'; do
    # shellcheck disable=SC2086 # a program and its argument
    "$programs"/$wrong > output 2> error
    report "$([ $? = 2 ] && [ ! -s output ] && [ "$(wc -l < error)" = 1 ] && grep -q 'at least' error; echo $?)" \
        "$wrong is refused" "$(head -n 3 error)"
done
for source in "$root"/examples/*; do
    [ "$(wc -l < "$source")" -le 150 ] || long="$long $(basename "$source")"
done
report "$([ -z "$long" ]; echo $?)" 'no example is longer than 150 lines' "longer:$long"

finish
