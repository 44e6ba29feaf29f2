/* What holders of a block divide: state, sums of gradients, weights, by uneven shares, among near sets, with keepers. The bits are those of one
   rank, bytes what the formulas say, memory what was estimated; a model larger than any rank trains. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "support.h"

#include "hetrain_files.h"
#include "hetrain_plan.h"

#define STEPS 3
#define BLOCKS "03|14|25"
/* one rank of all units beside a keeper */
#define ALONE "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,8]}]}],"
/* two pipelines, cut differently, and room for keepers behind them */
#define CROSSED "{\"pipelines\":[{\"share\":2,\"stages\":[{\"rank\":0,\"units\":[0,3]},{\"rank\":1,\"units\":[3,8],\"recompute\":true}]}," \
    "{\"share\":1,\"stages\":[{\"rank\":2,\"units\":[0,5]},{\"rank\":3,\"units\":[5,8]}]}],"

typedef struct layout { const char *plan, *schedule; int64_t ranks, slices; double share[6]; het_backward backward; } layout;

static const layout layouts[] = {
    { "dp", NULL, 2, 1, { 1, 3 }, HET_BACKWARD_FUSED }, { "dp", NULL, 4, 2, { 1, 2, 3, 4 }, HET_BACKWARD_SPLIT },
    { "dp", NULL, 2, 3, { 0, 1 }, HET_BACKWARD_DEFERRED }, { "dp2xpp2", "zb-h1", 4, 1, { 0, 0, 0, 1 }, HET_BACKWARD_FUSED },
    { "pp", "1f1b", 4, 1, { 1, 1, 1, 1 }, HET_BACKWARD_FUSED }, { "pp", "bidirectional", 4, 1, { 1, 2, 1, 2 }, HET_BACKWARD_FUSED },
    { "cp:2,1", NULL, 2, 1, { 1, 1 }, HET_BACKWARD_SPLIT }, { "dp2xhp2", NULL, 4, 2, { 1, 0, 2, 1 }, HET_BACKWARD_FUSED },
    { CROSSED "\"near\":[0,0,1,1]}", "1f1b", 4, 1, { 3, 1, 1, 2 }, HET_BACKWARD_FUSED },
    { CROSSED "\"near\":[1,0,0,1,0],\"keepers\":[4]}", "1f1b", 5, 1, { 1, 1, 0, 0, 2 }, HET_BACKWARD_SPLIT },
    { CROSSED "\"near\":[0,1,0,1,1],\"keepers\":[4]}", NULL, 5, 2, { 1, 1, 1, 0, 1 }, HET_BACKWARD_FUSED },
    { ALONE "\"keepers\":[1]}", NULL, 2, 1, { 0, 1 }, HET_BACKWARD_FUSED }, { ALONE "\"keepers\":[1]}", NULL, 2, 2, { 1, 3 }, HET_BACKWARD_DEFERRED },
    { ALONE "\"keepers\":[1,2]}", NULL, 3, 1, { 0, 2, 1 }, HET_BACKWARD_SPLIT },
    { "dp", NULL, 4, 1, { 1, 2, 3, 4 }, HET_BACKWARD_FUSED }, /* with near sets, below */
};
enum { LAYOUTS = (int)(sizeof layouts / sizeof layouts[0]) };

static void start(support_run *run, het_family family)
{
    het_model_desc model = support_deep_model(family);
    model.dropout = 0.1f;
    support_run_start(run, &model, STEPS, SUPPORT_SHORT);
    run->desc.layout.deadline = 20.0;
}

static void set_layout(support_run *run, const layout *l)
{
    int64_t r;
    support_run_ranks(run, l->ranks);
    support_run_plan(run, l->plan, l->schedule, l->slices);
    for (r = 0; r < l->ranks; r++) run->plan->state_share[r] = l->share[r];
    if (l == &layouts[LAYOUTS - 1])
        for (r = 0; r < l->ranks; r++) run->plan->near[r] = r % 2;
    run->desc.layout.backward = l->backward;
}

static void what_is_divided_does_not_show(void **state)
{
    static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_QWEN3 };
    uint64_t seed = 11;
    int i, shard;
    (void)state;
    for (i = 0; i < 3 * LAYOUTS; i++) {
        const layout *l = &layouts[i % LAYOUTS];
        support_result base;
        support_run run;
        char what[600];
        start(&run, families[i / LAYOUTS]);
        run.desc.dtype = i % 5 == 4 ? HET_BF16 : HET_F32;
        base = support_train(&run, BLOCKS);
        for (shard = HET_SHARD_STATE; shard <= HET_SHARD_WEIGHTS; shard++) {
            support_run_mixed(&run, i % 7, &seed);
            set_layout(&run, l);
            run.plan->shard = (het_shard)shard;
            snprintf(what, sizeof what, "layout %d, shard %d, family %d: %s", i % LAYOUTS, shard, (int)families[i / LAYOUTS], l->plan);
            support_train_same(&base, &run, BLOCKS, what);
        }
        support_run_end(&run);
    }
}

