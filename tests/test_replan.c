/* het_replan: whatever plans follow each other between steps, the bits of one rank; a device never holds two blocks; what is refused, or finds no
   memory, leaves the context as it was. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#endif
#include "support.h"
#include "hetrain_plan.h"
#include "threads_transport.h"

#define STEPS 5
#define BLOCKS 6
#define RANKS 4

/* By the number of micro-batches: neighbouring blocks. */
static const char *const layouts[BLOCKS + 1] = { NULL, SUPPORT_TOGETHER, "012|345", "01|23|45", "01|2|34|5", "01|2|3|4|5", SUPPORT_APART };

/* Of one rank. */
static void start(support_run *run, het_family family)
{
    const het_model_desc model = support_deep_model(family);
    support_run_start(run, &model, STEPS, SUPPORT_SHORT);
}

/* A plan on 4 ranks: a shorthand with some schedule, or pipelines cut and shared at random that may leave ranks idle. */
static het_plan *draw_plan(const support_run *run, uint64_t *seed, char *text, size_t capacity)
{
    static const char *const schedules[] = { "1f1b", "gpipe", "zb-h1", "interleaved", "zb-v", "v-min", "terapipe", "zb-h2" };
    static const char *const shapes[] = { "pp", "dp", "dp2xpp2", "pp:0-0|1-1|2-2|3-$", "dp2xpp:0-5|6-$" };
    const char *schedule = schedules[support_below(seed, 8)];
    const int64_t units = support_run_units(run);
    char shape[40];
    const int v = schedule[0] == 'v' || strcmp(schedule, "zb-v") == 0 || schedule[0] == 'i';
    const int64_t kind = support_below(seed, 6);
    het_plan *plan;
    int64_t p, r;
    size_t at;
    if (kind < 5 || v) {
        support_last_unit(shape, sizeof shape, shapes[v ? 0 : kind % 5], run);
        plan = support_plan(shape, schedule, units, RANKS, v ? 1 : 1 + support_below(seed, 2));
        for (r = 0; r < RANKS; r++) plan->state_share[r] = (double)support_below(seed, 3), plan->near[r] = support_below(seed, 2);
        plan->state_share[support_below(seed, RANKS)] = 1; /* all 0 is refused */
        plan->shard = (het_shard)(HET_SHARD_STATE + support_below(seed, 3));
        support_draw_slices(plan, 40, seed);
        snprintf(text, capacity, "%s %s, shard %d", shape, schedule, (int)plan->shard);
        return plan;
    }
    at = (size_t)snprintf(text, capacity, "{\"schedule\":\"1f1b\",\"pipelines\":[");
    for (p = 0; p < 2; p++) {
        int64_t unit = 0, end, stage = 0;
        at += (size_t)snprintf(text + at, capacity - at, "%s{\"share\":%d,\"stages\":[", p ? "," : "", 1 + (int)support_below(seed, 3));
        for (; unit < units; unit = end, stage++) {
            end = stage == 1 ? units : unit + 1 + support_below(seed, units - unit);
            at += (size_t)snprintf(text + at, capacity - at, "%s{\"rank\":%d,\"units\":[%d,%d]}", stage ? "," : "",
                                   (int)((2 * p + stage + support_below(seed, 2)) % RANKS), (int)unit, (int)end);
        }
        at += (size_t)snprintf(text + at, capacity - at, "]}");
    }
    snprintf(text + at, capacity - at, "]}");
    return support_plan(text, NULL, units, RANKS, 1);
}

/* ---- sequences of plans ---- */

