/* Layout never changes the bits: a few steps of training are run in many layouts, and every loss, gradient norm and weight must be the
   same number. */
#include "fp_state.h"
#include "support.h"

#define STEPS 3

#define SAME(base, run, layout, ...) \
    do { \
        char what_[128]; \
        snprintf(what_, sizeof what_ - 8, __VA_ARGS__); \
        same((base), (run), (layout), what_); \
    } while (0)

static const char *const layouts[] = { SUPPORT_TOGETHER, SUPPORT_APART, "54|3|210", "30|524|1" };
static const char *const long_layouts[] = { "012", "2|1|0", "12|0" };
enum { REVERSED = 2, MIXED = 3 };

/* A layout of one micro-batch again as the only one there can be: its gradients are made at once, and lie where activations were. */
static void same(const support_result *base, const support_run *run, const char *layout, char *what)
{
    support_run only = *run;
    support_train_same(base, run, layout, what);
    if (strchr(layout, '|') != NULL) return;
    only.desc.limits.max_micro_batches = 1;
    support_train_same(base, &only, layout, strcat(what, ", alone"));
}

/* More micro-batches than any layout has. */
static void start(support_run *run, const het_model_desc *model, const char *blocks)
{
    support_run_start(run, model, STEPS, blocks);
    run->desc.limits.max_micro_batches = SUPPORT_MAX_BLOCKS;
}

/* Starts a run of the short blocks and trains it together. */
static support_result start_short(support_run *run, const het_model_desc *model)
{
    start(run, model, SUPPORT_SHORT);
    return support_train(run, SUPPORT_TOGETHER);
}

static void threads_grouping_and_backward(het_model_desc model)
{
    static const int32_t threads[] = { 1, 2, 3, 7 };
    static const het_backward backward[] = { HET_BACKWARD_FUSED, HET_BACKWARD_SPLIT, HET_BACKWARD_DEFERRED };
    const het_family family = model.family;
    support_result base;
    support_run run;
    int i;
    model.dropout = 0.1f;
    base = start_short(&run, &model);
    support_run_ranks(&run, 1);
    for (i = 0; i < 4; i++) {
        run.device[0].threads = threads[i];
        SAME(&base, &run, SUPPORT_TOGETHER, "family %d, %d threads", (int)family, (int)threads[i]);
    }
    run.device[0].threads = 2;
    for (i = 0; i < 4; i++) SAME(&base, &run, layouts[i], "family %d, layout %d", (int)family, i);
    for (i = 0; i < 3; i++) {
        run.desc.layout.backward = backward[i];
        SAME(&base, &run, layouts[MIXED], "family %d, backward form %d", (int)family, i);
    }
    run.desc.layout.recompute = HET_YES;
    for (i = 0; i < 3; i++) {
        run.desc.layout.backward = backward[i];
        SAME(&base, &run, layouts[REVERSED], "family %d, recompute, backward form %d", (int)family, i);
    }
    support_run_end(&run);
}

static void gpt2_in_every_layout(void **state) { (void)state; threads_grouping_and_backward(support_model(HET_GPT2)); }
static void llama_in_every_layout(void **state) { (void)state; threads_grouping_and_backward(support_model(HET_LLAMA)); }
static void qwen2_in_every_layout(void **state) { (void)state; threads_grouping_and_backward(support_model(HET_QWEN2)); }
static void qwen3_in_every_layout(void **state) { (void)state; threads_grouping_and_backward(support_model(HET_QWEN3)); }
static void neox_in_every_layout(void **state) { (void)state; threads_grouping_and_backward(support_model(HET_NEOX)); }

/* Low-rank factors: some of the matrices, all of them, and a rank that makes vectors of B's rows. */
static void adapters_in_every_layout(void **state)
{
    het_model_desc llama = support_model(HET_LLAMA), gpt2 = support_model(HET_GPT2), qwen3 = support_model(HET_QWEN3);
    (void)state;
    llama.lora_rank = 3;
    gpt2.lora_rank = 4;
    gpt2.lora_alpha = 11.0f;
    gpt2.lora_targets = HET_LORA_ALL;
    qwen3.lora_rank = 1;
    qwen3.lora_targets = HET_LORA_K + HET_LORA_O + HET_LORA_DOWN;
    threads_grouping_and_backward(llama);
    threads_grouping_and_backward(gpt2);
    threads_grouping_and_backward(qwen3);
}

