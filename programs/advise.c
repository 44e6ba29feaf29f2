/* Advice by formula, from a measured profile: the largest batch, what more workers bring and what energy they take, servers for the parameters, how
   many workers each unit is worth, when a model is to be cut.
     cc -O2 -I. -Iutil programs/advise.c -lm -lpthread
     build/train ... --steps 0 --save-profile p.json && build/advise --profile p.json --device cpu:1/64M --workers 1,2,4 --micro-batches 8
     build/advise --profile p.json --workers 1,2,4 --micro-batches 8 --burst 1.2 --out plan.json
     build/advise --scaling 1=1:4,8=0.9:4,16=0.8:6,32=0.7:9 --cut 2=1.4
   Speed-up by simulated steps (het_plan_predict). R is the part of a worker's step beside its computing over its computing; servers by S.-X. Zou
   et al.'s rule for parameter servers: 2 S G / (B C), S bytes of parameters, G workers, B bytes a second, C seconds of computing (Distributed
   Training Large-Scale Deep Architectures, arXiv 1709.06622). Energy of a step with --watts W,IDLE: the sum over workers of W x the seconds that one
   computes and IDLE x those that it waits, as J.-W. Chung et al. count it for GPUs that compute and block (Perseus, arXiv 2312.06902); both seconds
   are the simulated step's. --scaling and --cut: S. Pal et al., arXiv 1907.13257. */
#define PROGRAM "advise"
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#define HETRAIN_SEARCH_IMPLEMENTATION
#include "common.h"
#include "hetrain_search.h"
#include "layout.h"
#include "profile.h"

typedef struct settings {
    const char *profile, *device, *workers, *link, *watts, *scaling, *cut;
    const char *out;
    double burst, busy_watts, idle_watts; /* the last two: of --watts */
    int64_t micro_batches, sequences, length, json;
} settings;

#define AT(field) offsetof(settings, field)
static const option options[] = {
    OPTION_TITLE("From a profile"),
    { "--profile", "FILE,...", OPTION_TEXT, AT(profile), 0, 0, "what units cost on devices (train --save-profile)" },
    { "--device", "NAME", OPTION_TEXT, AT(device), 0, 0, "NAME[@SPEED][/SIZE] of every worker, a name of the profile; default: its first device" },
    { "--workers", "G,...", OPTION_TEXT, AT(workers), 0, 0, "numbers of workers to compare; default: 1,2,4,8" },
    { "--link", "LATENCY:BANDWIDTH", OPTION_TEXT, AT(link), 0, 0, "between workers; default: the profile's" },
    { "--micro-batches", "M", OPTION_INTEGER, AT(micro_batches), 1, 1e6, "micro-batches a step, of all workers together" },
    { "--sequences", "B", OPTION_INTEGER, AT(sequences), 1, 1e6, "sequences a micro-batch" },
    { "--length", "T", OPTION_INTEGER, AT(length), 1, 1e7,
      "tokens a sequence; default: the context of the profile's model or, where its name says none, 128" },
    { "--watts", "W[,IDLE]", OPTION_TEXT, AT(watts), 0, 0, "what a device takes while it computes, and while it waits (default: W): joules a step" },
    OPTION_TITLE("How many workers a unit is worth"),
    { "--burst", "X", OPTION_REAL, AT(burst), 1, 1000,
      "numbers out of --workers, unit by unit, that make the step shortest and take at most X times the device time of one worker" },
    { "--out", "FILE.json", OPTION_TEXT, AT(out), 0, 0, "that plan, for train --plan" },
    OPTION_TITLE("When to cut the model"),
    { "--scaling", "N=E:P,...", OPTION_TEXT, AT(scaling), 0, 0,
      "of N devices in data parallelism: efficiency E, epochs P to the target with their batch, as measured" },
    { "--cut", "M=S", OPTION_TEXT, AT(cut), 0, 0, "M devices with a part of the model each are S times as fast as one" },
    OPTION_TITLE("What is told"),
    { "--json", NULL, OPTION_FLAG, AT(json), 0, 0, "one line of JSON" },
    OPTION_LAST_ROWS
};
enum { OPTIONS = (int)(sizeof options / sizeof options[0]), MOST = 64 };

/* ---- data parallelism against a model in parts ---- */

