/* Low-rank adapters. The factors A, B of y = x W^T + s (x A^T) B^T are held against a model without factors whose matrices are W + s B A:
   the loss must be its loss, and its gradient G of a matrix gives those of the factors by the chain rule, dB = s G A^T and dA = s B^T G. */
#include "support.h"

#define BLOCKS "17|5,0,9|30,2"

/* Index of a parameter by name. */
static int64_t find(het_ctx *ctx, const char *name)
{
    het_parameter_info info;
    int64_t p;
    for (p = 0; p < het_parameter_count(ctx); p++) {
        EXPECT_OK(het_parameter_get_info(ctx, p, &info));
        if (strcmp(info.name, name) == 0) return p;
    }
    fail_msg("no parameter %s", name);
    return -1;
}

static float *get(het_ctx *ctx, int64_t index, het_what what, het_parameter_info *info)
{
    float *values;
    EXPECT_OK(het_parameter_get_info(ctx, index, info));
    values = support_floats(info->count, 0, 1);
    EXPECT_OK(het_parameter_read(ctx, index, what, values));
    return values;
}

/* Norm of the difference over norm of the truth. */
static double off(const float *value, const double *truth, int64_t count)
{
    double squares = 0, norm = 0;
    int64_t i;
    for (i = 0; i < count; i++) {
        squares += ((double)value[i] - truth[i]) * ((double)value[i] - truth[i]);
        norm += truth[i] * truth[i];
    }
    return norm > 0 ? sqrt(squares / norm) : sqrt(squares);
}

/* Random B in every factor of `adapted`; `merged` gets the same base weights with s B A added. Returns how many matrices have factors. */
static int merge(het_ctx *adapted, het_ctx *merged, double scale)
{
    int64_t p, i, j, k;
    int matrices = 0;
    for (p = 0; p < het_parameter_count(merged); p++) {
        het_parameter_info w, a, b;
        char name[96];
        float *values, *ra, *rb;
        int64_t base, factor;
        EXPECT_OK(het_parameter_get_info(merged, p, &w));
        base = find(adapted, w.name);
        values = get(adapted, base, HET_WEIGHT, &a);
        assert_true(a.frozen && !a.adapter);
        snprintf(name, sizeof name, "%.*s.lora_A.weight", (int)(strlen(w.name) - 7), w.name);
        for (factor = 0; factor < het_parameter_count(adapted); factor++) {
            EXPECT_OK(het_parameter_get_info(adapted, factor, &a));
            if (strcmp(a.name, name) == 0) break;
        }
        if (factor < het_parameter_count(adapted)) {
            ra = get(adapted, factor, HET_WEIGHT, &a);
            EXPECT_OK(het_parameter_get_info(adapted, factor + 1, &b));
            rb = support_floats(b.count, 0.3, (uint64_t)p + 5);
            EXPECT_OK(het_parameter_write(adapted, factor + 1, HET_WEIGHT, rb));
            assert_true(a.adapter && b.adapter && !a.frozen && !b.frozen && a.columns == w.columns && b.rows == w.rows && a.rows == b.columns);
            for (i = 0; i < w.rows; i++)
                for (j = 0; j < w.columns; j++) {
                    double sum = 0;
                    for (k = 0; k < a.rows; k++) sum += (double)rb[i * a.rows + k] * (double)ra[k * w.columns + j];
                    values[i * w.columns + j] = (float)((double)values[i * w.columns + j] + scale * sum);
                }
            free(ra);
            free(rb);
            matrices++;
        }
        EXPECT_OK(het_parameter_write(merged, p, HET_WEIGHT, values));
        free(values);
    }
    return matrices;
}

