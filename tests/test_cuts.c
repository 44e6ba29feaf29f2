/* Boundaries that no gradient crosses: local losses and frozen layers in front, in every layout. The bits of one rank, gradients of each
   group's own loss, messages and bytes counted, nobody idle after the fill. */
#include "support.h"

#include "hetrain_files.h"
#include "hetrain_plan.h"

#define STEPS 3

typedef support_layout layout;

static het_model_desc local_model(het_family family, int64_t layers, int64_t every)
{
    het_model_desc model = support_model(family);
    model.layers = layers;
    model.local_loss = every;
    return model;
}

/* ---- bits ---- */

/* Between stages and inside them: with 3 layers and a head behind each the chain is e am h am h am H, 9 units and the head. */
static void layouts_do_not_show(void **state)
{
    static const layout layouts[] = {
        { "pp", "1f1b", 2, 1 }, { "pp", "1f1b", 4, 2 }, { "pp", "gpipe", 3, 1 }, { "pp", "zb-h1", 3, 2 }, { "pp", "zb-v", 4, 1 },
        { "pp", "v-half", 3, 1 },
        { "pp", "v-min", 2, 1 }, { "pp", "dualpipev", 3, 1 }, { "pp", "interleaved", 3, 1 }, { "pp", "bidirectional", 2, 1 },
        { "pp", "greedy", 4, 1 },
        { "pp", "timed", 3, 1 }, { "pp", "terapipe", 2, 3 }, { "pp", "sliced-1f1b", 3, 2 }, { "dp2xpp2", "1f1b", 4, 1 }, { "dp", NULL, 2, 1 },
        { "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,4],\"recompute\":true},{\"rank\":1,\"units\":[4,7]},"
          "{\"rank\":2,\"units\":[7,10]}]}]}",
          "1f1b", 3, 1 },
        { "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,3]},{\"rank\":1,\"units\":[3,4]},"
          "{\"rank\":2,\"units\":[4,10],\"recompute\":true}]}]}",
          "zb-h1", 3, 1 },
        { "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,5],\"store\":1},{\"rank\":1,\"units\":[5,10]}]}]}", "gpipe", 2, 1 },
        { "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,5],\"recompute\":\"stage\"},"
          "{\"rank\":1,\"units\":[5,10],\"recompute\":\"stage\"}]}]}",
          "gpipe", 2, 2 },
        { "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,10],\"recompute\":\"stage\"}]}]}", "1f1b", 1, 1 },
        { "pp2xcp2", "1f1b", 4, 1 }, { "hp2", NULL, 2, 1 }, { "pp2xtp2", "1f1b", 4, 1 },
    };
    static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_NEOX };
    size_t i, k;
    (void)state;
    for (i = 0; i < sizeof families / sizeof families[0]; i++) {
        het_model_desc model = local_model(families[i], 3, 1);
        support_result base;
        support_run run;
        model.dropout = i == 1 ? 0.1f : 0.0f;
        support_run_start(&run, &model, STEPS, "17|5,0,9|48|30,2");
        base = support_train(&run, "01|23");
        for (k = 0; k < sizeof layouts / sizeof layouts[0]; k++) {
            run.desc.layout.shard = (het_shard)(1 + k % 3);
            if (strstr(layouts[k].plan, "tp") != NULL) run.desc.layout.shard = HET_SHARD_STATE;
            support_layout_same(&base, &run, &layouts[k], k % 2 ? "0|1|2|3" : "01|2|3");
        }
        support_run_end(&run);
    }
}

/* With low-rank factors all is frozen but them and the local heads: nothing else could train these, which begin at random. */
static void heads_beside_factors(void **state)
{
    static const layout layouts[] = { { "pp", "1f1b", 2, 1 }, { "pp", "zb-v", 4, 1 }, { "dp", NULL, 2, 1 }, { "hp2", NULL, 2, 1 } };
    het_model_desc model = local_model(HET_LLAMA, 3, 1);
    support_result base;
    support_run run;
    het_ctx *before, *after;
    int64_t p, heads = 0;
    size_t k;
    (void)state;
    model.lora_rank = 2;
    support_run_start(&run, &model, STEPS, "17|5,0,9|48|30,2");
    before = support_create(&run.desc);
    after = support_create(&run.desc);
    (void)support_step(after, &run.data, 0, "01|23");
    for (p = 0; p < het_parameter_count(before); p++) {
        het_parameter_info info;
        float *u, *v;
        EXPECT_OK(het_parameter_get_info(before, p, &info));
        u = support_floats(info.count, 0.0, 1), v = support_floats(info.count, 0.0, 1);
        EXPECT_OK(het_parameter_read(before, p, HET_WEIGHT, u));
        EXPECT_OK(het_parameter_read(after, p, HET_WEIGHT, v));
        heads += strstr(info.name, "local_head") != NULL;
        assert_int_equal(info.frozen, strstr(info.name, "local_head") == NULL && strstr(info.name, "lora_") == NULL);
        assert_int_equal(memcmp(u, v, (size_t)info.count * sizeof *u) == 0, info.frozen);
        free(u);
        free(v);
    }
    assert_int_equal(heads, 4); /* norm and matrix behind two layers */
    base = support_train(&run, "01|23");
    for (k = 0; k < sizeof layouts / sizeof layouts[0]; k++) support_layout_same(&base, &run, &layouts[k], "0|1|2|3");
    het_destroy(before);
    het_destroy(after);
    support_run_end(&run);
}

/* ---- frozen layers in front ---- */

/* The embedding and the first two of 4 layers: units 0 to 4. */
static int frozen_front(void *user, const char *name)
{
    (void)user;
    return strstr(name, "embed") != NULL || strstr(name, ".0.") != NULL || strstr(name, ".1.") != NULL;
}

