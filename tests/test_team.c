/* Teams: a stage run by several unequal ranks, by rows, with attention by context, by heads or both. The bits are those of one rank, messages
   and bytes what the formulas say, memory what was estimated; members that fail are named. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "drawn_unit.h"
#include "support.h"

#include <pthread.h>

#include "hetrain_plan.h"
#include "threads_transport.h"

#define STEPS 3
/* both kinds of groups, for models with 2 and with 5 key/value heads */
#define TWO_FOR(first, second, \
    rest) "{\"teams\":[{\"ranks\":[0,1,2],\"shares\":[2,1,3],\"heads\":[[" first "],[" second "]]}],\"pipelines\":[{\"stages\":[" \
    "{\"rank\":0,\"units\":[0,8]" rest "}]}]}"
/* HexiSeq's: two groups, the second of one member; the groups of a pair behind each other */
#define MIXED_2 TWO_FOR("1,1", "2", "")
#define MIXED_5 TWO_FOR("3,2", "5", "")
#define PAIR_5 TWO_FOR("5", "1,4", ",\"recompute\":true")
/* FlashFlex's example: stages [[1, 2, 1], [2]] with layers [[2, 4, 2], [8]], batch shares [3, 1] */
#define FLASHFLEX "{\"teams\":[{\"ranks\":[1,2],\"shares\":[3,2]},{\"ranks\":[4,5]}],\"pipelines\":[{\"share\":3,\"stages\":[" \
    "{\"rank\":0,\"units\":[0,5]}," \
    "{\"rank\":1,\"units\":[5,13]},{\"rank\":3,\"units\":[13,18]}]},{\"share\":1,\"stages\":[{\"rank\":4,\"units\":[0,18]}]}]}"

/* A team that has the head alone, which passes nothing on and has gradients of what comes in. */
#define HEAD_ALONE "{\"teams\":[{\"ranks\":[0,1]}],\"pipelines\":[{\"stages\":[{\"rank\":2,\"units\":[0,7]},{\"rank\":0,\"units\":[7,8]}]}]}"

/* One stage, recomputed as a whole. */
#define WHOLE "{\"teams\":[{\"ranks\":[0,1],\"shares\":[2,3]}],\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,8],\"recompute\":\"stage\"}]}]}"

/* A pipeline by columns beside one of a single rank. */
#define BESIDE "{\"teams\":[{\"ranks\":[1,2],\"split\":\"columns\",\"shares\":[1,2]}],\"state_shares\":[3,1,2],\"pipelines\":[{\"stages\":[" \
    "{\"rank\":0,\"units\":[0,8]}]},{\"stages\":[{\"rank\":1,\"units\":[0,3],\"recompute\":true},{\"rank\":1,\"units\":[3,8]}]}]}"

/* A team by columns of one rank, which is alone, whatever heads it is said to have. */
#define LONELY "{\"teams\":[{\"ranks\":[0],\"heads\":[[1]],\"split\":\"columns\"}],\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,8]}]}]}"

typedef support_layout layout;

static het_model_desc team_model(het_family family, int64_t context)
{
    het_model_desc model = support_deep_model(family);
    model.context = context;
    return model;
}

/* ---- the matrix ---- */

static void teams_have_the_bits_of_one_rank(void **state)
{
    static const layout layouts[] = {
        { "cp2", NULL, 2, 1 }, { "cp:5,3,2", NULL, 3, 1 }, { "cp:1,0,2", NULL, 3, 1 }, { "hp2", NULL, 2, 1 }, { "hp:3,1", NULL, 2, 3 },
        { "pp2xcp2", "1f1b", 4, 1 }, { "dp2xhp2", NULL, 4, 1 }, { "pp2xhp2", "zb-h1", 4, 2 }, { "pp2xcp2", "zb-v", 4, 1 },
        { "pp2xcp2", "bidirectional", 4, 1 }, { "dp2xpp2xcp2", "interleaved", 8, 1 },
    };
    static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_QWEN3, HET_NEOX };
    size_t i, k;
    (void)state;
    for (i = 0; i < sizeof families / sizeof families[0]; i++) {
        const het_model_desc model = team_model(families[i], 48);
        const layout whole = { WHOLE, "gpipe", 2, 1 };
        const layout mixed = { families[i] == HET_GPT2 || families[i] == HET_QWEN3 ? MIXED_5 : MIXED_2, NULL, 3, 1 };
        support_result base;
        support_run run;
        support_run_start(&run, &model, STEPS, SUPPORT_SHORT);
        base = support_train(&run, "012|345");
        for (k = 0; k < sizeof layouts / sizeof layouts[0]; k++) support_layout_same(&base, &run, &layouts[k], "012|345");
        support_layout_same(&base, &run, &mixed, "012345");
        support_layout_same(&base, &run, &whole, "01|23|45");
        support_run_end(&run);
    }
}

/* Matrices divided by columns and rows, beside whole ones, with the state and the gradients divided. */
static void columns_have_the_bits_of_one_rank(void **state)
{
    static const layout layouts[] = {
        { "tp2", NULL, 2, 1 }, { "tp:1,3", NULL, 2, 3 }, { "dp2xtp2", NULL, 4, 1 }, { "pp2xtp2", "zb-h1", 4, 2 }, { "pp2xtp:2,1", "zb-v", 4, 1 },
        { "pp2xtp2", "bidirectional", 4, 1 }, { "dp2xpp2xtp2", "interleaved", 8, 1 }, { BESIDE, NULL, 3, 1 }, { "tp5", NULL, 5, 1 },
        { LONELY, NULL, 1, 1 },
    };
    static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_QWEN3, HET_NEOX };
    size_t i, k;
    (void)state;
    for (i = 0; i < sizeof families / sizeof families[0]; i++) {
        const het_model_desc model = team_model(families[i], 48);
        support_result base;
        support_run run;
        support_run_start(&run, &model, STEPS, SUPPORT_SHORT);
        base = support_train(&run, "012|345");
        for (k = 0; k < sizeof layouts / sizeof layouts[0]; k++) {
            if (layouts[k].ranks == 5 && model.kv_heads < 5) continue;
            run.desc.layout.shard = k % 2 ? HET_SHARD_GRADIENTS : HET_SHARD_STATE;
            support_layout_same(&base, &run, &layouts[k], "012|345");
        }
        support_run_end(&run);
    }
}

/* Fewer pairs of columns than members; parts that are as large as the whole, for whose sums there must be room; and frozen weights in bf16 whose
   parts have odd rows, here more than are written at once. */
static void narrow_columns_have_the_bits_of_one_rank(void **state)
{
    static const struct { int64_t width, mlp_width, lora_rank; layout l; } cases[] = {
        { 41, 2, 0, { "tp2", NULL, 2, 1 } }, { 40, 4, 0, { "tp3", NULL, 3, 1 } }, { 5, 3, 0, { "tp:3,2", NULL, 2, 1 } },
        { 1, 6, 0, { "tp3", NULL, 3, 1 } }, { 40, 51, 2, { "tp:3,2", NULL, 2, 1 } }, { 41, 401, 2, { "pp2xtp:2,1", "zb-v", 4, 1 } },
    };
    het_model_desc model = team_model(HET_LLAMA, 48);
    size_t i;
    (void)state;
    model.kv_heads = model.heads, model.head_size = 6;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        support_result base;
        support_run run;
        model.width = cases[i].width, model.mlp_width = cases[i].mlp_width, model.lora_rank = cases[i].lora_rank;
        support_run_start(&run, &model, STEPS, SUPPORT_SHORT);
        run.desc.weights = model.lora_rank > 0 ? HET_BF16 : HET_F32;
        run.desc.layout.shard = HET_SHARD_GRADIENTS;
        base = support_train(&run, "012|345");
        support_layout_same(&base, &run, &cases[i].l, "012|345");
        support_run_end(&run);
    }
}

