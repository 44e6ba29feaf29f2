/* Muon, and feedback around it and AdamW: steps against the formula in double, one hash in every layout, resumption on another one, what is
   refused. */
#include "support.h"

#include "hetrain_files.h"

#define STEPS 3

static const char *const uneven = "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,6]}]},{\"stages\":[{\"rank\":1,\"units\":[0,6]}]},"
                                  "{\"stages\":[{\"rank\":2,\"units\":[0,6]}]}],\"state_shares\":[1,0,3]}";

static void start(support_run *run, const het_model_desc *model)
{
    support_run_start(run, model, STEPS, SUPPORT_SHORT);
    run->desc.optimizer.iface = het_muon();
    run->desc.limits.max_micro_batches = SUPPORT_MAX_BLOCKS;
}

/* ---- against double ---- */

static double *square_of(const double *x, int64_t rows, int64_t columns) /* x x^T */
{
    double *a = support_alloc((size_t)(rows * rows), sizeof *a);
    int64_t i, j, k;
    for (i = 0; i < rows; i++)
        for (j = 0; j < rows; j++)
            for (a[i * rows + j] = 0, k = 0; k < columns; k++) a[i * rows + j] += x[i * columns + k] * x[j * columns + k];
    return a;
}

/* x [rows][columns] as Newton and Schulz leave it, without a transpose: p(X X^T) X is the same for tall and wide matrices. */
static void orthogonalise(double *x, int64_t rows, int64_t columns)
{
    double norm = 0;
    int64_t i, j, k, round, n = rows * columns;
    for (i = 0; i < n; i++) norm += x[i] * x[i];
    norm = sqrt(norm) + 1e-7;
    for (i = 0; i < n; i++) x[i] /= norm;
    for (round = 0; round < 5; round++) {
        double *a = square_of(x, rows, columns), *b = square_of(a, rows, rows), *y = support_alloc((size_t)n, sizeof *y);
        for (i = 0; i < rows; i++)
            for (j = 0; j < columns; j++) {
                double sum = 3.4445 * x[i * columns + j];
                for (k = 0; k < rows; k++) sum += (-4.7750 * a[i * rows + k] + 2.0315 * b[i * rows + k]) * x[k * columns + j];
                y[i * columns + j] = sum;
            }
        memcpy(x, y, (size_t)n * sizeof *y);
        free(a);
        free(b);
        free(y);
    }
}

static float *array_of(het_ctx *ctx, het_array what, int64_t p)
{
    het_parameter_info info;
    float *to;
    EXPECT_OK(het_parameter_get_info(ctx, p, &info));
    to = support_floats(info.count, 0, 0);
    EXPECT_OK(het_parameter_read(ctx, p, what, to));
    return to;
}

/* Which parameters are Muon's, by their names. */
static int is_hidden(const het_parameter_info *p)
{
    static const char *const others[] = { "wte", "wpe", "embed", "lm_head" };
    size_t i;
    for (i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strstr(p->name, others[i]) != NULL) return 0;
    return p->columns > 1;
}

typedef struct before { float *w, *m, *v, *e; } before; /* with feedback w + e is what the optimizer updates, to w1 + e1 */

/* The weight and, with feedback, what it lies behind the updated one by. */
static void check_weight(const het_parameter_info *p, int64_t i, double old, double updated, double feedback, double w1, const float *e1, double near)
{
    const double w = updated + feedback * (updated - old);
    if (fabs(w - w1) > near * (1 + feedback)) fail_msg("%s[%d]: w %.9g, not %.9g", p->name, (int)i, w1, w);
    if (e1 != NULL && fabs((double)e1[i] - (updated - w)) > near * (1 + feedback))
        fail_msg("%s[%d]: e %.9g, not %.9g", p->name, (int)i, (double)e1[i], updated - w);
}

