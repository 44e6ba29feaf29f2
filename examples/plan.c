// What a schedule would take, from plain numbers or a measured profile: simulates lists of actions, prints times, idle shares and peaks, draws it.
// cc -O2 -I. examples/plan.c -lm -lpthread
// build/plan --simulate 1f1b --ranks 8 --micro-batches 24 --cost F=18522,B=18086,W=9337,link=601 --svg 1f1b.svg
#define PROGRAM "plan"
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#include "common.h"
#include "hetrain_plan.h"
#include "layout.h"
#include "profile.h"
#include "found.h"

typedef struct settings {
    const char *simulate, *plan, *cluster, *cost, *link, *micro_batch_scale, *slice_share, *trace, *svg, *title, *model, *profile, *devices,
        *schedules,
        *out;
    int64_t sequences, tokens, alone, seed;
    int64_t ranks, micro_batches, chunks, slices, units, unit, complete, dark, json;
    double memory_limit, seconds;
} settings;

#define AT(field) offsetof(settings, field)
static const option options[] = {
    { "--simulate", "NAME|FILE.csv", OPTION_TEXT, AT(simulate), 0, 0,
        "gpipe, 1f1b, interleaved, zb-h1, zb-v, ... or lists of actions, a line a rank" },
    { "--ranks", "N", OPTION_INTEGER, AT(ranks), 1, 4096, "ranks" },
    { "--micro-batches", "M", OPTION_INTEGER, AT(micro_batches), 1, 1000000, "micro-batches of a step" },
    { "--cost", "SPEC|FILE.csv", OPTION_TEXT, AT(cost), 0, 0,
      "F=..,B=..[,W=..][,link=..][,bandwidth=..][,bytes=..][,activation=..] of a rank's whole part of a micro-batch; with W, B is "
      "the backward for inputs alone, and one in a piece takes B + W; link is a latency. With --complete reduce=.., gather=.. bytes and step=.. time "
      "of the whole model. A file: rows stage,F,B,W[,activation]" },
    { "--cluster", "FILE.json", OPTION_TEXT, AT(cluster), 0, 0,
      "devices and links: a rank a device, costs are divided by its speed, links are those of the groups" },
    { "--link", "LATENCY[:BANDWIDTH]", OPTION_TEXT, AT(link), 0, 0, "of every link, in place of what --cost says" },
    { "--chunks", "K", OPTION_INTEGER, AT(chunks), 1, 64, "stages a rank, for interleaved" },
    { "--slices", "K", OPTION_INTEGER, AT(slices), 1, 1024, "pieces a micro-batch is cut into" },
    { "--memory-limit", "X", OPTION_REAL, AT(memory_limit), 0, 1e9, "for greedy: micro-batches of its layers a rank may keep; 0: no limit" },
    { "--micro-batch-scale", "A,B,...", OPTION_TEXT, AT(micro_batch_scale), 0, 0, "size of each micro-batch, pipeline by pipeline; 1 each" },
    { "--plan", "SPEC|FILE", OPTION_TEXT, AT(plan), 0, 0, "dp, pp, dp2xpp4, ... or a plan as JSON" },
    { "--units", "N", OPTION_INTEGER, AT(units), 0, 1000000, "units of the model, for --plan; 0: enough" },
    { "--model", "SPEC", OPTION_TEXT, AT(model), 0, 0, "with --profile: FAMILY:preset, FAMILY:key=value,... or a config.json; lists are complete" },
    { "--profile", "FILE,...", OPTION_TEXT, AT(profile), 0, 0, "what units cost on devices (train --save-profile); several are merged" },
    { "--devices", "LIST", OPTION_TEXT, AT(devices), 0, 0, "with --profile, in place of --cluster: NAME[@SPEED][/SIZE],..., names of the profile" },
    { "--sequences", "B", OPTION_INTEGER, AT(sequences), 1, 1e6, "with --profile: sequences a micro-batch" },
    { "--length", "T", OPTION_INTEGER, AT(tokens), 1, 1e7, "with --profile: tokens a sequence; default: the model's context" },
    { "--alone", NULL, OPTION_FLAG, AT(alone), 0, 0, "with --profile: times measured with nothing beside them, not with all ranks at work" },
    { "--schedules", "A,B,...", OPTION_TEXT, AT(schedules), 0, 0, "without --simulate: the schedules to choose from" },
    { "--seconds", "X", OPTION_REAL, AT(seconds), 0.01, 1e6, "without --simulate: how long to look for a plan" },
    { "--seed", "N", OPTION_INTEGER, AT(seed), 0, 9e15, "without --simulate: of the search" },
    { "--out", "FILE.json", OPTION_TEXT, AT(out), 0, 0, "without --simulate: the best plan, for train --plan" },
    { "--complete", NULL, OPTION_FLAG, AT(complete), 0, 0, "with reductions, optimizer steps and the exchange of new weights" },
    { "--json", NULL, OPTION_FLAG, AT(json), 0, 0, "one line of JSON in place of a table" },
    { "--trace", "FILE.json", OPTION_TEXT, AT(trace), 0, 0, "Chrome trace, for ui.perfetto.dev" },
    { "--svg", "FILE.svg", OPTION_TEXT, AT(svg), 0, 0, "a picture" },
    { "--title", "TEXT", OPTION_TEXT, AT(title), 0, 0, "of the picture" },
    { "--unit", "us|ms|s", OPTION_CHOICE, AT(unit), 0, 0, "of the given times, for trace, picture and --cluster" },
    { "--dark", NULL, OPTION_FLAG, AT(dark), 0, 0, "a picture on a dark ground" },
    { "--help", NULL, OPTION_HELP, 0, 0, 0, "this list" },
};
enum { OPTIONS = sizeof options / sizeof *options };

static const char summary[] = "plan: simulates a schedule with no training, or looks for the best plan. Times have the unit of the costs.\n\n"
                              "  plan --simulate 1f1b --ranks 8 --micro-batches 24 --cost F=18522,B=18086,W=9337,link=601 --svg 1f1b.svg\n"
                              "  plan --model llama:tiny --profile P.json --cluster C.json --micro-batches 16 --sequences 4 --out plan.json";

/* Everything the simulation needs. `lists` is what a plan derived from a file lives in. */
typedef struct problem {
    het_plan *plan, lists;
    het_schedule *schedule;
    het_costs costs;
    het_stage_cost *stage;
    het_block_cost *block;
    het_rank_cost *rank;
    het_cluster *cluster;
    int64_t *group_of;
    double *tokens;
    int64_t micro_batches;
    char *text;
    size_t length;
} problem;

