/* hetrain_cuda.cu: the CUDA device of hetrain

   het_cuda_device() gives a filled het_device_iface (hetrain.h, >>device_api) whose memory, queues
   and events are CUDA's. Products are cuBLASLt's, everything else are the kernels below. bf16
   operands have f32 sums; weights, gradients and optimizer state are f32.

   Build: make cuda, or nvcc -O3 -std=c++17 -I. -c hetrain_cuda.cu (CUDA 12.5 or newer; link with
   -lcublasLt). A program that trains on it says `device.iface = het_cuda_device()`, and before that
       #define HETRAIN_CUDA_DECLARATIONS                       this file then only declares, in C
                                                               and C++, and needs no CUDA header
       #include "hetrain_cuda.cu"

   Bits: equal from run to run on one layout (no floating-point atomics but HET_CUDA_ATOMIC's);
   against the CPU device within rounding, not equal.

   Contents
       >>cu_config      includes, launches, errors
       >>cu_primitives  sums over warps and blocks, tensor core and copy instructions
       >>cu_rows        norms, rotary positions, activations, embedding, dropout
       >>cu_loss        cross-entropy, order-free sums, exact accumulation, verdict, AdamW, Muon
       >>cu_attention   fused attention, forward and backward
       >>cu_device      state, memory, queues, events
       >>cu_linear      cuBLASLt products
       >>cu_table       creating, workspaces, the tables

   License: as hetrain.h. */
#ifndef HETRAIN_CUDA_DECLARED
#define HETRAIN_CUDA_DECLARED

#include "hetrain.h"

#ifdef __cplusplus
extern "C" {
#endif

/* TF32: f32 by tf32 operands (10 bits of fraction) in products and attention. TIMED: the fastest
   algorithms by timing, which may be others in the next run, with other bits. EAGER: no graphs,
   every op is started by itself. OPS: EAGER, and each op is timed on the card (het_cuda_ops).
   ATOMIC: attention's gradients in five products a tile in place of seven, those of queries added
   up in workspace, as floats and in whatever order: the next run has other bits. FIRST: blocks of
   its kernels go before those of other queues on the card that wait (but not those of groups), so
   that another context of the program can have what this one leaves. */
enum {
    HET_CUDA_TF32 = 1, HET_CUDA_TIMED = 2, HET_CUDA_EAGER = 4, HET_CUDA_OPS = 8, HET_CUDA_ATOMIC = 16,
    HET_CUDA_FIRST = 32
};

/* The device with options, or none of them; het_device_desc.ordinal says which card, or which part
   of one (HET_PART): it shares memory with the others, and has its bits. Threads: any. */
const het_device_iface *het_cuda_device_with(int32_t options);
const het_device_iface *het_cuda_device(void);

/* Of a device that one of these tables made, for libraries that work on its card: which card (-1:
   the device is another's), and the cudaStream_t of a queue (NULL: of the default queue).
   Threads: any. */
int32_t het_cuda_ordinal(const het_device *device);
/* Of a device with HET_CUDA_OPS: what its ops have taken, a JSON line for each op and shape: calls,
   milliseconds of all and of the fastest (the first ones load kernels), bytes of device memory read
   and written, FLOPs, kernels and products started, matrices rounded to bf16; of its first product
   how many algorithms cuBLASLt has found (1 is asked for, with HET_CUDA_TIMED 16) and, where they
   were timed, milliseconds of the heuristic's first and of the fastest. Writes at most capacity
   bytes, a 0 at their end; returns the bytes of all lines without it. Threads: the device's. */
size_t het_cuda_ops(const het_device *device, char *text, size_t capacity);
void *het_cuda_stream(const het_device *device, het_queue *queue);

#ifdef __cplusplus
}
#endif
#endif /* HETRAIN_CUDA_DECLARED */

#ifndef HETRAIN_CUDA_DECLARATIONS

/* -------------------------------------------------------------------------------------------------
   >>cu_config  Includes, launches, errors.

   HETC_EMULATED builds the same kernels for the CPU, under tests/cuda/emulator.h; HETC_KERNELS_ONLY
   leaves out all that needs the runtime and cuBLASLt (whoever defines it provides cudaStream_t,
   cudaError_t, cudaGetLastError and standin_enqueue).
   ---------------------------------------------------------------------------------------------- */
#include <math.h>
#include <stdio.h>
#include <string.h>

#ifdef HETC_EMULATED
#include "emulator.h"
#endif
#ifndef HETC_KERNELS_ONLY
#include <cuda.h> /* types alone: the driver's library is not linked */
#include <cuda_runtime.h>
#include <cublasLt.h>
#if defined(CUDART_VERSION) && CUDART_VERSION < 12050
#error "hetrain_cuda.cu needs CUDA 12.5 or newer"
#endif
#endif

#define HETC_TRY(call) do { const het_result hetc_tried = \
    (call); if (hetc_tried != HET_OK) return hetc_tried; } while (0)

/* >>cu_device: whether f32 may be tf32; whether sums may be atomic; bytes of shared memory a block
   may ask for; the queue's stream (NULL: the default queue) and its counters (hetc_last_block),
   [HETC_COUNTERS] in device memory; how an error is kept: "what", its name, file and line. */
enum { HETC_COUNTERS = 1 << 16 };
static int hetc_allows_tf32(void *self);
static int hetc_allows_atomic(void *self);
static int hetc_has_wide(void *self);
static size_t hetc_shared_limit(void *self);
static cudaStream_t hetc_stream(void *self, het_queue *queue);
static unsigned *hetc_counters(void *self, het_queue *queue);
static het_result hetc_fail(void *self, cudaError_t error, const char *what, const char *file, int line);

/* x by y blocks; hetc_launch starts nothing where x is 0. What CUDA cannot start (2^31 blocks, or
   2^16 in y) becomes a grid it refuses. */
static dim3 hetc_grid(int64_t x, int64_t y) {
    return x <= INT32_MAX && y <= 65535 ? dim3((unsigned)x, (unsigned)y, 1) : dim3(0, 0, 0);
}

static int64_t hetc_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Starts kernel(arguments...) on the queue. Arguments are copied before this returns. */
template <class... Parameters, class... Arguments>
static het_result hetc_launch(void *self, het_queue *queue, const char *name, int line, void (*kernel)(Parameters...),
                              dim3 grid, unsigned threads, size_t shared, Arguments... arguments) {
    if (grid.x == 0 && grid.y > 0) return HET_OK;
    const cudaStream_t stream = hetc_stream(self, queue);
    cudaError_t error;
    if (shared > 32 << 10) { /* more than 48 KiB, with the kernel's own arrays, has to be asked for */
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
        if (error != cudaSuccess) return hetc_fail(self, error, "cudaFuncSetAttribute", __FILE__, line);
    }
#ifdef HETC_EMULATED
    standin_enqueue(stream, [=] {
        emulator_run(grid, dim3(threads), shared, [=] { kernel(arguments...); },
                     reinterpret_cast<const void *>(kernel));
    });
#else
    kernel<<<grid, threads, shared, stream>>>(arguments...);
#endif
    error = cudaGetLastError();
    return error == cudaSuccess ? HET_OK : hetc_fail(self, error, name, __FILE__, line);
}
#define HETC_LAUNCH(self, queue, kernel, grid, threads, shared, ...) \
    hetc_launch(self, queue, #kernel, __LINE__, kernel, grid, threads, shared, __VA_ARGS__)

/* The arguments as a kernel gets them: without the view, which is the host's. */
template <class Args> static Args hetc_without_view(const Args *args) {
    Args own = *args;
    own.view = NULL;
    return own;
}

/* Whether anything is to be added to a gradient. */
static int hetc_wanted(const het_gradient *gradient) { return gradient != NULL && gradient->sum != NULL; }

/* Shapes no kernel takes: `op`, and the numbers that are impossible. */
static het_result hetc_shape(void *self, const char *op, int valid, int64_t rows, int64_t width, int line) {
    char text[128];
    if (valid) return HET_OK;
    snprintf(text, sizeof text, "%s: impossible shape, %lld rows of %lld", op, (long long)rows, (long long)width);
    return hetc_fail(self, cudaErrorInvalidValue, text, __FILE__, line);
}

/* -------------------------------------------------------------------------------------------------
   >>cu_primitives  Sums over warps and blocks, tensor core and copy instructions.

   Sums have a fixed tree: the same numbers give the same bits whatever runs first.
   ---------------------------------------------------------------------------------------------- */

#define HETC_KERNEL static __global__ void
#define HETC_DEVICE static __device__ __forceinline__
#ifdef HETC_EMULATED
/* An array all threads of a block share, and the bytes the launch asked for. */
#define HETC_SHARED(type, name, count) \
    static const char name##_key = 0; \
    type *const name = static_cast<type *>(emulator_shared(&name##_key, (count) * sizeof(type), alignof(type)))
#define HETC_SHARED_BYTES(name) unsigned char *const name = emulator_dynamic_shared()
#define HETC_UNROLL
#define HETC_ROLLED
#else
#define HETC_SHARED(type, name, count) __shared__ type name[count]
#define HETC_SHARED_BYTES(name) extern __shared__ __align__(1024) unsigned char name[]
#define HETC_UNROLL _Pragma("unroll")  /* arrays indexed by the loop then stay in registers */
#define HETC_ROLLED _Pragma("unroll 1")
#endif

enum { HETC_WARP = 32, HETC_THREADS = 256, HETC_WARPS = HETC_THREADS / HETC_WARP };
#define HETC_ALL 0xffffffffu
#define HETC_LOG2_E 1.44269504f

/* V neighbouring elements, one load or store. */
template <class T, int V> struct alignas(sizeof(T) * (size_t)V) hetc_pack { T v[(size_t)V]; };
template <class T> HETC_DEVICE void hetc_aligned(const void *at) {
#ifdef HETC_EMULATED
    if (reinterpret_cast<uintptr_t>(at) % alignof(T) != 0) emulator_fail("misaligned address of %zu bytes", sizeof(T));
#else
    (void)at;
#endif
}
template <int V, class T> HETC_DEVICE hetc_pack<T, V> hetc_get(const T *from) {
    hetc_aligned<hetc_pack<T, V>>(from);
    return *reinterpret_cast<const hetc_pack<T, V> *>(from);
}
template <class T, int V> HETC_DEVICE void hetc_put(T *to, const hetc_pack<T, V> &x) {
    hetc_aligned<hetc_pack<T, V>>(to);
    *reinterpret_cast<hetc_pack<T, V> *>(to) = x;
}

/* 1 when all of these may be read and written in packs of 4 floats: addresses and row length. */
static int hetc_packs(int64_t width, const void *a, const void *b = NULL, const void *c = NULL, const void *d = NULL,
                      const void *e = NULL) {
    return width % 4 == 0 && (((uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d | (uintptr_t)e) & 15) == 0;
}

/* A thread an element, or a pack of 4; a warp a row. */
static dim3 hetc_spread(int64_t count, int packs) {
    return hetc_grid(hetc_ceil_div(count, packs ? 4 * HETC_THREADS : HETC_THREADS), 1);
}
static dim3 hetc_warps(int64_t rows, int64_t across = 1) { return hetc_grid(hetc_ceil_div(rows, HETC_WARPS), across); }

/* `kernel` for a first and a second operand that are floats or bf16. bf16 goes in packs; floats do
   where they may. */
#define HETC_TYPED(kernel, first, second, packs) ((first) && (second) ? kernel<4, uint16_t, uint16_t> : \
    (first) ? kernel<4, uint16_t, float> : (second) ? kernel<4, float, uint16_t> : \
    (packs) ? kernel<4, float, float> : kernel<1, float, float>)

HETC_DEVICE int hetc_lane() { return (int)(threadIdx.x % HETC_WARP); }
HETC_DEVICE int hetc_warp() { return (int)(threadIdx.x / HETC_WARP); }
/* Number of this thread in the grid. */
HETC_DEVICE int64_t hetc_index() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
/* One warp a row: this warp's row. */
HETC_DEVICE int64_t hetc_warp_row() { return (int64_t)blockIdx.x * (blockDim.x / HETC_WARP) + hetc_warp(); }

template <class T> HETC_DEVICE T hetc_warp_sum(T x) {
    for (int step = HETC_WARP / 2; step > 0; step /= 2) x += __shfl_xor_sync(HETC_ALL, x, step);
    return x;
}
HETC_DEVICE uint32_t hetc_warp_max(uint32_t x) {
    for (int step = HETC_WARP / 2; step > 0; step /= 2) {
        const uint32_t other = __shfl_xor_sync(HETC_ALL, x, step);
        x = x > other ? x : other;
    }
    return x;
}

/* Unsigned maximum into memory, one atomic a warp; all lanes take part. */
HETC_DEVICE void hetc_raise(uint32_t *maximum, uint32_t bits) {
    bits = hetc_warp_max(bits);
    if (hetc_lane() == 0 && bits > 0) atomicMax(maximum, bits);
}

/* Terms into elements i ... i + V - 1 of a gradient's sum: on the grid, or as floats; all are read
   before one is written. Returns what goes into the maximum: the largest bits of |term|. Nobody
   else may add to these elements at the same time. */
template <int V> HETC_DEVICE uint32_t hetc_add_terms(const het_gradient &gradient, int64_t i,
                                                     const hetc_pack<float, V> &term) {
    uint32_t top = 0;
    if (gradient.exact) {
        double *const sum = static_cast<double *>(gradient.sum) + i;
        double now[V];
        const double grid = *gradient.grid;
        HETC_UNROLL for (int n = 0; n < V; n++) now[n] = sum[n];
        HETC_UNROLL for (int n = 0; n < V; n++) {
            const uint32_t bits = __float_as_uint(term.v[n]) & 0x7fffffffu;
            top = bits > top ? bits : top;
            sum[n] = now[n] + (((double)term.v[n] + grid) - grid);
        }
    } else {
        float *const sum = static_cast<float *>(gradient.sum) + i;
        float now[V];
        HETC_UNROLL for (int n = 0; n < V; n++) now[n] = sum[n];
        HETC_UNROLL for (int n = 0; n < V; n++) sum[n] = now[n] + term.v[n];
    }
    return top;
}

/* ---- het_sum: sum += term, as heti_sum_add of hetrain.h. Integer atomics have no order ---- */

HETC_DEVICE void hetc_limb_add(int64_t *limb, int64_t value) {
    if (value != 0) atomicAdd(reinterpret_cast<unsigned long long *>(limb), (unsigned long long)value);
}

/* |term| = mantissa 2^(exponent); its bits, shifted to their place above 2^-320, are added to three
   limbs as 32-bit pieces. */
HETC_DEVICE void hetc_sum_add(int64_t *limb, double term) {
    const uint64_t bits = (uint64_t)__double_as_longlong(term);
    const int place = (int)(bits >> 52 & 0x7ff) - 1075 + 320;
    uint64_t mantissa = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
    if (place + 53 > 32 * 19) { hetc_limb_add(limb + 19, 1); return; } /* infinite, NaN, or 2^288 and larger */
    /* below 2^-320: also zero, whose implied bit is not there */
    if (place <= -53) return;
    if (place < 0) mantissa >>= -place;
    const int first = place < 0 ? 0 : place / 32, shift = place < 0 ? 0 : place % 32;
    const int64_t sign = bits >> 63 != 0 ? -1 : 1;
    const uint64_t low = (mantissa & 0xffffffffu) << shift, high = ((mantissa >> 32) << shift) + (low >> 32);
    hetc_limb_add(limb + first, sign * (int64_t)(low & 0xffffffffu));
    hetc_limb_add(limb + first + 1, sign * (int64_t)(high & 0xffffffffu));
    hetc_limb_add(limb + first + 2, sign * (int64_t)(high >> 32));
}

/* ---- Philox4x32-10, as heti_philox of hetrain.h ---- */

struct hetc_words { uint32_t w[4]; };

HETC_DEVICE hetc_words hetc_philox(uint64_t key, uint64_t low, uint64_t high) {
    uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
    hetc_words x = { { (uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32) } };
    for (int round = 0; round < 10; round++, key0 += UINT32_C(0x9E3779B9), key1 += UINT32_C(0xBB67AE85)) {
        const uint64_t a = UINT64_C(0xD2511F53) * x.w[0], b = UINT64_C(0xCD9E8D57) * x.w[2];
        x = { { (uint32_t)(b >> 32) ^ x.w[1] ^ key0, (uint32_t)b, (uint32_t)(a >> 32) ^ x.w[3] ^ key1, (uint32_t)a } };
    }
    return x;
}

/* ---- bf16 as its 16 bits, rounded to nearest even; low half first in memory ---- */

HETC_DEVICE uint32_t hetc_bf16_pair(float low, float high) {
#ifdef HETC_EMULATED
    uint32_t bits[2] = { __float_as_uint(low), __float_as_uint(high) };
    for (uint32_t &x : bits) x = (x & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : (x + 0x7fffu + (x >> 16 & 1u)) >> 16;
    return bits[0] | bits[1] << 16;
#else
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#endif
}

HETC_DEVICE uint16_t hetc_bf16(float x) { return (uint16_t)(hetc_bf16_pair(x, 0.0f) & 0xffffu); }

/* V neighbouring elements in memory that are float or bf16 (T uint16_t), as floats. */
template <int V, class T> HETC_DEVICE hetc_pack<float, V> hetc_load(const T *from) {
    const hetc_pack<T, V> bits = hetc_get<V>(from);
    if constexpr (sizeof(T) == 4) return bits;
    else {
        hetc_pack<float, V> x;
        for (int i = 0; i < V; i += 2) {
            uint32_t pair = 0;
            memcpy(&pair, bits.v + i, V > 1 ? 4 : 2);
            x.v[i] = __uint_as_float(pair << 16);
            if (i + 1 < V) x.v[i + 1] = __uint_as_float(pair & 0xffff0000u);
        }
        return x;
    }
}
template <int V, class T> HETC_DEVICE void hetc_save(T *to, const hetc_pack<float, V> &x) {
    if constexpr (sizeof(T) == 4) hetc_put(to, x);
    else if constexpr (V % 4 == 0) { /* whole words: the compiler may store halves one by one */
        hetc_pack<uint64_t, V / 4> words;
        for (int i = 0; i < V; i += 4)
            words.v[i / 4] = (uint64_t)hetc_bf16_pair(x.v[i + 2], x.v[i + 3]) << 32 |
                hetc_bf16_pair(x.v[i], x.v[i + 1]);
        hetc_put(reinterpret_cast<uint64_t *>(to), words);
    } else {
        hetc_pack<T, V> bits;
        for (int i = 0; i < V; i += 2) {
            const uint32_t pair = hetc_bf16_pair(x.v[i], i + 1 < V ? x.v[i + 1] : 0.0f);
            memcpy(bits.v + i, &pair, V > 1 ? 4 : 2);
        }
        hetc_put(to, bits);
    }
}
/* An operand of an op as what it is. */
template <class T> HETC_DEVICE const T *hetc_as(const float *operand) { return reinterpret_cast<const T *>(operand); }
template <class T> HETC_DEVICE T *hetc_as(float *operand) { return reinterpret_cast<T *>(operand); }

/* 2^x within 2^-22, results below the smallest normal number are 0. */
HETC_DEVICE float hetc_exp2(float x) {
#ifdef HETC_EMULATED
    const float y = exp2f(x);
    return y < 1.17549435e-38f ? 0.0f : y;
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* ---- tensor cores (PTX ISA, sm_80 and newer): four 8 x 8 matrices of 16-bit elements, and d += a
   b with a 16 x 16, b 16 x 8 ---- */

#ifndef HETC_EMULATED
HETC_DEVICE uint32_t hetc_shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
#endif

template <bool TRANSPOSED> HETC_DEVICE void hetc_ldmatrix(uint32_t (&to)[4], const void *from) {
#ifdef HETC_EMULATED
    emulator_ldmatrix(to, from, TRANSPOSED);
#else
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(hetc_shared_address(from)) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(hetc_shared_address(from)) : "memory");
#endif
}

HETC_DEVICE void hetc_mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#ifdef HETC_EMULATED
    emulator_mma(d, a, b0, b1);
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0),
        "r"(b1));
#endif
}

/* d += a b with a 16 x 8, b 8 x 8, of tf32: floats whose fraction has 10 bits. */
HETC_DEVICE void hetc_mma_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#ifdef HETC_EMULATED
    emulator_mma_tf32(d, a, b0, b1);
#else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0),
        "r"(b1));
#endif
}

/* ---- tensor cores for four warps at a time (PTX ISA, wgmma m64n64k16, sm_90a): d += a b with
   a 64 x 16, b 16 x 64. Warp w of the four has rows 16 w to 16 w + 15 of a and d, as mma lays them
   out. b, and a where it is no registers, are read from shared memory while the warps go on: rows
   of 64 elements (128 bytes), 16 bytes of which lie at place i ^ row % 8 instead of i, eight rows
   by eight, `apart` bytes from eight to eight ---- */

/* A bf16 whose products are these. */
struct hetc_wide {
    uint16_t bits;
    __device__ hetc_wide() {}
    __device__ hetc_wide(uint16_t bits_) : bits(bits_) {}
};

#if defined(HETC_EMULATED) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HETC_HAS_WIDE 1
#else
#define HETC_HAS_WIDE 0
#endif

/* Says whether the code that runs here has these products: for blocks of 64 threads, else of 32. */
template <class T> static __global__ void __launch_bounds__(HETC_HAS_WIDE ? 64 : 32) hetc_wide_kernel(T) {}

/* Of a matrix in shared memory, begun at a multiple of 1,024 bytes but for the step along a row:
   address, bytes from eight rows to eight, places that are swapped in 128 bytes. */
HETC_DEVICE uint64_t hetc_matrix(const void *at, int apart) {
#ifdef HETC_EMULATED
    const uint32_t address = emulator_shared_address(at);
#else
    const uint32_t address = hetc_shared_address(at);
#endif
    return (uint64_t)(address >> 4) | (uint64_t)(apart >> 4) << 32 | (uint64_t)1 << 62;
}

/* What the products read has been written, to shared memory by this thread: a barrier makes
   everybody's visible to them. */
HETC_DEVICE void hetc_group_publish() {
#if HETC_HAS_WIDE && !defined(HETC_EMULATED)
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
#endif
}

/* Registers of products: what is before them in the source has been done, what is behind waits. */
template <int N> HETC_DEVICE void hetc_group_hold(float (*d)[1][4]) {
#ifndef HETC_EMULATED
    HETC_UNROLL
    for (int n = 0; n < N / 8; n++)
        for (int i = 0; i < 4; i++) asm volatile("" : "+f"(d[n][0][i]) : : "memory");
#else
    (void)d;
#endif
}
template <int N> HETC_DEVICE void hetc_group_begin(float (*d)[1][4]) {
    hetc_group_hold<N>(d);
#if HETC_HAS_WIDE && !defined(HETC_EMULATED)
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
#endif
}
HETC_DEVICE void hetc_group_end() {
#if HETC_HAS_WIDE && !defined(HETC_EMULATED)
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
#endif
}
/* All products but those between the last OPEN begins and ends are done, with them d. */
template <int N, int OPEN> HETC_DEVICE void hetc_group_wait(float (*d)[1][4]) {
#if HETC_HAS_WIDE && !defined(HETC_EMULATED)
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(OPEN) : "memory");
#endif
    hetc_group_hold<N>(d);
}

#define HETC_D4(n) "+f"(d[n][0][0]), "+f"(d[n][0][1]), "+f"(d[n][0][2]), "+f"(d[n][0][3])
#define HETC_D16(n) HETC_D4(n), HETC_D4(n + 1), HETC_D4(n + 2), HETC_D4(n + 3)
#define HETC_NAMES_32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24," \
    "%25,%26,%27,%28,%29,%30,%31"
/* more: the operand that says whether there is a sum already. */
#define HETC_GROUP(more, operands) "{ .reg .pred more; setp.ne.b32 more, " more ", 0; " \
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" HETC_NAMES_32 "}, " operands "; }"