static void check_matrix(const het_desc *d, const het_parameter_info *p, const before *b, const float *g, const float *w1, const float *m1,
                         const float *e1, double clip, double lr)
{
    const double beta = (double)0.9f, size = 0.2 * sqrt((double)(p->rows > p->columns ? p->rows : p->columns));
    double *x = support_alloc((size_t)p->count, sizeof *x);
    int64_t i;
    for (i = 0; i < p->count; i++) {
        const double gradient = clip * (double)g[i], m = beta * (double)b->m[i] + (1 - beta) * gradient;
        if (fabs(m - (double)m1[i]) > 1e-6 * (1e-3 + fabs(m))) fail_msg("%s[%d]: m %.9g, not %.9g", p->name, (int)i, (double)m1[i], m);
        x[i] = beta * m + (1 - beta) * gradient;
    }
    orthogonalise(x, p->rows, p->columns);
    for (i = 0; i < p->count; i++) {
        const double old = (double)b->w[i] + (b->e != NULL ? (double)b->e[i] : 0);
        const double updated = old * (1 - lr * (double)d->optimizer.weight_decay) - lr * size * x[i];
        check_weight(p, i, old, updated, (double)d->optimizer.feedback, (double)w1[i], e1, 1e-6 + 2e-3 * lr * size);
    }
    free(x);
}

static void check_vector(const het_parameter_info *p, const before *b, const float *g, const float *w1, const float *e1, double clip, double lr,
                         int step, double feedback)
{
    int64_t i;
    for (i = 0; i < p->count; i++) {
        const double b1 = (double)0.9f, b2 = (double)0.95f, gradient = clip * (double)g[i];
        const double m = b1 * (double)b->m[i] + (1 - b1) * gradient, v = b2 * (double)b->v[i] + (1 - b2) * gradient * gradient;
        const double old = (double)b->w[i] + (b->e != NULL ? (double)b->e[i] : 0);
        double w = old * (1 - (p->decay ? lr * (double)0.1f : 0));
        w -= lr * (m / (1 - pow(b1, step + 1))) / (sqrt(v / (1 - pow(b2, step + 1))) + 1e-8);
        check_weight(p, i, old, w, feedback, (double)w1[i], e1, 1e-6 + 1e-3 * lr);
    }
}

static void steps_match_double(het_family family, float feedback)
{
    het_model_desc model = support_model(family);
    support_run run;
    het_ctx *ctx;
    int step, hidden = 0, wide = 0, tall = 0;
    start(&run, &model);
    run.desc.optimizer.matrix_rate = 2.5e-2f;
    run.desc.optimizer.weight_decay = 0.1f;
    run.desc.optimizer.momentum = 0.9f;
    run.desc.optimizer.clip = 0.5f;
    run.desc.optimizer.feedback = feedback;
    ctx = support_create(&run.desc);
    for (step = 0; step < STEPS; step++) {
        const int64_t count = het_parameter_count(ctx);
        before *all = support_alloc((size_t)count, sizeof *all);
        het_step_info info;
        double clip, lr;
        int64_t p;
        for (p = 0; p < count; p++) {
            all[p].w = array_of(ctx, HET_WEIGHT, p);
            all[p].m = array_of(ctx, HET_MOMENT0, p);
            all[p].v = array_of(ctx, HET_MOMENT1, p);
            all[p].e = feedback > 0 ? array_of(ctx, HET_MOMENT2, p) : NULL;
        }
        info = support_step(ctx, &run.data, step, SUPPORT_TOGETHER);
        clip = info.gradient_norm > 0.5 ? 0.5 / info.gradient_norm : 1;
        lr = het_learning_rate(&run.desc.optimizer, step);
        for (p = 0; p < count; p++) {
            float *w1 = array_of(ctx, HET_WEIGHT, p), *m1 = array_of(ctx, HET_MOMENT0, p), *g = array_of(ctx, HET_GRADIENT, p);
            float *e1 = feedback > 0 ? array_of(ctx, HET_MOMENT2, p) : NULL;
            het_parameter_info is;
            EXPECT_OK(het_parameter_get_info(ctx, p, &is));
            if (is_hidden(&is)) check_matrix(&run.desc, &is, &all[p], g, w1, m1, e1, clip, lr * 2.5);
            else check_vector(&is, &all[p], g, w1, e1, clip, lr, step, (double)feedback);
            hidden += is_hidden(&is);
            tall += is_hidden(&is) && is.rows > is.columns;
            wide += is_hidden(&is) && is.rows < is.columns;
            free(w1);
            free(m1);
            free(g);
            free(all[p].w);
            free(all[p].m);
            free(all[p].v);
            free(all[p].e);
            free(e1);
        }
        free(all);
    }
    assert_true(hidden >= STEPS * 12 && tall > 0 && wide > 0);
    het_destroy(ctx);
    support_run_end(&run);
}

