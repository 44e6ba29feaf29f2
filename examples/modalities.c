/* Batches that bring their own lists (PipeWeaver, 2025). The data is a generator's, no real images: in turns it makes batches full of image and
   batches full of text for a model whose first units work on image rows alone and whose last on text rows alone (examples/modality_unit.h), in a
   pipeline of two ranks that keep few activations. What a stage takes changes with the batch, and in an order that suits one kind ranks wait in the
   other. Some steps tell what actions take, het_schedule_timed makes lists for each kind and for their mean, and het_replan hands them over between
   steps (by a copy of weights and state: better, batches of a kind come in rows). Simulated, the best list for all must take at least 2 % longer
   than lists for each kind; run, both must train the weights of one rank.
     cc -O2 -I. -Iutil examples/modalities.c -o build/modalities -lm -lpthread */
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#include "modality_unit.h"
#include "hetrain_plan.h"

#include <stdio.h>
#include <string.h>

enum { TOKENS = 192, MUCH = 180, MICRO_BATCHES = 12, RANKS = 2, STAGES = 4, STEPS = 8 };
/* Seconds of an action, the mean over a step's micro-batches, and of a batch: the least of all steps. */
typedef struct outcome { double took[KINDS][STAGES][HET_ACTION_W + 1], span[KINDS], first, loss; uint64_t hash; } outcome;

static int draw(uint64_t *state) { return (int)((*state = *state * 6364136223846793005u + 1442695040888963407u) >> 40); }

/* The generator: an image's patches are of the 4 levels of its class, text counts in steps of the class. Patches have no targets. */
static void generate(int64_t step, het_batch micro[MICRO_BATCHES]) {
    static int32_t token[MICRO_BATCHES][TOKENS], target[MICRO_BATCHES][TOKENS];
    static const int64_t bounds[2] = { 0, TOKENS };
    const int images = step % KINDS == IMAGE ? MUCH : TOKENS - MUCH;
    uint64_t state = (uint64_t)step + 1;
    for (int m = 0; m < MICRO_BATCHES; m++) {
        const int of_class = draw(&state) % 8;
        int word = draw(&state) % LEVELS;
        for (int i = 0; i < TOKENS; i++) {
            token[m][i] = i < images ? LEVELS + 4 * of_class + draw(&state) % 4 : word;
            if (i >= images) word = (word + 1 + of_class) % LEVELS;
            target[m][i] = i < images ? -1 : word;
        }
        memset(&micro[m], 0, sizeof micro[m]);
        micro[m].tokens = TOKENS, micro[m].sequences = 1, micro[m].sequence_start = bounds, micro[m].token = token[m], micro[m].target = target[m];
    }
}

/* lists: for batches of each kind; NULL: the plan's. */
static het_result train(het_desc *desc, het_schedule *const *lists, outcome *o, het_error *error) {
    het_batch micro[MICRO_BATCHES];
    het_replan_desc to;
    het_timeline t;
    het_step_info info;
    het_ctx *ctx = NULL;
    het_result result;
    memset(&to, 0, sizeof to), memset(&info, 0, sizeof info);
    to.plan = desc->layout.plan, to.schedule = desc->layout.schedule = lists != NULL ? lists[0] : NULL;
    result = het_create(desc, &ctx, error);
    for (int64_t step = 0; step < STEPS && result == HET_OK; step++, o->loss = info.loss) {
        const int kind = (int)(step % KINDS);
        double begin = 1e30, end = 0, sum[STAGES][HET_ACTION_W + 1] = { { 0 } };
        generate(step, micro);
        if (lists != NULL && lists[kind] != to.schedule) to.schedule = lists[kind], result = het_replan(ctx, &to);
        if (result == HET_OK) result = het_step(ctx, micro, MICRO_BATCHES, &info);
        if (step == 0) o->first = info.loss;
        for (int64_t r = 0; r < desc->layout.device_count && result == HET_OK; r++) {
            het_get_timeline(ctx, r, &t);
            for (const het_record *a = t.record; a < t.record + t.records; a++) {
                if (a->action.kind > HET_ACTION_W) continue;
                sum[a->action.stage][a->action.kind] += (a->end - a->start) / MICRO_BATCHES;
                begin = a->start < begin ? a->start : begin, end = a->end > end ? a->end : end;
            }
        }
        for (int i = 0; i < STAGES; i++)
            for (int k = 0; k <= HET_ACTION_W; k++)
                if (step < KINDS || sum[i][k] < o->took[kind][i][k]) o->took[kind][i][k] = sum[i][k];
        o->span[kind] = step < KINDS || end - begin < o->span[kind] ? end - begin : o->span[kind];
    }
    if (result == HET_OK) result = het_hash(ctx, &o->hash);
    if (result != HET_OK && ctx != NULL) het_error_put(error, result, het_last_error(ctx));
    het_destroy(ctx);
    return result;
}

