// What a schedule would take, from plain numbers or a measured profile: simulates lists of actions, prints times, idle shares and peaks, draws it.
// cc -O2 -I. -Iutil programs/plan.c -lm -lpthread
// build/plan --simulate 1f1b --ranks 8 --micro-batches 24 --cost F=18522,B=18086,W=9337,link=601 --svg 1f1b.svg
#define PROGRAM "plan"
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#define HETRAIN_SEARCH_IMPLEMENTATION
#define HETRAIN_EXPERTS_IMPLEMENTATION
#include "common.h"
#include "hetrain_search.h"
#include "experts.h"
#include "layout.h"
#include "profile.h"
#include "feed.h"
#include "found.h"

typedef struct settings {
    const char *simulate, *plan, *cluster, *cost, *link, *micro_batch_scale, *slice_share, *trace, *svg, *title, *model, *profile, *hardware,
        *experts, *devices, *schedules, *out;
    int64_t sequences, tokens, granule, alone, seed, trials, front;
    int64_t ranks, micro_batches, chunks, slices, updates, staleness, units, heads, unit, complete, dark, json, dtype, ops;
    double memory_limit, seconds;
    double token_operations, pair_operations, peak; /* with --hardware: of a step's token and pair, of all devices a second */
} settings;

#define AT(field) offsetof(settings, field)
static const option options[] = {
    OPTION_TITLE("The plan and its schedule"),
    { "--simulate", "NAME|FILE.csv", OPTION_TEXT, AT(simulate), 0, 0,
        "gpipe, 1f1b, interleaved, zb-h1, zb-v, ...; timed: the shortest that is found for the costs; or lists of actions, a line a rank" },
    { "--ranks", "N", OPTION_INTEGER, AT(ranks), 1, 4096, "ranks; default: as many as --plan FILE or --cluster names" },
    { "--micro-batches", "M", OPTION_INTEGER, AT(micro_batches), 1, 1000000, "micro-batches of a step; default: those of --plan FILE" },
    { "--chunks", "K", OPTION_INTEGER, AT(chunks), 1, 64, "stages a rank, for interleaved" },
    { "--slices", "K", OPTION_INTEGER, AT(slices), 1, 1024, "pieces a micro-batch is cut into; where a plan is looked for, at most" },
    { "--updates", "N", OPTION_INTEGER, AT(updates), 1, 65536, "of the weights in a step, for --simulate" },
    { "--staleness", "D", OPTION_INTEGER, AT(staleness), 0, 65535, "with --updates: by how many of them gradients are late" },
    { "--plan", "SPEC|FILE", OPTION_TEXT, AT(plan), 0, 0,
      "dp, pp, dp2xpp4, ... or a plan as JSON; without --simulate: with its own schedule and, of JSON, micro-batches" },
    { "--units", "N", OPTION_INTEGER, AT(units), 0, 1000000, "units of the model, for --plan and --complete; 0: as many as FILE names, or enough" },
    { "--memory-limit", "X", OPTION_REAL, AT(memory_limit), 0, 1e9, "for greedy, timed: micro-batches of its layers a rank may keep; 0: no limit" },
    { "--micro-batch-scale", "A,B,...", OPTION_TEXT, AT(micro_batch_scale), 0, 0, "size of each micro-batch, pipeline by pipeline; 1 each" },
    { "--complete", NULL, OPTION_FLAG, AT(complete), 0, 0, "with reductions, optimizer steps and the exchange of new weights" },
    OPTION_TITLE("What things cost, as numbers"),
    { "--cost", "SPEC|FILE.csv", OPTION_TEXT, AT(cost), 0, 0,
      "F=..,B=..[,W=..][,link=..][,bandwidth=..][,bytes=..][,activation=..] of a rank's whole part of a micro-batch; with W, B is "
      "the backward for inputs alone, and one in a piece takes B + W; link is a latency. With --complete reduce=.., gather=.. bytes and step=.. time "
      "of the whole model. A file: rows stage,F,B,W[,activation]" },
    { "--cluster", "FILE.json", OPTION_TEXT, AT(cluster), 0, 0,
      "devices and links: a rank a device, costs are divided by its speed, links are those of the groups" },
    { "--link", "LATENCY[:BANDWIDTH]", OPTION_TEXT, AT(link), 0, 0, "of every link, in place of what --cost says" },
    { "--unit", "us|ms|s", OPTION_CHOICE, AT(unit), 0, 0, "of the given times, for trace, picture and --cluster" },
    OPTION_TITLE("What things cost, as measured"),
    { "--profile", "FILE,...", OPTION_TEXT, AT(profile), 0, 0, "what units cost on devices (train --save-profile); several are merged" },
    { "--hardware", "FILE.json", OPTION_TEXT, AT(hardware), 0, 0,
      "in place of --profile, with --model: what makers publish of devices and links; an op takes what its operations or its bytes take" },
    { "--dtype", "f32|bf16", OPTION_CHOICE, AT(dtype), 0, 0, "with --hardware: operands of the products" },
    { "--model", "SPEC", OPTION_TEXT, AT(model), 0, 0,
      "with --profile: which it must be of, FAMILY:preset, FAMILY:key=value,... or a config.json; lists are complete" },
    { "--experts", "E,K", OPTION_TEXT, AT(experts), 0, 0, "with --model: E experts in place of each MLP, as of train" },
    { "--devices", "LIST", OPTION_TEXT, AT(devices), 0, 0,
      "with --profile, in place of --cluster: NAME[@SPEED][/SIZE][#TOKENS],..., names of the profile" },
    { "--sequences", "B", OPTION_INTEGER, AT(sequences), 1, 1e6, "with --profile: sequences a micro-batch" },
    { "--length", "T", OPTION_INTEGER, AT(tokens), 1, 1e7, "with --profile: tokens a sequence; default: those of the plan, or the model's context" },
    { "--granule", "N", OPTION_INTEGER, AT(granule), 0, 1e6, "without --simulate: sequences a granule; 0: as the profile was measured, or by rule" },
    { "--alone", NULL, OPTION_FLAG, AT(alone), 0, 0, "with --profile: times measured with nothing beside them, not with all ranks at work" },
    OPTION_TITLE("The search for a plan, without --simulate"),
    { "--schedules", "A,B,...", OPTION_TEXT, AT(schedules), 0, 0,
      "without --simulate: the schedules to choose from; timed: and lists made for the times of what is found" },
    { "--seconds", "X", OPTION_REAL, AT(seconds), 0.01, 1e6, "without --simulate: how long to look for a plan" },
    { "--seed", "N", OPTION_INTEGER, AT(seed), 0, 9e15, "without --simulate: of the search" },
    { "--trials", "N", OPTION_INTEGER, AT(trials), 1, 64,
        "without --simulate: only so many plans are simulated, those that a closed form promises most" },
    { "--front", "N", OPTION_INTEGER, AT(front), 1, 32,
        "without --simulate: time against memory: the plans of N searches, with memory limits from those given down to the least that has a plan" },
    { "--out", "FILE.json", OPTION_TEXT, AT(out), 0, 0, "without --simulate: the best plan, for train --plan" },
    OPTION_TITLE("What is told"),
    { "--ops", NULL, OPTION_FLAG, AT(ops), 0, 0, "with --hardware, first: every op of a micro-batch on every device, bound by operations or bytes" },
    { "--json", NULL, OPTION_FLAG, AT(json), 0, 0, "one line of JSON in place of a table" },
    { "--trace", "FILE.json", OPTION_TEXT, AT(trace), 0, 0, "Chrome trace, for ui.perfetto.dev" },
    { "--svg", "FILE.svg", OPTION_TEXT, AT(svg), 0, 0, "a picture" },
    { "--title", "TEXT", OPTION_TEXT, AT(title), 0, 0, "of the picture" },
    { "--dark", NULL, OPTION_FLAG, AT(dark), 0, 0, "a picture on a dark ground" },
    OPTION_LAST_ROWS
};
enum { OPTIONS = sizeof options / sizeof *options };

static const char summary[] =
    "build/plan [options]\n\nSimulates a schedule with no training, or looks for the best plan. Times have the unit of the costs.\n\n"
    "  build/plan --simulate 1f1b --ranks 8 --micro-batches 24 --cost F=18522,B=18086,W=9337,link=601\n"
    "  build/plan --model llama:tiny --profile P.json --cluster C.json --micro-batches 16 --out plan.json";

