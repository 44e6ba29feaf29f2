/* het_bench: prints one JSON object a line and measurement. Times are medians over --repetitions, with the fastest and slowest beside them.
     build/het_bench                         products and attention of GPT-2 124M, then its whole step, at 4 x 256 tokens
     build/het_bench --parts                 the same step op by op, each beside its floor: multiply-adds over the peak, bytes over the bandwidth
     build/het_bench --what step --model llama:tiny --sequences 8 --length 128 --threads 2
     build/het_bench --what predict --svg F  24 layouts: predicted from a profile, then measured, on devices whose ops sleep for a given time
     build/het_bench --what predict --devices cpu  the same on CPU devices: with what the machine itself does from second to second
     build/het_bench --what predict_slow     pipelines that are not alike, behind slow links: predicted, then measured
     build/het_bench --what predict_divided  teams, divided sums and weights, a keeper: predicted, then measured
     build/het_bench --what ranks            several ranks: ratios to what they are to reach, cost of an action, lists for 10,000 ranks
     build/het_bench --what team             one sequence of 4,096 tokens on a rank, and on a team with one of a third of its speed: three minutes
     build/het_bench --what plan             the planner on 8, 64 and 1,024 mixed devices, each again ten times as long: eleven minutes
     build/het_bench --what scaling          Megatron-LM's published weak scaling to 3,072 A100s, predicted
     build/het_bench --what late             virtual workers of which one is slow for a while, and hogbatch, on devices that sleep
     build/het_bench --what islands          two islands of speeds 3 and 1 behind a slow link, over the sum of both alone */
#define PROGRAM "het_bench"
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#define HETRAIN_SEARCH_IMPLEMENTATION
#define HETRAIN_OUTER_IMPLEMENTATION
#include "../../programs/common.h"
#include "hetrain_search.h"
#include "hetrain_outer.h"

typedef struct settings {
    const char *model, *svg;
    int64_t sequences, length, threads, repetitions, dtype, isa, what, parts, reduce, paced, devices, seed;
} settings;

#define RANKS_MODEL "gpt2:layers=4,width=256,heads=4,vocab=4096,context=256"
#define AT(field) offsetof(settings, field)
static const option options[] = {
    { "--what", "all|machine|products|attention|step|parts|ranks|ranks_dp|ranks_pp|ranks_unequal|"
                "ranks_overhead|ranks_lists|predict|predict_slow|predict_divided|team|plan|scaling|late|islands",
      OPTION_CHOICE, AT(what), 0, 0, "what to measure" },
    { "--parts", NULL, OPTION_FLAG, AT(parts), 0, 0, "short for --what parts" },
    { "--model", "SPEC", OPTION_TEXT, AT(model), 0, 0, "of the whole step and of the shapes; of several ranks, where not given, " RANKS_MODEL },
    { "--sequences", "B", OPTION_INTEGER, AT(sequences), 1, 1e6, "of the micro-batch" },
    { "--length", "T", OPTION_INTEGER, AT(length), 1, 1e6, "tokens a sequence; of a model of fewer, its context" },
    { "--threads", "N", OPTION_INTEGER, AT(threads), 1, 256, "by default all processors" },
    { "--repetitions", "N", OPTION_INTEGER, AT(repetitions), 1, 1000, "after one that is not counted" },
    { "--dtype", "f32|bf16", OPTION_CHOICE, AT(dtype), 0, 0, "operands of the products" },
    { "--isa", "auto|plain|avx2|avx512|avx512bf16|neon|amx", OPTION_CHOICE, AT(isa), 0, 0, "inner loops" },
    { "--reduce", "exact|fast", OPTION_CHOICE, AT(reduce), 0, 0, "sums of gradients" },
    { "--paced", NULL, OPTION_FLAG, AT(paced), 0, 0, "of --what step and attention: each repetition waits for a line of input and prints one" },
    { "--svg", "FILE", OPTION_TEXT, AT(svg), 0, 0, "of --what predict: measured against predicted" },
    { "--devices", "cpu|steady", OPTION_CHOICE, AT(devices), 0, 0,
      "of --what predict, predict_slow, predict_divided (steady: ops sleep for a given time), team, islands (cpu)" },
    { "--seed", "N", OPTION_INTEGER, AT(seed), 0, 9e15, "of --what predict: which layouts are drawn" },
    OPTION_LAST_ROWS
};
enum { OPTIONS = (int)(sizeof options / sizeof options[0]) };
enum {
    ALL = 1, MACHINE, PRODUCTS, ATTENTION, STEP, PARTS, RANKS, RANKS_DP, RANKS_PP, RANKS_UNEQUAL, RANKS_OVERHEAD, RANKS_LISTS,
    PREDICT, PREDICT_SLOW, PREDICT_DIVIDED, TEAM, PLAN, SCALING, LATE, ISLANDS
};
enum { CPU = 1, STEADY }; /* of --devices */

#include "libraries.h"

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
    double flops, bandwidth; /* of the machine, a second: machine.h */
    libraries library;
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
    static const char *const isa[] = { HETRAIN_ISA_NAMES };
    printf("{\"name\":\"%s\",\"threads\":%d,\"isa\":\"%s\",\"dtype\":\"%s\"", name, b->threads, isa[b->set.isa - 1],
           b->set.dtype == HET_BF16 ? "bf16" : "f32");
}

static void print_spread(spread s, double flops) {
    printf(",\"ms\":%.4f,\"ms_low\":%.4f,\"ms_high\":%.4f,\"gflops\":%.2f}\n", 1e3 * s.median, 1e3 * s.low, 1e3 * s.high, 1e-9 * flops / s.median);
    fflush(stdout);
}

#include "steady.h"
#include "machine.h"
#include "parts.h"

enum { FORWARD, INPUT, WEIGHT };
enum { OURS, OURS_ONCE, OURS_FAST, OTHERS };   /* exact sums, the same made at once, float sums, then the libraries */
enum { CONTENDERS = OTHERS + LIBRARIES };

/* One matrix shape: y = x W^T, dx = dy W, dW += dy^T x. */
typedef struct product {
    bench *all;
    const char *shape;
    het_op op;                  /* whose arguments are */
    het_linear_args *a;
    float *x, *w, *y, *dx, *dw, *exact; /* dw: float sums; exact: room for doubles */
    double *seconds;            /* [CONTENDERS][repetitions] */
} product;

static void product_direction(product *p, int which, int contender) {
    p->op.kind = which == FORWARD ? HET_OP_LINEAR_FORWARD : which == INPUT ? HET_OP_LINEAR_BACKWARD_INPUT : HET_OP_LINEAR_BACKWARD_WEIGHT;
    p->all->gradient.exact = contender != OURS_FAST;
    p->all->gradient.beta = contender != OURS_ONCE;
    p->all->gradient.final = contender == OURS_ONCE;
}

static het_result product_ours(product *p, int which, int contender) {
    bench *b = p->all;
    product_direction(p, which, contender);
    b->gradient.sum = contender == OURS ? p->exact : p->dw;
    return b->cpu->run(b->self, NULL, &p->op);
}

static void product_library(product *p, int which, int library) {
    const int64_t rows = p->a->rows, in = p->a->in, out = p->a->part[0].out;
    const libraries *l = &p->all->library;
    if (which == FORWARD) library_run(l, library, 0, 1, rows, out, in, p->x, p->w, 0, p->y);
    else if (which == INPUT) library_run(l, library, 0, 0, rows, in, out, p->y, p->w, 0, p->dx);
    else library_run(l, library, 1, 0, out, in, rows, p->y, p->x, 1, p->dw);
}

