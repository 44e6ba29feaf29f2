/* One process of a test of hetrain_mpi.c: test_mpi CASE [NUMBER]. tests/test_mpi.sh starts them and judges exit status and output. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#define HETRAIN_MPI_DECLARATIONS
#include "hetrain_mpi.c"

#include <mpi.h>

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef HETRAIN_MPI_PIECE
#define HETRAIN_MPI_PIECE (1 << 30)
#endif

static int me = -1, processes;

#define CHECK(condition) check((condition) ? 1 : 0, #condition, __LINE__)
static void check(int holds, const char *what, int line)
{
    if (holds) return;
    printf("process %d, line %d: not so: %s\n", me, line, what);
    fflush(stdout);
    _exit(1);
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

static int has(const char *text, const char *word)
{
    if (strstr(text, word) != NULL) return 1;
    printf("process %d: no \"%s\" in \"%s\"\n", me, word, text);
    return 0;
}

/* ---- the transport under test ---- */

static int64_t allocations, live; /* blocks */
static void *count_alloc(void *user, size_t size, size_t align)
{
    (void)user, (void)align;
    allocations++;
    live++;
    return malloc(size);
}
static void count_free(void *user, void *pointer, size_t size)
{
    (void)user;
    memset(pointer, 0xDD, size);
    live--;
    free(pointer);
}
static void *no_alloc(void *user, size_t size, size_t align)
{
    (void)user, (void)size, (void)align;
    return NULL;
}

static het_mpi_desc settings(void)
{
    het_mpi_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.heartbeat_seconds = 0.05;
    desc.dead_seconds = 30;
    desc.abort_seconds = 10;
    desc.allocator.alloc = count_alloc;
    desc.allocator.free = count_free;
    return desc;
}