/* AMX adds up 32 k at a time: a matrix that is cut at multiples of 32 is the same sum. */
static void matrix_registers_are_cut_at_32(void **state)
{
    static const layout layouts[] = { { "tp2", NULL, 2, 1 }, { "tp:1,3", NULL, 2, 3 }, { "pp2xtp:2,1", "zb-v", 4, 1 }, { "cp2", NULL, 2, 1 },
                                      { "hp2", NULL, 2, 2 }, { "pp2xcp2", "1f1b", 4, 1 } };
    het_model_desc model;
    support_result base;
    support_run run;
    size_t i;
    (void)state;
    if (!support_has(HET_ISA_AMX)) skip();
    model = team_model(HET_LLAMA, 48);
    model.width = 96, model.heads = 4, model.kv_heads = 4, model.head_size = 32, model.mlp_width = 256;
    support_run_start(&run, &model, STEPS, SUPPORT_SHORT);
    run.desc.dtype = HET_BF16;
    for (i = 0; i < SUPPORT_MAX_RANKS; i++) run.device[i].isa = HET_ISA_AMX;
    support_run_ranks(&run, 1);
    base = support_train(&run, "012|345");
    for (i = 0; i < sizeof layouts / sizeof layouts[0]; i++) support_layout_same(&base, &run, &layouts[i], "012|345");
    support_run_end(&run);
}

/* The orthogonal updates of whole matrices, whose sums and weights lie in boxes; and a rank that keeps the state. */
static void columns_under_muon_and_keepers(void **state)
{
    static const char *const plans[] = { "tp2", BESIDE,
        ("{\"teams\":[{\"ranks\":[0,1],\"split\":\"columns\"}],\"keepers\":[2],\"state_shares\":[1,0,2],"
         "\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,8]}]}]}") };
    const het_model_desc model = team_model(HET_LLAMA, 48);
    support_result base;
    support_run run;
    int muon;
    size_t k;
    (void)state;
    for (muon = 0; muon < 2; muon++) {
        support_run_start(&run, &model, STEPS, SUPPORT_SHORT);
        run.desc.optimizer.iface = muon ? het_muon() : het_adamw();
        base = support_train(&run, "012|345");
        for (k = 0; k < 3; k++) {
            const layout l = { plans[k], NULL, k == 0 ? 2 : 3, 1 };
            support_layout_same(&base, &run, &l, "012|345");
        }
        support_run_end(&run);
    }
}

/* Memory of NaNs: what is read before it is written, if only to be multiplied by 0, shows. */
static void *spoiled_alloc(void *user, size_t size, size_t align)
{
    void *p = NULL;
    (void)user;
    return posix_memalign(&p, align, size) == 0 ? memset(p, 0xFF, size) : NULL;
}

static void spoiled_free(void *user, void *p, size_t size)
{
    (void)user, (void)size;
    free(p);
}

/* Sequences of 1,100 and 600 tokens that cuts lie in, with and without a window, in f32 and bf16. */
static void long_sequences_straddle_cuts(void **state)
{
    static const layout layouts[] = { { "cp3", NULL, 3, 1 }, { "cp:1,3", NULL, 2, 1 }, { "hp:4,1", NULL, 2, 2 }, { MIXED_5, NULL, 3, 1 },
        { PAIR_5, NULL, 3, 1 }, { "tp:1,3", NULL, 2, 1 }, { "tp2", NULL, 2, 3 },
                                      { "pp2xcp2", "zb-h1", 4, 1 } };
    int kind;
    size_t k;
    (void)state;
    for (kind = 0; kind < 3; kind++) {
        het_model_desc model = team_model(HET_QWEN3, 1200);
        support_result base;
        support_run run;
        if (kind == 1) model.window = 300;
        support_run_start(&run, &model, 2, SUPPORT_LONG);
        run.desc.dtype = kind == 2 ? HET_BF16 : HET_F32;
        run.desc.host.allocator.alloc = spoiled_alloc, run.desc.host.allocator.free = spoiled_free;
        base = support_train(&run, "01|2");
        for (k = 0; k < sizeof layouts / sizeof layouts[0]; k++) support_layout_same(&base, &run, &layouts[k], k % 2 ? "012" : "01|2");
        support_run_end(&run);
    }
}

/* What a member keeps of the rows before its own is more than a granule's slack. */
static void members_keep_all_rows_before_theirs(void **state)
{
    static const layout layouts[] = { { "cp3", NULL, 3, 1 }, { "cp:1,1,1,2", NULL, 4, 1 } };
    het_model_desc model = support_model(HET_LLAMA);
    support_result base;
    support_run run;
    size_t k;
    (void)state;
    model.context = 2560;
    support_run_start(&run, &model, 2, "2560");
    base = support_train(&run, "0");
    for (k = 0; k < sizeof layouts / sizeof layouts[0]; k++) support_layout_same(&base, &run, &layouts[k], "0");
    support_run_end(&run);
}

static void layouts_of_the_literature(void **state)
{
    const layout flashflex = { FLASHFLEX, "1f1b", 6, 1 };
    het_model_desc model = support_model(HET_LLAMA);
    support_result base;
    support_run run;
    (void)state;
    model.layers = 8;
    support_run_start(&run, &model, STEPS, SUPPORT_SHORT);
    base = support_train(&run, SUPPORT_APART);
    support_layout_same(&base, &run, &flashflex, SUPPORT_APART);
    support_layout_same(&base, &run, &flashflex, "01|2345");
    support_run_end(&run);
}

/* ---- units of the user's ---- */

/* y = x + B A x, a program; and one whose calls are its own. */
static het_result adapter_describe(const het_unit *unit, het_unit_info *info)
{
    het_program *p = het_program_begin(unit, info);
    const int x = het_node_input(p, 0, unit->model->width), narrow = het_node_linear(p, x, "adapter.#.down", 8, 0.05f);
    het_node_output(p, het_node_residual(p, x, het_node_linear(p, narrow, "adapter.#.up", unit->model->width, 0.05f)));
    return het_program_end(p);
}
/* Attention whose matrices are products of two narrow ones: each is a chain of its own by columns. */
static int narrow_of(het_program *p, int x, const char *down, const char *up, int64_t out)
{
    return het_node_linear(p, het_node_linear(p, x, down, 12, 0.1f), up, out, 0.1f);
}
static het_result narrow_describe(const het_unit *unit, het_unit_info *info)
{
    const het_model_desc *m = unit->model;
    const int64_t q_width = m->heads * m->head_size, k_width = m->kv_heads * m->head_size;
    het_program *p = het_program_begin(unit, info);
    const int x = het_node_input(p, 0, m->width), h = het_node_norm(p, x, "narrow.#.norm");
    const int q = het_node_rotary(p, narrow_of(p, h, "narrow.#.q.down", "narrow.#.q.up", q_width));
    const int k = het_node_rotary(p, narrow_of(p, h, "narrow.#.k.down", "narrow.#.k.up", k_width));
    const int o = het_node_attention(p, q, k, narrow_of(p, h, "narrow.#.v.down", "narrow.#.v.up", k_width));
    het_node_output(p, het_node_residual(p, x, narrow_of(p, o, "narrow.#.o.down", "narrow.#.o.up", m->width)));
    return het_program_end(p);
}
/* Rotations without attention, of as many heads for each of the model's key/value heads and of others. */
static het_result turned_describe(const het_unit *unit, het_unit_info *info)
{
    const int64_t d = unit->model->width, pair = unit->model->kv_heads * unit->model->head_size;
    het_program *p = het_program_begin(unit, info);
    const int x = het_node_input(p, 0, d), many = het_node_rotary(p, het_node_linear(p, x, "turned.#.many", 3 * pair, 0.1f));
    const int odd = het_node_rotary(p, het_node_linear(p, x, "turned.#.odd", pair + unit->model->head_size, 0.1f));
    const int y = het_node_residual(p, x, het_node_linear(p, many, "turned.#.one", d, 0.1f));
    het_node_output(p, het_node_residual(p, y, het_node_linear(p, odd, "turned.#.other", d, 0.1f)));
    return het_program_end(p);
}
static het_result own_forward(const het_unit_call *call) { return het_program_forward(call); }
static het_result stranger_describe(const het_unit *unit, het_unit_info *info)
{
    const het_result result = adapter_describe(unit, info);
    info->teams = 0; /* it does not say that it knows teams */
    return result;
}
static const het_unit_iface adapter = { HETRAIN_UNIT_VERSION, "adapter", adapter_describe, own_forward, het_program_backward_input,
                                        het_program_backward_weight };
static const het_unit_iface narrow = { HETRAIN_UNIT_VERSION, "narrow attention", narrow_describe, het_program_forward,
                                       het_program_backward_input, het_program_backward_weight };
static const het_unit_iface turned = { HETRAIN_UNIT_VERSION, "turned", turned_describe, het_program_forward,
                                       het_program_backward_input, het_program_backward_weight };
