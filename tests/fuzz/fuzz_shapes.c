/* The first byte says which of five small models' weights there are, the rest is the config.json beside them. What fits their shapes takes no more
   memory than the weights make plausible, and loads or is refused with a text. `make fuzz` runs it, tests/test_fuzz.c replays the corpus. */
#include "fuzz.h"

#include "hetrain_files.h"

#define FUZZ_FAMILIES 5

typedef struct fuzz_counted { size_t now, peak; } fuzz_counted;

static void *fuzz_counted_alloc(void *user, size_t size, size_t align)
{
    fuzz_counted *c = (fuzz_counted *)user;
    char *block, *at;
    size_t room = size + 2 * align + sizeof block;
    c->now += size;
    if (c->now > c->peak) c->peak = c->now;
    if (size > ((size_t)1 << 30) || (block = (char *)malloc(room)) == NULL) return NULL;
    at = block + sizeof block + align - ((size_t)(uintptr_t)block + sizeof block) % align;
    memcpy(at - sizeof block, &block, sizeof block);
    return at;
}

static void fuzz_counted_free(void *user, void *pointer, size_t size)
{
    char *block;
    ((fuzz_counted *)user)->now -= size;
    memcpy(&block, (char *)pointer - sizeof block, sizeof block);
    free(block);
}

static het_ctx *fuzz_shapes_context(const het_model_desc *model, fuzz_counted *counted, het_error *error)
{
    het_desc desc;
    het_ctx *ctx = NULL;
    memset(&desc, 0, sizeof desc);
    desc.model = *model;
    desc.limits.max_tokens = desc.limits.max_sequences = desc.limits.max_micro_batches = 1;
    desc.inference = HET_YES;
    desc.host.allocator.alloc = fuzz_counted_alloc;
    desc.host.allocator.free = fuzz_counted_free;
    desc.host.allocator.user = counted;
    return het_create(&desc, &ctx, error) == HET_OK ? ctx : NULL;
}

static void fuzz_shapes_make(fuzz_bytes file[FUZZ_FAMILIES])
{
    static const char *const specs[FUZZ_FAMILIES] = {
        "gpt2:layers=1,width=8,heads=2,vocab=11,context=4", "llama:layers=2,width=8,heads=2,kv_heads=1,vocab=11,context=4",
        "qwen2:layers=1,width=8,heads=2,vocab=11,context=4", "qwen3:layers=1,width=8,heads=2,head_size=6,vocab=11,context=4",
        "neox:layers=1,width=16,heads=2,vocab=11,context=4"
    };
    fuzz_counted counted = { 0, 0 };
    het_model_desc model;
    het_error error;
    int i;
    for (i = 0; i < FUZZ_FAMILIES; i++) {
        const het_writer to = fuzz_writer(&file[i]);
        het_ctx *ctx;
        fuzz_check(het_model_parse(specs[i], &model, &error) == HET_OK, "the model");
        ctx = fuzz_shapes_context(&model, &counted, &error);
        fuzz_check(ctx != NULL && het_save_weights(ctx, &to) == HET_OK, "its weights");
        het_destroy(ctx);
    }
}

static int fuzz_shapes(const uint8_t *data, size_t size)
{
    static fuzz_bytes file[FUZZ_FAMILIES]; /* for as long as the process lives */
    fuzz_bytes *weights = &file[size > 0 ? data[0] % FUZZ_FAMILIES : 0];
    const size_t length = size > 0 ? size - 1 : 0;
    char *text = fuzz_copy(size > 0 ? data + 1 : data, length);
    fuzz_counted counted = { 0, 0 };
    het_model_desc model;
    het_error error;
    het_reader from;
    het_ctx *ctx;
    het_result result;
    if (weights->data == NULL) fuzz_shapes_make(file);
    from = fuzz_reader(weights);
    error.text[0] = 0;
    result = het_model_from_json(text, length, &model, &error);
    if (result == HET_OK) result = het_model_fits(&model, &from, NULL, &error);
    fuzz_error(result, &error);
    free(text);
    if (result != HET_OK) return 0;
    ctx = fuzz_shapes_context(&model, &counted, &error);
    if (ctx == NULL) fuzz_error(HET_ERR_FORMAT, &error);
    else if ((result = het_load_weights(ctx, &from)) != HET_OK) {
        snprintf(error.text, sizeof error.text, "%s", het_last_error(ctx));
        fuzz_error(result, &error);
    }
    fuzz_check(ctx == NULL || het_get_status(ctx) == 0, "weights are torn");
    het_destroy(ctx);
    fuzz_check(counted.peak < ((size_t)1 << 22), "more than 4 MiB for weights of a few KiB");
    fuzz_check(counted.now == 0, "memory is not given back");
    return 0;
}

FUZZ_ENTRY(fuzz_shapes)
