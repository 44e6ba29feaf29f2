/* Weights that are not trained, kept in bf16 or int8: what is computed is, bit for bit, what f32 weights of the rounded values give, and they take
   half the bytes, or 68 for 64 elements and a buffer for the largest unit. */
#include "support.h"

#include "hetrain_files.h"

static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_QWEN3, HET_NEOX };
enum { FAMILIES = (int)(sizeof families / sizeof families[0]) };

static int some_frozen(void *user, const char *parameter)
{
    (void)user;
    return strstr(parameter, ".1.") != NULL || strstr(parameter, "wte") != NULL || strstr(parameter, "embed") != NULL;
}

/* Nearest, ties to even, by the two neighbours in bf16. */
static float rounded(float value)
{
    uint32_t low, high;
    float a, b;
    memcpy(&low, &value, sizeof low);
    low &= 0xffff0000u;
    high = low + 0x10000u;
    memcpy(&a, &low, sizeof a);
    memcpy(&b, &high, sizeof b);
    if (fabs((double)value - (double)a) == fabs((double)b - (double)value)) return low & 0x10000u ? b : a;
    return fabs((double)value - (double)a) < fabs((double)b - (double)value) ? a : b;
}

/* A block of 64: q = value / scale to the nearest, scale = largest / 127 without the last 8 of a float's bits. */
static void round_block(float *value, int64_t count)
{
    double largest = 0, scale;
    int64_t i;
    int exponent;
    for (i = 0; i < count; i++) if (fabs((double)value[i]) > largest) largest = fabs((double)value[i]);
    scale = frexp((double)(float)(largest / 127), &exponent);
    scale = ldexp(floor(ldexp(scale, 16)), exponent - 16);
    for (i = 0; i < count; i++) {
        const float wanted = value[i];
        value[i] = scale > 0 ? (float)(scale * rint((double)(float)((double)value[i] / scale)) + 0.0) : 0.0f;
        assert_true(fabs((double)value[i] - (double)wanted) <= 0.500001 * scale || scale <= 0);
    }
}

static void round_all(het_dtype type, float *value, int64_t count)
{
    int64_t i;
    for (i = 0; i < count && type == HET_BF16; i++) value[i] = rounded(value[i]);
    for (i = 0; i < count && type == HET_INT8; i += 64) round_block(value + i, count - i < 64 ? count - i : 64);
}

/* Bytes of `count` elements, as they are laid out. */
static size_t bytes_of(het_dtype type, size_t count)
{
    return ((type == HET_INT8 ? (count + 63) / 64 * 68 : count * (type == HET_BF16 ? 2 : 4)) + 63) / 64 * 64;
}

/* Own values into every matrix that is not trained: rounded here, or by the context. Returns the bytes that the type saves. */
static size_t write_weights(het_ctx *ctx, het_dtype type, int round_here)
{
    size_t saved = 0;
    int64_t p, i;
    for (p = 0; p < het_parameter_count(ctx); p++) {
        het_parameter_info info;
        float *value, *back, *wanted;
        int narrow;
        EXPECT_OK(het_parameter_get_info(ctx, p, &info));
        narrow = info.frozen && info.columns > 1 && !info.adapter && (type == HET_INT8 || strstr(info.name, "wpe") == NULL);
        if (!round_here) assert_int_equal(info.type, narrow ? type : HET_F32);
        if (!narrow) continue;
        value = support_floats(info.count, 0.3, 7919u * (uint64_t)p + 1);
        back = support_floats(info.count, 0.0, 1);
        value[0] = 0.75048828125f; /* between two: to the even one */
        value[info.count - 1] = -1e-39f;
        for (i = 0; i < 64 && type == HET_INT8; i++) value[64 + i] = i % 2 ? 1e-39f : -1e-37f; /* scales below the normal numbers are 0 */
        wanted = support_alloc((size_t)info.count, sizeof *wanted);
        memcpy(wanted, value, (size_t)info.count * sizeof *wanted);
        round_all(type, wanted, info.count);
        for (i = 0; i < 64 && type == HET_INT8; i++) wanted[64 + i] = 0.0f;
        EXPECT_OK(het_parameter_write(ctx, p, HET_WEIGHT, round_here ? wanted : value));
        EXPECT_OK(het_parameter_read(ctx, p, HET_WEIGHT, back));
        for (i = 0; i < info.count; i++) assert_int_equal(support_bits(back[i]), support_bits(wanted[i]));
        EXPECT_OK(het_parameter_write(ctx, p, HET_WEIGHT, back)); /* the same once more */
        EXPECT_OK(het_parameter_read(ctx, p, HET_WEIGHT, value));
        assert_memory_equal(value, back, (size_t)info.count * sizeof *back);
        saved += bytes_of(HET_F32, (size_t)info.count) - bytes_of(type, (size_t)info.count);
        free(value);
        free(back);
        free(wanted);
    }
    return saved;
}

