/* A linear layer on a grid of ranks, a unit kind of the user's (examples/grid_unit.h). A chain of two such layers trains on one rank, by the
   engine's own nodes and by the unit, then on every grid a x b x c of 8 ranks: the weights must be equal, to the last bit. A formula says how many
   bytes the ranks send each other in a step, and must order the grids as the bytes counted do. Which grid is best depends on how many tokens there
   are beside the layers' width.
     cc -O2 -I. -Iutil examples/grid.c -o build/grid -lm -lpthread */
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#include "hetrain_plan.h"
#include "grid_unit.h"

#include <math.h>

enum { RANKS = 8, LAYERS = 2, WIDTH = 128, SEQUENCES = 8, LENGTH = 16, TOKENS = SEQUENCES * LENGTH, STEPS = 4 };
typedef struct outcome { grid g; uint64_t hash; double first, loss, exchanged, reduced, predicted; } outcome; /* bytes of a step, of all ranks */

/* The same layer as a list of nodes. */
static het_result nodes_describe(const het_unit *unit, het_unit_info *info) {
    het_program *p = het_program_begin(unit, info);
    const int x = het_node_input(p, 0, WIDTH);
    het_node_output(p, het_node_residual(p, x, het_node_linear(p, x, "grid.#", WIDTH, 0.05f)));
    return het_program_end(p);
}
static const het_unit_iface nodes = { HETRAIN_UNIT_VERSION, "nodes", nodes_describe, het_program_forward, het_program_backward_input,
                                      het_program_backward_weight };

/* Bytes of a step of 8 ranks that have as many rows each. Of n rows and D columns a layer's forward moves, in floats,
       n D (bc - 1) / b   of x: a member's part has n / a rows and D / b columns, and it has all columns of n / 8 of the rows
       n D (b - 1)        along the chains
       n D (1 - 1 / bc)   of the result, to the members that own the rows
   and its backward the same with b and c exchanged: together n D (2 b + 2 c - 1 / b - 1 / c - 2 / bc). Of W each element has a users and is owned
   by one of the 8 ranks: a user sends the owner a double and gets back a float. The owner is itself a user of a / 8 of what it owns, or of 1 / b
   where a = 1: owners follow each other in the order of W's rows, as then its users do. `others`: parameters that all members use. */
static double predict(const grid *g, double others) {
    const double a = (double)g->a, b = (double)g->b, c = (double)g->c, elements = (double)WIDTH * WIDTH;
    const double moved = (double)TOKENS * WIDTH * (2 * b + 2 * c - 1 / b - 1 / c - 2 / (b * c));
    return LAYERS * (4 * moved + 12 * elements * (a > 1 ? a - a / RANKS : 1 - 1 / b)) + 12 * (RANKS - 1) * others;
}

/* Bytes sent so far, with a sign. */
static void count(const het_ctx *ctx, int64_t ranks, double sign, outcome *o) {
    int64_t r, k;
    for (r = 0; r < ranks; r++) {
        het_timeline timeline;
        het_get_timeline(ctx, r, &timeline);
        for (k = 0; k < ranks; k++) o->exchanged += sign * (double)timeline.traffic[k].exchange_bytes;
        for (k = 0; k < ranks; k++) o->reduced += sign * (double)timeline.traffic[k].reduction_bytes;
    }
}

static het_result steps(het_ctx *ctx, int64_t ranks, const het_batch *batch, outcome *o) {
    double others = 0;
    int64_t i;
    for (i = 0; i < het_parameter_count(ctx); i++) {
        het_parameter_info p;
        GRID_TRY(het_parameter_get_info(ctx, i, &p));
        if (strncmp(p.name, "grid.", 5) != 0) others += (double)p.count;
    }
    for (i = 0; i < STEPS; i++) {
        het_step_info info;
        if (i == STEPS - 1) count(ctx, ranks, -1, o);
        GRID_TRY(het_step(ctx, batch, 1, &info));
        if (i == 0) o->first = info.loss;
        if (i == STEPS - 1 && info.repeated) return HET_ERR_STATE; /* its bytes would be those of two steps */
        o->loss = info.loss;
    }
    count(ctx, ranks, 1, o);
    o->predicted = predict(&o->g, others);
    return het_hash(ctx, &o->hash);
}

