/* Low-rank adapters. The factors A, B of y = x W^T + s (x A^T) B^T are held against a model without factors whose matrices are W + s B A:
   the loss must be its loss, and its gradient G of a matrix gives those of the factors by the chain rule, dB = s G A^T and dA = s B^T G. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "support.h"

#include "hetrain_files.h"
#include "threads_transport.h"

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

static float *get(het_ctx *ctx, int64_t index, het_array what, het_parameter_info *info)
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
    run.desc.host.allocator = support_allocator(&counted);
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
        else EXPECT_ERROR(het_parameter_read(after, p, HET_MOMENT0, u), HET_ERR_INVALID, het_last_error(after), "has no array");
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

/* Factors stand behind the unit's other parameters, A B A B. */
static void factors_come_last(void **state)
{
    het_description *d;
    het_desc desc;
    int64_t u, i, factors = 0;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.model = support_model(HET_QWEN2);
    desc.model.lora_rank = 2, desc.model.lora_targets = HET_LORA_ALL;
    EXPECT_OK(het_describe(&desc, &d, NULL));
    for (u = 0; u < d->units; u++) {
        const het_unit_info *info = &d->unit[u].info;
        for (i = 0; i < info->parameters; i++) {
            if (!info->parameter[i].adapter) continue;
            assert_true(i + 1 == info->parameters || info->parameter[i + 1].adapter);
            assert_non_null(strstr(info->parameter[i].name, factors++ % 2 ? "lora_B" : "lora_A"));
        }
    }
    assert_true(factors > 0);
    het_description_free(d);
}

static int32_t all_but_scale(void *self, const het_op *op) { return op->kind != HET_OP_SCALE && het_cpu_device()->supports(self, op); }

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
    run.far.supports = all_but_scale;
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

/* ---- files ---- */

/* A directory of tests/oracle/data/adapter: what PEFT wrote, and what PyTorch computed with it. */
typedef struct oracle {
    char path[128];
    het_model_desc model;
    het_ctx *ctx;
    het_safetensors *expected;
    het_reader reader;
    het_batch batch;
    int32_t token[64], target[64];
    int64_t start[2];
} oracle;

static void open_file(const oracle *o, const char *name, het_reader *reader)
{
    char path[192];
    het_error error;
    snprintf(path, sizeof path, "%s/%s", o->path, name);
    support_expect(het_reader_open(path, reader, &error), HET_OK, error.text, "", path, __LINE__);
}

static char *read_text(const oracle *o, const char *name, size_t *length)
{
    het_reader reader;
    char *text;
    open_file(o, name, &reader);
    *length = (size_t)reader.size;
    text = (char *)support_alloc(*length + 1, 1);
    assert_int_equal(reader.read(reader.user, 0, text, *length), *length);
    het_reader_close(&reader);
    return text;
}

static void oracle_start(oracle *o, const char *name, int with_adapter)
{
    het_desc desc;
    het_error error = { HET_OK, "" };
    het_reader reader;
    const het_safetensor *t;
    char base[8], *text;
    size_t length;
    int64_t i;
    memset(o, 0, sizeof *o);
    memset(&desc, 0, sizeof desc);
    snprintf(o->path, sizeof o->path, "tests/oracle/data/adapter/%s", name);
    text = read_text(o, "config.json", &length);
    support_expect(het_model_from_json(text, length, &o->model, &error), HET_OK, error.text, "", name, __LINE__);
    free(text);
    text = read_text(o, "adapter_config.json", &length);
    if (with_adapter)
        support_expect(het_adapter_from_json(text, length, &o->model, base, sizeof base, &error), HET_OK, error.text, "", name, __LINE__);
    free(text);
    desc.model = o->model;
    o->ctx = support_create(&desc);
    open_file(o, "model.safetensors", &reader);
    support_expect(het_load_weights(o->ctx, &reader), HET_OK, het_last_error(o->ctx), "", name, __LINE__);
    het_reader_close(&reader);
    open_file(o, "expected.safetensors", &o->reader);
    support_expect(het_safetensors_read(&o->reader, 0, NULL, &o->expected, &error), HET_OK, error.text, "", name, __LINE__);
    t = het_safetensors_find(o->expected, "tokens", 6);
    assert_int_equal(o->reader.read(o->reader.user, o->expected->data + t->begin, o->token, (size_t)(t->end - t->begin)), t->end - t->begin);
    o->batch.tokens = o->start[1] = t->shape[0];
    o->batch.sequences = 1;
    o->batch.token = o->token, o->batch.target = o->target, o->batch.sequence_start = o->start;
    for (i = 0; i < o->batch.tokens; i++) o->target[i] = i + 1 < o->batch.tokens ? o->token[i + 1] : -1;
}

