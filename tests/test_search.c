/* The planner against a brute force that goes through the whole declared space by code of its own, and against what must come out where one knows:
   shares by speed, pipelines forced by memory, cuts on slow links. HETRAIN_TEST_ROUNDS: instances against brute force (60; 500 is the whole set). */
#include "support.h"

#include "hetrain_plan.h"

enum { MOST_UNITS = 40, MOST_DEVICES = 1024, MOST_GROUPS = 64 };

/* ---- profiles and clusters made by hand ---- */

typedef struct world {
    het_profile profile;
    het_cluster cluster;
    het_search_desc desc;
    support_memory memory;
    het_unit_kind kind[MOST_UNITS];
    int32_t unit[MOST_UNITS];
    het_block_profile block[MOST_UNITS];
    int64_t use[MOST_UNITS + 1];
    het_device_profile device[8];
    het_unit_time time[8][MOST_UNITS];
    het_cluster_device place[MOST_DEVICES];
    het_group group[MOST_GROUPS];
} world;

/* A chain of `units` kinds, a block each, on one kind of device; every unit takes 1 s a token forward, 2 s back. One group without any delay. */
static world *make(int64_t units, int64_t devices)
{
    world *w = (world *)support_alloc(1, sizeof *w);
    int64_t i;
    memset(w, 0, sizeof *w);
    w->memory.fail_at = -1;
    w->profile.allocator = support_allocator(&w->memory);
    w->profile.kinds = w->profile.units = w->profile.blocks = w->profile.uses = units;
    w->profile.devices = 1;
    w->profile.kind = w->kind;
    w->profile.unit = w->unit;
    w->profile.block = w->block;
    w->profile.use = w->use;
    w->profile.device = w->device;
    w->profile.weight_bytes = 4;
    w->profile.gradient_bytes = 8;
    w->profile.state_bytes = 8;
    w->profile.reduce_bytes = 8;
    w->profile.gather_bytes = 4;
    for (i = 0; i < 8; i++) {
        snprintf(w->device[i].name, sizeof w->device[i].name, "type%d", (int)i);
        w->device[i].alone = w->device[i].together = w->time[i];
    }
    for (i = 0; i < units; i++) {
        snprintf(w->kind[i].name, sizeof w->kind[i].name, "unit%d", (int)i);
        w->unit[i] = (int32_t)i;
        w->kind[i].input = i > 0 ? 4 : 0;
        w->kind[i].output = i + 1 < units ? 4 : 0;
        w->kind[i].keep_weight = 16;
        w->kind[i].loss = i + 1 == units;
        w->block[i].elements = 1000;
        w->block[i].uses = 1;
        w->block[i].first_use = w->use[i] = i;
        w->time[0][i].forward.token = 1;
        w->time[0][i].backward.token = 2;
        w->time[0][i].input.token = w->time[0][i].weight.token = 1;
        w->time[0][i].recompute.token = 1;
    }
    w->cluster.ranks = devices;
    w->cluster.groups = 1;
    w->cluster.device = w->place;
    w->cluster.group = w->group;
    w->group[0].parent = -1;
    for (i = 0; i < devices; i++) {
        snprintf(w->place[i].name, sizeof w->place[i].name, "device%d", (int)i);
        snprintf(w->place[i].profile, sizeof w->place[i].profile, "type0");
        w->place[i].speed = 1;
    }
    w->desc.profile = &w->profile;
    w->desc.cluster = &w->cluster;
    w->desc.granules = 8;
    w->desc.granule_tokens = 1;
    w->desc.allocator = w->profile.allocator;
    return w;
}

static void end(world *w)
{
    assert_int_equal(w->memory.live, 0);
    assert_int_equal(w->memory.wrong, 0);
    free(w);
}

static het_search *find(world *w)
{
    het_search *search = NULL;
    het_error error;
    error.text[0] = 0;
    EXPECT_ERROR(het_plan_search(&w->desc, &search, &error), HET_OK, error.text, "");
    assert_non_null(search);
    return search;
}

/* ---- the judge, from public calls ---- */

typedef struct judged { double seconds; int fits; } judged;

