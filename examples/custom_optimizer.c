/* An optimizer of one's own: Lion (arXiv 2302.06675), which steps by the sign of a running mean of gradients and keeps one float a weight, where
   AdamW keeps two. An optimizer is a table: its name, its arrays of state, each as large as the parameter, and an update of a run of elements. Which
   elements that are is the plan's business: where parameters are divided among ranks every owner updates its own, and saving, resuming, feedback and
   the memory estimate follow from the table. The program trains a small GPT with AdamW and Lion, Lion on one rank and on two, to the same weights. */
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#include "hetrain.h"
#include "hetrain_plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 60, MICRO_BATCHES = 2, LENGTH = 32, SEQUENCES = 3, TOKENS = SEQUENCES * LENGTH, UNITS = 6 };

/* g: the gradient of the mean loss. c = beta1 m + (1 - beta1) g;  w = w - rate decay w;  w = w - rate sign(c);  m = beta2 m + (1 - beta2) g.
   Nothing depends on other elements, so no way to divide them changes a bit; fmaf, so that no compiler rounds otherwise. */
static het_result lion_update(const het_optimizer_call *call) {
    const het_optimizer_desc *d = call->desc;
    const het_gradient *gradient = call->gradient;
    const het_step_scalars *s = call->scalars;
    float *w = call->weight, *m = call->state[0];
    if (!call->device->iface->host_memory) return HET_ERR_UNSUPPORTED; /* of a card: calls of the device's ops, or a kernel */
    if (s->verdict != HET_VERDICT_ACCEPT || gradient->sum == NULL) return HET_OK; /* a bad step; a frozen parameter */
    for (int64_t i = 0; i < call->count; i++) {
        const float sum = gradient->exact ? (float)((const double *)gradient->sum)[i] : ((const float *)gradient->sum)[i];
        const float g = sum * s->clip_scale, c = fmaf(d->beta1, m[i], (1.0f - d->beta1) * g);
        w[i] = fmaf(-s->learning_rate * call->decay, w[i], w[i]);
        w[i] += c > 0 ? -s->learning_rate : c < 0 ? s->learning_rate : 0.0f;
        m[i] = fmaf(d->beta2, m[i], (1.0f - d->beta2) * g);
    }
    return HET_OK;
}

static const het_optimizer_iface lion = { "lion", 1, { "m", NULL, NULL, NULL }, 0, lion_update, NULL, NULL };

/* Trains on `ranks` devices by a plan, and prints the first loss and the last. */
static het_result train(const het_optimizer_iface *optimizer, const char *layout, int64_t ranks, uint64_t *hash, double *loss) {
    static const char text[] = "The quick brown fox jumps over the lazy dog, and the dog, being lazy, does not mind the fox at all. It sleeps on, "
                               "dreams of a fox that is slow, and jumps over it: once, twice, and once more before it wakes up in the sun again.";
    static het_desc desc; /* as the next two: what is not set is 0 */
    static het_device_desc device[2];
    static het_plan_desc of_plan;
    het_batch batch[MICRO_BATCHES];
    int32_t token[sizeof text];
    int64_t start[SEQUENCES + 1];
    het_plan *plan = NULL;
    het_error error = { HET_OK, "" };
    het_step_info info;
    het_memory memory;
    het_ctx *ctx = NULL;
    het_result result;
    double first = 0;
    memset(batch, 0, sizeof batch);
    for (size_t i = 0; i < sizeof text; i++) token[i] = (unsigned char)text[i];
    for (int i = 0; i <= SEQUENCES; i++) start[i] = LENGTH * i;
    for (int i = 0; i < MICRO_BATCHES; i++) {
        batch[i].tokens = TOKENS, batch[i].sequences = SEQUENCES, batch[i].sequence_start = start;
        batch[i].token = token + i * TOKENS, batch[i].target = token + i * TOKENS + 1;
    }
    desc.model.layers = 2, desc.model.width = 64, desc.model.context = LENGTH, desc.limits.max_tokens = TOKENS;
    desc.limits.max_micro_batches = MICRO_BATCHES;
    desc.optimizer.iface = optimizer, desc.optimizer.total_steps = STEPS;
    desc.optimizer.learning_rate = 3e-3f, desc.optimizer.beta2 = optimizer == &lion ? 0.99f : 0.95f;
    of_plan.units = UNITS, of_plan.ranks = ranks;
    result = het_plan_read(&of_plan, layout, strlen(layout), &plan, &error);
    desc.layout.devices = device, desc.layout.device_count = ranks, desc.layout.plan = plan;
    if (result == HET_OK) result = het_create(&desc, &ctx, &error);
    for (int i = 0; i < STEPS && result == HET_OK; i++) {
        result = het_step(ctx, batch, MICRO_BATCHES, &info);
        if (i == 0) first = info.loss;
        *loss = info.loss;
    }
    if (result == HET_OK) result = het_hash(ctx, hash);
    if (result == HET_OK) {
        het_get_memory(ctx, 0, &memory);
        printf("%-5s %s on %d: loss %.4f -> %.4f, %lld bytes of state on rank 0, weights %016llx\n", optimizer->name, layout, (int)ranks, first,
               *loss, (long long)memory.optimizer, (unsigned long long)*hash);
    } else fprintf(stderr, "%s: %s\n", het_result_text(result), ctx != NULL ? het_last_error(ctx) : error.text);
    het_destroy(ctx);
    het_plan_free(plan);
    return result;
}

int main(void) {
    uint64_t adamw, one, two, stages;
    double first, loss, other;
    if (train(het_adamw(), "dp", 1, &adamw, &first) != HET_OK || train(&lion, "dp", 1, &one, &loss) != HET_OK) return 1;
    if (train(&lion, "dp", 2, &two, &other) != HET_OK || train(&lion, "pp", 2, &stages, &other) != HET_OK) return 1;
    printf("%s\n", one == two && one == stages ? "the same weights in every layout" : "OTHER WEIGHTS");
    return one == two && one == stages && one != adamw && first < 1.5 && loss < 1.5 ? 0 : 1;
}
