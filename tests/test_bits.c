/* Layout never changes the bits: a few steps of training are run in many layouts, and every loss, gradient norm and weight must be the
   same number. The data of a step is a list of blocks (a granule of whole sequences, or one long sequence with its granules); a layout
   says which blocks stand together in a micro-batch, and in which order. */
#include "fp_state.h"
#include "support.h"

#define STEPS 3
#define MAX_BLOCKS 8

/* Numbers of blocks; END closes a micro-batch. */
#define END -1
#define DONE -2

typedef struct data_set {
    int blocks;
    support_batch block[STEPS][MAX_BLOCKS];
    int64_t tokens, sequences; /* of all blocks of a step */
} data_set;

static void data_block(data_set *data, int64_t vocab, const int64_t *length, int sequences, int one_granule)
{
    int64_t step, s;
    for (step = 0; step < STEPS; step++) {
        support_batch *block = &data->block[step][data->blocks];
        support_batch_start(block);
        for (s = 0; s < sequences; s++) {
            int64_t id = 1000 * step + 10 * data->blocks + s;
            support_batch_sequence(block, length[s], vocab, id, (uint64_t)id);
        }
        if (one_granule) support_batch_one_granule(block);
        if (step == 0) {
            data->tokens += block->batch.tokens;
            data->sequences += block->batch.sequences;
        }
    }
    data->blocks++;
}

static void data_short(data_set *data, int64_t vocab)
{
    static const int64_t a[] = { 17 }, b[] = { 5, 0, 9 }, c[] = { 48 }, d[] = { 1 }, e[] = { 30, 2 }, f[] = { 3, 3, 3 };
    memset(data, 0, sizeof *data);
    data_block(data, vocab, a, 1, 1);
    data_block(data, vocab, b, 3, 1);
    data_block(data, vocab, c, 1, 1);
    data_block(data, vocab, d, 1, 1);
    data_block(data, vocab, e, 2, 1);
    data_block(data, vocab, f, 3, 1);
}

/* Sequences beyond 512 tokens: granules are pieces. */
static void data_long(data_set *data, int64_t vocab)
{
    static const int64_t a[] = { 1100 }, b[] = { 40, 1 }, c[] = { 600 };
    memset(data, 0, sizeof *data);
    data_block(data, vocab, a, 1, 0);
    data_block(data, vocab, b, 2, 1);
    data_block(data, vocab, c, 1, 0);
}

static void data_end(data_set *data)
{
    int step, b;
    for (step = 0; step < STEPS; step++) {
        for (b = 0; b < data->blocks; b++) support_batch_end(&data->block[step][b]);
    }
}

static het_desc description(const het_model_desc *model, const data_set *data)
{
    het_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.model = *model;
    desc.max_tokens = data->tokens;
    desc.max_sequences = data->sequences;
    desc.max_micro_batches = MAX_BLOCKS;
    desc.seed = 11;
    desc.optimizer.learning_rate = 1e-2f;
    desc.optimizer.warmup_steps = 2;
    desc.optimizer.total_steps = 10;
    return desc;
}

/* layout: blocks of each micro-batch of a step, see END and DONE. */
static support_result train(const het_desc *desc, const data_set *data, const int *layout)
{
    support_result result;
    het_ctx *ctx = support_create(desc);
    int step;
    memset(&result, 0, sizeof result);
    result.steps = STEPS;
    for (step = 0; step < STEPS; step++) {
        support_batch built[MAX_BLOCKS];
        het_batch batches[MAX_BLOCKS];
        het_step_info info;
        const int *at;
        int count = 0, i;
        support_batch_start(&built[0]);
        for (at = layout; *at != DONE; at++) {
            if (*at == END) {
                batches[count] = built[count].batch;
                count++;
                if (count < MAX_BLOCKS) support_batch_start(&built[count]);
            } else {
                support_batch_append(&built[count], &data->block[step][*at]);
            }
        }
        support_expect(het_step(ctx, batches, count, &info), HET_OK, het_last_error(ctx), "", "het_step", __LINE__);
        assert_int_equal(info.step, step);
        result.loss[step] = info.loss;
        result.norm[step] = info.gradient_norm;
        assert_true(info.loss > 0.0 && info.gradient_norm > 0.0);
        for (i = 0; i < count; i++) support_batch_end(&built[i]);
    }
    result.weights = support_hash(ctx);
    het_destroy(ctx);
    return result;
}

