/* Rows of docs/systems.md that a C program shows best: what a system of the literature does, measured here. Each prints "works: ..." or
   "short: ..." with its figures.    test_systems [ROW]    ROW: 0.1, ...; without one the quick rows, as a suite of make test */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE 1 /* syscall, for bench/steady.h */
#endif
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "support.h"

#include <stdarg.h>
#include <time.h>

#include "programs/loader.h"
#include "programs/power.h"
#include "hetrain_plan.h"
#include "hetrain_search.h"
#include "hetrain_files.h"

/* ---- what is said ---- */

#if defined(__GNUC__) || defined(__clang__)
__attribute__((format(printf, 2, 3)))
#endif
static void met(int condition, const char *format, ...)
{
    char text[1000];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    printf("%s: %s\n", condition ? "works" : "short", text);
    fflush(stdout);
    if (!condition) fail_msg("%s", text);
}

static double now(void *user)
{
    struct timespec t;
    (void)user;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds_now(void) { return now(NULL); }
#include "bench/steady.h"

/* Devices that compute at a share of STEADY_RATE, far below what the processor does, whatever else is at work; each but the first at `less` of it. */
static void compute_steadily(support_run *run, int64_t devices, double share, double less)
{
    int64_t i;
    for (i = 0; i < devices; i++) run->device[i].speed = i == 0 ? share : less * share;
    steady_take(run->device, devices, STEADY_COMPUTES);
    for (i = 0; i < devices; i++) run->device[i].speed = 1;
}

/* The lower median; 0 of nothing. */
static double median_of(const double *value, int count)
{
    int i, k, below;
    for (k = 0; k < count; k++) {
        for (i = below = 0; i < count; i++) below += value[i] < value[k] || (value[i] == value[k] && i < k);
        if (below == (count - 1) / 2) return value[k];
    }
    return 0;
}

/* The median of some steps in seconds, and the weights behind them. */
static double median_step(const support_run *run, const char *layout, uint64_t *weights)
{
    enum { STEPS = 5 };
    het_ctx *ctx = support_create(&run->desc);
    double took[STEPS];
    int step;
    for (step = -1; step < STEPS; step++) {
        const double begin = now(NULL);
        (void)support_step(ctx, &run->data, 0, layout);
        if (step >= 0) took[step] = now(NULL) - begin;
    }
    *weights = support_hash(ctx);
    het_destroy(ctx);
    return median_of(took, STEPS);
}

/* The largest difference of two contexts' arrays, over all parameters, relative to the largest element of each parameter. */
static double worst_difference(het_ctx *a, het_ctx *b, het_array what)
{
    double worst = 0;
    int64_t p, i;
    for (p = 0; p < het_parameter_count(a); p++) {
        het_parameter_info info;
        float *x, *y;
        double most = 0, difference = 0;
        EXPECT_OK(het_parameter_get_info(a, p, &info));
        x = support_floats(info.count, 1, 1);
        y = support_floats(info.count, 1, 2);
        EXPECT_OK(het_parameter_read(a, p, what, x));
        EXPECT_OK(het_parameter_read(b, p, what, y));
        for (i = 0; i < info.count; i++) {
            if (fabs((double)x[i] - (double)y[i]) > difference) difference = fabs((double)x[i] - (double)y[i]);
            if (fabs((double)x[i]) > most) most = fabs((double)x[i]);
        }
        if (difference > 0 && difference / most > worst) worst = difference / most;
        free(x);
        free(y);
    }
    return worst;
}

/* The profile of devices that were measured with sequences of this length. */
static het_profile *profile_of(const support_run *run, int64_t length)
{
    het_measure_desc measure;
    het_profile *profile = NULL;
    het_error error;
    memset(&measure, 0, sizeof measure);
    measure.desc = &run->desc, measure.seconds = 2, measure.length = length, measure.now = now;
    EXPECT_ERROR(het_profile_measure(&measure, &profile, &error), HET_OK, error.text, "");
    return profile;
}

static void start(support_run *run, het_family family, int steps, const char *blocks, int64_t ranks)
{
    const het_model_desc model = support_deep_model(family);
    support_run_start(run, &model, steps, blocks);
    support_run_ranks(run, ranks);
}

/* ---- data parallelism ---- */

/* HetSeq: 5, 2 and 0 samples on three ranks, padded to one length with weight 0, against one rank on the 7 samples without padding. */
static void row_0_1(void **state)
{
    static const int64_t length[7] = { 24, 17, 9, 21, 13, 5, 24 };
    support_batch padded[7], plain;
    het_batch batches[7];
    support_run run;
    het_ctx *three, *one;
    het_step_info x, y;
    double worst;
    int i;
    (void)state;
    start(&run, HET_LLAMA, 1, "24|24|24|24|24|24|24", 3);
    support_run_plan(&run, "{\"pipelines\":[{\"share\":5,\"stages\":[{\"rank\":0,\"units\":[0,8]}]},{\"share\":2,\"stages\":[{\"rank\":1,"
                     "\"units\":[0,8]}]},{\"share\":0,\"stages\":[{\"rank\":2,\"units\":[0,8]}]}]}", NULL, 1);
    support_batch_start(&plain);
    for (i = 0; i < 7; i++) {
        int64_t t;
        support_batch_start(&padded[i]);
        support_batch_sequence(&padded[i], 24, run.desc.model.vocab, i, (uint64_t)i);
        for (t = length[i]; t < 24; t++) padded[i].weight[t] = 0;
        batches[i] = padded[i].batch;
        support_batch_sequence(&plain, length[i], run.desc.model.vocab, i, (uint64_t)i);
    }
    three = support_create(&run.desc);
    EXPECT_OK(het_gradients(three, batches, 7, &x));
    support_run_ranks(&run, 1);
    run.desc.layout.plan = NULL;
    run.desc.limits.max_tokens = 7 * 24, run.desc.limits.max_sequences = 7;
    one = support_create(&run.desc);
    EXPECT_OK(het_gradients(one, &plain.batch, 1, &y));
    worst = worst_difference(one, three, HET_GRADIENT);
    met(worst < 1e-5 && fabs(x.loss - y.loss) < 1e-5 * y.loss, "gradients differ by %.1e of the largest, losses %.7f and %.7f", worst, x.loss,
        y.loss);
    for (i = 0; i < 7; i++) support_batch_end(&padded[i]);
    support_batch_end(&plain);
    het_destroy(three);
    het_destroy(one);
    support_run_end(&run);
}

/* VirtualFlow: 8 micro-batches on 1, 2 and 3 ranks (4, 3, 1 of them), and on a rank more after each step: the same losses and weights. */
static void row_0_13(void **state)
{
    static const char *const blocks = "17|5|9|21|13|7|3|11", *const layout = "0|1|2|3|4|5|6|7";
    static const char *const plan[4] = { NULL, "dp", "dp", "{\"pipelines\":[{\"share\":4,\"stages\":[{\"rank\":0,\"units\":[0,8]}]},"
        "{\"share\":3,\"stages\":[{\"rank\":1,\"units\":[0,8]}]},{\"share\":1,\"stages\":[{\"rank\":2,\"units\":[0,8]}]}]}" };
    support_result base, other, moved;
    support_run run;
    het_ctx *ctx;
    int ranks, step;
    (void)state;
    start(&run, HET_GPT2, 6, blocks, 1);
    base = support_train(&run, layout);
    for (ranks = 2; ranks <= 3; ranks++) {
        support_run_ranks(&run, ranks);
        support_run_plan(&run, plan[ranks], NULL, 1);
        other = support_train(&run, layout);
        if (!support_same(&base, &other, "ranks")) met(0, "%d ranks: other bits", ranks);
    }
    ctx = support_create(&run.desc); /* on 3; then 2 with the third idle, pipelines, and 3 again */
    memset(&moved, 0, sizeof moved);
    moved.steps = 6;
    for (step = 0; step < 6; step++) {
        static const char *const text[6] = { NULL, "{\"pipelines\":[{\"stages\":[{\"rank\":1,\"units\":[0,8]}]}]}", NULL,
            "pp:0-2|3-5|6-7", NULL, "dp" };
        het_replan_desc to;
        het_step_info info;
        memset(&to, 0, sizeof to);
        if (text[step] != NULL) {
            het_plan *next = support_plan(text[step], NULL, 8, 3, 1);
            to.plan = next;
            support_expect(het_replan(ctx, &to), HET_OK, het_last_error(ctx), "", text[step], __LINE__);
            het_plan_free(next);
        }
        info = support_step(ctx, &run.data, step, layout);
        moved.loss[step] = info.loss, moved.norm[step] = info.gradient_norm;
    }
    moved.weights = support_hash(ctx);
    met(support_same(&base, &moved, "moved"),
        "8 micro-batches on 1, 2 and 3 ranks (4, 3, 1) and over 4 changes of plan: %d equal losses, weights %016llx",
        (int)base.steps, (unsigned long long)base.weights);
    het_destroy(ctx);
    support_run_end(&run);
}

/* OmniLearn: three workers, of which one has a third of the others' speed; after some steps another one has. Only shares of the micro-batches
   change, so that the workers' times of a step agree, for a step of the same samples. */
#define OMNI 42
typedef struct omni { het_ctx *ctx; support_batch batch[OMNI]; het_batch list[OMNI]; het_adapt *adapt; int64_t steps; } omni;

/* Steps until the workers' busy times, least of three steps each, are within 10 % of each other; most: at most so many. Returns how many. */
static int steps_until_equal(omni *o, int most, double *spread)
{
    double past[3][3];
    int step;
    for (step = 1; step <= most; step++) {
        het_record *all;
        het_timeline t, join;
        het_advice *advice = NULL;
        het_error error;
        int64_t r, i, count = 0;
        double low = 1e30, high = 0;
        support_expect(het_step(o->ctx, o->list, OMNI, NULL), HET_OK, het_last_error(o->ctx), "", "het_step", __LINE__);
        o->steps++;
        all = support_alloc(4000, sizeof *all);
        for (r = 0; r < 3; r++) {
            double busy = 0, least;
            het_get_timeline(o->ctx, r, &t);
            for (i = 0; i < t.records; i++) {
                all[count++] = t.record[i];
                if (t.record[i].action.kind <= HET_ACTION_W) busy += t.record[i].end - t.record[i].start;
            }
            past[r][step % 3] = busy;
            least = fmin(past[r][step % 3], fmin(step > 1 ? past[r][(step + 2) % 3] : busy, step > 2 ? past[r][(step + 1) % 3] : busy));
            low = fmin(low, least), high = fmax(high, least);
        }
        join = t, join.record = all, join.records = count;
        EXPECT_ERROR(het_adapt_observe(o->adapt, &join, &error), HET_OK, error.text, "");
        EXPECT_ERROR(het_adapt_advise(o->adapt, &advice, &error), HET_OK, error.text, "");
        free(all);
        *spread = high / low - 1;
        if (advice != NULL && advice->plan != NULL) {
            het_replan_desc to;
            memset(&to, 0, sizeof to);
            to.plan = advice->plan;
            EXPECT_ERROR(het_replan(o->ctx, &to), HET_OK, het_last_error(o->ctx), "");
            EXPECT_ERROR(het_adapt_start(o->adapt, advice->plan, 1, &error), HET_OK, error.text, "");
            for (r = 0; r < 3; r++) past[r][0] = past[r][1] = past[r][2] = 1e30;
        } else if (*spread <= 0.1 && step > 1) {
            het_advice_free(advice);
            return step;
        }
        het_advice_free(advice);
    }
    return most + 1;
}

static void row_0_19(void **state)
{
    support_run run;
    omni o;
    het_profile *profile = NULL;
    het_cluster *cluster = NULL;
    het_search_desc search;
    het_adapt_desc desc;
    het_error error;
    het_ctx *one;
    double spread[2];
    int64_t i;
    int taken[2];
    (void)state;
    memset(&o, 0, sizeof o);
    memset(&search, 0, sizeof search);
    memset(&desc, 0, sizeof desc);
    start(&run, HET_LLAMA, 1, "40", 3);
    run.desc.model.width = 96, run.desc.model.heads = run.desc.model.kv_heads = 4, run.desc.model.head_size = 24, run.desc.model.mlp_width = 256;
    run.desc.limits.max_micro_batches = OMNI;
    compute_steadily(&run, 3, 0.03, 1);
    run.device[2].speed = 1.0 / 3;
    for (i = 0; i < OMNI; i++) {
        support_batch_start(&o.batch[i]);
        support_batch_sequence(&o.batch[i], 40, run.desc.model.vocab, i, (uint64_t)i);
        o.list[i] = o.batch[i].batch;
    }
    support_run_plan(&run, "dp", NULL, 1);
    profile = profile_of(&run, 40);
    EXPECT_ERROR(het_cluster_flat(3, NULL, 1e-6, 0, NULL, &cluster, &error), HET_OK, error.text, "");
    for (i = 0; i < 3; i++) {
        snprintf(cluster->device[i].profile, sizeof cluster->device[i].profile, "%s", profile->device[0].name);
        cluster->device[i].speed = 1;
    }
    search.profile = profile, search.cluster = cluster;
    search.granules = OMNI, search.granule_tokens = 40;
    desc.search = &search, desc.only_shares = HET_YES, desc.change = 0.05, desc.gain = 0.01, desc.window = 3;
    EXPECT_ERROR(het_adapt_create(&desc, &o.adapt, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_adapt_start(o.adapt, run.plan, 1, &error), HET_OK, error.text, "");
    o.ctx = support_create(&run.desc);
    taken[0] = steps_until_equal(&o, 10, &spread[0]);
    EXPECT_OK(het_set_speed(o.ctx, 2, 1));
    EXPECT_OK(het_set_speed(o.ctx, 0, 1.0 / 3));
    taken[1] = steps_until_equal(&o, 10, &spread[1]);
    support_run_ranks(&run, 1);
    run.device[0].iface = NULL, run.device[0].ordinal = 0;
    run.desc.layout.plan = NULL;
    one = support_create(&run.desc);
    for (i = 0; i < o.steps; i++) EXPECT_OK(het_step(one, o.list, OMNI, NULL));
    met(taken[0] <= 10 && taken[1] <= 10 && support_hash(one) == support_hash(o.ctx),
        "busy times of three workers, one at a third of the speed, are within %.1f %% after %d steps, and %.1f %% %d steps after another became the "
        "slow one; weights of one rank", 100 * spread[0], taken[0], 100 * spread[1], taken[1]);
    het_destroy(one);
    het_destroy(o.ctx);
    het_adapt_destroy(o.adapt);
    het_profile_free(profile);
    het_cluster_free(cluster);
    for (i = 0; i < OMNI; i++) support_batch_end(&o.batch[i]);
    support_run_end(&run);
}

/* Power and clocks: two ranks in a pipeline, whose clocks are read from files; from step 7 on rank 1 does half and its clock says so, or says
   nothing. Returns behind how many steps the advice came; units: of rank 1, before and after; ms: the least of the slow steps and of those behind. */
enum { CLOCKED = 16 };
typedef struct clocked { het_profile *profile; support_batch batch[CLOCKED]; het_batch list[CLOCKED]; int64_t units[2]; double ms[2]; } clocked;

static void write_clock(const char *folder, int mhz)
{
    char path[100];
    FILE *to;
    (void)mkdir(folder, 0700);
    snprintf(path, sizeof path, "%s/proc", folder);
    (void)mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/proc/cpuinfo", folder);
    if ((to = fopen(path, "wb")) == NULL) fail_msg("%s cannot be written", path);
    fprintf(to, "cpu MHz\t\t: %d.000\n", mhz);
    fclose(to);
}

static int64_t units_of(const het_plan *plan, int64_t rank)
{
    int64_t i, units = 0;
    for (i = 0; i < plan->stages; i++)
        if (plan->stage[i].rank == rank) units += plan->stage[i].unit_end - plan->stage[i].unit_begin;
    return units;
}

static int steps_until_moved(clocked *c, const support_run *run, const het_search_desc *search, int reports)
{
    static const char *const folder[2] = { "build/test_systems.3.8.0", "build/test_systems.3.8.1" };
    double clock[2] = { 0, 0 };
    power_meter meter[2];
    het_adapt_desc desc;
    het_adapt *adapt;
    het_error error;
    het_ctx *ctx = support_create(&run->desc);
    int step, r, moved = 0;
    c->ms[0] = c->ms[1] = 1e9;
    memset(&desc, 0, sizeof desc);
    desc.search = search, desc.change = 0.3, desc.frequency = reports ? clock : NULL;
    EXPECT_ERROR(het_adapt_create(&desc, &adapt, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_adapt_start(adapt, run->plan, 1, &error), HET_OK, error.text, "");
    for (r = 0; r < 2; r++) {
        write_clock(folder[r], 2400);
        EXPECT_ERROR(power_open(&meter[r], folder[r], 1, &error), HET_OK, error.text, "");
    }
    for (step = 1; step <= 20 && (moved == 0 || step < moved + 9); step++) {
        het_record *all = support_alloc(4000, sizeof *all);
        het_advice *advice = NULL;
        het_timeline t;
        int64_t i, count = 0;
        double begin = now(NULL);
        if (step == 7) {
            EXPECT_OK(het_set_speed(ctx, 1, run->device[1].speed / 2));
            write_clock(folder[1], 1200);
        }
        support_expect(het_step(ctx, c->list, CLOCKED, NULL), HET_OK, het_last_error(ctx), "", "het_step", __LINE__);
        if (step >= 7) c->ms[moved > 0] = fmin(c->ms[moved > 0], 1e3 * (now(NULL) - begin));
        for (r = 0; r < 2; r++) {
            het_get_timeline(ctx, r, &t);
            for (i = 0; i < t.records; i++) all[count++] = t.record[i];
            clock[r] = power_mhz(&meter[r]);
        }
        t.record = all, t.records = count;
        EXPECT_ERROR(het_adapt_observe(adapt, &t, &error), HET_OK, error.text, "");
        EXPECT_ERROR(het_adapt_advise(adapt, &advice, &error), HET_OK, error.text, "");
        free(all);
        if (advice != NULL && advice->plan != NULL) {
            het_replan_desc to;
            memset(&to, 0, sizeof to);
            to.plan = advice->plan;
            if (step < 7) c->units[0] = units_of(advice->plan, 1);
            else if (moved == 0) c->units[1] = units_of(advice->plan, 1), moved = step;
            EXPECT_ERROR(het_replan(ctx, &to), HET_OK, het_last_error(ctx), "");
            EXPECT_ERROR(het_adapt_start(adapt, advice->plan, 1, &error), HET_OK, error.text, "");
        }
        het_advice_free(advice);
    }
    het_adapt_destroy(adapt);
    het_destroy(ctx);
    return moved - 6;
}

/* HETHUB: two unlike devices, each alone and both in one pipeline that the planner cuts: steps a second beside the sum of the two alone. */
static void row_0_4(void **state)
{
    enum { TOKENS = 120, BATCHES = 16 };
    static const char *const layout = "0|1|2|3|4|5|6|7|0|1|2|3|4|5|6|7";
    static const double share[2] = { 0.3, 0.12 };
    const het_link link = { 0, 1, 1e-3, 2e7 };
    double took[3], sum;
    uint64_t weights[3];
    het_cluster *cluster = NULL;
    het_search *found = NULL;
    het_search_desc search;
    het_profile *profile;
    het_model_desc model;
    het_error error;
    support_run run;
    int64_t i;
    (void)state;
    memset(&search, 0, sizeof search);
    EXPECT_ERROR(het_model_parse("llama:layers=8,width=96,heads=4,context=120,vocab=61", &model, &error), HET_OK, error.text, "");
    support_run_start(&run, &model, 1, "120|120|120|120|120|120|120|120");
    run.desc.limits.max_micro_batches = BATCHES;
    support_run_ranks(&run, 1);
    for (i = 1; i >= 0; i--) {
        compute_steadily(&run, 1, share[i], 1);
        took[i] = median_step(&run, layout, &weights[i]);
    }
    profile = profile_of(&run, TOKENS);
    support_run_ranks(&run, 2);
    compute_steadily(&run, 2, share[0], share[1] / share[0]);
    EXPECT_ERROR(het_cluster_flat(2, NULL, link.latency, link.bandwidth, NULL, &cluster, &error), HET_OK, error.text, "");
    for (i = 0; i < 2; i++) {
        snprintf(cluster->device[i].profile, sizeof cluster->device[i].profile, "%s", profile->device[0].name);
        cluster->device[i].speed = share[i] / share[0];
    }
    search.profile = profile, search.cluster = cluster;
    search.granules = BATCHES, search.granule_tokens = TOKENS, search.most_granules = 1;
    EXPECT_ERROR(het_plan_search(&search, &found, &error), HET_OK, error.text, "");
    run.desc.emulate.links = &link, run.desc.emulate.link_count = 1;
    run.desc.layout.plan = found->found[0].plan;
    took[2] = median_step(&run, layout, &weights[2]);
    sum = 1 / took[2] / (1 / took[0] + 1 / took[1]);
    met(found->found[0].plan->pipelines == 1 && found->found[0].plan->stages == 2 && sum >= 0.9 && weights[0] == weights[1] &&
        weights[0] == weights[2], "a step takes %.1f ms on the fast device, %.1f on the slow one, %.1f on both (%d pipeline of %d stages, %d and %d "
        "units): %.3f of the sum of their speeds; weights of one device", 1e3 * took[0], 1e3 * took[1], 1e3 * took[2],
        (int)found->found[0].plan->pipelines, (int)found->found[0].plan->stages, (int)units_of(found->found[0].plan, 0),
        (int)units_of(found->found[0].plan, 1), sum);
    run.desc.layout.plan = NULL;
    het_search_free(found);
    het_cluster_free(cluster);
    het_profile_free(profile);
    support_run_end(&run);
}

static void row_3_8(void **state)
{
    static const char *const names[] = { "1f1b" };
    const het_link link = { 0, 1, 1e-3, 5e6 };
    support_run run;
    het_cluster *cluster = NULL;
    het_search_desc search;
    het_error error;
    clocked c, late;
    int64_t i;
    int steps, without;
    (void)state;
    memset(&c, 0, sizeof c);
    memset(&search, 0, sizeof search);
    start(&run, HET_LLAMA, 1, "40", 2);
    run.desc.model.width = 96, run.desc.model.heads = run.desc.model.kv_heads = 4, run.desc.model.head_size = 24, run.desc.model.mlp_width = 256;
    run.desc.limits.max_micro_batches = CLOCKED;
    run.desc.emulate.links = &link, run.desc.emulate.link_count = 1;
    for (i = 0; i < 2; i++) run.device[i].speed = 0.12;
    for (i = 0; i < CLOCKED; i++) {
        support_batch_start(&c.batch[i]);
        support_batch_sequence(&c.batch[i], 40, run.desc.model.vocab, i, (uint64_t)i);
        c.list[i] = c.batch[i].batch;
    }
    support_run_plan(&run, "pp", "1f1b", 1);
    c.profile = profile_of(&run, 40);
    EXPECT_ERROR(het_cluster_flat(2, NULL, link.latency, link.bandwidth, NULL, &cluster, &error), HET_OK, error.text, "");
    for (i = 0; i < 2; i++) {
        snprintf(cluster->device[i].profile, sizeof cluster->device[i].profile, "%s", c.profile->device[0].name);
        cluster->device[i].speed = 0.12;
    }
    search.profile = c.profile, search.cluster = cluster, search.schedules = names, search.schedule_count = 1;
    search.granules = CLOCKED, search.granule_tokens = 40, search.evaluations = 400, search.most_granules = 1;
    c.units[0] = units_of(run.plan, 1);
    late = c;
    steps = steps_until_moved(&c, &run, &search, 1);
    without = steps_until_moved(&late, &run, &search, 0);
    met(steps == 2 && c.units[1] < c.units[0] && late.units[1] < late.units[0] && without > steps && c.ms[1] < c.ms[0],
        "rank 1 of a pipeline does half and its clock is read as 1200 MHz, 2400 before: behind %d steps its stage of %d units becomes one of %d, and "
        "steps of %.0f ms take %.0f; behind %d steps where its times alone tell", steps, (int)c.units[0], (int)c.units[1], c.ms[0], c.ms[1], without);
    het_profile_free(c.profile);
    het_cluster_free(cluster);
    for (i = 0; i < CLOCKED; i++) support_batch_end(&c.batch[i]);
    support_run_end(&run);
}

/* Horovod: bytes that a rank sends in the all-reduce of fast sums, over 2 (N - 1) / N of its payload; reductions for each block, not each tensor. */
static void row_0_17(void **state)
{
    double worst = 0;
    int64_t ranks, tensors = 0, reductions = 0;
    char text[200] = "";
    (void)state;
    for (ranks = 2; ranks <= 4; ranks++) {
        support_run run;
        het_ctx *ctx;
        double elements = 0, sent = 0;
        int64_t r, to, p;
        start(&run, HET_GPT2, 1, "17|5|9|21", ranks);
        run.desc.reduce = HET_REDUCE_FAST;
        ctx = support_create(&run.desc);
        (void)support_step(ctx, &run.data, 0, "0|1|2|3");
        tensors = het_parameter_count(ctx);
        for (p = 0; p < tensors; p++) {
            het_parameter_info info;
            EXPECT_OK(het_parameter_get_info(ctx, p, &info));
            elements += (double)((info.count + 15) / 16 * 16);
        }
        reductions = 0;
        for (r = 0; r < ranks; r++) {
            het_timeline timeline;
            int64_t i;
            het_get_timeline(ctx, r, &timeline);
            for (to = 0; to < ranks; to++) sent += (double)timeline.traffic[to].reduction_bytes;
            for (i = 0; i < timeline.records && r == 0; i++) reductions += timeline.record[i].action.kind == HET_ACTION_REDUCE;
        }
        sent /= 4 * elements * (double)ranks * 2.0 * (double)(ranks - 1) / (double)ranks; /* per rank, of its 4-byte payload */
        if (fabs(sent - 1) > worst) worst = fabs(sent - 1);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d ranks: %.4f", ranks > 2 ? ", " : "", (int)ranks, sent);
        het_destroy(ctx);
        support_run_end(&run);
    }
    met(worst < 1e-9 && reductions < tensors, "mean bytes a rank sent, over 2 (N - 1) / N of its payload: %s; %d reductions for %d tensors "
        "(each rounded up to 16 elements)", text, (int)reductions, (int)tensors);
}

/* FlashFlex's example: stages [[1, 2, 1], [2]], whose entries are degrees of tensor parallelism, with layers [[2, 4, 2], [8]] and batch shares
   [3, 1]: 20 steps, against one rank's. */
static void row_0_9(void **state)
{
    enum { TRAINED = 20 };
    static const char plan[] = "{\"teams\":[{\"ranks\":[1,2],\"split\":\"columns\"},{\"ranks\":[4,5],\"split\":\"columns\"}],\"pipelines\":["
        "{\"share\":3,\"stages\":[{\"rank\":0,\"units\":[0,5]},{\"rank\":1,\"units\":[5,13]},{\"rank\":3,\"units\":[13,18]}]},"
        "{\"share\":1,\"stages\":[{\"rank\":4,\"units\":[0,18]}]}]}";
    het_model_desc model = support_deep_model(HET_LLAMA);
    double loss[2][TRAINED], worst = 0;
    uint64_t weights[2];
    support_run run;
    int ranks, step;
    (void)state;
    model.layers = 8;
    support_run_start(&run, &model, 4, "17|5,0,9|48|1");
    for (ranks = 0; ranks < 2; ranks++) {
        het_ctx *ctx;
        if (ranks == 1) support_run_ranks(&run, 6), support_run_plan(&run, plan, "1f1b", 1);
        ctx = support_create(&run.desc);
        for (step = 0; step < TRAINED; step++) loss[ranks][step] = support_step(ctx, &run.data, step % 4, "0|1|2|3").loss;
        weights[ranks] = support_hash(ctx);
        het_destroy(ctx);
    }
    for (step = 0; step < TRAINED; step++) worst = fmax(worst, fabs(loss[1][step] / loss[0][step] - 1));
    met(worst <= 1e-4 && weights[0] == weights[1], "stages of 1, 2, 1 ranks by columns with 2, 4, 2 layers beside one of 2 with all 8, batch 3 : 1: "
        "losses of %d steps (%.4f to %.4f) differ by %.0e of one rank's, weights %016llx and %016llx", TRAINED, loss[1][0], loss[1][TRAINED - 1],
        worst, (unsigned long long)weights[1], (unsigned long long)weights[0]);
    support_run_end(&run);
}

/* ---- what is divided ---- */

/* All micro-batches, four of 20 tokens each, are one granule. */
#define FOUR "20|20|20|20"
#define FOUR_APART "0|1|2|3"

static het_model_desc deep_and_narrow(int64_t layers)
{
    het_model_desc model;
    het_error error;
    char text[100];
    snprintf(text, sizeof text, "gpt2:layers=%d,width=64,heads=2,context=20,vocab=61,mlp_width=128", (int)layers);
    EXPECT_ERROR(het_model_parse(text, &model, &error), HET_OK, error.text, "");
    return model;
}

/* Weights, sums of gradients and optimizer state of a rank, in bytes. */
static double state_bytes(het_ctx *ctx, int64_t rank)
{
    het_memory memory;
    het_get_memory(ctx, rank, &memory);
    return (double)memory.weights + (double)memory.gradients + (double)memory.optimizer;
}

static double elements_of(het_ctx *ctx)
{
    double elements = 0;
    int64_t p;
    for (p = 0; p < het_parameter_count(ctx); p++) {
        het_parameter_info info;
        EXPECT_OK(het_parameter_get_info(ctx, p, &info));
        elements += (double)info.count;
    }
    return elements;
}

/* Cephalo: the rank that computes three of four micro-batches has a quarter of weights, gradients and state, the other one three. */
static void row_0_10(void **state)
{
    const het_model_desc model = deep_and_narrow(48);
    support_result base, divided;
    support_run run;
    het_ctx *ctx;
    het_timeline timeline;
    double bytes[2];
    int64_t r, i, forwards[2];
    (void)state;
    support_run_start(&run, &model, 2, FOUR);
    base = support_train(&run, FOUR_APART);
    support_run_ranks(&run, 2);
    support_run_plan(&run, "{\"shard\":\"weights\",\"state_shares\":[1,3],\"pipelines\":[{\"share\":3,\"stages\":[{\"rank\":0,\"units\":[0,98]}]},"
                     "{\"share\":1,\"stages\":[{\"rank\":1,\"units\":[0,98]}]}]}", NULL, 1);
    divided = support_train(&run, FOUR_APART);
    ctx = support_create(&run.desc);
    (void)support_step(ctx, &run.data, 0, FOUR_APART);
    (void)support_step(ctx, &run.data, 1, FOUR_APART);
    for (r = 0; r < 2; r++) {
        bytes[r] = state_bytes(ctx, r);
        forwards[r] = 0;
        het_get_timeline(ctx, r, &timeline);
        for (i = 0; i < timeline.records; i++) forwards[r] += timeline.record[i].action.kind == HET_ACTION_F;
    }
    met(support_same(&base, &divided, "divided") && fabs(bytes[1] / bytes[0] / 3 - 1) <= 0.05 && forwards[0] == 3 * forwards[1],
        "%d and %d micro-batches of a step on two ranks, whose weights, gradients and state take %.0f and %.0f bytes, 1 : %.2f with all buffers; "
        "one rank's losses and weights %016llx", (int)forwards[0], (int)forwards[1], bytes[0], bytes[1], bytes[1] / bytes[0],
        (unsigned long long)base.weights);
    het_destroy(ctx);
    support_run_end(&run);
}

/* An encoder and a decoder as one chain: stream 1 is the encoder's, stream 0 the decoder's, whose second attention of a layer has queries of
   its own and keys and values of the encoder. Attention looks back in both, since a batch has one sequence of tokens for both. */
typedef struct part { int to, from, last; } part; /* streams: what it adds to, what it looks at; last: the encoder's ends here */

static const char *part_name(char *text, const part *s, const char *name)
{
    sprintf(text, "%s.#.%s", s->to ? "encoder" : s->from ? "cross" : "decoder", name);
    return text;
}

static het_result two_embeddings(const het_unit *unit, het_unit_info *info)
{
    het_program *p = het_program_begin(unit, info);
    het_node_output(p, het_node_embedding(p, "decoder.embed", "decoder.positions"));
    het_node_output(p, het_node_embedding(p, "encoder.embed", "encoder.positions"));
    return het_program_end(p);
}

static het_result part_end(het_program *p, const het_unit_info *info, const part *s, int y)
{
    int i;
    for (i = 0; i < (s->last ? 1 : (int)info->in_streams); i++) het_node_output(p, i == s->to ? y : het_node_input(p, i, info->in_width[i]));
    return het_program_end(p);
}

static het_result part_attention(const het_unit *unit, het_unit_info *info)
{
    const part *s = unit->settings;
    const int64_t d = unit->model->width;
    het_program *p = het_program_begin(unit, info);
    char n[40];
    const int x = het_node_input(p, s->to, d), h = het_node_norm(p, x, part_name(n, s, "norm"));
    const int m = s->to == s->from ? h : het_node_norm(p, het_node_input(p, s->from, d), part_name(n, s, "memory_norm"));
    const int q = het_node_linear(p, h, part_name(n, s, "q"), d, 0.05f);
    const int k = het_node_linear(p, m, part_name(n, s, "k"), d, 0.05f), v = het_node_linear(p, m, part_name(n, s, "v"), d, 0.05f);
    return part_end(p, info, s, het_node_residual(p, x, het_node_linear(p, het_node_attention(p, q, k, v), part_name(n, s, "o"), d, 0.05f)));
}

static het_result part_mlp(const het_unit *unit, het_unit_info *info)
{
    const part *s = unit->settings;
    const int64_t d = unit->model->width;
    het_program *p = het_program_begin(unit, info);
    char n[40];
    const int x = het_node_input(p, s->to, d), h = het_node_norm(p, x, part_name(n, s, "mlp_norm"));
    const int u = het_node_activation(p, HET_GELU_TANH, het_node_linear(p, h, part_name(n, s, "up"), 2 * d, 0.05f), -1);
    return part_end(p, info, s, het_node_residual(p, x, het_node_linear(p, u, part_name(n, s, "down"), d, 0.05f)));
}

static het_result decoder_head(const het_unit *unit, het_unit_info *info)
{
    het_program *p = het_program_begin(unit, info);
    const int h = het_node_norm(p, het_node_input(p, 0, unit->model->width), "decoder.norm");
    het_node_loss(p, het_node_linear(p, h, "decoder.head", unit->model->vocab, 0.05f));
    return het_program_end(p);
}

#define PART(name, describe) \
    { HETRAIN_UNIT_VERSION, name, describe, het_program_forward, het_program_backward_input, het_program_backward_weight }
static const het_unit_iface embeddings_kind = PART("embeddings", two_embeddings), attention_kind = PART("attention", part_attention),
    mlp_kind = PART("mlp", part_mlp), head_kind = PART("head", decoder_head);

/* embeddings, (attention, mlp) x layers, (attention, attention to the encoder, mlp) x layers, head. Returns how many units. */
static int64_t encoder_decoder(const het_model_desc *model, het_unit *unit)
{
    static const part encoder = { 1, 1, 0 }, decoder = { 0, 0, 0 }, cross = { 0, 1, 0 }, last = { 0, 1, 1 };
    int64_t count = 0, layer, i;
    memset(unit, 0, (size_t)(5 * model->layers + 2) * sizeof *unit);
    unit[count++].iface = &embeddings_kind;
    for (layer = 0; layer < 2 * model->layers; layer++) {
        const int64_t l = layer % model->layers;
        const part *own = layer < model->layers ? &encoder : &decoder;
        for (i = 0; i < 3; i++) {
            if (i == 1 && own == &encoder) continue;
            unit[count].layer = l;
            unit[count].settings = i == 1 ? (l == model->layers - 1 ? &last : &cross) : own;
            unit[count++].iface = i == 2 ? &mlp_kind : &attention_kind;
        }
    }
    unit[count++].iface = &head_kind;
    for (i = 0; i < count; i++) unit[i].model = model;
    return count;
}

/* Bytes of each rank beside the formulas, and bits beside one rank's, for all three. Returns the largest relative difference. */
static double divided_by_zero(support_run *run, int64_t units, const char *what, double *per_element)
{
    static const double whole[4] = { 0, 12, 4, 0 }, shared[4] = { 0, 8, 16, 20 };
    static const double shares[2][4] = { { 3, 3, 3, 3 }, { 2, 3, 3, 4 } };
    double worst = 0;
    support_result base, divided;
    int64_t r;
    int shard, uneven;
    run->desc.layout.plan = NULL;
    support_run_ranks(run, 1);
    base = support_train(run, FOUR_APART);
    support_run_ranks(run, 4);
    for (shard = 1; shard <= 3; shard++)
        for (uneven = 0; uneven < 2; uneven++) {
            het_plan *plan = support_plan("dp", NULL, units, 4, 1);
            het_ctx *ctx;
            plan->shard = (het_shard)shard;
            for (r = 0; r < 4; r++) plan->state_share[r] = shares[uneven][r];
            run->desc.layout.plan = plan;
            divided = support_train(run, FOUR_APART);
            if (!support_same(&base, &divided, what)) met(0, "%s, shard %d: other bits", what, shard);
            ctx = support_create(&run->desc);
            for (r = 0; r < 4; r++) {
                const double elements = elements_of(ctx), s = shares[uneven][r] / 12;
                const double bytes = state_bytes(ctx, r) / elements, formula = whole[shard] + shared[shard] * s;
                worst = fmax(worst, fabs(bytes / formula - 1));
                if (!uneven && r == 0) per_element[shard - 1] = bytes;
            }
            het_destroy(ctx);
            het_plan_free(plan);
            run->desc.layout.plan = NULL;
        }
    return worst;
}

/* The gradient g of the encoder's embedding, which reaches the loss by way of the decoder's keys and values alone, and the slope of the loss
   along it, over |g|^2. */
static double slope_of_encoder(const support_run *run)
{
    het_ctx *ctx = support_create(&run->desc);
    support_group group;
    het_parameter_info p;
    float *weight, *gradient, *moved;
    double square = 0, slope = 0, h;
    int64_t index = 0, i;
    int side;
    support_group_start(&group, &run->data, 0, FOUR_APART);
    EXPECT_OK(het_gradients(ctx, group.batch, group.count, NULL));
    do EXPECT_OK(het_parameter_get_info(ctx, index++, &p)); while (strcmp(p.name, "encoder.embed.weight") != 0);
    weight = support_floats(p.count, 1, 1), gradient = support_floats(p.count, 1, 2), moved = support_floats(p.count, 1, 3);
    EXPECT_OK(het_parameter_read(ctx, index - 1, HET_WEIGHT, weight));
    EXPECT_OK(het_parameter_read(ctx, index - 1, HET_GRADIENT, gradient));
    for (i = 0; i < p.count; i++) square += (double)gradient[i] * (double)gradient[i];
    h = 0.02 / sqrt(square);
    for (side = -1; side <= 1; side += 2) {
        het_step_info info;
        for (i = 0; i < p.count; i++) moved[i] = (float)((double)weight[i] + side * h * (double)gradient[i]);
        EXPECT_OK(het_parameter_write(ctx, index - 1, HET_WEIGHT, moved));
        EXPECT_OK(het_evaluate(ctx, group.batch, group.count, &info));
        slope += side * info.loss / (2 * h);
    }
    free(weight);
    free(gradient);
    free(moved);
    support_group_end(&group);
    het_destroy(ctx);
    return slope / square;
}

/* ZeRO 1, 2 and 3 of a decoder, and of an encoder and a decoder. */
static void row_2_14(void **state)
{
    static het_unit units[300];
    double bytes[2][3], worst[2], slope;
    char text[2][100];
    support_run run;
    het_model_desc model = deep_and_narrow(100);
    int i;
    (void)state;
    support_run_start(&run, &model, 2, FOUR);
    worst[0] = divided_by_zero(&run, 202, "a decoder", bytes[0]);
    support_run_end(&run);
    model = deep_and_narrow(50);
    support_run_start(&run, &model, 2, FOUR);
    run.desc.units = units;
    run.desc.unit_count = encoder_decoder(&run.desc.model, units);
    worst[1] = divided_by_zero(&run, run.desc.unit_count, "an encoder and a decoder", bytes[1]);
    support_run_end(&run);
    model = deep_and_narrow(2);
    support_run_start(&run, &model, 1, FOUR);
    run.desc.units = units;
    run.desc.unit_count = encoder_decoder(&run.desc.model, units);
    slope = slope_of_encoder(&run);
    support_run_end(&run);
    for (i = 0; i < 2; i++) snprintf(text[i], sizeof text[i], "%.2f, %.2f, %.2f", bytes[i][0], bytes[i][1], bytes[i][2]);
    met(worst[0] <= 0.05 && worst[1] <= 0.05 && fabs(slope - 1) < 0.01,
        "ZeRO 1, 2, 3 on 4 ranks: %s bytes an element of a decoder, %s of an encoder and decoder, all buffers with them; 12 + 8 s, 4 + 16 s, 20 s, "
        "for f32 and exact sums, say 14, 8, 5 (within %.1f %%, uneven shares too; 4 + 12 / N, 2 + 14 / N, 16 / N, for 16-bit weights, would say "
        "7, 5.5, 4); losses and weights of one rank; the encoder's gradient over the loss's slope: %.4f", text[0], text[1],
        100 * fmax(worst[0], worst[1]), slope);
}

/* Bytes that ranks of one pair have sent to the other pair. */
static double bytes_between_pairs(het_ctx *ctx)
{
    double bytes = 0;
    int64_t r, t;
    for (r = 0; r < 4; r++) {
        het_timeline timeline;
        het_get_timeline(ctx, r, &timeline);
        for (t = 0; t < 4; t++)
            if (r / 2 != t / 2) bytes += (double)timeline.traffic[t].reduction_bytes;
    }
    return bytes;
}

/* Low-bandwidth partitioning: bytes between two sets of two ranks, weights divided among all ranks or inside each set. */
static void row_3_11(void **state)
{
    static const char *const layout = "0|1|2|3|4|5|6|7";
    const het_model_desc model = deep_and_narrow(8);
    support_result base, divided;
    support_run run;
    double crossing[2], weights[2], terms = 0, elements = 0, before;
    int near;
    (void)state;
    support_run_start(&run, &model, 2, "20|20|20|20|20|20|20|20");
    base = support_train(&run, layout);
    support_run_ranks(&run, 4);
    support_run_plan(&run, "dp", NULL, 1);
    run.plan->shard = HET_SHARD_WEIGHTS;
    for (near = 0; near < 2; near++) {
        het_ctx *ctx;
        run.plan->near[2] = run.plan->near[3] = near;
        divided = support_train(&run, layout);
        if (!support_same(&base, &divided, near ? "near sets" : "flat")) met(0, "other bits");
        ctx = support_create(&run.desc);
        (void)support_step(ctx, &run.data, 0, layout); /* measured, and repeated */
        before = bytes_between_pairs(ctx);
        if (support_step(ctx, &run.data, 0, layout).repeated) met(0, "the second step was repeated");
        crossing[near] = bytes_between_pairs(ctx) - before;
        elements = elements_of(ctx);
        het_destroy(ctx);
    }
    terms = 8 * 8 * elements / 2; /* what 8 micro-batches add to gradients that the other set's ranks own, 8 bytes an element */
    weights[0] = crossing[0] - terms, weights[1] = crossing[1] - terms;
    met(weights[1] > 0 && weights[1] < 0.2 * weights[0],
        "of %.0f weights and 8 micro-batches %.0f bytes cross between two sets of two ranks where all four divide weights, %.0f where each set "
        "does (weights alone: %.0f and %.0f); one rank's losses and weights. Not built: int8 gathers, which would leave %.0f and %.0f of the "
        "weights' bytes, scales for each 256 with them", elements, crossing[0], crossing[1], weights[0], weights[1],
        weights[0] * (0.25 + 1.0 / 256), weights[1] * (0.25 + 1.0 / 256));
    support_run_end(&run);
}

/* FinGPT-HPC: the most bytes that training takes, all weights or factors beside a frozen base in f32 and int8, of one shape and batch: what the
   allocator was asked for, and what the profile says. The narrow layers themselves are examples/low_rank.c. */
static void row_3_17(void **state)
{
    double said[3], taken[3], parameters = 0, off = 0;
    het_error error = { HET_OK, "" };
    int i;
    (void)state;
    for (i = 0; i < 3; i++) {
        het_profile *profile = NULL;
        support_memory counted;
        het_memory memory, estimate;
        het_model_desc model;
        support_run run;
        het_needs needs;
        het_shape shape;
        het_ctx *ctx;
        memset(&counted, 0, sizeof counted), memset(&needs, 0, sizeof needs), memset(&shape, 0, sizeof shape);
        counted.fail_at = -1;
        EXPECT_ERROR(het_model_parse("llama:layers=6,width=256,heads=4,mlp_width=688,vocab=256,context=64", &model, &error), HET_OK, error.text, "");
        model.lora_rank = i > 0 ? 8 : 0;
        support_run_start(&run, &model, 1, "64,64|64,64");
        support_run_ranks(&run, 1);
        run.desc.limits.max_tokens /= 2, run.desc.limits.max_sequences /= 2;
        run.desc.weights = i == 2 ? HET_INT8 : HET_F32;
        EXPECT_ERROR(het_profile_describe(&run.desc, "small", NULL, &profile, &error), HET_OK, error.text, "");
        support_run_plan(&run, "dp", NULL, 1);
        needs.slots = needs.batch_slots = 1;
        shape.tokens = run.desc.limits.max_tokens, shape.sequences = run.desc.limits.max_sequences;
        EXPECT_OK(het_profile_memory(profile, run.plan, &needs, &shape, &memory, &error));
        EXPECT_OK(het_memory_estimate(&run.desc, 0, &estimate, &error));
        said[i] = (double)memory.device;
        run.desc.host.allocator = support_allocator(&counted);
        ctx = support_create(&run.desc);
        if (i == 0) parameters = elements_of(ctx);
        (void)support_step(ctx, &run.data, 0, "0|1");
        taken[i] = (double)counted.peak;
        off = fmax(off, fabs((double)(estimate.device + estimate.host) / taken[i] - 1));
        het_destroy(ctx);
        het_profile_free(profile);
        support_run_end(&run);
    }
    met(taken[2] <= 0.4 * taken[0] && said[2] <= 0.4 * said[0] && off < 1e-3,
        "%.0f parameters, two micro-batches of 128 tokens: %.0f bytes at most to train all, %.0f for factors of rank 8 beside f32, %.0f beside int8, "
        "%.1f %% of all (estimates within %.2f %%; het_profile_memory of the device: %.0f, %.0f and %.0f, %.1f %%)", parameters, taken[0], taken[1],
        taken[2], 100 * taken[2] / taken[0], 100 * off, said[0], said[1], said[2], 100 * said[2] / said[0]);
}

/* HexiSeq: a sequence of ten granules, cut 5 : 3 : 2 by context, and 6 : 2 of 8 heads. What by context moves says where it is cut: members begin
   at rows 2,560 and 4,096, and get keys and values of all rows before. */
static void row_0_3(void **state)
{
    enum { LAYERS = 1, HEADS = 8, SIZE = 4, CUTS = 2560 + 4096 };
    support_result base, divided;
    support_run run;
    het_model_desc model;
    het_error error;
    double moved[2] = { 0, 0 };
    int64_t r, t;
    int heads;
    (void)state;
    EXPECT_ERROR(het_model_parse("llama:layers=1,width=32,heads=8,context=5120,vocab=61", &model, &error), HET_OK, error.text, "");
    support_run_start(&run, &model, 1, "5120");
    base = support_train(&run, "0");
    for (heads = 0; heads < 2; heads++) {
        het_ctx *ctx;
        support_run_ranks(&run, heads ? 2 : 3);
        support_run_plan(&run, heads ? "hp:6,2" : "cp:5,3,2", NULL, 1);
        ctx = support_create(&run.desc);
        memset(&divided, 0, sizeof divided);
        divided.steps = 1;
        {
            const het_step_info info = support_step(ctx, &run.data, 0, "0");
            divided.loss[0] = info.loss, divided.norm[0] = info.gradient_norm;
            for (r = 0; r < (heads ? 2 : 3); r++) {
                het_timeline timeline;
                het_get_timeline(ctx, r, &timeline);
                for (t = 0; t < (heads ? 2 : 3); t++) moved[heads] += (double)timeline.traffic[t].exchange_bytes / (info.repeated ? 2 : 1);
            }
        }
        divided.weights = support_hash(ctx);
        if (!support_same(&base, &divided, run.plan->schedule)) met(0, "%s: other bits", heads ? "hp:6,2" : "cp:5,3,2");
        het_destroy(ctx);
    }
    met(fabs(moved[0] - 2.0 * LAYERS * 8 * HEADS * SIZE * CUTS) < 0.5 && moved[1] > 0,
        "attention to a sequence of 5120 tokens on 3 ranks of 2560, 1536 and 1024 rows (%.0f bytes between them, as the formula says) and on 2 of "
        "6 and 2 heads (%.0f): loss, gradients and weights %016llx of one rank", moved[0], moved[1], (unsigned long long)base.weights);
    support_run_end(&run);
}

/* Cuts each sequence of a batch into granules of `longest` tokens; start: room for them. Returns how much of it is used. */
static int64_t cut_granules(het_batch *b, int64_t longest, int64_t *start)
{
    int64_t s, at;
    b->granules = 0;
    b->granule_start = start;
    for (s = 0; s < b->sequences; s++)
        for (at = b->sequence_start[s]; at < b->sequence_start[s + 1]; at += longest) start[b->granules++] = at;
    start[b->granules] = b->tokens;
    return b->granules + 1;
}

/* FlexSP: a batch with a long tail on 8 ranks, of which one alone holds 700 tokens, is dealt to teams of unlike sizes; the teams are run. */
static void row_1_19(void **state)
{
    enum { SEQUENCES = 20, RANKS = 8, ROOM = 700, GRANULE = 64 };
    static const int64_t length[SEQUENCES] = { 2048, 1100, 530, 390, 610, 220, 140, 95, 310, 60, 48, 33, 260, 180, 75, 120, 20, 440, 16, 350 };
    support_run run;
    support_batch built[SEQUENCES], alone[SEQUENCES];
    het_batch list[SEQUENCES], plain[SEQUENCES];
    het_model_desc model;
    het_profile *profile = NULL;
    het_cluster *cluster = NULL;
    het_cluster_device place[RANKS];
    het_device_profile device;
    het_unit_time time[8];
    het_search_desc search;
    het_pack_desc desc;
    het_packing *packing = NULL;
    het_plan *plan = NULL;
    het_needs needs[RANKS];
    het_memory memory[RANKS];
    het_ctx *ctx, *one;
    het_error error;
    char sizes[64];
    int64_t start[1000], used = 0, i, m, p, at = 0, largest = 0, smallest = RANKS;
    double worst, most = 0, limit;
    (void)state;
    EXPECT_ERROR(het_model_parse("llama:layers=2,width=64,heads=8,context=2048,vocab=61", &model, &error), HET_OK, error.text, "");
    support_run_start(&run, &model, 1, "16");
    run.desc.granule = GRANULE;
    EXPECT_ERROR(het_profile_describe(&run.desc, "", NULL, &profile, &error), HET_OK, error.text, "");
    memset(&device, 0, sizeof device), memset(time, 0, sizeof time), memset(place, 0, sizeof place);
    memset(&search, 0, sizeof search), memset(&desc, 0, sizeof desc), memset(needs, 0, sizeof needs);
    snprintf(device.name, sizeof device.name, "cpu");
    device.alone = device.together = time;
    profile->devices = 1, profile->device = &device;
    assert_true(profile->kinds <= 8);
    for (i = 0; i < profile->kinds; i++) { /* about what one of these units takes on a core */
        time[i].forward.base = 2e-5, time[i].forward.token = 1e-6, time[i].forward.pair = profile->kind[i].attentions > 0 ? 5e-10 : 0;
        time[i].backward.base = 2e-5, time[i].backward.token = 2e-6, time[i].backward.pair = 2.5 * time[i].forward.pair;
    }
    for (i = 0; i < RANKS; i++) {
        snprintf(place[i].name, sizeof place[i].name, "rank%d", (int)i);
        snprintf(place[i].profile, sizeof place[i].profile, "cpu");
        place[i].speed = 1;
    }
    {
        het_shape shape = { ROOM, SEQUENCES, GRANULE };
        support_run_ranks(&run, RANKS);
        support_run_plan(&run, "dp", NULL, 1);
        for (i = 0; i < RANKS; i++) needs[i].slots = needs[i].batch_slots = 1;
        EXPECT_OK(het_profile_memory(profile, run.plan, needs, &shape, memory, &error));
        limit = (double)memory[0].device + (double)memory[0].communication;
        for (i = 0; i < RANKS; i++) place[i].memory = limit;
    }
    EXPECT_ERROR(het_cluster_flat(RANKS, place, 2e-5, 2e9, NULL, &cluster, &error), HET_OK, error.text, "");
    search.profile = profile, search.cluster = cluster, search.granule_tokens = GRANULE;
    desc.granules = SEQUENCES, desc.tokens = length;
    EXPECT_ERROR(het_pack_teams(&search, &desc, &plan, &packing, &error), HET_OK, error.text, "");
    for (p = 0, sizes[0] = 0; p < plan->pipelines; p++) {
        het_shape shape = { 1, SEQUENCES, GRANULE };
        int64_t size;
        const het_team_member *team = het_plan_team(plan, plan->stage[p].rank, &size);
        snprintf(sizes + strlen(sizes), sizeof sizes - strlen(sizes), "%s%d", p > 0 ? ", " : "", (int)size);
        largest = size > largest ? size : largest, smallest = size < smallest ? size : smallest;
        for (m = at; m < at + packing->counts[p]; m++) shape.tokens = (int64_t)fmax((double)shape.tokens, packing->tokens[m]);
        at += packing->counts[p];
        EXPECT_OK(het_profile_memory(profile, plan, needs, &shape, memory, &error));
        for (i = 0; i < size; i++) {
            const het_memory *of = &memory[team != NULL ? team[i].rank : plan->stage[p].rank];
            most = fmax(most, ((double)of->device + (double)of->communication) / limit);
        }
    }
    het_plan_free(run.plan);
    run.plan = plan;
    run.desc.layout.plan = plan;
    run.desc.limits.max_tokens = run.desc.limits.max_sequences = 1, run.desc.limits.max_micro_batches = SEQUENCES;
    for (m = 0; m < packing->micro_batches; m++) {
        support_batch_start(&built[m]);
        for (i = packing->start[m]; i < packing->start[m + 1]; i++)
            support_batch_sequence(&built[m], length[packing->order[i]], model.vocab, packing->order[i], (uint64_t)packing->order[i]);
        list[m] = built[m].batch;
        used += cut_granules(&list[m], GRANULE, start + used);
        run.desc.limits.max_tokens = (int64_t)fmax((double)run.desc.limits.max_tokens, packing->tokens[m]);
        run.desc.limits.max_sequences = (int64_t)fmax((double)run.desc.limits.max_sequences, (double)list[m].sequences);
    }
    for (i = 0; i < SEQUENCES; i++) {
        support_batch_start(&alone[i]);
        support_batch_sequence(&alone[i], length[i], model.vocab, i, (uint64_t)i);
        plain[i] = alone[i].batch;
        used += cut_granules(&plain[i], GRANULE, start + used);
    }
    assert_true(used < 1000);
    ctx = support_create(&run.desc);
    support_expect(het_gradients(ctx, list, packing->micro_batches, NULL), HET_OK, het_last_error(ctx), "", "het_gradients", __LINE__);
    support_run_ranks(&run, 1);
    run.desc.layout.plan = NULL;
    one = support_create(&run.desc);
    support_expect(het_gradients(one, plain, SEQUENCES, NULL), HET_OK, het_last_error(one), "", "het_gradients", __LINE__);
    worst = worst_difference(one, ctx, HET_GRADIENT);
    met(worst < 1e-5 && largest > smallest && most <= 1 && packing->seconds < packing->plain_seconds,
        "%d sequences of 16 to 2048 tokens on 8 ranks with room for %d each: teams of %s, at most %.3f of that for their own micro-batches, %.3f of "
        "the time of the best teams of one size (simulated); run, gradients differ from one rank's by %.0e", SEQUENCES, ROOM, sizes, most,
        packing->seconds / packing->plain_seconds, worst);
    for (m = 0; m < packing->micro_batches; m++) support_batch_end(&built[m]);
    for (i = 0; i < SEQUENCES; i++) support_batch_end(&alone[i]);
    het_destroy(ctx), het_destroy(one);
    het_packing_free(packing);
    het_cluster_free(cluster);
    het_profile_free(profile);
    support_run_end(&run);
}

/* What all ranks have sent to each other so far: in exchanges of teams, or between stages. */
static void count_sent(het_ctx *ctx, int64_t ranks, int stages, int64_t count[2])
{
    int64_t r, t;
    count[0] = count[1] = 0;
    for (r = 0; r < ranks; r++) {
        het_timeline timeline;
        het_get_timeline(ctx, r, &timeline);
        for (t = 0; t < ranks; t++) {
            count[0] += stages ? timeline.traffic[t].transfers : timeline.traffic[t].exchanges;
            count[1] += stages ? timeline.traffic[t].transfer_bytes : timeline.traffic[t].exchange_bytes;
        }
    }
}

/* Megatron-LM: 2 and 4 ranks by columns. What they send is two sums forward and two backward a layer, and nothing else: a sum is a gathering before
   it, a chain of blocks of rows from member to member, and its rows to their members. */
static void row_3_15(void **state)
{
    enum { ROWS = 2400, BLOCKS = 8 };
    int64_t sums[2] = { 0, 0 }, members, layers, i;
    support_result base, divided;
    support_run run;
    int same = 1;
    (void)state;
    for (layers = 1; layers <= 2; layers++) {
        start(&run, HET_GPT2, 1, "600|600|600|600", 1);
        run.desc.model.layers = (int32_t)layers, run.desc.model.context = 600;
        base = support_train(&run, "0123");
        for (members = 2; members <= 4; members += 2) {
            const int64_t r1 = members - 1, each = members * r1 + BLOCKS * r1 + r1, /* two of these a layer forward, two backward */
                          more = 2 * members * BLOCKS; /* q, k and v are three products backward: two more rounds of the chain */
            int64_t before[2], after[2], forward;
            support_group group;
            het_step_info info;
            char plan[8];
            het_ctx *ctx;
            snprintf(plan, sizeof plan, "tp%d", (int)members);
            support_run_ranks(&run, members);
            support_run_plan(&run, plan, NULL, 1);
            support_group_start(&group, &run.data, 0, "0123");
            ctx = support_create(&run.desc);
            count_sent(ctx, members, 0, before);
            EXPECT_OK(het_evaluate(ctx, group.batch, group.count, &info));
            count_sent(ctx, members, 0, after);
            forward = after[0] - before[0];
            memset(&divided, 0, sizeof divided);
            divided.steps = 1;
            info = support_step(ctx, &run.data, 0, "0123");
            count_sent(ctx, members, 0, before);
            divided.loss[0] = info.loss, divided.norm[0] = info.gradient_norm, divided.weights = support_hash(ctx);
            same = same && support_same(&base, &divided, plan) && forward == 2 * layers * each;
            i = (before[0] - after[0]) / (info.repeated ? 2 : 1) - forward;
            same = same && i == layers * (2 * each + more);
            sums[members / 4] = forward / layers;
            het_destroy(ctx);
            support_group_end(&group);
        }
        support_run_end(&run);
    }
    met(same, "2 and 4 ranks by columns, %d rows, 1 and 2 layers: %d and %d messages a layer forward, which are two sums, two more backward, and "
        "none for embedding and head; loss, norm and weights of one rank", ROWS, (int)sums[0], (int)sums[1]);
}

/* One step: seconds from the first to the last compute action of the first ranks, what these take together, and what ranks compute nothing;
   of each stage and kind the times of its actions so far, or NULL. */
typedef struct step_times { double span, busy, idle; } step_times;
enum { MOST_TIMES = 128 };
typedef struct action_times { double value[MOST_TIMES]; int count; } action_times;
static step_times step_of(het_ctx *ctx, const support_run *run, const char *layout, int64_t ranks, action_times taken[4][4])
{
    double begin = 1e30, end = 0;
    step_times times = { 0, 0, 0 };
    int64_t r, i;
    (void)support_step(ctx, &run->data, 0, layout);
    for (r = 0; r < ranks; r++) {
        het_timeline t;
        het_get_timeline(ctx, r, &t);
        for (i = 0; i < t.records; i++) {
            const het_record *a = &t.record[i];
            if (a->action.kind > HET_ACTION_W) continue;
            begin = fmin(begin, a->start), end = fmax(end, a->end), times.busy += a->end - a->start;
            if (taken != NULL) {
                action_times *of = &taken[a->action.stage][a->action.kind & 3];
                assert_true(of->count < MOST_TIMES);
                of->value[of->count++] = a->end - a->start;
            }
        }
    }
    times.span = end - begin, times.idle = (double)ranks * times.span - times.busy;
    return times;
}

/* Megatron-LM on clusters: columns x pipeline x data = 2 x 2 x 2, interleaved; and how long two chunks a rank leave a pipeline idle, in a step that
   ran. */
static void row_2_19(void **state)
{
    static const char *const layout = "0|1|2|3|4|5|6|7";
    double bubble = 1, idle;
    support_result base;
    support_run run;
    het_ctx *ctx;
    int step, same;
    (void)state;
    start(&run, HET_LLAMA, 2, SUPPORT_SHORT, 1);
    run.desc.model.layers = 4;
    base = support_train(&run, "01|2|34|5");
    support_run_ranks(&run, 8);
    support_run_plan(&run, "dp2xpp2xtp2", "interleaved", 1);
    support_train_same(&base, &run, "01|2|34|5", "dp2xpp2xtp2");
    support_run_end(&run);
    start(&run, HET_LLAMA, 1, "60|60|60|60|60|60|60|60", 2);
    run.desc.model.context = 64, run.desc.model.layers = 7, run.desc.model.width = 96, run.desc.model.heads = run.desc.model.kv_heads = 4,
        run.desc.model.head_size = 24, run.desc.model.mlp_width = 256;
    compute_steadily(&run, 2, 0.1, 1);
    support_run_plan(&run, "pp", "interleaved", 1);
    ctx = support_create(&run.desc);
    for (step = 0; step < 6; step++) {
        const step_times t = step_of(ctx, &run, layout, 2, NULL);
        idle = 2 * t.span / t.busy - 1;
        if (step > 0) bubble = fmin(bubble, idle);
    }
    same = bubble > 1.0 / 16 - 0.05 && bubble < 1.0 / 16 + 0.05;
    met(same, "columns x pipeline x data = 2 x 2 x 2, interleaved: loss, norm and weights of one rank; two chunks a rank, 2 ranks, 8 micro-batches: "
        "idle for %.3f of the time that is computed, (p - 1) / (v m) = %.3f", bubble, 1.0 / 16);
    het_destroy(ctx);
    support_run_end(&run);
}

/* Communication of generation: messages and bytes a token of 2 ranks by columns, and of a pipeline of 2. */
static void row_3_20(void **state)
{
    static const int32_t token[] = { 3, 1, 4, 1, 5, 9, 2, 6, 5, 35 };
    enum { PROMPT = 6, TOKENS = 4 };
    int64_t got[2][2], layers = 0, width = 0;
    int kind, same = 1;
    (void)state;
    for (kind = 0; kind < 2; kind++) {
        int64_t before[2], after[2], want[2], i;
        float logits[2][61];
        support_run run;
        het_ctx *ctx;
        start(&run, HET_LLAMA, 1, SUPPORT_SHORT, 1);
        layers = run.desc.model.layers, width = run.desc.model.width;
        ctx = support_create(&run.desc);
        EXPECT_OK(het_infer(ctx, token, PROMPT + TOKENS, 0, logits[0]));
        het_destroy(ctx);
        support_run_ranks(&run, 2);
        support_run_plan(&run, kind == 0 ? "tp2" : "pp", NULL, 1);
        run.desc.inference = HET_YES;
        ctx = support_create(&run.desc);
        EXPECT_OK(het_infer(ctx, token, PROMPT, 0, logits[1]));
        count_sent(ctx, 2, kind, before);
        for (i = 0; i < TOKENS; i++) EXPECT_OK(het_infer(ctx, token + PROMPT + i, 1, PROMPT + i, logits[1]));
        count_sent(ctx, 2, kind, after);
        /* by columns: the token's row is the last member's; it is gathered, and its chain comes back, twice a layer */
        want[0] = kind == 0 ? 4 * layers : 1;
        want[1] = 4 * width * want[0];
        for (i = 0; i < 2; i++) {
            got[kind][i] = (after[i] - before[i]) / TOKENS;
            same = same && after[i] - before[i] == TOKENS * want[i];
        }
        same = same && memcmp(logits[0], logits[1], sizeof logits[0]) == 0;
        het_destroy(ctx);
        support_run_end(&run);
    }
    met(same, "a token of a model with %d layers of width %d: 2 ranks by columns exchange %d messages, %d bytes (4 a layer of 4 D), a pipeline of 2 "
        "sends %d of %d bytes; logits of one rank", (int)layers, (int)width, (int)got[0][0], (int)got[0][1], (int)got[1][0], (int)got[1][1]);
}

/* ---- pipelines ---- */

/* DAPPLE: what 1F1B keeps on each stage as it runs, with the gradients of GPipe. */
static void row_1_2(void **state)
{
    static const char *const blocks = "17|5|9|21|13|7|3|11", *const layout = "0|1|2|3|4|5|6|7";
    support_run run;
    support_result base, other;
    double peak[4];
    int64_t counts[1] = { 8 }, s;
    int stage, fits = 1;
    (void)state;
    start(&run, HET_GPT2, 2, blocks, 4);
    support_run_plan(&run, "pp", "gpipe", 1);
    base = support_train(&run, layout);
    support_run_plan(&run, "pp", "1f1b", 1);
    other = support_train(&run, layout);
    for (stage = 0; stage < 2; stage++) {
        het_schedule *schedule = NULL;
        het_plan *plan = support_plan("pp", stage == 0 ? "gpipe" : "1f1b", 8, 4, 1);
        het_error error;
        EXPECT_OK(het_schedule_make(plan, counts, NULL, &schedule, &error));
        EXPECT_OK(het_schedule_check(plan, NULL, schedule, peak, &error));
        for (s = 0; s < 4; s++) {
            const double limit = stage == 0 ? 8 : 4 - (double)s;
            if (fabs(peak[s] - limit) > 1e-9) fits = 0;
        }
        het_schedule_free(schedule);
        het_plan_free(plan);
    }
    met(fits && support_same(&base, &other, "1f1b"), "8 micro-batches on 4 stages: GPipe keeps 8, 1F1B 4, 3, 2, 1, equal bits");
    support_run_end(&run);
}

/* GPipe: whole stages recomputed. What each stage keeps of a micro-batch is what a context needs more for one more of them: memory that all share
   does not grow, and the first stage, which has no input, shows what micro-batches themselves take. For the bubble a hook makes all stages' times
   equal: it sleeps, so that nobody waits for a core. */
static het_result work_by_sleeping(void *user, const het_hook_info *info)
{
    const struct timespec forward = { 0, 12000000 }, backward = { 0, 24000000 };
    (void)user;
    if (info->direction == HET_FORWARD && info->unit % 2 == 1) nanosleep(&forward, NULL);
    if (info->direction == HET_BACKWARD && info->unit % 2 == 0) nanosleep(&backward, NULL);
    return HET_OK;
}

static double measured_bubble(support_run *run, const char *layout)
{
    het_ctx *ctx = support_create(&run->desc);
    double least = 1;
    int step;
    for (step = 0; step < 5; step++) {
        const step_times t = step_of(ctx, run, layout, 4, NULL);
        least = fmin(least, 1 - t.busy / (4 * t.span));
    }
    het_destroy(ctx);
    return least;
}

static void row_1_5(void **state)
{
    static const char *const blocks = "48|48|48|48|48|48|48|48", *const layout = "0|1|2|3|4|5|6|7";
    int64_t kept[3][4], s, batch = 0;
    double bubble;
    support_result base, other;
    support_run run;
    int way, more, only = 1, same;
    (void)state;
    start(&run, HET_GPT2, 2, blocks, 1);
    base = support_train(&run, layout);
    support_run_ranks(&run, 4);
    for (way = 0; way < 3; way++) {
        support_run_plan(&run, "pp", "gpipe", 1);
        for (s = 0; s < 4; s++) run.plan->stage[s].recompute = way;
        for (more = 0; more < 2; more++) {
            het_ctx *ctx;
            run.desc.limits.max_micro_batches = 8 + more;
            ctx = support_create(&run.desc);
            for (s = 0; s < 4; s++) {
                het_memory memory;
                het_get_memory(ctx, s, &memory);
                kept[way][s] = (int64_t)memory.activations - (more ? kept[way][s] : 0);
            }
            het_destroy(ctx);
        }
    }
    batch = kept[HET_RECOMPUTE_STAGE][0];
    for (s = 1; s < 4; s++) only = only && kept[HET_RECOMPUTE_STAGE][s] - batch == run.desc.limits.max_tokens * run.desc.model.width * 4;
    run.desc.limits.max_micro_batches = 8;
    other = support_train(&run, layout);
    same = support_same(&base, &other, "gpipe");
    run.desc.reduce = HET_REDUCE_FAST; /* exact sums measure the first step twice */
    run.desc.host.hook = work_by_sleeping;
    bubble = measured_bubble(&run, layout);
    met(same && only && fabs(bubble - 3.0 / 11) < 0.05, "8 micro-batches on 4 stages: loss, norm and weights of one rank; a micro-batch of %d tokens "
        "leaves %d bytes on a middle stage, its input alone (%d unit by unit, %d where all is kept); the stages are idle for %.3f of the time, "
        "(K - 1) / (M + K - 1) = %.3f", (int)run.desc.limits.max_tokens, (int)(kept[2][1] - batch), (int)(kept[1][1] - batch),
        (int)(kept[0][1] - batch), bubble, 3.0 / 11);
    support_run_end(&run);
}

/* How many F and B a context's 4 ranks did in its last step; negative: so many are not what a simulation of these micro-batches has there. */
static int64_t same_order(het_ctx *ctx, const het_plan *plan, const double *tokens)
{
    het_stage_cost cost[4];
    het_costs costs;
    het_schedule *lists;
    het_simulation *simulation;
    het_error error;
    int64_t counts = 4, r, i, k, different = 0, same = 0;
    memset(cost, 0, sizeof cost), memset(&costs, 0, sizeof costs);
    for (r = 0; r < 4; r++) cost[r].forward.token = 1, cost[r].backward.token = 2, cost[r].again.token = 1;
    costs.stage = cost, costs.tokens = tokens;
    EXPECT_OK(het_schedule_make(plan, &counts, NULL, &lists, &error));
    EXPECT_OK(het_simulate(plan, lists, &costs, HET_YES, NULL, &simulation, &error));
    for (r = 0; r < 4; r++) {
        het_timeline t;
        het_get_timeline(ctx, r, &t);
        for (i = k = 0; i < t.records; i++) {
            const het_timeline *s = &simulation->timeline;
            if (t.record[i].action.kind > HET_ACTION_W) continue;
            while (k < s->records && (s->record[k].rank != r || s->record[k].action.kind > HET_ACTION_W)) k++;
            if (k == s->records || memcmp(&s->record[k].action, &t.record[i].action, sizeof(het_action)) != 0) different++;
            k++, same++;
        }
    }
    het_simulation_free(simulation);
    het_schedule_free(lists);
    return different ? -different : same;
}

/* InfiniPipe: stage s of 4 keeps its last 2 s + 2 slices of 8 (the first stages wait longest), and recomputes the others unit by unit or as a whole.
   The reference is one rank's plain loops over whole micro-batches. */
static void row_1_13(void **state)
{
    static const char *const blocks = "4096|128,128,128,128|128,128,128|128,128,128,128", *const layout = "0|1|2|3";
    static const double tokens[4] = { 4096, 512, 384, 512 };
    het_model_desc model = support_model(HET_LLAMA);
    double taken[3] = { 0, 0, 0 }, worst;
    het_ctx *one, *pipeline;
    het_step_info x, y;
    support_group group;
    support_run run;
    int64_t s, actions;
    int way;
    (void)state;
    model.context = 4096, model.width = 16, model.heads = model.kv_heads = 1, model.head_size = 8;
    support_run_start(&run, &model, 1, blocks);
    support_run_ranks(&run, 1);
    support_group_start(&group, &run.data, 0, layout);
    run.device[0].iface = het_reference_device();
    one = support_create(&run.desc);
    EXPECT_OK(het_gradients(one, group.batch, group.count, &x));
    support_run_ranks(&run, 4);
    run.device[0].iface = NULL;
    support_run_plan(&run, "pp", "1f1b", 8);
    run.plan->slice_tokens = 512;
    for (way = 0; way < 3; way++) { /* all is kept, all recomputed, the flags */
        for (s = 0; s < 4; s++) {
            run.plan->stage[s].recompute = way == 0 ? HET_RECOMPUTE_NONE : s % 2 ? HET_RECOMPUTE_STAGE : HET_RECOMPUTE_UNIT;
            run.plan->stage[s].keep = way < 2 ? 0 : (uint64_t)(256 - (1 << (6 - 2 * s)));
        }
        for (s = 0; s < 4; s++) {
            het_memory memory;
            het_error error;
            EXPECT_OK(het_memory_estimate(&run.desc, s, &memory, &error));
            taken[way] += (double)memory.activations / 1e6;
        }
    }
    pipeline = support_create(&run.desc);
    EXPECT_OK(het_gradients(pipeline, group.batch, group.count, &y));
    worst = worst_difference(one, pipeline, HET_GRADIENT);
    EXPECT_OK(het_step(pipeline, group.batch, group.count, NULL));
    actions = same_order(pipeline, run.plan, tokens);
    met(worst < 1e-5 && fabs(x.loss - y.loss) < 1e-5 * x.loss && taken[1] < taken[2] && taken[2] < taken[0] && actions == 4 * 2 * (8 + 3),
        "4096 tokens in 8 slices and 3 micro-batches of 3 or 4 x 128 in one, 4 stages, 1f1b: %d actions, those that are simulated; gradients differ "
        "by %.1e of the largest from one rank's, losses %.7f and %.7f; the last 2, 4, 6 and 8 slices of a stage keep all: activations of %.1f MB, "
        "%.1f where all slices do and %.1f where none does", (int)actions, worst, x.loss, y.loss, taken[2], taken[0], taken[1]);
    het_destroy(one);
    het_destroy(pipeline);
    support_group_end(&group);
    support_run_end(&run);
}

/* FlexModel: what a hook on unit 3 sees and does under a pipeline of two stages, against one rank. */
typedef struct seen { float sum[600]; int64_t rows; int change; } seen;
static het_result look(void *user, const het_hook_info *info)
{
    seen *s = user;
    int64_t i;
    if (info->direction != HET_FORWARD || info->unit != 3) return HET_OK;
    s->rows = info->rows;
    for (i = 0; i < info->rows; i++) s->sum[i] = info->stream[0][i * info->width[0] + 5];
    if (s->change) info->stream[0][7] += 1;
    return HET_OK;
}

static void row_0_18(void **state)
{
    static seen one[2], two[2]; /* left alone, changed */
    double loss[2][2], norm[2][2];
    support_run run;
    int ranks, change;
    (void)state;
    start(&run, HET_LLAMA, 1, "17|48", 1);
    run.desc.host.hook = look;
    for (ranks = 1; ranks <= 2; ranks++) {
        if (ranks == 2) support_run_ranks(&run, 2), support_run_plan(&run, "pp:0-3|4-7", NULL, 1);
        for (change = 0; change < 2; change++) {
            seen *s = ranks == 1 ? &one[change] : &two[change];
            het_ctx *ctx;
            het_step_info info;
            support_group group;
            s->change = change;
            run.desc.host.user = s;
            ctx = support_create(&run.desc);
            support_group_start(&group, &run.data, 0, "01");
            EXPECT_OK(het_gradients(ctx, group.batch, group.count, &info));
            loss[ranks - 1][change] = info.loss, norm[ranks - 1][change] = info.gradient_norm;
            support_group_end(&group);
            het_destroy(ctx);
        }
    }
    met(one[0].rows == 65 && memcmp(&one[0].sum, &two[0].sum, sizeof one[0].sum) == 0 && memcmp(loss[0], loss[1], sizeof loss[0]) == 0
        && memcmp(norm[0], norm[1], sizeof norm[0]) == 0 && fabs(loss[0][1] - loss[0][0]) > 1e-5,
        "a hook sees the same %d rows on one rank and in a pipeline of 2; its edit takes the loss from %.6f to %.6f on both",
        (int)one[0].rows, loss[0][0], loss[1][1]);
    support_run_end(&run);
}

/* BitPipe: by name, its idle share beside interleaved's, and bits. */
static double bubble_of(const char *schedule, int64_t ranks, int64_t micro_batches)
{
    het_plan *plan = support_plan("pp", schedule, 2 * ranks, ranks, 1);
    int64_t counts[2] = { 0, 0 }, s;
    het_schedule *lists = NULL;
    het_simulation *simulation = NULL;
    het_stage_cost cost[64];
    het_costs costs;
    het_error error;
    double bubble;
    memset(&costs, 0, sizeof costs);
    memset(cost, 0, sizeof cost);
    for (s = 0; s < plan->stages; s++) cost[s].forward.token = 1, cost[s].backward.token = 2;
    costs.stage = cost;
    het_plan_micro_batches(plan, micro_batches, counts);
    support_expect(het_schedule_make(plan, counts, NULL, &lists, &error), HET_OK, error.text, "", schedule, __LINE__);
    EXPECT_OK(het_schedule_check(plan, NULL, lists, NULL, &error));
    EXPECT_OK(het_simulate(plan, lists, &costs, HET_NO, NULL, &simulation, &error));
    bubble = simulation->bubble;
    het_simulation_free(simulation);
    het_schedule_free(lists);
    het_plan_free(plan);
    return bubble;
}

static void row_1_7(void **state)
{
    support_run run;
    support_result base, other;
    double bubble[2][2];
    int i;
    (void)state;
    for (i = 0; i < 2; i++) {
        bubble[i][0] = bubble_of("bitpipe", 4 + 4 * i, 16);
        bubble[i][1] = bubble_of("interleaved", 4 + 4 * i, 16);
    }
    start(&run, HET_LLAMA, 3, SUPPORT_SHORT, 1);
    base = support_train(&run, SUPPORT_TOGETHER);
    support_run_ranks(&run, 4);
    support_run_plan(&run, "pp", "bitpipe", 1);
    other = support_train(&run, SUPPORT_APART);
    met(bubble[0][0] < bubble[0][1] && bubble[1][0] < bubble[1][1] && support_same(&base, &other, "bitpipe"),
        "idle share of bitpipe and interleaved, 16 micro-batches: %.3f and %.3f on 4 ranks, %.3f and %.3f on 8; one rank's bits",
        bubble[0][0], bubble[0][1], bubble[1][0], bubble[1][1]);
    support_run_end(&run);
}

/* DynaPipe: samples whose lengths are like FLAN's, most short and some long, through a pipeline of three. Micro-batches of het_pack, against the
   packing that is usual: rows of the longest length, each one sequence to attention, filled up. */
enum { FLAN = 32, FLAN_LONGEST = 640, FLAN_ROOM = 40 };
typedef struct flan { support_batch *built; het_batch list[FLAN_ROOM]; int64_t count, tokens; } flan;

static void flan_end(flan *f)
{
    int i;
    for (i = 0; i < FLAN_ROOM; i++) support_batch_end(&f->built[i]);
    free(f->built);
}

static void flan_start(flan *f)
{
    int i;
    memset(f, 0, sizeof *f);
    f->built = support_alloc(FLAN_ROOM, sizeof *f->built);
    for (i = 0; i < FLAN_ROOM; i++) support_batch_start(&f->built[i]);
}

/* Least seconds of a step, and its loss; gradients stay in *ctx. */
static double flan_seconds(het_ctx *ctx, const flan *f, double *loss)
{
    double least = 1e30;
    int i;
    for (i = 0; i < 4; i++) {
        het_step_info info;
        const double begin = now(NULL);
        support_expect(het_gradients(ctx, f->list, f->count, &info), HET_OK, het_last_error(ctx), "", "het_gradients", __LINE__);
        least = fmin(least, now(NULL) - begin);
        *loss = info.loss;
    }
    return least;
}

static void row_1_1(void **state)
{
    int64_t length[FLAN], i, filled = 0, real = 0;
    uint64_t seed = 11;
    het_pack_desc desc;
    het_packing *packing = NULL;
    het_stage_cost cost[3];
    het_costs costs;
    het_error error;
    support_run run;
    support_batch padded;
    flan packed, usual;
    het_ctx *ctx, *one;
    double seconds[2], loss[3], worst;
    (void)state;
    start(&run, HET_LLAMA, 1, "8", 3);
    run.desc.model.context = FLAN_LONGEST;
    run.desc.limits.max_tokens = 2 * FLAN_LONGEST, run.desc.limits.max_sequences = FLAN, run.desc.limits.max_micro_batches = FLAN_ROOM;
    compute_steadily(&run, 3, 0.02, 1);
    support_run_plan(&run, "pp:0-2|3-4|5-7", "1f1b", 1);
    for (i = 0; i < FLAN; i++) { /* log-normal: median 60, sigma 1.1 */
        double normal = 0;
        int k;
        for (k = 0; k < 12; k++) normal += 0.5 * support_uniform(&seed);
        length[i] = (int64_t)fmin(FLAN_LONGEST, fmax(4, 60 * exp(1.1 * normal)));
        real += length[i];
    }
    memset(&desc, 0, sizeof desc), memset(&costs, 0, sizeof costs), memset(cost, 0, sizeof cost);
    for (i = 0; i < 3; i++) {
        cost[i].forward.token = 1e-5, cost[i].backward.token = 2e-5;
        cost[i].forward.pair = 1e-7, cost[i].backward.pair = 2e-7;
    }
    costs.stage = cost;
    desc.plan = run.plan, desc.costs = &costs, desc.granules = FLAN, desc.tokens = length;
    desc.max_tokens = 2 * FLAN_LONGEST, desc.max_micro_batches = FLAN_ROOM;
    EXPECT_ERROR(het_pack(&desc, &packing, &error), HET_OK, error.text, "");
    flan_start(&packed), flan_start(&usual);
    for (packed.count = 0; packed.count < packing->micro_batches; packed.count++) {
        support_batch *b = &packed.built[packed.count];
        for (i = packing->start[packed.count]; i < packing->start[packed.count + 1]; i++)
            support_batch_sequence(b, length[packing->order[i]], run.desc.model.vocab, packing->order[i], (uint64_t)packing->order[i]);
        packed.list[packed.count] = b->batch;
    }
    support_batch_start(&padded);
    for (i = 0; i < FLAN; i++) { /* next fit; what is left of a row is filled with tokens of weight 0 */
        if (usual.count == 0 || filled + length[i] > FLAN_LONGEST) usual.count++, filled = 0;
        filled += length[i];
    }
    for (i = 0; i < usual.count; i++) {
        support_batch_sequence(&usual.built[i], FLAN_LONGEST, run.desc.model.vocab, i, (uint64_t)i);
        usual.list[i] = usual.built[i].batch;
    }
    for (i = 0; i < FLAN; i++) { /* every sample padded to the longest one */
        int64_t t;
        support_batch_sequence(&padded, FLAN_LONGEST, run.desc.model.vocab, i, (uint64_t)i);
        for (t = length[i]; t < FLAN_LONGEST; t++) padded.weight[i * FLAN_LONGEST + t] = 0;
    }
    ctx = support_create(&run.desc);
    seconds[1] = flan_seconds(ctx, &usual, &loss[1]);
    seconds[0] = flan_seconds(ctx, &packed, &loss[0]);
    support_run_ranks(&run, 1);
    run.device[0].iface = NULL, run.device[0].ordinal = 0;
    run.desc.layout.plan = NULL;
    run.desc.limits.max_tokens = FLAN * FLAN_LONGEST, run.desc.limits.max_micro_batches = 1;
    one = support_create(&run.desc);
    EXPECT_OK(het_gradients(one, &padded.batch, 1, NULL));
    worst = worst_difference(one, ctx, HET_GRADIENT);
    met(worst < 1e-5 && seconds[0] < seconds[1],
        "%d samples of 4 to %d tokens (%d in all) in %d micro-batches of unlike shapes: %.0f real tokens a second; in %d "
        "packed rows: %.0f; gradients differ from padded samples' by %.0e", FLAN, FLAN_LONGEST, (int)real, (int)packed.count,
            (double)real / seconds[0],
        (int)usual.count, (double)real / seconds[1], worst);
    support_batch_end(&padded);
    flan_end(&packed), flan_end(&usual);
    het_packing_free(packing);
    het_destroy(ctx), het_destroy(one);
    support_run_end(&run);
}

/* TeraPipe: lengths of slices by dynamic programming, against all ways to cut; a pipeline of unequal slices, against one rank. */
static double cut_seconds(const het_cost *cost, int64_t granules, int64_t tokens, int64_t stages, unsigned cuts)
{
    double sum = 0, most = 0;
    int64_t i, from = 0;
    for (i = 1; i <= granules; i++)
        if (i == granules || (cuts >> (i - 1) & 1) != 0) {
            const double a = (double)(from * tokens), b = (double)(i * tokens);
            const double t = cost->base + cost->token * (b - a) + cost->pair * (b * (b + 1) - a * (a + 1)) / 2;
            sum += t;
            if (t > most) most = t;
            from = i;
        }
    return sum + (double)(stages - 1) * most;
}

static void row_1_3(void **state)
{
    uint64_t seed = 3;
    int64_t length[16], slices = 0, unequal = 0;
    double seconds, worst = 0;
    support_run run;
    support_result base, other;
    het_error error;
    int round;
    char plan[400];
    (void)state;
    for (round = 0; round < 60; round++) {
        const int64_t granules = 1 + support_below(&seed, 12), stages = 1 + support_below(&seed, 6), most = 1 + support_below(&seed, granules);
        het_cost cost;
        double best = 1e300;
        unsigned cuts;
        cost.base = (double)support_below(&seed, 400), cost.token = (double)support_below(&seed, 5),
            cost.pair = 0.01 * (double)support_below(&seed, 9);
        for (cuts = 0; cuts < 1u << (granules - 1); cuts++) {
            unsigned left, count = 1;
            for (left = cuts; left != 0; left &= left - 1) count++;
            if (count <= (unsigned)most) best = fmin(best, cut_seconds(&cost, granules, 64, stages, cuts));
        }
        EXPECT_ERROR(het_slice_lengths(&cost, granules, 64, stages, most, NULL, length, &slices, &seconds, &error), HET_OK, error.text, "");
        worst = fmax(worst, fabs(seconds - best) / (best > 0 ? best : 1));
        unequal += slices > 1 && length[0] != length[slices - 1];
    }
    { /* one sequence of four granules of 512 tokens, three unequal slices, stages of all kinds */
        const het_cost cost = { 40, 1, 0.001 };
        het_model_desc model = support_deep_model(HET_LLAMA);
        model.context = 2048;
        EXPECT_ERROR(het_slice_lengths(&cost, 4, 512, 3, 3, NULL, length, &slices, &seconds, &error), HET_OK, error.text, "");
        support_run_start(&run, &model, 1, "2048");
        base = support_train(&run, "0");
        support_run_ranks(&run, 3);
        snprintf(plan, sizeof plan, "{\"schedule\":\"terapipe\",\"slices\":[%d,%d,%d],\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,3]},"
                 "{\"rank\":1,\"units\":[3,6]},{\"rank\":2,\"units\":[6,8]}]}]}", (int)length[0], (int)length[1], (int)length[2]);
        assert_int_equal(slices, 3);
        support_run_plan(&run, plan, NULL, 3);
        other = support_train(&run, "0");
    }
    met(worst < 1e-12 && unequal > 20 && support_same(&base, &other, plan),
        "60 drawn costs: the lengths found are as good as the best of all cuts (differences "
        "%.0e; %d of unequal lengths); slices of %d, %d and %d granules on 3 stages: one rank's bits", worst, (int)unequal, (int)length[0],
        (int)length[1], (int)length[2]);
    support_run_end(&run);
}

/* SlimPipe: bytes of the first of four stages, 8 micro-batches in slices, over those of one micro-batch in one piece: all that is kept and worked
   in, and what is kept alone. Then sliced training on two stages against one rank. */
static het_memory stage_memory(const char *model, int64_t tokens, const char *schedule, int64_t slices, int64_t micro_batches)
{
    het_device_desc device[4];
    het_error error = { HET_OK, "" };
    het_memory memory;
    het_plan *plan;
    het_desc desc;
    memset(&desc, 0, sizeof desc);
    memset(device, 0, sizeof device);
    EXPECT_ERROR(het_model_parse(model, &desc.model, &error), HET_OK, error.text, "");
    desc.model.context = tokens;
    desc.layout.devices = device, desc.layout.device_count = 4;
    desc.limits.max_tokens = tokens, desc.limits.max_sequences = 1, desc.limits.max_micro_batches = micro_batches;
    desc.layout.plan = plan = support_plan("pp", schedule, 2 * desc.model.layers + 2, 4, slices);
    EXPECT_ERROR(het_memory_estimate(&desc, 0, &memory, &error), HET_OK, error.text, "");
    het_plan_free(plan);
    return memory;
}

static void row_1_15(void **state)
{
    static const char *const models[4] = {
        "llama:layers=32,width=64,heads=4,kv_heads=1,vocab=256", "llama:layers=32,width=1024,heads=16,kv_heads=4,vocab=256",
        "gpt2:layers=32,width=64,heads=4,vocab=256", "gpt2:layers=32,width=1024,heads=16,vocab=256"
    };
    double peak[2] = { 0, 0 }, kept[2] = { 0, 0 }, whole = 1e30; /* 4 query heads share keys and values, each has its own */
    het_model_desc model = support_deep_model(HET_LLAMA);
    support_result base, other;
    support_run run;
    int64_t tokens, slices;
    int m, same;
    (void)state;
    for (m = 0; m < 4; m++)
        for (tokens = 32768; tokens <= 131072; tokens *= 4) {
            const het_memory one = stage_memory(models[m], tokens, "gpipe", 1, 1), two = stage_memory(models[m], tokens, "gpipe", 1, 2),
                             most = stage_memory(models[m], tokens, "1f1b", 1, 8);
            const double all = (double)(one.activations + one.workspace);
            whole = fmin(whole, (double)(most.activations + most.workspace) / all);
            for (slices = 32; slices <= 64; slices *= 2) {
                const het_memory cut = stage_memory(models[m], tokens, "sliced-1f1b", slices, 8);
                peak[m / 2] = fmax(peak[m / 2], (double)(cut.activations + cut.workspace) / all);
                kept[m / 2] = fmax(kept[m / 2], (double)cut.activations / (double)(two.activations - one.activations));
            }
        }
    model.context = 8192, model.layers = 2;
    support_run_start(&run, &model, 1, "8192|7000");
    run.desc.limits.max_tokens = 8192, run.desc.limits.max_sequences = 1;
    base = support_train(&run, "0|1");
    support_run_ranks(&run, 2);
    support_run_plan(&run, "pp", "sliced-1f1b", 16);
    other = support_train(&run, "0|1");
    same = support_same(&base, &other, "16 slices");
    met(same && peak[0] <= 1.25 && peak[1] <= 1.25 && kept[0] <= 1.25 && kept[1] <= 1.40 && whole > 3,
        "the first of 4 stages with 8 micro-batches in 32 or 64 slices has at most %.2f times the bytes of one in one piece (8 in one piece: %.2f); "
        "what it keeps alone is %.2f times what one keeps where 4 heads share keys and values, %.2f where each has its own, whose gradients are 0.2 "
        "of that; two stages, 16 slices: one rank's bits", fmax(peak[0], peak[1]), whole, kept[0], kept[1]);
    support_run_end(&run);
}

/* Arnold: places of ranks in a tree of two racks with two nodes of two, against all orders; and bytes that then cross between racks. */
static double spread_of(const het_cluster *c, const het_blocks *talk, const double *weight, const int64_t *device)
{
    double sum = 0;
    int64_t i, k;
    for (i = 0; i < talk->count; i++) {
        unsigned racks = 0, nodes = 0, n, count[2] = { 0, 0 };
        for (k = talk->start[i]; k < talk->start[i + 1]; k++) {
            racks |= 1u << device[talk->unit[k]] / 4;
            nodes |= 1u << device[talk->unit[k]] / 2;
        }
        for (n = 0; n < 4; n++) count[0] += nodes >> n & 1, count[1] += n < 2 ? racks >> n & 1 : 0;
        sum += weight[i] * ((count[0] > 1 ? count[0] : 0) + (count[1] > 1 ? count[1] : 0));
    }
    (void)c;
    return sum;
}

static void best_order(const het_cluster *c, const het_blocks *talk, const double *weight, int64_t *device, int64_t at, double *best)
{
    int64_t i;
    if (at == 8) *best = fmin(*best, spread_of(c, talk, weight, device));
    for (i = at; i < 8; i++) {
        const int64_t x = device[at];
        device[at] = device[i], device[i] = x;
        best_order(c, talk, weight, device, at + 1, best);
        device[i] = device[at], device[at] = x;
    }
}

static double crossing_bytes(const int64_t *device)
{
    static const het_device_desc all[8];
    const het_model_desc model = support_deep_model(HET_LLAMA);
    het_plan *plan = support_plan("dp4xpp2", "1f1b", 8, 8, 1);
    double bytes = 0;
    support_run run;
    het_ctx *ctx;
    int64_t s, r, to;
    support_run_start(&run, &model, 1, "17|5|9|21|13|7|3|11");
    for (s = 0; s < plan->stages; s++) plan->stage[s].rank = device[plan->stage[s].rank];
    run.desc.layout.devices = all, run.desc.layout.device_count = 8, run.desc.layout.plan = plan;
    ctx = support_create(&run.desc);
    (void)support_step(ctx, &run.data, 0, "0|1|2|3|4|5|6|7");
    for (r = 0; r < 8; r++) {
        het_timeline t;
        het_get_timeline(ctx, r, &t);
        for (to = 0; to < 8; to++)
            if (to / 4 != r / 4) bytes += (double)(t.traffic[to].reduction_bytes + t.traffic[to].transfer_bytes);
    }
    het_destroy(ctx);
    het_plan_free(plan);
    support_run_end(&run);
    return bytes;
}

static void row_3_21(void **state)
{
    static const char tree[] = "{\"members\":[{\"name\":\"rack\",\"count\":2,\"members\":["
        "{\"name\":\"node\",\"count\":2,\"members\":[{\"device\":\"d\","
        "\"count\":2}]}]}]}";
    /* dp4xpp2: rank 2 p + s is stage s of pipeline p; two sets reduce, four pairs send */
    const int64_t start_of[7] = { 0, 4, 8, 10, 12, 14, 16 }, rank[16] = { 0, 2, 4, 6, 1, 3, 5, 7, 0, 1, 2, 3, 4, 5, 6, 7 };
    het_blocks talk = { 6, start_of, rank };
    double weight[6] = { 3, 3, 1, 1, 1, 1 }, spread, best, naive_bytes, placed_bytes, worst = 0;
    int64_t naive[8] = { 0, 1, 2, 3, 4, 5, 6, 7 }, device[8], order[8];
    het_cluster *c = NULL;
    het_error error;
    int round;
    (void)state;
    EXPECT_ERROR(het_cluster_read(tree, strlen(tree), NULL, &c, &error), HET_OK, error.text, "");
    for (round = 0; round < 4; round++) {
        weight[0] = weight[1] = 3 - round;
        best = 1e300;
        memcpy(order, naive, sizeof order);
        best_order(c, &talk, weight, order, 0, &best);
        EXPECT_ERROR(het_cluster_place(c, &talk, weight, 0, 1, NULL, device, &spread, &error), HET_OK, error.text, "");
        worst = fmax(worst, fmax(fabs(spread - best), fabs(spread - spread_of(c, &talk, weight, device))));
    }
    weight[0] = weight[1] = 3;
    EXPECT_ERROR(het_cluster_place(c, &talk, weight, 0, 1, NULL, device, &spread, &error), HET_OK, error.text, "");
    naive_bytes = crossing_bytes(naive);
    placed_bytes = crossing_bytes(device);
    met(worst < 1e-12 && placed_bytes < naive_bytes,
        "weighted spread %g in ranks' order, %g as placed, the least of all 40320 orders (four weightings); "
        "bytes between racks %.0f and %.0f", spread_of(c, &talk, weight, naive), spread, naive_bytes, placed_bytes);
    het_cluster_free(c);
}

/* ---- clusters that are counted, not measured ---- */

/* A model on cards as a hardware file says, in nodes of 8. */
typedef struct priced {
    het_profile profile, *from;
    het_cluster *cluster;
} priced;

static void price(priced *to, const char *model, int64_t nodes, const char *links)
{
    static const char text[] = "{\"devices\":[{\"name\":\"card\",\"f32\":\"400T\",\"bandwidth\":\"2T\",\"launch\":\"2us\"}]}";
    char cluster[400];
    het_hardware hardware;
    het_error error;
    het_desc desc;
    memset(to, 0, sizeof *to);
    memset(&desc, 0, sizeof desc);
    EXPECT_ERROR(het_model_parse(model, &desc.model, &error), HET_OK, error.text, "");
    desc.limits.max_tokens = desc.model.context;
    EXPECT_ERROR(het_hardware_read(text, strlen(text), &hardware, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_hardware_profile(&hardware, &desc, desc.model.context, model, NULL, &to->from, &error), HET_OK, error.text, "");
    to->profile = *to->from;
    snprintf(cluster, sizeof cluster, "{%s,\"members\":[{\"name\":\"node\",\"count\":%d,\"link\":{\"latency\":3e-6,\"bandwidth\":3e11},"
        "\"members\":[{\"device\":\"card\",\"count\":8}]}]}", links, (int)nodes);
    EXPECT_ERROR(het_cluster_read(cluster, strlen(cluster), NULL, &to->cluster, &error), HET_OK, error.text, "");
}

static void price_end(priced *p)
{
    het_profile_free(p->from);
    het_cluster_free(p->cluster);
}

/* Seconds of a step of a plan by its shorthand: micro-batches of so many sequences as long as the model's context. */
static double seconds_of(priced *p, const char *text, het_shard shard, int64_t micro_batches, double length, double each)
{
    het_schedule *compute = NULL, *lists = NULL;
    het_plan_costs *costs = NULL;
    het_simulation *result = NULL;
    het_plan *plan = support_plan_for(text, "1f1b", p->profile.units, p->cluster->ranks, 1, 8);
    int64_t *counts = support_alloc((size_t)plan->pipelines, sizeof *counts), *start, i;
    double *tokens = support_alloc((size_t)micro_batches, sizeof *tokens), *pairs = support_alloc((size_t)micro_batches, sizeof *pairs), seconds;
    het_blocks blocks;
    het_error error;
    plan->shard = shard;
    het_plan_micro_batches(plan, micro_batches, counts);
    start = support_alloc((size_t)p->profile.blocks + 1, sizeof *start);
    for (i = 0; i < p->profile.blocks; i++) start[i + 1] = start[i] + p->profile.block[i].uses;
    blocks.count = p->profile.blocks, blocks.start = start, blocks.unit = p->profile.use;
    EXPECT_ERROR(het_schedule_make(plan, counts, NULL, &compute, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_schedule_complete(plan, &blocks, compute, NULL, &lists, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_profile_costs(&p->profile, plan, p->cluster, HET_YES, NULL, &costs, &error), HET_OK, error.text, "");
    for (i = 0; i < micro_batches; i++) tokens[i] = each * length, pairs[i] = each * length * (length + 1) / 2;
    costs->costs.tokens = tokens, costs->costs.pairs = pairs;
    EXPECT_ERROR(het_simulate_costs(plan, lists, costs, HET_NO, NULL, &result, &error), HET_OK, error.text, "");
    seconds = result->makespan;
    het_simulation_free(result);
    het_plan_costs_free(costs);
    het_schedule_free(lists);
    het_schedule_free(compute);
    het_plan_free(plan);
    free(counts), free(start), free(tokens), free(pairs);
    return seconds;
}

/* Fine-grained performance models: one profile, and steps of layouts, schedules and micro-batches that it was not measured with, predicted and
   run. */
static void row_3_4(void **state)
{
    enum { TOKENS = 64, GRANULES = 8 };
    static const struct { const char *plan, *schedule, *layout; int ranks, granules; } shape[] = {
        { "dp", "1f1b", "0|1|2|3|4|5|6|7", 1, 1 }, { "dp", "1f1b", "01|23|45|67", 1, 2 }, { "dp", "1f1b", "0123|4567", 1, 4 },
        { "dp", "1f1b", "0|1|2|3|4|5|6|7", 2, 1 }, { "dp", "1f1b", "01|23|45|67", 2, 2 }, { "pp", "1f1b", "0|1|2|3|4|5|6|7", 2, 1 },
        { "pp", "gpipe", "01|23|45|67", 2, 2 }, { "pp", "zb-h1", "0|1|2|3|4|5|6|7", 2, 1 }, { "pp:0-4|5-13", "1f1b", "0|1|2|3|4|5|6|7", 2, 1 },
        { "pp", "interleaved", "0|1|2|3|4|5|6|7", 2, 1 }, { "hp2", "1f1b", "0|1|2|3|4|5|6|7", 2, 1 }, { "hp2", "1f1b", "01|23|45|67", 2, 2 },
        { "tp2", "1f1b", "01|23|45|67", 2, 2 } };
    const int shapes = (int)(sizeof shape / sizeof *shape);
    double sum = 0, worst = 0;
    het_profile *profile;
    het_model_desc model;
    het_error error;
    support_run run;
    int i, k;
    (void)state;
    EXPECT_ERROR(het_model_parse("llama:layers=6,width=128,heads=4,context=64,vocab=256", &model, &error), HET_OK, error.text, "");
    support_run_start(&run, &model, 1, "64|64|64|64|64|64|64|64");
    support_run_ranks(&run, 2);
    compute_steadily(&run, 2, 0.15, 1);
    profile = profile_of(&run, TOKENS);
    for (i = 0; i < shapes; i++) {
        het_simulation *simulation = NULL;
        het_cluster *cluster = NULL;
        het_search_desc search;
        uint64_t weights;
        double took, off;
        memset(&search, 0, sizeof search);
        support_run_ranks(&run, shape[i].ranks);
        compute_steadily(&run, shape[i].ranks, 0.15, 1);
        support_run_plan(&run, shape[i].plan, shape[i].schedule, 1);
        EXPECT_ERROR(het_cluster_flat(shape[i].ranks, NULL, profile->link[0].latency, profile->link[0].bandwidth, NULL, &cluster, &error), HET_OK,
                     error.text, "");
        for (k = 0; k < shape[i].ranks; k++)
            snprintf(cluster->device[k].profile, sizeof cluster->device[k].profile, "%s", profile->device[0].name);
        search.profile = profile, search.cluster = cluster, search.granules = GRANULES, search.granule_tokens = TOKENS;
        EXPECT_ERROR(het_plan_predict(&search, run.plan, shape[i].granules, HET_NO, &simulation, &error), HET_OK, error.text, "");
        took = median_step(&run, shape[i].layout, &weights);
        off = fabs(simulation->makespan / took - 1);
        sum += off, worst = fmax(worst, off);
        printf("%-12s %-12s %d x %d: predicted %.2f ms, measured %.2f\n", shape[i].plan, shape[i].schedule, GRANULES / shape[i].granules,
               shape[i].granules, 1e3 * simulation->makespan, 1e3 * took);
        het_simulation_free(simulation);
        het_cluster_free(cluster);
    }
    met(sum / shapes <= 0.1, "%d steps of 1 and 2 ranks, data parallel, in pipelines and in teams, that one profile predicts: mean error %.1f %%, "
        "worst %.1f %%", shapes, 100 * sum / shapes, 100 * worst);
    het_profile_free(profile);
    support_run_end(&run);
}

/* SuperMUC-NG's recipe: teams by columns stay in nodes of 8, and stages and micro-batches grow together, a layer and 32 micro-batches a stage. */
static void row_3_5(void **state)
{
    static const char *const schedules[] = { "1f1b" };
    double first = 0, least = 1, each;
    int64_t stages, crossing = 0, columns = 0, members = 0, i;
    het_search *search = NULL;
    het_search_desc desc;
    het_error error;
    priced p;
    (void)state;
    for (stages = 4; stages <= 128; stages *= 2) {
        char model[160], plan[4000] = "pp:0-2";
        size_t at = strlen(plan);
        for (i = 1; i < stages; i++) /* a layer each; the embedding with the first, the head with the last */
            at += (size_t)snprintf(plan + at, sizeof plan - at, "|%d-%d", (int)(2 * i + 1), (int)(2 * i + 2 + (i + 1 == stages)));
        snprintf(plan + at, sizeof plan - at, "xtp8");
        snprintf(model, sizeof model, "llama:layers=%d,width=4096,heads=32,kv_heads=8,mlp_width=14336,vocab=1024,context=2048", (int)stages);
        price(&p, model, stages, "\"name\":\"all\",\"link\":{\"latency\":1e-5,\"bandwidth\":2.5e10}");
        /* tokens times layers, a second and device */
        each = 32.0 * (double)stages * 2048 * (double)stages / seconds_of(&p, plan, HET_SHARD_STATE, 32 * stages, 2048, 1) / (double)(8 * stages);
        if (stages == 4) first = each;
        least = fmin(least, each / first);
        price_end(&p);
    }
    /* an MLP alone would take 14 GB, and 9 with whole weights and divided state */
    price(&p, "llama:layers=2,width=8192,heads=64,kv_heads=8,mlp_width=28672,vocab=8000,context=2048", 2,
        "\"name\":\"all\",\"link\":{\"latency\":1e-5,\"bandwidth\":2.5e10}");
    for (i = 0; i < p.cluster->ranks; i++) p.cluster->device[i].memory = 8e9;
    memset(&desc, 0, sizeof desc);
    desc.profile = &p.profile, desc.cluster = p.cluster, desc.granules = 4, desc.granule_tokens = 2048, desc.granule_sequences = 1;
    desc.schedules = schedules, desc.schedule_count = 1, desc.evaluations = 1500, desc.most_granules = 1;
    EXPECT_ERROR(het_plan_search(&desc, &search, &error), HET_OK, error.text, "");
    members = search->found[0].plan->members;
    for (i = 0; i < members; i++) {
        crossing += search->found[0].plan->member[i].rank / 8 != search->found[0].plan->member[i].leader / 8;
        columns += search->found[0].plan->member[i].columns != 0;
    }
    met(crossing == 0 && columns > 0 && least > 0.95,
        "two nodes of 8 with slower links between them: %d members of teams, %d of them by columns, %d across nodes; from 32 to 1024 devices, a "
        "stage of 8 by columns a node, simulated layers of tokens a second and device stay within %.1f %%", (int)members,
        (int)columns, (int)crossing, 100 * (1 - least));
    het_search_free(search);
    price_end(&p);
}

/* Bytes of the rank that needs most, for micro-batches of `each` sequences. */
static double most_bytes(priced *p, const char *text, het_shard shard, int64_t micro_batches, int64_t each, int64_t length)
{
    het_plan *plan = support_plan_for(text, "1f1b", p->profile.units, p->cluster->ranks, 1, 8);
    int64_t counts[8], r;
    het_schedule *lists = NULL;
    het_needs needs[8];
    het_memory memory[8];
    het_shape shape = { each * length, each, length < 512 ? length : 512 };
    het_error error;
    double most = 0;
    plan->shard = shard;
    het_plan_micro_batches(plan, micro_batches, counts);
    EXPECT_ERROR(het_schedule_make(plan, counts, NULL, &lists, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_schedule_needs(plan, lists, 0, plan->ranks, 0, NULL, needs, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_profile_memory(&p->profile, plan, needs, &shape, memory, &error), HET_OK, error.text, "");
    for (r = 0; r < plan->ranks; r++) most = fmax(most, (double)memory[r].device + (double)memory[r].communication);
    het_schedule_free(lists);
    het_plan_free(plan);
    return most;
}

/* The best of all layouts of a grid: columns, stages, sequences of a micro-batch and what is divided; of 8 devices with this cap. */
static double best_of_grid(priced *p, int64_t sequences, int64_t length, double cap, int *layouts, int *refused)
{
    int64_t columns, stages, each, shard;
    double best = -1;
    for (columns = 1; columns <= 8; columns *= 2)
        for (stages = 1; columns * stages <= 8 && stages <= p->profile.units; stages *= 2)
            for (each = 1; each <= sequences; each *= 2)
                for (shard = HET_SHARD_STATE; shard <= (columns > 1 ? HET_SHARD_GRADIENTS : HET_SHARD_WEIGHTS); shard++) {
                    char text[64];
                    double seconds;
                    snprintf(text, sizeof text, columns > 1 ? "dp%dxpp%dxtp%d" : "dp%dxpp%d", (int)(8 / columns / stages), (int)stages, (int)columns);
                    ++*layouts;
                    if (most_bytes(p, text, (het_shard)shard, sequences / each, each, length) > cap) { ++*refused; continue; }
                    seconds = seconds_of(p, text, (het_shard)shard, sequences / each, (double)length, (double)each);
                    if (best < 0 || seconds < best) best = seconds;
                }
    return best;
}

/* A plan of 8 ranks on processors, two steps of a small model with as many units, against one rank: the largest difference of gradients. */
static double trained_apart(het_plan *plan, int64_t layers, int64_t micro_batches)
{
    support_run run;
    support_batch built[16];
    het_batch list[16];
    het_model_desc model;
    het_ctx *ctx, *one;
    het_error error;
    char text[128];
    double worst;
    int64_t i;
    snprintf(text, sizeof text, "llama:layers=%d,width=128,heads=8,kv_heads=8,context=64,vocab=61", (int)layers);
    EXPECT_ERROR(het_model_parse(text, &model, &error), HET_OK, error.text, "");
    support_run_start(&run, &model, 1, "64");
    run.desc.granule = 8;
    for (i = 0; i < micro_batches; i++) {
        support_batch_start(&built[i]);
        support_batch_sequence(&built[i], 64, model.vocab, i, (uint64_t)i);
        list[i] = built[i].batch;
    }
    run.desc.limits.max_tokens = 64, run.desc.limits.max_sequences = 1, run.desc.limits.max_micro_batches = micro_batches;
    support_run_ranks(&run, 1);
    run.desc.layout.plan = NULL;
    one = support_create(&run.desc);
    support_run_ranks(&run, 8);
    run.desc.layout.plan = plan;
    ctx = support_create(&run.desc);
    support_expect(het_gradients(ctx, list, micro_batches, NULL), HET_OK, het_last_error(ctx), "", "het_gradients", __LINE__);
    support_expect(het_gradients(one, list, micro_batches, NULL), HET_OK, het_last_error(one), "", "het_gradients", __LINE__);
    worst = worst_difference(one, ctx, HET_GRADIENT);
    het_destroy(ctx), het_destroy(one);
    for (i = 0; i < micro_batches; i++) support_batch_end(&built[i]);
    run.desc.layout.plan = NULL;
    support_run_end(&run);
    return worst;
}

/* Frontier: 8 cards with drawn models, links and caps; 30 plans are simulated of all that there are. */
static void row_3_1(void **state)
{
    static const char *const schedules[] = { "1f1b" };
    const int instances = support_environment("HETRAIN_TEST_TRIALS", 24);
    int n, within = 0, with_plan = 0, layouts = 0, refused = 0, over = 0;
    uint64_t seed = 31;
    double worst = 0, apart = 0;
    int64_t most = 0, i;
    (void)state;
    for (n = 0; n < instances; n++) {
        const int64_t layers = 2 + 2 * support_below(&seed, 3), width = 512 << support_below(&seed, 3), length = 256 << support_below(&seed, 3),
                      sequences = 8 << support_below(&seed, 2);
        het_search *search = NULL;
        het_search_desc desc;
        het_error error;
        char model[160];
        double best, cap;
        priced p;
        snprintf(model, sizeof model, "llama:layers=%d,width=%d,heads=8,kv_heads=8,vocab=1024,context=%d", (int)layers, (int)width, (int)length);
        price(&p, model, 1, "\"name\":\"all\",\"link\":{\"latency\":1e-5,\"bandwidth\":2.5e10}");
        p.cluster->group[1].bandwidth = 1e10 * pow(30, 0.5 * (support_uniform(&seed) + 1));
        cap = most_bytes(&p, "dp8", HET_SHARD_STATE, sequences, 1, length) * (0.25 + 0.5 * (support_uniform(&seed) + 1));
        for (i = 0; i < 8; i++) p.cluster->device[i].memory = cap;
        best = best_of_grid(&p, sequences, length, cap, &layouts, &refused);
        memset(&desc, 0, sizeof desc);
        desc.profile = &p.profile, desc.cluster = p.cluster, desc.granules = sequences, desc.granule_tokens = length, desc.granule_sequences = 1;
        desc.schedules = schedules, desc.schedule_count = 1, desc.shard = HET_SHARD_WEIGHTS, desc.trials = 30, desc.evaluations = 1000;
        if (het_plan_search(&desc, &search, &error) == HET_OK) {
            het_found *found = &search->found[0];
            with_plan++;
            within += best < 0 || found->seconds <= 1.05 * best;
            if (best > 0) worst = fmax(worst, found->seconds / best);
            most = search->evaluations > most ? search->evaluations : most;
            for (i = 0; i < 8; i++) over += found->memory[i] > cap;
            if (getenv("HETRAIN_TEST_VERBOSE") != NULL)
                print_message("%s, %d sequences: %.3f of the grid's best, %d pipelines, %d members, shard %d, %d trials\n", model, (int)sequences,
                    found->seconds / best, (int)found->plan->pipelines, (int)found->plan->members, (int)found->plan->shard, (int)search->evaluations);
            if (apart <= 0) apart = trained_apart(found->plan, layers, found->micro_batches);
        } else if (best >= 0) print_message("instance %d: %s\n", n, error.text);
        else within++, with_plan++; /* nothing fits, and so it says */
        het_search_free(search);
        price_end(&p);
    }
    met(10 * within >= 9 * instances && over == 0 && most <= 30 && apart < 1e-5,
        "%d of %d drawn instances within 1.05 of the best of all layouts of a grid of columns, stages, micro-batches and division (%d, %d over their "
        "cap), worst %.3f, in at most %d trials; %d ranks of chosen plans over their cap; the first one's gradients differ from one rank's by %.0e",
        within, instances, layouts, refused, worst, (int)most, over, apart);
}

/* Activations of 4 micro-batches at once, as a hardware file says and as a context takes them. mode: 0 none is recomputed, 1 attention, 2 all. */
static double predicted_activations(const het_profile *p, const het_desc *desc, int mode)
{
    het_plan *plan = support_plan("dp", "gpipe", p->units, 1, 1);
    const double n = (double)desc->limits.max_tokens;
    const int64_t counts[1] = { 4 };
    het_schedule *lists = NULL;
    het_needs needs;
    het_memory memory;
    het_shape shape;
    het_error error;
    double bytes, scratch[2] = { 0, 0 }, less = 0;
    int64_t u;
    plan->stage[0].recompute = mode == 2;
    memset(&shape, 0, sizeof shape);
    shape.tokens = desc->limits.max_tokens, shape.sequences = desc->limits.max_sequences;
    EXPECT_ERROR(het_schedule_make(plan, counts, NULL, &lists, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_schedule_needs(plan, lists, 0, 1, 0, NULL, &needs, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_profile_memory(p, plan, &needs, &shape, &memory, &error), HET_OK, error.text, "");
    bytes = (double)memory.activations;
    for (u = 0; u < p->units; u++) {
        const het_stage_memory kept = het_profile_stage(p, u, u + 1, 0, 0, 0, n, n), again = het_profile_stage(p, u, u + 1, 1, 0, 0, n, n);
        const int is = p->kind[p->unit[u]].attentions > 0;
        less += is ? kept.slot - again.slot : 0;
        scratch[0] = fmax(scratch[0], kept.scratch);
        scratch[1] = fmax(scratch[1], is ? again.scratch : kept.scratch);
    }
    het_schedule_free(lists);
    het_plan_free(plan);
    return mode == 1 ? bytes - 4 * less + scratch[1] - scratch[0] : bytes;
}

static double measured_activations(const het_desc *like, const het_profile *p, int mode)
{
    uint8_t again[64];
    het_desc desc = *like;
    het_plan *plan = support_plan("dp", "gpipe", p->units, 1, 1);
    het_memory memory;
    het_error error;
    het_ctx *ctx = NULL;
    int64_t u;
    for (u = 0; u < p->units; u++) again[u] = mode == 2 || (mode == 1 && p->kind[p->unit[u]].attentions > 0);
    desc.layout.plan = plan;
    desc.layout.recompute_unit = again;
    desc.limits.max_micro_batches = 4;
    EXPECT_ERROR(het_create(&desc, &ctx, &error), HET_OK, error.text, "");
    het_get_memory(ctx, 0, &memory);
    het_destroy(ctx);
    het_plan_free(plan);
    return (double)memory.activations;
}

/* imec's model: activation memory by recomputation, and what bounds each op, by hand: of a product of n rows, in by out, 2 n in out operations and
   4 (n (in + out) + in out) bytes, of its gradient by weights as many operations and 4 n (in + out) + 16 in out bytes. */
static void row_3_12(void **state)
{
    static const char text[] = "{\"devices\":[{\"name\":\"card\",\"f32\":\"2T\",\"bandwidth\":\"50G\",\"launch\":\"4us\"}]}";
    static const het_action_kind call[3] = { HET_ACTION_F, HET_ACTION_I, HET_ACTION_W };
    static const double rows[2] = { 1024, 16 };
    const double speed = 2e12, bandwidth = 50e9;
    double off = 0, worst = 0, bytes[2][3];
    int64_t bound[2] = { 0, 0 }, products = 0, wrong = 0, u, k;
    het_hardware hardware;
    het_profile *p = NULL;
    het_description *d = NULL;
    het_error error;
    het_desc desc;
    int mode, c;
    (void)state;
    memset(&desc, 0, sizeof desc);
    EXPECT_ERROR(het_model_parse("llama:layers=4,width=256,heads=4,mlp_width=704,vocab=512,context=256", &desc.model, &error), HET_OK,
                 error.text, "");
    desc.limits.max_tokens = 1024, desc.limits.max_sequences = 4;
    EXPECT_ERROR(het_hardware_read(text, strlen(text), &hardware, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_hardware_profile(&hardware, &desc, 256, "small", NULL, &p, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_describe(&desc, &d, &error), HET_OK, error.text, "");
    for (mode = 0; mode < 3; mode++) {
        bytes[0][mode] = predicted_activations(p, &desc, mode);
        bytes[1][mode] = measured_activations(&desc, p, mode);
        worst = fmax(worst, fabs(bytes[0][mode] / bytes[1][mode] - 1));
    }
    for (u = 0; u < d->units; u++)
        for (k = 0; k < d->unit[u].program.nodes; k++)
            for (c = 0; c < 6; c++) {
                const double n = rows[c / 3];
                const het_op_price price = het_hardware_price(&hardware.device[0], d, u, k, call[c % 3], n, n * 257 / 2);
                const het_node *node = &d->unit[u].program.node[k];
                double in, out = 0, flops, moved;
                int i;
                if (price.name == NULL) continue;
                bound[price.memory_bound]++;
                off = fmax(off, fabs(price.cost.base + n * price.cost.token + n * 257 / 2 * price.cost.pair - price.seconds) / price.seconds);
                if (node->kind != HET_NODE_LINEAR) continue;
                for (i = 0; i < node->outputs; i++) out += (double)d->unit[u].program.value[node->y[i]].width;
                in = (double)d->unit[u].program.value[node->x[0]].width;
                flops = 2 * n * in * out;
                moved = 4 * n * (in + out) + (c % 3 == 2 ? 16 : 4) * in * out;
                products++;
                wrong += price.memory_bound != (moved / bandwidth > flops / speed);
                off = fmax(off, fabs(price.seconds - 4e-6 - fmax(moved / bandwidth, flops / speed)) / price.seconds);
            }
    met(worst < 0.05 && wrong == 0 && off < 1e-9 && products > 50 && bound[0] > 10 && bound[1] > 10,
        "activations of 4 micro-batches from a hardware file and as taken: none recomputed %.0f and %.0f bytes, attention %.0f and %.0f, "
        "all %.0f and %.0f (within %.1f %%); %d ops bound by operations, %d by bytes, the %d products as by hand", bytes[0][0], bytes[1][0],
        bytes[0][1], bytes[1][1], bytes[0][2], bytes[1][2], 100 * worst, (int)bound[0], (int)bound[1], (int)products);
    het_description_free(d);
    het_profile_free(p);
}

/* Diminishing returns: 2,048 sequences a step on 8 to 2,048 cards, with all weights sharded among data-parallel ranks, and with columns in a
   node, stages across nodes and the state divided. Where the second overtakes, and what a further card brings. */
static void row_2_5(void **state)
{
    double sharded = 0, hybrid = 0, before = 0, marginal = 0, last = 1e30;
    int64_t ranks, overtaken = 0, stages, columns;
    char table[600] = "";
    int falls = 1;
    (void)state;
    for (ranks = 8; ranks <= 2048; ranks *= 4) {
        double each, best;
        priced p;
        price(&p, "llama:layers=30,width=4096,heads=32,kv_heads=8,mlp_width=11008,vocab=32000,context=2048", ranks / 8,
            "\"name\":\"all\",\"link\":{\"latency\":1e-5,\"bandwidth\":2.5e10}");
        sharded = hybrid = 0;
        for (each = 1; each <= 64; each *= 4) {
            const int64_t micro_batches = 2048 / (int64_t)each;
            if (micro_batches >= ranks)
                sharded = fmax(sharded, 2048 * 2048.0 / seconds_of(&p, "dp", HET_SHARD_WEIGHTS, micro_batches, 2048, each));
            for (stages = 1; stages <= 16; stages *= 4)
                for (columns = 2; columns <= 8; columns *= 2) {
                    const int64_t pipelines = ranks / columns / stages;
                    char plan[40];
                    if (pipelines < 1 || micro_batches < pipelines) continue;
                    snprintf(plan, sizeof plan, "dp%dxpp%dxtp%d", (int)pipelines, (int)stages, (int)columns);
                    hybrid = fmax(hybrid, 2048 * 2048.0 / seconds_of(&p, plan, HET_SHARD_STATE, micro_batches, 2048, each));
                }
        }
        best = fmax(sharded, hybrid);
        if (hybrid > sharded && overtaken == 0) overtaken = ranks;
        marginal = ranks > 8 ? (best - before) / (double)(ranks - ranks / 4) : best / 8;
        falls = falls && marginal < last;
        last = marginal, before = best;
        snprintf(table + strlen(table), sizeof table - strlen(table), "%s%d: %.0f and %.0f thousand, %.0f more a card", *table ? "; " : "",
            (int)ranks, sharded / 1e3, hybrid / 1e3, marginal);
        price_end(&p);
    }
    met(overtaken > 8 && falls, "tokens/s with weights sharded and with columns x stages x data, and what each card that came brings: %s; columns "
        "and stages overtake at %d cards", table, (int)overtaken);
}

/* FlexPipe: named schedules as text, read again, checked and run. */
static void row_1_11(void **state)
{
    static const char *const names[] = { "gpipe", "1f1b", "interleaved", "zb-h1" };
    support_run run;
    support_result base;
    support_buffer gpipe;
    het_memory memory[2];
    int64_t i, bytes = 0;
    (void)state;
    start(&run, HET_LLAMA, 2, SUPPORT_SHORT, 1);
    base = support_train(&run, SUPPORT_TOGETHER);
    support_run_ranks(&run, 3);
    support_buffer_start(&gpipe);
    for (i = 0; i < 4; i++) {
        const int64_t counts[1] = { 6 };
        het_schedule *made = NULL, *read = NULL;
        support_buffer text;
        het_writer to;
        het_error error;
        support_run_plan(&run, "pp", names[i], 1);
        support_buffer_start(&text);
        to = support_writer(&text);
        EXPECT_OK(het_schedule_make(run.plan, counts, NULL, &made, &error));
        EXPECT_OK(het_schedule_write(made, &to));
        EXPECT_OK(het_schedule_read(run.plan, (const char *)text.data, text.size, NULL, &read, &error));
        EXPECT_OK(het_schedule_check(run.plan, NULL, read, NULL, &error));
        run.desc.layout.schedule = read;
        support_train_same(&base, &run, SUPPORT_APART, names[i]);
        bytes += (int64_t)text.size;
        if (i == 0) {
            to = support_writer(&gpipe);
            EXPECT_OK(het_schedule_write(read, &to));
        }
        if (i < 2) EXPECT_ERROR(het_memory_estimate(&run.desc, 0, &memory[i], &error), HET_OK, error.text, "");
        if (i == 1) { /* where memory is what these lists need, others are refused */
            het_schedule *larger = NULL;
            run.device[0].memory_limit = memory[1].device + memory[1].communication;
            EXPECT_ERROR(het_memory_estimate(&run.desc, 0, &memory[1], &error), HET_OK, error.text, "");
            EXPECT_OK(het_schedule_read(run.plan, (const char *)gpipe.data, gpipe.size, NULL, &larger, &error));
            run.desc.layout.schedule = larger;
            EXPECT_ERROR(het_memory_estimate(&run.desc, 0, &memory[0], &error), HET_ERR_LIMIT, error.text, "rank 0|more than its memory_limit");
            run.device[0].memory_limit = 0;
            het_schedule_free(larger);
        }
        if (i == 1) { /* a circle, and one action too few, are refused */
            static const char *const wrong[] = { "0F0,0B0\n1B0,1F0\n2F0,2B0\n", "0F0,0B0\n1F0\n2F0,2B0\n" };
            int w;
            for (w = 0; w < 2; w++) {
                het_schedule *bad = NULL;
                het_result result = het_schedule_read(run.plan, wrong[w], strlen(wrong[w]), NULL, &bad, &error);
                if (result == HET_OK) result = het_schedule_check(run.plan, NULL, bad, NULL, &error);
                if (result == HET_OK) met(0, "accepted %s", wrong[w]);
                het_schedule_free(bad);
            }
        }
        run.desc.layout.schedule = NULL;
        het_schedule_free(made);
        het_schedule_free(read);
        support_buffer_end(&text);
    }
    support_buffer_end(&gpipe);
    met(memory[1].device < memory[0].device, "gpipe, 1f1b, interleaved, zb-h1 as text (%d bytes), read, proven and run with one rank's bits; a "
        "circle and a missing action refused, and gpipe's %d bytes of rank 0 where its limit is 1f1b's %d", (int)bytes, (int)memory[0].device,
        (int)memory[1].device);
    support_run_end(&run);
}

/* LayerPipe: every W deferred, and W that fill the bubble: bits, and spans of measured steps on four ranks. */
static double least_span(support_run *run, int64_t ranks)
{
    het_ctx *ctx = support_create(&run->desc);
    double least = 1e30;
    int step;
    for (step = 0; step < 6; step++) least = fmin(least, step_of(ctx, run, "0|1|2|3|4|5|6|7", ranks, NULL).span);
    het_destroy(ctx);
    return least;
}

static void row_1_18(void **state)
{
    static const char *const blocks = "60|60|60|60|60|60|60|60", *const layout = "0|1|2|3|4|5|6|7";
    support_run run;
    support_result fused, deferred;
    double plain, filled;
    (void)state;
    start(&run, HET_GPT2, 1, blocks, 1);
    run.desc.model.context = 64, run.desc.model.layers = 4, run.desc.model.width = 96, run.desc.model.heads = 4, run.desc.model.kv_heads = 4,
        run.desc.model.head_size = 24;
    run.desc.model.mlp_width = 384;
    fused = support_train(&run, layout);
    run.desc.layout.backward = HET_BACKWARD_DEFERRED;
    deferred = support_train(&run, layout);
    run.desc.layout.backward = HET_BACKWARD_DEFAULT;
    support_run_ranks(&run, 4);
    compute_steadily(&run, 4, 0.05, 1);
    support_run_plan(&run, "pp:0-2|3-4|5-6|7-9", "1f1b", 1);
    plain = least_span(&run, 4);
    support_run_plan(&run, "pp:0-2|3-4|5-6|7-9", "zb-h1", 1);
    filled = least_span(&run, 4);
    met(support_same(&fused, &deferred, "deferred") && filled < plain,
        "all W deferred: equal bits; measured from first to last action: 1f1b %.1f ms, zb-h1 %.1f ms",
        1e3 * plain, 1e3 * filled);
    support_run_end(&run);
}

/* ---- applications ---- */

/* LightSeq: a model that was trained for some steps, saved and loaded again; tokens with kept keys and values, and without; allocations. */
static void row_0_6(void **state)
{
    het_model_desc model = support_model(HET_LLAMA);
    support_buffer weights, optimizer;
    support_memory memory;
    support_run run;
    het_reader from;
    het_desc desc;
    het_ctx *ctx;
    float *logits;
    int32_t token[2][60];
    int64_t i, v, before;
    int kept;
    (void)state;
    memset(&memory, 0, sizeof memory);
    memory.fail_at = -1;
    memset(&desc, 0, sizeof desc);
    model.context = 64;
    support_run_start(&run, &model, 1, SUPPORT_SHORT);
    ctx = support_create(&run.desc);
    for (i = 0; i < 8; i++) (void)support_step(ctx, &run.data, 0, SUPPORT_TOGETHER);
    support_save(ctx, &weights, &optimizer);
    het_destroy(ctx);
    desc.model = model;
    desc.inference = HET_YES;
    desc.host.allocator = support_allocator(&memory);
    ctx = support_create(&desc);
    from = support_reader(&weights);
    EXPECT_OK(het_load_weights(ctx, &from));
    logits = support_floats(model.vocab, 1, 1);
    token[0][0] = 1;
    EXPECT_OK(het_infer(ctx, token[0], 1, 0, logits));
    before = memory.calls;
    for (kept = 0; kept < 2; kept++) {
        for (i = 0; i < 5; i++) token[kept][i] = (int32_t)(3 * i + 1);
        for (i = 5; i < 60; i++) {
            if (!kept) EXPECT_OK(het_infer(ctx, token[kept], i, 0, logits));
            else if (i == 5) EXPECT_OK(het_infer(ctx, token[kept], 5, 0, logits));
            else EXPECT_OK(het_infer(ctx, token[kept] + i - 1, 1, i - 1, logits));
            token[kept][i] = 0;
            for (v = 1; v < model.vocab; v++)
                if (logits[v] > logits[token[kept][i]]) token[kept][i] = (int32_t)v;
        }
    }
    met(memcmp(token[0], token[1], sizeof token[0]) == 0 && memory.calls == before,
        "55 likeliest tokens of a model that was loaded from a file, with and without kept keys and values, are equal; %d allocations",
        (int)(memory.calls - before));
    support_buffer_end(&weights);
    support_buffer_end(&optimizer);
    support_run_end(&run);
    free(logits);
    het_destroy(ctx);
}

/* DiffusionPipe: the frozen first half of a model is an encoder in front of a backbone. */
enum { BACKBONE_RANKS = 2, ENCODED = 8 };

static int of_the_encoder(void *user, const char *parameter)
{
    const char *layer = strstr(parameter, "layers.");
    (void)user;
    return strstr(parameter, "embed") != NULL || (layer != NULL && atoi(layer + 7) < 4);
}

static double time_of(const action_times *a) { return median_of(a->value, a->count); }

/* Costs that were measured. */
static void costs_of(het_costs *costs, het_stage_cost cost[4], action_times taken[4][4])
{
    int64_t i;
    memset(costs, 0, sizeof *costs), memset(cost, 0, 4 * sizeof *cost);
    for (i = 0; i < 4; i++) {
        cost[i].forward.base = time_of(&taken[i][HET_ACTION_F]), cost[i].backward.base = time_of(&taken[i][HET_ACTION_B]);
        cost[i].input.base = time_of(&taken[i][HET_ACTION_I]), cost[i].weight.base = time_of(&taken[i][HET_ACTION_W]);
    }
    costs->stage = cost;
}

static double makespan_of(const het_plan *plan, const het_schedule *schedule, const het_costs *costs)
{
    het_simulation *simulation = NULL;
    het_error error;
    double makespan;
    EXPECT_ERROR(het_simulate(plan, schedule, costs, HET_NO, NULL, &simulation, &error), HET_OK, error.text, "");
    makespan = simulation->makespan;
    het_simulation_free(simulation);
    return makespan;
}

/* The least idle time of six steps. */
static double idle_of(support_run *run, const het_schedule *schedule, action_times taken[4][4], uint64_t *weights)
{
    double best = 1e30;
    het_ctx *ctx;
    int step;
    run->desc.layout.schedule = schedule;
    ctx = support_create(&run->desc);
    memset(taken, 0, 16 * sizeof **taken);
    for (step = 0; step < 6; step++) best = fmin(best, step_of(ctx, run, "0|1|2|3|4|5|6|7", BACKBONE_RANKS, taken).idle);
    *weights = support_hash(ctx);
    het_destroy(ctx);
    return best;
}

/* The encoder's forwards of all micro-batches first, then 1F1B of the backbone; against the lists for what its actions have taken. */
static void row_1_10(void **state)
{
    static const char first[] = "0F0,0F1,0F2,0F3,0F4,0F5,0F6,0F7,2F0,2F1,2B0,2F2,2B1,2F3,2B2,2F4,2B3,2F5,2B4,2F6,2B5,2F7,2B6,2B7\n"
                                "1F0,1F1,1F2,1F3,1F4,1F5,1F6,1F7,3F0,3B0,3F1,3B1,3F2,3B2,3F3,3B3,3F4,3B4,3F5,3B5,3F6,3B6,3F7,3B7\n";
    static const char plan[] = "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,5]},{\"rank\":1,\"units\":[5,9]},"
                               "{\"rank\":0,\"units\":[9,13]},{\"rank\":1,\"units\":[13,18]}]}]}";
    const int64_t counts[1] = { ENCODED };
    double idle[2];
    action_times taken[4][4];
    het_schedule *schedule[2] = { NULL, NULL };
    het_stage_cost cost[4];
    uint64_t weights[3];
    het_model_desc model;
    het_costs costs;
    het_error error;
    support_run run;
    int64_t i;
    (void)state;
    EXPECT_ERROR(het_model_parse("llama:layers=8,width=96,heads=4,context=120,vocab=61", &model, &error), HET_OK, error.text, "");
    support_run_start(&run, &model, 1, "120,120,120|120,120,120|120,120,120|120,120,120|120,120,120|120,120,120|120,120,120|120,120,120");
    run.desc.frozen = of_the_encoder;
    {
        het_ctx *ctx = support_create(&run.desc);
        for (i = 0; i < 6; i++) (void)support_step(ctx, &run.data, 0, "0|1|2|3|4|5|6|7");
        weights[2] = support_hash(ctx);
        het_destroy(ctx);
    }
    support_run_ranks(&run, BACKBONE_RANKS);
    compute_steadily(&run, BACKBONE_RANKS, 0.2, 1);
    support_run_plan(&run, plan, NULL, 1);
    EXPECT_ERROR(het_plan_cuts(&run.desc, run.plan, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_schedule_read(run.plan, first, sizeof first - 1, NULL, &schedule[0], &error), HET_OK, error.text, "");
    snprintf(run.plan->schedule, sizeof run.plan->schedule, "zb-h1");
    (void)idle_of(&run, NULL, taken, &weights[1]); /* what halves of a backward pass take */
    costs_of(&costs, cost, taken);
    idle[0] = idle_of(&run, schedule[0], taken, &weights[0]);
    for (i = 0; i < 4; i++) cost[i].forward.base = time_of(&taken[i][HET_ACTION_F]), cost[i].backward.base = time_of(&taken[i][HET_ACTION_B]);
    EXPECT_ERROR(het_schedule_timed(run.plan, counts, &costs, NULL, &schedule[1], &error), HET_OK, error.text, "");
    idle[1] = idle_of(&run, schedule[1], taken, &weights[1]);
    met(idle[1] <= idle[0] / 2 && weights[0] == weights[2] && weights[1] == weights[2],
        "two ranks, each with a stage of a frozen encoder and one of the backbone, 8 micro-batches: idle %.1f ms a step with the encoder first, "
        "%.1f ms with its forwards in the backbone's bubbles; weights %016llx both times, and on one rank", 1e3 * idle[0], 1e3 * idle[1],
        (unsigned long long)weights[0]);
    for (i = 0; i < 2; i++) het_schedule_free(schedule[i]);
    run.desc.layout.schedule = NULL;
    support_run_end(&run);
}

/* BaPipe: three devices of unlike speeds and memories, of which the fast one takes less than its speed's share. All cuts in all orders are tried
   with what het_memory_estimate says of them. */
enum { BAPIPE_RANKS = 3, BAPIPE_UNITS = 18, BAPIPE_TOKENS = 120, BAPIPE_BATCHES = 12 };
typedef struct bapipe { support_run run; het_profile *profile; het_cluster *cluster; const char *schedule; } bapipe;

/* The slowest stage's seconds for a micro-batch. */
static double slowest_of(const bapipe *b, const het_plan *plan)
{
    het_plan_costs *costs = NULL;
    double slowest = 0;
    het_error error;
    int64_t s;
    EXPECT_ERROR(het_profile_costs(b->profile, plan, b->cluster, HET_YES, NULL, &costs, &error), HET_OK, error.text, "");
    for (s = 0; s < plan->stages; s++) {
        const het_cost *f = &costs->stage[s].forward, *w = &costs->stage[s].backward;
        const double pairs = BAPIPE_TOKENS * (BAPIPE_TOKENS + 1) / 2;
        slowest = fmax(slowest, f->base + w->base + (f->token + w->token) * BAPIPE_TOKENS + (f->pair + w->pair) * pairs);
    }
    het_plan_costs_free(costs);
    return slowest;
}

static int fits(const bapipe *b, const het_plan *plan)
{
    het_desc desc = b->run.desc;
    int64_t r;
    desc.layout.plan = plan;
    for (r = 0; r < plan->ranks; r++) {
        het_memory memory;
        het_error error;
        const het_result result = het_memory_estimate(&desc, r, &memory, &error); /* which knows the limits */
        if (result == HET_ERR_LIMIT) return 0;
        EXPECT_ERROR(result, HET_OK, error.text, "");
    }
    return 1;
}

/* The least of the slowest stages of all pipelines; of those that fit, or of all. */
static double least_of(const bapipe *b, int all)
{
    static const int order[6][BAPIPE_RANKS] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
    double least = 1e30;
    int i, k, o;
    for (o = 0; o < 6; o++)
        for (i = 1; i < BAPIPE_UNITS - 1; i++)
            for (k = i + 1; k < BAPIPE_UNITS; k++) {
                char text[300];
                het_plan *plan;
                double slowest;
                snprintf(text, sizeof text, "{\"pipelines\":[{\"stages\":[{\"rank\":%d,\"units\":[0,%d]},{\"rank\":%d,\"units\":[%d,%d]},"
                         "{\"rank\":%d,\"units\":[%d,%d]}]}]}", order[o][0], i, order[o][1], i, k, order[o][2], k, BAPIPE_UNITS);
                plan = support_plan(text, b->schedule, BAPIPE_UNITS, BAPIPE_RANKS, 1);
                slowest = slowest_of(b, plan);
                if (slowest < least && (all || fits(b, plan))) least = slowest;
                het_plan_free(plan);
            }
    return least;
}

static void row_1_9(void **state)
{
    static const double share[BAPIPE_RANKS] = { 0.3, 0.2, 0.1 };
    double ratio, tight, most = 0;
    const het_plan *plan;
    het_search *found = NULL;
    het_search_desc search;
    het_model_desc model;
    het_error error;
    char text[200] = "";
    het_ctx *ctx;
    bapipe b;
    int64_t i;
    (void)state;
    memset(&search, 0, sizeof search);
    memset(&b, 0, sizeof b);
    EXPECT_ERROR(het_model_parse("llama:layers=8,width=96,heads=4,context=120,vocab=61", &model, &error), HET_OK, error.text, "");
    support_run_start(&b.run, &model, 1, "120|120|120|120|120|120|120|120|120|120");
    b.run.desc.limits.max_tokens = BAPIPE_TOKENS, b.run.desc.limits.max_sequences = 1, b.run.desc.limits.max_micro_batches = BAPIPE_BATCHES;
    support_run_ranks(&b.run, 1);
    compute_steadily(&b.run, 1, share[0], 1);
    b.profile = profile_of(&b.run, BAPIPE_TOKENS);
    support_run_ranks(&b.run, BAPIPE_RANKS);
    compute_steadily(&b.run, BAPIPE_RANKS, share[0], 1);
    EXPECT_ERROR(het_cluster_flat(BAPIPE_RANKS, NULL, 1e-6, 1e9, NULL, &b.cluster, &error), HET_OK, error.text, "");
    for (i = 0; i < BAPIPE_RANKS; i++) {
        snprintf(b.cluster->device[i].profile, sizeof b.cluster->device[i].profile, "%s", b.profile->device[0].name);
        b.cluster->device[i].speed = b.run.device[i].speed = share[i] / share[0];
        b.cluster->device[i].memory = i == 0 ? 9e6 : 14e6;
        b.run.device[i].memory_limit = (size_t)b.cluster->device[i].memory;
    }
    search.profile = b.profile, search.cluster = b.cluster, search.recompute = HET_NO;
    search.granules = BAPIPE_BATCHES, search.granule_tokens = BAPIPE_TOKENS, search.most_granules = 1;
    EXPECT_ERROR(het_plan_search(&search, &found, &error), HET_OK, error.text, "");
    plan = b.run.desc.layout.plan = found->found[0].plan;
    b.schedule = plan->schedule;
    ratio = slowest_of(&b, plan) / least_of(&b, 0), tight = least_of(&b, 0) / least_of(&b, 1);
    ctx = support_create(&b.run.desc); /* refused where a rank needs more than its limit */
    (void)support_step(ctx, &b.run.data, 0, "0|1|2|3|4|5|6|7|8|9|0|1");
    for (i = 0; i < BAPIPE_RANKS; i++) {
        het_memory memory;
        het_get_memory(ctx, i, &memory);
        most = fmax(most, (double)(memory.device + memory.communication) / b.cluster->device[i].memory);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d of %d", i > 0 ? ", " : "", (int)(memory.device + memory.communication),
                 (int)b.cluster->device[i].memory);
    }
    met(plan->pipelines == 1 && ratio <= 1.05 && tight > 1.02 && most <= 1, "%s, stages of %d, %d, %d units on ranks 0, 1, 2 of speeds 3, 2, 1: the "
        "slowest takes %.3f of the least of all cuts that fit, which takes %.3f of what it would without limits; bytes of the run: %s",
        plan->schedule, (int)units_of(plan, 0), (int)units_of(plan, 1), (int)units_of(plan, 2), ratio, tight, text);
    het_destroy(ctx);
    b.run.desc.layout.plan = NULL;
    het_search_free(found);
    het_cluster_free(b.cluster);
    het_profile_free(b.profile);
    support_run_end(&b.run);
}

/* PipeWeaver: a unit for one modality, an MLP over one granule of a micro-batch (settings: 0, images; 1, text) that hands the other's rows on. */
static het_result of_modality(const het_unit_call *c, het_result (*call)(const het_unit_call *))
{
    const int64_t d = c->unit->model->width, g = c->view->granule_begin + *(const int32_t *)c->unit->settings;
    const int64_t *start = c->view->host_granule_start, skip = (start[g] - c->view->row_begin) * d;
    het_unit_call own = *c;
    het_view view = *c->view;
    view.granule_begin = g, view.granule_end = g + 1, view.row_begin = start[g], view.row_end = start[g + 1];
    own.view = &view;
    own.rows = start[g + 1] - start[g];
    if (own.in[0] != NULL) own.in[0] += skip;
    if (own.out[0] != NULL) own.out[0] += skip;
    if (own.d_in[0] != NULL) own.d_in[0] += skip;
    if (own.d_out[0] != NULL) own.d_out[0] += skip;
    return call(&own);
}
static het_result modality_describe(const het_unit *unit, het_unit_info *info) { return het_unit_mlp()->describe(unit, info); }
static het_result modality_forward(const het_unit_call *c)
{
    memcpy(c->out[0], c->in[0], (size_t)(c->rows * c->unit->model->width) * sizeof(float));
    return of_modality(c, het_unit_mlp()->forward);
}
static het_result modality_backward_input(const het_unit_call *c)
{
    memcpy(c->d_in[0], c->d_out[0], (size_t)(c->rows * c->unit->model->width) * sizeof(float));
    return of_modality(c, het_unit_mlp()->backward_input);
}
static het_result modality_backward_weight(const het_unit_call *c) { return of_modality(c, het_unit_mlp()->backward_weight); }

/* Batches full of images and batches full of text in turns, through image units and text units on two ranks that take a given time. Lists for what
   each kind of batch takes, by its multiply-adds, against the best of some lists for both. */
static void row_1_4(void **state)
{
    enum { UNITS = 10, NAMED = 5, BATCHES = 4, STEPS = 4, MANY = 480, FEW = 8 };
    static const het_unit_iface iface = { HETRAIN_UNIT_VERSION, "modality", modality_describe, modality_forward, modality_backward_input,
                                          modality_backward_weight };
    static const char *const named[NAMED] = { "1f1b", "interleaved", "gpipe", "zb-h1", "greedy" };
    static const char *const layout[2] = { "01|01|01|01", "23|23|23|23" };
    static const char plan[] = "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,3]},{\"rank\":1,\"units\":[3,5]},"
                               "{\"rank\":0,\"units\":[5,7]},{\"rank\":1,\"units\":[7,10]}]}]}";
    static const int32_t modality[2] = { 0, 1 };
    const int64_t counts[1] = { BATCHES };
    double own[2], best = 1e30, measured[2] = { 1e30, 1e30 }, busy[2] = { 1e30, 1e30 }, longer[2], worst = 0, apart;
    const char *which = "";
    het_schedule *timed[2] = { NULL, NULL };
    het_stage_cost cost[2][4];
    het_costs costs[2];
    het_unit all[18], unit[UNITS];
    het_model_desc model;
    het_replan_desc replan;
    het_error error;
    support_run run;
    uint64_t weights[2];
    het_ctx *ctx, *one;
    int64_t count, i, k, v;
    (void)state;
    EXPECT_ERROR(het_model_parse("llama:layers=8,width=96,heads=4,context=120,vocab=61", &model, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_model_complete(&model, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_model_units(&model, all, 18, &count, &error), HET_OK, error.text, "");
    for (k = i = 0; i < count; i++) {
        if (all[i].iface == het_unit_attention()) continue;
        unit[k] = all[i];
        if (unit[k].iface == het_unit_mlp()) unit[k].iface = &iface, unit[k].settings = &modality[k > 4];
        unit[k++].model = NULL;
    }
    support_run_start(&run, &model, 1, "120,120,120,120|8|8|120,120,120,120");
    run.desc.units = unit, run.desc.unit_count = UNITS;
    run.desc.limits.max_micro_batches = BATCHES;
    one = support_create(&run.desc);
    support_run_ranks(&run, BACKBONE_RANKS);
    compute_steadily(&run, BACKBONE_RANKS, 0.2, 1);
    run.plan = support_plan(plan, "gpipe", UNITS, BACKBONE_RANKS, 1);
    run.desc.layout.plan = run.plan;
    ctx = support_create(&run.desc);
    memset(&replan, 0, sizeof replan);
    snprintf(run.plan->schedule, sizeof run.plan->schedule, "zb-h1"); /* with split backward passes */
    replan.plan = run.plan;
    EXPECT_OK(het_replan(ctx, &replan));
    for (v = 0; v < 2; v++) {
        memset(&costs[v], 0, sizeof costs[v]), memset(cost[v], 0, sizeof cost[v]);
        for (i = 0; i < 4; i++) { /* as the devices take them: two MLPs of 3 products over the rows of a modality, and the head's over all */
            het_stage_cost *c = &cost[v][i];
            const double work = 6.0 * (double)(model.width * model.mlp_width) * (i / 2 == v ? MANY : FEW) +
                                (i == 3 ? (double)(model.width * model.vocab) * (MANY + FEW) : 0);
            c->forward.base = c->input.base = c->weight.base = work / (0.2 * STEADY_RATE), c->backward.base = 2 * c->forward.base;
        }
        costs[v].stage = cost[v];
        EXPECT_ERROR(het_schedule_timed(run.plan, counts, &costs[v], NULL, &timed[v], &error), HET_OK, error.text, "");
        own[v] = makespan_of(run.plan, timed[v], &costs[v]);
    }
    for (i = 0; i < 2 * STEPS; i++) busy[i % 2] = fmin(busy[i % 2], step_of(ctx, &run, layout[i % 2], BACKBONE_RANKS, NULL).busy);
    for (v = 0; v < 2; v++) { /* what else actions take: norms, messages begun */
        double work = 0;
        for (i = 0; i < 4; i++) work += BATCHES * (cost[v][i].forward.base + cost[v][i].backward.base);
        longer[v] = busy[v] / work;
    }
    for (k = 0; k < NAMED + 2; k++) {
        het_schedule *lists = k < 2 ? timed[k] : NULL;
        double both;
        if (k >= 2) {
            snprintf(run.plan->schedule, sizeof run.plan->schedule, "%s", named[k - 2]);
            EXPECT_ERROR(het_schedule_make(run.plan, counts, NULL, &lists, &error), HET_OK, error.text, "");
        }
        both = makespan_of(run.plan, lists, &costs[0]) + makespan_of(run.plan, lists, &costs[1]);
        if (both < best) best = both, which = k >= 2 ? named[k - 2] : k == 0 ? "those for images" : "those for text";
        if (k >= 2) het_schedule_free(lists);
    }
    for (i = 0; i < 2 * STEPS; i++) { /* each batch with its lists */
        replan.schedule = timed[i % 2];
        EXPECT_OK(het_replan(ctx, &replan));
        (void)support_step(ctx, &run.data, 0, layout[i % 2]);
    }
    for (v = 0; v < 2; v++) { /* behind a change of plans memory is cold: what lists take, without one */
        het_ctx *alone;
        run.desc.layout.schedule = timed[v];
        alone = support_create(&run.desc);
        for (i = 0; i < STEPS; i++) measured[v] = fmin(measured[v], step_of(alone, &run, layout[v], BACKBONE_RANKS, NULL).span);
        het_destroy(alone);
    }
    run.desc.layout.schedule = NULL;
    for (v = 0; v < 2; v++) worst = fmax(worst, fabs(measured[v] / (longer[v] * own[v]) - 1));
    for (i = 0; i < 4 * STEPS; i++) (void)support_step(one, &run.data, 0, layout[i % 2]);
    weights[0] = support_hash(one), weights[1] = support_hash(ctx);
    apart = best / (own[0] + own[1]);
    met(apart >= 1.1 && worst <= 0.1 && weights[0] == weights[1],
        "image-heavy and text-heavy batches of 4 micro-batches in turns: lists for each take %.1f and %.1f ms (simulated), the best lists for both "
        "(%s) %.3f times as long; run, they take %.1f and %.1f ms, %.1f %% off at most; weights %016llx of one rank",
        1e3 * longer[0] * own[0], 1e3 * longer[1] * own[1], which, apart, 1e3 * measured[0], 1e3 * measured[1], 100 * worst,
        (unsigned long long)weights[0]);
    for (v = 0; v < 2; v++) het_schedule_free(timed[v]);
    het_destroy(ctx), het_destroy(one);
    support_run_end(&run);
}

/* CrossPipe: four stages on two sites, half a forward pass or two of them between: lists for what was measured, with at most as many activations as
   1f1b keeps, predicted and run. */
enum { SITE_RANKS = 4, SITE_BATCHES = 8 };

/* Milliseconds with `delay` seconds between the sites: predicted, measured, and 1f1b's. Whether both lists train the same weights. */
static int across_sites(support_run *run, const het_profile *profile, double delay, double ms[3])
{
    static const char *const layout = "0|1|2|3|4|5|6|7";
    const int64_t counts[1] = { SITE_BATCHES };
    double tokens[SITE_BATCHES], pairs[SITE_BATCHES];
    int64_t first[50], i;
    char text[400];
    het_link link[4];
    het_schedule *compute = NULL, *whole = NULL;
    het_simulation *simulation = NULL;
    het_cluster *cluster = NULL;
    het_plan_costs *costs = NULL;
    het_blocks blocks;
    het_error error;
    uint64_t weights[2];
    snprintf(text, sizeof text, "{\"link\":{\"latency\":%.9f},\"members\":[{\"name\":\"site\",\"count\":2,\"link\":{\"latency\":%.9f},"
             "\"members\":[{\"device\":\"%s\",\"count\":2}]}]}", delay + profile->link[0].latency, profile->link[0].latency,
             profile->device[0].name);
    EXPECT_ERROR(het_cluster_read(text, strlen(text), NULL, &cluster, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_profile_costs(profile, run->plan, cluster, HET_YES, NULL, &costs, &error), HET_OK, error.text, "");
    for (i = 0; i < SITE_BATCHES; i++) tokens[i] = 120, pairs[i] = 60 * 121;
    costs->costs.tokens = tokens, costs->costs.pairs = pairs;
    for (i = 0; i < profile->blocks; i++) first[i] = profile->block[i].first_use;
    first[i] = profile->uses;
    blocks.count = profile->blocks, blocks.start = first, blocks.unit = profile->use;
    EXPECT_ERROR(het_schedule_timed(run->plan, counts, &costs->costs, NULL, &compute, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_schedule_complete(run->plan, &blocks, compute, NULL, &whole, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_simulate_costs(run->plan, whole, costs, HET_NO, NULL, &simulation, &error), HET_OK, error.text, "");
    ms[0] = 1e3 * simulation->makespan;
    for (i = 0; i < 4; i++) link[i].from = i / 2, link[i].to = 2 + i % 2, link[i].latency = delay, link[i].bandwidth = 0;
    run->desc.emulate.links = link, run->desc.emulate.link_count = 4;
    run->desc.layout.schedule = compute;
    ms[1] = 1e3 * median_step(run, layout, &weights[0]);
    run->desc.layout.schedule = NULL;
    ms[2] = 1e3 * median_step(run, layout, &weights[1]);
    run->desc.emulate.links = NULL, run->desc.emulate.link_count = 0;
    het_simulation_free(simulation);
    het_schedule_free(compute);
    het_schedule_free(whole);
    het_plan_costs_free(costs);
    het_cluster_free(cluster);
    return weights[0] == weights[1];
}

static void row_1_17(void **state)
{
    static const double passes[2] = { 0.5, 2 };
    double forward, ms[2][3];
    het_plan_costs *costs = NULL;
    const het_cost *cost;
    het_model_desc model;
    het_error error;
    het_profile *profile;
    support_run run;
    int i, same = 1, close = 1, shorter = 1;
    (void)state;
    EXPECT_ERROR(het_model_parse("llama:layers=4,width=128,heads=4,context=120,vocab=61", &model, &error), HET_OK, error.text, "");
    support_run_start(&run, &model, 1, "120|120|120|120|120|120|120|120");
    support_run_ranks(&run, SITE_RANKS);
    compute_steadily(&run, SITE_RANKS, 0.07, 1);
    support_run_plan(&run, "pp", "1f1b", 1);
    run.plan->memory_limit = SITE_RANKS; /* as 1f1b keeps on its first rank */
    profile = profile_of(&run, 120);
    EXPECT_ERROR(het_profile_costs(profile, run.plan, NULL, HET_YES, NULL, &costs, &error), HET_OK, error.text, "");
    cost = &costs->stage[1].forward;
    forward = cost->base + 120 * cost->token + 60 * 121 * cost->pair;
    het_plan_costs_free(costs);
    for (i = 0; i < 2; i++) {
        same &= across_sites(&run, profile, passes[i] * forward, ms[i]);
        close &= ms[i][1] < 1.1 * ms[i][0] && ms[i][0] < 1.1 * ms[i][1];
        shorter &= ms[i][1] < ms[i][2];
    }
    met(same && close && shorter, "a forward pass takes %.1f ms; half of one between the sites: predicted %.1f ms, measured %.1f, 1f1b %.1f; two of "
        "them: predicted %.1f ms, measured %.1f, 1f1b %.1f", 1e3 * forward, ms[0][0], ms[0][1], ms[0][2], ms[1][0], ms[1][1],
        ms[1][2]);
    het_profile_free(profile);
    support_run_end(&run);
}

/* Parallel training without compromising convergence: bits and speed of 1 and 2 threads. */
static void row_2_13(void **state)
{
    support_run run;
    uint64_t hash[2] = { 0, 0 };
    double least[2] = { 1e30, 1e30 };
    int threads, round, step;
    (void)state;
    start(&run, HET_GPT2, 1, "120|120|120|120", 1);
    run.desc.model.context = 128, run.desc.model.width = 256, run.desc.model.heads = 8, run.desc.model.kv_heads = 8,
        run.desc.model.head_size = 32, run.desc.model.mlp_width = 1024;
    for (round = 0; round < 4; round++) /* in turns, since other programs come and go */
        for (threads = 1; threads <= 2; threads++) {
            het_ctx *ctx;
            run.device[0].threads = threads;
            ctx = support_create(&run.desc);
            for (step = 0; step < 12; step++) {
                const double begin = now(NULL);
                (void)support_step(ctx, &run.data, 0, "0123");
                if (step > 0) least[threads - 1] = fmin(least[threads - 1], now(NULL) - begin);
            }
            hash[threads - 1] = support_hash(ctx);
            het_destroy(ctx);
        }
    if (least[0] / least[1] > 2.2) met(0, "disturbed by other programs: %.1f ms with 1 thread, %.1f ms with 2", 1e3 * least[0], 1e3 * least[1]);
    met(hash[0] == hash[1] && least[0] / least[1] / 2 >= 0.7, "equal bits; a step of %.1f ms with 1 thread, %.1f ms with 2: efficiency %.2f",
        1e3 * least[0], 1e3 * least[1], least[0] / least[1] / 2);
    support_run_end(&run);
}

/* ---- the path of the data ---- */

static int64_t slow_read(void *user, uint64_t offset, void *to, size_t size)
{
    const struct timespec wait = { 0, 20000000 };
    nanosleep(&wait, NULL);
    return mapped_read(user, offset, to, size);
}

/* A token file in the folder of the tests' results, mapped: a text's first bytes. */
static void map_text(mapped_file *map, het_reader *reader, const char *path, int64_t bytes)
{
    FILE *from = fopen("tests/data/shakespeare.txt", "rb"), *to = fopen(path, "wb");
    char *room = support_alloc((size_t)bytes, 1);
    if (from == NULL || to == NULL) fail_msg("tests/data/shakespeare.txt or %s cannot be opened", path);
    assert_int_equal(fread(room, 1, (size_t)bytes, from), bytes);
    assert_int_equal(fwrite(room, 1, (size_t)bytes, to), bytes);
    fclose(from);
    fclose(to);
    free(room);
    memset(reader, 0, sizeof *reader);
    reader->size = (uint64_t)bytes, reader->name = path;
    if (!mapped_open(map, path, reader)) fail_msg("%s cannot be mapped", path);
}

/* Reproducible pipelines: the order of 1 and 4 loader threads, and a read that takes 20 ms more, beside a step that takes longer. */
static void row_0_8(void **state)
{
    enum { STEPS = 40, SEQUENCES = 3 };
    const struct timespec computing = { 0, 40000000 };
    double least[2][2], stepped = 0; /* of a step: threads, without and with delay */
    int64_t order[2][STEPS * SEQUENCES];
    mapped_file map;
    het_data_desc desc;
    het_error error;
    int slow, four;
    (void)state;
    memset(&desc, 0, sizeof desc);
    map_text(&map, &desc.reader, "build/test_systems.0.8", 64 * 64 + 1);
    desc.length = 64, desc.sequences = SEQUENCES, desc.held_out = -1, desc.seed = 5;
    for (slow = 0; slow < 2; slow++)
        for (four = 0; four < 2; four++) {
            step_loader l;
            het_data *data = NULL;
            double from = 0, begin;
            int64_t step;
            desc.slots = loader_slots(four ? 4 : 1);
            desc.reader.read = slow ? slow_read : mapped_read;
            EXPECT_ERROR(het_data_open(&desc, &data, &error), HET_OK, error.text, "");
            assert_true(loader_start(&l, data, four ? 4 : 1, 0, STEPS));
            for (step = 0; step < STEPS; step++) {
                het_batch batch;
                int64_t b;
                begin = now(NULL);
                if (step == 24) from = begin; /* an epoch has 64 windows, 21 steps: the second one */
                EXPECT_ERROR(loader_take(&l, step, &batch, &error), HET_OK, error.text, "");
                for (b = 0; b < SEQUENCES; b++) {
                    const int64_t id = batch.sample_id[b] * 1000 + batch.token[64 * b] + batch.token[64 * b + 9];
                    if (slow + four == 0) order[0][step * SEQUENCES + b] = id;
                    else if (order[0][step * SEQUENCES + b] != id) met(0, "other order: step %d", (int)step);
                }
                nanosleep(&computing, NULL); /* as long as a card or another core computes */
            }
            least[slow][four] = (now(NULL) - from) / (STEPS - 24);
            loader_end(&l);
            het_data_close(data);
        }
    stepped = least[0][1];
    mapped_close(&map);
    remove("build/test_systems.0.8");
    met(least[1][1] <= 1.1 * stepped,
        "the same %d samples by 1 and 4 threads; a step of %.1f ms takes %.1f ms where each of its 3 reads takes 20 ms more "
        "(4 threads; %.1f ms with 1)", STEPS * SEQUENCES, 1e3 * stepped, 1e3 * least[1][1], 1e3 * least[1][0]);
}

/* MIT LL: an epoch of a mapped file over three unequal ranks. The windows that each computed, by the hook that sees them. */
typedef struct counted { int count[64]; int64_t by_rank[3]; const het_batch *batch; pthread_mutex_t lock; } counted;
static het_result count_samples(void *user, const het_hook_info *info)
{
    counted *c = user;
    if (info->direction != HET_BACKWARD || info->unit != 7) return HET_OK;
    pthread_mutex_lock(&c->lock);
    c->count[c->batch[info->micro_batch].sample_id[0] % 64]++; /* sample numbers count on over epochs */
    c->by_rank[info->rank]++;
    pthread_mutex_unlock(&c->lock);
    return HET_OK;
}

static void row_3_6(void **state)
{
    static counted c;
    support_run run;
    mapped_file map;
    het_data_desc desc;
    het_data *data = NULL;
    het_data_info info;
    het_error error;
    het_ctx *ctx;
    int64_t step, m;
    int once = 1;
    (void)state;
    memset(&c, 0, sizeof c);
    memset(&desc, 0, sizeof desc);
    pthread_mutex_init(&c.lock, NULL);
    map_text(&map, &desc.reader, "build/test_systems.3.6", 56 * 48 + 1);
    start(&run, HET_LLAMA, 1, "48", 3);
    run.desc.model.vocab = 256;
    run.desc.limits.max_micro_batches = 8;
    support_run_plan(&run, "{\"pipelines\":[{\"share\":4,\"stages\":[{\"rank\":0,\"units\":[0,8]}]},{\"share\":2,\"stages\":[{\"rank\":1,"
                     "\"units\":[0,8]}]},{\"share\":2,\"stages\":[{\"rank\":2,\"units\":[0,8]}]}]}", NULL, 1);
    run.desc.host.hook = count_samples;
    run.desc.host.user = &c;
    run.desc.reduce = HET_REDUCE_FAST; /* exact sums measure the first step twice */
    desc.length = 48, desc.sequences = 1, desc.held_out = -1, desc.slots = 8;
    EXPECT_ERROR(het_data_open(&desc, &data, &error), HET_OK, error.text, "");
    het_data_get_info(data, &info);
    assert_int_equal(info.windows, 56);
    ctx = support_create(&run.desc);
    for (step = 0; step < 7; step++) {
        het_batch batch[8];
        for (m = 0; m < 8; m++) EXPECT_ERROR(het_data_batch(data, step, m, 8, m, &batch[m], &error), HET_OK, error.text, "");
        c.batch = batch;
        support_expect(het_step(ctx, batch, 8, NULL), HET_OK, het_last_error(ctx), "", "het_step", __LINE__);
    }
    for (m = 0; m < 56; m++) once = once && c.count[m] == 1;
    met(once, "%d windows of a mapped file, each computed once in an epoch, %d, %d and %d of them by three ranks", (int)info.windows,
        (int)c.by_rank[0],
        (int)c.by_rank[1], (int)c.by_rank[2]);
    het_destroy(ctx);
    het_data_close(data);
    mapped_close(&map);
    remove("build/test_systems.3.6");
    support_run_end(&run);
}

/* Local updates: a head behind each of 4 layers, stages that end there. Mean loss of the last steps, and what each step sends forward and back. */
static double local_run(support_run *run, int steps, int64_t messages[2], int64_t *bytes)
{
    enum { MICRO_BATCHES = 4, LAST = 20 };
    het_data_desc desc;
    het_data *data;
    het_error error;
    het_ctx *ctx = support_create(&run->desc);
    double loss = 0;
    int64_t r, i;
    int step;
    memset(&desc, 0, sizeof desc);
    EXPECT_ERROR(het_reader_open("tests/data/shakespeare.txt", &desc.reader, &error), HET_OK, error.text, "");
    desc.length = 64, desc.sequences = 2;
    EXPECT_ERROR(het_data_open(&desc, &data, &error), HET_OK, error.text, "");
    for (step = 0; step < steps; step++) {
        het_batch batch[MICRO_BATCHES];
        het_step_info info;
        for (i = 0; i < MICRO_BATCHES; i++)
            EXPECT_ERROR(het_data_batch(data, step, i, MICRO_BATCHES, i, &batch[i], &error), HET_OK, error.text, "");
        support_expect(het_step(ctx, batch, MICRO_BATCHES, &info), HET_OK, het_last_error(ctx), "", "het_step", __LINE__);
        if (step >= steps - LAST) loss += info.loss / LAST;
    }
    messages[0] = messages[1] = *bytes = 0;
    for (r = 0; r < run->desc.layout.device_count; r++) {
        het_timeline timeline;
        het_get_timeline(ctx, r, &timeline);
        for (i = 0; i < timeline.records; i++) {
            const het_record *record = &timeline.record[i];
            messages[0] += record->action.kind == HET_ACTION_SEND_F, messages[1] += record->action.kind == HET_ACTION_SEND_B;
            if (record->action.kind == HET_ACTION_SEND_F || record->action.kind == HET_ACTION_SEND_B) *bytes += record->bytes;
        }
    }
    het_destroy(ctx);
    het_data_close(data);
    het_reader_close(&desc.reader);
    return loss;
}

/* On devices that take a given time: which part of a step a rank is idle for behind its first forward, before its last action; the most of all
   ranks, the least of six steps. */
static double idle_behind_the_fill(int local, const char *plan)
{
    double least = 1;
    support_run run;
    het_ctx *ctx;
    int step;
    start(&run, HET_LLAMA, 1, "60|60|60|60|60|60|60|60|60|60|60|60|60|60|60|60", 4);
    run.desc.model.context = 64, run.desc.model.layers = 4, run.desc.model.width = 96, run.desc.model.heads = run.desc.model.kv_heads = 4,
        run.desc.model.head_size = 24, run.desc.model.mlp_width = 256, run.desc.model.local_loss = local;
    compute_steadily(&run, 4, 0.02, 1);
    support_run_plan(&run, plan, "1f1b", 1);
    ctx = support_create(&run.desc);
    for (step = 0; step < 6; step++) {
        double most = 0;
        int64_t r, i;
        (void)support_step(ctx, &run.data, 0, "0|1|2|3|4|5|6|7|8|9|10|11|12|13|14|15");
        for (r = 0; r < 4; r++) {
            double begin = 1e30, end = 0, busy = 0;
            het_timeline t;
            het_get_timeline(ctx, r, &t);
            for (i = 0; i < t.records; i++) {
                const het_record *a = &t.record[i];
                if (a->action.kind <= HET_ACTION_W) begin = fmin(begin, a->start), end = fmax(end, a->end), busy += a->end - a->start;
            }
            most = fmax(most, 1 - busy / (end - begin));
        }
        least = fmin(least, most);
    }
    het_destroy(ctx);
    support_run_end(&run);
    return least;
}

static void row_2_2(void **state)
{
    enum { STEPS = 400, COUNT = 16 };
    static const char *const plans[2] = { "pp:0-2|3-4|5-6|7-9", "pp:0-3|4-6|7-9|10-12" };
    int64_t messages[2][2], bytes[2], counts[1] = { COUNT }, r;
    double loss[2], makespan[2], wait[2] = { 0, 0 }, idle[2];
    het_stage_cost stage[4];
    het_costs costs;
    int local;
    (void)state;
    memset(stage, 0, sizeof stage);
    memset(&costs, 0, sizeof costs);
    for (r = 0; r < 4; r++) stage[r].forward.base = 1, stage[r].backward.base = 2;
    costs.stage = stage;
    for (local = 0; local < 2; local++) {
        support_run run;
        het_schedule *lists;
        het_simulation *simulation;
        idle[local] = idle_behind_the_fill(local, plans[local]);
        start(&run, HET_LLAMA, 1, "48", 4);
        memset(&run.desc.model, 0, sizeof run.desc.model);
        run.desc.model.family = HET_LLAMA;
        run.desc.model.layers = 4, run.desc.model.width = 64, run.desc.model.heads = 2, run.desc.model.context = 64;
        run.desc.model.local_loss = local;
        EXPECT_OK(het_model_complete(&run.desc.model, NULL));
        run.desc.limits.max_tokens = 128, run.desc.limits.max_sequences = 2, run.desc.limits.max_micro_batches = 4;
        run.desc.optimizer.learning_rate = 2e-3f, run.desc.optimizer.total_steps = STEPS;
        support_run_plan(&run, plans[local], "1f1b", 1);
        loss[local] = local_run(&run, STEPS, messages[local], &bytes[local]);
        EXPECT_OK(het_plan_cuts(&run.desc, run.plan, NULL));
        EXPECT_OK(het_schedule_make(run.plan, counts, NULL, &lists, NULL));
        EXPECT_OK(het_simulate(run.plan, lists, &costs, HET_NO, NULL, &simulation, NULL));
        makespan[local] = simulation->makespan;
        for (r = 0; r < 4; r++) wait[local] += simulation->rank[r].wait;
        het_simulation_free(simulation);
        het_schedule_free(lists);
        support_run_end(&run);
    }
    met(messages[1][0] == messages[0][0] && messages[1][1] == 0 && messages[0][1] == messages[0][0] && 2 * bytes[1] == bytes[0] &&
        wait[1] < 1e-9 && fabs(makespan[1] - (3 * COUNT + 3)) < 1e-9 && loss[1] < 1.1 * loss[0] && loss[0] < 2.6 &&
        idle[1] < 0.1 && idle[0] > 2 * idle[1],
        "4 stages, a head behind each layer: %d activations cross in a step and %d gradients, %d bytes (%d and %d, %d bytes with full "
        "backpropagation); 1F1B of %d micro-batches waits for %.0f after the fill and takes %.0f (%.0f and %.0f; F 1, B 2; simulated), run, a "
        "rank is idle for at most %.1f %% of the time behind the fill (%.1f %%); loss after %d steps %.3f, %.3f with full backpropagation: %.3f "
        "of it", (int)messages[1][0], (int)messages[1][1], (int)bytes[1], (int)messages[0][0], (int)messages[0][1], (int)bytes[0], COUNT, wait[1],
        makespan[1], wait[0], makespan[0], 100 * idle[1], 100 * idle[0], STEPS, loss[1], loss[0], loss[1] / loss[0]);
}

/* ---- which ---- */

static const struct CMUnitTest quick[] = {
    cmocka_unit_test(row_0_1), cmocka_unit_test(row_0_6), cmocka_unit_test(row_0_13), cmocka_unit_test(row_0_17), cmocka_unit_test(row_0_18),
    cmocka_unit_test(row_1_2), cmocka_unit_test(row_1_3), cmocka_unit_test(row_1_7), cmocka_unit_test(row_1_11), cmocka_unit_test(row_3_6),
    cmocka_unit_test(row_0_9), cmocka_unit_test(row_0_10), cmocka_unit_test(row_3_11), cmocka_unit_test(row_3_15), cmocka_unit_test(row_3_20),
    cmocka_unit_test(row_3_12), cmocka_unit_test(row_3_17),
};
static const struct CMUnitTest others[] = { cmocka_unit_test(row_0_3), cmocka_unit_test(row_0_4), cmocka_unit_test(row_1_9),
    cmocka_unit_test(row_1_1), cmocka_unit_test(row_1_4),
    cmocka_unit_test(row_1_10), cmocka_unit_test(row_1_13), cmocka_unit_test(row_1_15), cmocka_unit_test(row_1_17),
    cmocka_unit_test(row_1_5), cmocka_unit_test(row_1_19),
    cmocka_unit_test(row_2_14),
    cmocka_unit_test(row_3_21), cmocka_unit_test(row_3_8),
    cmocka_unit_test(row_0_8), cmocka_unit_test(row_0_19), cmocka_unit_test(row_1_18), cmocka_unit_test(row_2_13),
    cmocka_unit_test(row_2_19), cmocka_unit_test(row_3_1), cmocka_unit_test(row_3_4), cmocka_unit_test(row_3_5), cmocka_unit_test(row_2_5),
    cmocka_unit_test(row_2_2) };

int main(int argc, char **argv)
{
    char name[32];
    size_t i;
    if (argc < 2) return cmocka_run_group_tests_name("systems", quick, NULL, NULL);
    snprintf(name, sizeof name, "row_%s", argv[1]);
    for (i = 0; name[i] != 0; i++) if (name[i] == '.') name[i] = '_';
    cmocka_set_test_filter(name);
    for (i = 0; i < sizeof quick / sizeof *quick; i++)
        if (strcmp(quick[i].name, name) == 0) return cmocka_run_group_tests_name(argv[1], quick, NULL, NULL);
    for (i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i].name, name) == 0) return cmocka_run_group_tests_name(argv[1], others, NULL, NULL);
    fprintf(stderr, "test_systems: no row %s here\n", argv[1]);
    return 2;
}
