#!/bin/bash
# A program that takes hetrain by CMake's add_subdirectory: the manual's program, with fewer steps, builds, trains and saves. Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
root=$PWD
command -v cmake > /dev/null || skip 'cmake is missing: CMakeLists.txt was not tested (Debian: cmake)'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2

sed -n '/---- begin program ----/,/---- end program ----/p' "$root/hetrain.h" | sed '1d; $d; s/steps = 100/steps = 10/' > mine.c
cat > CMakeLists.txt << END
cmake_minimum_required(VERSION 3.13)
project(mine C)
add_subdirectory("$root" hetrain)
add_executable(mine mine.c)
target_link_libraries(mine hetrain hetrain_util hetrain_tcp)
END
cmake -S . -B build -DCMAKE_C_FLAGS=-O1 > log 2>&1
report $? 'a project that has hetrain as a folder is configured' "$(tail -n 5 log)"
grep -q 'without optimisation' log
report $(($? != 1)) 'with an option that optimises no word of it is said' "$(tail -n 5 log)"
cmake -S . -B plain > log 2>&1
report "$([ $? = 0 ] && grep -q 'without optimisation' log; echo $?)" 'without one it is' "$(tail -n 5 log)"

cmake --build build > log 2>&1
report $? "the manual's program builds" "$(tail -n 5 log)"
build/mine > log 2>&1
report "$([ $? = 0 ] && grep -q '^step  10  loss ' log && [ -s model.safetensors ]; echo $?)" 'trains and saves' "$(tail -n 5 log)"

mkdir other
{ echo '#define HETRAIN_IMPLEMENTATION'; echo '#include "hetrain.h"'; echo 'int main() { return het_cpu_device() != NULL ? 0 : 1; }'; } > other/mine.cpp
sed -e 's/project(mine C)/project(mine CXX)/' -e 's/mine\.c/mine.cpp/' -e 's/ hetrain_tcp)/)/' CMakeLists.txt > other/CMakeLists.txt
cmake -S other -B other/build -DCMAKE_CXX_FLAGS=-DHETRAIN_NO_SIMD > log 2>&1 && cmake --build other/build >> log 2>&1 && other/build/mine
report $? 'a project in C++ alone builds and runs' "$(tail -n 5 log)"
finish
