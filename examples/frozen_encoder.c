/* A frozen encoder in front of what is trained, its forwards in the bubbles of the trained part (DiffusionPipe, MLSys 2024). Before the first
   trained parameter nothing has a backward pass (het_cut), so the encoder can be stages of its own: here each of two ranks has all of it, for half of
   the micro-batches, and the trained units are a pipeline over both. het_profile_measure tells what units cost, het_schedule_timed puts the encoder's
   forwards where a rank would wait. With the same lists, but the encoder's forwards in front, the last stage's rank must wait at least twice as long
   before its last action, simulated; run, both must train the weights of one rank. Idle time that is left comes from uneven stages, or is at the
   end, where there are no forwards any more.
     cc -O2 -I. -Iutil examples/frozen_encoder.c -o build/frozen_encoder -lm -lpthread */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#define HETRAIN_SEARCH_IMPLEMENTATION
#include "hetrain_search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CONTEXT = 128, MICRO_BATCHES = 8, RANKS = 2, LAYERS = 8, ENCODER = 4, STEPS = 10 };
typedef struct outcome { double idle, first, loss; uint64_t hash; } outcome; /* idle: seconds of a step, of both ranks, the least */

static int of_the_encoder(void *user, const char *parameter) { /* its layers and the embedding */
    const char *layer = strstr(parameter, "layers.");
    (void)user;
    return strstr(parameter, "embed") != NULL || (layer != NULL && atoi(layer + 7) < ENCODER);
}

