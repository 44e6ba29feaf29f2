#!/bin/bash
# What is built for a card, without one: where the Makefile looks for cuBLASLt and NCCL, in trees made up here, Python's wheels among them; what
# attention's kernels issue a tile, from their machine code, against tests/cuda/sass.txt, where there are nvcc and cuobjdump. Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
unset MAKEFLAGS MAKELEVEL MFLAGS NCCL_HOME # of a make that has started this
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# of VARIABLE: what it is where CUDA's root is $work/cuda and nothing lies in the system; Python finds the wheels of $work/site.
of() {
    PYTHONPATH="$work/site" make --no-print-directory -s NVCC="$work/cuda/bin/nvcc" SYSTEM= \
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
    tree site/nvidia/nccl/include/nccl.h site/nvidia/nccl/lib/libnccl.so.2
    tree site/nvidia/cublas/include/cublasLt.h site/nvidia/cublas/lib/libcublasLt.so.12
    is 'the header of a wheel' BLAS_INCLUDES "-isystem $wheels/cublas/include"
    is 'the library of a wheel, by the name that it has' BLAS_LIBS "$(at "$wheels/cublas/lib") -Xlinker -l:libcublasLt.so.12"
    is "NCCL's header" NCCL_INCLUDES "-isystem $work/cuda/include -isystem $wheels/nccl/include"
    is "NCCL's library" NCCL_LIBS "$(at "$wheels/nccl/lib") -Xlinker -l:libnccl.so.2"
    is 'NCCL: its tests are built' ON_CUDA \
        'build/on_cuda/test_cuda_device build/on_cuda/test_cuda_oracle build/on_cuda/test_kernels build/on_cuda/test_nccl'
    PYTHONPATH=$work/site env -u BUILD make -nB NVCC="$work/cuda/bin/nvcc" SYSTEM= build/train_cuda build/train_nccl build/on_cuda/test_nccl > "$work/said" 2>&1
    report "$([ "$(grep -c "nvcc.*-isystem $wheels/cublas/include.*\(hetrain_cuda.cu\|test_nccl.cpp\)" "$work/said")" = 2 ] &&
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

# ---- machine code ----
# Without the tools: a kernel made up here, with eight products in its main loop.
tool=$work/tool/bin
tree tool/bin/nvcc tool/bin/cuobjdump
chmod +x "$tool/nvcc" "$tool/cuobjdump"
said_of() { # said_of RELEASE REGISTERS STACK INSTRUCTIONS: what the check says of it
    local kernel=_Z29hetc_attention_forward_kernelI9hetc_wideLi64ELi64ELi64ELi1EEv14hetc_attentionIT_E
    printf '#!/bin/bash\n[ "$1" = --version ] && echo "release %s" || cp "${@: -3:1}" "%s"\n' "$1" "$work/cut.cu" > "$tool/nvcc"
    echo " Function $kernel:"$'\n'"  REG:$2 STACK:$3 SHARED:0 LOCAL:0 CONSTANT[0]:600" > "$work/usage"
    {
        echo "		Function : $kernel"
        for ((at = 0; at < $4; at++)); do
            printf '        /*%04x*/                   %s ;\n' $((16 * at)) "$([ $at -lt 8 ] && echo HGMMA.64x64x16.F32.BF16 || echo MOV) R4, R8"
        done
        printf '        /*%04x*/              @P0  BRA 0x0 ;\n' $((16 * $4))
    } > "$work/code"
    printf '#!/bin/bash\ncase " $* " in *" -sass "*) cat "%s/code" ;; *usage*) cat "%s/usage" ;; esac\n' "$work" "$work" > "$tool/cuobjdump"
    python3 tests/cuda/sass.py --check "$tool/nvcc" 2>&1
}
if command -v python3 > /dev/null; then
    release=$(sed -n '1s/release //p' tests/cuda/sass.txt)
    good=$(said_of "$release" 90 0 100)
    report "$([ "$(grep -c '^0 ' <<< "$good")" = 3 ] && grep -q '^0 forward wgmma, head 64: 101 issued' <<< "$good"; echo $?)" \
        'fewer instructions are fine' "$good"
    report "$(grep -q 'hetc_attention_run<uint16_t, 64>' "$work/cut.cu" && ! grep -q 'attention_run<float\|cublasLtMatmul' "$work/cut.cu"; echo $?)" \
        'the kernels of bf16 are compiled alone'
    bad=$(said_of "$release" 90 0 1000)
    report "$(grep -q '^1 forward wgmma, head 64: .*issued: 1001, not ' <<< "$bad"; echo $?)" 'more are seen' "$bad"
    bad=$(said_of "$release" 128 0 100)
    report "$(grep -q '^1 forward wgmma, head 64: registers: 128, not .* 4 blocks of 128' <<< "$bad"; echo $?)" \
        'so are registers that leave no room' "$bad"
    bad=$(said_of "$release" 90 8 100)
    report "$(grep -q '^1 no kernel spills' <<< "$bad"; echo $?)" 'and what is spilt' "$bad"
    bad=$(said_of 99.9 90 0 1000)
    report "$([[ $bad = 'skip nvcc of release 99.9'* ]]; echo $?)" 'another compiler has other counts' "$bad"
    nvcc=$(command -v "${NVCC:-nvcc}")
    object=build/hetrain_cuda.o
    [ $object -nt hetrain_cuda.cu ] && [ $object -nt hetrain.h ] || object=
    if [ -z "$nvcc" ]; then leave_out 'machine code: no nvcc'; else
        # shellcheck disable=SC2086
        said=$(python3 tests/cuda/sass.py --check "$nvcc" $object 2> "$work/errors")
        if [[ $said = skip* ]]; then leave_out "machine code: ${said#skip }"; else
            report "$([ "$(grep -c '^[01] .*, head ' <<< "$said")" -ge 20 ]; echo $?)" "attention's kernels are there" \
                "$said" "$(tail -n 3 "$work/errors")"
            while read -r status what; do report "$status" "$what"; done <<< "$said"
        fi
    fi
else leave_out 'machine code: no python3'; fi
finish
