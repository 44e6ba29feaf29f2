/* Whole models against PyTorch: every file of tests/oracle/data is a test. It holds a model, a batch, PyTorch's loss and gradients, and
   ten AdamW steps (tests/oracle/README.md). Each is run in several ways that must all agree with it:

     exact     fused backward pass, one thread
     fast      float sums
     split     backward_input and backward_weight apart, everything recomputed, three threads: the bits of `exact`
     slices    one sequence a granule, micro-batches in three slices (causal models), weight gradients at the end of the step, plain C

   Of another device than the CPU (ORACLE_DEVICE) `exact` alone, and not gpt2_bf16, which rounds where the CPU does.

   Usage: test_oracle [folder], the folder is tests/oracle/data unless given. */
#include "oracle/oracle_file.h"

#include "hetrain_files.h"

#include <dirent.h>

#define MAX_FILES 64
#define MAX_MICRO_BATCHES 8
#define MAX_MESSAGES 8 /* a way */
#ifdef ORACLE_DEVICE
enum { WAYS = 1 };
#define ORACLE_LEFT_OUT "gpt2_bf16.safetensors"
#else
enum { WAYS = 4 };
#define ORACLE_DEVICE NULL
#define ORACLE_LEFT_OUT ""
#endif

typedef struct oracle_case {
    oracle_file file;
    het_model_desc model;
    het_batch batch[MAX_MICRO_BATCHES];
    int64_t *sequence_start[MAX_MICRO_BATCHES]; /* each from 0 */
    int64_t batches, max_tokens, max_sequences, sequences, tokens;
    double weight;                              /* sum over targets */
    int64_t parameters;                         /* tensors called weight/... */
} oracle_case;

typedef struct oracle_way {
    const char *name;
    het_reduce reduce;
    het_backward backward;
    het_choice recompute;
    int32_t threads;
    het_isa isa;
    int64_t slices, granule;
} oracle_way;

/* The largest differences met, and the bits that `exact` and `split` share. */
typedef struct oracle_outcome {
    int failures;
    double loss, gradient, gradient_norm, final;
    char worst_gradient[96], worst_final[96];
    uint64_t gradient_hash, weight_hash;
} oracle_outcome;

static double relative(double value, double truth)
{
    double difference = fabs(value - truth);
    return truth != 0.0 ? difference / fabs(truth) : difference;
}

/* Norm of the difference over norm. Elements whose truth is NaN have no truth (their gradient is rounding noise). */
static double difference(const float *value, const float *truth, int64_t count)
{
    double squares = 0.0, norm = 0.0;
    int64_t i;
    for (i = 0; i < count; i++) {
        double apart = (double)value[i] - (double)truth[i];
        if (isnan(truth[i])) continue;
        squares += apart * apart;
        norm += (double)truth[i] * (double)truth[i];
    }
    return norm > 0.0 ? sqrt(squares / norm) : sqrt(squares);
}

/* Counts a failure when `value` is above `limit` or not a number. */
static void judge(oracle_outcome *outcome, double value, double limit, const char *way, const char *what, const char *where)
{
    if (value <= limit) return;
    if (outcome->failures++ == MAX_MESSAGES) print_error("  %s: more\n", way);
    if (outcome->failures > MAX_MESSAGES) return;
    print_error("  %s: %s %s is off by %.3g, allowed is %.3g\n", way, what, where, value, limit);
}

/* ---- reading a case ---- */

static void read_model(oracle_case *c)
{
    const char *now = oracle_get_text(&c->file, "config"), *before = oracle_find_text(&c->file, "config_v4");
    het_error error;
    memset(&error, 0, sizeof error);
    support_expect(het_model_from_json(now, strlen(now), &c->model, &error), HET_OK, error.text, "", "config", __LINE__);
    if (before) { /* the same model in the words of transformers 4 */
        het_model_desc older;
        char text[2][4096];
        size_t length;
        support_expect(het_model_from_json(before, strlen(before), &older, &error), HET_OK, error.text, "", "config_v4", __LINE__);
        EXPECT_OK(het_model_to_json(&c->model, text[0], sizeof text[0], &length));
        EXPECT_OK(het_model_to_json(&older, text[1], sizeof text[1], &length));
        assert_string_equal(text[0], text[1]);
    }
    if (strcmp(oracle_get_text(&c->file, "causal"), "no") == 0) c->model.causal = HET_NO; /* config.json has no word for it */
}

