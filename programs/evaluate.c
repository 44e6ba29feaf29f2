/* evaluate: how well a trained model predicts a text, or answers multiple-choice questions.
     build/evaluate --init build/run --data text.txt                 loss, perplexity, bits per byte
     build/evaluate --init gpt2 --choices hellaswag_val.bin          llm.c's evaluation files: share of questions answered right */
#define PROGRAM "evaluate"
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#define HETRAIN_EXPERTS_IMPLEMENTATION
#include "common.h"
#include "choices.h"
#include "loaded.h"

typedef struct settings {
    loaded_options from;
    const char *data, *choices;
    int64_t length, stride, sequences, questions, dtype, json;
} settings;

#define AT(field) offsetof(settings, field)
static const option options[] = {
    LOADED_ROWS(from),
    OPTION_TITLE("What is evaluated, and how"),
    { "--data", "FILE", OPTION_TEXT, AT(data), 0, 0, "text, llm.c tokens, or nanoGPT tokens (*.bin)" },
    { "--choices", "FILE", OPTION_TEXT, AT(choices), 0, 0, "multiple-choice questions: llm.c's evaluation files (HellaSwag, MMLU)" },
    { "--length", "T", OPTION_INTEGER, AT(length), 2, 1e9, "of --data: tokens a window; default: the model's context" },
    { "--stride", "N", OPTION_INTEGER, AT(stride), 1, 1e9, "tokens from a window to the next; fewer than T: the first T - N are only context [T]" },
    { "--sequences", "B", OPTION_INTEGER, AT(sequences), 1, 1e6, "windows at once" },
    { "--questions", "N", OPTION_INTEGER, AT(questions), 1, 65536, "only the first N of --choices" },
    { "--dtype", "f32|bf16", OPTION_CHOICE, AT(dtype), 0, 0, "operands of the products" },
    { "--json", NULL, OPTION_FLAG, AT(json), 0, 0, "one line of JSON; what is nan or inf is null" },
    OPTION_LAST_ROWS
};
enum { OPTIONS = (int)(sizeof options / sizeof options[0]) };

typedef struct evaluation {
    settings set;
    unsigned char given[OPTIONS];
    loaded model;
    int32_t *token, *target;   /* target: [micro-batches of a call][sequences][length] */
    int64_t tokens;
    int64_t *start;            /* [micro-batches of a call][sequences + 1] */
    choice_list choices;
    double began;
} evaluation;

/* ---- text ---------------------------------------------------------------------------------------------------------------- */

/* The ids in a token file, which het_data_open proves. */
static int read_tokens(evaluation *e, const het_reader *reader, het_data_format format) {
    het_error error = { HET_OK, "" };
    het_data_desc desc;
    het_data_info info;
    het_data *data = NULL;
    het_result result;
    memset(&desc, 0, sizeof desc);
    desc.reader = *reader, desc.format = format, desc.vocab = e->model.desc.model.vocab, desc.held_out = -1;
    desc.length = desc.sequences = desc.slots = 1;
    result = het_data_open(&desc, &data, &error);
    if (result == HET_OK) {
        het_data_get_info(data, &info);
        e->tokens = info.tokens;
        e->token = (int32_t *)malloc((size_t)e->tokens * sizeof *e->token);
        if (e->token == NULL) result = HET_ERR_OOM, snprintf(error.text, sizeof error.text, "no memory for %lld tokens", (long long)e->tokens);
        else result = het_data_tokens(data, 0, e->tokens, e->token, &error);
    }
    het_data_close(data);
    return result == HET_OK ? 0 : fail(status_of(result), "--data: %s", error.text);
}