/* Libraries are compared in f32 only; sums differ in dW only. */
static int product_takes_part(product *p, int which, int contender) {
    product_direction(p, which, contender);
    if (contender == OURS) return 1;
    if (contender == OURS_ONCE) return which == WEIGHT && p->all->cpu->supports(p->all->self, &p->op);
    if (contender == OURS_FAST) return which == WEIGHT;
    return p->all->set.dtype == HET_F32 && library_has(&p->all->library, contender - OTHERS);
}

static void bench_pause(double seconds) {
    struct timespec t;
    t.tv_sec = 0, t.tv_nsec = (long)(1e9 * seconds);
    nanosleep(&t, NULL);
}

static int product_turn(product *p, int which, int contender) {
    if (contender >= OTHERS) product_library(p, which, contender - OTHERS);
    else if (product_ours(p, which, contender) != HET_OK) return fail(FAILED, "%s", p->all->cpu->last_error(p->all->self));
    return 0;
}

/* Contenders take turns, A B A B, so that a disturbance meets all. With several threads each waits until the others' no longer spin and runs
   untimed until its own have come apart (see machine.h). */
static int product_race(product *p, int which) {
    static const char *const names[] = { "linear_forward", "linear_backward_input", "linear_backward_weight" };
    static const char *const engines[] = { "hetrain", "hetrain, made at once", "hetrain, float sums" };
    const int64_t n = p->all->set.repetitions, rows = p->a->rows, in = p->a->in, out = p->a->part[0].out;
    int64_t r;
    int k, status = 0;
    for (r = -1; r < n; r++)
        for (k = 0; k < CONTENDERS; k++) {
            double start;
            if (!product_takes_part(p, which, k)) continue;
            if (p->all->threads > 1) bench_pause(0.05);
            start = seconds_now();
            while (p->all->threads > 1 && status == 0 && seconds_now() - start < 0.03) status = product_turn(p, which, k);
            start = seconds_now();
            if (status == 0) status = product_turn(p, which, k);
            if (status != 0) return status;
            if (r >= 0) p->seconds[k * n + r] = seconds_now() - start;
        }
    for (k = 0; k < CONTENDERS; k++) {
        const double flops = 2.0 * (double)rows * (double)in * (double)out;
        if (!product_takes_part(p, which, k)) continue;
        memcpy(p->all->seconds, p->seconds + k * n, (size_t)n * sizeof(double));
        print_head(p->all, names[which]);
        printf(",\"engine\":\"%s\",\"shape\":\"%s\",\"rows\":%lld,\"in\":%lld,\"out\":%lld,\"peak_share\":%.3f",
               k < OTHERS ? engines[k] : library_names[k - OTHERS], p->shape, (long long)rows, (long long)in, (long long)out,
               flops / spread_of(p->all).median / p->all->flops);
        print_spread(spread_of(p->all), flops);
    }
    return 0;
}

static float *product_room(bench *b, size_t floats, int zero) {
    float *memory = (float *)b->cpu->alloc(b->self, floats * sizeof(float));
    size_t i;
    for (i = 0; i < floats && memory != NULL; i++) memory[i] = zero ? 0 : (float)(i * 2654435761u % 1021) / 1021.0f - 0.5f;
    return memory;
}

static void product_free(bench *b, float *memory, size_t floats) { b->cpu->free(b->self, memory, floats * sizeof(float)); }

static int bench_linear(bench *b, const char *shape, int64_t rows, int64_t in, int64_t out) {
    const size_t n_in = (size_t)(rows * in), n_out = (size_t)(rows * out), n_w = (size_t)(in * out);
    product p;
    size_t workspace = 0, bytes;
    int which, status = machine_measure(b);
    if (status != 0) return status;
    memset(&p, 0, sizeof p);
    p.all = b, p.shape = shape, p.a = &p.op.u.linear;
    p.a->view = &b->view, p.a->compute = (het_dtype)b->set.dtype, p.a->rows = rows, p.a->in = in, p.a->parts = 1, p.a->part[0].out = out;
    p.a->part[0].dw = &b->gradient;
    for (which = 0; which < 3; which++) {
        product_direction(&p, which, OURS);
        bytes = b->cpu->workspace(b->self, &p.op);
        workspace = bytes > workspace ? bytes : workspace;
    }
    p.a->workspace = b->cpu->alloc(b->self, workspace + 64);
    p.x = product_room(b, n_in, 0), p.dx = product_room(b, n_in, 1), p.w = product_room(b, n_w, 0), p.y = product_room(b, n_out, 0);
    p.dw = product_room(b, n_w, 1), p.exact = product_room(b, 2 * n_w, 1);
    p.seconds = (double *)calloc(CONTENDERS * (size_t)b->set.repetitions, sizeof(double));
    if (p.a->workspace == NULL || p.x == NULL || p.dx == NULL || p.w == NULL || p.y == NULL || p.dw == NULL || p.exact == NULL || p.seconds == NULL)
        return fail(FAILED, "out of memory");
    p.a->x = p.x, p.a->dx = p.dx, p.a->part[0].w = p.w, p.a->part[0].y = p.y, p.a->part[0].dy = p.y;
    for (which = 0; which < 3 && status == 0; which++) status = product_race(&p, which);
    product_direction(&p, FORWARD, OURS);
    b->cpu->free(b->self, p.a->workspace, workspace + 64);
    product_free(b, p.x, n_in), product_free(b, p.dx, n_in), product_free(b, p.w, n_w), product_free(b, p.y, n_out);
    product_free(b, p.dw, n_w), product_free(b, p.exact, 2 * n_w);
    free(p.seconds);
    return status;
}

static int bench_products(bench *b) {
    const het_model_desc *m = &b->model;
    int64_t rows = b->view.tokens, q = m->heads * m->head_size, kv = m->kv_heads * m->head_size;
    int status = bench_linear(b, "qkv", rows, m->width, q + 2 * kv);
    if (status == 0) status = bench_linear(b, "attention_out", rows, q, m->width);
    if (status == 0) status = bench_linear(b, "mlp_up", rows, m->width, m->mlp_width);
    if (status == 0) status = bench_linear(b, "mlp_down", rows, m->mlp_width, m->width);
    if (status == 0) status = bench_linear(b, "head", rows, m->width, m->vocab);
    return status;
}

/* Largest resident size of the process so far, in bytes (Linux); 0: not known here. Not getrusage, which starts from the parent's. */
static double peak_resident(void) {
    FILE *file = fopen("/proc/self/status", "r");
    char line[200];
    double kilobytes = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "VmHWM:", 6) == 0) kilobytes = strtod(line + 6, NULL);
    if (file != NULL) fclose(file);
    return 1024 * kilobytes;
}

static void pace_print(const double *seconds, int count) {
    int i;
    for (i = 0; i < count; i++) printf(i > 0 ? " %.6f" : "%.6f", seconds[i]);
    printf("\n");
}

/* Paced: a driver lets engines take turns; a line from it starts a repetition, which answers with a line of its `count` times. The line before the
   first says that all is ready. 0: the driver has gone. */
static int pace(const bench *b, const double *seconds, int count) {
    if (!b->set.paced) return 1;
    pace_print(seconds, count);
    fflush(stdout);
    for (;;) {
        const int c = getchar();
        if (c == EOF) return 0;
        if (c == '\n') return 1;
    }
}

