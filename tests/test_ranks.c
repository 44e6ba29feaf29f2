/* Several ranks: whatever the plan, schedule, shares, slices, links and threads, the bits of one rank; messages and bytes as the formulas
   say; ranks that fail or fall silent are named by the others, in time, and nothing is lost but the context. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#endif
#include "support.h"

#include <pthread.h>
#include <time.h>

#include "hetrain_files.h"
#include "threads_transport.h"

#define STEPS 3

/* Under no plan but the default one. */
static void start(support_run *run, het_family family, int64_t ranks)
{
    const het_model_desc model = support_deep_model(family);
    support_run_start(run, &model, STEPS, SUPPORT_SHORT);
    support_run_ranks(run, ranks);
    run->desc.layout.deadline = 20.0;
}

static void refused(const het_desc *bad, het_result code, const char *words)
{
    het_ctx *ctx;
    het_error error;
    EXPECT_ERROR(het_create(bad, &ctx, &error), code, error.text, words);
}

/* A context that has made its first step, with the micro-batches of that step. */
typedef struct stepped {
    support_run run;
    support_group group;
    het_ctx *ctx;
} stepped;

static void step_start(stepped *s)
{
    s->ctx = support_create(&s->run.desc);
    support_group_start(&s->group, &s->run.data, 0, SUPPORT_APART);
    support_expect(het_step(s->ctx, s->group.batch, s->group.count, NULL), HET_OK, het_last_error(s->ctx), "", "het_step", __LINE__);
}

static void step_end(stepped *s)
{
    het_destroy(s->ctx);
    support_group_end(&s->group);
    support_run_end(&s->run);
}

/* ---- the matrix ---- */

typedef struct shape { const char *schedule; int least, most; int splits, slices; } shape; /* ranks; schedules that make I and W; that slice */
static const shape shapes[] = {
    { "1f1b", 1, 4, 0, 1 }, { "gpipe", 1, 4, 0, 1 }, { "zb-h1", 1, 4, 1, 1 }, { "zb-h2", 1, 4, 1, 1 }, { "greedy", 1, 4, 1, 1 },
    { "interleaved", 2, 4, 0, 0 }, { "zb-v", 1, 4, 1, 0 }, { "v-half", 1, 4, 1, 0 }, { "v-min", 1, 4, 1, 0 }, { "bidirectional", 2, 4, 0, 0 },
    { "bitpipe", 2, 4, 0, 0 },
    { "terapipe", 1, 4, 0, 1 }, { "sliced-1f1b", 1, 4, 0, 1 }, { "dualpipev", 2, 2, 1, 0 },
};
enum { SHAPES = (int)(sizeof shapes / sizeof shapes[0]) };

/* A plan's text: pp, dp, dp2xpp2, or JSON of ragged pipelines that share their ranks in some way. */
static void draw_plan(uint64_t *seed, const shape *s, int64_t ranks, int64_t units, char *text, size_t capacity)
{
    int64_t kind = support_below(seed, 4), i, p, at;
    int plain = strcmp(s->schedule, "1f1b") == 0 || strcmp(s->schedule, "gpipe") == 0 || strcmp(s->schedule, "zb-h1") == 0 || strcmp(s->schedule,
            "terapipe") == 0;
    snprintf(text, capacity, "pp");
    if (!plain || ranks == 1) return;
    if (kind == 0) snprintf(text, capacity, "dp");
    if (kind == 1 && ranks == 4) snprintf(text, capacity, "dp2xpp2");
    if (kind != 2) return;
    at = snprintf(text, capacity, "{\"schedule\":\"%s\",\"pipelines\":[", s->schedule);
    for (p = 0; p < 2; p++) { /* the first over ranks 0 .. r - 1, the second over the others, cut at random; or the second over all */
        int64_t first = p == 0 ? 0 : 1 + support_below(seed, ranks - 1), stages = p == 0 ? first = 0, 1 + support_below(seed,
                ranks) : ranks - first, unit = 0;
        at += snprintf(text + at, capacity - (size_t)at, "%s{\"share\":%d,\"stages\":[", p ? "," : "", 1 + (int)support_below(seed, 3));
        for (i = 0; i < stages; i++) {
            int64_t end = i == stages - 1 ? units : unit + 1 + support_below(seed, units - unit - (stages - 1 - i));
            at += snprintf(text + at, capacity - (size_t)at, "%s{\"rank\":%d,\"units\":[%d,%d],\"recompute\":%s}", i ? "," : "", (int)(first + i),
                           (int)unit, (int)end,
                           support_below(seed, 2) ? "true" : "false");
            unit = end;
        }
        at += snprintf(text + at, capacity - (size_t)at, "]}");
    }
    snprintf(text + at, capacity - (size_t)at, "],\"state_shares\":[%d,%d,%d,%d]}", (int)support_below(seed, 4), 1, (int)support_below(seed, 4), 2);
    if (ranks < 4) /* as many shares as ranks */
        snprintf(strstr(text, ",\"state_shares\""), 40, ",\"state_shares\":[%s]}", ranks == 2 ? "1,3" : "0,1,2");
}

static void one_layout(int round)
{
    static const het_family families[] = { HET_GPT2, HET_LLAMA };
    uint64_t seed = (uint64_t)round * 7919 + 5;
    const shape *s = &shapes[round % SHAPES];
    const int dualpipev = strcmp(s->schedule, "dualpipev") == 0;
    const het_family family = families[support_below(&seed, 2)];
    const int64_t ranks = s->least + support_below(&seed, s->most - s->least + 1), slices = s->slices ? 1 + support_below(&seed, 3) : 1;
    char order[] = "012345", layout[2 * sizeof order], text[1200], what[1600];
    int cut[sizeof order] = { 1 };
    support_result base;
    support_run run;
    int64_t i, at = 0;
    start(&run, family, 1);
    if (support_below(&seed, 2)) run.desc.model.dropout = 0.2f;
    if (round % 2) support_draw_training(&run, &seed);
    if (round % 2 == 1) run.desc.limits.max_micro_batches = 1; /* sums are made at once */
    base = support_train(&run, SUPPORT_TOGETHER);
    run.desc.limits.max_micro_batches = run.data.blocks;
    support_run_mixed(&run, round % 4, &seed);
    support_run_ranks(&run, ranks);
    for (i = run.data.blocks - 1; i > 0; i--) {
        const int64_t k = support_below(&seed, i + 1);
        const char keep = order[i];
        order[i] = order[k];
        order[k] = keep;
        cut[i] = support_below(&seed, 3) > 0 || dualpipev;
    }
    for (i = 0; i < run.data.blocks; i++) {
        layout[at++] = order[i];
        if (cut[i] && i < run.data.blocks - 1) layout[at++] = '|';
    }
    layout[at] = 0;
    run.desc.layout.backward = s->splits ? HET_BACKWARD_FUSED : (het_backward)(HET_BACKWARD_FUSED + support_below(&seed, 3));
    run.desc.layout.recompute = support_below(&seed, 2) ? HET_YES : HET_NO;
    run.desc.layout.shard = (het_shard)(HET_SHARD_STATE + round / SHAPES % 3);
    draw_plan(&seed, s, ranks, support_run_units(&run), text, sizeof text);
    support_run_plan(&run, text, s->schedule, slices);
    if (text[0] != '{' && ranks > 1) run.plan->state_share[support_below(&seed, ranks)] = 3.0;
    for (i = 0; i < run.plan->stages; i++) run.plan->stage[i].store = (int32_t)support_below(&seed, 3);
    if (round % 3) support_draw_recompute(run.plan, &seed);
    support_draw_slices(run.plan, 40, &seed);
    snprintf(what, sizeof what, "round %d: %s, %d ranks, %d slices, backward %d, shard %d, store %d in the first stage, losses %d, weights %d, %s",
             round, s->schedule, (int)ranks, (int)slices, (int)run.desc.layout.backward, (int)run.desc.layout.shard, (int)run.plan->stage[0].store,
             (int)run.desc.model.local_loss, (int)run.desc.weights, text);
    support_train_same(&base, &run, layout, what);
    support_run_end(&run);
}

/* A long sequence in slices and packed short ones in one piece, in one step: the bits of one rank, and nothing at all is done for slices without
   rows. 1,100 tokens are three pieces for four slices, 600 are two for two. */
