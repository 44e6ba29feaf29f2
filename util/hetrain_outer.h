/* hetrain_outer.h 0.2.0: islands. Contexts with plans of their own, unequal and far apart, train
   many steps each by itself and then join by one outer step (DiLoCo, arXiv 2311.08105). A companion
   of hetrain.h that uses only its public API.

   USE
       #define HETRAIN_OUTER_IMPLEMENTATION      in one source file
       #include "hetrain_outer.h"
       het_outer_desc desc;
       memset(&desc, 0, sizeof desc);
       desc.islands = 2, desc.island = me, desc.transport = t;
       het_outer_create(&desc, ctx, &outer, &error)            all islands take island 0's weights
       loop: some steps of het_step on own data; het_outer_join(outer, tokens)
       het_outer_destroy(outer)
   An island is one process or thread with any number of ranks. One k times slower makes a k-th of
   the steps.

   A JOIN   delta_i = global - weights of island i; D = sum_i (tokens_i / sum of tokens) delta_i,
   islands ascending, a chain of fma in double; m = momentum m + D; global = global - rate (D +
   momentum m) (Nesterov). All islands go on from global, each with its optimizer's own state. All
   compute the same from the same bytes: equal bits over any transport, whoever was late. An island
   whose weights are not finite, or 1e38 from global, counts as one without tokens. A join sends 4
   bytes an element to every other island; data parallelism of two sends 6 a step.
   PACE   With desc.pace, what a round of this island takes as simulated, nobody waits for islands
   that come later: joins are in the order of these times, n-th rounds at n pace; those of one time
   together, D times their part of all islands. A delta is from where the island's round began. So
   the order is known before, and bits are equal however long rounds then take: an island that is
   faster than was simulated waits.
   FRAGMENTS   With P of them a join is of one after the other (arXiv 2501.18512): parameters in P
   runs of about equal size. Join P times as often: a P-th of the bytes at once.
   BITS   A delta travels as integers of 2, 4 or 8 bits, with a scale for each 256 of them: q =
   floor(x L / s + 1/2), s the largest |x|, L = 2^(bits-1) - 1. What is lost is added to the next
   delta (error feedback). An island averages its own delta as the others see it.
   DEATH   With `open` a failed exchange closes the transport and opens it anew; an island that was
   started again comes to the same opening. Who is behind takes global and m from the lowest island
   that is not. Is that one who was started again, it joins the round that the others are in with 0
   tokens; their deltas wait as long as `open` does. One that comes with other settings ends alone.
   Without `open` a failure is the end.
   GOING ON   het_outer_state, saved beside the context at any step, is what the description of a
   later outer takes: equal bits, for one island alone too, if no join of its own is missing.

   OPTIONS   (macros, defined before the include)
       HETRAIN_OUTER_IMPLEMENTATION      one file of the program has the code
       HETRAIN_STATIC                    as in hetrain.h: all functions static, a private copy
       HETRAIN_NO_DEFAULT_ALLOCATOR      no malloc: descriptions must bring an allocator
   MEMORY, ERRORS, THREADS
   One block: 12 bytes an element (with `bits` or `pace` 4 more each), and 4 (bits / 8) for every
   island. Joins and het_outer_state allocate nothing. het_outer_error tells what failed. An outer
   belongs to its context's thread.

   FUNCTIONS
       >>outer_api       het_outer_create het_outer_join het_outer_poll het_outer_take
                         het_outer_state het_outer_destroy het_outer_get_info het_outer_error

   CONTENTS   (tags to search for)
   public API:
       >>outer_api       islands
   implementation:
       >>outer           rounds
*/

#ifndef HETRAIN_OUTER_H
#define HETRAIN_OUTER_H

#ifndef HETRAIN_H
#include "hetrain.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- >>outer_api -------------------------------------------------------------------------------- */
typedef struct het_outer_desc {
    uint32_t start_canary;            /* must be 0 */
    int64_t islands, island;          /* how many, at most 1024, and which this is: 0 .. islands - 1 */
    float rate, momentum;             /* 0.7, 0.9; negative momentum: 0 */
    int64_t fragments;                /* 1; at most 1024 */
    int64_t bits;                     /* 0: floats; 2, 4, 8 */
    double deadline;                  /* 60: seconds that another island may be silent while it is awaited */
    het_transport transport;          /* whose process i is island i; iface NULL: from `open`, or one island;
                                         with `open` it goes to `close`, too */
    het_result (*open)(void *user, het_transport *transport, het_error *error); /* or NULL */
    void (*close)(void *user, het_transport *transport);
    void (*pause)(void *user);        /* called while it waits: sleep a little; NULL: full speed */
    void *user;
    uint64_t run;                     /* any number: all islands must have the same */
    int64_t pace, rounds;             /* pace: microseconds of a round, as simulated, at most 1e12, and then
                                         how many this island makes; 0: all join together */
    const void *state;                /* [state_size] of an earlier outer, whose context is ctx again; or NULL */
    size_t state_size;
    het_allocator allocator;          /* malloc */
    uint32_t end_canary;              /* must be 0 */
} het_outer_desc;

