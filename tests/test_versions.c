/* Several updates of the weights in a step: lists, what versions they use, bits in every layout, and against a loop of het_gradients. */
#include "support.h"

#include "hetrain_files.h"
#include "hetrain_plan.h"

#include <time.h>

#define STEPS 3

typedef support_layout layout;

static void run_start(support_run *run, const layout *l, const het_model_desc *model, int64_t updates, int64_t staleness)
{
    support_run_start(run, model, STEPS, "17|5,0,9|48|30,2");
    run->desc.optimizer.clip = -1.0f;

    support_run_ranks(run, l->ranks);
    support_run_plan(run, l->plan, l->schedule, l->slices);
    run->plan->updates = updates;
    run->plan->staleness = staleness;
}

/* Versions by distance do not depend on the layout, but pipelines deal micro-batches out: `order` is that of one rank which has the same
   ones in each update as the layout has of 0|1|2|3. */
static void layouts_do_not_show(void **state)
{
    static const struct { layout l; const char *order; int64_t updates, staleness; } cases[] = {
        { { "pp", "1f1b", 2, 1 }, "0|1|2|3", 2, 1 }, { { "pp", "2bw", 3, 1 }, "0|1|2|3", 2, 0 }, { { "pp", "gpipe", 2, 1 }, "0|1|2|3", 2, 1 },
        { { "pp", "zb-h1", 3, 1 }, "0|1|2|3", 4, 3 }, { { "pp", "1f1b", 2, 2 }, "0|1|2|3", 2, 1 }, { { "pp", "interleaved", 2, 1 }, "0|1|2|3", 2, 1 },
        { { "pp", "zb-v", 2, 1 }, "0|1|2|3", 2, 1 }, { { "pp", "1f1b", 1, 1 }, "0|1|2|3", 4, 0 }, { { "dp", "1f1b", 2, 1 }, "0|2|1|3", 2, 0 },
        { { "dp", "1f1b", 2, 1 }, "0|2|1|3", 2, 1 }, { { "dp", "gpipe", 2, 1 }, "0|2|1|3", 2, 1 }, { { "dp2xpp2", "1f1b", 4, 1 }, "0|2|1|3", 2, 1 },
        { { "dp", "1f1b", 4, 1 }, "0|1|2|3", 1, 0 },
        { { "pp", "2bw", 1, 1 }, "0|1|2|3", 4, 0 }, { { "dp", "hogbatch", 2, 1 }, "0|2|1|3", 4, 1 }, { { "dp", "hogbatch", 2, 1 }, "0|1|2|3", 2, 1 },
        { { "dp", "hogbatch", 4, 1 }, "0|1|2|3", 4, 3 }, { { "dp2xpp2", "hogbatch", 4, 1 }, "0|2|1|3", 4, 3 },
        { { "pp", "dualpipev", 2, 1 }, "0|1|2|3", 2, 1 }, { { "pp", "dualpipev", 2, 1 }, "0|1|2|3", 4, 3 },
        { { "pp", "dualpipev", 2, 1 }, "0|1|2|3", 4, 3 }, /* W of an update is not put into a pair */
    };
    static const het_family families[] = { HET_LLAMA, HET_GPT2 };
    size_t i, f;
    uint64_t seed = 3;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (f = 0; f < 2; f++) {
            const het_model_desc model = support_model(families[f]);
            const layout alone = { "pp", "1f1b", 1, 1 };
            support_run run, one;
            support_result base;
            char what[80];
            if (f == 1 && (strcmp(cases[i].l.schedule, "zb-v") == 0 || strcmp(cases[i].l.schedule, "dualpipev") == 0))
                continue; /* the tied matrix is on a rank twice: its updates would mix */
            snprintf(what, sizeof what, "%s %s of %d ranks, %d updates", cases[i].l.plan, cases[i].l.schedule, (int)cases[i].l.ranks,
                     (int)cases[i].updates);
            run_start(&one, &alone, &model, cases[i].updates, cases[i].staleness > 0 ? cases[i].staleness : cases[i].l.schedule[0] == '2');
            one.desc.optimizer.feedback = one.desc.optimizer.feedback_change = (float)f;
            base = support_train(&one, cases[i].order);
            run_start(&run, &cases[i].l, &model, cases[i].updates, cases[i].staleness);
            run.desc.optimizer.feedback = run.desc.optimizer.feedback_change = (float)f;
            support_draw_recompute(run.plan, &seed);
            run.desc.layout.backward = (het_backward)(HET_BACKWARD_FUSED + i % 3); /* what is deferred still comes before what uses it */
            support_train_same(&base, &run, "0|1|2|3", what);
            support_run_end(&run);
            support_run_end(&one);
        }
}

/* Keepers, a device whose memory the host does not see, PUT and TAKE: the same bits. */
static void parameter_servers(void **state)
{
    static const char keeper[] = "{\"schedule\": \"1f1b\", \"pipelines\": [{\"stages\": [{\"rank\": 0, \"units\": [0, 6]}]}, {\"stages\": "
                                 "[{\"rank\": 1, \"units\": [0, 6]}]}], \"keepers\": [2], \"state_shares\": [%s], \"updates\": 2, \"staleness\": 1}";
    static const char *const shares[] = { "0, 0, 1", "1, 2, 3", "1, 0, 1", "0, 1, 2" };
    const het_model_desc model = support_model(HET_LLAMA);
    const layout alone = { "pp", "gpipe", 1, 1 };
    support_run one;
    support_result base;
    uint64_t seed = 5;
    int i, far;
    (void)state;
    run_start(&one, &alone, &model, 2, 1);
    one.desc.optimizer.feedback = 1.0f;
    base = support_train(&one, "0|2|1|3");
    for (i = 0; i < 4; i++)
        for (far = -1; far < 3; far++) {
            support_run run;
            char text[400];
            const layout l = { text, NULL, 3, 1 };
            snprintf(text, sizeof text, keeper, shares[i]);
            run_start(&run, &l, &model, 2, 1);
            run.desc.optimizer.feedback = 1.0f;
            support_run_mixed(&run, far, &seed);
            support_train_same(&base, &run, "0|1|2|3", shares[i]);
            support_run_end(&run);
        }
    support_run_end(&one);
}

/* An owner updates between two units of a stage that recomputes as a whole: what Muon computes in is not where the stage's activations lie. */
static void updates_between_units(void **state)
{
    const layout alone = { "pp", "gpipe", 1, 1 }, two = { "dp", "hogbatch", 2, 1 };
    const het_model_desc model = support_model(HET_LLAMA);
    support_run one;
    support_result base;
    int i;
    (void)state;
    run_start(&one, &alone, &model, 4, 3);
    one.desc.optimizer.iface = het_muon();
    base = support_train(&one, "0|2|1|3");
    for (i = 0; i < 8; i++) {
        support_run run;
        run_start(&run, &two, &model, 4, 3);
        run.desc.optimizer.iface = het_muon();
        run.device[1].speed = i % 2 ? 0.3 : 0.6; /* so that what it has summed comes when the other computes */
        run.plan->stage[0].recompute = run.plan->stage[1].recompute = HET_RECOMPUTE_STAGE;
        support_train_same(&base, &run, "0|1|2|3", "an update between two units");
        support_run_end(&run);
    }
    support_run_end(&one);
}

