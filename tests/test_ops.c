/* Every op of the reference device and of the CPU device, called through their tables. What an op computes is compared with plain loops in
   double written here, and its derivatives with central differences of those loops. That is done on the reference device; the CPU device
   must then give the same bits with every instruction set and number of threads. */
#include "support.h"

/* ---- a device under test ---- */

typedef struct rig {
    const het_device_iface *op;
    void *self;
    het_allocator allocator;
    het_parallel parallel;
    support_memory memory;
    int is_reference;           /* compare with the loops in double */
    void *workspace;
    size_t workspace_size;
} rig;

static void rig_start_on(rig *r, const het_device_iface *iface, het_isa isa, int32_t threads)
{
    het_device_config config;
    memset(r, 0, sizeof *r);
    memset(&config, 0, sizeof config);
    r->op = iface;
    r->allocator = support_allocator(&r->memory);
    r->parallel = threads == 1 ? support_serial() : support_backwards();
    config.allocator = &r->allocator;
    config.parallel = &r->parallel;
    config.threads = threads;
    config.isa = isa;
    EXPECT_OK(r->op->create(&config, &r->self));
}

static void rig_start(rig *r, het_isa isa, int32_t threads) { rig_start_on(r, het_cpu_device(), isa, threads); }

static void rig_end(rig *r)
{
    r->op->destroy(r->self);
    assert_int_equal(r->memory.live, 0);
    assert_int_equal(r->memory.wrong, 0);
}

/* Exactly the bytes the op asks for, filled with NaN so that what is read before it is written shows. */
static void *rig_workspace(rig *r, het_op_kind kind, const void *args, size_t size)
{
    het_op op;
    assert_null(r->workspace);
    memset(&op, 0xFF, sizeof op);
    op.bf16 = 0;
    op.kind = kind;
    memcpy(&op.u, args, size);
    r->workspace_size = r->op->workspace(r->self, &op);
    r->workspace = r->allocator.alloc(r->allocator.user, r->workspace_size, 64);
    assert_non_null(r->workspace);
    memset(r->workspace, 0xFF, r->workspace_size);
    return r->workspace;
}

static void rig_release(rig *r)
{
    r->allocator.free(r->allocator.user, r->workspace, r->workspace_size);
    r->workspace = NULL;
}

#define OP(r, kind, args) EXPECT_OK(support_op((r)->op, (r)->self, (kind), (args), sizeof *(args)))
#define RUN(r, kind, args) \
    do { \
        (args)->workspace = rig_workspace((r), (kind), (args), sizeof *(args)); \
        OP(r, kind, args); \
        rig_release(r); \
    } while (0)

/* check(rig, shape) returns a hash of everything the op wrote. */
typedef uint64_t (*op_check)(rig *r, int shape);

static void on_every_device(op_check check, int shapes)
{
    static const int32_t threads[] = { 1, 3 };
    const int both = support_environment("HETRAIN_TEST_ROUNDS", 1) > 1; /* otherwise one or three threads, in turns */
    het_isa isa[5];
    int isas = support_isas(isa), shape, i, t;
    for (shape = 0; shape < shapes; shape++) {
        uint64_t reference;
        rig r;
        rig_start_on(&r, het_reference_device(), HET_ISA_AUTO, 1);
        r.is_reference = 1;
        reference = check(&r, shape);
        rig_end(&r);
        for (i = 0; i < isas; i++) {
            for (t = 0; t < 2; t++) {
                if (!both && (shape + i + t) % 2) continue;
                rig_start(&r, isa[i], threads[t]);
                if (check(&r, shape) != reference)
                    fail_msg("shape %d: %s with %d threads gives other bits than the reference device", shape, support_isa_name(isa[i]),
                             (int)threads[t]);
                rig_end(&r);
            }
        }
    }
}

static uint64_t hash_floats(uint64_t hash, const float *x, int64_t count)
{
    int64_t i;
    for (i = 0; i < count; i++) {
        if (isnan(x[i])) fail_msg("element %d of %d was not written, or is NaN", (int)i, (int)count);
    }
    return het_xxh64(x, (size_t)count * sizeof *x, hash);
}

static uint64_t hash_doubles(uint64_t hash, const double *x, int64_t count)
{
    return het_xxh64(x, (size_t)count * sizeof *x, hash);
}

/* Memory for outputs: NaN, so that an element that is not written shows. */
static float *unwritten(int64_t count)
{
    float *x = support_alloc((size_t)count, sizeof *x);
    if (count) memset(x, 0xFF, (size_t)count * sizeof *x);
    return x;
}

static double *widen(const float *x, int64_t count)
{
    double *wide = support_alloc((size_t)count, sizeof *wide);
    int64_t i;
    for (i = 0; i < count; i++) wide[i] = (double)x[i];
    return wide;
}

/* ---- comparisons ---- */

/* The norm of the difference is at most `tolerance` of the norm of `want`, apart from the rounding of terms near 1 that cancel. */
static void check_close(const char *what, const double *got, const double *want, int64_t count, double tolerance)
{
    double difference = 0.0, size = 0.0, worst = 0.0;
    int64_t i, at = 0;
    for (i = 0; i < count; i++) {
        double d = fabs(got[i] - want[i]);
        if (!(d <= worst)) { worst = d; at = i; }
        difference += d * d;
        size += want[i] * want[i];
    }
    if (!(sqrt(difference) <= tolerance * sqrt(size) + 2e-7 * sqrt((double)count))) {
        fail_msg("%s: element %d is %.9g, should be %.9g; relative error %.3g", what, (int)at, got[at], want[at], sqrt(difference / (size + 1e-300)));
    }
}

static void check_floats(const char *what, const float *got, const double *want, int64_t count, double tolerance)
{
    double *wide = widen(got, count);
    check_close(what, wide, want, count, tolerance);
    free(wide);
}

/* objective(problem) is a sum of outputs, each times a fixed number; its slopes along x[] must be what the op wrote into got[].
   At most slope_tries elements of x are tried, spread over all of it. */
typedef double (*objective)(const void *problem);
static int64_t slope_tries = 48;

static void check_slopes(const char *what, objective f, const void *problem, double *x, const double *got, int64_t count, double tolerance)
{
    double want[64], have[64];
    int64_t tries = count < slope_tries ? count : slope_tries, i;
    for (i = 0; i < tries; i++) {
        int64_t at = i * count / tries;
        double keep = x[at], h = 1e-5 * (1.0 + fabs(keep)), above, below;
        x[at] = keep + h;
        above = f(problem);
        x[at] = keep - h;
        below = f(problem);
        x[at] = keep;
        want[i] = (above - below) / (2.0 * h);
        have[i] = got[at];
    }
    check_close(what, have, want, tries, tolerance);
}

static void check_float_slopes(const char *what, objective f, const void *problem, double *x, const float *got, int64_t count, double tolerance)
{
    double *wide = widen(got, count);
    check_slopes(what, f, problem, x, wide, count, tolerance);
    free(wide);
}

#define F32_TOLERANCE 2e-6

/* ---- gradients ---- */

/* Terms below 2^8, at most 64 of them: q = 2^(8 + 6 + 6 - 51). */
typedef struct store {
    het_gradient gradient;
    double grid;
    uint32_t maximum;
    int64_t count;
    double *sum;
} store;

static void store_start(store *s, int64_t count)
{
    s->count = count;
    s->sum = support_alloc((size_t)count, sizeof *s->sum);
    s->grid = 1.5 * ldexp(1.0, 52) * ldexp(1.0, 8 + 6 + 6 - 51);
    s->maximum = 0;
    s->gradient.sum = s->sum;
    s->gradient.exact = 1;
    s->gradient.beta = 1;
    s->gradient.final = 0;
    s->gradient.grid = &s->grid;
    s->gradient.maximum = &s->maximum;
}

/* What stands in the sum is not to be read. */
static void store_empty(store *s)
{
    int64_t i;
    for (i = 0; i < s->count; i++) s->sum[i] = (double)NAN;
    s->gradient.beta = 0;
}

/* The step has no other terms: the sum is floats. */
static void store_final(store *s)
{
    store_empty(s);
    s->gradient.final = 1;
}

static void store_end(store *s)
{
    free(s->sum);
}

/* Sums made granule by granule are the same numbers as the sum made at once, and so is the maximum. */
static void store_same(const char *what, const store *whole, const store *pieces)
{
    int64_t i;
    for (i = 0; i < whole->count; i++) {
        if (!(whole->sum[i] == pieces->sum[i])) {
            fail_msg("%s: element %d is %.17g over all granules, %.17g granule by granule", what, (int)i, whole->sum[i], pieces->sum[i]);
        }
    }
    assert_int_equal(whole->maximum, pieces->maximum);
}

/* A sum that was made at once is the other one, rounded. */
static void store_rounded(const char *what, const store *whole, const store *once)
{
    const float *sum = (const float *)once->gradient.sum;
    int64_t i;
    for (i = 0; i < whole->count; i++)
        if (!(sum[i] == (float)whole->sum[i])) fail_msg("%s: element %d is %.17g, made at once %.9g", what, (int)i, whole->sum[i], (double)sum[i]);
    assert_int_equal(whole->maximum, once->maximum);
}

/* The largest term of a single granule is the largest element of its sum. */
static void store_maximum(const char *what, const store *s)
{
    float largest = 0.0f;
    int64_t i;
    for (i = 0; i < s->count; i++) {
        if (fabs(s->sum[i]) > (double)largest) largest = (float)fabs(s->sum[i]);
    }
    if (support_bits(largest) != s->maximum)
        fail_msg("%s: the largest term is %.9g, its bits are not %08x", what, (double)largest, (unsigned)s->maximum);
}

/* ---- views ---- */

typedef struct packed {
    support_batch batch;
    het_view view;
    int32_t *position, *sequence_of;
} packed;

/* Sequences of these lengths. Granules: whole sequences up to `granule` tokens together, or pieces of that many tokens of a longer one. */
static void packed_start(packed *p, const int64_t *length, int64_t sequences, int64_t granule, int64_t vocab)
{
    het_view *v = &p->view;
    int64_t s, r, n, *bound;
    int whole = 0; /* the last granule holds whole sequences */
    memset(p, 0, sizeof *p);
    support_batch_start(&p->batch);
    for (s = 0; s < sequences; s++) support_batch_sequence(&p->batch, length[s], vocab, 100 + 7 * s, (uint64_t)(s + 1));
    n = p->batch.batch.tokens;
    p->position = support_alloc((size_t)n, sizeof(int32_t));
    p->sequence_of = support_alloc((size_t)n, sizeof(int32_t));
    for (s = 0; s < sequences; s++) {
        for (r = p->batch.sequence_start[s]; r < p->batch.sequence_start[s + 1]; r++) {
            p->position[r] = (int32_t)(r - p->batch.sequence_start[s]);
            p->sequence_of[r] = (int32_t)s;
        }
    }
    free(p->batch.granule_start);
    p->batch.granule_start = bound = support_alloc((size_t)(n + 1), sizeof(int64_t));
    for (s = 0; s < sequences; s++) {
        int64_t begin = p->batch.sequence_start[s], end = p->batch.sequence_start[s + 1];
        if (whole && end - bound[v->granules - 1] <= granule) {
            bound[v->granules] = end; /* joins the sequences before it */
            continue;
        }
        for (r = begin; r < end; r += granule) bound[++v->granules] = end - r < granule ? end : r + granule;
        whole = end > begin && end - begin <= granule;
    }
    v->tokens = n;
    v->sequences = sequences;
    v->row_begin = 0;
    v->row_end = n;
    v->granule_begin = 0;
    v->granule_end = v->granules;
    v->token = p->batch.token;
    v->target = p->batch.target;
    v->position = p->position;
    v->weight = p->batch.weight;
    v->sequence_start = v->host_sequence_start = p->batch.sequence_start;
    v->granule_start = v->host_granule_start = p->batch.granule_start;
    v->sample_id = p->batch.sample_id;
    v->sequence_of = p->sequence_of;
}