typedef struct het_outer_info {
    int64_t joins;                    /* the run's, fragment by fragment, as far as they are known here */
    int64_t rounds;                   /* those of this island; without pace as many */
    double tokens;                    /* of all islands in this join */
    int64_t sent, received;           /* bytes since het_outer_create */
    int64_t opened;                   /* how often the transport was opened anew */
    int32_t adopted;                  /* 1: this island was behind and took the others' weights */
    double trained;                   /* tokens since the last join, from desc.state; 0 if it was behind */
} het_outer_info;

typedef struct het_outer het_outer;

/* Opens the transport, and gives all islands the weights of the one that is farthest, the lowest of
   these. If it was behind, and others are within a join, takes part in that. ctx must live as long.
   Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_outer_create(const het_outer_desc *desc, het_ctx *ctx,
                                                           het_outer **outer, het_error *error);
/* The next fragment's join. tokens: trained since the last join, 0 .. 1e300. Where it fails, and
   rounds is what it was, nothing has changed: a later outer, from het_outer_state and the context
   as it is, can make it. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_outer_join(het_outer *outer, double tokens);
/* With pace, between steps: moves what others send, so that they need not wait. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_outer_poll(het_outer *outer);
HETRAIN_API const het_outer_info *het_outer_get_info(const het_outer *outer); /* Threads: owner. */
/* The context's weights become the global ones, equal everywhere: before saving, with
   fragments. With pace, behind its last round an island waits here for all joins of others, and
   takes part in them. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_outer_take(het_outer *outer);
/* What desc.state wants, `trained` the tokens since the last join: [*size], the outer's, good until
   its next call. NULL after a failure. Threads: owner. */
HETRAIN_API const void *het_outer_state(het_outer *outer, double trained, size_t *size);
HETRAIN_API void het_outer_destroy(het_outer *outer); /* NULL is fine. Threads: owner. */
HETRAIN_API const char *het_outer_error(const het_outer *outer); /* "" if none. Threads: owner. */
#ifdef __cplusplus
}
#endif
#endif /* HETRAIN_OUTER_H ---- end of the API: to use hetrain_outer.h you need nothing below ---- */
#if defined(HETRAIN_OUTER_IMPLEMENTATION) && !defined(HETRAIN_OUTER_IMPLEMENTATION_DONE)

#define HETI_T_WANTED
#include "hetrain_text.h"

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

/* =================================================================================================
   >>outer  Rounds. A message is a header and a fragment's deltas. After every opening the headers
   alone go round first (channel 0), then state to who is behind (1); deltas are channel 2.
   ============================================================================================== */

#define HETI_O_BLOCK INT64_C(256)
#define HETI_O_MAGIC UINT64_C(0x32726574756f7468) /* "htouter2" */

typedef struct heti_o_header {
    uint64_t magic, settings, state;        /* settings and state: XXH64 */
    int64_t island, joins, rounds, joining; /* joining: it is within het_outer_join */
    int64_t pace, all_rounds;
    double tokens;
} heti_o_header;

struct het_outer {
    het_outer_desc d;
    het_ctx *ctx;
    het_error error;
    het_transport transport;
    het_outer_info info;
    int64_t parameters, elements;
    int64_t *start, *cut;      /* [parameters + 1] where its elements begin; [fragments + 1] into parameters */
    int64_t *pace, *all_rounds, *rounds; /* [islands] rounds: that are joined */
    int64_t next;              /* when the next join is; INT64_MAX: there is none */
    heti_o_header *saved;      /* before the next four, which follow each other: the state */
    float *global, *momentum;  /* [elements] */
    float *lost;               /* [elements] error feedback; NULL without bits */
    float *base;               /* [elements] where the round began; without pace global */
    float *weights;            /* [elements] the context's, on their way */
    char *message;             /* [islands] of `size` bytes */
    size_t size, saved_size, block;
    het_request *request;      /* [2 islands], as under_way */
    int32_t *under_way, *came; /* came [islands]: its message, which no join has taken yet */
    double *silent;            /* [2 islands] how long it had been at the last look; what of that does not count */
    int32_t paced, joining, must_join;
    het_result failed;         /* of a start, until heti_o_look tells it */
};

static size_t heti_o_data_size(const het_outer *o, int64_t count) {
    const int64_t blocks = (count + HETI_O_BLOCK - 1) / HETI_O_BLOCK;
    return HETI_T_CAST(size_t, o->d.bits == 0 ? 4 * count : blocks * (4 + HETI_O_BLOCK * o->d.bits / 8));
}
static heti_o_header *heti_o_message(const het_outer *o, int64_t island) {
    return HETI_T_CAST(heti_o_header *, HETI_T_CAST(void *, o->message + HETI_T_CAST(size_t, island) * o->size));
}

/* ---- moving bytes ---- */

/* For too long? Seconds that come between two looks do not count: this process was stopped itself,
   or looked elsewhere. */
static int heti_o_is_silent(het_outer *o, int64_t island) {
    const double silence = o->transport.iface->silence(o->transport.self, island);
    double *before = &o->silent[2 * island], *less = before + 1;
    if (silence < *before) *less = 0;
    else if (silence - *before > 1 + 0.1 * o->d.deadline && silence < 1e300) *less = silence; /* infinite: it is gone */
    *before = silence;
    return silence - *less > o->d.deadline;
}

/* Looks once at all that is under way: *left of it are, *sends of these go out. After a failure all
   are told, and then requests end by themselves. */
