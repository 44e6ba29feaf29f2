/* Steps that are refused or skipped: what is far outside its recent range by a median made here in another way, on every layout and after a resume
   the same steps; who is to blame is named. Copies of weights that differ are found. */
#include "support.h"

#include "hetrain_files.h"

#define TRAINED 72

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median_of(double *value, int count)
{
    qsort(value, (size_t)count, sizeof *value, by_value);
    return count % 2 ? value[count / 2] : (value[count / 2 - 1] + value[count / 2]) / 2.0;
}

/* The limit from the last HETRAIN_LOSS_HISTORY of `count` accepted values. */
static double limit_of(const double *accepted, int count, double factor)
{
    double value[HETRAIN_LOSS_HISTORY], median;
    int i;
    memcpy(value, accepted + count - HETRAIN_LOSS_HISTORY, sizeof value);
    median = median_of(value, HETRAIN_LOSS_HISTORY);
    for (i = 0; i < HETRAIN_LOSS_HISTORY; i++) value[i] = fabs(accepted[count - HETRAIN_LOSS_HISTORY + i] - median);
    return median + factor * 1.4826 * median_of(value, HETRAIN_LOSS_HISTORY);
}

static void start(support_run *run, int64_t ranks)
{
    const het_model_desc model = support_deep_model(HET_LLAMA);
    support_run_start(run, &model, 8, "17|5,0,9|12|1");
    support_run_ranks(run, ranks);
    run->desc.layout.deadline = 20.0;
    run->desc.guard.spike = 1.0; /* near enough for the data's own noise */
    run->desc.guard.skip_bad_steps = HET_YES;
    run->desc.optimizer.learning_rate = 2e-3f;
    run->desc.optimizer.schedule = HET_LR_CONSTANT;
}

#define LAYOUT_TOGETHER "0123"
#define LAYOUT_APART "3|1|02"

typedef struct story { uint8_t skipped[TRAINED]; int skips; uint64_t weights; } story;

static void go(het_ctx *ctx, const support_run *run, int first, int end, const char *layout, story *s)
{
    int step;
    for (step = first; step < end; step++) {
        const het_step_info info = support_step(ctx, &run->data, step % 8, layout);
        assert_int_equal(info.step, step);
        s->skipped[step] = (uint8_t)info.skipped;
        s->skips += info.skipped;
    }
    s->weights = support_hash(ctx);
}

static story told(const support_run *run, const char *layout)
{
    het_ctx *ctx = support_create(&run->desc);
    story s;
    memset(&s, 0, sizeof s);
    go(ctx, run, 0, TRAINED, layout, &s);
    het_destroy(ctx);
    return s;
}

/* ---- which steps ---- */

static void spikes_are_those_of_the_definition(void **state)
{
    double loss[TRAINED], norm[TRAINED];
    int accepted = 0, skips = 0, step;
    support_run run;
    het_ctx *ctx;
    (void)state;
    start(&run, 1);
    ctx = support_create(&run.desc);
    for (step = 0; step < TRAINED; step++) {
        const uint64_t before = support_hash(ctx);
        const het_step_info info = support_step(ctx, &run.data, step % 8, LAYOUT_TOGETHER);
        const int judged = accepted >= HETRAIN_LOSS_HISTORY;
        const int spike = judged && (info.loss > limit_of(loss, accepted, 1.0) || info.gradient_norm > limit_of(norm, accepted, 1.0));
        assert_int_equal(info.skipped, spike);
        assert_int_equal(support_hash(ctx) == before, spike);
        skips += spike;
        if (spike) continue;
        loss[accepted] = info.loss;
        norm[accepted++] = info.gradient_norm;
    }
    assert_true(skips >= 3 && accepted >= HETRAIN_LOSS_HISTORY + 3);
    het_destroy(ctx);
    support_run_end(&run);
}

