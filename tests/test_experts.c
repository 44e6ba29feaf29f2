/* Experts: outputs and gradients of the unit against plain loops over tokens, finite differences in double, one hash over layouts, drops, errors,
   files. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "support.h"

#define HETRAIN_EXPERTS_IMPLEMENTATION
#include "hetrain_experts.h"
#include "hetrain_files.h"
#include "hetrain_plan.h"
#include "threads_transport.h"

#define STEPS 4
enum { MOST_ROWS = 64, MOST_EXPERTS = 8, MOST_USED = 3, MOST_WIDTH = 24, MOST_MIDDLE = 40 };

/* ---- one unit, called by hand ---- */

typedef struct rig {
    het_model_desc model;
    het_experts experts;
    het_unit unit;
    het_unit_info info;
    het_program program;
    het_device device;
    support_memory memory;
    het_view view;
    het_step_scalars scalars;
    het_unit_call call;
    int32_t token[MOST_ROWS];
    int64_t start[9];
    double *sum[HETRAIN_MAX_UNIT_PARAMETERS], grid;
    uint32_t maximum[HETRAIN_MAX_UNIT_PARAMETERS];
    float *x, *y, *dy, *dx;
} rig;

/* Four granules, the third of them empty. */
static void rig_start(rig *r, const het_experts *experts, het_family family, int64_t rows)
{
    const int64_t start[5] = { 0, rows / 3, rows / 2, rows / 2, rows };
    int64_t i;
    memset(r, 0, sizeof *r);
    r->memory.fail_at = -1;
    r->model = support_model(family);
    r->model.width = MOST_WIDTH;
    r->model.heads = r->model.kv_heads = 2;
    r->model.head_size = 12;
    r->experts = *experts;
    r->experts.width = MOST_MIDDLE;
    r->unit.iface = het_unit_experts();
    r->unit.model = &r->model;
    r->unit.layer = 1;
    r->unit.settings = &r->experts;
    r->device.iface = het_cpu_device();
    {
        const het_allocator memory = support_allocator(&r->memory);
        const het_parallel none = { NULL, NULL };
        het_device_config config;
        memset(&config, 0, sizeof config);
        config.allocator = &memory;
        config.parallel = &none;
        config.threads = 1;
        EXPECT_OK(r->device.iface->create(&config, &r->device.self));
    }
    r->info.max_tokens = r->info.max_granule_tokens = rows;
    r->info.compute = HET_F32;
    r->info.slices = r->info.in_streams = 1;
    r->info.in_width[0] = MOST_WIDTH;
    r->info.device = &r->device;
    r->info.program = &r->program;
    EXPECT_OK(r->unit.iface->describe(&r->unit, &r->info));
    memcpy(r->start, start, sizeof start);
    r->view.tokens = r->view.row_end = rows;
    r->view.granules = r->view.granule_end = 4;
    r->view.granule_start = r->view.host_granule_start = r->start;
    for (i = 0; i < rows; i++) r->token[i] = (int32_t)(i * i % 11);
    r->view.token = r->token;
    r->scalars.inverse_weight = 0.125f;
    r->grid = 1.5 * 4503599627370496.0 * 1.0 / 1073741824.0 / 1024.0;
    r->x = support_floats(rows * MOST_WIDTH, 1.0, 1);
    r->dy = support_floats(rows * MOST_WIDTH, 1.0, 2);
    r->y = support_floats(rows * MOST_WIDTH, 1.0, 3);
    r->dx = support_floats(rows * MOST_WIDTH, 1.0, 4);
    r->call.unit = &r->unit;
    r->call.info = &r->info;
    r->call.device = &r->device;
    r->call.index = 4;
    r->call.view = &r->view;
    r->call.scalars = &r->scalars;
    r->call.compute = HET_F32;
    r->call.training = 1;
    r->call.rows = rows;
    r->call.in[0] = r->x;
    r->call.out[0] = r->y;
    r->call.d_out[0] = r->dy;
    r->call.d_in[0] = r->dx;
    for (i = 0; i < r->info.tensors; i++) r->call.tensor[i] = support_floats(rows * r->info.tensor[i].width, 1.0, 5);
    for (i = 0; i < r->info.parameters; i++) {
        const int64_t count = r->info.parameter[i].rows * r->info.parameter[i].columns;
        r->call.weight[i] = support_floats(count, 0.5, 6 + (uint64_t)i);
        r->sum[i] = support_alloc((size_t)count, sizeof **r->sum);
        memset(r->sum[i], r->info.parameter[i].product ? 0xFF : 0, (size_t)count * sizeof **r->sum);
        r->call.gradient[i].sum = r->sum[i];
        r->call.gradient[i].exact = 1;
        r->call.gradient[i].beta = !r->info.parameter[i].product;
        r->call.gradient[i].grid = &r->grid;
        r->call.gradient[i].maximum = &r->maximum[i];
    }
    r->call.workspace_size = r->info.workspace;
    r->call.workspace = support_alloc(1, r->info.workspace);
}

static void rig_run(rig *r)
{
    EXPECT_OK(r->unit.iface->forward(&r->call));
    EXPECT_OK(r->unit.iface->backward_input(&r->call));
    EXPECT_OK(r->unit.iface->backward_weight(&r->call));
}

static void rig_end(rig *r)
{
    int64_t i;
    for (i = 0; i < r->info.tensors; i++) free(r->call.tensor[i]);
    for (i = 0; i < r->info.parameters; i++) {
        free(r->call.weight[i]);
        free(r->sum[i]);
    }
    free(r->call.workspace);
    free(r->x);
    free(r->y);
    free(r->dx);
    free(r->dy);
    r->device.iface->destroy(r->device.self);
}