static void short_micro_batches_are_not_cut(void **state)
{
    static const char *const schedules[] = { "1f1b", "sliced-1f1b", "terapipe", "zb-h1" };
    static const char *const layout = "0|1|2|3";
    static const int with_rows[4][4] = { { 1, 1, 0, 1 }, { 0, 0, 0, 1 }, { 0, 0, 1, 1 }, { 0, 0, 0, 1 } };
    uint64_t seed = 5;
    het_model_desc model = support_deep_model(HET_LLAMA);
    support_result base;
    support_run run;
    int s, m;
    (void)state;
    model.context = 1200;
    support_run_start(&run, &model, 2, "1100|30,30,30,38|600|7,5");
    base = support_train(&run, layout);
    for (s = 0; s < 8; s++) {
        int slices[4][4] = { { 0 } };
        het_timeline t;
        het_ctx *ctx;
        int64_t i, r;
        char what[64];
        support_run_ranks(&run, 3);
        support_run_plan(&run, "pp", schedules[s % 4], 4);
        run.plan->slice_tokens = 256;
        if (s >= 4) support_draw_recompute(run.plan, &seed), run.plan->stage[1].store = 1;
        snprintf(what, sizeof what, "%s in 4 slices of at least 256", schedules[s % 4]);
        support_train_same(&base, &run, layout, what);
        ctx = support_create(&run.desc);
        (void)support_step(ctx, &run.data, 1, layout);
        for (r = 0; r < 3; r++) {
            het_get_timeline(ctx, r, &t);
            for (i = 0; i < t.records; i++)
                if (t.record[i].action.kind < HET_ACTION_REDUCE) slices[t.record[i].action.micro_batch][t.record[i].action.slice]++;
        }
        for (m = 0; m < 4; m++)
            for (i = 0; i < 4; i++) assert_true((slices[m][i] > 0) == with_rows[m][i]);
        het_destroy(ctx);
    }
    support_run_end(&run);
}

/* Keys and values that lie with their slices: the bits of one rank in training, evaluation and generation, whatever is split, recomputed or seen. In
   slices of 512 tokens, which one sequence has, they do; where slices may have a granule more, whole micro-batches of them take less. */
static void slices_keep_keys_and_values(void **state)
{
    static const struct { const char *schedule, *plan; int64_t ranks, slices; } cases[] = {
        { "sliced-1f1b", "pp", 3, 3 }, { "1f1b", "pp", 3, 3 }, { "zb-h1", "pp", 3, 3 }, { "zb-v", "pp", 2, 3 }, { "interleaved", "pp", 2, 3 },
        { "sliced-1f1b", "dp2xpp2", 4, 3 }
    };
    static const char *const layout = "0|1|2|3|4";
    static int64_t irregular[5] = { 0, 500, 1012, 1524, 1536 };
    uint64_t seed = 7;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        het_model_desc model = support_deep_model(i % 3 == 0 ? HET_GPT2 : i % 3 == 1 ? HET_LLAMA : HET_QWEN3);
        float logits[2][97];
        support_group group;
        support_run run;
        het_step_info x, y;
        het_memory memory[2];
        het_batch batch;
        het_error error;
        het_ctx *one, *ctx;
        model.context = 1536, model.vocab = 97, model.layers = 2;
        if (i % 2) model.window = 700;
        support_run_start(&run, &model, 1, "1536|1300|1100|1536|512");
        run.desc.limits.max_tokens = 1536, run.desc.limits.max_sequences = 1;
        one = support_create(&run.desc);
        support_run_ranks(&run, cases[i].ranks);
        support_run_plan(&run, cases[i].plan, cases[i].schedule, cases[i].slices);
        if (i % 2) support_draw_recompute(run.plan, &seed);
        if (i == 1 || i == 3) run.plan->stage[0].recompute_units = 0;
        if (i == 1) run.plan->stage[0].recompute = HET_RECOMPUTE_UNIT, run.plan->stage[0].keep = 6; /* what het_infer takes is lean */
        if (i == 3) run.plan->stage[0].recompute = HET_RECOMPUTE_STAGE, run.plan->stage[0].keep = 5, run.plan->stage[1].store = 1;
        if (i == 4) run.plan->stage[1].store = 1;
        ctx = support_create(&run.desc);
        support_group_start(&group, &run.data, 0, layout);
        EXPECT_OK(het_step(one, group.batch, group.count, NULL));
        EXPECT_OK(het_step(ctx, group.batch, group.count, NULL));
        support_same_state(one, ctx, 0, cases[i].schedule);
        EXPECT_OK(het_evaluate(one, group.batch, group.count, &x));
        EXPECT_OK(het_evaluate(ctx, group.batch, group.count, &y));
        assert_true(x.loss == y.loss && x.tokens == y.tokens);
        EXPECT_OK(het_infer(one, group.batch[0].token, 709, 0, logits[0]));
        EXPECT_OK(het_infer(ctx, group.batch[0].token, 700, 0, logits[1]));
        EXPECT_OK(het_infer(ctx, group.batch[0].token + 700, 9, 700, logits[1]));
        assert_memory_equal(logits[0], logits[1], sizeof *logits);
        batch = group.batch[0];
        batch.granules = 4, batch.granule_start = irregular;
        support_expect(het_step(ctx, &batch, 1, NULL), HET_ERR_LIMIT, het_last_error(ctx),
                       "micro-batch 0: slice 2|524 tokens|planned is 512", "het_step", __LINE__);
        EXPECT_OK(het_memory_estimate(&run.desc, 0, &memory[0], &error));
        run.desc.limits.max_sequences = 2;
        EXPECT_OK(het_memory_estimate(&run.desc, 0, &memory[1], &error));
        if (strcmp(cases[i].schedule, "sliced-1f1b") == 0) assert_true((double)memory[0].activations < 0.7 * (double)memory[1].activations);
        support_group_end(&group);
        het_destroy(ctx);
        het_destroy(one);
        support_run_end(&run);
    }
}

/* Where nothing makes lists of a name the engine has its own: 1F1B on ranks of one stage, else all forwards before all backwards. */
static void plans_without_a_name_have_lists(void **state)
{
    static const struct { const char *text, *schedule; int64_t ranks, slices, first_backward; } cases[] = {
        { "pp", "1f1b", 4, 1, 1 }, { "pp", "1f1b", 3, 2, 2 }, { "pp", "interleaved", 2, 1, 12 }, { "pp", "zb-v", 2, 2, 12 }, { "dp", NULL, 2, 1, 1 }
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        support_result base;
        support_run run;
        het_timeline timeline;
        het_ctx *ctx;
        int64_t k, last = cases[i].ranks - 1;
        start(&run, HET_LLAMA, 1);
        base = support_train(&run, SUPPORT_TOGETHER);
        support_run_ranks(&run, cases[i].ranks);
        support_run_plan(&run, cases[i].text, cases[i].schedule, cases[i].slices);
        run.plan->make = NULL;
        run.plan->schedule[0] = 0;
        support_train_same(&base, &run, SUPPORT_APART, cases[i].text);
        ctx = support_create(&run.desc);
        (void)support_step(ctx, &run.data, 0, SUPPORT_APART);
        het_get_timeline(ctx, last, &timeline);
        for (k = 0, last = 0; k < timeline.records && timeline.record[k].action.kind != HET_ACTION_B; k++)
            last += timeline.record[k].action.kind == HET_ACTION_F;
        assert_int_equal(last, cases[i].first_backward);
        het_destroy(ctx);
        support_run_end(&run);
    }
}

/* HETRAIN_TEST_ROUNDS sets how many (make soak: many). */
static void every_layout_has_the_same_bits(void **state)
{
    const int rounds = support_environment("HETRAIN_TEST_ROUNDS", 52);
    int round;
    (void)state;
    for (round = 0; round < rounds; round++) one_layout(round);
}

/* Blocks whose parts travel in more chunks than may be under way at once: 8 x 192 x 192 elements, shared 5:1 and 1:1:1. */
static void large_blocks_travel_in_chunks(void **state)
{
    het_model_desc model;
    het_error error;
    support_run run;
    support_result base;
    int ranks, far;
    (void)state;
    assert_int_equal(het_model_parse("gpt2:layers=1,width=192,heads=3,vocab=64,context=64", &model, &error), HET_OK);
    support_run_start(&run, &model, 2, SUPPORT_SHORT);
    base = support_train(&run, SUPPORT_TOGETHER);
    for (ranks = 2; ranks <= 3; ranks++)
        for (far = ranks == 3; far < 2; far++) {
            uint64_t seed = 1;
            char what[40];
            snprintf(what, sizeof what, "%d ranks, far %d", ranks, far);
            if (far) support_run_mixed(&run, 1, &seed);
            support_run_ranks(&run, ranks);
            support_run_plan(&run, "dp", NULL, 1);
            if (ranks == 2) run.plan->state_share[0] = 5.0;
            support_train_same(&base, &run, SUPPORT_APART, what);
        }
    support_run_end(&run);
}

