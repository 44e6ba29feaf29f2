/* Memory: every allocation may fail, everything is freed with its size, nothing is allocated in a step, and the estimate is exact. */
#include "support.h"
#include "hetrain_plan.h"

#include "hetrain_files.h"

typedef struct fixture {
    support_memory memory;
    support_batch batch[2];
    het_batch batches[2];
    support_buffer weights, state, tokens;
    het_device_desc device;
    het_desc desc;
} fixture;

static void fixture_start(fixture *f, het_family family)
{
    int i;
    memset(f, 0, sizeof *f);
    f->desc.host.allocator = support_allocator(&f->memory);
    f->desc.model = support_model(family);
    f->device.threads = 2;
    f->desc.layout.devices = &f->device;
    f->desc.layout.device_count = 1;
    f->desc.limits.max_tokens = 64;
    f->desc.limits.max_micro_batches = 2;
    for (i = 0; i < 2; i++) {
        support_batch_start(&f->batch[i]);
        support_batch_sequence(&f->batch[i], 20, f->desc.model.vocab, i, 5);
        support_batch_sequence(&f->batch[i], 31, f->desc.model.vocab, i, 6);
        f->batches[i] = f->batch[i].batch;
    }
    support_buffer_start(&f->weights);
    support_buffer_start(&f->state);
    support_buffer_start(&f->tokens);
    for (i = 0; i < 500; i++) {
        unsigned char byte = (unsigned char)(i * 7 % 50);
        support_buffer_append(&f->tokens, &byte, 1);
    }
}

static void fixture_end(fixture *f)
{
    support_batch_end(&f->batch[0]);
    support_batch_end(&f->batch[1]);
    support_buffer_end(&f->weights);
    support_buffer_end(&f->state);
    support_buffer_end(&f->tokens);
    assert_int_equal(f->memory.live, 0);
    assert_int_equal(f->memory.bytes, 0);
    assert_int_equal(f->memory.wrong, 0);
}

/* ---- failing allocations ---- */