/* One rank in one piece against four that change their plan before every step, and sometimes twice. */
static void one_sequence(int round)
{
    static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_QWEN3 };
    uint64_t seed = (uint64_t)round * 6364136223846793005u + 1;
    uint8_t recompute[12] = { 0, 1, 0, 1, 1, 0 };
    support_run run;
    het_ctx *one, *ctx;
    char text[1000], what[1100];
    int step;
    start(&run, families[round % 3]);
    if (round % 2) support_draw_training(&run, &seed);
    one = support_create(&run.desc);
    support_run_mixed(&run, round % 4, &seed);
    support_run_ranks(&run, RANKS);
    if (round % 5 == 2) run.desc.layout.recompute_unit = recompute;
    if (round % 5 == 3) run.desc.layout.backward = HET_BACKWARD_SPLIT;
    if (round % 3 == 0) run.desc.layout.shard = HET_SHARD_GRADIENTS;
    ctx = support_create(&run.desc);
    for (step = 0; step < STEPS; step++) {
        het_step_info x, y;
        int64_t again = support_below(&seed, 4) == 0 ? 2 : 1, groups = BLOCKS;
        for (; again > 0; again--) {
            het_replan_desc to;
            het_plan *plan = draw_plan(&run, &seed, text, sizeof text);
            if (round % 2) support_draw_recompute(plan, &seed);
            memset(&to, 0, sizeof to);
            snprintf(what, sizeof what, "round %d, step %d: %s", round, step, text);
            groups = 1 + support_below(&seed, BLOCKS);
            to.plan = plan;
            to.max_micro_batches = groups;
            support_expect(het_replan(ctx, &to), HET_OK, het_last_error(ctx), "", what, __LINE__);
            assert_int_equal(het_get_desc(ctx)->limits.max_micro_batches, groups);
            assert_string_equal(het_get_desc(ctx)->layout.plan->schedule, plan->schedule);
            het_plan_free(plan);
        }
        assert_int_equal(het_get_step(ctx), step);
        support_same_state(one, ctx, 0, what);
        x = support_step(one, &run.data, step, SUPPORT_TOGETHER);
        y = support_step(ctx, &run.data, step, layouts[groups]);
        if (x.loss < y.loss || x.loss > y.loss || x.gradient_norm < y.gradient_norm || x.gradient_norm > y.gradient_norm)
            fail_msg("%s: loss %.17g and %.17g, norm %.17g and %.17g", what, x.loss, y.loss, x.gradient_norm, y.gradient_norm);
        if (support_hash(one) != support_hash(ctx)) fail_msg("%s: other weights", what);
    }
    het_destroy(one);
    het_destroy(ctx);
    support_run_end(&run);
}

/* HETRAIN_TEST_ROUNDS sets how many (make soak: many). */
static void plans_between_steps_do_not_show(void **state)
{
    const int rounds = support_environment("HETRAIN_TEST_ROUNDS", 20);
    int round;
    (void)state;
    for (round = 0; round < rounds; round++) one_sequence(round);
}

