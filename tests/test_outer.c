/* Islands: the outer step against the formula in double, one hash over threads, TCP and jitter, bytes, bits, islands that are killed. */
#define _DEFAULT_SOURCE 1
#define HETRAIN_OUTER_IMPLEMENTATION
#define PROGRAM "test_outer"
#include "programs/islands.h" /* first: cmocka has a `fail` too */

#include "support.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "threads_transport.h"

enum { MOST = 3, ROUNDS_HERE = 4 };

static void nap(void *user)
{
    const struct timespec t = { 0, 200000 };
    (void)user;
    (void)nanosleep(&t, NULL);
}

/* ---- an island's life: rounds of `steps` steps on its own data, then a join ---- */

/* Words that threads share. */
#define SEEN(word) __atomic_load_n(&(word), __ATOMIC_SEQ_CST)
#define TELL(word, value) __atomic_store_n(&(word), (value), __ATOMIC_SEQ_CST)

typedef struct life {
    het_outer_desc desc;
    int64_t steps, rounds;
    float ruin;            /* not 0: what its weights become before each join */
    const char *plan;      /* NULL: one rank */
    int apart;             /* the two ranks of its plan are in two processes */
    het_transport inner;   /* which these have */
    int64_t anew_at;       /* not 0: behind so many rounds (-1: none) and a step it is saved, and another outer goes on */
    int64_t stale;         /* what it saved is of a time before this many joins, and then all may be opened anew */
    int64_t *anew;          /* whether they may; NULL: at once */
    het_transport second;  /* by which; iface NULL: by the same, which nothing may be under way on */
    uint64_t hash;
    double loss;
    int64_t elements;
    het_outer_info info;
    int64_t *at; /* tells how many rounds are done */
    const int64_t *behind; /* not NULL: its first round does not end before another has made `ahead` */
    int64_t ahead;
    int late;              /* that other one waited for it */
    int dies;              /* behind its last round it waits to be killed */
} life;

static void describe(support_run *run, const life *l)
{
    het_model_desc model = support_model(HET_LLAMA);
    support_run_start(run, &model, SUPPORT_MAX_STEPS, SUPPORT_SHORT);
    run->desc.limits.max_micro_batches = SUPPORT_MAX_BLOCKS;
    run->desc.optimizer.learning_rate = 3e-3f;
    if (l->plan == NULL) return;
    support_run_ranks(run, 2);
    support_run_plan(run, l->plan, NULL, 1);
    if (l->apart) run->desc.layout.device_count = 1, run->desc.layout.transport = l->inner;
}

/* What another outer takes from this one. NULL: it has failed. */
static void *saved_state(het_outer *outer, double tokens, size_t *size)
{
    const void *state = het_outer_state(outer, tokens, size);
    void *copy = state != NULL ? malloc(*size) : NULL;
    if (copy != NULL) memcpy(copy, state, *size);
    return copy;
}

static het_outer *open_anew(life *l, het_ctx *ctx, het_outer *outer, double tokens)
{
    het_error error = { HET_OK, "" };
    void *state = saved_state(outer, tokens, &l->desc.state_size);
    while (het_outer_get_info(outer)->joins < l->stale || (l->anew != NULL && l->stale == 0 && !SEEN(*l->anew))) {
        EXPECT_OK(het_outer_poll(outer));
        nap(NULL);
    }
    if (l->anew != NULL) TELL(*l->anew, 1);
    het_outer_destroy(outer);
    l->desc.state = state;
    if (l->second.iface != NULL) l->desc.transport = l->second;
    support_expect(het_outer_create(&l->desc, ctx, &outer, &error), HET_OK, error.text, "", "het_outer_create", __LINE__);
    free(state);
    l->desc.state = NULL;
    assert_true(het_outer_get_info(outer)->rounds == (l->anew_at < 0 ? 0 : l->anew_at) && !het_outer_get_info(outer)->adopted);
    l->anew_at = 0;
    return outer;
}

static void live_in_one(life *l)
{
    support_run run;
    het_ctx *ctx;
    het_outer *outer = NULL;
    het_error error = { HET_OK, "" };
    int64_t s, p;
    int step = (int)l->desc.island; /* islands see other data */
    describe(&run, l);
    ctx = support_create(&run.desc);
    l->desc.pause = nap;
    support_expect(het_outer_create(&l->desc, ctx, &outer, &error), HET_OK, error.text, "", "het_outer_create", __LINE__);
    for (p = 0; p < het_parameter_count(ctx); p++) {
        het_parameter_info info;
        EXPECT_OK(het_parameter_get_info(ctx, p, &info));
        l->elements += info.count;
    }
    l->info = *het_outer_get_info(outer);
    while (l->info.rounds < l->rounds) {
        double tokens = 0;
        for (s = 0; s < l->steps; s++, step++) {
            const het_step_info info = support_step(ctx, &run.data, step % SUPPORT_MAX_STEPS, SUPPORT_APART);
            tokens += (double)info.tokens;
            l->loss = info.loss;
            EXPECT_OK(het_outer_poll(outer));
            if (l->anew_at == 0 || l->info.rounds != (l->anew_at < 0 ? 0 : l->anew_at)) continue;
            outer = open_anew(l, ctx, outer, tokens);
            tokens = het_outer_get_info(outer)->trained;
        }
        if (!(l->ruin >= 0 && l->ruin <= 0)) {
            float *nothing = support_floats(l->elements, 0, 0);
            for (p = 0; p < l->elements; p++) nothing[p] = l->ruin;
            EXPECT_OK(het_parameter_write(ctx, 1, HET_WEIGHT, nothing));
            tokens = 1000;
            free(nothing);
        }
        for (p = 0; l->behind != NULL && l->info.rounds == 0 && SEEN(*l->behind) < l->ahead && !l->late; p++) {
            EXPECT_OK(het_outer_poll(outer));
            nap(NULL);
            l->late = p > 100000;
        }
        support_expect(het_outer_join(outer, tokens), HET_OK, het_outer_error(outer), "", "het_outer_join", __LINE__);
        l->info = *het_outer_get_info(outer);
        if (l->at != NULL) TELL(*l->at, l->info.rounds);
    }
    EXPECT_OK(het_outer_take(outer));
    l->info = *het_outer_get_info(outer);
    l->hash = support_hash(ctx);
    while (l->dies) nap(NULL);
    support_expect(het_outer_end(outer), HET_OK, het_outer_error(outer), "", "het_outer_end", __LINE__);
    het_outer_destroy(outer);
    het_destroy(ctx);
    support_run_end(&run);
}

static void *live_on_a_thread(void *arg) { live_in_one(arg); return NULL; }

