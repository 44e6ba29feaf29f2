#!/bin/bash
# Installs what the tests need and what is missing, where apt-get and the right to use it are there; says what is left out where not.

declare -A package=(
    [cc]=gcc [c++]=g++ [make]=make [nm]=binutils [clang]=clang [aarch64-linux-gnu-gcc]=gcc-aarch64-linux-gnu [qemu-aarch64]=qemu-user
    [mpirun]=openmpi-bin [mpicc]=libopenmpi-dev [ps]=procps
)
missing=()
for program in "${!package[@]}"; do
    command -v "$program" > /dev/null || missing+=("${package[$program]}")
done
has_header() { echo "#include <$2>" | $1 -x c -E -include stdarg.h -include stddef.h -include stdint.h -include setjmp.h - > /dev/null 2>&1; }
has_header "${CC:-cc}" cmocka.h || missing+=(libcmocka-dev)
has_header aarch64-linux-gnu-gcc stdio.h || missing+=(libc6-dev-arm64-cross)
[ ${#missing[@]} = 0 ] && exit 0

as_root=
[ "$(id -u)" = 0 ] || as_root="sudo -n"
if command -v apt-get > /dev/null && { [ -z "$as_root" ] || $as_root true 2> /dev/null; }; then
    echo "installing ${missing[*]}"
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    { $as_root apt-get update && $as_root apt-get install -y --no-install-recommends "${missing[@]}"; } > "$log" 2>&1 || tail -n 5 "$log"
    rm -f "$log"
fi

for program in clang aarch64-linux-gnu-gcc qemu-aarch64 mpirun mpicc; do
    command -v "$program" > /dev/null || echo "not installed: $program; the checks that use it are skipped"
done
has_header "${CC:-cc}" cmocka.h || echo "not installed: libcmocka-dev; the suites in C cannot be built and count as failed"
exit 0