/* Frozen matrices, of bf16 and int8 too, are divided like others. */
static void frozen_weights_are_divided(void **state)
{
    int i;
    (void)state;
    for (i = 0; i < 3 * LAYOUTS; i++) {
        support_result base;
        support_run run;
        start(&run, HET_LLAMA);
        run.desc.model.lora_rank = 3;
        run.desc.weights = (het_dtype)(HET_F32 + i % 3);
        base = support_train(&run, BLOCKS);
        set_layout(&run, &layouts[i / 3]);
        run.plan->shard = HET_SHARD_WEIGHTS;
        support_train_same(&base, &run, BLOCKS, layouts[i / 3].plan);
        support_run_end(&run);
    }
}

static void divided_models_evaluate_and_generate(void **state)
{
    static const int32_t token[] = { 3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 8, 9, 7, 9 };
    support_group group;
    support_run run;
    float want[2][61], got[61];
    double loss;
    het_step_info info;
    het_ctx *ctx;
    int i;
    (void)state;
    start(&run, HET_LLAMA);
    support_group_start(&group, &run.data, 0, BLOCKS);
    ctx = support_create(&run.desc);
    EXPECT_OK(het_evaluate(ctx, group.batch, group.count, &info));
    loss = info.loss;
    EXPECT_OK(het_infer(ctx, token, 9, 0, want[0]));
    EXPECT_OK(het_infer(ctx, token + 9, 5, 9, want[1]));
    het_destroy(ctx);
    for (i = 0; i < 2 * LAYOUTS; i++) {
        set_layout(&run, &layouts[i / 2]);
        run.desc.layout.shard = HET_SHARD_WEIGHTS;
        run.desc.inference = i % 2 ? HET_YES : HET_NO;
        ctx = support_create(&run.desc);
        EXPECT_OK(het_evaluate(ctx, group.batch, group.count, &info));
        if (info.loss < loss || info.loss > loss) fail_msg("layout %d: loss %.17g, not %.17g", i / 2, info.loss, loss);
        EXPECT_OK(het_infer(ctx, token, 9, 0, got));
        if (memcmp(got, want[0], sizeof got) != 0) fail_msg("layout %d: logits differ", i / 2);
        EXPECT_OK(het_infer(ctx, token + 9, 5, 9, got));
        if (memcmp(got, want[1], sizeof got) != 0) fail_msg("layout %d: logits behind kept keys differ", i / 2);
        EXPECT_OK(het_verify(ctx));
        het_destroy(ctx);
    }
    support_group_end(&group);
    support_run_end(&run);
}

/* From plan to plan and mode to mode between steps; weights and state are read and written whole. */
static void replans_and_files_do_not_show(void **state)
{
    support_run run, alone;
    het_ctx *one, *ctx = NULL, *other;
    int i, step;
    (void)state;
    start(&run, HET_GPT2);
    start(&alone, HET_GPT2);
    one = support_create(&alone.desc);
    for (i = 0; i < LAYOUTS; i++) {
        uint64_t seed = (uint64_t)i;
        const layout *l = &layouts[i];
        if (l->ranks != 4) continue;
        set_layout(&run, l);
        run.plan->shard = (het_shard)(HET_SHARD_STATE + support_below(&seed, 3));
        if (i % 2) run.plan->shard = HET_SHARD_WEIGHTS;
        run.desc.layout.backward = HET_BACKWARD_FUSED;
        if (!ctx) ctx = support_create(&run.desc);
        else {
            het_replan_desc to;
            memset(&to, 0, sizeof to);
            to.plan = run.plan;
            EXPECT_OK(het_replan(ctx, &to));
        }
        step = i % STEPS;
        (void)support_step(one, &run.data, step, BLOCKS);
        (void)support_step(ctx, &run.data, step, BLOCKS);
        support_same_state(one, ctx, 1, l->plan);
    }
    set_layout(&run, &layouts[10]); /* near sets that differ from stages, and a keeper */
    run.plan->shard = HET_SHARD_WEIGHTS;
    other = support_create(&run.desc);
    {
        support_buffer weights, slots;
        het_reader from;
        support_save(ctx, &weights, &slots);
        from = support_reader(&weights);
        EXPECT_OK(het_load_weights(other, &from));
        from = support_reader(&slots);
        EXPECT_OK(het_load_state(other, &from));
        (void)support_step(one, &run.data, 1, BLOCKS);
        (void)support_step(other, &run.data, 1, BLOCKS);
        support_same_state(one, other, 1, "files");
        support_buffer_end(&weights);
        support_buffer_end(&slots);
    }
    het_destroy(one);
    het_destroy(ctx);
    het_destroy(other);
    support_run_end(&run);
    support_run_end(&alone);
}