typedef struct outcome { double loss[3], norm[3]; uint64_t weights; size_t memory, saved; } outcome;

/* Bytes of the floats that the unit with the most of int8 is expanded to. */
static size_t expanded(const het_desc *from)
{
    het_description *d;
    het_error error;
    size_t most = 0;
    int64_t u, i;
    EXPECT_ERROR(het_describe(from, &d, &error), HET_OK, error.text, "");
    for (u = 0; u < d->units; u++) {
        size_t sum = 0;
        for (i = 0; i < d->unit[u].info.parameters; i++) {
            het_parameter_info info;
            EXPECT_OK(het_parameter_get_info(d->ctx, d->unit[u].parameter[i], &info));
            if (info.expanded) sum += bytes_of(HET_F32, (size_t)info.count);
        }
        if (sum > most) most = sum;
    }
    het_description_free(d);
    return most;
}

/* type: of what is frozen; `narrow` 0: as f32, rounded to it. */
static outcome train(const support_run *run, const char *layout, het_dtype type, int narrow)
{
    het_desc desc = run->desc;
    het_ctx *ctx;
    het_memory memory;
    outcome o;
    int step;
    memset(&o, 0, sizeof o);
    desc.weights = narrow ? type : HET_F32;
    ctx = support_create(&desc);
    o.saved = write_weights(ctx, type, !narrow);
    het_get_memory(ctx, 0, &memory);
    o.memory = memory.device;
    for (step = 0; step < 3; step++) {
        const het_step_info info = support_step(ctx, &run->data, step, layout);
        o.loss[step] = info.loss;
        o.norm[step] = info.gradient_norm;
    }
    EXPECT_OK(het_verify(ctx));
    o.weights = support_hash(ctx);
    het_destroy(ctx);
    return o;
}

static void same(const outcome *a, const outcome *b)
{
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->norm, b->norm, sizeof a->norm);
    assert_true(a->weights == b->weights);
}

static int32_t no_products_of_int8(void *self, const het_op *op)
{
    return (op->kind != HET_OP_LINEAR_FORWARD || op->u.linear.part[0].w_int8 == NULL) && het_cpu_device()->supports(self, op);
}

static void trains_alike(het_family family, int form, het_dtype type, uint64_t *seed)
{
    het_model_desc model = support_deep_model(family);
    static const char *const plans[] = { "dp", "pp", "tp2", "tp:1,2" };
    het_device_iface expands = *het_cpu_device();
    support_run run;
    outcome wide, narrow, other;
    size_t saved;
    int i;
    expands.supports = no_products_of_int8;
    if (form < 2) {
        model.lora_rank = 3;
        model.lora_targets = HET_LORA_ALL;
    }
    EXPECT_OK(het_model_complete(&model, NULL));
    support_run_start(&run, &model, 3, SUPPORT_SHORT);
    run.desc.layout.deadline = 20.0;
    run.desc.dtype = form % 2 ? HET_BF16 : HET_F32;
    if (form >= 2) run.desc.frozen = some_frozen;
    wide = train(&run, SUPPORT_TOGETHER, type, 0);
    narrow = train(&run, SUPPORT_TOGETHER, type, 1);
    same(&wide, &narrow);
    run.desc.weights = type;
    saved = narrow.saved - (type == HET_INT8 ? expanded(&run.desc) : 0);
    assert_true(narrow.saved > 0);
    assert_int_equal(wide.memory - narrow.memory, saved);
    if (type == HET_INT8) { /* a device whose products take floats */
        support_run_ranks(&run, 1);
        run.device[0].iface = &expands;
        narrow = train(&run, SUPPORT_APART, type, 1);
        same(&wide, &narrow);
        assert_true(narrow.saved - saved < expanded(&run.desc) && narrow.saved - expanded(&run.desc) == wide.memory - narrow.memory);
        run.device[0].iface = NULL;
    }
    for (i = 0; i < 4; i++) { /* parts of a matrix, by columns too; slices, recomputation, activations on the host */
        int64_t s;
        support_run_ranks(&run, i < 2 ? 3 : 2);
        support_run_mixed(&run, 1, seed);
        support_run_plan(&run, plans[i], i % 2 && form % 2 ? "zb-h1" : "1f1b", i < 2 ? 1 + (form + i) % 3 : 1);
        for (s = 0; s < run.plan->stages; s++) {
            run.plan->stage[s].recompute = (int32_t)(form + s) % 3;
            run.plan->stage[s].store = form / 2;
        }
        run.desc.layout.shard = i < 2 ? (het_shard)(form % 4) : HET_SHARD_DEFAULT;
        other = train(&run, SUPPORT_APART, type, 1);
        same(&wide, &other);
    }
    support_run_end(&run);
}