/* A schedule of one's own, evaluation, inference, and the shorthand for everything by default. */
static void what_else_a_context_does_goes_on(void **state)
{
    support_run run;
    het_replan_desc to;
    het_plan *plan = support_plan("pp", "gpipe", 8, RANKS, 1);
    het_schedule *schedule = NULL;
    int64_t counts[1] = { 3 };
    het_timeline timeline;
    het_step_info x, y;
    het_ctx *one, *ctx;
    het_error error;
    int32_t token[7] = { 1, 5, 7, 2, 9, 11, 3 };
    float logits[2][700];
    size_t row;
    int mode;
    (void)state;
    for (mode = 0; mode < 2; mode++) {
        start(&run, HET_LLAMA);
        row = (size_t)run.desc.model.vocab * sizeof **logits;
        run.desc.inference = mode ? HET_YES : HET_NO;
        one = support_create(&run.desc);
        support_run_ranks(&run, RANKS);
        run.desc.layout.shard = HET_SHARD_GRADIENTS;
        ctx = support_create(&run.desc);
        if (!mode) (void)support_step(one, &run.data, 0, layouts[1]), (void)support_step(ctx, &run.data, 0, layouts[4]);
        memset(&to, 0, sizeof to);
        EXPECT_OK(het_schedule_make(plan, counts, NULL, &schedule, &error));
        to.plan = plan;
        to.schedule = schedule;
        to.max_micro_batches = 3;
        to.max_tokens = 2 * run.data.tokens;
        to.max_sequences = 2 * run.data.sequences;
        EXPECT_OK(het_replan(ctx, &to));
        assert_int_equal(het_get_desc(ctx)->limits.max_tokens, 2 * run.data.tokens);
        assert_int_equal(het_get_desc(ctx)->limits.max_sequences, 2 * run.data.sequences);
        het_get_timeline(ctx, 1, &timeline);
        assert_int_equal(timeline.records, 0);
        assert_true(mode == 1 || timeline.traffic[2].reductions > 0); /* to the next of the ring, since the context was made */
        if (!mode) EXPECT_ERROR(het_parameter_read(ctx, 0, HET_GRADIENT, logits[0]), HET_ERR_STATE, het_last_error(ctx), "no gradient");
        EXPECT_OK(het_evaluate(one, &run.data.block[1][0].batch, 1, &x));
        EXPECT_OK(het_evaluate(ctx, &run.data.block[1][0].batch, 1, &y));
        assert_true(x.loss == y.loss);
        EXPECT_OK(het_infer(one, token, 7, 0, logits[0]));
        EXPECT_OK(het_infer(ctx, token, 4, 0, logits[1]));
        EXPECT_OK(het_infer(ctx, token + 4, 3, 4, logits[1]));
        assert_memory_equal(logits[0], logits[1], row);
        EXPECT_OK(het_replan(ctx, NULL)); /* every rank has everything */
        assert_int_equal(het_get_desc(ctx)->layout.plan->pipelines, RANKS);
        EXPECT_ERROR(het_infer(ctx, token + 4, 3, 4, logits[1]), HET_ERR_STATE, het_last_error(ctx), "past is 4");
        EXPECT_OK(het_infer(ctx, token, 7, 0, logits[1]));
        assert_memory_equal(logits[0], logits[1], row);
        if (!mode) (void)support_step(one, &run.data, 1, layouts[1]), (void)support_step(ctx, &run.data, 1, layouts[3]);
        assert_true(support_hash(one) == support_hash(ctx));
        het_destroy(one);
        het_destroy(ctx);
        het_schedule_free(schedule);
        support_run_end(&run);
    }
    het_plan_free(plan);
}

/* ---- memory ---- */

/* Bytes of device memory that each rank's device has now and had at most; blocks by address. */
typedef struct device_memory { void *self[RANKS]; size_t now[RANKS], peak[RANKS]; } device_memory;
static device_memory device_memories;

static size_t *device_bytes(void *self, size_t **peak)
{
    int i;
    for (i = 0; device_memories.self[i] != NULL && device_memories.self[i] != self; i++) {}
    device_memories.self[i] = self;
    *peak = &device_memories.peak[i];
    return &device_memories.now[i];
}

static void *watched_alloc(void *self, size_t size)
{
    size_t *peak, *now = device_bytes(self, &peak);
    *now += size;
    if (*now > *peak) *peak = *now;
    return het_cpu_device()->alloc(self, size);
}

static void watched_free(void *self, void *pointer, size_t size)
{
    size_t *peak, *now = device_bytes(self, &peak);
    assert_true(*now >= size);
    *now -= size;
    het_cpu_device()->free(self, pointer, size);
}

/* No device holds more than the larger of the two plans asks for, the sizes are those of a context made with the new plan, and steps allocate
   nothing afterwards. */