/* A run of one rank is saved; each division, in each mode, some of them with stages that store, loads it, goes on with the same bits, and saves what
   one rank saves. So whatever saved it, any other goes on with it. */
static void files_do_not_know_divisions(void **state)
{
    support_buffer weights[3], slots[3];
    support_run run, alone;
    het_ctx *ctx;
    het_reader from;
    int i, k;
    int64_t s;
    (void)state;
    start(&alone, HET_LLAMA);
    ctx = support_create(&alone.desc);
    for (k = 0; k < 2; k++) {
        (void)support_step(ctx, &alone.data, k, BLOCKS);
        support_save(ctx, &weights[k], &slots[k]);
    }
    het_destroy(ctx);
    start(&run, HET_LLAMA);
    for (i = 0; i < 3 * LAYOUTS; i++) {
        set_layout(&run, &layouts[i / 3]);
        run.plan->shard = (het_shard)(HET_SHARD_STATE + i % 3);
        for (s = 0; s < run.plan->stages; s++) run.plan->stage[s].store = i % 2;
        ctx = support_create(&run.desc);
        from = support_reader(&weights[0]);
        EXPECT_OK(het_load_weights(ctx, &from));
        from = support_reader(&slots[0]);
        EXPECT_OK(het_load_state(ctx, &from));
        (void)support_step(ctx, &run.data, 1, BLOCKS);
        support_save(ctx, &weights[2], &slots[2]);
        if (weights[2].size != weights[1].size || memcmp(weights[2].data, weights[1].data, weights[1].size) != 0 ||
            slots[2].size != slots[1].size || memcmp(slots[2].data, slots[1].data, slots[1].size) != 0)
            fail_msg("layout %d, shard %d: other files than one rank's", i / 3, 1 + i % 3);
        support_buffer_end(&weights[2]);
        support_buffer_end(&slots[2]);
        het_destroy(ctx);
    }
    for (k = 0; k < 2; k++) {
        support_buffer_end(&weights[k]);
        support_buffer_end(&slots[k]);
    }
    support_run_end(&run);
    support_run_end(&alone);
}

/* ---- bytes ---- */

/* What a rank owns or holds of all blocks, and of one unit's, in elements; parameters are padded to 16. */
static int64_t padded(het_ctx *ctx)
{
    int64_t p, elements = 0;
    for (p = 0; p < het_parameter_count(ctx); p++) {
        het_parameter_info info;
        EXPECT_OK(het_parameter_get_info(ctx, p, &info));
        elements += (info.count + 15) / 16 * 16;
    }
    return elements;
}

/* The same of the last unit, whose weights a forward pass does not use where it trains: its logits are made behind it. */
static int64_t padded_head(het_ctx *ctx)
{
    int64_t p, elements = 0;
    for (p = 0; p < het_parameter_count(ctx); p++) {
        het_parameter_info info;
        EXPECT_OK(het_parameter_get_info(ctx, p, &info));
        if (strstr(info.name, "lm_head") || strcmp(info.name, "model.norm.weight") == 0) elements += (info.count + 15) / 16 * 16;
    }
    return elements;
}

/* What rank r has sent rank t in one step: the first one is measured and repeated. */
static int64_t sent(het_ctx *ctx, int64_t r, int64_t t)
{
    het_timeline timeline;
    het_get_timeline(ctx, r, &timeline);
    assert_int_equal(timeline.traffic[t].reduction_bytes % 2, 0);
    return timeline.traffic[t].reduction_bytes / 2;
}

/* Data parallel, m micro-batches a rank of one slice, fused: for each micro-batch of a rank another one sends it the weights that it holds twice,
   those of the head once, and gets the terms that it owns; nothing is gathered. */
