/* Where a step's time goes: the CPU's ops with a clock around each. An op's floor is the larger of its multiply-adds over the machine's
   peak and its bytes over the memory's bandwidth, every operand counted once; what stays in the cache can be faster than that. */
#ifndef BENCH_PARTS_H
#define BENCH_PARTS_H

typedef struct part { const char *name; double seconds, flops, bytes, floor; int64_t calls; } part;

enum { PARTS_MOST = 32 };
static struct {
    const het_device_iface *cpu;
    part part[PARTS_MOST];
    int parts;
    double flops, bandwidth; /* of the machine */
} parts;

static void parts_add(const char *name, double start, double flops, double bytes) {
    const double seconds = seconds_now() - start;
    int i = 0;
    while (i < parts.parts && strcmp(parts.part[i].name, name) != 0) i++;
    if (i == parts.parts) {
        if (i == PARTS_MOST) return;
        memset(&parts.part[i], 0, sizeof parts.part[i]);
        parts.part[parts.parts++].name = name;
    }
    parts.part[i].seconds += seconds;
    parts.part[i].flops += flops;
    parts.part[i].bytes += bytes;
    parts.part[i].floor += fmax(flops / parts.flops, bytes / parts.bandwidth);
    parts.part[i].calls++;
}

/* Bytes of a gradient's sum that is read, unless beta is 0, and written. */
static double parts_sum(const het_gradient *g, double count) {
    return g == NULL || g->sum == NULL ? 0 : count * (g->exact && !g->final ? 8 : 4) * (g->beta == 0 ? 1 : 2);
}

static double parts_out(const het_linear_args *a) {
    double sum = 0;
    int64_t i;
    for (i = 0; i < a->parts; i++) sum += (double)a->part[i].out;
    return sum;
}

static double parts_linear_flops(const het_linear_args *a) { return 2 * (double)a->rows * (double)a->in * parts_out(a); }

static double parts_linear_bytes(const het_linear_args *a) {
    return 4 * ((double)a->rows * ((double)a->in + parts_out(a)) + (double)a->in * parts_out(a));
}

static double parts_weight_bytes(const het_linear_args *a) {
    double sum = 4 * (double)a->rows * ((double)a->in + parts_out(a));
    int64_t i;
    for (i = 0; i < a->parts; i++) sum += parts_sum(a->part[i].dw, (double)a->in * (double)a->part[i].out);
    return sum;
}

/* Pairs of query and key, all heads, causal without a window; and floats of q, o against k, v. */
static double parts_pairs(const het_attention_args *a) {
    double sum = 0;
    int64_t s;
    for (s = 0; s < a->view->sequences; s++) {
        const double n = (double)(a->view->host_sequence_start[s + 1] - a->view->host_sequence_start[s]);
        sum += a->causal ? n * (n + 1) / 2 : n * n;
    }
    return sum * (double)(a->heads * a->head_size);
}

static double parts_attention_bytes(const het_attention_args *a, double q, double k) {
    return 4 * (double)(a->view->row_end - a->view->row_begin) * (double)a->head_size * (q * (double)a->heads + k * (double)a->kv_heads);
}

