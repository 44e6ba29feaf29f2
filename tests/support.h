/* What the cmocka suites share: random numbers, a counting allocator, files in memory, small models, packed micro-batches that can be
   regrouped, and runs: one description of "train a few steps in some layout and hash the weights". */
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

/* What a variable of the environment says, for instance how many rounds; `otherwise` where it is not set. */
int support_environment(const char *name, int otherwise);

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

/* Whether this machine has an instruction set; those whose bits are equal, PLAIN first. Returns how many; names for messages. */
int support_has(het_isa isa);
int support_isas(het_isa isa[5]);
const char *support_isa_name(het_isa isa);
het_parallel support_serial(void);  /* a loop */
het_parallel support_backwards(void); /* a loop from the last index to the first */

/* ---- models and batches ---- */

/* Small models of each family, completed, with sizes that are no multiple of a vector. */
het_model_desc support_model(het_family family);
/* The same with 3 layers, 8 units: 4 ranks of a V have 8 stages of one unit. */
het_model_desc support_deep_model(het_family family);

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

/* The data of a few steps. A step is a list of blocks (a granule of whole sequences, or one long sequence with its granules), written as the
   lengths of their sequences: "17|5,0,9" is a block of one sequence and one of three. Blocks beyond 512 tokens keep their pieces. */
#define SUPPORT_MAX_STEPS 8
#define SUPPORT_MAX_BLOCKS 16
#define SUPPORT_SHORT "17|5,0,9|48|1|30,2|3,3,3"
#define SUPPORT_LONG "1100|40,1|600"
typedef struct support_data {
    int steps, blocks;
    int64_t tokens, sequences; /* of all blocks of a step */
    support_batch block[SUPPORT_MAX_STEPS][SUPPORT_MAX_BLOCKS];
} support_data;
void support_data_start(support_data *data, int steps, const char *blocks, int64_t vocab);
void support_data_end(support_data *data);

/* The micro-batches of a step in a layout, which says which blocks stand together and in which order: digits are blocks, '|' ends a micro-batch.
   "201|3" has two, the first with blocks 2, 0 and 1. */
#define SUPPORT_TOGETHER "012345"
#define SUPPORT_APART "0|1|2|3|4|5"
typedef struct support_group {
    int64_t count;
    het_batch batch[SUPPORT_MAX_BLOCKS];
    support_batch built[SUPPORT_MAX_BLOCKS];
} support_group;
void support_group_start(support_group *group, const support_data *data, int step, const char *layout);
void support_group_end(support_group *group);

/* het_plan_read of `text`, which must succeed. */
het_plan *support_plan(const char *text, const char *schedule, int64_t units, int64_t ranks, int64_t slices);
/* The same for a model with so many key/value heads, which teams can divide. */
het_plan *support_plan_for(const char *text, const char *schedule, int64_t units, int64_t ranks, int64_t slices, int64_t heads);

/* A description, and what it points to: so a run is never copied. One device by default; support_run_ranks gives it several, support_run_plan
   those it has a plan. Anything else is set in desc and device directly. */
#define SUPPORT_MAX_RANKS 8
typedef struct support_run {
    het_desc desc;
    het_device_desc device[SUPPORT_MAX_RANKS];
    het_device_iface far; /* a CPU with memory of its own: everything goes through copies */
    het_plan *plan;
    support_data data;
    uint64_t frozen; /* which parameters support_draw_training leaves as they are */
} support_run;
void support_run_start(support_run *run, const het_model_desc *model, int steps, const char *blocks);
void support_run_ranks(support_run *run, int64_t ranks);
void support_run_plan(support_run *run, const char *text, const char *schedule, int64_t slices);
/* Units of the run's model. */
int64_t support_run_units(const support_run *run);
/* A plan's text that may end with '$', which becomes the number of the last of them. */
void support_last_unit(char *to, size_t capacity, const char *text, const support_run *run);
/* What a run trains, and how: now and then losses of its own for groups of layers, low-rank factors, frozen parameters, here or in front, that lie
   in fewer bits, feedback, Muon. To be called before anything is trained or planned; host.user becomes the run. */
void support_draw_training(support_run *run, uint64_t *seed);
/* Unequal slices; short micro-batches with rows in their last ones alone, of at most `tokens`. */
void support_draw_slices(het_plan *plan, int64_t tokens, uint64_t *seed);
/* Each stage of a plan recomputes nothing, its units, or as a whole, for all of its slices or some. */
void support_draw_recompute(het_plan *plan, uint64_t *seed);
/* Each device gets one thread or two, and device `which`, if there is one, is far. */
/* The null device, that takes all ops with bf16 operands. */
const het_device_iface *support_narrow_device(void);
void support_run_mixed(support_run *run, int which, uint64_t *seed);
void support_run_end(support_run *run);

/* Runs one op; `args` are those of its kind. */
het_result support_op(const het_device_iface *iface, void *self, het_op_kind kind, const void *args, size_t size);
#define SUPPORT_OP(iface, self, kind, args) support_op((iface), (self), HET_OP_##kind, (args), sizeof *(args))
/* `supports` of the CPU device's copies that lack something. */
int32_t support_only_adds(void *self, const het_op *op);

het_ctx *support_create(const het_desc *desc);
uint64_t support_hash(het_ctx *ctx);
/* One step over the data of step `step`; beyond the last the first ones come again. */
het_step_info support_step(het_ctx *ctx, const support_data *data, int step, const char *layout);

/* What must not depend on the layout: the bits of every step's loss and gradient norm, and the weights after the last. */
typedef struct support_result {
    int64_t steps;
    uint64_t weights;
    double loss[SUPPORT_MAX_STEPS], norm[SUPPORT_MAX_STEPS];
} support_result;
/* Fails unless exponents, weights, optimizer state, and gradients if asked for, are the same; what is frozen only has weights. */
void support_same_state(het_ctx *a, het_ctx *b, int gradients, const char *what);
/* A new context trained over all steps of the data. */
support_result support_train(const support_run *run, const char *layout);
/* Writes one line about the first difference and returns 0 when two results differ in a bit. */
int support_same(const support_result *a, const support_result *b, const char *what);
/* Fails unless support_train gives the bits of `base`. */
void support_train_same(const support_result *base, const support_run *run, const char *layout, const char *what);
/* A plan in the short form, its schedule, ranks and slices. */
typedef struct support_layout { const char *plan, *schedule; int64_t ranks, slices; } support_layout;
/* The same of the run in this layout, its samples in `blocks`. */
void support_layout_same(const support_result *base, support_run *run, const support_layout *l, const char *blocks);
/* A context's weights and its state in buffers, which begin here. */
void support_save(het_ctx *ctx, support_buffer *weights, support_buffer *state);

#endif