/* Factors on everything, or some parameters frozen; products in f32 and bf16. */
static void training_beside_them_has_the_bits_of_rounded_weights(void **state)
{
    uint64_t seed = 21;
    int f, form;
    (void)state;
    for (f = 0; f < FAMILIES; f++)
        for (form = 0; form < 4; form++) {
            trains_alike(families[f], form, HET_BF16, &seed);
            trains_alike(families[f], form, HET_INT8, &seed);
        }
}

/* A model of which everything lies in bf16 or int8 but vectors, on every instruction set: logits with and without what was kept. */
static void inference_has_the_bits_of_rounded_weights(void **state)
{
    static const int32_t token[] = { 3, 1, 4, 1, 5, 9, 2, 6 };
    het_isa isas[5];
    const int sets = support_isas(isas);
    int f, form, i;
    (void)state;
    for (f = 0; f < FAMILIES; f++)
        for (form = 0; form < 4 * sets; form++) {
            const het_model_desc model = support_model(families[f]);
            const het_dtype type = form / 2 / sets ? HET_INT8 : HET_BF16;
            het_device_desc device;
            float *logits[2];
            memset(&device, 0, sizeof device);
            device.isa = isas[form / 2 % sets];
            for (i = 0; i < 2; i++) {
                het_desc desc;
                het_ctx *ctx;
                memset(&desc, 0, sizeof desc);
                desc.model = model;
                desc.model.lora_rank = form % 2 ? 2 : 0;
                desc.layout.devices = &device;
                desc.layout.device_count = 1;
                desc.inference = HET_YES;
                desc.dtype = form % 2 ? HET_BF16 : HET_F32;
                desc.weights = i ? type : HET_F32;
                ctx = support_create(&desc);
                assert_true(write_weights(ctx, type, !i) > 0);
                logits[i] = support_alloc(2 * (size_t)model.vocab, sizeof(float));
                EXPECT_OK(het_infer(ctx, token, 5, 0, logits[i]));
                EXPECT_OK(het_infer(ctx, token + 5, 3, 5, logits[i] + model.vocab));
                het_destroy(ctx);
            }
            if (memcmp(logits[0], logits[1], 2 * (size_t)model.vocab * sizeof(float)) != 0)
                fail_msg("%s, products in %s: other logits", support_isa_name(device.isa), form % 2 ? "bf16" : "f32");
            free(logits[0]);
            free(logits[1]);
        }
}