/* dB = s G A^T and dA = s B^T G for every pair of factors. */
static void check_gradients(het_ctx *adapted, het_ctx *merged, double scale)
{
    int64_t p, i, j, k;
    for (p = 0; p < het_parameter_count(adapted); p++) {
        het_parameter_info a, b, w;
        char name[96];
        float *va, *vb, *ga, *gb, *g;
        double *ta, *tb;
        EXPECT_OK(het_parameter_get_info(adapted, p, &a));
        if (!a.adapter || strstr(a.name, ".lora_A.") == NULL) continue;
        snprintf(name, sizeof name, "%.*s.weight", (int)(strstr(a.name, ".lora_A.") - a.name), a.name);
        va = get(adapted, p, HET_WEIGHT, &a);
        ga = get(adapted, p, HET_GRADIENT, &a);
        vb = get(adapted, p + 1, HET_WEIGHT, &b);
        gb = get(adapted, p + 1, HET_GRADIENT, &b);
        g = get(merged, find(merged, name), HET_GRADIENT, &w);
        ta = (double *)support_alloc((size_t)a.count, sizeof *ta);
        tb = (double *)support_alloc((size_t)b.count, sizeof *tb);
        memset(ta, 0, (size_t)a.count * sizeof *ta);
        memset(tb, 0, (size_t)b.count * sizeof *tb);
        for (i = 0; i < w.rows; i++)
            for (j = 0; j < w.columns; j++)
                for (k = 0; k < a.rows; k++) {
                    ta[k * w.columns + j] += scale * (double)vb[i * a.rows + k] * (double)g[i * w.columns + j];
                    tb[i * a.rows + k] += scale * (double)va[k * w.columns + j] * (double)g[i * w.columns + j];
                }
        if (!(off(ga, ta, a.count) < 2e-5)) fail_msg("%s: gradient is off by %g", a.name, off(ga, ta, a.count));
        if (!(off(gb, tb, b.count) < 2e-5)) fail_msg("%s: gradient is off by %g", b.name, off(gb, tb, b.count));
        free(va), free(vb), free(ga), free(gb), free(g), free(ta), free(tb);
    }
}

static void formula(het_family family, int64_t rank, float alpha, int64_t targets, int matrices)
{
    het_model_desc model = support_model(family);
    support_run plain, run;
    support_group group;
    het_ctx *adapted, *merged;
    het_step_info a, b;
    double scale;
    support_run_start(&plain, &model, 1, BLOCKS);
    model.lora_rank = rank, model.lora_alpha = alpha, model.lora_targets = targets;
    support_run_start(&run, &model, 1, BLOCKS);
    merged = support_create(&plain.desc);
    adapted = support_create(&run.desc);
    scale = (double)het_get_desc(adapted)->model.lora_alpha / (double)rank;
    assert_int_equal(merge(adapted, merged, scale), matrices);
    support_group_start(&group, &run.data, 0, "012");
    EXPECT_OK(het_gradients(adapted, group.batch, group.count, &a));
    EXPECT_OK(het_gradients(merged, group.batch, group.count, &b));
    if (!(fabs(a.loss - b.loss) < 2e-6 * b.loss)) fail_msg("family %d: loss %.9g, merged %.9g", (int)family, a.loss, b.loss);
    check_gradients(adapted, merged, scale);
    support_group_end(&group);
    het_destroy(adapted);
    het_destroy(merged);
    support_run_end(&run);
    support_run_end(&plain);
}

static void factors_are_a_change_of_the_matrix(void **state)
{
    (void)state;
    formula(HET_GPT2, 4, 0.0f, 0, 6);
    formula(HET_LLAMA, 4, 0.0f, 0, 4);
    formula(HET_GPT2, 3, 7.0f, HET_LORA_ALL, 12);
    formula(HET_LLAMA, 5, 16.0f, HET_LORA_ALL, 14);
    formula(HET_QWEN2, 1, 2.0f, HET_LORA_O + HET_LORA_UP, 4);
    formula(HET_QWEN3, 2, 3.0f, HET_LORA_ALL, 14);
    formula(HET_NEOX, 6, 4.0f, HET_LORA_ALL, 12);
}

