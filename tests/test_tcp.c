/* hetrain_tcp.c: groups of forked processes that meet by a file or a port; strangers, faults of the system and of memory, dying processes. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <errno.h>
static int fault(const char *call);
#define HETRAIN_TCP_FAULT(call) fault(call)
#include "hetrain_tcp.c"

#include "support.h"
#include "hetrain_plan.h"

#include "transport.h"

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/wait.h>

static char folder[64], meeting[100]; /* of the group that runs: where it meets */
static int meeting_port;            /* 0: by the file */

/* ---- calls of the system that fail ---- */

static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;
static const char *fault_call; /* NULL: none fails */
static int fault_at, fault_count, fault_number, fault_hit;

static pthread_cond_t fault_turn = PTHREAD_COND_INITIALIZER;
static int held; /* 1: the next sendmsg stops, 2: it has, until it is 0 again */

static int fault(const char *call) {
    int fails = 0;
    pthread_mutex_lock(&fault_lock);
    if (held == 1 && strcmp(call, "sendmsg") == 0) {
        held = 2;
        pthread_cond_broadcast(&fault_turn);
        while (held != 0) pthread_cond_wait(&fault_turn, &fault_lock);
    }
    if (fault_call != NULL && strcmp(call, fault_call) == 0) fails = fault_count++ == fault_at;
    if (fails) fault_hit = 1;
    pthread_mutex_unlock(&fault_lock);
    if (fails) errno = fault_number;
    return fails;
}

/* ---- the transport under test ---- */

static het_tcp_desc settings(void) {
    het_tcp_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.processes = processes;
    desc.process = me;
    if (meeting_port > 0) desc.host = "127.0.0.1", desc.port = meeting_port;
    else desc.file = meeting;
    desc.open_seconds = 30;
    desc.heartbeat_seconds = 0.05;
    desc.dead_seconds = 30;
    desc.abort_seconds = 10;
    desc.allocator.alloc = count_alloc;
    desc.allocator.free = count_free;
    return desc;
}

static het_transport open_with(const het_tcp_desc *desc) {
    het_transport t;
    het_error error;
    het_result result;
    error.text[0] = 0;
    result = het_tcp_open(desc, &t, &error);
    if (result != HET_OK) fprintf(stderr, "process %d: %s\n", me, error.text);
    CHECK(result == HET_OK);
    CHECK(t.iface->version == HETRAIN_TRANSPORT_VERSION);
    CHECK(t.iface->process(t.self) == me && t.iface->processes(t.self) == processes);
    return t;
}

static het_transport open_default(void) {
    const het_tcp_desc desc = settings();
    return open_with(&desc);
}

static void close_good(het_transport *t) {
    het_error error;
    het_result result;
    error.text[0] = 0;
    result = het_tcp_close(t, &error);
    if (result != HET_OK) fprintf(stderr, "process %d: %s\n", me, error.text);
    CHECK(result == HET_OK);
    CHECK(t->self == NULL && t->iface == NULL);
    CHECK(live == 0);
}

/* ---- a group of processes ---- */

typedef void (*case_run)(int number);

/* A port of this machine that nobody uses. */
static int free_port(void) {
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    int s = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(s >= 0);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    assert_int_equal(bind(s, (struct sockaddr *)(void *)&address, length), 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)(void *)&address, &length), 0);
    close(s);
    return ntohs(address.sin_port);
}

static pid_t start(int n, int number, case_run run, int argument) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0) return child;
    me = number, processes = n;
    signal(SIGALRM, SIG_DFL);
    alarm(180); /* nobody hangs; under the thread sanitizer, on busy cores, 60 were too few once */
    run(argument);
    fflush(NULL);
    _exit(0);
}

/* Child `killed` (-1: none) ends by SIGKILL, the others well. */
static void group_but(int n, case_run run, int argument, int killed) {
    pid_t child[16];
    int i, status, wrong = 0;
    for (i = 0; i < n; i++) child[i] = start(n, i, run, argument);
    for (i = 0; i < n; i++) {
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        if (i == killed ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL : status != 0) {
            fprintf(stderr, "process %d of %d, argument %d: %s %d\n", i, n, argument, WIFSIGNALED(status) ? "signal" : "exit status",
                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            wrong = 1;
        }
    }
    assert_false(wrong);
}

static void group(int n, case_run run, int argument) { group_but(n, run, argument, -1); }

static int by_file(void **state) {
    (void)state;
    strcpy(folder, "/tmp/het_tcp_XXXXXX");
    if (mkdtemp(folder) == NULL) return 1;
    snprintf(meeting, sizeof meeting, "%s/meeting", folder);
    meeting_port = 0;
    return 0;
}

static int leave(void **state) /* fails where a file is left */
{
    (void)state;
    return rmdir(folder);
}

/* ---- messages ---- */

/* Messages that wait for receives that come last, on hundreds of channels and more of them small than there are places, are passed by others. */
static void case_behind(int number) {
    enum { COUNT = 300 };
    static const size_t sizes[3] = { 300000, 40, 5000 };
    static unsigned char out[300000], in[300000];
    het_transport t = open_default();
    het_request send[COUNT], receive, others[2];
    const int to = (me + 1) % processes, from = (me + processes - 1) % processes;
    int i;
    (void)number;
    fill(out, sizeof out, me, to, 0);
    for (i = 0; i < COUNT; i++) SEND(&t, to, (uint32_t)(1000 + i), out, sizes[i % 3], &send[i]);
    for (i = 0; i < 40; i++) { /* one after the other: all of this passes */
        const size_t size = i % 2 ? 400 : sizeof in;
        SEND(&t, to, 7, out, size, &others[0]);
        RECEIVE(&t, from, 7, in, size, &others[1]);
        finish(&t, &others[0]);
        finish(&t, &others[1]);
        verify(in, size, from, me, 0);
        in[0] ^= 1;
    }
    for (i = COUNT - 1; i >= 0; i--) {
        RECEIVE(&t, from, (uint32_t)(1000 + i), in, sizes[i % 3], &receive);
        finish(&t, &receive);
        verify(in, sizes[i % 3], from, me, 0);
    }
    for (i = 0; i < COUNT; i++) finish(&t, &send[i]);
    close_good(&t);
}

/* Process 0 sends `sent` bytes to the last one (itself if alone), which expects another number; what comes behind is as it should be. */
static void mismatch(const het_transport *t, size_t sent, size_t expected, int late) {
    het_request send[2], receive[2];
    unsigned char *out = (unsigned char *)support_alloc(sent + 1, 1), *in = (unsigned char *)support_alloc(expected + 16, 1);
    unsigned char behind[3] = { 0, 0, 0 };
    size_t i;
    memset(out, 1, sent);
    memset(in, 2, expected + 16);
    if (me == processes - 1) {
        if (late) nap(0.02);
        RECEIVE(t, 0, 9, in, expected, &receive[0]);
        RECEIVE(t, 0, 9, behind, 3, &receive[1]);
    }
    if (me == 0) {
        if (!late) nap(0.02);
        SEND(t, processes - 1, 9, out, sent, &send[0]);
        SEND(t, processes - 1, 9, "abc", 3, &send[1]);
    }
    if (me == processes - 1) {
        CHECK(wait_for(t, &receive[0]) == HET_ERR_TRANSPORT);
        CHECK(wait_for(t, &receive[0]) == HET_ERR_TRANSPORT);
        for (i = expected; i < expected + 16; i++) CHECK(in[i] == 2);
        finish(t, &receive[1]);
        CHECK(memcmp(behind, "abc", 3) == 0);
    }
    if (me == 0) finish(t, &send[0]), finish(t, &send[1]);
    meet(t);
    free(out);
    free(in);
}

static void case_mismatch(int number) {
    static const size_t sizes[][2] = { { 8, 12 }, { 12, 8 }, { 0, 1 }, { 1, 0 }, { 4096, 4097 }, { 4097, 4096 }, { 3, 900000 }, { 900000, 3 },
                                       { 300000, 299999 }, { 299999, 300000 }, { 262144, 524288 }, { 524288, 262144 } };
    het_transport t = open_default();
    char words[80];
    size_t i;
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) mismatch(&t, sizes[i][0], sizes[i][1], number);
    snprintf(words, sizeof words, "from process 0 to process %d, channel 9: 8 bytes were sent, 12 expected", me);
    if (me == processes - 1) CHECK(has(t.iface->last_error(t.self), words)); /* the first error stays */
    close_good(&t);
}

static void messages(void **state) {
    int n;
    (void)state;
    for (n = 1; n <= 4; n++) {
        group(n, case_order, 3); /* a channel takes memory when it is first used */
        group(n, case_many, 0);
        group(n, case_line, 0);
        group(n, case_threads, 0);
    }
    group(1, case_sizes, 5);
    group(2, case_sizes, 5);
    group(3, case_sizes, 4);
    group(9, case_order, 3);
}

static void behind_others(void **state) {
    (void)state;
    group(1, case_behind, 0);
    group(2, case_behind, 0);
    group(3, case_behind, 0);
}

static void lengths(void **state) {
    int n;
    (void)state;
    for (n = 1; n <= 3; n++) {
        group(n, case_mismatch, 0);
        group(n, case_mismatch, 1);
    }
}

/* ---- silence, aborts, ends ---- */

/* The last process beats once and then not for a million seconds. The others' silence stays that of their beats. */
static void case_silence(int number) {
    het_tcp_desc desc = settings();
    het_transport t;
    int p;
    (void)number;
    if (me == processes - 1) desc.heartbeat_seconds = 1e6;
    t = open_with(&desc);
    CHECK(t.iface->silence(t.self, me) <= 0);
    CHECK(isinf(t.iface->silence(t.self, processes)) && isinf(t.iface->silence(t.self, -1)));
    if (me == processes - 1) {
        nap(1.2);
    } else {
        double last = 0, most = 0, begin = now();
        for (;;) {
            const double s = t.iface->silence(t.self, processes - 1);
            CHECK(s >= last); /* grows all the time once the one beat was heard */
            if (now() - begin > 0.4) last = s;
            for (p = 0; p < processes - 1; p++)
                if (t.iface->silence(t.self, p) > most) most = t.iface->silence(t.self, p);
            if (s > 1) break;
            nap(0.01);
        }
        CHECK(most < 0.9); /* eighteen beats */
    }
    meet(&t);
    meet(&t);
    close_good(&t);
}