static void gpt2_matches_double(void **state) { (void)state; steps_match_double(HET_GPT2, 0.0f); }
static void llama_matches_double(void **state) { (void)state; steps_match_double(HET_LLAMA, 0.0f); }
static void feedback_matches_double(void **state) { (void)state; steps_match_double(HET_LLAMA, 1.0f), steps_match_double(HET_GPT2, 0.5f); }

/* ---- bits ---- */

static void one_hash(void **state)
{
    static const char *const plans[] = { "dp", "pp", "dp2xpp2" };
    static const char *const groupings[] = { SUPPORT_TOGETHER, SUPPORT_APART, "54|3|210" };
    het_model_desc model = support_model(HET_LLAMA);
    support_result base, other;
    support_run run;
    het_isa isa[5];
    uint64_t seed = 5;
    int i, ranks, isas = support_isas(isa);
    (void)state;
    start(&run, &model);
    base = support_train(&run, SUPPORT_TOGETHER);
    run.desc.optimizer.iface = NULL;
    other = support_train(&run, SUPPORT_TOGETHER);
    assert_true(base.weights != other.weights); /* it is another optimizer */
    run.desc.optimizer.iface = het_muon();
    support_run_ranks(&run, 1);
    for (i = 0; i < 3; i++) {
        run.device[0].threads = 1 + i;
        support_train_same(&base, &run, groupings[i], "threads");
    }
    for (i = 0; i < isas; i++) {
        run.device[0].isa = isa[i];
        support_train_same(&base, &run, SUPPORT_TOGETHER, support_isa_name(isa[i]));
    }
    run.device[0].isa = HET_ISA_AUTO;
    run.device[0].iface = het_reference_device();
    support_train_same(&base, &run, SUPPORT_TOGETHER, "reference device");
    memset(run.device, 0, sizeof run.device);
    for (i = 0; i < 3; i++) {
        for (ranks = i < 2 ? 2 : 4; ranks <= 4; ranks++) {
            support_run_ranks(&run, ranks);
            support_run_plan(&run, plans[i], i == 1 ? "1f1b" : NULL, 1);
            support_run_mixed(&run, ranks % 2, &seed);
            support_train_same(&base, &run, SUPPORT_APART, plans[i]);
            memset(run.device, 0, sizeof run.device);
        }
    }
    support_run_ranks(&run, 3);
    support_run_plan(&run, uneven, NULL, 1);
    support_train_same(&base, &run, groupings[2], "uneven state shares");
    run.desc.layout.shard = HET_SHARD_GRADIENTS;
    support_train_same(&base, &run, groupings[2], "gradients in parts");
    support_run_end(&run);
}

/* Feedback around Muon, AdamW and an optimizer of one's own: pipelines, uneven shares, sums and weights in parts, a keeper, a device whose memory
   the host does not see, the reference device, a plan that changes between two steps. */
static het_result own_update(const het_optimizer_call *call) { return het_adamw()->update(call); }
static const het_optimizer_iface own = { "own", 2, { "m", "v", NULL, NULL }, 0, own_update, NULL, NULL };

