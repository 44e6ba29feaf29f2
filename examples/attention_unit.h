/* The model of examples/attention_pipeline.c and attention_team.c: a llama layer is three programs, one before attention, attention, one behind it.
   Parameters have the names of the built-in units', and so their values. */
#ifndef ATTENTION_UNIT_H
#define ATTENTION_UNIT_H
#include "hetrain.h"

#include <string.h>

enum { WIDTH = 64, HEADS = 4, LAYERS = 4, UNITS = 3 * LAYERS + 2, STAGES = 2 * LAYERS + 1 };

/* y[i] = x W_i^T for `count` matrices of `out` rows. Matrices that read the same x share one chain of its gradient. */
static void products(het_program *p, int x, int count, const char *const *name, int64_t out, int *y) {
    het_matrix matrix[3];
    int i;
    memset(matrix, 0, sizeof matrix);
    for (i = 0; i < count; i++) matrix[i].name = name[i], matrix[i].out = out, matrix[i].init_std = p->unit->model->init_std;
    het_node_linears(p, x, count, matrix, y);
}

/* q, k, v = norm(x) W^T; streams x, q, k, v */
static het_result before_describe(const het_unit *unit, het_unit_info *info) {
    static const char *const name[3] = { "model.layers.#.self_attn.q_proj", "model.layers.#.self_attn.k_proj", "model.layers.#.self_attn.v_proj" };
    het_program *p = het_program_begin(unit, info);
    const int x = het_node_input(p, 0, WIDTH);
    int y[3], i;
    products(p, het_node_norm(p, x, "model.layers.#.input_layernorm"), 3, name, WIDTH, y);
    het_node_output(p, x);
    for (i = 0; i < 3; i++) het_node_output(p, y[i]);
    return het_program_end(p);
}

/* o = softmax(q k^T / sqrt(E)) v, q and k rotated; streams x, o */
static het_result core_describe(const het_unit *unit, het_unit_info *info) {
    het_program *p = het_program_begin(unit, info);
    const int x = het_node_input(p, 0, WIDTH);
    const int q = het_node_rotary(p, het_node_input(p, 1, WIDTH)), k = het_node_rotary(p, het_node_input(p, 2, WIDTH));
    const int v = het_node_residual(p, -1, het_node_input(p, 3, WIDTH)); /* a copy: keys and values are kept, streams are not */
    het_node_output(p, x);
    het_node_output(p, het_node_attention(p, q, k, v));
    return het_program_end(p);
}

/* y = x + o Wo^T; the next layer's x is y + (silu(h Wgate^T) (h Wup^T)) Wdown^T, h = norm(y) */
static het_result behind_describe(const het_unit *unit, het_unit_info *info) {
    static const char *const out = "model.layers.#.self_attn.o_proj", *const down = "model.layers.#.mlp.down_proj";
    static const char *const up[2] = { "model.layers.#.mlp.gate_proj", "model.layers.#.mlp.up_proj" };
    het_program *p = het_program_begin(unit, info);
    const int x = het_node_input(p, 0, WIDTH), o = het_node_input(p, 1, WIDTH);
    int h[2], y, z;
    products(p, o, 1, &out, WIDTH, &z);
    y = het_node_residual(p, x, z);
    products(p, het_node_norm(p, y, "model.layers.#.post_attention_layernorm"), 2, up, unit->model->mlp_width, h);
    products(p, het_node_activation(p, HET_SWIGLU, h[0], h[1]), 1, &down, WIDTH, &z);
    het_node_output(p, het_node_residual(p, y, z));
    return het_program_end(p);
}

#define PROGRAM(name) { HETRAIN_UNIT_VERSION, #name, name##_describe, het_program_forward, het_program_backward_input, het_program_backward_weight }
static const het_unit_iface parts[3] = { PROGRAM(before), PROGRAM(core), PROGRAM(behind) };

/* A model of bytes. units: [UNITS], those of desc where it is not NULL; else the built-in ones are. */
static het_result describe(het_desc *desc, int context, het_unit *units, het_error *error) {
    het_unit plain[2 * LAYERS + 2];
    het_result result;
    int64_t made = 0;
    int i;
    desc->model.family = HET_LLAMA, desc->model.layers = LAYERS, desc->model.width = WIDTH, desc->model.heads = HEADS, desc->model.context = context;
    desc->model.vocab = 256, desc->model.tied = HET_NO;
    result = het_model_complete(&desc->model, error);
    if (result == HET_OK) result = het_model_units(&desc->model, plain, 2 * LAYERS + 2, &made, error);
    if (result != HET_OK || units == NULL) return result;
    units[0] = plain[0], units[UNITS - 1] = plain[made - 1]; /* embed, head */
    for (i = 1; i < UNITS - 1; i++) units[i] = plain[(i - 1) / 3 * 2 + 1], units[i].iface = &parts[(i - 1) % 3];
    desc->units = units, desc->unit_count = UNITS;
    return HET_OK;
}

/* Stage 2 i of a pipeline: behind layer i - 1 and before layer i; stage 2 i + 1: attention of layer i. */
static void set_stage(het_stage *stage, int s, int rank) {
    stage->rank = rank;
    stage->unit_begin = s == 0 ? 0 : s % 2 == 1 ? 3 * (s / 2) + 2 : 3 * (s / 2);
    stage->unit_end = s == STAGES - 1 ? UNITS : s % 2 == 1 ? stage->unit_begin + 1 : 3 * (s / 2) + 2;
}

#endif
