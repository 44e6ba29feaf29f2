/* A sequence that is long for one device, on two unequal ones: a team divides its rows, attention by context or by heads. The weights are those of
   one device, bit for bit, whatever the shares.
     long_context [FILE]      the sequence is the beginning of FILE (default: this file) */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#include "hetrain_plan.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { CONTEXT = 2048, LAYERS = 2, STEPS = 3 };
typedef struct sequence { int32_t token[CONTEXT], target[CONTEXT]; int64_t start[2]; het_batch batch; } sequence;
typedef struct outcome { double loss; uint64_t weights; } outcome;

static int read_sequence(sequence *s, const char *path) {
    FILE *file = fopen(path, "rb");
    int i, byte = 0;
    if (file == NULL) return 0;
    for (i = 0; i <= CONTEXT && (byte = fgetc(file)) != EOF; i++) {
        if (i < CONTEXT) s->token[i] = byte;
        if (i > 0) s->target[i - 1] = byte;
    }
    fclose(file);
    s->start[1] = s->batch.tokens = CONTEXT;
    s->batch.sequences = 1, s->batch.token = s->token, s->batch.target = s->target, s->batch.sequence_start = s->start;
    return byte != EOF;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What the members of the team told each other, and how much memory each needs. */
static void tell(const het_ctx *ctx, int64_t ranks, double step) {
    int64_t r, k, bytes = 0;
    printf("%8.0f ms a step", 1e3 * step);
    for (r = 0; r < ranks; r++) {
        het_timeline timeline;
        het_memory memory;
        het_get_timeline(ctx, r, &timeline);
        het_get_memory(ctx, r, &memory);
        for (k = 0; k < ranks; k++) bytes += timeline.traffic[k].exchange_bytes;
        printf(", activations of rank %d %.1f MB", (int)r, 1e-6 * (double)memory.activations);
    }
    printf(", %.1f MB exchanged\n", 1e-6 * (double)bytes);
}

/* Trains some steps on `ranks` devices, the second of a third of the first's speed. */
static het_result train(const sequence *s, const char *text, int64_t ranks, outcome *to, het_error *error) {
    het_device_desc device[2];
    het_plan_desc of_plan;
    het_plan *plan = NULL;
    het_step_info info;
    het_desc desc;
    het_ctx *ctx = NULL;
    het_result result;
    double start = 0;
    int step;
    memset(&desc, 0, sizeof desc);
    memset(&of_plan, 0, sizeof of_plan);
    memset(device, 0, sizeof device);
    device[1].speed = 1.0 / 3;
    desc.model.family = HET_LLAMA, desc.model.layers = LAYERS, desc.model.width = 128, desc.model.heads = 4, desc.model.context = CONTEXT;
    desc.model.vocab = 256;
    desc.limits.max_tokens = CONTEXT, desc.limits.max_sequences = 1, desc.limits.max_micro_batches = 1;
    desc.layout.devices = device, desc.layout.device_count = ranks;
    of_plan.units = 2 * LAYERS + 2, of_plan.ranks = ranks, of_plan.heads = desc.model.heads;
    result = het_plan_read(&of_plan, text, strlen(text), &plan, error);
    desc.layout.plan = plan;
    if (result == HET_OK) result = het_create(&desc, &ctx, error);
    for (step = 0; step < STEPS && result == HET_OK; step++) {
        if (step == 1) start = seconds(); /* the first step is made twice: it measures how large its terms are */
        result = het_step(ctx, &s->batch, 1, &info);
        to->loss = info.loss;
    }
    if (result == HET_OK) result = het_hash(ctx, &to->weights);
    if (result == HET_OK) {
        printf("%-8s loss %.6f", text, to->loss);
        tell(ctx, ranks, (seconds() - start) / (STEPS - 1));
    } else if (ctx != NULL) {
        memcpy(error->text, het_last_error(ctx), strlen(het_last_error(ctx)) + 1);
    }
    het_destroy(ctx);
    het_plan_free(plan);
    return result;
}

int main(int argc, char **argv) {
    static const struct { const char *plan; int64_t ranks; } layouts[] = { { "dp", 1 }, { "cp2", 2 }, { "cp:3,1", 2 }, { "hp:3,1", 2 } };
    static sequence s;
    const char *path = argc > 1 ? argv[1] : __FILE__;
    outcome one, other;
    het_error error = { HET_OK, "" };
    size_t i;
    if (!read_sequence(&s, path)) {
        fprintf(stderr, "long_context: %s cannot be read, or has fewer than %d bytes\n", path, CONTEXT + 1);
        return 2;
    }
    for (i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        if (train(&s, layouts[i].plan, layouts[i].ranks, i == 0 ? &one : &other, &error) != HET_OK) {
            fprintf(stderr, "long_context: %s: %s\n", layouts[i].plan, error.text);
            return 1;
        }
        if (i > 0 && (one.weights != other.weights || one.loss < other.loss || one.loss > other.loss)) {
            fprintf(stderr, "long_context: %s: other weights than those of one device\n", layouts[i].plan);
            return 1;
        }
    }
    printf("the same weights on one device and on two\n");
    return 0;
}