static void *room(int64_t count, size_t size) { return calloc(count > 0 ? (size_t)count : 1, size); }
#define ROOM(type, count) ((type *)room(count, sizeof(type)))

/* ---- a plan from lists: who has which stage is what the lists say ---- */

/* One action of the text, as far as a plan needs it: "2F3.1@1/0". Moves *at behind it. 0: names no stage. */
static int scan_action(const char **at, int64_t *stage, int64_t *pipeline, int64_t *micro_batch, int64_t *slice) {
    const char *s = *at;
    int found = *s >= '0' && *s <= '9';
    int64_t *number = stage;
    *stage = *pipeline = *micro_batch = *slice = 0;
    while (*s != 0 && strchr(",;\r\n()", *s) == NULL) {
        if (*s >= '0' && *s <= '9') {
            if (number != NULL && *number < 1000000) *number = *number * 10 + (*s - '0');
        } else if (*s == '.') number = slice;
        else if (*s == '@') number = pipeline;
        else if (*s == '/') number = NULL;
        else if (number != NULL && *s != ' ') number = micro_batch;
        s++;
    }
    *at = s;
    return found;
}

/* Text of a file inside a message: not more than 40 characters of it, and only plain ones. */
static const char *shown(char to[41], const char *from, const char *end) {
    size_t i, length = end - from < 40 ? (size_t)(end - from) : 40;
    for (i = 0; i < length; i++) to[i] = from[i] > 32 && from[i] < 127 ? from[i] : '?';
    to[length] = 0;
    return to;
}

enum { MOST_PIPELINES = 256, MOST_STAGES = 4096 };

static int plan_from_lists(const settings *s, problem *p) {
    het_plan *plan = &p->lists;
    int64_t *stages = ROOM(int64_t, MOST_PIPELINES), *rank_of = ROOM(int64_t, MOST_PIPELINES * MOST_STAGES), line = 0, g = 0, i, q;
    const char *at = p->text;
    char token[41];
    int status = 0;
    if (stages == NULL || rank_of == NULL) { free(stages); free(rank_of); return fail(FAILED, "out of memory"); }
    plan->slices = plan->pipelines = 1;
    while (*at != 0 && status == 0) {
        int64_t stage, pipeline, micro_batch, slice;
        const char *from = at;
        if (*at == '\n') line++;
        if (strchr(",;\r\n() ", *at) != NULL) { at++; continue; }
        if (line + 1 > plan->ranks) plan->ranks = line + 1;
        if (!scan_action(&at, &stage, &pipeline, &micro_batch, &slice)) continue;
        if (pipeline >= MOST_PIPELINES || stage >= MOST_STAGES || slice >= 1024)
            status = fail(BAD_INPUT, "--simulate %s: line %lld: %s: numbers up to %d stages, %d pipelines, 1024 slices", s->simulate,
                (long long)line + 1, shown(token, from, at), MOST_STAGES, MOST_PIPELINES);
        else {
            int64_t *rank = &rank_of[pipeline * MOST_STAGES + stage];
            if (*rank != 0 && *rank != line + 1)
                status = fail(BAD_INPUT, "--simulate %s: line %lld: %s: the stage is also on line %lld", s->simulate, (long long)line + 1,
                    shown(token, from, at), (long long)*rank);
            *rank = line + 1;
            if (stage >= stages[pipeline]) stages[pipeline] = stage + 1;
            if (pipeline >= plan->pipelines) plan->pipelines = pipeline + 1;
            if (slice >= plan->slices) plan->slices = slice + 1;
        }
    }
    for (q = 0; q < plan->pipelines && status == 0; q++) {
        if (stages[q] == 0) status = fail(BAD_INPUT, "--simulate %s: no action of pipeline %lld", s->simulate, (long long)q);
        plan->stages += stages[q];
    }
    plan->stage = ROOM(het_stage, plan->stages);
    plan->first_stage = ROOM(int64_t, plan->pipelines + 1);
    plan->share = ROOM(double, plan->pipelines);
    plan->state_share = ROOM(double, plan->ranks);
    plan->slice_share = ROOM(double, plan->slices);
    if (status == 0 && (!plan->stage || !plan->first_stage || !plan->share || !plan->state_share || !plan->slice_share))
        status = fail(FAILED, "out of memory");
    for (q = 0; q < plan->pipelines && status == 0; q++) {
        plan->share[q] = 1;
        for (i = 0; i < stages[q] && status == 0; i++, g++) {
            if (rank_of[q * MOST_STAGES + i] == 0)
                status = fail(BAD_INPUT, "--simulate %s: no action of stage %lld of pipeline %lld", s->simulate, (long long)i, (long long)q);
            plan->stage[g].pipeline = q;
            plan->stage[g].rank = rank_of[q * MOST_STAGES + i] - 1;
            plan->stage[g].unit_begin = i;
            plan->stage[g].unit_end = i + 1;
            if (plan->units < i + 1) plan->units = i + 1;
        }
        plan->first_stage[q + 1] = g;
    }
    for (i = 0; i < plan->ranks && status == 0; i++) plan->state_share[i] = 1;
    for (i = 0; i < plan->slices && status == 0; i++) plan->slice_share[i] = 1;
    p->plan = plan;
    free(stages);
    free(rank_of);
    return status;
}

static int read_lists(const settings *s, problem *p) {
    het_error error = { HET_OK, "" };
    het_result result;
    int64_t q;
    int status;
    p->text = read_small_file(s->simulate, &p->length);
    if (p->text == NULL) return fail(BAD_INPUT, "--simulate %s: %s", s->simulate, strerror(errno));
    if (s->plan == NULL) {
        status = plan_from_lists(s, p);
        if (status != 0) return status;
    }
    if (s->ranks > 0 && s->ranks != p->plan->ranks)
        return fail(BAD_INPUT, "--ranks %lld: %s has lists for %lld", (long long)s->ranks, s->simulate, (long long)p->plan->ranks);
    result = het_schedule_read(p->plan, p->text, p->length, NULL, &p->schedule, &error);
    if (result != HET_OK) return fail(status_of(result), "--simulate %s: %s", s->simulate, error.text);
    for (q = 0; q < p->plan->pipelines; q++) p->micro_batches += p->schedule->micro_batches[q];
    if (s->micro_batches > 0 && s->micro_batches != p->micro_batches)
        return fail(BAD_INPUT, "--micro-batches %lld: %s has lists for %lld", (long long)s->micro_batches, s->simulate, (long long)p->micro_batches);
    result = het_schedule_check(p->plan, NULL, p->schedule, NULL, &error);
    return result == HET_OK ? 0 : fail(status_of(result), "--simulate %s: %s", s->simulate, error.text);
}

