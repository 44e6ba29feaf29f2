/* hetrain_experts.h 0.2.0: experts. A unit kind in place of a layer's MLP: a token goes through k
   of E MLPs, chosen by a router (arXiv 1701.06538; switch: k = 1, 2101.03961; by hash, 2106.04426).
   A companion of hetrain.h that uses only its public API.

   USE
       #define HETRAIN_EXPERTS_IMPLEMENTATION      in one source file
       #include "hetrain_experts.h"
       het_experts experts;
       het_unit units[2 * LAYERS + 2];
       memset(&experts, 0, sizeof experts);
       experts.experts = 8, experts.used = 2, experts.auxiliary = 0.01f;
       het_experts_units(&desc, &experts, units, 2 * LAYERS + 2, &error)     before het_create
   (examples/experts.c; build/train --experts 8,2.)

   A LAYER   x [n][D], l [n][E], matrices of expert e with index e
       h = norm(x);  l = h R^T;  p = softmax(l);  a token's experts are the k largest l, of equal
       ones the lower;  g_e = p_e / sum of the chosen p, or p_e (`renormalize`); by hash, without
       router: experts drawn from token and layer, g_e = 1 / k
       o_e = (silu(h Wgate_e^T) (h Wup_e^T)) Wdown_e^T, or gelu(h Wup_e^T) Wdown_e^T; no biases,
       no low-rank factors
       y = x + dropout(sum over its experts, ascending, of g_e o_e)
   CAPACITY   Of a granule's tokens (CONCEPTS in hetrain.h) an expert takes C = ceil(capacity k rows
   / E): the first ones, or those with the largest gates, of equal ones the first. A choice without
   a place is dropped: the token's other gates stay. Outside training all choices have a place, so
   that a token does not depend on what follows it.
   BALANCE   a = auxiliary E sum_e f_e p_e of a granule: f_e the share that e got of its k rows
   choices, dropped ones too, p_e the mean of p over its rows. Gradients are those of loss + sum over
   granules of a rows / (the step's sum of target weights), f_e constant; the loss reported is
   without it.
   DETERMINISM   A route depends on its granule alone. A gradient has a term a granule: of expert e
   a chain over the granule's tokens that went to e, ascending. dh is the sum of its experts',
   ascending, and the router's. So layouts do not show. In bf16 the router's product stays f32.
   TEAMS   Members of a team by columns each have a run of the experts, by share, at least one.
   Rows travel to the members with their experts and back (>>experts has the bytes), between
   processes brought together first. Other ranks have all experts.

   OPTIONS   (macros, defined before the include)
       HETRAIN_EXPERTS_IMPLEMENTATION    one file of the program has the code
       HETRAIN_STATIC                    as in hetrain.h: all functions static, a private copy
   MEMORY, ERRORS, THREADS
   Nothing is allocated. Activations are those of an MLP k times as wide and 2 k D + E floats a
   token. A member of a team by columns has room for the case that all rows of the team choose its
   experts: what is divided is weights, sums, state and work, not activations. Routes are loops on
   the host: devices without host_memory are refused.

   FUNCTIONS
       >>experts_api     het_unit_experts het_experts_units

   CONTENTS   (tags to search for)
   public API:
       >>experts_api     settings, units
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

/* ---- >>experts_api --------------------------------------------------------------------------- */
#define HETRAIN_MAX_EXPERTS 512
#define HETRAIN_MAX_EXPERTS_USED 16

typedef enum het_route { HET_ROUTE_DEFAULT = 0 /* top */, HET_ROUTE_TOP = 1, HET_ROUTE_HASH = 2 } het_route;
typedef enum het_drop { HET_DROP_DEFAULT = 0 /* position */, HET_DROP_POSITION = 1, HET_DROP_PROBABILITY = 2 } het_drop;

/* What a layer's training forwards have met since it was cleared, added to atomically. A step that
   is repeated counts again. */
typedef struct het_experts_counts {
    int64_t rows, dropped;            /* tokens; choices without a place */
    int64_t chosen[HETRAIN_MAX_EXPERTS]; /* by expert, dropped ones too: k rows together */
} het_experts_counts;

/* Of all layers, which share it: het_unit.settings. Must outlive the context. */
typedef struct het_experts {
    uint32_t start_canary;            /* must be 0 */
    int64_t experts, used;            /* E, 8; k, 2: at most HETRAIN_MAX_... */
    int64_t width;                    /* F of an expert, the model's mlp_width */
    het_route route;
    het_choice renormalize;           /* a token's gates sum to 1. yes; with k = 1: no */
    float capacity;                   /* 0: nothing is dropped */
    het_drop drop;                    /* what has no place: later tokens, or smaller gates */
    float auxiliary;                  /* weight, 0: none */
    het_experts_counts *counts;       /* [layers], cleared by the caller; NULL: none */
    uint32_t end_canary;              /* must be 0 */
} het_experts;

/* The unit kind. It takes the streams of an MLP; its parameters are norm, router [E][D], gate and
   up [E F][D], down [E D][F], one expert below the other, named as in Qwen3-MoE: "L.mlp.gate",
   "L.mlp.experts.0-7.gate_proj", which hetrain_files.h writes as a tensor an expert; transformers
   computes the same (family qwen3, top-k, no capacity). Muon takes a stack as one matrix.
   Threads: any. */
HETRAIN_API const het_unit_iface *het_unit_experts(void);
/* Sets desc->units to the chain embed, (attention, experts) x L, head, written to units[0 ..
   capacity), of desc->model; het_create copies them. desc->layout.devices are looked at.
   Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_experts_units(het_desc *desc, const het_experts *experts,
                                                            het_unit *units, int64_t capacity, het_error *error);
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
   makes from it an order: places by expert, of one by token. Rows are picked into places, each
   expert's products are the device's linear ops over a run of places, results are mixed into rows.
   ============================================================================================== */

#if defined(__GNUC__) || defined(__clang__)
#define HETI_X_ADD(p, value) ((void)__atomic_fetch_add((p), (value), __ATOMIC_RELAXED))
#else
#define HETI_X_ADD(p, value) ((void)(*(p) += (value)))
#endif

/* Tensors of the unit. H: h, or sums of rows. SLOT, CAME, PLACE: heti_x_call's; GRANULE: where an
   expert's granules begin. A: what the activation is of, gate or up; B: up, where there is a
   gate. */
enum { HETI_X_H, HETI_X_MEAN, HETI_X_RSTD, HETI_X_CHOSEN, HETI_X_GATES, HETI_X_P, HETI_X_SLOT, HETI_X_CAME,
       HETI_X_PLACE, HETI_X_GRANULE, HETI_X_PICKED, HETI_X_A, HETI_X_B, HETI_X_U, HETI_X_OUT, HETI_X_DOUT, HETI_X_DA,
       HETI_X_DB, HETI_X_DL, HETI_X_DH, HETI_X_TENSORS,
       /* of a team: experts and gates of all its rows, rows that came, what is sent, what passes */
       HETI_X_ROUTES = HETI_X_TENSORS, HETI_X_SHARES, HETI_X_ROWS, HETI_X_SENT, HETI_X_RELAY,
       HETI_X_TEAM_TENSORS };