/* An island of two processes (threads) that are told the same, of which 0 alone sees the others. */
static void live(life *l)
{
    threads_world world;
    threads_end end[2];
    het_transport transport[2];
    pthread_t thread;
    life other = *l;
    threads_open(&world, end, transport, 2, 0);
    l->inner = transport[0], other.inner = transport[1], other.at = NULL;
    memset(&other.desc.transport, 0, sizeof other.desc.transport);
    if (l->apart) assert_int_equal(pthread_create(&thread, NULL, live_on_a_thread, &other), 0);
    live_in_one(l);
    if (!l->apart) return;
    pthread_join(thread, NULL);
    assert_true(other.hash == l->hash && memcmp(&other.info, &l->info, sizeof l->info) == 0);
}

static void *live_as_an_island(void *arg) { live(arg); return NULL; }

static void settle(life *l, int64_t count)
{
    static const char *const plans[MOST] = { NULL, "pp", "dp" };
    int64_t i;
    memset(l, 0, MOST * sizeof *l);
    for (i = 0; i < count; i++) {
        l[i].desc.islands = count, l[i].desc.island = i;
        l[i].steps = 1 + i, l[i].rounds = ROUNDS_HERE, l[i].plan = plans[i];
    }
}

/* All on threads; returns the bytes that were sent. */
static int64_t on_threads(life *l, int64_t count, uint64_t jitter)
{
    threads_world world;
    threads_end end[MOST];
    het_transport transport[MOST];
    pthread_t thread[MOST];
    int64_t i;
    threads_open(&world, end, transport, count, jitter);
    for (i = 0; i < count; i++) {
        l[i].desc.transport = transport[i];
        assert_int_equal(pthread_create(&thread[i], NULL, live_as_an_island, &l[i]), 0);
    }
    for (i = 0; i < count; i++) pthread_join(thread[i], NULL);
    for (i = 1; i < count; i++) assert_true(l[i].hash == l[0].hash && l[i].info.joins == l[0].info.joins);
    return world.bytes;
}

/* ---- the formula ---- */

/* One island, two rounds: weights against Nesterov's step in double. */
static void one_island_is_an_outer_step(void **state)
{
    support_run run;
    life l[MOST];
    het_outer *outer = NULL;
    het_error error;
    het_ctx *ctx;
    int64_t n = 0, i, p, at, round;
    double *global, *momentum;
    float *w;
    (void)state;
    settle(l, 1);
    describe(&run, l);
    ctx = support_create(&run.desc);
    l->desc.rate = 0.6f, l->desc.momentum = 0.8f;
    EXPECT_OK(het_outer_create(&l->desc, ctx, &outer, &error));
    for (p = 0; p < het_parameter_count(ctx); p++) {
        het_parameter_info info;
        EXPECT_OK(het_parameter_get_info(ctx, p, &info));
        n += info.count;
    }
    w = support_floats(n, 0, 0);
    global = support_alloc((size_t)n, sizeof *global);
    momentum = support_alloc((size_t)n, sizeof *momentum);
    for (round = 0; round < 3; round++) {
        for (p = at = 0; p < het_parameter_count(ctx); p++) {
            het_parameter_info info;
            EXPECT_OK(het_parameter_get_info(ctx, p, &info));
            EXPECT_OK(het_parameter_read(ctx, p, HET_WEIGHT, w + at));
            at += info.count;
        }
        if (round == 0)
            for (i = 0; i < n; i++) global[i] = (double)w[i], momentum[i] = 0;
        for (i = 0; i < n; i++)
            if (fabs((double)w[i] - global[i]) > 1e-6) fail_msg("round %d, element %d: %.9g, not %.9g", (int)round, (int)i, (double)w[i], global[i]);
        (void)support_step(ctx, &run.data, (int)round, SUPPORT_APART);
        (void)support_step(ctx, &run.data, (int)round + 1, SUPPORT_APART);
        for (p = at = 0; p < het_parameter_count(ctx); p++) {
            het_parameter_info info;
            EXPECT_OK(het_parameter_get_info(ctx, p, &info));
            EXPECT_OK(het_parameter_read(ctx, p, HET_WEIGHT, w + at));
            at += info.count;
        }
        for (i = 0; i < n; i++) {
            const double delta = global[i] - (double)w[i];
            momentum[i] = (double)0.8f * momentum[i] + delta;
            global[i] -= (double)0.6f * (delta + (double)0.8f * momentum[i]);
        }
        EXPECT_OK(het_outer_join(outer, 100));
    }
    free(w);
    free(global);
    free(momentum);
    het_outer_destroy(outer);
    het_destroy(ctx);
    support_run_end(&run);
}

/* Weights of an average are tokens: an island without any does not count, and with rate 1 and momentum 0 the others' weights are taken over. */
static void tokens_are_weights(void **state)
{
    life l[MOST], alone[MOST];
    (void)state;
    settle(l, 2);
    l[0].desc.rate = l[1].desc.rate = 1, l[0].desc.momentum = l[1].desc.momentum = -1;
    l[1].steps = 0, l[0].plan = l[1].plan = NULL;
    (void)on_threads(l, 2, 0);
    settle(alone, 1);
    alone[0].desc.rate = 1, alone[0].desc.momentum = -1;
    live(&alone[0]);
    assert_true(fabs(l[0].loss - alone[0].loss) < 1e-5 && l[0].loss > 0);
}

/* An island that is not finite any more, or as good as that, does not count, and goes on from what the other made. */
static void one_that_diverged_does_not_count(void **state)
{
    static const int64_t bits[] = { 0, 2 };
    static const float ruins[] = { 0, (float)NAN, 3.4e38f, -3.4e38f, (float)INFINITY };
    uint64_t hash[5];
    int b, bad;
    (void)state;
    for (b = 0; b < 2; b++)
        for (bad = 0; bad < 5; bad++) {
            life l[MOST];
            settle(l, 2);
            l[0].plan = l[1].plan = NULL;
            l[0].desc.bits = l[1].desc.bits = bits[b];
            l[1].steps = 0, l[1].ruin = ruins[bad];
            (void)on_threads(l, 2, 0);
            hash[bad] = l[0].hash;
            if (hash[bad] != hash[0]) fail_msg("%d bits: an island with weights of %g counts", (int)bits[b], (double)ruins[bad]);
        }
}

/* ---- bits and bytes ---- */

static void one_hash_and_bytes(void **state)
{
    static const int64_t fragments[] = { 1, 3 }, bits[] = { 0, 2, 4, 8 };
    uint64_t hash[2][4];
    int f, b;
    (void)state;
    for (f = 0; f < 2; f++)
        for (b = 0; b < 4; b++) {
            life l[MOST];
            int64_t i, jitter, bytes, expected;
            for (jitter = 0; jitter < 3; jitter++) {
                settle(l, MOST);
                for (i = 0; i < MOST; i++) {
                    l[i].desc.fragments = fragments[f], l[i].desc.bits = bits[b];
                    l[i].rounds = 2 * fragments[f];
                }
                bytes = on_threads(l, MOST, (uint64_t)jitter);
                if (jitter == 0) hash[f][b] = l[0].hash;
                assert_true(l[0].hash == hash[f][b]);
                expected = 2 * MOST * (MOST - 1) * l[0].elements * (bits[b] == 0 ? 32 : bits[b]) / 8;
                assert_true(bytes >= expected && bytes < expected + expected / 16 + MOST * MOST * 64 * (l[0].rounds + 1) + MOST * MOST * 9000);
                assert_true(l[0].info.sent + l[1].info.sent + l[2].info.sent == bytes);
            }
            assert_true(f + b == 0 || hash[f][b] != hash[0][0]);
        }
}