static int read_data(evaluation *e) {
    het_data_format format;
    het_reader reader;
    char *data = NULL;
    size_t size = 0;
    int status = ends_with(e->set.data, ".mix") ? fail(BAD_INPUT, "--data %s: a mix is for train", e->set.data) :
                 read_from("--data", e->set.data, &reader);
    if (status != 0) return status;
    if (text_is(e->set.data, &reader, &format)) {
        status = read_file("--data", e->set.data, &data, &size);
        if (status == 0) status = loaded_takes_text(&e->model, &e->set.from);
        if (status == 0) status = text_encode("--data", e->model.tokenizer, 1, data, size, &e->token, &e->tokens);
        free(data);
    } else status = read_tokens(e, &reader, format);
    het_reader_close(&reader);
    if (status == 0 && e->tokens < 2)
        return fail(BAD_INPUT, "--data %s: %lld tokens; there must be two to predict one", e->set.data, (long long)e->tokens);
    return status;
}

/* Bytes that the predicted tokens, all but the first, stand for; negative: nobody knows. */
static double predicted_bytes(const evaluation *e) {
    double bytes = 0;
    int64_t i;
    if (e->model.tokenizer == NULL && e->model.desc.model.vocab != 256) return -1;
    for (i = 1; i < e->tokens; i++) {
        const char *at;
        char byte;
        size_t length;
        if (token_bytes(e->model.tokenizer, e->token[i], &byte, &at, &length)) bytes += (double)length;
    }
    return bytes;
}

/* A micro-batch of windows [first, first + count) in place number `slot`. The tokens of more than one must follow each other. */
static het_batch window_batch(evaluation *e, int64_t slot, int64_t first, int64_t count) {
    const int64_t length = e->set.length, stride = e->set.stride;
    int32_t *target = e->target + slot * e->set.sequences * length;
    int64_t *start = e->start + slot * (e->set.sequences + 1), w, i, at = 0;
    het_batch batch;
    memset(&batch, 0, sizeof batch);
    for (w = 0; w < count; w++) {
        const int64_t begin = (first + w) * stride, fresh = first + w > 0 ? length - stride : 0;
        start[w] = at;
        for (i = 0; i < length && begin + i + 1 < e->tokens; i++) target[at++] = i >= fresh ? e->token[begin + i + 1] : -1;
    }
    start[count] = at;
    batch.tokens = at, batch.sequences = count;
    batch.token = e->token + first * stride, batch.target = target, batch.sequence_start = start;
    return batch;
}

/* A number of JSON, which knows neither nan nor inf: null. */
static const char *json_number(double value, char to[40]) {
    snprintf(to, 40, "%.17g", value);
    return isfinite(value) ? to : "null";
}

static int show_text(const evaluation *e, double loss, double predicted) {
    char number[3][40];
    const double mean = loss / predicted, bytes = predicted_bytes(e), bits = loss / log(2.0) / bytes, seconds = seconds_now() - e->began;
    if (e->set.json) {
        printf("{\"loss\":%s,\"perplexity\":%s,", json_number(mean, number[0]), json_number(exp(mean), number[1]));
        if (bytes > 0) printf("\"bits_per_byte\":%s,\"bytes\":%.0f,", json_number(bits, number[2]), bytes);
        printf("\"tokens\":%.0f,\"length\":%lld,\"stride\":%lld,\"seconds\":%.3f}\n", predicted, (long long)e->set.length, (long long)e->set.stride,
               seconds);
    } else {
        printf("loss           %.6f a token, over %.0f tokens in windows of %lld\n", mean, predicted, (long long)e->set.length);
        printf("perplexity     %.4f\n", exp(mean));
        if (bytes > 0) printf("bits per byte  %.6f, over %.0f bytes\n", bits, bytes);
        printf("%.0f tokens/s\n", predicted / seconds);
    }
    return 0;
}

/* Windows go in calls of CALL micro-batches, which ranks share; the losses of a call are summed exactly. */
enum { CALL = 64 };

