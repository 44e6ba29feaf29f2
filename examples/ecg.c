/* A small model learns synthetic electrocardiograms, quantised to 64 levels, on 1, 2 and 4 ranks: what more ranks bring, in one table.
     ecg [STEPS [SPEED]]      20; every rank has SPEED of a core's speed (1 / 8: ranks sleep, so that four of them fit into a core)
   The waves are made here, no patient's: five Gaussians a beat as in P. McSharry et al., IEEE Trans. Biomed. Eng. 50 (2003), with a rate, heights and
   noise of each record's own. With N ranks a step of T_N s has speed-up T_1 / T_N, efficiency T_1 / (N T_N), overhead N T_N - T_1. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#define HETRAIN_IMPLEMENTATION
#include "hetrain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LEVELS = 64, CONTEXT = 128, RECORDS = 8, MOST = 4, RATE = 64 }; /* RATE: values a second */

static double uniform(uint64_t *state) { /* splitmix64, [0, 1) */
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (double)((z ^ z >> 31) >> 11) / 9007199254740992.0;
}

/* CONTEXT + 1 values of record number `number`. Waves P, Q, R, S, T: angle within the beat, height in mV, width. */
static void record(int64_t number, int32_t level[CONTEXT + 1]) {
    static const double wave[5][3] = { { -1.22, 0.15, 0.25 }, { -0.26, -0.12, 0.1 }, { 0, 1.1, 0.1 }, { 0.26, -0.25, 0.1 }, { 1.75, 0.3, 0.4 } };
    uint64_t state = (uint64_t)number * 2654435761u + 1;
    const double pi = 3.14159265358979, beats = 0.8 + 0.9 * uniform(&state), height = 0.7 + 0.6 * uniform(&state);
    double phase = 2 * pi * uniform(&state);
    int i, w;
    for (i = 0; i <= CONTEXT; i++) {
        double volts = 0.02 * (uniform(&state) - 0.5);
        for (w = 0; w < 5; w++) {
            double angle = fmod(phase - wave[w][0] + 3 * pi, 2 * pi) - pi;
            volts += height * wave[w][1] * exp(-angle * angle / (2 * wave[w][2] * wave[w][2]));
        }
        level[i] = (int32_t)fmin(LEVELS - 1, fmax(0, (volts + 0.5) / 2 * LEVELS));
        phase += 2 * pi * beats / RATE;
    }
}

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct outcome { double first, last, seconds, reducing; uint64_t weights; } outcome;

/* Trains on `ranks` ranks. seconds: the least of a step, since other programs come and go; reducing: of that step, from the first rank's last
   backward to the end. */
static het_result train(int ranks, double speed, int steps, outcome *o, het_error *error) {
    static int32_t level[RECORDS][CONTEXT + 1];
    static const int64_t bounds[2] = { 0, CONTEXT };
    het_device_desc devices[MOST];
    het_batch batch[RECORDS];
    het_step_info info;
    het_desc desc;
    het_ctx *ctx = NULL;
    het_result result;
    int n, i;
    memset(&desc, 0, sizeof desc), memset(devices, 0, sizeof devices), memset(batch, 0, sizeof batch), memset(o, 0, sizeof *o);
    for (i = 0; i < ranks; i++) devices[i].speed = speed;
    desc.model.family = HET_LLAMA, desc.model.layers = 2, desc.model.width = 96, desc.model.context = CONTEXT, desc.model.vocab = LEVELS;
    desc.optimizer.learning_rate = 3e-3f, desc.optimizer.schedule = HET_LR_CONSTANT;
    desc.limits.max_tokens = CONTEXT, desc.limits.max_micro_batches = RECORDS;
    desc.layout.devices = devices, desc.layout.device_count = ranks;
    result = het_create(&desc, &ctx, error);
    for (n = 0, o->seconds = 1e30; n < steps && result == HET_OK; n++) {
        double begin;
        for (i = 0; i < RECORDS; i++) {
            record((int64_t)n * RECORDS + i, level[i]);
            batch[i].tokens = CONTEXT, batch[i].sequences = 1, batch[i].sequence_start = bounds;
            batch[i].token = level[i], batch[i].target = level[i] + 1;
        }
        begin = seconds_now();
        result = het_step(ctx, batch, RECORDS, &info);
        if (n > 0 && seconds_now() - begin < o->seconds) {
            het_timeline t;
            double backward = 0;
            int64_t r;
            o->seconds = seconds_now() - begin;
            het_get_timeline(ctx, 0, &t);
            for (r = 0; r < t.records; r++)
                if (t.record[r].action.kind <= HET_ACTION_W && t.record[r].end > backward) backward = t.record[r].end;
            o->reducing = o->seconds - backward;
        }
        if (n == 0) o->first = info.loss;
        o->last = info.loss;
    }
    if (result == HET_OK) result = het_hash(ctx, &o->weights);
    else if (ctx != NULL) strcpy(error->text, het_last_error(ctx));
    het_destroy(ctx);
    return result;
}

int main(int argc, char **argv) {
    const long steps = argc > 1 ? strtol(argv[1], NULL, 10) : 20;
    const double speed = argc > 2 ? atof(argv[2]) : 0.125;
    outcome one, o;
    het_error error = { HET_OK, "" };
    het_result result = HET_OK;
    int ranks, good = 1;
    memset(&one, 0, sizeof one);
    if (steps < 2 || steps > 1000000 || !(speed > 0 && speed <= 1))
        return fprintf(stderr, "ecg [STEPS [SPEED]]: 2 to 1000000 steps, the first of which is not timed; a speed above 0, at most 1\n"), 2;
    printf("ranks  s a step  speed-up  efficiency  overhead s  after backward s  loss            weights\n");
    for (ranks = 1; ranks <= MOST && result == HET_OK; ranks *= 2) {
        result = train(ranks, speed, (int)steps, &o, &error);
        if (result != HET_OK) break;
        if (ranks == 1) one = o;
        printf("%5d  %8.4f  %8.2f  %9.0f %%  %10.4f  %16.4f  %.3f to %.3f  %016llx\n", ranks, o.seconds, one.seconds / o.seconds,
               100 * one.seconds / (ranks * o.seconds), ranks * o.seconds - one.seconds, o.reducing, o.first, o.last, (unsigned long long)o.weights);
        good = good && o.weights == one.weights && o.last < (steps < 8 ? 1 : 0.8) * o.first;
    }
    if (result != HET_OK) fprintf(stderr, "ecg: %s: %s\n", het_result_text(result), error.text);
    return result == HET_OK && good ? 0 : 1;
}
