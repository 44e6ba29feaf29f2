/* A unit kind for teams by columns, which examples/grid.c tries out: y = x + x W^T on a grid of a x b x c ranks (AxoNN, SC 2024). The rows of x are
   cut into a parts, W's columns into b, W's rows into c; each rank multiplies a part of x by a part of W. A sum over several parts of W goes from
   rank to rank as one chain, and rows are cut between granules, so the bits are those of one rank. The settings are a `grid`, whose numbers divide
   the width; 1 x 1 x 1 is for ranks that are alone and for teams by rows. */
#ifndef GRID_UNIT_H
#define GRID_UNIT_H
#include "hetrain.h"
#include <stdio.h>
#include <string.h>

#define GRID_TRY(call) do { het_result grid_result = (call); if (grid_result != HET_OK) return grid_result; } while (0)
enum { GRID_X, GRID_DY, GRID_CHAIN, GRID_TENSORS, GRID_BLOCKS = 4 };
typedef struct grid { int64_t a, b, c; } grid;

typedef struct grid_call {
    const het_unit_call *c;
    const grid *g;
    int64_t width, row[2];
    het_view view;              /* of the rows of x that the member's products have */
    const het_team *team;       /* `alone`, where there is none */
    het_team alone;
} grid_call;

/* Member m has part m / (b c) of the rows of x, part m % b of W's columns (side 0) and part m / b % c of W's rows (side 1). */
static int64_t grid_parts(const grid *g, int side) { return side ? g->c : g->b; }
static int64_t grid_part(const grid *g, int64_t m, int side) { return side ? m / g->b % g->c : m % g->b; }

/* A member's box of a tensor whose columns lie on a side: block `block` of `blocks` of its rows; nothing where there is no such block. */
static het_box grid_box(const grid_call *w, int64_t m, int side, int64_t block, int64_t blocks) {
    const int64_t plane = w->g->b * w->g->c, first = w->team->row[m / plane * plane], rows = w->team->row[m / plane * plane + plane] - first;
    const int64_t width = w->width / grid_parts(w->g, side), column = width * grid_part(w->g, m, side);
    const het_box none = { 0, 0, 0, 0 }, box = { first + rows * block / blocks, first + rows * (block + 1) / blocks, column, column + width };
    return block < 0 || block >= blocks ? none : box;
}

static het_op grid_op(het_op_kind kind) { het_op op; memset(&op, 0, sizeof op); op.kind = kind; return op; }
static het_result grid_run(const het_unit_call *c, const het_op *op) { return c->device->iface->run(c->device->self, c->queue, op); }

/* The product of rows [first, first + rows) of the member's part of x, or of dy, with its part of W. */
static het_op grid_product(const grid_call *w, het_op_kind kind, int64_t first, int64_t rows, int continues) {
    const het_unit_call *c = w->c;
    const int64_t in = w->width / w->g->b, out = w->width / w->g->c;
    float *x = c->tensor[GRID_X] + first * in, *dy = c->tensor[GRID_DY] + first * out, *chain = c->tensor[GRID_CHAIN];
    het_op op = grid_op(kind);
    het_linear_args *a = &op.u.linear;
    a->view = &w->view, a->compute = c->compute, a->rows = rows, a->in = in, a->x = x, a->dx = chain + first * in, a->continues = continues;
    a->parts = 1, a->part->out = out, a->part->w = c->weight[0], a->part->dy = dy, a->part->y = chain + first * out, a->part->dw = c->gradient;
    a->workspace = c->workspace;
    return op;
}

/* het_team.move of a rank that is alone: it has all that it wants. */
static het_result grid_copy(const het_unit_call *c, float *from, const het_box *have, int64_t width, float *to, const het_box *want, int64_t wide) {
    het_op op = grid_op(HET_OP_COPY);
    op.u.copy.to = to, op.u.copy.from = from, op.u.copy.size = (size_t)((want->row_end - want->row_begin) * wide) * sizeof(float);
    return width == wide && have->row_end >= want->row_end ? grid_run(c, &op) : HET_ERR_INVALID;
}

static void grid_begin(grid_call *w, const het_unit_call *c) {
    const het_team alone = { 1, 0, w->row, NULL, c->view, grid_copy, NULL };
    het_box rows;
    w->c = c, w->g = (const grid *)c->unit->settings, w->width = c->info->out_width[0], w->alone = alone;
    w->row[0] = c->view->row_begin, w->row[1] = c->view->row_end, w->team = c->team != NULL ? c->team : &w->alone, w->view = *w->team->view;
    rows = grid_box(w, w->team->member, 0, 0, 1);
    w->view.row_begin = rows.row_begin, w->view.row_end = rows.row_end;
    while (w->view.host_granule_start[w->view.granule_begin] < rows.row_begin) w->view.granule_begin++;
    while (w->view.host_granule_start[w->view.granule_end] > rows.row_end) w->view.granule_end--;
}

/* What the members hand on in step s: the one at place p of a line gives block s - p, and gets the next, which it goes on with. */
static het_result grid_hand_on(const grid_call *w, int in, int64_t s) {
    const int64_t me = w->team->member, width = w->width / grid_parts(w->g, !in), first = w->view.row_begin;
    het_box have[HETRAIN_MAX_TEAM], want[HETRAIN_MAX_TEAM];
    float *chain = w->c->tensor[GRID_CHAIN];
    int64_t m;
    for (m = 0; m < w->team->members; m++) {
        const int64_t place = grid_part(w->g, m, in), last = grid_parts(w->g, in) - 1;
        have[m] = grid_box(w, m, !in, place < last ? s - place : -1, GRID_BLOCKS);
        want[m] = grid_box(w, m, !in, place > 0 ? s - place + 1 : -1, GRID_BLOCKS);
    }
    return w->team->move(w->c, chain + (have[me].row_begin - first) * width, have, width, chain + (want[me].row_begin - first) * width, want, width);
}

