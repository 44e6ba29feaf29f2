/* Recommendation with a table too large for one rank: each of 4 ranks owns every fourth row, and the rows of batch t + 1 come by all-to-all while
   batch t is trained (nested pipelining, NestPipe 2026). They come as they were before batch t; what batch t changes in them is patched
   into the second buffer, so that losses are those of waiting for every lookup, to the last bit.
     recsys [STEPS]      40
   A session is a row of items (drawn here: of one genre mostly); the model sees each item's table row and predicts the next item's genre. */
#define _POSIX_C_SOURCE 200809L /* threads, clock_gettime, nanosleep */
#define HETRAIN_IMPLEMENTATION
#include "hetrain.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A lookup hides behind a step that takes longer: the dense part is mostly wide MLPs, as such models have, some 30 ms a step on two cores. */
enum { RANKS = 4, ITEMS = 20000, GENRES = 32, WIDTH = 64, MLP = 2048, LENGTH = 64, SESSIONS = 4, TOKENS = LENGTH * SESSIONS };
static const double LATENCY = 3e-3; /* emulated: of an all-to-all; a lookup has two, of numbers and of rows */
/* A batch of every rank: rank m's sessions are micro-batch m. row: as looked up, for each token; gradient: of each token's row. */
typedef struct batch {
    int64_t step;
    int32_t item[RANKS][TOKENS], token[RANKS][TOKENS], target[RANKS][TOKENS];
    float row[RANKS][TOKENS][WIDTH], gradient[RANKS][TOKENS][WIDTH];
    het_batch micro[RANKS];
    double seconds, messages; /* of the lookup */
} batch;
static float shard[RANKS][ITEMS / RANKS][WIDTH]; /* item i is row i / RANKS of rank i % RANKS */
static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static uint64_t draw(uint64_t *state) { return het_xxh64(state, sizeof *state, ++*state); }

/* Sessions of step `step`: an item's genre is its number modulo GENRES; a session keeps to its genre three times of four. Popular items come in
   most batches, so that batch t changes rows that t + 1 has looked up already. */
static void sessions(batch *b, int64_t step) {
    static const int64_t bounds[SESSIONS + 1] = { 0, LENGTH, 2 * LENGTH, 3 * LENGTH, 4 * LENGTH };
    uint64_t state = (uint64_t)step << 20;
    int m, i;
    b->step = step, b->messages = 0;
    for (m = 0; m < RANKS; m++) {
        int32_t genre = 0;
        for (i = 0; i < TOKENS; i++) {
            const uint64_t d = draw(&state), popular = d >> 40 & 3;
            if (i % LENGTH == 0 || (d & 3) == 0) genre = (int32_t)(d >> 8 & (GENRES - 1));
            b->item[m][i] = (int32_t)((popular ? d >> 16 & 7 : d >> 16 & 511) * GENRES) + genre;
            b->token[m][i] = 0, b->target[m][i] = -1;
            if (i % LENGTH > 0) b->target[m][i - 1] = genre;
        }
        memset(&b->micro[m], 0, sizeof b->micro[m]);
        b->micro[m].tokens = TOKENS, b->micro[m].sequences = SESSIONS, b->micro[m].sequence_start = bounds;
        b->micro[m].token = b->token[m], b->micro[m].target = b->target[m];
    }
}

/* The all-to-all: rank m tells owner o which rows it wants, owner o sends them; a message to each other rank both ways. */
static void *look_up(void *user) {
    const struct timespec latency = { 0, (long)(1e9 * LATENCY) };
    batch *b = (batch *)user;
    const double begin = seconds_now();
    int m, o, i;
    nanosleep(&latency, NULL); /* numbers of rows */
    for (m = 0; m < RANKS; m++)
        for (o = 0; o < RANKS; o++) {
            for (i = 0; i < TOKENS; i++)
                if (b->item[m][i] % RANKS == o) memcpy(b->row[m][i], shard[o][b->item[m][i] / RANKS], sizeof b->row[m][i]);
            b->messages += 2 * (m != o);
        }
    nanosleep(&latency, NULL); /* rows */
    b->seconds = seconds_now() - begin;
    return NULL;
}

/* The rows stand in for the embedding's output; its gradient, which the next unit gives back, is theirs. A step that is measured again
   computes the same again: so both are copied, not added. */
static het_result rows(void *user, const het_hook_info *info) {
    batch *b = *(batch **)user;
    if (info->direction == HET_FORWARD && info->unit == 0) memcpy(info->stream[0], b->row[info->micro_batch], sizeof b->row[0]);
    if (info->direction == HET_BACKWARD && info->unit == 1) memcpy(b->gradient[info->micro_batch], info->stream[0], sizeof b->gradient[0]);
    return HET_OK;
}

