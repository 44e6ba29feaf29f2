/* layout.h: --devices, --links, --plan and --schedule of the programs: from text to what het_desc takes. */
#ifndef LAYOUT_H
#define LAYOUT_H

#include "common.h"
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

/* "12.5" and a unit out of `units`, each with its factor; 0: not a number, or no such unit. */
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
    return 1;
}

static inline int parse_size(const char *text, size_t length, double *bytes) {
    static const char *const units[] = { "", "K", "M", "G", "T" };
    static const double factors[] = { 1, 1024, 1048576, 1073741824.0, 1099511627776.0 };
    return parse_with_unit(text, length, units, factors, 5, bytes);
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

/* N of cuda:N[:fast][:eager]: which card; fast: tf32 for f32 and algorithms chosen by timing; eager: without graphs. */
static inline int layout_cuda(het_device_desc *d, const char *list, const char *digits) {
#ifdef HETRAIN_CUDA
    const size_t length = strcspn(digits, ":");
    const int fast = strncmp(digits + length, ":fast", 5) == 0;
    const char *rest = digits + length + (fast ? 5 : 0);
    const int eager = strcmp(rest, ":eager") == 0;
    char number[32];
    int64_t ordinal;
    snprintf(number, sizeof number, "%.*s", (int)length, digits);
    if ((!eager && *rest != 0) || !layout_ordinal(number, &ordinal))
        return fail(BAD_INPUT, "--devices %s: cuda:%s: expected cuda:N[:fast][:eager], N from 0 to 255 or local", list, digits);
    d->iface = het_cuda_device_with((fast ? HET_CUDA_TF32 | HET_CUDA_TIMED : 0) | (eager ? HET_CUDA_EAGER : 0));
    d->ordinal = (int32_t)ordinal, d->threads = 1;
    return 0;
#else
    (void)d;
    return fail(BAD_INPUT, "--devices %s: cuda:%s: this program was built without CUDA (make cuda builds build/train_cuda)", list, digits);
#endif
}

/* cpu:N[@SPEED][/SIZE]: N threads, slowed down to SPEED of its own, memory capped; cuda:N, the card of that number; cuda:local. */
static inline int layout_device(layout *l, const char *list, const char *item, size_t length) {
    het_device_desc *d = &l->device[l->devices];
    const int cuda = length >= 5 && strncmp(item, "cuda:", 5) == 0;
    size_t kind = strcspn(item, ":,"), threads, speed = 0, size = 0;
    char digits[32];
    int64_t count;
    double value;
    int status;
    if (l->devices == LAYOUT_RANKS) return fail(BAD_INPUT, "--devices: more than %d", (int)LAYOUT_RANKS);
    if (!cuda && (kind != 3 || strncmp(item, "cpu:", 4) != 0 || kind + 1 > length))
        return fail(BAD_INPUT, "--devices %s: %.*s: expected cpu:N or cuda:N", list, (int)length, item);
    item += kind + 1, length -= kind + 1;
    threads = strcspn(item, "@/,");
    if (threads < length && item[threads] == '@') speed = 1 + strcspn(item + threads + 1, "/,");
    if (threads + speed < length && item[threads + speed] == '/') size = length - threads - speed;
    snprintf(digits, sizeof digits, "%.*s", (int)(threads < 31 ? threads : 31), item);
    if (cuda) {
        if ((status = layout_cuda(d, list, digits)) != 0) return status;
    } else {
        if (!parse_integer(digits, 1, 256, &count)) return fail(BAD_INPUT, "--devices %s: %.*s: N threads, from 1 to 256", list, (int)length, item);
        d->threads = (int32_t)count;
    }
    snprintf(digits, sizeof digits, "%.*s", (int)(speed > 0 && speed < 31 ? speed - 1 : 0), item + threads + 1);
    if (speed > 0 && (!parse_real(digits, 1e-3, 1, &d->speed) || d->speed <= 0))
        return fail(BAD_INPUT, "--devices %s: @%s: a speed from 0.001 to 1", list, digits);
    if (size > 0 && (!parse_size(item + threads + speed + 1, size - 1, &value) || value < 1))
        return fail(BAD_INPUT, "--devices %s: %.*s: expected a size such as 256M behind the /", list, (int)length, item);
    if (size > 0) d->memory_limit = (size_t)value;
    l->devices++;
    return 0;
}

/* "cpu:2": its threads; "cuda:0": which one, where the host does not see its memory. Names in profiles are the same. */
static inline const char *layout_name(const het_device_desc *d, char *to, size_t capacity) {
    const het_device_iface *iface = d->iface != NULL ? d->iface : het_cpu_device();
    snprintf(to, capacity, "%s:%d", iface->name, (int)(iface->host_memory ? d->threads : d->ordinal));
    return to;
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

/* A-B:LATENCY[:BYTES a second], both ways. */
static inline int layout_links(layout *l, const char *list) {
    const char *item = list;
    if (list == NULL) return 0;
    for (;;) {
        size_t length = strcspn(item, ","), used = 0, latency, bandwidth;
        long long from = 0, to = 0;
        int end = 0;
        het_link *link = &l->link[l->links];
        if (l->links == LAYOUT_LINKS) return fail(BAD_INPUT, "--links: more than %d", (int)LAYOUT_LINKS);
        if (sscanf(item, "%6lld-%6lld:%n", &from, &to, &end) == 2 && end > 0) used = (size_t)end;
        latency = strcspn(item + used, ":,");
        bandwidth = item[used + latency] == ':' ? length - used - latency - 1 : 0;
        memset(link, 0, sizeof *link);
        if (used == 0 || used > length || from < 0 || to < 0 || !parse_seconds(item + used, latency, &link->latency) ||
            (bandwidth > 0 && !parse_size(item + used + latency + 1, bandwidth, &link->bandwidth)))
            return fail(BAD_INPUT, "--links %s: %.*s: expected A-B:LATENCY or A-B:LATENCY:BYTES, as in 0-1:5ms:1G", list, (int)length, item);
        link->from = from, link->to = to;
        l->links++;
        if (item[length] == 0) return 0;
        item += length + 1;
    }
}

/* plan: a file of JSON or a shorthand; schedule: a generator's name or a file of lists; both may be NULL. */
static inline int layout_plan(layout *l, const char *plan, const char *schedule, int64_t units, int64_t ranks, int64_t slices) {
    het_plan_desc desc;
    het_error error = { HET_OK, "" };
    het_result result;
    size_t length, name = schedule != NULL ? strlen(schedule) : 0;
    const int file = name > 4 && strcmp(schedule + name - 4, ".csv") == 0;
    const char *text = plan != NULL ? plan : "dp";
    char *read = NULL;
    if (plan != NULL && access(plan, R_OK) == 0) {
        read = read_small_file(plan, &length);
        if (read == NULL) return fail(BAD_INPUT, "--plan %s: %s", plan, strerror(errno));
        text = read;
    } else length = strlen(text);
    memset(&desc, 0, sizeof desc);
    desc.units = units, desc.ranks = ranks, desc.slices = slices;
    desc.schedule = file ? NULL : schedule;
    result = het_plan_read(&desc, text, length, &l->plan, &error);
    free(read);
    if (result != HET_OK) return fail(status_of(result), "--plan %s: %s", plan != NULL ? plan : "dp", error.text);
    if (plan != NULL && !file && schedule != NULL) snprintf(l->plan->schedule, sizeof l->plan->schedule, "%s", schedule);
    if (!file) return 0;
    read = read_small_file(schedule, &length);
    if (read == NULL) return fail(BAD_INPUT, "--schedule %s: %s", schedule, strerror(errno));
    result = het_schedule_read(l->plan, read, length, NULL, &l->schedule, &error);
    free(read);
    return result == HET_OK ? 0 : fail(status_of(result), "--schedule %s: %s", schedule, error.text);
}

static inline void layout_free(layout *l) {
    het_plan_free(l->plan);
    het_schedule_free(l->schedule);
    l->plan = NULL, l->schedule = NULL;
}

#endif
