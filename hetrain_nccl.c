/* hetrain_nccl.c: groups of CUDA devices that reach each other without the host
   (het_communicator_iface over NCCL 2.14 or later). C99 and C++11.

   USE
       cc -O2 -I. -I/usr/local/cuda/include -c hetrain_nccl.c  once; link with hetrain_cuda.cu's
                                                               object, -lnccl -lcudart -lpthread
       #define HETRAIN_NCCL_DECLARATIONS                       in the files that call het_nccl_open:
                                                               this file then only declares,
       #include "hetrain_nccl.c"                               and needs no nccl.h
       het_nccl_desc desc;
       memset(&desc, 0, sizeof desc);
       if (het_nccl_open(&desc, &context.groups, &error) == HET_OK) { ...; het_destroy(ctx);
       het_nccl_close(&context.groups, &error); }

   MEMBERS   Devices of hetrain_cuda.cu, in one process or in many. NCCL refuses two members on one
   GPU. It tells machines apart by the variable NCCL_HOSTID, else by host name and boot id, and GPUs
   of one machine by their PCI bus; `place` does the same, so that two ranks of one GPU never meet
   in a group. A program that sets NCCL_HOSTID says so in het_nccl_desc.host: nothing here looks at
   the environment (NCCL itself does: its other variables choose interfaces, protocols and how much
   it tells).

   COMMUNICATORS   One a group, non-blocking (ncclCommInitRankConfig): every call returns at once
   and is followed up by ncclCommGetAsyncError whenever the engine asks. NCCL wants nothing but its
   own work on a stream while a call is in progress, so that a group has a stream of its own: an op
   waits there for an event of its queue, and an event behind it tells `test` that it has run; what
   is given to the queue later has to wait for `test`. An op given while another is still being
   issued waits its turn. `joined` says 1 after a first op among all members: connections that NCCL
   makes when they are first used are made there, in groups of up to 8,192 members. Ranges of one
   size are one ncclReduceScatter or ncclAllGather; uneven ones are one ncclReduce or ncclBroadcast
   per member, an exchange is one ncclSend or ncclRecv per piece, between ncclGroupStart and
   ncclGroupEnd: NCCL runs them as one. A float is summed in the order of NCCL's ring, which is the
   same each time in one group on the same machines. Streams of groups have the highest priority, so
   that a block of a product that ends makes room for a message before another block of the product.

   SIDE BY SIDE   The groups of a card have ops under way at the same time, in an order that is not
   the same on all cards. NCCL allows this as long as all their kernels find room on the card at
   once, beside which nothing waits for another group: a rank has at most five groups at work (a
   message each way with each neighbour, or an exchange of its team; one reduction), each with at
   most 32 blocks, half a multiprocessor or less a block. Parts of a card with fewer than 80
   multiprocessors want NCCL_MAX_CTAS=8. NCCL_LAUNCH_ORDER_IMPLICIT must stay 0, its default. CUDA
   itself must not hold an op back behind another: before CUDA starts a program sets
   CUDA_DEVICE_MAX_CONNECTIONS=32, so that streams share no hardware queue, and
   CUDA_MODULE_LOADING=EAGER, so that no kernel has to be loaded while a receive waits
   (programs/train.c does both).

   VERSIONS   The library must not be older than the header this file was compiled with. Identities
   carry the version of the library that made them, and a member with another one does not join.
   Both errors name both versions.

   FAILURE   Any error of NCCL or CUDA, told by a call or found by `test`, ends the group: the error
   names member, call, code, file and line. `abort` is ncclCommAbort, also while joining; members
   that are not aborted by their own process hear of it from the network or from the engine. `leave`
   of an aborted member waits abort_seconds for its ops to end; of any other it starts
   ncclCommFinalize, which goes on while others leave and ends in ncclCommDestroy at a later leave,
   or in het_nccl_close. What does not end is left to the process's end, and het_nccl_close says so.

   License: as hetrain.h. */
#ifndef HETRAIN_NCCL_DECLARED
#define HETRAIN_NCCL_DECLARED

#if !defined(HETRAIN_NCCL_DECLARATIONS) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* clock_gettime, nanosleep, gethostname under -std=c99 */
#endif

#include "hetrain.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 0 everywhere: all defaults. */
typedef struct het_nccl_desc {
    uint32_t start_canary;   /* must be 0 */
    const char *host;        /* which machine this is: NCCL_HOSTID where that is set; NULL: host
                                name and boot id. Not longer than 95 bytes */
    double abort_seconds;    /* 5: the longest `leave` waits for the ops of a group that was aborted */
    double close_seconds;    /* 10: the longest het_nccl_close waits for members elsewhere that have not left */
    het_allocator allocator; /* malloc and free; used by open, join, leave and close */
    uint32_t end_canary;     /* must be 0 */
} het_nccl_desc;

/* Fills *groups for het_desc.layout.communicators. desc NULL: all defaults. HET_ERR_UNSUPPORTED:
   another version of NCCL is needed. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_nccl_open(const het_nccl_desc *desc, het_communicators *groups,
                                                        het_error *error);
/* Behind het_destroy of all contexts that use it. Clears *groups; one that is not open is left
   alone. Threads: any. */
HETRAIN_API het_result het_nccl_close(het_communicators *groups, het_error *error);

#ifdef __cplusplus
}
#endif
#endif /* HETRAIN_NCCL_DECLARED */

#if !defined(HETRAIN_NCCL_DECLARATIONS) && !defined(HETRAIN_NCCL_DONE)
#define HETRAIN_NCCL_DONE

#include <cuda_runtime.h>
#include <nccl.h>

#ifndef HETRAIN_CUDA_DECLARATIONS
#define HETRAIN_CUDA_DECLARATIONS
#endif
#include "hetrain_cuda.cu"

#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifndef HETRAIN_NO_DEFAULT_ALLOCATOR
#include <stdlib.h>
#endif

#if NCCL_VERSION_CODE < 21400
#error "hetrain_nccl.c needs NCCL 2.14 or later: non-blocking communicators"
#endif