static void oracle_load(oracle *o)
{
    het_error error = { HET_OK, "" };
    het_reader reader;
    open_file(o, "adapter_model.safetensors", &reader);
    support_expect(het_adapter_load(o->ctx, &reader, &error), HET_OK, error.text, "", o->path, __LINE__);
    het_reader_close(&reader);
}

static void oracle_end(oracle *o)
{
    het_safetensors_free(o->expected);
    het_reader_close(&o->reader);
    het_destroy(o->ctx);
}

static double loss_of(oracle *o)
{
    het_step_info info;
    EXPECT_OK(het_evaluate(o->ctx, &o->batch, 1, &info));
    return info.loss;
}

/* Gradients of factors that are alone in their module; of the others the A of q, k and v together have PEFT's gradient. */
static void oracle_gradients(oracle *o)
{
    het_step_info step;
    int64_t p, i;
    EXPECT_OK(het_gradients(o->ctx, &o->batch, 1, &step));
    for (p = 0; p < het_parameter_count(o->ctx); p++) {
        het_parameter_info info;
        const het_safetensor *t;
        char name[160];
        float *own, *truth;
        double *wanted;
        const char *joint;
        int k;
        EXPECT_OK(het_parameter_get_info(o->ctx, p, &info));
        if (!info.adapter) continue;
        joint = strstr(info.name, ".q.lora_A.weight");
        if (joint != NULL) snprintf(name, sizeof name, "grad/base_model.model.%.*s.lora_A.weight", (int)(joint - info.name), info.name);
        else snprintf(name, sizeof name, "grad/base_model.model.%s", info.name);
        t = het_safetensors_find(o->expected, name, strlen(name));
        if (t == NULL && (strstr(info.name, "c_attn") != NULL || strstr(info.name, "query_key_value") != NULL)) continue;
        assert_non_null(t);
        own = get(o->ctx, p, HET_GRADIENT, &info);
        truth = support_floats(info.count, 0, 1);
        wanted = (double *)support_alloc((size_t)info.count, sizeof *wanted);
        EXPECT_OK(het_safetensors_get(o->expected, &o->reader, t, 0, info.count, truth, NULL));
        for (i = 0; i < info.count; i++) wanted[i] = (double)truth[i];
        for (k = 1; k < 3 && joint != NULL; k++) { /* q k v: A B A B A B */
            float *more = get(o->ctx, p + 2 * k, HET_GRADIENT, &info);
            for (i = 0; i < info.count; i++) own[i] += more[i];
            free(more);
        }
        if (!(off(own, wanted, info.count) < 2e-5)) fail_msg("%s: gradient is off by %g", name, off(own, wanted, info.count));
        free(own), free(truth), free(wanted);
    }
}

static const char *const oracles[] = { "llama", "qwen3", "gpt2", "neox" };

static void what_peft_wrote(void **state)
{
    int n;
    (void)state;
    for (n = 0; n < 4; n++) {
        oracle o, base;
        float loss;
        double merged;
        oracle_start(&o, oracles[n], 1);
        oracle_start(&base, oracles[n], 0);
        EXPECT_OK(het_safetensors_get(o.expected, &o.reader, het_safetensors_find(o.expected, "loss", 4), 0, 1, &loss, NULL));
        merged = loss_of(&o) - loss_of(&base);
        assert_true(merged >= 0 && merged <= 0); /* B is 0 */
        oracle_load(&o);
        if (!(fabs(loss_of(&o) - (double)loss) < 2e-6 * (double)loss)) fail_msg("%s: loss %.9g, PEFT's %.9g", oracles[n], loss_of(&o), (double)loss);
        assert_true(fabs(loss_of(&base) - (double)loss) > 1e-3);
        oracle_gradients(&o);
        EXPECT_OK(het_adapter_merge(o.ctx, NULL));
        merged = loss_of(&o);
        if (!(fabs(merged - (double)loss) < 2e-6 * (double)loss)) fail_msg("%s: merged %.9g, PEFT's %.9g", oracles[n], merged, (double)loss);
        oracle_end(&o);
        oracle_end(&base);
    }
}

