/* hetrain_experts.h 0.2.0: experts. A unit kind in place of a layer's MLP: each token goes through
   k of E MLPs, chosen by a router (arXiv 1701.06538; switch: k = 1, arXiv 2101.03961; by hash, arXiv
   2106.04426). A companion of hetrain.h that uses only its public API.

   USE
       #define HETRAIN_EXPERTS_IMPLEMENTATION      in one source file
       #include "hetrain_experts.h"
       het_experts experts;
       het_unit units[2 * LAYERS + 2];
       memset(&experts, 0, sizeof experts);
       experts.experts = 8, experts.used = 2, experts.auxiliary = 0.01f;
       het_experts_units(&desc, &experts, units, 2 * LAYERS + 2, &error)     before het_create
   (examples/experts.c; build/train --experts 8,2.)

   A LAYER   x [n][D], l [n][E], W_e of expert e
       h = norm(x);  l = h R^T;  p = softmax(l);  the k largest l of a token are its experts, of equal
       ones the lower;  g_e = p_e / sum of the chosen p, or p_e alone (`renormalize`)
       o_e = (silu(h Wgate_e^T) (h Wup_e^T)) Wdown_e^T, or gelu(h Wup_e^T) Wdown_e^T
       y = x + dropout(sum over its experts, ascending, of g_e o_e)
   by hash: experts drawn from token and layer without replacement, g_e = 1 / k, no router.
   Parameters, however many experts: norm, router [E][D], gate and up [E F][D], down [E D][F], one
   expert below the other; no biases. Where a product of experts is bf16 the router's stays f32.
   CAPACITY   Of a granule's tokens (CONCEPTS in hetrain.h) an expert takes C = ceil(capacity k rows
   / E) at most: the first ones, or those with the largest gates, of equal ones the first. A choice
   that finds no place is dropped: the token does without it, its other gates stay. When text is
   generated a granule is the tokens of a call.
   BALANCE   a = auxiliary E sum_e f_e p_e of a granule, f_e the share of its k rows choices that e
   got, dropped ones too, p_e the mean of p over its rows. The gradient is that of loss + sum over
   granules of (rows / sum of the step's target weights) a, f_e constant; it goes by the router into
   h. The loss that is reported is without it.

   DETERMINISM   All that a route depends on is a granule's own. A gradient has a term a granule: of
   expert e one chain over its tokens that went to e, ascending. dh of a row is the sum of its
   experts', ascending, then the router's. So threads, groups of granules, slices, pipelines and
   teams by rows do not change a bit.

   OPTIONS   (macros, defined before the include)
       HETRAIN_EXPERTS_IMPLEMENTATION    one file of the program has the code
       HETRAIN_STATIC                    as in hetrain.h: all functions static, a private copy
   MEMORY, ERRORS, THREADS
   Nothing is allocated. Activations are those of an MLP k times as wide, and 2 k D + E floats a
   token more. Routes are loops on the host: devices without host_memory are refused.

   FUNCTIONS
       >>experts_api     het_unit_experts het_experts_units het_experts_get_counts het_experts_to_json

   CONTENTS   (tags to search for)
   public API:
       >>experts_api     settings, units, counts
   implementation:
       >>experts         routing, products, mixing
*/

#ifndef HETRAIN_EXPERTS_H
#define HETRAIN_EXPERTS_H

#ifndef HETRAIN_H
#include "hetrain.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- >>experts_api ------------------------------------------------------------------------------ */
#define HETRAIN_MAX_EXPERTS 512
#define HETRAIN_MAX_EXPERTS_USED 16

typedef enum het_route { HET_ROUTE_DEFAULT = 0 /* top */, HET_ROUTE_TOP = 1, HET_ROUTE_HASH = 2 } het_route;
typedef enum het_drop { HET_DROP_DEFAULT = 0 /* position */, HET_DROP_POSITION = 1 /* later ones */,
                        HET_DROP_PROBABILITY = 2 /* smaller gates */ } het_drop;

/* What a layer's training forwards have met since it was cleared. A step that is repeated counts
   again. */
typedef struct het_experts_counts {
    int64_t rows, dropped;            /* tokens; choices without a place */
    int64_t chosen[HETRAIN_MAX_EXPERTS]; /* by expert, dropped ones too: k rows together */
} het_experts_counts;

/* Of all layers, which share it: het_unit.settings. Must outlive the context. */
typedef struct het_experts {
    uint32_t start_canary;            /* must be 0 */
    int64_t experts;                  /* E, 8; at most HETRAIN_MAX_EXPERTS */
    int64_t used;                     /* k, 2; at most E and HETRAIN_MAX_EXPERTS_USED */
    int64_t width;                    /* F of an expert, the model's mlp_width */
    het_route route;
    het_choice renormalize;           /* a token's gates sum to 1. yes; with k = 1: no */
    float capacity;                   /* 0: nothing is dropped */
    het_drop drop;
    float auxiliary;                  /* weight, 0: none */
    het_experts_counts *counts;       /* [layers], cleared by the caller; NULL: none */
    uint32_t end_canary;              /* must be 0 */
} het_experts;

/* The unit kind. It takes the streams of an MLP and names its parameters as Qwen3-MoE does: for
   "L.mlp.gate_proj" "L.mlp.gate" (router), "L.mlp.experts.0-7.gate_proj", ".up_proj", ".down_proj":
   hetrain_files.h has these as a tensor an expert. Threads: any. */
HETRAIN_API const het_unit_iface *het_unit_experts(void);
/* Sets desc->units to the chain embed, (attention, experts) x L, head, written to units[0 ..
   capacity), of desc->model; het_create copies them. desc->layout.devices are looked at.
   Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_experts_units(het_desc *desc, const het_experts *experts,
                                                            het_unit *units, int64_t capacity, het_error *error);
/* A layer's counts so far, also while a call runs. Threads: any. */
HETRAIN_API void het_experts_get_counts(const het_experts *experts, int64_t layer, het_experts_counts *counts);
/* The config.json of a model with these experts: Qwen3-MoE's where transformers computes the same
   (family qwen3, top-k without capacity), else with a model_type that it refuses
   ("hetrain_qwen3_moe"). `plain` is what het_model_to_config wrote for the model. *length: the
   bytes needed (without the final 0), also when capacity is too small (HET_ERR_LIMIT).
   Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_experts_to_json(const het_model_desc *model, const het_experts *experts,
                                                              const char *plain, char *text, size_t capacity,
                                                              size_t *length);
#ifdef __cplusplus
}
#endif
#endif /* HETRAIN_EXPERTS_H ---- end of the API: to use hetrain_experts.h you need nothing below ---- */
#if defined(HETRAIN_EXPERTS_IMPLEMENTATION) && !defined(HETRAIN_EXPERTS_IMPLEMENTATION_DONE)

