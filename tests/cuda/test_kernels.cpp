/* The kernels of hetrain_cuda.cu, their own source, against the CPU device: every op on ragged shapes drawn from seeds. Built by a C++ compiler they
   run on the emulator; built by nvcc (-x cu) on the GPU.

   What has the CPU's order of operations must have its bits; other floats differ by rounding (F32, relative to element and root mean square);
   attention in bf16 by its products' and weights' rounding (BF16), in tf32 also by that of q, k, v and do (TF32). Arrays have exactly the size the
   op may touch, with guards around them. */
#include <cmath>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <setjmp.h>
extern "C" {
#include <cmocka.h>
}

/* ---- what the kernels need of a runtime: one queue, whose work is waited for; memory that host and device both reach ---- */

#define HETC_KERNELS_ONLY
#define HETC_SORTED 64 /* so that there are many runs */
#ifdef __CUDACC__

#include <cuda_runtime.h>
#include "hetrain_cuda.cu"

static void emulator_clear() {}
static void emulator_seed(uint64_t) {}
static const char *emulator_error() { return ""; }
static void *shared_alloc(size_t size)
{
    void *p = nullptr;
    return cudaMallocManaged(&p, size) == cudaSuccess ? p : nullptr;
}
static void shared_free(void *p) { (void)cudaFree(p); }
static const char *finish()
{
    const cudaError_t error = cudaDeviceSynchronize();
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

#else

typedef struct one_stream *cudaStream_t;
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorLaunchFailure = 719 };
static cudaError_t cudaGetLastError();
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
static bool forgetful; /* what kernels ask for is not noted */
static void ask_shared(const void *kernel, int bytes);
template <class Kernel> static cudaError_t cudaFuncSetAttribute(Kernel *kernel, cudaFuncAttribute, int bytes)
{
    if (!forgetful) ask_shared(reinterpret_cast<const void *>(kernel), bytes);
    return cudaSuccess;
}
static void standin_enqueue(cudaStream_t, const std::function<void()> &work) { work(); }

#define HETC_EMULATED
#include "hetrain_cuda.cu"

static void ask_shared(const void *kernel, int bytes) { emulator_ask_shared(kernel, size_t(bytes)); }
static cudaError_t cudaGetLastError() { return emulator_error()[0] == 0 ? cudaSuccess : cudaErrorLaunchFailure; }
static void *shared_alloc(size_t size)
{
    void *p = nullptr;
    return posix_memalign(&p, 64, size) == 0 ? p : nullptr;
}
static void shared_free(void *p) { free(p); }
static const char *finish() { return nullptr; }

#endif

extern "C" {
#include "support.h"
}

static cudaStream_t hetc_stream(void *, het_queue *) { return nullptr; }
static unsigned *hetc_counters(void *, het_queue *)
{
    static void *const counters = memset(shared_alloc(HETC_COUNTERS * sizeof(unsigned)), 0, HETC_COUNTERS * sizeof(unsigned));
    return static_cast<unsigned *>(counters);
}
static int tf32; /* f32 attention may go through the tensor cores */
static int hetc_allows_tf32(void *) { return tf32; }
static int atomic; /* attention's gradients of queries may be added by atomics */
static int hetc_allows_atomic(void *) { return atomic; }
static int groups; /* attention by products of four warps */
static int hetc_has_wide(void *) { return groups; }
static size_t shared_limit = 227 << 10;
static size_t hetc_shared_limit(void *) { return shared_limit; }
static std::string last_failure;
static het_result hetc_fail(void *, cudaError_t error, const char *what, const char *, int line)
{
    last_failure = std::string(what) + ", line " + std::to_string(line) + ": error " + std::to_string(int(error)) + " " + emulator_error();
    return error == cudaErrorInvalidValue ? HET_ERR_INVALID : HET_ERR_DEVICE;
}

static const double F32 = 1e-5, BF16 = 1.5e-2, TF32 = 3e-3;

/* ---- random numbers, arrays, comparisons ---- */

static uint64_t dice;
static int64_t below(int64_t limit) { return support_below(&dice, limit); }
static bool coin() { return below(2) == 0; }

static int broken_guards;
static size_t skew; /* bytes that arrays begin behind a multiple of 64, workspaces (of bytes) excepted */

/* `count` elements at 64 bytes (and skew), between guards: bytes that nobody may touch (AddressSanitizer) or change (found at the end). */
template <class T> class array {
    enum { GUARD = 64 };
    unsigned char *block;
    size_t size, off;
    void guards(bool close)
    {
        for (unsigned char *guard : { block, block + GUARD + (off + size + 7) / 8 * 8 }) {
#ifdef EMULATOR_ASAN
            if (close) __asan_poison_memory_region(guard, GUARD);
            else __asan_unpoison_memory_region(guard, GUARD);
#else
            for (int i = 0; i < GUARD; i++) {
                if (close) guard[i] = 0xa5;
                else if (guard[i] != 0xa5) { /* told at the end: this is a destructor */
                    fprintf(stderr, "wrote outside an array of %zu bytes\n", size);
                    broken_guards++;
                    break;
                }
            }
#endif
        }
    }
public:
    T *data;
    int64_t count;
    explicit array(int64_t count_) : size(size_t(count_) * sizeof(T)), off(sizeof(T) == 1 ? 0 : skew / sizeof(T) * sizeof(T)), count(count_)
    {
        block = static_cast<unsigned char *>(shared_alloc(GUARD + (off + size + 7) / 8 * 8 + GUARD));
        if (block == nullptr) abort();
        data = reinterpret_cast<T *>(block + GUARD + off);
        memset(block + GUARD, 0xff, (off + size + 7) / 8 * 8);
        guards(true);
    }
    array(const array &other) : array(other.count) { if (size > 0) memcpy(data, other.data, size); }
    array &operator=(const array &) = delete;
    ~array() { guards(false); shared_free(block); }
    T &operator[](int64_t i) { return data[i]; }
    const T &operator[](int64_t i) const { return data[i]; }
};
typedef array<float> floats;

static floats random_floats(int64_t count, double scale)
{
    floats x(count);
    for (int64_t i = 0; i < count; i++) x[i] = float(scale * support_uniform(&dice));
    return x;
}
template <class T> static array<T> zeros(int64_t count)
{
    array<T> x(count);
    memset(x.data, 0, size_t(count) * sizeof(T));
    return x;
}

static void run_ok(het_result result, const char *what, int line)
{
    if (result != HET_OK) fail_msg("line %d: %s: %s", line, what, last_failure.c_str());
    if (const char *error = finish()) fail_msg("line %d: %s: %s", line, what, error);
}
#define RUN(call) run_ok(call, #call, __LINE__)

static float float_of(uint32_t bits) { float x; memcpy(&x, &bits, sizeof x); return x; }

static std::map<std::pair<std::string, double>, double> worst; /* errors, by what they are of and the tolerance there */

static void close_to(const char *what, const float *got, const float *wanted, int64_t count, double tolerance, double least = 0)
{
    double &top = worst[{ what, tolerance }];
    double square = 0;
    for (int64_t i = 0; i < count; i++) if (std::isfinite(wanted[i])) square += double(wanted[i]) * double(wanted[i]);
    const double scale = std::max(least, count > 0 ? sqrt(square / double(count)) : 0); /* least: where all may cancel */
    for (int64_t i = 0; i < count; i++) {
        const double error = fabs(double(got[i]) - double(wanted[i]));
        if (support_bits(got[i]) == support_bits(wanted[i]) || (std::isnan(got[i]) && std::isnan(wanted[i]))) continue;
        const double share = error / (fabs(double(wanted[i])) + scale);
        if (share > top) top = share;
        if (!(error <= tolerance * (fabs(double(wanted[i])) + scale)))
            fail_msg("%s: element %lld of %lld is %.9g, the CPU has %.9g", what, (long long)i, (long long)count, double(got[i]), double(wanted[i]));
    }
}
static void same_bits(const char *what, const float *got, const float *wanted, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (support_bits(got[i]) != support_bits(wanted[i]) && !(std::isnan(got[i]) && std::isnan(wanted[i])))
            fail_msg("%s: element %lld of %lld is %.9g, the CPU has %.9g", what, (long long)i, (long long)count, double(got[i]), double(wanted[i]));
}

/* bf16 behind the first `off` ones: x, rounded. */
static void same_rounded(const char *what, const array<uint16_t> &got, const floats &x, int64_t count, int64_t off = 0)
{
    for (int64_t i = 0; i < count; i++) {
        const float wanted = support_bf16(x[i]), one = float_of(uint32_t(got[off + i]) << 16);
        same_bits(what, &one, &wanted, 1);
    }
}

/* ---- both devices ---- */

static const het_device_iface *cpu_op;
static void *cpu;
static het_allocator allocator;
static het_parallel parallel;

static int start_devices(void **)
{
    het_device_config config;
    static support_memory memory;
    memset(&config, 0, sizeof config);
    allocator = support_allocator(&memory);
    parallel = support_serial();
    config.allocator = &allocator;
    config.parallel = &parallel;
    config.threads = 1;
    cpu_op = het_cpu_device();
    return cpu_op->create(&config, &cpu) == HET_OK ? 0 : 1;
}
static int end_devices(void **)
{
    cpu_op->destroy(cpu);
    for (const auto &[at, error] : worst)
        print_message("%s: off by %.1e at most, where %.1e is allowed\n", at.first.c_str(), error, at.second);
    return broken_guards;
}

static void draw(uint64_t seed)
{
    dice = seed;
    emulator_clear();
    emulator_seed(seed);
}

template <class Args> static het_op op_of(het_op_kind kind, const Args &args)
{
    het_op op;
    memset(&op, 0, sizeof op);
    op.kind = kind;
    memcpy(&op.u, &args, sizeof args);
    return op;
}
template <class Args> static het_result on_cpu(het_op_kind kind, const Args &args)
{
    const het_op op = op_of(kind, args);
    return cpu_op->run(cpu, nullptr, &op);
}
template <class Args> static het_result on_cuda(het_op_kind kind, const Args &args)
{
    const het_op op = op_of(kind, args);
    return hetc_rows_op(nullptr, nullptr, &op);
}
template <class Args> static void run_both(het_op_kind kind, const Args &a, const Args &b)
{
    RUN(on_cpu(kind, a));
    RUN(on_cuda(kind, b));
}

/* Each with the workspace it asks for, filled with NaN. */
template <class Args> static void run_with_workspace(het_op_kind kind, Args a, Args b)
{
    const het_op for_cpu = op_of(kind, a), for_cuda = op_of(kind, b);
    array<unsigned char> cpu_space(int64_t(cpu_op->workspace(cpu, &for_cpu))); /* of no type: never skewed */
    array<unsigned char> cuda_space(int64_t(hetc_rows_workspace(nullptr, &for_cuda)));
    a.workspace = cpu_space.data;
    b.workspace = cuda_space.data;
    run_both(kind, a, b);
}