/* Two islands: bytes a round are at most 1.05 / H of data parallelism's of H steps between the same two, counted there. */
static void fewer_bytes_than_data_parallelism(void **state)
{
    life l[MOST];
    support_run run;
    het_ctx *ctx;
    het_timeline timeline;
    int64_t bytes, step, steps = 5, parallel = 0, r;
    (void)state;
    settle(l, 2);
    l[0].rounds = l[1].rounds = 1;
    bytes = on_threads(l, 2, 0);
    settle(l, 1);
    l[0].plan = "dp";
    describe(&run, &l[0]);
    ctx = support_create(&run.desc);
    for (step = 0; step < steps; step++) (void)support_step(ctx, &run.data, (int)step, SUPPORT_APART);
    for (r = 0; r < 2; r++) {
        het_get_timeline(ctx, r, &timeline);
        parallel += timeline.traffic[1 - r].reduction_bytes;
    }
    print_message("# a round of islands: %lld bytes, %d steps of data parallelism: %lld\n", (long long)bytes, (int)steps, (long long)parallel);
    assert_true((double)bytes <= 1.05 / (double)steps * (double)parallel);
    het_destroy(ctx);
    support_run_end(&run);
}

/* Error feedback: weights that move by the same small steps every round arrive, though 2 bits cannot say a step by itself. */
static void what_is_lost_comes_later(void **state)
{
    support_run run;
    life l[MOST];
    het_outer *outer = NULL;
    het_error error;
    het_parameter_info info;
    het_ctx *ctx;
    float *start, *w;
    int64_t i, round;
    (void)state;
    settle(l, 1);
    describe(&run, l);
    ctx = support_create(&run.desc);
    l->desc.bits = 2, l->desc.rate = 1, l->desc.momentum = -1;
    EXPECT_OK(het_outer_create(&l->desc, ctx, &outer, &error));
    EXPECT_OK(het_parameter_get_info(ctx, 0, &info));
    start = support_floats(info.count, 0, 0);
    w = support_floats(info.count, 0, 0);
    EXPECT_OK(het_parameter_read(ctx, 0, HET_WEIGHT, start));
    for (round = 0; round < 40; round++) {
        EXPECT_OK(het_parameter_read(ctx, 0, HET_WEIGHT, w));
        for (i = 0; i < info.count; i++) w[i] += 0.001f * (float)(i % 7);
        EXPECT_OK(het_parameter_write(ctx, 0, HET_WEIGHT, w));
        EXPECT_OK(het_outer_join(outer, 1));
    }
    EXPECT_OK(het_parameter_read(ctx, 0, HET_WEIGHT, w));
    for (i = 0; i < info.count; i++) {
        const double moved = (double)w[i] - (double)start[i], wanted = 0.04 * (double)(i % 7);
        if (fabs(moved - wanted) > 0.015) fail_msg("element %d moved by %g, not %g", (int)i, moved, wanted);
    }
    free(start);
    free(w);
    het_outer_destroy(outer);
    het_destroy(ctx);
    support_run_end(&run);
}

/* Two bits follow floats. */
static void few_bits_follow(void **state)
{
    life l[MOST], coarse[MOST];
    int64_t i;
    (void)state;
    settle(l, 2);
    settle(coarse, 2);
    for (i = 0; i < 2; i++) coarse[i].desc.bits = 2, l[i].rounds = coarse[i].rounds = 8;
    (void)on_threads(l, 2, 0);
    (void)on_threads(coarse, 2, 0);
    print_message("# loss after 8 rounds: floats %.4f, 2 bits %.4f\n", l[0].loss, coarse[0].loss);
    assert_true(fabs(l[0].loss - coarse[0].loss) < 0.1 * l[0].loss);
}

/* ---- processes over TCP ---- */

typedef struct shared { uint64_t hash[MOST]; int64_t opened[MOST], joins[MOST]; int64_t at[MOST]; } shared;
static char place[64];
static pid_t parent;

/* A process whose check failed goes no further. */
static void only_the_parent(void) { if (getpid() != parent) _exit(1); }

static het_result open_tcp(void *user, het_transport *transport, het_error *error)
{
    const life *l = user;
    het_tcp_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.processes = l->desc.islands, desc.process = l->desc.island, desc.file = place;
    desc.open_seconds = 60, desc.abort_seconds = 0.5, desc.dead_seconds = 2, desc.heartbeat_seconds = 0.1;
    return het_tcp_open(&desc, transport, error);
}

static void close_tcp(void *user, het_transport *transport)
{
    het_error error;
    (void)user;
    (void)het_tcp_close(transport, &error);
}

static pid_t start_process(life *l, shared *all, int64_t i)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid != 0) return pid;
    l[i].desc.open = open_tcp, l[i].desc.close = close_tcp, l[i].desc.user = &l[i], l[i].desc.deadline = 5, l[i].at = &all->at[i];
    live(&l[i]);
    all->hash[i] = l[i].hash, all->opened[i] = l[i].info.opened, all->joins[i] = l[i].info.joins;
    _exit(0);
}

static shared *share(void)
{
    shared *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(all != MAP_FAILED);
    memset(all, 0, sizeof *all);
    snprintf(place, sizeof place, "/tmp/test_outer.%d", (int)getpid());
    (void)unlink(place);
    return all;
}

static void processes_give_the_same(void **state)
{
    life l[MOST];
    shared *all = share();
    pid_t pid[MOST];
    int64_t i;
    int status;
    (void)state;
    settle(l, MOST);
    for (i = 0; i < MOST; i++) pid[i] = start_process(l, all, i);
    for (i = 0; i < MOST; i++) {
        assert_true(waitpid(pid[i], &status, 0) == pid[i] && status == 0);
        assert_true(all->hash[i] == all->hash[0]);
    }
    (void)on_threads(l, MOST, 0);
    assert_true(all->hash[0] == l[0].hash);
    munmap(all, sizeof *all);
}

