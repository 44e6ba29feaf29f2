/* A search for settings on groups of ranks: 8 trials by successive halving (Jamieson, Talwalkar, arXiv 1502.07943). Of each rung's trials the better
   half goes on with twice the steps, and on twice the ranks where there are fewer trials than ranks.
     hpo [FILE [RANKS]]      trains on FILE's bytes (default: this one), on 1 and on RANKS ranks (4)
   A loss is a function of settings, data and seed alone, not of the ranks that a trial got: so the same trial wins everywhere, with the same bits. */
#define _POSIX_C_SOURCE 200809L /* threads */
#define HETRAIN_IMPLEMENTATION
#include "hetrain.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIALS = 8, FIRST = 6, CONTEXT = 64, MICRO_BATCHES = 4, MOST_RANKS = 64, FILE_LIMIT = 1 << 20 }; /* FIRST: steps of the first rung */

typedef struct trial { float rate; int64_t width; int steps, ranks; double loss; uint64_t weights; het_result result; het_error error; } trial;

/* What one thread has: the trials `next`, next + groups, ... of a rung, one behind the other, on `ranks` ranks of its own. */
typedef struct worker { trial **list; int count, next, groups; } worker;

static unsigned char bytes[FILE_LIMIT];
static int64_t size;

static uint64_t mixed(uint64_t z) { /* splitmix64's finalizer */
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* Micro-batch `m` of step `step`: a window somewhere in the first 7/8 of the text. Validation: step -1, in the last eighth. */
static void window(int64_t step, int m, int32_t token[CONTEXT + 1], het_batch *b) {
    static const int64_t bounds[2] = { 0, CONTEXT };
    const uint64_t draw = mixed((uint64_t)(step * MICRO_BATCHES + m) * 0x9E3779B97F4A7C15u + 7);
    const int64_t limit = size * 7 / 8, at = step < 0 ? limit + m * ((size - limit - CONTEXT - 1) / MICRO_BATCHES) :
        (int64_t)(draw % (uint64_t)(limit - CONTEXT - 1));
    int i;
    for (i = 0; i <= CONTEXT; i++) token[i] = bytes[at + i];
    memset(b, 0, sizeof *b);
    b->tokens = CONTEXT, b->sequences = 1, b->sequence_start = bounds, b->token = token, b->target = token + 1;
}

static void run_trial(trial *t) {
    int32_t token[MICRO_BATCHES][CONTEXT + 1];
    het_batch batch[MICRO_BATCHES];
    het_device_desc devices[MOST_RANKS];
    het_step_info info;
    het_desc desc;
    het_ctx *ctx = NULL;
    int step, m;
    memset(&desc, 0, sizeof desc), memset(devices, 0, sizeof devices);
    desc.model.family = HET_LLAMA, desc.model.layers = 1, desc.model.width = t->width, desc.model.context = CONTEXT;
    desc.optimizer.learning_rate = t->rate, desc.optimizer.schedule = HET_LR_CONSTANT;
    desc.limits.max_tokens = CONTEXT, desc.limits.max_micro_batches = MICRO_BATCHES;
    desc.layout.devices = devices, desc.layout.device_count = t->ranks;
    t->result = het_create(&desc, &ctx, &t->error);
    for (step = 0; step <= t->steps && t->result == HET_OK; step++) {
        for (m = 0; m < MICRO_BATCHES; m++) window(step < t->steps ? step : -1, m, token[m], &batch[m]);
        t->result = step < t->steps ? het_step(ctx, batch, MICRO_BATCHES, &info) : het_evaluate(ctx, batch, MICRO_BATCHES, &info);
    }
    t->loss = info.loss;
    if (t->result == HET_OK) t->result = het_hash(ctx, &t->weights);
    else if (ctx != NULL) strcpy(t->error.text, het_last_error(ctx));
    het_destroy(ctx);
}

static void *work(void *user) {
    worker *w = (worker *)user;
    int i;
    for (i = w->next; i < w->count; i += w->groups) run_trial(w->list[i]);
    return NULL;
}

static int better_first(const void *a, const void *b) {
    const trial *x = *(trial *const *)a, *y = *(trial *const *)b;
    return x->loss < y->loss ? -1 : x->loss > y->loss;
}

/* All rungs on so many ranks. Returns the winner, or NULL where a trial failed: it is told. */
static trial *search(trial trials[TRIALS], int ranks) {
    trial *alive[TRIALS];
    int count, steps, i;
    for (i = 0; i < TRIALS; i++) {
        memset(&trials[i], 0, sizeof trials[i]);
        trials[i].rate = 4e-4f * (float)(1 << i % 4 * 2), trials[i].width = i < 4 ? 32 : 64;
        alive[i] = &trials[i];
    }
    for (count = TRIALS, steps = FIRST; ; count /= 2, steps *= 2) {
        const int groups = count < ranks ? count : ranks;
        pthread_t thread[MOST_RANKS];
        worker w[MOST_RANKS];
        for (i = 0; i < count; i++) alive[i]->steps = steps, alive[i]->ranks = ranks / groups;
        for (i = 0; i < groups; i++) {
            w[i].list = alive, w[i].count = count, w[i].next = i, w[i].groups = groups;
            if (pthread_create(&thread[i], NULL, work, &w[i]) != 0) return NULL;
        }
        for (i = 0; i < groups; i++) pthread_join(thread[i], NULL);
        for (i = 0; i < count; i++)
            if (alive[i]->result != HET_OK) return fprintf(stderr, "hpo: %s\n", alive[i]->error.text), (trial *)NULL;
        qsort(alive, (size_t)count, sizeof *alive, better_first);
        printf("%d ranks: %d trials of %2d steps, %d at a time on %d ranks each; best: rate %g, width %d, validation loss %.4f\n", ranks, count,
               steps, groups, ranks / groups, (double)alive[0]->rate, (int)alive[0]->width, alive[0]->loss);
        if (count == 1) return alive[0];
    }
}

int main(int argc, char **argv) {
    static trial one[TRIALS], many[TRIALS];
    const long ranks = argc > 2 ? strtol(argv[2], NULL, 10) : 4;
    trial *a = NULL, *b = NULL;
    FILE *file = fopen(argc > 1 ? argv[1] : __FILE__, "rb");
    if (file != NULL) size = (int64_t)fread(bytes, 1, FILE_LIMIT, file), fclose(file);
    if (size < 64 * CONTEXT || ranks < 1 || ranks > MOST_RANKS)
        return fprintf(stderr, "hpo [FILE [RANKS]]: %d bytes could be read, at least %d are needed; 1 to %d ranks\n", (int)size, 64 * CONTEXT,
                       (int)MOST_RANKS), 2;
    a = search(one, 1);
    b = search(many, (int)ranks);
    if (a == NULL || b == NULL) return 1;
    printf("trial %d wins on 1 rank and trial %d on %d: weights %016llx and %016llx\n", (int)(a - one), (int)(b - many), (int)ranks,
           (unsigned long long)a->weights, (unsigned long long)b->weights);
    return a - one == b - many && a->weights == b->weights ? 0 : 1;
}