/* A gradient's sum, started with numbers on the grid. */
struct gradient {
    array<double> exact;
    floats fast;
    array<double> grid;
    array<uint32_t> maximum;
    het_gradient g;
    gradient(int64_t count, bool is_exact) : exact(is_exact ? count : 0), fast(is_exact ? 0 : count), grid(1), maximum(1)
    {
        grid[0] = 1.5 * 4503599627370496.0 * ldexp(1.0, -30);
        maximum[0] = 1;
        for (int64_t i = 0; i < exact.count; i++) exact[i] = ldexp(double(below(1 << 20)), -30);
        for (int64_t i = 0; i < fast.count; i++) fast[i] = float(support_uniform(&dice));
        point();
    }
    gradient(const gradient &other) : exact(other.exact), fast(other.fast), grid(other.grid), maximum(other.maximum) { point(); }
    gradient &operator=(const gradient &) = delete;
    void point()
    {
        g.exact = exact.count > 0;
        g.sum = g.exact ? static_cast<void *>(exact.data) : static_cast<void *>(fast.data);
        g.grid = grid.data;
        g.maximum = maximum.data;
        g.beta = 1;
        g.final = 0;
    }
    std::vector<float> values() const
    {
        std::vector<float> x;
        for (int64_t i = 0; i < exact.count; i++) x.push_back(float(exact[i]));
        for (int64_t i = 0; i < fast.count; i++) x.push_back(fast[i]);
        return x;
    }
};
static void same_gradient(const char *what, const gradient &got, const gradient &wanted, double tolerance)
{
    const std::vector<float> a = got.values(), b = wanted.values();
    close_to(what, a.data(), b.data(), int64_t(a.size()), tolerance);
    const float top = float_of(got.maximum[0]), wanted_top = float_of(wanted.maximum[0]);
    if (got.g.exact) close_to("its maximum", &top, &wanted_top, 1, tolerance);
    else assert_int_equal(got.maximum[0], wanted.maximum[0]);
    if (tolerance > 0) return;
    same_bits(what, a.data(), b.data(), int64_t(a.size()));
    for (int64_t i = 0; i < got.exact.count; i++) assert_true(memcmp(&got.exact[i], &wanted.exact[i], sizeof(double)) == 0);
}

/* ---- micro-batches ---- */

struct packed {
    std::vector<int64_t> starts, granules;
    std::unique_ptr<array<int32_t>> token, position, sequence_of;
    std::unique_ptr<array<int64_t>> sequence_start, granule_start, sample_id;
    het_view view;

    /* Sequences of these lengths, cut into granules of up to `granule` tokens. */
    packed(const std::vector<int64_t> &lengths, int64_t granule, int64_t vocab)
    {
        starts.push_back(0);
        for (int64_t length : lengths) starts.push_back(starts.back() + length);
        granules.push_back(0);
        while (granules.back() < starts.back()) granules.push_back(std::min(starts.back(), granules.back() + 1 + below(granule)));
        if (granules.size() > 2 && coin()) granules.push_back(granules.back()); /* an empty one */
        memset(&view, 0, sizeof view);
        view.tokens = view.row_end = starts.back();
        view.sequences = int64_t(lengths.size());
        view.granules = view.granule_end = int64_t(granules.size()) - 1;
        token.reset(new array<int32_t>(view.tokens));
        position.reset(new array<int32_t>(view.tokens));
        sequence_of.reset(new array<int32_t>(view.tokens));
        sequence_start.reset(new array<int64_t>(view.sequences + 1));
        granule_start.reset(new array<int64_t>(view.granules + 1));
        sample_id.reset(new array<int64_t>(view.sequences));
        for (int64_t s = 0; s < view.sequences; s++) {
            (*sample_id)[s] = below(INT64_C(1) << 40);
            for (int64_t i = starts[size_t(s)]; i < starts[size_t(s) + 1]; i++) {
                (*position)[i] = int32_t(i - starts[size_t(s)]);
                (*sequence_of)[i] = int32_t(s);
                (*token)[i] = int32_t(below(vocab));
            }
        }
        memcpy(sequence_start->data, starts.data(), starts.size() * sizeof(int64_t));
        memcpy(granule_start->data, granules.data(), granules.size() * sizeof(int64_t));
        view.token = token->data;
        view.position = position->data;
        view.sequence_of = sequence_of->data;
        view.sequence_start = sequence_start->data;
        view.granule_start = granule_start->data;
        view.sample_id = sample_id->data;
        view.host_sequence_start = starts.data();
        view.host_granule_start = granules.data();
    }
    het_view slice(int64_t begin, int64_t end) const /* granules */
    {
        het_view v = view;
        v.granule_begin = begin;
        v.granule_end = end;
        v.row_begin = granules[size_t(begin)];
        v.row_end = granules[size_t(end)];
        return v;
    }
    het_view random_slice() const
    {
        const int64_t begin = below(view.granules), end = begin + 1 + below(view.granules - begin);
        return slice(begin, end);
    }
};
static packed random_packed(int64_t limit, int64_t granule, int64_t vocab)
{
    std::vector<int64_t> lengths;
    for (int64_t s = 1 + below(4); s > 0; s--) lengths.push_back(below(4) == 0 ? 0 : 1 + below(limit));
    if (lengths[0] == 0) lengths.push_back(1 + below(limit));
    return packed(lengths, granule, vocab);
}

/* ---- fragments, and the emulator itself ---- */

HETC_KERNEL product_kernel(float *d, const uint16_t *a, const uint16_t *b) /* d = a b, 16 x 8, a [16][16], b [16][16]: columns 0..7 */
{
    HETC_SHARED_BYTES(bytes);
    uint16_t *const left = reinterpret_cast<uint16_t *>(bytes), *const right = left + 256;
    const int lane = hetc_lane();
    float sum[4] = { 0, 0, 0, 0 };
    uint32_t x[4], y[4];
    hetc_copy_async(left + 8 * lane, a + 8 * lane, true);
    hetc_copy_async(right + 8 * lane, b + 8 * lane, true);
    hetc_copy_commit();
    hetc_copy_wait();
    __syncthreads();
    hetc_ldmatrix<false>(x, left + lane % 16 * 16 + lane / 16 * 8);
    hetc_ldmatrix<true>(y, right + lane % 16 * 16 + lane / 16 * 8);
    hetc_mma(sum, x, y[0], y[1]);
    for (int e = 0; e < 4; e++) d[(lane / 4 + e / 2 * 8) * 8 + lane % 4 * 2 + e % 2] = sum[e];
}

static void product_of_fragments(void **)
{
    draw(1);
    array<uint16_t> a(256), b(256);
    floats d(128);
    for (int i = 0; i < 256; i++) {
        a[i] = uint16_t(support_bits(float(below(9) - 4)) >> 16);
        b[i] = uint16_t(support_bits(float(below(9) - 4)) >> 16);
    }
    RUN(HETC_LAUNCH(nullptr, nullptr, product_kernel, dim3(1), 32, 1024, d.data, a.data, b.data));
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            float sum = 0;
            for (int k = 0; k < 16; k++) sum += float_of(uint32_t(a[16 * i + k]) << 16) * float_of(uint32_t(b[16 * k + j]) << 16);
            assert_true(sum == d[8 * i + j]);
        }
}

/* The 64 x P tile a times the N rows of b, and that, rounded, times b: 4 warps. */
template <int P, int N> static __global__ void __launch_bounds__(128) group_kernel(float *d, float *x, uint16_t *a, uint16_t *b)
{
    HETC_SHARED_BYTES(bytes);
    hetc_wide *const left = reinterpret_cast<hetc_wide *>(bytes), *const right = left + 64 * P;
    hetc_tile_fetch<hetc_wide, P, 64, 128>(left, reinterpret_cast<hetc_wide *>(a), P, 0, 64, P);
    hetc_tile_fetch<hetc_wide, P, N, 128>(right, reinterpret_cast<hetc_wide *>(b), P, 0, N, P);
    hetc_copy_commit();
    hetc_tiles_wait<hetc_wide>();
    __syncthreads();
    hetc_left<hetc_wide, P, 1, false> own;
    hetc_accumulator<N, 1> s;
    hetc_accumulator<P, 1> mixed = {};
    own.load(left, 16 * hetc_warp());
    hetc_scores<P, N>(s, own, right);
    hetc_done<hetc_wide, N>(s);
    hetc_mix<P, N, 1>(mixed, s, right);
    hetc_done<hetc_wide, P>(mixed);
    for (int i = 0; i < 4; i++) {
        const int row = 16 * hetc_warp() + hetc_lane() / 4 + i / 2 * 8, column = hetc_lane() % 4 * 2 + i % 2;
        for (int n = 0; n < N / 8; n++) d[row * N + 8 * n + column] = s[n][0][i];
        for (int n = 0; n < P / 8; n++) x[row * P + 8 * n + column] = mixed[n][0][i];
    }
}

template <int P, int N> static void products_of_groups(uint64_t seed)
{
    draw(seed);
    array<uint16_t> a(64 * P), b(N * P);
    floats d(64 * N), x(64 * P);
    for (array<uint16_t> *one : { &a, &b })
        for (int64_t i = 0; i < one->count; i++) (*one)[i] = uint16_t(support_bits(float(below(12) == 0 ? below(3) - 1 : 0)) >> 16);
    RUN(HETC_LAUNCH(nullptr, nullptr, (group_kernel<P, N>), dim3(1), 128, size_t(2) * P * (64 + N), d.data, x.data, a.data, b.data));
    for (int i = 0; i < 64; i++) {
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int k = 0; k < P; k++) sum += float_of(uint32_t(a[P * i + k]) << 16) * float_of(uint32_t(b[P * j + k]) << 16);
            assert_true(sum == d[N * i + j]);
        }
        for (int k = 0; k < P; k++) {
            float sum = 0;
            for (int j = 0; j < N; j++) sum += d[N * i + j] * float_of(uint32_t(b[P * j + k]) << 16);
            assert_true(sum == x[P * i + k]);
        }
    }
}

/* Whether this card, or the emulation, has them; a card of another kind skips. */
static bool has_groups()
{
#ifdef HETC_EMULATED
    return true;
#else
    cudaFuncAttributes about;
    return cudaFuncGetAttributes(&about, hetc_wide_kernel<int>) == cudaSuccess && about.maxThreadsPerBlock == 64;
#endif
}

static void products_of_bf16_by_groups(void **)
{
    if (!has_groups()) return;
    products_of_groups<64, 64>(1);
    products_of_groups<128, 64>(2);
}

#ifdef HETC_EMULATED
HETC_KERNEL misuse_kernel(int kind, float *to)
{
    HETC_SHARED(float, shared, 64);
    HETC_SHARED_BYTES(bytes);
    if (kind == 0 && threadIdx.x < 40) __syncthreads();
    if (kind == 1 && threadIdx.x < 32) __syncthreads();
    if (kind == 1 && threadIdx.x >= 32) __syncthreads();
    if (kind == 2 && threadIdx.x != 5) (void)__shfl_xor_sync(HETC_ALL, 1.0f, 1);
    if (kind == 3) { if (threadIdx.x % 2 == 0) __syncwarp(); else (void)__ballot_sync(HETC_ALL, 1); }
    if (kind == 4) hetc_copy_async(bytes + 1024, to, true);
    if (kind == 5) { hetc_copy_async(bytes + 16 * threadIdx.x, to, true); hetc_copy_commit(); }
    if (kind == 6) { uint32_t x[4]; hetc_ldmatrix<false>(x, bytes + 8); }
    if (kind == 7) (void)__shfl_xor_sync(0xffffu, 1.0f, 1);
    if (kind == 8) { /* no barrier between writing and reading: some warp reads poison */
        shared[threadIdx.x] = 1.0f;
        to[threadIdx.x] = shared[63 - threadIdx.x];
        return;
    }
    to[threadIdx.x] = bytes[threadIdx.x] == 0xff && __float_as_uint(shared[threadIdx.x]) == 0xffffffffu ? 1.0f : 0.0f;
}

