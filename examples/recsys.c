/* Recommendation with a table too large for one process: each of 4 processes, connected over TCP, owns every fourth row, and the rows of batch t + 1
   come by all-to-all while batch t is trained (nested pipelining, NestPipe 2026). They come as they were before batch t. So the gradients of batch t
   go to all, not to the rows' owners alone, and whoever holds a copy for batch t + 1 updates it as the owner does the row: losses are those of
   waiting for every lookup, to the last bit.
     recsys [STEPS]      40
   A session is a row of items (drawn here: of one genre mostly); the model sees each item's table row and predicts the next item's genre. */
#define HETRAIN_IMPLEMENTATION
#include "processes.h"

/* A lookup hides behind a step that takes longer: the dense part is mostly wide MLPs, as such models have. */
enum { RANKS = PROCESSES, ITEMS = 20000, GENRES = 32, WIDTH = 64, MLP = 2048, LENGTH = 64, SESSIONS = 4, TOKENS = LENGTH * SESSIONS };
typedef float table_row[WIDTH];

/* A batch of every rank: rank m's sessions are micro-batch m, which all draw. row: as looked up, for each token of this process; gradient: of each
   token's row. */
typedef struct batch {
    int32_t item[RANKS][TOKENS], token[RANKS][TOKENS], target[RANKS][TOKENS];
    table_row row[TOKENS], gradient[RANKS][TOKENS];
    het_batch micro[RANKS];
    double seconds; /* of the lookup; result: what came of it */
    het_result result;
} batch;
static table_row shard[ITEMS / RANKS]; /* item i is row i / RANKS of rank i % RANKS */
static processes all;
static uint64_t draw(uint64_t *state) { return het_xxh64(state, sizeof *state, ++*state); }

/* Sessions of step `step`: an item's genre is its number modulo GENRES; a session keeps to its genre three times of four. Popular items come in
   most batches, so that batch t changes rows that t + 1 has looked up already. */
static void sessions(batch *b, int64_t step) {
    static const int64_t bounds[SESSIONS + 1] = { 0, LENGTH, 2 * LENGTH, 3 * LENGTH, 4 * LENGTH };
    uint64_t state = (uint64_t)step << 20;
    int m, i;
    memset(b, 0, sizeof *b);
    for (m = 0; m < RANKS; m++) {
        int32_t genre = 0;
        for (i = 0; i < TOKENS; i++) {
            const uint64_t d = draw(&state), popular = d >> 40 & 3;
            if (i % LENGTH == 0 || (d & 3) == 0) genre = (int32_t)(d >> 8 & (GENRES - 1));
            b->item[m][i] = (int32_t)((popular ? d >> 16 & 7 : d >> 16 & 511) * GENRES) + genre, b->target[m][i] = -1;
            if (i % LENGTH > 0) b->target[m][i - 1] = genre;
        }
        b->micro[m].tokens = TOKENS, b->micro[m].sequences = SESSIONS, b->micro[m].sequence_start = bounds;
        b->micro[m].token = b->token[m], b->micro[m].target = b->target[m];
    }
}

/* Every owner gives every rank the rows of its tokens, in their order. */
static int owns(const batch *b, int from, int to, int i) { return b->item[to][i] % RANKS == from; }
static void *look_up(void *user) {
    static table_row room[2][RANKS][TOKENS];                  /* given, taken */
    const struct timespec latency = { 0, 3000000 };     /* emulated, between machines */
    batch *b = (batch *)user;
    float *at[2][RANKS];
    size_t count[2][RANKS];
    int p, i;
    b->seconds = -seconds_now();
    nanosleep(&latency, NULL);
    for (p = 0; p < RANKS; p++) {
        at[0][p] = room[0][p][0], at[1][p] = room[p != all.me][p][0];
        for (count[0][p] = count[1][p] = 0, i = 0; i < TOKENS; i++) {
            if (owns(b, all.me, p, i)) memcpy(at[0][p] + count[0][p], shard[b->item[p][i] / RANKS], sizeof(table_row)), count[0][p] += WIDTH;
            if (owns(b, p, all.me, i)) count[1][p] += WIDTH;
        }
    }
    b->result = all_to_all(&all, at[0], count[0], at[1], count[1]);
    for (p = 0; p < RANKS; p++)
        for (i = 0; i < TOKENS; i++)
            if (owns(b, p, all.me, i)) memcpy(b->row[i], at[1][p], sizeof(table_row)), at[1][p] += WIDTH;
    b->seconds += seconds_now();
    return NULL;
}

/* The rows stand in for the embedding's output; its gradient, which the next unit gives back, is theirs. A step that is measured again
   computes the same again: so both are copied, not added. */
static het_result rows(void *user, const het_hook_info *info) {
    batch *b = *(batch **)user;
    if (info->direction == HET_FORWARD && info->unit == 0) memcpy(info->stream[0], b->row, sizeof b->row);
    if (info->direction == HET_BACKWARD && info->unit == 1) memcpy(b->gradient[info->micro_batch], info->stream[0], sizeof b->gradient[0]);
    return HET_OK;
}