static void layouts_skip_the_same_steps(void **state)
{
    static const struct { const char *plan; int ranks, far; het_shard shard; } layouts[] = {
        { "dp", 3, 1, HET_SHARD_STATE }, { "pp", 2, -1, HET_SHARD_STATE }, { "dp2xpp2", 4, 2, HET_SHARD_GRADIENTS },
        { "dp", 3, 2, HET_SHARD_WEIGHTS },
    };
    uint64_t seed = 3;
    support_run run;
    story one;
    size_t i;
    (void)state;
    start(&run, 1);
    one = told(&run, LAYOUT_TOGETHER);
    assert_true(one.skips > 0);
    for (i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        story other;
        support_run_ranks(&run, layouts[i].ranks);
        support_run_mixed(&run, layouts[i].far, &seed);
        run.desc.layout.shard = layouts[i].shard;
        support_run_plan(&run, layouts[i].plan, "1f1b", 1);
        other = told(&run, LAYOUT_APART);
        assert_memory_equal(other.skipped, one.skipped, sizeof one.skipped);
        assert_true(other.weights == one.weights);
    }
    support_run_end(&run);
}

static void a_resumed_run_skips_the_same_steps(void **state)
{
    support_run run;
    support_buffer weights, saved;
    story whole, s;
    int stop;
    (void)state;
    start(&run, 1);
    whole = told(&run, LAYOUT_TOGETHER);
    for (stop = 20; stop < TRAINED; stop += 25) { /* before there is anything to judge by, and after */
        het_ctx *ctx = support_create(&run.desc), *other;
        het_reader from;
        memset(&s, 0, sizeof s);
        go(ctx, &run, 0, stop, LAYOUT_TOGETHER, &s);
        support_save(ctx, &weights, &saved);
        het_destroy(ctx);
        support_run_ranks(&run, 2);
        other = support_create(&run.desc);
        from = support_reader(&weights);
        EXPECT_OK(het_load_weights(other, &from));
        from = support_reader(&saved);
        EXPECT_OK(het_load_state(other, &from));
        go(other, &run, stop, TRAINED, LAYOUT_APART, &s);
        assert_memory_equal(s.skipped, whole.skipped, sizeof s.skipped);
        assert_true(s.weights == whole.weights);
        het_destroy(other);
        support_run_ranks(&run, 1);
        support_buffer_end(&weights);
        support_buffer_end(&saved);
    }
    support_run_end(&run);
}

/* Where "step":"1" stands in a state, which gets as many bytes more as 9223372036854775807 has. */
static unsigned char *longer_step(support_buffer *state)
{
    unsigned char *at;
    uint64_t header = 0;
    int i;
    support_buffer_append(state, "0123456789abcdefgh", 18);
    for (at = state->data; memcmp(at, "\"step\":\"1\"", 10) != 0; at++) {}
    memmove(at + 28, at + 10, (size_t)(state->data + state->size - 18 - (at + 10)));
    for (i = 7; i >= 0; i--) header = header << 8 | state->data[i];
    for (header += 18, i = 0; i < 8; i++) state->data[i] = (unsigned char)(header >> 8 * i);
    return at + 1;
}