/* An island is killed at a random time, and started anew; all end, at the same join, with the same bits. */
static void killed_islands_come_back(void **state)
{
    const int rounds = support_environment("OUTER_KILLS", 4);
    uint64_t seed = 17;
    int kills = 0, round, status;
    (void)state;
    only_the_parent();
    for (round = 0; round < rounds; round++) {
        life l[MOST];
        shared *all = share();
        pid_t pid[MOST];
        int64_t i, victim = support_below(&seed, MOST);
        const int64_t when = 1 + support_below(&seed, 25);
        struct timespec t = { 0, 0 };
        settle(l, MOST);
        for (i = 0; i < MOST; i++) {
            l[i].rounds = 40, l[i].steps = 1 + i, l[i].apart = round % 2 == 1 && l[i].plan != NULL;
            pid[i] = start_process(l, all, i);
        }
        while (SEEN(all->at[victim]) < when) nap(NULL);
        t.tv_nsec = (long)support_below(&seed, 20) * 500000;
        (void)nanosleep(&t, NULL);
        (void)kill(pid[victim], SIGKILL);
        assert_true(waitpid(pid[victim], &status, 0) == pid[victim]);
        kills += WIFSIGNALED(status);
        pid[victim] = start_process(l, all, victim);
        for (i = 0; i < MOST; i++) {
            assert_true(waitpid(pid[i], &status, 0) == pid[i]);
            if (status != 0) fail_msg("round %d: island %d ended with %d after island %d was killed", round, (int)i, status, (int)victim);
        }
        for (i = 0; i < MOST; i++)
            if (all->hash[i] != all->hash[0] || all->joins[i] != 40) fail_msg("round %d: island %d has other bits", round, (int)i);
        munmap(all, sizeof *all);
    }
    print_message("# %d kills, each joined again\n", kills);
    assert_int_equal(kills, rounds);
}

/* Island 1 dies behind the last join, of which it has saved nothing, and is started again: the other is still there. */
static void who_dies_at_the_end_gets_the_last_weights(void **state)
{
    (void)state;
    only_the_parent();
    for (int64_t pace = 0; pace < 20; pace += 10) {
        life l[MOST];
        shared *all = share();
        pid_t pid[2];
        int64_t i;
        int status;
        settle(l, 2);
        l[1].dies = 1, l[1].plan = NULL;
        for (i = 0; i < 2; i++) {
            l[i].desc.pace = pace, l[i].desc.rounds = l[i].rounds;
            pid[i] = start_process(l, all, i);
        }
        while (SEEN(all->at[0]) < ROUNDS_HERE || SEEN(all->at[1]) < ROUNDS_HERE) nap(NULL);
        usleep(100000); /* time to be gone */
        (void)kill(pid[1], SIGKILL);
        assert_true(waitpid(pid[1], &status, 0) == pid[1] && WIFSIGNALED(status));
        l[1].dies = 0;
        pid[1] = start_process(l, all, 1);
        for (i = 0; i < 2; i++) assert_true(waitpid(pid[i], &status, 0) == pid[i] && status == 0);
        assert_true(all->hash[0] == all->hash[1] && all->opened[1] == 0 && all->joins[1] == ROUNDS_HERE);
        munmap(all, sizeof *all);
    }
}

/* While island 0 waits behind its last round, island 1 dies more often than a join is tried, each time some joins later. */
static void failures_that_are_rare_do_not_add_up(void **state)
{
    life l[MOST];
    shared *all = share();
    pid_t pid[2];
    int64_t kill_at, i;
    int status;
    (void)state;
    only_the_parent();
    settle(l, 2);
    l[1].plan = NULL;
    for (i = 0; i < 2; i++) {
        l[i].desc.pace = 10, l[i].desc.rounds = l[i].rounds = i == 0 ? 2 : 26;
        pid[i] = start_process(l, all, i);
    }
    for (kill_at = 3; kill_at < 24; kill_at += 3) {
        while (SEEN(all->at[1]) < kill_at) nap(NULL);
        (void)kill(pid[1], SIGKILL);
        assert_true(waitpid(pid[1], &status, 0) == pid[1] && WIFSIGNALED(status));
        pid[1] = start_process(l, all, 1);
    }
    for (i = 0; i < 2; i++) assert_true(waitpid(pid[i], &status, 0) == pid[i] && status == 0);
    assert_true(all->hash[0] == all->hash[1] && all->joins[0] == 26 && all->opened[0] == 7);
    munmap(all, sizeof *all);
}

/* ---- connections that break ---- */

/* Where two islands meet, time after time. */
static struct {
    threads_world world[2];
    threads_end end[2][2];
    het_transport transport[2][2];
    int64_t opened[2];          /* by each island */
    het_transport_iface breaks; /* island 1's first one */
    het_request *broken;
    int messages;
    int halves;                 /* island 1's second one breaks in the middle of a state, */
    het_result took;            /* which is not to be had afterwards: */
    int kept;                   /* its weights stay as they are */
    int64_t through;   /* steps that island 0 is through */
    int64_t looks;     /* of island 0, at how long island 1 has been silent, up to `late` */
    int64_t late;
    double stopped;             /* seconds */
    char failed[2][600];        /* why an island's join did */
} meetings;

static void meetings_start(void)
{
    memset(&meetings, 0, sizeof meetings);
    threads_open(&meetings.world[0], meetings.end[0], meetings.transport[0], 2, 0);
    threads_open(&meetings.world[1], meetings.end[1], meetings.transport[1], 2, 0);
}

/* user: the island's opened[]. */
static het_result meetings_open(void *user, het_transport *transport, het_error *error)
{
    int64_t *opened = user;
    if (*opened == 2) return het_error_put(error, HET_ERR_TRANSPORT, "nobody comes");
    *transport = meetings.transport[*opened][opened - meetings.opened];
    ++*opened;
    return HET_OK;
}

static void meetings_close(void *user, het_transport *transport)
{
    (void)user;
    memset(transport, 0, sizeof *transport);
}

/* Island 0 on this thread beside island 1, of one round, on another. */
typedef struct pair {
    life l[MOST];
    support_run run;
    het_outer *outer;
    het_ctx *ctx;
    pthread_t thread;
} pair;

static void pair_start(pair *p, int64_t fragments, int64_t rounds)
{
    life *l = p->l;
    het_error error;
    meetings_start();
    settle(l, 2);
    l[0].desc.fragments = l[1].desc.fragments = fragments, l[0].desc.rounds = l[1].desc.rounds = rounds;
    l[1].desc.transport = meetings.transport[0][1], l[1].plan = NULL, l[1].rounds = 1;
    assert_int_equal(pthread_create(&p->thread, NULL, live_on_a_thread, &l[1]), 0);
    describe(&p->run, &l[0]);
    p->ctx = support_create(&p->run.desc);
    l[0].desc.open = meetings_open, l[0].desc.close = meetings_close, l[0].desc.user = &meetings.opened[0];
    l[0].desc.pause = rounds > 0 ? nap : NULL;
    EXPECT_OK(het_outer_create(&l[0].desc, p->ctx, &p->outer, &error));
}

/* Island 1 has made its round, and is gone. */
static void pair_part(pair *p)
{
    const het_transport *other = &meetings.transport[0][1];
    (void)pthread_join(p->thread, NULL);
    meetings.opened[0] = 2;
    other->iface->abort(other->self, HET_ERR_TRANSPORT, "island 1 is gone");
}