static void one_hash_with_feedback(void **state)
{
    static const char keeper[] = "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,6]}]},{\"stages\":[{\"rank\":1,\"units\":[0,6]}]}],"
                                 "\"keepers\":[2],\"state_shares\":[1,0,2]}";
    static const struct { const char *plan; int64_t ranks; het_shard shard; } layouts[] = {
        { "pp", 2, HET_SHARD_STATE }, { "dp2xpp2", 4, HET_SHARD_STATE }, { uneven, 3, HET_SHARD_STATE }, { uneven, 3, HET_SHARD_GRADIENTS },
        { uneven, 3, HET_SHARD_WEIGHTS }, { keeper, 3, HET_SHARD_STATE },
    };
    const het_optimizer_iface *const optimizers[] = { het_muon(), het_adamw(), &own };
    het_model_desc model = support_model(HET_LLAMA);
    support_result base[3], other;
    uint64_t seed = 7, straight;
    int o, i, step;
    (void)state;
    for (o = 0; o < 3; o++) {
        support_run run;
        het_replan_desc to;
        het_ctx *ctx;
        start(&run, &model);
        run.desc.optimizer.iface = optimizers[o];
        other = support_train(&run, SUPPORT_TOGETHER);
        run.desc.optimizer.feedback = o == 0 ? 1.0f : 0.0f;
        run.desc.optimizer.feedback_change = 0.5f;
        base[o] = support_train(&run, SUPPORT_TOGETHER);
        assert_true(base[o].weights != other.weights);
        support_run_ranks(&run, 1);
        run.device[0].iface = het_reference_device();
        support_train_same(&base[o], &run, SUPPORT_TOGETHER, "reference device");
        for (i = 0; i < (int)(sizeof layouts / sizeof layouts[0]); i++) {
            memset(run.device, 0, sizeof run.device);
            support_run_ranks(&run, layouts[i].ranks);
            support_run_plan(&run, layouts[i].plan, NULL, 1);
            support_run_mixed(&run, i % 2, &seed);
            run.desc.layout.shard = layouts[i].shard;
            support_train_same(&base[o], &run, SUPPORT_APART, layouts[i].plan);
        }
        memset(run.device, 0, sizeof run.device);
        run.desc.layout.shard = HET_SHARD_STATE;
        support_run_plan(&run, uneven, NULL, 1);
        ctx = support_create(&run.desc);
        for (step = 0; step < STEPS - 1; step++) (void)support_step(ctx, &run.data, step, SUPPORT_TOGETHER);
        memset(&to, 0, sizeof to);
        het_plan_free(run.plan);
        to.plan = run.plan = support_plan("pp", NULL, 6, 3, 1);
        EXPECT_OK(het_replan(ctx, &to));
        (void)support_step(ctx, &run.data, step, SUPPORT_TOGETHER);
        straight = support_hash(ctx);
        assert_true(straight == base[o].weights);
        het_destroy(ctx);
        support_run_end(&run);
    }
    assert_true(base[1].weights == base[2].weights);
}

/* A matrix has one owner: with two ranks that share the state as 1 to 2, the state is on both, and every hidden matrix whole on one. */
static void memory_is_as_estimated(void **state)
{
    het_model_desc model = support_model(HET_GPT2);
    support_run run;
    int64_t r, owned[3] = { 0, 0, 0 };
    het_memory told[3], is;
    het_error error;
    het_ctx *ctx;
    (void)state;
    start(&run, &model);
    run.desc.optimizer.feedback = run.desc.optimizer.feedback_change = 1.0f;
    support_run_ranks(&run, 3);
    support_run_plan(&run, uneven, NULL, 1);
    for (r = 0; r < 3; r++) EXPECT_OK(het_memory_estimate(&run.desc, r, &told[r], &error));
    ctx = support_create(&run.desc);
    for (r = 0; r < 3; r++) {
        het_get_memory(ctx, r, &is);
        assert_memory_equal(&is, &told[r], sizeof is);
        owned[r] = (int64_t)is.optimizer;
    }
    assert_true(owned[1] == 0 && owned[0] > 0 && owned[2] > owned[0]);
    het_destroy(ctx);
    run.desc.limits.max_tokens = run.desc.limits.max_sequences = run.desc.limits.max_micro_batches = 1; /* little else needs scratch */
    run.desc.layout.plan = NULL;
    run.desc.layout.device_count = 1;
    EXPECT_OK(het_memory_estimate(&run.desc, 0, &is, &error));
    assert_true(is.workspace >= (size_t)(8 * model.mlp_width * model.width + 8 * model.width * model.width));
    support_run_end(&run);
}