#ifndef HETI_CAST
#ifdef __cplusplus
#define HETI_CAST(type, value) static_cast<type>(value)
#else
#define HETI_CAST(type, value) ((type)(value))
#endif
#endif
#ifdef __cplusplus
#define HETI_NCCL_BITS(type, value) reinterpret_cast<type>(value)
#else
#define HETI_NCCL_BITS(type, value) ((type)(value))
#endif

#if defined(__GNUC__) || defined(__clang__)
#define HETI_NCCL_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define HETI_NCCL_PRINTF(text, first)
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define HETI_NCCL_HOST 96           /* bytes of a host's text at most */
#define HETI_NCCL_SCRATCH 65536     /* bytes a card of what the first exchange of a group moves; stays 0 */
#define HETI_NCCL_TEXT sizeof(HETI_CAST(const het_error *, NULL)->text)
#define HETI_NCCL_MAGIC 0x6c63636eu /* "nccl" */

/* What travels to the other members; fixed in layout, of one kind of machine. */
typedef struct heti_nccl_id {
    uint32_t magic;
    int32_t version; /* of the library that made it */
    ncclUniqueId unique;
} heti_nccl_id;

typedef char heti_nccl_id_fits[sizeof(heti_nccl_id) <= HETRAIN_COMMUNICATOR_ID ? 1 : -1];

typedef enum heti_nccl_kind {
    HETI_NCCL_REDUCE_SCATTER, HETI_NCCL_ALL_GATHER, HETI_NCCL_EXCHANGE, HETI_NCCL_FIRST /* what makes connections */
} heti_nccl_kind;

typedef struct heti_nccl_op {
    heti_nccl_kind kind;
    het_communicator_element element;
    char *data;               /* of reductions and gathers */
    int64_t *start;           /* [members + 1], of the same */
    het_communicator_piece *out, *in; /* [members], of exchanges */
    cudaEvent_t ready, ran;   /* on the queue, before the op; on the group's stream, behind it */
} heti_nccl_op;

/* JOINING: the communicator is being made; FIRST: the first exchange is under way; CLOSING: left,
   ncclCommFinalize is at work. */
typedef enum heti_nccl_stage {
    HETI_NCCL_JOINING, HETI_NCCL_FIRST_EXCHANGE, HETI_NCCL_JOINED, HETI_NCCL_ABORTED, HETI_NCCL_CLOSING
} heti_nccl_stage;

/* A card's memory for first exchanges. */
typedef struct heti_nccl_card {
    struct heti_nccl_card *next;
    int32_t ordinal;
    void *scratch;            /* [HETI_NCCL_SCRATCH] device */
} heti_nccl_card;

typedef struct heti_nccl heti_nccl;

typedef struct heti_nccl_group {
    struct heti_nccl_group *next;   /* in heti_nccl.closing */
    heti_nccl *nccl;
    het_device device;
    int32_t ordinal;
    heti_nccl_stage stage;
    ncclComm_t comm;                /* NULL: none any more */
    cudaStream_t stream;
    int64_t members, member, ops;
    int32_t exchanges;              /* 1: its ops are these */
    heti_nccl_op *op;               /* [ops] number n is op[n % ops]; the first one counts as well */
    int64_t given, issued, finished;
    int32_t busy;                   /* the last call is in progress: the communicator's making, or op number `issued` */
    het_result failed;
    void *scratch;
    size_t block;                   /* bytes of the allocation */
    char text[HETI_NCCL_TEXT];
} heti_nccl_group;

struct heti_nccl {
    het_allocator allocator;
    double abort_seconds, close_seconds;
    int32_t version;                /* of the library */
    char host[HETI_NCCL_HOST];
    pthread_mutex_t lock;           /* guards all below */
    heti_nccl_card *card;
    heti_nccl_group *closing;
    int64_t members, stuck, late;   /* handles given out; left although their ops did not end; whose
                                       other members did not leave in time */
    char text[HETI_NCCL_TEXT];  /* of place, identity, join */
};

/* ---- texts, time, memory --------------------------------------------------------------------- */

static HETI_NCCL_PRINTF(3, 0) void heti_nccl_format(char *text, size_t capacity, const char *format, va_list list) {
    (void)vsnprintf(text, capacity, format, list);
    for (; *text != 0; text++)
        if ((*text > 0 && *text < 32) || *text == 127) *text = '?'; /* NCCL's texts end lines */
}

static HETI_NCCL_PRINTF(3, 4) het_result heti_nccl_fail(het_error *error, het_result code, const char *format, ...) {
    if (error != NULL) {
        va_list list;
        va_start(list, format);
        heti_nccl_format(error->text, HETI_NCCL_TEXT, format, list);
        va_end(list);
        error->code = code;
    }
    return code;
}

/* The first error of a group stays; it says whose it is. */
static HETI_NCCL_PRINTF(3, 4) het_result heti_nccl_say(heti_nccl_group *g, het_result code, const char *format, ...) {
    if (g->failed == HET_OK) {
        const int used = snprintf(g->text, sizeof g->text, "nccl, cuda:%d, member %lld of %lld, ", g->ordinal,
                                  HETI_CAST(long long, g->member), HETI_CAST(long long, g->members));
        va_list list;
        va_start(list, format);
        heti_nccl_format(g->text + used, sizeof g->text - HETI_CAST(size_t, used), format, list);
        va_end(list);
        g->failed = code;
    }
    return g->failed;
}

/* The last error of place, identity and join. */
static HETI_NCCL_PRINTF(3, 4) het_result heti_nccl_tell(heti_nccl *n, het_result code, const char *format, ...) {
    va_list list;
    (void)pthread_mutex_lock(&n->lock);
    va_start(list, format);
    heti_nccl_format(n->text, HETI_NCCL_TEXT, format, list);
    va_end(list);
    (void)pthread_mutex_unlock(&n->lock);
    return code;
}

static const char *heti_nccl_code(ncclResult_t code) {
    static const char *const names[] = { "ncclSuccess", "ncclUnhandledCudaError", "ncclSystemError",
                                         "ncclInternalError", "ncclInvalidArgument", "ncclInvalidUsage",
                                         "ncclRemoteError", "ncclInProgress", "ncclTimeout" };
    const size_t number = HETI_CAST(size_t, code);
    return number < sizeof names / sizeof *names ? names[number] : "unknown ncclResult_t";
}