/* One micro-batch for two ranks or three: what a rank without work hands to a reduction is zeros, not what the step before left there. */
static void ranks_without_work_add_nothing(void **state)
{
    support_run run;
    support_result base;
    int64_t ranks;
    (void)state;
    start(&run, HET_GPT2, 1);
    base = support_train(&run, SUPPORT_TOGETHER);
    for (ranks = 2; ranks <= 3; ranks++) {
        support_run_ranks(&run, ranks);
        support_run_plan(&run, "dp", NULL, 1);
        support_train_same(&base, &run, SUPPORT_TOGETHER, "a rank without work");
    }
    support_run_end(&run);
}

/* ---- devices that take smaller micro-batches than others ---- */

typedef struct limited {
    const char *plan, *layout;
    int64_t ranks, slices, limit[4], room[4]; /* room: the most tokens of a micro-batch of the rank's pipelines */
} limited;
#define SHARED_RANK "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,8]}]}," \
                    "{\"stages\":[{\"rank\":0,\"units\":[0,4]},{\"rank\":1,\"units\":[4,8]}]}]}"
static const limited limits[] = { /* micro-batches of 97 and 24 tokens, of 121 that a step may have */
    { "dp", "024|135", 2, 1, { 0, 24 }, { 121, 24 } },
    { "dp", "135|024", 2, 3, { 24, 500 }, { 24, 121 } },
    { "dp2xpp2", "024|135", 4, 1, { 97, 0, 0, 24 }, { 97, 97, 24, 24 } },
    { "dp2xpp2", "024|135", 4, 3, { 0, 0, 24, 30 }, { 121, 121, 24, 24 } },
    { "dp2xcp2", "024|135", 4, 1, { 0, 100, 40, 24 }, { 100, 100, 24, 24 } },
    { SHARED_RANK, "024|135", 2, 1, { 0, 24 }, { 121, 24 } }, /* which runs the first pipeline too */
};

static void limited_start(support_run *run, const limited *c)
{
    start(run, HET_LLAMA, c->ranks);
    for (int64_t r = 0; r < c->ranks; r++) run->device[r].max_tokens = c->limit[r];
    support_run_plan(run, c->plan, "1f1b", c->slices);
}

/* A rank has the room of one in a context where no micro-batch is larger than its pipelines take, as estimated. */
static void limited_room(support_run *run, const limited *c)
{
    support_memory counted;
    size_t all = 0;
    het_ctx *ctx;
    run->desc.host.allocator = support_allocator(&counted);
    ctx = support_create(&run->desc);
    for (int64_t r = 0; r < c->ranks; r++) {
        het_desc like = run->desc;
        het_device_desc device[4];
        het_memory is, estimate, plain;
        memcpy(device, run->device, sizeof device);
        for (int64_t i = 0; i < c->ranks; i++) device[i].max_tokens = 0;
        like.layout.devices = device;
        memset(&like.host.allocator, 0, sizeof like.host.allocator);
        het_get_memory(ctx, r, &is);
        all += is.host + is.device;
        EXPECT_OK(het_memory_estimate(&run->desc, r, &estimate, NULL));
        assert_memory_equal(&is, &estimate, sizeof is);
        EXPECT_OK(het_memory_estimate(&like, r, &plain, NULL));
        assert_true(c->room[r] < like.limits.max_tokens ? is.activations < plain.activations : is.activations == plain.activations);
        like.limits.max_tokens = c->room[r];
        EXPECT_OK(het_memory_estimate(&like, r, &plain, NULL));
        assert_int_equal(is.device, plain.device);
        assert_int_equal(is.communication, plain.communication);
    }
    assert_int_equal(all, counted.bytes);
    het_destroy(ctx);
    memset(&run->desc.host.allocator, 0, sizeof run->desc.host.allocator);
}

static void limited_devices_have_less_room(void **state)
{
    support_run run;
    support_result base;
    (void)state;
    start(&run, HET_LLAMA, 1);
    base = support_train(&run, SUPPORT_TOGETHER);
    support_run_end(&run);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        limited_start(&run, &limits[i]);
        limited_room(&run, &limits[i]);
        support_train_same(&base, &run, limits[i].layout, limits[i].plan);
        support_run_end(&run);
    }
}

/* What does not fit is refused before anything is computed, also by a new plan, in which one pipeline takes what its smallest rank does. */
static void limited_devices_refuse(void **state)
{
    static const char small[] = "micro-batch 1: 97 tokens; it falls to pipeline 1|and max_tokens of rank 3 there is 24",
                      whole[] = "micro-batch 0: 97 tokens; it falls to pipeline 0|and max_tokens of rank 3 there is 24",
                      many[] = "micro-batch 1: 40 granules; it falls to pipeline 1|and max_tokens of rank 3 there is 24";
    int64_t start[41];
    het_batch pair[2];
    support_group fits, turned;
    het_replan_desc to;
    support_run run;
    het_ctx *ctx;
    het_plan *plan;
    (void)state;
    limited_start(&run, &limits[2]);
    ctx = support_create(&run.desc);
    support_group_start(&fits, &run.data, 0, "024|135");
    support_group_start(&turned, &run.data, 0, "135|024");
    for (int i = 0; i < 2; i++) {
        EXPECT_ERROR(het_step(ctx, turned.batch, 2, NULL), HET_ERR_LIMIT, het_last_error(ctx), small);
        EXPECT_ERROR(het_evaluate(ctx, turned.batch, 2, NULL), HET_ERR_LIMIT, het_last_error(ctx), small);
        EXPECT_OK(het_step(ctx, fits.batch, 2, NULL));
    }
    pair[0] = fits.batch[0], pair[1] = fits.batch[1]; /* most of its granules are empty */
    assert_true(pair[1].granules < 40 && run.desc.limits.max_tokens >= 40);
    for (int64_t g = 0; g <= 40; g++) start[g] = g < pair[1].granules ? pair[1].granule_start[g] : pair[1].tokens;
    pair[1].granules = 40, pair[1].granule_start = start;
    EXPECT_ERROR(het_step(ctx, pair, 2, NULL), HET_ERR_LIMIT, het_last_error(ctx), many);
    memset(&to, 0, sizeof to);
    to.plan = plan = support_plan("pp", "1f1b", support_run_units(&run), 4, 1);
    EXPECT_OK(het_replan(ctx, &to));
    EXPECT_ERROR(het_step(ctx, fits.batch, 2, NULL), HET_ERR_LIMIT, het_last_error(ctx), whole);
    EXPECT_OK(het_step(ctx, fits.batch + 1, 1, NULL));
    het_destroy(ctx);
    het_plan_free(plan);
    run.device[3].max_tokens = -1;
    refused(&run.desc, HET_ERR_INVALID, "layout.devices[3].max_tokens is -1");
    support_group_end(&fits);
    support_group_end(&turned);
    support_run_end(&run);
}

/* The pipeline with the most room generates. */
static void limited_devices_generate(void **state)
{
    enum { COUNT = 40 };
    float *expected, *logits;
    const int32_t *token;
    support_run run;
    het_ctx *ctx;
    (void)state;
    start(&run, HET_LLAMA, 1);
    token = run.data.block[0][2].token;
    expected = support_floats(run.desc.model.vocab, 1.0, 1);
    logits = support_floats(run.desc.model.vocab, 1.0, 1);
    ctx = support_create(&run.desc);
    EXPECT_OK(het_infer(ctx, token, COUNT, 0, expected));
    het_destroy(ctx);
    support_run_ranks(&run, 2);
    support_run_plan(&run, "dp", NULL, 1);
    run.device[0].max_tokens = COUNT - 1;
    ctx = support_create(&run.desc);
    EXPECT_OK(het_infer(ctx, token, COUNT, 0, logits));
    assert_memory_equal(logits, expected, (size_t)run.desc.model.vocab * sizeof *logits);
    het_destroy(ctx);
    run.device[1].max_tokens = COUNT - 2;
    ctx = support_create(&run.desc);
    EXPECT_ERROR(het_infer(ctx, token, COUNT, 0, logits), HET_ERR_LIMIT, het_last_error(ctx), "40 tokens after 0; the context holds 39");
    EXPECT_OK(het_infer(ctx, token, COUNT - 2, 0, logits));
    EXPECT_ERROR(het_evaluate(ctx, &run.data.block[0][2].batch, 1, NULL), HET_ERR_LIMIT, het_last_error(ctx), "48 tokens");
    EXPECT_OK(het_infer(ctx, token, 1, COUNT - 2, logits)); /* a call that is refused computes nothing over the kept keys */
    het_destroy(ctx);
    free(expected);
    free(logits);
    support_run_end(&run);
}