/* ---- a plan and a schedule by name ---- */

static int read_plan(const settings *s, problem *p, int named) {
    het_plan_desc desc;
    het_error error = { HET_OK, "" };
    het_result result;
    const char *spec = s->plan != NULL ? s->plan : "pp";
    char *text = NULL;
    size_t length = strlen(spec);
    memset(&desc, 0, sizeof desc);
    desc.ranks = s->ranks;
    desc.chunks = s->chunks;
    desc.slices = s->slices;
    desc.units = s->units > 0 ? s->units : s->ranks * 2 * (s->chunks > 0 ? s->chunks : 2);
    desc.schedule = named ? s->simulate : NULL;
    if (length > 5 && strcmp(spec + length - 5, ".json") == 0) {
        text = read_small_file(spec, &length);
        if (text == NULL) return fail(BAD_INPUT, "--plan %s: %s", spec, strerror(errno));
    }
    result = het_plan_read(&desc, text != NULL ? text : spec, length, &p->plan, &error);
    free(text);
    if (result != HET_OK)
        return fail(status_of(result), "%s %s: %s", s->plan != NULL ? "--plan" : "--simulate", s->plan != NULL ? spec : s->simulate, error.text);
    p->plan->memory_limit = s->memory_limit;
    if (named && strlen(s->simulate) < sizeof p->plan->schedule) strcpy(p->plan->schedule, s->simulate);
    return 0;
}

static int make_lists(const settings *s, problem *p) {
    het_error error = { HET_OK, "" };
    het_result result;
    int64_t *counts = ROOM(int64_t, p->plan->pipelines);
    if (counts == NULL) return fail(FAILED, "out of memory");
    p->micro_batches = s->micro_batches;
    het_plan_divide(p->plan, s->micro_batches, counts);
    result = het_schedule_make(p->plan, counts, NULL, &p->schedule, &error);
    free(counts);
    return result == HET_OK ? 0 : fail(status_of(result), "--simulate %s: %s", s->simulate, error.text);
}

/* ---- costs ---- */

/* The number up to `stop` or the end. */
static int cut_number(const char **at, const char *stop, double *value) {
    char buffer[64];
    size_t length = strcspn(*at, stop);
    if (length >= sizeof buffer) return 0;
    memcpy(buffer, *at, length);
    buffer[length] = 0;
    *at += length;
    return parse_real(buffer, 0, 1e18, value);
}

static void stage_cost(het_stage_cost *c, double f, double b, double w, int split, double activation, double bytes, double parts) {
    c->forward.token = f / parts;
    c->input.token = (split ? b : b / 2) / parts;
    c->weight.token = (split ? w : b / 2) / parts;
    c->backward.token = (split ? b + w : b) / parts;
    c->keep_weight = activation / parts;
    c->bytes = bytes;
}

/* F=..,B=..: a rank's part of the micro-batch, shared by its stages of a pipeline. */
static int cost_from_spec(const settings *s, problem *p) {
    enum { KEYS = 10 };
    static const char *const keys[KEYS] = { "F", "B", "W", "link", "bandwidth", "bytes", "activation", "reduce", "gather", "step" };
    double value[KEYS] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
    int given[KEYS] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
    const char *at = s->cost;
    int64_t g, h;
    while (*at != 0) {
        size_t length = strcspn(at, "=,");
        const char *item = at;
        int key = 0;
        while (key < KEYS && (strlen(keys[key]) != length || memcmp(keys[key], at, length) != 0)) key++;
        if (key == KEYS || at[length] != '=')
            return fail(BAD_INPUT, "--cost %s: %.*s: not F=, B=, W=, link=, bandwidth=, bytes=, activation=, reduce=, gather=, step=", s->cost,
                (int)strcspn(at, ","),
                at);
        at += length + 1;
        if (!cut_number(&at, ",", &value[key]))
            return fail(BAD_INPUT, "--cost %s: %.*s: not a number from 0 to 1e18", s->cost, (int)strcspn(item, ","), item);
        given[key] = 1;
        if (*at == ',' && at[1] == 0) return fail(BAD_INPUT, "--cost %s: ends with a comma", s->cost);
        at += *at == ',';
    }
    if (!given[0] || !given[1]) return fail(BAD_INPUT, "--cost %s: %s= is missing", s->cost, given[0] ? "B" : "F");
    for (g = 0; g < p->plan->stages; g++) {
        const het_stage *stage = &p->plan->stage[g];
        double parts = 0;
        for (h = p->plan->first_stage[stage->pipeline]; h < p->plan->first_stage[stage->pipeline + 1]; h++)
            parts += p->plan->stage[h].rank == stage->rank;
        stage_cost(&p->stage[g], value[0], value[1], value[2], given[2], value[6], value[5], parts);
    }
    p->costs.every_link.latency = value[3];
    p->costs.every_link.bandwidth = value[4];
    for (g = 0; g < p->plan->units; g++) {
        p->block[g].reduce_bytes = value[7] / (double)p->plan->units;
        p->block[g].gather_bytes = value[8] / (double)p->plan->units;
        p->block[g].step = value[9] / (double)p->plan->units;
    }
    return 0;
}