/* Owners take a step of plain gradient descent with the rows that batch `b` used; of `next`, looked up before, these rows alone are patched. Returns
   how many it has. */
static int64_t update(const batch *b, batch *next, double weight) {
    static int64_t changed[ITEMS]; /* behind which step, from 1 */
    int64_t patched = 0;
    int m, i, k;
    for (m = 0; m < RANKS; m++)
        for (i = 0; i < TOKENS; i++, changed[b->item[m][i - 1]] = b->step + 1)
            for (k = 0; k < WIDTH; k++) shard[b->item[m][i] % RANKS][b->item[m][i] / RANKS][k] -= (float)(20 / weight) * b->gradient[m][i][k];
    for (m = 0; m < RANKS && next != NULL; m++)
        for (i = 0; i < TOKENS; i++) {
            const int32_t item = next->item[m][i];
            if (changed[item] != b->step + 1) continue;
            memcpy(next->row[m][i], shard[item % RANKS][item / RANKS], sizeof next->row[m][i]), patched++;
        }
    return patched;
}

typedef struct outcome { double loss[1000], waited, looked, stepped, messages; int64_t patched; } outcome; /* for rows; by lookups, steps */

/* ahead: looks up while it trains. */
static het_result train(int ahead, int64_t steps, outcome *o) {
    static batch room[2], *current;
    het_step_info info;
    het_desc desc;
    het_ctx *ctx = NULL;
    het_result result;
    uint64_t state = UINT64_MAX / 2;
    int64_t t, i;
    memset(&desc, 0, sizeof desc);
    for (i = 0; i < ITEMS * WIDTH; i++) (&shard[0][0][0])[i] = 0.04f * ((float)(draw(&state) >> 40) / 16777216.0f - 0.5f);
    desc.model.family = HET_LLAMA, desc.model.layers = 2, desc.model.context = LENGTH, desc.model.vocab = GENRES;
    desc.model.width = WIDTH, desc.model.mlp_width = MLP, desc.limits.max_tokens = TOKENS, desc.limits.max_micro_batches = RANKS;
    desc.optimizer.learning_rate = 2e-3f, desc.host.hook = rows, desc.host.user = &current;
    sessions(&room[0], 0), look_up(&room[0]);
    result = het_create(&desc, &ctx, NULL);
    for (t = 0; t < steps && result == HET_OK; t++) {
        batch *next = &room[(t + 1) % 2];
        pthread_t thread;
        double begin;
        current = &room[t % 2];
        sessions(next, t + 1);
        if (ahead && pthread_create(&thread, NULL, look_up, next) != 0) { result = HET_ERR_CALLBACK; break; }
        begin = seconds_now(), result = het_step(ctx, current->micro, RANKS, &info);
        o->stepped -= begin, begin = seconds_now(), o->stepped += begin;
        if (ahead) pthread_join(thread, NULL), o->waited += seconds_now() - begin;
        o->patched += update(current, ahead ? next : NULL, info.weight);
        if (!ahead) look_up(next), o->waited += next->seconds;
        o->looked += next->seconds, o->messages += next->messages, o->loss[t] = info.loss;
    }
    if (result != HET_OK) fprintf(stderr, "recsys: %s\n", ctx != NULL ? het_last_error(ctx) : het_result_text(result));
    het_destroy(ctx);
    return result;
}

int main(int argc, char **argv) {
    static outcome o[2];
    const int64_t steps = argc > 1 ? atoi(argv[1]) : 40;
    if (steps < 1 || steps >= 1000) return fprintf(stderr, "recsys [STEPS]: from 1 to 999 steps\n"), 2;
    for (int i = 0; i < 2; i++) {
        if (train(i, steps, &o[i]) != HET_OK) return 1;
        printf("%s: loss %.5f to %.5f; steps took %.3f s, lookups %.3f s, %.0f %% of it hidden; %d messages, %d of %d rows patched\n",
               i ? "one batch ahead" : "when needed", o[i].loss[0], o[i].loss[steps - 1], o[i].stepped, o[i].looked,
               100 * (1 - o[i].waited / o[i].looked), (int)o[i].messages, (int)o[i].patched, (int)(steps * RANKS * TOKENS));
    }
    return memcmp(o[0].loss, o[1].loss, sizeof o[0].loss) == 0 && o[1].loss[steps - 1] < 0.9 * o[1].loss[0] ? 0 : 1;
}