static void packed_end(packed *p)
{
    support_batch_end(&p->batch);
    free(p->position);
    free(p->sequence_of);
}

static het_view granules_of(const packed *p, int64_t begin, int64_t end)
{
    het_view view = p->view;
    view.granule_begin = begin;
    view.granule_end = end;
    view.row_begin = view.granule_start[begin];
    view.row_end = view.granule_start[end];
    return view;
}

/* ---- linear ---- */

typedef struct linear_problem {
    int64_t rows, in, parts, out[3];
    double *x, *w[3], *b[3], *dy[3];
    int bf16;                   /* operands of products are rounded */
} linear_problem;

static double operand(double value, int bf16)
{
    return bf16 ? (double)support_bf16((float)value) : value;
}

static double linear_y(const linear_problem *p, int64_t part, int64_t row, int64_t o)
{
    double y = 0.0;
    int64_t k;
    for (k = 0; k < p->in; k++) y += operand(p->x[row * p->in + k], p->bf16) * operand(p->w[part][o * p->in + k], p->bf16);
    return y + (p->b[part] ? p->b[part][o] : 0.0);
}

static double linear_objective(const void *problem)
{
    const linear_problem *p = problem;
    double sum = 0.0;
    int64_t part, row, o;
    for (part = 0; part < p->parts; part++) {
        for (row = 0; row < p->rows; row++) {
            for (o = 0; o < p->out[part]; o++) sum += p->dy[part][row * p->out[part] + o] * linear_y(p, part, row, o);
        }
    }
    return sum;
}

static const struct { int64_t rows, in, parts, out[3], granule; int bias; } linear_shape[] = {
    { 1, 1, 1, { 1, 0, 0 }, 1, 1 },      { 3, 17, 1, { 63, 0, 0 }, 2, 0 },    { 17, 63, 1, { 65, 0, 0 }, 5, 1 },
    { 63, 65, 2, { 17, 3, 0 }, 64, 1 },  { 65, 3, 3, { 1, 17, 63 }, 17, 0 },  { 65, 65, 3, { 65, 63, 1 }, 33, 1 },
    { 0, 17, 2, { 3, 1, 0 }, 1, 1 },     { 130, 40, 1, { 129, 0, 0 }, 100, 1 }, { 1, 300, 1, { 270, 0, 0 }, 1, 1 },
    { 700, 19, 1, { 23, 0, 0 }, 512, 1 },
    { 30, 800, 1, { 70, 0, 0 }, 16, 1 }, { 400, 800, 1, { 40, 0, 0 }, 300, 1 }, { 20, 40, 2, { 800, 390, 0 }, 20, 1 }, /* several blocks of k */
};

typedef struct linear_rig {
    packed tokens;
    het_linear_args args;
    float *x, *w[3], *b[3], *y[3], *dy[3], *dx;
    store dw[3], db[3];
} linear_rig;

static void linear_start(linear_rig *l, int shape, het_dtype compute)
{
    int64_t rows = linear_shape[shape].rows, in = linear_shape[shape].in, part;
    memset(l, 0, sizeof *l);
    packed_start(&l->tokens, &rows, 1, linear_shape[shape].granule, 50);
    l->args.view = &l->tokens.view;
    l->args.compute = compute;
    l->args.rows = rows;
    l->args.in = in;
    l->args.parts = linear_shape[shape].parts;
    l->args.x = l->x = support_floats(rows * in, 1.0, 1);
    l->args.dx = l->dx = unwritten(rows * in);
    for (part = 0; part < l->args.parts; part++) {
        het_linear_part *p = &l->args.part[part];
        int64_t out = linear_shape[shape].out[part];
        uint64_t seed = 10 * (uint64_t)part;
        p->out = out;
        p->w = l->w[part] = support_floats(out * in, 1.0, seed + 2);
        if (linear_shape[shape].bias) p->bias = l->b[part] = support_floats(out, 1.0, seed + 3);
        p->y = l->y[part] = unwritten(rows * out);
        p->dy = l->dy[part] = support_floats(rows * out, 1.0, seed + 4);
        store_start(&l->dw[part], out * in);
        store_start(&l->db[part], out);
        p->dw = &l->dw[part].gradient;
        p->dbias = linear_shape[shape].bias ? &l->db[part].gradient : NULL;
    }
}

static void linear_end(linear_rig *l)
{
    int64_t part;
    for (part = 0; part < l->args.parts; part++) {
        free(l->w[part]);
        free(l->b[part]);
        free(l->y[part]);
        free(l->dy[part]);
        store_end(&l->dw[part]);
        store_end(&l->db[part]);
    }
    free(l->x);
    free(l->dx);
    packed_end(&l->tokens);
}

static void linear_reference(linear_rig *l, int bf16)
{
    double tolerance = bf16 ? 1e-4 : F32_TOLERANCE; /* an operand that a bf16 step straddles: none here, the loops round alike */
    linear_problem p;
    int64_t part, row, o;
    memset(&p, 0, sizeof p);
    p.rows = l->args.rows;
    p.in = l->args.in;
    p.parts = l->args.parts;
    p.bf16 = bf16;
    p.x = widen(l->x, p.rows * p.in);
    for (part = 0; part < p.parts; part++) {
        double *y;
        p.out[part] = l->args.part[part].out;
        p.w[part] = widen(l->w[part], p.out[part] * p.in);
        p.b[part] = l->b[part] ? widen(l->b[part], p.out[part]) : NULL;
        p.dy[part] = widen(l->dy[part], p.rows * p.out[part]);
        y = support_alloc((size_t)(p.rows * p.out[part]), sizeof *y);
        for (row = 0; row < p.rows; row++) {
            for (o = 0; o < p.out[part]; o++) y[row * p.out[part] + o] = linear_y(&p, part, row, o);
        }
        check_floats("linear y", l->y[part], y, p.rows * p.out[part], tolerance);
        free(y);
    }
    if (!bf16) {
        check_float_slopes("linear dx", linear_objective, &p, p.x, l->dx, p.rows * p.in, tolerance);
        for (part = 0; part < p.parts; part++) {
            check_slopes("linear dw", linear_objective, &p, p.w[part], l->dw[part].sum, l->dw[part].count, tolerance);
            if (p.b[part]) check_slopes("linear dbias", linear_objective, &p, p.b[part], l->db[part].sum, l->db[part].count, tolerance);
        }
    } else {
        /* The rounded function has no slopes: dx and dw are products of rounded operands. */
        double *dx = support_alloc((size_t)(p.rows * p.in), sizeof *dx);
        int64_t k;
        for (part = 0; part < p.parts; part++) {
            double *dw = support_alloc((size_t)(p.out[part] * p.in), sizeof *dw);
            for (row = 0; row < p.rows; row++) {
                for (o = 0; o < p.out[part]; o++) {
                    double dy = operand(p.dy[part][row * p.out[part] + o], 1);
                    for (k = 0; k < p.in; k++) {
                        dx[row * p.in + k] += dy * operand(p.w[part][o * p.in + k], 1);
                        dw[o * p.in + k] += dy * operand(p.x[row * p.in + k], 1);
                    }
                }
            }
            check_close("linear dw, bf16", l->dw[part].sum, dw, p.out[part] * p.in, tolerance);
            free(dw);
        }
        check_floats("linear dx, bf16", l->dx, dx, p.rows * p.in, tolerance);
        free(dx);
    }
    free(p.x);
    for (part = 0; part < p.parts; part++) {
        free(p.w[part]);
        free(p.b[part]);
        free(p.dy[part]);
    }
}

static uint64_t linear_check(rig *r, int shape, het_dtype compute)
{
    const int fills = !r->is_reference; /* the device looks at het_gradient.beta and final */
    linear_rig whole, piece, once;
    uint64_t hash = 0;
    int64_t part, g;
    linear_start(&whole, shape, compute);
    for (part = 0; part < whole.args.parts && shape % 2 == 0 && fills; part++) store_empty(&whole.dw[part]);
    RUN(r, HET_OP_LINEAR_FORWARD, &whole.args);
    RUN(r, HET_OP_LINEAR_BACKWARD_INPUT, &whole.args);
    RUN(r, HET_OP_LINEAR_BACKWARD_WEIGHT, &whole.args);
    for (part = 0; part < whole.args.parts; part++) {
        hash = hash_floats(hash, whole.y[part], whole.args.rows * whole.args.part[part].out);
        hash = hash_doubles(hash, whole.dw[part].sum, whole.dw[part].count);
        hash = hash_doubles(hash, whole.db[part].sum, whole.db[part].count);
    }
    hash = hash_floats(hash, whole.dx, whole.args.rows * whole.args.in);
    slope_tries = whole.args.rows * whole.args.in > 100000 ? 6 : 48;
    if (r->is_reference) linear_reference(&whole, compute == HET_BF16);
    slope_tries = 48;

    /* all at once; the second of several in the sum's usual form */
    linear_start(&once, shape, compute);
    for (part = 0; part < once.args.parts && fills; part++)
        if (part != 1) store_final(&once.dw[part]);
    RUN(r, HET_OP_LINEAR_BACKWARD_WEIGHT, &once.args);
    for (part = 0; part < once.args.parts && fills; part++) {
        if (part != 1) store_rounded("linear dw", &whole.dw[part], &once.dw[part]);
        else store_same("linear dw beside one made at once", &whole.dw[part], &once.dw[part]);
        store_same("linear dbias beside dw made at once", &whole.db[part], &once.db[part]);
    }
    linear_end(&once);

    /* granule by granule, last one first */
    linear_start(&piece, shape, compute);
    for (part = 0; part < whole.args.parts && shape % 2 == 1 && fills; part++) store_empty(&piece.dw[part]);
    for (g = piece.tokens.view.granules - 1; g >= 0; g--) {
        het_linear_args args = piece.args;
        het_view view = granules_of(&piece.tokens, g, g + 1);
        args.view = &view;
        args.rows = view.row_end - view.row_begin;
        args.x += view.row_begin * args.in;
        for (part = 0; part < args.parts; part++) args.part[part].dy += view.row_begin * args.part[part].out;
        RUN(r, HET_OP_LINEAR_BACKWARD_WEIGHT, &args);
        for (part = 0; part < args.parts; part++) piece.dw[part].gradient.beta = 1;
    }
    for (part = 0; part < whole.args.parts; part++) {
        store_same("linear dw", &whole.dw[part], &piece.dw[part]);
        store_same("linear dbias", &whole.db[part], &piece.db[part]);
        if (piece.tokens.view.granules == 1) {
            store_maximum("linear dw", &whole.dw[part]);
            store_maximum("linear dbias", &whole.db[part]);
        }
    }
    linear_end(&piece);
    linear_end(&whole);
    return hash;
}

/* Columns [begin, end) of a matrix [rows][width], by themselves. */
static float *columns_of(const float *from, int64_t rows, int64_t width, int64_t begin, int64_t end)
{
    float *to = unwritten(rows * (end - begin));
    int64_t r;
    for (r = 0; r < rows; r++) memcpy(to + r * (end - begin), from + r * width + begin, (size_t)(end - begin) * sizeof *to);
    return to;
}