/* Slices between granules, every backward form, recomputation, groupings: short granules, and pieces of long sequences. */
static void slices(void **state)
{
    static const het_family families[] = { HET_GPT2, HET_LLAMA };
    int f, i, n;
    (void)state;
    for (f = 0; f < 2; f++) {
        het_model_desc model = support_model(families[f]);
        support_result base;
        support_run run;
        model.dropout = 0.1f;
        base = start_short(&run, &model);
        for (n = 2; n <= 6; n++) {
            run.desc.limits.max_slices = n;
            for (i = 0; i < 4; i++) {
                run.desc.layout.backward = (het_backward)(HET_BACKWARD_FUSED + (n + i) % 3);
                run.desc.layout.recompute = (n + i) % 2 ? HET_YES : HET_NO;
                SAME(&base, &run, layouts[i], "family %d, %d slices, layout %d", (int)families[f], n, i);
            }
        }
        support_run_end(&run);
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
        support_run run;
        model.layers = 1;
        model.width = 24;
        model.heads = 2;
        model.kv_heads = families[f] == HET_QWEN3 ? 1 : 2;
        model.head_size = 12;
        model.mlp_width = 32;
        model.context = 1100;
        start(&run, &model, SUPPORT_LONG);
        base = support_train(&run, long_layouts[0]);
        for (n = 1; n <= 5; n++) {
            i = n % 3;
            run.desc.limits.max_slices = n;
            run.desc.layout.backward = (het_backward)(HET_BACKWARD_FUSED + n % 3);
            run.desc.layout.recompute = n % 2 ? HET_YES : HET_NO;
            SAME(&base, &run, long_layouts[i], "family %d, %d slices, layout %d", (int)families[f], n, i);
        }
        support_run_end(&run);
    }
}

static void recompute_of_single_units(void **state)
{
    het_model_desc model = support_model(HET_LLAMA);
    support_result base;
    support_run run;
    uint8_t units[6];
    int i;
    (void)state;
    base = start_short(&run, &model);
    for (i = 0; i < 5; i++) {
        int u;
        for (u = 0; u < 6; u++) units[u] = (uint8_t)(u == i || u == (i + 2) % 5);
        units[5] = 0;
        run.desc.layout.recompute_unit = units;
        run.desc.layout.backward = (het_backward)(HET_BACKWARD_FUSED + i % 3);
        run.desc.limits.max_slices = 1 + i % 2;
        SAME(&base, &run, layouts[i % 4], "units %d and %d recomputed", i, (i + 2) % 5);
    }
    support_run_end(&run);
}

/* Whole stages: every form of the backward pass, slices, dropout, factors of which no unit in front is trained, and a hook that changes what
   goes from unit to unit, which sees the forwards twice. */
static het_result change_streams(void *user, const het_hook_info *info)
{
    int64_t *again = (int64_t *)user, i;
    if (info->direction != HET_FORWARD || info->streams == 0) return HET_OK;
    for (i = 0; i < info->rows; i++) info->stream[0][i * info->width[0]] += 0.01f;
    *again += info->again;
    return HET_OK;
}

static int first_units(void *user, const char *parameter)
{
    (void)user;
    return strstr(parameter, "layers.0.") != NULL || strstr(parameter, "embed") != NULL;
}

