/* Signals: the step is finished, everything is saved, and the program ends well, in all processes whichever of them got one. A second SIGINT or
   SIGTERM ends a process at once; one within a fifth of a second is the first once more: timeout(1) and launchers signal both a process and its
   group. Include it after common.h. */
#ifndef PROGRAMS_STOP_H
#define PROGRAMS_STOP_H

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>

/* Process 0 has a receive of one byte from every other process, each of which sends one byte during a run: 1 when a signal comes, else 0 at the end.
   Nobody waits for them while it runs. */
typedef struct stopper {
    const het_transport *transport;
    int64_t processes, process;
    het_request *request;           /* [processes] in process 0, else one */
    unsigned char *byte;            /* likewise */
    int asked;                      /* in process 0: by another process */
    int told;                       /* in the others: the byte is on its way */
    int ends[2], running;           /* of a pipe from the handler to the thread, which sends the byte */
    pthread_t thread;
} stopper;

static volatile sig_atomic_t stop_asked, stop_pipe = -1;
static volatile double stop_time; /* of the first one */

static void on_signal(int number) {
    const int before = errno;
    ssize_t written;
    if (!stop_asked) stop_time = seconds_now();
    else if ((number == SIGINT || number == SIGTERM) && seconds_now() - stop_time > 0.2) {
        signal(number, SIG_DFL);
        raise(number);
    }
    stop_asked = 1;
    written = stop_pipe >= 0 ? write(stop_pipe, "", 1) : 0;
    (void)written; /* where the pipe is full, it wakes as well */
    errno = before;
}

/* SIGHUP: of a terminal that is closed, which kernel and shell may both send, unless nohup has it ignored. mpirun gives SIGUSR1 on to all processes,
   maybe twice; SIGINT and SIGTERM it gives on as well, but ends them soon after. */
static inline void catch_signals(void) {
    const int caught[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1 };
    struct sigaction action, before;
    size_t i;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    for (i = 0; i < sizeof caught / sizeof *caught; i++)
        if (caught[i] != SIGHUP || sigaction(SIGHUP, NULL, &before) != 0 || before.sa_handler != SIG_IGN) sigaction(caught[i], &action, NULL);
}

/* What it may mean that a message has another size than expected. */
static inline const char *of_two_kinds(const char *text) {
    return strstr(text, " were sent, ") != NULL ? "; all processes want --islands, or none" : "";
}

/* Until a message from or to process `other`, whose start gave `result`, is there. Not 0: it will not come, also since nothing has been heard of
   `other` for half a minute. */
static inline int message_wait(const het_transport *t, het_request *request, int64_t other, het_result result) {
    enum { DEADLINE = 30 }; /* seconds, as het_layout.deadline */
    struct timespec nap = { 0, 0 };
    double begin = seconds_now(), looked = begin;
    char text[sizeof failure] = "";
    int64_t process = 0;
    int32_t done = 0;
    while (result == HET_OK && t->iface->test(t->self, request, &done) == HET_OK && !done) {
        const double now = seconds_now();
        if (now - looked > 1) begin = now; /* this process was stopped itself */
        looked = now;
        nap.tv_nsec = (long)(1e7 * (now - begin < 1 ? now - begin : 1)); /* to see it at once costs a processor */
        if (now - begin > 0.005) nanosleep(&nap, NULL);
        if (text[0] != 0 || now - begin <= DEADLINE || t->iface->silence(t->self, other) <= DEADLINE) continue;
        snprintf(text, sizeof text, "process %lld: no sign of life for %d s", (long long)other, DEADLINE);
        t->iface->abort(t->self, HET_ERR_TRANSPORT, text); /* then the request ends, too: only afterwards its memory is free */
    }
    if (text[0] != 0) return fail(FAILED, "%s", text);
    if (done) return 0;
    if (t->iface->aborted(t->self, &process, text, sizeof text) != HET_OK) return fail(FAILED, "process %lld failed: %s", (long long)process, text);
    return fail(FAILED, "%s%s", t->iface->last_error(t->self), of_two_kinds(t->iface->last_error(t->self)));
}

static inline void stop_send(stopper *s, unsigned char byte) {
    s->byte[0] = byte;
    s->told = s->transport->iface->isend(s->transport->self, 0, HETRAIN_CALLERS_CHANNEL, s->byte, 1, s->request) == HET_OK;
}

static inline void *stop_wait(void *user) {
    stopper *s = (stopper *)user;
    char byte = 1;
    ssize_t got;
    do got = read(s->ends[0], &byte, 1);
    while (got < 0 && errno == EINTR);
    if (got == 1 && byte == 0) stop_send(s, 1);
    return NULL;
}

/* From here on signals stop the run. */
static inline int stop_start(stopper *s, const het_transport *transport, int64_t processes, int64_t process) {
    const size_t count = process == 0 ? (size_t)processes : 1;
    sigset_t all, before;
    int64_t p;
    s->transport = transport, s->processes = processes, s->process = process;
    if (processes > 1) {
        s->request = (het_request *)calloc(count, sizeof *s->request);
        s->byte = (unsigned char *)calloc(count, 1);
        if (s->request == NULL || s->byte == NULL) return fail(FAILED, "out of memory");
        for (p = 1; process == 0 && p < processes; p++)
            if (transport->iface->irecv(transport->self, p, HETRAIN_CALLERS_CHANNEL, &s->byte[p], 1, &s->request[p]) != HET_OK)
                return fail(FAILED, "%s", transport->iface->last_error(transport->self));
    }
    if (process > 0) {
        if (pipe(s->ends) != 0) return fail(FAILED, "no pipe: %s", strerror(errno));
        fcntl(s->ends[0], F_SETFD, FD_CLOEXEC), fcntl(s->ends[1], F_SETFD, FD_CLOEXEC), fcntl(s->ends[1], F_SETFL, O_NONBLOCK);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        s->running = pthread_create(&s->thread, NULL, stop_wait, s) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (!s->running) return fail(FAILED, "no thread for signals");
        stop_pipe = s->ends[1];
    }
    catch_signals();
    return 0;
}

/* Process 0: whether any process is to stop. Never waits. */
static inline int stop_seen(stopper *s) {
    int64_t p;
    for (p = 1; p < s->processes && s->process == 0 && !s->asked; p++) {
        int32_t done = 0;
        if (s->transport->iface->test(s->transport->self, &s->request[p], &done) == HET_OK && done && s->byte[p] != 0) s->asked = 1;
    }
    return stop_asked || s->asked;
}

/* At the end, with the status so far: the bytes that are still to come do. */
static inline int stop_end(stopper *s, int status) {
    const int64_t first = s->process == 0 ? 1 : 0, end = s->process == 0 ? s->processes : 1;
    int64_t p;
    stop_pipe = -1;
    if (s->running) {
        const ssize_t written = write(s->ends[1], "e", 1);
        (void)written;
        pthread_join(s->thread, NULL);
        close(s->ends[0]), close(s->ends[1]);
        s->running = 0;
    }
    if (status != 0 || s->processes < 2) return status;
    if (s->process > 0 && !s->told) stop_send(s, 0);
    for (p = first; p < end && status == 0; p++) status = message_wait(s->transport, &s->request[p], p, HET_OK); /* of the others to process 0 */
    return status;
}

/* After the transport is closed: it has let go of the requests. */
static inline void stop_free(stopper *s) {
    free(s->request);
    free(s->byte);
}

#endif
