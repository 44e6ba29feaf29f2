/* Private pieces with known answers: this file is itself a static copy of the implementation, so it can call them. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* access; and what hides madvise, as in many programs */
#endif
#include <time.h>

/* What clock_gettime says here: the wall clock may be ahead, as one is that is set back once it was read. */
static int wall_ahead;
static int inside_clock(clockid_t clock, struct timespec *time)
{
    const int status = clock_gettime(clock, time);
    if (clock == CLOCK_REALTIME) time->tv_sec += wall_ahead;
    return status;
}
#define clock_gettime inside_clock

#define HETRAIN_IMPLEMENTATION
#define HETRAIN_STATIC
#include "hetrain.h"

#define HETRAIN_EXPERTS_IMPLEMENTATION
#include "hetrain_experts.h"

#include "support.h"

#include "programs/loader.h"
#include "sparse.h"

/* ---- random numbers ---- */

/* Vectors of Random123 (Salmon et al. 2011), philox4x32-10. */
static void philox_known_answers(void **state)
{
    uint32_t out[4];
    (void)state;
    heti_philox(0, 0, 0, out);
    assert_int_equal(out[0], 0x6627e8d5u);
    assert_int_equal(out[1], 0xe169c58du);
    assert_int_equal(out[2], 0xbc57ac4cu);
    assert_int_equal(out[3], 0x9b00dbd8u);
    heti_philox(~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0), out);
    assert_int_equal(out[0], 0x408f276du);
    assert_int_equal(out[1], 0x41c83b0eu);
    assert_int_equal(out[2], 0xa20bc7c6u);
    assert_int_equal(out[3], 0x6d5451fdu);
    heti_philox(UINT64_C(0x299f31d0a4093822), UINT64_C(0x85a308d3243f6a88), UINT64_C(0x0370734413198a2e), out);
    assert_int_equal(out[0], 0xd16cfe09u);
    assert_int_equal(out[1], 0x94fdccebu);
    assert_int_equal(out[2], 0x5001e420u);
    assert_int_equal(out[3], 0x24126ea1u);
}

/* Moments, and the same bits from every instruction set this machine has. */
static void uniform_numbers(void **state)
{
    (void)state;
    assert_true(heti_uniform(0) == 0.0f && heti_uniform(0xFFFFFFFFu) < 1.0f);
    assert_true(heti_uniform(0x80000000u) == 0.5f);
}

static void permutations_are_bijections(void **state)
{
    static const uint64_t counts[] = { 1, 2, 3, 17, 63, 64, 65, 1000, 4097 };
    size_t c;
    (void)state;
    for (c = 0; c < sizeof counts / sizeof *counts; c++) {
        uint64_t key, i, fixed = 0;
        for (key = 0; key < 5; key++) {
            unsigned char *met = support_alloc((size_t)counts[c], 1);
            for (i = 0; i < counts[c]; i++) {
                uint64_t to = heti_permute(i, counts[c], key);
                assert_true(to < counts[c]);
                assert_int_equal(met[to], 0);
                met[to] = 1;
                fixed += to == i;
            }
            free(met);
        }
        if (counts[c] >= 1000) assert_true(fixed < 40); /* about 1 a key */
    }
    assert_true(heti_permute(UINT64_C(1) << 40, UINT64_C(1) << 41, 9) < UINT64_C(1) << 41);
}

/* ---- hash and sums ---- */

static void xxh64_known_answers(void **state)
{
    unsigned char data[1024];
    size_t size, i;
    (void)state;
    assert_true(het_xxh64("", 0, 0) == UINT64_C(0xEF46DB3751D8E999));
    assert_true(het_xxh64("abc", 3, 0) == UINT64_C(0x44BC2CF5AD770999));
    for (i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 7 + i / 5);
    for (size = 0; size < sizeof data; size += 13) { /* streamed in unequal pieces */
        heti_xxh64 stream;
        heti_xxh64_start(&stream, 99);
        heti_xxh64_add(&stream, data, size / 3);
        heti_xxh64_add(&stream, data + size / 3, 0);
        heti_xxh64_add(&stream, data + size / 3, size - size / 3);
        assert_true(heti_xxh64_end(&stream) == het_xxh64(data, size, 99));
    }
}

