/* Predicted against measured step times. A grid of models, layouts, schedules, micro-batches and links is declared below; a seed draws 24
   configurations from it. Every device list is profiled for its model, every configuration simulated from that profile, and only then measured:
   the median of 5 runs, which are interleaved over all configurations, runs that were disturbed repeated; and once more in the same way, which is
   the noise. Slow ranks sleep, so that never more than two threads are busy on the average. Two sets are declared whole instead of drawn:
   predict_slow, pipelines that are not alike, slow links between them, ranks without work; predict_divided, teams, sums and weights of which
   a rank has a part, a keeper. Devices are steady ones (steady.h), so that the machine's own drift is no part of the error; --devices cpu: the CPU. */
#ifndef BENCH_PREDICT_H
#define BENCH_PREDICT_H

#include "../../programs/layout.h"
#include "../../programs/profile.h"
#include "steady.h"

enum { PREDICT_CONFIGURATIONS = 24, PREDICT_RUNS = 5, PREDICT_RANKS = 4, PREDICT_LINKS = 6, PREDICT_MOST_BATCHES = 16 };

static const struct { const char *name, *spec; int64_t length; } predict_models[] = {
    { "gpt2", "gpt2:layers=4,width=192,heads=6,vocab=1024,context=128", 128 },
    { "llama", "llama:layers=3,width=256,heads=4,vocab=2048,context=256", 256 } };

/* `shares` and `cut` say how the pipelines share micro-batches and where a pipeline of unequal ranks is cut, in parts of the chain. */
static const struct { const char *devices, *plan; double shares[4], cut[4]; } predict_layouts[] = {
    { "cpu:1", "dp", { 0 }, { 0 } },
    { "cpu:1,cpu:1", "dp", { 0 }, { 0 } },
    { "cpu:1,cpu:1", "pp", { 0 }, { 0 } },
    { "cpu:1,cpu:1@0.5", "dp", { 2, 1 }, { 0 } },
    { "cpu:1,cpu:1@0.5", "pp", { 0 }, { 2, 1 } },
    { "cpu:1@0.5,cpu:1@0.5,cpu:1@0.5", "pp", { 0 }, { 0 } },
    { "cpu:1@0.5,cpu:1@0.5,cpu:1@0.25", "dp", { 2, 2, 1 }, { 0 } },
    { "cpu:1@0.4,cpu:1@0.4,cpu:1@0.4,cpu:1@0.4", "pp", { 0 }, { 0 } },
    { "cpu:1@0.4,cpu:1@0.4,cpu:1@0.4,cpu:1@0.4", "dp2xpp2", { 0 }, { 0 } } };

static const char *const predict_schedules[] = { "gpipe", "1f1b", "zb-h1", "interleaved" };
static const struct { int64_t sequences, micro_batches; } predict_batches[] = { { 2, 8 }, { 4, 4 }, { 4, 8 }, { 8, 4 } };
/* Between neighbouring ranks. */
static const struct { const char *name; double latency, bandwidth; } predict_links[] = {
    { "none", 0, 0 }, { "1ms", 1e-3, 0 }, { "5ms:100M", 5e-3, 1e8 } };