static float *rig_tensor(rig *r, const char *name)
{
    int64_t i;
    for (i = 0; i < r->info.tensors; i++)
        if (strcmp(r->info.tensor[i].name, name) == 0) return r->call.tensor[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

/* The parameter whose name ends so; -1: none. */
static int rig_find(const rig *r, const char *end)
{
    int i;
    for (i = 0; i < r->info.parameters; i++) {
        const char *name = r->info.parameter[i].name;
        if (strlen(name) >= strlen(end) && strcmp(name + strlen(name) - strlen(end), end) == 0) return i;
    }
    return -1;
}

/* ---- the same by a plain loop over tokens ---- */

/* What a token does: chosen experts ascending, their gates, and whether they have a place. */
typedef struct choice {
    double p[MOST_EXPERTS];
    int expert[MOST_USED], kept[MOST_USED];
    double gate[MOST_USED];
} choice;

/* The k largest, of equal ones the lower, by going through all k-th places one after the other. */
static void plain_choose(const rig *r, const double *l, choice *c)
{
    const int e_count = (int)r->experts.experts, k = (int)r->experts.used;
    double most = l[0], sum = 0, chosen = 0;
    int taken[MOST_EXPERTS] = { 0 }, i, e, n = 0;
    for (i = 0; i < k; i++) {
        int best = -1;
        for (e = 0; e < e_count; e++)
            if (!taken[e] && (best < 0 || l[e] > l[best])) best = e;
        taken[best] = 1;
    }
    for (e = 0; e < e_count; e++) most = fmax(most, l[e]);
    for (e = 0; e < e_count; e++) sum += c->p[e] = exp(l[e] - most);
    for (e = 0; e < e_count; e++) c->p[e] /= sum;
    for (e = 0; e < e_count; e++)
        if (taken[e]) c->expert[n++] = e;
    for (i = 0; i < k; i++) chosen += c->p[c->expert[i]];
    for (i = 0; i < k; i++) {
        c->gate[i] = c->p[c->expert[i]] / (k > 1 ? chosen : 1);
        c->kept[i] = 1;
    }
}

/* An expert keeps the choices that fewer than C others go before. */
static void plain_drop(const rig *r, choice *c, int64_t begin, int64_t end)
{
    const int k = (int)r->experts.used;
    const double most = (double)r->experts.capacity * (double)(k * (end - begin)) / (double)r->experts.experts;
    const int64_t places = (int64_t)ceil(most - 1e-5);
    int64_t a, b;
    int i, j;
    for (a = begin; a < end && r->experts.capacity > 0; a++)
        for (i = 0; i < k; i++) {
            int64_t before = 0;
            for (b = begin; b < end; b++)
                for (j = 0; j < k; j++) {
                    if (c[b].expert[j] != c[a].expert[i] || b == a) continue;
                    if (r->experts.drop != HET_DROP_PROBABILITY) before += b < a;
                    else before += c[b].gate[j] > c[a].gate[i] || (c[b].gate[j] >= c[a].gate[i] && b < a);
                }
            c[a].kept[i] = before < places;
        }
}

static void norm_of(rig *r, float *h)
{
    het_norm_args a;
    memset(&a, 0, sizeof a);
    a.view = &r->view;
    a.kind = r->model.norm;
    a.rows = r->call.rows;
    a.width = MOST_WIDTH;
    a.rows_per_token = 1;
    a.epsilon = r->model.norm_epsilon;
    a.x = r->x;
    a.gain = r->call.weight[0];
    a.bias = r->model.norm == HET_LAYERNORM ? r->call.weight[1] : NULL;
    a.y = h;
    a.mean = rig_tensor(r, "mean");
    a.rstd = rig_tensor(r, "rstd");
    EXPECT_OK(SUPPORT_OP(r->device.iface, r->device.self, NORM_FORWARD, &a));
}

/* y[o] = chain over i of x[i] W[o][i] */
static void product(const float *w, const float *x, int64_t out, int64_t in, float *y)
{
    int64_t o, i;
    for (o = 0; o < out; o++)
        for (y[o] = 0, i = 0; i < in; i++) y[o] = fmaf(x[i], w[o * in + i], y[o]);
}

/* dx[i]: goes on over o */
static void product_back(const float *w, const float *dy, int64_t out, int64_t in, float *dx)
{
    int64_t o, i;
    for (i = 0; i < in; i++)
        for (o = 0; o < out; o++) dx[i] = fmaf(dy[o], w[o * in + i], dx[i]);
}

typedef struct token_work {
    float a[MOST_MIDDLE], b[MOST_MIDDLE], u[MOST_MIDDLE], out[MOST_WIDTH], dout[MOST_WIDTH], da[MOST_MIDDLE], db[MOST_MIDDLE], dh[MOST_WIDTH];
} token_work;

static void activation(rig *r, het_op_kind kind, token_work *t)
{
    het_activation_args a;
    memset(&a, 0, sizeof a);
    a.kind = r->model.activation;
    a.count = MOST_MIDDLE;
    a.a = t->a;
    a.b = t->b;
    a.y = t->u;
    a.dy = t->da;
    a.da = t->da;
    a.db = t->db;
    EXPECT_OK(support_op(het_reference_device(), NULL, kind, &a, sizeof a));
}

/* One token through one expert and back. */
static void plain_expert(rig *r, int e, const float *h, float gate, const float *dy, token_work *t)
{
    const int gated = r->model.activation == HET_SWIGLU;
    const float *up = r->call.weight[rig_find(r, "up_proj.weight")] + e * MOST_MIDDLE * MOST_WIDTH;
    const float *down = r->call.weight[rig_find(r, "down_proj.weight")] + e * MOST_MIDDLE * MOST_WIDTH;
    const float *first = gated ? r->call.weight[rig_find(r, "gate_proj.weight")] + e * MOST_MIDDLE * MOST_WIDTH : up;
    int i;
    memset(t, 0, sizeof *t);
    product(first, h, MOST_MIDDLE, MOST_WIDTH, t->a);
    if (gated) product(up, h, MOST_MIDDLE, MOST_WIDTH, t->b);
    activation(r, HET_OP_ACTIVATION_FORWARD, t);
    product(down, t->u, MOST_WIDTH, MOST_MIDDLE, t->out);
    for (i = 0; i < MOST_WIDTH; i++) t->dout[i] = gate * dy[i];
    product_back(down, t->dout, MOST_WIDTH, MOST_MIDDLE, t->da);
    activation(r, HET_OP_ACTIVATION_BACKWARD, t);
    product_back(first, t->da, MOST_MIDDLE, MOST_WIDTH, t->dh);
    if (gated) product_back(up, t->db, MOST_MIDDLE, MOST_WIDTH, t->dh);
}

static void same_floats(const float *a, const float *b, int64_t count, const char *what)
{
    int64_t i;
    for (i = 0; i < count; i++)
        if (support_bits(a[i]) != support_bits(b[i]) && !(a[i] >= 0 && a[i] <= 0 && b[i] >= 0 && b[i] <= 0))
            fail_msg("%s: element %d: %.9g and %.9g", what, (int)i, (double)a[i], (double)b[i]);
}

static void near(double a, double b, double most, const char *what, int64_t at)
{
    if (!(fabs(a - b) <= most * (1 + fabs(b)))) fail_msg("%s: element %d: %.12g and %.12g", what, (int)at, a, b);
}

/* Terms, a granule each, of dy^T x over rows that took part: sum += (term + grid) - grid. */
static void same_gradient(const rig *r, const double *sum, const float *const *dy, const float *const *x, int64_t out, int64_t in, const char *what)
{
    int64_t g, o, i, t;
    for (o = 0; o < out; o++)
        for (i = 0; i < in; i++) {
            double all = 0;
            for (g = 0; g < 4; g++) {
                float term = 0;
                volatile double at;
                for (t = r->start[g]; t < r->start[g + 1]; t++)
                    if (dy[t] != NULL) term = fmaf(dy[t][o], x[t][i], term);
                at = (double)term + r->grid;
                all += at - r->grid;
            }
            if (memcmp(&all, &sum[o * in + i], sizeof all) != 0 && fabs(all) + fabs(sum[o * in + i]) > 0)
                fail_msg("%s: element %d %d: %.17g and %.17g", what, (int)o, (int)i, sum[o * in + i], all);
        }
}

/* Routes: experts and drops exactly, gates to a float's precision. Returns how many were dropped. */
static int64_t check_routes(rig *r, const float *h, choice *c)
{
    const int64_t rows = r->call.rows, k = r->experts.used, e_count = r->experts.experts;
    const float *w = r->experts.route == HET_ROUTE_HASH ? NULL : r->call.weight[rig_find(r, "mlp.gate.weight")];
    const float *gates = rig_tensor(r, "gates");
    int32_t chosen[MOST_ROWS * MOST_USED];
    int64_t t, i, g, dropped = 0;
    memcpy(chosen, rig_tensor(r, "chosen"), (size_t)(rows * k) * sizeof *chosen);
    for (t = 0; t < rows; t++) {
        float l[MOST_EXPERTS];
        double wide[MOST_EXPERTS];
        if (w != NULL) product(w, h + t * MOST_WIDTH, e_count, MOST_WIDTH, l);
        for (i = 0; i < e_count && w != NULL; i++) wide[i] = (double)l[i];
        if (w != NULL) plain_choose(r, wide, &c[t]);
        for (i = 0; i < k && w == NULL; i++) { /* by hash: what was chosen, which is checked below */
            c[t].expert[i] = chosen[t * k + i] < 0 ? -1 - chosen[t * k + i] : chosen[t * k + i];
            c[t].gate[i] = 1 / (double)(float)k;
            assert_true(c[t].expert[i] >= (i > 0 ? c[t].expert[i - 1] + 1 : 0) && c[t].expert[i] < e_count);
        }
    }
    for (g = 0; g < 4; g++) plain_drop(r, c, r->start[g], r->start[g + 1]);
    for (t = 0; t < rows; t++)
        for (i = 0; i < k; i++) {
            assert_int_equal(chosen[t * k + i], c[t].kept[i] || r->experts.capacity <= 0 ? c[t].expert[i] : -1 - c[t].expert[i]);
            near((double)gates[t * k + i], c[t].gate[i], 2e-7, "gate", t * k + i);
            c[t].kept[i] = chosen[t * k + i] >= 0;
            dropped += !c[t].kept[i];
        }
    return dropped;
}

/* dl in double, from outputs and gates as floats. */
static void plain_logits(const rig *r, const choice *c, const double *dg, int64_t rows_of_granule, const int64_t *count, double *dl)
{
    const int64_t k = r->experts.used, e_count = r->experts.experts;
    double dp[MOST_EXPERTS], sum = 0, mean = 0, all = 0;
    int64_t i, e;
    for (i = 0; i < k; i++) sum += c->p[c->expert[i]];
    for (i = 0; i < k; i++) mean += dg[i] * c->gate[i];
    for (e = 0; e < e_count; e++)
        dp[e] = (double)r->experts.auxiliary * (double)r->scalars.inverse_weight * (double)e_count * (double)count[e] /
                (double)(k * rows_of_granule);
    for (i = 0; i < k; i++) dp[c->expert[i]] += k > 1 ? (dg[i] - mean) / sum : dg[i];
    for (e = 0; e < e_count; e++) all += dp[e] * c->p[e];
    for (e = 0; e < e_count; e++) dl[e] = c->p[e] * (dp[e] - all);
}

static void check_logits(rig *r, const choice *c, token_work (*work)[MOST_USED])
{
    const int64_t k = r->experts.used, e_count = r->experts.experts;
    const float *dl = rig_tensor(r, "dl");
    int64_t g, t, i, j;
    for (g = 0; g < 4; g++) {
        int64_t count[MOST_EXPERTS] = { 0 };
        for (t = r->start[g]; t < r->start[g + 1]; t++)
            for (i = 0; i < k; i++) count[c[t].expert[i]]++;
        for (t = r->start[g]; t < r->start[g + 1]; t++) {
            double dg[MOST_USED] = { 0 }, wanted[MOST_EXPERTS];
            for (i = 0; i < k; i++)
                for (j = 0; j < MOST_WIDTH && c[t].kept[i]; j++)
                    dg[i] += (double)r->dy[t * MOST_WIDTH + j] * (double)work[t][i].out[j];
            plain_logits(r, &c[t], dg, r->start[g + 1] - r->start[g], count, wanted);
            for (i = 0; i < e_count; i++) near((double)dl[t * e_count + i], wanted[i], 2e-6, "dl", t * e_count + i);
        }
    }
}

/* Outputs, dh and all gradients of matrices, bit for bit, from the unit's own gates and dl. */
static void check_work(rig *r, const float *h, const choice *c, token_work (*work)[MOST_USED])
{
    const int64_t rows = r->call.rows, k = r->experts.used, e_count = r->experts.experts;
    const int gate = rig_find(r, "gate_proj.weight"), router = rig_find(r, "mlp.gate.weight");
    const float *gates = rig_tensor(r, "gates");
    const float *rows_h[MOST_ROWS], *dl[MOST_ROWS], *da[MOST_ROWS], *db[MOST_ROWS], *u[MOST_ROWS], *dout[MOST_ROWS];
    float y[MOST_WIDTH], dh[MOST_WIDTH], add[MOST_WIDTH];
    int64_t t, i, j, e;
    for (t = 0; t < rows; t++) {
        double sum[MOST_WIDTH] = { 0 }, back[MOST_WIDTH] = { 0 };
        memset(add, 0, sizeof add);
        for (i = 0; i < k; i++) {
            if (!c[t].kept[i]) continue;
            plain_expert(r, c[t].expert[i], h + t * MOST_WIDTH, gates[t * k + i], r->dy + t * MOST_WIDTH, &work[t][i]);
            for (j = 0; j < MOST_WIDTH; j++) sum[j] += (double)gates[t * k + i] * (double)work[t][i].out[j];
            for (j = 0; j < MOST_WIDTH; j++) back[j] += (double)work[t][i].dh[j];
        }
        for (j = 0; j < MOST_WIDTH; j++) y[j] = r->x[t * MOST_WIDTH + j] + (float)sum[j];
        same_floats(r->y + t * MOST_WIDTH, y, MOST_WIDTH, "y");
        if (router >= 0) product_back(r->call.weight[router], rig_tensor(r, "dl") + t * e_count, e_count, MOST_WIDTH, add);
        for (j = 0; j < MOST_WIDTH; j++) dh[j] = (float)(back[j] + (double)add[j]);
        same_floats(rig_tensor(r, "dh") + t * MOST_WIDTH, dh, MOST_WIDTH, "dh");
        rows_h[t] = h + t * MOST_WIDTH;
        dl[t] = router >= 0 ? rig_tensor(r, "dl") + t * e_count : NULL;
    }
    if (router >= 0) same_gradient(r, r->sum[router], dl, rows_h, e_count, MOST_WIDTH, "router");
    for (e = 0; e < e_count; e++) {
        for (t = 0; t < rows; t++) {
            da[t] = db[t] = u[t] = dout[t] = NULL;
            for (i = 0; i < k; i++) {
                if (c[t].expert[i] != e || !c[t].kept[i]) continue;
                da[t] = work[t][i].da;
                db[t] = gate >= 0 ? work[t][i].db : work[t][i].da;
                u[t] = work[t][i].u;
                dout[t] = work[t][i].dout;
            }
        }
        if (gate >= 0) same_gradient(r, r->sum[gate] + e * MOST_MIDDLE * MOST_WIDTH, da, rows_h, MOST_MIDDLE, MOST_WIDTH, "gate");
        same_gradient(r, r->sum[rig_find(r, "up_proj.weight")] + e * MOST_MIDDLE * MOST_WIDTH, db, rows_h, MOST_MIDDLE, MOST_WIDTH, "up");
        same_gradient(r, r->sum[rig_find(r, "down_proj.weight")] + e * MOST_MIDDLE * MOST_WIDTH, dout, u, MOST_WIDTH, MOST_MIDDLE, "down");
    }
}

static void the_unit_is_a_loop_over_tokens(void **state)
{
    static const struct { het_route route; int64_t experts, used; float capacity; het_drop drop; float auxiliary; } cases[] = {
        { HET_ROUTE_TOP, 5, 1, 0, HET_DROP_DEFAULT, 0 },   { HET_ROUTE_TOP, 8, 2, 0, HET_DROP_DEFAULT, 0.5f },
        { HET_ROUTE_TOP, 4, 2, 0.8f, HET_DROP_POSITION, 0.5f }, { HET_ROUTE_TOP, 4, 2, 0.8f, HET_DROP_PROBABILITY, 0 },
        { HET_ROUTE_TOP, 3, 1, 1, HET_DROP_PROBABILITY, 1 },    { HET_ROUTE_TOP, 8, 3, 0.5f, HET_DROP_POSITION, 0 },
        { HET_ROUTE_HASH, 4, 1, 0, HET_DROP_DEFAULT, 0 },  { HET_ROUTE_HASH, 4, 2, 0.7f, HET_DROP_PROBABILITY, 0 },
        { HET_ROUTE_TOP, 1, 1, 0, HET_DROP_DEFAULT, 0 },
    };
    static token_work work[MOST_ROWS][MOST_USED];
    size_t i;
    int family;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (family = 0; family < 2; family++) {
            choice c[MOST_ROWS];
            het_experts experts;
            rig r;
            float *h;
            int64_t dropped;
            memset(&experts, 0, sizeof experts);
            experts.route = cases[i].route;
            experts.experts = cases[i].experts;
            experts.used = cases[i].used;
            experts.capacity = cases[i].capacity;
            experts.drop = cases[i].drop;
            experts.auxiliary = cases[i].auxiliary;
            rig_start(&r, &experts, family == 0 ? HET_LLAMA : HET_GPT2, 61);
            rig_run(&r);
            h = support_floats(r.call.rows * MOST_WIDTH, 1.0, 7);
            norm_of(&r, h);
            dropped = check_routes(&r, h, c);
            assert_true(cases[i].capacity > 0 ? dropped > 0 : dropped == 0);
            check_work(&r, h, c, work);
            if (cases[i].route == HET_ROUTE_TOP) check_logits(&r, c, work);
            free(h);
            rig_end(&r);
        }
}

/* Equal logits go to the lower expert, equal gates to the first tokens. */
static void ties_are_decided(void **state)
{
    het_experts experts;
    int32_t chosen[MOST_ROWS * 2];
    int policy, t;
    (void)state;
    for (policy = 0; policy < 2; policy++) {
        rig r;
        memset(&experts, 0, sizeof experts);
        experts.experts = 6;
        experts.used = 2;
        experts.capacity = 0.99f;
        experts.drop = policy == 0 ? HET_DROP_POSITION : HET_DROP_PROBABILITY;
        rig_start(&r, &experts, HET_LLAMA, 60);
        memset(r.call.weight[rig_find(&r, "mlp.gate.weight")], 0, 6 * MOST_WIDTH * sizeof(float));
        rig_run(&r);
        memcpy(chosen, rig_tensor(&r, "chosen"), 120 * sizeof *chosen);
        for (t = 0; t < 60; t++) { /* granules of 20, 10 and 30 rows: 7, 4 and 10 places */
            const int kept = t < 20 ? t < 7 : t < 30 ? t < 24 : t < 40;
            assert_int_equal(chosen[2 * t], kept ? 0 : -1);
            assert_int_equal(chosen[2 * t + 1], kept ? 1 : -2);
        }
        rig_end(&r);
    }
}

/* By hash every expert gets about as many tokens, and layers differ. */
static void hashes_spread(void **state)
{
    heti_x x;
    int32_t chosen[2];
    int64_t count[8] = { 0 }, token, e, same = 0;
    (void)state;
    memset(&x, 0, sizeof x);
    x.s.experts = 8;
    x.s.used = 2;
    for (token = 0; token < 4000; token++) {
        int32_t other[2];
        heti_x_hash((int32_t)token, 0, &x, chosen);
        heti_x_hash((int32_t)token, 1, &x, other);
        assert_true(chosen[0] < chosen[1] && chosen[0] >= 0 && chosen[1] < 8);
        count[chosen[0]]++;
        count[chosen[1]]++;
        same += chosen[0] == other[0] && chosen[1] == other[1];
    }
    for (e = 0; e < 8; e++) assert_true(count[e] > 900 && count[e] < 1100);
    assert_true(same < 250); /* 1 in 28 by chance */
}

/* ---- finite differences ---- */

/* sum of y dy and the auxiliary losses' part, all in double; routes as the floats gave them. */
static double wide_loss(const rig *r, const double *const *weight, const double *x)
{
    const int64_t rows = r->call.rows, k = r->experts.used, e_count = r->experts.experts;
    const double *gain = weight[0], *router = weight[rig_find(r, "mlp.gate.weight")], *gate = weight[rig_find(r, "gate_proj.weight")];
    const double *up = weight[rig_find(r, "up_proj.weight")], *down = weight[rig_find(r, "down_proj.weight")];
    double loss = 0, p_sum[4][MOST_EXPERTS] = { { 0 } }, f[4][MOST_EXPERTS] = { { 0 } };
    int32_t chosen[MOST_ROWS * MOST_USED];
    int64_t t, i, j, m, e, g;
    memcpy(chosen, r->call.tensor[3], (size_t)(rows * k) * sizeof *chosen);
    for (t = g = 0; t < rows; t++) {
        double h[MOST_WIDTH], p[MOST_EXPERTS] = { 0 }, square = 0, sum = 0, all = 0;
        while (r->start[g + 1] <= t) g++;
        for (i = 0; i < MOST_WIDTH; i++) square += x[t * MOST_WIDTH + i] * x[t * MOST_WIDTH + i] / MOST_WIDTH;
        for (i = 0; i < MOST_WIDTH; i++) h[i] = x[t * MOST_WIDTH + i] / sqrt(square + (double)r->model.norm_epsilon) * gain[i];
        for (e = 0; e < e_count; e++) {
            for (i = 0; i < MOST_WIDTH; i++) p[e] += h[i] * router[e * MOST_WIDTH + i];
            sum += p[e] = exp(p[e]);
        }
        for (e = 0; e < e_count; e++) p_sum[g][e] += p[e] /= sum;
        for (i = 0; i < k; i++) all += p[chosen[t * k + i] < 0 ? -1 - chosen[t * k + i] : chosen[t * k + i]];
        for (i = 0; i < MOST_WIDTH; i++) loss += x[t * MOST_WIDTH + i] * (double)r->dy[t * MOST_WIDTH + i];
        for (i = 0; i < k; i++) {
            e = chosen[t * k + i];
            f[g][e < 0 ? -1 - e : e] += 1;
            for (m = 0; m < MOST_MIDDLE && e >= 0; m++) {
                double a = 0, b = 0, d = 0;
                for (j = 0; j < MOST_WIDTH; j++) a += h[j] * gate[(e * MOST_MIDDLE + m) * MOST_WIDTH + j];
                for (j = 0; j < MOST_WIDTH; j++) b += h[j] * up[(e * MOST_MIDDLE + m) * MOST_WIDTH + j];
                for (j = 0; j < MOST_WIDTH; j++) d += (double)r->dy[t * MOST_WIDTH + j] * down[(e * MOST_WIDTH + j) * MOST_MIDDLE + m];
                loss += p[e] / all * a / (1 + exp(-a)) * b * d;
            }
        }
    }
    for (g = 0; g < 4; g++)
        for (e = 0; e < e_count && r->start[g + 1] > r->start[g]; e++) {
            const double count = (double)(r->start[g + 1] - r->start[g]);
            loss += count * (double)r->scalars.inverse_weight * (double)r->experts.auxiliary * (double)e_count * f[g][e] /
                    (count * (double)k) * p_sum[g][e] / count;
        }
    return loss;
}

/* The slope along one element, by a central difference. */
static double slope(const rig *r, double *const *weight, const double *x, double *at)
{
    const double old = *at, step = 1e-5;
    double up, down;
    *at = old + step;
    up = wide_loss(r, (const double *const *)weight, x);
    *at = old - step;
    down = wide_loss(r, (const double *const *)weight, x);
    *at = old;
    return (up - down) / (2 * step);
}

static void gradients_are_slopes(void **state)
{
    het_experts experts;
    double *weight[HETRAIN_MAX_UNIT_PARAMETERS], *x;
    uint64_t seed = 5;
    rig r;
    int64_t p, i, n;
    (void)state;
    memset(&experts, 0, sizeof experts);
    experts.experts = 4;
    experts.used = 2;
    experts.capacity = 0.9f;
    experts.auxiliary = 4;
    rig_start(&r, &experts, HET_LLAMA, 31);
    rig_run(&r);
    x = support_alloc((size_t)(31 * MOST_WIDTH), sizeof *x);
    for (i = 0; i < 31 * MOST_WIDTH; i++) x[i] = (double)r.x[i];
    for (p = 0; p < r.info.parameters; p++) {
        n = r.info.parameter[p].rows * r.info.parameter[p].columns;
        weight[p] = support_alloc((size_t)n, sizeof **weight);
        for (i = 0; i < n; i++) weight[p][i] = (double)r.call.weight[p][i];
    }
    for (p = 0; p < r.info.parameters; p++)
        for (n = 0; n < 24; n++) {
            i = support_below(&seed, r.info.parameter[p].rows * r.info.parameter[p].columns);
            near(r.sum[p][i], slope(&r, weight, x, &weight[p][i]), 1e-4, r.info.parameter[p].name, i);
        }
    for (n = 0; n < 40; n++) {
        i = support_below(&seed, 31 * MOST_WIDTH);
        near((double)r.dx[i], slope(&r, weight, x, &x[i]), 1e-4, "dx", i);
    }
    for (p = 0; p < r.info.parameters; p++) free(weight[p]);
    free(x);
    rig_end(&r);
}

/* ---- whole models ---- */

typedef struct moe_run {
    support_run run;
    het_experts experts;
    het_experts_counts counts[3];
    het_unit units[8];
} moe_run;

static void moe_start(moe_run *m, het_family family, int kind, int steps, const char *blocks)
{
    het_model_desc model = support_deep_model(family);
    het_error error;
    memset(&m->experts, 0, sizeof m->experts);
    memset(m->counts, 0, sizeof m->counts);
    if (strcmp(blocks, SUPPORT_LONG) == 0) model.context = 1200;
    if (kind == 3) model.dropout = 0.1f;
    m->experts.experts = kind == 2 ? 5 : 8;
    m->experts.used = kind == 1 ? 1 : 2;
    m->experts.width = 40;
    m->experts.route = kind == 2 ? HET_ROUTE_HASH : HET_ROUTE_TOP;
    m->experts.capacity = kind == 0 ? 0 : 0.9f;
    m->experts.drop = kind == 3 ? HET_DROP_PROBABILITY : HET_DROP_POSITION;
    m->experts.auxiliary = kind == 2 ? 0 : 0.05f;
    m->experts.counts = m->counts;
    support_run_start(&m->run, &model, steps, blocks);
    EXPECT_ERROR(het_experts_units(&m->run.desc, &m->experts, m->units, 8, &error), HET_OK, error.text, "");
}

typedef support_layout layout;

static void layouts_do_not_show(void **state)
{
    static const layout layouts[] = {
        { "dp", NULL, 1, 2 }, { "dp", NULL, 1, 3 }, { "dp3", NULL, 3, 1 }, { "pp2", "1f1b", 2, 1 }, { "pp2", "zb-h1", 2, 3 },
        { "cp2", NULL, 2, 1 }, { "cp:3,1", NULL, 2, 1 }, { "hp:3,1", NULL, 2, 2 }, { "cp:1,0,2", NULL, 3, 1 }, { "pp2xcp2", "1f1b", 4, 1 },
        { "dp2xpp2", "interleaved", 4, 1 }, { "tp2", NULL, 2, 1 }, { "tp2", NULL, 2, 2 }, { "tp:3,1", NULL, 2, 1 }, { "tp:1,3", NULL, 2, 3 },
        { "pp2xtp2", "zb-h1", 4, 3 }, { "dp2xtp2", NULL, 4, 1 },
    };
    static const het_family families[] = { HET_LLAMA, HET_GPT2, HET_QWEN3, HET_NEOX };
    int kind;
    size_t k;
    (void)state;
    for (kind = 0; kind < 4; kind++) {
        support_result base;
        moe_run m;
        char what[200];
        moe_start(&m, families[kind], kind, STEPS, SUPPORT_SHORT);
        base = support_train(&m.run, "012|345");
        m.run.device[0].threads = 3;
        support_run_ranks(&m.run, 1);
        support_train_same(&base, &m.run, SUPPORT_APART, "3 threads, apart");
        m.run.device[0].threads = 0;
        support_train_same(&base, &m.run, SUPPORT_TOGETHER, "together");
        m.run.desc.limits.max_micro_batches = 1; /* gradients of matrices are final */
        support_train_same(&base, &m.run, SUPPORT_TOGETHER, "one micro-batch");
        m.run.desc.limits.max_micro_batches = m.run.data.blocks;
        m.run.desc.layout.recompute = HET_YES;
        support_train_same(&base, &m.run, "201|543", "recomputed");
        m.run.desc.layout.recompute = HET_DEFAULT;
        m.run.device[0].iface = het_reference_device();
        support_train_same(&base, &m.run, "012|345", "reference device");
        m.run.device[0].iface = NULL;
        for (k = 0; k < sizeof layouts / sizeof layouts[0]; k++) {
            support_run_ranks(&m.run, layouts[k].ranks);
            support_run_plan(&m.run, layouts[k].plan, layouts[k].schedule, layouts[k].slices);
            snprintf(what, sizeof what, "kind %d, %s, %d slices", kind, layouts[k].plan, (int)layouts[k].slices);
            support_train_same(&base, &m.run, k % 2 ? "012|345" : SUPPORT_TOGETHER, what);
        }
        support_run_end(&m.run);
    }
}

/* Long sequences in pieces, one micro-batch (sums that are final), bf16. */
static void long_sequences_and_bf16(void **state)
{
    int kind;
    (void)state;
    for (kind = 0; kind < 3; kind++) {
        support_result base;
        moe_run m;
        moe_start(&m, HET_QWEN3, kind == 2 ? 3 : 0, 2, SUPPORT_LONG);
        if (kind == 1) m.run.desc.dtype = HET_BF16;
        base = support_train(&m.run, "01|2");
        m.run.desc.limits.max_micro_batches = 1;
        support_train_same(&base, &m.run, "012", "one micro-batch");
        m.run.desc.limits.max_micro_batches = 3;
        support_run_ranks(&m.run, 3);
        support_run_plan(&m.run, "cp:2,1,3", NULL, 1);
        support_train_same(&base, &m.run, "012", "cp:2,1,3");
        support_run_ranks(&m.run, 2);
        support_run_plan(&m.run, "pp2", "1f1b", 2);
        support_train_same(&base, &m.run, "012", "pp2, 2 slices");
        support_run_plan(&m.run, "tp:3,1", NULL, 2);
        support_train_same(&base, &m.run, "012", "tp:3,1, 2 slices");
        support_run_plan(&m.run, "dp2", NULL, 1);
        m.run.desc.layout.shard = HET_SHARD_GRADIENTS;
        support_train_same(&base, &m.run, "01|2", "dp2, gradients sharded");
        m.run.desc.layout.shard = HET_SHARD_WEIGHTS;
        support_train_same(&base, &m.run, "01|2", "dp2, weights sharded");
        support_run_end(&m.run);
    }
}

/* ---- experts divided among the members of a team ---- */

/* Divided sums, recomputed forwards, members without rows, three members of which the first two have an expert each. */
static void members_divide_experts(void **state)
{
    static const het_family families[] = { HET_LLAMA, HET_GPT2, HET_QWEN3, HET_NEOX };
    int kind;
    (void)state;
    for (kind = 0; kind < 4; kind++) {
        support_result base;
        moe_run m;
        moe_start(&m, families[kind], kind, STEPS, SUPPORT_SHORT);
        base = support_train(&m.run, "012|345");
        support_run_ranks(&m.run, 2);
        support_run_plan(&m.run, "tp:3,1", NULL, 2);
        m.run.desc.layout.shard = HET_SHARD_GRADIENTS;
        support_train_same(&base, &m.run, SUPPORT_APART, "tp:3,1, gradients sharded, apart");
        m.run.desc.layout.recompute = HET_YES;
        support_train_same(&base, &m.run, "201|543", "tp:3,1, gradients sharded, recomputed");
        m.run.desc.layout.recompute = HET_DEFAULT;
        support_run_ranks(&m.run, 4);
        support_run_plan(&m.run, "dp2xtp2", NULL, 1);
        support_train_same(&base, &m.run, "012|345", "dp2xtp2, gradients sharded");
        m.run.desc.layout.shard = HET_SHARD_DEFAULT;
        m.run.desc.limits.max_micro_batches = 1;
        support_run_ranks(&m.run, 2);
        support_run_plan(&m.run, "tp2", NULL, 1);
        support_train_same(&base, &m.run, SUPPORT_TOGETHER, "tp2, one micro-batch");
        m.run.device[0].iface = m.run.device[1].iface = het_reference_device();
        support_train_same(&base, &m.run, SUPPORT_TOGETHER, "tp2, reference devices");
        m.run.device[0].iface = m.run.device[1].iface = NULL;
        m.run.desc.limits.max_micro_batches = m.run.data.blocks;
        if (m.run.desc.model.kv_heads == 5) {
            support_run_ranks(&m.run, 3);
            support_run_plan(&m.run, "tp:1,1,8", NULL, 1);
            support_train_same(&base, &m.run, "012|345", "tp:1,1,8");
        }
        support_run_end(&m.run);
    }
}

static void divided_experts_evaluate_and_generate(void **state)
{
    static const char *const plans[] = { "tp2", "tp:1,3", "pp2xtp2" };
    static const int32_t token[] = { 3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 8, 9, 7, 9 };
    int kind, k;
    (void)state;
    for (kind = 0; kind < 4; kind++) {
        float want[2][61], got[61];
        het_step_info info;
        support_group group;
        double loss;
        het_ctx *ctx;
        moe_run m;
        moe_start(&m, kind % 2 ? HET_GPT2 : HET_QWEN3, kind, 1, SUPPORT_SHORT);
        support_group_start(&group, &m.run.data, 0, "012|345");
        ctx = support_create(&m.run.desc);
        EXPECT_OK(het_evaluate(ctx, group.batch, group.count, &info));
        loss = info.loss;
        EXPECT_OK(het_infer(ctx, token, 9, 0, want[0]));
        EXPECT_OK(het_infer(ctx, token + 9, 5, 9, want[1]));
        het_destroy(ctx);
        for (k = 0; k < 6; k++) {
            const char *plan = plans[k / 2];
            support_run_ranks(&m.run, plan[0] == 'p' ? 4 : 2);
            support_run_plan(&m.run, plan, NULL, 1);
            m.run.desc.inference = k % 2 ? HET_YES : HET_NO;
            ctx = support_create(&m.run.desc);
            EXPECT_OK(het_evaluate(ctx, group.batch, group.count, &info));
            if (info.loss < loss || info.loss > loss) fail_msg("%s: loss %.17g, not %.17g", plan, info.loss, loss);
            EXPECT_OK(het_infer(ctx, token, 9, 0, got));
            if (memcmp(got, want[0], sizeof got) != 0) fail_msg("kind %d, %s: logits differ", kind, plan);
            EXPECT_OK(het_infer(ctx, token + 9, 5, 9, got));
            if (memcmp(got, want[1], sizeof got) != 0) fail_msg("kind %d, %s: logits behind kept keys differ", kind, plan);
            het_destroy(ctx);
        }
        support_group_end(&group);
        support_run_end(&m.run);
    }
}

/* Which rows a rank had of a micro-batch, as its hook saw them. */
typedef struct seen { int64_t first[4], rows[4]; } rank_rows;

static het_result see(void *user, const het_hook_info *info)
{
    rank_rows *s = user;
    s->first[info->rank] = info->row; /* a rank writes its own place */
    s->rows[info->rank] = info->rows;
    return HET_OK;
}

typedef struct traffic { int64_t messages, bytes; } traffic;

static void add(traffic *t, int64_t messages, int64_t bytes)
{
    if (bytes == 0) return;
    t->messages += messages;
    t->bytes += messages * bytes;
}

/* Member of a token's two of five experts, by going through a list of those that are left. */
static void plain_hash(int32_t token, int64_t layer, const int64_t *bound, int *member)
{
    int left[5] = { 0, 1, 2, 3, 4 }, i, j;
    for (i = 0; i < 2; i++) {
        const int64_t key[3] = { token, layer, i };
        const int at = (int)(het_xxh64(key, sizeof key, 0) % (uint64_t)(5 - i));
        for (member[i] = 0; bound[member[i] + 1] <= left[at]; member[i]++) {}
        for (j = at; j < 4; j++) left[j] = left[j + 1];
    }
}

/* Rows that go from member to member, `size` bytes each, twice. Where a node has several members: to the one of the sender's node that has
   the receiver's place in its node, and from there on. */
static void add_rows(traffic want[4][4], int64_t rows[4][4], int64_t members, int64_t node, int64_t size)
{
    int64_t hop[2][4][4] = { { { 0 } } }, i, j, h;
    for (i = 0; i < members; i++)
        for (j = 0; j < members; j++) {
            const int64_t via = node == 1 ? i : i / node == j / node ? j : i / node * node + j % node;
            if (via != i) hop[0][i][via] += rows[i][j];
            if (via != j) hop[1][via][j] += rows[i][j];
        }
    for (h = 0; h < 2; h++)
        for (i = 0; i < members; i++)
            for (j = 0; j < members; j++) add(&want[i][j], 2, hop[h][i][j] * size);
}

/* What members send each other in a layer with experts by hash, whose attention is divided by heads. Forward and backward take the same.
   `node`: members of a process. */
static void add_layer(traffic want[4][4], const moe_run *m, const int32_t *token, int64_t layer, const int64_t *row, const int64_t *bound,
                      int64_t node)
{
    const het_model_desc *model = &m->run.desc.model;
    const int64_t ranks = m->run.plan->ranks, e4 = 4 * model->head_size, g = model->heads / model->kv_heads, d4 = 4 * model->width;
    int64_t out[4][4] = { { 0 } }, choices[4][4] = { { 0 } }, i, j, r;
    for (i = 0; i < ranks; i++)
        for (r = row[i]; r < row[i + 1]; r++) {
            int member[2];
            plain_hash(token[r], layer, bound, member);
            for (j = 0; j < 2; j++) choices[member[j]][i]++;
            for (j = 0; j < ranks; j++) out[i][j] += member[0] == j || member[1] == j;
        }
    for (i = 0; i < ranks; i++)
        for (j = 0; j < ranks; j++) {
            const int64_t n = row[i + 1] - row[i], to = row[j + 1] - row[j], own = m->run.plan->member[i].heads, heads = m->run.plan->member[j].heads;
            if (i == j) continue;
            add(&want[i][j], 2, n * heads * g * e4); /* q, do; k, v; o, dq; dk, dv */
            add(&want[i][j], 2, n * heads * e4);
            add(&want[i][j], 2, to * own * g * e4);
            add(&want[i][j], 2, to * own * e4);
            add(&want[i][j], 2, n * 2 * 4); /* experts; gates */
        }
    add_rows(want, out, ranks, node, d4);
    add_rows(want, choices, ranks, node, d4);
}

/* One process of a team: two steps, and what its ranks send in a third one. */
typedef struct node_run {
    const moe_run *m;
    het_desc desc;
    const support_group *last;
    int64_t first;                  /* of its ranks */
    traffic sent[4][4];
    uint64_t hash;
} node_run;

static void *live(void *user)
{
    node_run *n = user;
    const int64_t end = n->first + n->desc.layout.device_count;
    het_ctx *ctx = support_create(&n->desc);
    int64_t i, j;
    for (i = 0; i < 2; i++) (void)support_step(ctx, &n->m->run.data, (int)i, "0123");
    for (j = -1; j <= 1; j += 2) {
        for (i = n->first; i < end; i++) {
            het_timeline t;
            int64_t to;
            het_get_timeline(ctx, i - n->first, &t);
            for (to = 0; to < n->m->run.plan->ranks; to++) {
                n->sent[i][to].messages += j * t.traffic[to].exchanges;
                n->sent[i][to].bytes += j * t.traffic[to].exchange_bytes;
            }
        }
        if (j < 0) EXPECT_OK(het_step(ctx, n->last->batch, n->last->count, NULL));
    }
    n->hash = support_hash(ctx);
    het_destroy(ctx);
    return NULL;
}

/* Trains in one process (`node` 1) or in several of `node` ranks, on threads. */
static void live_together(node_run *run, const moe_run *m, const support_group *last, int64_t ranks, int64_t node)
{
    const int64_t processes = node == 1 ? 1 : ranks / node;
    threads_world world;
    threads_end ends[4];
    het_transport transport[4];
    pthread_t thread[4];
    int64_t i;
    memset(run, 0, 4 * sizeof *run);
    threads_open(&world, ends, transport, processes, 0);
    for (i = 0; i < processes; i++) {
        run[i].m = m, run[i].desc = m->run.desc, run[i].last = last, run[i].first = i * node;
        if (processes > 1) run[i].desc.layout.device_count = node, run[i].desc.layout.transport = transport[i];
        assert_int_equal(pthread_create(&thread[i], NULL, live, &run[i]), 0);
    }
    for (i = 0; i < processes; i++) pthread_join(thread[i], NULL);
    for (i = 1; i < processes; i++) assert_true(run[i].hash == run[0].hash);
}

static void check_traffic(const char *plan, int64_t ranks, const int64_t *bound, int64_t node)
{
    int64_t i, j, row[5] = { 0 }, sum = 0, across = 0;
    node_run run[4];
    traffic want[4][4];
    support_group group;
    rank_rows rows;
    moe_run m;
    memset(want, 0, sizeof want);
    memset(&rows, 0, sizeof rows);
    moe_start(&m, HET_QWEN3, 2, 3, "47,25|44,27|47,24|40,28");
    m.experts.capacity = 0;
    m.run.desc.host.hook = see;
    m.run.desc.host.user = &rows;
    support_run_ranks(&m.run, ranks);
    support_run_plan(&m.run, plan, NULL, 1);
    support_group_start(&group, &m.run.data, 2, "0123");
    live_together(run, &m, &group, ranks, node);
    for (i = 0; i < ranks; i++) {
        assert_int_equal(rows.first[i], row[i]);
        row[i + 1] = row[i] + rows.rows[i];
        assert_true(rows.rows[i] > 0);
    }
    assert_int_equal(row[ranks], group.batch[0].tokens);
    for (i = 0; i < 3; i++) add_layer(want, &m, group.batch[0].token, i, row, bound, node);
    for (i = 0; i < ranks; i++)
        for (j = 0; j < ranks; j++) {
            const traffic *got = &run[node == 1 ? 0 : i / node].sent[i][j];
            if (got->messages != want[i][j].messages || got->bytes != want[i][j].bytes)
                fail_msg("%s: rank %d sends %d %d messages of %d bytes, not %d of %d", plan, (int)i, (int)j, (int)got->messages, (int)got->bytes,
                         (int)want[i][j].messages, (int)want[i][j].bytes);
            sum += got->bytes;
            if (i / 2 != j / 2) across += got->messages;
        }
    print_message("%s, %d in a process: %d rows, %d bytes, %d messages between ranks 0, 1 and the others\n", plan, (int)(node == 1 ? ranks : node),
                  (int)row[ranks], (int)sum, (int)across);
    support_group_end(&group);
    support_run_end(&m.run);
}

/* Routers of every kind in two processes of two ranks each, whose members follow each other, or not. */
static void nodes_do_not_show(void **state)
{
    static const char *const plans[] = { "tp4",
        "{\"teams\":[{\"ranks\":[0,2,1,3],\"split\":\"columns\"}],\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,8]}]}]}",
                                         "tp:1,2,1,2", "tp4" };
    int kind;
    (void)state;
    for (kind = 0; kind < 4; kind++) {
        node_run run[4];
        support_result base;
        support_group group;
        moe_run m;
        moe_start(&m, kind % 2 ? HET_GPT2 : HET_QWEN3, kind, 3, "47,25|44,27|47,24|40,28");
        base = support_train(&m.run, "0123");
        support_run_ranks(&m.run, 4);
        support_group_start(&group, &m.run.data, 2, "0123");
        support_run_plan(&m.run, plans[kind], NULL, 1);
        live_together(run, &m, &group, 4, 2);
        if (run[0].hash != base.weights) fail_msg("router %d: other weights", kind);
        support_group_end(&group);
        support_run_end(&m.run);
    }
}

static void traffic_is_what_was_chosen(void **state)
{
    static const int64_t two[] = { 0, 3, 5 }, uneven[] = { 0, 4, 5 }, three[] = { 0, 2, 3, 5 }, four[] = { 0, 1, 3, 4, 5 };
    (void)state;
    check_traffic("tp2", 2, two, 1);
    check_traffic("tp:3,1", 2, uneven, 1);
    check_traffic("tp:2,1,2", 3, three, 1);
    check_traffic("tp4", 4, four, 1);
    check_traffic("tp4", 4, four, 2); /* two nodes of two members each */
}

static int all_but_norms(void *user, const char *name) { (void)user; return strstr(name, "norm") == NULL; }

/* Frozen experts pass gradients on, in f32 and as bf16 weights; low-rank factors train beside them. */
static void frozen_experts(void **state)
{
    moe_run m;
    support_result a, b;
    (void)state;
    moe_start(&m, HET_LLAMA, 0, 2, SUPPORT_SHORT);
    m.run.desc.frozen = all_but_norms;
    a = support_train(&m.run, "012|345");
    support_run_ranks(&m.run, 2);
    support_run_plan(&m.run, "cp2", NULL, 1);
    support_train_same(&a, &m.run, "012|345", "frozen, cp2");
    support_run_plan(&m.run, "tp2", NULL, 1);
    support_train_same(&a, &m.run, "012|345", "frozen, tp2");
    m.run.desc.weights = HET_BF16;
    b = support_train(&m.run, "012|345");
    support_run_plan(&m.run, "tp2", NULL, 1);
    support_train_same(&b, &m.run, "012|345", "frozen, bf16, tp2");
    assert_true(b.loss[0] > 0 && fabs(b.loss[0] - a.loss[0]) < 0.05 && b.weights != a.weights);
    support_run_end(&m.run);
    moe_start(&m, HET_LLAMA, 0, 2, SUPPORT_SHORT);
    m.run.desc.model.lora_rank = 2;
    a = support_train(&m.run, "012|345");
    assert_true(a.loss[1] > 0);
    support_run_ranks(&m.run, 2);
    support_run_plan(&m.run, "tp2", NULL, 1);
    support_train_same(&a, &m.run, "012|345", "factors, tp2");
    support_run_end(&m.run);
}

static void drops_are_counted(void **state)
{
    het_experts_counts one, all;
    moe_run m;
    int64_t layer, e, sum;
    int pass;
    (void)state;
    for (pass = 0; pass < 3; pass++) {
        het_ctx *ctx;
        support_group group;
        moe_start(&m, HET_LLAMA, 3, 1, SUPPORT_SHORT);
        if (pass > 0) {
            support_run_ranks(&m.run, 4);
            support_run_plan(&m.run, pass == 1 ? "dp2xcp2" : "dp2xtp2", NULL, 1);
            m.run.desc.layout.recompute = HET_YES;
        }
        ctx = support_create(&m.run.desc);
        support_group_start(&group, &m.run.data, 0, "012|345");
        EXPECT_OK(het_step(ctx, group.batch, group.count, NULL)); /* the first is repeated */
        memset(m.counts, 0, sizeof m.counts);
        EXPECT_OK(het_evaluate(ctx, group.batch, group.count, NULL)); /* does not count */
        EXPECT_OK(het_step(ctx, group.batch, group.count, NULL));
        for (layer = 0; layer < 3; layer++) {
            one = m.counts[layer];
            assert_int_equal(one.rows, m.run.data.tokens);
            for (e = sum = 0; e < 8; e++) sum += one.chosen[e];
            assert_int_equal(sum, 2 * one.rows);
            assert_true(one.dropped > 0 && one.dropped < sum);
            if (layer == 1 && pass == 0) all = one;
            if (layer == 1 && pass > 0) assert_memory_equal(&all, &one, sizeof one);
        }
        support_group_end(&group);
        het_destroy(ctx);
        support_run_end(&m.run);
    }
}

/* The auxiliary loss evens the experts out. */
static void balance_is_learned(void **state)
{
    double share[2];
    int with, step;
    (void)state;
    for (with = 0; with < 2; with++) {
        het_experts_counts counts;
        het_ctx *ctx;
        moe_run m;
        int64_t e, most = 0;
        moe_start(&m, HET_LLAMA, 0, 1, "48,40,44,48");
        m.experts.auxiliary = with ? 1.0f : 0.0f;
        m.run.desc.optimizer.total_steps = 60;
        ctx = support_create(&m.run.desc);
        for (step = 0; step < 60; step++) {
            if (step == 50) memset(m.counts, 0, sizeof m.counts);
            (void)support_step(ctx, &m.run.data, 0, "0");
        }
        counts = m.counts[0];
        for (e = 0; e < 8; e++) most = counts.chosen[e] > most ? counts.chosen[e] : most;
        share[with] = (double)most / (double)(2 * counts.rows);
        het_destroy(ctx);
        support_run_end(&m.run);
    }
    assert_true(share[1] < 0.9 * share[0] && share[1] < 0.2); /* even: 0.125 */
}

/* ---- files ---- */

/* A folder of one file in memory, of the last config.json and of the last other one. */
typedef struct shelf { support_buffer config, weights; int is_config; } shelf;
static het_result shelf_create(void *user, const char *name, het_writer *writer, het_error *error)
{
    shelf *s = user;
    (void)error;
    s->is_config = strcmp(name, "config.json") == 0;
    *writer = support_writer(s->is_config ? &s->config : &s->weights);
    return HET_OK;
}
static het_result shelf_finish(void *user, het_writer *writer, int keep, het_error *error)
{
    (void)user, (void)writer, (void)keep, (void)error;
    return HET_OK;
}
static het_result shelf_open(void *user, const char *name, het_reader *reader, het_error *error)
{
    shelf *s = user;
    (void)error;
    if (strstr(name, "index") != NULL) return HET_ERR_IO;
    *reader = support_reader(strcmp(name, "config.json") == 0 ? &s->config : &s->weights);
    return HET_OK;
}
static void shelf_close(void *user, het_reader *reader) { (void)user, (void)reader; }

/* A tensor an expert under Qwen3-MoE's names, whose values are the stack's; state likewise; read back, training goes on bit for bit. */
static void files_have_a_tensor_an_expert(void **state)
{
    het_folder folder = { shelf_open, shelf_close, shelf_create, shelf_finish, NULL };
    support_buffer saved;
    static const char base[] = "{\"model_type\": \"qwen3_moe\", \"num_experts\": 8, \"moe_intermediate_size\": 40}";
    het_save_desc desc;
    het_writer writer;
    het_reader reader;
    int64_t i, p, seen = 0;
    shelf s;
    moe_run m;
    het_ctx *a, *b;
    (void)state;
    moe_start(&m, HET_QWEN3, 0, 2, SUPPORT_SHORT);
    a = support_create(&m.run.desc);
    (void)support_step(a, &m.run.data, 0, "012|345");
    memset(&desc, 0, sizeof desc);
    desc.base = base;
    desc.base_length = strlen(base);
    memset(&s, 0, sizeof s);
    support_buffer_start(&s.config);
    support_buffer_start(&s.weights);
    support_buffer_start(&saved);
    folder.user = &s;
    EXPECT_ERROR(het_save_folder(a, &folder, &desc), HET_OK, het_last_error(a), "");
    writer = support_writer(&saved);
    EXPECT_OK(het_save_state(a, &writer));
    for (i = 0; i < het_tensor_count(a); i++) {
        het_tensor_info info;
        int layer, e, at = 0;
        float *one, *all;
        het_parameter_info whole = { 0 };
        EXPECT_OK(het_tensor_get_info(a, i, &info));
        if (sscanf(info.name, "model.layers.%d.mlp.experts.%d.down_proj.weight%n", &layer, &e, &at) != 2 || info.name[at] != 0) continue;
        assert_int_equal(info.shape[0], m.run.desc.model.width);
        assert_int_equal(info.shape[1], 40);
        for (p = 0; p < het_parameter_count(a); p++) {
            char name[64];
            EXPECT_OK(het_parameter_get_info(a, p, &whole));
            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.0-7.down_proj.weight", layer);
            if (strcmp(whole.name, name) == 0) break;
        }
        assert_int_equal(whole.count, 8 * info.count);
        one = support_floats(info.count, 1.0, 1);
        all = support_floats(whole.count, 1.0, 1);
        EXPECT_OK(het_tensor_read(a, i, HET_WEIGHT, one));
        EXPECT_OK(het_parameter_read(a, p, HET_WEIGHT, all));
        assert_memory_equal(one, all + e * info.count, (size_t)info.count * sizeof *one);
        EXPECT_OK(het_tensor_write(a, i, HET_WEIGHT, one));
        free(one);
        free(all);
        seen++;
    }
    assert_int_equal(seen, 3 * 8);
    assert_non_null(strstr((char *)s.config.data, "\"model_type\": \"qwen3_moe\""));
    assert_non_null(strstr((char *)s.config.data, "\"Qwen3MoeForCausalLM\""));
    assert_non_null(strstr((char *)s.config.data, "\"moe_intermediate_size\": 40"));
    b = support_create(&m.run.desc);
    EXPECT_ERROR(het_load_folder(b, &folder), HET_OK, het_last_error(b), "");
    assert_true(support_hash(a) == support_hash(b));
    reader = support_reader(&saved);
    EXPECT_ERROR(het_load_state(b, &reader), HET_OK, het_last_error(b), "");
    (void)support_step(a, &m.run.data, 1, "012|345");
    (void)support_step(b, &m.run.data, 1, "012|345");
    assert_true(support_hash(a) == support_hash(b));
    support_same_state(a, b, 0, "read back");
    het_destroy(a);
    het_destroy(b);
    support_buffer_end(&s.config);
    support_buffer_end(&s.weights);
    support_buffer_end(&saved);
    support_run_end(&m.run);
}

/* A layer of 512 experts: each of their tensors costs its own bytes, not those of all. */
static void many_experts_are_read_once(void **state)
{
    het_model_desc model = support_model(HET_QWEN3);
    het_safetensor *list;
    het_safetensors *file = NULL;
    het_experts experts;
    support_buffer weights;
    het_tensor_info *info;
    het_unit units[4];
    het_desc desc;
    het_error error = { HET_OK, "" };
    het_writer to;
    het_reader from;
    het_ctx *ctx;
    clock_t begin;
    double took;
    int64_t i, tensors;
    (void)state;
    memset(&desc, 0, sizeof desc);
    memset(&experts, 0, sizeof experts);
    model.layers = 1;
    desc.model = model;
    desc.limits.max_tokens = 8;
    desc.inference = HET_YES;
    experts.experts = 512;
    experts.width = 96;
    EXPECT_ERROR(het_experts_units(&desc, &experts, units, 4, &error), HET_OK, error.text, "");
    ctx = support_create(&desc);
    tensors = het_tensor_count(ctx);
    list = support_alloc((size_t)tensors, sizeof *list);
    info = support_alloc((size_t)tensors, sizeof *info);
    for (i = 0; i < tensors; i++) {
        EXPECT_OK(het_tensor_get_info(ctx, i, &info[i]));
        list[i].name = info[i].name;
        list[i].name_length = strlen(info[i].name);
        list[i].element = HET_ELEMENT_F32;
        list[i].rank = info[i].rank;
        memcpy(list[i].shape, info[i].shape, sizeof info[i].shape);
    }
    support_buffer_start(&weights);
    to = support_writer(&weights);
    EXPECT_OK(het_safetensors_make(list, tensors, NULL, 0, NULL, &file, NULL));
    EXPECT_OK(het_safetensors_write(file, &to, NULL));
    for (i = 0; i < tensors; i++) {
        const het_tensor_info *own = &info[file->tensor[i].number];
        float *values = support_floats(own->count, 1.0, (uint64_t)file->tensor[i].number);
        EXPECT_OK(het_safetensors_put(&to, HET_ELEMENT_F32, values, own->count, NULL));
        free(values);
    }
    from = support_reader(&weights);
    begin = clock();
    support_expect(het_load_weights(ctx, &from), HET_OK, het_last_error(ctx), "", "het_load_weights", __LINE__);
    took = (double)(clock() - begin) / CLOCKS_PER_SEC;
    if (took > 0.5) fail_msg("%.1f MB took %.2f s", (double)weights.size / 1e6, took);
    for (i = 0; i < tensors; i += 97) {
        float *values = support_floats(info[i].count, 1.0, (uint64_t)i), *now = support_floats(info[i].count, 0, 1);
        EXPECT_OK(het_tensor_read(ctx, i, HET_WEIGHT, now));
        assert_memory_equal(now, values, (size_t)info[i].count * sizeof *now);
        free(values);
        free(now);
    }
    het_safetensors_free(file);
    support_buffer_end(&weights);
    het_destroy(ctx);
    free(list);
    free(info);
}

/* ---- transformers ---- */

/* Loss and norms of gradients against those of transformers' Qwen3-MoE in float64, read from the same files by tests/oracle/experts.py (torch
   2.15.0, transformers 5). HETRAIN_EXPERTS_FOLDER names a directory that gets the files. */
static void transformers_agrees(void **state)
{
    static const struct { const char *name; double norm; } wanted[] = {
        { "model.layers.0.mlp.gate.weight", 0.511223841 },
        { "model.layers.0.mlp.experts.1.gate_proj.weight", 0.210500175 },
        { "model.layers.0.mlp.experts.1.up_proj.weight", 0.169800002 },
        { "model.layers.0.mlp.experts.1.down_proj.weight", 0.222423015 },
        { "model.layers.0.mlp.experts.4.gate_proj.weight", 0.213653028 },
        { "model.layers.0.mlp.experts.4.up_proj.weight", 0.15152302 },
        { "model.layers.0.mlp.experts.4.down_proj.weight", 0.165733375 },
        { "model.layers.1.mlp.gate.weight", 0.318302054 },
        { "model.layers.1.mlp.experts.1.gate_proj.weight", 0.145775754 },
        { "model.layers.1.mlp.experts.1.up_proj.weight", 0.180959445 },
        { "model.layers.1.mlp.experts.1.down_proj.weight", 0.197125632 },
        { "model.layers.1.mlp.experts.4.gate_proj.weight", 0.219858139 },
        { "model.layers.1.mlp.experts.4.up_proj.weight", 0.219053662 },
        { "model.layers.1.mlp.experts.4.down_proj.weight", 0.177211518 },
    };
    static const char base[] = "{\"model_type\": \"qwen3_moe\", \"num_experts\": 6, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 24, "
        "\"norm_topk_prob\": true, \"decoder_sparse_step\": 1, \"mlp_only_layers\": []}";
    const int64_t start[3] = { 0, 24, 48 };
    const char *path = getenv("HETRAIN_EXPERTS_FOLDER");
    int32_t token[48], target[48];
    const het_batch batch = { 48, 2, token, target, NULL, start, NULL, 0, NULL };
    het_experts experts;
    het_unit units[6];
    het_step_info info;
    het_error error;
    het_desc desc;
    het_ctx *ctx;
    int64_t i, k, seen = 0;
    (void)state;
    for (i = 0; i < 48; i++) {
        token[i] = (int32_t)((7 * i * i + 3 * i) % 61);
        target[i] = (int32_t)((5 * i * i + 11 * i + 1) % 61);
    }
    memset(&desc, 0, sizeof desc);
    memset(&experts, 0, sizeof experts);
    desc.model.family = HET_QWEN3;
    desc.model.layers = 2;
    desc.model.width = 40;
    desc.model.heads = 3;
    desc.model.kv_heads = 1;
    desc.model.head_size = 16;
    desc.model.vocab = 61;
    desc.model.context = 24;
    desc.model.mlp_width = 24;
    desc.model.init_std = 0.2f;
    desc.limits.max_tokens = 48;
    desc.limits.max_sequences = 2;
    experts.experts = 6;
    EXPECT_ERROR(het_experts_units(&desc, &experts, units, 6, &error), HET_OK, error.text, "");
    ctx = support_create(&desc);
    EXPECT_OK(het_gradients(ctx, &batch, 1, &info));
    near(info.loss, 4.706581055133, 1e-6, "loss", 0);
    for (k = 0; k < het_tensor_count(ctx); k++) {
        het_tensor_info tensor;
        double square = 0;
        float *gradient;
        size_t n;
        EXPECT_OK(het_tensor_get_info(ctx, k, &tensor));
        gradient = support_floats(tensor.count, 1.0, 1);
        EXPECT_OK(het_tensor_read(ctx, k, HET_GRADIENT, gradient));
        for (i = 0; i < tensor.count; i++) square += (double)gradient[i] * (double)gradient[i];
        for (n = 0; n < sizeof wanted / sizeof wanted[0]; n++) {
            if (strcmp(wanted[n].name, tensor.name) != 0) continue;
            near(sqrt(square) / wanted[n].norm, 1, 3e-6, tensor.name, 0);
            seen++;
        }
        free(gradient);
    }
    assert_int_equal(seen, sizeof wanted / sizeof wanted[0]);
    if (path != NULL) {
        het_folder folder;
        het_save_desc save;
        memset(&save, 0, sizeof save);
        save.base = base;
        save.base_length = strlen(base);
        EXPECT_OK(het_folder_open(path, NULL, &folder, &error));
        EXPECT_ERROR(het_save_folder(ctx, &folder, &save), HET_OK, het_last_error(ctx), "");
        het_folder_close(&folder);
    }
    het_destroy(ctx);
}

/* Saving a directory takes no more memory than het_save_desc says, and what is saved is what the context has. */
static void saving_takes_what_it_says(void **state)
{
    enum { LAYERS = 2, E = 40, F = 160, WIDTH = 64, TENSORS = LAYERS * (9 + 3 * E) + 3 };
    static het_unit units[2 * LAYERS + 2];
    static het_experts experts;
    het_folder folder = { shelf_open, shelf_close, shelf_create, shelf_finish, NULL };
    support_memory memory;
    het_allocator allocator;
    het_save_desc save;
    het_desc desc;
    het_error error;
    shelf s;
    het_ctx *ctx;
    uint64_t hash;
    float *values;
    (void)state;
    memset(&desc, 0, sizeof desc), memset(&save, 0, sizeof save), memset(&memory, 0, sizeof memory), memset(&s, 0, sizeof s);
    desc.model.family = HET_QWEN3;
    desc.model.layers = LAYERS, desc.model.width = WIDTH, desc.model.heads = 2, desc.model.head_size = 8;
    desc.model.vocab = 12, desc.model.context = desc.limits.max_tokens = 8;
    experts.experts = E, experts.used = 3, experts.width = F;
    EXPECT_ERROR(het_experts_units(&desc, &experts, units, 2 * LAYERS + 2, &error), HET_OK, error.text, "");
    ctx = support_create(&desc);
    assert_int_equal(het_tensor_count(ctx), TENSORS);
    hash = support_hash(ctx);
    support_buffer_start(&s.config);
    support_buffer_start(&s.weights);
    folder.user = &s;
    memory.fail_at = -1;
    allocator = support_allocator(&memory);
    save.allocator = &allocator;
    EXPECT_ERROR(het_save_folder(ctx, &folder, &save), HET_OK, het_last_error(ctx), "");
    assert_int_equal(memory.live, 0);
    assert_true(memory.peak <= 16 * E * F * WIDTH + 2048 * TENSORS + 65536);
    values = support_floats(12 * WIDTH, 1, 1);
    EXPECT_OK(het_parameter_write(ctx, 0, HET_WEIGHT, values));
    free(values);
    assert_true(support_hash(ctx) != hash);
    EXPECT_ERROR(het_load_folder(ctx, &folder), HET_OK, het_last_error(ctx), "");
    assert_true(support_hash(ctx) == hash);
    support_buffer_end(&s.config);
    support_buffer_end(&s.weights);
    het_destroy(ctx);
}

/* What is saved can be loaded, however many tensors 512 experts a layer are. */
static void more_tensors_than_files_usually_have(void **state)
{
    enum { LAYERS = 43 };
    static het_unit units[2 * LAYERS + 2];
    static het_experts experts;
    support_buffer saved;
    het_writer writer;
    het_reader reader;
    het_desc desc;
    het_error error;
    het_ctx *ctx;
    uint64_t hash;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.model.family = HET_QWEN3;
    desc.model.layers = LAYERS, desc.model.width = 8, desc.model.heads = 1, desc.model.head_size = 2;
    desc.model.vocab = 12, desc.model.context = desc.limits.max_tokens = 8;
    experts.experts = 512, experts.used = experts.width = 1;
    EXPECT_ERROR(het_experts_units(&desc, &experts, units, 2 * LAYERS + 2, &error), HET_OK, error.text, "");
    ctx = support_create(&desc);
    assert_true(het_tensor_count(ctx) > 65536);
    hash = support_hash(ctx);
    support_buffer_start(&saved);
    writer = support_writer(&saved);
    EXPECT_OK(het_save_weights(ctx, &writer));
    reader = support_reader(&saved);
    EXPECT_ERROR(het_load_weights(ctx, &reader), HET_OK, het_last_error(ctx), "");
    assert_true(support_hash(ctx) == hash);
    support_buffer_end(&saved);
    het_destroy(ctx);
}

/* ---- what is refused ---- */

static void refused(het_experts change, int64_t capacity, het_result code, const char *words)
{
    het_error error;
    moe_run m;
    moe_start(&m, HET_LLAMA, 0, 1, SUPPORT_SHORT);
    EXPECT_ERROR(het_experts_units(&m.run.desc, &change, m.units, capacity, &error), code, error.text, words);
    support_run_end(&m.run);
}

static void bad_settings_are_refused(void **state)
{
    het_experts e;
    het_error error;
    het_ctx *ctx = NULL;
    moe_run m;
    (void)state;
#define REFUSED(field, value, code, words) do { memset(&e, 0, sizeof e); e.field = value; refused(e, 8, code, words); } while (0)
    REFUSED(experts, 513, HET_ERR_INVALID, "513|512");
    REFUSED(experts, -1, HET_ERR_INVALID, "-1");
    REFUSED(used, 9, HET_ERR_INVALID, "9 of 8");
    REFUSED(width, -4, HET_ERR_INVALID, "width -4");
    REFUSED(capacity, -1, HET_ERR_INVALID, "capacity -1");
    REFUSED(auxiliary, -2, HET_ERR_INVALID, "auxiliary -2");
    REFUSED(end_canary, 7, HET_ERR_INVALID, "cleared");
    REFUSED(route, (het_route)9, HET_ERR_INVALID, "route");
    REFUSED(drop, (het_drop)9, HET_ERR_INVALID, "drop");
    REFUSED(renormalize, (het_choice)9, HET_ERR_INVALID, "renormalize");
    memset(&e, 0, sizeof e);
    e.route = HET_ROUTE_HASH;
    e.auxiliary = 0.1f;
    refused(e, 8, HET_ERR_INVALID, "no router");
    e.auxiliary = 0;
    refused(e, 7, HET_ERR_LIMIT, "7|8");
    moe_start(&m, HET_LLAMA, 0, 1, SUPPORT_SHORT);
    m.run.desc.layout.devices = NULL; /* one CPU, as het_desc_defaults leaves it */
    m.run.desc.layout.device_count = 1;
    EXPECT_OK(het_experts_units(&m.run.desc, &m.experts, m.units, 8, &error));
    m.run.desc.model.lora_rank = 2; /* of factors that nothing would have */
    m.run.desc.model.lora_targets = HET_LORA_Q + HET_LORA_UP;
    EXPECT_ERROR(het_experts_units(&m.run.desc, &m.experts, m.units, 8, &error), HET_ERR_UNSUPPORTED, error.text, "lora_targets 33|no factors");
    m.run.desc.model.lora_targets = HET_LORA_Q + HET_LORA_O;
    EXPECT_OK(het_experts_units(&m.run.desc, &m.experts, m.units, 8, &error));
    support_run_end(&m.run);
    moe_start(&m, HET_LLAMA, 0, 1, SUPPORT_SHORT);
    m.run.far = *het_cpu_device();
    m.run.far.host_memory = 0;
    support_run_ranks(&m.run, 2);
    m.run.device[1].iface = &m.run.far;
    EXPECT_ERROR(het_experts_units(&m.run.desc, &m.experts, m.units, 8, &error), HET_ERR_UNSUPPORTED, error.text, "device 1 (cpu)|host_memory");
    EXPECT_ERROR(het_create(&m.run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "(experts)|on rank 1 (cpu)|no host_memory");
    m.units[2].settings = NULL;
    m.run.device[1].iface = NULL;
    EXPECT_ERROR(het_create(&m.run.desc, &ctx, &error), HET_ERR_INVALID, error.text, "(experts)|its settings");
    support_run_end(&m.run);
    moe_start(&m, HET_GPT2, 0, 1, SUPPORT_SHORT); /* fewer experts than members; as many do */
    support_run_ranks(&m.run, 3);
    support_run_plan(&m.run, "tp:1,3,1", NULL, 1);
    m.experts.experts = 2;
    EXPECT_ERROR(het_create(&m.run.desc, &ctx, &error), HET_ERR_UNSUPPORTED, error.text, "experts.0-1.up_proj|2 pieces|3 members");
    m.experts.experts = 3;
    ctx = support_create(&m.run.desc);
    het_destroy(ctx);
    support_run_end(&m.run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_unit_is_a_loop_over_tokens), cmocka_unit_test(ties_are_decided), cmocka_unit_test(hashes_spread),
        cmocka_unit_test(gradients_are_slopes), cmocka_unit_test(layouts_do_not_show), cmocka_unit_test(long_sequences_and_bf16),
        cmocka_unit_test(members_divide_experts), cmocka_unit_test(divided_experts_evaluate_and_generate),
        cmocka_unit_test(traffic_is_what_was_chosen),
        cmocka_unit_test(nodes_do_not_show),
        cmocka_unit_test(frozen_experts), cmocka_unit_test(drops_are_counted), cmocka_unit_test(balance_is_learned),
        cmocka_unit_test(files_have_a_tensor_an_expert), cmocka_unit_test(many_experts_are_read_once),
        cmocka_unit_test(saving_takes_what_it_says),
        cmocka_unit_test(more_tensors_than_files_usually_have),
        cmocka_unit_test(transformers_agrees), cmocka_unit_test(bad_settings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