/* d += a b, a in registers, rows of b are k. */
HETC_DEVICE void hetc_group_mma(float (*d)[1][4], const uint32_t (&a)[4], uint64_t b) {
#ifdef HETC_EMULATED
    emulator_group_mma(d, a, b, true, 1);
#elif HETC_HAS_WIDE
    asm volatile(HETC_GROUP("%37", "{%32,%33,%34,%35}, %36, more, 1, 1, 1") : HETC_D16(0), HETC_D16(4)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
#else
    (void)d, (void)a, (void)b;
    asm volatile("trap;");
#endif
}

/* a and b in shared memory, k along rows of both, or (BY_ROWS) from row to row. more: d += a b,
   else d = a b. */
template <int BY_ROWS = 0> HETC_DEVICE void hetc_group_mma(float (*d)[1][4], uint64_t a, uint64_t b, int more) {
#ifdef HETC_EMULATED
    uint32_t own[4];
    emulator_group_left(own, a, BY_ROWS);
    emulator_group_mma(d, own, b, BY_ROWS, more);
#elif HETC_HAS_WIDE
    asm volatile(HETC_GROUP("%34", "%32, %33, more, 1, 1, %35, %35") : HETC_D16(0), HETC_D16(4)
                 : "l"(a), "l"(b), "r"(more), "n"(BY_ROWS));
#else
    (void)d, (void)a, (void)b, (void)more;
    asm volatile("trap;");
#endif
}

/* The bits of x as tf32, to nearest, ties away from zero. */
HETC_DEVICE uint32_t hetc_tf32_bits(float x) {
#ifdef HETC_EMULATED
    const uint32_t bits = __float_as_uint(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
#else
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
#endif
}

/* ---- asynchronous copies of 16 bytes, or of 8 or 4, into shared memory; where not `present`, zeros ---- */

template <int BYTES = 16> HETC_DEVICE void hetc_copy_async(void *to, const void *from, bool present) {
#ifdef HETC_EMULATED
    emulator_copy_async(to, present ? from : NULL, BYTES);
#else
    const uint32_t at = hetc_shared_address(to);
    const int bytes = present ? BYTES : 0;
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(at), "l"(from), "r"(bytes) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;"
                     : : "r"(at), "l"(from), "r"(bytes), "n"(BYTES) : "memory");
#endif
}

HETC_DEVICE void hetc_copy_commit() {
#ifdef HETC_EMULATED
    emulator_copy_commit();
#else
    asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

/* This thread's copies have landed; a barrier makes everybody's visible. */
HETC_DEVICE void hetc_copy_wait() {
#ifdef HETC_EMULATED
    emulator_copy_wait(0);
#else
    asm volatile("cp.async.wait_group 0;" : : : "memory");
#endif
}

/* -------------------------------------------------------------------------------------------------
   >>cu_rows  Norms, rotary positions, activations, embedding, dropout.
   ---------------------------------------------------------------------------------------------- */

/* ---- norms, whole warps a row: xhat = (x - mean) rstd, for RMSNorm x rstd; y = xhat gain + bias ---- */

/* Packs of a row that a thread keeps in registers; what is behind them is read thrice. */
enum { HETC_NORM_KEPT = 8 };

/* The sum over a row's 2^split warps, side by side in a block; shared: [HETC_WARPS], used once. */
HETC_DEVICE float hetc_warps_sum(float x, int split, float *shared) {
    x = hetc_warp_sum(x);
    if (split == 0) return x;
    if (hetc_lane() == 0) shared[hetc_warp()] = x;
    __syncthreads();
    x = 0.0f;
    for (int i = 0; i < 1 << split; i++) x += shared[(hetc_warp() >> split << split) + i];
    return x;
}

/* 2^split warps a row: as many as keep it in registers, or all 8. */
template <int V, class X, class Y> HETC_KERNEL hetc_norm_forward_kernel(het_norm_args a, int split) {
    HETC_SHARED(float, shared, 2 * HETC_WARPS);
    const int64_t row = hetc_warp_row() >> split, step = (HETC_WARP * V) << split;
    const int64_t first = (int64_t)threadIdx.x * V & (step - 1), width = row < a.rows ? a.width : 0;
    const float count = (float)a.width;
    float mean = 0.0f, square = 0.0f;
    const X *x = hetc_as<X>(a.x) + row * width;
    hetc_pack<float, V> kept[HETC_NORM_KEPT] = {};
    HETC_UNROLL for (int k = 0; k < HETC_NORM_KEPT; k++)
        if (first + k * step < width) kept[k] = hetc_load<V>(x + first + k * step);
    const auto each = [&kept, x, first, step, width](auto f) { /* f(j, x) for the lane's packs */
        HETC_UNROLL for (int k = 0; k < HETC_NORM_KEPT; k++)
            if (first + k * step < width) f(first + k * step, kept[k]);
        for (int64_t j = first + HETC_NORM_KEPT * step; j < width; j += step) f(j, hetc_load<V>(x + j));
    };
    if (a.kind != HET_RMSNORM) {
        each([&mean](int64_t, const auto &t) { for (const float one : t.v) mean += one; });
        mean = hetc_warps_sum(mean, split, shared) / count;
    }
    each([&square, mean](int64_t, const auto &t) {
        for (const float one : t.v) square += (one - mean) * (one - mean);
    });
    const float rstd = 1.0f / sqrtf(hetc_warps_sum(square, split, shared + HETC_WARPS) / count + a.epsilon);
    if (first == 0 && row < a.rows) {
        if (a.kind != HET_RMSNORM) a.mean[row] = mean;
        a.rstd[row] = rstd;
    }
    each([&a, row, mean, rstd](int64_t j, const auto &t) {
        const hetc_pack<float, V> gain = hetc_get<V>(a.gain + j);
        hetc_pack<float, V> y = {};
        if (a.bias != NULL) y = hetc_get<V>(a.bias + j);
        for (int i = 0; i < V; i++) y.v[i] = (t.v[i] - mean) * rstd * gain.v[i] + y.v[i];
        hetc_save(hetc_as<Y>(a.y) + row * a.width + j, y);
    });
}

/* With g = dy gain: dx = residual + rstd (g - mean(g) - xhat mean(g xhat)); RMSNorm lacks mean(g).
   V columns of it, which lie at `at`; dx may be dy or the residual. */
template <int V, class X>
HETC_DEVICE void hetc_norm_dx(const het_norm_args &a, int64_t at, float rstd, float mean_g, float mean_product,
                              const hetc_pack<float, V> &g, const hetc_pack<float, V> &xhat,
                              const hetc_pack<float, V> &residual) {
    hetc_pack<float, V> dx;
    for (int i = 0; i < V; i++) dx.v[i] = rstd * (g.v[i] - mean_g - xhat.v[i] * mean_product) + residual.v[i];
    hetc_save(hetc_as<X>(a.dx) + at, dx);
    if (a.dx_bf16 != NULL) hetc_save(a.dx_bf16 + at, dx);
}

template <int V, class X, class Y> HETC_KERNEL hetc_norm_backward_input_kernel(het_norm_args a) {
    const int64_t row = hetc_warp_row(), width = a.width;
    if (row >= a.rows) return;
    float sum = 0.0f, product = 0.0f;
    const float mean = a.kind != HET_RMSNORM ? a.mean[row] : 0.0f, rstd = a.rstd[row];
    for (int write = 0; write < 2; write++) { /* the means of g and g xhat, then dx */
        for (int64_t j = hetc_lane() * V; j < width; j += HETC_WARP * V) {
            hetc_pack<float, V> x = hetc_load<V>(hetc_as<X>(a.x) + row * width + j), residual = {},
                                g = hetc_load<V>(hetc_as<Y>(a.dy) + row * width + j);
            const hetc_pack<float, V> gain = hetc_get<V>(a.gain + j);
            for (int i = 0; i < V; i++) {
                g.v[i] *= gain.v[i];
                x.v[i] = (x.v[i] - mean) * rstd;
                if (!write) sum += g.v[i];
                if (!write) product += g.v[i] * x.v[i];
            }
            if (write && a.residual != NULL) residual = hetc_load<V>(hetc_as<X>(a.residual) + row * width + j);
            if (write) hetc_norm_dx<V, X>(a, row * width + j, rstd, sum, product, g, x, residual);
        }
        if (write) return;
        sum = a.kind != HET_RMSNORM ? hetc_warp_sum(sum) / (float)width : 0.0f;
        product = hetc_warp_sum(product) / (float)width;
    }
}

/* Forward, or dx. */
static het_result hetc_norm_rows(void *self, het_queue *queue, const het_norm_args *a, int32_t bf16, int backward) {
    const int packs = backward ? hetc_packs(a->width, a->x, a->dy, a->gain, a->dx, a->residual) :
                      hetc_packs(a->width, a->x, a->y, a->gain, a->bias);
    const int32_t x = bf16 & (HET_BF16_X | HET_BF16_DX), y = bf16 & (backward ? HET_BF16_DY : HET_BF16_Y);
    int split = 0;
    while (1 << split < HETC_WARPS && (HETC_WARP * HETC_NORM_KEPT * (packs ? 4 : 1)) << split < a->width) split++;
    HETC_TRY(hetc_shape(self, backward ? "norm_backward_input" : "norm_forward", a->rows >= 0 && a->width > 0 &&
                        (packs || !bf16), a->rows, a->width, __LINE__));
    if (!backward) return HETC_LAUNCH(self, queue, HETC_TYPED(hetc_norm_forward_kernel, x, y, packs),
                                      hetc_warps(a->rows << split), HETC_THREADS, 0, hetc_without_view(a), split);
    return HETC_LAUNCH(self, queue, HETC_TYPED(hetc_norm_backward_input_kernel, x, y, packs), hetc_warps(a->rows),
                       HETC_THREADS, 0, hetc_without_view(a));
}

/* ---- sums over the rows of each granule: gradients of gains and biases ----
   A granule's rows are cut into chunks. Blocks write a sum a chunk and column into slots of the
   workspace; the block that is the last with its columns, or a second kernel, adds the slots of a
   granule in their order, which is the granule's term, and the terms to the gradient. */

enum { HETC_CHUNK = 128, HETC_NORM_CHUNK = 16, HETC_COLUMNS = 32 };

struct hetc_columns {
    const int64_t *granule_start;  /* device */
    int64_t row_begin, rows_per_token, width, pitch; /* pitch: elements from row to row of dy */
    const float *dy;               /* [rows][width] */
    const float *x, *mean, *rstd;  /* of a norm: the products dy xhat are summed too. x NULL: none;
                                      mean NULL: RMSNorm */
    het_gradient of_product, of_dy; /* sum NULL: not wanted */
    float *slot;                   /* [slots][2][width]: sums of dy xhat, sums of dy */
    unsigned *counter;             /* of hetc_last_block */
    int64_t first, chunk;          /* granule of slot 0; rows of a slot */
    int64_t granules, chunks;      /* granules of this launch, slots of each */
};

/* Sums over a block's 8 rows of threads, 32 columns side by side; valid in the first row of
   threads. */
HETC_DEVICE float hetc_column_sum(float x, float *shared) {
    const int column = hetc_lane(), line = hetc_warp();
    __syncthreads();
    shared[line * HETC_COLUMNS + column] = x;
    __syncthreads();
    for (int i = 1; line == 0 && i < HETC_WARPS; i++) x += shared[i * HETC_COLUMNS + column];
    return x;
}

/* The rows [result, last) of a slot, of the slice's. */
HETC_DEVICE int64_t hetc_slot_rows(const hetc_columns &c, int64_t slot, int64_t *last) {
    const int64_t granule = c.first + slot / c.chunks,
                  end = (c.granule_start[granule + 1] - c.row_begin) * c.rows_per_token;
    const int64_t begin = (c.granule_start[granule] - c.row_begin) * c.rows_per_token + slot % c.chunks * c.chunk;
    *last = begin + c.chunk < end ? begin + c.chunk : end;
    return begin;
}

/* N slots, on their way at once, to the terms of V columns, in fours, so that terms do not depend
   on N; slots from the `left`th on are not there. */
template <int V, int N> HETC_DEVICE void hetc_add_slots(float (&term)[V], const float *slot, int64_t step, int left) {
    hetc_pack<float, V> x[N] = {};
    HETC_UNROLL for (int n = 0; n < N; n++)
        if (n < left) x[n] = hetc_get<V>(slot + n * step);
    HETC_UNROLL for (int n = 0; n < N; n += 4)
        HETC_UNROLL for (int j = 0; j < V; j++)
            term[j] += (x[n].v[j] + x[n + 1].v[j]) + (x[n + 2].v[j] + x[n + 3].v[j]);
}

/* Terms of the launch's granules into one of the gradients (0: of dy xhat, 1: of dy), 32 V columns
   from `first` on. A warp has every `warps`th granule, a lane V columns of it (the last ones, where
   the row has ended). Terms are rounded to the grid, if there is one, and added as doubles; the
   sums of warps, [warps][V][32] in shared memory, are added in their order. */
template <int V> HETC_DEVICE void hetc_join(const hetc_columns &c, int which, int64_t first, double *shared) {
    enum { COLUMNS = HETC_COLUMNS * V };
    const het_gradient &gradient = which == 0 ? c.of_product : c.of_dy;
    const int warps = (int)blockDim.x / HETC_WARP, chunks = (int)c.chunks;
    const int64_t own = first + hetc_lane() * V, column = own < c.width ? own : c.width - V, step = 2 * c.width;
    if (gradient.sum == NULL) return;
    const double grid = gradient.exact ? *gradient.grid : 0.0;
    double sum[V] = {};
    uint32_t top = 0;
    for (int64_t granule = hetc_warp(); granule < c.granules; granule += warps) {
        float term[V] = {};
        const float *slot = c.slot + granule * chunks * step + which * c.width + column;
        int i = 0;
        for (; V == 1 && i + 16 <= chunks; i += 16) hetc_add_slots<V, 16>(term, slot + i * step, step, 16);
        for (; i < chunks; i += 4) hetc_add_slots<V, 4>(term, slot + i * step, step, chunks - i);
        HETC_UNROLL for (int j = 0; j < V; j++) {
            const uint32_t bits = __float_as_uint(term[j]) & 0x7fffffffu;
            if (bits > top) top = bits;
            sum[j] += ((double)term[j] + grid) - grid;
        }
    }
    __syncthreads(); /* what was in shared memory has been read */
    HETC_UNROLL for (int j = 0; j < V; j++) shared[hetc_warp() * COLUMNS + j * HETC_WARP + hetc_lane()] = sum[j];
    __syncthreads();
    for (int at = (int)threadIdx.x; at < COLUMNS; at += (int)blockDim.x) {
        const int64_t i = first + at % HETC_WARP * V + at / HETC_WARP;
        double all = shared[at];
        for (int warp = 1; warp < warps; warp++) all += shared[warp * COLUMNS + at];
        if (i < c.width && gradient.exact) static_cast<double *>(gradient.sum)[i] += all;
        else if (i < c.width) static_cast<float *>(gradient.sum)[i] += (float)all;
    }
    if (gradient.exact) hetc_raise(gradient.maximum, top);
}

/* Whether all other blocks of blockIdx.y have been here: then what they wrote before is read behind
   this. The counter, 0 before, is 0 again. */
HETC_DEVICE bool hetc_last_block(unsigned *counter) {
    bool last = false;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence(); /* also of what the barrier's other threads wrote */
        last = atomicInc(counter + blockIdx.y, gridDim.x - 1) == gridDim.x - 1;
        if (last) __threadfence();
    }
    return __syncthreads_or(last) != 0;
}

template <class X, class Y> HETC_KERNEL hetc_columns_kernel(hetc_columns c) {
    HETC_SHARED(double, joined, HETC_THREADS);
    float *const shared = reinterpret_cast<float *>(joined);
    const int64_t slot = blockIdx.x, column = (int64_t)blockIdx.y * HETC_COLUMNS + hetc_lane();
    int64_t last;
    const int64_t begin = hetc_slot_rows(c, slot, &last);
    float product = 0.0f, sum = 0.0f;
    for (int64_t row = begin + hetc_warp(); column < c.width && row < last; row += HETC_WARPS) {
        const float d = hetc_load<1>(hetc_as<Y>(c.dy) + row * c.pitch + column).v[0];
        sum += d;
        if (c.x != NULL)
            product += d * ((hetc_load<1>(hetc_as<X>(c.x) + row * c.width + column).v[0] -
                             (c.mean != NULL ? c.mean[row] : 0.0f)) * c.rstd[row]);
    }
    float *to = c.slot + slot * 2 * c.width + column;
    if (c.of_product.sum != NULL) {
        product = hetc_column_sum(product, shared);
        if (hetc_warp() == 0 && column < c.width) to[0] = product;
    }
    if (c.of_dy.sum != NULL) {
        sum = hetc_column_sum(sum, shared);
        if (hetc_warp() == 0 && column < c.width) to[c.width] = sum;
    }
    if (!hetc_last_block(c.counter)) return;
    for (int which = 0; which < 2; which++) hetc_join<1>(c, which, (int64_t)blockIdx.y * HETC_COLUMNS, joined);
}

/* Slots of the sums of dy alone, added as above: V columns a thread, AHEAD rows of them on their
   way at once. */
template <int V, class Y>
static __global__ void __launch_bounds__(HETC_THREADS, 3) hetc_bias_kernel(hetc_columns c) {
    enum { COLUMNS = HETC_COLUMNS * V, AHEAD = 8 };
    typedef hetc_pack<double, V> lane_sums; /* aligned, too, as the packs of floats that come first */
    HETC_SHARED(lane_sums, joined, HETC_THREADS);
    float *const shared = reinterpret_cast<float *>(joined);
    const int64_t first = (int64_t)blockIdx.y * COLUMNS, column = first + hetc_lane() * V;
    const Y *dy = hetc_as<Y>(c.dy) + column;
    int64_t last;
    int64_t row = hetc_slot_rows(c, blockIdx.x, &last) + hetc_warp();
    hetc_pack<float, V> sum = {};
    for (; column < c.width && row < last; row += AHEAD * HETC_WARPS) {
        hetc_pack<Y, V> d[AHEAD];
        HETC_UNROLL
        for (int i = 0; i < AHEAD; i++)
            if (row + i * HETC_WARPS < last) d[i] = hetc_get<V>(dy + (row + i * HETC_WARPS) * c.pitch);
        HETC_UNROLL
        for (int i = 0; i < AHEAD; i++)
            for (int j = 0; j < V && row + i * HETC_WARPS < last; j++) sum.v[j] += hetc_load<1>(d[i].v + j).v[0];
    }
    hetc_put(shared + hetc_warp() * COLUMNS + hetc_lane() * V, sum);
    __syncthreads();
    for (int at = (int)threadIdx.x; at < COLUMNS && first + at < c.width; at += HETC_THREADS) {
        float x = shared[at];
        for (int i = 1; i < HETC_WARPS; i++) x += shared[i * COLUMNS + at];
        c.slot[(blockIdx.x * 2 + 1) * c.width + first + at] = x;
    }
    if (hetc_last_block(c.counter)) hetc_join<V>(c, 1, first, reinterpret_cast<double *>(joined));
}

/* A norm's backward in one pass over x and dy: dx, and the slots of the gradients. A block has the
   rows of a slot, ROWS at a time; a thread has K packs of 4 columns of each, from x to dx, and sums
   dy xhat and dy of its columns. Meanwhile those of the next rows are on their way to its places in
   shared memory, HETC_NORM_AHEAD bytes: two packs of x, two of the residual, two of dy. */
enum { HETC_NORM_AHEAD = 6 * 4 * sizeof(float) };

template <int K, class X, class Y>
static __global__ void __launch_bounds__(1024) hetc_norm_backward_kernel(het_norm_args a, hetc_columns c) {
    enum { ROWS = 2 / K };
    typedef hetc_pack<float, 4> four;
    typedef hetc_pack<float, 2 * ROWS> means; /* of g and g xhat, row by row */
    HETC_SHARED(means, part, 2 * HETC_WARP);  /* in turns: one is read, the other written */
    HETC_SHARED_BYTES(bytes);
    const int threads = (int)blockDim.x, warps = threads / HETC_WARP;
    const int64_t width = a.width, column = 4 * (int64_t)threadIdx.x, across = 4 * (int64_t)threads;
    const float share = 1.0f / (float)width;
    four *const place = reinterpret_cast<four *>(bytes) + threadIdx.x;
    four gain[K] = {}, product[K] = {}, sum[K] = {};
    float mean[ROWS] = {}, rstd[ROWS] = {};
    int64_t first, last;
    const auto fetch = [&a, place, threads, width, column, across, &last](int64_t from) {
        HETC_UNROLL for (int n = 0; n < 2; n++) {
            const int64_t row = from + n / K, j = column + n % K * across;
            const bool there = row < last && j < width;
            const int64_t at = there ? row * width + j : 0;
            hetc_copy_async<4 * sizeof(X)>(place + n * threads, hetc_as<X>(a.x) + at, there);
            if (a.residual != NULL)
                hetc_copy_async<4 * sizeof(X)>(place + (2 + n) * threads, hetc_as<X>(a.residual) + at, there);
            hetc_copy_async<4 * sizeof(Y)>(place + (4 + n) * threads, hetc_as<Y>(a.dy) + at, there);
        }
        hetc_copy_commit();
    };
    first = hetc_slot_rows(c, blockIdx.x, &last);
    if (first < last) fetch(first);
    HETC_UNROLL for (int k = 0; k < K; k++)
        if (column + k * across < width) gain[k] = hetc_get<4>(a.gain + column + k * across);
    for (int turn = 0; first < last; first += ROWS, turn ^= HETC_WARP) {
        four x[2], d[2], residual[2] = {};
        HETC_UNROLL for (int n = 0; n < ROWS; n++) {
            if (first + n < last && a.kind != HET_RMSNORM) mean[n] = a.mean[first + n];
            if (first + n < last) rstd[n] = a.rstd[first + n];
        }
        hetc_copy_wait();
        HETC_UNROLL for (int n = 0; n < 2; n++) {
            x[n] = hetc_load<4>(reinterpret_cast<const X *>(place + n * threads));
            if (a.residual != NULL) residual[n] = hetc_load<4>(reinterpret_cast<const X *>(place + (2 + n) * threads));
            d[n] = hetc_load<4>(reinterpret_cast<const Y *>(place + (4 + n) * threads));
        }
        if (first + ROWS < last) fetch(first + ROWS);
        means total = {};
        HETC_UNROLL for (int n = 0; n < 2; n++)
            HETC_UNROLL for (int i = 0; i < 4; i++) {
                x[n].v[i] = (x[n].v[i] - mean[n / K]) * rstd[n / K];
                product[n % K].v[i] += d[n].v[i] * x[n].v[i];
                sum[n % K].v[i] += d[n].v[i];
                d[n].v[i] *= gain[n % K].v[i];
                total.v[n / K * 2] += d[n].v[i];
                total.v[n / K * 2 + 1] += d[n].v[i] * x[n].v[i];
            }
        for (float &one : total.v) one = hetc_warp_sum(one);
        if (hetc_lane() == 0) part[turn + hetc_warp()] = total;
        __syncthreads();
        total = means{};
        for (int warp = 0; warp < warps; warp++)
            for (int i = 0; i < 2 * ROWS; i++) total.v[i] += part[turn + warp].v[i];
        HETC_UNROLL for (int n = 0; n < 2; n++) {
            const int64_t row = first + n / K, j = column + n % K * across;
            if (row >= last || j >= width) continue;
            const float mean_g = total.v[n / K * 2] * (a.kind != HET_RMSNORM ? share : 0.0f);
            hetc_norm_dx<4, X>(a, row * width + j, rstd[n / K], mean_g, total.v[n / K * 2 + 1] * share, d[n], x[n],
                               residual[n]);
        }
    }
    HETC_UNROLL for (int k = 0; k < K; k++) {
        if (column + k * across >= width) continue;
        hetc_put(c.slot + blockIdx.x * 2 * width + column + k * across, product[k]);
        hetc_put(c.slot + (blockIdx.x * 2 + 1) * width + column + k * across, sum[k]);
    }
}

/* Both gradients of 32 columns. */
static __global__ void __launch_bounds__(HETC_WARP * HETC_WARP, 1) hetc_columns_join_kernel(hetc_columns c) {
    HETC_SHARED(double, shared, HETC_COLUMNS * HETC_WARP);
    hetc_join<1>(c, (int)blockIdx.x, (int64_t)blockIdx.y * HETC_COLUMNS, shared);
}

/* Slots of the workspace: all chunks at once where granules are HETC_CHUNK rows and longer; shorter
   ones take several launches. */
static int64_t hetc_columns_slots(int64_t rows, int64_t chunk) { return 2 * hetc_ceil_div(rows, chunk) + 64; }
static size_t hetc_columns_workspace(int64_t rows, int64_t width, int64_t chunk = HETC_CHUNK) {
    return (size_t)(hetc_columns_slots(rows, chunk) * 2 * width) * sizeof(float);
}

/* Adds the terms of the view's granules. `c` has dy, x, mean, rstd, width, rows_per_token and the
   gradients; workspace: hetc_columns_workspace. `norm`: makes its dx as well. */
static het_result hetc_columns_run(void *self, het_queue *queue, hetc_columns c, const het_view *view, int64_t rows,
                                   int32_t bf16, const het_norm_args *norm, void *workspace) {
    const int pack = (bf16 & HET_BF16_DY) != 0 ? 8 : 4, packs = c.x == NULL && hetc_packs(4, c.dy) &&
        (c.width | c.pitch) % pack == 0; /* of dy alone */
    void (*const columns)(hetc_columns) = c.x == NULL && bf16 & HET_BF16_DY ?
        (packs ? hetc_bias_kernel<8, uint16_t> : hetc_bias_kernel<1, uint16_t>) : c.x == NULL ?
        (packs ? hetc_bias_kernel<4, float> : hetc_bias_kernel<1, float>) : bf16 & HET_BF16_X ?
        (bf16 & HET_BF16_DY ? hetc_columns_kernel<uint16_t, uint16_t> : hetc_columns_kernel<uint16_t, float>) :
        bf16 & HET_BF16_DY ? hetc_columns_kernel<float, uint16_t> : hetc_columns_kernel<float, float>;
    const int wide = c.width > 4096;
    void (*const backward)(het_norm_args, hetc_columns) = bf16 & HET_BF16_X ?
        (wide ? hetc_norm_backward_kernel<2, uint16_t, uint16_t> : hetc_norm_backward_kernel<1, uint16_t, uint16_t>) :
        bf16 & HET_BF16_DY ?
        (wide ? hetc_norm_backward_kernel<2, float, uint16_t> : hetc_norm_backward_kernel<1, float, uint16_t>) :
        wide ? hetc_norm_backward_kernel<2, float, float> : hetc_norm_backward_kernel<1, float, float>;
    const int64_t across = hetc_ceil_div(c.width, HETC_COLUMNS);
    int64_t slots;
    if (rows == 0 || (c.of_product.sum == NULL && c.of_dy.sum == NULL && norm == NULL)) return HET_OK;
    c.chunk = norm != NULL ? HETC_NORM_CHUNK : HETC_CHUNK;
    slots = hetc_columns_slots(rows, c.chunk);
    c.granule_start = view->granule_start;
    c.row_begin = view->row_begin;
    c.slot = static_cast<float *>(workspace);
    c.counter = hetc_counters(self, queue);
    c.first = view->granule_begin;
    while (c.first < view->granule_end) {
        c.granules = c.chunks = 0;
        while (c.first + c.granules < view->granule_end) {
            const int64_t *start = view->host_granule_start + c.first + c.granules;
            const int64_t own = hetc_ceil_div((start[1] - start[0]) * c.rows_per_token, c.chunk),
                          chunks = own > c.chunks ? own : c.chunks;
            if (c.granules > 0 && (c.granules + 1) * chunks > slots) break;
            c.chunks = chunks;
            c.granules++;
        }
        if (c.chunks > 0) {
            const int64_t blocks = c.granules * c.chunks;
            if (norm == NULL)
                HETC_TRY(HETC_LAUNCH(self, queue, columns, hetc_grid(blocks, hetc_ceil_div(across, packs ? pack : 1)),
                                     HETC_THREADS, 0, c));
            else {
                const unsigned threads = (unsigned)(hetc_ceil_div(c.width, wide ? 256 : 128) * HETC_WARP);
                HETC_TRY(HETC_LAUNCH(self, queue, backward, hetc_grid(blocks, 1), threads, threads * HETC_NORM_AHEAD,
                                     hetc_without_view(norm), c));
                HETC_TRY(HETC_LAUNCH(self, queue, hetc_columns_join_kernel, hetc_grid(2, across),
                                     HETC_WARP * HETC_WARP, 0, c));
            }
        }
        c.first += c.granules;
    }
    return HET_OK;
}

/* Bias of a linear layer: gradient[column] += sum of dy, one term a granule. dy: [rows][width],
   `pitch` elements from row to row, rows of the view's slice. */
static het_result hetc_column_sums(void *self, het_queue *queue, const het_view *view, int64_t rows, int64_t width,
                                   const float *dy, int64_t pitch, int32_t bf16, const het_gradient *gradient,
                                   void *workspace) {
    hetc_columns c = {};
    if (!hetc_wanted(gradient)) return HET_OK;
    c.rows_per_token = 1;
    c.width = width;
    c.pitch = pitch;
    c.dy = dy;
    c.of_dy = *gradient;
    return hetc_columns_run(self, queue, c, view, rows, bf16 & HET_BF16_DY, NULL, workspace);
}

/* both: with dx. */
static het_result hetc_norm_backward_weight(void *self, het_queue *queue, const het_norm_args *a, int32_t bf16,
                                            int both) {
    const int packs = hetc_packs(a->width, a->x, a->dy, a->gain, a->dx) && hetc_packs(4, a->residual, a->workspace);
    hetc_columns c = {};
    HETC_TRY(hetc_shape(self, "norm_backward_weight", a->rows >= 0 && a->width > 0 && a->rows_per_token > 0 &&
                        (packs || !both || !bf16), a->rows, a->width, __LINE__));
    if (both && !packs) HETC_TRY(hetc_norm_rows(self, queue, a, bf16, 1));
    c.rows_per_token = a->rows_per_token;
    c.width = c.pitch = a->width;
    c.dy = a->dy;
    c.x = a->x;
    c.mean = a->kind != HET_RMSNORM ? a->mean : NULL;
    c.rstd = a->rstd;
    if (a->dgain != NULL) c.of_product = *a->dgain;
    if (a->dbias != NULL) c.of_dy = *a->dbias;
    return hetc_columns_run(self, queue, c, a->view, a->rows, bf16, both && packs ? a : NULL, a->workspace);
}

/* ---- rotary: (y0, y1) = (x0 c - x1 s, x1 c + x0 s); the transpose has -s. A warp a row and head, a
   lane a pair, or a column that passes ---- */

template <class E> HETC_KERNEL hetc_rotary_kernel(het_rotary_args a, const int32_t *position, float sign) {
    const int64_t pairs = a.rotary / 2, row = hetc_warp_row(), begin = row * a.pitch + blockIdx.y * a.head_size;
    if (row >= a.rows) return;
    const E *x = hetc_as<E>(a.x) + begin;
    E *y = hetc_as<E>(a.y) + begin;
    for (int64_t at = hetc_lane(); at < a.head_size - pairs; at += HETC_WARP) {
        const float x1 = hetc_load<1>(x + at + pairs).v[0];
        if (at >= pairs) { /* columns [2 pairs, head_size) */
            hetc_save<1>(y + at + pairs, { { x1 } });
            continue;
        }
        const float c = a.cosine[position[row] * pairs + at], s = sign * a.sine[position[row] * pairs + at];
        const float x0 = hetc_load<1>(x + at).v[0];
        hetc_save<1>(y + at, { { fmaf(-x1, s, x0 * c) } });
        hetc_save<1>(y + at + pairs, { { fmaf(x0, s, x1 * c) } });
    }
}

static het_result hetc_rotary(void *self, het_queue *queue, const het_rotary_args *a, int32_t bf16, float sign) {
    const int64_t width = a->heads * a->head_size;
    het_rotary_args own = hetc_without_view(a);
    void (*const rotary)(het_rotary_args, const int32_t *, float) = bf16 ? hetc_rotary_kernel<uint16_t> :
                                                                   hetc_rotary_kernel<float>;
    HETC_TRY(hetc_shape(self, "rotary", a->rows >= 0 && width > 0 && a->rotary >= 0 && a->rotary <= a->head_size,
                        a->rows, width, __LINE__));
    if (own.pitch == 0) own.pitch = width;
    return HETC_LAUNCH(self, queue, rotary, hetc_warps(a->rows, a->heads), HETC_THREADS, 0, own,
                       a->view->position + a->view->row_begin, sign);
}

/* ---- activations ---- */

HETC_DEVICE float hetc_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* tanh GELU as x sigmoid(2u), 2u = x (c0 + c1 x^2): the sigmoid and *slope = d(2u)/dx. Beyond |x| =
   20 the sigmoid is 0 or 1; a NaN stays. */
HETC_DEVICE float hetc_gelu_gate(float x, float *slope) {
    const float c0 = 1.5957691216057308f, c1 = 0.071354816272600251f;
    const float z = x > 20.0f ? 20.0f : x < -20.0f ? -20.0f : x;
    *slope = fmaf(3.0f * c1, z * z, c0);
    return hetc_sigmoid(z * fmaf(c1, z * z, c0));
}
/* Phi(x) = (1 + erf(x / sqrt 2)) / 2 */
HETC_DEVICE float hetc_normal_cdf(float x) { return fmaf(0.5f, erff(x * 0.70710678118654752f), 0.5f); }

/* f(i, j) for the packs of V elements of y that are the thread's: i of y, j of a and b. A thread
   has one or, where a and b lie side by side, those of a warp's row. */
template <int V, class F> HETC_DEVICE void hetc_activation_each(const het_activation_args &args, F f) {
    if (args.pitch == 0) {
        const int64_t i = hetc_index() * V;
        if (i < args.count) f(i, i);
        return;
    }
    const int64_t row = hetc_warp_row();
    if (row * args.width >= args.count) return;
    for (int64_t j = hetc_lane() * V; j < args.width; j += HETC_WARP * V) f(row * args.width + j, row * args.pitch + j);
}

template <int KIND, int V, class E>
HETC_DEVICE void hetc_activation_forward_at(const het_activation_args &args, int64_t i, int64_t at) {
    const hetc_pack<float, V> a = hetc_load<V>(hetc_as<E>(args.a) + at),
                              b = KIND == HET_SWIGLU ? hetc_load<V>(hetc_as<E>(args.b) + at) : a;
    hetc_pack<float, V> y;
    for (int j = 0; j < V; j++) {
        float slope;
        if (KIND == HET_SWIGLU) y.v[j] = a.v[j] * hetc_sigmoid(a.v[j]) * b.v[j];
        else if (KIND == HET_GELU_ERF) y.v[j] = a.v[j] * hetc_normal_cdf(a.v[j]);
        else y.v[j] = a.v[j] * hetc_gelu_gate(a.v[j], &slope);
    }
    hetc_save(hetc_as<E>(args.y) + i, y);
}
template <int KIND, int V, class E> HETC_KERNEL hetc_activation_forward_kernel(het_activation_args args) {
    hetc_activation_each<V>(args, [&args](int64_t i, int64_t at) {
        hetc_activation_forward_at<KIND, V, E>(args, i, at);
    });
}

/* SwiGLU: da = dy b s (1 + a (1 - s)), db = dy a s; tanh GELU: dy s (1 + x (1 - s) d(2u)/dx); erf
   GELU: dy (Phi + x phi). */
template <int KIND, int V, class E>
HETC_DEVICE void hetc_activation_backward_at(const het_activation_args &args, int64_t i, int64_t at) {
    const hetc_pack<float, V> a = hetc_load<V>(hetc_as<E>(args.a) + at), dy = hetc_load<V>(hetc_as<E>(args.dy) + i),
                              b = KIND == HET_SWIGLU ? hetc_load<V>(hetc_as<E>(args.b) + at) : a;
    hetc_pack<float, V> da, db;
    for (int j = 0; j < V; j++) {
        const float x = a.v[j], d = dy.v[j];
        if (KIND == HET_SWIGLU) {
            const float s = hetc_sigmoid(x);
            da.v[j] = d * b.v[j] * (s * fmaf(x, 1.0f - s, 1.0f));
            db.v[j] = d * (x * s);
        } else if (KIND == HET_GELU_ERF) {
            da.v[j] = d * fmaf(x * 0.39894228040143268f, expf(-0.5f * (x * x)), hetc_normal_cdf(x));
        } else {
            float slope;
            const float s = hetc_gelu_gate(x, &slope);
            da.v[j] = d * (s * fmaf(x * (1.0f - s), slope, 1.0f));
        }
    }
    hetc_save(hetc_as<E>(args.da) + at, da);
    if (KIND == HET_SWIGLU) hetc_save(hetc_as<E>(args.db) + at, db);
}
template <int KIND, int V, class E> HETC_KERNEL hetc_activation_backward_kernel(het_activation_args args) {
    hetc_activation_each<V>(args, [&args](int64_t i, int64_t at) {
        hetc_activation_backward_at<KIND, V, E>(args, i, at);
    });
}

template <int KIND> static het_result hetc_activation(void *self, het_queue *queue, const het_activation_args *a,
                                                      int32_t bf16, int backward) {
    const int64_t row = a->pitch == 0 ? a->count : a->width;
    const int packs = (backward ? hetc_packs(row, a->a, a->b, a->dy, a->da, a->db) :
                      hetc_packs(row, a->a, a->b, a->y)) && a->pitch % 4 == 0;
    void (*const activation)(het_activation_args) = backward ?
        (bf16 ? hetc_activation_backward_kernel<KIND, 4, uint16_t> :
         packs ? hetc_activation_backward_kernel<KIND, 4, float> : hetc_activation_backward_kernel<KIND, 1, float>) :
        bf16 ? hetc_activation_forward_kernel<KIND, 4, uint16_t> :
        packs ? hetc_activation_forward_kernel<KIND, 4, float> : hetc_activation_forward_kernel<KIND, 1, float>;
    HETC_TRY(hetc_shape(self, "activation", (packs || !bf16) && (a->pitch == 0 || (row > 0 && a->count % row == 0)), 1,
                        a->count, __LINE__));
    return HETC_LAUNCH(self, queue, activation, a->pitch == 0 ? hetc_spread(a->count, packs) :
                       hetc_warps(a->count / row), HETC_THREADS, 0, *a);
}

static het_result hetc_activate(void *self, het_queue *queue, const het_activation_args *a, int32_t bf16,
                                int backward) {
    if (a->kind == HET_SWIGLU) return hetc_activation<HET_SWIGLU>(self, queue, a, bf16, backward);
    if (a->kind == HET_GELU_ERF) return hetc_activation<HET_GELU_ERF>(self, queue, a, bf16, backward);
    return hetc_activation<HET_GELU_TANH>(self, queue, a, bf16, backward);
}

/* ---- embedding ---- */

/* y[r] = table[token[r]] + positions[position[r]], a warp a row */
template <int V, class Y>
HETC_KERNEL hetc_embedding_kernel(het_embedding_args a, const int32_t *token, const int32_t *position) {
    const int64_t row = hetc_warp_row();
    if (row >= a.rows) return;
    const float *entry = a.table + token[row] * a.width;
    const float *place = a.positions != NULL ? a.positions + position[row] * a.width : NULL;
    for (int64_t j = hetc_lane() * V; j < a.width; j += HETC_WARP * V) {
        hetc_pack<float, V> y = hetc_get<V>(entry + j);
        for (int i = 0; i < V && place != NULL; i++) y.v[i] += place[j + i];
        hetc_save(hetc_as<Y>(a.y) + row * a.width + j, y);
    }
}

static het_result hetc_embedding_forward(void *self, het_queue *queue, const het_embedding_args *a, int32_t bf16) {
    const int packs = hetc_packs(a->width, a->table, a->positions, a->y);
    void (*const embedding)(het_embedding_args, const int32_t *, const int32_t *) =
        bf16 ? hetc_embedding_kernel<4, uint16_t> : hetc_embedding_kernel<1, float>;
    HETC_TRY(hetc_shape(self, "embedding_forward", a->rows >= 0 && a->width > 0 && (packs || !bf16), a->rows, a->width,
                        __LINE__));
    return HETC_LAUNCH(self, queue, embedding, hetc_warps(a->rows), HETC_THREADS, 0, hetc_without_view(a),
                       a->view->token + a->view->row_begin, a->view->position + a->view->row_begin);
}

struct hetc_scatter {
    het_gradient gradient;         /* of a table [entries][width] */
    const int64_t *granule_start;
    const uint64_t *order;         /* [rows] entry 2^32 + row of the slice, sorted */
    const float *dy;               /* [rows][width], of the kernel's type */
    int64_t rows, width, row_begin, granule_begin;
};

#ifndef HETC_SORTED
#define HETC_SORTED 2048 /* rows that a block sorts in shared memory; a power of two */
#endif
enum { HETC_SCATTERED = 8 }; /* rows whose loads are under way together */

/* What a thread keeps of V columns of an entry: rows come in their order, and each granule's sum is
   a term. */
template <int V> struct hetc_entry {
    int64_t at, column, granule, granule_end; /* at: of the entry's element in the gradient */
    hetc_pack<float, V> term;
    uint32_t top;
};

template <int V> HETC_DEVICE void hetc_entry_term(const hetc_scatter &s, hetc_entry<V> *e) {
    if (e->column >= s.width || e->granule_end == 0) return; /* no row yet */
    const uint32_t top = hetc_add_terms(s.gradient, e->at, e->term);
    e->top = top > e->top ? top : e->top;
}

template <int V>
HETC_DEVICE void hetc_entry_add(const hetc_scatter &s, hetc_entry<V> *e, int row, const hetc_pack<float, V> &dy) {
    if (row >= e->granule_end) {
        hetc_entry_term(s, e);
        while (row >= s.granule_start[e->granule + 1] - s.row_begin) e->granule++;
        e->granule_end = s.granule_start[e->granule + 1] - s.row_begin;
        e->term = {};
    }
    for (int i = 0; i < V; i++) e->term.v[i] += dy.v[i];
}

/* Block (place in the order, columns): the first place of an entry adds up all rows that have it,
   in their order, and gives each granule's sum to the gradient. One block owns an element, so no
   two add to it at the same time. */
template <int V, class Y> HETC_KERNEL hetc_scatter_kernel(hetc_scatter s) {
    const int64_t first = blockIdx.x, entry = (int64_t)(s.order[first] >> 32);
    const int64_t column = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    if (first > 0 && (int64_t)(s.order[first - 1] >> 32) == entry) return;
    hetc_entry<V> e = { entry * s.width + column, column, s.granule_begin, 0, {}, 0 };
    int count = HETC_WARP;
    for (int64_t begin = first; count == HETC_WARP; begin += HETC_WARP) {
        const uint64_t key = begin + hetc_lane() < s.rows ? s.order[begin + hetc_lane()] : ~UINT64_C(0);
        const uint32_t others = ~__ballot_sync(HETC_ALL, (int64_t)(key >> 32) == entry);
        count = others != 0 ? __ffs((int)others) - 1 : HETC_WARP;
        for (int next = 0; next < count; next += HETC_SCATTERED) {
            hetc_pack<float, V> dy[HETC_SCATTERED] = {};
            int row[HETC_SCATTERED];
            HETC_UNROLL for (int n = 0; n < HETC_SCATTERED; n++) {
                row[n] = __shfl_sync(HETC_ALL, (int)(uint32_t)key, next + n);
                if (next + n < count && column < s.width)
                    dy[n] = hetc_load<V>(hetc_as<Y>(s.dy) + row[n] * s.width + column);
            }
            HETC_UNROLL for (int n = 0; n < HETC_SCATTERED; n++)
                if (next + n < count) hetc_entry_add(s, &e, row[n], dy[n]);
        }
    }
    hetc_entry_term(s, &e);
    if (s.gradient.exact) hetc_raise(s.gradient.maximum, e.top);
}

/* key[0, rows) by token, [rows, 2 rows) by position: a block sorts (entry, row) of a run in shared
   memory, by comparing and exchanging. size: a power of two, the longest run fits. */
HETC_KERNEL hetc_order_kernel(uint64_t *to, const int32_t *token, const int32_t *position, int64_t rows, int size) {
    HETC_SHARED(uint64_t, key, HETC_SORTED);
    const int64_t first = (int64_t)blockIdx.x * HETC_SORTED;
    const int32_t *id = blockIdx.y == 0 ? token : position;
    for (int i = (int)threadIdx.x; i < size; i += HETC_THREADS)
        key[i] = first + i < rows ? (uint64_t)(uint32_t)id[first + i] << 32 | (uint32_t)(first + i) : ~UINT64_C(0);
    for (int run = 2; run <= size; run *= 2)
        for (int step = run / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int i = (int)threadIdx.x; i < size / 2; i += HETC_THREADS) {
                const int low = 2 * (i & ~(step - 1)) + (i & (step - 1)), high = low + step;
                const uint64_t a = key[low], b = key[high];
                if ((a > b) != ((low & run) == 0)) continue;
                key[low] = b;
                key[high] = a;
            }
        }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < size && first + i < rows; i += HETC_THREADS)
        to[blockIdx.y * rows + first + i] = key[i];
}

