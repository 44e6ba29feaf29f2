/* The step loop without het_train: own packing of sequences of unequal length, own evaluation, early stop, save and load.
     own_loop [FILE [WEIGHTS]]   every line of FILE (default: this file) is one sequence; WEIGHTS: own_loop.safetensors
   Each micro-batch holds as many whole lines as fit, one behind the other, with no padding. The loss is the mean over target bytes of the
   whole step, however they are spread over the micro-batches. */
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_FILES_IMPLEMENTATION
#include "hetrain.h"
#include "hetrain_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 128, TOKENS = 1024, LINES = 256, MICRO_BATCHES = 2, STEPS = 200, FILE_LIMIT = 1 << 20 };

typedef struct text { unsigned char *bytes; int64_t size, at; } text;

typedef struct packed {
    int32_t token[TOKENS], target[TOKENS];
    int64_t start[LINES + 1];
    het_batch batch;
} packed;

static int text_open(text *t, const char *path) {
    FILE *file = fopen(path, "rb");
    t->bytes = (unsigned char *)malloc(FILE_LIMIT);
    t->size = file != NULL && t->bytes != NULL ? (int64_t)fread(t->bytes, 1, FILE_LIMIT, file) : 0;
    t->at = 0;
    if (file != NULL) fclose(file);
    return t->size > 0;
}

/* The next line, its line feed included and cut at CONTEXT + 1 bytes; begins again at the end of the text. */
static int64_t next_line(text *t, const unsigned char **line) {
    int64_t length = 0;
    if (t->at >= t->size) t->at = 0;
    *line = t->bytes + t->at;
    while (t->at + length < t->size && length <= CONTEXT) {
        length++;
        if ((*line)[length - 1] == '\n') break;
    }
    t->at += length;
    return length;
}

/* Fills a micro-batch: tokens of a line are all its bytes but the last, targets all but the first. */
static const het_batch *pack(packed *p, text *t) {
    int64_t n = 0, s = 0, i;
    memset(&p->batch, 0, sizeof p->batch);
    while (s < LINES) {
        const unsigned char *line;
        int64_t before = t->at, length = next_line(t, &line) - 1;
        if (n + length > TOKENS) {
            t->at = before;
            break;
        }
        p->start[s++] = n;
        for (i = 0; i < length; i++, n++) p->token[n] = line[i], p->target[n] = line[i + 1];
    }
    p->start[s] = n;
    p->batch.tokens = n, p->batch.sequences = s, p->batch.token = p->token, p->batch.target = p->target, p->batch.sequence_start = p->start;
    return &p->batch;
}

/* Mean loss over the held-back text. */
static het_result evaluate(het_ctx *ctx, packed *p, text *held_back, double *loss) {
    het_step_info info;
    double total = 0, weight = 0;
    int i;
    held_back->at = 0;
    for (i = 0; i < 4; i++) {
        het_result result = het_evaluate(ctx, pack(p, held_back), 1, &info);
        if (result != HET_OK) return result;
        total += info.loss * info.weight, weight += info.weight;
    }
    *loss = total / weight;
    return HET_OK;
}

static het_result train(het_ctx *ctx, packed *p, text *training, text *held_back) {
    het_result result = HET_OK;
    het_step_info info;
    het_batch batch[MICRO_BATCHES];
    double loss = 0, best = 1e30;
    while (result == HET_OK && het_get_step(ctx) < STEPS) {
        int m;
        for (m = 0; m < MICRO_BATCHES; m++) batch[m] = *pack(&p[m], training);
        result = het_step(ctx, batch, MICRO_BATCHES, &info);
        if (result != HET_OK || (info.step + 1) % 25 != 0) continue;
        result = evaluate(ctx, p, held_back, &loss);
        printf("step %3d  lr %.5f  %4d tokens in %3d lines  loss %.4f  held back %.4f\n", (int)info.step + 1, info.learning_rate, (int)info.tokens,
               (int)(batch[0].sequences + batch[1].sequences), info.loss, loss);
        if (loss > 1.02 * best) break; /* from here on it learns its text by heart */
        best = loss < best ? loss : best;
    }
    return result;
}

static het_result save_and_load(het_ctx *ctx, const char *path) {
    uint64_t before, after;
    het_reader reader;
    het_result result = het_save_file(ctx, path, het_save_weights);
    if (result == HET_OK) result = het_hash(ctx, &before);
    if (result == HET_OK) result = het_reader_open(path, &reader, NULL);
    if (result != HET_OK) return result;
    result = het_load_weights(ctx, &reader);
    het_reader_close(&reader);
    if (result == HET_OK) result = het_hash(ctx, &after);
    if (result == HET_OK) printf("%s: weights %016llx, read back %016llx\n", path, (unsigned long long)before, (unsigned long long)after);
    return result == HET_OK && before != after ? HET_ERR_FORMAT : result;
}

int main(int argc, char **argv) {
    static packed p[MICRO_BATCHES];
    text training = { NULL, 0, 0 }, held_back;
    het_desc desc;
    het_error error = { HET_OK, "" };
    het_ctx *ctx = NULL;
    het_result result;
    if (!text_open(&training, argc > 1 ? argv[1] : __FILE__)) {
        free(training.bytes);
        return fprintf(stderr, "own_loop: %s cannot be read, or is empty\n", argc > 1 ? argv[1] : __FILE__), 2;
    }
    memset(&desc, 0, sizeof desc);
    desc.model.family = HET_LLAMA, desc.model.layers = 2, desc.model.width = 64, desc.model.context = CONTEXT;
    desc.limits.max_tokens = TOKENS, desc.limits.max_sequences = LINES, desc.limits.max_micro_batches = MICRO_BATCHES;
    desc.optimizer.learning_rate = 4e-3f, desc.optimizer.warmup_steps = 10, desc.optimizer.total_steps = STEPS;
    training.size -= training.size / 8; /* the last eighth is held back */
    held_back.bytes = training.bytes + training.size, held_back.size = training.size / 7, held_back.at = 0;
    result = het_create(&desc, &ctx, &error);
    if (result == HET_OK) result = train(ctx, p, &training, &held_back);
    if (result == HET_OK) result = save_and_load(ctx, argc > 2 ? argv[2] : "own_loop.safetensors");
    if (result != HET_OK) fprintf(stderr, "%s: %s\n", het_result_text(result), ctx != NULL ? het_last_error(ctx) : error.text);
    het_destroy(ctx);
    free(training.bytes);
    return result == HET_OK ? 0 : 1;
}