static void blocks_of(const world *w, het_blocks *blocks, int64_t start[MOST_UNITS + 1])
{
    int64_t b;
    for (b = 0; b < w->profile.blocks; b++) {
        start[b] = w->block[b].first_use;
        start[b + 1] = start[b] + w->block[b].uses;
    }
    blocks->count = w->profile.blocks;
    blocks->start = start;
    blocks->unit = w->use;
}

static judged judge(const world *w, het_plan *plan, int64_t granules, int state)
{
    const het_allocator *allocator = &w->profile.allocator;
    const int64_t micro_batches = (w->desc.granules + granules - 1) / granules;
    int64_t counts[MOST_DEVICES], start[MOST_UNITS + 1], r, i;
    double tokens[64], pairs[64];
    het_schedule *compute = NULL, *lists = NULL;
    het_needs needs[MOST_DEVICES];
    het_memory memory[MOST_DEVICES];
    int used[MOST_DEVICES];
    het_shape shape;
    het_blocks blocks;
    het_error error;
    judged j = { 0, 0 };
    het_plan_divide(plan, micro_batches, counts);
    if (het_schedule_make(plan, counts, allocator, &compute, &error) != HET_OK) return j;
    blocks_of(w, &blocks, start);
    EXPECT_OK(het_schedule_complete(plan, &blocks, compute, allocator, &lists, &error));
    het_schedule_free(compute);
    EXPECT_OK(het_profile_needs(plan, lists, allocator, needs, &error));
    shape.tokens = granules * w->desc.granule_tokens;
    shape.sequences = granules;
    shape.granule = w->desc.granule_tokens;
    for (r = 0; r < plan->ranks; r++) {
        used[r] = 0;
        for (i = 0; i < plan->stages; i++) used[r] |= plan->stage[i].rank == r;
    }
    if (state >= 0)
        for (r = 0; r < plan->ranks; r++) plan->state_share[r] = 1;
    EXPECT_OK(het_profile_memory(&w->profile, plan, needs, &shape, memory, &error));
    j.fits = 1;
    if (state == 1 || state == 2) { /* by speed, by what is left */
        double sum = 0;
        for (r = 0; r < plan->ranks; r++) {
            double share = w->place[r].memory - ((double)memory[r].device + (double)memory[r].communication - (double)memory[r].optimizer);
            const double element = w->device[w->place[r].profile[4] - '0'].step_element;
            if (!used[r]) continue;
            if (state == 2 && w->place[r].memory <= 0) j.fits = 0;
            if (state == 1 && element <= 0) j.fits = 0;
            if (state == 1) share = w->place[r].speed / element;
            plan->state_share[r] = share > 0 ? share : 0;
            sum += plan->state_share[r];
        }
        if (sum <= 0) j.fits = 0;
        if (j.fits) EXPECT_OK(het_profile_memory(&w->profile, plan, needs, &shape, memory, &error));
    }
    for (r = 0; r < plan->ranks; r++)
        if (used[r] && w->place[r].memory > 0 && (double)memory[r].device + (double)memory[r].communication > w->place[r].memory) j.fits = 0;
    if (j.fits) {
        het_simulation *simulation = NULL;
        het_plan_costs *costs = NULL;
        for (i = 0; i < micro_batches; i++) {
            const int64_t n = i + 1 < micro_batches ? granules : w->desc.granules - i * granules;
            tokens[i] = (double)(n * w->desc.granule_tokens);
            pairs[i] = (double)n * (w->desc.granule_pairs > 0 ? w->desc.granule_pairs
                : 0.5 * (double)w->desc.granule_tokens * (double)(w->desc.granule_tokens + 1));
        }
        EXPECT_OK(het_profile_costs(&w->profile, plan, &w->cluster, HET_DEFAULT, allocator, &costs, &error));
        costs->costs.tokens = tokens;
        costs->costs.pairs = pairs;
        EXPECT_ERROR(het_simulate(plan, lists, &costs->costs, HET_NO, allocator, &simulation, &error), HET_OK, error.text, "");
        j.seconds = simulation->makespan;
        het_simulation_free(simulation);
        het_plan_costs_free(costs);
    }
    het_schedule_free(lists);
    return j;
}

/* ---- brute force ---- */

typedef struct brute {
    const world *w;
    int64_t judged;
    double best;
    het_plan plan;
    het_stage stage[16];
    int64_t first_stage[9], order[8], begin[9], count[8];
    double share[8], state_share[8], slice_share[1];
    int64_t cut[8];                                       /* bits: units after which a stage ends */
} brute;