/* What the network or a process elsewhere did is the transport's fault, all else the device's. */
static het_result heti_nccl_result(ncclResult_t code) {
    return code == ncclRemoteError || code == ncclSystemError ? HET_ERR_TRANSPORT : HET_ERR_DEVICE;
}

static het_result heti_nccl_failed(heti_nccl_group *g, ncclResult_t code, const char *call, int line) {
    return heti_nccl_say(g, heti_nccl_result(code), "%s: %s (%s), hetrain_nccl.c:%d", call, heti_nccl_code(code),
                         ncclGetErrorString(code), line);
}

static het_result heti_nccl_cuda_failed(heti_nccl_group *g, cudaError_t code, const char *call, int line) {
    (void)cudaGetLastError(); /* it is told here */
    return heti_nccl_say(g, HET_ERR_DEVICE, "%s: %s (%s), hetrain_nccl.c:%d", call, cudaGetErrorName(code),
                         cudaGetErrorString(code), line);
}

/* HETI_NCCL_CUDA(g, cudaFree, (pointer)): passes an error on, with the call's name. */
#define HETI_NCCL_CUDA(g, call, arguments) do { const cudaError_t heti_code = call arguments; \
    if (heti_code != cudaSuccess) return heti_nccl_cuda_failed((g), heti_code, #call, __LINE__); } while (0)
#define HETI_NCCL_TRY(call) do { const het_result heti_tried = \
    (call); if (heti_tried != HET_OK) return heti_tried; } while (0)

static double heti_nccl_now(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return HETI_CAST(double, t.tv_sec) + 1e-9 * HETI_CAST(double, t.tv_nsec);
}

/* Between two questions of the calls that wait. */
static void heti_nccl_pause(void) {
    const struct timespec t = { 0, 50000 };
    (void)nanosleep(&t, NULL);
}

#ifndef HETRAIN_NO_DEFAULT_ALLOCATOR
static void *heti_nccl_malloc(void *user, size_t size, size_t align) {
    (void)user, (void)align; /* the structs here need no more than malloc gives */
    return malloc(size);
}

static void heti_nccl_release(void *user, void *pointer, size_t size) {
    (void)user, (void)size;
    free(pointer);
}
#endif

/* ---- operations ------------------------------------------------------------------------------ */

static heti_nccl *heti_nccl_self(void *self) { return HETI_CAST(heti_nccl *, self); }
static heti_nccl_group *heti_nccl_of(het_communicator *group) { return HETI_NCCL_BITS(heti_nccl_group *, group); }

static size_t heti_nccl_bytes(het_communicator_element element) { return element == HET_COMMUNICATOR_F32 ? 4 : 8; }

static ncclDataType_t heti_nccl_type(het_communicator_element element) {
    return element == HET_COMMUNICATOR_F32 ? ncclFloat32 : element == HET_COMMUNICATOR_F64 ? ncclFloat64 : ncclInt64;
}

/* Notes the first error of the calls between ncclGroupStart and ncclGroupEnd. */
typedef struct heti_nccl_issue { ncclResult_t code; const char *call; int line; } heti_nccl_issue;

static void heti_nccl_note(heti_nccl_issue *issue, ncclResult_t code, const char *call, int line) {
    if (issue->code != ncclSuccess || code == ncclSuccess || code == ncclInProgress) return;
    issue->code = code;
    issue->call = call;
    issue->line = line;
}
#define HETI_NCCL_NOTE(issue, call, arguments) heti_nccl_note((issue), call arguments, #call, __LINE__)

/* Ranges [m count, (m + 1) count) of `all`, one a member, are reduced to the members, or come from
   them. */
static void heti_nccl_even(const heti_nccl_group *g, heti_nccl_kind kind, char *all, size_t count,
                           het_communicator_element element, heti_nccl_issue *issue) {
    char *own = all + HETI_CAST(size_t, g->member) * count * heti_nccl_bytes(element);
    const ncclDataType_t type = heti_nccl_type(element);
    if (kind == HETI_NCCL_ALL_GATHER) HETI_NCCL_NOTE(issue, ncclAllGather, (own, all, count, type, g->comm, g->stream));
    else HETI_NCCL_NOTE(issue, ncclReduceScatter, (all, own, count, type, ncclSum, g->comm, g->stream));
}

/* Range m is reduced to member m, or comes from it. */
static void heti_nccl_ranges(const heti_nccl_group *g, const heti_nccl_op *op, heti_nccl_issue *issue) {
    const size_t bytes = heti_nccl_bytes(op->element), own = HETI_CAST(size_t, op->start[1] - op->start[0]);
    const ncclDataType_t type = heti_nccl_type(op->element);
    int even = own > 0;
    for (int64_t m = 1; m < g->members; m++) even &= HETI_CAST(size_t, op->start[m + 1] - op->start[m]) == own;
    if (even) {
        heti_nccl_even(g, op->kind, op->data + HETI_CAST(size_t, op->start[0]) * bytes, own, op->element, issue);
        return;
    }
    for (int m = 0; m < HETI_CAST(int, g->members) && issue->code == ncclSuccess; m++) {
        const size_t count = HETI_CAST(size_t, op->start[m + 1] - op->start[m]);
        char *data = op->data + HETI_CAST(size_t, op->start[m]) * bytes;
        if (count == 0) continue;
        if (op->kind == HETI_NCCL_ALL_GATHER)
            HETI_NCCL_NOTE(issue, ncclBroadcast, (data, data, count, type, m, g->comm, g->stream));
        else HETI_NCCL_NOTE(issue, ncclReduce, (data, data, count, type, ncclSum, m, g->comm, g->stream));
    }
}

/* The pieces that go to members and come from them. */
static void heti_nccl_pieces(const heti_nccl_group *g, const heti_nccl_op *op, heti_nccl_issue *issue) {
    for (int m = 0; m < HETI_CAST(int, g->members); m++) {
        const het_communicator_piece *out = &op->out[m], *in = &op->in[m];
        if (out->bytes > 0 && issue->code == ncclSuccess)
            HETI_NCCL_NOTE(issue, ncclSend, (out->data, out->bytes, ncclUint8, m, g->comm, g->stream));
        if (in->bytes > 0 && issue->code == ncclSuccess)
            HETI_NCCL_NOTE(issue, ncclRecv, (in->data, in->bytes, ncclUint8, m, g->comm, g->stream));
    }
}