/* A process that has said goodbye is gone for sure; nothing can come from it, nothing can go to it. */
static void case_goodbye(int number) {
    het_transport t = open_default();
    het_request request[3];
    static unsigned char large[100000];
    (void)number;
    if (me == 0) {
        RECEIVE(&t, processes - 1, 1, large, 10, &request[0]);
        while (!isinf(t.iface->silence(t.self, processes - 1))) nap(0.001);
        CHECK(wait_for(&t, &request[0]) == HET_ERR_TRANSPORT);
        CHECK(has(t.iface->last_error(t.self), "which has closed"));
        RECEIVE(&t, processes - 1, 1, large, 10, &request[1]);
        SEND(&t, processes - 1, 1, large, sizeof large, &request[2]);
        CHECK(wait_for(&t, &request[1]) == HET_ERR_TRANSPORT);
        CHECK(wait_for(&t, &request[2]) == HET_ERR_TRANSPORT);
    }
    close_good(&t);
}

/* From now on, in this process. */
static void fail_call(const char *call, int number, int hold) {
    pthread_mutex_lock(&fault_lock);
    fault_call = call, fault_number = number, fault_at = fault_count = 0, held = hold;
    pthread_cond_broadcast(&fault_turn);
    pthread_mutex_unlock(&fault_lock);
}

/* Until the communication thread sleeps; nobody beats here. */
static heti_tcp *asleep(const het_transport *t) {
    heti_tcp *m = (heti_tcp *)t->self;
    int sleeps = 0;
    while (!sleeps) {
        nap(0.02);
        pthread_mutex_lock(&m->lock);
        sleeps = m->asleep;
        pthread_mutex_unlock(&m->lock);
    }
    return m;
}

/* As finish, but has no turn itself: all is left to the communication thread. */
static void left_alone(const het_transport *t, het_request *request) {
    const double end = now() + 20;
    int32_t done = 0;
    while (!done) {
        CHECK(heti_tcp_look((heti_tcp *)t->self, request, &done) == HET_OK && now() < end);
        nap(1e-3);
    }
}

/* The thread of process 0 was woken, has the turn and stops where it sends: what comes now it has to see before it sleeps again. */
static void stop_thread(const het_transport *t, const void *data, size_t size, het_request *request) {
    heti_tcp *m = asleep(t);
    pthread_mutex_lock(&m->turn);
    SEND(t, 1, 1, data, size, request);
    fail_call(NULL, 0, 1);
    pthread_mutex_unlock(&m->turn);
    pthread_mutex_lock(&fault_lock);
    while (held != 2) pthread_cond_wait(&fault_turn, &fault_lock);
    pthread_mutex_unlock(&fault_lock);
}

static void *abort_it(void *argument) {
    const het_transport *t = (const het_transport *)argument;
    t->iface->abort(t->self, HET_ERR_DEVICE, "over");
    return NULL;
}

/* Process 0 aborts; in case 5 while its thread has the turn. */
static void wake_for_abort(het_transport *t, int number) {
    const double begin = now();
    het_request word;
    pthread_t thread;
    if (me == 0 && number == 5) stop_thread(t, "x", 1, &word);
    if (me == 0) CHECK(pthread_create(&thread, NULL, abort_it, t) == 0);
    while (t->iface->aborted(t->self, NULL, NULL, 0) == HET_OK) nap(1e-3);
    fail_call(NULL, 0, 0);
    if (me == 0) pthread_join(thread, NULL);
    CHECK(now() - begin < 5); /* it waits for 10 */
}

/* What process 0's caller leaves to the thread, which without being woken would sleep until the next beat, in a million seconds: 0: the rest of a
   long message, 1: what a full socket does not take, 2: a message while another has the turn, 3: and one more while the thread has it and was woken
   already, 4, 5: an abort. */
static void case_wake(int number) {
    enum { COUNT = 1 << 22 };
    static unsigned char out[COUNT], in[COUNT];
    const size_t size = number == 0 ? COUNT : 8000;
    het_tcp_desc desc = settings();
    het_transport t;
    het_request longer, word;
    heti_tcp *m;
    desc.heartbeat_seconds = 1e6;
    t = open_with(&desc);
    meet(&t);
    m = asleep(&t);
    if (number > 3) {
        wake_for_abort(&t, number);
    } else if (me == 1) {
        RECEIVE(&t, 0, 1, in, size, &longer);
        SEND(&t, 0, 2, "x", 1, &word); /* behind which process 0 knows of the receive */
        finish(&t, &word);
        finish(&t, &longer);
        verify(in, size, 0, 1, 0);
        if (number == 3) RECEIVE(&t, 0, 3, in, 1, &word), finish(&t, &word);
        SEND(&t, 0, 4, "x", 1, &word);
        finish(&t, &word);
    } else {
        fill(out, size, 0, 1, 0);
        RECEIVE(&t, 1, 2, in, 1, &word);
        finish(&t, &word);
        (void)asleep(&t);
        if (number == 1) fail_call("sendmsg", EAGAIN, 0);
        if (number == 2) pthread_mutex_lock(&m->turn);
        if (number == 3) stop_thread(&t, out, size, &longer);
        else SEND(&t, 1, 1, out, size, &longer);
        if (number == 2) pthread_mutex_unlock(&m->turn);
        if (number == 3) SEND(&t, 1, 3, "x", 1, &word);
        if (number == 3) fail_call(NULL, 0, 0), left_alone(&t, &word);
        left_alone(&t, &longer);
        RECEIVE(&t, 1, 4, in, 1, &word);
        finish(&t, &word);
    }
    close_good(&t);
}

static void wakes(void **state) {
    int number;
    (void)state;
    for (number = 0; number < 6; number++) group(2, case_wake, number);
}

/* What was sent before a process closed still is there. */
static void case_last_words(int number) {
    het_transport t = open_default();
    het_request request[2];
    static unsigned char large[3000000], word[5];
    (void)number;
    if (me == 1) {
        fill(large, sizeof large, 1, 0, 3);
        SEND(&t, 0, 1, "words", 5, &request[0]);
        SEND(&t, 0, 2, large, sizeof large, &request[1]);
    } else if (me == 0) {
        nap(0.1);
        RECEIVE(&t, 1, 2, large, sizeof large, &request[1]);
        finish(&t, &request[1]);
        verify(large, sizeof large, 1, 0, 3);
        while (!isinf(t.iface->silence(t.self, 1))) nap(0.001);
        RECEIVE(&t, 1, 1, word, 5, &request[0]);
        finish(&t, &request[0]);
        CHECK(memcmp(word, "words", 5) == 0);
    }
    close_good(&t);
}

/* Process `who` aborts while messages of all kinds are under way. */
static void case_abort(int who) {
    het_transport t = open_default();
    het_request hopeless[5];
    unsigned char *large = (unsigned char *)support_alloc(1u << 26, 1), small[64];
    int i;
    memset(large, 0, 1u << 26);
    /* nobody sends or receives any of the first four; the fifth is under way */
    RECEIVE(&t, (me + 1) % processes, 1, small, sizeof small, &hopeless[0]);
    SEND(&t, (me + 1) % processes, 2, large, 1u << 22, &hopeless[1]);
    RECEIVE(&t, (me + processes - 1) % processes, 3, large, 1u << 20, &hopeless[2]);
    SEND(&t, (me + 1) % processes, 4, "eager", 5, &hopeless[3]);
    if (me == 0) SEND(&t, processes - 1, 5, large, 1u << 26, &hopeless[4]);
    else RECEIVE(&t, 0, 5, large, 1u << 26, &hopeless[4]);
    abort_by(&t, who);
    for (i = 0; i < 5; i++) (void)wait_for(&t, &hopeless[i]);
    CHECK(wait_for(&t, &hopeless[0]) == HET_ERR_TRANSPORT);
    CHECK(wait_for(&t, &hopeless[2]) == HET_ERR_TRANSPORT);
    CHECK(has(t.iface->last_error(t.self), "aborted: process ran out of tape"));
    memset(large, 0xEE, 1u << 26);
    free(large); /* the messages are over: nothing touches it any more */
    close_good(&t);
}

