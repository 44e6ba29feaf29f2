/* hetrain_cuda.cu: the CUDA device of hetrain

   het_cuda_device() gives a filled het_device_iface (hetrain.h, >>device_api) whose memory, queues and events are CUDA's. Products are cuBLASLt's,
   everything else are the kernels below. bf16 operands have f32 sums; weights, gradients and optimizer state are f32.

   Build: make cuda, or nvcc -O3 -std=c++17 -I. -c hetrain_cuda.cu (CUDA 12 or newer; link with -lcublasLt). A program that trains on it says
   `device.iface = het_cuda_device()`, and before that
       #define HETRAIN_CUDA_DECLARATIONS                       this file then only declares, in C and C++, and needs no CUDA header
       #include "hetrain_cuda.cu"

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
#ifndef HETRAIN_CUDA_DECLARED
#define HETRAIN_CUDA_DECLARED

#include "hetrain.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Products of f32 by tf32 operands (10 bits of fraction); the fastest algorithms by timing, which may differ from run to run, and the bits with them. */
enum { HET_CUDA_TF32 = 1, HET_CUDA_TIMED = 2 };

/* The device with options, or none of them; het_device_desc.ordinal says which card. Threads: any. */
const het_device_iface *het_cuda_device_with(int32_t options);
const het_device_iface *het_cuda_device(void);

#ifdef __cplusplus
}
#endif
#endif /* HETRAIN_CUDA_DECLARED */

#ifndef HETRAIN_CUDA_DECLARATIONS

/* ---------------------------------------------------------------------------------------------------------------------
   >>cu_config  Includes, launches, errors.
   --------------------------------------------------------------------------------------------------------------------- */

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <chrono>
#include <stdio.h>
#include <string.h>
#include <thread>

#ifdef HETC_TEST_OPS
#include HETC_TEST_OPS
#endif

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

   A queue is a stream. Copies between host and device go through pinned memory of the queue, in pieces: a host function moves a piece to or from
   the user's buffer, in the stream's own order, so that no call waits and a buffer belongs to the copy until an event behind it has happened
   (>>device_api). The host waits in event_sync alone, which asks again and again and gives up at its deadline.
   After the first error of a device nothing is copied to or from the host any more: its buffers may go.
   --------------------------------------------------------------------------------------------------------------------- */

#define HETC_STAGING (size_t(4) << 20) /* bytes of pinned memory a queue */
#define HETC_COPIES 1024               /* pieces under way in a queue */
#define HETC_PATIENCE 600.0            /* seconds a full queue is waited for, or one whose memory is given back */
#define HETC_LAST_PATIENCE 5.0         /* the same behind an error */

typedef struct hetc_device hetc_device;
typedef struct hetc_queue hetc_queue;

typedef struct hetc_copy {  /* a piece: what the host function needs */
    hetc_queue *queue;
    void *to;
    const void *from;
    size_t size;
} hetc_copy;

struct hetc_queue {
    hetc_device *device;
    cudaStream_t stream;
    char *staging;          /* [HETC_STAGING] pinned */
    int32_t taken;          /* the device's own queue: queue_create has given it out */
    uint64_t issued, done;  /* pieces; done is the host function's */
    hetc_copy copy[HETC_COPIES];
};

#define HETC_PRODUCTS 1024 /* places of the table of products, a power of two */

struct hetc_device {
    het_allocator allocator;
    int32_t ordinal, options;     /* HET_CUDA_TF32, HET_CUDA_TIMED */
    int32_t failed, copying;      /* atomic: no copy with the host starts any more; one is under way */
    hetc_queue *queue;            /* of those who give none, and of the first who asks for one */
    cublasLtHandle_t blas;
    cublasLtMatmulPreference_t preference;
    cudaEvent_t begin, end;       /* HET_CUDA_TIMED */
    struct hetc_product *product; /* [HETC_PRODUCTS] */
    int64_t products;
    char text[232];
};

static hetc_device *hetc_self(void *self) { return static_cast<hetc_device *>(self); }

static const char *hetc_base_name(const char *file)
{
    const char *slash = strrchr(file, '/');
    return slash != nullptr ? slash + 1 : file;
}

/* No copy with the host is under way when this returns, and none will be. */
static void hetc_stop_copies(hetc_device *device)
{
    __atomic_store_n(&device->failed, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&device->copying, __ATOMIC_SEQ_CST) != 0) std::this_thread::yield();
}

/* Keeps the text for last_error. `what` is the call. */
static void hetc_note(hetc_device *device, cudaError_t code, const char *what, const char *file, int line)
{
    (void)cudaGetLastError(); /* it is told here */
    snprintf(device->text, sizeof device->text, "cuda:%d, %s: %s (%s), %s:%d", static_cast<int>(device->ordinal), what, cudaGetErrorName(code),
             cudaGetErrorString(code), hetc_base_name(file), line);
}

static het_result hetc_fail(void *self, cudaError_t code, const char *what, const char *file, int line)
{
    hetc_note(hetc_self(self), code, what, file, line);
    hetc_stop_copies(hetc_self(self));
    return HET_ERR_DEVICE;
}

static het_result hetc_fail_blas(hetc_device *device, cublasStatus_t status, const char *what, const char *file, int line)
{
    snprintf(device->text, sizeof device->text, "cuda:%d, %s: %s (%s), %s:%d", static_cast<int>(device->ordinal), what, cublasLtGetStatusName(status),
             cublasLtGetStatusString(status), hetc_base_name(file), line);
    hetc_stop_copies(device);
    return HET_ERR_DEVICE;
}

