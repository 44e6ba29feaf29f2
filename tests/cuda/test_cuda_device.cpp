/* The CUDA device in whole training steps against the CPU device: products, copies, queues, workspaces, failures, alone and with other ranks.
   make test runs it without a GPU, on the stand-in for the CUDA runtime and cuBLASLt (standin/standin.h) and the kernels' emulation; make test-cuda
   on a real card, where nothing can be made to fail and two cards are one. */
#ifndef __CUDACC__
#define HETC_EMULATED 1
#define HETRAIN_CUDA_DECLARATIONS 1 /* the stand-in's object is linked */
#endif
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <functional>
#include <string>
#include <vector>
#ifdef HETC_EMULATED
#include "emulator.h"
#include <cuda.h>
#include <cuda_runtime.h>
#endif
#include "hetrain_cuda.cu"
extern "C" {
#include "support.h"
#include "hetrain_files.h"
}

#include "training.h"

/* ---- alone ---- */

/* A step, weights and state saved behind it, and another: the bits of a second context that begins with what was saved. */
static void continues(const support_run *run, support_buffer *weights, support_buffer *state, const char *what)
{
    het_ctx *whole = support_create(&run->desc), *second = support_create(&run->desc);
    (void)support_step(whole, &run->data, 0, LAYOUT);
    support_buffer_start(weights);
    support_buffer_start(state);
    het_writer to_weights = support_writer(weights), to_state = support_writer(state);
    EXPECT_OK(het_save_weights(whole, &to_weights));
    EXPECT_OK(het_save_state(whole, &to_state));
    het_reader from_weights = support_reader(weights), from_state = support_reader(state);
    EXPECT_OK(het_load_weights(second, &from_weights));
    EXPECT_OK(het_load_state(second, &from_state));
    (void)support_step(whole, &run->data, 1, LAYOUT);
    (void)support_step(second, &run->data, 1, LAYOUT);
    support_same_state(whole, second, 1, what);
    het_destroy(second);
    het_destroy(whole);
}


static void compare(het_family family, het_dtype dtype, het_reduce reduce, int32_t options, const char *what,
                    const het_optimizer_iface *optimizer = het_adamw())
{
    support_run run;
    stand_in(1);
    start(&run, family, dtype, reduce);
    run.desc.optimizer.iface = optimizer;
    run.desc.optimizer.feedback = reduce == HET_REDUCE_FAST ? 1.0f : 0.0f; /* with either */
    const trained cpu = train(&run, LAYOUT);
    run.device[0].iface = het_cuda_device_with(options);
    const trained cuda = train(&run, LAYOUT);
    expect_same(cpu, cuda, (options & HET_CUDA_TF32) != 0 ? 5e-3 : limit_of(dtype), what);
    if ((options & HET_CUDA_TIMED) == 0) {
        const trained again = train(&run, LAYOUT);
        expect_equal(cuda, again);
    }
    support_run_end(&run);
    stand_down();
}

static void gpt2_trains_as_on_the_cpu(void **) { compare(HET_GPT2, HET_F32, HET_REDUCE_EXACT, 0, "gpt2 f32 exact"); }
static void llama_trains_as_on_the_cpu(void **) { compare(HET_LLAMA, HET_F32, HET_REDUCE_EXACT, 0, "llama f32 exact"); }
static void qwen3_trains_as_on_the_cpu(void **) { compare(HET_QWEN3, HET_F32, HET_REDUCE_FAST, 0, "qwen3 f32 fast"); }
static void neox_trains_as_on_the_cpu(void **) { compare(HET_NEOX, HET_F32, HET_REDUCE_FAST, 0, "neox f32 fast"); }
static void gpt2_trains_in_bf16(void **) { compare(HET_GPT2, HET_BF16, HET_REDUCE_EXACT, 0, "gpt2 bf16 exact"); }
static void llama_trains_in_bf16(void **) { compare(HET_LLAMA, HET_BF16, HET_REDUCE_FAST, 0, "llama bf16 fast"); }
static void tf32_and_timed_algorithms(void **) { compare(HET_LLAMA, HET_F32, HET_REDUCE_FAST, HET_CUDA_TF32 | HET_CUDA_TIMED, "llama tf32 timed"); }

static void muon_trains_as_on_the_cpu(void **)
{
    compare(HET_GPT2, HET_F32, HET_REDUCE_EXACT, 0, "gpt2 f32 exact, Muon", het_muon());
    compare(HET_LLAMA, HET_BF16, HET_REDUCE_FAST, 0, "llama bf16 fast, Muon", het_muon());
}

/* With it a layer's sum is an op of its own. */
static void dropout_in_bf16(void **)
{
    het_model_desc model = support_model(HET_GPT2);
    support_run run;
    stand_in(1);
    model.dropout = 0.2f;
    support_run_start(&run, &model, 3, BLOCKS);
    run.desc.dtype = HET_BF16;
    run.desc.optimizer.epsilon = 1e-3f;
    support_run_ranks(&run, 1);
    const trained cpu = train(&run, LAYOUT);
    run.device[0].iface = het_cuda_device();
    expect_same(cpu, train(&run, LAYOUT), limit_of(HET_BF16), "gpt2 bf16 with dropout");
    support_run_end(&run);
    stand_down();
}

/* Queries, keys and values that lie side by side: rotated ones of unequal width, and where a norm of heads keeps them apart. */
static void queries_beside_keys(void **)
{
    static const struct { het_family family; int64_t head_size, products; } tries[] = {
        { HET_LLAMA, 8, 64 }, { HET_LLAMA, 12, 88 }, { HET_NEOX, 24, 64 }, { HET_QWEN3, 16, 88 } /* forward, back and of weights: each 4 fewer a
                                                                                                    step, of gate and up 2; of the head's weight, whose
                                                                                                    rows are odd, 4 more in all */
    };
    for (const auto &t : tries) {
        het_model_desc model = support_model(t.family);
        support_run run;
        stand_in(1);
        model.head_size = t.head_size;
        model.mlp_width = 56;
        model.layers = 1;
        support_run_start(&run, &model, 2, BLOCKS);
        run.desc.dtype = HET_BF16;
        run.desc.reduce = HET_REDUCE_FAST;
        run.desc.optimizer.epsilon = 1e-2f; /* gradients of biases are small */
        support_run_ranks(&run, 1);
        const trained cpu = train(&run, LAYOUT);
        run.device[0].iface = het_cuda_device();
        expect_same(cpu, train(&run, LAYOUT), limit_of(HET_BF16), "bf16, q, k and v");
        support_run_end(&run);
#ifdef HETC_EMULATED
        assert_int_equal(standin_counted().products, t.products);
#endif
        stand_down();
    }
}

/* ---- GELU as part of its product ---- */

/* Widths that cuBLASLt takes and does not take, an algorithm that is not there: the same training each time. */
static void gelu_in_the_product(void **)
{
    struct { het_dtype dtype; int32_t options; int64_t width; int refuse, fused; } const tries[] = {
        { HET_BF16, 0, 56, 0, 1 }, { HET_BF16, 0, 52, 0, 0 }, { HET_BF16, 0, 56, 1, 0 }, { HET_BF16, 0, 56, 2, 0 },
        { HET_BF16, 0, 56, 3, 0 }, { HET_BF16, 0, 56, 4, 0 }, { HET_F32, HET_CUDA_TF32 | HET_CUDA_TIMED, 56, 3, 0 },
        { HET_F32, 0, 56, 0, 0 },
        { HET_F32, HET_CUDA_TF32, 56, 0, 1 }
    };
    for (const auto &t : tries) {
        het_model_desc model = support_model(HET_GPT2);
        support_run run;
        stand_in(1);
        model.mlp_width = t.width;
        model.layers = 1 + t.fused; /* of two, each has its own a */
        support_run_start(&run, &model, 3, BLOCKS);
        run.desc.dtype = t.dtype;
        run.desc.optimizer.epsilon = 1e-3f;
        support_run_ranks(&run, 1);
        const trained cpu = train(&run, LAYOUT);
        run.device[0].iface = het_cuda_device_with(t.options);
#ifdef HETC_EMULATED
        standin_refuse(t.refuse);
#endif
        expect_same(cpu, train(&run, LAYOUT), t.options != 0 ? 5e-3 : limit_of(t.dtype), t.dtype == HET_BF16 ? "gelu bf16" : "gelu f32, tf32");
#ifdef HETC_EMULATED
        assert_int_equal(standin_counted().fused, t.fused * 2 * 2 * 2 * 2); /* attempts until it is kept, layers, micro-batches, both ways */
#endif
        support_run_end(&run);
        stand_down();
    }
}

/* ---- with other ranks ---- */

/* Trains on the CPU alone and in a layout of ranks; `kinds` has a letter a rank: c a CPU, 0 and 1 a card. */
static void compare_ranks(het_family family, het_reduce reduce, const char *kinds, const char *plan, const char *schedule, int64_t slices,
                          het_shard shard, const char *what)
{
    const double limit = limit_of(HET_F32);
    support_run run;
    stand_in(2);
    start(&run, family, HET_F32, reduce);
    const trained cpu = train(&run, LAYOUT);
    support_run_ranks(&run, static_cast<int64_t>(strlen(kinds)));
    for (size_t r = 0; kinds[r] != 0; r++) {
        run.device[r].iface = kinds[r] == 'c' ? het_cpu_device() : het_cuda_device();
        run.device[r].ordinal = kinds[r] == '1' && cards() > 1;
    }
    run.desc.layout.shard = shard;
    support_run_plan(&run, plan, schedule, slices);
    const trained mixed = train(&run, LAYOUT);
    expect_same(cpu, mixed, limit, what);
    const trained again = train(&run, LAYOUT);
    expect_equal(mixed, again);
    support_run_end(&run);
    stand_down();
}

static void two_cards_share_the_batch(void **)
{
    compare_ranks(HET_GPT2, HET_REDUCE_EXACT, "01", "dp", NULL, 1, HET_SHARD_STATE, "cuda:0,cuda:1 dp exact");
    compare_ranks(HET_LLAMA, HET_REDUCE_FAST, "01", "dp", NULL, 1, HET_SHARD_STATE, "cuda:0,cuda:1 dp fast");
}
/* The second stage's gradients are reduced while the first one works. */
static void two_cards_reduce_while_they_work(void **)
{
    compare_ranks(HET_GPT2, HET_REDUCE_EXACT, "01",
                  "{\"pipelines\": [{\"stages\": [{\"rank\": 0, \"units\": [0, 3]}, {\"rank\": 0, \"units\": [3, 6]}]},"
                  " {\"stages\": [{\"rank\": 1, \"units\": [0, 3]}, {\"rank\": 1, \"units\": [3, 6]}]}]}",
                  NULL, 1, HET_SHARD_STATE, "cuda:0,cuda:1 dp, two stages each");
}
static void two_cards_share_the_layers(void **) { compare_ranks(HET_LLAMA, HET_REDUCE_EXACT, "01", "pp", "1f1b", 1, HET_SHARD_STATE, "cuda:0,cuda:1 pp"); }
static void one_card_has_two_ranks(void **) { compare_ranks(HET_GPT2, HET_REDUCE_EXACT, "00", "pp", "zb-h1", 1, HET_SHARD_STATE, "cuda:0,cuda:0 zb-h1"); }
static void a_card_and_a_cpu_share_the_batch(void **)
{
    compare_ranks(HET_GPT2, HET_REDUCE_EXACT, "0c", "dp", NULL, 1, HET_SHARD_STATE, "cuda:0,cpu dp exact");
    compare_ranks(HET_GPT2, HET_REDUCE_EXACT, "c0", "dp", NULL, 1, HET_SHARD_GRADIENTS, "cpu,cuda:0 dp sharded gradients");
}
static void a_card_and_a_cpu_share_the_layers(void **)
{
    compare_ranks(HET_LLAMA, HET_REDUCE_EXACT, "0c", "pp", "gpipe", 2, HET_SHARD_STATE, "cuda:0,cpu pp of two slices");
    compare_ranks(HET_QWEN3, HET_REDUCE_FAST, "c0", "pp", "1f1b", 1, HET_SHARD_STATE, "cpu,cuda:0 pp fast");
}
/* Chains that go from card to card, and between a card and a CPU. */
static void cards_divide_matrices(void **)
{
    compare_ranks(HET_LLAMA, HET_REDUCE_EXACT, "01", "tp2", NULL, 1, HET_SHARD_STATE, "cuda:0,cuda:1 tp2");
    compare_ranks(HET_GPT2, HET_REDUCE_EXACT, "0c01", "pp2xtp2", "zb-h1", 1, HET_SHARD_GRADIENTS, "cuda:0,cpu and cuda:0,cuda:1 pp2xtp2");
}

/* ---- what else a context does ---- */

static void slices_and_recomputation(void **)
{
    support_run run;
    stand_in(1);
    start(&run, HET_LLAMA, HET_F32, HET_REDUCE_EXACT);
    const trained cpu = train(&run, LAYOUT);
    run.device[0].iface = het_cuda_device();
    run.desc.limits.max_slices = 2;
    run.desc.layout.recompute = HET_YES;
    run.desc.layout.backward = HET_BACKWARD_DEFERRED;
    expect_same(cpu, train(&run, LAYOUT), limit_of(HET_F32), "two slices, recomputed, deferred");
    support_run_end(&run);
    stand_down();
}

/* ---- graphs ---- */