static int evaluate_text(evaluation *e) {
    const settings *s = &e->set;
    const int64_t together = s->stride == s->length ? s->sequences : 1; /* the tokens of windows that overlap do not follow each other */
    int64_t windows = (e->tokens - 2) / s->stride + 1, first = 0;
    double loss = 0, predicted = 0;
    het_batch batch[CALL];
    het_step_info info;
    e->target = (int32_t *)malloc((size_t)(CALL * s->sequences * s->length) * sizeof *e->target);
    e->start = (int64_t *)malloc((size_t)(CALL * (s->sequences + 1)) * sizeof *e->start);
    if (e->target == NULL || e->start == NULL) return fail(FAILED, "out of memory");
    while (windows > 1 && (windows - 2) * s->stride + s->length + 1 >= e->tokens) windows--; /* those before reach over it */
    while (first < windows) {
        het_result result;
        int64_t count = 0, n;
        for (; count < CALL && first < windows; count++, first += n) {
            n = windows - first < together ? windows - first : together;
            batch[count] = window_batch(e, count, first, n);
        }
        result = het_evaluate(e->model.ctx, batch, count, &info);
        if (result != HET_OK) return fail(status_of(result), "%s", het_last_error(e->model.ctx));
        loss += info.loss * info.weight, predicted += info.weight;
    }
    return show_text(e, loss, predicted);
}

/* ---- questions ------------------------------------------------------------------------------------------------------------- */

/* log p of an answer: the sum over its tokens, each behind all before it. */
static int answer_score(evaluation *e, const choice_question *q, int64_t answer, double *score) {
    const int64_t context = q->start[0], begin = q->start[answer], length = q->start[answer + 1] - begin, rows = context + length - 1;
    het_step_info info;
    het_batch batch;
    het_result result;
    int64_t i;
    memset(&batch, 0, sizeof batch);
    memcpy(e->token, q->token, (size_t)context * sizeof *e->token);
    memcpy(e->token + context, q->token + begin, (size_t)length * sizeof *e->token);
    for (i = 0; i < rows; i++) e->target[i] = i + 1 < context ? -1 : e->token[i + 1];
    e->start[0] = 0, e->start[1] = rows;
    batch.tokens = rows, batch.sequences = 1;
    batch.token = e->token, batch.target = e->target, batch.sequence_start = e->start;
    result = het_evaluate(e->model.ctx, &batch, 1, &info);
    if (result != HET_OK) return fail(status_of(result), "%s", het_last_error(e->model.ctx));
    *score = -info.loss * info.weight;
    return 0;
}

static int evaluate_choices(evaluation *e) {
    const choice_list *c = &e->choices;
    const int64_t questions = e->set.questions > 0 && e->set.questions < c->questions ? e->set.questions : c->questions;
    int64_t n, i, right[2] = { 0, 0 }; /* by the sum of log p, by their mean over the answer's tokens */
    double seconds;
    e->token = (int32_t *)malloc((size_t)c->longest * sizeof *e->token);
    e->target = (int32_t *)malloc((size_t)c->longest * sizeof *e->target);
    e->start = (int64_t *)malloc(2 * sizeof *e->start);
    if (e->token == NULL || e->target == NULL || e->start == NULL) return fail(FAILED, "out of memory");
    for (n = 0; n < questions; n++) {
        const choice_question *q = &c->question[n];
        double best[2] = { 0, 0 };
        int64_t chosen[2] = { -1, -1 };
        for (i = 0; i < q->answers; i++) {
            double score[2] = { 0, 0 };
            int k, status = answer_score(e, q, i, &score[0]);
            if (status != 0) return status;
            if (isnan(score[0]))
                return fail(BAD_INPUT, "--choices %s: question %lld: log p of answer %lld is nan, so none can be chosen", e->set.choices,
                            (long long)n, (long long)i);
            score[1] = score[0] / (double)(q->start[i + 1] - q->start[i]);
            for (k = 0; k < 2; k++)
                if (chosen[k] < 0 || score[k] > best[k]) best[k] = score[k], chosen[k] = i;
        }
        for (i = 0; i < 2; i++) right[i] += chosen[i] == q->right;
    }
    seconds = seconds_now() - e->began;
    if (e->set.json)
        printf("{\"questions\":%lld,\"right\":%lld,\"right_normalized\":%lld,\"accuracy\":%.17g,\"accuracy_normalized\":%.17g,\"seconds\":%.3f}\n",
               (long long)questions, (long long)right[0], (long long)right[1], (double)right[0] / (double)questions,
               (double)right[1] / (double)questions, seconds);
    else
        printf("%lld questions: %.4f right by log p, %.4f by log p a token; %.1f questions/s\n", (long long)questions,
               (double)right[0] / (double)questions, (double)right[1] / (double)questions, (double)questions / seconds);
    return 0;
}

