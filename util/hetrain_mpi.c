/* hetrain_mpi.c: connects the processes of an MPI program for hetrain (het_transport_iface over MPI
   3.0 or later). C99 and C++11.

   USE
       mpicc -O2 -I. -c util/hetrain_mpi.c                     once; any MPI of the standard's
                                                               version 3 or later
       #define HETRAIN_MPI_DECLARATIONS                        in the files that call het_mpi_open:
                                                               this file then only declares,
       #include "hetrain_mpi.c"                                and needs no mpi.h
       het_mpi_desc desc;
       het_transport transport;
       memset(&desc, 0, sizeof desc);
       if (het_mpi_open(&argc, &argv, &desc, &transport, &error) == HET_OK) { ...;
       het_mpi_close(&transport, &error); }

   THREADS OF MPI   One thread at a time calls MPI between het_mpi_open and het_mpi_close: a
   communication thread, or who starts a message or asks for one; the opening thread makes the calls
   before and after. So MPI_THREAD_SERIALIZED is enough and is what het_mpi_open asks for. A program
   that has initialised MPI itself must have got MPI_THREAD_SERIALIZED, and MPI_THREAD_MULTIPLE if
   it calls MPI while the transport is open. het_mpi_open is collective over MPI_COMM_WORLD and
   blocks until all processes call it. One transport at a time; open and close on the thread that
   initialises MPI.

   MESSAGES   MPI's matching gives the order: messages of one (from, to, channel) share communicator
   and tag. A message travels as pieces of HETRAIN_MPI_PIECE bytes and ends with a shorter one,
   possibly empty, so that two lengths that differ are noticed in the message where they do, also
   beyond the range of an int. The het_request is the node of the queues: nothing is allocated for a
   message, and a het_request and its data must stay where they are until `test` says done or gives
   an error. Where nothing moves the communication thread sleeps up to 50 us at a time; without
   requests it wakes twice a heartbeat.

   FAILURE   A transport ends with the first abort, its own or one received: requests that MPI is
   not at work on fail at once, the others when the process at their other end says that it receives
   no more, and what is left after abort_seconds is given up. Thus `test` gives done or an error for
   every request within abort_seconds after an abort; go on calling it until then, because before
   that MPI may still read or write the data. last_error is the first error of this transport and
   does not change afterwards.

   CLOSING   het_mpi_close ends outstanding requests in the same way and says goodbye to all
   processes. When all have done so and every message has arrived it frees its communicators, calls
   MPI_Finalize if het_mpi_open had initialised MPI, and returns HET_OK; this also holds after an
   abort. It waits for processes that are still at work as long as their heartbeats come. It gives
   up, and returns HET_ERR_TRANSPORT, when a process has been silent for dead_seconds of its wait,
   or abort_seconds after an abort: MPI_Finalize, which would hang, is then not called, MPI must not
   be used any more, and the transport's memory is not returned since MPI may still write there. End
   the process with a status other than 0: launchers (mpirun, srun) then end the job. They also end
   it when a process is killed; a process never calls MPI_Abort on behalf of another. */
#ifndef HETRAIN_MPI_DECLARED
#define HETRAIN_MPI_DECLARED

#if !defined(HETRAIN_MPI_DECLARATIONS) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* clock_gettime, pthread_condattr_setclock under -std=c99 */
#endif

#include "hetrain.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 0 everywhere: all defaults. */
typedef struct het_mpi_desc {
    uint32_t start_canary;     /* must be 0 */
    double heartbeat_seconds;  /* 0.5: every process hears from this one at least so often */
    double dead_seconds;       /* 10: het_mpi_close gives up on a process silent for so long */
    double abort_seconds;      /* 5: the longest abort waits for its message to arrive, requests
                                  outlive an abort, and close waits after one */
    het_allocator allocator;   /* malloc and free; used by open and close only */
    uint32_t end_canary;       /* must be 0 */
} het_mpi_desc;

/* Starts MPI unless that has been done (argc and argv may be NULL) and fills *transport. desc NULL:
   all defaults. Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_mpi_open(int *argc, char ***argv, const het_mpi_desc *desc,
                                                       het_transport *transport, het_error *error);
/* See CLOSING. Clears *transport; one that is not open is left alone. Threads: owner. */
HETRAIN_API het_result het_mpi_close(het_transport *transport, het_error *error);

#ifdef __cplusplus
}
#endif
#endif /* HETRAIN_MPI_DECLARED */

#if !defined(HETRAIN_MPI_DECLARATIONS) && !defined(HETRAIN_MPI_DONE)
#define HETRAIN_MPI_DONE

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1 /* only the C interface */
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#ifndef HETRAIN_NO_DEFAULT_ALLOCATOR
#include <stdlib.h>
#endif

#ifndef HETRAIN_MPI_PIECE
#define HETRAIN_MPI_PIECE (1 << 30) /* bytes; at most INT_MAX */
#endif

#ifndef HETI_CAST
#ifdef __cplusplus
#define HETI_CAST(type, value) static_cast<type>(value)
#else
#define HETI_CAST(type, value) ((type)(value))
#endif
#endif

#if defined(__GNUC__) || defined(__clang__)
#define HETI_MPI_PRINTF(text, first) __attribute__((format(printf, text, first)))
#define HETI_MPI_MAY_ALIAS __attribute__((may_alias)) /* the memory of a het_request */
#else
#define HETI_MPI_PRINTF(text, first)
#define HETI_MPI_MAY_ALIAS
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define HETI_MPI_BATCH 64           /* requests of one MPI_Testsome */
#define HETI_MPI_YIELDS 16          /* turns without sleep after something moved */
#define HETI_MPI_LONGEST_SLEEP 50e-6
#define HETI_MPI_CHANNELS (1 << 24)
#define HETI_MPI_TEXT 499           /* bytes of an abort's text, as of a het_error's */

/* Tags of the control communicator. QUIET: no message is being received, nor will be; BYE: the last
   to this process. All are synchronous sends: one that has not arrived is not followed by another
   of its kind, so a process that does not listen is sent a bounded number of messages. */
enum { HETI_MPI_BEAT = 0, HETI_MPI_ABORT = 1, HETI_MPI_QUIET = 2, HETI_MPI_BYE = 3, HETI_MPI_KINDS = 4 };

enum { HETI_MPI_BUSY = 0x4D50, HETI_MPI_OK, HETI_MPI_FAILED }; /* state of a request; other values: never started */

/* A request, in the memory of a het_request. `state` is guarded by the lock; all else, once queued,
   by the turn. */
typedef struct heti_mpi_node {
    struct heti_mpi_node *next;
    struct heti_mpi_node *behind, *tail; /* the next in line; of the first, the last in line */
    const unsigned char *from;   /* of a send */
    unsigned char *to;           /* of a receive */
    size_t size, begun;          /* bytes; bytes of pieces that were given to MPI */
    MPI_Request request;
    int receives, process, channel;
    int piece;                   /* bytes of the piece under way; the last piece is shorter than HETRAIN_MPI_PIECE */
    int outcome;                 /* what state becomes */
    int state;
} HETI_MPI_MAY_ALIAS heti_mpi_node;