/* Its products. */
enum { HETI_X_ROUTER, HETI_X_UP, HETI_X_DOWN };

/* A unit's settings, and numbers of its parameters; -1: there is none. */
typedef struct heti_x {
    het_experts s;
    int64_t d, f;
    int gated, parallel;
    int bias, router, down;   /* behind the norm's gain */
    int matrix;               /* the experts' first, gate or up */
} heti_x;

/* A call. A choice is a row and one of its k experts; its slot is k times the row, and the number
   of the expert among them. Own rows are the rank's; all rows are those of its team, if it has one
   by columns. */
typedef struct heti_x_call {
    heti_x x;
    const het_unit_call *c;
    int divided;              /* among the members of a team; 0: the rank has all experts, of own rows */
    int64_t member;           /* its number in the team, 0 */
    const het_view *view;     /* of all rows */
    float *const *t;          /* the tensors; as what they are: */
    int32_t *chosen, *routes; /* [n][k] experts ascending; dropped: -1 - expert. Of own rows; of all */
    int32_t *slot;            /* [k n] by place, what is there: all choices but dropped ones, by expert */
    int32_t *came;            /* [n] which of the rows that came it is */
    int32_t *place;           /* [n][k] of own choices: where their results come, by expert; -1: dropped */
    int made;                 /* the tensor with the experts' results */
    int64_t begin[HETRAIN_MAX_EXPERTS + 1]; /* expert e has places [begin[e], begin[e + 1]) */
    int64_t bound[HETRAIN_MAX_TEAM + 1];    /* member m has experts [bound[m], bound[m + 1]) */
    /* Of two hops: where the members of m's node begin, and how many they are. */
    int two_hops;
    int64_t node_begin[HETRAIN_MAX_TEAM], node_size[HETRAIN_MAX_TEAM];
    int64_t traffic[HETRAIN_MAX_TEAM][HETRAIN_MAX_TEAM]; /* rows of an exchange from a member to another */
} heti_x_call;

/* ---- settings ---- */

static het_result heti_x_settle(const het_experts *experts, const het_model_desc *m, heti_x *x, het_error *error) {
    het_experts *s = &x->s;
    int n = 1;
    memset(x, 0, sizeof *x);
    if (experts == NULL || experts->start_canary != 0 || experts->end_canary != 0)
        return heti_t_fail(error, HET_ERR_INVALID, "experts: settings that were not cleared, or none");
    *s = *experts;
    if (s->experts == 0) s->experts = 8;
    if (s->used == 0) s->used = s->experts < 2 ? 1 : 2;
    if (s->width == 0) s->width = m->mlp_width;
    if (s->route == HET_ROUTE_DEFAULT) s->route = HET_ROUTE_TOP;
    if (s->renormalize == HET_DEFAULT) s->renormalize = s->used > 1 ? HET_YES : HET_NO;
    if (HETI_T_CAST(int, s->route) < HET_ROUTE_TOP || s->route > HET_ROUTE_HASH || HETI_T_CAST(int, s->drop) < 0 ||
        s->drop > HET_DROP_PROBABILITY || HETI_T_CAST(int, s->renormalize) < HET_YES || s->renormalize > HET_NO)
        return heti_t_fail(error, HET_ERR_INVALID, "experts: route, drop or renormalize is no value of its type");
    if (s->experts < 1 || s->experts > HETRAIN_MAX_EXPERTS || s->used < 1 || s->used > s->experts ||
        s->used > HETRAIN_MAX_EXPERTS_USED || s->width < 1 || s->width > INT32_MAX / s->experts)
        return heti_t_fail(error, HET_ERR_INVALID, "experts: %d of %d experts of width %d; at most %d of %d, widths "
                           "from 1 on and all together below 2^31", s->used, s->experts, s->width,
                           HETI_T_CAST(int64_t, HETRAIN_MAX_EXPERTS_USED), HETI_T_CAST(int64_t, HETRAIN_MAX_EXPERTS));
    if (!(s->capacity >= 0 && s->capacity <= 1e6f && s->auxiliary >= 0 && s->auxiliary <= 1e6f) ||
        (s->route == HET_ROUTE_HASH && s->auxiliary > 0))
        return heti_t_fail(error, HET_ERR_INVALID, "experts: capacity %e, auxiliary %e; from 0 to 1e6, and a route by "
                           "hash has no router", HETI_T_CAST(double, s->capacity), HETI_T_CAST(double, s->auxiliary));
    x->d = m->width;
    x->f = s->width;
    x->gated = m->activation == HET_SWIGLU;
    x->parallel = m->parallel == HET_YES;
    x->bias = m->norm == HET_LAYERNORM ? n++ : -1;
    x->router = s->route == HET_ROUTE_TOP ? n++ : -1;
    x->matrix = n;
    x->down = n + 1 + x->gated;
    return HET_OK;
}

static int32_t *heti_x_integers(float *tensor) { return HETI_T_CAST(int32_t *, HETI_T_CAST(void *, tensor)); }

/* Where granule g begins among the rows of a view. */
static int64_t heti_x_granule(const het_view *view, int64_t g) { return view->host_granule_start[g] - view->row_begin; }

/* Expert e's first place among those of the member's experts. */
static int64_t heti_x_at(const heti_x_call *w, int64_t e) { return w->begin[e] - w->begin[w->bound[w->member]]; }

/* ---- ops ---- */

static het_result heti_x_run(const heti_x_call *w, het_op_kind kind, const void *args, size_t size) {
    const het_device *device = w->c->device;
    het_op op;
    memset(&op, 0, sizeof op);
    op.kind = kind;
    memcpy(&op.u, args, size);
    return device->iface->run(device->self, w->c->queue, &op);
}

static het_result heti_x_norm(const heti_x_call *w, het_op_kind kind) {
    const het_unit_call *c = w->c;
    const het_model_desc *m = c->unit->model;
    const int bias = w->x.bias;
    const het_norm_args a = { c->view, m->norm, c->rows, w->x.d, 1, m->norm_epsilon, c->in[0], c->weight[0],
                              bias < 0 ? NULL : c->weight[bias], w->t[HETI_X_H], w->t[HETI_X_MEAN], w->t[HETI_X_RSTD],
                              w->t[HETI_X_DH], w->x.parallel ? NULL : c->d_out[0], c->d_in[0], NULL, &c->gradient[0],
                              bias < 0 ? NULL : &c->gradient[bias], c->workspace };
    return heti_x_run(w, kind, &a, sizeof a);
}

static het_result heti_x_activation(const heti_x_call *w, het_op_kind kind) {
    float *const *t = w->t;
    const int64_t count = heti_x_at(w, w->bound[w->member + 1]) * w->x.f;
    const het_activation_args a = { w->c->unit->model->activation, count, t[HETI_X_A], t[HETI_X_B], t[HETI_X_U],
                                    t[HETI_X_DA], t[HETI_X_DA], t[HETI_X_DB], 0, 0 };
    return count > 0 ? heti_x_run(w, kind, &a, sizeof a) : HET_OK;
}