static void traffic_is_what_the_formulas_say(void **state)
{
    static const double shares[][4] = { { 1, 1 }, { 1, 3 }, { 0, 1 }, { 1, 2, 3 }, { 1, 2, 3, 4 } };
    static const int64_t ranks[] = { 2, 2, 2, 3, 4 };
    int k;
    (void)state;
    for (k = 0; k < 5; k++) {
        support_run run;
        het_ctx *ctx;
        int64_t r, t, head = 0, own[4], batches[4];
        start(&run, HET_LLAMA);
        support_run_ranks(&run, ranks[k]);
        support_run_plan(&run, "dp", NULL, 1);
        for (r = 0; r < ranks[k]; r++) run.plan->state_share[r] = shares[k][r];
        run.plan->shard = HET_SHARD_WEIGHTS;
        run.desc.limits.max_micro_batches = 12;
        ctx = support_create(&run.desc);
        (void)support_step(ctx, &run.data, 0, "0|1|2|3|4|5");
        for (r = 0; r < ranks[k]; r++) {
            het_memory memory;
            het_get_memory(ctx, r, &memory);
            own[r] = (int64_t)memory.optimizer / 8;
            batches[r] = 6 / ranks[k] + (r < 6 % ranks[k]);
        }
        for (r = 0; r < ranks[k]; r++) { /* how much of the head it has, as what it sends says: the same to all */
            int64_t part = -1;
            for (t = 0; t < ranks[k]; t++) {
                const int64_t fetched = sent(ctx, r, t) - 8 * batches[r] * own[t], of_head = 2 * own[r] - fetched / (4 * batches[t]);
                if (r == t) continue;
                if (fetched % (4 * batches[t]) != 0 || of_head < 0 || of_head > own[r] || (part >= 0 && part != of_head))
                    fail_msg("shares %d: rank %d sends rank %d %ld bytes", k, (int)r, (int)t, (long)sent(ctx, r, t));
                part = of_head;
            }
            head += part;
        }
        assert_int_equal(head, padded_head(ctx));
        het_destroy(ctx);
        support_run_end(&run);
    }
}

/* Four ranks with a micro-batch each, E elements of which H are the head's. Between pairs of them cross, of each micro-batch, terms to the owners of
   the other pair, half of 8 E; flat, half of what is fetched, twice 4 E but for the head; as near sets no weights but the owners' new ones, 4 E in
   all. */
static void near_sets_fetch_from_each_other(void **state)
{
    int64_t near;
    (void)state;
    for (near = 0; near < 3; near++) {
        support_run run;
        het_ctx *ctx;
        int64_t r, t, elements, head, crossing = 0;
        start(&run, HET_LLAMA);
        support_run_ranks(&run, 4);
        support_run_plan(&run, "dp", NULL, 1);
        for (r = 0; r < 4; r++) {
            run.plan->near[r] = near > 0 ? r / 2 : 0;
            run.plan->state_share[r] = near > 1 ? (double)(r + 1) : 1;
        }
        run.plan->shard = HET_SHARD_WEIGHTS;
        ctx = support_create(&run.desc);
        (void)support_step(ctx, &run.data, 0, "0|1|2|345");
        elements = padded(ctx);
        head = padded_head(ctx);
        for (r = 0; r < 4; r++)
            for (t = 0; t < 4; t++)
                if (r / 2 != t / 2) crossing += sent(ctx, r, t);
        assert_int_equal(crossing, 4 * 8 * elements / 2 + (near > 0 ? 4 * elements : 4 * 4 * (2 * elements - head) / 2));
        het_destroy(ctx);
        support_run_end(&run);
    }
}

/* A worker beside a keeper has no state; what crosses is 8 + 4 bytes an element and step. */
static void a_keeper_updates(void **state)
{
    support_run run;
    het_memory memory;
    het_timeline timeline;
    het_ctx *ctx;
    (void)state;
    start(&run, HET_LLAMA);
    set_layout(&run, &layouts[11]);
    ctx = support_create(&run.desc);
    (void)support_step(ctx, &run.data, 0, BLOCKS);
    het_get_memory(ctx, 0, &memory);
    assert_int_equal(memory.optimizer, 0);
    het_get_memory(ctx, 1, &memory);
    assert_int_equal(memory.optimizer, 8 * padded(ctx));
    assert_int_equal(memory.activations, 0);
    het_get_timeline(ctx, 0, &timeline);
    assert_int_equal(timeline.traffic[1].reduction_bytes, 2 * 8 * padded(ctx));
    het_get_timeline(ctx, 1, &timeline);
    assert_int_equal(timeline.traffic[0].reduction_bytes, 2 * 4 * padded(ctx));
    het_destroy(ctx);
    support_run_end(&run);
}

/* ---- memory ---- */