/* What makes the connections of all that the group is for. The memory is 0 and stays so. */
static void heti_nccl_first(const heti_nccl_group *g, const heti_nccl_op *op, heti_nccl_issue *issue) {
    char *data = HETI_CAST(char *, g->scratch);
    for (int64_t m = 0; g->exchanges && m < g->members; m++) {
        op->out[m].data = data;
        op->in[m].data = data + 64 * (1 + m % 1000);
        op->out[m].bytes = op->in[m].bytes = m == g->member ? 0 : 64;
    }
    if (g->exchanges) {
        heti_nccl_pieces(g, op, issue);
        return;
    }
    HETI_NCCL_NOTE(issue, ncclReduce, (data, data, 1, ncclInt64, ncclSum, 0, g->comm, g->stream));
    for (int kind = HETI_NCCL_REDUCE_SCATTER; kind <= HETI_NCCL_ALL_GATHER; kind++)
        if (issue->code == ncclSuccess && 8 * g->members <= HETI_NCCL_SCRATCH)
            heti_nccl_even(g, HETI_CAST(heti_nccl_kind, kind), data, 1, HET_COMMUNICATOR_I64, issue);
}

/* Op number `issued` is on the stream. */
static het_result heti_nccl_posted(heti_nccl_group *g) {
    HETI_NCCL_CUDA(g, cudaEventRecord, (g->op[g->issued % g->ops].ran, g->stream));
    g->issued++;
    return HET_OK;
}

/* Gives op number `issued` to NCCL. */
static het_result heti_nccl_issue_op(heti_nccl_group *g) {
    const heti_nccl_op *op = &g->op[g->issued % g->ops];
    heti_nccl_issue issue = { ncclSuccess, NULL, 0 };
    ncclResult_t end;
    HETI_NCCL_CUDA(g, cudaSetDevice, (g->ordinal));
    if (op->kind != HETI_NCCL_FIRST) HETI_NCCL_CUDA(g, cudaStreamWaitEvent, (g->stream, op->ready, 0));
    HETI_NCCL_NOTE(&issue, ncclGroupStart, ());
    if (issue.code != ncclSuccess) return heti_nccl_failed(g, issue.code, issue.call, issue.line);
    if (op->kind == HETI_NCCL_FIRST) heti_nccl_first(g, op, &issue);
    else if (op->kind == HETI_NCCL_EXCHANGE) heti_nccl_pieces(g, op, &issue);
    else heti_nccl_ranges(g, op, &issue);
    end = ncclGroupEnd();
    heti_nccl_note(&issue, end, "ncclGroupEnd", __LINE__);
    if (issue.code != ncclSuccess) return heti_nccl_failed(g, issue.code, issue.call, issue.line);
    g->busy = end == ncclInProgress;
    return g->busy ? HET_OK : heti_nccl_posted(g);
}

/* The communicator's state: *busy as long as a call is in progress. */
static het_result heti_nccl_ask(heti_nccl_group *g, int32_t *busy) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t code = ncclCommGetAsyncError(g->comm, &state);
    *busy = 0;
    if (code != ncclSuccess) return heti_nccl_failed(g, code, "ncclCommGetAsyncError", __LINE__);
    if (state == ncclInProgress) *busy = 1;
    else if (state != ncclSuccess)
        return heti_nccl_failed(g, state, g->stage == HETI_NCCL_JOINING ? "ncclCommInitRankConfig" :
                                "ncclCommGetAsyncError found", __LINE__);
    return HET_OK;
}

/* Counts ops that have run. */
static het_result heti_nccl_count(heti_nccl_group *g) {
    while (g->finished < g->issued) {
        const cudaError_t code = cudaEventQuery(g->op[g->finished % g->ops].ran);
        if (code == cudaErrorNotReady) {
            (void)cudaGetLastError(); /* "not ready" is an answer */
            return HET_OK;
        }
        if (code != cudaSuccess) return heti_nccl_cuda_failed(g, code, "cudaEventQuery", __LINE__);
        g->finished++;
    }
    return HET_OK;
}

/* Takes the group as far as it comes without waiting. */
static het_result heti_nccl_advance(heti_nccl_group *g) {
    const int32_t was_busy = g->busy;
    if (g->failed != HET_OK) return g->failed;
    if (g->comm == NULL) return heti_nccl_say(g, HET_ERR_STATE, "the group was aborted");
    HETI_NCCL_CUDA(g, cudaSetDevice, (g->ordinal));
    HETI_NCCL_TRY(heti_nccl_ask(g, &g->busy));
    if (was_busy && !g->busy && g->stage != HETI_NCCL_JOINING) HETI_NCCL_TRY(heti_nccl_posted(g));
    if (!g->busy && g->stage == HETI_NCCL_JOINING) {
        g->stage = HETI_NCCL_FIRST_EXCHANGE;
        g->op[0].kind = HETI_NCCL_FIRST;
        g->given = 1;
    }
    while (!g->busy && g->issued < g->given) HETI_NCCL_TRY(heti_nccl_issue_op(g));
    HETI_NCCL_TRY(heti_nccl_count(g));
    if (g->stage == HETI_NCCL_FIRST_EXCHANGE && g->finished == 1) {
        g->stage = HETI_NCCL_JOINED;
        g->given = g->issued = g->finished = 0; /* of the ops */
    }
    return HET_OK;
}

