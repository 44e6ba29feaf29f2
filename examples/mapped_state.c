/* A model larger than memory: a keeper, a rank without units, has all weights, gradients and optimizer state in a mapped file; the rank that computes
   has two of the model's units at a time. Memory is limited to a part of what the model needs, so that it would not fit by itself.
     mapped_state [FILE]      trains on the beginning of FILE (default: this file) */
#define _DEFAULT_SOURCE /* tmpfile, mmap, setrlimit */
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#include "hetrain_plan.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LIMITED 0 /* a sanitizer needs more than any limit leaves */
#else
#define LIMITED 1
#endif

enum { TOKENS = 64, LAYERS = 6, STEPS = 2 };
typedef struct text { int32_t token[TOKENS], target[TOKENS]; int64_t start[2]; het_batch batch; } text;

/* ---- an allocator whose memory is a file: the system writes out what is not in use ---- */

static void *map_file(void *user, size_t size, size_t align) {
    FILE *file = tmpfile();
    void *memory = MAP_FAILED;
    (void)user, (void)align; /* pages are aligned to more */
    if (file == NULL) return NULL;
    if (ftruncate(fileno(file), (off_t)size) == 0) memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    fclose(file); /* the mapping keeps it */
    return memory == MAP_FAILED ? NULL : memory;
}

static void unmap_file(void *user, void *memory, size_t size) {
    (void)user;
    if (memory != NULL) munmap(memory, size);
}

/* ---- training ---- */

static int read_text(text *t, const char *path) {
    FILE *file = fopen(path, "rb");
    int i, byte = 0;
    memset(t, 0, sizeof *t);
    if (file == NULL) return 0;
    for (i = 0; i <= TOKENS && (byte = fgetc(file)) != EOF; i++) {
        if (i < TOKENS) t->token[i] = byte;
        if (i > 0) t->target[i - 1] = byte;
    }
    fclose(file);
    t->start[1] = t->batch.tokens = TOKENS;
    t->batch.sequences = 1, t->batch.token = t->token, t->batch.target = t->target, t->batch.sequence_start = t->start;
    return byte != EOF;
}

/* By itself or, with keeps, beside a keeper. */
static het_result train(const text *t, int keeps, uint64_t *weights, double *loss, het_error *error) {
    static const char plan_text[] = "{\"shard\":\"weights\",\"keepers\":[1],\"state_shares\":[0,1],"
                                    "\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,14]}]}]}";
    het_device_desc device[2];
    het_plan_desc of_plan;
    het_plan *plan = NULL;
    het_step_info info;
    het_memory memory;
    het_desc desc;
    het_ctx *ctx = NULL;
    het_result result = HET_OK;
    int step;
    memset(device, 0, sizeof device);
    memset(&of_plan, 0, sizeof of_plan);
    memset(&desc, 0, sizeof desc);
    device[1].allocator.alloc = map_file;
    device[1].allocator.free = unmap_file;
    of_plan.units = 2 * LAYERS + 2, of_plan.ranks = 2;
    desc.model.family = HET_LLAMA;
    desc.model.layers = LAYERS, desc.model.width = 384, desc.model.heads = 6, desc.model.context = TOKENS, desc.model.vocab = 256;
    desc.limits.max_tokens = TOKENS, desc.limits.max_micro_batches = 1;
    if (keeps) result = het_plan_read(&of_plan, plan_text, sizeof plan_text - 1, &plan, error);
    desc.layout.plan = plan, desc.layout.devices = device, desc.layout.device_count = 1 + keeps;
    if (result == HET_OK) result = het_create(&desc, &ctx, error);
    for (step = 0; step < STEPS && result == HET_OK; step++) {
        result = het_step(ctx, &t->batch, 1, &info);
        if (result == HET_OK) *loss = info.loss;
    }
    if (result == HET_OK) result = het_hash(ctx, weights);
    if (result != HET_OK && ctx != NULL) snprintf(error->text, sizeof error->text, "%s", het_last_error(ctx));
    for (step = 0; step <= keeps && ctx != NULL; step++) {
        het_get_memory(ctx, step, &memory);
        printf("  rank %d: %.1f MB on its device, %.1f MB of these optimizer state\n", step, 1e-6 * (double)memory.device,
               1e-6 * (double)memory.optimizer);
    }
    het_destroy(ctx);
    het_plan_free(plan);
    return result;
}

/* Lets the process have `bytes` more of memory that is not a file's. */
static int limit_memory(double bytes) {
    struct rlimit limit;
    FILE *file = fopen("/proc/self/statm", "r");
    long pages[6] = { 0, 0, 0, 0, 0, 0 };
    if (!LIMITED || file == NULL) return 0;
    if (fscanf(file, "%ld %ld %ld %ld %ld %ld", &pages[0], &pages[1], &pages[2], &pages[3], &pages[4], &pages[5]) != 6) pages[5] = 0;
    fclose(file);
    limit.rlim_cur = limit.rlim_max = (rlim_t)((double)pages[5] * (double)sysconf(_SC_PAGESIZE) + bytes);
    return pages[5] > 0 && setrlimit(RLIMIT_DATA, &limit) == 0;
}

int main(int argc, char **argv) {
    text t;
    uint64_t whole = 0, kept = 0;
    double loss[2] = { 0, 0 };
    het_error error;
    het_result result;
    if (!read_text(&t, argc > 1 ? argv[1] : __FILE__))
        return fprintf(stderr, "mapped_state: %s cannot be read, or has fewer than %d bytes\n", argc > 1 ? argv[1] : __FILE__, TOKENS + 1), 2;
    printf("alone:\n");
    result = train(&t, 0, &whole, &loss[0], &error);
    if (result == HET_OK && limit_memory(120e6)) {
        printf("alone, with 120 MB:\n");
        result = train(&t, 0, &kept, &loss[1], &error);
        printf("  %s\n", result == HET_OK ? "it fits: this system does not count it" : error.text);
    }
    printf("beside a keeper with a mapped file:\n");
    result = train(&t, 1, &kept, &loss[1], &error);
    if (result != HET_OK) return fprintf(stderr, "%s\n", error.text), 1;
    printf("loss %.6f and %.6f, weights %016llx and %016llx: %s\n", loss[0], loss[1], (unsigned long long)whole, (unsigned long long)kept,
           whole == kept ? "the same bits" : "they differ");
    return whole == kept ? 0 : 1;
}