/* HETC_CUDA(device, cudaFree, (pointer)): passes an error on, with the call's name. */
#define HETC_CUDA(device, call, arguments) do { const cudaError_t hetc_code = call arguments; \
    if (hetc_code != cudaSuccess) return hetc_fail((device), hetc_code, #call, __FILE__, __LINE__); } while (0)
#define HETC_BLAS(device, call, arguments) do { const cublasStatus_t hetc_status = call arguments; \
    if (hetc_status != CUBLAS_STATUS_SUCCESS) return hetc_fail_blas((device), hetc_status, #call, __FILE__, __LINE__); } while (0)

static hetc_queue *hetc_queue_of(void *self, het_queue *queue)
{
    return queue != nullptr ? reinterpret_cast<hetc_queue *>(queue) : hetc_self(self)->queue;
}

/* The stream to launch on, its device made the thread's own. Where that fails, cudaGetLastError behind the launch says so. */
static cudaStream_t hetc_stream(void *self, het_queue *queue)
{
    (void)cudaSetDevice(hetc_self(self)->ordinal);
    return hetc_queue_of(self, queue)->stream;
}

static double hetc_seconds(void)
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/* Between two questions: at first at once, then pauses of up to 50 us. */
static void hetc_back_off(int64_t *asked)
{
    if (++*asked < 200) std::this_thread::yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(*asked < 1000 ? 5 : 50));
}

/* ---- copies with the host ---- */

static void hetc_run_copy(void *user)
{
    const hetc_copy *copy = static_cast<const hetc_copy *>(user);
    hetc_queue *queue = copy->queue;
    __atomic_store_n(&queue->device->copying, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&queue->device->failed, __ATOMIC_SEQ_CST) == 0) memcpy(copy->to, copy->from, copy->size);
    __atomic_store_n(&queue->device->copying, 0, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&queue->done, 1, __ATOMIC_RELEASE);
}

/* Waits until a place for a piece is free: never, unless HETC_COPIES are under way. */
static het_result hetc_await_place(hetc_queue *queue)
{
    const double start = hetc_seconds();
    int64_t asked = 0;
    while (queue->issued - __atomic_load_n(&queue->done, __ATOMIC_ACQUIRE) >= HETC_COPIES) {
        const cudaError_t code = cudaStreamQuery(queue->stream);
        if (code != cudaSuccess && code != cudaErrorNotReady) return hetc_fail(queue->device, code, "cudaStreamQuery", __FILE__, __LINE__);
        if (hetc_seconds() - start > HETC_PATIENCE) return hetc_fail(queue->device, code, "waiting for earlier copies", __FILE__, __LINE__);
        hetc_back_off(&asked);
    }
    return HET_OK;
}

/* Moves at most HETC_STAGING bytes on the host, in the queue's order. */
static het_result hetc_host_copy(hetc_queue *queue, void *to, const void *from, size_t size)
{
    hetc_copy *copy = &queue->copy[queue->issued % HETC_COPIES];
    HETC_TRY(hetc_await_place(queue));
    copy->queue = queue;
    copy->to = to;
    copy->from = from;
    copy->size = size;
    HETC_CUDA(queue->device, cudaLaunchHostFunc, (queue->stream, hetc_run_copy, copy));
    queue->issued++;
    return HET_OK;
}

static het_result hetc_copy_in(void *self, het_queue *queue, void *device_to, const void *host_from, size_t size)
{
    hetc_queue *q = hetc_queue_of(self, queue);
    const char *from = static_cast<const char *>(host_from);
    char *to = static_cast<char *>(device_to);
    HETC_CUDA(self, cudaSetDevice, (hetc_self(self)->ordinal));
    for (size_t done = 0, piece; done < size; done += piece) {
        piece = size - done < HETC_STAGING ? size - done : HETC_STAGING;
        HETC_TRY(hetc_host_copy(q, q->staging, from + done, piece));
        HETC_CUDA(self, cudaMemcpyAsync, (to + done, q->staging, piece, cudaMemcpyHostToDevice, q->stream));
    }
    return HET_OK;
}

static het_result hetc_copy_out(void *self, het_queue *queue, void *host_to, const void *device_from, size_t size)
{
    hetc_queue *q = hetc_queue_of(self, queue);
    const char *from = static_cast<const char *>(device_from);
    char *to = static_cast<char *>(host_to);
    HETC_CUDA(self, cudaSetDevice, (hetc_self(self)->ordinal));
    for (size_t done = 0, piece; done < size; done += piece) {
        piece = size - done < HETC_STAGING ? size - done : HETC_STAGING;
        HETC_CUDA(self, cudaMemcpyAsync, (q->staging, from + done, piece, cudaMemcpyDeviceToHost, q->stream));
        HETC_TRY(hetc_host_copy(q, to + done, q->staging, piece));
    }
    return HET_OK;
}

/* ---- memory ---- */

/* Waits until nothing on the queue is under way; 0: it does not end. An error that comes twice is the stream's end: nothing more runs on it. */
static int hetc_drain(hetc_queue *queue)
{
    const double start = hetc_seconds(), patience = queue->device->failed ? HETC_LAST_PATIENCE : HETC_PATIENCE;
    int64_t asked = 0;
    int errors = 0;
    for (;;) {
        const cudaError_t code = cudaStreamQuery(queue->stream);
        (void)cudaGetLastError();
        if (code == cudaSuccess || (code != cudaErrorNotReady && ++errors == 2)) return 1;
        if (hetc_seconds() - start > patience) return 0;
        hetc_back_off(&asked);
    }
}

/* The context may go on without this memory, so that an error here stops nothing. */
static void *hetc_alloc(void *self, size_t size)
{
    hetc_device *device = hetc_self(self);
    const char *what = "cudaSetDevice";
    void *pointer = nullptr;
    cudaError_t code = cudaSetDevice(device->ordinal);
    if (code == cudaSuccess) {
        what = "cudaMalloc";
        code = cudaMalloc(&pointer, size);
    }
    if (code == cudaSuccess) return pointer;
    hetc_note(device, code, what, __FILE__, __LINE__);
    return nullptr;
}