static void recompute_of_whole_stages(void **state)
{
    static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_QWEN2, HET_QWEN3, HET_NEOX };
    int f, i, way;
    (void)state;
    for (f = 0; f < 5; f++)
        for (way = 0; way < 4; way++) { /* plain, low-rank factors, frozen units, a hook */
            het_model_desc model = support_model(families[f]);
            int64_t again = 0;
            support_result base;
            support_run run;
            model.dropout = 0.1f;
            if (way == 1) model.lora_rank = 2;
            start(&run, &model, SUPPORT_SHORT);
            if (way == 2) run.desc.frozen = first_units;
            if (way == 3) run.desc.host.hook = change_streams, run.desc.host.user = &again;
            if (f == 1) run.desc.dtype = HET_BF16;
            base = support_train(&run, SUPPORT_TOGETHER);
            assert_int_equal(again, 0);
            support_run_ranks(&run, 1);
            for (i = 0; i < 6; i++) {
                support_run_plan(&run, "dp", NULL, 1 + i % 2 * 2);
                run.plan->stage[0].recompute = HET_RECOMPUTE_STAGE;
                run.desc.layout.backward = (het_backward)(HET_BACKWARD_FUSED + i % 3);
                SAME(&base, &run, layouts[i % 4], "family %d, way %d, stage recomputed, %d slices, backward form %d", (int)families[f], way,
                     1 + i % 2 * 2, i % 3);
            }
            assert_true((way == 3) == (again > 0));
            support_run_end(&run);
        }
}

static void instruction_sets(void **state)
{
    static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_QWEN3, HET_NEOX };
    het_isa isa[5];
    int isas = support_isas(isa), f, i;
    (void)state;
    for (f = 0; f < 4; f++) {
        het_model_desc model = support_model(families[f]);
        support_result base;
        support_run run;
        base = start_short(&run, &model);
        support_run_ranks(&run, 1);
        for (i = 0; i < isas; i++) {
            run.device[0].isa = isa[i];
            run.device[0].threads = 1 + i;
            SAME(&base, &run, layouts[i % 4], "family %d, %s", (int)families[f], support_isa_name(isa[i]));
        }
        support_run_end(&run);
    }
}

/* A caller that flushes subnormals and rounds up gets the same bits, and its mode back. */
static void mode_of_the_caller(void **state)
{
    het_model_desc model = support_model(HET_GPT2);
    support_result base, other;
    support_run run;
    fp_state before, hostile, after;
    (void)state;
    start(&run, &model, SUPPORT_SHORT);
    run.device[0].threads = 2;
    support_run_ranks(&run, 1);
    base = support_train(&run, SUPPORT_TOGETHER);
    before = fp_set_hostile();
    hostile = fp_get();
    other = support_train(&run, SUPPORT_APART);
    after = fp_get();
    fp_set(before);
    assert_true(hostile == after);
    assert_true(support_same(&base, &other, "caller that flushes and rounds up"));
    support_run_end(&run);
}

/* The caller's parallel-for: a loop, and one from the last index to the first. */
static void parallel_of_the_caller(void **state)
{
    het_model_desc model = support_model(HET_QWEN2);
    support_result base;
    support_run run;
    (void)state;
    base = start_short(&run, &model);
    run.device[0].threads = 4;
    support_run_ranks(&run, 1);
    run.desc.host.parallel = support_serial();
    SAME(&base, &run, SUPPORT_TOGETHER, "parallel-for: a loop");
    run.desc.host.parallel = support_backwards();
    SAME(&base, &run, layouts[MIXED], "parallel-for: backwards");
    support_run_end(&run);
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
    support_run run;
    (void)state;
    base = start_short(&run, &model);
    run.desc.host.hook = count_calls;
    run.desc.host.user = calls;
    run.desc.limits.max_slices = 2;
    SAME(&base, &run, SUPPORT_APART, "hook");
    assert_true(calls[0] > 0 && calls[1] > 0);
    support_run_end(&run);
}

