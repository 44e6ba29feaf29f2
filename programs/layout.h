/* layout.h: --devices, --links, --plan and --schedule of the programs: from text to what het_desc takes. */
#ifndef LAYOUT_H
#define LAYOUT_H

#include "common.h"
#include "hetrain_plan.h"
#include "launch.h"
#ifdef HETRAIN_CUDA /* make cuda */
#define HETRAIN_CUDA_DECLARATIONS
#include "hetrain_cuda.cu"
#endif

enum { LAYOUT_RANKS = 256, LAYOUT_LINKS = 1024 };

typedef struct layout {
    het_device_desc device[LAYOUT_RANKS];
    het_link link[LAYOUT_LINKS];
    int64_t devices, links, world; /* world: ranks of all processes */
    het_device_desc all[LAYOUT_RANKS]; /* [world] */
    int64_t process_of[LAYOUT_RANKS];  /* [world] */
    het_plan *plan;
    het_schedule *schedule;
} layout;

/* "12.5" and a unit out of `units`, each with its factor, at most 1e18 together; 0: not a number, or no such unit. */
static inline int parse_with_unit(const char *text, size_t length, const char *const *units, const double *factors, int count, double *value) {
    char copy[48];
    size_t digits;
    int i;
    if (length == 0 || length >= sizeof copy) return 0;
    memcpy(copy, text, length);
    copy[length] = 0;
    digits = strspn(copy, "0123456789.");
    for (i = 0; i < count && strcmp(copy + digits, units[i]) != 0; i++) {}
    copy[digits] = 0;
    if (i == count || !parse_real(copy, 0, 1e18, value)) return 0;
    *value *= factors[i];
    return *value <= 1e18;
}

static inline int parse_size(const char *text, size_t length, double *bytes) {
    static const char *const units[] = { "", "K", "M", "G", "T", "Ki", "Mi", "Gi", "Ti" };
    static const double factors[] = { 1, 1e3, 1e6, 1e9, 1e12, 1024, 1048576, 1073741824.0, 1099511627776.0 };
    return parse_with_unit(text, length, units, factors, 9, bytes);
}

static inline int parse_seconds(const char *text, size_t length, double *seconds) {
    static const char *const units[] = { "s", "ms", "us", "ns", "" };
    static const double factors[] = { 1, 1e-3, 1e-6, 1e-9, 1 };
    return parse_with_unit(text, length, units, factors, 5, seconds);
}

/* "local" is the number that a launcher gave the process on its machine, 0 without one; else the digits themselves. 0: neither. */
static inline int layout_ordinal(const char *text, int64_t *ordinal) {
    het_launch launch;
    if (strcmp(text, "local") != 0) return parse_integer(text, 0, 255, ordinal);
    if (het_launch_detect(&launch, NULL) != HET_OK) return 0; /* the program has said so, or will */
    *ordinal = launch.local_rank;
    return 1;
}

#ifdef HETRAIN_CUDA
/* cuda:N:timed tells what the ops took when it goes. Its table is the library's, but for the end: one for all, so all are fast, or none. */
static const het_device_iface *layout_timed_inner;
static void layout_timed_destroy(void *self) {
    het_device device;
    size_t size;
    char *text;
    device.iface = layout_timed_inner, device.self = self;
    size = het_cuda_ops(&device, NULL, 0) + 1;
    text = (char *)malloc(size);
    if (text != NULL) {
        (void)het_cuda_ops(&device, text, size);
        fputs(text, stdout);
    }
    free(text);
    layout_timed_inner->destroy(self);
}
static const het_device_iface *layout_timed(int32_t options) {
    static het_device_iface table;
    layout_timed_inner = het_cuda_device_with(options | HET_CUDA_OPS);
    table = *layout_timed_inner;
    table.destroy = layout_timed_destroy;
    return &table;
}
#endif

/* N of cuda:N[:B-E][:fast][:atomic][:first][:eager|:timed]: which card; B-E: its multiprocessors B to E alone; fast: tf32 for f32 and algorithms
   chosen by timing; atomic: attention's backward pass in five products, with other bits in each run; first: before other contexts on the card; eager:
   without graphs; timed: and each op by itself, with a table of them at the end. */
