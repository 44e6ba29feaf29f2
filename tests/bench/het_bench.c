/* het_bench: prints one JSON object a line and measurement. Times are medians over --repetitions, with the fastest and slowest beside them.
     build/het_bench                         products and attention of GPT-2 124M, then its whole step, at 4 x 256 tokens
     build/het_bench --what step --model llama:tiny --sequences 8 --length 128 --threads 2 */
#define PROGRAM "het_bench"
#define HETRAIN_IMPLEMENTATION
#include "../../examples/common.h"

typedef struct settings {
    const char *model;
    int64_t sequences, length, threads, repetitions, dtype, isa, what;
} settings;

#define AT(field) offsetof(settings, field)
static const option options[] = {
    { "--what", "all|peak|products|attention|step", OPTION_CHOICE, AT(what), 0, 0, "what to measure" },
    { "--model", "SPEC", OPTION_TEXT, AT(model), 0, 0, "of the whole step and of the shapes" },
    { "--sequences", "B", OPTION_INTEGER, AT(sequences), 1, 1e6, "of the micro-batch" },
    { "--length", "T", OPTION_INTEGER, AT(length), 1, 1e6, "tokens a sequence" },
    { "--threads", "N", OPTION_INTEGER, AT(threads), 1, 256, "by default all processors" },
    { "--repetitions", "N", OPTION_INTEGER, AT(repetitions), 1, 1000, "after one that is not counted" },
    { "--dtype", "f32|bf16", OPTION_CHOICE, AT(dtype), 0, 0, "operands of the products" },
    { "--isa", "auto|plain|avx2|avx512|avx512bf16|neon", OPTION_CHOICE, AT(isa), 0, 0, "inner loops" },
    { "--help", NULL, OPTION_HELP, 0, 0, 0, "this text" },
};
enum { OPTIONS = (int)(sizeof options / sizeof options[0]) };
enum { ALL = 1, PEAK, PRODUCTS, ATTENTION, STEP };

typedef struct bench {
    settings set;
    unsigned char given[OPTIONS];
    int threads;
    het_model_desc model;
    const het_device_iface *cpu;
    void *self;
    het_view view;          /* B sequences of T tokens */
    int64_t *bounds;        /* sequence starts, then granule starts */
    double *seconds;        /* [repetitions] */
    double grid;
    uint32_t maximum;
    het_gradient gradient;
} bench;

typedef struct spread { double median, low, high; } spread;