/* N devices finish an epoch N E times as fast as one, and need P of them: speed-up to the target E N P(1) / P(N). M parts on each of N / M replicas:
   S times the speed-up of N / M devices. Tells the least N from which the parts win and go on winning: the list begins with P(1) and ascends. */
static int advise_cut(const settings *s) {
    double devices[MOST], efficiency[MOST], epochs[MOST], parts = 0, gain = 0;
    const char *at = s->scaling;
    int count = 0, i, k, end, from = -1;
    if (s->cut == NULL) return fail(BAD_INPUT, "--cut: M=S is needed with --scaling, as in 2=1.4");
    if (sscanf(s->cut, "%lf=%lf%n", &parts, &gain, &end) != 2 || s->cut[end] != 0 || !(parts >= 2 && parts <= 1e9) ||
        !(gain > 0 && gain <= 1e9))
        return fail(BAD_INPUT, "--cut %s: expected M=S, as in 2=1.4", s->cut);
    for (; *at != 0; count++) {
        if (count == MOST || sscanf(at, "%lf=%lf:%lf%n", &devices[count], &efficiency[count], &epochs[count], &end) != 3 ||
            !(devices[count] >= 1 && devices[count] <= 1e9) || !(efficiency[count] > 0 && efficiency[count] <= 1e9) ||
            !(epochs[count] > 0 && epochs[count] <= 1e9) || (at[end] != 0 && at[end] != ','))
            return fail(BAD_INPUT, "--scaling %s: %s: expected N=EFFICIENCY:EPOCHS, at most %d", s->scaling, at, (int)MOST);
        for (i = 0; i < count; i++)
            if (fabs(devices[i] - devices[count]) < 1e-9) return fail(BAD_INPUT, "--scaling %s: %g= comes twice", s->scaling, devices[i]);
        if (count == 0 ? devices[0] > 1 : devices[count] < devices[count - 1])
            return fail(BAD_INPUT, "--scaling %s: %g=: numbers of devices begin with 1 and ascend", s->scaling, devices[count]);
        at += end + (at[end] == ',');
    }
    if (!s->json) printf("devices  data parallel  %g parts each\n", parts);
    for (i = 0; i < count; i++) {
        const double data = devices[i] * efficiency[i] * epochs[0] / epochs[i];
        double cut = 0;
        for (k = 0; k < count; k++)
            if (fabs(devices[k] * parts - devices[i]) < 1e-9) cut = gain * devices[k] * efficiency[k] * epochs[0] / epochs[k];
        if (cut > 0 && cut <= data) from = -1;
        else if (cut > 0 && from < 0) from = i;
        if (!s->json) printf(cut > 0 ? "%7g  %13.4f  %13.4f\n" : "%7g  %13.4f              -\n", devices[i], data, cut);
    }
    if (s->json) printf("{\"cut\":%g,\"from_devices\":%g}\n", parts, from < 0 ? 0.0 : devices[from]);
    else if (from < 0) printf("data parallelism wins\n");
    else printf("from %g devices on the model in %g parts reaches the target first\n", devices[from], parts);
    return 0;
}

/* ---- from a profile ---- */

typedef struct advice {
    const settings *set;
    het_profile *profile;
    het_cluster_device device[MOST];
    double latency, bandwidth;
} advice;

/* NAME[@SPEED][/SIZE] */
static int take_device(advice *a, const char *text) {
    char name[48];
    size_t length = strcspn(text != NULL ? text : "", "@/");
    double speed = 1, memory = 0;
    int64_t i;
    snprintf(name, sizeof name, "%.*s", (int)(length < 47 ? length : 47), text != NULL ? text : "");
    if (text == NULL) snprintf(name, sizeof name, "%s", a->profile->devices > 0 ? a->profile->device[0].name : "");
    for (i = 0; i < a->profile->devices && strcmp(a->profile->device[i].name, name) != 0; i++) {}
    if (i == a->profile->devices) return fail(BAD_INPUT, "--device %s: the profile has no device of this name", name);
    if (text != NULL && text[length] == '@') {
        char *end;
        speed = strtod(text + length + 1, &end);
        length = (size_t)(end - text);
    }
    if ((text != NULL && text[length] == '/' && !parse_size(text + length + 1, strlen(text + length + 1), &memory)) ||
        !(speed >= 1e-6 && speed <= 1000) ||
        (text != NULL && text[length] != 0 && text[length] != '/'))
        return fail(BAD_INPUT, "--device %s: expected NAME[@SPEED][/SIZE], a speed from 1e-6 to 1000", text);
    for (i = 0; i < MOST; i++) {
        snprintf(a->device[i].name, sizeof a->device[i].name, "worker %d", (int)i);
        snprintf(a->device[i].profile, sizeof a->device[i].profile, "%s", name);
        a->device[i].speed = speed, a->device[i].memory = memory;
    }
    return 0;
}