/* Chains that several calls make, each over its part of k, are those of one call: what teams by columns rely on. */
static uint64_t linear_chain(rig *r, int shape, het_dtype compute)
{
    linear_rig whole, pieces;
    int64_t part, members, m;
    uint64_t hash = 0;
    linear_start(&whole, shape, compute);
    RUN(r, HET_OP_LINEAR_FORWARD, &whole.args);
    RUN(r, HET_OP_LINEAR_BACKWARD_INPUT, &whole.args);
    hash = hash_floats(hash, whole.dx, whole.args.rows * whole.args.in);
    for (members = 2; members <= 4; members++) {
        linear_start(&pieces, shape, compute);
        for (part = 0; part < whole.args.parts; part++) {
            const het_linear_part *p = &whole.args.part[part];
            for (m = 0; m < members; m++) { /* y, over k = in; dx, over k = out */
                const int64_t in = whole.args.in, in_begin = in * m * m / members / members / 2 * 2,
                              in_end = m + 1 < members ? in * (m + 1) * (m + 1) / members / members / 2 * 2 : in,
                              out_begin = p->out * m / members / 2 * 2, out_end = m + 1 < members ? p->out * (m + 1) / members / 2 * 2 : p->out;
                het_linear_args args = whole.args;
                float *x = columns_of(whole.x, args.rows, in, in_begin, in_end), *w = columns_of(p->w, p->out, in, in_begin, in_end),
                      *dy = columns_of(p->dy, args.rows, p->out, out_begin, out_end);
                args.parts = 1;
                args.part[0] = *p;
                args.part[0].w = w;
                args.part[0].y = pieces.y[part];
                args.part[0].bias = m + 1 == members ? p->bias : NULL;
                args.x = x;
                args.in = in_end - in_begin;
                args.continues = m > 0 && in_begin > 0;
                if (args.in > 0) RUN(r, HET_OP_LINEAR_FORWARD, &args);
                args.in = in;
                args.part[0].w = p->w + out_begin * in;
                args.part[0].dy = dy;
                args.part[0].out = out_end - out_begin;
                args.dx = pieces.dx;
                args.continues = part > 0 || out_begin > 0;
                if (args.part[0].out > 0) RUN(r, HET_OP_LINEAR_BACKWARD_INPUT, &args);
                free(x);
                free(w);
                free(dy);
            }
            if (memcmp(pieces.y[part], whole.y[part], (size_t)(whole.args.rows * p->out) * sizeof(float)) != 0)
                fail_msg("shape %d, %d members: y of part %d is not one chain", shape, (int)members, (int)part);
        }
        if (memcmp(pieces.dx, whole.dx, (size_t)(whole.args.rows * whole.args.in) * sizeof(float)) != 0)
            fail_msg("shape %d, %d members: dx is not one chain", shape, (int)members);
        linear_end(&pieces);
    }
    linear_end(&whole);
    return hash;
}

static uint64_t chain_f32(rig *r, int shape) { return linear_chain(r, shape, HET_F32); }
static uint64_t chain_bf16(rig *r, int shape) { return linear_chain(r, shape, HET_BF16); }

static void linear_chains_continue(void **state)
{
    (void)state;
    on_every_device(chain_f32, (int)(sizeof linear_shape / sizeof *linear_shape));
    on_every_device(chain_bf16, (int)(sizeof linear_shape / sizeof *linear_shape));
}

static uint64_t linear_f32(rig *r, int shape) { return linear_check(r, shape, HET_F32); }
static uint64_t linear_bf16(rig *r, int shape) { return linear_check(r, shape, HET_BF16); }

static void linear_matches_double(void **state)
{
    (void)state;
    on_every_device(linear_f32, (int)(sizeof linear_shape / sizeof *linear_shape));
}

static void linear_rounds_operands_to_bf16(void **state)
{
    (void)state;
    on_every_device(linear_bf16, (int)(sizeof linear_shape / sizeof *linear_shape));
}

/* What TDPBF16PS makes of k products in bf16, element i of a at i * a_step: of every 32, the chain of the even and that of the odd ones. */
static float matrix_chain(float c, int64_t k, const float *a, int64_t a_step, const float *b, int64_t b_step)
{
    int64_t i, j;
    for (i = 0; i < k; i += 32) {
        float sum[2] = { 0.0f, 0.0f };
        for (j = i; j < k && j < i + 32; j++) sum[j % 2] = fmaf(support_bf16(a[j * a_step]), support_bf16(b[j * b_step]), sum[j % 2]);
        c += sum[0] + sum[1];
    }
    return c;
}

static void matrix_bits(const char *what, int shape, float got, float want)
{
    if (memcmp(&got, &want, sizeof got) != 0) fail_msg("shape %d: %s is %.9g, by the manual %.9g", shape, what, (double)got, (double)want);
}

/* The bits of every output are those of the instruction's description, sum by sum. */
static void matrix_check(rig *r, int shape)
{
    linear_rig l;
    int64_t part, row, o, k, g;
    linear_start(&l, shape, HET_BF16);
    RUN(r, HET_OP_LINEAR_FORWARD, &l.args);
    RUN(r, HET_OP_LINEAR_BACKWARD_INPUT, &l.args);
    RUN(r, HET_OP_LINEAR_BACKWARD_WEIGHT, &l.args);
    for (row = 0; row < l.args.rows; row++)
        for (k = 0; k < l.args.in; k++) {
            float dx = 0.0f;
            for (part = 0; part < l.args.parts; part++)
                dx = matrix_chain(dx, l.args.part[part].out, l.dy[part] + row * l.args.part[part].out, 1, l.w[part] + k, l.args.in);
            matrix_bits("dx", shape, l.dx[row * l.args.in + k], dx);
        }
    for (part = 0; part < l.args.parts; part++) {
        const int64_t in = l.args.in, out = l.args.part[part].out;
        for (row = 0; row < l.args.rows; row++)
            for (o = 0; o < out; o++)
                matrix_bits("y", shape, l.y[part][row * out + o], matrix_chain(0.0f, in, l.x + row * in, 1, l.w[part] + o * in, 1) +
                            (l.b[part] != NULL ? l.b[part][o] : 0.0f));
        for (o = 0; o < out; o++)
            for (k = 0; k < in; k++) {
                const double grid = *l.dw[part].gradient.grid;
                double sum = 0.0;
                for (g = 0; g < l.tokens.view.granules; g++) {
                    const het_view view = granules_of(&l.tokens, g, g + 1);
                    const float term = matrix_chain(0.0f, view.row_end - view.row_begin, l.dy[part] + view.row_begin * out + o, out,
                                                    l.x + view.row_begin * in + k, in);
                    sum += ((double)term + grid) - grid;
                }
                if (l.dw[part].sum[o * in + k] != sum) fail_msg("shape %d: dw is %.17g, by the manual %.17g", shape, l.dw[part].sum[o * in + k], sum);
            }
    }
    linear_end(&l);
}

/* Products in matrix registers have bits of their own, which threads and the division into calls do not change. */
static void linear_in_matrix_registers(void **state)
{
    int shape;
    (void)state;
    if (!support_has(HET_ISA_AMX)) skip();
    for (shape = 0; shape < (int)(sizeof linear_shape / sizeof *linear_shape); shape++) {
        uint64_t hash[2];
        int32_t threads;
        for (threads = 1; threads <= 3; threads += 2) {
            rig r;
            rig_start(&r, HET_ISA_AMX, threads);
            hash[threads / 2] = linear_bf16(&r, shape);
            matrix_check(&r, shape);
            rig_end(&r);
        }
        assert_true(hash[0] == hash[1]);
    }
    for (shape = 0; shape < (int)(sizeof linear_shape / sizeof *linear_shape); shape++) { /* f32 is as elsewhere */
        uint64_t hash[2];
        rig r;
        rig_start(&r, HET_ISA_AMX, 1);
        hash[0] = linear_f32(&r, shape);
        rig_end(&r);
        rig_start(&r, HET_ISA_AUTO, 1);
        hash[1] = linear_f32(&r, shape);
        rig_end(&r);
        assert_true(hash[0] == hash[1]);
    }
}

/* A frozen parameter has no sum; a sum in float takes one chain over all rows, from +0 where it was empty. */
static void linear_frozen_and_fast(void **state)
{
    rig r;
    linear_rig exact, fast;
    float *sum, *again;
    int64_t i;
    (void)state;
    rig_start(&r, HET_ISA_AUTO, 1);
    linear_start(&exact, 4, HET_F32);
    linear_start(&fast, 4, HET_F32);
    RUN(&r, HET_OP_LINEAR_BACKWARD_WEIGHT, &exact.args);
    sum = support_alloc((size_t)fast.dw[2].count, sizeof *sum);
    fast.dw[1].gradient.sum = NULL;
    fast.dw[2].gradient.sum = sum;
    fast.dw[2].gradient.exact = 0;
    RUN(&r, HET_OP_LINEAR_BACKWARD_WEIGHT, &fast.args);
    for (i = 0; i < fast.dw[1].count; i++) assert_true(fast.dw[1].sum[i] == 0.0);
    assert_memory_equal(fast.dw[0].sum, exact.dw[0].sum, (size_t)exact.dw[0].count * sizeof(double));
    check_floats("fast dw", sum, exact.dw[2].sum, exact.dw[2].count, F32_TOLERANCE);
    fast.dw[2].gradient.sum = again = unwritten(fast.dw[2].count);
    fast.dw[2].gradient.beta = 0;
    RUN(&r, HET_OP_LINEAR_BACKWARD_WEIGHT, &fast.args);
    assert_memory_equal(again, sum, (size_t)fast.dw[2].count * sizeof *sum);
    free(again);
    free(sum);
    linear_end(&fast);
    linear_end(&exact);
    rig_end(&r);
}

/* ---- norm ---- */

typedef struct norm_problem {
    het_norm kind;
    int64_t rows, width;
    double epsilon, *x, *gain, *bias, *dy;
} norm_problem;

static void norm_row(const norm_problem *p, int64_t row, double *y)
{
    const double *x = p->x + row * p->width;
    double mean = 0.0, square = 0.0;
    int64_t i;
    if (p->kind == HET_LAYERNORM) {
        for (i = 0; i < p->width; i++) mean += x[i];
        mean /= (double)p->width;
    }
    for (i = 0; i < p->width; i++) square += (x[i] - mean) * (x[i] - mean);
    for (i = 0; i < p->width; i++) {
        y[i] = (x[i] - mean) / sqrt(square / (double)p->width + p->epsilon) * p->gain[i] + (p->bias ? p->bias[i] : 0.0);
    }
}

static double norm_objective(const void *problem)
{
    const norm_problem *p = problem;
    double sum = 0.0, y[512];
    int64_t row, i;
    for (row = 0; row < p->rows; row++) {
        norm_row(p, row, y);
        for (i = 0; i < p->width; i++) sum += p->dy[row * p->width + i] * y[i];
    }
    return sum;
}

static const struct { het_norm kind; int64_t tokens, per_token, width, granule; int bias, residual; } norm_shape[] = {
    { HET_LAYERNORM, 1, 1, 3, 1, 1, 0 },    { HET_LAYERNORM, 17, 1, 65, 5, 1, 1 },  { HET_LAYERNORM, 65, 1, 63, 64, 0, 0 },
    { HET_LAYERNORM, 3, 1, 17, 3, 1, 1 },   { HET_LAYERNORM, 0, 1, 17, 3, 1, 1 },   { HET_LAYERNORM, 5, 1, 1, 2, 1, 0 },
    { HET_RMSNORM, 1, 1, 1, 1, 0, 0 },      { HET_RMSNORM, 17, 3, 10, 4, 0, 0 },    { HET_RMSNORM, 63, 1, 65, 17, 0, 1 },
    { HET_RMSNORM, 65, 2, 17, 65, 0, 0 },   { HET_RMSNORM, 3, 1, 500, 2, 0, 1 },    { HET_LAYERNORM, 600, 1, 33, 512, 1, 1 },
};

typedef struct norm_rig {
    packed tokens;
    het_norm_args args;
    float *x, *gain, *bias, *y, *mean, *rstd, *dy, *residual, *dx;
    store dgain, dbias;
} norm_rig;