/* Of predict_models[0], whose chain has 10 units. */
#define PREDICT_STAGE(rank, begin, end) "{\"rank\":" #rank ",\"units\":[" #begin "," #end "]}"
#define PREDICT_PIPELINE(share, stages) "{\"share\":" #share ",\"stages\":[" stages "]}"
typedef struct declared { const char *devices, *plan, *schedule; int batch; const char *links; } declared;
static const declared predict_slow[] = {
    { "cpu:1@0.5,cpu:1@0.5,cpu:1@0.5", "{\"pipelines\":[" PREDICT_PIPELINE(2, PREDICT_STAGE(0, 0, 5) "," PREDICT_STAGE(1, 5, 10)) ","
      PREDICT_PIPELINE(1, PREDICT_STAGE(2, 0, 10)) "]}", "1f1b", 2, "0-2:20ms,1-2:20ms" },
    { "cpu:1@0.5,cpu:1@0.5,cpu:1@0.5", "{\"pipelines\":[" PREDICT_PIPELINE(2, PREDICT_STAGE(0, 0, 5) "," PREDICT_STAGE(1, 5, 10)) ","
      PREDICT_PIPELINE(1, PREDICT_STAGE(2, 0, 10)) "]}", "gpipe", 2, "0-2:50ms,1-2:5ms:50M" },
    { "cpu:1@0.4,cpu:1@0.4,cpu:1@0.4,cpu:1@0.4", "{\"pipelines\":[" PREDICT_PIPELINE(1, PREDICT_STAGE(0, 0, 5) "," PREDICT_STAGE(1, 5, 10)) ","
      PREDICT_PIPELINE(1, PREDICT_STAGE(2, 0, 3) "," PREDICT_STAGE(3, 3, 10)) "]}", "1f1b", 0, "0-2:20ms,0-3:20ms,1-2:20ms,1-3:20ms" },
    { "cpu:1@0.4,cpu:1@0.4,cpu:1@0.4,cpu:1@0.4", "{\"pipelines\":[" PREDICT_PIPELINE(2, PREDICT_STAGE(0, 0, 4) "," PREDICT_STAGE(1, 4, 7) ","
      PREDICT_STAGE(2, 7, 10)) "," PREDICT_PIPELINE(1, PREDICT_STAGE(3, 0, 10)) "]}", "1f1b", 2, "0-3:50ms:100M,1-3:10ms:100M,2-3:10ms:100M" },
    { "cpu:1@0.4,cpu:1@0.4,cpu:1@0.4,cpu:1@0.4", "{\"pipelines\":[" PREDICT_PIPELINE(2, PREDICT_STAGE(0, 0, 4) "," PREDICT_STAGE(1, 4, 10)) ","
      PREDICT_PIPELINE(1, PREDICT_STAGE(2, 0, 10)) "," PREDICT_PIPELINE(1, PREDICT_STAGE(3, 0, 10)) "]}", "zb-h1", 0,
      "0-2:30ms,0-3:30ms,1-2:30ms,1-3:30ms" },
    { "cpu:1@0.4,cpu:1@0.4,cpu:1@0.4,cpu:1@0.4", "{\"pipelines\":[" PREDICT_PIPELINE(1, PREDICT_STAGE(0, 0, 7) "," PREDICT_STAGE(1, 7, 10)) ","
      PREDICT_PIPELINE(1, PREDICT_STAGE(3, 0, 5) "," PREDICT_STAGE(2, 5, 10)) "]}", "1f1b", 3, "0-1:5ms,0-2:100ms,0-3:5ms,1-2:20ms,2-3:5ms:200M" },
    { "cpu:1@0.5,cpu:1@0.5,cpu:1@0.5", "{\"pipelines\":[" PREDICT_PIPELINE(1, PREDICT_STAGE(0, 0, 5) "," PREDICT_STAGE(1, 5, 10)) "]}",
      "1f1b", 2, "0-2:100ms,1-2:100ms" },
    { "cpu:1@0.5,cpu:1@0.5,cpu:1@0.5", "{\"pipelines\":[" PREDICT_PIPELINE(1, PREDICT_STAGE(1, 0, 5) "," PREDICT_STAGE(2, 5, 10)) "]}",
      "1f1b", 2, "0-1:100ms,0-2:100ms" } };

#define PREDICT_DATA "{\"pipelines\":[" PREDICT_PIPELINE(1, PREDICT_STAGE(0, 0, 10)) "," PREDICT_PIPELINE(1, PREDICT_STAGE(1, 0, 10)) "],"
#define PREDICT_TWICE "{\"pipelines\":[" PREDICT_PIPELINE(1, PREDICT_STAGE(0, 0, 5) "," PREDICT_STAGE(1, 5, 10)) "," \
    PREDICT_PIPELINE(1, PREDICT_STAGE(2, 0, 5) "," PREDICT_STAGE(3, 5, 10)) "],"
