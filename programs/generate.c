/* generate: continues a text with a trained model: weights that train wrote, or a Hugging Face directory.
     build/generate --init build/run --prompt "static int" --tokens 400 */
#define PROGRAM "generate"
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#define HETRAIN_EXPERTS_IMPLEMENTATION
#include "common.h"
#include "loaded.h"

typedef struct settings {
    loaded_options from;
    const char *prompt;
    int64_t tokens, top_k, no_cache, no_end, ids;
    double temperature, top_p;
    uint64_t seed;
} settings;

#define AT(field) offsetof(settings, field)
static const option options[] = {
    LOADED_ROWS(from),
    OPTION_TITLE("Text"),
    { "--prompt", "TEXT", OPTION_TEXT, AT(prompt), 0, 0, "text to continue, by default a line feed" },
    { "--tokens", "N", OPTION_INTEGER, AT(tokens), 0, 1e9, "tokens to print" },
    { "--temperature", "X", OPTION_REAL, AT(temperature), 0, 100, "0: always the likeliest token" },
    { "--top-k", "N", OPTION_INTEGER, AT(top_k), 0, 1e9, "draw from the N likeliest; 0: all" },
    { "--top-p", "P", OPTION_REAL, AT(top_p), 0, 1, "draw from the likeliest that reach P together; 0: all" },
    { "--seed", "N", OPTION_SEED, AT(seed), 0, 0, "of the draws" },
    { "--ignore-end", NULL, OPTION_FLAG, AT(no_end), 0, 0, "goes on behind the token that ends a text (eos_token_id of the files)" },
    { "--ids", NULL, OPTION_FLAG, AT(ids), 0, 0, "prints the drawn tokens' numbers, a line each, and no text" },
    { "--no-cache", NULL, OPTION_FLAG, AT(no_cache), 0, 0, "computes the whole text anew for every token: slower, same tokens" },
    OPTION_LAST_ROWS
};
enum { OPTIONS = (int)(sizeof options / sizeof options[0]) };

typedef struct generator {
    settings set;
    unsigned char given[OPTIONS];
    loaded model;
    int32_t *token;         /* prompt, then what was drawn */
    float *logits, *scratch;
    end_tokens end;
    text_out out;
} generator;

static void show(generator *g, int32_t token, int drawn) {
    const char *bytes;
    char byte;
    size_t length;
    if (g->set.ids && drawn) printf("%d\n", (int)token);
    if (!g->set.ids && token_bytes(g->model.tokenizer, token, &byte, &bytes, &length)) text_print(&g->out, bytes, length, 0);
}

/* Keys and values of past tokens are kept; when the context is full, the newer half of it starts a new one. */
static int generate(generator *g, int64_t count) {
    const settings *s = &g->set;
    const int64_t context = g->model.desc.limits.max_tokens, vocab = g->model.desc.model.vocab;
    int64_t first = 0, past = 0, drawn, have = count;
    double start = seconds_now();
    int ended = 0;
    for (drawn = 0; drawn < s->tokens && !ended && !ferror(stdout); drawn++) {
        het_result result;
        if (have - first > context) first = have - (context + 1) / 2, past = 0;
        if (s->no_cache) past = 0;
        result = het_infer(g->model.ctx, g->token + first + past, have - first - past, past, g->logits);
        if (result != HET_OK) return fail(status_of(result), "%s", het_last_error(g->model.ctx));
        past = have - first;
        g->token[have] = het_sample(g->logits, vocab, (float)s->temperature, s->top_k, (float)s->top_p, s->seed, (uint64_t)drawn, g->scratch);
        ended = !s->no_end && end_is(&g->end, g->token[have]);
        if (!ended || s->ids) show(g, g->token[have], 1);
        have++;
    }
    if (!s->ids) {
        text_print(&g->out, NULL, 0, 1);
        putchar('\n');
    }
    if (fflush(stdout) != 0 || ferror(stdout)) return 0; /* the text stands before the line about its speed */
    fprintf(stderr, "%lld tokens, %.0f tokens/s\n", (long long)drawn, (double)drawn / (seconds_now() - start));
    return 0;
}