static het_result heti_o_look(het_outer *o, const char *what, int64_t *left, int64_t *sends) {
    const het_transport *t = &o->transport;
    het_result result = o->failed;
    o->failed = HET_OK;
    for (int64_t i = *left = *sends = 0; i < 2 * o->d.islands; i++) {
        int32_t done = 0;
        const int ended = !o->under_way[i] || t->iface->test(t->self, &o->request[i], &done) != HET_OK || done;
        const int failed = o->under_way[i] && (ended ? !done : heti_o_is_silent(o, i / 2));
        if (i % 2 == 0 && done) o->came[i / 2] = 1;
        o->under_way[i] = !ended;
        *left += !ended;
        *sends += !ended && i % 2;
        if (!failed || result != HET_OK) continue;
        result = heti_t_fail(&o->error, HET_ERR_TRANSPORT, "%s: island %d: %s", what, i / 2,
                             ended ? t->iface->last_error(t->self) : "is silent");
        t->iface->abort(t->self, result, o->error.text);
    }
    return result;
}

static void heti_o_pause(const het_outer *o) {
    if (o->d.pause != NULL) o->d.pause(o->d.user);
}

/* Every request has ended when it returns. */
static het_result heti_o_wait(het_outer *o, const char *what) {
    int64_t left = 1, sends;
    het_result result = HET_OK;
    while (left > 0) {
        const het_result now = heti_o_look(o, what, &left, &sends);
        if (result == HET_OK) result = now;
        if (left > 0) heti_o_pause(o);
    }
    return result;
}

static void heti_o_start(het_outer *o, int64_t island, int sends, uint32_t channel, void *data, size_t size) {
    const het_transport *t = &o->transport;
    het_request *request = &o->request[2 * island + sends];
    if (o->failed != HET_OK) return;
    if ((sends ? t->iface->isend(t->self, island, channel, data, size, request)
               : t->iface->irecv(t->self, island, channel, data, size, request)) != HET_OK) {
        o->failed = heti_t_fail(&o->error, HET_ERR_TRANSPORT, "island %d: %s", island, t->iface->last_error(t->self));
        t->iface->abort(t->self, o->failed, o->error.text);
    }
    o->under_way[2 * island + sends] = o->failed == HET_OK;
    *(sends ? &o->info.sent : &o->info.received) += HETI_T_CAST(int64_t, size);
}

/* The first `size` bytes of this island's message to all others. */
static void heti_o_send(het_outer *o, uint32_t channel, size_t size) {
    for (int64_t i = 0; i < o->d.islands; i++)
        if (i != o->d.island) heti_o_start(o, i, 1, channel, heti_o_message(o, o->d.island), size);
}

/* The trained parameters [begin, end) into `to`; NULL: from global. */
static het_result heti_o_move(het_outer *o, float *to, int64_t begin, int64_t end) {
    het_result result = HET_OK;
    for (int64_t p = begin; p < end && result == HET_OK; p++)
        if (o->start[p + 1] > o->start[p])
            result = to != NULL ? het_parameter_read(o->ctx, p, HET_WEIGHT, to + o->start[p])
                                : het_parameter_write(o->ctx, p, HET_WEIGHT, o->global + o->start[p]);
    return result == HET_OK ? HET_OK : heti_t_fail(&o->error, result, "%s", het_last_error(o->ctx));
}

/* ---- deltas as bytes ---- */

/* A block of at most 256 values. */
static void heti_o_pack(const het_outer *o, const float *x, int64_t count, unsigned char *to) {
    const int64_t bits = o->d.bits, levels = bits > 0 ? (INT64_C(1) << (bits - 1)) - 1 : 0;
    float scale = 0;
    if (bits == 0) memcpy(to, x, HETI_T_CAST(size_t, count) * sizeof *x);
    if (bits == 0) return;
    memset(to, 0, heti_o_data_size(o, HETI_O_BLOCK));
    for (int64_t i = 0; i < count; i++) scale = fabsf(x[i]) > scale ? fabsf(x[i]) : scale;
    memcpy(to, &scale, 4);
    for (int64_t i = 0; i < count; i++) {
        const double part = scale > 0 ? HETI_T_CAST(double, x[i] / scale) : 0.0;
        const int64_t code = HETI_T_CAST(int64_t, fma(part + 1.0, HETI_T_CAST(double, levels), 0.5));
        to[4 + i * bits / 8] |= HETI_T_CAST(unsigned char, HETI_T_CAST(uint64_t, code) << (i * bits % 8));
    }
}

static void heti_o_unpack(const het_outer *o, const unsigned char *from, int64_t count, float *x) {
    const int64_t bits = o->d.bits, levels = bits > 0 ? (INT64_C(1) << (bits - 1)) - 1 : 0;
    float scale = 0;
    if (bits == 0) memcpy(x, from, HETI_T_CAST(size_t, count) * sizeof *x);
    else memcpy(&scale, from, 4);
    for (int64_t i = 0; i < count && bits > 0; i++) {
        const int64_t code = (from[4 + i * bits / 8] >> (i * bits % 8)) & ((1 << bits) - 1);
        x[i] = HETI_T_CAST(float, code - levels) / HETI_T_CAST(float, levels) * scale;
    }
}

/* Where a message has element `first`, of a block the first. */
static unsigned char *heti_o_data(const het_outer *o, int64_t island, int64_t first) {
    void *data = heti_o_message(o, island) + 1;
    return HETI_T_CAST(unsigned char *, data) + heti_o_data_size(o, first);
}

