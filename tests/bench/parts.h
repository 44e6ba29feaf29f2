/* Where a step's time goes: the CPU's table of ops with a clock around each. An op's floor is the larger of its multiply-adds over the machine's
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

/* Bytes of a gradient's sum that is read, unless it is empty, and written. */
static double parts_sum(const het_gradient *g, double count) {
    const int empty = g != NULL && g->empty != NULL && *g->empty;
    return g == NULL || g->sum == NULL ? 0 : count * (g->exact && !g->once ? 8 : 4) * (empty ? 1 : 2);
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

#define PART(op, type, flops, bytes) \
static het_result parts_##op(void *self, het_queue *queue, const type *a) { \
    const double start = seconds_now(); \
    const het_result result = parts.cpu->op(self, queue, a); \
    parts_add(#op, start, flops, bytes); \
    return result; \
}
#define PARTS_NORM(arrays) 4 * (double)a->rows * (double)a->width * (arrays)

PART(norm_forward, het_norm_args, 0, PARTS_NORM(2))
PART(norm_backward_input, het_norm_args, 0, PARTS_NORM(a->residual != NULL ? 4 : 3))
PART(norm_backward_weight, het_norm_args, 0, PARTS_NORM(2))
PART(linear_forward, het_linear_args, parts_linear_flops(a), parts_linear_bytes(a))
PART(linear_backward_input, het_linear_args, parts_linear_flops(a), parts_linear_bytes(a))
PART(linear_backward_weight, het_linear_args, parts_linear_flops(a), parts_weight_bytes(a))
PART(rotary_forward, het_rotary_args, 0, 8 * (double)a->rows * (double)(a->heads * a->head_size))
PART(rotary_backward, het_rotary_args, 0, 8 * (double)a->rows * (double)(a->heads * a->head_size))
PART(attention_forward, het_attention_args, 4 * parts_pairs(a), parts_attention_bytes(a, 2, 2))
PART(attention_backward, het_attention_args, 10 * parts_pairs(a), parts_attention_bytes(a, 4, 4))
PART(activation_forward, het_activation_args, 0, 4 * (double)a->count * (a->b != NULL ? 3 : 2))
PART(activation_backward, het_activation_args, 0, 4 * (double)a->count * (a->b != NULL ? 5 : 3))
PART(embedding_forward, het_embedding_args, 0, 8 * (double)a->rows * (double)a->width)
PART(embedding_backward_weight, het_embedding_args, 0, 4 * (double)a->rows * (double)a->width + parts_sum(a->dtable, (double)(a->rows * a->width)))
PART(dropout_forward, het_dropout_args, 0, 4 * (double)a->rows * (double)a->width * (a->a != NULL ? 3 : 2))
PART(dropout_backward, het_dropout_args, 0, 8 * (double)a->rows * (double)a->width)
PART(cross_entropy, het_cross_entropy_args, 0, 4 * (double)a->rows * (double)a->vocab * (a->gradient ? 2 : 1))
PART(accumulate, het_accumulate_args, 0, 4 * (double)a->count + parts_sum(a->gradient, (double)a->count))
PART(sum_squares, het_sum_squares_args, 0, (double)a->count * (a->gradient->exact ? 8 : 4))
PART(verdict, het_verdict_args, 0, 0)
PART(adamw, het_adamw_args, 0, (double)a->count * ((a->gradient->exact ? 8 : 4) + 24)) /* sum; w, m, v read and written */

static het_result parts_add_op(void *self, het_queue *queue, float *y, const float *x, int64_t count) {
    const double start = seconds_now();
    const het_result result = parts.cpu->add(self, queue, y, x, count);
    parts_add("add", start, 0, 12 * (double)count);
    return result;
}

static het_result parts_scale(void *self, het_queue *queue, float *y, float factor, int64_t count) {
    const double start = seconds_now();
    const het_result result = parts.cpu->scale(self, queue, y, factor, count);
    parts_add("scale", start, 0, 8 * (double)count);
    return result;
}

static het_result parts_copy(void *self, het_queue *queue, void *to, const void *from, size_t size) {
    const double start = seconds_now();
    const het_result result = parts.cpu->copy(self, queue, to, from, size);
    parts_add("copy", start, 0, 2 * (double)size);
    return result;
}

static het_result parts_clear(void *self, het_queue *queue, void *to, size_t size) {
    const double start = seconds_now();
    const het_result result = parts.cpu->clear(self, queue, to, size);
    parts_add("clear", start, 0, (double)size);
    return result;
}

static het_device_iface parts_table(const het_device_iface *cpu) {
    het_device_iface t = *cpu;
    parts.cpu = cpu;
#define PARTS_USE(op) t.op = parts_##op
    PARTS_USE(norm_forward), PARTS_USE(norm_backward_input), PARTS_USE(norm_backward_weight);
    PARTS_USE(linear_forward), PARTS_USE(linear_backward_input), PARTS_USE(linear_backward_weight);
    PARTS_USE(rotary_forward), PARTS_USE(rotary_backward), PARTS_USE(attention_forward), PARTS_USE(attention_backward);
    PARTS_USE(activation_forward), PARTS_USE(activation_backward), PARTS_USE(embedding_forward), PARTS_USE(embedding_backward_weight);
    PARTS_USE(dropout_forward), PARTS_USE(dropout_backward), PARTS_USE(cross_entropy), PARTS_USE(accumulate), PARTS_USE(sum_squares);
    PARTS_USE(verdict), PARTS_USE(adamw), PARTS_USE(scale), PARTS_USE(copy), PARTS_USE(clear);
#undef PARTS_USE
    t.add = parts_add_op;
    t.fills_sums = t.linear_backward_weight;
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