static void least_held(const layout *l, int64_t rank, int64_t *least) {
    if (l->device[rank].max_tokens > 0 && l->device[rank].max_tokens < *least) *least = l->device[rank].max_tokens;
}

/* The most tokens that the ranks of a pipeline hold by #TOKENS, of the one that holds most; INT64_MAX: any number. */
static int64_t devices_hold(const layout *l) {
    const het_plan *plan = l->plan;
    int64_t most = 0;
    for (int64_t p = 0; p < (plan != NULL ? plan->pipelines : 1); p++) {
        int64_t least = INT64_MAX;
        if (plan == NULL) least_held(l, 0, &least);
        for (int64_t i = 0; plan != NULL && i < plan->ranks; i++) {
            int64_t count, stage = plan->first_stage[p];
            const het_team_member *team = het_plan_team(plan, i, &count);
            while (stage < plan->first_stage[p + 1] && plan->stage[stage].rank != (team != NULL ? team->leader : i)) stage++;
            if (stage < plan->first_stage[p + 1]) least_held(l, i, &least);
        }
        if (least > most) most = least;
    }
    return most;
}

static int run(generator *g, int argc, char **argv) {
    settings *s = &g->set;
    het_desc *d = &g->model.desc;
    int32_t *prompt = NULL;
    int64_t count = 0, i;
    int status;
    s->tokens = 400, s->temperature = 0.8, s->prompt = "\n";
    status = options_parse("build/generate --init DIR [options]\n\nPrints text continued by a trained model.", options, OPTIONS, s, g->given, argc,
                           argv);
    if (status >= 0) return status;
    status = s->temperature > 0 ? 0 : options_idle(options, OPTIONS, g->given, "--top-k --top-p --seed", "with --temperature 0, which draws nothing");
    if (status != 0) return status;
    if ((status = loaded_open(&g->model, &s->from)) != 0 || (status = loaded_takes_text(&g->model, &s->from)) != 0) return status;
    if ((status = text_encode("--prompt", g->model.tokenizer, 1, s->prompt, strlen(s->prompt), &prompt, &count)) != 0) return status;
    g->token = (int32_t *)realloc(prompt, (size_t)(count + s->tokens + 1) * sizeof *prompt);
    if (g->token == NULL) {
        free(prompt);
        return fail(FAILED, "out of memory");
    }
    if (count == 0) return fail(BAD_INPUT, "--prompt: it gives no token to begin with");
    if (d->model.causal == HET_NO) s->no_cache = 1; /* what comes later changes what was computed before */
    d->limits.max_tokens = count + s->tokens < d->model.context ? count + s->tokens : d->model.context; /* memory for no more than that */
    d->limits.max_sequences = 1, d->limits.max_micro_batches = 1;
    if ((status = loaded_create(&g->model, &s->from)) != 0) return status;
    if (devices_hold(&g->model.ranks) < d->limits.max_tokens)
        return fail(BAD_INPUT, "--devices %s: they hold %lld tokens (#TOKENS); prompt and --tokens take %lld", s->from.devices,
                    (long long)devices_hold(&g->model.ranks), (long long)d->limits.max_tokens);
    if (!s->no_end && (status = end_find(&g->end, s->from.init, d->model.vocab, g->model.tokenizer)) != 0) return status;
    g->logits = (float *)malloc((size_t)d->model.vocab * sizeof(float));
    g->scratch = (float *)malloc((size_t)d->model.vocab * sizeof(float));
    if (g->logits == NULL || g->scratch == NULL) return fail(FAILED, "out of memory");
    g->out.terminal = isatty(STDOUT_FILENO);
    for (i = 0; i < count; i++) show(g, g->token[i], 0);
    return generate(g, count);
}

static int program(int argc, char **argv) {
    generator *g = (generator *)calloc(1, sizeof *g);
    int status = g != NULL ? run(g, argc, argv) : fail(FAILED, "out of memory");
    if (g == NULL) return status;
    loaded_end(&g->model);
    free(g->token);
    free(g->logits);
    free(g->scratch);
    free(g);
    return status;
}

int main(int argc, char **argv) {
    program_begin();
    return program_end(program(argc, argv));
}
