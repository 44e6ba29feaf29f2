/* Where the other processes are, without MPI: from an option RANK/COUNT@HOST:PORT or RANK/COUNT@file:PATH, or from what a launcher has put into the
   environment: rank and size (launch.h), MASTER_ADDR and MASTER_PORT, as torchrun does and as is usual under Slurm. Not part of hetrain. */
#ifndef PROGRAMS_CONNECT_H
#define PROGRAMS_CONNECT_H

#include "hetrain_tcp.c"
#include "files.h"
#include "launch.h"

#include <errno.h>

typedef struct connect_place {
    int64_t processes, process, port, ports; /* processes 0: nothing says that there are others */
    char host[256], file[1001], run[300];    /* host or file is "" */
    double seconds;                          /* for all to come; 0: as het_tcp_desc says */
    int (*stopped)(void *user);              /* likewise; NULL: never */
    void *user;
    const char *told;                        /* what says where: --world, MASTER_ADDR */
} connect_place;

static inline het_result connect_fail(het_error *error, const char *name, const char *value, const char *what) {
    char whole[2048];
    snprintf(whole, sizeof whole, "%s%s%.1100s: %s", name, value[0] != 0 ? " " : "", value, what);
    return het_error_put(error, HET_ERR_INVALID, whole);
}

/* Digits only, from `least` to `most`. */
static inline int connect_number(const char *text, size_t length, int64_t least, int64_t most, int64_t *value) {
    size_t i;
    *value = 0;
    for (i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || *value > most) return 0;
        *value = *value * 10 + (text[i] - '0');
    }
    return length > 0 && *value >= least && *value <= most;
}

/* HOST:PORT, [IPv6]:PORT or file:PATH. */
static inline het_result connect_where(connect_place *place, const char *name, const char *value, const char *where, het_error *error) {
    const char *colon = strrchr(where, ':'), *host = where;
    size_t length;
    if (strncmp(where, "file:", 5) == 0) {
        if (where[5] == 0 || strlen(where + 5) >= sizeof place->file)
            return connect_fail(error, name, value, "file: wants a path of at most 1000 bytes");
        snprintf(place->file, sizeof place->file, "%s", where + 5);
        return HET_OK;
    }
    if (colon == NULL || !connect_number(colon + 1, strlen(colon + 1), 1, 65535, &place->port))
        return connect_fail(error, name, value, "expected HOST:PORT, a port from 1 to 65535, or file:PATH");
    length = (size_t)(colon - where);
    if (length > 2 && host[0] == '[' && host[length - 1] == ']') host++, length -= 2;
    else if (memchr(host, ':', length) != NULL) return connect_fail(error, name, value, "an IPv6 number stands in brackets: [::1]:29500");
    if (length == 0 || length >= sizeof place->host) return connect_fail(error, name, value, "expected HOST:PORT or file:PATH");
    memcpy(place->host, host, length);
    place->host[length] = 0;
    return HET_OK;
}

/* The value of --world. */
static inline het_result connect_parse(const char *name, const char *value, connect_place *place, het_error *error) {
    const char *slash = strchr(value, '/'), *at = strchr(value, '@');
    memset(place, 0, sizeof *place);
    place->told = name;
    place->ports = 1;
    if (slash == NULL || at == NULL || slash > at || !connect_number(slash + 1, (size_t)(at - slash - 1), 1, 2048, &place->processes))
        return connect_fail(error, name, value, "expected RANK/COUNT@HOST:PORT or RANK/COUNT@file:PATH, at most 2048 processes");
    if (!connect_number(value, (size_t)(slash - value), 0, place->processes - 1, &place->process))
        return connect_fail(error, name, value, "the rank must be below the count");
    return connect_where(place, name, value, at + 1, error);
}