/* The times of the last repetition, then the peak of memory. */
static void pace_end(const double *seconds, int count) {
    pace_print(seconds, count);
    printf("%.0f\n", peak_resident());
}

static int bench_attention(bench *b) {
    const het_model_desc *m = &b->model;
    size_t n = (size_t)b->view.tokens, q = n * (size_t)(m->heads * m->head_size), kv = n * (size_t)(m->kv_heads * m->head_size),
        rows = n * (size_t)m->heads, i;
    size_t floats = 4 * q + 4 * kv + 2 * rows, bytes;
    float *memory = (float *)b->cpu->alloc(b->self, floats * sizeof(float));
    double pairs = 0.5 * (double)n * ((double)b->set.length + 1) * (double)(m->heads * m->head_size);
    double *seconds = (double *)calloc(2 * (size_t)b->set.repetitions, sizeof *seconds), took[2];
    het_op op;
    het_attention_args *a = &op.u.attention;
    int64_t r;
    int which;
    memset(&op, 0, sizeof op);
    a->view = &b->view, a->compute = (het_dtype)b->set.dtype, a->causal = 1;
    a->heads = m->heads, a->kv_heads = m->kv_heads, a->head_size = m->head_size;
    a->scale = (float)(1 / sqrt((double)m->head_size));
    op.kind = HET_OP_ATTENTION_FORWARD, a->workspace_size = b->cpu->workspace(b->self, &op);
    op.kind = HET_OP_ATTENTION_BACKWARD, bytes = b->cpu->workspace(b->self, &op);
    a->workspace_size = bytes > a->workspace_size ? bytes : a->workspace_size;
    a->workspace = b->cpu->alloc(b->self, a->workspace_size + 64);
    if (memory == NULL || a->workspace == NULL || seconds == NULL) return fail(FAILED, "out of memory");
    for (i = 0; i < floats; i++) memory[i] = (float)(i * 2654435761u % 1021) / 1021.0f - 0.5f;
    a->q = memory, a->o = memory + q, a->d_o = memory + 2 * q, a->dq = memory + 3 * q;
    a->k = memory + 4 * q, a->v = a->k + kv, a->dk = memory + 4 * q + 2 * kv, a->dv = a->dk + kv, a->maximum = a->dv + kv, a->sum = a->maximum + rows;
    for (r = -1; r < b->set.repetitions && (r < 0 || pace(b, took, r > 0 ? 2 : 0)); r++)
        for (which = 0; which < 2; which++) {
            const double start = seconds_now();
            op.kind = which == 0 ? HET_OP_ATTENTION_FORWARD : HET_OP_ATTENTION_BACKWARD;
            if (b->cpu->run(b->self, NULL, &op) != HET_OK)
                return fail(FAILED, "attention: %s", b->cpu->last_error(b->self));
            took[which] = seconds_now() - start;
            if (r >= 0) seconds[which * b->set.repetitions + r] = took[which];
        }
    if (b->set.paced) pace_end(took, 2);
    for (which = 0; which < 2 && !b->set.paced; which++) {
        memcpy(b->seconds, seconds + which * b->set.repetitions, (size_t)b->set.repetitions * sizeof *seconds);
        print_head(b, which == 0 ? "attention_forward" : "attention_backward");
        printf(",\"sequences\":%lld,\"length\":%lld,\"heads\":%lld,\"kv_heads\":%lld,\"head_size\":%lld", (long long)b->set.sequences,
               (long long)b->set.length, (long long)m->heads, (long long)m->kv_heads, (long long)m->head_size);
        print_spread(spread_of(b), (which == 0 ? 4 : 10) * pairs); /* products over the causal half: 2 forward, 5 backward */
    }
    free(seconds);
    b->cpu->free(b->self, a->workspace, a->workspace_size + 64);
    b->cpu->free(b->self, memory, floats * sizeof(float));
    return 0;
}

/* Forward, backward and AdamW of --model on random tokens; the first two steps are not counted, and after a step that was repeated for its exponents
   counting starts again. by_part: op by op. */
static int bench_step(bench *b, int by_part) {
    int64_t n = b->view.tokens, r, again = 0;
    int32_t *token = (int32_t *)malloc((size_t)(n + 1) * sizeof(int32_t));
    het_device_desc device;
    het_desc desc;
    het_batch batch;
    het_error error = { HET_OK, "" };
    het_memory memory;
    het_ctx *ctx = NULL;
    het_step_info info;
    het_result result;
    het_device_iface table;
    spread s;
    double seconds = 0;
    if (token == NULL) return fail(FAILED, "out of memory");
    if (by_part && machine_measure(b) != 0) return FAILED;
    for (r = 0; r <= n; r++) token[r] = (int32_t)((uint64_t)r * 2654435761u % (uint64_t)b->model.vocab);
    memset(&device, 0, sizeof device);
    memset(&desc, 0, sizeof desc);
    memset(&batch, 0, sizeof batch);
    device.threads = b->threads, device.isa = (het_isa)(b->set.isa - 1);
    if (by_part) table = parts_table(b->cpu), device.iface = &table, parts.flops = b->flops, parts.bandwidth = b->bandwidth;
    desc.reduce = (het_reduce)b->set.reduce;
    desc.model = b->model, desc.layout.devices = &device, desc.layout.device_count = 1, desc.dtype = (het_dtype)b->set.dtype;
    desc.limits.max_tokens = n, desc.limits.max_sequences = b->set.sequences, desc.limits.max_micro_batches = 1;
    batch.tokens = n, batch.sequences = b->set.sequences, batch.token = token, batch.target = token + 1, batch.sequence_start = b->bounds;
    result = het_create(&desc, &ctx, &error);
    for (r = -2; result == HET_OK && r < b->set.repetitions && (r < 0 || pace(b, &seconds, r > 0)); r++) {
        const double start = seconds_now();
        if (r == 0) parts.parts = 0;
        result = het_step(ctx, &batch, 1, &info);
        seconds = seconds_now() - start;
        if (r >= 0) b->seconds[r] = seconds;
        if (result == HET_OK && r >= 0 && info.repeated && !b->set.paced) again++, r = -1;
    }
    if (result != HET_OK) {
        int status = fail(status_of(result), "%s", ctx != NULL ? het_last_error(ctx) : error.text);
        het_destroy(ctx);
        free(token);
        return status;
    }
    het_get_memory(ctx, 0, &memory);
    for (s.median = 0; by_part && r > 0; r--) s.median += b->seconds[r - 1] / (double)b->set.repetitions;
    if (by_part) parts_print(b, s.median, b->set.repetitions);
    if (by_part || b->set.paced) {
        if (b->set.paced) pace_end(&seconds, 1);
        het_destroy(ctx);
        free(token);
        return 0;
    }
    s = spread_of(b);
    print_head(b, "step");
    printf(",\"peak_resident\":%.0f,\"steps_again\":%lld", peak_resident(), (long long)again);
    printf(",\"model\":\"%s\",\"parameters\":%lld,\"sequences\":%lld,\"length\":%lld,\"memory_bytes\":%llu,\"tokens_per_s\":%.1f", b->set.model,
           (long long)memory.parameters, (long long)b->set.sequences, (long long)b->set.length, (unsigned long long)memory.device,
           (double)n / s.median);
    print_spread(s, (double)n * (6.0 * (double)memory.parameters + 6.0 * (double)(b->model.layers * b->model.width * b->set.length)));
    het_destroy(ctx);
    free(token);
    return 0;
}