static const char frozen_stages[] = "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,3]},{\"rank\":1,\"units\":[3,5]},"
                                    "{\"rank\":2,\"units\":[5,8]},{\"rank\":3,\"units\":[8,10]}]}]}";

static void frozen_start(support_run *run)
{
    het_model_desc model = support_model(HET_LLAMA);
    model.layers = 4;
    support_run_start(run, &model, STEPS, "17|5,0,9|48|30,2");
    run->desc.frozen = frozen_front;
}

/* Stages in front have no backward action and get no gradient. The bits stay. */
static void frozen_layers_have_only_forwards(void **state)
{
    static const layout layouts[] = {
        { frozen_stages, "1f1b", 4, 1 }, { frozen_stages, "gpipe", 4, 2 }, { frozen_stages, "zb-h1", 4, 1 }, { frozen_stages, "greedy", 4, 1 },
        { frozen_stages, "timed", 4, 1 }, { "pp", "interleaved", 2, 1 }, { "pp", "zb-v", 4, 1 }, { "pp", "v-half", 2, 1 }, { "pp", "v-min", 3, 2 },
        { "pp", "dualpipev", 4, 1 }, { "pp", "dualpipev", 2, 1 }, { "pp", "bidirectional", 4, 1 }, { "pp2xcp2", "1f1b", 4, 1 },
        { "dp2xpp2", "1f1b", 4, 1 },
    };
    support_result base;
    support_run run;
    size_t k;
    (void)state;
    frozen_start(&run);
    base = support_train(&run, "01|23");
    for (k = 0; k < sizeof layouts / sizeof layouts[0]; k++) {
        run.desc.layout.shard = (het_shard)(1 + k % 3);
        support_layout_same(&base, &run, &layouts[k], "0|1|2|3");
    }
    support_run_end(&run);
}

/* Of the first layer one matrix alone is trained, whose x nobody wants a gradient of; by columns its weights' gradient is still made of all rows. */
static int frozen_but_one(void *user, const char *name)
{
    (void)user;
    return strstr(name, "embed") != NULL || (strstr(name, ".0.") != NULL && strstr(name, "o_proj") == NULL && strstr(name, "down_proj") == NULL);
}

static void a_matrix_alone_is_trained(void **state)
{
    static const layout layouts[] = { { "tp2", "1f1b", 2, 1 }, { "tp:3,1", "1f1b", 2, 1 }, { "hp2", "1f1b", 2, 1 }, { "cp2", "1f1b", 2, 1 },
                                      { "pp2xtp2", "zb-h1", 4, 1 }, { "dp2", "1f1b", 2, 1 } };
    support_result base;
    support_run run;
    size_t k;
    (void)state;
    frozen_start(&run);
    run.desc.frozen = frozen_but_one;
    base = support_train(&run, "01|23");
    for (k = 0; k < sizeof layouts / sizeof layouts[0]; k++) support_layout_same(&base, &run, &layouts[k], "0|1|2|3");
    support_run_end(&run);
}

/* A group of layers that is frozen with its head, between others that are trained: no backward pass between two cuts, inside a stage whose
   gradient goes to the one before, and in stages of its own. */
static int frozen_middle(void *user, const char *name)
{
    (void)user;
    return strstr(name, ".1.") != NULL;
}

static void frozen_between_cuts(void **state)
{
    static const layout layouts[] = {
        { "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,2]},{\"rank\":1,\"units\":[2,8]},{\"rank\":2,\"units\":[8,10]}]}]}", "1f1b", 3, 1 },
        { "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,4]},{\"rank\":1,\"units\":[4,6]},{\"rank\":0,\"units\":[6,7]},"
          "{\"rank\":1,\"units\":[7,10]}]}]}", "zb-h1", 2, 2 },
        { "pp", "interleaved", 5, 1 }, { "pp", "zb-v", 5, 1 }, { "pp", "gpipe", 3, 1 }, { "pp", "timed", 4, 1 },
    };
    const het_model_desc model = local_model(HET_LLAMA, 3, 1);
    support_result base;
    support_run run;
    size_t k;
    (void)state;
    support_run_start(&run, &model, STEPS, "17|5,0,9|48|30,2");
    run.desc.frozen = frozen_middle;
    base = support_train(&run, "01|23");
    for (k = 0; k < sizeof layouts / sizeof layouts[0]; k++) support_layout_same(&base, &run, &layouts[k], "0|1|2|3");
    support_run_end(&run);
}

/* ---- gradients: those of a group's own loss ---- */

/* The first `layers` layers with the head behind them as a model of its own, with the weights of `from`. */
static het_ctx *group_alone(het_ctx *from, const het_desc *desc, int64_t layers)
{
    het_desc plain = *desc;
    het_ctx *ctx;
    het_parameter_info info, other;
    int64_t p, q;
    char local[64];
    plain.model.layers = layers;
    plain.model.local_loss = 0;
    plain.layout.plan = NULL;
    plain.layout.device_count = 0;
    plain.layout.devices = NULL;
    ctx = support_create(&plain);
    for (p = 0; p < het_parameter_count(ctx); p++) {
        float *w;
        EXPECT_OK(het_parameter_get_info(ctx, p, &info));
        snprintf(local, sizeof local, "%s", info.name);
        if (layers < desc->model.layers && strcmp(info.name, "model.norm.weight") == 0)
            snprintf(local, sizeof local, "local_head.%d.norm.weight", (int)layers - 1);
        if (layers < desc->model.layers && strcmp(info.name, "lm_head.weight") == 0)
            snprintf(local, sizeof local, "local_head.%d.weight", (int)layers - 1);
        for (q = 0; q < het_parameter_count(from); q++) {
            EXPECT_OK(het_parameter_get_info(from, q, &other));
            if (strcmp(other.name, local) == 0) break;
        }
        assert_true(q < het_parameter_count(from) && other.rows == info.rows && other.columns == info.columns);
        w = support_alloc((size_t)(info.rows * info.columns), sizeof *w);
        EXPECT_OK(het_parameter_read(from, q, HET_WEIGHT, w));
        EXPECT_OK(het_parameter_write(ctx, p, HET_WEIGHT, w));
        free(w);
    }
    return ctx;
}