/* What is loaded must be what a run can have left. */
static void recent_steps_are_checked(void **state)
{
    /* no digit; not a number; infinite; a negative norm; more steps than can be counted on, or than several updates of each can */
    static const char *const bad[] = { "recent\":\"G", "recent\":\"7ff8", "recent\":\"7ff0000000000000", "recent\":\"3ff0000000000000bff0",
                                       "step\":\"9223372036854775807\"", "step\":\"2305843009213693952\"" };
    support_run run;
    support_buffer saved;
    het_writer to;
    het_reader from;
    het_loss_history recent;
    het_ctx *ctx;
    int32_t exponents[64] = { 0 };
    size_t i;
    (void)state;
    start(&run, 1);
    ctx = support_create(&run.desc);
    (void)support_step(ctx, &run.data, 0, LAYOUT_TOGETHER);
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        unsigned char *at;
        support_buffer_start(&saved);
        to = support_writer(&saved);
        EXPECT_OK(het_save_state(ctx, &to));
        for (at = saved.data; memcmp(at, "recent\":\"", 9) != 0; at++) {}
        if (i >= 4) at = longer_step(&saved);
        memcpy(at, bad[i], strlen(bad[i]));
        from = support_reader(&saved);
        EXPECT_ERROR(het_load_state(ctx, &from), HET_ERR_FORMAT, het_last_error(ctx), i >= 4 ? "step is" : "recent");
        assert_int_equal(het_get_status(ctx), 0); /* nothing was changed */
        support_buffer_end(&saved);
    }
    assert_true(het_parameter_count(ctx) <= 64);
    memset(&recent, 0, sizeof recent);
    recent.count = HETRAIN_LOSS_HISTORY + 1;
    EXPECT_ERROR(het_restore_end(ctx, HET_STATE_INCOMPLETE, 1, exponents, &recent), HET_ERR_INVALID, het_last_error(ctx), "33|32");
    recent.count = 1;
    recent.norm[0] = -1.0;
    EXPECT_ERROR(het_restore_end(ctx, HET_STATE_INCOMPLETE, 1, exponents, &recent), HET_ERR_INVALID, het_last_error(ctx), "recent step 0|-1");
    EXPECT_ERROR(het_restore_end(ctx, HET_STATE_INCOMPLETE, INT64_C(1) << 46, exponents, NULL), HET_ERR_INVALID, het_last_error(ctx),
                 "step 70368744177664|2^46 - 1");
    EXPECT_OK(het_restore_end(ctx, HET_STATE_INCOMPLETE, (INT64_C(1) << 46) - 1, exponents, NULL));
    het_destroy(ctx);
    run.desc.guard.spike = -1.0;
    {
        het_error error = { HET_OK, "" };
        EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "spike|-1");
    }
    support_run_end(&run);
}

/* ---- who is to blame ---- */

typedef struct spoiler { int64_t step, rank, unit; het_direction direction; float factor; } spoiler;

static het_result spoil(void *user, const het_hook_info *info)
{
    const spoiler *s = user;
    int64_t i;
    if (info->step != s->step || info->rank != s->rank || info->unit != s->unit || info->direction != s->direction) return HET_OK;
    for (i = 0; i < info->rows * info->width[0]; i++) info->stream[0][i] *= s->factor;
    return HET_OK;
}

typedef struct heard { int lines; het_result code; char text[256]; } heard;

static void hear(void *user, het_log_level level, het_result code, const char *text)
{
    heard *h = user;
    if (level != HET_LOG_WARNING) return;
    h->lines++;
    h->code = code;
    snprintf(h->text, sizeof h->text, "%s", text);
}

/* As if the last losses had been 0.500, 0.501, ..., 0.531: their median is 0.5155, the median distance from it 0.008. Norms stay. */
static void pretend_small_losses(het_ctx *ctx, int32_t *exponents)
{
    het_loss_history recent;
    int64_t i;
    het_get_loss_history(ctx, &recent);
    assert_int_equal(recent.count, HETRAIN_LOSS_HISTORY);
    for (i = 0; i < HETRAIN_LOSS_HISTORY; i++) recent.loss[i] = 0.5 + 0.001 * (double)i;
    assert_true(het_parameter_count(ctx) <= 64);
    for (i = 0; i < het_parameter_count(ctx); i++) {
        het_parameter_info p;
        EXPECT_OK(het_parameter_get_info(ctx, i, &p));
        exponents[i] = p.exponent;
    }
    EXPECT_OK(het_restore_end(ctx, HET_STATE_INCOMPLETE, het_get_step(ctx), exponents, &recent));
}