static void sums_have_no_order(void **state)
{
    enum { N = 3000 };
    static double x[N];
    het_sum forward, backward, halves[2];
    uint64_t seed = 5;
    double magnitude = 0.0;
    int i;
    (void)state;
    memset(&forward, 0, sizeof forward);
    memset(&backward, 0, sizeof backward);
    memset(halves, 0, sizeof halves);
    for (i = 0; i < N; i++) {
        x[i] = ldexp(support_uniform(&seed), (int)support_below(&seed, 120) - 60);
        magnitude += fabs(x[i]);
    }
    for (i = 0; i < N; i++) heti_sum_add(&forward, x[i]);
    for (i = N; i-- > 0;) heti_sum_add(&backward, x[i]);
    for (i = 0; i < N; i++) heti_sum_add(&halves[i % 2], x[i]);
    heti_sum_join(&halves[0], &halves[1]);
    assert_true(heti_sum_value(&forward) == heti_sum_value(&backward));
    assert_true(heti_sum_value(&forward) == heti_sum_value(&halves[0]));
    assert_true(fabs(heti_sum_value(&forward) - support_sum_value(&forward)) <= 1e-15 * magnitude);
    for (i = 0; i < N; i++) heti_sum_add(&forward, -x[i]); /* exact: nothing is left */
    assert_true(heti_sum_value(&forward) == 0.0);
    heti_sum_add(&backward, (double)INFINITY);
    assert_true(isnan(heti_sum_value(&backward)));
    heti_sum_join(&halves[0], &backward);
    assert_true(isnan(heti_sum_value(&halves[0])));
}

/* ---- mathematics ---- */

/* Largest error in units of the last place of `bits` bits of mantissa. */
static double ulps(double got, double want, int bits)
{
    int exponent;
    if (got == want) return 0.0;
    (void)frexp(want, &exponent);
    return fabs(got - want) / ldexp(1.0, exponent - bits);
}

static void double_functions(void **state)
{
    uint64_t seed = 1;
    double e = 0.0, l = 0.0, s = 0.0, c = 0.0, p = 0.0;
    int i;
    (void)state;
    for (i = 0; i < 300000; i++) {
        double u = support_uniform(&seed), x = u * 700.0, positive = ldexp(1.0 + fabs(u), (int)support_below(&seed, 2000) - 1000), angle = u * 3000.0;
        e = fmax(e, ulps(heti_exp_parts(x, 0.0), exp(x), 53));
        l = fmax(l, ulps(heti_log(positive), log(positive), 53));
        s = fmax(s, fabs(heti_sin(angle) - sin(angle)));
        c = fmax(c, fabs(heti_cos(angle) - cos(angle)));
        p = fmax(p, fabs(heti_pow(1e4, u) / pow(1e4, u) - 1.0));
    }
    print_message("exp %.2f ulp, log %.2f ulp, sin %.2g, cos %.2g, pow %.2g\n", e, l, s, c, p);
    assert_true(e <= 2.0 && l <= 2.0);
    assert_true(s <= 4e-16 && c <= 4e-16);
    assert_true(p <= 1e-14);
    assert_true(heti_exp_parts(0.0, 0.0) == 1.0 && heti_log(1.0) == 0.0 && heti_sin(0.0) == 0.0 && heti_cos(0.0) == 1.0);
    assert_true(fabs(heti_powi(0.95, 1000) / pow(0.95, 1000.0) - 1.0) < 1e-12);
    assert_true(heti_powi(0.5, 3) == 0.125 && heti_powi(3.0, 0) == 1.0);
}

static void float_functions(void **state)
{
    double e = 0.0, l = 0.0, r = 0.0;
    uint32_t bits;
    (void)state;
    for (bits = 0; bits < 0xFFFFFFFFu - 997u; bits += 997u) { /* every sign and exponent, 4.3 million values */
        float x;
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x)) continue;
        if (x < 88.0f && x > -87.0f) e = fmax(e, ulps((double)heti_expf(x), exp((double)x), 24));
        if (x > 1.2e-38f) l = fmax(l, ulps((double)heti_logf(x), log((double)x), 24));
        r = fmax(r, fabs((double)heti_erff(x) - erf((double)x)));
    }
    print_message("expf %.2f ulp, logf %.2f ulp, erff %.2g\n", e, l, r);
    assert_true(e <= 2.0 && l <= 2.0 && r <= 2e-7);
    assert_true(heti_expf(0.0f) == 1.0f && heti_logf(1.0f) == 0.0f && heti_erff(0.0f) == 0.0f);
    assert_true(heti_expf(-1000.0f) == 0.0f);
    assert_true(isnan(heti_expf(NAN)));
}