typedef char heti_mpi_node_fits[sizeof(heti_mpi_node) <= sizeof(het_request) ? 1 : -1];

typedef struct heti_mpi_list { heti_mpi_node *first, *last; } heti_mpi_list;

typedef struct heti_mpi {
    het_allocator allocator;
    double heartbeat, dead, abort_limit;
    int processes, process, finalize; /* finalize: MPI was initialised by open */
    MPI_Comm data, control;
    pthread_t thread;

    pthread_mutex_t lock;             /* guards from here ... */
    pthread_cond_t work;              /* to the communication thread: wake is set */
    pthread_cond_t told;              /* from it: abort_state became 2 */
    int wake, asleep, stop, closing;  /* asleep: for long; stop: no more messages, after an abort or in close */
    heti_mpi_list queued;             /* requests that nobody with the turn has seen yet */
    int aborted, abort_process;       /* the first abort; aborted: a het_result */
    int abort_state;                  /* 1: to be sent; 2: it has arrived everywhere, or time is up */
    double abort_time, close_time, looked; /* looked: in close, at the others */
    char abort_text[HETI_MPI_TEXT + 1];
    het_error error;                  /* the first one */
    double *heard;                    /* [processes] when; -infinity: said goodbye */
                                      /* ... to here */
    pthread_mutex_t turn;             /* who has it calls MPI; guards the rest */
    heti_mpi_list waiting;            /* not started */
    heti_mpi_list lines;              /* receives whose message, or a piece of it but the last, has
                                         not come: the first of each line */
    heti_mpi_list active;             /* given to MPI: sends, last pieces of receives */
    int stopped, ended;               /* stop, aborted != HET_OK as of this turn */
    int idle, farewell, abort_begun, clean, leave;
    int64_t unfinished;               /* active sends with pieces to come */
    int64_t receiving;                /* receives MPI is at work on */
    int64_t dropped;                  /* messages nobody receives */
    int64_t abandoned;                /* requests MPI may be at work on that were given up */
    double next_beat, moved_time;
    MPI_Request receive;
    int goodbyes;                     /* of other processes */
    unsigned char *quiet;             /* [processes] */
    int outstanding[HETI_MPI_KINDS];
    MPI_Request *sent[HETI_MPI_KINDS]; /* [processes] each */
    int *index;                        /* [processes] of MPI_Testsome */
    unsigned char message[4 + HETI_MPI_TEXT], abort_message[4 + HETI_MPI_TEXT];
    size_t abort_size, block;          /* block: bytes of the allocation */
} heti_mpi;

/* ---- texts, time, memory --------------------------------------------------------------------- */

static void heti_mpi_clean_text(char *text) {
    for (; *text != 0; text++)
        if ((*text > 0 && *text < 32) || *text == 127) *text = '?';
}

static HETI_MPI_PRINTF(3, 0) void heti_mpi_format(het_error *error, het_result code, const char *format,
                                                  va_list list) {
    (void)vsnprintf(error->text, sizeof error->text, format, list);
    heti_mpi_clean_text(error->text);
    error->code = code;
}

static HETI_MPI_PRINTF(3, 4) het_result heti_mpi_fail(het_error *error, het_result code, const char *format, ...) {
    va_list list;
    va_start(list, format);
    if (error != NULL) heti_mpi_format(error, code, format, list);
    va_end(list);
    return code;
}

/* The first error stays. Call with the lock held. */
static HETI_MPI_PRINTF(3, 4) het_result heti_mpi_say(heti_mpi *m, het_result code, const char *format, ...) {
    va_list list;
    va_start(list, format);
    if (m->error.text[0] == 0) heti_mpi_format(&m->error, code, format, list);
    va_end(list);
    return code;
}

static double heti_mpi_now(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return HETI_CAST(double, t.tv_sec) + 1e-9 * HETI_CAST(double, t.tv_nsec);
}

static void heti_mpi_sleep(pthread_cond_t *condition, pthread_mutex_t *lock, double seconds) {
    struct timespec t;
#ifdef __APPLE__ /* conditions there know no monotonic clock, but relative times */
    const double until = seconds;
#else
    const double until = heti_mpi_now() + seconds;
#endif
    t.tv_sec = HETI_CAST(time_t, until);
    t.tv_nsec = HETI_CAST(long, (until - HETI_CAST(double, t.tv_sec)) * 1e9);
#ifdef __APPLE__
    (void)pthread_cond_timedwait_relative_np(condition, lock, &t);
#else
    (void)pthread_cond_timedwait(condition, lock, &t);
#endif
}