#define HETI_T_WANTED
#include "hetrain_text.h"

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

/* =================================================================================================
   >>experts  Routing, products, mixing. A route is kept as the experts of each token; every call
   makes from it an order: chosen rows by expert, of one by token. Rows are picked into that order,
   each expert's products are the device's linear ops over a run of them, and results are mixed back
   into the tokens' order.
   ============================================================================================== */

#if defined(__GNUC__) || defined(__clang__)
#define HETI_X_ADD(p, value) ((void)__atomic_fetch_add((p), (value), __ATOMIC_RELAXED))
#define HETI_X_LOAD(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#else
#define HETI_X_ADD(p, value) ((void)(*(p) += (value)))
#define HETI_X_LOAD(p) (*(p))
#endif

/* Tensors of the unit. A: what the activation is of, gate or up; B: up, where there is a gate. Those
   from B on may be missing. */
enum { HETI_X_H /* also sums of rows */, HETI_X_MEAN, HETI_X_RSTD, HETI_X_CHOSEN, HETI_X_GATES, HETI_X_PICKED,
       HETI_X_A, HETI_X_U, HETI_X_OUT, HETI_X_DOUT, HETI_X_DA, HETI_X_DH, HETI_X_B, HETI_X_DB, HETI_X_P, HETI_X_DL,
       HETI_X_TENSORS };

/* A unit's settings, and where its parameters and tensors are; -1: nowhere. */
typedef struct heti_x {
    het_experts s;
    int64_t d, f;
    int gated, parallel;
    int gain, bias, router, gate, up, down;
    int tensor[HETI_X_TENSORS];
} heti_x;

/* What a call makes of the routes, in its workspace. Pointers into tensors are by row or by place. */
typedef struct heti_x_call {
    heti_x x;
    const het_unit_call *c;
    int64_t picked;           /* rows that go to an expert: places */
    int64_t *begin;           /* [E + 1] expert e has places [begin[e], begin[e + 1]) */
    int64_t *granule;         /* [n + 1] of one expert's places: where its granules begin */
    int32_t *row;             /* [k n] of the slice, by place */
    int32_t *place;           /* [n][k]; -1: dropped */
    int32_t *chosen;          /* [n][k] experts, ascending; dropped: -1 - expert */
    float *gates;             /* [n][k] */
    float *t[HETI_X_TENSORS];
    void *workspace;          /* of ops */
} heti_x_call;

/* ---- settings ---- */

static het_result heti_x_settle(const het_experts *experts, const het_model_desc *m, heti_x *x, het_error *error) {
    het_experts *s = &x->s;
    memset(x, 0, sizeof *x);
    if (experts == NULL) return heti_t_fail(error, HET_ERR_INVALID, "experts: the unit has no settings");
    *s = *experts;
    if (s->start_canary != 0 || s->end_canary != 0)
        return heti_t_fail(error, HET_ERR_INVALID, "experts: the settings were not cleared");
    if (s->experts == 0) s->experts = 8;
    if (s->used == 0) s->used = s->experts < 2 ? 1 : 2;
    if (s->width == 0) s->width = m->mlp_width;
    if (s->route == HET_ROUTE_DEFAULT) s->route = HET_ROUTE_TOP;
    if (s->renormalize == HET_DEFAULT) s->renormalize = s->used > 1 ? HET_YES : HET_NO;
    if (s->experts < 1 || s->experts > HETRAIN_MAX_EXPERTS || s->used < 1 || s->used > s->experts ||
        s->used > HETRAIN_MAX_EXPERTS_USED)
        return heti_t_fail(error, HET_ERR_INVALID, "experts: %d of %d experts; at most %d of %d", s->used, s->experts,
                           HETI_T_CAST(int64_t, HETRAIN_MAX_EXPERTS_USED), HETI_T_CAST(int64_t, HETRAIN_MAX_EXPERTS));
    if (s->width < 1 || s->width > INT32_MAX / s->experts)
        return heti_t_fail(error, HET_ERR_INVALID, "experts: width %d", s->width);
    if (!(s->capacity >= 0 && s->capacity <= 1e6f) || !(s->auxiliary >= 0 && s->auxiliary <= 1e6f))
        return heti_t_fail(error, HET_ERR_INVALID, "experts: capacity %g, auxiliary %g; from 0 to 1e6",
                           HETI_T_CAST(double, s->capacity), HETI_T_CAST(double, s->auxiliary));
    if (s->route == HET_ROUTE_HASH && s->auxiliary > 0)
        return heti_t_fail(error, HET_ERR_INVALID, "experts: auxiliary %g; a route by hash has no router",
                           HETI_T_CAST(double, s->auxiliary));
    x->d = m->width;
    x->f = s->width;
    x->gated = m->activation == HET_SWIGLU;
    x->parallel = m->parallel == HET_YES;
    return HET_OK;
}

/* Where the parameters are: norm, router, gate, up, down. Returns how many there are. */
static int heti_x_parameters(const het_model_desc *m, heti_x *x) {
    int n = 0;
    x->gain = n++;
    x->bias = m->norm == HET_LAYERNORM ? n++ : -1;
    x->router = x->s.route == HET_ROUTE_TOP ? n++ : -1;
    x->gate = x->gated ? n++ : -1;
    x->up = n++;
    x->down = n++;
    return n;
}

/* Tensors that there are. Returns how many. */
static int heti_x_tensors(heti_x *x) {
    int i, n = 0;
    for (i = 0; i < HETI_X_TENSORS; i++)
        x->tensor[i] = (i == HETI_X_B || i == HETI_X_DB) && !x->gated ? -1 : i >= HETI_X_P && x->router < 0 ? -1 : n++;
    return n;
}

/* Cuts a call's workspace. Returns its bytes without those of ops. */
static size_t heti_x_cut(heti_x_call *w, int64_t rows, void *workspace) {
    heti_t_arena arena = { HETI_T_CAST(char *, workspace), 0, 0 };
    w->begin = HETI_T_TAKE(&arena, int64_t, w->x.s.experts + 1);
    w->granule = HETI_T_TAKE(&arena, int64_t, rows + 1);
    w->row = HETI_T_TAKE(&arena, int32_t, rows * w->x.s.used);
    w->place = HETI_T_TAKE(&arena, int32_t, rows * w->x.s.used);
    return (arena.used + 63) / 64 * 64;
}

