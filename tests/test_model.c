/* Training as a whole: derivatives of whole models, the optimizer, frozen parameters, weights of targets, hooks, units of the user's own,
   inference, and saving in the middle of a run. */
#include "drawn_unit.h"
#include "support.h"

#include "hetrain_files.h"

static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_QWEN2, HET_QWEN3, HET_NEOX };

static het_desc describe(het_family family)
{
    het_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.model = support_model(family);
    desc.limits.max_tokens = 160;
    desc.seed = 4;
    desc.optimizer.learning_rate = 1e-2f;
    desc.optimizer.total_steps = 20;
    return desc;
}

static void batch_of(support_batch *batch, const int64_t *length, int sequences, uint64_t seed)
{
    int i;
    support_batch_start(batch);
    for (i = 0; i < sequences; i++) support_batch_sequence(batch, length[i], 61, i, seed + (uint64_t)i);
}

static const int64_t usual[] = { 17, 0, 1, 30 };

static int64_t largest_parameter(const het_ctx *ctx)
{
    het_parameter_info info;
    int64_t i, most = 0;
    for (i = 0; i < het_parameter_count(ctx); i++) {
        EXPECT_OK(het_parameter_get_info(ctx, i, &info));
        if (info.count > most) most = info.count;
    }
    return most;
}

/* A copy of one array of every parameter, one behind the other. */
static float *snapshot(het_ctx *ctx, het_array what, int64_t *total)
{
    het_parameter_info info;
    float *all = NULL;
    int64_t i;
    *total = 0;
    for (i = 0; i < het_parameter_count(ctx); i++) {
        EXPECT_OK(het_parameter_get_info(ctx, i, &info));
        all = realloc(all, (size_t)(*total + info.count) * sizeof *all);
        assert_non_null(all);
        support_expect(het_parameter_read(ctx, i, what, all + *total), HET_OK, het_last_error(ctx), "", "het_parameter_read", __LINE__);
        *total += info.count;
    }
    return all;
}

static double loss_of(het_ctx *ctx, const support_batch *batch)
{
    het_step_info info;
    EXPECT_OK(het_evaluate(ctx, &batch->batch, 1, &info));
    return info.loss;
}

/* ---- derivatives of whole models ---- */

/* Along the gradient of each parameter in turn, the loss must rise as the gradient's norm says, by a step of 0.01 or less, above `least`. */
static void check_directions(const het_desc *desc, const support_batch *batch, double least, const char *what)
{
    het_ctx *ctx = support_create(desc);
    float *weight = support_alloc((size_t)largest_parameter(ctx), sizeof *weight);
    float *gradient = support_alloc((size_t)largest_parameter(ctx), sizeof *gradient);
    float *moved = support_alloc((size_t)largest_parameter(ctx), sizeof *moved);
    het_step_info info;
    int64_t i, k;
    EXPECT_OK(het_gradients(ctx, &batch->batch, 1, &info));
    assert_true(loss_of(ctx, batch) == info.loss); /* evaluation runs the same code */
    for (i = 0; i < het_parameter_count(ctx); i++) {
        het_parameter_info p;
        double norm = 0.0, h, above, below, want;
        EXPECT_OK(het_parameter_get_info(ctx, i, &p));
        EXPECT_OK(het_parameter_read(ctx, i, HET_WEIGHT, weight));
        EXPECT_OK(het_gradients(ctx, &batch->batch, 1, NULL));
        EXPECT_OK(het_parameter_read(ctx, i, HET_GRADIENT, gradient));
        for (k = 0; k < p.count; k++) norm += (double)gradient[k] * (double)gradient[k];
        norm = sqrt(norm);
        if (norm < 1e-6) continue; /* the bias of k moves no softmax */
        want = 0.0;
        for (h = 0.01; fabs(want - norm) > 0.02 * norm + 2e-5 && h > least; h /= 4) { /* smaller where the loss is bent */
            for (k = 0; k < p.count; k++) moved[k] = (float)((double)weight[k] + h * (double)gradient[k] / norm);
            EXPECT_OK(het_parameter_write(ctx, i, HET_WEIGHT, moved));
            above = loss_of(ctx, batch);
            for (k = 0; k < p.count; k++) moved[k] = (float)((double)weight[k] - h * (double)gradient[k] / norm);
            EXPECT_OK(het_parameter_write(ctx, i, HET_WEIGHT, moved));
            below = loss_of(ctx, batch);
            want = (above - below) / (2.0 * h);
        }
        EXPECT_OK(het_parameter_write(ctx, i, HET_WEIGHT, weight));
        if (fabs(want - norm) > 0.02 * norm + 2e-5)
            fail_msg("%s: %s: the loss rises by %.6g along a gradient of norm %.6g", what, p.name, want, norm);
    }
    free(weight);
    free(gradient);
    free(moved);
    het_destroy(ctx);
}

static void gradients_of_every_family(void **state)
{
    support_batch batch;
    char what[64];
    size_t f;
    (void)state;
    batch_of(&batch, usual, 4, 9);
    for (f = 0; f < sizeof families / sizeof *families; f++) {
        het_desc desc = describe(families[f]);
        desc.model.init_std = 0.2f; /* steep enough for every parameter to matter */
        snprintf(what, sizeof what, "family %d", (int)families[f]);
        check_directions(&desc, &batch, 0.005, what);
    }
    support_batch_end(&batch);
}

static void gradients_of_every_setting(void **state)
{
    support_batch batch;
    het_desc desc;
    (void)state;
    batch_of(&batch, usual, 4, 9);
    desc = describe(HET_LLAMA);
    desc.model.init_std = 0.2f;
    desc.model.causal = HET_NO;
    check_directions(&desc, &batch, 0.005, "bidirectional");
    desc.model.causal = HET_YES;
    desc.model.window = 5;
    check_directions(&desc, &batch, 0.005, "window");
    desc.model.window = 0;
    desc.model.qk_norm = desc.model.qkv_bias = desc.model.linear_bias = desc.model.parallel = desc.model.tied = HET_YES;
    desc.model.norm = HET_LAYERNORM;
    desc.model.position = HET_LEARNED;
    desc.model.activation = HET_GELU_ERF;
    check_directions(&desc, &batch, 0.005, "unusual mixture");
    desc.model.position = HET_NO_POSITION;
    desc.model.activation = HET_SWIGLU;
    check_directions(&desc, &batch, 0.005, "no positions, SwiGLU with biases");
    support_batch_end(&batch);
}

/* ---- the optimizer ---- */

/* One step of every parameter against the formula in double, from what the context shows. */
static void adamw_of_a_context(void **state)
{
    het_desc desc = describe(HET_GPT2);
    support_batch batch;
    het_step_info info;
    het_ctx *ctx;
    int step;
    (void)state;
    batch_of(&batch, usual, 4, 3);
    desc.optimizer.clip = 0.5f;
    ctx = support_create(&desc);
    for (step = 0; step < 3; step++) {
        int64_t n, i, k, at = 0;
        float *w0 = snapshot(ctx, HET_WEIGHT, &n), *m0 = snapshot(ctx, HET_MOMENT0, &n), *v0 = snapshot(ctx, HET_MOMENT1, &n), *w1, *m1, *v1, *g;
        double square = 0.0, scale, lr;
        EXPECT_OK(het_step(ctx, &batch.batch, 1, &info));
        w1 = snapshot(ctx, HET_WEIGHT, &n);
        m1 = snapshot(ctx, HET_MOMENT0, &n);
        v1 = snapshot(ctx, HET_MOMENT1, &n);
        g = snapshot(ctx, HET_GRADIENT, &n);
        for (i = 0; i < n; i++) square += (double)g[i] * (double)g[i];
        assert_true(fabs(info.gradient_norm - sqrt(square)) <= 1e-9 * info.gradient_norm);
        assert_true(info.gradient_norm > 0.5); /* or nothing is clipped */
        scale = 0.5 / info.gradient_norm;
        lr = het_learning_rate(&desc.optimizer, step);
        assert_true(info.learning_rate == lr);
        for (i = 0; i < het_parameter_count(ctx); i++) {
            het_parameter_info p;
            EXPECT_OK(het_parameter_get_info(ctx, i, &p));
            assert_int_equal(p.decay, p.columns > 1); /* matrices decay; biases and norms do not */
            for (k = at; k < at + p.count; k++) {
                double b1 = (double)0.9f, b2 = (double)0.95f, gradient = scale * (double)g[k], t = step + 1;
                double m = b1 * (double)m0[k] + (1.0 - b1) * gradient, v = b2 * (double)v0[k] + (1.0 - b2) * gradient * gradient;
                double w = (double)w0[k] * (1.0 - (p.decay ? lr * (double)0.1f : 0.0));
                w -= lr * (m / (1.0 - pow(b1, t))) / (sqrt(v / (1.0 - pow(b2, t))) + 1e-8);
                if (fabs(w - (double)w1[k]) > 1e-6 + 1e-4 * lr || fabs(m - (double)m1[k]) > 1e-6 * (1e-3 + fabs(m)) ||
                    fabs(v - (double)v1[k]) > 1e-6 * (1e-6 + fabs(v))) {
                    fail_msg("step %d, %s[%d]: w %.9g not %.9g, m %.9g not %.9g, v %.9g not %.9g", step, p.name, (int)(k - at), (double)w1[k], w,
                             (double)m1[k], m, (double)v1[k], v);
                }
            }
            at += p.count;
        }
        free(w0);
        free(m0);
        free(v0);
        free(w1);
        free(m1);
        free(v1);
        free(g);
    }
    het_destroy(ctx);
    support_batch_end(&batch);
}

