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

   A ROUND   delta_i = global - weights of island i; D = sum_i (tokens_i / sum of tokens) delta_i,
   islands ascending, a chain of fma in double; m = momentum m + D; global = global - rate (D +
   momentum m) (Nesterov). All islands go on from global, each with its optimizer's own state. All
   compute the same from the same bytes: equal bits over any transport, whoever was late. An island
   whose weights are not finite, or 1e38 from global, counts as one without tokens. A round sends 4 bytes an element to
   every other island; data parallelism of two sends 6 a step.
   FRAGMENTS   With P of them a join is of one after the other (arXiv 2501.18512): parameters in P
   runs of about equal size. Join P times as often: a P-th of the bytes at once.
   BITS   A delta travels as integers of 2, 4 or 8 bits, with a scale for each 256 of them: q =
   floor(x L / s + 1/2), s the largest |x|, L = 2^(bits-1) - 1. What is lost is added to the next
   delta (error feedback). An island averages its own delta as the others see it.
   DEATH   With `open` a failed exchange closes the transport and opens it anew; an island that was
   started again comes to the same opening. Who is behind takes global and m from the lowest island
   that is not, and joins the round that the others are in with 0 tokens; their deltas wait as long
   as `open` does. Without `open` a failure is the end.
   GOING ON   het_outer_state, saved beside the context at any step, is what the description of a
   later outer takes: equal bits. Whose is older than another's takes that one's weights, as above.

   OPTIONS   (macros, defined before the include)
       HETRAIN_OUTER_IMPLEMENTATION      one file of the program has the code
       HETRAIN_STATIC                    as in hetrain.h: all functions static, a private copy
       HETRAIN_NO_DEFAULT_ALLOCATOR      no malloc: descriptions must bring an allocator
   MEMORY, ERRORS, THREADS
   One block: 12 bytes an element (with `bits` 16), and 4 (bits / 8) for every island. Joins and
   het_outer_state allocate nothing. het_outer_error tells what failed. An outer belongs to its context's thread.

   FUNCTIONS
       >>outer_api       het_outer_create het_outer_join het_outer_take het_outer_state
                         het_outer_destroy het_outer_get_info het_outer_error

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
    double deadline;                  /* 60: seconds that another island may be silent */
    het_transport transport;          /* whose process i is island i; iface NULL: from `open`, or one island;
                                         with `open` it goes to `close`, too */
    het_result (*open)(void *user, het_transport *transport, het_error *error); /* or NULL */
    void (*close)(void *user, het_transport *transport);
    void (*pause)(void *user);        /* called while it waits: sleep a little; NULL: full speed */
    void *user;
    uint64_t run;                     /* any number: all islands must have the same */
    const void *state;                /* [state_size] of an earlier outer, whose context is ctx again; or NULL */
    size_t state_size;
    het_allocator allocator;          /* malloc */
    uint32_t end_canary;              /* must be 0 */
} het_outer_desc;

typedef struct het_outer_info {
    int64_t joins;                    /* the run's, fragment by fragment */
    double tokens;                    /* of all islands in this join */
    int64_t sent, received;           /* bytes since het_outer_create */
    int64_t opened;                   /* how often the transport was opened anew */
    int32_t adopted;                  /* 1: this island was behind and took the others' weights */
    double trained;                   /* tokens since the last join, from desc.state; 0 if it was behind */
} het_outer_info;

typedef struct het_outer het_outer;

/* Opens the transport, and gives all islands the weights of the one that is farthest, the lowest of
   these. Where the others are within a join, takes part in it. ctx must live as long.
   Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_outer_create(const het_outer_desc *desc, het_ctx *ctx,
                                                           het_outer **outer, het_error *error);
/* The next fragment's join. tokens: trained since the last join, 0 .. 1e300. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_outer_join(het_outer *outer, double tokens);
HETRAIN_API const het_outer_info *het_outer_get_info(const het_outer *outer); /* Threads: owner. */
/* The context's weights become the global ones, equal everywhere: before saving, with
   fragments. Threads: owner. */
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
#define HETI_O_MAGIC UINT64_C(0x31726574756f7468) /* "htouter1" */

typedef struct heti_o_header {
    uint64_t magic, settings, state; /* settings and state: XXH64 */
    int64_t island, joins, joining;  /* joining: it is within het_outer_join */
    double tokens, spare;
} heti_o_header;