static void devices_never_hold_two_plans(void **state)
{
    het_device_iface watched = *het_cpu_device();
    uint64_t seed = 9;
    support_run run;
    het_ctx *ctx;
    support_memory memory;
    het_memory before[RANKS], after, estimate;
    int round, i;
    (void)state;
    watched.alloc = watched_alloc;
    watched.free = watched_free;
    memset(&device_memories, 0, sizeof device_memories);
    start(&run, HET_GPT2);
    for (i = 0; i < RANKS; i++) run.device[i].iface = &watched;
    support_run_ranks(&run, RANKS);
    run.desc.host.allocator = support_allocator(&memory);
    ctx = support_create(&run.desc);
    for (i = 0; i < RANKS; i++) het_get_memory(ctx, i, &before[i]);
    for (round = 0; round < 12; round++) {
        char text[1000];
        het_plan *plan = draw_plan(&run, &seed, text, sizeof text);
        device_memory watched_before = device_memories;
        het_replan_desc to;
        het_error error;
        int64_t calls;
        memset(&to, 0, sizeof to);
        to.plan = plan;
        for (i = 0; i < RANKS; i++) device_memories.peak[i] = device_memories.now[i];
        EXPECT_OK(het_replan(ctx, &to));
        watched_before = device_memories;
        for (i = 0; i < RANKS; i++) {
            const size_t old = before[i].device;
            het_desc same = run.desc;
            same.layout.plan = plan;
            het_get_memory(ctx, i, &after);
            assert_int_equal(watched_before.now[i], after.device);
            assert_int_equal(watched_before.peak[i], old > after.device ? old : after.device);
            memset(&device_memories, 0, sizeof device_memories);
            EXPECT_OK(het_memory_estimate(&same, i, &estimate, &error));
            device_memories = watched_before;
            assert_memory_equal(&estimate, &after, sizeof after);
            before[i] = after;
        }
        calls = memory.calls;
        (void)support_step(ctx, &run.data, round, layouts[BLOCKS]);
        assert_int_equal(memory.calls, calls);
        het_plan_free(plan);
    }
    het_destroy(ctx);
    assert_int_equal(memory.live, 0);
    assert_int_equal(memory.bytes, 0);
    assert_int_equal(memory.wrong, 0);
    support_run_end(&run);
}

/* Fails one call, or that one and all after it. */
typedef struct failing { support_memory memory; het_allocator inner; int64_t calls, from, to; } failing;
static void *failing_alloc(void *user, size_t size, size_t align)
{
    failing *f = (failing *)user;
    const int64_t call = f->calls++;
    return call >= f->from && call < f->to ? NULL : f->inner.alloc(f->inner.user, size, align);
}
static void failing_free(void *user, void *pointer, size_t size)
{
    failing *f = (failing *)user;
    f->inner.free(f->inner.user, pointer, size);
}

/* Every allocation of a re-plan fails once: the old plan is back, and trains on with the same bits. Or all fail from one on: the same, or, where
   the old plan's memory is gone, an end that says so. */