/* ---- several ranks ----------------------------------------------------------------------------------------------------
   Ratios against a peer measured in the same run, A B A B: of each round one ratio, then the median of the rounds. */

enum { RANKS_MODELS = 4, RANKS_MICRO_BATCHES = 8 };

/* One way to run a step: a context and what its steps took. */
typedef struct runner {
    const char *label;
    het_device_desc device[4];
    int64_t devices;
    het_plan *plan;
    het_ctx *ctx;
    double *seconds;        /* [repetitions] of a step */
    double *processor;      /* [repetitions] of all threads of the process */
    int64_t reduced, moved; /* bytes sent by all ranks in the last step: reductions; messages between stages */
} runner;

typedef struct ranks_bench {
    bench *all;
    het_model_desc model;
    const char *model_name;
    het_reduce reduce;
    het_batch *batch;
    int64_t count, sequences, length;
    int32_t *token;
    int64_t *bounds;
    het_desc description;   /* zeros, or what contexts have beside the rest */
    runner run[RANKS_MODELS];
    int runs;
    int64_t again; /* steps that were repeated for their exponents; they are not counted */
} ranks_bench;

static spread spread_of_values(const double *value, int64_t count) {
    spread s;
    double *sorted = (double *)malloc((size_t)count * sizeof(double));
    memset(&s, 0, sizeof s);
    if (sorted == NULL) return s;
    memcpy(sorted, value, (size_t)count * sizeof(double));
    qsort(sorted, (size_t)count, sizeof(double), compare_doubles);
    s.median = count % 2 == 1 ? sorted[count / 2] : 0.5 * (sorted[count / 2 - 1] + sorted[count / 2]);
    s.low = sorted[0], s.high = sorted[count - 1];
    free(sorted);
    return s;
}

static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void print_spread_of(const char *name, double scale, const double *value, int64_t count) {
    spread s = spread_of_values(value, count);
    printf(",\"%s\":%.4f,\"%s_low\":%.4f,\"%s_high\":%.4f", name, scale * s.median, name, scale * s.low, name, scale * s.high);
}

/* count micro-batches of sequences x length made-up tokens. */
static int ranks_prepare(ranks_bench *r, bench *b, const char *model, int64_t sequences, int64_t length, int64_t count) {
    int64_t i, tokens = sequences * length;
    int status;
    memset(r, 0, sizeof *r);
    r->all = b, r->model_name = model, r->count = count, r->sequences = sequences, r->length = length, r->reduce = HET_REDUCE_EXACT;
    if ((status = model_from_spec("--model", model, &r->model)) != 0) return status;
    r->token = (int32_t *)malloc((size_t)(count * tokens + 1) * sizeof(int32_t));
    r->bounds = (int64_t *)malloc((size_t)(sequences + 1) * sizeof(int64_t));
    r->batch = (het_batch *)calloc((size_t)count, sizeof(het_batch));
    if (r->token == NULL || r->bounds == NULL || r->batch == NULL) return fail(FAILED, "out of memory");
    for (i = 0; i <= count * tokens; i++) r->token[i] = (int32_t)((uint64_t)i * 2654435761u % (uint64_t)r->model.vocab);
    for (i = 0; i <= sequences; i++) r->bounds[i] = i * length;
    for (i = 0; i < count; i++) {
        het_batch *batch = &r->batch[i];
        batch->tokens = tokens, batch->sequences = sequences, batch->sequence_start = r->bounds;
        batch->token = r->token + i * tokens, batch->target = batch->token + 1;
    }
    return 0;
}

static void ranks_stop(ranks_bench *r) {
    for (; r->runs > 0; r->runs--) {
        runner *run = &r->run[r->runs - 1];
        het_destroy(run->ctx);
        het_plan_free(run->plan);
        free(run->seconds);
        free(run->processor);
        memset(run, 0, sizeof *run);
    }
}

static void ranks_end(ranks_bench *r) {
    ranks_stop(r);
    free(r->token);
    free(r->bounds);
    free(r->batch);
}

/* The next runner, its devices still to be filled in. */
static runner *ranks_next(ranks_bench *r, const char *label, int64_t devices, const het_device_iface *iface, int threads) {
    runner *run = &r->run[r->runs++];
    int64_t i;
    run->label = label, run->devices = devices;
    for (i = 0; i < devices; i++) run->device[i].iface = iface, run->device[i].threads = threads, run->device[i].isa = (het_isa)(r->all->set.isa - 1);
    return run;
}

static int ranks_create(ranks_bench *r, runner *run, const char *plan, const char *schedule) {
    het_plan_desc plan_desc;
    het_desc desc = r->description;
    het_error error = { HET_OK, "" };
    het_result result;
    memset(&plan_desc, 0, sizeof plan_desc);
    run->seconds = (double *)malloc((size_t)r->all->set.repetitions * sizeof(double));
    run->processor = (double *)malloc((size_t)r->all->set.repetitions * sizeof(double));
    if (run->seconds == NULL || run->processor == NULL) return fail(FAILED, "out of memory");
    plan_desc.units = 2 * r->model.layers + 2, plan_desc.ranks = run->devices, plan_desc.schedule = schedule;
    result = het_plan_read(&plan_desc, plan, strlen(plan), &run->plan, &error);
    if (result != HET_OK) return fail(status_of(result), "%s", error.text);
    desc.model = r->model, desc.layout.devices = run->device, desc.layout.device_count = run->devices, desc.layout.plan = run->plan;
    desc.dtype = (het_dtype)r->all->set.dtype, desc.reduce = r->reduce;
    desc.limits.max_tokens = r->sequences * r->length, desc.limits.max_sequences = r->sequences, desc.limits.max_micro_batches = r->count;
    desc.optimizer.learning_rate = 1e-5f; /* weights that hardly move need no new exponents */
    result = het_create(&desc, &run->ctx, &error);
    return result == HET_OK ? 0 : fail(status_of(result), "%s", error.text);
}

static void ranks_traffic(const runner *run, int64_t *reduced, int64_t *moved) {
    het_timeline timeline;
    int64_t i, k;
    *reduced = *moved = 0;
    for (i = 0; i < run->devices; i++) {
        het_get_timeline(run->ctx, i, &timeline);
        for (k = 0; timeline.traffic != NULL && k < timeline.ranks; k++)
            *reduced += timeline.traffic[k].reduction_bytes, *moved += timeline.traffic[k].transfer_bytes;
    }
}

/* One step, again if it was one of those that are measured twice. round < 0: not counted. */
static int ranks_step(ranks_bench *r, runner *run, int64_t round) {
    int64_t reduced, moved;
    int attempt;
    for (attempt = 0; attempt < 3; attempt++) {
        double start, used;
        het_step_info info;
        ranks_traffic(run, &reduced, &moved);
        start = seconds_now(), used = processor_seconds();
        if (het_step(run->ctx, r->batch, r->count, &info) != HET_OK) return fail(FAILED, "%s: %s", run->label, het_last_error(run->ctx));
        if (round >= 0) run->seconds[round] = seconds_now() - start, run->processor[round] = processor_seconds() - used;
        ranks_traffic(run, &run->reduced, &run->moved);
        run->reduced -= reduced, run->moved -= moved;
        if (!info.repeated || round < 0) return 0;
        r->again++;
    }
    return 0;
}