struct het_outer {
    het_outer_desc d;
    het_ctx *ctx;
    het_error error;
    het_transport transport;
    het_outer_info info;
    int64_t parameters, elements;
    int64_t *start, *cut;      /* [parameters + 1] where its elements begin; [fragments + 1] into parameters */
    heti_o_header *saved;      /* before the next three, which follow each other: the state */
    float *global, *momentum;  /* [elements] */
    float *lost;               /* [elements] error feedback; NULL without bits */
    float *weights;            /* [elements] the context's, on their way */
    char *message;             /* [islands] of `size` bytes */
    size_t size, saved_size, block;
    het_request *request;      /* [2 islands], as under_way */
    int32_t *under_way;
    int32_t joining, must_join;
    het_result failed;         /* of a start, until heti_o_wait tells it */
};

static size_t heti_o_data_size(const het_outer *o, int64_t count) {
    const int64_t blocks = (count + HETI_O_BLOCK - 1) / HETI_O_BLOCK;
    return HETI_T_CAST(size_t, o->d.bits == 0 ? 4 * count : blocks * (4 + HETI_O_BLOCK * o->d.bits / 8));
}
static heti_o_header *heti_o_message(const het_outer *o, int64_t island) {
    return HETI_T_CAST(heti_o_header *, HETI_T_CAST(void *, o->message + HETI_T_CAST(size_t, island) * o->size));
}

/* ---- moving bytes ---- */

/* Waits for all that is under way; every request has ended when it returns. After a failure all are
   told, and then requests end by themselves. */