/* ---- ops ---- */

static het_result heti_x_run(const het_unit_call *c, const het_op *op) {
    return c->device->iface->run(c->device->self, c->queue, op);
}

static het_op heti_x_norm(const heti_x_call *w, het_op_kind kind) {
    const het_unit_call *c = w->c;
    const het_model_desc *m = c->unit->model;
    het_op op;
    het_norm_args *a = &op.u.norm;
    memset(&op, 0, sizeof op);
    op.kind = kind;
    a->view = c->view;
    a->kind = m->norm;
    a->rows = c->rows;
    a->width = w->x.d;
    a->rows_per_token = 1;
    a->epsilon = m->norm_epsilon;
    a->x = c->in[0];
    a->gain = c->weight[w->x.gain];
    a->dgain = &c->gradient[w->x.gain];
    a->bias = w->x.bias < 0 ? NULL : c->weight[w->x.bias];
    a->dbias = w->x.bias < 0 ? NULL : &c->gradient[w->x.bias];
    a->y = w->t[HETI_X_H];
    a->mean = w->t[HETI_X_MEAN];
    a->rstd = w->t[HETI_X_RSTD];
    a->dy = w->t[HETI_X_DH];
    a->dx = c->d_in[0];
    a->residual = w->x.parallel ? NULL : c->d_out[0];
    a->workspace = w->workspace;
    return op;
}

static het_op heti_x_linear(const heti_x_call *w, het_op_kind kind, int64_t rows, int64_t in) {
    het_op op;
    memset(&op, 0, sizeof op);
    op.kind = kind;
    op.u.linear.compute = w->c->compute;
    op.u.linear.rows = rows;
    op.u.linear.in = in;
    op.u.linear.workspace = w->workspace;
    return op;
}

/* Rows [first, first + out) of parameter p, the next part of a product; dw: room for its gradient. */
static het_linear_part *heti_x_part(const heti_x_call *w, het_op *op, int p, int64_t first, int64_t out,
                                    het_gradient *dw) {
    het_linear_args *a = &op->u.linear;
    het_linear_part *part = &a->part[a->parts++];
    const int64_t offset = first * a->in;
    part->out = out;
    part->w = w->c->weight[p] != NULL ? w->c->weight[p] + offset : NULL;
    part->w_bf16 = w->c->weight_bf16[p] != NULL ? w->c->weight_bf16[p] + offset : NULL;
    *dw = w->c->gradient[p];
    if (dw->sum != NULL) dw->sum = HETI_T_CAST(char *, dw->sum) + offset * (dw->exact && !dw->final ? 8 : 4);
    part->dw = dw;
    return part;
}

static het_result heti_x_router(const heti_x_call *w, het_op_kind kind) {
    het_gradient dw;
    het_op op = heti_x_linear(w, kind, w->c->rows, w->x.d);
    het_linear_part *part = heti_x_part(w, &op, w->x.router, 0, w->x.s.experts, &dw);
    op.u.linear.compute = HET_F32;
    op.u.linear.view = w->c->view;
    op.u.linear.x = op.u.linear.dx = w->t[HETI_X_H];
    part->y = w->t[HETI_X_P];
    part->dy = w->t[HETI_X_DL];
    return heti_x_run(w->c, &op);
}

static het_result heti_x_activation(const heti_x_call *w, het_op_kind kind) {
    het_op op;
    het_activation_args *a = &op.u.activation;
    memset(&op, 0, sizeof op);
    op.kind = kind;
    a->kind = w->c->unit->model->activation;
    a->count = w->picked * w->x.f;
    a->a = w->t[HETI_X_A];
    a->b = w->t[HETI_X_B];
    a->y = w->t[HETI_X_U];
    a->dy = a->da = w->t[HETI_X_DA];
    a->db = w->t[HETI_X_DB];
    return a->count > 0 ? heti_x_run(w->c, &op) : HET_OK;
}

/* forward: y = x + drop(s), s in H; backward: H = drop(dy). */
static het_result heti_x_dropout(const heti_x_call *w, het_op_kind kind) {
    const het_unit_call *c = w->c;
    het_op op;
    het_dropout_args *a = &op.u.dropout;
    memset(&op, 0, sizeof op);
    op.kind = kind;
    a->view = c->view;
    a->scalars = c->scalars;
    a->rows = c->rows;
    a->width = w->x.d;
    a->probability = c->training ? c->unit->model->dropout : 0.0f;
    a->site = HETI_T_CAST(int32_t, c->index * 4);
    a->a = kind == HET_OP_DROPOUT_FORWARD ? c->in[w->x.parallel] : NULL;
    a->x = kind == HET_OP_DROPOUT_FORWARD ? w->t[HETI_X_H] : c->d_out[0];
    a->y = kind == HET_OP_DROPOUT_FORWARD ? c->out[0] : w->t[HETI_X_H];
    return heti_x_run(c, &op);
}

/* ---- products per expert: rows of places [begin[e], begin[e + 1]) ---- */

/* The granules of one expert's places, as a micro-batch of their own. */
static het_view heti_x_view(const heti_x_call *w, int64_t e) {
    const het_view *whole = w->c->view;
    const int64_t first = w->begin[e], count = w->begin[e + 1] - first;
    int64_t g, at = 0;
    het_view v;
    memset(&v, 0, sizeof v);
    for (g = whole->granule_begin; g < whole->granule_end; g++) {
        const int64_t end = whole->host_granule_start[g + 1] - whole->row_begin, before = at;
        while (at < count && w->row[first + at] < end) at++;
        if (at > before) w->granule[v.granule_end++] = before;
    }
    w->granule[v.granule_end] = count;
    v.tokens = v.row_end = count;
    v.granules = v.granule_end;
    v.granule_start = v.host_granule_start = w->granule;
    return v;
}