static inline int layout_cuda(het_device_desc *d, const char *list, const char *digits) {
#ifdef HETRAIN_CUDA
    const size_t length = strcspn(digits, ":");
    static const struct { const char *name; int32_t options; } words[] = {
        { ":fast", HET_CUDA_TF32 | HET_CUDA_TIMED }, { ":atomic", HET_CUDA_ATOMIC }, { ":first", HET_CUDA_FIRST }, { ":eager", HET_CUDA_EAGER } };
    const char *rest = digits + length;
    int32_t options = 0;
    char number[64], part[2][5];
    int64_t ordinal = 0;
    int timed, bad, used = 0;
    size_t i;
    snprintf(number, sizeof number, "%.*s", (int)length, digits);
    bad = !layout_ordinal(number, &ordinal);
    if (sscanf(rest, ":%4[0-9]-%4[0-9]%n", part[0], part[1], &used) == 2) {
        const int first = atoi(part[0]), last = atoi(part[1]);
        bad |= last < first || last > 2046;
        ordinal = HET_PART((int)ordinal, first, last), rest += used;
    }
    for (i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t word = strlen(words[i].name);
        if (strncmp(rest, words[i].name, word) == 0) options |= words[i].options, rest += word;
    }
    timed = (options & HET_CUDA_EAGER) == 0 && strcmp(rest, ":timed") == 0;
    if (bad || (!timed && *rest != 0))
        return fail(BAD_INPUT, "--devices %s: cuda:%s: expected cuda:N[:B-E][:fast][:atomic][:first][:eager|:timed], N from 0 to 255 or local, "
                               "multiprocessors B to E", list, digits);
    /* Before CUDA starts: kernels are loaded at once, not when a message may be waited for, and streams do not share queues. */
    (void)setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    d->iface = timed ? layout_timed(options) : het_cuda_device_with(options);
    d->ordinal = (int32_t)ordinal, d->threads = 1;
    return 0;
#else
    (void)d;
    return fail(BAD_INPUT, "--devices %s: cuda:%s: this program was built without CUDA (make cuda builds build/train_cuda)", list, digits);
#endif
}

static const char *const layout_isa[] = { HETRAIN_ISA_NAMES };

/* N[:ISA] of cpu:N: threads, all: of every processor; the instruction set of inner loops. */
static inline int layout_cpu(het_device_desc *d, const char *list, const char *text) {
    const size_t length = strcspn(text, ":");
    int64_t count = processors();
    char digits[64];
    int isa = 0;
    snprintf(digits, sizeof digits, "%.*s", (int)length, text);
    if (strcmp(digits, "all") != 0 && !parse_integer(digits, 1, 256, &count))
        return fail(BAD_INPUT, "--devices %s: %s: N threads, from 1 to 256, or all", list, text);
    if (text[length] == ':')
        for (isa = HET_ISA_AMX; isa > 0 && strcmp(text + length + 1, layout_isa[isa]) != 0; isa--) {}
    if (text[length] == ':' && isa == 0)
        return fail(BAD_INPUT, "--devices %s: cpu:%s: expected plain, avx2, avx512, avx512bf16, neon or amx behind N", list, text);
    d->threads = (int32_t)count, d->isa = (het_isa)isa;
    return 0;
}

/* cpu:N[:ISA][@SPEED][/SIZE][#TOKENS]: slowed down to SPEED of its own, memory capped, micro-batches of at most TOKENS; cuda:N, the card of that
   number; cuda:local. */