/* ---- where a step is one micro-batch and a rank has a matrix for itself, one product sums and rounds its gradient, where activations were ---- */

/* Bytes of all ranks. */
static void memory_of(const het_ctx *ctx, int64_t ranks, int64_t *gradients, int64_t *activations)
{
    het_memory memory;
    int64_t r;
    *gradients = *activations = 0;
    for (r = 0; r < ranks; r++) {
        het_get_memory(ctx, r, &memory);
        *gradients += (int64_t)memory.gradients;
        *activations += (int64_t)memory.activations;
    }
}

/* Of the layers' matrices, which one product each adds to. */
static int64_t layer_elements(const het_ctx *ctx)
{
    het_parameter_info info;
    int64_t p, sum = 0;
    for (p = 0; p < het_parameter_count(ctx); p++) {
        EXPECT_OK(het_parameter_get_info(ctx, p, &info));
        if (info.columns > 1 && (strstr(info.name, "h.") != NULL || strstr(info.name, "layers.") != NULL)) sum += info.count;
    }
    return sum;
}

typedef struct once_case {
    const char *plan, *schedule;
    int64_t ranks, slices, micro_batches;
    het_backward backward;
    het_choice recompute, shard;
    het_reduce reduce;
    int once, late;     /* rounded by the product; where activations were */
} once_case;

static void check_once(het_family family, const once_case *c)
{
    support_run run;
    support_group group;
    het_ctx *plain, *ctx;
    het_step_info x, y;
    int64_t gradients[2], activations[2], elements, width;
    int step, once = c->once, late = c->late;
    start(&run, family, 1);
    run.desc.reduce = c->reduce;
    plain = support_create(&run.desc);
    support_run_ranks(&run, c->ranks);
    support_run_plan(&run, c->plan, c->schedule, c->slices);
    run.desc.layout.backward = c->backward;
    run.desc.layout.recompute = c->recompute;
    run.desc.layout.shard = c->shard == HET_YES ? HET_SHARD_GRADIENTS : HET_SHARD_STATE;
    run.desc.limits.max_micro_batches = 2;
    ctx = support_create(&run.desc);
    memory_of(ctx, c->ranks, &gradients[0], &activations[0]);
    het_destroy(ctx);
    run.desc.limits.max_micro_batches = c->micro_batches;
    ctx = support_create(&run.desc);
    if (c->shard == HET_YES && family == HET_GPT2) once = late = 0; /* the first and the last rank share the tied embedding */
    memory_of(ctx, c->ranks, &gradients[1], &activations[1]);
    elements = layer_elements(ctx);
    width = once || c->reduce == HET_REDUCE_FAST ? 4 : 8;
    assert_true(elements > 0);
    assert_int_equal(gradients[0] - gradients[1], late ? (c->reduce == HET_REDUCE_FAST ? 4 : 8) * elements : once ? 4 * elements : 0);
    if (late && c->ranks == 1 && c->backward == HET_BACKWARD_FUSED) /* as many slots in both: only what the gradients lack beside activations */
        assert_in_range(activations[1], activations[0] > width * elements ? activations[0] : width * elements, activations[0] + width * elements - 1);
    for (step = 0; step < STEPS; step++) {
        support_group_start(&group, &run.data, step, SUPPORT_TOGETHER);
        EXPECT_OK(het_gradients(plain, group.batch, group.count, &x));
        EXPECT_OK(het_gradients(ctx, group.batch, group.count, &y));
        if (c->reduce == HET_REDUCE_EXACT) {
            assert_true(x.gradient_norm == y.gradient_norm);
            support_same_state(plain, ctx, 1, c->plan);
        }
        EXPECT_OK(het_step(plain, group.batch, group.count, NULL));
        EXPECT_OK(het_step(ctx, group.batch, group.count, NULL));
        support_group_end(&group);
    }
    if (c->reduce == HET_REDUCE_EXACT) assert_true(support_hash(plain) == support_hash(ctx));
    het_destroy(ctx);
    het_destroy(plain);
    support_run_end(&run);
}

static void sums_are_made_at_once_where_they_can(void **state)
{
    static const once_case cases[] = {
        { "dp", NULL, 1, 1, 1, HET_BACKWARD_FUSED, HET_NO, HET_NO, HET_REDUCE_EXACT, 1, 1 },
        { "dp", NULL, 1, 1, 1, HET_BACKWARD_FUSED, HET_YES, HET_NO, HET_REDUCE_EXACT, 1, 1 },
        { "dp", NULL, 1, 1, 1, HET_BACKWARD_DEFERRED, HET_YES, HET_NO, HET_REDUCE_EXACT, 1, 1 },
        { "pp", NULL, 3, 1, 1, HET_BACKWARD_SPLIT, HET_YES, HET_NO, HET_REDUCE_EXACT, 1, 1 },
        { "pp", NULL, 2, 1, 1, HET_BACKWARD_FUSED, HET_NO, HET_YES, HET_REDUCE_EXACT, 1, 1 },
        { "pp", "interleaved", 2, 1, 1, HET_BACKWARD_FUSED, HET_NO, HET_NO, HET_REDUCE_EXACT, 1, 0 }, /* several stages on a rank */
        { "dp", NULL, 1, 1, 3, HET_BACKWARD_FUSED, HET_NO, HET_NO, HET_REDUCE_EXACT, 0, 0 }, /* more micro-batches than one */
        { "dp", NULL, 1, 2, 1, HET_BACKWARD_FUSED, HET_NO, HET_NO, HET_REDUCE_EXACT, 0, 0 }, /* slices */
        { "dp", NULL, 2, 1, 1, HET_BACKWARD_FUSED, HET_NO, HET_NO, HET_REDUCE_EXACT, 0, 0 }, /* more ranks than one */
        { "dp", NULL, 1, 1, 1, HET_BACKWARD_FUSED, HET_NO, HET_NO, HET_REDUCE_FAST, 0, 1 },
    };
    size_t c;
    (void)state;
    for (c = 0; c < sizeof cases / sizeof *cases; c++) {
        check_once(HET_GPT2, &cases[c]);
        check_once(HET_LLAMA, &cases[c]);
    }
}

/* Re-planning changes what is made at once. */
static void sums_made_at_once_come_and_go(void **state)
{
    support_run run;
    support_result base;
    het_replan_desc to;
    het_ctx *ctx;
    int64_t before, after, unused;
    int step;
    (void)state;
    start(&run, HET_LLAMA, 1);
    base = support_train(&run, SUPPORT_TOGETHER);
    run.desc.limits.max_micro_batches = 1;
    ctx = support_create(&run.desc);
    memset(&to, 0, sizeof to);
    for (step = 0; step < STEPS; step++) {
        const het_step_info info = support_step(ctx, &run.data, step, step % 2 ? SUPPORT_APART : SUPPORT_TOGETHER);
        assert_true(info.loss == base.loss[step] && info.gradient_norm == base.norm[step]);
        memory_of(ctx, 1, &before, &unused);
        to.max_micro_batches = step % 2 ? 1 : run.data.blocks;
        EXPECT_OK(het_replan(ctx, &to));
        memory_of(ctx, 1, &after, &unused);
        assert_int_equal(after - before, (step % 2 ? -8 : 8) * layer_elements(ctx));
    }
    assert_true(support_hash(ctx) == base.weights);
    het_destroy(ctx);
    support_run_end(&run);
}

/* A device whose product of weights always adds, as one of the user's may. */
static het_result always_adds(void *self, het_queue *queue, const het_op *op)
{
    int64_t p;
    for (p = 0; op->kind == HET_OP_LINEAR_BACKWARD_WEIGHT && p < op->u.linear.parts; p++) {
        const het_gradient *dw = op->u.linear.part[p].dw;
        assert_true(dw == NULL || (dw->beta == 1 && dw->final == 0));
    }
    return het_cpu_device()->run(self, queue, op);
}