/* Without training B is 0: the model is the one without factors, bit for bit, its initial weights included. */
static void starts_as_the_base(void **state)
{
    het_model_desc model = support_model(HET_LLAMA);
    support_run plain, run;
    support_group group;
    het_ctx *base, *adapted;
    het_step_info a, b;
    het_parameter_info info;
    float *values;
    double sum = 0, squares = 0;
    int64_t i;
    (void)state;
    support_run_start(&plain, &model, 1, BLOCKS);
    model.lora_rank = 8;
    support_run_start(&run, &model, 1, BLOCKS);
    base = support_create(&plain.desc);
    adapted = support_create(&run.desc);
    support_group_start(&group, &run.data, 0, "0|12");
    EXPECT_OK(het_evaluate(base, group.batch, group.count, &a));
    EXPECT_OK(het_evaluate(adapted, group.batch, group.count, &b));
    assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
    values = get(adapted, find(adapted, "model.layers.0.self_attn.q_proj.lora_A.weight"), HET_WEIGHT, &info);
    assert_int_equal(info.rows, 8);
    for (i = 0; i < info.count; i++) {
        assert_true(fabs((double)values[i]) <= 1.0 / sqrt((double)info.columns));
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
    }
    assert_true(fabs(sum / (double)info.count) < 0.02);                                          /* 3 deviations of the mean of 320 */
    assert_true(fabs(squares / (double)info.count * 3.0 * (double)info.columns - 1.0) < 0.2);    /* variance of a uniform law: bound^2 / 3 */
    free(values);
    assert_int_equal(het_tensor_count(base), het_tensor_count(adapted)); /* files of weights do not hold the factors */
    support_group_end(&group);
    het_destroy(base);
    het_destroy(adapted);
    support_run_end(&run);
    support_run_end(&plain);
}

/* Only the factors move, and only they have gradients and optimizer state. */
static void the_rest_is_frozen(void **state)
{
    het_model_desc model = support_model(HET_QWEN3);
    support_run run;
    het_ctx *before, *after;
    het_memory memory, full;
    support_memory counted;
    int64_t p, trained = 0;
    int i;
    (void)state;
    support_run_start(&run, &model, 2, BLOCKS);
    EXPECT_OK(het_memory_estimate(&run.desc, 0, &full, NULL));
    run.desc.model.lora_rank = 2;
    EXPECT_OK(het_memory_estimate(&run.desc, 0, &memory, NULL));
    run.desc.allocator = support_allocator(&counted);
    before = support_create(&run.desc);
    assert_int_equal(counted.bytes, memory.host + memory.device);
    after = support_create(&run.desc);
    for (i = 0; i < 4; i++) (void)support_step(after, &run.data, i, "0|12");
    for (p = 0; p < het_parameter_count(before); p++) {
        het_parameter_info info;
        float *u = get(before, p, HET_WEIGHT, &info), *v = get(after, p, HET_WEIGHT, &info);
        assert_int_equal(info.frozen, !info.adapter);
        assert_int_equal(memcmp(u, v, (size_t)info.count * sizeof *u) == 0, info.frozen);
        if (!info.frozen) trained += (info.count + 15) / 16 * 16;
        else EXPECT_ERROR(het_parameter_read(after, p, HET_STATE0, u), HET_ERR_INVALID, het_last_error(after), "has no array");
        free(u);
        free(v);
    }
    assert_true(memory.optimizer >= 2 * (size_t)trained * sizeof(float) && memory.optimizer < 2 * (size_t)trained * sizeof(float) + 256);
    assert_true(full.optimizer > 5 * memory.optimizer && full.gradients > 5 * memory.gradients);
    het_destroy(before);
    het_destroy(after);
    support_run_end(&run);
}

