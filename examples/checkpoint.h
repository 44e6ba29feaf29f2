/* Checkpoints of the example programs: written by a thread of their own, found again, options compared, signals. Include it after common.h. */
#ifndef EXAMPLES_CHECKPOINT_H
#define EXAMPLES_CHECKPOINT_H

#include "disk.h"

#include <pthread.h>
#include <signal.h>

/* ---- saving beside the training ------------------------------------------------------------------------------------- */

typedef struct saver {
    het_checkpoint *checkpoint;
    int64_t saved_step;             /* of the last checkpoint taken, -1: none */
    pthread_t thread;
    int running;
    het_result result;              /* of the thread */
    het_error error;
} saver;

static inline int saver_open(saver *s, const char *directory, int64_t keep) {
    const het_disk disk = disk_posix();
    het_checkpoint_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.disk = &disk, desc.directory = directory, desc.keep = keep;
    s->saved_step = -1;
    return het_checkpoint_create(&desc, &s->checkpoint, &s->error) == HET_OK ? 0 : fail(FAILED, "--out: %s", s->error.text);
}

static inline void *saver_write(void *user) {
    saver *s = (saver *)user;
    s->result = het_checkpoint_write(s->checkpoint, &s->error);
    return NULL;
}

/* Waits for the checkpoint that is being written; what went wrong with it ends the run. */
static inline int saver_wait(saver *s) {
    if (!s->running) return 0;
    s->running = 0;
    pthread_join(s->thread, NULL);
    return s->result == HET_OK ? 0 : fail(FAILED, "saving step %lld: %s", (long long)s->saved_step, s->error.text);
}

/* Copies the context and lets a thread write the copy; where no thread can be had, the caller's does. All processes call it, `writes` on one. */
static inline int saver_start(saver *s, het_ctx *ctx, const het_pair *pair, int64_t pairs, const het_beside *beside, int64_t files, int writes) {
    int status = saver_wait(s);
    sigset_t all, before;
    if (status != 0) return status;
    if (het_checkpoint_take(s->checkpoint, ctx, pair, pairs, beside, files, &s->error) != HET_OK) return fail(FAILED, "saving: %s", s->error.text);
    s->saved_step = het_get_step(ctx);
    if (!writes) return 0;
    sigfillset(&all); /* signals are for the thread that trains */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s->running = pthread_create(&s->thread, NULL, saver_write, s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!s->running) saver_write(s);
    return s->running || s->result == HET_OK ? 0 : fail(FAILED, "saving step %lld: %s", (long long)s->saved_step, s->error.text);
}

/* model.safetensors and config.json of the last checkpoint beside the directories. */
static inline int saver_export(saver *s) {
    const int status = saver_wait(s);
    if (status != 0) return status;
    return het_checkpoint_export(s->checkpoint, &s->error) == HET_OK ? 0 : fail(FAILED, "saving: %s", s->error.text);
}

static inline void saver_close(saver *s) {
    if (s->running) pthread_join(s->thread, NULL);
    s->running = 0;
    het_checkpoint_destroy(s->checkpoint);
    s->checkpoint = NULL;
}

/* ---- going on ------------------------------------------------------------------------------------------------------- */

/* The newest good checkpoint of --resume DIR. Damaged ones that were passed over are named, a line each. */
static inline int find_saved(const char *directory, het_saved **saved) {
    const het_disk disk = disk_posix();
    het_error error = { HET_OK, "" };
    const char *line;
    if (!is_directory(directory))
        return fail(BAD_INPUT, "--resume %s: %s", directory, access(directory, F_OK) != 0 ? strerror(errno) : "not a directory");
    if (het_checkpoint_find(&disk, directory, NULL, saved, &error) != HET_OK) return fail(BAD_INPUT, "--resume %s: %s", directory, error.text);
    for (line = (*saved)->damaged; *line != 0; line += strcspn(line, "\n") + 1)
        fail(0, "--resume %s: damaged: %.*s; an older checkpoint is used: %s", directory, (int)strcspn(line, "\n"), line, (*saved)->path);
    return 0;
}

/* A fingerprint of a file of data: XXH64 of 64 pieces of 64 KiB, the first, the last and some between. 1: it could be read. */
static inline int data_fingerprint(const het_reader *reader, uint64_t *hash) {
    enum { PIECE = 1 << 16, PIECES = 64 };
    unsigned char *piece = (unsigned char *)malloc(PIECE);
    uint64_t at = 0, last = reader->size > PIECE ? reader->size - PIECE : 0;
    int64_t got = piece != NULL ? 0 : -1;
    int i;
    *hash = reader->size;
    for (i = 0; i < PIECES && got >= 0; i++) {
        const uint64_t next = last / (PIECES - 1) * (uint64_t)i + last % (PIECES - 1) * (uint64_t)i / (PIECES - 1);
        if (i > 0 && next == at) continue;
        at = next;
        got = reader->read(reader->user, at, piece, PIECE);
        if (got >= 0) *hash = het_xxh64(piece, (size_t)got, *hash);
    }
    free(piece);
    return got >= 0;
}

/* ---- signals: the step is finished, everything saved, and the program ends well; the second one ends it at once ---------------- */

static volatile sig_atomic_t stop_asked;
static void on_signal(int signal_number) { (void)signal_number; stop_asked = 1; }

/* SIGHUP: of a terminal that is closed, unless nohup has it ignored. mpirun gives SIGUSR1 on to all processes; SIGINT and SIGTERM it gives on as
   well, but ends them soon after. */
static inline void catch_signals(int several_processes) {
    const int caught[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1 };
    struct sigaction action, before;
    int i;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    for (i = 0; i < (several_processes ? 4 : 3); i++) {
        if (caught[i] == SIGHUP && sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN) continue;
        action.sa_flags = i < 3 ? SA_RESTART | (int)SA_RESETHAND : SA_RESTART; /* a launcher may pass one SIGUSR1 on twice */
        sigaction(caught[i], &action, NULL);
    }
}

#endif