static int chunks_of(const char *name)
{
    return strcmp(name, "interleaved") == 0 || name[0] == 'v' || strcmp(name, "zb-v") == 0 || strcmp(name, "dualpipev") == 0 ? 2 : 1;
}

static int is_v(const char *name) { return chunks_of(name) == 2 && strcmp(name, "interleaved") != 0; }

/* Everything that is left to choose once devices, cuts, granules and counts are set. */
static void brute_settings(brute *b, int64_t groups, int64_t granules, const char *name)
{
    const world *w = b->w;
    const int64_t used = b->begin[groups];
    int64_t mask, g, longest = 0, limit, state, p;
    for (p = 0; p < groups; p++)
        if (b->begin[p + 1] - b->begin[p] > longest) longest = b->begin[p + 1] - b->begin[p];
    for (mask = 0; mask < (w->desc.recompute == HET_NO ? 1 : 1 << used); mask++) {
        b->plan.stages = 0;
        b->plan.pipelines = groups;
        for (p = 0; p < groups; p++) {
            const int64_t n = b->begin[p + 1] - b->begin[p];
            int64_t u, s = 0, from = 0;
            b->first_stage[p] = b->plan.stages;
            b->share[p] = (double)b->count[p];
            for (u = 0; u < w->profile.units; u++) {
                if (!(b->cut[p] >> u & 1) && u + 1 < w->profile.units) continue;
                g = b->plan.stages++;
                b->stage[g].pipeline = p;
                b->stage[g].rank = b->order[b->begin[p] + (s < n ? s : is_v(name) ? 2 * n - 1 - s : s - n)];
                b->stage[g].unit_begin = from;
                b->stage[g].unit_end = u + 1;
                b->stage[g].recompute = mask >> (b->begin[p] + (s < n ? s : is_v(name) ? 2 * n - 1 - s : s - n)) & 1;
                from = u + 1;
                s++;
            }
            b->first_stage[p + 1] = b->plan.stages;
        }
        strcpy(b->plan.schedule, name);
        for (limit = 0; limit <= (strcmp(name, "greedy") == 0 ? longest : 0); limit++)
            for (state = 0; state < (w->desc.uneven_state == HET_NO ? 1 : 3); state++) {
                judged j;
                b->plan.memory_limit = (double)limit;
                j = judge(w, &b->plan, granules, (int)state);
                b->judged++;
                if (j.fits && (b->best < 0 || j.seconds < b->best)) b->best = j.seconds;
            }
    }
}

static void brute_counts(brute *b, int64_t groups, int64_t granules, int64_t p, int64_t left, const char *name)
{
    if (p + 1 == groups) {
        b->count[p] = left;
        brute_settings(b, groups, granules, name);
        return;
    }
    for (b->count[p] = 0; b->count[p] <= left; b->count[p]++) {
        const int64_t keep = b->count[p];
        brute_counts(b, groups, granules, p + 1, left - keep, name);
        b->count[p] = keep;
    }
}

static int bits(int64_t x) { int n = 0; for (; x != 0; x &= x - 1) n++; return n; }

static void brute_cuts(brute *b, int64_t groups, int64_t p, const char *name)
{
    const world *w = b->w;
    int64_t cut, g;
    if (p == groups) {
        for (g = 1; g <= (w->desc.most_granules > 0 ? w->desc.most_granules : w->desc.granules); g++)
            brute_counts(b, groups, g, 0, (w->desc.granules + g - 1) / g, name);
        return;
    }
    for (cut = 0; cut < (int64_t)1 << (w->profile.units - 1); cut++) {
        if (bits(cut) + 1 != chunks_of(name) * (b->begin[p + 1] - b->begin[p])) continue;
        b->cut[p] = cut;
        brute_cuts(b, groups, p + 1, name);
    }
}

