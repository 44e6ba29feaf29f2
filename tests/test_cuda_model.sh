#!/bin/bash
# What the ops of a step on the CUDA device read, write, round and start, counted on the stand-in (tests/cuda/model.py): no more than it is today.
# Prints TAP.
cd "$(dirname "$0")/.." || exit 2
bench=${BUILD:-build}/standin/bench_cuda
[ -x "$bench" ] || { echo "1..0 # skipped: $bench has not been built"; exit 0; }
command -v python3 > /dev/null || { echo '1..0 # skipped: no python3'; exit 0; }
python3 tests/cuda/model.py --check "$bench"