/* Keys of sorted runs to their place among all: so many are less, run by run. */
HETC_KERNEL hetc_merge_kernel(uint64_t *to, const uint64_t *from, int rows) {
    const int64_t all = (int64_t)blockIdx.y * rows, i = hetc_index();
    if (i >= rows) return;
    const uint64_t *const key = from + all;
    const uint64_t own = key[i];
    int place = 0;
    for (int run = 0; run < rows; run += HETC_SORTED) {
        int low = run;
        for (int high = rows - run < HETC_SORTED ? rows : run + HETC_SORTED; low < high; ) {
            const int middle = (low + high) / 2;
            if (key[middle] < own) low = middle + 1;
            else high = middle;
        }
        place += low - run;
    }
    to[all + place] = own;
}

static het_result hetc_scatter_run(void *self, het_queue *queue, const het_embedding_args *a, int32_t bf16,
                                   const het_gradient *gradient, const uint64_t *order) {
    const int packs = hetc_packs(a->width, a->dy);
    const int64_t lanes = packs ? a->width / 4 : a->width, warps = hetc_ceil_div(lanes, HETC_WARP);
    const unsigned threads = HETC_WARP * (unsigned)(warps < HETC_WARPS ? warps : (int64_t)HETC_WARPS);
    const het_view *view = a->view;
    if (!hetc_wanted(gradient)) return HET_OK;
    const hetc_scatter s = { *gradient, view->granule_start, order, a->dy, a->rows, a->width, view->row_begin,
                             view->granule_begin };
    void (*const scatter)(hetc_scatter) = bf16 ? hetc_scatter_kernel<4, uint16_t> :
        packs ? hetc_scatter_kernel<4, float> : hetc_scatter_kernel<1, float>;
    return HETC_LAUNCH(self, queue, scatter, hetc_grid(a->rows, hetc_ceil_div(lanes, threads)), threads, 0, s);
}

static het_result hetc_embedding_backward_weight(void *self, het_queue *queue, const het_embedding_args *a,
                                                 int32_t bf16) {
    uint64_t *const runs = static_cast<uint64_t *>(a->workspace), *const order = runs + 2 * a->rows;
    const int64_t kinds = a->dpositions != NULL ? 2 : 1;
    const het_view *view = a->view;
    int size = 1;
    while (size < a->rows && size < HETC_SORTED) size *= 2;
    HETC_TRY(hetc_shape(self, "embedding_backward_weight", a->rows >= 0 && a->rows <= INT32_MAX && a->width > 0 &&
                        (!bf16 || hetc_packs(a->width, a->dy)), a->rows, a->width, __LINE__));
    HETC_TRY(HETC_LAUNCH(self, queue, hetc_order_kernel, hetc_grid(hetc_ceil_div(a->rows, HETC_SORTED), kinds),
                         HETC_THREADS, 0, runs, view->token + view->row_begin, view->position + view->row_begin,
                         a->rows, size));
    HETC_TRY(HETC_LAUNCH(self, queue, hetc_merge_kernel, hetc_grid(hetc_ceil_div(a->rows, HETC_THREADS), kinds),
                         HETC_THREADS, 0, order, runs, (int)a->rows));
    HETC_TRY(hetc_scatter_run(self, queue, a, bf16, a->dtable, order));
    return hetc_scatter_run(self, queue, a, bf16, a->dpositions, order + a->rows);
}

/* ---- dropout: the CPU's mask, a warp a row. Philox(seed; step, sample) gives the row's key; word
   c mod 4 of Philox(key; position 2^32 + c / 4, site) decides column c ---- */

template <int V, class X, class Y, class A = float>
HETC_KERNEL hetc_dropout_kernel(het_dropout_args a, const int32_t *position, const int32_t *sequence_of,
                                const int64_t *sample_id) {
    const int64_t row = hetc_warp_row();
    if (row >= a.rows) return;
    const bool dropping = a.probability > 0.0f;
    const float scale = dropping ? 1.0f / (1.0f - a.probability) : 1.0f;
    uint64_t key = 0;
    if (dropping) {
        const hetc_words words = hetc_philox(a.scalars->seed, a.scalars->step, (uint64_t)sample_id[sequence_of[row]]);
        key = words.w[0] | (uint64_t)words.w[1] << 32;
    }
    for (int64_t group = hetc_lane(); 4 * group < a.width; group += HETC_WARP) {
        hetc_words words = { { 0, 0, 0, 0 } };
        if (dropping) words = hetc_philox(key, ((uint64_t)position[row] << 32) + (uint64_t)group, (uint64_t)a.site);
        for (int first = 0; first < 4 && 4 * group + first < a.width; first += V) {
            const int64_t at = row * a.width + 4 * group + first;
            const hetc_pack<float, V> x = hetc_load<V>(hetc_as<X>(a.x) + at);
            hetc_pack<float, V> y = x;
            if (a.a != NULL) y = hetc_load<V>(hetc_as<A>(a.a) + at);
            for (int i = 0; i < V; i++) {
                const float kept = dropping && (float)(words.w[first + i] >> 8) * 5.9604644775390625e-8f <
                    a.probability ? 0.0f : scale;
                y.v[i] = a.a != NULL ? fmaf(x.v[i], kept, y.v[i]) : x.v[i] * kept;
            }
            hetc_save(hetc_as<Y>(a.y) + at, y);
        }
    }
}

static het_result hetc_dropout(void *self, het_queue *queue, const het_dropout_args *a, int32_t bf16, int backward) {
    het_dropout_args own = hetc_without_view(a);
    if (backward) own.a = NULL;
    const int packs = hetc_packs(a->width, own.a, a->x, a->y);
    void (*const dropout)(het_dropout_args, const int32_t *, const int32_t *, const int64_t *) =
        bf16 & HET_BF16_ADDED ? hetc_dropout_kernel<4, uint16_t, uint16_t, uint16_t> :
        HETC_TYPED(hetc_dropout_kernel, bf16 & HET_BF16_X, bf16 & HET_BF16_Y, packs);
    HETC_TRY(hetc_shape(self, "dropout", a->rows >= 0 && a->width > 0 && (packs || !bf16), a->rows, a->width,
                        __LINE__));
    if (a->probability <= 0.0f && own.a == NULL && a->x == a->y) return HET_OK;
    return HETC_LAUNCH(self, queue, dropout, hetc_warps(a->rows), HETC_THREADS, 0, own,
                       a->view->position + a->view->row_begin, a->view->sequence_of + a->view->row_begin,
                       a->view->sample_id);
}

/* -------------------------------------------------------------------------------------------------
   >>cu_loss  Cross-entropy, order-free sums, exact accumulation, verdict, AdamW, Muon.
   ---------------------------------------------------------------------------------------------- */

/* ---- cross-entropy, a block a row: the row is read once for maximum and sum, and once more for
   the gradient in its place. Rows so long that the second read would come from device memory are
   copied to shared memory first, where they fit ---- */

enum { HETC_LONG_ROW = 12288, HETC_LONG_THREADS = 1024 };
/* Blocks of a long row that a multiprocessor has threads for: 1,536 on sm_86 to 89 and sm_120. */
#if defined(__CUDA_ARCH__) && ((__CUDA_ARCH__ > 800 && __CUDA_ARCH__ < 900) || __CUDA_ARCH__ >= 1200)
enum { HETC_LONG_BLOCKS = 1 };
#else
enum { HETC_LONG_BLOCKS = 2 };
#endif

struct hetc_softmax { float maximum, sum; }; /* sum of exp(x - maximum) */

/* exp(x - m); of bf16 (T), whose gradient is rounded to 8 bits, by the fast power of 2: two bf16
   have an exact difference, or one so large that the power is 0. */
template <class T> HETC_DEVICE float hetc_softmax_exp(float x, float m) {
    return sizeof(T) == 4 ? expf(x - m) : hetc_exp2((x - m) * HETC_LOG2_E);
}

/* Further elements: a new maximum scales the sum so far. While there is nothing but -infinity the
   sum is 0, and NaN stays NaN. */
template <class T, int V> HETC_DEVICE void hetc_softmax_add(hetc_softmax *s, const hetc_pack<float, V> &x) {
    float m = s->maximum;
    for (const float one : x.v) m = fmaxf(m, one);
    const float base = m == -INFINITY ? 0.0f : m;
    s->sum *= hetc_softmax_exp<T>(s->maximum, base);
    for (const float one : x.v) s->sum += hetc_softmax_exp<T>(one, base);
    s->maximum = m;
}

/* The warp's, in all lanes. */
HETC_DEVICE hetc_softmax hetc_softmax_warp(hetc_softmax s) {
    float m = s.maximum;
    for (int step = HETC_WARP / 2; step > 0; step /= 2) m = fmaxf(m, __shfl_xor_sync(HETC_ALL, m, step));
    return { m, hetc_warp_sum(s.sum * expf(s.maximum - (m == -INFINITY ? 0.0f : m))) };
}

/* The block's part of a row of `count` elements at any address: f(index, x) for them as floats, in
   packs of 16 bytes behind the first aligned one. */
template <class T, class F> HETC_DEVICE void hetc_row_each(const T *row, int count, F f) {
    enum { V = 16 / sizeof(T) };
    const int unaligned = (int)((0 - reinterpret_cast<uintptr_t>(row) / sizeof(T)) & (V - 1)),
              head = unaligned < count ? unaligned : count;
    const int packs = (count - head) / V, tail = head + V * packs, thread = (int)threadIdx.x;
    if (thread < head) f(thread, hetc_load<1>(row + thread));
    for (int i = thread; i < packs; i += (int)blockDim.x) f(head + V * i, hetc_load<V>(row + head + V * i));
    if (tail + thread < count) f(tail + thread, hetc_load<1>(row + tail + thread));
}

template <class T> HETC_DEVICE void hetc_row_zero(T *row, int count) {
    hetc_row_each(row, count, [row](int index, const auto &x) {
        auto zeros = x;
        for (float &zero : zeros.v) zero = 0.0f;
        hetc_save(row + index, zeros);
    });
}

/* T: of the logits and of their gradient, (p - onehot) scale with p = exp(x - m) / l. Of bf16 all
   but the vocabulary is 0, and so is a row without a target (-1). KEPT: shared memory has room for
   T[vocab + 8], a copy that lies in its 16 bytes as the row does: packs are whole in both. */
template <class T, bool KEPT>
static __global__ void __launch_bounds__(KEPT ? HETC_LONG_THREADS : HETC_THREADS, KEPT ? HETC_LONG_BLOCKS : 6)
hetc_cross_entropy_kernel(het_cross_entropy_args a) {
    enum { WARPS = KEPT ? HETC_LONG_THREADS / HETC_WARP : HETC_WARPS };
    HETC_SHARED_BYTES(bytes);
    HETC_SHARED(hetc_softmax, part, WARPS);
    const int target = a.target[blockIdx.x], vocab = (int)a.vocab, end = sizeof(T) == 2 ? (int)a.pitch : vocab;
    T *const row = hetc_as<T>(a.logits) + blockIdx.x * a.pitch;
    T *const from = KEPT ? reinterpret_cast<T *>(bytes + reinterpret_cast<uintptr_t>(row) % 16) : row;
    hetc_softmax s = { -INFINITY, 0.0f };
    if (target < 0) {
        if (a.gradient) hetc_row_zero(row, end);
        if (threadIdx.x == 0 && a.row_loss != NULL) a.row_loss[blockIdx.x] = 0.0f;
        return;
    }
    const float logit = hetc_load<1>(row + target).v[0];
    if (KEPT) {
        hetc_row_each(row, vocab, [row, from](int index, const auto &x) {
            if constexpr (sizeof x == sizeof(float)) hetc_save(from + index, x);
            else hetc_copy_async(from + index, row + index, true);
        });
        hetc_copy_commit();
        hetc_copy_wait();
    }
    hetc_row_each(from, vocab, [&s](int, const auto &x) { hetc_softmax_add<T>(&s, x); });
    s = hetc_softmax_warp(s);
    if (hetc_lane() == 0) part[hetc_warp()] = s;
    __syncthreads(); /* also: everybody has the target's logit before it is overwritten */
    s = hetc_softmax_warp(hetc_lane() < WARPS ? part[hetc_lane()] : hetc_softmax{ -INFINITY, 0.0f });
    if (threadIdx.x == 0) {
        const double loss = log((double)s.sum) + (double)s.maximum - (double)logit;
        hetc_sum_add(a.loss->limb, (double)a.weight[blockIdx.x] * loss);
        if (a.row_loss != NULL) a.row_loss[blockIdx.x] = (float)loss;
    }
    if (!a.gradient) return;
    const float maximum = s.maximum, inverse = 1.0f / s.sum,
                scale = a.weight[blockIdx.x] * a.scalars->inverse_weight;
    const float factor = inverse * scale;
    const hetc_pack<float, 1> one = { { (hetc_softmax_exp<T>(logit, maximum) * inverse - 1.0f) * scale } };
    hetc_row_each(from, vocab, [=](int index, const auto &x) {
        auto own = x;
        for (float &p : own.v) p = hetc_softmax_exp<T>(p, maximum) * factor;
        hetc_save(row + index, own);
        if ((unsigned)(target - index) < sizeof x / sizeof(float)) hetc_save(row + target, one);
    });
    hetc_row_zero(row + vocab, end - vocab);
}

/* Bytes of shared memory for a row; 0: it is read twice. */
static size_t hetc_kept_row(void *self, const het_cross_entropy_args *a, int32_t bf16) {
    const size_t bytes = ((size_t)a->vocab + 8) * sizeof(uint16_t);
    return bf16 && a->gradient && a->vocab >= HETC_LONG_ROW && bytes + 1024 <= hetc_shared_limit(self) ? bytes : 0;
}

static het_result hetc_cross_entropy(void *self, het_queue *queue, const het_cross_entropy_args *a, int32_t bf16) {
    het_cross_entropy_args own = *a;
    const size_t kept = hetc_kept_row(self, a, bf16);
    const unsigned threads = kept > 0 ? (unsigned)HETC_LONG_THREADS : (unsigned)HETC_THREADS;
    void (*const cross_entropy)(het_cross_entropy_args) = kept > 0 ? hetc_cross_entropy_kernel<uint16_t, true> :
        bf16 ? hetc_cross_entropy_kernel<uint16_t, false> : hetc_cross_entropy_kernel<float, false>;
    if (own.pitch == 0) own.pitch = a->vocab;
    HETC_TRY(hetc_shape(self, "cross_entropy", a->rows >= 0 && a->vocab > 0 && own.pitch >= a->vocab &&
                        own.pitch <= INT32_MAX && (!bf16 || hetc_packs(own.pitch, a->logits)), a->rows, a->vocab,
                        __LINE__));
    return HETC_LAUNCH(self, queue, cross_entropy, hetc_grid(a->rows, 1), threads, kept, own);
}

/* ---- elementwise: sums, gradients, conversion ---- */

/* Up to HETC_ARRAYS arrays in one launch: to += from, which is of the same type; bf16 = floats,
   rounded. */
enum { HETC_ARRAYS = 6 };
struct hetc_arrays {
    int count;
    void *to[HETC_ARRAYS];
    const void *from[HETC_ARRAYS];
    int64_t elements[HETC_ARRAYS], block[HETC_ARRAYS]; /* block: its first */
};

template <int V, class T, class F> HETC_KERNEL hetc_arrays_kernel(hetc_arrays arrays) {
    int n = 0;
    while (n + 1 < arrays.count && blockIdx.x >= arrays.block[n + 1]) n++;
    const int64_t i = ((blockIdx.x - arrays.block[n]) * HETC_THREADS + threadIdx.x) * V;
    if (i >= arrays.elements[n]) return;
    T *to = static_cast<T *>(arrays.to[n]) + i;
    hetc_pack<float, V> x = hetc_load<V>(static_cast<const F *>(arrays.from[n]) + i);
    if constexpr (sizeof(T) == sizeof(F)) {
        const hetc_pack<float, V> y = hetc_load<V>(to);
        for (int j = 0; j < V; j++) x.v[j] += y.v[j];
    }
    hetc_save(to, x);
}

static void hetc_list(hetc_arrays *arrays, void *to, const void *from, int64_t elements) {
    arrays->to[arrays->count] = to;
    arrays->from[arrays->count] = from;
    arrays->elements[arrays->count++] = elements;
}

template <class T, class F> static het_result hetc_run_arrays(void *self, het_queue *queue, hetc_arrays *arrays) {
    int64_t blocks = 0;
    int packs = 1;
    for (int n = 0; n < arrays->count; n++)
        packs &= hetc_packs(arrays->elements[n], arrays->to[n], arrays->from[n]);
    for (int n = 0; n < arrays->count; n++) {
        arrays->block[n] = blocks;
        blocks += hetc_ceil_div(arrays->elements[n], packs ? 4 * HETC_THREADS : HETC_THREADS);
    }
    void (*const add_or_round)(hetc_arrays) = packs ? hetc_arrays_kernel<4, T, F> : hetc_arrays_kernel<1, T, F>;
    return HETC_LAUNCH(self, queue, add_or_round, hetc_grid(blocks, 1), HETC_THREADS, 0, *arrays);
}

template <class T, class F>
static het_result hetc_run_array(void *self, het_queue *queue, void *to, const void *from, int64_t elements) {
    hetc_arrays one;
    one.count = 0;
    hetc_list(&one, to, from, elements);
    return hetc_run_arrays<T, F>(self, queue, &one);
}

static het_result hetc_add(void *self, het_queue *queue, const het_elements_args *a, int32_t bf16) {
    if (bf16) return hetc_run_array<uint16_t, uint16_t>(self, queue, a->y, a->x, a->count);
    return hetc_run_array<float, float>(self, queue, a->y, a->x, a->count);
}

/* to[i] = bf16(from[i]), the 16 bits. */
static het_result hetc_to_bf16(void *self, het_queue *queue, void *to, const float *from, int64_t count) {
    return hetc_run_array<uint16_t, float>(self, queue, to, from, count);
}

/* A warp a block of int8, of which a row may have a part. */
HETC_KERNEL hetc_expand_kernel(het_expand_args a) {
    const int64_t block = hetc_warp_row(), row = block / a.blocks, from = a.first + row * a.step;
    if (row >= a.rows) return;
    const int64_t base = (from / HETRAIN_INT8_BLOCK + block % a.blocks) * HETRAIN_INT8_BLOCK;
    for (int i = hetc_lane(); i < HETRAIN_INT8_BLOCK; i += HETC_WARP)
        if (base + i >= from && base + i < from + a.width)
            a.y[row * a.width + base + i - from] = a.from[block].scale * (float)a.from[block].q[i];
}

static het_result hetc_expand(void *self, het_queue *queue, const het_expand_args *a) {
    return HETC_LAUNCH(self, queue, hetc_expand_kernel, hetc_warps(a->rows * a->blocks), HETC_THREADS, 0, *a);
}

/* gradient[offset ...] += term, one granule's; a thread 4 elements that lie a block apart. */
HETC_KERNEL hetc_accumulate_kernel(het_gradient gradient, int64_t offset, int64_t count, const float *term) {
    const int64_t begin = (int64_t)blockIdx.x * 4 * HETC_THREADS + threadIdx.x;
    uint32_t top = 0;
    for (int i = 0; i < 4; i++) {
        const int64_t at = begin + i * HETC_THREADS;
        const uint32_t bits = at < count ? hetc_add_terms(gradient, offset + at, hetc_load<1>(term + at)) : 0;
        if (bits > top) top = bits;
    }
    if (gradient.exact) hetc_raise(gradient.maximum, top);
}

static het_result hetc_accumulate(void *self, het_queue *queue, const het_accumulate_args *a) {
    if (!hetc_wanted(a->gradient)) return HET_OK;
    return HETC_LAUNCH(self, queue, hetc_accumulate_kernel, hetc_spread(a->count, 1), HETC_THREADS, 0, *a->gradient,
                       a->offset, a->count, a->term);
}

/* ---- sum of squares: a warp takes blocks of 1,024 elements counted from the start, each one term
   of the sum. Terms meet in shared limbs first ---- */

enum { HETC_SQUARES = 1024, HETC_LIMBS = 20 };
#define HETC_SQUARE_BLOCKS INT64_C(1024) /* of a launch */

/* The gradients of a list of ops, and what belongs to each; block: its first, of the kernel. */
enum { HETC_LIST = 16 };
template <class Args> struct hetc_op_list {
    int count;
    Args args[HETC_LIST];
    het_gradient gradient[HETC_LIST];
    int64_t block[HETC_LIST];
};

/* Adds what has a gradient, in blocks of so many elements; returns the blocks of all. */
template <class Args> static int64_t hetc_list_ops(hetc_op_list<Args> *list, const Args *args, int64_t elements) {
    int64_t blocks = 0;
    list->count = 0;
    for (; args != NULL && list->count < HETC_LIST; args = args->next) {
        if (args->gradient->sum == NULL) continue;
        list->args[list->count] = *args;
        list->gradient[list->count] = *args->gradient;
        list->block[list->count++] = blocks;
        blocks += hetc_ceil_div(args->count, elements);
    }
    return blocks;
}

/* Which of them has a block. */
template <class Args> HETC_DEVICE int hetc_which(const hetc_op_list<Args> &list, int64_t block) {
    int n = 0;
    while (n + 1 < list.count && block >= list.block[n + 1]) n++;
    return n;
}

/* A lane's squares of the `left` first of a block's elements: packs of 16 bytes, 8 under way. */
template <class T> HETC_DEVICE double hetc_squares(const T *sum, int64_t left) {
    enum { V = 16 / sizeof(T), PACKS = 8 };
    const bool whole = left >= HETC_SQUARES && reinterpret_cast<uintptr_t>(sum) % 16 == 0;
    double squares = 0.0;
    for (int first = hetc_lane() * V; first < HETC_SQUARES; first += PACKS * HETC_WARP * V) {
        hetc_pack<T, V> g[PACKS];
        HETC_UNROLL for (int n = 0; n < PACKS; n++) {
            const int at = first + n * HETC_WARP * V;
            if (whole) g[n] = hetc_get<V>(sum + at);
            else HETC_UNROLL for (int i = 0; i < V; i++) g[n].v[i] = at + i < left ? sum[at + i] : (T)0;
        }
        HETC_UNROLL for (int n = 0; n < PACKS; n++)
            HETC_UNROLL for (int i = 0; i < V; i++) {
                const double one = (double)(float)g[n].v[i];
                squares += one * one;
            }
    }
    return squares;
}

HETC_KERNEL hetc_sum_squares_kernel(hetc_op_list<het_sum_squares_args> list, int64_t blocks) {
    HETC_SHARED(int64_t, limb, HETC_LIMBS);
    if (threadIdx.x < HETC_LIMBS) limb[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t block = hetc_warp_row(); block < blocks; block += (int64_t)gridDim.x * HETC_WARPS) {
        const int n = hetc_which(list, block);
        const int64_t at = (block - list.block[n]) * HETC_SQUARES, left = list.args[n].count - at;
        const void *sum = list.gradient[n].sum;
        double squares = list.gradient[n].exact ? hetc_squares(static_cast<const double *>(sum) + at, left) :
                         hetc_squares(static_cast<const float *>(sum) + at, left);
        squares = hetc_warp_sum(squares);
        if (hetc_lane() == 0) hetc_sum_add(limb, squares);
    }
    __syncthreads();
    if (threadIdx.x < HETC_LIMBS) hetc_limb_add(&list.args[0].sum->limb[threadIdx.x], limb[threadIdx.x]);
}

static het_result hetc_sum_squares(void *self, het_queue *queue, const het_sum_squares_args *a) {
    hetc_op_list<het_sum_squares_args> list;
    const int64_t blocks = hetc_list_ops(&list, a, HETC_SQUARES), grid = hetc_ceil_div(blocks, HETC_WARPS);
    return HETC_LAUNCH(self, queue, hetc_sum_squares_kernel,
                       hetc_grid(grid < HETC_SQUARE_BLOCKS ? grid : HETC_SQUARE_BLOCKS, 1), HETC_THREADS, 0, list,
                       blocks);
}

/* ---- verdict, one block ---- */

/* digit[0 .. 19) and the topmost: |sum| in 32-bit digits; returns 1 where the sum is negative. */
HETC_DEVICE int hetc_sum_digits(const het_sum *sum, uint64_t *digit) {
    int negative = 0;
    for (int sign = 1;; sign = -1) {
        int64_t carry = 0;
        for (int i = 0; i < 19; i++) {
            const int64_t value = sign * sum->limb[i] + carry;
            digit[i] = (uint64_t)value & 0xffffffffu;
            carry = (value - (int64_t)digit[i]) / (INT64_C(1) << 32);
        }
        digit[19] = (uint64_t)carry;
        if (carry >= 0) return negative;
        negative = 1;
    }
}

/* The exact sum rounded once, to nearest even; NaN where terms were not finite. digit: [20]. */
HETC_DEVICE double hetc_sum_value(const het_sum *sum, uint64_t *digit) {
    int high = 19, shift = 0;
    if (sum->limb[19] != 0) return (double)NAN;
    const int negative = hetc_sum_digits(sum, digit);
    while (high > 0 && digit[high] == 0) high--;
    uint64_t top = digit[high] << 32 | (high > 0 ? digit[high - 1] : 0), rest = high > 1 ? digit[high - 2] : 0;
    if (top == 0) return 0.0;
    while (top >> 63 == 0) { top <<= 1; shift++; }
    if (shift > 0) top |= rest >> (32 - shift);
    rest = rest << shift & 0xffffffffu;
    for (int i = 0; i < high - 2; i++) rest |= digit[i];
    /* 64 bits, the last one says whether something is below: the conversion rounds as for the
       whole */
    top |= rest != 0;
    const double value = ldexp((double)top, 32 * (high - 1) - 320 - shift);
    return negative ? -value : value;
}

/* Some term is not smaller than 2^(exponent + 6), or the exponent is not known yet. A parameter
   without terms says nothing. */
HETC_DEVICE bool hetc_outgrown(uint32_t maximum, int32_t exponent) {
    if (maximum == 0) return false;
    return exponent == HETRAIN_NO_EXPONENT || (double)__uint_as_float(maximum) >= ldexp(1.0, exponent + 6);
}

HETC_KERNEL hetc_verdict_kernel(het_verdict_args a) {
    HETC_SHARED(uint64_t, digit, HETC_LIMBS);
    int infinite = 0, repeat = 0;
    for (int64_t p = threadIdx.x; p < a.parameters; p += blockDim.x) {
        if (a.maximum[p] >= 0x7f800000u) infinite = 1;
        if (a.exact && hetc_outgrown(a.maximum[p], a.exponent[p])) repeat = 1;
    }
    infinite = __syncthreads_or(infinite);
    repeat = __syncthreads_or(repeat);
    if (threadIdx.x != 0) return;
    het_step_scalars *s = a.scalars;
    const double loss = hetc_sum_value(a.loss, digit), norm = sqrt(hetc_sum_value(a.squares, digit));
    s->gradient_norm = norm;
    s->clip_scale = 1.0f;
    s->verdict = HET_VERDICT_ACCEPT;
    if (infinite || !(loss - loss == 0.0)) s->verdict = HET_VERDICT_NOT_FINITE;
    else if (repeat) s->verdict = HET_VERDICT_REPEAT;
    else if (!(norm - norm == 0.0)) s->verdict = HET_VERDICT_NOT_FINITE;
    else if (s->spike_norm > 0.0 && (loss > s->spike_loss || norm > s->spike_norm)) s->verdict = HET_VERDICT_SPIKE;
    else if (s->maximum_norm > 0.0 && norm > s->maximum_norm) s->clip_scale = (float)(s->maximum_norm / norm);
}