/* All orders of the devices of `chosen`, cut into groups in all ways whose lowest members ascend. */
static void brute_orders(brute *b, int64_t chosen, int64_t at, int64_t n, const char *name)
{
    int64_t i, p, q, split;
    if (at < n) {
        for (i = 0; i < b->w->cluster.ranks; i++) {
            if (!(chosen >> i & 1)) continue;
            b->order[at] = i;
            brute_orders(b, chosen & ~((int64_t)1 << i), at + 1, n, name);
        }
        return;
    }
    for (split = 0; split < (int64_t)1 << (n - 1); split++) {
        int64_t groups = 0, lowest[8], ascends = 1;
        b->begin[0] = 0;
        for (i = 0; i < n; i++)
            if (i + 1 == n || (split >> i & 1)) b->begin[++groups] = i + 1;
        for (p = 0; p < groups; p++) {
            lowest[p] = 8;
            for (q = b->begin[p]; q < b->begin[p + 1]; q++)
                if (b->order[q] < lowest[p]) lowest[p] = b->order[q];
            if (p > 0 && lowest[p] < lowest[p - 1]) ascends = 0;
        }
        if (ascends && !(chunks_of(name) == 2 && groups == n)) brute_cuts(b, groups, 0, name);
    }
}

static double brute_force(const world *w, int64_t *judged_count)
{
    brute b;
    int64_t chosen, o;
    memset(&b, 0, sizeof b);
    b.w = w;
    b.best = -1;
    b.plan.units = w->profile.units;
    b.plan.ranks = w->cluster.ranks;
    b.plan.slices = 1;
    b.plan.stage = b.stage;
    b.plan.first_stage = b.first_stage;
    b.plan.share = b.share;
    b.plan.state_share = b.state_share;
    b.plan.slice_share = b.slice_share;
    b.slice_share[0] = 1;
    for (o = 0; o < w->desc.schedule_count; o++)
        for (chosen = 1; chosen < (int64_t)1 << w->cluster.ranks; chosen++) brute_orders(&b, chosen, 0, bits(chosen), w->desc.schedules[o]);
    *judged_count = b.judged;
    return b.best;
}

/* ---- random instances ---- */

static double draw(uint64_t *state, double low, double high) { return low + (high - low) * 0.5 * (support_uniform(state) + 1); }

/* Sizes shrink where settings multiply. The last instances are the largest: 8 units on 4 devices. */
static world *instance(int64_t number, const char *schedules[4])
{
    static const char *const names[] = { "1f1b", "gpipe", "zb-h1", "greedy", "interleaved", "zb-v" };
    uint64_t seed = 1000 + (uint64_t)number;
    const int64_t devices = number % 10 == 9 ? 4 : 1 + support_below(&seed, 3);
    const int64_t units = number % 10 == 9 ? 4 + (number / 10) % 5 : devices <= 2 ? 3 + support_below(&seed, 6) : 3 + support_below(&seed, 4);
    world *w = make(units, devices);
    double whole = 0;
    int64_t i, d;
    w->desc.granules = devices == 4 ? 2 : 1 + support_below(&seed, devices <= 2 ? 6 : 3);
    w->desc.granule_tokens = 1 + support_below(&seed, 3);
    w->desc.seed = (uint64_t)number;
    w->desc.recompute = devices < 4 && support_below(&seed, 3) == 0 ? HET_YES : HET_NO;
    w->desc.uneven_state = devices < 4 && support_below(&seed, 3) == 0 ? HET_YES : HET_NO;
    w->desc.schedules = schedules;
    w->desc.schedule_count = 1 + (devices < 4 && support_below(&seed, 2));
    w->desc.evaluations = 100000000;
    w->desc.small = 100000000;
    for (i = 0; i < w->desc.schedule_count; i++) schedules[i] = names[support_below(&seed, 6)];
    if (w->desc.schedule_count == 2 && schedules[0] == schedules[1]) w->desc.schedule_count = 1;
    w->profile.devices = devices;
    for (d = 0; d < devices; d++) {
        const double speed = draw(&seed, 0.2, 1);
        snprintf(w->place[d].profile, sizeof w->place[d].profile, "type%d", (int)d);
        w->place[d].speed = draw(&seed, 0.5, 2);
        w->device[d].step_element = support_below(&seed, 2) == 0 ? 0 : draw(&seed, 1e-5, 1e-3);
        for (i = 0; i < units; i++) {
            het_unit_time *t = &w->time[d][i];
            t->forward.token = draw(&seed, 0.1, 1) / speed;
            t->input.token = draw(&seed, 0.1, 1) / speed;
            t->weight.token = draw(&seed, 0.1, 1) / speed;
            t->backward.token = t->input.token + draw(&seed, 0.5, 1) * t->weight.token;
            t->recompute.token = t->forward.token;
            if (number % 2 == 1) t->forward.base = t->backward.base = t->input.base = draw(&seed, 0, 2) / speed; /* larger micro-batches pay */
        }
    }
    for (i = 0; i < units; i++) {
        w->kind[i].keep_weight = 4 * (double)(1 + support_below(&seed, 400));
        w->kind[i].keep_input = 4 * (double)support_below(&seed, 200);
        w->block[i].elements = 1 + support_below(&seed, 4000);
        if (i + 1 < units) w->kind[i].output = w->kind[i + 1].input = 4 * (double)(1 + support_below(&seed, 100));
        whole += 20 * (double)w->block[i].elements + w->kind[i].keep_weight * 4;
    }
    if (units > 3 && support_below(&seed, 3) == 0) { /* the last unit uses the block of the first */
        w->profile.blocks = units - 1;
        w->block[0].uses = 2;
        w->use[0] = 0;
        w->use[1] = units - 1;
        for (i = 1; i < units - 1; i++) {
            w->block[i].first_use = i + 1;
            w->use[i + 1] = i;
        }
    }
    w->cluster.groups = 1 + 2 * support_below(&seed, 2);
    for (i = 0; i < w->cluster.groups; i++) {
        w->group[i].parent = i == 0 ? -1 : 0;
        w->group[i].latency = draw(&seed, 0, 1);
        w->group[i].bandwidth = support_below(&seed, 2) == 0 ? 0 : draw(&seed, 1000, 100000);
    }
    for (d = 0; d < devices; d++) {
        w->place[d].group = w->cluster.groups == 1 ? 0 : 1 + support_below(&seed, 2);
        if (support_below(&seed, 2) == 0) w->place[d].memory = draw(&seed, 0.1, 1.2) * whole + 1060000; /* of which buffers take 1 MiB */
    }
    return w;
}