static void learning_rate_schedules(void **state)
{
    het_optimizer_desc o;
    int64_t t;
    (void)state;
    memset(&o, 0, sizeof o);
    o.learning_rate = 0.5f;
    o.minimum_rate = 0.125f;
    o.warmup_steps = 10;
    o.total_steps = 110;
    for (t = 0; t <= 130; t++) {
        double x = t < 110 ? (double)(t - 10) / 100.0 : 1.0, want;
        double warm = 0.5 * (double)(t + 1) / 10.0;
        o.schedule = HET_LR_COSINE;
        want = t < 10 ? warm : 0.125 + 0.375 * 0.5 * (1.0 + cos(3.14159265358979323846 * x));
        assert_true(fabs(het_learning_rate(&o, t) - want) < 1e-12);
        o.schedule = HET_LR_DEFAULT;
        assert_true(fabs(het_learning_rate(&o, t) - want) < 1e-12);
        o.schedule = HET_LR_LINEAR;
        want = t < 10 ? warm : 0.5 - 0.375 * x;
        assert_true(fabs(het_learning_rate(&o, t) - want) < 1e-12);
        o.schedule = HET_LR_CONSTANT;
        want = t < 10 ? warm : 0.5;
        assert_true(fabs(het_learning_rate(&o, t) - want) < 1e-12);
        o.schedule = HET_LR_WSD; /* the last 20 % of all steps: 88 to 110 */
        want = t < 10 ? warm : t < 88 ? 0.5 : t >= 110 ? 0.125 : 0.125 + 0.375 * (1.0 - sqrt((double)(t - 88) / 22.0));
        if (fabs(het_learning_rate(&o, t) - want) > 1e-12) fail_msg("WSD, step %d: %.17g, not %.17g", (int)t, het_learning_rate(&o, t), want);
    }
}

static void training_learns(void **state)
{
    size_t f;
    (void)state;
    for (f = 0; f < sizeof families / sizeof *families; f++) {
        het_desc desc = describe(families[f]);
        int32_t token[48], target[48];
        int64_t start[] = { 0, 48 }, i;
        double first = 0.0;
        het_step_info info;
        het_batch batch;
        het_ctx *ctx;
        desc.optimizer.total_steps = 60;
        ctx = support_create(&desc);
        memset(&batch, 0, sizeof batch);
        for (i = 0; i < 48; i++) {
            token[i] = (int32_t)(i * i % 61);
            target[i] = (int32_t)((i + 1) * (i + 1) % 61);
        }
        batch.tokens = 48;
        batch.sequences = 1;
        batch.token = token;
        batch.target = target;
        batch.sequence_start = start;
        for (i = 0; i < 60; i++) {
            EXPECT_OK(het_step(ctx, &batch, 1, &info));
            if (i == 0) first = info.loss;
        }
        assert_true(fabs(first - log(61.0)) < 0.3);
        if (!(info.loss < 0.3)) fail_msg("family %d: the loss is still %.4f after 60 steps", (int)families[f], info.loss);
        assert_int_equal(het_get_step(ctx), 60);
        het_destroy(ctx);
    }
}

/* ---- frozen parameters ---- */

static int freeze_attention(void *user, const char *name)
{
    (void)user;
    return strstr(name, "attn") != NULL;
}

/* Units, parameters and blocks of a description are those of a context made from it: the embedding, tied to the head, is a block of both. */
static void descriptions_are_contexts(void **state)
{
    het_desc desc = describe(HET_GPT2);
    het_description *d = NULL;
    het_ctx *ctx;
    het_error error = { HET_OK, "" };
    int64_t i, p, elements = 0, rounded = 0, shared = 0;
    (void)state;
    desc.frozen = freeze_attention;
    EXPECT_ERROR(het_describe(&desc, &d, &error), HET_OK, error.text, "");
    ctx = support_create(&desc);
    assert_int_equal(d->units, 2 * d->desc.model.layers + 2);
    assert_int_equal(het_parameter_count(d->ctx), het_parameter_count(ctx));
    assert_int_equal(het_verify(d->ctx), HET_ERR_STATE); /* it answers nothing else */
    assert_non_null(strstr(het_last_error(d->ctx), "het_verify: refused inside het_description.ctx"));
    for (i = 0; i < het_parameter_count(ctx); i++) {
        het_parameter_info a, b;
        EXPECT_OK(het_parameter_get_info(ctx, i, &a));
        EXPECT_OK(het_parameter_get_info(d->ctx, i, &b));
        assert_string_equal(a.name, b.name);
        assert_true(a.rows == b.rows && a.columns == b.columns && a.frozen == b.frozen && a.uses == b.uses && a.decay == b.decay);
        elements += (a.count + 15) / 16 * 16;
    }
    for (i = 0; i < d->units; i++) {
        const het_described_unit *u = &d->unit[i];
        assert_true(u->info.max_tokens == d->desc.limits.max_tokens && u->info.workspace > 0 && u->info.device != NULL);
        for (p = 0; p < u->info.parameters; p++) {
            het_parameter_info a;
            EXPECT_OK(het_parameter_get_info(d->ctx, u->parameter[p], &a));
            assert_string_equal(a.name, u->info.parameter[p].name);
        }
    }
    for (i = 0; i < d->blocks; i++) {
        const het_described_block *b = &d->block[i];
        rounded += b->elements;
        if (b->uses < 2) continue;
        shared++;
        assert_true(b->uses == 2 && d->use[b->first_use] == 0 && d->use[b->first_use + 1] == d->units - 1);
    }
    assert_true(rounded == elements && shared == 1);
    het_destroy(ctx);
    het_description_free(d);
}

static int freeze_all(void *user, const char *name) { (void)user; (void)name; return 1; }

/* Where nothing is trained a step would do nothing, and say nothing; generating and evaluating go on. */
static void frozen_as_a_whole(void **state)
{
    het_desc desc = describe(HET_GPT2);
    het_error error = { HET_OK, "" };
    het_ctx *ctx;
    (void)state;
    desc.frozen = freeze_all;
    EXPECT_ERROR(het_create(&desc, &ctx, &error), HET_ERR_INVALID, error.text, "all|parameters are frozen|inference");
    desc.inference = HET_YES;
    het_destroy(support_create(&desc));
}

static void frozen_parameters_stay(void **state)
{
    het_desc desc = describe(HET_GPT2);
    support_batch batch;
    het_ctx *ctx;
    float *before, *after;
    int64_t n, i, at = 0, frozen = 0, moved = 0;
    het_memory all, some;
    (void)state;
    batch_of(&batch, usual, 4, 3);
    EXPECT_OK(het_memory_estimate(&desc, 0, &all, NULL));
    desc.frozen = freeze_attention;
    EXPECT_OK(het_memory_estimate(&desc, 0, &some, NULL));
    assert_true(some.gradients < all.gradients && some.optimizer < all.optimizer); /* what is not trained needs neither */
    ctx = support_create(&desc);
    before = snapshot(ctx, HET_WEIGHT, &n);
    for (i = 0; i < 3; i++) EXPECT_OK(het_step(ctx, &batch.batch, 1, NULL));
    after = snapshot(ctx, HET_WEIGHT, &n);
    for (i = 0; i < het_parameter_count(ctx); i++) {
        het_parameter_info p;
        int same;
        EXPECT_OK(het_parameter_get_info(ctx, i, &p));
        same = memcmp(before + at, after + at, (size_t)p.count * sizeof *before) == 0;
        assert_int_equal(p.frozen != 0, freeze_attention(NULL, p.name));
        assert_int_equal(same, p.frozen != 0);
        frozen += p.frozen != 0;
        moved += p.frozen == 0;
        at += p.count;
    }
    assert_true(frozen >= 8 && moved >= 8);
    free(before);
    free(after);
    het_destroy(ctx);
    support_batch_end(&batch);
}

/* The others learn as if nothing were frozen, in the first step: their gradients do not depend on it. */
static void freezing_leaves_other_gradients(void **state)
{
    het_desc desc = describe(HET_QWEN3);
    support_batch batch;
    het_ctx *all, *some;
    int64_t i, most;
    float *a, *b;
    (void)state;
    batch_of(&batch, usual, 4, 3);
    all = support_create(&desc);
    desc.frozen = freeze_attention;
    some = support_create(&desc);
    EXPECT_OK(het_gradients(all, &batch.batch, 1, NULL));
    EXPECT_OK(het_gradients(some, &batch.batch, 1, NULL));
    most = largest_parameter(all);
    a = support_alloc((size_t)most, sizeof *a);
    b = support_alloc((size_t)most, sizeof *b);
    for (i = 0; i < het_parameter_count(all); i++) {
        het_parameter_info p;
        EXPECT_OK(het_parameter_get_info(some, i, &p));
        if (p.frozen) continue;
        EXPECT_OK(het_parameter_read(all, i, HET_GRADIENT, a));
        EXPECT_OK(het_parameter_read(some, i, HET_GRADIENT, b));
        if (memcmp(a, b, (size_t)p.count * sizeof *a) != 0) fail_msg("the gradient of %s depends on what is frozen", p.name);
    }
    free(a);
    free(b);
    het_destroy(all);
    het_destroy(some);
    support_batch_end(&batch);
}

/* ---- weights of targets ---- */

static void weights_count_like_repetition(void **state)
{
    static const int64_t once[] = { 20, 25 }, twice[] = { 20, 20, 25 };
    het_desc desc = describe(HET_LLAMA);
    support_batch weighted, repeated;
    het_step_info a, b;
    het_ctx *ctx = support_create(&desc);
    float *ga, *gb;
    int64_t n, i;
    double difference = 0.0, size = 0.0;
    (void)state;
    batch_of(&weighted, once, 2, 5);
    batch_of(&repeated, twice, 3, 5);
    for (i = 0; i < 45; i++) weighted.weight[i] = i < 20 ? 2.0f : 1.0f;
    for (i = 0; i < 65; i++) {
        repeated.weight[i] = 1.0f;
        repeated.token[i] = weighted.token[i < 20 ? i : i - 20];
        repeated.target[i] = weighted.target[i < 20 ? i : i - 20];
    }
    EXPECT_OK(het_gradients(ctx, &weighted.batch, 1, &a));
    ga = snapshot(ctx, HET_GRADIENT, &n);
    EXPECT_OK(het_gradients(ctx, &repeated.batch, 1, &b));
    gb = snapshot(ctx, HET_GRADIENT, &n);
    assert_true(a.loss == b.loss && a.weight == b.weight);
    for (i = 0; i < n; i++) {
        difference += ((double)ga[i] - (double)gb[i]) * ((double)ga[i] - (double)gb[i]);
        size += (double)ga[i] * (double)ga[i];
    }
    assert_true(sqrt(difference) <= 1e-8 * sqrt(size));
    free(ga);
    free(gb);
    het_destroy(ctx);
    support_batch_end(&weighted);
    support_batch_end(&repeated);
}