static int take_link(advice *a) {
    const char *text = a->set->link;
    const size_t length = text != NULL ? strcspn(text, ":") : 0;
    if (a->profile->links > 0) a->latency = a->profile->link[0].latency, a->bandwidth = a->profile->link[0].bandwidth;
    if (text == NULL) return 0;
    a->bandwidth = 0;
    if (parse_seconds(text, length, &a->latency) &&
        (text[length] == 0 || parse_size(text + length + 1, strlen(text + length + 1), &a->bandwidth))) return 0;
    return fail(BAD_INPUT, "--link %s: expected LATENCY or LATENCY:BANDWIDTH, as in 1ms:1G", text);
}

/* W[,IDLE] */
static int take_watts(settings *s) {
    const size_t length = s->watts != NULL ? strcspn(s->watts, ",") : 0;
    char busy[32];
    if (s->watts == NULL) return 0;
    snprintf(busy, sizeof busy, "%.*s", (int)(length < sizeof busy ? length : 0), s->watts);
    if (parse_real(busy, 1e-6, 1e9, &s->busy_watts) && parse_real(s->watts[length] == ',' ? s->watts + length + 1 : busy, 1e-6, 1e9, &s->idle_watts))
        return 0;
    return fail(BAD_INPUT, "--watts %s: expected W or W,IDLE above 0, as in 350,90", s->watts);
}

/* A step of the plan; busy: seconds that the busiest computes; all: that all do. */
static int simulate_plan(const advice *a, const het_plan *plan, double *seconds, double *busy, double *all) {
    const settings *s = a->set;
    het_search_desc search;
    het_cluster *cluster = NULL;
    het_simulation *simulation = NULL;
    het_error error = { HET_OK, "" };
    int64_t r;
    het_result result = het_cluster_flat(plan->ranks, a->device, a->latency, a->bandwidth, NULL, &cluster, &error);
    memset(&search, 0, sizeof search);
    search.profile = a->profile, search.cluster = cluster, search.granules = s->micro_batches;
    search.granule_sequences = s->sequences, search.granule_tokens = s->sequences * s->length;
    search.granule_pairs = (double)s->sequences * (double)s->length * ((double)s->length + 1) / 2;
    if (result == HET_OK) result = het_plan_predict(&search, plan, 1, HET_NO, &simulation, &error);
    for (r = 0, *busy = *all = 0; result == HET_OK && r < plan->ranks; r++) {
        *busy = fmax(*busy, simulation->rank[r].busy);
        *all += simulation->rank[r].busy;
    }
    if (result == HET_OK) *seconds = simulation->makespan;
    het_simulation_free(simulation), het_cluster_free(cluster);
    return result == HET_OK ? 0 : fail(status_of(result), "%s", error.text);
}

/* The same of data parallelism on `workers`. */
static int simulate(const advice *a, int64_t workers, double *seconds, double *busy, double *all) {
    het_plan_desc desc;
    het_plan *plan = NULL;
    het_error error = { HET_OK, "" };
    het_result result;
    int status;
    memset(&desc, 0, sizeof desc);
    desc.units = a->profile->units, desc.ranks = workers;
    result = het_plan_read(&desc, "dp", 2, &plan, &error);
    status = result == HET_OK ? simulate_plan(a, plan, seconds, busy, all) : fail(status_of(result), "%s", error.text);
    het_plan_free(plan);
    return status;
}