static const het_unit_iface stranger = { HETRAIN_UNIT_VERSION, "stranger", stranger_describe, own_forward, het_program_backward_input,
                                         het_program_backward_weight };

static void programs_of_the_user_s_work_in_any_team(void **state)
{
    static const layout layouts[] = { { "cp:5,3,2", NULL, 3, 1 }, { "hp:3,1", NULL, 2, 2 }, { "pp2xcp2", "zb-h1", 4, 1 }, { "tp2", NULL, 2, 1 },
        { "pp2xtp:2,1", "zb-h1", 4, 2 } };
    const het_model_desc model = team_model(HET_LLAMA, 48);
    het_unit plain[8], units[11];
    int64_t count, i, n;
    support_result base;
    support_run run;
    het_error error;
    size_t k;
    (void)state;
    support_run_start(&run, &model, STEPS, SUPPORT_SHORT);
    EXPECT_ERROR(het_model_units(&run.desc.model, plain, 8, &count, &error), HET_OK, error.text, "");
    for (i = n = 0; i < count; i++) { /* embed, (attention, mlp, adapter) x 3, head; narrow attention, turned for adapter in layer 2 */
        units[n++] = plain[i];
        if (i == 3) units[n - 1].iface = &narrow;
        if (i == 0 || i % 2 == 1) continue;
        units[n] = plain[i];
        units[n++].iface = i == 4 ? &turned : &adapter;
    }
    run.desc.units = units;
    run.desc.unit_count = n;
    base = support_train(&run, "012|345");
    for (k = 0; k < sizeof layouts / sizeof layouts[0]; k++) {
        het_plan *plan;
        support_run_ranks(&run, layouts[k].ranks);
        plan = support_plan_for(layouts[k].plan, layouts[k].schedule, n, layouts[k].ranks, layouts[k].slices, model.kv_heads);
        run.desc.layout.plan = plan;
        support_train_same(&base, &run, "012|345", layouts[k].plan);
        units[3].iface = &stranger;
        if (k == 0) {
            het_ctx *ctx;
            assert_int_equal(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED);
            assert_non_null(strstr(error.text, "shares unit 3 (stranger), which does not know teams"));
        }
        units[3].iface = &adapter;
        het_plan_free(plan);
    }
    run.desc.layout.plan = NULL;
    support_run_end(&run);
}

/* Attention with twice the model's key/value heads, of which no team has numbers. */
static het_result doubled_describe(const het_unit *unit, het_unit_info *info)
{
    const het_model_desc *m = unit->model;
    const int64_t width = 2 * m->kv_heads * m->head_size;
    het_program *p = het_program_begin(unit, info);
    const int x = het_node_input(p, 0, m->width), q = het_node_linear(p, x, "d.#.q", width, 0.1f);
    const int k = het_node_linear(p, x, "d.#.k", width, 0.1f), v = het_node_linear(p, x, "d.#.v", width, 0.1f);
    het_node_output(p, het_node_residual(p, x, het_node_linear(p, het_node_attention(p, q, k, v), "d.#.o", m->width, 0.1f)));
    return het_program_end(p);
}
static const het_unit_iface doubled = { HETRAIN_UNIT_VERSION, "doubled", doubled_describe, het_program_forward,
                                        het_program_backward_input, het_program_backward_weight };

static void attention_of_other_heads_is_not_divided(void **state)
{
    static const layout layouts[] = { { "cp2", NULL, 2, 1 }, { "hp2", NULL, 2, 1 }, { "tp2", NULL, 2, 1 } };
    const het_model_desc model = team_model(HET_LLAMA, 48);
    het_model_desc one = model;
    support_result base;
    support_run run;
    het_unit units[8];
    het_error error;
    het_ctx *ctx;
    int64_t count;
    int k;
    (void)state;
    support_run_start(&run, &model, STEPS, SUPPORT_SHORT);
    EXPECT_OK(het_model_units(&run.desc.model, units, 8, &count, &error));
    units[3].iface = &doubled;
    run.desc.units = units;
    run.desc.unit_count = count;
    base = support_train(&run, "012|345");
    support_layout_same(&base, &run, &layouts[0], "012|345"); /* by context all heads stay together */
    for (k = 1; k < 3; k++) {
        support_run_ranks(&run, 2);
        support_run_plan(&run, layouts[k].plan, NULL, 1);
        EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text,
                     "the team of rank 0 divides 2 key/value heads|unit 3 (doubled) has others");
    }
    one.kv_heads = 1; /* of rotations too */
    units[3].iface = &turned;
    units[3].model = &one;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text,
                 "the team of rank 0 divides 2 key/value heads|unit 3 (turned) has others");
    support_run_end(&run);
}

/* A unit's own model may be bidirectional where the others' is not. */
static void bidirectional_units_are_not_cut(void **state)
{
    const het_model_desc model = team_model(HET_LLAMA, 48);
    het_model_desc other = model;
    support_run run;
    static const int32_t token[2] = { 1, 2 };
    het_unit units[8];
    het_error error;
    het_ctx *ctx;
    int64_t count;
    float *logits;
    (void)state;
    other.causal = HET_NO;
    support_run_start(&run, &model, 1, SUPPORT_SHORT);
    EXPECT_OK(het_model_units(&run.desc.model, units, 8, &count, &error));
    units[3].model = &other;
    run.desc.units = units;
    run.desc.unit_count = count;
    support_run_ranks(&run, 2);
    support_run_plan(&run, "cp2", NULL, 1);
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "can be divided by heads only");
    support_run_plan(&run, "hp2", NULL, 2);
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "2 slices|a bidirectional model cannot be sliced");
    support_run_end(&run);

    support_run_start(&run, &model, 1, SUPPORT_SHORT);
    units[3].model = &other;
    run.desc.units = units;
    run.desc.unit_count = count;
    ctx = support_create(&run.desc);
    logits = (float *)malloc((size_t)model.vocab * sizeof *logits);
    assert_non_null(logits);
    EXPECT_OK(het_infer(ctx, token, 2, 0, logits));
    EXPECT_ERROR(het_infer(ctx, token, 1, 2, logits), HET_ERR_INVALID, het_last_error(ctx), "past is 2|whole sequences");
    free(logits);
    het_destroy(ctx);
    support_run_end(&run);
}

/* ---- hooks that see all rows ---- */

/* An edit that no row can make by itself: every row gets half of the row as far from the end. */
static het_result mirror(void *user, const het_hook_info *info)
{
    float *x = info->stream[0];
    int64_t r, i, w = info->width[0];
    (void)user;
    if (info->streams == 0 || info->unit != (info->direction == HET_FORWARD ? 2 : 3)) return HET_OK;
    for (r = 0; r < info->rows / 2; r++)
        for (i = 0; i < w; i++) {
            const float a = x[r * w + i], b = x[(info->rows - 1 - r) * w + i];
            x[r * w + i] = a + 0.5f * b;
            x[(info->rows - 1 - r) * w + i] = b + 0.5f * a;
        }
    return HET_OK;
}

static void whole_activations_are_shown_to_hooks(void **state)
{
    static const layout layouts[] = { { "cp:5,3,2", NULL, 3, 1 }, { "hp:1,1", NULL, 2, 1 }, { "pp2xcp2", NULL, 4, 1 }, { MIXED_2, NULL, 3, 1 },
        { "tp:2,1", NULL, 2, 1 }, { HEAD_ALONE, NULL, 3, 1 } };
    const het_model_desc model = team_model(HET_NEOX, 48);
    support_result base;
    support_run run;
    uint64_t seed = 1;
    size_t k;
    int far;
    (void)state;
    support_run_start(&run, &model, STEPS, SUPPORT_SHORT);
    run.desc.host.hook = mirror;
    run.desc.host.hook_whole = HET_YES;
    base = support_train(&run, "012|345");
    for (far = 0; far < 2; far++) {
        if (far) support_run_mixed(&run, 0, &seed);
        for (k = 0; k < sizeof layouts / sizeof layouts[0]; k++) support_layout_same(&base, &run, &layouts[k], "012|345");
    }
    support_run_end(&run);
}

/* ---- drawn at random ---- */

