/* A device of one's own in one function: `run` does the residual addition and the embedding itself, by plain loops, counts its calls and leaves
   every other op to the CPU device, whose table it copies. Both give the same bits, so both devices end with the same weights. A device for other
   hardware fills the same table: memory, and a `run` that does all ops on a queue. */
#define HETRAIN_IMPLEMENTATION
#include "hetrain.h"

#include <stdio.h>
#include <string.h>

static long residual_calls, embedding_calls, delegated_calls; /* the table is const and `self` is the CPU's: a program may keep globals */

/* y = a + x. Rows of the slice: pointers stand at its first row. */
static void residual_forward(const het_dropout_args *args) {
    int64_t i, count = args->rows * args->width;
    residual_calls++;
    for (i = 0; i < count; i++) args->y[i] = args->a != NULL ? args->a[i] + args->x[i] : args->x[i];
}

/* y[r] = table[token[r]] + positions[position[r]] */
static void embedding_forward(const het_embedding_args *args) {
    const het_view *view = args->view;
    int64_t r, c, width = args->width;
    embedding_calls++;
    for (r = 0; r < args->rows; r++) {
        const float *entry = args->table + view->token[view->row_begin + r] * width;
        const float *position = args->positions != NULL ? args->positions + view->position[view->row_begin + r] * width : NULL;
        for (c = 0; c < width; c++) args->y[r * width + c] = position != NULL ? entry[c] + position[c] : entry[c];
    }
}

static het_result run(void *self, het_queue *queue, const het_op *op) {
    switch (op->kind) {
    case HET_OP_EMBEDDING_FORWARD: embedding_forward(&op->u.embedding); return HET_OK;
    case HET_OP_DROPOUT_FORWARD:
        if (op->u.dropout.probability > 0) break; /* the CPU draws the mask */
        residual_forward(&op->u.dropout);
        return HET_OK;
    default: break;
    }
    delegated_calls++;
    return het_cpu_device()->run(self, queue, op);
}

/* Trains 20 steps on the text of the pangram below; the weights' hash tells whether two devices computed the same. */
static het_result train(const het_device_iface *iface, float dropout, uint64_t *hash) {
    static const char text[] = "The quick brown fox jumps over the lazy dog, and the dog, being lazy, does not mind the fox at all. ";
    enum { TOKENS = 96 };
    int32_t token[TOKENS], target[TOKENS];
    int64_t start[4], i;
    het_batch batch;
    het_desc desc;
    het_device_desc device;
    het_error error = { HET_OK, "" };
    het_step_info info;
    het_ctx *ctx = NULL;
    het_result result;
    memset(&batch, 0, sizeof batch);
    memset(&desc, 0, sizeof desc);
    memset(&device, 0, sizeof device);
    for (i = 0; i < TOKENS; i++) token[i] = text[i], target[i] = text[i + 1];
    for (i = 0; i < 4; i++) start[i] = 32 * i;
    batch.tokens = TOKENS, batch.sequences = 3, batch.token = token, batch.target = target, batch.sequence_start = start;
    device.iface = iface, device.threads = 2;
    desc.model.layers = 2, desc.model.width = 64, desc.model.context = 32, desc.model.dropout = dropout;
    desc.layout.devices = &device, desc.layout.device_count = 1, desc.limits.max_tokens = TOKENS;
    desc.optimizer.learning_rate = 3e-3f;
    result = het_create(&desc, &ctx, &error);
    for (i = 0; result == HET_OK && i < 20; i++) result = het_step(ctx, &batch, 1, &info);
    if (result == HET_OK) result = het_hash(ctx, hash);
    if (result == HET_OK)
        printf("%-8s dropout %.1f  loss %.4f  weights %016llx\n", iface->name, (double)dropout, info.loss, (unsigned long long)*hash);
    else fprintf(stderr, "%s: %s\n", het_result_text(result), ctx != NULL ? het_last_error(ctx) : error.text);
    het_destroy(ctx);
    return result;
}

int main(void) {
    het_device_iface mine = *het_cpu_device();
    const float dropout[2] = { 0.0f, 0.1f };
    uint64_t cpu = 0, own = 0;
    int i, same = 1;
    mine.name = "mine";
    mine.run = run;
    for (i = 0; i < 2; i++) {
        if (train(het_cpu_device(), dropout[i], &cpu) != HET_OK || train(&mine, dropout[i], &own) != HET_OK) return 1;
        same = same && cpu == own;
    }
    printf("%s; %ld residual additions and %ld embeddings of our own, %ld calls left to the CPU\n", same ? "same weights" : "DIFFERENT WEIGHTS",
           residual_calls, embedding_calls, delegated_calls);
    return same && residual_calls > 0 && embedding_calls > 0 && delegated_calls > 0 ? 0 : 1;
}