/* HET_OK goes on, HET_ERR_OOM ends the attempt, anything else is wrong. */
#define ATTEMPT(call) \
    do { \
        het_result got_ = (call); \
        if (got_ == HET_ERR_OOM) { result = got_; goto done; } \
        if (got_ != HET_OK) fail_msg("%s gave %s", #call, het_result_text(got_)); \
    } while (0)

static het_result whole_life(fixture *f)
{
    het_result result = HET_OK;
    het_ctx *ctx = NULL, *other = NULL;
    het_data *data = NULL;
    het_data_desc data_desc;
    het_data_info data_info;
    het_error error;
    het_memory memory;
    het_writer weights_out, state_out;
    het_reader weights_in, state_in;
    het_batch batch;
    uint64_t hash;
    het_description *description = NULL;
    float *logits = support_floats(f->desc.model.vocab, 1.0, 1);

    f->weights.size = f->state.size = 0;
    weights_out = support_writer(&f->weights);
    state_out = support_writer(&f->state);
    memset(&data_desc, 0, sizeof data_desc);
    data_desc.reader = support_reader(&f->tokens);
    data_desc.format = HET_DATA_BYTES;
    data_desc.vocab = f->desc.model.vocab;
    data_desc.length = 16;
    data_desc.sequences = 2;
    data_desc.allocator = f->desc.host.allocator;

    memset(&error, 0, sizeof error);
    ATTEMPT(het_memory_estimate(&f->desc, 0, &memory, &error));
    ATTEMPT(het_describe(&f->desc, &description, &error));
    ATTEMPT(het_create(&f->desc, &ctx, &error));
    ATTEMPT(het_step(ctx, f->batches, 2, NULL));
    ATTEMPT(het_gradients(ctx, f->batches, 2, NULL));
    ATTEMPT(het_evaluate(ctx, f->batches, 1, NULL));
    ATTEMPT(het_infer(ctx, f->batch[0].token, 5, 0, logits));
    ATTEMPT(het_save_weights(ctx, &weights_out));
    ATTEMPT(het_save_state(ctx, &state_out));
    ATTEMPT(het_create(&f->desc, &other, &error));
    weights_in = support_reader(&f->weights);
    state_in = support_reader(&f->state);
    ATTEMPT(het_load_weights(other, &weights_in));
    ATTEMPT(het_load_state(other, &state_in));
    ATTEMPT(het_hash(other, &hash));
    ATTEMPT(het_data_open(&data_desc, &data, &error));
    het_data_get_info(data, &data_info);
    ATTEMPT(het_data_batch(data, 0, 0, 1, 0, &batch, &error));
    ATTEMPT(het_step(other, &batch, 1, NULL));
done:
    if (result != HET_OK && f->memory.calls > 0) {
        /* what failed left nothing behind: outputs of failed creations are NULL, the others can be destroyed */
        if (f->memory.live == 0) assert_true(ctx == NULL && other == NULL && data == NULL && description == NULL);
    }
    het_data_close(data);
    het_destroy(other);
    het_destroy(ctx);
    het_description_free(description);
    free(logits);
    return result;
}

static void every_allocation_fails_once(void **state)
{
    static const het_family families[] = { HET_GPT2, HET_QWEN3 };
    int i;
    (void)state;
    for (i = 0; i < 2; i++) {
        fixture f;
        int64_t k;
        het_result result;
        fixture_start(&f, families[i]);
        f.desc.layout.backward = i ? HET_BACKWARD_DEFERRED : HET_BACKWARD_FUSED;
        for (k = 0; k < 10000; k++) {
            f.memory.calls = 0;
            f.memory.fail_at = k;
            result = whole_life(&f);
            assert_int_equal(f.memory.live, 0);
            assert_int_equal(f.memory.bytes, 0);
            assert_int_equal(f.memory.wrong, 0);
            if (result == HET_OK) break;
            assert_int_equal(result, HET_ERR_OOM);
        }
        assert_true(k >= 5 && k == f.memory.calls);
        print_message("%d allocations\n", (int)k);
        fixture_end(&f);
    }
}

static void outputs_are_null_after_a_failure(void **state)
{
    fixture f;
    het_ctx *ctx;
    het_data *data;
    het_data_desc data_desc;
    het_error error;
    int64_t k;
    (void)state;
    fixture_start(&f, HET_GPT2);
    for (k = 0; k < 10000; k++) {
        het_result result;
        int mark;
        f.memory.calls = 0;
        f.memory.fail_at = k;
        ctx = (het_ctx *)(void *)&mark;
        result = het_create(&f.desc, &ctx, &error);
        if (result == HET_OK) break;
        EXPECT_ERROR(result, HET_ERR_OOM, error.text, "");
        assert_true(strlen(error.text) > 10);
        assert_int_equal(error.code, HET_ERR_OOM);
        assert_null(ctx);
        assert_int_equal(f.memory.live, 0);
    }
    het_destroy(ctx);
    memset(&data_desc, 0, sizeof data_desc);
    data_desc.reader = support_reader(&f.tokens);
    data_desc.allocator = f.desc.host.allocator;
    data_desc.length = 16;
    data_desc.sequences = 2;
    for (k = 0; k < 10000; k++) {
        het_result result;
        int mark;
        f.memory.calls = 0;
        f.memory.fail_at = k;
        data = (het_data *)(void *)&mark;
        result = het_data_open(&data_desc, &data, &error);
        if (result == HET_OK) break;
        EXPECT_ERROR(result, HET_ERR_OOM, error.text, "");
        assert_null(data);
        assert_int_equal(f.memory.live, 0);
    }
    assert_true(k > 0);
    het_data_close(data);
    fixture_end(&f);
}

/* ---- no allocation in a step ---- */

static void steps_do_not_allocate(void **state)
{
    static const het_backward backward[] = { HET_BACKWARD_FUSED, HET_BACKWARD_SPLIT, HET_BACKWARD_DEFERRED };
    int i, s;
    (void)state;
    for (i = 0; i < 3; i++) {
        fixture f;
        het_ctx *ctx;
        int64_t calls;
        float logits[61];
        fixture_start(&f, HET_LLAMA);
        f.desc.layout.backward = backward[i];
        f.desc.limits.max_slices = 1 + i;
        ctx = support_create(&f.desc);
        calls = f.memory.calls;
        for (s = 0; s < 4; s++) {
            EXPECT_OK(het_step(ctx, f.batches, 1 + s % 2, NULL));
            EXPECT_OK(het_gradients(ctx, f.batches, 2, NULL));
            EXPECT_OK(het_evaluate(ctx, f.batches, 2, NULL));
            EXPECT_OK(het_infer(ctx, f.batch[0].token, 7, 0, logits));
            (void)support_hash(ctx);
        }
        assert_int_equal(f.memory.calls, calls);
        het_destroy(ctx);
        fixture_end(&f);
    }
}

/* ---- the estimate ---- */

static void check_estimate(fixture *f)
{
    het_memory estimate, asked;
    het_error error;
    het_ctx *ctx;
    size_t before;
    error.text[0] = 0;
    EXPECT_ERROR(het_memory_estimate(&f->desc, 0, &estimate, &error), HET_OK, error.text, "");
    assert_int_equal(f->memory.live, 0);
    f->memory.peak = 0;
    ctx = support_create(&f->desc);
    het_get_memory(ctx, 0, &asked);
    assert_memory_equal(&estimate, &asked, sizeof asked);
    assert_int_equal(estimate.device, estimate.weights + estimate.gradients + estimate.optimizer + estimate.activations + estimate.workspace);
    before = f->memory.peak;
    if (f->desc.inference != HET_YES) {
        EXPECT_OK(het_step(ctx, f->batches, 2, NULL));
        EXPECT_OK(het_step(ctx, f->batches, 2, NULL));
    }
    assert_int_equal(f->memory.peak, before);
    if (estimate.host + estimate.device != f->memory.peak) {
        fail_msg("the estimate is %lu + %lu bytes, the most that was allocated %lu", (unsigned long)estimate.host, (unsigned long)estimate.device,
                 (unsigned long)f->memory.peak);
    }
    het_destroy(ctx);
}

static void estimates_are_exact(void **state)
{
    static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_QWEN2, HET_QWEN3, HET_NEOX };
    int i;
    (void)state;
    for (i = 0; i < 40; i++) {
        het_plan *plan = NULL;
        fixture f;
        fixture_start(&f, families[i % 5]);
        f.device.threads = 1 + i % 3;
        f.desc.layout.backward = (het_backward)(HET_BACKWARD_FUSED + i % 3);
        f.desc.layout.recompute = i % 4 < 2 ? HET_NO : HET_YES;
        f.desc.limits.max_slices = 1 + i % 7 / 2;
        f.desc.reduce = i % 11 == 3 ? HET_REDUCE_FAST : HET_REDUCE_EXACT;
        f.desc.dtype = i % 6 == 5 ? HET_BF16 : HET_F32;
        f.desc.limits.max_tokens = 64 + 40 * (i % 3);
        f.desc.inference = i % 13 == 12 ? HET_YES : HET_NO;
        if (i % 5 == i / 5 % 5) { /* each family once or twice, as a whole */
            plan = support_plan("dp", NULL, 2 * f.desc.model.layers + 2, 1, f.desc.limits.max_slices);
            plan->stage[0].recompute = HET_RECOMPUTE_STAGE;
            if (i % 2) plan->stage[0].keep = 1;
            f.desc.layout.plan = plan;
        }
        check_estimate(&f);
        het_plan_free(plan);
        fixture_end(&f);
    }
}

