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
       het_outer_end(outer); het_outer_destroy(outer)
   An island is a context: any number of ranks, in one process or several. One k times slower makes
   a k-th of the steps. All processes of an island make the same calls; its process 0 meets the other
   islands, sees transport, open and state, counts tokens, and tells the rest what to do (by
   HETRAIN_CALLERS_CHANNEL of the context's transport, from 0 to the others). While it waits for
   other islands it does not look at its own processes: `pause` may, and abort what it waits on.

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
   tokens; their deltas wait as long as `open` does, five times in a row. One that comes with other
   settings ends alone. Behind the last join all wait for each other in het_outer_end, after what
   they save. Without `open` a failure is the end.
   GOING ON   het_outer_state, saved beside the context at any step, is what the description of a
   later outer takes: equal bits, for one island alone too, if no join of its own is missing.

   OPTIONS   (macros, defined before the include)
       HETRAIN_OUTER_IMPLEMENTATION      one file of the program has the code
       HETRAIN_STATIC                    as in hetrain.h: all functions static, a private copy
       HETRAIN_NO_DEFAULT_ALLOCATOR      no malloc: descriptions must bring an allocator
   MEMORY, ERRORS, THREADS
   One block: 12 bytes an element (with `bits` or `pace` 4 more each), and 4 (bits / 8) for every
   island; 4 an element in an island's other processes. Joins and het_outer_state allocate nothing.
   het_outer_error tells what failed. An outer belongs to its context's thread.

   FUNCTIONS
       >>outer_api       het_outer_create het_outer_join het_outer_poll het_outer_take het_outer_end
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
    int64_t pace, rounds;             /* pace: microseconds of a round, as simulated, at most 1e12; 0: all join
                                         together. rounds: how many this island makes; 0, without pace: any */
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
   these. If it was behind, and others are within a join, takes part in that. Behind the last join,
   as its state says, it waits for nobody. ctx must live as long. Threads: owner. */
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
/* Behind the last join, with desc.rounds and `open`, when all is saved: waits until all others are
   there. Who died within the last join gets the weights here. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_outer_end(het_outer *outer);
/* What desc.state wants, `trained` the tokens since the last join: [*size], the outer's, good until
   its next call; of an island's other processes 0 bytes. NULL after a failure. Threads: owner. */
HETRAIN_API const void *het_outer_state(het_outer *outer, double trained, size_t *size);
HETRAIN_API void het_outer_destroy(het_outer *outer); /* NULL is fine. Threads: owner. */
HETRAIN_API const char *het_outer_error(const het_outer *outer); /* the last one; "" if none yet. Threads: owner. */
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
   alone go round first, then state to who is behind.
   ============================================================================================== */

#define HETI_O_BLOCK INT64_C(256)
#define HETI_O_MAGIC UINT64_C(0x32726574756f7468) /* "htouter2" */
#define HETI_O_REFUSE(error, ...) heti_t_fail((error), HET_ERR_INVALID, "het_outer_create: " __VA_ARGS__)

enum { HETI_O_HEADERS = 0, HETI_O_STATE = 1, HETI_O_DELTAS = 2 }; /* channels */

typedef struct heti_o_header {
    uint64_t magic, settings, state;        /* settings and state: XXH64 */
    int64_t island, joins, rounds, joining; /* joining: it is within het_outer_join; of a state: no join is to come */
    int64_t pace, all_rounds;
    double tokens;
} heti_o_header;

typedef struct heti_o_island {
    heti_o_header *message;    /* and its deltas */
    int64_t pace, all_rounds;  /* 0: not known yet */
    int64_t rounds, when;      /* that are joined; the next join's time, INT64_MAX: it has made all its rounds */
    het_request request[2];    /* what comes from it, what goes to it */
    int32_t under_way[2];
    int32_t came;              /* its message, which no join has taken yet; this island's own: it is joining */
    double silent, slept;      /* for how long at the last look; what of that does not count */
} heti_o_island;

/* Parameters [begin, end); their trained elements [first, last). */
typedef struct heti_o_part { int64_t begin, end, first, last; } heti_o_part;

struct het_outer {
    het_outer_desc d;
    het_ctx *ctx;
    het_error error;
    het_transport transport;
    het_result failed;         /* the transport did: nothing starts before it is opened anew */
    het_outer_info info;
    heti_o_part all, *part;    /* [fragments] */
    heti_o_island *island, *own; /* [islands] */
    int64_t under_way[2];      /* at the last look: what comes, what goes */
    int64_t next;              /* when the next join is; INT64_MAX: there is none */
    heti_o_header *saved;      /* before the next four, which follow each other: the state */
    float *global, *momentum;  /* [elements] */
    float *lost;               /* [elements] error feedback; NULL without bits */
    float *base;               /* [elements] where the round began; without pace global */
    float *weights;            /* [elements] the context's, on their way */
    heti_o_header *message;    /* [islands][room] */
    int64_t room;              /* for a header and what comes behind it, in headers */
    size_t saved_size, block;
    int32_t paced, must_join, follows; /* follows: process 0 of this island tells what to do */
};

static size_t heti_o_data_size(const het_outer *o, int64_t count) {
    const int64_t blocks = (count + HETI_O_BLOCK - 1) / HETI_O_BLOCK;
    return HETI_T_CAST(size_t, o->d.bits == 0 ? 4 * count : blocks * (4 + HETI_O_BLOCK * o->d.bits / 8));
}

/* The fragment of the next join. */
static const heti_o_part *heti_o_fragment(const het_outer *o) { return &o->part[o->info.joins % o->d.fragments]; }

/* ---- moving bytes ---- */

/* The first failure is told to all; requests then end by themselves. */
static void heti_o_give_up(het_outer *o, const char *what, int64_t island, const char *why) {
    if (o->failed != HET_OK) return;
    o->failed = heti_t_fail(&o->error, HET_ERR_TRANSPORT, "%sisland %d: %s", what, island, why);
    o->transport.iface->abort(o->transport.self, o->failed, o->error.text);
}

/* For too long? Seconds that come between two looks do not count: this process was stopped itself,
   or looked elsewhere. */
static int heti_o_is_silent(const het_transport *t, int64_t process, heti_o_island *other, double deadline) {
    const double silence = t->iface->silence(t->self, process);
    if (silence < other->silent) other->slept = 0;
    else if (silence - other->silent > 1 + 0.1 * deadline && silence < 1e300) /* infinite: it is gone */
        other->slept = silence;
    other->silent = silence;
    return silence - other->slept > deadline;
}

/* Looks once at all that is under way; after a failure until nothing is. */
static het_result heti_o_look(het_outer *o, const char *what) {
    const het_transport *t = &o->transport;
    for (;;) {
        o->under_way[0] = o->under_way[1] = 0;
        for (int64_t i = 0; i < 2 * o->d.islands; i++) {
            heti_o_island *other = &o->island[i / 2];
            int32_t *under_way = &other->under_way[i % 2], done = 0;
            if (!*under_way) continue;
            *under_way = t->iface->test(t->self, &other->request[i % 2], &done) == HET_OK && !done;
            o->under_way[i % 2] += *under_way;
            if (done && i % 2 == 0) other->came = 1;
            if (!*under_way && !done) heti_o_give_up(o, what, i / 2, t->iface->last_error(t->self));
            if (*under_way && heti_o_is_silent(t, i / 2, other, o->d.deadline))
                heti_o_give_up(o, what, i / 2, "is silent");
        }
        if (o->failed == HET_OK || o->under_way[0] + o->under_way[1] == 0) return o->failed;
        if (o->d.pause != NULL) o->d.pause(o->d.user);
    }
}

/* Begins to receive from another island, or to send to it. */
static void heti_o_start(het_outer *o, int64_t island, int64_t sends, uint32_t channel) {
    const het_transport *t = &o->transport;
    heti_o_island *other = &o->island[island];
    het_request *request = &other->request[sends];
    void *data = sends ? o->own->message : other->message;
    size_t size = sizeof(heti_o_header);
    if (o->failed != HET_OK || other == o->own) return;
    if (channel == HETI_O_DELTAS) size += heti_o_data_size(o, heti_o_fragment(o)->last - heti_o_fragment(o)->first);
    if (channel == HETI_O_STATE) data = o->global, size = HETI_T_CAST(size_t, 2 * o->all.last) * sizeof(float);
    other->under_way[sends] = (sends ? t->iface->isend(t->self, island, channel, data, size, request)
                                     : t->iface->irecv(t->self, island, channel, data, size, request)) == HET_OK;
    if (!other->under_way[sends]) heti_o_give_up(o, "", island, t->iface->last_error(t->self));
    *(sends ? &o->info.sent : &o->info.received) += HETI_T_CAST(int64_t, size);
}

/* Frozen parameters have no elements here. */
static int64_t heti_o_count(const het_ctx *ctx, int64_t p) {
    het_parameter_info info;
    return het_parameter_get_info(ctx, p, &info) == HET_OK && !info.frozen ? info.count : 0;
}

/* ---- an island of several processes: 0 gives orders, the others follow until its call ends ---- */

typedef enum heti_o_kind { HETI_O_END = 0, HETI_O_READ = 1, HETI_O_WRITE = 2 } heti_o_kind;
typedef struct heti_o_order {
    int64_t kind;
    heti_o_part part;          /* what is read or written */
    het_outer_info info;       /* at the end: */
    het_error error;           /* code HET_OK: none */
} heti_o_order;

/* An order goes from process 0 to one of the others. It may have to wait for long, as 0 waits for
   other islands, but not for a process without a sign of life. */
static het_result heti_o_pass_on(het_outer *o, int64_t process, heti_o_order *order) {
    const het_layout *of = &het_get_desc(o->ctx)->layout;
    const het_transport *t = &of->transport;
    const uint32_t channel = HETRAIN_CALLERS_CHANNEL;
    heti_o_island other;
    int32_t done = 0, given_up = 0;
    memset(&other, 0, sizeof other);
    het_result result = o->follows ? t->iface->irecv(t->self, process, channel, order, sizeof *order, other.request)
                                   : t->iface->isend(t->self, process, channel, order, sizeof *order, other.request);
    while (result == HET_OK && (result = t->iface->test(t->self, other.request, &done)) == HET_OK && !done) {
        if (!given_up && heti_o_is_silent(t, process, &other, of->deadline)) {
            given_up = 1; /* and the request ends */
            t->iface->abort(t->self, HET_ERR_TRANSPORT, "a process of this island is silent");
        }
        if (o->d.pause != NULL) o->d.pause(o->d.user);
    }
    if (done) return HET_OK;
    (void)heti_t_fail(&o->error, HET_ERR_TRANSPORT, "process %d of this island: %s", process,
                      given_up ? "is silent" : t->iface->last_error(t->self));
    return het_fail(o->ctx, HET_ERR_TRANSPORT, o->error.text);
}

/* To all of the others. result: of the call, where it ends. */
static het_result heti_o_give(het_outer *o, heti_o_kind kind, const heti_o_part *part, het_result result) {
    const het_transport *t = &het_get_desc(o->ctx)->layout.transport;
    const int64_t processes = t->iface != NULL ? t->iface->processes(t->self) : 1;
    heti_o_order order;
    memset(&order, 0, sizeof order);
    order.kind = kind, order.part = *part;
    order.info = o->info, order.error = o->error, order.error.code = result;
    for (int64_t p = 1; p < processes; p++) HETI_T_TRY(heti_o_pass_on(o, p, &order));
    return HET_OK;
}

/* A part's trained parameters into `to`; NULL: from global. */
static het_result heti_o_obey(het_outer *o, float *to, const heti_o_part *part) {
    het_result result = HET_OK;
    for (int64_t p = part->begin, at = part->first; p < part->end && result == HET_OK; p++) {
        const int64_t count = heti_o_count(o->ctx, p);
        float *from = o->global + at;
        if (count == 0) continue;
        if (to != NULL) result = het_parameter_read(o->ctx, p, HET_WEIGHT, to + at);
        else result = het_broadcast(o->ctx, 0, from, HETI_T_CAST(size_t, count) * sizeof *from);
        if (to == NULL && result == HET_OK) result = het_parameter_write(o->ctx, p, HET_WEIGHT, from);
        at += count;
    }
    return result == HET_OK ? HET_OK : heti_t_fail(&o->error, result, "%s", het_last_error(o->ctx));
}

static het_result heti_o_move(het_outer *o, float *to, const heti_o_part *part) {
    HETI_T_TRY(heti_o_give(o, to != NULL ? HETI_O_READ : HETI_O_WRITE, part, HET_OK));
    return heti_o_obey(o, to, part);
}

/* A call of process 0 ends, with `result`. */
static het_result heti_o_ends(het_outer *o, het_result result) {
    const het_result told = heti_o_give(o, HETI_O_END, &o->all, result);
    return result != HET_OK ? result : told;
}

/* A call of another process. */
static het_result heti_o_follow(het_outer *o) {
    for (;;) {
        heti_o_order order;
        HETI_T_TRY(heti_o_pass_on(o, 0, &order));
        if (order.kind != HETI_O_END) {
            HETI_T_TRY(heti_o_obey(o, order.kind == HETI_O_READ ? o->global : NULL, &order.part));
            continue;
        }
        o->info = order.info, o->error = order.error;
        return order.error.code;
    }
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
static unsigned char *heti_o_data(const het_outer *o, const heti_o_island *island, int64_t first) {
    void *data = island->message + 1;
    return HETI_T_CAST(unsigned char *, data) + heti_o_data_size(o, first);
}

/* The island's own deltas of a fragment; without tokens, or sense, they are 0. With what was lost,
   at most the largest delta there was, they stay finite. What is lost now takes the place of the
   weights, until the join is through. */
static het_result heti_o_fill(het_outer *o, const heti_o_part *f, double *tokens) {
    float part[HETI_O_BLOCK];
    HETI_T_TRY(heti_o_move(o, o->weights, f));
    for (int64_t i = f->first; i < f->last; i++) *tokens = fabsf(o->base[i] - o->weights[i]) < 1e38f ? *tokens : 0;
    for (int64_t i = f->first; i < f->last; i += HETI_O_BLOCK) {
        const int64_t n = f->last - i < HETI_O_BLOCK ? f->last - i : HETI_O_BLOCK;
        for (int64_t k = 0; k < n; k++) {
            part[k] = *tokens > 0 ? o->base[i + k] - o->weights[i + k] : 0.0f;
            if (o->lost != NULL && *tokens > 0) o->weights[i + k] = part[k] += o->lost[i + k];
        }
        heti_o_pack(o, part, n, heti_o_data(o, o->own, i - f->first));
        heti_o_unpack(o, heti_o_data(o, o->own, i - f->first), n, part);
        for (int64_t k = 0; k < n && o->lost != NULL && *tokens > 0; k++) o->weights[i + k] -= part[k];
    }
    return HET_OK;
}

/* ---- joins ---- */

static int heti_o_joins(const het_outer *o, const heti_o_island *island) {
    return o->next < INT64_MAX && island->when == o->next;
}

/* The next join is through. */
static void heti_o_pass(het_outer *o) {
    const int64_t now = o->next;
    o->next = INT64_MAX;
    for (heti_o_island *i = o->island; i < o->island + o->d.islands; i++) {
        if (i->when == now) {
            i->came = 0;
            i->rounds++;
            i->when = i->all_rounds > 0 && i->rounds >= i->all_rounds ? INT64_MAX : now + i->pace;
        }
        if (i->when < o->next) o->next = i->when;
    }
    o->info.joins++;
    o->info.rounds = o->own->rounds;
}

/* So many joins are, as far as there are. It begins as if all had joined at time 0. */
static void heti_o_replay(het_outer *o, int64_t joins) {
    for (int64_t i = 0; i < o->d.islands; i++) o->island[i].rounds = -1, o->island[i].when = 0;
    o->next = 0, o->info.joins = -1;
    do heti_o_pass(o); while (o->info.joins < joins && o->next < INT64_MAX);
}

/* What this island says of itself. */
static heti_o_header heti_o_head(const het_outer *o, double tokens) {
    const int64_t settings[3] = { o->d.fragments * 16 + o->d.bits + o->paced, o->all.last,
                                  HETI_T_CAST(int64_t, o->d.run) };
    heti_o_header h;
    h.magic = HETI_O_MAGIC;
    h.settings = het_xxh64(settings, sizeof settings, 0) ^ het_xxh64(&o->d.rate, 2 * sizeof(float), 1);
    h.state = het_xxh64(o->global, HETI_T_CAST(size_t, 2 * o->all.last) * sizeof(float),
                        HETI_T_CAST(uint64_t, o->info.joins));
    h.island = o->d.island, h.joins = o->info.joins, h.rounds = o->info.rounds, h.joining = o->own->came;
    h.pace = o->own->pace, h.all_rounds = o->own->all_rounds, h.tokens = tokens;
    return h;
}

/* joins: it is for the next join, of the round that is to come, from global weights that are equal
   where they are of as many joins. Who comes later with other settings is wrong: those that are
   there go on without, and wait. */
static het_result heti_o_check(het_outer *o, int64_t i, int joins) {
    const het_result wrong = o->info.opened > 0 ? HET_ERR_TRANSPORT : HET_ERR_INVALID;
    heti_o_island *island = &o->island[i];
    const heti_o_header *own = o->own->message, *h = island->message;
    if (h->magic != HETI_O_MAGIC || h->island != i || h->settings != own->settings || !(h->tokens >= 0))
        return heti_t_fail(&o->error, wrong, "island %d: another model or other settings than here", i);
    if (h->pace < 1 || (island->pace != 0 && (island->pace != h->pace || island->all_rounds != h->all_rounds)))
        return heti_t_fail(&o->error, wrong, "island %d: now %d rounds of %d us, before %d of %d", i, h->all_rounds,
                           h->pace, island->all_rounds, island->pace);
    if (joins && (h->rounds != island->rounds || (h->joins == own->joins && h->state != own->state)))
        return heti_t_fail(&o->error, HET_ERR_STATE, "island %d: round %d, here round %d, or other global weights", i,
                           h->rounds, island->rounds);
    island->pace = h->pace, island->all_rounds = h->all_rounds;
    return HET_OK;
}

/* The next join, for which all messages have come. */
static het_result heti_o_join(het_outer *o) {
    const heti_o_part *f = heti_o_fragment(o);
    const double rate = HETI_T_CAST(double, o->d.rate), momentum = HETI_T_CAST(double, o->d.momentum);
    double all = 0, joined = 0;
    for (int64_t i = 0; i < o->d.islands; i++) {
        if (!heti_o_joins(o, &o->island[i])) continue;
        HETI_T_TRY(heti_o_check(o, i, 1));
        all += o->island[i].message->tokens;
        joined += 1;
    }
    for (int64_t i = f->first; i < f->last && all > 0; i += HETI_O_BLOCK) {
        const int64_t n = f->last - i < HETI_O_BLOCK ? f->last - i : HETI_O_BLOCK;
        double sum[HETI_O_BLOCK] = { 0 };
        for (const heti_o_island *from = o->island; from < o->island + o->d.islands; from++) {
            const double part = joined / HETI_T_CAST(double, o->d.islands), /* 1 without pace */
                         weight = heti_o_joins(o, from) ? from->message->tokens / all * part : 0;
            float x[HETI_O_BLOCK];
            if (!(weight > 0)) continue;
            heti_o_unpack(o, heti_o_data(o, from, i - f->first), n, x);
            for (int64_t k = 0; k < n; k++) sum[k] = fma(weight, HETI_T_CAST(double, x[k]), sum[k]);
        }
        for (int64_t k = 0; k < n; k++) {
            float *g = &o->global[i + k], *m = &o->momentum[i + k];
            *m = HETI_T_CAST(float, fma(momentum, HETI_T_CAST(double, *m), sum[k]));
            const double step = fma(momentum, HETI_T_CAST(double, *m), sum[k]);
            *g = HETI_T_CAST(float, fma(-rate, step, HETI_T_CAST(double, *g)));
        }
    }
    o->info.tokens = all;
    heti_o_pass(o);
    return HET_OK;
}

/* Looks once, and makes the next join if its messages have come; else they begin to. None is made
   before this island has trained, if it is one of them. */
static het_result heti_o_turn(het_outer *o, const char *what) {
    int64_t missing = 0;
    HETI_T_TRY(heti_o_look(o, what));
    if (o->next == INT64_MAX || (heti_o_joins(o, o->own) && !o->own->came)) return HET_OK;
    for (int64_t i = 0; i < o->d.islands; i++) {
        if (!heti_o_joins(o, &o->island[i]) || o->island[i].came) continue;
        if (!o->island[i].under_way[0]) heti_o_start(o, i, 0, HETI_O_DELTAS);
        missing++;
    }
    return missing > 0 ? HET_OK : heti_o_join(o);
}

enum { HETI_O_COMING = 1, HETI_O_GOING = 2, HETI_O_OWN_JOIN = 4, HETI_O_ALL_JOINS = 8 };

/* Takes turns until these are over: others may need what this island does for their joins. */
static het_result heti_o_wait(het_outer *o, const char *what, int these) {
    for (;;) {
        HETI_T_TRY(heti_o_turn(o, what));
        const int still = (o->under_way[0] > 0 ? HETI_O_COMING : 0) | (o->under_way[1] > 0 ? HETI_O_GOING : 0) |
                          (o->own->came ? HETI_O_OWN_JOIN : 0) | (o->next < INT64_MAX ? HETI_O_ALL_JOINS : 0);
        if ((still & these) == 0) return HET_OK;
        if (o->d.pause != NULL) o->d.pause(o->d.user);
    }
}

/* Who is behind, or has other bits, takes the state of the lowest island that is farthest. */
static het_result heti_o_meet(het_outer *o) {
    const heti_o_header *best;
    int64_t from = 0;
    o->next = INT64_MAX; /* none joins before */
    *o->own->message = heti_o_head(o, 0);
    for (int64_t i = 0; i < 2 * o->d.islands; i++) heti_o_start(o, i / 2, i % 2, HETI_O_HEADERS);
    HETI_T_TRY(heti_o_wait(o, "meeting: ", HETI_O_COMING | HETI_O_GOING));
    for (int64_t i = 0; i < o->d.islands; i++) {
        HETI_T_TRY(heti_o_check(o, i, 0));
        o->must_join |= o->island[i].message->joining != 0;
        if (o->island[i].message->joins > o->island[from].message->joins) from = i;
    }
    best = o->island[from].message;
    for (int64_t i = 0; i < o->d.islands; i++) {
        const heti_o_header *h = o->island[i].message;
        if (h->joins == best->joins && h->state == best->state) continue;
        if (from == o->d.island) heti_o_start(o, i, 1, HETI_O_STATE);
        if (i != o->d.island) continue;
        heti_o_start(o, from, 0, HETI_O_STATE);
        o->info.adopted = 1;
        o->info.joins = -1; /* as long as it is not whole nobody takes it */
    }
    HETI_T_TRY(heti_o_wait(o, "state: ", HETI_O_COMING | HETI_O_GOING));
    heti_o_replay(o, best->joins);
    if (o->info.joins == best->joins) return HET_OK;
    return heti_t_fail(&o->error, HET_ERR_STATE, "island %d: %d joins, all islands together have %d", from,
                       best->joins, o->info.joins);
}

static het_result heti_o_open(het_outer *o) {
    if (o->transport.iface != NULL) {
        o->transport.iface->abort(o->transport.self, HET_ERR_TRANSPORT, "an island is gone");
        if (o->d.close != NULL) o->d.close(o->d.user, &o->transport);
        o->info.opened++;
    }
    memset(&o->transport, 0, sizeof o->transport);
    o->failed = HET_ERR_TRANSPORT;
    HETI_T_TRY(o->d.open(o->d.user, &o->transport, &o->error));
    o->failed = HET_OK;
    return heti_o_meet(o);
}

/* Takes part in joins until `these` are over. result: of what was before. */
static het_result heti_o_play(het_outer *o, int these, double tokens, het_result result) {
    const int64_t round = o->info.rounds;
    const int joining = (these & HETI_O_OWN_JOIN) != 0, ending = (these & HETI_O_COMING) != 0;
    int64_t joins = o->info.joins;
    o->info.adopted = 0;
    for (int attempt = 0;; attempt++) {
        if (result == HET_OK && (joining || ending)) {
            o->own->came = joining;
            *o->own->message = heti_o_head(o, tokens);
            for (int64_t i = 0; i < o->d.islands; i++) heti_o_start(o, i, 1, joining ? HETI_O_DELTAS : HETI_O_HEADERS);
            for (int64_t i = 0; i < o->d.islands && ending; i++) heti_o_start(o, i, 0, HETI_O_HEADERS);
        }
        if (result == HET_OK) result = heti_o_wait(o, ending ? "the end: " : "deltas: ", these);
        if (o->info.joins > joins) joins = o->info.joins, attempt = 0; /* failures in a row count */
        if (result != HET_ERR_TRANSPORT || o->d.open == NULL || attempt == 5) return result;
        result = heti_o_open(o);
        if (result == HET_OK && o->info.rounds > round) return HET_OK; /* others had what it sent, and went on */
    }
}

/* Whether all have made all their rounds. */
static int heti_o_over(const het_outer *o) {
    for (int64_t i = 0; i < o->d.islands; i++)
        if (o->island[i].when < INT64_MAX) return 0;
    return 1;
}

/* The context goes on from global, with a part of the parameters. */
static het_result heti_o_set_out(het_outer *o, const heti_o_part *part) {
    if (o->base != o->global) HETI_T_COPY(o->base, o->global, o->all.last);
    return heti_o_move(o, NULL, part);
}

static het_result heti_o_join_now(het_outer *o, double tokens) {
    const int64_t round = o->info.rounds;
    const int later = o->paced || (o->d.open != NULL && round + 1 == o->own->all_rounds); /* in het_outer_end */
    const heti_o_part *f;
    het_result result, moved;
    if (!heti_t_is_time(tokens)) return heti_t_fail(&o->error, HET_ERR_INVALID, "het_outer_join: tokens is %e", tokens);
    if (o->info.joins < 0 || (o->d.islands > 1 && o->transport.iface == NULL)) return HET_ERR_STATE; /* one failed */
    if (o->own->when == INT64_MAX)
        return heti_t_fail(&o->error, HET_ERR_STATE, "het_outer_join: all %d rounds are made", round);
    result = heti_o_wait(o, "deltas: ", HETI_O_GOING);
    f = heti_o_fragment(o);
    HETI_T_TRY(heti_o_fill(o, f, &tokens));
    o->own->came = 1;
    result = heti_o_play(o, HETI_O_OWN_JOIN | (later ? 0 : HETI_O_GOING), tokens, result);
    o->own->came = 0;
    if (result != HET_OK && (o->info.joins < 0 || o->info.rounds == round)) return result;
    if (o->lost != NULL && tokens > 0) HETI_T_COPY(o->lost + f->first, o->weights + f->first, f->last - f->first);
    moved = heti_o_set_out(o, o->info.adopted ? &o->all : f);
    return result != HET_OK ? result : moved;
}

HETRAIN_API het_result het_outer_join(het_outer *o, double tokens) {
    return o->follows ? heti_o_follow(o) : heti_o_ends(o, heti_o_join_now(o, tokens));
}

HETRAIN_API het_result het_outer_poll(het_outer *o) {
    const het_result result = o->paced && !o->follows && o->info.joins >= 0 ? heti_o_turn(o, "deltas: ") : HET_OK;
    return result == HET_ERR_TRANSPORT && o->d.open != NULL ? HET_OK : result; /* the next join opens it anew */
}

/* ---- making one ---- */

static het_result heti_o_settle(het_outer_desc *d, const het_outer_desc *desc, int follows, het_error *error) {
    *d = *desc;
    if (d->islands == 0) d->islands = 1;
    if (d->fragments == 0) d->fragments = 1;
    if (d->rate <= 0 && d->rate >= 0) d->rate = 0.7f; /* what is not a number stays, and is refused */
    if (d->momentum <= 0) d->momentum = d->momentum < 0 ? 0 : 0.9f;
    if (d->deadline <= 0 && d->deadline >= 0) d->deadline = 60;
    if (d->start_canary != 0 || d->end_canary != 0) return HETI_O_REFUSE(error, "the description was not cleared");
    if (d->islands < 1 || d->islands > 1024 || d->island < 0 || d->island >= d->islands || d->fragments < 1 ||
        d->fragments > 1024 || d->bits < 0 || d->bits > 8 || (d->bits & (d->bits - 1)) != 0 || d->bits == 1)
        return HETI_O_REFUSE(error, "island %d of %d (at most 1024), %d fragments (1 to 1024), %d bits (0, 2, 4 or 8)",
                             d->island, d->islands, d->fragments, d->bits);
    if (!(d->rate > 0 && d->rate <= 10 && d->momentum < 1 && d->deadline > 0))
        return HETI_O_REFUSE(error, "rate %e, momentum %e, deadline %e", HETI_T_CAST(double, d->rate),
                             HETI_T_CAST(double, d->momentum), d->deadline);
    if (d->pace < 0 || d->rounds < 0 || (d->pace > 0 && (d->pace > INT64_C(1000000000000) || d->rounds < 1 ||
                                        d->rounds > INT64_MAX / 2 / d->pace || d->fragments > 1)))
        return HETI_O_REFUSE(error, "%d rounds of %d us, %d fragments; pace wants 1", d->rounds, d->pace, d->fragments);
    if (d->islands > 1 && d->transport.iface == NULL && d->open == NULL && !follows)
        return HETI_O_REFUSE(error, "%d islands and no transport", d->islands);
    return HET_OK;
}

static void heti_o_layout(void *self, heti_t_arena *a) {
    het_outer *o = HETI_T_CAST(het_outer *, self);
    o->part = HETI_T_TAKE(a, heti_o_part, o->d.fragments);
    o->island = HETI_T_TAKE(a, heti_o_island, o->d.islands);
    o->saved = HETI_T_CAST(heti_o_header *, heti_t_take(a, HETI_T_CAST(int64_t, o->saved_size), 1));
    o->weights = HETI_T_TAKE(a, float, o->follows ? 0 : o->all.last);
    o->message = HETI_T_TAKE(a, heti_o_header, o->d.islands * o->room);
}

/* Where arrays, messages and fragments begin. */
static void heti_o_divide(het_outer *o) {
    const int64_t n = o->all.last, last = o->d.fragments - 1;
    int64_t p = 0, at = 0;
    o->own = &o->island[o->d.island];
    o->global = HETI_T_CAST(float *, HETI_T_CAST(void *, o->saved + 1));
    o->momentum = o->global + n;
    o->lost = o->d.bits > 0 ? o->momentum + n : NULL;
    o->base = o->paced ? o->momentum + (1 + (o->d.bits > 0)) * n : o->global;
    for (int64_t i = 0; i < o->d.islands; i++) o->island[i].message = o->message + i * o->room;
    for (int64_t f = 0; f <= last; f++) {
        o->part[f].begin = p, o->part[f].first = at;
        while (p < o->all.end && (f == last || at < n / o->d.fragments * (f + 1))) at += heti_o_count(o->ctx, p++);
        o->part[f].end = p, o->part[f].last = at;
    }
}

/* Takes what het_outer_state gave. */
static het_result heti_o_restore(het_outer *o) {
    const heti_o_header *h = o->saved;
    if (o->d.state_size != o->saved_size)
        return HETI_O_REFUSE(&o->error, "the state has %z bytes, of this model, with %d bits and pace %d it has %z",
                             o->d.state_size, o->d.bits, o->d.pace, o->saved_size);
    memcpy(o->saved, o->d.state, o->saved_size);
    o->info.joins = h->joins;
    o->info.trained = h->tokens;
    if (h->magic != HETI_O_MAGIC || h->state != heti_o_head(o, 0).state || !heti_t_is_time(h->tokens))
        return heti_t_fail(&o->error, HET_ERR_FORMAT, "het_outer_create: the state is damaged");
    if ((h->pace > 1) == (o->d.pace > 1)) return HET_OK; /* `lost` or `base` */
    return HETI_O_REFUSE(&o->error, "the state is of pace %d, with %d bits and pace %d there is other state", h->pace,
                         o->d.bits, o->d.pace);
}

/* global begins as the context's own weights, or as saved, or as another island has it. */
static het_result heti_o_begin(het_outer *o) {
    const int saved = o->d.state != NULL, within = o->paced && saved; /* perhaps within a round that still goes on */
    o->own->pace = o->paced ? o->d.pace : 1;
    o->own->all_rounds = o->d.rounds;
    if (saved) HETI_T_TRY(heti_o_restore(o));
    else HETI_T_TRY(heti_o_move(o, o->global, &o->all));
    if (!within && o->base != o->global) HETI_T_COPY(o->base, o->global, o->all.last);
    o->d.state = NULL; /* the caller's */
    o->transport = o->d.transport;
    if (o->d.islands == 1) heti_o_replay(o, o->info.joins);
    if (o->d.islands == 1) return HET_OK;
    if (saved && o->transport.iface == NULL && o->saved->joining && o->saved->all_rounds == o->d.rounds) {
        for (int64_t i = 0; i < o->d.islands; i++) o->island[i].when = INT64_MAX;
        o->info.rounds = o->d.rounds;
        o->failed = HET_ERR_TRANSPORT; /* nothing is to come but the end, for which it is opened */
        return HET_OK;
    }
    HETI_T_TRY(o->transport.iface != NULL ? heti_o_meet(o) : heti_o_open(o));
    if (within && o->info.rounds == o->saved->rounds) o->info.adopted = 0; /* global is newer, its round is not over */
    if (!o->info.adopted) return HET_OK; /* a round that the others are in waits for what is trained here */
    o->info.trained = 0; /* what it had is of a round that is over */
    if (o->lost != NULL) HETI_T_CLEAR(o->lost, o->all.last);
    HETI_T_TRY(heti_o_set_out(o, &o->all));
    if (o->must_join && o->own->when < INT64_MAX) HETI_T_TRY(heti_o_join_now(o, 0));
    o->info.adopted = 1;
    return HET_OK;
}

/* Sizes and memory. */
static het_result heti_o_make(het_outer *first, het_outer **outer, het_error *error) {
    int64_t floats;
    heti_t_arena arena;
    first->paced = first->d.pace > 0;
    first->all.end = het_parameter_count(first->ctx);
    for (int64_t p = 0; p < first->all.end; p++) first->all.last += heti_o_count(first->ctx, p);
    floats = (first->follows ? 1 : 2 + (first->d.bits > 0) + first->paced) * first->all.last;
    first->saved_size = sizeof(heti_o_header) + HETI_T_CAST(size_t, floats) * sizeof(float);
    first->room = HETI_T_CAST(int64_t, heti_o_data_size(first, first->all.last) / sizeof(heti_o_header) + 2);
    if (first->follows) first->room = 1;
    HETI_T_TRY(heti_t_arrays(&arena, sizeof *first, heti_o_layout, first, &first->d.allocator, "het_outer_create",
                             error));
    *outer = HETI_T_CAST(het_outer *, memcpy(arena.base, first, sizeof *first));
    (*outer)->block = arena.size;
    heti_o_divide(*outer);
    return HET_OK;
}

HETRAIN_API het_result het_outer_create(const het_outer_desc *desc, het_ctx *ctx, het_outer **outer, het_error *error) {
    het_outer first, *o = &first;
    het_result result;
    if (desc == NULL || ctx == NULL || outer == NULL) return HETI_O_REFUSE(error, "desc, ctx or outer is NULL");
    const het_transport *inner = &het_get_desc(ctx)->layout.transport;
    *outer = NULL;
    memset(&first, 0, sizeof first);
    first.ctx = ctx;
    first.follows = inner->iface != NULL && inner->iface->process(inner->self) > 0;
    result = heti_o_settle(&first.d, desc, first.follows, &first.error);
    if (result == HET_OK)
        result = heti_t_choose(&desc->allocator, &first.d.allocator, &first.error, "het_outer_create");
    if (result == HET_OK) result = heti_o_make(&first, &o, &first.error);
    if (first.follows && result == HET_OK) result = heti_o_follow(o);
    else if (first.follows) (void)het_fail(ctx, result, first.error.text); /* which process 0 hears of */
    else result = heti_o_ends(o, result == HET_OK ? heti_o_begin(o) : result);
    if (result != HET_OK && error != NULL) *error = o->error;
    if (result == HET_OK) *outer = o;
    else if (o != &first) het_outer_destroy(o);
    return result;
}

static het_result heti_o_take(het_outer *o) {
    if (o->info.joins < 0) return HET_ERR_STATE;
    if (o->own->when == INT64_MAX && (o->d.open == NULL || !heti_o_over(o)))
        HETI_T_TRY(heti_o_play(o, HETI_O_ALL_JOINS, 0, heti_o_wait(o, "deltas: ", HETI_O_GOING)));
    return heti_o_set_out(o, &o->all);
}

HETRAIN_API het_result het_outer_take(het_outer *o) {
    return o->follows ? heti_o_follow(o) : heti_o_ends(o, heti_o_take(o));
}

static het_result heti_o_end(het_outer *o) {
    if (o->info.joins < 0 || o->d.open == NULL || o->d.islands == 1 || !heti_o_over(o))
        return o->info.joins < 0 ? HET_ERR_STATE : HET_OK;
    return heti_o_play(o, HETI_O_COMING | HETI_O_GOING, 0, heti_o_wait(o, "deltas: ", HETI_O_GOING));
}

HETRAIN_API het_result het_outer_end(het_outer *o) {
    return o->follows ? heti_o_follow(o) : heti_o_ends(o, heti_o_end(o));
}

HETRAIN_API const void *het_outer_state(het_outer *o, double trained, size_t *size) {
    *size = o->info.joins < 0 || o->follows ? 0 : o->saved_size;
    if (o->info.joins < 0) return NULL;
    if (o->follows) return o->saved;
    *o->saved = heti_o_head(o, trained);
    o->saved->joining = heti_o_over(o);
    return o->saved;
}

HETRAIN_API void het_outer_destroy(het_outer *o) {
    if (o == NULL) return;
    const het_allocator allocator = o->d.allocator;
    (void)heti_o_look(o, "the end: ");
    if (o->under_way[0] + o->under_way[1] > 0) { /* before its last round, with pace: into memory that goes */
        o->failed = HET_ERR_TRANSPORT;
        o->transport.iface->abort(o->transport.self, o->failed, "an island ended before its last round");
        (void)heti_o_look(o, "");
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