/* No weights are weights of 1; a weight of 0 is an ignored target. */
static void weights_of_one_and_zero(void **state)
{
    het_desc desc = describe(HET_GPT2);
    support_batch batch;
    uint64_t hash[4];
    int64_t i;
    int way;
    (void)state;
    for (way = 0; way < 4; way++) {
        het_ctx *ctx = support_create(&desc);
        het_batch b;
        batch_of(&batch, usual, 4, 5);
        b = batch.batch;
        for (i = 0; i < b.tokens; i++) batch.weight[i] = 1.0f;
        for (i = 0; i < b.tokens; i += 3) {
            if (way == 2) batch.target[i] = -1;
            if (way == 3) batch.weight[i] = 0.0f;
        }
        if (way == 0) b.weight = NULL;
        EXPECT_OK(het_step(ctx, &b, 1, NULL));
        EXPECT_OK(het_step(ctx, &b, 1, NULL));
        hash[way] = support_hash(ctx);
        het_destroy(ctx);
        support_batch_end(&batch);
    }
    assert_true(hash[0] == hash[1]);
    assert_true(hash[2] == hash[3]);
    assert_true(hash[0] != hash[2]);
}

/* ---- dropout ---- */

static void evaluation_drops_nothing(void **state)
{
    het_desc desc = describe(HET_GPT2);
    support_batch batch;
    het_step_info info;
    het_ctx *plain, *dropping;
    (void)state;
    batch_of(&batch, usual, 4, 5);
    plain = support_create(&desc);
    desc.model.dropout = 0.3f;
    dropping = support_create(&desc);
    assert_true(loss_of(plain, &batch) == loss_of(dropping, &batch));
    EXPECT_OK(het_gradients(dropping, &batch.batch, 1, &info));
    assert_true(info.loss != loss_of(plain, &batch));
    het_destroy(plain);
    het_destroy(dropping);
    support_batch_end(&batch);
}

/* The same text under another sample id meets another mask. */
static void dropout_by_sample(void **state)
{
    static const int64_t one[] = { 40 };
    het_desc desc = describe(HET_GPT2);
    support_batch batch;
    het_step_info a, b, c;
    het_ctx *ctx;
    (void)state;
    desc.model.dropout = 0.3f;
    ctx = support_create(&desc);
    batch_of(&batch, one, 1, 5);
    EXPECT_OK(het_gradients(ctx, &batch.batch, 1, &a));
    batch.sample_id[0] = 77;
    EXPECT_OK(het_gradients(ctx, &batch.batch, 1, &b));
    batch.sample_id[0] = 0;
    EXPECT_OK(het_gradients(ctx, &batch.batch, 1, &c));
    assert_true(a.loss == c.loss && a.loss != b.loss);
    het_destroy(ctx);
    support_batch_end(&batch);
}

/* ---- hooks ---- */

/* Doubles the gradient that comes out of the head. */
static het_result double_gradient(void *user, const het_hook_info *info)
{
    int64_t i;
    (void)user;
    if (info->direction != HET_BACKWARD || strcmp(info->unit_name, het_unit_head()->name) != 0) return HET_OK;
    assert_int_equal(info->streams, 1);
    for (i = 0; i < info->rows * info->width[0]; i++) info->stream[0][i] *= 2.0f;
    return HET_OK;
}

static void hook_scales_gradients(void **state)
{
    het_desc desc = describe(HET_LLAMA); /* not tied: the head's own parameters are not reached */
    support_batch batch;
    het_ctx *plain, *doubled;
    int64_t i, k, most, changed = 0;
    float *a, *b;
    (void)state;
    batch_of(&batch, usual, 4, 3);
    plain = support_create(&desc);
    desc.host.hook = double_gradient;
    doubled = support_create(&desc);
    EXPECT_OK(het_gradients(plain, &batch.batch, 1, NULL));
    EXPECT_OK(het_gradients(doubled, &batch.batch, 1, NULL));
    most = largest_parameter(plain);
    a = support_alloc((size_t)most, sizeof *a);
    b = support_alloc((size_t)most, sizeof *b);
    for (i = 0; i < het_parameter_count(plain); i++) {
        het_parameter_info p;
        float factor;
        EXPECT_OK(het_parameter_get_info(plain, i, &p));
        EXPECT_OK(het_parameter_read(plain, i, HET_GRADIENT, a));
        EXPECT_OK(het_parameter_read(doubled, i, HET_GRADIENT, b));
        factor = strstr(p.name, "lm_head") || strcmp(p.name, "model.norm.weight") == 0 ? 1.0f : 2.0f;
        changed += factor > 1.0f;
        for (k = 0; k < p.count; k++) {
            if (!(b[k] == factor * a[k])) fail_msg("%s[%d]: %.9g is not %g times %.9g", p.name, (int)k, (double)b[k], (double)factor, (double)a[k]);
        }
    }
    assert_true(changed >= 15);
    free(a);
    free(b);
    het_destroy(plain);
    het_destroy(doubled);
    support_batch_end(&batch);
}

static het_result add_to_stream(void *user, const het_hook_info *info)
{
    const int64_t *unit = user;
    if (info->direction == HET_FORWARD && info->unit == *unit) info->stream[0][0] += 1.0f;
    return HET_OK;
}

static void hook_changes_activations(void **state)
{
    het_desc desc = describe(HET_GPT2);
    support_batch batch;
    double plain, changed;
    int64_t unit;
    het_ctx *ctx;
    (void)state;
    batch_of(&batch, usual, 4, 3);
    ctx = support_create(&desc);
    plain = loss_of(ctx, &batch);
    het_destroy(ctx);
    desc.host.hook = add_to_stream;
    desc.host.user = &unit;
    for (unit = 0; unit < 5; unit++) {
        ctx = support_create(&desc);
        changed = loss_of(ctx, &batch);
        assert_true(changed != plain && isfinite(changed));
        het_destroy(ctx);
    }
    support_batch_end(&batch);
}

/* ---- a unit of the user's own: y[r][i] = gain[i] x[r][i] ---- */

static het_result gain_describe(const het_unit *unit, het_unit_info *info)
{
    het_parameter_desc *p = &info->parameter[0];
    (void)unit;
    info->out_streams = 1;
    info->out_width[0] = info->in_width[0];
    info->parameters = 1;
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "gain.%d", (int)unit->layer);
    p->rows = info->in_width[0];
    p->columns = 1;
    p->init = HET_INIT_ONE;
    info->tensors = 1; /* the gradient of y until backward_weight */
    info->tensor[0].name = "dy";
    info->tensor[0].width = info->in_width[0];
    info->tensor[0].keep = HET_KEEP_GRADIENT;
    info->input_keep = HET_KEEP_WEIGHT;
    info->workspace = (size_t)info->in_width[0] * sizeof(float);
    return HET_OK;
}

static het_result gain_forward(const het_unit_call *call)
{
    int64_t width = call->info->in_width[0], i;
    for (i = 0; i < call->rows * width; i++) call->out[0][i] = call->weight[0][i % width] * call->in[0][i];
    return HET_OK;
}

static int gain_backwards[8]; /* of each unit of the chain */

static het_result gain_backward_input(const het_unit_call *call)
{
    int64_t width = call->info->in_width[0], i;
    gain_backwards[call->index]++;
    for (i = 0; i < call->rows * width; i++) {
        call->tensor[0][i] = call->d_out[0][i];
        call->d_in[0][i] = call->weight[0][i % width] * call->d_out[0][i];
    }
    return HET_OK;
}

static het_result gain_backward_weight(const het_unit_call *call)
{
    int64_t width = call->info->in_width[0], g, r, i;
    float *term = call->workspace;
    for (g = call->view->granule_begin; g < call->view->granule_end; g++) {
        het_op op;
        for (i = 0; i < width; i++) term[i] = 0.0f;
        for (r = call->view->host_granule_start[g] - call->view->row_begin; r < call->view->host_granule_start[g + 1] - call->view->row_begin; r++) {
            for (i = 0; i < width; i++) term[i] = fmaf(call->tensor[0][r * width + i], call->in[0][r * width + i], term[i]);
        }
        op.kind = HET_OP_ACCUMULATE;
        op.u.accumulate.gradient = &call->gradient[0];
        op.u.accumulate.offset = 0;
        op.u.accumulate.count = width;
        op.u.accumulate.term = term;
        if (call->device->iface->run(call->device->self, call->queue, &op) != HET_OK) return HET_ERR_DEVICE;
    }
    return HET_OK;
}

static const het_unit_iface gain_unit = { HETRAIN_UNIT_VERSION, "gain", gain_describe, gain_forward, gain_backward_input, gain_backward_weight };

/* embed, attention, gain, mlp, gain, attention, mlp, head */
static void chain_with_gains(het_desc *desc, het_unit units[8])
{
    int64_t count;
    int i;
    EXPECT_OK(het_model_units(&desc->model, units, 8, &count, NULL));
    assert_int_equal(count, 6);
    for (i = 7; i >= 5; i--) units[i] = units[i - 2];
    units[3] = units[2];
    units[2].iface = units[4].iface = &gain_unit;
    units[2].layer = 0;
    units[4].layer = 1;
    desc->units = units;
    desc->unit_count = 8;
}