static void read_batches(oracle_case *c)
{
    const char *at = oracle_get_text(&c->file, "micro_batch_sequences");
    const int32_t *token, *target;
    const int64_t *start;
    const float *weight = NULL;
    int64_t first = 0, i;
    c->sequences = oracle_find(&c->file, "", "sequence_start")->count - 1;
    start = oracle_i64(&c->file, "sequence_start", c->sequences + 1);
    c->tokens = start[c->sequences];
    token = oracle_i32(&c->file, "tokens", c->tokens);
    target = oracle_i32(&c->file, "targets", c->tokens);
    if (oracle_find(&c->file, "", "weights")) weight = oracle_f32(&c->file, "", "weights", c->tokens);
    for (i = 0; i < c->tokens; i++) if (target[i] >= 0) c->weight += weight ? (double)weight[i] : 1.0;
    do {
        het_batch *batch = &c->batch[c->batches];
        int64_t *own = (int64_t *)support_alloc((size_t)c->sequences + 1, sizeof *own);
        int64_t count = oracle_integer(&at);
        assert_true(c->batches < MAX_MICRO_BATCHES && first + count <= c->sequences);
        c->sequence_start[c->batches++] = own;
        for (i = 0; i <= count; i++) own[i] = start[first + i] - start[first];
        batch->tokens = own[count];
        batch->sequences = count;
        batch->token = token + start[first];
        batch->target = target + start[first];
        batch->weight = weight ? weight + start[first] : NULL;
        batch->sequence_start = own;
        if (batch->tokens > c->max_tokens) c->max_tokens = batch->tokens;
        if (count > c->max_sequences) c->max_sequences = count;
        first += count;
    } while (oracle_take(&at, ','));
    assert_int_equal(first, c->sequences);
}

static void case_open(oracle_case *c, const char *path)
{
    int i;
    memset(c, 0, sizeof *c);
    oracle_file_open(&c->file, path);
    read_model(c);
    read_batches(c);
    for (i = 0; i < c->file.tensors; i++) c->parameters += strncmp(c->file.tensor[i].name, "weight/", 7) == 0;
}

static void case_close(oracle_case *c)
{
    int64_t i;
    for (i = 0; i < c->batches; i++) free(c->sequence_start[i]);
    oracle_file_close(&c->file);
}

static het_desc describe(const oracle_case *c, const oracle_way *way, het_device_desc *device)
{
    const oracle_file *f = &c->file;
    het_desc desc;
    memset(&desc, 0, sizeof desc);
    memset(device, 0, sizeof *device);
    device->iface = ORACLE_DEVICE;
    device->threads = way->threads;
    device->isa = way->isa;
    desc.model = c->model;
    desc.layout.devices = device;
    desc.layout.device_count = 1;
    desc.limits.max_tokens = c->max_tokens;
    desc.limits.max_sequences = c->max_sequences;
    desc.limits.max_micro_batches = c->batches;
    desc.limits.max_slices = way->slices;
    desc.layout.backward = way->backward;
    desc.layout.recompute = way->recompute;
    desc.granule = way->granule;
    desc.reduce = way->reduce;
    desc.dtype = strcmp(oracle_get_text(f, "dtype"), "f32") == 0 ? HET_F32 : HET_BF16;
    desc.optimizer.learning_rate = (float)oracle_get_number(f, "learning_rate");
    desc.optimizer.minimum_rate = (float)oracle_get_number(f, "minimum_rate");
    desc.optimizer.warmup_steps = (int64_t)oracle_get_number(f, "warmup_steps");
    desc.optimizer.total_steps = (int64_t)oracle_get_number(f, "total_steps");
    desc.optimizer.schedule = HET_LR_COSINE;
    desc.optimizer.beta1 = (float)oracle_get_number(f, "beta1");
    desc.optimizer.beta2 = (float)oracle_get_number(f, "beta2");
    desc.optimizer.epsilon = (float)oracle_get_number(f, "epsilon");
    desc.optimizer.weight_decay = (float)oracle_get_number(f, "weight_decay");
    desc.optimizer.clip = (float)oracle_get_number(f, "clip");
    return desc;
}

/* ---- comparing ---- */

