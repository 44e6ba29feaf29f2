#!/bin/bash
# What the ops of a step on the CUDA device read, write, round and start, counted on the stand-in (tests/cuda/model.py): no more than it is today.
# Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
build=${1:-build}
if ! command -v python3 > /dev/null; then echo '1..0 # skipped: no python3'; exit 0; fi
python3 tests/cuda/model.py --check "$build/standin/bench_cuda"
