#include "support.h"
#include "hetrain_files.h"
#include "hetrain_plan.h"

/* ---- numbers ---- */

uint64_t support_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

double support_uniform(uint64_t *state)
{
    return (double)(support_random(state) >> 11) * (1.0 / 4503599627370496.0) - 1.0;
}

int64_t support_below(uint64_t *state, int64_t limit)
{
    return (int64_t)(support_random(state) % (uint64_t)limit);
}

void support_fill(float *to, int64_t count, double scale, uint64_t seed)
{
    int64_t i;
    for (i = 0; i < count; i++) to[i] = (float)(scale * support_uniform(&seed));
}

uint32_t support_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float support_bf16(float value)
{
    uint32_t bits = support_bits(value);
    if ((bits & 0x7F800000u) == 0) bits &= 0x80000000u;
    else bits = (bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double support_sum_value(const het_sum *sum)
{
    double value = 0.0;
    int i;
    for (i = 19; i >= 0; i--) value += ldexp((double)sum->limb[i], 32 * i - 320);
    return value;
}

int support_environment(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

/* HETRAIN_TEST_ONLY names the only test of a suite that is to run. */
#if defined(__GNUC__) || defined(__clang__)
__attribute__((constructor)) static void only_one_test(void)
{
    const char *name = getenv("HETRAIN_TEST_ONLY");
    if (name) cmocka_set_test_filter(name);
}
#endif

void *support_alloc(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory) fail_msg("the test is out of memory");
    return memory;
}

float *support_floats(int64_t count, double scale, uint64_t seed)
{
    float *floats = support_alloc((size_t)count, sizeof(float));
    support_fill(floats, count, scale, seed);
    return floats;
}

/* ---- checks ---- */

void support_expect(het_result got, het_result code, const char *message, const char *words, const char *what, int line)
{
    char word[64];
    if (got != code) {
        fail_msg("line %d: %s gave %d (%s), not %d (%s)%s%s", line, what, (int)got, het_result_text(got), (int)code, het_result_text(code),
                 message ? ": " : "", message ? message : "");
    }
    while (*words) {
        size_t length = strcspn(words, "|");
        assert_true(length < sizeof word);
        memcpy(word, words, length);
        word[length] = 0;
        if (!message || !strstr(message, word))
            fail_msg("line %d: %s: the message \"%s\" does not name \"%s\"", line, what, message ? message : "", word);
        words += length;
        if (*words == '|') words++;
    }
}

/* ---- allocator ---- */

/* The block's address and size stand in front of what the caller gets. */
typedef struct block_header {
    void *block;
    size_t size;
} block_header;

static void *counting_alloc(void *user, size_t size, size_t align)
{
    support_memory *memory = user;
    block_header header;
    char *given;
    if (align == 0 || (align & (align - 1)) != 0 || align > 4096) memory->wrong++;
    if (memory->calls++ == memory->fail_at) return NULL;
    header.block = malloc(size + align + sizeof header);
    if (!header.block) return NULL;
    header.size = size;
    given = (char *)header.block + sizeof header;
    given += (align - (uintptr_t)given % align) % align;
    memcpy(given - sizeof header, &header, sizeof header);
    memset(given, 0xA5, size); /* fresh memory is never zero by luck */
    memory->live++;
    memory->bytes += size;
    if (memory->bytes > memory->peak) memory->peak = memory->bytes;
    return given;
}

static void counting_free(void *user, void *pointer, size_t size)
{
    support_memory *memory = user;
    block_header header;
    if (!pointer) return;
    memcpy(&header, (char *)pointer - sizeof header, sizeof header);
    if (header.size != size) memory->wrong++;
    memory->live--;
    memory->bytes -= header.size;
    memset(pointer, 0x5A, header.size);
    free(header.block);
}

het_allocator support_allocator(support_memory *memory)
{
    het_allocator allocator;
    memset(memory, 0, sizeof *memory);
    memory->fail_at = -1;
    allocator.alloc = counting_alloc;
    allocator.free = counting_free;
    allocator.user = memory;
    return allocator;
}

/* ---- files in memory ---- */

void support_buffer_start(support_buffer *buffer)
{
    memset(buffer, 0, sizeof *buffer);
    buffer->fail_after = -1;
}

void support_buffer_end(support_buffer *buffer)
{
    free(buffer->data);
    support_buffer_start(buffer);
}

void support_buffer_append(support_buffer *buffer, const void *from, size_t size)
{
    if (buffer->size + size > buffer->capacity) {
        buffer->capacity = (buffer->size + size) * 2;
        buffer->data = realloc(buffer->data, buffer->capacity);
        if (!buffer->data) fail_msg("the test is out of memory");
    }
    if (size) memcpy(buffer->data + buffer->size, from, size);
    buffer->size += size;
}

static int64_t buffer_read(void *user, uint64_t offset, void *to, size_t size)
{
    support_buffer *buffer = user;
    if (buffer->fail_after >= 0 && offset + size > (uint64_t)buffer->fail_after) return -1;
    if (offset >= buffer->size) return 0;
    if (size > buffer->size - offset) size = (size_t)(buffer->size - offset);
    if (size) memcpy(to, buffer->data + offset, size);
    return (int64_t)size;
}

static int buffer_write(void *user, const void *from, size_t size)
{
    support_buffer *buffer = user;
    if (buffer->fail_after >= 0 && buffer->size + size > (uint64_t)buffer->fail_after) return 7;
    support_buffer_append(buffer, from, size);
    return 0;
}

het_reader support_reader(support_buffer *buffer)
{
    het_reader reader;
    reader.read = buffer_read;
    reader.user = buffer;
    reader.size = buffer->size;
    reader.name = "test.bin";
    return reader;
}

het_writer support_writer(support_buffer *buffer)
{
    het_writer writer;
    writer.write = buffer_write;
    writer.user = buffer;
    writer.name = "test.out";
    return writer;
}

/* ---- devices ---- */

static void serial_run(void *user, int64_t count, het_task task, void *arg)
{
    int64_t i;
    (void)user;
    for (i = 0; i < count; i++) task(arg, i);
}

static void backwards_run(void *user, int64_t count, het_task task, void *arg)
{
    (void)user;
    while (count-- > 0) task(arg, count);
}

het_parallel support_serial(void)
{
    het_parallel parallel;
    parallel.run = serial_run;
    parallel.user = NULL;
    return parallel;
}

het_parallel support_backwards(void)
{
    het_parallel parallel;
    parallel.run = backwards_run;
    parallel.user = NULL;
    return parallel;
}

int support_has(het_isa isa)
{
    support_memory memory;
    het_allocator allocator = support_allocator(&memory);
    het_parallel parallel = support_serial();
    het_device_config config;
    void *self = NULL;
    memset(&config, 0, sizeof config);
    config.allocator = &allocator;
    config.parallel = &parallel;
    config.threads = 1;
    config.isa = isa;
    if (het_cpu_device()->create(&config, &self) != HET_OK) return 0;
    het_cpu_device()->destroy(self);
    assert_int_equal(memory.live, 0);
    return 1;
}

int support_isas(het_isa isa[5])
{
    static const het_isa all[5] = { HET_ISA_PLAIN, HET_ISA_AVX2, HET_ISA_AVX512, HET_ISA_AVX512_BF16, HET_ISA_NEON };
    int i, count = 0;
    for (i = 0; i < 5; i++)
        if (support_has(all[i])) isa[count++] = all[i];
    assert_true(count > 0 && isa[0] == HET_ISA_PLAIN);
    return count;
}

const char *support_isa_name(het_isa isa)
{
    static const char *const name[] = { HETRAIN_ISA_NAMES };
    return name[isa];
}

/* ---- models and batches ---- */

het_model_desc support_model(het_family family)
{
    het_model_desc model;
    het_error error;
    memset(&model, 0, sizeof model);
    model.family = family;
    model.layers = 2;
    model.width = 40;
    model.heads = 5;
    model.mlp_width = 52;
    model.vocab = 61;
    model.context = 48;
    if (family == HET_LLAMA) {
        model.heads = 4;
        model.kv_heads = 2;
        model.head_size = 10;
        model.rotary_factor = 8.0f;
        model.rotary_original = 16;
    }
    if (family == HET_QWEN2) model.kv_heads = 1;
    if (family == HET_QWEN3) {
        model.kv_heads = 5;
        model.head_size = 12;
        model.tied = HET_YES;
    }
    if (family == HET_NEOX) {
        model.heads = 2;
        model.head_size = 24;
        model.rotary_fraction = 0.25f;
    }
    support_expect(het_model_complete(&model, &error), HET_OK, error.text, "", "het_model_complete", __LINE__);
    return model;
}

het_model_desc support_deep_model(het_family family)
{
    het_model_desc model = support_model(family);
    het_error error;
    model.layers = 3;
    support_expect(het_model_complete(&model, &error), HET_OK, error.text, "", "het_model_complete", __LINE__);
    return model;
}

void support_batch_start(support_batch *batch)
{
    memset(batch, 0, sizeof *batch);
}

void support_batch_end(support_batch *batch)
{
    free(batch->token);
    free(batch->target);
    free(batch->weight);
    free(batch->sequence_start);
    free(batch->sample_id);
    free(batch->granule_start);
    support_batch_start(batch);
}

static void *grow(void *memory, int64_t count, size_t size)
{
    memory = realloc(memory, (size_t)count * size);
    if (!memory) fail_msg("the test is out of memory");
    return memory;
}

/* Room for this many more. The arrays may move, so the pointers in `batch` are written again. */
static void batch_reserve(support_batch *batch, int64_t tokens, int64_t sequences, int64_t granules)
{
    het_batch *b = &batch->batch;
    if (b->tokens + tokens > batch->token_room || !batch->token) {
        batch->token_room = (b->tokens + tokens) * 2 + 1;
        batch->token = grow(batch->token, batch->token_room, sizeof *batch->token);
        batch->target = grow(batch->target, batch->token_room, sizeof *batch->target);
        batch->weight = grow(batch->weight, batch->token_room, sizeof *batch->weight);
    }
    if (b->sequences + sequences + 1 > batch->sequence_room || !batch->sequence_start) {
        batch->sequence_room = (b->sequences + sequences + 1) * 2;
        batch->sequence_start = grow(batch->sequence_start, batch->sequence_room, sizeof *batch->sequence_start);
        batch->sample_id = grow(batch->sample_id, batch->sequence_room, sizeof *batch->sample_id);
    }
    if (b->granules + granules + 1 > batch->granule_room || !batch->granule_start) {
        batch->granule_room = (b->granules + granules + 1) * 2;
        batch->granule_start = grow(batch->granule_start, batch->granule_room, sizeof *batch->granule_start);
    }
    batch->sequence_start[0] = 0;
    batch->granule_start[0] = 0;
    b->token = batch->token;
    b->target = batch->target;
    b->weight = batch->weight;
    b->sequence_start = batch->sequence_start;
    b->sample_id = batch->sample_id;
    b->granule_start = batch->granule_start;
}

void support_batch_sequence(support_batch *batch, int64_t length, int64_t vocab, int64_t sample_id, uint64_t seed)
{
    het_batch *b = &batch->batch;
    int64_t i, start = b->tokens;
    batch_reserve(batch, length, 1, length / 512 + 1);
    for (i = 0; i < length; i++) {
        batch->token[start + i] = (int32_t)support_below(&seed, vocab);
        batch->target[start + i] = support_below(&seed, 8) == 0 ? -1 : (int32_t)support_below(&seed, vocab);
        batch->weight[start + i] = 0.25f * (float)(1 + support_below(&seed, 7));
    }
    b->tokens += length;
    batch->sample_id[b->sequences] = sample_id;
    batch->sequence_start[++b->sequences] = b->tokens;
    for (i = start; i < b->tokens; i += 512) {
        int64_t end = i + 512 < b->tokens ? i + 512 : b->tokens;
        batch->granule_start[++b->granules] = end;
    }
}

void support_batch_append(support_batch *batch, const support_batch *from)
{
    het_batch *b = &batch->batch;
    const het_batch *f = &from->batch;
    int64_t i, start = b->tokens;
    batch_reserve(batch, f->tokens, f->sequences, f->granules);
    for (i = 0; i < f->tokens; i++) {
        batch->token[start + i] = from->token[i];
        batch->target[start + i] = from->target[i];
        batch->weight[start + i] = from->weight[i];
    }
    for (i = 0; i < f->sequences; i++) {
        batch->sample_id[b->sequences + i] = from->sample_id[i];
        batch->sequence_start[b->sequences + i + 1] = start + from->sequence_start[i + 1];
    }
    for (i = 0; i < f->granules; i++) batch->granule_start[b->granules + i + 1] = start + from->granule_start[i + 1];
    b->tokens += f->tokens;
    b->sequences += f->sequences;
    b->granules += f->granules;
}

void support_batch_one_granule(support_batch *batch)
{
    batch->granule_start[1] = batch->batch.tokens;
    batch->batch.granules = 1;
}

/* ---- runs ---- */

/* The block that the text at `at` describes. Returns where it ends. */
static const char *data_block(support_batch *block, const char *at, int64_t first_id, int64_t vocab)
{
    int64_t id;
    for (id = first_id;; id++, at++) {
        char *end;
        const int64_t length = strtoll(at, &end, 10);
        if (end == at) fail_msg("\"%s\" is no length of a sequence", at);
        support_batch_sequence(block, length, vocab, id, (uint64_t)id);
        at = end;
        if (*at != ',') break;
    }
    if (block->batch.tokens <= 512) support_batch_one_granule(block);
    return at;
}

void support_data_start(support_data *data, int steps, const char *blocks, int64_t vocab)
{
    int step;
    memset(data, 0, sizeof *data);
    assert_true(steps <= SUPPORT_MAX_STEPS);
    data->steps = steps;
    for (step = 0; step < steps; step++) {
        const char *at = blocks;
        int b;
        for (b = 0; *at != 0; b++) {
            support_batch *block = &data->block[step][b];
            assert_true(b < SUPPORT_MAX_BLOCKS);
            at = data_block(block, at, 1000 * step + 10 * b, vocab);
            if (*at == '|') at++;
            if (step > 0) continue;
            data->blocks++;
            data->tokens += block->batch.tokens;
            data->sequences += block->batch.sequences;
        }
    }
}

void support_data_end(support_data *data)
{
    int step, b;
    for (step = 0; step < data->steps; step++)
        for (b = 0; b < data->blocks; b++) support_batch_end(&data->block[step][b]);
}

void support_group_start(support_group *group, const support_data *data, int step, const char *layout)
{
    const char *at;
    int64_t i;
    memset(group, 0, sizeof *group);
    group->count = 1;
    for (at = layout; *at != 0; at++) {
        const int block = *at - '0';
        if (*at == '|') {
            assert_true(group->count++ < SUPPORT_MAX_BLOCKS);
        } else {
            if (block < 0 || block >= data->blocks) fail_msg("layout \"%s\": there are %d blocks, none is %c", layout, data->blocks, *at);
            support_batch_append(&group->built[group->count - 1], &data->block[step % data->steps][block]);
        }
    }
    for (i = 0; i < group->count; i++) group->batch[i] = group->built[i].batch;
}

void support_group_end(support_group *group)
{
    int64_t i;
    for (i = 0; i < group->count; i++) support_batch_end(&group->built[i]);
}

het_plan *support_plan_for(const char *text, const char *schedule, int64_t units, int64_t ranks, int64_t slices, int64_t heads)
{
    het_plan_desc desc;
    het_plan *plan = NULL;
    het_error error;
    error.text[0] = 0;
    memset(&desc, 0, sizeof desc);
    desc.units = units;
    desc.ranks = ranks;
    desc.schedule = schedule;
    desc.slices = slices;
    desc.heads = heads;
    support_expect(het_plan_read(&desc, text, strlen(text), &plan, &error), HET_OK, error.text, "", text, __LINE__);
    return plan;
}

het_plan *support_plan(const char *text, const char *schedule, int64_t units, int64_t ranks, int64_t slices)
{
    return support_plan_for(text, schedule, units, ranks, slices, 0);
}

void support_run_start(support_run *run, const het_model_desc *model, int steps, const char *blocks)
{
    het_desc *desc = &run->desc;
    memset(run, 0, sizeof *run);
    support_data_start(&run->data, steps, blocks, model->vocab);
    desc->model = *model;
    desc->limits.max_tokens = run->data.tokens;
    desc->limits.max_sequences = run->data.sequences;
    desc->limits.max_micro_batches = run->data.blocks;
    desc->seed = 11;
    desc->optimizer.learning_rate = 1e-2f;
    desc->optimizer.warmup_steps = 2;
    desc->optimizer.total_steps = 10;
}

void support_run_ranks(support_run *run, int64_t ranks)
{
    assert_true(ranks <= SUPPORT_MAX_RANKS);
    run->desc.layout.devices = run->device;
    run->desc.layout.device_count = ranks;
}

int64_t support_run_units(const support_run *run)
{
    int64_t units = run->desc.unit_count;
    if (units == 0) EXPECT_OK(het_model_units(&run->desc.model, NULL, 0, &units, NULL));
    return units;
}

void support_last_unit(char *to, size_t capacity, const char *text, const support_run *run)
{
    const size_t end = strcspn(text, "$");
    snprintf(to, capacity, "%s", text);
    if (text[end] == '$') snprintf(to + end, capacity - end, "%d", (int)support_run_units(run) - 1);
}

static int frozen(void *user, const char *name)
{
    const uint64_t which = ((const support_run *)user)->frozen;
    if (strstr(name, "lora") != NULL) return 0;
    if (which % 2 == 0) return het_xxh64(name, strlen(name), which) % 2 == 0;
    return strstr(name, "embed") != NULL || strstr(name, "wte") != NULL || strstr(name, "wpe") != NULL || strstr(name, ".0.") != NULL;
}

void support_draw_training(support_run *run, uint64_t *seed)
{
    het_desc *d = &run->desc;
    if (support_below(seed, 4) == 0) d->model.local_loss = 1;
    if (support_below(seed, 4) == 0) d->model.lora_rank = 2;
    if (support_below(seed, 3) == 0) d->frozen = frozen, d->host.user = run, run->frozen = support_random(seed);
    if (d->frozen != NULL || d->model.lora_rank > 0) d->weights = (het_dtype)(HET_F32 + support_below(seed, 3));
    if (support_below(seed, 4) == 0) d->optimizer.feedback = 1.0f;
    if (support_below(seed, 6) == 0) d->optimizer.feedback_change = 1.0f;
    if (support_below(seed, 4) == 0) d->optimizer.iface = het_muon();
}

void support_draw_slices(het_plan *plan, int64_t tokens, uint64_t *seed)
{
    int64_t i;
    for (i = 0; i < plan->slices; i++) plan->slice_share[i] = (double)(1 + support_below(seed, 4));
    plan->slice_tokens = support_below(seed, 2) * support_below(seed, tokens + 1);
}

void support_draw_recompute(het_plan *plan, uint64_t *seed)
{
    int64_t i;
    for (i = 0; i < plan->stages; i++) {
        plan->stage[i].recompute = (int32_t)support_below(seed, 3);
        if (plan->stage[i].recompute == HET_RECOMPUTE_UNIT) /* all of its units, or the first ones */
            plan->stage[i].recompute_units = (int32_t)((int64_t)(*seed >> 40) % (plan->stage[i].unit_end - plan->stage[i].unit_begin + 1));
        plan->stage[i].keep = support_below(seed, 3) > 0 ? (uint64_t)support_below(seed, (int64_t)1 << plan->slices) : 0;
    }
}

void support_run_plan(support_run *run, const char *text, const char *schedule, int64_t slices)
{
    het_plan_free(run->plan);
    run->plan = support_plan_for(text, schedule, support_run_units(run), run->desc.layout.device_count, slices, run->desc.model.kv_heads);
    run->desc.layout.plan = run->plan;
}

static int32_t narrow_supports(void *self, const het_op *op)
{
    het_op floats = *op;
    floats.bf16 = 0;
    return het_null_device()->supports(self, &floats);
}

const het_device_iface *support_narrow_device(void)
{
    static het_device_iface narrow;
    narrow = *het_null_device();
    narrow.supports = narrow_supports;
    return &narrow;
}

void support_run_mixed(support_run *run, int which, uint64_t *seed)
{
    int i;
    run->far = *het_cpu_device();
    run->far.host_memory = 0;
    for (i = 0; i < SUPPORT_MAX_RANKS; i++) {
        run->device[i].threads = 1 + (int32_t)support_below(seed, 2);
        if (i == which) run->device[i].iface = &run->far;
    }
}

void support_run_end(support_run *run)
{
    het_plan_free(run->plan);
    support_data_end(&run->data);
}

het_result support_op(const het_device_iface *iface, void *self, het_op_kind kind, const void *args, size_t size)
{
    het_op op;
    memset(&op, 0xFF, sizeof op);
    op.bf16 = 0;
    op.kind = kind;
    memcpy(&op.u, args, size);
    return iface->run(self, NULL, &op);
}

int32_t support_only_adds(void *self, const het_op *op)
{
    const het_gradient *dw = op->kind == HET_OP_LINEAR_BACKWARD_WEIGHT ? op->u.linear.part[0].dw : NULL;
    return (dw == NULL || dw->beta == 1) && het_cpu_device()->supports(self, op);
}

het_ctx *support_create(const het_desc *desc)
{
    het_ctx *ctx = NULL;
    het_error error;
    memset(&error, 0, sizeof error);
    support_expect(het_create(desc, &ctx, &error), HET_OK, error.text, "", "het_create", __LINE__);
    assert_non_null(ctx);
    return ctx;
}

uint64_t support_hash(het_ctx *ctx)
{
    uint64_t hash = 0;
    support_expect(het_hash(ctx, &hash), HET_OK, het_last_error(ctx), "", "het_hash", __LINE__);
    return hash;
}

het_step_info support_step(het_ctx *ctx, const support_data *data, int step, const char *layout)
{
    support_group group;
    het_step_info info;
    support_group_start(&group, data, step, layout);
    support_expect(het_step(ctx, group.batch, group.count, &info), HET_OK, het_last_error(ctx), "", "het_step", __LINE__);
    support_group_end(&group);
    return info;
}

support_result support_train(const support_run *run, const char *layout)
{
    support_result result;
    het_ctx *ctx = support_create(&run->desc);
    int step;
    memset(&result, 0, sizeof result);
    result.steps = run->data.steps;
    for (step = 0; step < run->data.steps; step++) {
        const het_step_info info = support_step(ctx, &run->data, step, layout);
        assert_int_equal(info.step, step);
        assert_true(info.loss > 0.0 && info.gradient_norm > 0.0);
        result.loss[step] = info.loss;
        result.norm[step] = info.gradient_norm;
    }
    result.weights = support_hash(ctx);
    het_destroy(ctx);
    return result;
}

int support_same(const support_result *a, const support_result *b, const char *what)
{
    int64_t i;
    assert_int_equal(a->steps, b->steps);
    for (i = 0; i < a->steps; i++) {
        if (memcmp(&a->loss[i], &b->loss[i], sizeof a->loss[i]) != 0) {
            print_message("%s: loss of step %d: %.17g and %.17g\n", what, (int)i, a->loss[i], b->loss[i]);
            return 0;
        }
        if (memcmp(&a->norm[i], &b->norm[i], sizeof a->norm[i]) != 0) {
            print_message("%s: gradient norm of step %d: %.17g and %.17g\n", what, (int)i, a->norm[i], b->norm[i]);
            return 0;
        }
    }
    if (a->weights != b->weights) {
        print_message("%s: weights %016llx and %016llx\n", what, (unsigned long long)a->weights, (unsigned long long)b->weights);
        return 0;
    }
    return 1;
}

void support_same_state(het_ctx *a, het_ctx *b, int gradients, const char *what)
{
    int64_t p;
    for (p = 0; p < het_parameter_count(a); p++) {
        het_parameter_info x, y;
        int array;
        EXPECT_OK(het_parameter_get_info(a, p, &x));
        EXPECT_OK(het_parameter_get_info(b, p, &y));
        if (x.exponent != y.exponent) fail_msg("%s: %s has exponents %d and %d", what, x.name, x.exponent, y.exponent);
        for (array = HET_WEIGHT; array <= HET_MOMENT1; array++) {
            float *u, *v;
            if ((array == HET_GRADIENT && !gradients) || (array >= HET_GRADIENT && x.frozen)) continue;
            u = support_floats(x.count, 1, 1);
            v = support_floats(x.count, 1, 2);
            EXPECT_OK(het_parameter_read(a, p, (het_array)array, u));
            EXPECT_OK(het_parameter_read(b, p, (het_array)array, v));
            if (memcmp(u, v, (size_t)x.count * sizeof *u) != 0) fail_msg("%s: array %d of %s differs", what, array, x.name);
            free(u);
            free(v);
        }
    }
}

void support_train_same(const support_result *base, const support_run *run, const char *layout, const char *what)
{
    const support_result other = support_train(run, layout);
    if (!support_same(base, &other, what)) fail_msg("%s: other bits", what);
}

void support_layout_same(const support_result *base, support_run *run, const support_layout *l, const char *blocks)
{
    char what[400];
    support_run_ranks(run, l->ranks);
    support_run_plan(run, l->plan, l->schedule, l->slices);
    snprintf(what, sizeof what, "%s, %s, %d slices, family %d, local_loss %d, %s", l->plan, l->schedule ? l->schedule : "", (int)l->slices,
             (int)run->desc.model.family, (int)run->desc.model.local_loss, blocks);
    support_train_same(base, run, blocks, what);
}

void support_save(het_ctx *ctx, support_buffer *weights, support_buffer *state)
{
    het_writer to;
    support_buffer_start(weights);
    support_buffer_start(state);
    to = support_writer(weights);
    EXPECT_OK(het_save_weights(ctx, &to));
    to = support_writer(state);
    EXPECT_OK(het_save_state(ctx, &to));
}