static void unit_of_the_user(void **state)
{
    static const het_backward backward[] = { HET_BACKWARD_FUSED, HET_BACKWARD_SPLIT, HET_BACKWARD_DEFERRED };
    het_desc desc = describe(HET_LLAMA);
    support_batch batch;
    het_unit units[8];
    uint64_t hash = 0;
    int i;
    (void)state;
    desc.model.init_std = 0.2f;
    batch_of(&batch, usual, 4, 3);
    chain_with_gains(&desc, units);
    check_directions(&desc, &batch, 0.005, "chain with a unit of the user");
    for (i = 0; i < 6; i++) {
        het_ctx *ctx;
        desc.layout.backward = backward[i % 3];
        desc.limits.max_slices = 1 + i / 2;
        desc.layout.recompute = i % 2 ? HET_YES : HET_NO;
        ctx = support_create(&desc);
        EXPECT_OK(het_step(ctx, &batch.batch, 1, NULL));
        EXPECT_OK(het_step(ctx, &batch.batch, 1, NULL));
        if (i == 0) hash = support_hash(ctx);
        assert_true(support_hash(ctx) == hash);
        het_destroy(ctx);
    }
    support_batch_end(&batch);
}

static int freeze_beginning(void *user, const char *name)
{
    (void)user;
    return strstr(name, "embed") != NULL || strstr(name, ".0") != NULL;
}

/* Units before the first one that is trained have no backward pass, which changes no bit. */
static void frozen_beginnings(void **state)
{
    het_desc desc = describe(HET_LLAMA);
    support_batch batch;
    het_unit units[8];
    uint64_t hash = 0;
    int i;
    (void)state;
    batch_of(&batch, usual, 4, 3);
    chain_with_gains(&desc, units);
    desc.frozen = freeze_beginning;
    for (i = 0; i < 3; i++) {
        het_ctx *ctx;
        het_step_info info;
        desc.layout.backward = i % 3 == 1 ? HET_BACKWARD_SPLIT : HET_BACKWARD_FUSED;
        desc.layout.recompute = i % 3 == 2 ? HET_YES : HET_NO;
        ctx = support_create(&desc);
        memset(gain_backwards, 0, sizeof gain_backwards);
        EXPECT_OK(het_step(ctx, &batch.batch, 1, &info));
        assert_int_equal(gain_backwards[4], 1 + info.repeated);
        assert_int_equal(gain_backwards[2], 0);
        if (i == 0) hash = support_hash(ctx);
        assert_true(support_hash(ctx) == hash);
        het_destroy(ctx);
    }
    support_batch_end(&batch);
}

/* ---- programs of the user ---- */

/* A whole layer as one unit: its parameters and bits are those of an attention unit and an MLP. */
static int whole_layer(het_program *p, int x, const het_model_desc *m)
{
    const int64_t q = m->heads * m->head_size, k = m->kv_heads * m->head_size;
    const float std = m->init_std;
    const het_matrix qkv[3] = { { "model.layers.#.self_attn.q_proj", q, 0, std, 1 }, { "model.layers.#.self_attn.k_proj", k, 0, std, 1 },
                                { "model.layers.#.self_attn.v_proj", k, 0, std, 1 } };
    const het_matrix up[2] = { { "model.layers.#.mlp.gate_proj", m->mlp_width, 0, std, 1 },
                                { "model.layers.#.mlp.up_proj", m->mlp_width, 0, std, 1 } };
    const het_matrix out = { "model.layers.#.self_attn.o_proj", m->width, 0, std, 1 }, down = { "model.layers.#.mlp.down_proj", m->width, 0, std, 1 };
    int y[3], o;
    het_node_linears(p, het_node_norm(p, x, "model.layers.#.input_layernorm"), 3, qkv, y);
    o = het_node_attention(p, het_node_rotary(p, y[0]), het_node_rotary(p, y[1]), y[2]);
    het_node_linears(p, o, 1, &out, y);
    x = het_node_residual(p, x, y[0]);
    het_node_linears(p, het_node_norm(p, x, "model.layers.#.post_attention_layernorm"), 2, up, y);
    het_node_linears(p, het_node_activation(p, HET_SWIGLU, y[0], y[1]), 1, &down, y);
    return het_node_residual(p, x, y[0]);
}

/* Values with several readers of all kinds: two norms, linear nodes apart and together, a gate that is its own input, q in a residual, a value
   that goes out and is read on, a copy of it. */
static void shared_values(het_program *p, int x, int64_t width, float std)
{
    const het_matrix two[2] = { { "s.#.c", width, 1, std, 1 }, { "s.#.d", width, 0, std, 0 } };
    const int h = het_node_norm(p, x, "s.#.n1"), g = het_node_head_norm(p, x, "s.#.n2"), a = het_node_linear(p, h, "s.#.a", width, std);
    const int b = het_node_linear(p, h, "s.#.b", width, std), r = het_node_rotary(p, a);
    int y[2], o, z;
    het_node_linears(p, g, 2, two, y);
    o = het_node_attention(p, r, het_node_rotary(p, b), y[0]);
    z = het_node_residual(p, het_node_residual(p, a, o), het_node_activation(p, HET_SWIGLU, y[1], y[1]));
    z = het_node_residual(p, x, het_node_residual(p, r, z));
    het_node_output(p, z);
    het_node_output(p, z);
    het_node_output(p, het_node_linear(p, het_node_activation(p, HET_GELU_ERF, z, -1), "s.#.e", width, std));
}

/* Joins three streams: the first through a linear node that is all it meets, the second as it is and through two products, between which an
   activation of the third stands in the list. */
static void joined_streams(het_program *p, int64_t width, float std)
{
    const int a = het_node_input(p, 0, width), b = het_node_input(p, 1, width), c = het_node_input(p, 2, width);
    const int u = het_node_activation(p, HET_GELU_TANH, het_node_linear(p, a, "j.#.a", width, std), -1);
    const int before = het_node_linear(p, b, "j.#.b", width, std), v = het_node_activation(p, HET_GELU_TANH, c, -1);
    const int behind = het_node_linear(p, before, "j.#.c", width, std);
    het_node_output(p, het_node_residual(p, het_node_residual(p, b, het_node_residual(p, behind, v)), het_node_residual(p, -1, u)));
}

/* Scores with a bias that is made of the rows and also goes on, by relations that are no function of i - j. */
enum { RELATIONS = 5, RELATED = 48 }; /* the context of the models */
static int32_t relation[RELATED * RELATED];

static void biased(het_program *p, int x, const het_model_desc *m, const int32_t *related)
{
    const het_matrix scalars = { "b.#.s", m->heads * RELATIONS, 1, m->init_std, 1 };
    const int h = het_node_norm(p, x, "b.#.n"), q = het_node_linear(p, h, "b.#.q", m->heads * m->head_size, m->init_std);
    const int k = het_node_linear(p, h, "b.#.k", m->kv_heads * m->head_size, m->init_std);
    const int v = het_node_linear(p, h, "b.#.v", m->kv_heads * m->head_size, m->init_std);
    int bias, y;
    het_node_linears(p, h, 1, &scalars, &bias);
    y = het_node_linear(p, het_node_biased_attention(p, q, k, v, bias, related), "b.#.o", m->width, m->init_std);
    het_node_output(p, het_node_residual(p, het_node_residual(p, x, y), het_node_linear(p, bias, "b.#.r", m->width, m->init_std)));
}

/* What is read on the way back: by a norm a norm's result or an activation's, by product and activation together a norm's. */
static void norms_of_norms(het_program *p, int x, int64_t width, float std)
{
    const int twice = het_node_norm(p, het_node_norm(p, x, "n.#.n1"), "n.#.n2");
    const int bent = het_node_norm(p, het_node_activation(p, HET_GELU_TANH, het_node_linear(p, twice, "n.#.a", width, std), -1), "n.#.n3");
    const int both = het_node_head_norm(p, bent, "n.#.n4"), product = het_node_linear(p, both, "n.#.b", width, std);
    const int sum = het_node_residual(p, product, het_node_activation(p, HET_GELU_ERF, both, -1));
    het_node_output(p, het_node_residual(p, x, het_node_linear(p, sum, "n.#.c", width, std)));
}

/* And by attention its own result, behind which a rotation or dropout stands. */
static void behind_attention(het_program *p, int x, int64_t width, float std)
{
    const het_matrix qkv[3] = { { "t.#.q", width, 1, std, 0 }, { "t.#.k", width, 0, std, 1 }, { "t.#.v", width, 0, std, 0 } };
    const het_matrix other[3] = { { "t.#.q2", width, 0, std, 0 }, { "t.#.k2", width, 1, std, 0 }, { "t.#.v2", width, 0, std, 1 } };
    int y[3], turned;
    het_node_linears(p, het_node_norm(p, x, "t.#.n"), 3, qkv, y);
    turned = het_node_rotary(p, het_node_attention(p, het_node_rotary(p, y[0]), y[1], y[2]));
    het_node_linears(p, het_node_linear(p, turned, "t.#.a", width, std), 3, other, y);
    turned = het_node_residual(p, -1, het_node_attention(p, y[0], y[1], y[2]));
    het_node_output(p, het_node_residual(p, x, het_node_linear(p, turned, "t.#.b", width, std)));
}

enum { WHOLE_LAYER, SHARED, JOINED, BIASED, NORMS, TURNED, DEEP_HEAD, TOO_MANY_NODES, UNREAD_VALUE, UNREAD_STREAM, TWO_OF_A_NAME, LONG_NAME,
       OTHER_WIDTH, KEYS_TWICE, NO_STREAM, NO_HEADS, ODD_ATTENTION, ODD_BIAS, NO_RELATIONS, FAR_RELATION, LOSS_AND_OUTPUT, OTHER_LOGITS,
       FOUR_MATRICES, NO_MATRIX, STREAM_BELOW, TWO_WIDTHS, NO_ACTIVATION, NO_NODES };

