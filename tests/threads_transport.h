/* A transport between threads of one process: "process" i is a thread. A message is copied when both its ends are there. A test may hold messages
   back for a while (jitter), and count bytes. Ends have a clock of their own: it moves when whoever computes moves it, and where a message is awaited
   to when both its ends were there, so that how long a rank waits depends on nothing else that the machine does. */
#ifndef TESTS_THREADS_TRANSPORT_H
#define TESTS_THREADS_TRANSPORT_H

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hetrain.h"

typedef struct threads_post {   /* lies in a het_request */
    struct threads_post *next;
    int64_t from, to;
    uint32_t channel;
    int32_t sends, state;       /* 0 waits, 1 done, 2 sizes differ */
    void *data;
    size_t size;
    int64_t held;               /* tests of it that still say: not yet */
    double ready;               /* by the machine's clock, of a world with a latency */
    double now;                 /* of the later end */
} threads_post;

typedef struct threads_world {
    pthread_mutex_t lock;
    int64_t count;
    threads_post *first;
    int64_t bytes;
    uint64_t random;            /* 0: no jitter */
    double latency, bandwidth;  /* 0, or seconds that a message takes beside its bytes over bandwidth */
    uint32_t beside;            /* bit c: messages of channel c (mod 9) come beside the work, and move no clock */
    int32_t aborted;
    char text[256];
} threads_world;
typedef struct threads_end { threads_world *world; int64_t me; double now, waited; } threads_end;

static double threads_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int64_t threads_processes(void *self) { return ((threads_end *)self)->world->count; }
static int64_t threads_process(void *self) { return ((threads_end *)self)->me; }

static het_result threads_start(threads_end *end, int64_t from, int64_t to, int sends, uint32_t channel, void *data, size_t size,
                                het_request *request)
{
    threads_world *w = end->world;
    threads_post post, *mine = (threads_post *)(void *)request, **at;
    memset(&post, 0, sizeof post);
    post.from = from, post.to = to, post.channel = channel, post.sends = sends, post.data = data, post.size = size;
    post.now = end->now;
    pthread_mutex_lock(&w->lock);
    if (w->random != 0) {
        w->random = w->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        post.held = (int64_t)(w->random >> 55);
    }
    *mine = post;
    for (at = &w->first; *at != NULL; at = &(*at)->next) {
        threads_post *other = *at;
        if (other->from != from || other->to != to || other->channel != channel || other->sends == sends) continue;
        *at = other->next;
        if (other->size == size) memcpy(sends ? other->data : data, sends ? data : other->data, size);
        other->now = mine->now = other->now > mine->now ? other->now : mine->now;
        other->state = mine->state = other->size == size ? 1 : 2;
        if (w->latency > 0) other->ready = mine->ready = threads_clock() + w->latency + (double)size / w->bandwidth;
        w->bytes += (int64_t)size;
        break;
    }
    if (mine->state == 0) *at = mine;
    pthread_mutex_unlock(&w->lock);
    return HET_OK;
}

static het_result threads_isend(void *self, int64_t to, uint32_t channel, const void *data, size_t size, het_request *request)
{
    union { const void *from; void *to; } plain;
    plain.from = data;
    return threads_start((threads_end *)self, ((threads_end *)self)->me, to, 1, channel, plain.to, size, request);
}

static het_result threads_irecv(void *self, int64_t from, uint32_t channel, void *data, size_t size, het_request *request)
{
    return threads_start((threads_end *)self, from, ((threads_end *)self)->me, 0, channel, data, size, request);
}

static het_result threads_test(void *self, het_request *request, int32_t *done)
{
    threads_end *end = (threads_end *)self;
    threads_world *w = end->world;
    threads_post *mine = (threads_post *)(void *)request, **at;
    het_result result = HET_OK;
    pthread_mutex_lock(&w->lock);
    *done = mine->state == 1 && mine->held-- <= 0 && (mine->ready <= 0 || threads_clock() >= mine->ready);
    if (*done && mine->now > end->now && (w->beside >> mine->channel % 9 & 1u) == 0) end->waited += mine->now - end->now, end->now = mine->now;
    if (mine->state == 2 || (mine->state == 0 && w->aborted)) {
        for (at = &w->first; *at != NULL; at = &(*at)->next)
            if (*at == mine) {
                *at = mine->next;
                break;
            }
        result = HET_ERR_TRANSPORT;
    }
    pthread_mutex_unlock(&w->lock);
    return result;
}

static double threads_silence(void *self, int64_t process) { (void)self, (void)process; return 0; }

static void threads_abort(void *self, het_result code, const char *text)
{
    threads_world *w = ((threads_end *)self)->world;
    (void)code;
    pthread_mutex_lock(&w->lock);
    if (!w->aborted) strncpy(w->text, text, sizeof w->text - 1);
    w->aborted = 1;
    pthread_mutex_unlock(&w->lock);
}

static het_result threads_aborted(void *self, int64_t *process, char *text, size_t capacity) { (void)self, (void)process, (void)text,
    (void)capacity; return HET_OK; }
static const char *threads_error(void *self)
{
    threads_world *w = ((threads_end *)self)->world;
    int32_t aborted;
    pthread_mutex_lock(&w->lock);
    aborted = w->aborted; /* the text does not change any more */
    pthread_mutex_unlock(&w->lock);
    return aborted ? w->text : "sizes differ";
}

static const het_transport_iface threads_iface = {
    HETRAIN_TRANSPORT_VERSION, "threads", threads_processes, threads_process, threads_isend, threads_irecv, threads_test, threads_silence,
    threads_abort, threads_aborted, threads_error
};

/* end: [count] */
static void threads_open(threads_world *w, threads_end *end, het_transport *transport, int64_t count, uint64_t jitter)
{
    int64_t i;
    memset(w, 0, sizeof *w);
    pthread_mutex_init(&w->lock, NULL);
    w->count = count, w->random = jitter;
    memset(end, 0, (size_t)count * sizeof *end);
    for (i = 0; i < count; i++) end[i].world = w, end[i].me = i, transport[i].iface = &threads_iface, transport[i].self = &end[i];
}

#endif