/* cudaFree waits for the card without a deadline. Where that would be for ever, the memory is left to the process's end. */
static void hetc_free(void *self, void *pointer, size_t size)
{
    (void)size;
    (void)cudaSetDevice(hetc_self(self)->ordinal);
    if (hetc_drain(hetc_self(self)->queue)) (void)cudaFree(pointer);
}

static het_result hetc_copy_within(void *self, het_queue *queue, void *device_to, const void *device_from, size_t size)
{
    HETC_CUDA(self, cudaSetDevice, (hetc_self(self)->ordinal));
    if (size > 0 && device_to != device_from)
        HETC_CUDA(self, cudaMemcpyAsync, (device_to, device_from, size, cudaMemcpyDeviceToDevice, hetc_queue_of(self, queue)->stream));
    return HET_OK;
}

static het_result hetc_clear(void *self, het_queue *queue, void *device_to, size_t size)
{
    HETC_CUDA(self, cudaSetDevice, (hetc_self(self)->ordinal));
    if (size > 0) HETC_CUDA(self, cudaMemsetAsync, (device_to, 0, size, hetc_queue_of(self, queue)->stream));
    return HET_OK;
}

/* ---- queues and events ---- */

static void hetc_close_queue(hetc_queue *queue)
{
    const het_allocator allocator = queue->device->allocator;
    if (queue->stream != nullptr) {
        if (!hetc_drain(queue)) return; /* a copy may still come: its memory is left to the process's end */
        (void)cudaStreamDestroy(queue->stream);
    }
    if (queue->staging != nullptr) (void)cudaFreeHost(queue->staging);
    allocator.free(allocator.user, queue, sizeof *queue);
}

static het_result hetc_fill_queue(hetc_queue *queue)
{
    void *staging = nullptr;
    HETC_CUDA(queue->device, cudaSetDevice, (queue->device->ordinal));
    HETC_CUDA(queue->device, cudaStreamCreateWithFlags, (&queue->stream, cudaStreamNonBlocking));
    HETC_CUDA(queue->device, cudaHostAlloc, (&staging, HETC_STAGING, cudaHostAllocDefault));
    queue->staging = static_cast<char *>(staging);
    return HET_OK;
}

static het_result hetc_open_queue(hetc_device *device, hetc_queue **queue)
{
    hetc_queue *made = static_cast<hetc_queue *>(device->allocator.alloc(device->allocator.user, sizeof *made, 64));
    het_result result;
    if (made == nullptr) return HET_ERR_OOM;
    memset(made, 0, sizeof *made);
    made->device = device;
    result = hetc_fill_queue(made);
    if (result != HET_OK) hetc_close_queue(made);
    else *queue = made;
    return result;
}

/* The first who asks gets the device's own queue, so that calls without a queue are ordered with his. */
static het_result hetc_queue_create(void *self, het_queue **queue)
{
    hetc_device *device = hetc_self(self);
    hetc_queue *made = device->queue;
    if (made->taken) HETC_TRY(hetc_open_queue(device, &made));
    made->taken = 1;
    *queue = reinterpret_cast<het_queue *>(made);
    return HET_OK;
}

static void hetc_queue_destroy(void *self, het_queue *queue)
{
    hetc_device *device = hetc_self(self);
    (void)cudaSetDevice(device->ordinal);
    if (hetc_queue_of(self, queue) == device->queue) device->queue->taken = 0;
    else hetc_close_queue(hetc_queue_of(self, queue));
}

static cudaEvent_t hetc_event(het_event *event) { return reinterpret_cast<cudaEvent_t>(event); }

static het_result hetc_event_create(void *self, het_event **event)
{
    cudaEvent_t made;
    HETC_CUDA(self, cudaSetDevice, (hetc_self(self)->ordinal));
    HETC_CUDA(self, cudaEventCreateWithFlags, (&made, cudaEventDisableTiming));
    *event = reinterpret_cast<het_event *>(made);
    return HET_OK;
}

static void hetc_event_destroy(void *self, het_event *event)
{
    (void)self;
    (void)cudaEventDestroy(hetc_event(event));
}

static het_result hetc_event_record(void *self, het_queue *queue, het_event *event)
{
    HETC_CUDA(self, cudaSetDevice, (hetc_self(self)->ordinal));
    HETC_CUDA(self, cudaEventRecord, (hetc_event(event), hetc_queue_of(self, queue)->stream));
    return HET_OK;
}

static het_result hetc_event_wait(void *self, het_queue *queue, het_event *event)
{
    HETC_CUDA(self, cudaSetDevice, (hetc_self(self)->ordinal));
    HETC_CUDA(self, cudaStreamWaitEvent, (hetc_queue_of(self, queue)->stream, hetc_event(event), 0));
    return HET_OK;
}

static het_result hetc_await_event(hetc_device *device, cudaEvent_t event, double deadline_seconds)
{
    const double start = hetc_seconds();
    int64_t asked = 0;
    cudaError_t code;
    while ((code = cudaEventQuery(event)) == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* "not ready" is an answer */
        if (hetc_seconds() - start > deadline_seconds) {
            snprintf(device->text, sizeof device->text, "cuda:%d has not finished after %g seconds", static_cast<int>(device->ordinal), deadline_seconds);
            hetc_stop_copies(device);
            return HET_ERR_DEVICE;
        }
        hetc_back_off(&asked);
    }
    return code == cudaSuccess ? HET_OK : hetc_fail(device, code, "cudaEventQuery", __FILE__, __LINE__);
}

static het_result hetc_event_sync(void *self, het_event *event, double deadline_seconds)
{
    return hetc_await_event(hetc_self(self), hetc_event(event), deadline_seconds);
}