static void norm_start(norm_rig *n, int shape)
{
    int64_t tokens = norm_shape[shape].tokens, width = norm_shape[shape].width, rows = tokens * norm_shape[shape].per_token;
    memset(n, 0, sizeof *n);
    packed_start(&n->tokens, &tokens, 1, norm_shape[shape].granule, 50);
    n->args.view = &n->tokens.view;
    n->args.kind = norm_shape[shape].kind;
    n->args.rows = rows;
    n->args.width = width;
    n->args.rows_per_token = norm_shape[shape].per_token;
    n->args.epsilon = 1e-5f;
    n->args.x = n->x = support_floats(rows * width, 2.0, 1);
    n->args.gain = n->gain = support_floats(width, 1.0, 2);
    if (norm_shape[shape].bias) n->args.bias = n->bias = support_floats(width, 1.0, 3);
    n->args.y = n->y = unwritten(rows * width);
    if (n->args.kind == HET_LAYERNORM) n->args.mean = n->mean = unwritten(rows);
    n->args.rstd = n->rstd = unwritten(rows);
    n->args.dy = n->dy = support_floats(rows * width, 1.0, 4);
    if (norm_shape[shape].residual) n->args.residual = n->residual = support_floats(rows * width, 1.0, 5);
    n->args.dx = n->dx = unwritten(rows * width);
    store_start(&n->dgain, width);
    store_start(&n->dbias, width);
    n->args.dgain = &n->dgain.gradient;
    n->args.dbias = n->bias ? &n->dbias.gradient : NULL;
}

static void norm_end(norm_rig *n)
{
    free(n->x);
    free(n->gain);
    free(n->bias);
    free(n->y);
    free(n->mean);
    free(n->rstd);
    free(n->dy);
    free(n->residual);
    free(n->dx);
    store_end(&n->dgain);
    store_end(&n->dbias);
    packed_end(&n->tokens);
}

static void norm_reference(const norm_rig *n)
{
    int64_t count = n->args.rows * n->args.width, row, i;
    norm_problem p;
    double *y = support_alloc((size_t)count, sizeof *y), *dx;
    p.kind = n->args.kind;
    p.rows = n->args.rows;
    p.width = n->args.width;
    p.epsilon = (double)n->args.epsilon;
    p.x = widen(n->x, count);
    p.gain = widen(n->gain, p.width);
    p.bias = n->bias ? widen(n->bias, p.width) : NULL;
    p.dy = widen(n->dy, count);
    for (row = 0; row < p.rows; row++) norm_row(&p, row, y + row * p.width);
    check_floats("norm y", n->y, y, count, F32_TOLERANCE);
    dx = widen(n->dx, count);
    for (i = 0; i < count && n->residual; i++) dx[i] -= (double)n->residual[i];
    check_slopes("norm dx", norm_objective, &p, p.x, dx, count, 1e-5);
    check_slopes("norm dgain", norm_objective, &p, p.gain, n->dgain.sum, p.width, 1e-5);
    if (p.bias) check_slopes("norm dbias", norm_objective, &p, p.bias, n->dbias.sum, p.width, 1e-5);
    free(y);
    free(dx);
    free(p.x);
    free(p.gain);
    free(p.bias);
    free(p.dy);
}

static uint64_t norm_check(rig *r, int shape)
{
    norm_rig n, piece;
    int64_t count, g;
    uint64_t hash = 0;
    norm_start(&n, shape);
    count = n.args.rows * n.args.width;
    RUN(r, HET_OP_NORM_FORWARD, &n.args);
    RUN(r, HET_OP_NORM_BACKWARD_INPUT, &n.args);
    RUN(r, HET_OP_NORM_BACKWARD_WEIGHT, &n.args);
    hash = hash_floats(hash, n.y, count);
    if (n.mean) hash = hash_floats(hash, n.mean, n.args.rows);
    hash = hash_floats(hash, n.rstd, n.args.rows);
    hash = hash_floats(hash, n.dx, count);
    hash = hash_doubles(hash, n.dgain.sum, n.args.width);
    hash = hash_doubles(hash, n.dbias.sum, n.args.width);
    if (r->is_reference) norm_reference(&n);

    /* dx in place of dy, or of the residual */
    norm_start(&piece, shape);
    RUN(r, HET_OP_NORM_FORWARD, &piece.args);
    {
        het_norm_args args = piece.args;
        args.dx = piece.residual ? piece.residual : piece.dy;
        RUN(r, HET_OP_NORM_BACKWARD_INPUT, &args);
        assert_memory_equal(args.dx, n.dx, (size_t)count * sizeof(float));
    }
    norm_end(&piece);

    norm_start(&piece, shape);
    RUN(r, HET_OP_NORM_FORWARD, &piece.args);
    for (g = piece.tokens.view.granules - 1; g >= 0; g--) {
        het_norm_args args = piece.args;
        het_view view = granules_of(&piece.tokens, g, g + 1);
        int64_t first = view.row_begin * args.rows_per_token;
        args.view = &view;
        args.rows = (view.row_end - view.row_begin) * args.rows_per_token;
        args.x += first * args.width;
        args.dy += first * args.width;
        if (args.mean) args.mean += first;
        args.rstd += first;
        RUN(r, HET_OP_NORM_BACKWARD_WEIGHT, &args);
    }
    store_same("norm dgain", &n.dgain, &piece.dgain);
    store_same("norm dbias", &n.dbias, &piece.dbias);
    if (n.tokens.view.granules == 1) store_maximum("norm dgain", &n.dgain);
    norm_end(&piece);
    norm_end(&n);
    return hash;
}

static void norm_matches_double(void **state)
{
    (void)state;
    on_every_device(norm_check, (int)(sizeof norm_shape / sizeof *norm_shape));
}

/* ---- rotary ---- */

static const struct { int64_t heads, head_size, rotary; } rotary_shape[] = { { 1, 2, 2 }, { 3, 10, 10 }, { 2, 24, 6 }, { 4, 64, 64 }, { 1, 17, 16 } };

static uint64_t rotary_check(rig *r, int shape)
{
    static const int64_t length[] = { 3, 0, 17, 1, 63 };
    int64_t heads = rotary_shape[shape].heads, size = rotary_shape[shape].head_size, rotary = rotary_shape[shape].rotary, half = rotary / 2;
    int64_t n, count, row, h, i, backward;
    packed tokens;
    het_view view;
    het_rotary_args a;
    float *cosine, *sine, *x, *y;
    uint64_t hash = 0;
    packed_start(&tokens, length, 5, 10, 50);
    view = granules_of(&tokens, 1, tokens.view.granules); /* a slice that does not start at row 0 */
    n = view.row_end - view.row_begin;
    count = n * heads * size;
    cosine = support_floats(64 * half, 1.0, 1);
    sine = support_floats(64 * half, 1.0, 2);
    x = support_floats(count, 1.0, 3);
    y = unwritten(count);
    memset(&a, 0, sizeof a);
    a.view = &view;
    a.rows = n;
    a.heads = heads;
    a.head_size = size;
    a.rotary = rotary;
    a.cosine = cosine;
    a.sine = sine;
    a.x = x;
    a.y = y;
    for (backward = 0; backward < 2; backward++) {
        double *want = widen(x, count);
        float *in_place = support_floats(count, 1.0, 3);
        double sign = backward ? -1.0 : 1.0;
        OP(r, backward ? HET_OP_ROTARY_BACKWARD : HET_OP_ROTARY_FORWARD, &a);
        for (row = 0; row < n; row++) {
            int64_t position = tokens.position[view.row_begin + row];
            for (h = 0; h < heads; h++) {
                double *head = want + (row * heads + h) * size;
                for (i = 0; i < half; i++) {
                    double c = (double)cosine[position * half + i], s = sign * (double)sine[position * half + i];
                    double low = head[i], high = head[i + half];
                    head[i] = low * c - high * s;
                    head[i + half] = high * c + low * s;
                }
            }
        }
        check_floats(backward ? "rotary backward" : "rotary forward", y, want, count, F32_TOLERANCE);
        hash = hash_floats(hash, y, count);
        a.x = a.y = in_place;
        OP(r, backward ? HET_OP_ROTARY_BACKWARD : HET_OP_ROTARY_FORWARD, &a);
        assert_memory_equal(in_place, y, (size_t)count * sizeof *y);
        a.x = x;
        a.y = y;
        free(want);
        free(in_place);
    }
    free(cosine);
    free(sine);
    free(x);
    free(y);
    packed_end(&tokens);
    return hash;
}

static void rotary_matches_double(void **state)
{
    (void)state;
    on_every_device(rotary_check, (int)(sizeof rotary_shape / sizeof *rotary_shape));
}

/* ---- attention ---- */

typedef struct attention_problem {
    const het_view *view;
    int64_t heads, kv_heads, head_size, window;
    int causal;
    double scale, *q, *k, *v, *d_o, *bias;
    int64_t relations, context;
    const int32_t *relation;
} attention_problem;

/* o of one query row and head: softmax over the keys it sees. Without causality a window is centred on the query. */
static void attention_row(const attention_problem *p, int64_t row, int64_t head, double *o)
{
    int64_t start = p->view->sequence_start[p->view->sequence_of[row]], end = p->view->sequence_start[p->view->sequence_of[row] + 1];
    const int64_t origin = start;
    int64_t size = p->head_size, group = head / (p->heads / p->kv_heads), behind = p->causal ? p->window - 1 : (p->window - 1) / 2, j, e;
    const double *q = p->q + (row * p->heads + head) * size;
    double s[4096], top = -1e300, sum = 0.0;
    if (p->causal) end = row + 1;
    else if (p->window && row + p->window / 2 + 1 < end) end = row + p->window / 2 + 1;
    if (p->window && row - behind > start) start = row - behind;
    for (j = start; j < end; j++) {
        const double *k = p->k + (j * p->kv_heads + group) * size;
        s[j - start] = 0.0;
        for (e = 0; e < size; e++) s[j - start] += q[e] * k[e];
        s[j - start] *= p->scale;
        if (p->bias) s[j - start] += p->bias[(row * p->heads + head) * p->relations + p->relation[(row - origin) * p->context + j - origin]];
        if (s[j - start] > top) top = s[j - start];
    }
    for (j = start; j < end; j++) sum += s[j - start] = exp(s[j - start] - top);
    for (e = 0; e < size; e++) o[e] = 0.0;
    for (j = start; j < end; j++) {
        const double *v = p->v + (j * p->kv_heads + group) * size;
        for (e = 0; e < size; e++) o[e] += s[j - start] / sum * v[e];
    }
}

static double attention_objective(const void *problem)
{
    const attention_problem *p = problem;
    double sum = 0.0, o[128];
    int64_t row, head, e;
    for (row = 0; row < p->view->tokens; row++) {
        for (head = 0; head < p->heads; head++) {
            attention_row(p, row, head, o);
            for (e = 0; e < p->head_size; e++) sum += o[e] * p->d_o[(row * p->heads + head) * p->head_size + e];
        }
    }
    return sum;
}

static const struct { int64_t heads, kv_heads, head_size, window; int causal; int64_t length[8]; int64_t sequences; } attention_shape[] = {
    { 1, 1, 1, 0, 1, { 1 }, 1 },
    { 2, 2, 3, 0, 1, { 3 }, 1 },
    { 4, 2, 10, 0, 1, { 17, 0, 1, 5 }, 4 },
    { 3, 1, 17, 0, 1, { 63 }, 1 },
    { 2, 1, 64, 0, 1, { 0, 65, 1, 0 }, 4 },
    { 4, 4, 16, 5, 1, { 3, 17, 1, 0, 33 }, 5 },
    { 2, 2, 12, 1, 1, { 17 }, 1 },
    { 4, 2, 10, 0, 0, { 17, 0, 1, 33 }, 4 },
    { 6, 3, 8, 0, 1, { 0, 0 }, 2 },
    { 2, 1, 20, 40, 1, { 150, 3, 70 }, 3 },
    { 2, 1, 6, 6, 0, { 33, 5, 1 }, 3 },
    { 2, 1, 6, 700, 1, { 900 }, 1 }, /* blocks of 192 rows, of 96 queries each */
    { 1, 1, 3, 0, 1, { 2780 }, 1 }, /* some of its blocks of 96 rows see more than the 2,704 keys that scores are kept for */
    { 1, 1, 3, 0, 0, { 2721 }, 1 }, /* all blocks do */
};