static void devices_that_only_add_get_zeros(void **state)
{
    support_run run;
    support_result base;
    (void)state;
    start(&run, HET_GPT2, 1);
    base = support_train(&run, SUPPORT_APART);
    support_run_ranks(&run, 1);
    run.far = *het_cpu_device();
    run.far.supports = support_only_adds;
    run.far.run = always_adds;
    run.device[0].iface = &run.far;
    support_train_same(&base, &run, SUPPORT_APART, "an op that only adds");
    run.desc.limits.max_micro_batches = 1;
    support_train_same(&base, &run, SUPPORT_TOGETHER, "an op that only adds, all at once");
    support_run_end(&run);
}

/* Float sums: 20 steps of the same blocks stay within 1e-5 of the exact run. */
static void fast_sums_stay_close(void **state)
{
    static const char *const plans[] = { "dp", "pp", "dp2xpp2" };
    support_run exact, fast;
    het_ctx *a, *b;
    int k, step;
    (void)state;
    start(&exact, HET_LLAMA, 1);
    start(&fast, HET_LLAMA, 4);
    exact.desc.optimizer.learning_rate = fast.desc.optimizer.learning_rate = 1e-3f;
    fast.desc.reduce = HET_REDUCE_FAST;
    for (k = 0; k < 3; k++) {
        support_run_plan(&fast, plans[k], NULL, 1);
        a = support_create(&exact.desc);
        b = support_create(&fast.desc);
        for (step = 0; step < 20; step++) {
            const double x = support_step(a, &exact.data, step, SUPPORT_APART).loss, y = support_step(b, &fast.data, step, SUPPORT_APART).loss;
            if (!(fabs(x - y) <= 1e-5 * x)) fail_msg("%s, step %d: %.9g and %.9g", plans[k], step, x, y);
        }
        het_destroy(a);
        het_destroy(b);
    }
    support_run_end(&exact);
    support_run_end(&fast);
}

/* ---- what is not weights: gradients, evaluation, inference, files ---- */

static void reading_and_saving_know_no_layout(void **state)
{
    stepped many;
    het_desc one, reader;
    het_plan *chunks;
    het_ctx *a, *b, *c;
    const het_batch *batches = many.group.batch;
    het_step_info x, y;
    support_buffer weights, slots;
    het_reader from;
    float logits[2][700];
    int32_t token[9] = { 1, 5, 7, 2, 9, 11, 3, 0, 4 };
    size_t row;
    int64_t p, count;
    (void)state;
    start(&many.run, HET_GPT2, 1);
    one = many.run.desc;
    row = (size_t)one.model.vocab * sizeof **logits;
    support_run_ranks(&many.run, 4);
    support_run_plan(&many.run, "dp2xpp:0-4|5-7", NULL, 2);
    many.run.plan->state_share[2] = 0.0;
    step_start(&many);
    a = support_create(&one);
    b = many.ctx;
    count = many.group.count;
    EXPECT_OK(het_step(a, batches, count, NULL));
    EXPECT_OK(het_gradients(a, batches, count, &x));
    EXPECT_OK(het_gradients(b, batches, count, &y));
    assert_true(x.gradient_norm == y.gradient_norm);
    support_same_state(a, b, 1, "one rank and four");
    EXPECT_OK(het_evaluate(a, batches, count, &x));
    EXPECT_OK(het_evaluate(b, batches, count, &y));
    assert_true(x.loss == y.loss && x.tokens == y.tokens);
    EXPECT_OK(het_infer(a, token, 9, 0, logits[0]));
    EXPECT_OK(het_infer(b, token, 4, 0, logits[1]));
    EXPECT_OK(het_infer(b, token + 4, 5, 4, logits[1]));
    assert_memory_equal(logits[0], logits[1], row);
    /* a context for inference, with two stages a rank */
    reader = many.run.desc;
    reader.inference = HET_YES;
    reader.layout.plan = chunks = support_plan("pp", "interleaved", 8, 4, 1);
    c = support_create(&reader);
    for (p = 0; p < het_parameter_count(a); p++) {
        het_parameter_info info;
        float *u;
        EXPECT_OK(het_parameter_get_info(a, p, &info));
        u = support_floats(info.count, 1, 1);
        EXPECT_OK(het_parameter_read(a, p, HET_WEIGHT, u));
        EXPECT_OK(het_parameter_write(c, p, HET_WEIGHT, u));
        free(u);
    }
    EXPECT_OK(het_evaluate(c, batches, count, &y));
    assert_true(x.loss == y.loss);
    EXPECT_OK(het_infer(c, token, 9, 0, logits[1]));
    assert_memory_equal(logits[0], logits[1], row);
    het_destroy(c);
    het_plan_free(chunks);
    /* what four ranks saved, one continues, and the other way round */
    support_save(b, &weights, &slots);
    het_destroy(a);
    a = support_create(&one);
    from = support_reader(&weights);
    EXPECT_OK(het_load_weights(a, &from));
    from = support_reader(&slots);
    EXPECT_OK(het_load_state(a, &from));
    assert_true(support_hash(a) == support_hash(b));
    EXPECT_OK(het_step(a, batches, count, NULL));
    EXPECT_OK(het_step(b, batches, count, NULL));
    assert_true(support_hash(a) == support_hash(b));
    from = support_reader(&weights);
    EXPECT_OK(het_load_weights(b, &from));
    from = support_reader(&slots);
    EXPECT_OK(het_load_state(b, &from));
    EXPECT_OK(het_step(b, batches, count, NULL));
    assert_true(support_hash(a) == support_hash(b));
    support_buffer_end(&weights);
    support_buffer_end(&slots);
    het_destroy(a);
    step_end(&many);
}

/* ---- bytes ---- */

/* Ring reductions: exact (N - 1) / N x (8 + 4) bytes an element and rank, fast 2 (N - 1) / N x 4; pipelines: two messages a cut and
   micro-batch, each of tokens x width floats. */
static void traffic_is_what_the_formulas_say(void **state)
{
    enum { EXACT, FAST, SHARDED, MODES };
    int64_t ranks, mode, r, t;
    (void)state;
    for (ranks = 2; ranks <= 4; ranks++) {
        for (mode = 0; mode < MODES; mode++) {
            stepped s;
            int64_t bytes = 0, elements = 0, p, expected;
            start(&s.run, HET_LLAMA, ranks);
            s.run.desc.reduce = mode == FAST ? HET_REDUCE_FAST : HET_REDUCE_EXACT;
            s.run.desc.layout.shard = mode == SHARDED ? HET_SHARD_GRADIENTS : HET_SHARD_STATE;
            step_start(&s);
            for (p = 0; p < het_parameter_count(s.ctx); p++) { /* parameters are padded to 16 elements */
                het_parameter_info info;
                EXPECT_OK(het_parameter_get_info(s.ctx, p, &info));
                elements += (info.count + 15) / 16 * 16;
            }
            for (r = 0; r < ranks; r++) {
                het_timeline timeline;
                het_get_timeline(s.ctx, r, &timeline);
                for (t = 0; t < ranks; t++) {
                    bytes += timeline.traffic[t].reduction_bytes;
                    assert_int_equal(timeline.traffic[t].transfers, 0);
                }
            }
            expected = (ranks - 1) * elements * (mode == FAST ? 4 + 4 : 8 + 4);
            if (mode == SHARDED) { /* every micro-batch sends what its rank does not own (two floats of state an element), of every block */
                expected = (ranks - 1) * elements * 4;
                for (r = 0; r < ranks; r++) {
                    const int64_t batches_of_rank = s.group.count / ranks + (r < s.group.count % ranks);
                    het_memory memory;
                    het_get_memory(s.ctx, r, &memory);
                    expected += batches_of_rank * 8 * (elements - (int64_t)memory.optimizer / 8);
                }
            }
            /* the first step of an exact run is measured and repeated */
            assert_int_equal(bytes, mode == FAST ? expected : 2 * expected);
            step_end(&s);
        }
    }
}

static void pipelines_send_two_messages_a_cut(void **state)
{
    stepped s;
    int64_t bytes;
    het_timeline timeline;
    (void)state;
    start(&s.run, HET_LLAMA, 3);
    s.run.desc.reduce = HET_REDUCE_FAST;
    support_run_plan(&s.run, "pp", NULL, 1);
    step_start(&s);
    bytes = s.run.data.tokens * s.run.desc.model.width * 4;
    het_get_timeline(s.ctx, 1, &timeline);
    assert_int_equal(timeline.traffic[0].transfers, s.group.count);
    assert_int_equal(timeline.traffic[2].transfers, s.group.count);
    assert_int_equal(timeline.traffic[2].transfer_bytes, bytes);
    assert_int_equal(timeline.traffic[0].transfer_bytes, bytes);
    step_end(&s);
}