/* ---- text ---- */

static void formatter(void **state)
{
    char text[64];
    (void)state;
    assert_int_equal(heti_format(text, sizeof text, "%s %d %u %x %%", "a", (int64_t)-5, (uint64_t)7, (uint64_t)255), 11);
    assert_string_equal(text, "a -5 7 ff %");
    heti_format(text, sizeof text, "%d", INT64_MIN);
    assert_string_equal(text, "-9223372036854775808");
    heti_format(text, sizeof text, "%g %g %g %g", 0.5, 1e-5, 1e30, -3.0);
    assert_true(strtod(text, NULL) == 0.5);
    assert_non_null(strstr(text, "-3"));
    heti_format(text, sizeof text, "%g", (double)NAN);
    assert_non_null(strstr(text, "nan"));
    assert_true(heti_format(text, 4, "%s", "abcdefgh") == 8);
    assert_string_equal(text, "abc");
}

static void checked_sizes(void **state)
{
    size_t out = 0;
    (void)state;
    assert_true(heti_mul(3, 5, &out) && out == 15);
    assert_true(heti_mul(0, SIZE_MAX, &out) && out == 0);
    assert_false(heti_mul(SIZE_MAX / 2, 3, &out));
    assert_true(heti_add(SIZE_MAX - 1, 1, &out) && out == SIZE_MAX);
    assert_false(heti_add(SIZE_MAX, 1, &out));
}

/* ---- reductions and gathers ---- */

#define HOLDERS 9
#define ELEMENTS 24

/* As many of a tree's places as may be below one rank: it may be the first of a process and of all, and tell one that has no work. */
static void ranks_have_a_post_for_all_below(void **state)
{
    enum { MOST = 700 };
    het_tree_place place[MOST];
    int64_t count, i, k, most = 0;
    (void)state;
    for (count = 1; count <= MOST; count++) {
        for (i = 0; i < count; i++) place[i].rank = i;
        het_tree_grow(place, count, NULL);
        for (k = 0; k < count; k += 1 + k / 4) {
            int64_t below = 0;
            for (i = 0; i < count; i++) below += place[i].from == k;
            if (below > most) most = below;
        }
    }
    assert_int_equal(most, HETRAIN_TREE_MOST);
    assert_true(1 + 2 * most + 1 <= HETI_JOINS);
}

/* Sums, or new weights, all that go inside of clusters before all that go between them, or behind. Returns the elements that go between clusters. */
static int64_t play_routes(const heti_owners *o, int gather, double value[HOLDERS][ELEMENTS])
{
    int64_t i, j, route, k, first, end, between = 0;
    int stage;
    for (stage = 0; stage < 2; stage++) {
        double before[HOLDERS][ELEMENTS];
        memcpy(before, value, sizeof before);
        for (i = 0; i < o->holders; i++)
            for (j = 0; j < o->holders; j++)
                for (route = 0; route < o->clusters; route++) {
                    const int inside = heti_cluster_of(o, i) == heti_cluster_of(o, j);
                    if (i == j || inside != (stage == gather)) continue;
                    heti_route(o, i, j, route, &first, &end);
                    if (!inside) between += end - first;
                    for (k = first; k < end; k++) {
                        if (gather) value[i][k] = before[j][k];
                        else value[j][k] += before[i][k];
                    }
                }
    }
    return between;
}

/* Any holders, clusters and shares, none included: sums come to their owners, and what owners have to all. As much is sent as is used, and between
   clusters what each has for all others. */