/* Which group a parameter is trained by, by its layer; the embedding: 0; the model's own head: the last. */
static int64_t group_of(const char *name, int64_t last)
{
    const char *at = strstr(name, "layers.");
    if (at != NULL) return atoi(at + 7);
    at = strstr(name, "local_head.");
    if (at != NULL) return atoi(at + 11);
    return strstr(name, "embed") != NULL ? 0 : last;
}

static double loss_of(het_ctx *ctx, const support_group *group)
{
    het_step_info info;
    EXPECT_OK(het_evaluate(ctx, group->batch, group->count, &info));
    return info.loss;
}

/* The slope of the loss along a random direction of a parameter, by central differences, against the gradient. */
static double slope_error(het_ctx *ctx, const support_group *group, int64_t p, const float *gradient, int64_t count, uint64_t seed)
{
    const double h = 4e-3;
    float *w = support_alloc((size_t)count, sizeof *w), *moved = support_alloc((size_t)count, sizeof *w);
    double slope = 0, dot = 0, norm = 0;
    int way;
    EXPECT_OK(het_parameter_read(ctx, p, HET_WEIGHT, w));
    for (way = -1; way <= 1; way += 2) {
        uint64_t state = seed;
        int64_t i;
        for (i = 0; i < count; i++) {
            const double v = support_uniform(&state);
            moved[i] = (float)((double)w[i] + way * h * v);
            if (way > 0) dot += v * (double)gradient[i], norm += (double)gradient[i] * (double)gradient[i];
        }
        EXPECT_OK(het_parameter_write(ctx, p, HET_WEIGHT, moved));
        slope += way * loss_of(ctx, group) / (2 * h);
    }
    EXPECT_OK(het_parameter_write(ctx, p, HET_WEIGHT, w));
    free(w);
    free(moved);
    return fabs(slope - dot) / (sqrt(norm) + 1e-2);
}

static void gradients_are_of_the_own_loss(void **state)
{
    const het_model_desc model = local_model(HET_LLAMA, 3, 1);
    support_run run;
    support_group group;
    het_step_info info;
    het_ctx *ctx;
    int64_t g, p, q;
    int compared = 0;
    (void)state;
    support_run_start(&run, &model, 1, "17|5,0,9|48|30,2");
    run.desc.model.init_std = 0.2f;
    ctx = support_create(&run.desc);
    support_group_start(&group, &run.data, 0, "01|23");
    EXPECT_OK(het_gradients(ctx, group.batch, group.count, &info));
    for (g = 0; g < 3; g++) {
        het_ctx *alone = group_alone(ctx, &run.desc, g + 1);
        het_step_info own;
        EXPECT_OK(het_gradients(ctx, group.batch, group.count, &info));
        EXPECT_OK(het_gradients(alone, group.batch, group.count, &own));
        if (g == 2) assert_true(memcmp(&own.loss, &info.loss, sizeof own.loss) == 0); /* what is reported is the model's */
        for (p = 0; p < het_parameter_count(alone); p++) {
            het_parameter_info a, b;
            char name[64];
            float *x, *y;
            size_t size;
            EXPECT_OK(het_parameter_get_info(alone, p, &a));
            snprintf(name, sizeof name, "%s", a.name);
            if (g < 2 && strcmp(a.name, "model.norm.weight") == 0) snprintf(name, sizeof name, "local_head.%d.norm.weight", (int)g);
            if (g < 2 && strcmp(a.name, "lm_head.weight") == 0) snprintf(name, sizeof name, "local_head.%d.weight", (int)g);
            if (group_of(name, 2) != g) continue;
            for (q = 0; q < het_parameter_count(ctx); q++) {
                EXPECT_OK(het_parameter_get_info(ctx, q, &b));
                if (strcmp(b.name, name) == 0) break;
            }
            size = (size_t)(a.rows * a.columns) * sizeof *x;
            x = support_alloc(size, 1), y = support_alloc(size, 1);
            EXPECT_OK(het_parameter_read(ctx, q, HET_GRADIENT, x));
            EXPECT_OK(het_parameter_read(alone, p, HET_GRADIENT, y));
            if (memcmp(x, y, size) != 0) fail_msg("gradient of %s is not that of its group alone", name);
            if (slope_error(alone, &group, p, y, a.rows * a.columns, (uint64_t)p + 7) > 0.02) fail_msg("%s: differences", name);
            EXPECT_OK(het_gradients(alone, group.batch, group.count, &own)); /* evaluation has gone over it */
            compared++;
            free(x);
            free(y);
        }
        het_destroy(alone);
    }
    assert_int_equal(compared, 3 * 9 + 1 + 2 * 3); /* 9 of a layer, the embedding, a norm and a matrix a head */
    het_destroy(ctx);
    support_group_end(&group);
    support_run_end(&run);
}

/* ---- what crosses ---- */

/* Stages that end at cuts: e am h | am h | am H. */
static const char cut_stages[] = "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,4]},{\"rank\":1,\"units\":[4,7]},"
                                 "{\"rank\":2,\"units\":[7,10]}]}]}";