static void missing_memory_loses_nothing(void **state)
{
    support_run run;
    het_plan *plan;
    uint64_t expected;
    het_ctx *ctx;
    int all, lost = 0, kept = 0;
    (void)state;
    start(&run, HET_GPT2);
    ctx = support_create(&run.desc);
    (void)support_step(ctx, &run.data, 0, layouts[2]);
    (void)support_step(ctx, &run.data, 1, layouts[2]);
    expected = support_hash(ctx);
    het_destroy(ctx);
    run.device[1].threads = 2;
    support_run_ranks(&run, 3);
    plan = support_plan("pp", "zb-h1", 8, 3, 1);
    for (all = 0; all < 2; all++) {
        het_result result = HET_ERR_OOM;
        int64_t k;
        for (k = 0; result != HET_OK; k++) {
            het_replan_desc to;
            failing f;
            memset(&to, 0, sizeof to);
            memset(&f, 0, sizeof f);
            f.inner = support_allocator(&f.memory);
            f.from = INT64_MAX;
            f.to = INT64_MAX;
            run.desc.host.allocator.alloc = failing_alloc;
            run.desc.host.allocator.free = failing_free;
            run.desc.host.allocator.user = &f;
            to.plan = plan;
            ctx = support_create(&run.desc);
            (void)support_step(ctx, &run.data, 0, layouts[4]);
            f.from = f.calls + k;
            f.to = all ? INT64_MAX : f.from + 1;
            result = het_replan(ctx, &to);
            f.from = INT64_MAX;
            if (result != HET_OK && result != HET_ERR_OOM) fail_msg("allocation %d: %s", (int)k, het_last_error(ctx));
            if (result == HET_ERR_OOM && strstr(het_last_error(ctx), "lost") != NULL) {
                assert_int_equal(all, 1);
                lost++;
                assert_int_equal(het_step(ctx, &run.data.block[0][0].batch, 1, NULL), HET_ERR_STATE);
                assert_int_equal(het_replan(ctx, &to), HET_ERR_STATE);
            } else {
                kept += result != HET_OK;
                assert_string_equal(het_get_desc(ctx)->layout.plan->schedule, result == HET_OK ? "zb-h1" : "");
                (void)support_step(ctx, &run.data, 1, layouts[4]);
                if (support_hash(ctx) != expected) fail_msg("allocation %d: other weights", (int)k);
            }
            het_destroy(ctx);
            assert_int_equal(f.memory.live, 0);
            assert_int_equal(f.memory.bytes, 0);
            assert_int_equal(f.memory.wrong, 0);
        }
        assert_true(k > 10);
    }
    assert_true(lost == 3 && kept > 10); /* the three blocks of device memory */
    het_plan_free(plan);
    support_run_end(&run);
}

/* ---- what is refused ---- */

static void refused(het_ctx *ctx, const het_replan_desc *to, het_result code, const char *words)
{
    EXPECT_ERROR(het_replan(ctx, to), code, het_last_error(ctx), words);
}

