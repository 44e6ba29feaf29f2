/* Processes of one program, connected over TCP, and messages of their own beside the engine's, on the channel that it leaves to its callers. For
   recsys.c. */
#ifndef EXAMPLES_PROCESSES_H
#define EXAMPLES_PROCESSES_H

#include "hetrain_tcp.c"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { PROCESSES = 4 };
typedef struct processes { het_transport transport; int me; } processes;

static inline double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Makes this process the first of all, starts the others and connects them. */
static het_result processes_start(processes *p) {
    char meeting[40];
    het_tcp_desc desc;
    het_error error;
    het_result result;
    int child = 1;
    snprintf(meeting, sizeof meeting, "/tmp/processes-%d", (int)getpid());
    for (p->me = PROCESSES - 1; p->me > 0 && (child = (int)fork()) > 0; p->me--) {}
    if (child < 0) return HET_ERR_OOM;
    memset(&desc, 0, sizeof desc), desc.processes = PROCESSES, desc.process = p->me, desc.file = meeting;
    result = het_tcp_open(&desc, &p->transport, &error);
    if (result != HET_OK) fprintf(stderr, "%s\n", error.text);
    return result;
}

/* Ends the connection; the first process waits for the others. Returns the program's status, 0 where all went well. */
static int processes_end(processes *p, int status) {
    int of_child;
    if (p->transport.iface != NULL && het_tcp_close(&p->transport, NULL) != HET_OK) status = 1;
    while (p->me == 0 && wait(&of_child) > 0) if (of_child != 0) status = 1;
    return status;
}

/* All-to-all: give[q], give_count[q] floats, to each other process q, and take[q] from it; no message of 0. One at a time on a thread. */
static het_result all_to_all(const processes *p, float *const *give, const size_t *give_count, float *const *take, const size_t *take_count) {
    const het_transport_iface *wire = p->transport.iface;
    const struct timespec nap = { 0, 50000 };
    het_request request[2][PROCESSES];
    het_result result = HET_OK;
    int q;
    for (q = 0; q < PROCESSES && result == HET_OK; q++) {
        const size_t from = q == p->me ? 0 : take_count[q] * sizeof **take, to = q == p->me ? 0 : give_count[q] * sizeof **give;
        if (from > 0) result = wire->irecv(p->transport.self, q, HETRAIN_CALLERS_CHANNEL, take[q], from, &request[0][q]);
        if (to > 0 && result == HET_OK) result = wire->isend(p->transport.self, q, HETRAIN_CALLERS_CHANNEL, give[q], to, &request[1][q]);
    }
    for (q = 0; q < 2 * PROCESSES && result == HET_OK; q++) {
        int32_t done = q / 2 == p->me || (q % 2 ? give_count : take_count)[q / 2] == 0;
        while (!done && (result = wire->test(p->transport.self, &request[q % 2][q / 2], &done)) == HET_OK && !done) nanosleep(&nap, NULL);
    }
    if (result != HET_OK) wire->abort(p->transport.self, result, "an all-to-all failed"); /* nothing touches the requests behind that */
    return result;
}

#endif