/* A rank's optimizer state follows its share within 5 %, whatever it computes; so do its gradients where they are sharded, beside two buffers
   for the largest unit. */
static void state_follows_its_shares(void **state)
{
    static const double shares[4][4] = { { 1, 1, 1, 1 }, { 1, 2, 3, 4 }, { 0, 1, 0, 3 }, { 2, 1, 0, 0 } };
    het_model_desc model;
    het_device_desc device[4];
    het_error error;
    int k, r;
    (void)state;
    memset(device, 0, sizeof device);
    EXPECT_OK(het_model_parse("gpt2:layers=4,width=192,heads=4,context=64,vocab=1000", &model, &error));
    for (k = 0; k < 4; k++) {
        het_desc desc;
        het_plan *plan;
        het_memory memory, all;
        double total = 0;
        memset(&desc, 0, sizeof desc);
        desc.model = model;
        desc.layout.devices = device;
        desc.layout.device_count = 1;
        EXPECT_OK(het_memory_estimate(&desc, 0, &all, &error));
        desc.layout.device_count = 4;
        desc.layout.plan = plan = support_plan("dp", NULL, 10, 4, 1);
        for (r = 0; r < 4; r++) total += plan->state_share[r] = shares[k][r];
        plan->share[0] = 5; /* compute shares are another matter */
        for (r = 0; r < 4; r++) {
            double wanted = (double)all.optimizer * shares[k][r] / total;
            EXPECT_OK(het_memory_estimate(&desc, r, &memory, &error));
            if (fabs((double)memory.optimizer - wanted) > 0.05 * wanted) fail_msg("rank %d has %lu bytes of state, its share is %g", r,
                                                                                  (unsigned long)memory.optimizer, wanted);
            assert_true(memory.gradients >= all.gradients);
        }
        desc.layout.shard = HET_SHARD_GRADIENTS;
        for (r = 0; r < 4; r++) {
            double wanted = (double)all.gradients * shares[k][r] / total, buffers = 2.0 * 8 * (2 * 768 * 192 + 768 + 3 * 192);
            EXPECT_OK(het_memory_estimate(&desc, r, &memory, &error));
            if (fabs((double)memory.gradients - wanted - buffers) > 0.05 * wanted + 0.02 * buffers)
                fail_msg("rank %d has %lu bytes of gradients, its share and two buffers for an MLP are %g", r, (unsigned long)memory.gradients,
                         wanted + buffers);
        }
        het_plan_free(plan);
    }
}

/* ---- failures ---- */

typedef struct fault { int64_t rank, at, step; int silent; int64_t seen[4]; } fault;

static het_result failing_hook(void *user, const het_hook_info *info)
{
    fault *f = (fault *)user;
    return info->rank == f->rank && info->step == f->step && f->seen[info->rank]++ == f->at ? HET_ERR_CALLBACK : HET_OK;
}

static int falling_silent(void *user, int64_t rank, int64_t step, int64_t position)
{
    const fault *f = (const fault *)user;
    return f->silent && rank == f->rank && step == f->step && position >= f->at;
}

/* A rank fails or falls silent somewhere in the second step: the call returns an error that names it, the context answers nothing but queries,
   nothing leaks, and a new context works. Rounds that the fault's place is never reached in count as trained. */
static void one_failure(int round, int *failed, int *silent, int *noticed)
{
    static const char *const plans[] = { "dp", "pp", "dp2xpp2" }, *const schedules[] = { "1f1b", "zb-h1", "gpipe" };
    uint64_t seed = (uint64_t)round * 104729 + 3;
    const char *schedule;
    support_memory memory;
    het_result result;
    stepped s;
    fault f;
    char words[32];
    memset(&f, 0, sizeof f);
    start(&s.run, HET_GPT2, 4);
    s.run.desc.host.allocator = support_allocator(&memory);
    f.rank = support_below(&seed, 4);
    f.silent = round % 2;
    f.at = support_below(&seed, 40);
    f.step = 1;
    s.run.desc.layout.deadline = 0.1;
    s.run.desc.layout.stall_deadline = 30.0;
    s.run.desc.host.user = &f;
    s.run.desc.layout.shard = round % 3 ? HET_SHARD_STATE : HET_SHARD_GRADIENTS;
    if (f.silent) s.run.desc.emulate.test_hang = falling_silent;
    else s.run.desc.host.hook = failing_hook;
    schedule = schedules[support_below(&seed, 3)];
    support_run_plan(&s.run, plans[support_below(&seed, 3)], schedule, 1);
    step_start(&s);
    result = het_step(s.ctx, s.group.batch, s.group.count, NULL);
    if (result != HET_OK) {
        snprintf(words, sizeof words, "rank %d|step 2|action ", (int)f.rank);
        support_expect(result, f.silent ? HET_ERR_TRANSPORT : HET_ERR_CALLBACK, het_last_error(s.ctx), words, "het_step", __LINE__);
        assert_int_equal(het_step(s.ctx, s.group.batch, s.group.count, NULL), HET_ERR_STATE);
        assert_int_equal(het_get_step(s.ctx), 1);
        ++*failed;
        *silent += f.silent;
        *noticed += f.silent && strstr(het_last_error(s.ctx), "no sign of life") != NULL;
    }
    step_end(&s);
    assert_int_equal(memory.live, 0);
    assert_int_equal(memory.wrong, 0);
}

/* HETRAIN_TEST_FAILURES sets how many (make soak: 1,000). */
static void failing_ranks_are_named(void **state)
{
    const int rounds = support_environment("HETRAIN_TEST_FAILURES", 100);
    int round, failed = 0, silent = 0, noticed = 0;
    (void)state;
    for (round = 0; round < rounds; round++) one_failure(round, &failed, &silent, &noticed);
    assert_true(failed > rounds / 2);
    assert_true(2 * noticed > silent); /* by others: one that falls silent behind its last message only has itself */
}

/* ---- emulation ---- */

static void slow_links_and_devices_keep_the_bits(void **state)
{
    stepped s;
    support_result base;
    het_link link;
    het_timeline timeline;
    double first_backward = 0;
    int64_t i;
    (void)state;
    memset(&link, 0, sizeof link);
    start(&s.run, HET_LLAMA, 1);
    base = support_train(&s.run, SUPPORT_TOGETHER);
    s.run.device[1].speed = 0.25;
    link.to = 1;
    link.latency = 5e-3;
    link.bandwidth = 1e8;
    support_run_ranks(&s.run, 2);
    s.run.desc.emulate.links = &link;
    s.run.desc.emulate.link_count = 1;
    support_run_plan(&s.run, "pp", "1f1b", 1);
    support_train_same(&base, &s.run, SUPPORT_APART, "slow link");
    /* the first gradient comes back after two latencies, never earlier */
    step_start(&s);
    het_get_timeline(s.ctx, 0, &timeline);
    for (i = timeline.records - 1; i >= 0; i--)
        if (timeline.record[i].action.kind == HET_ACTION_B) first_backward = timeline.record[i].end;
    assert_true(first_backward >= 2 * link.latency);
    step_end(&s);
}

/* What all reductions of rank 1 took, in latencies of 20 ms. */
static double latencies(const stepped *s)
{
    het_timeline timeline;
    double first = 1e9, last = 0;
    int64_t i, reductions = 0;
    het_get_timeline(s->ctx, 1, &timeline);
    for (i = 0; i < timeline.records; i++) {
        const het_record *r = &timeline.record[i];
        if (r->action.kind != HET_ACTION_REDUCE) continue;
        assert_true(r->end - r->start >= 20e-3);
        first = fmin(first, r->start);
        last = fmax(last, r->end);
        reductions++;
    }
    assert_true(reductions > 4);
    return (last - first) / 20e-3;
}

/* Three copies behind links of 20, 21, ... ms: sums of all blocks are on their way at once (in half of some steps: a busy machine may stop a rank for
   longer), and float sums are added in one order, whichever come first. */
