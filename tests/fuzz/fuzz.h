/* What the fuzz targets share: an input cut into pieces, files in memory, checks. */
#ifndef HETRAIN_FUZZ_H
#define HETRAIN_FUZZ_H

#include "hetrain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void fuzz_check(int condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "fuzz: %s\n", what);
    abort();
}

/* An error names what is wrong on one line; a success leaves no doubt. */
static inline void fuzz_error(het_result result, const het_error *error)
{
    if (result == HET_OK) return;
    fuzz_check(error->text[0] != 0, "an error without a text");
    fuzz_check(strchr(error->text, '\n') == NULL, "an error of more than one line");
}

/* A copy of exactly these bytes, so that a read behind them is seen. */
static inline char *fuzz_copy(const uint8_t *data, size_t size)
{
    char *copy = (char *)malloc(size > 0 ? size : 1);
    if (copy == NULL) abort();
    if (size > 0) memcpy(copy, data, size);
    return copy;
}

typedef struct fuzz_bytes { char *data; size_t size; } fuzz_bytes;

static inline int64_t fuzz_read(void *user, uint64_t offset, void *to, size_t size)
{
    const fuzz_bytes *b = (const fuzz_bytes *)user;
    fuzz_check(offset <= b->size && size <= b->size - offset, "a read outside the file");
    if (size > 0) memcpy(to, b->data + offset, size);
    return (int64_t)size;
}

static inline het_reader fuzz_reader(fuzz_bytes *b)
{
    het_reader from;
    from.read = fuzz_read;
    from.user = b;
    from.size = b->size;
    from.name = "input";
    return from;
}

static inline int fuzz_write(void *user, const void *from, size_t size)
{
    fuzz_bytes *b = (fuzz_bytes *)user;
    b->data = (char *)realloc(b->data, b->size + size + 1);
    if (b->data == NULL) abort();
    if (size > 0) memcpy(b->data + b->size, from, size);
    b->size += size;
    return 0;
}

static inline het_writer fuzz_writer(fuzz_bytes *b)
{
    het_writer to;
    b->data = NULL;
    b->size = 0;
    to.write = fuzz_write;
    to.user = b;
    to.name = "output";
    return to;
}

/* Two texts are the same; both are freed. */
static inline void fuzz_same(fuzz_bytes *a, fuzz_bytes *b, const char *what)
{
    fuzz_check(a->size == b->size && (a->size == 0 || memcmp(a->data, b->data, a->size) == 0), what);
    free(a->data);
    free(b->data);
}

/* One entry for the fuzzer; tests/test_fuzz.c calls the targets by their names. */
#ifdef HETRAIN_FUZZ_REPLAY
#define FUZZ_ENTRY(name)
#else
#define FUZZ_ENTRY(name) \
    int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); \
    int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return name(data, size); }
#endif

#endif
