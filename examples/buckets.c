/* A sequence model trained as translators train theirs: lines of a text in buckets of like lengths, as many in a micro-batch as a budget of tokens
   allows; a loss scale that is halved where a gradient is not finite and the step is skipped, and doubled after some good steps; a state
   file to go on from. Here the scale changes no bit, being a power of two over f32 (fp16 would need it): a run without it must end with the same
   weights. Two steps meet an inf, and a run that is killed goes on from its files: every loss must be that of the run that was not.
     buckets [FILE]      its lines (default: this file)      cc -O2 -I. -Iutil examples/buckets.c -o build/buckets -lm -lpthread */
#define _POSIX_C_SOURCE 200809L
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_FILES_IMPLEMENTATION
#include "hetrain.h"
#include "hetrain_files.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
enum { CONTEXT = 128, BUDGET = 512, BUCKET = 16, LINES = 4096, MICRO_BATCHES = 2, STEPS = 60, SAVE = 20, WINDOW = 15 };
typedef struct batch { int32_t token[BUDGET], target[BUDGET]; int64_t start[BUDGET + 1]; het_batch all; } batch;
typedef struct run { float scale; int64_t good; double loss[STEPS]; uint64_t hash; int inject; } run; /* inject: now */

static batch batches[LINES];
static int64_t batch_count, padded[2]; /* tokens that rows as long as the longest would add: in buckets, in the order of the file */

/* Micro-batches of lines whose lengths are in one bucket (or, for comparison, in any). Returns what padding would add. */
static int64_t fill(char *const *line, int64_t lines, int bucketed) {
    int64_t bucket, i, k, longest = 0, pads = 0;
    batch *b = NULL;
    for (batch_count = bucket = 0; bucket < (bucketed ? CONTEXT / BUCKET : 1); bucket++, b = NULL)
        for (i = 0; i < lines; i++) {
            const int64_t length = (int64_t)strlen(line[i]) - 1; /* tokens: all bytes but the last; targets: all but the first */
            if (length < 1 || length > CONTEXT || (bucketed && (length - 1) / BUCKET != bucket)) continue;
            if (b == NULL || b->all.tokens + length > BUDGET) {
                b = &batches[batch_count++], memset(b, 0, sizeof *b), longest = 0;
                b->all.token = b->token, b->all.target = b->target, b->all.sequence_start = b->start;
            }
            pads += length > longest ? (length - longest) * b->all.sequences : longest - length;
            longest = length > longest ? length : longest;
            for (k = 0; k < length; k++, b->all.tokens++)
                b->token[b->all.tokens] = (unsigned char)line[i][k], b->target[b->all.tokens] = (unsigned char)line[i][k + 1];
            b->start[++b->all.sequences] = b->all.tokens;
        }
    return pads;
}

/* The head with a scaled gradient: 1 / (sum of weights) is what its loss is multiplied with. */
static het_result head_describe(const het_unit *unit, het_unit_info *info) { return het_unit_head()->describe(unit, info); }
static het_result head_backward(const het_unit_call *call) {
    het_step_scalars scalars = *call->scalars;
    het_unit_call own = *call;
    scalars.inverse_weight *= *(const float *)call->unit->settings, own.scalars = &scalars;
    return het_unit_head()->backward_input(&own);
}
static const het_unit_iface scaled_head = { HETRAIN_UNIT_VERSION, "scaled head", head_describe, het_program_forward, head_backward,
                                            het_program_backward_weight };

static const float *scale_now; /* an update has no pointer of the user's */
static het_result update(const het_optimizer_call *call) {
    het_optimizer_call own = *call;
    het_step_scalars scalars = *call->scalars;
    scalars.clip_scale /= *scale_now, own.scalars = &scalars;
    return het_adamw()->update(&own);
}

static het_result hook(void *user, const het_hook_info *info) { /* an inf in the gradient behind unit 2 */
    if (((const run *)user)->inject && info->direction == HET_BACKWARD && info->unit == 2) info->stream[0][0] = INFINITY;
    return HET_OK;
}

