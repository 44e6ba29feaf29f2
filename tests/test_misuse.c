/* Every public function with null, zero, huge and contradictory arguments: the documented code, and a message that names the value. */
#include "support.h"

#include "hetrain_files.h"
#include "hetrain_plan.h"

typedef struct small {
    het_desc desc;
    het_ctx *ctx;
    support_batch batch;
} small;

static void small_start(small *s, het_family family)
{
    memset(s, 0, sizeof *s);
    s->desc.model = support_model(family);
    s->desc.limits.max_tokens = 60;
    s->desc.limits.max_sequences = 4;
    s->desc.limits.max_micro_batches = 2;
    s->ctx = support_create(&s->desc);
    support_batch_start(&s->batch);
    support_batch_sequence(&s->batch, 20, s->desc.model.vocab, 0, 1);
    support_batch_sequence(&s->batch, 30, s->desc.model.vocab, 1, 2);
}

static void small_end(small *s)
{
    het_destroy(s->ctx);
    support_batch_end(&s->batch);
}

#define CTX_ERROR(s, call, code, words) EXPECT_ERROR(call, code, het_last_error((s)->ctx), words)

/* ---- results ---- */

static void codes_have_texts(void **state)
{
#define TEXT_OF_CODE(name, value, text) text,
#define VALUE_OF_CODE(name, value, text) name,
    static const char *const texts[] = { HETRAIN_RESULTS(TEXT_OF_CODE) };
    static const het_result codes[] = { HETRAIN_RESULTS(VALUE_OF_CODE) };
    size_t i, k, n = sizeof codes / sizeof *codes;
    (void)state;
    for (i = 0; i < n; i++) {
        assert_string_equal(het_result_text(codes[i]), texts[i]);
        assert_true(i == 0 ? codes[i] == 0 : codes[i] < 0);
        for (k = 0; k < i; k++) assert_string_not_equal(texts[i], texts[k]);
    }
    assert_non_null(het_result_text((het_result)-99));
    assert_true(strlen(het_result_text((het_result)12345)) > 0);
}

/* ---- models ---- */

static void model_refused(void (*spoil)(het_model_desc *), const char *words, int line)
{
    het_model_desc model;
    het_error error;
    het_desc desc;
    het_ctx *ctx = NULL;
    memset(&model, 0, sizeof model);
    model.width = 64;
    model.heads = 4;
    spoil(&model);
    support_expect(het_model_complete(&model, &error), HET_ERR_INVALID, error.text, words, "het_model_complete", line);
    assert_int_equal(error.code, HET_ERR_INVALID);
    memset(&desc, 0, sizeof desc);
    memset(&model, 0, sizeof model);
    model.width = 64;
    model.heads = 4;
    spoil(&model);
    desc.model = model;
    support_expect(het_create(&desc, &ctx, &error), HET_ERR_INVALID, error.text, words, "het_create", line);
    assert_null(ctx);
}

#define MODEL_CASE(name, code) static void name(het_model_desc *m) { code; }
MODEL_CASE(negative_layers, m->layers = -3)
MODEL_CASE(huge_layers, m->layers = INT64_MAX)
MODEL_CASE(negative_width, m->width = -64)
MODEL_CASE(huge_width, m->width = INT64_C(1) << 40)
MODEL_CASE(odd_heads, (m->width = 65, m->heads = 4))
MODEL_CASE(negative_heads, m->heads = -1)
MODEL_CASE(odd_kv_heads, m->kv_heads = 3)
MODEL_CASE(huge_head_size, m->head_size = INT64_C(1) << 50)
MODEL_CASE(negative_vocab, m->vocab = -7)
MODEL_CASE(huge_vocab, m->vocab = INT64_C(3000000000))
MODEL_CASE(negative_context, m->context = -128)
MODEL_CASE(negative_window, m->window = -5)
MODEL_CASE(nan_theta, (m->family = HET_LLAMA, m->rotary_theta = NAN))
MODEL_CASE(negative_epsilon, m->norm_epsilon = -1.0f)
MODEL_CASE(dropout_of_one, m->dropout = 1.0f)
MODEL_CASE(negative_dropout, m->dropout = -0.5f)
MODEL_CASE(infinite_std, m->init_std = INFINITY)
MODEL_CASE(rotary_over_one, (m->family = HET_LLAMA, m->rotary_fraction = 1.5f))
MODEL_CASE(odd_rotary, (m->family = HET_LLAMA, m->head_size = 17))
MODEL_CASE(low_over_high, (m->family = HET_LLAMA, m->rotary_factor = 8.0f, m->rotary_low = 5.0f, m->rotary_high = 2.0f))
MODEL_CASE(unknown_family, m->family = (het_family)77)
MODEL_CASE(unknown_norm, m->norm = (het_norm)9)
MODEL_CASE(unknown_activation, m->activation = (het_activation)8)
MODEL_CASE(unknown_position, m->position = (het_position)6)
MODEL_CASE(unknown_choice, m->tied = (het_choice)5)

static void models(void **state)
{
    static const struct { void (*spoil)(het_model_desc *); const char *words; int line; } cases[] = {
        { negative_layers, "layers|-3", __LINE__ },         { huge_layers, "layers|9223372036854775807", __LINE__ },
        { negative_width, "width|-64", __LINE__ },          { huge_width, "width|1099511627776", __LINE__ },
        { odd_heads, "65|4|heads", __LINE__ },              { negative_heads, "heads|-1", __LINE__ },
        { odd_kv_heads, "kv_heads|3|4", __LINE__ },         { huge_head_size, "head_size|1125899906842624", __LINE__ },
        { negative_vocab, "vocab|-7", __LINE__ },           { huge_vocab, "vocab|3000000000", __LINE__ },
        { negative_context, "context|-128", __LINE__ },     { negative_window, "window|-5", __LINE__ },
        { nan_theta, "rotary_theta|nan", __LINE__ },        { negative_epsilon, "norm_epsilon|-1", __LINE__ },
        { dropout_of_one, "dropout|1", __LINE__ },          { negative_dropout, "dropout|-0.5", __LINE__ },
        { infinite_std, "init_std|inf", __LINE__ },         { rotary_over_one, "rotary_fraction|1.5", __LINE__ },
        { odd_rotary, "head_size|17", __LINE__ },           { low_over_high, "rotary_low|5|2", __LINE__ },
        { unknown_family, "family|77", __LINE__ },          { unknown_norm, "norm|9", __LINE__ },
        { unknown_activation, "activation|8", __LINE__ },   { unknown_position, "position|6", __LINE__ },
        { unknown_choice, "tied|5", __LINE__ },
    };
    het_error error;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) model_refused(cases[i].spoil, cases[i].words, cases[i].line);
    EXPECT_ERROR(het_model_complete(NULL, &error), HET_ERR_INVALID, error.text, "model|NULL");
    assert_int_equal(het_model_complete(NULL, NULL), HET_ERR_INVALID); /* nobody asked for the text */
}

static void model_names(void **state)
{
    static const struct { const char *name, *words; } bad[] = {
        { "", "family" },
        { "gpt9:124m", "gpt9" },
        { "gpt2:125m", "125m|124m" },
        { "gpt2:layers=x", "layers|x" },
        { "gpt2:layers=", "layers" },
        { "gpt2:layers=4,", "," },
        { "gpt2:layers=4,layers=5", "layers|twice" },
        { "gpt2:colour=4", "colour" },
        { "gpt2:width=99999999999999999999", "width|99999999999999999999" },
        { "gpt2:width=64,heads=5", "64|5" },
        { "llama:layers=-4", "layers|-4" },
        { "llama:rotary_theta=abc", "rotary_theta|abc" },
        { "llama:tied=perhaps", "tied|perhaps" },
    };
    het_model_desc model, kept;
    het_error error;
    size_t i;
    (void)state;
    memset(&kept, 0x5A, sizeof kept);
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        memset(&model, 0x5A, sizeof model);
        EXPECT_ERROR(het_model_parse(bad[i].name, &model, &error), HET_ERR_INVALID, error.text, bad[i].words);
        assert_memory_equal(&model, &kept, sizeof model); /* outputs are written only on success */
    }
    EXPECT_ERROR(het_model_parse(NULL, &model, &error), HET_ERR_INVALID, error.text, "name|NULL");
    EXPECT_ERROR(het_model_parse("gpt2:124m", NULL, &error), HET_ERR_INVALID, error.text, "model|NULL");
    EXPECT_ERROR(het_model_parse("gpt2:124m", &model, &error), HET_OK, error.text, "");
    assert_int_equal(model.width, 768);
    assert_int_equal(model.layers, 12);
    assert_int_equal(model.vocab, 50257);
    EXPECT_ERROR(het_model_parse("llama:layers=3,width=96,heads=6,kv_heads=2", &model, &error), HET_OK, error.text, "");
    assert_int_equal(model.kv_heads, 2);
    assert_int_equal(model.head_size, 16);
}

static void config_json(void **state)
{
    static const struct { const char *text; het_result code; const char *words; } bad[] = {
        { "", HET_ERR_FORMAT, "byte 0" },
        { "[1]", HET_ERR_FORMAT, "byte" },
        { "{", HET_ERR_FORMAT, "byte" },
        { "{}", HET_ERR_FORMAT, "model_type" },
        { "{\"model_type\": \"t5\"}", HET_ERR_UNSUPPORTED, "model_type|t5" },
        { "{\"model_type\": \"llama\"}", HET_ERR_FORMAT, "missing" },
        { "{\"model_type\": \"llama\", \"hidden_size\": \"wide\"}", HET_ERR_FORMAT, "hidden_size" },
        { "{\"model_type\": \"llama\", \"hidden_size\": 1.5, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"vocab_size\": 9,"
          "\"intermediate_size\": 64, \"max_position_embeddings\": 64}", HET_ERR_INVALID, "width|1.5" },
        { "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 2, \"n_head\": 5, \"n_positions\": 64, \"vocab_size\": 100}",
          HET_ERR_INVALID, "64|5" },
        { "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_embd\": 64}", HET_ERR_FORMAT, "n_embd" },
    };
    het_model_desc model, back;
    het_error error;
    char text[8192], deep[300];
    size_t i, length = 0;
    static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_QWEN2, HET_QWEN3, HET_NEOX };
    (void)state;
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        EXPECT_ERROR(het_model_from_json(bad[i].text, strlen(bad[i].text), &model, &error), bad[i].code, error.text, bad[i].words);
    }
    memset(deep, '[', sizeof deep);
    EXPECT_ERROR(het_model_from_json(deep, sizeof deep, &model, &error), HET_ERR_FORMAT, error.text, "byte");
    EXPECT_ERROR(het_model_from_json(NULL, 3, &model, &error), HET_ERR_INVALID, error.text, "text|NULL");
    EXPECT_ERROR(het_model_from_json("{}", 2, NULL, &error), HET_ERR_INVALID, error.text, "model|NULL");
    for (i = 0; i < sizeof families / sizeof *families; i++) { /* what is written can be read */
        model = support_model(families[i]);
        EXPECT_OK(het_model_to_json(&model, text, sizeof text, &length));
        assert_int_equal(length, strlen(text));
        assert_int_equal(het_model_to_json(&model, text, length, &length), HET_ERR_LIMIT); /* no room for the final 0 */
        assert_int_equal(het_model_to_json(&model, NULL, 0, &length), HET_ERR_LIMIT);
        EXPECT_OK(het_model_to_json(&model, text, length + 1, &length));
        EXPECT_ERROR(het_model_from_json(text, length, &back, &error), HET_OK, error.text, "");
        assert_memory_equal(&model, &back, sizeof model);
    }
    assert_int_equal(het_model_to_json(NULL, text, sizeof text, &length), HET_ERR_INVALID);
    assert_int_equal(het_model_to_json(&model, text, sizeof text, NULL), HET_ERR_INVALID);
}