/* One step with a weight that is not finite: it is skipped. */
static void step_badly(het_ctx *ctx, const support_run *run)
{
    const int64_t last = het_parameter_count(ctx) - 1;
    het_parameter_info info;
    EXPECT_OK(het_parameter_get_info(ctx, last, &info));
    std::vector<float> right(static_cast<size_t>(info.count)), wrong;
    EXPECT_OK(het_parameter_read(ctx, last, HET_WEIGHT, right.data()));
    wrong = right;
    wrong[0] = INFINITY;
    EXPECT_OK(het_parameter_write(ctx, last, HET_WEIGHT, wrong.data()));
    assert_int_equal(support_step(ctx, &run->data, 0, LAYOUT).skipped, 1);
    EXPECT_OK(het_parameter_write(ctx, last, HET_WEIGHT, right.data()));
}

static double evaluate(het_ctx *ctx, const support_run *run)
{
    support_group group;
    het_step_info info;
    support_group_start(&group, &run->data, 0, LAYOUT);
    support_expect(het_evaluate(ctx, group.batch, group.count, &info), HET_OK, het_last_error(ctx), "", "het_evaluate", __LINE__);
    support_group_end(&group);
    return info.loss;
}

/* Steps of one shape, of other shapes and again of the first, evaluations between them, a skipped step, another plan. */
static trained live_through(support_run *run)
{
    static const char *const layouts[] = { LAYOUT, LAYOUT, "e", LAYOUT, "0|1|23", "bad", "0|1|23", LAYOUT, "e", "plan", LAYOUT, "3|012", "e",
                                           LAYOUT };
    trained t;
    int step = 0;
    het_ctx *ctx = support_create(&run->desc);
    for (const char *layout : layouts) {
        if (strcmp(layout, "bad") == 0) {
            if (run->desc.guard.skip_bad_steps == HET_YES) step_badly(ctx, run);
        } else if (strcmp(layout, "e") == 0) {
            t.loss.push_back(evaluate(ctx, run));
        } else if (strcmp(layout, "plan") == 0) {
            het_replan_desc plan;
            memset(&plan, 0, sizeof plan);
            plan.max_micro_batches = 3;
            support_expect(het_replan(ctx, &plan), HET_OK, het_last_error(ctx), "", "het_replan", __LINE__);
        } else {
            const het_step_info info = support_step(ctx, &run->data, step++ % run->data.steps, layout);
            t.loss.push_back(info.loss);
            t.norm.push_back(info.gradient_norm);
        }
    }
    read_all(ctx, HET_WEIGHT, &t.weight, &t.name);
    read_all(ctx, HET_GRADIENT, &t.gradient, nullptr);
    read_all(ctx, HET_MOMENT0, &t.moment, nullptr);
    het_destroy(ctx);
    return t;
}

static void expect_graphs_without_a_trace(support_run *run)
{
    for (int64_t i = 0; i < run->desc.layout.device_count; i++) run->device[i].iface = het_cuda_device_with(HET_CUDA_EAGER);
    const trained eager = live_through(run);
#ifdef HETC_EMULATED
    assert_int_equal(standin_counted().captured, 0);
#endif
    for (int64_t i = 0; i < run->desc.layout.device_count; i++) run->device[i].iface = het_cuda_device();
    const trained kept = live_through(run);
#ifdef HETC_EMULATED
    assert_true(standin_counted().captured > 20 && standin_counted().launched > 2 * standin_counted().captured);
#endif
    expect_equal(eager, kept);
}

static void graphs_change_no_bits(void **)
{
    support_run run;
    stand_in(1);
    start_layers(&run, HET_GPT2, HET_F32, HET_REDUCE_EXACT, 1);
    run.desc.optimizer.feedback = 1.0f;
    run.desc.guard.skip_bad_steps = HET_YES;
    expect_graphs_without_a_trace(&run);
    support_run_end(&run);
    stand_down();
}

/* Two copies, whose sums and new weights pass through the host between passes. */
static void graphs_of_two_copies(het_family family, het_dtype dtype, het_reduce reduce, const het_optimizer_iface *optimizer)
{
    support_run run;
    stand_in(2);
    start_layers(&run, family, dtype, reduce, 1);
    run.desc.optimizer.iface = optimizer;
    run.desc.guard.skip_bad_steps = HET_YES;
    support_run_ranks(&run, 2);
    support_run_plan(&run, "dp", nullptr, 1);
    for (int i = 0; i < 2; i++) run.device[i].ordinal = i && cards() > 1;
    expect_graphs_without_a_trace(&run);
    support_run_end(&run);
    stand_down();
}

static void graphs_change_no_bits_of_copies(void **) { graphs_of_two_copies(HET_LLAMA, HET_F32, HET_REDUCE_EXACT, het_adamw()); }
static void graphs_change_no_bits_of_muon(void **) { graphs_of_two_copies(HET_GPT2, HET_BF16, HET_REDUCE_FAST, het_muon()); }

static void graphs_change_no_bits_with_dropout(void **)
{
    het_model_desc model = support_model(HET_GPT2);
    support_run run;
    stand_in(1);
    model.dropout = 0.2f;
    model.mlp_width = 56;
    model.layers = 1;
    support_run_start(&run, &model, 3, BLOCKS);
    run.desc.dtype = HET_BF16;
    run.desc.reduce = HET_REDUCE_FAST;
    run.desc.guard.skip_bad_steps = HET_YES;
    support_run_ranks(&run, 1);
    expect_graphs_without_a_trace(&run);
    support_run_end(&run);
    stand_down();
}

static void graphs_change_no_bits_of_slices(void **)
{
    support_run run;
    stand_in(1);
    start_layers(&run, HET_LLAMA, HET_F32, HET_REDUCE_EXACT, 1);
    run.desc.guard.skip_bad_steps = HET_YES;
    run.desc.limits.max_slices = 2;
    run.desc.layout.recompute = HET_YES;
    run.desc.layout.backward = HET_BACKWARD_DEFERRED;
    expect_graphs_without_a_trace(&run);
    support_run_end(&run);
    stand_down();
}

/* A hook that counts its calls; one that wants to be told that streams are bf16. */
static het_result look_on(void *user, const het_hook_info *info)
{
    *static_cast<int64_t *>(user) += info->rows > 0;
    return HET_OK;
}
static het_result look_on_bf16(void *user, const het_hook_info *info) { return info->type == HET_BF16 ? look_on(user, info) : HET_ERR_STATE; }

#ifdef HETC_EMULATED
/* Each piece of work of a step is kept once, the second time it comes, and from then on only repeated. A first step with exact sums is two
   attempts. */
static void work_is_kept_once(void **)
{
    for (int exact = 0; exact < 2; exact++) {
        support_run run;
        het_timeline timeline;
        int64_t pieces = 0;
        stand_in(1);
        start_layers(&run, HET_GPT2, HET_F32, exact ? HET_REDUCE_EXACT : HET_REDUCE_FAST, 1);
        run.device[0].iface = het_cuda_device();
        het_ctx *ctx = support_create(&run.desc);
        for (int step = 0; step < 5; step++) (void)support_step(ctx, &run.data, step, LAYOUT);
        het_get_timeline(ctx, 0, &timeline);
        for (int64_t i = 0; i < timeline.records; i++) {
            const int32_t kind = timeline.record[i].action.kind;
            pieces += kind == HET_ACTION_F || kind == HET_ACTION_B || kind == HET_ACTION_COMMIT || kind == HET_ACTION_STEP;
        }
        assert_int_equal(standin_counted().captured, pieces);
        assert_int_equal(standin_counted().launched, pieces * (exact ? 5 : 4));
        het_destroy(ctx);
        support_run_end(&run);
        stand_down();
    }
}

/* A hook may do anything on the host: nothing is kept. */
static void hooks_keep_graphs_away(void **)
{
    int64_t seen = 0;
    support_run run;
    stand_in(1);
    start_layers(&run, HET_GPT2, HET_F32, HET_REDUCE_FAST, 1);
    run.device[0].iface = het_cuda_device();
    run.desc.host.hook = look_on;
    run.desc.host.user = &seen;
    het_ctx *ctx = support_create(&run.desc);
    for (int step = 0; step < 3; step++) (void)support_step(ctx, &run.data, step, LAYOUT);
    assert_int_equal(seen, 3 * 2 * 2 * 4); /* steps, micro-batches, directions, units */
    assert_int_equal(standin_counted().captured, 0);
    het_destroy(ctx);
    support_run_end(&run);
    stand_down();
}

/* A norm's way back rounds its gradient for the unit below; a hook may change what goes from unit to unit: then, and where units recompute or
   gradients of weights come later, each unit rounds its own. The same bits, so many kernels fewer: one a unit and micro-batch. */
static void gradients_rounded_on_the_way(void **)
{
    static const struct { het_family family; int recompute, deferred; int64_t fewer; } tries[] = {
        { HET_GPT2, 0, 0, 24 }, { HET_LLAMA, 0, 0, 24 }, { HET_NEOX, 0, 0, 6 }, { HET_GPT2, 1, 0, 0 }, { HET_GPT2, 0, 1, 0 }
    };
    for (const auto &t : tries) {
        int64_t seen = 0, ran[2];
        trained end[2];
        for (int hook = 0; hook < 2; hook++) {
            het_model_desc model = support_model(t.family);
            support_run run;
            stand_in(1);
            model.mlp_width = 56;
            if (t.family == HET_LLAMA) model.head_size = 8;
            support_run_start(&run, &model, 3, BLOCKS);
            run.desc.dtype = HET_BF16;
            run.desc.reduce = HET_REDUCE_FAST;
            support_run_ranks(&run, 1);
            run.device[0].iface = het_cuda_device_with(HET_CUDA_EAGER);
            if (t.recompute) run.desc.layout.recompute = HET_YES;
            if (t.deferred) run.desc.layout.backward = HET_BACKWARD_DEFERRED;
            run.desc.host.hook = hook ? look_on : nullptr;
            run.desc.host.user = &seen;
            end[hook] = train(&run, LAYOUT);
            ran[hook] = standin_counted().ran;
            support_run_end(&run);
            stand_down();
        }
        expect_equal(end[0], end[1]);
        assert_int_equal(ran[1] - ran[0], t.fewer);
    }
}

/* Another shape every few steps, more of them than there are places: graphs go as they come, and the training is the same. */
static trained change_shapes(int32_t options, int64_t *live)
{
    het_model_desc model;
    het_error error;
    support_run run;
    trained t;
    memset(&model, 0, sizeof model);
    model.family = HET_GPT2;
    model.layers = 1, model.width = 8, model.heads = 2, model.vocab = 11, model.context = 16;
    support_expect(het_model_complete(&model, &error), HET_OK, error.text, "", "het_model_complete", __LINE__);
    support_run_start(&run, &model, 1, "16,16");
    run.desc.reduce = HET_REDUCE_FAST;
    support_run_ranks(&run, 1);
    run.device[0].iface = het_cuda_device_with(options);
    het_ctx *ctx = support_create(&run.desc);
    *live = 0;
    for (int step = 0; step < 120; step++) {
        support_batch batch;
        het_step_info info;
        support_batch_start(&batch);
        support_batch_sequence(&batch, 1 + step / 2 % 8, model.vocab, 0, 1);
        support_batch_sequence(&batch, 1 + step / 16 % 8, model.vocab, 1, 2);
        support_expect(het_step(ctx, &batch.batch, 1, &info), HET_OK, het_last_error(ctx), "", "het_step", __LINE__);
        t.loss.push_back(info.loss);
        if (standin_counted().live > *live) *live = standin_counted().live;
        support_batch_end(&batch);
    }
    read_all(ctx, HET_WEIGHT, &t.weight, &t.name);
    het_destroy(ctx);
    support_run_end(&run);
    return t;
}
static void more_shapes_than_graphs(void **)
{
    int64_t eager_live, live;
    stand_in(1);
    const trained eager = change_shapes(HET_CUDA_EAGER, &eager_live), kept = change_shapes(0, &live);
    const standin_count count = standin_counted();
    print_message("%d graphs made, at most %d alive\n", static_cast<int>(count.captured), static_cast<int>(live - eager_live));
    expect_equal(eager, kept);
    assert_true(count.captured > 70 && live - eager_live < 60); /* 2 actions + 16 places */
    stand_down();
}
#endif

/* ---- weights in bf16 beside the floats ---- */

static int32_t rounds_nothing(void *self, const het_op *op) { return op->kind != HET_OP_ROUND && het_cuda_device()->supports(self, op); }

static size_t given; /* bytes of a card's memory */
static void *give(void *self, size_t size)
{
    given += size;
    return het_cuda_device()->alloc(self, size);
}