static int heti_mpi_condition(pthread_cond_t *condition) {
#ifdef __APPLE__
    return pthread_cond_init(condition, NULL);
#else
    pthread_condattr_t attributes;
    int status = pthread_condattr_init(&attributes);
    if (status != 0) return status;
    status = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (status == 0) status = pthread_cond_init(condition, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    return status;
#endif
}

#ifndef HETRAIN_NO_DEFAULT_ALLOCATOR
static void *heti_mpi_malloc(void *user, size_t size, size_t align) {
    (void)user, (void)align; /* the structs here need no more than malloc gives */
    return malloc(size);
}

static void heti_mpi_release(void *user, void *pointer, size_t size) {
    (void)user, (void)size;
    free(pointer);
}
#endif

/* ---- lists ----------------------------------------------------------------------------------- */

static void heti_mpi_append(heti_mpi_list *list, heti_mpi_node *node) {
    node->next = NULL;
    if (list->last != NULL) list->last->next = node;
    else list->first = node;
    list->last = node;
}

static heti_mpi_node *heti_mpi_take(heti_mpi_list *list) {
    heti_mpi_node *node = list->first;
    if (node != NULL) {
        list->first = node->next;
        if (node->next == NULL) list->last = NULL;
    }
    return node;
}

/* Everything of `from` goes behind `to`. */
static void heti_mpi_join(heti_mpi_list *to, heti_mpi_list *from) {
    if (from->first == NULL) return;
    if (to->last != NULL) to->last->next = from->first;
    else to->first = from->first;
    to->last = from->last;
    from->first = from->last = NULL;
}

/* ---- the first abort ------------------------------------------------------------------------- */

/* Call with the lock held. `length` bytes of text need no end. */
static void heti_mpi_record_abort(heti_mpi *m, int process, int code, const char *text, size_t length) {
    if (m->aborted != HET_OK) return;
    if (length > HETI_MPI_TEXT) length = HETI_MPI_TEXT;
    if (length > 0) memcpy(m->abort_text, text, length);
    m->abort_text[length] = 0;
    heti_mpi_clean_text(m->abort_text);
    m->aborted = code;
    m->abort_process = process;
    m->abort_time = heti_mpi_now();
    m->stop = 1;
    m->wake = 1;
    (void)heti_mpi_say(m, HET_ERR_TRANSPORT, "mpi: process %d aborted: %s", process, m->abort_text);
}

/* ---- with the turn: messages --------------------------------------------------------------------
   A receive is given to MPI only when its message is there and has the length expected
   (MPI_Improbe): what a message that is longer than its buffer does is left to no MPI, and a
   receive whose message never comes needs no cancelling. Receives of one (process, channel) stand
   in line. */

/* What MPI says of a call for a request; returns -1. */
static int heti_mpi_request_error(heti_mpi *m, const heti_mpi_node *node, int code) {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    text[0] = 0;
    (void)MPI_Error_string(code, text, &length);
    (void)pthread_mutex_lock(&m->lock);
    (void)heti_mpi_say(m, HET_ERR_TRANSPORT, "mpi: %s process %d, channel %d, of %llu bytes: %s",
                       node->receives ? "message from" : "message to", node->process, node->channel,
                       HETI_CAST(unsigned long long, node->size), text);
    (void)pthread_mutex_unlock(&m->lock);
    return -1;
}

/* A piece of `count` bytes came. One that is shorter than HETRAIN_MPI_PIECE ends its message. */
static void heti_mpi_length_error(heti_mpi *m, const heti_mpi_node *node, int count) {
    const unsigned long long sent = HETI_CAST(unsigned long long, node->begun) + HETI_CAST(unsigned long long, count);
    (void)pthread_mutex_lock(&m->lock);
    (void)heti_mpi_say(m, HET_ERR_TRANSPORT,
                       "mpi: message from process %d to process %d, channel %d: %s%llu bytes were sent, %llu expected",
                       node->process, m->process, node->channel, count < HETRAIN_MPI_PIECE ? "" : "at least ", sent,
                       HETI_CAST(unsigned long long, node->size));
    (void)pthread_mutex_unlock(&m->lock);
}

static int heti_mpi_is_last(const heti_mpi_node *node) { return node->piece < HETRAIN_MPI_PIECE; }

/* Length of the next piece. */
static int heti_mpi_next_piece(const heti_mpi_node *node) {
    const size_t left = node->size - node->begun;
    return left < HETI_CAST(size_t, HETRAIN_MPI_PIECE) ? HETI_CAST(int, left) : HETRAIN_MPI_PIECE;
}

static void heti_mpi_fail_node(heti_mpi_node *node, heti_mpi_list *done) {
    node->outcome = HETI_MPI_FAILED;
    heti_mpi_append(done, node);
}

/* Gives the next piece of a send to MPI. -1: MPI refused. */
static int heti_mpi_send_piece(heti_mpi *m, heti_mpi_node *node) {
    const unsigned char *from = node->size == 0 ? NULL : node->from + node->begun;
    int code;
    node->piece = heti_mpi_next_piece(node);
    code = MPI_Isend(from, node->piece, MPI_BYTE, node->process, node->channel, m->data, &node->request);
    if (code != MPI_SUCCESS) return heti_mpi_request_error(m, node, code);
    node->begun += HETI_CAST(size_t, node->piece);
    return 1;
}

/* A later message of the same (process, channel) must not slip between the pieces of an earlier
   one. */
static int heti_mpi_blocked(const heti_mpi *m, const heti_mpi_node *node) {
    for (const heti_mpi_node *other = m->unfinished > 0 ? m->active.first : NULL; other != NULL; other = other->next)
        if (!other->receives && !heti_mpi_is_last(other) && other->process == node->process &&
            other->channel == node->channel)
            return 1;
    return 0;
}

/* To the end of its line: m->lines has the first of every line, `behind` leads to the next. */
static void heti_mpi_stand_in_line(heti_mpi *m, heti_mpi_node *node) {
    heti_mpi_node *head = m->lines.first;
    node->behind = NULL;
    node->tail = node;
    while (head != NULL && (head->process != node->process || head->channel != node->channel)) head = head->next;
    if (head == NULL) {
        heti_mpi_append(&m->lines, node);
    } else {
        head->tail->behind = node;
        head->tail = node;
    }
}

/* Starts what waits, in order, or fails it: close still sends what was queued before it, an abort
   sends nothing more. */
static int heti_mpi_start_waiting(heti_mpi *m, heti_mpi_list *done) {
    heti_mpi_list blocked = { NULL, NULL };
    heti_mpi_node *node;
    int moved = 0;
    while ((node = heti_mpi_take(&m->waiting)) != NULL) {
        if (!m->ended && !node->receives && heti_mpi_blocked(m, node)) {
            heti_mpi_append(&blocked, node);
            continue;
        }
        moved = 1;
        if (m->ended || (node->receives && m->stopped)) {
            heti_mpi_fail_node(node, done);
        } else if (node->receives) {
            heti_mpi_stand_in_line(m, node);
        } else if (heti_mpi_send_piece(m, node) > 0) {
            if (!heti_mpi_is_last(node)) m->unfinished++;
            heti_mpi_append(&m->active, node);
        } else {
            heti_mpi_fail_node(node, done);
        }
    }
    m->waiting = blocked;
    return moved;
}

/* Looks for the next piece of the first in a line. 0: not there; 1: MPI is receiving it; -1:
   failed. */
static int heti_mpi_receive_piece(heti_mpi *m, heti_mpi_node *node) {
    MPI_Message message;
    MPI_Status status;
    int there = 0, count = 0, code;
    code = MPI_Improbe(node->process, node->channel, m->data, &there, &message, &status);
    if (code == MPI_SUCCESS && !there) return 0;
    if (code == MPI_SUCCESS) {
        (void)MPI_Get_count(&status, MPI_BYTE, &count);
        node->piece = heti_mpi_next_piece(node);
        if (count != node->piece) { /* the message is left where it is */
            m->dropped++;
            heti_mpi_length_error(m, node, count);
            return -1;
        }
        code = MPI_Imrecv(node->size == 0 ? NULL : node->to + node->begun, node->piece, MPI_BYTE, &message,
                          &node->request);
    }
    if (code != MPI_SUCCESS) return heti_mpi_request_error(m, node, code);
    node->begun += HETI_CAST(size_t, node->piece);
    m->receiving++;
    return 1;
}

/* A piece that is not the last is under way. 0: still; 1: it is there; -1: failed. */
static int heti_mpi_wait_piece(heti_mpi *m, heti_mpi_node *node) {
    int there = 0;
    const int code = MPI_Test(&node->request, &there, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS && !there) return 0;
    m->receiving--;
    return code == MPI_SUCCESS ? 1 : heti_mpi_request_error(m, node, code);
}

/* Moves the first of a line on. 0: it stays the first; otherwise it has gone to m->active or
   `done`. */
static int heti_mpi_advance(heti_mpi *m, heti_mpi_node *node, heti_mpi_list *done) {
    for (;;) {
        const int waits = node->request != MPI_REQUEST_NULL,
                  status = waits ? heti_mpi_wait_piece(m, node) : m->stopped ? -1 : heti_mpi_receive_piece(m, node);
        if (status == 0) return 0;
        if (status > 0 && (waits || !heti_mpi_is_last(node))) continue;
        if (status < 0) heti_mpi_fail_node(node, done);
        else heti_mpi_append(&m->active, node);
        return 1;
    }
}

static int heti_mpi_advance_lines(heti_mpi *m, heti_mpi_list *done) {
    heti_mpi_list all = m->lines;
    heti_mpi_node *node, *behind, *tail;
    int moved = 0;
    m->lines.first = m->lines.last = NULL;
    while ((node = heti_mpi_take(&all)) != NULL) {
        do {
            const size_t begun = node->begun;
            behind = node->behind;
            tail = node->tail;
            if (!heti_mpi_advance(m, node, done)) {
                moved += node->begun != begun;
                heti_mpi_append(&m->lines, node);
                break;
            }
            moved++;
            if (behind != NULL) behind->tail = tail;
            node = behind;
        } while (node != NULL);
    }
    return moved;
}

/* What MPI_Testsome found done. Returns the request's outcome, HETI_MPI_BUSY if it goes on. */
static int heti_mpi_piece_done(heti_mpi *m, heti_mpi_node *node, int code) {
    const int outcome = code == MPI_SUCCESS ? HETI_MPI_OK : HETI_MPI_FAILED;
    if (node->receives) m->receiving--;
    if (outcome == HETI_MPI_FAILED) (void)heti_mpi_request_error(m, node, code);
    if (heti_mpi_is_last(node)) return outcome;
    if (outcome == HETI_MPI_OK && !m->ended && heti_mpi_send_piece(m, node) > 0) {
        if (heti_mpi_is_last(node)) m->unfinished--;
        return HETI_MPI_BUSY;
    }
    m->unfinished--;
    return HETI_MPI_FAILED;
}

/* Tests up to HETI_MPI_BATCH requests from the front of `from`; those that go on are appended to
   m->active. A send to a process that receives no more, and has nothing under way, will not be
   touched by MPI again: it is over. */
static int heti_mpi_test_batch(heti_mpi *m, heti_mpi_list *from, heti_mpi_list *done) {
    heti_mpi_node *node[HETI_MPI_BATCH];
    MPI_Request request[HETI_MPI_BATCH];
    MPI_Status status[HETI_MPI_BATCH];
    int index[HETI_MPI_BATCH];
    int count = 0, finished = 0, i, code;
    while (count < HETI_MPI_BATCH && (node[count] = heti_mpi_take(from)) != NULL) {
        request[count] = node[count]->request;
        node[count]->outcome = HETI_MPI_BUSY;
        count++;
    }
    code = MPI_Testsome(count, request, &finished, index, status);
    if (finished == MPI_UNDEFINED || (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)) finished = 0;
    for (i = 0; i < count; i++) node[i]->request = request[i];
    for (i = 0; i < finished; i++) {
        heti_mpi_node *n = node[index[i]];
        n->outcome = heti_mpi_piece_done(m, n, code == MPI_SUCCESS ? MPI_SUCCESS : status[i].MPI_ERROR);
    }
    for (i = 0; i < count; i++) {
        if (m->stopped && node[i]->outcome == HETI_MPI_BUSY && !node[i]->receives && m->quiet[node[i]->process]) {
            node[i]->outcome = HETI_MPI_FAILED;
            m->dropped++;
        }
        heti_mpi_append(node[i]->outcome == HETI_MPI_BUSY ? &m->active : done, node[i]);
    }
    return finished;
}

static int heti_mpi_test_active(heti_mpi *m, heti_mpi_list *done) {
    heti_mpi_list all = m->active;
    int moved = 0;
    m->active.first = m->active.last = NULL;
    while (all.first != NULL) moved += heti_mpi_test_batch(m, &all, done);
    return moved;
}

/* Tells the owners. A node must not be touched afterwards. */
static void heti_mpi_publish(heti_mpi *m, heti_mpi_list *done) {
    heti_mpi_node *node;
    if (done->first == NULL) return;
    const double now = heti_mpi_now();
    (void)pthread_mutex_lock(&m->lock);
    while ((node = heti_mpi_take(done)) != NULL) {
        if (node->outcome == HETI_MPI_OK && node->receives && m->heard[node->process] > 0)
            m->heard[node->process] = now;
        node->state = node->outcome;
    }
    (void)pthread_mutex_unlock(&m->lock);
}

/* ---- with the turn: control messages --------------------------------------------------------- */

static void heti_mpi_send_control(heti_mpi *m, int kind, const void *data, size_t size) {
    for (int p = 0; p < m->processes; p++) {
        if (p == m->process || m->sent[kind][p] != MPI_REQUEST_NULL) continue;
        if (MPI_Issend(data, HETI_CAST(int, size), MPI_BYTE, p, kind, m->control, &m->sent[kind][p]) == MPI_SUCCESS)
            m->outstanding[kind]++;
        else m->sent[kind][p] = MPI_REQUEST_NULL;
    }
}

static int heti_mpi_test_control(heti_mpi *m) {
    int moved = 0;
    for (int kind = 0; kind < HETI_MPI_KINDS; kind++) {
        int finished = 0;
        if (m->outstanding[kind] == 0) continue;
        (void)MPI_Testsome(m->processes, m->sent[kind], &finished, m->index, MPI_STATUSES_IGNORE);
        if (finished == MPI_UNDEFINED) finished = m->outstanding[kind];
        m->outstanding[kind] -= finished;
        moved += finished;
    }
    return moved;
}

/* An abort travels as its code, 4 bytes from the lowest, and its text. */
static void heti_mpi_control_message(heti_mpi *m, const MPI_Status *status, int size) {
    const int p = status->MPI_SOURCE;
    (void)pthread_mutex_lock(&m->lock);
    m->heard[p] = heti_mpi_now();
    if (status->MPI_TAG == HETI_MPI_QUIET) m->quiet[p] = 1;
    if (status->MPI_TAG == HETI_MPI_BYE) {
        m->goodbyes++;
        m->heard[p] = -HETI_CAST(double, INFINITY);
    } else if (status->MPI_TAG == HETI_MPI_ABORT && size >= 4) {
        uint32_t code = 0;
        for (int i = 0; i < 4; i++) code |= HETI_CAST(uint32_t, m->message[i]) << (8 * i);
        heti_mpi_record_abort(m, p, -HETI_CAST(int, code & 0x7FFFFFFFu),
                              HETI_CAST(const char *, HETI_CAST(const void *, m->message + 4)),
                              HETI_CAST(size_t, size) - 4);
    }
    (void)pthread_mutex_unlock(&m->lock);
}

static int heti_mpi_receive_control(heti_mpi *m) {
    MPI_Status status;
    int done, size, moved = 0;
    for (;;) {
        if (m->receive == MPI_REQUEST_NULL &&
            MPI_Irecv(m->message, HETI_CAST(int, sizeof m->message), MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, m->control,
                      &m->receive) != MPI_SUCCESS)
            return moved;
        done = 0;
        if (MPI_Test(&m->receive, &done, &status) != MPI_SUCCESS || !done) return moved;
        size = 0;
        (void)MPI_Get_count(&status, MPI_BYTE, &size);
        heti_mpi_control_message(m, &status, size);
        moved++;
    }
}

/* Sends this process's abort and tells the caller of abort when it has arrived or time is up. */
static void heti_mpi_tell_abort(heti_mpi *m, double now) {
    if (!m->abort_begun) {
        const uint32_t code = HETI_CAST(uint32_t, -m->aborted);
        const size_t length = strlen(m->abort_text);
        for (int i = 0; i < 4; i++) m->abort_message[i] = HETI_CAST(unsigned char, code >> (8 * i) & 255u);
        memcpy(m->abort_message + 4, m->abort_text, length);
        m->abort_begun = 1;
        heti_mpi_send_control(m, HETI_MPI_ABORT, m->abort_message, 4 + length);
    }
    if (m->outstanding[HETI_MPI_ABORT] == 0 || now - m->abort_time > m->abort_limit) {
        (void)pthread_mutex_lock(&m->lock);
        m->abort_state = 2;
        (void)pthread_cond_broadcast(&m->told);
        (void)pthread_mutex_unlock(&m->lock);
    }
}

/* ---- with the turn: what is done in it ------------------------------------------------------- */

/* Gives up what MPI still holds. */
static void heti_mpi_abandon(heti_mpi *m, heti_mpi_list *done) {
    heti_mpi_node *node, *behind;
    heti_mpi_join(&m->active, &m->lines);
    while ((node = heti_mpi_take(&m->active)) != NULL) {
        behind = node->receives && !heti_mpi_is_last(node) ? node->behind : NULL;
        m->abandoned++;
        heti_mpi_fail_node(node, done);
        for (node = behind; node != NULL; node = behind) {
            behind = node->behind;
            heti_mpi_fail_node(node, done);
        }
    }
}

static int heti_mpi_all_arrived(const heti_mpi *m) {
    int outstanding = 0;
    for (int kind = 0; kind < HETI_MPI_KINDS; kind++) outstanding += m->outstanding[kind];
    return outstanding == 0;
}

/* Has a process died without goodbye, or does the end take too long? */
static int heti_mpi_hopeless(heti_mpi *m, double now) {
    int dead = -1;
    if (now - m->looked > 1 + 0.1 * m->dead) m->close_time = now; /* it was stopped itself */
    m->looked = now;
    if (m->ended) return now - (m->close_time > m->abort_time ? m->close_time : m->abort_time) > m->abort_limit;
    if (now - m->close_time <= m->dead) return 0;
    (void)pthread_mutex_lock(&m->lock);
    for (int p = 0; p < m->processes; p++)
        if (p != m->process && m->heard[p] > 0 && now - m->heard[p] > m->dead) dead = p;
    if (dead >= 0)
        (void)heti_mpi_say(m, HET_ERR_TRANSPORT, "mpi: close: process %d has been silent for %g seconds", dead,
                           now - m->heard[dead]);
    (void)pthread_mutex_unlock(&m->lock);
    return dead >= 0 || (m->goodbyes == m->processes - 1 && now - m->moved_time > m->dead);
}

/* Closing: goodbye goes out when no message is under way, so that a process that has heard it from
   all has nothing left to receive. */
static void heti_mpi_try_leave(heti_mpi *m, double now, heti_mpi_list *done) {
    if (!m->farewell && m->quiet[m->process] && m->waiting.first == NULL && m->active.first == NULL &&
        m->outstanding[HETI_MPI_ABORT] == 0) {
        m->farewell = 1;
        heti_mpi_send_control(m, HETI_MPI_BYE, NULL, 0);
    }
    if (m->farewell && m->goodbyes == m->processes - 1 && heti_mpi_all_arrived(m)) {
        m->clean = m->abandoned == 0;
        m->leave = 1;
    } else if (heti_mpi_hopeless(m, now)) {
        heti_mpi_abandon(m, done);
        m->leave = 1;
    }
}

/* Does what can be done now. Returns how much moved. */
static int heti_mpi_turn(heti_mpi *m) {
    heti_mpi_list done = { NULL, NULL };
    const double now = heti_mpi_now();
    int closing, abort_state, moved;
    moved = heti_mpi_receive_control(m);
    (void)pthread_mutex_lock(&m->lock);
    heti_mpi_join(&m->waiting, &m->queued);
    m->stopped = m->stop;
    m->ended = m->aborted != HET_OK;
    closing = m->closing;
    abort_state = m->abort_state;
    (void)pthread_mutex_unlock(&m->lock);

    moved += heti_mpi_start_waiting(m, &done);
    moved += heti_mpi_advance_lines(m, &done);
    moved += heti_mpi_test_active(m, &done);
    if (m->stopped && !m->quiet[m->process] && m->receiving == 0) {
        m->quiet[m->process] = 1;
        heti_mpi_send_control(m, HETI_MPI_QUIET, NULL, 0);
    }
    if (abort_state == 1) heti_mpi_tell_abort(m, now);
    if (now >= m->next_beat && !m->farewell) {
        heti_mpi_send_control(m, HETI_MPI_BEAT, NULL, 0);
        m->next_beat = now + m->heartbeat;
    }
    moved += heti_mpi_test_control(m);
    if (moved) m->moved_time = now;
    if (m->ended && now - m->abort_time > m->abort_limit) heti_mpi_abandon(m, &done);
    if (closing) heti_mpi_try_leave(m, now, &done);
    heti_mpi_publish(m, &done);
    return moved;
}

/* Nothing moved: yields a few times, then sleeps, longer each time up to 50 us; until the next
   heartbeat is due when nothing is under way. Others may have the turn meanwhile. */
static void heti_mpi_pause(heti_mpi *m, int moved) {
    const int busy = m->active.first != NULL || m->waiting.first != NULL || m->lines.first != NULL || m->stopped;
    double seconds = 0.5 * m->heartbeat;
    m->idle = moved ? 0 : m->idle < 1000 ? m->idle + 1 : m->idle;
    if (busy) seconds = 2e-6 * HETI_CAST(double, m->idle - HETI_MPI_YIELDS);
    if (busy && seconds > HETI_MPI_LONGEST_SLEEP) seconds = HETI_MPI_LONGEST_SLEEP;
    (void)pthread_mutex_unlock(&m->turn);
    if (busy && !moved && seconds <= 0) (void)sched_yield();
    (void)pthread_mutex_lock(&m->lock);
    m->asleep = !busy && !moved;
    if (!m->wake && !moved && seconds > 0) heti_mpi_sleep(&m->work, &m->lock, seconds);
    m->asleep = m->wake = 0;
    (void)pthread_mutex_unlock(&m->lock);
    (void)pthread_mutex_lock(&m->turn);
}

static void *heti_mpi_run(void *argument) {
    heti_mpi *m = HETI_CAST(heti_mpi *, argument);
#ifdef __linux__
    /* of this thread: else Linux makes 100 us of a sleep of 50 */
    (void)prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
#endif
    (void)pthread_mutex_lock(&m->turn);
    while (!m->leave) {
        const int moved = heti_mpi_turn(m);
        if (!m->leave) heti_mpi_pause(m, moved);
    }
    (void)pthread_mutex_unlock(&m->turn);
    /* the last message to this process was the last goodbye: this is local */
    if (m->clean && m->receive != MPI_REQUEST_NULL) {
        (void)MPI_Cancel(&m->receive);
        (void)MPI_Wait(&m->receive, MPI_STATUS_IGNORE);
    }
    return NULL;
}

/* ---- the transport's table: any thread ------------------------------------------------------- */

static int64_t heti_mpi_processes(void *self) { return HETI_CAST(heti_mpi *, self)->processes; }
static int64_t heti_mpi_process(void *self) { return HETI_CAST(heti_mpi *, self)->process; }

static const char *heti_mpi_last_error(void *self) {
    heti_mpi *m = HETI_CAST(heti_mpi *, self);
    const char *text;
    (void)pthread_mutex_lock(&m->lock);
    text = m->error.text[0] != 0 ? m->error.text : ""; /* never changes once there */
    (void)pthread_mutex_unlock(&m->lock);
    return text;
}

/* A caller has started something, or waits and looks: it has a turn itself, since to wake the
   communication thread takes longer than a short message. */
static void heti_mpi_help(heti_mpi *m) {
    if (pthread_mutex_trylock(&m->turn) != 0) return;
    (void)heti_mpi_turn(m);
    (void)pthread_mutex_unlock(&m->turn);
}

static het_result heti_mpi_check(heti_mpi *m, const char *call, int64_t process, uint32_t channel, const void *data,
                                 size_t size, const het_request *request) {
    if (process < 0 || process >= m->processes)
        return heti_mpi_say(m, HET_ERR_INVALID, "mpi: %s: process %lld, there are %d", call,
                            HETI_CAST(long long, process), m->processes);
    if (channel >= HETI_MPI_CHANNELS)
        return heti_mpi_say(m, HET_ERR_INVALID, "mpi: %s: channel %lu, must be below %d", call,
                            HETI_CAST(unsigned long, channel), HETI_MPI_CHANNELS);
    if (data == NULL && size > 0)
        return heti_mpi_say(m, HET_ERR_INVALID, "mpi: %s: data is NULL, size %llu", call,
                            HETI_CAST(unsigned long long, size));
    if (request == NULL) return heti_mpi_say(m, HET_ERR_INVALID, "mpi: %s: request is NULL", call);
    if (m->stop) return heti_mpi_say(m, HET_ERR_TRANSPORT, "mpi: %s: the transport has been closed", call);
    return HET_OK;
}

static het_result heti_mpi_enqueue(heti_mpi *m, int64_t process, uint32_t channel, const void *from, void *to,
                                   int receives, size_t size, het_request *request) {
    heti_mpi_node *node = HETI_CAST(heti_mpi_node *, HETI_CAST(void *, request));
    het_result result;
    (void)pthread_mutex_lock(&m->lock);
    result = heti_mpi_check(m, receives ? "irecv" : "isend", process, channel, receives ? to : from, size, request);
    if (result == HET_OK) {
        node->from = HETI_CAST(const unsigned char *, from);
        node->to = HETI_CAST(unsigned char *, to);
        node->size = size;
        node->begun = 0;
        node->piece = 0;
        node->request = MPI_REQUEST_NULL;
        node->receives = receives;
        node->process = HETI_CAST(int, process);
        node->channel = HETI_CAST(int, channel);
        node->state = node->outcome = HETI_MPI_BUSY;
        heti_mpi_append(&m->queued, node);
        if (m->asleep) (void)pthread_cond_signal(&m->work);
        m->wake = 1;
        m->asleep = 0;
    }
    (void)pthread_mutex_unlock(&m->lock);
    if (result == HET_OK) heti_mpi_help(m);
    return result;
}

static het_result heti_mpi_isend(void *self, int64_t to, uint32_t channel, const void *data, size_t size,
                                 het_request *request) {
    return heti_mpi_enqueue(HETI_CAST(heti_mpi *, self), to, channel, data, NULL, 0, size, request);
}

static het_result heti_mpi_irecv(void *self, int64_t from, uint32_t channel, void *data, size_t size,
                                 het_request *request) {
    return heti_mpi_enqueue(HETI_CAST(heti_mpi *, self), from, channel, NULL, data, 1, size, request);
}

static het_result heti_mpi_look(heti_mpi *m, het_request *request, int32_t *done) {
    het_result result = HET_OK;
    int state;
    (void)pthread_mutex_lock(&m->lock);
    if (request == NULL || done == NULL) {
        result = heti_mpi_say(m, HET_ERR_INVALID, "mpi: test: %s is NULL", request == NULL ? "request" : "done");
    } else {
        state = HETI_CAST(heti_mpi_node *, HETI_CAST(void *, request))->state;
        if (state == HETI_MPI_BUSY) *done = 0;
        else if (state == HETI_MPI_OK) *done = 1;
        else if (state == HETI_MPI_FAILED) result = HET_ERR_TRANSPORT;
        else result = heti_mpi_say(m, HET_ERR_INVALID, "mpi: test: the request was not started by isend or irecv");
    }
    (void)pthread_mutex_unlock(&m->lock);
    return result;
}

static het_result heti_mpi_test(void *self, het_request *request, int32_t *done) {
    heti_mpi *m = HETI_CAST(heti_mpi *, self);
    const het_result result = heti_mpi_look(m, request, done);
    if (result != HET_OK || *done) return result;
    heti_mpi_help(m);
    return heti_mpi_look(m, request, done);
}

static double heti_mpi_silence(void *self, int64_t process) {
    heti_mpi *m = HETI_CAST(heti_mpi *, self);
    double heard;
    if (process < 0 || process >= m->processes) return HETI_CAST(double, INFINITY);
    if (process == m->process) return 0;
    (void)pthread_mutex_lock(&m->lock);
    heard = m->heard[process];
    (void)pthread_mutex_unlock(&m->lock);
    return heti_mpi_now() - heard;
}

static void heti_mpi_abort(void *self, het_result code, const char *text) {
    heti_mpi *m = HETI_CAST(heti_mpi *, self);
    double end;
    (void)pthread_mutex_lock(&m->lock);
    if (m->aborted == HET_OK && !m->closing) {
        heti_mpi_record_abort(m, m->process, code != HET_OK ? code : HET_ERR_TRANSPORT, text,
                              text != NULL ? strlen(text) : 0);
        m->abort_state = 1;
        (void)pthread_cond_signal(&m->work);
    }
    end = heti_mpi_now() + m->abort_limit;
    while (m->abort_state == 1 && heti_mpi_now() < end) heti_mpi_sleep(&m->told, &m->lock, end - heti_mpi_now() + 1e-3);
    (void)pthread_mutex_unlock(&m->lock);
}

static het_result heti_mpi_aborted(void *self, int64_t *process, char *text, size_t capacity) {
    heti_mpi *m = HETI_CAST(heti_mpi *, self);
    het_result result;
    (void)pthread_mutex_lock(&m->lock);
    result = HETI_CAST(het_result, m->aborted);
    if (result != HET_OK) {
        if (process != NULL) *process = m->abort_process;
        if (text != NULL && capacity > 0) (void)snprintf(text, capacity, "%s", m->abort_text);
    }
    (void)pthread_mutex_unlock(&m->lock);
    return result;
}

static const het_transport_iface heti_mpi_iface = {
    HETRAIN_TRANSPORT_VERSION, "mpi", heti_mpi_processes, heti_mpi_process, heti_mpi_isend, heti_mpi_irecv,
    heti_mpi_test, heti_mpi_silence, heti_mpi_abort, heti_mpi_aborted, heti_mpi_last_error
};

/* ---- open and close -------------------------------------------------------------------------- */

static het_result heti_mpi_seconds(double *seconds, double standard, const char *name, het_error *error) {
    if (!(*seconds >= 0 && *seconds <= 1e6))
        return heti_mpi_fail(error, HET_ERR_INVALID, "het_mpi_open: %s is %g, must be from 0 (default) to 1e6", name,
                             *seconds);
    if (!(*seconds > 0)) *seconds = standard;
    return HET_OK;
}

static het_result heti_mpi_settings(const het_mpi_desc *desc, het_mpi_desc *settings, het_error *error) {
    het_result result;
    memset(settings, 0, sizeof *settings);
    if (desc != NULL) *settings = *desc;
    if (settings->start_canary != 0 || settings->end_canary != 0)
        return heti_mpi_fail(error, HET_ERR_INVALID, "het_mpi_open: the description was not cleared to 0");
    result = heti_mpi_seconds(&settings->heartbeat_seconds, 0.5, "heartbeat_seconds", error);
    if (result == HET_OK) result = heti_mpi_seconds(&settings->dead_seconds, 10, "dead_seconds", error);
    if (result == HET_OK) result = heti_mpi_seconds(&settings->abort_seconds, 5, "abort_seconds", error);
    if (result != HET_OK) return result;
    if ((settings->allocator.alloc == NULL) != (settings->allocator.free == NULL))
        return heti_mpi_fail(error, HET_ERR_INVALID,
                             "het_mpi_open: the allocator has one of alloc and free, must have both or neither");
    if (settings->allocator.alloc == NULL) {
#ifdef HETRAIN_NO_DEFAULT_ALLOCATOR
        return heti_mpi_fail(error, HET_ERR_INVALID,
                             "het_mpi_open: the allocator is missing, and this build has no default one");
#else
        settings->allocator.alloc = heti_mpi_malloc;
        settings->allocator.free = heti_mpi_release;
#endif
    }
    return HET_OK;
}

/* Sees to it that MPI runs at the thread level needed. *started: it was not running before. */
static het_result heti_mpi_start_mpi(int *argc, char ***argv, int *started, het_error *error) {
    int running = 0, ended = 0, provided = MPI_THREAD_SINGLE;
    *started = 0;
    (void)MPI_Finalized(&ended);
    if (ended)
        return heti_mpi_fail(error, HET_ERR_STATE,
                             "het_mpi_open: MPI_Finalize has been called, MPI cannot start again");
    (void)MPI_Initialized(&running);
    if (running) {
        (void)MPI_Query_thread(&provided);
    } else {
        if (MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
            return heti_mpi_fail(error, HET_ERR_TRANSPORT, "het_mpi_open: MPI_Init_thread failed");
        *started = 1;
    }
    if (provided < MPI_THREAD_SERIALIZED) {
        if (*started) (void)MPI_Finalize();
        return heti_mpi_fail(error, HET_ERR_UNSUPPORTED,
                             "het_mpi_open: MPI gives thread level %d, MPI_THREAD_SERIALIZED (%d) is needed%s",
                             provided, MPI_THREAD_SERIALIZED, *started ? "" : ": initialise with MPI_Init_thread");
    }
    return HET_OK;
}

/* One block: the transport, [processes] times of hearing, [HETI_MPI_KINDS][processes] requests,
   [processes] indices, [processes] flags. */
static het_result heti_mpi_create(const het_mpi_desc *settings, heti_mpi **created, het_error *error) {
    heti_mpi *m;
    unsigned char *rest;
    size_t block;
    int processes = 1, process = 0, kind, p, flag = 0, *limit = NULL;
    *created = NULL;
    (void)MPI_Comm_size(MPI_COMM_WORLD, &processes);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &process);
    (void)MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, HETI_CAST(void *, &limit), &flag);
    if (!flag || *limit < HETI_MPI_CHANNELS - 1)
        return heti_mpi_fail(error, HET_ERR_UNSUPPORTED, "het_mpi_open: this MPI has tags up to %d, channels need %d",
                             flag ? *limit : 32767, HETI_MPI_CHANNELS - 1);
    block = sizeof(heti_mpi) + HETI_CAST(size_t, processes) * (sizeof(double) + HETI_MPI_KINDS * sizeof(MPI_Request) +
                                                               sizeof(int) + 1);
    m = HETI_CAST(heti_mpi *, settings->allocator.alloc(settings->allocator.user, block, 64));
    if (m == NULL)
        return heti_mpi_fail(error, HET_ERR_OOM, "het_mpi_open: the allocator has no %llu bytes",
                             HETI_CAST(unsigned long long, block));
    memset(m, 0, block);
    rest = HETI_CAST(unsigned char *, HETI_CAST(void *, m + 1));
    m->heard = HETI_CAST(double *, HETI_CAST(void *, rest));
    rest += HETI_CAST(size_t, processes) * sizeof(double);
    for (kind = 0; kind < HETI_MPI_KINDS; kind++) {
        m->sent[kind] = HETI_CAST(MPI_Request *, HETI_CAST(void *, rest));
        rest += HETI_CAST(size_t, processes) * sizeof(MPI_Request);
        for (p = 0; p < processes; p++) m->sent[kind][p] = MPI_REQUEST_NULL;
    }
    m->index = HETI_CAST(int *, HETI_CAST(void *, rest));
    rest += HETI_CAST(size_t, processes) * sizeof(int);
    m->quiet = rest;
    m->receive = MPI_REQUEST_NULL;
    m->data = m->control = MPI_COMM_NULL;
    m->block = block;
    m->allocator = settings->allocator;
    m->heartbeat = settings->heartbeat_seconds;
    m->dead = settings->dead_seconds;
    m->abort_limit = settings->abort_seconds;
    m->processes = processes;
    m->process = process;
    *created = m;
    return HET_OK;
}