static void emulator_is_strict(void **)
{
    static const char *const words[] = { "threads ended, others wait", "different barriers", "collective", "another collective",
                                         "outside shared memory", "never waited", "not aligned", "mask 0000ffff" };
    alignas(16) static float to[64];
    for (int kind = 0; kind < 8; kind++) {
        draw(uint64_t(kind));
        assert_int_equal(HETC_LAUNCH(nullptr, nullptr, misuse_kernel, dim3(3), 64, 1024, kind, &to[0]), HET_ERR_DEVICE);
        if (strstr(emulator_error(), words[kind]) == nullptr) fail_msg("misuse %d: %s", kind, emulator_error());
    }
    draw(9);
    assert_int_equal(HETC_LAUNCH(nullptr, nullptr, misuse_kernel, hetc_grid(INT64_C(1) << 31, 1), 64, 0, 0, &to[0]), HET_ERR_DEVICE);
    assert_non_null(strstr(emulator_error(), "impossible launch"));
    int seen = 0;
    for (uint64_t seed = 0; seed < 4; seed++) {
        draw(seed);
        RUN(HETC_LAUNCH(nullptr, nullptr, misuse_kernel, dim3(1), 64, 1024, 8, &to[0]));
        for (float x : to) seen += std::isnan(x);
        RUN(HETC_LAUNCH(nullptr, nullptr, misuse_kernel, dim3(1), 64, 1024, 9, &to[0]));
        for (float x : to) assert_true(x == 1.0f);
    }
    assert_true(seen > 0);
}
#endif

/* ---- norms ---- */

static void norms(void **)
{
    for (uint64_t seed = 0; seed < 24; seed++) {
        draw(seed);
        const packed batch = random_packed(60, seed % 3 == 0 ? 200 : 12, 10);
        const het_view view = batch.random_slice();
        const bool layer = coin(), with_bias = layer && coin(), exact = coin(), with_residual = coin();
        het_norm_args a;
        memset(&a, 0, sizeof a);
        a.view = &view;
        a.kind = layer ? HET_LAYERNORM : HET_RMSNORM;
        a.rows_per_token = 1 + below(3);
        a.rows = (view.row_end - view.row_begin) * a.rows_per_token;
        a.width = coin() ? 4 * (1 + below(50)) : 1 + below(150);
        if (seed == 5 || seed == 7) a.width = seed == 5 ? 1001 : 2061; /* four warps a row forward; eight, and a rest */
        a.epsilon = 1e-5f;
        const floats x = random_floats(a.rows * a.width, 2), gain = random_floats(a.width, 1), bias = random_floats(a.width, 1);
        const floats dy = random_floats(a.rows * a.width, 1), residual = random_floats(a.rows * a.width, 1);
        floats y(x.count), mean(a.rows), rstd(a.rows), y2(x.count), mean2(a.rows), rstd2(a.rows), dx(x.count), dx2(dy);
        a.x = x.data;
        a.gain = gain.data;
        a.bias = with_bias ? bias.data : nullptr;
        het_norm_args b = a;
        a.y = y.data; a.mean = layer ? mean.data : nullptr; a.rstd = rstd.data;
        b.y = y2.data; b.mean = layer ? mean2.data : nullptr; b.rstd = rstd2.data;
        run_with_workspace(HET_OP_NORM_FORWARD, a, b);
        close_to("norm y", y2.data, y.data, y.count, F32);
        close_to("norm rstd", rstd2.data, rstd.data, a.rows, F32);
        if (layer) close_to("norm mean", mean2.data, mean.data, a.rows, F32);
        a.dy = dy.data; a.dx = dx.data; a.residual = with_residual ? residual.data : nullptr;
        b.dy = dx2.data; b.dx = dx2.data; b.residual = a.residual; b.mean = a.mean; b.rstd = a.rstd; /* in place */
        run_with_workspace(HET_OP_NORM_BACKWARD_INPUT, a, b);
        close_to("norm dx", dx2.data, dx.data, dx.count, F32);
        gradient dgain(a.width, exact), dbias(a.width, exact), dgain2(dgain), dbias2(dbias);
        if (below(5) == 0) dgain.g.sum = dgain2.g.sum = nullptr;
        a.dgain = &dgain.g; a.dbias = with_bias ? &dbias.g : nullptr;
        b.dy = dy.data; b.dgain = &dgain2.g; b.dbias = with_bias ? &dbias2.g : nullptr;
        run_with_workspace(HET_OP_NORM_BACKWARD_WEIGHT, a, b);
        same_gradient("norm dgain", dgain2, dgain, F32);
        same_gradient("norm dbias", dbias2, dbias, F32);
        memset(dx2.data, 0xff, size_t(dx2.count) * sizeof(float)); /* both halves at once, where rows may be read in packs */
        const het_op halves[] = { op_of(HET_OP_NORM_BACKWARD_WEIGHT, a), op_of(HET_OP_NORM_BACKWARD, b) };
        array<unsigned char> cpu_space(int64_t(cpu_op->workspace(cpu, &halves[0]))), space(int64_t(hetc_rows_workspace(nullptr, &halves[1])));
        a.workspace = cpu_space.data; b.workspace = space.data;
        RUN(on_cpu(HET_OP_NORM_BACKWARD_WEIGHT, a));
        RUN(on_cuda(HET_OP_NORM_BACKWARD, b));
        close_to("norm dx at once", dx2.data, dx.data, dx.count, F32);
        same_gradient("norm dgain at once", dgain2, dgain, F32);
        same_gradient("norm dbias at once", dbias2, dbias, F32);
    }
}

static array<uint16_t> round_to_bf16(floats &x);

/* One granule longer than a chunk, many short ones that need several launches, and the bits of any order of blocks and warps; of floats and of bf16,
   in packs and (37 columns) one by one. Between the rows are NaNs. */
static void column_sums(void **)
{
    for (int shape = 0; shape < 12; shape++) {
        draw(uint64_t(shape));
        const packed batch({ shape % 3 == 0 ? 700 : 300 }, shape % 3 == 0 ? 1000 : shape % 3 == 1 ? 1 : 300, 5);
        const int64_t width = shape < 6 ? 40 : 37, pitch = width + 8, rows = batch.view.tokens;
        const int32_t bf16 = shape % 2 == 0 ? 0 : HET_BF16_DY;
        floats dy = random_floats(rows * pitch, 1);
        for (int64_t i = 0; i < rows * pitch; i++)
            if (i % pitch >= width) dy[i] = NAN;
        const array<uint16_t> half = round_to_bf16(dy); /* dy as well */
        const float *const from = bf16 ? reinterpret_cast<const float *>(half.data) : dy.data;
        for (int exact = 0; exact < 2; exact++) {
            gradient wanted(width, exact != 0), got(wanted), again(wanted);
            floats space(int64_t(hetc_columns_workspace(rows, width) / sizeof(float)));
            for (int64_t g = 0; g < batch.view.granules; g++) { /* plain sums in double, one term a granule */
                std::vector<float> term(size_t(width), 0.0f);
                for (int64_t j = 0; j < width; j++) {
                    double sum = 0;
                    for (int64_t r = batch.granules[size_t(g)]; r < batch.granules[size_t(g) + 1]; r++) sum += double(dy[r * pitch + j]);
                    term[size_t(j)] = float(sum);
                }
                const het_accumulate_args one = { &wanted.g, 0, width, term.data() };
                RUN(on_cpu(HET_OP_ACCUMULATE, one));
            }
            RUN(hetc_column_sums(nullptr, nullptr, &batch.view, rows, width, from, pitch, bf16, &got.g, space.data));
            emulator_seed(99);
            RUN(hetc_column_sums(nullptr, nullptr, &batch.view, rows, width, from, pitch, bf16, &again.g, space.data));
            same_gradient("column sums", got, wanted, F32);
            same_gradient("column sums in another order", again, got, 0);
        }
    }
}

/* ---- rotary, activations ---- */

static void rotary(void **)
{
    for (uint64_t seed = 0; seed < 16; seed++) {
        draw(seed);
        const packed batch = random_packed(30, 10, 10);
        const het_view view = batch.random_slice();
        het_rotary_args a;
        memset(&a, 0, sizeof a);
        a.view = &view;
        a.rows = view.row_end - view.row_begin;
        a.heads = 1 + below(4);
        a.head_size = 2 * (1 + below(40));
        a.rotary = coin() ? a.head_size : 2 * below(a.head_size / 2 + 1);
        const floats c = random_floats(31 * (a.rotary / 2), 1), s = random_floats(c.count, 1), x = random_floats(a.rows * a.heads * a.head_size, 1);
        floats y(x.count), y2(x);
        a.cosine = c.data; a.sine = s.data; a.x = x.data; a.y = y.data;
        het_rotary_args b = a;
        b.y = y2.data;
        if (coin()) b.x = y2.data; /* in place */
        run_both(HET_OP_ROTARY_FORWARD, a, b);
        same_bits("rotary y", y2.data, y.data, y.count);
        a.x = y.data; a.y = y.data; b.x = b.y = y2.data;
        run_both(HET_OP_ROTARY_BACKWARD, a, b);
        same_bits("rotary dx", y2.data, y.data, y.count);
    }
}

static void activations(void **)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        draw(seed);
        static const het_activation kinds[] = { HET_GELU_TANH, HET_GELU_ERF, HET_SWIGLU };
        het_activation_args a;
        memset(&a, 0, sizeof a);
        a.kind = kinds[seed % 3];
        a.count = coin() ? 4 * below(500) : 1 + below(2100);
        floats x = random_floats(a.count, 6);
        const floats gate = random_floats(a.count, 2), dy = random_floats(a.count, 1);
        if (a.count > 8) { x[3] = 30.0f; x[4] = -30.0f; x[5] = NAN; x[6] = INFINITY; x[7] = 1e30f; }
        floats y(a.count), y2(a.count), da(a.count), da2(dy), db(a.count), db2(a.count);
        a.a = x.data; a.b = a.kind == HET_SWIGLU ? gate.data : nullptr; a.y = y.data; a.dy = dy.data; a.da = da.data; a.db = db.data;
        het_activation_args b = a;
        b.y = y2.data; b.dy = b.da = da2.data; b.db = db2.data;
        run_both(HET_OP_ACTIVATION_FORWARD, a, b);
        run_both(HET_OP_ACTIVATION_BACKWARD, a, b);
        if (a.count > 8) y[7] = y2[7] = da[7] = da2[7] = db[7] = db2[7] = 0; /* 1e30 would hide the others in the mean square */
        close_to("activation y", y2.data, y.data, a.count, F32);
        close_to("activation da", da2.data, da.data, a.count, F32);
        if (a.kind == HET_SWIGLU) close_to("activation db", db2.data, db.data, a.count, F32);
    }
}

/* ---- embedding, dropout ---- */