enum { BIASED_CONTEXT = 150, BIASED_RELATIONS = 7 };

typedef struct attention_rig {
    packed tokens;
    het_attention_args args;
    float *q, *k, *v, *o, *maximum, *sum, *d_o, *dq, *dk, *dv, *bias, *dbias;
    int32_t relation[BIASED_CONTEXT * BIASED_CONTEXT];
    int64_t queries, keys, biases; /* floats of q, of k, of the bias */
} attention_rig;

static void attention_start(attention_rig *t, int shape, het_dtype compute)
{
    het_attention_args *a = &t->args;
    int64_t n;
    memset(t, 0, sizeof *t);
    packed_start(&t->tokens, attention_shape[shape].length, attention_shape[shape].sequences, attention_shape[shape].length[0] > 1000 ? 512 : 13, 50);
    n = t->tokens.view.tokens;
    a->view = &t->tokens.view;
    a->compute = compute;
    a->heads = attention_shape[shape].heads;
    a->kv_heads = attention_shape[shape].kv_heads;
    a->head_size = attention_shape[shape].head_size;
    a->window = attention_shape[shape].window;
    a->causal = attention_shape[shape].causal;
    a->scale = (float)(1.0 / sqrt((double)a->head_size));
    t->queries = n * a->heads * a->head_size;
    t->keys = n * a->kv_heads * a->head_size;
    a->q = t->q = support_floats(t->queries, 2.0, 1);
    a->k = t->k = support_floats(t->keys, 2.0, 2);
    a->v = t->v = support_floats(t->keys, 1.0, 3);
    a->o = t->o = unwritten(t->queries);
    a->maximum = t->maximum = unwritten(n * a->heads);
    a->sum = t->sum = unwritten(n * a->heads);
    a->d_o = t->d_o = support_floats(t->queries, 1.0, 4);
    a->dq = t->dq = unwritten(t->queries);
    a->dk = t->dk = support_alloc((size_t)t->keys, sizeof(float));
    a->dv = t->dv = support_alloc((size_t)t->keys, sizeof(float));
}

/* Gives it a bias, by relations that are no function of i - j. */
static void attention_bias(attention_rig *t)
{
    het_attention_args *a = &t->args;
    int32_t i;
    for (i = 0; i < BIASED_CONTEXT * BIASED_CONTEXT; i++) t->relation[i] = (i % 11 + i / 17) % BIASED_RELATIONS;
    a->relation = t->relation;
    a->relations = BIASED_RELATIONS;
    a->context = BIASED_CONTEXT;
    t->biases = t->tokens.view.tokens * a->heads * a->relations;
    a->bias = t->bias = support_floats(t->biases, 2.0, 5);
    a->dbias = t->dbias = unwritten(t->biases);
}

static void attention_end(attention_rig *t)
{
    free(t->bias);
    free(t->dbias);
    free(t->q);
    free(t->k);
    free(t->v);
    free(t->o);
    free(t->maximum);
    free(t->sum);
    free(t->d_o);
    free(t->dq);
    free(t->dk);
    free(t->dv);
    packed_end(&t->tokens);
}

static void attention_reference(const attention_rig *t, double tolerance, int slopes)
{
    attention_problem p;
    double *o = support_alloc((size_t)t->queries, sizeof *o);
    int64_t row, head;
    p.view = &t->tokens.view;
    p.heads = t->args.heads;
    p.kv_heads = t->args.kv_heads;
    p.head_size = t->args.head_size;
    p.window = t->args.window;
    p.causal = t->args.causal;
    p.scale = (double)t->args.scale;
    p.q = widen(t->q, t->queries);
    p.k = widen(t->k, t->keys);
    p.v = widen(t->v, t->keys);
    p.d_o = widen(t->d_o, t->queries);
    p.bias = t->bias ? widen(t->bias, t->biases) : NULL;
    p.relation = t->relation;
    p.relations = t->args.relations;
    p.context = t->args.context;
    for (row = 0; row < p.view->tokens; row++) {
        for (head = 0; head < p.heads; head++) attention_row(&p, row, head, o + (row * p.heads + head) * p.head_size);
    }
    check_floats("attention o", t->o, o, t->queries, tolerance);
    if (slopes) {
        check_float_slopes("attention dq", attention_objective, &p, p.q, t->dq, t->queries, 4.0 * tolerance);
        check_float_slopes("attention dk", attention_objective, &p, p.k, t->dk, t->keys, 4.0 * tolerance);
        check_float_slopes("attention dv", attention_objective, &p, p.v, t->dv, t->keys, 4.0 * tolerance);
        if (p.bias) check_float_slopes("attention dbias", attention_objective, &p, p.bias, t->dbias, t->biases, 4.0 * tolerance);
    }
    free(p.bias);
    free(o);
    free(p.q);
    free(p.k);
    free(p.v);
    free(p.d_o);
}

/* The arguments of the slice that holds these granules. */
static het_attention_args attention_slice(attention_rig *t, het_view *view, int64_t begin, int64_t end)
{
    het_attention_args a = t->args;
    int64_t row, width = a.heads * a.head_size;
    *view = granules_of(&t->tokens, begin, end);
    row = view->row_begin;
    a.view = view;
    a.q += row * width;
    a.o += row * width;
    a.d_o += row * width;
    a.dq += row * width;
    a.maximum += row * a.heads;
    a.sum += row * a.heads;
    if (a.bias) a.bias += row * a.heads * a.relations, a.dbias += row * a.heads * a.relations;
    return a;
}

static void run_attention(rig *r, het_attention_args *a, int backward)
{
    a->workspace = rig_workspace(r, backward ? HET_OP_ATTENTION_BACKWARD : HET_OP_ATTENTION_FORWARD, a, sizeof *a);
    a->workspace_size = r->workspace_size;
    OP(r, backward ? HET_OP_ATTENTION_BACKWARD : HET_OP_ATTENTION_FORWARD, a);
    rig_release(r);
}

static uint64_t attention_hash(const attention_rig *t)
{
    uint64_t hash = hash_floats(0, t->o, t->queries);
    hash = hash_floats(hash, t->maximum, t->tokens.view.tokens * t->args.heads);
    hash = hash_floats(hash, t->sum, t->tokens.view.tokens * t->args.heads);
    hash = hash_floats(hash, t->dq, t->queries);
    hash = hash_floats(hash, t->dk, t->keys);
    if (t->bias) hash = hash_floats(hash, t->dbias, t->biases);
    return hash_floats(hash, t->dv, t->keys);
}

static uint64_t attention_check(rig *r, int shape, het_dtype compute, int biased)
{
    const int all = support_environment("HETRAIN_TEST_ROUNDS", 1) > 1; /* otherwise long sequences are cut once */
    attention_rig t;
    uint64_t hash;
    int64_t slices, s;
    attention_start(&t, shape, compute);
    if (biased) attention_bias(&t);
    run_attention(r, &t.args, 0);
    run_attention(r, &t.args, 1);
    hash = attention_hash(&t);
    if (r->is_reference) {
        slope_tries = t.tokens.view.tokens > 500 ? 3 : 48;
        attention_reference(&t, compute == HET_BF16 ? 1e-2 : 4e-6, compute != HET_BF16);
        slope_tries = 48;
    }
    attention_end(&t);
    if (!attention_shape[shape].causal) return hash;
    for (slices = 2; slices <= (t.queries > 5000 && !all ? 2 : 3); slices++) { /* forward first to last, backward last to first */
        int64_t granules;
        attention_start(&t, shape, compute);
        if (biased) attention_bias(&t);
        granules = t.tokens.view.granules;
        for (s = 0; s < 2 * slices; s++) {
            int64_t slice = s < slices ? s : 2 * slices - 1 - s;
            het_view view;
            het_attention_args a = attention_slice(&t, &view, slice * granules / slices, (slice + 1) * granules / slices);
            run_attention(r, &a, s >= slices);
        }
        if (attention_hash(&t) != hash) fail_msg("shape %d: %d slices give other bits than none", shape, (int)slices);
        attention_end(&t);
    }
    return hash;
}

static uint64_t attention_f32(rig *r, int shape) { return attention_check(r, shape, HET_F32, 0); }
static uint64_t attention_bf16(rig *r, int shape) { return attention_check(r, shape, HET_BF16, 0); }
static uint64_t attention_biased(rig *r, int shape) { return attention_check(r, shape, shape % 2 ? HET_F32 : HET_BF16, 1); }
static uint64_t attention_biased_f32(rig *r, int shape) { return attention_check(r, shape, HET_F32, 1); }

static void attention_matches_double(void **state)
{
    (void)state;
    on_every_device(attention_f32, (int)(sizeof attention_shape / sizeof *attention_shape));
}

static void attention_in_bf16(void **state)
{
    (void)state;
    on_every_device(attention_bf16, (int)(sizeof attention_shape / sizeof *attention_shape) - 1); /* the causal long shape has both paths */
}

static void attention_with_a_bias(void **state)
{
    (void)state;
    on_every_device(attention_biased_f32, 11); /* those whose sequences the relations reach */
    on_every_device(attention_biased, 11);
}

/* Scores far apart and far from 0 stay finite: the largest is subtracted first. */
static void attention_of_large_scores(void **state)
{
    rig r;
    attention_rig t;
    int64_t i;
    (void)state;
    rig_start(&r, HET_ISA_AUTO, 1);
    attention_start(&t, 3, HET_F32);
    for (i = 0; i < t.queries; i++) t.q[i] *= 100.0f;
    run_attention(&r, &t.args, 0);
    run_attention(&r, &t.args, 1);
    attention_reference(&t, 1e-4, 0);
    (void)attention_hash(&t); /* no NaN */
    attention_end(&t);
    rig_end(&r);
}

/* ---- activation ---- */

typedef struct activation_problem {
    het_activation kind;
    int64_t count;
    double *a, *b, *dy;
} activation_problem;

static double activation_y(const activation_problem *p, int64_t i)
{
    double a = p->a[i];
    switch (p->kind) {
    case HET_GELU_TANH: return 0.5 * a * (1.0 + tanh(0.79788456080286535588 * (a + 0.044715 * a * a * a)));
    case HET_GELU_ERF: return 0.5 * a * (1.0 + erf(a * 0.70710678118654752440));
    default: return a / (1.0 + exp(-a)) * p->b[i];
    }
}

static double activation_objective(const void *problem)
{
    const activation_problem *p = problem;
    double sum = 0.0;
    int64_t i;
    for (i = 0; i < p->count; i++) sum += p->dy[i] * activation_y(p, i);
    return sum;
}

