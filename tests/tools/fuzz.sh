#!/bin/bash
# Runs one fuzz target for some seconds: fuzz.sh NAME asserting|plain SECONDS. Prints a line; status 1 and the end of the log where it found something.
cd "$(dirname "$0")/../.." || exit 2
name=$1 kind=$2 seconds=$3
corpus=tests/fuzz/corpus/$name found=build/fuzz/found/$name log=build/fuzz/$name-$kind.log
mkdir -p "$found"
words=() like=$name
case $name in generation | shapes) like=config ;; esac # they read the same kind of file
[ -f "tests/fuzz/$like.dict" ] && words=(-dict="tests/fuzz/$like.dict")
build/fuzz/"$name-$kind" -max_total_time="$seconds" -max_len=8192 -timeout=20 -print_final_stats=1 -artifact_prefix="build/fuzz/$name-" "${words[@]}" \
    "$found" "$corpus" > "$log" 2>&1
status=$?
runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
if [ $status -ne 0 ]; then
    tail -n 30 "$log" >&2
    echo "fuzz: $name ($kind) found something after ${runs:-?} runs: the input is build/fuzz/$name-..., the report $log" >&2
    exit 1
fi
echo "fuzz: $name ($kind) ${runs:-?} runs in $seconds s, nothing found"