static void refused_program(het_program *p, int which, int x, const het_model_desc *m)
{
    const het_matrix four[4] = { { "a", 8, 1, 1, 0 }, { "b", 8, 1, 1, 0 }, { "c", 8, 1, 1, 0 }, { "d", 8, 1, 1, 0 } };
    static int32_t beyond[RELATED * RELATED];
    int y[4], i;
    beyond[RELATED * RELATED - 1] = RELATIONS;
    switch (which) {
    case TOO_MANY_NODES:
        for (i = 0; i < 26; i++) x = het_node_activation(p, HET_GELU_TANH, x, -1);
        break;
    case UNREAD_VALUE: (void)het_node_linear(p, x, "a", 8, 1); break;
    case UNREAD_STREAM: x = het_node_embedding(p, "a", NULL); break; /* behind a unit that gives a stream */
    case TWO_OF_A_NAME: x = het_node_norm(p, het_node_norm(p, x, "a"), "a"); break;
    case LONG_NAME: x = het_node_norm(p, x, "a name of sixty bytes is too long where .weight is put behind"); break;
    case OTHER_WIDTH: x = het_node_residual(p, x, het_node_linear(p, x, "a", m->width + 1, 1)); break;
    case KEYS_TWICE:
        y[0] = het_node_linear(p, x, "a", m->heads * m->head_size, 1);
        x = het_node_attention(p, x, y[0], y[0]);
        break;
    case NO_STREAM: x = het_node_residual(p, x, het_node_input(p, 1, m->width)); break;
    case NO_HEADS: x = het_node_head_norm(p, het_node_linear(p, x, "a", m->head_size + 1, 1), "b"); break;
    case ODD_ATTENTION:
        x = het_node_attention(p, x, het_node_linear(p, x, "a", 2 * m->head_size, 1), het_node_linear(p, x, "b", m->head_size, 1));
        break;
    case ODD_BIAS: x = het_node_biased_attention(p, x, het_node_linear(p, x, "a", m->width, 1), het_node_linear(p, x, "b", m->width, 1),
                                                 het_node_linear(p, x, "c", m->heads * RELATIONS + 1, 1), relation); break;
    case NO_RELATIONS: biased(p, x, m, NULL); return;
    case FAR_RELATION: biased(p, x, m, beyond); return;
    case LOSS_AND_OUTPUT: het_node_loss(p, x = het_node_linear(p, x, "a", m->vocab, 1)); break;
    case OTHER_LOGITS: het_node_loss(p, het_node_linear(p, x, "a", m->vocab + 1, 1)); return;
    case FOUR_MATRICES: het_node_linears(p, x, 4, four, y); break;
    case NO_MATRIX: het_node_linears(p, x, 0, four, y); break;
    case STREAM_BELOW: x = het_node_residual(p, x, het_node_norm(p, x, "a")), x = het_node_input(p, -1, m->width); break;
    case TWO_WIDTHS: x = het_node_input(p, 0, m->width + 1); break;
    case NO_ACTIVATION: x = het_node_activation(p, HET_ACTIVATION_DEFAULT, x, -1); break;
    default: return; /* no output, and the stream is not read */
    }
    het_node_output(p, x);
}

static het_result program_describe(const het_unit *unit, het_unit_info *info)
{
    const het_model_desc *m = unit->model;
    const int which = *(const int *)unit->settings;
    het_program *p = het_program_begin(unit, info);
    const int x = which == JOINED ? 0 : het_node_input(p, 0, m->width);
    if (which == WHOLE_LAYER) het_node_output(p, whole_layer(p, x, m));
    else if (which == SHARED) shared_values(p, x, m->width, m->init_std);
    else if (which == JOINED) joined_streams(p, m->width, m->init_std);
    else if (which == BIASED) biased(p, x, m, relation);
    else if (which == NORMS) norms_of_norms(p, x, m->width, m->init_std);
    else if (which == TURNED) behind_attention(p, x, m->width, m->init_std);
    else if (which == DEEP_HEAD) {
        const int a = het_node_activation(p, HET_GELU_TANH, het_node_linear(p, het_node_norm(p, x, "h.n"), "h.a", 24, m->init_std), -1);
        het_node_loss(p, het_node_linear(p, a, "h.b", m->vocab, m->init_std));
    } else refused_program(p, which, x, m);
    return het_program_end(p);
}

static const het_unit_iface program_unit = { HETRAIN_UNIT_VERSION, "program", program_describe, het_program_forward, het_program_backward_input,
                                             het_program_backward_weight };

/* Two steps in every order of calls, with and without recomputation, in one slice and two, by one micro-batch and two: one hash. */
static uint64_t hash_of_orders(het_desc desc, const support_batch *batch)
{
    static const het_backward backward[] = { HET_BACKWARD_FUSED, HET_BACKWARD_SPLIT, HET_BACKWARD_DEFERRED };
    uint64_t hash = 0;
    int i;
    for (i = 0; i < 12; i++) {
        het_ctx *ctx;
        desc.layout.backward = backward[i % 3];
        desc.limits.max_slices = 1 + i / 3 % 2;
        desc.layout.recompute = i / 6 ? HET_YES : HET_NO;
        desc.limits.max_micro_batches = 1 + i % 2;
        ctx = support_create(&desc);
        EXPECT_OK(het_step(ctx, &batch->batch, 1, NULL));
        EXPECT_OK(het_step(ctx, &batch->batch, 1, NULL));
        if (i == 0) hash = support_hash(ctx);
        assert_true(support_hash(ctx) == hash);
        het_destroy(ctx);
    }
    return hash;
}

/* A device that has products with their activation, or with what is added to them, runs them so, and gives the same bits. */
static int64_t fused_ops, fused_sums, fused_norms;

static int adds(const het_op *op) { return op->kind == HET_OP_LINEAR_FORWARD && op->u.linear.part[0].add; }

static int32_t fused_supports(void *self, const het_op *op)
{
    if (op->kind == HET_OP_LINEAR_ACTIVATION_FORWARD || op->kind == HET_OP_LINEAR_ACTIVATION_BACKWARD || adds(op)) return 1;
    if (op->kind == HET_OP_NORM_BACKWARD) return 1;
    return het_cpu_device()->supports(self, op);
}

static het_result fused_run(void *self, het_queue *queue, const het_op *op)
{
    const int forward = op->kind == HET_OP_LINEAR_ACTIVATION_FORWARD;
    het_op part;
    if (op->kind == HET_OP_NORM_BACKWARD) {
        part = *op;
        part.kind = HET_OP_NORM_BACKWARD_WEIGHT; /* first: dx may be dy */
        EXPECT_OK(het_cpu_device()->run(self, queue, &part));
        part.kind = HET_OP_NORM_BACKWARD_INPUT;
        fused_norms++;
        return het_cpu_device()->run(self, queue, &part);
    }
    if (adds(op)) {
        const het_linear_part *sum = &op->u.linear.part[0];
        het_elements_args a;
        memset(&a, 0, sizeof a);
        part = *op;
        part.u.linear.part[0].add = NULL;
        EXPECT_OK(het_cpu_device()->run(self, queue, &part));
        a.count = op->u.linear.rows * sum->out;
        a.y = sum->y;
        a.x = sum->add;
        memset(&part, 0, sizeof part);
        part.kind = HET_OP_ADD;
        part.u.elements = a;
        fused_sums++;
        return het_cpu_device()->run(self, queue, &part);
    }
    if (!forward && op->kind != HET_OP_LINEAR_ACTIVATION_BACKWARD) return het_cpu_device()->run(self, queue, op);
    fused_ops++;
    memset(&part, 0, sizeof part);
    part.kind = forward ? HET_OP_LINEAR_FORWARD : HET_OP_LINEAR_BACKWARD_INPUT;
    part.u.linear = op->u.linear_activation.linear;
    EXPECT_OK(het_cpu_device()->run(self, queue, &part));
    part.kind = forward ? HET_OP_ACTIVATION_FORWARD : HET_OP_ACTIVATION_BACKWARD;
    part.u.activation = op->u.linear_activation.activation;
    assert_ptr_equal(forward ? (const void *)part.u.activation.a : part.u.activation.da,
                     forward ? op->u.linear_activation.linear.part[0].y : op->u.linear_activation.linear.dx);
    return het_cpu_device()->run(self, queue, &part);
}

/* embed, attention, mlp, shared, joined, attention with a bias, what is read on the way back, mlp, deep head: every kind of node. */
static void programs_of_the_user(void **state)
{
    static const int kind[] = { SHARED, JOINED, BIASED, NORMS, TURNED, DEEP_HEAD };
    het_device_iface table = *het_cpu_device();
    het_device_desc device;
    uint64_t apart;
    int rank;
    (void)state;
    memset(&device, 0, sizeof device);
    table.run = fused_run;
    table.supports = fused_supports;
    device.iface = &table;
    for (rank = 0; rank < RELATED * RELATED; rank++) relation[rank] = (rank % 7 + rank / 31) % RELATIONS;
    for (rank = 0; rank < 2; rank++) {
        het_desc desc = describe(HET_LLAMA);
        support_batch batch;
        het_unit units[10];
        int64_t count;
        int i;
        desc.model.init_std = 0.2f;
        desc.model.dropout = rank ? 0.1f : 0.0f;
        desc.model.lora_rank = rank ? 3 : 0;
        EXPECT_OK(het_model_complete(&desc.model, NULL));
        batch_of(&batch, usual, 4, 3);
        EXPECT_OK(het_model_units(&desc.model, units, 10, &count, NULL));
        for (i = 9; i >= 6; i--) units[i] = units[i - 4];
        for (i = 0; i < 6; i++) {
            const int at = i < 5 ? 3 + i : 9;
            units[at].iface = &program_unit;
            units[at].settings = &kind[i];
        }
        desc.units = units;
        desc.unit_count = 10;
        if (rank == 0) check_directions(&desc, &batch, 0.005, "programs of the user");
        apart = hash_of_orders(desc, &batch);
        desc.layout.devices = &device;
        desc.layout.device_count = 1;
        assert_true(hash_of_orders(desc, &batch) == apart);
        support_batch_end(&batch);
    }
}

