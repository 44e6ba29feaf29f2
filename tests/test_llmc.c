/* llm.c's debug state as an oracle: logits, loss and gradients that PyTorch computed in double (tests/oracle/llmc.py) for the weights in the file
   beside it. A file of one's own, or llm.c's gpt2_124M_debug_state.bin: test_llmc MODEL.bin STATE.bin */
#include "support.h"

#include "programs/llmc.h"

typedef struct debug_state {
    support_buffer file;
    int64_t batch, length;            /* B sequences of T tokens */
    int32_t *x, *y;                   /* [B][T] */
    const unsigned char *logits;      /* [B][T][V] */
    double loss;
    const unsigned char *gradients;   /* of the parameters in llm.c's order, wte with Vp rows */
    size_t gradient_count;
} debug_state;

static const char *model_path = "tests/oracle/data/llmc/model.bin", *state_path = "tests/oracle/data/llmc/state.bin";

static void load_file(support_buffer *file, const char *path)
{
    unsigned char piece[4096];
    size_t got;
    FILE *from = fopen(path, "rb");
    if (from == NULL) fail_msg("%s is missing", path);
    support_buffer_start(file);
    while ((got = fread(piece, 1, sizeof piece, from)) > 0) support_buffer_append(file, piece, got);
    fclose(from);
}