static het_result train(const het_unit_iface *kind, outcome *o, het_error *error) {
    static int32_t token[TOKENS], target[TOKENS];
    const int64_t ranks = o->g.a * o->g.b * o->g.c;
    int64_t start[SEQUENCES + 1], units = 0, i;
    const het_batch batch = { TOKENS, SEQUENCES, token, target, NULL, start, NULL, SEQUENCES, start }; /* a sequence a granule */
    het_unit unit[LAYERS + 2];
    het_device_desc device[RANKS];
    het_plan_desc of_plan;
    het_plan *plan = NULL;
    het_desc desc;
    het_ctx *ctx = NULL;
    het_result result;
    memset(&desc, 0, sizeof desc), memset(&of_plan, 0, sizeof of_plan), memset(device, 0, sizeof device);
    for (i = 0; i <= SEQUENCES; i++) start[i] = i * LENGTH;
    for (i = 0; i < TOKENS; i++) token[i] = (int32_t)(i * i % 97), target[i] = (int32_t)((i + 1) * (i + 1) % 97);
    desc.model.layers = LAYERS / 2, desc.model.width = WIDTH, desc.model.heads = RANKS, desc.model.context = LENGTH, desc.model.vocab = 97;
    desc.limits.max_tokens = TOKENS, desc.limits.max_sequences = SEQUENCES, desc.optimizer.learning_rate = 1e-2f;
    desc.layout.devices = device, desc.layout.device_count = ranks, desc.units = unit, desc.unit_count = LAYERS + 2;
    of_plan.units = LAYERS + 2, of_plan.ranks = ranks, of_plan.heads = RANKS;
    result = het_model_complete(&desc.model, error);
    if (result == HET_OK) result = het_model_units(&desc.model, unit, LAYERS + 2, &units, error); /* embed, attention, MLP, head */
    for (i = 1; i <= LAYERS && result == HET_OK; i++) unit[i].iface = kind, unit[i].settings = &o->g, unit[i].layer = i - 1;
    if (result == HET_OK && ranks > 1) result = het_plan_read(&of_plan, "tp8", 3, &plan, error);
    desc.layout.plan = plan;
    if (result == HET_OK) result = het_create(&desc, &ctx, error);
    if (result == HET_OK) result = steps(ctx, ranks, &batch, o);
    if (result != HET_OK && ctx != NULL) het_error_put(error, result, het_last_error(ctx));
    het_destroy(ctx);
    het_plan_free(plan);
    return result;
}

int main(void) {
    outcome one = { { 1, 1, 1 }, 0, 0, 0, 0, 0, 0 }, o[16], by_nodes = one;
    int64_t grids = 0, off = 0, wrong = 0, other, b, c, i, j;
    het_error error = { HET_OK, "" };
    het_result result = train(&nodes, &by_nodes, &error);
    if (result == HET_OK) result = train(&grid_unit, &one, &error);
    other = one.hash != by_nodes.hash;
    for (b = 1; b <= RANKS; b *= 2)
        for (c = 1; c <= RANKS / b && result == HET_OK; c *= 2) { /* into its place by the formula */
            outcome x = { { 0, 0, 0 }, 0, 0, 0, 0, 0, 0 };
            x.g.a = RANKS / b / c, x.g.b = b, x.g.c = c;
            result = train(&grid_unit, &x, &error);
            for (i = grids++; i > 0 && o[i - 1].predicted > x.predicted; i--) o[i] = o[i - 1];
            o[i] = x;
        }
    if (result != HET_OK) {
        fprintf(stderr, "grid: %s: %s\n", het_result_text(result), error.text);
        return 1;
    }
    printf("1 rank     loss %.4f to %.4f  weights %016llx, by nodes %016llx\n", one.first, one.loss, (unsigned long long)one.hash,
           (unsigned long long)by_nodes.hash);
    for (i = 0; i < grids; i++) {
        const double sent = o[i].exchanged + o[i].reduced;
        other += o[i].hash != one.hash;
        off += fabs(o[i].predicted - sent) > 0.5;
        for (j = 0; j < i; j++) wrong += o[j].predicted < o[i].predicted && o[j].exchanged + o[j].reduced >= sent;
        printf("%d x %d x %d  weights %016llx  %.0f bytes a step predicted, %.0f counted, %.0f of them of activations\n", (int)o[i].g.a,
               (int)o[i].g.b, (int)o[i].g.c, (unsigned long long)o[i].hash, o[i].predicted, sent, o[i].exchanged);
    }
    printf("%d grids of %d ranks: %d times other weights, %d times other bytes than predicted, %d pairs in another order\n", (int)grids, RANKS,
           (int)other, (int)off, (int)wrong);
    return grids == 10 && other == 0 && off == 0 && wrong == 0 ? 0 : 1;
}