/* The island's own deltas of a fragment; without tokens, or sense, they are 0. With what was lost,
   at most the largest delta there was, they stay finite. What is lost now takes the place of the
   weights, until the join is through. */
static het_result heti_o_fill(het_outer *o, int64_t fragment, double *tokens) {
    const int64_t first = o->start[o->cut[fragment]], last = o->start[o->cut[fragment + 1]];
    float part[HETI_O_BLOCK];
    HETI_T_TRY(heti_o_move(o, o->weights, o->cut[fragment], o->cut[fragment + 1]));
    for (int64_t i = first; i < last; i++) *tokens = fabsf(o->base[i] - o->weights[i]) < 1e38f ? *tokens : 0;
    for (int64_t i = first; i < last; i += HETI_O_BLOCK) {
        const int64_t n = last - i < HETI_O_BLOCK ? last - i : HETI_O_BLOCK;
        for (int64_t k = 0; k < n; k++) {
            part[k] = *tokens > 0 ? o->base[i + k] - o->weights[i + k] : 0.0f;
            if (o->lost != NULL && *tokens > 0) o->weights[i + k] = part[k] += o->lost[i + k];
        }
        heti_o_pack(o, part, n, heti_o_data(o, o->d.island, i - first));
        heti_o_unpack(o, heti_o_data(o, o->d.island, i - first), n, part);
        for (int64_t k = 0; k < n && o->lost != NULL && *tokens > 0; k++) o->weights[i + k] -= part[k];
    }
    return HET_OK;
}

/* ---- joins ---- */

/* When an island's next join is; INT64_MAX: it has made all its rounds. */
static int64_t heti_o_when(const het_outer *o, int64_t island) {
    const int ended = o->all_rounds[island] > 0 && o->rounds[island] >= o->all_rounds[island];
    return ended ? INT64_MAX : (o->rounds[island] + 1) * o->pace[island];
}

static void heti_o_find_next(het_outer *o) {
    o->next = INT64_MAX;
    for (int64_t i = 0; i < o->d.islands; i++) o->next = heti_o_when(o, i) < o->next ? heti_o_when(o, i) : o->next;
    o->info.rounds = o->rounds[o->d.island];
}

/* Whether an island takes part in the next join. */
static int heti_o_joins(const het_outer *o, int64_t island) {
    return o->next < INT64_MAX && heti_o_when(o, island) == o->next;
}

/* The next join is through. */
static void heti_o_pass(het_outer *o) {
    for (int64_t i = 0, now = o->next; i < o->d.islands; i++) o->rounds[i] += heti_o_when(o, i) == now;
    o->info.joins++;
    heti_o_find_next(o);
}

/* How many rounds islands have made when so many joins are through. */
static void heti_o_replay(het_outer *o, int64_t joins) {
    HETI_T_CLEAR(o->rounds, o->d.islands);
    heti_o_find_next(o);
    for (o->info.joins = 0; o->info.joins < joins && o->next < INT64_MAX;) heti_o_pass(o);
}

/* What the messages of the islands that join make of global. */
static void heti_o_apply(het_outer *o) {
    const int64_t fragment = o->info.joins % o->d.fragments, first = o->start[o->cut[fragment]],
                  count = o->start[o->cut[fragment + 1]] - first;
    const double rate = HETI_T_CAST(double, o->d.rate), momentum = HETI_T_CAST(double, o->d.momentum);
    double all = 0, joined = 0;
    int64_t n;
    for (int64_t island = 0; island < o->d.islands; island++) {
        if (!heti_o_joins(o, island)) continue;
        all += heti_o_message(o, island)->tokens;
        joined += 1;
    }
    for (int64_t i = 0; i < count && all > 0; i += n) {
        double sum[HETI_O_BLOCK] = { 0 };
        n = count - i < HETI_O_BLOCK ? count - i : HETI_O_BLOCK;
        for (int64_t island = 0; island < o->d.islands; island++) {
            const double part = joined / HETI_T_CAST(double, o->d.islands), /* 1 without pace */
                         weight = heti_o_joins(o, island) ? heti_o_message(o, island)->tokens / all * part : 0;
            float x[HETI_O_BLOCK];
            if (!(weight > 0)) continue;
            heti_o_unpack(o, heti_o_data(o, island, i), n, x);
            for (int64_t k = 0; k < n; k++) sum[k] = fma(weight, HETI_T_CAST(double, x[k]), sum[k]);
        }
        for (int64_t k = 0; k < n; k++) {
            float *g = &o->global[first + i + k], *m = &o->momentum[first + i + k];
            *m = HETI_T_CAST(float, fma(momentum, HETI_T_CAST(double, *m), sum[k]));
            const double step = fma(momentum, HETI_T_CAST(double, *m), sum[k]);
            *g = HETI_T_CAST(float, fma(-rate, step, HETI_T_CAST(double, *g)));
        }
    }
    o->info.tokens = all;
}