/* Sequences of the largest micro-batch that a device takes and, with `limit` bytes, can train, with the whole model: bytes grow with every one. */
static int largest_batch(const advice *a, double limit, int64_t *most) {
    het_plan_desc desc;
    het_plan *plan = NULL;
    het_needs needs = { .slots = 1, .batch_slots = 1, .versions = 1 };
    het_error error = { HET_OK, "" };
    het_result result;
    int64_t low = 0, high = 1 << 24;
    memset(&desc, 0, sizeof desc);
    desc.units = a->profile->units, desc.ranks = 1;
    for (int64_t d = 0; d < a->profile->devices; d++)
        if (strcmp(a->profile->device[d].name, a->device[0].profile) == 0 && a->profile->device[d].max_tokens > 0)
            high = (int64_t)fmin((double)high, a->profile->device[d].max_tokens / (double)a->set->length);
    result = het_plan_read(&desc, "dp", 2, &plan, &error);
    while (result == HET_OK && low < high) {
        const int64_t tried = low + (high - low + 1) / 2;
        het_shape shape = { 0, 0, 0 };
        het_memory memory;
        shape.tokens = tried * a->set->length, shape.sequences = tried;
        result = het_profile_memory(a->profile, plan, &needs, &shape, &memory, &error);
        if (result != HET_OK) break;
        if ((double)memory.device + (double)memory.communication <= limit) low = tried;
        else high = tried - 1;
    }
    *most = low;
    het_plan_free(plan);
    return result == HET_OK ? 0 : fail(status_of(result), "%s", error.text);
}

/* The numbers of --workers; 0: it failed. */
static int take_workers(const settings *s, int64_t workers[MOST]) {
    const char *at = s->workers != NULL ? s->workers : "1,2,4,8";
    int count = 0;
    while (*at != 0) {
        const int length = (int)strcspn(at, ",");
        char item[8];
        snprintf(item, sizeof item, "%.*s", length, at);
        if (count == MOST || length >= (int)sizeof item || !parse_integer(item, 1, MOST, &workers[count])) {
            (void)fail(BAD_INPUT, "--workers %s: %.*s: expected numbers from 1 to %d, at most %d of them", s->workers, length, at, (int)MOST,
                       (int)MOST);
            return 0;
        }
        count++;
        at += length + (at[length] == ',');
    }
    return count;
}

static int advise_workers(advice *a) {
    const settings *s = a->set;
    double one = 0, computing = 0, elements = 0, seconds, busy, all;
    int64_t most = 0, workers[MOST], i;
    const int count = take_workers(s, workers);
    int status, k;
    if (count == 0) return BAD_INPUT;
    if (a->device[0].memory > 0 && (status = largest_batch(a, a->device[0].memory, &most)) != 0) return status;
    if ((status = simulate(a, 1, &one, &computing, &all)) != 0) return status;
    for (i = 0; i < a->profile->blocks; i++) elements += a->profile->block[i].frozen ? 0 : (double)a->profile->block[i].elements;
    if (s->json) printf("{\"largest_micro_batch\":%lld,\"workers\":[", (long long)most);
    else if (a->device[0].memory > 0) printf("largest micro-batch that fits: %lld sequences of %lld tokens\n", (long long)most, (long long)s->length);
    if (!s->json) printf("workers  ms a step  speed-up  efficiency       R  servers%s\n", s->watts != NULL ? "  joules a step  tokens a joule" : "");
    for (k = 0; k < count; k++) {
        double servers, joules, tokens = (double)s->micro_batches * (double)s->sequences * (double)s->length;
        if ((status = simulate(a, workers[k], &seconds, &busy, &all)) != 0) return status;
        servers = a->bandwidth > 0 ? ceil(2 * 4 * elements * (double)workers[k] / (a->bandwidth * computing / (double)workers[k])) : 0;
        joules = s->busy_watts * all + s->idle_watts * ((double)workers[k] * seconds - all);
        if (s->json) printf("%s{\"workers\":%lld,\"seconds\":%.9g,\"speed_up\":%.9g,\"overhead\":%.9g,\"servers\":%g", k == 0 ? "" : ",",
                            (long long)workers[k], seconds, one / seconds, seconds / busy - 1, servers);
        else printf("%7lld  %9.3f  %8.3f  %8.1f %%  %6.3f  %7g", (long long)workers[k], 1e3 * seconds, one / seconds,
                    100 * one / seconds / (double)workers[k], seconds / busy - 1, servers);
        if (s->watts != NULL) printf(s->json ? ",\"joules\":%.9g,\"tokens_per_joule\":%.9g" : "  %13.6g  %14.6g", joules, tokens / joules);
        printf(s->json ? "}" : "\n");
    }
    if (s->json) printf("]}\n");
    else printf("\nR        what a step takes beside the computing of its busiest worker, over that computing\n"
                "servers  for the parameters, so that they take no longer than a step's computing (0: the link is not known)\n");
    if (!s->json && s->watts != NULL)
        printf("joules   sum over workers of %g W x the seconds that one computes + %g W x those that it waits (arXiv 2312.06902)\n", s->busy_watts,
               s->idle_watts);
    return 0;
}