/* to = from + from W^T, or from + from W. Members gather their parts of `from`, whose columns lie on side `in`, and multiply block by block along
   their line; what the line's last one has goes to the members that own its rows. */
static het_result grid_apply(const het_unit_call *c, het_op_kind kind, float *from, float *to) {
    const int in = kind == HET_OP_LINEAR_BACKWARD_INPUT, out = !in;
    const het_dropout_args residual = { c->view, c->scalars, c->rows, c->info->out_width[0], 0, 0, from, to, to };
    het_op op = grid_op(HET_OP_DROPOUT_FORWARD); /* it drops nothing: to = from + to */
    het_box own[HETRAIN_MAX_TEAM], box[HETRAIN_MAX_TEAM];
    int64_t m, s, last, place;
    grid_call w;
    grid_begin(&w, c);
    last = grid_parts(w.g, in) - 1, place = grid_part(w.g, w.team->member, in);
    for (m = 0; m < w.team->members; m++) {
        const het_box rows = { w.team->row[m], w.team->row[m + 1], 0, w.width };
        own[m] = rows, box[m] = grid_box(&w, m, in, 0, 1);
    }
    GRID_TRY(w.team->move(c, from, own, w.width, c->tensor[in ? GRID_DY : GRID_X], box, w.width / grid_parts(w.g, in)));
    for (s = 0; s < GRID_BLOCKS + last; s++) {
        const het_box rows = grid_box(&w, w.team->member, out, s - place, GRID_BLOCKS);
        const het_op link = grid_product(&w, kind, rows.row_begin - w.view.row_begin, rows.row_end - rows.row_begin, place > 0);
        if (link.u.linear.rows > 0) GRID_TRY(grid_run(c, &link));
        if (last > 0) GRID_TRY(grid_hand_on(&w, in, s));
    }
    for (m = 0; m < w.team->members; m++) box[m] = grid_box(&w, m, out, grid_part(w.g, m, in) == last ? 0 : -1, 1);
    GRID_TRY(w.team->move(c, c->tensor[GRID_CHAIN], box, w.width / grid_parts(w.g, out), to, own, w.width));
    op.u.dropout = residual;
    return grid_run(c, &op);
}

static het_result grid_forward(const het_unit_call *c) { return grid_apply(c, HET_OP_LINEAR_FORWARD, c->in[0], c->out[0]); }
static het_result grid_backward_input(const het_unit_call *c) { return grid_apply(c, HET_OP_LINEAR_BACKWARD_INPUT, c->d_out[0], c->d_in[0]); }
static het_result grid_backward_weight(const het_unit_call *c) {
    grid_call w;
    het_op op;
    grid_begin(&w, c);
    op = grid_product(&w, HET_OP_LINEAR_BACKWARD_WEIGHT, 0, w.view.row_end - w.view.row_begin, 0);
    return c->gradient[0].sum != NULL ? grid_run(c, &op) : HET_OK;
}

static het_result grid_describe(const het_unit *unit, het_unit_info *info) {
    const grid *g = (const grid *)unit->settings;
    const het_team_limits *team = info->team != NULL && info->team->plan != NULL ? info->team : NULL;
    const int64_t d = info->in_width[0], most = g->b > g->c ? g->b : g->c, least = g->b + g->c - most;
    const het_tensor_desc tensor[GRID_TENSORS] = { { "x", d / g->b, HET_KEEP_WEIGHT, 1 }, { "dy", d / g->c, HET_KEEP_GRADIENT, 1 },
                                                   { "chain", d / least, HET_KEEP_CALL, 1 } };
    het_parameter_desc weight = { "", d, d, HET_INIT_NORMAL, 0.05f, 1, 0, 0, 0, 3, 0, 0, { (int32_t)g->c, (int32_t)g->b, (int32_t)g->b, 1 }, 0, 1 };
    het_unit_call c;
    grid_call w;
    float room = 0; /* workspaces depend on no address */
    int i;
    if (info->device != NULL && most > 1 && (team == NULL || team->members != g->a * g->b * g->c)) return HET_ERR_UNSUPPORTED;
    memcpy(info->tensor, tensor, sizeof tensor), info->parameter[0] = weight;
    snprintf(info->parameter[0].name, sizeof info->parameter[0].name, "grid.%d.weight", (int)unit->layer);
    info->parameters = info->out_streams = info->teams = 1, info->out_width[0] = d, info->tensors = GRID_TENSORS;
    info->flops_forward = info->flops_input = info->flops_weight = 2.0 * (double)d * (double)d;
    if (team != NULL) info->exchange = sizeof(float) * (size_t)(d * (team->rows * most > team->group_rows ? team->rows * most : team->group_rows));
    memset(&c, 0, sizeof c), memset(&w, 0, sizeof w);
    c.compute = info->compute, w.c = &c, w.g = g, w.width = d, c.tensor[GRID_X] = c.tensor[GRID_DY] = c.tensor[GRID_CHAIN] = &room;
    for (i = 0; i < 3 && info->device != NULL; i++) {
        const het_op op = grid_product(&w, (het_op_kind)(HET_OP_LINEAR_FORWARD + i), 0, info->max_tokens, 1);
        const size_t size = info->device->iface->workspace(info->device->self, &op);
        if (size > info->workspace) info->workspace = size;
    }
    return HET_OK;
}

static const het_unit_iface grid_unit = { HETRAIN_UNIT_VERSION, "grid", grid_describe, grid_forward, grid_backward_input, grid_backward_weight };
#endif