/* ---- against a loop of het_gradients: the definition ----
   Micro-batch by micro-batch on one rank, each parameter in the version that the list names for its stage. What is the engine's own: the grid of
   sums, and that terms are divided by the weights of the whole step. A device sees to that, and takes what het_gradients has summed as doubles:
   sums of several calls are exact, and so must be every bit that comes of them. */

#define MOST 8
typedef struct loop {
    het_device_iface device; /* a CPU that writes `inverse` and adds to `to` */
    het_ctx *ctx;
    het_description *description; /* of which parameter belongs to which unit */
    const het_batch *batch;
    int64_t batches, parameters, count[64], unit[64];
    int32_t decay[64], frozen[64], exponent[64], measured[64]; /* before the step, by it */
    float *weight[MOST + 1][64], *m[64], *v[64], *e[64], *last[64];
    double *sum[MOST][64], *to[64];
    int64_t most, late, gradients; /* of a step: by how many updates gradients joined late, of units and micro-batches */
    float inverse;
    int headroom; /* of exponents */
} loop;
static loop *looping;

static het_result loop_run(void *self, het_queue *queue, const het_op *op)
{
    if (op->kind == HET_OP_CROSS_ENTROPY && looping->inverse > 0.0f)
        memcpy((float *)(uintptr_t)&op->u.cross_entropy.scalars->inverse_weight, &looping->inverse, sizeof(float));
    if (op->kind == HET_OP_SUM_SQUARES && looping->inverse > 0.0f) {
        const het_sum_squares_args *a;
        int64_t p = 0, i;
        for (a = &op->u.sum_squares; a != NULL; a = a->next) {
            while (p < looping->parameters && looping->to[p] == NULL) p++; /* they come in the order of parameters */
            assert_true(p < looping->parameters && a->gradient->exact);
            assert_int_equal(a->count, looping->count[p]);
            for (i = 0; i < a->count; i++) looping->to[p][i] += ((const double *)a->gradient->sum)[i];
            looping->to[p] = NULL;
        }
    }
    return het_cpu_device()->run(self, queue, op);
}

static int log2_up(int64_t n)
{
    int k = 0;
    while ((INT64_C(1) << k) < n) k++;
    return k;
}

static int64_t granules_of(const het_batch *batch, int64_t count)
{
    int64_t all = 0, i;
    for (i = 0; i < count; i++) all += batch[i].granules;
    return all;
}

static double weight_of(const het_batch *batch)
{
    double all = 0.0;
    int64_t i;
    for (i = 0; i < batch->tokens; i++) all += batch->target[i] < 0 ? 0.0 : (double)batch->weight[i];
    return all;
}

/* 1 - beta^t, by squaring */
static float correction(float beta, int64_t t)
{
    double power = 1.0, base = (double)beta;
    for (; t > 0; t >>= 1, base *= base)
        if (t & 1) power *= base;
    return (float)(1.0 - power);
}

/* The rate of update t of all, counted from 1: that of a run whose steps are updates. */
static float rate_of(const het_optimizer_desc *optimizer, int64_t t, int64_t updates)
{
    het_optimizer_desc o = *optimizer;
    o.warmup_steps *= updates;
    o.total_steps *= updates;
    return (float)het_learning_rate(&o, t - 1);
}

/* AdamW: version newest + 1 of a parameter, from its gradient, update t of all, counted from 1. With feedback the weights lie e behind those that
   are updated: the update before times `feedback`, and what it was more than the one before it times `feedback_change`. */
static void loop_adamw(loop *l, int64_t p, int64_t newest, int64_t gear, int64_t t, double weight, double all)
{
    const het_optimizer_desc *o = &het_get_desc(l->ctx)->optimizer;
    const float rate = rate_of(o, t, gear), share = (float)(all / weight);
    const float shrink = l->decay[p] && o->weight_decay > 0.0f ? rate * o->weight_decay : 0.0f;
    const float c1 = correction(o->beta1, t), c2 = correction(o->beta2, t);
    const int feeds = o->feedback > 0.0f || o->feedback_change > 0.0f;
    int64_t i;
    if (l->frozen[p]) memcpy(l->weight[newest + 1][p], l->weight[newest][p], (size_t)l->count[p] * sizeof(float));
    for (i = 0; i < l->count[p] && !l->frozen[p]; i++) {
        const float g = (float)l->sum[newest][p][i] * share;
        const float own = feeds ? l->weight[newest][p][i] + l->e[p][i] : l->weight[newest][p][i];
        float w = fmaf(-shrink, own, own), update;
        l->m[p][i] = fmaf(o->beta1, l->m[p][i], (1.0f - o->beta1) * g);
        l->v[p][i] = fmaf(o->beta2, l->v[p][i], (1.0f - o->beta2) * (g * g));
        w = fmaf(-rate, (l->m[p][i] / c1) / (sqrtf(l->v[p][i] / c2) + o->epsilon), w);
        l->weight[newest + 1][p][i] = w;
        if (!feeds) continue;
        update = own - w;
        l->weight[newest + 1][p][i] = fmaf(-o->feedback_change, update - l->last[p][i], fmaf(-o->feedback, update, w));
        l->e[p][i] = w - l->weight[newest + 1][p][i];
        l->last[p][i] = update;
    }
}

/* Adds the gradients of micro-batch m: each parameter's in its version, to the update that they join. */
static void loop_gradients(loop *l, int64_t m, int64_t step, int32_t (*version)[64], int32_t (*joins)[64])
{
    const int more = l->headroom + log2_up(granules_of(l->batch, l->batches)) - log2_up(l->batch[m].granules);
    int32_t exponent[64], largest = HETRAIN_NO_EXPONENT;
    het_step_info info;
    int64_t p;
    for (p = 0; p < l->parameters; p++)
        if (l->exponent[p] > largest) largest = l->exponent[p];
    for (p = 0; p < l->parameters; p++) {
        exponent[p] = l->exponent[p] != HETRAIN_NO_EXPONENT ? l->exponent[p] : l->headroom > 0 ? largest : l->measured[p]; /* no gradient yet */
        if (l->headroom > 0 && exponent[p] < largest - 24) exponent[p] = largest - 24; /* rounding, perhaps */
        if (exponent[p] != HETRAIN_NO_EXPONENT) exponent[p] += more;
        l->to[p] = l->frozen[p] ? NULL : l->sum[joins[m][l->unit[p]]][p];
        EXPECT_OK(het_parameter_write(l->ctx, p, HET_WEIGHT, l->weight[version[m][l->unit[p]]][p]));
    }
    EXPECT_OK(het_restore_begin(l->ctx, HET_STATE_INCOMPLETE));
    EXPECT_OK(het_restore_end(l->ctx, HET_STATE_INCOMPLETE, step, exponent, NULL));
    EXPECT_OK(het_gradients(l->ctx, l->batch + m, 1, &info));
    for (p = 0; p < l->parameters; p++) assert_null(l->to[p]);
}

