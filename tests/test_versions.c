/* Several updates of the weights in a step: lists, what versions they use, bits in every layout, and against a loop of het_gradients. */
#include "support.h"

#include "hetrain_files.h"
#include "hetrain_plan.h"

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
            if (f == 1 && strcmp(cases[i].l.schedule, "zb-v") == 0) continue; /* the tied matrix is on a rank twice: its updates would mix */
            snprintf(what, sizeof what, "%s %s of %d ranks, %d updates", cases[i].l.plan, cases[i].l.schedule, (int)cases[i].l.ranks,
                     (int)cases[i].updates);
            run_start(&one, &alone, &model, cases[i].updates, cases[i].staleness > 0 ? cases[i].staleness : cases[i].l.schedule[0] == '2');
            one.desc.optimizer.feedback = one.desc.optimizer.feedback_change = (float)f;
            base = support_train(&one, cases[i].order);
            run_start(&run, &cases[i].l, &model, cases[i].updates, cases[i].staleness);
            run.desc.optimizer.feedback = run.desc.optimizer.feedback_change = (float)f;
            support_draw_recompute(run.plan, &seed);
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

/* ---- against a loop of het_gradients: the definition ---- */

#define MOST 8
typedef struct loop { het_ctx *ctx; int64_t parameters, count[64]; float *weight[MOST + 1][64]; double *m[64], *v[64], *e[64], *last[64]; } loop;

/* AdamW in doubles: version newest + 1 of a parameter, by its gradient, update t of all, counted from 1. With feedback the weights lie e behind
   those that are updated: the update before times `feedback`, and what it was more than the one before it times `feedback_change`. */
static void loop_adamw(loop *l, int64_t p, const float *g, int newest, int64_t t)
{
    const het_optimizer_desc *o = &het_get_desc(l->ctx)->optimizer;
    const double b1 = (double)o->beta1, b2 = (double)o->beta2;
    double update, ahead;
    int64_t i;
    for (i = 0; i < l->count[p]; i++) {
        l->m[p][i] = b1 * l->m[p][i] + (1 - b1) * (double)g[i];
        l->v[p][i] = b2 * l->v[p][i] + (1 - b2) * (double)g[i] * (double)g[i];
        update = (double)o->learning_rate * (l->m[p][i] / (1 - pow(b1, (double)t))) /
                 (sqrt(l->v[p][i] / (1 - pow(b2, (double)t))) + (double)o->epsilon);
        ahead = (double)o->feedback * update + (double)o->feedback_change * (update - l->last[p][i]);
        l->weight[newest + 1][p][i] = (float)((double)l->weight[newest][p][i] - (update + ahead - l->e[p][i]));
        l->e[p][i] = ahead;
        l->last[p][i] = update;
    }
}

/* Gradients of `count` micro-batches at version `version`: version + 1 of the newest. */
static void loop_update(loop *l, const het_batch *batch, int64_t count, int version, int newest, int64_t t)
{
    het_step_info info;
    int64_t p;
    for (p = 0; p < l->parameters; p++) EXPECT_OK(het_parameter_write(l->ctx, p, HET_WEIGHT, l->weight[version][p]));
    EXPECT_OK(het_gradients(l->ctx, batch, count, &info));
    for (p = 0; p < l->parameters; p++) {
        float *g = support_alloc((size_t)l->count[p], sizeof *g);
        EXPECT_OK(het_parameter_read(l->ctx, p, HET_GRADIENT, g));
        loop_adamw(l, p, g, newest, t);
        free(g);
    }
}

static void loop_start(loop *l, const support_run *run)
{
    het_desc plain = run->desc;
    int64_t p, i;
    memset(l, 0, sizeof *l);
    plain.layout.plan = NULL;
    plain.layout.device_count = 0;
    plain.layout.devices = NULL;
    l->ctx = support_create(&plain);
    l->parameters = het_parameter_count(l->ctx);
    for (p = 0; p < l->parameters; p++) {
        het_parameter_info info;
        EXPECT_OK(het_parameter_get_info(l->ctx, p, &info));
        l->count[p] = info.rows * info.columns;
        for (i = 0; i <= MOST; i++) l->weight[i][p] = support_alloc((size_t)l->count[p], sizeof(float));
        l->m[p] = calloc((size_t)l->count[p], sizeof(double));
        l->v[p] = calloc((size_t)l->count[p], sizeof(double));
        l->e[p] = calloc((size_t)l->count[p], sizeof(double));
        l->last[p] = calloc((size_t)l->count[p], sizeof(double));
        EXPECT_OK(het_parameter_read(l->ctx, p, HET_WEIGHT, l->weight[0][p]));
    }
}

