/* Two batch sizes at once under lengths that grow in cycles (hybrid dual-batch and cyclic progressive learning, arXiv 2509.26092): rank 0 takes
   large micro-batches, rank 1 small ones whose tokens count more or less, and every cycle of steps goes from short sequences to long ones.
     dual_batch [FILE]      trains on FILE's bytes (default: this one)
   A sample's weight is het_batch.weight: the step's gradient is the weighted mean. With equal sizes and weight 1 it is ordinary data
   parallelism, to the last bit, which the last lines show. */
#define HETRAIN_IMPLEMENTATION
#include "hetrain.h"

#include <stdio.h>
#include <string.h>

enum { CONTEXT = 128, MOST = 8, STEPS = 48, CYCLE = 3, FILE_LIMIT = 1 << 20 }; /* MOST: sequences of a micro-batch */

typedef struct half { int64_t sequences; float weight; } half; /* a rank's micro-batch, and what a token of it counts */
typedef struct room {
    int32_t token[2][MOST * CONTEXT], target[2][MOST * CONTEXT];
    float weight[2][MOST * CONTEXT];
    int64_t start[2][MOST + 1], sample[2][MOST];
    het_batch batch[2];
} room;

static unsigned char bytes[FILE_LIMIT];
static int64_t size;

/* Samples number `first` and on, of `length` tokens: the first half's for rank 0, the others for rank 1. */
static void fill(room *r, const half halves[2], int64_t first, int64_t length) {
    int64_t i, k, b, sample = first;
    for (b = 0; b < 2; b++) {
        het_batch *batch = &r->batch[b];
        memset(batch, 0, sizeof *batch);
        for (i = 0; i < halves[b].sequences; i++, sample++) {
            const int64_t at = sample * 977 % (size - CONTEXT - 1);
            for (k = 0; k < length; k++) {
                r->token[b][i * length + k] = bytes[at + k], r->target[b][i * length + k] = bytes[at + k + 1];
                r->weight[b][i * length + k] = halves[b].weight;
            }
            r->start[b][i] = i * length, r->sample[b][i] = sample;
        }
        r->start[b][i] = i * length;
        batch->tokens = i * length, batch->sequences = i, batch->token = r->token[b], batch->target = r->target[b];
        batch->weight = r->weight[b], batch->sequence_start = r->start[b], batch->sample_id = r->sample[b];
    }
}

/* cyclic: lengths of a third, two thirds and all of CONTEXT in turn; ranks: 1 or 2. granule 1: any division of samples has the same bits. */
static het_result train(const half halves[2], int cyclic, int64_t ranks, int tell, uint64_t *hash, double *loss, het_error *error) {
    static room r;
    het_device_desc devices[2];
    het_step_info info;
    het_desc desc;
    het_ctx *ctx = NULL;
    het_result result;
    int64_t step, sample = 0;
    memset(&desc, 0, sizeof desc), memset(devices, 0, sizeof devices);
    desc.model.family = HET_LLAMA, desc.model.layers = 2, desc.model.width = 64, desc.model.context = CONTEXT;
    desc.optimizer.learning_rate = 3e-3f, desc.optimizer.total_steps = STEPS;
    desc.granule = 1;
    desc.limits.max_tokens = MOST * CONTEXT, desc.limits.max_sequences = MOST, desc.limits.max_micro_batches = 2;
    desc.layout.devices = devices, desc.layout.device_count = ranks;
    result = het_create(&desc, &ctx, error);
    for (step = 0; step < STEPS && result == HET_OK; step++) {
        const int64_t length = cyclic ? CONTEXT * (1 + step % CYCLE) / CYCLE : CONTEXT;
        fill(&r, halves, sample, length);
        sample += halves[0].sequences + halves[1].sequences;
        result = het_step(ctx, r.batch, 2, &info);
        if (result == HET_OK && tell && step >= STEPS - CYCLE)
            printf("step %2d  %d sequences of %3d tokens on rank 0, %d of weight %.1f on rank 1: loss %.4f\n", (int)step + 1,
                   (int)halves[0].sequences, (int)length, (int)halves[1].sequences, (double)halves[1].weight, info.loss);
    }
    *loss = result == HET_OK ? info.loss : 0;
    if (result == HET_OK) result = het_hash(ctx, hash);
    else if (ctx != NULL) strcpy(error->text, het_last_error(ctx));
    het_destroy(ctx);
    return result;
}

int main(int argc, char **argv) {
    static const half dual[2] = { { 6, 1.0f }, { 2, 1.5f } }, equal[2] = { { 4, 1.0f }, { 4, 1.0f } }, plain[2] = { { 8, 1.0f }, { 0, 1.0f } };
    het_error error = { HET_OK, "" };
    het_result result;
    uint64_t hash[3] = { 0, 0, 0 };
    double loss[3];
    FILE *file = fopen(argc > 1 ? argv[1] : __FILE__, "rb");
    if (file != NULL) size = (int64_t)fread(bytes, 1, FILE_LIMIT, file), fclose(file);
    if (size <= 2 * CONTEXT)
        return fprintf(stderr, "dual_batch: %s cannot be read, or has fewer than %d bytes\n", argc > 1 ? argv[1] : __FILE__, 2 * CONTEXT + 1), 2;
    result = train(dual, 1, 2, 1, &hash[0], &loss[0], &error);
    if (result == HET_OK) result = train(equal, 0, 2, 0, &hash[1], &loss[1], &error);
    if (result == HET_OK) result = train(plain, 0, 1, 0, &hash[2], &loss[2], &error);
    if (result == HET_OK) printf("equal halves on two ranks: weights %016llx\nall samples on one rank:   weights %016llx\n",
                                 (unsigned long long)hash[1], (unsigned long long)hash[2]);
    else fprintf(stderr, "dual_batch: %s: %s\n", het_result_text(result), error.text);
    return result == HET_OK && hash[1] == hash[2] && hash[0] != hash[1] && loss[0] < 4.5 ? 0 : 1;
}