/* Rounded once behind each change or in each product: the same bits, on one rank and on several, whatever changes weights. */
static void weights_rounded_once(void **)
{
    static const struct { het_family family; het_reduce reduce; const char *kinds, *plan; het_shard shard; int64_t updates, rank; } tries[] = {
        { HET_GPT2, HET_REDUCE_FAST, "0", NULL, HET_SHARD_STATE, 1, 0 },
        { HET_LLAMA, HET_REDUCE_EXACT, "0", NULL, HET_SHARD_STATE, 1, 0 },
        { HET_LLAMA, HET_REDUCE_FAST, "0", NULL, HET_SHARD_STATE, 1, 4 },
        { HET_GPT2, HET_REDUCE_FAST, "01", "dp", HET_SHARD_STATE, 1, 0 },
        { HET_QWEN3, HET_REDUCE_EXACT, "01", "dp", HET_SHARD_WEIGHTS, 1, 0 },
        { HET_GPT2, HET_REDUCE_EXACT, "0c", "pp", HET_SHARD_GRADIENTS, 1, 0 },
        { HET_GPT2, HET_REDUCE_EXACT, "01", "pp", HET_SHARD_STATE, 2, 0 },
        { HET_GPT2, HET_REDUCE_EXACT, "01", "tp2", HET_SHARD_STATE, 1, 0 },
        { HET_GPT2, HET_REDUCE_EXACT, "00c", "{\"pipelines\": [{\"stages\": [{\"rank\": 0, \"units\": [0, 4]}]}, {\"stages\": [{\"rank\": 1, \"units\": [0, 4]}]}],"
          " \"keepers\": [2], \"state_shares\": [1, 0, 2]}", HET_SHARD_STATE, 1, 0 }
    };
    for (const auto &t : tries) {
        het_device_iface plain = *het_cuda_device(), counted = plain;
        het_memory without, with;
        het_error error;
        support_run run;
        const auto cards_are = [&](const het_device_iface *iface) {
            for (int r = 0; t.kinds[r] != 0; r++) run.device[r].iface = t.kinds[r] == 'c' ? het_cpu_device() : iface;
        };
        het_model_desc model = support_model(t.family);
        plain.supports = rounds_nothing;
        counted.alloc = give;
        model.layers = 1;
        model.lora_rank = t.rank;
        model.mlp_width = t.rank > 0 ? 56 : 52; /* rows of 52 bf16 are no multiple of 16 bytes: rounded each time, into longer ones */
        EXPECT_ERROR(het_model_complete(&model, &error), HET_OK, error.text, "");
        stand_in(2);
        support_run_start(&run, &model, 3, BLOCKS);
        run.desc.dtype = HET_BF16;
        run.desc.reduce = t.reduce;
        run.desc.layout.shard = t.shard;
        run.desc.optimizer.iface = (&t - tries) % 2 > 0 ? het_muon() : het_adamw();
        run.desc.optimizer.feedback = t.rank > 0 ? 1.0f : 0.0f; /* weights change behind the optimizer too */
        if (t.updates > 1) run.desc.optimizer.clip = -1.0f;
        else run.desc.guard.skip_bad_steps = HET_YES;
        support_run_ranks(&run, static_cast<int64_t>(strlen(t.kinds)));
        for (int r = 0; t.kinds[r] != 0; r++) run.device[r].ordinal = t.kinds[r] == '1' && cards() > 1;
        if (t.plan != NULL) support_run_plan(&run, t.plan, NULL, 1);
        if (run.plan != NULL) run.plan->updates = t.updates, run.plan->staleness = t.updates - 1;
        const bool briefly = t.updates > 1 || ((&t - tries) % 8 != 0 && support_environment("HETRAIN_TEST_ROUNDS", 60) <= 60);
        const auto lived = [&] { return briefly ? train(&run, LAYOUT) : live_through(&run); };
        cards_are(&plain);
        const trained each = lived();
        EXPECT_ERROR(het_memory_estimate(&run.desc, 0, &without, &error), HET_OK, error.text, "");
        cards_are(&counted);
        expect_equal(each, lived());
        given = 0;
        het_ctx *ctx = support_create(&run.desc);
        size_t device = 0;
        for (int r = 0; t.kinds[r] != 0; r++) {
            EXPECT_ERROR(het_memory_estimate(&run.desc, r, &with, &error), HET_OK, error.text, "");
            if (t.kinds[r] != 'c') device += with.device;
        }
        assert_int_equal(given, device);
        EXPECT_ERROR(het_memory_estimate(&run.desc, 0, &with, &error), HET_OK, error.text, "");
        print_message("%s, %s %s: %zu bytes of weights, %zu with those in bf16\n", t.kinds, t.plan != NULL ? t.plan : "alone", t.family == HET_GPT2 ? "gpt2" : "llama",
                      without.weights, with.weights);
        assert_true(with.gradients == without.gradients && with.activations == without.activations);
        if (t.shard == HET_SHARD_WEIGHTS || t.updates > 1) assert_int_equal(with.weights, without.weights); /* those that calls get by themselves */
        else assert_true(with.weights > without.weights && 2 * (with.weights - without.weights) < without.weights + 2048);
        het_destroy(ctx);
        support_run_end(&run);
        stand_down();
    }
}

/* ---- attention's gradients by atomics ---- */

/* In five products as in seven, but for rounding; the sums they take are in the estimate, all of which is asked for. */
static void attention_by_atomics(void **)
{
    static const struct { het_family family; het_dtype dtype; het_reduce reduce; const char *plan; int64_t slices; const char *what; } tries[] = {
        { HET_GPT2, HET_F32, HET_REDUCE_EXACT, NULL, 1, "gpt2 f32, five products" },
        { HET_LLAMA, HET_BF16, HET_REDUCE_FAST, NULL, 1, "llama bf16, five products" },
        { HET_QWEN3, HET_F32, HET_REDUCE_FAST, NULL, 2, "qwen3 f32 of two slices, five products" },
        { HET_LLAMA, HET_F32, HET_REDUCE_EXACT, "cp2", 1, "llama f32, cp2, five products" }
    };
    for (const auto &t : tries) {
        het_device_iface counted = *het_cuda_device_with(HET_CUDA_ATOMIC);
        const int64_t ranks = t.plan != NULL ? 2 : 1;
        het_memory without, with;
        het_error error;
        support_run run;
        size_t device = 0;
        counted.alloc = give;
        stand_in(1);
        start(&run, t.family, t.dtype, t.reduce);
        run.desc.limits.max_slices = t.slices;
        support_run_ranks(&run, ranks);
        if (t.plan != NULL) support_run_plan(&run, t.plan, NULL, 1);
        for (int64_t r = 0; r < ranks; r++) run.device[r].iface = het_cuda_device();
        const trained plain = train(&run, "012|3"); /* of floats two blocks of keys */
        EXPECT_ERROR(het_memory_estimate(&run.desc, 0, &without, &error), HET_OK, error.text, "");
        for (int64_t r = 0; r < ranks; r++) run.device[r].iface = &counted;
        given = 0;
        expect_same(plain, train(&run, "012|3"), limit_of(t.dtype), t.what);
        for (int64_t r = 0; r < ranks; r++) {
            EXPECT_ERROR(het_memory_estimate(&run.desc, r, &with, &error), HET_OK, error.text, "");
            device += with.device;
        }
        assert_int_equal(given, device);
        EXPECT_ERROR(het_memory_estimate(&run.desc, 0, &with, &error), HET_OK, error.text, "");
        assert_true(with.workspace >= without.workspace && with.weights == without.weights && with.activations == without.activations);
#ifdef HETC_EMULATED
        assert_true(with.workspace > without.workspace); /* on a card products may ask for more */
#endif
        support_run_end(&run);
        stand_down();
    }
}

/* ---- units of one's own in bf16 ---- */

/* Nodes that read a stream, of floats, and write bf16, or the other way round; what lies side by side, or does not. */
enum own_kind { TURNED_STREAM, BENT_STREAM, TURNED_LAST, BENT_LAST, ATTENTION_LAST, NORM_LAST, NORM_DROPPED, NARROW_HEADS, SUM_INSIDE, GATE_TURNED,
                QUERY_OUT, OWN_KINDS, JOIN };

static het_result own_describe(const het_unit *unit, het_unit_info *info)
{
    const het_model_desc *m = unit->model;
    const int kind = *static_cast<const int *>(unit->settings);
    const float std = m->init_std;
    const het_matrix qkv[3] = { { "own.q", m->width, 1, std, 0 }, { "own.k", m->width, 0, std, 0 }, { "own.v", m->width, 1, std, 0 } };
    het_program *p = het_program_begin(unit, info);
    const int x = het_node_input(p, 0, m->width);
    int y[3], z = x;
    if (kind == TURNED_STREAM) z = het_node_residual(p, x, het_node_rotary(p, x));
    if (kind == BENT_STREAM) z = het_node_linear(p, het_node_activation(p, HET_GELU_TANH, x, -1), "own.a", m->width, std);
    if (kind == TURNED_LAST) z = het_node_rotary(p, het_node_linear(p, x, "own.a", m->width, std));
    if (kind == BENT_LAST) z = het_node_activation(p, HET_GELU_ERF, het_node_linear(p, x, "own.a", m->width, std), -1);
    if (kind == NORM_LAST) z = het_node_norm(p, het_node_linear(p, x, "own.a", m->width, std), "own.n");
    if (kind == NORM_DROPPED) z = het_node_residual(p, -1, het_node_norm(p, x, "own.n"));
    if (kind == NARROW_HEADS) z = het_node_linear(p, het_node_head_norm(p, het_node_linear(p, x, "own.a", m->width, std), "own.n"), "own.b", m->width, std);
    if (kind == SUM_INSIDE) z = het_node_linear(p, het_node_residual(p, x, het_node_linear(p, x, "own.a", m->width, std)), "own.b", m->width, std);
    if (kind == GATE_TURNED) {
        het_node_linears(p, x, 2, qkv, y);
        z = het_node_linear(p, het_node_activation(p, HET_SWIGLU, het_node_rotary(p, y[0]), het_node_rotary(p, y[1])), "own.a", m->width, std);
    }
    if (kind == ATTENTION_LAST || kind == QUERY_OUT) {
        het_node_linears(p, x, 3, qkv, y);
        z = het_node_attention(p, y[0], y[1], y[2]);
    }
    if (kind == JOIN) z = het_node_residual(p, x, het_node_linear(p, het_node_input(p, 1, m->width), "own.j", m->width, std));
    het_node_output(p, z);
    if (kind == QUERY_OUT) het_node_output(p, y[0]);
    return het_program_end(p);
}

static const het_unit_iface own_unit = { HETRAIN_UNIT_VERSION, "own", own_describe, het_program_forward, het_program_backward_input,
                                         het_program_backward_weight };

/* As on the CPU, with streams of floats and of bf16. */
static void units_of_ones_own(void **)
{
    for (int round = 0; round < 2 * OWN_KINDS; round++) {
        const int kind = round % OWN_KINDS, join = JOIN;
        if (kind == NARROW_HEADS && round != kind) continue; /* not bf16 */
        het_model_desc model = support_model(HET_LLAMA);
        het_unit plain[4], units[5];
        int64_t count, n = 0;
        support_run run;
        stand_in(1);
        model.layers = 1;
        model.head_size = kind == NARROW_HEADS ? 10 : 8;
        model.heads = model.kv_heads = model.width / model.head_size;
        support_run_start(&run, &model, 2, BLOCKS);
        run.desc.dtype = HET_BF16;
        run.desc.optimizer.epsilon = 1e-2f;
        EXPECT_OK(het_model_units(&model, plain, 4, &count, NULL));
        units[n++] = plain[0];
        for (const int *own : { &kind, &join }) {
            if (own == &join && kind != QUERY_OUT) continue;
            units[n] = plain[1];
            units[n].iface = &own_unit;
            units[n++].settings = own;
        }
        units[n++] = plain[3];
        run.desc.units = units;
        run.desc.unit_count = n;
        support_run_ranks(&run, 1);
        const trained cpu = train(&run, LAYOUT);
        run.device[0].iface = het_cuda_device();
        run.desc.streams = round < OWN_KINDS ? HET_F32 : HET_BF16;
        const std::string what = "unit " + std::to_string(kind) + (round < OWN_KINDS ? " of one's own" : " of one's own, bf16 streams");
        expect_same(cpu, train(&run, LAYOUT), limit_of(HET_BF16), what.c_str());
        support_run_end(&run);
        stand_down();
    }
}

/* ---- streams in bf16 ---- */

/* A model whose widths are multiples of 8, so that units take all values as bf16. */
static void start_streams(support_run *run, het_family family, float dropout, het_dtype streams)
{
    het_model_desc model = support_model(family);
    model.mlp_width = 56;
    if (family == HET_LLAMA) model.head_size = 8;
    if (family == HET_QWEN3) model.head_size = 16;
    model.dropout = dropout;
    support_run_start(run, &model, 3, BLOCKS);
    run->desc.dtype = HET_BF16;
    run->desc.streams = streams;
    run->desc.optimizer.epsilon = 1e-2f; /* gradients of biases are small */
    support_run_ranks(run, 1);
    run->device[0].iface = het_cuda_device();
}

/* The training with f32 streams but for rounding of sums to 8 bits: 3e-2 of a tensor's largest value, as bf16 inside units has against the CPU; the
   same bits in each run, with graphs and without, recomputed, and with a hook that is told the type. Deferred, a norm's gradients are summed by
   another kernel. */