/* Writes PyTorch's initial weights. The names must be the same set. */
static void write_weights(const oracle_case *c, het_ctx *ctx)
{
    het_tensor_info info;
    int64_t i, count = het_tensor_count(ctx);
    for (i = 0; i < count; i++) {
        EXPECT_OK(het_tensor_get_info(ctx, i, &info));
        EXPECT_OK(het_tensor_write(ctx, i, HET_WEIGHT, oracle_f32(&c->file, "weight", info.name, info.count)));
    }
    assert_int_equal(count, c->parameters);
}

/* All tensors of one kind against the file's; the largest difference and its place go to *worst and place. Returns a hash of their bits. */
static uint64_t compare_tensors(const oracle_case *c, het_ctx *ctx, het_array what, const char *kind, double limit, const char *way,
                                oracle_outcome *outcome, double *worst, char place[96])
{
    het_tensor_info info;
    uint64_t hash = 0;
    int64_t i;
    for (i = 0; i < het_tensor_count(ctx); i++) {
        float *value;
        double apart;
        EXPECT_OK(het_tensor_get_info(ctx, i, &info));
        value = (float *)support_alloc((size_t)info.count, sizeof *value);
        EXPECT_OK(het_tensor_read(ctx, i, what, value));
        hash = het_xxh64(value, (size_t)info.count * sizeof *value, hash);
        apart = difference(value, oracle_f32(&c->file, kind, info.name, info.count), info.count);
        free(value);
        judge(outcome, apart, limit, way, kind, info.name);
        if (!(apart <= *worst)) {
            *worst = apart;
            memcpy(place, info.name, sizeof info.name);
        }
    }
    return hash;
}

static void check_gradients(const oracle_case *c, het_ctx *ctx, const oracle_way *way, oracle_outcome *outcome)
{
    const double *truth = oracle_f64(&c->file, "loss", 1);
    double limit = oracle_get_number(&c->file, "tolerance_loss"), unchanged = 0.0;
    char place[96];
    het_step_info info;
    memset(&info, 0, sizeof info);
    EXPECT_OK(het_evaluate(ctx, c->batch, c->batches, &info));
    judge(outcome, relative(info.loss, *truth), limit, way->name, "loss of", "het_evaluate");
    judge(outcome, relative(info.weight, c->weight), 1e-12, way->name, "weight of", "het_evaluate");
    memset(&info, 0, sizeof info);
    EXPECT_OK(het_gradients(ctx, c->batch, c->batches, &info));
    judge(outcome, relative(info.loss, *truth), limit, way->name, "loss of", "het_gradients");
    judge(outcome, relative(info.weight, c->weight), 1e-12, way->name, "weight of", "het_gradients");
    assert_int_equal(info.tokens, c->tokens);
    outcome->gradient_hash = compare_tensors(c, ctx, HET_GRADIENT, "grad", oracle_get_number(&c->file, "tolerance_gradient"), way->name,
                                             outcome, &outcome->gradient, outcome->worst_gradient);
    (void)compare_tensors(c, ctx, HET_WEIGHT, "weight", 0.0, way->name, outcome, &unchanged, place);
}

static void check_steps(const oracle_case *c, het_ctx *ctx, const oracle_way *way, oracle_outcome *outcome)
{
    int64_t i, steps = oracle_find(&c->file, "", "losses")->count;
    const double *loss = oracle_f64(&c->file, "losses", steps), *norm = oracle_f64(&c->file, "grad_norms", steps);
    const double *rate = oracle_f64(&c->file, "learning_rates", steps);
    double limit = oracle_get_number(&c->file, "tolerance_loss");
    for (i = 0; i < steps; i++) {
        char where[32];
        het_step_info info;
        memset(&info, 0, sizeof info);
        snprintf(where, sizeof where, "step %d", (int)i);
        EXPECT_OK(het_step(ctx, c->batch, c->batches, &info));
        judge(outcome, relative(info.loss, loss[i]), limit, way->name, "loss of", where);
        judge(outcome, relative(info.gradient_norm, norm[i]), limit, way->name, "gradient norm of", where);
        judge(outcome, relative(info.learning_rate, rate[i]), 1e-6, way->name, "learning rate of", where);
        outcome->loss = fmax(outcome->loss, relative(info.loss, loss[i]));
        outcome->gradient_norm = fmax(outcome->gradient_norm, relative(info.gradient_norm, norm[i]));
    }
    (void)compare_tensors(c, ctx, HET_WEIGHT, "final", oracle_get_number(&c->file, "tolerance_final"), way->name, outcome, &outcome->final,
                          outcome->worst_final);
    outcome->weight_hash = support_hash(ctx);
}

