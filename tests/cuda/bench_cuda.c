/* bench_cuda: how fast the CUDA device's ops and whole training steps are. One JSON line a measurement: name, milliseconds of a call (median of
   five rounds), work a second and its unit; whole steps with the device memory they take; a product of gemm with how many algorithms cuBLASLt's
   heuristic has found, up to 16, and milliseconds of its first and of the fastest. tests/cuda/torch_cuda.py measures the same beside it.
     build/bench_cuda count MODEL SEQUENCES LENGTH STEPS     what the ops of these steps take, bf16 and fast sums
     build/bench_cuda streams MODEL SEQUENCES LENGTH STEPS   the same where streams are bf16 too
     build/bench_cuda ablate MODEL SEQUENCES LENGTH STEPS    steps with one thing at a time in another form, and what modules take
     build/bench_cuda sweep MODEL SEQUENCES LENGTH STEPS     steps of SEQUENCES in 1 to 8 micro-batches, without and with recomputation
     build/bench_cuda beside MODEL SEQUENCES LENGTH STEPS    steps with another context on the card, of a quarter of the sequences, that goes behind
     build/bench_cuda lengths MODEL SEQUENCES LENGTH ROUNDS  device memory over steps of all lengths up to LENGTH
     build/bench_cuda [all|ops|attention|gemm|steps] [--small] [--fast] [--steps N] [--model NAME]
   --small: shapes that a program without a GPU gets through. --fast: tf32 for f32, algorithms chosen by timing. --model: only steps of that name,
   gpt2:124m_streams, say. */
#define PROGRAM "bench_cuda"
#define HETRAIN_IMPLEMENTATION
#include "../../programs/common.h"
#define HETRAIN_CUDA_DECLARATIONS
#include "hetrain_cuda.cu"

enum { ROUNDS = 5, DRAWERS = 8 }; /* threads that draw the first weights */

typedef struct bench {
    const het_device_iface *iface;
    const het_device_config *config;
    void *self;
    het_queue *queue;
    het_event *event;
    int small, fast, atomic;
    int probes;     /* products say what algorithms there are */
    const char *model; /* NULL: all */
    int64_t steps;
    int failed;     /* this measurement; `failures` counts them */
    int failures;
    double seconds; /* that a round lasts, at least */
} bench;

static het_op bench_op(het_op_kind kind, const void *args, size_t size) {
    het_op op;
    memset(&op, 0, sizeof op);
    op.kind = kind;
    memcpy(&op.u, args, size);
    return op;
}
#define OP(kind, args) bench_op(HET_OP_##kind, (args), sizeof *(args))

static het_result bench_run(bench *b, het_op op) { return b->iface->run(b->self, b->queue, &op); }
static size_t bench_workspace(bench *b, het_op op) { return b->iface->workspace(b->self, &op); }

static het_result bench_move(bench *b, het_op_kind kind, void *to, const void *from, size_t size) {
    const het_copy_args a = { to, from, size, 1, 0, 0 };
    return bench_run(b, bench_op(kind, &a, sizeof a));
}

static int bench_check(bench *b, het_result result, const char *what) {
    if (result == HET_OK) return 1;
    if (!b->failed) (void)fail(FAILED, "%s: %s", what, b->iface->last_error(b->self));
    b->failed = 1;
    return 0;
}

static int bench_wait(bench *b) {
    return bench_check(b, b->iface->queues->event_record(b->self, b->queue, b->event), "event_record") &&
           bench_check(b, b->iface->queues->event_sync(b->self, b->event, 300.0), "event_sync");
}

static int bench_open(bench *b) {
    b->self = NULL, b->queue = NULL, b->event = NULL;
    return b->iface->create(b->config, &b->self) == HET_OK &&
           bench_check(b, b->iface->queues->create(b->self, &b->queue), "queue_create") &&
           bench_check(b, b->iface->queues->event_create(b->self, &b->event), "event_create");
}

static void bench_close(bench *b) {
    if (b->event != NULL) b->iface->queues->event_destroy(b->self, b->event);
    if (b->queue != NULL) b->iface->queues->destroy(b->self, b->queue);
    if (b->self != NULL) b->iface->destroy(b->self);
    b->self = NULL;
}

/* Another device, with options beside those of --fast. */
static void bench_with(bench *b, int32_t options) {
    bench_close(b);
    b->iface = het_cuda_device_with(options | (b->fast ? HET_CUDA_TF32 | HET_CUDA_TIMED : 0));
    if (!bench_open(b)) exit(fail(FAILED, "no device: %s", b->config->error->text));
}

/* Before each measurement: one that failed has ended its device, the next gets another. Where none is to be had the program ends. */
static void bench_next(bench *b) {
    if (!b->failed) return;
    bench_close(b);
    b->failures++, b->failed = 0;
    if (!bench_open(b)) exit(fail(FAILED, "no device after the error: %s", b->config->error->text));
}

static double bench_round(bench *b, het_op op, int64_t calls) {
    const double start = seconds_now();
    int64_t i;
    for (i = 0; i < calls; i++)
        if (!bench_check(b, bench_run(b, op), "op")) return 0;
    return bench_wait(b) ? (seconds_now() - start) / (double)calls : 0;
}