/* forward: out = x + drop(H); backward: H = drop(d_out). */
static het_result heti_x_dropout(const heti_x_call *w, int forward) {
    const het_unit_call *c = w->c;
    const float p = c->training ? c->unit->model->dropout : 0.0f;
    const het_dropout_args a = { c->view, c->scalars, c->rows, w->x.d, p, HETI_T_CAST(int32_t, c->index * 4),
                                 forward ? c->in[w->x.parallel] : NULL, forward ? w->t[HETI_X_H] : c->d_out[0],
                                 forward ? c->out[0] : w->t[HETI_X_H] };
    return heti_x_run(w, forward ? HET_OP_DROPOUT_FORWARD : HET_OP_DROPOUT_BACKWARD, &a, sizeof a);
}

/* Parameter p from element `offset` on as a part of a product; dw: room for its gradient. */
static het_linear_part heti_x_part(const het_unit_call *c, int p, int64_t offset, int64_t out, float *y,
                                   const float *dy, het_gradient *dw) {
    const float *weight = c->weight[p];
    const uint16_t *bf16 = c->weight_bf16[p];
    const het_linear_part part = { out, weight != NULL ? weight + offset : NULL, bf16 != NULL ? bf16 + offset : NULL,
                                   NULL, NULL, y, NULL, dy, 0, dw, NULL, NULL };
    *dw = c->gradient[p];
    if (dw->sum != NULL) dw->sum = HETI_T_CAST(char *, dw->sum) + offset * (dw->exact && !dw->final ? 8 : 4);
    return part;
}

/* ROUTER, where there is one: of all own rows. UP: expert e's gate and up. DOWN. */
static het_result heti_x_product(const heti_x_call *w, het_op_kind kind, int which, int64_t e, const het_view *view) {
    const heti_x *x = &w->x;
    const int tensor[3][4] = { { HETI_X_H, HETI_X_H, HETI_X_P, HETI_X_DL }, /* x, dx, y, dy */
                               { HETI_X_PICKED, HETI_X_PICKED, HETI_X_A, HETI_X_DA },
                               { HETI_X_U, HETI_X_DA, w->made, HETI_X_DOUT } };
    const int parameter[3] = { x->router, x->matrix, x->down };
    const int64_t in = which == HETI_X_DOWN ? x->f : x->d;
    const int64_t out = which == HETI_X_ROUTER ? x->s.experts : which == HETI_X_UP ? x->f : x->d;
    const int64_t at = which == HETI_X_ROUTER ? 0 : heti_x_at(w, e);
    const int64_t offset = which == HETI_X_ROUTER ? 0 : (e - w->bound[w->member]) * out * in;
    het_gradient dw[2];
    het_linear_args a;
    if (parameter[which] < 0) return HET_OK;
    memset(&a, 0, sizeof a);
    a.view = view;
    a.compute = which == HETI_X_ROUTER ? HET_F32 : w->c->compute;
    a.rows = view->row_end - view->row_begin;
    a.in = in;
    a.parts = which == HETI_X_UP ? 1 + x->gated : 1;
    a.x = w->t[tensor[which][0]] + at * in;
    a.dx = w->t[tensor[which][1]] + at * in;
    a.workspace = w->c->workspace;
    for (int i = 0; i < a.parts; i++)
        a.part[i] = heti_x_part(w->c, parameter[which] + i, offset, out, w->t[tensor[which][2] + i] + at * out,
                                w->t[tensor[which][3] + i] + at * out, &dw[i]);
    return heti_x_run(w, kind, &a, sizeof a);
}

/* The granules of one expert's places, as a micro-batch of their own. */
static het_view heti_x_view(const heti_x_call *w, int64_t e) {
    const int64_t first = w->begin[e], end = w->begin[e + 1];
    int64_t *start = HETI_T_CAST(int64_t *, HETI_T_CAST(void *, w->t[HETI_X_GRANULE])), at = first;
    het_view v;
    memset(&v, 0, sizeof v);
    for (int64_t g = w->view->granule_begin; g < w->view->granule_end; g++) {
        const int64_t behind = heti_x_granule(w->view, g + 1) * w->x.s.used, before = at;
        while (at < end && w->slot[at] < behind) at++;
        if (at > before) start[v.granule_end++] = before - first;
    }
    v.tokens = v.row_end = start[v.granule_end] = end - first;
    v.granules = v.granule_end;
    v.granule_start = v.host_granule_start = start;
    return v;
}

/* One kind of product of all experts that have places; gradients of all, whose sums may have to be
   cleared. */
static het_result heti_x_products(const heti_x_call *w, het_op_kind kind, int which) {
    const int weights = kind == HET_OP_LINEAR_BACKWARD_WEIGHT;
    for (int64_t e = w->bound[w->member]; e < w->bound[w->member + 1]; e++) {
        const het_view view = heti_x_view(w, e);
        if (weights || view.tokens > 0) HETI_T_TRY(heti_x_product(w, kind, which, e, &view));
    }
    return HET_OK;
}

/* ---- routing ---- */

/* exp(x), x <= 0: 2^-n (1 + r + ... + r^13 / 13!), |r| <= ln 2 / 2, by operations that round alike
   everywhere. */
static double heti_x_exp(double x) {
    const int64_t n = x > -700 ? HETI_T_CAST(int64_t, fma(-x, 1.44269504088896338700, 0.5)) : 0;
    const double m = HETI_T_CAST(double, n);
    const double r = fma(m, 1.90821492927058770002e-10, fma(m, 6.93147180369123816490e-01, x));
    const uint64_t bits = HETI_T_CAST(uint64_t, 1023 - n) << 52;
    double y = 1, scale;
    if (!(x > -700)) return x <= -700 ? 0 : x;
    for (int i = 13; i > 0; i--) y = fma(y, r / i, 1);
    memcpy(&scale, &bits, sizeof scale);
    return y * scale;
}

/* p = softmax(l), in place. The sum is in double, ascending. */
static void heti_x_softmax(float *p, int64_t count) {
    double part[HETRAIN_MAX_EXPERTS], sum = 0;
    float most = p[0];
    for (int64_t e = 1; e < count; e++) most = p[e] > most ? p[e] : most;
    for (int64_t e = 0; e < count; e++)
        sum += part[e] = heti_x_exp(HETI_T_CAST(double, p[e]) - HETI_T_CAST(double, most));
    for (int64_t e = 0; e < count; e++) p[e] = HETI_T_CAST(float, part[e] / sum);
}

/* The k largest of l, of equal ones the first, ascending by index. */
static void heti_x_top(const float *l, const heti_x *x, int32_t *chosen) {
    for (int64_t i = 0; i < x->s.used; i++) {
        int64_t best = -1, at = 0, before = 0; /* so many of those chosen are before e */
        for (int64_t e = 0; e < x->s.experts; e++) {
            if (before < i && chosen[before] == e) before++;
            else if (best < 0 || l[e] > l[best]) best = e, at = before;
        }
        memmove(chosen + at + 1, chosen + at, HETI_T_CAST(size_t, i - at) * sizeof *chosen);
        chosen[at] = HETI_T_CAST(int32_t, best);
    }
}

