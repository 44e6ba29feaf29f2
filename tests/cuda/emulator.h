/* emulator.h: CUDA kernels on the CPU, for tests

   A kernel is an ordinary function here; emulator_run calls it once for every thread of every block. Each thread of a block is a fibre with
   its own stack. A thread runs until it meets something that concerns others: a barrier (its block) or a shuffle, vote, ldmatrix or mma
   (its warp); there it waits until all of them are at the same one.

   What it is strict about, so that bugs show:
    * Order: blocks, the warps of a block between two barriers and the lanes of a warp between two collectives run in an order drawn from
      a seed; each as far as it gets alone. A barrier that is missing lets some warp read too early or overwrite too early.
    * Shared memory is poisoned with 0xff (NaN as float and as bf16) when a block starts and guarded behind its end.
    * cp.async lands when the thread waits for it and not before; until then its target is poisoned. One that is never waited for is an error.
    * A barrier or collective which some threads miss because they ended or stand at another one is an error, never a hang.
    * Addresses of ldmatrix and cp.async must lie in shared memory and be aligned to 16; packs to their size (hetc_aligned). An array in shared
      memory is aligned as its type asks and no better, for where the compiler puts it is not the kernel's to know.
    * More than 48 KiB of shared memory, arrays of the kernel's own included, has to be asked for, kernel by kernel.
   The first error is kept as a text (emulator_error) and ends the block it is in.

   Threads: several may run kernels at the same time; each has its own fibres. */
#ifndef HETRAIN_EMULATOR_H
#define HETRAIN_EMULATOR_H

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMULATOR_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define EMULATOR_ASAN 1
#endif
#ifdef EMULATOR_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifndef __x86_64__
#include <ucontext.h>
#endif

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

/* The stand-in for the runtime may have it already. */
#ifndef EMULATOR_HAS_DIM3
#define EMULATOR_HAS_DIM3
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
#endif

enum { EMULATOR_WARP = 32, EMULATOR_STACK = 256 << 10, EMULATOR_GUARD = 256 };
enum emulator_state { EMULATOR_READY, EMULATOR_AT_WARP, EMULATOR_AT_BLOCK, EMULATOR_ENDED };

/* ---- contexts: a stack pointer, or the system's ---- */

#ifdef __x86_64__
typedef void *emulator_context;
/* Saves the registers a call must keep on the present stack, the stack pointer in *from, and goes on with another stack. Its end is a jump: a
   processor foretells where a return goes from the calls before it, here always wrongly. */
extern "C" void emulator_switch(emulator_context *from, emulator_context to);
__asm__(".pushsection .text.emulator_switch,\"axG\",@progbits,emulator_switch,comdat\n"
        ".weak emulator_switch\n.type emulator_switch,@function\nemulator_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\npopq %rcx\njmpq *%rcx\n"
        ".size emulator_switch,.-emulator_switch\n.popsection\n");
#else
typedef ucontext_t emulator_context;
#endif

struct emulator_copy {
    void *to;
    const void *from; /* NULL: zeros */
    unsigned group, bytes;
};

struct emulator_lane {
    emulator_context context;
    char *stack;
    void *fake_stack;   /* AddressSanitizer's */
    dim3 index;         /* threadIdx */
    int number;         /* in the block */
    emulator_state state; /* of one that is not ready: where it stands */
    int place;          /* where it waits: the barrier's line, the kind of collective */
    uint64_t in[8], out[4]; /* a collective's operands and result */
    std::vector<emulator_copy> copies;
    unsigned groups;    /* committed */
};

/* Which lanes of a warp can go on, a bit each; how many wait at a collective, at which kind; how many have ended. */
struct emulator_warp { uint32_t ready; int waiting, kind, ended; };

struct emulator_array { const void *key; unsigned char *data; size_t bytes; void *block; };

