/* hetrain_tcp.c: connects processes for hetrain over TCP sockets (het_transport_iface; no MPI, no
   launcher needed). POSIX; C99 and C++11.

   USE
       cc -O2 -I. -c util/hetrain_tcp.c                        once; needs libc and pthreads
       #define HETRAIN_TCP_DECLARATIONS                        in the files that call het_tcp_open:
                                                               this file then only declares
       #include "hetrain_tcp.c"
       het_tcp_desc desc;
       het_transport transport;
       memset(&desc, 0, sizeof desc);
       desc.processes = 3, desc.process = 1, desc.host = "10.0.0.5", desc.port = 29500;  on all three, process 0, 1, 2
       if (het_tcp_open(&desc, &transport, &error) == HET_OK) { ...; het_tcp_close(&transport, &error); }

   OPENING   Process 0 listens at host:port. The others come there, prove that they know the secret,
   and say how many processes there are, which they are, of which run, and at which port of their
   own the processes above them reach them; they get the addresses of all, connect to each other,
   and het_tcp_open returns in all of them or in none: a failure of one is one of all. With `file`
   instead of host:port process 0 listens at a port that the system gives and writes its addresses
   into that file, which it makes under another name and renames, and removes in the end. A file
   that an earlier run has left names a run that nobody answers for; it is read again until a new
   one is there. Whoever connects and does not say what belongs here is turned away, as is one that
   says nothing for a few seconds, and the rest goes on; `logger` gets a line for each. What a
   process needs to be told, such as another number of processes, it gets as the text of its error.
   It takes up to 65 open files beside one for each process (ulimit -n). Names are looked up with
   getaddrinfo, which may take longer than open_seconds.

   THE SECRET   On every connection both ends prove that they know it before anything else is told:
   HMAC-SHA-256 (RFC 2104, FIPS 180-4) over two fresh numbers of 256 bits, one of each end, who of
   the two proves, and which processes they are; the one that came proves first. `file` brings a
   random secret of its own, which only its owner can read. Without a secret and without `file` host
   must be a loopback address, and connections from others are dropped, unless `insecure` says that
   everybody who reaches the port is trusted. What follows is neither encrypted nor authenticated:
   where others could read or change it on its way, use a tunnel (WireGuard, ssh -L), and its
   addresses here.

   WHERE IT LISTENS   Process 0: at host where that is a number or localhost and an address of its
   machine, else at all addresses. The others: at the address by which they reached process 0, at
   all addresses where that was a loopback address got from a name or a file. Where only loopback
   addresses are accepted, at those. The listening ports are closed when het_tcp_open returns.

   ENVIRONMENT   Is not looked at. programs/connect.h makes a description from torchrun's variables.

   MESSAGES   One connection for each two processes. Whoever starts a message or asks for one moves
   what there is, up to 64 KiB, in its own thread; a communication thread, which sleeps in poll,
   does the rest and what comes meanwhile. A receiver tells the sender how many receives it has
   started on a channel, and a message goes out when its receive is there: it is written from the
   sender's memory and read into the receiver's, in chunks of 256 KiB, between which other messages
   to the same process of up to 4 KiB pass. A message of up to 4 KiB may also go before its receive
   is known, as long as one of the 32 places kept for that at the receiver is free. Thus no message
   waits behind one that nobody receives. The het_request is the node of the queues: nothing is
   allocated for a message. A channel that is used for the first time, in either direction, takes
   about 200 bytes until the end, 64 channels at a time; each other process takes about 220 KB. A
   process that uses more than 16384 channels before the one at their other end does is gone.

   FAILURE   A transport ends with the first abort, its own or one received, which every process
   passes on to all. All requests then fail at once, but for sends of which a chunk is half written:
   they end when it is out, or after abort_seconds. A process whose connection ends without goodbye
   is gone: silence is infinite, requests from and to it fail, also those started later, and the
   rest goes on. last_error is the first error and does not change.

   CLOSING   het_tcp_close fails all receives, sends what was queued before, as far as the others
   receive it, and says goodbye. When all have done so it returns HET_OK; this also holds after an
   abort. It waits for processes that are still at work as long as their heartbeats come. It gives
   up and returns HET_ERR_TRANSPORT when a process is gone, has been silent for dead_seconds of its
   wait, or abort_seconds after an abort. Memory, sockets and thread are returned in any case.

   WIRE   Numbers are little-endian. Who comes knocks, 64 bytes: "hetrtcp\n", version, its process,
   the other's (4 bytes each), 0 (4), its number (32), zeros; then sends its proof (32), then its
   hello, 64 bytes: "hetrtcp\n", version, processes, process, port (4 each), run, session (8 each),
   zeros. Answers until the connection is open: "HTCP", kind (4), length of what follows (8); to the
   knock the other's number, to the proof its own proof. Then frames of 16 bytes: kind, flag, 0, 0,
   channel (4), value (8):
       kind             value and what follows
       1 DATA           bytes of the message; its first chunk. flag 1: takes one of the receiver's
                        places
       2 MORE           bytes of this chunk, which follows: 262144, or the rest
       3 GRANT          receives started on the channel since the beginning
       4 ASK            0: a message of the channel waits for its receive
       5 CREDIT         places that are free again
       6 BEAT           0
       7 STOP           code of the abort, and 65536 x its process; 499 bytes of text
       8 CLOSING        0: messages are received no more
       9 BYE            0: the last frame */
#ifndef HETRAIN_TCP_DECLARED
#define HETRAIN_TCP_DECLARED

#if !defined(HETRAIN_TCP_DECLARATIONS) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* getaddrinfo, clock_gettime under -std=c99 */
#endif
#if !defined(HETRAIN_TCP_DECLARATIONS) && defined(__APPLE__) && !defined(_DARWIN_C_SOURCE)
#define _DARWIN_C_SOURCE 1 /* SO_NOSIGPIPE */
#endif

#include "hetrain.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 0 everywhere else: all defaults. */
typedef struct het_tcp_desc {
    uint32_t start_canary;     /* must be 0 */
    int64_t processes;         /* how many there are, 1 to 2048 */
    int64_t process;           /* which one this is, from 0 */
    const char *host;          /* of process 0: a name, or an IPv4 or IPv6 number. With `file`:
                                  where process 0 listens; NULL: everywhere */
    int64_t port;              /* of process 0, 1 to 65535; with `file` 0: the system chooses */
    int64_t ports;             /* 1: process 0 takes the first free port of so many from `port` on,
                                  the others look for it there */
    const char *file;          /* a path that all processes reach, instead of host and port */
    const char *run;           /* "": processes that give another name to their run are turned away */
    const void *secret;        /* [secret_size] bytes that all processes know and nobody else; see THE SECRET */
    int64_t secret_size;       /* 0: there is none; at most 65536 */
    int64_t insecure;          /* 1: addresses that are not loopback ones need no secret */
    het_logger logger;         /* silent: whom it waits for after two seconds, connections that are
                                  dropped; called by het_tcp_open */
    double open_seconds;       /* 120: for all processes to come and connect */
    int (*stopped)(void *user); /* het_tcp_open asks a few times a second; not 0: it ends; or NULL */
    void *user;
    double heartbeat_seconds;  /* 0.5: every process hears from this one at least so often */
    double dead_seconds;       /* 10: het_tcp_close gives up on a process silent for so long */
    double abort_seconds;      /* 5: the longest abort waits for the others to hear of it, and close waits after one */
    het_allocator allocator;   /* malloc and free; also called by the communication thread, for channels */
    uint32_t end_canary;       /* must be 0 */
} het_tcp_desc;

/* Connects this process with all others and fills *transport; what desc points to is not kept.
   Blocks until all are there, or open_seconds. HET_ERR_INVALID, HET_ERR_OOM, HET_ERR_CANCELLED
   where `stopped` ended it, else HET_ERR_TRANSPORT. Any number of transports may be open at once.
   Threads: owner. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_tcp_open(const het_tcp_desc *desc, het_transport *transport,
                                                       het_error *error);
/* See CLOSING. Clears *transport; one that is not open is left alone. Threads: owner. */
HETRAIN_API het_result het_tcp_close(het_transport *transport, het_error *error);

#ifdef __cplusplus
}
#endif
#endif /* HETRAIN_TCP_DECLARED */

#if !defined(HETRAIN_TCP_DECLARATIONS) && !defined(HETRAIN_TCP_DONE)
#define HETRAIN_TCP_DONE

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#ifndef HETRAIN_NO_DEFAULT_ALLOCATOR
#include <stdlib.h>
#endif

#ifndef HETRAIN_TCP_FAULT
/* for tests: not 0, and errno set, where the call of the system with this name is to fail */
#define HETRAIN_TCP_FAULT(call) 0
#endif

#ifndef HETI_CAST
#ifdef __cplusplus
#define HETI_CAST(type, value) static_cast<type>(value)
#define HETI_ZEROS {}    /* of a struct without unions, where it is declared */
#else
#define HETI_CAST(type, value) ((type)(value))
#define HETI_ZEROS { 0 }
#endif
#endif

#if defined(__GNUC__) || defined(__clang__)
#define HETI_TCP_PRINTF(text, first) __attribute__((format(printf, text, first)))
#define HETI_TCP_MAY_ALIAS __attribute__((may_alias)) /* the memory of a het_request */
#else
#define HETI_TCP_PRINTF(text, first)
#define HETI_TCP_MAY_ALIAS
#endif

#ifdef MSG_NOSIGNAL
#define HETI_TCP_SEND_FLAGS MSG_NOSIGNAL
#else
#define HETI_TCP_SEND_FLAGS 0 /* SO_NOSIGPIPE, on the systems that have it */
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Errors of het_tcp_open: of what it was told, and of what happened. */
#define HETI_TCP_BAD(error, ...) heti_tcp_fail((error), HET_ERR_INVALID, "het_tcp_open: " __VA_ARGS__)
#define HETI_TCP_LOST(error, ...) heti_tcp_fail((error), HET_ERR_TRANSPORT, "het_tcp_open: " __VA_ARGS__)
#define HETI_TCP_SYSTEM(name, call) (HETRAIN_TCP_FAULT(name) ? -1 : (call))
#define HETI_TCP_VERSION 2
#define HETI_TCP_MOST 2048           /* processes: the table of their addresses fits into a peer's buffer */
#define HETI_TCP_CHANNELS (1 << 24)
#define HETI_TCP_TEXT 499            /* bytes of an abort's text, as of a het_error's */
#define HETI_TCP_HELLO 64            /* also of a knock */
#define HETI_TCP_PROOF 32            /* also of a number used once */
#define HETI_TCP_ANSWER 16
#define HETI_TCP_ENTRY 20            /* of the table: 4 or 6, 0, port (2), address (16) */
#define HETI_TCP_FRAME 16
#define HETI_TCP_CHUNK 262144
#define HETI_TCP_EAGER 4096          /* a message that may go before its receive is known */
#define HETI_TCP_PLACES 32           /* for those, of each peer */
#define HETI_TCP_IN 49152
#define HETI_TCP_OUT 32768
/* bytes read behind a chunk when the message goes on: few, since they are copied */
#define HETI_TCP_AHEAD 256
#define HETI_TCP_BUDGET (4 * HETI_TCP_CHUNK) /* bytes read or written for one peer until it is another's turn */
#define HETI_TCP_HELP 65536          /* the same in a caller's thread */
#define HETI_TCP_BUCKETS 1024
#define HETI_TCP_PAGE 64             /* lines */
#define HETI_TCP_GUESTS 64           /* connections whose hello is not complete */
#define HETI_TCP_OPENED 16384        /* channels that a peer uses before this process does */
#define HETI_TCP_GUEST_SECONDS 5.0
#define HETI_TCP_ADDRESSES 16        /* in a file */
#define HETI_TCP_ADDRESS_TEXT 80
#define HETI_TCP_FILE (448 + 80 * HETI_TCP_ADDRESSES) /* bytes */

/* Frames. */
enum { HETI_TCP_DATA = 1, HETI_TCP_MORE = 2, HETI_TCP_GRANT = 3, HETI_TCP_ASK = 4, HETI_TCP_CREDIT = 5,
      HETI_TCP_BEAT = 6, HETI_TCP_STOP = 7, HETI_TCP_CLOSING = 8, HETI_TCP_BYE = 9 };
/* Answers. REFUSED ends the asker's open, LATER may be otherwise next time; both have a text, as
   FAILED. */
enum { HETI_TCP_WELCOME = 1, HETI_TCP_REFUSED = 2, HETI_TCP_LATER = 3, HETI_TCP_TABLE = 4, HETI_TCP_READY = 5,
      HETI_TCP_GO = 6, HETI_TCP_FAILED = 7, HETI_TCP_NUMBER = 8, HETI_TCP_PROVED = 9 };

enum { HETI_TCP_BUSY = 0x5443, HETI_TCP_OK, HETI_TCP_WRONG }; /* state of a request; other values: never started */

/* A request, in the memory of a het_request. `state` is guarded by the lock; all else, once queued,
   by the turn. */
typedef struct heti_tcp_node {
    struct heti_tcp_node *next;
    const unsigned char *from; /* of a send */
    unsigned char *to;         /* of a receive */
    size_t size, moved;        /* bytes; those written or read */
    int receives, process;
    uint32_t channel;
    int outcome;               /* what state becomes */
    int state;
} HETI_TCP_MAY_ALIAS heti_tcp_node;

typedef char heti_tcp_node_fits[sizeof(heti_tcp_node) <= sizeof(het_request) ? 1 : -1];
typedef char heti_tcp_table_fits[8 + HETI_TCP_MOST * HETI_TCP_ENTRY <= HETI_TCP_IN ? 1 : -1];

typedef struct heti_tcp_list { heti_tcp_node *first, *last; } heti_tcp_list;

/* A message that came before its receive. */
typedef struct heti_tcp_place {
    struct heti_tcp_place *next;
    size_t size;
    unsigned char data[HETI_TCP_EAGER];
} heti_tcp_place;

/* Queues of lines, of each peer: whose first send goes next, small or large; whose grants or
   questions are to be written; whose first send is small and waits for a place. */
enum { HETI_TCP_SMALL = 0, HETI_TCP_LARGE = 1, HETI_TCP_TELL = 2, HETI_TCP_QUESTION = 3, HETI_TCP_STARVED = 4,
      HETI_TCP_QUEUES = 5 };

/* A channel from and to one peer. */
typedef struct heti_tcp_line {
    struct heti_tcp_line *bucket;                /* the next of the same hash */
    struct heti_tcp_line *link[HETI_TCP_QUEUES];
    unsigned char in[HETI_TCP_QUEUES];
    unsigned char asking;     /* a question was asked and not answered */
    unsigned char asked;      /* the next receive is to be told of, however small */
    unsigned char takes_place; /* the first send, in a queue, has a place reserved */
    int process;
    uint32_t channel;
    heti_tcp_list sends, receives;
    heti_tcp_place *early, *last_early;
    uint64_t sent, granted;   /* messages begun; receives there have been at the peer, as far as told */
    uint64_t posted, arrived; /* receives started; messages whose DATA came */
    heti_tcp_node *incoming;  /* the receive of the message under way; NULL: it goes to a place, or nowhere */
    uint64_t incoming_left;   /* bytes of that message */
} heti_tcp_line;

typedef struct heti_tcp_page { struct heti_tcp_page *next; int used; heti_tcp_line line[HETI_TCP_PAGE]; } heti_tcp_page;

typedef struct heti_tcp_peer {
    int socket;                      /* -1: gone, or this process itself */
    int port;                        /* where it listens, while opening */
    int ready;                       /* while opening: it has connected to all */
    struct { heti_tcp_line *first, *last; } queue[HETI_TCP_QUEUES];
    int64_t sends;                   /* in its lines */
    int opened;                      /* lines that it used first */
    int owes_beat, owes_stop, owes_closing;
    int bye_sent, bye, closing, stopped; /* the last three: of the peer */
    int deaf;                        /* there was no memory for what it sends: nothing is read any more */
    int full, broken;                /* the socket takes no more for now; at all: errno */
    int heard_now;
    double heard;                    /* guarded by the lock: when; -infinity: gone or said goodbye */
    int credit, returned;            /* places to send to; of one's own that are free and not told */
    heti_tcp_place *places;          /* that are free */
    unsigned char *out, *in;
    size_t out_begin, out_end, in_begin, in_end;
    heti_tcp_node *chunk;            /* what is written behind `out`: of this send; NULL: nothing */
    size_t chunk_left;
    heti_tcp_line *source;           /* what is read: a chunk of this line's message */
    heti_tcp_place *place;           /* into this place */
    size_t source_left;
    char address[HETI_TCP_ADDRESS_TEXT];
} heti_tcp_peer;

/* A connection whose hello is not complete. `have` bytes of what it is to say now: its knock, its
   proof, its hello. */
enum { HETI_TCP_KNOCKS = 0, HETI_TCP_PROVES = 1, HETI_TCP_GREETS = 2 };
typedef struct heti_tcp_guest {
    int socket, stage;
    size_t have;
    double since;
    unsigned char said[HETI_TCP_HELLO], knock[HETI_TCP_HELLO], number[HETI_TCP_PROOF];
    char address[HETI_TCP_ADDRESS_TEXT];
} heti_tcp_guest;

