/* hetrain_mpi.c over tests/mpi/fake/mpi.h: threads as processes, two talking threads each, for ThreadSanitizer. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#define HETRAIN_MPI_PIECE 1000
#include "hetrain_mpi.c"

#include <unistd.h>

#define MESSAGES 40
#define CHECK(condition) check((condition) ? 1 : 0, #condition, __LINE__)
static void check(int holds, const char *what, int line)
{
    if (holds) return;
    printf("process %d, line %d: not so: %s\n", fake_process, line, what);
    fflush(stdout);
    _exit(1);
}

typedef struct process {
    pthread_t thread;
    int number, abort_after; /* rounds before the last process aborts; -1: nobody aborts */
    uint64_t random;
} process;

typedef struct talker { het_transport *t; const process *p; int side; } talker;

static size_t size_of(int from, int to, int round, int message)
{
    static const size_t sizes[] = { 0, 1, 999, 1000, 1001, 5000, 20, 12345, 3000, 7 };
    return sizes[(size_t)(from * 3 + to * 5 + round * 7 + message) % 10];
}

/* Every process sends MESSAGES to every process on two channels. 0: something failed, and all requests have ended. */
static int round_of(const talker *k, int round)
{
    static const int channels = 2;
    const het_transport *t = k->t;
    const int n = (int)t->iface->processes(t->self), me = k->p->number;
    het_request *request = (het_request *)calloc((size_t)(2 * n * MESSAGES), sizeof *request);
    unsigned char **data = (unsigned char **)calloc((size_t)(2 * n * MESSAGES), sizeof *data);
    int *started = (int *)calloc((size_t)(2 * n * MESSAGES), sizeof *started);
    int i, good = 1;
    for (i = 0; i < 2 * n * MESSAGES; i++) {
        const int receives = i % 2, peer = i / 2 % n, message = i / 2 / n;
        const size_t size = receives ? size_of(peer, me, round, message) : size_of(me, peer, round, message);
        const uint32_t channel = (uint32_t)(k->side * 10 + message % channels);
        data[i] = (unsigned char *)malloc(size + 1);
        memset(data[i], receives ? 0 : (me * 50 + message) & 255, size + 1);
        if (receives) started[i] = t->iface->irecv(t->self, peer, channel, data[i], size, &request[i]) == HET_OK;
        else started[i] = t->iface->isend(t->self, peer, channel, data[i], size, &request[i]) == HET_OK;
        good = good && started[i];
    }
    for (i = 2 * n * MESSAGES - 1; i >= 0; i--) {
        const int peer = i / 2 % n, message = i / 2 / n;
        int32_t done = 0;
        het_result result = HET_OK;
        size_t j;
        while (started[i] && result == HET_OK && !done) {
            result = t->iface->test(t->self, &request[i], &done);
            if (!done) sched_yield();
        }
        good = good && result == HET_OK;
        if (done && i % 2)
            for (j = 0; j < size_of(peer, me, round, message); j++) CHECK(data[i][j] == ((peer * 50 + message) & 255));
        memset(data[i], 1, 1); /* ours again: a race if the transport still reads or writes it */
        free(data[i]);
    }
    free(request);
    free(data);
    free(started);
    return good;
}

static void *talk(void *argument)
{
    const talker *k = (const talker *)argument;
    int round;
    for (round = 0; round < 6; round++) {
        if (k->p->abort_after == round && k->p->number == fake_size - 1 && k->side == 1) k->t->iface->abort(k->t->self, HET_ERR_DEVICE, "enough");
        if (!round_of(k, round)) {
            CHECK(k->p->abort_after >= 0);
            CHECK(k->t->iface->last_error(k->t->self)[0] != 0);
            return NULL;
        }
        CHECK(k->t->iface->silence(k->t->self, 0) >= 0); /* infinity once process 0 has closed */
    }
    return NULL;
}

static void *live(void *argument)
{
    process *p = (process *)argument;
    het_mpi_desc desc;
    het_transport t;
    het_error error;
    talker k[2];
    pthread_t thread;
    memset(&desc, 0, sizeof desc);
    desc.heartbeat_seconds = 0.01;
    desc.abort_seconds = desc.dead_seconds = 60;
    fake_become(p->number);
    CHECK(het_mpi_open(NULL, NULL, &desc, &t, &error) == HET_OK);
    k[0].t = k[1].t = &t;
    k[0].p = k[1].p = p;
    k[0].side = 0;
    k[1].side = 1;
    CHECK(pthread_create(&thread, NULL, talk, &k[0]) == 0);
    talk(&k[1]);
    pthread_join(thread, NULL);
    if (p->abort_after >= 0) {
        char text[32];
        int64_t from = -1;
        while (t.iface->aborted(t.self, &from, text, sizeof text) == HET_OK) sched_yield();
        CHECK(from == fake_size - 1 && strcmp(text, "enough") == 0);
    }
    CHECK(het_mpi_close(&t, &error) == HET_OK);
    return NULL;
}

int main(void)
{
    int run, i;
    for (run = 0; run < 12; run++) {
        process p[FAKE_PROCESSES];
        long before = fake_live;
        memset(p, 0, sizeof p);
        fake_size = 1 + run % FAKE_PROCESSES;
        for (i = 0; i < fake_size; i++) {
            p[i].number = i;
            p[i].abort_after = run % 3 == 0 ? -1 : run % 5;
            CHECK(pthread_create(&p[i].thread, NULL, live, &p[i]) == 0);
        }
        for (i = 0; i < fake_size; i++) pthread_join(p[i].thread, NULL);
        for (i = 0; i < FAKE_PROCESSES; i++) fake_dups[i] = 2 * (run + 1); /* also of those that did not take part */
        if (run % 3 == 0) CHECK(fake_live == before); /* after an abort messages are left in MPI */
    }
    printf("done\n");
    return 0;
}