/* ---- how many workers a unit is worth ---- */

/* Burst parallel training (S. J. Park et al., DeepPool, arXiv 2112.10065): data parallelism in which each unit has as many workers as it is worth,
   and the others are free for another job meanwhile. Of M micro-batches, on g workers, with latency L and B bytes a second between them, a unit takes
       M / g (F + B) + update of its E parameters / g + [g > 1] (2 L + (1 - 1 / g) (bytes reduced + bytes gathered) E / B),
   and behind a unit on h workers 2 n (L + bytes of its input / B): n messages, both ways, are the most that a worker has with others, where
   micro-batch p is on worker p mod h before and on p mod g behind. All of that times the workers is device time. Dynamic programming over units,
   workers of the last one and device time spent, in STEPS parts of what is allowed; each unit's is rounded up. Units that share parameters have
   equally many workers: all numbers are tried. */
enum { STEPS = 20000 };

typedef struct burst {
    const advice *a;
    int64_t widths, most, width[MOST]; /* numbers of workers; the largest; ascending */
    int64_t units;
    double *elements;                  /* [units] trained parameters that it has alone, or first */
    unsigned char *shares;             /* [units] 1: it has parameters that others have too */
    double allowed;                    /* device time */
    double *best[2];                   /* [widths][STEPS + 1] least time up to a unit, within so much device time */
    unsigned char *before;             /* [units][widths][STEPS + 1] width of the unit before in that */
} burst;

static double cost_of(const het_cost *c, double tokens, double pairs) { return c->base + c->token * tokens + c->pair * pairs; }

/* What unit u takes on g workers. */
static double unit_time(const burst *b, int64_t u, int64_t g) {
    const het_profile *p = b->a->profile;
    const settings *s = b->a->set;
    const het_cluster_device *worker = &b->a->device[0];
    const double tokens = (double)(s->sequences * s->length), pairs = tokens * ((double)s->length + 1) / 2, split = (double)g;
    const het_unit_time *time;
    double computing, moved = 0;
    int64_t d;
    for (d = 0; strcmp(p->device[d].name, worker->profile) != 0; d++) {}
    time = &p->device[d].alone[p->unit[u]];
    computing = cost_of(&time->forward, tokens, pairs);
    if (p->cut == NULL || p->cut[u] != HET_CUT_NONE) computing += cost_of(&time->backward, tokens, pairs);
    computing = (double)s->micro_batches * computing + p->device[d].step_element * b->elements[u];
    if (g > 1 && b->elements[u] > 0) moved = 2 * b->a->latency;
    if (g > 1 && b->a->bandwidth > 0) moved += (1 - 1 / split) * b->elements[u] * (p->reduce_bytes + p->gather_bytes) / b->a->bandwidth;
    return computing / worker->speed / split + moved;
}

/* What its inputs take from h workers to g. */
static double crossing_time(const burst *b, int64_t u, int64_t h, int64_t g) {
    const settings *s = b->a->set;
    const double bytes = b->a->profile->kind[b->a->profile->unit[u]].input * (double)(s->sequences * s->length);
    int64_t sent[MOST] = { 0 }, taken[MOST] = { 0 }, most = 0, i;
    for (i = 0; i < b->most; i++) { /* and so on, M / most times */
        if (i % h == i % g) continue;
        sent[i % h]++, taken[i % g]++;
        if (sent[i % h] > most) most = sent[i % h];
        if (taken[i % g] > most) most = taken[i % g];
    }
    return 2 * (double)(most * s->micro_batches / b->most) * (b->a->latency + (b->a->bandwidth > 0 ? bytes / b->a->bandwidth : 0));
}