/* Process 0 aborts while a message is half written: process 1 gets it as it is, or an error. */
static void case_half(int number) {
    enum { COUNT = HETI_TCP_CHUNK };
    static unsigned char out[COUNT], in[COUNT];
    const int small = 1;
    het_transport t = open_default();
    heti_tcp *m = (heti_tcp *)t.self;
    het_request request, word;
    int left = 0;
    (void)number;
    if (me == 1) {
        RECEIVE(&t, 0, 1, in, COUNT, &request);
        SEND(&t, 0, 2, "x", 1, &word); /* behind which process 0 knows of the receive */
        finish(&t, &word);
        pthread_mutex_lock(&m->turn); /* nothing is read */
        nap(0.5);
        pthread_mutex_unlock(&m->turn);
        if (wait_for(&t, &request) == HET_OK) verify(in, COUNT, 0, 1, 0);
    } else {
        CHECK(setsockopt(m->peer[1].socket, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
        fill(out, COUNT, 0, 1, 0);
        RECEIVE(&t, 1, 2, in, 1, &word);
        finish(&t, &word);
        nap(0.1);
        SEND(&t, 1, 1, out, COUNT, &request);
        nap(0.1);
        pthread_mutex_lock(&m->turn);
        left = m->peer[1].chunk_left > 0;
        pthread_mutex_unlock(&m->turn);
        t.iface->abort(t.self, HET_ERR_DEVICE, "over");
        (void)wait_for(&t, &request);
        memset(out, 0xEE, COUNT); /* nothing reads it any more */
        if (!left) fprintf(stderr, "# a message of %d bytes was written at once\n", COUNT);
    }
    while (t.iface->aborted(t.self, NULL, NULL, 0) == HET_OK) nap(1e-3);
    close_good(&t);
}

/* Closing with requests outstanding, without an abort. */
static void case_close_busy(int number) {
    het_transport t = open_default();
    het_request request[4];
    unsigned char *large = (unsigned char *)support_alloc(1u << 22, 1), small[8];
    (void)number;
    memset(large, 3, 1u << 22);
    RECEIVE(&t, (me + 1) % processes, 1, small, sizeof small, &request[0]);
    SEND(&t, (me + 1) % processes, 2, large, 1u << 22, &request[1]);
    SEND(&t, (me + 1) % processes, 2, large, 3, &request[2]);
    if (me % 2 == 0) RECEIVE(&t, (me + processes - 1) % processes, 2, large, 1u << 22, &request[3]);
    close_good(&t);
    free(large);
}

/* The last process dies by SIGKILL, in the midst of a message to and from process 0; process 1 does not wait for it, and hears of it by an abort. */
static void case_kill(int number) {
    het_transport t = open_default();
    het_request request[3];
    unsigned char *large = (unsigned char *)support_alloc(1u << 26, 1);
    het_error error;
    char text[300], words[40];
    int64_t from = -1;
    (void)number;
    meet(&t);
    snprintf(words, sizeof words, "process %d (127.0.0.1:", processes - 1);
    if (me == processes - 1) {
        SEND(&t, 0, 1, large, 1u << 26, &request[0]);
        nap(0.01);
        raise(SIGKILL);
    } else if (me == 0) {
        RECEIVE(&t, processes - 1, 1, large, 1u << 26, &request[0]);
        RECEIVE(&t, processes - 1, 1, large, 1, &request[1]);
        SEND(&t, processes - 1, 2, large, 1u << 26, &request[2]);
        (void)wait_for(&t, &request[0]); /* it may have arrived */
        CHECK(wait_for(&t, &request[1]) == HET_ERR_TRANSPORT);
        CHECK(wait_for(&t, &request[2]) == HET_ERR_TRANSPORT);
        CHECK(isinf(t.iface->silence(t.self, processes - 1)));
        CHECK(has(t.iface->last_error(t.self), words) && has(t.iface->last_error(t.self), "is gone: "));
        t.iface->abort(t.self, HET_ERR_TRANSPORT, t.iface->last_error(t.self));
    } else {
        while (t.iface->aborted(t.self, &from, text, sizeof text) == HET_OK) nap(0.001);
        CHECK(from == 0 && has(text, "is gone: "));
    }
    CHECK(het_tcp_close(&t, &error) == HET_ERR_TRANSPORT);
    CHECK(has(error.text, "no goodbye of 1 of") && has(error.text, "is gone") && live == 0);
    free(large);
}

/* The last process stops: the others' close gives up, after an abort (1) or after silence (0). Process 0 ends the stopped one. */
static void case_stop(int aborts) {
    static unsigned char large[1 << 22], in[64];
    het_tcp_desc desc = settings();
    het_transport t;
    het_request request[2], number;
    het_error error;
    int32_t victim = getpid();
    int started[2];
    const double begin = now();
    if (aborts) desc.abort_seconds = 0.7;
    else desc.dead_seconds = 0.7;
    t = open_with(&desc);
    if (me == processes - 1) {
        SEND(&t, 0, 3, &victim, sizeof victim, &number);
        finish(&t, &number);
        meet(&t);
        raise(SIGSTOP);
        _exit(4);
    }
    if (me == 0) {
        RECEIVE(&t, processes - 1, 3, &victim, sizeof victim, &number);
        finish(&t, &number);
    }
    meet(&t);
    nap(0.05);
    started[0] = t.iface->isend(t.self, processes - 1, 2, large, sizeof large, &request[0]) == HET_OK;
    started[1] = t.iface->irecv(t.self, processes - 1, 2, in, sizeof in, &request[1]) == HET_OK;
    if (aborts) {
        if (me == 0) t.iface->abort(t.self, HET_ERR_DEVICE, "lost");
        while (t.iface->aborted(t.self, NULL, NULL, 0) == HET_OK) nap(0.001);
        CHECK(!started[0] || wait_for(&t, &request[0]) == HET_ERR_TRANSPORT);
        CHECK(!started[1] || wait_for(&t, &request[1]) == HET_ERR_TRANSPORT);
    }
    CHECK(het_tcp_close(&t, &error) == HET_ERR_TRANSPORT);
    CHECK(has(error.text, aborts ? "aborted: lost" : "silent for more than 0.7 seconds") && now() - begin < 20 && live == 0);
    if (me == 0) kill(victim, SIGKILL);
}

/* Process 1 aborts and is gone, by a reset. Process 0, which had no time to read of it, writes first: it knows why all the same. */
static void case_reason(int number) {
    const struct linger at_once = { 1, 0 };
    het_tcp_desc desc = settings();
    het_transport t;
    het_request request;
    het_error error;
    struct pollfd f;
    heti_tcp *m;
    (void)number;
    desc.abort_seconds = 0.1;
    t = open_with(&desc);
    m = (heti_tcp *)t.self;
    meet(&t);
    if (me == 1) {
        nap(0.2);
        CHECK(setsockopt(m->peer[0].socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
        t.iface->abort(t.self, HET_ERR_DEVICE, "lost");
        _exit(0);
    }
    pthread_mutex_lock(&m->turn);
    for (f.revents = 0; (f.revents & POLLERR) == 0 && m->peer[1].socket >= 0; nap(1e-3)) {
        heti_tcp_watch(&f, m->peer[1].socket, 0);
        (void)poll(&f, 1, 0);
    }
    SEND(&t, 1, 1, "x", 1, &request);
    (void)heti_tcp_move(m, 0, HETI_TCP_HELP);
    pthread_mutex_unlock(&m->turn);
    (void)wait_for(&t, &request);
    CHECK(t.iface->aborted(t.self, NULL, NULL, 0) == HET_ERR_DEVICE && has(t.iface->last_error(t.self), "process 1 aborted: lost"));
    CHECK(het_tcp_close(&t, &error) == HET_ERR_TRANSPORT && live == 0);
}

static void silence(void **state) {
    (void)state;
    group(3, case_silence, 0);
    group(2, case_goodbye, 0);
    group(3, case_goodbye, 0);
    group(2, case_last_words, 0);
}

static void aborts(void **state) {
    int n, who;
    (void)state;
    for (n = 1; n <= 4; n++) {
        for (who = 0; who < n; who++) group(n, case_abort, who);
        group(n, case_abort_all, 0);
        group(n, case_close_busy, 0);
    }
    group(2, case_half, 0);
}

static void deaths(void **state) {
    int n;
    (void)state;
    for (n = 2; n <= 4; n++) group_but(n, case_kill, 0, n - 1);
    group_but(2, case_stop, 0, 1);
    group_but(3, case_stop, 0, 2);
    group_but(2, case_stop, 1, 1);
    group_but(3, case_stop, 1, 2);
    group(2, case_reason, 0);
}

static void cycles(void **state) {
    (void)state;
    group(1, case_cycles, 20);
    group(3, case_cycles, 20);
}

/* ---- opening ---- */

static void refused(const het_tcp_desc *desc, het_result code, const char *words) {
    het_transport t;
    het_error error;
    char copy[200], *word;
    het_result result;
    error.text[0] = 0;
    memset(&t, 0xCD, sizeof t);
    result = het_tcp_open(desc, &t, &error);
    if (result != code) fprintf(stderr, "process %d: result %d, not %d: %s\n", me, result, code, error.text);
    CHECK(result == code && error.code == code);
    snprintf(copy, sizeof copy, "%s", words);
    for (word = strtok(copy, "|"); word != NULL; word = strtok(NULL, "|")) CHECK(has(error.text, word));
    CHECK(t.self == NULL && t.iface == NULL && live == 0);
}

static const heti_tcp nobody; /* waits as long as it is told to */

/* A connection to the meeting port, which says `size` bytes. */
static int stranger(const void *data, size_t size) {
    struct sockaddr_in address;
    int i, s = -1;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)meeting_port);
    for (i = 0; i < 2000; i++) {
        s = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(s, (struct sockaddr *)(void *)&address, sizeof address) == 0) break;
        close(s);
        s = -1;
        nap(0.005);
    }
    CHECK(s >= 0);
    if (size > 0) CHECK(send(s, data, size, MSG_NOSIGNAL) == (ssize_t)size);
    return s;
}

/* One that knows what there is to know without a secret, as process number `process`. */
static heti_tcp *pretender(int process, const char *secret) {
    static heti_tcp one;
    memset(&one, 0, sizeof one);
    one.process = process;
    heti_tcp_hmac("hetrain-tcp", 11, secret, strlen(secret), one.secret);
    heti_tcp_make_key(&one, NULL);
    return &one;
}

/* A stranger that proves to be a process, and says a hello. */
static int proven(int process, uint64_t version, uint64_t count, uint64_t number, uint64_t run) {
    unsigned char hello[HETI_TCP_HELLO];
    heti_tcp_why why;
    const int s = stranger(NULL, 0);
    CHECK(heti_tcp_meet(pretender(process, ""), s, 0, now() + 20, &why) == HETI_TCP_WELCOME);
    memset(hello, 0, sizeof hello);
    memcpy(hello, "hetrtcp\n", 8);
    heti_tcp_put(hello + 8, 4, version);
    heti_tcp_put(hello + 12, 4, count);
    heti_tcp_put(hello + 16, 4, number);
    heti_tcp_put(hello + 24, 8, run);
    CHECK(send(s, hello, sizeof hello, MSG_NOSIGNAL) == (ssize_t)sizeof hello);
    return s;
}

/* The answer has the kind and the words; kind 0: the connection ends. */
static void answered(int s, int kind, const char *words) {
    heti_tcp_why text;
    CHECK(heti_tcp_hear_text(&nobody, s, &text, now() + 20) == kind && has(text.text, words));
    close(s);
}

/* Process 1's knock, and the number that answers it. */
static int knocks(heti_tcp_guest *g) {
    const int s = stranger(NULL, 0);
    size_t size = 0;
    memset(g->knock, 0, sizeof g->knock);
    memcpy(g->knock, "hetrtcp\n", 8);
    heti_tcp_put(g->knock + 8, 4, HETI_TCP_VERSION);
    heti_tcp_put(g->knock + 12, 4, 1);
    CHECK(send(s, g->knock, sizeof g->knock, MSG_NOSIGNAL) == (ssize_t)sizeof g->knock);
    CHECK(heti_tcp_hear(&nobody, s, g->number, sizeof g->number, &size, now() + 20) == HETI_TCP_NUMBER && size == sizeof g->number);
    return s;
}

/* A proof that is wrong in one thing is none: the connection ends without an answer. */
static void wrong_proofs(void) {
    static const char *const secrets[] = { "a secret", "", "", "" };
    unsigned char proof[HETI_TCP_PROOF];
    heti_tcp_guest g;
    size_t i;
    for (i = 0; i < sizeof secrets / sizeof *secrets; i++) { /* another secret, another role, as another process, to another process */
        const int s = knocks(&g);
        heti_tcp_prove(pretender(1, secrets[i]), i != 1, i == 2 ? 2 : 1, i == 3 ? 1 : 0, g.knock + 24, g.number, proof);
        CHECK(send(s, proof, sizeof proof, MSG_NOSIGNAL) == (ssize_t)sizeof proof);
        answered(s, 0, "the connection ended");
    }
}

static int told; /* lines about connections that were dropped */
static char told_text[2000];
static void tell(void *user, het_log_level level, het_result code, const char *text) {
    (void)user, (void)level, (void)code;
    told++;
    snprintf(told_text + strlen(told_text), sizeof told_text - strlen(told_text), "%s\n", text);
}

/* The last process sends strangers before it comes itself: `many` that say nothing, all at once, and some that say something wrong. */
static void case_strangers(int many) {
    static unsigned char garbage[100000];
    const uint64_t run = heti_tcp_mix(0xCBF29CE484222325u, "", 0), count_of = (uint64_t)processes;
    het_tcp_desc desc = settings();
    unsigned char knock[64];
    char over[120];
    het_transport t;
    heti_tcp_guest coming;
    heti_tcp_why why;
    int s[700], i, count = 0, knocked = -1;
    const double begin = now();
    desc.logger.log = tell;
    snprintf(over, sizeof over, "%s/over", folder);
    while (me > 0 && me < processes - 1 && access(over, F_OK) != 0) nap(0.01); /* so that some are always missing */
    if (me == processes - 1) {
        for (i = 0; i < many; i++) {
            if (i == many - 2 * HETI_TCP_GUESTS) knocked = knocks(&coming);
            s[count++] = stranger(NULL, 0);
        }
        if (knocked >= 0) { /* one that has begun does not give way to those who say nothing */
            unsigned char proof[HETI_TCP_PROOF];
            size_t size = 0;
            heti_tcp_prove(pretender(1, ""), 1, 1, 0, coming.knock + 24, coming.number, proof);
            CHECK(send(knocked, proof, sizeof proof, MSG_NOSIGNAL) == (ssize_t)sizeof proof);
            CHECK(heti_tcp_hear(&nobody, knocked, proof, sizeof proof, &size, now() + 20) == HETI_TCP_PROVED);
            close(knocked);
        }
        fill(garbage, sizeof garbage, 1, 2, 3);
        s[count++] = stranger(garbage, sizeof garbage);
        s[count++] = stranger("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 35);
        memset(knock, 0, sizeof knock);
        memcpy(knock, "hetrtcp\n", 8);
        heti_tcp_put(knock + 8, 4, 1);
        s[count++] = stranger(knock, 30); /* half a knock */
        answered(stranger(knock, 64), 0, "the connection ended"); /* of another version */
        wrong_proofs();
        answered(proven(1, 2, count_of, 2, run), 0, "the connection ended"); /* which then says to be another */
        answered(proven(1, 3, count_of, 1, run), HETI_TCP_REFUSED, "speaks version 2, not 3");
        answered(proven(1, 2, count_of, 1, run + 1), HETI_TCP_LATER, "another run");
        answered(proven(1, 2, 77, 1, run), HETI_TCP_REFUSED, "not of 77");
        answered(proven(processes, 2, count_of, count_of, run), HETI_TCP_REFUSED, "cannot come to process 0");
        answered(proven(0, 2, count_of, 0, run), HETI_TCP_REFUSED, "process 0 of");
        if (processes > 2) {
            s[count] = proven(me, 2, count_of, (uint64_t)me, run); /* one that knows all and pretends to be this process, and leaves */
            CHECK(heti_tcp_hear_text(&nobody, s[count], &why, now() + 20) == HETI_TCP_WELCOME);
            answered(proven(me, 2, count_of, (uint64_t)me, run), HETI_TCP_LATER, "already");
            close(s[count]);
        }
        close(open(over, O_CREAT | O_WRONLY, 0644));
    }
    t = open_with(&desc);
    if (me == 0)
        CHECK(told >= 7 && told < 40 && has(told_text, "from 127.0.0.1:") &&
              has(told_text, many > 100 ? "gave way" : "whose proof of the secret is wrong"));
    CHECK(now() - begin < 25);
    for (i = 0; i < count; i++) close(s[i]);
    meet(&t);
    close_good(&t);
    if (me == 0) unlink(over);
}

static void strangers(void **state) {
    int n;
    (void)state;
    for (n = 2; n <= 3; n++) {
        meeting_port = free_port();
        group(n, case_strangers, 10);
        meeting_port = free_port();
        group(n, case_strangers, 600);
    }
}

/* ---- the secret ---- */

static void hash_is(const void *data, size_t size, int times, const char *expected) {
    unsigned char hash[HETI_TCP_PROOF];
    char text[2 * HETI_TCP_PROOF + 1];
    heti_tcp_sha s;
    int i;
    heti_tcp_sha_start(&s);
    for (i = 0; i < times; i++) heti_tcp_sha_add(&s, data, size);
    heti_tcp_sha_end(&s, hash);
    for (i = 0; i < HETI_TCP_PROOF; i++) snprintf(text + 2 * i, 3, "%02x", hash[i]);
    assert_string_equal(text, expected);
}

static void mac_is(const void *key, size_t key_size, const void *data, size_t size, const char *expected) {
    unsigned char mac[HETI_TCP_PROOF];
    char text[2 * HETI_TCP_PROOF + 1];
    int i;
    heti_tcp_hmac(key, key_size, data, size, mac);
    for (i = 0; i < HETI_TCP_PROOF; i++) snprintf(text + 2 * i, 3, "%02x", mac[i]);
    text[strlen(expected)] = 0; /* one is cut to 128 bits */
    assert_string_equal(text, expected);
}

/* The examples of FIPS 180-4 (as NIST gives them) and the test cases of RFC 4231. */
static void vectors(void **state) {
    unsigned char a[131], b[50], c[25];
    const char *const larger =
        "This is a test using a larger than block-size key and a larger than block-size data. The key needs to be hashed before being "
                               "used by the HMAC algorithm.";
    int i;
    (void)state;
    hash_is("", 0, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    hash_is("abc", 3, 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    hash_is("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, 1, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    hash_is("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu", 112, 1,
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    hash_is("aaaaaaaaaa", 10, 100000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    memset(a, 0x0B, 20);
    mac_is(a, 20, "Hi There", 8, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    mac_is("Jefe", 4, "what do ya want for nothing?", 28, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(a, 0xAA, sizeof a), memset(b, 0xDD, sizeof b);
    mac_is(a, 20, b, 50, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    for (i = 0; i < 25; i++) c[i] = (unsigned char)(i + 1);
    memset(b, 0xCD, sizeof b);
    mac_is(c, 25, b, 50, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
    memset(b, 0x0C, sizeof b);
    mac_is(b, 20, "Test With Truncation", 20, "a3b6167473100ee06e0c796c2955552b");
    mac_is(a, 131, "Test Using Larger Than Block-Size Key - Hash Key First", 54, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    mac_is(a, 131, larger, strlen(larger), "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

/* A proof holds for one role, two processes and two numbers; a byte of it or of the secret makes another. */
static void proofs(void **state) {
    unsigned char n[3][HETI_TCP_PROOF], proof[7][HETI_TCP_PROOF];
    const heti_tcp *m = pretender(1, "the secret");
    int i, k;
    (void)state;
    for (i = 0; i < 3; i++) assert_true(heti_tcp_random(n[i], sizeof n[i]));
    assert_false(heti_tcp_same(n[0], n[1], sizeof n[0]));
    heti_tcp_prove(m, 1, 1, 0, n[0], n[1], proof[0]);
    heti_tcp_prove(m, 0, 1, 0, n[0], n[1], proof[1]);
    heti_tcp_prove(m, 1, 0, 1, n[0], n[1], proof[2]);
    heti_tcp_prove(m, 1, 2, 0, n[0], n[1], proof[3]);
    heti_tcp_prove(m, 1, 1, 0, n[1], n[0], proof[4]);
    heti_tcp_prove(m, 1, 1, 0, n[0], n[2], proof[5]);
    heti_tcp_prove(pretender(1, "the secreT"), 1, 1, 0, n[0], n[1], proof[6]);
    for (i = 0; i < 7; i++)
        for (k = 0; k < i; k++) assert_false(heti_tcp_same(proof[i], proof[k], HETI_TCP_PROOF));
    heti_tcp_prove(pretender(1, "the secret"), 1, 1, 0, n[0], n[1], proof[1]);
    assert_true(heti_tcp_same(proof[0], proof[1], HETI_TCP_PROOF));
    for (i = 0; i < HETI_TCP_PROOF; i++) {
        proof[1][i] ^= 0x10;
        assert_false(heti_tcp_same(proof[0], proof[1], HETI_TCP_PROOF));
        proof[1][i] ^= 0x10;
    }
}

/* An address of this machine that is not a loopback one; "" where it has none. */
static void own_address(char *text, size_t capacity) {
    struct ifaddrs *all = NULL, *a;
    text[0] = 0;
    if (getifaddrs(&all) != 0) return;
    for (a = all; a != NULL; a = a->ifa_next)
        if (a->ifa_addr != NULL && a->ifa_addr->sa_family == AF_INET && strncmp(a->ifa_name, "lo", 2) != 0)
            getnameinfo(a->ifa_addr, sizeof(struct sockaddr_in), text, (socklen_t)capacity, NULL, 0, NI_NUMERICHOST);
    freeifaddrs(all);
}

static void case_secret(int number) {
    static const char *const secrets[] = { "0123456789abcdef", "0123456789abcdeF" };
    char host[64];
    het_tcp_desc desc = settings();
    const double begin = now();
    het_transport t;
    own_address(host, sizeof host);
    if (number < 3) desc.secret = secrets[0], desc.secret_size = 16;
    if (number == 1 && me == 1) desc.secret = secrets[1];
    if (number == 2 && me == 1) desc.secret_size = 0;
    if (number == 5) desc.insecure = 1;
    if (number == 3 || ((number == 0 || number == 5) && host[0] != 0)) desc.host = number == 3 ? "192.0.2.7" : host;
    if (number == 4) desc.host = "localhost";
    desc.logger.log = tell;
    if (number == 0 || number == 4 || number == 5) { /* with one secret, near by, or as one likes */
        t = open_with(&desc);
        meet(&t);
        close_good(&t);
        return;
    }
    desc.open_seconds = 4;
    if (number == 3) refused(&desc, HET_ERR_INVALID, "192.0.2.7 is not a loopback address|secret|insecure");
    else if (me == 0) refused(&desc, HET_ERR_TRANSPORT, "1 of 2 processes did not come to process 0: 1");
    else refused(&desc, HET_ERR_TRANSPORT, "time is up|takes no proof of this secret");
    if (number < 3 && me == 0) CHECK(told > 0 && has(told_text, "whose proof of the secret is wrong"));
    CHECK(now() - begin < (number == 3 ? 1 : 20));
}

static void secrets(void **state) {
    int number;
    (void)state;
    for (number = 0; number < 6; number++) {
        meeting_port = free_port();
        group(number == 0 ? 4 : 2, case_secret, number);
    }
}

/* Process 1 meets one that sends its own proof back, and one that knows nothing: neither becomes process 0. */
static void case_reflected(int number) {
    unsigned char said[HETI_TCP_HELLO], n[HETI_TCP_PROOF];
    struct sockaddr_in address;
    het_tcp_desc desc = settings();
    int listener, s, on = 1, i;
    desc.secret = "0123456789abcdef", desc.secret_size = 16;
    desc.open_seconds = 1.5;
    if (me == 1) {
        refused(&desc, HET_ERR_TRANSPORT, number ? "time is up|takes no proof" : "time is up|its proof of the secret is wrong");
        return;
    }
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)meeting_port);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    CHECK(bind(listener, (struct sockaddr *)(void *)&address, sizeof address) == 0 && listen(listener, 5) == 0);
    CHECK(fcntl(listener, F_SETFL, O_NONBLOCK) == 0);
    for (i = 0; i < 600; i++, nap(0.005)) { /* longer than process 1 tries */
        s = accept(listener, NULL, NULL);
        if (s < 0) continue;
        memset(n, 7, sizeof n);
        CHECK(heti_tcp_move_all(&nobody, s, said, NULL, sizeof said, now() + 5) && memcmp(said, "hetrtcp\n", 8) == 0);
        CHECK(heti_tcp_answer(&nobody, s, HETI_TCP_NUMBER, n, sizeof n, now() + 5));
        if (heti_tcp_move_all(&nobody, s, said, NULL, HETI_TCP_PROOF, now() + 5))
            (void)heti_tcp_answer(&nobody, s, number ? HETI_TCP_WELCOME : HETI_TCP_PROVED, said, number ? 0 : HETI_TCP_PROOF, now() + 5);
        close(s);
    }
    close(listener);
}

static void reflected(void **state) {
    int number;
    (void)state;
    for (number = 0; number < 2; number++) {
        meeting_port = free_port();
        group(2, case_reflected, number);
    }
}

static void case_taken(int number) {
    het_tcp_desc desc = settings();
    char words[60];
    struct sockaddr_in address;
    int s = -1, on = 1;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)meeting_port);
    if (me == 0) {
        s = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        CHECK(bind(s, (struct sockaddr *)(void *)&address, sizeof address) == 0 && listen(s, 5) == 0);
    }
    if (number == 0) {
        snprintf(words, sizeof words, "cannot listen|port %d|%s", meeting_port, strerror(EADDRINUSE));
        refused(&desc, HET_ERR_TRANSPORT, words);
    } else {
        het_transport t;
        desc.ports = 20; /* the first one belongs to somebody who says nothing, or not what he should */
        t = open_with(&desc);
        meet(&t);
        close_good(&t);
    }
    close(s);
}

static void taken_port(void **state) {
    (void)state;
    meeting_port = free_port();
    group(1, case_taken, 1); /* alone, it needs none */
    {
        const pid_t child = start(2, 0, case_taken, 0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    meeting_port = free_port();
    group(3, case_taken, 1);
}

static void case_absent(int number) {
    het_tcp_desc desc = settings();
    const double begin = now();
    char words[60];
    desc.open_seconds = 0.6;
    if (number == 0) {
        snprintf(words, sizeof words, "time is up|127.0.0.1 port %d|%s", meeting_port, strerror(ECONNREFUSED));
        refused(&desc, HET_ERR_TRANSPORT, me == 0 ? "time is up, 3 of 4 processes did not come to process 0: 1, 2, 3" : words);
    } else { /* 3 is missing */
        desc.open_seconds = me == 0 ? 0.6 : 20;
        refused(&desc, HET_ERR_TRANSPORT,
                me == 0 ? "time is up, 1 of 4 processes|process 0: 3" : "process 0 has given up|did not come to process 0: 3");
    }
    CHECK(now() - begin < 10);
}

static void case_differ(int number) {
    het_tcp_desc desc = settings();
    desc.open_seconds = 1;
    if (number == 0) {
        desc.processes = me == 0 ? 3 : 4;
        refused(&desc, HET_ERR_TRANSPORT, me == 0 ? "2 of 3 processes did not come" : "refused: process 0 is one of 3, not of 4");
    } else {
        desc.run = me == 0 ? "blue" : "red";
        refused(&desc, HET_ERR_TRANSPORT, me == 0 ? "did not come to process 0: 1" : "time is up|of another run");
    }
}

static int is_stopped(void *user) { return now() > *(const double *)user; }

/* A wait that is ended from outside: process 0's for 1 and 3, 1's for what process 0 has to say when all are there, 1's for a process 0 that is not
   there, 1's for one that says nothing. */
static void case_stopped(int number) {
    het_tcp_desc desc = settings();
    double stop = now() + (me == 0 ? 1 : 0.4);
    struct sockaddr_in address;
    int listener = -1;
    desc.processes = 4, desc.open_seconds = 60;
    if (me < 2) desc.stopped = is_stopped, desc.user = &stop;
    if (number == 2) {
        memset(&address, 0, sizeof address);
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons((uint16_t)meeting_port);
        listener = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(bind(listener, (struct sockaddr *)(void *)&address, sizeof address) == 0 && listen(listener, 5) == 0);
    }
    if (me == 2) refused(&desc, HET_ERR_TRANSPORT, "process 0 has given up|stopped, 2 of 4 processes did not come to process 0: 1, 3");
    else if (me == 0) refused(&desc, HET_ERR_CANCELLED, "stopped, 2 of 4 processes did not come to process 0: 1, 3");
    else if (number == 0) refused(&desc, HET_ERR_CANCELLED, "process 0 does not say where the others are: Operation canceled");
    else refused(&desc, HET_ERR_CANCELLED, "stopped, process 0 at 127.0.0.1 port");
    CHECK(me == 2 || (now() > stop && now() < stop + 1));
    if (listener >= 0) close(listener);
}

/* poll takes no more descriptors than a process may have. */
static void case_few_files(int number) {
    het_tcp_desc desc = settings();
    struct rlimit files;
    (void)number;
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = 64;
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    refused(&desc, HET_ERR_TRANSPORT, "2 processes take up to 67 open files|may have 64 (ulimit -n)");
}

/* Of four processes 2 comes to 1, which waits for 3 too, leaves before it has heard the answer, and comes again; or time is up before; or 3 is ready
   and leaves while 2 is still awaited. */
static void case_again(int number) {
    const uint64_t run = heti_tcp_mix(0xCBF29CE484222325u, "", 0);
    het_tcp_desc desc = settings();
    unsigned char table[1000];
    heti_tcp *self;
    heti_tcp_why why;
    size_t size = 0;
    int first[2], s, i;
    const char *words = number != 1 ? "failed: the connection ended" : "time is up, 3 of 4 processes have not connected to the others: 1, 2, 3";
    desc.processes = 4;
    if (me == 0 && number > 0) desc.open_seconds = 1.5;
    if (me < 2) {
        refused(&desc, HET_ERR_TRANSPORT, words);
        return;
    }
    for (i = 0; i < 2; i++) {
        first[i] = proven(2 + i, HETI_TCP_VERSION, 4, (uint64_t)(2 + i), run);
        CHECK(heti_tcp_hear_text(&nobody, first[i], &why, now() + 20) == HETI_TCP_WELCOME);
    }
    CHECK(heti_tcp_hear(&nobody, first[0], table, sizeof table, &size, now() + 20) == HETI_TCP_TABLE && size == 8 + 4 * HETI_TCP_ENTRY);
    meeting_port = (int)heti_tcp_get(table + 8 + HETI_TCP_ENTRY + 2, 2);
    self = pretender(2, "");
    self->processes = 4, self->run = run, self->session = heti_tcp_get(table, 8), self->listener = -1;
    for (i = 0; i < 3 && number == 0; i++) {
        s = stranger(NULL, 0);
        CHECK(heti_tcp_greet(self, s, 1, now() + 20, &why) == HETI_TCP_WELCOME);
        close(s);
    }
    CHECK(heti_tcp_hear(&nobody, first[1], table, sizeof table, &size, now() + 20) == HETI_TCP_TABLE); /* before it leaves */
    if (number == 2) CHECK(heti_tcp_answer(&nobody, first[1], HETI_TCP_READY, NULL, 0, now() + 20));
    if (number == 2) close(first[1]);
    if (number > 0) answered(first[0], HETI_TCP_FAILED, words);
    else close(first[0]);
    if (number < 2) close(first[1]);
}

/* Process 2 tries to come to 1, which is nowhere and leaves: it says what process 0 says, not that nobody is there. */
static void case_nowhere(int number) {
    const uint64_t run = heti_tcp_mix(0xCBF29CE484222325u, "", 0);
    het_tcp_desc desc = settings();
    unsigned char table[1000];
    heti_tcp_why why;
    size_t size = 0;
    int s;
    (void)number;
    if (me != 1) {
        refused(&desc, HET_ERR_TRANSPORT, me == 0 ? "process 1 failed: the connection ended" : "process 0 has given up: |process 1 failed: the");
        return;
    }
    s = proven(1, HETI_TCP_VERSION, 3, 1, run);
    CHECK(heti_tcp_hear_text(&nobody, s, &why, now() + 20) == HETI_TCP_WELCOME);
    CHECK(heti_tcp_hear(&nobody, s, table, sizeof table, &size, now() + 20) == HETI_TCP_TABLE);
    nap(0.3);
    close(s);
}

static void absent(void **state) {
    pid_t child[3];
    int i, status, wrong = 0;
    (void)state;
    meeting_port = free_port();
    for (i = 0; i < 2; i++) { /* each alone in its time */
        child[0] = start(4, i, case_absent, 0);
        waitpid(child[0], &status, 0);
        wrong |= status;
    }
    meeting_port = free_port();
    for (i = 0; i < 3; i++) child[i] = start(4, i, case_absent, 1);
    for (i = 0; i < 3; i++) {
        waitpid(child[i], &status, 0);
        wrong |= status;
    }
    assert_int_equal(wrong, 0);
    meeting_port = free_port();
    group(2, case_differ, 0);
    group(2, case_differ, 1);
    group(2, case_few_files, 0);
    group(3, case_stopped, 0);
    for (i = 1; i < 3; i++) {
        meeting_port = free_port();
        child[0] = start(4, 1, case_stopped, i);
        waitpid(child[0], &status, 0);
        assert_int_equal(status, 0);
    }
    meeting_port = free_port();
    group(3, case_again, 0);
    group(3, case_again, 1);
    group(3, case_again, 2);
    group(3, case_nowhere, 0);
}

static void write_file(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(path, 0600), 0);
}

static void case_late(int number) {
    het_transport t;
    if (me == 0) nap(0.3); /* the others meet the old file */
    (void)number;
    t = open_default();
    CHECK(access(meeting, F_OK) != 0); /* read by all, and removed */
    meet(&t);
    close_good(&t);
}

/* The file while process 1 is awaited: its owner's alone, with a secret that no other file has. */
static void case_file(int number) {
    char text[2][HETI_TCP_FILE];
    heti_tcp_why why;
    unsigned char secret[2][HETI_TCP_PROOF];
    het_transport t;
    struct stat status;
    uint64_t token[2];
    int i;
    (void)number;
    for (i = 0; i < 2; i++) {
        while (me == 1 && !heti_tcp_read_file(meeting, text[i], &token[i], secret[i], &why)) nap(0.001);
        if (me == 1) CHECK(stat(meeting, &status) == 0 && (status.st_mode & 0777) == 0600 && status.st_uid == geteuid());
        t = open_default();
        meet(&t);
        close_good(&t);
    }
    if (me == 1) CHECK(token[0] != token[1] && !heti_tcp_same(secret[0], secret[1], HETI_TCP_PROOF) && strcmp(text[0], text[1]) != 0);
}

static void case_no_folder(int number) {
    het_tcp_desc desc = settings();
    (void)number;
    desc.file = "/nowhere/at/all";
    desc.open_seconds = 0.3;
    refused(&desc, HET_ERR_TRANSPORT, me == 0 ? "file /nowhere/at/all|No such" : "time is up|file /nowhere/at/all|No such");
}

/* Process 1 reads of two addresses in its file: 0: at the first somebody says nothing, and where process 1 listens has to do with the second;
   1: at the first process 0 takes no proof of its secret, at the second is nobody. */
static void case_two_addresses(int number) {
    char text[2 * HETI_TCP_FILE], copy[120], host[64] = "127.0.0.1", *line;
    heti_tcp_why why;
    unsigned char secret[HETI_TCP_PROOF];
    uint64_t token;
    het_tcp_desc desc = settings();
    het_transport t;
    const int other = free_port();
    int s = -1;
    snprintf(copy, sizeof copy, "%s/copy", folder);
    desc.host = "127.0.0.1";
    if (number == 1) desc.open_seconds = 4, desc.secret = "0123456789abcdef", desc.secret_size = me == 0 ? 16 : 15;
    if (me == 1) {
        struct sockaddr_in address;
        memset(&address, 0, sizeof address);
        address.sin_family = AF_INET;
        address.sin_port = htons((uint16_t)other);
        if (number == 0) own_address(host, sizeof host);
        CHECK(inet_pton(AF_INET, host, &address.sin_addr) == 1);
        s = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(number == 1 || (bind(s, (struct sockaddr *)(void *)&address, sizeof address) == 0 && listen(s, 5) == 0));
        while (!heti_tcp_read_file(meeting, text, &token, secret, &why)) nap(0.001);
        line = strchr(text, '\n') + 1;
        if (number == 1) line += strlen(line);
        memmove(line + 32, line, strlen(line) + 1);
        CHECK(snprintf(line, 33, "%-25s %5d", host, other) < 32);
        line[31] = '\n';
        write_file(copy, text);
        desc.file = copy;
    }
    if (number == 1) {
        refused(&desc, HET_ERR_TRANSPORT, me == 0 ? "did not come to process 0: 1" : "is not reached|; it was, and said: it takes no proof");
    } else {
        t = open_with(&desc);
        meet(&t);
        close_good(&t);
    }
    if (me == 1) close(s), unlink(copy);
}

static void files(void **state) {
    char text[200], whole[HETI_TCP_FILE];
    heti_tcp_why why;
    unsigned char secret[HETI_TCP_PROOF];
    uint64_t token;
    (void)state;
    group(2, case_late, 0);
    group(2, case_file, 0);
    snprintf(text, sizeof text, "hetrain-tcp 2 00000000000000aa 3 %064d\n127.0.0.1 %d\n", 5, free_port());
    write_file(meeting, text); /* nobody is there any more */
    group(3, case_late, 0);
    write_file(meeting, text);
    assert_int_equal(heti_tcp_read_file(meeting, whole, &token, secret, &why), 1);
    assert_int_equal(chmod(meeting, 0644), 0); /* anybody could have read it */
    assert_int_equal(heti_tcp_read_file(meeting, whole, &token, secret, &why), 0);
    assert_non_null(strstr(why.text, "0600"));
    group(2, case_late, 0);
    write_file(meeting, "this is not such a file\n");
    group(2, case_late, 0);
    write_file(meeting, "hetrain-tcp 2 00000000000000aa 3 00ff"); /* not whole */
    group(2, case_late, 0);
    group(2, case_no_folder, 0);
    own_address(text, sizeof text);
    if (text[0] != 0) group(3, case_two_addresses, 0);
    group(2, case_two_addresses, 1);
}

/* A name, an IPv6 number, and what many systems call themselves, which is another address than that by which one comes there. */
static const char *const places[] = { "localhost", "::1", "127.0.1.1" };
static void case_host(int number) {
    het_tcp_desc desc = settings();
    het_transport t;
    desc.host = places[number];
    desc.run = "a run with a name";
    t = open_with(&desc);
    meet(&t);
    close_good(&t);
}

static void hosts(void **state) {
    int number;
    (void)state;
    for (number = 0; number < 3; number++) {
        struct addrinfo *found = NULL;
        const int known = heti_tcp_resolve(places[number], 0, 0, &found) == 0, s = known ? socket(found->ai_family, SOCK_STREAM, 0) : -1;
        const int has_it = s >= 0 && bind(s, found->ai_addr, found->ai_addrlen) == 0;
        if (s >= 0) close(s);
        if (known) freeaddrinfo(found);
        meeting_port = free_port();
        if (has_it || number == 0) group(3, case_host, number);
    }
}

/* ---- training ---- */

/* A context of the processes of `t`, and a sequence to train on. */
static void tiny(het_desc *desc, support_batch *batch, het_transport t) {
    memset(desc, 0, sizeof *desc);
    desc->model = support_model(HET_LLAMA);
    desc->limits.max_tokens = 32;
    desc->layout.transport = t;
    support_batch_start(batch);
    support_batch_sequence(batch, 20, desc->model.vocab, 0, 1);
}

/* Asking for a gradient that there is not is told to all processes and harms nobody. */
static void case_gradients(int number) {
    het_transport t = open_default();
    support_batch batch;
    het_desc desc;
    het_error error;
    het_ctx *ctx = NULL;
    int64_t count;
    float *values;
    (void)number;
    tiny(&desc, &batch, t);
    CHECK(het_create(&desc, &ctx, &error) == HET_OK);
    count = desc.model.vocab * desc.model.width; /* parameter 0: the embedding */
    values = (float *)need((size_t)count * sizeof *values);
    CHECK(het_parameter_read(ctx, 0, HET_GRADIENT, values) == HET_ERR_STATE && has(het_last_error(ctx), "no gradient of"));
    CHECK(het_step(ctx, &batch.batch, 1, NULL) == HET_OK);
    CHECK(het_parameter_read(ctx, 0, HET_GRADIENT, values) == HET_OK);
    CHECK(het_evaluate(ctx, &batch.batch, 1, NULL) == HET_OK);
    CHECK(het_parameter_read(ctx, 0, HET_GRADIENT, values) == HET_ERR_STATE);
    CHECK(het_step(ctx, &batch.batch, 1, NULL) == HET_OK);
    free(values);
    support_batch_end(&batch);
    het_destroy(ctx);
    close_good(&t);
}

/* Both processes are stopped for longer than the deadline, the last one goes on last: before a step (0), while contexts are made (1), while process 0
   closes (2). */
static void case_suspended(int number) {
    het_tcp_desc settled = settings();
    support_batch batch;
    het_desc desc;
    het_error error;
    het_ctx *ctx = NULL;
    het_transport t;
    settled.dead_seconds = 1.5;
    t = open_with(&settled);
    if (number == 2) {
        if (me == 1) nap(0.3), raise(SIGSTOP);
        close_good(&t);
        return;
    }
    tiny(&desc, &batch, t);
    desc.layout.deadline = desc.layout.stall_deadline = 1.5;
    if (me == 1 && number == 1) raise(SIGSTOP);
    CHECK(het_create(&desc, &ctx, &error) == HET_OK);
    if (me == 1 && number == 0) raise(SIGSTOP);
    if (het_step(ctx, &batch.batch, 1, NULL) != HET_OK) fprintf(stderr, "process %d: %s\n", me, het_last_error(ctx));
    CHECK(het_get_step(ctx) == 1);
    support_batch_end(&batch);
    het_destroy(ctx);
    close_good(&t);
}

static void suspended(void **state) {
    pid_t child[2];
    int number, i, status, wrong = 0;
    (void)state;
    for (number = 0; number < 3; number++) {
        for (i = 0; i < 2; i++) child[i] = start(2, i, case_suspended, number);
        assert_int_equal(waitpid(child[1], &status, WUNTRACED), child[1]);
        nap(0.4);
        assert_int_equal(kill(child[0], SIGSTOP), 0);
        nap(3);
        for (i = 0; i < 2; i++, nap(0.4)) assert_int_equal(kill(child[i], SIGCONT), 0);
        for (i = 0; i < 2; i++) {
            assert_int_equal(waitpid(child[i], &status, 0), child[i]);
            wrong |= status;
        }
        assert_int_equal(wrong, 0);
    }
}

/* Process 1 is given something else: the error names what, with both values and both processes, and nobody hangs. */
static void case_differs(int number) {
    static const char *const words[] = { "max_tokens=32|max_tokens=48", "seed=0|seed=7", "learning_rate=|learning_rate=0.5", "dropout=0.1|dropout=0",
                                         "clip=1|clip=2", "skip_bad_steps=no|skip_bad_steps=yes", "layers=", "plan_and_schedule=" };
    het_transport t = open_default();
    het_plan_desc of_plan;
    het_plan *plan = NULL;
    het_desc desc;
    het_error error;
    het_ctx *ctx = NULL;
    char copy[100], *word;
    memset(&desc, 0, sizeof desc);
    memset(&of_plan, 0, sizeof of_plan);
    desc.model = support_model(HET_LLAMA);
    desc.limits.max_tokens = 32;
    desc.layout.transport = t;
    if (me == 1) {
        if (number == 0) desc.limits.max_tokens = 48;
        if (number == 1) desc.seed = 7;
        if (number == 2) desc.optimizer.learning_rate = 0.5f;
        if (number == 3) desc.model.dropout = 0.1f;
        if (number == 4) desc.optimizer.clip = 2;
        if (number == 5) desc.guard.skip_bad_steps = HET_YES;
        if (number == 6) desc.model.layers++;
    }
    if (number == 7) {
        of_plan.units = 2 * desc.model.layers + 2, of_plan.ranks = 2;
        CHECK(het_plan_read(&of_plan, me == 1 ? "pp" : "dp", 2, &plan, &error) == HET_OK);
        desc.layout.plan = plan;
    }
    CHECK(het_create(&desc, &ctx, &error) != HET_OK && ctx == NULL); /* HET_ERR_INVALID, or the other one says so first */
    snprintf(copy, sizeof copy, "%s|process 0|process 1", words[number]);
    for (word = strtok(copy, "|"); word != NULL; word = strtok(NULL, "|")) CHECK(has(error.text, word));
    het_plan_free(plan);
    (void)het_tcp_close(&t, NULL);
}

static void differs(void **state) {
    int number;
    (void)state;
    for (number = 0; number < 8; number++) group(2, case_differs, number);
}

static void gradients(void **state) {
    (void)state;
    group(2, case_gradients, 0);
}

/* ---- faults ---- */

/* Opens, talks and closes, whatever fails on the way. Returns whether all went well. */
static int try_all(void) {
    enum { COUNT = 12 };
    static const size_t sizes[3] = { 100, 9000, 700000 };
    static unsigned char out[700000], in[COUNT][700000];
    het_request request[2 * COUNT];
    het_tcp_desc desc = settings();
    het_transport t;
    het_error error;
    het_result result;
    int good = 1, started[2 * COUNT], i;
    desc.open_seconds = 0.4;
    desc.dead_seconds = desc.abort_seconds = 0.5;
    result = het_tcp_open(&desc, &t, &error);
    if (result != HET_OK) {
        CHECK(error.text[0] != 0 && error.code == result && t.self == NULL && live == 0);
        return 0;
    }
    for (i = 0; i < COUNT; i++) {
        const size_t size = sizes[i % 3];
        started[2 * i] = t.iface->isend(t.self, 1 - me, (uint32_t)i / 6, out, size, &request[2 * i]) == HET_OK;
        started[2 * i + 1] = t.iface->irecv(t.self, 1 - me, (uint32_t)i / 6, in[i], size, &request[2 * i + 1]) == HET_OK;
    }
    for (i = 0; i < 2 * COUNT; i++) good &= started[i] && wait_for(&t, &request[i]) == HET_OK;
    if (!good) {
        CHECK(t.iface->last_error(t.self)[0] != 0);
        t.iface->abort(t.self, HET_ERR_TRANSPORT, "a message failed");
    }
    result = het_tcp_close(&t, &error);
    CHECK(live == 0);
    if (result != HET_OK) CHECK(has(error.text, "no goodbye"));
    return good && result == HET_OK;
}

static int fault_who;
/* Exit status 0: all went well; 10: the fault happened here; 11: something failed, but not here. */
static void case_fault(int at) {
    fault_at = at;
    if (me != fault_who) fault_call = NULL;
    {
        const int good = try_all();
        fflush(NULL);
        _exit(fault_hit ? 10 : good ? 0 : 11);
    }
}

static void faults(void **state) {
    static const struct { const char *call; int number, most; } calls[] = {
        { "socket", EMFILE, 9 }, { "fcntl", EINVAL, 9 }, { "bind", EACCES, 3 }, { "listen", EOPNOTSUPP, 3 }, { "accept", EMFILE, 3 },
        { "connect", ENETUNREACH, 3 }, { "getaddrinfo", 0, 4 }, { "poll", ENOMEM, 12 }, { "recv", ECONNRESET, 12 }, { "sendmsg", EPIPE, 12 },
        { "recvmsg", ECONNRESET, 6 }, { "pipe", EMFILE, 2 }, { "pthread_create", 0, 2 }, { "open", EACCES, 8 }, { "write", ENOSPC, 2 },
        { "rename", EROFS, 2 }, { "read", EIO, 8 },
    };
    size_t c;
    int who, at, status, i, hits = 0;
    (void)state;
    for (c = 0; c < sizeof calls / sizeof *calls; c++)
        for (who = 0; who < 2; who++)
            for (at = 0; at < calls[c].most; at++) {
                pid_t child[2];
                int hit = 0, bad = 0;
                fault_call = calls[c].call, fault_number = calls[c].number, fault_who = who;
                for (i = 0; i < 2; i++) child[i] = start(2, i, case_fault, at);
                for (i = 0; i < 2; i++) {
                    assert_int_equal(waitpid(child[i], &status, 0), child[i]);
                    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) < 10))
                        fail_msg("%s fails at its call %d in process %d: process %d ends with %#x", calls[c].call, at, who, i, (unsigned)status);
                    hit |= WEXITSTATUS(status) == 10;
                    bad |= WEXITSTATUS(status) == 11;
                }
                if (bad && !hit) fail_msg("%s, call %d, process %d: nothing failed, and yet something went wrong", calls[c].call, at, who);
                hits += hit;
                unlink(meeting); /* where process 0 could not read it, it was left */
                if (!hit) break;
            }
    fault_call = NULL;
    assert_true(hits >= 40);
}

static void case_memory(int at) {
    alloc_fails_at = at;
    (void)try_all();
    if (at == 0 && me == 0) CHECK(allocations == 1);
}

/* Process 0 has no memory for a channel that process 1 uses first, which hears of that. */
static void case_no_channel(int size) {
    static unsigned char data[300000];
    het_tcp_desc desc = settings();
    het_transport t;
    het_request request;
    char text[200];
    int64_t from = -1;
    const double end = now() + 20;
    if (me == 0) alloc_fails_at = 1;
    desc.abort_seconds = 0.5;
    t = open_with(&desc);
    if (me == 1) SEND(&t, 0, 5, data, (size_t)size, &request);
    while (t.iface->aborted(t.self, &from, text, sizeof text) == HET_OK) CHECK(now() < end), nap(1e-3);
    CHECK(from == 0 && has(text, "bytes for channels"));
    if (me == 1) (void)wait_for(&t, &request);
    (void)het_tcp_close(&t, NULL);
    CHECK(live == 0);
}

static void memory(void **state) {
    (void)state;
    group(2, case_memory, 0);
    group(2, case_memory, 1); /* for channels */
    group(2, case_no_channel, 5);
    group(2, case_no_channel, 300000);
}

/* ---- speed: only where HETRAIN_TEST_SPEED is set ---- */

static void case_speed(int number) {
    static const struct { size_t size; int rounds; } runs[] = { { 8, 2000 }, { 4096, 2000 }, { 1u << 18, 400 }, { 1u << 20, 200 }, { 1u << 24, 20 } };
    het_tcp_desc desc = settings();
    het_transport t;
    unsigned char *data = (unsigned char *)support_alloc(1u << 24, 1);
    double best = 1e9, sum = 0;
    het_request request;
    size_t r;
    int i;
    (void)number;
    desc.heartbeat_seconds = 0;
    t = open_with(&desc);
    for (r = 0; r < sizeof runs / sizeof *runs; r++) {
        double begin, seconds;
        exchange(&t, data, runs[r].size);
        begin = now();
        for (i = 0; i < runs[r].rounds; i++) exchange(&t, data, runs[r].size);
        seconds = (now() - begin) / (2.0 * runs[r].rounds);
        if (me == 0)
            printf("# %llu bytes: %.1f us one way, %.3f GB/s\n", (unsigned long long)runs[r].size, seconds * 1e6,
                   (double)runs[r].size / seconds * 1e-9);
    }
    for (i = 0; i < 100; i++) { /* both processes asleep: the message holds the time when it was given */
        double sent;
        if (me == 0) {
            nap(0.004);
            sent = now();
            SEND(&t, 1, 6, &sent, sizeof sent, &request);
            finish(&t, &request);
        } else {
            int32_t done = 0;
            RECEIVE(&t, 0, 6, &sent, sizeof sent, &request);
            while (!done) CHECK(t.iface->test(t.self, &request, &done) == HET_OK);
            sent = now() - sent;
            if (sent < best) best = sent;
            sum += sent;
        }
    }
    if (me == 1) printf("# 8 bytes to a process asleep: %.1f us, %.1f at best\n", sum * 1e4, best * 1e6);
    close_good(&t);
    free(data);
}

static void speed(void **state) {
    (void)state;
    if (support_environment("HETRAIN_TEST_SPEED", 0)) group(2, case_speed, 0);
}

static void alone(void (*run)(int number), int number) {
    group(1, run, number);
}

/* A call with a wrong argument, on a transport of its own: the first error stays. */
static void wrong_call(int which) {
    static const char *const words[8] = { "are", "process -1", "16777216", "size 5", "request", "not started", "request", "done" };
    het_transport t = open_default();
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

static void case_misuse(int number) {
    het_tcp_desc desc;
    het_transport t, none;
    het_error error;
    int i;
    (void)number;
    desc = settings();
    CHECK(het_tcp_open(&desc, NULL, &error) == HET_ERR_INVALID);
    refused(NULL, HET_ERR_INVALID, "desc is NULL");
    CHECK(het_tcp_close(NULL, NULL) == HET_OK);
    memset(&none, 0, sizeof none);
    CHECK(het_tcp_close(&none, NULL) == HET_OK);
    memset(&desc, 0xCD, sizeof desc);
    refused(&desc, HET_ERR_INVALID, "cleared");
#define WRONG(assignment, words) desc = settings(), assignment, refused(&desc, HET_ERR_INVALID, words)
    WRONG(desc.end_canary = 1, "cleared");
    WRONG(desc.heartbeat_seconds = -2, "heartbeat_seconds is -2");
    WRONG(desc.dead_seconds = (double)NAN, "dead_seconds");
    WRONG(desc.abort_seconds = 1e9, "abort_seconds is 1e+09");
    WRONG(desc.open_seconds = -1, "open_seconds is -1");
    WRONG(desc.allocator.free = NULL, "allocator");
    WRONG(desc.processes = 0, "processes is 0, must be from 1 to 2048");
    WRONG(desc.processes = 3000, "processes is 3000");
    WRONG(desc.process = 1, "process is 1, there are 1");
    WRONG(desc.process = -1, "process is -1");
    WRONG((desc.processes = 2, desc.file = NULL), "neither host nor file");
    WRONG((desc.processes = 2, desc.file = NULL, desc.host = "x"), "port is 0");
    WRONG(desc.file = "", "file has 0 bytes");
    WRONG(desc.port = 65536, "port is 65536");
    WRONG((desc.port = 65535, desc.ports = 2), "ports 2");
    WRONG(desc.secret_size = -1, "secret_size is -1");
    WRONG(desc.secret_size = 4, "secret_size is 4");
    WRONG((desc.secret = "x", desc.secret_size = 65537), "secret_size is 65537");
    WRONG((desc.port = 65535, desc.ports = INT64_MAX), "ports 9223372036854775807");
    for (i = 0; i < 8; i++) wrong_call(i);
    t = open_default();
    CHECK(t.iface->last_error(t.self)[0] == 0);
    t.iface->abort(t.self, HET_OK, NULL);
    CHECK(t.iface->aborted(t.self, NULL, NULL, 0) == HET_ERR_TRANSPORT);
    close_good(&t);
}

static void misuse(void **state) {
    (void)state;
    alone(case_misuse, 0);
}

/* ---- a peer that sends what makes no sense: the connection ends, nothing is touched ---- */

static void case_nonsense(int seed) {
    het_transport t = open_default();
    het_error error;
    uint64_t random = (uint64_t)seed * 7919 + 3;
    unsigned char in[5000], bytes[4000];
    het_request request[2];
    if (me == 0) {
        RECEIVE(&t, 1, 1, in, 5000, &request[0]);
        RECEIVE(&t, 1, 2, in, 10, &request[1]);
        while (!isinf(t.iface->silence(t.self, 1))) nap(0.001);
        CHECK(wait_for(&t, &request[0]) == HET_ERR_TRANSPORT);
        (void)wait_for(&t, &request[1]);
    } else {
        heti_tcp *m = (heti_tcp *)t.self;
        int i, count = 0, s = dup(m->peer[0].socket);
        nap(0.02);
        for (i = 0; i < (int)(sizeof bytes / 16); i++) { /* frames of which most are almost good */
            const int kind = (int)support_below(&random, 11);
            memset(bytes + 16 * i, 0, 16);
            bytes[16 * i] = (unsigned char)kind;
            bytes[16 * i + 1] = (unsigned char)support_below(&random, 2);
            bytes[16 * i + 4] = (unsigned char)support_below(&random, 4);
            bytes[16 * i + 8] = (unsigned char)support_below(&random, 256);
            bytes[16 * i + 9] = (unsigned char)(support_below(&random, 3) == 0 ? support_below(&random, 256) : 0);
            bytes[16 * i + 15] = (unsigned char)(support_below(&random, 9) == 0);
        }
        for (i = 0; i < 20000 && count >= 0 && !isinf(t.iface->silence(t.self, 0)); i++) {
            count = (int)send(s, bytes, sizeof bytes, MSG_NOSIGNAL);
            if (count < 0 && errno == EAGAIN) count = 0, nap(0.001);
        }
        shutdown(s, SHUT_RDWR);
        close(s);
    }
    (void)het_tcp_close(&t, &error);
    CHECK(live == 0);
}

static void nonsense(void **state) {
    int seed;
    (void)state;
    for (seed = support_environment("SEED", 0); seed < 40; seed++) group(2, case_nonsense, seed);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(misuse, by_file, leave),
        cmocka_unit_test_setup_teardown(messages, by_file, leave),
        cmocka_unit_test_setup_teardown(behind_others, by_file, leave),
        cmocka_unit_test_setup_teardown(lengths, by_file, leave),
        cmocka_unit_test_setup_teardown(silence, by_file, leave),
        cmocka_unit_test_setup_teardown(wakes, by_file, leave),
        cmocka_unit_test_setup_teardown(aborts, by_file, leave),
        cmocka_unit_test_setup_teardown(deaths, by_file, leave),
        cmocka_unit_test_setup_teardown(cycles, by_file, leave),
        cmocka_unit_test_setup_teardown(strangers, by_file, leave),
        cmocka_unit_test(vectors),
        cmocka_unit_test(proofs),
        cmocka_unit_test_setup_teardown(secrets, by_file, leave),
        cmocka_unit_test_setup_teardown(reflected, by_file, leave),
        cmocka_unit_test_setup_teardown(taken_port, by_file, leave),
        cmocka_unit_test_setup_teardown(absent, by_file, leave),
        cmocka_unit_test_setup_teardown(files, by_file, leave),
        cmocka_unit_test_setup_teardown(hosts, by_file, leave),
        cmocka_unit_test_setup_teardown(gradients, by_file, leave),
        cmocka_unit_test_setup_teardown(suspended, by_file, leave),
        cmocka_unit_test_setup_teardown(differs, by_file, leave),
        cmocka_unit_test_setup_teardown(faults, by_file, leave),
        cmocka_unit_test_setup_teardown(memory, by_file, leave),
        cmocka_unit_test_setup_teardown(nonsense, by_file, leave),
        cmocka_unit_test_setup_teardown(speed, by_file, leave),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
