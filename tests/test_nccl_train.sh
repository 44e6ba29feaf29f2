#!/bin/bash
# build/train_nccl as a user meets it, on the stand-in for CUDA and NCCL: cards of one process exchange by themselves, with the bits of one card;
# cuda:local is what the launcher says. Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
train=$PWD/${BUILD:-build}/standin/train_nccl
[ -x "$train" ] || { echo "1..0 # skipped: $train has not been built"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
for i in $(seq 400); do echo "line $i: the quick brown fox jumps over the lazy dog"; done > text
export STANDIN_DEVICES=3
unset CUDA_MODULE_LOADING CUDA_DEVICE_MAX_CONNECTIONS # the program sets them
options=(--data text --model llama:layers=2,width=16,heads=2,context=16 --sequences 1 --micro-batches 4 --granule 1 --steps 2 --hash)
launcher=(env -u RANK -u WORLD_SIZE -u LOCAL_RANK -u LOCAL_WORLD_SIZE)

# run ARGUMENTS...: output to out; status
run() { "${launcher[@]}" "$train" "${options[@]}" "$@" > out 2> err < /dev/null; }

run --devices cuda:0
report $? 'one card trains' "$(cat err)"
whole=$(grep '^weights' out)
report "$([ -n "$whole" ] && ! grep -q '^groups' out; echo $?)" 'one card has no groups' "$(cat out)"

for layout in 'cuda:0,cuda:1 dp' 'cuda:0,cuda:1,cuda:2 pp' 'cuda:1,cuda:0,cuda:2 dp' 'cuda:0,cuda:0,cuda:1 dp'; do
    run --devices "${layout% *}" --plan "${layout#* }"
    status=$?
    report "$([ $status = 0 ] && grep -q '^groups .*nccl' out && [ "$(grep '^weights' out)" = "$whole" ]; echo $?)" "$layout: the bits of one card" \
        "$(cat err)" "$whole" "$(tail -n 3 out)"
done

# Streams in bf16: from card to card without the host as well; a run goes on with what it began with.
halves=(--model llama:layers=2,width=16,heads=2,mlp_width=48,context=16 --dtype bf16 --streams bf16)
run --devices cuda:0 "${halves[@]}"
bits=$(grep '^weights' out)
report "$([ -n "$bits" ] && grep -q 'bf16 and streams in it' out; echo $?)" 'streams in bf16' "$(cat err)"
run --devices cuda:0,cuda:1 --plan pp "${halves[@]}"
report "$([ $? = 0 ] && grep -q '^groups .*nccl' out && [ "$(grep '^weights' out)" = "$bits" ]; echo $?)" 'streams in bf16: the bits of one card' \
    "$(cat err)" "$bits" "$(tail -n 3 out)"
run --devices cuda:0 "${halves[@]}" --steps 1 --schedule-lr constant --out saved
run --devices cuda:0 "${halves[@]}" --steps 2 --schedule-lr constant
bits=$(grep '^weights' out)
"${launcher[@]}" "$train" --resume saved --data text --devices cuda:1 --steps 2 --hash > out 2> err < /dev/null
report "$([ $? = 0 ] && [ "$(grep '^weights' out)" = "$bits" ]; echo $?)" 'streams in bf16: resumed' "$(cat err)" "$bits" "$(tail -n 3 out)"
run --devices cuda:0,cpu:1 --plan pp "${halves[@]}"
report "$([ $? != 0 ] && grep -q 'streams is bf16.*device cpu' err && [ "$(wc -l < err)" = 1 ]; echo $?)" 'streams in bf16: a processor does not take them' "$(cat err)"

run --devices cuda:0,cuda:1,cpu:1 --plan dp
report "$([ $? = 0 ] && grep -q '^groups .*nccl' out; echo $?)" 'two cards and a processor' "$(cat err)"
run --devices cuda:0,cpu:1 --plan dp
report "$([ $? = 0 ] && ! grep -q '^groups' out; echo $?)" 'a card and a processor have no groups' "$(cat err)"

launcher=(env RANK=0 WORLD_SIZE=1 LOCAL_RANK=0)
run --devices cuda:local
report "$([ $? = 0 ] && grep -q 'cuda:0' out && [ "$(grep '^weights' out)" = "$whole" ]; echo $?)" 'cuda:local' "$(cat err)"
run --devices cuda:locals
report "$([ $? = 2 ] && grep -q 'cuda:locals' err && [ "$(wc -l < err)" = 1 ]; echo $?)" 'cuda:locals is refused' "$(cat err)"
finish