/* What this island says of itself. */
static heti_o_header heti_o_head(const het_outer *o, double tokens) {
    const int64_t settings[3] = { o->d.fragments * 16 + o->d.bits + o->paced, o->elements,
                                  HETI_T_CAST(int64_t, o->d.run) };
    heti_o_header h;
    h.magic = HETI_O_MAGIC;
    h.settings = het_xxh64(settings, sizeof settings, 0) ^ het_xxh64(&o->d.rate, 2 * sizeof(float), 1);
    h.state = het_xxh64(o->global, HETI_T_CAST(size_t, 2 * o->elements) * sizeof(float),
                        HETI_T_CAST(uint64_t, o->info.joins));
    h.island = o->d.island, h.joins = o->info.joins, h.rounds = o->info.rounds, h.joining = o->joining;
    h.pace = o->pace[o->d.island], h.all_rounds = o->all_rounds[o->d.island], h.tokens = tokens;
    return h;
}

/* Who comes later with other settings is wrong: those that are there go on without, and wait. */
static het_result heti_o_other_settings(const het_outer *o) {
    return o->info.opened > 0 ? HET_ERR_TRANSPORT : HET_ERR_INVALID;
}

/* joins: it is for the next join, of the round that is to come, from global weights that are equal
   where they are of as many joins. */
static het_result heti_o_check(het_outer *o, int64_t island, int joins) {
    const heti_o_header *own = heti_o_message(o, o->d.island), *h = heti_o_message(o, island);
    if (h->magic != HETI_O_MAGIC || h->island != island || h->settings != own->settings || !(h->tokens >= 0))
        return heti_t_fail(&o->error, heti_o_other_settings(o), "island %d: another model or other settings than here",
                           island);
    if (joins && (h->rounds != o->rounds[island] || (h->joins == own->joins && h->state != own->state)))
        return heti_t_fail(&o->error, HET_ERR_STATE, "island %d: round %d, here round %d, or other global weights",
                           island, h->rounds, o->rounds[island]);
    return HET_OK;
}

/* All headers to all, and what they say of each island's pace. */
static het_result heti_o_swap_heads(het_outer *o) {
    *heti_o_message(o, o->d.island) = heti_o_head(o, 0);
    for (int64_t i = 0; i < o->d.islands; i++)
        if (i != o->d.island) heti_o_start(o, i, 0, 0, heti_o_message(o, i), sizeof(heti_o_header));
    heti_o_send(o, 0, sizeof(heti_o_header));
    HETI_T_TRY(heti_o_wait(o, "meeting"));
    for (int64_t i = 0; i < o->d.islands; i++) {
        const heti_o_header *h = heti_o_message(o, i);
        HETI_T_TRY(heti_o_check(o, i, 0));
        if (h->pace < 1 || (o->pace[i] != 0 && (o->pace[i] != h->pace || o->all_rounds[i] != h->all_rounds)))
            return heti_t_fail(&o->error, heti_o_other_settings(o), "island %d: now %d rounds of %d us, before %d of "
                               "%d", i, h->all_rounds, h->pace, o->all_rounds[i], o->pace[i]);
        o->pace[i] = h->pace;
        o->all_rounds[i] = h->all_rounds;
    }
    return HET_OK;
}

/* Who is behind, or has other bits, takes the state of the lowest island that is farthest. */
static het_result heti_o_meet(het_outer *o) {
    const size_t size = HETI_T_CAST(size_t, 2 * o->elements) * sizeof(float);
    const heti_o_header *best;
    int64_t from = 0;
    HETI_T_TRY(heti_o_swap_heads(o));
    for (int64_t i = 0; i < o->d.islands; i++)
        if (heti_o_message(o, i)->joins > heti_o_message(o, from)->joins) from = i;
    best = heti_o_message(o, from);
    for (int64_t i = o->must_join = 0; i < o->d.islands; i++) {
        const heti_o_header *h = heti_o_message(o, i);
        if (h->joining) o->must_join = 1;
        if (h->joins == best->joins && h->state == best->state) continue;
        if (from == o->d.island) heti_o_start(o, i, 1, 1, o->global, size);
        if (i != o->d.island) continue;
        heti_o_start(o, from, 0, 1, o->global, size);
        o->info.adopted = 1;
        o->info.joins = -1; /* as long as it is not whole nobody takes it */
    }
    HETI_T_TRY(heti_o_wait(o, "state"));
    HETI_T_CLEAR(o->came, o->d.islands);
    heti_o_replay(o, best->joins);
    if (o->info.joins != best->joins)
        return heti_t_fail(&o->error, HET_ERR_STATE, "island %d: %d joins, all islands together have %d", from,
                           best->joins, o->info.joins);
    return HET_OK;
}

static het_result heti_o_open(het_outer *o) {
    if (o->transport.iface != NULL) {
        o->transport.iface->abort(o->transport.self, HET_ERR_TRANSPORT, "an island is gone");
        if (o->d.close != NULL) o->d.close(o->d.user, &o->transport);
        o->info.opened++;
    }
    memset(&o->transport, 0, sizeof o->transport);
    HETI_T_TRY(o->d.open(o->d.user, &o->transport, &o->error));
    return heti_o_meet(o);
}

/* Bytes of a message for the next join. */
static size_t heti_o_message_size(const het_outer *o) {
    const int64_t fragment = o->info.joins % o->d.fragments;
    return sizeof(heti_o_header) + heti_o_data_size(o, o->start[o->cut[fragment + 1]] - o->start[o->cut[fragment]]);
}

/* Takes part in joins, as far as messages have come; waits: for them. Until its own is through, or
   the next one is its own and what it trained not there. *sends: that are under way. */