/* Messages and bytes of every pair: forward one a micro-batch, tokens x width floats; backward none over a cut, none into frozen stages. */
static void only_activations_cross(void **state)
{
    int frozen;
    (void)state;
    for (frozen = 0; frozen < 2; frozen++) {
        const het_model_desc model = local_model(HET_LLAMA, 3, 1);
        const int64_t ranks = frozen ? 4 : 3;
        support_run run;
        het_ctx *ctx;
        het_timeline timeline;
        int64_t from, to, k;
        if (frozen) frozen_start(&run);
        else support_run_start(&run, &model, STEPS, "17|5,0,9|48|30,2");
        support_run_ranks(&run, ranks);
        support_run_plan(&run, frozen ? frozen_stages : cut_stages, "1f1b", 1);
        ctx = support_create(&run.desc);
        (void)support_step(ctx, &run.data, 0, "0|1|2|3"); /* the first is repeated, once its gradients are known */
        for (from = 0; from < ranks; from++) {
            int64_t transfers[4], bytes[4];
            het_get_timeline(ctx, from, &timeline);
            for (to = 0; to < ranks; to++) transfers[to] = timeline.traffic[to].transfers, bytes[to] = timeline.traffic[to].transfer_bytes;
            (void)support_step(ctx, &run.data, 1, "0|1|2|3");
            het_get_timeline(ctx, from, &timeline);
            for (to = 0; to < ranks; to++) {
                const int back = frozen && from == 3 && to == 2, passes = to == from + 1 || back;
                assert_int_equal(timeline.traffic[to].transfers - transfers[to], passes ? 4 : 0);
                assert_int_equal(timeline.traffic[to].transfer_bytes - bytes[to],
                                 passes ? run.data.tokens * run.desc.model.width * 4 : 0);
            }
            for (k = 0; k < timeline.records; k++) {
                const het_action *a = &timeline.record[k].action;
                if (a->kind == HET_ACTION_SEND_B || a->kind == HET_ACTION_RECV_B) assert_true(frozen && a->stage >= 2);
                if (a->kind == HET_ACTION_B || a->kind == HET_ACTION_I || a->kind == HET_ACTION_W) assert_true(!frozen || a->stage >= 2);
            }
        }
        het_destroy(ctx);
        support_run_end(&run);
    }
}

/* ---- input gradients that nobody takes ---- */

/* Operations of products' dx, elements of norms' dx. */
static double products, norms;

static het_result counted_run(void *self, het_queue *queue, const het_op *op)
{
    const het_linear_args *l = &op->u.linear;
    int64_t i;
    for (i = 0; op->kind == HET_OP_LINEAR_BACKWARD_INPUT && i < l->parts; i++) products += 2.0 * (double)(l->rows * l->in * l->part[i].out);
    if (op->kind == HET_OP_NORM_BACKWARD || op->kind == HET_OP_NORM_BACKWARD_INPUT) norms += (double)(op->u.norm.rows * op->u.norm.width);
    return het_cpu_device()->run(self, queue, op);
}

static het_result sees(void *user, const het_hook_info *info)
{
    (void)user, (void)info;
    return HET_OK;
}

/* What the second step has of them, with a hook, which takes all, less without. */
static void count_unread(support_run *run, double less[2])
{
    int hooked;
    for (hooked = 0; hooked < 2; hooked++) {
        het_ctx *ctx;
        double times;
        run->desc.host.hook = hooked ? sees : NULL;
        ctx = support_create(&run->desc);
        (void)support_step(ctx, &run->data, 0, "01|23");
        products = norms = 0.0;
        times = 1 + support_step(ctx, &run->data, 1, "01|23").repeated;
        less[0] = products / times - (hooked ? less[0] : 0.0), less[1] = norms / times - (hooked ? less[1] : 0.0);
        het_destroy(ctx);
    }
}

/* Behind the embedding that factors leave frozen: the first layer's dx of q, k and v and of their factors' A, and the norm's. Behind a local head
   and behind frozen layers: the norm's alone, since products' dx trains the norm. */
static void unread_gradients_are_not_made(void **state)
{
    static const struct { layout l; const char *blocks; } layouts[] = {
        { { "pp", "1f1b", 2, 1 }, "0|1|2|3" }, { { "pp", "zb-h1", 3, 2 }, "01|23" }, { { "pp2xcp2", "1f1b", 4, 1 }, "01|23" },
        { { "tp2", NULL, 2, 1 }, "0|1|2|3" }
    };
    const het_device_iface *cpu = het_cpu_device();
    int which;
    size_t k;
    (void)state;
    for (which = 0; which < 4; which++) { /* factors; local losses; frozen layers; the same in bf16 */
        het_model_desc model = local_model(which == 1 ? HET_NEOX : HET_LLAMA, 3, which == 1);
        het_device_iface counts = *cpu;
        support_result base;
        support_run run;
        double less[2], tokens, width;
        if (which == 0) model.lora_rank = 2;
        if (which < 2) support_run_start(&run, &model, STEPS, "17|5,0,9|48|30,2");
        else frozen_start(&run);
        if (which == 3) run.desc.dtype = HET_BF16;
        counts.run = counted_run;
        run.device[0].iface = &counts;
        support_run_ranks(&run, 1);
        tokens = (double)run.data.tokens, width = (double)run.desc.model.width;
        count_unread(&run, less);
        assert_true(fabs(less[1] - tokens * width * (which == 1 ? 2 : 1)) < 0.5);
        assert_true(fabs(less[0] - (which > 0 ? 0.0 : 2 * tokens * width * (double)((model.heads + 2 * model.kv_heads) * model.head_size + 4))) <
                    0.5);
        run.desc.host.hook = sees;
        base = support_train(&run, "01|23");
        run.desc.host.hook = NULL;
        support_train_same(&base, &run, "01|23", "without a hook");
        run.device[0].iface = NULL;
        for (k = 0; k < sizeof layouts / sizeof layouts[0]; k++)
            if (which != 3 && !(which == 0 && k == 3)) support_layout_same(&base, &run, &layouts[k].l, layouts[k].blocks); /* no factors in columns */
        support_run_end(&run);
    }
}