static void moves_sum_and_gather(void **state)
{
    uint64_t seed = 5;
    int round;
    (void)state;
    for (round = 0; round < 2000; round++) {
        heti_owners o;
        int64_t group[HOLDERS], cut[HOLDERS + 1], cluster[HOLDERS + 1], i, k, c;
        double value[HOLDERS][ELEMENTS];
        memset(&o, 0, sizeof o);
        o.holders = 2 + support_below(&seed, HOLDERS - 1);
        o.cut = cut;
        o.cluster = cluster;
        o.group = group;
        for (i = 0; i < o.holders; i++)
            if (i == 0 || support_below(&seed, 3) == 0) group[o.clusters] = -1, cluster[o.clusters++] = i;
        cluster[o.clusters] = o.holders;
        cut[0] = 0;
        for (i = 1; i < o.holders; i++) cut[i] = cut[i - 1] + support_below(&seed, ELEMENTS - cut[i - 1] + 1);
        cut[o.holders] = ELEMENTS;
        for (i = 0; i < o.holders; i++)
            for (k = 0; k < ELEMENTS; k++) value[i][k] = (double)(1 << i);
        assert_int_equal(play_routes(&o, 0, value), (o.clusters - 1) * ELEMENTS);
        for (i = 0; i < o.holders; i++)
            for (k = cut[i]; k < cut[i + 1]; k++) assert_true(value[i][k] == (double)((1 << o.holders) - 1));
        for (i = 0; i < o.holders; i++)
            for (k = cut[i]; k < cut[i + 1]; k++) value[i][k] = 100.0 + (double)k;
        assert_int_equal(play_routes(&o, 1, value), (o.clusters - 1) * ELEMENTS);
        for (i = 0; i < o.holders; i++)
            for (k = 0; k < ELEMENTS; k++) assert_true(value[i][k] == 100.0 + (double)k);
        for (c = 0; c < o.clusters; c++) /* of each other cluster's owners a holder collects as many as the others, or one more */
            for (i = 0; i < o.holders; i++) {
                const int64_t own = heti_cluster_of(&o, i), size = cluster[own + 1] - cluster[own], n = cluster[c + 1] - cluster[c];
                int64_t collects = 0;
                for (k = cluster[c]; k < cluster[c + 1]; k++) collects += heti_via(&o, i, k) == i;
                if (own != c) assert_true(collects == n / size || collects == (n + size - 1) / size);
            }
    }
}

/* 'h' where the mapping that holds an address asks for huge pages, '-' where it does not, '?' where the system does not say. */
static char huge_pages_at(const void *address)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512], answer = '?';
    unsigned long long begin, end, wanted = (unsigned long long)(uintptr_t)address;
    int inside = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%llx-%llx ", &begin, &end) == 2) inside = begin <= wanted && wanted < end;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0) answer = strstr(line, " hg") != NULL ? 'h' : '-';
    }
    if (file != NULL) fclose(file);
    return answer;
}

/* How often each unit was done, and what was wrong with the piece it was in. */
typedef struct done_units { int64_t units, least; uint32_t done[64], runners, bad; } done_units;

static void do_units(void *arg, int64_t runner, int64_t begin, int64_t end)
{
    done_units *d = arg;
    int64_t i;
    if (begin < 0 || begin >= end || end > d->units || (end - begin < d->least && end < d->units)) (void)HETI_ATOMIC_ADD(&d->bad, 1u);
    else for (i = begin; i < end; i++) (void)HETI_ATOMIC_ADD(&d->done[i], 1u);
    if (runner < 0 || runner >= 64) (void)HETI_ATOMIC_ADD(&d->bad, 1u);
    else if (runner >= (int64_t)HETI_ATOMIC_LOAD(&d->runners)) HETI_ATOMIC_STORE(&d->runners, (uint32_t)runner + 1u);
}

/* Whatever the number of runners and who comes first: every unit once, in pieces of at least so many, by runners that have a number. */
static void units_are_done_once(void **state)
{
    het_allocator allocator;
    heti_pool *pool = NULL;
    het_parallel parallel[3];
    int64_t p, runners, units, least, i, most;
    (void)state;
    heti_default_allocator(&allocator);
    assert_int_equal(heti_pool_create(&allocator, 4, &pool), HET_OK);
    parallel[0] = support_serial();
    parallel[1] = support_backwards();
    parallel[2].run = heti_pool_run;
    parallel[2].user = pool;
    for (p = 0; p < 3; p++)
        for (runners = 1; runners <= 5; runners++)
            for (units = 0; units <= 64; units += 1 + units / 8)
                for (least = 1; least <= 9; least += 4) {
                    done_units d;
                    heti_cpu cpu;
                    memset(&d, 0, sizeof d);
                    memset(&cpu, 0, sizeof cpu);
                    cpu.parallel = parallel[p];
                    cpu.config.isa = HET_ISA_PLAIN;
                    d.units = units;
                    d.least = least;
                    most = heti_cpu_run(&cpu, runners, units, least, do_units, &d);
                    assert_int_equal(d.bad, 0);
                    assert_true(most >= 1 && most <= runners && (int64_t)d.runners <= most);
                    for (i = 0; i < units; i++) assert_int_equal(d.done[i], 1);
                }
    heti_pool_destroy(pool);
}