/* Frozen weights have no state: where they are cut does not show in how that of the low-rank factors is divided, to a matrix. */
static void frozen_weights_divide_nothing(void **state)
{
    het_model_desc model = support_model(HET_LLAMA);
    support_run run;
    het_memory is[2];
    het_error error;
    int64_t r;
    (void)state;
    model.vocab = 500, model.lora_rank = 8;
    start(&run, &model);
    support_run_ranks(&run, 2);
    support_run_plan(&run, "dp", NULL, 1);
    for (r = 0; r < 2; r++) EXPECT_OK(het_memory_estimate(&run.desc, r, &is[r], &error));
    assert_true(is[0].optimizer > 0 && llabs((int64_t)is[0].optimizer - (int64_t)is[1].optimizer) <= 2 * 4 * 8 * model.width);
    support_run_end(&run);
}

/* ---- state ---- */

static void save(het_ctx *ctx, support_buffer *weights, support_buffer *state)
{
    het_writer to[2];
    support_buffer_start(weights);
    support_buffer_start(state);
    to[0] = support_writer(weights);
    to[1] = support_writer(state);
    EXPECT_OK(het_save_weights(ctx, &to[0]));
    EXPECT_OK(het_save_state(ctx, &to[1]));
}

static void resumes_on_another_layout(void **state)
{
    het_model_desc model = support_model(HET_QWEN3);
    support_run run;
    support_buffer weights, moments;
    het_reader from[2];
    uint64_t straight;
    het_ctx *ctx;
    int step;
    (void)state;
    start(&run, &model);
    run.desc.optimizer.feedback = run.desc.optimizer.feedback_change = 1.0f;
    ctx = support_create(&run.desc);
    for (step = 0; step < 2; step++) (void)support_step(ctx, &run.data, step, SUPPORT_TOGETHER);
    save(ctx, &weights, &moments);
    for (; step < 5; step++) (void)support_step(ctx, &run.data, step, SUPPORT_TOGETHER);
    straight = support_hash(ctx);
    het_destroy(ctx);
    support_run_ranks(&run, 3);
    support_run_plan(&run, uneven, NULL, 1);
    ctx = support_create(&run.desc);
    from[0] = support_reader(&weights);
    from[1] = support_reader(&moments);
    EXPECT_OK(het_load_weights(ctx, &from[0]));
    EXPECT_OK(het_load_state(ctx, &from[1]));
    for (step = 2; step < 5; step++) (void)support_step(ctx, &run.data, step, SUPPORT_APART);
    assert_true(support_hash(ctx) == straight);
    het_destroy(ctx);
    support_buffer_end(&weights);
    support_buffer_end(&moments);
    support_run_end(&run);
}

/* A step that is not accepted changes neither weights nor momentum. */
static het_result spoil(void *user, const het_hook_info *info)
{
    (void)user;
    if (info->step == 1 && info->unit == 2 && info->direction == HET_BACKWARD) info->stream[0][0] = INFINITY;
    return HET_OK;
}

