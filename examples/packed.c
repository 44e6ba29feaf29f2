/* Documents of very different lengths on two unequal ranks in a pipeline: het_pack groups them into micro-batches that cost alike, for the next step
   while this one runs. Nothing is padded or dropped, and the weights are those of plain grouping and of one rank, bit for bit.
     packed [FILE [STEPS]]      FILE (default: this one) is cut into documents at blank lines */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#define HETRAIN_SEARCH_IMPLEMENTATION
#include "hetrain_search.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CONTEXT = 512, DOCUMENTS = 32, TOKENS = 4096, MICRO_BATCHES = 8, RANKS = 2, FILE_LIMIT = 1 << 20 };
typedef enum grouping { ONE_RANK, PLAIN, PACKED } grouping;
typedef struct text { unsigned char bytes[FILE_LIMIT]; int64_t count, start[FILE_LIMIT], length[FILE_LIMIT]; } text;

/* A step. The thread that makes it owns it until it is joined. */
typedef struct work {
    const text *documents;
    het_pack_desc desc;
    int64_t step, micro_batches, start[DOCUMENTS + MICRO_BATCHES], sample[DOCUMENTS];
    grouping how;
    double predicted;
    het_result result;
    het_error error;
    int32_t token[DOCUMENTS * CONTEXT], target[DOCUMENTS * CONTEXT];
    het_batch batch[MICRO_BATCHES];
} work;

/* Tokens of a document are all its bytes but the last, targets all but the first; longer ones are cut at CONTEXT. */
static void split(text *t, int64_t size) {
    int64_t at, i;
    for (at = 0; at < size; at = i > at ? i : at + 1) {
        for (i = at; i < size && i - at <= CONTEXT && !(i > at && t->bytes[i] == '\n' && t->bytes[i - 1] == '\n'); i++) {}
        if (i - at >= 2) t->start[t->count] = at, t->length[t->count++] = i - at - 1;
    }
}

/* Appends a micro-batch of documents to the arrays of `w`; every document is a sequence and a granule. `number`: of each in its step. */
static void append(work *w, het_batch *b, const int64_t *number, int64_t count, int64_t *tokens, int64_t *starts) {
    int64_t i, k;
    memset(b, 0, sizeof *b);
    b->token = w->token + *tokens, b->target = w->target + *tokens, b->sample_id = number;
    b->sequence_start = b->granule_start = w->start + *starts;
    b->sequences = b->granules = count;
    for (i = 0; i < count; i++) {
        const int64_t d = (w->step * DOCUMENTS + number[i]) % w->documents->count;
        const unsigned char *bytes = w->documents->bytes + w->documents->start[d];
        w->start[(*starts)++] = b->tokens;
        for (k = 0; k < w->documents->length[d]; k++, b->tokens++, ++*tokens) w->token[*tokens] = bytes[k], w->target[*tokens] = bytes[k + 1];
    }
    w->start[(*starts)++] = b->tokens;
}

/* Both ways come from the same call: `order` and `start`, or documents as they stand, in equal numbers. */
static void *prepare(void *user) {
    work *w = (work *)user;
    het_packing *k = NULL;
    int64_t length[DOCUMENTS], i, tokens = 0, starts = 0;
    for (i = 0; i < DOCUMENTS; i++) length[i] = w->documents->length[(w->step * DOCUMENTS + i) % w->documents->count];
    w->desc.granules = DOCUMENTS, w->desc.tokens = length;
    w->result = het_pack(&w->desc, &k, &w->error);
    if (w->result != HET_OK) return NULL;
    w->micro_batches = w->how == PACKED ? k->micro_batches : k->plain_micro_batches;
    w->predicted = w->how == PACKED ? k->seconds : k->plain_seconds;
    for (i = 0; i < DOCUMENTS; i++) w->sample[i] = w->how == PACKED ? k->order[i] : i;
    for (i = 0; i < w->micro_batches; i++) {
        const int64_t begin = w->how == PACKED ? k->start[i] : i * DOCUMENTS / w->micro_batches;
        const int64_t end = w->how == PACKED ? k->start[i + 1] : (i + 1) * DOCUMENTS / w->micro_batches;
        append(w, &w->batch[i], w->sample + begin, end - begin, &tokens, &starts);
    }
    het_packing_free(k);
    return NULL;
}

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* While het_step computes a step, a thread prepares the next. Times are of all steps but the first. */
static het_result train(const het_desc *desc, work w[2], const char *name, int64_t steps, uint64_t *hash, het_error *error) {
    double predicted = 0, measured = 0;
    het_ctx *ctx = NULL;
    het_result result = het_create(desc, &ctx, error);
    int64_t n = w[0].step = 0;
    for (prepare(&w[0]); result == HET_OK && n < steps; n++) {
        work *now = &w[n % 2], *next = &w[(n + 1) % 2];
        const double begin = seconds_now();
        pthread_t thread;
        next->step = n + 1;
        *error = now->error, result = now->result;
        if (result != HET_OK || pthread_create(&thread, NULL, prepare, next) != 0) break;
        result = het_step(ctx, now->batch, now->micro_batches, NULL);
        if (result != HET_OK) strcpy(error->text, het_last_error(ctx));
        pthread_join(thread, NULL);
        if (n > 0) measured += seconds_now() - begin, predicted += now->predicted;
    }
    if (result == HET_OK && n == steps) result = het_hash(ctx, hash);
    printf("%-15s  %7.2f s measured, %5.2f s predicted, weights %016llx\n", name, measured, predicted, (unsigned long long)*hash);
    het_destroy(ctx);
    return result;
}