static void pair_end(pair *p)
{
    het_outer_destroy(p->outer);
    het_destroy(p->ctx);
    support_run_end(&p->run);
}

/* A join fails when nobody comes any more; after it there is no other. */
static void a_failed_join_is_the_last(void **state)
{
    int64_t fragments;
    (void)state;
    only_the_parent();
    for (fragments = 1; fragments < 4; fragments += 2) {
        int64_t joins;
        pair p;
        pair_start(&p, fragments, 0);
        EXPECT_OK(het_outer_join(p.outer, 10));
        pair_part(&p);
        EXPECT_ERROR(het_outer_join(p.outer, 10), HET_ERR_TRANSPORT, het_outer_error(p.outer), "nobody comes");
        joins = het_outer_get_info(p.outer)->joins;
        EXPECT_ERROR(het_outer_join(p.outer, 10), HET_ERR_STATE, het_outer_error(p.outer), "nobody comes");
        assert_int_equal(het_outer_get_info(p.outer)->joins, joins);
        pair_end(&p);
    }
}

/* Behind the last join nothing fails where nobody comes any more: it is told who is missing. */
static void an_end_without_the_others(void **state)
{
    pair p;
    (void)state;
    only_the_parent();
    pair_start(&p, 0, 1);
    EXPECT_OK(het_outer_end(p.outer)); /* not yet */
    EXPECT_OK(het_outer_join(p.outer, 10));
    EXPECT_ERROR(het_outer_join(p.outer, 10), HET_ERR_STATE, het_outer_error(p.outer), "all 1 rounds are made");
    pair_part(&p);
    EXPECT_OK(het_outer_take(p.outer));
    EXPECT_ERROR(het_outer_end(p.outer), HET_ERR_TRANSPORT, het_outer_error(p.outer), "nobody comes");
    pair_end(&p);
}

static het_result count_irecv(void *self, int64_t from, uint32_t channel, void *data, size_t size, het_request *request)
{
    if (channel == 1 && meetings.halves) {
        memset(data, 0x40, size / 2);
        return HET_ERR_TRANSPORT;
    }
    if (channel == 2 && ++meetings.messages == 2) meetings.broken = request;
    return threads_irecv(self, from, channel, data, size, request);
}

/* Round 2 has come to island 1, and island 0 is through, when the connection breaks. */
static het_result break_test(void *self, het_request *request, int32_t *done)
{
    const het_result result = threads_test(self, request, done);
    if (result != HET_OK || !*done || request != meetings.broken) return result;
    meetings.broken = NULL;
    while (SEEN(meetings.through) < 6) nap(NULL);
    *done = 0;
    return HET_ERR_TRANSPORT;
}

/* Twelve steps as programs/train.c makes them, a join after every third. */
static void live_with_breaks(life *l)
{
    support_run run;
    het_error error = { HET_OK, "" };
    const het_transport *last;
    islands sea;
    het_ctx *ctx;
    int64_t done;
    memset(&sea, 0, sizeof sea);
    sea.every = 3;
    describe(&run, l);
    ctx = support_create(&run.desc);
    l->desc.open = meetings_open, l->desc.close = meetings_close, l->desc.user = &meetings.opened[l->desc.island];
    l->desc.pause = nap, l->desc.deadline = 5;
    support_expect(het_outer_create(&l->desc, ctx, &sea.outer, &error), HET_OK, error.text, "", "het_outer_create", __LINE__);
    for (done = 1; done <= 12; done++) {
        const het_step_info info = support_step(ctx, &run.data, (int)(done % SUPPORT_MAX_STEPS), SUPPORT_APART);
        const int fails = islands_step(&sea, ctx, done, info.tokens) != HET_OK;
        if (fails) snprintf(meetings.failed[l->desc.island], sizeof meetings.failed[0], "step %d: %s", (int)done, het_outer_error(sea.outer));
        if (l->desc.island == 0) TELL(meetings.through, fails ? 12 : done);
        if (fails) break;
    }
    l->info = *het_outer_get_info(sea.outer);
    if (l->info.joins < 0) { /* half of the others' state came */
        const uint64_t hash = support_hash(ctx);
        meetings.took = het_outer_take(sea.outer);
        meetings.kept = support_hash(ctx) == hash;
    }
    if (done > 12) EXPECT_OK(het_outer_take(sea.outer));
    if (done > 12) l->hash = support_hash(ctx);
    last = &meetings.transport[meetings.opened[l->desc.island] - 1][l->desc.island];
    last->iface->abort(last->self, HET_ERR_TRANSPORT, "an island is gone"); /* in a round that both are at all messages have come */
    het_outer_destroy(sea.outer);
    het_destroy(ctx);
    support_run_end(&run);
}

static void *live_with_breaks_on_a_thread(void *arg) { live_with_breaks(arg); return NULL; }

static void meet_with_breaks(life *l)
{
    pthread_t thread;
    meetings.breaks = threads_iface;
    meetings.breaks.irecv = count_irecv, meetings.breaks.test = break_test;
    meetings.transport[0][1].iface = &meetings.breaks;
    if (meetings.halves) meetings.transport[1][1].iface = &meetings.breaks;
    settle(l, 2);
    l[0].plan = l[1].plan = NULL;
    assert_int_equal(pthread_create(&thread, NULL, live_with_breaks_on_a_thread, &l[1]), 0);
    live_with_breaks(&l[0]);
    (void)pthread_join(thread, NULL);
}

/* Who is behind after an exchange that broke takes part in two rounds at once, and later not in one that nobody else is at. */
static void who_was_behind_joins_as_often(void **state)
{
    life l[MOST];
    (void)state;
    only_the_parent();
    meetings_start();
    meet_with_breaks(l);
    if (meetings.failed[0][0] || meetings.failed[1][0]) fail_msg("island 0: %s; island 1: %s", meetings.failed[0], meetings.failed[1]);
    assert_int_equal(meetings.opened[0], 2);
    assert_int_equal(l[0].info.joins, 4);
    assert_int_equal(l[1].info.joins, 4);
    assert_true(l[0].hash == l[1].hash && l[0].hash != 0);
}

/* Of an island that fails while it takes the others' state nobody gets weights that are half its own. */
static void half_a_state_is_not_taken(void **state)
{
    life l[MOST];
    (void)state;
    only_the_parent();
    meetings_start();
    meetings.halves = 1;
    meet_with_breaks(l);
    assert_true(meetings.failed[0][0] && meetings.failed[1][0]);
    assert_int_equal(l[0].info.joins, 2);
    assert_int_equal(l[1].info.joins, -1);
    assert_int_equal(meetings.took, HET_ERR_STATE);
    assert_true(meetings.kept);
}