/* What a stage's first slices, or its last ones, keep beside what all do: each takes a slot of its own size. */
static void slices_that_keep_all(void **state)
{
    static const struct { int32_t recompute; uint64_t keep; } ways[] = { { HET_RECOMPUTE_NONE, 0 }, { HET_RECOMPUTE_UNIT, 15 },
        { HET_RECOMPUTE_UNIT, 7 }, { HET_RECOMPUTE_UNIT, 14 }, { HET_RECOMPUTE_UNIT, 8 }, { HET_RECOMPUTE_UNIT, 0 },
        { HET_RECOMPUTE_STAGE, 7 }, { HET_RECOMPUTE_STAGE, 8 }, { HET_RECOMPUTE_STAGE, 0 } };
    double taken[sizeof ways / sizeof *ways];
    size_t i;
    fixture f;
    (void)state;
    fixture_start(&f, HET_LLAMA);
    f.desc.limits.max_slices = 4;
    for (i = 0; i < sizeof ways / sizeof *ways; i++) {
        het_plan *plan = support_plan("dp", "gpipe", 2 * f.desc.model.layers + 2, 1, 4);
        het_memory memory;
        het_error error;
        plan->stage[0].recompute = ways[i].recompute;
        plan->stage[0].keep = ways[i].keep;
        f.desc.layout.plan = plan;
        check_estimate(&f);
        EXPECT_ERROR(het_memory_estimate(&f.desc, 0, &memory, &error), HET_OK, error.text, "");
        taken[i] = (double)memory.activations;
        plan->stage[0].keep = 16;
        EXPECT_ERROR(het_plan_check(plan, "here", &error), HET_ERR_INVALID, error.text, "here: pipeline 0, stage 0: keep is 0x10; there are 4");
        het_plan_free(plan);
    }
    assert_true(taken[1] == taken[0] && taken[3] == taken[2]);
    for (i = 0; i < 3; i++) { /* three quarters, a quarter and nothing of what recomputing all saves */
        const double part = i == 0 ? 0.25 : i == 1 ? 0.75 : 1, saved = taken[0] - taken[i == 0 ? 2 : 3 + i];
        assert_true(fabs(saved - part * (taken[0] - taken[5])) < 1024);
    }
    assert_true(taken[6] < taken[2] && taken[7] < taken[6] && taken[8] < taken[7] && taken[8] < taken[5]);
    fixture_end(&f);
}