static void reductions_share_a_latency(void **state)
{
    het_link links[6];
    support_result fast;
    stepped s;
    int i, quick = 0;
    (void)state;
    memset(links, 0, sizeof links);
    for (i = 0; i < 6; i++) {
        links[i].from = (int32_t)(i / 2);
        links[i].to = (int32_t)((i / 2 + 1 + i % 2) % 3);
        links[i].latency = 20e-3 + 1e-3 * (double)((5 * i + 1) % 6);
    }
    start(&s.run, HET_LLAMA, 3);
    support_run_plan(&s.run, "dp", "1f1b", 1);
    s.run.desc.reduce = HET_REDUCE_FAST;
    fast = support_train(&s.run, SUPPORT_APART);
    s.run.desc.emulate.links = links;
    s.run.desc.emulate.link_count = 6;
    support_train_same(&fast, &s.run, SUPPORT_APART, "float sums behind slow links");
    step_start(&s);
    for (i = 0; i < 8; i++) {
        support_expect(het_step(s.ctx, s.group.batch, s.group.count, NULL), HET_OK, het_last_error(s.ctx), "", "het_step", __LINE__);
        quick += latencies(&s) < 2;
    }
    assert_true(quick >= 4);
    step_end(&s);
}

/* Of a step with all planned micro-batches and of one with two: its first reduction begins before its last backward pass ends, on both ranks. */
static void short_steps_reduce_while_they_compute(void **state)
{
    stepped s;
    het_timeline timeline;
    int64_t count, rank, i;
    (void)state;
    start(&s.run, HET_LLAMA, 1);
    support_run_ranks(&s.run, 2);
    support_run_plan(&s.run, "dp", "1f1b", 1);
    step_start(&s);
    assert_true(s.group.count >= 4);
    for (count = s.group.count; count > 0; count -= s.group.count - 2) {
        support_expect(het_step(s.ctx, s.group.batch, count, NULL), HET_OK, het_last_error(s.ctx), "", "het_step", __LINE__);
        for (rank = 0; rank < 2; rank++) {
            double first = 1e9, last = 0;
            int64_t passes = 0;
            het_get_timeline(s.ctx, rank, &timeline);
            for (i = 0; i < timeline.records; i++) {
                const het_record *r = &timeline.record[i];
                if (r->action.kind == HET_ACTION_REDUCE) first = fmin(first, r->start);
                if (r->action.kind == HET_ACTION_B) last = fmax(last, r->end), passes++;
            }
            assert_int_equal(passes, count / 2);
            assert_true(first < last);
        }
        if (count == 2) break;
    }
    step_end(&s);
}

/* More holders than send to each other. */
static void many_copies_are_clusters(void **state)
{
    const het_family families[] = { HET_GPT2, HET_LLAMA };
    int i;
    (void)state;
    for (i = 0; i < 2; i++) {
        het_device_desc devices[HETRAIN_DIRECT + 2];
        support_run run;
        support_result base;
        int d;
        start(&run, families[i], 1);
        base = support_train(&run, SUPPORT_TOGETHER);
        for (d = 0; d < HETRAIN_DIRECT + 2; d++) devices[d] = run.device[0];
        run.desc.layout.devices = devices;
        run.desc.layout.device_count = HETRAIN_DIRECT + 1 + i;
        support_run_plan(&run, "dp", "1f1b", 1);
        support_train_same(&base, &run, SUPPORT_APART, "clusters");
        support_run_end(&run);
    }
}

/* Links so slow that one message would end the test: what a step, an evaluation and a comparison of copies do without. Rank 0 has no stage; or all
   have one, and rank 0 hears of rank 2 by way of rank 1. */
static void nobody_waits_for_slow_links_in_vain(void **state)
{
    static const char *const plans[] = {
        "{\"pipelines\":[{\"stages\":[{\"rank\":1,\"units\":[0,3]},{\"rank\":2,\"units\":[3,8]}]}]}",
        "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,2]},{\"rank\":1,\"units\":[2,6]},{\"rank\":2,\"units\":[6,8]}]}]}",
    };
    support_run run;
    support_result base;
    het_link link[2];
    het_step_info info;
    int p;
    (void)state;
    memset(link, 0, sizeof link);
    link[0].to = 2;
    link[1].to = 1;
    link[0].latency = link[1].latency = 1000.0;
    start(&run, HET_LLAMA, 1);
    base = support_train(&run, SUPPORT_TOGETHER);
    support_run_ranks(&run, 3);
    run.desc.layout.stall_deadline = 20.0;
    run.desc.emulate.links = link;
    for (p = 0; p < 2; p++) {
        stepped s;
        run.desc.emulate.link_count = p == 0 ? 2 : 1;
        support_run_plan(&run, plans[p], "1f1b", 1);
        support_train_same(&base, &run, SUPPORT_APART, plans[p]);
        s.run = run;
        step_start(&s);
        EXPECT_OK(het_evaluate(s.ctx, s.group.batch, s.group.count, &info));
        EXPECT_OK(het_verify(s.ctx));
        het_destroy(s.ctx);
        support_group_end(&s.group);
    }
    support_run_end(&run);
}

/* Two pipelines of a step: ranks 0 and 1, and rank 2. The end of rank 0's last backward, unit 0, is kept until rank 2 has had its own, so that all
   other blocks are ready before that unit's: rank 2 has sent and got all of theirs long before that unit's. */
typedef struct late { pthread_mutex_t lock; pthread_cond_t changed; int64_t ended, kept; } late; /* last backwards of ranks 2 and 0 */

static het_result late_hook(void *user, const het_hook_info *info)
{
    late *l = user;
    struct timespec while_ready = { 0, 200000000 };
    if (info->direction != HET_BACKWARD || info->unit != 0) return HET_OK;
    (void)pthread_mutex_lock(&l->lock);
    if (info->rank == 2 && info->micro_batch == 5) {
        l->ended++;
        (void)pthread_cond_broadcast(&l->changed);
    }
    if (info->rank == 0) l->kept++;
    while (info->rank == 0 && l->ended < l->kept) (void)pthread_cond_wait(&l->changed, &l->lock);
    (void)pthread_mutex_unlock(&l->lock);
    if (info->rank == 0) (void)nanosleep(&while_ready, NULL);
    return HET_OK;
}

static void the_reduction_that_is_ready_comes_first(void **state)
{
    stepped s;
    late l;
    int64_t step;
    (void)state;
    memset(&l, 0, sizeof l);
    (void)pthread_mutex_init(&l.lock, NULL);
    (void)pthread_cond_init(&l.changed, NULL);
    start(&s.run, HET_LLAMA, 3);
    support_run_plan(&s.run, "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,4]},{\"rank\":1,\"units\":[4,8]}]},{\"share\":4,\"stages\":"
        "[{\"rank\":2,\"units\":[0,8]}]}]}", "1f1b", 1);
    s.run.desc.host.hook = late_hook;
    s.run.desc.host.user = &l;
    step_start(&s);
    for (step = 1; step < 3; step++) {
        het_timeline timeline;
        double last[2] = { 0, 0 };
        int64_t i;
        EXPECT_OK(het_step(s.ctx, s.group.batch, s.group.count, NULL));
        het_get_timeline(s.ctx, 2, &timeline);
        for (i = 0; i < timeline.records; i++) {
            const het_record *r = &timeline.record[i];
            const int others = r->action.stage > 0;
            if (r->action.kind != HET_ACTION_REDUCE) continue;
            if (r->end > last[others]) last[others] = r->end;
        }
        assert_true(last[1] > 0 && last[1] + 0.1 < last[0]);
    }
    step_end(&s);
}

/* ---- misuse ---- */

static void bad_layouts_are_refused(void **state)
{
    support_run run;
    het_device_desc *device = run.device;
    het_link link;
    het_desc bad;
    het_plan *plan;
    (void)state;
    memset(&link, 0, sizeof link);
    start(&run, HET_GPT2, 2);
    plan = support_plan("pp", NULL, 8, 2, 1);
    bad = run.desc;
    bad.layout.device_count = 3;
    bad.layout.plan = plan;
    refused(&bad, HET_ERR_INVALID, "8 units|2 ranks|3 ranks");
    bad = run.desc;
    bad.layout.devices = NULL;
    refused(&bad, HET_ERR_INVALID, "devices");
    bad = run.desc;
    device[1].memory_limit = 1000;
    refused(&bad, HET_ERR_LIMIT, "rank 1|more than its memory_limit of 1 kB");
    device[1].memory_limit = 0;
    device[1].speed = 1.5;
    refused(&bad, HET_ERR_INVALID, "devices[1]|1.5");
    device[1].speed = 1e-300; /* would sleep for ever */
    refused(&bad, HET_ERR_INVALID, "devices[1]|1e-300|0.001");
    device[1].speed = 0;
    link.from = 1, link.to = 7;
    bad.emulate.links = &link;
    bad.emulate.link_count = 1;
    refused(&bad, HET_ERR_INVALID, "links[0]|1 and 7 of 2");
    link.to = 1;
    refused(&bad, HET_ERR_INVALID, "links[0]|1 and 1");
    link.to = 0, link.latency = -1;
    refused(&bad, HET_ERR_INVALID, "links[0]|-1");
    link.latency = 0, link.bandwidth = 1e-300;
    refused(&bad, HET_ERR_INVALID, "links[0]|1e-300 bytes");
    bad = run.desc;
    bad.layout.deadline = -2;
    refused(&bad, HET_ERR_INVALID, "deadline|-2");
    snprintf(plan->schedule, sizeof plan->schedule, "zb-9");
    bad = run.desc;
    bad.layout.plan = plan;
    refused(&bad, HET_ERR_INVALID, "zb-9");
    plan->make = NULL;
    refused(&bad, HET_ERR_INVALID, "make is NULL|zb-9");
    het_plan_free(plan);
    support_run_end(&run);
}