static inline int layout_device(layout *l, const char *list, const char *item, size_t length) {
    het_device_desc *d = &l->device[l->devices];
    const int cuda = length >= 5 && strncmp(item, "cuda:", 5) == 0;
    const size_t whole = length;
    size_t kind = strcspn(item, ":,"), threads, speed = 0, size = 0;
    char digits[64];
    double value;
    int status;
    if (l->devices == LAYOUT_RANKS) return fail(BAD_INPUT, "--devices: more than %d", (int)LAYOUT_RANKS);
    if (!cuda && (kind != 3 || strncmp(item, "cpu:", 4) != 0 || kind + 1 > length))
        return fail(BAD_INPUT, "--devices %s: %.*s: expected cpu:N or cuda:N", list, (int)length, item);
    length = strcspn(item, "#,");
    snprintf(digits, sizeof digits, "%.*s", (int)(length < whole ? whole - length - 1 : 0), item + length + 1);
    if (length < whole && !parse_integer(digits, 1, INT32_MAX, &d->max_tokens))
        return fail(BAD_INPUT, "--devices %s: #%s: the most tokens of a micro-batch, from 1 on", list, digits);
    item += kind + 1, length -= kind + 1;
    threads = strcspn(item, "@/#,");
    if (threads < length && item[threads] == '@') speed = 1 + strcspn(item + threads + 1, "/#,");
    if (threads + speed < length && item[threads + speed] == '/') size = length - threads - speed;
    snprintf(digits, sizeof digits, "%.*s", (int)(threads < 63 ? threads : 63), item);
    status = cuda ? layout_cuda(d, list, digits) : layout_cpu(d, list, digits);
    if (status != 0) return status;
    snprintf(digits, sizeof digits, "%.*s", (int)(speed > 0 && speed < 31 ? speed - 1 : 0), item + threads + 1);
    if (speed > 0 && (!parse_real(digits, 1e-3, 1, &d->speed) || d->speed <= 0))
        return fail(BAD_INPUT, "--devices %s: @%s: a speed from 0.001 to 1", list, digits);
    if (size > 0 && (!parse_size(item + threads + speed + 1, size - 1, &value) || value < 1))
        return fail(BAD_INPUT, "--devices %s: %.*s: expected a size such as 256M behind the /", list, (int)length, item);
    if (size > 0) d->memory_limit = (size_t)value;
    l->devices++;
    return 0;
}

static inline int layout_devices(layout *l, const char *list) {
    const char *item = list;
    l->devices = 0;
    if (list == NULL) {
        l->device[0].threads = processors();
        l->devices = 1;
        return 0;
    }
    for (;;) {
        size_t length = strcspn(item, ",");
        int status = layout_device(l, list, item, length);
        if (status != 0 || item[length] == 0) return status;
        item += length + 1;
    }
}

/* Of a list for all ranks, this process keeps its part; a list of one is every process's. */
static inline int layout_take_part(layout *l, int64_t process, int64_t processes, int64_t *first_rank) {
    int64_t first = l->devices * process / processes, end = l->devices * (process + 1) / processes;
    int64_t p, r;
    l->world = l->devices == 1 ? processes : l->devices;
    *first_rank = l->devices == 1 ? process : first;
    if (l->world > LAYOUT_RANKS) return fail(BAD_INPUT, "more than %d processes", (int)LAYOUT_RANKS);
    for (p = 0; p < processes; p++)
        for (r = l->world * p / processes; r < l->world * (p + 1) / processes; r++) {
            l->all[r] = l->device[l->devices == 1 ? 0 : r];
            l->process_of[r] = p;
        }
    if (l->devices == 1) return 0;
    if (l->devices < processes) return fail(BAD_INPUT, "--devices: %lld devices for %lld processes", (long long)l->devices, (long long)processes);
    memmove(l->device, l->device + first, (size_t)(end - first) * sizeof *l->device);
    l->devices = end - first;
    return 0;
}

/* A-B:LATENCY[:BYTES a second], both ways. 0: it is none. */
static inline int layout_link(const char *item, size_t length, het_link *link) {
    size_t used = 0, latency, bandwidth;
    long long from = 0, to = 0;
    int end = 0;
    memset(link, 0, sizeof *link);
    if (sscanf(item, "%6lld-%6lld:%n", &from, &to, &end) == 2 && end > 0) used = (size_t)end;
    latency = strcspn(item + used, ":,");
    bandwidth = item[used + latency] == ':' ? length - used - latency - 1 : 0;
    if (used == 0 || used > length || from < 0 || to < 0 || !parse_seconds(item + used, latency, &link->latency) ||
        (bandwidth > 0 && !parse_size(item + used + latency + 1, bandwidth, &link->bandwidth)))
        return 0;
    link->from = from, link->to = to;
    return 1;
}