/* A stage's first units recompute: as much as where the description names these, and less the more they are. */
static void first_units_recompute(void **state)
{
    fixture f;
    int units;
    size_t before = SIZE_MAX;
    (void)state;
    fixture_start(&f, HET_LLAMA);
    for (units = 1; units <= 2 * f.desc.model.layers + 1; units++) {
        het_plan *plan = support_plan("dp", "1f1b", 2 * f.desc.model.layers + 2, 1, 1);
        uint8_t named[32];
        het_memory memory[2];
        het_error error;
        plan->stage[0].recompute = HET_RECOMPUTE_UNIT, plan->stage[0].recompute_units = units;
        f.desc.layout.plan = plan;
        check_estimate(&f);
        EXPECT_ERROR(het_memory_estimate(&f.desc, 0, &memory[0], &error), HET_OK, error.text, "");
        plan->stage[0].recompute = HET_RECOMPUTE_NONE, plan->stage[0].recompute_units = 0;
        memset(named, 0, sizeof named);
        memset(named, 1, (size_t)units);
        f.desc.layout.recompute_unit = named;
        EXPECT_ERROR(het_memory_estimate(&f.desc, 0, &memory[1], &error), HET_OK, error.text, "");
        f.desc.layout.recompute_unit = NULL;
        assert_true(memory[0].activations == memory[1].activations && memory[0].device == memory[1].device);
        assert_true(memory[0].activations <= before && (units < 3 || memory[0].activations < before));
        before = memory[0].activations;
        plan->stage[0].recompute_units = 1;
        EXPECT_ERROR(het_plan_check(plan, "here", &error), HET_ERR_INVALID, error.text, "here: pipeline 0, stage 0: 1 of 0 units recompute");
        plan->stage[0].recompute = HET_RECOMPUTE_UNIT, plan->stage[0].recompute_units = -1;
        EXPECT_ERROR(het_plan_check(plan, "here", &error), HET_ERR_INVALID, error.text, "here: pipeline 0, stage 0: -1 of");
        het_plan_free(plan);
    }
    fixture_end(&f);
}

/* Plans and lists of more than memory holds are errors, whichever number it is. */
static void more_than_there_is(void **state)
{
    static const int64_t many[] = { -1, INT64_MIN, INT64_MAX, INT64_MAX / 8 };
    size_t i, k;
    (void)state;
    for (i = 0; i < 4; i++)
        for (k = 0; k < 6; k++) {
            het_plan shape, *plan = NULL;
            het_schedule *lists = NULL;
            het_error error;
            support_memory memory[2];
            const het_allocator none[2] = { support_allocator(&memory[0]), support_allocator(&memory[1]) }; /* sanitizers end what asks for so much */
            int64_t *const number[] = { &shape.units, &shape.ranks, &shape.pipelines, &shape.stages, &shape.slices, &shape.members };
            const int64_t n[3] = { k == 0 ? many[i] : 1, k == 1 ? many[i] : 1, k == 2 ? many[i] : 1 };
            memset(&shape, 0, sizeof shape);
            memory[0].fail_at = memory[1].fail_at = 0;
            *number[k] = many[i];
            assert_true(het_plan_new(&shape, &none[0], "here", &plan, &error) == HET_ERR_LIMIT || error.code == HET_ERR_OOM);
            if (k < 3) assert_true(het_schedule_new(n[0], n[1], n[2], &none[1], "here", &lists, &error) < 0);
            assert_true(plan == NULL && lists == NULL && strncmp(error.text, "here: ", 6) == 0);
        }
}