static int32_t takes_all(void *self, const het_op *op) { (void)self; (void)op; return 1; }
static size_t no_workspace(void *self, const het_op *op) { (void)self; (void)op; return 0; }

/* Only a norm that nothing but what waits is added to rounds the gradient of its stream: with two norms of one stream neither has all of it. */
static void gradients_that_others_add_to_are_not_rounded(void **state)
{
    int norms;
    (void)state;
    for (norms = 1; norms <= 2; norms++) {
        het_desc desc = describe(HET_LLAMA);
        het_device_iface iface = *het_reference_device();
        het_program *p = support_alloc(1, sizeof *p);
        het_unit_info *info = support_alloc(1, sizeof *info);
        het_device device;
        het_unit unit;
        int x, y, z;
        EXPECT_OK(het_model_complete(&desc.model, NULL));
        memset(&unit, 0, sizeof unit);
        memset(&device, 0, sizeof device);
        memset(info, 0, sizeof *info);
        iface.supports = takes_all;
        iface.workspace = no_workspace;
        device.iface = &iface;
        unit.model = &desc.model;
        info->compute = HET_BF16;
        info->max_tokens = info->max_granule_tokens = info->max_sequences = info->slices = info->in_streams = 1;
        info->in_width[0] = 40;
        info->device = &device;
        info->program = p;
        (void)het_program_begin(&unit, info);
        x = het_node_input(p, 0, 40);
        y = het_node_linear(p, het_node_norm(p, x, "a"), "b", 40, 0.02f);
        z = norms > 1 ? het_node_linear(p, het_node_norm(p, x, "c"), "d", 40, 0.02f) : -1;
        het_node_output(p, het_node_residual(p, x, het_node_activation(p, norms > 1 ? HET_SWIGLU : HET_GELU_TANH, y, z)));
        EXPECT_OK(het_program_end(p));
        assert_int_equal(info->values, HET_BF16);
        assert_int_equal(p->gives, norms == 1);
        free(info);
        free(p);
    }
}

/* One unit a layer in place of two: the same parameters, the same bits, with factors too. */
static void one_program_a_layer(void **state)
{
    static const int kind = WHOLE_LAYER;
    int rank;
    (void)state;
    for (rank = 0; rank < 2; rank++) {
        het_desc desc = describe(HET_LLAMA);
        support_batch batch;
        het_unit units[6];
        int64_t count;
        uint64_t apart;
        int i;
        desc.model.lora_rank = rank ? 3 : 0;
        desc.model.lora_targets = rank ? HET_LORA_ALL : 0;
        EXPECT_OK(het_model_complete(&desc.model, NULL));
        batch_of(&batch, usual, 4, 3);
        EXPECT_OK(het_model_units(&desc.model, units, 6, &count, NULL));
        desc.units = units;
        desc.unit_count = 6;
        apart = hash_of_orders(desc, &batch);
        for (i = 1; i < 3; i++) {
            units[i].iface = &program_unit;
            units[i].settings = &kind;
            units[i].layer = i - 1;
        }
        units[3] = units[5];
        desc.unit_count = 4;
        if (rank == 0) assert_true(hash_of_orders(desc, &batch) == apart);
        else (void)hash_of_orders(desc, &batch); /* factors stand behind all of a unit's parameters: another order */
        support_batch_end(&batch);
    }
}

static void programs_that_do_not_fit(void **state)
{
    static const char *const why[] = { "more nodes than HETRAIN_MAX_NODES", "nothing reads", "nothing reads",
        "two parameters of one name|the last a.weight", "name is too long", "two widths|the last a.weight", "keys or values that others read",
        "no such stream", "normed are not whole",
        "do not fit together", "bias does not fit", "no relation", "a relation that bias has not", "outputs behind a loss", "logits",
        "more matrices in one node than 3, or none", "in one node than 3, or none", "no such stream", "no such stream", "no such activation",
        "nothing reads|0 parameters, the last none" };
    int which;
    (void)state;
    for (which = TOO_MANY_NODES; which <= NO_NODES; which++) {
        het_desc desc = describe(HET_LLAMA);
        het_unit units[6];
        het_error error;
        het_ctx *ctx = NULL;
        int64_t count;
        EXPECT_OK(het_model_units(&desc.model, units, 6, &count, NULL));
        units[2].iface = &program_unit;
        units[2].settings = &which;
        desc.units = units;
        desc.unit_count = 6;
        EXPECT_ERROR(het_create(&desc, &ctx, &error), HET_ERR_INVALID, error.text, "unit 2 (program)|describe failed|1 streams of width 40");
        EXPECT_ERROR(error.code, HET_ERR_INVALID, error.text, why[which - TOO_MANY_NODES]);
        assert_null(ctx);
    }
}

/* Teams do not divide them, and a device may lack them. */
static int32_t no_bias(void *self, const het_op *op)
{
    return (op->kind != HET_OP_ATTENTION_BACKWARD || op->u.attention.bias == NULL) && het_cpu_device()->supports(self, op);
}