/* A communicator with messages nobody received is left to MPI. */
static void heti_mpi_destroy(heti_mpi *m) {
    const het_allocator allocator = m->allocator;
    if (m->dropped > 0) m->data = MPI_COMM_NULL;
    if (m->data != MPI_COMM_NULL) (void)MPI_Comm_free(&m->data);
    if (m->control != MPI_COMM_NULL) (void)MPI_Comm_free(&m->control);
    allocator.free(allocator.user, m, m->block);
}

static het_result heti_mpi_connect(heti_mpi *m, het_error *error) {
    if (MPI_Comm_dup(MPI_COMM_WORLD, &m->data) != MPI_SUCCESS ||
        MPI_Comm_dup(MPI_COMM_WORLD, &m->control) != MPI_SUCCESS)
        return heti_mpi_fail(error, HET_ERR_TRANSPORT, "het_mpi_open: MPI_Comm_dup failed");
    (void)MPI_Comm_set_errhandler(m->data, MPI_ERRORS_RETURN);
    (void)MPI_Comm_set_errhandler(m->control, MPI_ERRORS_RETURN);
    return HET_OK;
}

static het_result heti_mpi_start_thread(heti_mpi *m, het_error *error) {
    int p, status = pthread_mutex_init(&m->lock, NULL), locked = status == 0, turns = 0, worked = 0, told = 0;
    if (status == 0) status = pthread_mutex_init(&m->turn, NULL), turns = status == 0;
    if (status == 0) status = heti_mpi_condition(&m->work), worked = status == 0;
    if (status == 0) status = heti_mpi_condition(&m->told), told = status == 0;
    m->moved_time = m->next_beat = heti_mpi_now();
    for (p = 0; p < m->processes; p++) m->heard[p] = m->moved_time;
    if (status == 0) (void)pthread_mutex_lock(&m->turn); /* until het_mpi_open is done */
    if (status == 0 && (status = pthread_create(&m->thread, NULL, heti_mpi_run, m)) != 0)
        (void)pthread_mutex_unlock(&m->turn);
    if (status == 0) return HET_OK;
    if (told) (void)pthread_cond_destroy(&m->told);
    if (worked) (void)pthread_cond_destroy(&m->work);
    if (turns) (void)pthread_mutex_destroy(&m->turn);
    if (locked) (void)pthread_mutex_destroy(&m->lock);
    return heti_mpi_fail(error, HET_ERR_TRANSPORT,
                         "het_mpi_open: the communication thread could not be started, pthread error %d", status);
}