static oracle_outcome run_way(const oracle_case *c, const oracle_way *way)
{
    oracle_outcome outcome;
    het_device_desc device;
    het_desc desc = describe(c, way, &device);
    het_ctx *ctx = support_create(&desc);
    memset(&outcome, 0, sizeof outcome);
    write_weights(c, ctx);
    check_gradients(c, ctx, way, &outcome);
    check_steps(c, ctx, way, &outcome);
    het_destroy(ctx);
    print_message("  %-7s losses %.1e, gradient norms %.1e, gradients %.1e (%s), weights after ten steps %.1e (%s)\n", way->name, outcome.loss,
                  outcome.gradient_norm, outcome.gradient, outcome.worst_gradient, outcome.final, outcome.worst_final);
    return outcome;
}

/* ---- the tests ---- */

static void test_file(void **state)
{
    static const oracle_way way[4] = {
        { "exact", HET_REDUCE_EXACT, HET_BACKWARD_FUSED, HET_NO, 1, HET_ISA_AUTO, 1, 0 },
        { "fast", HET_REDUCE_FAST, HET_BACKWARD_FUSED, HET_NO, 1, HET_ISA_AUTO, 1, 0 },
        { "split", HET_REDUCE_EXACT, HET_BACKWARD_SPLIT, HET_YES, 3, HET_ISA_AUTO, 1, 0 },
        { "slices", HET_REDUCE_EXACT, HET_BACKWARD_DEFERRED, HET_NO, 2, HET_ISA_PLAIN, 3, 1 }
    };
    oracle_outcome outcome[WAYS];
    oracle_case c;
    int i, failures = 0;
    case_open(&c, (const char *)*state);
    print_message("  noise   losses %s, gradients %s, weights after ten steps %s (PyTorch in float32 against float64)\n",
                  oracle_get_text(&c.file, "noise_loss"), oracle_get_text(&c.file, "noise_gradient"), oracle_get_text(&c.file, "noise_final"));
    for (i = 0; i < WAYS; i++) {
        oracle_way present = way[i];
        if (c.model.causal == HET_NO) present.slices = 1; /* every token sees every other: nothing to cut */
        outcome[i] = run_way(&c, &present);
        failures += outcome[i].failures;
    }
    case_close(&c);
    assert_int_equal(failures, 0);
    assert_true(outcome[0].gradient_hash == outcome[WAYS / 2].gradient_hash); /* split's; the only one has its own */
    assert_true(outcome[0].weight_hash == outcome[WAYS / 2].weight_hash);
}

/* Paths of the folder's references, sorted. */
static int list_files(const char *folder, char *path[MAX_FILES])
{
    DIR *directory = opendir(folder);
    struct dirent *entry;
    int count = 0, i;
    while (directory && (entry = readdir(directory)) != NULL) {
        const char *ending = strrchr(entry->d_name, '.');
        size_t size = strlen(folder) + strlen(entry->d_name) + 2;
        char *name;
        if (!ending || strcmp(ending, ".safetensors") != 0 || count == MAX_FILES || strcmp(entry->d_name, ORACLE_LEFT_OUT) == 0) continue;
        name = (char *)malloc(size);
        if (!name) break;
        snprintf(name, size, "%s/%s", folder, entry->d_name);
        for (i = count++; i > 0 && strcmp(path[i - 1], name) > 0; i--) path[i] = path[i - 1];
        path[i] = name;
    }
    if (directory) closedir(directory);
    return count;
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : "tests/oracle/data";
    struct CMUnitTest tests[MAX_FILES];
    char *path[MAX_FILES];
    int i, result, count = list_files(folder, path);
    if (count == 0) {
        fprintf(stderr, "test_oracle: no references in %s\n", folder);
        return 1;
    }
    memset(tests, 0, sizeof tests); /* cmocka leaves out tests without a name */
    for (i = 0; i < count; i++) {
        tests[i].name = strrchr(path[i], '/') + 1;
        tests[i].test_func = test_file;
        tests[i].initial_state = path[i];
    }
    result = cmocka_run_group_tests_name("oracle", tests, NULL, NULL);
    for (i = 0; i < count; i++) free(path[i]);
    return result;
}