/* Gate and up, from picked h to A and B; or down, from U to OUT. Their gradients: DA, DB, DOUT. */
static het_result heti_x_product(const heti_x_call *w, het_op_kind kind, int64_t e, const het_view *view, int down) {
    const int64_t d = w->x.d, f = w->x.f, first = w->begin[e];
    het_gradient dw[2];
    het_op op = heti_x_linear(w, kind, w->begin[e + 1] - first, down ? f : d);
    het_linear_args *a = &op.u.linear;
    het_linear_part *part;
    a->view = view;
    a->x = down ? w->t[HETI_X_U] + first * f : w->t[HETI_X_PICKED] + first * d;
    a->dx = down ? w->t[HETI_X_DA] + first * f : w->t[HETI_X_PICKED] + first * d;
    part = heti_x_part(w, &op, down ? w->x.down : w->x.gated ? w->x.gate : w->x.up, e * (down ? d : f), down ? d : f,
                       &dw[0]);
    part->y = down ? w->t[HETI_X_OUT] + first * d : w->t[HETI_X_A] + first * f;
    part->dy = down ? w->t[HETI_X_DOUT] + first * d : w->t[HETI_X_DA] + first * f;
    if (!down && w->x.gated) {
        part = heti_x_part(w, &op, w->x.up, e * f, f, &dw[1]);
        part->y = w->t[HETI_X_B] + first * f;
        part->dy = w->t[HETI_X_DB] + first * f;
    }
    return heti_x_run(w->c, &op);
}

/* One kind of product of all experts that have rows. */
static het_result heti_x_products(const heti_x_call *w, het_op_kind kind, int down) {
    int64_t e;
    for (e = 0; e < w->x.s.experts; e++)
        if (w->begin[e] < w->begin[e + 1]) HETI_T_TRY(heti_x_product(w, kind, e, NULL, down));
    return HET_OK;
}

/* Gradients of all experts' matrices; those without rows too, whose sums may have to be cleared. */
static het_result heti_x_terms(const heti_x_call *w) {
    const het_gradient *up = &w->c->gradient[w->x.up], *down = &w->c->gradient[w->x.down];
    const het_gradient *gate = w->x.gated ? &w->c->gradient[w->x.gate] : up;
    int64_t e;
    for (e = 0; e < w->x.s.experts; e++) {
        const het_view view = heti_x_view(w, e);
        if (up->sum != NULL || gate->sum != NULL)
            HETI_T_TRY(heti_x_product(w, HET_OP_LINEAR_BACKWARD_WEIGHT, e, &view, 0));
        if (down->sum != NULL) HETI_T_TRY(heti_x_product(w, HET_OP_LINEAR_BACKWARD_WEIGHT, e, &view, 1));
    }
    return HET_OK;
}

/* ---- routing ---- */

/* exp(x), x <= 0: 2^n (1 + r + ... + r^13 / 13!), |r| <= ln 2 / 2, by operations that round alike
   everywhere. */
static double heti_x_exp(double x) {
    static const double heti_x_ln2[2] = { 6.93147180369123816490e-01, 1.90821492927058770002e-10 };
    const double n = floor(fma(x, 1.44269504088896338700, 0.5));
    const double r = fma(-n, heti_x_ln2[1], fma(-n, heti_x_ln2[0], x));
    double y = 1;
    int i;
    if (!(x > -700)) return x <= -700 ? 0 : x;
    for (i = 13; i > 0; i--) y = fma(y, r / i, 1);
    return ldexp(y, HETI_T_CAST(int, n));
}

/* p = softmax(l), in place. The sum is in double, ascending. */
static void heti_x_softmax(float *p, int64_t count) {
    double part[HETRAIN_MAX_EXPERTS], sum = 0;
    float most = p[0];
    int64_t e;
    for (e = 1; e < count; e++) most = p[e] > most ? p[e] : most;
    for (e = 0; e < count; e++) sum += part[e] = heti_x_exp(HETI_T_CAST(double, p[e]) - HETI_T_CAST(double, most));
    for (e = 0; e < count; e++) p[e] = HETI_T_CAST(float, part[e] / sum);
}

/* The k largest of l, of equal ones the first, ascending by index. */
static void heti_x_top(const float *l, const heti_x *x, int32_t *chosen) {
    const int64_t k = x->s.used;
    int64_t count = 0, e, i, least;
    for (e = 0; e < x->s.experts; e++) {
        if (count < k) {
            chosen[count++] = HETI_T_CAST(int32_t, e);
            continue;
        }
        for (least = 0, i = 1; i < k; i++) /* of equal ones the last goes */
            if (l[chosen[i]] <= l[chosen[least]]) least = i;
        if (!(l[e] > l[chosen[least]])) continue;
        for (i = least; i + 1 < k; i++) chosen[i] = chosen[i + 1];
        chosen[k - 1] = HETI_T_CAST(int32_t, e);
    }
}

/* k different experts from token and layer: number i is one of the E - i that are left. */
static void heti_x_hash(int32_t token, int64_t layer, const heti_x *x, int32_t *chosen) {
    int64_t i, j, e;
    for (i = 0; i < x->s.used; i++) {
        const int64_t key[3] = { token, layer, i };
        e = HETI_T_CAST(int64_t, het_xxh64(key, sizeof key, 0) % HETI_T_CAST(uint64_t, x->s.experts - i));
        for (j = 0; j < i && chosen[j] <= e; j++) e++; /* those taken are ascending */
        memmove(chosen + j + 1, chosen + j, HETI_T_CAST(size_t, i - j) * sizeof *chosen);
        chosen[j] = HETI_T_CAST(int32_t, e);
    }
}

/* Sum of a token's chosen p. */
static double heti_x_chosen_sum(const heti_x *x, const float *p, const int32_t *chosen) {
    double sum = 0;
    int64_t i;
    for (i = 0; i < x->s.used; i++) sum += HETI_T_CAST(double, p[chosen[i] < 0 ? -1 - chosen[i] : chosen[i]]);
    return sum;
}

static void heti_x_choose(heti_x_call *w, int64_t r) {
    const heti_x *x = &w->x;
    const int64_t k = x->s.used;
    int32_t *chosen = w->chosen + r * k;
    float *p = x->router < 0 ? NULL : w->t[HETI_X_P] + r * x->s.experts;
    double sum = 1;
    int64_t i;
    if (p == NULL) heti_x_hash(w->c->view->token[w->c->view->row_begin + r], w->c->unit->layer, x, chosen);
    else {
        heti_x_top(p, x, chosen);
        heti_x_softmax(p, x->s.experts);
        if (x->s.renormalize == HET_YES) sum = heti_x_chosen_sum(x, p, chosen);
    }
    for (i = 0; i < k; i++)
        w->gates[r * k + i] = p == NULL ? 1.0f / HETI_T_CAST(float, k)
            : HETI_T_CAST(float, HETI_T_CAST(double, p[chosen[i]]) / sum);
}

/* ceil(capacity k rows / E); what the capacity's rounding to a float adds does not count. */
static int64_t heti_x_places(const heti_x *x, int64_t rows) {
    const double share = HETI_T_CAST(double, x->s.used * rows) / HETI_T_CAST(double, x->s.experts);
    const double places = ceil(HETI_T_CAST(double, x->s.capacity) * share * (1 - 1e-6));
    return places < HETI_T_CAST(double, rows) ? HETI_T_CAST(int64_t, places) : rows;
}