/* Bytes of a rank of share s, an element: 12 + 8 s, 4 + 16 s, 20 s, as docs/ranks.md has them, beside two buffers of the largest unit for what is
   divided. A cut moves to a multiple of 1,024, and what it moves by is made good at the next. */
static void memory_follows_its_shares(void **state)
{
    static const double shares[][4] = { { 1, 1, 1, 1 }, { 1, 2, 3, 4 }, { 0, 1, 1, 2 } };
    het_device_desc device[4];
    het_model_desc model;
    het_error error;
    int64_t r, k;
    (void)state;
    memset(device, 0, sizeof device);
    EXPECT_OK(het_model_parse("gpt2:layers=8,width=192,heads=4,context=64,vocab=1000", &model, &error));
    for (k = 0; k < 9; k++) {
        const int shard = 1 + (int)k % 3;
        const double mlp = 2 * 768 * 192 + 768 + 3 * 192; /* more than the tied embedding's 192,000 */
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
        desc.layout.plan = plan = support_plan("dp", NULL, 18, 4, 1);
        for (r = 0; r < 4; r++) total += plan->state_share[r] = shares[k / 3][r];
        plan->shard = (het_shard)shard;
        for (r = 0; r < 4; r++) {
            const double s = shares[k / 3][r] / total, elements = (double)all.parameters, weights = shard == HET_SHARD_WEIGHTS ? s : 1,
                         sums = shard >= HET_SHARD_GRADIENTS ? s : 1, slack = 1100;
            double each, off[3];
            EXPECT_OK(het_memory_estimate(&desc, r, &memory, &error));
            if (shard == HET_SHARD_WEIGHTS) memory.weights -= (size_t)(2 * 4 * mlp);
            if (shard >= HET_SHARD_GRADIENTS) memory.gradients -= (size_t)(2 * 8 * mlp);
            each = (double)(memory.weights + memory.gradients + memory.optimizer) / elements;
            if (k < 3 && r == 0) print_message("shard %d: %.3f bytes an element of four equal ranks, %.0f KB buffers\n", shard, each,
                                               1e-3 * mlp * (shard == 1 ? 0 : shard == 2 ? 16 : 24));
            off[0] = (double)memory.weights - 4 * elements * weights;
            off[1] = (double)memory.gradients - 8 * elements * sums;
            off[2] = (double)memory.optimizer - 8 * elements * s;
            if (fabs(off[0]) > 4 * slack || fabs(off[1]) > 8 * slack || fabs(off[2]) > 8 * slack)
                fail_msg("shard %d, rank %d of share %g: %.0f, %.0f and %.0f bytes more than the formulas", shard, (int)r, s, off[0], off[1], off[2]);
            if (fabs(each - (shard == 1 ? 12 + 8 * s : shard == 2 ? 4 + 16 * s : 20 * s)) > 0.01)
                fail_msg("shard %d: %.4f bytes an element", shard, each);
        }
        het_plan_free(plan);
    }
}

/* What is estimated of all ranks is what is allocated, in every mode, and a step allocates nothing more. */
static void memory_is_what_was_estimated(void **state)
{
    int i;
    (void)state;
    for (i = 0; i < 3 * LAYOUTS; i++) {
        support_memory counted;
        support_run run;
        het_ctx *ctx;
        size_t bytes = 0;
        int64_t r;
        start(&run, HET_LLAMA);
        run.desc.host.allocator = support_allocator(&counted);
        set_layout(&run, &layouts[i / 3]);
        run.plan->shard = (het_shard)(HET_SHARD_STATE + i % 3);
        ctx = support_create(&run.desc);
        for (r = 0; r < layouts[i / 3].ranks; r++) {
            het_memory memory, estimate;
            het_error error;
            EXPECT_ERROR(het_memory_estimate(&run.desc, r, &estimate, &error), HET_OK, error.text, "");
            het_get_memory(ctx, r, &memory);
            assert_memory_equal(&memory, &estimate, sizeof memory);
            bytes += memory.host + memory.device;
        }
        assert_int_equal(counted.bytes, bytes);
        (void)support_step(ctx, &run.data, 0, BLOCKS);
        assert_int_equal(counted.bytes, bytes);
        het_destroy(ctx);
        assert_int_equal(counted.live, 0);
        support_run_end(&run);
    }
}