struct emulator_machine {
    uint64_t seed;
    std::vector<char *> stacks;
    std::vector<emulator_lane> lanes;
    std::vector<emulator_warp> warps;
    std::vector<emulator_array> arrays; /* shared memory of the block; the first is the dynamic one */
    const std::function<void()> *body;
    emulator_lane *current;
    emulator_context scheduler;
    void *fake_stack;
    const void *scheduler_stack;
    size_t scheduler_size;
    dim3 grid, block, place;
    int failed;                         /* this launch */
    int vote;                           /* of the barrier that was passed last */
    emulator_machine() : seed(1), body(nullptr), current(nullptr), scheduler(), fake_stack(nullptr), scheduler_stack(nullptr), scheduler_size(0),
                         failed(0), vote(0) {}
    ~emulator_machine() { for (char *stack : stacks) free(stack); }
};

inline emulator_machine &emulator_this() { static thread_local emulator_machine machine; return machine; }
inline std::mutex &emulator_mutex() { static std::mutex mutex; return mutex; }
inline char (&emulator_text())[512] { static char text[512]; return text; }

/* The first error since the last emulator_clear, or "". Threads: any. */
inline const char *emulator_error() { return emulator_text(); }
inline void emulator_clear() { std::lock_guard<std::mutex> lock(emulator_mutex()); emulator_text()[0] = 0; }
/* The order of everything that has none. Threads: own. */
inline void emulator_seed(uint64_t seed) { emulator_this().seed = seed; }

inline uint64_t emulator_random()
{
    uint64_t &s = emulator_this().seed;
    s = s * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return s >> 33;
}

/* ---- switching ---- */

inline void emulator_to_lane(emulator_lane *lane)
{
    emulator_machine &m = emulator_this();
    m.current = lane;
#ifdef EMULATOR_ASAN
    __sanitizer_start_switch_fiber(&m.fake_stack, lane->stack, EMULATOR_STACK);
#endif
#ifdef __x86_64__
    emulator_switch(&m.scheduler, lane->context);
#else
    swapcontext(&m.scheduler, &lane->context);
#endif
#ifdef EMULATOR_ASAN
    __sanitizer_finish_switch_fiber(m.fake_stack, nullptr, nullptr);
#endif
}

inline void emulator_to_scheduler()
{
    emulator_machine &m = emulator_this();
    emulator_lane *lane = m.current;
    m.warps[size_t(lane->number / EMULATOR_WARP)].ready &= ~(1u << lane->number % EMULATOR_WARP);
#ifdef EMULATOR_ASAN
    __sanitizer_start_switch_fiber(lane->state == EMULATOR_ENDED ? nullptr : &lane->fake_stack, m.scheduler_stack, m.scheduler_size);
#endif
#ifdef __x86_64__
    emulator_switch(&lane->context, m.scheduler);
#else
    swapcontext(&lane->context, &m.scheduler);
#endif
#ifdef EMULATOR_ASAN
    __sanitizer_finish_switch_fiber(lane->fake_stack, &m.scheduler_stack, &m.scheduler_size);
#endif
}

/* Keeps the first error's text. From a lane it does not return: the block is given up. */
__attribute__((format(printf, 1, 2))) inline void emulator_fail(const char *format, ...)
{
    emulator_machine &m = emulator_this();
    {
        std::lock_guard<std::mutex> lock(emulator_mutex());
        char (&text)[512] = emulator_text();
        if (text[0] == 0) {
            int used = snprintf(text, sizeof text, "block %u,%u,%u: ", m.place.x, m.place.y, m.place.z);
            if (m.current != nullptr) used += snprintf(text + used, sizeof text - size_t(used), "thread %d: ", m.current->number);
            va_list list;
            va_start(list, format);
            vsnprintf(text + used, sizeof text - size_t(used), format, list);
            va_end(list);
        }
    }
    m.failed = 1;
    if (m.current != nullptr) {
        m.current->state = EMULATOR_ENDED;
        emulator_to_scheduler();
    }
}

inline void emulator_entry()
{
    emulator_machine &m = emulator_this();
#ifdef EMULATOR_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &m.scheduler_stack, &m.scheduler_size);
#endif
    (*m.body)();
    if (!m.current->copies.empty()) emulator_fail("cp.async never waited for");
    m.current->state = EMULATOR_ENDED;
    m.warps[size_t(m.current->number / EMULATOR_WARP)].ended++;
    emulator_to_scheduler();
}

