/* Attention over the nodes of a graph, by a learnable bias of its scores: a unit kind of one's own whose scores get one scalar a head and relation
   of two nodes. In each sample the 16 nodes of a hidden graph carry random bits, and a node is to tell a sum over other nodes.
     planted    every pair of nodes is a relation of its own: the bias is an adjacency matrix, and finds the graph, whose neighbours are summed
     distances  the graph is known, pairs as far apart are one relation (as in Graphormer, arXiv 2106.05234), and the bias finds which distance counts
   The weights are compared with those of a pipeline of two ranks.
     cc -O2 -I. -Iutil examples/graph.c -o build/graph -lm -lpthread */
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#include "hetrain.h"
#include "hetrain_plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NODES = 16, PAIRS = NODES * NODES, WIDTH = 32, HEADS = 2, SAMPLES = 16, TOKENS = SAMPLES * NODES, STEPS = 300 };
typedef struct relations { int64_t count; int32_t of[PAIRS]; } relations; /* of[i NODES + j]: of node i to node j */
typedef struct outcome { double first, loss; float bias[HEADS * PAIRS]; uint64_t hash; } outcome;

static het_result graph_describe(const het_unit *unit, het_unit_info *info) {
    const relations *r = (const relations *)unit->settings;
    const het_matrix scalars = { "graph.#.relation", HEADS * r->count, 1, 0.0f, 0 }; /* its matrix is 0 and frozen, its bias is learned */
    het_program *p = het_program_begin(unit, info);
    const int x = het_node_input(p, 0, WIDTH), h = het_node_norm(p, x, "graph.#.norm");
    const int q = het_node_linear(p, h, "graph.#.q", WIDTH, 0.05f), k = het_node_linear(p, h, "graph.#.k", WIDTH, 0.05f);
    const int v = het_node_linear(p, h, "graph.#.v", WIDTH, 0.1f);
    int bias;
    het_node_linears(p, h, 1, &scalars, &bias);
    bias = het_node_biased_attention(p, q, k, v, bias, r->of);
    het_node_output(p, het_node_residual(p, x, het_node_linear(p, bias, "graph.#.out", WIDTH, 0.1f)));
    return het_program_end(p);
}
static const het_unit_iface graph_unit = { HETRAIN_UNIT_VERSION, "graph", graph_describe, het_program_forward, het_program_backward_input,
                                           het_program_backward_weight };

static int is_frozen(void *user, const char *name) { (void)user; return strcmp(name, "graph.0.relation.weight") == 0; }

static uint32_t draw(uint64_t *state) { *state = *state * 6364136223846793005u + 1442695040888963407u; return (uint32_t)(*state >> 40); }

/* A ring through all nodes in random order and a random chord from every second one to another: 3 neighbours, seldom 2. */
static void plant(uint64_t *state, relations *distance) {
    int order[NODES], i, j, k;
    for (i = 0; i < NODES; i++) order[i] = i;
    for (i = 0; i < PAIRS; i++) distance->of[i] = i % (NODES + 1) ? NODES : 0;
    for (k = 0; k < 2; k++) {
        for (i = NODES - 1; i > 0; i--) {
            const int other = (int)(draw(state) % (uint32_t)(i + 1)), kept = order[i];
            order[i] = order[other], order[other] = kept;
        }
        for (i = 0; i < NODES; i += 1 + k) { /* k 0: the ring, 1: pairs */
            const int a = order[i], b = order[(i + 1) % NODES];
            distance->of[a * NODES + b] = distance->of[b * NODES + a] = 1;
        }
    }
    for (k = 0; k < NODES; k++)
        for (i = 0; i < NODES; i++)
            for (j = 0; j < NODES; j++)
                if (distance->of[i * NODES + k] + distance->of[k * NODES + j] < distance->of[i * NODES + j])
                    distance->of[i * NODES + j] = distance->of[i * NODES + k] + distance->of[k * NODES + j];
    for (distance->count = 0, i = 0; i < PAIRS; i++)
        if (distance->of[i] >= distance->count) distance->count = distance->of[i] + 1;
}

