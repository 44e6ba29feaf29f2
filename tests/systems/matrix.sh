#!/bin/bash
# The planner and the list scheduler on random layers, devices and matrices of links, against every plan in its shortest order; and a matrix that
# build/plan reads.
. "$(dirname "$0")/common.sh"
HETRAIN_TEST_ONLY='plans_on_matrices*' does tests tests/test_simulate
said=$(grep -E '^[0-9]+ of [0-9]+ plans' tests)
[ -n "$said" ] || short 'nothing was compared'
echo '{"members":[{"device":"x","count":3}],"latencies":[[0,2,9],[3,0,9],[9,9,0]]}' > matrix.json
does simulated plan --simulate gpipe --ranks 3 --plan pp --micro-batches 1 --cost F=1,B=1 --cluster matrix.json --unit s --json
works "$said; latencies of 2 and 9 there, 9 and 3 back, and 6 of work: $(sed 's/{"makespan":\([^,]*\),.*/\1/' simulated)"