/* Unit u on width[w] behind one on width[h], -1: the first. Steps of device time; *seconds. */
static int64_t burst_cost(const burst *b, int64_t u, int64_t h, int64_t w, double *seconds) {
    const int64_t g = b->width[w], from = h < 0 ? g : b->width[h];
    const double own = unit_time(b, u, g), crossing = u == 0 ? 0 : crossing_time(b, u, from, g);
    const double steps = ceil(((double)g * own + (double)(g > from ? g : from) * crossing) / b->allowed * STEPS);
    *seconds = own + crossing;
    return steps < STEPS + 1 ? (int64_t)steps : STEPS + 1;
}

/* The shortest step in which units that share parameters are on width[shared]. chosen: [units]; its seconds, or HUGE_VAL. */
static double burst_best(burst *b, int64_t shared, unsigned char *chosen) {
    double seconds, least = HUGE_VAL;
    int64_t u, h, w, q, spent, left = STEPS;
    for (u = 0; u < b->units; u++) {
        double *now = b->best[u % 2], *last = b->best[(u + 1) % 2];
        for (w = 0; w < b->widths; w++) {
            double *row = now + w * (STEPS + 1);
            unsigned char *before = b->before + (u * b->widths + w) * (STEPS + 1);
            for (q = 0; q <= STEPS; q++) row[q] = HUGE_VAL;
            if (b->shares[u] && w != shared) continue;
            for (h = u == 0 ? -1 : 0; h < (u == 0 ? 0 : b->widths); h++) {
                spent = burst_cost(b, u, h, w, &seconds);
                for (q = spent; q <= STEPS; q++) {
                    const double taken = (u == 0 ? 0 : last[h * (STEPS + 1) + q - spent]) + seconds;
                    if (taken < row[q]) row[q] = taken, before[q] = (unsigned char)(h < 0 ? 0 : h);
                }
            }
        }
    }
    for (w = 0; w < b->widths; w++) {
        const double taken = b->best[(b->units - 1) % 2][w * (STEPS + 1) + STEPS];
        if (taken < least) least = taken, chosen[b->units - 1] = (unsigned char)w;
    }
    for (u = b->units - 1; u > 0 && least < HUGE_VAL; u--) {
        chosen[u - 1] = b->before[(u * b->widths + chosen[u]) * (STEPS + 1) + left];
        left -= burst_cost(b, u, chosen[u - 1], chosen[u], &seconds);
    }
    return least;
}

/* A pipeline for each of the most workers: micro-batch p, unit by unit, on worker p mod its width. */
static het_result burst_plan(const burst *b, const unsigned char *chosen, het_plan **plan, het_error *error) {
    const settings *s = b->a->set;
    het_plan shape;
    het_result result;
    int64_t p, u, at = 0;
    memset(&shape, 0, sizeof shape);
    shape.units = b->units, shape.ranks = shape.pipelines = b->most, shape.slices = 1;
    for (p = 0; p < b->most; p++)
        for (u = 0; u < b->units; u++) shape.stages += u == 0 || p % b->width[chosen[u]] != p % b->width[chosen[u - 1]];
    snprintf(shape.schedule, sizeof shape.schedule, "gpipe");
    shape.make = het_schedule_make;
    shape.step.granules = s->micro_batches, shape.step.micro_batch = 1;
    shape.step.sequences = s->sequences, shape.step.length = s->length;
    result = het_plan_new(&shape, NULL, "--burst", plan, error);
    if (result != HET_OK) return result;
    for (p = 0; p < b->most; p++) {
        (*plan)->first_stage[p] = at, (*plan)->share[p] = (*plan)->state_share[p] = 1;
        for (u = 0; u < b->units; u++) {
            if (u == 0 || p % b->width[chosen[u]] != p % b->width[chosen[u - 1]]) {
                (*plan)->stage[at].pipeline = p, (*plan)->stage[at].rank = p % b->width[chosen[u]];
                (*plan)->stage[at++].unit_begin = u;
            }
            (*plan)->stage[at - 1].unit_end = u + 1;
        }
    }
    (*plan)->first_stage[p] = at, (*plan)->slice_share[0] = 1;
    return het_plan_check(*plan, "--burst", error);
}