static het_result heti_o_advance(het_outer *o, int waits, int64_t *sends) {
    for (;;) {
        const int own = heti_o_joins(o, o->d.island), stops = o->next == INT64_MAX || (own && !o->joining);
        int64_t left, missing = 0;
        het_result result;
        for (int64_t i = 0; i < o->d.islands && !stops; i++)
            if (i != o->d.island && heti_o_joins(o, i) && !o->under_way[2 * i] && !o->came[i])
                heti_o_start(o, i, 0, 2, heti_o_message(o, i), heti_o_message_size(o));
        result = heti_o_look(o, "deltas", &left, sends);
        if (result != HET_OK) (void)heti_o_wait(o, "deltas");
        if (stops || result != HET_OK) return result;
        for (int64_t i = 0; i < o->d.islands; i++) missing += i != o->d.island && heti_o_joins(o, i) && !o->came[i];
        if (missing > 0) {
            if (!waits) return HET_OK;
            heti_o_pause(o);
            continue;
        }
        for (int64_t i = 0; i < o->d.islands; i++) {
            if (!heti_o_joins(o, i)) continue;
            HETI_T_TRY(heti_o_check(o, i, 1));
            o->came[i] = 0;
        }
        heti_o_apply(o);
        heti_o_pass(o);
        if (own) {
            o->joining = 0;
            return HET_OK;
        }
    }
}

/* All that it has sent is there. Meanwhile others may need what it does for their joins. */
static het_result heti_o_flush(het_outer *o) {
    int64_t sends = 1;
    while (sends > 0) {
        HETI_T_TRY(heti_o_advance(o, 0, &sends));
        if (sends > 0) heti_o_pause(o);
    }
    return HET_OK;
}

/* Takes part in joins until its own one is through, if it is joining, or else to the last one.
   result: of what was before. */
static het_result heti_o_play(het_outer *o, double tokens, het_result result) {
    const int64_t round = o->info.rounds;
    int64_t sends;
    o->info.adopted = 0;
    for (int attempt = 0;; attempt++) {
        if (result == HET_OK && o->joining) {
            *heti_o_message(o, o->d.island) = heti_o_head(o, tokens);
            heti_o_send(o, 2, heti_o_message_size(o));
        }
        if (result == HET_OK) result = heti_o_advance(o, 1, &sends);
        if (result == HET_OK && !o->paced) result = heti_o_flush(o);
        if (result != HET_ERR_TRANSPORT || o->d.open == NULL || attempt == 4) return result;
        while ((result = heti_o_open(o)) == HET_ERR_TRANSPORT && attempt < 4) attempt++;
        if (result != HET_OK || o->info.rounds > round) return result; /* others had what it sent, and went on */
    }
}

/* The context goes on from global, with the parameters [begin, end). */
static het_result heti_o_set_out(het_outer *o, int64_t begin, int64_t end) {
    if (o->base != o->global) HETI_T_COPY(o->base, o->global, o->elements);
    return heti_o_move(o, NULL, begin, end);
}

HETRAIN_API het_result het_outer_join(het_outer *o, double tokens) {
    const int64_t fragment = o->info.joins % o->d.fragments, round = o->info.rounds;
    const int64_t first = o->start[o->cut[fragment]], count = o->start[o->cut[fragment + 1]] - first;
    het_result result, moved;
    if (!heti_t_is_time(tokens)) return heti_t_fail(&o->error, HET_ERR_INVALID, "het_outer_join: tokens is %e", tokens);
    if (o->info.joins < 0 || (o->d.islands > 1 && o->transport.iface == NULL)) return HET_ERR_STATE; /* one failed */
    if (heti_o_when(o, o->d.island) == INT64_MAX)
        return heti_t_fail(&o->error, HET_ERR_STATE, "het_outer_join: all %d rounds are made", o->info.rounds);
    result = heti_o_flush(o);
    HETI_T_TRY(heti_o_fill(o, fragment, &tokens));
    o->joining = 1;
    result = heti_o_play(o, tokens, result);
    o->joining = 0;
    if (result != HET_OK && (o->info.joins < 0 || o->info.rounds == round)) return result;
    if (o->lost != NULL && tokens > 0) HETI_T_COPY(o->lost + first, o->weights + first, count);
    moved = o->info.adopted ? heti_o_set_out(o, 0, o->parameters)
                            : heti_o_set_out(o, o->cut[fragment], o->cut[fragment + 1]);
    return result != HET_OK ? result : moved;
}

HETRAIN_API het_result het_outer_poll(het_outer *o) {
    int64_t sends;
    const het_result result = o->paced && o->info.joins >= 0 ? heti_o_advance(o, 0, &sends) : HET_OK;
    return result == HET_ERR_TRANSPORT && o->d.open != NULL ? HET_OK : result; /* the next join opens it anew */
}

/* ---- making one ---- */