/* W + (alpha / r) B A of a matrix is rounded once. */
static void merging_rounds_once(void **state)
{
    het_model_desc model = support_model(HET_LLAMA);
    support_run run;
    het_ctx *ctx;
    int64_t p, i, j, k;
    (void)state;
    model.lora_rank = 3, model.lora_alpha = 7.0f, model.lora_targets = HET_LORA_DOWN;
    support_run_start(&run, &model, 1, BLOCKS);
    ctx = support_create(&run.desc);
    for (p = 0; p < het_parameter_count(ctx); p++) {
        het_parameter_info a, b, w;
        float *va = get(ctx, p, HET_WEIGHT, &a), *vb, *before, *after;
        char name[96];
        const char *end = strstr(a.name, ".lora_A.weight");
        if (end == NULL || strstr(a.name, "layers.0") == NULL) {
            free(va);
            continue;
        }
        snprintf(name, sizeof name, "%.*s.weight", (int)(end - a.name), a.name);
        vb = get(ctx, p + 1, HET_WEIGHT, &b);
        support_fill(vb, b.count, 0.5, 3);
        EXPECT_OK(het_parameter_write(ctx, p + 1, HET_WEIGHT, vb));
        before = get(ctx, find(ctx, name), HET_WEIGHT, &w);
        EXPECT_OK(het_adapter_merge(ctx, NULL));
        after = get(ctx, find(ctx, name), HET_WEIGHT, &w);
        for (i = 0; i < w.rows; i++)
            for (j = 0; j < w.columns; j++) {
                double sum = 0;
                for (k = 0; k < 3; k++) sum += (double)vb[i * 3 + k] * (double)va[k * w.columns + j];
                sum = fma(7.0 / 3.0, sum, (double)before[i * w.columns + j]);
                assert_int_equal(support_bits(after[i * w.columns + j]), support_bits((float)sum));
            }
        free(va), free(vb), free(before), free(after);
    }
    het_destroy(ctx);
    support_run_end(&run);
}

/* Saved and loaded again, every factor has its bits, and the description comes back. */
static void there_and_back(void **state)
{
    static const int64_t joint = HET_LORA_Q + HET_LORA_K + HET_LORA_V;
    const int64_t targets[] = { HET_LORA_Q + HET_LORA_O, HET_LORA_ALL, HET_LORA_ALL, joint + HET_LORA_UP, joint };
    static const float alphas[] = { 0.0f, 0.1f, 12.5f, 1e-3f, 2.0f };
    static const het_family families[] = { HET_LLAMA, HET_QWEN3, HET_GPT2, HET_NEOX, HET_NEOX };
    int n;
    (void)state;
    for (n = 0; n < 5; n++) {
        het_model_desc model = support_model(families[n]), again = model;
        support_buffer file;
        het_writer writer;
        het_reader reader;
        support_run run;
        het_ctx *from, *to;
        het_error error = { HET_OK, "" };
        char text[2048], base[64];
        size_t length;
        int64_t p;
        if (n == 4) model.kv_heads = again.kv_heads = model.heads / 2;
        model.lora_rank = 1 + n, model.lora_targets = targets[n], model.lora_alpha = alphas[n];
        EXPECT_OK(het_model_complete(&model, NULL));
        EXPECT_OK(het_adapter_to_json(&model, "a \"base\"", text, sizeof text, &length));
        EXPECT_ERROR(het_adapter_to_json(&model, "x", text, 10, &length), HET_ERR_LIMIT, NULL, "");
        EXPECT_OK(het_adapter_to_json(&model, "a \"base\"", text, sizeof text, &length));
        support_expect(het_adapter_from_json(text, length, &again, base, sizeof base, &error), HET_OK, error.text, "", "again", n);
        assert_string_equal(base, "a \"base\"");
        assert_memory_equal(&again, &model, sizeof model);
        support_run_start(&run, &model, 1, BLOCKS);
        from = support_create(&run.desc);
        run.desc.seed = 5;
        to = support_create(&run.desc);
        for (p = 0; p < het_parameter_count(from); p++) {
            het_parameter_info info;
            float *values = get(from, p, HET_WEIGHT, &info);
            support_fill(values, info.count, 0.5, (uint64_t)p);
            if (info.adapter) EXPECT_OK(het_parameter_write(from, p, HET_WEIGHT, values));
            free(values);
        }
        support_buffer_start(&file);
        writer = support_writer(&file);
        support_expect(het_adapter_save(from, &writer, &error), HET_OK, error.text, "", "save", n);
        reader = support_reader(&file);
        support_expect(het_adapter_load(to, &reader, &error), HET_OK, error.text, "", "load", n);
        for (p = 0; p < het_parameter_count(from); p++) {
            het_parameter_info info;
            float *u = get(from, p, HET_WEIGHT, &info), *v = get(to, p, HET_WEIGHT, &info);
            if (info.adapter && memcmp(u, v, (size_t)info.count * sizeof *u) != 0) fail_msg("%s differs", info.name);
            free(u);
            free(v);
        }
        het_destroy(from);
        het_destroy(to);
        support_buffer_end(&file);
        support_run_end(&run);
    }
}