/* One step as the lists say: every micro-batch as soon as its versions are there, every update as soon as its gradients are. */
static void loop_step(loop *l, const het_plan *plan, const het_schedule *lists, int64_t step)
{
    int32_t version[SUPPORT_MAX_BLOCKS][64], joins[SUPPORT_MAX_BLOCKS][64], done[SUPPORT_MAX_BLOCKS] = { 0 };
    int64_t first[SUPPORT_MAX_RANKS] = { 0 }, newest[64] = { 0 }, i, u, p, m, left = l->batches, before;
    double weight = 0.0;
    for (p = 1; p < plan->pipelines; p++) first[p] = first[p - 1] + lists->micro_batches[p - 1];
    for (i = 0; i < lists->start[lists->ranks]; i++) {
        const het_action *a = &lists->action[i];
        const het_stage *stage = &plan->stage[plan->first_stage[a->pipeline] + a->stage];
        for (u = stage->unit_begin; u < stage->unit_end; u++) { /* I has the gradients of the head, W all others */
            if (a->kind == HET_ACTION_F) version[first[a->pipeline] + a->micro_batch][u] = a->version;
            else if (a->kind == HET_ACTION_B || a->kind == (u == plan->units - 1 ? HET_ACTION_I : HET_ACTION_W))
                joins[first[a->pipeline] + a->micro_batch][u] = a->version;
        }
    }
    for (m = 0; m < l->batches; m++) weight += weight_of(&l->batch[m]);
    l->most = l->late = l->gradients = 0;
    l->inverse = (float)(1.0 / weight);
    l->headroom = 0;
    for (i = 0; i < plan->stages; i++)
        if (plan->stage[i].updates != 1) l->headroom = 10; /* there are several updates */
    for (u = 0; u < MOST; u++)
        for (p = 0; p < l->parameters; p++) memset(l->sum[u][p], 0, (size_t)l->count[p] * sizeof(double));
    while (left > 0) {
        before = left;
        for (m = 0; m < l->batches; m++) {
            int ready = !done[m];
            for (p = 0; p < l->parameters; p++) ready = ready && version[m][l->unit[p]] <= newest[p];
            if (!ready) continue;
            loop_gradients(l, m, step, version, joins);
            done[m] = 1;
            left--;
        }
        for (p = 0; p < l->parameters; p++) {
            int64_t gear = 0; /* updates that a micro-batch joins */
            for (m = 0; m < l->batches; m++)
                if (joins[m][l->unit[p]] >= gear) gear = joins[m][l->unit[p]] + 1;
            for (; newest[p] < gear; newest[p]++) {
                double of = 0.0;
                int all = 1;
                for (m = 0; m < l->batches; m++) {
                    const int mine = joins[m][l->unit[p]] == newest[p];
                    all = all && (!mine || done[m]);
                    of += mine ? weight_of(&l->batch[m]) : 0.0;
                }
                if (!all) break;
                for (m = 0; m < l->batches && (p == 0 || l->unit[p] != l->unit[p - 1]); m++) {
                    const int64_t by = newest[p] - version[m][l->unit[p]];
                    if (joins[m][l->unit[p]] != newest[p]) continue;
                    if (by > l->most) l->most = by;
                    l->late += by;
                    l->gradients++;
                }
                if (of > 0.0) loop_adamw(l, p, newest[p], gear, step * gear + newest[p] + 1, of, weight);
                else memcpy(l->weight[newest[p] + 1][p], l->weight[newest[p]][p], (size_t)l->count[p] * sizeof(float));
            }
        }
        assert_true(left < before);
    }
    for (p = 0; p < l->parameters; p++) memcpy(l->weight[0][p], l->weight[newest[p]][p], (size_t)l->count[p] * sizeof(float));
}

/* The exponents of the first step of all, which measures them at the first weights. */
static void loop_measure(loop *l)
{
    het_parameter_info info;
    int64_t p;
    l->inverse = 0.0f;
    EXPECT_OK(het_step(l->ctx, l->batch, l->batches, NULL));
    for (p = 0; p < l->parameters; p++) {
        EXPECT_OK(het_parameter_get_info(l->ctx, p, &info));
        l->exponent[p] = info.exponent;
    }
}

static void loop_start(loop *l, const support_run *run)
{
    het_desc plain = run->desc;
    het_device_desc device = run->device[0];
    het_error error;
    int64_t p, i, k;
    memset(l, 0, sizeof *l);
    l->device = *het_cpu_device();
    l->device.run = loop_run;
    l->device.supports = support_only_adds;
    device.iface = &l->device;
    plain.layout.plan = NULL;
    plain.layout.schedule = NULL;
    plain.layout.device_count = 1;
    plain.layout.devices = &device;
    looping = l;
    l->ctx = support_create(&plain);
    l->parameters = het_parameter_count(l->ctx);
    for (p = 0; p < l->parameters; p++) {
        het_parameter_info info;
        EXPECT_OK(het_parameter_get_info(l->ctx, p, &info));
        l->count[p] = info.rows * info.columns;
        l->decay[p] = info.decay;
        l->frozen[p] = info.frozen;
        for (i = 0; i <= MOST; i++) l->weight[i][p] = support_alloc((size_t)l->count[p], sizeof(float));
        for (i = 0; i < MOST; i++) l->sum[i][p] = calloc((size_t)l->count[p], sizeof(double));
        l->m[p] = calloc((size_t)l->count[p], sizeof(float));
        l->v[p] = calloc((size_t)l->count[p], sizeof(float));
        l->e[p] = calloc((size_t)l->count[p], sizeof(float));
        l->last[p] = calloc((size_t)l->count[p], sizeof(float));
        EXPECT_OK(het_parameter_read(l->ctx, p, HET_WEIGHT, l->weight[0][p]));
    }
    EXPECT_ERROR(het_describe(&run->desc, &l->description, &error), HET_OK, error.text, "");
    for (i = 0; i < l->description->units; i++)
        for (k = 0; k < l->description->unit[i].info.parameters; k++) l->unit[l->description->unit[i].parameter[k]] = i;
}

/* How many floats of the context, weights and state, are not those of the loop. */
static int loop_differs(const loop *l, het_ctx *ctx)
{
    const het_optimizer_desc *o = &het_get_desc(ctx)->optimizer;
    int64_t p, i;
    int worst = 0, what;
    for (p = 0; p < l->parameters; p++) {
        const float *own[5];
        float *w = support_alloc((size_t)l->count[p], sizeof *w);
        own[0] = l->weight[0][p], own[1] = l->m[p], own[2] = l->v[p], own[3] = l->e[p], own[4] = l->last[p];
        for (what = 0; what < (l->frozen[p] ? 1 : 1 + het_optimizer_slots(o)); what++) {
            EXPECT_OK(het_parameter_read(ctx, p, what == 0 ? HET_WEIGHT : (het_array)(HET_MOMENT0 + what - 1), w));
            for (i = 0; i < l->count[p]; i++) worst += support_bits(w[i]) != support_bits(own[what][i]);
        }
        free(w);
    }
    return worst;
}