inline void emulator_start_lane(emulator_lane *lane)
{
#ifdef EMULATOR_ASAN
    __asan_unpoison_memory_region(lane->stack, EMULATOR_STACK);
#endif
#ifdef __x86_64__
    void **top = reinterpret_cast<void **>(lane->stack + EMULATOR_STACK) - 8;
    memset(top - 6, 0, 14 * sizeof *top);
    *top = reinterpret_cast<void *>(&emulator_entry); /* what the switch returns to, after six registers */
    lane->context = top - 6;
#else
    getcontext(&lane->context);
    lane->context.uc_stack.ss_sp = lane->stack;
    lane->context.uc_stack.ss_size = EMULATOR_STACK;
    lane->context.uc_link = nullptr;
    makecontext(&lane->context, emulator_entry, 0);
#endif
    lane->state = EMULATOR_READY;
    lane->fake_stack = nullptr;
    lane->copies.clear();
    lane->groups = 0;
}

/* ---- shared memory ---- */

/* The block's array known by `key`: the same for all threads that come here, made by the first. Its address is an odd multiple of
   `align`; 0: one of 1,024. */
inline void *emulator_shared(const void *key, size_t bytes, size_t align)
{
    emulator_machine &m = emulator_this();
    for (const emulator_array &array : m.arrays)
        if (array.key == key) return array.data;
    void *block = nullptr;
#ifdef EMULATOR_ASAN
    const size_t guard = 0; /* has guards of its own */
#else
    const size_t guard = EMULATOR_GUARD;
#endif
    if (posix_memalign(&block, 1024, align + bytes + guard + (align + bytes + guard == 0)) != 0) abort();
    unsigned char *const data = static_cast<unsigned char *>(block) + align;
    memset(data, 0xff, bytes);
    memset(data + bytes, 0xa5, guard);
    m.arrays.push_back({ key, data, bytes, block });
    return data;
}
inline unsigned char *emulator_dynamic_shared() { return emulator_this().arrays[0].data; }

/* Returns the bytes of all arrays. */
inline size_t emulator_free_shared()
{
    emulator_machine &m = emulator_this();
    size_t bytes = 0;
    for (const emulator_array &array : m.arrays) {
        bytes += array.bytes;
#ifndef EMULATOR_ASAN
        for (size_t i = 0; i < EMULATOR_GUARD; i++)
            if (array.data[array.bytes + i] != 0xa5) { emulator_fail("wrote behind an array of %zu bytes in shared memory", array.bytes); break; }
#endif
        free(array.block);
    }
    m.arrays.clear();
    return bytes;
}

inline void emulator_check_shared(const void *p, size_t bytes, const char *what) /* aligned to its size */
{
    const unsigned char *from = static_cast<const unsigned char *>(p);
    for (const emulator_array &array : emulator_this().arrays)
        if (from >= array.data && from + bytes <= array.data + array.bytes) {
            if (reinterpret_cast<uintptr_t>(p) % bytes != 0) emulator_fail("%s: address not aligned to %zu", what, bytes);
            return;
        }
    emulator_fail("%s: address outside shared memory", what);
}

/* ---- running a block ---- */

/* No thread can go on: all are at one barrier, or something is wrong. */
inline void emulator_pass_barrier()
{
    emulator_machine &m = emulator_this();
    const emulator_lane *waits = nullptr;
    int ended = 0, vote = 0;
    m.current = nullptr;
    for (const emulator_lane &lane : m.lanes) {
        if (lane.state == EMULATOR_ENDED) { ended++; continue; }
        if (lane.state == EMULATOR_AT_WARP) {
            emulator_fail("thread %d waits for its warp at a collective that others do not reach", lane.number);
            return;
        }
        if (waits != nullptr && waits->place != lane.place) {
            emulator_fail("threads at different barriers, lines %d and %d", waits->place, lane.place);
            return;
        }
        waits = &lane;
        vote |= lane.in[0] != 0;
    }
    if (waits == nullptr) return;
    if (ended > 0) { emulator_fail("%d threads ended, others wait at the barrier of line %d", ended, waits->place); return; }
    m.vote = vote;
    for (emulator_warp &warp : m.warps) warp.ready = ~0u;
}