static het_result late_irecv(void *self, int64_t from, uint32_t channel, void *data, size_t size, het_request *request)
{
    if (channel == 2) meetings.messages++;
    return threads_irecv(self, from, channel, data, size, request);
}

/* Island 1 need not be late any longer. */
static void late_abort(void *self, het_result code, const char *text)
{
    TELL(meetings.looks, 1000000);
    threads_abort(self, code, text);
}

/* What island 0 is told while it waits to join: half a second more at each look. Behind the third it was stopped. */
static double late_silence(void *self, int64_t process)
{
    (void)self, (void)process;
    if (meetings.messages == 0) return 0;
    if (SEEN(meetings.looks) < meetings.late) TELL(meetings.looks, meetings.looks + 1);
    return 0.5 * (double)meetings.looks + (meetings.looks > 3 ? meetings.stopped : 0);
}

/* Island 1 is late by so many looks of island 0. */
static int64_t meetings_of_one_late(int64_t looks, double stopped)
{
    life l[MOST];
    het_transport_iface late = threads_iface;
    pthread_t thread;
    late.irecv = late_irecv, late.silence = late_silence, late.abort = late_abort;
    meetings_start();
    meetings.stopped = stopped;
    meetings.late = looks;
    meetings.transport[0][0].iface = &late;
    settle(l, 2);
    l[0].plan = l[1].plan = NULL;
    for (int i = 0; i < 2; i++) {
        l[i].desc.open = meetings_open, l[i].desc.close = meetings_close, l[i].desc.user = &meetings.opened[i];
        l[i].desc.deadline = 60;
    }
    l[1].behind = &meetings.looks, l[1].ahead = looks;
    assert_int_equal(pthread_create(&thread, NULL, live_on_a_thread, &l[1]), 0);
    live(&l[0]);
    (void)pthread_join(thread, NULL);
    assert_true(l[0].hash == l[1].hash && !l[1].late);
    return meetings.opened[0];
}

/* Time in which the island that waits was stopped itself is no silence of another. */
static void what_it_slept_through_does_not_count(void **state)
{
    (void)state;
    only_the_parent();
    assert_int_equal(meetings_of_one_late(40, 64), 1);
    assert_int_equal(meetings_of_one_late(150, 0), 2);
    assert_int_equal(meetings_of_one_late(150, 64), 2);
    assert_int_equal(meetings_of_one_late(10, (double)INFINITY), 2);
}

/* ---- paces ---- */

static const int64_t paces[MOST] = { 10, 25, 40 }, paced_rounds[MOST] = { 5, 2, 1 }; /* two of them at once at 40 and at 50 */

static void settle_paces(life *l)
{
    settle(l, MOST);
    for (int64_t i = 0; i < MOST; i++) l[i].desc.pace = paces[i], l[i].desc.rounds = l[i].rounds = paced_rounds[i];
}

static void move_all(het_ctx *ctx, float *w, int writes)
{
    for (int64_t p = 0; p < het_parameter_count(ctx); p++) {
        het_parameter_info info;
        EXPECT_OK(het_parameter_get_info(ctx, p, &info));
        if (writes) EXPECT_OK(het_parameter_write(ctx, p, HET_WEIGHT, w));
        else EXPECT_OK(het_parameter_read(ctx, p, HET_WEIGHT, w));
        w += info.count;
    }
}

/* The same one after the other: who is next at the least time makes its steps, and its delta goes into the weights of all. */
static uint64_t paces_emulated(int64_t n)
{
    support_run run[MOST];
    life l[MOST];
    het_ctx *ctx[MOST];
    float *base[MOST], *w = support_floats(n, 0, 0), *global = support_floats(n, 0, 0), *momentum = support_floats(n, 0, 0);
    int64_t rounds[MOST] = { 0 };
    int step[MOST];
    uint64_t hash;
    settle_paces(l);
    for (int i = 0; i < MOST; i++) {
        describe(&run[i], &l[i]);
        ctx[i] = support_create(&run[i].desc);
        if (i == 0) move_all(ctx[0], global, 0);
        move_all(ctx[i], global, 1);
        base[i] = support_floats(n, 0, 0);
        memcpy(base[i], global, (size_t)n * sizeof *global);
        step[i] = i;
    }
    memset(momentum, 0, (size_t)n * sizeof *momentum);
    for (int64_t now = 1; now <= 50; now++) {
        double tokens[MOST] = { 0 }, all = 0, *sum = support_alloc((size_t)n, sizeof *sum);
        int joined = 0;
        memset(sum, 0, (size_t)n * sizeof *sum);
        for (int i = 0; i < MOST; i++) {
            if (rounds[i] == paced_rounds[i] || (rounds[i] + 1) * paces[i] != now) continue;
            for (int64_t s = 0; s < l[i].steps; s++, step[i]++)
                tokens[i] += (double)support_step(ctx[i], &run[i].data, step[i] % SUPPORT_MAX_STEPS, SUPPORT_APART).tokens;
            all += tokens[i];
            joined++;
            rounds[i]++;
        }
        for (int i = 0; i < MOST && joined > 0; i++) {
            const double weight = tokens[i] / all * ((double)joined / MOST);
            if (tokens[i] <= 0) continue;
            move_all(ctx[i], w, 0);
            for (int64_t k = 0; k < n; k++) sum[k] = fma(weight, (double)(base[i][k] - w[k]), sum[k]);
        }
        for (int64_t k = 0; k < n && joined > 0; k++) {
            momentum[k] = (float)fma((double)0.9f, (double)momentum[k], sum[k]);
            global[k] = (float)fma(-(double)0.7f, fma((double)0.9f, (double)momentum[k], sum[k]), (double)global[k]);
        }
        for (int i = 0; i < MOST; i++) {
            if (tokens[i] <= 0) continue;
            move_all(ctx[i], global, 1);
            memcpy(base[i], global, (size_t)n * sizeof *global);
        }
        free(sum);
    }
    move_all(ctx[0], global, 1);
    hash = support_hash(ctx[0]);
    for (int i = 0; i < MOST; i++) {
        free(base[i]);
        het_destroy(ctx[i]);
        support_run_end(&run[i]);
    }
    free(w);
    free(global);
    free(momentum);
    return hash;
}

static void joins_in_the_order_of_paces(void **state)
{
    uint64_t hash = 0;
    (void)state;
    only_the_parent();
    for (int64_t jitter = 0; jitter < 4; jitter++) {
        life l[MOST];
        settle_paces(l);
        (void)on_threads(l, MOST, (uint64_t)jitter);
        if (jitter == 0) hash = paces_emulated(l->elements);
        if (l->hash != hash) fail_msg("jitter %d: other weights than one after the other", (int)jitter);
        assert_int_equal(l->info.joins, 6);
    }
}