static void embedding(void **)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        draw(seed);
        const int64_t vocab = seed % 2 ? 1 + int64_t(seed) / 2 % 3 : 500;
        const bool large = seed == 9; /* more runs of sorted rows than a warp has lanes */
        const packed batch = large ? packed({ 399, 399, 399, 399, 399, 399 }, 500, vocab) :
                             random_packed(seed % 5 == 0 ? 400 : 60, seed % 3 ? 20 : 500, vocab);
        const het_view view = large ? batch.view : batch.random_slice();
        const bool exact = seed / 2 % 2 == 1, positions = coin() || large;
        het_embedding_args a;
        memset(&a, 0, sizeof a);
        a.view = &view;
        a.rows = view.row_end - view.row_begin;
        a.width = seed % 7 == 0 ? 300 : 1 + below(40);
        a.vocab = vocab;
        a.context = 400;
        const floats table = random_floats(a.vocab * a.width, 1), place = random_floats(a.context * a.width, 1);
        const floats dy = random_floats(a.rows * a.width, 1);
        floats y(dy.count), y2(dy.count);
        gradient dtable(a.vocab * a.width, exact), dplace(a.context * a.width, exact), dtable2(dtable), dplace2(dplace);
        a.table = table.data; a.positions = positions ? place.data : nullptr; a.y = y.data; a.dy = dy.data;
        a.dtable = &dtable.g; a.dpositions = positions ? &dplace.g : nullptr;
        het_embedding_args b = a;
        b.y = y2.data; b.dtable = &dtable2.g; b.dpositions = positions ? &dplace2.g : nullptr;
        if (seed % 6 == 5) dtable.g.sum = dtable2.g.sum = nullptr;
        run_both(HET_OP_EMBEDDING_FORWARD, a, b);
        same_bits("embedding y", y2.data, y.data, y.count);
        run_with_workspace(HET_OP_EMBEDDING_BACKWARD_WEIGHT, a, b);
        same_gradient("embedding dtable", dtable2, dtable, exact ? 0 : F32); /* floats: the CPU's chain starts from the sum */
        same_gradient("embedding dpositions", dplace2, dplace, exact ? 0 : F32);
    }
}

static void dropout(void **)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        draw(seed);
        const packed batch = random_packed(30, 10, 10);
        const het_view view = batch.random_slice();
        array<het_step_scalars> scalars = zeros<het_step_scalars>(1);
        het_dropout_args a;
        memset(&a, 0, sizeof a);
        scalars[0].seed = uint64_t(below(INT64_C(1) << 50));
        scalars[0].step = uint64_t(below(1000));
        a.view = &view;
        a.scalars = scalars.data;
        a.rows = view.row_end - view.row_begin;
        a.width = 1 + below(300);
        a.probability = seed % 4 == 0 ? 0.0f : 0.3f;
        a.site = int32_t(below(40));
        const floats x = random_floats(a.rows * a.width, 1), other = random_floats(x.count, 1);
        floats y(x.count), y2(other);
        a.x = x.data; a.a = coin() ? other.data : nullptr; a.y = y.data;
        het_dropout_args b = a;
        b.y = y2.data;
        if (a.a != nullptr) b.a = y2.data; /* in place */
        run_both(HET_OP_DROPOUT_FORWARD, a, b);
        same_bits("dropout y", y2.data, y.data, y.count);
        b.a = a.a;
        run_both(HET_OP_DROPOUT_BACKWARD, a, b);
        same_bits("dropout dx", y2.data, y.data, y.count);
    }
}

/* ---- loss ---- */

static void cross_entropy(void **)
{
    for (uint64_t seed = 0; seed < 16; seed++) {
        draw(seed);
        array<het_step_scalars> scalars = zeros<het_step_scalars>(1);
        het_cross_entropy_args a;
        memset(&a, 0, sizeof a);
        scalars[0].inverse_weight = 0.25f;
        a.scalars = scalars.data;
        a.rows = 1 + below(6);
        a.vocab = seed % 4 == 0 ? 1 + below(5) : 1 + below(5000);
        a.gradient = int32_t(below(4) > 0);
        floats x = random_floats(a.rows * a.vocab, seed % 3 ? 3 : 40);
        floats weight = random_floats(a.rows, 1);
        array<int32_t> target(a.rows);
        for (int64_t r = 0; r < a.rows; r++) {
            target[r] = below(5) == 0 ? -1 : int32_t(below(a.vocab));
            weight[r] = fabsf(weight[r]);
            for (int64_t j = 0; r % 2 == 1 && j < a.vocab; j++) if (j != target[r] && below(3)) x[r * a.vocab + j] = -INFINITY; /* never chosen */
        }
        if (seed == 13) x[below(x.count)] = NAN;
        if (seed == 14) x[0] = INFINITY;
        if (seed == 15) for (int64_t j = 0; j < a.vocab; j++) x[j] = -INFINITY;
        if (seed >= 13) target[0] = 0;
        floats x2(x), row_loss(a.rows), row_loss2(a.rows);
        array<het_sum> loss = zeros<het_sum>(1);
        loss[0].limb[9] = -5;
        array<het_sum> loss2(loss);
        a.logits = x.data; a.target = target.data; a.weight = weight.data; a.loss = loss.data; a.row_loss = row_loss.data;
        het_cross_entropy_args b = a;
        b.logits = x2.data; b.loss = loss2.data; b.row_loss = row_loss2.data;
        run_with_workspace(HET_OP_CROSS_ENTROPY, a, b);
        const float sum = float(support_sum_value(loss.data)), sum2 = float(support_sum_value(loss2.data));
        close_to("loss", &sum2, &sum, 1, 1e-6);
        close_to("row losses", row_loss2.data, row_loss.data, a.rows, 1e-6);
        for (int64_t r = 0; r < a.rows; r++) close_to("logits", x2.data + r * a.vocab, x.data + r * a.vocab, a.vocab, F32);
    }
}

/* ---- elementwise, gradients, optimizer ---- */

static void int8_weights(void **)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        draw(seed);
        const int64_t rows = coin() ? 1 : 1 + below(9), width = 1 + below(rows == 1 ? 3000 : 300), step = width + below(200);
        const int64_t blocks = (width + 126) / 64;
        const floats scale = random_floats(rows * blocks, 1);
        floats y = random_floats(rows * width, 1), y2(y);
        array<het_int8_block> block(rows * blocks);
        for (int64_t i = 0; i < rows * blocks; i++) {
            block[i].scale = scale[i];
            for (int j = 0; j < 64; j++) block[i].q[j] = int8_t(below(255) - 127);
        }
        const het_expand_args a = { rows, width, below(200), step, blocks, block.data, y.data };
        het_expand_args b = a;
        b.y = y2.data;
        run_both(HET_OP_EXPAND, a, b);
        same_bits("expand", y2.data, y.data, rows * width);
    }
}

static void elementwise(void **)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        draw(seed);
        const int64_t count = coin() ? 4 * (1 + below(700)) : 1 + below(2500), offset = below(40);
        const floats x = random_floats(count, 1);
        floats y = random_floats(count, 1), y2(y);
        const het_elements_args e = { count, y.data, x.data, 0.3f, nullptr }, e2 = { count, y2.data, x.data, 0.3f, nullptr };
        run_both(HET_OP_ADD, e, e2);
        same_bits("add", y2.data, y.data, count);
        run_both(HET_OP_SCALE, e, e2);
        same_bits("scale", y2.data, y.data, count);
        array<uint16_t> bits(count);
        RUN(hetc_to_bf16(nullptr, nullptr, bits.data, x.data, count));
        same_rounded("bf16", bits, x, count);
        gradient sum(count + offset, coin()), sum2(sum);
        het_accumulate_args a = { &sum.g, offset, count, x.data }, b = { &sum2.g, offset, count, x.data };
        run_both(HET_OP_ACCUMULATE, a, b);
        same_gradient("accumulate", sum2, sum, 0);
        array<het_sum> squares = zeros<het_sum>(1), squares2 = zeros<het_sum>(1);
        het_sum_squares_args c = { &sum.g, count, squares.data, nullptr, nullptr },
                             d = { &sum2.g, count, squares2.data, nullptr, nullptr };
        run_with_workspace(HET_OP_SUM_SQUARES, c, d);
        const double one = support_sum_value(squares.data), two = support_sum_value(squares2.data);
        assert_true(fabs(one - two) <= 1e-13 * one && two > 0);
        sum.g.sum = nullptr; /* frozen */
        het_sum_squares_args frozen = { &sum.g, count, squares.data, nullptr, nullptr };
        het_accumulate_args none = { &sum.g, offset, count, x.data };
        RUN(hetc_sum_squares(nullptr, nullptr, &frozen));
        RUN(hetc_accumulate(nullptr, nullptr, &none));
        assert_true(one == support_sum_value(squares.data));
    }
    draw(3); /* more blocks than one launch has warps, terms that are not finite */
    gradient big(9000, false);
    array<het_sum> squares = zeros<het_sum>(1);
    het_sum_squares_args a = { &big.g, 9000, squares.data, nullptr, nullptr };
    RUN(hetc_sum_squares(nullptr, nullptr, &a));
    double wanted = 0;
    for (int64_t i = 0; i < 9000; i++) wanted += double(big.fast[i]) * double(big.fast[i]);
    assert_true(fabs(support_sum_value(squares.data) - wanted) <= 1e-12 * wanted);
    big.fast[8999] = INFINITY;
    RUN(hetc_sum_squares(nullptr, nullptr, &a));
    assert_true(squares[0].limb[19] == 1);
}

static void adamw(void **)
{
    for (uint64_t seed = 0; seed < 10; seed++) {
        draw(seed);
        array<het_step_scalars> scalars = zeros<het_step_scalars>(1);
        het_adamw_args a;
        scalars[0].learning_rate = 0.01f;
        scalars[0].bias_correction1 = 0.3f;
        scalars[0].bias_correction2 = 0.1f;
        scalars[0].clip_scale = 0.7f;
        scalars[0].verdict = seed == 3 ? HET_VERDICT_REPEAT : HET_VERDICT_ACCEPT;
        a.count = coin() ? 4 * (1 + below(600)) : 1 + below(2000);
        gradient sum(a.count, coin());
        floats w = random_floats(a.count, 1), m = random_floats(a.count, 0.1), v = random_floats(a.count, 0.1);
        for (int64_t i = 0; i < a.count; i++) v[i] = fabsf(v[i]);
        floats w2(w), m2(m), v2(v);
        a.scalars = scalars.data; a.gradient = &sum.g; a.w = w.data; a.m = m.data; a.v = v.data;
        a.beta1 = 0.9f; a.beta2 = 0.95f; a.epsilon = 1e-8f; a.decay = 0.1f;
        const int64_t off = coin() ? 0 : below(4); /* elements in front of the rounded weights */
        array<uint16_t> bits(a.count + off), before(bits);
        a.w_bf16 = nullptr; a.next = nullptr;
        het_adamw_args b = a;
        b.w = w2.data; b.m = m2.data; b.v = v2.data; b.w_bf16 = seed % 4 == 1 ? nullptr : bits.data + off;
        run_both(HET_OP_ADAMW, a, b);
        if (b.w_bf16 != nullptr && seed != 3) same_rounded("adamw, rounded", bits, w, a.count, off);
        else for (int64_t i = 0; i < a.count; i++) assert_true(bits[i + off] == before[i + off]);
        same_bits("adamw w", w2.data, w.data, a.count);
        same_bits("adamw m", m2.data, m.data, a.count);
        same_bits("adamw v", v2.data, v.data, a.count);
        for (int32_t begins = 1; begins >= 0; begins--) { /* m: what lay in the weights */
            float *const last = seed % 2 > 0 ? v.data : nullptr, *const last2 = seed % 2 > 0 ? v2.data : nullptr;
            const het_feedback_args f = { scalars.data, a.count, w.data, m.data, last, 0.7f, 0.4f, begins };
            const het_feedback_args f2 = { scalars.data, a.count, w2.data, m2.data, last2, 0.7f, 0.4f, begins };
            run_both(HET_OP_FEEDBACK, f, f2);
            same_bits("feedback w", w2.data, w.data, a.count);
            same_bits("feedback e", m2.data, m.data, a.count);
            same_bits("feedback last", v2.data, v.data, a.count);
        }
    }
}