inline bool emulator_run_warp(int warp)
{
    emulator_machine &m = emulator_this();
    emulator_lane *lanes = &m.lanes[size_t(warp * EMULATOR_WARP)];
    const uint32_t &ready = m.warps[size_t(warp)].ready;
    bool moved = false, again = true;
    while (again && !m.failed) {
        const unsigned turn = unsigned(emulator_random() % EMULATOR_WARP), direction = emulator_random() & 1 ? 1 : EMULATOR_WARP - 1;
        again = false;
        for (unsigned i = 0; i < EMULATOR_WARP && ready != 0 && !m.failed; i++) {
            const unsigned lane = (turn + i * direction) % EMULATOR_WARP;
            if ((ready >> lane & 1) == 0) continue;
            emulator_to_lane(&lanes[lane]);
            again = moved = true;
        }
    }
    return moved;
}

template <class T> void emulator_shuffle(std::vector<T> &list)
{
    for (size_t i = list.size(); i > 1; i--) std::swap(list[i - 1], list[emulator_random() % i]);
}

/* Returns the bytes of shared memory that it had. */
inline size_t emulator_run_block(size_t shared_bytes)
{
    emulator_machine &m = emulator_this();
    std::vector<int> order(m.lanes.size() / EMULATOR_WARP);
    for (size_t i = 0; i < order.size(); i++) order[i] = int(i);
    m.warps.assign(order.size(), emulator_warp{ ~0u, 0, 0, 0 });
    emulator_shared(nullptr, shared_bytes, 0);
    for (emulator_lane &lane : m.lanes) emulator_start_lane(&lane);
    for (bool live = true; live && !m.failed;) {
        bool moved = false;
        emulator_shuffle(order);
        for (int warp : order) moved = emulator_run_warp(warp) || moved;
        live = std::any_of(m.warps.begin(), m.warps.end(), [](const emulator_warp &warp) { return warp.ended < EMULATOR_WARP; });
        if (live && !moved && !m.failed) emulator_pass_barrier();
    }
    m.current = nullptr;
    return emulator_free_shared();
}

/* What a kernel has asked for beyond 48 KiB of shared memory (cudaFuncSetAttribute). Threads: any. */
inline std::vector<std::pair<const void *, size_t>> &emulator_asked() { static std::vector<std::pair<const void *, size_t>> asked; return asked; }
inline void emulator_ask_shared(const void *kernel, size_t bytes)
{
    std::lock_guard<std::mutex> lock(emulator_mutex());
    emulator_asked().push_back({ kernel, bytes });
}
/* all: with the kernel's own arrays, for which nobody asks. */
inline bool emulator_may_share(const void *kernel, size_t bytes, size_t all)
{
    std::lock_guard<std::mutex> lock(emulator_mutex());
    if (all <= 48 << 10) return true;
    for (const auto &one : emulator_asked())
        if (one.first == kernel && one.second >= bytes) return true;
    return false;
}

