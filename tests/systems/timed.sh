#!/bin/bash
# Lists for given times against the zero-bubble paper's and the shortest orders there are, and a pipeline over two sites, predicted and run.
. "$(dirname "$0")/common.sh"
HETRAIN_TEST_ONLY='timed_*' does tests tests/test_simulate
does sites tests/test_systems 1.17
works "$(grep -E '^[0-9]+ of [0-9]+ as short|^bubbles within' tests | paste -sd ';' | sed 's/;/; /g'); $(sed -n 's/^works: //p' sites)"