/* A place for an op whose memory the queue has ready. */
static het_result heti_nccl_take(heti_nccl_group *g, het_queue *queue, heti_nccl_kind kind, heti_nccl_op **taken) {
    heti_nccl_op *op = &g->op[g->given % g->ops];
    const cudaStream_t stream = HETI_CAST(cudaStream_t, het_cuda_stream(&g->device, queue));
    if (g->failed != HET_OK) return g->failed;
    if (g->stage != HETI_NCCL_JOINED) return heti_nccl_say(g, HET_ERR_STATE, "op in a group not joined");
    if (g->exchanges != (kind == HETI_NCCL_EXCHANGE))
        return heti_nccl_say(g, HET_ERR_STATE, "the group was joined for %s",
                             g->exchanges ? "exchanges" : "reductions and gathers");
    if (g->given - g->finished >= g->ops) HETI_NCCL_TRY(heti_nccl_count(g));
    if (g->given - g->finished >= g->ops)
        return heti_nccl_say(g, HET_ERR_LIMIT, "%lld ops are under way, which is all the group was joined for",
                             HETI_CAST(long long, g->ops));
    HETI_NCCL_CUDA(g, cudaSetDevice, (g->ordinal));
    HETI_NCCL_CUDA(g, cudaEventRecord, (op->ready, stream));
    op->kind = kind;
    *taken = op;
    return HET_OK;
}

static het_result heti_nccl_give(heti_nccl_group *g) {
    g->given++;
    return heti_nccl_advance(g);
}

static het_result heti_nccl_collective(het_communicator *group, het_queue *queue, heti_nccl_kind kind, void *data,
                                       const int64_t *start, het_communicator_element element) {
    heti_nccl_group *g = heti_nccl_of(group);
    heti_nccl_op *op = NULL;
    for (int64_t m = 0; m < g->members; m++)
        if (start[0] < 0 || start[m] > start[m + 1])
            return heti_nccl_say(g, HET_ERR_INVALID, "range %lld of an op is [%lld, %lld)", HETI_CAST(long long, m),
                                 HETI_CAST(long long, start[m]), HETI_CAST(long long, start[m + 1]));
    HETI_NCCL_TRY(heti_nccl_take(g, queue, kind, &op));
    op->data = HETI_CAST(char *, data);
    op->element = element;
    memcpy(op->start, start, HETI_CAST(size_t, g->members + 1) * sizeof *start);
    return heti_nccl_give(g);
}

static het_result heti_nccl_reduce_scatter(void *self, het_communicator *group, het_queue *queue, void *data,
                                           const int64_t *start, het_communicator_element element) {
    (void)self;
    return heti_nccl_collective(group, queue, HETI_NCCL_REDUCE_SCATTER, data, start, element);
}

static het_result heti_nccl_all_gather(void *self, het_communicator *group, het_queue *queue, void *data,
                                       const int64_t *start, het_communicator_element element) {
    (void)self;
    return heti_nccl_collective(group, queue, HETI_NCCL_ALL_GATHER, data, start, element);
}

static het_result heti_nccl_exchange(void *self, het_communicator *group, het_queue *queue,
                                     const het_communicator_piece *out, const het_communicator_piece *in) {
    heti_nccl_group *g = heti_nccl_of(group);
    heti_nccl_op *op = NULL;
    const size_t bytes = HETI_CAST(size_t, g->members) * sizeof *out;
    (void)self;
    if (out[g->member].bytes > 0 || in[g->member].bytes > 0)
        return heti_nccl_say(g, HET_ERR_INVALID, "has a piece for itself");
    HETI_NCCL_TRY(heti_nccl_take(g, queue, HETI_NCCL_EXCHANGE, &op));
    memcpy(op->out, out, bytes);
    memcpy(op->in, in, bytes);
    return heti_nccl_give(g);
}

static het_result heti_nccl_joined(void *self, het_communicator *group, int32_t *done) {
    heti_nccl_group *g = heti_nccl_of(group);
    const het_result result = heti_nccl_advance(g);
    (void)self;
    *done = result == HET_OK && g->stage == HETI_NCCL_JOINED;
    return result;
}

static het_result heti_nccl_test(void *self, het_communicator *group, int64_t *finished) {
    heti_nccl_group *g = heti_nccl_of(group);
    const het_result result = heti_nccl_advance(g);
    (void)self;
    *finished = g->stage == HETI_NCCL_JOINED ? g->finished : 0;
    return result;
}

/* ---- leaving --------------------------------------------------------------------------------- */

static void heti_nccl_abort_group(heti_nccl_group *g) {
    if (g->comm == NULL) return;
    (void)cudaSetDevice(g->ordinal);
    (void)ncclCommAbort(g->comm);
    g->comm = NULL;
    (void)cudaGetLastError();
    g->busy = 0;
    g->given = g->issued;
    g->stage = HETI_NCCL_ABORTED;
}

static void heti_nccl_abort(void *self, het_communicator *group) {
    (void)self, heti_nccl_abort_group(heti_nccl_of(group));
}

/* Behind an abort: 1 when no op is under way. An error that comes twice is the stream's end:
   nothing more runs on it. */
static int heti_nccl_drain(heti_nccl_group *g, double seconds) {
    const double start = heti_nccl_now();
    int errors = 0;
    if (g->stream == NULL) return 1;
    for (;;) {
        const cudaError_t code = cudaStreamQuery(g->stream);
        (void)cudaGetLastError();
        if (code == cudaSuccess || (code != cudaErrorNotReady && ++errors == 2)) return 1;
        if (heti_nccl_now() - start > seconds) return 0;
        heti_nccl_pause();
    }
}

static void heti_nccl_free_group(heti_nccl_group *g) {
    g->nccl->allocator.free(g->nccl->allocator.user, g, g->block);
}

static void heti_nccl_end_events(heti_nccl_group *g) {
    (void)cudaSetDevice(g->ordinal);
    for (int64_t i = 0; i < g->ops; i++) {
        if (g->op[i].ready != NULL) (void)cudaEventDestroy(g->op[i].ready);
        if (g->op[i].ran != NULL) (void)cudaEventDestroy(g->op[i].ran);
        g->op[i].ready = g->op[i].ran = NULL;
    }
    if (g->stream != NULL) (void)cudaStreamDestroy(g->stream);
    g->stream = NULL;
    (void)cudaGetLastError();
}

/* Ends those that have been left and have come to their end; 1: none is left. Call with the lock
   held. */