static void bad_descriptions(void **state)
{
#define PLAIN "{\"r\":4,\"lora_alpha\":8,\"target_modules\":[\"q_proj\"]"
    static const struct { const char *text; het_result code; const char *words; } cases[] = {
        { "[]", HET_ERR_FORMAT, "byte 0" },
        { "{}", HET_ERR_FORMAT, "r is 0" },
        { "{\"r\":4,\"lora_alpha\":8}", HET_ERR_FORMAT, "target_modules" },
        { "{\"r\":0,\"lora_alpha\":8,\"target_modules\":[\"q_proj\"]}", HET_ERR_FORMAT, "r is 0" },
        { "{\"r\":4,\"lora_alpha\":-8,\"target_modules\":[\"q_proj\"]}", HET_ERR_FORMAT, "above 0" },
        { "{\"r\":70000,\"lora_alpha\":8,\"target_modules\":[\"q_proj\"]}", HET_ERR_INVALID, "lora_rank|70000" },
        { "{\"r\":4,\"lora_alpha\":8,\"target_modules\":[\"w_proj\"]}", HET_ERR_UNSUPPORTED, "target_modules|w_proj" },
        { "{\"r\":4,\"lora_alpha\":8,\"target_modules\":[\"lm_head\"]}", HET_ERR_UNSUPPORTED, "lm_head" },
        { "{\"r\":4,\"lora_alpha\":8,\"target_modules\":\".*proj\"}", HET_ERR_UNSUPPORTED, "pattern" },
        { PLAIN ",\"use_dora\":true}", HET_ERR_UNSUPPORTED, "use_dora" },
        { PLAIN ",\"use_rslora\":true}", HET_ERR_UNSUPPORTED, "use_rslora" },
        { PLAIN ",\"bias\":\"all\"}", HET_ERR_UNSUPPORTED, "bias" },
        { PLAIN ",\"init_lora_weights\":\"pissa\"}", HET_ERR_UNSUPPORTED, "init_lora_weights is \"pissa\"" }, /* PEFT changes the weights, too */
        { PLAIN ",\"init_lora_weights\":\"pissa_niter_1600\"}", HET_ERR_UNSUPPORTED, "\"pissa_niter" },
        { PLAIN ",\"init_lora_weights\":\"corda\"}", HET_ERR_UNSUPPORTED, "\"corda\"" },
        { PLAIN ",\"init_lora_weights\":\"OLoRA\"}", HET_ERR_UNSUPPORTED, "\"OLoRA\"" },
        { PLAIN ",\"init_lora_weights\":\"loftq\"}", HET_ERR_UNSUPPORTED, "\"loftq\"" },
        { PLAIN ",\"init_lora_weights\":\"xyz\"}", HET_ERR_UNSUPPORTED, "\"xyz\"" },
        { PLAIN ",\"init_lora_weights\":7}", HET_ERR_FORMAT, "true or false" },
        { PLAIN ",\"kasa_config\":{\"beta\":0.1}}", HET_ERR_UNSUPPORTED, "kasa_config" },
        { PLAIN ",\"arrow_config\":{\"top_k\":3}}", HET_ERR_UNSUPPORTED, "arrow_config" },
        { PLAIN ",\"modules_to_save\":[\"lm_head\"]}", HET_ERR_UNSUPPORTED, "modules_to_save" },
        { PLAIN ",\"layers_to_transform\":[0,1]}", HET_ERR_UNSUPPORTED, "layers_to_transform" },
        { PLAIN ",\"rank_pattern\":{\"q_proj\":5}}", HET_ERR_UNSUPPORTED, "rank_pattern" },
        { PLAIN ",\"alpha_pattern\":{\"q_proj\":5}}", HET_ERR_UNSUPPORTED, "alpha_pattern" },
        { "{\"r\":4,\"lora_alpha\":8,\"target_modules\":[\"model.layers.1.self_attn.q_proj\"]}", HET_ERR_UNSUPPORTED, "q_proj in 1 layers of 2" },
        { "{\"peft_type\":\"IA3\",\"r\":4}", HET_ERR_UNSUPPORTED, "peft_type|IA3" },
        { PLAIN "} x", HET_ERR_FORMAT, "byte" },
        { "{\"r\":4,\"lora_alpha\":8,\"target_modules\":[\"q_proj\"", HET_ERR_FORMAT, "byte" }
    };
    static const char *const plain_starts[] = { "true", "false", "null", "\"gaussian\"", "\"eva\"", "\"orthogonal\"", "\"mica\"", "\"lora_ga\"" };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        het_model_desc model = support_model(HET_LLAMA), before = model;
        het_error error;
        EXPECT_ERROR(het_adapter_from_json(cases[i].text, strlen(cases[i].text), &model, NULL, 0, &error), cases[i].code, error.text, cases[i].words);
        assert_memory_equal(&model, &before, sizeof model);
    }
    for (i = 0; i < sizeof plain_starts / sizeof plain_starts[0]; i++) { /* how factors began changes nothing but them */
        het_model_desc model = support_model(HET_LLAMA);
        het_error error;
        char text[200];
        snprintf(text, sizeof text, PLAIN ",\"init_lora_weights\":%s,\"kasa_config\":null}", plain_starts[i]);
        support_expect(het_adapter_from_json(text, strlen(text), &model, NULL, 0, &error), HET_OK, error.text, "", text, __LINE__);
        assert_int_equal(model.lora_rank, 4);
    }
}