static uint32_t heti_x_bits(float gate) {
    uint32_t bits;
    memcpy(&bits, &gate, sizeof bits);
    return bits;
}

/* The largest bits that at least `places` of expert e's gates in slots [begin, end) have or exceed:
   bits of floats that are not negative are in their order. */
static uint32_t heti_x_bar(const heti_x_call *w, int64_t begin, int64_t end, int32_t e, int64_t places) {
    uint32_t bar = 0;
    int64_t i, count;
    int bit;
    for (bit = 30; bit >= 0; bit--) {
        const uint32_t more = bar | UINT32_C(1) << bit;
        for (count = 0, i = begin; i < end; i++) count += w->chosen[i] == e && heti_x_bits(w->gates[i]) >= more;
        if (count >= places) bar = more;
    }
    return bar;
}

/* Drops what finds no place with expert e among slots [begin, end) of a granule. */
static void heti_x_drop(heti_x_call *w, int64_t begin, int64_t end, int32_t e, int64_t places) {
    const int by_gate = w->x.s.drop == HET_DROP_PROBABILITY;
    const uint32_t bar = by_gate ? heti_x_bar(w, begin, end, e, places) : 0;
    int64_t i, left = places;
    for (i = begin; i < end && by_gate; i++) left -= w->chosen[i] == e && heti_x_bits(w->gates[i]) > bar;
    for (i = begin; i < end; i++) {
        if (w->chosen[i] != e || (by_gate && heti_x_bits(w->gates[i]) > bar)) continue;
        if (left > 0 && (!by_gate || heti_x_bits(w->gates[i]) == bar)) left--;
        else w->chosen[i] = -1 - e;
    }
}

/* How often each expert was chosen in slots [begin, end), dropped or not. */
static void heti_x_count(const heti_x_call *w, int64_t begin, int64_t end, int64_t *count) {
    int64_t i;
    HETI_T_CLEAR(count, w->x.s.experts);
    for (i = begin; i < end; i++) count[w->chosen[i] < 0 ? -1 - w->chosen[i] : w->chosen[i]]++;
}

/* Rows [begin, end) of the slice that are granule g. */
static void heti_x_granule(const heti_x_call *w, int64_t g, int64_t *begin, int64_t *end) {
    *begin = w->c->view->host_granule_start[g] - w->c->view->row_begin;
    *end = w->c->view->host_granule_start[g + 1] - w->c->view->row_begin;
}

/* Experts and gates of the rank's own rows, from logits in P. */
static void heti_x_route(heti_x_call *w) {
    const heti_x *x = &w->x;
    const int64_t k = x->s.used;
    het_experts_counts *counts = x->s.counts;
    int64_t count[HETRAIN_MAX_EXPERTS], g, r, begin, end;
    int32_t e;
    for (g = w->c->view->granule_begin; g < w->c->view->granule_end; g++) {
        heti_x_granule(w, g, &begin, &end);
        for (r = begin; r < end; r++) heti_x_choose(w, r);
        heti_x_count(w, begin * k, end * k, count);
        for (e = 0; e < x->s.experts && x->s.capacity > 0; e++) {
            const int64_t places = heti_x_places(x, end - begin);
            if (count[e] > places) heti_x_drop(w, begin * k, end * k, e, places);
        }
    }
    if (counts == NULL || !w->c->training || w->c->again) return;
    counts += w->c->unit->layer;
    heti_x_count(w, 0, w->c->rows * k, count);
    for (e = 0; e < x->s.experts; e++) HETI_X_ADD(&counts->chosen[e], count[e]);
    for (r = end = 0; r < w->c->rows * k; r++) end += w->chosen[r] < 0;
    HETI_X_ADD(&counts->rows, w->c->rows);
    HETI_X_ADD(&counts->dropped, end);
}

/* Places by expert, of one by row. */
static void heti_x_order(heti_x_call *w) {
    const int64_t k = w->x.s.used, slots = w->c->rows * k;
    int64_t next[HETRAIN_MAX_EXPERTS], i, e;
    HETI_T_CLEAR(w->begin, w->x.s.experts + 1);
    for (i = 0; i < slots; i++)
        if (w->chosen[i] >= 0) w->begin[w->chosen[i] + 1]++;
    for (e = 0; e < w->x.s.experts; e++) {
        w->begin[e + 1] += w->begin[e];
        next[e] = w->begin[e];
    }
    for (i = 0; i < slots; i++) {
        w->place[i] = w->chosen[i] < 0 ? -1 : HETI_T_CAST(int32_t, next[w->chosen[i]]++);
        if (w->place[i] >= 0) w->row[w->place[i]] = HETI_T_CAST(int32_t, i / k);
    }
    w->picked = w->begin[w->x.s.experts];
}

/* ---- picking and mixing: rows of D floats, to places and back ---- */

static void heti_x_pick(const heti_x_call *w, const float *rows, float *places) {
    const int64_t d = w->x.d;
    int64_t i;
    for (i = 0; i < w->picked; i++) HETI_T_COPY(places + i * d, rows + w->row[i] * d, d);
}

/* places = gate * rows */
static void heti_x_pick_scaled(const heti_x_call *w, const float *rows, float *places) {
    const int64_t d = w->x.d, k = w->x.s.used;
    int64_t i, j;
    for (i = 0; i < w->c->rows * k; i++) {
        const float gate = w->gates[i], *from = rows + i / k * d;
        float *to = places + w->place[i] * d;
        for (j = 0; w->place[i] >= 0 && j < d; j++) to[j] = gate * from[j];
    }
}

/* rows = sum of gate * places, experts ascending, in double (a product of two floats is exact
   there), rounded once. */
static void heti_x_mix(const heti_x_call *w, const float *places, float *rows) {
    const int64_t d = w->x.d, k = w->x.s.used;
    int64_t r, i, j, at, n;
    for (r = 0; r < w->c->rows; r++)
        for (at = 0; at < d; at += n) {
            double sum[64] = { 0 };
            n = d - at < 64 ? d - at : 64;
            for (i = r * k; i < (r + 1) * k; i++) {
                const double gate = HETI_T_CAST(double, w->gates[i]);
                const float *from = places + w->place[i] * d + at;
                for (j = 0; w->place[i] >= 0 && j < n; j++) sum[j] += gate * HETI_T_CAST(double, from[j]);
            }
            for (j = 0; j < n; j++) rows[r * d + at + j] = HETI_T_CAST(float, sum[j]);
        }
}