/* k different experts from token and layer: number i is one of the E - i that are left. */
static void heti_x_hash(int32_t token, int64_t layer, const heti_x *x, int32_t *chosen) {
    int64_t j, e;
    for (int64_t i = 0; i < x->s.used; i++) {
        const int64_t key[3] = { token, layer, i };
        e = HETI_T_CAST(int64_t, het_xxh64(key, sizeof key, 0) % HETI_T_CAST(uint64_t, x->s.experts - i));
        for (j = 0; j < i && chosen[j] <= e; j++) e++; /* those taken are ascending */
        memmove(chosen + j + 1, chosen + j, HETI_T_CAST(size_t, i - j) * sizeof *chosen);
        chosen[j] = HETI_T_CAST(int32_t, e);
    }
}

/* Of a slot, dropped or not. */
static int32_t heti_x_expert(int32_t chosen) { return chosen < 0 ? -1 - chosen : chosen; }

/* The sum of p that a token's gates are divided by. */
static double heti_x_divisor(const heti_x *x, const float *p, const int32_t *chosen) {
    double sum = 0;
    for (int64_t i = 0; i < x->s.used; i++) sum += HETI_T_CAST(double, p[heti_x_expert(chosen[i])]);
    return x->s.renormalize == HET_YES ? sum : 1;
}

static void heti_x_choose(const heti_x_call *w, int64_t r) {
    const heti_x *x = &w->x;
    const int64_t k = x->s.used;
    int32_t *chosen = w->chosen + r * k;
    float *p = w->t[HETI_X_P] + r * x->s.experts, *gates = w->t[HETI_X_GATES] + r * k;
    if (x->router < 0) {
        heti_x_hash(w->c->view->token[w->c->view->row_begin + r], w->c->unit->layer, x, chosen);
        for (int64_t i = 0; i < k; i++) gates[i] = 1.0f / HETI_T_CAST(float, k);
        return;
    }
    heti_x_top(p, x, chosen);
    heti_x_softmax(p, x->s.experts);
    for (int64_t i = 0; i < k; i++)
        gates[i] = HETI_T_CAST(float, HETI_T_CAST(double, p[chosen[i]]) / heti_x_divisor(x, p, chosen));
}

/* ceil(capacity k rows / E), without what the capacity's rounding to a float adds; at most rows. */
static int64_t heti_x_places(const heti_x *x, int64_t rows) {
    const double all = HETI_T_CAST(double, x->s.capacity) * (1 - 1e-6) * HETI_T_CAST(double, x->s.used * rows);
    const double share = all / HETI_T_CAST(double, x->s.experts);
    const int64_t whole = share < HETI_T_CAST(double, rows) ? HETI_T_CAST(int64_t, share) : rows;
    return HETI_T_CAST(double, whole) < share && whole < rows ? whole + 1 : whole;
}

/* What decides which of expert e's choices find a place, larger ones first, then the first ones:
   nothing, or the bits of their gates, which are in the order of the gates. -1: not e's. */
static int64_t heti_x_key(const heti_x_call *w, int64_t slot, int32_t e) {
    uint32_t bits = 0;
    if (w->x.s.drop == HET_DROP_PROBABILITY) memcpy(&bits, &w->t[HETI_X_GATES][slot], sizeof bits);
    return w->chosen[slot] == e ? HETI_T_CAST(int64_t, bits) : -1;
}

/* Drops what finds no place with expert e among slots [begin, end) of a granule. `bar`: the largest
   key that `places` of them reach. */
static void heti_x_drop(const heti_x_call *w, int64_t begin, int64_t end, int32_t e, int64_t places) {
    int64_t bar = 0, i, key, count;
    for (int64_t more = INT64_C(1) << 31; more > 0; more /= 2) {
        for (count = 0, i = begin; i < end; i++) count += heti_x_key(w, i, e) >= bar + more;
        if (count >= places) bar += more;
    }
    for (i = begin; i < end; i++) places -= heti_x_key(w, i, e) > bar;
    for (i = begin; i < end; i++) {
        key = heti_x_key(w, i, e);
        if (key >= 0 && key <= bar && (key < bar || places-- <= 0)) w->chosen[i] = -1 - e;
    }
}

/* How often each expert was chosen in slots [begin, end), dropped or not. */
static void heti_x_count(const heti_x_call *w, int64_t begin, int64_t end, int64_t *count) {
    HETI_T_CLEAR(count, w->x.s.experts);
    for (int64_t i = begin; i < end; i++) count[heti_x_expert(w->chosen[i])]++;
}

/* Experts and gates of own rows, from logits in P. */
static void heti_x_route(const heti_x_call *w) {
    const heti_x *x = &w->x;
    const het_view *v = w->c->view;
    const int64_t k = x->s.used;
    het_experts_counts *counts = w->c->training && !w->c->again && x->s.counts ? x->s.counts + w->c->unit->layer : NULL;
    int64_t count[HETRAIN_MAX_EXPERTS];
    for (int64_t g = v->granule_begin; g < v->granule_end; g++) {
        const int64_t begin = heti_x_granule(v, g), end = heti_x_granule(v, g + 1);
        const int64_t places = x->s.capacity > 0 && w->c->training ? heti_x_places(x, end - begin) : end - begin;
        for (int64_t r = begin; r < end; r++) heti_x_choose(w, r);
        heti_x_count(w, begin * k, end * k, count);
        if (counts != NULL) HETI_X_ADD(&counts->rows, end - begin);
        for (int32_t e = 0; e < x->s.experts; e++) {
            if (counts != NULL) HETI_X_ADD(&counts->chosen[e], count[e]);
            if (count[e] <= places) continue;
            heti_x_drop(w, begin * k, end * k, e, places);
            if (counts != NULL) HETI_X_ADD(&counts->dropped, count[e] - places);
        }
    }
}

/* Whether row r of the team has an expert of member m. */
static int heti_x_has(const heti_x_call *w, int64_t r, int64_t m) {
    const int64_t k = w->x.s.used;
    int any = 0;
    for (int64_t i = r * k; i < (r + 1) * k; i++) any |= w->routes[i] >= w->bound[m] && w->routes[i] < w->bound[m + 1];
    return any;
}