static het_result doubles(void *user, const het_hook_info *info)
{
    int64_t i;
    (void)user;
    if (info->direction == HET_FORWARD && info->unit == 3)
        for (i = 0; i < info->rows * info->width[0]; i++) info->stream[0][i] *= 2.0f;
    return HET_OK;
}

/* A local head that begins a stage passes on the stage's input, which is kept: a stage that recomputes as a whole does not change it twice. */
static void hooks_change_what_cuts_pass_on_once(void **state)
{
    const het_model_desc model = local_model(HET_LLAMA, 3, 1);
    support_result base;
    support_run run;
    int recompute;
    (void)state;
    support_run_start(&run, &model, STEPS, "17|5,0,9|48|30,2");
    run.desc.host.hook = doubles;
    base = support_train(&run, "01|23");
    support_run_ranks(&run, 2);
    support_run_plan(&run, "pp:0-2|3-9", "1f1b", 1);
    for (recompute = HET_RECOMPUTE_NONE; recompute <= HET_RECOMPUTE_STAGE; recompute++) {
        run.plan->stage[1].recompute = recompute;
        support_train_same(&base, &run, "0|1|2|3", "a hook behind a local head");
    }
    support_run_end(&run);
}

/* ---- nobody idle after the fill ---- */

/* 1F1B with a cut at every border: B follows its own F at once, one micro-batch is kept, and P ranks are done after 3 M + P - 1 instead of
   3 (M + P - 1). What runs has the same order. */
static void nobody_waits_behind_cuts(void **state)
{
    static const char *const names[] = { "1f1b", "timed", "zb-h1" };
    const het_model_desc model = local_model(HET_LLAMA, 3, 1);
    het_stage_cost stage[3];
    het_costs costs;
    het_needs needs[3];
    support_run run;
    int64_t counts[1] = { 8 }, r, i;
    double peak[3];
    size_t n;
    (void)state;
    memset(stage, 0, sizeof stage);
    memset(&costs, 0, sizeof costs);
    for (r = 0; r < 3; r++) stage[r].forward.base = stage[r].input.base = stage[r].weight.base = 1, stage[r].backward.base = 2;
    costs.stage = stage;
    support_run_start(&run, &model, 1, "17|5,0,9|48|30,2");
    support_run_ranks(&run, 3);
    for (n = 0; n < 6; n++) {
        het_schedule *lists, *whole;
        het_simulation *simulation;
        support_run_plan(&run, cut_stages, names[n % 3], 1);
        if (n < 3) EXPECT_OK(het_plan_cuts(&run.desc, run.plan, NULL));
        EXPECT_OK(het_schedule_make(run.plan, counts, NULL, &lists, NULL));
        EXPECT_OK(het_schedule_check(run.plan, NULL, lists, peak, NULL));
        EXPECT_OK(het_simulate(run.plan, lists, &costs, HET_NO, NULL, &simulation, NULL));
        EXPECT_OK(het_schedule_complete(run.plan, NULL, lists, NULL, &whole, NULL));
        EXPECT_OK(het_schedule_needs(run.plan, whole, 0, 3, 0, NULL, needs, NULL));
        if (n < 3) assert_true(fabs(simulation->makespan - (3 * 8 + 2)) < 1e-9);
        if (n == 3) assert_true(fabs(simulation->makespan - 3 * (8 + 2)) < 1e-9); /* the same plan, whose cuts nobody has told */
        for (r = 0; r < 3 && n < 3; r++) {
            assert_true(fabs(simulation->rank[r].start - (double)r) < 1e-9 && simulation->rank[r].wait < 1e-9);
            if (n == 0) assert_true(fabs(peak[r] - 1) < 1e-9);
            if (n == 0) assert_int_equal(needs[r].slots, 1);
            for (i = lists->start[r]; n == 0 && i < lists->start[r + 1]; i++)
                assert_int_equal(lists->action[i].kind, (i - lists->start[r]) % 2 ? HET_ACTION_B : HET_ACTION_F);
        }
        het_simulation_free(simulation);
        het_schedule_free(whole);
        het_schedule_free(lists);
    }
    support_run_plan(&run, cut_stages, "1f1b", 1);
    {
        het_ctx *ctx = support_create(&run.desc);
        het_timeline timeline;
        const het_action *before = NULL;
        (void)support_step(ctx, &run.data, 0, "0|1|2|3");
        het_get_timeline(ctx, -1, &timeline);
        for (i = 0; i < timeline.records; i++) {
            const het_record *record = &timeline.record[i];
            if (record->action.kind > HET_ACTION_B) continue;
            if (record->action.kind == HET_ACTION_B)
                assert_true(before != NULL && before->kind == HET_ACTION_F && before->micro_batch == record->action.micro_batch);
            before = &record->action;
        }
        het_destroy(ctx);
    }
    support_run_end(&run);
}

/* ---- memory ---- */