/* Trains a node to tell the sum over the nodes that are `far` away in the graph. */
static het_result train(const relations *graph, int far, const relations *r, int64_t ranks, outcome *o, het_error *error) {
    static int32_t token[TOKENS], target[TOKENS];
    int64_t start[SAMPLES + 1], units = 0, index = -1, step, i, j;
    const het_batch batch = { TOKENS, SAMPLES, token, target, NULL, start, NULL, 0, NULL };
    het_unit unit[4];
    het_device_desc device[2];
    het_plan_desc of_plan;
    het_plan *plan = NULL;
    het_parameter_info p;
    het_step_info info;
    het_desc desc;
    het_ctx *ctx = NULL;
    uint64_t state = 1;
    het_result result;
    memset(&desc, 0, sizeof desc), memset(&of_plan, 0, sizeof of_plan), memset(device, 0, sizeof device), memset(&info, 0, sizeof info);
    for (i = 0; i <= SAMPLES; i++) start[i] = i * NODES;
    desc.model.family = HET_LLAMA, desc.model.causal = HET_NO, desc.model.layers = 1, desc.model.width = WIDTH, desc.model.heads = HEADS;
    desc.model.context = NODES, desc.model.vocab = NODES, desc.limits.max_tokens = TOKENS, desc.limits.max_sequences = SAMPLES;
    desc.optimizer.learning_rate = 2e-2f, desc.optimizer.total_steps = STEPS, desc.frozen = is_frozen, desc.units = unit, desc.unit_count = 4;
    desc.layout.devices = device, desc.layout.device_count = ranks, of_plan.units = 4, of_plan.ranks = ranks;
    result = het_model_complete(&desc.model, error);
    if (result == HET_OK) result = het_model_units(&desc.model, unit, 4, &units, error); /* embed, attention, MLP, head */
    unit[1].iface = &graph_unit, unit[1].settings = r;
    if (result == HET_OK && ranks > 1) result = het_plan_read(&of_plan, "pp", 2, &plan, error);
    desc.layout.plan = plan;
    if (result == HET_OK) result = het_create(&desc, &ctx, error);
    for (i = 0; result == HET_OK && i < het_parameter_count(ctx); i++)
        if (het_parameter_get_info(ctx, i, &p) == HET_OK && strcmp(p.name, "graph.0.relation.bias") == 0) index = i;
    for (step = 0; step < STEPS && result == HET_OK; step++, o->loss = info.loss) {
        for (i = 0; i < TOKENS; i++) token[i] = (int32_t)(draw(&state) & 1), target[i] = 0;
        for (i = 0; i < TOKENS; i++)
            for (j = 0; j < NODES; j++) target[i] += graph->of[i % NODES * NODES + j] == far ? token[i / NODES * NODES + j] : 0;
        result = het_step(ctx, &batch, 1, &info);
        if (step == 0) o->first = info.loss;
    }
    if (result == HET_OK) result = het_parameter_read(ctx, index, HET_WEIGHT, o->bias);
    if (result == HET_OK) result = het_hash(ctx, &o->hash);
    if (result != HET_OK && ctx != NULL) het_error_put(error, result, het_last_error(ctx));
    het_destroy(ctx);
    het_plan_free(plan);
    return result;
}

/* What node i gives node j of its attention, by the bias alone, the mean over heads. */
static double attention_of(const relations *r, const outcome *o, int i, int j) {
    double weight = 0;
    int h, k;
    for (h = 0; h < HEADS; h++) {
        double sum = 0;
        for (k = 0; k < NODES; k++) sum += exp((double)o->bias[h * r->count + r->of[i * NODES + k]]);
        weight += exp((double)o->bias[h * r->count + r->of[i * NODES + j]]) / sum / HEADS;
    }
    return weight;
}

int main(void) {
    static relations graph, pairs;
    static outcome planted, distances, two;
    double told[NODES] = { 0 }, f1, hit = 0, found = 0, edges = 0;
    het_error error = { HET_OK, "" };
    uint64_t state = 2;
    int64_t i;
    het_result result;
    plant(&state, &graph);
    for (pairs.count = PAIRS, i = 0; i < PAIRS; i++) pairs.of[i] = (int32_t)i;
    result = train(&graph, 1, &pairs, 1, &planted, &error);
    if (result == HET_OK) result = train(&graph, 2, &graph, 1, &distances, &error);
    if (result == HET_OK) result = train(&graph, 2, &graph, 2, &two, &error);
    if (result != HET_OK) {
        fprintf(stderr, "graph: %s: %s\n", het_result_text(result), error.text);
        return 1;
    }
    for (i = 0; i < PAIRS; i++) { /* an edge: more than an even share, there and back together */
        const int from = (int)i / NODES, to = (int)i % NODES, is = graph.of[i] == 1;
        const int said = attention_of(&pairs, &planted, from, to) + attention_of(&pairs, &planted, to, from) > 2.0 / NODES;
        edges += is, found += said, hit += is && said;
        told[graph.of[i]] += attention_of(&graph, &distances, from, to) / NODES;
    }
    f1 = 2 * hit / (edges + found);
    printf("planted    loss %.4f to %.4f  %d of %d edges found, and %d others: F1 %.3f\n", planted.first, planted.loss, (int)hit, (int)edges,
           (int)(found - hit), f1);
    printf("distances  loss %.4f to %.4f  attention by distance from 0 to %d:", distances.first, distances.loss, (int)graph.count - 1);
    for (i = 0; i < graph.count; i++) printf(" %.3f", told[i]);
    printf("  weights %016llx, of two ranks %016llx\n", (unsigned long long)distances.hash, (unsigned long long)two.hash);
    return f1 >= 0.9 && told[2] > 0.5 && two.hash == distances.hash ? 0 : 1;
}