static void large_blocks_ask_for_huge_pages(void **state)
{
    const size_t mega = 1048576, sizes[] = { 1, 2 * mega - 1, 2 * mega, 4 * mega - 1, 4 * mega, 9 * mega + 77 };
    het_allocator allocator;
    size_t i;
    (void)state;
    heti_default_allocator(&allocator);
    for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *block = (unsigned char *)allocator.alloc(allocator.user, sizes[i], 4096);
        assert_non_null(block);
        assert_true((uintptr_t)block % 4096 == 0);
        memset(block, 7, sizes[i]);
#ifdef __linux__
        if (sizes[i] >= 4 * mega && access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) == 0)
            assert_int_not_equal(huge_pages_at(block + 2 * mega), '-');
#endif
        allocator.free(allocator.user, block, sizes[i]);
    }
}

/* A member's experts are what the engine gives it of a parameter in pieces: shares of all kinds, as few experts as members. */
static void experts_are_cut_as_parameters(void **state)
{
    uint64_t seed = 7;
    int64_t round, members, m, experts;
    (void)state;
    for (round = 0; round < 4000; round++) {
        het_team_member team[HETRAIN_MAX_TEAM];
        int64_t bound[HETRAIN_MAX_TEAM + 1], range[2];
        memset(team, 0, sizeof team);
        members = 1 + support_below(&seed, round % 8 == 0 ? HETRAIN_MAX_TEAM : 6);
        experts = members + support_below(&seed, round % 2 ? 4 : 200);
        for (m = 0; m < members; m++) team[m].share = round % 3 ? (double)support_below(&seed, 9) : 1 + support_uniform(&seed);
        team[round % members].share += 0.3;
        heti_x_bounds(team, members, experts, bound);
        assert_int_equal(bound[0], 0);
        assert_int_equal(bound[members], experts);
        for (m = 0; m < members; m++) {
            heti_member_columns(team, members, m, 0, 24, 24 * experts, range);
            assert_int_equal(24 * bound[m], range[0]);
            assert_int_equal(24 * bound[m + 1], range[1]);
            assert_true(bound[m + 1] > bound[m]);
        }
    }
}

/* A rank's wait lasts as long as it is to, whatever becomes of the wall clock. */
static void waits_know_no_wall_clock(void **state)
{
    het_desc desc;
    het_error error;
    het_ctx *ctx;
    double begin, took;
    int waits = 0;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.model = support_model(HET_GPT2);
    desc.limits.max_tokens = 16;
    support_expect(het_create(&desc, &ctx, &error), HET_OK, error.text, "", "het_create", __LINE__);
    wall_ahead = 5;
    HETI_LOCK(ctx);
    for (begin = heti_now(); heti_now() - begin < 0.09; waits++) heti_wait_signal(&ctx->rank[0].wake, &ctx->threads.lock, 0.1);
    HETI_UNLOCK(ctx);
    wall_ahead = 0;
    took = heti_now() - begin;
    het_destroy(ctx);
    if (took > 3 || waits > 2) fail_msg("%d waits of 0.1 s took %.2f s", waits, took);
}

/* ---- token files beyond 4 GiB ---- */

enum { FAR_LENGTH = 1000, FAR_REACH = 2500 };
typedef struct far_tokens {
    het_data_format format;
    uint32_t magic, version; /* of llm.c's header, 0: there is none */
    int64_t tokens;
    uint64_t bytes;          /* of a token */
    int64_t most;            /* the largest token */
    uint64_t first;          /* where tokens begin */
    int file;
} far_tokens;

static int64_t far_token(const far_tokens *f, int64_t number) { return number * 7919 % f->most + 1; }

/* Tokens [number, number + count), at most 2 FAR_REACH. */
static void far_write(const far_tokens *f, int64_t number, int64_t count)
{
    unsigned char bytes[2 * FAR_REACH * 4];
    int64_t i;
    assert_true(count <= 2 * FAR_REACH);
    for (i = 0; i < count * (int64_t)f->bytes; i++)
        bytes[i] = (unsigned char)(far_token(f, number + i / (int64_t)f->bytes) >> 8 * (i % (int64_t)f->bytes) & 255);
    sparse_put(f->file, f->first + (uint64_t)number * f->bytes, bytes, (size_t)count * f->bytes);
}