/* Lists for each kind of batch and for their mean, and the seconds that each takes, simulated, for each kind. */
static het_result make_lists(const het_plan *plan, const outcome *seen, het_schedule *lists[KINDS + 1], double seconds[KINDS + 1][KINDS],
                             het_error *error) {
    static const int64_t counts[1] = { MICRO_BATCHES };
    static het_stage_cost cost[KINDS + 1][STAGES];
    static het_costs costs[KINDS + 1];
    het_result result = HET_OK;
    int v, i, k;
    for (v = 0; v <= KINDS && result == HET_OK; v++) {
        for (i = 0; i < STAGES; i++) {
            double took[HET_ACTION_W + 1];
            for (k = 0; k <= HET_ACTION_W; k++) took[k] = v < KINDS ? seen->took[v][i][k] : (seen->took[0][i][k] + seen->took[1][i][k]) / 2;
            cost[v][i].forward.base = took[HET_ACTION_F], cost[v][i].input.base = took[HET_ACTION_I], cost[v][i].weight.base = took[HET_ACTION_W];
            cost[v][i].backward.base = took[HET_ACTION_I] + took[HET_ACTION_W];
        }
        costs[v].stage = cost[v], result = het_schedule_timed(plan, counts, &costs[v], NULL, &lists[v], error);
    }
    for (v = 0; v <= KINDS; v++)
        for (k = 0; k < KINDS && result == HET_OK; k++) {
            het_simulation *simulation = NULL;
            if ((result = het_simulate(plan, lists[v], &costs[k], HET_NO, NULL, &simulation, error)) == HET_OK) seconds[v][k] = simulation->makespan;
            het_simulation_free(simulation);
        }
    return result;
}

int main(void) {
    static const char in_turns[] = "{\"schedule\":\"zb-h1\",\"memory_limit\":3,\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,2]},"
                                   "{\"rank\":1,\"units\":[2,3]},{\"rank\":0,\"units\":[3,5]},{\"rank\":1,\"units\":[5,7]}]}]}";
    static const char *const names[3] = { "one list for all", "lists of their own", "one rank" };
    static het_device_desc device[RANKS]; /* zero */
    static outcome seen, run[3];          /* zero */
    het_unit units[UNITS];
    het_schedule *lists[KINDS + 1] = { NULL, NULL, NULL }, *same[KINDS], *each[KINDS] = { NULL, NULL };
    het_plan_desc of_plan;
    het_plan *plan = NULL;
    het_desc desc;
    het_error error = { HET_OK, "" };
    double s[KINDS + 1][KINDS] = { { 0 } }, all, own[KINDS];
    int best = 0, i, k;
    het_result result;
    memset(&desc, 0, sizeof desc), memset(&of_plan, 0, sizeof of_plan);
    desc.limits.max_tokens = TOKENS, desc.limits.max_micro_batches = MICRO_BATCHES, desc.layout.devices = device, desc.layout.device_count = RANKS;
    desc.optimizer.learning_rate = 3e-3f, desc.optimizer.total_steps = STEPS, of_plan.units = UNITS, of_plan.ranks = RANKS;
    result = describe(&desc, TOKENS, units, &error);
    if (result == HET_OK) result = het_plan_read(&of_plan, in_turns, sizeof in_turns - 1, &plan, &error);
    desc.layout.plan = plan, device[0].speed = device[1].speed = 0.5; /* ranks sleep half of the time, so that two fit into a core */
    if (result == HET_OK) result = train(&desc, NULL, &seen, &error);
    if (result == HET_OK) result = make_lists(plan, &seen, lists, s, &error);
    for (i = 1; i <= KINDS; i++) best = s[i][0] + s[i][1] < s[best][0] + s[best][1] ? i : best;
    same[0] = same[1] = lists[best], all = s[best][0] + s[best][1];
    for (k = 0; k < KINDS; k++)
        for (i = 0, own[k] = 1e30; i <= KINDS; i++)
            if (s[i][k] < own[k]) own[k] = s[i][k], each[k] = lists[i];
    if (result == HET_OK) result = train(&desc, same, &run[0], &error);
    if (result == HET_OK) result = train(&desc, each, &run[1], &error);
    desc.layout.plan = NULL, desc.layout.device_count = 1, device[0].speed = 1;
    if (result == HET_OK) result = train(&desc, NULL, &run[2], &error);
    if (result == HET_OK)
        printf("two batches, simulated: %.1f ms by the best list for all, %.1f ms by lists of their own (images %.1f, text %.1f)\n", 1e3 * all,
               1e3 * (own[0] + own[1]), 1e3 * own[0], 1e3 * own[1]);
    for (i = 0; i < 3 && result == HET_OK; i++) {
        printf("%-18s  ", names[i]);
        if (i < 2) printf("run: images %.1f ms, text %.1f ms; ", 1e3 * run[i].span[0], 1e3 * run[i].span[1]);
        printf("loss %.4f to %.4f, weights %016llx\n", run[i].first, run[i].loss, (unsigned long long)run[i].hash);
    }
    if (result != HET_OK) fprintf(stderr, "modalities: %s: %s\n", het_result_text(result), error.text);
    for (i = 0; i <= KINDS; i++) het_schedule_free(lists[i]);
    het_plan_free(plan);
    return result == HET_OK && all > own[0] + own[1] && run[0].hash == run[2].hash && run[1].hash == run[2].hash &&
           run[2].loss < run[2].first ? 0 : 1;
}