/* A gradient spoilt on its way into the units before `unit`: the first parameter that shows it is the embedding, on the rank that was spoilt. */
static void bad_steps_name_parameter_unit_and_rank(void **state)
{
    int form; /* 0, 1: not finite, stops and is skipped; 2, 3: the same of a spike of the gradient; 4: a spike of the loss */
    (void)state;
    for (form = 0; form < 5; form++) {
        const int spike = form >= 2, skips = form % 2;
        const char *words = form < 2 ? "step 41|the gradient of model.embed|not finite|unit 0 (embed)|rank 1 (loss"
                            : form < 4 ? "step 41|gradient norm|is above|the median of 32 steps + 50 deviations|grew the gradient of|rank 1"
                                       : "step 41|loss|is above|1.10854, the median of 32 steps + 50 deviations|grew the gradient of|rank ";
        spoiler s = { 40, 1, 3, HET_BACKWARD, INFINITY };
        support_run run;
        support_group group;
        het_step_info info;
        heard h;
        uint64_t hash;
        int32_t exponents[64];
        het_ctx *ctx;
        int step;
        memset(&h, 0, sizeof h);
        start(&run, 2);
        if (spike) s.factor = 1e4f;
        if (form == 4) s.step = -1;
        run.desc.guard.spike = 50.0;
        run.desc.guard.skip_bad_steps = skips ? HET_YES : HET_NO;
        run.desc.host.hook = spoil;
        run.desc.host.user = &s;
        run.desc.host.logger.log = hear;
        run.desc.host.logger.user = &h;
        ctx = support_create(&run.desc);
        for (step = 0; step < 40; step++) (void)support_step(ctx, &run.data, step % 8, LAYOUT_APART);
        if (form == 4) pretend_small_losses(ctx, exponents);
        hash = support_hash(ctx);
        support_group_start(&group, &run.data, 0, LAYOUT_APART);
        if (skips) {
            EXPECT_OK(het_step(ctx, group.batch, group.count, &info));
            assert_int_equal(info.skipped, 1);
            assert_int_equal(h.lines, 1);
            support_expect(h.code, spike ? HET_ERR_SPIKE : HET_ERR_NOT_FINITE, h.text, words, "the log", __LINE__);
            assert_int_equal(het_get_step(ctx), 41);
        } else {
            EXPECT_ERROR(het_step(ctx, group.batch, group.count, &info), spike ? HET_ERR_SPIKE : HET_ERR_NOT_FINITE, het_last_error(ctx), words);
            assert_int_equal(het_get_step(ctx), 40);
        }
        assert_true(support_hash(ctx) == hash);
        s.step = -1;
        if (form == 4) EXPECT_OK(het_restore_end(ctx, HET_STATE_INCOMPLETE, 40, exponents, NULL)); /* nothing to judge by */
        EXPECT_OK(het_step(ctx, group.batch, group.count, &info));
        assert_int_equal(info.skipped, 0);
        support_group_end(&group);
        het_destroy(ctx);
        support_run_end(&run);
    }
}

/* Of 32 steps without a gradient the norm's limit is 0: any norm is a spike, none is not. */
static void norms_of_zero_have_a_limit(void **state)
{
    int32_t exponents[64];
    het_loss_history recent;
    support_run run;
    het_ctx *ctx;
    int i;
    (void)state;
    start(&run, 1);
    ctx = support_create(&run.desc);
    for (i = 0; i < HETRAIN_LOSS_HISTORY; i++) (void)support_step(ctx, &run.data, i % 8, LAYOUT_APART);
    pretend_small_losses(ctx, exponents);
    het_get_loss_history(ctx, &recent);
    for (i = 0; i < HETRAIN_LOSS_HISTORY; i++) recent.loss[i] = 100.0, recent.norm[i] = 0.0;
    EXPECT_OK(het_restore_end(ctx, HET_STATE_INCOMPLETE, 32, exponents, &recent));
    assert_int_equal(support_step(ctx, &run.data, 0, LAYOUT_APART).skipped, 1);
    het_destroy(ctx);
    support_run_end(&run);
}

/* Gradients alone are not judged. */
static void gradients_are_not_judged(void **state)
{
    spoiler s = { 40, 0, 3, HET_BACKWARD, 1e4f };
    support_run run;
    support_group group;
    het_ctx *ctx;
    int step;
    (void)state;
    start(&run, 1);
    run.desc.host.hook = spoil;
    run.desc.host.user = &s;
    run.desc.guard.spike = 50.0;
    ctx = support_create(&run.desc);
    for (step = 0; step < 40; step++) (void)support_step(ctx, &run.data, step % 8, LAYOUT_APART);
    support_group_start(&group, &run.data, 0, LAYOUT_APART);
    EXPECT_OK(het_gradients(ctx, group.batch, group.count, NULL));
    support_group_end(&group);
    het_destroy(ctx);
    support_run_end(&run);
}

