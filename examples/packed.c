/* Documents of very different lengths on two unequal ranks in a pipeline: het_pack groups them into micro-batches that cost alike, for the next step
   while this one runs. Nothing is padded or dropped, and the weights are those of plain grouping and of one rank, bit for bit.
     packed [FILE [STEPS [PLAN SPEEDS]]]      FILE (default: this one) is cut into documents at blank lines; pp:0-5|6-9 1,0.5 */
#define PROGRAM "packed"
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#include "../programs/profile.h"

enum { CONTEXT = 512, DOCUMENTS = 32, TOKENS = 4096, MICRO_BATCHES = 8, RANKS = 16 };
typedef enum grouping { ONE_RANK, PLAIN, PACKED } grouping;

typedef struct text { const unsigned char *bytes; int64_t count, *start, *length; } text;

/* What a step needs. The thread that makes it owns it until it is joined. */
typedef struct work {
    const text *documents;
    het_pack_desc desc;
    int64_t step, micro_batches;
    grouping how;
    double predicted;
    het_result result;
    het_error error;
    int32_t token[DOCUMENTS * CONTEXT], target[DOCUMENTS * CONTEXT];
    int64_t start[DOCUMENTS + MICRO_BATCHES], sample[DOCUMENTS];
    het_batch batch[MICRO_BATCHES];
} work;

/* Tokens of a document are all its bytes but the last, targets all but the first; longer ones are cut at CONTEXT. */
static void split(text *t, size_t size) {
    size_t at = 0, i;
    while (at < size) {
        for (i = at; i < size && i - at <= CONTEXT && !(i > at && t->bytes[i] == '\n' && t->bytes[i - 1] == '\n'); i++) {}
        if (i - at >= 2) {
            t->start[t->count] = (int64_t)at;
            t->length[t->count++] = (int64_t)(i - at) - 1;
        }
        at = i > at ? i : at + 1;
    }
}

/* A micro-batch of `count` documents, appended to the arrays; every document is a sequence and a granule. */
static het_batch join(work *w, const int64_t *document, int64_t first, int64_t count, int64_t *tokens, int64_t *starts) {
    het_batch b;
    int64_t i, k;
    memset(&b, 0, sizeof b);
    b.token = w->token + *tokens, b.target = w->target + *tokens, b.sample_id = w->sample + first;
    b.sequence_start = b.granule_start = w->start + *starts;
    b.sequences = b.granules = count;
    for (i = 0; i < count; i++) {
        const int64_t number = document != NULL ? document[first + i] : first + i, d = (w->step * DOCUMENTS + number) % w->documents->count;
        const unsigned char *bytes = w->documents->bytes + w->documents->start[d];
        w->start[(*starts)++] = b.tokens;
        w->sample[first + i] = number;
        for (k = 0; k < w->documents->length[d]; k++, b.tokens++, ++*tokens) w->token[*tokens] = bytes[k], w->target[*tokens] = bytes[k + 1];
    }
    w->start[(*starts)++] = b.tokens;
    return b;
}

/* Both ways come from the same call: `order` and `start`, or granules as they stand in equal numbers. */
static void *prepare(void *user) {
    work *w = (work *)user;
    het_packing *k = NULL;
    int64_t length[DOCUMENTS], i, tokens = 0, starts = 0;
    for (i = 0; i < DOCUMENTS; i++) length[i] = w->documents->length[(w->step * DOCUMENTS + i) % w->documents->count];
    w->desc.granules = DOCUMENTS, w->desc.tokens = length;
    w->result = het_pack(&w->desc, &k, &w->error);
    if (w->result != HET_OK) return NULL;
    if (k->plain_micro_batches == 0) w->result = HET_ERR_LIMIT, snprintf(w->error.text, sizeof w->error.text, "plain micro-batches are too large");
    w->micro_batches = w->how == PACKED ? k->micro_batches : k->plain_micro_batches;
    w->predicted = w->how == PACKED ? k->seconds : k->plain_seconds;
    for (i = 0; i < w->micro_batches; i++) {
        const int64_t each = DOCUMENTS / w->micro_batches, left = DOCUMENTS % w->micro_batches;
        if (w->how == PACKED) w->batch[i] = join(w, k->order, k->start[i], k->start[i + 1] - k->start[i], &tokens, &starts);
        else w->batch[i] = join(w, NULL, i * each + (i < left ? i : left), each + (i < left), &tokens, &starts);
    }
    het_packing_free(k);
    return NULL;
}

/* Milliseconds are means without the first step, which is computed twice. */
static int train(het_desc desc, work *w[2], grouping how, int64_t steps, double *predicted, double *measured, uint64_t *hash) {
    het_ctx *ctx = NULL;
    het_error error = { HET_OK, "" };
    het_result result;
    int64_t n;
    if (how == ONE_RANK) desc.plan = NULL, desc.device_count = 1;
    result = het_create(&desc, &ctx, &error);
    *predicted = *measured = 0;
    w[0]->step = 0, w[0]->how = w[1]->how = how;
    prepare(w[0]);
    for (n = 0; result == HET_OK && n < steps; n++) {
        work *now = w[n % 2], *next = w[(n + 1) % 2];
        pthread_t thread;
        double start = seconds_now();
        next->step = n + 1;
        if (now->result != HET_OK || pthread_create(&thread, NULL, prepare, next) != 0) {
            het_destroy(ctx);
            return fail(FAILED, "step %d: %s", (int)n, now->result != HET_OK ? now->error.text : "no thread");
        }
        result = het_step(ctx, now->batch, now->micro_batches, NULL);
        if (n > 0) *measured += 1e3 * (seconds_now() - start) / (double)(steps - 1), *predicted += 1e3 * now->predicted / (double)(steps - 1);
        pthread_join(thread, NULL);
    }
    if (result == HET_OK) result = het_hash(ctx, hash);
    if (result != HET_OK) fail(FAILED, "%s", ctx != NULL ? het_last_error(ctx) : error.text);
    het_destroy(ctx);
    return result == HET_OK ? 0 : FAILED;
}

