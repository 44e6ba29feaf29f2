/* generate: prints text from weights that train wrote (or a Hugging Face directory with a byte vocabulary).
     build/generate --init build/run --prompt "static int" --tokens 400 */
#define PROGRAM "generate"
#define HETRAIN_IMPLEMENTATION
#include "common.h"

typedef struct settings {
    const char *init, *model, *prompt;
    int64_t tokens, top_k, threads;
    double temperature, top_p;
    uint64_t seed;
} settings;

#define AT(field) offsetof(settings, field)
static const option options[] = {
    { "--init", "FILE|DIR", OPTION_TEXT, AT(init), 0, 0, "weights (safetensors)" },
    { "--model", "SPEC", OPTION_TEXT, AT(model), 0, 0, "by default the config.json beside the weights" },
    { "--prompt", "TEXT", OPTION_TEXT, AT(prompt), 0, 0, "text to continue, by default a line feed" },
    { "--tokens", "N", OPTION_INTEGER, AT(tokens), 0, 1e9, "tokens to print" },
    { "--temperature", "X", OPTION_REAL, AT(temperature), 0, 100, "0: always the likeliest token" },
    { "--top-k", "N", OPTION_INTEGER, AT(top_k), 0, 1e9, "draw from the N likeliest; 0: all" },
    { "--top-p", "P", OPTION_REAL, AT(top_p), 0, 1, "draw from the likeliest that reach P together; 0: all" },
    { "--seed", "N", OPTION_SEED, AT(seed), 0, 0, "of the draws" },
    { "--threads", "N", OPTION_INTEGER, AT(threads), 1, 256, "by default all processors" },
    { "--help", NULL, OPTION_HELP, 0, 0, 0, "this text" },
    { "--tokenizer", "FILE", OPTION_LATER, 0, 0, 0, "later" },
};
enum { OPTIONS = (int)(sizeof options / sizeof options[0]) };

typedef struct generator {
    settings set;
    unsigned char given[OPTIONS];
    het_desc desc;
    het_device_desc device;
    het_ctx *ctx;
    int32_t *token;         /* prompt, then what was drawn */
    float *logits, *scratch;
    int terminal;
} generator;

/* Control characters could change the terminal's state. */
static void print_byte(const generator *g, int32_t byte) {
    int plain = byte == '\n' || byte == '\t' || (byte >= 32 && byte != 127);
    putchar(plain || !g->terminal ? (int)byte : '?');
    fflush(stdout);
}

/* Keys and values of past tokens are kept; when the context is full, the newer half of it starts a new one. */
static int generate(generator *g, int64_t count) {
    const settings *s = &g->set;
    int64_t context = g->desc.model.context, first = count > context ? count - context / 2 : 0, past = 0, drawn, have = count;
    double start = seconds_now();
    for (drawn = 0; drawn < s->tokens; drawn++) {
        het_result result;
        if (have - first > context) first = have - (context + 1) / 2, past = 0;
        result = het_infer(g->ctx, g->token + first + past, have - first - past, past, g->logits);
        if (result != HET_OK) return fail(status_of(result), "%s", het_last_error(g->ctx));
        past = have - first;
        g->token[have] = het_sample(g->logits, g->desc.model.vocab, (float)s->temperature, s->top_k, (float)s->top_p, s->seed, (uint64_t)drawn,
                                    g->scratch);
        print_byte(g, g->token[have++]);
    }
    putchar('\n');
    if (fflush(stdout) != 0) return fail(FAILED, "standard output: %s", strerror(errno)); /* the text stands before the line about its speed */
    fprintf(stderr, "%lld tokens, %.0f tokens/s\n", (long long)drawn, (double)drawn / (seconds_now() - start));
    return 0;
}

static int run(generator *g, int argc, char **argv) {
    settings *s = &g->set;
    het_error error = { HET_OK, "" };
    het_result result;
    char weights[1024];
    size_t length, i;
    int status;
    s->tokens = 400, s->temperature = 0.8, s->prompt = "\n", s->threads = processors();
    status = options_parse("build/generate --init DIR [options]\n\nPrints text continued by a trained model.", options, OPTIONS, s, g->given, argc,
                           argv);
    if (status >= 0) return status;
    if (s->init == NULL) return fail(BAD_INPUT, "--init: missing; --help lists the options");
    if ((status = model_from_init(s->init, s->model, &g->desc.model, weights, sizeof weights)) != 0) return status;
    if (g->desc.model.vocab < 256) return fail(BAD_INPUT, "--init %s: vocabulary %lld holds no bytes", s->init, (long long)g->desc.model.vocab);
    if (g->desc.model.vocab > 256)
        return fail(BAD_INPUT, "--init %s: vocabulary %lld needs a tokenizer: not yet in this version", s->init, (long long)g->desc.model.vocab);
    g->device.threads = (int32_t)s->threads;
    g->desc.devices = &g->device, g->desc.device_count = 1, g->desc.inference = HET_YES;
    g->desc.max_tokens = g->desc.model.context, g->desc.max_sequences = 1, g->desc.max_micro_batches = 1;
    result = het_create(&g->desc, &g->ctx, &error);
    if (result != HET_OK) return fail(status_of(result), "%s", error.text);
    if ((status = load_weights(g->ctx, "--init", weights)) != 0) return status;
    length = strlen(s->prompt);
    g->token = (int32_t *)malloc((length + (size_t)s->tokens + 1) * sizeof(int32_t));
    g->logits = (float *)malloc((size_t)g->desc.model.vocab * sizeof(float));
    g->scratch = (float *)malloc((size_t)g->desc.model.vocab * sizeof(float));
    if (g->token == NULL || g->logits == NULL || g->scratch == NULL) return fail(FAILED, "out of memory");
    g->terminal = isatty(STDOUT_FILENO);
    for (i = 0; i < length; i++) {
        g->token[i] = (unsigned char)s->prompt[i];
        print_byte(g, g->token[i]);
    }
    return generate(g, (int64_t)length);
}

int main(int argc, char **argv) {
    generator g;
    int status;
    memset(&g, 0, sizeof g);
    status = run(&g, argc, argv);
    het_destroy(g.ctx);
    free(g.token);
    free(g.logits);
    free(g.scratch);
    return status;
}