/* kernel() once for every thread; `which`: the kernel itself. Returns 1, or 0 after an error. Blocks are whole warps. */
inline int emulator_run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()> &kernel, const void *which)
{
    emulator_machine &m = emulator_this();
    const unsigned threads = block.x * block.y * block.z;
    std::vector<uint64_t> order(uint64_t(grid.x) * grid.y * grid.z);
    m.failed = 0;
    m.body = &kernel;
    m.grid = grid;
    m.block = block;
    m.place = dim3(0, 0, 0);
    if (threads == 0 || threads > 1024 || threads % EMULATOR_WARP != 0 || order.empty() || grid.y > 65535 || grid.z > 65535 || shared_bytes > 232448)
        emulator_fail("impossible launch: grid %u,%u,%u block %u,%u,%u shared %zu", grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes);
    else if (!emulator_may_share(which, shared_bytes, shared_bytes)) emulator_fail("%zu bytes of shared memory nobody asked for", shared_bytes);
    while (m.stacks.size() < threads) m.stacks.push_back(static_cast<char *>(malloc(EMULATOR_STACK)));
    m.lanes.resize(threads);
    for (unsigned i = 0; i < threads; i++) {
        m.lanes[i].stack = m.stacks[i];
        m.lanes[i].number = int(i);
        m.lanes[i].index = dim3(i % block.x, i / block.x % block.y, i / block.x / block.y);
    }
    for (size_t i = 0; i < order.size(); i++) order[i] = i;
    emulator_shuffle(order);
    for (size_t i = 0; i < order.size() && !m.failed; i++) {
        m.place = dim3(unsigned(order[i] % grid.x), unsigned(order[i] / grid.x % grid.y), unsigned(order[i] / grid.x / grid.y));
        const size_t all = emulator_run_block(shared_bytes);
        if (!m.failed && !emulator_may_share(which, shared_bytes, all)) emulator_fail("%zu bytes of shared memory nobody asked for", all);
    }
    return !m.failed;
}

/* ---- what kernels use ---- */

#define threadIdx (emulator_this().current->index)
#define blockIdx (emulator_this().place)
#define blockDim (emulator_this().block)
#define gridDim (emulator_this().grid)

/* Barrier of the block at one line of the source; returns whether any thread's vote was not 0. */
inline int emulator_barrier(int line, int vote)
{
    emulator_lane *lane = emulator_this().current;
    lane->place = line;
    lane->in[0] = uint64_t(vote != 0);
    lane->state = EMULATOR_AT_BLOCK;
    emulator_to_scheduler();
    return emulator_this().vote;
}
#define __syncthreads() ((void)emulator_barrier(__LINE__, 0))
#define __syncthreads_or(vote) emulator_barrier(__LINE__, (vote))

/* Of the lanes that this one should meet, one has ended or waits elsewhere. */
inline void emulator_miss(const emulator_lane *warp, uint32_t ready, int kind)
{
    for (int i = 0; i < EMULATOR_WARP; i++) {
        if (ready >> i & 1) continue;
        if (warp[i].state == EMULATOR_ENDED) emulator_fail("a collective of the warp, thread %d has ended", warp[i].number);
        if (warp[i].state == EMULATOR_AT_WARP && warp[i].place != kind)
            emulator_fail("thread %d of the warp is at another collective (%d, not %d)", warp[i].number, warp[i].place, kind);
    }
}

/* Lanes of a warp put operands into `in`; the last to arrive calls apply(lanes of the warp), which fills every `out`. `kind` must agree. */
template <class Apply> void emulator_converge(int kind, Apply apply)
{
    emulator_machine &m = emulator_this();
    emulator_lane *lane = m.current, *warp = &m.lanes[size_t(lane->number / EMULATOR_WARP * EMULATOR_WARP)];
    emulator_warp &met = m.warps[size_t(lane->number / EMULATOR_WARP)];
    if (met.ended > 0 || (met.waiting > 0 && met.kind != kind)) emulator_miss(warp, met.ready, kind);
    lane->place = met.kind = kind;
    if (met.waiting == EMULATOR_WARP - 1) {
        apply(warp);
        met.waiting = 0;
        met.ready = ~0u;
        return;
    }
    met.waiting++;
    lane->state = EMULATOR_AT_WARP;
    emulator_to_scheduler();
}

enum { EMULATOR_SYNC, EMULATOR_SHUFFLE, EMULATOR_VOTE, EMULATOR_LDMATRIX, EMULATOR_LDMATRIX_TRANSPOSED, EMULATOR_MMA, EMULATOR_MMA_TF32 };

inline void emulator_full_mask(unsigned mask)
{
    if (mask != 0xffffffffu) emulator_fail("a collective of the warp with mask %08x", mask);
}
inline int emulator_lane_index() { return emulator_this().current->number % EMULATOR_WARP; }

