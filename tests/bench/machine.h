/* What the machine can do: multiply-adds a second in registers, bytes a second from memory. The floors of everything else come from these. */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define MACHINE_X86 1
#endif
#ifdef __GNUC__
#define MACHINE_ALONE __restrict__ /* so that the loop uses vectors */
#else
#define MACHINE_ALONE
#endif

/* A repetition takes some 60 and 20 ms: a virtual machine may start a thread where another runs and move it a dozen ms later. */
enum { MACHINE_CHAINS = 12, MACHINE_ROUNDS = 1 << 24, MACHINE_FLOATS = 1 << 23, MACHINE_PASSES = 8 };

/* MACHINE_CHAINS independent chains of multiply-adds; returns how many there were. `sink` keeps the compiler from dropping them. */
static double machine_chains_plain(float *sink) {
    float sum[MACHINE_CHAINS] = { 0 };
    int64_t round;
    int i;
    for (round = 0; round < MACHINE_ROUNDS; round++)
        for (i = 0; i < MACHINE_CHAINS; i++) sum[i] = sum[i] * 0.999f + 0.001f;
    for (i = 0; i < MACHINE_CHAINS; i++) *sink += sum[i];
    return (double)MACHINE_ROUNDS * MACHINE_CHAINS;
}

#ifdef MACHINE_X86
#define MACHINE_KERNEL(name, isa, vector, set, fma, reduce, lanes) \
__attribute__((target(isa))) static double name(float *sink) { \
    vector sum[MACHINE_CHAINS]; \
    const vector factor = set(0.999f), term = set(0.001f); \
    float out[lanes]; \
    int64_t round; \
    int i; \
    for (i = 0; i < MACHINE_CHAINS; i++) sum[i] = set((float)i); \
    for (round = 0; round < MACHINE_ROUNDS; round++) { \
        sum[0] = fma(sum[0], factor, term), sum[1] = fma(sum[1], factor, term), sum[2] = fma(sum[2], factor, term); \
        sum[3] = fma(sum[3], factor, term), sum[4] = fma(sum[4], factor, term), sum[5] = fma(sum[5], factor, term); \
        sum[6] = fma(sum[6], factor, term), sum[7] = fma(sum[7], factor, term), sum[8] = fma(sum[8], factor, term); \
        sum[9] = fma(sum[9], factor, term), sum[10] = fma(sum[10], factor, term), sum[11] = fma(sum[11], factor, term); \
    } \
    for (i = 0; i < MACHINE_CHAINS; i++) { \
        reduce(out, sum[i]); \
        *sink += out[0]; \
    } \
    return (double)MACHINE_CHAINS * MACHINE_ROUNDS * lanes; \
}
MACHINE_KERNEL(machine_chains_avx2, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_storeu_ps, 8)
MACHINE_KERNEL(machine_chains_avx512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_storeu_ps, 16)
/* Every float is a pair of bf16: two multiply-adds a lane. */
#define MACHINE_PAIRS(sum, factor, term) _mm512_dpbf16_ps(sum, (__m512bh)(factor), (__m512bh)(term))
MACHINE_KERNEL(machine_chains_bf16, "avx512f,avx512bf16", __m512, _mm512_set1_ps, MACHINE_PAIRS, _mm512_storeu_ps, 32)
#endif