/* Everything the simulation needs. `lists` is what a plan derived from a file lives in. */
typedef struct problem {
    het_plan *plan, lists;
    het_schedule *schedule;
    het_costs costs;
    het_stage_cost *stage, *member; /* member: with --cluster, of teams */
    het_block_cost *block;
    het_rank_cost *rank;
    het_cluster *cluster;
    int64_t *group_of;
    double *tokens;
    double *sequences;    /* with a profile: of each micro-batch */
    het_desc desc;        /* of --model */
    het_hardware *hardware;
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

/* What --updates says, in place of what the plan does. */
static void update_often(const settings *s, problem *p) {
    if (s->updates > 1) p->plan->updates = s->updates, p->plan->staleness = s->staleness;
}

static int read_lists(const settings *s, problem *p) {
    het_error error = { HET_OK, "" };
    het_result result;
    int status;
    p->text = read_small_file(s->simulate, &p->length);
    if (p->text == NULL) return fail(BAD_INPUT, "--simulate %s: %s", s->simulate, small_file_error());
    if (s->plan == NULL) {
        status = plan_from_lists(s, p);
        if (status != 0) return status;
    }
    update_often(s, p);
    if (s->ranks > 0 && s->ranks != p->plan->ranks)
        return fail(BAD_INPUT, "--ranks %lld: %s has lists for %lld", (long long)s->ranks, s->simulate, (long long)p->plan->ranks);
    result = het_schedule_read(p->plan, p->text, p->length, NULL, &p->schedule, &error);
    if (result != HET_OK) return fail(status_of(result), "--simulate %s: %s", s->simulate, error.text);
    for (int64_t q = 0; q < p->plan->pipelines; q++) p->micro_batches += p->schedule->micro_batches[q];
    if (s->micro_batches > 0 && s->micro_batches != p->micro_batches)
        return fail(BAD_INPUT, "--micro-batches %lld: %s has lists for %lld", (long long)s->micro_batches, s->simulate, (long long)p->micro_batches);
    result = het_schedule_check(p->plan, NULL, p->schedule, NULL, &error);
    return result == HET_OK ? 0 : fail(status_of(result), "--simulate %s: %s", s->simulate, error.text);
}

/* ---- a plan and a schedule by name ---- */

/* A plan's file says no numbers of ranks and units: as many as it names. key: whose value is at the cursor. */
static void count_named(het_json *j, const char *key, het_plan_desc *to) {
    char name[32];
    int64_t value = 0, count = 0;
    switch (het_json_peek(j)) {
    case HET_JSON_OBJECT:
        het_json_enter(j, HET_JSON_OBJECT);
        while (het_json_next(j, name, sizeof name, NULL)) count_named(j, name, to);
        break;
    case HET_JSON_ARRAY:
        het_json_enter(j, HET_JSON_ARRAY);
        for (; het_json_next(j, NULL, 0, NULL); count++) count_named(j, key, to);
        if ((strcmp(key, "state_shares") == 0 || strcmp(key, "near") == 0) && count > to->ranks) to->ranks = count;
        break;
    case HET_JSON_NUMBER:
        if (strcmp(key, "units") != 0 && strcmp(key, "rank") != 0 && strcmp(key, "ranks") != 0 && strcmp(key, "keepers") != 0) het_json_skip(j);
        else if (het_json_integer(j, &value) && key[0] == 'u' && value > to->units) to->units = value;
        else if (key[0] != 'u' && value >= to->ranks && value < 1000000) to->ranks = value + 1;
        break;
    default: het_json_skip(j);
    }
}

/* Gets the step's micro-batches from the plan's file where no option says how many. */
static int read_plan(settings *s, problem *p, int named) {
    het_plan_desc desc, from;
    het_error error = { HET_OK, "" };
    het_result result;
    const char *spec = s->plan != NULL ? s->plan : "pp", *text;
    char *read;
    size_t length;
    int status, file;
    memset(&desc, 0, sizeof desc);
    desc.ranks = s->ranks;
    desc.heads = s->heads;
    desc.chunks = s->chunks;
    desc.slices = s->slices;
    desc.units = s->units > 0 ? s->units : s->ranks * 2 * (s->chunks > 0 ? s->chunks : 2);
    desc.schedule = named ? s->simulate : NULL;
    if ((text = plan_text("--plan", spec, &read, &length, &status)) == NULL) return status;
    file = text[strspn(text, " \t\r\n")] == '{';
    if (file) {
        het_json j = het_json_start(text, length);
        memset(&from, 0, sizeof from);
        from.ranks = from.units = 1; /* whatever is wrong in it, het_plan_read says */
        count_named(&j, "", &from);
        if (s->ranks == 0) desc.ranks = from.ranks;
        if (s->units == 0) desc.units = from.units;
    }
    if (desc.ranks == 0 || desc.ranks > 4096) {
        free(read);
        return desc.ranks == 0 ? fail(BAD_INPUT, "--ranks: how many? (%s needs it)", spec)
                               : fail(BAD_INPUT, "--plan %s: %lld ranks, more than 4096", spec, (long long)desc.ranks);
    }
    result = het_plan_read(&desc, text, length, &p->plan, &error);
    free(read);
    if (result != HET_OK && (s->plan == NULL || schedule_is_unknown(&error, s->simulate)))
        return fail(status_of(result), "--simulate %s: %s%s", s->simulate, error.text,
                    schedule_is_unknown(&error, s->simulate) ? lacks_csv(s->simulate) : "");
    if (result != HET_OK && !file && s->units == 0 && strstr(error.text, "unit") != NULL)
        return fail(status_of(result), "--plan %s: %s; the model has %lld units, or as many as --units says", spec, error.text,
                    (long long)desc.units);
    if (result != HET_OK && s->heads == 0 && strstr(error.text, "key/value heads") != NULL)
        return fail(status_of(result), "--plan %s: %s; --model, which goes with --profile, says how many there are", spec, error.text);
    if (result != HET_OK) return plan_refused("--plan", spec, result, &error);
    if (s->slices > 1 && p->plan->slices != s->slices)
        return fail(BAD_INPUT, "--slices %lld: %s has %lld", (long long)s->slices, s->plan, (long long)p->plan->slices);
    if (s->simulate == NULL && s->memory_limit > 0 && strcmp(p->plan->schedule, "greedy") != 0 && strcmp(p->plan->schedule, "timed") != 0)
        return fail(BAD_INPUT, "--memory-limit: has no effect on schedule %s of --plan %s, but on greedy and timed", p->plan->schedule, spec);
    if (s->memory_limit > 0) p->plan->memory_limit = s->memory_limit;
    if (s->micro_batches == 0 && s->profile == NULL && p->plan->step.granules > 0)
        s->micro_batches = (p->plan->step.granules + p->plan->step.micro_batch - 1) / p->plan->step.micro_batch;
    update_often(s, p);
    if (named && strlen(s->simulate) < sizeof p->plan->schedule) strcpy(p->plan->schedule, s->simulate);
    return 0;
}

/* Forward and backward passes of a step that are simulated at most: some seconds and 1.2 GB; "timed" tries many lists of them. */
#define MOST_PASSES 2e7
#define MOST_TIMED 2e5

static int make_lists(const settings *s, problem *p) {
    het_error error = { HET_OK, "" };
    het_result result;
    int64_t *counts = ROOM(int64_t, p->plan->pipelines);
    const double most = strcmp(p->plan->schedule, "timed") == 0 ? MOST_TIMED : MOST_PASSES;
    double passes = 0;
    if (counts == NULL) return fail(FAILED, "out of memory");
    p->micro_batches = s->micro_batches;
    het_plan_micro_batches(p->plan, s->micro_batches, counts);
    for (int64_t g = 0; g < p->plan->stages; g++)
        passes += 2 * (double)counts[p->plan->stage[g].pipeline] * (double)p->plan->slices;
    if (passes > most) {
        free(counts);
        return fail(BAD_INPUT, "--micro-batches %lld: on %lld stages %.0f forward and backward passes; at most %.0f are simulated",
                    (long long)s->micro_batches, (long long)p->plan->stages, passes, most);
    }
    result = het_schedule_make(p->plan, counts, NULL, &p->schedule, &error);
    free(counts);
    if (result != HET_OK && s->simulate == NULL) return plan_refused("--plan", s->plan, result, &error);
    return result == HET_OK ? 0 : fail(status_of(result), "--simulate %s: %s", p->plan->schedule, error.text);
}

/* The lists of "timed" for these costs, in place of those for times of 1. */
static int time_lists(problem *p, const het_costs *costs) {
    het_error error = { HET_OK, "" };
    het_schedule *timed = NULL;
    het_result result;
    if (strcmp(p->plan->schedule, "timed") != 0) return 0;
    result = het_schedule_timed(p->plan, p->schedule->micro_batches, costs, NULL, &timed, &error);
    if (result != HET_OK) return fail(status_of(result), "--simulate timed: %s", error.text);
    het_schedule_free(p->schedule);
    p->schedule = timed;
    return 0;
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
    while (*at != 0) {
        size_t length = strcspn(at, "=,");
        const char *item = at;
        int key = 0;
        while (key < KEYS && (strlen(keys[key]) != length || memcmp(keys[key], at, length) != 0)) key++;
        if (key < KEYS && given[key]) return fail(BAD_INPUT, "--cost %s: %s= comes twice", s->cost, keys[key]);
        if (key == KEYS || at[length] != '=')
            return fail(BAD_INPUT, "--cost %s: %.*s: not F=, B=, W=, link=, bandwidth=, bytes=, activation=, reduce=, gather=, step=%s", s->cost,
                        (int)strcspn(at, ","), at, lacks_csv(s->cost));
        at += length + 1;
        if (!cut_number(&at, ",", &value[key]))
            return fail(BAD_INPUT, "--cost %s: %.*s: not a number from 0 to 1e18", s->cost, (int)strcspn(item, ","), item);
        given[key] = 1;
        if (*at == ',' && at[1] == 0) return fail(BAD_INPUT, "--cost %s: ends with a comma", s->cost);
        at += *at == ',';
    }
    for (int key = 7; key < KEYS && !s->complete && !p->schedule->complete; key++)
        if (given[key]) return fail(BAD_INPUT, "--cost %s: %s= has no effect without --complete", s->cost, keys[key]);
    if (given[5] && !given[4] && s->cluster == NULL && (s->link == NULL || strchr(s->link, ':') == NULL))
        return fail(BAD_INPUT, "--cost %s: bytes= has no effect without bandwidth=, --link LATENCY:BANDWIDTH or --cluster", s->cost);
    if (given[4] && !given[5] && !given[7] && !given[8])
        return fail(BAD_INPUT, "--cost %s: bandwidth= has no effect without bytes=, reduce= or gather=", s->cost);
    if (!given[0] || !given[1]) return fail(BAD_INPUT, "--cost %s: %s= is missing", s->cost, given[0] ? "B" : "F");
    for (int64_t g = 0; g < p->plan->stages; g++) {
        const het_stage *stage = &p->plan->stage[g];
        double parts = 0;
        for (int64_t h = p->plan->first_stage[stage->pipeline]; h < p->plan->first_stage[stage->pipeline + 1]; h++)
            parts += p->plan->stage[h].rank == stage->rank;
        stage_cost(&p->stage[g], value[0], value[1], value[2], given[2], value[6], value[5], parts);
    }
    p->costs.every_link.latency = value[3];
    p->costs.every_link.bandwidth = value[4];
    for (int64_t g = 0; g < p->plan->units; g++) {
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
    if (text == NULL) { free(given); return fail(BAD_INPUT, "--cost %s: %s", s->cost, small_file_error()); }
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
    if (text == NULL) return fail(BAD_INPUT, "--cluster %s: %s", s->cluster, small_file_error());
    result = het_cluster_read(text, length, NULL, &p->cluster, &error);
    free(text);
    if (result != HET_OK) return fail(status_of(result), "--cluster %s: %s", s->cluster, error.text);
    if (s->ranks > 0 && s->ranks != p->cluster->ranks)
        return fail(BAD_INPUT, "--ranks %lld: %s has %lld devices", (long long)s->ranks, s->cluster, (long long)p->cluster->ranks);
    s->ranks = p->cluster->ranks;
    return 0;
}

/* What a device of that speed takes for a stage. */
static void slow_down(const het_stage_cost *stage, double speed, het_stage_cost *to) {
    *to = *stage;
    to->forward.token /= speed;
    to->backward.token /= speed;
    to->input.token /= speed;
    to->weight.token /= speed;
}

/* Rank r is device r; the cluster's seconds become the unit of the costs. */
static int cluster_costs(const settings *s, problem *p) {
    const double unit = unit_of(s);
    het_stage_cost *members;
    int64_t count, all = 0;
    for (int64_t i = 0; i < p->plan->stages; i++, all += count) (void)het_plan_team(p->plan, p->plan->stage[i].rank, &count);
    p->rank = ROOM(het_rank_cost, p->cluster->ranks);
    p->group_of = ROOM(int64_t, p->cluster->ranks);
    p->member = members = ROOM(het_stage_cost, all);
    if (p->rank == NULL || p->group_of == NULL || p->member == NULL) return fail(FAILED, "out of memory");
    for (int64_t i = 0; i < p->cluster->ranks; i++) {
        p->group_of[i] = p->cluster->device[i].group;
        p->rank[i].step = 1 / p->cluster->device[i].speed;
    }
    for (int64_t i = 0; i < p->cluster->groups; i++) {
        het_group *g = &p->cluster->group[i];
        g->latency /= unit;
        g->bandwidth *= unit;
        g->bus *= unit;
        g->uplink *= unit;
    }
    for (int64_t i = 0; p->cluster->link != NULL && i < p->cluster->ranks * p->cluster->ranks; i++)
        p->cluster->link[i].latency /= unit, p->cluster->link[i].bandwidth *= unit;
    for (int64_t i = 0; i < p->plan->stages; i++) {
        const het_team_member *team = het_plan_team(p->plan, p->plan->stage[i].rank, &count);
        for (int64_t k = 0; k < count && count > 1; k++, members++) slow_down(&p->stage[i], p->cluster->device[team[k].rank].speed, members);
        slow_down(&p->stage[i], p->cluster->device[p->plan->stage[i].rank].speed, &p->stage[i]);
    }
    p->costs.member = p->member;
    p->costs.rank = p->rank;
    p->costs.group = p->cluster->group;
    p->costs.groups = p->cluster->groups;
    p->costs.rank_group = p->group_of;
    p->costs.link = p->cluster->link;
    return 0;
}

static int read_costs(const settings *s, problem *p) {
    const char *at = s->micro_batch_scale;
    int64_t n = 0;
    int status;
    p->stage = ROOM(het_stage_cost, p->plan->stages);
    p->tokens = ROOM(double, p->micro_batches);
    p->block = ROOM(het_block_cost, p->plan->units);
    if (p->stage == NULL || p->tokens == NULL || p->block == NULL) return fail(FAILED, "out of memory");
    p->costs.block = p->block;
    p->costs.blocks = p->plan->units;
    p->costs.stage = p->stage;
    status = ends_with(s->cost, ".csv") ? cost_from_file(s, p) : cost_from_spec(s, p);
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

static void print_field(const char *before, const char *name, double value) {
    printf("%s\"%s\":", before, name);
    print_number(value);
}

static void print_array(const char *name, const het_simulation *r, size_t offset) {
    printf(",\"%s\":[", name);
    for (int64_t i = 0; i < r->ranks; i++) {
        double value;
        memcpy(&value, (const char *)&r->rank[i] + offset, sizeof value);
        if (i > 0) printf(",");
        print_number(value);
    }
    printf("]");
}

static void print_json(const problem *p, const het_simulation *r) {
    double late;
    const int64_t most = het_schedule_late(p->plan, p->schedule, &late);
    print_field("{", "makespan", r->makespan);
    print_field(",", "span", r->span);
    print_field(",", "bubble", r->bubble);
    print_field(",", "span_bubble", r->span_bubble);
    print_array("idle", r, offsetof(het_rank_time, idle));
    print_array("peak", r, offsetof(het_rank_time, peak));
    print_array("fill", r, offsetof(het_rank_time, fill));
    print_array("wait", r, offsetof(het_rank_time, wait));
    print_array("tail", r, offsetof(het_rank_time, tail));
    printf(",\"peak_action\":[");
    for (int64_t i = 0; i < r->ranks; i++) printf("%s%lld", i > 0 ? "," : "", (long long)r->rank[i].peak_action);
    printf("],\"actions\":%lld,\"late_most\":%lld", (long long)r->actions, (long long)most);
    print_field(",", "late", late);
    printf("}\n");
}

static void print_table(const settings *s, const problem *p, const het_simulation *r) {
    double late;
    printf("%s: %lld ranks, %lld micro-batches, %lld actions\n", s->simulate, (long long)r->ranks, (long long)p->micro_batches,
        (long long)r->actions);
    printf("makespan %.10g, bubble %.2f %%; longest span of a rank %.10g, bubble by spans %.2f %%\n", r->makespan, 100 * r->bubble, r->span,
        100 * r->span_bubble);
    if (p->plan->updates > 1) {
        const int64_t most = het_schedule_late(p->plan, p->schedule, &late);
        printf("%lld updates, gradients %lld late at most, %.4g on average\n", (long long)p->plan->updates, (long long)most, late);
    }
    printf("\n%4s %14s %14s %7s %14s %14s %14s %10s\n", "rank", "busy", "idle", "idle %", "fill", "wait", "tail", "peak");
    for (int64_t i = 0; i < r->ranks; i++) {
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
    int status = 0;
    if (record == NULL) return fail(FAILED, "out of memory");
    for (int64_t i = 0; i < timeline.records; i++) {
        record[i] = timeline.record[i];
        record[i].start *= unit;
        record[i].end *= unit;
    }
    timeline.record = record;
    for (int which = 0; which < 2 && status == 0; which++) {
        write_target t;
        het_writer writer;
        het_svg_desc desc;
        if (path[which] == NULL) continue;
        if ((status = target_open(&t, which == 0 ? "--trace" : "--svg", path[which])) != 0) break;
        writer = target_writer(&t);
        memset(&desc, 0, sizeof desc);
        desc.title = s->title != NULL ? s->title : slash != NULL ? slash + 1 : s->simulate;
        desc.dark = s->dark ? HET_YES : HET_NO;
        status = target_end(&t, which == 0 ? het_timeline_trace(&timeline, p->plan, &writer) : het_timeline_svg(&timeline, p->plan, &desc, &writer),
                            NULL);
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
    for (int64_t i = 0; i < p->plan->stages; i++) sum += p->stage[i].keep_weight;
    for (int64_t i = 0; i < r->ranks && sum > 0; i++) {
        r->rank[i].peak = r->rank[i].peak_bytes;
        r->rank[i].peak_action = r->rank[i].peak_bytes_action;
    }
}

/* --simulate is a file of lists, not a name. */
static int are_lists(const settings *s) {
    const char *dot = s->simulate != NULL ? strrchr(s->simulate, '.') : NULL;
    return s->simulate != NULL && ((dot != NULL && strcmp(dot, ".csv") == 0) || strchr(s->simulate, '/') != NULL);
}

static int simulate(settings *s, problem *p) {
    het_error error = { HET_OK, "" };
    het_simulation *simulation = NULL;
    const int lists = are_lists(s);
    int status = 0;
    het_result result;
    status = read_cluster(s, p);
    if (status != 0) return status;
    if (!lists || s->plan != NULL) status = read_plan(s, p, !lists && s->simulate != NULL);
    if (status == 0 && s->simulate == NULL) s->simulate = p->plan->schedule;
    if (status == 0 && !lists && s->micro_batches == 0)
        return fail(BAD_INPUT, "--micro-batches: how many? (--simulate %s needs it)", s->simulate);
    if (status == 0) status = lists ? read_lists(s, p) : make_lists(s, p);
    if (status == 0) status = read_costs(s, p);
    if (status == 0 && !lists) status = time_lists(p, &p->costs);
    if (status == 0 && s->complete && !p->schedule->complete) status = complete_lists(p);
    if (status != 0) return status;
    result = het_simulate(p->plan, p->schedule, &p->costs, s->trace != NULL || s->svg != NULL ? HET_YES : HET_NO, NULL, &simulation, &error);
    if (result != HET_OK) return fail(status_of(result), "--simulate %s: %s", s->simulate, error.text);
    show_activations(p, simulation);
    if (s->trace != NULL || s->svg != NULL) status = write_pictures(s, p, simulation);
    if (status == 0 && s->json) print_json(p, simulation);
    else if (status == 0) print_table(s, p, simulation);
    het_simulation_free(simulation);
    return status;
}

/* ---- a model on measured costs ---- */

static const char *source(const settings *s) { return s->hardware != NULL ? "--hardware" : "--profile"; }

/* NAME[@SPEED][/SIZE][#TOKENS]: SPEED times as fast as the profile of that name, SIZE bytes, micro-batches of at most TOKENS. */
static int read_device(const settings *s, const char *item, size_t length, het_cluster_device *device) {
    const size_t name = strcspn(item, "@/#,"), tokens = strcspn(item, "#,");
    char digits[32];
    double size;
    int64_t speed = 0, most;
    memset(device, 0, sizeof *device);
    device->speed = 1;
    if (name == 0 || name >= sizeof device->profile)
        return fail(BAD_INPUT, "--devices %s: %.*s: a name has 1 to 47 characters", s->devices, (int)length, item);
    memcpy(device->profile, item, name);
    snprintf(digits, sizeof digits, "%.*s", (int)(tokens < length ? length - tokens - 1 : 0), item + tokens + 1);
    if (tokens < length && !parse_integer(digits, 1, INT32_MAX, &most))
        return fail(BAD_INPUT, "--devices %s: #%s: the most tokens of a micro-batch, from 1 on", s->devices, digits);
    if (tokens < length) device->max_tokens = (double)most, length = tokens;
    if (name < length && item[name] == '@') speed = (int64_t)strcspn(item + name + 1, "/#,");
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

/* The option that says which devices there are. */
static const char *devices_text(const settings *s, char to[300]) {
    if (s->cluster == NULL && s->devices == NULL) snprintf(to, 300, "--ranks %lld", (long long)s->ranks);
    else snprintf(to, 300, "%s %s", s->cluster != NULL ? "--cluster" : "--devices", s->cluster != NULL ? s->cluster : s->devices);
    return to;
}

/* The devices of --cluster, of --devices, or --ranks times the profile's first; without a cluster over the profile's first link. */
static int price_devices(settings *s, problem *p, const het_profile *profile) {
    het_error error = { HET_OK, "" };
    het_cluster_device *device;
    const char *item = s->devices;
    int64_t ranks = s->ranks;
    int status = read_cluster(s, p);
    if (status != 0) return status;
    if (p->cluster != NULL && s->devices == NULL) return 0;
    if (p->cluster != NULL) return fail(BAD_INPUT, "--devices %s: --cluster %s says which there are", s->devices, s->cluster);
    for (int64_t i = 0; item != NULL && item[i] != 0; i++) ranks = i == 0 ? 1 : ranks + (item[i] == ',');
    if (ranks < 1) return fail(BAD_INPUT, "--devices: which? (or --cluster, or --ranks N)");
    if (s->ranks > 0 && s->ranks != ranks)
        return fail(BAD_INPUT, "--ranks %lld: --devices %s are %lld", (long long)s->ranks, s->devices, (long long)ranks);
    s->ranks = ranks;
    device = ROOM(het_cluster_device, ranks);
    if (device == NULL) return fail(FAILED, "out of memory");
    for (int64_t i = 0; i < ranks && status == 0; i++) {
        const size_t length = item != NULL ? strcspn(item, ",") : 0;
        if (item != NULL) status = read_device(s, item, length, &device[i]);
        else snprintf(device[i].profile, sizeof device[i].profile, "%s", profile->devices > 0 ? profile->device[0].name : ""), device[i].speed = 1;
        snprintf(device[i].name, sizeof device[i].name, "%.40s", device[i].profile);
        if (item != NULL) item += length + 1;
    }
    if (status == 0) {
        const double latency = profile->links > 0 ? profile->link[0].latency : 0, bandwidth = profile->links > 0 ? profile->link[0].bandwidth : 0;
        const het_result result = het_cluster_flat(ranks, device, latency, bandwidth, NULL, &p->cluster, &error);
        char text[300];
        if (result != HET_OK) status = fail(status_of(result), "%s: %s", devices_text(s, text), error.text);
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
    char text[16];
    printf(" %9s", bytes_text(bytes, text));
}

static double step_tokens(const settings *s, const problem *p) {
    double sum = 0;
    for (int64_t i = 0; i < p->micro_batches; i++) sum += p->sequences[i];
    return sum * (double)s->tokens;
}

/* The share of the devices' published operations that the mathematics take (model FLOPs utilisation, arXiv 2204.02311); 0 without --hardware. */
static double utilisation(const settings *s, double tokens, double seconds) {
    return s->peak > 0 ? tokens * (s->token_operations + s->pair_operations * ((double)s->tokens + 1) / 2) / seconds / s->peak : 0;
}

/* What a person wants to see: who does what, how long, what is idle, what it takes. */
static void price_table(const settings *s, const problem *p, const het_profile *profile, const het_simulation *r, const het_memory *memory) {
    const double first = p->sequences[0], last = p->sequences[p->micro_batches - 1];
    printf("%s, %s, %lld x %.0f x %lld tokens a step", profile->model, p->plan->schedule, (long long)p->micro_batches, first, (long long)s->tokens);
    if (last < first) printf(" (the last of %.0f x %lld)", last, (long long)s->tokens);
    printf(": %.3f ms, %.0f tokens/s, idle %.1f %%", 1e3 * r->makespan, step_tokens(s, p) / r->makespan, 100 * r->bubble);
    if (s->peak > 0) printf(", MFU %.1f %%", 100 * utilisation(s, step_tokens(s, p), r->makespan));
    printf("\n\n");
    printf("%4s %-12s %6s %10s %10s %7s %10s %10s %10s %9s %9s  %s\n", "rank", "device", "speed", "busy ms", "idle ms", "idle %", "fill ms",
        "wait ms", "tail ms", "memory", "limit", "units (pipeline)");
    for (int64_t i = 0; i < r->ranks; i++) {
        const het_rank_time *t = &r->rank[i];
        const het_cluster_device *device = &p->cluster->device[i];
        char text[16];
        int stages = 0;
        printf("%4lld %-12s %6.3g %10.3f %10.3f %7.2f %10.3f %10.3f %10.3f", (long long)i, device->profile, device->speed, 1e3 * t->busy,
            1e3 * t->idle, 100 * t->idle / r->makespan, 1e3 * t->fill, 1e3 * t->wait, 1e3 * t->tail);
        print_bytes((double)memory[i].device + (double)memory[i].communication);
        if (device->memory > 0) print_bytes(device->memory);
        else printf(" %9s", "-");
        for (int64_t g = 0; g < p->plan->stages; g++) {
            const het_stage *stage = &p->plan->stage[g];
            if (stage->rank != i) continue;
            printf("%s%lld-%lld (%lld)", stages++ > 0 ? ", " : "  ", (long long)stage->unit_begin, (long long)stage->unit_end - 1,
                (long long)stage->pipeline);
        }
        printf("\n");
        if (device->memory > 0 && (double)memory[i].device + (double)memory[i].communication > device->memory)
            printf("     does not fit: %s too many\n", bytes_text((double)memory[i].device + (double)memory[i].communication - device->memory, text));
    }
    printf("\nsaving (train --out) takes");
    print_bytes((double)memory[0].saving);
    printf(" more of the host of rank 0\n");
}

static void price_json(const settings *s, const problem *p, const het_simulation *r, const het_memory *memory) {
    print_field("{", "makespan", r->makespan);
    print_field(",", "tokens_per_s", step_tokens(s, p) / r->makespan);
    if (s->peak > 0) print_field(",", "mfu", utilisation(s, step_tokens(s, p), r->makespan));
    print_field(",", "span", r->span);
    print_field(",", "bubble", r->bubble);
    print_field(",", "span_bubble", r->span_bubble);
    print_array("busy", r, offsetof(het_rank_time, busy));
    print_array("idle", r, offsetof(het_rank_time, idle));
    print_array("fill", r, offsetof(het_rank_time, fill));
    print_array("wait", r, offsetof(het_rank_time, wait));
    print_array("tail", r, offsetof(het_rank_time, tail));
    print_array("peak", r, offsetof(het_rank_time, peak));
    printf(",\"memory\":[");
    for (int64_t i = 0; i < r->ranks; i++) printf("%s%llu", i > 0 ? "," : "", (unsigned long long)(memory[i].device + memory[i].communication));
    printf("],\"saving\":%llu,\"actions\":%lld}\n", (unsigned long long)memory[0].saving, (long long)r->actions);
}

/* Simulates the plan on what the profile says, and prints it. */
static int price_simulate(settings *s, problem *p, const het_profile *profile) {
    het_error error = { HET_OK, "" };
    het_plan_costs *costs = NULL;
    het_simulation *simulation = NULL;
    het_shape shape;
    het_needs *needs = ROOM(het_needs, p->plan->ranks);
    het_memory *memory = ROOM(het_memory, p->plan->ranks);
    double *value = ROOM(double, 2 * p->micro_batches);
    het_result result;
    int status = 0;
    if (needs == NULL || memory == NULL || value == NULL) status = fail(FAILED, "out of memory");
    for (int64_t i = 0; i < p->micro_batches && status == 0; i++) {
        value[i] = p->sequences[i] * (double)s->tokens;
        value[p->micro_batches + i] = value[i] * ((double)s->tokens + 1) / 2;
    }
    memset(&shape, 0, sizeof shape);
    shape.sequences = (int64_t)p->sequences[0], shape.tokens = shape.sequences * s->tokens;
    result = status != 0 ? HET_ERR_OOM : het_profile_costs(profile, p->plan, p->cluster, s->alone ? HET_NO : HET_YES, NULL, &costs, &error);
    if (result == HET_OK) {
        costs->costs.tokens = value, costs->costs.pairs = value + p->micro_batches, costs->costs.sequences = p->sequences;
        if (!are_lists(s)) status = time_lists(p, &costs->costs);
        if (status == 0) status = price_lists(p, profile);
        if (status != 0) result = HET_ERR_INVALID;
    }
    if (result == HET_OK) result = het_schedule_needs(p->plan, p->schedule, 0, p->plan->ranks, 0, NULL, needs, &error);
    if (result == HET_OK) result = het_profile_memory(profile, p->plan, needs, &shape, memory, &error);
    if (result == HET_OK)
        result = het_simulate_costs(p->plan, p->schedule, costs, s->trace != NULL || s->svg != NULL ? HET_YES : HET_NO, NULL, &simulation, &error);
    if (status == 0 && result != HET_OK) status = fail(status_of(result), "%s %s: %s", source(s), s->profile, error.text);
    if (status == 0 && (s->trace != NULL || s->svg != NULL)) status = write_pictures(s, p, simulation);
    if (status == 0 && s->json) price_json(s, p, simulation, memory);
    else if (status == 0) price_table(s, p, profile, simulation, memory);
    het_simulation_free(simulation);
    het_plan_costs_free(costs);
    free(needs);
    free(memory);
    free(value);
    return status;
}

/* The ops of a micro-batch; units that are alike once. */
static int print_ops(const settings *s, const problem *p, const het_profile *profile) {
    static const char calls[] = { 'F', HET_ACTION_F, 'I', HET_ACTION_I, 'W', HET_ACTION_W };
    const double tokens = (double)p->desc.limits.max_tokens, pairs = tokens * ((double)s->tokens + 1) / 2;
    const het_hardware *hardware = p->hardware;
    het_error error = { HET_OK, "" };
    het_description *d = NULL;
    int64_t before;
    int written = 0;
    const het_result result = het_describe(&p->desc, &d, &error);
    if (result != HET_OK) return fail(status_of(result), "--model %s: %s", s->model, error.text);
    if (s->json) printf("{\"ops\":[");
    else printf("%-12s %-12s %-4s %-12s %12s %12s %10s  bound by\n", "device", "unit", "call", "op", "operations", "bytes", "us");
    for (int64_t i = 0; i < hardware->devices; i++)
        for (int64_t u = 0; u < d->units; u++) {
            for (before = 0; before < u && profile->unit[before] != profile->unit[u]; before++) {}
            for (int64_t n = 0; n < (before == u ? d->unit[u].program.nodes : 0); n++)
                for (int c = 0; c < 6; c += 2) {
                    const het_op_price op = het_hardware_price(&hardware->device[i], d, u, n, (het_action_kind)calls[c + 1], tokens, pairs);
                    const char *unit = profile->kind[profile->unit[u]].name, *bound = op.memory_bound ? "bytes" : "operations";
                    if (op.name == NULL) continue;
                    if (s->json) {
                        printf("%s{\"device\":", written++ > 0 ? "," : "");
                        write_json_string(stdout, hardware->device[i].name);
                        printf(",\"unit\":\"%s\",\"call\":\"%c\",\"op\":\"%s\",\"operations\":%.0f,\"bytes\":%.0f,\"us\":%.6g,\"bound\":\"%s\"}",
                               unit, calls[c], op.name, op.flops, op.bytes, 1e6 * op.seconds, bound);
                    } else printf("%-12s %-12s %-4c %-12s %12.4g %12.4g %10.2f  %s\n", hardware->device[i].name, unit, calls[c], op.name, op.flops,
                                op.bytes, 1e6 * op.seconds, bound);
                }
        }
    printf(s->json ? "]}\n" : "\n");
    het_description_free(d);
    return 0;
}

/* Operations that a step's mathematics take, for a token and for a pair of query and key: products forward and twice as many backward; what is
   recomputed is not counted. */
static int count_operations(settings *s, const het_desc *desc) {
    het_error error = { HET_OK, "" };
    het_description *d = NULL;
    const het_result result = het_describe(desc, &d, &error);
    if (result != HET_OK) return fail(status_of(result), "--model %s: %s", s->model, error.text);
    for (int64_t u = 0; u < d->units; u++) {
        const het_described_unit *unit = &d->unit[u];
        s->token_operations += unit->info.flops_forward + unit->info.flops_input + unit->info.flops_weight;
        for (int64_t n = 0; n < unit->program.nodes; n++)
            if (unit->program.node[n].kind == HET_NODE_ATTENTION)
                s->pair_operations += 12 * (double)unit->program.value[unit->program.node[n].x[0]].width;
    }
    het_description_free(d);
    return 0;
}

static int read_hardware(const settings *s, problem *p) {
    static het_hardware hardware;
    het_error error = { HET_OK, "" };
    size_t length;
    char *text = read_small_file(s->hardware, &length);
    het_result result;
    if (text == NULL) return fail(BAD_INPUT, "--hardware %s: %s", s->hardware, small_file_error());
    result = het_hardware_read(text, length, &hardware, &error);
    free(text);
    if (result != HET_OK) return fail(status_of(result), "--hardware %s: %s", s->hardware, error.text);
    p->hardware = &hardware;
    p->desc.dtype = s->dtype == 2 ? HET_BF16 : HET_F32;
    return 0;
}

/* The profile of published figures in micro-batches of so many sequences of `length`, in place of *profile. */
static int hardware_profile(const settings *s, problem *p, int64_t sequences, int64_t length, het_profile **profile) {
    het_error error = { HET_OK, "" };
    het_result result;
    if (length > p->desc.model.context)
        return fail(BAD_INPUT, "--length %lld: the model's context is %lld", (long long)length, (long long)p->desc.model.context);
    p->desc.limits.max_tokens = sequences * length, p->desc.limits.max_sequences = sequences;
    het_profile_free(*profile);
    result = het_hardware_profile(p->hardware, &p->desc, length, s->model, NULL, profile, &error);
    return result == HET_OK ? 0 : fail(status_of(result), "--hardware %s: %s", s->hardware, error.text);
}

static int price_model(settings *s, problem *p, het_profile **profile) {
    static experts_model experts;
    het_desc *desc = &p->desc;
    int status;
    if (s->model != NULL && (status = model_from_spec("--model", s->model, &desc->model)) != 0) return status;
    if (s->experts != NULL && (status = experts_read(s->experts, &experts.settings)) != 0) return status;
    if ((status = experts_start(&experts, s->experts, desc)) != 0) return status;
    desc->limits.max_tokens = desc->model.context, desc->limits.max_sequences = 1;
    if (s->hardware == NULL) status = profile_read_list("--profile", s->profile, profile);
    else if ((status = read_hardware(s, p)) == 0)
        status = hardware_profile(s, p, s->sequences, s->tokens > 0 ? s->tokens : desc->model.context, profile);
    if (status == 0 && s->hardware != NULL) status = count_operations(s, desc);
    if (status != 0) return status;
    if (s->model != NULL && (status = profile_check(source(s), s->profile, *profile, desc, s->model)) != 0) return status;
    s->units = (*profile)->units;
    s->heads = desc->model.kv_heads;
    s->unit = 3;
    if ((status = price_devices(s, p, *profile)) != 0) return status;
    for (int64_t r = 0; r < p->cluster->ranks; r++)
        for (int64_t i = 0; p->hardware != NULL && i < p->hardware->devices; i++)
            if (strcmp(p->cluster->device[r].profile, p->hardware->device[i].name) == 0) {
                const het_hardware_device *is = &p->hardware->device[i];
                if (!(p->cluster->device[r].memory > 0)) p->cluster->device[r].memory = is->memory;
                s->peak += p->cluster->device[r].speed * (s->dtype == 2 && is->bf16 > 0 ? is->bf16 : is->f32);
            }
    if (s->plan != NULL || s->simulate != NULL) status = read_plan(s, p, s->simulate != NULL && !are_lists(s));
    if (status == 0 && p->plan != NULL && s->tokens == 0 && s->micro_batches == 0) s->tokens = p->plan->step.length;
    if (s->tokens == 0) s->tokens = desc->model.context;
    if (status == 0 && s->tokens == 0) status = fail(BAD_INPUT, "--profile %s: --model SPEC or --length T is needed", s->profile);
    if (status == 0 && s->model != NULL && s->tokens > desc->model.context)
        status = fail(BAD_INPUT, "--length %lld: the model's context is %lld", (long long)s->tokens, (long long)desc->model.context);
    return status;
}

/* Slices are cut between granules: as many as train makes of the plan's own step, or could make of these sequences with --granule 1. */
static int check_slices(const settings *s, const problem *p, int own) {
    const int64_t cut = (s->tokens + 511) / 512, group = own && cut == 1 ? p->plan->step.sequences : 1, granules = s->sequences / group * cut;
    if (p->plan->slices <= granules) return 0;
    return fail(BAD_INPUT, "%s: %lld slices of a micro-batch of %lld granules (%s)", p->plan->slices == s->slices ? "--slices" : "--plan",
                (long long)p->plan->slices, (long long)granules, own ? "the plan's own step" : "--sequences, --length");
}

/* The micro-batches that the options say, all alike, or those of the plan's own step. */
static int price_step(settings *s, problem *p, const unsigned char *given) {
    const het_plan_step *step = &p->plan->step;
    const int own = s->micro_batches == 0 && step->granules > 0;
    int64_t left = step->granules * step->sequences;
    int status = 0;
    if (own) status = options_idle(options, OPTIONS, given, "--sequences --length", "on the plan's own step; with --micro-batches another is taken");
    if (status != 0) return status;
    if (own) s->micro_batches = (step->granules + step->micro_batch - 1) / step->micro_batch, s->sequences = step->micro_batch * step->sequences;
    if (s->micro_batches == 0 && !are_lists(s))
        return fail(BAD_INPUT, "--micro-batches: how many? (--simulate %s needs it)", p->plan->schedule);
    if (s->micro_batches > 1000000) return fail(BAD_INPUT, "--plan %s: %lld micro-batches", s->plan, (long long)s->micro_batches);
    if ((status = are_lists(s) ? read_lists(s, p) : make_lists(s, p)) != 0) return status;
    if ((status = check_slices(s, p, own)) != 0) return status;
    s->micro_batches = p->micro_batches;
    p->sequences = ROOM(double, p->micro_batches);
    if (p->sequences == NULL) return fail(FAILED, "out of memory");
    for (int64_t i = 0; i < p->micro_batches; i++, left -= s->sequences) p->sequences[i] = (double)(own && left < s->sequences ? left : s->sequences);
    return 0;
}

static int price_read(settings *s, problem *p, const unsigned char *given, het_profile **profile) {
    het_error error;
    int status = price_model(s, p, profile);
    if (status == 0 && p->plan != NULL && het_profile_cuts(*profile, p->plan, &error) != HET_OK) status = fail(BAD_INPUT, "--plan: %s", error.text);
    if (status == 0) status = price_step(s, p, given);
    if (status == 0 && s->hardware != NULL) status = hardware_profile(s, p, s->sequences, s->tokens, profile); /* those of the step */
    if (status == 0 && s->ops) status = print_ops(s, p, *profile);
    if (status == 0 && s->simulate == NULL) s->simulate = p->plan->schedule;
    return status;
}

static int price(settings *s, problem *p, const unsigned char *given) {
    het_profile *profile = NULL;
    int status = price_read(s, p, given, &profile);
    if (status == 0) status = price_simulate(s, p, profile);
    het_profile_free(profile);
    return status;
}

/* ---- the best plan ---- */

enum { MOST_NAMES = 16 };

/* A step of M x B sequences of T tokens, in the granules that train would make of it. */
static int search_sizes(const settings *s, const het_profile *profile, const unsigned char *given, het_search_desc *desc) {
    const int asked = given[option_find(options, OPTIONS, "--granule", 9)];
    int64_t granule = s->granule;
    step_feed feed;
    int status;
    if (!asked && profile->granule > 0 && profile->granule % s->tokens == 0 && s->sequences % (profile->granule / s->tokens) == 0)
        granule = profile->granule / s->tokens;
    status = feed_start(&feed, s->micro_batches, s->sequences, s->tokens, granule);
    if (status == 0 && profile->granule > 0)
        status = profile_check_granule(source(s), s->profile, profile, feed.item_longest);
    desc->slices = s->slices < feed.item_granules ? s->slices : feed.item_granules;
    desc->granules = feed.items, desc->granule_sequences = feed.item_sequences;
    desc->granule_tokens = feed.item_sequences * s->tokens;
    desc->granule_pairs = (double)desc->granule_tokens * ((double)s->tokens + 1) / 2;
    feed_end(&feed);
    return status;
}

static int write_plan(const settings *s, const het_plan *plan) {
    write_target t;
    het_writer writer;
    const int status = target_open(&t, "--out", s->out);
    if (status != 0) return status;
    writer = target_writer(&t);
    return target_end(&t, het_plan_write(plan, &writer), NULL);
}

/* The best of a search by the line at another size, which is too low: what it takes by that at its own. */
static int search_by_its_size(const settings *s, problem *p, het_search_desc *desc, het_profile **profile, het_search *search, het_error *error) {
    het_found *best = &search->found[0];
    het_simulation *exact = NULL;
    const int status = hardware_profile(s, p, best->granules * desc->granule_sequences, s->tokens, profile);
    error->code = HET_OK;
    if (status != 0) return status;
    desc->profile = *profile;
    if (het_plan_predict(desc, best->plan, best->granules, HET_YES, &exact, error) != HET_OK) return FAILED;
    best->work += exact->makespan - best->seconds, best->seconds = exact->makespan;
    if (search->bound > 0) search->distance = best->seconds / search->bound - 1;
    het_simulation_free(search->simulation);
    search->simulation = exact;
    return 0;
}

/* Looks for the plan. With published figures a call takes what its operations or its bytes do, whichever is more: a profile has the straight line
   through that at one size of micro-batch, exact there and too low elsewhere. So what is best by the line at its own size is best; where another
   size is found, the line at that one is tried, between those that were found too small and too large, and at last one size alone. */
static int search_by_size(const settings *s, problem *p, het_search_desc *desc, het_profile **profile, het_search **search, het_error *error) {
    const double end = seconds_now() + s->seconds;
    int64_t size = s->sequences / desc->granule_sequences, low = 0, high = desc->granules + 1;
    char bound_by[sizeof (*search)->bound_by];
    het_search *before = NULL; /* of the turn before */
    double bound = 0; /* a line is nowhere too high, so of all sizes that of each is one */
    for (int turn = 0; ; turn++) {
        const int last = p->hardware == NULL || turn == 3;
        const double left = turn == 0 ? s->seconds : fmax(end - seconds_now(), 0.005);
        int status;
        desc->profile = *profile, desc->seconds = last ? left : left / 2;
        if (het_plan_search(desc, search, error) == HET_ERR_LIMIT && before != NULL) { /* the time was over */
            status = search_by_its_size(s, p, desc, profile, before, error);
            if (status == 0) *search = before;
            else het_search_free(before);
            return status;
        }
        het_search_free(before), before = NULL;
        if (*search == NULL) return error->code == HET_ERR_OOM ? FAILED : BAD_INPUT;
        const int64_t found = (*search)->found[0].granules;
        if (turn < 3 && (*search)->bound > bound) bound = (*search)->bound, memcpy(bound_by, (*search)->bound_by, sizeof bound_by);
        if (turn > 0 && bound > 0) {
            (*search)->bound = bound, (*search)->distance = (*search)->found[0].seconds / bound - 1;
            memcpy((*search)->bound_by, bound_by, sizeof bound_by);
        }
        if (last || found == size) return 0;
        *(found > size ? &low : &high) = size;
        size = turn == 2 || (found > low && found < high) ? found : (low + high) / 2;
        if (turn == 2) { /* the least of those that make as many micro-batches */
            desc->most_micro_batches = (desc->granules + size - 1) / size;
            desc->most_granules = size = (desc->granules + desc->most_micro_batches - 1) / desc->most_micro_batches;
        }
        before = *search, *search = NULL;
        status = hardware_profile(s, p, size * desc->granule_sequences, s->tokens, profile);
        if (status != 0) het_search_free(before);
        if (status != 0) return status;
    }
}

/* A search within the limits that the cluster's devices have now. *search NULL, and error HET_ERR_LIMIT: nothing fits. */
static int search_once(const settings *s, problem *p, const het_search_desc *desc, het_profile **profile, het_search **search, het_error *error) {
    het_search_desc d = *desc;
    d.shard = HET_SHARD_WEIGHTS;
    for (int64_t r = 0; r < p->cluster->ranks; r++)
        if (p->cluster->device[r].memory > 0) d.store = HET_YES; /* activations wait on the host where memory is capped, never to be faster */
    return search_by_size(s, p, &d, profile, search, error);
}

/* Why there is no plan. */
static int search_refused(const settings *s, int status, const het_error *error) {
    char text[300];
    if (strstr(error->text, "schedule '") != NULL) return fail(BAD_INPUT, "--schedules %s: %s", s->schedules, error->text);
    return error->code == HET_OK ? status : fail(status, "%s: %s", devices_text(s, text), error->text);
}

/* ---- step time against memory ---- */

enum { FRONT_MOST = 32 };

/* Limits of the k-th search are ratio[k] x base[r] bytes; ratio 0: those that were given. */
typedef struct front {
    het_search *search[FRONT_MOST];
    double ratio[FRONT_MOST], *base, *given;
    int64_t ranks, searches;
} front;

static double front_limit(const front *f, int64_t k, int64_t r) {
    return f->ratio[k] > 0 ? fmax(1, floor(f->ratio[k] * f->base[r] + 0.5)) : f->given[r];
}

static double front_bytes(const front *f, int64_t k) {
    double most = 0;
    for (int64_t r = 0; r < f->ranks; r++) most = fmax(most, f->search[k]->found[0].memory[r]);
    return most;
}

/* The least ratio that its plan needs. */
static double front_needs(const front *f, int64_t k) {
    double most = 0;
    for (int64_t r = 0; r < f->ranks; r++) most = fmax(most, f->search[k]->found[0].memory[r] / f->base[r]);
    return most;
}

/* Searches with limits of `ratio`. What was found takes the k-th place; *found 0: nothing fits. */
static int front_search(const settings *s, problem *p, const het_search_desc *desc, het_profile **profile, front *f, int64_t k, double ratio,
                        int *found) {
    het_error error = { HET_OK, "" };
    het_search *search = NULL;
    const double before = f->ratio[k];
    int status = p->hardware == NULL || f->searches == 0 ? 0 : hardware_profile(s, p, s->sequences, s->tokens, profile); /* of another size by now */
    f->ratio[k] = ratio, f->searches++;
    for (int64_t r = 0; r < f->ranks; r++) p->cluster->device[r].memory = front_limit(f, k, r);
    if (status == 0) status = search_once(s, p, desc, profile, &search, &error);
    *found = search != NULL;
    if (search != NULL) het_search_free(f->search[k]), f->search[k] = search;
    else f->ratio[k] = before;
    return search != NULL || (error.code == HET_ERR_LIMIT && f->searches > 1) ? 0 : search_refused(s, status, &error);
}

/* All searches: the first, the last, which has the least limits, and those between. */
static int front_searches(const settings *s, problem *p, const het_search_desc *desc, het_profile **profile, front *f) {
    const int64_t last = s->front - 1;
    double first, high, low = 0;
    int found, status = front_search(s, p, desc, profile, f, 0, 0, &found);
    if (status != 0) return status;
    for (int64_t r = 0; r < f->ranks; r++) f->base[r] = f->given[r] > 0 ? f->given[r] : front_bytes(f, 0);
    first = high = front_needs(f, 0);
    while (status == 0 && last > 0 && high > 1.02 * low) { /* low has no plan, high has one */
        const double tried = low > 0 ? sqrt(low * high) : high / 2;
        status = front_search(s, p, desc, profile, f, last, tried, &found);
        if (found) high = front_needs(f, last);
        else low = tried;
    }
    for (int64_t k = 1; status == 0 && k < last && f->search[last] != NULL; k++)
        status = front_search(s, p, desc, profile, f, k, first * pow(high / first, (double)k / (double)last), &found);
    return status;
}

/* The fastest plan that takes fewer bytes than `least`, of equally fast ones the smallest; -1: none. */
static int64_t front_next(const front *f, double least) {
    int64_t best = -1;
    for (int64_t k = 0; k < FRONT_MOST; k++) {
        const double first = best < 0 ? HUGE_VAL : f->search[best]->found[0].seconds;
        if (f->search[k] == NULL || front_bytes(f, k) >= least || f->search[k]->found[0].seconds > first) continue;
        if (f->search[k]->found[0].seconds < first || front_bytes(f, k) < front_bytes(f, best)) best = k;
    }
    return best;
}

/* The plans that no other beats in both, the fastest first. */
static void front_tell(const settings *s, const front *f, const het_profile *profile, const het_cluster *cluster, double seconds) {
    double least = HUGE_VAL;
    int64_t at, told = 0, k;
    if (s->json) printf("{\"searches\":%lld,\"front\":[", (long long)f->searches);
    else printf("%s on %s: step time against memory, %lld searches in %.1f s\n\n%9s %9s %10s %9s %6s %9s  %s\n", profile->model,
                cluster->name[0] != 0 ? cluster->name : "these devices", (long long)f->searches, seconds, "memory", "limit", "ms a step", "pipelines",
                "stages", "recompute", "schedule");
    for (; (at = front_next(f, least)) >= 0; told++) {
        const het_found *found = &f->search[at]->found[0];
        const het_plan *plan = found->plan;
        int64_t recompute = 0, store = 0;
        double limit = 0;
        for (k = 0; k < plan->stages; k++) recompute += plan->stage[k].recompute != 0, store += plan->stage[k].store > 0;
        for (k = 0; k < f->ranks; k++) limit = fmax(limit, front_limit(f, at, k));
        least = front_bytes(f, at);
        if (s->json) {
            printf("%s{\"bytes\":%.0f,\"seconds\":%.17g,\"pipelines\":%lld,\"stages\":%lld,\"recompute\":%lld,\"store\":%lld,\"schedule\":\"%s\","
                   "\"shard\":\"%s\",\"limits\":[", told > 0 ? "," : "", least, found->seconds, (long long)plan->pipelines, (long long)plan->stages,
                   (long long)recompute, (long long)store, plan->schedule, found_shard(plan));
            for (k = 0; k < f->ranks; k++) printf("%s%.0f", k > 0 ? "," : "", front_limit(f, at, k));
            printf("]}");
            continue;
        }
        print_bytes(least);
        if (limit > 0) print_bytes(limit);
        else printf(" %9s", "-");
        printf(" %10.3f %9lld %6lld %9lld  %s%s%s\n", 1e3 * found->seconds, (long long)plan->pipelines, (long long)plan->stages,
               (long long)recompute, plan->schedule, found_divided(plan), store > 0 ? ", activations on the host" : "");
    }
    if (s->json) printf("]}\n");
    else printf("\nmemory     of the device that needs most; limit: of the one that may have most\nrecompute  so many of the stages do\n");
}

static int search_front(const settings *s, problem *p, const het_search_desc *desc, het_profile **profile) {
    const double start = seconds_now();
    front f;
    int status;
    memset(&f, 0, sizeof f);
    f.ranks = p->cluster->ranks, f.base = ROOM(double, f.ranks), f.given = ROOM(double, f.ranks);
    status = f.base != NULL && f.given != NULL ? 0 : fail(FAILED, "out of memory");
    for (int64_t r = 0; status == 0 && r < f.ranks; r++) f.given[r] = p->cluster->device[r].memory;
    if (status == 0) status = front_searches(s, p, desc, profile, &f);
    if (status == 0) front_tell(s, &f, *profile, p->cluster, seconds_now() - start);
    for (int64_t k = 0; k < FRONT_MOST; k++) het_search_free(f.search[k]);
    free(f.base), free(f.given);
    return status;
}

/* names: of --schedules, cut up here; NULL: the usual ones. */
static int search_plan(settings *s, problem *p, const unsigned char *given, het_profile **profile, char *names) {
    het_search_desc desc;
    het_search *search = NULL;
    het_error error = { HET_OK, "" };
    const char *list[MOST_NAMES];
    const double start = seconds_now();
    int status;
    memset(&desc, 0, sizeof desc);
    if ((status = search_sizes(s, *profile, given, &desc)) != 0) return status;
    desc.schedules = names != NULL ? list : NULL;
    while (names != NULL) {
        if (desc.schedule_count == MOST_NAMES) return fail(BAD_INPUT, "--schedules %s: more than %d", s->schedules, MOST_NAMES);
        list[desc.schedule_count++] = names;
        if ((names = strchr(names, ',')) != NULL) *names++ = 0;
    }
    desc.cluster = p->cluster;
    desc.together = s->alone ? HET_NO : HET_YES;
    desc.clock = profile_now, desc.evaluations = 1000000000, desc.trials = s->trials;
    desc.seed = (uint64_t)s->seed;
    if (s->front > 0) return search_front(s, p, &desc, profile);
    status = search_once(s, p, &desc, profile, &search, &error);
    if (search == NULL) return search_refused(s, status, &error);
    if (s->out != NULL) status = write_plan(s, search->found[0].plan);
    if (status == 0 && (s->trace != NULL || s->svg != NULL)) {
        p->plan = search->found[0].plan;
        s->simulate = p->plan->schedule;
        status = write_pictures(s, p, search->simulation);
        p->plan = NULL;
    }
    if (status == 0 && s->json) found_json(search, p->cluster);
    else if (status == 0) found_table(search, *profile, p->cluster, seconds_now() - start);
    if (status == 0 && !s->json && s->peak > 0)
        printf("MFU      %.1f %% of the operations a second that the devices are published with\n",
               100 * utilisation(s, (double)desc.granules * (double)desc.granule_tokens, search->found[0].seconds));
    het_search_free(search);
    return status;
}

static int plan_best(settings *s, problem *p, const unsigned char *given) {
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
    if (status == 0 && s->ops) status = print_ops(s, p, profile);
    if (status == 0) status = search_plan(s, p, given, &profile, names);
    het_profile_free(profile);
    free(names);
    return status;
}

/* What must be there, and what would be ignored. */
static int check_options(const settings *s, const unsigned char *given) {
    const int looked_for = s->simulate == NULL && s->plan == NULL, lists = are_lists(s);
    const struct { int idle; const char *names, *because; } rule[] = {
        { s->profile == NULL, "--model --devices --sequences --length --alone", "without --profile or --hardware" },
        { s->profile != NULL, "--link --unit --units --micro-batch-scale --complete",
          "with --profile or --hardware, which say what units and links cost" },
        { s->hardware == NULL, "--dtype --ops", "without --hardware" },
        { s->model == NULL, "--experts", "without --model" },
        { !looked_for, "--schedules --seconds --seed --trials --granule --front --out",
          "where no plan is looked for (--profile without --plan and --simulate)" },
        { looked_for, "--chunks --memory-limit", "where a plan is looked for" },
        { looked_for && s->trials > 0, "--slices", "with --trials" },
        { looked_for && s->front > 0, "--out --trace --svg", "with --front" },
        { lists, "--chunks --memory-limit", "on lists of actions" },
        { s->simulate == NULL, "--updates --staleness", "without --simulate" },
        { s->updates == 1, "--staleness", "without --updates" },
        { s->plan == NULL && !s->complete, "--units", "without --plan or --complete" },
        { lists && s->plan == NULL, "--units --slices", "on lists of actions without --plan" },
        { s->simulate != NULL && strcmp(s->simulate, "greedy") != 0 && strcmp(s->simulate, "timed") != 0, "--memory-limit",
          "but with --simulate greedy or timed" },
        { s->simulate == NULL || strcmp(s->simulate, "interleaved") != 0, "--chunks", "but with --simulate interleaved" },
        { s->trace == NULL && s->svg == NULL && s->cluster == NULL, "--unit", "without --trace, --svg or --cluster" },
        { s->svg == NULL, "--title --dark", "without --svg" },
    };
    const named_path writes[] = { { "--out", s->out }, { "--trace", s->trace }, { "--svg", s->svg } };
    const named_path reads[] = { { "--simulate", s->simulate }, { "--plan", s->plan }, { "--cost", s->cost }, { "--cluster", s->cluster },
                                 { "--model", s->model } };
    int status = 0;
    if (s->profile == NULL && s->model != NULL) return fail(BAD_INPUT, "--model %s: needs --profile FILE or --hardware FILE", s->model);
    if (s->hardware != NULL && s->model == NULL) return fail(BAD_INPUT, "--hardware %s: --model SPEC is needed", s->hardware);
    if (s->profile == NULL && s->simulate == NULL && s->plan == NULL)
        return fail(BAD_INPUT, "--simulate: a schedule's name or FILE.csv is needed, or --profile or --hardware; --help lists the options");
    if (s->profile != NULL && s->model == NULL && s->tokens == 0 && s->plan == NULL)
        return fail(BAD_INPUT, "--profile %s: --model SPEC, --length T or --plan FILE is needed", s->profile);
    if (s->profile != NULL && s->cost != NULL) return fail(BAD_INPUT, "--cost %s: %s %s says what units cost", s->cost, source(s), s->profile);
    if (s->profile == NULL && s->cost == NULL) return fail(BAD_INPUT, "--cost: F=..,B=..[,W=..] or FILE.csv is needed");
    for (size_t i = 0; i < sizeof rule / sizeof *rule && status == 0; i++)
        if (rule[i].idle) status = options_idle(options, OPTIONS, given, rule[i].names, rule[i].because);
    for (int i = 0; i < 3 && status == 0; i++) status = target_check(writes[i].option, writes[i].path);
    if (status == 0) status = targets_spare_list(writes, 3, source(s), s->profile);
    return status == 0 ? targets_differ(writes, 3, reads, 5) : status;
}

static int program(int argc, char **argv) {
    settings s;
    problem p;
    unsigned char given[OPTIONS];
    int status;
    memset(&s, 0, sizeof s);
    memset(&p, 0, sizeof p);
    memset(given, 0, sizeof given);
    s.chunks = 2;
    s.updates = 1;
    s.slices = s.unit = s.sequences = 1;
    s.seconds = 5;
    status = options_parse(summary, options, OPTIONS, &s, given, argc, argv);
    if (status >= 0) return status;
    if (s.hardware != NULL && s.profile != NULL)
        return fail(BAD_INPUT, "--hardware %s: --profile %s says what units cost, as measured", s.hardware, s.profile);
    if (s.hardware != NULL) s.profile = s.hardware;
    if ((status = check_options(&s, given)) != 0) return status;
    if (s.simulate == NULL && s.plan == NULL) status = plan_best(&s, &p, given);
    else status = s.profile != NULL ? price(&s, &p, given) : simulate(&s, &p);
    het_schedule_free(p.schedule);
    if (p.plan != &p.lists) het_plan_free(p.plan);
    free(p.lists.stage);
    free(p.lists.first_stage);
    free(p.lists.share);
    free(p.lists.state_share);
    free(p.lists.slice_share);
    free(p.stage);
    free(p.member);
    free(p.block);
    free(p.tokens);
    free(p.sequences);
    free(p.rank);
    free(p.group_of);
    het_cluster_free(p.cluster);
    free(p.text);
    return status;
}

int main(int argc, char **argv) {
    program_begin();
    return program_end(program(argc, argv));
}