template <class T> T emulator_shuffle_from(unsigned mask, T value, int source)
{
    static_assert(sizeof(T) <= 8, "a register or two");
    emulator_lane *lane = emulator_this().current;
    T result;
    emulator_full_mask(mask);
    lane->in[0] = 0;
    memcpy(&lane->in[0], &value, sizeof value);
    lane->in[1] = uint64_t(source & (EMULATOR_WARP - 1));
    emulator_converge(EMULATOR_SHUFFLE, [](emulator_lane *warp) {
        for (int i = 0; i < EMULATOR_WARP; i++) warp[i].out[0] = warp[warp[i].in[1]].in[0];
    });
    memcpy(&result, &lane->out[0], sizeof result);
    return result;
}
template <class T> T __shfl_sync(unsigned mask, T value, int source) { return emulator_shuffle_from(mask, value, source); }
template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits) { return emulator_shuffle_from(mask, value, emulator_lane_index() ^ bits); }

inline unsigned __ballot_sync(unsigned mask, int vote)
{
    emulator_lane *lane = emulator_this().current;
    emulator_full_mask(mask);
    lane->in[0] = uint64_t(vote != 0);
    emulator_converge(EMULATOR_VOTE, [](emulator_lane *warp) {
        uint64_t bits = 0;
        for (int i = 0; i < EMULATOR_WARP; i++) bits |= warp[i].in[0] << i;
        for (int i = 0; i < EMULATOR_WARP; i++) warp[i].out[0] = bits;
    });
    return unsigned(lane->out[0]);
}
inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emulator_full_mask(mask);
    emulator_converge(EMULATOR_SYNC, [](emulator_lane *) {});
}

inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline uint32_t __float_as_uint(float x) { uint32_t bits; memcpy(&bits, &x, sizeof bits); return bits; }
inline float __uint_as_float(uint32_t bits) { float x; memcpy(&x, &bits, sizeof x); return x; }
inline long long __double_as_longlong(double x) { long long bits; memcpy(&bits, &x, sizeof bits); return bits; }

