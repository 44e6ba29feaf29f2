/* A pipeline over the slices of one long sequence, whose attention all devices share (SlimPipe's aim, arXiv 2504.14519). Late slices have more keys,
   so that stages that attend themselves, each to another slice, work for different times. Here layers are three units (examples/attention_unit.h):
   ranks 0 to 3 have those with weights, ranks 4 to 7, one more on each of the same devices, are a team that divides attention by heads. So whatever
   slice is attended to, each device has a quarter of it, keys and values lie divided, and no weight is anywhere twice. Attention's work is counted
   op by op. The weights after some steps are those of the built-in layers on one rank, bit for bit. */
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#include "hetrain_plan.h"
#include "attention_unit.h"

#include <stdio.h>

enum { DEVICES = 4, RANKS = 2 * DEVICES, SLICES = 8 * DEVICES, CONTEXT = 1024, GRANULES = 2 * SLICES, MICRO_BATCHES = 2, STEPS = 2 };
enum { OPS = STEPS * MICRO_BATCHES * SLICES * LAYERS * 2 };

/* FLOPs of the attention ops of a rank, in their order. Members of a team do the same op at the same time: they wait for each other before it. */
typedef struct counts { void *self; int64_t ops; double flops[OPS]; } counts;
static counts counted[RANKS];
static int devices;

static het_result create(const het_device_config *config, void **self) {
    const het_result result = het_cpu_device()->create(config, self);
    if (result == HET_OK && devices < RANKS) counted[devices++].self = *self; /* ranks one behind the other, on one thread */
    return result;
}

/* Two products a key that is seen, forward; five, backward. */
static het_result run(void *self, het_queue *queue, const het_op *op) {
    const het_attention_args *a = &op->u.attention;
    int i;
    for (i = 0; i < devices && (op->kind == HET_OP_ATTENTION_FORWARD || op->kind == HET_OP_ATTENTION_BACKWARD); i++)
        if (counted[i].self == self && counted[i].ops < OPS) {
            const double begin = (double)a->view->row_begin, end = (double)a->view->row_end;
            counted[i].flops[counted[i].ops++] = (op->kind == HET_OP_ATTENTION_FORWARD ? 4 : 10) * (double)(a->heads * a->head_size) *
                                                 (end * (end + 1) - begin * (begin + 1)) / 2;
        }
    return het_cpu_device()->run(self, queue, op);
}

/* Weights of stage 2 i are on rank i mod DEVICES, attention is the team's. */
static het_result make_plan(het_plan **plan, het_error *error) {
    het_plan shape;
    het_result result;
    int i;
    memset(&shape, 0, sizeof shape);
    shape.units = UNITS, shape.ranks = RANKS, shape.pipelines = 1, shape.stages = STAGES, shape.slices = SLICES, shape.members = DEVICES;
    shape.make = het_schedule_make, memcpy(shape.schedule, "sliced-1f1b", 12);
    result = het_plan_new(&shape, NULL, "attention_team", plan, error);
    if (result != HET_OK) return result;
    (*plan)->share[0] = 1, (*plan)->first_stage[1] = STAGES;
    for (i = 0; i < SLICES; i++) (*plan)->slice_share[i] = 1;
    for (i = 0; i < RANKS; i++) (*plan)->state_share[i] = 1;
    for (i = 0; i < STAGES; i++) set_stage(&(*plan)->stage[i], i, i % 2 == 1 ? DEVICES : i / 2 % DEVICES);
    for (i = 0; i < DEVICES; i++) {
        het_team_member *member = &(*plan)->member[i];
        member->leader = DEVICES, member->rank = DEVICES + i, member->share = 1, member->heads = HEADS / DEVICES;
    }
    return HET_OK;
}

static het_result train(const het_batch *batch, int ranks, uint64_t *hash, het_error *error) {
    static het_device_iface table;
    het_unit units[UNITS];
    het_device_desc device[RANKS];
    het_plan *plan = NULL;
    het_step_info info;
    het_desc desc;
    het_ctx *ctx = NULL;
    het_result result;
    int64_t i;
    table = *het_cpu_device(), table.create = create, table.run = run;
    memset(&desc, 0, sizeof desc), memset(device, 0, sizeof device);
    for (i = 0; i < ranks && ranks > 1; i++) device[i].iface = &table;
    desc.limits.max_tokens = CONTEXT, desc.limits.max_sequences = 1, desc.limits.max_micro_batches = MICRO_BATCHES;
    desc.layout.devices = device, desc.layout.device_count = ranks;
    result = describe(&desc, CONTEXT, ranks > 1 ? units : NULL, error);
    if (result == HET_OK && ranks > 1) result = make_plan(&plan, error);
    desc.layout.plan = plan;
    if (result == HET_OK) result = het_create(&desc, &ctx, error);
    for (i = 0; result == HET_OK && i < STEPS; i++) result = het_step(ctx, batch, MICRO_BATCHES, &info);
    if (result == HET_OK) result = het_hash(ctx, hash);
    if (result == HET_OK)
        printf("%d rank%s loss %.6f, hash %016llx\n", ranks, ranks == 1 ? ": " : "s:", info.loss, (unsigned long long)*hash);
    else if (ctx != NULL) memcpy(error->text, het_last_error(ctx), strlen(het_last_error(ctx)) + 1);
    het_destroy(ctx);
    het_plan_free(plan);
    return result;
}

/* The largest share of an op that a member has, over an equal one. */
static double spread(void) {
    double worst = 0;
    int64_t k;
    int i;
    for (k = 0; k < OPS; k++) {
        double sum = 0, most = 0;
        for (i = DEVICES; i < RANKS; i++) {
            sum += counted[i].flops[k];
            if (counted[i].flops[k] > most) most = counted[i].flops[k];
        }
        if (most * DEVICES / sum > worst) worst = most * DEVICES / sum;
    }
    return worst;
}

int main(void) {
    static const char text[] = "A sequence is as long as its last token is late: what it looks back to grows with it, and so does the work.";
    static int32_t token[MICRO_BATCHES][CONTEXT + 1];
    static int64_t start[2] = { 0, CONTEXT }, granule[GRANULES + 1];
    static het_batch batch[MICRO_BATCHES]; /* zero */
    uint64_t one = 0, all = 1;
    het_error error = { HET_OK, "" };
    int m, i, wrong = 0;
    for (i = 0; i <= GRANULES; i++) granule[i] = i * (CONTEXT / GRANULES);
    for (m = 0; m < MICRO_BATCHES; m++) {
        for (i = 0; i <= CONTEXT; i++) token[m][i] = text[(7 * m + i) % (int)(sizeof text - 1)];
        batch[m].tokens = CONTEXT, batch[m].sequences = 1, batch[m].token = token[m], batch[m].target = token[m] + 1, batch[m].sequence_start = start;
        batch[m].granules = GRANULES, batch[m].granule_start = granule;
    }
    if (train(batch, 1, &one, &error) != HET_OK || train(batch, RANKS, &all, &error) != HET_OK) {
        fprintf(stderr, "attention_team: %s\n", error.text);
        return 1;
    }
    for (i = 0; i < RANKS; i++) wrong += counted[i].ops != (i < DEVICES ? 0 : OPS);
    printf("attention of %d slices a micro-batch: %d ops a device, the largest share of any is %.3f of an equal one; stages that attend themselves, "
           "to slices one behind the other, have up to %.3f\n", SLICES, OPS, spread(), 4.0 * 7 / (1 + 3 + 5 + 7));
    return one == all && wrong == 0 && spread() <= 1.1 ? 0 : 1;
}