/* What was chosen, beside one worker and beside all workers for all units. */
static int burst_tell(const burst *b, const unsigned char *chosen, const het_plan *plan) {
    const settings *s = b->a->set;
    double one = 0, all = 0, step = 0, taken = 0, spent = 0, busy, used, rest;
    int64_t u, end;
    int status = simulate(b->a, 1, &one, &busy, &used);
    if (status == 0) status = simulate(b->a, b->most, &all, &busy, &used);
    if (status == 0) status = simulate_plan(b->a, plan, &step, &busy, &used);
    if (status != 0) return status;
    printf(s->json ? "{\"units\":[" : "units     workers       ms\n");
    for (u = 0; u < b->units; u = end) {
        const long long g = (long long)b->width[chosen[u]];
        double ms = 0;
        for (end = u; end < b->units && chosen[end] == chosen[u]; end++) {
            const int64_t h = end == 0 ? g : b->width[chosen[end - 1]];
            const double own = unit_time(b, end, g), crossing = end == 0 ? 0 : crossing_time(b, end, h, g);
            ms += 1e3 * (own + crossing), taken += own + crossing;
            spent += (double)g * own + (double)(g > h ? g : h) * crossing;
        }
        if (s->json) printf("%s{\"begin\":%lld,\"end\":%lld,\"workers\":%lld}", u == 0 ? "" : ",", (long long)u, (long long)end, g);
        else printf("%4lld-%-4lld %7lld  %7.3f\n", (long long)u, (long long)end - 1, g, ms);
    }
    spent *= s->burst / b->allowed; /* of one worker's */
    rest = (double)b->most * step - used;
    if (s->json) printf("],\"formula\":%.9g,\"device_time\":%.9g,\"seconds\":%.9g,\"busy\":%.9g,\"one\":%.9g,\"all\":%.9g}\n", taken, spent, step,
                        used, one, all);
    else printf("\n%.3f ms a step, simulated; one worker takes %.3f ms, data parallelism on %lld %.3f ms\n"
                "%.3f of one worker's device time, by formula; the others have the rest of %.3f ms for another job\n",
                1e3 * step, 1e3 * one, (long long)b->most, 1e3 * all, spent, rest > 0 ? 1e3 * rest : 0);
    return 0;
}

static int burst_write(const settings *s, const het_plan *plan) {
    write_target t;
    het_writer writer;
    int status = target_open(&t, "--out", s->out);
    if (status != 0) return status;
    writer = target_writer(&t);
    return target_end(&t, het_plan_write(plan, &writer), NULL);
}

/* The numbers of workers, ascending, and what units have; the memory for it. */
static int burst_begin(burst *b) {
    const het_profile *p = b->a->profile;
    const settings *s = b->a->set;
    const int count = take_workers(s, b->width);
    int64_t i, k, u;
    if (count == 0) return BAD_INPUT;
    b->widths = count, b->units = p->units;
    for (i = 0; i < b->widths; i++)
        for (k = i; k > 0 && b->width[k] < b->width[k - 1]; k--) {
            const int64_t w = b->width[k];
            b->width[k] = b->width[k - 1], b->width[k - 1] = w;
        }
    b->most = b->width[b->widths - 1];
    for (i = 0; i < b->widths; i++)
        if (b->most % b->width[i] != 0)
            return fail(BAD_INPUT, "--workers %s: %lld does not divide %lld, which --burst needs", s->workers, (long long)b->width[i],
                        (long long)b->most);
    if (b->width[0] != 1) return fail(BAD_INPUT, "--workers %s: 1 must be among them for --burst", s->workers);
    if (s->micro_batches % b->most != 0)
        return fail(BAD_INPUT, "--micro-batches %lld: no multiple of %lld workers, which --burst needs", (long long)s->micro_batches,
                    (long long)b->most);
    b->elements = (double *)calloc((size_t)b->units, sizeof *b->elements);
    b->shares = (unsigned char *)calloc((size_t)b->units, 1);
    b->before = (unsigned char *)calloc((size_t)(b->units * b->widths * (STEPS + 1)), 1);
    for (i = 0; i < 2; i++) b->best[i] = (double *)calloc((size_t)(b->widths * (STEPS + 1)), sizeof *b->best[i]);
    if (b->elements == NULL || b->shares == NULL || b->before == NULL || b->best[0] == NULL || b->best[1] == NULL)
        return fail(FAILED, "out of memory");
    for (i = 0; i < p->blocks; i++) {
        const int64_t *use = p->use + p->block[i].first_use;
        if (p->block[i].frozen) continue;
        b->elements[use[0]] += (double)p->block[i].elements;
        for (k = 0; k < p->block[i].uses; k++) b->shares[use[k]] |= p->block[i].uses > 1;
    }
    for (u = 0; u < b->units; u++) b->allowed += s->burst * unit_time(b, u, 1);
    return b->allowed > 0 ? 0 : fail(BAD_INPUT, "--profile %s: its units take no time, which --burst divides", s->profile);
}