static int heti_nccl_settle(heti_nccl *n, int give_up) {
    heti_nccl_group **at = &n->closing;
    while (*at != NULL) {
        heti_nccl_group *g = *at;
        int32_t busy = 0;
        const het_result result = heti_nccl_ask(g, &busy);
        if (result == HET_OK && busy && !give_up) {
            at = &g->next;
            continue;
        }
        (void)cudaSetDevice(g->ordinal);
        if (result == HET_OK && !busy) (void)ncclCommDestroy(g->comm);
        else {
            if (result == HET_OK) n->late++;
            (void)ncclCommAbort(g->comm);
        }
        *at = g->next;
        heti_nccl_free_group(g);
    }
    return n->closing == NULL;
}

static void heti_nccl_leave(void *self, het_communicator *group) {
    heti_nccl *n = heti_nccl_self(self);
    heti_nccl_group *g = heti_nccl_of(group);
    int drained = 1, closing = g->comm != NULL && g->failed == HET_OK && g->stage == HETI_NCCL_JOINED &&
                               heti_nccl_advance(g) == HET_OK && g->finished == g->given;
    if (closing) {
        const ncclResult_t code = ncclCommFinalize(g->comm); /* advance has set the card */
        closing = code == ncclSuccess || code == ncclInProgress;
        g->stage = HETI_NCCL_CLOSING;
    }
    if (!closing) {
        heti_nccl_abort_group(g);
        drained = heti_nccl_drain(g, n->abort_seconds);
    }
    if (drained) heti_nccl_end_events(g);
    (void)pthread_mutex_lock(&n->lock);
    n->members--;
    if (closing) {
        g->next = n->closing;
        n->closing = g;
    } else if (drained) heti_nccl_free_group(g);
    else n->stuck++; /* its events and stream are left to the process's end */
    (void)heti_nccl_settle(n, 0);
    (void)pthread_mutex_unlock(&n->lock);
}

/* ---- joining --------------------------------------------------------------------------------- */

/* The memory of the card's first exchanges, made with the first of them on the group's stream. Call
   with the lock held. */
static het_result heti_nccl_scratch(heti_nccl *n, heti_nccl_group *g) {
    heti_nccl_card *card = n->card;
    while (card != NULL && card->ordinal != g->ordinal) card = card->next;
    if (card == NULL) {
        card = HETI_CAST(heti_nccl_card *, n->allocator.alloc(n->allocator.user, sizeof *card, 16));
        if (card == NULL) return heti_nccl_say(g, HET_ERR_OOM, "no memory for the card");
        memset(card, 0, sizeof *card);
        card->ordinal = g->ordinal;
        card->next = n->card;
        n->card = card;
    }
    if (card->scratch == NULL) HETI_NCCL_CUDA(g, cudaMalloc, (&card->scratch, HETI_NCCL_SCRATCH));
    HETI_NCCL_CUDA(g, cudaMemsetAsync, (card->scratch, 0, HETI_NCCL_SCRATCH, g->stream));
    g->scratch = card->scratch;
    return HET_OK;
}

/* Stream, events, memory, and the start of the communicator. */
static het_result heti_nccl_begin(heti_nccl *n, heti_nccl_group *g, const heti_nccl_id *id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t code;
    het_result result;
    int least, first;
    HETI_NCCL_CUDA(g, cudaSetDevice, (g->ordinal));
    HETI_NCCL_CUDA(g, cudaDeviceGetStreamPriorityRange, (&least, &first));
    HETI_NCCL_CUDA(g, cudaStreamCreateWithPriority, (&g->stream, cudaStreamNonBlocking, first));
    for (int64_t i = 0; i < g->ops; i++) {
        HETI_NCCL_CUDA(g, cudaEventCreateWithFlags, (&g->op[i].ready, cudaEventDisableTiming));
        HETI_NCCL_CUDA(g, cudaEventCreateWithFlags, (&g->op[i].ran, cudaEventDisableTiming));
    }
    (void)pthread_mutex_lock(&n->lock);
    result = heti_nccl_scratch(n, g);
    (void)pthread_mutex_unlock(&n->lock);
    HETI_NCCL_TRY(result);
    config.blocking = 0;
    code = ncclCommInitRankConfig(&g->comm, HETI_CAST(int, g->members), id->unique, HETI_CAST(int, g->member), &config);
    if (code != ncclSuccess && code != ncclInProgress)
        return heti_nccl_failed(g, code, "ncclCommInitRankConfig", __LINE__);
    g->busy = 1; /* until asked */
    return HET_OK;
}

static heti_nccl_group *heti_nccl_allocate(heti_nccl *n, const het_device *device, int64_t members, int64_t member,
                                           int64_t ops, int32_t exchanges) {
    const size_t all = HETI_CAST(size_t, members), count = HETI_CAST(size_t, ops),
                 table = exchanges ? 2 * all * sizeof(het_communicator_piece) : (all + 1) * sizeof(int64_t);
    const size_t block = sizeof(heti_nccl_group) + count * (sizeof(heti_nccl_op) + table);
    heti_nccl_group *g = HETI_CAST(heti_nccl_group *, n->allocator.alloc(n->allocator.user, block, 16));
    if (g == NULL) return NULL;
    memset(g, 0, block);
    g->nccl = n;
    g->device = *device;
    g->ordinal = het_cuda_ordinal(device);
    g->members = members;
    g->member = member;
    g->ops = ops;
    g->exchanges = exchanges;
    g->block = block;
    g->op = HETI_NCCL_BITS(heti_nccl_op *, g + 1);
    for (size_t i = 0; i < count; i++) {
        char *at = HETI_NCCL_BITS(char *, g->op + count) + i * table;
        if (!exchanges) g->op[i].start = HETI_NCCL_BITS(int64_t *, at);
        else g->op[i].out = HETI_NCCL_BITS(het_communicator_piece *, at), g->op[i].in = g->op[i].out + all;
    }
    return g;
}

static void heti_nccl_version_text(int version, char *text, size_t capacity) {
    const int old = version < 10000; /* before 2.9: 2804 is 2.8.4 */
    (void)snprintf(text, capacity, "%d.%d.%d", version / (old ? 1000 : 10000), version / 100 % (old ? 10 : 100),
                   version % 100);
}