static void streams_in_bf16(void **)
{
    static const struct { het_family family; float dropout; het_reduce reduce; } tries[] = {
        { HET_GPT2, 0.0f, HET_REDUCE_FAST }, { HET_LLAMA, 0.0f, HET_REDUCE_EXACT }, { HET_QWEN3, 0.0f, HET_REDUCE_FAST },
        { HET_NEOX, 0.0f, HET_REDUCE_EXACT }, { HET_GPT2, 0.2f, HET_REDUCE_FAST }
    };
    int64_t seen = 0;
    for (const auto &t : tries) {
        support_run run;
        stand_in(1);
        start_streams(&run, t.family, t.dropout, HET_F32);
        run.desc.reduce = t.reduce;
        const trained floats = train(&run, LAYOUT);
        run.desc.streams = HET_BF16;
        const trained halves = train(&run, LAYOUT);
        expect_same(floats, halves, limit_of(HET_BF16), run.desc.model.family == HET_NEOX ? "neox, bf16 streams" : "bf16 streams");
        assert_true(halves.loss != floats.loss);
        run.device[0].iface = het_cuda_device_with(HET_CUDA_EAGER);
        for (int form = 0; form < 4; form++) {
            if (form != (&t - tries) % 4 && support_environment("HETRAIN_TEST_ROUNDS", 60) <= 60) continue;
            run.desc.layout.recompute = form == 1 ? HET_YES : HET_NO;
            run.desc.layout.backward = form == 2 ? HET_BACKWARD_DEFERRED : HET_BACKWARD_FUSED;
            run.desc.host.hook = form == 3 ? look_on_bf16 : nullptr;
            run.desc.host.user = &seen;
            const trained other = train(&run, LAYOUT);
            if (form == 2) expect_same(floats, other, limit_of(HET_BF16), "deferred");
            else expect_equal(halves, other);
        }
        support_run_end(&run);
        stand_down();
    }
    assert_true(seen > 0);
}

/* Bytes of messages of a step, and of activations of both ranks. */
static trained cross(support_run *run, const char *plan, int64_t *sent, size_t *activations)
{
    het_memory memory;
    het_timeline timeline;
    het_error error;
    support_run_plan(run, plan, NULL, 1);
    het_ctx *ctx = support_create(&run->desc);
    const het_step_info info = support_step(ctx, &run->data, 0, LAYOUT);
    *sent = 0, *activations = 0, given = 0;
    assert_true(info.loss > 0.0);
    for (int64_t r = 0; r < run->desc.layout.device_count; r++) {
        EXPECT_ERROR(het_memory_estimate(&run->desc, r, &memory, &error), HET_OK, error.text, "");
        *activations += memory.activations;
        het_get_timeline(ctx, r, &timeline);
        for (int64_t i = 0; i < timeline.records; i++)
            if (timeline.record[i].action.kind == HET_ACTION_SEND_F || timeline.record[i].action.kind == HET_ACTION_SEND_B)
                *sent += timeline.record[i].bytes;
    }
    het_destroy(ctx);
    return train(run, LAYOUT);
}

/* Two cards give the bits of one, and send half the bytes; het_memory_estimate says what is taken. */
static void streams_in_bf16_of_two_cards(void **)
{
    het_device_iface counted = *het_cuda_device();
    counted.alloc = give;
    for (const het_family family : { HET_GPT2, HET_NEOX }) {
        support_run run;
        int64_t sent[2];
        size_t activations[2];
        stand_in(2);
        start_streams(&run, family, 0.0f, HET_BF16);
        run.desc.limits.max_tokens = 48;
        const trained one = train(&run, LAYOUT);
        support_run_ranks(&run, 2);
        for (int i = 0; i < 2; i++) run.device[i].iface = &counted, run.device[i].ordinal = i && cards() > 1;
        for (int half = 0; half < 2; half++) {
            run.desc.streams = half ? HET_BF16 : HET_F32;
            const trained two = cross(&run, "pp", &sent[half], &activations[half]);
            if (half) expect_equal(one, two);
        }
        assert_true(sent[1] > 0 && 2 * sent[1] == sent[0] && activations[1] < activations[0]);
        print_message("messages of %d bytes, not %d; activations of %zu, not %zu\n", static_cast<int>(sent[1]), static_cast<int>(sent[0]),
                      activations[1], activations[0]);
        het_memory memory[2];
        het_error error;
        given = 0;
        het_ctx *ctx = support_create(&run.desc);
        for (int64_t r = 0; r < 2; r++) EXPECT_ERROR(het_memory_estimate(&run.desc, r, &memory[r], &error), HET_OK, error.text, "");
        assert_int_equal(given, memory[0].device + memory[1].device);
        het_destroy(ctx);
        expect_equal(one, (support_run_plan(&run, "dp", NULL, 1), train(&run, LAYOUT)));
        support_run_end(&run);
        stand_down();
    }
}

static void infer_all(const support_run *run, std::vector<float> *logits);

static int embeddings_frozen(void *, const char *parameter) { return strstr(parameter, "wte") != NULL || strstr(parameter, "wpe") != NULL; }

/* Cuts, frozen units, stages that recompute or store, gradients of weights that come later: as f32 streams do it. Graphs, evaluation, generation, and
   a state that goes on bit for bit. */
static void streams_in_bf16_whatever_else(void **)
{
    static const struct { const char *plan, *schedule; het_recompute recompute; int32_t store; int64_t local_loss; int frozen; } tries[] = {
        { "dp", NULL, HET_RECOMPUTE_NONE, 0, 1, 0 }, { "dp", NULL, HET_RECOMPUTE_NONE, 0, 0, 1 }, { "pp", "zb-h1", HET_RECOMPUTE_NONE, 0, 0, 0 },
        { "pp", "interleaved", HET_RECOMPUTE_STAGE, 0, 0, 0 }, { "pp", "gpipe", HET_RECOMPUTE_NONE, 1, 0, 0 }
    };
    for (const auto &t : tries) {
        if ((&t - tries) % 2 == 1 && support_environment("HETRAIN_TEST_ROUNDS", 60) <= 60) continue;
        trained end[2];
        for (int half = 0; half < 2; half++) {
            support_run run;
            stand_in(2);
            start_streams(&run, HET_GPT2, 0.0f, half ? HET_BF16 : HET_F32);
            run.desc.model.local_loss = t.local_loss;
            if (t.frozen) run.desc.frozen = embeddings_frozen;
            support_run_ranks(&run, 2);
            for (int i = 0; i < 2; i++) run.device[i].iface = het_cuda_device(), run.device[i].ordinal = i && cards() > 1;
            support_run_plan(&run, t.plan, t.schedule, 1);
            for (int64_t s = 0; s < run.plan->stages; s++) run.plan->stage[s].recompute = t.recompute, run.plan->stage[s].store = t.store;
            end[half] = train(&run, LAYOUT);
            support_run_end(&run);
            stand_down();
        }
        expect_same(end[0], end[1], limit_of(HET_BF16), t.schedule != NULL ? t.schedule : t.frozen ? "frozen" : "cuts");
    }
    support_run run;
    std::vector<float> logits[3];
    double loss[2];
    stand_in(1);
    start_streams(&run, HET_LLAMA, 0.0f, HET_BF16);
    run.desc.guard.skip_bad_steps = HET_YES;
    expect_graphs_without_a_trace(&run);
    for (int half = 0; half < 2; half++) {
        run.desc.streams = half ? HET_BF16 : HET_F32;
        het_ctx *ctx = support_create(&run.desc);
        loss[half] = evaluate(ctx, &run);
        het_destroy(ctx);
        run.desc.inference = HET_YES;
        infer_all(&run, &logits[half]);
        run.desc.inference = HET_NO;
    }
    assert_true(fabs(loss[0] - loss[1]) <= 1e-3 * loss[0] && loss[0] != loss[1]);
    run.desc.streams = HET_F32;
    run.device[0].iface = het_cpu_device();
    infer_all(&run, &logits[2]);
    for (int half = 0; half < 2; half++) assert_true(difference(logits[2], logits[half], 0.0) <= limit_of(HET_BF16));
    assert_true(logits[0] != logits[1]);
    run.desc.streams = HET_BF16;
    run.device[0].iface = het_cuda_device();
    support_buffer weights, state;
    continues(&run, &weights, &state, "continued with bf16 streams");
    support_buffer_end(&weights);
    support_buffer_end(&state);
    support_run_end(&run);
    stand_down();
}

static void infer_all(const support_run *run, std::vector<float> *logits)
{
    const int64_t vocab = run->desc.model.vocab, lengths[4] = { 7, 1, 1, 9 };
    const het_batch *batch = &run->data.block[0][0].batch;
    het_ctx *ctx = support_create(&run->desc);
    int64_t past = 0;
    for (int i = 0; i < 4 && past + lengths[i] <= batch->tokens; past += lengths[i++]) {
        std::vector<float> some(static_cast<size_t>(vocab));
        EXPECT_ERROR(het_infer(ctx, batch->token + past, lengths[i], past, some.data()), HET_OK, het_last_error(ctx), "");
        logits->insert(logits->end(), some.begin(), some.end());
    }
    het_destroy(ctx);
}

static void evaluates_and_infers(void **)
{
    std::vector<float> cpu, cuda;
    support_run run;
    support_group group;
    het_step_info a, b;
    stand_in(1);
    start(&run, HET_LLAMA, HET_F32, HET_REDUCE_EXACT);
    run.desc.inference = HET_YES;
    infer_all(&run, &cpu);
    support_group_start(&group, &run.data, 0, LAYOUT);
    het_ctx *one = support_create(&run.desc);
    run.device[0].iface = het_cuda_device();
    het_ctx *other = support_create(&run.desc);
    EXPECT_OK(het_evaluate(one, group.batch, group.count, &a));
    EXPECT_OK(het_evaluate(other, group.batch, group.count, &b));
    if (!(fabs(a.loss - b.loss) <= 1e-6 * a.loss)) fail_msg("evaluated loss %.9g, not %.9g", b.loss, a.loss);
    het_destroy(one);
    het_destroy(other);
    infer_all(&run, &cuda);
    if (!(difference(cpu, cuda, 0.0) <= 1e-5)) fail_msg("logits differ by %g", difference(cpu, cuda, 0.0));
    support_group_end(&group);
    support_run_end(&run);
    stand_down();
}

/* Factors beside a base of int8, with graphs and in bf16: the bits of floats that have its values. */
static void weights_of_int8(void **)
{
    for (int i = 0; i < 2; i++) {
        std::vector<std::vector<float>> base, weight[2];
        std::vector<double> loss[2];
        support_run run;
        stand_in(1);
        start_layers(&run, i ? HET_GPT2 : HET_LLAMA, i ? HET_BF16 : HET_F32, HET_REDUCE_EXACT, 1);
        run.device[0].iface = het_cuda_device();
        run.desc.model.lora_rank = 3;
        run.desc.guard.skip_bad_steps = HET_YES; /* asks for graphs */
        for (int wide = 0; wide < 2; wide++) {
            run.desc.weights = wide ? HET_F32 : HET_INT8;
            het_ctx *ctx = support_create(&run.desc);
            if (!wide) read_all(ctx, HET_WEIGHT, &base, nullptr);
            for (int64_t p = 0; p < het_parameter_count(ctx); p++)
                EXPECT_OK(het_parameter_write(ctx, p, HET_WEIGHT, base[static_cast<size_t>(p)].data()));
            for (int step = 0; step < 3; step++) loss[wide].push_back(support_step(ctx, &run.data, step, LAYOUT).loss);
            read_all(ctx, HET_WEIGHT, &weight[wide], nullptr);
            het_destroy(ctx);
        }
        assert_true(loss[0] == loss[1] && weight[0] == weight[1] && weight[0] != base);
        support_run_end(&run);
        stand_down();
    }
}

/* A state saved on the card continues there bit for bit, and is the same on the CPU. */
static void saves_and_loads(void **)
{
    support_run run;
    support_buffer weights, state;
    stand_in(1);
    start(&run, HET_GPT2, HET_F32, HET_REDUCE_EXACT);
    run.device[0].iface = het_cuda_device();
    continues(&run, &weights, &state, "continued on the card");
    run.device[0].iface = het_cpu_device();
    het_ctx *cpu = support_create(&run.desc);
    het_reader from_weights = support_reader(&weights), from_state = support_reader(&state);
    EXPECT_OK(het_load_weights(cpu, &from_weights));
    EXPECT_OK(het_load_state(cpu, &from_state));
    const het_step_info a = support_step(cpu, &run.data, 1, LAYOUT);
    assert_int_equal(a.step, 1);
    het_destroy(cpu);
    support_buffer_end(&weights);
    support_buffer_end(&state);
    support_run_end(&run);
    stand_down();
}

/* ---- the table by itself ---- */

typedef struct rig {
    const het_device_iface *d;
    void *self;
    het_queue *queue;
    het_event *event;
    support_memory memory;
    het_allocator allocator;
    het_parallel parallel;
} rig;

static void rig_start(rig *r, int32_t options, int32_t ordinal = 0, const het_allocator *allocator = NULL)
{
    het_device_config config;
    memset(r, 0, sizeof *r);
    memset(&config, 0, sizeof config);
    r->d = het_cuda_device_with(options);
    r->allocator = allocator != NULL ? *allocator : support_allocator(&r->memory);
    r->parallel = support_serial();
    config.allocator = &r->allocator;
    config.parallel = &r->parallel;
    config.threads = 1;
    config.ordinal = ordinal;
    EXPECT_OK(r->d->create(&config, &r->self));
    EXPECT_OK(r->d->queues->create(r->self, &r->queue));
    EXPECT_OK(r->d->queues->event_create(r->self, &r->event));
}

static void rig_wait(rig *r)
{
    EXPECT_OK(r->d->queues->event_record(r->self, r->queue, r->event));
    EXPECT_OK(r->d->queues->event_sync(r->self, r->event, 60.0));
}

static void rig_end(rig *r)
{
    r->d->queues->event_destroy(r->self, r->event);
    r->d->queues->destroy(r->self, r->queue);
    r->d->destroy(r->self);
    assert_int_equal(r->memory.live, 0);
    assert_int_equal(r->memory.wrong, 0);
}