typedef struct heti_tcp_why { char text[HETI_TCP_TEXT]; } heti_tcp_why; /* why something is not so */

typedef struct heti_tcp {
    het_allocator allocator;
    size_t block;
    double heartbeat, dead, abort_limit;
    int processes, process;
    heti_tcp_peer *peer;             /* [processes] */
    struct pollfd *polls;            /* [processes + 1 + HETI_TCP_GUESTS]; of who opens, then of the thread */
    int wake_read, wake_write;       /* a pipe */
    int running;
    pthread_t thread;

    pthread_mutex_t lock;            /* guards from here ... */
    heti_tcp_list queued;            /* requests that nobody with the turn has seen yet */
    int asleep, stop, closing;       /* asleep: the thread may need a byte in the pipe; stop: no more
                                        messages, after an abort or in close */
    int aborted, abort_process;      /* the first abort; aborted: a het_result */
    int abort_told;                  /* all that are there have stopped too */
    double abort_time, close_time, looked; /* looked: in close, at the others */
    char abort_text[HETI_TCP_TEXT + 1];
    het_error error;                 /* the first one */
                                     /* ... to here, and each peer's `heard` */
    pthread_mutex_t turn;            /* guards the rest, but for what opening needs */
    struct pollfd *looks;            /* [processes] */
    heti_tcp_list done;
    int ended, leaving;              /* an abort, close has been seen */
    int clean, leave;
    double next_beat, moved_time;
    heti_tcp_page *pages;
    heti_tcp_line *bucket[HETI_TCP_BUCKETS];

    uint64_t run, session;           /* while opening, from here to the end */
    int (*stopped)(void *user);      /* of the description */
    void *user;
    int listener, lax;               /* lax: a loopback address may not be what others reach this machine by */
    int near_only;                   /* only loopback addresses */
    unsigned char secret[HETI_TCP_PROOF], key[HETI_TCP_PROOF]; /* of the description; with that of the file */
    het_logger logger;
    int dropped, told;               /* connections; whether it was told for whom this one waits */
    heti_tcp_why said;               /* by a process 0 that was reached: why not yet */
    double opened, deadline;
    heti_tcp_guest guest[HETI_TCP_GUESTS];
} heti_tcp;

/* ---- texts, time, memory --------------------------------------------------------------------- */

static void heti_tcp_clean_text(char *text) {
    for (; *text != 0; text++)
        if ((*text > 0 && *text < 32) || *text == 127) *text = '?';
}

static void heti_tcp_format(het_error *error, het_result code, const char *format, va_list list) HETI_TCP_PRINTF(3, 0);
static void heti_tcp_format(het_error *error, het_result code, const char *format, va_list list) {
    char whole[2048];
    (void)vsnprintf(whole, sizeof whole, format, list);
    heti_tcp_clean_text(whole);
    (void)het_error_put(error, code, whole);
}

static het_result heti_tcp_fail(het_error *error, het_result code, const char *format, ...) HETI_TCP_PRINTF(3, 4);
static het_result heti_tcp_fail(het_error *error, het_result code, const char *format, ...) {
    va_list list;
    va_start(list, format);
    if (error != NULL) heti_tcp_format(error, code, format, list);
    va_end(list);
    return code;
}

/* The first error stays. Call with the lock held. */
static het_result heti_tcp_say(heti_tcp *m, het_result code, const char *format, ...) HETI_TCP_PRINTF(3, 4);
static het_result heti_tcp_say(heti_tcp *m, het_result code, const char *format, ...) {
    va_list list;
    va_start(list, format);
    if (m->error.text[0] == 0) heti_tcp_format(&m->error, code, format, list);
    va_end(list);
    return code;
}

static double heti_tcp_now(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return HETI_CAST(double, t.tv_sec) + 1e-9 * HETI_CAST(double, t.tv_nsec);
}

static void heti_tcp_nap(double seconds) {
    struct timespec t;
    if (!(seconds > 0)) return;
    t.tv_sec = HETI_CAST(time_t, seconds);
    t.tv_nsec = HETI_CAST(long, (seconds - HETI_CAST(double, t.tv_sec)) * 1e9);
    (void)nanosleep(&t, NULL);
}

static void heti_tcp_close_socket(int *s) {
    if (*s >= 0) (void)close(*s);
    *s = -1;
}

static void heti_tcp_watch(struct pollfd *f, int s, short events) {
    f->fd = s; /* below 0: poll leaves it out */
    f->events = events;
    f->revents = 0;
}

/* How many are ready; below 0: a signal came, or there is no memory for now. Waits for at least a
   millisecond of a time to come. */
static int heti_tcp_poll(struct pollfd *f, int count, double seconds) {
    const int most = seconds > 1e6 ? 1000000000 : seconds > 0 ? HETI_CAST(int, seconds * 1e3) + 1 : 0;
    const int ready = HETI_TCP_SYSTEM("poll", poll(f, HETI_CAST(nfds_t, count), most));
    if (ready < 0 && errno != EINTR) heti_tcp_nap(1e-3);
    return ready;
}

#ifndef HETRAIN_NO_DEFAULT_ALLOCATOR
static void *heti_tcp_malloc(void *user, size_t size, size_t align) {
    (void)user, (void)align; /* the structs here need no more than malloc gives */
    return malloc(size);
}

static void heti_tcp_release(void *user, void *pointer, size_t size) {
    (void)user, (void)size;
    free(pointer);
}
#endif

/* ---- numbers on the wire --------------------------------------------------------------------- */

static void heti_tcp_put(unsigned char *to, int bytes, uint64_t value) {
    for (int i = 0; i < bytes; i++) to[i] = HETI_CAST(unsigned char, value >> (8 * i) & 255u);
}

static uint64_t heti_tcp_get(const unsigned char *from, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= HETI_CAST(uint64_t, from[i]) << (8 * i);
    return value;
}

/* ---- SHA-256 (FIPS 180-4) and HMAC (RFC 2104) ------------------------------------------------ */

typedef struct heti_tcp_sha { uint32_t h[8]; uint64_t size; unsigned char block[64]; } heti_tcp_sha;

static uint32_t heti_tcp_turn(uint32_t x, int bits) { return x >> bits | x << (32 - bits); }