/* Weights, sums and state together need 2.5 times what each of four ranks may have. */
static void models_larger_than_a_rank_train(void **state)
{
    support_memory memory;
    support_run run, plain;
    het_model_desc model;
    het_memory whole, part;
    het_error error;
    support_result base;
    size_t limit;
    int r;
    (void)state;
    EXPECT_OK(het_model_parse("llama:layers=16,width=128,heads=4,kv_heads=2,context=64,vocab=61", &model, &error));
    support_run_start(&plain, &model, 2, SUPPORT_SHORT);
    base = support_train(&plain, "0|1|2|3|4|5");
    EXPECT_OK(het_memory_estimate(&plain.desc, 0, &whole, &error));
    limit = (size_t)((double)(whole.weights + whole.gradients + whole.optimizer) / 2.5);
    support_run_start(&run, &model, 2, SUPPORT_SHORT);
    run.desc.host.allocator = support_allocator(&memory);
    support_run_ranks(&run, 4);
    for (r = 0; r < 4; r++) run.device[r].memory_limit = limit;
    support_run_plan(&run, "dp", NULL, 1);
    run.desc.layout.recompute = HET_YES;
    run.desc.limits.max_tokens = 48;
    EXPECT_ERROR(het_memory_estimate(&run.desc, 0, &part, &error), HET_ERR_LIMIT, error.text, "more than its memory_limit");
    run.plan->shard = HET_SHARD_WEIGHTS;
    EXPECT_ERROR(het_memory_estimate(&run.desc, 0, &part, &error), HET_OK, error.text, "");
    assert_true(part.device + part.communication <= limit);
    support_train_same(&base, &run, "0|1|2|3|4|5", "four ranks of 0.4 of the model");
    assert_int_equal(memory.live, 0);
    support_run_end(&run);
    support_run_end(&plain);
}

/* ---- random layouts ---- */

static void one_round(int round)
{
    static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_QWEN3, HET_NEOX };
    static const char *const plans[] = { "dp", "dp", "dp2xpp2", "pp", "cp:3,1,2,1", "pp2xhp2", "pp2xcp2", CROSSED "\"slices\":1}", "dp2xtp2" };
    static const char *const schedules[] = { "1f1b", "gpipe", "zb-h1", "greedy" };
    uint64_t seed = (uint64_t)round * 7919 + 17;
    const int64_t keepers = support_below(&seed, 3);
    const char *text = plans[support_below(&seed, 9)];
    const int columns = strstr(text, "tp") != NULL;
    support_result base;
    support_run run;
    het_plan *four, shape, *plan = NULL;
    het_error error;
    char what[400];
    int64_t r, slices;
    start(&run, families[support_below(&seed, 4)]);
    run.desc.dtype = support_below(&seed, 4) == 0 ? HET_BF16 : HET_F32;
    support_draw_training(&run, &seed);
    if (text[0] == '{') run.desc.model.local_loss = 0; /* its units are written out */
    base = support_train(&run, BLOCKS);
    support_run_mixed(&run, (int)support_below(&seed, 8), &seed);
    support_run_ranks(&run, 4);
    slices = strchr(text, 'c') == NULL && strchr(text, '{') == NULL ? 1 + support_below(&seed, 3) : 1; /* context teams take none */
    support_run_plan(&run, text, schedules[support_below(&seed, 4)], slices);
    four = run.plan; /* and keepers behind its ranks */
    shape = *four;
    shape.ranks = 4 + keepers;
    EXPECT_OK(het_plan_new(&shape, NULL, "test", &plan, &error));
    memcpy(plan->stage, four->stage, (size_t)four->stages * sizeof *four->stage);
    memcpy(plan->first_stage, four->first_stage, (size_t)(four->pipelines + 1) * sizeof *four->first_stage);
    memcpy(plan->share, four->share, (size_t)four->pipelines * sizeof *four->share);
    memcpy(plan->member, four->member, (size_t)four->members * sizeof *four->member);
    for (r = 0; r < plan->ranks; r++) {
        plan->state_share[r] = (double)(support_below(&seed, 4) + (r >= 4 || r == 3));
        plan->keeper[r] = r >= 4;
        plan->near[r] = support_below(&seed, 2);
    }
    if (support_below(&seed, 2))
        for (r = 0; r < plan->ranks; r++) plan->near[r] = 0;
    plan->shard = (het_shard)(HET_SHARD_STATE + support_below(&seed, columns ? 2 : 3));
    if (!columns && support_below(&seed, 2)) plan->shard = HET_SHARD_WEIGHTS;
    support_draw_slices(plan, 40, &seed);
    for (r = 0; r < plan->stages; r++) plan->stage[r].store = (int32_t)support_below(&seed, 3);
    if (round % 3) support_draw_recompute(plan, &seed);
    support_run_ranks(&run, plan->ranks);
    run.desc.layout.plan = plan;
    run.desc.layout.recompute = support_below(&seed, 3) == 0 ? HET_YES : HET_NO;
    snprintf(what, sizeof what, "round %d: %s, %s, shard %d, %d keepers", round, text, plan->schedule, (int)plan->shard, (int)keepers);
    support_train_same(&base, &run, BLOCKS, what);
    het_plan_free(plan);
    support_run_end(&run);
}