/* rows = sum of places, experts ascending, and what `last` has, NULL: nothing. last may be rows. */
static void heti_x_add(const heti_x_call *w, const float *places, const float *last, float *rows) {
    const int64_t d = w->x.d, k = w->x.s.used;
    int64_t r, i, j;
    for (r = 0; r < w->c->rows; r++)
        for (j = 0; j < d; j++) {
            float sum = 0;
            for (i = r * k; i < (r + 1) * k; i++) sum += w->place[i] < 0 ? 0.0f : places[w->place[i] * d + j];
            rows[r * d + j] = last != NULL ? sum + last[r * d + j] : sum;
        }
}

/* ---- the router's gradient ---- */

/* a . b in double: 8 chains, whose products are exact, then their sum. */
static double heti_x_dot(const float *a, const float *b, int64_t count) {
    double lane[8] = { 0 }, sum = 0;
    int64_t i, j;
    for (i = 0; i + 8 <= count; i += 8)
        for (j = 0; j < 8; j++) lane[j] += HETI_T_CAST(double, a[i + j]) * HETI_T_CAST(double, b[i + j]);
    for (j = 0; i + j < count; j++) lane[j] += HETI_T_CAST(double, a[i + j]) * HETI_T_CAST(double, b[i + j]);
    for (j = 0; j < 8; j++) sum += lane[j];
    return sum;
}

/* dl of a row: dp_e = balance[e], and for its experts with dg = dy . o (0 where dropped) also dg_e, or
   (dg_e - sum of dg g) / sum of the chosen p; dl_e = p_e (dp_e - sum of dp p). */
static void heti_x_logit_row(const heti_x_call *w, int64_t r, const float *dy, const double *balance, float *dl) {
    const heti_x *x = &w->x;
    const int64_t k = x->s.used;
    const float *p = w->t[HETI_X_P] + r * x->s.experts;
    double dp[HETRAIN_MAX_EXPERTS], dg[HETRAIN_MAX_EXPERTS_USED], mean = 0, sum = 1;
    int64_t i, e;
    HETI_T_COPY(dp, balance, x->s.experts);
    for (i = 0; i < k; i++) {
        const int32_t place = w->place[r * k + i];
        dg[i] = place < 0 ? 0 : heti_x_dot(dy, w->t[HETI_X_OUT] + place * x->d, x->d);
        mean = fma(dg[i], HETI_T_CAST(double, w->gates[r * k + i]), mean);
    }
    if (x->s.renormalize == HET_YES) sum = heti_x_chosen_sum(x, p, w->chosen + r * k);
    else mean = 0;
    for (i = 0; i < k; i++) {
        const int32_t slot = w->chosen[r * k + i];
        dp[slot < 0 ? -1 - slot : slot] += (dg[i] - mean) / sum;
    }
    for (e = 0, sum = 0; e < x->s.experts; e++) sum = fma(dp[e], HETI_T_CAST(double, p[e]), sum);
    for (e = 0; e < x->s.experts; e++) dl[e] = HETI_T_CAST(float, HETI_T_CAST(double, p[e]) * (dp[e] - sum));
}

/* dL/dl of all rows, dy: [n][D] of the sum over experts. Of a granule's auxiliary loss the part of
   dp_e is auxiliary E f_e / (sum of the step's weights). */
static void heti_x_logits(const heti_x_call *w, const float *dy) {
    const heti_x *x = &w->x;
    const double scale = HETI_T_CAST(double, x->s.auxiliary) * HETI_T_CAST(double, w->c->scalars->inverse_weight);
    int64_t count[HETRAIN_MAX_EXPERTS], g, r, e, begin, end;
    double balance[HETRAIN_MAX_EXPERTS];
    for (g = w->c->view->granule_begin; g < w->c->view->granule_end; g++) {
        heti_x_granule(w, g, &begin, &end);
        heti_x_count(w, begin * x->s.used, end * x->s.used, count);
        for (e = 0; e < x->s.experts; e++)
            balance[e] = scale * (HETI_T_CAST(double, count[e] * x->s.experts) /
                                  HETI_T_CAST(double, x->s.used * (end - begin)));
        for (r = begin; r < end; r++)
            heti_x_logit_row(w, r, dy + r * x->d, balance, w->t[HETI_X_DL] + r * x->s.experts);
    }
}

/* ---- the calls ---- */

/* Which size says that the two kinds of 4 bytes lie in the same tensors. */
static het_result heti_x_open(const het_unit_call *c, heti_x_call *w) {
    const het_experts *settings = HETI_T_CAST(const het_experts *, c->unit->settings);
    int i;
    memset(w, 0, sizeof *w);
    HETI_T_TRY(heti_x_settle(settings, c->unit->model, &w->x, NULL));
    (void)heti_x_parameters(c->unit->model, &w->x);
    (void)heti_x_tensors(&w->x);
    w->c = c;
    w->workspace = HETI_T_CAST(char *, c->workspace) + heti_x_cut(w, c->info->max_tokens, c->workspace);
    for (i = 0; i < HETI_X_TENSORS; i++) w->t[i] = w->x.tensor[i] < 0 ? NULL : c->tensor[w->x.tensor[i]];
    w->gates = w->t[HETI_X_GATES];
    w->chosen = HETI_T_CAST(int32_t *, HETI_T_CAST(void *, w->t[HETI_X_CHOSEN]));
    return HET_OK;
}

static het_result heti_x_forward(const het_unit_call *c) {
    heti_x_call w;
    het_op norm;
    HETI_T_TRY(heti_x_open(c, &w));
    norm = heti_x_norm(&w, HET_OP_NORM_FORWARD);
    HETI_T_TRY(heti_x_run(c, &norm));
    if (w.x.router >= 0) HETI_T_TRY(heti_x_router(&w, HET_OP_LINEAR_FORWARD));
    heti_x_route(&w);
    heti_x_order(&w);
    heti_x_pick(&w, w.t[HETI_X_H], w.t[HETI_X_PICKED]);
    HETI_T_TRY(heti_x_products(&w, HET_OP_LINEAR_FORWARD, 0));
    HETI_T_TRY(heti_x_activation(&w, HET_OP_ACTIVATION_FORWARD));
    HETI_T_TRY(heti_x_products(&w, HET_OP_LINEAR_FORWARD, 1));
    heti_x_mix(&w, w.t[HETI_X_OUT], w.t[HETI_X_H]);
    return heti_x_dropout(&w, HET_OP_DROPOUT_FORWARD);
}