static uint64_t activation_check(rig *r, int shape)
{
    static const int64_t counts[] = { 0, 1, 3, 17, 63, 65, 1000 };
    static const het_activation kinds[] = { HET_GELU_TANH, HET_GELU_ERF, HET_SWIGLU };
    int64_t n = counts[shape % 7], i;
    het_activation_args a;
    activation_problem p;
    int gated = kinds[shape / 7] == HET_SWIGLU;
    float *in_a = support_floats(n, n > 100 ? 12.0 : 3.0, 1), *in_b = gated ? support_floats(n, 2.0, 2) : NULL, *dy = support_floats(n, 1.0, 3);
    float *da = unwritten(n), *db = unwritten(n), *y = unwritten(n), *in_place = support_floats(n, 1.0, 3);
    double *want = support_alloc((size_t)n, sizeof *want);
    uint64_t hash;
    memset(&a, 0, sizeof a);
    a.kind = p.kind = kinds[shape / 7];
    a.count = p.count = n;
    a.a = in_a;
    a.b = in_b;
    a.dy = dy;
    a.y = y;
    a.da = da;
    a.db = gated ? db : NULL;
    OP(r, HET_OP_ACTIVATION_FORWARD, &a);
    OP(r, HET_OP_ACTIVATION_BACKWARD, &a);
    hash = hash_floats(0, y, n);
    hash = hash_floats(hash, da, n);
    if (gated) hash = hash_floats(hash, db, n);
    p.a = widen(a.a, n);
    p.b = gated ? widen(a.b, n) : NULL;
    p.dy = widen(a.dy, n);
    if (r->is_reference) {
        for (i = 0; i < n; i++) want[i] = activation_y(&p, i);
        check_floats("activation y", y, want, n, F32_TOLERANCE);
        check_float_slopes("activation da", activation_objective, &p, p.a, da, n, F32_TOLERANCE);
        if (gated) check_float_slopes("activation db", activation_objective, &p, p.b, db, n, F32_TOLERANCE);
    }
    a.dy = a.da = in_place; /* da in place of dy */
    OP(r, HET_OP_ACTIVATION_BACKWARD, &a);
    assert_memory_equal(in_place, da, (size_t)n * sizeof(float));
    free(p.a);
    free(p.b);
    free(p.dy);
    free(in_a);
    free(in_b);
    free(dy);
    free(da);
    free(db);
    free(y);
    free(in_place);
    free(want);
    return hash;
}

static void activation_matches_double(void **state)
{
    (void)state;
    on_every_device(activation_check, 21);
}

/* ---- embedding ---- */

typedef struct embedding_problem {
    const het_view *view;
    int64_t width;
    double *table, *positions, *dy;
} embedding_problem;

static double embedding_objective(const void *problem)
{
    const embedding_problem *p = problem;
    double sum = 0.0;
    int64_t row, i;
    for (row = 0; row < p->view->tokens; row++) {
        for (i = 0; i < p->width; i++) {
            double y = p->table[p->view->token[row] * p->width + i];
            if (p->positions) y += p->positions[p->view->position[row] * p->width + i];
            sum += p->dy[row * p->width + i] * y;
        }
    }
    return sum;
}

static const struct { int64_t width, vocab, granule; int positions; int64_t length[6], sequences; } embedding_shape[] = {
    { 1, 1, 1, 1, { 1 }, 1 },          { 17, 3, 5, 1, { 17, 0, 1 }, 3 },   { 65, 50, 20, 0, { 63 }, 1 },
    { 63, 9, 64, 1, { 0, 65, 3, 0 }, 4 }, { 3, 300, 7, 1, { 0 }, 1 },      { 40, 61, 11, 1, { 3, 17, 1, 63 }, 4 },
};

static uint64_t embedding_check(rig *r, int shape)
{
    int64_t width = embedding_shape[shape].width, vocab = embedding_shape[shape].vocab, context = 70, n, row, i, g;
    packed tokens;
    het_embedding_args a;
    store dtable, dpositions, table_pieces, positions_pieces;
    float *table = support_floats(vocab * width, 1.0, 1), *positions = support_floats(context * width, 1.0, 2), *dy, *y;
    uint64_t hash;
    packed_start(&tokens, embedding_shape[shape].length, embedding_shape[shape].sequences, embedding_shape[shape].granule, vocab);
    n = tokens.view.tokens;
    dy = support_floats(n * width, 1.0, 3);
    y = unwritten(n * width);
    store_start(&dtable, vocab * width);
    store_start(&dpositions, context * width);
    store_start(&table_pieces, vocab * width);
    store_start(&positions_pieces, context * width);
    memset(&a, 0, sizeof a);
    a.view = &tokens.view;
    a.rows = n;
    a.width = width;
    a.vocab = vocab;
    a.context = context;
    a.table = table;
    a.positions = embedding_shape[shape].positions ? positions : NULL;
    a.y = y;
    a.dy = dy;
    a.dtable = &dtable.gradient;
    a.dpositions = a.positions ? &dpositions.gradient : NULL;
    OP(r, HET_OP_EMBEDDING_FORWARD, &a);
    RUN(r, HET_OP_EMBEDDING_BACKWARD_WEIGHT, &a);
    hash = hash_floats(0, y, n * width);
    hash = hash_doubles(hash, dtable.sum, dtable.count);
    hash = hash_doubles(hash, dpositions.sum, dpositions.count);
    for (row = 0; row < n; row++) {
        for (i = 0; i < width; i++) {
            float want = table[tokens.view.token[row] * width + i];
            if (a.positions) want += positions[tokens.position[row] * width + i];
            assert_true(y[row * width + i] == want);
        }
    }
    if (r->is_reference) {
        embedding_problem p;
        p.view = &tokens.view;
        p.width = width;
        p.table = widen(table, vocab * width);
        p.positions = a.positions ? widen(positions, context * width) : NULL;
        p.dy = widen(dy, n * width);
        check_slopes("embedding dtable", embedding_objective, &p, p.table, dtable.sum, dtable.count, F32_TOLERANCE);
        if (p.positions) check_slopes("embedding dpositions", embedding_objective, &p, p.positions, dpositions.sum, dpositions.count, F32_TOLERANCE);
        free(p.table);
        free(p.positions);
        free(p.dy);
    }
    for (g = tokens.view.granules - 1; g >= 0; g--) {
        het_view view = granules_of(&tokens, g, g + 1);
        het_embedding_args piece = a;
        piece.view = &view;
        piece.rows = view.row_end - view.row_begin;
        piece.dy = dy + view.row_begin * width;
        piece.dtable = &table_pieces.gradient;
        piece.dpositions = a.positions ? &positions_pieces.gradient : NULL;
        RUN(r, HET_OP_EMBEDDING_BACKWARD_WEIGHT, &piece);
    }
    store_same("embedding dtable", &dtable, &table_pieces);
    store_same("embedding dpositions", &dpositions, &positions_pieces);
    if (tokens.view.granules == 1) store_maximum("embedding dtable", &dtable);
    store_end(&dtable);
    store_end(&dpositions);
    store_end(&table_pieces);
    store_end(&positions_pieces);
    free(table);
    free(positions);
    free(dy);
    free(y);
    packed_end(&tokens);
    return hash;
}

static void embedding_matches_double(void **state)
{
    (void)state;
    on_every_device(embedding_check, (int)(sizeof embedding_shape / sizeof *embedding_shape));
}

/* ---- dropout ---- */

static het_step_scalars scalars_of(uint64_t seed, uint64_t step)
{
    het_step_scalars s;
    memset(&s, 0, sizeof s);
    s.seed = seed;
    s.step = step;
    s.inverse_weight = 1.0f;
    s.clip_scale = 1.0f;
    s.verdict = HET_VERDICT_ACCEPT;
    return s;
}

/* Writes the mask (0 or 1 / (1 - p)) of the view's rows. */
static void dropout_mask(rig *r, const het_view *view, int64_t width, float p, uint64_t seed, uint64_t step, int32_t site, float *mask)
{
    het_step_scalars scalars = scalars_of(seed, step);
    het_dropout_args a;
    int64_t i, rows = view->row_end - view->row_begin;
    memset(&a, 0, sizeof a);
    for (i = 0; i < rows * width; i++) mask[i] = 1.0f;
    a.view = view;
    a.scalars = &scalars;
    a.rows = rows;
    a.width = width;
    a.probability = p;
    a.site = site;
    a.x = a.y = mask;
    OP(r, HET_OP_DROPOUT_FORWARD, &a);
}

static uint64_t dropout_check(rig *r, int shape)
{
    static const int64_t length[] = { 3, 17, 0, 1, 63 };
    static const int64_t widths[] = { 1, 17, 63, 65 };
    static const float probabilities[] = { 0.0f, 0.25f, 0.5f };
    int64_t width = widths[shape % 4], count, i;
    float probability = probabilities[shape / 4];
    het_step_scalars scalars = scalars_of(5, 3);
    het_dropout_args a;
    packed tokens;
    float *mask, *x, *base, *y;
    uint64_t hash;
    packed_start(&tokens, length, 5, 10, 50);
    count = tokens.view.tokens * width;
    mask = unwritten(count);
    x = support_floats(count, 1.0, 1);
    base = support_floats(count, 1.0, 2);
    y = unwritten(count);
    dropout_mask(r, &tokens.view, width, probability, 5, 3, 9, mask);
    memset(&a, 0, sizeof a);
    a.view = &tokens.view;
    a.scalars = &scalars;
    a.rows = tokens.view.tokens;
    a.width = width;
    a.probability = probability;
    a.site = 9;
    a.a = base;
    a.x = x;
    a.y = y;
    OP(r, HET_OP_DROPOUT_FORWARD, &a);
    hash = hash_floats(0, y, count);
    for (i = 0; i < count; i++) {
        double kept = 1.0 / (1.0 - (double)probability);
        assert_true(mask[i] == 0.0f || fabs((double)mask[i] - kept) < 1e-6);
        assert_true(fabs((double)y[i] - ((double)base[i] + (double)mask[i] * (double)x[i])) < 1e-6);
    }
    a.y = base; /* in place of a */
    OP(r, HET_OP_DROPOUT_FORWARD, &a);
    assert_memory_equal(base, y, (size_t)count * sizeof *y);
    a.a = NULL;
    a.y = y;
    OP(r, HET_OP_DROPOUT_BACKWARD, &a); /* the slope of y = drop(x) along x is the mask */
    for (i = 0; i < count; i++) assert_true(fabs((double)y[i] - (double)mask[i] * (double)x[i]) < 1e-6);
    hash = hash_floats(hash, y, count);
    free(mask);
    free(x);
    free(base);
    free(y);
    packed_end(&tokens);
    return hash;
}

static void dropout_matches_its_mask(void **state)
{
    (void)state;
    on_every_device(dropout_check, 12);
}

/* The share kept is 1 - p within five standard deviations, and neighbours in every direction are independent. */
static void dropout_statistics(void **state)
{
    static const int64_t length[] = { 250, 250 };
    const int64_t width = 400;
    int64_t count, i, kept = 0, differs[5] = { 0, 0, 0, 0, 0 };
    double deviation;
    packed tokens;
    rig r;
    float *mask, *other[3];
    (void)state;
    rig_start(&r, HET_ISA_AUTO, 1);
    packed_start(&tokens, length, 2, 512, 50);
    count = tokens.view.tokens * width;
    mask = unwritten(count);
    for (i = 0; i < 3; i++) other[i] = unwritten(count);
    dropout_mask(&r, &tokens.view, width, 0.25f, 5, 3, 9, mask);
    dropout_mask(&r, &tokens.view, width, 0.25f, 6, 3, 9, other[0]);
    dropout_mask(&r, &tokens.view, width, 0.25f, 5, 4, 9, other[1]);
    dropout_mask(&r, &tokens.view, width, 0.25f, 5, 3, 10, other[2]);
    for (i = 0; i < count; i++) {
        int one = mask[i] > 0.0f;
        kept += one;
        differs[0] += one != (other[0][i] > 0.0f);
        differs[1] += one != (other[1][i] > 0.0f);
        differs[2] += one != (other[2][i] > 0.0f);
        differs[3] += one != (mask[(i + 1) % count] > 0.0f);
        differs[4] += one != (mask[(i + 250 * width) % count] > 0.0f); /* the other sequence, same position and column */
    }
    deviation = 5.0 * sqrt((double)count * 0.25 * 0.75);
    assert_true(fabs((double)kept - 0.75 * (double)count) < deviation);
    for (i = 0; i < 5; i++) {
        if (fabs((double)differs[i] - 0.375 * (double)count) > 2.0 * deviation)
            fail_msg("mask and neighbour %d differ in %d of %d places", (int)i, (int)differs[i], (int)count);
    }
    free(mask);
    for (i = 0; i < 3; i++) free(other[i]);
    packed_end(&tokens);
    rig_end(&r);
}