static inline int layout_links(layout *l, const char *list) {
    const char *item = list;
    const het_link *e;
    int64_t i;
    if (list == NULL) return 0;
    for (;;) {
        const size_t length = strcspn(item, ",");
        if (l->links == LAYOUT_LINKS) return fail(BAD_INPUT, "--links: more than %d", (int)LAYOUT_LINKS);
        if (!layout_link(item, length, &l->link[l->links]))
            return fail(BAD_INPUT, "--links %s: %.*s: expected A-B:LATENCY or A-B:LATENCY:BYTES, as in 0-1:5ms:1G", list, (int)length, item);
        e = &l->link[l->links];
        if (l->world > 1 && (e->from == e->to || e->from >= l->world || e->to >= l->world))
            return fail(BAD_INPUT, "--links %s: %.*s: not two of the ranks below %lld", list, (int)length, item, (long long)l->world);
        for (i = 0; i < l->links; i++)
            if ((l->link[i].from == e->from && l->link[i].to == e->to) || (l->link[i].from == e->to && l->link[i].to == e->from))
                return fail(BAD_INPUT, "--links %s: %.*s: the two ranks come twice", list, (int)length, item);
        l->links++;
        if (item[length] == 0) return 0;
        item += length + 1;
    }
}

/* Whether an error says that there is no schedule of this name, and not of the one that a plan's file asks for. */
static inline int schedule_is_unknown(const het_error *error, const char *schedule) {
    static const char says[] = "unknown schedule '";
    const char *at = schedule != NULL ? strstr(error->text, says) : NULL;
    int i = 0; /* the error has the first 63 characters, with ? in the place of those that are not printed */
    if (at == NULL) return 0;
    for (at += strlen(says); i < 63 && schedule[i] != 0 && (at[i] == schedule[i] || at[i] == '?'); i++) {}
    return (i == 63 || schedule[i] == 0) && at[i] == '\'';
}

/* plan: a file of JSON or a shorthand, from option `option_name`; schedule: a generator's name or a file of lists; both may be NULL. whole: 1:
   every stage recomputes as a whole, whatever the file says. */
static inline int layout_plan(layout *l, const char *option_name, const char *plan, const char *schedule, const het_model_desc *model, int64_t ranks,
                              int64_t slices, int64_t store, int whole) {
    het_plan_desc desc;
    het_error error = { HET_OK, "" };
    het_result result;
    size_t length;
    const int file = schedule != NULL && ends_with(schedule, ".csv");
    char *read = NULL;
    het_desc like;
    int status;
    const char *text = plan_text(option_name, plan != NULL ? plan : "dp", &read, &length, &status);
    if (text == NULL) return status;
    memset(&desc, 0, sizeof desc);
    desc.units = model_units(model), desc.ranks = ranks, desc.slices = slices, desc.store = store, desc.heads = model->kv_heads;
    desc.schedule = file ? NULL : schedule;
    result = het_plan_read(&desc, text, length, &l->plan, &error);
    free(read);
    if (result != HET_OK && schedule_is_unknown(&error, schedule))
        return fail(status_of(result), "--schedule %s: %s%s", schedule, error.text, lacks_csv(schedule));
    if (result != HET_OK) return plan_refused(option_name, plan != NULL ? plan : "dp", result, &error);
    if (slices > 1 && l->plan->slices != slices)
        return fail(BAD_INPUT, "--slices %lld: %s %s has %lld", (long long)slices, option_name, plan, (long long)l->plan->slices);
    for (int64_t i = 0; i < l->plan->stages && whole; i++) l->plan->stage[i].recompute = HET_RECOMPUTE_STAGE;
    if (plan != NULL && !file && schedule != NULL) snprintf(l->plan->schedule, sizeof l->plan->schedule, "%s", schedule);
    if (!file) return 0;
    memset(&like, 0, sizeof like);
    like.model = *model;
    result = het_plan_cuts(&like, l->plan, &error);
    if (result != HET_OK) return fail(status_of(result), "--schedule %s: %s", schedule, error.text);
    read = read_small_file(schedule, &length);
    if (read == NULL) return fail(BAD_INPUT, "--schedule %s: %s", schedule, small_file_error());
    result = het_schedule_read(l->plan, read, length, NULL, &l->schedule, &error);
    free(read);
    return result == HET_OK ? 0 : fail(status_of(result), "--schedule %s: %s", schedule, error.text);
}