/* What follows from the routes of all rows: begin, slot, came, and place. */
static void heti_x_order(heti_x_call *w) {
    const int64_t k = w->x.s.used, e_count = w->x.s.experts, rows = w->view->row_end - w->view->row_begin;
    const int64_t own = (w->c->view->row_begin - w->view->row_begin) * k, owns = w->c->rows * k;
    int32_t result = 0, come = 0;
    HETI_T_CLEAR(w->begin, e_count + 1);
    for (int64_t i = 0; i < rows * k; i++)
        if (w->routes[i] >= 0) w->begin[w->routes[i]]++;
    for (int64_t e = 0; e < e_count; e++) w->begin[e + 1] += w->begin[e]; /* the ends; they move down to the begins */
    for (int64_t i = rows * k - 1; i >= 0; i--)
        if (w->routes[i] >= 0) w->slot[--w->begin[w->routes[i]]] = HETI_T_CAST(int32_t, i);
    for (int64_t i = 0; i < owns; i++) w->place[i] = -1;
    for (int64_t i = 0; i < w->begin[e_count]; i++)
        if (w->slot[i] >= own && w->slot[i] < own + owns) w->place[w->slot[i] - own] = result++;
    for (int64_t r = 0; r < rows; r++) {
        w->came[r] = come;
        come += !w->divided || heti_x_has(w, r, w->member);
    }
}

/* ---- picking and mixing: rows of D floats, to places and back ---- */

/* places = gate * rows; gates NULL: 1. */
static void heti_x_pick(const heti_x_call *w, const float *gates, const float *rows, float *places) {
    const int64_t d = w->x.d, end = w->begin[w->bound[w->member + 1]];
    for (int64_t i = w->begin[w->bound[w->member]]; i < end; i++) {
        const float gate = gates != NULL ? gates[w->slot[i]] : 1.0f;
        const float *row = rows + w->came[w->slot[i] / w->x.s.used] * d;
        for (int64_t j = 0; j < d; j++) *places++ = gate * row[j];
    }
}

/* rows = sum of gate * places, experts ascending, then of `last`; in double, where a product of two
   floats is exact, rounded once. gates NULL: 1; last NULL: nothing. */
static void heti_x_mix(const heti_x_call *w, const float *gates, const float *places, const float *last, float *rows) {
    const int64_t d = w->x.d, k = w->x.s.used;
    for (int64_t r = 0; r < w->c->rows; r++)
        for (int64_t j = 0; j < d; j++) {
            double sum = 0;
            for (int64_t i = r * k; i < (r + 1) * k; i++) {
                const double gate = gates != NULL ? HETI_T_CAST(double, gates[i]) : 1;
                if (w->place[i] >= 0) sum += gate * HETI_T_CAST(double, places[w->place[i] * d + j]);
            }
            if (last != NULL) sum += HETI_T_CAST(double, last[r * d + j]);
            rows[r * d + j] = HETI_T_CAST(float, sum);
        }
}

/* ---- the router's gradient ---- */

/* a . b in double: 8 chains, whose products are exact, then their sum. */
static double heti_x_dot(const float *a, const float *b, int64_t count) {
    double lane[8] = { 0 };
    for (int64_t i = 0; i < count; i++) lane[i % 8] += HETI_T_CAST(double, a[i]) * HETI_T_CAST(double, b[i]);
    for (int64_t i = 1; i < 8; i++) lane[0] += lane[i];
    return lane[0];
}

/* dl of a row: dp_e = balance[e], and for its experts with dg = dy . o (0 where dropped) also dg_e,
   or (dg_e - sum of dg g) / sum of the chosen p; dl_e = p_e (dp_e - sum of dp p). */
static void heti_x_logit_row(const heti_x_call *w, int64_t r, const float *dy, const double *balance, float *dl) {
    const heti_x *x = &w->x;
    const int64_t k = x->s.used;
    const float *p = w->t[HETI_X_P] + r * x->s.experts;
    double dp[HETRAIN_MAX_EXPERTS], dg[HETRAIN_MAX_EXPERTS_USED], mean = 0, sum = 0;
    HETI_T_COPY(dp, balance, x->s.experts);
    for (int64_t i = 0; i < k; i++) {
        const int32_t place = w->place[r * k + i];
        dg[i] = place < 0 ? 0 : heti_x_dot(dy, w->t[HETI_X_OUT] + place * x->d, x->d);
        mean = fma(dg[i], HETI_T_CAST(double, w->t[HETI_X_GATES][r * k + i]), mean);
    }
    if (x->s.renormalize != HET_YES) mean = 0;
    for (int64_t i = 0; i < k; i++)
        dp[heti_x_expert(w->chosen[r * k + i])] += (dg[i] - mean) / heti_x_divisor(x, p, w->chosen + r * k);
    for (int64_t e = 0; e < x->s.experts; e++) sum = fma(dp[e], HETI_T_CAST(double, p[e]), sum);
    for (int64_t e = 0; e < x->s.experts; e++) dl[e] = HETI_T_CAST(float, HETI_T_CAST(double, p[e]) * (dp[e] - sum));
}

/* dL/dl of all rows, dy: [n][D] of the sum over experts. Of a granule's auxiliary loss the part of
   dp_e is auxiliary E f_e / (sum of the step's weights). */
static void heti_x_logits(const heti_x_call *w, const float *dy) {
    const heti_x *x = &w->x;
    const double scale = HETI_T_CAST(double, x->s.auxiliary) * HETI_T_CAST(double, w->c->scalars->inverse_weight);
    const het_view *v = w->c->view;
    int64_t count[HETRAIN_MAX_EXPERTS];
    double balance[HETRAIN_MAX_EXPERTS];
    for (int64_t g = v->granule_begin; g < v->granule_end; g++) {
        const int64_t begin = heti_x_granule(v, g), end = heti_x_granule(v, g + 1);
        heti_x_count(w, begin * x->s.used, end * x->s.used, count);
        for (int64_t e = 0; e < x->s.experts; e++)
            balance[e] = scale * (HETI_T_CAST(double, count[e] * x->s.experts) /
                                  HETI_T_CAST(double, x->s.used * (end - begin)));
        for (int64_t r = begin; r < end; r++)
            heti_x_logit_row(w, r, dy + r * x->d, balance, w->t[HETI_X_DL] + r * x->s.experts);
    }
}

/* ---- experts divided among the members of a team ----
   A member of a team by columns has a run of the experts. It routes its own rows, and all get the
   experts of all rows. A row then goes, once, to each member with an expert of its. That member
   computes its experts from the rows of all members, as one rank does. What an expert makes of a
   row comes back to the row's member, which mixes as one rank does. Backward, gradients of rows go
   out the same way, and those of h come back. So every sum is made in one place and is that of one
   rank. For n rows of a team of R members, of which s go out to others and have c choices there,
   each pass takes 4 (s + c) D bytes, and 4 (R - 1) n k of experts or gates, in at most 3 R (R - 1)
   messages. Drawn evenly, c is n k (R - 1) / R.
   Where members of one process (a node) follow each other, rows for another node go in two hops, as
   in HetuMoE (arXiv 2203.14685): all that a node has for one member of the other is brought
   together in one place and crosses as one message. From a node of A members to one of B go B
   messages, not A B. */

/* By share, one at least: as heti_member_columns in hetrain.h divides a parameter by `piece`. */
static void heti_x_bounds(const het_team_member *team, int64_t members, int64_t experts, int64_t *bound) {
    double before = 0, all = 0;
    int64_t m, end;
    for (m = 0; m < members; m++) all += team[m].share;
    for (bound[0] = 0, m = 0; m < members; m++) {
        before += team[m].share;
        end = HETI_T_CAST(int64_t, before / all * HETI_T_CAST(double, experts) + 0.5);
        if (end > experts - (members - m - 1)) end = experts - (members - m - 1);
        bound[m + 1] = end > bound[m] ? end : bound[m] + 1;
    }
}

