/* Islands of speeds 3 and 1, a thread each, 50 ms and 10 MB/s apart (hetrain_outer.h): tokens a second of both with their joins, over the sum of
   what each trains by itself beside the other. Between joins each makes as many steps as it can while the other does. */
#ifndef BENCH_ISLANDS_H
#define BENCH_ISLANDS_H

#include "../threads_transport.h"
#include "hetrain_outer.h"

enum { ISLANDS_STEPS = 300 }; /* of the fast one between joins */

typedef struct island {
    ranks_bench r;
    runner *run;
    het_outer_desc outer;
    int64_t every;             /* steps between joins */
    int joins;
    pthread_barrier_t *start;
    double seconds;
    int status;
} island;

static void islands_nap(void *user) {
    const struct timespec t = { 0, 200000 };
    (void)user;
    (void)nanosleep(&t, NULL);
}

static void *islands_live(void *arg) {
    island *i = (island *)arg;
    het_outer *outer = NULL;
    het_error error = { HET_OK, "" };
    het_result result = i->joins ? het_outer_create(&i->outer, i->run->ctx, &outer, &error) : HET_OK;
    (void)pthread_barrier_wait(i->start);
    i->seconds = seconds_now();
    for (int64_t step = 1; step <= i->every && result == HET_OK; step++) {
        result = het_step(i->run->ctx, i->r.batch, i->r.count, NULL);
        if (result != HET_OK) (void)het_error_put(&error, result, het_last_error(i->run->ctx));
        else if (i->joins && step == i->every) result = het_outer_join(outer, (double)i->every);
        if (result != HET_OK && error.text[0] == 0) (void)het_error_put(&error, result, het_outer_error(outer));
    }
    i->seconds = seconds_now() - i->seconds;
    if (result != HET_OK) i->status = fail(FAILED, "--what islands: %s", error.text);
    het_outer_destroy(outer);
    return NULL;
}

/* Both at once. */
static int islands_run(island *all, int joins, int64_t *sent) {
    threads_world world;
    threads_end end[2];
    het_transport transport[2];
    pthread_barrier_t start;
    pthread_t thread[2];
    threads_open(&world, end, transport, 2, 0);
    world.latency = 0.05, world.bandwidth = 1e7;
    pthread_barrier_init(&start, NULL, 2);
    for (int k = 0; k < 2; k++) {
        memset(&all[k].outer, 0, sizeof all[k].outer);
        all[k].outer.islands = 2, all[k].outer.island = k, all[k].outer.transport = transport[k], all[k].outer.pause = islands_nap;
        all[k].joins = joins, all[k].start = &start;
        if (pthread_create(&thread[k], NULL, islands_live, &all[k]) != 0) return fail(FAILED, "--what islands: no thread");
    }
    for (int k = 0; k < 2; k++) (void)pthread_join(thread[k], NULL);
    pthread_barrier_destroy(&start);
    pthread_mutex_destroy(&world.lock);
    *sent = world.bytes;
    return all[0].status != 0 ? all[0].status : all[1].status;
}

static int bench_islands(bench *b) {
    static const char model[] = "llama:layers=4,width=64,heads=2,vocab=256,context=128";
    const int64_t n = b->set.repetitions;
    island all[2];
    double *ratio = (double *)malloc((size_t)n * sizeof(double)), rate[2] = { 0, 0 };
    int64_t sent = 0;
    int status = 0;
    memset(all, 0, sizeof all);
    if (ratio == NULL) return fail(FAILED, "out of memory");
    for (int k = 0; k < 2 && status == 0; k++) {
        all[k].every = k == 0 ? ISLANDS_STEPS : ISLANDS_STEPS / 3;
        status = ranks_prepare(&all[k].r, b, b->given[option_find(options, OPTIONS, "--model", 7)] ? b->set.model : model, 16, 128, 1);
        if (status != 0) break;
        all[k].run = ranks_next(&all[k].r, "island", 1, b->cpu, 1);
        if (k == 1) all[k].run->device[0].speed = 1.0 / 3.0;
        if (b->set.devices == STEADY) steady_take(all[k].run->device, 1, STEADY_SLEEPS);
        status = ranks_create(&all[k].r, all[k].run, "dp", NULL);
    }
    for (int64_t round = -1; round < n && status == 0; round++) {
        double seconds = 0, tokens = 0;
        status = islands_run(all, 0, &sent);
        for (int k = 0; k < 2; k++) rate[k] = (double)all[k].every / all[k].seconds;
        all[1].every = (int64_t)(ISLANDS_STEPS * rate[1] / rate[0] + 0.5);
        if (status == 0) status = islands_run(all, 1, &sent);
        for (int k = 0; k < 2; k++) {
            seconds = fmax(seconds, all[k].seconds);
            tokens += (double)all[k].every;
        }
        if (round >= 0) ratio[round] = tokens / seconds / (rate[0] + rate[1]);
    }
    if (status == 0) {
        printf("{\"name\":\"islands\",\"steps_a_second\":[%.2f,%.2f],\"steps_between_joins\":[%d,%lld],\"bytes\":%lld", rate[0], rate[1],
               ISLANDS_STEPS, (long long)all[1].every, (long long)sent);
        print_spread_of("ratio", 1, ratio, n);
        printf("}\n");
    }
    free(ratio);
    for (int k = 0; k < 2; k++) ranks_end(&all[k].r);
    return status;
}

#endif