static void same_as_brute_force(void **state)
{
    const char *rounds = getenv("HETRAIN_TEST_ROUNDS");
    const int64_t instances = rounds != NULL && atoi(rounds) > 60 ? 500 : 60;
    int64_t n, nothing = 0, judged_all = 0, evaluated = 0, limited = 0;
    (void)state;
    for (n = 0; n < instances; n++) {
        const char *schedules[4];
        world *w = instance(n, schedules);
        het_search *search = NULL;
        het_error error;
        int64_t judged_here;
        const double best = brute_force(w, &judged_here);
        het_result result = het_plan_search(&w->desc, &search, &error);
        judged_all += judged_here;
        limited += w->place[0].memory > 0;
        if (best < 0) {
            EXPECT_ERROR(result, HET_ERR_LIMIT, error.text, "het_plan_search");
            nothing++;
        } else {
            judged j;
            EXPECT_ERROR(result, HET_OK, error.text, "");
            evaluated += search->evaluations;
            if (!search->exhaustive || search->found[0].seconds > best * (1 + 1e-12) || search->found[0].seconds < best * (1 - 1e-12))
                fail_msg("instance %d: the planner found %.17g, brute force %.17g among %d", (int)n, search->found[0].seconds, best,
                    (int)judged_here);
            if (search->bound > best * (1 + 1e-9)) fail_msg("instance %d: the bound is %.17g, the best %.17g", (int)n, search->bound, best);
            j = judge(w, search->found[0].plan, search->found[0].granules, -1);
            assert_true(j.fits && j.seconds <= search->found[0].seconds && j.seconds >= search->found[0].seconds);
        }
        het_search_free(search);
        end(w);
    }
    print_message("%d instances, %d of them without a plan that fits; %d plans judged by brute force, %d simulated by the planner\n", (int)instances,
        (int)nothing, (int)judged_all, (int)evaluated);
}

/* ---- what must come out ---- */

static void shares_follow_speeds(void **state)
{
    world *w = make(5, 2);
    het_search *search;
    (void)state;
    w->place[1].speed = 1.0 / 3;
    search = find(w);
    assert_int_equal(search->found[0].plan->pipelines, 2);
    assert_true(search->found[0].plan->share[0] / search->found[0].plan->share[1] > 2.99 && search->found[0].plan->share[0] /
        search->found[0].plan->share[1] < 3.01);
    assert_int_equal(search->exhaustive, 1);
    assert_true(search->found[0].seconds > 89.9 && search->found[0].seconds < 90.1); /* 6 granules of 15 s; 2 of 45 s */
    assert_true(search->bound > 89.9 && search->bound < 90.1 && search->distance < 1e-3);
    het_search_free(search);
    end(w);
}