typedef struct costs { het_plan *plan; het_cluster *cluster; het_profile *profile; het_plan_costs *of_plan; } costs;

/* A short measurement of one kind of device, seen through a cluster of two. */
static int measure(const het_desc *desc, const char *plan, costs *c) {
    het_cluster_device device[RANKS];
    het_plan_desc plan_desc;
    het_error error = { HET_OK, "" };
    int64_t r;
    int status = profile_measure("profile", desc, "llama", CONTEXT, 0.2, &c->profile);
    if (status != 0) return status;
    memset(device, 0, sizeof device);
    memset(&plan_desc, 0, sizeof plan_desc);
    plan_desc.units = c->profile->units, plan_desc.ranks = desc->device_count;
    for (r = 0; r < desc->device_count; r++) {
        device[r].name[0] = (char)('a' + r), device[r].speed = desc->devices[r].speed;
        memcpy(device[r].profile, c->profile->device[0].name, sizeof device[r].profile);
    }
    if (het_cluster_flat(desc->device_count, device, c->profile->link[0].latency, c->profile->link[0].bandwidth, NULL, &c->cluster,
        &error) != HET_OK ||
        het_plan_read(&plan_desc, plan, strlen(plan), &c->plan, &error) != HET_OK ||
        het_profile_costs(c->profile, c->plan, c->cluster, HET_YES, NULL, &c->of_plan, &error) != HET_OK) return fail(FAILED, "%s", error.text);
    return 0;
}

int main(int argc, char **argv) {
    static const char *const names[] = { "one rank, plain", "plan, plain", "plan, packed" };
    const char *path = argc > 1 ? argv[1] : __FILE__, *speeds = argc > 4 ? argv[4] : "1,0.5";
    het_device_desc devices[RANKS];
    costs c = { NULL, NULL, NULL, NULL };
    work *w[2];
    het_desc desc;
    text t = { NULL, 0, NULL, NULL };
    size_t size = 0;
    int64_t steps = 4;
    double predicted[3], measured[3];
    uint64_t hash[3];
    int i, status = 0;
    char *bytes = read_small_file(path, &size);
    memset(&desc, 0, sizeof desc);
    memset(devices, 0, sizeof devices);
    for (; *speeds != 0 && desc.device_count < RANKS; speeds += *speeds == ',') {
        char *end;
        devices[desc.device_count].speed = strtod(speeds, &end);
        if (end == speeds || !(devices[desc.device_count++].speed > 0)) return fail(BAD_INPUT, "SPEEDS %s: numbers above 0", speeds);
        speeds = end;
    }
    desc.model.family = HET_LLAMA, desc.model.layers = 4, desc.model.width = 48, desc.model.context = CONTEXT;
    desc.devices = devices, desc.max_tokens = TOKENS, desc.max_sequences = DOCUMENTS, desc.max_micro_batches = MICRO_BATCHES;
    if (argc > 2 && !parse_integer(argv[2], 2, 1000, &steps)) return fail(BAD_INPUT, "STEPS %s: from 2 to 1000", argv[2]);
    w[0] = (work *)calloc(2, sizeof **w), w[1] = w[0] + 1;
    t.bytes = (const unsigned char *)bytes, t.start = (int64_t *)calloc(size + 2, sizeof *t.start), t.length = t.start + size / 2 + 1;
    if (bytes == NULL || w[0] == NULL || t.start == NULL) return fail(BAD_INPUT, "%s: cannot be read", path);
    split(&t, size);
    status = t.count == 0 ? fail(BAD_INPUT, "%s: no documents", path) : measure(&desc, argc > 3 ? argv[3] : "pp:0-5|6-9", &c);
    desc.plan = c.plan;
    for (i = 0; i < 2 && status == 0; i++) {
        w[i]->documents = &t, w[i]->desc.plan = c.plan, w[i]->desc.costs = &c.of_plan->costs;
        w[i]->desc.max_tokens = TOKENS, w[i]->desc.max_micro_batches = MICRO_BATCHES;
    }
    for (i = 0; i < 3 && status == 0; i++) {
        status = train(desc, w, (grouping)i, steps, &predicted[i], &measured[i], &hash[i]);
        if (status == 0) printf("%-15s  %7.1f ms measured, weights %016llx", names[i], measured[i], (unsigned long long)hash[i]);
        if (status == 0) printf(i > 0 ? ", %7.1f ms predicted\n" : "\n", predicted[i]);
    }
    if (status == 0) printf("plain / packed: %.2f measured, %.2f predicted\n", measured[1] / measured[2], predicted[1] / predicted[2]);
    if (status == 0 && (hash[0] != hash[1] || hash[0] != hash[2])) status = fail(FAILED, "the weights differ");
    het_plan_costs_free(c.of_plan);
    het_profile_free(c.profile);
    het_cluster_free(c.cluster);
    het_plan_free(c.plan);
    free(bytes), free(t.start), free(w[0]);
    return status;
}
