/* Adaptation, fed with simulated timelines of clusters that are known: what changed is found, by how much, after how many steps, and what is advised
   is the best for devices as they are. Times are invented, never measured. */
#include "support.h"

#include "hetrain_search.h"

enum { UNITS = 6, RANKS = 4, MOST = 16, GROUPS = 3 };

/* ---- a chain on four devices, in two pairs ---- */

typedef struct world {
    het_profile profile;
    het_unit_kind kind[1];
    int32_t unit[UNITS];
    het_block_profile block[UNITS];
    int64_t use[UNITS];
    het_device_profile device[1];
    het_unit_time time[1];
    het_cluster cluster, truth;
    het_cluster_device place[MOST], true_place[MOST];
    het_group group[GROUPS], true_group[GROUPS];
    het_search_desc search, real;
    support_memory memory;
} world;

/* A unit takes 1 ms a token forward and 2 back; ranks 0, 1 and 2, 3 are pairs with links of 1 ms, 4 ms between the pairs. */
static void start(world *w, int64_t ranks)
{
    int64_t i;
    memset(w, 0, sizeof *w);
    w->profile.kinds = w->profile.devices = 1;
    w->profile.units = w->profile.blocks = w->profile.uses = UNITS;
    w->profile.kind = w->kind;
    w->profile.unit = w->unit;
    w->profile.block = w->block;
    w->profile.use = w->use;
    w->profile.device = w->device;
    w->profile.weight_bytes = w->profile.gather_bytes = 4;
    w->profile.gradient_bytes = w->profile.reduce_bytes = w->profile.state_bytes = 8;
    w->profile.allocator = support_allocator(&w->memory);
    snprintf(w->kind[0].name, sizeof w->kind[0].name, "unit");
    w->kind[0].input = w->kind[0].output = 4;
    snprintf(w->device[0].name, sizeof w->device[0].name, "type");
    w->device[0].alone = w->device[0].together = w->time;
    w->time[0].forward.token = 1e-3;
    w->time[0].backward.token = 2e-3;
    w->time[0].input.token = w->time[0].weight.token = w->time[0].recompute.token = 1e-3;
    for (i = 0; i < UNITS; i++) {
        w->block[i].elements = 1024;
        w->block[i].uses = 1;
        w->block[i].first_use = w->use[i] = i;
    }
    w->cluster.ranks = ranks;
    w->cluster.groups = GROUPS;
    w->cluster.device = w->place;
    w->cluster.group = w->group;
    for (i = 0; i < GROUPS; i++) {
        snprintf(w->group[i].name, sizeof w->group[i].name, i == 0 ? "all" : "pair %d", (int)i);
        w->group[i].parent = i == 0 ? -1 : 0;
        w->group[i].latency = i == 0 ? 4e-3 : 1e-3;
    }
    for (i = 0; i < ranks; i++) {
        snprintf(w->place[i].profile, sizeof w->place[i].profile, "type");
        w->place[i].speed = 1;
        w->place[i].group = 1 + i / 2;
    }
    memcpy(w->true_place, w->place, sizeof w->place);
    memcpy(w->true_group, w->group, sizeof w->group);
    w->truth = w->cluster;
    w->truth.device = w->true_place;
    w->truth.group = w->true_group;
    w->search.profile = &w->profile;
    w->search.cluster = &w->cluster;
    w->search.granules = 16;
    w->search.granule_tokens = 4;
    w->search.allocator = w->profile.allocator;
    w->search.small = 200;
    w->search.evaluations = 400;
    w->real = w->search;
    w->real.cluster = &w->truth;
}

static void end(world *w)
{
    assert_int_equal(w->memory.live, 0);
    assert_int_equal(w->memory.bytes, 0);
    assert_int_equal(w->memory.wrong, 0);
}

static het_plan *plan_of(const world *w, const char *text, const char *schedule)
{
    het_plan_desc p;
    het_plan *plan = NULL;
    het_error error;
    error.text[0] = 0;
    memset(&p, 0, sizeof p);
    p.units = UNITS;
    p.ranks = w->cluster.ranks;
    p.schedule = schedule;
    support_expect(het_plan_read(&p, text, strlen(text), &plan, &error), HET_OK, error.text, "", text, __LINE__);
    return plan;
}

static het_simulation *predict(const het_search_desc *desc, const het_plan *plan, int64_t granules)
{
    het_simulation *simulation = NULL;
    het_error error;
    error.text[0] = 0;
    support_expect(het_plan_predict(desc, plan, granules, HET_YES, &simulation, &error), HET_OK, error.text, "", "het_plan_predict", __LINE__);
    return simulation;
}

static double seconds_of(const het_search_desc *desc, const het_plan *plan, int64_t granules)
{
    het_simulation *simulation = predict(desc, plan, granules);
    const double seconds = simulation->makespan;
    het_simulation_free(simulation);
    return seconds;
}