static const declared predict_divided[] = {
    { "cpu:1,cpu:1", "cp2", "1f1b", 2, NULL }, { "cpu:1,cpu:1", "cp:5,3", "1f1b", 3, NULL }, { "cpu:1,cpu:1", "hp2", "1f1b", 2, NULL },
    { "cpu:1,cpu:1", "tp2", "1f1b", 2, NULL }, { "cpu:1,cpu:1", "tp:5,3", "1f1b", 3, NULL },
    { "cpu:1@0.4,cpu:1@0.4,cpu:1@0.4,cpu:1@0.4", "pp2xcp2", "1f1b", 2, NULL },
    { "cpu:1@0.4,cpu:1@0.4,cpu:1@0.4,cpu:1@0.4", "dp2xhp2", "1f1b", 2, NULL },
    { "cpu:1,cpu:1", PREDICT_DATA "\"shard\":\"gradients\"}", "1f1b", 2, NULL },
    { "cpu:1,cpu:1", PREDICT_DATA "\"shard\":\"weights\"}", "1f1b", 2, NULL },
    { "cpu:1,cpu:1", PREDICT_DATA "\"shard\":\"weights\"}", "1f1b", 3, NULL },
    { "cpu:1@0.5,cpu:1@0.5", PREDICT_DATA "\"shard\":\"weights\"}", "1f1b", 1, "0-1:1ms:100M" },
    { "cpu:1@0.4,cpu:1@0.4,cpu:1@0.4,cpu:1@0.4", PREDICT_TWICE "\"shard\":\"weights\"}", "1f1b", 2, NULL },
    { "cpu:1,cpu:1", "{\"pipelines\":[" PREDICT_PIPELINE(1, PREDICT_STAGE(0, 0, 10)) "],\"keepers\":[1],\"state_shares\":[0,1]}", "1f1b", 2, NULL } };

typedef struct prediction {
    int model, layout, schedule, batch, link;
    const declared *whole; /* NULL: drawn */
    layout ranks;
    double speed[PREDICT_RANKS];
    het_link emulated[PREDICT_LINKS];
    int64_t links;
    het_ctx *ctx;
    het_batch made[PREDICT_MOST_BATCHES];
    int64_t bounds[33];
    double predicted, run[2][PREDICT_RUNS], lowest; /* seconds */
    int64_t repeated;
    char text[160];
} prediction;

typedef struct predictor {
    bench *all;
    het_model_desc model[2];
    het_profile **profile; /* [configurations] one of equal models and devices is the same */
    prediction *configuration;
    int configurations;
    uint64_t seed;
    int32_t *token;
} predictor;

#define PREDICT_COUNT(table) ((int)(sizeof (table) / sizeof *(table)))