/* Files hold the rounded values; another plan and a state that is loaded change nothing; the other type is another run. */
static void files_carry(het_dtype type, const char *names)
{
    het_model_desc model = support_deep_model(HET_LLAMA);
    support_run run;
    support_buffer weights, saved;
    het_replan_desc another;
    het_reader from;
    het_ctx *ctx, *other;
    het_plan *pp;
    uint64_t hash;
    support_run_start(&run, &model, 3, SUPPORT_SHORT);
    support_run_ranks(&run, 2);
    run.desc.frozen = some_frozen;
    run.desc.weights = type;
    ctx = support_create(&run.desc);
    (void)write_weights(ctx, type, 0);
    (void)support_step(ctx, &run.data, 0, SUPPORT_APART);
    hash = support_hash(ctx);
    memset(&another, 0, sizeof another);
    pp = support_plan("pp", "1f1b", 2 * model.layers + 2, 2, 1);
    another.plan = pp;
    EXPECT_OK(het_replan(ctx, &another));
    assert_true(support_hash(ctx) == hash);
    support_save(ctx, &weights, &saved);
    (void)support_step(ctx, &run.data, 1, SUPPORT_APART);
    support_run_ranks(&run, 1);
    other = support_create(&run.desc);
    from = support_reader(&weights);
    EXPECT_OK(het_load_weights(other, &from));
    assert_true(support_hash(other) == hash);
    from = support_reader(&saved);
    EXPECT_OK(het_load_state(other, &from));
    (void)support_step(other, &run.data, 1, SUPPORT_TOGETHER);
    assert_true(support_hash(other) == support_hash(ctx));
    het_destroy(other);
    run.desc.weights = HET_F32;
    other = support_create(&run.desc);
    from = support_reader(&weights);
    EXPECT_OK(het_load_weights(other, &from));
    assert_true(support_hash(other) == hash);
    from = support_reader(&saved);
    EXPECT_ERROR(het_load_state(other, &from), HET_ERR_INVALID, het_last_error(other), names);
    het_destroy(other);
    het_destroy(ctx);
    het_plan_free(pp);
    support_buffer_end(&weights);
    support_buffer_end(&saved);
    support_run_end(&run);
}

static void files_and_plans_carry_them(void **state)
{
    (void)state;
    files_carry(HET_BF16, "weights|bf16|f32");
    files_carry(HET_INT8, "weights|int8|f32");
}

static int32_t only_floats(void *self, const het_op *op)
{
    return op->kind != HET_OP_EXPAND && (op->kind != HET_OP_LINEAR_FORWARD || op->u.linear.part[0].w_bf16 == NULL) &&
           het_cpu_device()->supports(self, op);
}

static void devices_that_take_only_floats_refuse(void **state)
{
    het_device_iface floats = *het_cpu_device();
    het_model_desc model = support_model(HET_LLAMA);
    het_error error = { HET_OK, "" };
    support_run run;
    het_ctx *ctx;
    (void)state;
    floats.supports = only_floats;
    floats.name = "plain";
    support_run_start(&run, &model, 1, SUPPORT_SHORT);
    support_run_ranks(&run, 1);
    run.device[0].iface = &floats;
    run.desc.weights = HET_BF16;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "weights|bf16|plain");
    run.desc.weights = HET_INT8;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "weights|int8|plain|expand");
    run.desc.weights = HET_F32;
    run.desc.dtype = HET_INT8;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "dtype|3");
    run.desc.dtype = HET_F32;
    run.desc.weights = (het_dtype)7;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "weights|7");
    support_run_end(&run);
}

/* ---- streams in bf16: what cannot take them says so. Their training is in tests/cuda ---- */

static het_result nothing(const het_unit_call *call)
{
    (void)call;
    return HET_OK;
}

/* A unit of one's own that is no program; settings: whether it takes bf16. */
static het_result own_describe(const het_unit *unit, het_unit_info *info)
{
    info->in_width[0] = info->in_streams > 0 ? info->in_width[0] : 40;
    info->out_streams = 1;
    info->out_width[0] = 40;
    info->input_keep = HET_KEEP_CALL;
    if (unit->settings != NULL) info->values = HET_BF16;
    return HET_OK;
}

static het_result is_half(void *user, const het_hook_info *info)
{
    ++*(int *)user;
    return info->type == HET_BF16 && (info->streams == 0 || info->width[0] == 40) ? HET_OK : HET_ERR_STATE;
}