static void far_same(const far_tokens *f, const int32_t *token, int64_t number, int64_t count, int line)
{
    int64_t i;
    for (i = 0; i < count; i++)
        if (token[i] != far_token(f, number + i))
            fail_msg("line %d: token number %.0f is %d, not %d", line, (double)(number + i), token[i], (int)far_token(f, number + i));
}

/* Around one place: tokens, and the windows that lie there. */
static void far_place(const far_tokens *f, het_data *data, int64_t place)
{
    static int32_t token[2 * FAR_REACH];
    const int64_t from = heti_max(0, place - FAR_REACH), to = heti_min(f->tokens, place + FAR_REACH);
    int64_t w;
    het_error error = { HET_OK, "" };
    if (to <= from) return;
    support_expect(het_data_tokens(data, from, to - from, token, &error), HET_OK, error.text, "", "tokens", __LINE__);
    far_same(f, token, from, to - from, __LINE__);
    for (w = (from + FAR_LENGTH - 1) / FAR_LENGTH; (w + 1) * FAR_LENGTH < to; w++) {
        support_expect(heti_data_fill(data, 0, 0, w, 5, &error), HET_OK, error.text, "", "window", __LINE__);
        far_same(f, data->token, w * FAR_LENGTH, FAR_LENGTH, __LINE__);
        far_same(f, data->target, w * FAR_LENGTH + 1, FAR_LENGTH, __LINE__);
    }
}

/* A sample of the run whose window is one of the last, the last window held out, and a token that is none. */
static void far_calls(const far_tokens *f, het_data *data)
{
    const int64_t bad = f->tokens - 3;
    unsigned char bytes[4];
    int32_t token[8];
    int64_t s = 0, i;
    het_batch batch;
    het_error error = { HET_OK, "" };
    char words[200];
    while (heti_data_window(data, s) < data->info.windows - data->info.windows / 34) s++;
    far_write(f, heti_data_window(data, s) * FAR_LENGTH, FAR_LENGTH + 1);
    support_expect(het_data_batch(data, s, 0, 1, 0, &batch, &error), HET_OK, error.text, "", "batch", __LINE__);
    far_same(f, batch.token, heti_data_window(data, s) * FAR_LENGTH, FAR_LENGTH, __LINE__);
    far_same(f, batch.target, heti_data_window(data, s) * FAR_LENGTH + 1, FAR_LENGTH, __LINE__);
    assert_true(batch.sample_id[0] == s && batch.tokens == FAR_LENGTH);
    support_expect(het_data_held_out(data, data->info.held_out - 1, &batch, &error), HET_OK, error.text, "", "held out", __LINE__);
    far_same(f, batch.token, (data->info.windows + data->info.held_out - 1) * FAR_LENGTH, FAR_LENGTH, __LINE__);
    for (i = 0; i < 4; i++) bytes[i] = (unsigned char)((f->most + 1) >> 8 * i & 255);
    sparse_put(f->file, f->first + (uint64_t)bad * f->bytes, bytes, f->bytes);
    snprintf(words, sizeof words, "token %.0f at offset %.0f (token number %.0f)", (double)f->most + 1, (double)(f->first + (uint64_t)bad * f->bytes),
             (double)bad);
    EXPECT_OK(het_data_tokens(data, 0, 5, token, NULL)); /* so that the C library reads anew */
    EXPECT_ERROR(het_data_tokens(data, bad - 2, 5, token, &error), HET_ERR_DATA, error.text, words);
    far_write(f, bad, 1);
}