/* Lists of a file against the plan, when it is complete, and a step's micro-batches. */
static inline int layout_check_lists(const layout *l, const char *schedule, int64_t micro_batches) {
    het_error error = { HET_OK, "" };
    het_result result;
    int64_t q, count = 0;
    if (l->schedule == NULL) return 0;
    for (q = 0; q < l->schedule->pipelines; q++) count += l->schedule->micro_batches[q];
    if (count != micro_batches)
        return fail(BAD_INPUT, "--schedule %s: lists of %lld micro-batches; a step has %lld", schedule, (long long)count, (long long)micro_batches);
    result = het_schedule_check(l->plan, NULL, l->schedule, NULL, &error);
    return result == HET_OK ? 0 : fail(status_of(result), "--schedule %s: %s", schedule, error.text);
}

/* Which of `count` are marked, for people: "3", "1 to 7", "0, 2 to 5". Returns how many. */
static inline int64_t layout_list(const unsigned char *marked, int64_t count, char *to, size_t capacity) {
    int64_t i, end, found = 0;
    size_t at = 0;
    to[0] = 0;
    for (i = 0; i < count; i = end) {
        end = i + 1;
        if (!marked[i]) continue;
        while (end < count && marked[end]) end++;
        if (at + 48 < capacity) at += (size_t)snprintf(to + at, capacity - at, "%s%lld", at > 0 ? ", " : "", (long long)i);
        if (end > i + 1 && at + 48 < capacity) at += (size_t)snprintf(to + at, capacity - at, " to %lld", (long long)end - 1);
        found += end - i;
    }
    return found;
}

/* Marks ranks without a micro-batch, but keepers, and pipelines with fewer micro-batches than ranks, in a step of so many. Returns how many of
   both. */
static inline int64_t layout_idle(const het_plan *plan, int64_t micro_batches, unsigned char idle[LAYOUT_RANKS], unsigned char poor[LAYOUT_RANKS]) {
    int64_t counts[LAYOUT_RANKS], p, r, g, sum = 0;
    if (plan->pipelines > LAYOUT_RANKS || plan->ranks > LAYOUT_RANKS) return 0;
    het_plan_micro_batches(plan, micro_batches, counts);
    memset(idle, 1, LAYOUT_RANKS);
    for (p = 0; p < plan->pipelines; p++) {
        unsigned char member[LAYOUT_RANKS];
        int64_t members = 0;
        memset(member, 0, sizeof member);
        for (g = plan->first_stage[p]; g < plan->first_stage[p + 1]; g++) {
            const int64_t rank = plan->stage[g].rank;
            int64_t i, count;
            const het_team_member *team = het_plan_team(plan, rank, &count);
            if (!member[rank]) member[rank] = 1, members++;
            for (i = 0; i < count && counts[p] > 0; i++) idle[team != NULL ? team[i].rank : rank] = 0;
        }
        poor[p] = counts[p] > 0 && counts[p] < members;
        sum += poor[p];
    }
    for (r = 0; r < plan->ranks; r++) {
        if (plan->keeper != NULL && plan->keeper[r] != 0) idle[r] = 0;
        sum += idle[r];
    }
    return sum;
}