int main(int argc, char **argv) {
    static const char *const names[] = { "one rank, plain", "plan, plain", "plan, packed" }, split_in_two[] = "pp:0-5|6-9";
    static const double work_of[RANKS] = { 6 / 1.0, 4 / 0.5 }; /* units of a stage by the speed of its rank */
    static text t;
    static work w[2];
    het_stage_cost stage[RANKS];
    het_device_desc devices[RANKS];
    het_plan *plan = NULL;
    het_plan_desc plan_desc;
    het_costs costs;
    het_desc desc;
    het_error error = { HET_OK, "" };
    het_result result;
    const long steps = argc > 2 ? strtol(argv[2], NULL, 10) : 4;
    uint64_t hash[3] = { 1, 2, 3 };
    FILE *file = fopen(argc > 1 ? argv[1] : __FILE__, "rb");
    if (file != NULL) split(&t, (int64_t)fread(t.bytes, 1, FILE_LIMIT, file)), fclose(file);
    if (t.count == 0 || steps < 1) return fprintf(stderr, "packed [FILE [STEPS]]: no document in %s, or no step\n", argc > 1 ? argv[1] : __FILE__), 2;
    memset(&desc, 0, sizeof desc), memset(devices, 0, sizeof devices), memset(stage, 0, sizeof stage);
    memset(&plan_desc, 0, sizeof plan_desc), memset(&costs, 0, sizeof costs);
    devices[0].speed = 1, devices[1].speed = 0.5;
    desc.model.family = HET_LLAMA, desc.model.layers = 4, desc.model.width = 48, desc.model.context = CONTEXT;
    desc.layout.devices = devices, desc.layout.device_count = RANKS;
    desc.limits.max_tokens = TOKENS, desc.limits.max_sequences = DOCUMENTS, desc.limits.max_micro_batches = MICRO_BATCHES;
    plan_desc.units = 2 * desc.model.layers + 2, plan_desc.ranks = RANKS;
    result = het_plan_read(&plan_desc, split_in_two, strlen(split_in_two), &plan, &error);
    for (int i = 0; i < RANKS; i++) { /* roughly, in seconds: het_profile_measure and het_profile_costs would measure them */
        stage[i].forward.token = 1.2e-6 * work_of[i], stage[i].backward.token = 2.4e-6 * work_of[i];
        stage[i].forward.pair = 3e-9 * work_of[i], stage[i].backward.pair = 6e-9 * work_of[i];
    }
    costs.stage = stage;
    for (int i = 0; i < 3 && result == HET_OK; i++) {
        w[0].documents = &t, w[0].how = (grouping)i, w[0].desc.plan = plan, w[0].desc.costs = &costs;
        w[0].desc.max_tokens = TOKENS, w[0].desc.max_micro_batches = MICRO_BATCHES;
        w[1] = w[0];
        desc.layout.plan = i == ONE_RANK ? NULL : plan, desc.layout.device_count = i == ONE_RANK ? 1 : RANKS;
        result = train(&desc, w, names[i], steps, &hash[i], &error);
    }
    if (result != HET_OK) fprintf(stderr, "packed: %s: %s\n", het_result_text(result), error.text);
    het_plan_free(plan);
    return result == HET_OK && hash[0] == hash[1] && hash[0] == hash[2] ? 0 : 1;
}