static int advise_burst(const advice *a) {
    burst b;
    het_plan *plan = NULL;
    het_error error = { HET_OK, "" };
    unsigned char *chosen, *tried;
    double least = HUGE_VAL;
    int64_t w;
    int status;
    memset(&b, 0, sizeof b);
    b.a = a;
    status = burst_begin(&b);
    chosen = (unsigned char *)calloc((size_t)b.units + 1, 1), tried = (unsigned char *)calloc((size_t)b.units + 1, 1);
    if (status == 0 && (chosen == NULL || tried == NULL)) status = fail(FAILED, "out of memory");
    for (w = 0; status == 0 && w < b.widths; w++) {
        const double seconds = burst_best(&b, w, tried);
        if (seconds < least) least = seconds, memcpy(chosen, tried, (size_t)b.units); /* none: all on one worker */
    }
    if (status == 0 && burst_plan(&b, chosen, &plan, &error) != HET_OK) status = fail(status_of(error.code), "%s", error.text);
    if (status == 0) status = burst_tell(&b, chosen, plan);
    if (status == 0 && a->set->out != NULL) status = burst_write(a->set, plan);
    het_plan_free(plan);
    free(chosen), free(tried), free(b.elements), free(b.shares), free(b.before), free(b.best[0]), free(b.best[1]);
    return status;
}

static int program(int argc, char **argv) {
    settings s;
    unsigned char given[OPTIONS] = { 0 };
    named_path to = { "--out", NULL };
    het_model_desc model;
    advice *a;
    int status;
    memset(&s, 0, sizeof s);
    s.micro_batches = 8, s.sequences = 1;
    status = options_parse("build/advise --profile FILE | --scaling LIST --cut M=S\n\n"
                           "Advice by formula: batch, workers, energy, servers, workers of each unit, when to cut a model.",
                           options, OPTIONS, &s, given, argc, argv);
    if (status >= 0) return status;
    if ((s.profile != NULL) == (s.scaling != NULL)) return fail(BAD_INPUT, "one of --profile and --scaling; --help lists the options");
    if (s.scaling != NULL)
        status = options_idle(options, OPTIONS, given, "--device --workers --link --watts --micro-batches --sequences --length --burst --out",
                              "with --scaling");
    else status = options_idle(options, OPTIONS, given, "--cut", "without --scaling");
    if (status == 0 && s.burst > 0) status = options_idle(options, OPTIONS, given, "--watts", "with --burst");
    if (status == 0 && s.out != NULL && !(s.burst > 0)) status = fail(BAD_INPUT, "--out: has no effect without --burst");
    if (status == 0) status = take_watts(&s);
    if (status != 0 || s.scaling != NULL) return status != 0 ? status : advise_cut(&s);
    if ((a = (advice *)calloc(1, sizeof *a)) == NULL) return fail(FAILED, "out of memory");
    a->set = &s;
    to.path = s.out;
    status = target_check(to.option, to.path);
    if (status == 0) status = targets_spare_list(&to, 1, "--profile", s.profile);
    if (status == 0) status = profile_read_list("--profile", s.profile, &a->profile);
    if (status == 0 && s.length == 0)
        s.length = het_model_parse(a->profile->model, &model, NULL) == HET_OK && model.context > 0 ? model.context : 128;
    if (status == 0) status = take_device(a, s.device);
    if (status == 0) status = take_link(a);
    if (status == 0) status = s.burst > 0 ? advise_burst(a) : advise_workers(a);
    het_profile_free(a->profile);
    free(a);
    return status;
}

int main(int argc, char **argv) {
    program_begin();
    return program_end(program(argc, argv));
}
