/* Trains four tiny models for three steps and prints the hash of the weights and the bits of the last loss and gradient norm. Every compiler,
   set of flags, instruction set and processor must print golden/expected.txt; tools/golden.sh compares. C99 that is also C++11.

   cc -O2 -I. -Iutil tests/golden.c -lm -lpthread
   HETRAIN_TEST_ISA: reference (the reference device), plain, avx2, avx512, avx512bf16, neon   HETRAIN_TEST_THREADS: 1 ...
   HETRAIN_TEST_RANKS: 1 ..., of which the first has a twentieth of its speed where there are several */
#define HETRAIN_IMPLEMENTATION
#include "hetrain_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp_state.h"

#define TOKENS 60
#define STEPS 3
#define MOST_RANKS 4

static int wants_reference(void)
{
    const char *name = getenv("HETRAIN_TEST_ISA");
    return name && !strcmp(name, "reference");
}

static het_isa wanted_isa(void)
{
    static const char *const names[] = { HETRAIN_ISA_NAMES };
    const char *name = getenv("HETRAIN_TEST_ISA");
    int isa;
    if (!name || !*name || wants_reference()) return HET_ISA_AUTO;
    for (isa = HET_ISA_AMX; isa > 0; isa--)
        if (!strcmp(name, names[isa])) return (het_isa)isa;
    fprintf(stderr, "golden: HETRAIN_TEST_ISA=%s is no instruction set\n", name);
    exit(1);
}

static int32_t wanted(const char *what, int32_t most)
{
    const char *count = getenv(what);
    const int32_t number = count && *count ? (int32_t)atoi(count) : 1;
    return number < most ? number : most;
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* A fixed text of tokens that repeats itself, so that there is something to learn. */
static void write_tokens(int32_t *token, int32_t *target, int64_t step)
{
    int64_t i;
    for (i = 0; i < TOKENS; i++) {
        token[i] = (int32_t)((i * i + 3 * step) % 37);
        target[i] = i % 11 == 0 ? -1 : (int32_t)(((i + 1) * (i + 1) + 3 * step) % 37);
    }
}

static int run(const char *name, const char *settings, het_dtype dtype, het_isa isa, float dropout)
{
    static const int64_t sequence_start[4] = { 0, 25, 27, TOKENS };
    int32_t token[TOKENS], target[TOKENS];
    het_device_desc device[MOST_RANKS];
    het_step_info info;
    het_error error;
    het_batch batch;
    het_ctx *ctx;
    het_desc desc;
    uint64_t hash = 0;
    int64_t step, i;
    memset(&desc, 0, sizeof desc);
    memset(device, 0, sizeof device);
    memset(&batch, 0, sizeof batch);
    memset(&info, 0, sizeof info);
    if (het_model_parse(settings, &desc.model, &error) != HET_OK) {
        fprintf(stderr, "golden: %s: %s\n", name, error.text);
        return 1;
    }
    desc.model.dropout = dropout;
    desc.layout.devices = device;
    desc.layout.device_count = wanted("HETRAIN_TEST_RANKS", MOST_RANKS);
    for (i = 0; i < desc.layout.device_count; i++) {
        device[i].threads = wanted("HETRAIN_TEST_THREADS", 64);
        device[i].isa = isa;
        if (wants_reference()) device[i].iface = het_reference_device();
        if (i == 0 && desc.layout.device_count > 1) device[i].speed = 0.05;
    }
    desc.dtype = dtype;
    desc.seed = 3;
    desc.optimizer.learning_rate = 1e-2f;
    desc.optimizer.total_steps = 5;
    if (het_create(&desc, &ctx, &error) != HET_OK) {
        fprintf(stderr, "golden: %s: %s\n", name, error.text);
        return 1;
    }
    batch.tokens = TOKENS;
    batch.sequences = 3;
    batch.token = token;
    batch.target = target;
    batch.sequence_start = sequence_start;
    for (step = 0; step < STEPS; step++) {
        write_tokens(token, target, step);
        if (het_step(ctx, &batch, 1, &info) != HET_OK) {
            fprintf(stderr, "golden: %s: %s\n", name, het_last_error(ctx));
            return 1;
        }
    }
    if (het_hash(ctx, &hash) != HET_OK) return 1;
    printf("%s weights %08lx%08lx loss %08lx%08lx norm %08lx%08lx\n", name, (unsigned long)(hash >> 32), (unsigned long)(hash & 0xFFFFFFFFu),
           (unsigned long)(bits_of(info.loss) >> 32), (unsigned long)(bits_of(info.loss) & 0xFFFFFFFFu),
           (unsigned long)(bits_of(info.gradient_norm) >> 32), (unsigned long)(bits_of(info.gradient_norm) & 0xFFFFFFFFu));
    het_destroy(ctx);
    return 0;
}

int main(void)
{
    het_isa isa = wanted_isa();
    int bad = 0;
    (void)fp_set_hostile(); /* the caller's mode is no input */
    bad |= run("gpt2", "gpt2:layers=2,width=40,heads=5,vocab=37,context=40", HET_F32, isa, 0.125f);
    bad |= run("llama", "llama:layers=2,width=36,heads=6,kv_heads=2,mlp_width=50,vocab=37,context=40", HET_F32, isa, 0.0f);
    bad |= run("qwen3", "qwen3:layers=1,width=34,heads=3,kv_heads=1,head_size=18,mlp_width=41,vocab=37,context=40", HET_F32, isa, 0.0f);
    bad |= run("neox", "neox:layers=1,width=48,heads=2,vocab=37,context=40", HET_F32, isa, 0.0f);
    bad |= run("gpt2-bf16-plain", "gpt2:layers=1,width=40,heads=5,vocab=37,context=40", HET_BF16, HET_ISA_PLAIN, 0.0f);
    return bad;
}