/* "--micro-batches 8 --sequences 1": of as many sequences a step where that can be; the fewest that leave `left` idle or poor. */
static inline void layout_feeding(const het_plan *plan, int64_t micro_batches, int64_t sequences, int64_t left, char *to, size_t capacity) {
    unsigned char idle[LAYOUT_RANKS], poor[LAYOUT_RANKS];
    const int64_t whole = micro_batches * sequences;
    int64_t m = micro_batches, least = 0;
    for (; m <= 65536 && (least == 0 || m <= whole); m++) {
        if (layout_idle(plan, m, idle, poor) > left) continue;
        if (least == 0) least = m;
        if (whole % m == 0) break;
    }
    if (least == 0) snprintf(to, capacity, "more --micro-batches would feed them");
    else if (m <= 65536 && whole % m == 0)
        snprintf(to, capacity, "--micro-batches %lld --sequences %lld feeds all, with as many sequences a step", (long long)m,
                 (long long)(whole / m));
    else snprintf(to, capacity, "--micro-batches %lld feeds all", (long long)least);
}

/* Warns of ranks that get nothing to do, and of pipelines with too few micro-batches to fill them. `why`: NULL, or why it is so, in place of the
   options that would feed them: of `micro_batches` x `sequences`, of which a step makes `formed`. */
static inline void layout_warn(const het_plan *plan, int64_t formed, int64_t micro_batches, int64_t sequences, const char *why) {
    unsigned char idle[LAYOUT_RANKS], poor[LAYOUT_RANKS], never[LAYOUT_RANKS], unused[LAYOUT_RANKS];
    char ranks[200], pipelines[200], feeding[160];
    int64_t idles, poors = 0, left;
    const char *unplanned;
    if (layout_idle(plan, formed, idle, poor) == 0) return;
    left = layout_idle(plan, 65536, never, unused);
    idles = layout_list(idle, plan->ranks, ranks, sizeof ranks);
    poors = layout_list(poor, plan->pipelines, pipelines, sizeof pipelines);
    if (why == NULL) layout_feeding(plan, micro_batches, sequences, left, feeding, sizeof feeding);
    unplanned = memcmp(idle, never, (size_t)plan->ranks) != 0 ? NULL : idles > 1 ? "the plan has none for them" : "the plan has none for it";
    if (idles > 0)
        fail(0, "warning: rank%s %s of %lld get%s no micro-batch: the step has %lld; %s", idles > 1 ? "s" : "", ranks, (long long)plan->ranks,
             idles > 1 ? "" : "s", (long long)formed, why != NULL ? why : unplanned != NULL ? unplanned : feeding);
    if (poors > 0)
        fail(0, "warning: pipeline%s %s ha%s fewer micro-batches than stages, whose ranks wait for each other: the step has %lld; %s",
             poors > 1 ? "s" : "", pipelines, poors > 1 ? "ve" : "s", (long long)formed, why != NULL ? why : feeding);
}

/* Tokens of a micro-batch that each pipeline takes, and the rank that takes no more; whether some takes less than `most`. */
static inline int layout_limits(const layout *l, const het_plan *plan, int64_t most, int64_t limit[LAYOUT_RANKS], int64_t rank[LAYOUT_RANKS]) {
    int limited = 0;
    for (int64_t p = 0; plan != NULL && plan->pipelines <= LAYOUT_RANKS && p < plan->pipelines; p++) {
        limit[p] = INT64_MAX;
        for (int64_t g = plan->first_stage[p]; g < plan->first_stage[p + 1]; g++) {
            int64_t count;
            const het_team_member *team = het_plan_team(plan, plan->stage[g].rank, &count);
            for (int64_t i = 0; i < count; i++) {
                const int64_t r = team != NULL ? team[i].rank : plan->stage[g].rank, tokens = l->all[r].max_tokens;
                if (tokens > 0 && tokens < limit[p]) limit[p] = tokens, rank[p] = r;
            }
        }
        limited |= limit[p] < most;
    }
    return limited;
}

static inline void layout_free(layout *l) {
    het_plan_free(l->plan);
    het_schedule_free(l->schedule);
    l->plan = NULL, l->schedule = NULL;
}

#endif
