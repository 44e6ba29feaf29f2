/* The CUDA device against PyTorch: tests/test_oracle.c with it in place of the CPU device. In bf16 its values between ops are bf16, as those of
   PyTorch's autocast. On the stand-in, or on a card. */
#ifndef __CUDACC__
#define HETC_EMULATED 1
#define HETRAIN_CUDA_DECLARATIONS 1 /* the stand-in's object is linked */
#endif
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "hetrain_cuda.cu"
extern "C" {
#define ORACLE_DEVICE het_cuda_device()
#include "../test_oracle.c"
}
