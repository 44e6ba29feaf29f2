/* Experts: a small llama whose MLPs are 8 experts each, of which a token uses 2. It learns this text three times: without and with the
   auxiliary loss, which evens out how often the experts are chosen, and then again by two unequal ranks as a team, each with some of every
   sequence's rows. What an expert has no place for is decided granule by granule, so the team drops the same tokens and ends with the same
   weights, to the last bit.
     cc -O2 -I. -Iutil examples/experts.c -o build/experts -lm -lpthread */
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#define HETRAIN_EXPERTS_IMPLEMENTATION
#include "hetrain.h"
#include "hetrain_experts.h"
#include "hetrain_plan.h"

#include <stdio.h>
#include <string.h>

enum { LAYERS = 2, WIDTH = 64, EXPERTS = 8, USED = 2, CONTEXT = 128, SEQUENCES = 8, TOKENS = SEQUENCES * CONTEXT, STEPS = 60 };

static const char text[] =
    "A token goes through two of eight experts. The router says which: its logits are the product of the token's normed row with a matrix of a row "
    "an expert, and the two largest win. Nothing makes them take turns. Without a reason to spread, a few experts get most of the tokens, learn the "
    "most, and get still more of them; the others stay as they began. The auxiliary loss is such a reason: it is least where all are chosen "
    "alike. And a "
    "capacity is a fence: beyond its places an expert takes nobody, the token goes on without it, and every product is of about the same size. ";

typedef struct outcome { double loss, dropped, busiest, idlest; uint64_t hash; } outcome;

/* Sequences of the text from every 64th byte on. */
static void fill(int32_t *token, int32_t *target, int64_t *start) {
    const int length = (int)sizeof text - 1;
    int s, i;
    for (s = 0; s <= SEQUENCES; s++) start[s] = s * CONTEXT;
    for (s = 0; s < SEQUENCES; s++)
        for (i = 0; i < CONTEXT; i++) {
            token[s * CONTEXT + i] = (unsigned char)text[(s * 64 + i) % length];
            target[s * CONTEXT + i] = (unsigned char)text[(s * 64 + i + 1) % length];
        }
}

/* Trains with `ranks` ranks; what the last 10 steps met is counted. */
static het_result train(float auxiliary, int64_t ranks, outcome *o, het_error *error) {
    static int32_t token[TOKENS], target[TOKENS];
    static het_experts_counts counts[LAYERS];
    int64_t start[SEQUENCES + 1], granule[3] = { 0, TOKENS / 2, TOKENS }, e, step;
    const het_batch batch = { TOKENS, SEQUENCES, token, target, NULL, start, NULL, 2, granule };
    het_device_desc device[2];
    het_experts experts;
    het_unit units[2 * LAYERS + 2];
    het_plan_desc plan;
    het_plan *team = NULL;
    het_step_info info = { 0, 0, 0, 0, 0, 0, 0, 0 };
    het_desc desc;
    het_ctx *ctx = NULL;
    het_result result;
    memset(&desc, 0, sizeof desc);
    memset(&experts, 0, sizeof experts);
    memset(&plan, 0, sizeof plan);
    memset(device, 0, sizeof device);
    desc.model.family = HET_LLAMA, desc.model.layers = LAYERS, desc.model.width = WIDTH, desc.model.context = CONTEXT;
    desc.limits.max_tokens = TOKENS, desc.limits.max_sequences = SEQUENCES;
    desc.optimizer.learning_rate = 3e-3f, desc.optimizer.total_steps = STEPS;
    desc.layout.devices = device, desc.layout.device_count = ranks;
    experts.experts = EXPERTS, experts.used = USED, experts.width = 96, experts.capacity = 1.25f, experts.auxiliary = auxiliary;
    experts.counts = counts;
    plan.units = 2 * LAYERS + 2, plan.ranks = ranks;
    fill(token, target, start);
    result = het_experts_units(&desc, &experts, units, 2 * LAYERS + 2, error);
    if (result == HET_OK && ranks > 1) result = het_plan_read(&plan, "cp2", 3, &team, error);
    desc.layout.plan = team;
    if (result == HET_OK) result = het_create(&desc, &ctx, error);
    for (step = 0; step < STEPS && result == HET_OK; step++) {
        if (step == STEPS - 10) memset(counts, 0, sizeof counts);
        result = het_step(ctx, &batch, 1, &info);
    }
    if (result == HET_OK) result = het_hash(ctx, &o->hash);
    if (result != HET_OK && ctx != NULL) het_error_put(error, result, het_last_error(ctx));
    o->loss = info.loss, o->dropped = (double)counts[0].dropped / (double)(USED * counts[0].rows);
    o->busiest = 0, o->idlest = 1;
    for (e = 0; e < EXPERTS; e++) {
        const double share = (double)counts[0].chosen[e] / (double)(USED * counts[0].rows);
        if (share > o->busiest) o->busiest = share;
        if (share < o->idlest) o->idlest = share;
    }
    het_destroy(ctx);
    het_plan_free(team);
    return result;
}

static void show(const char *what, const outcome *o) {
    printf("%-24s loss %.4f  first layer: shares %4.1f to %4.1f %%, dropped %4.1f %%  weights %016llx\n", what, o->loss, 100 * o->idlest,
           100 * o->busiest, 100 * o->dropped, (unsigned long long)o->hash);
}

int main(void) {
    outcome free_choice, balanced, team;
    het_error error = { HET_OK, "" };
    if (train(0, 1, &free_choice, &error) != HET_OK || train(0.1f, 1, &balanced, &error) != HET_OK || train(0.1f, 2, &team, &error) != HET_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    show("without auxiliary loss", &free_choice);
    show("with it", &balanced);
    show("with it, a team of two", &team);
    return team.hash == balanced.hash && balanced.dropped < free_choice.dropped && balanced.busiest < free_choice.busiest ? 0 : 1;
}