static het_result heti_o_wait(het_outer *o, const char *what) {
    const het_transport *t = &o->transport;
    het_result result = o->failed;
    int64_t left = 1;
    for (o->failed = HET_OK; left > 0;) {
        for (int64_t i = left = 0; i < 2 * o->d.islands; i++) {
            int32_t done = 0;
            const int ended = !o->under_way[i] || t->iface->test(t->self, &o->request[i], &done) != HET_OK || done;
            const int failed = o->under_way[i] && (ended ? !done : t->iface->silence(t->self, i / 2) > o->d.deadline);
            o->under_way[i] = !ended;
            left += !ended;
            if (!failed || result != HET_OK) continue;
            result = heti_t_fail(&o->error, HET_ERR_TRANSPORT, "%s: island %d: %s", what, i / 2,
                                 ended ? t->iface->last_error(t->self) : "is silent");
            t->iface->abort(t->self, result, o->error.text);
        }
        if (left > 0 && o->d.pause != NULL) o->d.pause(o->d.user);
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

/* The first `size` bytes of every island's message to all others. */
static het_result heti_o_swap(het_outer *o, uint32_t channel, size_t size, const char *what) {
    for (int64_t i = 0; i < o->d.islands; i++) {
        if (i == o->d.island) continue;
        heti_o_start(o, i, 0, channel, heti_o_message(o, i), size);
        heti_o_start(o, i, 1, channel, heti_o_message(o, o->d.island), size);
    }
    return heti_o_wait(o, what);
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
   at most the largest delta there was, they stay finite. */
static het_result heti_o_fill(het_outer *o, int64_t fragment, double *tokens) {
    const int64_t first = o->start[o->cut[fragment]], last = o->start[o->cut[fragment + 1]];
    float part[HETI_O_BLOCK];
    HETI_T_TRY(heti_o_move(o, o->weights, o->cut[fragment], o->cut[fragment + 1]));
    for (int64_t i = first; i < last; i++) *tokens = fabsf(o->global[i] - o->weights[i]) < 1e38f ? *tokens : 0;
    for (int64_t i = first; i < last; i += HETI_O_BLOCK) {
        const int64_t n = last - i < HETI_O_BLOCK ? last - i : HETI_O_BLOCK;
        for (int64_t k = 0; k < n; k++) {
            part[k] = *tokens > 0 ? o->global[i + k] - o->weights[i + k] : 0.0f;
            if (o->lost != NULL && *tokens > 0) o->lost[i + k] = part[k] += o->lost[i + k];
        }
        heti_o_pack(o, part, n, heti_o_data(o, o->d.island, i - first));
        heti_o_unpack(o, heti_o_data(o, o->d.island, i - first), n, part);
        for (int64_t k = 0; k < n && o->lost != NULL && *tokens > 0; k++) o->lost[i + k] -= part[k];
    }
    return HET_OK;
}

/* ---- a round ---- */

/* What the messages of all islands make of global. */
static void heti_o_apply(het_outer *o, int64_t fragment) {
    const int64_t first = o->start[o->cut[fragment]], count = o->start[o->cut[fragment + 1]] - first;
    const double rate = HETI_T_CAST(double, o->d.rate), momentum = HETI_T_CAST(double, o->d.momentum);
    double all = 0;
    int64_t n;
    for (int64_t island = 0; island < o->d.islands; island++) all += heti_o_message(o, island)->tokens;
    for (int64_t i = 0; i < count && all > 0; i += n) {
        double sum[HETI_O_BLOCK] = { 0 };
        n = count - i < HETI_O_BLOCK ? count - i : HETI_O_BLOCK;
        for (int64_t island = 0; island < o->d.islands; island++) {
            const double weight = heti_o_message(o, island)->tokens / all;
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
    o->info.joins++;
}

/* The header of the island's own message. */
static void heti_o_head(het_outer *o, double tokens) {
    const int64_t settings[3] = { o->d.fragments * 16 + o->d.bits, o->elements, HETI_T_CAST(int64_t, o->d.run) };
    heti_o_header *h = heti_o_message(o, o->d.island);
    memset(h, 0, sizeof *h);
    h->magic = HETI_O_MAGIC;
    h->settings = het_xxh64(settings, sizeof settings, 0) ^ het_xxh64(&o->d.rate, 2 * sizeof(float), 1);
    h->state = het_xxh64(o->global, HETI_T_CAST(size_t, 2 * o->elements) * sizeof(float), 0);
    h->island = o->d.island, h->joins = o->info.joins, h->joining = o->joining, h->tokens = tokens;
}

/* equal: all are at the same join with the same bits. */
static het_result heti_o_check(het_outer *o, int equal) {
    const heti_o_header *own = heti_o_message(o, o->d.island);
    for (int64_t i = 0; i < o->d.islands; i++) {
        const heti_o_header *h = heti_o_message(o, i);
        if (h->magic != HETI_O_MAGIC || h->island != i || h->settings != own->settings || !(h->tokens >= 0))
            return heti_t_fail(&o->error, HET_ERR_INVALID, "island %d: another model or other settings than here", i);
        if (equal && (h->joins != own->joins || h->state != own->state))
            return heti_t_fail(&o->error, HET_ERR_STATE, "island %d: join %d, here join %d, or other global weights", i,
                               h->joins, own->joins);
    }
    return HET_OK;
}

/* Who is behind, or has other bits, takes the state of the lowest island that is farthest. */
static het_result heti_o_meet(het_outer *o) {
    const size_t size = HETI_T_CAST(size_t, 2 * o->elements) * sizeof(float);
    const heti_o_header *best;
    int64_t from = 0;
    heti_o_head(o, 0);
    HETI_T_TRY(heti_o_swap(o, 0, sizeof(heti_o_header), "meeting"));
    HETI_T_TRY(heti_o_check(o, 0));
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
    o->info.joins = best->joins;
    if (!o->info.adopted) return HET_OK;
    o->info.trained = 0;
    if (o->lost != NULL) HETI_T_CLEAR(o->lost, o->elements);
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

/* Exchanges until a round is through; the message is filled. */
static het_result heti_o_round(het_outer *o, int64_t *fragment, double tokens) {
    het_result result;
    o->joining = 1;
    o->info.adopted = 0;
    for (int attempt = 0;; attempt++) {
        *fragment = o->info.joins % o->d.fragments;
        heti_o_head(o, o->info.adopted ? 0 : tokens); /* what it trained may belong to a round that is over */
        result = heti_o_swap(o, 2, sizeof(heti_o_header) + heti_o_data_size(o, o->start[o->cut[*fragment + 1]] -
                             o->start[o->cut[*fragment]]), "deltas");
        if (result != HET_ERR_TRANSPORT || o->d.open == NULL || attempt == 4) break;
        while ((result = heti_o_open(o)) == HET_ERR_TRANSPORT && attempt < 4) attempt++;
        HETI_T_TRY(result);
    }
    HETI_T_TRY(result);
    HETI_T_TRY(heti_o_check(o, 1));
    heti_o_apply(o, *fragment);
    o->joining = 0;
    return HET_OK;
}

HETRAIN_API het_result het_outer_join(het_outer *o, double tokens) {
    int64_t fragment = o->info.joins % o->d.fragments;
    if (!heti_t_is_time(tokens)) return heti_t_fail(&o->error, HET_ERR_INVALID, "het_outer_join: tokens is %e", tokens);
    if (o->info.joins < 0 || (o->d.islands > 1 && o->transport.iface == NULL)) return HET_ERR_STATE; /* one failed */
    HETI_T_TRY(heti_o_fill(o, fragment, &tokens));
    HETI_T_TRY(heti_o_round(o, &fragment, tokens));
    return o->info.adopted ? het_outer_take(o) : heti_o_move(o, NULL, o->cut[fragment], o->cut[fragment + 1]);
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
                  state = head + (o->d.bits > 0 ? 3 : 2) * o->elements;
    o->start = HETI_T_TAKE(a, int64_t, o->parameters + 1);
    o->cut = HETI_T_TAKE(a, int64_t, o->d.fragments + 1);
    o->saved = HETI_T_CAST(heti_o_header *, HETI_T_CAST(void *, HETI_T_TAKE(a, float, state)));
    o->saved_size = HETI_T_CAST(size_t, state) * sizeof(float);
    if (a->base != NULL) {
        o->global = HETI_T_CAST(float *, HETI_T_CAST(void *, o->saved + 1));
        o->momentum = o->global + o->elements;
        o->lost = o->d.bits > 0 ? o->momentum + o->elements : NULL;
    }
    o->weights = HETI_T_TAKE(a, float, o->elements);
    o->request = HETI_T_TAKE(a, het_request, 2 * n);
    o->under_way = HETI_T_TAKE(a, int32_t, 2 * n);
    o->size = (sizeof(heti_o_header) + heti_o_data_size(o, o->elements) + 15) / 16 * 16;
    o->message = HETI_T_TAKE(a, char, n * HETI_T_CAST(int64_t, o->size));
}

/* Takes what het_outer_state gave. */
static het_result heti_o_restore(het_outer *o) {
    const uint64_t magic = HETI_O_MAGIC;
    if (o->d.state_size != o->saved_size)
        return heti_t_fail(&o->error, HET_ERR_INVALID, "het_outer_create: the state has %u bytes, of this model and "
                           "with %d bits it has %u", HETI_T_CAST(uint64_t, o->d.state_size), o->d.bits,
                           HETI_T_CAST(uint64_t, o->saved_size));
    memcpy(o->saved, o->d.state, o->saved_size);
    o->info.joins = o->saved->joins;
    o->info.trained = o->saved->tokens;
    heti_o_head(o, 0);
    if (o->saved->magic == magic && o->saved->state == heti_o_message(o, o->d.island)->state && o->info.joins >= 0 &&
        heti_t_is_time(o->info.trained)) return HET_OK;
    return heti_t_fail(&o->error, HET_ERR_FORMAT, "het_outer_create: the state is damaged");
}

/* Where parameters and fragments begin; global begins as the context's own weights, or as saved. */
static het_result heti_o_begin(het_outer *o) {
    int64_t p;
    for (p = 0; p < o->parameters; p++) o->start[p + 1] = o->start[p] + heti_o_count(o->ctx, p);
    for (int64_t f = 1; f <= o->d.fragments; f++) {
        for (p = o->cut[f - 1]; p < o->parameters && o->start[p] < o->elements / o->d.fragments * f; p++) {}
        o->cut[f] = f < o->d.fragments ? p : o->parameters;
    }
    HETI_T_TRY(o->d.state != NULL ? heti_o_restore(o) : heti_o_move(o, o->global, 0, o->parameters));
    o->d.state = NULL; /* the caller's */
    o->transport = o->d.transport;
    if (o->d.islands == 1) return HET_OK;
    HETI_T_TRY(o->transport.iface != NULL ? heti_o_meet(o) : heti_o_open(o));
    if (!o->info.adopted) return HET_OK; /* a round that the others are in waits for what is trained here */
    HETI_T_TRY(het_outer_take(o));
    if (o->must_join) HETI_T_TRY(het_outer_join(o, 0));
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
    return o->info.joins < 0 ? HET_ERR_STATE : heti_o_move(o, NULL, 0, o->parameters);
}

HETRAIN_API const void *het_outer_state(het_outer *o, double trained, size_t *size) {
    *size = o->info.joins < 0 ? 0 : o->saved_size;
    if (o->info.joins < 0) return NULL;
    heti_o_head(o, trained);
    return memcpy(o->saved, heti_o_message(o, o->d.island), sizeof *o->saved);
}

HETRAIN_API void het_outer_destroy(het_outer *o) {
    if (o == NULL) return;
    const het_allocator allocator = o->d.allocator;
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