/* An op's name; its multiply-adds, twice, and its bytes are written to *flops and *bytes. */
static const char *parts_cost(const het_op *op, double *flops, double *bytes) {
    const het_norm_args *norm = &op->u.norm;
    const het_linear_args *linear = &op->u.linear;
    const het_rotary_args *rotary = &op->u.rotary;
    const het_attention_args *attention = &op->u.attention;
    const het_activation_args *activation = &op->u.activation;
    const het_embedding_args *embedding = &op->u.embedding;
    const het_dropout_args *dropout = &op->u.dropout;
    const het_cross_entropy_args *loss = &op->u.cross_entropy;
    const double rows = 4 * (double)norm->rows * (double)norm->width, turned = 8 * (double)rotary->rows * (double)(rotary->heads * rotary->head_size),
                 dropped = 4 * (double)dropout->rows * (double)dropout->width, embedded = 4 * (double)embedding->rows * (double)embedding->width;
    *flops = *bytes = 0;
    switch (op->kind) {
    case HET_OP_NORM_FORWARD: *bytes = 2 * rows; return "norm_forward";
    case HET_OP_NORM_BACKWARD_INPUT: *bytes = rows * (norm->residual != NULL ? 4 : 3); return "norm_backward_input";
    case HET_OP_NORM_BACKWARD_WEIGHT: *bytes = 2 * rows; return "norm_backward_weight";
    case HET_OP_LINEAR_FORWARD: *flops = parts_linear_flops(linear), *bytes = parts_linear_bytes(linear); return "linear_forward";
    case HET_OP_LINEAR_BACKWARD_INPUT: *flops = parts_linear_flops(linear), *bytes = parts_linear_bytes(linear); return "linear_backward_input";
    case HET_OP_LINEAR_BACKWARD_WEIGHT: *flops = parts_linear_flops(linear), *bytes = parts_weight_bytes(linear); return "linear_backward_weight";
    case HET_OP_ROTARY_FORWARD: *bytes = turned; return "rotary_forward";
    case HET_OP_ROTARY_BACKWARD: *bytes = turned; return "rotary_backward";
    case HET_OP_ATTENTION_FORWARD: *flops = 4 * parts_pairs(attention), *bytes = parts_attention_bytes(attention, 2, 2); return "attention_forward";
    case HET_OP_ATTENTION_BACKWARD: *flops = 10 * parts_pairs(attention), *bytes = parts_attention_bytes(attention, 4, 4);
        return "attention_backward";
    case HET_OP_ACTIVATION_FORWARD: *bytes = 4 * (double)activation->count * (activation->b != NULL ? 3 : 2); return "activation_forward";
    case HET_OP_ACTIVATION_BACKWARD: *bytes = 4 * (double)activation->count * (activation->b != NULL ? 5 : 3); return "activation_backward";
    case HET_OP_EMBEDDING_FORWARD: *bytes = 2 * embedded; return "embedding_forward";
    case HET_OP_EMBEDDING_BACKWARD_WEIGHT: *bytes = embedded + parts_sum(embedding->dtable, embedded / 4); return "embedding_backward_weight";
    case HET_OP_DROPOUT_FORWARD: *bytes = dropped * (dropout->a != NULL ? 3 : 2); return "dropout_forward";
    case HET_OP_DROPOUT_BACKWARD: *bytes = 2 * dropped; return "dropout_backward";
    case HET_OP_CROSS_ENTROPY: *bytes = 4 * (double)loss->rows * (double)loss->vocab * (loss->gradient ? 2 : 1); return "cross_entropy";
    case HET_OP_ACCUMULATE: *bytes = 4 * (double)op->u.accumulate.count + parts_sum(op->u.accumulate.gradient, (double)op->u.accumulate.count);
        return "accumulate";
    case HET_OP_SUM_SQUARES: *bytes = (double)op->u.sum_squares.count * (op->u.sum_squares.gradient->exact ? 8 : 4); return "sum_squares";
    case HET_OP_VERDICT: return "verdict";
    case HET_OP_ADAMW: *bytes = (double)op->u.adamw.count * ((op->u.adamw.gradient->exact ? 8 : 4) + 24); return "adamw";
        /* sum; w, m, v read and written */
    case HET_OP_MUON_MOMENTUM: *bytes = (double)(op->u.muon.rows * op->u.muon.columns) * ((op->u.muon.gradient->exact ? 8 : 4) + 12);
        return "muon_momentum";
    case HET_OP_MUON_UPDATE: *bytes = 12 * (double)(op->u.muon.rows * op->u.muon.columns); return "muon_update"; /* x; w read and written */
    case HET_OP_FEEDBACK: *bytes = 16 * (double)op->u.feedback.count; return "feedback";
    case HET_OP_ADD: *bytes = 12 * (double)op->u.elements.count; return "add";
    case HET_OP_SCALE: *bytes = 8 * (double)op->u.elements.count; return "scale";
    case HET_OP_COPY: *bytes = 2 * (double)(op->u.copy.size * (op->u.copy.rows > 1 ? op->u.copy.rows : 1)); return "copy";
    case HET_OP_CLEAR: *bytes = (double)op->u.copy.size; return "clear";
    default: return NULL;
    }
}

static het_result parts_run(void *self, het_queue *queue, const het_op *op) {
    const double start = seconds_now();
    const het_result result = parts.cpu->run(self, queue, op);
    double flops, bytes;
    const char *name = parts_cost(op, &flops, &bytes);
    if (name != NULL) parts_add(name, start, flops, bytes);
    return result;
}

static het_device_iface parts_table(const het_device_iface *cpu) {
    het_device_iface t = *cpu;
    parts.cpu = cpu;
    t.run = parts_run;
    return t;
}

static int parts_slower(const void *a, const void *b) {
    const double x = ((const part *)a)->seconds, y = ((const part *)b)->seconds;
    return (x < y) - (x > y);
}

/* Of one step: time, floor and their ratio of every op, the largest first, and how much of the step they are together. */
static void parts_print(const bench *b, double step, int64_t steps) {
    double sum = 0, floor = 0;
    int i;
    qsort(parts.part, (size_t)parts.parts, sizeof(part), parts_slower);
    for (i = 0; i < parts.parts; i++) {
        const part *p = &parts.part[i];
        const double n = (double)steps;
        print_head(b, "part");
        printf(",\"op\":\"%s\",\"calls\":%lld,\"ms\":%.4f,\"floor_ms\":%.4f,\"floor_share\":%.3f,\"gflops\":%.1f,\"gbytes_per_s\":%.1f}\n", p->name,
               (long long)(p->calls / steps), 1e3 * p->seconds / n, 1e3 * p->floor / n, p->floor / p->seconds, 1e-9 * p->flops / p->seconds,
               1e-9 * p->bytes / p->seconds);
        sum += p->seconds / n, floor += p->floor / n;
    }
    print_head(b, "parts");
    printf(",\"step_ms\":%.3f,\"parts_ms\":%.3f,\"covered\":%.4f,\"floor_ms\":%.3f,\"floor_share\":%.3f}\n", 1e3 * step, 1e3 * sum, sum / step,
           1e3 * floor, floor / step);
    fflush(stdout);
}

#endif