static void heti_tcp_sha_block(heti_tcp_sha *s) {
    static const uint32_t k[64] = {
        0x428A2F98u, 0x71374491u, 0xB5C0FBCFu, 0xE9B5DBA5u, 0x3956C25Bu, 0x59F111F1u, 0x923F82A4u, 0xAB1C5ED5u,
        0xD807AA98u, 0x12835B01u, 0x243185BEu, 0x550C7DC3u, 0x72BE5D74u, 0x80DEB1FEu, 0x9BDC06A7u, 0xC19BF174u,
        0xE49B69C1u, 0xEFBE4786u, 0x0FC19DC6u, 0x240CA1CCu, 0x2DE92C6Fu, 0x4A7484AAu, 0x5CB0A9DCu, 0x76F988DAu,
        0x983E5152u, 0xA831C66Du, 0xB00327C8u, 0xBF597FC7u, 0xC6E00BF3u, 0xD5A79147u, 0x06CA6351u, 0x14292967u,
        0x27B70A85u, 0x2E1B2138u, 0x4D2C6DFCu, 0x53380D13u, 0x650A7354u, 0x766A0ABBu, 0x81C2C92Eu, 0x92722C85u,
        0xA2BFE8A1u, 0xA81A664Bu, 0xC24B8B70u, 0xC76C51A3u, 0xD192E819u, 0xD6990624u, 0xF40E3585u, 0x106AA070u,
        0x19A4C116u, 0x1E376C08u, 0x2748774Cu, 0x34B0BCB5u, 0x391C0CB3u, 0x4ED8AA4Au, 0x5B9CCA4Fu, 0x682E6FF3u,
        0x748F82EEu, 0x78A5636Fu, 0x84C87814u, 0x8CC70208u, 0x90BEFFFAu, 0xA4506CEBu, 0xBEF9A3F7u, 0xC67178F2u
    };
    uint32_t w[64], v[8];
    int i;
    for (i = 0; i < 16; i++)
        w[i] = HETI_CAST(uint32_t, s->block[4 * i]) << 24 | HETI_CAST(uint32_t, s->block[4 * i + 1]) << 16 |
               HETI_CAST(uint32_t, s->block[4 * i + 2]) << 8 | s->block[4 * i + 3];
    for (; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] + (heti_tcp_turn(w[i - 15], 7) ^ heti_tcp_turn(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (heti_tcp_turn(w[i - 2], 17) ^ heti_tcp_turn(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(v, s->h, sizeof v);
    for (i = 0; i < 64; i++) {
        const uint32_t one = v[7] + k[i] + w[i] + ((v[4] & v[5]) ^ (~v[4] & v[6])) +
                             (heti_tcp_turn(v[4], 6) ^ heti_tcp_turn(v[4], 11) ^ heti_tcp_turn(v[4], 25));
        const uint32_t two = (heti_tcp_turn(v[0], 2) ^ heti_tcp_turn(v[0], 13) ^ heti_tcp_turn(v[0], 22)) +
                             ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + two;
    }
    for (i = 0; i < 8; i++) s->h[i] += v[i];
}

static void heti_tcp_sha_start(heti_tcp_sha *s) {
    static const uint32_t h[8] = { 0x6A09E667u, 0xBB67AE85u, 0x3C6EF372u, 0xA54FF53Au, 0x510E527Fu, 0x9B05688Cu,
                                  0x1F83D9ABu, 0x5BE0CD19u };
    memcpy(s->h, h, sizeof h);
    s->size = 0;
}

static void heti_tcp_sha_add(heti_tcp_sha *s, const void *data, size_t size) {
    const unsigned char *from = HETI_CAST(const unsigned char *, data);
    for (; size > 0; size--) {
        s->block[s->size++ % 64] = *from++;
        if (s->size % 64 == 0) heti_tcp_sha_block(s);
    }
}

static void heti_tcp_sha_end(heti_tcp_sha *s, unsigned char hash[HETI_TCP_PROOF]) {
    const uint64_t bits = 8 * s->size;
    unsigned char byte = 0x80;
    int i;
    for (; byte != 0 || s->size % 64 != 56; byte = 0) heti_tcp_sha_add(s, &byte, 1);
    for (i = 0; i < 8; i++) {
        byte = HETI_CAST(unsigned char, bits >> (56 - 8 * i) & 255u);
        heti_tcp_sha_add(s, &byte, 1);
    }
    for (i = 0; i < HETI_TCP_PROOF; i++) hash[i] = HETI_CAST(unsigned char, s->h[i / 4] >> (24 - 8 * (i % 4)) & 255u);
}

static void heti_tcp_hmac(const void *key, size_t key_size, const void *data, size_t size,
                          unsigned char mac[HETI_TCP_PROOF]) {
    unsigned char pad[64];
    heti_tcp_sha s;
    memset(pad, 0, sizeof pad);
    if (key_size > sizeof pad) {
        heti_tcp_sha_start(&s);
        heti_tcp_sha_add(&s, key, key_size);
        heti_tcp_sha_end(&s, pad);
    } else if (key_size > 0) {
        memcpy(pad, key, key_size);
    }
    for (int outer = 0; outer < 2; outer++) {
        for (int i = 0; i < 64; i++) pad[i] ^= outer ? 0x36 ^ 0x5C : 0x36;
        heti_tcp_sha_start(&s);
        heti_tcp_sha_add(&s, pad, sizeof pad);
        heti_tcp_sha_add(&s, outer ? mac : data, outer ? HETI_TCP_PROOF : size);
        heti_tcp_sha_end(&s, mac);
    }
}

/* Takes as long for equal bytes as for others. */
static int heti_tcp_same(const unsigned char *a, const unsigned char *b, size_t size) {
    volatile unsigned char different = 0;
    for (size_t i = 0; i < size; i++) different = HETI_CAST(unsigned char, different | (a[i] ^ b[i]));
    return different == 0;
}

/* 0: the system has none. */
static int heti_tcp_random(void *to, size_t size) {
    const int f = HETI_TCP_SYSTEM("open", open("/dev/urandom", O_RDONLY | O_CLOEXEC));
    unsigned char *at = HETI_CAST(unsigned char *, to);
    while (f >= 0 && size > 0) {
        const ssize_t n = HETI_TCP_SYSTEM("read", read(f, at, size));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        at += n;
        size -= HETI_CAST(size_t, n);
    }
    if (f >= 0) (void)close(f);
    return size == 0;
}

static het_result heti_tcp_draw(void *to, size_t size, het_error *error) {
    if (heti_tcp_random(to, size)) return HET_OK;
    return HETI_TCP_LOST(error, "no random numbers: /dev/urandom: %s", strerror(errno));
}

/* What process `prover`, which comes or is there, sends to process `verifier`. The numbers are of
   the one that comes and of the one that is there. */
static void heti_tcp_prove(const heti_tcp *m, int comes, int prover, int verifier, const unsigned char *coming,
                           const unsigned char *there, unsigned char proof[HETI_TCP_PROOF]) {
    unsigned char text[16 + 2 * HETI_TCP_PROOF];
    memcpy(text, "hetrtcp", 7);
    text[7] = comes ? 'c' : 's';
    heti_tcp_put(text + 8, 4, HETI_CAST(uint64_t, prover));
    heti_tcp_put(text + 12, 4, HETI_CAST(uint64_t, verifier));
    memcpy(text + 16, coming, HETI_TCP_PROOF);
    memcpy(text + 16 + HETI_TCP_PROOF, there, HETI_TCP_PROOF);
    heti_tcp_hmac(m->key, sizeof m->key, text, sizeof text, proof);
}

/* ---- lists and queues ------------------------------------------------------------------------ */

static void heti_tcp_append(heti_tcp_list *list, heti_tcp_node *node) {
    node->next = NULL;
    if (list->last != NULL) list->last->next = node;
    else list->first = node;
    list->last = node;
}

static heti_tcp_node *heti_tcp_take(heti_tcp_list *list) {
    heti_tcp_node *node = list->first;
    if (node != NULL) {
        list->first = node->next;
        if (node->next == NULL) list->last = NULL;
    }
    return node;
}

static void heti_tcp_enter(heti_tcp_peer *p, int queue, heti_tcp_line *line) {
    if (line->in[queue]) return;
    line->in[queue] = 1;
    line->link[queue] = NULL;
    if (p->queue[queue].last != NULL) p->queue[queue].last->link[queue] = line;
    else p->queue[queue].first = line;
    p->queue[queue].last = line;
}

static heti_tcp_line *heti_tcp_call(heti_tcp_peer *p, int queue) {
    heti_tcp_line *line = p->queue[queue].first;
    if (line == NULL) return NULL;
    line->in[queue] = 0;
    p->queue[queue].first = line->link[queue];
    if (p->queue[queue].first == NULL) p->queue[queue].last = NULL;
    return line;
}

static void heti_tcp_complete(heti_tcp *m, heti_tcp_node *node, int outcome) {
    node->outcome = outcome;
    if (!node->receives) m->peer[node->process].sends--;
    heti_tcp_append(&m->done, node);
}

/* ---- the first abort ------------------------------------------------------------------------- */

/* Call with the lock held. `length` bytes of text need no end. */
static void heti_tcp_record_abort(heti_tcp *m, int process, int code, const char *text, size_t length) {
    if (m->aborted != HET_OK) return;
    if (length > HETI_TCP_TEXT) length = HETI_TCP_TEXT;
    if (length > 0) memcpy(m->abort_text, text, length);
    m->abort_text[length] = 0;
    heti_tcp_clean_text(m->abort_text);
    m->aborted = code;
    m->abort_process = process;
    m->abort_time = heti_tcp_now();
    m->stop = 1;
    (void)heti_tcp_say(m, HET_ERR_TRANSPORT, "tcp: process %d aborted: %s", process, m->abort_text);
}

/* ---- with the turn: lines -------------------------------------------------------------------- */

static size_t heti_tcp_hash(int process, uint32_t channel) {
    const uint32_t h = (channel * 2048u + HETI_CAST(uint32_t, process)) * 2654435769u ^ channel >> 16;
    return (h >> 16 ^ h) % HETI_TCP_BUCKETS;
}

/* NULL: no memory, and this process aborts; or `theirs`, a peer that asks for it has asked for too
   many. */
static heti_tcp_line *heti_tcp_line_of(heti_tcp *m, int process, uint32_t channel, int theirs) {
    heti_tcp_line **bucket = &m->bucket[heti_tcp_hash(process, channel)], *line;
    heti_tcp_page *page = m->pages;
    for (line = *bucket; line != NULL; line = line->bucket)
        if (line->process == process && line->channel == channel) return line;
    if (theirs && m->peer[process].opened++ >= HETI_TCP_OPENED) return NULL;
    if (page == NULL || page->used == HETI_TCP_PAGE) {
        page = HETI_CAST(heti_tcp_page *, m->allocator.alloc(m->allocator.user, sizeof *page, 64));
        if (page == NULL) {
            char text[80];
            const int length = snprintf(text, sizeof text, "tcp: the allocator has no %zu bytes for channels",
                                        sizeof *page);
            (void)pthread_mutex_lock(&m->lock);
            heti_tcp_record_abort(m, m->process, HET_ERR_OOM, text, HETI_CAST(size_t, length));
            (void)pthread_mutex_unlock(&m->lock);
            return NULL;
        }
        memset(page, 0, sizeof *page);
        page->next = m->pages;
        m->pages = page;
    }
    line = &page->line[page->used++];
    line->process = process;
    line->channel = channel;
    line->bucket = *bucket;
    *bucket = line;
    return line;
}

static void heti_tcp_fail_length(heti_tcp *m, heti_tcp_node *receive, uint64_t sent) {
    (void)pthread_mutex_lock(&m->lock);
    (void)heti_tcp_say(m, HET_ERR_TRANSPORT,
                       "tcp: message from process %d to process %d, channel %d: %llu bytes were sent, %zu expected",
                       receive->process, m->process, HETI_CAST(int, receive->channel),
                       HETI_CAST(unsigned long long, sent), receive->size);
    (void)pthread_mutex_unlock(&m->lock);
    heti_tcp_complete(m, receive, HETI_TCP_WRONG);
}

/* May the first send of a line go? Then it stands in the queue of its size. */
static void heti_tcp_schedule(heti_tcp *m, heti_tcp_line *line) {
    heti_tcp_peer *p = &m->peer[line->process];
    const heti_tcp_node *node = line->sends.first;
    const int small = node != NULL && node->size <= HETI_TCP_EAGER;
    if (node == NULL || line->in[HETI_TCP_SMALL] || line->in[HETI_TCP_LARGE]) return;
    line->takes_place = 0;
    if (line->sent >= line->granted) {
        if (small && p->credit > 0) {
            p->credit--;
            line->takes_place = 1;
        } else {
            if (!line->asking) heti_tcp_enter(p, HETI_TCP_QUESTION, line);
            line->asking = 1;
            if (small) heti_tcp_enter(p, HETI_TCP_STARVED, line);
            return;
        }
    }
    heti_tcp_enter(p, small ? HETI_TCP_SMALL : HETI_TCP_LARGE, line);
}

/* A message that is here goes to its receive. */
static void heti_tcp_hand_over(heti_tcp *m, heti_tcp_node *receive, const unsigned char *from, size_t size) {
    if (size > 0 && size == receive->size) memcpy(receive->to, from, size);
    if (size == receive->size) heti_tcp_complete(m, receive, HETI_TCP_OK);
    else heti_tcp_fail_length(m, receive, size);
}

/* Of the process to itself. */
static void heti_tcp_match(heti_tcp *m, heti_tcp_line *line) {
    while (line->sends.first != NULL && line->receives.first != NULL) {
        heti_tcp_node *send = heti_tcp_take(&line->sends);
        heti_tcp_hand_over(m, heti_tcp_take(&line->receives), send->from, send->size);
        heti_tcp_complete(m, send, HETI_TCP_OK);
    }
}

/* A place is free again. Few are told of at once; a sender without any can still ask. */
static void heti_tcp_return_place(heti_tcp_peer *p, heti_tcp_place *place) {
    if (place != NULL) {
        place->next = p->places;
        p->places = place;
    }
    p->returned++;
}

/* The first message that came early goes to the first receive. */
static void heti_tcp_deliver(heti_tcp *m, heti_tcp_line *line) {
    heti_tcp_place *place = line->early;
    line->early = place->next;
    if (line->early == NULL) line->last_early = NULL;
    heti_tcp_hand_over(m, heti_tcp_take(&line->receives), place->data, place->size);
    heti_tcp_return_place(&m->peer[line->process], place);
}

static void heti_tcp_start_receive(heti_tcp *m, heti_tcp_line *line, heti_tcp_node *node) {
    heti_tcp_append(&line->receives, node);
    line->posted++;
    if (line->early != NULL) heti_tcp_deliver(m, line);
    else if (node->size > HETI_TCP_EAGER || line->asked) heti_tcp_enter(&m->peer[line->process], HETI_TCP_TELL, line);
}

/* Whether a request to or from this peer has no chance, and why. */
static const char *heti_tcp_hopeless(const heti_tcp *m, const heti_tcp_node *node) {
    const heti_tcp_peer *p = &m->peer[node->process];
    if (m->ended) return "after an abort";
    if (node->process == m->process) return m->leaving ? "in close" : NULL;
    if (m->leaving && node->receives) return "in close";
    if (p->bye) return "which has closed";
    if (p->socket < 0) return "which is gone";
    return p->closing && !node->receives ? "which has closed" : NULL;
}

/* In close that is no error. */
static void heti_tcp_fail_node(heti_tcp *m, heti_tcp_node *node, const char *why) {
    (void)pthread_mutex_lock(&m->lock);
    if (!m->leaving)
        (void)heti_tcp_say(m, HET_ERR_TRANSPORT, "tcp: a message of %zu bytes %s process %d, channel %d, failed: %s",
                       node->size, node->receives ? "from" : "to", node->process, HETI_CAST(int, node->channel), why);
    (void)pthread_mutex_unlock(&m->lock);
    heti_tcp_complete(m, node, HETI_TCP_WRONG);
}

static void heti_tcp_start(heti_tcp *m, heti_tcp_node *node) {
    heti_tcp_line *line = heti_tcp_line_of(m, node->process, node->channel, 0);
    const char *why = line == NULL ? "no memory" : heti_tcp_hopeless(m, node);
    if (!node->receives) m->peer[node->process].sends++;
    /* it is here already */
    if (node->receives && line != NULL && line->early != NULL && !m->ended && !m->leaving) why = NULL;
    if (why != NULL) {
        heti_tcp_fail_node(m, node, why);
    } else if (node->process == m->process) {
        heti_tcp_append(node->receives ? &line->receives : &line->sends, node);
        heti_tcp_match(m, line);
    } else if (node->receives) {
        heti_tcp_start_receive(m, line, node);
    } else {
        heti_tcp_append(&line->sends, node);
        heti_tcp_schedule(m, line);
    }
}

/* Fails the requests of a list that now are hopeless. A send under way towards a process that
   closes goes on, and so does any chunk under way: who gets all of it must get what was sent. */
static void heti_tcp_fail_list(heti_tcp *m, heti_tcp_peer *p, heti_tcp_list *list) {
    heti_tcp_list all = *list;
    heti_tcp_node *node;
    list->first = list->last = NULL;
    while ((node = heti_tcp_take(&all)) != NULL) {
        const char *why = heti_tcp_hopeless(m, node);
        if (p->socket >= 0 && (node == p->chunk || (node->moved > 0 && !m->ended))) why = NULL;
        if (why != NULL) heti_tcp_fail_node(m, node, why);
        else heti_tcp_append(list, node);
    }
}

static void heti_tcp_fail_line(heti_tcp *m, heti_tcp_line *line) {
    heti_tcp_peer *p = &m->peer[line->process];
    const char *why;
    if (line->incoming != NULL && (why = heti_tcp_hopeless(m, line->incoming)) != NULL) {
        heti_tcp_fail_node(m, line->incoming, why);
        line->incoming = NULL;
    }
    heti_tcp_fail_list(m, p, &line->sends);
    heti_tcp_fail_list(m, p, &line->receives); /* of which none is under way */
}

static void heti_tcp_fail_lines(heti_tcp *m) {
    heti_tcp_page *page;
    for (page = m->pages; page != NULL; page = page->next)
        for (int i = 0; i < page->used; i++) heti_tcp_fail_line(m, &page->line[i]);
}

/* The connection is over. `what` failed with an errno, 0: it ended. */
static void heti_tcp_lose(heti_tcp *m, heti_tcp_peer *p, const char *what, int number) {
    const int process = HETI_CAST(int, p - m->peer);
    heti_tcp_close_socket(&p->socket);
    p->chunk_left = p->source_left = 0;
    p->chunk = NULL;
    p->source = NULL;
    (void)pthread_mutex_lock(&m->lock);
    p->heard = -HETI_CAST(double, INFINITY);
    if (!p->bye)
        (void)heti_tcp_say(m, HET_ERR_TRANSPORT, "tcp: process %d (%s) is gone: %s%s%.80s", process, p->address, what,
                           number != 0 ? ": " : "", number != 0 ? strerror(number) : "");
    (void)pthread_mutex_unlock(&m->lock);
    heti_tcp_fail_lines(m);
}

/* ---- with the turn: writing ------------------------------------------------------------------ */

static void heti_tcp_put_frame(heti_tcp_peer *p, int kind, int flag, uint32_t channel, uint64_t value) {
    unsigned char *to = p->out + p->out_end;
    memset(to, 0, HETI_TCP_FRAME);
    to[0] = HETI_CAST(unsigned char, kind);
    to[1] = HETI_CAST(unsigned char, flag);
    heti_tcp_put(to + 4, 4, channel);
    heti_tcp_put(to + 8, 8, value);
    p->out_end += HETI_TCP_FRAME;
}

/* The abort is read without the lock: once recorded it does not change. */
static void heti_tcp_put_stop(heti_tcp *m, heti_tcp_peer *p) {
    const size_t length = strlen(m->abort_text);
    heti_tcp_put_frame(p, HETI_TCP_STOP, 0, 0,
                       HETI_CAST(uint64_t, -m->aborted) | HETI_CAST(uint64_t, m->abort_process) << 16);
    memset(p->out + p->out_end, 0, HETI_TCP_TEXT);
    memcpy(p->out + p->out_end, m->abort_text, length);
    p->out_end += HETI_TCP_TEXT;
    p->owes_stop = 0;
}

/* What there is to say besides messages. */
static void heti_tcp_fill_control(heti_tcp *m, heti_tcp_peer *p) {
    heti_tcp_line *line;
    if (HETI_TCP_OUT - p->out_end < 8 * HETI_TCP_FRAME + HETI_TCP_TEXT) return;
    if (p->owes_stop) heti_tcp_put_stop(m, p);
    if (p->owes_closing) heti_tcp_put_frame(p, HETI_TCP_CLOSING, 0, 0, 0);
    if (p->owes_beat) heti_tcp_put_frame(p, HETI_TCP_BEAT, 0, 0, 0);
    p->owes_closing = p->owes_beat = 0;
    if (p->returned >= HETI_TCP_PLACES / 4) {
        heti_tcp_put_frame(p, HETI_TCP_CREDIT, 0, 0, HETI_CAST(uint64_t, p->returned));
        p->returned = 0;
    }
    while (HETI_TCP_OUT - p->out_end >= HETI_TCP_FRAME && (line = heti_tcp_call(p, HETI_TCP_TELL)) != NULL) {
        line->asked = 0;
        heti_tcp_put_frame(p, HETI_TCP_GRANT, 0, line->channel, line->posted);
    }
    while (HETI_TCP_OUT - p->out_end >= HETI_TCP_FRAME && (line = heti_tcp_call(p, HETI_TCP_QUESTION)) != NULL)
        if (line->asking) heti_tcp_put_frame(p, HETI_TCP_ASK, 0, line->channel, 0);
}

/* A message of up to HETI_TCP_EAGER bytes is copied, so that several go with one call. */
static void heti_tcp_fill_small(heti_tcp *m, heti_tcp_peer *p, heti_tcp_line *line) {
    heti_tcp_node *node = heti_tcp_take(&line->sends);
    if (node == NULL) return;
    heti_tcp_put_frame(p, HETI_TCP_DATA, line->takes_place, line->channel, node->size);
    if (node->size > 0) memcpy(p->out + p->out_end, node->from, node->size);
    p->out_end += node->size;
    line->sent++;
    heti_tcp_complete(m, node, HETI_TCP_OK);
    heti_tcp_schedule(m, line);
}

/* The next chunk of the first large message. 0: there is none. */
static int heti_tcp_fill_large(heti_tcp_peer *p) {
    heti_tcp_line *line = p->queue[HETI_TCP_LARGE].first;
    while (line != NULL && line->sends.first == NULL) { /* its sends have failed */
        (void)heti_tcp_call(p, HETI_TCP_LARGE);
        line = p->queue[HETI_TCP_LARGE].first;
    }
    if (line == NULL) return 0;
    heti_tcp_node *node = line->sends.first;
    p->chunk = node;
    p->chunk_left = node->size - node->moved < HETI_TCP_CHUNK ? node->size - node->moved : HETI_TCP_CHUNK;
    if (node->moved == 0) {
        line->sent++;
        heti_tcp_put_frame(p, HETI_TCP_DATA, 0, line->channel, node->size);
    } else {
        heti_tcp_put_frame(p, HETI_TCP_MORE, 0, line->channel, p->chunk_left);
    }
    return 1;
}

/* Puts into `out` what can go, until a chunk follows it. */
static void heti_tcp_fill(heti_tcp *m, heti_tcp_peer *p) {
    while (p->chunk_left == 0 && !p->bye_sent) {
        if (p->out_begin == p->out_end) p->out_begin = p->out_end = 0;
        heti_tcp_fill_control(m, p);
        if (HETI_TCP_OUT - p->out_end < 2 * HETI_TCP_FRAME + HETI_TCP_EAGER) return;
        heti_tcp_line *line = heti_tcp_call(p, HETI_TCP_SMALL);
        if (line != NULL) {
            heti_tcp_fill_small(m, p, line);
            continue;
        }
        if (heti_tcp_fill_large(p)) return;
        if (m->leaving && p->sends == 0 && !p->owes_closing && !p->owes_stop) {
            heti_tcp_put_frame(p, HETI_TCP_BYE, 0, 0, 0);
            p->bye_sent = 1;
        }
        return;
    }
}

/* `n` bytes have been written. */
static void heti_tcp_wrote(heti_tcp *m, heti_tcp_peer *p, size_t n) {
    const size_t staged = p->out_end - p->out_begin < n ? p->out_end - p->out_begin : n;
    heti_tcp_node *node = p->chunk;
    p->out_begin += staged;
    n -= staged;
    p->chunk_left -= n;
    if (node == NULL) return;
    node->moved += n;
    if (p->chunk_left > 0 || n == 0) return;
    p->chunk = NULL;
    if (node->moved < node->size && m->ended) heti_tcp_fail_line(m, p->queue[HETI_TCP_LARGE].first);
    if (node->moved < node->size) return;
    heti_tcp_line *line = heti_tcp_call(p, HETI_TCP_LARGE); /* it is still the first */
    (void)heti_tcp_take(&line->sends);
    heti_tcp_complete(m, node, HETI_TCP_OK);
    heti_tcp_schedule(m, line);
}

static ssize_t heti_tcp_send(int to, const void *data, size_t size, const void *more, size_t more_size) {
    struct msghdr message;
    struct iovec part[2]; /* iov_base is not const, but only read from */
    memset(&message, 0, sizeof message);
    memcpy(&part[0].iov_base, &data, sizeof data);
    part[0].iov_len = size;
    memcpy(&part[1].iov_base, &more, sizeof more);
    part[1].iov_len = more_size;
    message.msg_iov = size > 0 ? part : part + 1;
    message.msg_iovlen = size > 0 && more_size > 0 ? 2 : 1;
    return HETI_TCP_SYSTEM("sendmsg", sendmsg(to, &message, HETI_TCP_SEND_FLAGS));
}

static int heti_tcp_read(heti_tcp *m, heti_tcp_peer *p, size_t budget);

/* Writes until nothing is left, the socket is full, or it is another peer's turn. Returns whether
   there may be more to write at once. */
static int heti_tcp_write(heti_tcp *m, heti_tcp_peer *p, size_t budget) {
    size_t written = 0;
    while (written < budget) {
        heti_tcp_fill(m, p);
        const unsigned char *more = p->chunk != NULL ? p->chunk->from + p->chunk->moved : NULL;
        if (p->out_begin == p->out_end && p->chunk_left == 0) return 0;
        const ssize_t n = heti_tcp_send(p->socket, p->out + p->out_begin, p->out_end - p->out_begin, more,
                                        p->chunk_left);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            p->full = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
            if (p->full) return 0;
            p->broken = errno;
            while (heti_tcp_read(m, p, budget)) {} /* its last words may say why */
            if (p->socket >= 0) heti_tcp_lose(m, p, "sendmsg", p->broken);
            return 0;
        }
        written += HETI_CAST(size_t, n);
        m->moved_time = heti_tcp_now();
        heti_tcp_wrote(m, p, HETI_CAST(size_t, n));
    }
    return 1;
}

/* ---- with the turn: reading ------------------------------------------------------------------ */

/* A message of `size` bytes begins. 0: the peer must not send it. */
static int heti_tcp_data(heti_tcp *m, heti_tcp_peer *p, heti_tcp_line *line, uint64_t size, int takes_place) {
    if (line->incoming_left > 0 || (takes_place && size > HETI_TCP_EAGER)) return 0;
    heti_tcp_node *node = heti_tcp_take(&line->receives);
    line->arrived++;
    line->incoming = NULL;
    line->incoming_left = size;
    if (node != NULL) {
        if (takes_place) heti_tcp_return_place(p, NULL);
        if (node->size == size) line->incoming = node;
        else heti_tcp_fail_length(m, node, size);
    } else if (m->ended || m->leaving) {
        if (takes_place) heti_tcp_return_place(p, NULL);
    } else if (takes_place && p->places != NULL) {
        p->place = p->places;
        p->places = p->place->next;
        p->place->size = HETI_CAST(size_t, size);
    } else {
        return 0;
    }
    p->source = line;
    p->source_left = size < HETI_TCP_CHUNK ? HETI_CAST(size_t, size) : HETI_TCP_CHUNK;
    return 1;
}

static int heti_tcp_more(heti_tcp_peer *p, heti_tcp_line *line, uint64_t size) {
    const uint64_t expected = line->incoming_left < HETI_TCP_CHUNK ? line->incoming_left : HETI_TCP_CHUNK;
    if (size == 0 || size != expected) return 0;
    p->source = line;
    p->source_left = HETI_CAST(size_t, size);
    return 1;
}

static int heti_tcp_stop(heti_tcp *m, heti_tcp_peer *p, uint64_t value, const unsigned char *text) {
    const int code = HETI_CAST(int, value & 0xFFFFu), process = HETI_CAST(int, value >> 16 & 0xFFFFu);
    size_t length = 0;
    if (code == 0 || process >= m->processes) return 0;
    while (length < HETI_TCP_TEXT && text[length] != 0) length++;
    p->stopped = 1;
    (void)pthread_mutex_lock(&m->lock);
    heti_tcp_record_abort(m, process, -code, HETI_CAST(const char *, HETI_CAST(const void *, text)), length);
    (void)pthread_mutex_unlock(&m->lock);
    return 1;
}

/* The peer receives no more; with `bye` it also sends no more. */
static void heti_tcp_part(heti_tcp *m, heti_tcp_peer *p, int bye) {
    p->closing = 1;
    if (bye) {
        p->bye = 1;
        (void)pthread_mutex_lock(&m->lock);
        p->heard = -HETI_CAST(double, INFINITY);
        (void)pthread_mutex_unlock(&m->lock);
    }
    heti_tcp_fail_lines(m);
}

static int heti_tcp_credit(heti_tcp *m, heti_tcp_peer *p, uint64_t places) {
    heti_tcp_line *line, *last = p->queue[HETI_TCP_STARVED].last;
    if (places > HETI_CAST(uint64_t, HETI_TCP_PLACES - p->credit)) return 0;
    p->credit += HETI_CAST(int, places);
    while ((line = heti_tcp_call(p, HETI_TCP_STARVED)) != NULL) {
        heti_tcp_schedule(m, line);
        if (line == last) break;
    }
    return 1;
}

/* One frame, its 499 bytes of text behind it where it is STOP. 0: nothing that a peer sends. */
static int heti_tcp_frame(heti_tcp *m, heti_tcp_peer *p, const unsigned char *frame) {
    const uint32_t channel = HETI_CAST(uint32_t, heti_tcp_get(frame + 4, 4));
    const uint64_t value = heti_tcp_get(frame + 8, 8);
    heti_tcp_line *line = NULL;
    if (p->bye || channel >= HETI_TCP_CHANNELS || frame[1] > 1 || frame[2] != 0 || frame[3] != 0) return 0;
    if (frame[0] >= HETI_TCP_DATA && frame[0] <= HETI_TCP_ASK) {
        line = heti_tcp_line_of(m, HETI_CAST(int, p - m->peer), channel, 1);
        p->deaf = line == NULL && p->opened <= HETI_TCP_OPENED; /* but it hears of the abort */
        if (line == NULL) return p->deaf;
    }
    switch (frame[0]) {
    case HETI_TCP_DATA: return heti_tcp_data(m, p, line, value, frame[1]);
    case HETI_TCP_MORE: return heti_tcp_more(p, line, value);
    case HETI_TCP_GRANT:
        line->asking = 0;
        if (value > line->granted) line->granted = value;
        heti_tcp_schedule(m, line);
        return 1;
    case HETI_TCP_ASK:
        line->asked = 1;
        if (line->posted > line->arrived) heti_tcp_enter(p, HETI_TCP_TELL, line);
        return 1;
    case HETI_TCP_CREDIT: return heti_tcp_credit(m, p, value);
    case HETI_TCP_BEAT: return 1;
    case HETI_TCP_STOP: return heti_tcp_stop(m, p, value, frame + HETI_TCP_FRAME);
    case HETI_TCP_CLOSING: heti_tcp_part(m, p, 0); return 1;
    case HETI_TCP_BYE: heti_tcp_part(m, p, 1); return 1;
    default: return 0;
    }
}

/* `n` bytes of the chunk under way have come to where they belong. */
static void heti_tcp_read_chunk(heti_tcp *m, heti_tcp_peer *p, size_t n) {
    heti_tcp_line *line = p->source;
    p->source_left -= n;
    line->incoming_left -= n;
    if (line->incoming != NULL) line->incoming->moved += n;
    if (p->source_left > 0) return;
    p->source = NULL;
    if (line->incoming_left > 0) return;
    if (line->incoming != NULL) heti_tcp_complete(m, line->incoming, HETI_TCP_OK);
    line->incoming = NULL;
    if (p->place == NULL) return;
    p->place->next = NULL;
    if (line->last_early != NULL) line->last_early->next = p->place;
    else line->early = p->place;
    line->last_early = p->place;
    p->place = NULL;
    if (line->receives.first != NULL) heti_tcp_deliver(m, line);
}

/* Where the chunk under way goes on; NULL: nowhere. */
static unsigned char *heti_tcp_target(const heti_tcp_peer *p) {
    const heti_tcp_line *line = p->source;
    if (p->place != NULL) return p->place->data + (p->place->size - p->source_left);
    return line->incoming != NULL ? line->incoming->to + line->incoming->moved : NULL;
}

/* Goes through what has been read into `in`. 0: it makes no sense. */
static int heti_tcp_parse(heti_tcp *m, heti_tcp_peer *p) {
    while (p->socket >= 0 && !p->deaf) {
        const unsigned char *at = p->in + p->in_begin;
        size_t have = p->in_end - p->in_begin, need = HETI_TCP_FRAME;
        if (p->source != NULL) {
            unsigned char *to = heti_tcp_target(p);
            if (have > p->source_left) have = p->source_left;
            if (have > 0 && to != NULL) memcpy(to, at, have);
            p->in_begin += have;
            if (have == 0 && p->source_left > 0) break;
            heti_tcp_read_chunk(m, p, have);
            continue;
        }
        if (have > 0 && at[0] == HETI_TCP_STOP) need += HETI_TCP_TEXT;
        if (have < need) break;
        p->in_begin += need;
        if (!heti_tcp_frame(m, p, at)) return 0;
    }
    if (p->deaf || p->in_begin == p->in_end) p->in_begin = p->in_end = 0;
    return 1;
}

/* One call of the system: the rest of the chunk under way straight to where it belongs, what
   follows into `in`. Returns its result, *asked bytes. */
static ssize_t heti_tcp_receive(heti_tcp_peer *p, size_t *asked, unsigned char *direct) {
    struct msghdr message;
    struct iovec part[2];
    size_t parts = 0, room;
    if (p->in_begin > 0) { /* less than a frame, or nothing */
        memmove(p->in, p->in + p->in_begin, p->in_end - p->in_begin);
        p->in_end -= p->in_begin;
        p->in_begin = 0;
    }
    room = HETI_TCP_IN - p->in_end;
    *asked = 0;
    if (direct != NULL) {
        part[parts].iov_base = direct;
        part[parts++].iov_len = p->source_left;
        *asked += p->source_left;
        if (p->source->incoming_left > p->source_left) room = HETI_TCP_AHEAD;
    }
    part[parts].iov_base = p->in + p->in_end;
    part[parts++].iov_len = room;
    *asked += room;
    memset(&message, 0, sizeof message);
    message.msg_iov = part;
    message.msg_iovlen = parts;
    return HETI_TCP_SYSTEM("recvmsg", recvmsg(p->socket, &message, 0));
}

/* Reads until nothing is left or it is another peer's turn. Returns whether there may be more. */
static int heti_tcp_read(heti_tcp *m, heti_tcp_peer *p, size_t budget) {
    size_t got = 0;
    while (got < budget) {
        unsigned char *direct = p->source != NULL && p->source_left > 0 ? heti_tcp_target(p) : NULL;
        size_t asked;
        const ssize_t result = heti_tcp_receive(p, &asked, direct);
        if (result < 0 && errno == EINTR) continue;
        if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
        if (result <= 0) {
            heti_tcp_lose(m, p, result < 0 ? "recvmsg" : p->broken != 0 ? "sendmsg" : "its connection ended",
                          result < 0 ? errno : p->broken);
            return 0;
        }
        p->heard_now = 1;
        const size_t n = HETI_CAST(size_t, result);
        got += n;
        if (direct != NULL) {
            const size_t part = n < p->source_left ? n : p->source_left;
            heti_tcp_read_chunk(m, p, part);
            p->in_end += n - part;
        } else {
            p->in_end += n;
        }
        if (!heti_tcp_parse(m, p)) {
            heti_tcp_lose(m, p, "it sent what makes no sense", 0);
            return 0;
        }
        if (n < asked || p->socket < 0) return 0;
    }
    return 1;
}

/* ---- with the turn: what is done in it ------------------------------------------------------- */

/* Tells the owners. A node must not be touched afterwards. */
static void heti_tcp_publish(heti_tcp *m, double now) {
    heti_tcp_node *node;
    (void)pthread_mutex_lock(&m->lock);
    for (int p = 0; p < m->processes; p++) {
        if (m->peer[p].heard_now && m->peer[p].heard > 0) m->peer[p].heard = now;
        m->peer[p].heard_now = 0;
    }
    while ((node = heti_tcp_take(&m->done)) != NULL) node->state = node->outcome;
    (void)pthread_mutex_unlock(&m->lock);
}

/* What the owners want: new requests, an abort, the end. */
static void heti_tcp_listen_to_owners(heti_tcp *m) {
    heti_tcp_node *node;
    (void)pthread_mutex_lock(&m->lock);
    heti_tcp_list queued = m->queued;
    m->queued.first = m->queued.last = NULL;
    const int ended = m->aborted != HET_OK;
    const int leaving = m->closing;
    (void)pthread_mutex_unlock(&m->lock);
    while ((node = heti_tcp_take(&queued)) != NULL) heti_tcp_start(m, node);
    if (ended == m->ended && leaving == m->leaving) return;
    for (int p = 0; p < m->processes; p++) {
        if (m->peer[p].bye_sent) continue;
        if (ended && !m->ended) m->peer[p].owes_stop = 1;
        if (leaving && !m->leaving) m->peer[p].owes_closing = 1;
    }
    m->ended = ended;
    m->leaving = leaving;
    heti_tcp_fail_lines(m);
}

/* Have all that are there stopped, too? A chunk that somebody does not take is given up. */
static void heti_tcp_look_at_abort(heti_tcp *m) {
    const int late = heti_tcp_now() - m->abort_time > m->abort_limit;
    int told = 1;
    for (int p = 0; p < m->processes; p++) {
        if (late && m->peer[p].chunk != NULL) heti_tcp_lose(m, &m->peer[p], "it takes no more of a message", 0);
        if (m->peer[p].socket >= 0 && !m->peer[p].stopped && !m->peer[p].bye) told = 0;
    }
    if (!told) return;
    (void)pthread_mutex_lock(&m->lock);
    m->abort_told = 1;
    (void)pthread_mutex_unlock(&m->lock);
}

/* Closing: are all goodbyes here, and all one's own on their way? Or is there no use in waiting? */
static void heti_tcp_try_leave(heti_tcp *m, double now) {
    int waits = 0, lost = 0, dead = -1;
    (void)pthread_mutex_lock(&m->lock);
    if (now - m->looked > 1 + 0.1 * m->dead) m->close_time = now; /* it was stopped itself */
    m->looked = now;
    for (int p = 0; p < m->processes; p++) {
        const heti_tcp_peer *peer = &m->peer[p];
        if (p == m->process) continue;
        if (!peer->bye && peer->socket < 0) lost++;
        if (peer->socket < 0 || (peer->bye && peer->bye_sent && peer->out_begin == peer->out_end)) continue;
        waits++;
        if (now - (peer->bye ? m->moved_time : peer->heard) > m->dead && now - m->close_time > m->dead) dead = p;
    }
    if (waits > 0 && m->ended && now - (m->close_time > m->abort_time ? m->close_time :
                                        m->abort_time) > m->abort_limit) {
        m->leave = 1;
    } else if (dead >= 0 && !m->ended) {
        (void)heti_tcp_say(m, HET_ERR_TRANSPORT, "tcp: close: process %d has been silent for more than %g seconds",
                           dead, m->dead);
        m->leave = 1;
    } else if (waits == 0) {
        m->clean = lost == 0;
        m->leave = 1;
    }
    (void)pthread_mutex_unlock(&m->lock);
}

static void heti_tcp_watch_peers(const heti_tcp *m, struct pollfd *polls) {
    for (int p = 0; p < m->processes; p++)
        heti_tcp_watch(&polls[p], m->peer[p].socket, m->peer[p].full ? POLLIN | POLLOUT : POLLIN);
}

/* Sleeps until a socket or an owner has something, at most until the next beat. `more`: does not
   sleep. Others may have the turn meanwhile. */
static void heti_tcp_sleep(heti_tcp *m, int more) {
    double seconds = m->next_beat - heti_tcp_now();
    char bytes[64];
    ssize_t got = 0;
    if ((m->ended || m->leaving) && seconds > 0.05) seconds = 0.05;
    heti_tcp_watch(&m->polls[0], m->wake_read, POLLIN);
    heti_tcp_watch_peers(m, m->polls + 1);
    (void)pthread_mutex_lock(&m->lock);
    const int asleep = m->asleep = !more && m->queued.first == NULL && m->closing == m->leaving &&
        (m->aborted != HET_OK) == m->ended;
    (void)pthread_mutex_unlock(&m->lock);
    (void)pthread_mutex_unlock(&m->turn);
    if (heti_tcp_poll(m->polls, m->processes + 1, asleep ? seconds : 0) < 0) m->polls[0].revents = 0;
    if (m->polls[0].revents != 0) got = read(m->wake_read, bytes, sizeof bytes);
    (void)got;
    (void)pthread_mutex_lock(&m->turn);
}

/* Reads what has come and writes what can go, `budget` bytes of each for each peer. Returns whether
   somebody must go on. */
static int heti_tcp_move(heti_tcp *m, int reads, size_t budget) {
    const double now = heti_tcp_now();
    int more = 0;
    heti_tcp_listen_to_owners(m);
    heti_tcp_watch_peers(m, m->looks);
    if (!reads || heti_tcp_poll(m->looks, m->processes, 0) < 0)
        for (int p = 0; p < m->processes; p++) m->looks[p].revents = 0;
    for (int p = 0; p < m->processes; p++) {
        heti_tcp_peer *peer = &m->peer[p];
        const int seen = m->looks[p].revents;
        if (peer->socket < 0) continue;
        if (seen & POLLOUT) peer->full = 0;
        if ((seen & ~POLLOUT) != 0) more |= heti_tcp_read(m, peer, budget);
    }
    heti_tcp_listen_to_owners(m); /* an abort that has come is passed on at once */
    for (int p = 0; p < m->processes; p++) {
        heti_tcp_peer *peer = &m->peer[p];
        if (now >= m->next_beat) peer->owes_beat = 1;
        if (peer->socket >= 0 && !peer->full) more |= heti_tcp_write(m, peer, budget);
    }
    if (now >= m->next_beat) m->next_beat = now + m->heartbeat;
    heti_tcp_publish(m, now);
    return more;
}

static void *heti_tcp_run(void *argument) {
    heti_tcp *m = HETI_CAST(heti_tcp *, argument);
    int more = 0;
    (void)pthread_mutex_lock(&m->turn); /* until het_tcp_open is done */
    while (!m->leave) {
        heti_tcp_sleep(m, more);
        more = heti_tcp_move(m, 1, HETI_TCP_BUDGET);
        if (m->ended) heti_tcp_look_at_abort(m);
        if (m->leaving) heti_tcp_try_leave(m, heti_tcp_now());
        if (m->leave) { /* nobody will receive what is left */
            m->ended = 1;
            for (int p = 0; p < m->processes; p++) m->peer[p].chunk = NULL;
            heti_tcp_fail_lines(m);
            heti_tcp_publish(m, heti_tcp_now());
        }
    }
    (void)pthread_mutex_unlock(&m->turn);
    return NULL;
}

/* ---- the transport's table: any thread ------------------------------------------------------- */

static int64_t heti_tcp_processes(void *self) { return HETI_CAST(heti_tcp *, self)->processes; }
static int64_t heti_tcp_process(void *self) { return HETI_CAST(heti_tcp *, self)->process; }

static const char *heti_tcp_last_error(void *self) {
    heti_tcp *m = HETI_CAST(heti_tcp *, self);
    (void)pthread_mutex_lock(&m->lock);
    const char *text = m->error.text[0] != 0 ? m->error.text : ""; /* never changes once there */
    (void)pthread_mutex_unlock(&m->lock);
    return text;
}

/* Wakes the communication thread if it sleeps. Call with the lock held. */
static void heti_tcp_wake(heti_tcp *m) {
    const ssize_t written = m->asleep ? write(m->wake_write, "", 1) : 0;
    (void)written; /* where the pipe is full, it wakes as well */
    m->asleep = 0;
}

/* A caller has started something, or waits and looks (reads): it moves the messages itself, since
   to wake the communication thread takes longer than a short one. Long ones are left to that. */
static void heti_tcp_help(heti_tcp *m, int reads) {
    int left = !reads;
    if (pthread_mutex_trylock(&m->turn) == 0) {
        left = heti_tcp_move(m, reads, HETI_TCP_HELP);
        for (int p = 0; p < m->processes; p++) left |= m->peer[p].full && !(m->polls[p + 1].events & POLLOUT);
        (void)pthread_mutex_unlock(&m->turn);
    }
    if (!left) return;
    (void)pthread_mutex_lock(&m->lock);
    heti_tcp_wake(m);
    (void)pthread_mutex_unlock(&m->lock);
}

static het_result heti_tcp_check(heti_tcp *m, const char *call, int64_t process, uint32_t channel, const void *data,
                                 size_t size, const het_request *request) {
    if (process < 0 || process >= m->processes)
        return heti_tcp_say(m, HET_ERR_INVALID, "tcp: %s: process %lld, there are %d", call,
                            HETI_CAST(long long, process), m->processes);
    if (channel >= HETI_TCP_CHANNELS)
        return heti_tcp_say(m, HET_ERR_INVALID, "tcp: %s: channel %lu, must be below %d", call,
                            HETI_CAST(unsigned long, channel), HETI_TCP_CHANNELS);
    if (data == NULL && size > 0)
        return heti_tcp_say(m, HET_ERR_INVALID, "tcp: %s: data is NULL, size %zu", call, size);
    if (request == NULL) return heti_tcp_say(m, HET_ERR_INVALID, "tcp: %s: request is NULL", call);
    if (m->stop) return heti_tcp_say(m, HET_ERR_TRANSPORT, "tcp: %s: the transport has been closed", call);
    return HET_OK;
}

static het_result heti_tcp_request(heti_tcp *m, int64_t process, uint32_t channel, const void *from, void *to,
                                   int receives, size_t size, het_request *request) {
    heti_tcp_node *node = HETI_CAST(heti_tcp_node *, HETI_CAST(void *, request));
    het_result result;
    (void)pthread_mutex_lock(&m->lock);
    result = heti_tcp_check(m, receives ? "irecv" : "isend", process, channel, receives ? to : from, size, request);
    if (result == HET_OK) {
        node->from = HETI_CAST(const unsigned char *, from);
        node->to = HETI_CAST(unsigned char *, to);
        node->size = size;
        node->moved = 0;
        node->receives = receives;
        node->process = HETI_CAST(int, process);
        node->channel = channel;
        node->state = node->outcome = HETI_TCP_BUSY;
        heti_tcp_append(&m->queued, node);
    }
    (void)pthread_mutex_unlock(&m->lock);
    if (result == HET_OK) heti_tcp_help(m, 0);
    return result;
}

static het_result heti_tcp_isend(void *self, int64_t to, uint32_t channel, const void *data, size_t size,
                                 het_request *request) {
    return heti_tcp_request(HETI_CAST(heti_tcp *, self), to, channel, data, NULL, 0, size, request);
}

static het_result heti_tcp_irecv(void *self, int64_t from, uint32_t channel, void *data, size_t size,
                                 het_request *request) {
    return heti_tcp_request(HETI_CAST(heti_tcp *, self), from, channel, NULL, data, 1, size, request);
}

static het_result heti_tcp_look(heti_tcp *m, het_request *request, int32_t *done) {
    het_result result = HET_OK;
    int state;
    (void)pthread_mutex_lock(&m->lock);
    if (request == NULL || done == NULL) {
        result = heti_tcp_say(m, HET_ERR_INVALID, "tcp: test: %s is NULL", request == NULL ? "request" : "done");
    } else {
        state = HETI_CAST(heti_tcp_node *, HETI_CAST(void *, request))->state;
        if (state == HETI_TCP_BUSY) *done = 0;
        else if (state == HETI_TCP_OK) *done = 1;
        else if (state == HETI_TCP_WRONG) result = HET_ERR_TRANSPORT;
        else result = heti_tcp_say(m, HET_ERR_INVALID, "tcp: test: the request was not started by isend or irecv");
    }
    (void)pthread_mutex_unlock(&m->lock);
    return result;
}

static het_result heti_tcp_test(void *self, het_request *request, int32_t *done) {
    heti_tcp *m = HETI_CAST(heti_tcp *, self);
    const het_result result = heti_tcp_look(m, request, done);
    if (result != HET_OK || *done) return result;
    heti_tcp_help(m, 1);
    return heti_tcp_look(m, request, done);
}

static double heti_tcp_silence(void *self, int64_t process) {
    heti_tcp *m = HETI_CAST(heti_tcp *, self);
    if (process < 0 || process >= m->processes) return HETI_CAST(double, INFINITY);
    if (process == m->process) return 0;
    (void)pthread_mutex_lock(&m->lock);
    const double heard = m->peer[process].heard;
    (void)pthread_mutex_unlock(&m->lock);
    return heti_tcp_now() - heard;
}

static void heti_tcp_abort(void *self, het_result code, const char *text) {
    heti_tcp *m = HETI_CAST(heti_tcp *, self);
    int told = 0, closing;
    (void)pthread_mutex_lock(&m->lock);
    closing = m->closing;
    if (!closing) {
        heti_tcp_record_abort(m, m->process, code != HET_OK ? code : HET_ERR_TRANSPORT, text,
                              text != NULL ? strlen(text) : 0);
        heti_tcp_wake(m);
    }
    (void)pthread_mutex_unlock(&m->lock);
    while (!closing && !told) {
        (void)pthread_mutex_lock(&m->lock);
        told = m->abort_told || heti_tcp_now() - m->abort_time > m->abort_limit;
        (void)pthread_mutex_unlock(&m->lock);
        if (!told) heti_tcp_nap(1e-3);
    }
}

static het_result heti_tcp_aborted(void *self, int64_t *process, char *text, size_t capacity) {
    heti_tcp *m = HETI_CAST(heti_tcp *, self);
    (void)pthread_mutex_lock(&m->lock);
    const het_result result = HETI_CAST(het_result, m->aborted);
    if (result != HET_OK) {
        if (process != NULL) *process = m->abort_process;
        if (text != NULL && capacity > 0) (void)snprintf(text, capacity, "%s", m->abort_text);
    }
    (void)pthread_mutex_unlock(&m->lock);
    return result;
}

static const het_transport_iface heti_tcp_iface = {
    HETRAIN_TRANSPORT_VERSION, "tcp", heti_tcp_processes, heti_tcp_process, heti_tcp_isend, heti_tcp_irecv,
    heti_tcp_test, heti_tcp_silence, heti_tcp_abort, heti_tcp_aborted, heti_tcp_last_error
};

/* ---- open: sockets --------------------------------------------------------------------------- */

static struct sockaddr *heti_tcp_general(struct sockaddr_storage *address) {
    return HETI_CAST(struct sockaddr *, HETI_CAST(void *, address));
}

static struct sockaddr_storage heti_tcp_copy_address(const struct sockaddr *from, size_t size) {
    struct sockaddr_storage address = HETI_ZEROS;
    memcpy(&address, from, size);
    return address;
}

/* An address on the wire and back, HETI_TCP_ENTRY bytes. IPv4 in IPv6 becomes IPv4. */
static void heti_tcp_pack(unsigned char *entry, const struct sockaddr_storage *address) {
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    const int is_v4 = address->ss_family == AF_INET;
    memset(entry, 0, HETI_TCP_ENTRY);
    memcpy(&v4, address, sizeof v4);
    memcpy(&v6, address, sizeof v6);
    entry[0] = is_v4 ? 4 : 6;
    heti_tcp_put(entry + 2, 2, ntohs(is_v4 ? v4.sin_port : v6.sin6_port));
    if (is_v4) {
        memcpy(entry + 4, &v4.sin_addr, 4);
    } else if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
        entry[0] = 4;
        memcpy(entry + 4, v6.sin6_addr.s6_addr + 12, 4);
    } else {
        memcpy(entry + 4, v6.sin6_addr.s6_addr, 16);
    }
}

/* The address of a connection's own end or of the other, and its link. 0: errno. */
static int heti_tcp_end_of(int s, int other, unsigned char *entry, uint32_t *scope) {
    struct sockaddr_storage address = HETI_ZEROS;
    struct sockaddr *at = heti_tcp_general(&address);
    struct sockaddr_in6 v6;
    socklen_t length = sizeof address;
    if ((other ? getpeername(s, at, &length) : getsockname(s, at, &length)) != 0) return 0;
    heti_tcp_pack(entry, &address);
    memcpy(&v6, &address, sizeof v6);
    *scope = address.ss_family == AF_INET6 ? v6.sin6_scope_id : 0;
    return 1;
}

/* A link-local address holds on the link of `scope`. */
static socklen_t heti_tcp_unpack(struct sockaddr_storage *address, const unsigned char *entry, uint32_t scope) {
    struct sockaddr_in v4 = HETI_ZEROS;
    struct sockaddr_in6 v6 = HETI_ZEROS;
    const uint16_t port = htons(HETI_CAST(uint16_t, heti_tcp_get(entry + 2, 2)));
    memset(address, 0, sizeof *address);
    if (entry[0] == 4) {
        v4.sin_family = AF_INET;
        v4.sin_port = port;
        memcpy(&v4.sin_addr, entry + 4, 4);
        memcpy(address, &v4, sizeof v4);
        return HETI_CAST(socklen_t, sizeof v4);
    }
    v6.sin6_family = AF_INET6;
    v6.sin6_port = port;
    memcpy(v6.sin6_addr.s6_addr, entry + 4, 16);
    if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) v6.sin6_scope_id = scope;
    memcpy(address, &v6, sizeof v6);
    return HETI_CAST(socklen_t, sizeof v6);
}

static int heti_tcp_is_loopback(const unsigned char *entry) {
    static const unsigned char v6[16] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 };
    return entry[0] == 4 ? entry[4] == 127 : memcmp(entry + 4, v6, 16) == 0;
}