static het_result hetc_verdict(void *self, het_queue *queue, const het_verdict_args *a) {
    return HETC_LAUNCH(self, queue, hetc_verdict_kernel, hetc_grid(1, 1), HETC_THREADS, 0, *a);
}

/* ---- AdamW, one pass: the CPU's operations in its order: equal sums give equal weights ---- */

template <int V> HETC_KERNEL hetc_adamw_kernel(hetc_op_list<het_adamw_args> list) {
    const int n = hetc_which(list, blockIdx.x);
    const het_adamw_args &a = list.args[n];
    const het_gradient &gradient = list.gradient[n];
    const int64_t i = ((blockIdx.x - list.block[n]) * HETC_THREADS + threadIdx.x) * V;
    if (i >= a.count || a.scalars->verdict != HET_VERDICT_ACCEPT) return;
    const float clip = a.scalars->clip_scale, rate = a.scalars->learning_rate, shrink = rate * a.decay;
    const float c1 = a.scalars->bias_correction1, c2 = a.scalars->bias_correction2, rest1 = 1.0f - a.beta1,
                rest2 = 1.0f - a.beta2;
    hetc_pack<float, V> g, w = hetc_get<V>(a.w + i), m = hetc_get<V>(a.m + i), v = hetc_get<V>(a.v + i);
    if (gradient.exact) {
        const hetc_pack<double, V> sum = hetc_get<V>(static_cast<const double *>(gradient.sum) + i);
        for (int j = 0; j < V; j++) g.v[j] = (float)sum.v[j] * clip;
    } else {
        g = hetc_get<V>(static_cast<const float *>(gradient.sum) + i);
        for (int j = 0; j < V; j++) g.v[j] *= clip;
    }
    for (int j = 0; j < V; j++) {
        m.v[j] = fmaf(a.beta1, m.v[j], rest1 * g.v[j]);
        v.v[j] = fmaf(a.beta2, v.v[j], rest2 * (g.v[j] * g.v[j]));
        w.v[j] = fmaf(-shrink, w.v[j], w.v[j]);
        w.v[j] = fmaf(-rate, m.v[j] / c1 / (sqrtf(v.v[j] / c2) + a.epsilon), w.v[j]);
    }
    hetc_put(a.w + i, w);
    hetc_put(a.m + i, m);
    hetc_put(a.v + i, v);
    if (a.w_bf16 != NULL) hetc_save(a.w_bf16 + i, w);
}

static het_result hetc_adamw(void *self, het_queue *queue, const het_adamw_args *a) {
    hetc_op_list<het_adamw_args> list;
    int packs = 1;
    for (const het_adamw_args *one = a; one != NULL; one = one->next)
        packs &= hetc_packs(one->count, one->w, one->m, one->v) &&
                 (reinterpret_cast<uintptr_t>(one->gradient->sum) & 31) == 0 &&
                 (reinterpret_cast<uintptr_t>(one->w_bf16) & 7) == 0;
    void (*const adamw)(hetc_op_list<het_adamw_args>) = packs ? hetc_adamw_kernel<4> : hetc_adamw_kernel<1>;
    const int64_t blocks = hetc_list_ops(&list, a, packs ? 4 * HETC_THREADS : HETC_THREADS);
    return HETC_LAUNCH(self, queue, adamw, hetc_grid(blocks, 1), HETC_THREADS, 0, list);
}

/* Feedback around an update, as the CPU has it. */
template <int V> HETC_KERNEL hetc_feedback_kernel(het_feedback_args a) {
    const int64_t i = hetc_index() * V;
    if (i >= a.count || a.scalars->verdict != HET_VERDICT_ACCEPT) return;
    const int changes = !a.begins && a.last != NULL;
    hetc_pack<float, V> w = hetc_get<V>(a.w + i), e = hetc_get<V>(a.e + i);
    hetc_pack<float, V> last = changes ? hetc_get<V>(a.last + i) : e;
    for (int j = 0; j < V; j++) {
        const float plain = a.begins ? w.v[j] + e.v[j] : w.v[j], u = e.v[j] - plain;
        w.v[j] = a.begins ? plain : fmaf(-a.factor, u, plain);
        if (changes) w.v[j] = fmaf(-a.change, u - last.v[j], w.v[j]);
        last.v[j] = u;
        e.v[j] = a.begins ? plain : plain - w.v[j];
    }
    if (changes) hetc_put(a.last + i, last);
    hetc_put(a.w + i, w);
    hetc_put(a.e + i, e);
}

static het_result hetc_feedback(void *self, het_queue *queue, const het_feedback_args *a) {
    const int packs = hetc_packs(a->count, a->w, a->e, a->last);
    void (*const feedback)(het_feedback_args) = packs ? hetc_feedback_kernel<4> : hetc_feedback_kernel<1>;
    return HETC_LAUNCH(self, queue, feedback, hetc_spread(a->count, packs), HETC_THREADS, 0, *a);
}

/* ---- Muon around its products: the CPU's operations. A block takes a tile of the matrix; a warp's
   threads have neighbours in memory, of x too, where that is the transpose ---- */

/* y *= factor, or factor / (the root of `squares` + 1e-7). */
template <int V> HETC_KERNEL hetc_scale_kernel(het_elements_args a) {
    HETC_SHARED(uint64_t, digit, HETC_LIMBS);
    HETC_SHARED(float, factor, 1);
    const int64_t i = hetc_index() * V;
    if (threadIdx.x == 0)
        *factor = a.squares == NULL ? a.factor :
            (float)((double)a.factor / (sqrt(hetc_sum_value(a.squares, digit)) + 1e-7));
    __syncthreads();
    if (i >= a.count) return;
    hetc_pack<float, V> scaled = hetc_get<V>(a.y + i);
    for (int j = 0; j < V; j++) scaled.v[j] *= *factor;
    hetc_put(a.y + i, scaled);
}

static het_result hetc_scale(void *self, het_queue *queue, const het_elements_args *a) {
    const int packs = hetc_packs(a->count, a->y);
    void (*const scale)(het_elements_args) = packs ? hetc_scale_kernel<4> : hetc_scale_kernel<1>;
    return HETC_LAUNCH(self, queue, scale, hetc_spread(a->count, packs), HETC_THREADS, 0, *a);
}

enum { HETC_MUON_PITCH = HETC_WARP + 1 }; /* neighbours in a column lie in banks of their own */

/* f(row, column, place in the tile) for this thread's elements; a warp has a row of the tile, or
   (turned) a column. */
template <class F> HETC_DEVICE void hetc_muon_tile(const het_muon_args &a, bool turned, F f) {
    const int64_t across = (a.columns + HETC_WARP - 1) / HETC_WARP;
    const int64_t row = blockIdx.x / across * HETC_WARP, column = blockIdx.x % across * HETC_WARP;
    for (int i = hetc_warp(); i < HETC_WARP; i += HETC_WARPS) {
        const int r = turned ? hetc_lane() : i, c = turned ? i : hetc_lane();
        if (row + r < a.rows && column + c < a.columns) f(row + r, column + c, r * HETC_MUON_PITCH + c);
    }
}

template <bool UPDATES> HETC_KERNEL hetc_muon_kernel(het_muon_args a, het_gradient gradient) {
    HETC_SHARED(float, tile, HETC_WARP * HETC_MUON_PITCH);
    const het_step_scalars *s = a.scalars;
    const bool turned = a.rows > a.columns;
    const float lr = s->learning_rate * a.rate, step = lr * a.size, shrink = lr * a.decay, rest = 1.0f - a.beta;
    auto x = [&](int64_t r, int64_t c) -> float & { return a.x[turned ? c * a.rows + r : r * a.columns + c]; };
    if (s->verdict != HET_VERDICT_ACCEPT) return;
    if (UPDATES) hetc_muon_tile(a, turned, [&](int64_t r, int64_t c, int at) { tile[at] = x(r, c); });
    __syncthreads();
    hetc_muon_tile(a, false, [&](int64_t r, int64_t c, int at) {
        const int64_t i = r * a.columns + c;
        if (UPDATES) a.w[i] = fmaf(-step, tile[at], fmaf(-shrink, a.w[i], a.w[i]));
        if (UPDATES) return;
        const float g = s->clip_scale * (gradient.exact ? (float)static_cast<const double *>(gradient.sum)[i] :
                                         static_cast<const float *>(gradient.sum)[i]);
        a.m[i] = fmaf(a.beta, a.m[i], rest * g);
        tile[at] = fmaf(a.beta, a.m[i], rest * g);
    });
    __syncthreads();
    if (!UPDATES) hetc_muon_tile(a, turned, [&](int64_t r, int64_t c, int at) { x(r, c) = tile[at]; });
}

static het_result hetc_muon(void *self, het_queue *queue, const het_muon_args *a, int updates) {
    const int64_t tiles = hetc_ceil_div(a->rows, HETC_WARP) * hetc_ceil_div(a->columns, HETC_WARP);
    void (*const muon)(het_muon_args, het_gradient) = updates ? hetc_muon_kernel<true> : hetc_muon_kernel<false>;
    if (!hetc_wanted(a->gradient)) return HET_OK;
    return HETC_LAUNCH(self, queue, muon, hetc_grid(tiles, 1), HETC_THREADS, 0, *a, *a->gradient);
}

/* -------------------------------------------------------------------------------------------------
   >>cu_attention  Fused attention, forward and backward.

   The keys a query sees are one run of rows of the micro-batch, [first, last), and both ends never
   fall from one query to the next. So a block takes ROWS queries of one head, of whatever
   sequences, and streams the keys between its first query's first and its last query's last, STEP
   at a time; a key that a query does not see is masked. Causal, windowed, packed and sliced
   attention are one case; scores exist for ROWS x STEP at a time. The gradients of keys and values
   mirror it: a block takes ROWS keys and streams the queries that see them. Each gradient element
   has one owner and a fixed order of additions: no atomics. By option (HET_CUDA_ATOMIC) the keys'
   block also adds what it has of the queries' gradients, so that S and dP are made once.

   Heads are padded with zeros to P = 64, 96 or 128 columns; larger ones are refused. Operands
   that are bf16 are read where they lie; of floats, what is read many times is packed first: k,
   v and, for the backward, q (times scale) and do become bf16 (or float or tf32). A tile is rows
   of P elements in shared memory, fetched by cp.async into one of two buffers while the other is
   used. Its rows lie 16 bytes more than P elements apart, so that 16 bytes of 8 neighbouring
   rows lie in different banks; wide ones lie as hetc_matrix says.

   A warp has M times 16 rows of the block: what it loads of the right operand serves all of them.
   An accumulator x[n][m][e] of its lane is row 16 m + lane / 4 + 8 (e / 2), column 8 n + 2 (lane %
   4) + e % 2, which is the layout of mma m16n8k16 and m16n8k8; the float kind does the same sums by
   fma, so that all are one source. tf32 operands have 10 bits of fraction, those of the second
   product (weights, dS) as well; sums, exponentials and statistics are float.

   On compute capability 9.0, bf16 with heads up to 64 or from 97 on is wide: four warps share a
   product, M is 1, and hetc_done waits for what goes on meanwhile. A left operand kept in registers
   over the steps is not for these: ptxas 13.0 gave its registers away behind the first one.
   ---------------------------------------------------------------------------------------------- */

template <class E> struct hetc_attention {
    const E *q, *d_o;      /* [rows][heads][line]; the forward's q NULL: a.q is converted */
    const E *k, *v;        /* [keys][kv_heads][line] */
    int line;              /* elements of a head, a multiple of 16 bytes */
    int q_row, k_row;      /* from row to row of q; of k and v */
    int dq_row, dk_row;    /* the same of dq; of dk and dv */
    int bf16;              /* a.o, dq, dk and dv are bf16, and (=) */
    float scale;           /* of the scores; 1: q has it already */
    float factor;          /* scale log2 e */
    float *statistic;      /* [2][heads][rows] the shift by which P = exp(S - shift), rowsum(do o): the backward's */
    het_attention_args a;  /* a.o, dq: rows of the slice; a.dk, dv: key 0 */
    const int32_t *sequence_of;    /* [n] */
    const int64_t *sequence_start; /* [s + 1] */
    int rows, keys;        /* queries of the slice; keys [key_begin, row_end) of the micro-batch */
    int row_begin, row_end, key_begin;
    int dq_rows;           /* rows up to a whole number of steps */
    float *dq;             /* by atomics dq / scale [heads][dq_rows][P], ordered as hetc_dq_rows says */
};

struct hetc_run { int first, last; };

struct hetc_tf32 { uint32_t bits; };
/* Whether a kind of element goes through the tensor cores: it then has their exponential as
   well. */
template <class E> struct hetc_kind { enum { TENSOR = 1, WIDE = 0 }; };
template <> struct hetc_kind<float> { enum { TENSOR = 0, WIDE = 0 }; };
template <> struct hetc_kind<hetc_wide> { enum { TENSOR = 1, WIDE = 1 }; };

HETC_DEVICE int hetc_min(int a, int b) { return a < b ? a : b; }
HETC_DEVICE int hetc_max(int a, int b) { return a > b ? a : b; }

/* Rows of the sequence of `row`, as far as the slice goes, from `before` rows before it to `behind`
   rows behind it where there is a window. */
template <class E> HETC_DEVICE hetc_run hetc_near(const hetc_attention<E> &t, int row, int before, int behind) {
    const int s = t.sequence_of[row];
    const hetc_run run = { (int)t.sequence_start[s], hetc_min((int)t.sequence_start[s + 1], t.row_end) };
    if (t.a.window == 0) return run;
    return { hetc_max(run.first, row - before), hetc_min(run.last, row + behind + 1) };
}

/* Keys that query `i` of the slice sees, counted from key_begin. Without causality a window is
   centred on the query. */
template <class E> HETC_DEVICE hetc_run hetc_keys_of(const hetc_attention<E> &t, int i) {
    const int row = t.row_begin + i, window = (int)t.a.window;
    const hetc_run run = hetc_near(t, row, t.a.causal ? window - 1 : (window - 1) / 2, window / 2);
    return { run.first - t.key_begin, (t.a.causal ? row + 1 : run.last) - t.key_begin };
}

/* Queries of the slice that see key j: the same, turned round. */
template <class E> HETC_DEVICE hetc_run hetc_queries_of(const hetc_attention<E> &t, int j) {
    const int row = t.key_begin + j, window = (int)t.a.window;
    const hetc_run run = hetc_near(t, row, window / 2, t.a.causal ? window - 1 : (window - 1) / 2);
    return { hetc_max((t.a.causal ? row : run.first) - t.row_begin, 0), run.last - t.row_begin };
}

/* ---- tiles ---- */

/* Elements from one row of a tile to the next, and of a tile of N rows. */
template <class E, int P> struct hetc_tile { enum { CHUNK = 16 / sizeof(E), PITCH = P + CHUNK }; };
template <int P> struct hetc_tile<hetc_wide, P> { enum { CHUNK = 8, PITCH = P }; };

/* wide: eight rows by eight, of these 64 columns by 64, each as hetc_matrix has it. */
template <class E, int P> HETC_DEVICE E *hetc_chunk(E *tile, int row, int chunk) {
    if constexpr (hetc_kind<E>::WIDE)
        return tile + row / 8 * 8 * P + chunk / 8 * 512 + row % 8 * 64 + ((chunk ^ row) & 7) * 8;
    else return tile + row * hetc_tile<E, P>::PITCH + chunk * hetc_tile<E, P>::CHUNK;
}

/* x, new to the compiler: what follows from it is made again each time, not kept in registers. */
HETC_DEVICE int hetc_again(int x) {
#ifndef HETC_EMULATED
    asm volatile("" : "+r"(x));
#endif
    return x;
}

/* Rows [first, first + ROWS) of a head, the first row of which begins at `from`; rows lie `stride`
   elements apart. Those from `limit` on, and what is behind the head's `line` elements, are zeros.
   A thread has one chunk of every LINES rows. */
template <class E, int P, int ROWS, int THREADS>
HETC_DEVICE void hetc_tile_fetch(E *tile, const E *from, int stride, int first, int limit, int line) {
    enum { CHUNK = hetc_tile<E, P>::CHUNK, CHUNKS = P / CHUNK, LINES = THREADS / CHUNKS };
    const int thread = hetc_again((int)threadIdx.x), own = thread / CHUNKS, chunk = thread % CHUNKS;
    const bool there = chunk * CHUNK < line;
    const int bytes = stride * (int)sizeof(E); /* one multiplication an address */
    const char *base = reinterpret_cast<const char *>(from + (there ? chunk * CHUNK : 0));
    E *to = hetc_chunk<E, P>(tile, own, chunk);
    if (THREADS % CHUNKS != 0 && own >= LINES) return;
    HETC_UNROLL
    for (int i = 0; i < ROWS; i += LINES) {
        const int row = first + own + i;
        const bool present = there && row < limit;
        if (ROWS % LINES != 0 && own + i >= ROWS) return;
        hetc_copy_async(to + i * hetc_tile<E, P>::PITCH, base + (int64_t)(present ? row : 0) * bytes, present);
    }
}

/* This thread's part of the tiles is there; behind a barrier all of them. */
template <class E> HETC_DEVICE void hetc_tiles_wait() {
    hetc_copy_wait();
    if (hetc_kind<E>::WIDE) hetc_group_publish();
}

/* Rows of a head's keys, and the same of its values. head: its first element in a row. */
template <class E, int P, int ROWS, int THREADS>
HETC_DEVICE void hetc_keys_fetch(E *keys, E *values, const hetc_attention<E> &t, int head, int first) {
    hetc_tile_fetch<E, P, ROWS, THREADS>(keys, t.k + head, t.k_row, first, t.keys, t.line);
    hetc_tile_fetch<E, P, ROWS, THREADS>(values, t.v + head, t.k_row, first, t.keys, t.line);
}

/* Rows of a head's queries, and the same of the gradients of its outputs. */
template <class E, int P, int ROWS, int THREADS>
HETC_DEVICE void hetc_queries_fetch(E *queries, E *outputs, const hetc_attention<E> &t, int head, int first) {
    const int column = head * t.line, outputs_row = (int)t.a.heads * t.line;
    hetc_tile_fetch<E, P, ROWS, THREADS>(queries, t.q + column, t.q_row, first, t.rows, t.line);
    hetc_tile_fetch<E, P, ROWS, THREADS>(outputs, t.d_o + column, outputs_row, first, t.rows, t.line);
}

template <class E> HETC_DEVICE E hetc_element(float x) {
    if constexpr (sizeof(E) == 2) return hetc_bf16(x);
    else if constexpr (hetc_kind<E>::TENSOR) return { hetc_tf32_bits(x) };
    else return x;
}

/* The same from floats, heads of `size` columns, times `scale`, by this thread's own loads and
   stores. */
template <class E, int P>
HETC_DEVICE void hetc_tile_convert(E *tile, int rows, const float *from, int64_t stride, int first, int limit, int size,
                                   float scale) {
    enum { CHUNK = hetc_tile<E, P>::CHUNK, CHUNKS = P / CHUNK };
    const bool packs = size % 4 == 0 && (reinterpret_cast<uintptr_t>(from) & 15) == 0;
    for (int i = (int)threadIdx.x; i < rows * CHUNKS; i += (int)blockDim.x) {
        const int row = i / CHUNKS, chunk = i % CHUNKS;
        const float *line = from + (first + row) * stride;
        hetc_pack<E, CHUNK> y;
        HETC_UNROLL
        for (int j = 0; j < CHUNK; j += 4) {
            const int column = chunk * CHUNK + j;
            hetc_pack<float, 4> x = { { 0.0f, 0.0f, 0.0f, 0.0f } };
            if (first + row < limit && column < size) {
                if (packs) x = hetc_get<4>(line + column);
                else for (int l = 0; l < 4; l++) x.v[l] = column + l < size ? line[column + l] : 0.0f;
            }
            for (int l = 0; l < 4; l++) y.v[j + l] = hetc_element<E>(x.v[l] * scale);
        }
        hetc_put(hetc_chunk<E, P>(tile, row, chunk), y);
    }
}

/* ---- products of a warp ---- */

/* 16 M rows by N columns, as a warp holds them */
template <int N, int M> using hetc_accumulator = float[(size_t)N / 8][(size_t)M][4];

/* Rows [row, row + 16 M) of a tile as the left operand, of bf16 kept in registers where HELD. */
template <class E, int P, int M, bool HELD> struct hetc_left;

template <int P, int M> struct hetc_left<uint16_t, P, M, false> {
    uint16_t *tile;
    __device__ __forceinline__ void load(uint16_t *tile_, int row) {
        tile = hetc_chunk<uint16_t, P>(tile_, row + hetc_lane() % 16, hetc_lane() / 16);
    }
    __device__ __forceinline__ void get(uint32_t (&a)[(size_t)M][4], int k) const {
        HETC_UNROLL
        for (int m = 0; m < M; m++) hetc_ldmatrix<false>(a[m], hetc_chunk<uint16_t, P>(tile, 16 * m, 2 * k));
    }
};
template <int P, int M> struct hetc_left<uint16_t, P, M, true> {
    uint32_t a[(size_t)P / 16][(size_t)M][4];
    __device__ __forceinline__ void load(uint16_t *tile, int row) {
        hetc_left<uint16_t, P, M, false> from;
        from.load(tile, row);
        HETC_UNROLL
        for (int k = 0; k < P / 16; k++) from.get(a[k], k);
    }
    __device__ __forceinline__ void get(uint32_t (&to)[(size_t)M][4], int k) const {
        HETC_UNROLL
        for (int m = 0; m < M; m++)
            for (int i = 0; i < 4; i++) to[m][i] = a[k][m][i];
    }
};
template <int P> struct hetc_left<hetc_wide, P, 1, false> { /* the 64 rows that four warps share; never held */
    hetc_wide *tile;
    __device__ __forceinline__ void load(hetc_wide *tile_, int row) { tile = tile_ + row / 64 * 64 * P; }
};
/* in registers they would be twice those of bf16 */
template <int P, bool HELD> struct hetc_left<hetc_tf32, P, 1, HELD> {
    hetc_tf32 *tile = nullptr;
    __device__ __forceinline__ void load(hetc_tf32 *tile_, int row) { tile = tile_ + (row + hetc_lane() % 16) *
                                                                     hetc_tile<hetc_tf32, P>::PITCH; }
};
template <int P, bool HELD> struct hetc_left<float, P, 1, HELD> {
    float *tile = nullptr;
    int row = 0;
    __device__ __forceinline__ void load(float *tile_, int row_) { tile = tile_; row = row_ + hetc_lane() / 4; }
};

/* What hetc_scores and hetc_mix leave in x is there: those of wide go on meanwhile, here the last
   OPEN of them. */
template <class E, int N, int OPEN = 0, size_t M> HETC_DEVICE void hetc_done(float (&x)[(size_t)N / 8][M][4]) {
    if constexpr (hetc_kind<E>::WIDE) hetc_group_wait<N, OPEN>(x);
    else (void)x;
}

template <int N, int M> HETC_DEVICE void hetc_zero(hetc_accumulator<N, M> &x) {
    HETC_UNROLL
    for (int i = 0; i < N / 8 * M * 4; i++) x[i / (4 * M)][i / 4 % M][i % 4] = 0.0f;
}

/* s = left right^T: the warp's rows by N rows of the tile `right`. */
template <int P, int N, int M, bool HELD>
HETC_DEVICE void hetc_scores(hetc_accumulator<N, M> &s, const hetc_left<uint16_t, P, M, HELD> &left, uint16_t *right) {
    const int lane = hetc_lane(), row = lane % 8 + lane / 16 * 8, column = lane / 8 % 2;
    hetc_zero<N, M>(s);
    HETC_UNROLL
    for (int k = 0; k < P / 16; k++) {
        uint32_t a[(size_t)M][4];
        left.get(a, k);
        HETC_UNROLL
        for (int n = 0; n < N / 16; n++) {
            uint32_t b[4];
            hetc_ldmatrix<false>(b, hetc_chunk<uint16_t, P>(right, 16 * n + row, 2 * k + column));
            HETC_UNROLL
            for (int m = 0; m < M; m++) {
                hetc_mma(s[2 * n][m], a[m], b[0], b[1]);
                hetc_mma(s[2 * n + 1][m], a[m], b[2], b[3]);
            }
        }
    }
}

/* Columns [16 k, 16 k + 16) of a tile, from a row that is a multiple of 8 on. */
template <int P> HETC_DEVICE uint64_t hetc_slice(const hetc_wide *tile, int k) {
    return hetc_matrix(tile + k / 4 * 512 + k % 4 * 16, 16 * P);
}

template <int P, int N, int M>
HETC_DEVICE void hetc_scores(hetc_accumulator<N, M> &s, const hetc_left<hetc_wide, P, M, false> &left,
                             hetc_wide *right) {
    static_assert(N == 64 && M == 1, "what the instruction has");
    hetc_group_begin<N>(s);
    HETC_UNROLL
    for (int k = 0; k < P / 16; k++)
        hetc_group_mma(s, hetc_slice<P>(left.tile, k), hetc_slice<P>(right, k), k > 0);
    hetc_group_end();
}

/* Four tf32 are the 16 bytes of a row of ldmatrix: a lane gets element lane % 4 of row lane / 4. */
template <int P, int N, int M, bool HELD>
HETC_DEVICE void hetc_scores(hetc_accumulator<N, M> &s, const hetc_left<hetc_tf32, P, M, HELD> &left,
                             hetc_tf32 *right) {
    const int lane = hetc_lane(), row = lane % 8 + lane / 16 * 8, chunk = lane / 8 % 2;
    hetc_zero<N, M>(s);
    HETC_ROLLED
    for (int k = 0; k < P / 8; k++) {
        uint32_t a[4];
        hetc_ldmatrix<false>(a, hetc_chunk<hetc_tf32, P>(left.tile, 0, 2 * k + lane / 16));
        HETC_UNROLL
        for (int n = 0; n < N / 16; n++) {
            uint32_t b[4];
            hetc_ldmatrix<false>(b, hetc_chunk<hetc_tf32, P>(right, 16 * n + row, 2 * k + chunk));
            hetc_mma_tf32(s[2 * n][0], a, b[0], b[1]);
            hetc_mma_tf32(s[2 * n + 1][0], a, b[2], b[3]);
        }
    }
}

template <int P> HETC_DEVICE hetc_pack<float, 4> hetc_quad(float *tile, int row, int chunk) {
    return hetc_get<4>(hetc_chunk<float, P>(tile, row, chunk));
}
HETC_DEVICE float hetc_dot(float s, const hetc_pack<float, 4> &a, const hetc_pack<float, 4> &b) {
    HETC_UNROLL
    for (int i = 0; i < 4; i++) s = fmaf(a.v[i], b.v[i], s);
    return s;
}

template <int P, int N, int M, bool HELD>
HETC_DEVICE void hetc_scores(hetc_accumulator<N, M> &s, const hetc_left<float, P, M, HELD> &left, float *right) {
    const int column = hetc_lane() % 4 * 2;
    hetc_zero<N, M>(s);
    HETC_ROLLED
    for (int k = 0; k < P / 4; k++) {
        const hetc_pack<float, 4> low = hetc_quad<P>(left.tile, left.row, k), high = hetc_quad<P>(left.tile,
            left.row + 8, k);
        HETC_UNROLL
        for (int n = 0; n < N / 8; n++)
            HETC_UNROLL
            for (int i = 0; i < 2; i++) {
                const hetc_pack<float, 4> b = hetc_quad<P>(right, 8 * n + column + i, k);
                s[n][0][i] = hetc_dot(s[n][0][i], low, b);
                s[n][0][2 + i] = hetc_dot(s[n][0][2 + i], high, b);
            }
    }
}

/* Loads behind this are not moved before it: all rows of a tile at once would take more registers
   than there are. */
HETC_DEVICE void hetc_keep_order() {
#ifndef HETC_EMULATED
    asm volatile("" : : : "memory");
#endif
}

/* 16 columns of a warp's rows, rounded, as the left operand. */
template <int M> HETC_DEVICE void hetc_round_left(uint32_t (&a)[(size_t)M][4], const float (*w)[(size_t)M][4]) {
    HETC_UNROLL
    for (int m = 0; m < M; m++)
        for (int i = 0; i < 4; i++) {
            const float *pair = &w[i / 2][m][2 * (i % 2)];
            a[m][i] = hetc_bf16_pair(pair[0], pair[1]);
        }
}

/* x += w right: the warp's rows by P columns, w by N, right N rows of a tile; where that is not
   wide, C columns of it. bf16: w is rounded to it. */
template <int P, int N, int M>
HETC_DEVICE void hetc_mix(hetc_accumulator<P, M> &x, const hetc_accumulator<N, M> &w, hetc_wide *right) {
    uint32_t a[(size_t)N / 16][M][4];
    HETC_UNROLL
    for (int k = 0; k < N / 16; k++) hetc_round_left<M>(a[k], w + 2 * k);
    hetc_group_begin<P>(x);
    HETC_UNROLL
    for (int k = 0; k < N / 16; k++)
        HETC_UNROLL
        for (int n = 0; n < P / 64; n++)
            hetc_group_mma(x + 8 * n, a[k][0], hetc_matrix(right + 16 * k * P + 512 * n, 16 * P));
    hetc_group_end();
}

/* The same of 16 rows of the tile, from `row` on, whose columns of w are a. */
template <int P, int M, int C>
HETC_DEVICE void hetc_mix_rows(hetc_accumulator<C, M> &x, const uint32_t (&a)[(size_t)M][4], uint16_t *right, int row) {
    const int lane = hetc_lane();
    HETC_UNROLL
    for (int n = 0; n < C / 16; n++) {
        uint32_t b[4];
        hetc_ldmatrix<true>(b, hetc_chunk<uint16_t, P>(right, row + lane % 16, 2 * n + lane / 16));
        HETC_UNROLL
        for (int m = 0; m < M; m++) {
            hetc_mma(x[2 * n][m], a[m], b[0], b[1]);
            hetc_mma(x[2 * n + 1][m], a[m], b[2], b[3]);
        }
    }
}

template <int P, int N, int M>
HETC_DEVICE void hetc_mix(hetc_accumulator<P, M> &x, const hetc_accumulator<N, M> &w, uint16_t *right) {
    HETC_UNROLL
    for (int k = 0; k < N / 16; k++) {
        uint32_t a[(size_t)M][4];
        hetc_round_left<M>(a, w + 2 * k);
        hetc_mix_rows<P, M, P>(x, a, right, 16 * k);
    }
}

/* tf32: columns 2 t and 2 t + 1 of w, which lane t of four holds, are the product's columns t and t
   + 4; the rows of `right` are taken likewise. */
template <int P, int N, int M, int C = P>
HETC_DEVICE void hetc_mix(hetc_accumulator<C, M> &x, const hetc_accumulator<N, M> &w, hetc_tf32 *right) {
    const int lane = hetc_lane();
    HETC_UNROLL
    for (int k = 0; k < N / 8; k++) {
        const uint32_t a[4] = { hetc_tf32_bits(w[k][0][0]), hetc_tf32_bits(w[k][0][2]), hetc_tf32_bits(w[k][0][1]),
                               hetc_tf32_bits(w[k][0][3]) };
        const hetc_tf32 *const even = right + (8 * k + lane % 4 * 2) * hetc_tile<hetc_tf32, P>::PITCH + lane / 4;
        const hetc_tf32 *const odd = even + hetc_tile<hetc_tf32, P>::PITCH;
        hetc_keep_order();
        HETC_UNROLL
        for (int n = 0; n < C / 8; n++) hetc_mma_tf32(x[n][0], a, even[8 * n].bits, odd[8 * n].bits);
    }
}

template <int P, int N, int M, int C = P>
HETC_DEVICE void hetc_mix(hetc_accumulator<C, M> &x, const hetc_accumulator<N, M> &w, float *right) {
    const int lane = hetc_lane(), column = lane % 4 * 2;
    HETC_UNROLL
    for (int k = 0; k < N; k++) { /* row k of the tile; its weights lie with lane (k % 8) / 2 of each four */
        const float low = __shfl_sync(HETC_ALL, w[k / 8][0][k % 2], lane / 4 * 4 + k % 8 / 2);
        const float high = __shfl_sync(HETC_ALL, w[k / 8][0][2 + k % 2], lane / 4 * 4 + k % 8 / 2);
        hetc_keep_order();
        HETC_UNROLL
        for (int n = 0; n < C / 8; n++) {
            const hetc_pack<float, 2> b = hetc_get<2>(hetc_chunk<float, P>(right, k, 2 * n + column / 4) + column % 4);
            HETC_UNROLL
            for (int i = 0; i < 2; i++) {
                x[n][0][i] = fmaf(low, b.v[i], x[n][0][i]);
                x[n][0][2 + i] = fmaf(high, b.v[i], x[n][0][2 + i]);
            }
        }
    }
}