/* Rows stage,F,B,W[,activation]; stages count through all pipelines. A first line that starts with a letter is a heading. */
static int cost_from_file(const settings *s, problem *p) {
    size_t length;
    char *text = read_small_file(s->cost, &length);
    const char *at = text;
    int64_t line = 1, g, rows = 0;
    int status = 0;
    unsigned char *given = ROOM(unsigned char, p->plan->stages);
    if (text == NULL) { free(given); return fail(BAD_INPUT, "--cost %s: %s", s->cost, strerror(errno)); }
    for (; status == 0 && *at != 0; line++) {
        double value[5] = { 0, 0, 0, 0, 0 };
        int n = 0;
        const char *end = at + strcspn(at, "\r\n");
        if (end > at && !(line == 1 && ((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z')))) {
            for (;;) {
                if (n == 5) status = fail(BAD_INPUT, "--cost %s: line %lld: more than stage,F,B,W,activation", s->cost, (long long)line);
                else if (!cut_number(&at, ",\r\n", &value[n]))
                    status = fail(BAD_INPUT, "--cost %s: line %lld: value %d is not a number from 0 to 1e18", s->cost, (long long)line, n + 1);
                n++;
                if (status != 0 || *at != ',') break;
                at++;
            }
            if (status == 0 && n < 3)
                status = fail(BAD_INPUT, "--cost %s: line %lld: %d values, not stage,F,B,W[,activation]", s->cost, (long long)line, n);
            if (status == 0 && !(value[0] < (double)p->plan->stages && value[0] <= floor(value[0])))
                status = fail(BAD_INPUT, "--cost %s: line %lld: no stage %.15g among %lld", s->cost, (long long)line, value[0],
                    (long long)p->plan->stages);
            if (status != 0) break;
            g = (int64_t)value[0];
            if (given[g]++) status = fail(BAD_INPUT, "--cost %s: line %lld: stage %lld comes twice", s->cost, (long long)line, (long long)g);
            stage_cost(&p->stage[g], value[1], value[2], value[3], n > 3, value[4], 0, 1);
            rows++;
        }
        at = end + (*end == '\r' && end[1] == '\n') + (*end != 0);
    }
    for (g = 0; g < p->plan->stages && status == 0 && rows < p->plan->stages; g++)
        if (!given[g]) status = fail(BAD_INPUT, "--cost %s: no row for stage %lld of %lld", s->cost, (long long)g, (long long)p->plan->stages);
    free(given);
    free(text);
    return status;
}

/* ---- devices and links ---- */

static double unit_of(const settings *s) { return s->unit == 1 ? 1e-6 : s->unit == 2 ? 1e-3 : 1; }

static int read_cluster(settings *s, problem *p) {
    het_error error = { HET_OK, "" };
    het_result result;
    size_t length;
    char *text;
    if (s->cluster == NULL) return 0;
    if (s->link != NULL) return fail(BAD_INPUT, "--link %s: --cluster %s says what links cost", s->link, s->cluster);
    text = read_small_file(s->cluster, &length);
    if (text == NULL) return fail(BAD_INPUT, "--cluster %s: %s", s->cluster, strerror(errno));
    result = het_cluster_read(text, length, NULL, &p->cluster, &error);
    free(text);
    if (result != HET_OK) return fail(status_of(result), "--cluster %s: %s", s->cluster, error.text);
    if (s->ranks > 0 && s->ranks != p->cluster->ranks)
        return fail(BAD_INPUT, "--ranks %lld: %s has %lld devices", (long long)s->ranks, s->cluster, (long long)p->cluster->ranks);
    s->ranks = p->cluster->ranks;
    return 0;
}

/* Rank r is device r; the cluster's seconds become the unit of the costs. */
static int cluster_costs(const settings *s, problem *p) {
    const double unit = unit_of(s);
    int64_t i;
    p->rank = ROOM(het_rank_cost, p->cluster->ranks);
    p->group_of = ROOM(int64_t, p->cluster->ranks);
    if (p->rank == NULL || p->group_of == NULL) return fail(FAILED, "out of memory");
    for (i = 0; i < p->cluster->ranks; i++) {
        p->group_of[i] = p->cluster->device[i].group;
        p->rank[i].step = 1 / p->cluster->device[i].speed;
    }
    for (i = 0; i < p->cluster->groups; i++) {
        het_group *g = &p->cluster->group[i];
        g->latency /= unit;
        g->bandwidth *= unit;
        g->bus *= unit;
        g->uplink *= unit;
    }
    for (i = 0; i < p->plan->stages; i++) {
        const double speed = p->cluster->device[p->plan->stage[i].rank].speed;
        het_stage_cost *c = &p->stage[i];
        c->forward.token /= speed;
        c->backward.token /= speed;
        c->input.token /= speed;
        c->weight.token /= speed;
    }
    p->costs.rank = p->rank;
    p->costs.group = p->cluster->group;
    p->costs.groups = p->cluster->groups;
    p->costs.rank_group = p->group_of;
    return 0;
}

static int read_costs(const settings *s, problem *p) {
    const char *at = s->micro_batch_scale;
    size_t length = strlen(s->cost);
    int64_t n = 0;
    int status;
    p->stage = ROOM(het_stage_cost, p->plan->stages);
    p->tokens = ROOM(double, p->micro_batches);
    p->block = ROOM(het_block_cost, p->plan->units);
    if (p->stage == NULL || p->tokens == NULL || p->block == NULL) return fail(FAILED, "out of memory");
    p->costs.block = p->block;
    p->costs.blocks = p->plan->units;
    p->costs.stage = p->stage;
    status = length > 4 && strcmp(s->cost + length - 4, ".csv") == 0 ? cost_from_file(s, p) : cost_from_spec(s, p);
    if (status != 0) return status;
    if (p->cluster != NULL && (p->costs.every_link.latency > 0 || p->costs.every_link.bandwidth > 0))
        return fail(BAD_INPUT, "--cost %s: --cluster %s says what links cost", s->cost, s->cluster);
    if (p->cluster != NULL && (status = cluster_costs(s, p)) != 0) return status;
    if (s->link != NULL) {
        const char *l = s->link;
        p->costs.every_link.bandwidth = 0;
        if (!cut_number(&l, ":", &p->costs.every_link.latency) || (*l == ':' && (l++, !cut_number(&l, "", &p->costs.every_link.bandwidth))))
            return fail(BAD_INPUT, "--link %s: not LATENCY[:BANDWIDTH]", s->link);
    }
    for (; at != NULL; n++) {
        double scale;
        if (!cut_number(&at, ",", &scale))
            return fail(BAD_INPUT, "--micro-batch-scale %s: value %lld is not a number from 0 to 1e18", s->micro_batch_scale, (long long)n + 1);
        if (n < p->micro_batches) p->tokens[n] = scale;
        at = *at == ',' ? at + 1 : NULL;
    }
    if (s->micro_batch_scale == NULL) return 0;
    if (n != p->micro_batches)
        return fail(BAD_INPUT, "--micro-batch-scale %s: %lld values for %lld micro-batches", s->micro_batch_scale, (long long)n,
            (long long)p->micro_batches);
    p->costs.tokens = p->tokens;
    return 0;
}

/* ---- what comes out ---- */

static void print_number(double value) {
    char buffer[40];
    int digits = 15;
    do snprintf(buffer, sizeof buffer, "%.*g", digits, value);
    while (digits++ < 17 && (strtod(buffer, NULL) < value || strtod(buffer, NULL) > value));
    printf("%s", buffer);
}

static void print_array(const char *name, const het_simulation *r, size_t offset) {
    int64_t i;
    printf(",\"%s\":[", name);
    for (i = 0; i < r->ranks; i++) {
        double value;
        memcpy(&value, (const char *)&r->rank[i] + offset, sizeof value);
        if (i > 0) printf(",");
        print_number(value);
    }
    printf("]");
}

static void print_json(const het_simulation *r) {
    int64_t i;
    printf("{\"makespan\":");
    print_number(r->makespan);
    printf(",\"span\":");
    print_number(r->span);
    printf(",\"bubble\":");
    print_number(r->bubble);
    printf(",\"span_bubble\":");
    print_number(r->span_bubble);
    print_array("idle", r, offsetof(het_rank_time, idle));
    print_array("peak", r, offsetof(het_rank_time, peak));
    print_array("fill", r, offsetof(het_rank_time, fill));
    print_array("wait", r, offsetof(het_rank_time, wait));
    print_array("tail", r, offsetof(het_rank_time, tail));
    printf(",\"peak_action\":[");
    for (i = 0; i < r->ranks; i++) printf("%s%lld", i > 0 ? "," : "", (long long)r->rank[i].peak_action);
    printf("],\"actions\":%lld}\n", (long long)r->actions);
}

static void print_table(const settings *s, const problem *p, const het_simulation *r) {
    int64_t i;
    printf("%s: %lld ranks, %lld micro-batches, %lld actions\n", s->simulate, (long long)r->ranks, (long long)p->micro_batches,
        (long long)r->actions);
    printf("makespan %.10g, bubble %.2f %%; longest span of a rank %.10g, bubble by spans %.2f %%\n\n", r->makespan, 100 * r->bubble, r->span,
        100 * r->span_bubble);
    printf("%4s %14s %14s %7s %14s %14s %14s %10s\n", "rank", "busy", "idle", "idle %", "fill", "wait", "tail", "peak");
    for (i = 0; i < r->ranks; i++) {
        const het_rank_time *t = &r->rank[i];
        printf("%4lld %14.10g %14.10g %7.2f %14.10g %14.10g %14.10g %10.6g\n", (long long)i, t->busy, t->idle, r->makespan > 0
            ? 100 * t->idle / r->makespan : 0, t->fill, t->wait, t->tail, t->peak);
    }
}

/* Records in seconds. */
static int write_pictures(const settings *s, const problem *p, const het_simulation *r) {
    const double unit = unit_of(s);
    const char *const path[2] = { s->trace, s->svg }, *slash = strrchr(s->simulate, '/');
    het_record *record = ROOM(het_record, r->timeline.records);
    het_timeline timeline = r->timeline;
    int64_t i;
    int which, status = 0;
    if (record == NULL) return fail(FAILED, "out of memory");
    for (i = 0; i < timeline.records; i++) {
        record[i] = timeline.record[i];
        record[i].start *= unit;
        record[i].end *= unit;
    }
    timeline.record = record;
    for (which = 0; which < 2 && status == 0; which++) {
        FILE *file = path[which] != NULL ? fopen(path[which], "wb") : NULL;
        het_writer writer = { file_write, NULL, NULL };
        het_svg_desc desc;
        het_result result;
        if (path[which] == NULL) continue;
        if (file == NULL) { status = fail(BAD_INPUT, "%s %s: %s", which == 0 ? "--trace" : "--svg", path[which], strerror(errno)); break; }
        writer.user = file;
        memset(&desc, 0, sizeof desc);
        desc.title = s->title != NULL ? s->title : slash != NULL ? slash + 1 : s->simulate;
        desc.dark = s->dark ? HET_YES : HET_NO;
        result = which == 0 ? het_timeline_trace(&timeline, p->plan, &writer) : het_timeline_svg(&timeline, p->plan, &desc, &writer);
        if (fclose(file) != 0 && result == HET_OK) result = HET_ERR_IO;
        if (result != HET_OK) status = fail(status_of(result), "%s %s: %s", which == 0 ? "--trace" : "--svg", path[which], het_result_text(result));
    }
    free(record);
    return status;
}

static int complete_lists(problem *p) {
    het_error error = { HET_OK, "" };
    het_schedule *complete = NULL;
    het_result result = het_schedule_complete(p->plan, NULL, p->schedule, NULL, &complete, &error);
    if (result != HET_OK) return fail(status_of(result), "--complete: %s", error.text);
    het_schedule_free(p->schedule);
    p->schedule = complete;
    return 0;
}

/* Where activations are given, peaks are shown in their units. */
static void show_activations(const problem *p, het_simulation *r) {
    double sum = 0;
    int64_t i;
    for (i = 0; i < p->plan->stages; i++) sum += p->stage[i].keep_weight;
    for (i = 0; i < r->ranks && sum > 0; i++) {
        r->rank[i].peak = r->rank[i].peak_bytes;
        r->rank[i].peak_action = r->rank[i].peak_bytes_action;
    }
}

static int simulate(settings *s, problem *p) {
    het_error error = { HET_OK, "" };
    het_simulation *simulation = NULL;
    const char *dot = strrchr(s->simulate, '.');
    int lists = (dot != NULL && strcmp(dot, ".csv") == 0) || strchr(s->simulate, '/') != NULL, status = 0;
    het_result result;
    status = read_cluster(s, p);
    if (status != 0) return status;
    if (!lists && s->ranks == 0) return fail(BAD_INPUT, "--ranks: how many? (--simulate %s needs it)", s->simulate);
    if (!lists && s->micro_batches == 0) return fail(BAD_INPUT, "--micro-batches: how many? (--simulate %s needs it)", s->simulate);
    if (lists && s->plan != NULL && s->ranks == 0) return fail(BAD_INPUT, "--ranks: how many? (--plan %s needs it)", s->plan);
    if (!lists || s->plan != NULL) status = read_plan(s, p, !lists);
    if (status == 0) status = lists ? read_lists(s, p) : make_lists(s, p);
    if (status == 0 && s->complete && !p->schedule->complete) status = complete_lists(p);
    if (status == 0) status = read_costs(s, p);
    if (status != 0) return status;
    result = het_simulate(p->plan, p->schedule, &p->costs, s->trace != NULL || s->svg != NULL ? HET_YES : HET_NO, NULL, &simulation, &error);
    if (result != HET_OK) return fail(status_of(result), "--simulate %s: %s", s->simulate, error.text);
    show_activations(p, simulation);
    if (s->trace != NULL || s->svg != NULL) status = write_pictures(s, p, simulation);
    if (status == 0 && s->json) print_json(simulation);
    else if (status == 0) print_table(s, p, simulation);
    het_simulation_free(simulation);
    return status;
}

/* ---- a model on measured costs ---- */

/* NAME[@SPEED][/SIZE]: SPEED times as fast as the profile of that name, SIZE bytes. */
static int read_device(const settings *s, const char *item, size_t length, het_cluster_device *device) {
    const size_t name = strcspn(item, "@/,");
    char digits[32];
    double size;
    int64_t speed = 0;
    memset(device, 0, sizeof *device);
    device->speed = 1;
    if (name == 0 || name >= sizeof device->profile)
        return fail(BAD_INPUT, "--devices %s: %.*s: a name has 1 to 47 characters", s->devices, (int)length, item);
    memcpy(device->profile, item, name);
    if (name < length && item[name] == '@') speed = (int64_t)strcspn(item + name + 1, "/,");
    snprintf(digits, sizeof digits, "%.*s", (int)(speed < 31 ? speed : 31), item + name + 1);
    if (name < length && item[name] == '@' && (!parse_real(digits, 1e-6, 1e6, &device->speed) || !(device->speed > 0)))
        return fail(BAD_INPUT, "--devices %s: @%s: a speed from 1e-6 to 1e6", s->devices, digits);
    item += name + (speed > 0 ? (size_t)speed + 1 : 0);
    length -= name + (speed > 0 ? (size_t)speed + 1 : 0);
    if (length == 0) return 0;
    if (*item != '/' || !parse_size(item + 1, length - 1, &size) || size < 1)
        return fail(BAD_INPUT, "--devices %s: %.*s: expected a size such as 256M behind the /", s->devices, (int)length, item);
    device->memory = size;
    return 0;
}

/* The devices of --cluster, of --devices, or --ranks times the profile's first; without a cluster over the profile's first link. */
static int price_devices(settings *s, problem *p, const het_profile *profile) {
    het_error error = { HET_OK, "" };
    het_cluster_device *device;
    const char *item = s->devices;
    int64_t ranks = s->ranks, i;
    int status = read_cluster(s, p);
    if (status != 0) return status;
    if (p->cluster != NULL && s->devices == NULL) return 0;
    if (p->cluster != NULL) return fail(BAD_INPUT, "--devices %s: --cluster %s says which there are", s->devices, s->cluster);
    for (i = 0; item != NULL && item[i] != 0; i++) ranks = i == 0 ? 1 : ranks + (item[i] == ',');
    if (ranks < 1) return fail(BAD_INPUT, "--devices: which? (or --cluster, or --ranks N)");
    if (s->ranks > 0 && s->ranks != ranks)
        return fail(BAD_INPUT, "--ranks %lld: --devices %s are %lld", (long long)s->ranks, s->devices, (long long)ranks);
    s->ranks = ranks;
    device = ROOM(het_cluster_device, ranks);
    if (device == NULL) return fail(FAILED, "out of memory");
    for (i = 0; i < ranks && status == 0; i++) {
        const size_t length = item != NULL ? strcspn(item, ",") : 0;
        if (item != NULL) status = read_device(s, item, length, &device[i]);
        else snprintf(device[i].profile, sizeof device[i].profile, "%s", profile->devices > 0 ? profile->device[0].name : ""), device[i].speed = 1;
        snprintf(device[i].name, sizeof device[i].name, "%.40s", device[i].profile);
        if (item != NULL) item += length + 1;
    }
    if (status == 0) {
        const double latency = profile->links > 0 ? profile->link[0].latency : 0, bandwidth = profile->links > 0 ? profile->link[0].bandwidth : 0;
        const het_result result = het_cluster_flat(ranks, device, latency, bandwidth, NULL, &p->cluster, &error);
        if (result != HET_OK) status = fail(status_of(result), "--devices %s: %s", s->devices, error.text);
    }
    free(device);
    return status;
}

/* Complete lists over the profile's blocks. */
static int price_lists(problem *p, const het_profile *profile) {
    het_error error = { HET_OK, "" };
    het_schedule *whole = NULL;
    het_blocks blocks;
    int64_t b, *start = ROOM(int64_t, profile->blocks + 1);
    het_result result;
    if (start == NULL) return fail(FAILED, "out of memory");
    for (b = 0; b < profile->blocks; b++) start[b] = profile->block[b].first_use;
    start[b] = profile->uses;
    blocks.count = profile->blocks, blocks.start = start, blocks.unit = profile->use;
    result = p->schedule->complete ? HET_OK : het_schedule_complete(p->plan, &blocks, p->schedule, NULL, &whole, &error);
    if (whole != NULL) het_schedule_free(p->schedule), p->schedule = whole;
    if (result == HET_OK) result = het_schedule_check(p->plan, &blocks, p->schedule, NULL, &error);
    free(start);
    return result == HET_OK ? 0 : fail(status_of(result), "--simulate: %s", error.text);
}

static void print_bytes(double bytes) {
    if (bytes >= 1e9) printf(" %8.2fG", 1e-9 * bytes);
    else printf(" %8.2fM", 1e-6 * bytes);
}

/* What a person wants to see: who does what, how long, what is idle, what it takes. */
static void price_table(const settings *s, const problem *p, const het_profile *profile, const het_simulation *r, const het_memory *memory) {
    int64_t i, g;
    printf("%s, %s, %lld x %lld x %lld tokens a step: %.3f ms, %.0f tokens/s, idle %.1f %%\n\n", profile->model, p->plan->schedule,
        (long long)s->micro_batches, (long long)s->sequences, (long long)s->tokens, 1e3 * r->makespan,
        (double)(s->micro_batches * s->sequences * s->tokens) / r->makespan, 100 * r->bubble);
    printf("%4s %-12s %6s %10s %10s %7s %10s %10s %10s %9s %9s  %s\n", "rank", "device", "speed", "busy ms", "idle ms", "idle %", "fill ms",
        "wait ms", "tail ms", "memory", "limit", "units (pipeline)");
    for (i = 0; i < r->ranks; i++) {
        const het_rank_time *t = &r->rank[i];
        const het_cluster_device *device = &p->cluster->device[i];
        int stages = 0;
        printf("%4lld %-12s %6.3g %10.3f %10.3f %7.2f %10.3f %10.3f %10.3f", (long long)i, device->profile, device->speed, 1e3 * t->busy,
            1e3 * t->idle, 100 * t->idle / r->makespan, 1e3 * t->fill, 1e3 * t->wait, 1e3 * t->tail);
        print_bytes((double)memory[i].device + (double)memory[i].communication);
        if (device->memory > 0) print_bytes(device->memory);
        else printf(" %9s", "-");
        for (g = 0; g < p->plan->stages; g++) {
            const het_stage *stage = &p->plan->stage[g];
            if (stage->rank != i) continue;
            printf("%s%lld-%lld (%lld)", stages++ > 0 ? ", " : "  ", (long long)stage->unit_begin, (long long)stage->unit_end - 1,
                (long long)stage->pipeline);
        }
        printf("\n");
        if (device->memory > 0 && (double)memory[i].device + (double)memory[i].communication > device->memory)
            printf("     does not fit: %.0f bytes too many\n", (double)memory[i].device + (double)memory[i].communication - device->memory);
    }
}

static void price_json(const settings *s, const het_simulation *r, const het_memory *memory) {
    int64_t i;
    printf("{\"makespan\":");
    print_number(r->makespan);
    printf(",\"tokens_per_s\":");
    print_number((double)(s->micro_batches * s->sequences * s->tokens) / r->makespan);
    printf(",\"span\":");
    print_number(r->span);
    printf(",\"bubble\":");
    print_number(r->bubble);
    printf(",\"span_bubble\":");
    print_number(r->span_bubble);
    print_array("busy", r, offsetof(het_rank_time, busy));
    print_array("idle", r, offsetof(het_rank_time, idle));
    print_array("fill", r, offsetof(het_rank_time, fill));
    print_array("wait", r, offsetof(het_rank_time, wait));
    print_array("tail", r, offsetof(het_rank_time, tail));
    print_array("peak", r, offsetof(het_rank_time, peak));
    printf(",\"memory\":[");
    for (i = 0; i < r->ranks; i++) printf("%s%llu", i > 0 ? "," : "", (unsigned long long)(memory[i].device + memory[i].communication));
    printf("],\"actions\":%lld}\n", (long long)r->actions);
}

/* Simulates the plan on what the profile says, and prints it. */
static int price_simulate(settings *s, problem *p, const het_profile *profile) {
    het_error error = { HET_OK, "" };
    het_plan_costs *costs = NULL;
    het_simulation *simulation = NULL;
    het_shape shape;
    het_needs *needs = ROOM(het_needs, p->plan->ranks);
    het_memory *memory = ROOM(het_memory, p->plan->ranks);
    double *value = ROOM(double, 3 * s->micro_batches);
    int64_t i;
    het_result result;
    int status = 0;
    if (needs == NULL || memory == NULL || value == NULL) status = fail(FAILED, "out of memory");
    for (i = 0; i < s->micro_batches && status == 0; i++) {
        value[i] = (double)(s->sequences * s->tokens);
        value[s->micro_batches + i] = value[i] * ((double)s->tokens + 1) / 2;
        value[2 * s->micro_batches + i] = (double)s->sequences;
    }
    memset(&shape, 0, sizeof shape);
    shape.tokens = s->sequences * s->tokens, shape.sequences = s->sequences;
    result = status != 0 ? HET_ERR_OOM : het_profile_costs(profile, p->plan, p->cluster, s->alone ? HET_NO : HET_YES, NULL, &costs, &error);
    if (result == HET_OK) result = het_profile_needs(p->plan, p->schedule, NULL, needs, &error);
    if (result == HET_OK) result = het_profile_memory(profile, p->plan, needs, &shape, memory, &error);
    if (result == HET_OK) {
        costs->costs.tokens = value, costs->costs.pairs = value + s->micro_batches, costs->costs.sequences = value + 2 * s->micro_batches;
        result = het_simulate_costs(p->plan, p->schedule, costs, s->trace != NULL || s->svg != NULL ? HET_YES : HET_NO, NULL, &simulation, &error);
    }
    if (status == 0 && result != HET_OK) status = fail(status_of(result), "--profile %s: %s", s->profile, error.text);
    if (status == 0 && (s->trace != NULL || s->svg != NULL)) status = write_pictures(s, p, simulation);
    if (status == 0 && s->json) price_json(s, simulation, memory);
    else if (status == 0) price_table(s, p, profile, simulation, memory);
    het_simulation_free(simulation);
    het_plan_costs_free(costs);
    free(needs);
    free(memory);
    free(value);
    return status;
}

static int price_model(settings *s, problem *p, het_profile **profile) {
    het_model_desc model;
    int status;
    memset(&model, 0, sizeof model);
    status = model_from_spec("--model", s->model, &model);
    if (status == 0) status = profile_read_list("--profile", s->profile, profile);
    if (status != 0) return status;
    if ((*profile)->units != 2 * model.layers + 2)
        return fail(BAD_INPUT, "--profile %s: is of %lld units (model \"%s\"); --model %s has %lld", s->profile, (long long)(*profile)->units,
            (*profile)->model, s->model, 2 * (long long)model.layers + 2);
    if (s->tokens == 0) s->tokens = model.context;
    if (s->tokens > model.context)
        return fail(BAD_INPUT, "--length %lld: the model's context is %lld", (long long)s->tokens, (long long)model.context);
    s->units = (*profile)->units;
    s->unit = 3;
    return price_devices(s, p, *profile);
}

static int price_read(settings *s, problem *p, het_profile **profile) {
    const char *dot = strrchr(s->simulate, '.');
    const int lists = (dot != NULL && strcmp(dot, ".csv") == 0) || strchr(s->simulate, '/') != NULL;
    int status = price_model(s, p, profile);
    if (status != 0) return status;
    if (!lists && s->micro_batches == 0) return fail(BAD_INPUT, "--micro-batches: how many? (--simulate %s needs it)", s->simulate);
    if ((status = read_plan(s, p, !lists)) != 0 || (status = lists ? read_lists(s, p) : make_lists(s, p)) != 0) return status;
    s->micro_batches = p->micro_batches;
    return price_lists(p, *profile);
}

static int price(settings *s, problem *p) {
    het_profile *profile = NULL;
    int status = price_read(s, p, &profile);
    if (status == 0) status = price_simulate(s, p, profile);
    het_profile_free(profile);
    return status;
}

/* ---- the best plan ---- */

enum { MOST_NAMES = 16 };

/* A step of M x B sequences of T tokens. A micro-batch has whole sequences, so what is shared out is granules, by the rule of het_granules, or
   sequences where those are longer. */
static int search_sizes(const settings *s, het_search_desc *desc) {
    int64_t *start = ROOM(int64_t, s->sequences + 1), granules = 0, i, each;
    if (start == NULL) return fail(FAILED, "out of memory");
    for (i = 0; i <= s->sequences; i++) start[i] = i * s->tokens;
    if (het_granules(start, s->sequences, 0, NULL, 0, &granules) != HET_OK) granules = s->sequences;
    free(start);
    each = granules < s->sequences ? s->sequences / granules : 1;
    desc->granules = s->micro_batches * (s->sequences / each);
    desc->granule_tokens = each * s->tokens;
    desc->granule_sequences = each;
    desc->granule_pairs = (double)each * (double)s->tokens * ((double)s->tokens + 1) / 2;
    return 0;
}

static int write_plan(const settings *s, const het_plan *plan) {
    FILE *file = fopen(s->out, "wb");
    het_writer writer = { file_write, NULL, NULL };
    het_result result;
    if (file == NULL) return fail(BAD_INPUT, "--out %s: %s", s->out, strerror(errno));
    writer.user = file;
    result = het_plan_write(plan, &writer);
    if (fclose(file) != 0 && result == HET_OK) result = HET_ERR_IO;
    return result == HET_OK ? 0 : fail(FAILED, "--out %s: cannot be written", s->out);
}

/* names: of --schedules, cut up here; NULL: the usual ones. */
static int search_plan(settings *s, problem *p, const het_profile *profile, char *names) {
    het_search_desc desc;
    het_search *search = NULL;
    het_error error = { HET_OK, "" };
    het_result result;
    const char *list[MOST_NAMES];
    const double start = seconds_now();
    int status;
    memset(&desc, 0, sizeof desc);
    if ((status = search_sizes(s, &desc)) != 0) return status;
    desc.schedules = names != NULL ? list : NULL;
    while (names != NULL) {
        if (desc.schedule_count == MOST_NAMES) return fail(BAD_INPUT, "--schedules %s: more than %d", s->schedules, MOST_NAMES);
        list[desc.schedule_count++] = names;
        if ((names = strchr(names, ',')) != NULL) *names++ = 0;
    }
    desc.profile = profile, desc.cluster = p->cluster;
    desc.together = s->alone ? HET_NO : HET_YES;
    desc.seconds = s->seconds, desc.clock = profile_now, desc.evaluations = 1000000000;
    desc.seed = (uint64_t)s->seed;
    result = het_plan_search(&desc, &search, &error);
    if (result != HET_OK) return fail(result == HET_ERR_OOM ? FAILED : BAD_INPUT, "%s%s: %s", s->cluster != NULL ? "--cluster " : "--devices",
        s->cluster
        != NULL ? s->cluster : "", error.text);
    if (s->out != NULL) status = write_plan(s, search->found[0].plan);
    if (status == 0 && (s->trace != NULL || s->svg != NULL)) {
        p->plan = search->found[0].plan;
        s->simulate = p->plan->schedule;
        status = write_pictures(s, p, search->simulation);
        p->plan = NULL;
    }
    if (status == 0 && s->json) found_json(search, p->cluster);
    else if (status == 0) found_table(search, profile, p->cluster, seconds_now() - start);
    het_search_free(search);
    return status;
}

static int plan_best(settings *s, problem *p) {
    het_profile *profile = NULL;
    char *names = NULL;
    int status;
    if (s->micro_batches == 0) return fail(BAD_INPUT, "--micro-batches: how many? (or --simulate NAME|FILE.csv)");
    if (s->schedules != NULL) {
        names = (char *)malloc(strlen(s->schedules) + 1);
        if (names == NULL) return fail(FAILED, "out of memory");
        memcpy(names, s->schedules, strlen(s->schedules) + 1);
    }
    status = price_model(s, p, &profile);
    if (status == 0) status = search_plan(s, p, profile, names);
    het_profile_free(profile);
    free(names);
    return status;
}

int main(int argc, char **argv) {
    settings s;
    problem p;
    unsigned char given[OPTIONS];
    int status;
    memset(&s, 0, sizeof s);
    memset(&p, 0, sizeof p);
    memset(given, 0, sizeof given);
    s.chunks = 2;
    s.slices = s.unit = s.sequences = 1;
    s.seconds = 5;
    status = options_parse(summary, options, OPTIONS, &s, given, argc, argv);
    if (status >= 0) return status;
    if (s.simulate == NULL && s.model == NULL && s.profile == NULL)
        return fail(BAD_INPUT, "--simulate: a schedule's name or FILE.csv is needed, or --model and --profile; --help lists the options");
    if ((s.model == NULL) != (s.profile == NULL))
        return s.model != NULL ? fail(BAD_INPUT, "--model %s: needs --profile FILE", s.model)
                               : fail(BAD_INPUT, "--profile %s: needs --model SPEC", s.profile);
    if (s.profile != NULL && s.cost != NULL) return fail(BAD_INPUT, "--cost %s: --profile %s says what units cost", s.cost, s.profile);
    if (s.profile == NULL && s.cost == NULL) return fail(BAD_INPUT, "--cost: F=..,B=..[,W=..] or FILE.csv is needed");
    status = s.simulate == NULL ? plan_best(&s, &p) : s.profile != NULL ? price(&s, &p) : simulate(&s, &p);
    het_schedule_free(p.schedule);
    if (p.plan != &p.lists) het_plan_free(p.plan);
    free(p.lists.stage);
    free(p.lists.first_stage);
    free(p.lists.share);
    free(p.lists.state_share);
    free(p.lists.slice_share);
    free(p.stage);
    free(p.block);
    free(p.tokens);
    free(p.rank);
    free(p.group_of);
    het_cluster_free(p.cluster);
    free(p.text);
    return status;
}