/* All that het_data_open does but the look at every token, which takes seconds. */
static void far_file(far_tokens *f, const het_reader *reader)
{
    const int64_t places[] = { 0, (int64_t)((SPARSE_4_GIB - f->first) / f->bytes), INT64_C(1) << 31, INT64_C(1) << 32, f->tokens };
    het_data_desc desc;
    het_data plan, *data;
    het_error error = { HET_OK, "" };
    size_t i;
    memset(&desc, 0, sizeof desc);
    desc.reader = *reader;
    desc.format = f->format;
    desc.vocab = f->most + 1;
    desc.length = FAR_LENGTH;
    desc.sequences = desc.slots = desc.granule = 1;
    desc.held_out = 1e-6f;
    support_expect(heti_data_settings(&desc, &plan, &error), HET_OK, error.text, "", "settings", __LINE__);
    support_expect(heti_data_detect(&plan, &error), HET_OK, error.text, "", "detect", __LINE__);
    support_expect(heti_data_split(&plan, &error), HET_OK, error.text, "", "split", __LINE__);
    data = heti_data_make(&plan);
    assert_non_null(data);
    assert_true(data->info.tokens == f->tokens && data->first == f->first && data->token_bytes == f->bytes);
    assert_true(data->info.windows + data->info.held_out == (f->tokens - 1) / FAR_LENGTH && data->info.held_out > 0);
    for (i = 0; i < sizeof places / sizeof places[0]; i++) far_place(f, data, places[i]);
    far_calls(f, data);
    assert_int_equal(het_data_tokens(data, f->tokens - 1, 2, data->token, &error), HET_ERR_INVALID);
    het_data_close(data);
}

/* Bytes, and tokens of 16 and 32 bits, on both sides of byte 2^32, token 2^31 and token 2^32, by the C library and mapped. llm.c's header counts
   in an int32. */
static void token_files_beyond_4_gib(void **state)
{
    static const far_tokens cases[] = {
        { HET_DATA_BYTES, 0, 0, (INT64_C(1) << 32) + (1 << 28), 1, 250, 0, -1 },
        { HET_DATA_UINT16, 0, 0, (INT64_C(1) << 32) + (1 << 28), 2, 60000, 0, -1 },
        { HET_DATA_LLMC, 20240520, 1, INT32_MAX, 2, 65000, 1024, -1 },
        { HET_DATA_AUTO, 20240801, 7, INT32_MAX, 4, 2000000000, 1024, -1 },
    };
    size_t c;
    (void)state;
    for (c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        far_tokens f = cases[c];
        const int64_t places[] = { 0, (int64_t)((SPARSE_4_GIB - f.first) / f.bytes), INT64_C(1) << 31, INT64_C(1) << 32, f.tokens };
        const uint32_t header[3] = { f.magic, f.version, (uint32_t)f.tokens };
        char path[] = "/tmp/hetrain_far_XXXXXX";
        const int made = mkstemp(path);
        het_reader opened, mapped;
        mapped_file map;
        size_t i;
        assert_true(made >= 0);
        close(made);
        f.file = sparse_open(path, f.first + (uint64_t)f.tokens * f.bytes);
        if (f.file < 0) skip();
        for (i = 0; i < 12 && f.magic != 0; i++) {
            const unsigned char byte = (unsigned char)(header[i / 4] >> 8 * (i % 4) & 255);
            sparse_put(f.file, i, &byte, 1);
        }
        for (i = 0; i < sizeof places / sizeof places[0]; i++) {
            const int64_t from = heti_max(0, places[i] - FAR_REACH), to = heti_min(f.tokens, places[i] + FAR_REACH);
            if (to > from) far_write(&f, from, to - from);
        }
        EXPECT_OK(het_reader_open(path, &opened, NULL));
        mapped = opened;
        assert_true(mapped_open(&map, path, &mapped));
        unlink(path);
        far_file(&f, &opened);
        far_file(&f, &mapped);
        mapped_close(&map);
        het_reader_close(&opened);
        close(f.file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_have_a_post_for_all_below), cmocka_unit_test(moves_sum_and_gather),
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(uniform_numbers),
        cmocka_unit_test(permutations_are_bijections),
        cmocka_unit_test(xxh64_known_answers),
        cmocka_unit_test(sums_have_no_order),
        cmocka_unit_test(double_functions),
        cmocka_unit_test(float_functions),
        cmocka_unit_test(formatter),
        cmocka_unit_test(checked_sizes),
        cmocka_unit_test(units_are_done_once),
        cmocka_unit_test(large_blocks_ask_for_huge_pages),
        cmocka_unit_test(experts_are_cut_as_parameters),
        cmocka_unit_test(waits_know_no_wall_clock),
        cmocka_unit_test(token_files_beyond_4_gib),
    };
    return cmocka_run_group_tests_name("inside", tests, NULL, NULL);
}