inline unsigned atomicMax(unsigned *to, unsigned value)
{
    unsigned seen = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (seen < value && !__atomic_compare_exchange_n(to, &seen, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return seen;
}
inline unsigned atomicInc(unsigned *to, unsigned last) /* 0 behind the last */
{
    unsigned seen = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(to, &seen, seen >= last ? 0 : seen + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return seen;
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline float atomicAdd(float *to, float value)
{
    float seen, sum;
    __atomic_load(to, &seen, __ATOMIC_RELAXED);
    do sum = seen + value;
    while (!__atomic_compare_exchange(to, &seen, &sum, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return seen;
}
inline unsigned long long atomicAdd(unsigned long long *to, unsigned long long value) { return __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }

/* ---- tensor cores (PTX ISA: ldmatrix m8n8.x4, mma m16n8k16 bf16, m16n8k8 tf32) and asynchronous copies ---- */

/* Four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8 and gets, of each, elements 2 (l % 4) and the
   next of row l / 4 (transposed: of column l / 4). */
inline void emulator_ldmatrix(uint32_t (&to)[4], const void *address, bool transposed)
{
    emulator_lane *lane = emulator_this().current;
    emulator_check_shared(address, 16, "ldmatrix");
    lane->in[0] = reinterpret_cast<uintptr_t>(address);
    emulator_converge(transposed ? EMULATOR_LDMATRIX_TRANSPOSED : EMULATOR_LDMATRIX, [transposed](emulator_lane *warp) {
        for (int l = 0; l < EMULATOR_WARP; l++)
            for (int matrix = 0; matrix < 4; matrix++) {
                uint16_t pair[2];
                for (int i = 0; i < 2; i++) {
                    const int row = transposed ? l % 4 * 2 + i : l / 4, column = transposed ? l / 4 : l % 4 * 2 + i;
                    memcpy(&pair[i], reinterpret_cast<const char *>(warp[matrix * 8 + row].in[0]) + 2 * column, 2);
                }
                warp[l].out[matrix] = uint32_t(pair[0]) | uint32_t(pair[1]) << 16;
            }
    });
    for (int i = 0; i < 4; i++) to[i] = uint32_t(lane->out[i]);
}

inline float emulator_bf16(uint64_t word, int half) { return __uint_as_float(uint32_t(word >> 16 * half) << 16); }

/* sum += left right, a product's terms in their order; a row at once, which a compiler makes vectors of. */
template <int K> void emulator_products(const float (&left)[16][K], const float (&right)[K][8], float (&sum)[16][8])
{
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < K; k++)
            for (int column = 0; column < 8; column++) sum[row][column] += left[row][k] * right[k][column];
}

/* d += a b: a 16 x 16, b 16 x 8, d 16 x 8. Lane l holds, with g = l / 4 and t = l % 4: a rows g, g + 8 (registers 0 and 1, 2 and 3) of columns
   2 t, 2 t + 1 and 8 more; b rows 2 t, 2 t + 1 and 8 more of column g; d rows g, g + 8 of columns 2 t, 2 t + 1. */
inline void emulator_mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    emulator_lane *lane = emulator_this().current;
    for (int i = 0; i < 4; i++) lane->in[i] = a[i];
    lane->in[4] = b0;
    lane->in[5] = b1;
    emulator_converge(EMULATOR_MMA, [](emulator_lane *warp) {
        float left[16][16], right[16][8], sum[16][8] = {};
        for (int l = 0; l < EMULATOR_WARP; l++)
            for (int half = 0; half < 2; half++) {
                const int g = l / 4, k = l % 4 * 2 + half;
                for (int i = 0; i < 4; i++) left[g + i % 2 * 8][k + i / 2 * 8] = emulator_bf16(warp[l].in[i], half);
                for (int i = 0; i < 2; i++) right[k + i * 8][g] = emulator_bf16(warp[l].in[4 + i], half);
            }
        emulator_products(left, right, sum);
        for (int l = 0; l < EMULATOR_WARP; l++)
            for (int e = 0; e < 4; e++) warp[l].out[e] = __float_as_uint(sum[l / 4 + e / 2 * 8][l % 4 * 2 + e % 2]);
    });
    for (int i = 0; i < 4; i++) d[i] += __uint_as_float(uint32_t(lane->out[i]));
}

/* Of dynamic shared memory, which begins at a multiple of 1,024. */
inline uint32_t emulator_shared_address(const void *p)
{
    return uint32_t(static_cast<const unsigned char *>(p) - emulator_dynamic_shared());
}

/* A pair of neighbouring elements, or of neighbouring rows, of a matrix that a wgmma descriptor names: rows of 128 bytes whose 16-byte places are
   swapped (swizzle mode 1), eight rows by eight. by_rows: k counts rows. */
inline uint32_t emulator_matrix_pair(uint64_t matrix, int line, int k, bool by_rows)
{
    const emulator_array &shared = emulator_this().arrays[0];
    uint32_t pair = 0;
    if (matrix >> 62 != 1 || (matrix >> 49 & 7) != 0) emulator_fail("wgmma: a descriptor of another layout, %llx", (unsigned long long)matrix);
    for (int i = 0; i < 2; i++) {
        const uint32_t row = uint32_t(by_rows ? k + i : line), column = uint32_t(by_rows ? line : k + i);
        uint32_t at = uint32_t(matrix & 0x3fff) * 16 + row / 8 * (uint32_t(matrix >> 32 & 0x3fff) * 16) + row % 8 * 128 + column * 2;
        uint16_t element;
        at ^= (at >> 7 & 7) << 4;
        if (at + 2 > shared.bytes) emulator_fail("wgmma: byte %u of %zu of shared memory", at, shared.bytes);
        memcpy(&element, shared.data + at, 2);
        pair |= uint32_t(element) << 16 * i;
    }
    return pair;
}

/* The rows of a (by_rows: of its transpose) that this warp of four has: registers as of mma. */
inline void emulator_group_left(uint32_t (&a)[4], uint64_t matrix, bool by_rows)
{
    const emulator_lane *lane = emulator_this().current;
    const int row = lane->number / EMULATOR_WARP % 4 * 16 + lane->number % EMULATOR_WARP / 4, k = lane->number % 4 * 2;
    for (int i = 0; i < 4; i++) a[i] = emulator_matrix_pair(matrix, row + i % 2 * 8, k + i / 2 * 8, by_rows);
}

/* d = a b, or += (more), of wgmma m64n64k16, this warp's 16 rows: mma of 8 columns each. */
inline void emulator_group_mma(float (*d)[1][4], const uint32_t (&a)[4], uint64_t b, bool by_rows, int more)
{
    const int lane = emulator_lane_index();
    for (int i = 0; i < 32; i++)
        if (!more) d[i / 4][0][i % 4] = 0.0f;
    for (int n = 0; n < 8; n++)
        emulator_mma(d[n][0], a, emulator_matrix_pair(b, 8 * n + lane / 4, lane % 4 * 2, by_rows),
                     emulator_matrix_pair(b, 8 * n + lane / 4, lane % 4 * 2 + 8, by_rows));
}

/* tf32 is the upper 19 bits of a float; the others are not looked at. */
inline float emulator_tf32(uint64_t word) { return __uint_as_float(uint32_t(word) & ~0x1fffu); }

/* d += a b: a 16 x 8, b 8 x 8, d 16 x 8, tf32. Lane l, with g = l / 4 and t = l % 4: a rows g, g + 8 (registers 0 and 1) of column t, and of column
   t + 4; b rows t, t + 4 of column g; d as above. */
inline void emulator_mma_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    emulator_lane *lane = emulator_this().current;
    for (int i = 0; i < 4; i++) lane->in[i] = a[i];
    lane->in[4] = b0;
    lane->in[5] = b1;
    emulator_converge(EMULATOR_MMA_TF32, [](emulator_lane *warp) {
        float left[16][8], right[8][8], sum[16][8] = {};
        for (int l = 0; l < EMULATOR_WARP; l++) {
            for (int i = 0; i < 4; i++) left[l / 4 + i % 2 * 8][l % 4 + i / 2 * 4] = emulator_tf32(warp[l].in[i]);
            for (int i = 0; i < 2; i++) right[l % 4 + i * 4][l / 4] = emulator_tf32(warp[l].in[4 + i]);
        }
        emulator_products(left, right, sum);
        for (int l = 0; l < EMULATOR_WARP; l++)
            for (int e = 0; e < 4; e++) warp[l].out[e] = __float_as_uint(sum[l / 4 + e / 2 * 8][l % 4 * 2 + e % 2]);
    });
    for (int i = 0; i < 4; i++) d[i] += __uint_as_float(uint32_t(lane->out[i]));
}

/* 16 bytes, or 4, to shared memory, zeros where `from` is NULL. */
inline void emulator_copy_async(void *to, const void *from, unsigned bytes = 16)
{
    emulator_lane *lane = emulator_this().current;
    emulator_check_shared(to, bytes, "cp.async");
    if (reinterpret_cast<uintptr_t>(from) % bytes != 0) emulator_fail("cp.async: source not aligned to %u", bytes);
    memset(to, 0xff, bytes);
    lane->copies.push_back({ to, from, lane->groups, bytes });
}
inline void emulator_copy_commit() { emulator_this().current->groups++; }
/* All groups but the newest `open` have landed. */
inline void emulator_copy_wait(unsigned open)
{
    emulator_lane *lane = emulator_this().current;
    size_t landed = 0;
    for (; landed < lane->copies.size() && lane->copies[landed].group + open < lane->groups; landed++) {
        const emulator_copy &copy = lane->copies[landed];
        if (copy.from != nullptr) memcpy(copy.to, copy.from, copy.bytes);
        else memset(copy.to, 0, copy.bytes);
    }
    lane->copies.erase(lane->copies.begin(), lane->copies.begin() + std::ptrdiff_t(landed));
}

#endif /* HETRAIN_EMULATOR_H */