/* Two devices of which none holds the chain; then one that holds nothing. */
static void memory_forces_a_pipeline(void **state)
{
    world *w = make(6, 3);
    het_search *search;
    int64_t i;
    (void)state;
    w->cluster.ranks = 2;
    for (i = 0; i < 6; i++) w->block[i].elements = 1000000; /* 12 bytes each where the state lies with the other, 20 alone */
    w->place[0].memory = w->place[1].memory = 70e6;
    search = find(w);
    assert_int_equal(search->found[0].plan->pipelines, 1);
    assert_int_equal(search->found[0].plan->stage[0].rank + search->found[0].plan->stage[1].rank, 1);
    for (i = 0; i < 2; i++) assert_true(search->found[0].memory[i] > 60e6 && search->found[0].memory[i] <= 70e6);
    het_search_free(search);
    w->cluster.ranks = 3;
    w->place[2].memory = 1000;
    search = find(w);
    for (i = 0; i < search->found[0].plan->stages; i++) assert_true(search->found[0].plan->stage[i].rank < 2);
    assert_true(search->found[0].memory[2] <= 0);
    het_search_free(search);
    end(w);
}

/* Two pairs of devices, 50 ms apart. Each device holds half of the chain: the cut goes over the slow link, equal parts are side by side. */
static void slow_links_get_the_cut(void **state)
{
    world *w = make(8, 4);
    het_search *search;
    const het_plan *plan;
    int64_t i, p, rank_of[8];
    (void)state;
    for (i = 0; i < 8; i++) {
        w->block[i].elements = 1000000;
        w->time[0][i].forward.token = 1e-3;
        w->time[0][i].backward.token = 2e-3;
        w->time[0][i].input.token = w->time[0][i].weight.token = 1e-3;
    }
    w->cluster.groups = 3;
    w->group[0].latency = 0.05;
    w->group[1].parent = w->group[2].parent = 0;
    w->group[1].bandwidth = w->group[2].bandwidth = 10e9;
    for (i = 0; i < 4; i++) {
        w->place[i].group = 1 + i / 2;
        w->place[i].memory = 90e6;
    }
    w->desc.granules = 32;
    w->desc.recompute = w->desc.uneven_state = HET_NO;
    w->desc.evaluations = 3000;
    search = find(w);
    plan = search->found[0].plan;
    assert_int_equal(plan->pipelines, 2);
    for (p = 0; p < 2; p++) {
        for (i = plan->first_stage[p]; i < plan->first_stage[p + 1]; i++) {
            int64_t u;
            for (u = plan->stage[i].unit_begin; u < plan->stage[i].unit_end; u++) {
                if (p == 0) rank_of[u] = plan->stage[i].rank;
                else if (rank_of[u] / 2 != plan->stage[i].rank / 2) fail_msg("unit %d is reduced over the slow link", (int)u);
            }
        }
    }
    het_search_free(search);
    end(w);
}

static void what_does_not_fit_is_named(void **state)
{
    world *w = make(4, 2);
    het_search *search = NULL;
    het_error error;
    int64_t i;
    (void)state;
    w->block[2].elements = 10000000;
    w->place[0].memory = 20e6;
    w->place[1].memory = 50e6;
    /* 40 MB of weights and 80 of gradients beside a few bytes of activations, on a device of 50 */
    EXPECT_ERROR(het_plan_search(&w->desc, &search, &error), HET_ERR_LIMIT, error.text,
        "unit 2 (unit2) needs at least 1200000|, 700000|more than the 50000000 of device 1 (device1)");
    assert_null(search);
    w->block[2].elements = 1000;
    for (i = 0; i < 4; i++) w->block[i].elements = 1500000; /* each fits, but not all: 4 of 30 MB, and the state of one copy does not go away */
    w->place[0].memory = 40e6;
    EXPECT_ERROR(het_plan_search(&w->desc, &search, &error), HET_ERR_LIMIT, error.text, "nothing fits: at best unit|bytes more than the|device");
    assert_null(search);
    end(w);
}

