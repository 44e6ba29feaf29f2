/* hetrain without malloc and without stdio: one static arena, checkpoints through memory callbacks. The build of the header below
   imports neither malloc nor fopen (this program itself prints). It trains, saves into memory, goes on, and then lets a second context
   continue from the saved bytes: both end with the same weights, bit for bit. */
#define HETRAIN_NO_STDIO
#define HETRAIN_NO_DEFAULT_ALLOCATOR
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_FILES_IMPLEMENTATION
#include "hetrain.h"
#include "hetrain_files.h"

#include <stdio.h>
#include <string.h>

/* A stack of blocks: free() takes the top away as soon as the blocks above it are gone too. */
typedef struct arena { unsigned char *memory; size_t size, used, peak, live; } arena;

static void *arena_alloc(void *user, size_t size, size_t align) {
    arena *a = (arena *)user;
    size_t at = (a->used + align - 1) & ~(align - 1);
    if (at > a->size || size > a->size - at) return NULL;
    a->used = at + size;
    a->live += size;
    if (a->used > a->peak) a->peak = a->used;
    return a->memory + at;
}

static void arena_free(void *user, void *pointer, size_t size) {
    arena *a = (arena *)user;
    if (pointer == NULL) return;
    a->live -= size;
    if (a->live == 0) a->used = 0;
    else if ((unsigned char *)pointer + size == a->memory + a->used) a->used -= size;
}

/* A growing file in memory. */
typedef struct memory_file { unsigned char *bytes; size_t size, capacity; } memory_file;

static int memory_write(void *user, const void *from, size_t size) {
    memory_file *f = (memory_file *)user;
    if (size > f->capacity - f->size) return 1;
    memcpy(f->bytes + f->size, from, size);
    f->size += size;
    return 0;
}

static int64_t memory_read(void *user, uint64_t offset, void *to, size_t size) {
    const memory_file *f = (const memory_file *)user;
    if (offset > f->size) return 0;
    if (size > f->size - (size_t)offset) size = f->size - (size_t)offset;
    memcpy(to, f->bytes + offset, size);
    return (int64_t)size;
}

enum { ARENA = 32 << 20, FILE_SIZE = 4 << 20, TOKENS = 64, VOCABULARY = 32 };
static unsigned char arena_memory[ARENA], weights_bytes[FILE_SIZE], state_bytes[FILE_SIZE];

/* Step number `step` of a made-up text: counting up with a stride that changes from sequence to sequence. */
static het_result train_step(het_ctx *ctx, het_step_info *info) {
    int32_t token[TOKENS], target[TOKENS];
    int64_t start[5], i;
    het_batch batch;
    memset(&batch, 0, sizeof batch);
    for (i = 0; i < TOKENS; i++) {
        int64_t stride = 1 + i / 16, from = het_get_step(ctx) * 5;
        token[i] = (int32_t)((from + stride * i) % VOCABULARY);
        target[i] = (int32_t)((from + stride * (i + 1)) % VOCABULARY);
    }
    for (i = 0; i <= 4; i++) start[i] = 16 * i;
    batch.tokens = TOKENS, batch.sequences = 4, batch.token = token, batch.target = target, batch.sequence_start = start;
    return het_step(ctx, &batch, 1, info);
}

static het_result train(het_ctx *ctx, int64_t until) {
    het_result result = HET_OK;
    het_step_info info;
    while (result == HET_OK && het_get_step(ctx) < until) {
        result = train_step(ctx, &info);
        if (result == HET_OK && info.step % 10 == 9) printf("step %2d  loss %.4f\n", (int)info.step + 1, info.loss);
    }
    return result;
}

int main(void) {
    static arena memory; /* zero */
    memory_file weights = { NULL, 0, FILE_SIZE }, state = { NULL, 0, FILE_SIZE };
    het_desc desc;
    het_error error = { HET_OK, "" };
    het_memory estimate;
    het_ctx *first = NULL, *second = NULL;
    het_writer weights_to, state_to;
    het_reader weights_from, state_from;
    uint64_t hash[2] = { 1, 2 };
    het_result result;
    memory.memory = arena_memory, memory.size = sizeof arena_memory;
    weights.bytes = weights_bytes, state.bytes = state_bytes;
    weights_to.write = state_to.write = memory_write, weights_to.name = state_to.name = "(memory)";
    weights_to.user = &weights, state_to.user = &state;
    memset(&desc, 0, sizeof desc);
    desc.model.layers = 2, desc.model.width = 64, desc.model.vocab = VOCABULARY, desc.model.context = 16;
    desc.limits.max_tokens = TOKENS;
    desc.optimizer.learning_rate = 3e-3f, desc.optimizer.total_steps = 60;
    desc.host.allocator.alloc = arena_alloc, desc.host.allocator.free = arena_free, desc.host.allocator.user = &memory;
    result = het_memory_estimate(&desc, 0, &estimate, &error);
    if (result == HET_OK) printf("estimate: %lu bytes for the device, %lu for the host\n", (unsigned long)estimate.device,
                                 (unsigned long)estimate.host);
    if (result == HET_OK) result = het_create(&desc, &first, &error);
    printf("arena: %lu bytes used after het_create\n", (unsigned long)memory.peak);
    if (result == HET_OK) result = train(first, 30);
    if (result == HET_OK) result = het_save_weights(first, &weights_to);
    if (result == HET_OK) result = het_save_state(first, &state_to);
    if (result == HET_OK) result = train(first, 60);
    if (result == HET_OK) result = het_hash(first, &hash[0]);
    if (result == HET_OK) result = het_create(&desc, &second, &error);
    weights_from.read = state_from.read = memory_read, weights_from.name = state_from.name = NULL;
    weights_from.user = &weights, weights_from.size = weights.size, state_from.user = &state, state_from.size = state.size;
    if (result == HET_OK) result = het_load_weights(second, &weights_from);
    if (result == HET_OK) result = het_load_state(second, &state_from);
    if (result == HET_OK) result = train(second, 60);
    if (result == HET_OK) result = het_hash(second, &hash[1]);
    if (result != HET_OK)
        printf("%s: %s%s%s\n", het_result_text(result), error.text, first != NULL ? het_last_error(first) : "",
               second != NULL ? het_last_error(second) : "");
    het_destroy(second);
    het_destroy(first);
    printf("checkpoint: %lu + %lu bytes; weights %016llx and %016llx; %lu bytes still allocated\n", (unsigned long)weights.size,
           (unsigned long)state.size, (unsigned long long)hash[0], (unsigned long long)hash[1], (unsigned long)memory.live);
    return result == HET_OK && hash[0] == hash[1] && memory.live == 0 ? 0 : 1;
}