/* Steps of a run from `from` on, what was saved there included; at step `die`, if not negative, the process is no more. */
static het_result train(run *r, int64_t from, int64_t die, int scaled) {
    static const char *const files[2] = { "buckets.safetensors", "buckets.state" };
    het_optimizer_iface optimizer = *het_adamw();
    het_unit unit[6];
    het_reader reader;
    het_step_info info;
    het_desc desc;
    het_ctx *ctx = NULL;
    het_error error = { HET_OK, "" };
    int64_t units, step, m;
    het_result result;
    FILE *file;
    memset(&desc, 0, sizeof desc), optimizer.update = update, scale_now = &r->scale;
    desc.model.family = HET_LLAMA, desc.model.layers = 2, desc.model.width = 48, desc.model.context = CONTEXT;
    desc.limits.max_tokens = BUDGET, desc.limits.max_sequences = BUDGET, desc.limits.max_micro_batches = MICRO_BATCHES;
    desc.optimizer.learning_rate = 4e-3f, desc.optimizer.total_steps = STEPS, desc.optimizer.clip = -1, desc.optimizer.iface = &optimizer;
    desc.guard.skip_bad_steps = HET_YES, desc.host.hook = hook, desc.host.user = r, desc.units = unit, desc.unit_count = 6;
    result = het_model_complete(&desc.model, &error);
    if (result == HET_OK) result = het_model_units(&desc.model, unit, 6, &units, &error);
    if (unit[5].iface = &scaled_head, unit[5].settings = &r->scale, result == HET_OK) result = het_create(&desc, &ctx, &error);
    for (m = 0; m < 2 && from > 0 && result == HET_OK; m++) {
        if ((result = het_reader_open(files[m], &reader, &error)) != HET_OK) break;
        result = m == 0 ? het_load_weights(ctx, &reader) : het_load_state(ctx, &reader), het_reader_close(&reader);
    }
    for (step = from; step < STEPS && result == HET_OK; step++) {
        het_batch two[MICRO_BATCHES];
        for (m = 0; m < MICRO_BATCHES; m++) two[m] = batches[(step * 7 + m * 11) * 13 % batch_count].all;
        r->inject = step == 9 || step == 31;
        if (step == die) raise(SIGKILL);
        if ((result = het_step(ctx, two, MICRO_BATCHES, &info)) != HET_OK) break;
        r->loss[step] = info.loss, r->good = info.skipped ? 0 : r->good + 1;
        if (scaled && info.skipped) r->scale /= 2, printf("step %2d is skipped, loss scale %g\n", (int)step + 1, (double)r->scale);
        else if (scaled && r->good % WINDOW == 0) r->scale *= 2;
        if (die < 0 || (step + 1) % SAVE != 0) continue;
        for (m = 0; m < 2 && result == HET_OK; m++) result = het_save_file(ctx, files[m], m == 0 ? het_save_weights : het_save_state);
        if (result == HET_OK && (file = fopen("buckets.scale", "w")) != NULL)
            fprintf(file, "%.9g %d %d", (double)r->scale, (int)r->good, (int)step + 1), fclose(file);
    }
    if (result == HET_OK) result = het_hash(ctx, &r->hash);
    if (result != HET_OK) fprintf(stderr, "buckets: %s\n", ctx != NULL ? het_last_error(ctx) : error.text);
    het_destroy(ctx);
    return result;
}

/* A run that is killed at step 50 and another that goes on from what the first has saved. Returns how many of its losses are not r's; -1: failure. */
static int kill_and_resume(const run *r) {
    run again = { 65536, 0, { 0 }, 0, 0 };
    int status = 0, good = 0, step = 0, other = 0, i;
    FILE *file;
    const pid_t child = fork();
    if (child == 0) exit(train(&again, 0, 50, 1) != HET_OK);
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFSIGNALED(status) || (file = fopen("buckets.scale", "r")) == NULL) return -1;
    if (fscanf(file, "%f %d %d", &again.scale, &good, &step) != 3) step = 0;
    fclose(file), again.good = good;
    printf("killed in step 50, goes on behind step %d with loss scale %g\n", step, (double)again.scale);
    if (step != 40 || train(&again, step, -1, 1) != HET_OK || again.hash != r->hash) return -1;
    for (i = step; i < STEPS; i++) other += memcmp(&again.loss[i], &r->loss[i], sizeof(double)) != 0;
    return other;
}

int main(int argc, char **argv) {
    static char text[1 << 17], *line[LINES];
    static run scaled = { 65536, 0, { 0 }, 0, 0 }, plain = { 1, 0, { 0 }, 0, 0 };
    FILE *file = fopen(argc > 1 ? argv[1] : __FILE__, "rb");
    int64_t lines = 0, other;
    if (file == NULL || fread(text, 1, sizeof text - 1, file) == 0)
        return fprintf(stderr, "buckets: %s cannot be read, or is empty\n", argc > 1 ? argv[1] : __FILE__), 2;
    for (char *at = strtok(text, "\n"); at != NULL && lines < LINES; at = strtok(NULL, "\n")) line[lines++] = at;
    fclose(file), padded[1] = fill(line, lines, 0), padded[0] = fill(line, lines, 1);
    if (batch_count == 0) return fprintf(stderr, "buckets: no line of 2 to %d bytes\n", CONTEXT + 1), 2;
    if (2 * padded[0] >= padded[1]) return fprintf(stderr, "buckets: lines of like lengths, of which buckets do not halve the padding\n"), 2;
    printf("%d lines in %d micro-batches of up to %d tokens; padding would take %d tokens, %d in the file's order\n", (int)lines, (int)batch_count,
           BUDGET, (int)padded[0], (int)padded[1]);
    if (train(&scaled, 0, -1, 1) != HET_OK || train(&plain, 0, -1, 0) != HET_OK) return 1;
    other = kill_and_resume(&scaled);
    printf("loss %.4f to %.4f, weights %016llx, without a scale %016llx; %d losses differ behind the kill\n", scaled.loss[0], scaled.loss[STEPS - 1],
           (unsigned long long)scaled.hash, (unsigned long long)plain.hash, (int)other);
    return other == 0 && scaled.hash == plain.hash && scaled.loss[STEPS - 1] < scaled.loss[0] - 1 ? 0 : 1;
}