static void draw_team(uint64_t *seed, int64_t *rank, int64_t heads, char *text, size_t capacity)
{
    const int64_t members = 1 + support_below(seed, 3), first = *rank;
    int64_t groups = support_below(seed, 2) ? members : 1 + support_below(seed, members), i, at, left, of_group;
    if (members - (groups - 1) > heads) groups = members; /* no more members of a group than heads */
    if (members == 1) {
        ++*rank;
        text[0] = 0;
        return;
    }
    at = snprintf(text, capacity, "{\"ranks\":[");
    for (i = 0; i < members; i++) at += snprintf(text + at, capacity - (size_t)at, "%s%d", i ? "," : "", (int)(first + i));
    at += snprintf(text + at, capacity - (size_t)at, "],\"shares\":[");
    for (i = 0; i < members; i++) at += snprintf(text + at, capacity - (size_t)at, "%s%d", i ? "," : "", i == 0 ? 1 : (int)support_below(seed, 4));
    at += snprintf(text + at, capacity - (size_t)at, "]");
    if (members <= heads && support_below(seed, 3) == 0) at += snprintf(text + at, capacity - (size_t)at, ",\"split\":\"columns\"");
    else if (groups < members) { /* the last group has the rest */
        at += snprintf(text + at, capacity - (size_t)at, ",\"heads\":[");
        for (i = 0; i < groups; i++) {
            of_group = i + 1 < groups ? 1 : members - (groups - 1);
            at += snprintf(text + at, capacity - (size_t)at, "%s[", i ? "," : "");
            for (left = heads; of_group > 0; of_group--) {
                const int64_t own = of_group == 1 ? left : 1 + support_below(seed, left - (of_group - 1));
                at += snprintf(text + at, capacity - (size_t)at, "%d%s", (int)own, of_group > 1 ? "," : "]");
                left -= own;
            }
        }
        at += snprintf(text + at, capacity - (size_t)at, "]");
    }
    snprintf(text + at, capacity - (size_t)at, "}");
    *rank += members;
}

/* One or two pipelines of one to three stages, each on a team of one to three ranks. */
static int64_t draw_plan(uint64_t *seed, int64_t units, int64_t heads, char *text, size_t capacity)
{
    static const char *const recompute[] = { "false", "false", "true", "\"stage\"", "\"stage\"" };
    char teams[2000] = "", stages[2000] = "", team[400];
    const int64_t pipelines = 1 + support_below(seed, 2);
    int64_t rank = 0, p, s, t = 0, at = 0;
    for (p = 0; p < pipelines; p++) {
        const int64_t count = 1 + support_below(seed, pipelines == 1 ? 3 : 2);
        int64_t unit = 0;
        at += snprintf(stages + at, sizeof stages - (size_t)at, "%s{\"share\":%d,\"stages\":[", p ? "," : "", 1 + (int)support_below(seed, 2));
        for (s = 0; s < count; s++) {
            const int64_t leader = rank, end = s + 1 == count ? units : unit + 1 + support_below(seed, units - unit - (count - 1 - s));
            if (rank + 3 + (pipelines - p - 1) * 2 + (count - 1 - s) > SUPPORT_MAX_RANKS) team[0] = 0, rank++;
            else draw_team(seed, &rank, heads, team, sizeof team);
            if (team[0]) t += snprintf(teams + t, sizeof teams - (size_t)t, "%s%s", t ? "," : "", team);
            at += snprintf(stages + at, sizeof stages - (size_t)at, "%s{\"rank\":%d,\"units\":[%d,%d],\"recompute\":%s,\"store\":%d}", s ? "," : "",
                           (int)leader, (int)unit, (int)end, recompute[support_below(seed, 5)], (int)support_below(seed, 3));
            unit = end;
        }
        at += snprintf(stages + at, sizeof stages - (size_t)at, "]}");
    }
    snprintf(text, capacity, "{\"teams\":[%s],\"pipelines\":[%s]}", teams, stages);
    return rank;
}

/* Whether het_create takes it; programs that are drawn do not fit everywhere. */
static int is_taken(const support_run *run)
{
    het_error error;
    het_ctx *ctx;
    if (het_create(&run->desc, &ctx, &error) != HET_OK) return 0;
    het_destroy(ctx);
    return 1;
}

/* Text, ranks and all else of a round: whatever it is, the bits are those of one rank. Some rounds have units whose programs are drawn too. Returns 0
   where het_create did not take them. */
static int one_round(int round)
{
    static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_QWEN3, HET_NEOX };
    static const char *const schedules[] = { "1f1b", "gpipe", "zb-h1", "greedy" };
    static const char *const blocks[] = { "012345", "0|12345", "012|345", "51|0234", "5|4|3|2|1|0", "03|14|25" };
    uint64_t seed = (uint64_t)round * 7919 + 3;
    het_model_desc model = team_model(families[support_below(&seed, 4)], 48);
    char text[4200], what[4400];
    const int programs = round % 4 == 2;
    uint64_t drawn[2];
    het_unit units[12];
    const char *order;
    support_result base;
    support_run run;
    int64_t ranks, r;
    int taken = 1;
    if (support_below(&seed, 2)) model.dropout = 0.2f;
    if (support_below(&seed, 3) == 0) model.window = 7;
    support_run_start(&run, &model, STEPS, SUPPORT_SHORT);
    run.desc.dtype = support_below(&seed, 4) == 0 ? HET_BF16 : HET_F32;
    if (round % 2) support_draw_training(&run, &seed);
    for (r = 0; r < 2; r++) drawn[r] = (uint64_t)round * 2 + (uint64_t)r;
    if (programs) run.desc.unit_count = drawn_chain(&run.desc.model, drawn, units, 12), run.desc.units = units;
    order = blocks[support_below(&seed, 6)];
    if (programs && !is_taken(&run)) {
        support_run_end(&run);
        return 0;
    }
    base = support_train(&run, order);
    ranks = draw_plan(&seed, support_run_units(&run), model.kv_heads, text, sizeof text);
    support_run_mixed(&run, (int)support_below(&seed, 6), &seed);
    support_run_ranks(&run, ranks);
    run.desc.layout.shard = (het_shard)(HET_SHARD_STATE + support_below(&seed, strstr(text, "columns") != NULL ? 2 : 3));
    run.desc.layout.backward = (het_backward)(HET_BACKWARD_FUSED + support_below(&seed, 3));
    support_run_plan(&run, text, schedules[support_below(&seed, 4)], 1);
    if (strcmp(run.plan->schedule, "zb-h1") == 0 || strcmp(run.plan->schedule, "greedy") == 0) run.desc.layout.backward = HET_BACKWARD_FUSED;
    for (r = 0; r < ranks; r++) run.plan->state_share[r] = (double)(1 + support_below(&seed, 3)), run.plan->near[r] = support_below(&seed, 2);
    snprintf(what, sizeof what, "round %d: %s %s, local_loss %d, weights %d, %s", round, run.plan->schedule, order, (int)run.desc.model.local_loss,
             (int)run.desc.weights, text);
    if (!programs || (taken = is_taken(&run)) != 0) support_train_same(&base, &run, order, what);
    support_run_end(&run);
    return taken;
}

static void random_teams_have_the_bits_of_one_rank(void **state)
{
    const int first = support_environment("HETRAIN_TEST_FIRST_ROUND", 0), rounds = support_environment("HETRAIN_TEST_ROUNDS", 48);
    int round, taken = 0;
    (void)state;
    for (round = first; round < first + rounds; round++) taken += one_round(round);
    assert_true(taken >= rounds * 7 / 8); /* of a quarter with programs at least half */
}

/* ---- evaluation, generation, other plans ---- */