/* A launcher that also says where process 0 is. torchrun may serve a store of its own at MASTER_PORT: then one of the ports behind it is taken. */
static inline het_result connect_detect(const het_launch *launch, connect_place *place, het_error *error) {
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT"), *store = getenv("TORCHELASTIC_USE_AGENT_STORE");
    const char *run = getenv("TORCHELASTIC_RUN_ID"), *restart = getenv("TORCHELASTIC_RESTART_COUNT");
    memset(place, 0, sizeof *place);
    if (launch->size < 2 || host == NULL || port == NULL || host[0] == 0) return HET_OK;
    place->ports = 1;
    if (strlen(host) >= sizeof place->host) return connect_fail(error, "MASTER_ADDR", host, "longer than 255 bytes");
    if (!connect_number(port, strlen(port), 1, 65535, &place->port)) return connect_fail(error, "MASTER_PORT", port, "not a port from 1 to 65535");
    if (store != NULL && strcmp(store, "True") == 0) {
        if (place->port > 65535 - 16) place->port -= 17; /* there is nothing behind it */
        place->port++;
        place->ports = 16;
    }
    place->told = "MASTER_ADDR";
    snprintf(place->host, sizeof place->host, "%s", launch->local_size == launch->size ? "127.0.0.1" : host); /* all are on this machine */
    snprintf(place->run, sizeof place->run, "%.200s:%.20s", run != NULL ? run : "", restart != NULL ? restart : "");
    place->processes = launch->size;
    place->process = launch->rank;
    return HET_OK;
}

/* What all processes know and nobody else: the bytes of a file, without line ends behind them, or of the environment's HETRAIN_WORLD_SECRET. */
typedef struct connect_secret { char bytes[4096]; size_t size; int insecure; } connect_secret;

static inline het_result connect_take_secret(connect_secret *secret, const char *path, het_error *error) {
    const char *name = path != NULL ? "--world-secret" : "HETRAIN_WORLD_SECRET", *text = path != NULL ? NULL : getenv(name);
    FILE *file = path != NULL ? fopen(path, "rb") : NULL;
    int whole = 1;
    secret->size = 0;
    if (path == NULL && text == NULL) return HET_OK;
    if (path != NULL && file == NULL) return connect_fail(error, name, path, strerror(errno));
    if (file != NULL) {
        secret->size = fread(secret->bytes, 1, sizeof secret->bytes, file);
        whole = !ferror(file) && feof(file);
        fclose(file);
    } else {
        whole = strlen(text) < sizeof secret->bytes;
        secret->size = (size_t)snprintf(secret->bytes, sizeof secret->bytes, "%s", text);
    }
    if (!whole) return connect_fail(error, name, path != NULL ? path : "", "cannot be read, or has more than 4095 bytes");
    while (secret->size > 0 && (secret->bytes[secret->size - 1] == '\n' || secret->bytes[secret->size - 1] == '\r')) secret->size--;
    if (secret->size < 16)
        return connect_fail(error, name, path != NULL ? path : "", "has fewer than 16 bytes: head -c 32 /dev/urandom | base64 makes one");
    return HET_OK;
}

static inline het_result connect_open(const connect_place *place, const connect_secret *secret, const het_logger *logger, het_transport *transport,
                                      het_error *error) {
    het_tcp_desc desc;
    het_result result;
    write_target meeting; /* process 0 writes it; where its directory is missing, nobody can */
    const int named = place->file[0] != 0, bad = named ? target_find(&meeting, place->told, place->file) : 0;
    if (bad != 0 && (place->process == 0 || bad == ENOENT || bad == ENOTDIR || bad == EISDIR))
        return connect_fail(error, place->told, place->file, strerror(bad));
    if (named && bad == 0 && meeting.temporary[0] == 0) return connect_fail(error, place->told, place->file, "a pipe or device, not a file");
    memset(&desc, 0, sizeof desc);
    desc.processes = place->processes;
    desc.process = place->process;
    desc.host = place->host[0] != 0 ? place->host : NULL;
    desc.port = place->port;
    desc.ports = place->ports;
    desc.file = place->file[0] != 0 ? place->file : NULL;
    desc.run = place->run;
    desc.secret = secret->bytes;
    desc.secret_size = (int64_t)secret->size;
    desc.insecure = secret->insecure;
    desc.open_seconds = place->seconds, desc.stopped = place->stopped, desc.user = place->user;
    desc.logger = *logger;
    result = het_tcp_open(&desc, transport, error);
    if (result == HET_ERR_INVALID && desc.file == NULL && secret->size == 0 && !secret->insecure && desc.processes <= 2048) /* as options call it */
        return connect_fail(error, place->told, place->host,
                            "not this machine alone: wants --world-secret FILE (or HETRAIN_WORLD_SECRET), or --insecure-world");
    return result;
}

#endif
