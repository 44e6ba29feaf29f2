/* Attention apart from its weights (HelixPipe, arXiv 2507.00394): a layer is three units (examples/attention_unit.h), of which attention itself has
   no parameters. The plan has RANKS pipelines over the same ranks: a stage with weights is on the same rank in all of them, attention of pipeline p
   on rank p. So RANKS micro-batches attend at once, micro-batch m on rank m mod RANKS, and every weight lies on one rank. Stages with weights are
   recomputed, attention is not. The weights after some steps are those of the built-in layers on one rank, bit for bit. */
#define HETRAIN_IMPLEMENTATION
#include "attention_unit.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 4, CONTEXT = 64, MICRO_BATCHES = 8, STEPS = 3 };

/* Forward calls of the rank: attention of a micro-batch; calls made again, [0] of units with weights, [1] of attention. */
typedef struct calls { int attention[MICRO_BATCHES], again[2]; } calls;

static het_result count(void *user, const het_hook_info *info) {
    calls *of_rank = (calls *)user + info->rank;
    const int core = strcmp(info->unit_name, "core") == 0;
    if (info->direction == HET_FORWARD && core) of_rank->attention[info->micro_batch]++;
    if (info->direction == HET_FORWARD) of_rank->again[core] += info->again;
    return HET_OK;
}

/* Where micro-batch m is in the step: a pipeline takes micro-batches that lie behind each other, pipeline p here those with m mod RANKS = p. */
static int place_of(int m) { return m % RANKS * (MICRO_BATCHES / RANKS) + m / RANKS; }

/* Weights of stage 2 i are on rank i mod RANKS in all pipelines, attention of pipeline p on rank p. */
static het_result make_plan(het_plan **plan, het_error *error) {
    het_plan shape;
    het_result result;
    int p, s;
    memset(&shape, 0, sizeof shape);
    shape.units = UNITS, shape.ranks = RANKS, shape.pipelines = RANKS, shape.stages = RANKS * STAGES, shape.slices = 1;
    result = het_plan_new(&shape, NULL, "attention_pipeline", plan, error);
    if (result != HET_OK) return result;
    (*plan)->slice_share[0] = 1;
    for (p = 0; p < RANKS; p++) {
        (*plan)->share[p] = (*plan)->state_share[p] = 1;
        (*plan)->first_stage[p + 1] = (p + 1) * STAGES;
        for (s = 0; s < STAGES; s++) {
            het_stage *stage = &(*plan)->stage[p * STAGES + s];
            stage->pipeline = p;
            set_stage(stage, s, s % 2 == 1 ? p : s / 2 % RANKS);
            stage->recompute = s % 2 == 1 || s == STAGES - 1 ? HET_RECOMPUTE_NONE : HET_RECOMPUTE_STAGE;
        }
    }
    return HET_OK;
}

static het_result train(const het_batch *batch, int ranks, calls *to, uint64_t *hash, het_error *error) {
    het_unit units[UNITS];
    het_device_desc device[RANKS];
    het_plan *plan = NULL;
    het_step_info info;
    het_desc desc;
    het_ctx *ctx = NULL;
    het_result result;
    size_t weights = 0;
    int64_t i;
    memset(&desc, 0, sizeof desc), memset(device, 0, sizeof device);
    desc.limits.max_tokens = CONTEXT, desc.limits.max_micro_batches = MICRO_BATCHES;
    desc.layout.devices = device, desc.layout.device_count = ranks;
    result = describe(&desc, CONTEXT, ranks > 1 ? units : NULL, error);
    if (result == HET_OK && ranks > 1) {
        desc.host.hook = count, desc.host.user = to;
        result = make_plan(&plan, error);
        desc.layout.plan = plan;
    }
    if (result == HET_OK) result = het_create(&desc, &ctx, error);
    for (i = 0; result == HET_OK && i < STEPS; i++) result = het_step(ctx, batch, MICRO_BATCHES, &info);
    if (result == HET_OK) result = het_hash(ctx, hash);
    for (i = 0; result == HET_OK && i < ranks; i++) {
        het_memory memory;
        het_get_memory(ctx, i, &memory);
        weights += memory.weights;
    }
    if (result == HET_OK)
        printf("%d rank%s loss %.6f, %d bytes of weights in all, hash %016llx\n", ranks, ranks == 1 ? ": " : "s:", info.loss, (int)weights,
               (unsigned long long)*hash);
    else if (ctx != NULL) memcpy(error->text, het_last_error(ctx), strlen(het_last_error(ctx)) + 1);
    het_destroy(ctx);
    het_plan_free(plan);
    return result;
}

int main(void) {
    static const char text[] = "Attention has no weights: whoever gets q, k and v can do it, so long sequences need not wait in one stage.";
    static int32_t token[MICRO_BATCHES][CONTEXT + 1];
    static const int64_t start[2] = { 0, CONTEXT };
    static het_batch batch[MICRO_BATCHES]; /* zero */
    static calls seen[RANKS];              /* zero */
    uint64_t one = 0, all = 1;
    het_error error = { HET_OK, "" };
    int m, i, r, wrong = 0, again[2] = { 0, 0 };
    for (m = 0; m < MICRO_BATCHES; m++) {
        het_batch *b = &batch[place_of(m)];
        for (i = 0; i <= CONTEXT; i++) token[m][i] = text[(7 * m + i) % (int)(sizeof text - 1)];
        b->tokens = CONTEXT, b->sequences = 1, b->token = token[m], b->target = token[m] + 1, b->sequence_start = start;
    }
    if (train(batch, 1, seen, &one, &error) != HET_OK || train(batch, RANKS, seen, &all, &error) != HET_OK) {
        fprintf(stderr, "attention_pipeline: %s\n", error.text);
        return 1;
    }
    for (r = 0; r < RANKS; r++) {
        for (m = 0; m < MICRO_BATCHES; m++) wrong += (seen[r].attention[place_of(m)] > 0) != (m % RANKS == r);
        for (i = 0; i < 2; i++) again[i] += seen[r].again[i];
    }
    printf("attention of micro-batch m ran on rank m mod %d, of %d%s; made again: %d calls of units with weights, %d of attention\n", RANKS,
           MICRO_BATCHES, wrong == 0 ? "" : ", not always", again[0], again[1]);
    return one == all && wrong == 0 && again[0] > 0 && again[1] == 0 ? 0 : 1;
}