static void scores_with_a_bias_are_refused(void **state)
{
    static const int kind = BIASED;
    het_desc desc = describe(HET_LLAMA);
    het_device_iface without = *het_cpu_device();
    het_device_desc device[2];
    het_unit units[6];
    het_error error;
    het_ctx *ctx = NULL;
    int64_t count;
    (void)state;
    memset(device, 0, sizeof device);
    EXPECT_OK(het_model_units(&desc.model, units, 6, &count, NULL));
    units[2].iface = &program_unit;
    units[2].settings = &kind;
    desc.units = units;
    desc.unit_count = 6;
    desc.layout.devices = device;
    desc.layout.device_count = 1;
    without.supports = no_bias;
    device[0].iface = &without;
    EXPECT_ERROR(het_create(&desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text,
        "unit 2 (program)|describe failed|the device has no bias of attention");
    device[0].iface = NULL;
    desc.layout.device_count = 2;
    desc.layout.plan = support_plan_for("cp2", NULL, 6, 2, 1, desc.model.kv_heads);
    EXPECT_ERROR(het_create(&desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "unit 2 (program)|does not know teams");
    assert_null(ctx);
    het_plan_free((het_plan *)(uintptr_t)desc.layout.plan);
}

static void activations_in_products(void **state)
{
    het_desc desc = describe(HET_GPT2);
    het_device_iface table = *het_cpu_device();
    het_device_desc device;
    support_batch batch;
    uint64_t apart;
    (void)state;
    memset(&device, 0, sizeof device);
    batch_of(&batch, usual, 4, 3);
    apart = hash_of_orders(desc, &batch);
    table.run = fused_run;
    table.supports = fused_supports;
    device.iface = &table;
    desc.layout.devices = &device;
    desc.layout.device_count = 1;
    fused_ops = fused_sums = fused_norms = 0;
    assert_true(hash_of_orders(desc, &batch) == apart);
    assert_true(fused_ops > 12 * 2 * 2 * 2); /* orders, steps, layers, directions */
    assert_true(fused_sums > 12 * 2 * 2 * 2); /* orders, steps, layers, sums */
    assert_true(fused_norms > 12 * 2 + 4 * 2 * 2 * 2); /* the last norm in all orders; those of the layers where nothing is split */
    support_batch_end(&batch);
}

/* ---- not finite ---- */

static void steps_that_are_not_finite(void **state)
{
    int skip;
    (void)state;
    for (skip = 0; skip < 2; skip++) {
        het_desc desc = describe(HET_GPT2);
        support_batch batch;
        het_parameter_info p;
        het_step_info info;
        het_ctx *ctx;
        float *weight, keep;
        uint64_t hash;
        int64_t last;
        batch_of(&batch, usual, 4, 3);
        desc.guard.skip_bad_steps = skip ? HET_YES : HET_NO;
        ctx = support_create(&desc);
        EXPECT_OK(het_step(ctx, &batch.batch, 1, &info));
        last = het_parameter_count(ctx) - 1;
        EXPECT_OK(het_parameter_get_info(ctx, last, &p));
        weight = support_alloc((size_t)p.count, sizeof *weight);
        EXPECT_OK(het_parameter_read(ctx, last, HET_WEIGHT, weight));
        keep = weight[0];
        weight[0] = INFINITY;
        EXPECT_OK(het_parameter_write(ctx, last, HET_WEIGHT, weight));
        hash = support_hash(ctx);
        if (skip) {
            EXPECT_OK(het_step(ctx, &batch.batch, 1, &info));
            assert_int_equal(info.skipped, 1);
        } else {
            EXPECT_ERROR(het_step(ctx, &batch.batch, 1, &info), HET_ERR_NOT_FINITE, het_last_error(ctx), "step 2|not finite");
        }
        assert_true(support_hash(ctx) == hash);
        if (skip) { /* goes on when the cause is gone */
            weight[0] = keep;
            EXPECT_OK(het_parameter_write(ctx, last, HET_WEIGHT, weight));
            EXPECT_OK(het_step(ctx, &batch.batch, 1, &info));
            assert_int_equal(info.skipped, 0);
            assert_true(support_hash(ctx) != hash);
        }
        free(weight);
        het_destroy(ctx);
        support_batch_end(&batch);
    }
}

/* ---- the grid ---- */

/* The first step is measured and repeated; a gradient that grows a thousandfold is measured again; the others are not. */
static void steps_are_repeated_when_needed(void **state)
{
    het_desc desc = describe(HET_LLAMA);
    support_batch batch;
    het_step_info info;
    het_parameter_info p;
    het_ctx *ctx = support_create(&desc);
    float *weight = NULL;
    int64_t i, k;
    (void)state;
    batch_of(&batch, usual, 4, 3);
    EXPECT_OK(het_step(ctx, &batch.batch, 1, &info));
    assert_int_equal(info.repeated, 1);
    EXPECT_OK(het_step(ctx, &batch.batch, 1, &info));
    assert_int_equal(info.repeated, 0);
    for (i = 0; i < het_parameter_count(ctx); i++) {
        EXPECT_OK(het_parameter_get_info(ctx, i, &p));
        assert_true(p.exponent != HETRAIN_NO_EXPONENT);
        if (strstr(p.name, "embed") == NULL) continue;
        weight = support_alloc((size_t)p.count, sizeof *weight);
        EXPECT_OK(het_parameter_read(ctx, i, HET_WEIGHT, weight));
        for (k = 0; k < p.count; k++) weight[k] *= 1e-4f; /* the norm behind it makes its gradient 10^4 times larger */
        EXPECT_OK(het_parameter_write(ctx, i, HET_WEIGHT, weight));
    }
    assert_non_null(weight);
    EXPECT_OK(het_step(ctx, &batch.batch, 1, &info));
    assert_int_equal(info.repeated, 1);
    free(weight);
    het_destroy(ctx);
    support_batch_end(&batch);
}

/* Writes infinities from the second forward pass of unit 1 on, until it is switched off. */
typedef struct late_infinity { int64_t calls; int off; } late_infinity;

static het_result spoil_second_attempt(void *user, const het_hook_info *info)
{
    late_infinity *l = user;
    if (info->direction == HET_FORWARD && info->unit == 1 && ++l->calls >= 2 && !l->off) info->stream[0][0] = INFINITY;
    return HET_OK;
}

/* A first attempt that measured, and a second that is not finite: the exponents are those from before the step, so that the next step
   gives the bits of a context that never saw this one. */
static void not_finite_leaves_the_exponents(void **state)
{
    int form; /* 0: het_step refused, 1: het_gradients refused, 2: het_step skipped */
    (void)state;
    for (form = 0; form < 3; form++) {
        het_desc desc = describe(HET_LLAMA);
        late_infinity late = { 0, 0 };
        support_batch bad, good;
        het_parameter_info p;
        het_step_info info;
        het_ctx *fresh, *ctx;
        int64_t i;
        batch_of(&bad, usual, 4, 3);
        batch_of(&good, usual, 4, 70);
        for (i = 0; i < bad.batch.tokens; i++) bad.weight[i] *= i == 5 ? 1e4f : 1.0f; /* other maxima than those of the good batch */
        fresh = support_create(&desc);
        desc.host.hook = spoil_second_attempt;
        desc.host.user = &late;
        desc.guard.skip_bad_steps = form == 2 ? HET_YES : HET_NO;
        ctx = support_create(&desc);
        if (form == 0) EXPECT_ERROR(het_step(ctx, &bad.batch, 1, NULL), HET_ERR_NOT_FINITE, het_last_error(ctx), "step 1|not finite");
        if (form == 1) EXPECT_ERROR(het_gradients(ctx, &bad.batch, 1, NULL), HET_ERR_NOT_FINITE, het_last_error(ctx), "step 1|not finite");
        if (form == 2) {
            EXPECT_OK(het_step(ctx, &bad.batch, 1, &info));
            assert_int_equal(info.skipped, 1);
        }
        assert_int_equal(late.calls, 2);
        for (i = 0; i < het_parameter_count(ctx); i++) {
            EXPECT_OK(het_parameter_get_info(ctx, i, &p));
            assert_int_equal(p.exponent, HETRAIN_NO_EXPONENT);
        }
        late.off = 1;
        EXPECT_OK(het_step(ctx, &good.batch, 1, &info));
        assert_int_equal(info.repeated, 1);
        EXPECT_OK(het_step(fresh, &good.batch, 1, NULL));
        if (form < 2) assert_true(support_hash(ctx) == support_hash(fresh));
        het_destroy(fresh);
        het_destroy(ctx);
        support_batch_end(&bad);
        support_batch_end(&good);
    }
}

/* ---- inference ---- */

static void inference_with_a_past(void **state)
{
    static const het_dtype dtypes[] = { HET_F32, HET_BF16 };
    size_t f, d;
    (void)state;
    for (f = 0; f < sizeof families / sizeof *families; f++) {
        for (d = 0; d < 2; d++) {
            het_desc desc = describe(families[f]);
            float whole[61], parts[61];
            int32_t token[48];
            int64_t i, past = 0, piece = 1;
            het_ctx *ctx;
            desc.dtype = dtypes[d];
            desc.model.window = f == 1 ? 7 : 0;
            desc.model.dropout = 0.2f; /* must not show */
            ctx = support_create(&desc);
            for (i = 0; i < 48; i++) token[i] = (int32_t)(i * 7 % 61);
            while (past < 48) {
                het_ctx *other = support_create(&desc);
                int64_t count = past + piece <= 48 ? piece : 48 - past;
                EXPECT_OK(het_infer(ctx, token + past, count, past, parts));
                past += count;
                piece = piece % 5 + 1;
                EXPECT_OK(het_infer(other, token, past, 0, whole));
                if (memcmp(whole, parts, sizeof whole) != 0)
                    fail_msg("family %d, dtype %d: logits after %d tokens depend on the pieces", (int)families[f], (int)d, (int)past);
                het_destroy(other);
            }
            het_destroy(ctx);
        }
    }
}

/* The logits are those behind the loss: -log softmax of the target is the loss of a one-target batch. */
static void inference_agrees_with_the_loss(void **state)
{
    het_desc desc = describe(HET_NEOX);
    int32_t token[20], target[20];
    int64_t start[] = { 0, 20 }, i;
    float logits[61];
    double sum = 0.0, top = -1e30;
    het_batch batch;
    het_step_info info;
    het_ctx *ctx = support_create(&desc);
    (void)state;
    for (i = 0; i < 20; i++) {
        token[i] = (int32_t)(i * 5 % 61);
        target[i] = i == 19 ? 33 : -1;
    }
    memset(&batch, 0, sizeof batch);
    batch.tokens = 20;
    batch.sequences = 1;
    batch.token = token;
    batch.target = target;
    batch.sequence_start = start;
    EXPECT_OK(het_evaluate(ctx, &batch, 1, &info));
    EXPECT_OK(het_infer(ctx, token, 20, 0, logits));
    for (i = 0; i < 61; i++) top = fmax(top, (double)logits[i]);
    for (i = 0; i < 61; i++) sum += exp((double)logits[i] - top);
    assert_true(fabs(log(sum) + top - (double)logits[33] - info.loss) < 1e-5);
    assert_true(info.weight == 1.0);
    het_destroy(ctx);
}

/* ---- saving and going on ---- */

/* Four steps in one go equal two, a save, and two more in a fresh context of another layout. */
static void resumed_runs_continue(void **state)
{
    size_t f;
    (void)state;
    for (f = 0; f < sizeof families / sizeof *families; f++) {
        het_desc desc = describe(families[f]), other_desc;
        het_device_desc device;
        support_buffer weights, optimizer;
        support_batch batch[4];
        het_writer to;
        het_reader from;
        het_step_info info, other_info;
        het_ctx *ctx, *other;
        int i;
        desc.model.dropout = 0.1f;
        support_buffer_start(&weights);
        support_buffer_start(&optimizer);
        for (i = 0; i < 4; i++) batch_of(&batch[i], usual, 4, 100 * (uint64_t)i);
        ctx = support_create(&desc);
        for (i = 0; i < 2; i++) EXPECT_OK(het_step(ctx, &batch[i].batch, 1, NULL));
        to = support_writer(&weights);
        support_expect(het_save_weights(ctx, &to), HET_OK, het_last_error(ctx), "", "het_save_weights", __LINE__);
        to = support_writer(&optimizer);
        support_expect(het_save_state(ctx, &to), HET_OK, het_last_error(ctx), "", "het_save_state", __LINE__);

        other_desc = desc;
        memset(&device, 0, sizeof device);
        device.threads = 3;
        other_desc.layout.devices = &device;
        other_desc.layout.device_count = 1;
        other_desc.limits.max_slices = 2;
        other_desc.layout.backward = HET_BACKWARD_DEFERRED;
        other = support_create(&other_desc);
        EXPECT_OK(het_step(other, &batch[3].batch, 1, NULL)); /* what it did before is forgotten */
        from = support_reader(&weights);
        support_expect(het_load_weights(other, &from), HET_OK, het_last_error(other), "", "het_load_weights", __LINE__);
        assert_true(support_hash(ctx) == support_hash(other));
        from = support_reader(&optimizer);
        support_expect(het_load_state(other, &from), HET_OK, het_last_error(other), "", "het_load_state", __LINE__);
        assert_int_equal(het_get_step(other), 2);
        for (i = 2; i < 4; i++) {
            EXPECT_OK(het_step(ctx, &batch[i].batch, 1, &info));
            EXPECT_OK(het_step(other, &batch[i].batch, 1, &other_info));
            assert_true(info.loss == other_info.loss && info.gradient_norm == other_info.gradient_norm && info.repeated == other_info.repeated);
            assert_int_equal(other_info.step, i);
        }
        if (support_hash(ctx) != support_hash(other)) fail_msg("family %d: the resumed run went elsewhere", (int)families[f]);
        het_destroy(ctx);
        het_destroy(other);
        support_buffer_end(&weights);
        support_buffer_end(&optimizer);
        for (i = 0; i < 4; i++) support_batch_end(&batch[i]);
    }
}

/* Tensors are the parameters under other names and layouts: writing back what was read changes nothing, writing something else does. */
static void tensors_are_views_of_parameters(void **state)
{
    size_t f;
    (void)state;
    for (f = 0; f < sizeof families / sizeof *families; f++) {
        het_desc desc = describe(families[f]);
        het_ctx *ctx = support_create(&desc), *other;
        uint64_t hash = support_hash(ctx);
        int64_t i, k, elements = 0;
        het_memory memory;
        desc.seed++;
        other = support_create(&desc);
        assert_true(support_hash(other) != hash);
        for (i = 0; i < het_tensor_count(ctx); i++) {
            het_tensor_info t;
            int64_t product = 1;
            float *values;
            EXPECT_OK(het_tensor_get_info(ctx, i, &t));
            for (k = 0; k < t.rank; k++) product *= t.shape[k];
            assert_int_equal(product, t.count);
            values = support_alloc((size_t)t.count, sizeof *values);
            EXPECT_OK(het_tensor_read(ctx, i, HET_WEIGHT, values));
            EXPECT_OK(het_tensor_write(other, i, HET_WEIGHT, values));
            free(values);
            elements += t.count;
        }
        assert_true(support_hash(ctx) == hash);
        assert_true(support_hash(other) == hash);
        het_get_memory(ctx, 0, &memory);
        assert_int_equal(elements, memory.parameters);
        het_destroy(ctx);
        het_destroy(other);
    }
}

/* GPT-2's Conv1D stores [in][out]; q, k and v stand side by side. */
static void layout_of_gpt2_tensors(void **state)
{
    het_desc desc = describe(HET_GPT2);
    het_ctx *ctx = support_create(&desc);
    float *joined = support_alloc(40 * 120, sizeof *joined), *part = support_alloc(40 * 40, sizeof *part);
    int64_t i, p, found = 0;
    (void)state;
    for (i = 0; i < het_tensor_count(ctx); i++) {
        het_tensor_info t;
        EXPECT_OK(het_tensor_get_info(ctx, i, &t));
        if (!strstr(t.name, "h.1.attn.c_attn.weight")) continue;
        assert_int_equal(t.rank, 2);
        assert_int_equal(t.shape[0], 40);
        assert_int_equal(t.shape[1], 120);
        EXPECT_OK(het_tensor_read(ctx, i, HET_WEIGHT, joined));
        for (p = 0; p < het_parameter_count(ctx); p++) {
            het_parameter_info info;
            int64_t third, in, out;
            const char *name;
            EXPECT_OK(het_parameter_get_info(ctx, p, &info));
            name = strstr(info.name, "h.1.attn.c_attn.");
            if (!name || !strstr(name, ".weight")) continue;
            third = name[16] == 'q' ? 0 : name[16] == 'k' ? 1 : 2;
            EXPECT_OK(het_parameter_read(ctx, p, HET_WEIGHT, part));
            for (out = 0; out < 40; out++) {
                for (in = 0; in < 40; in++) assert_true(joined[in * 120 + third * 40 + out] == part[out * 40 + in]);
            }
            found++;
        }
    }
    assert_int_equal(found, 3);
    free(joined);
    free(part);
    het_destroy(ctx);
}

/* Initial weights: the spread the family says, normally distributed, zero biases, norms of one. */
static void initial_weights(void **state)
{
    het_desc desc = describe(HET_GPT2);
    het_ctx *ctx;
    int64_t i, k;
    (void)state;
    desc.model.width = 160;
    desc.model.head_size = 32;
    desc.model.mlp_width = 600;
    ctx = support_create(&desc);
    for (i = 0; i < het_parameter_count(ctx); i++) {
        het_parameter_info p;
        double n, square = 0.0, fourth = 0.0, neighbours = 0.0, want = 0.02;
        float *w;
        EXPECT_OK(het_parameter_get_info(ctx, i, &p));
        if (strstr(p.name, "c_proj")) want = 0.02 / sqrt(4.0);
        n = (double)p.count;
        w = support_alloc((size_t)p.count, sizeof *w);
        EXPECT_OK(het_parameter_read(ctx, i, HET_WEIGHT, w));
        for (k = 0; k < p.count; k++) {
            double x = (double)w[k] / want;
            square += x * x;
            fourth += x * x * x * x;
            neighbours += x * (double)w[k ? k - 1 : p.count - 1] / want;
            if (strstr(p.name, ".bias")) assert_true(w[k] == 0.0f);
            else if (p.columns == 1) assert_true(w[k] == 1.0f);
        }
        if (p.columns > 1 && (fabs(square / n - 1.0) > 5.0 * sqrt(2.0 / n) || fabs(fourth / n - 3.0) > 5.0 * sqrt(96.0 / n) ||
                              fabs(neighbours / n) > 5.0 / sqrt(n))) {
            fail_msg("%s: second moment %.4f, fourth %.4f, neighbours %.4f of a normal distribution of deviation %g", p.name, square / n, fourth / n,
                     neighbours / n, want);
        }
        free(w);
    }
    het_destroy(ctx);
}

/* ---- drawn at random ---- */

/* Two steps in another order, on other threads and instructions: the bits of the first way. */
static uint64_t drawn_hash(het_desc desc, const support_batch *batch, int64_t way)
{
    static const het_isa isas[] = { HET_ISA_AUTO, HET_ISA_PLAIN, HET_ISA_AVX2, HET_ISA_AVX512 };
    het_device_desc device;
    het_ctx *ctx;
    uint64_t hash;
    memset(&device, 0, sizeof device);
    if (support_has(isas[way % 4])) device.isa = isas[way % 4];
    device.threads = (int32_t)(1 + way / 4 % 3);
    if (way % 5 == 4) device.isa = HET_ISA_AUTO, device.iface = het_reference_device();
    desc.layout.devices = &device, desc.layout.device_count = 1;
    desc.layout.backward = (het_backward)(HET_BACKWARD_FUSED + way % 3);
    desc.layout.recompute = way / 3 % 2 ? HET_YES : HET_NO;
    desc.limits.max_slices = 1 + way / 2 % 2;
    ctx = support_create(&desc);
    EXPECT_OK(het_step(ctx, &batch->batch, 1, NULL));
    EXPECT_OK(het_step(ctx, &batch->batch, 1, NULL));
    hash = support_hash(ctx);
    het_destroy(ctx);
    return hash;
}

/* Programs of two units, drawn: derivatives, and the same bits whatever runs them. HETRAIN_TEST_ROUNDS sets how many (make soak: many). */
static void drawn_programs(void **state)
{
    const int first = support_environment("HETRAIN_TEST_FIRST_ROUND", 0), rounds = support_environment("HETRAIN_TEST_ROUNDS", 24);
    int round, refused = 0;
    support_batch batch;
    (void)state;
    batch_of(&batch, usual, 4, 3);
    for (round = first; round < first + rounds; round++) {
        uint64_t seed = (uint64_t)round * 104729 + 7, drawn[2];
        het_desc desc = describe(families[support_below(&seed, 5)]);
        het_unit units[10];
        het_error error;
        het_ctx *ctx;
        char what[32];
        int k;
        for (k = 0; k < 2; k++) drawn[k] = support_random(&seed);
        desc.model.init_std = 0.2f;
        if (support_below(&seed, 3) == 0) desc.model.window = 5;
        EXPECT_OK(het_model_complete(&desc.model, NULL));
        desc.unit_count = drawn_chain(&desc.model, drawn, units, 10);
        desc.units = units;
        if (het_create(&desc, &ctx, &error) != HET_OK) {
            refused++;
            continue;
        }
        het_destroy(ctx);
        snprintf(what, sizeof what, "round %d", round);
        check_directions(&desc, &batch, 1e-6, what); /* norms of little may be steep */
        if (support_below(&seed, 2)) desc.model.dropout = 0.1f;
        if (support_below(&seed, 3) == 0) desc.dtype = HET_BF16;
        const uint64_t hash = drawn_hash(desc, &batch, 0);
        for (k = 0; k < 4; k++) {
            const int64_t way = 1 + support_below(&seed, 59);
            if (drawn_hash(desc, &batch, way) != hash) fail_msg("round %d: other bits in way %d", round, (int)way);
        }
    }
    assert_in_range(refused, 0, (unsigned)rounds / 2);
    support_batch_end(&batch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drawn_programs),
        cmocka_unit_test(gradients_of_every_family),
        cmocka_unit_test(gradients_of_every_setting),
        cmocka_unit_test(adamw_of_a_context),
        cmocka_unit_test(learning_rate_schedules),
        cmocka_unit_test(training_learns),
        cmocka_unit_test(descriptions_are_contexts),
        cmocka_unit_test(frozen_as_a_whole), cmocka_unit_test(frozen_parameters_stay),
        cmocka_unit_test(freezing_leaves_other_gradients),
        cmocka_unit_test(weights_count_like_repetition),
        cmocka_unit_test(weights_of_one_and_zero),
        cmocka_unit_test(evaluation_drops_nothing),
        cmocka_unit_test(dropout_by_sample),
        cmocka_unit_test(hook_scales_gradients),
        cmocka_unit_test(hook_changes_activations),
        cmocka_unit_test(unit_of_the_user), cmocka_unit_test(frozen_beginnings),
        cmocka_unit_test(programs_of_the_user),
        cmocka_unit_test(gradients_that_others_add_to_are_not_rounded),
        cmocka_unit_test(one_program_a_layer),
        cmocka_unit_test(programs_that_do_not_fit),
        cmocka_unit_test(scores_with_a_bias_are_refused),
        cmocka_unit_test(activations_in_products),
        cmocka_unit_test(steps_that_are_not_finite),
        cmocka_unit_test(steps_are_repeated_when_needed),
        cmocka_unit_test(not_finite_leaves_the_exponents),
        cmocka_unit_test(inference_with_a_past),
        cmocka_unit_test(inference_agrees_with_the_loss),
        cmocka_unit_test(resumed_runs_continue),
        cmocka_unit_test(tensors_are_views_of_parameters),
        cmocka_unit_test(layout_of_gpt2_tensors),
        cmocka_unit_test(initial_weights),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