/* A token's mask follows its sample and position, wherever it stands in whatever micro-batch and slice. */
static void dropout_follows_the_sample(void **state)
{
    static const int64_t together[] = { 5, 9 }, alone[] = { 9 };
    float first[14 * 33], second[9 * 33], slice[9 * 33];
    packed a, b;
    het_view view;
    rig r;
    (void)state;
    rig_start(&r, HET_ISA_AUTO, 1);
    packed_start(&a, together, 2, 5, 50);
    packed_start(&b, alone, 1, 5, 50);
    b.batch.sample_id[0] = a.batch.sample_id[1];
    dropout_mask(&r, &a.view, 33, 0.5f, 1, 2, 3, first);
    dropout_mask(&r, &b.view, 33, 0.5f, 1, 2, 3, second);
    assert_memory_equal(first + 5 * 33, second, sizeof second);
    view = granules_of(&a, 1, a.view.granules);
    dropout_mask(&r, &view, 33, 0.5f, 1, 2, 3, slice);
    assert_memory_equal(first + 5 * 33, slice, sizeof slice);
    packed_end(&a);
    packed_end(&b);
    rig_end(&r);
}

/* ---- cross-entropy ---- */

typedef struct entropy_problem {
    int64_t rows, vocab;
    const int32_t *target;
    const float *weight;
    double *logits;
} entropy_problem;

static double entropy_row(const entropy_problem *p, int64_t row)
{
    const double *z = p->logits + row * p->vocab;
    double top = z[0], sum = 0.0;
    int64_t i;
    if (p->target[row] < 0) return 0.0;
    for (i = 1; i < p->vocab; i++) top = z[i] > top ? z[i] : top;
    for (i = 0; i < p->vocab; i++) sum += exp(z[i] - top);
    return log(sum) + top - z[p->target[row]];
}

static double entropy_objective(const void *problem)
{
    const entropy_problem *p = problem;
    double sum = 0.0;
    int64_t row;
    for (row = 0; row < p->rows; row++) sum += (double)p->weight[row] * entropy_row(p, row);
    return sum;
}

static uint64_t entropy_check(rig *r, int shape)
{
    static const struct { int64_t rows, vocab; double scale; } shapes[] = {
        { 0, 5, 1.0 }, { 1, 1, 1.0 }, { 3, 3, 2.0 }, { 17, 63, 3.0 }, { 65, 17, 1.0 }, { 63, 65, 5.0 }, { 5, 1000, 80.0 }
    };
    int64_t rows = shapes[shape].rows, vocab = shapes[shape].vocab, count = rows * vocab, row;
    het_step_scalars scalars = scalars_of(0, 0);
    het_cross_entropy_args a;
    het_sum loss, again;
    packed tokens;
    float *logits = support_floats(count, shapes[shape].scale, 1), *kept = support_floats(count, shapes[shape].scale, 1), *row_loss = unwritten(rows);
    uint64_t hash;
    packed_start(&tokens, &rows, 1, 512, vocab);
    memset(&loss, 0, sizeof loss);
    memset(&again, 0, sizeof again);
    memset(&a, 0, sizeof a);
    scalars.inverse_weight = 0.125f;
    a.scalars = &scalars;
    a.rows = rows;
    a.vocab = vocab;
    a.logits = logits;
    a.target = tokens.view.target;
    a.weight = tokens.view.weight;
    a.row_loss = row_loss;
    a.loss = &again;
    RUN(r, HET_OP_CROSS_ENTROPY, &a); /* evaluation leaves the logits alone */
    assert_memory_equal(logits, kept, (size_t)count * sizeof(float));
    a.gradient = 1;
    a.loss = &loss;
    RUN(r, HET_OP_CROSS_ENTROPY, &a);
    assert_true(support_sum_value(&loss) == support_sum_value(&again));
    hash = hash_floats(0, logits, count);
    hash = hash_floats(hash, row_loss, rows);
    hash = het_xxh64(&loss, sizeof loss, hash);
    if (r->is_reference) {
        entropy_problem p;
        double *gradient = widen(logits, count), *want = support_alloc((size_t)rows, sizeof *want);
        double total;
        int64_t i;
        p.rows = rows;
        p.vocab = vocab;
        p.target = a.target;
        p.weight = a.weight;
        p.logits = widen(kept, count);
        for (i = 0; i < count; i++) gradient[i] *= 8.0;
        check_slopes("cross-entropy gradient", entropy_objective, &p, p.logits, gradient, count, 1e-5);
        for (row = 0; row < rows; row++) want[row] = entropy_row(&p, row);
        check_floats("cross-entropy rows", row_loss, want, rows, 1e-5);
        total = entropy_objective(&p);
        assert_true(fabs(support_sum_value(&loss) - total) <= 1e-6 * fabs(total) + 1e-9);
        free(p.logits);
        free(gradient);
        free(want);
    }
    for (row = 0; row < rows; row++) {
        int64_t i;
        for (i = 0; i < vocab && a.target[row] < 0; i++) assert_true(logits[row * vocab + i] == 0.0f);
    }
    free(logits);
    free(kept);
    free(row_loss);
    packed_end(&tokens);
    return hash;
}

static void cross_entropy_matches_double(void **state)
{
    (void)state;
    on_every_device(entropy_check, 7);
}

/* ---- sums, verdict, update ---- */

static uint64_t add_check(rig *r, int shape)
{
    static const int64_t counts[] = { 0, 1, 3, 17, 63, 65, 5000 };
    int64_t n = counts[shape], i;
    float *y = support_floats(n, 1.0, 1), *x = support_floats(n, 1.0, 2), *before = support_floats(n, 1.0, 1), *term = support_floats(n, 100.0, 4);
    store s;
    het_accumulate_args a;
    het_elements_args e;
    uint64_t hash;
    e.count = n;
    e.y = y;
    e.x = x;
    e.factor = 0.3f;
    e.squares = NULL;
    OP(r, HET_OP_ADD, &e);
    for (i = 0; i < n; i++) assert_true(y[i] == before[i] + x[i]);
    e.y = x;
    OP(r, HET_OP_SCALE, &e);
    for (i = 0; i < n; i++) assert_true(x[i] == 0.3f * (y[i] - before[i]) || fabsf(x[i] - 0.3f * (y[i] - before[i])) < 1e-6f);
    for (i = 0; i < n; i++) term[i] = ldexpf(term[i], -(int)(i % 30)); /* down to far below the grid's step */
    store_start(&s, n + 5);
    a.gradient = &s.gradient;
    a.offset = 5;
    a.count = n;
    a.term = term;
    OP(r, HET_OP_ACCUMULATE, &a);
    OP(r, HET_OP_ACCUMULATE, &a);
    for (i = 0; i < 5; i++) assert_true(s.sum[i] == 0.0);
    for (i = 0; i < n; i++) {
        double q = ldexp(1.0, 20 - 51), rounded = q * rint((double)term[i] / q); /* to a multiple of q, to even */
        assert_true(s.sum[5 + i] == 2.0 * rounded);
    }
    if (n) {
        float largest = 0.0f;
        for (i = 0; i < n; i++) largest = fabsf(term[i]) > largest ? fabsf(term[i]) : largest;
        assert_int_equal(s.maximum, support_bits(largest));
    }
    hash = hash_doubles(hash_floats(0, y, n), s.sum, n + 5);
    store_end(&s);
    free(y);
    free(x);
    free(before);
    free(term);
    return hash;
}

static void add_and_accumulate(void **state)
{
    (void)state;
    on_every_device(add_check, 7);
}

static uint64_t squares_check(rig *r, int shape)
{
    static const int64_t counts[] = { 0, 1, 3, 17, 63, 65, 1023, 1025, 5000 };
    int64_t n = counts[shape], i;
    het_sum sum, parts;
    store s;
    het_sum_squares_args a;
    double want = 0.0;
    uint64_t seed = 3;
    store_start(&s, n);
    for (i = 0; i < n; i++) {
        s.sum[i] = support_uniform(&seed);
        want += (double)(float)s.sum[i] * (double)(float)s.sum[i];
    }
    memset(&sum, 0, sizeof sum);
    memset(&parts, 0, sizeof parts);
    memset(&a, 0, sizeof a);
    a.gradient = &s.gradient;
    a.count = n;
    a.sum = &sum;
    RUN(r, HET_OP_SUM_SQUARES, &a);
    assert_true(fabs(support_sum_value(&sum) - want) <= 1e-12 * want);
    a.sum = &parts; /* shares cut at blocks of 1,024 give the same limbs */
    for (i = 0; i < n; i += 1024) {
        het_gradient share = s.gradient;
        share.sum = s.sum + i;
        a.gradient = &share;
        a.count = n - i < 1024 ? n - i : 1024;
        RUN(r, HET_OP_SUM_SQUARES, &a);
    }
    assert_true(support_sum_value(&sum) == support_sum_value(&parts));
    store_end(&s);
    return het_xxh64(&sum, sizeof sum, 0);
}

static void sum_of_squares(void **state)
{
    (void)state;
    on_every_device(squares_check, 9);
}

/* A het_sum that holds `value`. The device makes it: it squares a gradient of one element, so value must be a square of a float. */
static het_sum sum_of(rig *r, double root)
{
    het_sum sum;
    store s;
    het_sum_squares_args a;
    memset(&sum, 0, sizeof sum);
    store_start(&s, 1);
    s.sum[0] = root;
    memset(&a, 0, sizeof a);
    a.gradient = &s.gradient;
    a.count = 1;
    a.sum = &sum;
    RUN(r, HET_OP_SUM_SQUARES, &a);
    store_end(&s);
    return sum;
}

static het_step_scalars verdict_of(rig *r, double norm, double loss, float largest, int32_t exponent, int exact, double clip)
{
    het_step_scalars s = scalars_of(0, 0);
    uint32_t maximum[3];
    int32_t exponents[3];
    het_sum squares = sum_of(r, norm), losses = sum_of(r, loss);
    het_verdict_args a;
    memset(&a, 0, sizeof a);
    s.verdict = HET_VERDICT_NONE;
    s.maximum_norm = clip;
    maximum[0] = maximum[2] = 0;
    maximum[1] = support_bits(largest);
    exponents[0] = exponents[2] = 0;
    exponents[1] = exponent;
    a.scalars = &s;
    a.parameters = 3;
    a.maximum = maximum;
    a.exponent = exponents;
    a.exact = exact;
    a.squares = &squares;
    a.loss = &losses;
    OP(r, HET_OP_VERDICT, &a);
    return s;
}

static void verdicts(void **state)
{
    het_step_scalars s;
    rig r;
    float below = nextafterf(128.0f, 0.0f);
    (void)state;
    rig_start(&r, HET_ISA_AUTO, 1);
    s = verdict_of(&r, 3.0, 1.0, below, 1, 1, 1.5); /* the limit is 2^(1 + 6) = 128 */
    assert_int_equal(s.verdict, HET_VERDICT_ACCEPT);
    assert_true(s.gradient_norm == 3.0 && s.clip_scale == 0.5f);
    assert_true(verdict_of(&r, 3.0, 1.0, below, 1, 1, 6.0).clip_scale == 1.0f);
    assert_true(verdict_of(&r, 3.0, 1.0, below, 1, 1, 0.0).clip_scale == 1.0f);
    assert_int_equal(verdict_of(&r, 3.0, 1.0, 128.0f, 1, 1, 0.0).verdict, HET_VERDICT_REPEAT);
    assert_int_equal(verdict_of(&r, 3.0, 1.0, 128.0f, 1, 0, 0.0).verdict, HET_VERDICT_ACCEPT);
    assert_int_equal(verdict_of(&r, 3.0, 1.0, 1.0f, HETRAIN_NO_EXPONENT, 1, 0.0).verdict, HET_VERDICT_REPEAT);
    assert_int_equal(verdict_of(&r, 3.0, 1.0, 1.0f, HETRAIN_NO_EXPONENT, 0, 0.0).verdict, HET_VERDICT_ACCEPT);
    assert_int_equal(verdict_of(&r, (double)NAN, 1.0, 1.0f, 1, 1, 0.0).verdict, HET_VERDICT_NOT_FINITE);
    assert_int_equal(verdict_of(&r, 3.0, (double)INFINITY, 1.0f, 1, 1, 0.0).verdict, HET_VERDICT_NOT_FINITE);
    assert_int_equal(verdict_of(&r, 3.0, 1.0, INFINITY, 1, 1, 0.0).verdict, HET_VERDICT_NOT_FINITE);
    assert_int_equal(verdict_of(&r, 3.0, 1.0, NAN, 1, 1, 0.0).verdict, HET_VERDICT_NOT_FINITE);
    rig_end(&r);
}