#ifdef HETI_HAVE_AMX
/* Of zeros: an instruction makes 16 x 16 x 32 multiply-adds of whatever it is given. */
__attribute__((target("amx-tile,amx-bf16"))) static double machine_chains_amx(float *sink) {
    int64_t round;
    heti_avx512_bf16_amx_prepare(1);
    for (round = 0; round < MACHINE_ROUNDS / 64; round++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    heti_avx512_bf16_amx_prepare(0);
    (void)sink;
    return (double)(MACHINE_ROUNDS / 64) * 4 * 16 * 16 * 32;
}
#endif

typedef struct machine_work {
    double (*chains)(float *sink);
    float *memory;          /* [threads][2][MACHINE_FLOATS] */
    double *count;          /* [threads] */
} machine_work;

static void machine_chains(void *user, int64_t index) {
    machine_work *w = (machine_work *)user;
    volatile float keep;
    float sink = 0;
    w->count[index] = w->chains(&sink);
    keep = sink;
    (void)keep;
}

/* a = a / 2 + b: 12 bytes an element, and none that do not count, as fetching what is overwritten would be. */
static void machine_stream(void *user, int64_t index) {
    machine_work *w = (machine_work *)user;
    float *MACHINE_ALONE a = w->memory + 2 * index * MACHINE_FLOATS;
    const float *MACHINE_ALONE b = a + MACHINE_FLOATS;
    int64_t i;
    int pass;
    for (pass = 0; pass < MACHINE_PASSES; pass++)
        for (i = 0; i < MACHINE_FLOATS; i++) a[i] = 0.5f * a[i] + b[i];
}

/* The widest loop the chosen inner loops may use for products of the chosen dtype. */
static double (*machine_kernel(const bench *b))(float *) {
#ifdef MACHINE_X86
    const int64_t isa = b->set.isa - 1;
    const int wide = isa == HET_ISA_AUTO || isa == HET_ISA_AVX512 || isa == HET_ISA_AVX512_BF16 || isa == HET_ISA_AMX;
#ifdef HETI_HAVE_AMX
    const int matrix = isa == HET_ISA_AMX || (isa == HET_ISA_AUTO && b->set.reduce == HET_REDUCE_FAST);
    if (b->set.dtype == HET_BF16 && matrix && heti_cpu_has(HET_ISA_AMX)) return machine_chains_amx;
#endif
    if (b->set.dtype == HET_BF16 && (isa == HET_ISA_AUTO || isa == HET_ISA_AVX512_BF16) && __builtin_cpu_supports("avx512bf16"))
        return machine_chains_bf16;
    if (wide && __builtin_cpu_supports("avx512f")) return machine_chains_avx512;
    if ((wide || isa == HET_ISA_AVX2) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return machine_chains_avx2;
#else
    (void)b;
#endif
    return machine_chains_plain;
}

/* Fills in b->flops and b->bandwidth, of all threads together, once; the fastest of the repetitions. */
static int machine_measure(bench *b) {
    machine_work w;
    int64_t r, i, floats = 2 * (int64_t)MACHINE_FLOATS * b->threads;
    if (b->flops > 0) return 0;
    w.chains = machine_kernel(b);
    w.memory = (float *)b->cpu->alloc(b->self, (size_t)floats * sizeof(float));
    w.count = (double *)calloc((size_t)b->threads, sizeof(double));
    if (w.memory == NULL || w.count == NULL) return fail(FAILED, "out of memory");
    for (i = 0; i < floats; i++) w.memory[i] = (float)(i % 7);
    for (r = 0; r <= b->set.repetitions; r++) {
        double start = seconds_now(), middle, end, chains = 0;
        simple_run(&b->threads, b->threads, machine_chains, &w);
        middle = seconds_now();
        simple_run(&b->threads, b->threads, machine_stream, &w);
        end = seconds_now();
        for (i = 0; i < b->threads; i++) chains += w.count[i];
        b->flops = fmax(b->flops, 2 * chains / (middle - start));
        b->bandwidth = fmax(b->bandwidth, 1.5 * MACHINE_PASSES * (double)floats * sizeof(float) / (end - middle));
    }
    b->cpu->free(b->self, w.memory, (size_t)floats * sizeof(float));
    free(w.count);
    return 0;
}

static int bench_machine(bench *b) {
    const int status = machine_measure(b);
    if (status != 0) return status;
    print_head(b, "machine");
    printf(",\"peak_gflops\":%.1f,\"gbytes_per_s\":%.1f}\n", 1e-9 * b->flops, 1e-9 * b->bandwidth);
    fflush(stdout);
    return 0;
}

#endif