/* HETRAIN_TEST_ROUNDS sets how many (make soak: many). */
static void random_divisions_have_the_bits_of_one_rank(void **state)
{
    const int first = support_environment("HETRAIN_TEST_FIRST_ROUND", 0), rounds = support_environment("HETRAIN_TEST_ROUNDS", 36);
    int round;
    (void)state;
    for (round = first; round < first + rounds; round++) one_round(round);
}

/* ---- failures and what is refused ---- */

typedef struct fault { int64_t rank, at; } fault;

static int falling_silent(void *user, int64_t rank, int64_t step, int64_t position)
{
    const fault *f = (const fault *)user;
    return rank == f->rank && step == 1 && position >= f->at;
}

/* Holders and keepers that fall silent are named, wherever they are. */
static void silent_holders_are_named(void **state)
{
    int i;
    (void)state;
    for (i = 0; i < 12; i++) {
        const layout *l = &layouts[i % 2 ? 9 : 11];
        support_run run;
        support_group group;
        support_memory memory;
        het_ctx *ctx;
        fault f;
        char words[32];
        uint64_t seed = (uint64_t)i;
        start(&run, HET_LLAMA);
        run.desc.host.allocator = support_allocator(&memory);
        set_layout(&run, l);
        run.plan->shard = i % 3 ? HET_SHARD_WEIGHTS : HET_SHARD_STATE;
        run.desc.layout.deadline = 0.1;
        f.rank = i % 2 ? support_below(&seed, 5) : 1;
        f.at = support_below(&seed, 3);
        run.desc.emulate.test_hang = falling_silent;
        run.desc.host.user = &f;
        ctx = support_create(&run.desc);
        (void)support_step(ctx, &run.data, 0, BLOCKS);
        support_group_start(&group, &run.data, 1, BLOCKS);
        snprintf(words, sizeof words, "rank %d,", (int)f.rank);
        EXPECT_ERROR(het_step(ctx, group.batch, group.count, NULL), HET_ERR_TRANSPORT, het_last_error(ctx), words);
        support_group_end(&group);
        het_destroy(ctx);
        assert_int_equal(memory.live, 0);
        support_run_end(&run);
    }
}

/* A keeper, or who holds a part of the weights, that has no memory for it: each of its device's allocations fails once. The error names the rank. */
static void full_holders_are_named(void **state)
{
    int i;
    (void)state;
    for (i = 0; i < 2; i++) {
        int64_t k;
        for (k = 0;; k++) {
            support_memory memory;
            support_run run;
            het_ctx *ctx = NULL;
            het_error error = { HET_OK, "" };
            het_result result;
            start(&run, HET_LLAMA);
            set_layout(&run, &layouts[i ? 0 : 11]);
            run.plan->shard = HET_SHARD_WEIGHTS;
            run.device[1].allocator = support_allocator(&memory);
            memory.fail_at = k;
            result = het_create(&run.desc, &ctx, &error);
            if (result == HET_OK) (void)support_step(ctx, &run.data, 0, BLOCKS);
            else EXPECT_ERROR(result, HET_ERR_OOM, error.text, "rank 1, device cpu");
            het_destroy(ctx);
            assert_true(memory.live == 0 && memory.wrong == 0);
            support_run_end(&run);
            if (result == HET_OK) break;
        }
        assert_true(k > 0);
    }
}

static het_op_kind failing_kind; /* what the device of rank 1 fails at, and how many of them it does before; negative: never */
static int failing_after;

static het_result run_or_fail(void *self, het_queue *queue, const het_op *op)
{
    if (op->kind == failing_kind && failing_after >= 0 && failing_after-- == 0) return HET_ERR_DEVICE;
    return het_cpu_device()->run(self, queue, op);
}