template <class Args> static het_op op_of(het_op_kind kind, const Args &args)
{
    het_op op;
    memset(&op, 0, sizeof op);
    op.kind = kind;
    memcpy(&op.u, &args, sizeof args);
    return op;
}
template <class Args> static het_result rig_run(rig *r, het_queue *queue, het_op_kind kind, const Args &args)
{
    const het_op op = op_of(kind, args);
    return r->d->run(r->self, queue, &op);
}
template <class Args> static size_t rig_workspace(rig *r, het_op_kind kind, const Args &args)
{
    const het_op op = op_of(kind, args);
    return r->d->workspace(r->self, &op);
}
static het_result rig_copy(rig *r, het_queue *queue, het_op_kind kind, void *to, const void *from, size_t size)
{
    const het_copy_args args = { to, from, size, 1, 0, 0 };
    return rig_run(r, queue, kind, args);
}
/* Of four elements. */
static het_result rig_elements(rig *r, het_op_kind kind, float *y, const float *x, float factor)
{
    const het_elements_args args = { 4, y, x, factor, NULL };
    return rig_run(r, r->queue, kind, args);
}

/* Larger than the staging memory, of no round size, forth and back; calls without a queue come in the order of the first queue. */
static void copies_of_any_size(void **)
{
    const size_t size = (size_t(9) << 20) + 12345;
    std::vector<unsigned char> from(size), to(size), half(size);
    uint64_t seed = 3;
    rig r;
    stand_in(1);
    rig_start(&r, 0);
    for (unsigned char &c : from) c = static_cast<unsigned char>(support_random(&seed));
    char *device = static_cast<char *>(r.d->alloc(r.self, 2 * size));
    assert_non_null(device);
    EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_IN, device, from.data(), size));
    EXPECT_OK(rig_copy(&r, NULL, HET_OP_COPY, device + size, device, size));
    EXPECT_OK(rig_copy(&r, r.queue, HET_OP_CLEAR, device, NULL, size / 2));
    EXPECT_OK(rig_copy(&r, NULL, HET_OP_COPY_OUT, to.data(), device + size, size));
    EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_OUT, half.data(), device, size));
#ifdef HETC_EMULATED
    assert_true(standin_counted().ran == 0); /* nothing has waited */
#endif
    rig_wait(&r);
    assert_memory_equal(to.data(), from.data(), size);
    assert_memory_equal(half.data() + size / 2, from.data() + size / 2, size - size / 2);
    for (size_t i = 0; i < size / 2; i++) assert_int_equal(half[i], 0);
    const size_t row = 1001, step = 1500;
    const het_copy_args rows = { device + 7, device + size, row, 100, step, row }; /* apart and side by side */
    EXPECT_OK(rig_run(&r, r.queue, HET_OP_COPY, rows));
    EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_OUT, half.data(), device, size / 2));
    rig_wait(&r);
    for (size_t i = 0; i < size / 2; i++)
        assert_int_equal(half[i], i >= 7 && (i - 7) / step < 100 && (i - 7) % step < row ? from[(i - 7) / step * row + (i - 7) % step] : 0);
    r.d->free(r.self, device, 2 * size);
    rig_end(&r);
    stand_down();
}

/* Many pieces under way at once: more than there are places for. */
static void many_small_copies(void **)
{
    const int64_t count = 3000;
    std::vector<int64_t> from(static_cast<size_t>(count)), to(static_cast<size_t>(count));
    rig r;
    stand_in(1);
    rig_start(&r, 0);
    int64_t *device = static_cast<int64_t *>(r.d->alloc(r.self, static_cast<size_t>(count) * sizeof(int64_t)));
    for (int64_t i = 0; i < count; i++) {
        from[static_cast<size_t>(i)] = i * i;
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_IN, device + i, &from[static_cast<size_t>(i)], sizeof(int64_t)));
    }
    EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_OUT, to.data(), device, static_cast<size_t>(count) * sizeof(int64_t)));
    const float four[4] = { 1.0f, 2.0f, 3.0f, 4.0f };
    float twice[2][4];
    float *numbers = static_cast<float *>(r.d->alloc(r.self, 16)); /* a kernel behind the wait for a place, and between copies */
    EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_IN, numbers, four, 16));
    EXPECT_OK(rig_elements(&r, HET_OP_SCALE, numbers, numbers, 2.0f));
    EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_OUT, twice[0], numbers, 16));
    EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_IN, numbers, four, 16));
    EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_OUT, twice[1], numbers, 16));
    rig_wait(&r);
    assert_true(from == to);
    for (int i = 0; i < 4; i++) assert_true(twice[0][i] == 2.0f * four[i] && twice[1][i] == four[i]);
    r.d->free(r.self, numbers, 16);
    r.d->free(r.self, device, static_cast<size_t>(count) * sizeof(int64_t));
    rig_end(&r);
    stand_down();
}

/* ---- rows of the head ---- */

static int32_t few_rows(void *self, const het_op *op)
{
    return (op->kind != HET_OP_CROSS_ENTROPY || op->u.cross_entropy.rows <= 1) && het_cuda_device()->supports(self, op);
}

/* Three granules, two of which are longer than a granule may be: one forward product and one of dx for all, or for each where a device takes few
   rows; the same bits. A device takes as many rows as 1 GiB of logits. */
static void the_head_takes_many_rows(void **)
{
    static const int64_t vocabs[] = { 41, 32000, 50257, 151936 };
    het_device_iface few = *het_cuda_device();
    het_model_desc model = support_model(HET_GPT2);
    het_op op;
    support_run run;
    rig r;
    few.supports = few_rows;
    stand_in(1);
    model.layers = 1;
    support_run_start(&run, &model, 1, "40,40,40,40,40,40,40,40|40,40,40,40,40,40,40,40|40,40,40,40,40,40,40,40");
    run.desc.dtype = HET_BF16;
    run.desc.optimizer.epsilon = 1e-3f;
    support_run_ranks(&run, 1);
    run.device[0].iface = het_cuda_device();
    const trained many = train(&run, "012");
#ifdef HETC_EMULATED
    const int64_t products = standin_counted().products;
#endif
    run.device[0].iface = &few;
    expect_equal(many, train(&run, "012"));
#ifdef HETC_EMULATED
    assert_int_equal(standin_counted().products - products, products + 2 * 2 * 2); /* attempts, both ways, pieces more */
#endif
    support_run_end(&run);
    rig_start(&r, 0);
    for (const int64_t vocab : vocabs) {
        const int64_t pitch = (vocab + 127) / 128 * 128;
        memset(&op, 0, sizeof op);
        op.kind = HET_OP_CROSS_ENTROPY;
        op.bf16 = HET_BF16_X | HET_BF16_DX;
        op.u.cross_entropy.vocab = vocab;
        op.u.cross_entropy.rows = (INT64_C(1) << 30) / (2 * pitch) + 1;
        assert_false(r.d->supports(r.self, &op));
        op.u.cross_entropy.rows = (INT64_C(1) << 30) / (2 * pitch) * 19 / 20;
        if (vocab > 128) assert_true(r.d->supports(r.self, &op));
    }
    rig_end(&r);
    stand_down();
}

/* One queue runs behind another's event. */
static void queues_wait_for_events(void **)
{
    int32_t value = 7, got = 0;
    het_queue *other = NULL;
    rig r;
    stand_in(1);
    rig_start(&r, 0);
    EXPECT_OK(r.d->queues->create(r.self, &other));
    assert_true(other != r.queue);
    void *device = r.d->alloc(r.self, sizeof value);
    EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_IN, device, &value, sizeof value));
    EXPECT_OK(r.d->queues->event_record(r.self, r.queue, r.event));
    EXPECT_OK(r.d->queues->event_wait(r.self, other, r.event));
    EXPECT_OK(rig_copy(&r, other, HET_OP_COPY_OUT, &got, device, sizeof got));
    EXPECT_OK(r.d->queues->event_record(r.self, other, r.event));
    EXPECT_OK(r.d->queues->event_sync(r.self, r.event, 60.0));
    assert_int_equal(got, 7);
    r.d->queues->destroy(r.self, other);
    r.d->free(r.self, device, sizeof value);
    rig_end(&r);
    stand_down();
}

/* Those of HET_CUDA_FIRST, before those of others. (A card without priorities has one for both.) */
static void queues_that_go_first(void **)
{
    int priority[2], least, greatest;
    stand_in(1);
    for (int i = 0; i < 2; i++) {
        het_device device;
        rig r;
        rig_start(&r, i ? HET_CUDA_FIRST : 0);
        memset(&device, 0, sizeof device);
        device.iface = r.d;
        device.self = r.self;
        assert_int_equal(cudaStreamGetPriority(static_cast<cudaStream_t>(het_cuda_stream(&device, r.queue)), &priority[i]), cudaSuccess);
        rig_end(&r);
    }
    assert_int_equal(cudaDeviceGetStreamPriorityRange(&least, &greatest), cudaSuccess);
    assert_int_equal(priority[0], least);
    assert_int_equal(priority[1], (least + greatest) / 2);
    stand_down();
}

/* A function of the driver. */
template <class Call> static Call *driver(Call *, const char *name)
{
    void *entry = nullptr;
    assert_int_equal(cudaGetDriverEntryPointByVersion(name, &entry, 12050, cudaEnableDefault), cudaSuccess);
    return reinterpret_cast<Call *>(entry);
}
#define DRIVER(call) driver(static_cast<decltype(&call)>(nullptr), #call)

/* Multiprocessors that a queue's kernels run on, 0: all; *each, their groups. */
static int multiprocessors(const rig *r, int *each)
{
    het_device device;
    CUdevResource resource, group, rest;
    CUgreenCtx part = nullptr;
    unsigned groups = 1;
    memset(&device, 0, sizeof device);
    device.iface = r->d;
    device.self = r->self;
    assert_int_equal(DRIVER(cuDeviceGetDevResource)(0, &resource, CU_DEV_RESOURCE_TYPE_SM), 0);
    assert_int_equal(DRIVER(cuDevSmResourceSplitByCount)(&group, &groups, &resource, &rest, 0, 1), 0);
    *each = static_cast<int>(group.sm.smCount);
    assert_int_equal(DRIVER(cuStreamGetGreenCtx)(static_cast<CUstream>(het_cuda_stream(&device, r->queue)), &part), 0);
    if (part == nullptr) return 0;
    assert_int_equal(DRIVER(cuGreenCtxGetDevResource)(part, &resource, CU_DEV_RESOURCE_TYPE_SM), 0);
    return static_cast<int>(resource.sm.smCount);
}

/* Kernels stay in their part, the one that goes to the end has what is left over, and the bits are those of the whole card, with one rank and with
   a rank in each of two parts. */
static void parts_of_a_card(void **)
{
    het_error error;
    het_ctx *ctx = NULL;
    support_run run;
    int each, all = 0;
    rig r;
    stand_in(1);
    assert_int_equal(cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
    rig_start(&r, 0);
    assert_int_equal(multiprocessors(&r, &each), 0);
    rig_end(&r);
    rig_start(&r, HET_CUDA_FIRST, HET_PART(0, each, 3 * each - 1));
    assert_int_equal(multiprocessors(&r, &each), 2 * each);
    rig_end(&r);
    rig_start(&r, 0, HET_PART(0, each, all - 1));
    assert_int_equal(multiprocessors(&r, &each), all - each);
    rig_end(&r);

    start(&run, HET_GPT2, HET_F32, HET_REDUCE_EXACT);
    run.device[0].iface = het_cuda_device();
    const trained whole = train(&run, LAYOUT);
    run.device[0].ordinal = HET_PART(0, 0, each - 1);
    expect_equal(whole, train(&run, LAYOUT));
    for (const int part : { HET_PART(0, 1, 1), HET_PART(0, each, each - 1), HET_PART(0, 0, all) }) { /* within a group, none, beyond the last */
        run.device[0].ordinal = part;
        EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "cuda:0:|multiprocessors|whole groups");
    }
    support_run_ranks(&run, 2);
    for (int i = 0; i < 2; i++) {
        run.device[i].iface = het_cuda_device();
        run.device[i].ordinal = HET_PART(0, i * each, (i + 1) * each - 1);
    }
    support_run_plan(&run, "pp", NULL, 1);
    expect_equal(whole, train(&run, LAYOUT));
    support_run_end(&run);
    stand_down();
}

/* What is captured runs when it is launched, with the arguments it was given: as often as it is launched, and not before. */
static void graphs_of_a_queue(void **)
{
    const float x[4] = { 1, 2, 3, 4 };
    float y[4];
    het_graph *graph = NULL, *none = NULL;
    rig r;
    stand_in(1);
    rig_start(&r, 0);
    float *device = static_cast<float *>(r.d->alloc(r.self, 2 * sizeof x));
    EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_IN, device, x, sizeof x));
    EXPECT_OK(rig_copy(&r, r.queue, HET_OP_CLEAR, device + 4, NULL, sizeof x));
    EXPECT_OK(rig_elements(&r, HET_OP_ADD, device + 4, device, 0)); /* y = x; the kernel has run once */
    EXPECT_OK(rig_elements(&r, HET_OP_SCALE, device, NULL, 1.0f));
    EXPECT_OK(r.d->graphs->capture_begin(r.self, r.queue));
    EXPECT_OK(rig_elements(&r, HET_OP_ADD, device + 4, device, 0));
    EXPECT_OK(rig_elements(&r, HET_OP_SCALE, device, NULL, 2.0f));
    EXPECT_OK(r.d->graphs->capture_end(r.self, r.queue, &graph));
    EXPECT_OK(r.d->graphs->capture_begin(r.self, r.queue));
    EXPECT_OK(rig_elements(&r, HET_OP_SCALE, device, NULL, 100.0f));
    EXPECT_OK(r.d->graphs->capture_end(r.self, r.queue, NULL)); /* forgotten */
    EXPECT_OK(r.d->graphs->capture_begin(r.self, r.queue));
    EXPECT_OK(r.d->graphs->capture_end(r.self, r.queue, &none)); /* nothing in it */
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(r.d->graphs->launch(r.self, r.queue, graph));
        EXPECT_OK(r.d->graphs->launch(r.self, r.queue, none));
    }
    EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_OUT, y, device + 4, sizeof y));
    r.d->graphs->destroy(r.self, r.queue, graph); /* waits */
    r.d->graphs->destroy(r.self, r.queue, none);
    rig_wait(&r);
    for (int i = 0; i < 4; i++) assert_true(y[i] == x[i] * (1 + 1 + 2 + 4));
    r.d->free(r.self, device, 2 * sizeof x);
    rig_end(&r);
    stand_down();
}