static void loop_end(loop *l)
{
    int64_t p, i;
    for (p = 0; p < l->parameters; p++) {
        for (i = 0; i <= MOST; i++) free(l->weight[i][p]);
        for (i = 0; i < MOST; i++) free(l->sum[i][p]);
        free(l->m[p]);
        free(l->v[p]);
        free(l->e[p]);
        free(l->last[p]);
    }
    het_description_free(l->description);
    het_destroy(l->ctx);
}

/* Steps of a run, whose micro-batches stand in `order`, beside the loop. */
static void follows_the_loop(support_run *run, const het_schedule *lists, const char *order, const char *what)
{
    het_ctx *ctx = support_create(&run->desc);
    int step, worst;
    double late;
    loop ref;
    loop_start(&ref, run);
    for (step = 0; step < STEPS; step++) {
        support_group group;
        het_parameter_info info;
        int64_t p;
        support_group_start(&group, &run->data, step, order);
        ref.batch = group.batch;
        ref.batches = group.count;
        for (p = 0; p < ref.parameters; p++) {
            EXPECT_OK(het_parameter_get_info(ctx, p, &info));
            ref.exponent[p] = info.exponent;
        }
        if (step == 0) loop_measure(&ref);
        EXPECT_OK(het_step(ctx, group.batch, group.count, NULL));
        for (p = 0; p < ref.parameters; p++) {
            EXPECT_OK(het_parameter_get_info(ctx, p, &info));
            ref.measured[p] = info.exponent;
        }
        loop_step(&ref, run->plan, lists, step);
        assert_int_equal(het_schedule_late(run->plan, lists, &late), ref.most);
        assert_true(late == (double)ref.late / (double)ref.gradients);
        worst = loop_differs(&ref, ctx);
        if (worst > 0) print_error("%s, step %d: %d floats differ\n", what, step, worst);
        assert_int_equal(worst, 0);
        support_group_end(&group);
    }
    loop_end(&ref);
    het_destroy(ctx);
}

static het_schedule *lists_of(const het_plan *plan, int64_t micro_batches)
{
    het_schedule *schedule = NULL;
    het_error error;
    int64_t counts[SUPPORT_MAX_RANKS];
    het_plan_micro_batches(plan, micro_batches, counts);
    EXPECT_ERROR(het_schedule_make(plan, counts, NULL, &schedule, &error), HET_OK, error.text, "");
    return schedule;
}

/* Named lists of few and many updates that use older versions now and then, with gears and feedback, on up to six ranks, some of them without a
   micro-batch. */
static void random_lists(void **state)
{
    static const struct { const char *plan; int64_t ranks; } plans[] = {
        { "pp", 2 }, { "pp", 3 }, { "dp", 2 }, { "dp2xpp2", 4 }, { "pp:0-2|3-5", 2 }, { "dp", 1 }, { "dp", 5 }, { "dp3xpp2", 6 }
    };
    static const char *const names[] = { "1f1b", "gpipe", "zb-h1", "zb-h2", "greedy", "pipedream", "2bw", "hogbatch" };
    static const char *const orders[] = { "0|1|2|3|4|5", "5|41|2|03", "01|2|34|5", "3|2|1|0|54", "02|13|4|5" };
    const int first = support_environment("HETRAIN_TEST_FIRST_ROUND", 0), rounds = support_environment("HETRAIN_TEST_ROUNDS", 60);
    het_model_desc model = support_model(HET_LLAMA);
    int round;
    (void)state;
    /* and the one in which some factors' first gradient is a single token's, whose attention passes on nothing but rounding */
    for (round = first; round <= first + rounds; round++) {
        uint64_t seed = 77 + (uint64_t)(round < first + rounds ? round : 970);
        const int64_t which = support_below(&seed, sizeof plans / sizeof plans[0]);
        const layout l = { plans[which].plan, names[support_below(&seed, 8)], plans[which].ranks, 1 };
        const char *const order = orders[support_below(&seed, 5)];
        int64_t counts[SUPPORT_MAX_RANKS], batches = 1, i, k;
        support_run run;
        het_schedule *lists = NULL;
        het_plan *plan;
        het_error error;
        char what[120];
        for (i = 0; order[i] != 0; i++) batches += order[i] == '|';
        model.lora_rank = support_below(&seed, 4) == 0 ? 2 : 0; /* half of the factors have no gradient at first */
        model.local_loss = which != 4 && support_below(&seed, 3) == 0; /* units 0 to 5 are all there are without */
        support_run_start(&run, &model, STEPS, SUPPORT_SHORT);
        run.desc.optimizer.clip = -1.0f;
        run.desc.limits.max_micro_batches = batches;
        run.desc.layout.stall_deadline = 20;
        if (support_below(&seed, 2)) run.desc.optimizer.feedback = 1.0f;
        if (support_below(&seed, 3) == 0) run.desc.optimizer.feedback_change = 0.5f;
        support_run_ranks(&run, l.ranks);
        support_run_plan(&run, l.plan, l.schedule, 1);
        support_draw_recompute(run.plan, &seed);
        plan = run.plan;
        EXPECT_OK(het_plan_cuts(&run.desc, plan, &error));
        het_plan_micro_batches(plan, batches, counts);
        i = strcmp(l.schedule, "hogbatch") == 0 ? plan->pipelines : 1;
        plan->updates = i * (1 + support_below(&seed, counts[0]));
        if (plan->updates < 2) plan->updates = 2;
        for (k = 0; i == 1 && k < plan->first_stage[1]; k++) /* the same in each pipeline */
            if (support_below(&seed, 3) == 0) {
                const int32_t gear = (int32_t)(1 + support_below(&seed, plan->updates));
                for (i = 0; i < plan->pipelines; i++) plan->stage[plan->first_stage[i] + k].updates = gear;
                i = 1;
            }
        for (plan->staleness = support_below(&seed, plan->updates);
             het_schedule_make(plan, counts, NULL, &lists, &error) != HET_OK; plan->staleness++) assert_true(plan->staleness < plan->updates);
        plan->staleness = support_below(&seed, 2) ? plan->updates - 1 : 0;
        for (i = 0; i < lists->start[l.ranks]; i++) /* any that has been */
            if (lists->action[i].kind == HET_ACTION_F && support_below(&seed, 3) == 0)
                lists->action[i].version = (int32_t)support_below(&seed, lists->action[i].version + 1);
        run.desc.layout.schedule = lists;
        snprintf(what, sizeof what, "round %d: %s, %s on %d ranks, %d updates, %s", round, l.plan, l.schedule, (int)l.ranks, (int)plan->updates,
                 order);
        follows_the_loop(&run, lists, order, what);
        het_schedule_free(lists);
        support_run_end(&run);
    }
}

/* Pipelines that share ranks take turns in the updates of what they share; where a rank's order and another's wait for each other there are no
   lists, and nothing passes as made that cannot be run. */