/* A stage says it of 64 slices; those behind them recompute. */
static void slices_beyond_the_flags(void **state)
{
    het_plan *plan = support_plan("dp", "gpipe", 6, 1, 70);
    const int64_t micro_batches = 2;
    het_schedule *lists = NULL;
    het_needs needs;
    (void)state;
    plan->stage[0].recompute = HET_RECOMPUTE_UNIT, plan->stage[0].keep = UINT64_MAX;
    EXPECT_OK(het_plan_check(plan, "here", NULL));
    EXPECT_OK(het_schedule_make(plan, &micro_batches, NULL, &lists, NULL));
    EXPECT_OK(het_schedule_needs(plan, lists, 0, 1, 0, NULL, &needs, NULL));
    assert_true(needs.slots == 128 && needs.lean == 12);
    het_schedule_free(lists);
    het_plan_free(plan);
}

/* The layouts of a file in words, with what each rank needed when they were written down: a changed figure is to be explained. */
static void layout_describe(const char *options, het_desc *desc)
{
    desc->layout.shard = strstr(options, "zero2") != NULL ? HET_SHARD_GRADIENTS : HET_SHARD_STATE;
    desc->layout.recompute = strstr(options, "recompute") != NULL ? HET_YES : HET_NO;
    desc->weights = strstr(options, "bf16") != NULL ? HET_BF16 : HET_F32;
    desc->dtype = strstr(options, "compute") != NULL ? HET_BF16 : HET_F32;
    desc->inference = strstr(options, "inference") != NULL ? HET_YES : HET_NO;
    desc->reduce = strstr(options, "fast") != NULL ? HET_REDUCE_FAST : HET_REDUCE_EXACT;
    desc->layout.backward = strstr(options, "deferred") != NULL ? HET_BACKWARD_DEFERRED : strstr(options, "split") != NULL ? HET_BACKWARD_SPLIT :
        HET_BACKWARD_FUSED;
}

static void layout_check(const char *line, het_desc *desc, int64_t ranks, const char *figures)
{
    het_error error;
    het_memory m;
    int64_t r;
    for (r = 0; r < ranks; r++) {
        unsigned long want[6];
        int used = 0;
        if (sscanf(figures, " : %lu %lu %lu %lu %lu %lu%n", want, want + 1, want + 2, want + 3, want + 4, want + 5, &used) != 6)
            fail_msg("no figures of rank %d in %s", (int)r, line);
        figures += used;
        EXPECT_ERROR(het_memory_estimate(desc, r, &m, &error), HET_OK, error.text, "");
        if (m.weights != want[0] || m.gradients != want[1] || m.optimizer != want[2] || m.activations != want[3] || m.workspace != want[4] ||
            m.communication != want[5])
            fail_msg("rank %d needs %lu %lu %lu %lu %lu %lu bytes, not what is in %s", (int)r, (unsigned long)m.weights, (unsigned long)m.gradients,
                     (unsigned long)m.optimizer, (unsigned long)m.activations, (unsigned long)m.workspace, (unsigned long)m.communication, line);
    }
}

static void layouts_need_what_they_did(void **state)
{
    FILE *file = fopen("tests/data/memory_layouts.txt", "r");
    het_device_desc devices[8];
    char line[1024], model[128], plan_text[16], schedule[32], options[32];
    int i, ranks, slices, tokens, batches, used, layouts = 0;
    (void)state;
    assert_non_null(file);
    memset(devices, 0, sizeof devices);
    for (i = 0; i < 8; i++)
        devices[i].iface = het_reference_device();
    while (fgets(line, sizeof line, file)) {
        het_plan *plan = NULL;
        het_plan_desc plan_desc;
        het_error error;
        het_desc desc;
        if (line[0] == '#')
            continue;
        assert_int_equal(sscanf(line, "%127s %15s %31s %d %d %d %d %31s%n", model, plan_text, schedule, &ranks, &slices, &tokens, &batches, options,
                                &used), 8);
        memset(&desc, 0, sizeof desc);
        memset(&plan_desc, 0, sizeof plan_desc);
        EXPECT_ERROR(het_model_parse(model, &desc.model, &error), HET_OK, error.text, "");
        desc.layout.devices = devices;
        desc.layout.device_count = plan_desc.ranks = ranks;
        desc.limits.max_tokens = tokens;
        desc.limits.max_micro_batches = batches;
        layout_describe(options, &desc);
        plan_desc.units = 2 * desc.model.layers + 2;
        plan_desc.schedule = schedule;
        plan_desc.slices = slices;
        EXPECT_ERROR(het_plan_read(&plan_desc, plan_text, strlen(plan_text), &plan, &error), HET_OK, error.text, "");
        desc.layout.plan = plan;
        layout_check(line, &desc, ranks, line + used);
        het_plan_free(plan);
        layouts++;
    }
    assert_int_equal(layouts, 66);
    (void)fclose(file);
}