/* A model of zeros is all defaults, here as elsewhere. */
static void models_of_zeros(void **state)
{
    static const char of_gpt2[] = "{\"r\":4,\"lora_alpha\":8,\"target_modules\":[\"c_attn\"]}";
    het_model_desc model;
    het_error error;
    char text[1000] = "";
    size_t length = 0;
    (void)state;
    memset(&model, 0, sizeof model);
    EXPECT_ERROR(het_adapter_from_json(of_gpt2, strlen(of_gpt2), &model, NULL, 0, &error), HET_OK, error.text, "");
    assert_int_equal(model.layers, 4);
    memset(&model, 0, sizeof model);
    model.lora_rank = 4;
    EXPECT_OK(het_adapter_to_json(&model, "", text, sizeof text, &length));
    assert_non_null(strstr(text, "[\"attn.c_attn\"]"));
    model.layers = -1;
    assert_int_equal(het_adapter_to_json(&model, "", text, sizeof text, &length), HET_ERR_INVALID);
}

/* Factors know the weights that they were trained on, where anybody said so. */
static void other_base(het_ctx *ctx, het_ctx *other)
{
    support_buffer file, weights;
    het_writer writer;
    het_reader reader, from;
    het_error error = { HET_OK, "" };
    float w[4096];
    uint64_t base;
    support_buffer_start(&file);
    support_buffer_start(&weights);
    writer = support_writer(&weights);
    EXPECT_OK(het_save_weights(ctx, &writer));
    from = support_reader(&weights);
    assert_int_equal(het_get_base(ctx), 0);
    EXPECT_OK(het_load_weights(ctx, &from));
    EXPECT_OK(het_load_weights(other, &from));
    base = het_get_base(ctx);
    assert_true(base != 0 && het_get_base(other) == base);
    writer = support_writer(&file);
    EXPECT_OK(het_adapter_save(ctx, &writer, &error));
    reader = support_reader(&file);
    EXPECT_OK(het_adapter_load(other, &reader, &error));
    assert_int_equal(het_get_base(other), base);
    het_set_base(other, base ^ 1);
    EXPECT_ERROR(het_adapter_load(other, &reader, &error), HET_ERR_INVALID, error.text, "other base weights");
    het_set_base(other, 0);
    EXPECT_OK(het_adapter_load(other, &reader, &error));
    het_set_base(other, base);
    EXPECT_OK(het_parameter_read(other, 0, HET_WEIGHT, w)); /* what is written anew is not known any more; factors are no part of it */
    EXPECT_OK(het_adapter_load(other, &reader, &error));
    assert_int_equal(het_get_base(other), base);
    EXPECT_OK(het_parameter_write(other, 0, HET_WEIGHT, w));
    assert_int_equal(het_get_base(other), 0);
    assert_int_equal(het_get_base(NULL), 0);
    support_buffer_end(&file);
    support_buffer_end(&weights);
}