/* Ends a step of `updates`: how many weights of the context are not those of the loop. */
static int loop_differs(loop *l, het_ctx *ctx, int64_t updates)
{
    int64_t p, i;
    int worst = 0;
    for (p = 0; p < l->parameters; p++) {
        float *w = support_alloc((size_t)l->count[p], sizeof *w);
        EXPECT_OK(het_parameter_read(ctx, p, HET_WEIGHT, w));
        for (i = 0; i < l->count[p]; i++) {
            worst += fabs((double)w[i] - (double)l->weight[updates][p][i]) > 1e-6 * (1 + 2 * (double)het_get_desc(ctx)->optimizer.feedback);
            l->weight[0][p][i] = l->weight[updates][p][i];
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
        free(l->m[p]);
        free(l->v[p]);
        free(l->e[p]);
        free(l->last[p]);
    }
    het_destroy(l->ctx);
}

/* The simplest rule for a loop. A large epsilon: otherwise Adam divides by the root of what may be next to nothing. */
static void plain_adamw(support_run *run)
{
    run->desc.optimizer.schedule = HET_LR_CONSTANT;
    run->desc.optimizer.warmup_steps = 0;
    run->desc.optimizer.weight_decay = -1.0f;
    run->desc.optimizer.epsilon = 1e-3f;
}

/* Two steps of 4 micro-batches in 2 or 4 updates, each late by `late`, on one rank and in a pipeline; there with feedback. */
static void a_loop_of_gradients(void **state)
{
    int late, ranks;
    (void)state;
    for (late = 0; late < 4; late++)
        for (ranks = 1; ranks <= 2; ranks++) {
            const layout l = { "pp", late == 0 ? "1f1b" : "gpipe", late == 0 ? 1 : ranks, 1 };
            const het_model_desc model = support_model(HET_LLAMA);
            support_run run;
            support_group group;
            het_ctx *ctx;
            loop ref;
            int step, u, worst = 0;
            run_start(&run, &l, &model, 2, late);
            if (late > 1) run.plan->updates = 4, snprintf(run.plan->schedule, sizeof run.plan->schedule, "1f1b");
            plain_adamw(&run);
            run.desc.optimizer.feedback = ranks == 1 ? 0.0f : late == 0 ? 0.5f : (float)late;
            run.desc.optimizer.feedback_change = ranks == 1 || late == 2 ? 0.0f : 0.5f;
            ctx = support_create(&run.desc);
            loop_start(&ref, &run);
            for (step = 0; step < 2; step++) {
                const int updates = (int)run.plan->updates, each = 4 / updates;
                het_step_info info;
                support_group_start(&group, &run.data, step, "0|1|2|3");
                EXPECT_OK(het_step(ctx, group.batch, 4, &info));
                for (u = 0; u < updates; u++)
                    loop_update(&ref, group.batch + u * each, each, u > late ? u - late : 0, u, step * updates + u + 1);
                worst += loop_differs(&ref, ctx, updates);
                support_group_end(&group);
            }
            if (worst > 0) print_error("late by %d, %d ranks: %d weights differ\n", late, ranks, worst);
            assert_int_equal(worst, 0);
            loop_end(&ref);
            het_destroy(ctx);
            support_run_end(&run);
        }
}

/* Gears: the first stage updates once a step, the second with every micro-batch, late by one. */
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
    support_group group;
    support_result base;
    het_description *description;
    het_error error;
    het_step_info info;
    het_ctx *ctx;
    loop ref;
    float *sum[64] = { NULL };
    int first[64] = { 0 }, step, m, worst = 0;
    int64_t u, k, p, i;
    (void)state;
    run_start(&run, &l, &model, 4, 1);
    plain_adamw(&run);
    ctx = support_create(&run.desc);
    loop_start(&ref, &run);
    EXPECT_ERROR(het_describe(&run.desc, &description, &error), HET_OK, error.text, "");
    for (u = 0; u < 3; u++)
        for (k = 0; k < description->unit[u].info.parameters; k++) first[description->unit[u].parameter[k]] = 1;
    het_description_free(description);
    for (p = 0; p < ref.parameters; p++) sum[p] = support_alloc((size_t)ref.count[p], sizeof(float));
    for (step = 0; step < 2; step++) {
        support_group_start(&group, &run.data, step, "0|1|2|3");
        EXPECT_OK(het_step(ctx, group.batch, 4, &info));
        for (p = 0; p < ref.parameters; p++) memset(sum[p], 0, (size_t)ref.count[p] * sizeof(float));
        for (m = 0; m < 4; m++) {
            het_step_info part;
            for (p = 0; p < ref.parameters; p++)
                EXPECT_OK(het_parameter_write(ref.ctx, p, HET_WEIGHT, ref.weight[first[p] || m == 0 ? 0 : m - 1][p]));
            EXPECT_OK(het_gradients(ref.ctx, group.batch + m, 1, &part));
            for (p = 0; p < ref.parameters; p++) {
                float *g = support_alloc((size_t)ref.count[p], sizeof *g);
                EXPECT_OK(het_parameter_read(ref.ctx, p, HET_GRADIENT, g));
                for (i = 0; i < ref.count[p]; i++) sum[p][i] += (float)((double)g[i] * part.weight / info.weight);
                if (!first[p]) loop_adamw(&ref, p, g, m, step * 4 + m + 1);
                if (first[p] && m == 3) loop_adamw(&ref, p, sum[p], 3, step + 1);
                if (first[p] && m < 3) memcpy(ref.weight[m + 1][p], ref.weight[0][p], (size_t)ref.count[p] * sizeof(float));
                free(g);
            }
        }
        worst += loop_differs(&ref, ctx, 4);
        support_group_end(&group);
    }
    assert_int_equal(worst, 0);
    for (p = 0; p < ref.parameters; p++) free(sum[p]);
    loop_end(&ref);
    het_destroy(ctx);
    run_start(&one, &both, &model, 4, 1);
    plain_adamw(&one);
    base = support_train(&one, "0|1|2|3");
    support_train_same(&base, &run, "0|1|2|3", "gears on two ranks");
    support_run_end(&run);
    support_run_end(&one);
    /* gears of 1: a synchronous step */
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
    het_description *description;
    het_error error;
    het_ctx *ctx, *again;
    het_step_info info, other;
    double loss[2] = { 0.0, 0.0 };
    loop ref;
    int64_t u, k, p, i;
    int predicts, m;
    (void)state;
    run_start(&run, &l, &model, 2, 0);
    plain_adamw(&run);
    ctx = support_create(&run.desc);
    again = support_create(&run.desc);
    loop_start(&ref, &run);
    (void)support_step(ctx, &run.data, 0, "0|1|2|3");
    (void)support_step(again, &run.data, 0, "0|1|2|3");
    for (p = 0; p < ref.parameters; p++) { /* the first step's own predictions are nothing: the state is empty; its gradients mix, so take it over */
        float *from = support_alloc((size_t)ref.count[p], sizeof *from);
        EXPECT_OK(het_parameter_read(ctx, p, HET_WEIGHT, ref.weight[0][p]));
        for (k = 0; k < 2; k++) {
            EXPECT_OK(het_parameter_read(ctx, p, (het_array)(HET_MOMENT0 + k), from));
            for (i = 0; i < ref.count[p]; i++) (k == 0 ? ref.m : ref.v)[p][i] = (double)from[i];
        }
        for (i = 0; i < ref.count[p]; i++) {
            const het_optimizer_desc *o = &het_get_desc(ctx)->optimizer;
            const double b1 = (double)o->beta1, b2 = (double)o->beta2;
            ref.weight[3][p][i] = (float)((double)ref.weight[0][p][i] - (double)o->learning_rate * (ref.m[p][i] / (1.0 - b1 * b1)) /
                                          (sqrt(ref.v[p][i] / (1.0 - b2 * b2)) + (double)o->epsilon));
        }
        free(from);
    }
    support_group_start(&group, &run.data, 1, "0|1|2|3");
    EXPECT_OK(het_step(ctx, group.batch, 4, &info));
    EXPECT_OK(het_step(again, group.batch, 4, &other));
    assert_true(info.loss == other.loss);
    support_same_state(ctx, again, 0, "xpipe, twice");
    loop_update(&ref, group.batch, 2, 0, 0, 3);
    EXPECT_ERROR(het_describe(&run.desc, &description, &error), HET_OK, error.text, "");
    for (predicts = 0; predicts < 2; predicts++)
        for (m = 0; m < 4; m++) {
            for (p = 0; p < ref.parameters; p++) EXPECT_OK(het_parameter_write(ref.ctx, p, HET_WEIGHT, ref.weight[m > 1][p]));
            for (u = 0; u < 3 && m == 2; u++)
                for (k = 0; k < description->unit[u].info.parameters; k++) {
                    p = description->unit[u].parameter[k];
                    EXPECT_OK(het_parameter_write(ref.ctx, p, HET_WEIGHT, ref.weight[predicts ? 3 : 0][p]));
                }
            EXPECT_OK(het_evaluate(ref.ctx, group.batch + m, 1, &other));
            loss[predicts] += other.loss * other.weight / info.weight;
        }
    assert_true(fabs(loss[1] - info.loss) < 2e-6 * info.loss);
    assert_true(fabs(loss[0] - info.loss) > 2e-5 * info.loss); /* it is seen */
    het_description_free(description);
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

/* ---- random lists: what a pipeline computes is what one rank does that goes through the same micro-batches one by one ---- */

static het_schedule *lists_of(const het_plan *plan, int64_t micro_batches)
{
    het_schedule *schedule = NULL;
    het_error error;
    EXPECT_ERROR(het_schedule_make(plan, &micro_batches, NULL, &schedule, &error), HET_OK, error.text, "");
    return schedule;
}

static void random_lists(void **state)
{
    static const char *const names[] = { "1f1b", "gpipe", "zb-h1", "zb-h2", "greedy", "pipedream" };
    const int first = support_environment("HETRAIN_TEST_FIRST_ROUND", 0), rounds = support_environment("HETRAIN_TEST_ROUNDS", 60);
    het_model_desc model = support_model(HET_LLAMA);
    int round;
    (void)state;
    for (round = first; round < first + rounds; round++) {
        uint64_t seed = 77 + (uint64_t)round;
        const int64_t ranks = 2 + support_below(&seed, 2), updates = 2 + support_below(&seed, 3);
        const layout l = { "pp", names[support_below(&seed, 6)], ranks, 1 }, alone = { "pp", "gpipe", 1, 1 };
        support_run run, one;
        support_result base;
        het_schedule *lists, *single;
        int64_t version[4][4], i, r, m, n = 0;
        char what[120];
        het_error error;
        model.local_loss = support_below(&seed, 3) == 0;
        run_start(&run, &l, &model, updates, 4);
        run_start(&one, &alone, &model, updates, 4);
        run.desc.optimizer.feedback = one.desc.optimizer.feedback = (float)support_below(&seed, 2);
        support_draw_recompute(run.plan, &seed);
        EXPECT_OK(het_plan_cuts(&run.desc, run.plan, &error));
        lists = lists_of(run.plan, 4);
        /* an older version now and then: any that has been; all stages of the other run lie on one rank */
        for (i = 0; i < lists->start[ranks]; i++) {
            het_action *a = &lists->action[i];
            if (a->kind == HET_ACTION_F && support_below(&seed, 2)) a->version = (int32_t)support_below(&seed, a->version + 1);
            if (a->kind == HET_ACTION_F) version[a->stage][a->micro_batch] = a->version;
        }
        het_plan_free(one.plan);
        snprintf(what, sizeof what, "round %d: %s on %d ranks, %d updates", round, l.schedule, (int)ranks, (int)updates);
        {
            het_plan shape = *run.plan;
            shape.ranks = 1;
            EXPECT_OK(het_plan_new(&shape, NULL, "test", &one.plan, &error));
            memcpy(one.plan->stage, run.plan->stage, (size_t)ranks * sizeof *run.plan->stage);
            for (r = 0; r < ranks; r++) one.plan->stage[r].rank = 0;
            one.plan->first_stage[1] = ranks;
            one.plan->share[0] = one.plan->state_share[0] = one.plan->slice_share[0] = 1.0;
            EXPECT_OK(het_schedule_new(1, 1, 8 * ranks, NULL, "test", &single, &error));
        }
        single->micro_batches[0] = 4;
        for (m = 0; m < 4; m++)
            for (r = 0; r < 2 * ranks; r++, n++) {
                het_action *a = &single->action[n];
                a->kind = r < ranks ? HET_ACTION_F : HET_ACTION_B;
                a->stage = (int32_t)(r < ranks ? r : 2 * ranks - 1 - r);
                a->micro_batch = (int32_t)m;
                a->version = (int32_t)(r < ranks ? version[r][m] : m * updates / 4);
            }
        single->start[1] = n;
        one.desc.layout.plan = one.plan;
        one.desc.layout.schedule = single;
        run.desc.layout.schedule = lists;
        base = support_train(&one, "0|1|2|3");
        support_train_same(&base, &run, "0|1|2|3", what);
        het_schedule_free(lists);
        het_schedule_free(single);
        support_run_end(&run);
        support_run_end(&one);
    }
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
        cmocka_unit_test(layouts_do_not_show), cmocka_unit_test(parameter_servers), cmocka_unit_test(a_loop_of_gradients),
        cmocka_unit_test(a_prediction), cmocka_unit_test(gears),
        cmocka_unit_test(random_lists), cmocka_unit_test(the_rest_of_a_context), cmocka_unit_test(bad_lists),
        cmocka_unit_test(needs_of_unproved_lists),
        cmocka_unit_test(what_several_updates_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