static het_result heti_o_settle(het_outer_desc *d, const het_outer_desc *desc, het_error *error) {
    *d = *desc;
    if (d->islands == 0) d->islands = 1;
    if (d->fragments == 0) d->fragments = 1;
    if (d->rate <= 0 && d->rate >= 0) d->rate = 0.7f; /* what is not a number stays, and is refused */
    if (d->momentum <= 0) d->momentum = d->momentum < 0 ? 0 : 0.9f;
    if (d->deadline <= 0 && d->deadline >= 0) d->deadline = 60;
    if (d->start_canary != 0 || d->end_canary != 0)
        return heti_t_fail(error, HET_ERR_INVALID, "het_outer_create: the description was not cleared");
    if (d->islands < 1 || d->islands > 1024 || d->island < 0 || d->island >= d->islands || d->fragments < 1 ||
        d->fragments > 1024 || d->bits < 0 || d->bits > 8 || (d->bits & (d->bits - 1)) != 0 || d->bits == 1)
        return heti_t_fail(error, HET_ERR_INVALID, "het_outer_create: island %d of %d, %d fragments, %d bits",
                           d->island, d->islands, d->fragments, d->bits);
    if (!(d->rate > 0 && d->rate <= 10 && d->momentum < 1 && d->deadline > 0))
        return heti_t_fail(error, HET_ERR_INVALID, "het_outer_create: rate %e, momentum %e, deadline %e",
                           HETI_T_CAST(double, d->rate), HETI_T_CAST(double, d->momentum), d->deadline);
    if (d->pace < 0 || (d->pace > 0 && (d->pace > INT64_C(1000000000000) || d->rounds < 1 ||
                                        d->rounds > INT64_MAX / 2 / d->pace || d->fragments > 1)))
        return heti_t_fail(error, HET_ERR_INVALID, "het_outer_create: %d rounds of %d us, %d fragments", d->rounds,
                           d->pace, d->fragments);
    if (d->islands > 1 && d->transport.iface == NULL && d->open == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_outer_create: %d islands and no transport", d->islands);
    return HET_OK;
}

/* Frozen parameters have no elements here. */
static int64_t heti_o_count(const het_ctx *ctx, int64_t p) {
    het_parameter_info info;
    return het_parameter_get_info(ctx, p, &info) == HET_OK && !info.frozen ? info.count : 0;
}

static void heti_o_layout(void *self, heti_t_arena *a) {
    het_outer *o = HETI_T_CAST(het_outer *, self);
    const int64_t n = o->d.islands, head = HETI_T_CAST(int64_t, sizeof(heti_o_header) / sizeof(float)),
                  state = head + (2 + (o->d.bits > 0) + o->paced) * o->elements;
    o->start = HETI_T_TAKE(a, int64_t, o->parameters + 1);
    o->cut = HETI_T_TAKE(a, int64_t, o->d.fragments + 1);
    o->saved = HETI_T_CAST(heti_o_header *, HETI_T_CAST(void *, HETI_T_TAKE(a, float, state)));
    o->saved_size = HETI_T_CAST(size_t, state) * sizeof(float);
    if (a->base != NULL) {
        o->global = HETI_T_CAST(float *, HETI_T_CAST(void *, o->saved + 1));
        o->momentum = o->global + o->elements;
        o->lost = o->d.bits > 0 ? o->momentum + o->elements : NULL;
        o->base = o->paced ? o->momentum + (1 + (o->d.bits > 0)) * o->elements : o->global;
    }
    o->weights = HETI_T_TAKE(a, float, o->elements);
    o->request = HETI_T_TAKE(a, het_request, 2 * n);
    o->under_way = HETI_T_TAKE(a, int32_t, 2 * n);
    o->silent = HETI_T_TAKE(a, double, 2 * n);
    o->came = HETI_T_TAKE(a, int32_t, n);
    o->pace = HETI_T_TAKE(a, int64_t, n);
    o->all_rounds = HETI_T_TAKE(a, int64_t, n);
    o->rounds = HETI_T_TAKE(a, int64_t, n);
    o->size = (sizeof(heti_o_header) + heti_o_data_size(o, o->elements) + 15) / 16 * 16;
    o->message = HETI_T_TAKE(a, char, n * HETI_T_CAST(int64_t, o->size));
}

/* Takes what het_outer_state gave. */
static het_result heti_o_restore(het_outer *o) {
    const heti_o_header *h = o->saved;
    if (o->d.state_size != o->saved_size)
        return heti_t_fail(&o->error, HET_ERR_INVALID, "het_outer_create: the state has %u bytes, of this model, with "
                           "%d bits and pace %d it has %u", HETI_T_CAST(uint64_t, o->d.state_size), o->d.bits,
                           o->d.pace, HETI_T_CAST(uint64_t, o->saved_size));
    memcpy(o->saved, o->d.state, o->saved_size);
    o->info.joins = h->joins;
    o->info.trained = h->tokens;
    if (h->magic != HETI_O_MAGIC || h->state != heti_o_head(o, 0).state || !heti_t_is_time(h->tokens))
        return heti_t_fail(&o->error, HET_ERR_FORMAT, "het_outer_create: the state is damaged");
    return HET_OK;
}

/* Where parameters and fragments begin. */
static void heti_o_cut(het_outer *o) {
    int64_t p;
    for (p = 0; p < o->parameters; p++) o->start[p + 1] = o->start[p] + heti_o_count(o->ctx, p);
    for (int64_t f = 1; f <= o->d.fragments; f++) {
        for (p = o->cut[f - 1]; p < o->parameters && o->start[p] < o->elements / o->d.fragments * f; p++) {}
        o->cut[f] = f < o->d.fragments ? p : o->parameters;
    }
}

/* global begins as the context's own weights, or as saved, or as another island has it. */
static het_result heti_o_begin(het_outer *o) {
    heti_o_cut(o);
    o->pace[o->d.island] = o->paced ? o->d.pace : 1;
    o->all_rounds[o->d.island] = o->d.rounds;
    const int within = o->paced && o->d.state != NULL; /* perhaps within a round that still goes on */
    if (o->d.state != NULL) HETI_T_TRY(heti_o_restore(o));
    else {
        HETI_T_TRY(heti_o_move(o, o->global, 0, o->parameters));
        if (o->base != o->global) HETI_T_COPY(o->base, o->global, o->elements);
    }
    o->d.state = NULL; /* the caller's */
    o->transport = o->d.transport;
    if (o->d.islands == 1) heti_o_replay(o, o->info.joins);
    if (o->d.islands == 1) return HET_OK;
    HETI_T_TRY(o->transport.iface != NULL ? heti_o_meet(o) : heti_o_open(o));
    if (within && o->info.rounds == o->saved->rounds) o->info.adopted = 0; /* global is newer, its round is not over */
    if (!o->info.adopted) return HET_OK; /* a round that the others are in waits for what is trained here */
    o->info.trained = 0; /* what it had is of a round that is over */
    if (o->lost != NULL) HETI_T_CLEAR(o->lost, o->elements);
    HETI_T_TRY(heti_o_set_out(o, 0, o->parameters));
    if (o->must_join && heti_o_when(o, o->d.island) < INT64_MAX) HETI_T_TRY(het_outer_join(o, 0));
    o->info.adopted = 1;
    return HET_OK;
}

HETRAIN_API het_result het_outer_create(const het_outer_desc *desc, het_ctx *ctx, het_outer **outer, het_error *error) {
    het_outer first, *o;
    heti_t_arena arena;
    het_result result;
    if (desc == NULL || ctx == NULL || outer == NULL)
        return heti_t_fail(error, HET_ERR_INVALID, "het_outer_create: desc, ctx or outer is NULL");
    *outer = NULL;
    memset(&first, 0, sizeof first);
    HETI_T_TRY(heti_o_settle(&first.d, desc, error));
    HETI_T_TRY(heti_t_choose(&desc->allocator, &first.d.allocator, error, "het_outer_create"));
    if (het_get_desc(ctx)->layout.transport.iface != NULL)
        return heti_t_fail(error, HET_ERR_UNSUPPORTED, "het_outer_create: the context has processes of its own");
    first.ctx = ctx;
    first.paced = first.d.pace > 0;
    first.next = INT64_MAX;
    first.parameters = het_parameter_count(ctx);
    for (int64_t p = 0; p < first.parameters; p++) first.elements += heti_o_count(ctx, p);
    HETI_T_TRY(heti_t_arrays(&arena, sizeof first, heti_o_layout, &first, &first.d.allocator, "het_outer_create",
                             error));
    o = HETI_T_CAST(het_outer *, memcpy(arena.base, &first, sizeof first));
    o->block = arena.size;
    if ((result = heti_o_begin(o)) == HET_OK) *outer = o;
    else if (error != NULL) *error = o->error;
    if (result != HET_OK) het_outer_destroy(o);
    return result;
}

HETRAIN_API het_result het_outer_take(het_outer *o) {
    if (o->info.joins < 0) return HET_ERR_STATE;
    if (heti_o_when(o, o->d.island) == INT64_MAX) HETI_T_TRY(heti_o_play(o, 0, heti_o_flush(o)));
    return heti_o_set_out(o, 0, o->parameters);
}

HETRAIN_API const void *het_outer_state(het_outer *o, double trained, size_t *size) {
    *size = o->info.joins < 0 ? 0 : o->saved_size;
    if (o->info.joins < 0) return NULL;
    *o->saved = heti_o_head(o, trained);
    return o->saved;
}

HETRAIN_API void het_outer_destroy(het_outer *o) {
    int64_t left = 0, sends;
    if (o == NULL) return;
    const het_allocator allocator = o->d.allocator;
    if (o->transport.iface != NULL) (void)heti_o_look(o, "the end", &left, &sends);
    if (left > 0) { /* before its last round, with pace: into memory that goes */
        o->transport.iface->abort(o->transport.self, HET_ERR_TRANSPORT, "an island ended before its last round");
        (void)heti_o_wait(o, "the end");
    }
    if (o->d.open != NULL && o->d.close != NULL && o->transport.iface != NULL) o->d.close(o->d.user, &o->transport);
    allocator.free(allocator.user, o, o->block);
}

HETRAIN_API const het_outer_info *het_outer_get_info(const het_outer *o) { return &o->info; }
HETRAIN_API const char *het_outer_error(const het_outer *o) { return o != NULL ? o->error.text : ""; }

#ifdef __cplusplus
}
#endif
#define HETRAIN_OUTER_IMPLEMENTATION_DONE
#endif /* HETRAIN_OUTER_IMPLEMENTATION */

/* ---- changes ------------------------------------------------------------------------------------
   0.2.0  The first version.

   ---- licence: MIT-0 -----------------------------------------------------------------------------
   MIT No Attribution

   Copyright 2026 hetrain authors

   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
   associated documentation files (the "Software"), to deal in the Software without restriction,
   including without limitation the rights to use, copy, modify, merge, publish, distribute,
   sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
   furnished to do so.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
   NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
   NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
   DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
   OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