/* bf16 products keep the promise on each product path by itself. */
static void bf16_on_one_path(void **state)
{
    het_isa isa[6];
    int isas = support_isas(isa), i, k;
    (void)state;
    if (support_has(HET_ISA_AMX)) isa[isas++] = HET_ISA_AMX;
    for (i = 0; i < isas; i++) {
        het_model_desc model = support_model(i % 2 ? HET_GPT2 : HET_LLAMA);
        support_result base, exact;
        support_run run;
        start(&run, &model, SUPPORT_SHORT);
        run.device[0].isa = isa[i];
        support_run_ranks(&run, 1);
        exact = support_train(&run, SUPPORT_TOGETHER);
        run.desc.dtype = HET_BF16;
        base = support_train(&run, SUPPORT_TOGETHER);
        assert_true(base.weights != exact.weights);
        assert_true(fabs(base.loss[0] - exact.loss[0]) < 0.02 * exact.loss[0]);
        for (k = 0; k < 4; k++) {
            run.device[0].threads = 1 + k;
            run.desc.limits.max_slices = 1 + k % 3;
            run.desc.layout.backward = (het_backward)(HET_BACKWARD_FUSED + k % 3);
            run.desc.layout.recompute = k % 2 ? HET_YES : HET_NO;
            SAME(&base, &run, layouts[k], "bf16, %s, layout %d", support_isa_name(isa[i]), k);
        }
        support_run_end(&run);
    }
}

/* Matrix registers are taken where they are named, or where sums are fast. */
static void matrix_registers(void **state)
{
    static const het_isa isa[3] = { HET_ISA_AUTO, HET_ISA_AMX, HET_ISA_AVX512 };
    het_model_desc model = support_model(HET_GPT2);
    support_result result[2][3];
    support_run run;
    int fast, i;
    (void)state;
    if (!support_has(HET_ISA_AMX)) skip();
    start(&run, &model, SUPPORT_SHORT);
    run.desc.dtype = HET_BF16;
    support_run_ranks(&run, 1);
    for (fast = 0; fast < 2; fast++)
        for (i = 0; i < 3; i++) {
            run.desc.reduce = fast ? HET_REDUCE_FAST : HET_REDUCE_EXACT;
            run.device[0].isa = isa[i];
            result[fast][i] = support_train(&run, SUPPORT_TOGETHER);
        }
    for (fast = 0; fast < 2; fast++) {
        assert_true(result[fast][1].weights != result[fast][2].weights);
        assert_true(result[fast][0].weights == result[fast][fast ? 1 : 2].weights);
    }
    support_run_end(&run);
}