/* "127.0.0.1:4711", "[::1]:4711" */
static void heti_tcp_name(char *text, size_t capacity, const struct sockaddr_storage *given, socklen_t length) {
    struct sockaddr_storage copy = *given, *address = &copy;
    char host[64], port[16];
    unsigned char entry[HETI_TCP_ENTRY];
    heti_tcp_pack(entry, address);
    if (entry[0] == 4) length = heti_tcp_unpack(address, entry, 0);
    if (getnameinfo(heti_tcp_general(address), length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        (void)snprintf(host, sizeof host, "?"), port[0] = 0;
    (void)snprintf(text, capacity, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, port);
}

static int heti_tcp_close_failed(int s) {
    const int number = errno;
    (void)close(s);
    errno = number;
    return -1;
}

/* Neither inherited nor blocking nor delayed. -1: errno says why, and it is closed. */
static int heti_tcp_prepare(int s) {
    const int on = 1;
    if (s < 0) return -1;
    const int flags = HETI_TCP_SYSTEM("fcntl", fcntl(s, F_GETFL));
    if (flags < 0 || fcntl(s, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(s, F_SETFD, FD_CLOEXEC) < 0)
        return heti_tcp_close_failed(s);
    (void)setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
#ifdef SO_NOSIGPIPE
    (void)setsockopt(s, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
    return s;
}

static int heti_tcp_socket(int family) {
    return heti_tcp_prepare(HETI_TCP_SYSTEM("socket", socket(family, SOCK_STREAM, 0)));
}

static int heti_tcp_stopped(const heti_tcp *m) { return m->stopped != NULL && m->stopped(m->user); }

/* Seconds to wait until it is looked again, a few times a second. 0: time is up, or this process is
   stopped. */
static double heti_tcp_left(const heti_tcp *m, double until) {
    const double left = until - heti_tcp_now();
    return left <= 0 || heti_tcp_stopped(m) ? 0 : left < 0.3 ? left : 0.3;
}

/* Until the socket is ready. 0 and errno, ETIMEDOUT or ECANCELED: nothing is left of the time. */
static int heti_tcp_ready(const heti_tcp *m, int s, short events, double until) {
    struct pollfd one;
    for (;;) {
        const double left = heti_tcp_left(m, until);
        heti_tcp_watch(&one, s, events);
        if (heti_tcp_poll(&one, 1, left) > 0) return 1;
        if (left <= 0) break;
    }
    errno = heti_tcp_now() < until ? ECANCELED : ETIMEDOUT;
    return 0;
}

/* All bytes, read or (to NULL) written, or 0 and errno: 0 where the connection ended. */
static int heti_tcp_move_all(const heti_tcp *m, int s, unsigned char *to, const unsigned char *from, size_t size,
                             double until) {
    size_t done = 0;
    while (done < size) {
        ssize_t n;
        if (!heti_tcp_ready(m, s, to != NULL ? POLLIN : POLLOUT, until)) return 0;
        if (to != NULL) n = HETI_TCP_SYSTEM("recv", recv(s, to + done, size - done, 0));
        else n = heti_tcp_send(s, from + done, size - done, NULL, 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) continue;
        if (n == 0) errno = 0;
        if (n <= 0) return 0;
        done += HETI_CAST(size_t, n);
    }
    return 1;
}

static int heti_tcp_answer(const heti_tcp *m, int s, int kind, const void *data, size_t size, double until) {
    unsigned char head[HETI_TCP_ANSWER];
    memcpy(head, "HTCP", 4);
    heti_tcp_put(head + 4, 4, HETI_CAST(uint64_t, kind));
    heti_tcp_put(head + 8, 8, size);
    return heti_tcp_move_all(m, s, NULL, head, sizeof head, until) &&
        heti_tcp_move_all(m, s, NULL, HETI_CAST(const unsigned char *, data), size, until);
}

/* An answer of at most `capacity` bytes. Returns its kind; 0: errno as in heti_tcp_move_all, EPROTO
   where it is none. */
static int heti_tcp_hear(const heti_tcp *m, int s, unsigned char *data, size_t capacity, size_t *size, double until) {
    unsigned char head[HETI_TCP_ANSWER];
    if (!heti_tcp_move_all(m, s, head, NULL, sizeof head, until)) return 0;
    const uint64_t kind = heti_tcp_get(head + 4, 4);
    const uint64_t length = heti_tcp_get(head + 8, 8);
    if (memcmp(head, "HTCP", 4) != 0 || kind < 1 || kind > HETI_TCP_PROVED || length > capacity) {
        errno = EPROTO;
        return 0;
    }
    *size = HETI_CAST(size_t, length);
    if (!heti_tcp_move_all(m, s, data, NULL, *size, until)) return 0;
    return HETI_CAST(int, kind);
}

/* Notes why, and returns the answer. */
static int heti_tcp_because(heti_tcp_why *why, int answer, const char *format, ...) HETI_TCP_PRINTF(3, 4);
static int heti_tcp_because(heti_tcp_why *why, int answer, const char *format, ...) {
    va_list list;
    va_start(list, format);
    (void)vsnprintf(why->text, sizeof why->text, format, list);
    va_end(list);
    return answer;
}

/* heti_tcp_hear gave 0. */
static int heti_tcp_unheard(heti_tcp_why *why) {
    return heti_tcp_because(why, 0, "%s", errno == 0 ? "the connection ended" : errno == EPROTO ?
                            "it speaks otherwise" : strerror(errno));
}

/* As heti_tcp_hear, of a text, which is ended. */
static int heti_tcp_hear_text(const heti_tcp *m, int s, heti_tcp_why *text, double until) {
    unsigned char data[HETI_TCP_TEXT - 1];
    size_t size = 0;
    const int kind = heti_tcp_hear(m, s, data, sizeof data, &size, until);
    if (kind == 0) return heti_tcp_unheard(text);
    if (size > 0) memcpy(text->text, data, size);
    text->text[size] = 0;
    heti_tcp_clean_text(text->text);
    return kind;
}

/* ---- open: listening ------------------------------------------------------------------------- */

/* A socket that listens there; port 0: at one that the system chooses. -1: errno. */
static int heti_tcp_listen_at(struct sockaddr_storage *address, socklen_t length, int backlog) {
    const int on = 1, off = 0, s = heti_tcp_socket(address->ss_family);
    if (s < 0) return -1;
    (void)setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->ss_family == AF_INET6) (void)setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (HETI_TCP_SYSTEM("bind", bind(s, heti_tcp_general(address), length)) == 0 &&
        HETI_TCP_SYSTEM("listen", listen(s, backlog)) == 0)
        return s;
    return heti_tcp_close_failed(s);
}

/* At all addresses of this machine, which may have no IPv6. */
static int heti_tcp_listen_everywhere(int port, int backlog) {
    unsigned char entry[HETI_TCP_ENTRY] = { 6 };
    struct sockaddr_storage address;
    heti_tcp_put(entry + 2, 2, HETI_CAST(uint64_t, port));
    const socklen_t v6 = heti_tcp_unpack(&address, entry, 0);
    const int s = heti_tcp_listen_at(&address, v6, backlog);
    if (s >= 0 || errno == EADDRINUSE) return s;
    entry[0] = 4;
    const socklen_t v4 = heti_tcp_unpack(&address, entry, 0);
    return heti_tcp_listen_at(&address, v4, backlog);
}

static int heti_tcp_resolve(const char *host, int port, int flags, struct addrinfo **found) {
    struct addrinfo hints = HETI_ZEROS;
    char text[16];
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags | AI_NUMERICSERV;
    (void)snprintf(text, sizeof text, "%d", port);
    *found = NULL;
    return HETRAIN_TCP_FAULT("getaddrinfo") ? EAI_FAIL : getaddrinfo(host, text, &hints, found);
}

/* A number, or localhost: what it names is the same for all that use it. */
static int heti_tcp_is_exact(const char *host) {
    struct addrinfo *found;
    if (strcmp(host, "localhost") == 0) return 1;
    if (heti_tcp_resolve(host, 0, AI_NUMERICHOST, &found) != 0) return 0;
    freeaddrinfo(found);
    return 1;
}

/* Does a name stand for loopback addresses alone? One that cannot be looked up may do. */
static int heti_tcp_is_near(const char *host) {
    struct addrinfo *found, *a;
    int near_by = 1;
    if (heti_tcp_resolve(host, 0, 0, &found) != 0) return 1;
    for (a = found; a != NULL; a = a->ai_next) {
        const struct sockaddr_storage address = heti_tcp_copy_address(a->ai_addr, a->ai_addrlen);
        unsigned char entry[HETI_TCP_ENTRY];
        heti_tcp_pack(entry, &address);
        near_by &= heti_tcp_is_loopback(entry);
    }
    freeaddrinfo(found);
    return near_by;
}

/* Process 0's socket: see WHERE IT LISTENS. */
static int heti_tcp_listen_first(const char *host, int port, int near_only, int backlog) {
    struct addrinfo *found, *a;
    int s = -1;
    if (host == NULL || (!near_only && !heti_tcp_is_exact(host)) || heti_tcp_resolve(host, port, 0, &found) != 0)
        return heti_tcp_listen_everywhere(port, backlog);
    errno = EADDRNOTAVAIL;
    for (a = found; a != NULL && s < 0; a = a->ai_next) {
        struct sockaddr_storage address = heti_tcp_copy_address(a->ai_addr, a->ai_addrlen);
        s = heti_tcp_listen_at(&address, a->ai_addrlen, backlog);
    }
    freeaddrinfo(found);
    return s < 0 && errno == EADDRNOTAVAIL ? heti_tcp_listen_everywhere(port, backlog) : s;
}

static int heti_tcp_port_of(int s) {
    unsigned char entry[HETI_TCP_ENTRY];
    uint32_t scope;
    return heti_tcp_end_of(s, 0, entry, &scope) ? HETI_CAST(int, heti_tcp_get(entry + 2, 2)) : 0;
}

/* ---- open: those who come -------------------------------------------------------------------- */

/* `why` NULL: it has been told. A line for each of the first, then for every power of two. */
static void heti_tcp_dismiss(heti_tcp *m, heti_tcp_guest *g, const char *why) {
    char text[HETI_TCP_TEXT];
    heti_tcp_close_socket(&g->socket);
    if (why == NULL || m->logger.log == NULL || (++m->dropped > 8 && (m->dropped & (m->dropped - 1)) != 0)) return;
    (void)snprintf(text, sizeof text, "tcp: process %d dropped a connection from %s, %s (number %d)", m->process,
                   g->address, why, m->dropped);
    m->logger.log(m->logger.user, HET_LOG_WARNING, HET_ERR_TRANSPORT, text);
}

/* One line, where opening takes longer than two seconds. */
static void heti_tcp_tell_waiting(heti_tcp *m, const char *process, const char *where) {
    char whole[1400];
    if (m->told || m->logger.log == NULL || heti_tcp_now() < m->opened + 2) return;
    m->told = 1;
    (void)snprintf(whole, sizeof whole, "tcp: process %d of %d waits for process %s%s", m->process, m->processes,
                   process, where);
    heti_tcp_clean_text(whole);
    m->logger.log(m->logger.user, HET_LOG_INFO, HET_OK, whole);
}

/* One who comes takes the place of nobody, or of who has come least far, for longest. 0: nobody
   comes. */
static int heti_tcp_invite(heti_tcp *m, double now) {
    struct sockaddr_storage address = HETI_ZEROS;
    socklen_t length = sizeof address;
    unsigned char entry[HETI_TCP_ENTRY];
    heti_tcp_guest *g = &m->guest[0];
    int s = HETI_TCP_SYSTEM("accept", accept(m->listener, heti_tcp_general(&address), &length));
    if (s < 0) {
        /* no descriptors for now, or the guest has left */
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) heti_tcp_nap(5e-3);
        return 0;
    }
    s = heti_tcp_prepare(s);
    if (s < 0) return 1;
    for (int i = 1; i < HETI_TCP_GUESTS && g->socket >= 0; i++) {
        heti_tcp_guest *other = &m->guest[i];
        if (other->socket < 0 || other->stage < g->stage || (other->stage == g->stage && other->since < g->since))
            g = other;
    }
    if (g->socket >= 0) heti_tcp_dismiss(m, g, "which gave way to another");
    g->socket = s;
    g->stage = HETI_TCP_KNOCKS;
    g->have = 0;
    g->since = now;
    heti_tcp_name(g->address, sizeof g->address, &address, length);
    heti_tcp_pack(entry, &address);
    if (m->near_only && !heti_tcp_is_loopback(entry))
        heti_tcp_dismiss(m, g, "not a loopback address: there is no secret");
    return 1;
}

/* What is wrong with a complete hello: an answer and its text. 0: nothing. */
static int heti_tcp_judge(const heti_tcp *m, const unsigned char *hello, heti_tcp_why *why) {
    const uint64_t version = heti_tcp_get(hello + 8, 4), processes = heti_tcp_get(hello + 12, 4),
                   process = heti_tcp_get(hello + 16, 4);
    if (version != HETI_TCP_VERSION)
        return heti_tcp_because(why, HETI_TCP_REFUSED, "process %d speaks version %d, not %llu", m->process,
                                HETI_TCP_VERSION, HETI_CAST(unsigned long long, version));
    if (heti_tcp_get(hello + 24, 8) != m->run || heti_tcp_get(hello + 32, 8) != (m->process > 0 ? m->session : 0))
        return heti_tcp_because(why, HETI_TCP_LATER, "process %d is of another run", m->process);
    if (processes != HETI_CAST(uint64_t, m->processes))
        return heti_tcp_because(why, HETI_TCP_REFUSED, "process %d is one of %d, not of %llu", m->process,
                                m->processes, HETI_CAST(unsigned long long, processes));
    if (process <= HETI_CAST(uint64_t, m->process) || process >= processes)
        return heti_tcp_because(why, HETI_TCP_REFUSED, "process %llu of %d cannot come to process %d",
                                HETI_CAST(unsigned long long, process), m->processes, m->process);
    if (m->peer[process].socket >= 0)
        return heti_tcp_because(why, HETI_TCP_LATER, "there is a process %llu already",
                                HETI_CAST(unsigned long long, process));
    return 0;
}

/* A complete hello becomes a peer or is turned away. */
static void heti_tcp_seat(heti_tcp *m, heti_tcp_guest *g) {
    heti_tcp_why why;
    const double soon = heti_tcp_now() + 1;
    const int answer = heti_tcp_judge(m, g->said, &why);
    if (heti_tcp_get(g->said + 16, 4) != heti_tcp_get(g->knock + 12, 4)) {
        heti_tcp_dismiss(m, g, "which is not the process that it has proved to be");
        return;
    }
    if (answer != 0) {
        (void)heti_tcp_answer(m, g->socket, answer, why.text, strlen(why.text), soon);
    } else if (heti_tcp_answer(m, g->socket, HETI_TCP_WELCOME, NULL, 0, soon)) {
        heti_tcp_peer *p = &m->peer[heti_tcp_get(g->said + 16, 4)];
        p->socket = g->socket;
        p->port = HETI_CAST(int, heti_tcp_get(g->said + 20, 4) & 0xFFFFu);
        memcpy(p->address, g->address, sizeof p->address);
        g->socket = -1;
        return;
    }
    heti_tcp_dismiss(m, g, NULL);
}

/* What a guest had to say next is here: it is answered. Why not, or NULL. */
static const char *heti_tcp_reply(heti_tcp *m, heti_tcp_guest *g) {
    const double soon = heti_tcp_now() + 1;
    const int process = HETI_CAST(int, heti_tcp_get(g->stage == HETI_TCP_KNOCKS ? g->said + 12 : g->knock + 12,
                                                    4) & 0xFFFFu);
    unsigned char proof[HETI_TCP_PROOF];
    g->have = 0;
    if (g->stage == HETI_TCP_KNOCKS) {
        if (heti_tcp_get(g->said + 8, 4) != HETI_TCP_VERSION) return "which speaks another version";
        if (!heti_tcp_random(g->number, sizeof g->number)) return "for want of random numbers";
        memcpy(g->knock, g->said, sizeof g->knock);
        g->stage = HETI_TCP_PROVES;
        return heti_tcp_answer(m, g->socket, HETI_TCP_NUMBER, g->number, sizeof g->number, soon) ? NULL :
            "which has left";
    }
    if (g->stage == HETI_TCP_PROVES) {
        heti_tcp_prove(m, 1, process, m->process, g->knock + 24, g->number, proof);
        if (!heti_tcp_same(proof, g->said, sizeof proof)) return "whose proof of the secret is wrong";
        heti_tcp_prove(m, 0, m->process, process, g->knock + 24, g->number, proof);
        g->stage = HETI_TCP_GREETS;
        return heti_tcp_answer(m, g->socket, HETI_TCP_PROVED, proof, sizeof proof, soon) ? NULL : "which has left";
    }
    heti_tcp_seat(m, g);
    return NULL;
}

/* A guest has said more, or left. */
static void heti_tcp_welcome(heti_tcp *m, heti_tcp_guest *g) {
    const size_t need = g->stage == HETI_TCP_PROVES ? HETI_TCP_PROOF : HETI_TCP_HELLO;
    const ssize_t n = HETI_TCP_SYSTEM("recv", recv(g->socket, g->said + g->have, need - g->have, 0));
    const char *why = NULL;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (n > 0) g->have += HETI_CAST(size_t, n);
    if (n <= 0) why = "which has left";
    else if (g->stage != HETI_TCP_PROVES && memcmp(g->said, "hetrtcp\n", g->have < 8 ? g->have : 8) != 0)
        why = "which is no process of hetrain";
    else if (g->have == need) why = heti_tcp_reply(m, g);
    if (why != NULL) heti_tcp_dismiss(m, g, why);
}

/* While others are awaited, nothing is heard of those who are there unless they leave, and of
   process 0 that it gives up. */
static het_result heti_tcp_look_after(heti_tcp *m, int process, het_error *error) {
    heti_tcp_why text;
    if (process == 0) {
        (void)heti_tcp_hear_text(m, m->peer[0].socket, &text, m->deadline);
        return HETI_TCP_LOST(error, "process 0 has given up: %s", text.text);
    }
    heti_tcp_close_socket(&m->peer[process].socket); /* it may come again */
    return HET_OK;
}

/* "2, 5, 7": those who have not come, or are not `ready`. */
static int heti_tcp_missing(const heti_tcp *m, int ready, char *text, size_t capacity) {
    size_t length = 0;
    int missing = 0;
    text[0] = 0;
    for (int p = m->process + 1; p < m->processes; p++) {
        if (ready ? m->peer[p].ready : m->peer[p].socket >= 0) continue;
        if (length < capacity) {
            const int n = snprintf(text + length, capacity - length, "%s%d", missing > 0 ? ", " : "", p);
            length += HETI_CAST(size_t, n);
        }
        missing++;
    }
    return missing;
}

/* What ended a wait, where heti_tcp_left is 0. */
static const char *heti_tcp_up(const heti_tcp *m) { return heti_tcp_stopped(m) ? "stopped" : "time is up"; }

/* Until all processes above this one have come. */
static het_result heti_tcp_gather(heti_tcp *m, het_error *error) {
    char text[100];
    int missing;
    while ((missing = heti_tcp_missing(m, 0, text, sizeof text)) > 0) {
        const double now = heti_tcp_now(), left = heti_tcp_left(m, m->deadline);
        struct pollfd *f = m->polls;
        const int peers = 1 + HETI_TCP_GUESTS;
        heti_tcp_tell_waiting(m, text, "");
        if (left <= 0)
            return HETI_TCP_LOST(error, "%s, %d of %d processes did not come to process %d: %s", heti_tcp_up(m),
                                 missing, m->processes, m->process, text);
        heti_tcp_watch(&f[0], m->listener, POLLIN);
        for (int i = 0; i < HETI_TCP_GUESTS; i++) heti_tcp_watch(&f[1 + i], m->guest[i].socket, POLLIN);
        for (int i = 0; i < m->processes; i++) heti_tcp_watch(&f[peers + i], m->peer[i].socket, POLLIN);
        if (heti_tcp_poll(f, peers + m->processes, left) < 0) continue;
        for (int i = 0; i < m->processes; i++)
            if (f[peers + i].revents != 0) {
                const het_result result = heti_tcp_look_after(m, i, error);
                if (result != HET_OK) return result;
            }
        for (int i = 0; i < HETI_TCP_GUESTS; i++) {
            if (m->guest[i].socket < 0) continue;
            if (f[1 + i].revents != 0) heti_tcp_welcome(m, &m->guest[i]);
            else if (now - m->guest[i].since > HETI_TCP_GUEST_SECONDS)
                heti_tcp_dismiss(m, &m->guest[i], "which said too little for too long");
        }
        for (int i = 0; f[0].revents != 0 && i < HETI_TCP_GUESTS / 2 && heti_tcp_invite(m, now); i++) {}
    }
    return HET_OK;
}

/* ---- open: going to others ------------------------------------------------------------------- */

/* A connection, or -1 and why. */
static int heti_tcp_dial(const heti_tcp *m, struct sockaddr_storage *address, socklen_t length, double until,
                         heti_tcp_why *why) {
    unsigned char mine[HETI_TCP_ENTRY], theirs[HETI_TCP_ENTRY];
    uint32_t scope;
    int number = 0, s = heti_tcp_socket(address->ss_family);
    socklen_t size = sizeof number;
    if (s < 0) return heti_tcp_because(why, -1, "socket: %s", strerror(errno));
    if (HETI_TCP_SYSTEM("connect", connect(s, heti_tcp_general(address), length)) != 0) number = errno;
    if (number == EINPROGRESS || number == EINTR) {
        if (!heti_tcp_ready(m, s, POLLOUT, until) || getsockopt(s, SOL_SOCKET, SO_ERROR, &number, &size) != 0)
            number = errno;
    }
    if (number == 0 && !(heti_tcp_end_of(s, 0, mine, &scope) && heti_tcp_end_of(s, 1, theirs, &scope))) number = errno;
    /* a port of this machine where nobody listens may be given to the asker itself */
    if (number == 0 && memcmp(mine, theirs, sizeof mine) == 0) number = ECONNREFUSED;
    if (number == 0) return s;
    (void)close(s);
    return heti_tcp_because(why, -1, "%s", strerror(number));
}

/* How a knock and a hello begin. */
static void heti_tcp_begin_hello(unsigned char hello[HETI_TCP_HELLO]) {
    memset(hello, 0, HETI_TCP_HELLO);
    memcpy(hello, "hetrtcp\n", 8);
    heti_tcp_put(hello + 8, 4, HETI_TCP_VERSION);
}

/* Knocks at process `to`, and both prove that they know the secret: HETI_TCP_WELCOME. Else why not;
   HETI_TCP_LATER: `to` is a process, with another secret. */
static int heti_tcp_meet(const heti_tcp *m, int s, int to, double until, heti_tcp_why *why) {
    unsigned char knock[HETI_TCP_HELLO], number[HETI_TCP_PROOF], proof[HETI_TCP_PROOF], expected[HETI_TCP_PROOF];
    size_t size = 0;
    heti_tcp_begin_hello(knock);
    heti_tcp_put(knock + 12, 4, HETI_CAST(uint64_t, m->process));
    heti_tcp_put(knock + 16, 4, HETI_CAST(uint64_t, to));
    if (!heti_tcp_random(knock + 24, HETI_TCP_PROOF) || !heti_tcp_move_all(m, s, NULL, knock, sizeof knock, until) ||
        heti_tcp_hear(m, s, number, sizeof number, &size, until) != HETI_TCP_NUMBER || size != sizeof number)
        return heti_tcp_unheard(why);
    heti_tcp_prove(m, 1, m->process, to, knock + 24, number, proof);
    heti_tcp_prove(m, 0, to, m->process, knock + 24, number, expected);
    if (!heti_tcp_move_all(m, s, NULL, proof, sizeof proof, until) || heti_tcp_hear(m, s, proof, sizeof proof, &size,
        until) != HETI_TCP_PROVED || size != sizeof proof)
        return heti_tcp_because(why, HETI_TCP_LATER, "it takes no proof of this secret: have all the same one?");
    if (heti_tcp_same(proof, expected, sizeof proof)) return HETI_TCP_WELCOME;
    return heti_tcp_because(why, HETI_TCP_LATER, "its proof of the secret is wrong");
}

/* Says hello and waits for the answer: HETI_TCP_WELCOME, HETI_TCP_REFUSED and why, else why not
   yet. */
static int heti_tcp_greet(const heti_tcp *m, int s, int to, double until, heti_tcp_why *why) {
    unsigned char hello[HETI_TCP_HELLO];
    const int kind = heti_tcp_meet(m, s, to, until, why);
    if (kind != HETI_TCP_WELCOME) return kind;
    heti_tcp_begin_hello(hello);
    heti_tcp_put(hello + 12, 4, HETI_CAST(uint64_t, m->processes));
    heti_tcp_put(hello + 16, 4, HETI_CAST(uint64_t, m->process));
    heti_tcp_put(hello + 20, 4, HETI_CAST(uint64_t, heti_tcp_port_of(m->listener)));
    heti_tcp_put(hello + 24, 8, m->run);
    heti_tcp_put(hello + 32, 8, to == 0 ? 0 : m->session);
    if (!heti_tcp_move_all(m, s, NULL, hello, sizeof hello, until))
        return heti_tcp_because(why, 0, "%s", strerror(errno));
    return heti_tcp_hear_text(m, s, why, until);
}

/* Where the processes above this one will come: see WHERE IT LISTENS. */
static int heti_tcp_listen_beside(heti_tcp *m, int s) {
    struct sockaddr_storage address;
    unsigned char entry[HETI_TCP_ENTRY];
    uint32_t scope;
    if (!heti_tcp_end_of(s, 0, entry, &scope)) return -1;
    if (m->lax && heti_tcp_is_loopback(entry)) return heti_tcp_listen_everywhere(0, m->processes);
    heti_tcp_put(entry + 2, 2, 0); /* at a port of its own */
    const socklen_t length = heti_tcp_unpack(&address, entry, scope);
    return heti_tcp_listen_at(&address, length, m->processes);
}

/* One attempt to come to process `to` at an address. The same answers as heti_tcp_greet. */
static int heti_tcp_come(heti_tcp *m, int to, struct sockaddr_storage *address, socklen_t length, double seconds,
                         heti_tcp_why *why) {
    const double now = heti_tcp_now(), until = now + seconds < m->deadline ? now + seconds : m->deadline;
    unsigned char entry[HETI_TCP_ENTRY];
    int kind = 0, s;
    heti_tcp_name(m->peer[to].address, sizeof m->peer[to].address, address, length);
    heti_tcp_pack(entry, address);
    if (m->near_only && !heti_tcp_is_loopback(entry))
        return heti_tcp_because(why, 0, "not a loopback address: there is no secret");
    s = heti_tcp_dial(m, address, length, until, why);
    if (s < 0) return 0;
    if (to == 0 && m->process + 1 < m->processes) {
        heti_tcp_close_socket(&m->listener); /* at the address of an earlier attempt */
        m->listener = heti_tcp_listen_beside(m, s);
        if (m->listener < 0) (void)heti_tcp_because(why, 0, "no port to listen at: %s", strerror(errno));
    }
    if (m->listener >= 0 || m->process + 1 == m->processes) kind = heti_tcp_greet(m, s, to, until, why);
    if (kind == HETI_TCP_LATER || kind == HETI_TCP_REFUSED) m->said = *why;
    if (kind != HETI_TCP_WELCOME) heti_tcp_close_socket(&s);
    m->peer[to].socket = s;
    return kind;
}

/* All addresses of a name. */
static int heti_tcp_come_to(heti_tcp *m, const char *host, int port, double seconds, heti_tcp_why *why) {
    struct addrinfo *found, *a;
    int kind = 0;
    const int status = heti_tcp_resolve(host, port, 0, &found);
    if (status != 0) return heti_tcp_because(why, 0, "%s", gai_strerror(status));
    for (a = found; a != NULL && kind != HETI_TCP_WELCOME && kind != HETI_TCP_REFUSED; a = a->ai_next) {
        struct sockaddr_storage address = heti_tcp_copy_address(a->ai_addr, a->ai_addrlen);
        kind = heti_tcp_come(m, 0, &address, a->ai_addrlen, seconds, why);
    }
    freeaddrinfo(found);
    return kind;
}

/* ---- open: the file -----------------------------------------------------------------------------
   "hetrain-tcp 2 RUN PROCESSES SECRET", RUN and SECRET in 16 and 64 hexadecimal digits, then a line
   "ADDRESS PORT" for each address of process 0. Only the owner can read it, and only one's own is
   believed. */

static uint64_t heti_tcp_mix(uint64_t hash, const void *data, size_t size) { /* FNV-1a, 64 bits */
    const unsigned char *bytes = HETI_CAST(const unsigned char *, data);
    for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * 0x100000001B3u;
    return hash;
}

/* The key of all proofs, from the description's secret and the file's. */
static void heti_tcp_make_key(heti_tcp *m, const unsigned char *of_file) {
    heti_tcp_hmac(m->secret, sizeof m->secret, of_file, of_file != NULL ? HETI_TCP_PROOF : 0, m->key);
}

/* Loopback first: whoever shares the machine uses it. Returns the length. */
static size_t heti_tcp_write_addresses(char *text, size_t capacity, int port) {
    struct ifaddrs *all = NULL, *a;
    size_t length = 0;
    int count = 0;
    if (getifaddrs(&all) != 0) all = NULL;
    for (int loopback = 1; loopback >= 0; loopback--)
        for (a = all; a != NULL && count < HETI_TCP_ADDRESSES; a = a->ifa_next) {
            struct sockaddr_storage address;
            unsigned char entry[HETI_TCP_ENTRY];
            size_t size;
            char host[64];
            if (a->ifa_addr == NULL || (a->ifa_addr->sa_family != AF_INET && a->ifa_addr->sa_family != AF_INET6))
                continue;
            size = a->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
            address = heti_tcp_copy_address(a->ifa_addr, size);
            heti_tcp_pack(entry, &address);
            if (heti_tcp_is_loopback(entry) != loopback || (entry[0] == 6 && entry[4] == 0xFE && entry[5] == 0x80))
                continue;
            if (getnameinfo(a->ifa_addr, HETI_CAST(socklen_t, size), host, sizeof host, NULL, 0, NI_NUMERICHOST) != 0)
                continue;
            length += HETI_CAST(size_t, snprintf(text + length, capacity - length, "%s %d\n", host, port));
            count++;
        }
    if (all != NULL) freeifaddrs(all);
    if (count == 0) length = HETI_CAST(size_t, snprintf(text, capacity, "127.0.0.1 %d\n", port));
    return length;
}

static het_result heti_tcp_publish_file(heti_tcp *m, const het_tcp_desc *d, uint64_t token, const unsigned char *secret,
                                        het_error *error) {
    char path[1100], text[HETI_TCP_FILE];
    const int port = heti_tcp_port_of(m->listener);
    size_t length = HETI_CAST(size_t, snprintf(text, sizeof text, "hetrain-tcp 2 %016llx %d ",
                                               HETI_CAST(unsigned long long, token), m->processes));
    for (int i = 0; i < HETI_TCP_PROOF; i++)
        length += HETI_CAST(size_t, snprintf(text + length, sizeof text - length, "%02x", secret[i]));
    text[length++] = '\n';
    if (d->host != NULL)
        length += HETI_CAST(size_t, snprintf(text + length, sizeof text - length, "%.255s %d\n", d->host, port));
    else length += heti_tcp_write_addresses(text + length, sizeof text - length, port);
    (void)snprintf(path, sizeof path, "%.1024s.%016llx", d->file, HETI_CAST(unsigned long long, token));
    const int f = HETI_TCP_SYSTEM("open", open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (f >= 0) {
        const int written = HETI_TCP_SYSTEM("write", write(f, text, length)) == HETI_CAST(ssize_t, length),
                  closed = close(f) == 0;
        if (written && closed && HETI_TCP_SYSTEM("rename", rename(path, d->file)) == 0) return HET_OK;
    }
    (void)HETI_TCP_LOST(error, "file %s: %.60s", d->file, strerror(errno));
    if (f >= 0) (void)unlink(path);
    return HET_ERR_TRANSPORT;
}

/* The file's text, the run it names and its secret. 0: it is not there, not whole, or another's. */
static int heti_tcp_read_file(const char *path, char text[HETI_TCP_FILE], uint64_t *token, unsigned char *secret,
                              heti_tcp_why *why) {
    const int f = HETI_TCP_SYSTEM("open", open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    ssize_t n = f >= 0 ? HETI_TCP_SYSTEM("read", read(f, text, HETI_TCP_FILE - 1)) : -1;
    struct stat status;
    unsigned long long run = 0;
    unsigned int byte;
    int processes, at = 0, i;
    if (n < 0) (void)heti_tcp_because(why, 0, "%s", strerror(errno));
    text[n < 0 ? 0 : n] = 0;
    i = f >= 0 && fstat(f, &status) == 0 && status.st_uid == geteuid() && (status.st_mode & 077) == 0;
    if (f >= 0) (void)close(f);
    if (n <= 0) return 0;
    if (!i) return heti_tcp_because(why, 0, "not this user's alone (mode 0600)");
    if (sscanf(text, "hetrain-tcp 2 %16llx %d %n", &run, &processes, &at) == 2 && at > 0 && text[n - 1] == '\n') {
        for (i = 0; i < HETI_TCP_PROOF && sscanf(text + at + 2 * i, "%2x", &byte) == 1; i++)
            secret[i] = HETI_CAST(unsigned char, byte);
        *token = run;
        if (i == HETI_TCP_PROOF) return 1;
    }
    return heti_tcp_because(why, 0, "not the file of a run");
}

/* One attempt at all addresses in the file. */
static int heti_tcp_come_by_file(heti_tcp *m, const char *path, uint64_t run, double seconds, heti_tcp_why *why) {
    char text[HETI_TCP_FILE], host[260], *line;
    unsigned char secret[HETI_TCP_PROOF];
    uint64_t token = 0;
    int port, kind = 0;
    if (!heti_tcp_read_file(path, text, &token, secret, why)) return 0;
    heti_tcp_make_key(m, secret);
    m->run = heti_tcp_mix(run, &token, sizeof token);
    (void)heti_tcp_because(why, 0, "it names no address");
    for (line = strchr(text, '\n'); line != NULL && kind != HETI_TCP_WELCOME &&
         kind != HETI_TCP_REFUSED; line = strchr(line + 1, '\n'))
        if (sscanf(line + 1, "%255s %d", host, &port) == 2 && port > 0 && port < 65536)
            kind = heti_tcp_come_to(m, host, port, seconds, why);
    return kind;
}

/* Removes the file if it still is this run's. */
static void heti_tcp_remove_file(const char *path, uint64_t token) {
    char text[HETI_TCP_FILE];
    heti_tcp_why why;
    unsigned char secret[HETI_TCP_PROOF];
    uint64_t found = 0;
    if (heti_tcp_read_file(path, text, &found, secret, &why) && found == token) (void)unlink(path);
}

/* ---- open: all together ---------------------------------------------------------------------- */

/* Process 0 listens, and says where. */
static het_result heti_tcp_be_first(heti_tcp *m, const het_tcp_desc *d, uint64_t run, uint64_t *token,
                                    het_error *error) {
    const int first = HETI_CAST(int, d->port), last = first + HETI_CAST(int, d->ports) - 1;
    unsigned char secret[HETI_TCP_PROOF];
    for (int port = first; port <= last && m->listener < 0; port++) {
        m->listener = heti_tcp_listen_first(d->host, port, m->near_only, m->processes + HETI_TCP_GUESTS);
        if (m->listener < 0 && errno != EADDRINUSE) break;
    }
    if (m->listener < 0)
        return HETI_TCP_LOST(error, "process 0 cannot listen at port %d%s: %.100s", first, last > first ?
                             " and those that follow" : "", strerror(errno));
    if (d->file == NULL) return HET_OK;
    if (heti_tcp_draw(secret, sizeof secret, error) != HET_OK || heti_tcp_draw(token, sizeof *token, error) != HET_OK)
        return HET_ERR_TRANSPORT;
    *token |= 1; /* 0: there is no file */
    heti_tcp_make_key(m, secret);
    m->run = heti_tcp_mix(run, token, sizeof *token);
    return heti_tcp_publish_file(m, d, *token, secret, error);
}

/* Comes to process 0, which may not be there yet. */
static het_result heti_tcp_find_first(heti_tcp *m, const het_tcp_desc *d, uint64_t run, het_error *error) {
    heti_tcp_why why;
    char where[1100];
    double nap = 0.02, seconds = d->file == NULL && d->ports == 1 ? 30 : 3; /* for one there who says nothing */
    int kind = 0;
    why.text[0] = 0;
    if (d->file != NULL) (void)snprintf(where, sizeof where, " (file %s)", d->file);
    else (void)snprintf(where, sizeof where, " at %s port %d", d->host, HETI_CAST(int, d->port));
    for (;;) {
        int port, last = HETI_CAST(int, d->port + d->ports) - 1;
        if (d->file != NULL) kind = heti_tcp_come_by_file(m, d->file, run, seconds, &why);
        for (port = HETI_CAST(int, d->port); d->file == NULL && port <= last && kind != HETI_TCP_WELCOME; port++)
            kind = heti_tcp_come_to(m, d->host, port, seconds, &why);
        if (kind == HETI_TCP_WELCOME) return HET_OK;
        if (kind == HETI_TCP_REFUSED)
            return HETI_TCP_LOST(error, "refused: %s", why.text);
        heti_tcp_tell_waiting(m, "0", where);
        if (heti_tcp_left(m, m->deadline - nap) <= 0) break;
        heti_tcp_nap(nap);
        nap = nap < 0.2 ? 1.3 * nap : nap;
        seconds = seconds < 30 ? 1.3 * seconds : seconds;
    }
    const int more = m->said.text[0] != 0 && strcmp(m->said.text, why.text) != 0;
    return HETI_TCP_LOST(error, "%s, process 0%s is not reached: %s%s%s", heti_tcp_up(m), where, why.text, more ?
                         "; it was, and said: " : "", more ? m->said.text : "");
}

/* Process 0 tells process `to` where the others are. Those that came by a loopback address share
   this machine: for others they are where it is. */
static int heti_tcp_send_table(heti_tcp *m, int to) {
    unsigned char *table = m->peer[to].in, here[HETI_TCP_ENTRY];
    uint32_t scope;
    if (!heti_tcp_end_of(m->peer[to].socket, 0, here, &scope)) return 0;
    heti_tcp_put(table, 8, m->session);
    memset(table + 8, 0, HETI_TCP_ENTRY);
    for (int p = 1; p < m->processes; p++) {
        unsigned char *entry = table + 8 + p * HETI_TCP_ENTRY;
        if (!heti_tcp_end_of(m->peer[p].socket, 1, entry, &scope)) return 0;
        if (heti_tcp_is_loopback(entry) && !heti_tcp_is_loopback(here)) memcpy(entry, here, HETI_TCP_ENTRY);
        heti_tcp_put(entry + 2, 2, HETI_CAST(uint64_t, m->peer[p].port));
    }
    return heti_tcp_answer(m, m->peer[to].socket, HETI_TCP_TABLE, table,
                           8 + HETI_CAST(size_t, m->processes) * HETI_TCP_ENTRY, m->deadline);
}

/* Process 0: until all have connected to all. */
static het_result heti_tcp_await_ready(heti_tcp *m, het_error *error) {
    heti_tcp_why text;
    char names[100];
    int p, waits;
    while ((waits = heti_tcp_missing(m, 1, names, sizeof names)) > 0) {
        const double left = heti_tcp_left(m, m->deadline);
        if (left <= 0)
            return HETI_TCP_LOST(error, "%s, %d of %d processes have not connected to the others: %s", heti_tcp_up(m),
                                 waits, m->processes, names);
        for (p = 0; p < m->processes; p++)
            heti_tcp_watch(&m->polls[p], m->peer[p].socket, POLLIN); /* who is ready may leave */
        if (heti_tcp_poll(m->polls, m->processes, left) < 0) continue;
        for (p = 1; p < m->processes; p++) {
            if (m->polls[p].revents == 0) continue;
            m->peer[p].ready = heti_tcp_hear_text(m, m->peer[p].socket, &text, m->deadline) == HETI_TCP_READY;
            if (!m->peer[p].ready)
                return HETI_TCP_LOST(error, "process %d failed: %s", p, text.text);
        }
    }
    return HET_OK;
}

/* The others: connects to all processes between 0 and this one, and has those above come. */
static het_result heti_tcp_connect_all(heti_tcp *m, het_error *error) {
    unsigned char *table = m->peer[0].in, here[HETI_TCP_ENTRY];
    struct sockaddr_storage address;
    uint32_t scope = 0;
    heti_tcp_why why;
    size_t size = 0;
    int p, kind = heti_tcp_hear(m, m->peer[0].socket, table, HETI_TCP_IN, &size, m->deadline);
    if (kind == HETI_TCP_FAILED)
        return HETI_TCP_LOST(error, "process 0 has given up: %.*s", HETI_CAST(int, size < 180 ? size : 180),
                             HETI_CAST(const char *, HETI_CAST(const void *, table)));
    if (kind != HETI_TCP_TABLE || size != 8 + HETI_CAST(size_t, m->processes) * HETI_TCP_ENTRY)
        return HETI_TCP_LOST(error, "process 0 does not say where the others are: %.80s", kind == 0 && errno != 0 ?
                             strerror(errno) : "the connection ended");
    m->session = heti_tcp_get(table, 8);
    (void)heti_tcp_end_of(m->peer[0].socket, 0, here, &scope);
    for (p = 1; p < m->process; p++) {
        const socklen_t length = heti_tcp_unpack(&address, table + 8 + p * HETI_TCP_ENTRY, scope);
        do {
            kind = heti_tcp_come(m, p, &address, length, 5, &why);
            if (kind == HETI_TCP_WELCOME) break;
            heti_tcp_nap(0.05);
            /* process 0 has given up */
            if (heti_tcp_left(m, m->deadline) <= 0 || heti_tcp_ready(m, m->peer[0].socket, POLLIN, 0)) break;
        } while (kind != HETI_TCP_REFUSED);
        if (kind == HETI_TCP_WELCOME) continue;
        if (heti_tcp_ready(m, m->peer[0].socket, POLLIN, 0)) return heti_tcp_look_after(m, 0, error);
        return HETI_TCP_LOST(error, "process %d does not reach process %d at %.60s: %.100s", m->process, p,
                             m->peer[p].address, why.text);
    }
    return heti_tcp_gather(m, error);
}

/* The thread waits for its turn, which the opener keeps until all is well. Signals are for the
   program's own threads. */
static het_result heti_tcp_start_thread(heti_tcp *m, het_error *error) {
    int ends[2], status;
    sigset_t all, before;
    if (HETI_TCP_SYSTEM("pipe", pipe(ends)) != 0)
        return HETI_TCP_LOST(error, "no pipe: %s", strerror(errno));
    m->wake_read = heti_tcp_prepare(ends[0]);
    m->wake_write = heti_tcp_prepare(ends[1]);
    if (m->wake_read < 0 || m->wake_write < 0)
        return HETI_TCP_LOST(error, "no pipe: %s", strerror(errno));
    m->moved_time = m->next_beat = heti_tcp_now();
    status = pthread_mutex_init(&m->lock, NULL);
    if (status == 0 && (status = pthread_mutex_init(&m->turn, NULL)) != 0) (void)pthread_mutex_destroy(&m->lock);
    if (status == 0) {
        (void)pthread_mutex_lock(&m->turn);
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before);
        status = HETRAIN_TCP_FAULT("pthread_create") ? EAGAIN : pthread_create(&m->thread, NULL, heti_tcp_run, m);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        m->running = status == 0;
        if (status == 0) return HET_OK;
        (void)pthread_mutex_unlock(&m->turn);
        (void)pthread_mutex_destroy(&m->turn);
        (void)pthread_mutex_destroy(&m->lock);
    }
    return HETI_TCP_LOST(error, "the communication thread could not be started: %s", strerror(status));
}

/* Process 0's part: all come, learn of each other, connect, and go. */
static het_result heti_tcp_open_first(heti_tcp *m, const het_tcp_desc *d, uint64_t run, het_error *error) {
    uint64_t token = 0;
    het_result result = heti_tcp_be_first(m, d, run, &token, error);
    if (result == HET_OK) result = heti_tcp_gather(m, error);
    if (token != 0) heti_tcp_remove_file(d->file, token);
    if (result == HET_OK) result = heti_tcp_draw(&m->session, sizeof m->session, error);
    m->session |= 1; /* of who comes to process 0: 0 */
    for (int p = 1; p < m->processes && result == HET_OK; p++)
        if (!heti_tcp_send_table(m, p))
            result = HETI_TCP_LOST(error, "process %d has gone: %s", p, strerror(errno));
    if (result == HET_OK) result = heti_tcp_await_ready(m, error);
    if (result == HET_OK) result = heti_tcp_start_thread(m, error);
    for (int p = 1; p < m->processes; p++) {
        const char *text = result == HET_OK || error == NULL ? "" : error->text;
        if (m->peer[p].socket < 0) continue;
        if (!heti_tcp_answer(m, m->peer[p].socket, result == HET_OK ? HETI_TCP_GO : HETI_TCP_FAILED, text, strlen(text),
                             heti_tcp_now() + 1) && result == HET_OK)
            result = HETI_TCP_LOST(error, "process %d has gone: %s", p, strerror(errno));
    }
    return result;
}

static het_result heti_tcp_open_other(heti_tcp *m, const het_tcp_desc *d, uint64_t run, het_error *error) {
    heti_tcp_why text;
    het_result result = heti_tcp_find_first(m, d, run, error);
    if (result != HET_OK) return result;
    result = heti_tcp_connect_all(m, error);
    if (result == HET_OK) result = heti_tcp_start_thread(m, error);
    if (result != HET_OK) {
        (void)heti_tcp_answer(m, m->peer[0].socket, HETI_TCP_FAILED, error->text, strlen(error->text),
                              heti_tcp_now() + 1);
        return result;
    }
    if (!heti_tcp_answer(m, m->peer[0].socket, HETI_TCP_READY, NULL, 0, m->deadline))
        return HETI_TCP_LOST(error, "process 0 has gone: %s", strerror(errno));
    if (heti_tcp_hear_text(m, m->peer[0].socket, &text, m->deadline) == HETI_TCP_GO) return HET_OK;
    return HETI_TCP_LOST(error, "process 0 has given up: %s", text.text);
}

static het_result heti_tcp_seconds(double *seconds, double standard, const char *name, het_error *error) {
    if (!(*seconds >= 0 && *seconds <= 1e6))
        return HETI_TCP_BAD(error, "%s is %g, must be from 0 (default) to 1e6", name, *seconds);
    if (!(*seconds > 0)) *seconds = standard;
    return HET_OK;
}

static het_result heti_tcp_place_settings(het_tcp_desc *d, het_error *error) {
    if (d->processes < 1 || d->processes > HETI_TCP_MOST)
        return HETI_TCP_BAD(error, "processes is %lld, must be from 1 to %d", HETI_CAST(long long, d->processes),
                            HETI_TCP_MOST);
    if (d->process < 0 || d->process >= d->processes)
        return HETI_TCP_BAD(error, "process is %lld, there are %lld", HETI_CAST(long long, d->process),
                            HETI_CAST(long long, d->processes));
    if (d->processes > 1 && d->file == NULL && (d->host == NULL || d->host[0] == 0))
        return HETI_TCP_BAD(error, "neither host nor file says where process 0 is");
    if (d->file != NULL && (d->file[0] == 0 || strlen(d->file) > 1000))
        return HETI_TCP_BAD(error, "file has %zu bytes, must have 1 to 1000", strlen(d->file));
    if (d->host != NULL && strlen(d->host) > 255)
        return HETI_TCP_BAD(error, "host has %zu bytes, 255 are the most", strlen(d->host));
    if (d->secret_size < 0 || d->secret_size > 65536 || (d->secret == NULL && d->secret_size > 0))
        return HETI_TCP_BAD(error, "secret_size is %lld, must be from 0 to 65536 bytes that are there",
                            HETI_CAST(long long, d->secret_size));
    if (d->ports == 0) d->ports = 1;
    if (d->ports < 1 || d->port < 0 || d->port > 65535 || d->ports > 65536 - d->port ||
        (d->processes > 1 && d->port == 0 && d->file == NULL))
        return HETI_TCP_BAD(error, "port is %lld, ports %lld: must lie from 1 to 65535", HETI_CAST(long long, d->port),
                            HETI_CAST(long long, d->ports));
    return HET_OK;
}

static het_result heti_tcp_settings(const het_tcp_desc *desc, het_tcp_desc *settings, het_error *error) {
    memset(settings, 0, sizeof *settings);
    if (desc == NULL) return HETI_TCP_BAD(error, "desc is NULL");
    *settings = *desc;
    if (settings->start_canary != 0 || settings->end_canary != 0)
        return HETI_TCP_BAD(error, "the description was not cleared to 0");
    het_result result = heti_tcp_place_settings(settings, error);
    if (result == HET_OK) result = heti_tcp_seconds(&settings->open_seconds, 120, "open_seconds", error);
    if (result == HET_OK) result = heti_tcp_seconds(&settings->heartbeat_seconds, 0.5, "heartbeat_seconds", error);
    if (result == HET_OK) result = heti_tcp_seconds(&settings->dead_seconds, 10, "dead_seconds", error);
    if (result == HET_OK) result = heti_tcp_seconds(&settings->abort_seconds, 5, "abort_seconds", error);
    if (result != HET_OK) return result;
    if ((settings->allocator.alloc == NULL) != (settings->allocator.free == NULL))
        return HETI_TCP_BAD(error, "the allocator has one of alloc and free, must have both or neither");
    if (settings->allocator.alloc == NULL) {
#ifdef HETRAIN_NO_DEFAULT_ALLOCATOR
        return HETI_TCP_BAD(error, "the allocator is missing, and this build has no default one");
#else
        settings->allocator.alloc = heti_tcp_malloc;
        settings->allocator.free = heti_tcp_release;
#endif
    }
    return HET_OK;
}

static size_t heti_tcp_whole(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* One block: the transport, [processes] peers, descriptors for poll, then for each other process
   its buffers and places. */
static het_result heti_tcp_create(const het_tcp_desc *settings, heti_tcp **created, het_error *error) {
    const size_t processes = HETI_CAST(size_t, settings->processes), head = heti_tcp_whole(sizeof(heti_tcp));
    const size_t peers = heti_tcp_whole(processes * sizeof(heti_tcp_peer));
    const size_t polls = heti_tcp_whole((2 * processes + 1 + HETI_TCP_GUESTS) * sizeof(struct pollfd));
    const size_t places = heti_tcp_whole(HETI_TCP_PLACES * sizeof(heti_tcp_place)),
                 each = HETI_TCP_IN + HETI_TCP_OUT + places;
    const size_t block = head + peers + polls + (processes - 1) * each;
    unsigned char *rest = HETI_CAST(unsigned char *, settings->allocator.alloc(settings->allocator.user, block, 64));
    *created = NULL;
    if (rest == NULL)
        return heti_tcp_fail(error, HET_ERR_OOM, "het_tcp_open: the allocator has no %zu bytes", block);
    memset(rest, 0, head + peers + polls);
    heti_tcp *m = HETI_CAST(heti_tcp *, HETI_CAST(void *, rest));
    m->peer = HETI_CAST(heti_tcp_peer *, HETI_CAST(void *, rest + head));
    m->polls = HETI_CAST(struct pollfd *, HETI_CAST(void *, rest + head + peers));
    m->looks = m->polls + processes + 1 + HETI_TCP_GUESTS;
    rest += head + peers + polls;
    m->block = block;
    m->allocator = settings->allocator;
    m->heartbeat = settings->heartbeat_seconds;
    m->dead = settings->dead_seconds;
    m->abort_limit = settings->abort_seconds;
    m->processes = HETI_CAST(int, settings->processes);
    m->process = HETI_CAST(int, settings->process);
    m->listener = m->wake_read = m->wake_write = -1;
    for (int i = 0; i < HETI_TCP_GUESTS; i++) m->guest[i].socket = -1;
    for (int p = 0; p < m->processes; p++) {
        heti_tcp_peer *peer = &m->peer[p];
        peer->socket = -1;
        if (p == m->process) continue;
        peer->in = rest;
        peer->out = rest + HETI_TCP_IN;
        heti_tcp_place *place = HETI_CAST(heti_tcp_place *, HETI_CAST(void *, rest + HETI_TCP_IN + HETI_TCP_OUT));
        for (int i = 0; i < HETI_TCP_PLACES; i++, place++) {
            place->next = peer->places;
            peer->places = place;
        }
        peer->credit = HETI_TCP_PLACES;
        rest += each;
    }
    *created = m;
    return HET_OK;
}

static void heti_tcp_end_opening(heti_tcp *m) {
    heti_tcp_close_socket(&m->listener);
    for (int i = 0; i < HETI_TCP_GUESTS; i++) heti_tcp_close_socket(&m->guest[i].socket);
    memset(m->secret, 0, sizeof m->secret);
    memset(m->key, 0, sizeof m->key);
}

static void heti_tcp_destroy(heti_tcp *m) {
    const het_allocator allocator = m->allocator;
    heti_tcp_page *page, *next;
    heti_tcp_end_opening(m);
    for (int p = 0; p < m->processes; p++) heti_tcp_close_socket(&m->peer[p].socket);
    heti_tcp_close_socket(&m->wake_read);
    heti_tcp_close_socket(&m->wake_write);
    for (page = m->pages; page != NULL; page = next) {
        next = page->next;
        allocator.free(allocator.user, page, sizeof *page);
    }
    allocator.free(allocator.user, m, m->block);
}

static void heti_tcp_join(heti_tcp *m) {
    (void)pthread_join(m->thread, NULL);
    (void)pthread_mutex_destroy(&m->turn);
    (void)pthread_mutex_destroy(&m->lock);
}

static het_result heti_tcp_connect(heti_tcp *m, const het_tcp_desc *d, het_error *error) {
    const char *name = d->run != NULL ? d->run : "";
    const rlim_t most = HETI_CAST(rlim_t, m->processes) + 1 + HETI_TCP_GUESTS;
    struct rlimit files;
    const uint64_t run = heti_tcp_mix(0xCBF29CE484222325u, name, strlen(name));
    m->run = run;
    if (m->processes == 1) return heti_tcp_start_thread(m, error);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < most) /* poll would take no more either */
        return HETI_TCP_LOST(error, "%d processes take up to %d open files, this one may have %llu (ulimit -n)",
                             m->processes, HETI_CAST(int, most), HETI_CAST(unsigned long long, files.rlim_cur));
    m->logger = d->logger;
    m->stopped = d->stopped, m->user = d->user;
    m->near_only = d->secret_size == 0 && d->file == NULL && !d->insecure;
    if (m->near_only && !heti_tcp_is_near(d->host))
        return HETI_TCP_BAD(error, "host %.100s is not a loopback address: it needs a secret, or insecure", d->host);
    m->lax = !m->near_only && (d->host == NULL || !heti_tcp_is_exact(d->host));
    heti_tcp_hmac("hetrain-tcp", 11, d->secret, HETI_CAST(size_t, d->secret_size), m->secret);
    heti_tcp_make_key(m, NULL);
    return m->process == 0 ? heti_tcp_open_first(m, d, run, error) : heti_tcp_open_other(m, d, run, error);
}

HETRAIN_API het_result het_tcp_open(const het_tcp_desc *desc, het_transport *transport, het_error *error) {
    het_tcp_desc settings;
    het_error own;
    heti_tcp *m = NULL;
    if (error == NULL) error = &own;
    if (transport == NULL) return HETI_TCP_BAD(error, "transport is NULL");
    transport->iface = NULL;
    transport->self = NULL;
    het_result result = heti_tcp_settings(desc, &settings, error);
    if (result == HET_OK) result = heti_tcp_create(&settings, &m, error);
    if (result != HET_OK) return result;
    m->opened = heti_tcp_now();
    m->deadline = m->opened + settings.open_seconds;
    result = heti_tcp_connect(m, &settings, error);
    if (result == HET_ERR_TRANSPORT && heti_tcp_stopped(m)) result = error->code = HET_ERR_CANCELLED;
    heti_tcp_end_opening(m);
    if (m->running) {
        for (int p = 0; p < m->processes; p++) m->peer[p].heard = heti_tcp_now();
        m->leave = result != HET_OK;
        (void)pthread_mutex_unlock(&m->turn);
    }
    if (result != HET_OK) {
        if (m->running) heti_tcp_join(m);
        heti_tcp_destroy(m);
        return result;
    }
    transport->iface = &heti_tcp_iface;
    transport->self = m;
    return HET_OK;
}

HETRAIN_API het_result het_tcp_close(het_transport *transport, het_error *error) {
    int missing = 0, clean;
    if (transport == NULL || transport->self == NULL) return HET_OK;
    if (transport->iface != &heti_tcp_iface)
        return heti_tcp_fail(error, HET_ERR_INVALID, "het_tcp_close: the transport is \"%s\", not \"tcp\"",
                             transport->iface->name);
    heti_tcp *m = HETI_CAST(heti_tcp *, transport->self);
    transport->iface = NULL;
    transport->self = NULL;
    (void)pthread_mutex_lock(&m->lock);
    m->closing = m->stop = 1;
    m->close_time = m->looked = heti_tcp_now();
    heti_tcp_wake(m);
    (void)pthread_mutex_unlock(&m->lock);
    heti_tcp_join(m);
    clean = m->clean;
    for (int p = 0; p < m->processes; p++) missing += p != m->process && !m->peer[p].bye;
    if (!clean)
        (void)heti_tcp_fail(error, HET_ERR_TRANSPORT, "het_tcp_close: no goodbye of %d of %d other processes: %s",
                            missing, m->processes - 1, m->error.text);
    heti_tcp_destroy(m);
    return clean ? HET_OK : HET_ERR_TRANSPORT;
}

#ifdef __cplusplus
}
#endif
#endif /* implementation */

/* Licence: that of hetrain.h. */