static double now(void *user) {
    struct timespec t;
    (void)user;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static het_result train(het_desc *desc, const het_schedule *lists, outcome *o, het_error *error) {
    static const char text[] = "THE ENCODER IS FROZEN: ITS FORWARDS WAIT FOR NO GRADIENT, AND MAY RUN WHEREVER A RANK WOULD BE IDLE. ";
    static const int64_t bounds[2] = { 0, CONTEXT };
    static int32_t token[MICRO_BATCHES][CONTEXT + 1];
    het_batch batch[MICRO_BATCHES];
    het_step_info info;
    het_ctx *ctx = NULL;
    het_result result;
    memset(batch, 0, sizeof batch);
    for (int m = 0; m < MICRO_BATCHES; m++) {
        for (int i = 0; i <= CONTEXT; i++) token[m][i] = text[(13 * m + i) % (int)(sizeof text - 1)] - ' ';
        batch[m].tokens = CONTEXT, batch[m].sequences = 1, batch[m].sequence_start = bounds;
        batch[m].token = token[m], batch[m].target = token[m] + 1;
    }
    desc->layout.schedule = lists, o->idle = 1e30;
    result = het_create(desc, &ctx, error);
    for (int step = 0; step < STEPS && result == HET_OK; step++) {
        double begin = 1e30, end = 0, busy = 0;
        if ((result = het_step(ctx, batch, MICRO_BATCHES, &info)) != HET_OK) break;
        for (int64_t r = 0; r < desc->layout.device_count; r++) {
            het_timeline t;
            het_get_timeline(ctx, r, &t);
            for (const het_record *a = t.record; a < t.record + t.records; a++) {
                if (a->action.kind > HET_ACTION_W) continue;
                busy += a->end - a->start, begin = a->start < begin ? a->start : begin, end = a->end > end ? a->end : end;
            }
        }
        busy = (double)desc->layout.device_count * (end - begin) - busy;
        o->idle = busy < o->idle ? busy : o->idle, o->loss = info.loss, o->first = step == 0 ? info.loss : o->first;
    }
    if (result == HET_OK) result = het_hash(ctx, &o->hash);
    if (result != HET_OK && ctx != NULL) het_error_put(error, result, het_last_error(ctx));
    het_destroy(ctx);
    return result;
}

/* The encoder's forwards to the front of each rank's list; all else stays in its order. Returns how many, -1 if the encoder has any other action. */
static int64_t encoder_first(het_schedule *lists) {
    het_action others[3 * MICRO_BATCHES]; /* F, I and W of one stage */
    int64_t r, i, at, count, moved = 0;
    for (r = 0; r < lists->ranks; r++) {
        for (at = i = lists->start[r], count = 0; i < lists->start[r + 1]; i++) {
            const het_action a = lists->action[i];
            if (a.stage == 0 && a.kind != HET_ACTION_F) return -1;
            if (a.stage == 0) lists->action[at++] = a, moved++;
            else others[count++] = a;
        }
        memcpy(&lists->action[at], others, (size_t)count * sizeof *others);
    }
    return moved;
}

/* Seconds of a step that both ranks are idle, how many of them the last stage's rank waits before its last action, and the step's. */
typedef struct times { double idle, waits, step; } times;
static het_result simulate(const het_plan *plan, const het_schedule *lists, const het_costs *costs, times *of, het_error *error) {
    het_simulation *simulation = NULL;
    const het_result result = het_simulate(plan, lists, costs, HET_NO, NULL, &simulation, error);
    if (result == HET_OK) {
        const het_rank_time *last = &simulation->rank[RANKS - 1];
        of->idle = simulation->rank[0].idle + last->idle, of->waits = last->fill + last->wait, of->step = simulation->makespan;
    }
    het_simulation_free(simulation);
    return result;
}

int main(void) {
    static const char text[] = "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,9]},{\"rank\":0,\"units\":[9,13]},"
                               "{\"rank\":1,\"units\":[13,18]}]},{\"stages\":[{\"rank\":1,\"units\":[0,9]},{\"rank\":0,\"units\":[9,13]},"
                               "{\"rank\":1,\"units\":[13,18]}]}]}";
    static const char *const names[3] = { "encoder first", "in the bubbles", "one rank" };
    static const int64_t counts[2] = { MICRO_BATCHES / 2, MICRO_BATCHES / 2 };
    static het_device_desc device[RANKS];                   /* zero */
    static outcome run[3];                                  /* zero */
    double tokens[MICRO_BATCHES], pairs[MICRO_BATCHES];
    times s[2] = { { 0, 0, 0 }, { 0, 0, 0 } };
    het_schedule *lists[3] = { NULL, NULL, NULL };
    het_profile *profile = NULL;
    het_plan_costs *measured = NULL;
    het_plan *plan = NULL;
    het_plan_desc of_plan;
    het_measure_desc measure;
    het_costs costs;
    het_desc desc;
    het_error error = { HET_OK, "" };
    het_result result;
    int64_t moved = 0;
    memset(&desc, 0, sizeof desc), memset(&of_plan, 0, sizeof of_plan), memset(&measure, 0, sizeof measure), memset(&costs, 0, sizeof costs);
    desc.model.family = HET_LLAMA, desc.model.layers = LAYERS, desc.model.width = 96, desc.model.context = CONTEXT, desc.model.vocab = 64;
    desc.limits.max_tokens = CONTEXT, desc.limits.max_micro_batches = MICRO_BATCHES, desc.frozen = of_the_encoder;
    desc.optimizer.learning_rate = 3e-3f, desc.optimizer.total_steps = STEPS, desc.layout.devices = device, desc.layout.device_count = RANKS;
    measure.desc = &desc, measure.seconds = 1, measure.together = HET_NO, measure.now = now;
    of_plan.units = 2 * LAYERS + 2, of_plan.ranks = RANKS;
    result = het_profile_measure(&measure, &profile, &error);
    if (result == HET_OK) result = het_plan_read(&of_plan, text, sizeof text - 1, &plan, &error);
    if (result == HET_OK) result = het_profile_cuts(profile, plan, &error);
    if (result == HET_OK) result = het_profile_costs(profile, plan, NULL, HET_NO, NULL, &measured, &error);
    for (int m = 0; m < MICRO_BATCHES; m++) tokens[m] = CONTEXT, pairs[m] = CONTEXT * (CONTEXT + 1) / 2;
    if (result == HET_OK) costs.stage = measured->stage, costs.tokens = tokens, costs.pairs = pairs;
    for (int i = 0; i < 2 && result == HET_OK; i++) {
        if ((result = het_schedule_timed(plan, counts, &costs, NULL, &lists[i], &error)) == HET_OK && i == 0) moved = encoder_first(lists[0]);
        if (result == HET_OK) result = simulate(plan, lists[i], &costs, &s[i], &error);
    }
    for (int i = 0; i < 3 && result == HET_OK; i++) {
        desc.layout.plan = i < 2 ? plan : NULL, desc.layout.device_count = i < 2 ? RANKS : 1;
        if ((result = train(&desc, lists[i], &run[i], &error)) != HET_OK) break;
        printf("%-14s  ", names[i]);
        if (i < 2) printf("idle %.2f of %.1f ms simulated (the last stage waits %.2f), %.2f run; ", 1e3 * s[i].idle, 1e3 * RANKS * s[i].step,
                          1e3 * s[i].waits, 1e3 * run[i].idle);
        printf("loss %.4f to %.4f, weights %016llx\n", run[i].first, run[i].loss, (unsigned long long)run[i].hash);
    }
    if (result != HET_OK) fprintf(stderr, "frozen_encoder: %s: %s\n", het_result_text(result), error.text);
    for (int i = 0; i < 2; i++) het_schedule_free(lists[i]);
    het_plan_costs_free(measured), het_profile_free(profile), het_plan_free(plan);
    return result == HET_OK && moved == MICRO_BATCHES && s[0].idle > s[1].idle && s[0].waits >= 2 * s[1].waits &&
           run[0].hash == run[2].hash && run[1].hash == run[2].hash && run[2].loss < run[2].first ? 0 : 1;
}