static int ranks_round(ranks_bench *r, int64_t round) {
    int i, status = 0;
    for (i = 0; i < r->runs && status == 0; i++) status = ranks_step(r, &r->run[i], round);
    return status;
}

static void ranks_head(const ranks_bench *r, const char *name) {
    printf("{\"name\":\"%s\",\"model\":\"%s\",\"reduce\":\"%s\",\"micro_batches\":%lld,\"sequences\":%lld,\"length\":%lld,\"rounds\":%lld", name,
           r->model_name, r->reduce == HET_REDUCE_EXACT ? "exact" : "fast", (long long)r->count, (long long)r->sequences, (long long)r->length,
           (long long)r->all->set.repetitions);
}

static void ranks_tail(const ranks_bench *r) {
    printf(",\"steps_again\":%lld}\n", (long long)r->again);
    fflush(stdout);
}

static void print_runner(const ranks_bench *r, const runner *run) {
    char name[40];
    snprintf(name, sizeof name, "%s_ms", run->label);
    print_spread_of(name, 1e3, run->seconds, r->all->set.repetitions);
    printf(",\"%s_tokens_per_s\":%.1f", run->label,
           (double)(r->count * r->sequences * r->length) / spread_of_values(run->seconds, r->all->set.repetitions).median);
}

/* Of the last step: until all micro-batches are through, from there until the verdict, the update and what follows, in ms of the latest rank. */
static void print_phases(const runner *run) {
    double computed = 0, judged = 0, end = 0;
    int64_t i, k;
    for (i = 0; i < run->devices; i++) {
        het_timeline timeline;
        het_get_timeline(run->ctx, i, &timeline);
        for (k = 0; k < timeline.records; k++) {
            const het_record *record = &timeline.record[k];
            double *phase = record->action.kind < HET_ACTION_SEND_F ? &computed : record->action.kind == HET_ACTION_COMMIT ? &judged : &end;
            if (record->end > *phase) *phase = record->end;
        }
    }
    printf(",\"%s_compute_ms\":%.2f,\"%s_reduce_ms\":%.2f,\"%s_update_ms\":%.2f", run->label, 1e3 * computed, run->label,
           1e3 * (judged - computed), run->label, 1e3 * (end - judged));
}

/* Two data-parallel ranks, the threads divided between them, against one rank of all threads. */
static int bench_ranks_dp(ranks_bench *r) {
    static const het_reduce reduce[] = { HET_REDUCE_EXACT, HET_REDUCE_FAST };
    int64_t n = r->all->set.repetitions, round;
    int half = r->all->threads > 1 ? r->all->threads / 2 : 1, i, status = 0;
    double *ratio = (double *)malloc((size_t)n * sizeof(double));
    if (ratio == NULL) return fail(FAILED, "out of memory");
    for (i = 0; i < 2 && status == 0; i++) {
        runner *one, *two;
        r->reduce = reduce[i], r->again = 0;
        one = ranks_next(r, "one", 1, r->all->cpu, 2 * half), two = ranks_next(r, "two", 2, r->all->cpu, half);
        status = ranks_create(r, one, "dp", NULL);
        if (status == 0) status = ranks_create(r, two, "dp", NULL);
        for (round = -1; round < n && status == 0; round++) {
            status = ranks_round(r, round);
            if (round >= 0) ratio[round] = one->seconds[round] / two->seconds[round];
        }
        if (status == 0) {
            ranks_head(r, "ranks_dp");
            printf(",\"threads_of_one\":%d,\"threads_of_each\":%d", 2 * half, half);
            print_spread_of("ratio", 1, ratio, n);
            print_runner(r, one), print_runner(r, two);
            print_phases(one), print_phases(two);
            printf(",\"reduction_bytes\":%lld", (long long)two->reduced);
            ranks_tail(r);
        }
        ranks_stop(r);
    }
    r->reduce = HET_REDUCE_EXACT;
    free(ratio);
    return status;
}

/* Where to cut the chain so that the larger of both stages is as small as can be, by weights used per token: D^2 (attention 4, MLP 2 F / D or 3),
   D V of the head; attention's own products count D T. */
static int64_t even_cut(const ranks_bench *r) {
    const het_model_desc *m = &r->model;
    double attention = (double)m->width * (double)(2 * m->heads * m->head_size + 2 * m->kv_heads * m->head_size + r->length);
    double mlp = (double)m->width * (double)m->mlp_width * (m->activation == HET_SWIGLU ? 3 : 2);
    double total = (double)m->layers * (attention + mlp) + (double)m->width * (double)m->vocab, before = 0, best = total;
    int64_t unit, cut = 1;
    for (unit = 1; unit <= 2 * m->layers; unit++) {
        double larger = before > total - before ? before : total - before;
        if (larger < best) best = larger, cut = unit;
        before += unit % 2 == 1 ? attention : mlp;
    }
    return cut;
}

/* The lists that the last step ran, with the times it took, as het_simulate wants them. */
typedef struct replay {
    het_schedule schedule;
    het_costs costs;
    het_stage_cost stage[4];
    het_block_cost block[1024];
    int64_t start[5], micro_batches;
    het_action *action;
    double compute_end, end; /* of F and B on any rank; of everything */
    double busy;             /* F and B of all ranks */
} replay;

static int replay_fill(replay *p, const runner *run, int64_t count, int compute_only) {
    int64_t i, k, actions = 0, forward[4] = { 0, 0, 0, 0 }, backward[4] = { 0, 0, 0, 0 };
    het_timeline timeline;
    memset(p, 0, sizeof *p);
    for (i = 0; i < run->devices; i++) {
        het_get_timeline(run->ctx, i, &timeline);
        actions += timeline.records;
    }
    p->action = (het_action *)malloc((size_t)(actions + 1) * sizeof(het_action));
    if (p->action == NULL) return fail(FAILED, "out of memory");
    for (i = 0, actions = 0; i < run->devices; i++) {
        het_get_timeline(run->ctx, i, &timeline);
        for (k = 0; k < timeline.records; k++) {
            const het_record *record = &timeline.record[k];
            const het_action *a = &record->action;
            double took = record->end - record->start;
            int computes = a->kind == HET_ACTION_F || a->kind == HET_ACTION_B;
            if (computes && record->end > p->compute_end) p->compute_end = record->end;
            if (record->end > p->end) p->end = record->end;
            if (computes) p->busy += took;
            if (a->kind == HET_ACTION_F) p->stage[a->stage].forward.token += took, forward[a->stage]++;
            if (a->kind == HET_ACTION_B) p->stage[a->stage].backward.token += took, backward[a->stage]++;
            if (a->kind == HET_ACTION_STEP && a->stage < 1024) {
                p->block[a->stage].step += took;
                if (a->stage >= p->costs.blocks) p->costs.blocks = a->stage + 1;
            }
            if (computes || !compute_only) p->action[actions++] = *a;
        }
        p->start[i + 1] = actions;
    }
    for (i = 0; i < run->plan->stages; i++) p->stage[i].forward.token /= (double)forward[i], p->stage[i].backward.token /= (double)backward[i];
    p->micro_batches = count;
    p->schedule.ranks = run->devices, p->schedule.pipelines = 1, p->schedule.micro_batches = &p->micro_batches;
    p->schedule.start = p->start, p->schedule.action = p->action, p->schedule.complete = !compute_only;
    p->costs.stage = p->stage;
    if (!compute_only) p->costs.block = p->block;
    else p->costs.blocks = 0;
    return 0;
}