static het_result heti_nccl_check_join(heti_nccl *n, const het_device *device, const heti_nccl_id *id, int64_t members,
                                       int64_t member, int64_t ops) {
    char here[16], there[16];
    if (het_cuda_ordinal(device) < 0)
        return heti_nccl_tell(n, HET_ERR_INVALID, "nccl: a device of kind \"%s\" cannot be a member",
                              device->iface->name);
    if (members < 1 || members > INT_MAX || member < 0 || member >= members || ops < 1 || ops > INT_MAX / (members + 1))
        return heti_nccl_tell(n, HET_ERR_INVALID, "nccl: member %lld of %lld for %lld ops is impossible",
                              HETI_CAST(long long, member), HETI_CAST(long long, members), HETI_CAST(long long, ops));
    if (id->magic != HETI_NCCL_MAGIC)
        return heti_nccl_tell(n, HET_ERR_INVALID, "nccl: these %d bytes are not an identity of a group",
                              HETI_CAST(int, sizeof *id));
    if (id->version == n->version) return HET_OK;
    heti_nccl_version_text(n->version, here, sizeof here);
    heti_nccl_version_text(id->version, there, sizeof there);
    return heti_nccl_tell(n, HET_ERR_UNSUPPORTED,
                          "nccl: member %lld of %lld has NCCL %s, the one that made the group has %s",
                          HETI_CAST(long long, member), HETI_CAST(long long, members), here, there);
}

static het_result heti_nccl_join(void *self, const het_device *device, const void *id, int64_t members, int64_t member,
                                 int64_t ops, int32_t exchanges, het_communicator **group) {
    heti_nccl *n = heti_nccl_self(self);
    heti_nccl_id identity;
    heti_nccl_group *g;
    het_result result;
    *group = NULL;
    memcpy(&identity, id, sizeof identity);
    result = heti_nccl_check_join(n, device, &identity, members, member, ops);
    if (result != HET_OK) return result;
    g = heti_nccl_allocate(n, device, members, member, ops, exchanges);
    if (g == NULL)
        return heti_nccl_tell(n, HET_ERR_OOM, "nccl: no memory for a group of %lld members",
                              HETI_CAST(long long, members));
    result = heti_nccl_begin(n, g, &identity);
    if (result != HET_OK) {
        (void)heti_nccl_tell(n, result, "%s", g->text);
        heti_nccl_abort_group(g);
        if (heti_nccl_drain(g, n->abort_seconds)) heti_nccl_end_events(g);
        heti_nccl_free_group(g);
        return result;
    }
    (void)pthread_mutex_lock(&n->lock);
    n->members++;
    (void)pthread_mutex_unlock(&n->lock);
    *group = HETI_NCCL_BITS(het_communicator *, g);
    return HET_OK;
}

static het_result heti_nccl_place(void *self, const het_device *device, char *text, size_t capacity) {
    heti_nccl *n = heti_nccl_self(self);
    const int ordinal = het_cuda_ordinal(device);
    char bus[24];
    cudaError_t code;
    int length;
    text[0] = 0;
    if (ordinal < 0) return HET_OK;
    code = cudaDeviceGetPCIBusId(bus, HETI_CAST(int, sizeof bus), ordinal);
    if (code != cudaSuccess) {
        (void)cudaGetLastError();
        return heti_nccl_tell(n, HET_ERR_DEVICE, "nccl, cuda:%d, cudaDeviceGetPCIBusId: %s (%s), hetrain_nccl.c:%d",
                              ordinal, cudaGetErrorName(code), cudaGetErrorString(code), __LINE__);
    }
    length = snprintf(text, capacity, "%s %s", n->host, bus);
    if (length > 0 && HETI_CAST(size_t, length) < capacity) return HET_OK;
    text[0] = 0;
    return heti_nccl_tell(n, HET_ERR_LIMIT, "nccl, cuda:%d: its place takes %d bytes, there are %d", ordinal,
                          length + 1, HETI_CAST(int, capacity));
}

static het_result heti_nccl_identity(void *self, void *id) {
    heti_nccl *n = heti_nccl_self(self);
    heti_nccl_id made;
    ncclResult_t code;
    memset(&made, 0, sizeof made);
    made.magic = HETI_NCCL_MAGIC;
    made.version = n->version;
    code = ncclGetUniqueId(&made.unique);
    if (code != ncclSuccess)
        return heti_nccl_tell(n, heti_nccl_result(code), "nccl, ncclGetUniqueId: %s (%s), hetrain_nccl.c:%d",
                              heti_nccl_code(code), ncclGetErrorString(code), __LINE__);
    memcpy(id, &made, sizeof made);
    return HET_OK;
}

static const char *heti_nccl_last_error(void *self, het_communicator *group) {
    return group != NULL ? heti_nccl_of(group)->text : heti_nccl_self(self)->text;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static const het_communicator_iface heti_nccl_iface = {
    HETRAIN_COMMUNICATOR_VERSION, "nccl", sizeof(heti_nccl_id), heti_nccl_place, heti_nccl_identity, heti_nccl_join,
    heti_nccl_joined, heti_nccl_reduce_scatter, heti_nccl_all_gather, heti_nccl_exchange, heti_nccl_test,
    heti_nccl_abort, heti_nccl_leave, heti_nccl_last_error
};

static het_result heti_nccl_seconds(double *seconds, double standard, const char *name, het_error *error) {
    if (*seconds == 0.0) *seconds = standard;
    if (*seconds > 0.0 && *seconds <= 1e9) return HET_OK;
    return heti_nccl_fail(error, HET_ERR_INVALID, "het_nccl_open: %s is %g, must be from 0 to 1e9", name, *seconds);
}

static het_result heti_nccl_settings(const het_nccl_desc *desc, het_nccl_desc *settings, het_error *error) {
    memset(settings, 0, sizeof *settings);
    if (desc != NULL) *settings = *desc;
    if (settings->start_canary != 0 || settings->end_canary != 0)
        return heti_nccl_fail(error, HET_ERR_INVALID, "het_nccl_open: the description was not cleared to 0");
    HETI_NCCL_TRY(heti_nccl_seconds(&settings->abort_seconds, 5, "abort_seconds", error));
    HETI_NCCL_TRY(heti_nccl_seconds(&settings->close_seconds, 10, "close_seconds", error));
    if (settings->host != NULL && strlen(settings->host) >= HETI_NCCL_HOST)
        return heti_nccl_fail(error, HET_ERR_LIMIT, "het_nccl_open: host has %lld bytes, at most %d are allowed",
                              HETI_CAST(long long, strlen(settings->host)), HETI_NCCL_HOST - 1);
    if ((settings->allocator.alloc == NULL) != (settings->allocator.free == NULL))
        return heti_nccl_fail(error, HET_ERR_INVALID,
                              "het_nccl_open: the allocator has one of alloc and free, must have both or neither");
    if (settings->allocator.alloc == NULL) {
#ifdef HETRAIN_NO_DEFAULT_ALLOCATOR
        return heti_nccl_fail(error, HET_ERR_INVALID,
                              "het_nccl_open: the allocator is missing, and this build has no default one");
#else
        settings->allocator.alloc = heti_nccl_malloc;
        settings->allocator.free = heti_nccl_release;
#endif
    }
    return HET_OK;
}

/* As NCCL tells machines apart: the host's name, then the boot id where there is one. */
static void heti_nccl_find_host(char *host) {
    FILE *file;
    size_t length;
    memset(host, 0, HETI_NCCL_HOST);
    if (gethostname(host, HETI_NCCL_HOST - 38) != 0) host[0] = 0;
    length = strlen(host);
    file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file == NULL) return;
    length += fread(host + length, 1, 36, file);
    host[length] = 0;
    (void)fclose(file);
}