static void bad_plans_leave_everything_as_it_was(void **state)
{
    support_run run;
    het_link link, changed;
    het_replan_desc to;
    het_plan *other;
    het_schedule *schedule = NULL;
    het_memory before, after;
    int64_t counts[1] = { 2 };
    het_error error;
    het_ctx *ctx, *base;
    (void)state;
    memset(&link, 0, sizeof link);
    link.to = 1;
    start(&run, HET_GPT2);
    base = support_create(&run.desc);
    support_run_ranks(&run, 2);
    run.desc.emulate.links = &link;
    run.desc.emulate.link_count = 1;
    support_run_plan(&run, "pp:0-5|6-7", "1f1b", 1);
    EXPECT_OK(het_memory_estimate(&run.desc, 1, &before, &error));
    run.device[1].memory_limit = before.device + before.communication;
    ctx = support_create(&run.desc);
    (void)support_step(base, &run.data, 0, layouts[1]);
    (void)support_step(ctx, &run.data, 0, layouts[3]);
    memset(&to, 0, sizeof to);
    to.plan = other = support_plan("pp", "1f1b", 7, 2, 1);
    refused(ctx, &to, HET_ERR_INVALID, "7 units|8 units");
    het_plan_free(other);
    to.plan = other = support_plan("pp", "1f1b", 8, 3, 1);
    refused(ctx, &to, HET_ERR_INVALID, "3 ranks|2 ranks");
    het_plan_free(other);
    to.plan = other = support_plan("pp:0-1|2-7", "1f1b", 8, 2, 1);
    refused(ctx, &to, HET_ERR_LIMIT, "rank 1|memory_limit");
    snprintf(other->schedule, sizeof other->schedule, "zb-9");
    refused(ctx, &to, HET_ERR_INVALID, "zb-9");
    other->stage[1].rank = 2;
    refused(ctx, &to, HET_ERR_INVALID, "het_replan|rank 2");
    other->stage[1].rank = 1;
    other->stage[1].unit_begin = 3;
    refused(ctx, &to, HET_ERR_INVALID, "het_replan|unit");
    het_plan_free(other);
    EXPECT_OK(het_schedule_make(run.plan, counts, NULL, &schedule, &error));
    to.plan = run.plan;
    to.schedule = schedule; /* for 2 micro-batches, the limit is 6 */
    refused(ctx, &to, HET_ERR_INVALID, "2 micro-batches|is 6");
    to.schedule = NULL;
    to.max_tokens = -4;
    refused(ctx, &to, HET_ERR_INVALID, "max_tokens is -4");
    to.max_tokens = 0;
    to.max_sequences = INT64_C(1) << 40;
    refused(ctx, &to, HET_ERR_INVALID, "max_sequences|1099511627776");
    to.max_sequences = 0;
    to.max_micro_batches = -1;
    refused(ctx, &to, HET_ERR_INVALID, "max_micro_batches is -1");
    memset(&to, 0xCD, sizeof to);
    refused(ctx, &to, HET_ERR_INVALID, "canar|cdcdcdcd");
    assert_int_equal(het_replan(NULL, NULL), HET_ERR_INVALID);
    EXPECT_ERROR(het_set_speed(ctx, 2, 0.5), HET_ERR_INVALID, het_last_error(ctx), "rank 2 of 2");
    EXPECT_ERROR(het_set_speed(ctx, 0, 0.0), HET_ERR_INVALID, het_last_error(ctx), "speed 0");
    EXPECT_ERROR(het_set_speed(ctx, 0, 1.5), HET_ERR_INVALID, het_last_error(ctx), "speed 1.5");
    EXPECT_ERROR(het_broadcast(ctx, 1, counts, 8), HET_ERR_INVALID, het_last_error(ctx), "process 1 of 1");
    EXPECT_OK(het_broadcast(ctx, 0, counts, sizeof counts));
    changed = link;
    EXPECT_ERROR(het_set_link(ctx, NULL), HET_ERR_INVALID, het_last_error(ctx), "NULL");
    changed.to = 7;
    EXPECT_ERROR(het_set_link(ctx, &changed), HET_ERR_INVALID, het_last_error(ctx), "and 7|emulated");
    changed.from = link.to, changed.to = link.from, changed.latency = -1;
    EXPECT_ERROR(het_set_link(ctx, &changed), HET_ERR_INVALID, het_last_error(ctx), "latency -1");
    changed.latency = 1e-3, changed.bandwidth = 0.5;
    EXPECT_ERROR(het_set_link(ctx, &changed), HET_ERR_INVALID, het_last_error(ctx), "0.5 bytes");
    changed.bandwidth = link.bandwidth;
    EXPECT_OK(het_set_link(ctx, &changed));
    EXPECT_ERROR(het_set_speed(ctx, 0, 1e-300), HET_ERR_INVALID, het_last_error(ctx), "1e-300|0.001");
    EXPECT_OK(het_set_speed(ctx, 0, 0.5));
    assert_true(het_get_desc(ctx)->layout.devices[0].speed == 0.5);
    assert_string_equal(het_last_error(ctx), "");
    run.device[1].memory_limit = 0;
    EXPECT_OK(het_memory_estimate(&run.desc, 1, &before, &error));
    het_get_memory(ctx, 1, &after);
    assert_memory_equal(&before, &after, sizeof after);
    (void)support_step(base, &run.data, 1, layouts[1]);
    (void)support_step(ctx, &run.data, 1, layouts[6]);
    support_same_state(base, ctx, 0, "after refusals");
    het_destroy(base);
    het_destroy(ctx);
    het_schedule_free(schedule);
    support_run_end(&run);
}

/* ---- a transport that refuses ---- */

typedef struct process {
    het_desc desc;
    het_plan *second;
    support_data *data;
    het_result result;
    int32_t status;
    char text[1000];
} process;