static int replay_simulate(const replay *p, const het_plan *plan, double *makespan) {
    het_error error = { HET_OK, "" };
    het_simulation *simulation = NULL;
    het_result result = het_simulate(plan, &p->schedule, &p->costs, HET_NO, NULL, &simulation, &error);
    if (result != HET_OK) return fail(FAILED, "%s", error.text);
    *makespan = simulation->makespan;
    het_simulation_free(simulation);
    return 0;
}

/* When F and B would all be done if each took what it took and waited for nothing but the lists and its neighbours: the longest path. */
static double longest_path(const runner *run, int64_t count) {
    double *done = (double *)calloc((size_t)(2 * run->plan->stages * count), sizeof(double)), at[4] = { 0, 0, 0, 0 }, longest = 0;
    int64_t next[4] = { 0, 0, 0, 0 }, stages = run->plan->stages, i;
    int moved = done != NULL;
    while (moved)
        for (i = moved = 0; i < run->devices; i++) {
            het_timeline timeline;
            het_get_timeline(run->ctx, i, &timeline);
            for (; next[i] < timeline.records; next[i]++, moved = 1) {
                const het_record *record = &timeline.record[next[i]];
                int64_t stage = record->action.stage, of = record->action.micro_batch * stages;
                const int backward = record->action.kind == HET_ACTION_B;
                double *own = done + (backward ? count * stages : 0) + of + stage, before = 0;
                if (record->action.kind != HET_ACTION_F && !backward) continue;
                if (!backward && stage > 0) before = own[-1];
                if (backward) before = stage < stages - 1 ? own[1] : done[of + stage];
                if (before <= 0 && (backward || stage > 0)) break;
                at[i] = (before > at[i] ? before : at[i]) + record->end - record->start;
                *own = at[i];
                if (at[i] > longest) longest = at[i];
            }
        }
    free(done);
    return longest;
}

/* Two stages, 1f1b: what the simulator makes of the measured means of F and B without links, over what the step took. Stages that run alone for
   a moment are faster than their mean, so that this can exceed 1; path_ratio, of the longest path of the single times, cannot. */
static int bench_ranks_pp(ranks_bench *r) {
    int64_t n = r->all->set.repetitions, round, cut = even_cut(r);
    int half = r->all->threads > 1 ? r->all->threads / 2 : 1, status;
    double *value = (double *)malloc(4 * (size_t)n * sizeof(double)), bound = 0;
    char plan[80];
    runner *run = ranks_next(r, "two", 2, r->all->cpu, half);
    replay p;
    memset(&p, 0, sizeof p);
    if (value == NULL) return fail(FAILED, "out of memory");
    snprintf(plan, sizeof plan, "pp:0-%lld|%lld-%lld", (long long)(cut - 1), (long long)cut, (long long)(2 * r->model.layers + 1));
    status = ranks_create(r, run, plan, "1f1b");
    for (round = -1; round < n && status == 0; round++) {
        double pipeline, step;
        status = ranks_round(r, round);
        if (status != 0 || round < 0) continue;
        if ((status = replay_fill(&p, run, r->count, 1)) != 0 || (status = replay_simulate(&p, run->plan, &pipeline)) != 0) break;
        value[round] = pipeline / p.compute_end, value[n + round] = p.busy / (2 * p.compute_end);
        value[3 * n + round] = longest_path(run, r->count) / p.compute_end;
        bound = p.busy / (2 * pipeline);
        free(p.action);
        if ((status = replay_fill(&p, run, r->count, 0)) != 0 || (status = replay_simulate(&p, run->plan, &step)) != 0) break;
        value[2 * n + round] = step / run->seconds[round];
        if (round < n - 1) free(p.action), p.action = NULL;
    }
    if (status == 0) {
        ranks_head(r, "ranks_pp");
        printf(",\"threads_of_each\":%d,\"plan\":\"%s\",\"f_ms\":[%.3f,%.3f],\"b_ms\":[%.3f,%.3f]", half, plan, 1e3 * p.stage[0].forward.token,
               1e3 * p.stage[1].forward.token, 1e3 * p.stage[0].backward.token, 1e3 * p.stage[1].backward.token);
        print_spread_of("ratio", 1, value, n);
        print_spread_of("path_ratio", 1, value + 3 * n, n);
        print_spread_of("busy", 1, value + n, n);
        printf(",\"busy_bound\":%.4f,\"busy_bound_equal_stages\":%.4f", bound, (double)r->count / (double)(r->count + 1));
        print_spread_of("whole_step_ratio", 1, value + 2 * n, n);
        print_runner(r, run), print_phases(run);
        printf(",\"transfer_bytes\":%lld,\"reduction_bytes\":%lld", (long long)run->moved, (long long)run->reduced);
        ranks_tail(r);
    }
    free(p.action);
    free(value);
    ranks_stop(r);
    return status;
}

/* A rank and one of a third of its speed, one thread each: together with fitting shares and with equal ones, against the sum of both alone. */
static int bench_ranks_unequal(ranks_bench *r) {
    static const char *const label[] = { "fast", "slow", "shares_3_1", "shares_1_1" };
    int64_t n = r->all->set.repetitions, round;
    int i, status = 0;
    double *ratio = (double *)malloc(2 * (size_t)n * sizeof(double));
    char plan[2][300];
    if (ratio == NULL) return fail(FAILED, "out of memory");
    for (i = 0; i < 2; i++) {
        int64_t units = 2 * r->model.layers + 2, share = i == 0 ? 3 : 1;
        snprintf(plan[i], sizeof plan[i], "{\"pipelines\":[{\"share\":%lld,\"stages\":[{\"rank\":0,\"units\":[0,%lld]}]},"
                 "{\"share\":1,\"stages\":[{\"rank\":1,\"units\":[0,%lld]}]}],\"state_shares\":[%lld,1]}", (long long)share, (long long)units,
                 (long long)units, (long long)share);
    }
    for (i = 0; i < 4 && status == 0; i++) {
        runner *run = ranks_next(r, label[i], i < 2 ? 1 : 2, r->all->cpu, 1);
        if (i > 0) run->device[run->devices - 1].speed = 1.0 / 3.0;
        status = ranks_create(r, run, i < 2 ? "dp" : plan[i - 2], NULL);
    }
    for (round = -1; round < n && status == 0; round++) {
        double sum;
        status = ranks_round(r, round);
        if (round < 0 || status != 0) continue;
        sum = 1 / r->run[0].seconds[round] + 1 / r->run[1].seconds[round];
        ratio[round] = 1 / (r->run[2].seconds[round] * sum), ratio[n + round] = 1 / (r->run[3].seconds[round] * sum);
    }
    if (status == 0) {
        ranks_head(r, "ranks_unequal");
        print_spread_of("ratio", 1, ratio, n);
        print_spread_of("equal_shares_ratio", 1, ratio + n, n);
        for (i = 0; i < 4; i++) print_runner(r, &r->run[i]);
        for (i = 2; i < 4; i++) print_phases(&r->run[i]);
        printf(",\"reduction_bytes\":[%lld,%lld]", (long long)r->run[2].reduced, (long long)r->run[3].reduced);
        ranks_tail(r);
    }
    free(ratio);
    ranks_stop(r);
    return status;
}