static void descriptions(void **state)
{
    het_model_desc model;
    het_error error;
    (void)state;
    EXPECT_OK(het_model_parse("gpt2:layers=2,lora_rank=4", &model, &error));
    assert_int_equal(model.lora_targets, HET_LORA_Q + HET_LORA_K + HET_LORA_V);
    assert_true(model.lora_alpha >= 4.0f && model.lora_alpha <= 4.0f);
    EXPECT_OK(het_model_parse("gpt2:layers=2,lora_rank=4,lora_targets=127", &model, &error));
    assert_int_equal(model.lora_targets, HET_LORA_ALL - HET_LORA_GATE);
    EXPECT_ERROR(het_model_parse("neox:lora_rank=4,lora_targets=5", &model, &error), HET_ERR_INVALID, error.text, "lora_targets is 5|q, k and v");
    EXPECT_OK(het_model_parse("llama:layers=2,lora_rank=4", &model, &error));
    assert_int_equal(model.lora_targets, HET_LORA_Q + HET_LORA_V);
    EXPECT_ERROR(het_model_parse("gpt2:layers=2,lora_rank=4,lora_targets=16", &model, &error), HET_ERR_INVALID, error.text, "lora_targets");
    EXPECT_ERROR(het_model_parse("gpt2:lora_rank=4,lora_targets=128", &model, &error), HET_ERR_INVALID, error.text, "lora_targets|128|127");
    EXPECT_ERROR(het_model_parse("gpt2:lora_rank=-1", &model, &error), HET_ERR_INVALID, error.text, "lora_rank|-1");
}

/* A device table from before there were adapters. */
static void device_without_scale(void **state)
{
    het_model_desc model = support_model(HET_LLAMA);
    support_run run;
    het_ctx *ctx;
    het_error error;
    (void)state;
    support_run_start(&run, &model, 1, BLOCKS);
    support_run_ranks(&run, 1);
    run.far = *het_cpu_device();
    run.far.scale = NULL;
    run.device[0].iface = &run.far;
    EXPECT_OK(het_create(&run.desc, &ctx, &error));
    het_destroy(ctx);
    run.desc.model.lora_rank = 2;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "lora_rank|scale|cpu");
    support_run_end(&run);
}

/* het_infer, with keys and values kept, on one rank and on three, against all tokens at once: the same logits. */
static void inference(void **state)
{
    het_model_desc model = support_model(HET_LLAMA);
    support_run run;
    het_ctx *one, *many;
    int32_t token[12];
    float *a, *b;
    int64_t i;
    uint64_t seed = 3;
    (void)state;
    model.lora_rank = 3;
    model.lora_targets = HET_LORA_ALL;
    support_run_start(&run, &model, 1, BLOCKS);
    for (i = 0; i < 12; i++) token[i] = (int32_t)support_below(&seed, model.vocab);
    run.desc.inference = HET_YES;
    one = support_create(&run.desc);
    support_run_ranks(&run, 3);
    support_run_plan(&run, "pp", "gpipe", 1);
    many = support_create(&run.desc);
    a = support_floats(model.vocab, 0, 1);
    b = support_floats(model.vocab, 0, 1);
    for (i = 0; i < het_parameter_count(one); i++) {
        het_parameter_info info;
        float *values = get(one, i, HET_WEIGHT, &info);
        support_fill(values, info.count, 0.2, (uint64_t)i);
        EXPECT_OK(het_parameter_write(one, i, HET_WEIGHT, values));
        EXPECT_OK(het_parameter_write(many, i, HET_WEIGHT, values));
        free(values);
    }
    EXPECT_OK(het_infer(many, token, 5, 0, b));
    for (i = 5; i < 12; i++) {
        EXPECT_OK(het_infer(many, token + i, 1, i, b));
        EXPECT_OK(het_infer(one, token, i + 1, 0, a));
        assert_memory_equal(a, b, (size_t)model.vocab * sizeof *a);
    }
    free(a);
    free(b);
    het_destroy(one);
    het_destroy(many);
    support_run_end(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_are_a_change_of_the_matrix),
        cmocka_unit_test(starts_as_the_base),
        cmocka_unit_test(the_rest_is_frozen),
        cmocka_unit_test(descriptions),
        cmocka_unit_test(device_without_scale),
        cmocka_unit_test(inference),
    };
    return cmocka_run_group_tests_name("adapter", tests, NULL, NULL);
}