static het_result heti_x_backward_input(const het_unit_call *c) {
    heti_x_call w;
    const float *dy = c->d_out[0];
    het_op op;
    HETI_T_TRY(heti_x_open(c, &w));
    heti_x_order(&w);
    if (c->training && c->unit->model->dropout > 0) {
        HETI_T_TRY(heti_x_dropout(&w, HET_OP_DROPOUT_BACKWARD));
        dy = w.t[HETI_X_H];
    }
    heti_x_pick_scaled(&w, dy, w.t[HETI_X_DOUT]);
    if (w.x.router >= 0) heti_x_logits(&w, dy);
    HETI_T_TRY(heti_x_products(&w, HET_OP_LINEAR_BACKWARD_INPUT, 1));
    HETI_T_TRY(heti_x_activation(&w, HET_OP_ACTIVATION_BACKWARD));
    HETI_T_TRY(heti_x_products(&w, HET_OP_LINEAR_BACKWARD_INPUT, 0));
    if (w.x.router >= 0) HETI_T_TRY(heti_x_router(&w, HET_OP_LINEAR_BACKWARD_INPUT));
    heti_x_add(&w, w.t[HETI_X_PICKED], w.x.router < 0 ? NULL : w.t[HETI_X_H], w.t[HETI_X_DH]);
    if (w.x.parallel && c->d_in[1] != c->d_out[0]) {
        memset(&op, 0, sizeof op);
        op.kind = HET_OP_COPY;
        op.u.copy.to = c->d_in[1];
        op.u.copy.from = c->d_out[0];
        op.u.copy.size = HETI_T_CAST(size_t, c->rows * w.x.d) * sizeof(float);
        HETI_T_TRY(heti_x_run(c, &op));
    }
    op = heti_x_norm(&w, HET_OP_NORM_BACKWARD_INPUT);
    return heti_x_run(c, &op);
}

static het_result heti_x_backward_weight(const het_unit_call *c) {
    heti_x_call w;
    het_op op;
    HETI_T_TRY(heti_x_open(c, &w));
    heti_x_order(&w);
    op = heti_x_norm(&w, HET_OP_NORM_FORWARD); /* h again */
    HETI_T_TRY(heti_x_run(c, &op));
    heti_x_pick(&w, w.t[HETI_X_H], w.t[HETI_X_PICKED]);
    HETI_T_TRY(heti_x_activation(&w, HET_OP_ACTIVATION_FORWARD));
    HETI_T_TRY(heti_x_terms(&w));
    if (w.x.router >= 0 && c->gradient[w.x.router].sum != NULL)
        HETI_T_TRY(heti_x_router(&w, HET_OP_LINEAR_BACKWARD_WEIGHT));
    if (c->gradient[w.x.gain].sum == NULL && (w.x.bias < 0 || c->gradient[w.x.bias].sum == NULL)) return HET_OK;
    op = heti_x_norm(&w, HET_OP_NORM_BACKWARD_WEIGHT);
    return heti_x_run(c, &op);
}

/* ---- describing ---- */

/* `like`: of the MLP, for decay and how it starts. The name is `end` behind the MLP's. */
static het_result heti_x_parameter(het_unit_info *info, const het_parameter_desc *like, const char *end, int64_t rows,
                                   int64_t columns) {
    het_parameter_desc *to = &info->parameter[info->parameters++];
    const char *mlp = strstr(like->name, ".mlp.");
    heti_t_text t;
    size_t i;
    *to = *like;
    if (columns == 1) return HET_OK;
    if (mlp == NULL) return HET_ERR_UNSUPPORTED;
    t = heti_t_text_in(to->name, sizeof to->name);
    for (i = 0; like->name + i < mlp + 5; i++) heti_t_char(&t, like->name[i]);
    heti_t_put(&t, end);
    to->rows = rows;
    to->columns = columns;
    return t.length < sizeof to->name ? HET_OK : HET_ERR_LIMIT;
}

/* Norm, router, gate, up, down: those of the model's MLP say what they are called and start as. */
static het_result heti_x_describe_parameters(const het_unit *unit, const heti_x *x, het_unit_info *info) {
    static const char *const heti_x_names[3] = { "gate_proj", "up_proj", "down_proj" };
    het_program program;
    het_unit_info mlp = *info;
    const het_parameter_desc *first, *last;
    char name[64];
    int i;
    mlp.program = &program;
    mlp.device = NULL;
    mlp.team = NULL;
    HETI_T_TRY(het_unit_mlp()->describe(unit, &mlp));
    for (i = 0; i <= (x->bias >= 0); i++) HETI_T_TRY(heti_x_parameter(info, &mlp.parameter[i], "", x->d, 1));
    for (first = last = &mlp.parameter[i]; first->columns == 1; first++) {}
    for (; i < mlp.parameters; i++)
        if (mlp.parameter[i].columns > 1 && !mlp.parameter[i].adapter) last = &mlp.parameter[i];
    if (x->router >= 0) HETI_T_TRY(heti_x_parameter(info, first, "gate.weight", x->s.experts, x->d));
    for (i = x->gated ? 0 : 1; i < 3; i++) {
        heti_t_text t = heti_t_text_in(name, sizeof name);
        heti_t_format(&t, "experts.0-%d.%s.weight", x->s.experts - 1, heti_x_names[i]);
        HETI_T_TRY(heti_x_parameter(info, i == 2 ? last : first, name, x->s.experts * (i == 2 ? x->d : x->f),
                                    i == 2 ? x->f : x->d));
    }
    return HET_OK;
}

static void heti_x_describe_tensors(const heti_x *x, het_unit_info *info) {
    static const struct { const char *name; het_keep keep; } heti_x_kept[HETI_X_TENSORS] = {
        { "h", HET_KEEP_CALL }, { "mean", HET_KEEP_WEIGHT }, { "rstd", HET_KEEP_WEIGHT }, { "chosen", HET_KEEP_WEIGHT },
        { "gates", HET_KEEP_INPUT }, { "picked", HET_KEEP_CALL }, { "a", HET_KEEP_WEIGHT }, { "u", HET_KEEP_CALL },
        { "out", HET_KEEP_INPUT }, { "dout", HET_KEEP_GRADIENT }, { "da", HET_KEEP_GRADIENT },
        { "dh", HET_KEEP_GRADIENT }, { "b", HET_KEEP_WEIGHT }, { "db", HET_KEEP_GRADIENT }, { "p", HET_KEEP_INPUT },
        { "dl", HET_KEEP_GRADIENT } };
    const int64_t k = x->s.used, d = x->d, f = x->f, e = x->s.experts;
    const int64_t width[HETI_X_TENSORS] = { d, 1, 1, k, k, k * d, k * f, k * f, k * d, k * d, k * f, d, k * f, k * f, e,
                                            e };
    int i;
    for (i = 0; i < HETI_X_TENSORS; i++) {
        het_tensor_desc *t = &info->tensor[info->tensors];
        if (x->tensor[i] < 0) continue;
        t->name = heti_x_kept[i].name;
        t->keep = heti_x_kept[i].keep;
        t->width = width[i];
        info->tensors++;
    }
}