/* A setting that is refused leaves the model as it was. */
static void settings_by_number(void **state)
{
    static const het_setting bad[] = { { "", HET_SETTING_INTEGER, -3, 0, NULL }, { "", HET_SETTING_WORD, 0, 0, "perhaps" },
                                       { "", HET_SETTING_WORD, 0, 0, NULL } };
    static const struct { int64_t number; int value; const char *words; } cases[] = {
        { 0, 0, "here|layers|-3" }, { 8, 1, "here|norm|perhaps" }, { 8, 2, "here|norm|null" }, { -1, 0, "here|number -1" },
        { 1000, 0, "here|number 1000" },
    };
    het_model_desc model = support_model(HET_GPT2), kept = model;
    het_setting setting;
    het_error error;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        EXPECT_ERROR(het_model_set(&model, cases[i].number, &bad[cases[i].value], "here", &error), HET_ERR_INVALID, error.text, cases[i].words);
        assert_memory_equal(&model, &kept, sizeof model);
    }
    EXPECT_ERROR(het_model_set(NULL, 0, &bad[0], "here", &error), HET_ERR_INVALID, error.text, "here|NULL");
    EXPECT_ERROR(het_model_set(&model, 0, NULL, "here", &error), HET_ERR_INVALID, error.text, "here|NULL");
    assert_int_equal(het_model_get(&model, -1, &setting) + het_model_get(&model, 1000, &setting), 0);
    assert_int_equal(het_model_get(NULL, 0, &setting) + het_model_get(&model, 0, NULL), 0);
}

