/* One process of a test of hetrain_mpi.c: test_mpi CASE [NUMBER]. tests/test_mpi.sh starts them and judges exit status and output. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#define HETRAIN_MPI_DECLARATIONS
#include "hetrain_mpi.c"

#include <mpi.h>

#include "../transport.h"

#include <math.h>
#include <signal.h>

#ifndef HETRAIN_MPI_PIECE
#define HETRAIN_MPI_PIECE (1 << 30)
#endif

/* ---- the transport under test ---- */

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

/* ---- cases ---- */

/* Messages of 0 to 5 pieces and their neighbours, and a long one followed by short ones on the same channel. */
static void case_pieces(int number)
{
    const size_t p = (size_t)HETRAIN_MPI_PIECE;
    size_t sizes[24];
    int i, count = 0;
    het_transport t = open_default();
    (void)number;
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

static void case_mismatch(int number)
{
    const size_t p = (size_t)HETRAIN_MPI_PIECE;
    (void)number;
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

/* The last process beats once and then not for a million seconds, and its thread sleeps. The others' silence stays that of their beats. */
static void case_silence(int number)
{
    het_mpi_desc desc = settings();
    het_transport t;
    int p;
    (void)number;
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
static void case_goodbye(int number)
{
    het_transport t = open_default();
    (void)number;
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
    het_transport t = open_default();
    het_request hopeless[4];
    unsigned char *large = (unsigned char *)need(1u << 22), small[64];
    double start;
    int i;
    memset(large, 0, 1u << 22);
    /* nobody sends or receives any of these */
    RECEIVE(&t, (me + 1) % processes, 1, small, sizeof small, &hopeless[0]);
    SEND(&t, (me + 1) % processes, 2, large, 1u << 22, &hopeless[1]);
    RECEIVE(&t, (me + processes - 1) % processes, 3, large, 1u << 20, &hopeless[2]);
    SEND(&t, (me + 1) % processes, 4, "eager", 5, &hopeless[3]);
    start = now();
    abort_by(&t, who);
    CHECK(now() - start < 5);
    for (i = 0; i < 4; i++) (void)wait_for(&t, &hopeless[i]);
    CHECK(wait_for(&t, &hopeless[0]) == HET_ERR_TRANSPORT);
    CHECK(wait_for(&t, &hopeless[2]) == HET_ERR_TRANSPORT);
    CHECK(has(t.iface->last_error(t.self), "aborted: process ran out of tape"));
    memset(large, 0xEE, 1u << 22);
    free(large); /* the messages are over: nothing touches it any more */
    CHECK(now() - start < 9);
    close_good(&t);
}

/* Closing with requests outstanding, without an abort. */
static void case_close_busy(int number)
{
    het_transport t = open_default();
    het_request request[3];
    unsigned char *large = (unsigned char *)need(1u << 22), small[8];
    (void)number;
    memset(large, 3, 1u << 22);
    RECEIVE(&t, (me + 1) % processes, 1, small, sizeof small, &request[0]);
    SEND(&t, (me + 1) % processes, 2, large, 1u << 22, &request[1]);
    SEND(&t, (me + 1) % processes, 2, large, 3, &request[2]);
    close_good(&t);
    free(large);
}

/* The last process dies by SIGKILL, the others wait for a message of it: the launcher ends them. */
static void case_kill(int number)
{
    het_transport t = open_default();
    het_request request;
    char byte;
    (void)number;
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
static void case_stop(int number)
{
    het_mpi_desc desc = settings();
    het_transport t;
    het_request request;
    (void)number;
    desc.dead_seconds = 1;
    t = open_with(&desc);
    stop_last(&t);
    RECEIVE(&t, processes - 1, 1, NULL, 0, &request); /* that close fails it is not why close fails */
    give_up(&t, now());
}

/* The same after an abort, which the stopped process never hears of; a message to it stays behind. */
static void case_stop_abort(int number)
{
    het_mpi_desc desc = settings();
    het_transport t;
    het_request request[2];
    static unsigned char large[1 << 22], in[64];
    double start;
    (void)number;
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

/* While process 0 closes, it and the last one are stopped for longer than it waits for silence; the last one goes on last. */
static void case_suspended(int number)
{
    het_mpi_desc desc = settings();
    het_transport t;
    het_request request;
    int32_t first = getpid();
    const int last = getpid();
    (void)number;
    desc.dead_seconds = 1.5;
    t = open_with(&desc);
    if (me == 0) SEND(&t, processes - 1, 3, &first, sizeof first, &request);
    else RECEIVE(&t, 0, 3, &first, sizeof first, &request);
    finish(&t, &request);
    if (me > 0) nap(0.3);
    if (me > 0 && fork() == 0) {
        CHECK(kill(first, SIGSTOP) == 0 && kill(last, SIGSTOP) == 0);
        nap(3);
        CHECK(kill(first, SIGCONT) == 0);
        nap(0.4);
        CHECK(kill(last, SIGCONT) == 0);
        _exit(0);
    }
    if (me > 0) nap(0.1); /* here it is stopped */
    close_good(&t);
}

static void case_cycles_in_mpi(int number)
{
    (void)number;
    start_mpi(MPI_THREAD_SERIALIZED);
    case_cycles(100);
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

static void case_misuse(int number)
{
    het_mpi_desc desc;
    het_transport t, none;
    het_error error;
    int i;
    (void)number;
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
    alloc_fails_at = allocations;
    refused(&desc, HET_ERR_OOM, "bytes");
    if (processes > 1) { /* one process without memory: all are refused */
        if (me == 1) alloc_fails_at = allocations;
        refused(&desc, me == 1 ? HET_ERR_OOM : HET_ERR_TRANSPORT, me == 1 ? "bytes" : "another process");
    }
    for (i = 0; i < 8; i++) wrong_call(i);
    t = open_with(NULL); /* an abort without a code is HET_ERR_TRANSPORT; another process's may be here first */
    t.iface->abort(t.self, HET_OK, NULL);
    CHECK(t.iface->aborted(t.self, NULL, NULL, 0) == HET_ERR_TRANSPORT);
    close_good(&t);
    MPI_Finalize();
    desc = settings();
    refused(&desc, HET_ERR_STATE, "MPI_Finalize");
}

static void case_funneled(int number)
{
    (void)number;
    if (start_mpi(MPI_THREAD_FUNNELED) == MPI_THREAD_FUNNELED) refused(NULL, HET_ERR_UNSUPPORTED, "MPI_THREAD_SERIALIZED");
    MPI_Finalize();
}

static void case_speed(int number)
{
    static const struct { size_t size; int rounds; } runs[] = { { 8, 2000 }, { 4096, 2000 }, { 1u << 20, 200 }, { 1u << 26, 5 } };
    het_transport t = open_default();
    unsigned char *data = (unsigned char *)need(1u << 26);
    size_t r;
    int i;
    (void)number;
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

static const struct { const char *name; void (*run)(int number); } cases[] = {
    { "order", case_order }, { "many", case_many }, { "line", case_line }, { "sizes", case_sizes }, { "pieces", case_pieces },
    { "mismatch", case_mismatch }, { "threads", case_threads }, { "silence", case_silence }, { "goodbye", case_goodbye },
    { "abort", case_abort }, { "abort_all", case_abort_all }, { "close_busy", case_close_busy }, { "kill", case_kill },
    { "stop", case_stop }, { "stop_abort", case_stop_abort }, { "suspended", case_suspended }, { "cycles", case_cycles_in_mpi },
    { "misuse", case_misuse }, { "funneled", case_funneled }, { "speed", case_speed }
};

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    size_t i;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(name, cases[i].name) != 0) continue;
        cases[i].run(argc > 2 ? atoi(argv[2]) : 0);
        if (me <= 0) printf("done\n");
        return 0;
    }
    printf("there is no case \"%s\"\n", name);
    return 2;
}