/* One long sequence on a rank of one thread, and on teams of it and one of a third of its speed, in turns: what they reach of the 4/3 that both are
   together. By context shares are of whole granules, 512 tokens, and later rows have more keys: of 8 granules 6 and 2, or 7 and 1. */
static int bench_team(bench *b) {
    static const char *const label[] = { "one", "context_6_2", "context_7_1", "heads_6_2" };
    static const char *const team[] = { "", "\"shares\":[6,2]", "\"shares\":[7,1]", "\"shares\":[6,2],\"heads\":[[6,2]]" };
    static const char model[] = "llama:layers=4,width=512,heads=8,context=4096";
    const int64_t n = b->set.repetitions, length = b->given[option_find(options, OPTIONS, "--length", 8)] ? b->set.length : 4096;
    double *ratio = (double *)malloc((size_t)n * sizeof(double));
    ranks_bench r;
    int status = ranks_prepare(&r, b, b->given[option_find(options, OPTIONS, "--model", 7)] ? b->set.model : model, 1, length, 1);
    if (ratio == NULL) return fail(FAILED, "out of memory");
    for (int i = 0; i < 4 && status == 0; i++) {
        runner *run = ranks_next(&r, label[i], i > 0 ? 2 : 1, b->cpu, 1);
        char plan[300] = "dp";
        if (i > 0) run->device[1].speed = 1.0 / 3.0;
        if (b->set.devices == STEADY) steady_take(run->device, i > 0 ? 2 : 1, STEADY_SLEEPS);
        if (i > 0)
            snprintf(plan, sizeof plan, "{\"teams\":[{\"ranks\":[0,1],%s}],\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,%lld]}]}],"
                     "\"state_shares\":[3,1]}", team[i], (long long)(2 * r.model.layers + 2));
        status = ranks_create(&r, run, plan, NULL);
    }
    for (int64_t round = -1; round < n && status == 0; round++) status = ranks_round(&r, round);
    if (status == 0) {
        ranks_head(&r, "team");
        for (int i = 0; i < 4; i++) {
            char name[40];
            print_runner(&r, &r.run[i]), print_phases(&r.run[i]);
            for (int64_t round = 0; round < n; round++) ratio[round] = r.run[0].seconds[round] / r.run[i].seconds[round];
            snprintf(name, sizeof name, "%s_ratio", label[i]);
            if (i > 0) print_spread_of(name, 1, ratio, n);
        }
        ranks_tail(&r);
    }
    free(ratio);
    ranks_end(&r);
    return status;
}

/* What an action costs beside arithmetic: devices that compute nothing, 256 micro-batches of 8 tokens. */
static int bench_ranks_overhead(bench *b) {
    static const struct { const char *plan, *schedule; int64_t ranks; } shapes[] = {
        { "dp", "1f1b", 1 }, { "pp", "1f1b", 4 }, { "pp", "interleaved", 4 } };
    int i, status = 0;
    for (i = 0; i < 3 && status == 0; i++) {
        ranks_bench r;
        runner *run;
        int64_t round, k, actions = 0;
        status = ranks_prepare(&r, b, "gpt2:layers=7,width=16,heads=1,vocab=16,context=8", 1, 8, 256);
        if (status == 0) {
            run = ranks_next(&r, "step", shapes[i].ranks, het_null_device(), 1);
            status = ranks_create(&r, run, shapes[i].plan, shapes[i].schedule);
            for (round = -3; round < b->set.repetitions && status == 0; round++) status = ranks_step(&r, run, round);
        }
        if (status == 0) {
            for (k = 0; k < shapes[i].ranks; k++) {
                het_timeline timeline;
                het_get_timeline(run->ctx, k, &timeline);
                actions += timeline.records;
            }
            ranks_head(&r, "ranks_overhead");
            printf(",\"plan\":\"%s\",\"schedule\":\"%s\",\"ranks\":%lld,\"actions\":%lld", shapes[i].plan, shapes[i].schedule,
                   (long long)shapes[i].ranks, (long long)actions);
            print_spread_of("us_per_action", 1e6 / (double)actions, run->seconds, b->set.repetitions);
            print_spread_of("processor_us_per_action", 1e6 / (double)actions, run->processor, b->set.repetitions);
            ranks_tail(&r);
        }
        ranks_end(&r);
    }
    return status;
}

/* Lists for many ranks: made, completed, proven, simulated. */
static int bench_ranks_lists_of(const char *text, const char *name, int64_t ranks, int64_t micro_batches) {
    het_plan_desc desc;
    het_error error = { HET_OK, "" };
    het_plan *plan = NULL;
    het_schedule *compute = NULL, *whole = NULL;
    het_simulation *simulation = NULL;
    het_costs costs;
    het_stage_cost *stage = NULL;
    int64_t *counts = NULL, i;
    double at[6];
    het_result result;
    memset(&desc, 0, sizeof desc);
    memset(&costs, 0, sizeof costs);
    desc.units = strcmp(text, "pp") != 0 ? 16 : strcmp(name, "interleaved") == 0 ? 2 * ranks : ranks, desc.ranks = ranks, desc.schedule = name;
    at[0] = seconds_now();
    result = het_plan_read(&desc, text, strlen(text), &plan, &error);
    if (result == HET_OK) {
        counts = (int64_t *)malloc((size_t)plan->pipelines * sizeof(int64_t));
        costs.stage = stage = (het_stage_cost *)calloc((size_t)plan->stages, sizeof(het_stage_cost));
        if (counts == NULL || stage == NULL) return fail(FAILED, "out of memory");
        for (i = 0; i < plan->pipelines; i++) counts[i] = micro_batches;
        for (i = 0; i < plan->stages; i++) stage[i].forward.token = stage[i].input.token = stage[i].weight.token = 1, stage[i].backward.token = 2;
    }
    at[1] = seconds_now();
    if (result == HET_OK) result = het_schedule_make(plan, counts, NULL, &compute, &error);
    at[2] = seconds_now();
    if (result == HET_OK) result = het_schedule_complete(plan, NULL, compute, NULL, &whole, &error);
    at[3] = seconds_now();
    if (result == HET_OK) result = het_schedule_check(plan, NULL, whole, NULL, &error);
    at[4] = seconds_now();
    if (result == HET_OK) result = het_simulate(plan, whole, &costs, HET_NO, NULL, &simulation, &error);
    at[5] = seconds_now();
    if (result == HET_OK) {
        double actions = (double)whole->start[ranks];
        printf("{\"name\":\"ranks_lists\",\"plan\":\"%s\",\"schedule\":\"%s\",\"ranks\":%lld,\"micro_batches\":%lld,\"actions\":%.0f,"
               "\"read_s\":%.3f,\"make_s\":%.3f,\"complete_s\":%.3f,\"check_s\":%.3f,\"simulate_s\":%.3f,\"simulated_actions_per_s\":%.3e,"
               "\"bubble\":%.4f}\n", text, name, (long long)ranks, (long long)micro_batches, actions, at[1] - at[0], at[2] - at[1], at[3] - at[2],
               at[4] - at[3], at[5] - at[4], actions / (at[5] - at[4]), simulation->bubble);
        fflush(stdout);
    }
    het_simulation_free(simulation);
    het_schedule_free(whole);
    het_schedule_free(compute);
    het_plan_free(plan);
    free(counts);
    free(stage);
    return result == HET_OK ? 0 : fail(FAILED, "%s, %s: %s", text, name, error.text);
}