static void chains_of_units(void **state)
{
    het_model_desc model = support_model(HET_GPT2);
    het_unit units[8];
    het_error error;
    int64_t count = 0;
    (void)state;
    EXPECT_ERROR(het_model_units(&model, units, 8, &count, &error), HET_OK, error.text, "");
    assert_int_equal(count, 6);
    EXPECT_ERROR(het_model_units(&model, units, 5, &count, &error), HET_ERR_LIMIT, error.text, "5|6");
    EXPECT_ERROR(het_model_units(NULL, units, 8, &count, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_model_units(&model, NULL, 8, &count, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_model_units(&model, units, 8, NULL, &error), HET_ERR_INVALID, error.text, "NULL");
    model.layers = 0;
    EXPECT_ERROR(het_model_units(&model, units, 8, &count, &error), HET_ERR_INVALID, error.text, "layers|0");
}

/* ---- descriptions ---- */

/* The error of a call begins with its name. */
static void begins_with(const char *text, const char *call, int line)
{
    if (strncmp(text, call, strlen(call)) != 0 || text[strlen(call)] != ':') fail_msg("line %d: not of %s: %s", line, call, text);
}

static void create_refused(const het_desc *desc, het_result code, const char *words, int line)
{
    het_ctx *ctx = NULL;
    het_error error;
    het_memory memory;
    int mark;
    ctx = (het_ctx *)(void *)&mark;
    support_expect(het_create(desc, &ctx, &error), code, error.text, words, "het_create", line);
    assert_null(ctx);
    begins_with(error.text, "het_create", line);
    support_expect(het_memory_estimate(desc, 0, &memory, &error), code, error.text, words, "het_memory_estimate", line);
    begins_with(error.text, "het_memory_estimate", line);
}

/* By what happens behind the estimate. */
static void create_fails(const het_desc *desc, het_result code, const char *words, int line)
{
    het_ctx *ctx = NULL;
    het_error error;
    support_expect(het_create(desc, &ctx, &error), code, error.text, words, "het_create", line);
    begins_with(error.text, "het_create", line);
    if (strstr(error.text, "step")) fail_msg("line %d: no step has begun: %s", line, error.text);
}

static het_result run_breaks(void *self, het_queue *queue, const het_op *op)
{
    (void)self, (void)queue, (void)op;
    return HET_ERR_DEVICE;
}

#define REFUSED(field, value, code, words) \
    do { \
        het_desc desc_ = base; \
        desc_.field = value; \
        create_refused(&desc_, code, words, __LINE__); \
    } while (0)

static void descriptions(void **state)
{
    static const het_optimizer_iface nameless = { "nameless", 2, { "m", NULL, NULL, NULL }, 0, NULL, NULL, NULL };
    static const het_device_desc no_device;
    het_description *description = NULL;
    het_device_iface table = *het_cpu_device(), broken = table;
    het_memory bytes;
    het_plan plan;
    uint8_t cut;
    het_device_desc devices[2];
    het_unit units[3];
    het_desc base, desc;
    het_ctx *ctx = NULL;
    het_error error;
    support_memory memory;
    (void)state;
    memset(&base, 0, sizeof base);
    base.model = support_model(HET_GPT2);
    REFUSED(limits.max_tokens, -1, HET_ERR_INVALID, "max_tokens|-1");
    REFUSED(limits.max_tokens, INT64_MAX, HET_ERR_INVALID, "max_tokens|9223372036854775807");
    REFUSED(limits.max_sequences, -4, HET_ERR_INVALID, "max_sequences|-4");
    REFUSED(limits.max_micro_batches, -2, HET_ERR_INVALID, "max_micro_batches|-2");
    REFUSED(limits.max_slices, -9, HET_ERR_INVALID, "max_slices|-9");
    REFUSED(limits.max_slices, 4 * base.model.context + 1, HET_ERR_LIMIT, "193 slices|max_tokens 192");
    REFUSED(emulate.link_count, 1, HET_ERR_INVALID, "link_count is 1|links is NULL");
    REFUSED(unit_count, 5, HET_ERR_INVALID, "unit_count is 5|units is NULL");
    REFUSED(granule, -6, HET_ERR_INVALID, "granule|-6");
    REFUSED(layout.backward, (het_backward)4, HET_ERR_INVALID, "backward|4");
    REFUSED(dtype, (het_dtype)7, HET_ERR_INVALID, "dtype|7");
    REFUSED(reduce, (het_reduce)5, HET_ERR_INVALID, "reduce|5");
    REFUSED(layout.recompute, (het_choice)3, HET_ERR_INVALID, "recompute|3");
    REFUSED(inference, (het_choice)4, HET_ERR_INVALID, "inference|4");
    REFUSED(optimizer.iface, &nameless, HET_ERR_INVALID, "state slot 1 has no name");
    REFUSED(host.hook_whole, (het_choice)5, HET_ERR_INVALID, "hook_whole|5");
    REFUSED(optimizer.learning_rate, -1.0f, HET_ERR_INVALID, "learning_rate|-1");
    REFUSED(optimizer.learning_rate, NAN, HET_ERR_INVALID, "learning_rate|nan");
    REFUSED(optimizer.beta1, 1.5f, HET_ERR_INVALID, "beta1|1.5");
    REFUSED(optimizer.beta2, -0.5f, HET_ERR_INVALID, "beta2|-0.5");
    REFUSED(optimizer.epsilon, -1e-3f, HET_ERR_INVALID, "epsilon|-0.001");
    REFUSED(optimizer.warmup_steps, -3, HET_ERR_INVALID, "warmup_steps|-3");
    REFUSED(optimizer.total_steps, -30, HET_ERR_INVALID, "total_steps|-30");
    REFUSED(optimizer.schedule, (het_lr_schedule)11, HET_ERR_INVALID, "schedule|11");
    REFUSED(optimizer.clip, NAN, HET_ERR_INVALID, "clip|nan");
    REFUSED(host.allocator.alloc, support_allocator(&memory).alloc, HET_ERR_INVALID, "allocator|free");
    memset(devices, 0, sizeof devices);
    desc = base;
    desc.layout.device_count = 2;
    create_refused(&desc, HET_ERR_INVALID, "device_count is 2|devices is NULL", __LINE__);
    desc.layout.devices = devices;
    desc.layout.device_count = -1;
    create_refused(&desc, HET_ERR_INVALID, "device_count|-1", __LINE__);
    desc.layout.device_count = 1;
    devices[0].threads = -5;
    create_refused(&desc, HET_ERR_INVALID, "het_desc.layout.devices[0].threads is -5", __LINE__);
    devices[0].threads = INT32_MAX;
    create_refused(&desc, HET_ERR_INVALID, "threads|2147483647", __LINE__);
    devices[0].threads = 1;
    devices[0].isa = (het_isa)42;
    EXPECT_ERROR(het_create(&desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "instruction set 42");
#if defined(__x86_64__)
    devices[0].isa = HET_ISA_NEON;
    EXPECT_ERROR(het_create(&desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "instruction set|has no neon");
#endif
    devices[0].isa = HET_ISA_AUTO;
    devices[0].ordinal = 256; /* "cpu:0" of a list */
    EXPECT_ERROR(het_create(&desc, &ctx, &error), HET_ERR_INVALID, error.text, "cpu|could not be created: |ordinal 256|0 alone");
    devices[0].iface = het_reference_device();
    EXPECT_ERROR(het_create(&desc, &ctx, &error), HET_ERR_INVALID, error.text, "reference|could not be created: |ordinal 256|0 alone");
    devices[0].iface = NULL, devices[0].ordinal = 0;
    devices[0].allocator.alloc = support_allocator(&memory).alloc;
    EXPECT_ERROR(het_create(&desc, &ctx, &error), HET_ERR_INVALID, error.text, "devices[0].allocator|free");
    devices[0].allocator.alloc = NULL;
    table.version = 99;
    devices[0].iface = &table;
    EXPECT_ERROR(het_create(&desc, &ctx, &error), HET_ERR_INVALID, error.text, "version|99");
    assert_null(ctx);

    desc = base;
    desc.units = units;
    desc.unit_count = 0;
    memset(units, 0, sizeof units);
    create_refused(&desc, HET_ERR_INVALID, "unit_count|0", __LINE__);
    desc.unit_count = 1;
    create_refused(&desc, HET_ERR_INVALID, "unit_count|1", __LINE__);
    desc.unit_count = 2;
    create_refused(&desc, HET_ERR_INVALID, "unit 0", __LINE__); /* no table */
    units[0].iface = het_unit_embed();
    units[1].iface = het_unit_mlp();
    units[0].model = units[1].model = &base.model;
    create_refused(&desc, HET_ERR_INVALID, "unit 1|mlp|loss", __LINE__);
    units[1].iface = het_unit_embed(); /* takes no stream */
    create_refused(&desc, HET_ERR_INVALID, "unit 1|embed", __LINE__);
    desc.model.heads = desc.model.kv_heads = desc.model.head_size = 0;
    units[0].model = units[1].model = &desc.model; /* het_create completes a copy, and this one not */
    create_refused(&desc, HET_ERR_INVALID, "unit 0|het_model_complete|heads is 0", __LINE__);
    desc.model = base.model;
    desc.model.lora_rank = 2, desc.model.lora_targets = HET_LORA_ALL - HET_LORA_GATE;
    create_refused(&desc, HET_ERR_INVALID, "unit 0|het_model_complete|lora_alpha is 0", __LINE__);
    units[0].model = units[1].model = &base.model;

    EXPECT_ERROR(het_create(&base, NULL, &error), HET_ERR_INVALID, error.text, "ctx|NULL");
    EXPECT_ERROR(het_memory_estimate(&base, 0, NULL, &error), HET_ERR_INVALID, error.text, "memory|NULL");
    EXPECT_ERROR(het_describe(&base, NULL, &error), HET_ERR_INVALID, error.text, "description|NULL");
    EXPECT_ERROR(het_describe(&desc, &description, &error), HET_ERR_INVALID, error.text, "unit 1|embed");
    begins_with(error.text, "het_describe", __LINE__);
    assert_null(description);
    memset(&plan, 0, sizeof plan);
    plan.cut = &cut;
    EXPECT_ERROR(het_plan_cuts(&desc, &plan, &error), HET_ERR_INVALID, error.text, "unit 1|embed");
    begins_with(error.text, "het_plan_cuts", __LINE__);
    EXPECT_ERROR(het_memory_estimate(&base, 1, &bytes, &error), HET_ERR_INVALID, error.text, "rank 1 of 1");
    desc = base;
    desc.layout.devices = devices;
    devices[0] = no_device;
    desc.layout.device_count = 1;
    devices[0].memory_limit = 1;
    create_refused(&desc, HET_ERR_LIMIT, "rank 0|limit", __LINE__);
    devices[0] = no_device;
    devices[0].iface = &broken;
    broken.run = run_breaks;
    create_fails(&desc, HET_ERR_DEVICE, "rank 0: clear", __LINE__);
    het_description_free(NULL);
    assert_int_equal(het_create(&base, NULL, NULL), HET_ERR_INVALID);
    het_desc_defaults(NULL);
}

static int64_t number_of(void *self) { return ((const int64_t *)self)[0]; }
static int64_t number_after(void *self) { return ((const int64_t *)self)[1]; }
static void heard_by_nobody(void *self, het_result code, const char *text) { (void)self, (void)code, (void)text; }

/* A transport that is not up yet. */
static void transports(void **state)
{
    static const int64_t wrong[][2] = { { 0, 0 }, { -1, 0 }, { 2, 2 }, { 2, -1 } };
    het_transport_iface iface;
    het_error error;
    het_ctx *ctx;
    size_t i;
    (void)state;
    memset(&iface, 0, sizeof iface);
    iface.version = HETRAIN_TRANSPORT_VERSION;
    iface.name = "early";
    iface.processes = number_of;
    iface.process = number_after;
    iface.abort = heard_by_nobody;
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int64_t now[2];
        het_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.layout.transport.iface = &iface;
        desc.layout.transport.self = memcpy(now, wrong[i], sizeof now);
        EXPECT_ERROR(het_create(&desc, &ctx, &error), HET_ERR_TRANSPORT, error.text, "early: this is process");
        assert_null(ctx);
    }
}

/* Plans and schedules that are not there, or have arrays that are not. */
static void plans_and_schedules(void **state)
{
    het_plan *plan = support_plan("dp", "gpipe", 4, 1, 1), *made = (het_plan *)(void *)&plan, part;
    const int64_t counts[1] = { 2 };
    het_schedule *lists = NULL, *more = (het_schedule *)(void *)&plan, some;
    int64_t actions;
    het_needs needs;
    het_error error;
    (void)state;
    EXPECT_ERROR(het_plan_check(NULL, "here", &error), HET_ERR_INVALID, error.text, "here|plan is NULL");
    EXPECT_ERROR(het_plan_new(NULL, NULL, "here", &made, &error), HET_ERR_INVALID, error.text, "here|NULL");
    assert_null(made);
    EXPECT_ERROR(het_plan_new(plan, NULL, "here", NULL, &error), HET_ERR_INVALID, error.text, "here|NULL");
    EXPECT_ERROR(het_plan_copy(NULL, NULL, "here", &made, &error), HET_ERR_INVALID, error.text, "here|NULL");
    part = *plan;
    part.share = part.state_share = part.slice_share = NULL;
    part.near = NULL;
    EXPECT_ERROR(het_plan_copy(&part, NULL, "here", &made, &error), HET_OK, error.text, "");
    assert_true(made->share[0] == 0 && made->stage[0].unit_end == 4); /* of arrays that are not there, zeros */
    het_plan_free(made);
    EXPECT_ERROR(het_schedule_new(1, 1, 1, NULL, "here", NULL, &error), HET_ERR_INVALID, error.text, "here|NULL");
    EXPECT_ERROR(het_schedule_new(1, 1, -1, NULL, "here", &more, &error), HET_ERR_LIMIT, error.text, "here");
    assert_null(more);
    EXPECT_ERROR(het_schedule_new(-1, 1, 1, NULL, "here", &more, &error), HET_ERR_LIMIT, error.text, "here");
    EXPECT_OK(het_schedule_make(plan, counts, NULL, &lists, NULL));
    EXPECT_ERROR(het_schedule_check(&part, NULL, lists, NULL, &error), HET_ERR_INVALID, error.text, "shares|NULL");
    part = *plan;
    part.stage[0].unit_end = 1 << 20; /* its cuts are not known, so nothing else looks at units */
    part.cut = NULL;
    EXPECT_ERROR(het_schedule_check(&part, NULL, lists, NULL, &error), HET_ERR_INVALID, error.text, "stage 0|1048576");
    part.stage[0].unit_end = 4;
    some = *lists;
    some.start = NULL;
    EXPECT_ERROR(het_schedule_check(plan, NULL, &some, NULL, &error), HET_ERR_INVALID, error.text, "het_schedule_check|arrays");
    EXPECT_ERROR(het_schedule_needs(plan, &some, 0, 1, 0, NULL, &needs, &error), HET_ERR_INVALID, error.text, "het_schedule_needs|arrays");
    EXPECT_ERROR(het_schedule_needs(plan, lists, 1, 1, 0, NULL, &needs, &error), HET_ERR_INVALID, error.text, "1 ranks from number 1|has 1");
    actions = lists->start[1];
    lists->start[1] = INT64_MAX; /* more than any memory holds */
    EXPECT_ERROR(het_schedule_check(plan, NULL, lists, NULL, &error), HET_ERR_INVALID, error.text, "rank 0|ends at 9223372036854775807");
    lists->start[1] = actions;
    EXPECT_ERROR(het_schedule_complete(plan, NULL, NULL, NULL, &more, &error), HET_ERR_INVALID, error.text, "NULL");
    het_schedule_free(lists);
    het_plan_free(plan);
    assert_int_equal(het_optimizer_slots(NULL), 2);
}

static void learning_rates(void **state)
{
    het_optimizer_desc o;
    (void)state;
    memset(&o, 0, sizeof o);
    assert_true(het_learning_rate(&o, 0) == (double)6e-4f);
    assert_true(het_learning_rate(&o, INT64_MAX) == 0.0);
    assert_true(het_learning_rate(NULL, 0) == (double)6e-4f); /* all defaults */
    assert_true(isfinite(het_learning_rate(&o, -5)));
}

static void granule_rules(void **state)
{
    static const int64_t equal[] = { 0, 128, 256, 384, 512, 640, 768 };
    static const int64_t unequal[] = { 0, 100, 100, 400, 500, 530, 560 };
    static const int64_t longer[] = { 0, 600, 640, 1700 };
    static const int64_t falling[] = { 0, 10, 5 };
    static const int64_t far[] = { INT64_MAX - 600, INT64_MAX };
    int64_t start[16], count = 0;
    (void)state;
    EXPECT_OK(het_granules(equal, 6, 0, start, 16, &count)); /* 3 divides 6 and 3 x 128 <= 512 */
    assert_int_equal(count, 2);
    assert_true(start[0] == 0 && start[1] == 384 && start[2] == 768);
    EXPECT_OK(het_granules(equal, 6, 2, start, 16, &count));
    assert_int_equal(count, 3);
    assert_true(start[1] == 256 && start[2] == 512 && start[3] == 768);
    EXPECT_OK(het_granules(unequal, 6, 0, start, 16, &count));
    assert_int_equal(count, 2);
    assert_true(start[1] == 500 && start[2] == 560);
    EXPECT_OK(het_granules(longer, 3, 0, start, 16, &count));
    assert_int_equal(count, 6);
    assert_true(start[1] == 512 && start[2] == 600 && start[3] == 640 && start[4] == 1152 && start[5] == 1664 && start[6] == 1700);
    assert_int_equal(het_granules(longer, 3, 0, start, 6, &count), HET_ERR_LIMIT);
    assert_int_equal(het_granules(NULL, 3, 0, start, 16, &count), HET_ERR_INVALID);
    EXPECT_OK(het_granules(equal, 6, 0, NULL, 0, &count)); /* counts only */
    assert_int_equal(count, 2);
    assert_int_equal(het_granules(equal, 6, 0, start, 16, NULL), HET_ERR_INVALID);
    assert_int_equal(het_granules(equal, -1, 0, start, 16, &count), HET_ERR_INVALID);
    assert_int_equal(het_granules(equal, 6, -2, start, 16, &count), HET_ERR_INVALID);
    assert_int_equal(het_granules(falling, 2, 0, start, 16, &count), HET_ERR_INVALID);
    EXPECT_OK(het_granules(far, 1, 0, start, 16, &count));
    assert_int_equal(count, 2);
    assert_true(start[1] == INT64_MAX - 88 && start[2] == INT64_MAX);
}

/* ---- batches ---- */

typedef het_result (*compute_call)(het_ctx *, const het_batch *, int64_t, het_step_info *);

static void batches(void **state)
{
    static const compute_call calls[] = { het_step, het_gradients, het_evaluate };
    static const int64_t bad_start[] = { 0, 60, 50 }, short_start[] = { 0, 20, 40 }, late_start[] = { 1, 20, 50 }, one_long[] = { 0, 50 };
    static const int64_t bad_granule[] = { 0, 30, 20, 50 }, inside[] = { 0, 10, 50 };
    uint64_t hash;
    small s;
    size_t i;
    (void)state;
    small_start(&s, HET_GPT2);
    hash = support_hash(s.ctx);
    for (i = 0; i < 3; i++) {
        compute_call call = calls[i];
        het_batch b = s.batch.batch, two[3];
        int32_t keep;
        float weight;
        two[0] = two[1] = two[2] = b;
        memset(&two[1], 0, sizeof two[1]), two[1].sequence_start = bad_start; /* no tokens: its arrays may be NULL */
        if (call != het_step) EXPECT_OK(call(s.ctx, two, 2, NULL));
        two[1] = b;
        CTX_ERROR(&s, call(s.ctx, NULL, 1, NULL), HET_ERR_INVALID, "NULL");
        CTX_ERROR(&s, call(s.ctx, &b, 0, NULL), HET_ERR_INVALID, "0 micro-batches");
        CTX_ERROR(&s, call(s.ctx, &b, -7, NULL), HET_ERR_INVALID, "-7");
        if (call != het_evaluate) CTX_ERROR(&s, call(s.ctx, two, 3, NULL), HET_ERR_LIMIT, "3|2"); /* evaluation takes any number */
        if (call != het_evaluate) CTX_ERROR(&s, call(s.ctx, two, INT64_MAX, NULL), HET_ERR_LIMIT, "9223372036854775807|2"); /* nothing is read */
        assert_int_equal(call(NULL, &b, 1, NULL), HET_ERR_INVALID);
        b.tokens = 61;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_LIMIT, "61|60");
        b.tokens = INT64_MAX;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_LIMIT, "9223372036854775807|60");
        b.tokens = -1;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_INVALID, "-1");
        b = s.batch.batch;
        b.sequences = 5;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_LIMIT, "5|4");
        b.sequences = -2;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_INVALID, "-2");
        b = s.batch.batch;
        b.token = NULL;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_INVALID, "token|NULL");
        b = s.batch.batch;
        b.target = NULL;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_INVALID, "target|NULL");
        b = s.batch.batch;
        b.sequence_start = NULL;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_INVALID, "sequence_start|NULL");
        b.sequence_start = bad_start;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_DATA, "sequence_start");
        b.sequence_start = short_start;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_DATA, "sequence_start[2]|40|50");
        b.sequence_start = late_start;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_DATA, "sequence_start[0]|1");
        b.sequence_start = one_long;
        b.sequences = 1;
        b.granules = 0;
        b.granule_start = NULL;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_LIMIT, "50|48");
        b = s.batch.batch;
        b.granules = -3;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_INVALID, "granules|-3");
        b.granules = 2;
        b.granule_start = NULL;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_INVALID, "granules|2|granule_start|NULL");
        b.granules = 61;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_INVALID, "granules is 61|60 (max_tokens)");
        b.granules = 3;
        b.granule_start = bad_granule;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_DATA, "granule_start[2]|20");
        b.granules = 2;
        b.granule_start = inside; /* the second one holds a piece of sequence 0 and all of sequence 1 */
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_DATA, "granule");
        b = s.batch.batch;

        keep = s.batch.token[7];
        s.batch.token[7] = 61;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_DATA, "micro-batch 0|token[7]|61");
        s.batch.token[7] = -1;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_DATA, "token[7]|-1");
        s.batch.token[7] = INT32_MIN;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_DATA, "token[7]|-2147483648");
        s.batch.token[7] = keep;
        keep = s.batch.target[49];
        s.batch.target[49] = -2;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_DATA, "target[49]|-2");
        s.batch.target[49] = 1000000;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_DATA, "target[49]|1000000");
        s.batch.target[49] = keep;
        weight = s.batch.weight[3];
        s.batch.weight[3] = -0.5f;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_DATA, "weight[3]|-0.5");
        s.batch.weight[3] = NAN;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_DATA, "weight[3]|nan");
        s.batch.weight[3] = INFINITY;
        CTX_ERROR(&s, call(s.ctx, &b, 1, NULL), HET_ERR_DATA, "weight[3]|inf");
        s.batch.weight[3] = weight;
    }
    {
        int32_t none[50];
        het_batch b = s.batch.batch;
        for (i = 0; i < 50; i++) none[i] = -1;
        b.target = none;
        CTX_ERROR(&s, het_step(s.ctx, &b, 1, NULL), HET_ERR_DATA, "no target");
    }
    assert_true(support_hash(s.ctx) == hash); /* nothing of all this changed the weights */
    assert_int_equal(het_get_step(s.ctx), 0);
    EXPECT_OK(het_step(s.ctx, &s.batch.batch, 1, NULL)); /* and the context still works */
    small_end(&s);
}