typedef struct outcome { double loss[1000], waited, looked, stepped; int64_t patches; } outcome; /* for rows; by lookups, steps; copies changed */

/* Plain gradient descent, one token's gradient behind the other, for rows of this rank and for its copies of rows alike. */
static het_result update(batch *b, batch *next, float rate, int64_t *patches) {
    float *give[RANKS], *take[RANKS];
    size_t count[RANKS];
    het_result result;
    int m, i, n, k;
    for (m = 0; m < RANKS; m++) give[m] = b->gradient[all.me][0], take[m] = b->gradient[m][0], count[m] = TOKENS * WIDTH;
    result = all_to_all(&all, give, count, take, count);
    for (m = 0; m < RANKS; m++)
        for (i = 0; i < TOKENS; i++)
            for (n = -1; n < (next != NULL ? TOKENS : 0); n++) { /* -1: the row itself */
                const int32_t item = b->item[m][i];
                float *to = n < 0 ? shard[item / RANKS] : next->row[n];
                if (n < 0 ? item % RANKS != all.me : next->item[all.me][n] != item) continue;
                for (k = 0; k < WIDTH; k++) to[k] -= rate * b->gradient[m][i][k];
                *patches += n >= 0;
            }
    return result;
}

static het_result train(int ahead, int64_t steps, outcome *o) { /* ahead: looks up while it trains */
    static batch room[2], *current;
    het_step_info info;
    het_desc desc;
    het_ctx *ctx = NULL;
    het_result result;
    uint64_t state = (uint64_t)(all.me + 1) << 40;
    int64_t t, i;
    memset(&desc, 0, sizeof desc);
    for (i = 0; i < ITEMS / RANKS * WIDTH; i++) (&shard[0][0])[i] = 0.04f * ((float)(draw(&state) >> 40) / 16777216.0f - 0.5f);
    desc.model.family = HET_LLAMA, desc.model.layers = 2, desc.model.context = LENGTH, desc.model.vocab = GENRES;
    desc.model.width = WIDTH, desc.model.mlp_width = MLP, desc.limits.max_tokens = TOKENS, desc.limits.max_micro_batches = RANKS;
    desc.optimizer.learning_rate = 2e-3f, desc.host.hook = rows, desc.host.user = &current, desc.layout.transport = all.transport;
    sessions(&room[0], 0), look_up(&room[0]);
    result = room[0].result == HET_OK ? het_create(&desc, &ctx, NULL) : room[0].result;
    for (t = 0; t < steps && result == HET_OK; t++) {
        batch *next = &room[(t + 1) % 2];
        pthread_t thread;
        current = &room[t % 2];
        sessions(next, t + 1);
        if (ahead && pthread_create(&thread, NULL, look_up, next) != 0) { result = HET_ERR_CALLBACK; break; }
        o->stepped -= seconds_now(), result = het_step(ctx, current->micro, RANKS, &info), o->stepped += seconds_now();
        if (ahead) o->waited -= seconds_now(), pthread_join(thread, NULL), o->waited += seconds_now();
        if (result == HET_OK) result = update(current, ahead ? next : NULL, (float)(20 / info.weight), &o->patches);
        if (!ahead && result == HET_OK) look_up(next), o->waited += next->seconds;
        if (result == HET_OK) result = next->result, o->looked += next->seconds, o->loss[t] = info.loss;
    }
    if (result != HET_OK) fprintf(stderr, "recsys: %s\n", ctx != NULL ? het_last_error(ctx) : all.transport.iface->last_error(all.transport.self));
    het_destroy(ctx);
    return result;
}

int main(int argc, char **argv) {
    static outcome o[2];
    const int64_t steps = argc > 1 ? strtol(argv[1], NULL, 10) : 40;
    int i, bad = 0;
    if (steps < 1 || steps >= 1000) return fprintf(stderr, "recsys [STEPS]: from 1 to 999 steps\n"), 2;
    bad = processes_start(&all) != HET_OK;
    for (i = 0; i < 2 && !bad; i++) {
        bad = train(i, steps, &o[i]) != HET_OK;
        if (all.me == 0 && !bad)
            printf("%s: loss %.5f to %.5f; steps took %.3f s, lookups %.3f s, %.0f %% of it hidden; copies patched %d times\n",
                   i ? "one batch ahead" : "when needed", o[i].loss[0], o[i].loss[steps - 1], o[i].stepped, o[i].looked,
                   100 * (1 - o[i].waited / o[i].looked), (int)o[i].patches);
    }
    return processes_end(&all, bad || memcmp(o[0].loss, o[1].loss, sizeof o[0].loss) != 0 || o[1].loss[steps - 1] > o[1].loss[0]);
}