static int compare_doubles(const void *a, const void *b) {
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static spread spread_of(bench *b) {
    size_t n = (size_t)b->set.repetitions;
    spread s;
    qsort(b->seconds, n, sizeof(double), compare_doubles);
    s.median = n % 2 == 1 ? b->seconds[n / 2] : 0.5 * (b->seconds[n / 2 - 1] + b->seconds[n / 2]);
    s.low = b->seconds[0], s.high = b->seconds[n - 1];
    return s;
}

static void print_head(const bench *b, const char *name) {
    static const char *const isa[] = { "auto", "plain", "avx2", "avx512", "avx512bf16", "neon" };
    printf("{\"name\":\"%s\",\"threads\":%d,\"isa\":\"%s\",\"dtype\":\"%s\"", name, b->threads, isa[b->set.isa - 1],
           b->set.dtype == HET_BF16 ? "bf16" : "f32");
}

static void print_spread(spread s, double flops) {
    printf(",\"ms\":%.4f,\"ms_low\":%.4f,\"ms_high\":%.4f,\"gflops\":%.2f}\n", 1e3 * s.median, 1e3 * s.low, 1e3 * s.high, 1e-9 * flops / s.median);
    fflush(stdout);
}

static het_result linear_op(bench *b, int which, const het_linear_args *a) {
    if (which == 0) return b->cpu->linear_forward(b->self, NULL, a);
    return which == 1 ? b->cpu->linear_backward_input(b->self, NULL, a) : b->cpu->linear_backward_weight(b->self, NULL, a);
}

/* One matrix shape: y = x W^T, dx = dy W, dW += dy^T x. last: how many of the three. */
static int bench_linear(bench *b, const char *shape, int64_t rows, int64_t in, int64_t out, int last) {
    static const char *const names[] = { "linear_forward", "linear_backward_input", "linear_backward_weight" };
    static const het_op ops[] = { HET_OP_LINEAR_FORWARD, HET_OP_LINEAR_BACKWARD_INPUT, HET_OP_LINEAR_BACKWARD_WEIGHT };
    size_t n[4], workspace = 0, bytes, i;
    float *memory[4]; /* x and dx, w, y and dy, dW */
    het_linear_args a;
    int which, status = 0;
    n[0] = (size_t)(2 * rows * in), n[1] = (size_t)(out * in), n[2] = (size_t)(rows * out), n[3] = last == 3 ? (size_t)(2 * out * in) : 16;
    memset(&a, 0, sizeof a);
    a.view = &b->view, a.compute = (het_dtype)b->set.dtype, a.rows = rows, a.in = in, a.parts = 1, a.part[0].out = out;
    for (which = 0; which < last; which++) {
        bytes = b->cpu->workspace_bytes(b->self, ops[which], &a);
        workspace = bytes > workspace ? bytes : workspace;
    }
    a.workspace = b->cpu->alloc(b->self, workspace + 64);
    for (which = 0; which < 4; which++) memory[which] = (float *)b->cpu->alloc(b->self, n[which] * sizeof(float));
    if (a.workspace == NULL || memory[0] == NULL || memory[1] == NULL || memory[2] == NULL || memory[3] == NULL) return fail(FAILED, "out of memory");
    for (which = 0; which < 4; which++)
        for (i = 0; i < n[which]; i++) memory[which][i] = which == 3 ? 0 : (float)(i * 2654435761u % 1021) / 1021.0f - 0.5f;
    a.x = memory[0], a.dx = memory[0] + rows * in, a.part[0].w = memory[1], a.part[0].y = memory[2];
    b->gradient.sum = memory[3], a.part[0].dw = &b->gradient;
    for (which = 0; which < last && status == 0; which++) {
        int64_t r;
        a.part[0].dy = memory[2];
        for (r = -1; r < b->set.repetitions && status == 0; r++) {
            double start = seconds_now();
            if (linear_op(b, which, &a) != HET_OK) status = fail(FAILED, "%s: %s", names[which], b->cpu->last_error(b->self));
            if (r >= 0) b->seconds[r] = seconds_now() - start;
        }
        if (status != 0) break;
        print_head(b, last == 3 ? names[which] : "product_peak");
        printf(",\"shape\":\"%s\",\"rows\":%lld,\"in\":%lld,\"out\":%lld", shape, (long long)rows, (long long)in, (long long)out);
        print_spread(spread_of(b), 2.0 * (double)rows * (double)in * (double)out);
    }
    b->cpu->free(b->self, a.workspace, workspace + 64);
    for (which = 0; which < 4; which++) b->cpu->free(b->self, memory[which], n[which] * sizeof(float));
    return status;
}

static int bench_products(bench *b) {
    const het_model_desc *m = &b->model;
    int64_t rows = b->view.tokens, q = m->heads * m->head_size, kv = m->kv_heads * m->head_size;
    int status = bench_linear(b, "qkv", rows, m->width, q + 2 * kv, 3);
    if (status == 0) status = bench_linear(b, "attention_out", rows, q, m->width, 3);
    if (status == 0) status = bench_linear(b, "mlp_up", rows, m->width, m->mlp_width, 3);
    if (status == 0) status = bench_linear(b, "mlp_down", rows, m->mlp_width, m->width, 3);
    if (status == 0) status = bench_linear(b, "head", rows, m->width, m->vocab, 3);
    return status;
}

static int bench_attention(bench *b) {
    const het_model_desc *m = &b->model;
    size_t n = (size_t)b->view.tokens, q = n * (size_t)(m->heads * m->head_size), kv = n * (size_t)(m->kv_heads * m->head_size),
        rows = n * (size_t)m->heads, i;
    size_t floats = 4 * q + 4 * kv + 2 * rows, bytes;
    float *memory = (float *)b->cpu->alloc(b->self, floats * sizeof(float));
    double pairs = 0.5 * (double)n * ((double)b->set.length + 1) * (double)(m->heads * m->head_size);
    het_attention_args a;
    int which, status = 0;
    memset(&a, 0, sizeof a);
    a.view = &b->view, a.compute = (het_dtype)b->set.dtype, a.heads = m->heads, a.kv_heads = m->kv_heads, a.head_size = m->head_size, a.causal = 1;
    a.scale = (float)(1 / sqrt((double)m->head_size));
    a.workspace_size = b->cpu->workspace_bytes(b->self, HET_OP_ATTENTION_FORWARD, &a);
    bytes = b->cpu->workspace_bytes(b->self, HET_OP_ATTENTION_BACKWARD, &a);
    a.workspace_size = bytes > a.workspace_size ? bytes : a.workspace_size;
    a.workspace = b->cpu->alloc(b->self, a.workspace_size + 64);
    if (memory == NULL || a.workspace == NULL) return fail(FAILED, "out of memory");
    for (i = 0; i < floats; i++) memory[i] = (float)(i * 2654435761u % 1021) / 1021.0f - 0.5f;
    a.q = memory, a.o = memory + q, a.d_o = memory + 2 * q, a.dq = memory + 3 * q;
    a.k = memory + 4 * q, a.v = a.k + kv, a.dk = memory + 4 * q + 2 * kv, a.dv = a.dk + kv, a.maximum = a.dv + kv, a.sum = a.maximum + rows;
    for (which = 0; which < 2 && status == 0; which++) {
        int64_t r;
        for (r = -1; r < b->set.repetitions && status == 0; r++) {
            double start = seconds_now();
            het_result result = which == 0 ? b->cpu->attention_forward(b->self, NULL, &a) : b->cpu->attention_backward(b->self, NULL, &a);
            if (result != HET_OK) status = fail(FAILED, "attention: %s", b->cpu->last_error(b->self));
            if (r >= 0) b->seconds[r] = seconds_now() - start;
        }
        if (status != 0) break;
        print_head(b, which == 0 ? "attention_forward" : "attention_backward");
        printf(",\"sequences\":%lld,\"length\":%lld,\"heads\":%lld,\"kv_heads\":%lld,\"head_size\":%lld", (long long)b->set.sequences,
               (long long)b->set.length, (long long)m->heads, (long long)m->kv_heads, (long long)m->head_size);
        print_spread(spread_of(b), (which == 0 ? 4 : 10) * pairs); /* products over the causal half: 2 forward, 5 backward */
    }
    b->cpu->free(b->self, a.workspace, a.workspace_size + 64);
    b->cpu->free(b->self, memory, floats * sizeof(float));
    return status;
}

/* Forward, backward and AdamW of --model on random tokens; the first two steps are not counted. */
static int bench_step(bench *b) {
    int64_t n = b->view.tokens, r;
    int32_t *token = (int32_t *)malloc((size_t)(n + 1) * sizeof(int32_t));
    het_device_desc device;
    het_desc desc;
    het_batch batch;
    het_error error = { HET_OK, "" };
    het_memory memory;
    het_ctx *ctx = NULL;
    het_step_info info;
    het_result result;
    spread s;
    if (token == NULL) return fail(FAILED, "out of memory");
    for (r = 0; r <= n; r++) token[r] = (int32_t)((uint64_t)r * 2654435761u % (uint64_t)b->model.vocab);
    memset(&device, 0, sizeof device);
    memset(&desc, 0, sizeof desc);
    memset(&batch, 0, sizeof batch);
    device.threads = b->threads, device.isa = (het_isa)(b->set.isa - 1);
    desc.model = b->model, desc.devices = &device, desc.device_count = 1, desc.dtype = (het_dtype)b->set.dtype;
    desc.max_tokens = n, desc.max_sequences = b->set.sequences, desc.max_micro_batches = 1;
    batch.tokens = n, batch.sequences = b->set.sequences, batch.token = token, batch.target = token + 1, batch.sequence_start = b->bounds;
    result = het_create(&desc, &ctx, &error);
    for (r = -2; result == HET_OK && r < b->set.repetitions; r++) {
        double start = seconds_now();
        result = het_step(ctx, &batch, 1, &info);
        if (r >= 0) b->seconds[r] = seconds_now() - start;
    }
    if (result != HET_OK) {
        int status = fail(status_of(result), "%s", ctx != NULL ? het_last_error(ctx) : error.text);
        het_destroy(ctx);
        free(token);
        return status;
    }
    het_get_memory(ctx, 0, &memory);
    s = spread_of(b);
    print_head(b, "step");
    printf(",\"model\":\"%s\",\"parameters\":%lld,\"sequences\":%lld,\"length\":%lld,\"memory_bytes\":%llu,\"tokens_per_s\":%.1f", b->set.model,
           (long long)memory.parameters,
           (long long)b->set.sequences, (long long)b->set.length, (unsigned long long)memory.device, (double)n / s.median);
    print_spread(s, (double)n * (6.0 * (double)memory.parameters + 6.0 * (double)(b->model.layers * b->model.width * b->set.length)));
    het_destroy(ctx);
    free(token);
    return 0;
}

static int prepare(bench *b) {
    int64_t i, s = b->set.sequences, t = b->set.length;
    b->bounds = (int64_t *)malloc((size_t)(2 * s + 2 + s * (t / 512 + 1)) * sizeof(int64_t));
    b->seconds = (double *)malloc((size_t)b->set.repetitions * sizeof(double));
    if (b->bounds == NULL || b->seconds == NULL) return fail(FAILED, "out of memory");
    for (i = 0; i <= s; i++) b->bounds[i] = i * t;
    if (het_granules(b->bounds, s, 0, b->bounds + s + 1, s * (t / 512 + 2) + 1, &b->view.granules) != HET_OK) return fail(FAILED, "het_granules");
    b->view.tokens = b->view.row_end = s * t, b->view.sequences = s, b->view.granule_end = b->view.granules;
    b->view.sequence_start = b->view.host_sequence_start = b->bounds;
    b->view.granule_start = b->view.host_granule_start = b->bounds + s + 1;
    b->grid = 1.5 * ldexp(1, 52 - 40); /* steps of 2^-40 */
    b->gradient.exact = 1, b->gradient.grid = &b->grid, b->gradient.maximum = &b->maximum;
    return 0;
}

static int run(bench *b, int argc, char **argv) {
    het_allocator allocator = { simple_alloc, simple_free, NULL };
    het_parallel parallel;
    het_device_config config;
    settings *s = &b->set;
    int status;
    s->model = "gpt2:124m", s->sequences = 4, s->length = 256, s->threads = processors(), s->repetitions = 7;
    s->dtype = HET_F32, s->isa = 1, s->what = ALL;
    status = options_parse("build/het_bench [options]\n\nMeasures the CPU device; prints JSON lines.", options, OPTIONS, s, b->given, argc, argv);
    if (status >= 0) return status;
    b->threads = (int)s->threads;
    if ((status = model_from_spec("--model", s->model, &b->model)) != 0 || (status = prepare(b)) != 0) return status;
    memset(&config, 0, sizeof config);
    parallel.run = simple_run, parallel.user = &b->threads;
    config.allocator = &allocator, config.parallel = &parallel, config.threads = b->threads, config.isa = (het_isa)(s->isa - 1);
    b->cpu = het_cpu_device();
    if (b->cpu->create(&config, &b->self) != HET_OK) return fail(BAD_INPUT, "--isa: this machine or build does not have it");
    if (s->what == ALL || s->what == PEAK) status = bench_linear(b, "in_cache", 768, 768, 768, 1);
    if (status == 0 && (s->what == ALL || s->what == PRODUCTS)) status = bench_products(b);
    if (status == 0 && (s->what == ALL || s->what == ATTENTION)) status = bench_attention(b);
    if (status == 0 && (s->what == ALL || s->what == STEP)) status = bench_step(b);
    return status;
}

int main(int argc, char **argv) {
    bench b;
    int status;
    memset(&b, 0, sizeof b);
    status = run(&b, argc, argv);
    if (b.self != NULL) b.cpu->destroy(b.self);
    free(b.bounds);
    free(b.seconds);
    return status;
}
