#!/bin/bash
# The lines that docs/ranks.md adds to examples/minimal.c, each behind the line before it there: two processes under MPI leave the file of one.
. "$(dirname "$0")/common.sh"
root=$OLDPWD
command -v "${MPICC:-mpicc}" > /dev/null && command -v mpirun > /dev/null || { echo 'no mpicc or mpirun here'; exit 77; }
sed -n '/^```diff/,/^```$/p' "$root/docs/ranks.md" | grep '^[ +]' > lines
awk 'NR == FNR { if (/^\+/) more[before] = more[before] substr($0, 2) "\n"; else before = substr($0, 2); next }
    { print; if ($0 in more) { printf "%s", more[$0]; used[$0] } }
    END { for (line in more) if (!(line in used)) print "no such line: " line }' lines "$root/examples/minimal.c" > several.c
sed 's/steps = 100/steps = 20/' "$root/examples/minimal.c" > alone.c
sed -i 's/steps = 100/steps = 20/' several.c
added=$(diff alone.c several.c | grep -c '^>')
mkdir one two
engine=$programs/tests/implementation.o # as the tests have it, to be done soon
[ -f "$engine" ] || engine=${programs%/checked}/tests/implementation.o
flags="-O1 -I$root -I$root/util -DHETRAIN_IMPLEMENTATION_DONE=1 -DHETRAIN_FILES_IMPLEMENTATION_DONE=1 -DHETRAIN_TEXT_IMPLEMENTATION_DONE=1"
cc $flags alone.c "$engine" -o alone -lm -lpthread > log 2>&1 || short "$(head -n 3 log)"
"${MPICC:-mpicc}" $flags several.c "$engine" -o several -lm -lpthread > log 2>&1 || short "$(head -n 3 log)"
(cd one && ../alone "$text") > one.txt 2>&1 || short "$(tail -n 1 one.txt)"
as_root=
[ "$(id -u)" = 0 ] && as_root=--allow-run-as-root
(cd two && mpirun $as_root --oversubscribe -n 2 ../several "$text") > two.txt 2>&1 || short "$(grep -v "^--" two.txt | head -n 2 | paste -sd " ")"
cmp -s one/model.safetensors two/model.safetensors || short 'the files differ'
[ "$added" -le 5 ] || short "$added lines"
works "$added lines more and examples/minimal.c trains in two processes under MPI, to the file of one ($(tail -n 1 one.txt))"