static void evaluate_and_generate(het_family family)
{
    static const layout layouts[] = { { "cp:2,1", NULL, 2, 1 }, { "hp:3,2", NULL, 2, 2 }, { MIXED_5, NULL, 3, 1 }, { PAIR_5, NULL, 3, 1 },
        { "pp2xhp2", NULL, 4, 1 }, { "tp:3,2", NULL, 2, 2 }, { "pp2xtp2", NULL, 4, 1 },
                                      { "pp2xcp2", NULL, 4, 1 } };
    static const int32_t token[] = { 3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 8, 9, 7, 9 };
    const het_model_desc model = team_model(family, 48);
    support_group group;
    support_run run;
    float want[2][61], got[61];
    double loss;
    het_step_info info;
    het_ctx *ctx;
    size_t k;
    support_run_start(&run, &model, 1, SUPPORT_SHORT);
    support_group_start(&group, &run.data, 0, "012|345");
    ctx = support_create(&run.desc);
    EXPECT_OK(het_evaluate(ctx, group.batch, group.count, &info));
    loss = info.loss;
    EXPECT_OK(het_infer(ctx, token, 9, 0, want[0]));
    EXPECT_OK(het_infer(ctx, token + 9, 5, 9, want[1]));
    het_destroy(ctx);
    for (k = 0; k < 2 * sizeof layouts / sizeof layouts[0]; k++) {
        const layout *l = &layouts[k / 2];
        support_run_ranks(&run, l->ranks);
        support_run_plan(&run, l->plan, l->schedule, l->slices);
        run.desc.inference = k % 2 ? HET_YES : HET_NO;
        ctx = support_create(&run.desc);
        EXPECT_OK(het_evaluate(ctx, group.batch, group.count, &info));
        if (info.loss < loss || info.loss > loss) fail_msg("%s: loss %.17g, not %.17g", l->plan, info.loss, loss);
        EXPECT_OK(het_infer(ctx, token, 9, 0, got));
        if (memcmp(got, want[0], sizeof got) != 0) fail_msg("%s: logits differ", l->plan);
        EXPECT_OK(het_infer(ctx, token + 9, 5, 9, got));
        if (memcmp(got, want[1], sizeof got) != 0) fail_msg("%s: logits behind kept keys differ", l->plan);
        het_destroy(ctx);
    }
    support_group_end(&group);
    support_run_end(&run);
}

static void teams_evaluate_and_generate(void **state)
{
    (void)state;
    evaluate_and_generate(HET_QWEN3);
    evaluate_and_generate(HET_GPT2);
}

/* All rows at once, or an error: a piece would be seen without the pieces behind it. */
static void teams_infer_bidirectional_sequences(void **state)
{
    static const struct { const char *plan; int64_t most; } cases[] = { { "dp", 1024 }, { "hp:9,1", 616 } };
    het_model_desc model = team_model(HET_LLAMA, 1024);
    int32_t token[1024];
    float logits[2][61];
    (void)state;
    model.causal = HET_NO;
    for (int i = 0; i < 1024; i++) token[i] = (7 * i + 3) % 61;
    for (int i = 0; i < 2; i++) {
        support_run run;
        char words[80];
        het_ctx *ctx;
        support_run_start(&run, &model, 1, "1024");
        run.desc.limits.max_tokens = 1024;
        support_run_ranks(&run, 1 + i);
        support_run_plan(&run, cases[i].plan, NULL, 1);
        ctx = support_create(&run.desc);
        EXPECT_OK(het_infer(ctx, token, 600, 0, logits[i]));
        snprintf(words, sizeof words, "het_infer: 1024 tokens after 0; the context holds %d", (int)cases[i].most);
        if (i > 0) EXPECT_ERROR(het_infer(ctx, token, 1024, 0, logits[i]), HET_ERR_LIMIT, het_last_error(ctx), words);
        het_destroy(ctx);
        support_run_end(&run);
    }
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
}

/* From one rank's plan to teams and to other teams between steps. */
static void replans_to_teams_do_not_show(void **state)
{
    static const layout layouts[] = { { "cp:2,1,1", NULL, 3, 1 }, { BESIDE, NULL, 3, 1 }, { MIXED_2, NULL, 3, 1 }, { "dp", NULL, 3, 1 } };
    const het_model_desc model = team_model(HET_LLAMA, 48);
    support_run run;
    support_result base;
    het_ctx *ctx;
    size_t k;
    (void)state;
    support_run_start(&run, &model, 4, SUPPORT_SHORT);
    base = support_train(&run, "012|345");
    support_run_ranks(&run, 3);
    support_run_plan(&run, "pp", NULL, 1);
    ctx = support_create(&run.desc);
    for (k = 0; k < 4; k++) {
        het_replan_desc to;
        memset(&to, 0, sizeof to);
        support_run_plan(&run, layouts[k].plan, NULL, 1);
        to.plan = run.plan;
        EXPECT_OK(het_replan(ctx, &to));
        assert_true(support_step(ctx, &run.data, (int)k, "012|345").gradient_norm >= base.norm[k]);
    }
    assert_true(support_hash(ctx) == base.weights);
    het_destroy(ctx);
    support_run_end(&run);
}

/* ---- messages and bytes ---- */

/* Which rows a rank had of a micro-batch, as its hook saw them. */
typedef struct seen { pthread_mutex_t lock; int64_t first[4], rows[4]; } seen;

static het_result see(void *user, const het_hook_info *info)
{
    seen *s = (seen *)user;
    pthread_mutex_lock(&s->lock);
    s->first[info->rank] = info->row;
    s->rows[info->rank] = info->rows;
    pthread_mutex_unlock(&s->lock);
    return HET_OK;
}

typedef struct counts { int64_t messages, bytes; } counts;

static void add(counts *c, int64_t messages, int64_t bytes)
{
    if (bytes == 0) return;
    c->messages += messages;
    c->bytes += messages * bytes;
}

/* TEAMS.md, section 5, of attention with q, k, v and an MLP with gate and up: all rows are gathered before a product whose result is divided, and
   before the gradient of one whose x is; the other way the chain goes through all members, once forward and once a matrix backward. */
static void add_columns(counts want[4][4], const int64_t *rows, int64_t ranks, int64_t width)
{
    const int64_t n = rows[ranks] - rows[0], blocks = n < 32 ? 1 : n / 16 < 8 ? n / 16 : 8;
    int64_t i, j, unit, place, b;
    for (unit = 0; unit < 2; unit++) {
        const int64_t rounds[2] = { 1, unit == 0 ? 3 : 2 }; /* forward, backward */
        for (i = 0; i < ranks; i++)
            for (j = 0; j < ranks; j++)
                if (i != j) add(&want[i][j], 2, 4 * width * (rows[i + 1] - rows[i]));
        for (i = 0; i < 2; i++) {
            for (place = 0; place + 1 < rounds[i] * ranks; place++)
                for (b = 0; b < blocks; b++)
                    add(&want[place % ranks][(place + 1) % ranks], 1,
                        4 * width * ((b + 1 < blocks ? n * (b + 1) / blocks / 16 * 16 : n) - n * b / blocks / 16 * 16));
            for (j = 0; j + 1 < ranks; j++) add(&want[ranks - 1][j], 1, 4 * width * (rows[j + 1] - rows[j]));
        }
    }
}

