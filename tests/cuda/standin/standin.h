/* How the stand-in is steered and what it checks.
   Device memory is pages that only work on a stream may touch: host code that reads or writes them ends with SIGSEGV. It starts as NaNs, ends at
   a page nobody may touch, and every copy, clear and product is checked to lie inside one allocation. Host memory of an asynchronous copy must be
   pinned. Work given to a stream runs when somebody asks for its progress, never earlier, so that a missing wait shows: as late as can be.
   Streams, memory and the thread's current device must belong together, as on the real thing. What is given to a stream while it is captured does
   not run but goes into the graph, arguments as they are then; meanwhile its thread may not allocate, free, ask for progress or have a host function
   run, whose argument would be another when the graph runs. Collectives of NCCL run when the streams of all members have come to them, and must
   agree in kind, count, type and root. A communicator is refused where the environment lets CUDA hold one back behind another (hetrain_nccl.c,
   SIDE BY SIDE). */
#ifndef STANDIN_H
#define STANDIN_H

#include <stdint.h>

struct CUstream_st;

typedef struct standin_count {
    int64_t calls;       /* that could have failed, since standin_reset */
    int64_t live;        /* allocations, streams, events, handles and descriptors not given back */
    int64_t products;    /* of cublasLtMatmul */
    int64_t fused;       /* of these, with GELU or its derivative */
    int64_t ragged;      /* of these, of bf16 with an extent along which elements lie side by side that is no multiple of 8 */
    int64_t captured, launched; /* graphs made, and launches of graphs */
    int64_t exchanges;   /* collectives and messages of NCCL that have taken place */
    int64_t ran;         /* pieces of work that ran */
    int64_t misuse;      /* calls whose arguments were wrong */
    char failed[64];     /* the call that was told to fail */
    char misused[160];   /* the first of the misuses */
} standin_count;

#ifdef __cplusplus
#include <functional>

void standin_reset(int devices);             /* nothing may be live. Programs that never call it have STANDIN_DEVICES cards, or one */
void standin_fail(int64_t call);             /* call number `call` from now (0: the next) fails; negative: none. Programs that never call it
                                                fail in call number STANDIN_FAIL, or in none */
void standin_skip(int on);                   /* 1: kernels and products are counted and checked but compute nothing */
void standin_refuse(int how);                /* cuBLASLt refuses GELU: 1: it has no algorithm; 2: INVALID_VALUE from the heuristic;
                                                3: at the call; 4: its candidates have a bad state */
void standin_stall(int on);                  /* 1: no work runs any more */
void standin_old(int on);                    /* 1: cards of compute capability 7.0, for which there is no code; 2: a driver
                                                without green contexts */
standin_count standin_counted(void);
/* Runs on the stream, in its order, while device memory may be touched. cudaGetLastError says whether it was taken. */
void standin_enqueue(struct CUstream_st *stream, std::function<void()> work);

/* NCCL: communicators are of one process, a thread each. Calls are in progress until they have been asked about some times, a first exchange until
   all its members have called it. */
void standin_nccl_version(int version);      /* what ncclGetVersion gives; 0: the header's */
void standin_nccl_error(int device, int code); /* what ncclCommGetAsyncError finds on this card; 0: nothing */
#endif
#endif
