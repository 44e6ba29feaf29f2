/* Reinforcement learning on unequal ranks: some of five ranks sample, the others train, by group relative policy optimization (arXiv 2402.03300).
   Samplers and trainer give a sample the same log-probability, to the last bit, so its ratio is exactly 1 and nothing has to be corrected for.
     grpo [ROUNDS [TRAINERS]]      40 rounds; TRAINERS: a digit a rank, 1: it trains, 0: it samples (01100; examples/placement.c finds the best)
   The task: behind a prompt token write tokens of its parity. A sample's advantage is its reward beside its group's, (r - mean) / deviation; negative
   ones turn the gradient's sign in a hook, for which head and last norm, whose gradients a hook does not see, stay as they are. */
#define _POSIX_C_SOURCE 200809L /* threads, clock_gettime */
#define HETRAIN_IMPLEMENTATION
#include "hetrain.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS = 5, PROMPTS = 4, GROUP = 8, SAMPLES = PROMPTS * GROUP, LENGTH = 12, VOCAB = 16 };
static const double speed[RANKS] = { 0.4, 0.4, 0.2, 0.2, 0.1 }; /* emulated */
typedef struct sample { int32_t token[LENGTH + 1], target[LENGTH]; float weight[LENGTH]; double reward, advantage, sampled, trained; } sample;
typedef struct sampler { het_ctx *ctx; int first, count, round; het_result result; } sampler;
typedef struct outcome { double first, last, seconds[2]; int equal; } outcome; /* mean rewards; seconds to write and to train on a sample */
static sample samples[SAMPLES];
static double seconds_now(void) {
    struct timespec t;
    return clock_gettime(CLOCK_MONOTONIC, &t), (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static int head_and_norm(void *user, const char *name) { (void)user; return strstr(name, "lm_head") || !strcmp(name, "model.norm.weight"); }
/* Every sample is a micro-batch. */
static het_result turn(void *user, const het_hook_info *info) {
    const int head = strcmp(info->unit_name, het_unit_head()->name) == 0;
    int64_t i;
    (void)user;
    if (info->direction != HET_BACKWARD || !head || samples[info->micro_batch].advantage >= 0) return HET_OK;
    for (i = 0; i < info->rows * info->width[0]; i++) info->stream[0][i] = -info->stream[0][i];
    return HET_OK;
}

static het_result create(int inference, const het_device_desc *devices, int64_t count, het_ctx **ctx) {
    het_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.model.family = HET_LLAMA, desc.model.layers = 2, desc.model.width = 64, desc.model.context = LENGTH, desc.model.vocab = VOCAB;
    desc.model.init_std = 0.1f; /* the head stays as it begins: large enough to say anything */
    desc.inference = inference ? HET_YES : HET_NO, desc.frozen = head_and_norm, desc.host.hook = turn;
    desc.limits.max_tokens = LENGTH, desc.limits.max_micro_batches = SAMPLES;
    desc.optimizer.learning_rate = 3e-3f, desc.optimizer.schedule = HET_LR_CONSTANT, desc.optimizer.weight_decay = -1;
    desc.layout.devices = devices, desc.layout.device_count = count;
    return het_create(&desc, ctx, NULL);
}

static het_batch batch_of(const sample *s) {
    static const int64_t bounds[2] = { 0, LENGTH };
    const het_batch b = { LENGTH, 1, s->token, s->target, s->weight, bounds, NULL, 0, NULL };
    return b;
}
/* Log-probability of what a sample wrote, by the context's own loss. */
static het_result judge(het_ctx *ctx, const sample *s, double *log_probability) {
    het_step_info info = { 0, 0, 0, 0, 0, 0, 0, 0 };
    const het_batch b = batch_of(s);
    const het_result result = het_evaluate(ctx, &b, 1, &info);
    return *log_probability = -info.loss * info.weight, result;
}

static void *write_samples(void *user) {
    sampler *w = (sampler *)user;
    float logits[VOCAB], scratch[VOCAB];
    int i, t;
    for (i = w->first; i < w->first + w->count && w->result == HET_OK; i++) {
        sample *s = &samples[i];
        s->token[0] = i / GROUP, s->reward = 0;
        for (t = 0; t < LENGTH && w->result == HET_OK; t++) {
            w->result = het_infer(w->ctx, s->token + t, 1, t, logits);
            s->token[t + 1] = s->target[t] = het_sample(logits, VOCAB, 1, 0, 0, (uint64_t)w->round, (uint64_t)(i * LENGTH + t), scratch);
            s->reward += (s->target[t] + s->token[0]) % 2 == 0 ? 1.0 / LENGTH : 0;
            s->weight[t] = 1;
        }
        if (w->result == HET_OK) w->result = judge(w->ctx, s, &s->sampled);
    }
    return NULL;
}

static het_result copy_weights(het_ctx *from, het_ctx *to) {
    static float room[1 << 16];
    het_result result = HET_OK;
    int64_t p;
    for (p = 0; p < het_parameter_count(from) && result == HET_OK; p++)
        if ((result = het_parameter_read(from, p, HET_WEIGHT, room)) == HET_OK) result = het_parameter_write(to, p, HET_WEIGHT, room);
    return result;
}

/* The group's advantages, and its samples as micro-batches. Returns the sum of its rewards. */
static double weigh(sample *group, het_batch *batch) {
    double sum = 0, squares = 0;
    int k, t;
    for (k = 0; k < GROUP; k++) sum += group[k].reward, squares += group[k].reward * group[k].reward;
    for (k = 0; k < GROUP; k++) {
        group[k].advantage = (group[k].reward - sum / GROUP) / (sqrt(fmax(0, squares / GROUP - sum * sum / GROUP / GROUP)) + 1e-6);
        for (t = 0; t < LENGTH; t++) group[k].weight[t] = (float)fabs(group[k].advantage);
        batch[k] = batch_of(&group[k]);
    }
    return sum;
}

/* Ranks of `train` in one data-parallel context, every other one a sampler of its own, with as many of the samples as its speed says. */
static het_result run(const char *train, int rounds, outcome *o) {
    het_device_desc devices[RANKS], one[RANKS];
    sampler w[RANKS];
    het_ctx *trainer = NULL;
    het_result result;
    double all = 0, done = 0;
    int round, r, i, samplers = 0, trainers = 0, given = 0;
    memset(devices, 0, sizeof devices), memset(one, 0, sizeof one), memset(w, 0, sizeof w);
    for (r = 0; r < RANKS; r++)
        if (train[r] == '1') devices[trainers++].speed = speed[r];
        else one[samplers++].speed = speed[r], all += speed[r];
    result = create(0, devices, trainers, &trainer);
    for (r = 0; r < samplers && result == HET_OK; r++) {
        result = create(1, &one[r], 1, &w[r].ctx), done += one[r].speed;
        w[r].first = given, w[r].count = (int)(SAMPLES * done / all + 0.5) - given, given += w[r].count;
    }
    for (round = 0; round < rounds && result == HET_OK; round++) {
        pthread_t thread[RANKS];
        het_batch batch[SAMPLES];
        double mean = 0, begin = seconds_now();
        for (r = 0; r < samplers && result == HET_OK; r++) result = copy_weights(trainer, w[r].ctx);
        for (r = 0; r < samplers; r++) w[r].round = round, w[r].result = result, pthread_create(&thread[r], NULL, write_samples, &w[r]);
        for (r = 0; r < samplers; r++) pthread_join(thread[r], NULL), result = w[r].result != HET_OK ? w[r].result : result;
        o->seconds[0] += (seconds_now() - begin) / (rounds * SAMPLES);
        for (i = 0; i < SAMPLES && result == HET_OK; o->equal += memcmp(&samples[i].trained, &samples[i].sampled, sizeof(double)) == 0, i++)
            result = judge(trainer, &samples[i], &samples[i].trained);
        for (i = 0; i < SAMPLES; i += GROUP) mean += weigh(&samples[i], &batch[i]) / SAMPLES;
        begin = seconds_now();
        if (result == HET_OK) result = het_step(trainer, batch, SAMPLES, NULL);
        o->seconds[1] += (seconds_now() - begin) / (rounds * SAMPLES);
        o->first = round == 0 ? mean : o->first, o->last = mean;
    }
    if (result != HET_OK) fprintf(stderr, "grpo: %s\n", trainer != NULL ? het_last_error(trainer) : het_result_text(result));
    for (r = 0; r < samplers; r++) het_destroy(w[r].ctx);
    return het_destroy(trainer), result;
}
int main(int argc, char **argv) {
    const long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 40;
    const char *train = argc > 2 ? argv[2] : "01100";
    outcome o = { 0, 0, { 0, 0 }, 0 };
    if (strlen(train) != RANKS || strspn(train, "01") != RANKS || !strchr(train, '0') || !strchr(train, '1') || rounds < 1 || rounds > 1000000)
        return fprintf(stderr, "grpo [ROUNDS [TRAINERS]]: 1 to 1000000 rounds; TRAINERS has %d digits 0 and 1, of both at least one\n", RANKS), 2;
    if (run(train, (int)rounds, &o) != HET_OK) return 1;
    printf("%d rounds: mean reward %.3f to %.3f; %.2f ms a sample to write, %.2f ms to train on; %d of %d log-probabilities equal to the bit\n",
           (int)rounds, o.first, o.last, 1e3 * o.seconds[0], 1e3 * o.seconds[1], o.equal, (int)rounds * SAMPLES);
    return o.equal == rounds * SAMPLES && (rounds < 40 || o.last > o.first + 0.2) ? 0 : 1;
}