/* For what is done before a transport is opened, or after. Returns the level that MPI gives. */
static int start_mpi(int level)
{
    int given;
    MPI_Init_thread(NULL, NULL, level, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    return given;
}

static het_transport open_with(const het_mpi_desc *desc)
{
    het_transport t;
    het_error error;
    het_result result;
    error.text[0] = 0;
    result = het_mpi_open(NULL, NULL, desc, &t, &error);
    if (result != HET_OK) printf("het_mpi_open: %s\n", error.text);
    CHECK(result == HET_OK);
    CHECK(t.iface->version == HETRAIN_TRANSPORT_VERSION);
    me = (int)t.iface->process(t.self);
    processes = (int)t.iface->processes(t.self);
    return t;
}

static het_transport open_default(void)
{
    const het_mpi_desc desc = settings();
    return open_with(&desc);
}

static void close_good(het_transport *t)
{
    het_error error;
    het_result result;
    error.text[0] = 0;
    result = het_mpi_close(t, &error);
    if (result != HET_OK) printf("het_mpi_close: %s\n", error.text);
    CHECK(result == HET_OK);
    CHECK(t->self == NULL && t->iface == NULL);
    CHECK(live == 0);
}

#define SEND(t, to, channel, data, size, request) CHECK((t)->iface->isend((t)->self, (to), (channel), (data), (size), (request)) == HET_OK)
#define RECEIVE(t, from, channel, data, size, request) CHECK((t)->iface->irecv((t)->self, (from), (channel), (data), (size), (request)) == HET_OK)

static het_result wait_for(het_transport *t, het_request *request)
{
    int32_t done = 0;
    double end = now() + 100;
    int turns = 0;
    for (;;) {
        het_result result = t->iface->test(t->self, request, &done);
        if (result != HET_OK) return result;
        if (done) return HET_OK;
        CHECK(now() < end);
        if (++turns < 200) sched_yield();
        else nap(20e-6);
    }
}

static void finish(het_transport *t, het_request *request)
{
    het_result result = wait_for(t, request);
    if (result != HET_OK) printf("process %d: %s\n", me, t->iface->last_error(t->self));
    CHECK(result == HET_OK);
}

static void meet(het_transport *t) /* nobody leaves before all are here */
{
    int round, p;
    for (round = 0; round < 2; round++)
        for (p = 1; p < processes; p++) {
            het_request request;
            const int64_t other = me == 0 ? p : 0;
            if (me != 0 && p > 1) break;
            if ((me == 0) == (round == 0)) RECEIVE(t, other, 0xFFFFFF, NULL, 0, &request);
            else SEND(t, other, 0xFFFFFF, NULL, 0, &request);
            finish(t, &request);
        }
}

/* Bytes that tell who sent which message to whom. */
static unsigned char byte_of(int from, int to, int number, size_t i)
{
    const uint64_t pair = (uint64_t)(from * 64 + to * 8 + 1) * 0xBF58476D1CE4E5B9u + (uint64_t)number * 0x94D049BB133111EBu;
    const uint64_t x = (uint64_t)i / 7 * 0x9E3779B97F4A7C15u + pair;
    return (unsigned char)((x ^ x >> 29) >> 20 & 255u);
}
static void fill(unsigned char *data, size_t size, int from, int to, int number)
{
    size_t i;
    for (i = 0; i < size; i++) data[i] = byte_of(from, to, number, i);
}
static void verify(const unsigned char *data, size_t size, int from, int to, int number)
{
    size_t i;
    for (i = 0; i < size; i++)
        if (data[i] != byte_of(from, to, number, i)) {
            printf("process %d: message %d from %d, byte %llu of %llu differs\n", me, number, from, (unsigned long long)i, (unsigned long long)size);
            CHECK(0);
        }
}

/* ---- cases ---- */

/* One message after the other on a few channels, to all and from all, itself included; all outstanding at once. */
typedef struct message { het_request send, receive; unsigned char *out, *in; size_t size; int peer, number; uint32_t channel; } message;

static void many(het_transport *t, int per_pair, const size_t *sizes, int size_count, uint32_t first_channel)
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

static void case_order(void)
{
    static const size_t sizes[] = { 64 };
    het_transport t = open_default();
    const int64_t before = allocations;
    many(&t, 300, sizes, 1, 0);
    CHECK(allocations == before);
    close_good(&t);
}

static void case_many(void)
{
    static const size_t sizes[] = { 0, 1, 4095, 5, 999, 1000, 1001, 70000, 2000, 3, 150000, 4096, 0 };
    het_transport t = open_default();
    many(&t, 200, sizes, 13, 0);
    many(&t, 50, sizes, 13, (1u << 24) - 4); /* up to the last channel */
    close_good(&t);
}

static void case_sizes(int largest)
{
    static const size_t sizes[] = { 0, 1, 4095, 1u << 20, 1u << 26 };
    int i;
    het_transport t = open_default();
    for (i = 0; i < largest && i < 5; i++) many(&t, 2, sizes + i, 1, 7);
    close_good(&t);
}

/* Receives that join a line after its first ones have gone. */
static void case_line(void)
{
    het_transport t = open_default();
    het_request send[7], receive[7];
    unsigned char out[7], in[7];
    int i, posted = 0, sent = 0;
    for (i = 0; i < 7; i++) {
        const int to = (me + 1) % processes, from = (me + processes - 1) % processes;
        for (; posted < 7 && posted <= i + 2; posted++) RECEIVE(&t, from, 5, &in[posted], 1, &receive[posted]);
        nap(0.01); /* now they stand in line */
        out[sent] = (unsigned char)(10 + sent);
        SEND(&t, to, 5, &out[sent], 1, &send[sent]);
        sent++;
        finish(&t, &receive[i]);
        CHECK(in[i] == 10 + i);
    }
    for (i = 0; i < 7; i++) finish(&t, &send[i]);
    close_good(&t);
}

/* Messages of 0 to 5 pieces and their neighbours, and a long one followed by short ones on the same channel. */
static void case_pieces(void)
{
    const size_t p = (size_t)HETRAIN_MPI_PIECE;
    size_t sizes[24];
    int i, count = 0;
    het_transport t = open_default();
    CHECK(p < 100000);
    for (i = 0; i < 5; i++) {
        sizes[count++] = (size_t)i * p + 1;
        sizes[count++] = (size_t)i * p + p - 1;
        sizes[count++] = (size_t)i * p;
        sizes[count++] = 1;
    }
    sizes[count++] = 100 * p + 17;
    sizes[count++] = 2;
    many(&t, 120, sizes, count, 0);
    close_good(&t);
}

/* Process 0 sends `sent` bytes to the last one (itself if alone), which expects another number. */
static void mismatch(size_t sent, size_t expected, int exact)
{
    het_transport t = open_default();
    het_request send, receive;
    unsigned char *out = (unsigned char *)need(sent), *in = (unsigned char *)need(expected + 16);
    char word[40];
    memset(out, 1, sent);
    memset(in, 2, expected + 16);
    if (me == processes - 1) RECEIVE(&t, 0, 9, in, expected, &receive);
    if (me == 0) SEND(&t, processes - 1, 9, out, sent, &send);
    if (me == processes - 1) {
        size_t i;
        CHECK(wait_for(&t, &receive) == HET_ERR_TRANSPORT);
        CHECK(wait_for(&t, &receive) == HET_ERR_TRANSPORT);
        CHECK(has(t.iface->last_error(t.self), "from process 0"));
        CHECK(has(t.iface->last_error(t.self), "channel 9"));
        snprintf(word, sizeof word, "%llu bytes were sent", (unsigned long long)sent);
        if (exact) CHECK(has(t.iface->last_error(t.self), word));
        snprintf(word, sizeof word, "%llu expected", (unsigned long long)expected);
        CHECK(has(t.iface->last_error(t.self), word));
        for (i = expected; i < expected + 16; i++) CHECK(in[i] == 2);
    }
    close_good(&t);
    free(out);
    free(in);
}

static void case_mismatch(void)
{
    const size_t p = (size_t)HETRAIN_MPI_PIECE;
    start_mpi(MPI_THREAD_SERIALIZED);
    mismatch(8, 12, 1);
    mismatch(12, 8, 1);
    mismatch(0, 1, 1);
    mismatch(1, 0, 1);
    if (p > 100000) {
        mismatch(300000, 299999, 1);
        mismatch(299999, 300000, 1);
    } else {
        mismatch(3 * p, 3 * p + 1, 1);
        mismatch(3 * p + 1, 3 * p, 1);
        mismatch(3 * p - 1, 3 * p, 1);
        mismatch(2 * p, p, 0); /* the first piece fits: found at the second */
        mismatch(p, 2 * p, 1);
        mismatch(p - 1, p, 1);
        mismatch(5 * p + 1, 1, 0);
    }
    MPI_Finalize();
}

typedef struct talker { het_transport *t; uint32_t channel; } talker;
static void *talk(void *argument)
{
    static const size_t sizes[] = { 8, 0, 3000, 100000 };
    talker *k = (talker *)argument;
    int i;
    for (i = 0; i < 5; i++) many(k->t, 40, sizes, 4, k->channel);
    return NULL;
}

static void case_threads(void)
{
    het_transport t = open_default();
    talker k[2];
    pthread_t thread;
    k[0].t = k[1].t = &t;
    k[0].channel = 100;
    k[1].channel = 200;
    CHECK(pthread_create(&thread, NULL, talk, &k[0]) == 0);
    talk(&k[1]);
    pthread_join(thread, NULL);
    close_good(&t);
}

/* The last process beats once and then not for a million seconds, and its thread sleeps. The others' silence stays that of their beats. */
static void case_silence(void)
{
    het_mpi_desc desc = settings();
    het_transport t;
    int p;
    start_mpi(MPI_THREAD_SERIALIZED);
    if (me == processes - 1) desc.heartbeat_seconds = 1e6;
    t = open_with(&desc);
    CHECK(t.iface->silence(t.self, me) <= 0);
    CHECK(isinf(t.iface->silence(t.self, processes)) && isinf(t.iface->silence(t.self, -1)));
    if (me == processes - 1) {
        nap(3);
    } else {
        double last = 0, most = 0, start = now();
        for (;;) {
            double s = t.iface->silence(t.self, processes - 1);
            CHECK(s >= last); /* grows all the time once the one beat was heard */
            if (now() - start > 1) last = s;
            for (p = 0; p < processes - 1; p++)
                if (t.iface->silence(t.self, p) > most) most = t.iface->silence(t.self, p);
            if (s > 2) break;
            CHECK(now() < start + 60);
            nap(0.01);
        }
        CHECK(most < 1.5); /* thirty beats */
    }
    meet(&t);
    if (me == processes - 1) CHECK(t.iface->silence(t.self, 0) < 1); /* the message from 0 told it that 0 lives */
    meet(&t);
    close_good(&t);
    MPI_Finalize();
}

/* A process that has said goodbye is gone for sure. */
static void case_goodbye(void)
{
    het_transport t = open_default();
    if (me == 0) {
        double end = now() + 30;
        while (!isinf(t.iface->silence(t.self, processes - 1))) {
            CHECK(now() < end);
            nap(0.001);
        }
    }
    close_good(&t);
}

/* Process `who` aborts while messages of all kinds are under way. */
static void case_abort(int who)
{
    het_mpi_desc desc = settings();
    het_transport t;
    het_request hopeless[4], late;
    char text[300], reason[300];
    int64_t from = -1;
    unsigned char *large = (unsigned char *)need(1u << 22), small[64];
    double start;
    int i;
    memset(large, 0, 1u << 22);
    t = open_with(&desc);
    CHECK(t.iface->aborted(t.self, NULL, NULL, 0) == HET_OK);
    meet(&t);
    /* nobody sends or receives any of these */
    RECEIVE(&t, (me + 1) % processes, 1, small, sizeof small, &hopeless[0]);
    SEND(&t, (me + 1) % processes, 2, large, 1u << 22, &hopeless[1]);
    RECEIVE(&t, (me + processes - 1) % processes, 3, large, 1u << 20, &hopeless[2]);
    SEND(&t, (me + 1) % processes, 4, "eager", 5, &hopeless[3]);
    memset(reason, 'x', sizeof reason);
    memcpy(reason, "process ran out of tape\n", 24);
    reason[who % 2 ? 30 : 299] = 0;
    start = now();
    if (me == who) {
        nap(0.2);
        t.iface->abort(t.self, HET_ERR_DEVICE, reason);
        CHECK(now() - start < 5);
        t.iface->abort(t.self, HET_ERR_OOM, "another one"); /* the first one stays */
    }
    while (t.iface->aborted(t.self, &from, text, sizeof text) == HET_OK) {
        CHECK(now() - start < 5);
        nap(0.001);
    }
    CHECK(t.iface->aborted(t.self, &from, text, sizeof text) == HET_ERR_DEVICE);
    CHECK(from == who);
    CHECK(strncmp(text, "process ran out of tape?x", 25) == 0);
    CHECK(strlen(text) == (who % 2 ? 30 : 240));
    CHECK(t.iface->aborted(t.self, &from, text, 8) == HET_ERR_DEVICE && strcmp(text, "process") == 0);
    CHECK(t.iface->isend(t.self, 0, 1, NULL, 0, &late) == HET_ERR_TRANSPORT);
    for (i = 0; i < 4; i++) (void)wait_for(&t, &hopeless[i]);
    CHECK(wait_for(&t, &hopeless[0]) == HET_ERR_TRANSPORT);
    CHECK(wait_for(&t, &hopeless[2]) == HET_ERR_TRANSPORT);
    CHECK(has(t.iface->last_error(t.self), "aborted: process ran out of tape"));
    memset(large, 0xEE, 1u << 22);
    free(large); /* the messages are over: nothing touches it any more */
    CHECK(now() - start < 9);
    close_good(&t);
}

/* All abort at once: everyone knows one first reason. */
static void case_abort_all(void)
{
    het_transport t = open_default();
    int64_t from = -1;
    char text[64];
    snprintf(text, sizeof text, "from %d", me);
    t.iface->abort(t.self, HET_ERR_DATA, text);
    CHECK(t.iface->aborted(t.self, &from, text, sizeof text) == HET_ERR_DATA);
    CHECK(from >= 0 && from < processes && atoi(text + 5) == from);
    close_good(&t);
}

/* Closing with requests outstanding, without an abort. */
static void case_close_busy(void)
{
    het_transport t = open_default();
    het_request request[3];
    unsigned char *large = (unsigned char *)need(1u << 22), small[8];
    memset(large, 3, 1u << 22);
    RECEIVE(&t, (me + 1) % processes, 1, small, sizeof small, &request[0]);
    SEND(&t, (me + 1) % processes, 2, large, 1u << 22, &request[1]);
    SEND(&t, (me + 1) % processes, 2, large, 3, &request[2]);
    close_good(&t);
    free(large);
}

/* The last process dies by SIGKILL, the others wait for a message of it: the launcher ends them. */
static void case_kill(void)
{
    het_transport t = open_default();
    het_request request;
    char byte;
    meet(&t);
    if (me == processes - 1) {
        nap(0.2);
        raise(SIGKILL);
    }
    RECEIVE(&t, processes - 1, 1, &byte, 1, &request);
    (void)wait_for(&t, &request);
}

/* The last process stops here, for good: the launcher wakes what it ends. */
static void stop_last(het_transport *t)
{
    meet(t);
    if (me != processes - 1) return;
    raise(SIGSTOP);
    _exit(4);
}

/* The others' close fails within 20 seconds of `start`, and says why. */
static void give_up(het_transport *t, double start)
{
    het_error error;
    CHECK(het_mpi_close(t, &error) == HET_ERR_TRANSPORT);
    CHECK(now() - start < 20);
    printf("process %d gave up: %s\n", me, error.text);
    fflush(stdout);
    _exit(3);
}

/* The last process stops: the others' close gives up. */
static void case_stop(void)
{
    het_mpi_desc desc = settings();
    het_transport t;
    desc.dead_seconds = 1;
    t = open_with(&desc);
    stop_last(&t);
    give_up(&t, now());
}

/* The same after an abort, which the stopped process never hears of; a message to it stays behind. */
static void case_stop_abort(void)
{
    het_mpi_desc desc = settings();
    het_transport t;
    het_request request[2];
    static unsigned char large[1 << 22], in[64];
    double start;
    desc.abort_seconds = 1;
    t = open_with(&desc);
    stop_last(&t);
    start = now();
    SEND(&t, processes - 1, 2, large, sizeof large, &request[0]);
    RECEIVE(&t, processes - 1, 2, in, sizeof in, &request[1]);
    nap(0.5);
    t.iface->abort(t.self, HET_ERR_DEVICE, "lost");
    CHECK(wait_for(&t, &request[0]) == HET_ERR_TRANSPORT);
    CHECK(wait_for(&t, &request[1]) == HET_ERR_TRANSPORT);
    give_up(&t, start);
}

static void case_cycles(void)
{
    static const size_t sizes[] = { 3, 0, 5000 };
    int i;
    start_mpi(MPI_THREAD_SERIALIZED);
    for (i = 0; i < 100; i++) {
        het_transport t = open_default();
        if (i % 2) many(&t, 4, sizes, 3, 1);
        close_good(&t);
    }
    CHECK(allocations == 100);
    MPI_Finalize();
}

/* An error of open has the words and leaves nothing behind. */
static void refused(const het_mpi_desc *desc, het_result code, const char *word)
{
    het_transport t;
    het_error error;
    error.text[0] = 0;
    memset(&t, 0xCD, sizeof t);
    CHECK(het_mpi_open(NULL, NULL, desc, &t, &error) == code);
    CHECK(error.code == code && has(error.text, word));
    CHECK(t.self == NULL && t.iface == NULL && live == 0);
}

/* A call with a wrong argument, on a transport of its own: the first error stays. */
static void wrong_call(int which)
{
    static const char *const words[8] = { "are", "process -1", "16777216", "size 5", "request", "not started", "request", "done" };
    het_transport t = open_with(NULL);
    het_result result;
    het_request request;
    int32_t done = -7;
    char byte = 0;
    memset(&request, 0, sizeof request);
    CHECK(t.iface->last_error(t.self)[0] == 0);
    switch (which) {
    case 0: result = t.iface->isend(t.self, processes, 1, &byte, 1, &request); break;
    case 1: result = t.iface->irecv(t.self, -1, 1, &byte, 1, &request); break;
    case 2: result = t.iface->isend(t.self, 0, 1u << 24, &byte, 1, &request); break;
    case 3: result = t.iface->irecv(t.self, 0, 1, NULL, 5, &request); break;
    case 4: result = t.iface->irecv(t.self, 0, 1, &byte, 1, NULL); break;
    case 5: result = t.iface->test(t.self, &request, &done); break;
    case 6: result = t.iface->test(t.self, NULL, &done); break;
    default: result = t.iface->test(t.self, &request, NULL);
    }
    CHECK(result == HET_ERR_INVALID && has(t.iface->last_error(t.self), words[which]) && done == -7);
    close_good(&t);
}

static void case_misuse(void)
{
    het_mpi_desc desc;
    het_transport t, none;
    het_error error;
    int i;
    start_mpi(MPI_THREAD_MULTIPLE);
    CHECK(het_mpi_open(NULL, NULL, NULL, NULL, &error) == HET_ERR_INVALID);
    CHECK(het_mpi_close(NULL, NULL) == HET_OK);
    memset(&none, 0, sizeof none);
    CHECK(het_mpi_close(&none, NULL) == HET_OK);
    memset(&desc, 0xCD, sizeof desc);
    refused(&desc, HET_ERR_INVALID, "cleared");
    desc = settings();
    desc.end_canary = 1;
    refused(&desc, HET_ERR_INVALID, "cleared");
    desc = settings();
    desc.heartbeat_seconds = -2;
    refused(&desc, HET_ERR_INVALID, "heartbeat_seconds is -2");
    desc = settings();
    desc.dead_seconds = (double)NAN;
    refused(&desc, HET_ERR_INVALID, "dead_seconds");
    desc = settings();
    desc.abort_seconds = 1e9;
    refused(&desc, HET_ERR_INVALID, "abort_seconds is 1e+09");
    desc = settings();
    desc.allocator.free = NULL;
    refused(&desc, HET_ERR_INVALID, "allocator");
    desc = settings();
    desc.allocator.alloc = no_alloc;
    refused(&desc, HET_ERR_OOM, "bytes");
    if (processes > 1) { /* one process without memory: all are refused */
        if (me == 1) refused(&desc, HET_ERR_OOM, "bytes");
        desc = settings();
        if (me != 1) refused(&desc, HET_ERR_TRANSPORT, "another process");
    }
    for (i = 0; i < 8; i++) wrong_call(i);
    t = open_with(NULL);
    CHECK(t.iface->last_error(t.self)[0] == 0);
    t.iface->abort(t.self, HET_OK, NULL);
    CHECK(t.iface->aborted(t.self, NULL, NULL, 0) == HET_ERR_TRANSPORT || processes > 1);
    close_good(&t);
    MPI_Finalize();
    desc = settings();
    refused(&desc, HET_ERR_STATE, "MPI_Finalize");
}

static void case_funneled(void)
{
    if (start_mpi(MPI_THREAD_FUNNELED) == MPI_THREAD_FUNNELED) refused(NULL, HET_ERR_UNSUPPORTED, "MPI_THREAD_SERIALIZED");
    MPI_Finalize();
}

static void exchange(het_transport *t, unsigned char *data, size_t size) /* there and back between 0 and 1 */
{
    het_request request;
    if (me == 0) SEND(t, 1, 5, data, size, &request);
    else RECEIVE(t, 0, 5, data, size, &request);
    finish(t, &request);
    if (me == 0) RECEIVE(t, 1, 5, data, size, &request);
    else SEND(t, 0, 5, data, size, &request);
    finish(t, &request);
}

static void case_speed(void)
{
    static const struct { size_t size; int rounds; } runs[] = { { 8, 2000 }, { 4096, 2000 }, { 1u << 20, 200 }, { 1u << 26, 5 } };
    het_transport t = open_default();
    unsigned char *data = (unsigned char *)need(1u << 26);
    size_t r;
    int i;
    memset(data, 1, 1u << 26);
    if (me < 2 && processes > 1)
        for (r = 0; r < sizeof runs / sizeof *runs; r++) {
            double start, seconds;
            exchange(&t, data, runs[r].size);
            start = now();
            for (i = 0; i < runs[r].rounds; i++) exchange(&t, data, runs[r].size);
            seconds = (now() - start) / (2.0 * runs[r].rounds);
            if (me != 0) continue;
            printf("# %llu bytes: %.1f us one way, ", (unsigned long long)runs[r].size, seconds * 1e6);
            printf("%.3f GB/s\n", (double)runs[r].size / seconds * 1e-9);
        }
    close_good(&t);
    free(data);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    const int number = argc > 2 ? atoi(argv[2]) : 0;
    if (strcmp(name, "order") == 0) case_order();
    else if (strcmp(name, "many") == 0) case_many();
    else if (strcmp(name, "line") == 0) case_line();
    else if (strcmp(name, "sizes") == 0) case_sizes(number);
    else if (strcmp(name, "pieces") == 0) case_pieces();
    else if (strcmp(name, "mismatch") == 0) case_mismatch();
    else if (strcmp(name, "threads") == 0) case_threads();
    else if (strcmp(name, "silence") == 0) case_silence();
    else if (strcmp(name, "goodbye") == 0) case_goodbye();
    else if (strcmp(name, "abort") == 0) case_abort(number);
    else if (strcmp(name, "abort_all") == 0) case_abort_all();
    else if (strcmp(name, "close_busy") == 0) case_close_busy();
    else if (strcmp(name, "kill") == 0) case_kill();
    else if (strcmp(name, "stop") == 0) case_stop();
    else if (strcmp(name, "stop_abort") == 0) case_stop_abort();
    else if (strcmp(name, "cycles") == 0) case_cycles();
    else if (strcmp(name, "misuse") == 0) case_misuse();
    else if (strcmp(name, "funneled") == 0) case_funneled();
    else if (strcmp(name, "speed") == 0) case_speed();
    else {
        printf("there is no case \"%s\"\n", name);
        return 2;
    }
    if (me <= 0) printf("done\n");
    return 0;
}