/* ---- copies that differ ---- */

/* A CPU that flips a bit of a weight when a product (gain: a norm) reads it, once. */
typedef struct flipping { het_device_iface iface; int armed, gain; void *self; } flipping;
static flipping flip;

static het_result flip_create(const het_device_config *config, void **self)
{
    const het_result result = het_cpu_device()->create(config, self);
    flip.self = *self;
    return result;
}

static het_result flip_run(void *self, het_queue *queue, const het_op *op)
{
    if (flip.armed && self == flip.self && op->kind == (flip.gain ? HET_OP_NORM_FORWARD : HET_OP_LINEAR_FORWARD)) {
        float *w = (float *)(uintptr_t)(flip.gain ? op->u.norm.gain : op->u.linear.part[0].w) + 3;
        uint32_t bits;
        memcpy(&bits, w, sizeof bits);
        bits ^= 1u;
        memcpy(w, &bits, sizeof bits);
        flip.armed = 0;
    }
    return het_cpu_device()->run(self, queue, op);
}

static int one_frozen(void *user, const char *parameter) { (void)user; return strstr(parameter, "q_proj") != NULL; }

static void a_flipped_bit_is_found(void **state)
{
    char found[96] = "";
    int which;
    (void)state;
    for (which = 0; which < 4; which++) { /* on ranks 0 (where het_parameter_read shows it), 1, 2; on rank 1 in a step, in a frozen weight */
        const int rank = which < 3 ? which : 1;
        support_run run;
        support_group group;
        support_buffer file;
        het_writer to;
        het_ctx *ctx;
        float *before[64];
        char words[200];
        int64_t i;
        start(&run, 3);
        run.desc.guard.spike = 0.0;
        if (which == 3) run.desc.frozen = one_frozen;
        flip.iface = *het_cpu_device();
        flip.iface.create = flip_create;
        flip.iface.run = flip_run;
        run.device[rank].iface = &flip.iface;
        ctx = support_create(&run.desc);
        support_group_start(&group, &run.data, 0, LAYOUT_APART);
        EXPECT_OK(het_step(ctx, group.batch, group.count, NULL));
        EXPECT_OK(het_verify(ctx));
        assert_true(het_parameter_count(ctx) <= 64);
        for (i = 0; i < het_parameter_count(ctx); i++) {
            het_parameter_info p;
            EXPECT_OK(het_parameter_get_info(ctx, i, &p));
            before[i] = support_alloc((size_t)p.count, sizeof(float));
            EXPECT_OK(het_parameter_read(ctx, i, HET_WEIGHT, before[i]));
        }
        flip.armed = 1;
        if (which == 3) EXPECT_OK(het_step(ctx, group.batch, group.count, NULL));
        else EXPECT_OK(het_evaluate(ctx, group.batch, group.count, NULL));
        assert_int_equal(flip.armed, 0);
        for (i = 0; i < het_parameter_count(ctx) && which == 0; i++) {
            het_parameter_info p;
            float *now;
            EXPECT_OK(het_parameter_get_info(ctx, i, &p));
            now = support_alloc((size_t)p.count, sizeof(float));
            EXPECT_OK(het_parameter_read(ctx, i, HET_WEIGHT, now));
            if (memcmp(now, before[i], (size_t)p.count * sizeof *now) != 0) snprintf(found, sizeof found, "%s", p.name);
            free(now);
        }
        for (i = 0; i < het_parameter_count(ctx); i++) free(before[i]);
        assert_true(found[0] != 0);
        snprintf(words, sizeof words, "step %d|copies of %s (block |differ: rank %s against rank %d", which == 3 ? 2 : 1, found,
                 rank == 0 ? "1, 2" : rank == 1 ? "0, 2" : "0, 1", rank);
        EXPECT_ERROR(het_verify(ctx), HET_ERR_DEVICE, het_last_error(ctx), words);
        assert_true((het_get_status(ctx) & HET_FAILED) != 0);
        assert_true(het_step(ctx, group.batch, group.count, NULL) != HET_OK);
        support_buffer_start(&file);
        to = support_writer(&file);
        assert_true(het_save_weights(ctx, &to) != HET_OK);
        assert_int_equal(file.size, 0);
        support_buffer_end(&file);
        support_group_end(&group);
        het_destroy(ctx);
        support_run_end(&run);
    }
}