/* One micro-batch, third step; the plan's members, alone or all in one group. */
static void check_traffic(const char *plan, int64_t ranks, const char *blocks, const int64_t *heads, int expect_none, het_choice recompute)
{
    const int columns = strncmp(plan, "tp", 2) == 0;
    const het_model_desc model = team_model(columns ? HET_LLAMA : HET_QWEN3, 1200);
    const int64_t e4 = 4 * model.head_size, g = model.heads / model.kv_heads;
    int64_t before[4][4][2], i, j, s, row[5] = { 0 }, sum = 0;
    counts want[4][4];
    support_group group;
    support_run run;
    seen rows;
    het_ctx *ctx;
    memset(want, 0, sizeof want);
    memset(&rows, 0, sizeof rows);
    pthread_mutex_init(&rows.lock, NULL);
    support_run_start(&run, &model, 3, blocks);
    run.desc.host.hook = see;
    run.desc.host.user = &rows;
    run.desc.layout.recompute = recompute; /* keys and values of earlier rows are kept all the same */
    support_run_ranks(&run, ranks);
    support_run_plan(&run, plan, NULL, 1);
    support_group_start(&group, &run.data, 2, strchr(blocks, '|') ? "012" : "0");
    ctx = support_create(&run.desc);
    for (i = 0; i < 2; i++) (void)support_step(ctx, &run.data, (int)i, strchr(blocks, '|') ? "012" : "0");
    for (i = 0; i < ranks; i++) {
        het_timeline t;
        het_get_timeline(ctx, i, &t);
        for (j = 0; j < ranks; j++) before[i][j][0] = t.traffic[j].exchanges, before[i][j][1] = t.traffic[j].exchange_bytes;
    }
    EXPECT_OK(het_step(ctx, group.batch, group.count, NULL));
    for (i = 0; i < ranks; i++) {
        assert_int_equal(rows.first[i], row[i]); /* they follow each other */
        row[i + 1] = row[i] + rows.rows[i];
    }
    assert_int_equal(row[ranks], group.batch[0].tokens);
    if (columns) add_columns(want, row, ranks, model.width);
    for (j = 0; j < ranks && !columns; j++) { /* TEAMS.md, section 4: of each attention, forward and backward */
        int64_t first = 0;
        for (s = 0; s < group.batch[0].sequences; s++)
            if (group.batch[0].sequence_start[s] <= row[j]) first = group.batch[0].sequence_start[s];
        for (i = 0; i < ranks; i++) {
            const int64_t n = rows.rows[i], low = first > row[i] ? first : row[i], both = row[i + 1] > low ? row[i + 1] - low : 0;
            if (i == j) continue;
            if (heads) { /* q, k, v and do of i's rows to j; o, dq, dk, dv of j's heads... are j's rows of i's */
                add(&want[i][j], 2, n * g * heads[j] * e4);
                add(&want[i][j], 2, n * heads[j] * e4);
                add(&want[i][j], 2, rows.rows[j] * g * heads[i] * e4);
                add(&want[i][j], 2, rows.rows[j] * heads[i] * e4);
            } else if (i < j && rows.rows[j] > 0) add(&want[i][j], 2, both * model.kv_heads * e4); /* k, v */
            if (!heads && i == j - 1) add(&want[j][i], 2, (row[j] - first) * model.kv_heads * e4); /* dk, dv */
        }
    }
    for (i = 0; i < ranks; i++) {
        het_timeline t;
        het_get_timeline(ctx, i, &t);
        for (j = 0; j < ranks; j++) {
            const int64_t messages = t.traffic[j].exchanges - before[i][j][0], bytes = t.traffic[j].exchange_bytes - before[i][j][1];
            if (messages != model.layers * want[i][j].messages || bytes != model.layers * want[i][j].bytes)
                fail_msg("%s, %s: rank %d sends %d %d messages of %d bytes, not %d of %d", plan, blocks, (int)i, (int)j, (int)messages, (int)bytes,
                         (int)(model.layers * want[i][j].messages), (int)(model.layers * want[i][j].bytes));
            sum += bytes;
        }
    }
    assert_true(expect_none ? sum == 0 : sum > 0);
    print_message("%s, %s: %d bytes; all-reduces of Megatron's kind: %d\n", plan, blocks, (int)sum,
                  (int)(model.layers * 8 * (ranks - 1) * row[ranks] * model.width * 4));
    het_destroy(ctx);
    support_group_end(&group);
    support_run_end(&run);
    pthread_mutex_destroy(&rows.lock);
}

static void traffic_is_what_the_formulas_say(void **state)
{
    static const int64_t even[] = { 3, 2 }, uneven[] = { 4, 1 };
    (void)state;
    check_traffic("cp3", 3, SUPPORT_LONG, NULL, 0, HET_YES);
    check_traffic("cp:1,3", 2, SUPPORT_LONG, NULL, 0, HET_NO);
    check_traffic("cp:1,0,2", 3, "1150", NULL, 0, HET_NO);
    check_traffic("cp2", 2, "512|512|512", NULL, 1, HET_NO); /* no sequence straddles a cut */
    check_traffic("hp2", 2, SUPPORT_LONG, even, 0, HET_NO);
    check_traffic("hp:3,1", 2, SUPPORT_LONG, uneven, 0, HET_NO);
    check_traffic("tp2", 2, SUPPORT_LONG, NULL, 0, HET_NO);
    check_traffic("tp:1,3", 2, SUPPORT_LONG, NULL, 0, HET_NO);
    check_traffic("tp2", 2, "21", NULL, 0, HET_NO); /* one granule: a member has no row */
}

/* ---- memory ---- */

typedef struct counted { pthread_mutex_t lock; size_t live, peak; } counted;

static void *counted_alloc(void *user, size_t size, size_t align)
{
    counted *c = (counted *)user;
    void *p = NULL;
    pthread_mutex_lock(&c->lock);
    if (posix_memalign(&p, align, size) == 0) c->live += size;
    if (c->live > c->peak) c->peak = c->live;
    pthread_mutex_unlock(&c->lock);
    return p;
}

static void counted_free(void *user, void *p, size_t size)
{
    counted *c = (counted *)user;
    pthread_mutex_lock(&c->lock);
    c->live -= size;
    pthread_mutex_unlock(&c->lock);
    free(p);
}

/* The estimate is the peak, and a member's activations fall with its share. */
static void memory_is_what_was_estimated(void **state)
{
    static const layout layouts[] = { { "cp:3,1", NULL, 2, 1 }, { "hp:3,1", NULL, 2, 1 }, { MIXED_5, NULL, 3, 1 }, { "pp2xcp2", "zb-h1", 4, 1 },
        { "tp:3,1", NULL, 2, 1 }, { "pp2xtp2", "zb-h1", 4, 2 }, { "cp4", NULL, 4, 1 } };
    const het_model_desc model = team_model(HET_QWEN3, 1200);
    support_group group;
    support_run run;
    size_t k;
    (void)state;
    for (k = 0; k < 2 * sizeof layouts / sizeof layouts[0]; k++) { /* to train, and for inference */
        const layout *l = &layouts[k / 2];
        const int infers = k % 2;
        counted count;
        het_memory memory[4];
        het_error error;
        size_t sum = 0;
        het_ctx *ctx;
        int64_t r;
        memset(&count, 0, sizeof count);
        pthread_mutex_init(&count.lock, NULL);
        support_run_start(&run, &model, 1, SUPPORT_LONG);
        support_group_start(&group, &run.data, 0, "012");
        support_run_ranks(&run, l->ranks);
        support_run_plan(&run, l->plan, l->schedule, 1);
        run.desc.inference = infers ? HET_YES : HET_NO;
        if (k == 0) run.desc.host.hook = mirror, run.desc.host.hook_whole = HET_YES;
        if (k == 10) run.desc.layout.shard = HET_SHARD_GRADIENTS;
        for (r = 0; r < l->ranks; r++) {
            EXPECT_ERROR(het_memory_estimate(&run.desc, r, &memory[r], &error), HET_OK, error.text, "");
            sum += memory[r].host + memory[r].device;
        }
        assert_true(memory[1].activations < memory[0].activations || infers || (k != 0 && k != 2 && k != 8));
        assert_true(k / 2 != 6 || memory[0].activations < memory[3].activations); /* keys of rows behind its own are nobody's concern */
        assert_true(memory[1].weights + memory[1].gradients < memory[0].weights + memory[0].gradients || k / 2 != 4);
        run.desc.host.allocator.alloc = counted_alloc;
        run.desc.host.allocator.free = counted_free;
        run.desc.host.allocator.user = &count;
        ctx = support_create(&run.desc);
        if (infers) EXPECT_OK(het_evaluate(ctx, group.batch, group.count, NULL));
        else EXPECT_OK(het_step(ctx, group.batch, group.count, NULL));
        if (sum != count.peak)
            fail_msg("%s, inference %d: the estimate is %lu, the peak %lu", l->plan, infers, (unsigned long)sum, (unsigned long)count.peak);
        het_destroy(ctx);
        assert_int_equal(count.live, 0);
        support_group_end(&group);
        support_run_end(&run);
        pthread_mutex_destroy(&count.lock);
    }
}

/* ---- the backward pass by context: a wave over layers and members ---- */

/* Members are processes of a transport that has clocks, on devices that compute nothing. A layer of the backward pass moves a member's clock by 5:
   `core` in attention, what is left in the MLP's activation. */
enum { WAVE_LAYERS = 8, WAVE_MOST = 5 };
typedef struct wave {
    threads_end *end;
    het_transport transport;
    const char *plan;
    double core, begun, waited; /* seconds in the backward pass's attention; waited before that pass, in it */
    int64_t cores;
} wave;
static pthread_key_t waves; /* the wave of a thread */

static het_result work_on_clocks(void *self, het_queue *queue, const het_op *op)
{
    wave *w = (wave *)pthread_getspecific(waves);
    if (w != NULL && op->kind == HET_OP_ACTIVATION_BACKWARD) w->end->now += 5 - w->core;
    if (w != NULL && op->kind == HET_OP_ATTENTION_BACKWARD) w->end->now += w->core, w->cores++;
    return het_null_device()->run(self, queue, op);
}

static het_result look_at_clocks(void *user, const het_hook_info *info)
{
    wave *w = (wave *)user;
    if (info->direction == HET_FORWARD) w->begun = w->end->waited;
    else w->waited = w->end->waited - w->begun;
    return pthread_setspecific(waves, w) == 0 ? HET_OK : HET_ERR_STATE;
}