static int compare_seconds(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of the op's product, on a device of its own that times the heuristic's candidates once. */
static void bench_print_algorithms(bench *b, het_op op) {
    bench probe = *b;
    char text[4096];
    het_device device;
    int count = 0;
    double first = 0, best = 0;
    const char *at;
    probe.iface = device.iface = het_cuda_device_with(HET_CUDA_OPS | HET_CUDA_TIMED | (b->fast ? HET_CUDA_TF32 : 0));
    if (!bench_open(&probe)) exit(fail(FAILED, "no device: %s", b->config->error->text));
    device.self = probe.self;
    op.u.linear.workspace = probe.iface->alloc(probe.self, bench_workspace(&probe, op)); /* a product with GELU begins with its linear layer */
    if (bench_check(&probe, op.u.linear.workspace == NULL ? HET_ERR_OOM : bench_run(&probe, op), "algorithms")) {
        (void)het_cuda_ops(&device, text, sizeof text);
        at = strstr(text, "\"algorithms\":");
        if (at != NULL) (void)sscanf(at, "\"algorithms\":%d,\"first\":%lf,\"best\":%lf", &count, &first, &best);
        printf(",\"algorithms\":%d,\"first_ms\":%.6g,\"best_ms\":%.6g", count, first, best);
    }
    if (op.u.linear.workspace != NULL) probe.iface->free(probe.self, op.u.linear.workspace, 0);
    bench_close(&probe);
    b->failed = probe.failed;
}

/* work: what the op does, in units, printed as work a second; bytes: of device memory, 0: not said. */
static void bench_measure_in(bench *b, const char *name, het_op op, double work, const char *unit, size_t bytes) {
    double round[ROUNDS], once;
    int64_t calls;
    int i;
    if (b->failed) return;
    (void)bench_round(b, op, 1);
    once = bench_round(b, op, 2);
    calls = once > 0 ? (int64_t)(b->seconds / once) + 1 : 1;
    for (i = 0; i < ROUNDS; i++) round[i] = bench_round(b, op, calls);
    qsort(round, ROUNDS, sizeof *round, compare_seconds);
    if (b->failed) return;
    printf("{\"name\":\"%s\",\"ms\":%.6g,\"rate\":%.6g,\"unit\":\"%s\"", name, 1e3 * round[ROUNDS / 2], work / round[ROUNDS / 2], unit);
    if (bytes > 0) printf(",\"bytes\":%llu", (unsigned long long)bytes);
    if (b->probes && strcmp(unit, "TFLOP/s") == 0) bench_print_algorithms(b, op);
    printf("}\n");
    fflush(stdout);
}

static void bench_measure(bench *b, const char *name, het_op op, double work, const char *unit) {
    bench_measure_in(b, name, op, work, unit, 0);
}

/* ---- device memory ---- */

static float *bench_floats(bench *b, int64_t count, float scale) {
    enum { PIECE = 1 << 20 };
    float *device = (float *)b->iface->alloc(b->self, (size_t)count * sizeof *device), *host;
    uint64_t state = 88172645463325252u;
    int64_t i, n;
    if (device == NULL) { (void)bench_check(b, HET_ERR_OOM, "alloc"); return NULL; }
    host = (float *)malloc(PIECE * sizeof *host);
    if (host == NULL) { (void)bench_check(b, HET_ERR_OOM, "alloc"); return NULL; }
    for (i = 0; i < PIECE; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        host[i] = scale * ((float)(state >> 40) / 8388608.0f - 1.0f);
    }
    for (i = 0; i < count; i += n) {
        n = count - i < PIECE ? count - i : PIECE;
        (void)bench_check(b, bench_move(b, HET_OP_COPY_IN, device + i, host, (size_t)n * sizeof *host), "copy_in");
    }
    (void)bench_wait(b);
    free(host);
    return device;
}

static void *bench_bytes(bench *b, const void *from, size_t size) {
    void *device = b->iface->alloc(b->self, size);
    if (device == NULL) { (void)bench_check(b, HET_ERR_OOM, "alloc"); return NULL; }
    if (from != NULL) (void)bench_check(b, bench_move(b, HET_OP_COPY_IN, device, from, size), "copy_in");
    else (void)bench_check(b, bench_move(b, HET_OP_CLEAR, device, NULL, size), "clear");
    (void)bench_wait(b);
    return device;
}

static void bench_free(bench *b, void *pointer) {
    if (pointer != NULL) b->iface->free(b->self, pointer, 0);
}

/* ---- a view of equal sequences, a granule each 512 tokens ---- */

typedef struct bench_rows {
    het_view view;
    int32_t *token, *position, *sequence_of;
    float *weight;
    int64_t *sequence_start, *granule_start, *sample_id;
} bench_rows;

static void rows_start(bench *b, bench_rows *r, int64_t sequences, int64_t length) {
    const int64_t n = sequences * length, granule = length < 512 ? length : 512, granules = n / granule;
    int64_t i;
    memset(r, 0, sizeof *r);
    r->token = (int32_t *)calloc((size_t)n, 4), r->position = (int32_t *)calloc((size_t)n, 4), r->sequence_of = (int32_t *)calloc((size_t)n, 4);
    r->weight = (float *)calloc((size_t)n, 4), r->sample_id = (int64_t *)calloc((size_t)sequences, 8);
    r->sequence_start = (int64_t *)calloc((size_t)sequences + 1, 8), r->granule_start = (int64_t *)calloc((size_t)granules + 1, 8);
    for (i = 0; i < n; i++) r->token[i] = (int32_t)(i * 7919 % 50257), r->position[i] = (int32_t)(i % length),
        r->sequence_of[i] = (int32_t)(i / length);
    for (i = 0; i < n; i++) r->weight[i] = 1;
    for (i = 0; i <= sequences; i++) r->sequence_start[i] = i * length;
    for (i = 0; i <= granules; i++) r->granule_start[i] = i * granule;
    r->view.tokens = n, r->view.sequences = sequences, r->view.granules = granules;
    r->view.row_end = n, r->view.granule_end = granules;
    r->view.token = r->view.target = (const int32_t *)bench_bytes(b, r->token, (size_t)n * 4);
    r->view.position = (const int32_t *)bench_bytes(b, r->position, (size_t)n * 4);
    r->view.sequence_of = (const int32_t *)bench_bytes(b, r->sequence_of, (size_t)n * 4);
    r->view.weight = (const float *)bench_bytes(b, r->weight, (size_t)n * 4);
    r->view.sample_id = (const int64_t *)bench_bytes(b, r->sample_id, (size_t)sequences * 8);
    r->view.sequence_start = (const int64_t *)bench_bytes(b, r->sequence_start, ((size_t)sequences + 1) * 8);
    r->view.granule_start = (const int64_t *)bench_bytes(b, r->granule_start, ((size_t)granules + 1) * 8);
    r->view.host_sequence_start = r->sequence_start, r->view.host_granule_start = r->granule_start;
}

static void rows_end(bench *b, bench_rows *r) {
    const void *device[7];
    int i;
    device[0] = r->view.token, device[1] = r->view.position, device[2] = r->view.sequence_of, device[3] = r->view.weight;
    device[4] = r->view.sample_id, device[5] = r->view.sequence_start, device[6] = r->view.granule_start;
    for (i = 0; i < 7; i++) {
        void *pointer;
        memcpy(&pointer, &device[i], sizeof pointer);
        bench_free(b, pointer);
    }
    free(r->token), free(r->position), free(r->sequence_of), free(r->weight), free(r->sequence_start), free(r->granule_start), free(r->sample_id);
}

/* ---- ops ---- */

static void bench_copy(bench *b) {
    het_copy_args a;
    memset(&a, 0, sizeof a);
    bench_next(b);
    a.size = b->small ? 1 << 16 : (size_t)1 << 30;
    void *from = bench_bytes(b, NULL, a.size);
    a.from = from, a.to = bench_bytes(b, NULL, a.size);
    bench_measure(b, "copy", OP(COPY, &a), 2e-9 * (double)a.size, "GB/s");
    bench_free(b, from), bench_free(b, a.to);
}

/* The products of `a` with GELU behind them: forward into u, and dx times its derivative at x. */
static void bench_gelu(bench *b, const het_linear_args *a, float *u, double work, const char *what, const char *type) {
    het_linear_activation_args g;
    char name[96];
    memset(&g, 0, sizeof g);
    g.linear = *a, g.activation.kind = HET_GELU_TANH;
    g.activation.count = a->rows * a->part[0].out, g.activation.a = a->part[0].y, g.activation.y = u;
    snprintf(name, sizeof name, "linear_gelu_forward_%s_%s", what, type);
    bench_measure(b, name, OP(LINEAR_ACTIVATION_FORWARD, &g), work, "TFLOP/s");
    g.activation.count = a->rows * a->in, g.activation.a = a->x, g.activation.dy = g.activation.da = a->dx;
    snprintf(name, sizeof name, "linear_gelu_backward_%s_%s", what, type);
    bench_measure(b, name, OP(LINEAR_ACTIVATION_BACKWARD, &g), work, "TFLOP/s");
}

static void bench_linear(bench *b, het_dtype dtype, int64_t rows, int64_t in, int64_t out, const char *what) {
    const double work = 2e-12 * (double)rows * (double)in * (double)out;
    const char *type = dtype == HET_BF16 ? "bf16" : b->fast ? "tf32" : "f32";
    bench_rows r;
    het_linear_args a;
    het_gradient dw;
    char name[96];
    size_t bytes[3], most = 0;
    int i;
    bench_next(b);
    rows_start(b, &r, rows / 64, 64);
    memset(&a, 0, sizeof a), memset(&dw, 0, sizeof dw);
    dw.beta = 1;
    a.view = &r.view, a.compute = dtype, a.rows = rows, a.in = in, a.parts = 1, a.part[0].out = out;
    dw.sum = bench_floats(b, in * out, 1);
    float *x = bench_floats(b, rows * in, 1), *w = bench_floats(b, in * out, 0.02f), *y = bench_floats(b, rows * out, 1),
        *bias = bench_floats(b, out, 1);
    float *dx = bench_floats(b, rows * in, 1);
    a.x = x, a.dx = dx, a.part[0].w = w, a.part[0].y = y, a.part[0].dy = y, a.part[0].bias = bias, a.part[0].dw = &dw;
    bytes[0] = bench_workspace(b, OP(LINEAR_FORWARD, &a));
    bytes[1] = bench_workspace(b, OP(LINEAR_BACKWARD_INPUT, &a));
    bytes[2] = bench_workspace(b, OP(LINEAR_BACKWARD_WEIGHT, &a));
    for (i = 0; i < 3; i++) most = bytes[i] > most ? bytes[i] : most;
    a.workspace = bench_bytes(b, NULL, most);
    snprintf(name, sizeof name, "linear_forward_%s_%s", what, type);
    bench_measure(b, name, OP(LINEAR_FORWARD, &a), work, "TFLOP/s");
    snprintf(name, sizeof name, "linear_backward_input_%s_%s", what, type);
    bench_measure(b, name, OP(LINEAR_BACKWARD_INPUT, &a), work, "TFLOP/s");
    snprintf(name, sizeof name, "linear_backward_weight_%s_%s", what, type);
    bench_measure(b, name, OP(LINEAR_BACKWARD_WEIGHT, &a), work, "TFLOP/s");
    float *u = bench_floats(b, rows * out, 1);
    bench_gelu(b, &a, u, work, what, type);
    bench_free(b, u);
    bench_free(b, x), bench_free(b, w), bench_free(b, y), bench_free(b, bias), bench_free(b, dx), bench_free(b, dw.sum),
        bench_free(b, a.workspace);
    rows_end(b, &r);
}

/* A product with operands in bf16: results as floats or bf16, with nothing, a bias, GELU or its derivative; as floats also the gradient of a matrix,
   without and with sums for the bias, and these sums alone. The weight is floats, which are rounded in the op: with many rows that does not
   count. */
static void bench_product(bench *b, int64_t rows, int64_t in, int64_t out) {
    enum { DGELU = 3, WEIGHT = 4, SUMS = 6, KINDS = 7 };
    static const char *const epilogues[KINDS] = { "none", "bias", "gelu", "dgelu", "weight", "both", "sums" };
    const double work = 2e-12 * (double)rows * (double)in * (double)out;
    const int64_t length = rows < 1024 ? rows : 1024;
    het_gradient dw, dbias;
    bench_rows r;
    char name[96];
    int type, i;
    bench_next(b);
    rows_start(b, &r, rows / length, length);
    memset(&dw, 0, sizeof dw);
    dw.beta = 1;
    dbias = dw;
    float *x = bench_floats(b, rows * in / 2, 1), *y = bench_floats(b, rows * out, 1), *u = bench_floats(b, rows * out, 1),
        *w = bench_floats(b, in * out, 0.02f), *bias = bench_floats(b, out, 1), *dx = bench_floats(b, rows * in, 1),
        *aux = bench_floats(b, in * out, 1);
    dw.sum = aux, dbias.sum = bias;
    for (type = 0; type < 2; type++)
        for (i = 0; i < (type ? WEIGHT : KINDS) && !b->failed; i++) {
            het_linear_activation_args a;
            het_op op;
            memset(&a, 0, sizeof a);
            a.linear.view = &r.view, a.linear.compute = HET_BF16, a.linear.rows = rows, a.linear.in = in, a.linear.parts = 1;
            a.linear.x = x, a.linear.dx = dx, a.linear.part[0].out = out, a.linear.part[0].w = w, a.linear.part[0].y = y;
            a.linear.part[0].dy = i < WEIGHT ? x : y, a.linear.part[0].dw = i == SUMS ? NULL : &dw;
            a.linear.part[0].bias = i == 1 || i == 2 ? bias : NULL, a.linear.part[0].dbias = i > WEIGHT ? &dbias : NULL;
            a.activation.kind = HET_GELU_TANH, a.activation.count = rows * out, a.activation.a = y, a.activation.y = u;
            if (i == DGELU) { /* the other way round: dy [rows][in], dx [rows][out] */
                a.linear.in = out, a.linear.part[0].out = in, a.linear.dx = u;
                a.activation.dy = a.activation.da = u;
            }
            op = i < DGELU ? OP(LINEAR_FORWARD, &a.linear) : i == DGELU ? OP(LINEAR_BACKWARD_INPUT, &a.linear) :
                 OP(LINEAR_BACKWARD_WEIGHT, &a.linear);
            op.bf16 = HET_BF16_X | HET_BF16_DY | (type ? HET_BF16_Y | HET_BF16_DX : 0);
            a.linear.workspace = bench_bytes(b, NULL, bench_workspace(b, op));
            op.u.linear_activation = a; /* which begins with its linear layer */
            if (i == 2) op.kind = HET_OP_LINEAR_ACTIVATION_FORWARD;
            if (i == DGELU) op.kind = HET_OP_LINEAR_ACTIVATION_BACKWARD;
            snprintf(name, sizeof name, "gemm_%dx%d_%s_%s", (int)in, (int)out, type ? "bf16" : "f32", epilogues[i]);
            if (i == SUMS) bench_measure(b, name, op, 2e-9 * (double)rows * (double)out, "GB/s");
            else bench_measure(b, name, op, work, "TFLOP/s");
            bench_free(b, a.linear.workspace);
        }
    bench_free(b, x), bench_free(b, y), bench_free(b, u), bench_free(b, w), bench_free(b, bias), bench_free(b, dx), bench_free(b, aux);
    rows_end(b, &r);
}

/* The head's products: logits of bf16, whose rows begin at 256 bytes; the matrix is there in bf16. */
static void bench_head(bench *b, int64_t rows, int64_t in, int64_t out) {
    static const het_op_kind kinds[] = { HET_OP_LINEAR_FORWARD, HET_OP_LINEAR_BACKWARD_INPUT, HET_OP_LINEAR_BACKWARD_WEIGHT };
    static const char *const names[] = { "forward", "input", "weight" };
    const int64_t pitch = (out + 127) / 128 * 128;
    het_linear_args a;
    het_gradient dw;
    bench_rows r;
    char name[96];
    int i;
    bench_next(b);
    rows_start(b, &r, 1, rows);
    memset(&a, 0, sizeof a), memset(&dw, 0, sizeof dw);
    float *x = bench_floats(b, rows * in / 2, 1), *w = bench_floats(b, out * in, 0.02f), *half = bench_floats(b, (out + 8) * in / 2, 1),
        *logits = (float *)bench_bytes(b, NULL, (size_t)(rows * pitch) * 2), *dx = bench_floats(b, rows * in, 1);
    dw.sum = bench_floats(b, out * in, 1), dw.beta = 1;
    a.view = &r.view, a.compute = HET_BF16, a.rows = rows, a.in = in, a.parts = 1, a.x = x, a.dx = dx;
    a.part[0].out = out, a.part[0].pitch = pitch, a.part[0].w = w, a.part[0].w_bf16 = (const uint16_t *)(const void *)half;
    a.part[0].y = logits, a.part[0].dy = logits, a.part[0].dw = &dw;
    for (i = 0; i < 3 && !b->failed; i++) {
        het_op op = bench_op(kinds[i], &a, sizeof a);
        op.bf16 = HET_BF16_X | HET_BF16_Y | HET_BF16_DX | HET_BF16_DY;
        op.u.linear.workspace = bench_bytes(b, NULL, bench_workspace(b, op));
        snprintf(name, sizeof name, "gemm_head_%dx%d_%s", (int)in, (int)out, names[i]);
        bench_measure(b, name, op, 2e-12 * (double)rows * (double)in * (double)out, "TFLOP/s");
        bench_free(b, op.u.linear.workspace);
    }
    bench_free(b, x), bench_free(b, w), bench_free(b, half), bench_free(b, logits), bench_free(b, dx), bench_free(b, dw.sum);
    rows_end(b, &r);
}

static void bench_gemm(bench *b) {
    static const int64_t shapes[][2] = { { 768, 768 }, { 768, 2304 }, { 768, 3072 }, { 3072, 768 }, { 1600, 1600 }, { 1600, 6400 },
                                         { 6400, 1600 } };
    size_t i;
    b->probes = 1;
    if (b->small) {
        bench_product(b, 64, 32, 48);
        bench_head(b, 64, 32, 41);
        return;
    }
    bench_product(b, 32768, 8192, 8192); /* the peak */
    bench_head(b, 8192, 768, 50257);
    bench_head(b, 8192, 768, 50264);
    for (i = 0; i < sizeof shapes / sizeof *shapes; i++) bench_product(b, 16384, shapes[i][0], shapes[i][1]);
}

/* The causal half is counted: 4 T^2 E / 2 a head forward, 2.5 times that backward. atomic: that alone. */
static void bench_attention(bench *b, het_dtype dtype, int64_t sequences, int64_t length, int64_t heads, int64_t size) {
    const double work = 2e-12 * (double)sequences * (double)length * (double)length * (double)heads * (double)size;
    const int64_t n = sequences * length, width = heads * size;
    const char *type = dtype == HET_BF16 ? "" : b->fast ? "_tf32" : "_f32";
    bench_rows r;
    het_attention_args a;
    char name[96];
    int i;
    size_t forward, backward;
    bench_next(b);
    rows_start(b, &r, sequences, length);
    memset(&a, 0, sizeof a);
    a.view = &r.view, a.compute = dtype, a.heads = a.kv_heads = heads, a.head_size = size, a.causal = 1,
        a.scale = 1.0f / (float)sqrt((double)size);
    float *q = bench_floats(b, n * width, 1), *k = bench_floats(b, n * width, 1), *v = bench_floats(b, n * width, 1),
        *o = bench_floats(b, n * width, 1);
    float *dq = bench_floats(b, n * width, 1), *dk = bench_floats(b, n * width, 1), *dv = bench_floats(b, n * width, 1),
        *d_o = bench_floats(b, n * width, 1);
    a.q = q, a.k = k, a.v = v, a.o = o, a.dq = dq, a.dk = dk, a.dv = dv, a.d_o = d_o;
    a.maximum = bench_floats(b, n * heads, 1), a.sum = bench_floats(b, n * heads, 1);
    forward = bench_workspace(b, OP(ATTENTION_FORWARD, &a)),
        backward = bench_workspace(b, OP(ATTENTION_BACKWARD, &a));
    a.workspace_size = forward > backward ? forward : backward;
    a.workspace = bench_bytes(b, NULL, a.workspace_size + 64);
    for (i = b->atomic; i < 2; i++) { /* bf16: operands that are bf16 already, as in a step; the arrays are larger than needed */
        het_op op = i ? OP(ATTENTION_BACKWARD, &a) : OP(ATTENTION_FORWARD, &a);
        if (dtype == HET_BF16) op.bf16 = HET_BF16_X | HET_BF16_Y | HET_BF16_DX | HET_BF16_DY;
        snprintf(name, sizeof name, "attention_%s_head%d_T%d%s%s", i ? "backward" : "forward", (int)size, (int)length, type,
                 b->atomic ? "_atomic" : "");
        bench_measure(b, name, op, (i ? 2.5 : 1.0) * work, "TFLOP/s");
    }
    bench_free(b, q), bench_free(b, k), bench_free(b, v), bench_free(b, o), bench_free(b, dq), bench_free(b, dk), bench_free(b, dv),
        bench_free(b, d_o);
    bench_free(b, a.maximum), bench_free(b, a.sum), bench_free(b, a.workspace);
    rows_end(b, &r);
}

static void bench_norm(bench *b, int64_t rows, int64_t width) {
    bench_rows r;
    het_norm_args a;
    het_gradient dgain, dbias;
    bench_next(b);
    rows_start(b, &r, rows / 64, 64);
    memset(&a, 0, sizeof a), memset(&dgain, 0, sizeof dgain), memset(&dbias, 0, sizeof dbias);
    a.view = &r.view, a.kind = HET_LAYERNORM, a.rows = rows, a.width = width, a.rows_per_token = 1, a.epsilon = 1e-5f;
    float *x = bench_floats(b, rows * width, 1), *dy = bench_floats(b, rows * width, 1), *gain = bench_floats(b, width, 1);
    a.x = x, a.dy = dy, a.gain = gain, a.dx = bench_floats(b, rows * width, 1), a.mean = bench_floats(b, rows, 0.01f),
        a.rstd = bench_floats(b, rows, 1);
    dgain.sum = bench_floats(b, width, 1), dbias.sum = bench_floats(b, width, 1), a.dgain = &dgain, a.dbias = &dbias;
    a.workspace = bench_bytes(b, NULL, bench_workspace(b, OP(NORM_BACKWARD, &a)) + 64);
    bench_measure(b, "norm_backward", OP(NORM_BACKWARD, &a), 12e-9 * (double)rows * (double)width, "GB/s"); /* x, dy read, dx written once */
    bench_free(b, x), bench_free(b, dy), bench_free(b, gain), bench_free(b, a.dx), bench_free(b, a.mean), bench_free(b, a.rstd);
    bench_free(b, dgain.sum), bench_free(b, dbias.sum), bench_free(b, a.workspace);
    rows_end(b, &r);
}

static void bench_loss(bench *b, int64_t rows, int64_t vocab) {
    bench_rows r;
    het_cross_entropy_args a;
    het_op op;
    het_step_scalars scalars;
    bench_next(b);
    rows_start(b, &r, rows / 64, 64);
    memset(&a, 0, sizeof a), memset(&scalars, 0, sizeof scalars);
    scalars.inverse_weight = 1.0f / (float)rows;
    void *device_scalars = bench_bytes(b, &scalars, sizeof scalars);
    int32_t *target = (int32_t *)calloc((size_t)rows, sizeof *target);
    void *device_target = bench_bytes(b, target, (size_t)rows * sizeof *target);
    a.scalars = (const het_step_scalars *)device_scalars, a.rows = rows, a.vocab = vocab, a.logits = bench_floats(b, rows * vocab, 1);
    a.target = (const int32_t *)device_target, a.weight = r.view.weight, a.gradient = 1, a.loss = (het_sum *)bench_bytes(b, NULL, sizeof *a.loss);
    a.workspace = bench_bytes(b, NULL, bench_workspace(b, OP(CROSS_ENTROPY, &a)) + 64);
    op = OP(CROSS_ENTROPY, &a);
    bench_measure_in(b, "cross_entropy", op, 8e-9 * (double)rows * (double)vocab, "GB/s",
        (size_t)(rows * vocab) * sizeof *a.logits + bench_workspace(b, OP(CROSS_ENTROPY, &a)));
    bench_free(b, device_scalars), bench_free(b, device_target), bench_free(b, a.logits), bench_free(b, a.loss), bench_free(b, a.workspace);
    free(target);
    rows_end(b, &r);
}

static void bench_adamw(bench *b, int64_t count) {
    het_adamw_args a;
    het_gradient g;
    het_step_scalars scalars;
    bench_next(b);
    memset(&a, 0, sizeof a), memset(&g, 0, sizeof g), memset(&scalars, 0, sizeof scalars);
    scalars.learning_rate = 1e-4f, scalars.bias_correction1 = scalars.bias_correction2 = scalars.clip_scale = 1,
        scalars.verdict = HET_VERDICT_ACCEPT;
    void *device_scalars = bench_bytes(b, &scalars, sizeof scalars);
    g.sum = bench_floats(b, count, 1);
    a.scalars = (const het_step_scalars *)device_scalars, a.gradient = &g, a.count = count;
    a.w = bench_floats(b, count, 1), a.m = bench_floats(b, count, 1), a.v = (float *)bench_bytes(b, NULL, (size_t)count * 4);
    a.beta1 = 0.9f, a.beta2 = 0.95f, a.epsilon = 1e-8f, a.decay = 0.1f;
    bench_measure(b, "adamw", OP(ADAMW, &a), 28e-9 * (double)count, "GB/s"); /* g, w, m, v read, three written */
    bench_free(b, device_scalars), bench_free(b, g.sum), bench_free(b, a.w), bench_free(b, a.m), bench_free(b, a.v);
}

/* ---- whole steps ---- */

/* A model on the card and its steps' micro-batches, all alike: what is asked for, and what model_open makes of it. */
typedef struct bench_model {
    const char *name;
    het_dtype dtype;
    het_reduce reduce;
    het_choice recompute;
    int32_t options; /* HET_CUDA_* */
    int64_t micro_batches, sequences, length;
    het_device_iface table;
    het_device_desc device;
    het_desc desc;
    het_error error;
    het_memory memory;
    het_batch *batch;
    int32_t *token;
    int64_t *start;
    het_ctx *ctx;
} bench_model;

/* The device of the model that is there, and how often its memory was asked for. */
static het_device model_device;
static int64_t model_allocations;
static het_result model_create(const het_device_config *config, void **self) {
    const het_result result = model_device.iface->create(config, self);
    if (result == HET_OK) model_device.self = *self;
    return result;
}
static void *model_alloc(void *self, size_t size) {
    model_allocations++;
    return model_device.iface->alloc(self, size);
}

/* The steps' sequences are so long from now on. */
static void model_cut(bench_model *m, int64_t length) {
    const int64_t n = m->sequences * length;
    int64_t i;
    for (i = 0; i <= m->sequences; i++) m->start[i] = i * length;
    for (i = 0; i < m->micro_batches; i++) {
        m->batch[i].tokens = n, m->batch[i].sequences = m->sequences, m->batch[i].token = m->token, m->batch[i].target = m->token + 1;
        m->batch[i].sequence_start = m->start;
    }
}

static het_result model_open(bench_model *m) {
    const int64_t n = m->sequences * m->length;
    het_result result;
    int64_t i;
    m->batch = (het_batch *)calloc((size_t)m->micro_batches, sizeof *m->batch);
    m->token = (int32_t *)calloc((size_t)n + 1, sizeof *m->token);
    m->start = (int64_t *)calloc((size_t)m->sequences + 1, sizeof *m->start);
    model_device.iface = het_cuda_device_with(m->options), model_device.self = NULL;
    m->table = *model_device.iface, m->table.create = model_create, m->table.alloc = model_alloc;
    m->device.iface = &m->table, m->device.threads = DRAWERS, m->desc.layout.devices = &m->device, m->desc.layout.device_count = 1;
    m->desc.layout.recompute = m->recompute, m->desc.dtype = m->dtype, m->desc.reduce = m->reduce;
    m->desc.limits.max_tokens = n, m->desc.limits.max_sequences = m->sequences, m->desc.limits.max_micro_batches = m->micro_batches;
    m->desc.optimizer.learning_rate = 1e-4f, m->desc.optimizer.clip = 1;
    if ((m->options & HET_CUDA_OPS) != 0) m->desc.guard.skip_bad_steps = HET_YES; /* where nothing is computed, no step has a loss */
    result = het_model_parse(m->name, &m->desc.model, &m->error);
    for (i = 0; i <= n; i++) m->token[i] = (int32_t)(i * 7919 % (m->desc.model.vocab > 0 ? m->desc.model.vocab : 1));
    model_cut(m, m->length);
    if (result == HET_OK) result = het_create(&m->desc, &m->ctx, &m->error);
    if (result == HET_OK) het_get_memory(m->ctx, 0, &m->memory);
    return result;
}

/* Ends it; result: of what was done with it, said where it failed. */
static int model_close(bench_model *m, het_result result) {
    if (result != HET_OK) (void)fail(FAILED, "steps of %s: %s", m->name, m->ctx != NULL ? het_last_error(m->ctx) : m->error.text);
    het_destroy(m->ctx);
    free(m->batch), free(m->token), free(m->start);
    m->ctx = NULL, m->batch = NULL, m->token = NULL, m->start = NULL;
    return result == HET_OK ? DONE : FAILED;
}

/* So many steps: the median of the seconds they take. */
static het_result model_steps(bench_model *m, int64_t steps, double *median) {
    double *seconds = (double *)calloc((size_t)steps, sizeof *seconds), from;
    het_result result = HET_OK;
    int64_t i;
    for (i = 0; i < steps && result == HET_OK; i++) {
        from = seconds_now();
        result = het_step(m->ctx, m->batch, m->micro_batches, NULL);
        seconds[i] = seconds_now() - from;
    }
    qsort(seconds, (size_t)steps, sizeof *seconds, compare_seconds);
    *median = seconds[(steps - 1) / 2];
    free(seconds);
    return result;
}

/* Opens, takes a step that loads kernels and is repeated for its exponents, and `steps` that are measured, which it prints and leaves in *median.
   flops: of a token, 6 for each parameter and 6 T E a layer for causal attention over T tokens, as train counts them. */
static het_result model_measure(bench_model *m, const char *name, int64_t steps, double *median) {
    het_result result = model_open(m);
    double tokens;
    if (result == HET_OK) result = model_steps(m, 1, median);
    if (result == HET_OK) result = model_steps(m, steps, median);
    if (result != HET_OK) return result;
    tokens = (double)(m->micro_batches * m->sequences * m->length);
    printf("{\"name\":\"%s\",\"ms\":%.6g,\"rate\":%.6g,\"unit\":\"tokens/s\",\"bytes\":%llu,\"flops\":%.9g}\n", name, 1e3 * *median,
           tokens / *median, (unsigned long long)m->memory.device,
           6.0 * (double)(m->memory.parameters + m->desc.model.layers * m->desc.model.width * m->length));
    fflush(stdout);
    return HET_OK;
}

enum { ATOMIC = 1, STREAMS = 2 };

/* forms: ATOMIC, dQ by atomics; STREAMS, of bf16. what: behind the model in the name. */
static void bench_step(bench *b, const char *model, const char *what, int forms, het_dtype dtype, het_reduce reduce, int64_t micro_batches,
    int64_t sequences, int64_t length) {
    bench_model m;
    char name[120];
    double median;
    snprintf(name, sizeof name, "%s%s", model, what);
    if (b->model != NULL && strcmp(b->model, name) != 0) return;
    memset(&m, 0, sizeof m);
    m.name = model, m.dtype = dtype, m.reduce = reduce, m.micro_batches = micro_batches, m.sequences = sequences, m.length = length;
    m.options = (b->fast ? HET_CUDA_TF32 | HET_CUDA_TIMED : 0) | (forms & ATOMIC ? HET_CUDA_ATOMIC : 0);
    m.desc.streams = forms & STREAMS ? HET_BF16 : HET_F32;
    snprintf(name, sizeof name, "step_%s%s_%s_%s", model, what, dtype == HET_BF16 ? "bf16" : "f32", reduce == HET_REDUCE_FAST ? "fast" : "exact");
    if (model_close(&m, model_measure(&m, name, b->steps - 1, &median)) != DONE) b->failures++;
}

/* Deterministic, and then backward by atomics. */
static void bench_attentions(bench *b) {
    for (b->atomic = 0; b->atomic < 2; b->atomic++) {
        bench_with(b, b->atomic ? HET_CUDA_ATOMIC : 0);
        if (b->small) {
            bench_attention(b, HET_BF16, 1, 64, 2, 64);
            bench_attention(b, HET_F32, 1, 64, 2, 64);
            continue;
        }
        bench_attention(b, HET_BF16, 16, 1024, 12, 64);
        bench_attention(b, HET_BF16, 4, 4096, 12, 64);
        bench_attention(b, HET_BF16, 16, 1024, 12, 128);
        bench_attention(b, HET_BF16, 4, 4096, 12, 128);
        bench_attention(b, HET_F32, 16, 1024, 12, 64);
    }
    bench_with(b, 0);
}

static void bench_ops(bench *b) {
    const int64_t rows = b->small ? 64 : 16384;
    bench_copy(b);
    if (b->small) {
        bench_linear(b, HET_BF16, rows, 32, 48, "32x48");
        bench_linear(b, HET_F32, rows, 32, 48, "32x48");
        bench_attentions(b);
        bench_norm(b, rows, 48);
        bench_loss(b, rows, 100);
        bench_adamw(b, 4096);
        return;
    }
    bench_linear(b, HET_BF16, 8192, 8192, 8192, "8192x8192"); /* the peak */
    bench_linear(b, HET_BF16, rows, 768, 2304, "768x2304");
    bench_linear(b, HET_BF16, rows, 768, 3072, "768x3072");
    bench_linear(b, HET_BF16, rows, 3072, 768, "3072x768");
    bench_linear(b, HET_BF16, rows, 1600, 6400, "1600x6400");
    bench_linear(b, HET_F32, rows, 768, 3072, "768x3072");
    bench_attentions(b);
    bench_norm(b, 32768, 768);
    bench_loss(b, 4096, 50304);
    bench_adamw(b, INT64_C(124) << 20);
}

static void bench_steps(bench *b) {
    static const struct { const char *model, *what; int forms; het_reduce reduce; int micro_batches, sequences; } steps[] = {
        { "gpt2:124m", "", 0, HET_REDUCE_FAST, 2, 16 },
        { "gpt2:124m", "_atomic", ATOMIC, HET_REDUCE_FAST, 2, 16 },
        { "gpt2:124m", "_streams", STREAMS, HET_REDUCE_FAST, 2, 16 },
        { "gpt2:124m", "", 0, HET_REDUCE_EXACT, 2, 16 },
        { "gpt2:1558m", "", 0, HET_REDUCE_FAST, 8, 4 },
        { "gpt2:1558m", "_atomic", ATOMIC, HET_REDUCE_FAST, 8, 4 },
        { "gpt2:1558m", "_streams", STREAMS, HET_REDUCE_FAST, 8, 4 },
        { "gpt2:1558m", "_2x16", 0, HET_REDUCE_FAST, 2, 16 } }; /* the same tokens in fewer, larger micro-batches */
    size_t i;
    if (b->small) {
        bench_step(b, "gpt2:layers=1,width=16,heads=2,vocab=32,context=16", "", 0, HET_BF16, HET_REDUCE_FAST, 2, 2, 16);
        bench_step(b, "gpt2:layers=1,width=16,heads=2,vocab=32,context=16", "_streams", STREAMS, HET_BF16, HET_REDUCE_FAST, 2, 2, 16);
        bench_step(b, "gpt2:layers=1,width=16,heads=2,vocab=32,context=16", "", 0, HET_F32, HET_REDUCE_EXACT, 1, 2, 16);
        return;
    }
    for (i = 0; i < sizeof steps / sizeof *steps; i++)
        bench_step(b, steps[i].model, steps[i].what, steps[i].forms, HET_BF16, steps[i].reduce, steps[i].micro_batches, steps[i].sequences, 1024);
}

/* ---- one model, looked at ---- */

/* The device's table of ops (het_cuda_ops); the caller frees it. */
static char *model_ops(void) {
    const size_t size = het_cuda_ops(&model_device, NULL, 0) + 1;
    char *text = (char *)malloc(size);
    if (text != NULL) (void)het_cuda_ops(&model_device, text, size);
    return text;
}

/* What the ops of steps take, by op and shape: a line each. The first line says how many tokens and layers they were. */
static int bench_count(bench_model *m, int64_t steps) {
    double median;
    het_result result;
    m->options = HET_CUDA_OPS;
    result = model_open(m);
    if (result == HET_OK) result = model_steps(m, steps, &median);
    if (result == HET_OK) {
        char *text = model_ops();
        printf("{\"model\":\"%s\",\"tokens\":%lld,\"sequences\":%lld,\"steps\":%lld,\"layers\":%d,\"width\":%d,\"vocab\":%d}\n%s", m->name,
               (long long)m->start[m->sequences], (long long)m->sequences, (long long)steps, (int)m->desc.model.layers, (int)m->desc.model.width,
               (int)m->desc.model.vocab, text != NULL ? text : "");
        free(text);
    }
    return model_close(m, result);
}

/* ---- what a step's time goes to ---- */

enum { ATTENTION, PRODUCTS, HEAD, NORMS, UPDATE, COPIES, OTHER, MODULES };

/* The head's products are those that are as wide as the vocabulary. */
static int module_of(const char *op, int64_t out, int64_t vocab) {
    static const struct { const char *prefix; int module; } modules[] = {
        { "attention", ATTENTION }, { "cross_entropy", HEAD }, { "linear", PRODUCTS }, { "norm_", NORMS }, { "accumulate", UPDATE },
        { "sum_squares", UPDATE }, { "verdict", UPDATE }, { "adamw", UPDATE }, { "muon", UPDATE },
        { "round", UPDATE }, { "copy", COPIES }, { "clear", COPIES } };
    size_t i;
    for (i = 0; i < sizeof modules / sizeof *modules; i++)
        if (strncmp(op, modules[i].prefix, strlen(modules[i].prefix)) == 0)
            return modules[i].module == PRODUCTS && out == vocab ? HEAD : modules[i].module;
    return OTHER;
}

/* Calls of each line of `before` and of `after`, `steps` later; a line's place never changes. Prints a line a module and one of all: milliseconds of
   a step, each call taking the least of its op and shape, and what share that is of steps that took `eager` and `timed` seconds. */
static void print_modules(const bench_model *m, const char *before, const char *after, int64_t steps, double eager, double timed) {
    static const char *const names[MODULES] = { "attention", "products", "head", "norms", "update", "copies", "other" };
    double ms[MODULES] = { 0 }, calls[MODULES] = { 0 }, all = 0, least;
    long long was, is, out;
    char op[32];
    int i;
    for (; *after != 0; after = strchr(after, '\n') + 1) {
        was = 0;
        if (sscanf(after, "{\"op\":\"%31[^\"]\",\"bf16\":%*d,\"shape\":[%*d,%*d,%lld],\"calls\":%lld,\"ms\":%*f,\"least\":%lf",
                   op, &out, &is, &least) != 4) continue;
        if (*before != 0) {
            (void)sscanf(before, "{\"op\":\"%*[^\"]\",\"bf16\":%*d,\"shape\":[%*d,%*d,%*d],\"calls\":%lld", &was);
            before = strchr(before, '\n') + 1;
        }
        i = module_of(op, out, m->desc.model.vocab);
        calls[i] += (double)(is - was) / (double)steps, ms[i] += least * (double)(is - was) / (double)steps;
    }
    for (i = 0; i < MODULES; i++) all += ms[i];
    for (i = 0; i < MODULES; i++)
        printf("{\"name\":\"module_%s\",\"ms\":%.6g,\"calls\":%.6g,\"share\":%.4g}\n", names[i], ms[i], calls[i], ms[i] / all);
    printf("{\"name\":\"modules\",\"ms\":%.6g,\"of_eager\":%.4g,\"of_timed\":%.4g}\n", all, 1e-3 * all / eager, 1e-3 * all / timed);
}

/* Steps with one thing after the other as it is not in the base; at last one where each op is timed, and what the modules take there. */
static int bench_ablate(bench_model *m, int64_t steps) {
    static const struct { const char *name; het_dtype dtype; het_reduce reduce; het_choice recompute; int32_t options; } forms[] = {
        { "ablate_base", HET_BF16, HET_REDUCE_FAST, HET_NO, 0 }, { "ablate_f32", HET_F32, HET_REDUCE_FAST, HET_NO, 0 },
        { "ablate_exact", HET_BF16, HET_REDUCE_EXACT, HET_NO, 0 }, { "ablate_recompute", HET_BF16, HET_REDUCE_FAST, HET_YES, 0 },
        { "ablate_atomic", HET_BF16, HET_REDUCE_FAST, HET_NO, HET_CUDA_ATOMIC },
        { "ablate_eager", HET_BF16, HET_REDUCE_FAST, HET_NO, HET_CUDA_EAGER }, { "ablate_timed", HET_BF16, HET_REDUCE_FAST, HET_NO, HET_CUDA_OPS } };
    double eager = 0, median = 0;
    size_t i;
    for (i = 0; i < sizeof forms / sizeof *forms; i++) {
        bench_model one = *m;
        het_result result;
        one.dtype = forms[i].dtype, one.reduce = forms[i].reduce, one.recompute = forms[i].recompute, one.options = forms[i].options;
        result = model_measure(&one, forms[i].name, steps, &median);
        if (one.options == HET_CUDA_EAGER) eager = median;
        if (one.options == HET_CUDA_OPS && result == HET_OK) {
            char *before = model_ops(), *after;
            result = model_steps(&one, steps, &median);
            after = model_ops();
            if (before != NULL && after != NULL && result == HET_OK) print_modules(&one, before, after, steps, eager, median);
            free(before), free(after);
        }
        if (model_close(&one, result) != DONE) return FAILED;
    }
    return DONE;
}

/* A step's sequences in 1, 2, 4 and 8 micro-batches, without and with recomputation. */
static int bench_sweep(bench_model *m, int64_t steps) {
    int i;
    for (i = 0; i < 8; i++) {
        bench_model one = *m;
        char name[64];
        double median;
        one.micro_batches = INT64_C(1) << i / 2, one.sequences = m->sequences / one.micro_batches, one.recompute = i % 2 ? HET_YES : HET_NO;
        if (m->sequences < 8 || m->sequences % 8 != 0) return fail(BAD_INPUT, "sweep: a multiple of 8 sequences is wanted");
        snprintf(name, sizeof name, "sweep_%dx%d%s", (int)one.micro_batches, (int)one.sequences, i % 2 ? "_recompute" : "");
        if (model_close(&one, model_measure(&one, name, steps, &median)) != DONE) return FAILED;
    }
    return DONE;
}

/* Of the CUDA runtime; its errors are an enum. */
int cudaMemGetInfo(size_t *available, size_t *all);
int cudaDeviceGetAttribute(int *value, int attribute, int device);
enum { MULTIPROCESSORS = 16 }; /* cudaDevAttrMultiProcessorCount */

/* ---- two contexts on one card (burst parallel training, arXiv 2112.10065) ---- */

typedef struct background {
    bench_model *model;
    int stop; /* atomic */
    int64_t steps;
    double seconds;
    het_result result;
} background;

static void *background_run(void *user) {
    background *b = (background *)user;
    const double from = seconds_now();
    while (b->result == HET_OK && !__atomic_load_n(&b->stop, __ATOMIC_SEQ_CST)) {
        b->result = het_step(b->model->ctx, b->model->batch, b->model->micro_batches, NULL);
        b->steps += b->result == HET_OK;
    }
    b->seconds = seconds_now() - from;
    return NULL;
}

/* Both at once, `alone` what their steps take alone on the whole card: the first one's time, the speed of the other, in shares of that. */
static het_result print_beside(bench_model *first, bench_model *behind, const char *name, int64_t steps, const double *alone) {
    background b;
    pthread_t thread;
    double both = 0, each;
    het_result result;
    memset(&b, 0, sizeof b);
    b.model = behind;
    if (pthread_create(&thread, NULL, background_run, &b) != 0) return HET_ERR_OOM;
    result = model_steps(first, steps, &both);
    __atomic_store_n(&b.stop, 1, __ATOMIC_SEQ_CST);
    (void)pthread_join(thread, NULL);
    each = b.steps > 0 ? b.seconds / (double)b.steps : 0;
    if (result == HET_OK && b.result == HET_OK)
        printf("{\"name\":\"%s\",\"ms\":%.6g,\"of_alone\":%.4g,\"behind_steps\":%lld,\"behind_ms\":%.6g,\"behind_of_alone\":%.4g}\n",
               name, 1e3 * both, both / alone[0], (long long)b.steps, 1e3 * each, each > 0 ? alone[1] / each : 0);
    fflush(stdout);
    return result != HET_OK ? result : b.result;
}

/* The first of two contexts alone, the other alone, and both at once: with what the first one leaves of the card for the other, with some of its
   multiprocessors, and with these for nobody else. */
static int bench_beside(bench_model *m, int64_t steps) {
    static const struct { const char *name; int of, own; } forms[] = { { "beside", 0, 0 }, { "beside_16th", 16, 0 }, { "beside_8th", 8, 0 },
        { "beside_8th_own", 8, 1 }, { "beside_4th_own", 4, 1 }, { "beside_half_own", 2, 1 } };
    bench_model first = *m, behind = *m;
    double alone[2] = { 0, 0 }, part;
    int all = 0, status;
    size_t i;
    first.options = HET_CUDA_FIRST;
    behind.sequences = m->sequences / 4 > 0 ? m->sequences / 4 : 1;
    (void)cudaDeviceGetAttribute(&all, MULTIPROCESSORS, 0);
    status = model_close(&behind, model_measure(&behind, "beside_behind_alone", steps, &alone[1])) |
             model_close(&first, model_measure(&first, "beside_first_alone", steps, &alone[0]));
    for (i = 0; i < sizeof forms / sizeof *forms && status == DONE; i++) {
        const int some = forms[i].of == 0 ? 0 : all / forms[i].of < 8 ? 8 : all / forms[i].of / 8 * 8; /* groups of 8, or of what divides it */
        char name[64];
        het_result result;
        first.device.ordinal = forms[i].own ? HET_PART(0, some, all - 1) : 0;
        behind.device.ordinal = some > 0 ? HET_PART(0, 0, some - 1) : 0;
        snprintf(name, sizeof name, "%s_behind_alone", forms[i].name);
        result = model_measure(&behind, name, steps, &part);
        if (result != HET_OK) return model_close(&behind, result);
        snprintf(name, sizeof name, "%s_first_alone", forms[i].name);
        result = model_measure(&first, name, steps, &part);
        if (result == HET_OK) result = print_beside(&first, &behind, forms[i].name, steps, alone);
        status = model_close(&first, result) | model_close(&behind, HET_OK);
    }
    return status;
}

/* ---- device memory from step to step ---- */

/* After a step of the largest length, one of each length, `rounds` times: how often the device's memory was asked for since that step, and by how
   much the card's free memory has shrunk since the round before. The first round loads the kernels of short lengths. */
static int bench_lengths(bench_model *m, int64_t rounds) {
    het_result result = model_open(m);
    size_t was = 0, is = 0, all;
    int64_t round, length, allocations;
    double median;
    if (result == HET_OK) result = model_steps(m, 1, &median);
    allocations = model_allocations;
    (void)cudaMemGetInfo(&was, &all);
    for (round = 0; round < rounds && result == HET_OK; round++, was = is) {
        for (length = 1; length <= m->length && result == HET_OK; length++) {
            model_cut(m, length);
            result = model_steps(m, 1, &median);
        }
        (void)cudaMemGetInfo(&is, &all);
        printf("{\"name\":\"lengths_round_%d\",\"steps\":%lld,\"allocations\":%lld,\"less_free\":%lld}\n", (int)round + 1, (long long)m->length,
               (long long)(model_allocations - allocations), (long long)was - (long long)is);
    }
    return model_close(m, result);
}

static const struct { const char *name; int (*run)(bench_model *, int64_t); } looks[] = {
    { "count", bench_count }, { "streams", bench_count }, { "ablate", bench_ablate }, { "sweep", bench_sweep }, { "beside", bench_beside },
    { "lengths", bench_lengths } };

int main(int argc, char **argv) {
    static const het_allocator allocator = { simple_alloc, simple_free, NULL };
    het_parallel parallel = { NULL, NULL };
    het_device_config config;
    het_error error = { HET_OK, "" };
    int ops = 1, gemm = 0, steps = 1, attentions = 0, i;
    bench b;
    memset(&b, 0, sizeof b), memset(&config, 0, sizeof config);
    if (argc == 6) {
        bench_model m;
        memset(&m, 0, sizeof m);
        m.name = argv[2], m.dtype = HET_BF16, m.reduce = HET_REDUCE_FAST, m.micro_batches = 1;
        m.desc.streams = strcmp(argv[1], "streams") == 0 ? HET_BF16 : HET_F32;
        m.sequences = strtoll(argv[3], NULL, 10), m.length = strtoll(argv[4], NULL, 10);
        for (i = 0; i < (int)(sizeof looks / sizeof *looks); i++)
            if (strcmp(argv[1], looks[i].name) == 0) return looks[i].run(&m, strtoll(argv[5], NULL, 10));
    }
    b.steps = 7, b.seconds = 0.05;
    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--small") == 0) b.small = 1, b.seconds = 0, b.steps = 2;
        else if (strcmp(argv[i], "--fast") == 0) b.fast = 1;
        else if (strcmp(argv[i], "--model") == 0 && i + 1 < argc) b.model = argv[++i];
        else if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc && parse_integer(argv[i + 1], 2, 1000, &b.steps)) i++;
        else if (strcmp(argv[i], "ops") == 0) steps = 0;
        else if (strcmp(argv[i], "gemm") == 0) ops = steps = 0, gemm = 1;
        else if (strcmp(argv[i], "attention") == 0) ops = steps = 0, attentions = 1;
        else if (strcmp(argv[i], "steps") == 0) ops = 0;
        else if (strcmp(argv[i], "all") != 0)
            return fail(BAD_INPUT, "%s: expected all, ops, attention, gemm, steps, --small, --fast, --steps N or --model NAME", argv[i]);
    }
    b.iface = het_cuda_device_with(b.fast ? HET_CUDA_TF32 | HET_CUDA_TIMED : 0);
    config.allocator = &allocator, config.parallel = &parallel, config.threads = 1, config.error = &error;
    b.config = &config;
    if (!bench_open(&b)) return fail(FAILED, "%s", error.text);
    if (ops) bench_ops(&b);
    if (gemm) bench_gemm(&b);
    if (attentions) bench_attentions(&b);
    bench_next(&b);
    bench_close(&b);
    if (steps && !b.failed) bench_steps(&b);
    return b.failed || b.failures > 0 ? FAILED : DONE;
}