#define SAME(base, desc, data, layout, ...) \
    do { \
        char what_[128]; \
        support_result other_ = train(&(desc), (data), (layout)); \
        snprintf(what_, sizeof what_, __VA_ARGS__); \
        if (!support_same(&(base), &other_, what_)) fail_msg("%s: other bits", what_); \
    } while (0)

static const int together[] = { 0, 1, 2, 3, 4, 5, END, DONE };
static const int apart[] = { 0, END, 1, END, 2, END, 3, END, 4, END, 5, END, DONE };
static const int reversed[] = { 5, 4, END, 3, END, 2, 1, 0, END, DONE };
static const int mixed[] = { 3, 0, END, 5, 2, 4, END, 1, END, DONE };
static const int *const layouts[] = { together, apart, reversed, mixed };
static const int long_together[] = { 0, 1, 2, END, DONE };
static const int long_apart[] = { 2, END, 1, END, 0, END, DONE };
static const int long_mixed[] = { 1, 2, END, 0, END, DONE };
static const int *const long_layouts[] = { long_together, long_apart, long_mixed };

static void threads_grouping_and_backward(het_family family)
{
    static const int32_t threads[] = { 1, 2, 3, 7 };
    static const het_backward backward[] = { HET_BACKWARD_FUSED, HET_BACKWARD_SPLIT, HET_BACKWARD_DEFERRED };
    het_model_desc model = support_model(family);
    het_device_desc device;
    support_result base;
    data_set data;
    het_desc desc;
    int i;
    model.dropout = 0.1f;
    data_short(&data, model.vocab);
    desc = description(&model, &data);
    base = train(&desc, &data, together);
    memset(&device, 0, sizeof device);
    desc.devices = &device;
    desc.device_count = 1;
    for (i = 0; i < 4; i++) {
        device.threads = threads[i];
        SAME(base, desc, &data, together, "family %d, %d threads", (int)family, (int)threads[i]);
    }
    device.threads = 2;
    for (i = 0; i < 4; i++) SAME(base, desc, &data, layouts[i], "family %d, layout %d", (int)family, i);
    for (i = 0; i < 3; i++) {
        desc.backward = backward[i];
        SAME(base, desc, &data, mixed, "family %d, backward form %d", (int)family, i);
    }
    desc.recompute = HET_YES;
    for (i = 0; i < 3; i++) {
        desc.backward = backward[i];
        SAME(base, desc, &data, reversed, "family %d, recompute, backward form %d", (int)family, i);
    }
    data_end(&data);
}

static void gpt2_in_every_layout(void **state) { (void)state; threads_grouping_and_backward(HET_GPT2); }
static void llama_in_every_layout(void **state) { (void)state; threads_grouping_and_backward(HET_LLAMA); }
static void qwen2_in_every_layout(void **state) { (void)state; threads_grouping_and_backward(HET_QWEN2); }
static void qwen3_in_every_layout(void **state) { (void)state; threads_grouping_and_backward(HET_QWEN3); }
static void neox_in_every_layout(void **state) { (void)state; threads_grouping_and_backward(HET_NEOX); }

/* Slices between granules, every backward form, recomputation, groupings: short granules, and pieces of long sequences. */
static void slices(void **state)
{
    static const het_family families[] = { HET_GPT2, HET_LLAMA };
    int f, i, n;
    (void)state;
    for (f = 0; f < 2; f++) {
        het_model_desc model = support_model(families[f]);
        support_result base;
        data_set data;
        het_desc desc;
        model.dropout = 0.1f;
        data_short(&data, model.vocab);
        desc = description(&model, &data);
        base = train(&desc, &data, together);
        for (n = 2; n <= 6; n++) {
            desc.max_slices = n;
            for (i = 0; i < 4; i++) {
                desc.backward = (het_backward)(HET_BACKWARD_FUSED + (n + i) % 3);
                desc.recompute = (n + i) % 2 ? HET_YES : HET_NO;
                SAME(base, desc, &data, layouts[i], "family %d, %d slices, layout %d", (int)families[f], n, i);
            }
        }
        data_end(&data);
    }
}

