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
    case $name in minimal | buckets | own_loop | long_context | mapped_state) arguments=("$root/examples/$name.c") ;; packed) arguments=("$root/tests/data/shakespeare.txt" 2) ;; dual_batch | hpo | low_rank) arguments=("$root/tests/data/shakespeare.txt") ;; ecg) arguments=(8) ;; grpo) arguments=(20) ;; recsys) arguments=(8) ;; esac # else: the path it was compiled from, and as long as it does
    rm -f model.safetensors
    timeout 300 "$programs/$name" "${arguments[@]}" > output 2>&1
    report $? "$name: $(tail -n 1 output | cut -c1-120)" "$(tail -n 5 output)"
    [ "$name" != minimal ] || { [ -s model.safetensors ] && awk '/loss/ { loss = $NF } END { exit !(loss > 0 && loss < 3) }' output; report $? "it learns, and saves"; }
    case $name in # what these print must say so too
    modalities)
        awk '/ simulated: / { all = $4; own = $12 } / weights / { runs++; hashes += !seen[$NF]++ } END { exit !(own > 0 && all > own && runs == 3 && hashes == 1) }' output
        report $? 'lists for each kind of batch are shorter, and train the same weights' "$(tail -n 5 output)" ;;
    frozen_encoder)
        awk -F '[ (),]+' '/^encoder first / { first = $4; waits = $13 } /^in the bubbles / { filled = $5; waited = $14 } / weights / { runs++; hashes += !seen[$NF]++ } END { exit !(filled > 0 && first > filled && waits > 0 && waits >= 2 * waited && runs == 3 && hashes == 1) }' output
        report $? 'with the encoder in the bubbles ranks are idle for less long, and train the same weights' "$(tail -n 5 output)" ;;
    esac
done
"$programs/ecg" 2 1 > output 2>&1
report $? 'ecg: as few steps as it takes' "$(tail -n 3 output)"
printf 'a\nb\n' > letters
printf 'alike\nlines\n' > alike
while IFS='|' read -r wrong word; do
    # shellcheck disable=SC2086 # a program and its arguments
    "$programs"/$wrong > output 2> error < /dev/null
    report "$([ $? = 2 ] && [ ! -s output ] && [ "$(wc -l < error)" = 1 ] && grep -qF -- "$word" error; echo $?)" \
        "$wrong is refused" "$(head -n 3 error)"
done << 'END'
ecg 1|2 to 1000000 steps
ecg 4294967298|2 to 1000000 steps
ecg 2 0|speed above 0
ecg 2 nan|speed above 0
grpo 0|1 to 1000000 rounds
grpo 100000000|1 to 1000000 rounds
grpo 4294967297|1 to 1000000 rounds
hpo nowhere|at least
hpo . 65|1 to 64 ranks
buckets nowhere|nowhere
buckets letters|no line of 2 to 129 bytes
buckets alike|lines of like lengths
dual_batch nowhere|nowhere
low_rank nowhere|at least 128 bytes
long_context nowhere|nowhere
mapped_state nowhere|nowhere
own_loop nowhere|nowhere
packed nowhere|nowhere
recsys 0|from 1 to 999
recsys 4294967297|from 1 to 999
placement 1|2 to 8 speeds
placement 1 1 1|2 to 8 speeds
placement 1 1 1 1 1 1 1 1 1 1 1|2 to 8 speeds
placement 1 1 1 0|argument 4, 0
placement 1 1 1x 1|argument 3, 1x
placement 1 nan 1 1|argument 2, nan
END
for source in "$root"/examples/*; do
    [ "$(wc -l < "$source")" -le 150 ] || long="$long $(basename "$source")"
done
report "$([ -z "$long" ]; echo $?)" 'no example is longer than 150 lines' "longer:$long"

finish