/* Tall, wide and square matrices, whole tiles and parts of them; and the norm that x is divided by. */
static void muon(void **)
{
    for (uint64_t seed = 0; seed < 14; seed++) {
        draw(seed);
        array<het_step_scalars> scalars = zeros<het_step_scalars>(1);
        const int64_t rows = seed < 2 ? 64 : 1 + below(100), columns = seed == 0 ? 64 : seed == 1 ? 32 : 1 + below(100), count = rows * columns;
        gradient sum(count, coin());
        floats w = random_floats(count, 1), m = random_floats(count, 0.1), x = random_floats(count, 1);
        floats w2(w), m2(m), x2(x);
        scalars[0].learning_rate = 0.01f;
        scalars[0].clip_scale = 0.7f;
        scalars[0].verdict = seed == 3 ? HET_VERDICT_REPEAT : HET_VERDICT_ACCEPT;
        if (seed == 4) sum.g.sum = nullptr; /* frozen */
        const het_muon_args a = { scalars.data, &sum.g, rows, columns, w.data, m.data, x.data, 0.95f, 2.0f, 0.1f, 1.7f };
        het_muon_args b = a;
        b.w = w2.data; b.m = m2.data; b.x = x2.data;
        run_both(HET_OP_MUON_MOMENTUM, a, b);
        same_bits("muon m", m2.data, m.data, count);
        same_bits("muon x", x2.data, x.data, count);
        array<het_sum> squares = zeros<het_sum>(1), squares2 = zeros<het_sum>(1);
        het_gradient of = { x.data, 0, 0, 0, nullptr, nullptr };
        het_sum_squares_args c = { &of, count, squares.data, nullptr, nullptr }, d = { &of, count, squares2.data, nullptr, nullptr };
        run_with_workspace(HET_OP_SUM_SQUARES, c, d);
        const het_elements_args e = { count, x.data, nullptr, 1.0f, squares.data }, e2 = { count, x2.data, nullptr, 1.0f, squares.data };
        run_both(HET_OP_SCALE, e, e2);
        same_bits("divided by the norm", x2.data, x.data, count);
        run_both(HET_OP_MUON_UPDATE, a, b);
        same_bits("muon w", w2.data, w.data, count);
        same_bits("muon x, read", x2.data, x.data, count);
    }
}

/* Several parameters in one launch: as the CPU has them one by one. Those without a gradient stay as they are. */
static void updates_together(void **)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        draw(seed);
        const size_t parameters = size_t(seed == 0 ? 16 : 1 + below(16));
        array<het_step_scalars> scalars = zeros<het_step_scalars>(1);
        array<het_sum> squares = zeros<het_sum>(1), squares2 = zeros<het_sum>(1);
        std::deque<gradient> sum;
        std::deque<floats> w, m, v, w2, m2, v2;
        std::vector<het_adamw_args> a(parameters), b(parameters);
        std::vector<het_sum_squares_args> c(parameters), d(parameters);
        scalars[0].learning_rate = 0.01f;
        scalars[0].bias_correction1 = scalars[0].bias_correction2 = 0.3f;
        scalars[0].clip_scale = 0.7f;
        scalars[0].verdict = HET_VERDICT_ACCEPT;
        for (size_t i = 0; i < parameters; i++) {
            const int64_t count = seed % 2 == 0 ? 4 * (1 + below(900)) : 1 + below(3000);
            sum.emplace_back(count, coin());
            if (below(8) == 0) sum.back().g.sum = nullptr;
            w.push_back(random_floats(count, 1));
            m.push_back(random_floats(count, 0.1));
            v.push_back(zeros<float>(count));
            w2.push_back(w.back()), m2.push_back(m.back()), v2.push_back(v.back());
            a[i] = { scalars.data, &sum.back().g, count, w.back().data, m.back().data, v.back().data, 0.9f, 0.95f, 1e-8f, coin() ? 0.1f : 0.0f, nullptr, nullptr };
            b[i] = a[i];
            b[i].w = w2.back().data; b[i].m = m2.back().data; b[i].v = v2.back().data;
            c[i] = { &sum.back().g, count, squares.data, nullptr, nullptr };
            d[i] = { &sum.back().g, count, squares2.data, nullptr, nullptr };
            if (i > 0) b[i - 1].next = &b[i], d[i - 1].next = &d[i];
            if (sum.back().g.sum == nullptr) continue;
            const het_op squared = op_of(HET_OP_SUM_SQUARES, c[i]);
            floats space(int64_t(cpu_op->workspace(cpu, &squared) / sizeof(float)));
            c[i].workspace = space.data;
            RUN(on_cpu(HET_OP_SUM_SQUARES, c[i]));
            RUN(on_cpu(HET_OP_ADAMW, a[i]));
        }
        RUN(on_cuda(HET_OP_SUM_SQUARES, d[0]));
        RUN(on_cuda(HET_OP_ADAMW, b[0]));
        const double one = support_sum_value(squares.data), two = support_sum_value(squares2.data);
        assert_true(fabs(one - two) <= 1e-13 * one);
        for (size_t i = 0; i < parameters; i++) {
            same_bits("w", w2[i].data, w[i].data, w[i].count);
            same_bits("m", m2[i].data, m[i].data, m[i].count);
            same_bits("v", v2[i].data, v[i].data, v[i].count);
        }
    }
}

static void verdicts(void **)
{
    int seen[5] = { 0, 0, 0, 0, 0 };
    for (uint64_t seed = 0; seed < 300; seed++) {
        draw(seed);
        const int64_t parameters = 1 + below(400);
        array<het_step_scalars> scalars = zeros<het_step_scalars>(1);
        het_step_scalars &one = scalars[0];
        array<uint32_t> maximum(parameters);
        array<int32_t> exponent(parameters);
        array<het_sum> squares = zeros<het_sum>(1), loss = zeros<het_sum>(1);
        one.maximum_norm = coin() ? 0.0 : 1.0;
        for (int64_t i = 0; i < parameters; i++) {
            maximum[i] = below(4) == 0 ? 0 : support_bits(float(ldexp(1.0 + 0.4 * support_uniform(&dice), int(below(8)) - 4)));
            exponent[i] = seed % 4 == 0 && below(parameters) == 0 ? -10 : seed % 5 == 0 && below(parameters) == 0 ? HETRAIN_NO_EXPONENT : -2;
        }
        if (seed % 7 == 0) maximum[below(parameters)] = coin() ? 0x7f800000u : 0x7fc00001u;
        for (int64_t i = below(6); i > 0; i--) squares[0].limb[below(19)] += below(INT64_C(1) << 45);
        if (coin()) squares[0].limb[7] -= below(1000); /* borrowed by the limbs above */
        if (squares[0].limb[7] < 0) squares[0].limb[9] += 1000;
        if (seed % 9 == 0) { /* halfway between two doubles, or a little more: to the even one, or up */
            squares[0] = zeros<het_sum>(1)[0];
            squares[0].limb[10] = (1 << 21) + below(1 << 21);
            squares[0].limb[9] = 4 * below(1 << 30) + 1;
            squares[0].limb[0] = below(2);
        }
        for (int64_t i = below(4); i > 0; i--) loss[0].limb[below(12)] += below(INT64_C(1) << 40) - (INT64_C(1) << 39);
        if (seed % 11 == 0) loss[0].limb[19] = 1;
        if (seed % 13 == 0) squares[0].limb[19] = 1;
        if (seed % 3 == 0) { /* limits on both sides of loss and norm, and on them */
            const int64_t which = below(3);
            one.spike_loss = support_sum_value(&loss.data[0]) + double(below(3) - 1);
            one.spike_norm = sqrt(support_sum_value(&squares.data[0])) * (which == 0 ? 0.5 : which == 1 ? 1.0 : 2.0);
        }
        array<het_step_scalars> scalars2(scalars);
        const het_step_scalars &two = scalars2[0];
        het_verdict_args a = { scalars.data, parameters, maximum.data, exponent.data, int32_t(below(3) > 0), squares.data, loss.data }, b = a;
        b.scalars = scalars2.data;
        run_both(HET_OP_VERDICT, a, b);
        seen[one.verdict]++;
        assert_int_equal(two.verdict, one.verdict);
        same_bits("clip scale", &two.clip_scale, &one.clip_scale, 1);
        assert_true(one.gradient_norm == two.gradient_norm || (std::isnan(one.gradient_norm) && std::isnan(two.gradient_norm)));
    }
    assert_true(seen[HET_VERDICT_ACCEPT] > 20 && seen[HET_VERDICT_REPEAT] > 20 && seen[HET_VERDICT_NOT_FINITE] > 20 && seen[HET_VERDICT_SPIKE] > 10);
}

/* ---- attention ---- */

struct attention_shape {
    int64_t heads, kv_heads, head_size, window;
    int causal;
    std::vector<int64_t> lengths;
    int slices;
};

/* Forward over the slices first to last, backward last to first, on one device; the arrays that come out. */
struct attention_run {
    floats o, maximum, sum, dq, dk, dv;
    attention_run(const attention_shape &s, int64_t n)
        : o(n * s.heads * s.head_size), maximum(n * s.heads), sum(n * s.heads), dq(o.count), dk(zeros<float>(n * s.kv_heads * s.head_size)), dv(dk) {}
    void go(const attention_shape &s, const packed &batch, het_dtype compute, bool cuda, const floats &q, const floats &k, const floats &v,
            const floats &d_o)
    {
        for (int turn = 0; turn < 2 * s.slices; turn++) {
            const bool backward = turn >= s.slices;
            const int64_t slice = backward ? 2 * s.slices - 1 - turn : turn, granules = batch.view.granules;
            const het_view view = batch.slice(slice * granules / s.slices, (slice + 1) * granules / s.slices);
            const int64_t at = view.row_begin * s.heads;
            het_attention_args a;
            memset(&a, 0, sizeof a);
            a.view = &view;
            a.compute = compute;
            a.heads = s.heads; a.kv_heads = s.kv_heads; a.head_size = s.head_size; a.window = s.window; a.causal = s.causal;
            a.scale = float(1 / sqrt(double(s.head_size)));
            a.q = q.data + at * s.head_size; a.k = k.data; a.v = v.data; a.d_o = d_o.data + at * s.head_size;
            a.o = o.data + at * s.head_size; a.maximum = maximum.data + at; a.sum = sum.data + at;
            a.dq = dq.data + at * s.head_size; a.dk = dk.data; a.dv = dv.data;
            const het_op_kind kind = backward ? HET_OP_ATTENTION_BACKWARD : HET_OP_ATTENTION_FORWARD;
            const het_op op = op_of(kind, a);
            array<unsigned char> space(int64_t(cuda ? hetc_rows_workspace(nullptr, &op) : cpu_op->workspace(cpu, &op)));
            a.workspace = space.data;
            a.workspace_size = size_t(space.count);
            RUN(cuda ? on_cuda(kind, a) : on_cpu(kind, a));
        }
    }
};

