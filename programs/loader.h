/* loader.h: the sequences of the next steps, read by threads while a step is computed, and files mapped into memory. Which sequences a step
   has is a function of seed and step (het_data_batch), so the number of threads shows in no bit. */
#ifndef LOADER_H
#define LOADER_H

#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* fstat, O_CLOEXEC under -std=c99 */
#endif
#include "hetrain.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a file as memory ---- */

typedef struct mapped_file { const unsigned char *bytes; size_t size; int file; } mapped_file;

/* Pages are read when they are touched and shared by all processes of the machine. A file that has become shorter is an error, no signal. */
static inline int64_t mapped_read(void *user, uint64_t offset, void *to, size_t size) {
    const mapped_file *m = (const mapped_file *)user;
    struct stat now;
    if (fstat(m->file, &now) != 0 || (uint64_t)now.st_size < m->size) return -1;
    if (offset >= m->size) return 0;
    if (size > m->size - offset) size = m->size - (size_t)offset;
    memcpy(to, m->bytes + offset, size);
    return (int64_t)size;
}

static inline void mapped_close(mapped_file *m) {
    if (m->bytes == NULL) return;
    munmap((void *)(uintptr_t)m->bytes, m->size);
    close(m->file);
    memset(m, 0, sizeof *m);
}

/* 1: *reader, which read the file `path`, reads its mapping from now on. 0: it cannot be mapped, and goes on as it was. */
static inline int mapped_open(mapped_file *m, const char *path, het_reader *reader) {
    struct stat now;
    void *bytes;
    memset(m, 0, sizeof *m);
    m->file = open(path, O_RDONLY | O_CLOEXEC);
    if (m->file < 0) return 0;
    m->size = fstat(m->file, &now) == 0 && S_ISREG(now.st_mode) && (uint64_t)now.st_size == reader->size ? (size_t)now.st_size : 0;
    bytes = m->size > 0 ? mmap(NULL, m->size, PROT_READ, MAP_SHARED, m->file, 0) : MAP_FAILED;
    if (bytes == MAP_FAILED) {
        close(m->file);
        return 0;
    }
    m->bytes = (const unsigned char *)bytes;
    reader->read = mapped_read, reader->user = m;
    return 1;
}

/* ---- steps ahead ---- */

enum { LOADER_THREADS = 64 };

/* Slot step % slots of `data` is of step `step`; a step behind the one in use is being read, or is there. */
typedef struct step_loader {
    het_data *data;
    int64_t slots, next, used, end;  /* the next step to be read; the one in use; no step from `end` on is read */
    int threads, stop, started;
    int64_t *there;                  /* [slots] which step's batch is in the slot; -1: none */
    het_batch *batch;                /* [slots] */
    het_result result;               /* of the first read that failed, of step `failed` */
    int64_t failed;
    het_error error;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread[LOADER_THREADS];
} step_loader;

static inline int64_t loader_slots(int threads) { return threads > 0 ? 2 * (int64_t)threads : 1; }

static inline void *loader_work(void *user) {
    step_loader *l = (step_loader *)user;
    pthread_mutex_lock(&l->lock);
    while (!l->stop && l->result == HET_OK) {
        const int64_t step = l->next, slot = step % l->slots;
        het_error error = { HET_OK, "" };
        het_result result;
        if (step >= l->end || step >= l->used + l->slots) {
            pthread_cond_wait(&l->changed, &l->lock);
            continue;
        }
        l->next++;
        pthread_mutex_unlock(&l->lock);
        result = het_data_batch(l->data, step, 0, 1, slot, &l->batch[slot], &error);
        pthread_mutex_lock(&l->lock);
        if (result == HET_OK) l->there[slot] = step;
        else if (l->result == HET_OK || step < l->failed) l->result = result, l->error = error, l->failed = step;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static inline void loader_end(step_loader *l) {
    int i;
    if (l->there == NULL) return;
    pthread_mutex_lock(&l->lock);
    l->stop = 1;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    for (i = 0; i < l->started; i++) pthread_join(l->thread[i], NULL);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->changed);
    free(l->there), free(l->batch);
    memset(l, 0, sizeof *l);
}

/* Reads steps [first, end) of `data`, which has loader_slots(threads) slots. threads 0, or where the system has none: only when they are asked
   for. 0: no memory. */
static inline int loader_start(step_loader *l, het_data *data, int threads, int64_t first, int64_t end) {
    memset(l, 0, sizeof *l);
    l->data = data, l->slots = loader_slots(threads), l->next = l->used = first, l->end = end, l->threads = threads;
    l->there = (int64_t *)malloc((size_t)l->slots * sizeof *l->there);
    l->batch = (het_batch *)calloc((size_t)l->slots, sizeof *l->batch);
    if (l->there == NULL || l->batch == NULL) return free(l->there), free(l->batch), l->there = NULL, 0;
    memset(l->there, -1, (size_t)l->slots * sizeof *l->there);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    while (l->started < threads && pthread_create(&l->thread[l->started], NULL, loader_work, l) == 0) l->started++;
    l->threads = l->started; /* threads do not look at it */
    return 1;
}

/* The batch of `step`, which must be the one behind the last asked for, or the first. It is good until the next is asked for. */
static inline het_result loader_take(step_loader *l, int64_t step, het_batch *batch, het_error *error) {
    het_result result = HET_OK;
    if (l->threads == 0) return het_data_batch(l->data, step, 0, 1, 0, batch, error);
    pthread_mutex_lock(&l->lock);
    l->used = step;
    pthread_cond_broadcast(&l->changed);
    while (l->there[step % l->slots] != step && l->result == HET_OK) pthread_cond_wait(&l->changed, &l->lock);
    if (l->there[step % l->slots] == step) *batch = l->batch[step % l->slots];
    else result = l->result, *error = l->error;
    pthread_mutex_unlock(&l->lock);
    return result;
}

#endif