/* A warp's 16 M rows of x into a tile. */
template <class E, int N, int M> HETC_DEVICE void hetc_tile_put(E *tile, const hetc_accumulator<N, M> &x) {
    enum { CHUNK = hetc_tile<E, N>::CHUNK };
    const int column = hetc_lane() % 4 * 2, row = 16 * M * hetc_warp() + hetc_lane() / 4;
    HETC_UNROLL
    for (int n = 0; n < N / 8; n++)
        HETC_UNROLL
        for (int r = 0; r < 2 * M; r++) {
            const hetc_pack<float, 2> pair = { { x[n][r / 2][r % 2 * 2], x[n][r / 2][r % 2 * 2 + 1] } };
            E *const to = hetc_chunk<E, N>(tile, row + 8 * r, (8 * n + column) / CHUNK) + column % CHUNK;
            if constexpr (sizeof(E) == 2) hetc_save(reinterpret_cast<uint16_t *>(to), pair);
            else hetc_put(reinterpret_cast<float *>(to), pair);
        }
    if (hetc_kind<E>::WIDE) hetc_group_publish();
}

/* x = w^T right over K rows of both tiles: of w, which is N wide, the 16 columns from `column` on
   (wide: all 64, 16 of them this warp's), of right C. */
template <int P, int K, int N, int C, class E>
HETC_DEVICE void hetc_mix_turned(hetc_accumulator<C, 1> &x, E *w, int column, E *right) {
    enum { PITCH = hetc_tile<E, N>::PITCH };
    if constexpr (hetc_kind<E>::WIDE) {
        hetc_group_begin<C>(x);
        HETC_UNROLL
        for (int k = 0; k < K; k += 16)
            HETC_UNROLL
            for (int n = 0; n < C / 64; n++)
                hetc_group_mma<1>(x + 8 * n, hetc_matrix(w + k * PITCH, 16 * PITCH),
                                  hetc_matrix(right + k * P + 512 * n, 16 * P), k > 0);
        hetc_group_end();
    } else {
        const int lane = hetc_lane();
        hetc_zero<C, 1>(x);
        HETC_ROLLED /* or registers are short */
        for (int k = 0; k < K; k += 16) {
            if constexpr (sizeof(E) == 2) {
                uint32_t a[1][4];
                hetc_ldmatrix<true>(a[0], hetc_chunk<E, N>(w, k + lane % 8 + lane / 16 * 8, column / 8 + lane / 8 % 2));
                hetc_mix_rows<P, 1, C>(x, a, right, k);
            } else {
                const E *from = w + (k + lane % 4 * 2) * PITCH + column + lane / 4;
                hetc_accumulator<16, 1> turned;
                HETC_UNROLL
                for (int e = 0; e < 8; e++)
                    memcpy(&turned[e / 4][0][e % 4], from + (e / 4 * 8 + e % 2) * PITCH + e / 2 % 2 * 8, sizeof(E));
                hetc_mix<P, 16, 1, C>(x, turned, right + k * hetc_tile<E, P>::PITCH);
            }
        }
    }
}

/* exp(s - m), with the shift of m made beforehand; factor: scale log2 e, of what scores lack.
   -infinity (nothing seen yet) shifts by nothing. */
template <class E> HETC_DEVICE float hetc_shift(float m, float factor) {
    return m == -INFINITY ? 0.0f : hetc_kind<E>::TENSOR ? m * factor : m;
}
template <class E> HETC_DEVICE float hetc_exp_shifted(float s, float shift, float factor) {
    return hetc_kind<E>::TENSOR ? hetc_exp2(fmaf(s, factor, -shift)) : expf(s - shift);
}

/* Row lane / 4 + 8 r of a warp's accumulators into memory, from element `at` of `array` on: columns
   of a head of `size`, times `scale`. bf16: as that; else add: on what is there. */
template <int P, int M>
HETC_DEVICE void hetc_rows_put(float *array, int64_t at, bool bf16, const hetc_accumulator<P, M> &x, int r, int size,
                               float scale, bool add) {
    float *const to = array + at;
    const bool pairs = size % 2 == 0 && (reinterpret_cast<uintptr_t>(to) & 7) == 0;
    HETC_UNROLL
    for (int n = 0; n < P / 8; n++) {
        const int c = 8 * n + hetc_lane() % 4 * 2;
        hetc_pack<float, 2> pair = { { x[n][r / 2][r % 2 * 2] * scale, x[n][r / 2][r % 2 * 2 + 1] * scale } };
        if (bf16) { /* size is even */
            if (c < size) hetc_save(hetc_as<uint16_t>(array) + at + c, pair);
        } else if (pairs && c < size) {
            if (add) {
                const hetc_pack<float, 2> old = hetc_get<2>(to + c);
                pair = { { old.v[0] + pair.v[0], old.v[1] + pair.v[1] } };
            }
            hetc_put(to + c, pair);
        } else {
            if (c < size) to[c] = (add ? to[c] : 0.0f) + pair.v[0];
            if (c + 1 < size) to[c + 1] = (add ? to[c + 1] : 0.0f) + pair.v[1];
        }
    }
}

/* Over the 4 lanes that share a row. */
HETC_DEVICE float hetc_row_sum(float x) {
    x += __shfl_xor_sync(HETC_ALL, x, 1);
    return x + __shfl_xor_sync(HETC_ALL, x, 2);
}
HETC_DEVICE float hetc_row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(HETC_ALL, x, 1));
    return fmaxf(x, __shfl_xor_sync(HETC_ALL, x, 2));
}

/* Scores of columns [from, from + N) that a row does not see become -infinity: most tiles have
   none. seen: columns of the lane's 2 M rows, `apart` elements from one to the next. */
template <int N, int M>
HETC_DEVICE void hetc_hide(hetc_accumulator<N, M> &s, int from, const hetc_run *seen, int apart) {
    const int column = from + hetc_lane() % 4 * 2;
    HETC_UNROLL
    for (int r = 0; r < 2 * M; r++) {
        const hetc_run run = seen[r * apart];
        if (from >= run.first && from + N <= run.last) continue;
        HETC_UNROLL
        for (int e = 0; e < N / 4; e++) {
            const int at = column + 8 * (e / 2) + e % 2;
            if (at < run.first || at >= run.last) s[e / 2][r / 2][r % 2 * 2 + e % 2] = -INFINITY;
        }
    }
}

/* Rows of the forward, rows of the backward's two kernels, the steps of both, a warp's rows by 16,
   and blocks of the forward, of queries' and of keys' gradients that share a multiprocessor: what
   registers (accumulators grow with P) and shared memory take; 99 KiB of it but for wide. */
template <class E, int P> struct hetc_tiles {
    enum { BF16 = sizeof(E) == 2, NARROW = P == 64, TF32 = !BF16 && hetc_kind<E>::TENSOR };
    enum { M = BF16 && NARROW ? 2 : 1 };
    enum { FORWARD = BF16 ? 128 : 64, BACKWARD = BF16 || (TF32 && NARROW) ? 64 * M : 32 };
    enum { STEP = BF16 ? 32 * M : TF32 && NARROW ? 32 : 16, BACKWARD_STEP = STEP / M };
    enum { BLOCKS = NARROW ? 2 : 1, QUERY_BLOCKS = 1, KEY_BLOCKS = 1 };
};
template <int P> struct hetc_tiles<hetc_wide, P> {
    enum { M = 1, FORWARD = 64, STEP = 64, BACKWARD = 64, BACKWARD_STEP = 64 };
    enum { BLOCKS = P == 64 ? 5 : 2, QUERY_BLOCKS = P == 64 ? 4 : 2, KEY_BLOCKS = P == 64 ? 3 : 2 };
};

/* ---- forward: o = exp(S - m) v / l with the maximum m so far; a new one scales what there is ---- */

/* The scores of keys become exponentials; m, l and o follow. */
template <class E, int P, int N, int M>
HETC_DEVICE void hetc_softmax_step(hetc_accumulator<N, M> &s, float factor, float (&m)[(size_t)M * 2],
                                   float (&l)[(size_t)M * 2], hetc_accumulator<P, M> &o) {
    HETC_UNROLL
    for (int r = 0; r < 2 * M; r++) {
        const int low = r % 2 * 2, high = low + 2;
        float top = m[r], sum = 0.0f;
        HETC_UNROLL
        for (int n = 0; n < N / 8; n++) top = fmaxf(top, fmaxf(s[n][r / 2][low], s[n][r / 2][low + 1]));
        top = hetc_row_max(top);
        const float shift = hetc_shift<E>(top, factor), rescale = hetc_exp_shifted<E>(m[r], shift, factor);
        m[r] = top;
        HETC_UNROLL
        for (int n = 0; n < N / 8; n++)
            HETC_UNROLL
            for (int i = low; i < high; i++) {
                s[n][r / 2][i] = hetc_exp_shifted<E>(s[n][r / 2][i], shift, factor);
                sum += s[n][r / 2][i];
            }
        l[r] = l[r] * rescale + sum;
        if (__ballot_sync(HETC_ALL, rescale != 1.0f) == 0) continue; /* no row of the warp has a new maximum */
        HETC_UNROLL
        for (int n = 0; n < P / 8; n++)
            HETC_UNROLL
            for (int i = low; i < high; i++) o[n][r / 2][i] *= rescale;
    }
}

template <class E, int P, int ROWS, int STEP, int M>
static __global__ void __launch_bounds__(2 * ROWS / M, hetc_tiles<E, P>::BLOCKS)
hetc_attention_forward_kernel(hetc_attention<E> t) {
    HETC_SHARED_BYTES(bytes);
    enum { PITCH = hetc_tile<E, P>::PITCH, THREADS = 2 * ROWS / M };
    E *const queries = reinterpret_cast<E *>(bytes), *const keys = queries + ROWS * PITCH,
        *const values = keys + 2 * STEP * PITCH;
    /* the longest first */
    const int head = (int)blockIdx.y, own = 16 * M * hetc_warp(), begin = (int)(gridDim.x - 1 - blockIdx.x) * ROWS;
    const int key_head = head / (int)(t.a.heads / t.a.kv_heads) * t.line;
    const int first = hetc_keys_of(t, begin).first, last = hetc_keys_of(t, hetc_min(begin + ROWS, t.rows) - 1).last;
    hetc_keys_fetch<E, P, STEP, THREADS>(keys, values, t, key_head, first);
    if (t.q != NULL)
        hetc_tile_fetch<E, P, ROWS, THREADS>(queries, t.q + head * t.line, t.q_row, begin, t.rows, t.line);
    hetc_copy_commit();
    hetc_accumulator<P, M> o = {};
    float m[(size_t)M * 2], l[(size_t)M * 2];
    hetc_run seen[(size_t)M * 2];
    hetc_left<E, P, M, !hetc_kind<E>::WIDE> left;
    HETC_UNROLL
    for (int r = 0; r < 2 * M; r++) {
        const int row = begin + own + hetc_lane() / 4 + 8 * r;
        m[r] = -INFINITY;
        l[r] = 0.0f;
        seen[r] = { 0, 0 };
        if (row < t.rows) seen[r] = hetc_keys_of(t, row);
    }
    if (t.q == NULL)
        hetc_tile_convert<E, P>(queries, ROWS, t.a.q + head * t.a.head_size, t.a.heads * t.a.head_size, begin, t.rows,
                                (int)t.a.head_size, t.a.scale);
    hetc_tiles_wait<E>();
    __syncthreads();
    left.load(queries, own);
    for (int from = first, buffer = 0; from < last; from += STEP, buffer ^= STEP * PITCH) {
        hetc_tiles_wait<E>();
        __syncthreads(); /* this tile is there, and nobody still reads the other buffer */
        if (from + STEP < last) {
            const int other = buffer ^ STEP * PITCH;
            hetc_keys_fetch<E, P, STEP, THREADS>(keys + other, values + other, t, key_head, from + STEP);
            hetc_copy_commit();
        }
        hetc_accumulator<STEP, M> s;
        hetc_scores<P, STEP>(s, left, keys + buffer);
        hetc_done<E, STEP>(s);
        hetc_hide<STEP, M>(s, from, seen, 1);
        hetc_softmax_step<E, P, STEP, M>(s, t.factor, m, l, o);
        hetc_mix<P, STEP, M>(o, s, values + buffer);
        hetc_done<E, P>(o);
    }
    HETC_UNROLL
    for (int r = 0; r < 2 * M; r++) {
        const int row = begin + own + hetc_lane() / 4 + 8 * r;
        const float sum = hetc_row_sum(l[r]);
        if (row >= t.rows) continue;
        const int64_t at = (int64_t)row * t.a.heads + head;
        if (hetc_lane() % 4 == 0) {
            t.a.maximum[at] = m[r] * t.scale;
            t.a.sum[at] = sum;
        }
        hetc_rows_put<P, M>(t.a.o, at * t.a.head_size, t.bf16, o, r, (int)t.a.head_size, 1.0f / sum, false);
    }
}

/* ---- backward: P = exp(S - m - log l), dS = P (dP - delta), dP = do v^T ---- */

/* delta = rowsum(do o) of a head, its first element at `at`, by the four lanes that share a row. T:
   of o and do; bf16 heads are whole packs of 8. */
template <class T> HETC_DEVICE float hetc_delta(const het_attention_args &a, int64_t at) {
    enum { V = sizeof(T) == 2 ? 8 : 1 };
    float sum = 0.0f;
    for (int j = hetc_lane() % 4 * V; j < (int)a.head_size; j += 4 * V) {
        const hetc_pack<float, V> o = hetc_load<V>(hetc_as<T>(a.o) + at + j),
                                  d = hetc_load<V>(hetc_as<T>(a.d_o) + at + j);
        HETC_UNROLL
        for (int i = 0; i < V; i++) sum = fmaf(o.v[i], d.v[i], sum);
    }
    return hetc_row_sum(sum);
}

/* shift, delta and keys of row `row` of a head (behind the last one: those of that, no keys), by
   the four lanes that share it; t.statistic, which the gradients of keys want. */
template <class E> HETC_DEVICE void hetc_statistics(const hetc_attention<E> &t, int head, int row, float &shift,
                                                    float &delta, hetc_run &seen) {
    const int64_t at = (int64_t)hetc_min(row, t.rows - 1) * t.a.heads + head;
    float *statistic = t.statistic + (int64_t)head * t.rows + row;
    shift = hetc_shift<E>(t.a.maximum[at], HETC_LOG2_E) +
        (hetc_kind<E>::TENSOR ? log2f(t.a.sum[at]) : logf(t.a.sum[at]));
    delta = t.bf16 ? hetc_delta<uint16_t>(t.a, at * t.a.head_size) : hetc_delta<float>(t.a, at * t.a.head_size);
    if (row >= t.rows) return;
    seen = hetc_keys_of(t, row);
    if (hetc_lane() % 4 != 0) return;
    statistic[0] = shift;
    statistic[t.a.heads * t.rows] = delta;
}

/* dq = scale dS k; t.statistic. */
template <class E, int P, int ROWS, int STEP, int M>
static __global__ void __launch_bounds__(2 * ROWS / M, hetc_tiles<E, P>::QUERY_BLOCKS)
hetc_attention_queries_kernel(hetc_attention<E> t) {
    HETC_SHARED_BYTES(bytes);
    enum { PITCH = hetc_tile<E, P>::PITCH, THREADS = 2 * ROWS / M };
    E *const queries = reinterpret_cast<E *>(bytes), *const outputs = queries + ROWS * PITCH,
        *const keys = outputs + ROWS * PITCH;
    E *const values = keys + 2 * STEP * PITCH;
    const int head = (int)blockIdx.y, own = 16 * M * hetc_warp(), begin = (int)(gridDim.x - 1 - blockIdx.x) * ROWS;
    const int key_head = head / (int)(t.a.heads / t.a.kv_heads) * t.line;
    const int first = hetc_keys_of(t, begin).first, last = hetc_keys_of(t, hetc_min(begin + ROWS, t.rows) - 1).last;
    hetc_queries_fetch<E, P, ROWS, THREADS>(queries, outputs, t, head, begin);
    hetc_keys_fetch<E, P, STEP, THREADS>(keys, values, t, key_head, first);
    hetc_copy_commit();
    hetc_accumulator<P, M> dq = {};
    hetc_left<E, P, M, (M > 1)> held;
    float shift[(size_t)M * 2] = {}, delta[(size_t)M * 2] = {};
    hetc_run seen[(size_t)M * 2] = {};
    HETC_UNROLL
    for (int r = 0; r < 2 * M; r++) {
        const int row = begin + own + hetc_lane() / 4 + 8 * r;
        hetc_statistics(t, head, row, shift[r], delta[r], seen[r]);
    }
    hetc_tiles_wait<E>();
    __syncthreads();
    held.load(queries, own);
    for (int from = first, buffer = 0; from < last; from += STEP, buffer ^= STEP * PITCH) {
        hetc_tiles_wait<E>();
        __syncthreads();
        if (from + STEP < last) {
            const int other = buffer ^ STEP * PITCH;
            hetc_keys_fetch<E, P, STEP, THREADS>(keys + other, values + other, t, key_head, from + STEP);
            hetc_copy_commit();
        }
        hetc_left<E, P, M, false> left;
        hetc_accumulator<STEP, M> s;
        hetc_scores<P, STEP>(s, held, keys + buffer);
        hetc_accumulator<STEP, M> dp;
        left.load(outputs, own);
        hetc_scores<P, STEP>(dp, left, values + buffer);
        hetc_done<E, STEP, 1>(s);
        hetc_hide<STEP, M>(s, from, seen, 1);
        HETC_UNROLL
        for (int n = 0; n < STEP / 8; n++)
            for (int e = 0; e < 4 * M; e++)
                s[n][e / 4][e % 4] = hetc_exp_shifted<E>(s[n][e / 4][e % 4], shift[e / 2], t.factor);
        hetc_done<E, STEP>(dp);
        HETC_UNROLL
        for (int n = 0; n < STEP / 8; n++)
            for (int e = 0; e < 4 * M; e++) s[n][e / 4][e % 4] *= dp[n][e / 4][e % 4] - delta[e / 2];
        hetc_mix<P, STEP, M>(dq, s, keys + buffer);
        hetc_done<E, P>(dq);
    }
    HETC_UNROLL
    for (int r = 0; r < 2 * M; r++) {
        const int row = begin + own + hetc_lane() / 4 + 8 * r;
        if (row < t.rows)
            hetc_rows_put<P, M>(t.a.dq, (int64_t)row * t.dq_row + head * t.a.head_size, t.bf16, dq, r,
                             (int)t.a.head_size, t.a.scale, false);
    }
}

/* t.statistic of STEP queries of a head, [2][STEP] in shared memory. */
template <class E, int STEP> HETC_DEVICE void hetc_statistics_fetch(float *to, const hetc_attention<E> &t, int first,
                                                                    int head) {
    const int which = (int)threadIdx.x / STEP, row = first + (int)threadIdx.x % STEP;
    for (int i = which; i < 2; i += (int)blockDim.x / STEP) {
        const float *from = t.statistic + (i * t.a.heads + head) * t.rows;
        hetc_copy_async<4>(to + i * STEP + (int)threadIdx.x % STEP, row < t.rows ? from + row : from, row < t.rows);
    }
}

/* ---- dq by atomics: of each head 16 rows by P after 16 rows, each as a warp's accumulators, lane
   beside lane ---- */

template <int P, class E> HETC_DEVICE float *hetc_dq_rows(const hetc_attention<E> &t, int head, int row) {
    return t.dq + ((int64_t)head * t.dq_rows + row) * P + hetc_lane();
}

/* dq += dS k of STEP queries and a block's ROWS keys, whose dS^T lies in shared memory: a warp has
   16 of the queries by C columns. */
template <int P, int ROWS, int STEP, int M, class E> HETC_DEVICE void hetc_dq_add(float *dq, E *ds, E *keys) {
    enum { GROUPS = STEP / 16, C = P * GROUPS * 16 * M / ROWS };
    const int own = hetc_warp() % GROUPS * 16, column = hetc_warp() / GROUPS * C;
    hetc_accumulator<C, 1> x;
    hetc_mix_turned<P, ROWS, STEP, C>(x, ds, own, keys + column);
    hetc_done<E, C>(x);
    dq += own * P + column * 16;
    HETC_UNROLL
    for (int i = 0; i < C / 2; i++) atomicAdd(dq + 32 * i, x[i / 4][0][i % 4]);
}

/* 16 rows of a head a warp: before keys' blocks zeros and t.statistic, behind them (LAST) dq. */
template <class E, int P, int LAST> HETC_KERNEL hetc_dq_rows_kernel(hetc_attention<E> t) {
    const int head = (int)blockIdx.y, begin = 16 * (int)hetc_warp_row();
    float *const from = hetc_dq_rows<P>(t, head, begin);
    hetc_accumulator<P, 1> dq;
    if (begin >= t.dq_rows) return;
    HETC_UNROLL
    for (int i = 0; i < P / 2; i++) {
        if (LAST) dq[i / 4][0][i % 4] = from[32 * i];
        else from[32 * i] = 0.0f;
    }
    HETC_UNROLL
    for (int r = 0; r < 2; r++) {
        const int row = begin + hetc_lane() / 4 + 8 * r;
        float shift, delta;
        hetc_run seen;
        if (!LAST) hetc_statistics(t, head, row, shift, delta, seen);
        else if (row < t.rows)
            hetc_rows_put<P, 1>(t.a.dq, (int64_t)row * t.dq_row + head * t.a.head_size, t.bf16, dq, r,
                                (int)t.a.head_size, t.a.scale, false);
    }
}

/* dk += dS^T (scale q), dv += P^T do over the STEP queries from `at` on: rows are the warp's 16 M
   keys, columns queries. statistic: [2][STEP]; seen: the queries of the lane's keys, every eighth,
   in shared memory, since registers are scarce here. DQ: also dq += dS k, which begins with these
   queries', by way of a tile [ROWS][STEP] of dS^T. */
template <class E, int P, int ROWS, int STEP, int M, int DQ>
HETC_DEVICE void hetc_keys_step(hetc_accumulator<P, M> &dk, hetc_accumulator<P, M> &dv,
                                const hetc_left<E, P, M, (M > 1)> &keys, E *values, E *q, E *d_o,
                                const float *statistic, float factor, int at, const hetc_run *seen, float *dq,
                                E *turned, E *tile) {
    hetc_left<E, P, M, false> left;
    hetc_accumulator<STEP, M> p;
    hetc_scores<P, STEP>(p, keys, q);
    hetc_accumulator<STEP, M> ds;
    left.load(values, 16 * M * hetc_warp());
    hetc_scores<P, STEP>(ds, left, d_o);
    hetc_done<E, STEP, 1>(p);
    hetc_hide<STEP, M>(p, at, seen, 8);
    HETC_UNROLL
    for (int n = 0; n < STEP / 8; n++) { /* the two queries of a column's pair, for all of the lane's keys */
        const hetc_pack<float, 2> shift = hetc_get<2>(statistic + 8 * n + hetc_lane() % 4 * 2);
        HETC_UNROLL
        for (int e = 0; e < 4 * M; e++)
            p[n][e / 4][e % 4] = hetc_exp_shifted<E>(p[n][e / 4][e % 4], shift.v[e % 2], factor);
    }
    if constexpr (hetc_kind<E>::WIDE) hetc_mix<P, STEP, M>(dv, p, d_o); /* goes on while dS is made */
    hetc_done<E, STEP, 1>(ds);
    HETC_UNROLL
    for (int n = 0; n < STEP / 8; n++) {
        const hetc_pack<float, 2> delta = hetc_get<2>(statistic + STEP + 8 * n + hetc_lane() % 4 * 2);
        HETC_UNROLL
        for (int e = 0; e < 4 * M; e++)
            ds[n][e / 4][e % 4] = p[n][e / 4][e % 4] * (ds[n][e / 4][e % 4] - delta.v[e % 2]);
    }
    if constexpr (!hetc_kind<E>::WIDE) hetc_mix<P, STEP, M>(dv, p, d_o);
    if constexpr (DQ) hetc_tile_put<E, STEP, M>(turned, ds);
    hetc_mix<P, STEP, M>(dk, ds, q);
    if constexpr (DQ) {
        __syncthreads(); /* all of dS is there; the next one is behind the loop's barrier */
        hetc_dq_add<P, ROWS, STEP, M>(dq, turned, tile);
    }
    hetc_done<E, P>(dv);
    hetc_done<E, P>(dk);
}

/* The gradients of keys and values: the heads of the group one after the other. DQ: t.dq as well,
   in steps that begin at multiples of STEP. */
template <class E, int P, int ROWS, int STEP, int M, int DQ>
static __global__ void __launch_bounds__(2 * ROWS / M, hetc_tiles<E, P>::KEY_BLOCKS)
hetc_attention_keys_kernel(hetc_attention<E> t) {
    HETC_SHARED_BYTES(bytes);
    enum { PITCH = hetc_tile<E, P>::PITCH, THREADS = 2 * ROWS / M, WHOLE = DQ ? STEP : 1 };
    E *const keys = reinterpret_cast<E *>(bytes), *const values = keys + ROWS * PITCH,
        *const queries = values + ROWS * PITCH;
    E *const outputs = queries + 2 * STEP * PITCH, *const ds = outputs + 2 * STEP * PITCH;
    float *const statistics = reinterpret_cast<float *>(ds + DQ * ROWS * hetc_tile<E, STEP>::PITCH); /* [2][2][STEP] */
    hetc_run *const seen = reinterpret_cast<hetc_run *>(statistics + 4 * STEP); /* [ROWS] */
    const int kv_head = (int)blockIdx.y, own = 16 * M * hetc_warp(), begin = (int)blockIdx.x * ROWS,
              group = (int)(t.a.heads / t.a.kv_heads);
    const int first = hetc_queries_of(t, begin).first / WHOLE * WHOLE,
              last = hetc_queries_of(t, hetc_min(begin + ROWS, t.keys) - 1).last;
    hetc_accumulator<P, M> dk = {}, dv = {};
    hetc_left<E, P, M, (M > 1)> held;
    int head = kv_head * group, at = first, to = 0;
    const int end = last > first ? head + group : head;
    const auto fetch = [&](int of, int next) {
        hetc_queries_fetch<E, P, STEP, THREADS>(queries + to * STEP * PITCH, outputs + to * STEP * PITCH, t, of, next);
        hetc_statistics_fetch<E, STEP>(statistics + to * 2 * STEP, t, next, of);
        hetc_copy_commit();
    };
    if (head < end) {
        hetc_keys_fetch<E, P, ROWS, THREADS>(keys, values, t, kv_head * t.line, begin);
        fetch(head, at);
    }
    if (threadIdx.x < ROWS) {
        hetc_run run = { 0, 0 };
        if (begin + (int)threadIdx.x < t.keys) run = hetc_queries_of(t, begin + (int)threadIdx.x);
        seen[threadIdx.x] = run;
    }
    hetc_tiles_wait<E>();
    __syncthreads();
    if (head < end) held.load(keys, own);
    HETC_ROLLED
    while (head < end) { /* fetches the next queries, uses those from `at` on of head `head` */
        const int from = to * STEP, now = at;
        float *const dq = DQ ? hetc_dq_rows<P>(t, head, at) : NULL;
        hetc_tiles_wait<E>();
        __syncthreads();
        to ^= 1;
        at += STEP;
        if (at >= last) { at = first; head++; }
        if (head < end) fetch(head, at);
        hetc_keys_step<E, P, ROWS, STEP, M, DQ>(dk, dv, held, values, queries + from * PITCH, outputs + from * PITCH,
                                                statistics + 2 * from, t.factor, now, seen + own + hetc_lane() / 4,
                                                dq, ds, keys);
    }
    HETC_UNROLL
    for (int r = 0; r < 2 * M; r++) {
        const int key = begin + own + hetc_lane() / 4 + 8 * r, size = (int)t.a.head_size;
        const int64_t to_key = (int64_t)(t.key_begin + key) * t.dk_row + kv_head * size;
        if (key >= t.keys || (last <= first && !t.bf16)) continue;
        hetc_rows_put<P, M>(t.a.dk, to_key, t.bf16, dk, r, size, t.scale, true);
        hetc_rows_put<P, M>(t.a.dv, to_key, t.bf16, dv, r, size, 1.0f, true);
    }
}

/* ---- the host's side ---- */

/* to[line][P] = from[line][size] scale, then zeros; a line is a row and head. V divides size. */
template <class E, int P, int V> HETC_KERNEL hetc_heads_pack_kernel(E *to, const float *from, int64_t lines, int size,
                                                                    float scale) {
    const int64_t i = hetc_index(), line = i / (P / V);
    const int column = (int)(i % (P / V)) * V;
    hetc_pack<float, V> x;
    hetc_pack<E, V> y;
    if (line >= lines) return;
    for (int j = 0; j < V; j++) x.v[j] = 0.0f;
    if (column < size) x = hetc_get<V>(from + line * size + column);
    for (int j = 0; j < V; j++) y.v[j] = hetc_element<E>(x.v[j] * scale);
    hetc_put(to + line * P + column, y);
}

template <class E, int P>
static het_result hetc_heads_pack(void *self, het_queue *queue, E *to, const float *from, int64_t lines, int64_t size,
                                  float scale) {
    const int packs = hetc_packs(size, from);
    void (*const pack)(E *, const float *, int64_t, int, float) = packs ? hetc_heads_pack_kernel<E, P, 4> :
                                                                  hetc_heads_pack_kernel<E, P, 1>;
    return HETC_LAUNCH(self, queue, pack, hetc_spread(lines * P, packs), HETC_THREADS, 0, to, from, lines, (int)size,
                       scale);
}

/* Rows of dq's sums by atomics: the slice's, up to whole steps of any kind; 0: there are none. */
static int64_t hetc_dq_padded(void *self, const het_view *view, int backward) {
    return backward && hetc_allows_atomic(self) ? hetc_ceil_div(view->row_end - view->row_begin, 64) * 64 : 0;
}

/* First key that a query of the slice sees. */
static int64_t hetc_first_key(const het_attention_args *a) {
    const het_view *view = a->view;
    /* the sequence of the slice's first row: start[low] <= row < start[high] */
    int64_t low = 0, high = view->sequences;
    if (!a->causal) return 0;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (view->host_sequence_start[middle] <= view->row_begin) low = middle;
        else high = middle;
    }
    const int64_t first = view->host_sequence_start[low], behind = view->row_begin - (a->window - 1);
    return a->window > 0 && behind > first ? behind : first;
}

/* What the kernels read where it is bf16 already, or the pieces of workspace it is packed into. */
template <class E, int P> static het_result hetc_attention_operands(void *self, het_queue *queue, int backward,
                                                                    hetc_attention<E> *t) {
    const het_attention_args *a = &t->a;
    const int64_t lines = t->keys * a->kv_heads, queries = t->rows * a->heads;
    const int64_t q_row = a->pitch != 0 ? a->pitch : a->heads * a->head_size,
                  k_row = a->pitch != 0 ? a->pitch : a->kv_heads * a->head_size, offset = t->key_begin * k_row;
    E *const k = static_cast<E *>(a->workspace), *const v = k + lines * P, *const q = v + lines * P;
    E *const d_o = q + queries * P;
    t->dq = reinterpret_cast<float *>(t->bf16 ? k : d_o + queries * P);
    t->statistic = t->dq + t->dq_rows * a->heads * P;
    t->q_row = t->dq_row = (int)q_row;
    t->k_row = t->dk_row = (int)k_row;
    t->scale = t->bf16 ? a->scale : 1.0f;
    t->factor = t->scale * HETC_LOG2_E;
    t->line = t->bf16 ? (int)a->head_size : P;
    if (t->bf16) {
        t->q = reinterpret_cast<const E *>(a->q);
        t->k = reinterpret_cast<const E *>(a->k) + offset;
        t->v = reinterpret_cast<const E *>(a->v) + offset;
        t->d_o = reinterpret_cast<const E *>(a->d_o);
        return HET_OK;
    }
    t->q = backward ? q : NULL;
    t->k = k;
    t->v = v;
    t->d_o = d_o;
    t->q_row = (int)a->heads * P;
    t->k_row = (int)a->kv_heads * P;
    HETC_TRY((hetc_heads_pack<E, P>(self, queue, k, a->k + offset, lines, a->head_size, 1.0f)));
    HETC_TRY((hetc_heads_pack<E, P>(self, queue, v, a->v + offset, lines, a->head_size, 1.0f)));
    if (!backward) return HET_OK;
    HETC_TRY((hetc_heads_pack<E, P>(self, queue, q, a->q, queries, a->head_size, a->scale)));
    return hetc_heads_pack<E, P>(self, queue, d_o, a->d_o, queries, a->head_size, 1.0f);
}