static void pipelines_that_share_ranks(void **state)
{
    static const struct { const char *schedule, *pipelines; int64_t updates, counts[2]; const char *words; } cases[] = {
        { "pipedream", "[{\"rank\": 0, \"units\": [0, 6]}]}, {\"stages\": [{\"rank\": 0, \"units\": [0, 6]}]", 3, { 2, 4 }, NULL },
        { "2bw", "[{\"rank\": 0, \"units\": [0, 6]}]}, {\"stages\": [{\"rank\": 0, \"units\": [0, 2]}, {\"rank\": 1, \"units\": [2, 6]}]", 3,
          { 2, 4 }, NULL },
        { "zb-h1", "[{\"rank\": 1, \"units\": [0, 3]}, {\"rank\": 0, \"units\": [3, 6]}]}, {\"stages\": [{\"rank\": 0, \"units\": [0, 4]}, "
          "{\"rank\": 1, \"units\": [4, 6]}]", 2, { 3, 3 }, NULL },
        { "pipedream", "[{\"rank\": 0, \"units\": [0, 6]}]}, {\"stages\": [{\"rank\": 0, \"units\": [0, 6], \"updates\": 3}]", 6, { 2, 1 },
          "micro-batch 1 joins update 3 of 6, 2 late|before rank 0, stage 0, has made it" },
        { "pipedream", "[{\"rank\": 1, \"units\": [0, 2]}, {\"rank\": 2, \"units\": [2, 6]}]}, {\"stages\": [{\"rank\": 0, \"units\": [0, 2]}, "
          "{\"rank\": 1, \"units\": [2, 6]}]", 4, { 2, 5 }, "pipedream cannot update|deadlock: rank 0" },
    };
    const het_model_desc model = support_model(HET_LLAMA);
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        support_run run;
        het_schedule *lists = NULL;
        het_error error;
        snprintf(text, sizeof text, "{\"schedule\": \"%s\", \"pipelines\": [{\"stages\": %s}], \"updates\": %d, \"staleness\": %d}",
                 cases[i].schedule, cases[i].pipelines, (int)cases[i].updates, cases[i].schedule[0] == 'z' ? 1 : cases[i].updates == 6 ? 2 : 0);
        support_run_start(&run, &model, STEPS, SUPPORT_SHORT);
        run.desc.optimizer.clip = -1.0f;
        run.desc.limits.max_micro_batches = cases[i].counts[0] + cases[i].counts[1];
        support_run_ranks(&run, 3);
        support_run_plan(&run, text, NULL, 1);
        run.plan->share[0] = (double)cases[i].counts[0], run.plan->share[1] = (double)cases[i].counts[1];
        if (cases[i].words != NULL) {
            EXPECT_ERROR(het_schedule_make(run.plan, cases[i].counts, NULL, &lists, &error), HET_ERR_INVALID, error.text, cases[i].words);
        } else {
            lists = lists_of(run.plan, run.desc.limits.max_micro_batches);
            EXPECT_ERROR(het_schedule_check(run.plan, NULL, lists, NULL, &error), HET_OK, error.text, "");
            follows_the_loop(&run, lists, SUPPORT_APART, text);
        }
        het_schedule_free(lists);
        support_run_end(&run);
    }
}

/* xpipe with updates that no micro-batch joins: what an F has predicted is there before its backward pass. */
static void predictions_over_empty_updates(void **state)
{
    const layout l = { "pp", "xpipe", 2, 1 };
    const het_model_desc model = support_model(HET_LLAMA);
    support_run run;
    het_ctx *ctx;
    (void)state;
    run_start(&run, &l, &model, 4, 0);
    run.desc.limits.max_micro_batches = 2;
    ctx = support_create(&run.desc);
    (void)support_step(ctx, &run.data, 0, "01|23");
    (void)support_step(ctx, &run.data, 1, "01|23");
    EXPECT_OK(het_verify(ctx));
    het_destroy(ctx);
    support_run_end(&run);
}

/* W of a micro-batch may join another update than I of it, and an update may have no gradients. */
static void passes_that_join_apart(void **state)
{
    static const char *const lists[] = {
        "0F0,0F1,0I0,0I1/1,0W0/1,0W1/1", "0F0,0F1,0I0,0I1/1,0W0,0W1/1", "0F0,0F1,0I0,0I1,0W0/1,0W1/1", "0F0,0F1,0B0/1,0B1/1"
    };
    const het_model_desc model = support_model(HET_LLAMA);
    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        support_run run;
        het_schedule *schedule = NULL;
        het_error error;
        support_run_start(&run, &model, STEPS, SUPPORT_SHORT);
        run.desc.optimizer.clip = -1.0f;
        run.desc.limits.max_micro_batches = 2;
        run.desc.layout.stall_deadline = 5;
        support_run_ranks(&run, 1);
        support_run_plan(&run, "pp", NULL, 1);
        run.plan->updates = 2, run.plan->staleness = 1;
        EXPECT_ERROR(het_schedule_read(run.plan, lists[i], strlen(lists[i]), NULL, &schedule, &error), HET_OK, error.text, "");
        run.desc.layout.schedule = schedule;
        follows_the_loop(&run, schedule, "02|13", lists[i]);
        het_schedule_free(schedule);
        support_run_end(&run);
    }
}

/* Stages that update once a step and with every micro-batch, late by one, in two ranks as in one; gears of 1: a synchronous step. */
static void gears(void **state)
{
    static const char apart[] = "{\"pipelines\": [{\"stages\": [{\"rank\": 0, \"units\": [0, 3], \"updates\": 1}, "
                                "{\"rank\": 1, \"units\": [3, 6]}]}]}";
    static const char together[] = "{\"pipelines\": [{\"stages\": [{\"rank\": 0, \"units\": [0, 3], \"updates\": 1}, "
                                   "{\"rank\": 0, \"units\": [3, 6]}]}]}";
    const layout l = { apart, "1f1b", 2, 1 }, both = { together, "1f1b", 1, 1 };
    const layout once = { "pp:0-2|3-5", "1f1b", 2, 1 };
    const het_model_desc model = support_model(HET_LLAMA);
    support_run run, one;
    support_result base;
    het_schedule *lists;
    het_error error;
    het_ctx *ctx;
    (void)state;
    run_start(&run, &l, &model, 4, 1);
    lists = lists_of(run.plan, 4);
    follows_the_loop(&run, lists, "0|1|2|3", "gears");
    het_schedule_free(lists);
    run_start(&one, &both, &model, 4, 1);
    base = support_train(&one, "0|1|2|3");
    support_train_same(&base, &run, "0|1|2|3", "gears on two ranks");
    run.desc.optimizer.iface = one.desc.optimizer.iface = het_muon(); /* the weights that another stage lacks are not predicted */
    base = support_train(&one, "0|1|2|3");
    support_train_same(&base, &run, "0|1|2|3", "gears of Muon");
    support_run_end(&run);
    support_run_end(&one);
    run_start(&one, &once, &model, 1, 0);
    base = support_train(&one, "0|1|2|3");
    support_run_end(&one);
    run_start(&run, &once, &model, 2, 0);
    run.plan->stage[0].updates = run.plan->stage[1].updates = 1;
    support_train_same(&base, &run, "0|1|2|3", "gears of 1");
    run.plan->stage[1].updates = 3;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "stage 1|3 updates of a step's 2");
    support_run_end(&run);
}