/* Everything that is returned is a plan that passes the check, fits, and takes what it is said to take. */
static void check_found(const world *w, const het_search *search)
{
    int64_t f, r;
    for (f = 0; f < search->found_count; f++) {
        const het_found *found = &search->found[f];
        het_plan *plan = found->plan;
        const judged j = judge(w, plan, found->granules, -1);
        int64_t counts[MOST_DEVICES], start[MOST_UNITS + 1], sum = 0;
        het_schedule *compute = NULL, *lists = NULL;
        het_blocks blocks;
        het_error error;
        assert_true(j.fits && j.seconds >= found->seconds && j.seconds <= found->seconds);
        assert_true(found->work + found->fill + found->transfers + found->update > found->seconds * (1 - 1e-9));
        assert_true(found->work + found->fill + found->transfers + found->update < found->seconds * (1 + 1e-9));
        assert_true(search->bound <= found->seconds * (1 + 1e-9));
        assert_true(f == 0 || found->seconds >= search->found[f - 1].seconds);
        assert_true(strlen(found->why) > 5);
        het_plan_divide(plan, found->micro_batches, counts);
        for (r = 0; r < plan->pipelines; r++) {
            assert_true((double)counts[r] >= plan->share[r] && (double)counts[r] <= plan->share[r]);
            sum += counts[r];
        }
        assert_int_equal(sum, found->micro_batches);
        EXPECT_ERROR(het_schedule_make(plan, counts, NULL, &compute, &error), HET_OK, error.text, "");
        blocks_of(w, &blocks, start);
        EXPECT_OK(het_schedule_complete(plan, &blocks, compute, NULL, &lists, &error));
        EXPECT_OK(het_schedule_check(plan, &blocks, lists, NULL, &error));
        for (r = 0; r < plan->ranks; r++)
            assert_true(w->place[r].memory <= 0 || found->memory[r] <= w->place[r].memory);
        het_schedule_free(compute);
        het_schedule_free(lists);
    }
}

/* Kinds of devices in nodes of eight, some with little memory. */
static world *mixed(int64_t devices, int64_t units, uint64_t seed)
{
    static const double speeds[] = { 1, 0.6, 0.3, 0.1 };
    world *w = make(units, devices);
    int64_t i;
    w->profile.devices = 4;
    for (i = 0; i < units; i++) {
        int d;
        for (d = 0; d < 4; d++) {
            w->time[d][i].forward.token = 1e-6 / speeds[d];
            w->time[d][i].backward.token = 2e-6 / speeds[d];
            w->time[d][i].input.token = w->time[d][i].weight.token = w->time[d][i].recompute.token = 1e-6 / speeds[d];
            w->time[d][i].forward.base = w->time[d][i].backward.base = 1e-5;
        }
        w->kind[i].output = w->kind[i].input = 4096;
        w->kind[i].keep_weight = 65536;
        w->block[i].elements = 7000000;
    }
    w->cluster.groups = 1 + (devices + 7) / 8;
    w->group[0].latency = 1e-4;
    w->group[0].bandwidth = 5e9;
    for (i = 1; i < w->cluster.groups; i++) {
        w->group[i].parent = 0;
        w->group[i].latency = 1e-5;
        w->group[i].bandwidth = 100e9;
    }
    for (i = 0; i < devices; i++) {
        const int64_t type = support_below(&seed, 4);
        snprintf(w->place[i].profile, sizeof w->place[i].profile, "type%d", (int)type);
        w->place[i].group = 1 + i / 8;
        w->place[i].memory = (double)(1 + support_below(&seed, 4)) * 1.5e9;
    }
    w->desc.granules = 4 * devices < 64 ? 4 * devices : 64;
    w->desc.granule_tokens = 512;
    w->desc.small = -1;
    return w;
}