/* A node: members of one process that follow each other. There are two hops if there are several
   nodes, and one has two members. */
static void heti_x_find_nodes(heti_x_call *w, const int64_t *node, int64_t members) {
    int64_t nodes = 0;
    for (int64_t m = 0; m < members; m++) {
        w->node_begin[m] = m > 0 && node[m] == node[m - 1] ? w->node_begin[m - 1] : m;
        w->node_size[w->node_begin[m]]++;
        nodes += w->node_begin[m] == m;
    }
    w->two_hops = nodes > 1 && nodes < members;
}

/* Where rows are before a hop. They begin with the sender and end with the receiver. Between two
   hops they are with the member of the sender's node that has the receiver's place in its own node;
   inside a node, and behind a hop that is the only one, with the receiver. */
static int64_t heti_x_stop(const heti_x_call *w, int hop, int64_t sender, int64_t receiver) {
    const int64_t here = w->node_begin[sender], there = w->node_begin[receiver];
    if (hop == 0) return sender;
    if (hop == 2 || !w->two_hops || here == there) return receiver;
    return here + (receiver - there) % w->node_size[here];
}

/* Rows of the team that member m has begin here. */
static int64_t heti_x_first(const heti_x_call *w, int64_t m) { return w->c->team->row[m] - w->view->row_begin; }

/* Packs what one member has for another: out, own rows with experts there; back, what its experts
   have made of the other's rows. Returns how many rows; packed NULL: they are only counted. */
static int64_t heti_x_pack(const heti_x_call *w, int back, int64_t sender, int64_t receiver, const float *from,
                           float *packed) {
    const int64_t d = w->x.d, owner = back ? receiver : sender;
    const int64_t first = heti_x_first(w, owner), end = heti_x_first(w, owner + 1);
    const int64_t begin = back ? w->begin[w->bound[sender]] : first;
    const int64_t behind = back ? w->begin[w->bound[sender + 1]] : end;
    int64_t count = 0;
    for (int64_t i = begin; i < behind; i++) {
        const int64_t r = back ? w->slot[i] / w->x.s.used : i;
        if (r < first || r >= end || !(back || heti_x_has(w, r, receiver))) continue;
        if (packed != NULL) HETI_T_COPY(packed + count * d, from + (i - begin) * d, d);
        count++;
    }
    return count;
}

/* What member `to` gets in a hop, by sender, then by receiver. The second hop's `from` has all that
   passes in the same order. */
static void heti_x_pack_hop(const heti_x_call *w, int back, int hop, int64_t to, const float *from, float *packed) {
    const int64_t members = w->c->team->members;
    for (int64_t i = 0; i < members * members; i++) {
        const int64_t sender = i / members, receiver = i % members;
        const int64_t floats = w->traffic[sender][receiver] * w->x.d;
        if (heti_x_stop(w, hop, sender, receiver) != w->member) continue;
        if (heti_x_stop(w, hop + 1, sender, receiver) == to) {
            if (hop == 0) (void)heti_x_pack(w, back, sender, receiver, from, packed);
            else HETI_T_COPY(packed, from, floats);
            packed += floats;
        }
        if (hop > 0) from += floats;
    }
}

/* In round s a member sends to the one s behind it. Boxes are runs of what is sent, one member's
   behind the other's. What comes lies by sender: senders have runs of rows, and of experts. */
static het_result heti_x_hop(const heti_x_call *w, int back, int hop, const float *from, float *to) {
    const int64_t d = w->x.d, members = w->c->team->members, me = w->member;
    int64_t rows[HETRAIN_MAX_TEAM][HETRAIN_MAX_TEAM] = { { 0 } };
    het_box have[HETRAIN_MAX_TEAM], want[HETRAIN_MAX_TEAM];
    for (int64_t i = 0; i < members; i++)
        for (int64_t j = 0; j < members; j++)
            rows[heti_x_stop(w, hop, i, j)][heti_x_stop(w, hop + 1, i, j)] += w->traffic[i][j];
    for (int64_t s = 0; s < members; s++) {
        float *here = to, *sent = w->t[HETI_X_SENT];
        int64_t count = 0;
        for (int64_t m = 0; m < (me + members - s) % members; m++) here += rows[m][me] * d;
        if (s == 0) sent = here;
        heti_x_pack_hop(w, back, hop, (me + s) % members, from, sent);
        for (int64_t m = 0; m < members && s > 0; m++) {
            const int64_t other = (m + s) % members;
            const het_box box = { count, count + rows[m][other], 0, d };
            have[m] = want[other] = box;
            count = box.row_end;
        }
        if (count > 0) HETI_T_TRY(w->c->team->move(w->c, sent, have, d, here, want, d));
    }
    return HET_OK;
}

/* In a team own *rows go out, or (back) what was made of them comes to their places: *rows are then
   `to`. */
static het_result heti_x_exchange(heti_x_call *w, int back, const float **rows, float *to) {
    const int64_t members = w->divided ? w->c->team->members : 0;
    for (int64_t i = 0; i < members; i++)
        for (int64_t j = 0; j < members; j++) w->traffic[i][j] = heti_x_pack(w, back, i, j, NULL, NULL);
    for (int hop = 0; hop <= w->two_hops && members > 0; hop++) {
        float *there = hop == w->two_hops ? to : w->t[HETI_X_RELAY];
        HETI_T_TRY(heti_x_hop(w, back, hop, *rows, there));
        *rows = there;
    }
    return HET_OK;
}

/* All rows of a tensor of which each member of a team has its own. */
static het_result heti_x_gather(const heti_x_call *w, float *own, float *all) {
    const het_box whole = { w->view->row_begin, w->view->row_end, 0, w->x.s.used };
    het_box have[HETRAIN_MAX_TEAM], want[HETRAIN_MAX_TEAM];
    if (!w->divided) return HET_OK;
    for (int64_t m = 0; m < w->c->team->members; m++) {
        have[m] = want[m] = whole;
        have[m].row_begin = w->c->team->row[m];
        have[m].row_end = w->c->team->row[m + 1];
    }
    return w->c->team->move(w->c, own, have, w->x.s.used, all, want, w->x.s.used);
}

/* ---- the calls ---- */

/* What follows from settings and team, without a call. */
static het_result heti_x_begin(heti_x_call *w, const het_unit *unit, const het_team_limits *team) {
    memset(w, 0, sizeof *w);
    HETI_T_TRY(heti_x_settle(HETI_T_CAST(const het_experts *, unit->settings), unit->model, &w->x, NULL));
    w->divided = team != NULL && team->plan != NULL;
    w->made = w->divided ? HETI_X_PICKED : HETI_X_OUT;
    w->bound[1] = w->x.s.experts;
    if (!w->divided) return HET_OK;
    if (team->members > w->x.s.experts) return HET_ERR_UNSUPPORTED;
    w->member = team->member;
    heti_x_bounds(team->plan, team->members, w->x.s.experts, w->bound);
    heti_x_find_nodes(w, team->node, team->members);
    return HET_OK;
}