/* xpipe in two stages, the second step, which has a state to predict from. Of micro-batches 0 and 1, which make version 1 of 2, everything is
   known; the first stage starts 2 before it is there, with w - rate m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + epsilon) of the state that there is,
   as if the same update came again: seen in the step's loss. */
static void a_prediction(void **state)
{
    const layout l = { "pp:0-2|3-5", "xpipe", 2, 1 };
    const het_model_desc model = support_model(HET_LLAMA);
    support_run run;
    support_group group;
    het_error error;
    het_ctx *ctx, *again;
    het_step_info info, other;
    double loss[2] = { 0.0, 0.0 };
    int32_t version[SUPPORT_MAX_BLOCKS][64];
    loop ref;
    int64_t p, i;
    int predicts, m, k;
    (void)state;
    run_start(&run, &l, &model, 2, 0);
    ctx = support_create(&run.desc);
    again = support_create(&run.desc);
    loop_start(&ref, &run);
    (void)support_step(ctx, &run.data, 0, "0|1|2|3");
    (void)support_step(again, &run.data, 0, "0|1|2|3");
    for (p = 0; p < ref.parameters; p++) { /* the first step's own predictions are nothing: the state is empty; its gradients mix, so take it over */
        const het_optimizer_desc *o = &het_get_desc(ctx)->optimizer;
        const float rate = rate_of(o, 2, 2), c1 = correction(o->beta1, 2), c2 = correction(o->beta2, 2);
        het_parameter_info parameter;
        EXPECT_OK(het_parameter_get_info(ctx, p, &parameter));
        ref.exponent[p] = parameter.exponent;
        for (k = 0; k < 3; k++)
            EXPECT_OK(het_parameter_read(ctx, p, k == 0 ? HET_WEIGHT : (het_array)(HET_MOMENT0 + k - 1),
                                         k == 0 ? ref.weight[0][p] : k == 1 ? ref.m[p] : ref.v[p]));
        for (i = 0; i < ref.count[p]; i++)
            ref.weight[2][p][i] = fmaf(-rate, (ref.m[p][i] / c1) / (sqrtf(ref.v[p][i] / c2) + o->epsilon), ref.weight[0][p][i]);
    }
    support_group_start(&group, &run.data, 1, "0|1|2|3");
    EXPECT_OK(het_step(ctx, group.batch, 4, &info));
    EXPECT_OK(het_step(again, group.batch, 4, &other));
    assert_true(info.loss == other.loss);
    support_same_state(ctx, again, 0, "xpipe, twice");
    ref.batch = group.batch;
    ref.batches = group.count;
    memset(version, 0, sizeof version);
    ref.inverse = (float)(1.0 / info.weight);
    ref.headroom = 10;
    for (m = 0; m < 2; m++) loop_gradients(&ref, m, 1, version, version);
    for (p = 0; p < ref.parameters; p++)
        loop_adamw(&ref, p, 0, 2, 3, weight_of(&group.batch[0]) + weight_of(&group.batch[1]), info.weight);
    for (predicts = 0; predicts < 2; predicts++)
        for (m = 0; m < 4; m++) {
            for (p = 0; p < ref.parameters; p++) {
                const int used = m == 2 && ref.unit[p] < 3 ? 2 * predicts : m > 1;
                EXPECT_OK(het_parameter_write(ref.ctx, p, HET_WEIGHT, ref.weight[used][p]));
            }
            EXPECT_OK(het_evaluate(ref.ctx, group.batch + m, 1, &other));
            loss[predicts] += other.loss * other.weight / info.weight;
        }
    assert_true(fabs(loss[1] - info.loss) < 1e-10 * info.loss);
    assert_true(fabs(loss[0] - info.loss) > 5e-6 * info.loss); /* it is seen */
    support_group_end(&group);
    loop_end(&ref);
    het_destroy(ctx);
    het_destroy(again);
    run.desc.optimizer.iface = het_muon();
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "rank 0 uses weights before they are made|muon predicts none");
    run.desc.optimizer.iface = NULL;
    run.desc.optimizer.feedback = 1.0f;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "rank 0 uses weights|adamw predicts none with feedback");
    support_run_end(&run);
}

/* ---- a context's life: fewer micro-batches, gradients, losses, other plans, files ---- */

static void the_rest_of_a_context(void **state)
{
    const layout pipe = { "pp", "2bw", 2, 1 }, alone = { "pp", "gpipe", 1, 1 };
    const het_model_desc model = support_model(HET_GPT2);
    support_run run, one;
    support_group group;
    het_ctx *ctx, *ref, *plain, *loaded;
    het_step_info info[2];
    het_memory memory, estimate;
    het_replan_desc to;
    het_error error;
    support_buffer file[2];
    int i;
    (void)state;
    run_start(&run, &pipe, &model, 2, 0);
    run_start(&one, &alone, &model, 2, 1);
    ctx = support_create(&run.desc);
    ref = support_create(&one.desc);
    for (i = 0; i < 2; i++) {
        het_get_memory(ctx, i, &memory);
        EXPECT_OK(het_memory_estimate(&run.desc, i, &estimate, &error));
        assert_memory_equal(&memory, &estimate, sizeof memory);
    }
    /* 3 of 4 micro-batches: the last update has one less; 1: the last has none, and changes nothing */
    (void)support_step(ctx, &run.data, 0, "0|1|2");
    (void)support_step(ref, &run.data, 0, "0|1|2");
    (void)support_step(ctx, &run.data, 1, "0");
    (void)support_step(ref, &run.data, 1, "0");
    support_same_state(ctx, ref, 0, "fewer micro-batches");
    /* gradients and losses are those of the weights as they are */
    one.desc.layout.plan = NULL;
    plain = support_create(&one.desc);
    for (i = 0; i < 2; i++) support_buffer_start(&file[i]);
    {
        het_writer writer = support_writer(&file[0]);
        het_reader reader;
        EXPECT_OK(het_save_weights(ctx, &writer));
        reader = support_reader(&file[0]);
        EXPECT_ERROR(het_load_weights(plain, &reader), HET_OK, het_last_error(plain), "");
        writer = support_writer(&file[1]);
        EXPECT_OK(het_save_state(ctx, &writer));
        loaded = support_create(&run.desc);
        reader = support_reader(&file[0]);
        EXPECT_OK(het_load_weights(loaded, &reader));
        reader = support_reader(&file[1]);
        EXPECT_OK(het_load_state(loaded, &reader));
        reader = support_reader(&file[1]);
        EXPECT_ERROR(het_load_state(plain, &reader), HET_ERR_INVALID, het_last_error(plain), "optimizer|2 updates a step|in the context");
    }
    support_group_start(&group, &run.data, 1, "0|1|2|3");
    EXPECT_OK(het_gradients(ctx, group.batch, 4, &info[0]));
    EXPECT_OK(het_gradients(plain, group.batch, 4, &info[1]));
    assert_true(info[0].loss == info[1].loss && info[0].gradient_norm == info[1].gradient_norm);
    EXPECT_OK(het_evaluate(ctx, group.batch, 4, &info[0]));
    EXPECT_OK(het_evaluate(plain, group.batch, 4, &info[1]));
    assert_true(info[0].loss == info[1].loss);
    support_group_end(&group);
    /* on, after a file; in another plan, and back */
    (void)support_step(ctx, &run.data, 2, "0|1|2|3");
    (void)support_step(ref, &run.data, 2, "0|1|2|3");
    (void)support_step(loaded, &run.data, 2, "0|1|2|3");
    support_same_state(ctx, ref, 0, "gradients between");
    support_same_state(ctx, loaded, 0, "files");
    memset(&to, 0, sizeof to);
    het_plan_free(run.plan);
    run.plan = support_plan("pp:0-1|2-5", "1f1b", 6, 2, 1);
    run.plan->updates = 2;
    run.plan->staleness = 1;
    to.plan = run.plan;
    EXPECT_OK(het_replan(ctx, &to));
    (void)support_step(ctx, &run.data, 0, "0|1|2|3");
    (void)support_step(ref, &run.data, 0, "0|1|2|3");
    support_same_state(ctx, ref, 0, "another plan");
    for (i = 0; i < 2; i++) support_buffer_end(&file[i]);
    het_destroy(ctx);
    het_destroy(ref);
    het_destroy(plain);
    het_destroy(loaded);
    support_run_end(&run);
    support_run_end(&one);
}