/* clock: of ranks, or NULL */
static het_adapt *adapt_to(world *w, const het_plan *plan, int64_t granules, const double *clock)
{
    het_adapt_desc desc;
    het_adapt *adapt = NULL;
    het_error error;
    memset(&desc, 0, sizeof desc);
    desc.search = &w->search;
    desc.allocator = w->profile.allocator;
    desc.frequency = clock;
    EXPECT_ERROR(het_adapt_create(&desc, &adapt, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_adapt_start(adapt, plan, granules, &error), HET_OK, error.text, "");
    return adapt;
}

static void advised_end(world *w, het_plan *plan, het_adapt *adapt, het_advice *advice)
{
    het_advice_free(advice);
    het_adapt_destroy(adapt);
    het_plan_free(plan);
    end(w);
}

/* One step as it truly is; ahead: seconds that the clock of ranks 2 and 3 is; without: a rank that nothing is told of, -1: none. */
static het_advice *one_step_without(world *w, het_adapt *adapt, const het_plan *plan, int64_t granules, double ahead, int without)
{
    het_simulation *simulation = predict(&w->real, plan, granules);
    het_record *record = (het_record *)support_alloc((size_t)simulation->timeline.records + 1, sizeof *record);
    het_timeline timeline = simulation->timeline;
    het_advice *advice = NULL;
    het_error error;
    int64_t i;
    timeline.records = 0;
    timeline.record = record;
    for (i = 0; i < simulation->timeline.records; i++) {
        het_record *to = &record[timeline.records];
        *to = simulation->timeline.record[i];
        if (to->rank >= 2) to->start += ahead, to->end += ahead;
        timeline.records += to->rank != without;
    }
    EXPECT_ERROR(het_adapt_observe(adapt, &timeline, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_adapt_advise(adapt, &advice, &error), HET_OK, error.text, "");
    free(record);
    het_simulation_free(simulation);
    return advice;
}

static het_advice *one_step(world *w, het_adapt *adapt, const het_plan *plan, int64_t granules, double ahead)
{
    return one_step_without(w, adapt, plan, granules, ahead, -1);
}

/* Steps until there is advice, at most `most`; *steps: how many it took. */
static het_advice *steps_until(world *w, het_adapt *adapt, const het_plan *plan, int64_t granules, int most, int *steps)
{
    het_advice *advice = NULL;
    for (*steps = 0; *steps < most && advice == NULL; ++*steps) advice = one_step(w, adapt, plan, granules, 0);
    return advice;
}

/* ---- prediction ---- */

/* Closed forms: one rank does it all; 16 granules of 4 tokens, 6 units, 3 ms each. A pipeline of two in gpipe with m micro-batches of time t a
   stage, half of it forward: (m + 1) forward and back; the latencies of the first message forward and of the last one back, the others travel while
   ranks work, and of the verdict's scalars there and back. */
static void predictions_are_closed_forms(void **state)
{
    world w;
    het_plan *plan;
    (void)state;
    start(&w, 1);
    plan = plan_of(&w, "dp", "1f1b");
    assert_true(fabs(seconds_of(&w.search, plan, 2) - 16 * 4 * 6 * 3e-3) < 1e-9);
    het_plan_free(plan);
    end(&w);
    start(&w, 2);
    plan = plan_of(&w, "pp", "gpipe");
    assert_true(fabs(seconds_of(&w.search, plan, 4) - (5 * 16 * 3 * 3e-3 + 4e-3)) < 1e-9);
    w.place[1].speed = 0.5;
    assert_true(fabs(seconds_of(&w.search, plan, 4) - (4 * 16 * 3 * 6e-3 + 16 * 3 * 3e-3 + 4e-3)) < 1e-9);
    het_plan_free(plan);
    end(&w);
}

/* ---- devices ---- */

/* Nothing changes: no advice, and beliefs stay. Then one of two ranks is three times slower: seen when three of the last five steps say so, and once
   more, so behind the fourth; the shares become those that brute force finds. */
static void a_slow_rank_gets_a_smaller_share(void **state)
{
    world w;
    het_plan *plan, tried;
    het_adapt *adapt;
    het_advice *advice;
    double best = 1e9, share[2];
    int steps, k;
    (void)state;
    start(&w, 2);
    plan = plan_of(&w, "dp", "1f1b");
    adapt = adapt_to(&w, plan, 1, NULL);
    assert_null(steps_until(&w, adapt, plan, 1, 12, &steps));
    w.true_place[1].speed = 1.0 / 3;
    advice = steps_until(&w, adapt, plan, 1, 12, &steps);
    assert_non_null(advice);
    assert_int_equal(steps, 4);
    assert_true(fabs(het_adapt_cluster(adapt)->device[1].speed - 1.0 / 3) < 1e-9);
    assert_true(fabs(het_adapt_cluster(adapt)->device[0].speed - 1) < 1e-9);
    assert_true(fabs(advice->before - seconds_of(&w.real, plan, 1)) < 1e-9);
    assert_non_null(advice->plan);
    for (k = 0; k <= 16; k++) {
        tried = *plan;
        tried.share = share;
        share[0] = k, share[1] = 16 - k;
        if (seconds_of(&w.real, &tried, 1) < best) best = seconds_of(&w.real, &tried, 1);
    }
    assert_true(fabs(advice->after - seconds_of(&w.real, advice->plan, advice->granules)) < 1e-9);
    assert_true(advice->after <= best * 1.01 + 1e-12);
    if (advice->only_shares) assert_true(advice->plan->share[0] >= 11 && advice->plan->share[0] <= 13);
    assert_non_null(strstr(advice->text, "rank 1: speed 1 is now 0.333"));
    assert_null(strstr(advice->text, "rank 0"));
    /* goes over to it, and all is as expected; later the rank is as it was */
    {
        het_advice *next;
        het_error error;
        EXPECT_OK(het_adapt_start(adapt, advice->plan, advice->granules, &error));
        assert_null(steps_until(&w, adapt, advice->plan, advice->granules, 12, &steps));
        w.true_place[1].speed = 1;
        next = steps_until(&w, adapt, advice->plan, advice->granules, 12, &steps);
        assert_non_null(next);
        assert_int_equal(steps, 4);
        assert_non_null(next->plan);
        assert_true(next->after <= 1.01 * seconds_of(&w.real, plan, 1));
        assert_non_null(strstr(next->text, "rank 1: speed 0.333 is now 1"));
        het_advice_free(next);
    }
    advised_end(&w, plan, adapt, advice);
}

/* A cut moves off the slow rank where memory lets nobody hold the whole chain. */
static void a_slow_stage_gets_fewer_units(void **state)
{
    world w;
    het_plan *plan;
    het_adapt *adapt;
    het_advice *advice;
    int64_t i, slow = 0;
    int steps;
    (void)state;
    start(&w, 2);
    for (i = 0; i < UNITS; i++) w.block[i].elements = 1000000;
    w.place[0].memory = w.place[1].memory = 4.3e6 * 20; /* 4 + 8 + 8 bytes an element: four units, or all with room for too little state */
    memcpy(w.true_place, w.place, sizeof w.place);
    plan = plan_of(&w, "pp", "1f1b");
    adapt = adapt_to(&w, plan, 1, NULL);
    w.true_place[0].speed = 0.25;
    advice = steps_until(&w, adapt, plan, 1, 12, &steps);
    assert_non_null(advice);
    assert_int_equal(steps, 4);
    assert_non_null(advice->plan);
    assert_int_equal(advice->only_shares, 0);
    for (i = 0; i < advice->plan->stages; i++)
        if (advice->plan->stage[i].rank == 0) slow += advice->plan->stage[i].unit_end - advice->plan->stage[i].unit_begin;
    assert_true(slow <= 2);
    assert_true(advice->after < 0.7 * advice->before);
    assert_true(fabs(advice->after - seconds_of(&w.real, advice->plan, advice->granules)) < 1e-9);
    advised_end(&w, plan, adapt, advice);
}

/* What is the same for all gains nothing; what comes and goes is not believed; 10 % are below the threshold. */
static void what_helps_nobody_changes_nothing(void **state)
{
    world w;
    het_plan *plan;
    het_adapt *adapt;
    het_advice *advice;
    int i, steps;
    (void)state;
    start(&w, 2);
    plan = plan_of(&w, "dp", "1f1b");
    adapt = adapt_to(&w, plan, 1, NULL);
    for (i = 0; i < 30; i++) {
        w.true_place[1].speed = i % 3 == 0 ? 0.1 : 1;
        assert_null(one_step(&w, adapt, plan, 1, 0));
    }
    w.true_place[1].speed = 0.9;
    assert_null(steps_until(&w, adapt, plan, 1, 12, &steps));
    w.true_place[0].speed = w.true_place[1].speed = 0.5;
    advice = steps_until(&w, adapt, plan, 1, 12, &steps);
    assert_non_null(advice);
    assert_null(advice->plan);
    assert_non_null(strstr(advice->text, "no plan makes"));
    het_advice_free(advice);
    assert_null(steps_until(&w, adapt, plan, 1, 12, &steps)); /* it is known now */
    het_adapt_destroy(adapt);
    het_plan_free(plan);
    end(&w);
}

/* A rank that was told of once is not believed by that, where another's change is. */
static void one_step_is_not_believed(void **state)
{
    world w;
    het_plan *plan;
    het_adapt *adapt;
    het_advice *advice;
    int i;
    (void)state;
    start(&w, 2);
    plan = plan_of(&w, "dp", "1f1b");
    adapt = adapt_to(&w, plan, 1, NULL);
    w.true_place[0].speed = 0.5;
    w.true_place[1].speed = 0.1;
    for (i = 0; i < 3; i++) assert_null(one_step_without(&w, adapt, plan, 1, 0, 1));
    advice = one_step(&w, adapt, plan, 1, 0);
    assert_non_null(advice);
    assert_true(fabs(het_adapt_cluster(adapt)->device[0].speed - 0.5) < 1e-9);
    assert_true(fabs(het_adapt_cluster(adapt)->device[1].speed - 1) < 1e-9);
    advised_end(&w, plan, adapt, advice);
}

/* ---- clocks that ranks report ---- */

/* A rank of a pipeline that says that its clock is half of what it was has another stage behind two steps, not four; what its times say later is not
   counted a second time. The unit of a clock does not matter, and one that comes and goes changes nothing. */
static void a_lower_clock_is_believed_at_once(void **state)
{
    double clock[2] = { 2400, 3e9 };
    world w;
    het_plan *plan;
    het_adapt *adapt;
    het_advice *advice;
    het_error error;
    int64_t i, units = 0;
    int steps;
    (void)state;
    start(&w, 2);
    for (i = 0; i < UNITS; i++) w.block[i].elements = 1000000;
    w.place[0].memory = w.place[1].memory = 4.3e6 * 20; /* as above */
    memcpy(w.true_place, w.place, sizeof w.place);
    plan = plan_of(&w, "pp", "1f1b");
    adapt = adapt_to(&w, plan, 1, clock);
    for (i = 0; i < 12; i++) {
        w.true_place[1].speed = i % 2 == 0 ? 0.5 : 1;
        clock[1] = 3e9 * w.true_place[1].speed;
        assert_null(one_step(&w, adapt, plan, 1, 0));
    }
    w.true_place[1].speed = 0.25, clock[1] = 0.75e9;
    advice = steps_until(&w, adapt, plan, 1, 12, &steps);
    assert_non_null(advice);
    assert_int_equal(steps, 2);
    assert_true(fabs(het_adapt_cluster(adapt)->device[1].speed - 0.25) < 1e-9);
    assert_true(fabs(het_adapt_cluster(adapt)->device[0].speed - 1) < 1e-9);
    assert_non_null(advice->plan);
    for (i = 0; i < advice->plan->stages; i++)
        if (advice->plan->stage[i].rank == 1) units += advice->plan->stage[i].unit_end - advice->plan->stage[i].unit_begin;
    assert_true(units <= 2 && advice->after < 0.7 * advice->before);
    EXPECT_OK(het_adapt_start(adapt, advice->plan, advice->granules, &error));
    assert_null(steps_until(&w, adapt, advice->plan, advice->granules, 12, &steps));
    advised_end(&w, plan, adapt, advice);
}

/* A clock that says what the times do not: they are believed in the end. One of 0 says nothing, and the last one that was said stays. */
static void times_overrule_a_clock(void **state)
{
    double clock[2] = { 1000, 0 };
    world w;
    het_plan *plan;
    het_adapt *adapt;
    het_advice *advice;
    int steps;
    (void)state;
    start(&w, 2);
    plan = plan_of(&w, "dp", "1f1b");
    adapt = adapt_to(&w, plan, 1, clock);
    assert_null(steps_until(&w, adapt, plan, 1, 6, &steps));
    clock[1] = 700; /* the first that this rank says: what it was before is not known */
    assert_null(steps_until(&w, adapt, plan, 1, 6, &steps));
    clock[0] = 500;
    advice = steps_until(&w, adapt, plan, 1, 12, &steps);
    assert_non_null(advice);
    assert_int_equal(steps, 2);
    assert_non_null(strstr(advice->text, "rank 0: speed 1 is now 0.5"));
    het_advice_free(advice);
    clock[0] = clock[1] = 0;
    advice = steps_until(&w, adapt, plan, 1, 12, &steps);
    assert_non_null(advice);
    assert_non_null(strstr(advice->text, "rank 0: speed 0.5 is now 1"));
    assert_null(strstr(advice->text, "rank 1"));
    advised_end(&w, plan, adapt, advice);
}

/* ---- links ---- */

/* The link between the pairs becomes slow: seen through messages that were waited for, whatever the clocks of the other pair say; the pipeline does
   not cross it any more often than it must. */
static void a_slow_link_is_seen(void **state)
{
    static const double ahead[] = { 0, 5, 0.125 };
    int k;
    (void)state;
    for (k = 0; k < 3; k++) {
        world w;
        het_plan *plan;
        het_adapt *adapt;
        het_advice *advice = NULL;
        int i, steps = 0;
        start(&w, RANKS);
        plan = plan_of(&w, "pp", "1f1b");
        adapt = adapt_to(&w, plan, 1, NULL);
        for (i = 0; i < 8; i++) assert_null(one_step(&w, adapt, plan, 1, ahead[k]));
        w.true_group[0].latency = 0.25;
        for (; steps < 12 && advice == NULL; steps++) advice = one_step(&w, adapt, plan, 1, ahead[k]);
        assert_non_null(advice);
        assert_int_equal(steps, 4);
        assert_true(fabs(het_adapt_cluster(adapt)->group[0].latency - 0.25) < 1e-6);
        assert_true(fabs(het_adapt_cluster(adapt)->group[1].latency - 1e-3) < 1e-9);
        assert_non_null(strstr(advice->text, "link \"all\": 4 ms is now 250 ms"));
        assert_non_null(advice->plan);
        assert_true(advice->after < 0.95 * advice->before);
        assert_true(fabs(advice->after - seconds_of(&w.real, advice->plan, advice->granules)) < 1e-6);
        advised_end(&w, plan, adapt, advice);
    }
}

/* Where bytes take the time, it is the bandwidth that changed. */
static void a_narrow_link_is_seen(void **state)
{
    world w;
    het_plan *plan;
    het_adapt *adapt;
    het_advice *advice;
    int steps;
    (void)state;
    start(&w, 2);
    w.group[1].latency = 1e-5;
    w.group[1].bandwidth = 1e4; /* messages of 64 bytes */
    memcpy(w.true_group, w.group, sizeof w.group);
    plan = plan_of(&w, "pp", "1f1b");
    adapt = adapt_to(&w, plan, 4, NULL);
    assert_null(steps_until(&w, adapt, plan, 4, 8, &steps));
    w.true_group[1].bandwidth = 200;
    advice = steps_until(&w, adapt, plan, 4, 12, &steps);
    assert_non_null(advice);
    assert_true(fabs(het_adapt_cluster(adapt)->group[1].bandwidth - 200) < 1e-3);
    advised_end(&w, plan, adapt, advice);
}

/* What a link added to large messages says nothing of the small ones of the next plan. */
static void another_plan_has_other_messages(void **state)
{
    world w;
    het_plan *plan;
    het_adapt *adapt;
    het_advice *advice;
    het_error error;
    int steps;
    (void)state;
    start(&w, 2);
    w.group[1].latency = 1e-5;
    w.group[1].bandwidth = 1e4;
    memcpy(w.true_group, w.group, sizeof w.group);
    w.true_group[1].bandwidth = 2e3;
    plan = plan_of(&w, "pp", "1f1b");
    adapt = adapt_to(&w, plan, 8, NULL);
    advice = steps_until(&w, adapt, plan, 8, 12, &steps);
    assert_non_null(advice);
    assert_true(fabs(het_adapt_cluster(adapt)->group[1].bandwidth - 2e3) < 1);
    het_advice_free(advice);
    EXPECT_OK(het_adapt_start(adapt, plan, 1, &error));
    assert_null(steps_until(&w, adapt, plan, 1, 8, &steps));
    assert_true(fabs(het_adapt_cluster(adapt)->group[1].bandwidth - 2e3) < 1);
    het_adapt_destroy(adapt);
    het_plan_free(plan);
    end(&w);
}

/* Data parallelism has no message but those of reductions: they tell too, of one link and of the outer one of a tree, of small
   blocks and of large ones, which go in two windows and so wait twice. */
static void a_slow_link_is_seen_by_reductions(void **state)
{
    static const struct { int64_t ranks, elements; } runs[] = { { 2, 1024 }, { 4, 1024 }, { 2, 8 << 20 } };
    size_t run;
    (void)state;
    for (run = 0; run < sizeof runs / sizeof *runs; run++) {
        const int64_t ranks = runs[run].ranks;
        const int g = ranks == 2 ? 1 : 0;
        world w;
        het_plan *plan;
        het_adapt *adapt;
        het_advice *advice;
        int steps, i;
        start(&w, ranks);
        for (i = 0; i < UNITS; i++) w.block[i].elements = runs[run].elements;
        plan = plan_of(&w, "dp", "1f1b");
        adapt = adapt_to(&w, plan, 4, NULL);
        assert_null(steps_until(&w, adapt, plan, 4, 8, &steps));
        w.true_group[g].latency = 0.3;
        advice = steps_until(&w, adapt, plan, 4, 12, &steps);
        assert_non_null(advice);
        assert_int_equal(steps, 4);
        if (!(fabs(het_adapt_cluster(adapt)->group[g].latency - 0.3) < 1e-3))
            fail_msg("%d ranks: latency %g", (int)ranks, het_adapt_cluster(adapt)->group[g].latency);
        assert_non_null(advice->plan);
        assert_true(advice->plan->pipelines < ranks && advice->after < 0.95 * advice->before);
        advised_end(&w, plan, adapt, advice);
    }
}

/* Where bytes take the time and unequal blocks wait for each other, the link is seen as narrow as it is: a little narrower, and much, one link
   and the outer one of a tree, on slow devices too, whose backward passes hide more of it; and then as wide as it was. */
static void a_narrow_link_is_seen_by_reductions(void **state)
{
    static const struct { int64_t ranks; double times, speed; } runs[] = { { 2, 1.5, 1 }, { 2, 6, 1 }, { 2, 40, 1 }, { 4, 1.5, 1 }, { 4, 6, 1 },
        { 4, 40, 1 }, { 2, 40, 0.2 }, { 4, 40, 0.2 } };
    size_t run;
    (void)state;
    for (run = 0; run < sizeof runs / sizeof *runs; run++) {
        const int64_t ranks = runs[run].ranks;
        const int g = ranks == 2 ? 1 : 0;
        world w;
        het_plan *plan;
        het_adapt *adapt;
        int steps, i;
        start(&w, ranks);
        for (i = 0; i < UNITS; i++) w.block[i].elements = 300 * (1 + 3 * i % 7);
        w.group[g].latency = w.group[1].latency = w.group[2].latency = 1e-5;
        w.group[g].bandwidth = 1e5; /* a half of the largest block takes 84 ms */
        memcpy(w.true_group, w.group, sizeof w.group);
        for (i = 0; i < ranks; i++) w.place[i].speed = w.true_place[i].speed = runs[run].speed;
        plan = plan_of(&w, "dp", "1f1b");
        adapt = adapt_to(&w, plan, 4, NULL);
        assert_null(steps_until(&w, adapt, plan, 4, 8, &steps));
        for (i = 0; i < 2; i++) {
            het_advice *advice;
            double seen;
            w.true_group[g].bandwidth = i == 0 ? 1e5 / runs[run].times : 1e5;
            advice = steps_until(&w, adapt, plan, 4, 12, &steps);
            seen = het_adapt_cluster(adapt)->group[g].bandwidth / w.true_group[g].bandwidth;
            assert_non_null(advice);
            if (!(fabs(seen - 1) < 0.03))
                fail_msg("%d ranks of speed %g, 1/%g: %g of the bandwidth", (int)ranks, runs[run].speed, runs[run].times, seen);
            het_advice_free(advice);
        }
        het_adapt_destroy(adapt);
        het_plan_free(plan);
        end(&w);
    }
}

/* The advice of an adaptation that may only change shares, once it sees how fast devices truly are. */
static het_advice *advice_on_true_shares(world *w, const het_plan *plan, het_adapt **adapt)
{
    het_adapt_desc desc;
    het_advice *advice;
    het_error error;
    int steps;
    memset(&desc, 0, sizeof desc);
    desc.search = &w->search;
    desc.allocator = w->profile.allocator;
    desc.only_shares = HET_YES;
    EXPECT_OK(het_adapt_create(&desc, adapt, &error));
    EXPECT_OK(het_adapt_start(*adapt, plan, 1, &error));
    advice = steps_until(w, *adapt, plan, 1, 12, &steps);
    assert_non_null(advice);
    return advice;
}

/* After device 1 has become three times slower. */
static het_advice *advice_on_shares(world *w, const het_plan *plan, het_adapt **adapt)
{
    w->true_place[1].speed = 1 / 3.0;
    return advice_on_true_shares(w, plan, adapt);
}

/* Told to change shares only it does, where another plan would be better. */
static void only_shares_change(void **state)
{
    world w;
    het_plan *plan;
    het_adapt *adapt = NULL;
    het_advice *advice;
    (void)state;
    start(&w, 3);
    plan = plan_of(&w, "dp", "1f1b");
    advice = advice_on_shares(&w, plan, &adapt);
    assert_int_equal(advice->only_shares, 1);
    assert_int_equal(advice->plan->pipelines, 3);
    assert_true(advice->plan->share[0] == 7 && advice->plan->share[1] == 2 && advice->plan->share[2] == 7);
    advised_end(&w, plan, adapt, advice);
}

/* A rank that does not take the micro-batches in use has none, and gets none. */
static void a_rank_that_takes_less_gets_none(void **state)
{
    static const char text[] = "{\"pipelines\": [{\"stages\": [{\"rank\": 0, \"units\": [0, 6]}]}, {\"stages\": [{\"rank\": 1, \"units\": [0, 6]}]}, "
                               "{\"share\": 0, \"stages\": [{\"rank\": 2, \"units\": [0, 6]}]}]}";
    world w;
    het_plan *plan;
    het_adapt *adapt = NULL;
    het_advice *advice;
    (void)state;
    start(&w, 3);
    w.place[2].max_tokens = w.true_place[2].max_tokens = 3; /* a granule has 4 */
    plan = plan_of(&w, text, "1f1b");
    advice = advice_on_shares(&w, plan, &adapt);
    assert_int_equal(advice->only_shares, 1);
    assert_true(advice->plan->share[0] > advice->plan->share[1] && advice->plan->share[1] > 0 && advice->plan->share[2] <= 0);
    het_advice_free(advice);
    het_adapt_destroy(adapt);
    plan->share[2] = 1;
    {
        het_simulation *simulation = NULL;
        het_error error;
        EXPECT_ERROR(het_plan_predict(&w.search, plan, 1, HET_NO, &simulation, &error), HET_ERR_LIMIT, error.text, "4 tokens|rank 2 there is 3");
        assert_null(simulation);
    }
    het_plan_free(plan);
    end(&w);
}

/* The shortest step of a plan for four ranks, of all shares of so many micro-batches. */
static double best_of_shares(const world *w, const het_plan *plan, int count)
{
    double best = 1e9, share[4];
    het_plan tried = *plan;
    int i, j, k;
    tried.share = share;
    for (i = 0; i <= count; i++)
        for (j = 0; i + j <= count; j++)
            for (k = 0; i + j + k <= count; k++) {
                double seconds;
                share[0] = i, share[1] = j, share[2] = k, share[3] = count - i - j - k;
                seconds = seconds_of(&w->real, &tried, 1);
                if (seconds < best) best = seconds;
            }
    return best;
}

/* Two ranks that are slower alike: no move of one micro-batch makes the step shorter by itself. And drawn speeds. */
static void shares_are_the_best(void **state)
{
    uint64_t seed = 11;
    int run, i;
    (void)state;
    for (run = 0; run < 8; run++) {
        world w;
        het_plan *plan;
        het_adapt *adapt = NULL;
        het_advice *advice;
        double best, got;
        start(&w, RANKS);
        for (i = 0; i < RANKS; i++) w.true_place[i].speed = run == 0 ? i % 2 == 0 ? 0.5 : 1 : 0.25 + 0.25 * (double)support_below(&seed, 4);
        w.true_place[0].speed = 0.5;
        w.search.granules = w.real.granules = 12;
        plan = plan_of(&w, "dp", "1f1b");
        advice = advice_on_true_shares(&w, plan, &adapt);
        best = best_of_shares(&w, plan, 12);
        got = advice->plan != NULL ? seconds_of(&w.real, advice->plan, 1) : advice->before;
        if (!(got <= best * 1.05)) fail_msg("run %d: %g s, the best shares take %g", run, got, best);
        if (run == 0) assert_true(got <= best);
        advised_end(&w, plan, adapt, advice);
    }
}

static double ticks(void *user)
{
    return *(double *)user += 1;
}

/* Of 16 ranks one is half as fast: each of the others that has fewer than another may take one, and what is simulated is in proportion to ranks, not
   to their pairs. Where the time is over nothing is tried. */
static void shares_of_many_ranks(void **state)
{
    int timed, i;
    (void)state;
    for (timed = 0; timed < 2; timed++) {
        world w;
        het_plan *plan;
        het_adapt *adapt = NULL;
        het_advice *advice;
        double now = 0, before;
        start(&w, MOST);
        for (i = 0; i < MOST; i++) w.place[i].group = w.true_place[i].group = 0;
        w.true_place[0].speed = 0.5;
        w.search.granules = w.real.granules = 8 * MOST;
        w.search.clock = ticks, w.search.user = &now;
        w.search.seconds = timed ? 1 : 1e6;
        plan = plan_of(&w, "dp", "1f1b");
        before = seconds_of(&w.real, plan, 1);
        advice = advice_on_true_shares(&w, plan, &adapt);
        if (timed) assert_null(advice->plan);
        else {
            assert_true(now > 1 && now < 6 * MOST);
            assert_non_null(advice->plan);
            assert_true(advice->after < before * 9 / 16 + 0.1); /* 9 granules, or 4 on the slow one, for 16 of a fast one */
            assert_true(advice->plan->share[0] >= 4 && advice->plan->share[0] <= 4);
            for (i = 1; i < MOST; i++) assert_true(advice->plan->share[i] <= 9);
        }
        advised_end(&w, plan, adapt, advice);
    }
}

/* Shares of which a schedule of several updates cannot be made are passed over. */
static void shares_that_no_schedule_takes(void **state)
{
    static const char text[] = "{\"pipelines\": [{\"stages\": [{\"rank\": 0, \"units\": [0, 3]}, {\"rank\": 1, \"units\": [3, 6]}]}, "
                               "{\"stages\": [{\"rank\": 2, \"units\": [0, 3]}, {\"rank\": 3, \"units\": [3, 6]}]}], "
                               "\"updates\": 8, \"staleness\": 1}";
    world w;
    het_plan *plan;
    het_adapt *adapt = NULL;
    het_advice *advice;
    (void)state;
    start(&w, RANKS);
    w.true_place[0].speed = w.true_place[1].speed = 0.3;
    plan = plan_of(&w, text, "1f1b");
    advice = advice_on_true_shares(&w, plan, &adapt);
    assert_true(advice->after <= advice->before);
    advised_end(&w, plan, adapt, advice);
}

/* Where no plan is found, as nothing fits into the memory that devices are said to have, new shares of the plan in use are taken. */
static void shares_where_no_plan_is_found(void **state)
{
    world w;
    het_plan *plan;
    het_adapt *adapt;
    het_advice *advice;
    int steps;
    (void)state;
    start(&w, 2);
    w.place[0].memory = w.place[1].memory = 1000;
    plan = plan_of(&w, "dp", "1f1b");
    adapt = adapt_to(&w, plan, 1, NULL);
    w.true_place[1].speed = 1 / 3.0;
    advice = steps_until(&w, adapt, plan, 1, 12, &steps);
    assert_non_null(advice);
    assert_int_equal(advice->only_shares, 1);
    assert_true(advice->plan->share[0] >= 12 && advice->plan->share[0] <= 12);
    advised_end(&w, plan, adapt, advice);
}

/* A plan's keepers and near sets stay what they are where only shares change. */
static void keepers_stay(void **state)
{
    static const char text[] = "{\"pipelines\": [{\"stages\": [{\"rank\": 0, \"units\": [0, 6]}]}, "
                               "{\"stages\": [{\"rank\": 1, \"units\": [0, 6]}]}], "
                               "\"shard\": \"weights\", \"near\": [0, 0, 0, 1], \"keepers\": [2]}";
    world w;
    het_plan *plan;
    het_adapt *adapt = NULL;
    het_advice *advice;
    (void)state;
    start(&w, RANKS);
    plan = plan_of(&w, text, "1f1b");
    advice = advice_on_shares(&w, plan, &adapt);
    assert_true(fabs(advice->before - seconds_of(&w.real, plan, 1)) < 1e-9);
    assert_non_null(advice->plan);
    assert_int_equal(advice->only_shares, 1);
    assert_int_equal(advice->plan->keeper[2], 1);
    assert_int_equal(advice->plan->near[3], 1);
    advised_end(&w, plan, adapt, advice);
}

/* ---- misuse and memory ---- */

static void bad_input_is_named(void **state)
{
    world w;
    het_plan *plan, *other;
    het_adapt_desc desc;
    het_adapt *adapt = NULL;
    het_advice *advice = NULL;
    het_simulation *simulation = NULL;
    het_timeline timeline;
    het_record record[1];
    het_error error;
    const double wrong[4] = { -1, 1e-10, 1e19, (double)NAN };
    const char *sliced = "sliced-1f1b";
    double clock[2] = { 1, 1 };
    int i;
    (void)state;
    start(&w, 2);
    plan = plan_of(&w, "dp", "1f1b");
    memset(&desc, 0, sizeof desc);
    desc.frequency = clock;
    desc.allocator = w.profile.allocator;
    EXPECT_ERROR(het_adapt_create(&desc, &adapt, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_adapt_create(NULL, &adapt, &error), HET_ERR_INVALID, error.text, "NULL");
    desc.search = &w.search;
    EXPECT_ERROR(het_adapt_create(&desc, NULL, &error), HET_ERR_INVALID, error.text, "NULL");
    desc.change = -1;
    EXPECT_ERROR(het_adapt_create(&desc, &adapt, &error), HET_ERR_INVALID, error.text, "change -1");
    desc.change = 0, desc.gain = 1;
    EXPECT_ERROR(het_adapt_create(&desc, &adapt, &error), HET_ERR_INVALID, error.text, "gain 1");
    desc.gain = 0, desc.window = 65;
    EXPECT_ERROR(het_adapt_create(&desc, &adapt, &error), HET_ERR_INVALID, error.text, "window 65|64");
    desc.window = 0, desc.end_canary = 7;
    EXPECT_ERROR(het_adapt_create(&desc, &adapt, &error), HET_ERR_INVALID, error.text, "cleared");
    desc.end_canary = 0;
    w.search.schedules = &sliced, w.search.schedule_count = 1;
    EXPECT_ERROR(het_adapt_create(&desc, &adapt, &error), HET_ERR_INVALID, error.text, "het_adapt_create|'sliced-1f1b'");
    sliced = "timed";
    EXPECT_ERROR(het_adapt_create(&desc, &adapt, &error), HET_ERR_INVALID, error.text, "het_adapt_create|'timed'|by name");
    assert_null(adapt);
    desc.only_shares = HET_YES; /* then no plan is looked for */
    EXPECT_OK(het_adapt_create(&desc, &adapt, &error));
    het_adapt_destroy(adapt);
    desc.only_shares = HET_DEFAULT, w.search.schedules = NULL, w.search.schedule_count = 0;
    EXPECT_OK(het_adapt_create(&desc, &adapt, &error));
    memset(&timeline, 0, sizeof timeline);
    EXPECT_ERROR(het_adapt_observe(adapt, &timeline, &error), HET_ERR_INVALID, error.text, "het_adapt_start");
    EXPECT_ERROR(het_adapt_advise(adapt, &advice, &error), HET_ERR_INVALID, error.text, "het_adapt_start");
    EXPECT_ERROR(het_adapt_start(adapt, plan, 0, &error), HET_ERR_INVALID, error.text, "0 granules|16");
    EXPECT_ERROR(het_adapt_start(adapt, plan, 17, &error), HET_ERR_INVALID, error.text, "17 granules|16");
    EXPECT_ERROR(het_adapt_start(adapt, NULL, 1, &error), HET_ERR_INVALID, error.text, "NULL");
    w.cluster.ranks = 3;
    other = plan_of(&w, "dp", "1f1b");
    w.cluster.ranks = 2;
    EXPECT_ERROR(het_adapt_start(adapt, other, 1, &error), HET_ERR_INVALID, error.text, "3 ranks|2 ranks");
    EXPECT_ERROR(het_plan_predict(&w.search, other, 1, HET_NO, &simulation, &error), HET_ERR_INVALID, error.text, "3 ranks|2 ranks");
    EXPECT_ERROR(het_plan_predict(NULL, plan, 1, HET_NO, &simulation, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_plan_predict(&w.search, plan, 1, HET_NO, NULL, &error), HET_ERR_INVALID, error.text, "NULL");
    het_plan_free(other);
    EXPECT_OK(het_adapt_start(adapt, plan, 2, &error));
    memset(record, 0, sizeof record);
    timeline.ranks = 2, timeline.records = 1, timeline.record = record;
    EXPECT_OK(het_adapt_observe(adapt, &timeline, &error));
    for (i = 0; i < 4; i++) {
        clock[1] = wrong[i];
        EXPECT_ERROR(het_adapt_observe(adapt, &timeline, &error), HET_ERR_INVALID, error.text, "rank 1 reports a clock");
    }
    clock[1] = 1;
    record[0].rank = 2;
    EXPECT_ERROR(het_adapt_observe(adapt, &timeline, &error), HET_ERR_INVALID, error.text, "record 0|rank 2");
    record[0].rank = 0, record[0].action.micro_batch = 4;
    EXPECT_ERROR(het_adapt_observe(adapt, &timeline, &error), HET_ERR_INVALID, error.text, "0F4");
    record[0].action.micro_batch = 0, record[0].action.stage = 1;
    EXPECT_ERROR(het_adapt_observe(adapt, &timeline, &error), HET_ERR_INVALID, error.text, "1F0");
    record[0].action.stage = 0, record[0].action.kind = HET_ACTION_SEND_F; /* of the only stage */
    EXPECT_ERROR(het_adapt_observe(adapt, &timeline, &error), HET_ERR_INVALID, error.text, "0SEND_F0");
    record[0].action.kind = 77;
    EXPECT_ERROR(het_adapt_observe(adapt, &timeline, &error), HET_ERR_INVALID, error.text, "record 0|?");
    record[0].action.kind = HET_ACTION_F, record[0].end = -1;
    EXPECT_ERROR(het_adapt_observe(adapt, &timeline, &error), HET_ERR_INVALID, error.text, "record 0");
    het_adapt_destroy(adapt);
    het_adapt_destroy(NULL);
    het_advice_free(NULL);
    assert_null(het_adapt_cluster(NULL));
    het_plan_free(plan);
    end(&w);
}

/* Every allocation fails once: an error, nothing left, and what was there is still usable. */
static void every_allocation_may_fail(void **state)
{
    const int all = support_environment("HETRAIN_TEST_ROUNDS", 1) > 1; /* otherwise of the later ones some */
    het_result result = HET_ERR_OOM;
    int64_t k;
    (void)state;
    for (k = 0; result != HET_OK; k += all ? 1 : 1 + k / 64) {
        world w;
        het_plan *plan;
        het_adapt_desc desc;
        het_adapt *adapt = NULL;
        het_advice *advice = NULL;
        het_error error;
        int i;
        start(&w, 2);
        w.search.evaluations = w.real.evaluations = 30;
        w.search.small = w.real.small = -1;
        plan = plan_of(&w, "dp", "1f1b");
        w.real.allocator.alloc = NULL; /* the truth is simulated with memory that is there */
        w.real.allocator.free = NULL;
        w.true_place[1].speed = 0.2;
        memset(&desc, 0, sizeof desc);
        desc.search = &w.search;
        desc.allocator = w.profile.allocator;
        w.memory.fail_at = k;
        result = het_adapt_create(&desc, &adapt, &error);
        if (result == HET_OK) result = het_adapt_start(adapt, plan, 2, &error);
        for (i = 0; i < 5 && result == HET_OK; i++) {
            het_simulation *simulation = NULL;
            EXPECT_OK(het_plan_predict(&w.real, plan, 2, HET_YES, &simulation, &error));
            result = het_adapt_observe(adapt, &simulation->timeline, &error);
            het_simulation_free(simulation);
            if (result == HET_OK && advice == NULL) result = het_adapt_advise(adapt, &advice, &error);
        }
        if (result != HET_OK && result != HET_ERR_OOM) fail_msg("allocation %d: %s", (int)k, error.text);
        advised_end(&w, plan, adapt, advice);
    }
    assert_true(k > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predictions_are_closed_forms),
        cmocka_unit_test(a_slow_rank_gets_a_smaller_share),
        cmocka_unit_test(a_slow_stage_gets_fewer_units),
        cmocka_unit_test(what_helps_nobody_changes_nothing),
        cmocka_unit_test(one_step_is_not_believed),
        cmocka_unit_test(a_lower_clock_is_believed_at_once),
        cmocka_unit_test(times_overrule_a_clock),
        cmocka_unit_test(a_slow_link_is_seen),
        cmocka_unit_test(a_narrow_link_is_seen), cmocka_unit_test(another_plan_has_other_messages),
        cmocka_unit_test(a_slow_link_is_seen_by_reductions),
        cmocka_unit_test(a_narrow_link_is_seen_by_reductions),
        cmocka_unit_test(only_shares_change), cmocka_unit_test(shares_are_the_best), cmocka_unit_test(shares_of_many_ranks),
        cmocka_unit_test(shares_that_no_schedule_takes), cmocka_unit_test(shares_where_no_plan_is_found),
        cmocka_unit_test(a_rank_that_takes_less_gets_none), cmocka_unit_test(keepers_stay),
        cmocka_unit_test(bad_input_is_named),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("adapt", tests, NULL, NULL);
}