static void long_sequences_in_slices(void **state)
{
    static const het_family families[] = { HET_GPT2, HET_QWEN3 };
    int f, i, n;
    (void)state;
    for (f = 0; f < 2; f++) {
        het_model_desc model = support_model(families[f]);
        support_result base;
        data_set data;
        het_desc desc;
        model.layers = 1;
        model.width = 24;
        model.heads = 2;
        model.kv_heads = families[f] == HET_QWEN3 ? 1 : 2;
        model.head_size = 12;
        model.mlp_width = 32;
        model.context = 1100;
        data_long(&data, model.vocab);
        desc = description(&model, &data);
        base = train(&desc, &data, long_together);
        for (n = 1; n <= 5; n++) {
            i = n % 3;
            desc.max_slices = n;
            desc.backward = (het_backward)(HET_BACKWARD_FUSED + n % 3);
            desc.recompute = n % 2 ? HET_YES : HET_NO;
            SAME(base, desc, &data, long_layouts[i], "family %d, %d slices, layout %d", (int)families[f], n, i);
        }
        data_end(&data);
    }
}

static void recompute_of_single_units(void **state)
{
    het_model_desc model = support_model(HET_LLAMA);
    support_result base;
    data_set data;
    het_desc desc;
    uint8_t units[6];
    int i;
    (void)state;
    data_short(&data, model.vocab);
    desc = description(&model, &data);
    base = train(&desc, &data, together);
    for (i = 0; i < 5; i++) {
        int u;
        for (u = 0; u < 6; u++) units[u] = (uint8_t)(u == i || u == (i + 2) % 5);
        units[5] = 0;
        desc.recompute_unit = units;
        desc.backward = (het_backward)(HET_BACKWARD_FUSED + i % 3);
        desc.max_slices = 1 + i % 2;
        SAME(base, desc, &data, layouts[i % 4], "units %d and %d recomputed", i, (i + 2) % 5);
    }
    data_end(&data);
}

static void instruction_sets(void **state)
{
    static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_QWEN3, HET_NEOX };
    het_isa isa[5];
    int isas = support_isas(isa), f, i;
    (void)state;
    for (f = 0; f < 4; f++) {
        het_model_desc model = support_model(families[f]);
        het_device_desc device;
        support_result base;
        data_set data;
        het_desc desc;
        data_short(&data, model.vocab);
        desc = description(&model, &data);
        base = train(&desc, &data, together);
        memset(&device, 0, sizeof device);
        desc.devices = &device;
        desc.device_count = 1;
        for (i = 0; i < isas; i++) {
            device.isa = isa[i];
            device.threads = 1 + i;
            SAME(base, desc, &data, layouts[i % 4], "family %d, %s", (int)families[f], support_isa_name(isa[i]));
        }
        data_end(&data);
    }
}

/* A caller that flushes subnormals and rounds up gets the same bits, and its mode back. */
static void mode_of_the_caller(void **state)
{
    het_model_desc model = support_model(HET_GPT2);
    het_device_desc device;
    support_result base, other;
    data_set data;
    het_desc desc;
    fp_state before, hostile, after;
    (void)state;
    data_short(&data, model.vocab);
    desc = description(&model, &data);
    memset(&device, 0, sizeof device);
    device.threads = 2;
    desc.devices = &device;
    desc.device_count = 1;
    base = train(&desc, &data, together);
    before = fp_set_hostile();
    hostile = fp_get();
    other = train(&desc, &data, apart);
    after = fp_get();
    fp_set(before);
    assert_true(hostile == after);
    assert_true(support_same(&base, &other, "caller that flushes and rounds up"));
    data_end(&data);
}

/* The caller's parallel-for: a loop, and one from the last index to the first. */
static void parallel_of_the_caller(void **state)
{
    het_model_desc model = support_model(HET_QWEN2);
    het_device_desc device;
    support_result base;
    data_set data;
    het_desc desc;
    (void)state;
    data_short(&data, model.vocab);
    desc = description(&model, &data);
    base = train(&desc, &data, together);
    memset(&device, 0, sizeof device);
    device.threads = 4;
    desc.devices = &device;
    desc.device_count = 1;
    desc.parallel = support_serial();
    SAME(base, desc, &data, together, "parallel-for: a loop");
    desc.parallel = support_backwards();
    SAME(base, desc, &data, mixed, "parallel-for: backwards");
    data_end(&data);
}