static void inference(void **state)
{
    float logits[61], *weights;
    int32_t token[4] = { 1, 2, 3, 61 };
    het_parameter_info info;
    het_desc desc;
    het_ctx *ctx;
    small s;
    (void)state;
    small_start(&s, HET_LLAMA);
    assert_int_equal(het_infer(NULL, token, 3, 0, logits), HET_ERR_INVALID);
    CTX_ERROR(&s, het_infer(s.ctx, NULL, 3, 0, logits), HET_ERR_INVALID, "NULL");
    CTX_ERROR(&s, het_infer(s.ctx, token, 3, 0, NULL), HET_ERR_INVALID, "NULL");
    CTX_ERROR(&s, het_infer(s.ctx, token, 0, 0, logits), HET_ERR_INVALID, "0");
    CTX_ERROR(&s, het_infer(s.ctx, token, -3, 0, logits), HET_ERR_INVALID, "-3");
    CTX_ERROR(&s, het_infer(s.ctx, token, 3, -1, logits), HET_ERR_INVALID, "-1");
    CTX_ERROR(&s, het_infer(s.ctx, token, 3, 46, logits), HET_ERR_LIMIT, "3|46|48");
    CTX_ERROR(&s, het_infer(s.ctx, token, INT64_MAX, INT64_MAX, logits), HET_ERR_LIMIT, "9223372036854775807|48");
    CTX_ERROR(&s, het_infer(s.ctx, token, 4, 0, logits), HET_ERR_DATA, "token[3]|61");
    CTX_ERROR(&s, het_infer(s.ctx, token, 1, 5, logits), HET_ERR_STATE, "5"); /* nothing came before */
    EXPECT_OK(het_infer(s.ctx, token, 3, 0, logits));
    EXPECT_OK(het_infer(s.ctx, token, 1, 3, logits));
    CTX_ERROR(&s, het_infer(s.ctx, token, 1, 9, logits), HET_ERR_STATE, "9");
    CTX_ERROR(&s, het_evaluate(s.ctx, NULL, 1, NULL), HET_ERR_INVALID, "NULL");
    EXPECT_OK(het_infer(s.ctx, token, 1, 4, logits)); /* a refused call took nothing */
    EXPECT_OK(het_evaluate(s.ctx, &s.batch.batch, 1, NULL)); /* computes over the kept keys */
    CTX_ERROR(&s, het_infer(s.ctx, token, 1, 4, logits), HET_ERR_STATE, "4");
    EXPECT_OK(het_infer(s.ctx, token, 3, 0, logits));
    EXPECT_OK(het_parameter_get_info(s.ctx, 0, &info));
    weights = support_floats(info.count, 1, 1);
    EXPECT_OK(het_parameter_write(s.ctx, 0, HET_WEIGHT, weights)); /* the kept keys are of other weights */
    free(weights);
    CTX_ERROR(&s, het_infer(s.ctx, token, 1, 3, logits), HET_ERR_STATE, "3");
    small_end(&s);

    memset(&desc, 0, sizeof desc);
    desc.model = support_model(HET_GPT2);
    desc.inference = HET_YES;
    ctx = support_create(&desc);
    small_start(&s, HET_GPT2);
    EXPECT_ERROR(het_step(ctx, &s.batch.batch, 1, NULL), HET_ERR_STATE, het_last_error(ctx), "het_step|inference");
    EXPECT_ERROR(het_gradients(ctx, &s.batch.batch, 1, NULL), HET_ERR_STATE, het_last_error(ctx), "het_gradients|inference");
    EXPECT_ERROR(het_parameter_read(ctx, 0, HET_GRADIENT, logits), HET_ERR_STATE, het_last_error(ctx), "het_parameter_read: no gradient of");
    EXPECT_OK(het_evaluate(ctx, &s.batch.batch, 1, NULL));
    small_end(&s);
    het_destroy(ctx);
}

/* ---- parameters, tensors, files ---- */

/* A gradient is there until something else is computed, which may take its memory. */
static void gradients_are_of_the_last_step(void **state)
{
    const int32_t token[3] = { 1, 2, 3 };
    float *values, logits[61];
    small s;
    (void)state;
    small_start(&s, HET_GPT2);
    assert_true(s.desc.model.vocab <= 61);
    values = support_floats(61 * 40 * 8, 1.0, 1);
    CTX_ERROR(&s, het_parameter_read(s.ctx, 0, HET_GRADIENT, values), HET_ERR_STATE, "no gradient");
    CTX_ERROR(&s, het_tensor_read(s.ctx, 0, HET_GRADIENT, values), HET_ERR_STATE, "no gradient");
    EXPECT_OK(het_step(s.ctx, &s.batch.batch, 1, NULL));
    EXPECT_OK(het_parameter_read(s.ctx, 0, HET_GRADIENT, values));
    EXPECT_OK(het_verify(s.ctx));
    EXPECT_OK(het_parameter_read(s.ctx, 0, HET_GRADIENT, values));
    EXPECT_OK(het_evaluate(s.ctx, &s.batch.batch, 1, NULL));
    CTX_ERROR(&s, het_parameter_read(s.ctx, 0, HET_GRADIENT, values), HET_ERR_STATE, "no gradient");
    EXPECT_OK(het_gradients(s.ctx, &s.batch.batch, 1, NULL));
    EXPECT_OK(het_tensor_read(s.ctx, 0, HET_GRADIENT, values));
    EXPECT_OK(het_infer(s.ctx, token, 3, 0, logits));
    CTX_ERROR(&s, het_tensor_read(s.ctx, 0, HET_GRADIENT, values), HET_ERR_STATE, "no gradient");
    free(values);
    small_end(&s);
}