typedef struct creation { het_desc desc; het_ctx *ctx; het_error error; het_result result; } creation;

static void *create_on_a_thread(void *argument)
{
    creation *c = argument;
    c->result = het_create(&c->desc, &c->ctx, &c->error);
    return NULL;
}

/* One process's description is wrong in itself, which it finds before it asks the others anything: these do not wait for it until the stall
   deadline. */
static void an_early_error_holds_up_nobody(void **state)
{
    int which;
    (void)state;
    for (which = 0; which < 3; which++) {
        threads_world world;
        threads_end end[2];
        het_transport transport[2];
        support_run run;
        creation other;
        het_desc bad;
        het_ctx *ctx;
        het_error error;
        pthread_t thread;
        const double begin = threads_clock();
        start(&run, HET_GPT2, 1);
        threads_open(&world, end, transport, 2, 0);
        memset(&other, 0, sizeof other);
        other.desc = bad = run.desc;
        other.desc.layout.transport = transport[0];
        bad.layout.transport = transport[1];
        other.desc.layout.stall_deadline = bad.layout.stall_deadline = 8;
        if (which == 0) bad.optimizer.learning_rate = -1;
        else bad.model.heads = 7;
        assert_int_equal(pthread_create(&thread, NULL, create_on_a_thread, &other), 0);
        assert_int_equal(het_create(&bad, &ctx, which < 2 ? &error : NULL), HET_ERR_INVALID);
        assert_null(ctx);
        (void)pthread_join(thread, NULL);
        assert_int_equal(other.result, HET_ERR_TRANSPORT);
        assert_null(other.ctx);
        if (threads_clock() - begin > 4) fail_msg("case %d: after %.1f s: %s", which, threads_clock() - begin, other.error.text);
        if (!strstr(world.text, which == 0 ? "learning_rate" : "heads")) fail_msg("case %d: others hear of: %s", which, world.text);
        if (which < 2) assert_string_equal(error.text, world.text);
        support_run_end(&run);
    }
}

/* Two processes save to one path: the first writes what all of them give, and all have its result. */
typedef struct saver { het_desc desc; const char *path; het_result result; char text[512]; pthread_t thread; } saver;

static het_result save_twice(het_ctx *ctx, const het_writer *to)
{
    const het_result result = het_save_weights(ctx, to); /* all take part */
    return result == HET_OK ? to->write(to->user, "end", 3) : result;
}

static void *save_on_a_thread(void *user)
{
    saver *s = (saver *)user;
    het_ctx *ctx = NULL;
    het_error error;
    if ((s->result = het_create(&s->desc, &ctx, &error)) == HET_OK) s->result = het_save_file(ctx, s->path, save_twice);
    if (ctx != NULL) snprintf(s->text, sizeof s->text, "%s", het_last_error(ctx));
    het_destroy(ctx);
    return NULL;
}

static void one_process_writes_files(void **state)
{
    static const char *const paths[3] = { "ranks_saved.tmp.safetensors", "/nowhere/at/all", "ranks_saved.tmp.none" };
    int which, i, round;
    (void)state;
    for (which = 0; which < 3; which++)
        for (round = 0; round < (which == 0 ? 20 : 1); round++) {
            threads_world world;
            threads_end end[2];
            het_transport transport[2];
            support_run run;
            saver s[2];
            const double begin = threads_clock();
            memset(s, 0, sizeof s);
            start(&run, HET_GPT2, 1);
            threads_open(&world, end, transport, 2, 0);
            for (i = 0; i < 2; i++) {
                s[i].desc = run.desc, s[i].path = which == 2 && i == 1 ? NULL : paths[which]; /* which stops the other */
                s[i].desc.layout.transport = transport[i], s[i].desc.layout.stall_deadline = 8;
                assert_int_equal(pthread_create(&s[i].thread, NULL, save_on_a_thread, &s[i]), 0);
            }
            for (i = 0; i < 2; i++) (void)pthread_join(s[i].thread, NULL);
            for (i = 0; i < 2; i++) {
                if (which == 0 && s[i].result != HET_OK) fail_msg("process %d: %s", i, s[i].text);
                if (which == 1 && (s[i].result == HET_OK || !strstr(s[i].text, "/nowhere/at/all"))) fail_msg("process %d: %s", i, s[i].text);
                if (which == 2 && (s[i].result == HET_OK || !strstr(s[i].text, "path is NULL"))) fail_msg("process %d: %s", i, s[i].text);
                if (which == 2 && threads_clock() - begin > 4) fail_msg("after %.1f s: %s", threads_clock() - begin, s[i].text);
            }
            if (which == 0) {
                char last[3] = "";
                FILE *file = fopen(paths[0], "rb");
                assert_non_null(file);
                assert_int_equal(fseek(file, -3, SEEK_END), 0);
                assert_int_equal(fread(last, 1, 3, file), 3);
                assert_memory_equal(last, "end", 3);
                fclose(file);
                assert_int_equal(remove(paths[0]), 0);
            }
            support_run_end(&run);
        }
}

/* Every allocation of a context of three ranks fails once: an error, nothing left. */
static void every_allocation_may_fail(void **state)
{
    support_memory memory;
    support_run run;
    het_error error;
    het_ctx *ctx = NULL;
    het_result result = HET_ERR_OOM;
    int64_t k;
    (void)state;
    start(&run, HET_GPT2, 3);
    run.device[1].threads = 2;
    support_run_plan(&run, "pp", "zb-h1", 1);
    for (k = 0; result != HET_OK; k++) {
        run.desc.host.allocator = support_allocator(&memory);
        memory.fail_at = k;
        result = het_create(&run.desc, &ctx, &error);
        if (result != HET_OK && result != HET_ERR_OOM) fail_msg("allocation %d: %s", (int)k, error.text);
        if (result == HET_OK) het_destroy(ctx);
        else assert_null(ctx);
        assert_int_equal(memory.live, 0);
        assert_int_equal(memory.wrong, 0);
    }
    assert_true(k > 10);
    support_run_end(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_has_the_same_bits),
        cmocka_unit_test(short_micro_batches_are_not_cut),
        cmocka_unit_test(slices_keep_keys_and_values), cmocka_unit_test(plans_without_a_name_have_lists),
        cmocka_unit_test(large_blocks_travel_in_chunks),
        cmocka_unit_test(ranks_without_work_add_nothing),
        cmocka_unit_test(limited_devices_have_less_room),
        cmocka_unit_test(limited_devices_refuse),
        cmocka_unit_test(limited_devices_generate),
        cmocka_unit_test(sums_are_made_at_once_where_they_can),
        cmocka_unit_test(sums_made_at_once_come_and_go),
        cmocka_unit_test(devices_that_only_add_get_zeros),
        cmocka_unit_test(fast_sums_stay_close),
        cmocka_unit_test(reading_and_saving_know_no_layout),
        cmocka_unit_test(traffic_is_what_the_formulas_say),
        cmocka_unit_test(pipelines_send_two_messages_a_cut),
        cmocka_unit_test(state_follows_its_shares),
        cmocka_unit_test(failing_ranks_are_named),
        cmocka_unit_test(slow_links_and_devices_keep_the_bits),
        cmocka_unit_test(reductions_share_a_latency),
        cmocka_unit_test(short_steps_reduce_while_they_compute),
        cmocka_unit_test(many_copies_are_clusters),
        cmocka_unit_test(nobody_waits_for_slow_links_in_vain),
        cmocka_unit_test(the_reduction_that_is_ready_comes_first),
        cmocka_unit_test(bad_layouts_are_refused), cmocka_unit_test(an_early_error_holds_up_nobody),
        cmocka_unit_test(one_process_writes_files), cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