/* The thread has ended. */
static void heti_mpi_end_locks(heti_mpi *m) {
    (void)pthread_cond_destroy(&m->told);
    (void)pthread_cond_destroy(&m->work);
    (void)pthread_mutex_destroy(&m->turn);
    (void)pthread_mutex_destroy(&m->lock);
}

/* An error of one process is one of all, so that nobody waits for it in what follows. */
static het_result heti_mpi_agree(het_result result, het_error *error) {
    int mine = result, worst = result;
    (void)MPI_Allreduce(&mine, &worst, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (result == HET_OK && worst != HET_OK)
        return heti_mpi_fail(error, HET_ERR_TRANSPORT, "het_mpi_open: failed in another process, with result %d",
                             worst);
    return result;
}

HETRAIN_API het_result het_mpi_open(int *argc, char ***argv, const het_mpi_desc *desc, het_transport *transport,
                                    het_error *error) {
    het_mpi_desc settings;
    heti_mpi *m = NULL;
    het_result result;
    int started, runs = 0;
    if (transport == NULL) return heti_mpi_fail(error, HET_ERR_INVALID, "het_mpi_open: transport is NULL");
    transport->iface = NULL;
    transport->self = NULL;
    result = heti_mpi_start_mpi(argc, argv, &started, error);
    if (result != HET_OK) return result;
    result = heti_mpi_settings(desc, &settings, error);
    if (result == HET_OK) result = heti_mpi_create(&settings, &m, error);
    result = heti_mpi_agree(result, error);
    if (result == HET_OK) {
        m->finalize = started;
        result = heti_mpi_connect(m, error);
        if (result == HET_OK) runs = (result = heti_mpi_start_thread(m, error)) == HET_OK;
        result = heti_mpi_agree(result, error);
    }
    if (runs) {
        m->leave = result != HET_OK;
        (void)pthread_mutex_unlock(&m->turn);
    }
    if (result != HET_OK) {
        if (runs) (void)pthread_join(m->thread, NULL);
        if (runs) heti_mpi_end_locks(m);
        if (m != NULL) heti_mpi_destroy(m);
        if (started) (void)MPI_Finalize();
        return result;
    }
    transport->iface = &heti_mpi_iface;
    transport->self = m;
    return HET_OK;
}

HETRAIN_API het_result het_mpi_close(het_transport *transport, het_error *error) {
    heti_mpi *m;
    int finalize;
    if (transport == NULL || transport->self == NULL) return HET_OK;
    if (transport->iface != &heti_mpi_iface)
        return heti_mpi_fail(error, HET_ERR_INVALID, "het_mpi_close: the transport is \"%s\", not \"mpi\"",
                             transport->iface->name);
    m = HETI_CAST(heti_mpi *, transport->self);
    transport->iface = NULL;
    transport->self = NULL;
    (void)pthread_mutex_lock(&m->lock);
    m->closing = m->stop = m->wake = 1;
    m->close_time = m->looked = heti_mpi_now();
    (void)pthread_cond_signal(&m->work);
    (void)pthread_mutex_unlock(&m->lock);
    (void)pthread_join(m->thread, NULL);
    if (!m->clean)
        return heti_mpi_fail(error, HET_ERR_TRANSPORT, "het_mpi_close: no goodbye of %d of %d other processes, %lld "
                                                       "requests given up: %s", m->processes - 1 - m->goodbyes,
                                                       m->processes - 1, HETI_CAST(long long, m->abandoned),
                                                       m->error.text[0] != 0 ? m->error.text :
                                                       "messages were under way");
    finalize = m->finalize;
    heti_mpi_end_locks(m);
    heti_mpi_destroy(m);
    if (finalize) (void)MPI_Finalize();
    return HET_OK;
}

#ifdef __cplusplus
}
#endif
#endif /* implementation */

/* Licence: that of hetrain.h. */