static void parameters_and_tensors(void **state)
{
    het_parameter_info info;
    het_tensor_info tensor;
    uint64_t hash;
    int64_t count;
    float *values;
    small s;
    (void)state;
    small_start(&s, HET_GPT2);
    values = support_floats(61 * 40 * 8, 1.0, 1);
    count = het_parameter_count(s.ctx);
    assert_true(count > 10 && het_tensor_count(s.ctx) > 10);
    assert_int_equal(het_parameter_count(NULL), 0);
    assert_int_equal(het_tensor_count(NULL), 0);
    assert_int_equal(het_parameter_get_info(s.ctx, -1, &info), HET_ERR_INVALID);
    assert_int_equal(het_parameter_get_info(s.ctx, count, &info), HET_ERR_INVALID);
    assert_int_equal(het_parameter_get_info(s.ctx, 0, NULL), HET_ERR_INVALID);
    assert_int_equal(het_parameter_get_info(NULL, 0, &info), HET_ERR_INVALID);
    CTX_ERROR(&s, het_parameter_read(s.ctx, -1, HET_WEIGHT, values), HET_ERR_INVALID, "-1");
    CTX_ERROR(&s, het_parameter_read(s.ctx, 9999, HET_WEIGHT, values), HET_ERR_INVALID, "9999");
    CTX_ERROR(&s, het_parameter_read(s.ctx, 0, HET_WEIGHT, NULL), HET_ERR_INVALID, "NULL");
    CTX_ERROR(&s, het_parameter_read(s.ctx, 0, (het_array)17, values), HET_ERR_INVALID, "17");
    CTX_ERROR(&s, het_parameter_read(s.ctx, 0, HET_MOMENT3, values), HET_ERR_INVALID, "5");
    CTX_ERROR(&s, het_parameter_write(s.ctx, 9999, HET_WEIGHT, values), HET_ERR_INVALID, "9999");
    CTX_ERROR(&s, het_parameter_write(s.ctx, 0, HET_WEIGHT, NULL), HET_ERR_INVALID, "NULL");
    CTX_ERROR(&s, het_parameter_write(s.ctx, 0, HET_GRADIENT, values), HET_ERR_INVALID, "gradient");
    assert_int_equal(het_parameter_read(NULL, 0, HET_WEIGHT, values), HET_ERR_INVALID);
    assert_int_equal(het_parameter_write(NULL, 0, HET_WEIGHT, values), HET_ERR_INVALID);
    assert_int_equal(het_tensor_get_info(s.ctx, -1, &tensor), HET_ERR_INVALID);
    assert_int_equal(het_tensor_get_info(s.ctx, het_tensor_count(s.ctx), &tensor), HET_ERR_INVALID);
    assert_int_equal(het_tensor_get_info(s.ctx, 0, NULL), HET_ERR_INVALID);
    assert_int_equal(het_tensor_get_info(NULL, 0, &tensor), HET_ERR_INVALID);
    CTX_ERROR(&s, het_tensor_read(s.ctx, 9999, HET_WEIGHT, values), HET_ERR_INVALID, "9999");
    CTX_ERROR(&s, het_tensor_read(s.ctx, 0, HET_WEIGHT, NULL), HET_ERR_INVALID, "NULL");
    CTX_ERROR(&s, het_tensor_write(s.ctx, -4, HET_WEIGHT, values), HET_ERR_INVALID, "-4");
    CTX_ERROR(&s, het_tensor_write(s.ctx, 0, HET_WEIGHT, NULL), HET_ERR_INVALID, "NULL");
    assert_int_equal(het_tensor_read(NULL, 0, HET_WEIGHT, values), HET_ERR_INVALID);
    assert_int_equal(het_tensor_write(NULL, 0, HET_WEIGHT, values), HET_ERR_INVALID);
    CTX_ERROR(&s, het_hash(s.ctx, NULL), HET_ERR_INVALID, "hash|NULL");
    assert_int_equal(het_hash(NULL, &hash), HET_ERR_INVALID);
    het_set_base(s.ctx, 7);
    EXPECT_OK(het_gradients(s.ctx, &s.batch.batch, 1, NULL));
    assert_int_equal(het_get_base(s.ctx), 7);
    EXPECT_OK(het_step(s.ctx, &s.batch.batch, 1, NULL)); /* the weights are others now */
    assert_int_equal(het_get_base(s.ctx), 0);
    het_destroy(s.ctx);
    s.desc.model.lora_rank = 2;
    EXPECT_OK(het_model_complete(&s.desc.model, NULL));
    s.ctx = support_create(&s.desc);
    het_set_base(s.ctx, 7);
    EXPECT_OK(het_step(s.ctx, &s.batch.batch, 1, NULL)); /* of factors alone */
    assert_int_equal(het_get_base(s.ctx), 7);
    EXPECT_OK(het_set_speed(s.ctx, 0, het_get_desc(s.ctx)->layout.devices[0].speed)); /* 1: what it uses */
    free(values);
    small_end(&s);
}

static void queries_without_a_context(void **state)
{
    het_memory memory;
    het_data_info info;
    (void)state;
    memset(&info, 0xFF, sizeof info);
    het_data_get_info(NULL, &info);
    assert_int_equal(info.tokens, 0);
    het_data_get_info(NULL, NULL);
    assert_string_equal(het_last_error(NULL), "");
    assert_null(het_get_desc(NULL));
    assert_int_equal(het_get_step(NULL), 0);
    memset(&memory, 0xFF, sizeof memory);
    het_get_memory(NULL, 0, &memory);
    het_cancel(NULL);
    het_destroy(NULL);
    het_data_close(NULL);
    assert_non_null(het_cpu_device());
    assert_non_null(het_null_device());
    assert_int_equal(het_cpu_device()->version, HETRAIN_DEVICE_VERSION);
    assert_int_equal(het_null_device()->version, HETRAIN_DEVICE_VERSION);
    assert_int_equal(het_unit_embed()->version, HETRAIN_UNIT_VERSION);
    assert_int_equal(het_unit_attention()->version, HETRAIN_UNIT_VERSION);
    assert_int_equal(het_unit_mlp()->version, HETRAIN_UNIT_VERSION);
    assert_int_equal(het_unit_head()->version, HETRAIN_UNIT_VERSION);
    assert_int_equal(het_adamw()->slots, 2);
}

static void writers_and_readers(void **state)
{
    support_buffer file;
    het_writer to;
    het_reader from;
    size_t size;
    int64_t k;
    small s;
    uint64_t hash;
    (void)state;
    small_start(&s, HET_QWEN2);
    hash = support_hash(s.ctx);
    support_buffer_start(&file);
    to = support_writer(&file);
    assert_int_equal(het_save_weights(NULL, &to), HET_ERR_INVALID);
    assert_int_equal(het_save_state(NULL, &to), HET_ERR_INVALID);
    CTX_ERROR(&s, het_save_weights(s.ctx, NULL), HET_ERR_INVALID, "NULL");
    CTX_ERROR(&s, het_save_state(s.ctx, NULL), HET_ERR_INVALID, "NULL");
    to.write = NULL;
    CTX_ERROR(&s, het_save_weights(s.ctx, &to), HET_ERR_INVALID, "NULL");
    to = support_writer(&file);
    file.fail_after = 100;
    CTX_ERROR(&s, het_save_weights(s.ctx, &to), HET_ERR_IO, "test.out");
    CTX_ERROR(&s, het_save_state(s.ctx, &to), HET_ERR_IO, "test.out");
    file.fail_after = -1;
    file.size = 0;
    EXPECT_OK(het_save_weights(s.ctx, &to));
    size = file.size;

    from = support_reader(&file);
    assert_int_equal(het_load_weights(NULL, &from), HET_ERR_INVALID);
    assert_int_equal(het_load_state(NULL, &from), HET_ERR_INVALID);
    CTX_ERROR(&s, het_load_weights(s.ctx, NULL), HET_ERR_INVALID, "NULL");
    CTX_ERROR(&s, het_load_state(s.ctx, NULL), HET_ERR_INVALID, "NULL");
    file.fail_after = (int64_t)size / 2;
    CTX_ERROR(&s, het_load_weights(s.ctx, &from), HET_ERR_IO, "test.bin");
    file.fail_after = -1;
    for (k = 0; k < 60; k++) { /* cut short anywhere: refused, nothing changed */
        from.size = file.size = size * (size_t)k / 60;
        CTX_ERROR(&s, het_load_weights(s.ctx, &from), HET_ERR_FORMAT, "test.bin");
        CTX_ERROR(&s, het_load_state(s.ctx, &from), HET_ERR_FORMAT, "test.bin");
    }
    file.size = size;
    from = support_reader(&file);
    CTX_ERROR(&s, het_load_state(s.ctx, &from), HET_ERR_FORMAT, "test.bin"); /* weights are not state */
    file.data[3] = 0x7F; /* a header of 2 GB */
    CTX_ERROR(&s, het_load_weights(s.ctx, &from), HET_ERR_FORMAT, "test.bin");
    file.data[3] = 0;
    file.data[8] = 'x';
    CTX_ERROR(&s, het_load_weights(s.ctx, &from), HET_ERR_FORMAT, "test.bin|8");
    file.data[8] = '{';
    EXPECT_OK(het_load_weights(s.ctx, &from));
    assert_true(support_hash(s.ctx) == hash);
    { /* the weights of another shape */
        small other;
        small_start(&other, HET_LLAMA);
        CTX_ERROR(&other, het_load_weights(other.ctx, &from), HET_ERR_FORMAT, "test.bin");
        small_end(&other);
    }
    support_buffer_end(&file);
    small_end(&s);
}

/* `from` with one tensor more: `elements` floats of which the first are those of tensor `copied` of the file. */
static void add_tensor(support_buffer *to, const support_buffer *from, const char *name, const char *shape, const char *copied, size_t elements)
{
    size_t header = from->data[0] | (size_t)from->data[1] << 8, i, begin, end;
    char *text = support_alloc(header + 1, 1), entry[200];
    const char *at;
    memcpy(text, from->data + 8, header);
    at = strstr(text, copied);
    assert_non_null(at);
    at = strstr(at, "\"data_offsets\":[");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "\"data_offsets\":[%zu,%zu]", &begin, &end), 2);
    snprintf(entry, sizeof entry, "\"%s\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%zu,%zu]},", name, shape, from->size - 8 - header,
             from->size - 8 - header + 4 * elements);
    support_buffer_start(to);
    for (i = 0; i < 8; i++) {
        unsigned char byte = (unsigned char)((uint64_t)(header + strlen(entry)) >> 8 * i);
        support_buffer_append(to, &byte, 1);
    }
    support_buffer_append(to, "{", 1);
    support_buffer_append(to, entry, strlen(entry));
    support_buffer_append(to, text + 1, header - 1);
    support_buffer_append(to, from->data + 8 + header, from->size - 8 - header);
    assert_true(4 * elements <= end - begin);
    support_buffer_append(to, from->data + 8 + header + begin, 4 * elements);
    free(text);
}

/* A tied model's head in a file must be the embedding once more. */
static void tied_heads_in_files(void **state)
{
    static const het_family families[] = { HET_QWEN3, HET_GPT2, HET_NEOX };
    static const char *const embeddings[] = { "model.embed_tokens.weight", "transformer.wte.weight", "gpt_neox.embed_in.weight" };
    static const char *const heads[] = { "lm_head.weight", "lm_head.weight", "embed_out.weight" };
    int i, tied;
    (void)state;
    for (i = 0; i < 3; i++) {
        for (tied = 0; tied < 2; tied++) {
            support_buffer file, more;
            het_writer to;
            het_reader from;
            het_desc desc;
            het_ctx *ctx;
            char shape[40];
            uint64_t hash;
            size_t elements;
            memset(&desc, 0, sizeof desc);
            desc.model = support_model(families[i]);
            desc.model.tied = tied ? HET_YES : HET_NO;
            desc.limits.max_tokens = 20;
            ctx = support_create(&desc);
            elements = (size_t)(desc.model.vocab * desc.model.width);
            hash = support_hash(ctx);
            support_buffer_start(&file);
            to = support_writer(&file);
            EXPECT_OK(het_save_weights(ctx, &to));
            snprintf(shape, sizeof shape, "[%d,%d]", (int)desc.model.vocab, (int)desc.model.width);
            add_tensor(&more, &file, tied ? heads[i] : "lm_tail.weight", shape, embeddings[i], elements);
            from = support_reader(&more);
            if (tied) {
                EXPECT_OK(het_load_weights(ctx, &from));
                more.data[more.size - 1] ^= 0x80; /* the sign of its last element */
                EXPECT_ERROR(het_load_weights(ctx, &from), HET_ERR_FORMAT, het_last_error(ctx), "differs|tied");
                EXPECT_ERROR(het_load_weights(ctx, &from), HET_ERR_FORMAT, het_last_error(ctx), heads[i]);
                support_buffer_end(&more);
                snprintf(shape, sizeof shape, "[%d,%d]", (int)desc.model.vocab - 1, (int)desc.model.width);
                add_tensor(&more, &file, heads[i], shape, embeddings[i], elements - (size_t)desc.model.width);
                from = support_reader(&more);
                EXPECT_ERROR(het_load_weights(ctx, &from), HET_ERR_FORMAT, het_last_error(ctx), "has shape|60|61");
            } else {
                EXPECT_ERROR(het_load_weights(ctx, &from), HET_ERR_FORMAT, het_last_error(ctx), "lm_tail.weight|no such tensor");
            }
            assert_true(support_hash(ctx) == hash); /* refused before anything is written */
            support_buffer_end(&more);
            support_buffer_end(&file);
            het_destroy(ctx);
        }
    }
}