static void streams_are_refused(void **state)
{
    static const het_unit_iface own = { HETRAIN_UNIT_VERSION, "own", own_describe, nothing, nothing, nothing };
    static const struct { het_result code; const char *says; } tries[] = {
        { HET_OK, "" },
        { HET_ERR_INVALID, "streams is bf16|dtype is f32" },
        { HET_ERR_UNSUPPORTED, "streams is bf16|unit 0 (embed)|device cpu|ops with bf16 operands" },
        { HET_ERR_UNSUPPORTED, "team of rank 0|streams is bf16|teams move floats" },
        { HET_ERR_UNSUPPORTED, "streams is bf16|(attention)|low-rank factors" },
        { HET_ERR_UNSUPPORTED, "streams is bf16|(attention)|slices" },
        { HET_ERR_UNSUPPORTED, "streams is bf16|(mlp)|multiple of 8" },
        { HET_ERR_UNSUPPORTED, "streams is bf16|unit 1 (own)|takes floats" },
        { HET_OK, "" },
        { HET_ERR_INVALID, "streams|3" }
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        het_model_desc model = support_model(HET_GPT2);
        het_error error = { HET_OK, "" };
        support_run run;
        het_unit unit[8];
        int64_t units;
        het_ctx *ctx;
        int seen = 0;
        model.mlp_width = i == 6 ? 52 : 56;
        model.lora_rank = i == 4 ? 2 : 0;
        support_run_start(&run, &model, 2, SUPPORT_SHORT);
        support_run_ranks(&run, i == 3 ? 2 : 1);
        run.device[0].iface = run.device[1].iface = i == 2 ? het_cpu_device() : support_narrow_device();
        run.desc.dtype = i == 1 ? HET_F32 : HET_BF16;
        run.desc.streams = i == 9 ? HET_INT8 : HET_BF16;
        run.desc.host.hook = is_half;
        run.desc.host.user = &seen;
        if (i == 3) support_run_plan(&run, "cp2", NULL, 1);
        if (i == 5) run.desc.limits.max_slices = 2;
        if (i == 7 || i == 8) {
            EXPECT_OK(het_model_units(&run.desc.model, unit, 8, &units, &error));
            unit[1].iface = &own;
            unit[1].settings = i == 8 ? &own : NULL;
            run.desc.units = unit;
            run.desc.unit_count = units;
        }
        EXPECT_ERROR(het_create(&run.desc, &ctx, &error), tries[i].code, error.text, tries[i].says);
        if (tries[i].code == HET_OK) {
            (void)support_step(ctx, &run.data, 0, "01|23");
            assert_true(seen > 0);
            het_destroy(ctx);
        }
        support_run_end(&run);
    }
}

/* A state says that its run had them: another goes on with neither more nor less. */
static void states_know_their_streams(void **state)
{
    het_model_desc model = support_model(HET_GPT2);
    int half;
    (void)state;
    model.mlp_width = 56;
    for (half = 0; half < 2; half++) {
        support_run run;
        support_buffer file;
        het_ctx *one, *other, *same;
        support_run_start(&run, &model, 1, SUPPORT_SHORT);
        support_run_ranks(&run, 1);
        run.device[0].iface = support_narrow_device();
        run.desc.dtype = HET_BF16;
        run.desc.streams = half ? HET_BF16 : HET_F32;
        one = support_create(&run.desc);
        same = support_create(&run.desc);
        run.desc.streams = half ? HET_F32 : HET_BF16;
        other = support_create(&run.desc);
        support_buffer_start(&file);
        het_writer to = support_writer(&file);
        EXPECT_OK(het_save_state(one, &to));
        het_reader from = support_reader(&file);
        EXPECT_ERROR(het_load_state(other, &from), HET_ERR_INVALID, het_last_error(other), "dtype|bf16|with streams");
        EXPECT_ERROR(het_load_state(same, &from), HET_OK, het_last_error(same), "");
        het_destroy(one);
        het_destroy(other);
        het_destroy(same);
        support_buffer_end(&file);
        support_run_end(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_beside_them_has_the_bits_of_rounded_weights),
        cmocka_unit_test(inference_has_the_bits_of_rounded_weights),
        cmocka_unit_test(files_and_plans_carry_them),
        cmocka_unit_test(devices_that_take_only_floats_refuse),
        cmocka_unit_test(streams_are_refused),
        cmocka_unit_test(states_know_their_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
