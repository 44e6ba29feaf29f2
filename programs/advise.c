/* Advice by formula, from a measured profile: the largest batch, what more workers bring, servers for the parameters, when a model is to be cut.
     cc -O2 -I. -Iutil programs/advise.c -lm -lpthread
     build/train ... --steps 0 --save-profile p.json && build/advise --profile p.json --device cpu:1/64M --workers 1,2,4 --micro-batches 8
     build/advise --scaling 1=1:4,8=0.9:4,16=0.8:6,32=0.7:9 --cut 2=1.4
   Speed-up by simulated steps (het_plan_predict). R is the part of a worker's step beside its computing over its computing; servers by S.-X. Zou
   et al.'s rule for parameter servers: 2 S G / (B C), S bytes of parameters, G workers, B bytes a second, C seconds of computing (Distributed
   Training Large-Scale Deep Architectures, arXiv 1709.06622). --scaling and --cut: S. Pal et al., arXiv 1907.13257. */
#define PROGRAM "advise"
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#define HETRAIN_SEARCH_IMPLEMENTATION
#include "common.h"
#include "hetrain_search.h"
#include "layout.h"
#include "profile.h"

typedef struct settings {
    const char *profile, *device, *workers, *link, *scaling, *cut;
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
    { "--length", "T", OPTION_INTEGER, AT(length), 1, 1e7, "tokens a sequence" },
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
        if (cut <= data) from = -1;
        else if (from < 0) from = i;
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
        !(speed > 0 && speed <= 1000) ||
        (text != NULL && text[length] != 0 && text[length] != '/'))
        return fail(BAD_INPUT, "--device %s: expected NAME[@SPEED][/SIZE]", text);
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

/* A step on `workers`; busy: seconds that the busiest computes. */
static int simulate(const advice *a, int64_t workers, double *seconds, double *busy) {
    const settings *s = a->set;
    het_search_desc search;
    het_plan_desc desc;
    het_plan *plan = NULL;
    het_cluster *cluster = NULL;
    het_simulation *simulation = NULL;
    het_error error = { HET_OK, "" };
    int64_t r;
    het_result result = het_cluster_flat(workers, a->device, a->latency, a->bandwidth, NULL, &cluster, &error);
    memset(&search, 0, sizeof search), memset(&desc, 0, sizeof desc);
    desc.units = a->profile->units, desc.ranks = workers;
    if (result == HET_OK) result = het_plan_read(&desc, "dp", 2, &plan, &error);
    search.profile = a->profile, search.cluster = cluster, search.granules = s->micro_batches;
    search.granule_sequences = s->sequences, search.granule_tokens = s->sequences * s->length;
    search.granule_pairs = (double)s->sequences * (double)s->length * ((double)s->length + 1) / 2;
    if (result == HET_OK) result = het_plan_predict(&search, plan, 1, HET_NO, &simulation, &error);
    for (r = 0, *busy = 0; result == HET_OK && r < workers; r++) *busy = fmax(*busy, simulation->rank[r].busy);
    if (result == HET_OK) *seconds = simulation->makespan;
    het_simulation_free(simulation), het_plan_free(plan), het_cluster_free(cluster);
    return result == HET_OK ? 0 : fail(status_of(result), "%s", error.text);
}

/* Sequences of the largest micro-batch that a device with `limit` bytes can train, with the whole model: bytes grow with every one. */
static int largest_batch(const advice *a, double limit, int64_t *most) {
    het_plan_desc desc;
    het_plan *plan = NULL;
    het_needs needs = { .slots = 1, .batch_slots = 1, .versions = 1 };
    het_error error = { HET_OK, "" };
    het_result result;
    int64_t low = 0, high = 1 << 24;
    memset(&desc, 0, sizeof desc);
    desc.units = a->profile->units, desc.ranks = 1;
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
    double one = 0, computing = 0, elements = 0, seconds, busy;
    int64_t most = 0, workers[MOST], i;
    const int count = take_workers(a->set, workers);
    int status, k;
    if (count == 0) return BAD_INPUT;
    if (a->device[0].memory > 0 && (status = largest_batch(a, a->device[0].memory, &most)) != 0) return status;
    if ((status = simulate(a, 1, &one, &computing)) != 0) return status;
    for (i = 0; i < a->profile->blocks; i++) elements += a->profile->block[i].frozen ? 0 : (double)a->profile->block[i].elements;
    if (a->set->json) printf("{\"largest_micro_batch\":%lld,\"workers\":[", (long long)most);
    else if (a->device[0].memory > 0) printf("largest micro-batch that fits: %lld sequences of %lld tokens\n",
                                                (long long)most, (long long)a->set->length);
    if (!a->set->json) printf("workers  ms a step  speed-up  efficiency       R  servers\n");
    for (k = 0; k < count; k++) {
        double servers;
        if ((status = simulate(a, workers[k], &seconds, &busy)) != 0) return status;
        servers = a->bandwidth > 0 ? ceil(2 * 4 * elements * (double)workers[k] / (a->bandwidth * computing / (double)workers[k])) : 0;
        if (a->set->json) printf("%s{\"workers\":%lld,\"seconds\":%.9g,\"speed_up\":%.9g,\"overhead\":%.9g,\"servers\":%g}", k == 0 ? "" : ",",
                                 (long long)workers[k], seconds, one / seconds, seconds / busy - 1, servers);
        else printf("%7lld  %9.3f  %8.3f  %8.1f %%  %6.3f  %7g\n", (long long)workers[k], 1e3 * seconds, one / seconds,
                    100 * one / seconds / (double)workers[k], seconds / busy - 1, servers);
    }
    if (a->set->json) printf("]}\n");
    else printf("\nR        what a step takes beside the computing of its busiest worker, over that computing\n"
                "servers  for the parameters, so that they take no longer than a step's computing (0: the link is not known)\n");
    return 0;
}

static int program(int argc, char **argv) {
    settings s;
    unsigned char given[OPTIONS] = { 0 };
    advice *a;
    int status;
    memset(&s, 0, sizeof s);
    s.micro_batches = 8, s.sequences = 1, s.length = 128;
    status = options_parse("build/advise --profile FILE | --scaling LIST --cut M=S\n\n"
                           "Advice by formula: batch, workers, servers, when to cut a model.",
                           options, OPTIONS, &s, given, argc, argv);
    if (status >= 0) return status;
    if ((s.profile != NULL) == (s.scaling != NULL)) return fail(BAD_INPUT, "one of --profile and --scaling; --help lists the options");
    if (s.scaling != NULL) status = options_idle(options, OPTIONS, given, "--device --workers --link --micro-batches --sequences --length",
                                                 "with --scaling");
    else status = options_idle(options, OPTIONS, given, "--cut", "without --scaling");
    if (status != 0 || s.scaling != NULL) return status != 0 ? status : advise_cut(&s);
    if ((a = (advice *)calloc(1, sizeof *a)) == NULL) return fail(FAILED, "out of memory");
    a->set = &s;
    status = profile_read_list("--profile", s.profile, &a->profile);
    if (status == 0) status = take_device(a, s.device);
    if (status == 0) status = take_link(a);
    if (status == 0) status = advise_workers(a);
    het_profile_free(a->profile);
    free(a);
    return status;
}

int main(int argc, char **argv) {
    program_begin();
    return program_end(program(argc, argv));
}