/* One that is slower than was simulated holds those up that need its delta, and nobody before: the first makes four rounds meanwhile. */
static void nobody_waits_for_who_comes_later(void **state)
{
    int64_t at = 0;
    life l[MOST];
    (void)state;
    only_the_parent();
    settle(l, 2);
    l[0].desc.pace = 10, l[1].desc.pace = 45;
    l[0].desc.rounds = l[0].rounds = 8, l[1].desc.rounds = l[1].rounds = 2;
    l[0].at = &at, l[1].behind = &at, l[1].ahead = 4;
    (void)on_threads(l, 2, 0);
    assert_false(l[1].late);
}

/* One that goes on within its round takes what the other has joined meanwhile, and keeps what it trained itself. */
static void a_round_outlasts_joins_of_others(void **state)
{
    uint64_t hash = 0;
    (void)state;
    only_the_parent();
    for (int anew = 0; anew < 2; anew++) {
        int64_t may = 0;
        threads_world world;
        threads_end end[MOST];
        het_transport second[MOST];
        life l[MOST];
        settle(l, 2);
        threads_open(&world, end, second, 2, 0);
        for (int i = 0; i < 2; i++) l[i].second = second[i];
        l[0].desc.pace = 10, l[1].desc.pace = 45;
        l[0].desc.rounds = l[0].rounds = 8, l[1].desc.rounds = l[1].rounds = 2;
        l[0].anew = l[1].anew = &may;
        if (anew) l[0].anew_at = 3, l[1].anew_at = -1, l[1].stale = 3;
        (void)on_threads(l, 2, 0);
        if (!anew) hash = l->hash;
        assert_true(l->hash == hash && l[0].anew_at == 0 && l[1].anew_at == 0);
    }
}

/* Saved in the middle of a round and opened again, momentum, error feedback and fragments go on with the same bits. */
static void a_saved_state_goes_on(void **state)
{
    static const struct { int64_t islands, fragments, bits; } of[] = { { 1, 1, 0 }, { 2, 1, 0 }, { 3, 2, 2 } };
    (void)state;
    only_the_parent();
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        uint64_t hash = 0;
        for (int64_t anew = 0; anew < 2; anew++) {
            life l[MOST];
            settle(l, of[i].islands);
            for (int64_t k = 0; k < of[i].islands; k++)
                l[k].desc.fragments = of[i].fragments, l[k].desc.bits = of[i].bits, l[k].anew_at = 2 * anew;
            (void)on_threads(l, of[i].islands, 0);
            if (anew == 0) hash = l->hash;
            assert_true(l->hash == hash && l->anew_at == 0);
        }
    }
}

/* ---- islands of several processes ---- */

/* The bits are those of islands of one process. */
static void islands_of_two_processes(void **state)
{
    (void)state;
    only_the_parent();
    for (int way = 0; way < 4; way++) {
        uint64_t hash = 0;
        for (int apart = 0; apart < 3; apart++) { /* none; those of two ranks; with jitter between islands */
            life l[MOST];
            if (way == 3) settle_paces(l);
            else settle(l, MOST);
            for (int64_t k = 0; k < MOST; k++) {
                if (way == 1) l[k].desc.fragments = 2, l[k].desc.bits = 2;
                if (way == 2) l[k].anew_at = 2;
                l[k].apart = apart > 0 && l[k].plan != NULL;
            }
            (void)on_threads(l, MOST, (uint64_t)apart / 2);
            if (apart == 0) hash = l->hash;
            if (l->hash != hash) fail_msg("way %d, apart %d: other weights", way, apart);
        }
    }
}

typedef struct member { support_run run; het_transport inner; het_ctx *ctx; het_outer *outer; het_result result; } member;

static void *join_alone(void *arg)
{
    member *m = arg;
    m->result = het_outer_join(m->outer, 10);
    return NULL;
}

/* Both at once: fn of each. */
static void both(void *(*fn)(void *), member *m)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fn, &m[1]), 0);
    (void)fn(&m[0]);
    pthread_join(thread, NULL);
}

static void *context_alone(void *arg)
{
    member *m = arg;
    life l;
    memset(&l, 0, sizeof l);
    l.plan = "pp", l.apart = 1, l.inner = m->inner;
    describe(&m->run, &l);
    m->ctx = support_create(&m->run.desc);
    return NULL;
}

static void *create_alone(void *arg)
{
    member *m = arg;
    het_outer_desc desc;
    het_error error;
    memset(&desc, 0, sizeof desc);
    desc.pause = nap;
    m->result = het_outer_create(&desc, m->ctx, &m->outer, &error);
    return NULL;
}

/* A process that fails ends its island's calls in all its processes, and what process 0 refuses the others are told. */
static void processes_of_an_island_fail_together(void **state)
{
    (void)state;
    only_the_parent();
    for (int fails = 0; fails < 2; fails++) {
        threads_world world;
        threads_end end[2];
        het_transport transport[2];
        pthread_t thread;
        member m[2];
        memset(m, 0, sizeof m);
        threads_open(&world, end, transport, 2, 0);
        for (int i = 0; i < 2; i++) m[i].inner = transport[i];
        both(context_alone, m);
        both(create_alone, m);
        assert_true(m[0].result == HET_OK && m[1].result == HET_OK);
        if (fails == 0) {
            assert_int_equal(pthread_create(&thread, NULL, join_alone, &m[1]), 0);
            EXPECT_ERROR(het_outer_join(m[0].outer, -1), HET_ERR_INVALID, het_outer_error(m[0].outer), "tokens|-1");
            pthread_join(thread, NULL);
            EXPECT_ERROR(m[1].result, HET_ERR_INVALID, het_outer_error(m[1].outer), "tokens|-1");
        } else {
            assert_int_equal(pthread_create(&thread, NULL, join_alone, &m[1]), 0);
            (void)het_fail(m[0].ctx, HET_ERR_CANCELLED, "enough");
            pthread_join(thread, NULL);
            EXPECT_ERROR(m[1].result, HET_ERR_TRANSPORT, het_outer_error(m[1].outer), "process 0 of this island|enough");
        }
        for (int i = 0; i < 2; i++) {
            het_outer_destroy(m[i].outer);
            het_destroy(m[i].ctx);
            support_run_end(&m[i].run);
        }
    }
}

/* ---- what is refused ---- */