/* Lists of eight times as many updates are completed and simulated in about eight times as long, not 64 times, also where a stage has half of
   the updates. */
static void many_updates_take_no_square_of_time(void **state)
{
    static const char half[] = "{\"pipelines\": [{\"stages\": [{\"rank\": 0, \"units\": [0, 3], \"updates\": %d}, "
                               "{\"rank\": 0, \"units\": [3, 6]}]}], \"updates\": %d, \"staleness\": 2}";
    double seconds[2];
    int k;
    (void)state;
    for (k = 0; k < 2; k++) {
        const int updates = k == 0 ? 4000 : 32000;
        static const het_stage_cost nothing[2];
        het_costs costs = { 0 };
        het_plan *plan;
        het_schedule *compute, *full = NULL;
        het_simulation *simulation = NULL;
        het_error error;
        clock_t start;
        char text[200];
        snprintf(text, sizeof text, half, updates / 2, updates);
        plan = support_plan(text, "1f1b", 6, 1, 1);
        costs.stage = nothing;
        compute = lists_of(plan, updates);
        start = clock();
        EXPECT_ERROR(het_schedule_complete(plan, NULL, compute, NULL, &full, &error), HET_OK, error.text, "");
        EXPECT_ERROR(het_simulate(plan, full, &costs, HET_NO, NULL, &simulation, &error), HET_OK, error.text, "");
        seconds[k] = (double)(clock() - start) / CLOCKS_PER_SEC;
        het_simulation_free(simulation);
        het_schedule_free(compute);
        het_schedule_free(full);
        het_plan_free(plan);
    }
    if (seconds[1] > 24 * seconds[0] + 0.3) fail_msg("4000 updates take %.3f s, 32000 %.3f s", seconds[0], seconds[1]);
}

/* ---- what is refused ---- */

/* Needs of lists that nobody has proved: what is not followed may say anything. */
static void needs_of_unproved_lists(void **state)
{
    het_plan *plan = support_plan("{\"pipelines\": [{\"stages\": [{\"rank\": 0, \"units\": [0, 2]}]}], \"updates\": 2}", NULL, 2, 1, 1);
    const het_action actions[] = { { HET_ACTION_F, 0, 0, 0, 0, 0, 1 }, { HET_ACTION_B, 0, 0, 1 << 28, 0, 0, 0 },
                                   { HET_ACTION_GATHER, 0, 0, -1, 0, 0, 0 } };
    het_schedule *schedule;
    het_needs needs;
    het_error error;
    (void)state;
    EXPECT_OK(het_schedule_new(1, 1, 3, NULL, "test", &schedule, &error));
    memcpy(schedule->action, actions, sizeof actions);
    schedule->micro_batches[0] = 1;
    schedule->start[1] = 3;
    EXPECT_OK(het_schedule_needs(plan, schedule, 0, 1, 1, NULL, &needs, &error));
    assert_int_equal(needs.versions, 1);
    EXPECT_ERROR(het_schedule_needs(plan, schedule, 0, 1, 0, NULL, &needs, &error), HET_ERR_INVALID, error.text, "rank 0, action 1: no such");
    schedule->action[1] = schedule->action[2];
    EXPECT_ERROR(het_schedule_needs(plan, schedule, 0, 1, 0, NULL, &needs, &error), HET_ERR_INVALID, error.text, "rank 0, action 1: no such");
    het_schedule_free(schedule);
    het_plan_free(plan);
}