/* ---- data, training, sampling ---- */

static void data_sources(void **state)
{
    support_buffer file;
    het_data_desc base, desc;
    het_data *data = NULL;
    het_data_info info;
    het_batch batch;
    het_error error;
    int i;
    (void)state;
    support_buffer_start(&file);
    for (i = 0; i < 1000; i++) support_buffer_append(&file, "a", 1);
    memset(&base, 0, sizeof base);
    base.reader = support_reader(&file);
    base.length = 10;
    base.sequences = 3;
    EXPECT_ERROR(het_data_open(NULL, &data, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_data_open(&base, NULL, &error), HET_ERR_INVALID, error.text, "NULL");
#define DATA_REFUSED(field, value, words) \
    do { \
        desc = base; \
        desc.field = value; \
        EXPECT_ERROR(het_data_open(&desc, &data, &error), HET_ERR_INVALID, error.text, words); \
        assert_null(data); \
    } while (0)
    DATA_REFUSED(reader.read, NULL, "read|NULL");
    DATA_REFUSED(format, (het_data_format)9, "format|9");
    DATA_REFUSED(vocab, -1, "vocab|-1");
    DATA_REFUSED(vocab, INT64_C(1) << 40, "vocab|1099511627776");
    DATA_REFUSED(length, -5, "length|-5");
    DATA_REFUSED(length, INT64_MAX, "length|9223372036854775807");
    DATA_REFUSED(sequences, -6, "sequences|-6");
    DATA_REFUSED(granule, -8, "granule|-8");
    DATA_REFUSED(held_out, 1.5f, "held_out|1.5");
    DATA_REFUSED(held_out, NAN, "held_out|nan");
    EXPECT_ERROR(het_data_open(&base, &data, &error), HET_OK, error.text, "");
    het_data_get_info(data, &info);
    assert_int_equal(info.tokens, 1000);
    EXPECT_ERROR(het_data_batch(NULL, 0, 0, 1, 0, &batch, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_data_batch(data, 0, 0, 1, 0, NULL, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_data_batch(data, -1, 0, 1, 0, &batch, &error), HET_ERR_INVALID, error.text, "step|-1");
    EXPECT_ERROR(het_data_batch(data, INT64_MAX, 0, 1, 0, &batch, &error), HET_ERR_INVALID, error.text, "step|9223372036854775807");
    EXPECT_ERROR(het_data_batch(data, 0, 2, 2, 0, &batch, &error), HET_ERR_INVALID, error.text, "micro_batch|2");
    EXPECT_ERROR(het_data_batch(data, 0, -1, 2, 0, &batch, &error), HET_ERR_INVALID, error.text, "micro_batch|-1");
    EXPECT_ERROR(het_data_batch(data, 0, 0, 0, 0, &batch, &error), HET_ERR_INVALID, error.text, "0");
    EXPECT_ERROR(het_data_batch(data, 0, 0, 1, 64, &batch, &error), HET_ERR_INVALID, error.text, "slot|64");
    EXPECT_ERROR(het_data_batch(data, 0, 0, 1, -1, &batch, &error), HET_ERR_INVALID, error.text, "slot|-1");
    EXPECT_ERROR(het_data_held_out(NULL, 0, &batch, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_data_held_out(data, 0, NULL, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_data_held_out(data, -3, &batch, &error), HET_ERR_INVALID, error.text, "first|-3");
    EXPECT_ERROR(het_data_held_out(data, 100000, &batch, &error), HET_OK, error.text, "");
    assert_int_equal(batch.tokens, 0);
    het_data_close(data);
    support_buffer_end(&file);
}

static het_result stop_after_two(void *user, het_ctx *ctx, const het_step_info *info, double validation_loss)
{
    (void)user;
    (void)ctx;
    (void)validation_loss;
    return info->step == 1 ? HET_ERR_CALLBACK : HET_OK;
}

static void one_call_training(void **state)
{
    support_buffer file;
    het_train_desc base, desc;
    het_ctx *ctx = NULL;
    het_error error;
    int i;
    (void)state;
    support_buffer_start(&file);
    for (i = 0; i < 1000; i++) support_buffer_append(&file, &"abcdefgh"[i % 8], 1);
    memset(&base, 0, sizeof base);
    base.context.model = support_model(HET_LLAMA);
    base.context.model.vocab = 256;
    base.data.reader = support_reader(&file);
    base.data.length = 24;
    base.steps = 3;
    EXPECT_ERROR(het_train(NULL, &ctx, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_train(&base, NULL, &error), HET_ERR_INVALID, error.text, "NULL");
#define TRAIN_REFUSED(field, value, code, words) \
    do { \
        desc = base; \
        desc.field = value; \
        EXPECT_ERROR(het_train(&desc, &ctx, &error), code, error.text, words); \
        assert_null(ctx); \
    } while (0)
    TRAIN_REFUSED(steps, -1, HET_ERR_INVALID, "steps|-1");
    TRAIN_REFUSED(micro_batches, -2, HET_ERR_INVALID, "micro_batches|-2");
    TRAIN_REFUSED(evaluate_batches, -3, HET_ERR_INVALID, "evaluate_batches|-3|negative");
    TRAIN_REFUSED(data.length, 49, HET_ERR_LIMIT, "49|48"); /* beyond the context */
    TRAIN_REFUSED(data.reader.read, NULL, HET_ERR_INVALID, "read");
    TRAIN_REFUSED(context.limits.max_tokens, 10, HET_ERR_LIMIT, "10");
    TRAIN_REFUSED(context.dtype, (het_dtype)7, HET_ERR_INVALID, "dtype is 7");
    begins_with(error.text, "het_train", __LINE__);
    TRAIN_REFUSED(progress, stop_after_two, HET_ERR_CALLBACK, "");
    EXPECT_ERROR(het_train(&base, &ctx, &error), HET_OK, error.text, "");
    assert_int_equal(het_get_step(ctx), 3);
    het_destroy(ctx);
    support_buffer_end(&file);
}

static void sampling(void **state)
{
    static const float logits[5] = { 0.0f, 2.0f, 1.0f, -1.0f, 1.5f };
    float scratch[5];
    int counts[5] = { 0, 0, 0, 0, 0 };
    uint64_t i;
    (void)state;
    assert_int_equal(het_sample(logits, 5, 0.0f, 0, 0.0f, 1, 1, scratch), 1);
    for (i = 0; i < 200; i++) {
        int32_t token = het_sample(logits, 5, 1.0f, 2, 0.0f, 7, i, scratch);
        assert_true(token == 1 || token == 4);
        assert_int_equal(het_sample(logits, 5, 1.0f, 1, 0.0f, 7, i, scratch), 1);
        assert_int_equal(het_sample(logits, 5, 1.0f, 0, 1e-6f, 7, i, scratch), 1);
        assert_int_equal(het_sample(logits, 5, 1e-6f, 0, 0.0f, 7, i, scratch), 1);
        assert_int_equal(het_sample(logits, 1, 1.0f, 0, 0.0f, 7, i, scratch), 0);
        assert_int_equal(het_sample(logits, 5, 0.7f, 3, 0.9f, 7, i, scratch), het_sample(logits, 5, 0.7f, 3, 0.9f, 7, i, scratch));
    }
    for (i = 0; i < 20000; i++) counts[het_sample(logits, 5, 1.0f, 0, 1.0f, 9, i, scratch)]++;
    for (i = 0; i < 5; i++) {
        double total = 0.0, p;
        int k;
        for (k = 0; k < 5; k++) total += exp((double)logits[k]);
        p = exp((double)logits[i]) / total;
        assert_true(fabs((double)counts[i] / 20000.0 - p) < 5.0 * sqrt(p * (1.0 - p) / 20000.0));
    }
    assert_int_equal(het_sample(NULL, 5, 1.0f, 0, 0.0f, 1, 1, scratch), -1);
    assert_int_equal(het_sample(logits, 0, 1.0f, 0, 0.0f, 1, 1, scratch), -1);
    assert_int_equal(het_sample(logits, 5, 1.0f, 0, 0.0f, 1, 1, NULL), -1);
}

static void paths(void **state)
{
    het_reader reader;
    het_error error;
    small s;
    (void)state;
    memset(&reader, 0, sizeof reader);
    EXPECT_ERROR(het_reader_open("/nowhere/at/all", &reader, &error), HET_ERR_IO, error.text, "/nowhere/at/all: cannot be opened: No such file");
    EXPECT_ERROR(het_reader_open(NULL, &reader, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_reader_open("x", NULL, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_reader_open("/", &reader, &error), HET_ERR_IO, error.text, "/: is not a file|: Is a directory");
    het_reader_close(NULL);
    het_reader_close(&reader);
    small_start(&s, HET_GPT2);
    CTX_ERROR(&s, het_save_file(s.ctx, "/nowhere/at/all", het_save_weights), HET_ERR_IO, "/nowhere/at/all");
    CTX_ERROR(&s, het_save_file(s.ctx, NULL, het_save_weights), HET_ERR_INVALID, "NULL");
    CTX_ERROR(&s, het_save_file(s.ctx, "x", NULL), HET_ERR_INVALID, "NULL");
    assert_int_equal(het_save_file(NULL, "x", het_save_weights), HET_ERR_INVALID);
    small_end(&s);
}

/* A save that makes no call on the context, or none that fails; a context that failed saves nothing. */
static het_result save_positive(het_ctx *ctx, const het_writer *to) { (void)ctx, (void)to; return (het_result)7; }
static het_result save_byte(het_ctx *ctx, const het_writer *to) { (void)ctx; return to->write(to->user, "x", 1) ? HET_ERR_IO : HET_OK; }
static void saves_of_ones_own(void **state)
{
    char path[200];
    FILE *file;
    small s;
    (void)state;
    (void)snprintf(path, sizeof path, "%s/misuse_saved", getenv("BUILD") ? getenv("BUILD") : ".");
    small_start(&s, HET_GPT2);
    CTX_ERROR(&s, het_hash(s.ctx, NULL), HET_ERR_INVALID, "hash is NULL");
    CTX_ERROR(&s, het_save_file(s.ctx, path, save_positive), HET_ERR_CALLBACK, "callback");
    EXPECT_OK(het_save_file(s.ctx, path, save_byte));
    assert_string_equal(het_last_error(s.ctx), "");
    assert_int_equal(remove(path), 0);
    het_cancel(s.ctx);
    CTX_ERROR(&s, het_step(s.ctx, &s.batch.batch, 1, NULL), HET_ERR_CANCELLED, "cancelled");
    CTX_ERROR(&s, het_save_file(s.ctx, path, save_byte), HET_ERR_STATE, "cancelled");
    CTX_ERROR(&s, het_save_file(s.ctx, NULL, save_byte), HET_ERR_STATE, "cancelled");
    file = fopen(path, "rb");
    assert_null(file);
    small_end(&s);
}

/* ---- callbacks that fail, cancelling, two contexts ---- */

static het_result failing_hook(void *user, const het_hook_info *info)
{
    const int64_t *unit = user;
    return info->unit == *unit ? HET_ERR_CALLBACK : HET_OK;
}

static void hooks_that_fail(void **state)
{
    het_desc desc;
    het_ctx *ctx;
    support_batch batch;
    int64_t unit = 3;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.model = support_model(HET_GPT2);
    desc.host.hook = failing_hook;
    desc.host.user = &unit;
    ctx = support_create(&desc);
    support_batch_start(&batch);
    support_batch_sequence(&batch, 20, 61, 0, 1);
    EXPECT_ERROR(het_step(ctx, &batch.batch, 1, NULL), HET_ERR_CALLBACK, het_last_error(ctx), "hook|unit 3");
    het_set_base(ctx, 7); /* a context that failed answers queries alone */
    assert_int_equal(het_get_base(ctx), 0);
    het_destroy(ctx);
    support_batch_end(&batch);
}

/* Errors are negative: a positive number of a callback's does not become a call's result. */
static het_result positive_hook(void *user, const het_hook_info *info) { (void)user, (void)info; return (het_result)7; }

static void positive_results_are_errors(void **state)
{
    het_error error;
    small s;
    (void)state;
    small_start(&s, HET_GPT2);
    assert_int_equal(het_fail(s.ctx, (het_result)7, "of mine"), HET_ERR_CALLBACK);
    assert_string_equal(het_last_error(s.ctx), "of mine");
    assert_int_equal(het_error_put(NULL, (het_result)7, ""), HET_ERR_CALLBACK);
    assert_int_equal(het_fail(s.ctx, HET_ERR_IO, het_last_error(s.ctx)), HET_ERR_IO); /* with another code */
    assert_string_equal(het_last_error(s.ctx), "of mine");
    assert_int_equal(het_error_put(&error, HET_ERR_IO, "a text"), HET_ERR_IO);
    assert_int_equal(het_error_put(&error, HET_ERR_DATA, error.text), HET_ERR_DATA);
    assert_string_equal(error.text, "a text");
    het_destroy(s.ctx);
    s.desc.host.hook = positive_hook;
    s.ctx = support_create(&s.desc);
    CTX_ERROR(&s, het_step(s.ctx, &s.batch.batch, 1, NULL), HET_ERR_CALLBACK, "hook");
    small_end(&s);
}

static het_result positive_make(const het_plan *plan, const int64_t *counts, const het_allocator *allocator, het_schedule **schedule,
                                het_error *error)
{
    const het_result result = het_schedule_make(plan, counts, allocator, schedule, error);
    return result == HET_OK && plan->memory_limit > 4 ? (het_result)7 : result;
}
static het_result crossed_make(const het_plan *plan, const int64_t *counts, const het_allocator *allocator, het_schedule **schedule,
                               het_error *error)
{
    const het_result result = positive_make(plan, counts, allocator, schedule, error);
    if (plan->memory_limit > 3) het_schedule_free(*schedule), *schedule = NULL;
    else (*schedule)->start[1] = -1;
    return result;
}

static void lists_of_make_are_checked(void **state)
{
    const int64_t counts[1] = { 2 };
    het_schedule *lists, *complete;
    het_error error;
    het_plan *plan;
    het_ctx *ctx;
    small s;
    (void)state;
    small_start(&s, HET_GPT2);
    plan = support_plan("dp", "gpipe", 2 * s.desc.model.layers + 2, 1, 1);
    s.desc.layout.plan = plan;
    plan->make = positive_make, plan->memory_limit = 5;
    EXPECT_ERROR(het_create(&s.desc, &ctx, &error), HET_ERR_CALLBACK, error.text, "het_create|het_plan.make|7");
    plan->make = crossed_make, plan->memory_limit = 4;
    EXPECT_ERROR(het_create(&s.desc, &ctx, &error), HET_ERR_INVALID, error.text, "het_create|NULL");
    plan->memory_limit = 3;
    EXPECT_ERROR(het_create(&s.desc, &ctx, &error), HET_ERR_INVALID, error.text, "het_create|rank 0: its list begins at 0 and ends at -1");
    plan->memory_limit = 0;
    EXPECT_OK(het_schedule_make(plan, counts, NULL, &lists, &error));
    EXPECT_OK(het_schedule_complete(plan, NULL, lists, NULL, &complete, &error));
    s.desc.layout.schedule = complete;
    EXPECT_ERROR(het_create(&s.desc, &ctx, &error), HET_ERR_INVALID, error.text, "het_create|schedule is complete already");
    het_schedule_free(complete);
    het_schedule_free(lists);
    het_plan_free(plan);
    small_end(&s);
}

static void cancelled(void **state)
{
    small s;
    (void)state;
    small_start(&s, HET_GPT2);
    het_cancel(s.ctx);
    CTX_ERROR(&s, het_step(s.ctx, &s.batch.batch, 1, NULL), HET_ERR_CANCELLED, "cancel");
    small_end(&s);
}

/* Also while a rank sleeps because it is emulated to be slow. */
static int cancelling(void *user, int64_t rank, int64_t step, int64_t position)
{
    (void)rank, (void)step, (void)position;
    het_cancel(*(het_ctx **)user);
    return 0;
}

static void cancelled_asleep(void **state)
{
    het_device_desc device;
    small s;
    (void)state;
    small_start(&s, HET_GPT2);
    het_destroy(s.ctx);
    memset(&device, 0, sizeof device);
    device.speed = 1e-3;
    s.desc.layout.devices = &device;
    s.desc.layout.device_count = 1;
    s.desc.emulate.test_hang = cancelling;
    s.desc.host.user = &s.ctx;
    s.ctx = support_create(&s.desc);
    CTX_ERROR(&s, het_step(s.ctx, &s.batch.batch, 1, NULL), HET_ERR_CANCELLED, "cancel");
    small_end(&s);
}

static int log_lines;
static void count_log(void *user, het_log_level level, het_result code, const char *text)
{
    (void)user;
    (void)level;
    assert_true(code != HET_OK && text[0] != 0);
    log_lines++;
}

static void errors_are_logged(void **state)
{
    het_desc desc;
    het_ctx *ctx = NULL;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.host.logger.log = count_log;
    desc.limits.max_tokens = -1;
    assert_int_equal(het_create(&desc, &ctx, NULL), HET_ERR_INVALID);
    assert_true(log_lines >= 1);
}

/* ---- calls on a context from its own callbacks ---- */

typedef struct callbacks {
    small s;
    het_desc desc;                /* of one rank, or of three */
    het_device_desc devices[3];
    const char *name;             /* of the callback, as messages have it */
    const char *call;             /* the call that it is in */
    int armed, all;               /* all: the whole table is tried, not only het_step */
    int tried[3], wrong[3];       /* by rank: cmocka must not leave a rank's thread by a jump */
} callbacks;

static het_result save_nothing(het_ctx *ctx, const het_writer *to) { (void)ctx, (void)to; return HET_OK; }

static float inside_values[1 << 14];
static het_result inside_step(het_ctx *ctx, callbacks *c) { return het_step(ctx, &c->s.batch.batch, 1, NULL); }
static het_result inside_gradients(het_ctx *ctx, callbacks *c) { return het_gradients(ctx, &c->s.batch.batch, 1, NULL); }
static het_result inside_evaluate(het_ctx *ctx, callbacks *c) { return het_evaluate(ctx, &c->s.batch.batch, 1, NULL); }
static het_result inside_infer(het_ctx *ctx, callbacks *c) { return het_infer(ctx, c->s.batch.token, 1, 0, inside_values); }
static het_result inside_replan(het_ctx *ctx, callbacks *c) { (void)c; return het_replan(ctx, NULL); }
static het_result inside_set_link(het_ctx *ctx, callbacks *c) { (void)c; return het_set_link(ctx, NULL); }
static het_result inside_set_speed(het_ctx *ctx, callbacks *c) { (void)c; return het_set_speed(ctx, 0, 1.0); }
static het_result inside_spread(het_ctx *ctx, callbacks *c) { (void)c; return het_broadcast(ctx, 0, inside_values, 4); }
static het_result inside_read(het_ctx *ctx, callbacks *c) { (void)c; return het_parameter_read(ctx, 0, HET_WEIGHT, inside_values); }
static het_result inside_write(het_ctx *ctx, callbacks *c) { (void)c; return het_parameter_write(ctx, 0, HET_WEIGHT, inside_values); }
static het_result inside_restore_begin(het_ctx *ctx, callbacks *c) { (void)c; return het_restore_begin(ctx, HET_WEIGHTS_INCOMPLETE); }
static het_result inside_restore_end(het_ctx *ctx, callbacks *c) { (void)c; return het_restore_end(ctx, HET_WEIGHTS_INCOMPLETE, 0, NULL, NULL); }
static het_result inside_fail(het_ctx *ctx, callbacks *c) { (void)c; return het_fail(ctx, HET_ERR_IO, "of its own making"); }
static het_result inside_hash(het_ctx *ctx, callbacks *c) { uint64_t hash; (void)c; return het_hash(ctx, &hash); }
static het_result inside_verify(het_ctx *ctx, callbacks *c) { (void)c; return het_verify(ctx); }
static het_result inside_save_file(het_ctx *ctx, callbacks *c) { (void)c; return het_save_file(ctx, "/nowhere/at/all", save_nothing); }
static het_result inside_destroy(het_ctx *ctx, callbacks *c) { (void)c; het_destroy(ctx); return HET_ERR_STATE; }

static het_result inside_set_base(het_ctx *ctx, callbacks *c)
{
    (void)c;
    het_set_base(ctx, 1);
    return het_get_base(ctx) == 0 ? HET_ERR_STATE : HET_OK;
}

static const struct { const char *name; het_result (*call)(het_ctx *ctx, callbacks *c); } inside_calls[] = {
    { "het_step", inside_step },           { "het_gradients", inside_gradients },       { "het_evaluate", inside_evaluate },
    { "het_infer", inside_infer },         { "het_replan", inside_replan },             { "het_set_speed", inside_set_speed },
        { "het_set_link", inside_set_link },
    { "het_broadcast", inside_spread },       { "het_parameter_read", inside_read },       { "het_parameter_write", inside_write },
    { "het_restore_begin", inside_restore_begin }, { "het_restore_end", inside_restore_end }, { "het_fail", inside_fail },
    { "het_hash", inside_hash },           { "het_verify", inside_verify },             { "het_save_file", inside_save_file },
    { "het_destroy", inside_destroy },     { "het_set_base", inside_set_base },
};

/* What a callback of an armed context tries on a rank's thread, or on the caller's (0). */
static void try_inside(callbacks *c, int64_t rank)
{
    het_ctx *ctx = c->s.ctx;
    const size_t calls = c->all ? sizeof inside_calls / sizeof *inside_calls : 1;
    het_timeline timeline;
    het_memory memory;
    het_loss_history recent;
    het_parameter_info info;
    char words[200];
    size_t i;
    if (!c->armed || ctx == NULL) return;
    for (i = 0; i < calls; i++) {
        const het_result result = inside_calls[i].call(ctx, c);
        (void)snprintf(words, sizeof words, "%s: refused inside %s: %s is using the context", inside_calls[i].name, c->name, c->call);
        if (result == HET_ERR_STATE && strcmp(het_last_error(ctx), words) == 0) continue;
        (void)fprintf(stderr, "%s: %d, %s\n", words, result, het_last_error(ctx));
        c->wrong[rank]++;
    }
    het_get_timeline(ctx, 0, &timeline);
    het_get_memory(ctx, 0, &memory);
    het_get_loss_history(ctx, &recent);
    c->wrong[rank] += timeline.records != 0 || recent.count < 0;
    if (strcmp(c->call, "het_replan") != 0) c->wrong[rank] += memory.device == 0 || het_get_desc(ctx)->limits.max_tokens != 60;
    c->wrong[rank] += het_get_step(ctx) < 0 || het_get_status(ctx) != 0 || het_parameter_count(ctx) < 1;
    c->wrong[rank] += het_parameter_get_info(ctx, 0, &info) != HET_OK || info.count < 1;
    c->tried[rank]++;
}

static het_result inside_hook(void *user, const het_hook_info *info)
{
    try_inside(user, info->rank);
    return HET_OK;
}

static void inside_log(void *user, het_log_level level, het_result code, const char *text)
{
    (void)level, (void)code;
    if (((callbacks *)user)->armed) assert_string_equal(het_last_error(((callbacks *)user)->s.ctx), text);
    try_inside(user, 0);
}

static void inside_parallel(void *user, int64_t count, het_task task, void *arg)
{
    int64_t i;
    try_inside(user, 0);
    for (i = 0; i < count; i++) task(arg, i);
}

static void *inside_alloc(void *user, size_t size, size_t align)
{
    (void)align;
    try_inside(user, 0);
    return malloc(size);
}

static void inside_free(void *user, void *pointer, size_t size)
{
    (void)size;
    try_inside(user, 0);
    free(pointer);
}

static void callbacks_start(callbacks *c, const char *name, int64_t ranks)
{
    memset(c, 0, sizeof *c);
    c->name = name;
    c->call = "het_step";
    c->all = 1;
    c->desc.model = support_model(HET_GPT2);
    c->desc.limits.max_tokens = 60;
    c->desc.limits.max_sequences = 4;
    c->desc.limits.max_micro_batches = 2;
    c->desc.host.user = c;
    c->desc.layout.devices = c->devices;
    c->desc.layout.device_count = ranks;
    support_batch_start(&c->s.batch);
    support_batch_sequence(&c->s.batch, 20, c->desc.model.vocab, 0, 1);
}

/* The call succeeds as if nobody had tried, the weights show no trace, and what was refused inside is no error outside. */
static void callbacks_end(callbacks *c)
{
    const uint64_t hash = support_hash(c->s.ctx);
    assert_true(c->tried[0] > 0);
    assert_int_equal(c->wrong[0] + c->wrong[1] + c->wrong[2], 0);
    assert_string_equal(het_last_error(c->s.ctx), "");
    assert_int_equal(het_get_status(c->s.ctx), 0);
    EXPECT_OK(het_step(c->s.ctx, &c->s.batch.batch, 1, NULL));
    assert_true(support_hash(c->s.ctx) != hash);
    het_destroy(c->s.ctx);
    support_batch_end(&c->s.batch);
}

static void calls_inside_hooks(void **state)
{
    uint64_t hash[2][2];
    int ranks, all;
    (void)state;
    for (ranks = 0; ranks < 2; ranks++) {
        for (all = 0; all < 2; all++) {
            callbacks c;
            callbacks_start(&c, "het_desc.host.hook", ranks ? 3 : 1);
            c.all = all;
            c.desc.host.hook = inside_hook;
            c.s.ctx = support_create(&c.desc);
            c.armed = 1;
            EXPECT_OK(het_step(c.s.ctx, &c.s.batch.batch, 1, NULL));
            c.call = "het_evaluate";
            EXPECT_OK(het_evaluate(c.s.ctx, &c.s.batch.batch, 1, NULL));
            c.armed = 0;
            hash[ranks][all] = support_hash(c.s.ctx);
            callbacks_end(&c);
        }
    }
    assert_true(hash[0][0] == hash[0][1] && hash[0][0] == hash[1][0] && hash[0][0] == hash[1][1]);
}

static void calls_inside_other_callbacks(void **state)
{
    callbacks c;
    (void)state;
    callbacks_start(&c, "het_desc.host.logger", 1);
    c.desc.host.logger.log = inside_log;
    c.desc.host.logger.user = &c;
    c.s.ctx = support_create(&c.desc);
    c.armed = 1;
    EXPECT_ERROR(het_step(c.s.ctx, NULL, 1, NULL), HET_ERR_INVALID, het_last_error(c.s.ctx), "NULL");
    c.armed = 0;
    EXPECT_OK(het_evaluate(c.s.ctx, &c.s.batch.batch, 1, NULL));
    callbacks_end(&c);
    callbacks_start(&c, "a callback", 1);
    c.devices[0].threads = 2;
    c.desc.host.parallel.run = inside_parallel;
    c.desc.host.parallel.user = &c;
    c.s.ctx = support_create(&c.desc);
    c.armed = 1;
    EXPECT_OK(het_step(c.s.ctx, &c.s.batch.batch, 1, NULL));
    c.armed = 0;
    callbacks_end(&c);
    callbacks_start(&c, "a callback", 1);
    c.call = "het_replan";
    c.desc.host.allocator.alloc = inside_alloc;
    c.desc.host.allocator.free = inside_free;
    c.desc.host.allocator.user = &c;
    c.s.ctx = support_create(&c.desc);
    c.armed = 1;
    EXPECT_OK(het_replan(c.s.ctx, NULL));
    c.armed = 0;
    callbacks_end(&c);
}

/* het_train hands its context over between two steps: what its owner may do then is done, but for het_destroy. */
static int between;
static char between_path[200];
static het_result save_between(het_ctx *ctx, const het_writer *to)
{
    (void)to;
    het_destroy(ctx);
    between += strcmp(het_last_error(ctx), "het_destroy: refused inside save: het_save_file is using the context") == 0;
    return HET_OK;
}

static het_result progress_between(void *user, het_ctx *ctx, const het_step_info *info, double validation_loss)
{
    const support_batch *batch = user;
    het_timeline timeline;
    het_step_info evaluated;
    uint64_t hash;
    (void)info, (void)validation_loss;
    het_destroy(ctx);
    assert_string_equal(het_last_error(ctx), "het_destroy: refused inside het_train_desc.progress: het_train is using the context");
    EXPECT_OK(het_evaluate(ctx, &batch->batch, 1, &evaluated));
    EXPECT_OK(het_hash(ctx, &hash));
    EXPECT_OK(het_replan(ctx, NULL));
    EXPECT_ERROR(het_step(ctx, NULL, 1, NULL), HET_ERR_INVALID, het_last_error(ctx), "NULL");
    het_get_timeline(ctx, 0, &timeline);
    EXPECT_OK(het_save_file(ctx, between_path, save_nothing)); /* behind which the context is het_train's as before */
    het_destroy(ctx);
    assert_string_equal(het_last_error(ctx), "het_destroy: refused inside het_train_desc.progress: het_train is using the context");
    between++;
    return HET_OK;
}

static void calls_between_steps(void **state)
{
    support_buffer file;
    support_batch batch;
    het_train_desc desc;
    het_ctx *ctx = NULL;
    het_error error;
    int i;
    (void)state;
    between = 0;
    (void)snprintf(between_path, sizeof between_path, "%s/misuse_between", getenv("BUILD") ? getenv("BUILD") : ".");
    support_buffer_start(&file);
    support_batch_start(&batch);
    support_batch_sequence(&batch, 20, 61, 0, 1);
    for (i = 0; i < 1000; i++) support_buffer_append(&file, &"abcdefgh"[i % 8], 1);
    memset(&desc, 0, sizeof desc);
    desc.context.model = support_model(HET_LLAMA);
    desc.context.model.vocab = 256;
    desc.data.reader = support_reader(&file);
    desc.data.length = 24;
    desc.steps = 3;
    desc.progress = progress_between;
    desc.user = &batch;
    EXPECT_ERROR(het_train(&desc, &ctx, &error), HET_OK, error.text, "");
    assert_int_equal(between, 3);
    assert_int_equal(het_get_step(ctx), 3);
    EXPECT_OK(het_save_file(ctx, between_path, save_between));
    (void)remove(between_path);
    assert_int_equal(between, 4);
    het_destroy(ctx);
    support_batch_end(&batch);
    support_buffer_end(&file);
}

/* Two contexts whose calls alternate equal two contexts run one after the other. */
static void contexts_do_not_meet(void **state)
{
    het_desc desc[2];
    het_ctx *ctx[2];
    support_batch batch[2];
    uint64_t apart[2];
    int i, step;
    (void)state;
    for (i = 0; i < 2; i++) {
        memset(&desc[i], 0, sizeof desc[i]);
        desc[i].model = support_model(i ? HET_QWEN3 : HET_GPT2);
        desc[i].seed = (uint64_t)i;
        support_batch_start(&batch[i]);
        support_batch_sequence(&batch[i], 40, 61, 0, (uint64_t)i + 5);
        ctx[i] = support_create(&desc[i]);
        for (step = 0; step < 4; step++) EXPECT_OK(het_step(ctx[i], &batch[i].batch, 1, NULL));
        apart[i] = support_hash(ctx[i]);
        het_destroy(ctx[i]);
    }
    for (i = 0; i < 2; i++) ctx[i] = support_create(&desc[i]);
    for (step = 0; step < 4; step++) {
        for (i = 0; i < 2; i++) EXPECT_OK(het_step(ctx[i], &batch[i].batch, 1, NULL));
    }
    for (i = 0; i < 2; i++) {
        assert_true(support_hash(ctx[i]) == apart[i]);
        het_destroy(ctx[i]);
        support_batch_end(&batch[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_have_texts),
        cmocka_unit_test(models),
        cmocka_unit_test(model_names),
        cmocka_unit_test(config_json),
        cmocka_unit_test(settings_by_number),
        cmocka_unit_test(chains_of_units),
        cmocka_unit_test(descriptions),
        cmocka_unit_test(transports),
        cmocka_unit_test(plans_and_schedules),
        cmocka_unit_test(learning_rates),
        cmocka_unit_test(granule_rules),
        cmocka_unit_test(batches),
        cmocka_unit_test(inference),
        cmocka_unit_test(gradients_are_of_the_last_step),
        cmocka_unit_test(parameters_and_tensors),
        cmocka_unit_test(queries_without_a_context),
        cmocka_unit_test(writers_and_readers),
        cmocka_unit_test(tied_heads_in_files),
        cmocka_unit_test(data_sources),
        cmocka_unit_test(one_call_training),
        cmocka_unit_test(sampling),
        cmocka_unit_test(paths),
        cmocka_unit_test(saves_of_ones_own),
        cmocka_unit_test(hooks_that_fail),
        cmocka_unit_test(cancelled),
        cmocka_unit_test(cancelled_asleep), cmocka_unit_test(positive_results_are_errors),
        cmocka_unit_test(lists_of_make_are_checked),
        cmocka_unit_test(errors_are_logged),
        cmocka_unit_test(calls_inside_hooks),
        cmocka_unit_test(calls_inside_other_callbacks),
        cmocka_unit_test(calls_between_steps),
        cmocka_unit_test(contexts_do_not_meet),
    };
    return cmocka_run_group_tests_name("misuse", tests, NULL, NULL);
}