static void states_are_refused(void **state)
{
    support_run run;
    life l[MOST];
    het_outer *outer = NULL;
    het_error error;
    het_ctx *ctx;
    unsigned char *saved;
    size_t size, i;
    (void)state;
    only_the_parent();
    settle(l, 1);
    describe(&run, l);
    ctx = support_create(&run.desc);
    EXPECT_OK(het_outer_create(&l->desc, ctx, &outer, &error));
    saved = saved_state(outer, 7, &size);
    assert_non_null(saved);
    het_outer_destroy(outer);
    l->desc.state = saved, l->desc.state_size = size - 4;
    EXPECT_ERROR(het_outer_create(&l->desc, ctx, &outer, &error), HET_ERR_INVALID, error.text, "the state has|bytes|with 0 bits and pace 0");
    l->desc.state_size = size, l->desc.bits = 2;
    EXPECT_ERROR(het_outer_create(&l->desc, ctx, &outer, &error), HET_ERR_INVALID, error.text, "the state has|bytes|with 2 bits");
    l->desc.bits = 0;
    for (i = 0; i < size; i += i < 80 ? 1 : size / 40) { /* settings, island and whether it joined are not looked at */
        const int judged = i < 8 || (i >= 16 && i < 24) || (i >= 32 && i < 40) || i >= 80;
        het_result result;
        saved[i] ^= 0x40;
        result = het_outer_create(&l->desc, ctx, &outer, &error);
        assert_true(result == HET_ERR_FORMAT || (!judged && (result == HET_OK || (result == HET_ERR_INVALID && i >= 56))));
        if (result == HET_OK) het_outer_destroy(outer);
        saved[i] ^= 0x40;
    }
    EXPECT_OK(het_outer_create(&l->desc, ctx, &outer, &error));
    assert_true(het_outer_get_info(outer)->trained >= 7 && het_outer_get_info(outer)->trained <= 7);
    het_outer_destroy(outer);
    free(saved);
    for (i = 0; i < 2; i++) { /* as many bytes, but what bits have lost is no place where a round began */
        l->desc.state = NULL, l->desc.bits = i == 0 ? 2 : 0, l->desc.pace = i == 0 ? 0 : 1000, l->desc.rounds = 3;
        EXPECT_OK(het_outer_create(&l->desc, ctx, &outer, &error));
        l->desc.state = saved = saved_state(outer, 7, &l->desc.state_size);
        het_outer_destroy(outer);
        l->desc.bits = 2 - l->desc.bits, l->desc.pace = 1000 - l->desc.pace;
        EXPECT_ERROR(het_outer_create(&l->desc, ctx, &outer, &error), HET_ERR_INVALID, error.text,
                     i == 0 ? "the state is of pace 1, with 0 bits and pace 1000" : "the state is of pace 1000, with 2 bits and pace 0");
        free(saved);
    }
    het_destroy(ctx);
    support_run_end(&run);
}

static void refused(void **state)
{
    static const struct { int64_t islands, island, fragments, bits; float rate, momentum; const char *words; } bad[] = {
        { 2, 2, 0, 0, 0, 0, "island 2 of 2" }, { 2, 0, 0, 0, 0, 0, "2 islands|no transport" }, { 1, 0, 2000, 0, 0, 0, "2000 fragments" },
        { 1, 0, 0, 3, 0, 0, "3 bits" }, { 1, 0, 0, 9, 0, 0, "9 bits" }, { 1, 0, 0, 0, -1, 0, "rate -1" }, { 1, 0, 0, 0, 0, 1, "momentum 1" },
        { 1, 0, 0, 0, (float)NAN, 0, "rate nan" }, { 1, 0, 0, 0, 0, (float)NAN, "momentum nan" }, { 1, 0, 0, 0, (float)INFINITY, 0, "rate inf" }
    };
    het_outer *outer = NULL;
    het_error error;
    support_run run;
    life l[MOST];
    het_ctx *ctx;
    size_t i;
    (void)state;
    only_the_parent();
    settle(l, 1);
    describe(&run, l);
    ctx = support_create(&run.desc);
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        het_outer_desc d;
        memset(&d, 0, sizeof d);
        d.islands = bad[i].islands, d.island = bad[i].island, d.fragments = bad[i].fragments, d.bits = bad[i].bits;
        d.rate = bad[i].rate, d.momentum = bad[i].momentum;
        EXPECT_ERROR(het_outer_create(&d, ctx, &outer, &error), HET_ERR_INVALID, error.text, bad[i].words);
        assert_null(outer);
    }
    for (i = 0; i < 2; i++) {
        het_outer_desc d;
        memset(&d, 0, sizeof d);
        d.deadline = i == 0 ? (double)NAN : -1;
        EXPECT_ERROR(het_outer_create(&d, ctx, &outer, &error), HET_ERR_INVALID, error.text, i == 0 ? "deadline nan" : "deadline -1");
    }
    for (i = 0; i < 5; i++) {
        static const int64_t pace[] = { -1, 5, 5, 5, INT64_C(1) << 50 }, rounds[] = { 0, 0, INT64_MAX / 4, 8, 8 };
        het_outer_desc d;
        memset(&d, 0, sizeof d);
        d.pace = pace[i], d.rounds = rounds[i], d.fragments = i == 3 ? 2 : 0;
        EXPECT_ERROR(het_outer_create(&d, ctx, &outer, &error), HET_ERR_INVALID, error.text, "rounds of|us|fragments");
    }
    EXPECT_ERROR(het_outer_create(NULL, ctx, &outer, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_outer_create(&l->desc, NULL, &outer, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_outer_create(&l->desc, ctx, NULL, &error), HET_ERR_INVALID, error.text, "NULL");
    assert_string_equal(het_outer_error(NULL), "");
    EXPECT_OK(het_outer_create(&l->desc, ctx, &outer, &error));
    EXPECT_ERROR(het_outer_join(outer, -1), HET_ERR_INVALID, het_outer_error(outer), "tokens|-1");
    EXPECT_ERROR(het_outer_join(outer, (double)INFINITY), HET_ERR_INVALID, het_outer_error(outer), "tokens|inf"); /* a share of it is no number */
    het_outer_destroy(outer);
    het_destroy(ctx);
    support_run_end(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_island_is_an_outer_step), cmocka_unit_test(tokens_are_weights),
        cmocka_unit_test(one_that_diverged_does_not_count), cmocka_unit_test(one_hash_and_bytes),
        cmocka_unit_test(fewer_bytes_than_data_parallelism), cmocka_unit_test(what_is_lost_comes_later), cmocka_unit_test(few_bits_follow),
        cmocka_unit_test(processes_give_the_same),
        cmocka_unit_test(a_failed_join_is_the_last), cmocka_unit_test(who_was_behind_joins_as_often), cmocka_unit_test(half_a_state_is_not_taken),
        cmocka_unit_test(what_it_slept_through_does_not_count),
        cmocka_unit_test(killed_islands_come_back),
        cmocka_unit_test(who_dies_at_the_end_gets_the_last_weights), cmocka_unit_test(an_end_without_the_others),
        cmocka_unit_test(failures_that_are_rare_do_not_add_up), cmocka_unit_test(joins_in_the_order_of_paces),
        cmocka_unit_test(nobody_waits_for_who_comes_later), cmocka_unit_test(a_round_outlasts_joins_of_others),
        cmocka_unit_test(a_saved_state_goes_on), cmocka_unit_test(islands_of_two_processes),
        cmocka_unit_test(processes_of_an_island_fail_together), cmocka_unit_test(states_are_refused),
        cmocka_unit_test(refused)
    };
    parent = getpid();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