static int32_t integer_at(const unsigned char *at)
{
    return (int32_t)((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
}

static float float_at(const unsigned char *at)
{
    const int32_t bits = integer_at(at);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Splits the file into its parts and checks that it has not a byte more. */
static void open_state(debug_state *s, const het_model_desc *model, int64_t padded)
{
    const int64_t per_layer = (12 * model->width + 13) * model->width;
    int64_t i, n;
    load_file(&s->file, state_path);
    assert_true(s->file.size > 1024);
    assert_int_equal(integer_at(s->file.data), 20240327);
    assert_int_equal(integer_at(s->file.data + 4), 2);
    s->batch = integer_at(s->file.data + 8);
    s->length = integer_at(s->file.data + 12);
    assert_true(s->batch >= 1 && s->length >= 1 && s->length <= model->context);
    n = s->batch * s->length;
    s->gradient_count = (size_t)((padded + model->context + 2) * model->width + model->layers * per_layer);
    assert_int_equal(s->file.size, 1024 + (size_t)n * 8 + (size_t)(n * model->vocab) * 4 + 4 + s->gradient_count * 4);
    s->x = support_alloc((size_t)n, sizeof *s->x);
    s->y = support_alloc((size_t)n, sizeof *s->y);
    for (i = 0; i < n; i++) {
        s->x[i] = integer_at(s->file.data + 1024 + 4 * i);
        s->y[i] = integer_at(s->file.data + 1024 + 4 * (n + i));
    }
    s->logits = s->file.data + 1024 + 8 * n;
    s->loss = (double)float_at(s->logits + 4 * n * model->vocab);
    s->gradients = s->logits + 4 * n * model->vocab + 4;
}

static void close_state(debug_state *s)
{
    support_buffer_end(&s->file);
    free(s->x);
    free(s->y);
}

/* ---- gradients ---- */

/* The parameters of a kind and layer, each [out][in], one below the other in the file. */
typedef struct kind { const char *name[3]; } kind;
static const kind kinds[] = {
    { { "wte.weight", NULL, NULL } }, { { "wpe.weight", NULL, NULL } }, { { "h.#.ln_1.weight", NULL, NULL } }, { { "h.#.ln_1.bias", NULL, NULL } },
    { { "h.#.attn.c_attn.q.weight", "h.#.attn.c_attn.k.weight", "h.#.attn.c_attn.v.weight" } },
    { { "h.#.attn.c_attn.q.bias", "h.#.attn.c_attn.k.bias", "h.#.attn.c_attn.v.bias" } },
    { { "h.#.attn.c_proj.weight", NULL, NULL } }, { { "h.#.attn.c_proj.bias", NULL, NULL } }, { { "h.#.ln_2.weight", NULL, NULL } },
    { { "h.#.ln_2.bias", NULL, NULL } }, { { "h.#.mlp.c_fc.weight", NULL, NULL } }, { { "h.#.mlp.c_fc.bias", NULL, NULL } },
    { { "h.#.mlp.c_proj.weight", NULL, NULL } }, { { "h.#.mlp.c_proj.bias", NULL, NULL } }, { { "ln_f.weight", NULL, NULL } },
    { { "ln_f.bias", NULL, NULL } }
};

static int64_t find_parameter(het_ctx *ctx, const char *name, int64_t layer, het_parameter_info *info)
{
    const char *mark = strchr(name, '#');
    char full[128];
    int64_t p;
    if (mark != NULL) snprintf(full, sizeof full, "transformer.%.*s%lld%s", (int)(mark - name), name, (long long)layer, mark + 1);
    else snprintf(full, sizeof full, "transformer.%s", name);
    for (p = 0; p < het_parameter_count(ctx); p++) {
        EXPECT_OK(het_parameter_get_info(ctx, p, info));
        if (strcmp(info->name, full) == 0) return p;
    }
    fail_msg("no parameter %s", full);
    return -1;
}

/* Norm of the difference, over the norm of the truth if `relative`. */
static double apart(const float *value, const unsigned char *truth, int64_t count, int relative)
{
    double squares = 0.0, norm = 0.0;
    int64_t i;
    for (i = 0; i < count; i++) {
        const double right = (double)float_at(truth + 4 * i), off = (double)value[i] - right;
        squares += off * off;
        norm += right * right;
    }
    return relative && norm > 0.0 ? sqrt(squares / norm) : sqrt(squares);
}

/* The keys' bias has no gradient, as a constant added to a row of scores leaves its softmax: what stands there is rounding. */
static void check_gradients(het_ctx *ctx, const debug_state *s, int64_t padded)
{
    const het_model_desc *model = &het_get_desc(ctx)->model;
    const unsigned char *at = s->gradients;
    int64_t layer, seen = 0;
    double worst = 0.0;
    size_t i;
    int part;
    for (i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        for (layer = 0; layer < (strchr(kinds[i].name[0], '#') != NULL ? model->layers : 1); layer++) {
            for (part = 0; part < 3 && kinds[i].name[part] != NULL; part++, seen++) {
                het_parameter_info info;
                const int64_t p = find_parameter(ctx, kinds[i].name[part], layer, &info);
                float *value = support_alloc((size_t)info.count, sizeof *value);
                double off;
                EXPECT_OK(het_parameter_read(ctx, p, HET_GRADIENT, value));
                off = apart(value, at, info.count, strstr(info.name, "c_attn.k.bias") == NULL);
                if (!(off < 1e-5)) fail_msg("gradient of %s is off by %.3g", info.name, off);
                if (off > worst) worst = off;
                at += 4 * info.count;
                free(value);
            }
        }
        if (i == 0) at += 4 * (padded - model->vocab) * model->width;
    }
    assert_int_equal(at - s->gradients, 4 * s->gradient_count);
    assert_int_equal(seen, het_parameter_count(ctx));
    print_message("gradients of %lld parameters, worst relative difference %.2g\n", (long long)seen, worst);
}

/* ---- logits: of every position, as the last of the tokens before it ---- */

static void check_logits(het_ctx *ctx, const debug_state *s)
{
    const int64_t vocab = het_get_desc(ctx)->model.vocab;
    float *value = support_alloc((size_t)vocab, sizeof *value);
    double worst = 0.0;
    int64_t b, t;
    for (b = 0; b < s->batch; b++)
        for (t = 0; t < s->length; t++) {
            const int64_t row = b * s->length + t;
            double off;
            EXPECT_OK(het_infer(ctx, s->x + row, 1, t, value));
            off = apart(value, s->logits + 4 * row * vocab, vocab, 1);
            if (off > worst) worst = off;
        }
    free(value);
    print_message("logits of %lld tokens, worst relative difference %.2g\n", (long long)(s->batch * s->length), worst);
    assert_true(worst < 1e-5);
}

static void an_oracle_of_llmc(void **state)
{
    support_buffer weights;
    het_reader from;
    het_desc desc;
    het_error error;
    het_ctx *ctx;
    het_batch batch;
    het_step_info info;
    debug_state s;
    int64_t padded, *start, b;
    (void)state;
    load_file(&weights, model_path);
    from = support_reader(&weights);
    memset(&desc, 0, sizeof desc);
    support_expect(llmc_model(&from, &desc.model, &error), HET_OK, error.text, "", "llmc_model", __LINE__);
    padded = integer_at(weights.data + 28);
    open_state(&s, &desc.model, padded);
    desc.limits.max_tokens = s.batch * s.length;
    desc.limits.max_sequences = s.batch;
    ctx = support_create(&desc);
    support_expect(llmc_load(ctx, &from, &error), HET_OK, error.text, "", "llmc_load", __LINE__);
    start = support_alloc((size_t)s.batch + 1, sizeof *start);
    for (b = 0; b <= s.batch; b++) start[b] = b * s.length;
    memset(&batch, 0, sizeof batch);
    batch.tokens = desc.limits.max_tokens;
    batch.sequences = s.batch;
    batch.token = s.x;
    batch.target = s.y;
    batch.sequence_start = start;
    EXPECT_OK(het_gradients(ctx, &batch, 1, &info));
    print_message("loss %.7f, in the file %.7f\n", info.loss, s.loss);
    assert_true(fabs(info.loss - s.loss) < 1e-6 * s.loss);
    check_gradients(ctx, &s, padded);
    check_logits(ctx, &s);
    het_destroy(ctx);
    close_state(&s);
    support_buffer_end(&weights);
    free(start);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(an_oracle_of_llmc) };
    if (argc == 3) {
        model_path = argv[1];
        state_path = argv[2];
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