static void estimates_are_peaks(void **state)
{
    static const layout layouts[] = { { cut_stages, "1f1b", 3, 1 }, { "pp", "gpipe", 2, 1 }, { "pp", "zb-v", 2, 1 }, { "pp2xcp2", "1f1b", 4, 1 },
                                      { "dp", NULL, 1, 2 }, { frozen_stages, "1f1b", 4, 1 }, { frozen_stages, "gpipe", 4, 2 } };
    size_t k;
    (void)state;
    for (k = 0; k < sizeof layouts / sizeof layouts[0]; k++) {
        const int frozen = layouts[k].plan == frozen_stages;
        const het_model_desc model = local_model(HET_LLAMA, 3, 1);
        support_memory memory = { 0, 0, 0, 0, -1, 0 };
        het_memory estimate;
        size_t all = 0;
        support_run run;
        het_ctx *ctx;
        int64_t r;
        if (frozen) frozen_start(&run);
        else support_run_start(&run, &model, 2, "17|5,0,9|48|30,2");
        support_run_ranks(&run, layouts[k].ranks);
        support_run_plan(&run, layouts[k].plan, layouts[k].schedule, layouts[k].slices);
        run.desc.host.allocator = support_allocator(&memory);
        for (r = 0; r < layouts[k].ranks; r++) {
            EXPECT_OK(het_memory_estimate(&run.desc, r, &estimate, NULL));
            all += estimate.device + estimate.host;
        }
        memory.peak = memory.bytes;
        ctx = support_create(&run.desc);
        (void)support_step(ctx, &run.data, 0, "0|1|2|3");
        if (memory.peak != all) fail_msg("%s: %zu bytes, estimated are %zu", layouts[k].plan, memory.peak, all);
        het_destroy(ctx);
        support_run_end(&run);
    }
}

/* ---- outside of training ---- */

/* Evaluation and generation are those of the model alone; its weights' file is too, and loads into a model with local heads. The state has
   these: a run goes on with the same bits on another layout. */
static void files_and_inference(void **state)
{
    static const int32_t token[6] = { 3, 1, 4, 1, 5, 9 };
    const het_model_desc model = local_model(HET_LLAMA, 3, 1);
    support_run run, other;
    support_buffer weights, saved;
    het_reader reader;
    het_writer writer;
    het_ctx *ctx, *plain;
    support_group group;
    float *logits[2];
    uint64_t hash;
    int i, inference;
    (void)state;
    support_run_start(&run, &model, 4, "17|5,0,9|48|30,2");
    support_buffer_start(&weights);
    support_buffer_start(&saved);
    for (i = 0; i < 2; i++) logits[i] = support_alloc((size_t)model.vocab, sizeof(float));
    ctx = support_create(&run.desc);
    for (i = 0; i < 2; i++) (void)support_step(ctx, &run.data, i, "01|23");
    writer = support_writer(&weights);
    EXPECT_OK(het_save_weights(ctx, &writer));
    writer = support_writer(&saved);
    EXPECT_OK(het_save_state(ctx, &writer));
    support_group_start(&group, &run.data, 2, "01|23");
    for (i = 0; i < 2; i++) {
        const double loss = loss_of(ctx, &group);
        EXPECT_OK(het_infer(ctx, token, 6, 0, logits[0]));
        for (inference = 0; inference < 2; inference++) {
            het_desc desc = run.desc;
            double its;
            desc.model.local_loss = i; /* 0: the model alone; 1: the heads are there, with other weights */
            desc.inference = inference ? HET_YES : HET_NO;
            desc.seed = 77;
            plain = support_create(&desc);
            reader = support_reader(&weights);
            support_expect(het_load_weights(plain, &reader), HET_OK, het_last_error(plain), "", "het_load_weights", __LINE__);
            its = loss_of(plain, &group);
            assert_true(memcmp(&its, &loss, sizeof its) == 0);
            EXPECT_OK(het_infer(plain, token, 6, 0, logits[1]));
            assert_memory_equal(logits[0], logits[1], (size_t)model.vocab * sizeof(float));
            het_destroy(plain);
        }
    }
    for (i = 2; i < 4; i++) (void)support_step(ctx, &run.data, i, "01|23");
    hash = support_hash(ctx);
    het_destroy(ctx);
    support_run_start(&other, &model, 4, "17|5,0,9|48|30,2");
    support_run_ranks(&other, 3);
    support_run_plan(&other, cut_stages, "zb-h1", 1);
    other.desc.layout.shard = HET_SHARD_WEIGHTS;
    other.desc.seed = run.desc.seed;
    ctx = support_create(&other.desc);
    reader = support_reader(&weights);
    EXPECT_OK(het_load_weights(ctx, &reader));
    reader = support_reader(&saved);
    EXPECT_OK(het_load_state(ctx, &reader));
    for (i = 2; i < 4; i++) (void)support_step(ctx, &other.data, i, "0|1|2|3");
    assert_true(support_hash(ctx) == hash);
    het_destroy(ctx);
    support_group_end(&group);
    for (i = 0; i < 2; i++) free(logits[i]);
    support_buffer_end(&weights);
    support_buffer_end(&saved);
    support_run_end(&other);
    support_run_end(&run);
}

/* ---- several updates ---- */

/* Behind cuts nobody waits for the weights' updates either: every stage updates behind its own backward, at version 0, 1, 2, 3. The same as one
   rank that updates behind every micro-batch, and as four steps of one micro-batch each. */
