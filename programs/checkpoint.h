/* Checkpoints of the programs: written by a thread of their own, found again, data compared. Include it after common.h. */
#ifndef PROGRAMS_CHECKPOINT_H
#define PROGRAMS_CHECKPOINT_H

#include "disk.h"

#include <pthread.h>
#include <signal.h>

/* ---- saving beside the training ------------------------------------------------------------------------------------- */

typedef enum saver_task { SAVER_IDLE, SAVER_WRITE, SAVER_END } saver_task;
typedef struct saver {
    het_checkpoint *checkpoint;
    const char *base;               /* [base_length] config.json of which other keys are kept; NULL: none. Set before saver_open */
    size_t base_length;
    int64_t saved_step;             /* of the last checkpoint taken, -1: none */
    pthread_t thread;               /* of the process that writes; there from the start */
    int running;                    /* the thread is there */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    saver_task task;                /* under lock */
    het_result result;              /* of the last write; the thread's until the task is over */
    het_error error;
} saver;

/* The thread that writes: waits for a task, does it, tells. */
static inline void *saver_live(void *user) {
    saver *s = (saver *)user;
    pthread_mutex_lock(&s->lock);
    while (s->task != SAVER_END) {
        if (s->task == SAVER_WRITE) {
            pthread_mutex_unlock(&s->lock);
            s->result = het_checkpoint_write(s->checkpoint, &s->error);
            pthread_mutex_lock(&s->lock);
            s->task = SAVER_IDLE;
            pthread_cond_broadcast(&s->changed);
        } else pthread_cond_wait(&s->changed, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static inline void saver_tell(saver *s, saver_task task) {
    pthread_mutex_lock(&s->lock);
    s->task = task;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Waits for the checkpoint that is being written; what went wrong with it ends the run. */
static inline int saver_wait(saver *s) {
    het_result result;
    if (!s->running) return 0;
    pthread_mutex_lock(&s->lock);
    while (s->task == SAVER_WRITE) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    result = s->result, s->result = HET_OK; /* it is said once */
    return result == HET_OK ? 0 : fail(FAILED, "saving step %lld: %s", (long long)s->saved_step, s->error.text);
}

/* Takes all that saves of this context into `directory` will need: memory, and with `writes`, which one process has, a thread, whose first task is to
   write nothing. All processes call it. */
static inline int saver_open(saver *s, const char *directory, int64_t keep, het_ctx *ctx, const het_pair *pair, int64_t pairs,
                             const het_beside *beside, int64_t files, int writes) {
    enum { STACK = 1 << 20 };
    het_disk disk = disk_posix();
    het_checkpoint_desc desc;
    pthread_attr_t attributes;
    sigset_t all, before;
    het_result result;
    memset(&desc, 0, sizeof desc);
    desc.disk = &disk, desc.directory = directory, desc.keep = keep, desc.base = s->base, desc.base_length = s->base_length;
    s->saved_step = -1;
    result = het_checkpoint_create(&desc, &s->checkpoint, &s->error);
    if (result == HET_OK) result = het_checkpoint_reserve(s->checkpoint, ctx, pair, pairs, beside, files, &s->error);
    if (result != HET_OK) return fail(FAILED, "--out: %s", s->error.text);
    if (!writes) return 0;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->task = SAVER_WRITE;
    sigfillset(&all); /* signals are for the thread that trains */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    s->running = pthread_create(&s->thread, &attributes, saver_live, s) == 0;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return s->running ? saver_wait(s) : fail(FAILED, "--out: memory for saving: %d bytes are missing for its thread", (int)STACK);
}

/* Copies the context, once the last copy is written. All processes call it. */
static inline int saver_take(saver *s, het_ctx *ctx, const het_pair *pair, int64_t pairs, const het_beside *beside, int64_t files) {
    const int status = saver_wait(s);
    if (status != 0) return status;
    if (het_checkpoint_take(s->checkpoint, ctx, pair, pairs, beside, files, &s->error) == HET_OK) return 0;
    return fail(FAILED, "saving: %s", s->error.text);
}

/* The same, and lets the thread write the copy. */
static inline int saver_start(saver *s, het_ctx *ctx, const het_pair *pair, int64_t pairs, const het_beside *beside, int64_t files) {
    const int status = saver_take(s, ctx, pair, pairs, beside, files);
    if (status != 0) return status;
    s->saved_step = het_get_step(ctx);
    if (s->running) saver_tell(s, SAVER_WRITE);
    return 0;
}

/* model.safetensors and config.json of the last copy beside the directories. */
static inline int saver_export(saver *s) {
    const int status = saver_wait(s);
    if (status != 0) return status;
    return het_checkpoint_export(s->checkpoint, &s->error) == HET_OK ? 0 : fail(FAILED, "saving: %s", s->error.text);
}

static inline void saver_close(saver *s) {
    if (s->running) {
        (void)saver_wait(s);
        saver_tell(s, SAVER_END);
        pthread_join(s->thread, NULL);
        pthread_cond_destroy(&s->changed);
        pthread_mutex_destroy(&s->lock);
    }
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
    if (het_checkpoint_find(&disk, directory, NULL, saved, &error) != HET_OK)
        return fail(BAD_INPUT, "--resume %s: %s", directory, behind_name(error.text, directory));
    for (line = (*saved)->damaged; *line != 0; line += strcspn(line, "\n") + 1)
        fail(0, "--resume %s: damaged: %.*s; an older checkpoint is used: %s", directory, (int)strcspn(line, "\n"), line, (*saved)->path);
    return 0;
}

/* A fingerprint of data: XXH64 of every MiB, each the seed of the next, the size the first's. A reader that lies over another and takes it from
   what is read through it in order, as het_data_open reads all: that costs no reading of its own. */
enum { HASHED_BLOCK = 1 << 20 };
typedef struct hashed_reader {
    het_reader from;
    unsigned char *block;           /* NULL: it is done */
    size_t filled;
    uint64_t at, hash;              /* bytes taken; of the whole blocks among them, in the end of all */
} hashed_reader;

static inline int hashed_start(hashed_reader *h, const het_reader *from) {
    memset(h, 0, sizeof *h);
    h->from = *from, h->hash = from->size;
    return (h->block = (unsigned char *)malloc(HASHED_BLOCK)) != NULL;
}

static inline int64_t hashed_read(void *user, uint64_t offset, void *to, size_t size) {
    hashed_reader *h = (hashed_reader *)user;
    const int64_t got = h->from.read(h->from.user, offset, to, size);
    uint64_t end = got > 0 ? offset + (uint64_t)got : 0;
    while (h->block != NULL && offset <= h->at && h->at < end) {
        const size_t left = HASHED_BLOCK - h->filled, part = end - h->at < left ? (size_t)(end - h->at) : left;
        memcpy(h->block + h->filled, (const char *)to + (h->at - offset), part);
        h->filled += part, h->at += part;
        if (h->filled < HASHED_BLOCK) continue;
        h->hash = het_xxh64(h->block, h->filled, h->hash);
        h->filled = 0;
    }
    return got;
}

/* Reads what nobody has read yet. 1: the hash is that of all. */
static inline int hashed_end(hashed_reader *h) {
    char rest[4096];
    int64_t got = 1;
    while (h->at < h->from.size && got > 0) got = hashed_read(h, h->at, rest, sizeof rest);
    h->hash = het_xxh64(h->block, h->filled, h->hash);
    free(h->block);
    h->block = NULL;
    return h->at == h->from.size;
}

/* Of a file in a directory; 0: it cannot be read. */
static inline uint64_t file_fingerprint(const char *directory, const char *name) {
    char path[1300];
    het_reader reader;
    het_error error = { HET_OK, "" };
    hashed_reader hashed;
    uint64_t hash = 0;
    if (!path_join(path, sizeof path, directory, name) || het_reader_open(path, &reader, &error) != HET_OK) return 0;
    if (hashed_start(&hashed, &reader) && hashed_end(&hashed)) hash = hashed.hash;
    het_reader_close(&reader);
    return hash;
}

/* The fingerprint in checkpoints without that of every byte: XXH64 of 64 pieces of 64 KiB, the first, the last and some between. 1: it could
   be read. */
static inline int pieces_fingerprint(const het_reader *reader, uint64_t *hash) {
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

#endif