static void *live_on_clocks(void *arg)
{
    wave *w = (wave *)arg;
    const int64_t members = w->end->world->count, start[2] = { 0, 512 * members };
    het_device_iface table = *het_null_device();
    het_device_desc device;
    het_error error;
    het_batch batch;
    het_desc desc;
    het_plan *plan;
    het_ctx *ctx;
    int32_t *token = (int32_t *)support_alloc((size_t)start[1], sizeof *token);
    memset(&desc, 0, sizeof desc);
    memset(&device, 0, sizeof device);
    memset(&batch, 0, sizeof batch);
    memset(token, 0, (size_t)start[1] * sizeof *token);
    table.run = work_on_clocks;
    device.iface = &table;
    desc.model = team_model(HET_LLAMA, start[1]);
    desc.model.layers = WAVE_LAYERS;
    desc.limits.max_tokens = batch.tokens = start[1];
    desc.limits.max_sequences = batch.sequences = 1;
    batch.sequence_start = start;
    batch.token = batch.target = token;
    desc.layout.devices = &device;
    desc.layout.device_count = 1;
    desc.layout.transport = w->transport;
    desc.layout.plan = plan = support_plan_for(w->plan, NULL, 2 * WAVE_LAYERS + 2, members, 1, desc.model.kv_heads);
    desc.host.hook = look_at_clocks;
    desc.host.user = w;
    EXPECT_ERROR(het_create(&desc, &ctx, &error), HET_OK, error.text, "");
    EXPECT_OK(het_step(ctx, &batch, 1, NULL));
    het_destroy(ctx);
    het_plan_free(plan);
    free(token);
    return NULL;
}

/* Member m of R waits for the cores of members m to R - 2 once, whatever the number of layers: R - 1 - m where they take alike, so at most two of
   three members. A wait in every layer would be 8 times that. */
static void backward_by_context_waits_once(void **state)
{
    int64_t members, r, k;
    (void)state;
    assert_int_equal(pthread_key_create(&waves, NULL), 0);
    for (members = 2; members <= WAVE_MOST; members++)
        for (k = 0; k < 3; k++) { /* cores alike, later ones longer, later ones shorter */
            threads_world world;
            threads_end end[WAVE_MOST];
            het_transport transport[WAVE_MOST];
            pthread_t thread[WAVE_MOST];
            wave w[WAVE_MOST];
            char plan[8];
            double waits = 0;
            memset(w, 0, sizeof w);
            snprintf(plan, sizeof plan, "cp%d", (int)members);
            threads_open(&world, end, transport, members, 0);
            world.beside = 0x3c; /* hetrain.h's channels of reductions, which begin in the backward pass */
            for (r = 0; r < members; r++) {
                w[r].end = &end[r], w[r].transport = transport[r], w[r].plan = plan;
                w[r].core = k == 0 ? 1 : k == 1 ? 0.5 + 0.25 * (double)r : 2 - 0.25 * (double)r;
            }
            for (r = 0; r < members; r++) assert_int_equal(pthread_create(&thread[r], NULL, live_on_clocks, &w[r]), 0);
            for (r = 0; r < members; r++) pthread_join(thread[r], NULL);
            for (r = members - 1; r >= 0; r--) {
                if (r < members - 1) waits += w[r].core;
                if (k == 0 && members == 3) print_message("member %d of 3 waits for %.2f attentions in 8 layers\n", (int)r, w[r].waited);
                assert_int_equal(w[r].cores, WAVE_LAYERS);
                if (fabs(w[r].waited - waits) > 1e-9)
                    fail_msg("%s, cores %d: member %d waits for %g, not %g", plan, (int)k, (int)r, w[r].waited, waits);
            }
            pthread_mutex_destroy(&world.lock);
        }
    pthread_key_delete(waves);
}

/* ---- what is refused ---- */

static void refuse_plan(const char *text, int64_t ranks, const char *words)
{
    het_plan_desc desc;
    het_plan *plan;
    het_error error;
    memset(&desc, 0, sizeof desc);
    desc.units = 8;
    desc.ranks = ranks;
    desc.heads = 2;
    error.text[0] = 0;
    assert_true(het_plan_read(&desc, text, strlen(text), &plan, &error) != HET_OK);
    if (strstr(error.text, words) == NULL) fail_msg("%s: '%s' does not say '%s'", text, error.text, words);
}

static void refuse_context(het_family family, const char *text, int64_t ranks, int64_t slices, int bidirectional, const char *words)
{
    het_model_desc model = support_deep_model(family);
    het_error error;
    support_run run;
    het_ctx *ctx;
    if (bidirectional) model.causal = HET_NO;
    support_run_start(&run, &model, 1, SUPPORT_SHORT);
    support_run_ranks(&run, ranks);
    support_run_plan(&run, text, NULL, slices);
    error.text[0] = 0;
    assert_true(het_create(&run.desc, &ctx, &error) != HET_OK);
    if (strstr(error.text, words) == NULL) fail_msg("%s: '%s' does not say '%s'", text, error.text, words);
    support_run_end(&run);
}

/* Two units that read one matrix, the first one's result divided in the one, its x in the other; and a device that only begins chains. */
static het_result crossed_describe(const het_unit *unit, het_unit_info *info)
{
    const int64_t d = unit->model->width;
    const char *const name[2] = { "crossed.one", "crossed.other" };
    het_program *p = het_program_begin(unit, info);
    const int x = het_node_input(p, 0, d), first = het_node_linear(p, x, name[unit->settings != NULL], d, 0.05f);
    het_node_output(p, het_node_residual(p, x, het_node_linear(p, first, name[unit->settings == NULL], d, 0.05f)));
    return het_program_end(p);
}
static const het_unit_iface crossed = { HETRAIN_UNIT_VERSION, "crossed", crossed_describe, het_program_forward, het_program_backward_input,
                                        het_program_backward_weight };
static int32_t only_begins(void *self, const het_op *op)
{
    const int linear = op->kind == HET_OP_LINEAR_FORWARD || op->kind == HET_OP_LINEAR_BACKWARD_INPUT;
    return !(linear && op->u.linear.continues) && het_cpu_device()->supports(self, op);
}

static void columns_that_cannot_be_are_refused(void **state)
{
    const het_model_desc model = team_model(HET_LLAMA, 48);
    het_device_iface begins = *het_cpu_device();
    het_unit units[10];
    het_error error;
    support_run run;
    het_plan *plan;
    int64_t count;
    het_ctx *ctx;
    (void)state;
    support_run_start(&run, &model, 1, SUPPORT_SHORT);
    support_run_ranks(&run, 2);
    support_run_plan(&run, "tp2", NULL, 1);
    begins.supports = only_begins;
    run.device[1].iface = &begins;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text,
                 "rank 1 is in a team by columns, and its device cpu cannot go on");
    run.device[1].iface = NULL;
    run.desc.reduce = HET_REDUCE_FAST;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "teams by columns need reduce = exact");
    run.desc.reduce = HET_REDUCE_EXACT;
    EXPECT_ERROR(het_model_units(&run.desc.model, units, 8, &count, &error), HET_OK, error.text, "");
    units[9] = units[7];
    units[7] = units[8] = units[6];
    units[7].iface = units[8].iface = &crossed;
    units[8].settings = &crossed;
    run.desc.units = units;
    run.desc.unit_count = 10;
    plan = support_plan_for("tp2", NULL, 10, 2, 1, 2);
    run.desc.layout.plan = plan;
    EXPECT_ERROR(het_create(&run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "units divide parameter crossed.o");
    het_plan_free(plan);
    run.desc.layout.plan = NULL;
    support_run_end(&run);
}