/* ---------------------------------------------------------------------------------------------------------------------
   >>cu_linear  cuBLASLt products.

   cuBLASLt counts columns first, so that a row-major matrix [r][c] is its c x r matrix with c elements from column to column:
       y  = x W^T + b:  y^T [out x rows] = op_T(W [in x out]) x [in x rows], bias along the columns
       dx = dy W:       dx^T [in x rows] = W [in x out] dy [out x rows], from the second part on added to what is there
       dW = dy^T x:     dW^T [in x out]  = x [in x rows] op_T(dy [out x rows])
   Fast sums take dW as one product over all rows that is added to the float sum; exact sums take one product a granule into a float term, which is
   then added on the grid (>>cu_loss). bf16: operands are rounded into the workspace, sums are f32.
   GELU is an op of its own in the table, with other buffers than the product's, and cannot be its epilogue.

   Bits: the first algorithm of the heuristic, which depends on shapes, alignment, library and card alone, with reductions that add in a fixed order
   (none, or partial sums in f32 added in a step of their own). HET_CUDA_TIMED takes the fastest of eight, which may be another tomorrow.
   --------------------------------------------------------------------------------------------------------------------- */

#define HETC_ALGORITHMS 8    /* candidates of HET_CUDA_TIMED */
#define HETC_TIMED_RUNS 3    /* of each */
#ifndef HETC_BLAS_WORKSPACE
#define HETC_BLAS_WORKSPACE (size_t(32) << 20) /* bytes; what NVIDIA recommends for compute capability 9.0 */
#endif

/* What decides which algorithm runs. */
typedef struct hetc_product_key {
    int64_t m, n, k, lda, ldb, ldd;
    int32_t transpose_a, transpose_b; /* cublasOperation_t */
    int32_t bf16, bias;               /* bias: its alignment, 0: none */
    int32_t align_a, align_b, align_d; /* bytes: 16, or the largest power of two below that divides the address */
    int32_t used;
} hetc_product_key;

typedef struct hetc_product {
    hetc_product_key key;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
} hetc_product;

typedef struct hetc_product_call {
    hetc_product_key key;
    const void *a, *b;
    const float *bias;
    float *d;
    float beta;      /* d = a b + beta d */
    float *scratch;  /* for timing, as large as d; NULL: d may be overwritten */
    void *workspace; /* [HETC_BLAS_WORKSPACE], aligned to 256 */
} hetc_product_call;

static void hetc_close_product(hetc_product *p)
{
    if (p->desc != nullptr) (void)cublasLtMatmulDescDestroy(p->desc);
    if (p->a != nullptr) (void)cublasLtMatrixLayoutDestroy(p->a);
    if (p->b != nullptr) (void)cublasLtMatrixLayoutDestroy(p->b);
    if (p->d != nullptr) (void)cublasLtMatrixLayoutDestroy(p->d);
    memset(p, 0, sizeof *p);
}

static void hetc_close_products(hetc_device *device)
{
    for (int64_t i = 0; i < HETC_PRODUCTS; i++) hetc_close_product(&device->product[i]);
    device->products = 0;
}

static int32_t hetc_alignment(const void *pointer)
{
    const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
    return static_cast<int32_t>(address % 16 == 0 ? 16 : address & (~address + 1));
}

/* The candidates for a product whose descriptors are there, best first by the library's own estimate. */
static het_result hetc_candidates(hetc_device *device, hetc_product *p, int wanted, cublasLtMatmulHeuristicResult_t *result, int *found)
{
    const cublasLtMatmulPreferenceAttributes_t alignment[4] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
    };
    const hetc_product_key *key = &p->key;
    const int32_t bytes[4] = { key->align_a, key->align_b, key->align_d, key->align_d };
    for (int i = 0; i < 4; i++) {
        const uint32_t value = static_cast<uint32_t>(bytes[i]);
        HETC_BLAS(device, cublasLtMatmulPreferenceSetAttribute, (device->preference, alignment[i], &value, sizeof value));
    }
    *found = 0;
    HETC_BLAS(device, cublasLtMatmulAlgoGetHeuristic,
              (device->blas, p->desc, p->a, p->b, p->d, p->d, device->preference, wanted, result, found));
    if (*found > 0) return HET_OK;
    snprintf(device->text, sizeof device->text, "cuda:%d: cuBLASLt has no algorithm for %lld x %lld x %lld in %s", static_cast<int>(device->ordinal),
             static_cast<long long>(key->m), static_cast<long long>(key->n), static_cast<long long>(key->k), key->bf16 ? "bf16" : "f32");
    return HET_ERR_UNSUPPORTED;
}

static het_result hetc_run_product(hetc_device *device, cudaStream_t stream, const hetc_product *p, const hetc_product_call *c, float *d,
                                   const cublasLtMatmulAlgo_t *algorithm)
{
    const float one = 1.0f;
    HETC_BLAS(device, cublasLtMatmul, (device->blas, p->desc, &one, c->a, p->a, c->b, p->b, &c->beta, d, p->d, d, p->d, algorithm, c->workspace,
                                       HETC_BLAS_WORKSPACE, stream));
    return HET_OK;
}

/* The fastest of the candidates, each run a few times on this call's operands. */
static het_result hetc_time_algorithms(hetc_device *device, cudaStream_t stream, hetc_product *p, const hetc_product_call *c,
                                       const cublasLtMatmulHeuristicResult_t *candidate, int candidates)
{
    float *d = c->scratch != nullptr ? c->scratch : c->d, best = 0.0f, milliseconds;
    for (int i = 0; i < candidates; i++) {
        HETC_TRY(hetc_run_product(device, stream, p, c, d, &candidate[i].algo)); /* its first run loads it */
        HETC_CUDA(device, cudaEventRecord, (device->begin, stream));
        for (int run = 0; run < HETC_TIMED_RUNS; run++) HETC_TRY(hetc_run_product(device, stream, p, c, d, &candidate[i].algo));
        HETC_CUDA(device, cudaEventRecord, (device->end, stream));
        HETC_TRY(hetc_await_event(device, device->end, HETC_PATIENCE));
        HETC_CUDA(device, cudaEventElapsedTime, (&milliseconds, device->begin, device->end));
        if (i > 0 && milliseconds >= best) continue;
        best = milliseconds;
        p->algorithm = candidate[i].algo;
    }
    return HET_OK;
}