/* A keeper whose update fails, a holder whose copy of fetched weights does: the error names rank and action, and nothing leaks. */
static void failing_holders_are_named(void **state)
{
    int i;
    (void)state;
    for (i = 0; i < 6; i++) {
        het_device_iface fails = *het_cpu_device();
        support_memory memory;
        support_group group;
        support_run run;
        het_ctx *ctx;
        start(&run, HET_LLAMA);
        run.desc.host.allocator = support_allocator(&memory);
        set_layout(&run, &layouts[i % 2 ? 0 : 11]);
        run.plan->shard = HET_SHARD_WEIGHTS;
        fails.run = run_or_fail;
        run.device[1].iface = &fails;
        failing_kind = i % 2 ? HET_OP_COPY : HET_OP_ADAMW;
        failing_after = -1;
        ctx = support_create(&run.desc);
        (void)support_step(ctx, &run.data, 0, BLOCKS);
        failing_after = 3 * (i / 2);
        support_group_start(&group, &run.data, 1, BLOCKS);
        EXPECT_ERROR(het_step(ctx, group.batch, group.count, NULL), HET_ERR_DEVICE, het_last_error(ctx), i % 2 ? "rank 1, step 2|copy of weights"
                                                                                                             : "rank 1, step 2");
        support_group_end(&group);
        het_destroy(ctx);
        assert_int_equal(memory.live, 0);
        support_run_end(&run);
    }
}

static void bad_divisions_are_refused(void **state)
{
    static const struct { const char *text, *words; } texts[] = {
        { ALONE "\"shard\":\"some\"}", "\"shard\" is \"some\", not" }, { ALONE "\"near\":[0]}", "1 sets for 2 ranks" },
        { ALONE "\"near\":[0,2]}", "near: number 1 is 2; there are 2 ranks" }, { ALONE "\"keepers\":[-1]}", "keepers: number 0 is -1" },
        { ALONE "\"keepers\":[0]}", "rank 0 is a keeper and has a stage" },
        { ALONE "\"keepers\":[1],\"state_shares\":[1,0]}", "keeper 1 has no share of the state" },
    };
    support_run run;
    het_ctx *ctx;
    het_error error;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        het_plan_desc desc;
        het_plan *plan = NULL;
        memset(&desc, 0, sizeof desc);
        desc.units = 8;
        desc.ranks = 2;
        EXPECT_ERROR(het_plan_read(&desc, texts[i].text, strlen(texts[i].text), &plan, &error), HET_ERR_INVALID, error.text, texts[i].words);
    }
    start(&run, HET_LLAMA);
    set_layout(&run, &layouts[0]);
    run.desc.reduce = HET_REDUCE_FAST;
    run.plan->shard = HET_SHARD_WEIGHTS;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "sharded gradients and weights need reduce = exact");
    run.plan->shard = (het_shard)7;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "shard is 7");
    set_layout(&run, &layouts[11]);
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "keepers need reduce = exact");
    support_run_end(&run);
}

static void divisions_are_written_as_they_were_read(void **state)
{
    const char *text = CROSSED "\"near\":[1,0,0,1,1],\"keepers\":[4],\"shard\":\"weights\"}";
    het_plan *a = support_plan(text, NULL, 8, 5, 1), *b;
    support_buffer buffer;
    het_writer to;
    (void)state;
    support_buffer_start(&buffer);
    to = support_writer(&buffer);
    EXPECT_OK(het_plan_write(a, &to));
    support_buffer_append(&buffer, "", 1);
    b = support_plan((const char *)buffer.data, NULL, 8, 5, 1);
    assert_memory_equal(a->near, b->near, 5 * sizeof *a->near);
    assert_memory_equal(a->keeper, b->keeper, 5);
    assert_int_equal(a->near[3], 1);
    assert_int_equal(b->keeper[4], 1);
    assert_int_equal(b->shard, HET_SHARD_WEIGHTS);
    support_buffer_end(&buffer);
    het_plan_free(a);
    het_plan_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_divided_does_not_show),
        cmocka_unit_test(frozen_weights_are_divided),
        cmocka_unit_test(divided_models_evaluate_and_generate),
        cmocka_unit_test(replans_and_files_do_not_show),
        cmocka_unit_test(files_do_not_know_divisions),
        cmocka_unit_test(traffic_is_what_the_formulas_say),
        cmocka_unit_test(near_sets_fetch_from_each_other),
        cmocka_unit_test(a_keeper_updates),
        cmocka_unit_test(memory_follows_its_shares),
        cmocka_unit_test(memory_is_what_was_estimated),
        cmocka_unit_test(models_larger_than_a_rank_train),
        cmocka_unit_test(random_divisions_have_the_bits_of_one_rank),
        cmocka_unit_test(silent_holders_are_named),
        cmocka_unit_test(full_holders_are_named),
        cmocka_unit_test(failing_holders_are_named),
        cmocka_unit_test(bad_divisions_are_refused),
        cmocka_unit_test(divisions_are_written_as_they_were_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