/* More than 2^31 elements and more than 2^32 bytes: sizes are computed, never allocated. */
static void estimate_of_large_models(void **state)
{
    het_error error;
    het_memory m;
    het_desc desc;
    (void)state;
    memset(&desc, 0, sizeof desc);
    EXPECT_ERROR(het_model_parse("llama3:8b", &desc.model, &error), HET_OK, error.text, "");
    desc.limits.max_tokens = 8192;
    EXPECT_ERROR(het_memory_estimate(&desc, 0, &m, &error), HET_OK, error.text, "");
    assert_true(m.parameters > INT64_C(8000000000) && m.parameters < INT64_C(8100000000));
    assert_true(m.weights >= (size_t)m.parameters * 4 && m.weights < (size_t)m.parameters * 4 + ((size_t)1 << 24));
    assert_true(m.gradients >= (size_t)m.parameters * 8);
    assert_true(m.optimizer >= (size_t)m.parameters * 8);
    assert_true(m.saving == (size_t)m.parameters * 12); /* weights and two slots of state */
    EXPECT_ERROR(het_model_parse("gpt2:1558m", &desc.model, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_memory_estimate(&desc, 0, &m, &error), HET_OK, error.text, "");
    assert_int_equal(m.parameters, 1557611200);
    EXPECT_ERROR(het_model_parse("gpt2:124m", &desc.model, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_memory_estimate(&desc, 0, &m, &error), HET_OK, error.text, "");
    assert_int_equal(m.parameters, 124439808);
}

/* One of many processes, the others of which have as many ranks each: it only counts them. */
static struct { int64_t processes, ranks, heard; } far;

static int64_t far_processes(void *self) { (void)self; return far.processes; }
static int64_t far_process(void *self) { (void)self; return 0; }
static het_result far_send(void *self, int64_t to, uint32_t channel, const void *data, size_t size, het_request *request)
{
    (void)self, (void)to, (void)channel, (void)data, (void)size, (void)request;
    return HET_OK;
}
static het_result far_receive(void *self, int64_t from, uint32_t channel, void *data, size_t size, het_request *request)
{
    (void)self, (void)from, (void)channel, (void)request;
    memset(data, 0, size); /* no places, no limits; first of all how many ranks */
    if (++far.heard < far.processes) memcpy(data, &far.ranks, sizeof far.ranks);
    return HET_OK;
}
static het_result far_test(void *self, het_request *request, int32_t *done) { (void)self, (void)request; *done = 1; return HET_OK; }
static double far_silence(void *self, int64_t process) { (void)self, (void)process; return 0; }
static void far_abort(void *self, het_result code, const char *text) { (void)self, (void)code, (void)text; }
static het_result far_aborted(void *self, int64_t *process, char *text, size_t size)
{
    (void)self, (void)process, (void)text, (void)size;
    return HET_OK;
}
static const char *far_error(void *self) { (void)self; return ""; }
static const het_transport_iface far_iface = {
    HETRAIN_TRANSPORT_VERSION, "far", far_processes, far_process, far_send, far_receive, far_test, far_silence, far_abort, far_aborted, far_error
};

/* A million tokens in a pipeline of eight, and a model of 70e9 parameters over up to 10,000 ranks: in no layout is more asked for than 100 MB. */
static void estimates_take_no_memory(void **state)
{
#define LARGE "llama:layers=80,width=8192,heads=64,kv_heads=8,mlp_width=28672,vocab=128256,context=8192"
    static const struct {
        const char *model;
        int64_t tokens, micro_batches, ranks, rank;
        const char *plan;
        het_shard shard; /* of weights: in near sets of 8 */
        int64_t processes;
        double host, device;
        size_t most;
    } cases[] = {
        { "gpt2:124m", 1000000, 64, 8, 0, "pp", HET_SHARD_STATE, 1, 3e8, 1e11, 63000000 },
        { LARGE, 8192, 8, 64, 0, "dp", HET_SHARD_STATE, 1, 1e6, 1e12, 63000000 },
        { "gpt2:124m", 2048, 10000, 10000, 0, "dp", HET_SHARD_STATE, 1, 4e9, 1e9, 100000000 },
        { LARGE, 8192, 5000, 10000, 9999, "dp1250xpp8", HET_SHARD_STATE, 1, 1e4, 1e11, 100000000 },
        { LARGE, 8192, 4992, 9984, 5, "dp208xpp6xtp8", HET_SHARD_STATE, 1, 1e4, 1e11, 100000000 },
        { LARGE, 8192, 122, 10000, 0, "dp", HET_SHARD_STATE, 1, 5e9, 1e12, 100000000 },
        { LARGE, 8192, 122, 10000, 9999, "dp", HET_SHARD_GRADIENTS, 1, 1e11, 5e11, 100000000 },
        { LARGE, 8192, 122, 10000, 7, "dp", HET_SHARD_WEIGHTS, 1, 1e11, 3e11, 100000000 },
        { LARGE, 8192, 2500, 10000, 5, "dp2500xpp4", HET_SHARD_STATE, 1, 1e4, 1e11, 100000000 },
        { LARGE, 8192, 122, 10000, 3, "dp1250xtp8", HET_SHARD_STATE, 1, 1e10, 2e11, 100000000 },
        { LARGE, 8192, 122, 10000, 9999, "dp1250xcp8", HET_SHARD_STATE, 1, 1e8, 8e11, 100000000 },
        { LARGE, 8192, 122, 10000, 4, "dp1250xhp8", HET_SHARD_STATE, 1, 1e8, 8e11, 100000000 },
        { LARGE, 8192, 122, 10000, 7, "dp", HET_SHARD_STATE, 1250, 5e9, 1e12, 100000000 },
        { LARGE, 8192, 5000, 10000, 7, "dp1250xpp8", HET_SHARD_STATE, 1250, 1e4, 1e11, 100000000 }
    };
#undef LARGE
    het_device_desc *devices = (het_device_desc *)calloc(10000, sizeof *devices);
    int64_t r;
    size_t i;
    (void)state;
    assert_non_null(devices);
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        support_memory memory;
        het_plan_desc plan;
        het_error error;
        het_memory m;
        het_desc desc;
        het_plan *made = NULL;
        memset(&desc, 0, sizeof desc);
        memset(&plan, 0, sizeof plan);
        EXPECT_ERROR(het_model_parse(cases[i].model, &desc.model, &error), HET_OK, error.text, "");
        desc.limits.max_tokens = cases[i].tokens;
        desc.limits.max_micro_batches = cases[i].micro_batches;
        desc.layout.devices = devices;
        desc.layout.device_count = far.ranks = cases[i].ranks / cases[i].processes;
        far.processes = cases[i].processes;
        far.heard = 0;
        desc.layout.transport.iface = far.processes > 1 ? &far_iface : NULL;
        plan.units = 2 * desc.model.layers + 2;
        plan.ranks = cases[i].ranks;
        EXPECT_OK(het_model_complete(&desc.model, NULL));
        plan.heads = desc.model.kv_heads;
        EXPECT_ERROR(het_plan_read(&plan, cases[i].plan, strlen(cases[i].plan), &made, &error), HET_OK, error.text, "");
        desc.layout.plan = made;
        desc.layout.shard = cases[i].shard;
        for (r = 0; r < made->ranks && desc.layout.shard == HET_SHARD_WEIGHTS; r++)
            made->near[r] = r / 8;
        desc.host.allocator = support_allocator(&memory);
        EXPECT_ERROR(het_memory_estimate(&desc, cases[i].rank, &m, &error), HET_OK, error.text, "");
        assert_true((double)m.host > cases[i].host && (double)m.device > cases[i].device);
        print_message("# %s on %d ranks: %.0f MB asked for\n", cases[i].plan, (int)cases[i].ranks, 1e-6 * (double)memory.peak);
        assert_true(memory.peak < cases[i].most);
        assert_int_equal(memory.live, 0);
        assert_int_equal(memory.wrong, 0);
        het_plan_free(made);
    }
    free(devices);
}

static void memory_limit_refuses(void **state)
{
    fixture f;
    het_memory m;
    het_error error;
    het_ctx *ctx = NULL;
    (void)state;
    fixture_start(&f, HET_GPT2);
    EXPECT_OK(het_memory_estimate(&f.desc, 0, &m, &error));
    f.device.memory_limit = m.device - 1;
    EXPECT_ERROR(het_create(&f.desc, &ctx, &error), HET_ERR_LIMIT, error.text, "device cpu|1 bytes more than its memory_limit of");
    assert_null(ctx);
    assert_int_equal(f.memory.live, 0);
    f.device.memory_limit = m.device;
    het_destroy(support_create(&f.desc));
    fixture_end(&f);
}

/* ---- descriptions ---- */

static void zeroed_and_null_descriptions_train(void **state)
{
    het_ctx *a, *b;
    het_desc desc, filled;
    support_batch batch;
    het_error error;
    (void)state;
    memset(&desc, 0, sizeof desc);
    a = support_create(&desc);
    b = NULL;
    EXPECT_ERROR(het_create(NULL, &b, &error), HET_OK, error.text, "");
    assert_true(support_hash(a) == support_hash(b));
    support_batch_start(&batch);
    support_batch_sequence(&batch, 100, 256, 0, 1);
    EXPECT_OK(het_step(a, &batch.batch, 1, NULL));
    EXPECT_OK(het_step(b, &batch.batch, 1, NULL));
    assert_true(support_hash(a) == support_hash(b));
    /* the filled copy says what was used */
    memset(&filled, 0, sizeof filled);
    het_desc_defaults(&filled);
    assert_int_equal(filled.model.layers, 4);
    assert_int_equal(filled.model.width, 128);
    assert_int_equal(filled.model.vocab, 256);
    assert_int_equal(filled.model.context, 128);
    assert_int_equal(filled.limits.max_tokens, 512);
    assert_int_equal(filled.limits.max_sequences, 512);
    assert_int_equal(filled.limits.max_micro_batches, 8);
    assert_int_equal(filled.limits.max_slices, 1);
    assert_int_equal(filled.dtype, HET_F32);
    assert_int_equal(filled.reduce, HET_REDUCE_EXACT);
    assert_int_equal(filled.layout.backward, HET_BACKWARD_FUSED);
    assert_true(filled.optimizer.learning_rate == 6e-4f && filled.optimizer.beta1 == 0.9f && filled.optimizer.beta2 == 0.95f);
    assert_true(filled.optimizer.weight_decay == 0.1f && filled.optimizer.clip == 1.0f && filled.optimizer.epsilon == 1e-8f);
    assert_int_equal(filled.optimizer.total_steps, 1000);
    assert_int_equal(filled.optimizer.schedule, HET_LR_COSINE);
    assert_int_equal(het_get_desc(a)->limits.max_tokens, 512);
    assert_int_equal(het_get_desc(a)->model.heads, 4);
    support_batch_end(&batch);
    het_destroy(a);
    het_destroy(b);
    het_destroy(NULL);
}

/* A description that nobody zeroed is caught by its canaries, whatever garbage it holds. */
static void garbage_is_refused(void **state)
{
    het_desc desc;
    het_data_desc data;
    het_train_desc train;
    het_model_desc model;
    het_memory memory;
    het_error error;
    het_ctx *ctx = NULL;
    het_data *source = NULL;
    (void)state;
    memset(&desc, 0xCD, sizeof desc);
    EXPECT_ERROR(het_create(&desc, &ctx, &error), HET_ERR_INVALID, error.text, "canar");
    assert_null(ctx);
    EXPECT_ERROR(het_memory_estimate(&desc, 0, &memory, &error), HET_ERR_INVALID, error.text, "canar");
    memset(&model, 0xCD, sizeof model);
    EXPECT_ERROR(het_model_complete(&model, &error), HET_ERR_INVALID, error.text, "canar");
    memset(&data, 0xCD, sizeof data);
    EXPECT_ERROR(het_data_open(&data, &source, &error), HET_ERR_INVALID, error.text, "canar");
    memset(&train, 0xCD, sizeof train);
    EXPECT_ERROR(het_train(&train, &ctx, &error), HET_ERR_INVALID, error.text, "canar");
    memset(&desc, 0, sizeof desc);
    desc.end_canary = 1; /* a description of another version's size */
    EXPECT_ERROR(het_create(&desc, &ctx, &error), HET_ERR_INVALID, error.text, "canar");
    memset(&desc, 0, sizeof desc);
    desc.model.end_canary = 1;
    EXPECT_ERROR(het_create(&desc, &ctx, &error), HET_ERR_INVALID, error.text, "canar");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(outputs_are_null_after_a_failure),
        cmocka_unit_test(steps_do_not_allocate),
        cmocka_unit_test(estimates_are_exact), cmocka_unit_test(slices_that_keep_all), cmocka_unit_test(first_units_recompute),
        cmocka_unit_test(slices_beyond_the_flags),
        cmocka_unit_test(more_than_there_is),
        cmocka_unit_test(layouts_need_what_they_did),
        cmocka_unit_test(estimate_of_large_models),
        cmocka_unit_test(estimates_take_no_memory),
        cmocka_unit_test(memory_limit_refuses),
        cmocka_unit_test(zeroed_and_null_descriptions_train),
        cmocka_unit_test(garbage_is_refused),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