template <class E, int P> static het_result hetc_attention_run(void *self, het_queue *queue,
                                                               const het_attention_args *a, int32_t bf16,
                                                               int backward) {
    typedef hetc_tiles<E, P> tiles;
    const size_t row_bytes = hetc_tile<E, P>::PITCH * sizeof(E);
    const int64_t rows = a->view->row_end - a->view->row_begin, key_begin = hetc_first_key(a),
                  keys = a->view->row_end - key_begin;
    hetc_attention<E> t;
    t.a = hetc_without_view(a);
    /* sees the same, and counts as an int */
    if (a->window > 2 * a->view->tokens + 2) t.a.window = 2 * a->view->tokens + 2;
    t.sequence_of = a->view->sequence_of;
    t.sequence_start = a->view->sequence_start;
    t.rows = (int)rows;
    t.keys = (int)keys;
    t.row_begin = (int)a->view->row_begin;
    t.row_end = (int)a->view->row_end;
    t.key_begin = (int)key_begin;
    t.dq_rows = (int)hetc_dq_padded(self, a->view, backward);
    t.bf16 = bf16 != 0;
    HETC_TRY((hetc_attention_operands<E, P>(self, queue, backward, &t)));
    const unsigned threads = 2 * (backward ? tiles::BACKWARD : tiles::FORWARD) / tiles::M;
    if (!backward)
        return HETC_LAUNCH(self, queue, (hetc_attention_forward_kernel<E, P, tiles::FORWARD, tiles::STEP, tiles::M>),
                           hetc_grid(hetc_ceil_div(rows, tiles::FORWARD), a->heads), threads,
                           (tiles::FORWARD + 4 * tiles::STEP) * row_bytes, t);
    enum { ROWS = tiles::BACKWARD, STEP = tiles::BACKWARD_STEP };
    const size_t shared = (2 * ROWS + 4 * STEP) * row_bytes, turned = ROWS * hetc_tile<E, STEP>::PITCH * sizeof(E);
    const int atomic = t.dq_rows > 0;
    const dim3 row_blocks = hetc_warps(t.dq_rows / 16, a->heads); /* none but for these */
    void (*const keys_kernel)(hetc_attention<E>) =
        atomic ? hetc_attention_keys_kernel<E, P, ROWS, STEP, tiles::M, 1> :
                 hetc_attention_keys_kernel<E, P, ROWS, STEP, tiles::M, 0>;
    HETC_TRY(HETC_LAUNCH(self, queue, (hetc_dq_rows_kernel<E, P, 0>), row_blocks, HETC_THREADS, 0, t));
    HETC_TRY(HETC_LAUNCH(self, queue, (hetc_attention_queries_kernel<E, P, ROWS, STEP, tiles::M>),
                         hetc_grid(atomic ? 0 : hetc_ceil_div(rows, ROWS), a->heads), threads, shared, t));
    HETC_TRY(HETC_LAUNCH(self, queue, keys_kernel, hetc_grid(hetc_ceil_div(keys, ROWS), a->kv_heads), threads,
                         shared + 4 * STEP * sizeof(float) + ROWS * sizeof(hetc_run) + (atomic ? turned : 0), t));
    return HETC_LAUNCH(self, queue, (hetc_dq_rows_kernel<E, P, 1>), row_blocks, HETC_THREADS, 0, t);
}

/* The P of a head: what the kernels are made for. */
static int64_t hetc_padded_head(het_dtype compute, int64_t size) {
    return size <= 64 ? 64 : size <= 96 && compute == HET_BF16 ? 96 : 128;
}

static size_t hetc_attention_workspace(void *self, const het_attention_args *a, int32_t bf16, int backward) {
    const size_t element = a->compute == HET_BF16 ? sizeof(uint16_t) : sizeof(float);
    const size_t padded = (size_t)hetc_padded_head(a->compute, a->head_size), size = padded * element;
    const size_t rows = (size_t)(a->view->row_end - a->view->row_begin), keys = (size_t)a->view->row_end;
    const size_t queries = rows * (size_t)a->heads;
    const size_t sums = (size_t)hetc_dq_padded(self, a->view, backward) * (size_t)a->heads * padded,
                 statistics = (sums + (backward ? 2 * queries : 0)) * sizeof(float);
    if (bf16) return statistics;
    return 2 * keys * (size_t)a->kv_heads * size + (backward ? 2 * queries * size : 0) + statistics;
}

static het_result hetc_attend(void *self, het_queue *queue, const het_attention_args *a, int32_t bf16, int backward) {
    const int64_t rows = a->view->row_end - a->view->row_begin, size = a->head_size;
    char text[128];
    const int whole = a->view->row_begin == 0 && a->view->row_end == a->view->tokens,
              heads = a->kv_heads > 0 && a->heads > 0 && a->heads % a->kv_heads == 0 && size > 0;
    HETC_TRY(hetc_shape(self, "attention", heads && a->window >= 0 && a->view->tokens <= INT32_MAX / 8 &&
                        (whole || (a->causal && !(bf16 && backward))) &&
                        (!bf16 || (a->compute == HET_BF16 && hetc_packs(size / 2, a->q, a->k, a->v, a->o, a->d_o))) &&
                        (a->pitch == 0 || (bf16 && a->pitch % 8 == 0 && a->pitch <= INT32_MAX)), rows,
                        a->heads * size, __LINE__));
    if (size > 128) {
        snprintf(text, sizeof text, "attention: head size %lld, the limit is 128", (long long)size);
        return hetc_fail(self, cudaErrorInvalidValue, text, __FILE__, __LINE__);
    }
    if (a->workspace_size < hetc_attention_workspace(self, a, bf16, backward)) {
        snprintf(text, sizeof text, "attention: workspace of %zu bytes, %zu needed", a->workspace_size,
                 hetc_attention_workspace(self, a, bf16, backward));
        return hetc_fail(self, cudaErrorInvalidValue, text, __FILE__, __LINE__);
    }
    if (rows == 0) return HET_OK;
    if (a->compute == HET_BF16) {
        const int wide = bf16 != 0 && hetc_has_wide(self);
        if (size <= 64 && wide) return hetc_attention_run<hetc_wide, 64>(self, queue, a, bf16, backward);
        if (size > 96 && wide) return hetc_attention_run<hetc_wide, 128>(self, queue, a, bf16, backward);
        if (size <= 64) return hetc_attention_run<uint16_t, 64>(self, queue, a, bf16, backward);
        if (size <= 96) return hetc_attention_run<uint16_t, 96>(self, queue, a, bf16, backward);
        return hetc_attention_run<uint16_t, 128>(self, queue, a, bf16, backward);
    }
    if (hetc_allows_tf32(self) && size <= 64) return hetc_attention_run<hetc_tf32, 64>(self, queue, a, bf16, backward);
    if (hetc_allows_tf32(self)) return hetc_attention_run<hetc_tf32, 128>(self, queue, a, bf16, backward);
    if (size <= 64) return hetc_attention_run<float, 64>(self, queue, a, bf16, backward);
    return hetc_attention_run<float, 128>(self, queue, a, bf16, backward);
}

/* Every op but the linear ones and copies. */
static het_result hetc_rows_op(void *self, het_queue *queue, const het_op *op) {
    switch (op->kind) {
    case HET_OP_NORM_FORWARD: return hetc_norm_rows(self, queue, &op->u.norm, op->bf16, 0);
    case HET_OP_NORM_BACKWARD_INPUT: return hetc_norm_rows(self, queue, &op->u.norm, op->bf16, 1);
    case HET_OP_NORM_BACKWARD_WEIGHT: return hetc_norm_backward_weight(self, queue, &op->u.norm, op->bf16, 0);
    case HET_OP_NORM_BACKWARD: return hetc_norm_backward_weight(self, queue, &op->u.norm, op->bf16, 1);
    case HET_OP_ROTARY_FORWARD: return hetc_rotary(self, queue, &op->u.rotary, op->bf16 & HET_BF16_X, 1.0f);
    case HET_OP_ROTARY_BACKWARD: return hetc_rotary(self, queue, &op->u.rotary, op->bf16 & HET_BF16_X, -1.0f);
    case HET_OP_ATTENTION_FORWARD: return hetc_attend(self, queue, &op->u.attention, op->bf16, 0);
    case HET_OP_ATTENTION_BACKWARD: return hetc_attend(self, queue, &op->u.attention, op->bf16, 1);
    case HET_OP_ACTIVATION_FORWARD: return hetc_activate(self, queue, &op->u.activation, op->bf16 & HET_BF16_X, 0);
    case HET_OP_ACTIVATION_BACKWARD: return hetc_activate(self, queue, &op->u.activation, op->bf16 & HET_BF16_X, 1);
    case HET_OP_EMBEDDING_FORWARD: return hetc_embedding_forward(self, queue, &op->u.embedding, op->bf16);
    case HET_OP_EMBEDDING_BACKWARD_WEIGHT:
        return hetc_embedding_backward_weight(self, queue, &op->u.embedding, op->bf16);
    case HET_OP_DROPOUT_FORWARD: return hetc_dropout(self, queue, &op->u.dropout, op->bf16, 0);
    case HET_OP_DROPOUT_BACKWARD: return hetc_dropout(self, queue, &op->u.dropout, op->bf16, 1);
    case HET_OP_CROSS_ENTROPY: return hetc_cross_entropy(self, queue, &op->u.cross_entropy, op->bf16);
    case HET_OP_ACCUMULATE: return hetc_accumulate(self, queue, &op->u.accumulate);
    case HET_OP_SUM_SQUARES: return hetc_sum_squares(self, queue, &op->u.sum_squares);
    case HET_OP_VERDICT: return hetc_verdict(self, queue, &op->u.verdict);
    case HET_OP_ADAMW: return hetc_adamw(self, queue, &op->u.adamw);
    case HET_OP_MUON_MOMENTUM: return hetc_muon(self, queue, &op->u.muon, 0);
    case HET_OP_MUON_UPDATE: return hetc_muon(self, queue, &op->u.muon, 1);
    case HET_OP_FEEDBACK: return hetc_feedback(self, queue, &op->u.feedback);
    case HET_OP_ADD: return hetc_add(self, queue, &op->u.elements, op->bf16);
    case HET_OP_SCALE: return hetc_scale(self, queue, &op->u.elements);
    case HET_OP_ROUND: return hetc_to_bf16(self, queue, op->u.elements.y, op->u.elements.x, op->u.elements.count);
    case HET_OP_EXPAND: return hetc_expand(self, queue, &op->u.expand);
    default: return HET_ERR_UNSUPPORTED;
    }
}

/* Their workspace. */
static size_t hetc_rows_workspace(void *self, const het_op *op) {
    if (op->kind == HET_OP_NORM_BACKWARD_WEIGHT || op->kind == HET_OP_NORM_BACKWARD)
        return hetc_columns_workspace(op->u.norm.rows, op->u.norm.width, HETC_NORM_CHUNK);
    if (op->kind == HET_OP_EMBEDDING_BACKWARD_WEIGHT) return 4 * (size_t)op->u.embedding.rows * sizeof(uint64_t);
    if (op->kind == HET_OP_ATTENTION_FORWARD || op->kind == HET_OP_ATTENTION_BACKWARD)
        return hetc_attention_workspace(self, &op->u.attention, op->bf16, op->kind == HET_OP_ATTENTION_BACKWARD);
    return 0;
}

#ifndef HETC_KERNELS_ONLY
/* -------------------------------------------------------------------------------------------------
   >>cu_device  State, memory, queues, events.

   A queue is a stream. Copies between host and device go through pinned memory of the queue, in
   pieces: a host function moves a piece to or from the user's buffer, in the stream's own order, so
   that no call waits and a buffer belongs to the copy until an event behind it has happened
   (>>device_api). The host waits in event_sync alone, which asks again and again and gives up at
   its deadline.
   After the first error of a device nothing is copied to or from the host any more: its buffers may
   go.
   Host and card copy in turns: to overlap, pieces would want a second stream, and events for their
   order. Memory is pinned with the queue, since ops allocate nothing.
   ---------------------------------------------------------------------------------------------- */
#include <chrono>
#include <thread>

#define HETC_STAGING (size_t(4) << 20) /* bytes of pinned memory a queue */
#define HETC_COPIES 1024               /* pieces under way in a queue */
#define HETC_PATIENCE 600.0            /* seconds a full queue is waited for, or one whose memory is given back */
#define HETC_LAST_PATIENCE 5.0         /* the same behind an error */

typedef struct hetc_device hetc_device;
typedef struct hetc_queue hetc_queue;

typedef struct hetc_copy {  /* a piece: what the host function needs */
    hetc_queue *queue;
    char *host, *staging, *device; /* device NULL: a piece that comes from it */
    size_t size;
    uint64_t run;           /* of the first: pieces that the host function moves */
} hetc_copy;

struct hetc_queue {
    hetc_device *device;
    cudaStream_t stream;
    char *staging;          /* [HETC_STAGING] pinned */
    unsigned *counters;     /* [HETC_COUNTERS], 0 between kernels */
    int32_t taken;          /* the device's own queue: queue_create has given it out */
    uint64_t issued, done;  /* pieces; done is the host function's */
    uint64_t waiting;       /* the last of those issued, all in one direction: one host function will move them */
    size_t staged;          /* bytes of staging that these take */
    int32_t lost;           /* pieces that could not be given to the stream */
    hetc_copy copy[HETC_COPIES];
};

#define HETC_WORKS 128 /* ops and shapes of HET_CUDA_OPS; more are left out */
/* Algorithms of a product: how many, milliseconds of the first and of the fastest where timed. */
typedef struct hetc_found { int32_t count; float first, best; } hetc_found;
typedef struct hetc_work {
    int32_t kind, bf16;     /* het_op_kind, HET_BF16_* */
    int64_t shape[3];
    int64_t calls, launches, rounded;
    double ms, least, bytes, flops; /* least: milliseconds of the fastest call */
    hetc_found found;       /* of its first product */
} hetc_work;

#define HETC_PRODUCTS 1024 /* places of the table of products, a power of two */

struct hetc_device {
    het_allocator allocator;
    int32_t ordinal, options;     /* HET_CUDA_* */
    int32_t part_first, part_end; /* its multiprocessors; 0, 0: all of them */
    CUgreenCtx part;
    decltype(&cuGreenCtxDestroy) drop_part;
    int32_t shared;               /* bytes of shared memory a block may ask for */
    int32_t wide;                 /* products of four warps (hetc_wide) are compiled in for this card */
    int32_t capturing;            /* between capture_begin and capture_end */
    int32_t left;                 /* some queue was left to the process's end, and with it what its copies ask */
    int32_t failed, copying;      /* atomic: no copy with the host starts any more; so many are under way */
    hetc_queue *queue;            /* of those who give none, and of the first who asks for one */
    cublasLtHandle_t blas;
    cublasLtMatmulPreference_t preference;
    cudaEvent_t begin, end;       /* HET_CUDA_TIMED, HET_CUDA_OPS */
    int64_t launches, rounded;    /* kernels and products given to streams; matrices rounded to bf16 */
    int64_t works;
    hetc_work *work;              /* [HETC_WORKS] */
    struct hetc_product *product; /* [HETC_PRODUCTS] */
    hetc_found found;             /* of the first product of an op; count 0: it has had none */
    int64_t products;
    char text[232];
};

static hetc_device *hetc_self(void *self) { return static_cast<hetc_device *>(self); }

static size_t hetc_shared_limit(void *self) { return static_cast<size_t>(hetc_self(self)->shared); }
static int hetc_has_wide(void *self) { return hetc_self(self)->wide; }
static int hetc_allows_tf32(void *self) { return (hetc_self(self)->options & HET_CUDA_TF32) != 0; }
static int hetc_allows_atomic(void *self) { return (hetc_self(self)->options & HET_CUDA_ATOMIC) != 0; }

static const char *hetc_base_name(const char *file) {
    const char *slash = strrchr(file, '/');
    return slash != nullptr ? slash + 1 : file;
}

/* No copy with the host is under way when this returns, and none will be. */
static void hetc_stop_copies(hetc_device *device) {
    __atomic_store_n(&device->failed, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&device->copying, __ATOMIC_SEQ_CST) != 0) std::this_thread::yield();
}

/* Keeps the text for last_error. `what` is the call. */
static void hetc_note(hetc_device *device, cudaError_t code, const char *what, const char *file, int line) {
    (void)cudaGetLastError(); /* it is told here */
    snprintf(device->text, sizeof device->text, "cuda:%d, %s: %s (%s), %s:%d", static_cast<int>(device->ordinal), what,
             cudaGetErrorName(code), cudaGetErrorString(code), hetc_base_name(file), line);
}

static het_result hetc_fail(void *self, cudaError_t code, const char *what, const char *file, int line) {
    hetc_note(hetc_self(self), code, what, file, line);
    hetc_stop_copies(hetc_self(self));
    return HET_ERR_DEVICE;
}

static het_result hetc_fail_blas(hetc_device *device, cublasStatus_t status, const char *what, const char *file,
                                 int line) {
    snprintf(device->text, sizeof device->text, "cuda:%d, %s: %s (%s), %s:%d", static_cast<int>(device->ordinal), what,
             cublasLtGetStatusName(status), cublasLtGetStatusString(status), hetc_base_name(file), line);
    hetc_stop_copies(device);
    return HET_ERR_DEVICE;
}

/* HETC_CUDA(device, cudaFree, (pointer)): passes an error on, with the call's name. */
#define HETC_CUDA(device, call, arguments) do { const cudaError_t hetc_code = call arguments; \
    if (hetc_code != cudaSuccess) return hetc_fail((device), hetc_code, #call, __FILE__, __LINE__); } while (0)
/* A function of the driver, and HETC_CUDA of it: its errors have the runtime's numbers. */
#define HETC_ENTRY(device, entry, call) do { void **const hetc_entry = reinterpret_cast<void **>(entry); \
    HETC_CUDA(device, cudaGetDriverEntryPointByVersion, (#call, hetc_entry, 12050, cudaEnableDefault)); \
    if (*hetc_entry == nullptr) \
        return hetc_fail((device), cudaErrorCallRequiresNewerDriver, #call, __FILE__, __LINE__); } while (0)
#define HETC_DRIVER(device, call, arguments) do { decltype(&call) hetc_call = nullptr; \
    HETC_ENTRY(device, &hetc_call, call); \
    const cudaError_t hetc_made = static_cast<cudaError_t>(hetc_call arguments); \
    if (hetc_made != cudaSuccess) return hetc_fail((device), hetc_made, #call, __FILE__, __LINE__); } while (0)
#define HETC_BLAS(device, call, arguments) do { const cublasStatus_t hetc_status = call arguments; \
    if (hetc_status != CUBLAS_STATUS_SUCCESS) \
        return hetc_fail_blas((device), hetc_status, #call, __FILE__, __LINE__); } while (0)

static hetc_queue *hetc_queue_of(void *self, het_queue *queue) {
    return queue != nullptr ? reinterpret_cast<hetc_queue *>(queue) : hetc_self(self)->queue;
}

/* The stream to launch on. hetc_op has made its device the thread's own. */
static cudaStream_t hetc_stream(void *self, het_queue *queue) {
    hetc_self(self)->launches++;
    return hetc_queue_of(self, queue)->stream;
}
static unsigned *hetc_counters(void *self, het_queue *queue) { return hetc_queue_of(self, queue)->counters; }

/* Asks again and again whether it is done: at first at once, then with pauses of up to 50 us.
   False: not after `seconds`. */
template <class F> static bool hetc_wait(double seconds, F done) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t asked = 1; !done(); asked++) {
        if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds) return false;
        if (asked < 200) std::this_thread::yield();
        else std::this_thread::sleep_for(std::chrono::microseconds(asked < 1000 ? 5 : 50));
    }
    return true;
}

/* A query's answer. */
static cudaError_t hetc_answer(cudaError_t code) {
    (void)cudaGetLastError(); /* "not ready" is no error */
    return code;
}

/* ---- copies with the host ---- */

/* A run of pieces, for which the stream stops once. Behind an error the host's memory may be gone,
   and kernels that still run find zeros, which are tokens. */
static void hetc_run_copies(void *user) {
    const hetc_copy *first = static_cast<const hetc_copy *>(user);
    hetc_queue *queue = first->queue;
    const uint64_t run = first->run, place = static_cast<uint64_t>(first - queue->copy);
    __atomic_fetch_add(&queue->device->copying, 1, __ATOMIC_SEQ_CST);
    for (uint64_t i = 0; i < run; i++) {
        const hetc_copy *copy = &queue->copy[(place + i) % HETC_COPIES];
        if (__atomic_load_n(&queue->device->failed, __ATOMIC_SEQ_CST) != 0) memset(copy->staging, 0, copy->size);
        else if (copy->device != nullptr) memcpy(copy->staging, copy->host, copy->size);
        else memcpy(copy->host, copy->staging, copy->size);
    }
    __atomic_fetch_sub(&queue->device->copying, 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&queue->done, run, __ATOMIC_RELEASE);
}

/* Gives the pieces that wait to the stream, before anything else is. Behind an error they are
   lost. */
static het_result hetc_flush(hetc_queue *queue) {
    const uint64_t run = queue->waiting, first = queue->issued - run;
    hetc_copy *const copy = queue->copy;
    if (run == 0) return queue->lost ? HET_ERR_DEVICE : HET_OK;
    queue->waiting = 0;
    queue->staged = 0;
    queue->lost = 1;
    if (__atomic_load_n(&queue->device->failed, __ATOMIC_SEQ_CST) != 0) queue->issued = first;
    if (queue->issued == first) return HET_ERR_DEVICE;
    copy[first % HETC_COPIES].run = run;
    HETC_CUDA(queue->device, cudaLaunchHostFunc, (queue->stream, hetc_run_copies, &copy[first % HETC_COPIES]));
    for (uint64_t i = first; i < queue->issued && copy[first % HETC_COPIES].device != nullptr; i++)
        HETC_CUDA(queue->device, cudaMemcpyAsync, (copy[i % HETC_COPIES].device, copy[i % HETC_COPIES].staging,
                                                   copy[i % HETC_COPIES].size, cudaMemcpyHostToDevice, queue->stream));
    queue->lost = 0;
    return HET_OK;
}

/* Waits until a place for a piece is free: never, unless HETC_COPIES are under way. */
static het_result hetc_await_place(hetc_queue *queue) {
    cudaError_t code = cudaSuccess;
    const bool ended = hetc_wait(HETC_PATIENCE, [&] {
        if (queue->issued - __atomic_load_n(&queue->done, __ATOMIC_ACQUIRE) < HETC_COPIES) return true;
        code = hetc_answer(cudaStreamQuery(queue->stream));
        return code != cudaSuccess && code != cudaErrorNotReady;
    });
    if (!ended) return hetc_fail(queue->device, code, "waiting for earlier copies", __FILE__, __LINE__);
    if (code == cudaSuccess || code == cudaErrorNotReady) return HET_OK;
    return hetc_fail(queue->device, code, "cudaStreamQuery", __FILE__, __LINE__);
}

/* `in`: to the device; else from it. */
static het_result hetc_copy_staged(void *self, het_queue *queue, const het_copy_args *a, int in) {
    hetc_queue *q = hetc_queue_of(self, queue);
    char *host = const_cast<char *>(static_cast<const char *>(in ? a->from : a->to)),
         *device = const_cast<char *>(static_cast<const char *>(in ? a->to : a->from));
    if (q->device->capturing) /* a graph would take it, and use its place among the pieces for ever */
        return hetc_fail(self, cudaErrorStreamCaptureUnsupported, "a copy with the host", __FILE__, __LINE__);
    for (size_t done = 0, piece; done < a->size; done += piece) {
        piece = a->size - done < HETC_STAGING ? a->size - done : HETC_STAGING;
        if (q->staged + piece > HETC_STAGING || q->waiting == HETC_COPIES / 2 ||
            (q->waiting > 0 && (q->copy[(q->issued - 1) % HETC_COPIES].device != nullptr) != in))
            HETC_TRY(hetc_flush(q));
        HETC_TRY(hetc_await_place(q));
        hetc_copy *copy = &q->copy[q->issued % HETC_COPIES];
        *copy = { q, host + done, q->staging + q->staged, in ? device + done : nullptr, piece, 0 };
        if (!in) HETC_CUDA(self, cudaMemcpyAsync, (copy->staging, device + done, piece, cudaMemcpyDeviceToHost,
                                                   q->stream));
        q->issued++;
        q->waiting++;
        q->staged += (piece + 63) / 64 * 64;
    }
    return HET_OK;
}

/* ---- memory ---- */

/* Waits until nothing on the queue is under way; 0: it does not end. An error that comes twice is
   the stream's end: nothing more runs on it. */
static int hetc_drain(hetc_queue *queue) {
    int errors = 0;
    (void)hetc_flush(queue);
    return hetc_wait(queue->device->failed ? HETC_LAST_PATIENCE : HETC_PATIENCE, [&] {
        const cudaError_t code = hetc_answer(cudaStreamQuery(queue->stream));
        return code == cudaSuccess || (code != cudaErrorNotReady && ++errors == 2);
    });
}

/* The context may go on without this memory, so that an error here stops nothing. */
static void *hetc_alloc(void *self, size_t size) {
    hetc_device *device = hetc_self(self);
    void *pointer = nullptr;
    const cudaError_t set = cudaSetDevice(device->ordinal),
                      code = set == cudaSuccess ? cudaMalloc(&pointer, size) : set;
    if (code == cudaSuccess) return pointer;
    hetc_note(device, code, set == cudaSuccess ? "cudaMalloc" : "cudaSetDevice", __FILE__, __LINE__);
    return nullptr;
}

/* cudaFree waits for the card without a deadline. Where that would be for ever, the memory is left
   to the process's end. */
static void hetc_free(void *self, void *pointer, size_t size) {
    (void)size;
    (void)cudaSetDevice(hetc_self(self)->ordinal);
    if (hetc_drain(hetc_self(self)->queue)) (void)cudaFree(pointer);
}

static het_result hetc_copy_within(void *self, het_queue *queue, const het_copy_args *a) {
    const cudaStream_t stream = hetc_queue_of(self, queue)->stream;
    if (a->size == 0 || a->to == a->from) return HET_OK;
    if (a->rows > 1)
        HETC_CUDA(self, cudaMemcpy2DAsync, (a->to, a->to_step, a->from, a->from_step, a->size, a->rows,
                                            cudaMemcpyDeviceToDevice, stream));
    else HETC_CUDA(self, cudaMemcpyAsync, (a->to, a->from, a->size, cudaMemcpyDeviceToDevice, stream));
    return HET_OK;
}

static het_result hetc_clear(void *self, het_queue *queue, const het_copy_args *a) {
    if (a->size > 0) HETC_CUDA(self, cudaMemsetAsync, (a->to, 0, a->size, hetc_queue_of(self, queue)->stream));
    return HET_OK;
}

/* ---- queues and events ---- */

static void hetc_close_queue(hetc_queue *queue) {
    const het_allocator allocator = queue->device->allocator;
    if (queue->stream != nullptr) {
        if (!hetc_drain(queue)) { /* a copy may still come: its memory is left to the process's end */
            queue->device->left = 1;
            return;
        }
        (void)cudaStreamDestroy(queue->stream);
    }
    if (queue->staging != nullptr) (void)cudaFreeHost(queue->staging);
    if (queue->counters != nullptr) (void)cudaFree(queue->counters);
    allocator.free(allocator.user, queue, sizeof *queue);
}

static het_result hetc_fill_queue(hetc_queue *queue) {
    const size_t size = HETC_COUNTERS * sizeof(unsigned);
    void *staging = nullptr, *counters = nullptr;
    int least = 0, greatest = 0;
    HETC_CUDA(queue->device, cudaSetDevice, (queue->device->ordinal));
    HETC_CUDA(queue->device, cudaDeviceGetStreamPriorityRange, (&least, &greatest));
    if ((queue->device->options & HET_CUDA_FIRST) != 0) least = (least + greatest) / 2;
    if (queue->device->part != nullptr)
        HETC_DRIVER(queue->device, cuGreenCtxStreamCreate, (&queue->stream, queue->device->part, CU_STREAM_NON_BLOCKING,
                                                            least));
    else HETC_CUDA(queue->device, cudaStreamCreateWithPriority, (&queue->stream, cudaStreamNonBlocking, least));
    HETC_CUDA(queue->device, cudaHostAlloc, (&staging, HETC_STAGING, cudaHostAllocDefault));
    queue->staging = static_cast<char *>(staging);
    HETC_CUDA(queue->device, cudaMalloc, (&counters, size));
    queue->counters = static_cast<unsigned *>(counters);
    HETC_CUDA(queue->device, cudaMemsetAsync, (counters, 0, size, queue->stream));
    return HET_OK;
}

static het_result hetc_open_queue(hetc_device *device, hetc_queue **queue) {
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

/* The first who asks gets the device's own queue, so that calls without a queue are ordered with
   his. */
static het_result hetc_queue_create(void *self, het_queue **queue) {
    hetc_device *device = hetc_self(self);
    hetc_queue *made = device->queue;
    if (made->taken) HETC_TRY(hetc_open_queue(device, &made));
    made->taken = 1;
    *queue = reinterpret_cast<het_queue *>(made);
    return HET_OK;
}

static void hetc_queue_destroy(void *self, het_queue *queue) {
    hetc_device *device = hetc_self(self);
    (void)cudaSetDevice(device->ordinal);
    if (hetc_queue_of(self, queue) == device->queue) device->queue->taken = 0;
    else hetc_close_queue(hetc_queue_of(self, queue));
}

static cudaEvent_t hetc_event(het_event *event) { return reinterpret_cast<cudaEvent_t>(event); }

static het_result hetc_event_create(void *self, het_event **event) {
    cudaEvent_t made;
    HETC_CUDA(self, cudaSetDevice, (hetc_self(self)->ordinal));
    HETC_CUDA(self, cudaEventCreateWithFlags, (&made, cudaEventDisableTiming));
    *event = reinterpret_cast<het_event *>(made);
    return HET_OK;
}

static void hetc_event_destroy(void *self, het_event *event) {
    (void)self;
    (void)cudaEventDestroy(hetc_event(event));
}

static het_result hetc_event_record(void *self, het_queue *queue, het_event *event) {
    HETC_CUDA(self, cudaSetDevice, (hetc_self(self)->ordinal));
    HETC_TRY(hetc_flush(hetc_queue_of(self, queue)));
    HETC_CUDA(self, cudaEventRecord, (hetc_event(event), hetc_queue_of(self, queue)->stream));
    return HET_OK;
}

static het_result hetc_event_wait(void *self, het_queue *queue, het_event *event) {
    HETC_CUDA(self, cudaSetDevice, (hetc_self(self)->ordinal));
    HETC_TRY(hetc_flush(hetc_queue_of(self, queue)));
    HETC_CUDA(self, cudaStreamWaitEvent, (hetc_queue_of(self, queue)->stream, hetc_event(event), 0));
    return HET_OK;
}

static het_result hetc_await_event(hetc_device *device, cudaEvent_t event, double deadline_seconds) {
    cudaError_t code = cudaSuccess;
    if (hetc_wait(deadline_seconds, [&] { return (code = hetc_answer(cudaEventQuery(event))) != cudaErrorNotReady; }))
        return code == cudaSuccess ? HET_OK : hetc_fail(device, code, "cudaEventQuery", __FILE__, __LINE__);
    snprintf(device->text, sizeof device->text, "cuda:%d has not finished after %g seconds",
             static_cast<int>(device->ordinal), deadline_seconds);
    hetc_stop_copies(device);
    return HET_ERR_DEVICE;
}

static het_result hetc_event_sync(void *self, het_event *event, double deadline_seconds) {
    return hetc_await_event(hetc_self(self), hetc_event(event), deadline_seconds);
}

/* ---- graphs: a stream's work, kept while it is captured. The driver's memory for a graph is taken
   when it is made, and is not in the plan ---- */

static het_result hetc_capture_begin(void *self, het_queue *queue) {
    HETC_CUDA(self, cudaSetDevice, (hetc_self(self)->ordinal));
    HETC_TRY(hetc_flush(hetc_queue_of(self, queue)));
    /* other threads, which are other ranks, may meanwhile do as they like */
    HETC_CUDA(self, cudaStreamBeginCapture, (hetc_queue_of(self, queue)->stream, cudaStreamCaptureModeThreadLocal));
    hetc_self(self)->capturing = 1;
    return HET_OK;
}

static het_result hetc_capture_end(void *self, het_queue *queue, het_graph **graph) {
    cudaGraph_t captured = nullptr;
    cudaGraphExec_t made = nullptr;
    const char *what = "cudaStreamEndCapture";
    cudaError_t code;
    hetc_self(self)->capturing = 0;
    code = cudaStreamEndCapture(hetc_queue_of(self, queue)->stream, &captured);
    if (code == cudaSuccess && graph != nullptr) {
        what = "cudaGraphInstantiate";
        code = cudaGraphInstantiate(&made, captured, 0);
    }
    if (captured != nullptr) {
        const cudaError_t destroyed = cudaGraphDestroy(captured);
        if (code == cudaSuccess && destroyed != cudaSuccess) {
            what = "cudaGraphDestroy";
            code = destroyed;
        }
    }
    if (graph == nullptr) {
        (void)cudaGetLastError(); /* an error has been told already, or what was captured is not wanted */
        return HET_OK;
    }
    *graph = reinterpret_cast<het_graph *>(made);
    return code == cudaSuccess ? HET_OK : hetc_fail(self, code, what, __FILE__, __LINE__);
}

static het_result hetc_graph_launch(void *self, het_queue *queue, het_graph *graph) {
    HETC_CUDA(self, cudaSetDevice, (hetc_self(self)->ordinal));
    HETC_TRY(hetc_flush(hetc_queue_of(self, queue)));
    HETC_CUDA(self, cudaGraphLaunch, (reinterpret_cast<cudaGraphExec_t>(graph), hetc_queue_of(self, queue)->stream));
    return HET_OK;
}

static void hetc_graph_destroy(void *self, het_queue *queue, het_graph *graph) {
    (void)cudaSetDevice(hetc_self(self)->ordinal);
    if (hetc_drain(hetc_queue_of(self, queue))) (void)cudaGraphExecDestroy(reinterpret_cast<cudaGraphExec_t>(graph));
    (void)cudaGetLastError();
}

/* -------------------------------------------------------------------------------------------------
   >>cu_linear  cuBLASLt products.

   cuBLASLt counts columns first, so that a row-major matrix [r][c] is its c x r matrix with c
   elements from column to column:
       y  = x W^T + b:  y^T [out x rows] = op_T(W [in x out]) x [in x rows], bias along the columns
       dx = dy W:       dx^T [in x rows] = W [in x out] dy [out x rows], from the second part on
                        added to what is there
       dW = dy^T x:     dW^T [in x out]  = x [in x rows] op_T(dy [out x rows])
   Fast sums take dW as one product over all rows that is added to the float sum; exact sums take
   one product a granule into a float term, which is then added on the grid (>>cu_loss). bf16:
   operands are rounded into the workspace, sums are f32.
   tanh GELU is the epilogue of the product before it: y = GELU(x W^T + b) with what it is taken of
   kept beside it; so is its derivative, dx = (dy W) GELU'. That is for bf16 and tf32: cuBLASLt does
   not say how exact its tanh is, so f32 keeps the kernels of >>cu_rows, as does what the library
   has no algorithm for. Sums of biases are kernels of >>cu_rows: the epilogue that makes them
   (BGRADB) slows its product down by more than it takes to read dy once more.

   Bits: the first algorithm of the heuristic, which depends on shapes, alignment, library and card
   alone, with reductions that add in a fixed order (none, or partial sums in f32 added in a step of
   their own). HET_CUDA_TIMED takes the fastest of sixteen, which may be another tomorrow.
   ---------------------------------------------------------------------------------------------- */

#define HETC_ALGORITHMS 16   /* candidates of HET_CUDA_TIMED */
#define HETC_TIMED_RUNS 3    /* of each */
#ifndef HETC_BLAS_WORKSPACE
#define HETC_BLAS_WORKSPACE (size_t(32) << 20) /* bytes; what NVIDIA recommends for compute capability 9.0 */
#endif

/* What decides which algorithm runs. */
typedef struct hetc_product_key {
    int64_t m, n, k, lda, ldb, ldd;
    int32_t transpose_a, transpose_b; /* cublasOperation_t */
    int32_t bf16, bf16_d, bias;       /* of a and b; of d, aux and bias. bias: its alignment, 0: none */
    int32_t align_a, align_b, align_d; /* bytes: the largest power of two that divides it, 256 at most */
    int32_t tail;                     /* hetc_tail */
    int32_t used;
} hetc_product_key;

/* What the product's epilogue does beside a bias. */
enum hetc_tail { HETC_TAIL_NONE, HETC_GELU_FORWARD, HETC_GELU_BACKWARD };

typedef struct hetc_product {
    hetc_product_key key;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    int32_t refused, ran;             /* the library does not do this epilogue; it has done the product once */
    hetc_found found;
} hetc_product;

typedef struct hetc_product_call {
    hetc_product_key key;
    const void *a, *b, *bias;
    void *d;
    const void *added; /* d = a b + beta times this; NULL: d */
    const void *aux; /* what GELU is taken of, as large as d: forward it is written. key.tail */
    int refused;     /* hetc_multiply: nothing has been done, the product has to go without key.tail */
    float beta;
    void *scratch;   /* for timing, as large as d; NULL: d may be overwritten */
    void *workspace; /* [HETC_BLAS_WORKSPACE], aligned to 256 */
} hetc_product_call;

static void hetc_close_product(hetc_product *p) {
    if (p->desc != nullptr) (void)cublasLtMatmulDescDestroy(p->desc);
    if (p->a != nullptr) (void)cublasLtMatrixLayoutDestroy(p->a);
    if (p->b != nullptr) (void)cublasLtMatrixLayoutDestroy(p->b);
    if (p->d != nullptr) (void)cublasLtMatrixLayoutDestroy(p->d);
    memset(p, 0, sizeof *p);
}

static void hetc_close_products(hetc_device *device) {
    for (int64_t i = 0; i < HETC_PRODUCTS; i++) hetc_close_product(&device->product[i]);
    device->products = 0;
}

/* The least of them, 256 of NULL. */
static int32_t hetc_alignment(const void *pointer, const void *second = nullptr, const void *third = nullptr) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(pointer) | reinterpret_cast<uintptr_t>(second) |
                              reinterpret_cast<uintptr_t>(third);
    return static_cast<int32_t>(address % 256 == 0 ? 256 : address & (~address + 1));
}

/* The candidates for a product whose descriptors are there and that the library can run, best first
   by its own estimate. */
static het_result hetc_candidates(hetc_device *device, hetc_product *p, int wanted,
                                  cublasLtMatmulHeuristicResult_t *result) {
    const hetc_product_key *key = &p->key;
    const struct { cublasLtMatmulPreferenceAttributes_t of; int32_t bytes; } alignment[4] = {
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key->align_a },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key->align_b },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key->align_d },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key->align_d }
    };
    cublasStatus_t status;
    int all = 0;
    for (const auto &one : alignment)
        HETC_BLAS(device, cublasLtMatmulPreferenceSetAttribute, (device->preference, one.of, &one.bytes,
                                                                 sizeof one.bytes));
    status = cublasLtMatmulAlgoGetHeuristic(device->blas, p->desc, p->a, p->b, p->d, p->d, device->preference, wanted,
                                            result, &all);
    for (int i = 0; i < all && status == CUBLAS_STATUS_SUCCESS; i++)
        if (result[i].state == CUBLAS_STATUS_SUCCESS) result[p->found.count++] = result[i];
    p->refused = key->tail != HETC_TAIL_NONE && (status != CUBLAS_STATUS_SUCCESS || p->found.count == 0);
    if (p->refused) return HET_OK;
    if (status != CUBLAS_STATUS_SUCCESS)
        return hetc_fail_blas(device, status, "cublasLtMatmulAlgoGetHeuristic", __FILE__, __LINE__);
    if (p->found.count > 0) return HET_OK;
    snprintf(device->text, sizeof device->text, "cuda:%d: cuBLASLt has no algorithm for %lld x %lld x %lld in %s",
             static_cast<int>(device->ordinal), static_cast<long long>(key->m), static_cast<long long>(key->n),
             static_cast<long long>(key->k), key->bf16 ? "bf16" : "f32");
    return HET_ERR_UNSUPPORTED;
}