static uint64_t adamw_check(rig *r, int shape)
{
    static const int64_t counts[] = { 1, 3, 17, 63, 65, 3000 };
    int64_t n = counts[shape], i;
    het_step_scalars scalars = scalars_of(0, 0);
    float *w = support_floats(n, 1.0, 1), *m = support_floats(n, 0.1, 2), *v = support_floats(n, 0.1, 3);
    float *w0 = support_floats(n, 1.0, 1), *m0 = support_floats(n, 0.1, 2), *v0;
    store s;
    het_adamw_args a;
    uint64_t hash, seed = 4;
    store_start(&s, n);
    for (i = 0; i < n; i++) {
        s.sum[i] = support_uniform(&seed);
        v[i] = fabsf(v[i]);
    }
    v0 = support_alloc((size_t)n, sizeof *v0);
    memcpy(v0, v, (size_t)n * sizeof *v);
    scalars.learning_rate = 0.01f;
    scalars.bias_correction1 = 0.271f;
    scalars.bias_correction2 = 0.142625f;
    scalars.clip_scale = 0.75f;
    a.scalars = &scalars;
    a.gradient = &s.gradient;
    a.count = n;
    a.w = w;
    a.m = m;
    a.v = v;
    a.beta1 = 0.9f;
    a.beta2 = 0.95f;
    a.epsilon = 1e-8f;
    a.decay = 0.1f;
    scalars.verdict = HET_VERDICT_REPEAT;
    OP(r, HET_OP_ADAMW, &a);
    scalars.verdict = HET_VERDICT_NOT_FINITE;
    OP(r, HET_OP_ADAMW, &a);
    assert_memory_equal(w, w0, (size_t)n * sizeof *w);
    assert_memory_equal(m, m0, (size_t)n * sizeof *m);
    assert_memory_equal(v, v0, (size_t)n * sizeof *v);
    scalars.verdict = HET_VERDICT_ACCEPT;
    OP(r, HET_OP_ADAMW, &a);
    for (i = 0; i < n; i++) {
        double b1 = (double)a.beta1, b2 = (double)a.beta2, g = s.sum[i] * 0.75;
        double mi = b1 * (double)m0[i] + (1.0 - b1) * g, vi = b2 * (double)v0[i] + (1.0 - b2) * g * g;
        double wi = (double)w0[i] - (double)scalars.learning_rate * (double)a.decay * (double)w0[i];
        double mean = mi / (double)scalars.bias_correction1, square = vi / (double)scalars.bias_correction2;
        wi -= (double)scalars.learning_rate * mean / (sqrt(square) + (double)a.epsilon);
        assert_true(fabs((double)m[i] - mi) <= 1e-6 * (fabs(mi) + 0.1));
        assert_true(fabs((double)v[i] - vi) <= 1e-6 * (fabs(vi) + 0.1));
        assert_true(fabs((double)w[i] - wi) <= 1e-6);
    }
    hash = hash_floats(hash_floats(hash_floats(0, w, n), m, n), v, n);
    store_end(&s);
    free(w);
    free(m);
    free(v);
    free(w0);
    free(m0);
    free(v0);
    return hash;
}

/* Three updates u around which there is feedback: the weights are plain ones and `factor` last updates more, and nothing gets lost. */
static uint64_t feedback_check(rig *r, int shape)
{
    static const int64_t counts[] = { 1, 3, 17, 63, 65, 3000 };
    int64_t n = counts[shape], i, t;
    het_step_scalars scalars = scalars_of(0, 0);
    float *w = support_floats(n, 1.0, 1), *e = support_floats(n, 0.0, 2), *plain = support_floats(n, 1.0, 1), *before = support_floats(n, 0, 0);
    float *last = support_floats(n, 0.0, 2), *same = support_floats(n, 0.0, 2);
    het_feedback_args a = { &scalars, n, w, e, shape % 3 > 0 ? last : NULL, shape % 2 == 0 ? 1.0f : 0.5f, shape % 3 > 0 ? 0.7f : 0.0f, 1 };
    uint64_t hash;
    for (i = 0; i < n; i++) w[i] = plain[i] += plain[i] < 0 ? -1.0f : 1.0f;
    for (t = 0; t < 3; t++) {
        scalars.verdict = HET_VERDICT_REPEAT;
        memcpy(before, w, (size_t)n * sizeof *w);
        for (a.begins = 0; a.begins < 2; a.begins++) OP(r, HET_OP_FEEDBACK, &a);
        assert_memory_equal(w, before, (size_t)n * sizeof *w);
        assert_memory_equal(last, same, (size_t)n * sizeof *w);
        scalars.verdict = HET_VERDICT_ACCEPT;
        a.begins = 1;
        OP(r, HET_OP_FEEDBACK, &a);
        assert_memory_equal(w, plain, (size_t)n * sizeof *w);
        for (i = 0; i < n; i++) {
            before[i] = plain[i];
            w[i] = plain[i] = plain[i] - 0.01f * (float)((i + t) % 7 - 3);
        }
        a.begins = 0;
        OP(r, HET_OP_FEEDBACK, &a);
        for (i = 0; i < n; i++) {
            const double u = (double)before[i] - (double)plain[i];
            const double wanted = (double)plain[i] - (double)a.factor * u - (double)a.change * (u - (double)same[i]);
            assert_true(fabs((double)w[i] - wanted) <= 1.8e-7 * fabs(wanted) && w[i] + e[i] == plain[i]);
            if (a.last != NULL) same[i] = last[i];
            assert_true(a.last == NULL || (double)last[i] == u);
        }
    }
    hash = hash_floats(hash_floats(hash_floats(0, w, n), e, n), last, n);
    free(last);
    free(same);
    free(w);
    free(e);
    free(plain);
    free(before);
    return hash;
}

static void feedback_goes_further(void **state)
{
    (void)state;
    on_every_device(feedback_check, 6);
}

static void adamw_matches_double(void **state)
{
    (void)state;
    on_every_device(adamw_check, 6);
}
/* Matrices of int8, whole and boxes of them, element by element. */
static uint64_t expand_check(rig *r, int shape)
{
    static const int64_t shapes[][4] = { { 1, 1, 0, 1 }, { 1, 63, 0, 63 }, { 1, 5000, 0, 40 }, { 1, 200, 130, 200 }, { 7, 40, 24, 100 },
                                         { 3, 129, 65, 256 }, { 0, 8, 0, 8 } }; /* rows, width, first, step */
    const int64_t *of = shapes[shape], blocks = (of[1] + 2 * 63) / 64, count = of[0] * of[1];
    het_int8_block *block = support_alloc((size_t)(of[0] * blocks), sizeof *block);
    float *y = support_floats(count + 1, 1.0, 1), *scale = support_floats(of[0] * blocks, 1.0, 3);
    const float behind = y[count];
    het_expand_args a;
    uint64_t hash;
    int64_t i, j;
    for (i = 0; i < of[0] * blocks; i++)
        for (block[i].scale = scale[i], j = 0; j < 64; j++) block[i].q[j] = (int8_t)((31 * i + 37 * j) % 255 - 127);
    a.rows = of[0], a.width = of[1], a.first = of[2], a.step = of[3], a.blocks = blocks, a.from = block, a.y = y;
    OP(r, HET_OP_EXPAND, &a);
    for (i = 0; i < of[0]; i++)
        for (j = 0; j < of[1]; j++) {
            const int64_t element = of[2] + i * of[3] + j, begin = of[2] + i * of[3];
            const het_int8_block *at = &block[i * blocks + element / 64 - begin / 64];
            if (y[i * of[1] + j] != at->scale * (float)at->q[element % 64]) fail_msg("row %d, element %d", (int)i, (int)j);
        }
    assert_true(y[count] == behind);
    hash = hash_floats(0, y, count);
    free(block);
    free(y);
    free(scale);
    return hash;
}

static void weights_of_int8_are_expanded(void **state)
{
    (void)state;
    on_every_device(expand_check, 7);
}

/* ---- memory of the device ---- */

static void copies_and_clears(void **state)
{
    static const float values[5] = { 1.0f, -2.0f, 3.5f, 0.0f, 9.0f };
    float back[5];
    float *a, *b;
    het_copy_args in, zero, some, out, apart;
    rig r;
    (void)state;
    rig_start(&r, HET_ISA_AUTO, 1);
    a = r.op->alloc(r.self, sizeof values);
    b = r.op->alloc(r.self, sizeof values);
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal((uintptr_t)a % 64, 0);
    memset(&in, 0, sizeof in);
    zero = some = out = apart = in;
    in.to = a, in.from = values, in.size = sizeof values;
    zero.to = b, zero.from = NULL, zero.size = sizeof values;
    some.to = b, some.from = a, some.size = 2 * sizeof(float);
    out.to = back, out.from = b, out.size = sizeof values;
    apart.to = b, apart.from = a + 2, apart.size = sizeof(float); /* two rows: element 2 to 0, 4 to 3 */
    apart.rows = 2, apart.to_step = 3 * sizeof(float), apart.from_step = 2 * sizeof(float);
    OP(&r, HET_OP_COPY_IN, &in);
    OP(&r, HET_OP_CLEAR, &zero);
    OP(&r, HET_OP_COPY, &some);
    OP(&r, HET_OP_COPY_OUT, &out);
    assert_true(back[0] == 1.0f && back[1] == -2.0f && back[2] == 0.0f && back[4] == 0.0f);
    OP(&r, HET_OP_COPY, &apart);
    OP(&r, HET_OP_COPY_OUT, &out);
    assert_true(back[0] == 3.5f && back[1] == -2.0f && back[2] == 0.0f && back[3] == 9.0f && back[4] == 0.0f);
    r.op->free(r.self, a, sizeof values);
    r.op->free(r.self, b, sizeof values);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_matches_double),
        cmocka_unit_test(linear_rounds_operands_to_bf16),
        cmocka_unit_test(linear_in_matrix_registers),
        cmocka_unit_test(linear_frozen_and_fast),
        cmocka_unit_test(linear_chains_continue),
        cmocka_unit_test(norm_matches_double),
        cmocka_unit_test(rotary_matches_double),
        cmocka_unit_test(attention_matches_double),
        cmocka_unit_test(attention_in_bf16),
        cmocka_unit_test(attention_with_a_bias),
        cmocka_unit_test(attention_of_large_scores),
        cmocka_unit_test(activation_matches_double),
        cmocka_unit_test(embedding_matches_double),
        cmocka_unit_test(dropout_matches_its_mask),
        cmocka_unit_test(dropout_statistics),
        cmocka_unit_test(dropout_follows_the_sample),
        cmocka_unit_test(cross_entropy_matches_double),
        cmocka_unit_test(add_and_accumulate),
        cmocka_unit_test(sum_of_squares),
        cmocka_unit_test(verdicts),
        cmocka_unit_test(adamw_matches_double),
        cmocka_unit_test(feedback_goes_further),
        cmocka_unit_test(weights_of_int8_are_expanded),
        cmocka_unit_test(copies_and_clears),
    };
    return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