static het_result hetc_open_product(hetc_device *device, cudaStream_t stream, hetc_product *p, const hetc_product_call *c)
{
    const hetc_product_key *key = &c->key;
    const cudaDataType_t type = key->bf16 ? CUDA_R_16BF : CUDA_R_32F;
    const cublasComputeType_t compute = !key->bf16 && (device->options & HET_CUDA_TF32) != 0 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t op_a = static_cast<cublasOperation_t>(key->transpose_a), op_b = static_cast<cublasOperation_t>(key->transpose_b);
    const cublasLtEpilogue_t epilogue = key->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    const uint64_t m = static_cast<uint64_t>(key->m), n = static_cast<uint64_t>(key->n), k = static_cast<uint64_t>(key->k);
    const int timed = (device->options & HET_CUDA_TIMED) != 0;
    cublasLtMatmulHeuristicResult_t candidate[HETC_ALGORITHMS];
    int candidates = 0;
    HETC_BLAS(device, cublasLtMatmulDescCreate, (&p->desc, compute, CUDA_R_32F));
    HETC_BLAS(device, cublasLtMatmulDescSetAttribute, (p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a));
    HETC_BLAS(device, cublasLtMatmulDescSetAttribute, (p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b));
    HETC_BLAS(device, cublasLtMatmulDescSetAttribute, (p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    HETC_BLAS(device, cublasLtMatmulDescSetAttribute, (p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &c->bias, sizeof c->bias));
    HETC_BLAS(device, cublasLtMatrixLayoutCreate, (&p->a, type, op_a == CUBLAS_OP_T ? k : m, op_a == CUBLAS_OP_T ? m : k, key->lda));
    HETC_BLAS(device, cublasLtMatrixLayoutCreate, (&p->b, type, op_b == CUBLAS_OP_T ? n : k, op_b == CUBLAS_OP_T ? k : n, key->ldb));
    HETC_BLAS(device, cublasLtMatrixLayoutCreate, (&p->d, CUDA_R_32F, m, n, key->ldd));
    p->key = *key;
    HETC_TRY(hetc_candidates(device, p, timed ? HETC_ALGORITHMS : 1, candidate, &candidates));
    p->algorithm = candidate[0].algo;
    return timed && candidates > 1 ? hetc_time_algorithms(device, stream, p, c, candidate, candidates) : HET_OK;
}

/* The product's place in the table, made where it is new; a table three quarters full is emptied first. */
static het_result hetc_find_product(hetc_device *device, cudaStream_t stream, const hetc_product_call *c, hetc_product **found)
{
    uint64_t at = het_xxh64(&c->key, sizeof c->key, 0);
    het_result result;
    for (;; at++) {
        hetc_product *p = &device->product[at % HETC_PRODUCTS];
        *found = p;
        if (p->key.used && memcmp(&p->key, &c->key, sizeof c->key) == 0) return HET_OK;
        if (!p->key.used) break;
    }
    if (4 * device->products >= 3 * HETC_PRODUCTS) {
        hetc_close_products(device);
        *found = &device->product[het_xxh64(&c->key, sizeof c->key, 0) % HETC_PRODUCTS];
    }
    result = hetc_open_product(device, stream, *found, c);
    if (result != HET_OK) hetc_close_product(*found);
    else device->products++;
    return result;
}

static het_result hetc_multiply(hetc_device *device, het_queue *queue, hetc_product_call *c)
{
    const cudaStream_t stream = hetc_queue_of(device, queue)->stream;
    hetc_product *p = nullptr;
    HETC_CUDA(device, cudaSetDevice, (device->ordinal));
    c->key.align_a = hetc_alignment(c->a);
    c->key.align_b = hetc_alignment(c->b);
    c->key.align_d = hetc_alignment(c->d);
    c->key.bias = c->bias != nullptr ? hetc_alignment(c->bias) : 0;
    c->key.used = 1;
    HETC_TRY(hetc_find_product(device, stream, c, &p));
    if (c->bias != nullptr)
        HETC_BLAS(device, cublasLtMatmulDescSetAttribute, (p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &c->bias, sizeof c->bias));
    return hetc_run_product(device, stream, p, c, c->d, &p->algorithm);
}

/* ---- operands and workspace ---- */

/* Workspace is cut into pieces from the front, each aligned to 256. */
typedef struct hetc_space { uintptr_t at; } hetc_space;

static size_t hetc_round_up(size_t size) { return (size + 255) / 256 * 256; }

static void *hetc_take(hetc_space *space, size_t size)
{
    const uintptr_t from = space->at;
    space->at += hetc_round_up(size);
    return reinterpret_cast<void *>(from);
}

static size_t hetc_elements(int64_t rows, int64_t columns) { return static_cast<size_t>(rows) * static_cast<size_t>(columns); }

/* Floats from row to row of a rounded matrix: tensor cores want addresses that are multiples of 16 bytes. */
static int64_t hetc_pitch(int64_t columns) { return (columns + 7) / 8 * 8; }
static size_t hetc_rounded_bytes(int64_t rows, int64_t columns) { return hetc_round_up(2 * hetc_elements(rows, hetc_pitch(columns))); }

HETC_KERNEL hetc_round_rows_kernel(uint16_t *to, const float *from, int64_t columns, int64_t pitch, int64_t count)
{
    const int64_t i = hetc_index(), column = i % pitch;
    if (i < count) to[i] = hetc_bf16(column < columns ? from[i / pitch * columns + column] : 0.0f);
}

/* to [rows][pitch] = bf16(from [rows][columns]), 0 from `columns` on. */
static het_result hetc_round_rows(hetc_device *device, het_queue *queue, void *to, const float *from, int64_t rows, int64_t columns, int64_t pitch)
{
    const int64_t count = rows * pitch;
    if (pitch == columns) return hetc_to_bf16(device, queue, to, from, count);
    return HETC_LAUNCH(device, queue, hetc_round_rows_kernel, hetc_grid(hetc_ceil_div(count, HETC_THREADS), 1), HETC_THREADS, 0,
                       static_cast<uint16_t *>(to), from, columns, pitch, count);
}

/* A row-major matrix as an operand: itself, or rounded to bf16 into `to`. *pitch gets the elements from row to row. */
static het_result hetc_operand(hetc_device *device, het_queue *queue, int bf16, const float *from, int64_t rows, int64_t columns, void *to,
                               const void **operand, int64_t *pitch)
{
    *operand = bf16 ? to : from;
    *pitch = bf16 ? hetc_pitch(columns) : columns;
    return bf16 ? hetc_round_rows(device, queue, to, from, rows, columns, *pitch) : HET_OK;
}

static het_result hetc_linear_check(hetc_device *device, const char *op, const het_linear_args *a)
{
    int valid = a->rows >= 0 && a->in > 0 && a->parts >= 1 && a->parts <= 3;
    for (int64_t p = 0; valid && p < a->parts; p++) valid = a->part[p].out > 0;
    if (valid) return HET_OK;
    snprintf(device->text, sizeof device->text, "cuda %s: impossible shape, %lld rows, in %lld, %lld parts", op, static_cast<long long>(a->rows),
             static_cast<long long>(a->in), static_cast<long long>(a->parts));
    return HET_ERR_INVALID;
}

static hetc_space hetc_space_of(void *workspace)
{
    hetc_space space;
    space.at = hetc_round_up(reinterpret_cast<uintptr_t>(workspace));
    return space;
}

static int64_t hetc_widest(const het_linear_args *a)
{
    int64_t out = 0;
    for (int64_t p = 0; p < a->parts; p++) out = a->part[p].out > out ? a->part[p].out : out;
    return out;
}

/* ---- the ops ---- */

static het_result hetc_linear_forward(void *self, het_queue *queue, const het_linear_args *a)
{
    hetc_device *device = hetc_self(self);
    const int bf16 = a->compute == HET_BF16;
    hetc_space space = hetc_space_of(a->workspace);
    hetc_product_call c;
    void *x, *w;
    HETC_TRY(hetc_linear_check(device, "linear_forward", a));
    if (a->rows == 0) return HET_OK;
    memset(&c, 0, sizeof c);
    c.workspace = hetc_take(&space, HETC_BLAS_WORKSPACE);
    x = bf16 ? hetc_take(&space, hetc_rounded_bytes(a->rows, a->in)) : nullptr;
    w = bf16 ? hetc_take(&space, hetc_rounded_bytes(hetc_widest(a), a->in)) : nullptr;
    c.key.bf16 = bf16;
    c.key.n = a->rows;
    c.key.k = a->in;
    c.key.transpose_a = CUBLAS_OP_T;
    HETC_TRY(hetc_operand(device, queue, bf16, a->x, a->rows, a->in, x, &c.b, &c.key.ldb));
    for (int64_t p = 0; p < a->parts; p++) {
        const het_linear_part *part = &a->part[p];
        HETC_TRY(hetc_operand(device, queue, bf16, part->w, part->out, a->in, w, &c.a, &c.key.lda));
        c.key.m = c.key.ldd = part->out;
        c.bias = part->bias;
        c.d = part->y;
        HETC_TRY(hetc_multiply(device, queue, &c));
    }
    return HET_OK;
}

static het_result hetc_linear_backward_input(void *self, het_queue *queue, const het_linear_args *a)
{
    hetc_device *device = hetc_self(self);
    const int bf16 = a->compute == HET_BF16;
    hetc_space space = hetc_space_of(a->workspace);
    hetc_product_call c;
    void *dy, *w;
    HETC_TRY(hetc_linear_check(device, "linear_backward_input", a));
    if (a->rows == 0) return HET_OK;
    memset(&c, 0, sizeof c);
    c.workspace = hetc_take(&space, HETC_BLAS_WORKSPACE);
    if ((device->options & HET_CUDA_TIMED) != 0) c.scratch = static_cast<float *>(hetc_take(&space, 4 * hetc_elements(a->rows, a->in)));
    dy = bf16 ? hetc_take(&space, hetc_rounded_bytes(a->rows, hetc_widest(a))) : nullptr;
    w = bf16 ? hetc_take(&space, hetc_rounded_bytes(hetc_widest(a), a->in)) : nullptr;
    c.key.bf16 = bf16;
    c.key.m = c.key.ldd = a->in;
    c.key.n = a->rows;
    c.d = a->dx;
    for (int64_t p = 0; p < a->parts; p++) {
        const het_linear_part *part = &a->part[p];
        HETC_TRY(hetc_operand(device, queue, bf16, part->w, part->out, a->in, w, &c.a, &c.key.lda));
        HETC_TRY(hetc_operand(device, queue, bf16, part->dy, a->rows, part->out, dy, &c.b, &c.key.ldb));
        c.key.k = part->out;
        c.beta = p > 0 ? 1.0f : 0.0f;
        HETC_TRY(hetc_multiply(device, queue, &c));
    }
    return HET_OK;
}

/* What dW's products of one call share. */
typedef struct hetc_weight_job {
    hetc_device *device;
    het_queue *queue;
    const het_linear_args *args;
    const void *x, *dy;        /* operands of all rows */
    int64_t x_pitch, dy_pitch; /* elements from row to row */
    size_t element;            /* bytes */
    hetc_product_call call;
} hetc_weight_job;

/* `to` [out][in] = (or +=, with beta = 1) dy^T x over rows [row, row + rows). */
static het_result hetc_weight_product(hetc_weight_job *job, int64_t out, int64_t row, int64_t rows, float *to, float beta, float *scratch)
{
    hetc_product_call *c = &job->call;
    c->a = static_cast<const char *>(job->x) + hetc_elements(row, job->x_pitch) * job->element;
    c->b = static_cast<const char *>(job->dy) + hetc_elements(row, job->dy_pitch) * job->element;
    c->key.m = c->key.ldd = job->args->in;
    c->key.n = out;
    c->key.k = rows;
    c->key.lda = job->x_pitch;
    c->key.ldb = job->dy_pitch;
    c->key.transpose_b = CUBLAS_OP_T;
    c->d = to;
    c->beta = beta;
    c->scratch = scratch;
    return hetc_multiply(job->device, job->queue, c);
}

/* One part's dW: exact sums take the granules one by one, fast ones all rows at once. term: [out][in]. */
static het_result hetc_weight_part(hetc_weight_job *job, const het_linear_part *part, float *term)
{
    const het_view *view = job->args->view;
    het_accumulate_args add;
    if (part->dw == nullptr || part->dw->sum == nullptr) return HET_OK;
    if (!part->dw->exact) return hetc_weight_product(job, part->out, 0, job->args->rows, static_cast<float *>(part->dw->sum), 1.0f, term);
    memset(&add, 0, sizeof add);
    add.gradient = part->dw;
    add.count = part->out * job->args->in;
    add.term = term;
    for (int64_t g = view->granule_begin; g < view->granule_end; g++) {
        const int64_t row = view->host_granule_start[g] - view->row_begin, rows = view->host_granule_start[g + 1] - view->row_begin - row;
        if (rows == 0) continue;
        HETC_TRY(hetc_weight_product(job, part->out, row, rows, term, 0.0f, nullptr));
        HETC_TRY(hetc_accumulate(job->device, job->queue, &add));
    }
    return HET_OK;
}

static het_result hetc_linear_backward_weight(void *self, het_queue *queue, const het_linear_args *a)
{
    hetc_device *device = hetc_self(self);
    const int bf16 = a->compute == HET_BF16;
    const int64_t widest = hetc_widest(a);
    hetc_space space = hetc_space_of(a->workspace);
    hetc_weight_job job;
    void *x, *dy, *sums;
    float *term;
    HETC_TRY(hetc_linear_check(device, "linear_backward_weight", a));
    if (a->rows == 0) return HET_OK;
    memset(&job, 0, sizeof job);
    job.device = device;
    job.queue = queue;
    job.args = a;
    job.element = bf16 ? 2 : 4;
    job.call.key.bf16 = bf16;
    job.call.workspace = hetc_take(&space, HETC_BLAS_WORKSPACE);
    term = static_cast<float *>(hetc_take(&space, 4 * hetc_elements(widest, a->in)));
    sums = hetc_take(&space, hetc_columns_workspace(a->rows, widest));
    x = bf16 ? hetc_take(&space, hetc_rounded_bytes(a->rows, a->in)) : nullptr;
    dy = bf16 ? hetc_take(&space, hetc_rounded_bytes(a->rows, widest)) : nullptr;
    HETC_TRY(hetc_operand(device, queue, bf16, a->x, a->rows, a->in, x, &job.x, &job.x_pitch));
    for (int64_t p = 0; p < a->parts; p++) {
        HETC_TRY(hetc_operand(device, queue, bf16, a->part[p].dy, a->rows, a->part[p].out, dy, &job.dy, &job.dy_pitch));
        HETC_TRY(hetc_weight_part(&job, &a->part[p], term));
        HETC_TRY(hetc_column_sums(device, queue, a->view, a->rows, a->part[p].out, a->part[p].dy, a->part[p].dbias, sums));
    }
    return HET_OK;
}

/* Bytes of the three ops above, with room for the alignment of the first piece. */
static size_t hetc_linear_workspace(hetc_device *device, het_op op, const het_linear_args *a)
{
    const int64_t widest = hetc_widest(a);
    size_t bytes = 256 + hetc_round_up(HETC_BLAS_WORKSPACE);
    if (op == HET_OP_LINEAR_BACKWARD_INPUT && (device->options & HET_CUDA_TIMED) != 0) bytes += hetc_round_up(4 * hetc_elements(a->rows, a->in));
    if (op == HET_OP_LINEAR_BACKWARD_WEIGHT)
        bytes += hetc_round_up(4 * hetc_elements(widest, a->in)) + hetc_round_up(hetc_columns_workspace(a->rows, widest));
    if (a->compute != HET_BF16) return bytes;
    if (op != HET_OP_LINEAR_BACKWARD_WEIGHT) bytes += hetc_rounded_bytes(widest, a->in);
    if (op != HET_OP_LINEAR_BACKWARD_INPUT) bytes += hetc_rounded_bytes(a->rows, a->in);
    if (op != HET_OP_LINEAR_FORWARD) bytes += hetc_rounded_bytes(a->rows, widest);
    return bytes;
}

/* ---------------------------------------------------------------------------------------------------------------------
   >>cu_table  Creating, workspaces, the tables.
   --------------------------------------------------------------------------------------------------------------------- */

static void hetc_destroy(void *self)
{
    hetc_device *device = hetc_self(self);
    const het_allocator allocator = device->allocator;
    if (device->queue != nullptr) (void)cudaSetDevice(device->ordinal);
    if (device->queue != nullptr) hetc_close_queue(device->queue);
    hetc_close_products(device);
    if (device->begin != nullptr) (void)cudaEventDestroy(device->begin);
    if (device->end != nullptr) (void)cudaEventDestroy(device->end);
    if (device->preference != nullptr) (void)cublasLtMatmulPreferenceDestroy(device->preference);
    if (device->blas != nullptr) (void)cublasLtDestroy(device->blas);
    allocator.free(allocator.user, device, sizeof *device + HETC_PRODUCTS * sizeof *device->product);
}

/* The card is there and can what the kernels need: bf16 tensor cores and asynchronous copies, compute capability 8.0. */
static het_result hetc_check_card(hetc_device *device)
{
    int count = 0, major = 0, minor = 0;
    HETC_CUDA(device, cudaGetDeviceCount, (&count));
    if (device->ordinal < 0 || device->ordinal >= count) {
        snprintf(device->text, sizeof device->text, "cuda:%d: there are %d such devices", static_cast<int>(device->ordinal), count);
        return HET_ERR_INVALID;
    }
    HETC_CUDA(device, cudaSetDevice, (device->ordinal));
    HETC_CUDA(device, cudaDeviceGetAttribute, (&major, cudaDevAttrComputeCapabilityMajor, device->ordinal));
    HETC_CUDA(device, cudaDeviceGetAttribute, (&minor, cudaDevAttrComputeCapabilityMinor, device->ordinal));
    if (major >= 8) return HET_OK;
    snprintf(device->text, sizeof device->text, "cuda:%d has compute capability %d.%d; 8.0 is needed", static_cast<int>(device->ordinal), major, minor);
    return HET_ERR_UNSUPPORTED;
}

static het_result hetc_fill_device(hetc_device *device)
{
    const uint64_t workspace = HETC_BLAS_WORKSPACE;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    HETC_TRY(hetc_check_card(device));
    HETC_TRY(hetc_open_queue(device, &device->queue));
    HETC_BLAS(device, cublasLtCreate, (&device->blas));
    HETC_BLAS(device, cublasLtMatmulPreferenceCreate, (&device->preference));
    HETC_BLAS(device, cublasLtMatmulPreferenceSetAttribute,
              (device->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
    HETC_BLAS(device, cublasLtMatmulPreferenceSetAttribute,
              (device->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes));
    if ((device->options & HET_CUDA_TIMED) == 0) return HET_OK;
    HETC_CUDA(device, cudaEventCreateWithFlags, (&device->begin, cudaEventDefault));
    HETC_CUDA(device, cudaEventCreateWithFlags, (&device->end, cudaEventDefault));
    return HET_OK;
}

static het_result hetc_create_with(const het_device_config *config, int32_t options, void **self)
{
    const size_t size = sizeof(hetc_device) + HETC_PRODUCTS * sizeof(hetc_product);
    hetc_device *device = static_cast<hetc_device *>(config->allocator->alloc(config->allocator->user, size, 64));
    het_result result;
    if (device == nullptr) return HET_ERR_OOM;
    memset(device, 0, size);
    device->allocator = *config->allocator;
    device->ordinal = config->ordinal;
    device->options = options;
    device->product = reinterpret_cast<hetc_product *>(device + 1);
    result = hetc_fill_device(device);
    if (result == HET_OK) {
        *self = device;
        return HET_OK;
    }
    if (config->error != nullptr) {
        config->error->code = result;
        snprintf(config->error->text, sizeof config->error->text, "%s", device->text);
    }
    hetc_destroy(device);
    return result;
}

static const char *hetc_last_error(void *self) { return hetc_self(self)->text; }

static size_t hetc_workspace_bytes(void *self, het_op op, const void *args)
{
    if (op == HET_OP_LINEAR_FORWARD || op == HET_OP_LINEAR_BACKWARD_INPUT || op == HET_OP_LINEAR_BACKWARD_WEIGHT)
        return hetc_linear_workspace(hetc_self(self), op, static_cast<const het_linear_args *>(args));
    return hetc_rows_workspace(op, args);
}

static het_result hetc_create_0(const het_device_config *config, void **self) { return hetc_create_with(config, 0, self); }
static het_result hetc_create_1(const het_device_config *config, void **self) { return hetc_create_with(config, 1, self); }
static het_result hetc_create_2(const het_device_config *config, void **self) { return hetc_create_with(config, 2, self); }
static het_result hetc_create_3(const het_device_config *config, void **self) { return hetc_create_with(config, 3, self); }

#define HETC_TABLE(create) { \
    HETRAIN_DEVICE_VERSION, "cuda", 0, create, hetc_destroy, hetc_last_error, \
    hetc_alloc, hetc_free, hetc_copy_in, hetc_copy_out, hetc_copy_within, hetc_clear, \
    hetc_queue_create, hetc_queue_destroy, hetc_event_create, hetc_event_destroy, hetc_event_record, hetc_event_wait, hetc_event_sync, \
    hetc_workspace_bytes, \
    hetc_norm_forward, hetc_norm_backward_input, hetc_norm_backward_weight, \
    hetc_linear_forward, hetc_linear_backward_input, hetc_linear_backward_weight, \
    hetc_rotary_forward, hetc_rotary_backward, hetc_attention_forward, hetc_attention_backward, \
    hetc_activation_forward, hetc_activation_backward, hetc_embedding_forward, hetc_embedding_backward_weight, \
    hetc_dropout_forward, hetc_dropout_backward, hetc_cross_entropy, \
    hetc_add, hetc_accumulate, hetc_sum_squares, hetc_verdict, hetc_adamw }

extern "C" const het_device_iface *het_cuda_device_with(int32_t options)
{
    static const het_device_iface hetc_tables[4] = { HETC_TABLE(hetc_create_0), HETC_TABLE(hetc_create_1), HETC_TABLE(hetc_create_2),
                                                     HETC_TABLE(hetc_create_3) };
    return &hetc_tables[options & (HET_CUDA_TF32 | HET_CUDA_TIMED)];
}

extern "C" const het_device_iface *het_cuda_device(void) { return het_cuda_device_with(0); }

#endif /* HETRAIN_CUDA_DECLARATIONS */