#define ONE_STAGE ",\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,8]}]}]}"
static void bad_teams_are_refused(void **state)
{
    (void)state;
    refuse_plan("cp3", 4, "teams of 3 ranks, there are 4");
    refuse_plan("cp0", 2, "teams of 1 to 64");
    refuse_plan("cp:2,", 2, "no share");
    refuse_plan("cp:0,0", 2, "all 2 members of a team are 0");
    refuse_plan("tp:0,0", 2, "all 2 members of a team are 0");
    refuse_plan("cp2x", 2, "unexpected text");
    refuse_plan("ppcp2", 2, "'x' was expected");
    refuse_plan("hp3", 3, "3 ranks for 2 key/value heads");
    refuse_plan("{\"teams\":[{\"ranks\":[0,0]}]" ONE_STAGE, 2, "rank 0 is in the team of rank 0");
    refuse_plan("{\"teams\":[{\"ranks\":[0,2]}]" ONE_STAGE, 2, "rank 2; there are 2 ranks");
    refuse_plan("{\"teams\":[{\"ranks\":[1,0]}]" ONE_STAGE, 2, "rank 0 has a stage, but does not lead");
    refuse_plan("{\"teams\":[{\"ranks\":[0,1],\"shares\":[1]}]" ONE_STAGE, 2, "a team of 2 ranks has 1 shares");
    refuse_plan("{\"teams\":[{\"ranks\":[0,1],\"heads\":[[2]]}]" ONE_STAGE, 2, "divides heads among 1");
    refuse_plan("{\"teams\":[{\"ranks\":[0,1],\"heads\":[[2,0]]}]" ONE_STAGE, 2, "rank 1 has 0 key/value heads");
    refuse_plan("{\"teams\":[{\"ranks\":[0,1]},{\"ranks\":[1]}]" ONE_STAGE, 2, "rank 1 is in the team of rank 0 and in that of rank 1");
    refuse_plan("{\"teams\":[{\"ranks\":[]}]" ONE_STAGE, 2, "a team of 0 ranks");
    refuse_plan("tp3", 3, "3 ranks for 2 key/value heads");
    refuse_plan("{\"teams\":[{\"ranks\":[0,1],\"split\":\"both\"}]" ONE_STAGE, 2, "\"split\" is \"both\", not \"rows\" or \"columns\"");
    refuse_plan("{\"teams\":[{\"ranks\":[0,1],\"split\":\"columns\",\"heads\":[[1],[1]]}]" ONE_STAGE, 2, "a team by columns is one group");
    refuse_context(HET_LLAMA, "{\"teams\":[{\"ranks\":[0,1],\"split\":\"columns\",\"heads\":[[2,1]]}]" ONE_STAGE, 2, 1, 0,
        "group 0 has 3 key/value heads, the model has 2");
    refuse_context(HET_LLAMA, "{\"teams\":[{\"ranks\":[0,1],\"split\":\"columns\"}],\"shard\":\"weights\"" ONE_STAGE, 2, 1, 0,
        "state and gradients can be divided beside it, not weights");
    refuse_context(HET_LLAMA, "{\"teams\":[{\"ranks\":[0,1],\"heads\":[[2,1]]}]" ONE_STAGE, 2, 1, 0,
        "group 0 has 3 key/value heads, the model has 2");
    refuse_context(HET_LLAMA, "cp2", 2, 1, 1, "a bidirectional model's can be divided by heads only");
    refuse_context(HET_LLAMA, "cp2", 2, 2, 0, "with slices heads can be divided");
}

/* ---- members that fail ---- */

typedef struct fault { int64_t rank, at; int silent; } fault;

static het_result fail_hook(void *user, const het_hook_info *info)
{
    const fault *f = (const fault *)user;
    return !f->silent && info->rank == f->rank && info->unit == f->at && info->step == 1 ? HET_ERR_CALLBACK : HET_OK;
}

static int fall_silent(void *user, int64_t rank, int64_t step, int64_t position)
{
    const fault *f = (const fault *)user;
    return f->silent && rank == f->rank && step == 1 && position >= f->at;
}

static void members_that_fail_are_named(void **state)
{
    static const layout layouts[] = { { "cp3", NULL, 3, 1 }, { "hp2", NULL, 2, 1 }, { "pp2xcp2", NULL, 4, 1 }, { "tp2", NULL, 2, 1 } };
    const het_model_desc model = team_model(HET_QWEN3, 48);
    size_t k;
    int round;
    (void)state;
    for (k = 0; k < sizeof layouts / sizeof layouts[0]; k++)
        for (round = 0; round < 6; round++) {
            support_group group;
            support_run run;
            fault f;
            char words[20];
            het_ctx *ctx;
            support_run_start(&run, &model, 2, SUPPORT_SHORT);
            support_run_ranks(&run, layouts[k].ranks);
            support_run_plan(&run, layouts[k].plan, NULL, 1);
            f.rank = round % layouts[k].ranks;
            f.silent = round >= 3;
            f.at = f.silent ? 0 : k == 2 ? 4 * (f.rank / 2) + round : round;
            run.desc.host.hook = fail_hook;
            run.desc.host.user = &f;
            run.desc.emulate.test_hang = fall_silent;
            run.desc.layout.deadline = 0.25;
            ctx = support_create(&run.desc);
            (void)support_step(ctx, &run.data, 0, "012|345");
            support_group_start(&group, &run.data, 1, "012|345");
            assert_int_equal(het_step(ctx, group.batch, group.count, NULL), f.silent ? HET_ERR_TRANSPORT : HET_ERR_CALLBACK);
            snprintf(words, sizeof words, "rank %d, step 2", (int)f.rank);
            if (strstr(het_last_error(ctx), words) == NULL) fail_msg("'%s' does not name %s", het_last_error(ctx), words);
            het_destroy(ctx);
            support_group_end(&group);
            support_run_end(&run);
        }
}

/* ---- as text ---- */

static void teams_are_written_as_they_were_read(void **state)
{
    static const layout layouts[] = { { "cp:5,3,2", NULL, 3, 1 }, { MIXED_5, NULL, 3, 1 }, { "dp2xpp2xcp2", "interleaved", 8, 1 }, { "pp2xhp2",
        NULL, 4, 2 }, { "dp2xtp:3,1", NULL, 4, 1 }, { BESIDE, NULL, 3, 1 } };
    const het_model_desc model = team_model(HET_QWEN3, 48);
    size_t k;
    (void)state;
    for (k = 0; k < sizeof layouts / sizeof layouts[0]; k++) {
        support_buffer text, again;
        het_writer to;
        support_run run;
        int64_t i;
        support_run_start(&run, &model, 1, SUPPORT_SHORT);
        support_run_ranks(&run, layouts[k].ranks);
        support_run_plan(&run, layouts[k].plan, layouts[k].schedule, layouts[k].slices);
        assert_true(run.plan->members == layouts[k].ranks || k == 5);
        support_buffer_start(&text);
        support_buffer_start(&again);
        to = support_writer(&text);
        EXPECT_OK(het_plan_write(run.plan, &to));
        support_buffer_append(&text, "", 1);
        support_run_plan(&run, (const char *)text.data, NULL, 1);
        for (i = 0; i < run.plan->members; i++) {
            int64_t count;
            assert_ptr_equal(het_plan_team(run.plan, run.plan->member[i].rank, &count)->leader == run.plan->member[i].leader ? NULL : &count, NULL);
        }
        to = support_writer(&again);
        EXPECT_OK(het_plan_write(run.plan, &to));
        assert_int_equal(text.size, again.size + 1);
        assert_memory_equal(text.data, again.data, again.size);
        support_buffer_end(&text);
        support_buffer_end(&again);
        support_run_end(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(teams_have_the_bits_of_one_rank), cmocka_unit_test(columns_have_the_bits_of_one_rank),
        cmocka_unit_test(narrow_columns_have_the_bits_of_one_rank), cmocka_unit_test(matrix_registers_are_cut_at_32),
        cmocka_unit_test(columns_under_muon_and_keepers), cmocka_unit_test(long_sequences_straddle_cuts),
        cmocka_unit_test(layouts_of_the_literature),
        cmocka_unit_test(members_keep_all_rows_before_theirs),
        cmocka_unit_test(programs_of_the_user_s_work_in_any_team),
        cmocka_unit_test(attention_of_other_heads_is_not_divided), cmocka_unit_test(bidirectional_units_are_not_cut),
        cmocka_unit_test(whole_activations_are_shown_to_hooks),
        cmocka_unit_test(random_teams_have_the_bits_of_one_rank), cmocka_unit_test(teams_evaluate_and_generate),
        cmocka_unit_test(teams_infer_bidirectional_sequences),
        cmocka_unit_test(replans_to_teams_do_not_show), cmocka_unit_test(traffic_is_what_the_formulas_say),
        cmocka_unit_test(memory_is_what_was_estimated),
        cmocka_unit_test(backward_by_context_waits_once), cmocka_unit_test(bad_teams_are_refused),
        cmocka_unit_test(columns_that_cannot_be_are_refused),
        cmocka_unit_test(members_that_fail_are_named), cmocka_unit_test(teams_are_written_as_they_were_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