static void same_seed_same_plan(void **state)
{
    int64_t n, i;
    (void)state;
    for (n = 0; n < 6; n++) {
        world *w = mixed(4 + 4 * n, 10 + 4 * n, 77 + (uint64_t)n);
        het_search *a, *b;
        w->desc.seed = 5;
        w->desc.evaluations = 300;
        a = find(w);
        b = find(w);
        assert_int_equal(a->found_count, b->found_count);
        assert_int_equal(a->evaluations, b->evaluations);
        assert_int_equal(a->skipped, b->skipped);
        for (i = 0; i < a->found_count; i++) {
            const het_plan *p = a->found[i].plan, *q = b->found[i].plan;
            assert_int_equal(p->stages, q->stages);
            assert_memory_equal(p->stage, q->stage, (size_t)p->stages * sizeof *p->stage);
            assert_memory_equal(p->share, q->share, (size_t)p->pipelines * sizeof *p->share);
            assert_string_equal(a->found[i].why, b->found[i].why);
        }
        assert_int_equal(a->exhaustive, 0);
        check_found(w, a);
        het_search_free(a);
        het_search_free(b);
        end(w);
    }
}

static double ticks(void *user) { return (*(double *)user)++; }

static void budgets_end_it(void **state)
{
    world *w = mixed(16, 20, 3);
    het_search *short_one, *long_one;
    double now = 0;
    (void)state;
    w->desc.evaluations = 40;
    short_one = find(w);
    assert_int_equal(short_one->stopped, 1);
    assert_true(short_one->evaluations <= 40);
    w->desc.evaluations = 4000;
    w->desc.clock = ticks;
    w->desc.user = &now;
    w->desc.seconds = 1500;
    long_one = find(w);
    assert_int_equal(long_one->stopped, 1);
    assert_true(long_one->evaluations > 40 && long_one->evaluations <= 1500);
    assert_true(long_one->found[0].seconds <= short_one->found[0].seconds);
    check_found(w, long_one);
    het_search_free(short_one);
    het_search_free(long_one);
    end(w);
}

static void refusals(void **state)
{
    static const char *const unknown[] = { "1f1b", "bidirectional" };
    int i;
    (void)state;
    for (i = 0; i < 14; i++) {
        world *w = make(3, 2);
        het_search *search = NULL;
        het_error error;
        const char *words = "";
        switch (i) {
        case 0: w->desc.start_canary = 1; words = "not cleared"; break;
        case 1: w->desc.end_canary = 1; words = "not cleared"; break;
        case 2: w->desc.profile = NULL; words = "profile is NULL"; break;
        case 3: w->desc.cluster = NULL; words = "cluster is NULL"; break;
        case 4: w->desc.granules = 0; words = "0 granules"; break;
        case 5: w->desc.granule_tokens = -3; words = "-3 tokens"; break;
        case 6: w->desc.schedules = unknown; w->desc.schedule_count = 2; words = "'bidirectional'|1f1b"; break;
        case 7: strcpy(w->place[1].profile, "h100"); words = "device 1 (device1)|'h100'"; break;
        case 8: w->place[1].speed = 0; words = "device 1 (device1)|speed is 0"; break;
        case 9: w->place[0].group = 1; words = "device 0|group 1 of 1"; break;
        case 10: w->time[0][1].forward.token = -1; words = "'unit1' on 'type0'"; break;
        case 11: w->desc.most_granules = 2; w->desc.most_micro_batches = 3; words = "8 granules|3 micro-batches of 2"; break;
        case 12: w->group[0].parent = 0; words = "group 0|parent 0"; break;
        default: w->desc.granule_pairs = (double)NAN; words = "granule_pairs"; break;
        }
        EXPECT_ERROR(het_plan_search(&w->desc, &search, &error), HET_ERR_INVALID, error.text, words);
        assert_null(search);
        end(w);
    }
}

static void out_of_memory(void **state)
{
    int64_t k, n;
    (void)state;
    for (k = 0;; k++) {
        world *w = make(4, 2);
        het_search *search = NULL;
        het_error error;
        het_result result;
        w->desc.evaluations = 6;
        w->memory.fail_at = k;
        result = het_plan_search(&w->desc, &search, &error);
        n = w->memory.calls;
        het_search_free(search);
        if (result == HET_OK) { end(w); break; }
        assert_int_equal(result, HET_ERR_OOM);
        assert_null(search);
        end(w);
    }
    assert_true(k > 30 && n == k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_brute_force),       cmocka_unit_test(shares_follow_speeds), cmocka_unit_test(memory_forces_a_pipeline),
        cmocka_unit_test(slow_links_get_the_cut),    cmocka_unit_test(what_does_not_fit_is_named),
        cmocka_unit_test(same_seed_same_plan),       cmocka_unit_test(budgets_end_it), cmocka_unit_test(refusals),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