#ifdef HETC_EMULATED
/* Copies with the host do not belong into a graph, which the device says, nor do memory and events: the stand-in says so. The capture ends all the
   same. */
static void what_a_graph_cannot_hold(void **)
{
    const float x[4] = { 1, 2, 3, 4 };
    for (int form = 0; form < 3; form++) {
        het_graph *graph = NULL;
        rig r;
        stand_in(1);
        rig_start(&r, 0);
        void *device = r.d->alloc(r.self, sizeof x);
        EXPECT_OK(r.d->graphs->capture_begin(r.self, r.queue));
        if (form == 0) assert_int_equal(rig_copy(&r, r.queue, HET_OP_COPY_IN, device, x, sizeof x), HET_ERR_DEVICE);
        if (form == 1) assert_null(r.d->alloc(r.self, 16));
        if (form == 2) assert_int_equal(r.d->queues->event_record(r.self, r.queue, r.event), HET_ERR_DEVICE);
        assert_non_null(strstr(r.d->last_error(r.self), "cudaErrorStreamCaptureUnsupported"));
        EXPECT_OK(r.d->graphs->capture_end(r.self, r.queue, NULL));
        assert_null(graph);
        r.d->free(r.self, device, sizeof x);
        rig_end(&r);
        assert_int_equal(standin_counted().misuse, form > 0);
        assert_int_equal(standin_counted().live, 0);
    }
}
#endif

/* y = GELU(x W^T + b) and dx = (dy W) GELU'(a), both ways of each kind of number, against doubles. The linear ops and activations beside them. */
static double gelu_of(double x) { return 0.5 * x * (1.0 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x))); }
static void expect_near(const char *what, double got, double wanted, double limit)
{
    if (!(fabs(got - wanted) <= limit * (1.0 + fabs(wanted)))) fail_msg("%s: %.9g, not %.9g", what, got, wanted);
}

static void gelu_by_itself(void **)
{
    enum { ROWS = 13, IN = 12, OUT = 16 };
    for (int form = 0; form < 6; form++) {
        const het_dtype dtype = form % 3 == 1 ? HET_BF16 : HET_F32;
        const int32_t options = form % 3 == 2 ? HET_CUDA_TF32 : 0;
        const double limit = form % 3 == 1 ? 2e-2 : form % 3 == 2 ? 3e-3 : 1e-5;
        std::vector<float> host(ROWS * IN + OUT * IN + OUT + ROWS * OUT), a(ROWS * OUT), y(ROWS * OUT), dx(ROWS * OUT);
        const float *x = host.data(), *w = x + ROWS * IN, *b = w + OUT * IN;
        uint64_t seed = 5;
        het_linear_args l;
        het_activation_args f;
        rig r;
        stand_in(1);
        rig_start(&r, options);
#ifdef HETC_EMULATED
        standin_refuse(form >= 3);
#endif
        for (float &v : host) v = static_cast<float>(2.0 * support_uniform(&seed));
        float *device = static_cast<float *>(r.d->alloc(r.self, host.size() * 4));
        float *out = static_cast<float *>(r.d->alloc(r.self, 3 * ROWS * OUT * 4)); /* a, y, dx */
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_IN, device, host.data(), host.size() * 4));
        memset(&l, 0, sizeof l);
        memset(&f, 0, sizeof f);
        l.compute = dtype, l.rows = ROWS, l.in = IN, l.parts = 1;
        l.x = device;
        l.part[0].out = OUT, l.part[0].w = device + ROWS * IN, l.part[0].bias = device + ROWS * IN + OUT * IN, l.part[0].y = out;
        f.kind = HET_GELU_TANH, f.count = ROWS * OUT;
        f.a = out, f.y = out + ROWS * OUT;
        const size_t bytes = rig_workspace(&r, HET_OP_LINEAR_ACTIVATION_FORWARD, het_linear_activation_args{ l, f });
        l.workspace = r.d->alloc(r.self, bytes);
        EXPECT_OK(rig_run(&r, r.queue, HET_OP_LINEAR_ACTIVATION_FORWARD, het_linear_activation_args{ l, f }));
        rig_wait(&r);
        r.d->free(r.self, l.workspace, bytes);
        /* backward: x [ROWS][IN] is dy of a layer from OUT to IN whose matrix is the memory of W taken as [IN][OUT] */
        l.part[0].out = IN, l.in = OUT, l.part[0].dy = device, l.dx = out + 2 * ROWS * OUT;
        f.dy = f.da = l.dx;
        const size_t more = rig_workspace(&r, HET_OP_LINEAR_ACTIVATION_BACKWARD, het_linear_activation_args{ l, f });
        l.workspace = r.d->alloc(r.self, more);
        EXPECT_OK(rig_run(&r, r.queue, HET_OP_LINEAR_ACTIVATION_BACKWARD, het_linear_activation_args{ l, f }));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_OUT, a.data(), out, a.size() * 4));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_OUT, y.data(), out + ROWS * OUT, y.size() * 4));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_OUT, dx.data(), out + 2 * ROWS * OUT, dx.size() * 4));
        rig_wait(&r);
#ifdef HETC_EMULATED
        assert_int_equal(standin_counted().fused, form == 1 || form == 2 ? 2 : 0);
#endif
        for (size_t i = 0; i < ROWS; i++)
            for (size_t j = 0; j < OUT; j++) {
                double sum = static_cast<double>(b[j]), back = 0.0;
                const double at = static_cast<double>(a[i * OUT + j]), h = 1e-5;
                for (size_t k = 0; k < IN; k++) {
                    sum += static_cast<double>(x[i * IN + k]) * static_cast<double>(w[j * IN + k]);
                    back += static_cast<double>(x[i * IN + k]) * static_cast<double>(w[k * OUT + j]);
                }
                expect_near("what GELU is taken of", at, sum, limit);
                expect_near("GELU", static_cast<double>(y[i * OUT + j]), gelu_of(at), 1e-5);
                expect_near("GELU's gradient", static_cast<double>(dx[i * OUT + j]), back * (gelu_of(at + h) - gelu_of(at - h)) / (2 * h), limit);
            }
        r.d->free(r.self, l.workspace, more);
        r.d->free(r.self, device, host.size() * 4);
        r.d->free(r.self, out, 3 * ROWS * OUT * 4);
        rig_end(&r);
        stand_down();
    }
}

/* Three parts of no round size, with exactly the workspace the device asks for, which ends where nobody may write. Products of small integers are
   exact in every dtype. */
static void products_stay_in_their_workspace(void **)
{
    const int64_t rows = 13, in = 10, out[3] = { 7, 9, 24 };
    for (int dtype = HET_F32; dtype <= HET_BF16; dtype++) {
        const het_op_kind ops[3] = { HET_OP_LINEAR_FORWARD, HET_OP_LINEAR_BACKWARD_INPUT, HET_OP_LINEAR_BACKWARD_WEIGHT };
        const int64_t granule_start[3] = { 0, 5, 13 };
        const double grid = 1.5 * 4503599627370496.0 * 1e-6; /* a step far below 1: what is added keeps its value to 1e-6 */
        std::vector<float> host(static_cast<size_t>(rows * in));
        het_view view;
        het_linear_args a;
        het_gradient dw;
        rig r;
        stand_in(1);
        rig_start(&r, 0);
        memset(&view, 0, sizeof view);
        memset(&a, 0, sizeof a);
        memset(&dw, 0, sizeof dw);
        view.tokens = view.row_end = rows;
        view.granules = view.granule_end = 2;
        view.host_granule_start = granule_start;
        a.view = &view;
        a.compute = static_cast<het_dtype>(dtype);
        a.rows = rows;
        a.in = in;
        a.parts = 3;
        for (size_t i = 0; i < host.size(); i++) host[i] = static_cast<float>(i % 5);
        float *x = static_cast<float *>(r.d->alloc(r.self, host.size() * 4)), *y = static_cast<float *>(r.d->alloc(r.self, 4 * 13 * 40));
        double *sum = static_cast<double *>(r.d->alloc(r.self, 8 * 10 * 24)), *step = static_cast<double *>(r.d->alloc(r.self, 8));
        uint32_t *maximum = static_cast<uint32_t *>(r.d->alloc(r.self, 4));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_IN, x, host.data(), host.size() * 4));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_IN, step, &grid, 8));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_CLEAR, sum, NULL, 8 * 10 * 24));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_CLEAR, maximum, NULL, 4));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_CLEAR, y, NULL, 4 * 13 * 40));
        dw.sum = sum;
        dw.exact = dw.beta = 1;
        dw.grid = step;
        dw.maximum = maximum;
        a.x = x;
        a.dx = y;
        for (int p = 0; p < 3; p++) {
            a.part[p].out = out[p];
            a.part[p].w = x;
            a.part[p].dy = y;
            a.part[p].y = y + (p == 0 ? 0 : p == 1 ? rows * 7 : rows * 16);
            a.part[p].dw = &dw;
        }
        float *w = static_cast<float *>(r.d->alloc(r.self, 4 * 24 * 10));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_CLEAR, w, NULL, 4 * 24 * 10));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_IN, w, host.data(), host.size() * 4));
        a.part[2].w = w;
        for (int i = 0; i < 3; i++) {
            const size_t bytes = rig_workspace(&r, ops[i], a);
            a.workspace = r.d->alloc(r.self, bytes);
            if (i == 1) a.dx = w;
            EXPECT_OK(rig_run(&r, r.queue, ops[i], a));
            if (i == 0) {
                std::vector<float> got(static_cast<size_t>(rows * 7));
                EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_OUT, got.data(), y, got.size() * 4));
                rig_wait(&r);
                for (int64_t row = 0; row < rows; row++)
                    for (int64_t o = 0; o < 7; o++) {
                        float expected = 0.0f;
                        for (int64_t k = 0; k < in; k++) expected += host[static_cast<size_t>(row * in + k)] * host[static_cast<size_t>(o * in + k)];
                        assert_true(fabsf(expected - got[static_cast<size_t>(row * 7 + o)]) == 0.0f);
                    }
            }
            rig_wait(&r);
            r.d->free(r.self, a.workspace, bytes);
        }
        r.d->free(r.self, x, 0);
        r.d->free(r.self, y, 0);
        r.d->free(r.self, w, 0);
        r.d->free(r.self, sum, 0);
        r.d->free(r.self, step, 0);
        r.d->free(r.self, maximum, 0);
        rig_end(&r);
        stand_down();
    }
}

static std::vector<uint16_t> small_halves(size_t count, uint32_t step);

/* Two matrices and biases that are there in bf16, one behind the other or not: one product or two, the same numbers. */
static void matrices_apart_are_products_apart(void **)
{
    enum { ROWS = 8, IN = 16, OUT = 24, MATRIX = OUT * IN, HALVES = 2 * MATRIX + 2 * OUT + ROWS * IN };
    static const struct { int w[2], bias[2], products; } tries[] = { /* which one of the halves; -1: only floats */
        { { -1, -1 }, { -1, -1 }, 1 }, { { 0, 1 }, { 0, 1 }, 1 }, { { 0, 1 }, { -1, -1 }, 1 }, { { 1, 0 }, { 0, 1 }, 2 },
        { { 0, 1 }, { 1, 0 }, 2 }, { { 0, -1 }, { 0, 1 }, 2 }, { { 0, 1 }, { -1, 1 }, 2 }
    };
    for (const auto &t : tries) {
        het_linear_args a;
        rig r;
        stand_in(1);
        rig_start(&r, 0);
        const std::vector<uint16_t> halves = small_halves(HALVES, 5);
        std::vector<float> floats(HALVES);
        for (size_t i = 0; i < HALVES; i++) {
            const uint32_t bits = static_cast<uint32_t>(halves[i]) << 16;
            memcpy(&floats[i], &bits, 4);
        }
        uint16_t *half = static_cast<uint16_t *>(r.d->alloc(r.self, 2 * HALVES)), *y = static_cast<uint16_t *>(r.d->alloc(r.self, 2 * ROWS * 2 * OUT));
        float *whole = static_cast<float *>(r.d->alloc(r.self, 4 * HALVES));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_IN, half, halves.data(), 2 * HALVES));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_IN, whole, floats.data(), 4 * HALVES));
        memset(&a, 0, sizeof a);
        a.compute = HET_BF16;
        a.rows = ROWS, a.in = IN, a.parts = 2;
        a.x = reinterpret_cast<const float *>(half + 2 * MATRIX + 2 * OUT);
        for (int p = 0; p < 2; p++) {
            const int w = t.w[p] < 0 ? p : t.w[p], bias = t.bias[p] < 0 ? p : t.bias[p];
            a.part[p].out = OUT, a.part[p].pitch = 2 * OUT;
            a.part[p].w = whole + w * MATRIX, a.part[p].w_bf16 = t.w[p] < 0 ? NULL : half + w * MATRIX;
            a.part[p].bias = whole + 2 * MATRIX + bias * OUT, a.part[p].bias_bf16 = t.bias[p] < 0 ? NULL : half + 2 * MATRIX + bias * OUT;
            a.part[p].y = reinterpret_cast<float *>(y + p * OUT);
        }
        het_op op;
        memset(&op, 0, sizeof op);
        op.kind = HET_OP_LINEAR_FORWARD;
        op.bf16 = HET_BF16_X | HET_BF16_Y;
        op.u.linear = a;
        const size_t bytes = r.d->workspace(r.self, &op);
        op.u.linear.workspace = r.d->alloc(r.self, bytes);
        EXPECT_OK(r.d->run(r.self, r.queue, &op));
        std::vector<uint16_t> got(ROWS * 2 * OUT);
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_OUT, got.data(), y, got.size() * 2));
        rig_wait(&r);