/* Also where a rank computes with versions, or in a team by columns with what the team does not divide. Who has no whole copy is not named. */
static void copies_in_boxes_are_compared(void **state)
{
    static const struct { const char *plan, *words; int updates; } cases[] = {
        { "dp", "q_proj.weight (block |differ: rank 0 against rank 1", 2 }, { "tp2", "norm.weight (block |differ: rank 0 against rank 1", 1 },
        { "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,8]}]},{\"stages\":[{\"rank\":1,\"units\":[0,8]}]}],\"keepers\":[2,3]}",
          "q_proj.weight (block |differ: rank 0 against rank 1", 1 }
    };
    (void)state;
    for (int i = 0; i < 3; i++) {
        support_run run;
        support_group group;
        het_ctx *ctx;
        start(&run, i < 2 ? 2 : 4);
        run.desc.guard.spike = 0.0;
        run.desc.guard.skip_bad_steps = HET_NO;
        run.desc.optimizer.clip = -1.0f;
        support_run_plan(&run, cases[i].plan, "1f1b", 1);
        run.plan->updates = cases[i].updates;
        flip.iface = *het_cpu_device();
        flip.iface.create = flip_create;
        flip.iface.run = flip_run;
        flip.gain = i == 1;
        run.device[1].iface = &flip.iface;
        ctx = support_create(&run.desc);
        support_group_start(&group, &run.data, 0, LAYOUT_APART);
        EXPECT_OK(het_step(ctx, group.batch, group.count, NULL));
        EXPECT_OK(het_verify(ctx));
        flip.armed = 1;
        EXPECT_OK(het_evaluate(ctx, group.batch, group.count, NULL));
        assert_int_equal(flip.armed, 0);
        EXPECT_ERROR(het_verify(ctx), HET_ERR_DEVICE, het_last_error(ctx), cases[i].words);
        flip.gain = 0;
        support_group_end(&group);
        het_destroy(ctx);
        support_run_end(&run);
    }
}

/* Where nothing is wrong nothing is found, whatever the layout, and no bit changes. */
static void whole_copies_are_left_alone(void **state)
{
    static const char *const plans[] = { "dp", "pp", "dp2xpp2" };
    uint64_t seed = 9;
    int i;
    (void)state;
    for (i = 0; i < 6; i++) {
        support_run run;
        het_ctx *ctx;
        uint64_t hash;
        start(&run, 4);
        support_run_mixed(&run, i % 4, &seed);
        support_run_plan(&run, plans[i % 3], "1f1b", 1);
        if (i >= 3) run.desc.inference = HET_YES;
        ctx = support_create(&run.desc);
        if (i < 3) (void)support_step(ctx, &run.data, 0, LAYOUT_APART);
        hash = support_hash(ctx);
        EXPECT_OK(het_verify(ctx));
        assert_true(support_hash(ctx) == hash);
        if (i < 3) (void)support_step(ctx, &run.data, 1, LAYOUT_APART);
        EXPECT_OK(het_verify(ctx));
        het_destroy(ctx);
        support_run_end(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spikes_are_those_of_the_definition),
        cmocka_unit_test(layouts_skip_the_same_steps),
        cmocka_unit_test(a_resumed_run_skips_the_same_steps),
        cmocka_unit_test(recent_steps_are_checked),
        cmocka_unit_test(bad_steps_name_parameter_unit_and_rank),
        cmocka_unit_test(norms_of_zero_have_a_limit),
        cmocka_unit_test(gradients_are_not_judged),
        cmocka_unit_test(a_flipped_bit_is_found),
        cmocka_unit_test(copies_in_boxes_are_compared),
        cmocka_unit_test(whole_copies_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