static void check_attention(const attention_shape &s, het_dtype compute, uint64_t seed)
{
    draw(seed);
    const packed batch(s.lengths, 16, 10);
    const int64_t n = batch.view.tokens;
    const floats q = random_floats(n * s.heads * s.head_size, 2), k = random_floats(n * s.kv_heads * s.head_size, 2);
    const floats v = random_floats(k.count, 1), d_o = random_floats(q.count, 1);
    attention_run wanted(s, n), got(s, n);
    wanted.go(s, batch, compute, false, q, k, v, d_o);
    got.go(s, batch, compute, true, q, k, v, d_o);
    const double tolerance = compute == HET_BF16 ? BF16 : tf32 ? TF32 : F32;
    /* Little may be left of terms near 1. In tf32 a term P do, P = exp(S - m) / l, is off by 2^-11 for P, 2^-11 for do and by S's error, 4e-4
       (standard deviation of 61 products): of 640 runs of these shapes the worst element of dv was off by TF32 (|dv| + 0.41), of dk by 0.30, of o by
       0.26, of dq by 0.23. The card's last bit of P may round it the other way: 2^-11 more, TF32 0.16. */
    const double least = tf32 ? 0.6 : 0.05;
    /* tensor cores drop bits of partial sums: near 4e-6 with heads of 128 */
    const double statistics = tf32 ? TF32 : compute == HET_BF16 ? 3e-5 : F32;
    close_to("attention maximum", got.maximum.data, wanted.maximum.data, n * s.heads, statistics);
    close_to("attention sum", got.sum.data, wanted.sum.data, n * s.heads, statistics);
    close_to("attention o", got.o.data, wanted.o.data, q.count, tolerance, tf32 ? least : 0);
    close_to("attention dq", got.dq.data, wanted.dq.data, q.count, tolerance, least);
    close_to("attention dk", got.dk.data, wanted.dk.data, k.count, tolerance, least);
    close_to("attention dv", got.dv.data, wanted.dv.data, k.count, tolerance, least);
}

static const std::vector<attention_shape> attention_shapes = {
    { 2, 1, 64, 0, 1, { 150 }, 1 }, { 2, 2, 64, 0, 1, { 40, 0, 65, 3 }, 2 }, { 4, 2, 96, 0, 1, { 70, 20 }, 1 }, { 2, 1, 128, 0, 1, { 90 }, 3 },
    { 1, 1, 16, 0, 0, { 33, 80, 1 }, 1 }, { 3, 1, 40, 17, 1, { 140 }, 1 }, { 2, 2, 64, 70, 1, { 30, 190 }, 3 }, { 1, 1, 64, 9, 0, { 100, 31 }, 1 },
    { 2, 2, 7, 4, 0, { 21, 50 }, 1 }, { 6, 2, 80, 0, 1, { 30, 1, 1, 40 }, 1 }, { 1, 1, 128, 33, 1, { 64, 64 }, 2 }, { 2, 1, 112, 0, 0, { 66 }, 1 },
    { 1, 1, 64, 1, 1, { 20, 1 }, 1 }, { 1, 1, 61, 0, 1, { 128 }, 4 },
    { 1, 1, 64, INT64_C(1) << 40, 0, { 30 }, 1 }, { 1, 1, 64, INT64_C(1) << 40, 1, { 30, 40 }, 2 },
};

static void attention_f32(void **)
{
    for (size_t i = 0; i < attention_shapes.size(); i++) check_attention(attention_shapes[i], HET_F32, i);
}
static void attention_bf16(void **)
{
    for (size_t i = 0; i < attention_shapes.size(); i++) check_attention(attention_shapes[i], HET_BF16, i);
}
static void attention_tf32(void **)
{
    tf32 = 1;
    for (size_t i = 0; i < attention_shapes.size(); i++) check_attention(attention_shapes[i], HET_F32, i);
    tf32 = 0;
}
static void attention_random(void **)
{
    for (uint64_t seed = 100; seed < 116; seed++) {
        attention_shape s;
        draw(seed);
        s.kv_heads = 1 + below(2);
        s.heads = s.kv_heads * (1 + below(3));
        s.head_size = 1 + below(128);
        s.causal = below(3) > 0;
        s.window = coin() ? 0 : 1 + below(50);
        s.slices = s.causal ? int(1 + below(4)) : 1;
        s.lengths = { 1 + below(90) };
        for (int64_t i = below(4); i > 0; i--) s.lengths.push_back(below(60));
        tf32 = seed % 4 == 2;
        check_attention(s, seed % 2 ? HET_BF16 : HET_F32, seed);
    }
    tf32 = 0;
}

/* Blocks, warps and lanes in another order: the same bits. By atomics all but dq, which is off by the rounding of its sums. */
static void same_bits_in_any_order(void **)
{
    const attention_shape s = { 4, 2, 64, 50, 1, { 100, 33 }, 2 };
    draw(7);
    const packed batch(s.lengths, 16, 10);
    const int64_t n = batch.view.tokens;
    const floats q = random_floats(n * 256, 2), k = random_floats(n * 128, 2), v = random_floats(n * 128, 1), d_o = random_floats(n * 256, 1);
    attention_run one(s, n), two(s, n), added(s, n), again(s, n);
    one.go(s, batch, HET_BF16, true, q, k, v, d_o);
    emulator_seed(12345);
    two.go(s, batch, HET_BF16, true, q, k, v, d_o);
    same_bits("o", two.o.data, one.o.data, q.count);
    same_bits("dq", two.dq.data, one.dq.data, q.count);
    same_bits("dk", two.dk.data, one.dk.data, k.count);
    same_bits("dv", two.dv.data, one.dv.data, k.count);
    atomic = 1;
    added.go(s, batch, HET_BF16, true, q, k, v, d_o);
    emulator_seed(54321);
    again.go(s, batch, HET_BF16, true, q, k, v, d_o);
    atomic = 0;
    same_bits("dk by atomics", again.dk.data, added.dk.data, k.count);
    same_bits("dv by atomics", again.dv.data, added.dv.data, k.count);
    close_to("dq by atomics", again.dq.data, added.dq.data, q.count, F32);
    close_to("dq by atomics, of the other", added.dq.data, one.dq.data, q.count, F32);
    close_to("dk by atomics, of the other", added.dk.data, one.dk.data, k.count, F32);
}

/* ---- values in bf16: the CPU's op on the same values as floats, its results rounded. What is rounded may fall to the other side ---- */

static const double ROUNDED = 1.0 / 128; /* two halves of a step of 2^-8, and what the f32 tolerances allow */

typedef array<uint16_t> halves;

/* Rounds x itself, and gives its bits. */
static halves round_to_bf16(floats &x)
{
    halves bits(x.count);
    for (int64_t i = 0; i < x.count; i++) {
        x[i] = support_bf16(x[i]);
        bits[i] = uint16_t(support_bits(x[i]) >> 16);
    }
    return bits;
}
static float *as_floats(halves &x) { return reinterpret_cast<float *>(x.data); }

static void halves_close(const char *what, const halves &got, const floats &wanted)
{
    floats x(got.count);
    for (int64_t i = 0; i < got.count; i++) x[i] = float_of(uint32_t(got[i]) << 16);
    close_to(what, x.data, wanted.data, got.count, ROUNDED);
}

template <class Args> static void run_bf16(het_op_kind kind, const Args &args, int32_t bf16)
{
    het_op op = op_of(kind, args);
    op.bf16 = bf16;
    RUN(hetc_rows_op(nullptr, nullptr, &op));
}

/* x of a stream of floats, or bf16: inside, or a stream to whose gradient it adds. */
static void norms_bf16(void **)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        draw(seed);
        const packed batch = random_packed(40, seed % 3 == 0 ? 200 : 12, 10);
        const het_view view = batch.random_slice();
        const bool layer = coin(), inside = seed % 2 == 1, exact = coin(), adds = seed % 4 != 3;
        het_norm_args a;
        memset(&a, 0, sizeof a);
        a.view = &view;
        a.kind = layer ? HET_LAYERNORM : HET_RMSNORM;
        a.rows_per_token = 1 + below(3);
        a.rows = (view.row_end - view.row_begin) * a.rows_per_token;
        a.width = 8 * (seed == 4 ? 150 : seed == 5 ? 256 : seed > 9 ? 520 + below(9) : 1 + below(30)); /* above 4,096 two packs a thread */
        a.epsilon = 1e-5f;
        floats x = random_floats(a.rows * a.width, 2), dy = random_floats(a.rows * a.width, 1), residual = random_floats(x.count, 1);
        const floats gain = random_floats(a.width, 1);
        halves x16 = round_to_bf16(x), dy16 = round_to_bf16(dy), y16(x.count), dx16(x.count);
        halves residual16 = inside ? round_to_bf16(residual) : halves(x.count);
        floats y(x.count), mean(a.rows), rstd(a.rows), mean2(a.rows), rstd2(a.rows), dx(x.count), dx2(x.count);
        gradient dgain(a.width, exact), dbias(a.width, exact), dgain2(dgain), dbias2(dbias);
        a.x = x.data; a.gain = gain.data; a.mean = mean.data; a.rstd = rstd.data; a.y = y.data; a.dy = dy.data; a.dx = dx.data;
        a.residual = adds ? residual.data : nullptr; a.dgain = &dgain.g; a.dbias = layer ? &dbias.g : nullptr;
        het_norm_args b = a;
        const int32_t bits = HET_BF16_Y | HET_BF16_DY | (inside ? HET_BF16_X | HET_BF16_DX : 0);
        if (inside) { b.x = as_floats(x16); b.dx = as_floats(dx16); b.residual = adds ? as_floats(residual16) : nullptr; }
        else b.dx = dx2.data;
        b.y = as_floats(y16); b.dy = as_floats(dy16); b.mean = mean2.data; b.rstd = rstd2.data; b.dgain = &dgain2.g;
        b.dbias = layer ? &dbias2.g : nullptr;
        RUN(on_cpu(HET_OP_NORM_FORWARD, a));
        run_bf16(HET_OP_NORM_FORWARD, b, bits);
        halves_close("norm y in bf16", y16, y);
        RUN(on_cpu(HET_OP_NORM_BACKWARD_INPUT, a));
        run_bf16(HET_OP_NORM_BACKWARD_INPUT, b, bits);
        if (inside) halves_close("norm dx in bf16", dx16, dx);
        else close_to("norm dx of bf16", dx2.data, dx.data, dx.count, F32);
        het_op op = op_of(HET_OP_NORM_BACKWARD_WEIGHT, a); /* the workspace of both halves at once too */
        floats cpu_space(int64_t(cpu_op->workspace(cpu, &op) / sizeof(float)));
        op.bf16 = bits;
        array<unsigned char> space(int64_t(hetc_rows_workspace(nullptr, &op)));
        a.workspace = cpu_space.data; b.workspace = space.data;
        RUN(on_cpu(HET_OP_NORM_BACKWARD_WEIGHT, a));
        run_bf16(HET_OP_NORM_BACKWARD_WEIGHT, b, bits);
        same_gradient("norm dgain of bf16", dgain2, dgain, F32);
        if (layer) same_gradient("norm dbias of bf16", dbias2, dbias, F32);
        /* both halves at once, added to what is there */
        memset(dx2.data, 0xff, size_t(dx2.count) * sizeof(float));
        memset(dx16.data, 0xff, size_t(dx16.count) * 2);
        RUN(on_cpu(HET_OP_NORM_BACKWARD_WEIGHT, a));
        run_bf16(HET_OP_NORM_BACKWARD, b, bits);
        same_gradient("norm dgain at once", dgain2, dgain, F32);
        if (layer) same_gradient("norm dbias at once", dbias2, dbias, F32);
        if (inside) halves_close("norm dx in bf16 at once", dx16, dx);
        else close_to("norm dx at once", dx2.data, dx.data, dx.count, F32);
    }
}