/* Workspace of the unit's ops at their largest: all rows with one expert. */
static size_t heti_x_workspace(const heti_x_call *w, const het_unit_info *info) {
    static const het_op_kind heti_x_kinds[3] = { HET_OP_LINEAR_FORWARD, HET_OP_LINEAR_BACKWARD_INPUT,
                                                 HET_OP_LINEAR_BACKWARD_WEIGHT };
    static const het_op_kind heti_x_norms[3] = { HET_OP_NORM_FORWARD, HET_OP_NORM_BACKWARD_INPUT,
                                                 HET_OP_NORM_BACKWARD_WEIGHT };
    const heti_x *x = &w->x;
    size_t most = 0, size;
    het_op op;
    int i, what;
    for (i = 0; i < 3; i++)
        for (what = 0; what < 4; what++) { /* router, gate and up, down, norm */
            op = what == 3 ? heti_x_norm(w, heti_x_norms[i])
                           : heti_x_linear(w, heti_x_kinds[i], info->max_tokens, what == 2 ? x->f : x->d);
            if (what < 3) {
                op.u.linear.parts = what == 1 && x->gated ? 2 : 1;
                op.u.linear.part[0].out = op.u.linear.part[1].out = what == 0 ? x->s.experts : what == 1 ? x->f : x->d;
            }
            if (what == 0) op.u.linear.compute = HET_F32;
            size = info->device->iface->workspace(info->device->self, &op);
            most = size > most ? size : most;
        }
    return most;
}

static het_result heti_x_describe(const het_unit *unit, het_unit_info *info) {
    const het_experts *settings = HETI_T_CAST(const het_experts *, unit->settings);
    heti_x_call w;
    het_unit_call c;
    het_view view;
    memset(&w, 0, sizeof w);
    memset(&c, 0, sizeof c);
    memset(&view, 0, sizeof view);
    HETI_T_TRY(heti_x_settle(settings, unit->model, &w.x, NULL));
    if (info->device != NULL && !info->device->iface->host_memory) return HET_ERR_UNSUPPORTED;
    (void)heti_x_parameters(unit->model, &w.x);
    (void)heti_x_tensors(&w.x);
    HETI_T_TRY(heti_x_describe_parameters(unit, &w.x, info));
    heti_x_describe_tensors(&w.x, info);
    info->out_streams = 1;
    info->out_width[0] = w.x.d;
    info->input_keep = HET_KEEP_WEIGHT;
    info->teams = 1;
    info->flops_forward = 2.0 * HETI_T_CAST(double, w.x.d * (w.x.router < 0 ? 0 : w.x.s.experts) +
                                            w.x.s.used * w.x.d * w.x.f * (2 + w.x.gated));
    info->flops_input = info->flops_weight = info->flops_forward;
    if (info->device == NULL) return HET_OK;
    view.tokens = view.row_end = info->max_tokens;
    c.unit = unit;
    c.info = info;
    c.view = &view;
    c.compute = info->compute;
    c.rows = info->max_tokens;
    w.c = &c;
    info->workspace = heti_x_cut(&w, info->max_tokens, NULL) + heti_x_workspace(&w, info);
    return HET_OK;
}

static const het_unit_iface heti_x_unit = { HETRAIN_UNIT_VERSION, "experts", heti_x_describe, heti_x_forward,
                                            heti_x_backward_input, heti_x_backward_weight };
HETRAIN_API const het_unit_iface *het_unit_experts(void) { return &heti_x_unit; }

HETRAIN_API het_result het_experts_units(het_desc *desc, const het_experts *experts, het_unit *units, int64_t capacity,
                                         het_error *error) {
    het_model_desc model;
    int64_t u, count = 0;
    heti_x x;
    if (desc == NULL || experts == NULL || units == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_experts_units: desc, experts and units must not be NULL");
    model = desc->model;
    HETI_T_TRY(het_model_complete(&model, error));
    HETI_T_TRY(heti_x_settle(experts, &model, &x, error));
    for (u = 0; u < desc->layout.device_count; u++) {
        const het_device_iface *device = desc->layout.devices[u].iface;
        if (device != NULL && !device->host_memory)
            return heti_t_fail(error, HET_ERR_UNSUPPORTED, "het_experts_units: device %d (%s) has no host_memory, "
                               "experts are routed on the host", u, device->name);
    }
    HETI_T_TRY(het_model_units(&model, units, capacity, &count, error));
    for (u = 0; u < count; u++) {
        units[u].model = NULL; /* the context's */
        if (units[u].iface != het_unit_mlp()) continue;
        units[u].iface = het_unit_experts();
        units[u].settings = experts;
    }
    desc->units = units;
    desc->unit_count = count;
    return HET_OK;
}

HETRAIN_API void het_experts_get_counts(const het_experts *experts, int64_t layer, het_experts_counts *counts) {
    int64_t e;
    memset(counts, 0, sizeof *counts);
    if (experts->counts == NULL) return;
    counts->rows = HETI_X_LOAD(&experts->counts[layer].rows);
    counts->dropped = HETI_X_LOAD(&experts->counts[layer].dropped);
    for (e = 0; e < HETRAIN_MAX_EXPERTS; e++) counts->chosen[e] = HETI_X_LOAD(&experts->counts[layer].chosen[e]);
}
#ifdef __cplusplus
}
#endif
#define HETRAIN_EXPERTS_IMPLEMENTATION_DONE
#endif /* HETRAIN_EXPERTS_IMPLEMENTATION */

/* ---- changes ------------------------------------------------------------------------------------
   0.2.0  The first version.

   ---- licence: MIT-0 -----------------------------------------------------------------------------
   MIT No Attribution

   Copyright 2026 hetrain authors

   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
   associated documentation files (the "Software"), to deal in the Software without restriction,
   including without limitation the rights to use, copy, modify, merge, publish, distribute,
   sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
   furnished to do so.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
   NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
   NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
   DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
   OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