/* An epilogue that the library refuses at its first run counts as refused from then on. */
static het_result hetc_run_product(hetc_device *device, cudaStream_t stream, hetc_product *p,
                                   const hetc_product_call *c, void *d, const cublasLtMatmulAlgo_t *algorithm) {
    const float one = 1.0f;
    const cublasStatus_t status = cublasLtMatmul(device->blas, p->desc, &one, c->a, p->a, c->b, p->b, &c->beta,
                                                 c->added != nullptr ? c->added : d, p->d, d, p->d, algorithm,
                                                 c->workspace, HETC_BLAS_WORKSPACE, stream);
    p->refused = status != CUBLAS_STATUS_SUCCESS && c->key.tail != HETC_TAIL_NONE && !p->ran;
    if (p->refused) return HET_OK;
    if (status != CUBLAS_STATUS_SUCCESS) return hetc_fail_blas(device, status, "cublasLtMatmul", __FILE__, __LINE__);
    p->ran = 1;
    return HET_OK;
}

/* The fastest of the candidates, each run a few times on this call's operands. */
static het_result hetc_time_algorithms(hetc_device *device, cudaStream_t stream, hetc_product *p,
                                       const hetc_product_call *c, const cublasLtMatmulHeuristicResult_t *candidate) {
    void *d = c->scratch != nullptr ? c->scratch : c->d;
    float milliseconds;
    for (int i = 0; i < p->found.count; i++) {
        HETC_TRY(hetc_run_product(device, stream, p, c, d, &candidate[i].algo)); /* its first run loads it */
        if (p->refused) return HET_OK;
        HETC_CUDA(device, cudaEventRecord, (device->begin, stream));
        for (int run = 0; run < HETC_TIMED_RUNS; run++)
            HETC_TRY(hetc_run_product(device, stream, p, c, d, &candidate[i].algo));
        HETC_CUDA(device, cudaEventRecord, (device->end, stream));
        HETC_TRY(hetc_await_event(device, device->end, HETC_PATIENCE));
        HETC_CUDA(device, cudaEventElapsedTime, (&milliseconds, device->begin, device->end));
        milliseconds /= HETC_TIMED_RUNS;
        if (i == 0) p->found.first = milliseconds;
        if (i > 0 && milliseconds >= p->found.best) continue;
        p->found.best = milliseconds;
        p->algorithm = candidate[i].algo;
    }
    return HET_OK;
}