#ifdef HETC_EMULATED
        assert_int_equal(standin_counted().products, t.products);
#endif
        for (int row = 0; row < ROWS; row++)
            for (int o = 0; o < 2 * OUT; o++) {
                const int p = o / OUT, w = t.w[p] < 0 ? p : t.w[p], bias = t.bias[p] < 0 ? p : t.bias[p];
                float wanted = floats[static_cast<size_t>(2 * MATRIX + bias * OUT + o % OUT)];
                for (int k = 0; k < IN; k++)
                    wanted += floats[static_cast<size_t>(2 * MATRIX + 2 * OUT + row * IN + k)] * floats[static_cast<size_t>(w * MATRIX + o % OUT * IN + k)];
                const uint32_t bits = static_cast<uint32_t>(got[static_cast<size_t>(row * 2 * OUT + o)]) << 16;
                float one;
                memcpy(&one, &bits, 4);
                assert_true(fabsf(one - wanted) == 0.0f);
            }
        r.d->free(r.self, op.u.linear.workspace, bytes);
        r.d->free(r.self, half, 0);
        r.d->free(r.self, y, 0);
        r.d->free(r.self, whole, 0);
        rig_end(&r);
        stand_down();
    }
}

/* Small integers and what is made of them are exact in bf16. */
static std::vector<uint16_t> small_halves(size_t count, uint32_t step)
{
    std::vector<uint16_t> x(count);
    for (size_t i = 0; i < count; i++) {
        const float value = static_cast<float>(static_cast<int>((i * step + i / 7) % 3) - 1);
        uint32_t bits;
        memcpy(&bits, &value, 4);
        x[i] = static_cast<uint16_t>(bits >> 16);
    }
    return x;
}
static float half_value(uint16_t half)
{
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* Rows of y and dy in bf16 that have room for whole chunks of 8 columns, as logits have: products take these. What lies between rows, and behind the
   matrix and its rows of 0, is NaN. The matrix is there in bf16, or rounded in the op, which also fills up short rows. */
static void rows_with_room_for_chunks(void **)
{
    enum { ROWS = 8, OUT = 41, WHOLE = 48, PITCH = 56 };
    static const struct { int64_t in; int has_bf16, has_bias; } tries[] = { { 16, 1, 0 }, { 16, 0, 0 }, { 10, 0, 0 }, { 10, 1, 1 }, { 16, 1, 1 } };
    for (const auto &t : tries) {
        const size_t in = static_cast<size_t>(t.in), matrix = OUT * in, zeros = (WHOLE - OUT) * in, x_size = ROWS * in;
        const std::vector<uint16_t> w = small_halves(matrix, 5), x = small_halves(x_size, 7), dy = small_halves(ROWS * OUT, 3);
        std::vector<uint16_t> in_bf16(w), rows(ROWS * PITCH, 0x7fc0), got(ROWS * PITCH);
        std::vector<float> in_floats(matrix + 8, 1.0f), dx(x_size);
        het_linear_args a;
        rig r;
        stand_in(1);
        rig_start(&r, 0);
        in_bf16.insert(in_bf16.end(), zeros, 0);
        in_bf16.insert(in_bf16.end(), 64, 0x7fc0);
        for (size_t i = 0; i < matrix; i++) in_floats[i] = half_value(w[i]);
        for (size_t i = 0; i < ROWS * WHOLE; i++) rows[i / WHOLE * PITCH + i % WHOLE] = i % WHOLE < OUT ? dy[i / WHOLE * OUT + i % WHOLE] : 0;
        uint16_t *half = static_cast<uint16_t *>(r.d->alloc(r.self, in_bf16.size() * 2));
        uint16_t *y = static_cast<uint16_t *>(r.d->alloc(r.self, got.size() * 2)), *x_half = static_cast<uint16_t *>(r.d->alloc(r.self, x_size * 2));
        float *whole = static_cast<float *>(r.d->alloc(r.self, in_floats.size() * 4)), *to = static_cast<float *>(r.d->alloc(r.self, x_size * 4));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_IN, half, in_bf16.data(), in_bf16.size() * 2));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_IN, whole, in_floats.data(), in_floats.size() * 4));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_IN, x_half, x.data(), x_size * 2));
        memset(&a, 0, sizeof a);
        a.compute = HET_BF16;
        a.rows = ROWS, a.in = t.in, a.parts = 1;
        a.x = reinterpret_cast<const float *>(x_half);
        a.dx = to;
        a.part[0].out = OUT, a.part[0].pitch = PITCH;
        a.part[0].w = whole, a.part[0].w_bf16 = t.has_bf16 ? half : NULL;
        a.part[0].bias = t.has_bias ? whole + 1 : NULL;
        a.part[0].y = reinterpret_cast<float *>(y), a.part[0].dy = a.part[0].y;
        for (int back = 0; back < 2; back++) {
            het_op op = op_of(back ? HET_OP_LINEAR_BACKWARD_INPUT : HET_OP_LINEAR_FORWARD, a);
            op.bf16 = t.in % 8 == 0 || back ? HET_BF16_X | HET_BF16_Y | HET_BF16_DY : HET_BF16_Y;
            if (!back && t.in % 8 != 0) op.u.linear.x = whole; /* of floats, rounded into rows of 16 */
            const size_t bytes = r.d->workspace(r.self, &op);
            op.u.linear.workspace = r.d->alloc(r.self, bytes);
            EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_IN, y, rows.data(), rows.size() * 2));
            EXPECT_OK(r.d->run(r.self, r.queue, &op));
            if (back) EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_OUT, dx.data(), to, x_size * 4));
            else EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_OUT, got.data(), y, got.size() * 2));
            rig_wait(&r);
            r.d->free(r.self, op.u.linear.workspace, bytes);
        }
#ifdef HETC_EMULATED
        assert_int_equal(standin_counted().ragged, t.in % 8 == 0 ? 0 : 2); /* of x, of dx: not of y, not of dy */
#endif
        for (size_t i = 0; i < ROWS * PITCH; i++) {
            const size_t row = i / PITCH, column = i % PITCH;
            float wanted = t.has_bias ? in_floats[1 + column % OUT] : 0.0f;
            for (size_t k = 0; k < in && column < OUT; k++)
                wanted += half_value(w[column * in + k]) * (in % 8 == 0 ? half_value(x[row * in + k]) : in_floats[row * in + k]);
            if (column < OUT) expect_near("y", static_cast<double>(half_value(got[i])), static_cast<double>(wanted), 0.0);
            else if (column >= WHOLE) assert_int_equal(got[i], 0x7fc0);
        }
        for (size_t i = 0; i < x_size; i++) {
            float wanted = 0.0f;
            for (size_t o = 0; o < OUT; o++)
                wanted += half_value(dy[i / in * OUT + o]) * in_floats[o * in + i % in];
            expect_near("dx", static_cast<double>(dx[i]), static_cast<double>(wanted), 0.0);
        }
        r.d->free(r.self, half, 0);
        r.d->free(r.self, y, 0);
        r.d->free(r.self, x_half, 0);
        r.d->free(r.self, whole, 0);
        r.d->free(r.self, to, 0);
        rig_end(&r);
        stand_down();
    }
}

/* Gradients of matrices and biases from bf16 x and dy, added to what is there. Parts of dy lie apart; side by side, which makes one product of fast
   sums; or so but with their sums the other way round. */
static void biases_and_matrices(void **)
{
    enum { ROWS = 19, IN = 16, OUT = 24, PARTS = 2 };
    for (int number = 0; number < 6; number++) {
        const int exact = number % 2, side = number >= 2, turned = number >= 4;
        const int64_t granule_start[3] = { 0, 5, ROWS };
        const double grid = 1.5 * 4503599627370496.0 * 1e-6;
        const std::vector<uint16_t> x = small_halves(ROWS * IN, 5), dy = small_halves(PARTS * ROWS * OUT, 3);
        const size_t element = exact ? 8 : 4, sums = PARTS * (OUT * IN + OUT);
        std::vector<float> got(sums);
        std::vector<double> got_exact(sums);
        het_gradient dw[PARTS], dbias[PARTS];
        het_view view;
        het_linear_args a;
        rig r;
        stand_in(1);
        rig_start(&r, 0);
        char *device = static_cast<char *>(r.d->alloc(r.self, 1 << 14)), *sum = static_cast<char *>(r.d->alloc(r.self, sums * element));
        memset(&view, 0, sizeof view);
        memset(&a, 0, sizeof a);
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_IN, device, x.data(), x.size() * 2));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_IN, device + 1024, dy.data(), dy.size() * 2));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_IN, device + 8192, &grid, 8));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_IN, device + 8256, granule_start, sizeof granule_start));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_CLEAR, device + 8320, NULL, 4));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_CLEAR, sum, NULL, sums * element));
        view.tokens = view.row_end = a.rows = ROWS;
        view.granules = view.granule_end = 2;
        view.host_granule_start = granule_start;
        view.granule_start = reinterpret_cast<const int64_t *>(device + 8256);
        a.view = &view;
        a.compute = HET_BF16;
        a.in = IN, a.parts = PARTS;
        a.x = reinterpret_cast<const float *>(device);
        for (int p = 0; p < PARTS; p++) {
            memset(&dw[p], 0, sizeof dw[p]);
            dw[p].sum = sum + static_cast<size_t>((turned ? PARTS - 1 - p : p) * OUT * IN) * element;
            dw[p].exact = exact, dw[p].beta = 1;
            dw[p].grid = reinterpret_cast<const double *>(device + 8192);
            dw[p].maximum = reinterpret_cast<uint32_t *>(device + 8320);
            dbias[p] = dw[p];
            dbias[p].sum = sum + static_cast<size_t>(PARTS * OUT * IN + p * OUT) * element;
            a.part[p].out = OUT;
            a.part[p].dy = reinterpret_cast<const float *>(device + 1024 + p * (side ? 1 : ROWS) * OUT * 2);
            a.part[p].pitch = side ? PARTS * OUT : 0;
            a.part[p].dw = &dw[p], a.part[p].dbias = &dbias[p];
        }
        het_op op = op_of(HET_OP_LINEAR_BACKWARD_WEIGHT, a);
        op.bf16 = HET_BF16_X | HET_BF16_DY;
        const size_t bytes = r.d->workspace(r.self, &op);
        op.u.linear.workspace = r.d->alloc(r.self, bytes);
        for (int i = 0; i < 2; i++) EXPECT_OK(r.d->run(r.self, r.queue, &op));
        EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_OUT, exact ? static_cast<void *>(got_exact.data()) : got.data(), sum, sums * element));
        rig_wait(&r);
#ifdef HETC_EMULATED
        assert_int_equal(standin_counted().products, 2 * (side && !turned && !exact ? 1 : PARTS * (exact ? 2 : 1)));
#endif
        for (size_t i = 0; i < sums; i++) {
            const size_t matrix = PARTS * OUT * IN, at = i < matrix ? i / (OUT * IN) : (i - matrix) / OUT;
            const size_t part = turned && i < matrix ? PARTS - 1 - at : at;
            const size_t o = i < matrix ? i / IN % OUT : (i - matrix) % OUT;
            float wanted = 0.0f;
            for (size_t row = 0; row < ROWS; row++)
                wanted += half_value(dy[(side ? row * PARTS + part : part * ROWS + row) * OUT + o])
                        * (i < matrix ? half_value(x[row * IN + i % IN]) : 1.0f);
            expect_near("a gradient", exact ? got_exact[i] : static_cast<double>(got[i]), static_cast<double>(2 * wanted), exact ? 1e-5 : 0.0);
        }
        r.d->free(r.self, op.u.linear.workspace, bytes);
        r.d->free(r.self, device, 1 << 14);
        r.d->free(r.self, sum, sums * element);
        rig_end(&r);
        stand_down();
    }
}

