/* A stranger at hetrain_tcp.c. The first byte says who it is, the rest is what it sends: 0 a peer whose proof was good, to the reader of frames, with
   messages under way both ways; 1 somebody who has proved nothing, and must become nobody; 2 one that proves a process and then says a hello; 3 one
   that is taken for another process by one that comes, and must not be believed. Every request must end, nothing may be allocated without bound.
   `make fuzz` runs it, tests/test_fuzz.c replays the corpus. */
#include "../../util/hetrain_tcp.c"

#include "fuzz.h"

static int64_t fuzz_tcp_live;
static union { double align; unsigned char byte[1 << 20]; } fuzz_tcp_memory; /* of the transport itself: to clear it anew each time is slow */
static void *fuzz_tcp_alloc(void *user, size_t size, size_t align)
{
    (void)user, (void)align;
    fuzz_tcp_live += (int64_t)size;
    fuzz_check(fuzz_tcp_live < (int64_t)8 << 20, "more memory than a peer is worth");
    return size > 100000 ? fuzz_tcp_memory.byte : malloc(size);
}
static void fuzz_tcp_free(void *user, void *pointer, size_t size)
{
    (void)user;
    fuzz_tcp_live -= (int64_t)size;
    if (pointer != (void *)fuzz_tcp_memory.byte) free(pointer);
}

/* A transport as it is while it opens, or has opened; *other is the stranger's end of a connection, whose other end is *own. */
static heti_tcp *fuzz_tcp_open(int process, int *own, int *other)
{
    het_tcp_desc desc;
    het_error error;
    heti_tcp *m = NULL;
    int ends[2];
    memset(&desc, 0, sizeof desc);
    desc.processes = 2, desc.process = process;
    desc.allocator.alloc = fuzz_tcp_alloc, desc.allocator.free = fuzz_tcp_free;
    fuzz_check(heti_tcp_create(&desc, &m, &error) == HET_OK && pthread_mutex_init(&m->lock, NULL) == 0, "a transport");
    fuzz_check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "a connection");
    *own = heti_tcp_prepare(ends[0]);
    *other = heti_tcp_prepare(ends[1]);
    memset(m->key, 0x5A, sizeof m->key);
    m->deadline = heti_tcp_now() + 1;
    return m;
}

static void fuzz_tcp_close(heti_tcp *m, int other)
{
    (void)close(other);
    (void)pthread_mutex_destroy(&m->lock);
    heti_tcp_destroy(m);
    fuzz_check(fuzz_tcp_live == 0, "memory that is not returned");
}

/* The second byte: how many bytes come at a time. */
static void fuzz_tcp_frames(const uint8_t *data, size_t size)
{
    enum { REQUESTS = 12 };
    static const size_t sizes[4] = { 0, 40, 5000, 300000 };
    static unsigned char memory[REQUESTS][300000], drain[65536];
    const size_t step = size > 0 ? 1 + (size_t)data[0] * 16 : 1;
    heti_tcp_node node[REQUESTS];
    int own, other, i;
    heti_tcp *m = fuzz_tcp_open(0, &own, &other);
    heti_tcp_peer *p = &m->peer[1];
    size_t at = 1;
    p->socket = own;
    memset(node, 0, sizeof node);
    for (i = 0; i < REQUESTS; i++) {
        node[i].from = node[i].to = memory[i];
        node[i].size = sizes[i % 4];
        node[i].process = 1;
        node[i].receives = i / 4 % 3 != 2; /* two receives of each size, and a send */
        node[i].channel = (uint32_t)(i % 5);
        node[i].outcome = HETI_TCP_BUSY;
        heti_tcp_start(m, &node[i]);
    }
    while (p->socket >= 0) {
        const size_t n = at < size ? (size - at < step ? size - at : step) : 0;
        const ssize_t sent = n > 0 ? send(other, data + at, n, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
        if (n > 0 && sent <= 0) break;
        at += (size_t)sent;
        if (n == 0) (void)shutdown(other, SHUT_WR);
        while (p->socket >= 0 && heti_tcp_read(m, p, HETI_TCP_BUDGET)) {}
        m->ended = m->aborted != HET_OK;
        if (p->socket >= 0) (void)heti_tcp_write(m, p, HETI_TCP_BUDGET);
        while (recv(other, drain, sizeof drain, MSG_DONTWAIT) > 0) p->full = 0;
    }
    if (p->socket >= 0) heti_tcp_lose(m, p, "it was ended", 0);
    for (i = 0; i < REQUESTS; i++) fuzz_check(node[i].outcome != HETI_TCP_BUSY, "a request that does not end");
    fuzz_tcp_close(m, other);
}

/* What it says after `proves` a process: as its hello. Only one that has proved may have a seat. */
static void fuzz_tcp_guest(const uint8_t *data, size_t size, int proves)
{
    unsigned char knock[HETI_TCP_HELLO], number[HETI_TCP_ANSWER + HETI_TCP_PROOF], proof[HETI_TCP_PROOF];
    int own, other, i;
    heti_tcp *m = fuzz_tcp_open(0, &own, &other);
    heti_tcp_guest *g = &m->guest[0];
    g->socket = own;
    if (proves) {
        memset(knock, 0, sizeof knock);
        memcpy(knock, "hetrtcp\n", 8);
        heti_tcp_put(knock + 8, 4, HETI_TCP_VERSION);
        heti_tcp_put(knock + 12, 4, 1);
        fuzz_check(send(other, knock, sizeof knock, MSG_NOSIGNAL) == (ssize_t)sizeof knock, "a knock");
        heti_tcp_welcome(m, g);
        fuzz_check(recv(other, number, sizeof number, MSG_DONTWAIT) == (ssize_t)sizeof number, "a number for a knock");
        heti_tcp_prove(m, 1, 1, 0, knock + 24, number + HETI_TCP_ANSWER, proof);
        fuzz_check(send(other, proof, sizeof proof, MSG_NOSIGNAL) == (ssize_t)sizeof proof, "a proof");
        heti_tcp_welcome(m, g);
        fuzz_check(g->socket >= 0 && g->stage == HETI_TCP_GREETS, "a good proof that is not taken");
    }
    if (size > 0) (void)send(other, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(other, SHUT_WR);
    for (i = 0; i < 8192 && g->socket >= 0; i++) heti_tcp_welcome(m, g);
    fuzz_check(g->socket < 0, "a stranger who stays");
    fuzz_check(m->peer[0].socket < 0 && (proves || m->peer[1].socket < 0), "a stranger who has a seat");
    fuzz_tcp_close(m, other);
}

/* It cannot know the answer to a number drawn now. */
static void fuzz_tcp_host(const uint8_t *data, size_t size)
{
    heti_tcp_why why;
    int own, other;
    heti_tcp *m = fuzz_tcp_open(1, &own, &other);
    if (size > 0) (void)send(other, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(other, SHUT_WR);
    why.text[0] = 0;
    fuzz_check(heti_tcp_meet(m, own, 0, m->deadline, &why) != HETI_TCP_WELCOME && why.text[0] != 0, "a stranger who is believed");
    (void)heti_tcp_hear_text(m, own, &why, m->deadline);
    (void)close(own);
    fuzz_tcp_close(m, other);
}

static int fuzz_tcp(const uint8_t *data, size_t size)
{
    const int who = size > 0 ? data[0] % 4 : 0;
    if (size > 0) data++, size--;
    if (who == 0) fuzz_tcp_frames(data, size);
    else if (who == 3) fuzz_tcp_host(data, size);
    else fuzz_tcp_guest(data, size, who == 2);
    return 0;
}

FUZZ_ENTRY(fuzz_tcp)