/* Float sums: equal bits from run to run on one layout, and the exact result within rounding. */
static void fast_mode_repeats(void **state)
{
    het_model_desc model = support_model(HET_LLAMA);
    support_result exact, first;
    support_run run;
    int i;
    (void)state;
    start(&run, &model, SUPPORT_SHORT);
    exact = support_train(&run, layouts[MIXED]);
    run.desc.reduce = HET_REDUCE_FAST;
    run.device[0].threads = 3;
    support_run_ranks(&run, 1);
    first = support_train(&run, SUPPORT_TOGETHER);
    SAME(&first, &run, SUPPORT_TOGETHER, "fast, together");
    first = support_train(&run, layouts[MIXED]);
    for (i = 0; i < 3; i++) SAME(&first, &run, layouts[MIXED], "fast, run %d", i);
    for (i = 0; i < STEPS; i++) {
        assert_true(fabs(first.loss[i] - exact.loss[i]) < 1e-4 * exact.loss[i]);
        assert_true(fabs(first.norm[i] - exact.norm[i]) < 1e-3 * exact.norm[i]);
    }
    support_run_end(&run);
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

/* Everything at once, drawn at random: family, window, dropout, bf16, long sequences, order and grouping of the blocks, slices, recomputed
   units, backward form, threads, instruction set, parallel-for. HETRAIN_TEST_ROUNDS sets how many (make soak: many),
   HETRAIN_TEST_FIRST_ROUND the first one: a round is a function of its number. Every 100 rounds a line says which seeds gave equal bits,
   so that a soak that was stopped goes on from there. */
static void random_layout(uint64_t seed, int round)
{
    static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_QWEN2, HET_QWEN3, HET_NEOX };
    char order[] = "012345", layout[2 * sizeof order];
    int at = 0, is_long, i;
    het_model_desc model = support_model(families[support_below(&seed, 5)]);
    het_isa isa[5];
    int isas = support_isas(isa);
    uint8_t recompute[6];
    support_result base;
    support_run run;
    if (support_below(&seed, 2)) model.dropout = 0.2f;
    if (support_below(&seed, 3) == 0) model.window = 1 + support_below(&seed, 20);
    is_long = support_below(&seed, 12) == 0;
    if (is_long) make_long(&model);
    if (round % 3 == 1) model.lora_rank = 1 + round % 5, model.lora_targets = 1 + round * 37 % HET_LORA_ALL;
    if (model.lora_rank > 0 && (model.lora_targets & 7) != 0 && (model.family == HET_GPT2 || model.family == HET_NEOX)) model.lora_targets |= 7;
    if (model.lora_targets == HET_LORA_GATE) model.lora_targets = HET_LORA_UP;
    start(&run, &model, is_long ? SUPPORT_LONG : SUPPORT_SHORT);
    run.desc.seed = seed;
    run.desc.dtype = support_below(&seed, 4) == 0 ? HET_BF16 : HET_F32;
    run.device[0].isa = isa[support_below(&seed, isas)];
    support_run_ranks(&run, 1);
    if (run.desc.dtype == HET_F32) run.desc.layout.device_count = 0; /* the base on the best instruction set */
    base = support_train(&run, is_long ? long_layouts[0] : SUPPORT_TOGETHER);
    run.desc.layout.device_count = 1;
    for (i = run.data.blocks - 1; i > 0; i--) {
        const int64_t other = support_below(&seed, i + 1);
        const char keep = order[i];
        order[i] = order[other];
        order[other] = keep;
    }
    for (i = 0; i < run.data.blocks; i++) {
        if (i > 0 && round % 4 != 3 && support_below(&seed, 3) == 0) layout[at++] = '|';
        layout[at++] = order[i];
    }
    layout[at] = 0;
    for (i = 0; i < 6; i++) recompute[i] = (uint8_t)(i + 1 < 2 * model.layers + 2 && support_below(&seed, 2));
    run.device[0].threads = (int32_t)(1 + support_below(&seed, 8));
    run.desc.limits.max_slices = 1 + support_below(&seed, 6);
    run.desc.layout.backward = (het_backward)(HET_BACKWARD_FUSED + support_below(&seed, 3));
    if (support_below(&seed, 2)) run.desc.layout.recompute_unit = recompute;
    if (support_below(&seed, 4) == 0) run.desc.host.parallel = support_backwards();
    SAME(&base, &run, layout, "round %d", round);
    support_run_end(&run);
}

static void random_layouts(void **state)
{
    int first = support_environment("HETRAIN_TEST_FIRST_ROUND", 0), end = first + support_environment("HETRAIN_TEST_ROUNDS", 24), said = first;
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
    support_run run;
    (void)state;
    model.dropout = 0.1f;
    base = start_short(&run, &model);
    run.desc.seed++;
    other = support_train(&run, SUPPORT_TOGETHER);
    assert_true(other.weights != base.weights && other.loss[0] != base.loss[0]);
    run.desc.seed--;
    run.desc.model.dropout = 0.0f;
    other = support_train(&run, SUPPORT_TOGETHER);
    assert_true(other.weights != base.weights && other.loss[0] != base.loss[0]);
    support_run_end(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_in_every_layout),
        cmocka_unit_test(llama_in_every_layout),
        cmocka_unit_test(qwen2_in_every_layout),
        cmocka_unit_test(qwen3_in_every_layout),
        cmocka_unit_test(neox_in_every_layout),
        cmocka_unit_test(adapters_in_every_layout),
        cmocka_unit_test(slices),
        cmocka_unit_test(long_sequences_in_slices),
        cmocka_unit_test(recompute_of_single_units),
        cmocka_unit_test(recompute_of_whole_stages),
        cmocka_unit_test(instruction_sets),
        cmocka_unit_test(mode_of_the_caller),
        cmocka_unit_test(parallel_of_the_caller),
        cmocka_unit_test(hook_that_does_nothing),
        cmocka_unit_test(bf16_on_one_path),
        cmocka_unit_test(matrix_registers),
        cmocka_unit_test(fast_mode_repeats),
        cmocka_unit_test(random_layouts),
        cmocka_unit_test(what_does_change_the_bits),
    };
    return cmocka_run_group_tests_name("bits", tests, NULL, NULL);
}