static het_result count_calls(void *user, const het_hook_info *info)
{
    int64_t *calls = user;
    calls[info->direction == HET_BACKWARD]++;
    return HET_OK;
}

static void hook_that_does_nothing(void **state)
{
    het_model_desc model = support_model(HET_NEOX);
    int64_t calls[2] = { 0, 0 };
    support_result base;
    data_set data;
    het_desc desc;
    (void)state;
    data_short(&data, model.vocab);
    desc = description(&model, &data);
    base = train(&desc, &data, together);
    desc.hook = count_calls;
    desc.user = calls;
    desc.max_slices = 2;
    SAME(base, desc, &data, apart, "hook");
    assert_true(calls[0] > 0 && calls[1] > 0);
    data_end(&data);
}

/* bf16 products keep the promise on each product path by itself. */
static void bf16_on_one_path(void **state)
{
    het_isa isa[5];
    int isas = support_isas(isa), i, k;
    (void)state;
    for (i = 0; i < isas; i++) {
        het_model_desc model = support_model(i % 2 ? HET_GPT2 : HET_LLAMA);
        het_device_desc device;
        support_result base, exact;
        data_set data;
        het_desc desc;
        data_short(&data, model.vocab);
        desc = description(&model, &data);
        memset(&device, 0, sizeof device);
        device.isa = isa[i];
        desc.devices = &device;
        desc.device_count = 1;
        exact = train(&desc, &data, together);
        desc.dtype = HET_BF16;
        base = train(&desc, &data, together);
        assert_true(base.weights != exact.weights);
        assert_true(fabs(base.loss[0] - exact.loss[0]) < 0.02 * exact.loss[0]);
        for (k = 0; k < 4; k++) {
            device.threads = 1 + k;
            desc.max_slices = 1 + k % 3;
            desc.backward = (het_backward)(HET_BACKWARD_FUSED + k % 3);
            desc.recompute = k % 2 ? HET_YES : HET_NO;
            SAME(base, desc, &data, layouts[k], "bf16, %s, layout %d", support_isa_name(isa[i]), k);
        }
        data_end(&data);
    }
}

/* Float sums: equal bits from run to run on one layout, and the exact result within rounding. */
static void fast_mode_repeats(void **state)
{
    het_model_desc model = support_model(HET_LLAMA);
    het_device_desc device;
    support_result exact, first;
    data_set data;
    het_desc desc;
    int i;
    (void)state;
    data_short(&data, model.vocab);
    desc = description(&model, &data);
    exact = train(&desc, &data, mixed);
    desc.reduce = HET_REDUCE_FAST;
    memset(&device, 0, sizeof device);
    device.threads = 3;
    desc.devices = &device;
    desc.device_count = 1;
    first = train(&desc, &data, mixed);
    for (i = 0; i < 3; i++) SAME(first, desc, &data, mixed, "fast, run %d", i);
    for (i = 0; i < STEPS; i++) {
        assert_true(fabs(first.loss[i] - exact.loss[i]) < 1e-4 * exact.loss[i]);
        assert_true(fabs(first.norm[i] - exact.norm[i]) < 1e-3 * exact.norm[i]);
    }
    data_end(&data);
}

/* Everything at once, drawn at random: family, window, dropout, bf16, long sequences, order and grouping of the blocks, slices, recomputed
   units, backward form, threads, instruction set, parallel-for. HETRAIN_TEST_ROUNDS sets how many (make soak: many),
   HETRAIN_TEST_FIRST_ROUND the first one: a round is a function of its number. Every 100 rounds a line says which seeds gave equal bits,
   so that a soak that was stopped goes on from there. */
static int environment_number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

/* One layer for sequences whose granules are pieces. */
static void make_long(het_model_desc *model)
{
    model->layers = 1;
    model->width = 32;
    model->heads = 2;
    model->kv_heads = model->kv_heads == 1 ? 1 : 2;
    model->head_size = 16;
    model->mlp_width = 32;
    model->context = 1100;
}