static int bench_ranks_lists(void) {
    static const char *const plans[] = { "pp", "dp1250xpp8" }, *const schedules[] = { "1f1b", "interleaved" };
    int i, status = 0;
    for (i = 0; i < 4 && status == 0; i++) status = bench_ranks_lists_of(plans[i / 2], schedules[i % 2], 10000, 64);
    return status;
}

static int bench_ranks(bench *b) {
    const char *model = b->given[option_find(options, OPTIONS, "--model", 7)] ? b->set.model : RANKS_MODEL;
    const int64_t what = b->set.what, all = what == ALL || what == RANKS;
    ranks_bench r;
    int status = ranks_prepare(&r, b, model, b->set.sequences, b->set.length, RANKS_MICRO_BATCHES);
    if (status == 0 && (all || what == RANKS_DP)) status = bench_ranks_dp(&r);
    if (status == 0 && (all || what == RANKS_PP)) status = bench_ranks_pp(&r);
    if (status == 0 && (all || what == RANKS_UNEQUAL)) status = bench_ranks_unequal(&r);
    ranks_end(&r);
    if (status == 0 && (all || what == RANKS_OVERHEAD)) status = bench_ranks_overhead(b);
    if (status == 0 && (all || what == RANKS_LISTS)) status = bench_ranks_lists();
    return status;
}

#include "predict.h"
#include "bench_plan.h"
#include "scaling.h"
#include "late.h"
#include "islands.h"

static int bench_scaling(void) {
    int r, own;
    for (r = 0; r < SCALING_ROWS; r++)
        for (own = 0; own < 2; own++) {
            scaling s = { 25e9, own, 0, 0, 0, { HET_OK, "" } };
            if (scaling_predict(&s, r) != HET_OK) return fail(FAILED, "--what scaling: %s", s.error.text);
            printf("{\"name\":\"scaling\",\"billions\":%.1f,\"devices\":%lld,\"team\":%lld,\"stages\":%lld,\"sequences\":%lld,\"teams_by\":\"%s\","
                   "\"step_s\":%.3f,\"idle\":%.4f,\"tflops\":%.1f,\"published\":%.0f,\"over_published\":%.3f}\n", scaling_row[r].billions,
                   (long long)scaling_row[r].devices, (long long)scaling_row[r].team, (long long)scaling_row[r].stages,
                   (long long)scaling_row[r].sequences, own ? "chains, exact sums" : "all-reduces", s.seconds, s.idle, s.tflops,
                   scaling_row[r].published, s.tflops / scaling_row[r].published);
            fflush(stdout);
        }
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

/* Memory as a context without an allocator has it: a plan says where its own is from. */
static int default_allocator(het_allocator *allocator) {
    het_plan shape, *plan = NULL;
    het_error error;
    memset(&shape, 0, sizeof shape);
    shape.units = shape.ranks = shape.pipelines = shape.stages = shape.slices = 1;
    if (het_plan_new(&shape, NULL, PROGRAM, &plan, &error) != HET_OK) return fail(FAILED, "%s", error.text);
    *allocator = plan->allocator;
    het_plan_free(plan);
    return 0;
}

static int run(bench *b, int argc, char **argv) {
    het_allocator allocator;
    het_parallel parallel;
    het_device_config config;
    settings *s = &b->set;
    int status;
    s->model = "gpt2:124m", s->sequences = 4, s->length = 256, s->threads = processors(), s->repetitions = 7;
    s->dtype = HET_F32, s->isa = 1, s->what = ALL, s->reduce = HET_REDUCE_EXACT, s->seed = 2026;
    status = options_parse("build/het_bench [options]\n\nMeasures the CPU device; prints JSON lines.", options, OPTIONS, s, b->given, argc, argv);
    if (status >= 0) return status;
    status = default_allocator(&allocator);
    if (status != 0) return status;
    if (s->parts) s->what = PARTS;
    if (s->devices == 0) s->devices = s->what == TEAM || s->what == ISLANDS ? CPU : STEADY;
    status = 0;
    if (s->what != ALL && (s->what < PREDICT || s->what > PREDICT_DIVIDED))
        status = options_idle(options, OPTIONS, b->given, "--svg", "but with --what predict");
    if (status == 0 && s->what != ALL && s->what != PREDICT)
        status = options_idle(options, OPTIONS, b->given, "--seed", "but with --what predict");
    if (status == 0 && (s->what < PREDICT || s->what > TEAM) && s->what != ISLANDS)
        status = options_idle(options, OPTIONS, b->given, "--devices", "but with --what predict, predict_slow, predict_divided, team and islands");
    if (status == 0 && s->what != STEP && s->what != ATTENTION)
        status = options_idle(options, OPTIONS, b->given, "--paced", "but with --what step and attention");
    if (status != 0) return status;
    b->threads = (int)s->threads;
    if ((status = model_from_spec("--model", s->model, &b->model)) != 0) return status;
    if (!b->given[option_find(options, OPTIONS, "--length", 8)] && s->length > b->model.context) s->length = b->model.context;
    if ((status = prepare(b)) != 0) return status;
    memset(&config, 0, sizeof config);
    memset(&parallel, 0, sizeof parallel); /* the device's own threads */
    config.allocator = &allocator, config.parallel = &parallel, config.threads = b->threads, config.isa = (het_isa)(s->isa - 1);
    config.fast = s->reduce == HET_REDUCE_FAST;
    b->cpu = het_cpu_device();
    if (b->cpu->create(&config, &b->self) != HET_OK) return fail(BAD_INPUT, "--isa: this machine or build does not have it");
    libraries_open(&b->library, b->threads);
    if (s->what == ALL || s->what == MACHINE) status = bench_machine(b);
    if (status == 0 && (s->what == ALL || s->what == PRODUCTS)) status = bench_products(b);
    if (status == 0 && (s->what == ALL || s->what == ATTENTION)) status = bench_attention(b);
    if (status == 0 && (s->what == ALL || s->what == STEP)) status = bench_step(b, 0);
    if (status == 0 && (s->what == ALL || s->what == PARTS)) status = bench_step(b, 1);
    if (status == 0 && (s->what == ALL || (s->what >= RANKS && s->what <= RANKS_LISTS))) status = bench_ranks(b);
    if (status == 0 && (s->what == ALL || s->what == PREDICT)) status = bench_predict(b, NULL, 0);
    if (status == 0 && (s->what == ALL || s->what == PREDICT_SLOW)) status = bench_predict(b, predict_slow, PREDICT_COUNT(predict_slow));
    if (status == 0 && (s->what == ALL || s->what == PREDICT_DIVIDED))
        status = bench_predict(b, predict_divided, PREDICT_COUNT(predict_divided));
    if (status == 0 && s->what == TEAM) status = bench_team(b);
    if (status == 0 && s->what == PLAN) status = bench_plan();
    if (status == 0 && s->what == SCALING) status = bench_scaling();
    if (status == 0 && s->what == LATE) status = bench_late(b);
    if (status == 0 && s->what == ISLANDS) status = bench_islands(b);
    return status;
}

static int program(int argc, char **argv) {
    bench b;
    int status;
    memset(&b, 0, sizeof b);
    status = run(&b, argc, argv);
    if (b.self != NULL) b.cpu->destroy(b.self);
    free(b.bounds);
    free(b.seconds);
    return status;
}

int main(int argc, char **argv) {
    program_begin();
    return program_end(program(argc, argv));
}