static het_result heti_x_open(const het_unit_call *c, heti_x_call *w) {
    HETI_T_TRY(heti_x_begin(w, c->unit, c->info->team));
    w->c = c;
    w->t = c->tensor;
    w->view = w->divided ? c->team->view : c->view;
    w->chosen = heti_x_integers(w->t[HETI_X_CHOSEN]);
    w->routes = heti_x_integers(w->t[w->divided ? HETI_X_ROUTES : HETI_X_CHOSEN]);
    w->slot = heti_x_integers(w->t[HETI_X_SLOT]);
    w->came = heti_x_integers(w->t[HETI_X_CAME]);
    w->place = heti_x_integers(w->t[HETI_X_PLACE]);
    return HET_OK;
}

static het_result heti_x_forward(const het_unit_call *c) {
    float *const *t = c->tensor;
    const float *rows = t[HETI_X_H];
    heti_x_call w;
    HETI_T_TRY(heti_x_open(c, &w));
    HETI_T_TRY(heti_x_norm(&w, HET_OP_NORM_FORWARD));
    HETI_T_TRY(heti_x_product(&w, HET_OP_LINEAR_FORWARD, HETI_X_ROUTER, 0, c->view));
    heti_x_route(&w);
    HETI_T_TRY(heti_x_gather(&w, t[HETI_X_CHOSEN], t[HETI_X_ROUTES]));
    heti_x_order(&w);
    HETI_T_TRY(heti_x_exchange(&w, 0, &rows, t[HETI_X_ROWS]));
    heti_x_pick(&w, NULL, rows, t[HETI_X_PICKED]);
    HETI_T_TRY(heti_x_products(&w, HET_OP_LINEAR_FORWARD, HETI_X_UP));
    HETI_T_TRY(heti_x_activation(&w, HET_OP_ACTIVATION_FORWARD));
    HETI_T_TRY(heti_x_products(&w, HET_OP_LINEAR_FORWARD, HETI_X_DOWN));
    rows = t[w.made];
    HETI_T_TRY(heti_x_exchange(&w, 1, &rows, t[HETI_X_OUT]));
    heti_x_mix(&w, t[HETI_X_GATES], rows, NULL, t[HETI_X_H]);
    return heti_x_dropout(&w, 1);
}

static het_result heti_x_backward_input(const het_unit_call *c) {
    float *const *t = c->tensor;
    const float *rows = t[HETI_X_H];
    heti_x_call w;
    HETI_T_TRY(heti_x_open(c, &w));
    heti_x_order(&w);
    HETI_T_TRY(heti_x_dropout(&w, 0));
    if (w.x.router >= 0) heti_x_logits(&w, rows);
    HETI_T_TRY(heti_x_gather(&w, t[HETI_X_GATES], t[HETI_X_SHARES]));
    HETI_T_TRY(heti_x_exchange(&w, 0, &rows, t[HETI_X_PICKED]));
    heti_x_pick(&w, t[w.divided ? HETI_X_SHARES : HETI_X_GATES], rows, t[HETI_X_DOUT]);
    HETI_T_TRY(heti_x_products(&w, HET_OP_LINEAR_BACKWARD_INPUT, HETI_X_DOWN));
    HETI_T_TRY(heti_x_activation(&w, HET_OP_ACTIVATION_BACKWARD));
    HETI_T_TRY(heti_x_products(&w, HET_OP_LINEAR_BACKWARD_INPUT, HETI_X_UP));
    rows = t[HETI_X_PICKED]; /* gradients of h */
    HETI_T_TRY(heti_x_exchange(&w, 1, &rows, t[HETI_X_OUT]));
    HETI_T_TRY(heti_x_product(&w, HET_OP_LINEAR_BACKWARD_INPUT, HETI_X_ROUTER, 0, c->view));
    heti_x_mix(&w, NULL, rows, w.x.router < 0 ? NULL : t[HETI_X_H], t[HETI_X_DH]);
    if (w.x.parallel) memmove(c->d_in[1], c->d_out[0], HETI_T_CAST(size_t, c->rows * w.x.d) * sizeof(float));
    return heti_x_norm(&w, HET_OP_NORM_BACKWARD_INPUT);
}

static het_result heti_x_backward_weight(const het_unit_call *c) {
    float *const *t = c->tensor;
    int trained = 0;
    heti_x_call w;
    HETI_T_TRY(heti_x_open(c, &w));
    heti_x_order(&w);
    HETI_T_TRY(heti_x_norm(&w, HET_OP_NORM_FORWARD)); /* h again */
    for (int p = w.x.matrix; p <= w.x.down; p++) trained |= c->gradient[p].sum != NULL;
    if (trained) {
        heti_x_pick(&w, NULL, t[w.divided ? HETI_X_ROWS : HETI_X_H], t[HETI_X_PICKED]);
        HETI_T_TRY(heti_x_activation(&w, HET_OP_ACTIVATION_FORWARD));
        HETI_T_TRY(heti_x_products(&w, HET_OP_LINEAR_BACKWARD_WEIGHT, HETI_X_UP));
        HETI_T_TRY(heti_x_products(&w, HET_OP_LINEAR_BACKWARD_WEIGHT, HETI_X_DOWN));
    }
    HETI_T_TRY(heti_x_product(&w, HET_OP_LINEAR_BACKWARD_WEIGHT, HETI_X_ROUTER, 0, c->view));
    return heti_x_norm(&w, HET_OP_NORM_BACKWARD_WEIGHT);
}

/* ---- describing ---- */

/* What an MLP of the experts' width says, without biases and factors, and a linear unit, the
   router: parameters, workspace, flops. Their values are floats, as those of a team are. Their
   programs end with this call. */
static het_result heti_x_describe_parts(const het_unit *unit, const heti_x *x, het_unit_info *mlp,
                                        het_unit_info *router) {
    het_model_desc model = *unit->model;
    const het_unit part = { NULL, &model, unit->layer, NULL };
    het_team_limits floats;
    het_program program, *p;
    memset(&floats, 0, sizeof floats);
    model.mlp_width = x->f;
    model.linear_bias = HET_NO;
    model.lora_rank = 0;
    mlp->team = &floats;
    mlp->program = &program;
    *router = *mlp;
    router->in_streams = 1;
    router->compute = HET_F32;
    HETI_T_TRY(het_unit_mlp()->describe(&part, mlp));
    p = het_program_begin(&part, router);
    het_node_output(p, het_node_linear(p, het_node_input(p, 0, x->d), "router", x->s.experts, model.init_std));
    return het_program_end(p);
}