static pthread_mutex_t refusal_lock = PTHREAD_MUTEX_INITIALIZER;
static struct { int armed, calls, at; } refusal; /* process 0's calls of isend in het_replan, and the one that is refused */

static int refusal_comes(void)
{
    int comes;
    pthread_mutex_lock(&refusal_lock);
    comes = refusal.armed && refusal.calls++ == refusal.at;
    pthread_mutex_unlock(&refusal_lock);
    return comes;
}

static het_result refusing_isend(void *self, int64_t to, uint32_t channel, const void *data, size_t size, het_request *request)
{
    if (!refusal_comes()) return threads_isend(self, to, channel, data, size, request);
    threads_abort(self, HET_ERR_TRANSPORT, "planted"); /* as if another process had, just now */
    return HET_ERR_TRANSPORT;
}

/* A step, then another plan. */
static void *replan_on_a_thread(void *argument)
{
    process *p = argument;
    het_ctx *ctx = support_create(&p->desc);
    het_replan_desc to;
    (void)support_step(ctx, p->data, 0, SUPPORT_APART);
    memset(&to, 0, sizeof to);
    to.plan = p->second;
    pthread_mutex_lock(&refusal_lock);
    if (p->desc.layout.transport.iface != &threads_iface) refusal.armed = 1;
    pthread_mutex_unlock(&refusal_lock);
    p->result = het_replan(ctx, &to);
    p->status = het_get_status(ctx);
    snprintf(p->text, sizeof p->text, "%s", het_last_error(ctx));
    het_destroy(ctx);
    return NULL;
}

/* Whichever message of a replan the transport does not take: both processes have an error in time, and contexts that know that they have ended. */
static void refused_messages_end_a_context(void **state)
{
    het_transport_iface refuses = threads_iface;
    int64_t refusals = 0;
    (void)state;
    refuses.isend = refusing_isend;
    for (refusal.at = 0;; refusal.at++) {
        threads_world world;
        threads_end end[2];
        het_transport transport[2];
        support_run run;
        process p[2];
        pthread_t thread;
        het_plan *second;
        int i;
        refusal.calls = refusal.armed = 0;
        memset(p, 0, sizeof p);
        start(&run, HET_GPT2);
        support_run_ranks(&run, 1);
        second = support_plan("pp", "1f1b", support_run_units(&run), 2, 1);
        threads_open(&world, end, transport, 2, 0);
        transport[0].iface = &refuses;
        for (i = 0; i < 2; i++) {
            p[i].desc = run.desc;
            p[i].desc.layout.transport = transport[i];
            p[i].desc.layout.stall_deadline = 20;
            p[i].second = second;
            p[i].data = &run.data;
        }
        assert_int_equal(pthread_create(&thread, NULL, replan_on_a_thread, &p[1]), 0);
        (void)replan_on_a_thread(&p[0]);
        (void)pthread_join(thread, NULL);
        het_plan_free(second);
        support_run_end(&run);
        if (refusal.calls <= refusal.at) {
            assert_true(p[0].result == HET_OK && p[1].result == HET_OK && p[0].status == 0 && p[1].status == 0);
            break;
        }
        refusals++;
        for (i = 0; i < 2; i++)
            if (p[i].result == HET_OK || (p[i].status & HET_FAILED) == 0)
                fail_msg("call %d, process %d: result %d, status %d: %s", refusal.at, i, (int)p[i].result, (int)p[i].status, p[i].text);
    }
    print_message("# %d messages\n", (int)refusals);
    assert_true(refusals > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_between_steps_do_not_show),
        cmocka_unit_test(what_else_a_context_does_goes_on),
        cmocka_unit_test(devices_never_hold_two_plans),
        cmocka_unit_test(missing_memory_loses_nothing),
        cmocka_unit_test(bad_plans_leave_everything_as_it_was),
        cmocka_unit_test(refused_messages_end_a_context),
    };
    return cmocka_run_group_tests_name("replan", tests, NULL, NULL);
}