static void several_updates(void **state)
{
    static const layout layouts[] = { { cut_stages, "1f1b", 3, 1 }, { cut_stages, "pipedream", 3, 1 }, { "pp", "1f1b", 2, 1 },
                                      { cut_stages, "2bw", 3, 1 },
                                      { frozen_stages, "1f1b", 4, 1 }, { frozen_stages, "pipedream", 4, 1 } };
    size_t k;
    (void)state;
    for (k = 0; k < 4; k++) {
        const het_model_desc model = local_model(HET_LLAMA, 3, 1);
        const layout alone = { "pp", "1f1b", 1, 1 };
        support_run run, one;
        support_result base;
        het_ctx *ctx, *loop;
        het_desc plain;
        support_group group;
        int64_t p, j;
        int step, m;
        support_run_start(&one, &model, STEPS, "17|5,0,9|48|30,2");
        one.desc.optimizer.clip = -1.0f, one.desc.optimizer.schedule = HET_LR_CONSTANT;
        one.desc.optimizer.epsilon = 1e-3f, one.desc.optimizer.warmup_steps = 0, one.desc.optimizer.weight_decay = -1.0f;
        support_run_start(&run, &model, STEPS, "17|5,0,9|48|30,2");
        run.desc.optimizer = one.desc.optimizer;
        support_run_ranks(&one, 1);
        support_run_plan(&one, alone.plan, alone.schedule, 1);
        support_run_ranks(&run, layouts[k].ranks);
        support_run_plan(&run, layouts[k].plan, layouts[k].schedule, 1);
        one.plan->updates = run.plan->updates = 4;
        if (k >= 2) one.plan->updates = run.plan->updates = 2, one.plan->staleness = run.plan->staleness = 1; /* borders inside groups */
        base = support_train(&one, "0|1|2|3");
        support_train_same(&base, &run, "0|1|2|3", layouts[k].schedule);
        if (k == 0) {
            ctx = support_create(&run.desc);
            plain = one.desc;
            plain.layout.plan = NULL;
            loop = support_create(&plain);
            for (step = 0; step < 2; step++) {
                (void)support_step(ctx, &run.data, step, "0|1|2|3");
                for (m = 0; m < 4; m++) {
                    static const char *const each[] = { "0", "1", "2", "3" };
                    support_group_start(&group, &run.data, step, each[m]);
                    EXPECT_OK(het_step(loop, group.batch, 1, NULL));
                    support_group_end(&group);
                }
            }
            for (p = 0; p < het_parameter_count(ctx); p++) {
                het_parameter_info info;
                float *x, *y;
                EXPECT_OK(het_parameter_get_info(ctx, p, &info));
                x = support_alloc((size_t)(info.rows * info.columns), sizeof *x), y = support_alloc((size_t)(info.rows * info.columns), sizeof *y);
                EXPECT_OK(het_parameter_read(ctx, p, HET_WEIGHT, x));
                EXPECT_OK(het_parameter_read(loop, p, HET_WEIGHT, y));
                for (j = 0; j < info.rows * info.columns; j++)
                    if (fabs((double)x[j] - (double)y[j]) > 1e-6) fail_msg("%s[%d]: %g, in a loop %g", info.name, (int)j, (double)x[j], (double)y[j]);
                free(x);
                free(y);
            }
            het_destroy(loop);
            het_destroy(ctx);
        }
        support_run_end(&run);
        support_run_end(&one);
    }
    for (k = 4; k < 6; k++) {
        support_run run, one;
        support_result base;
        frozen_start(&one);
        one.desc.optimizer.clip = -1.0f;
        support_run_ranks(&one, 1);
        support_run_plan(&one, "pp", "1f1b", 1);
        frozen_start(&run);
        run.desc.optimizer.clip = -1.0f;
        support_run_ranks(&run, 4);
        support_run_plan(&run, frozen_stages, layouts[k].schedule, 1);
        one.plan->updates = run.plan->updates = 2;
        one.plan->staleness = run.plan->staleness = 1;
        base = support_train(&one, "0|1|2|3");
        support_train_same(&base, &run, "0|1|2|3", layouts[k].schedule);
        support_run_end(&run);
        support_run_end(&one);
    }
}

/* ---- what is refused ---- */

static het_result wider(const het_unit *unit, het_unit_info *info)
{
    (void)unit;
    info->is_loss = 1;
    info->out_streams = 1;
    info->out_width[0] = info->in_width[0] + 1;
    return HET_OK;
}

static het_result any_loss(const het_unit *unit, het_unit_info *info)
{
    (void)unit;
    info->is_loss = 1;
    return HET_OK;
}

static het_result nothing(const het_unit_call *call)
{
    (void)call;
    return HET_OK;
}