/* A thousand shapes: the table of products is emptied on the way, and nothing of it is lost. */
static void more_shapes_than_places(void **)
{
    rig r;
    stand_in(1);
    rig_start(&r, 0);
#ifdef HETC_EMULATED
    standin_skip(1);
#endif
    for (int64_t i = 1; i <= 1000; i++) {
        het_linear_args a;
        memset(&a, 0, sizeof a);
        a.compute = HET_F32;
        a.rows = i;
        a.in = 4;
        a.parts = 1;
        a.part[0].out = 4;
        const size_t floats = static_cast<size_t>(8 * i + 16), work = rig_workspace(&r, HET_OP_LINEAR_FORWARD, a);
        float *device = static_cast<float *>(r.d->alloc(r.self, floats * 4));
        a.workspace = r.d->alloc(r.self, work);
        a.x = device;
        a.part[0].w = device + 4 * i;
        a.part[0].y = device + 4 * i + 16;
        EXPECT_OK(rig_run(&r, r.queue, HET_OP_LINEAR_FORWARD, a));
        rig_wait(&r);
        r.d->free(r.self, device, floats * 4);
        r.d->free(r.self, a.workspace, work);
    }
#ifdef HETC_EMULATED
    assert_true(standin_counted().live < 4 * 1000);
#endif
    rig_end(&r);
    stand_down();
}

#ifdef HETC_EMULATED
/* ---- failures ---- */

static void tiny(support_run *run, int64_t ranks)
{
    het_model_desc model;
    het_error error;
    memset(&model, 0, sizeof model);
    model.family = HET_GPT2;
    model.layers = 1, model.width = 8, model.heads = 2, model.vocab = 11, model.context = 8;
    support_expect(het_model_complete(&model, &error), HET_OK, error.text, "", "het_model_complete", __LINE__);
    support_run_start(run, &model, 1, "4,3");
    support_run_ranks(run, ranks);
    for (int64_t r = 0; r < ranks; r++) run->device[r].iface = het_cuda_device();
    run->desc.limits.max_micro_batches = 2;
    run->desc.layout.deadline = run->desc.layout.stall_deadline = 20.0;
}

/* Creates, makes two steps, so that the second repeats the first as graphs, and reads a parameter; the first error. */
static het_result try_all(const support_run *run, const char *layout, char *text, size_t capacity)
{
    std::vector<float> values(4096);
    support_group group;
    het_error error;
    het_ctx *ctx = NULL;
    het_result result = het_create(&run->desc, &ctx, &error);
    snprintf(text, capacity, "%s", error.text);
    if (result != HET_OK) return result;
    support_group_start(&group, &run->data, 0, layout);
    result = het_step(ctx, group.batch, group.count, NULL);
    if (result == HET_OK) result = het_step(ctx, group.batch, group.count, NULL);
    if (result == HET_OK) result = het_parameter_read(ctx, 0, HET_WEIGHT, values.data());
    snprintf(text, capacity, "%s", het_last_error(ctx));
    support_group_end(&group);
    het_destroy(ctx);
    return result;
}

/* Calls whose error nobody can be told: they give something back, or stand in front of one that does. */
static int may_be_lost(const char *call)
{
    static const char *const quiet[] = { "cudaFree", "cudaFreeHost", "cudaStreamDestroy", "cudaEventDestroy", "cudaStreamQuery", "cudaSetDevice",
                                         "cudaGraphExecDestroy",
                                         "cublasLtDestroy", "cuGreenCtxDestroy", "cublasLtMatmulDescDestroy", "cublasLtMatrixLayoutDestroy",
                                         "cublasLtMatmulPreferenceDestroy" };
    for (const char *name : quiet)
        if (strcmp(call, name) == 0) return 1;
    return 0;
}

/* Every call fails in turn: an error that names the call, its code, file and line, everything given back, no hang, no crash. */
static void fail_each(int64_t ranks, const char *plan, int64_t step, int64_t *tried, std::string *names)
{
    char text[500];
    support_run run;
    stand_in(1);
    tiny(&run, ranks);
    if (plan != NULL) support_run_plan(&run, plan, NULL, 1);
    else run.device[0].ordinal = HET_PART(0, 8, 15);
    run.desc.guard.skip_bad_steps = HET_YES; /* as nothing is computed, no step has a verdict */
    standin_skip(1);
    for (int64_t n = 0;; n += step) {
        standin_fail(n);
        const het_result result = try_all(&run, "0", text, sizeof text);
        const standin_count count = standin_counted();
        if (count.failed[0] == 0) break;
        (*tried)++;
        if (names->find(std::string(count.failed) + ' ') == std::string::npos) *names += std::string(count.failed) + ' ';
        if (count.live != 0)
            fail_msg("call %d (%s) fails: %d things are not given back", static_cast<int>(n), count.failed, static_cast<int>(count.live));
        if (result == HET_OK && may_be_lost(count.failed)) continue;
        const int allocates = strcmp(count.failed, "cudaMalloc") == 0 || strcmp(count.failed, "cudaSetDevice") == 0;
        if (result != HET_ERR_DEVICE && (result != HET_ERR_OOM || !allocates))
            fail_msg("call %d (%s) fails: result %d, %s", static_cast<int>(n), count.failed, static_cast<int>(result), text);
        if (strstr(text, ".cu:") == NULL && strstr(text, ".h:") == NULL)
            fail_msg("call %d (%s) fails: no file and line in \"%s\"", static_cast<int>(n), count.failed, text);
        if (strstr(text, count.failed) == NULL && strcmp(count.failed, "kernel launch") != 0 && strcmp(count.failed, "cudaSetDevice") != 0)
            fail_msg("call %d (%s) fails: it is not named in \"%s\"", static_cast<int>(n), count.failed, text);
    }
    standin_fail(-1);
    support_run_end(&run);
    stand_down();
}

static void every_call_fails_in_turn(void **)
{
    int64_t tried = 0;
    std::string names;
    fail_each(1, NULL, 1, &tried, &names);
    print_message("%d calls failed in turn: %s\n", static_cast<int>(tried), names.c_str());
    assert_true(tried > 600);
    for (const char *name : { "cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate", "cudaGraphLaunch", "cudaGraphDestroy",
                              "cudaGraphExecDestroy", "cublasLtMatmul", "kernel launch", "cuDevSmResourceSplitByCount", "cuGreenCtxStreamCreate" })
        if (names.find(std::string(name) + ' ') == std::string::npos) fail_msg("%s was not among the calls", name);
}

static void calls_fail_among_two_ranks(void **)
{
    int64_t tried = 0;
    std::string names;
    fail_each(2, "pp", 23, &tried, &names);
    fail_each(2, "dp", 23, &tried, &names);
    assert_true(tried > 40);
}

/* A card that stops answers for itself: the deadline. */
static void a_card_that_hangs(void **)
{
    char text[500];
    support_run run;
    support_group group;
    stand_in(1);
    tiny(&run, 1);
    run.desc.layout.stall_deadline = 0.1;
    het_ctx *ctx = support_create(&run.desc);
    support_group_start(&group, &run.data, 0, "0");
    standin_stall(1);
    const het_result result = het_step(ctx, group.batch, group.count, NULL);
    snprintf(text, sizeof text, "%s", het_last_error(ctx));
    standin_stall(0);
    het_destroy(ctx);
    support_expect(result, HET_ERR_DEVICE, text, "cuda:0|0.1 seconds", "het_step", __LINE__);
    support_group_end(&group);
    support_run_end(&run);
    stand_down();
}

/* Of a device that was given up. */
static std::vector<void *> given_back;
static void *kept_alloc(void *, size_t size, size_t align) { return aligned_alloc(align, (size + align - 1) / align * align); }
static void kept_free(void *, void *pointer, size_t size)
{
    memset(pointer, 0, size);
    given_back.push_back(pointer);
}

/* What is made while it stands is left to the process's end: no leak. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#define LEFT_TO_THE_END() const __lsan::ScopedDisabler left
#else
#define LEFT_TO_THE_END() static_cast<void>(0)
#endif

/* A card that goes on when its device is gone finds what its copies stand on, and no copy touches the host's memory any more. */
static void a_card_that_goes_on_too_late(void **)
{
    LEFT_TO_THE_END();
    const het_allocator allocator = { kept_alloc, kept_free, NULL };
    float got = 7.0f;
    het_device device;
    rig r;
    stand_in(1);
    rig_start(&r, 0, 0, &allocator);
    memset(&device, 0, sizeof device);
    device.iface = r.d;
    device.self = r.self;
    void *const memory = r.d->alloc(r.self, sizeof got);
    EXPECT_OK(rig_copy(&r, r.queue, HET_OP_CLEAR, memory, NULL, sizeof got));
    EXPECT_OK(rig_copy(&r, r.queue, HET_OP_COPY_OUT, &got, memory, sizeof got));
    EXPECT_OK(r.d->queues->event_record(r.self, r.queue, r.event));
    const cudaStream_t stream = static_cast<cudaStream_t>(het_cuda_stream(&device, r.queue));
    standin_stall(1);
    assert_int_equal(r.d->queues->event_sync(r.self, r.event, 0.01), HET_ERR_DEVICE);
    r.d->queues->event_destroy(r.self, r.event);
    r.d->queues->destroy(r.self, r.queue);
    r.d->destroy(r.self);
    standin_stall(0);
    assert_int_equal(cudaStreamQuery(stream), cudaSuccess);
    assert_true(got == 7.0f);
    assert_int_equal(standin_counted().misuse, 0);
    for (void *pointer : given_back) free(pointer);
    given_back.clear();
    standin_reset(1);
}

static void cards_that_are_not_there(void **)
{
    het_error error;
    het_ctx *ctx = NULL;
    support_run run;
    stand_in(2);
    tiny(&run, 1);
    run.device[0].ordinal = 2;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "cuda:2|there are 2");
    run.device[0].ordinal = 1;
    standin_old(1);
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "cuda:1|7.0|8.0 is needed");
    standin_old(2);
    run.device[0].ordinal = HET_PART(1, 0, 7);
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_DEVICE, error.text, "cuda:1|cuDeviceGetDevResource|cudaErrorCallRequiresNewerDriver");
    standin_old(0);
    run.device[0].ordinal = 2;
    run.device[0].iface = het_cpu_device();
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "cpu:2");
    support_run_end(&run);
    stand_down();
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_of_any_size), cmocka_unit_test(many_small_copies), cmocka_unit_test(the_head_takes_many_rows),
        cmocka_unit_test(queues_wait_for_events), cmocka_unit_test(queues_that_go_first),
        cmocka_unit_test(parts_of_a_card),
        cmocka_unit_test(products_stay_in_their_workspace), cmocka_unit_test(rows_with_room_for_chunks), cmocka_unit_test(more_shapes_than_places),
        cmocka_unit_test(gpt2_trains_as_on_the_cpu), cmocka_unit_test(llama_trains_as_on_the_cpu),
        cmocka_unit_test(qwen3_trains_as_on_the_cpu), cmocka_unit_test(neox_trains_as_on_the_cpu), cmocka_unit_test(gpt2_trains_in_bf16),
        cmocka_unit_test(llama_trains_in_bf16), cmocka_unit_test(tf32_and_timed_algorithms), cmocka_unit_test(muon_trains_as_on_the_cpu),
        cmocka_unit_test(two_cards_share_the_batch),
        cmocka_unit_test(two_cards_reduce_while_they_work),
        cmocka_unit_test(two_cards_share_the_layers), cmocka_unit_test(one_card_has_two_ranks), cmocka_unit_test(a_card_and_a_cpu_share_the_batch),
        cmocka_unit_test(cards_divide_matrices), cmocka_unit_test(a_card_and_a_cpu_share_the_layers), cmocka_unit_test(slices_and_recomputation), cmocka_unit_test(evaluates_and_infers),
        cmocka_unit_test(weights_of_int8), cmocka_unit_test(attention_by_atomics),
        cmocka_unit_test(saves_and_loads), cmocka_unit_test(gelu_in_the_product), cmocka_unit_test(gelu_by_itself),
        cmocka_unit_test(biases_and_matrices), cmocka_unit_test(dropout_in_bf16), cmocka_unit_test(queries_beside_keys),
        cmocka_unit_test(graphs_of_a_queue), cmocka_unit_test(graphs_change_no_bits_of_copies), cmocka_unit_test(graphs_change_no_bits),
        cmocka_unit_test(graphs_change_no_bits_of_muon), cmocka_unit_test(graphs_change_no_bits_with_dropout),
        cmocka_unit_test(graphs_change_no_bits_of_slices), cmocka_unit_test(streams_in_bf16), cmocka_unit_test(streams_in_bf16_of_two_cards),
        cmocka_unit_test(streams_in_bf16_whatever_else), cmocka_unit_test(units_of_ones_own),
#ifdef HETC_EMULATED
        cmocka_unit_test(weights_rounded_once), cmocka_unit_test(matrices_apart_are_products_apart),
        cmocka_unit_test(work_is_kept_once), cmocka_unit_test(hooks_keep_graphs_away), cmocka_unit_test(more_shapes_than_graphs),
        cmocka_unit_test(gradients_rounded_on_the_way),
        cmocka_unit_test(what_a_graph_cannot_hold),
        cmocka_unit_test(every_call_fails_in_turn), cmocka_unit_test(calls_fail_among_two_ranks), cmocka_unit_test(a_card_that_hangs),
        cmocka_unit_test(a_card_that_goes_on_too_late), cmocka_unit_test(cards_that_are_not_there),
#endif
    };
    if (cards() == 0) {
        printf("1..0 # skipped: there is no CUDA device\n");
        return 0;
    }
    if (getenv("HETRAIN_TEST_ONLY") != NULL) cmocka_set_test_filter(getenv("HETRAIN_TEST_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