/* The library must know what the header promises; a newer one serves older headers. */
static het_result heti_nccl_check_version(int32_t *version, het_error *error) {
    char header[16], library[16];
    int found = 0;
    const ncclResult_t code = ncclGetVersion(&found);
    if (code != ncclSuccess)
        return heti_nccl_fail(error, HET_ERR_UNSUPPORTED, "het_nccl_open: ncclGetVersion: %s (%s), hetrain_nccl.c:%d",
                              heti_nccl_code(code), ncclGetErrorString(code), __LINE__);
    *version = found;
    if (found >= NCCL_VERSION_CODE) return HET_OK;
    heti_nccl_version_text(NCCL_VERSION_CODE, header, sizeof header);
    heti_nccl_version_text(found, library, sizeof library);
    return heti_nccl_fail(error, HET_ERR_UNSUPPORTED,
                          "het_nccl_open: the NCCL library is version %s, this program was compiled for %s", library,
                          header);
}

HETRAIN_API het_result het_nccl_open(const het_nccl_desc *desc, het_communicators *groups, het_error *error) {
    het_nccl_desc settings;
    heti_nccl *n;
    int32_t version = 0;
    if (groups == NULL) return heti_nccl_fail(error, HET_ERR_INVALID, "het_nccl_open: groups is NULL");
    groups->iface = NULL;
    groups->self = NULL;
    HETI_NCCL_TRY(heti_nccl_settings(desc, &settings, error));
    HETI_NCCL_TRY(heti_nccl_check_version(&version, error));
    n = HETI_CAST(heti_nccl *, settings.allocator.alloc(settings.allocator.user, sizeof *n, 16));
    if (n == NULL)
        return heti_nccl_fail(error, HET_ERR_OOM, "het_nccl_open: no memory for %d bytes", HETI_CAST(int, sizeof *n));
    memset(n, 0, sizeof *n);
    n->allocator = settings.allocator;
    n->abort_seconds = settings.abort_seconds;
    n->close_seconds = settings.close_seconds;
    n->version = version;
    if (settings.host != NULL) (void)snprintf(n->host, sizeof n->host, "%s", settings.host);
    else heti_nccl_find_host(n->host);
    if (pthread_mutex_init(&n->lock, NULL) != 0) {
        settings.allocator.free(settings.allocator.user, n, sizeof *n);
        return heti_nccl_fail(error, HET_ERR_OOM, "het_nccl_open: no mutex");
    }
    groups->iface = &heti_nccl_iface;
    groups->self = n;
    return HET_OK;
}

static void heti_nccl_free_cards(heti_nccl *n) {
    while (n->card != NULL) {
        heti_nccl_card *card = n->card;
        (void)cudaSetDevice(card->ordinal);
        /* it waits for the card, else for ever */
        if (card->scratch != NULL && n->stuck == 0) (void)cudaFree(card->scratch);
        n->card = card->next;
        n->allocator.free(n->allocator.user, card, sizeof *card);
    }
    (void)cudaGetLastError();
}

HETRAIN_API het_result het_nccl_close(het_communicators *groups, het_error *error) {
    const double start = heti_nccl_now();
    heti_nccl *n;
    int settled = 0;
    int64_t stuck, late;
    het_allocator allocator;
    if (groups == NULL || groups->self == NULL) return HET_OK;
    if (groups->iface != &heti_nccl_iface)
        return heti_nccl_fail(error, HET_ERR_INVALID, "het_nccl_close: the groups are of \"%s\", not \"nccl\"",
                              groups->iface->name);
    n = heti_nccl_self(groups->self);
    if (n->members > 0)
        return heti_nccl_fail(error, HET_ERR_STATE, "het_nccl_close: %lld members have not left their groups",
                              HETI_CAST(long long, n->members));
    groups->iface = NULL;
    groups->self = NULL;
    while (!settled) {
        (void)pthread_mutex_lock(&n->lock);
        settled = heti_nccl_settle(n, heti_nccl_now() - start > n->close_seconds);
        (void)pthread_mutex_unlock(&n->lock);
        if (!settled) heti_nccl_pause();
    }
    stuck = n->stuck;
    late = n->late;
    allocator = n->allocator;
    heti_nccl_free_cards(n);
    (void)pthread_mutex_destroy(&n->lock);
    allocator.free(allocator.user, n, sizeof *n);
    if (stuck + late == 0) return HET_OK;
    return heti_nccl_fail(error, HET_ERR_TRANSPORT,
                          "het_nccl_close: ops of %lld members did not end, other members of %lld did not leave in "
                          "time", HETI_CAST(long long, stuck), HETI_CAST(long long, late));
}

#ifdef __cplusplus
}
#endif
#endif /* HETRAIN_NCCL_DONE */