static void bad_lists(void **state)
{
    /* on one rank with two stages of one unit each, 2 micro-batches, 2 updates; NULL: fine */
    static const struct { const char *list, *words; } cases[] = {
        { "0F0,1F0,1B0,0B0,0F1/1,1F1/1,1B1/1,0B1/1", NULL },
        { "0F0,1F0,1B0,0B0,0F1,1F1,1B1/1,0B1/1", NULL },
        { "0F0,1F0,0F1/1,1B0,0B0,1F1,1B1/1,0B1/1", NULL }, /* it predicts */
        { "0F0,1F0,0F1/1,1F1/1,1B1/1,0B1/1,1B0,0B0", "1B1/1|must come after|GATHER1" },
        { "0F0,1F0,0F1,1F1,1B0,1B1/1,0B1/1,0B0", "0B0): must come before REDUCE0" },
        { "0F0,1F0,1B0,0B0,0F1/2,1F1,1B1/1,0B1/1", "0F1/2|no such version" },
        { "0F0,1F0,1B0,0B0,0F1/1,1F1/1,1B1,0B1", "1B1|used what this update" },
        /* complete */
        { "0F0,1F0,1B0,REDUCE1,STEP1,GATHER1,0B0,REDUCE0,STEP0,GATHER0,0F1/1,1F1/1,1B1/1,REDUCE1/1,STEP1/1,GATHER1/1,0B1/1,REDUCE0/1,STEP0/1,"
          "GATHER0/1,VERDICT", NULL },
        { "0F0,1F0,1B0,REDUCE1,STEP1,0B0,REDUCE0,STEP0,GATHER0,0F1/1,1F1,1B1/1,REDUCE1/1,STEP1/1,GATHER1/1,0B1/1,REDUCE0/1,STEP0/1,"
          "GATHER0/1,VERDICT", NULL },
        { "0F0,1F0,1B0,REDUCE1,STEP1,0B0,REDUCE0,STEP0,GATHER0,0F1/1,1F1,1B1/1,REDUCE1/1,STEP1/1,0B1/1,REDUCE0/1,STEP0/1,GATHER0/1,VERDICT",
          "GATHER1/1 is missing" },
        { "0F0,1F0,1B0,REDUCE1,STEP1,0B0,REDUCE0,STEP0,GATHER0,0F1/1,1F1,1B1/1,REDUCE1/1,GATHER1/1,0B1/1,REDUCE0/1,STEP0/1,GATHER0/1,VERDICT",
          "GATHER1/1|must come between its STEP" },
        { "0F0,1F0,1B0,STEP1,REDUCE1,GATHER1,0B0,REDUCE0,STEP0,GATHER0,0F1/1,1F1/1,1B1/1,REDUCE1/1,STEP1/1,GATHER1/1,0B1/1,REDUCE0/1,STEP0/1,"
          "GATHER0/1,VERDICT", "deadlock|STEP1) waits for REDUCE1" },
        { "0F0,1F0,1B0,REDUCE1,STEP1,GATHER1,0B0,REDUCE0,STEP0,GATHER0,0F1/1,1F1/1,1B1/1,REDUCE1/1,STEP1/1,GATHER1/1,0B1/1,REDUCE0/1,STEP0/1,"
          "GATHER0/1", "REDUCE1|`complete` is 0" },
        { "0F0,1F0,1B0,REDUCE1,STEP1,GATHER1,0B0,REDUCE0,STEP0,GATHER0,0F1/1,1F1/1,1B1/1,STEP1/1,GATHER1/1,0B1/1,REDUCE0/1,STEP0/1,GATHER0/1,"
          "VERDICT", "REDUCE1/1 is missing" },
        { "0F0,1F0,1B0,REDUCE1,STEP1,GATHER1,0B0,REDUCE0,0F1,1F1/1,1B1/1,REDUCE1/1,STEP1/1,GATHER1/1,0B1/1,STEP0,GATHER0,REDUCE0/1,STEP0/1,"
          "GATHER0/1,VERDICT", "0B1/1|must come after STEP0" },
        { "0F0,1F0,1B0,REDUCE1,STEP1,GATHER1,REDUCE0,0B0,STEP0,GATHER0,0F1/1,1F1/1,1B1/1,REDUCE1/1,STEP1/1,GATHER1/1,0B1/1,REDUCE0/1,STEP0/1,"
          "GATHER0/1,VERDICT", "REDUCE0|its gradients are not all there" },
        { "0F0,1F0,1B0,REDUCE1,STEP1,STEP1,GATHER1,0B0,REDUCE0,STEP0,GATHER0,0F1/1,1F1/1,1B1/1,REDUCE1/1,STEP1/1,GATHER1/1,0B1/1,REDUCE0/1,"
          "STEP0/1,GATHER0/1,VERDICT", "position 5 (STEP1): comes twice" },
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static const char text[] =
            "{\"pipelines\": [{\"stages\": [{\"rank\": 0, \"units\": [0, 1]}, {\"rank\": 0, \"units\": [1, 2]}]}], \"updates\": 2}";
        het_plan *plan = support_plan(text, NULL, 2, 1, 1);
        het_schedule *schedule, *complete = NULL;
        het_error error;
        het_result result;
        EXPECT_ERROR(het_schedule_read(plan, cases[i].list, strlen(cases[i].list), NULL, &schedule, &error), HET_OK, error.text, "");
        result = schedule->complete ? het_schedule_check(plan, NULL, schedule, NULL, &error)
                                    : het_schedule_complete(plan, NULL, schedule, NULL, &complete, &error);
        if (complete != NULL) EXPECT_ERROR(het_schedule_check(plan, NULL, complete, NULL, &error), HET_OK, error.text, "");
        if (cases[i].words == NULL) EXPECT_ERROR(result, HET_OK, error.text, "");
        else support_expect(result, HET_ERR_INVALID, error.text, cases[i].words, cases[i].list, __LINE__);
        het_schedule_free(schedule);
        het_schedule_free(complete);
        het_plan_free(plan);
    }
}

static void what_several_updates_refuse(void **state)
{
    const layout l = { "dp", "1f1b", 2, 1 }, gpipe = { "pp", "gpipe", 2, 1 };
    const het_model_desc model = support_model(HET_LLAMA);
    support_run run;
    het_ctx *ctx = NULL;
    het_error error;
    int64_t counts[2] = { 4, 0 };
    het_schedule *schedule = NULL;
    (void)state;
    run_start(&run, &l, &model, 2, 1);
    run.desc.optimizer.clip = 1.0f;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "2 updates|clip must be negative");
    run.desc.optimizer.clip = -1.0f;
    run.desc.guard.spike = 6.0;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "2 updates|spike");
    run.desc.guard.spike = 0.0;
    run.desc.reduce = HET_REDUCE_FAST;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "several updates a step|exact");
    run.desc.reduce = HET_REDUCE_EXACT;
    run.plan->updates = 3;
    snprintf(run.plan->schedule, sizeof run.plan->schedule, "hogbatch");
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "hogbatch: 2 pipelines cannot take turns in 3 updates");
    run.plan->updates = 2;
    run.desc.layout.shard = HET_SHARD_WEIGHTS;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "2 updates|only the optimizer's state");
    support_run_end(&run);
    run_start(&run, &gpipe, &model, 2, 0);
    EXPECT_ERROR(het_schedule_make(run.plan, counts, NULL, &schedule, &error), HET_ERR_INVALID, error.text,
                 "gpipe|micro-batch 2 joins update 1 of 2, 0 late|version 1");
    run.plan->staleness = -1;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "2 updates|-1 late");
    run.plan->updates = 1 << 20;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "1048576 updates");
    run.plan->updates = run.plan->staleness = 0;
    snprintf(run.plan->schedule, sizeof run.plan->schedule, "2bw");
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "2bw|`updates` is 1");
    support_run_end(&run);
    { /* two updates late where the plan allows one */
        static const char late[] = "0F0,0B0,0F1,0B1/1,0F2,0B2/2";
        het_plan *plan = support_plan("pp", NULL, 2, 1, 1);
        plan->updates = 3;
        plan->staleness = 1;
        EXPECT_ERROR(het_schedule_read(plan, late, strlen(late), NULL, &schedule, &error), HET_OK, error.text, "");
        EXPECT_ERROR(het_schedule_check(plan, NULL, schedule, NULL, &error), HET_ERR_INVALID, error.text,
                     "rank 0|micro-batch 2 joins update 2|version 0|staleness is 1");
        plan->staleness = 2;
        EXPECT_ERROR(het_schedule_check(plan, NULL, schedule, NULL, &error), HET_OK, error.text, "");
        het_schedule_free(schedule);
        schedule = NULL;
        het_plan_free(plan);
    }
    {
        const layout team = { "cp2", "1f1b", 2, 1 };
        run_start(&run, &team, &model, 2, 1);
        EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "rank 0 leads a team");
        support_run_end(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_do_not_show), cmocka_unit_test(parameter_servers), cmocka_unit_test(updates_between_units),
        cmocka_unit_test(random_lists), cmocka_unit_test(passes_that_join_apart),
        cmocka_unit_test(pipelines_that_share_ranks), cmocka_unit_test(predictions_over_empty_updates),
        cmocka_unit_test(a_prediction), cmocka_unit_test(gears), cmocka_unit_test(the_rest_of_a_context),
        cmocka_unit_test(bad_lists), cmocka_unit_test(many_updates_take_no_square_of_time), cmocka_unit_test(needs_of_unproved_lists),
        cmocka_unit_test(what_several_updates_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
