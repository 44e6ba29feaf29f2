/* What the cmocka suites share: random numbers, a counting allocator, files in memory, small models, packed micro-batches that can be
   regrouped, and one description of "train a few steps and hash the weights". */
#ifndef HETRAIN_TEST_SUPPORT_H
#define HETRAIN_TEST_SUPPORT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hetrain.h"

/* ---- numbers ---- */

uint64_t support_random(uint64_t *state);                            /* splitmix64 */
double support_uniform(uint64_t *state);                             /* [-1, 1) */
int64_t support_below(uint64_t *state, int64_t limit);               /* [0, limit) */
void support_fill(float *to, int64_t count, double scale, uint64_t seed);
uint32_t support_bits(float value);
float support_bf16(float value);                                     /* rounded to bf16, nearest even, subnormals to 0 */
double support_sum_value(const het_sum *sum);

/* malloc that fails the test instead of returning NULL */
void *support_alloc(size_t count, size_t size);
float *support_floats(int64_t count, double scale, uint64_t seed);

/* ---- checks ---- */

/* The call returned `code` and its message holds every word of `words`, which are separated by '|'. */
void support_expect(het_result got, het_result code, const char *message, const char *words, const char *what, int line);
#define EXPECT_ERROR(call, code, message, words) support_expect((call), (code), (message), (words), #call, __LINE__)
#define EXPECT_OK(call) support_expect((call), HET_OK, NULL, "", #call, __LINE__)

/* ---- allocator that counts, and can fail the k-th call ---- */

typedef struct support_memory {
    int64_t calls;      /* allocations asked for */
    int64_t live;       /* blocks not yet freed */
    size_t bytes, peak; /* live now, and the most ever */
    int64_t fail_at;    /* this call (from 0) returns NULL; negative: none */
    int64_t wrong;      /* frees whose size was not the one asked for, alignments that are no power of two <= 4096 */
} support_memory;
het_allocator support_allocator(support_memory *memory);

/* ---- files in memory ---- */

typedef struct support_buffer {
    unsigned char *data;
    size_t size, capacity;
    int64_t fail_after; /* this many bytes go through, then errors; negative: never */
} support_buffer;
void support_buffer_start(support_buffer *buffer);
void support_buffer_end(support_buffer *buffer);
void support_buffer_append(support_buffer *buffer, const void *from, size_t size);
het_reader support_reader(support_buffer *buffer);
het_writer support_writer(support_buffer *buffer);

/* ---- devices ---- */

/* Instruction sets of this machine, PLAIN first. Returns how many; names for messages. */
int support_isas(het_isa isa[5]);
const char *support_isa_name(het_isa isa);
het_parallel support_serial(void);  /* a loop */
het_parallel support_backwards(void); /* a loop from the last index to the first */

/* ---- models and batches ---- */

/* Small models of each family, completed, with sizes that are no multiple of a vector. */
het_model_desc support_model(het_family family);

/* A micro-batch that owns its arrays. Granule bounds are always written out, so that appending keeps them. */
typedef struct support_batch {
    het_batch batch;
    int32_t *token, *target;
    float *weight;
    int64_t *sequence_start, *sample_id, *granule_start;
    int64_t token_room, sequence_room, granule_room;
} support_batch;
void support_batch_start(support_batch *batch);
void support_batch_end(support_batch *batch);
/* One sequence more, of `length` random tokens below `vocab`: some targets are -1, weights vary. Its granules: pieces of 512 tokens. */
void support_batch_sequence(support_batch *batch, int64_t length, int64_t vocab, int64_t sample_id, uint64_t seed);
/* All sequences and granules of `from`. */
void support_batch_append(support_batch *batch, const support_batch *from);
/* Joins all granules of whole sequences into one. */
void support_batch_one_granule(support_batch *batch);

/* ---- runs ---- */

/* What must not depend on the layout: the bits of every step's loss and gradient norm, and the weights after the last. */
#define SUPPORT_MAX_STEPS 8
typedef struct support_result {
    int64_t steps;
    uint64_t weights;
    double loss[SUPPORT_MAX_STEPS], norm[SUPPORT_MAX_STEPS];
} support_result;
het_ctx *support_create(const het_desc *desc);
uint64_t support_hash(het_ctx *ctx);
/* Writes one line about the first difference and returns 0 when two results differ in a bit. */
int support_same(const support_result *a, const support_result *b, const char *what);

#endif