static uint64_t predict_random(uint64_t *state) { /* splitmix64, public domain (S. Vigna) */
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static int predict_pick(uint64_t *state, int count) { return (int)(predict_random(state) % (uint64_t)count); }

/* Without pipelines of several stages all schedules are one; one rank has no links. No configuration comes twice. */
static void predict_draw(predictor *p) {
    uint64_t state = p->seed;
    int i, k;
    for (i = 0; i < p->configurations;) {
        prediction *c = &p->configuration[i];
        c->model = predict_pick(&state, PREDICT_COUNT(predict_models));
        c->layout = predict_pick(&state, PREDICT_COUNT(predict_layouts));
        c->schedule = predict_pick(&state, PREDICT_COUNT(predict_schedules));
        c->batch = predict_pick(&state, PREDICT_COUNT(predict_batches));
        c->link = predict_pick(&state, PREDICT_COUNT(predict_links));
        if (strcmp(predict_layouts[c->layout].plan, "dp") == 0) c->schedule = 1;
        if (predict_layouts[c->layout].cut[0] > 0 && c->schedule == 3) c->schedule = 1;
        if (c->layout == 0) c->link = 0;
        for (k = 0; k < i; k++) {
            const prediction *o = &p->configuration[k];
            if (o->model == c->model && o->layout == c->layout && o->schedule == c->schedule && o->batch == c->batch && o->link == c->link) break;
        }
        if (k < i) continue;
        snprintf(c->text, sizeof c->text, "%s %s %s %s %lldx%lldx%lld links %s", predict_models[c->model].name, predict_layouts[c->layout].devices,
                 predict_layouts[c->layout].plan, predict_schedules[c->schedule], (long long)predict_batches[c->batch].micro_batches,
                 (long long)predict_batches[c->batch].sequences, (long long)predict_models[c->model].length, predict_links[c->link].name);
        i++;
    }
}

static void predict_take(predictor *p, const declared *set) {
    int i;
    for (i = 0; i < p->configurations; i++) {
        prediction *c = &p->configuration[i];
        c->whole = &set[i], c->batch = set[i].batch;
        snprintf(c->text, sizeof c->text, "%d: %s %s %s %lldx%lldx%lld links %s", i + 1, set[i].devices, set[i].plan[0] == '{' ? "{...}" : set[i].plan,
                 set[i].schedule, (long long)predict_batches[c->batch].micro_batches, (long long)predict_batches[c->batch].sequences,
                 (long long)predict_models[0].length, set[i].links != NULL ? set[i].links : "none");
    }
}

static const char *predict_devices(const prediction *c) { return c->whole != NULL ? c->whole->devices : predict_layouts[c->layout].devices; }

/* Units of each stage in parts of the chain, the head counting as a layer. */
static void predict_plan_text(const prediction *c, int64_t units, char *text, size_t capacity) {
    const double *cut = predict_layouts[c->layout].cut;
    double sum = 0, before = 0;
    int64_t r, begin = 0;
    size_t used;
    if (!(cut[0] > 0)) {
        snprintf(text, capacity, "%s", predict_layouts[c->layout].plan);
        return;
    }
    for (r = 0; r < c->ranks.devices; r++) sum += cut[r];
    used = (size_t)snprintf(text, capacity, "pp:");
    for (r = 0; r < c->ranks.devices; r++) {
        int64_t end;
        before += cut[r];
        end = r + 1 == c->ranks.devices ? units : (int64_t)((double)units * before / sum + 0.5);
        used += (size_t)snprintf(text + used, capacity - used, "%s%lld-%lld", r > 0 ? "|" : "", (long long)begin, (long long)end - 1);
        begin = end;
    }
}

static int predict_lay_out(const predictor *p, prediction *c) {
    const double *shares = predict_layouts[c->layout].shares;
    char text[100];
    int64_t i;
    int status;
    predict_plan_text(c, 2 * p->model[c->model].layers + 2, text, sizeof text);
    status = layout_plan(&c->ranks, "--plan", text, predict_schedules[c->schedule], &p->model[c->model], c->ranks.devices, 1, 0, 0);
    if (status != 0) return status;
    for (i = 0; i < c->ranks.devices && shares[0] > 0; i++) c->ranks.plan->share[i] = c->ranks.plan->state_share[i] = shares[i];
    for (i = 0; i + 1 < c->ranks.devices && c->link > 0; i++, c->links++) {
        c->emulated[i].from = i, c->emulated[i].to = i + 1;
        c->emulated[i].latency = predict_links[c->link].latency, c->emulated[i].bandwidth = predict_links[c->link].bandwidth;
    }
    return 0;
}

static int predict_lay_out_whole(const predictor *p, prediction *c) {
    int64_t i;
    int status = c->whole->links != NULL ? layout_links(&c->ranks, c->whole->links) : 0;
    if (status != 0) return status;
    if (c->ranks.links > PREDICT_LINKS) return fail(FAILED, "%s: %lld links", c->text, (long long)c->ranks.links);
    c->links = c->ranks.links;
    for (i = 0; i < c->links; i++) c->emulated[i] = c->ranks.link[i];
    return layout_plan(&c->ranks, "--plan", c->whole->plan, c->whole->schedule, &p->model[0], c->ranks.devices, 1, 0, 0);
}

static int predict_configure(predictor *p, prediction *c) {
    const int64_t sequences = predict_batches[c->batch].sequences, count = predict_batches[c->batch].micro_batches;
    const int64_t length = predict_models[c->model].length;
    int64_t i;
    int status = layout_devices(&c->ranks, predict_devices(c));
    if (status == 0) status = c->whole != NULL ? predict_lay_out_whole(p, c) : predict_lay_out(p, c);
    if (status != 0) return status;
    for (i = 0; i < c->ranks.devices; i++) c->speed[i] = c->ranks.device[i].speed > 0 ? c->ranks.device[i].speed : 1;
    if (p->all->set.devices == STEADY) steady_take(c->ranks.device, c->ranks.devices, STEADY_SLEEPS);
    for (i = 0; i <= sequences; i++) c->bounds[i] = i * length;
    for (i = 0; i < count; i++) {
        c->made[i].tokens = sequences * length, c->made[i].sequences = sequences, c->made[i].sequence_start = c->bounds;
        c->made[i].token = p->token + i * sequences * length, c->made[i].target = c->made[i].token + 1;
        if (c->ranks.plan->members > 0) c->made[i].granules = sequences, c->made[i].granule_start = c->bounds; /* a team's cuts are between granules */
    }
    return 0;
}

static void predict_desc(const predictor *p, const prediction *c, het_desc *desc) {
    memset(desc, 0, sizeof *desc);
    desc->model = p->model[c->model];
    desc->layout.devices = c->ranks.device, desc->layout.device_count = c->ranks.devices;
    desc->limits.max_tokens = c->made[0].tokens, desc->limits.max_sequences = c->made[0].sequences;
    desc->limits.max_micro_batches = predict_batches[c->batch].micro_batches;
    desc->dtype = (het_dtype)p->all->set.dtype;
    desc->optimizer.learning_rate = 1e-5f; /* weights that hardly move need no new exponents */
}

/* One profile for every list of devices and model, at the largest micro-batches of the grid. */
static int predict_profile(predictor *p, int number) {
    const prediction *c = &p->configuration[number];
    het_profile **profile = &p->profile[number];
    het_device_desc device[PREDICT_RANKS];
    het_desc desc;
    int i, status;
    int64_t most = 0;
    for (i = 0; i < number && *profile == NULL; i++) /* the same devices in another layout */
        if (p->configuration[i].model == c->model && strcmp(predict_devices(&p->configuration[i]), predict_devices(c)) == 0) *profile = p->profile[i];
    if (*profile != NULL) return 0;
    for (i = 0; i < PREDICT_COUNT(predict_batches); i++) if (predict_batches[i].sequences > most) most = predict_batches[i].sequences;
    predict_desc(p, c, &desc);
    for (i = 0; i < (int)c->ranks.devices; i++) {
        device[i] = c->ranks.device[i];
        if (p->all->set.devices == STEADY) /* as with other devices, what they take at full speed */
            device[i].ordinal = steady_ordinal(1, i, c->ranks.devices, STEADY_SLEEPS);
    }
    desc.layout.devices = device;
    desc.limits.max_sequences = most, desc.limits.max_tokens = most * predict_models[c->model].length;
    fprintf(stderr, "profile: %s, %s\n", predict_models[c->model].name, predict_devices(c));
    status = profile_measure("profile", &desc, predict_models[c->model].spec, predict_models[c->model].length, 6, profile);
    return status;
}

/* The cluster of a configuration: its devices in one group, whose link is that between threads. */
static int predict_simulate(const predictor *p, prediction *c) {
    const het_profile *profile = p->profile[c - p->configuration];
    const int64_t ranks = c->ranks.devices, count = predict_batches[c->batch].micro_batches;
    het_cluster cluster;
    het_cluster_device device[PREDICT_RANKS];
    het_group group;
    het_link_cost link[PREDICT_RANKS * PREDICT_RANKS];
    het_blocks blocks;
    het_error error = { HET_OK, "" };
    het_plan_costs *costs = NULL;
    het_schedule *compute = NULL, *whole = NULL;
    het_simulation *simulation = NULL;
    double tokens[PREDICT_MOST_BATCHES], pairs[PREDICT_MOST_BATCHES], sequences[PREDICT_MOST_BATCHES];
    int64_t counts[PREDICT_RANKS], i, *start = (int64_t *)malloc((size_t)(profile->blocks + 1) * sizeof(int64_t));
    het_result result;
    if (start == NULL) return fail(FAILED, "out of memory");
    memset(&cluster, 0, sizeof cluster);
    memset(device, 0, sizeof device);
    memset(&group, 0, sizeof group);
    group.parent = -1;
    if (profile->links > 0) group.latency = profile->link[0].latency, group.bandwidth = profile->link[0].bandwidth;
    cluster.ranks = ranks, cluster.groups = cluster.wires = 1, cluster.device = device, cluster.group = &group;
    for (i = 0; i < ranks; i++) {
        snprintf(device[i].profile, sizeof device[i].profile, "%s", profile->device[0].name);
        device[i].speed = c->speed[i];
    }
    for (i = 0; i < ranks * ranks; i++) link[i].latency = group.latency, link[i].bandwidth = group.bandwidth;
    for (i = 0; i < c->links; i++) {
        het_link_cost *forth = &link[c->emulated[i].from * ranks + c->emulated[i].to], *back = &link[c->emulated[i].to * ranks + c->emulated[i].from];
        forth->latency += c->emulated[i].latency;
        if (c->emulated[i].bandwidth > 0) forth->bandwidth = c->emulated[i].bandwidth;
        *back = *forth;
    }
    if (ranks == 2) group.latency = link[1].latency, group.bandwidth = link[1].bandwidth; /* what comes and leaves beside calls takes it too */
    for (i = 0; i < count; i++) {
        const double length = (double)predict_models[c->model].length;
        sequences[i] = (double)c->made[i].sequences, tokens[i] = (double)c->made[i].tokens, pairs[i] = tokens[i] * (length + 1) / 2;
    }
    for (i = 0; i < profile->blocks; i++) start[i] = profile->block[i].first_use;
    start[i] = profile->uses;
    blocks.count = profile->blocks, blocks.start = start, blocks.unit = profile->use;
    het_plan_micro_batches(c->ranks.plan, count, counts);
    result = het_schedule_make(c->ranks.plan, counts, NULL, &compute, &error);
    if (result == HET_OK) result = het_schedule_complete(c->ranks.plan, &blocks, compute, NULL, &whole, &error);
    if (result == HET_OK) result = het_profile_costs(profile, c->ranks.plan, &cluster, HET_YES, NULL, &costs, &error);
    if (result == HET_OK) {
        costs->costs.group = NULL, costs->costs.rank_group = NULL, costs->costs.groups = 0;
        costs->costs.link = link;
        costs->costs.tokens = tokens, costs->costs.pairs = pairs, costs->costs.sequences = sequences;
        result = het_simulate_costs(c->ranks.plan, whole, costs, HET_NO, NULL, &simulation, &error);
    }
    if (result == HET_OK) c->predicted = simulation->makespan;
    het_simulation_free(simulation);
    het_plan_costs_free(costs);
    het_schedule_free(compute);
    het_schedule_free(whole);
    free(start);
    return result == HET_OK ? 0 : fail(FAILED, "%s: %s", c->text, error.text);
}

/* One step, again if it was measured twice for its exponents. */
static int predict_step(prediction *c, double *seconds) {
    het_step_info info;
    do {
        const double start = seconds_now();
        if (het_step(c->ctx, c->made, predict_batches[c->batch].micro_batches, &info) != HET_OK)
            return fail(FAILED, "%s: %s", c->text, het_last_error(c->ctx));
        *seconds = seconds_now() - start;
    } while (info.repeated);
    return 0;
}

/* A run that takes a twentieth longer than the fastest of its configuration was disturbed; it is repeated up to eight times. */
static int predict_run(prediction *c, int series, int run) {
    double seconds;
    int attempt, status = 0;
    for (attempt = 0; attempt < 9 && status == 0; attempt++) {
        status = predict_step(c, &seconds);
        if (attempt == 0 || seconds < c->run[series][run]) c->run[series][run] = seconds;
        if (!(c->lowest > 0) || seconds < c->lowest) c->lowest = seconds;
        if (seconds <= 1.05 * c->lowest) break;
        c->repeated++;
    }
    return status;
}

static int predict_measure(predictor *p) {
    int i, run, status = 0;
    for (i = 0; i < p->configurations && status == 0; i++) {
        prediction *c = &p->configuration[i];
        het_error error = { HET_OK, "" };
        het_desc desc;
        double ignored;
        predict_desc(p, c, &desc);
        desc.layout.plan = c->ranks.plan, desc.emulate.links = c->emulated, desc.emulate.link_count = c->links;
        if (het_create(&desc, &c->ctx, &error) != HET_OK) return fail(FAILED, "%s: %s", c->text, error.text);
        status = predict_step(c, &ignored);
        if (status == 0) status = predict_step(c, &ignored);
    }
    for (run = 0; run < 2 * PREDICT_RUNS && status == 0; run++)
        for (i = 0; i < p->configurations && status == 0; i++) status = predict_run(&p->configuration[i], run % 2, run / 2);
    return status;
}

static double predict_median(const prediction *c, int series) { return spread_of_values(c->run[series], PREDICT_RUNS).median; }

/* Measured against predicted, both axes logarithmic, with the lines of equality and of 15 % to both sides. */
static int predict_picture(const predictor *p, const char *path) {
    FILE *file = fopen(path, "wb");
    double low = 1e300, high = 0, scale;
    int i;
    if (file == NULL) return fail(BAD_INPUT, "--svg %s: %s", path, strerror(errno));
    for (i = 0; i < p->configurations; i++) {
        const double x = p->configuration[i].predicted, y = predict_median(&p->configuration[i], 0);
        low = fmin(low, fmin(x, y)), high = fmax(high, fmax(x, y));
    }
    low *= 0.8, high *= 1.25;
    scale = 480 / log(high / low);
#define PREDICT_X(v) (60 + scale * log((v) / low))
#define PREDICT_Y(v) (520 - scale * log((v) / low))
    fprintf(file, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"580\" height=\"580\" viewBox=\"0 0 580 580\" font-family=\"sans-serif\" "
            "font-size=\"12\"><rect width=\"580\" height=\"580\" fill=\"#ffffff\"/>\n"
            "<rect x=\"60\" y=\"40\" width=\"480\" height=\"480\" fill=\"none\" stroke=\"#8a93a0\"/>\n");
    for (i = -1; i <= 1; i++) {
        const double factor = i < 0 ? 0.85 : i > 0 ? 1.15 : 1;
        const double from = i < 0 ? low / factor : low, to = i > 0 ? high / factor : high;
        fprintf(file, "<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"#8a93a0\"%s/>\n", PREDICT_X(from), PREDICT_Y(from * factor), PREDICT_X(to),
                PREDICT_Y(to * factor), i != 0 ? " stroke-dasharray=\"4 4\"" : "");
    }
    for (i = 0; i < 40; i++) { /* 1, 2, 5, 10, ... ms */
        static const double digit[] = { 1, 2, 5 };
        const double value = 1e-4 * digit[i % 3] * pow(10, i / 3);
        if (value < low || value > high) continue;
        fprintf(file, "<text x=\"%.1f\" y=\"538\" text-anchor=\"middle\">%g</text><text x=\"54\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                PREDICT_X(value), 1e3 * value, PREDICT_Y(value) + 4, 1e3 * value);
    }
    for (i = 0; i < p->configurations; i++) {
        const prediction *c = &p->configuration[i];
        fprintf(file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\" fill-opacity=\"0.7\"><title>%s: predicted %.2f ms, "
                "measured %.2f ms</title></circle>\n", PREDICT_X(c->predicted), PREDICT_Y(predict_median(c, 0)),
                c->model == 0 ? "#2563eb" : "#d9480f", c->text, 1e3 * c->predicted, 1e3 * predict_median(c, 0));
    }
    fprintf(file, "<text x=\"300\" y=\"562\" text-anchor=\"middle\">predicted, ms</text><text x=\"16\" y=\"280\" text-anchor=\"middle\" "
            "transform=\"rotate(-90 16 280)\">measured, ms</text><text x=\"60\" y=\"26\" font-size=\"15\">%d configurations: %s blue, %s orange; "
            "dashed: 15 %%</text></svg>\n", p->configurations, predict_models[0].name, predict_models[1].name);
#undef PREDICT_X
#undef PREDICT_Y
    return fclose(file) == 0 ? 0 : fail(FAILED, "--svg %s: %s", path, strerror(errno));
}

static void predict_print(const predictor *p) {
    double mean = 0, worst = 0, noise = 0, bias = 0;
    int i;
    for (i = 0; i < p->configurations; i++) {
        const prediction *c = &p->configuration[i];
        const double measured = predict_median(c, 0), again = predict_median(c, 1), error = c->predicted / measured - 1;
        printf("{\"name\":\"predict\",\"configuration\":\"%s\",\"predicted_ms\":%.3f,\"measured_ms\":%.3f,\"again_ms\":%.3f,"
               "\"error\":%.4f,\"noise\":%.4f,\"runs_repeated\":%lld}\n", c->text, 1e3 * c->predicted, 1e3 * measured, 1e3 * again, error,
               fabs(again / measured - 1), (long long)c->repeated);
        mean += fabs(error) / p->configurations, noise += fabs(again / measured - 1) / p->configurations;
        bias += error / p->configurations;
        if (fabs(error) > worst) worst = fabs(error);
    }
    printf("{\"name\":\"predict_all\",\"devices\":\"%s\",\"configurations\":%d,\"seed\":%llu,\"mean_error\":%.4f,\"worst_error\":%.4f,"
           "\"bias\":%.4f,\"mean_noise\":%.4f}\n", p->all->set.devices == STEADY ? "steady" : "cpu", p->configurations,
           (unsigned long long)p->seed, mean, worst, bias, noise);
    fflush(stdout);
}

static void predict_end(predictor *p) {
    int i, k;
    for (i = 0; i < p->configurations && p->configuration != NULL && p->profile != NULL; i++) {
        het_destroy(p->configuration[i].ctx);
        layout_free(&p->configuration[i].ranks);
        for (k = 0; k < i && p->profile[k] != p->profile[i]; k++) {}
        if (k == i) het_profile_free(p->profile[i]);
    }
    free(p->configuration);
    free(p->profile);
    free(p->token);
}

/* set NULL: drawn */
static int bench_predict(bench *b, const declared *set, int count) {
    predictor p;
    const size_t tokens = 8 * 8 * 256 + 1;
    size_t t;
    int i, status = 0;
    memset(&p, 0, sizeof p);
    p.all = b;
    p.configurations = set != NULL ? count : PREDICT_CONFIGURATIONS;
    p.seed = (uint64_t)b->set.seed;
    p.profile = (het_profile **)calloc((size_t)p.configurations, sizeof *p.profile);
    p.configuration = (prediction *)calloc((size_t)p.configurations, sizeof *p.configuration);
    p.token = (int32_t *)malloc(tokens * sizeof *p.token);
    if (p.configuration == NULL || p.profile == NULL || p.token == NULL) status = fail(FAILED, "out of memory");
    for (t = 0; t < tokens && status == 0; t++) p.token[t] = (int32_t)((uint64_t)t * 2654435761u % 1024);
    for (i = 0; i < 2 && status == 0; i++) status = model_from_spec("--model", predict_models[i].spec, &p.model[i]);
    if (status == 0 && set != NULL) predict_take(&p, set);
    else if (status == 0) predict_draw(&p);
    for (i = 0; i < p.configurations && status == 0; i++) {
        prediction *c = &p.configuration[i];
        if ((status = predict_configure(&p, c)) != 0 || (status = predict_profile(&p, i)) != 0) break;
        status = predict_simulate(&p, c);
    }
    if (status == 0) status = predict_measure(&p);
    if (status == 0) predict_print(&p);
    if (status == 0 && b->set.svg != NULL) status = predict_picture(&p, b->set.svg);
    predict_end(&p);
    return status;
}

#endif