/* Gate and up in the same rows, and their gradients: the bits of those that lie apart, of which `a` is the backward. */
static void swiglu_side_by_side(const het_activation_args &a, int64_t rows, int64_t width)
{
    const int32_t all = HET_BF16_X | HET_BF16_Y | HET_BF16_DX | HET_BF16_DY;
    const auto *gate = reinterpret_cast<const uint16_t *>(a.a), *up = reinterpret_cast<const uint16_t *>(a.b);
    const auto *da = reinterpret_cast<const uint16_t *>(a.da), *db = reinterpret_cast<const uint16_t *>(a.db);
    halves both(2 * a.count), slopes(2 * a.count), apart(a.count), y(a.count);
    het_activation_args b = a, c = a;
    for (int64_t i = 0; i < a.count; i++) {
        both[i / width * 2 * width + i % width] = gate[i];
        both[i / width * 2 * width + width + i % width] = up[i];
    }
    b.a = as_floats(both); b.b = reinterpret_cast<float *>(both.data + width); b.y = as_floats(y);
    b.da = as_floats(slopes); b.db = reinterpret_cast<float *>(slopes.data + width);
    b.width = width; b.pitch = 2 * width;
    c.y = as_floats(apart);
    run_bf16(HET_OP_ACTIVATION_FORWARD, b, all);
    run_bf16(HET_OP_ACTIVATION_BACKWARD, b, all);
    run_bf16(HET_OP_ACTIVATION_FORWARD, c, all);
    for (int64_t i = 0; i < rows * width; i++) {
        assert_int_equal(y[i], apart[i]);
        assert_int_equal(slopes[i / width * 2 * width + i % width], da[i]);
        assert_int_equal(slopes[i / width * 2 * width + width + i % width], db[i]);
    }
}

static void elements_bf16(void **)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        draw(seed);
        static const het_activation kinds[] = { HET_GELU_TANH, HET_GELU_ERF, HET_SWIGLU };
        const packed batch = random_packed(30, 10, 10);
        const het_view view = batch.random_slice();
        const int64_t rows = view.row_end - view.row_begin, heads = 1 + below(3), size = 8 * (1 + below(12)), count = rows * heads * size;
        floats x = random_floats(count, 3), gate = random_floats(count, 2), dy = random_floats(count, 1), stream = random_floats(count, 1);
        halves x16 = round_to_bf16(x), gate16 = round_to_bf16(gate), dy16 = round_to_bf16(dy), y16(count), z16(count);
        floats y(count), z(count), y2(count);
        const int32_t all = HET_BF16_X | HET_BF16_Y | HET_BF16_DX | HET_BF16_DY;
        het_activation_args a = { kinds[seed % 3], count, x.data, seed % 3 == 2 ? gate.data : nullptr, y.data, dy.data, y.data, z.data, 0, 0 }, b = a;
        b.a = as_floats(x16); b.b = seed % 3 == 2 ? as_floats(gate16) : nullptr; b.y = b.da = as_floats(y16); b.dy = as_floats(dy16);
        b.db = as_floats(z16);
        RUN(on_cpu(HET_OP_ACTIVATION_FORWARD, a));
        run_bf16(HET_OP_ACTIVATION_FORWARD, b, all);
        halves_close("activation y in bf16", y16, y);
        RUN(on_cpu(HET_OP_ACTIVATION_BACKWARD, a));
        run_bf16(HET_OP_ACTIVATION_BACKWARD, b, all);
        halves_close("activation da in bf16", y16, y);
        if (seed % 3 == 2) {
            halves_close("activation db in bf16", z16, z);
            swiglu_side_by_side(b, rows, heads * size);
        }
        het_rotary_args r;
        memset(&r, 0, sizeof r);
        r.view = &view; r.rows = rows; r.heads = heads; r.head_size = size; r.rotary = coin() ? size : 2 * below(size / 2 + 1);
        const floats c = random_floats(31 * (r.rotary / 2), 1), s = random_floats(c.count, 1);
        r.cosine = c.data; r.sine = s.data; r.x = x.data; r.y = y.data;
        RUN(on_cpu(HET_OP_ROTARY_FORWARD, r));
        r.x = r.y = as_floats(x16); /* in place */
        run_bf16(HET_OP_ROTARY_FORWARD, r, HET_BF16_X | HET_BF16_Y);
        halves_close("rotary in bf16", x16, y);
        array<het_step_scalars> scalars = zeros<het_step_scalars>(1);
        scalars[0].seed = seed;
        het_dropout_args d;
        memset(&d, 0, sizeof d);
        d.view = &view; d.scalars = scalars.data; d.rows = rows; d.width = heads * size; d.probability = seed % 2 ? 0.3f : 0.0f;
        d.a = stream.data; d.x = dy.data; d.y = y.data;
        RUN(on_cpu(HET_OP_DROPOUT_FORWARD, d));
        d.x = as_floats(dy16); d.y = y2.data;
        run_bf16(HET_OP_DROPOUT_FORWARD, d, HET_BF16_X);
        same_bits("dropout of bf16", y2.data, y.data, count);
        d.x = stream.data; d.y = y.data;
        RUN(on_cpu(HET_OP_DROPOUT_BACKWARD, d));
        d.y = as_floats(z16);
        run_bf16(HET_OP_DROPOUT_BACKWARD, d, HET_BF16_Y);
        halves_close("dropout in bf16", z16, y);
        halves stream16 = round_to_bf16(stream);
        d.a = stream.data; d.x = dy.data; d.y = y.data;
        RUN(on_cpu(HET_OP_DROPOUT_FORWARD, d));
        d.a = as_floats(stream16); d.x = as_floats(dy16); d.y = as_floats(z16);
        run_bf16(HET_OP_DROPOUT_FORWARD, d, HET_BF16_X | HET_BF16_Y | HET_BF16_ADDED);
        halves_close("a stream of bf16 and what drops", z16, y);
        for (int64_t i = 0; i < count; i++) y[i] = stream[i] + dy[i];
        const het_elements_args sum = { count, as_floats(stream16), as_floats(dy16), 1.0f, nullptr };
        run_bf16(HET_OP_ADD, sum, HET_BF16_X | HET_BF16_Y);
        halves_close("a sum in bf16", stream16, y);
    }
}

static void embedding_bf16(void **)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        draw(seed);
        const packed batch = random_packed(seed % 5 == 0 ? 400 : 60, seed % 3 ? 20 : 500, 7);
        const het_view view = batch.random_slice();
        const bool exact = coin(), positions = coin();
        const int32_t bits = HET_BF16_Y | HET_BF16_DY;
        het_embedding_args a;
        memset(&a, 0, sizeof a);
        a.view = &view;
        a.rows = view.row_end - view.row_begin;
        a.width = 8 * (1 + below(40));
        a.vocab = 7;
        a.context = 400;
        const floats table = random_floats(a.vocab * a.width, 1), place = random_floats(a.context * a.width, 1);
        floats y(a.rows * a.width), dy = random_floats(y.count, 1);
        halves y16(y.count), dy16 = round_to_bf16(dy);
        gradient dtable(a.vocab * a.width, exact), dplace(a.context * a.width, exact), dtable2(dtable), dplace2(dplace);
        a.table = table.data; a.positions = positions ? place.data : nullptr; a.y = y.data; a.dy = dy.data;
        a.dtable = &dtable.g; a.dpositions = positions ? &dplace.g : nullptr;
        het_embedding_args b = a;
        b.y = as_floats(y16); b.dy = as_floats(dy16); b.dtable = &dtable2.g; b.dpositions = positions ? &dplace2.g : nullptr;
        RUN(on_cpu(HET_OP_EMBEDDING_FORWARD, a));
        run_bf16(HET_OP_EMBEDDING_FORWARD, b, bits);
        halves_close("embedding y in bf16", y16, y);
        het_op op = op_of(HET_OP_EMBEDDING_BACKWARD_WEIGHT, a);
        floats cpu_space(int64_t(cpu_op->workspace(cpu, &op) / sizeof(float)));
        array<unsigned char> space(int64_t(hetc_rows_workspace(nullptr, &op)));
        a.workspace = cpu_space.data; b.workspace = space.data;
        RUN(on_cpu(HET_OP_EMBEDDING_BACKWARD_WEIGHT, a));
        run_bf16(HET_OP_EMBEDDING_BACKWARD_WEIGHT, b, bits);
        same_gradient("embedding dtable of bf16", dtable2, dtable, exact ? 0 : F32);
        same_gradient("embedding dpositions of bf16", dplace2, dplace, exact ? 0 : F32);
    }
}

/* Logits of bf16 in rows that begin at 8 bytes; the gradient lies over them, zeros behind the vocabulary. Evaluation leaves the logits alone. */
static void cross_entropy_bf16(void **)
{
    for (uint64_t seed = 0; seed < 10; seed++) {
        draw(seed);
        array<het_step_scalars> scalars = zeros<het_step_scalars>(1);
        het_cross_entropy_args a;
        memset(&a, 0, sizeof a);
        scalars[0].inverse_weight = 0.25f;
        a.scalars = scalars.data;
        a.rows = 1 + below(5);
        a.vocab = seed % 4 == 0 ? 1 + below(70) : seed % 4 == 1 ? 12288 + below(3000) : 1 + below(5000);
        a.gradient = 1;
        shared_limit = seed < 5 ? 227 << 10 : 48 << 10; /* rows that are kept, and rows that do not fit */
        const int64_t pitch = (a.vocab + 3) / 4 * 4 + 4 * below(40);
        floats x = random_floats(a.rows * a.vocab, 3), weight = random_floats(a.rows, 1), row_loss(a.rows), row_loss2(a.rows);
        for (int64_t i = below(8); i < x.count; i += 9) x[i] = -INFINITY; /* never chosen */
        (void)round_to_bf16(x);
        halves x2(a.rows * pitch);
        array<int32_t> target(a.rows);
        for (int64_t r = 0; r < a.rows; r++) {
            target[r] = below(4) == 0 ? -1 : int32_t(below(a.vocab));
            weight[r] = fabsf(weight[r]);
            if (target[r] >= 0) x[r * a.vocab + target[r]] = support_bf16(1.5f);
            for (int64_t j = 0; j < a.vocab; j++) x2[r * pitch + j] = uint16_t(support_bits(x[r * a.vocab + j]) >> 16);
        }
        array<het_sum> loss = zeros<het_sum>(1), loss2(loss);
        a.logits = x.data; a.target = target.data; a.weight = weight.data; a.loss = loss.data; a.row_loss = row_loss.data;
        het_cross_entropy_args b = a;
        b.logits = as_floats(x2); b.pitch = pitch; b.loss = loss2.data; b.row_loss = row_loss2.data;
        const het_op op = op_of(HET_OP_CROSS_ENTROPY, a);
        floats space(int64_t(cpu_op->workspace(cpu, &op) / sizeof(float)));
        a.workspace = space.data;
        b.gradient = 0;
        run_bf16(HET_OP_CROSS_ENTROPY, b, HET_BF16_X | HET_BF16_DX);
        for (int64_t i = 0; i < x.count; i++) assert_true(float_of(uint32_t(x2[i / a.vocab * pitch + i % a.vocab]) << 16) == x[i]);
        loss2[0] = zeros<het_sum>(1)[0];
        b.gradient = 1;
        RUN(on_cpu(HET_OP_CROSS_ENTROPY, a));
        run_bf16(HET_OP_CROSS_ENTROPY, b, HET_BF16_X | HET_BF16_DX);
        close_to("row losses", row_loss2.data, row_loss.data, a.rows, 1e-6);
        assert_true(fabs(support_sum_value(loss.data) - support_sum_value(loss2.data)) <= 1e-6 * fabs(support_sum_value(loss.data)));
        for (int64_t r = 0; r < a.rows; r++) {
            for (int64_t j = 0; j < pitch; j++) {
                const float got = float_of(uint32_t(x2[r * pitch + j]) << 16), wanted = j < a.vocab ? x[r * a.vocab + j] : 0.0f;
                if (!(fabs(double(got - wanted)) <= 0.004 * fabs(double(wanted))))
                    fail_msg("row %d, column %d of %d: %g, not %g", int(r), int(j), int(a.vocab), double(got), double(wanted));
            }
        }
    }
}