#define HETC_DESCRIBE(device, p, what, value) HETC_BLAS(device, cublasLtMatmulDescSetAttribute, \
    ((p)->desc, CUBLASLT_MATMUL_DESC_##what, &(value), sizeof(value)))

/* What goes with the epilogue. The heuristic looks at the alignment of these. */
static het_result hetc_set_pointers(hetc_device *device, hetc_product *p, const hetc_product_call *c) {
    if (c->bias != nullptr) HETC_DESCRIBE(device, p, BIAS_POINTER, c->bias);
    if (c->aux != nullptr) HETC_DESCRIBE(device, p, EPILOGUE_AUX_POINTER, c->aux);
    return HET_OK;
}

static het_result hetc_set_epilogue(hetc_device *device, hetc_product *p, const hetc_product_call *c) {
    const int32_t bias = c->bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : 0;
    const int32_t epilogue = c->key.tail == HETC_GELU_BACKWARD ? CUBLASLT_EPILOGUE_DGELU :
        c->key.tail == HETC_GELU_FORWARD ? CUBLASLT_EPILOGUE_GELU_AUX | bias :
        bias != 0 ? bias : CUBLASLT_EPILOGUE_DEFAULT;
    HETC_DESCRIBE(device, p, EPILOGUE, epilogue);
    if (c->aux != nullptr) HETC_DESCRIBE(device, p, EPILOGUE_AUX_LD, c->key.ldd);
    return hetc_set_pointers(device, p, c);
}

static het_result hetc_open_product(hetc_device *device, cudaStream_t stream, hetc_product *p,
                                    const hetc_product_call *c) {
    const hetc_product_key *key = &c->key;
    const cudaDataType_t type = key->bf16 ? CUDA_R_16BF : CUDA_R_32F;
    const cublasComputeType_t compute = !key->bf16 && (device->options & HET_CUDA_TF32) != 0 ?
                              CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t op_a = static_cast<cublasOperation_t>(key->transpose_a),
                            op_b = static_cast<cublasOperation_t>(key->transpose_b);
    const uint64_t m = static_cast<uint64_t>(key->m), n = static_cast<uint64_t>(key->n),
                   k = static_cast<uint64_t>(key->k);
    const int timed = (device->options & HET_CUDA_TIMED) != 0 && !device->capturing;
    cublasLtMatmulHeuristicResult_t candidate[HETC_ALGORITHMS];
    HETC_BLAS(device, cublasLtMatmulDescCreate, (&p->desc, compute, CUDA_R_32F));
    HETC_DESCRIBE(device, p, TRANSA, op_a);
    HETC_DESCRIBE(device, p, TRANSB, op_b);
    HETC_TRY(hetc_set_epilogue(device, p, c));
    HETC_BLAS(device, cublasLtMatrixLayoutCreate,
              (&p->a, type, op_a == CUBLAS_OP_T ? k : m, op_a == CUBLAS_OP_T ? m : k, key->lda));
    HETC_BLAS(device, cublasLtMatrixLayoutCreate,
              (&p->b, type, op_b == CUBLAS_OP_T ? n : k, op_b == CUBLAS_OP_T ? k : n, key->ldb));
    HETC_BLAS(device, cublasLtMatrixLayoutCreate, (&p->d, key->bf16_d ? CUDA_R_16BF : CUDA_R_32F, m, n, key->ldd));
    p->key = *key;
    HETC_TRY(hetc_candidates(device, p, timed ? HETC_ALGORITHMS : 1, candidate));
    if (p->refused) return HET_OK;
    p->algorithm = candidate[0].algo;
    return timed ? hetc_time_algorithms(device, stream, p, c, candidate) : HET_OK;
}

/* The product's place in the table, made where it is new; a table three quarters full is emptied
   first. */
static het_result hetc_find_product(hetc_device *device, cudaStream_t stream, const hetc_product_call *c,
                                    hetc_product **found) {
    const uint64_t first = het_xxh64(&c->key, sizeof c->key, 0);
    hetc_product *p = &device->product[first % HETC_PRODUCTS];
    for (uint64_t at = first + 1; p->key.used && memcmp(&p->key, &c->key, sizeof c->key) != 0; at++)
        p = &device->product[at % HETC_PRODUCTS];
    if (!p->key.used && 4 * device->products >= 3 * HETC_PRODUCTS) {
        hetc_close_products(device);
        p = &device->product[first % HETC_PRODUCTS];
    }
    *found = p;
    if (p->key.used) return HET_OK;
    const het_result result = hetc_open_product(device, stream, p, c);
    if (result != HET_OK) hetc_close_product(p);
    else device->products++;
    return result;
}

static het_result hetc_multiply(hetc_device *device, het_queue *queue, hetc_product_call *c) {
    const cudaStream_t stream = hetc_stream(device, queue);
    hetc_product *p = nullptr;
    c->key.align_a = hetc_alignment(c->a);
    c->key.align_b = hetc_alignment(c->b);
    c->key.align_d = hetc_alignment(c->d, c->added, c->aux);
    c->key.bias = c->bias != nullptr ? hetc_alignment(c->bias) : 0;
    c->key.used = 1;
    HETC_TRY(hetc_find_product(device, stream, c, &p));
    if (!p->refused) {
        HETC_TRY(hetc_set_pointers(device, p, c));
        HETC_TRY(hetc_run_product(device, stream, p, c, c->d, &p->algorithm));
    }
    c->refused = p->refused;
    if (!p->refused && device->found.count == 0) device->found = p->found;
    return HET_OK;
}

/* ---- operands and workspace ---- */

static size_t hetc_round_up(size_t size) { return (size + 255) / 256 * 256; }

static size_t hetc_elements(int64_t rows, int64_t columns) {
    return static_cast<size_t>(rows) * static_cast<size_t>(columns);
}

/* Elements from row to row of a rounded matrix: tensor cores want addresses that are multiples of
   16 bytes. */
static int64_t hetc_pitch(int64_t columns) { return (columns + 7) / 8 * 8; }

/* A block a row; pitch is a multiple of 8. */
HETC_KERNEL hetc_round_rows_kernel(uint16_t *to, const float *from, int64_t columns, int64_t given, int64_t pitch) {
    const float *row = from + (int64_t)blockIdx.x * given;
    for (int64_t j = 2 * threadIdx.x; j < pitch; j += 2 * HETC_THREADS) {
        const uint32_t pair = hetc_bf16_pair(j < columns ? row[j] : 0.0f, j + 1 < columns ? row[j + 1] : 0.0f);
        hetc_put(to + blockIdx.x * pitch + j, hetc_pack<uint16_t, 2>{ { (uint16_t)pair, (uint16_t)(pair >> 16) } });
    }
}

/* to [rows][pitch] = bf16(from [rows][columns], `given` elements apart), 0 from `columns` on. */
static het_result hetc_round_rows(hetc_device *device, het_queue *queue, void *to, const float *from, int64_t rows,
                                  int64_t columns, int64_t given, int64_t pitch) {
    device->rounded++;
    if (pitch == columns && given == columns) return hetc_to_bf16(device, queue, to, from, rows * pitch);
    return HETC_LAUNCH(device, queue, hetc_round_rows_kernel, hetc_grid(rows, 1), HETC_THREADS, 0,
                       static_cast<uint16_t *>(to), from, columns, given, pitch);
}

/* A row-major matrix as an operand: itself where it is what the product takes, or rounded to bf16
   where there is room for it in `to`. given: elements from row to row; *pitch gets those of the
   operand. */
static het_result hetc_operand(hetc_device *device, het_queue *queue, const float *from, int64_t rows, int64_t columns,
                               int64_t given, void *to, const void **operand, int64_t *pitch) {
    *operand = to != nullptr ? to : from;
    *pitch = to != nullptr ? hetc_pitch(columns) : given;
    return to != nullptr ? hetc_round_rows(device, queue, to, from, rows, columns, given, *pitch) : HET_OK;
}

static het_result hetc_linear_check(hetc_device *device, const char *op, const het_linear_args *a) {
    int valid = a->rows >= 0 && a->in > 0 && a->parts >= 1 && a->parts <= 3;
    for (int64_t p = 0; valid && p < a->parts; p++) valid = a->part[p].out > 0;
    if (valid) return HET_OK;
    snprintf(device->text, sizeof device->text, "cuda %s: impossible shape, %lld rows, in %lld, %lld parts", op,
             static_cast<long long>(a->rows), static_cast<long long>(a->in), static_cast<long long>(a->parts));
    return HET_ERR_INVALID;
}

/* What products take of the parts: matrices, elements from row to row, biases. */
typedef struct hetc_operands {
    const void *w[3], *bias[3];
    int64_t pitch;
} hetc_operands;

/* An array begins where the one before, of so many bf16, ends. */
static int hetc_follows(const void *before, int64_t elements, const void *array) {
    return static_cast<const uint16_t *>(before) + elements == array;
}

/* The parts' y, or dy, of bf16 lie side by side in rows, their matrices and biases one behind the
   other (`o`; NULL: they do): one product takes all of them. */
static int hetc_side_by_side(const het_linear_args *a, const hetc_operands *o, int32_t is_bf16, int forward) {
    const char *next = nullptr;
    int64_t all = 0;
    for (int64_t p = 0; p < a->parts; p++) {
        const het_linear_part *part = &a->part[p];
        const void *own = forward ? part->y : part->dy;
        if (part->out % 8 != 0 || part->pitch != a->part[0].pitch || (p > 0 && own != next) ||
            (part->bias != nullptr) != (a->part[0].bias != nullptr))
            return 0;
        if (o != nullptr && p > 0 && (!hetc_follows(o->w[p - 1], part[-1].out * o->pitch, o->w[p]) ||
            (forward && part->bias != nullptr && !hetc_follows(o->bias[p - 1], part[-1].out, o->bias[p]))))
            return 0;
        next = static_cast<const char *>(own) + 2 * part->out;
        all += part->out;
    }
    return a->compute == HET_BF16 && is_bf16 && a->parts > 1 && a->part[0].pitch == all;
}

/* The same as one part, as wide as all. */
static het_linear_args hetc_one_part(const het_linear_args *a) {
    het_linear_args own = *a;
    for (own.parts = 1; own.parts < a->parts; own.parts++) own.part[0].out += a->part[own.parts].out;
    own.parts = 1;
    return own;
}

/* The second of two fast sums begins where the first, of so many elements, ends; or neither is
   wanted. */
static int hetc_adjoins(const het_gradient *before, int64_t elements, const het_gradient *gradient) {
    if (!hetc_wanted(before) || !hetc_wanted(gradient)) return hetc_wanted(before) == hetc_wanted(gradient);
    return !before->exact && !gradient->exact && static_cast<float *>(before->sum) + elements == gradient->sum;
}

/* The parts that backward_weight makes: one where rows of dy lie side by side and sums one behind
   the other. */
static het_linear_args hetc_weight_parts(const het_linear_args *a, int32_t types) {
    int follow = hetc_side_by_side(a, nullptr, types & HET_BF16_DY, 0);
    for (int64_t p = 1; p < a->parts && follow; p++)
        follow = hetc_adjoins(a->part[p - 1].dw, a->part[p - 1].out * a->in, a->part[p].dw) &&
            hetc_adjoins(a->part[p - 1].dbias, a->part[p - 1].out, a->part[p].dbias);
    return follow ? hetc_one_part(a) : *a;
}

/* The pieces of an op's workspace; NULL where it needs none. */
typedef struct hetc_pieces {
    void *blas;          /* [HETC_BLAS_WORKSPACE] */
    void *x, *dy, *w;    /* operands that are rounded: of all rows, of one part's, of all parts */
    void *bias;          /* those of all parts, for a y of bf16 */
    void *scratch;       /* for timing, as large as dx */
    float *term;         /* dW of a granule and part */
    void *slots;         /* of hetc_column_sums */
} hetc_pieces;

static void *hetc_take(uintptr_t *at, int wanted, size_t size) {
    const uintptr_t from = *at;
    if (!wanted) return nullptr;
    *at += hetc_round_up(size);
    return reinterpret_cast<void *>(from);
}

/* Cuts the workspace into the pieces of linear_forward, _backward_input or _backward_weight, from
   the front, each aligned to 256; returns their bytes, with room for the alignment of the first. */
static size_t hetc_cut(hetc_device *device, het_op_kind kind, const het_linear_args *a, int32_t types,
                       hetc_pieces *piece) {
    const int forward = kind == HET_OP_LINEAR_FORWARD, input = kind == HET_OP_LINEAR_BACKWARD_INPUT,
              weight = kind == HET_OP_LINEAR_BACKWARD_WEIGHT, bf16 = a->compute == HET_BF16;
    const uintptr_t start = hetc_round_up(reinterpret_cast<uintptr_t>(a->workspace));
    const int64_t in = hetc_pitch(a->in);
    int64_t widest = 0, out = 0; /* out: rows of all parts, each rounded up to what an address is aligned by */
    uintptr_t at = start;
    for (int64_t p = 0; p < a->parts; p++) {
        out += hetc_pitch(a->part[p].out);
        widest = a->part[p].out > widest ? a->part[p].out : widest;
    }
    if (weight && (types & HET_BF16_DY) != 0) widest = out; /* all may be one */
    piece->blas = hetc_take(&at, 1, HETC_BLAS_WORKSPACE);
    piece->scratch = hetc_take(&at, input && (device->options & HET_CUDA_TIMED), 4 * hetc_elements(a->rows, a->in));
    piece->term = static_cast<float *>(hetc_take(&at, weight, 4 * hetc_elements(widest, a->in)));
    piece->slots = hetc_take(&at, weight, hetc_columns_workspace(a->rows, widest));
    piece->x = hetc_take(&at, bf16 && !input && (types & HET_BF16_X) == 0, 2 * hetc_elements(a->rows, in));
    piece->dy = hetc_take(&at, bf16 && !forward && (types & HET_BF16_DY) == 0,
                          2 * hetc_elements(a->rows, hetc_pitch(widest)));
    piece->w = hetc_take(&at, bf16 && !weight, 2 * hetc_elements(out, in));
    piece->bias = hetc_take(&at, forward, 2 * hetc_elements(1, out));
    return 256 + at - start;
}

/* ---- the ops ---- */

static int64_t hetc_part_pitch(const het_linear_part *part) { return part->pitch != 0 ? part->pitch : part->out; }

/* Whether a part's matrix is there in bf16 as tensor cores want it. */
static int hetc_is_rounded(const het_linear_args *a, const het_linear_part *part) {
    return part->w_bf16 != nullptr && a->in % 8 == 0;
}

/* Columns of y, or of dy, in a product: of bf16 as many as fill 16 bytes where its rows have room
   for them. cuBLASLt's fast kernels want that of the extent, not of the pitch alone. The rows of
   matrices that belong to them are 0. */
static int64_t hetc_whole(int64_t out, int64_t pitch, int is_bf16) {
    return is_bf16 && pitch >= hetc_pitch(out) ? hetc_pitch(out) : out;
}

/* Where the op takes matrices in bf16, there is room for them in `w`, and likewise for biases in
   `bias`: what is not there in bf16 is rounded in one launch, with rows of 0 behind each matrix. */
static het_result hetc_round_parts(hetc_device *device, het_queue *queue, const het_linear_args *a, void *w, void *bias,
                                   hetc_operands *o) {
    uint16_t *to = static_cast<uint16_t *>(w), *to_bias = static_cast<uint16_t *>(bias);
    hetc_arrays arrays;
    arrays.count = 0;
    o->pitch = w != nullptr ? hetc_pitch(a->in) : a->in;
    for (int64_t p = 0; p < a->parts; p++) {
        const het_linear_part *part = &a->part[p];
        o->w[p] = part->w;
        o->bias[p] = part->bias;
        if (w != nullptr && hetc_is_rounded(a, part)) o->w[p] = part->w_bf16;
        else if (w != nullptr) {
            o->w[p] = to;
            if (o->pitch != a->in)
                HETC_TRY(hetc_round_rows(device, queue, to, part->w, part->out, a->in, a->in, o->pitch));
            else {
                device->rounded++;
                hetc_list(&arrays, to, part->w, part->out * a->in);
            }
            const int64_t whole = hetc_pitch(part->out) * o->pitch, own = part->out * o->pitch;
            const het_copy_args rest = { to + own, nullptr, 2 * hetc_elements(1, whole - own), 1, 0, 0 };
            HETC_TRY(hetc_clear(device, queue, &rest));
            to += whole;
        }
        if (bias != nullptr && part->bias_bf16 != nullptr) o->bias[p] = part->bias_bf16;
        else if (bias != nullptr && part->bias != nullptr) {
            o->bias[p] = to_bias;
            hetc_list(&arrays, to_bias, part->bias, part->out);
            to_bias += hetc_pitch(part->out);
        }
    }
    return hetc_run_arrays<uint16_t, float>(device, queue, &arrays);
}

/* The product `plain` with GELU or its derivative, as `f` has it; *fused: it has been done. Its
   buffers lie as cuBLASLt wants them (EPILOGUE_AUX_LD). */
static het_result hetc_multiply_gelu(hetc_device *device, het_queue *queue, const hetc_product_call *plain,
                                     const het_activation_args *f, int forward, int *fused) {
    hetc_product_call c = *plain;
    c.key.tail = forward ? HETC_GELU_FORWARD : HETC_GELU_BACKWARD;
    c.d = forward ? f->y : f->da;
    c.aux = forward ? plain->d : f->a;
    if (f->kind != HET_GELU_TANH || (!c.key.bf16 && (device->options & HET_CUDA_TF32) == 0)) return HET_OK;
    if (c.key.ldd % 8 != 0 || hetc_alignment(c.aux) < 16 || hetc_alignment(c.d) < 16) return HET_OK;
    HETC_TRY(hetc_multiply(device, queue, &c));
    *fused = !c.refused;
    return HET_OK;
}

/* linear_forward, or linear_backward_input. `f`: the activation of the first part's y, or the one
   behind the layer's x; NULL: none. */
static het_result hetc_linear_rows(void *self, het_queue *queue, het_op_kind kind, const het_linear_args *a,
                                   int32_t types, const het_activation_args *f) {
    const int forward = kind == HET_OP_LINEAR_FORWARD;
    const int32_t bf16_d = types & (forward ? HET_BF16_Y : HET_BF16_DX);
    hetc_device *device = hetc_self(self);
    het_linear_args args = *a;
    hetc_product_call c;
    hetc_operands o;
    hetc_pieces piece;
    int fused = 0;
    HETC_TRY(hetc_linear_check(device, forward ? "linear_forward" : "linear_backward_input", a));
    if (a->rows == 0) return HET_OK;
    (void)hetc_cut(device, kind, a, types, &piece);
    memset(&c, 0, sizeof c);
    c.workspace = piece.blas;
    c.scratch = piece.scratch;
    c.key.bf16 = a->compute == HET_BF16;
    c.key.bf16_d = bf16_d != 0;
    c.key.n = a->rows;
    c.key.transpose_a = forward ? CUBLAS_OP_T : CUBLAS_OP_N;
    if (forward) HETC_TRY(hetc_operand(device, queue, a->x, a->rows, a->in, a->in, piece.x, &c.b, &c.key.ldb));
    HETC_TRY(hetc_round_parts(device, queue, a, piece.w, bf16_d ? piece.bias : nullptr, &o));
    if (hetc_side_by_side(a, &o, forward ? bf16_d : types & HET_BF16_DY, forward)) args = hetc_one_part(a);
    c.key.lda = o.pitch;
    for (int64_t p = 0; p < args.parts; p++) {
        const het_linear_part *part = &args.part[p];
        const int64_t pitch = hetc_part_pitch(part);
        c.a = o.w[p];
        c.d = forward ? part->y : a->dx;
        c.key.ldd = forward ? pitch : a->in;
        if (forward) {
            c.bias = o.bias[p];
            c.added = part->add;
        } else HETC_TRY(hetc_operand(device, queue, part->dy, a->rows, part->out, pitch, piece.dy, &c.b, &c.key.ldb));
        c.key.m = forward ? hetc_whole(part->out, pitch, bf16_d != 0) : a->in;
        c.key.k = forward ? a->in : hetc_whole(part->out, c.key.ldb, c.key.bf16);
        c.beta = a->continues || c.added != nullptr || (p > 0 && !forward) ? 1.0f : 0.0f;
        if (f != nullptr) HETC_TRY(hetc_multiply_gelu(device, queue, &c, f, forward, &fused));
        if (!fused) HETC_TRY(hetc_multiply(device, queue, &c));
    }
    return f != nullptr && !fused ? hetc_activate(self, queue, f, bf16_d, !forward) : HET_OK;
}

/* The product of a part's dW, of as many of its `out` rows at once as fill 16 bytes of dy, then of
   the rest: see hetc_whole. */
static het_result hetc_weight_product(hetc_device *device, het_queue *queue, const hetc_product_call *all,
                                      int64_t out) {
    hetc_product_call c = *all;
    for (int64_t first = 0; first < out; first += c.key.n) {
        const int64_t left = out - first;
        c.key.n = c.key.bf16 && left > 8 ? left / 8 * 8 : left;
        c.b = static_cast<const char *>(all->b) + hetc_elements(first, c.key.bf16 ? 2 : 4);
        c.d = static_cast<float *>(all->d) + hetc_elements(first, c.key.m);
        HETC_TRY(hetc_multiply(device, queue, &c));
    }
    return HET_OK;
}

/* One part's dW [out][in] = dy^T x: exact sums take the granules one by one, fast ones all rows of
   the product `all` at once. term: [out][in]. */
static het_result hetc_weight_part(hetc_device *device, het_queue *queue, const het_linear_args *a,
                                   const het_linear_part *part, const hetc_product_call *all, float *term) {
    const het_view *view = a->view;
    const size_t element = all->key.bf16 ? 2 : 4;
    hetc_product_call c = *all;
    const het_accumulate_args add = { part->dw, 0, part->out * a->in, term };
    if (!hetc_wanted(part->dw)) return HET_OK;
    c.d = part->dw->exact ? term : part->dw->sum;
    c.beta = part->dw->exact ? 0.0f : 1.0f;
    c.scratch = part->dw->exact ? nullptr : term;
    if (!part->dw->exact) return hetc_weight_product(device, queue, &c, part->out);
    for (int64_t g = view->granule_begin; g < view->granule_end; g++) {
        const int64_t row = view->host_granule_start[g] - view->row_begin;
        c.key.k = view->host_granule_start[g + 1] - view->row_begin - row;
        c.a = static_cast<const char *>(all->a) + hetc_elements(row, c.key.lda) * element;
        c.b = static_cast<const char *>(all->b) + hetc_elements(row, c.key.ldb) * element;
        if (c.key.k == 0) continue;
        HETC_TRY(hetc_weight_product(device, queue, &c, part->out));
        HETC_TRY(hetc_accumulate(device, queue, &add));
    }
    return HET_OK;
}

static het_result hetc_linear_backward_weight(void *self, het_queue *queue, const het_linear_args *a, int32_t types) {
    hetc_device *device = hetc_self(self);
    hetc_product_call c;
    hetc_pieces piece;
    HETC_TRY(hetc_linear_check(device, "linear_backward_weight", a));
    const het_linear_args args = hetc_weight_parts(a, types);
    if (a->rows == 0) return HET_OK;
    (void)hetc_cut(device, HET_OP_LINEAR_BACKWARD_WEIGHT, a, types, &piece);
    memset(&c, 0, sizeof c);
    c.workspace = piece.blas;
    c.key.bf16 = a->compute == HET_BF16;
    c.key.m = c.key.ldd = a->in;
    c.key.k = a->rows;
    c.key.transpose_b = CUBLAS_OP_T;
    HETC_TRY(hetc_operand(device, queue, a->x, a->rows, a->in, a->in, piece.x, &c.a, &c.key.lda));
    for (int64_t p = 0; p < args.parts; p++) {
        const het_linear_part *part = &args.part[p];
        const int64_t pitch = hetc_part_pitch(part);
        HETC_TRY(hetc_column_sums(device, queue, a->view, a->rows, part->out, part->dy, pitch, types, part->dbias,
                                  piece.slots)); /* first: dy is in L2 still, where the product's sums are not yet */
        HETC_TRY(hetc_operand(device, queue, part->dy, a->rows, part->out, pitch, piece.dy, &c.b, &c.key.ldb));
        HETC_TRY(hetc_weight_part(device, queue, a, part, &c, piece.term));
    }
    return HET_OK;
}

/* -------------------------------------------------------------------------------------------------
   >>cu_table  Creating, workspaces, the tables.
   ---------------------------------------------------------------------------------------------- */

static size_t hetc_device_bytes(int32_t options) {
    return sizeof(hetc_device) + HETC_PRODUCTS * sizeof(hetc_product) +
        ((options & HET_CUDA_OPS) != 0 ? HETC_WORKS * sizeof(hetc_work) : 0);
}

static void hetc_destroy(void *self) {
    hetc_device *device = hetc_self(self);
    const het_allocator allocator = device->allocator;
    if (device->queue != nullptr) (void)cudaSetDevice(device->ordinal);
    if (device->queue != nullptr) hetc_close_queue(device->queue);
    if (device->left) return;
    if (device->part != nullptr) (void)device->drop_part(device->part);
    hetc_close_products(device);
    if (device->begin != nullptr) (void)cudaEventDestroy(device->begin);
    if (device->end != nullptr) (void)cudaEventDestroy(device->end);
    if (device->preference != nullptr) (void)cublasLtMatmulPreferenceDestroy(device->preference);
    if (device->blas != nullptr) (void)cublasLtDestroy(device->blas);
    allocator.free(allocator.user, device, hetc_device_bytes(device->options));
}

/* The card is there and can what the kernels need: bf16 tensor cores and asynchronous copies,
   compute capability 8.0. */
static het_result hetc_check_card(hetc_device *device) {
    int count = 0, major = 0, minor = 0;
    cudaFuncAttributes about;
    HETC_CUDA(device, cudaGetDeviceCount, (&count));
    if (device->ordinal < 0 || device->ordinal >= count) {
        snprintf(device->text, sizeof device->text, "cuda:%d: there are %d such devices",
                 static_cast<int>(device->ordinal), count);
        return HET_ERR_INVALID;
    }
    HETC_CUDA(device, cudaSetDevice, (device->ordinal));
    HETC_CUDA(device, cudaDeviceGetAttribute, (&major, cudaDevAttrComputeCapabilityMajor, device->ordinal));
    HETC_CUDA(device, cudaDeviceGetAttribute, (&minor, cudaDevAttrComputeCapabilityMinor, device->ordinal));
    HETC_CUDA(device, cudaDeviceGetAttribute, (&device->shared, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                               device->ordinal));
    if (major < 8) { /* there is no code for it that could be asked */
        snprintf(device->text, sizeof device->text, "cuda:%d has compute capability %d.%d; 8.0 is needed",
                 static_cast<int>(device->ordinal), major, minor);
        return HET_ERR_UNSUPPORTED;
    }
    HETC_CUDA(device, cudaFuncGetAttributes, (&about, hetc_wide_kernel<int>));
    device->wide = about.maxThreadsPerBlock == 64;
    return HET_OK;
}

/* A part of a card is a green context (CUDA Driver API, 6.35). Multiprocessors come in groups, here
   the smallest: the driver rounds 1 up to these, and headers say how large they are from CUDA 13.0
   on. What is behind the last one belongs to the part that goes to the end. */
static het_result hetc_take_part(hetc_device *device) {
    enum { GROUPS = 64 };
    CUdevResource all, group[GROUPS], rest;
    CUdevResourceDesc chosen;
    const int first = static_cast<int>(device->part_first), last = static_cast<int>(device->part_end) - 1;
    unsigned groups = GROUPS - 1, each, whole, begin, end = static_cast<unsigned>(last + 1);
    if (end == 0 && first == 0) return HET_OK;
    HETC_DRIVER(device, cuDeviceGetDevResource, (device->ordinal, &all, CU_DEV_RESOURCE_TYPE_SM));
    HETC_DRIVER(device, cuDevSmResourceSplitByCount, (group, &groups, &all, &rest, 0, 1));
    each = group[0].sm.smCount, whole = groups * each, begin = static_cast<unsigned>(first) / each;
    if (end == all.sm.smCount && end > whole) group[groups++] = rest, end = groups * each;
    if (static_cast<unsigned>(first) % each != 0 || end % each != 0 || begin * each >= end || end > groups * each) {
        snprintf(device->text, sizeof device->text, "cuda:%d:%d-%d: of its multiprocessors a part has whole groups of "
                 "%u, the last of which ends before %u, or goes to %u", static_cast<int>(device->ordinal), first, last,
                 each, whole, all.sm.smCount - 1);
        return HET_ERR_INVALID;
    }
    HETC_ENTRY(device, &device->drop_part, cuGreenCtxDestroy);
    HETC_DRIVER(device, cuDevResourceGenerateDesc, (&chosen, group + begin, end / each - begin));
    HETC_DRIVER(device, cuGreenCtxCreate, (&device->part, chosen, device->ordinal, CU_GREEN_CTX_DEFAULT_STREAM));
    return HET_OK;
}

static het_result hetc_fill_device(hetc_device *device) {
    const uint64_t workspace = HETC_BLAS_WORKSPACE;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    HETC_TRY(hetc_check_card(device));
    HETC_TRY(hetc_take_part(device));
    HETC_TRY(hetc_open_queue(device, &device->queue));
    HETC_BLAS(device, cublasLtCreate, (&device->blas));
    HETC_BLAS(device, cublasLtMatmulPreferenceCreate, (&device->preference));
    HETC_BLAS(device, cublasLtMatmulPreferenceSetAttribute,
              (device->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
    HETC_BLAS(device, cublasLtMatmulPreferenceSetAttribute,
              (device->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes));
    if ((device->options & (HET_CUDA_TIMED | HET_CUDA_OPS)) == 0) return HET_OK;
    HETC_CUDA(device, cudaEventCreateWithFlags, (&device->begin, cudaEventDefault));
    HETC_CUDA(device, cudaEventCreateWithFlags, (&device->end, cudaEventDefault));
    return HET_OK;
}

static het_result hetc_create_with(const het_device_config *config, int32_t options, void **self) {
    const size_t size = hetc_device_bytes(options);
    hetc_device *device = static_cast<hetc_device *>(config->allocator->alloc(config->allocator->user, size, 64));
    het_result result;
    if (device == nullptr) return HET_ERR_OOM;
    memset(device, 0, size);
    device->allocator = *config->allocator;
    device->ordinal = config->ordinal < 0 ? -1 : config->ordinal & 255; /* HET_PART */
    device->part_first = config->ordinal >> 8 & 2047, device->part_end = config->ordinal >> 19;
    device->options = options;
    device->product = reinterpret_cast<hetc_product *>(device + 1);
    if ((options & HET_CUDA_OPS) != 0) device->work = reinterpret_cast<hetc_work *>(device->product + HETC_PRODUCTS);
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

/* Logits of bf16 at a time: 1 GiB. */
#define HETC_LOGITS (INT64_C(1) << 29)

/* Weights are floats, sums are added to, the first weights come from the host; what is added to a
   product of bf16 is of the result's type, and so are an embedding's y and dy. Rotations,
   activations and attention read and write one type. Heads in bf16 are whole chunks of 16 bytes.
   Attention has no bias. */
static int hetc_alike(const het_op *op, int32_t which) {
    return (op->bf16 & which) == 0 || (op->bf16 & which) == which;
}
static int32_t hetc_supports(void *self, const het_op *op) {
    const het_linear_part *part = &op->u.linear.part[0];
    const int timed = (hetc_self(self)->options & HET_CUDA_TIMED) != 0; /* algorithms are tried on y itself */
    if (op->kind == HET_OP_NORMAL) return 0;
    if (op->kind == HET_OP_ROTARY_FORWARD || op->kind == HET_OP_ROTARY_BACKWARD ||
        op->kind == HET_OP_ACTIVATION_FORWARD)
        return hetc_alike(op, HET_BF16_X | HET_BF16_Y);
    if (op->kind == HET_OP_ACTIVATION_BACKWARD) return hetc_alike(op, HET_BF16_X | HET_BF16_DX | HET_BF16_DY);
    if (op->kind == HET_OP_ATTENTION_FORWARD || op->kind == HET_OP_ATTENTION_BACKWARD)
        return op->u.attention.bias == nullptr && hetc_alike(op, HET_BF16_X | HET_BF16_Y) &&
               (!op->bf16 || (op->u.attention.head_size % 8 == 0 && op->u.attention.head_size <= 128));
    if (op->bf16 && (op->kind == HET_OP_EMBEDDING_FORWARD || op->kind == HET_OP_EMBEDDING_BACKWARD_WEIGHT))
        return op->bf16 == (HET_BF16_Y | HET_BF16_DY);
    if (op->bf16 && op->kind == HET_OP_CROSS_ENTROPY)
        return op->bf16 == (HET_BF16_X | HET_BF16_DX) &&
               op->u.cross_entropy.rows <= HETC_LOGITS / (op->u.cross_entropy.vocab + 128);
    if (op->kind <= HET_OP_NORM_BACKWARD && op->bf16 && op->u.norm.width % 4 != 0) return 0;
    if (op->kind == HET_OP_NORM_BACKWARD) /* heads are too narrow for a block */
        return op->u.norm.rows_per_token == 1 && op->u.norm.width <= 8192 &&
               ((op->bf16 & HET_BF16_X) == 0 || (op->bf16 & HET_BF16_DY) != 0);
    if (op->kind == HET_OP_LINEAR_FORWARD && part->add != nullptr)
        return (op->bf16 & HET_BF16_X) != 0 && !(op->bf16 & HET_BF16_Y) == !(op->bf16 & HET_BF16_ADDED);
    if (op->kind == HET_OP_LINEAR_FORWARD)
        return (part->w != nullptr || (part->w_bf16 == nullptr && part->w_int8 == nullptr)) &&
               !(op->u.linear.continues && timed);
    return op->kind != HET_OP_LINEAR_BACKWARD_WEIGHT || part->dw == nullptr || part->dw->beta == 1;
}

static size_t hetc_workspace(void *self, const het_op *op) {
    hetc_pieces piece;
    if (op->kind == HET_OP_LINEAR_FORWARD || op->kind == HET_OP_LINEAR_BACKWARD_INPUT ||
        op->kind == HET_OP_LINEAR_BACKWARD_WEIGHT)
        return hetc_cut(hetc_self(self), op->kind, &op->u.linear, op->bf16, &piece);
    if (op->kind == HET_OP_LINEAR_ACTIVATION_FORWARD || op->kind == HET_OP_LINEAR_ACTIVATION_BACKWARD)
        return hetc_cut(hetc_self(self), op->kind == HET_OP_LINEAR_ACTIVATION_FORWARD ? HET_OP_LINEAR_FORWARD :
                        HET_OP_LINEAR_BACKWARD_INPUT, &op->u.linear_activation.linear, op->bf16, &piece);
    return hetc_rows_workspace(self, op);
}

static het_result hetc_op(void *self, het_queue *queue, const het_op *op) {
    const het_linear_args *linear = &op->u.linear;
    const het_linear_activation_args *both = &op->u.linear_activation;
    HETC_CUDA(self, cudaSetDevice, (hetc_self(self)->ordinal));
    if (op->kind != HET_OP_COPY_IN && op->kind != HET_OP_COPY_OUT) HETC_TRY(hetc_flush(hetc_queue_of(self, queue)));
    switch (op->kind) {
    case HET_OP_LINEAR_FORWARD: case HET_OP_LINEAR_BACKWARD_INPUT:
        return hetc_linear_rows(self, queue, op->kind, linear, op->bf16, nullptr);
    case HET_OP_LINEAR_BACKWARD_WEIGHT: return hetc_linear_backward_weight(self, queue, linear, op->bf16);
    case HET_OP_LINEAR_ACTIVATION_FORWARD:
        return hetc_linear_rows(self, queue, HET_OP_LINEAR_FORWARD, &both->linear, op->bf16, &both->activation);
    case HET_OP_LINEAR_ACTIVATION_BACKWARD:
        return hetc_linear_rows(self, queue, HET_OP_LINEAR_BACKWARD_INPUT, &both->linear, op->bf16, &both->activation);
    case HET_OP_COPY_IN: return hetc_copy_staged(self, queue, &op->u.copy, 1);
    case HET_OP_COPY_OUT: return hetc_copy_staged(self, queue, &op->u.copy, 0);
    case HET_OP_COPY: return hetc_copy_within(self, queue, &op->u.copy);
    case HET_OP_CLEAR: return hetc_clear(self, queue, &op->u.copy);
    default: return hetc_rows_op(self, queue, op);
    }
}

/* ---- HET_CUDA_OPS ---- */

static double hetc_area(int64_t rows, int64_t columns) {
    return static_cast<double>(rows) * static_cast<double>(columns);
}

/* Bytes an element of what HET_BF16_* names. */
static double hetc_bytes_of(const het_op *op, int32_t which) { return (op->bf16 & which) != 0 ? 2.0 : 4.0; }

/* The same of a product's operand: floats that are rounded are read, written and read again. */
static double hetc_operand_bytes(const het_op *op, int32_t which, het_dtype compute) {
    return compute != HET_BF16 ? 4.0 : (op->bf16 & which) != 0 ? 2.0 : 8.0;
}

static void hetc_linear_work(const het_op *op, const het_linear_args *a, int32_t kind, hetc_work *w) {
    int64_t out = 0;
    double bias = 0.0;
    for (int64_t p = 0; p < a->parts; p++) {
        out += a->part[p].out;
        if (hetc_wanted(a->part[p].dbias))
            bias += hetc_area(a->rows, a->part[p].out) * hetc_bytes_of(op, HET_BF16_DY);
    }
    const double x = hetc_area(a->rows, a->in), y = hetc_area(a->rows, out), weight = hetc_area(a->in, out),
                 operand = weight * (a->compute == HET_BF16 && hetc_is_rounded(a, a->part) ? 2.0 :
                                     hetc_operand_bytes(op, 0, a->compute));
    w->shape[0] = a->rows, w->shape[1] = a->in, w->shape[2] = out;
    w->flops = 2.0 * x * static_cast<double>(out);
    if (kind == HET_OP_LINEAR_FORWARD)
        w->bytes = x * hetc_operand_bytes(op, HET_BF16_X, a->compute) + operand +
            y * (hetc_bytes_of(op, HET_BF16_Y) + (a->part[0].add != nullptr ? hetc_bytes_of(op, HET_BF16_ADDED) : 0.0));
    else if (kind == HET_OP_LINEAR_BACKWARD_INPUT) /* each part but the first reads what is there */
        w->bytes = y * hetc_operand_bytes(op, HET_BF16_DY, a->compute) + operand + x * static_cast<double>(
                hetc_side_by_side(a, nullptr, op->bf16 & HET_BF16_DY, 0) ? 1 : 2 * a->parts - 1) *
            hetc_bytes_of(op, HET_BF16_DX);
    else
        w->bytes = x * hetc_operand_bytes(op, HET_BF16_X, a->compute) * static_cast<double>(
            (op->bf16 & HET_BF16_X) != 0 ? hetc_weight_parts(a, op->bf16).parts : 1) +
            y * hetc_operand_bytes(op, HET_BF16_DY, a->compute) + weight * 8.0 + bias;
}

/* Causal attention does half of each sequence's square. */
static void hetc_attention_work(const het_op *op, const het_attention_args *a, int backward, hetc_work *w) {
    const het_view *view = a->view;
    const double q = hetc_area(w->shape[0] * a->heads, a->head_size),
                 k = hetc_area(w->shape[0] * a->kv_heads, a->head_size),
                 element = hetc_bytes_of(op, HET_BF16_X), pack = a->compute == HET_BF16 && element > 2.0 ? 8.0 : 0.0;
    w->shape[1] = a->heads;
    w->shape[2] = a->head_size;
    for (int64_t s = 0; s < view->sequences; s++) {
        const int64_t length = view->host_sequence_start[s + 1] - view->host_sequence_start[s];
        w->flops += hetc_area(length, length * a->heads * a->head_size) * (a->causal ? 2.0 : 4.0);
    }
    if (backward) w->flops *= 2.5;
    w->bytes = backward ? (6.0 * q + 5.0 * k) * element + (q + k) * (element + pack) * 2.0 : 2.0 * q * element +
        2.0 * k * (element + pack);
}

/* The work of an op that goes over rows, or (columns 0) over so many elements; bytes: of each
   element. */
static void hetc_elements_work(hetc_work *w, int64_t rows, int64_t columns, double bytes) {
    w->shape[0] = rows;
    w->shape[1] = columns;
    w->bytes = hetc_area(rows, columns > 0 ? columns : 1) * bytes;
}

/* Shape, bytes and FLOPs of one call. Bytes: each operand once a kernel that goes over it. */
static void hetc_op_work(hetc_device *device, const het_op *op, hetc_work *w) {
    const double x = hetc_bytes_of(op, HET_BF16_X), y = hetc_bytes_of(op, HET_BF16_Y),
                 dx = hetc_bytes_of(op, HET_BF16_DX), dy = hetc_bytes_of(op, HET_BF16_DY);
    const int32_t kind = op->kind;
    memset(w, 0, sizeof *w);
    w->kind = kind;
    w->bf16 = op->bf16;
    switch (kind) {
    case HET_OP_NORM_FORWARD: hetc_elements_work(w, op->u.norm.rows, op->u.norm.width, x + y); break;
    case HET_OP_NORM_BACKWARD_WEIGHT: hetc_elements_work(w, op->u.norm.rows, op->u.norm.width, x + dy); break;
    case HET_OP_NORM_BACKWARD_INPUT: case HET_OP_NORM_BACKWARD: /* at once: slots, there and back */
        hetc_elements_work(w, op->u.norm.rows, op->u.norm.width, x + dy + dx +
                           (op->u.norm.residual != nullptr ? dx : 0.0) + (op->u.norm.dx_bf16 != nullptr ? 2.0 : 0.0) +
                           (kind == HET_OP_NORM_BACKWARD ? 16.0 / HETC_NORM_CHUNK : 0.0)); break;
    case HET_OP_LINEAR_FORWARD: case HET_OP_LINEAR_BACKWARD_INPUT: case HET_OP_LINEAR_BACKWARD_WEIGHT:
        hetc_linear_work(op, &op->u.linear, kind, w); break;
    case HET_OP_LINEAR_ACTIVATION_FORWARD: case HET_OP_LINEAR_ACTIVATION_BACKWARD:
        hetc_linear_work(op, &op->u.linear_activation.linear, kind == HET_OP_LINEAR_ACTIVATION_FORWARD ?
                         HET_OP_LINEAR_FORWARD : HET_OP_LINEAR_BACKWARD_INPUT, w);
        w->bytes += static_cast<double>(op->u.linear_activation.activation.count) *
            (kind == HET_OP_LINEAR_ACTIVATION_FORWARD ? y : dx); break;
    case HET_OP_ROTARY_FORWARD: case HET_OP_ROTARY_BACKWARD:
        hetc_elements_work(w, op->u.rotary.rows, op->u.rotary.heads * op->u.rotary.head_size, x + y); break;
    case HET_OP_ATTENTION_FORWARD: case HET_OP_ATTENTION_BACKWARD:
        w->shape[0] = op->u.attention.view->row_end - op->u.attention.view->row_begin;
        hetc_attention_work(op, &op->u.attention, kind == HET_OP_ATTENTION_BACKWARD, w); break;
    case HET_OP_ACTIVATION_FORWARD: case HET_OP_ACTIVATION_BACKWARD:
        hetc_elements_work(w, op->u.activation.count, 0, dy + (op->u.activation.kind == HET_SWIGLU ? 2.0 : 1.0) *
                           (kind == HET_OP_ACTIVATION_FORWARD ? x + y : x + dx)); break;
    case HET_OP_EMBEDDING_FORWARD: hetc_elements_work(w, op->u.embedding.rows, op->u.embedding.width, 8.0 + y); break;
    case HET_OP_EMBEDDING_BACKWARD_WEIGHT:
        hetc_elements_work(w, op->u.embedding.rows, op->u.embedding.width, 16.0 + 2.0 * dy); break;
    case HET_OP_DROPOUT_FORWARD: case HET_OP_DROPOUT_BACKWARD:
        hetc_elements_work(w, op->u.dropout.rows, op->u.dropout.width, x + y +
                           (kind == HET_OP_DROPOUT_FORWARD && op->u.dropout.a != nullptr ?
                            hetc_bytes_of(op, HET_BF16_ADDED) : 0.0)); break;
    case HET_OP_CROSS_ENTROPY: /* read twice, or kept, and written once */
        hetc_elements_work(w, op->u.cross_entropy.rows, op->u.cross_entropy.vocab, !op->u.cross_entropy.gradient ? x :
                           dx + (hetc_kept_row(device, &op->u.cross_entropy, op->bf16) > 0 ? x : 2.0 * x)); break;
    case HET_OP_SUM_SQUARES:
        for (const het_sum_squares_args *a = &op->u.sum_squares; a != nullptr; a = a->next)
            hetc_elements_work(w, w->shape[0] + a->count, 0, 4.0);
        break;
    case HET_OP_ADAMW:
        for (const het_adamw_args *a = &op->u.adamw; a != nullptr; a = a->next) {
            const double before = w->bytes;
            hetc_elements_work(w, w->shape[0] + a->count, 0, 0.0);
            w->bytes = before + static_cast<double>(a->count) * (a->w_bf16 != nullptr ? 30.0 : 28.0);
        }
        break;
    case HET_OP_MUON_MOMENTUM: hetc_elements_work(w, op->u.muon.rows, op->u.muon.columns, 16.0); break;
    case HET_OP_MUON_UPDATE: hetc_elements_work(w, op->u.muon.rows, op->u.muon.columns, 12.0); break;
    case HET_OP_FEEDBACK: hetc_elements_work(w, op->u.feedback.count, 0, 16.0); break;
    case HET_OP_ADD: hetc_elements_work(w, op->u.elements.count, 0, x + 2.0 * y); break;
    case HET_OP_SCALE: hetc_elements_work(w, op->u.elements.count, 0, 8.0); break;
    case HET_OP_ROUND: hetc_elements_work(w, op->u.elements.count, 0, 6.0); break;
    case HET_OP_EXPAND: hetc_elements_work(w, op->u.expand.rows, op->u.expand.width, 5.0); break;
    case HET_OP_COPY: case HET_OP_COPY_IN: case HET_OP_COPY_OUT: case HET_OP_CLEAR:
        hetc_elements_work(w, static_cast<int64_t>(op->u.copy.size * (op->u.copy.rows > 1 ? op->u.copy.rows : 1)), 0,
                           kind == HET_OP_COPY ? 2.0 : 1.0); break;
    default: break;
    }
}

/* One op alone, from event to event. */
static het_result hetc_timed_op(void *self, het_queue *queue, const het_op *op) {
    hetc_device *device = hetc_self(self);
    const cudaStream_t stream = hetc_queue_of(self, queue)->stream;
    const int64_t launches = device->launches, rounded = device->rounded;
    float milliseconds = 0.0f;
    hetc_work one, *w = device->work;
    hetc_op_work(device, op, &one);
    HETC_CUDA(device, cudaSetDevice, (device->ordinal));
    device->found = hetc_found{};
    HETC_CUDA(device, cudaEventRecord, (device->begin, stream));
    HETC_TRY(hetc_op(self, queue, op));
    HETC_TRY(hetc_flush(hetc_queue_of(self, queue)));
    HETC_CUDA(device, cudaEventRecord, (device->end, stream));
    HETC_TRY(hetc_await_event(device, device->end, HETC_PATIENCE));
    HETC_CUDA(device, cudaEventElapsedTime, (&milliseconds, device->begin, device->end));
    while (w < device->work + device->works && (w->kind != one.kind || w->bf16 != one.bf16 ||
                                                memcmp(w->shape, one.shape, sizeof one.shape) != 0)) w++;
    if (w == device->work + HETC_WORKS) return HET_OK;
    if (w == device->work + device->works) {
        device->works++;
        *w = one;
        w->bytes = w->flops = 0.0;
    }
    w->calls++;
    w->found = device->found;
    w->launches += device->launches - launches;
    w->rounded += device->rounded - rounded;
    w->ms += static_cast<double>(milliseconds);
    if (w->calls == 1 || static_cast<double>(milliseconds) < w->least) w->least = static_cast<double>(milliseconds);
    w->bytes += one.bytes;
    w->flops += one.flops;
    return HET_OK;
}

static het_result hetc_run_op(void *self, het_queue *queue, const het_op *op) {
    const int timed = (hetc_self(self)->options & HET_CUDA_OPS) != 0;
    const het_result result = timed ? hetc_timed_op(self, queue, op) : hetc_op(self, queue, op);
    if (result != HET_OK) hetc_stop_copies(hetc_self(self)); /* also where nothing of CUDA failed */
    return result;
}

extern "C" size_t het_cuda_ops(const het_device *device, char *text, size_t capacity) {
    static const char *const names[] = {
        "norm_forward", "norm_backward_input", "norm_backward_weight", "norm_backward", "linear_forward",
        "linear_backward_input", "linear_backward_weight", "linear_activation_forward", "linear_activation_backward",
        "rotary_forward", "rotary_backward", "attention_forward", "attention_backward", "activation_forward",
        "activation_backward", "embedding_forward", "embedding_backward_weight", "dropout_forward", "dropout_backward",
        "cross_entropy", "accumulate", "sum_squares", "verdict", "adamw", "muon_momentum", "muon_update", "feedback",
        "normal", "add", "scale", "round", "expand", "copy_in", "copy_out", "copy", "clear"
    };
    const hetc_device *d = hetc_self(device->self);
    size_t used = 0;
    if (capacity > 0) text[0] = 0;
    for (int64_t i = 0; d->work != nullptr && i < d->works; i++) {
        const hetc_work *w = &d->work[i];
        char line[480];
        const long long shape[3] = { w->shape[0], w->shape[1], w->shape[2] }, calls = w->calls, launches = w->launches;
        const int length = snprintf(line, sizeof line,
            "{\"op\":\"%s\",\"bf16\":%d,\"shape\":[%lld,%lld,%lld],\"calls\":%lld,\"ms\":%.6g,\"least\":%.6g,"
            "\"bytes\":%.9g,\"flops\":%.9g,\"launches\":%lld,\"rounded\":%lld,"
            "\"algorithms\":%d,\"first\":%.6g,\"best\":%.6g}\n", names[w->kind], (int)w->bf16, shape[0], shape[1],
            shape[2], calls, w->ms, w->least, w->bytes, w->flops, launches, (long long)w->rounded, (int)w->found.count,
            static_cast<double>(w->found.first), static_cast<double>(w->found.best));
        if (used + static_cast<size_t>(length) < capacity) memcpy(text + used, line, static_cast<size_t>(length) + 1);
        used += static_cast<size_t>(length);
    }
    return used;
}

template <int32_t OPTIONS> static het_result hetc_create(const het_device_config *config, void **self) {
    return hetc_create_with(config, OPTIONS, self);
}

static const het_queue_iface hetc_queues = { hetc_queue_create, hetc_queue_destroy, hetc_event_create,
                                             hetc_event_destroy, hetc_event_record, hetc_event_wait, hetc_event_sync };
static const het_graph_iface hetc_graphs = { hetc_capture_begin, hetc_capture_end, hetc_graph_launch,
                                             hetc_graph_destroy };

#define HETC_TABLE(options) { \
    HETRAIN_DEVICE_VERSION, "cuda", 0, hetc_create<options>, hetc_destroy, hetc_last_error, hetc_alloc, hetc_free, \
    hetc_supports, hetc_workspace, hetc_run_op, &hetc_queues, \
    (options) & (HET_CUDA_EAGER | HET_CUDA_OPS) ? nullptr : &hetc_graphs }

#define HETC_TABLES(n) HETC_TABLE(n), HETC_TABLE((n) + 1), HETC_TABLE((n) + 2), HETC_TABLE((n) + 3)
#define HETC_SIXTEEN(n) HETC_TABLES(n), HETC_TABLES((n) + 4), HETC_TABLES((n) + 8), HETC_TABLES((n) + 12)

extern "C" const het_device_iface *het_cuda_device_with(int32_t options) {
    static const het_device_iface hetc_tables[64] = {
        HETC_SIXTEEN(0), HETC_SIXTEEN(16), HETC_SIXTEEN(32), HETC_SIXTEEN(48)
    };
    return &hetc_tables[options & 63];
}

extern "C" const het_device_iface *het_cuda_device(void) { return het_cuda_device_with(0); }

extern "C" int32_t het_cuda_ordinal(const het_device *device) {
    return device->iface->destroy == hetc_destroy ? hetc_self(device->self)->ordinal : -1;
}

extern "C" void *het_cuda_stream(const het_device *device, het_queue *queue) {
    (void)hetc_flush(hetc_queue_of(device->self, queue)); /* an error comes with the next op */
    return hetc_queue_of(device->self, queue)->stream;
}

#endif /* HETC_KERNELS_ONLY */
#endif /* HETRAIN_CUDA_DECLARATIONS */