static void bad_steps_change_nothing(void **state)
{
    het_model_desc model = support_model(HET_GPT2);
    support_run run;
    het_step_info info;
    het_ctx *a, *b;
    support_group group;
    int64_t p;
    (void)state;
    start(&run, &model);
    run.desc.optimizer.feedback = 1.0f;
    run.desc.guard.skip_bad_steps = HET_YES;
    run.desc.host.hook = spoil;
    a = support_create(&run.desc);
    b = support_create(&run.desc);
    (void)support_step(a, &run.data, 0, SUPPORT_TOGETHER);
    (void)support_step(b, &run.data, 0, SUPPORT_TOGETHER);
    support_group_start(&group, &run.data, 1, SUPPORT_TOGETHER);
    EXPECT_OK(het_step(a, group.batch, group.count, &info));
    assert_true(info.skipped);
    support_group_end(&group);
    support_same_state(a, b, 0, "a bad step");
    for (p = 0; p < het_parameter_count(a); p++) { /* with what feedback keeps */
        float *x = array_of(a, HET_MOMENT2, p), *y = array_of(b, HET_MOMENT2, p);
        het_parameter_info is;
        EXPECT_OK(het_parameter_get_info(a, p, &is));
        assert_memory_equal(x, y, (size_t)is.count * sizeof *x);
        free(x);
        free(y);
    }
    het_destroy(a);
    het_destroy(b);
    support_run_end(&run);
}

/* ---- what is refused ---- */

static int32_t no_feedback(void *self, const het_op *op) { return op->kind != HET_OP_FEEDBACK && het_cpu_device()->supports(self, op); }

static int32_t no_muon(void *self, const het_op *op)
{
    return op->kind != HET_OP_MUON_MOMENTUM && het_cpu_device()->supports(self, op);
}

static void refused(void **state)
{
    het_model_desc model = support_model(HET_GPT2);
    support_run run;
    het_ctx *ctx = NULL;
    het_error error;
    het_device_iface without = *het_cpu_device();
    het_optimizer_iface four = own;
    support_buffer weights, moments;
    het_reader from;
    (void)state;
    start(&run, &model);
    ctx = support_create(&run.desc);
    save(ctx, &weights, &moments);
    het_destroy(ctx);
    run.desc.optimizer.iface = het_adamw();
    ctx = support_create(&run.desc);
    from = support_reader(&moments);
    EXPECT_ERROR(het_load_state(ctx, &from), HET_ERR_INVALID, het_last_error(ctx), "optimizer|muon|adamw");
    het_destroy(ctx);
    run.desc.optimizer.iface = het_muon();
    without.supports = no_muon;
    without.name = "lame";
    support_run_ranks(&run, 1);
    run.device[0].iface = &without;
    ctx = NULL;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "Muon|lame");
    run.device[0].iface = NULL;
    run.desc.optimizer.momentum = 1.0f;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "optimizer.momentum|1");
    run.desc.optimizer.momentum = 0.0f;
    run.desc.optimizer.feedback = -1.0f;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "optimizer.feedback|-1");
    run.desc.optimizer.feedback = 1.0f;
    four.slots = 4;
    run.desc.optimizer.iface = &four;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "slots and feedback's|5");
    run.desc.optimizer.iface = het_muon();
    without.supports = no_feedback;
    run.device[0].iface = &without;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "optimizer.feedback|lame has no `feedback`");
    run.device[0].iface = NULL;
    ctx = support_create(&run.desc);
    from = support_reader(&moments);
    EXPECT_ERROR(het_load_state(ctx, &from), HET_ERR_INVALID, het_last_error(ctx), "optimizer|muon|with feedback");
    het_destroy(ctx);
    support_buffer_end(&weights);
    support_buffer_end(&moments);
    support_run_end(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_matches_double), cmocka_unit_test(llama_matches_double), cmocka_unit_test(feedback_matches_double),
        cmocka_unit_test(one_hash), cmocka_unit_test(one_hash_with_feedback),
        cmocka_unit_test(memory_is_as_estimated), cmocka_unit_test(frozen_weights_divide_nothing),
        cmocka_unit_test(resumes_on_another_layout), cmocka_unit_test(bad_steps_change_nothing),
        cmocka_unit_test(refused)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