static void random_layout(uint64_t seed, int round)
{
    static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_QWEN2, HET_QWEN3, HET_NEOX };
    int order[MAX_BLOCKS] = { 0, 1, 2, 3, 4, 5 }, layout[2 * MAX_BLOCKS + 1], at = 0, is_long, i;
    het_model_desc model = support_model(families[support_below(&seed, 5)]);
    het_isa isa[5];
    int isas = support_isas(isa);
    uint8_t recompute[6];
    het_device_desc device;
    support_result base;
    data_set data;
    het_desc desc;
    if (support_below(&seed, 2)) model.dropout = 0.2f;
    if (support_below(&seed, 3) == 0) model.window = 1 + support_below(&seed, 20);
    is_long = support_below(&seed, 12) == 0;
    if (is_long) make_long(&model);
    if (is_long) data_long(&data, model.vocab);
    else data_short(&data, model.vocab);
    desc = description(&model, &data);
    desc.seed = seed;
    desc.dtype = support_below(&seed, 4) == 0 ? HET_BF16 : HET_F32;
    memset(&device, 0, sizeof device);
    device.isa = isa[support_below(&seed, isas)];
    desc.devices = &device;
    desc.device_count = 1;
    if (desc.dtype == HET_F32) desc.device_count = 0; /* the base on the best instruction set */
    base = train(&desc, &data, is_long ? long_together : together);
    desc.device_count = 1;
    for (i = data.blocks - 1; i > 0; i--) {
        int other = (int)support_below(&seed, i + 1), keep = order[i];
        order[i] = order[other];
        order[other] = keep;
    }
    for (i = 0; i < data.blocks; i++) {
        layout[at++] = order[i];
        if (i == data.blocks - 1 || support_below(&seed, 3) == 0) layout[at++] = END;
    }
    layout[at] = DONE;
    for (i = 0; i < 6; i++) recompute[i] = (uint8_t)(i + 1 < 2 * model.layers + 2 && support_below(&seed, 2));
    device.threads = (int32_t)(1 + support_below(&seed, 8));
    desc.max_slices = 1 + support_below(&seed, 6);
    desc.backward = (het_backward)(HET_BACKWARD_FUSED + support_below(&seed, 3));
    if (support_below(&seed, 2)) desc.recompute_unit = recompute;
    if (support_below(&seed, 4) == 0) desc.parallel = support_backwards();
    SAME(base, desc, &data, layout, "round %d", round);
    data_end(&data);
}

static void random_layouts(void **state)
{
    int first = environment_number("HETRAIN_TEST_FIRST_ROUND", 0), end = first + environment_number("HETRAIN_TEST_ROUNDS", 24), said = first;
    int round;
    (void)state;
    for (round = first; round < end; round++) {
        random_layout((uint64_t)round * 7919 + 1, round);
        if (end - first < 100 || (round + 1 - said < 100 && round + 1 < end)) continue;
        printf("# rounds %d to %d, seeds %lld to %lld: equal bits\n", said, round, said * 7919LL + 1, round * 7919LL + 1);
        fflush(stdout);
        said = round + 1;
    }
}

/* The numbers themselves depend on what they should depend on. */
static void what_does_change_the_bits(void **state)
{
    het_model_desc model = support_model(HET_GPT2);
    support_result base, other;
    data_set data;
    het_desc desc;
    (void)state;
    model.dropout = 0.1f;
    data_short(&data, model.vocab);
    desc = description(&model, &data);
    base = train(&desc, &data, together);
    desc.seed++;
    other = train(&desc, &data, together);
    assert_true(other.weights != base.weights && other.loss[0] != base.loss[0]);
    desc.seed--;
    desc.model.dropout = 0.0f;
    other = train(&desc, &data, together);
    assert_true(other.weights != base.weights && other.loss[0] != base.loss[0]);
    data_end(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_in_every_layout),
        cmocka_unit_test(llama_in_every_layout),
        cmocka_unit_test(qwen2_in_every_layout),
        cmocka_unit_test(qwen3_in_every_layout),
        cmocka_unit_test(neox_in_every_layout),
        cmocka_unit_test(slices),
        cmocka_unit_test(long_sequences_in_slices),
        cmocka_unit_test(recompute_of_single_units),
        cmocka_unit_test(instruction_sets),
        cmocka_unit_test(mode_of_the_caller),
        cmocka_unit_test(parallel_of_the_caller),
        cmocka_unit_test(hook_that_does_nothing),
        cmocka_unit_test(bf16_on_one_path),
        cmocka_unit_test(fast_mode_repeats),
        cmocka_unit_test(random_layouts),
        cmocka_unit_test(what_does_change_the_bits),
    };
    return cmocka_run_group_tests_name("bits", tests, NULL, NULL);
}