static void refusals(void **state)
{
    static const het_unit_iface wrong = { HETRAIN_UNIT_VERSION, "wrong", wider, nothing, nothing, nothing },
                                last = { HETRAIN_UNIT_VERSION, "last", any_loss, nothing, nothing, nothing };
    static const struct { const char *lists, *words; } given[] = {
        { "0F0\n1F0\n2F0,2B0\n", "rank 1|1B0 is missing" },
        { "0F0,0B0\n1F0,1B0\n2F0,2B0\n", "rank 0, position 1 (0B0)|only forward actions" },
        { "0F0,0SEND_F0\n1RECV_F0,1F0,1SEND_F0,1B0,1SEND_B0\n2RECV_F0,2F0,2B0\n", "rank 1, position 4 (1SEND_B0)|no gradient crosses the cut" },
        { "0F0,0SEND_F0,0RECV_B0\n1RECV_F0,1F0,1SEND_F0,1B0\n2RECV_F0,2F0,2B0\n", "rank 0, position 2 (0RECV_B0)|no gradient crosses the cut" },
        { "0F0,0PUT0\n1F0,1B0\n2F0,2B0\n", "rank 0, position 1 (0PUT0)|only forward actions" },
    };
    het_model_desc model = local_model(HET_LLAMA, 3, 1);
    het_unit units[10];
    het_schedule *schedule = NULL;
    het_error error;
    het_ctx *ctx = NULL;
    support_run run;
    int64_t count, one[1] = { 1 };
    size_t i;
    (void)state;
    support_run_start(&run, &model, 1, "17|5,0,9|48|30,2");
    support_run_ranks(&run, 3);
    support_run_plan(&run, cut_stages, "1f1b", 1);
    EXPECT_OK(het_schedule_make(run.plan, one, NULL, &schedule, &error)); /* without cuts */
    het_schedule_free(schedule);
    memset(run.plan->cut, HET_CUT_NONE, 4); /* the first stage is frozen, the second is cut off */
    run.plan->cut[6] = HET_CUT_BEHIND;
    for (i = 0; i < sizeof given / sizeof given[0]; i++) {
        het_result result = het_schedule_read(run.plan, given[i].lists, strlen(given[i].lists), NULL, &schedule, &error);
        if (result == HET_OK) result = het_schedule_check(run.plan, NULL, schedule, NULL, &error);
        support_expect(result, HET_ERR_INVALID, error.text, given[i].words, given[i].lists, __LINE__);
        het_schedule_free(schedule);
        schedule = NULL;
    }
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "unit 0 (embed)|the plan's cut is 2|the model's 0");
    run.plan->cut[8] = HET_CUT_NONE;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "unit 8 cannot be cut in way 2");
    run.plan->cut[8] = 3;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "unit 8 cannot be cut in way 3");
    run.plan->cut[8] = 0;
    run.plan->stage[1].unit_begin = 0; /* who makes lists of a plan, or simulates it, looks at the units of its stages first */
    EXPECT_ERROR(het_schedule_make(run.plan, one, NULL, &schedule, &error), HET_ERR_INVALID, error.text, "unit 0 is held twice");
    run.plan->stage[1].unit_begin = run.plan->stage[0].unit_end;
    run.plan->stage[1].pipeline = 1 << 30;
    EXPECT_ERROR(het_schedule_make(run.plan, one, NULL, &schedule, &error), HET_ERR_INVALID, error.text,
                 "stage 1: is of pipeline 1073741824|on rank 1; there are 3 ranks");
    run.plan->stage[1].pipeline = 0;
    memset(run.plan->cut, 0, 10);
    EXPECT_OK(het_schedule_make(run.plan, run.desc.limits.max_micro_batches == 1 ? one : &run.desc.limits.max_micro_batches, NULL, &schedule,
            &error));
    run.desc.layout.schedule = schedule; /* made without cuts: its order is another, but right */
    EXPECT_OK(het_create(&run.desc, &ctx, &error));
    het_destroy(ctx);
    ctx = NULL;
    run.desc.layout.schedule = NULL;
    het_schedule_free(schedule);
    EXPECT_OK(het_model_units(&run.desc.model, units, 10, &count, &error));
    units[8].iface = &wrong;
    units[9].iface = &last;
    run.desc.units = units;
    run.desc.unit_count = 10;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "unit 8 (wrong)|passes its input streams on");
    units[8].iface = &last;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "unit 8 (last)|passes its input streams on");
    EXPECT_OK(het_model_units(&run.desc.model, units, 10, &count, &error));
    units[9] = units[3];
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "unit 9 (local_head)|writes no stream");
    assert_null(ctx);
    model.local_loss = -1;
    EXPECT_ERROR(het_model_complete(&model, &error), HET_ERR_INVALID, error.text, "local_loss is -1|0 .. 65536");
    support_run_end(&run);
}

/* How many units, which layer each head is behind. */
static void chains(void **state)
{
    int64_t layers, every;
    (void)state;
    for (layers = 1; layers < 8; layers++)
        for (every = 0; every < 9; every++) {
            const het_model_desc model = local_model(HET_GPT2, layers, every);
            het_unit units[32];
            int64_t count, counted, u, layer = 0, heads = 0;
            EXPECT_OK(het_model_units(&model, NULL, 0, &counted, NULL));
            EXPECT_OK(het_model_units(&model, units, 32, &count, NULL));
            assert_int_equal(count, counted);
            for (u = 1; u + 1 < count; u++) {
                if (units[u].iface == het_unit_local_head()) {
                    assert_true(every > 0 && layer % every == 0 && layer > 0 && layer < layers && units[u].layer == layer - 1);
                    heads++;
                    continue;
                }
                assert_ptr_equal(units[u].iface, het_unit_attention());
                assert_ptr_equal(units[u + 1].iface, het_unit_mlp());
                assert_true(units[u].layer == layer && units[u + 1].layer == layer);
                layer++, u++;
            }
            assert_int_equal(layer, layers);
            assert_int_equal(heads, every > 0 ? (layers - 1) / every : 0);
            assert_ptr_equal(units[count - 1].iface, het_unit_head());
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains),
        cmocka_unit_test(layouts_do_not_show),
        cmocka_unit_test(heads_beside_factors),
        cmocka_unit_test(frozen_layers_have_only_forwards),
        cmocka_unit_test(a_matrix_alone_is_trained),
        cmocka_unit_test(frozen_between_cuts),
        cmocka_unit_test(gradients_are_of_the_own_loss),
        cmocka_unit_test(only_activations_cross),
        cmocka_unit_test(unread_gradients_are_not_made), cmocka_unit_test(hooks_change_what_cuts_pass_on_once),
        cmocka_unit_test(nobody_waits_behind_cuts),
        cmocka_unit_test(estimates_are_peaks),
        cmocka_unit_test(files_and_inference),
        cmocka_unit_test(several_updates),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("cuts", tests, NULL, NULL);
}
