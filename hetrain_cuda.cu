/* hetrain_cuda.cu: the CUDA device of hetrain

   het_cuda_device() gives a filled het_device_iface (hetrain.h, >>device_api) whose memory, queues and events are CUDA's. Products are cuBLASLt's,
   everything else are the kernels below. bf16 operands have f32 sums; weights, gradients and optimizer state are f32.

   Build: make cuda, or nvcc -O3 -std=c++17 -I. -c hetrain_cuda.cu (CUDA 12 or newer; link with -lcublasLt). A program that trains on it says
   `device.iface = het_cuda_device()`.

   Bits: equal from run to run on one layout (no floating-point atomics); against the CPU device within rounding, not equal.

   Contents
       >>cu_config      includes, launches, errors
       >>cu_primitives  sums over warps and blocks, tensor core and copy instructions
       >>cu_rows        norms, rotary positions, activations, embedding, dropout
       >>cu_loss        cross-entropy, order-free sums, exact accumulation, verdict, AdamW
       >>cu_attention   fused attention, forward and backward
       >>cu_device      state, memory, queues, events
       >>cu_linear      cuBLASLt products
       >>cu_table       workspaces, the table

   License: as hetrain.h. */
#include "hetrain.h"

/* ---------------------------------------------------------------------------------------------------------------------
   >>cu_config  Includes, launches, errors.
   --------------------------------------------------------------------------------------------------------------------- */

/* ---------------------------------------------------------------------------------------------------------------------
   >>cu_primitives  Sums over warps and blocks, tensor core and copy instructions.
   --------------------------------------------------------------------------------------------------------------------- */

/* ---------------------------------------------------------------------------------------------------------------------
   >>cu_rows  Norms, rotary positions, activations, embedding, dropout.
   --------------------------------------------------------------------------------------------------------------------- */

/* ---------------------------------------------------------------------------------------------------------------------
   >>cu_loss  Cross-entropy, order-free sums, exact accumulation, verdict, AdamW.
   --------------------------------------------------------------------------------------------------------------------- */

/* ---------------------------------------------------------------------------------------------------------------------
   >>cu_attention  Fused attention, forward and backward.
   --------------------------------------------------------------------------------------------------------------------- */

/* ---------------------------------------------------------------------------------------------------------------------
   >>cu_device  State, memory, queues, events.
   --------------------------------------------------------------------------------------------------------------------- */

/* ---------------------------------------------------------------------------------------------------------------------
   >>cu_linear  cuBLASLt products.
   --------------------------------------------------------------------------------------------------------------------- */

/* ---------------------------------------------------------------------------------------------------------------------
   >>cu_table  Workspaces, the table.
   --------------------------------------------------------------------------------------------------------------------- */