/* Norm, router, gate, up, down, like an MLP's but for the router. Experts are divided as wholes. */
static het_result heti_x_parameters(const heti_x *x, const het_unit_info *mlp, het_unit_info *info) {
    static const char *const heti_x_names[4] = { "gate", "gate_proj", "up_proj", "down_proj" };
    info->parameters = x->down + 1;
    for (int p = 0; p <= x->down; p++) {
        const int expert = p >= x->matrix;
        het_parameter_desc *to = &info->parameter[p];
        heti_t_text t;
        char *end;
        *to = mlp->parameter[expert && x->router >= 0 ? p - 1 : p];
        if (p == 0 || p == x->bias) continue;
        if ((end = strstr(to->name, ".mlp.")) == NULL) return HET_ERR_UNSUPPORTED;
        end[5] = 0;
        t = heti_t_text_behind(to->name, sizeof to->name);
        if (expert) heti_t_format(&t, "experts.0-%d.", x->s.experts - 1);
        heti_t_format(&t, "%s.weight", heti_x_names[expert ? 3 - (x->down - p) : 0]);
        to->int8 = 0; /* floats are made of int8: an expert begins anywhere in its blocks */
        to->divide = expert;
        to->piece = expert ? HETI_T_CAST(int32_t, to->rows) : 0;
        to->rows = expert ? x->s.experts * to->rows : x->s.experts;
    }
    return HET_OK;
}

/* A member of a team has places for all rows of the team with its experts; OUT is for its own. */
static void heti_x_tensors(const heti_x_call *w, het_unit_info *info) {
    const heti_x *x = &w->x;
    const int64_t used = x->s.used, d = x->d, e = x->router < 0 ? 1 : x->s.experts, relay = w->two_hops ? used * d : 1;
    const int64_t experts = w->bound[w->member + 1] - w->bound[w->member], k = experts < used ? experts : used;
    const int64_t f = k * x->f, b = x->gated ? f : 1;
    const int32_t g = w->divided;
    const het_tensor_desc tensor[HETI_X_TEAM_TENSORS] = {
        { "h", d, HET_KEEP_CALL, 0 }, { "mean", 1, HET_KEEP_WEIGHT, 0 }, { "rstd", 1, HET_KEEP_WEIGHT, 0 },
        { "chosen", used, HET_KEEP_WEIGHT, 0 }, { "gates", used, HET_KEEP_INPUT, 0 }, { "p", e, HET_KEEP_INPUT, 0 },
        { "slot", used, HET_KEEP_CALL, g }, { "came", 1, HET_KEEP_CALL, g }, { "place", used, HET_KEEP_CALL, 0 },
        { "granule", 4, HET_KEEP_CALL, g }, { "picked", k * d, HET_KEEP_CALL, g }, { "a", f, HET_KEEP_WEIGHT, g },
        { "b", b, HET_KEEP_WEIGHT, g }, { "u", f, HET_KEEP_CALL, g }, { "out", used * d, HET_KEEP_INPUT, 0 },
        { "dout", k * d, HET_KEEP_GRADIENT, g }, { "da", f, HET_KEEP_GRADIENT, g }, { "db", b, HET_KEEP_GRADIENT, g },
        { "dl", e, HET_KEEP_GRADIENT, 0 }, { "dh", d, HET_KEEP_GRADIENT, 0 }, { "routes", used, HET_KEEP_WEIGHT, 1 },
        { "shares", used, HET_KEEP_CALL, 1 }, { "rows", d, HET_KEEP_WEIGHT, 1 },
        { "sent", relay > 1 ? relay : k * d, HET_KEEP_CALL, 1 }, { "relay", relay, HET_KEEP_CALL, 1 } };
    HETI_T_COPY(info->tensor, tensor, HETI_X_TEAM_TENSORS);
    info->tensors = g ? HETI_X_TEAM_TENSORS : HETI_X_TENSORS;
}

static het_result heti_x_describe(const het_unit *unit, het_unit_info *info) {
    het_unit_info mlp = *info, router;
    heti_x_call w;
    const het_experts *s = &w.x.s;
    info->why = "experts are routed on the host, and the device has no host_memory";
    if (info->device != NULL && !info->device->iface->host_memory) return HET_ERR_UNSUPPORTED;
    info->why = "its settings, which het_experts_units would have checked";
    HETI_T_TRY(heti_x_begin(&w, unit, info->team));
    info->why = NULL;
    HETI_T_TRY(heti_x_describe_parts(unit, &w.x, &mlp, &router));
    HETI_T_TRY(heti_x_parameters(&w.x, &mlp, info));
    heti_x_tensors(&w, info);
    info->workspace = mlp.workspace > router.workspace ? mlp.workspace : router.workspace;
    info->out_streams = info->teams = 1;
    info->out_width[0] = w.x.d;
    info->input_keep = HET_KEEP_WEIGHT;
    info->flops_forward = HETI_T_CAST(double, s->used) * mlp.flops_forward;
    if (w.x.router >= 0) info->flops_forward += router.flops_forward;
    info->flops_input = info->flops_weight = info->flops_forward;
    for (int way = 0; way < 2; way++) { /* experts, or gates; a row for each choice, out and back */
        info->gather_bytes[way] = 4 * HETI_T_CAST(double, s->used);
        info->exchange_bytes[way] = 8 * HETI_T_CAST(double, s->used * w.x.d);
    }
    return HET_OK;
}

static const het_unit_iface heti_x_unit = { HETRAIN_UNIT_VERSION, "experts", heti_x_describe, heti_x_forward,
                                            heti_x_backward_input, heti_x_backward_weight };
HETRAIN_API const het_unit_iface *het_unit_experts(void) { return &heti_x_unit; }

HETRAIN_API het_result het_experts_units(het_desc *desc, const het_experts *experts, het_unit *units, int64_t capacity,
                                         het_error *error) {
    het_model_desc model;
    int64_t count = 0;
    heti_x x;
    if (desc == NULL || experts == NULL || units == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_experts_units: desc, experts and units must not be NULL");
    model = desc->model;
    HETI_T_TRY(het_model_complete(&model, error));
    HETI_T_TRY(heti_x_settle(experts, &model, &x, error));
    if (model.lora_rank > 0 && model.lora_targets >= HET_LORA_GATE) /* or up, or down */
        return heti_t_fail(error, HET_ERR_UNSUPPORTED, "het_experts_units: lora_targets %d: experts have no factors; "
                           "q, k, v and o may", model.lora_targets);
    for (int64_t u = 0; desc->layout.devices != NULL && u < desc->layout.device_count; u++) {
        const het_device_iface *device = desc->layout.devices[u].iface;
        if (device != NULL && !device->host_memory)
            return heti_t_fail(error, HET_ERR_UNSUPPORTED, "het_experts_units: device %d (%s) has no host_memory, "
                               "experts are routed on the host", u, device->name);
    }
    HETI_T_TRY(het_model_units(&model, units, capacity, &count, error));
    for (int64_t u = 0; u < count; u++) {
        units[u].model = NULL; /* the context's */
        if (units[u].iface == het_unit_mlp()) units[u].iface = het_unit_experts(), units[u].settings = experts;
    }
    desc->units = units;
    desc->unit_count = count;
    return HET_OK;
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
