/* What the tests of transports share: checks in processes of their own, an allocator that counts and can fail, messages that tell who sent them,
   and cases every transport must pass. Included once, after the transport's declarations; the test gives the two functions declared here. */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static het_transport open_default(void);
static void close_good(het_transport *t);

static int me = -1, processes;

#define CHECK(condition) check((condition) ? 1 : 0, #condition, __LINE__)
static void check(int holds, const char *what, int line)
{
    if (holds) return;
    fprintf(stderr, "process %d, line %d: not so: %s\n", me, line, what);
    _exit(1);
}

static int has(const char *text, const char *word)
{
    if (strstr(text, word) != NULL) return 1;
    fprintf(stderr, "process %d: no \"%s\" in \"%s\"\n", me, word, text);
    return 0;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nap(double seconds)
{
    struct timespec t;
    t.tv_sec = (time_t)seconds;
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

static void *need(size_t size)
{
    void *p = malloc(size > 0 ? size : 1);
    CHECK(p != NULL);
    return p;
}

/* ---- the transport's allocator: blocks asked for, blocks alive, the number of the one that fails ---- */

static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t allocations, live, alloc_fails_at = -1;

static void *count_alloc(void *user, size_t size, size_t align)
{
    int fails;
    (void)user, (void)align;
    pthread_mutex_lock(&count_lock);
    fails = allocations++ == alloc_fails_at;
    live += !fails;
    pthread_mutex_unlock(&count_lock);
    return fails ? NULL : malloc(size);
}

static void count_free(void *user, void *pointer, size_t size)
{
    (void)user;
    memset(pointer, 0xDD, size);
    pthread_mutex_lock(&count_lock);
    live--;
    pthread_mutex_unlock(&count_lock);
    free(pointer);
}

/* ---- messages ---- */

#define SEND(t, to, channel, data, size, request) CHECK((t)->iface->isend((t)->self, (to), (channel), (data), (size), (request)) == HET_OK)
#define RECEIVE(t, from, channel, data, size, request) CHECK((t)->iface->irecv((t)->self, (from), (channel), (data), (size), (request)) == HET_OK)

static het_result wait_for(const het_transport *t, het_request *request)
{
    const double end = now() + 100;
    int32_t done = 0;
    int turns = 0;
    for (;;) {
        const het_result result = t->iface->test(t->self, request, &done);
        if (result != HET_OK || done) return result;
        CHECK(now() < end);
        if (++turns < 100) sched_yield();
        else nap(20e-6);
    }
}

static void finish(const het_transport *t, het_request *request)
{
    const het_result result = wait_for(t, request);
    if (result != HET_OK) fprintf(stderr, "process %d: %s\n", me, t->iface->last_error(t->self));
    CHECK(result == HET_OK);
}

/* Nobody leaves before all are here, and `centre` not before all others have left. */
static void meet_at(const het_transport *t, int centre)
{
    int round, p;
    for (round = 0; round < 3; round++)
        for (p = 0; p < processes; p++) {
            het_request request;
            const int64_t other = me == centre ? p : centre;
            if (p == centre || (me != centre && p != me)) continue;
            if ((me == centre) == (round != 1)) RECEIVE(t, other, 0xFFFFFF, NULL, 0, &request);
            else SEND(t, other, 0xFFFFFF, NULL, 0, &request);
            finish(t, &request);
        }
}
static void meet(const het_transport *t) { meet_at(t, 0); }

/* Bytes that tell who sent which message to whom. */
static void fill(unsigned char *data, size_t size, int from, int to, int number)
{
    uint64_t x = (uint64_t)(from * 64 + to * 8 + 1) * 0xBF58476D1CE4E5B9u + (uint64_t)number * 0x94D049BB133111EBu;
    size_t i;
    for (i = 0; i < size; i++, x += 0x9E3779B97F4A7C15u) data[i] = (unsigned char)((x ^ x >> 29) >> 20 & 255u);
}

static void verify(const unsigned char *data, size_t size, int from, int to, int number)
{
    unsigned char *expected = (unsigned char *)need(size);
    fill(expected, size, from, to, number);
    if (memcmp(data, expected, size) != 0) {
        fprintf(stderr, "process %d: message %d from %d, of %llu bytes, differs\n", me, number, from, (unsigned long long)size);
        _exit(1);
    }
    free(expected);
}

/* One message after the other on three channels, to all and from all, itself included; all outstanding at once. */
typedef struct message { het_request send, receive; unsigned char *out, *in; size_t size; int peer, number; uint32_t channel; } message;

static void many(const het_transport *t, int per_pair, const size_t *sizes, int size_count, uint32_t first_channel)
{
    const int channels = 3, count = processes * per_pair;
    message *m = (message *)need((size_t)count * sizeof *m);
    int i;
    memset(m, 0, (size_t)count * sizeof *m);
    for (i = 0; i < count; i++) {
        m[i].peer = i % processes;
        m[i].number = i / processes;
        m[i].size = sizes[m[i].number % size_count];
        m[i].channel = first_channel + (uint32_t)(m[i].number % channels);
        m[i].out = (unsigned char *)need(m[i].size);
        m[i].in = (unsigned char *)need(m[i].size + 1);
        m[i].in[m[i].size] = 77;
        fill(m[i].out, m[i].size, me, m[i].peer, m[i].number);
    }
    /* half of the receives before, half after the sends: expected and unexpected messages. Per (peer, channel) in order */
    for (i = 0; i < count; i++) {
        if (m[i].channel % 2 == 0) RECEIVE(t, m[i].peer, m[i].channel, m[i].in, m[i].size, &m[i].receive);
        SEND(t, m[i].peer, m[i].channel, m[i].out, m[i].size, &m[i].send);
    }
    for (i = 0; i < count; i++)
        if (m[i].channel % 2 != 0) RECEIVE(t, m[i].peer, m[i].channel, m[i].in, m[i].size, &m[i].receive);
    for (i = count - 1; i >= 0; i--) finish(t, &m[i].receive); /* in an order other than that of arrival */
    for (i = 0; i < count; i++) {
        finish(t, &m[i].send);
        finish(t, &m[i].receive); /* asking again changes nothing */
        verify(m[i].in, m[i].size, m[i].peer, me, m[i].number);
        CHECK(m[i].in[m[i].size] == 77);
        free(m[i].out);
        free(m[i].in);
    }
    free(m);
}

static void exchange(const het_transport *t, unsigned char *data, size_t size) /* there and back between 0 and 1 */
{
    het_request request;
    if (me == 0) SEND(t, 1, 5, data, size, &request);
    else RECEIVE(t, 0, 5, data, size, &request);
    finish(t, &request);
    if (me == 0) RECEIVE(t, 1, 5, data, size, &request);
    else SEND(t, 0, 5, data, size, &request);
    finish(t, &request);
}

/* ---- cases; a group of processes runs one of them, with a number ---- */

/* Once `first` messages a pair have passed, nothing more is allocated. */
static void case_order(int first)
{
    static const size_t sizes[] = { 64 };
    het_transport t = open_default();
    int64_t before;
    many(&t, first, sizes, 1, 0);
    before = allocations;
    many(&t, 300, sizes, 1, 0);
    CHECK(allocations == before);
    close_good(&t);
}

static void case_many(int number)
{
    static const size_t sizes[] = { 0, 1, 4095, 5, 999, 1000, 1001, 4096, 4097, 70000, 2000, 3, 262144, 262143, 262145, 600000, 150000, 0 };
    het_transport t = open_default();
    (void)number;
    many(&t, 200, sizes, 18, 0);
    many(&t, 50, sizes, 12, (1u << 24) - 4); /* up to the last channel */
    close_good(&t);
}

static void case_sizes(int number)
{
    static const size_t sizes[] = { 0, 1, 4095, 1u << 20, 1u << 26 };
    het_transport t = open_default();
    int i;
    for (i = 0; i < number && i < 5; i++) many(&t, 2, sizes + i, 1, 7);
    close_good(&t);
}

/* Receives that join a line after its first ones have gone. */
static void case_line(int number)
{
    het_transport t = open_default();
    het_request send[7], receive[7];
    unsigned char out[7], in[7];
    int i, posted = 0;
    (void)number;
    for (i = 0; i < 7; i++) {
        const int to = (me + 1) % processes, from = (me + processes - 1) % processes;
        for (; posted < 7 && posted <= i + 2; posted++) RECEIVE(&t, from, 5, &in[posted], 1, &receive[posted]);
        nap(0.01); /* now they stand in line */
        out[i] = (unsigned char)(10 + i);
        SEND(&t, to, 5, &out[i], 1, &send[i]);
        finish(&t, &receive[i]);
        CHECK(in[i] == 10 + i);
    }
    for (i = 0; i < 7; i++) finish(&t, &send[i]);
    close_good(&t);
}

typedef struct talker { het_transport *t; uint32_t channel; } talker;
static void *talk(void *argument)
{
    static const size_t sizes[] = { 8, 0, 3000, 100000 };
    const talker *k = (const talker *)argument;
    int i;
    for (i = 0; i < 5; i++) many(k->t, 40, sizes, 4, k->channel);
    return NULL;
}

static void case_threads(int number)
{
    het_transport t = open_default();
    talker k[2];
    pthread_t thread;
    (void)number;
    k[0].t = k[1].t = &t;
    k[0].channel = 100;
    k[1].channel = 200;
    CHECK(pthread_create(&thread, NULL, talk, &k[0]) == 0);
    talk(&k[1]);
    pthread_join(thread, NULL);
    close_good(&t);
}

static void case_cycles(int count)
{
    static const size_t sizes[] = { 3, 0, 5000 };
    int i;
    for (i = 0; i < count; i++) {
        het_transport t = open_default();
        if (i % 2) many(&t, 4, sizes, 3, 1);
        close_good(&t);
    }
}

/* Process `who` aborts; everyone knows who and why, and can start nothing more. */
static void abort_by(const het_transport *t, int who)
{
    const int length = who % 2 ? 30 : 599; /* 499 are kept */
    char text[600], reason[600];
    const double end = now() + 9;
    int64_t from = -1;
    het_request late;
    CHECK(t->iface->aborted(t->self, NULL, NULL, 0) == HET_OK);
    memset(reason, 'x', sizeof reason);
    memcpy(reason, "process ran out of tape\n", 24);
    reason[length] = 0;
    meet_at(t, who);
    if (me == who) {
        nap(who == 0 ? 0.001 : 0.1);
        t->iface->abort(t->self, HET_ERR_DEVICE, reason);
        CHECK(now() < end);
        t->iface->abort(t->self, HET_ERR_OOM, "another one"); /* the first one stays */
    }
    while (t->iface->aborted(t->self, &from, text, sizeof text) == HET_OK) {
        CHECK(now() < end);
        nap(0.001);
    }
    CHECK(t->iface->aborted(t->self, &from, text, sizeof text) == HET_ERR_DEVICE);
    CHECK(from == who);
    CHECK(strncmp(text, "process ran out of tape?x", 25) == 0);
    CHECK(strlen(text) == (length < 499 ? (size_t)length : 499));
    CHECK(t->iface->aborted(t->self, &from, text, 8) == HET_ERR_DEVICE && strcmp(text, "process") == 0);
    CHECK(t->iface->isend(t->self, 0, 1, NULL, 0, &late) == HET_ERR_TRANSPORT);
}

/* All abort at once: everyone knows one first reason. */
static void case_abort_all(int number)
{
    het_transport t = open_default();
    int64_t from = -1;
    char text[64];
    (void)number;
    snprintf(text, sizeof text, "from %d", me);
    t.iface->abort(t.self, HET_ERR_DATA, text);
    CHECK(t.iface->aborted(t.self, &from, text, sizeof text) == HET_ERR_DATA);
    CHECK(from >= 0 && from < processes && atoi(text + 5) == from);
    close_good(&t);
}