static void zeros_in_factors(het_ctx *ctx)
{
    int64_t p;
    for (p = 0; p < het_parameter_count(ctx); p++) {
        het_parameter_info info;
        float *zeros;
        EXPECT_OK(het_parameter_get_info(ctx, p, &info));
        zeros = support_floats(info.count, 0, 1);
        if (info.adapter) EXPECT_OK(het_parameter_write(ctx, p, HET_WEIGHT, zeros));
        free(zeros);
    }
}

/* A reader of which `left` calls go through. */
typedef struct tired { het_reader inner; int64_t left; } tired;
static int64_t tired_read(void *user, uint64_t offset, void *to, size_t size)
{
    tired *t = user;
    return t->left-- > 0 ? t->inner.read(t->inner.user, offset, to, size) : -1;
}

/* A file that was good when it was looked through and cannot be read when it is loaded: the error says what the context has now. */
static void reads_that_end(het_ctx *ctx, support_buffer *file)
{
    const unsigned char last = file->data[file->size - 5];
    het_error error = { HET_OK, "" };
    int64_t calls, torn = 0, whole = 0;
    het_result result;
    tired t;
    file->data[file->size - 5] = 0; /* finite */
    for (calls = 0, result = HET_ERR_IO; result != HET_OK; calls++) {
        het_reader reader = support_reader(file);
        uint64_t hash;
        t.inner = reader;
        t.left = calls;
        reader.read = tired_read;
        reader.user = &t;
        zeros_in_factors(ctx);
        hash = support_hash(ctx);
        result = het_adapter_load(ctx, &reader, &error);
        if (result == HET_OK) break;
        if (support_hash(ctx) != hash) {
            torn++;
            EXPECT_ERROR(result, HET_ERR_IO, error.text, "test.bin|factors are partly overwritten, load them again");
        } else if (strstr(error.text, "overwritten") == NULL) {
            whole++;
            EXPECT_ERROR(result, HET_ERR_IO, error.text, "test.bin");
        }
    }
    assert_true(torn > 2 && whole > 4);
    file->data[file->size - 5] = last;
}