static int read_choices(evaluation *e) {
    const het_model_desc *m = &e->model.desc.model;
    het_error error = { HET_OK, "" };
    het_reader reader;
    het_result result;
    const int status = read_from("--choices", e->set.choices, &reader);
    if (status != 0) return status;
    result = choices_read(&reader, m->vocab, &e->choices, &error);
    het_reader_close(&reader);
    if (result != HET_OK) return fail(status_of(result), "--choices: %s", error.text); /* names the file */
    if (e->choices.longest - 1 <= m->context) return 0;
    return fail(BAD_INPUT, "--choices %s: a question has %lld tokens, the model's context is %lld", e->set.choices,
                (long long)e->choices.longest, (long long)m->context);
}

/* ---- the program ------------------------------------------------------------------------------------------------------------ */

static int configure(evaluation *e) {
    settings *s = &e->set;
    het_desc *d = &e->model.desc;
    int status;
    if ((s->data != NULL) == (s->choices != NULL)) return fail(BAD_INPUT, "--data or --choices: one of them, and not both; --help lists the options");
    status = s->data != NULL ? options_idle(options, OPTIONS, e->given, "--questions", "without --choices")
                             : options_idle(options, OPTIONS, e->given, "--length --stride --sequences", "with --choices");
    if (status != 0) return status;
    if ((status = loaded_open(&e->model, &s->from)) != 0) return status;
    if (s->length == 0) s->length = d->model.context;
    if (s->stride == 0) s->stride = s->length;
    if (s->length > d->model.context)
        return fail(BAD_INPUT, "--length %lld: the model's context is %lld", (long long)s->length, (long long)d->model.context);
    if (s->stride > s->length)
        return fail(BAD_INPUT, "--stride %lld: more than the %lld tokens of a window", (long long)s->stride, (long long)s->length);
    if (s->stride < s->length) { /* windows that overlap go one at a time: window_batch */
        status = options_idle(options, OPTIONS, e->given, "--sequences", "with windows that overlap, which go one at a time");
        if (status != 0) return status;
        s->sequences = 1;
    }
    status = s->data != NULL ? read_data(e) : read_choices(e);
    if (status != 0) return status;
    if (s->data != NULL && s->length > e->tokens - 1) { /* no window is longer than the text */
        s->length = e->tokens - 1;
        if (s->stride > s->length) s->stride = s->length;
    }
    d->limits.max_tokens = s->data != NULL ? s->length * s->sequences : e->choices.longest;
    d->limits.max_sequences = s->data != NULL ? s->sequences : 1, d->limits.max_micro_batches = s->data != NULL ? 0 : 1;
    d->dtype = (het_dtype)s->dtype;
    return loaded_create(&e->model, &s->from);
}

static int run(evaluation *e, int argc, char **argv) {
    int status;
    e->set.sequences = 4, e->set.dtype = HET_F32;
    status = options_parse("build/evaluate --init DIR --data FILE | --choices FILE [options]\n\n"
                           "How well a model predicts a text or answers questions.", options, OPTIONS, &e->set, e->given, argc, argv);
    if (status >= 0) return status;
    if ((status = configure(e)) != 0) return status;
    e->began = seconds_now();
    return e->set.data != NULL ? evaluate_text(e) : evaluate_choices(e);
}

static int program(int argc, char **argv) {
    evaluation *e = (evaluation *)calloc(1, sizeof *e);
    int status = e != NULL ? run(e, argc, argv) : fail(FAILED, "out of memory");
    if (e == NULL) return status;
    loaded_end(&e->model);
    choices_free(&e->choices);
    free(e->token);
    free(e->target);
    free(e->start);
    free(e);
    return status;
}

int main(int argc, char **argv) {
    program_begin();
    return program_end(program(argc, argv));
}
