#!/bin/bash
# What the Makefile builds for a card, without one: where it looks for cuBLASLt and NCCL, in trees made up here, Python's wheels among them. Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# of VARIABLE: what it is where CUDA's root is $work/cuda and nothing lies in the system; Python finds the wheels of $work/site.
of() {
    env -u MAKEFLAGS -u MAKELEVEL PYTHONPATH="$work/site" make --no-print-directory -s NVCC="$work/cuda/bin/nvcc" SYSTEM= \
        --eval "show:; @echo '\$($1)'" show 2>&1 | tr -s ' '
}
is() { # is NAME VARIABLE VALUE
    local value
    value=$(of "$2")
    report "$([ "$value" = "$3" ]; echo $?)" "$1" "$value" "not: $3"
}
at() { echo "-L$1 -Xlinker -rpath=$1"; } # how a library of that folder is linked
tree() { # tree FILE...: empty ones
    local file
    for file in "$@"; do mkdir -p "$(dirname "$work/$file")" && touch "$work/$file"; done
}

tree cuda/bin/nvcc
chmod +x "$work/cuda/bin/nvcc"
is 'neither there nor a wheel: the compiler may know more' BLAS_LIBS ' -lcublasLt'
is 'no NCCL: its tests are not built' ON_CUDA 'build/on_cuda/test_cuda_device build/on_cuda/test_cuda_oracle build/on_cuda/test_kernels'
if command -v python3 > /dev/null; then
    wheels=$work/site/nvidia
    tree site/nvidia/nccl/include/nccl.h site/nvidia/nccl/lib/libnccl.so.2 site/nvidia/cublas/include/cublasLt.h site/nvidia/cublas/lib/libcublasLt.so.12
    is 'the header of a wheel' BLAS_INCLUDES "-isystem $wheels/cublas/include"
    is 'the library of a wheel, by the name that it has' BLAS_LIBS "$(at "$wheels/cublas/lib") -Xlinker -l:libcublasLt.so.12"
    is "NCCL's header" NCCL_INCLUDES "-isystem $work/cuda/include -isystem $wheels/nccl/include"
    is "NCCL's library" NCCL_LIBS "$(at "$wheels/nccl/lib") -Xlinker -l:libnccl.so.2"
    is 'NCCL: its tests are built' ON_CUDA \
        'build/on_cuda/test_cuda_device build/on_cuda/test_cuda_oracle build/on_cuda/test_kernels build/on_cuda/test_nccl'
    PYTHONPATH=$work/site make -nB NVCC="$work/cuda/bin/nvcc" SYSTEM= build/train_cuda build/train_nccl build/on_cuda/test_nccl > "$work/said" 2>&1
    report "$([ "$(grep -c "nvcc.*-isystem $wheels/cublas/include.*hetrain_cuda.cu\|nvcc.*-isystem $wheels/cublas/include.*test_nccl.cpp" "$work/said")" = 2 ] &&
        [ "$(grep -c -- '-o build/[a-z_/]* .*-l:libcublasLt.so.12' "$work/said")" = 3 ] &&
        [ "$(grep -c -- '-l:libnccl.so.2' "$work/said")" = 2 ]; echo $?)" 'compilers and linkers are told' "$(cat "$work/said")"
    # a library that has no name but this, and a program that needs it
    mkdir "$work/real" && echo 'int cublasLtCreate(void) { return 7; }' > "$work/real/library.c"
    echo 'int cublasLtCreate(void); int main(void) { return cublasLtCreate(); }' > "$work/real/program.c"
    ${CC:-cc} -shared -fPIC "$work/real/library.c" -Wl,-soname,libcublasLt.so.12 -o "$wheels/cublas/lib/libcublasLt.so.12"
    # shellcheck disable=SC2046
    ${CC:-cc} "$work/real/program.c" -o "$work/real/program" $(of BLAS_LIBS) > "$work/said" 2>&1
    "$work/real/program"
    report "$([ $? = 7 ]; echo $?)" 'what is linked so finds the library when it runs' "$(cat "$work/said")"
    tree site/nvidia/cu13/include/cublasLt.h site/nvidia/cu13/lib/libcublasLt.so.13
    is 'wheels of CUDA 13 share a folder' BLAS_LIBS "$(at "$wheels/cu13/lib") -Xlinker -l:libcublasLt.so.13"
else leave_out 'no python3: no wheels'; fi
tree cuda/include/cublasLt.h cuda/lib64/libcublasLt.so cuda/lib64/libcudart.so
is "CUDA's own goes before wheels" BLAS_LIBS "$(at "$work/cuda/lib64") -lcublasLt"
is 'and needs no include' BLAS_INCLUDES ''
tree own/include/nccl.h own/lib/libnccl.so cuda/include/nccl.h
NCCL_HOME=$work/own is 'NCCL_HOME goes first' NCCL_LIBS "$(at "$work/own/lib") -lnccl"
finish