/* Files that belong to another model, or are cut: refused, and no factor is changed. */
static void bad_files(void **state)
{
    het_model_desc model = support_model(HET_GPT2);
    support_buffer file;
    het_writer writer;
    het_reader reader;
    het_error error = { HET_OK, "" };
    support_run run;
    het_ctx *ctx, *other;
    uint64_t hash, now;
    size_t size;
    int n;
    (void)state;
    model.lora_rank = 2;
    support_run_start(&run, &model, 1, BLOCKS);
    ctx = support_create(&run.desc);
    support_buffer_start(&file);
    writer = support_writer(&file);
    EXPECT_OK(het_adapter_save(ctx, &writer, &error));
    size = file.size;
    for (n = 0; n < 5; n++) {
        static const char *const words[] = { "lora_rank is 0", "rank 6; here it is 3", "c_proj.lora_A.weight is missing", "no such factor",
                                              "base_model" };
        static const het_result codes[] = { HET_ERR_STATE, HET_ERR_FORMAT, HET_ERR_FORMAT, HET_ERR_FORMAT, HET_ERR_FORMAT };
        run.desc.model = support_model(n == 4 ? HET_LLAMA : HET_GPT2);
        run.desc.model.lora_rank = n == 0 ? 0 : n == 1 ? 3 : 2;
        run.desc.model.lora_targets = n == 2 ? HET_LORA_ALL : n == 4 ? HET_LORA_Q : 0;
        if (n == 3) run.desc.model.layers = 1;
        other = support_create(&run.desc);
        hash = support_hash(other);
        reader = support_reader(&file);
        EXPECT_ERROR(het_adapter_load(other, &reader, &error), codes[n], error.text, words[n]);
        now = support_hash(other);
        assert_int_equal(now, hash);
        het_destroy(other);
    }
    hash = support_hash(ctx);
    for (file.size = 0; file.size < size; file.size += 1 + file.size % 97) {
        reader = support_reader(&file);
        EXPECT_ERROR(het_adapter_load(ctx, &reader, &error), HET_ERR_FORMAT, error.text, "");
        now = support_hash(ctx);
        assert_int_equal(now, hash);
    }
    for (n = 0; n < 2; n++) { /* a factor that is not finite */
        static const uint32_t bits[] = { 0x7F800000u, 0xFFC00000u };
        memcpy(file.data + size - 8, &bits[n], sizeof bits[n]);
        file.size = size;
        reader = support_reader(&file);
        EXPECT_ERROR(het_adapter_load(ctx, &reader, &error), HET_ERR_DATA, error.text, n == 0 ? "is inf, not finite" : "is nan, not finite");
        now = support_hash(ctx);
        assert_int_equal(now, hash);
    }
    reads_that_end(ctx, &file);
    run.desc.model = model, run.desc.guard.nonfinite = HET_YES;
    other = support_create(&run.desc);
    EXPECT_OK(het_adapter_load(other, &reader, &error));
    other_base(ctx, other);
    het_destroy(other);
    EXPECT_ERROR(het_adapter_load(ctx, NULL, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_adapter_save(ctx, NULL, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_adapter_merge(NULL, &error), HET_ERR_INVALID, error.text, "NULL");
    het_destroy(ctx);
    support_buffer_end(&file);
    support_run_end(&run);
}

/* The file with one tensor more: the first one's name, a NUL and something behind. To whom names end at the NUL it is a factor that is there
   twice. */
static void names_are_whole(void **state)
{
    het_model_desc model = support_model(HET_LLAMA);
    support_buffer plain, odd;
    het_writer writer;
    het_reader reader;
    het_error error = { HET_OK, "" };
    het_safetensors *file = NULL, *made = NULL;
    het_safetensor *list;
    support_run run;
    het_ctx *ctx;
    char name[200];
    float *zeros;
    uint64_t hash;
    int64_t i, d;
    (void)state;
    model.lora_rank = 2;
    support_run_start(&run, &model, 1, BLOCKS);
    ctx = support_create(&run.desc);
    hash = support_hash(ctx);
    support_buffer_start(&plain);
    support_buffer_start(&odd);
    writer = support_writer(&plain);
    EXPECT_OK(het_adapter_save(ctx, &writer, &error));
    reader = support_reader(&plain);
    EXPECT_OK(het_safetensors_read(&reader, 0, NULL, &file, &error));
    list = support_alloc((size_t)file->tensors + 1, sizeof *list);
    memcpy(list, file->tensor, (size_t)file->tensors * sizeof *list);
    list[file->tensors] = list[0];
    assert_true(list[0].name_length + 2 < sizeof name);
    memcpy(name, list[0].name, list[0].name_length);
    memcpy(name + list[0].name_length, "\0x", 2);
    list[file->tensors].name = name;
    list[file->tensors].name_length = list[0].name_length + 2;
    support_expect(het_safetensors_make(list, file->tensors + 1, NULL, 0, NULL, &made, &error), HET_OK, error.text, "", "make", __LINE__);
    writer = support_writer(&odd);
    EXPECT_OK(het_safetensors_write(made, &writer, &error));
    for (i = 0; i < made->tensors; i++) {
        int64_t count = 1;
        for (d = 0; d < made->tensor[i].rank; d++) count *= made->tensor[i].shape[d];
        zeros = support_floats(count, 0, 1);
        EXPECT_OK(het_safetensors_put(&writer, made->tensor[i].element, zeros, count, &error));
        free(zeros);
    }
    reader = support_reader(&odd);
    EXPECT_ERROR(het_adapter_load(ctx, &reader, &error), HET_ERR_FORMAT, error.text, "no such factor");
    assert_true(support_hash(ctx) == hash);
    free(list);
    het_safetensors_free(file);
    het_safetensors_free(made);
    het_destroy(ctx);
    support_buffer_end(&plain);
    support_buffer_end(&odd);
    support_run_end(&run);
}

/* A process that saves or loads factors, or merges them; its file ends early. */
typedef struct partner { het_desc desc; int what; size_t room; het_result result; het_error error; } partner;

static void *partner_run(void *arg)
{
    partner *p = arg;
    support_buffer file;
    het_writer to;
    het_ctx *ctx = NULL;
    uint64_t hash;
    support_buffer_start(&file);
    to = support_writer(&file);
    p->result = het_create(&p->desc, &ctx, &p->error);
    if (p->result == HET_OK && p->what == 0) file.fail_after = (int64_t)p->room;
    if (p->result == HET_OK) p->result = het_adapter_save(ctx, &to, &p->error);
    if (p->result == HET_OK && p->what == 1) {
        const het_reader from = support_reader(&file);
        if (p->room < file.size) file.size = p->room;
        p->result = het_adapter_load(ctx, &from, &p->error);
    }
    if (p->result == HET_OK && (p->result = het_hash(ctx, &hash)) != HET_OK) snprintf(p->error.text, sizeof p->error.text, "%s", het_last_error(ctx));
    support_buffer_end(&file);
    het_destroy(ctx);
    return NULL;
}

/* What fails in one process ends the call in the others. */
static void an_error_is_told_to_other_processes(void **state)
{
    het_model_desc model = support_model(HET_LLAMA);
    (void)state;
    model.lora_rank = 2, model.lora_targets = HET_LORA_ALL;
    for (int what = 0; what < 2; what++) {
        const double begin = threads_clock();
        threads_world world;
        threads_end end[2];
        het_transport transport[2];
        support_run run;
        partner both[2];
        pthread_t thread;
        support_run_start(&run, &model, 1, BLOCKS);
        support_run_ranks(&run, 2);
        support_run_plan(&run, "pp", NULL, 1);
        run.desc.layout.device_count = 1;
        run.desc.layout.stall_deadline = 12;
        threads_open(&world, end, transport, 2, 0);
        memset(both, 0, sizeof both);
        for (int i = 0; i < 2; i++) {
            both[i].desc = run.desc, both[i].what = what;
            both[i].desc.layout.transport = transport[i];
            both[i].room = i == what ? 3000 : (size_t)1 << 30;
        }
        assert_int_equal(pthread_create(&thread, NULL, partner_run, &both[1]), 0);
        (void)partner_run(&both[0]);
        (void)pthread_join(thread, NULL);
        for (int i = 0; i < 2; i++)
            if (both[i].result == HET_OK || threads_clock() - begin > 6)
                fail_msg("case %d: process %d gave %d after %.1f s: %s", what, i, (int)both[i].result, threads_clock() - begin, both[i].error.text);
        support_run_end(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_are_a_change_of_the_matrix),
        cmocka_unit_test(starts_as_the_base),
        cmocka_unit_test(the_rest_is_frozen),
        cmocka_unit_test(descriptions),
        cmocka_unit_test(factors_come_last),
        cmocka_unit_test(device_without_scale),
        cmocka_unit_test(inference),
        cmocka_unit_test(what_peft_wrote),
        cmocka_unit_test(merging_rounds_once),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(bad_descriptions),
        cmocka_unit_test(models_of_zeros),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(an_error_is_told_to_other_processes),
        cmocka_unit_test(names_are_whole),
    };
    return cmocka_run_group_tests_name("adapter", tests, NULL, NULL);
}