/* Attention on operands that are bf16, against the CPU's on the same numbers in f32; forward also in two slices, as generation goes on. */
/* Columns [column, column + width) of rows `pitch` long, from and to an array of their own. */
static void put_columns(halves &all, int64_t pitch, int64_t column, halves &own, int64_t width, bool back)
{
    for (int64_t i = 0; i < own.count; i++) {
        uint16_t &there = all[i / width * pitch + column + i % width];
        if (back) own[i] = there;
        else there = own[i];
    }
}

/* Each of q, k and v by itself, then side by side in rows of which one column in front belongs to nobody. */
static void attention_of_bf16(void **)
{
    for (size_t i = 0; i < 2 * attention_shapes.size(); i++) {
        attention_shape s = attention_shapes[i / 2];
        s.slices = 1;
        s.head_size = (s.head_size + 7) / 8 * 8;
        draw(i / 2);
        const packed batch(s.lengths, 16, 10);
        const int64_t n = batch.view.tokens, wide = s.heads * s.head_size, narrow = s.kv_heads * s.head_size;
        const int64_t pitch = 8 + wide + 2 * narrow;
        floats q = random_floats(n * s.heads * s.head_size, 2), k = random_floats(n * s.kv_heads * s.head_size, 2);
        floats v = random_floats(k.count, 1), d_o = random_floats(q.count, 1);
        halves q16 = round_to_bf16(q), k16 = round_to_bf16(k), v16 = round_to_bf16(v), do16 = round_to_bf16(d_o);
        halves o16(q.count), dq16(q.count), dk16(k.count), dv16(k.count);
        attention_run wanted(s, n), got(s, n);
        wanted.go(s, batch, HET_F32, false, q, k, v, d_o);
        het_attention_args a;
        memset(&a, 0, sizeof a);
        a.view = &batch.view;
        a.compute = HET_BF16;
        a.heads = s.heads; a.kv_heads = s.kv_heads; a.head_size = s.head_size; a.window = s.window; a.causal = s.causal;
        a.scale = float(1 / sqrt(double(s.head_size)));
        a.q = as_floats(q16); a.k = as_floats(k16); a.v = as_floats(v16); a.d_o = as_floats(do16);
        a.o = as_floats(o16); a.maximum = got.maximum.data; a.sum = got.sum.data;
        a.dq = as_floats(dq16); a.dk = as_floats(dk16); a.dv = as_floats(dv16);
        halves all(n * pitch), d_all(n * pitch);
        if (i % 2 == 1) {
            put_columns(all, pitch, 8, q16, wide, false);
            put_columns(all, pitch, 8 + wide, k16, narrow, false);
            put_columns(all, pitch, 8 + wide + narrow, v16, narrow, false);
            a.pitch = pitch;
            a.q = as_floats(all) + 4; a.k = a.q + wide / 2; a.v = a.k + narrow / 2;
            a.dq = as_floats(d_all) + 4; a.dk = a.dq + wide / 2; a.dv = a.dk + narrow / 2;
        }
        for (int backward = 0; backward < 2; backward++) {
            het_op op = op_of(backward ? HET_OP_ATTENTION_BACKWARD : HET_OP_ATTENTION_FORWARD, a);
            op.bf16 = HET_BF16_X | HET_BF16_Y | HET_BF16_DX | HET_BF16_DY;
            array<unsigned char> space(int64_t(hetc_rows_workspace(nullptr, &op)));
            op.u.attention.workspace = space.data;
            op.u.attention.workspace_size = size_t(space.count);
            for (int64_t begin = 0, end = !backward && s.causal && i / 2 % 2 == 1 ? n / 2 : n; begin < n; begin = end, end = n) {
                het_view part = batch.view;
                het_op own = op;
                part.row_begin = begin; part.row_end = end;
                own.u.attention.view = &part;
                own.u.attention.q += begin * (a.pitch != 0 ? a.pitch : wide) / 2; own.u.attention.o += begin * wide / 2;
                own.u.attention.maximum += begin * s.heads; own.u.attention.sum += begin * s.heads;
                RUN(hetc_rows_op(nullptr, nullptr, &own));
            }
        }
        if (i % 2 == 1) {
            put_columns(d_all, pitch, 8, dq16, wide, true);
            put_columns(d_all, pitch, 8 + wide, dk16, narrow, true);
            put_columns(d_all, pitch, 8 + wide + narrow, dv16, narrow, true);
        }
        close_to("attention maximum", got.maximum.data, wanted.maximum.data, n * s.heads, 3e-5);
        close_to("attention sum", got.sum.data, wanted.sum.data, n * s.heads, 3e-5);
        struct { const char *what; halves *got; floats *wanted; } const pairs[] = {
            { "attention o", &o16, &wanted.o }, { "attention dq", &dq16, &wanted.dq }, { "attention dk", &dk16, &wanted.dk },
            { "attention dv", &dv16, &wanted.dv }
        };
        for (const auto &pair : pairs) {
            floats x(pair.got->count);
            for (int64_t j = 0; j < x.count; j++) x[j] = float_of(uint32_t((*pair.got)[j]) << 16);
            close_to(pair.what, x.data, pair.wanted->data, x.count, BF16, 0.3); /* delta is of a rounded o */
        }
    }
}

static void attention_of_bf16_by_groups(void **state)
{
    if (!has_groups()) return;
    groups = 1;
    attention_of_bf16(state);
    groups = 0;
}

/* All of these again in five products a tile: also where a window or a sequence begins within a step, and heads share their keys. */
static void attention_by_atomics(void **state)
{
    atomic = 1;
    attention_f32(state);
    attention_tf32(state);
    attention_random(state);
    atomic = 0;
}
static void attention_of_bf16_by_atomics(void **state)
{
    atomic = 1;
    attention_bf16(state);
    attention_of_bf16(state);
    attention_of_bf16_by_groups(state);
    atomic = 0;
}

/* ---- addresses that packs do not fit ---- */

static void everything_off(void **state)
{
    for (skew = 4; skew <= 8; skew += 4) {
        norms(state);
        activations(state);
        embedding(state);
        dropout(state);
        cross_entropy(state);
        elementwise(state);
        adamw(state);
        muon(state);
        attention_random(state);
    }
    skew = 0;
}

/* ---- what is refused ---- */

static void refused(const char *word, het_result result)
{
    assert_int_equal(result, HET_ERR_INVALID);
    if (last_failure.find(word) == std::string::npos) fail_msg("\"%s\" does not say %s", last_failure.c_str(), word);
}
static void refusals(void **)
{
    draw(1);
    const packed batch({ 5 }, 3, 4);
    het_attention_args a;
    het_norm_args norm;
    memset(&a, 0, sizeof a);
    memset(&norm, 0, sizeof norm);
    a.view = &batch.view;
    a.heads = a.kv_heads = 1;
    a.causal = 1;
    a.head_size = 129;
    refused("129", on_cuda(HET_OP_ATTENTION_FORWARD, a));
    a.head_size = 64;
    a.workspace_size = 100;
    refused("100", on_cuda(HET_OP_ATTENTION_BACKWARD, a));
    a.kv_heads = 2;
    refused("5 rows of 64", on_cuda(HET_OP_ATTENTION_FORWARD, a));
    norm.rows = 3;
    refused("3 rows of 0", on_cuda(HET_OP_NORM_FORWARD, norm));
}

#ifdef HETC_EMULATED
HETC_KERNEL wide_kernel(float *from) { (void)hetc_get<4>(from); }

/* What a card refuses: packs at an odd address, more shared memory than was asked for. */
static void as_strict_as_a_card(void **)
{
    alignas(16) static float x[8];
    draw(1);
    assert_int_equal(HETC_LAUNCH(nullptr, nullptr, wide_kernel, dim3(1), 32, 0, &x[2]), HET_ERR_DEVICE);
    assert_non_null(strstr(emulator_error(), "misaligned address of 16 bytes"));
    draw(1);
    RUN(HETC_LAUNCH(nullptr, nullptr, wide_kernel, dim3(1), 32, 49 << 10, &x[4]));
    forgetful = true;
    assert_int_equal(HETC_LAUNCH(nullptr, nullptr, wide_kernel, dim3(1), 32, 50 << 10, &x[4]), HET_ERR_DEVICE);
    forgetful = false;
    assert_non_null(strstr(emulator_error(), "nobody asked for"));
    draw(1);
}
#endif

int main()
{
    const struct CMUnitTest tests[] = {
#ifdef HETC_EMULATED
        cmocka_unit_test(emulator_is_strict), cmocka_unit_test(as_strict_as_a_card),
#endif
        cmocka_unit_test(product_of_fragments), cmocka_unit_test(products_of_bf16_by_groups), cmocka_unit_test(norms), cmocka_unit_test(column_sums),
        cmocka_unit_test(rotary), cmocka_unit_test(activations), cmocka_unit_test(embedding), cmocka_unit_test(dropout),
        cmocka_unit_test(cross_entropy), cmocka_unit_test(elementwise), cmocka_unit_test(int8_weights),
        cmocka_unit_test(adamw), cmocka_unit_test(muon), cmocka_unit_test(updates_together), cmocka_unit_test(verdicts),
        cmocka_unit_test(attention_f32), cmocka_unit_test(attention_bf16), cmocka_unit_test(attention_tf32), cmocka_unit_test(attention_random),
        cmocka_unit_test(same_bits_in_any_order), cmocka_unit_test(norms_bf16), cmocka_unit_test(elements_bf16), cmocka_unit_test(embedding_bf16),
        cmocka_unit_test(cross_entropy_bf16), cmocka_unit_test(attention_of_bf16), cmocka_unit_test(attention_of_bf16_by_groups),
        cmocka_unit_test(attention_by_atomics), cmocka_unit_test(attention_of_bf16_by_atomics), cmocka_unit_test(everything_off), cmocka_unit_test(refusals)
    };
    if (getenv("HETRAIN_TEST_ONLY") != nullptr) cmocka_set_test_filter(getenv("HETRAIN_TEST_ONLY"));
    return cmocka_run_group_tests(tests, start_devices, end_devices) != 0 || broken_guards != 0;
}
