/* The planner against a brute force that goes through the whole declared space by code of its own, once completely and once, for larger instances and
   a limited budget, with bounds of its own; and against what must come out where one knows: shares by speed, pipelines forced by memory, cuts on slow
   links. HETRAIN_TEST_ROUNDS: instances against complete brute force (60; 500 is the whole set). */
#include "support.h"

#include "hetrain_search.h"

#include <time.h>

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
    uint8_t cut[MOST_UNITS];          /* profile.cut, where find_cuts has set it */
    het_device_profile device[8];
    het_unit_time time[8][MOST_UNITS], alone[8][MOST_UNITS]; /* beside others at work; with nothing beside, where the two differ */
    het_cluster_device place[MOST_DEVICES];
    het_group group[MOST_GROUPS];
    het_link_cost link[64];           /* of up to 8 devices, in place of the groups' */
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
        w->kind[i].keep[HET_KEEP_WEIGHT][0] = 16;
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
    w->desc.recompute_units = HET_NO; /* brute force knows all or none */
    w->desc.allocator = w->profile.allocator;
    return w;
}

/* Losses of their own in the chain, and what is frozen in front of the first loss or behind another: where no gradient goes. */
static void find_cuts(world *w)
{
    int64_t u, b, i;
    int trained = 0;
    for (u = 0; u < w->profile.units; u++) {
        for (b = 0; b < w->profile.blocks; b++)
            for (i = 0; i < w->block[b].uses; i++) trained |= !w->block[b].frozen && w->use[w->block[b].first_use + i] == u;
        w->cut[u] = HET_CUT_NOWHERE;
        if (u + 1 < w->profile.units && (!trained || w->kind[u].loss)) w->cut[u] = trained ? HET_CUT_BEHIND : HET_CUT_NONE;
        if (w->kind[u].loss) trained = 0;
    }
    w->profile.cut = w->cut;
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

/* The lists of a step, complete, and what they need; NULL: such a plan cannot have this schedule. counts: as the plan's shares divide. */
static het_schedule *lists_of(const world *w, const het_plan *plan, int64_t granules, het_needs *needs)
{
    const het_allocator *allocator = &w->profile.allocator;
    int64_t counts[MOST_DEVICES], start[MOST_UNITS + 1];
    het_schedule *compute = NULL, *lists = NULL;
    het_blocks blocks;
    het_error error;
    het_plan_micro_batches(plan, (w->desc.granules + granules - 1) / granules, counts);
    if (het_schedule_make(plan, counts, allocator, &compute, &error) != HET_OK) return NULL;
    blocks_of(w, &blocks, start);
    EXPECT_OK(het_schedule_complete(plan, &blocks, compute, allocator, &lists, &error));
    het_schedule_free(compute);
    EXPECT_OK(het_schedule_needs(plan, lists, 0, plan->ranks, 0, allocator, needs, &error));
    return lists;
}

static int keeps(const het_plan *plan, int64_t rank) { return plan->keeper != NULL && plan->keeper[rank] != 0; }

/* Sets the plan's shares of the state, 0 even, 1 by speed, 2 by what is left, 3 keepers alone, negative: as they are. 0: there are none, a keeper has
   none, or a device is too small. */
static int fits(const world *w, het_plan *plan, int64_t granules, int state, const het_needs *needs)
{
    het_memory memory[MOST_DEVICES];
    int used[MOST_DEVICES];
    het_shape shape;
    het_error error;
    double sum = 0;
    int64_t r, i;
    shape.tokens = granules * w->desc.granule_tokens;
    shape.sequences = granules;
    shape.granule = w->desc.granule_tokens;
    for (r = 0; r < plan->ranks; r++) {
        const double limits[2] = { w->place[r].max_tokens, w->device[w->place[r].profile[4] - '0'].max_tokens };
        used[r] = 0;
        for (i = 0; i < plan->stages; i++) used[r] |= plan->stage[i].rank == r;
        for (i = 0; i < 2; i++)
            if (used[r] && limits[i] > 0 && (double)shape.tokens > limits[i]) return 0;
        used[r] |= keeps(plan, r);
        if (state >= 0) plan->state_share[r] = 1;
    }
    EXPECT_OK(het_profile_memory(&w->profile, plan, needs, &shape, memory, &error));
    for (r = 0; r < plan->ranks && state > 0; r++) {
        const double divided = w->profile.state_bytes + (plan->shard > HET_SHARD_STATE || keeps(plan, r) ? w->profile.gradient_bytes : 0) +
            (plan->shard == HET_SHARD_WEIGHTS || keeps(plan, r) ? w->profile.weight_bytes : 0); /* of an owned element */
        double share = w->place[r].memory - ((double)memory[r].device + (double)memory[r].communication -
                                             (double)memory[r].optimizer / w->profile.state_bytes * divided);
        const double element = w->device[w->place[r].profile[4] - '0'].step_element;
        if (!used[r]) continue;
        if (state == 2 ? w->place[r].memory <= 0 : state == 1 && element <= 0) return 0;
        if (state == 1) share = w->place[r].speed / element;
        if (state == 3) share = keeps(plan, r);
        if (keeps(plan, r) && share <= 0) return 0;
        plan->state_share[r] = share > 0 ? share : 0;
        sum += plan->state_share[r];
    }
    if (state > 0 && sum <= 0) return 0;
    if (state > 0) EXPECT_OK(het_profile_memory(&w->profile, plan, needs, &shape, memory, &error));
    for (r = 0; r < plan->ranks; r++)
        if (used[r] && w->place[r].memory > 0 && (double)memory[r].device + (double)memory[r].communication > w->place[r].memory) return 0;
    return 1;
}

static double step_seconds(const world *w, const het_plan *plan, int64_t granules, const het_schedule *lists)
{
    const het_allocator *allocator = &w->profile.allocator;
    const int64_t micro_batches = (w->desc.granules + granules - 1) / granules;
    double tokens[64], pairs[64], seconds;
    het_simulation *simulation = NULL;
    het_plan_costs *costs = NULL;
    het_error error;
    int64_t i;
    for (i = 0; i < micro_batches; i++) {
        const int64_t n = i + 1 < micro_batches ? granules : w->desc.granules - i * granules;
        tokens[i] = (double)(n * w->desc.granule_tokens);
        pairs[i] = (double)n * (w->desc.granule_pairs > 0 ? w->desc.granule_pairs
            : 0.5 * (double)w->desc.granule_tokens * (double)(w->desc.granule_tokens + 1));
    }
    EXPECT_OK(het_profile_costs(&w->profile, plan, &w->cluster, HET_DEFAULT, allocator, &costs, &error));
    costs->costs.tokens = tokens;
    costs->costs.pairs = pairs;
    EXPECT_ERROR(het_simulate_costs(plan, lists, costs, HET_NO, allocator, &simulation, &error), HET_OK, error.text, "");
    seconds = simulation->makespan;
    het_simulation_free(simulation);
    het_plan_costs_free(costs);
    return seconds;
}

static judged judge(const world *w, het_plan *plan, int64_t granules, int state)
{
    het_needs needs[MOST_DEVICES];
    het_schedule *lists = lists_of(w, plan, granules, needs);
    judged j = { 0, 0 };
    j.fits = lists != NULL && fits(w, plan, granules, state, needs);
    if (j.fits) j.seconds = step_seconds(w, plan, granules, lists);
    het_schedule_free(lists);
    return j;
}

/* ---- brute force ---- */

enum { BRUTE_GRANULES = 16, BRUTE_UNITS = 8, BRUTE_DEVICES = 4, F = 0, B = 1, I = 2, W = 3, AGAIN = 4, CURVES = 5, ANY = 0, ROUND = 1, V = 2 };

typedef struct brute {
    const world *w;
    int bounded;                                          /* what no bound below lets win is left out, and so is what comes after `most` */
    int64_t judged, most;                                 /* plans simulated */
    double best;                                          /* negative: none */
    het_plan plan;
    het_stage stage[16];
    int64_t first_stage[9], order[8], begin[9], count[8];
    double share[8], state_share[8], slice_share[1];
    uint8_t keeper[8];
    int64_t near[8], keepers;                             /* near: groups */
    int64_t cut[8];                                       /* bits: units after which a stage ends */
    double ring[2][BRUTE_DEVICES];                        /* of the cuts: what a rank's reductions and gathers take at least */
    double sum[BRUTE_DEVICES][CURVES][BRUTE_GRANULES + 1][BRUTE_UNITS + 1]; /* seconds of the units before one */
} brute;

static int place_of(const char *name) { return strcmp(name, "interleaved") == 0 ? ROUND : name[0] == 'v' || strcmp(name, "zb-v") == 0 ? V : ANY; }

static int is_split(const char *name) { return place_of(name) == V || name[0] == 'z' || strcmp(name, "greedy") == 0; }

static double curve_seconds(const het_cost *c, double tokens, double pairs) { return c->base + c->token * tokens + c->pair * pairs; }

static void brute_sums(brute *b)
{
    const world *w = b->w;
    int64_t r, g, u;
    assert_true(w->cluster.ranks <= BRUTE_DEVICES && w->profile.units <= BRUTE_UNITS && w->desc.granules <= BRUTE_GRANULES);
    for (r = 0; r < w->cluster.ranks; r++)
        for (g = 1; g <= w->desc.granules; g++)
            for (u = 0; u < w->profile.units; u++) {
                const het_unit_time *t = &w->device[w->place[r].profile[4] - '0'].alone[u]; /* no slower than beside others */
                const het_cost *curve[CURVES];
                int what;
                curve[F] = &t->forward, curve[B] = &t->backward, curve[I] = &t->input, curve[W] = &t->weight, curve[AGAIN] = &t->recompute;
                for (what = 0; what < CURVES; what++) {
                    const double tokens = (double)(g * w->desc.granule_tokens), n = (double)w->desc.granule_tokens;
                    const double seconds = curve_seconds(curve[what], tokens, 0.5 * (double)g * n * (n + 1)) / w->place[r].speed;
                    const int never = (what == AGAIN && w->kind[u].loss) || (what != F && w->cut[u] == HET_CUT_NONE);
                    b->sum[r][what][g][u + 1] = b->sum[r][what][g][u] + (never ? 0 : seconds);
                }
            }
}

static het_link_cost link_between(const world *w, int64_t a, int64_t b)
{
    const het_group *group = &w->group[w->place[a].group == w->place[b].group ? w->place[a].group : 0];
    const het_link_cost link = { group->latency, group->bandwidth };
    return w->cluster.link != NULL ? w->link[a * w->cluster.ranks + b] : link;
}

static double link_seconds(het_link_cost link, double bytes) { return link.latency + (link.bandwidth > 0 ? bytes / link.bandwidth : 0); }

/* What reductions (0) or gathers (1) of the blocks on a rank take at least: all who hold a block send to each other, block behind block, and
   latencies hide behind the next block's bytes. */
static double ring_seconds(const brute *b, int64_t rank, int gather)
{
    const world *w = b->w;
    double sum = 0;
    int64_t k, g, i, r;
    for (k = 0; k < w->profile.blocks; k++) {
        int64_t held[BRUTE_DEVICES] = { 0 }, member[BRUTE_DEVICES], n = 0;
        double slowest = 0, bytes = (double)w->block[k].elements * (gather ? w->profile.gather_bytes : w->profile.reduce_bytes);
        for (g = 0; g < b->plan.stages; g++)
            for (i = 0; i < w->block[k].uses; i++) {
                const int64_t u = w->use[w->block[k].first_use + i];
                if (b->stage[g].unit_begin <= u && u < b->stage[g].unit_end) held[b->stage[g].rank] = 1;
            }
        for (r = 0; r < w->cluster.ranks && b->keepers == 0; r++) /* with keepers parts are of other sizes */
            if (held[r] && !w->block[k].frozen) member[n++] = r;
        for (i = 0; i < n && n > 1 && held[rank]; i++) { /* whoever owns most, all others send it, or get it, that */
            double one = 0;
            for (r = 0; r < n; r++) {
                const het_link_cost link = gather ? link_between(w, member[i], member[r]) : link_between(w, member[r], member[i]);
                const double part = r != i && link.bandwidth > 0 ? bytes / (double)n / link.bandwidth : 0;
                if (!w->cluster.wires) one += part;
                else if (part > one) one = part;
            }
            if (i == 0 || one < slowest) slowest = one;
        }
        sum += slowest;
    }
    return sum;
}

/* Of each rank: what it computes, before its first action, its longest backward, behind its last action; its stages. */
typedef struct lower {
    double work[BRUTE_DEVICES], fill[BRUTE_DEVICES], pass[BRUTE_DEVICES], tail[BRUTE_DEVICES];
    int64_t stages[BRUTE_DEVICES];
} lower;

/* F and backward of a stage, which comes back, without recomputation too: what a message has to wait for. */
static double stage_work(const brute *b, const het_stage *stage, int64_t granules, int split, double *forward, double *backward)
{
    double seconds[CURVES];
    int what;
    for (what = 0; what < CURVES; what++) {
        const double *sum = b->sum[stage->rank][what][granules];
        seconds[what] = sum[stage->unit_end] - sum[stage->unit_begin];
    }
    *forward = seconds[F];
    *backward = split ? seconds[I] : seconds[B];
    return seconds[F] + (split ? seconds[I] + seconds[W] : seconds[B]) + (stage->recompute ? seconds[AGAIN] : 0);
}

/* A rank begins when its first message is there and has all its work to do; where B is one piece, the stages before have theirs still to do then. */
static void brute_bound_pipeline(const brute *b, int64_t p, int64_t last, int64_t granules, int64_t rest, int split, lower *to)
{
    const world *w = b->w;
    const int64_t least = p == last ? rest : granules;
    double reach = 0, back = 0, forward, backward, full;
    int64_t g;
    for (g = b->first_stage[p]; g < b->first_stage[p + 1]; g++) {
        const het_stage *stage = &b->stage[g];
        const int64_t r = stage->rank;
        to->stages[r]++;
        if (b->count[p] == 0) continue;
        full = stage_work(b, stage, granules, split, &forward, &backward);
        to->work[r] += (double)(b->count[p] - 1) * full;
        to->pass[r] = full - forward;
        full = stage_work(b, stage, least, split, &forward, &backward);
        to->work[r] += full;
        if (full - forward > to->pass[r]) to->pass[r] = full - forward;
        if (reach < to->fill[r]) to->fill[r] = reach;
        if (!split && g - b->first_stage[p] < b->begin[p + 1] - b->begin[p]) to->tail[r] = back;
        reach += forward;
        back += backward;
        if (g + 1 < b->first_stage[p + 1] && b->stage[g + 1].rank != r) {
            const double bytes = w->kind[stage->unit_end - 1].output * (double)(least * w->desc.granule_tokens);
            reach += link_seconds(link_between(w, r, b->stage[g + 1].rank), bytes);
            back += link_seconds(link_between(w, b->stage[g + 1].rank, r), bytes);
        }
        if (w->cut[stage->unit_end - 1] != HET_CUT_NOWHERE) back = 0; /* nothing comes back over it */
    }
}

/* No step of the plan takes less. A rank with one stage reduces what it holds from the beginning of its last backward on. After the verdict come
   updates, at best shared out by speed, and gathers. */
static double brute_bound(const brute *b, int64_t granules, int split)
{
    const world *w = b->w;
    const int64_t micro_batches = (w->desc.granules + granules - 1) / granules, rest = w->desc.granules - (micro_batches - 1) * granules;
    double speed = 0, elements = 0, verdict = 0, after = 0;
    int64_t p, r, last = 0, k;
    int free_steps = 0;
    lower l;
    memset(&l, 0, sizeof l);
    for (r = 0; r < w->cluster.ranks; r++) l.fill[r] = 1e300;
    for (p = 0; p < b->plan.pipelines; p++)
        if (b->count[p] > 0) last = p;
    for (p = 0; p < b->plan.pipelines; p++) brute_bound_pipeline(b, p, last, granules, rest, split, &l);
    for (r = 0; r < w->cluster.ranks; r++) {
        const double element = w->device[w->place[r].profile[4] - '0'].step_element;
        double seconds = l.fill[r] < 1e300 ? l.fill[r] + l.work[r] : 0;
        if (l.stages[r] == 0 && !b->keeper[r]) continue;
        if (l.fill[r] < 1e300 && l.stages[r] == 1) seconds += fmax(b->ring[0][r] - l.pass[r], l.tail[r]);
        if (seconds > verdict) verdict = seconds;
        if (b->ring[1][r] > after) after = b->ring[1][r];
        if (element > 0) speed += w->place[r].speed / element;
        else free_steps = 1;
    }
    for (k = 0; k < w->profile.blocks; k++) elements += w->block[k].frozen ? 0 : (double)w->block[k].elements;
    if (!free_steps && elements / speed > after) after = elements / speed;
    return (verdict + after) * (1 - 1e-9);
}

static int brute_is_over(const brute *b) { return b->bounded && b->judged >= b->most; }

static void brute_stages(brute *b, int64_t groups, int place)
{
    const world *w = b->w;
    int64_t p;
    b->plan.stages = 0;
    b->plan.pipelines = groups;
    for (p = 0; p < groups; p++) {
        const int64_t n = b->begin[p + 1] - b->begin[p];
        int64_t u, s = 0, from = 0;
        b->first_stage[p] = b->plan.stages;
        for (u = 0; u < w->profile.units; u++) {
            het_stage *stage = &b->stage[b->plan.stages];
            if (!(b->cut[p] >> u & 1) && u + 1 < w->profile.units) continue;
            stage->pipeline = p;
            stage->rank = b->order[b->begin[p] + (s < n ? s : place == V ? 2 * n - 1 - s : s - n)];
            stage->unit_begin = from;
            stage->unit_end = from = u + 1;
            stage->recompute = stage->store = stage->updates = 0;
            b->plan.stages++;
            s++;
        }
        b->first_stage[p + 1] = b->plan.stages;
    }
}

/* What may be divided: nothing but the state, sums, weights, weights among near ranks. */
static int shards_of(const world *w) {
    int64_t r;
    for (r = 1; r < w->cluster.ranks && w->place[r].group == w->place[0].group; r++) {}
    return w->desc.shard == HET_SHARD_WEIGHTS && r < w->cluster.ranks ? 4 : w->desc.shard > HET_SHARD_STATE ? (int)w->desc.shard : 1;
}

/* Recomputation, what is stored, and shares of the state. Lists are made but where something is stored: that changes them. */
static void brute_lists(brute *b, int64_t granules, int split, const het_schedule *lists, const het_needs *needs)
{
    const world *w = b->w;
    const int64_t used = b->begin[b->plan.pipelines], again = w->desc.recompute == HET_NO ? 1 : 3, ways = again * (w->desc.store == HET_YES ? 2 : 1);
    int64_t mask, masks = 1, i, g, left;
    int way;
    for (i = 0; i < used; i++) masks *= ways;
    for (mask = 0; mask < masks && !brute_is_over(b); mask++) {
        het_needs own[BRUTE_DEVICES];
        het_schedule *stored = NULL;
        double bound;
        for (i = 0, left = mask; i < used; i++, left /= ways)
            for (g = 0; g < b->plan.stages; g++) {
                if (b->stage[g].rank != b->order[i]) continue;
                b->stage[g].recompute = (int32_t)(left % ways % again);
                b->stage[g].store = (int32_t)(left % ways / again);
            }
        bound = brute_bound(b, granules, split);
        if (b->bounded && b->best >= 0 && bound >= b->best) continue;
        if (w->desc.store == HET_YES) lists = stored = lists_of(w, &b->plan, granules, own), needs = own;
        for (way = 0; way < 4 * shards_of(w); way++) {
            const int state = way % 4;
            double seconds;
            b->plan.shard = way / 4 < 3 ? (het_shard)(HET_SHARD_STATE + way / 4) : HET_SHARD_WEIGHTS;
            b->plan.near = way / 4 < 3 ? NULL : b->near;
            if (state == 3 && b->keepers == 0) continue;
            if (state > 0 && w->desc.uneven_state == HET_NO) continue;
            if (!fits(w, &b->plan, granules, state, needs)) continue;
            seconds = step_seconds(w, &b->plan, granules, lists);
            b->judged++;
            if (seconds < bound && b->plan.shard == HET_SHARD_STATE)
                fail_msg("the bound of brute force is %.17g, the simulator says %.17g", bound, seconds);
            if (b->best < 0 || seconds < b->best) b->best = seconds;
        }
        het_schedule_free(stored);
    }
}

/* Everything that is left to choose once devices, cuts, granules and counts are set. */
static void brute_settings(brute *b, int64_t groups, int64_t granules, int place)
{
    const world *w = b->w;
    int64_t longest = 0, p, o;
    double bound[2];
    for (p = 0; p < groups; p++) {
        if (b->begin[p + 1] - b->begin[p] > longest) longest = b->begin[p + 1] - b->begin[p];
        b->share[p] = (double)b->count[p];
    }
    for (p = 0; p < b->plan.stages; p++) b->stage[p].recompute = b->stage[p].store = 0;
    bound[0] = brute_bound(b, granules, 0);
    bound[1] = brute_bound(b, granules, 1);
    for (o = 0; o < w->desc.schedule_count; o++) {
        const char *name = w->desc.schedules[o];
        const int split = is_split(name);
        int64_t limit;
        if (place_of(name) != place || (b->bounded && b->best >= 0 && bound[split] >= b->best)) continue;
        strcpy(b->plan.schedule, name);
        for (limit = 0; limit <= (strcmp(name, "greedy") == 0 ? longest : 0); limit++) {
            het_needs needs[BRUTE_DEVICES];
            het_schedule *lists;
            b->plan.memory_limit = (double)limit;
            lists = lists_of(w, &b->plan, granules, needs);
            if (lists != NULL) brute_lists(b, granules, split, lists, needs);
            het_schedule_free(lists);
        }
    }
}

/* What the busiest device of a pipeline computes at least for its count. */
static double brute_work(const brute *b, int64_t granules, int64_t p)
{
    const world *w = b->w;
    const int64_t micro_batches = (w->desc.granules + granules - 1) / granules, rest = w->desc.granules - (micro_batches - 1) * granules;
    double work[BRUTE_DEVICES] = { 0 }, most = 0;
    int64_t g, i;
    for (g = b->first_stage[p]; g < b->first_stage[p + 1]; g++) {
        const het_stage *stage = &b->stage[g];
        for (i = 0; i < 2; i++) {
            double seconds[CURVES];
            int what;
            for (what = 0; what < CURVES; what++) {
                const double *sum = b->sum[stage->rank][what][i == 0 ? granules : rest];
                seconds[what] = sum[stage->unit_end] - sum[stage->unit_begin];
            }
            work[stage->rank] += (i == 0 ? (double)(b->count[p] - 1) : 1) *
                (seconds[F] + (seconds[B] < seconds[I] + seconds[W] ? seconds[B] : seconds[I] + seconds[W]));
        }
        if (work[stage->rank] > most) most = work[stage->rank];
    }
    return most * (1 - 1e-9);
}

static void brute_counts(brute *b, int64_t groups, int64_t granules, int64_t p, int64_t left, int place)
{
    if (brute_is_over(b)) return;
    if (p + 1 == groups) {
        b->count[p] = left;
        brute_settings(b, groups, granules, place);
        return;
    }
    for (b->count[p] = 0; b->count[p] <= left; b->count[p]++) {
        const int64_t keep = b->count[p];
        if (b->bounded && b->best >= 0 && keep > 0 && brute_work(b, granules, p) >= b->best) return; /* nor with more of them */
        brute_counts(b, groups, granules, p + 1, left - keep, place);
        b->count[p] = keep;
    }
}

static int bits(int64_t x) { int n = 0; for (; x != 0; x &= x - 1) n++; return n; }

static void brute_cuts(brute *b, int64_t groups, int64_t p, int place)
{
    const world *w = b->w;
    int64_t cut, g;
    if (p == groups) {
        brute_stages(b, groups, place);
        for (g = 0; g < w->cluster.ranks; g++) b->ring[0][g] = ring_seconds(b, g, 0), b->ring[1][g] = ring_seconds(b, g, 1);
        for (g = 1; g <= (w->desc.most_granules > 0 ? w->desc.most_granules : w->desc.granules); g++)
            brute_counts(b, groups, g, 0, (w->desc.granules + g - 1) / g, place);
        return;
    }
    for (cut = 0; cut < (int64_t)1 << (w->profile.units - 1); cut++) {
        if (bits(cut) + 1 != (place == ANY ? 1 : 2) * (b->begin[p + 1] - b->begin[p])) continue;
        b->cut[p] = cut;
        brute_cuts(b, groups, p + 1, place);
    }
}

/* All orders of the devices of `chosen`, cut into groups in all ways whose lowest members ascend. */
static void brute_orders(brute *b, int64_t chosen, int64_t at, int64_t n, int place)
{
    int64_t i, p, q, split;
    if (at < n) {
        for (i = 0; i < b->w->cluster.ranks; i++) {
            if (!(chosen >> i & 1)) continue;
            b->order[at] = i;
            brute_orders(b, chosen & ~((int64_t)1 << i), at + 1, n, place);
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
        if (ascends && !(place != ANY && groups == n)) brute_cuts(b, groups, 0, place);
    }
}

/* The shortest step there is; negative: nothing fits. most 0: all plans are simulated; else at most so many, and only what a bound does not say to be
   no better than `known`, negative: nothing known. *count: plans simulated. */
static double brute_force(const world *w, int64_t most, double known, int64_t *count)
{
    brute *b = (brute *)support_alloc(1, sizeof *b);
    double best;
    int64_t chosen, kept, place, r;
    memset(b, 0, sizeof *b);
    b->w = w;
    b->bounded = most > 0;
    b->most = most;
    b->best = known;
    b->plan.units = w->profile.units;
    b->plan.ranks = w->cluster.ranks;
    b->plan.slices = 1;
    b->plan.stage = b->stage;
    b->plan.first_stage = b->first_stage;
    b->plan.share = b->share;
    b->plan.state_share = b->state_share;
    b->plan.slice_share = b->slice_share;
    b->plan.cut = w->profile.cut;
    b->slice_share[0] = 1;
    brute_sums(b);
    b->plan.keeper = b->keeper;
    for (r = 0; r < w->cluster.ranks; r++) b->near[r] = w->place[r].group;
    for (kept = 0; kept < (int64_t)1 << w->cluster.ranks; kept++) /* those that keep; none where shares are even */
        for (place = ANY; place <= V && (kept == 0 || w->desc.uneven_state != HET_NO); place++)
            for (chosen = 1; chosen < (int64_t)1 << w->cluster.ranks; chosen++) {
                if ((chosen & kept) != 0) continue;
                for (r = 0; r < w->cluster.ranks; r++) b->keeper[r] = (uint8_t)(kept >> r & 1);
                b->keepers = bits(kept);
                brute_orders(b, chosen, 0, bits(chosen), (int)place);
            }
    *count = b->judged;
    best = b->best;
    free(b);
    return best;
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
    w->desc.store = devices < 3 && number % 3 == 1 ? HET_YES : HET_NO;
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
        if (w->desc.store == HET_YES) w->device[d].message_byte = 1e-5 * (double)(1 + number % 7); /* what PUT and TAKE take */
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
        w->kind[i].keep[HET_KEEP_WEIGHT][0] = 4 * (double)(1 + support_below(&seed, 400));
        w->kind[i].keep[HET_KEEP_INPUT][0] = 4 * (double)support_below(&seed, 200);
        w->block[i].elements = 1 + support_below(&seed, 4000);
        if (i + 1 < units) w->kind[i].output = w->kind[i + 1].input = 4 * (double)(1 + support_below(&seed, 100));
        whole += 20 * (double)w->block[i].elements + w->kind[i].keep[HET_KEEP_WEIGHT][0] * 4;
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
    w->cluster.wires = (int32_t)(number / 3 % 2);
    for (i = 0; i < w->cluster.groups; i++) {
        w->group[i].parent = i == 0 ? -1 : 0;
        w->group[i].latency = draw(&seed, 0, 1);
        w->group[i].bandwidth = support_below(&seed, 2) == 0 ? 0 : draw(&seed, 1000, 100000);
    }
    for (d = 0; d < devices; d++) {
        w->place[d].group = w->cluster.groups == 1 ? 0 : 1 + support_below(&seed, 2);
        if (support_below(&seed, 2) == 0) w->place[d].memory = draw(&seed, 0.1, 1.2) * whole + 12000; /* for buffers */
        if (w->desc.store == HET_YES) w->place[d].memory = (double)(2 + number % 5) / 10 * whole + 12000;
    }
    if (w->desc.store == HET_YES) schedules[0] = "gpipe", w->desc.granules = 3 + number % 4;
    if (number % 3 == 2) { /* any matrix, other there than back */
        w->cluster.link = w->link;
        for (i = 0; i < devices * devices; i++) {
            w->link[i].latency = draw(&seed, 0, 1);
            w->link[i].bandwidth = support_below(&seed, 3) == 0 ? 0 : draw(&seed, 200, 100000);
        }
    }
    return w;
}

enum { STORED, KEPT, NEAR, FOUND };

/* The planner finds what is best of all there is, or that there is nothing: then 0. found: of how many best plans it is true. */
static int compare(world *w, int64_t n, int64_t *judged_all, int64_t *evaluated, het_shard *shard, int64_t found[FOUND])
{
    het_search *search = NULL;
    het_error error;
    int64_t judged_here, i;
    const double best = brute_force(w, 0, -1, &judged_here);
    het_result result = het_plan_search(&w->desc, &search, &error);
    *judged_all += judged_here;
    if (best < 0) EXPECT_ERROR(result, HET_ERR_LIMIT, error.text, "het_plan_search");
    else {
        judged j;
        EXPECT_ERROR(result, HET_OK, error.text, "");
        *evaluated += search->evaluations;
        if (!search->exhaustive || search->found[0].seconds > best * (1 + 1e-12) || search->found[0].seconds < best * (1 - 1e-12))
            fail_msg("instance %d: the planner found %.17g, brute force %.17g among %d", (int)n, search->found[0].seconds, best, (int)judged_here);
        if (search->bound > best * (1 + 1e-9)) fail_msg("instance %d: the bound is %.17g, the best %.17g", (int)n, search->bound, best);
        j = judge(w, search->found[0].plan, search->found[0].granules, -1);
        assert_true(j.fits && j.seconds <= search->found[0].seconds && j.seconds >= search->found[0].seconds);
        *shard = search->found[0].plan->shard;
        for (i = 0; i < search->found[0].plan->stages && search->found[0].plan->stage[i].store == 0; i++) {}
        found[STORED] += i < search->found[0].plan->stages;
        for (i = 0; i < w->cluster.ranks && !keeps(search->found[0].plan, i); i++) {}
        found[KEPT] += i < w->cluster.ranks;
        for (i = 0; i < w->cluster.ranks && search->found[0].plan->near[i] == search->found[0].plan->near[0]; i++) {}
        found[NEAR] += i < w->cluster.ranks;
    }
    if (best < 0 && strstr(error.text, "no schedule asked for") == NULL && strstr(error.text, " more than the ") == NULL &&
        strstr(error.text, "no device takes") == NULL)
        fail_msg("instance %d: %s", (int)n, error.text);
    het_search_free(search);
    return best >= 0;
}

static void same_as_brute_force(void **state)
{
    const char *rounds = getenv("HETRAIN_TEST_ROUNDS");
    const int64_t instances = rounds != NULL && atoi(rounds) > 60 ? 500 : 60;
    int64_t n, nothing = 0, judged_all = 0, evaluated = 0, found[FOUND] = { 0 };
    (void)state;
    for (n = 0; n < instances; n++) {
        const char *schedules[4];
        world *w = instance(n, schedules);
        het_shard shard;
        nothing += !compare(w, n, &judged_all, &evaluated, &shard, found);
        end(w);
    }
    assert_true(found[STORED] > 0);
    print_message("%d instances, %d of them stored, %d with keepers, %d without a plan that fits; %d plans judged by brute force, %d simulated by "
                  "the planner\n", (int)instances, (int)found[STORED], (int)found[KEPT], (int)nothing, (int)judged_all, (int)evaluated);
}

/* Local losses, frozen units in front, both, and frozen units behind a local loss: what is done behind a cut waits for nobody there. */
static void cuts_as_brute_force(void **state)
{
    const int64_t rounds = support_environment("HETRAIN_TEST_ROUNDS", 60), instances = rounds > 60 ? 500 : 30;
    int64_t n, u, judged_all = 0, evaluated = 0, found[FOUND] = { 0 }, compared = 0, crossed = 0;
    (void)state;
    for (n = 0; n < instances; n++) {
        const char *schedules[4];
        world *w = instance(n, schedules);
        const int64_t units = w->profile.units, at = 1 + n % (units - 2), frozen = n % 4 == 0 ? 0 : 1 + n / 4 % at;
        het_shard shard;
        if (n % 4 != 1) w->kind[at].loss = 1, w->kind[at].input = w->kind[at].output = w->kind[at - 1].output;
        if (n % 4 != 1 && at + 1 < units) w->kind[at + 1].input = w->kind[at].output;
        for (u = 0; u < frozen; u++) w->block[n % 4 == 3 ? (at + 1 + u < w->profile.blocks - 1 ? at + 1 + u : 0) : u].frozen = 1;
        for (u = 0; n % 3 == 0 && u < w->cluster.groups; u++) /* one micro-batch, which devices behind each other pass fast */
            w->desc.granules = 1, w->group[u].latency = w->group[u].bandwidth = 0;
        find_cuts(w);
        for (u = 0; u + 1 < units; u++) crossed += w->cut[u] == HET_CUT_BEHIND;
        compared += compare(w, n, &judged_all, &evaluated, &shard, found);
        end(w);
    }
    assert_true(compared > instances / 2 && crossed > instances / 4);
    print_message("%d instances with cuts, %d fit; %d plans judged by brute force, %d simulated by the planner\n", (int)instances, (int)compared,
                  (int)judged_all, (int)evaluated);
}

/* Devices that take small micro-batches, by what the cluster says or their profile: they have stages where micro-batches are small. Climbs alone
   find nothing that is against it. */
static void limits_as_brute_force(void **state)
{
    const int64_t rounds = support_environment("HETRAIN_TEST_ROUNDS", 60), instances = rounds > 60 ? 500 : 40;
    int64_t n, d, i, judged_all = 0, evaluated = 0, found[FOUND] = { 0 }, compared = 0, limited = 0, smaller = 0;
    (void)state;
    for (n = 0; n < instances; n++) {
        const char *schedules[4];
        world *w = instance(n, schedules);
        uint64_t seed = 5000 + (uint64_t)n;
        het_search *search = NULL;
        het_error error;
        het_shard shard;
        if (w->cluster.ranks < 4) w->desc.granules = 2 + support_below(&seed, 4);
        for (d = 0; d < w->cluster.ranks; d++) {
            double *to = support_below(&seed, 2) == 0 ? &w->place[d].max_tokens : &w->device[d].max_tokens;
            if (support_below(&seed, 3) < 2) *to = (double)support_below(&seed, w->desc.granules * w->desc.granule_tokens) + 0.5;
            if (n % 8 > 0) w->place[d].memory = 0;
        }
        compared += compare(w, n, &judged_all, &evaluated, &shard, found);
        w->desc.small = -1;
        w->desc.evaluations = 100;
        if (het_plan_search(&w->desc, &search, &error) == HET_OK)
            for (i = 0; i < search->found_count; i++) {
                const het_found *f = &search->found[i];
                assert_true(judge(w, f->plan, f->granules, -1).fits);
                for (d = 0; d < w->cluster.ranks; d++) {
                    const double limit = w->place[d].max_tokens + w->device[d].max_tokens; /* of which one is 0 */
                    limited += limit > 0 && limit < (double)(w->desc.granules * w->desc.granule_tokens);
                    smaller += limit > 0 && limit >= (double)(f->granules * w->desc.granule_tokens) && f->granules < w->desc.granules;
                }
            }
        het_search_free(search);
        end(w);
    }
    print_message("%d instances, %d have a plan; %d plans judged by brute force, %d simulated by the planner; of %d devices with a limit %d would "
                  "have taken the micro-batch\n", (int)instances, (int)compared, (int)judged_all, (int)evaluated, (int)limited, (int)smaller);
    assert_true(compared > instances / 2 && smaller > 10 && limited > smaller);
}

/* The largest micro-batch, and the most micro-batches of one granule, that two devices with this cap take by gpipe. */
static void largest_under(world *w, het_choice recompute, het_choice store, int64_t most[2])
{
    static const char *const gpipe[] = { "gpipe" };
    int64_t n;
    int i;
    w->desc.recompute = recompute;
    w->desc.store = store;
    w->desc.schedules = gpipe;
    w->desc.schedule_count = 1;
    for (i = 0; i < 2; i++)
        for (n = 1, most[i] = 0; n <= 64; n++) {
            het_search *search = NULL;
            het_error error;
            w->desc.granules = i == 0 ? 4 * n : n;
            w->desc.most_granules = i == 0 ? n : 1;
            w->desc.most_micro_batches = i == 0 ? 4 : 0; /* a step of four, and as many as there are */
            if (het_plan_search(&w->desc, &search, &error) != HET_OK) break;
            most[i] = n;
            het_search_free(search);
        }
}

static void a_cap_takes_twice_as_much(void **state)
{
    int64_t keeps[2], again[2], stores[2], u, d;
    world *w = make(6, 2);
    (void)state;
    for (u = 0; u < 6; u++) {
        w->kind[u].keep[HET_KEEP_INPUT][0] = 3000;
        w->kind[u].keep[HET_KEEP_WEIGHT][0] = 5000;
        if (u < 5) w->kind[u].output = w->kind[u + 1].input = 1000;
        for (d = 0; d < w->profile.devices; d++) w->time[d][u].forward.token = w->time[d][u].recompute.token = w->time[d][u].backward.token = 1;
    }
    w->desc.granule_tokens = 4;
    for (d = 0; d < 2; d++) w->place[d].memory = 12000 + 1500000;
    largest_under(w, HET_NO, HET_NO, keeps);
    largest_under(w, HET_YES, HET_NO, again);
    largest_under(w, HET_YES, HET_YES, stores);
    print_message("tokens of a micro-batch / micro-batches under one cap: keep %d / %d, recompute %d / %d, store as well %d / %d\n",
                  (int)keeps[0] * 4,
        (int)keeps[1], (int)again[0] * 4, (int)again[1], (int)stores[0] * 4, (int)stores[1]);
    assert_true(keeps[0] > 0 && stores[0] >= 2 * keeps[0] && stores[1] >= 2 * keeps[1]);
    assert_true(stores[0] > again[0] && stores[1] >= again[1]);
    assert_true(again[0] >= 11 && again[1] >= 60); /* as a whole: unit by unit 9 and 52 */
    end(w);
}

/* Devices that hold from a tenth to all of the chain: sums and weights are divided where that makes it fit, or the step shorter, and a plan is found
   wherever brute force finds one, of all there is to divide, cuts and recomputation. */
static void what_is_divided_makes_it_fit(void **state)
{
    static const int64_t telling[] = { 256, 743 }; /* which seeded bugs need to show */
    const int64_t rounds = support_environment("HETRAIN_TEST_ROUNDS", 60) > 60 ? 400 : 60;
    int64_t k, i, count[HET_SHARD_WEIGHTS + 1] = { 0 }, judged_all = 0, evaluated = 0, found[FOUND] = { 0 };
    (void)state;
    for (k = 0; k < rounds + 2; k++) {
        const int64_t n = k < rounds ? k : telling[k - rounds];
        const char *schedules[4];
        uint64_t seed = (uint64_t)n;
        world *w = instance(n, schedules);
        het_shard shard = HET_SHARD_DEFAULT;
        double whole = 0;
        if (w->cluster.ranks > 1 && w->cluster.ranks < 4 && w->profile.units >= 5 && w->profile.units <= 6) {
            const double part = n % 5 == 0 ? 0.2 : draw(&seed, w->cluster.ranks == 2 ? 0.66 : 0.5, w->cluster.ranks == 2 ? 0.85 : 0.66);
            for (i = 0; i < w->profile.blocks; i++) whole += 20 * (double)(w->block[i].elements = 400000 + support_below(&seed, 40000));
            for (i = 0; i < w->cluster.ranks; i++) w->place[i].memory = draw(&seed, 0.95, 1.05) * part * whole + 2e6;
            for (i = 0; i < w->cluster.groups; i++) w->group[i].latency *= 0.01, w->group[i].bandwidth *= 1e4;
            for (i = 0; i < 64; i++) w->link[i].latency *= 0.01, w->link[i].bandwidth *= 1e4;
            w->desc.shard = n % 3 == 0 ? HET_SHARD_GRADIENTS : HET_SHARD_WEIGHTS;
            w->desc.recompute = HET_YES;
            w->desc.granules = w->cluster.ranks; /* a pipeline would hardly be filled */
            (void)compare(w, n, &judged_all, &evaluated, &shard, found);
            count[shard]++;
        }
        end(w);
    }
    print_message("state %d, gradients %d, weights %d, keepers %d, nothing fits %d; %d plans judged by brute force, %d simulated "
                  "by the planner\n", (int)count[1], (int)count[2], (int)count[3], (int)found[KEPT], (int)count[0],
        (int)judged_all, (int)evaluated);
    for (i = 0; i <= HET_SHARD_WEIGHTS; i++) assert_true(count[i] > 0);
    assert_true(found[KEPT] > 0);
}

/* ---- what is found of what there is ---- */

static double spread(uint64_t *state, double low, double high) { return low * exp(draw(state, 0, log(high / low))); }

/* Up to 4 devices of speeds from 1 to 1/8, on one table of times or on one each, up to 8 units, a step of up to 16 granules, links inside and between
   two groups that take up to as long as a unit, devices that hold a sixth of the chain or all of it. */
static world *hard_instance(uint64_t number, const char *schedules[6])
{
    static const char *const names[] = { "gpipe", "1f1b", "zb-h1", "greedy", "interleaved", "zb-v" };
    uint64_t seed = number * 7919 + 11;
    const int64_t pick = support_below(&seed, 20), devices = pick < 1 ? 1 : pick < 4 ? 2 : pick < 8 ? 3 : 4;
    const int64_t units = 3 + support_below(&seed, 6), tables = support_below(&seed, 3) == 0 ? devices : 1;
    const int with_base = support_below(&seed, 2) == 0, capped = support_below(&seed, 3) > 0;
    const double apart = support_below(&seed, 3) == 0 ? draw(&seed, 0.5, 1) : 1;
    world *w = make(units, devices);
    double whole = 0, unit = 0;
    int64_t i, d;
    w->desc.granules = support_below(&seed, 3) > 0 ? 1 + support_below(&seed, 8) : 9 + support_below(&seed, 8);
    w->desc.granule_tokens = 1 + support_below(&seed, 3);
    w->desc.seed = number;
    w->desc.schedules = schedules;
    for (i = 0; i < 6; i++) schedules[w->desc.schedule_count] = names[i], w->desc.schedule_count += number % 2 == 0 || support_below(&seed, 2) == 0;
    if (w->desc.schedule_count == 0) w->desc.schedule_count = 1;
    w->profile.devices = tables;
    for (i = 0; i < units; i++) {
        const double forward = spread(&seed, 0.3, 3), base = with_base ? draw(&seed, 0, 1) : 0;
        unit += forward * (double)w->desc.granule_tokens / (double)units;
        for (d = 0; d < tables; d++) {
            het_unit_time *t = &w->time[d][i];
            const double faster = d == 0 ? 1 : spread(&seed, 0.5, 2);
            t->forward.token = t->input.token = t->recompute.token = forward / faster;
            t->weight.token = t->forward.token * draw(&seed, 0.8, 1.2);
            t->backward.token = t->input.token + t->weight.token * draw(&seed, 0.8, 1);
            t->forward.base = t->backward.base = t->input.base = base / faster;
            w->alone[d][i] = *t;
            w->alone[d][i].forward.token *= apart, w->alone[d][i].backward.token *= apart, w->alone[d][i].input.token *= apart;
            w->alone[d][i].weight.token *= apart, w->alone[d][i].recompute.token *= apart;
            if (apart < 1) w->device[d].alone = w->alone[d];
        }
        w->kind[i].keep[HET_KEEP_WEIGHT][0] = spread(&seed, 10, 3000);
        w->kind[i].keep[HET_KEEP_INPUT][0] = draw(&seed, 0, 300);
        w->block[i].elements = (int64_t)spread(&seed, 100, 10000);
        if (i + 1 < units) w->kind[i].output = w->kind[i + 1].input = 4 * (double)(1 + support_below(&seed, 30));
        whole += 20 * (double)w->block[i].elements + w->kind[i].keep[HET_KEEP_WEIGHT][0] * 4 * (double)w->desc.granule_tokens;
    }
    for (d = 0; d < tables; d++) {
        w->device[d].step_element = support_below(&seed, 4) == 0 ? 0 : spread(&seed, 1e-6, 1e-3);
        w->device[d].action = draw(&seed, 0, 0.01);
    }
    w->cluster.groups = 1 + 2 * support_below(&seed, 2);
    for (i = 0; i < w->cluster.groups; i++) {
        w->group[i].parent = i == 0 ? -1 : 0;
        if (support_below(&seed, 4) > 0) w->group[i].latency = spread(&seed, 0.01, i == 0 ? 1 : 0.1) * unit;
        if (support_below(&seed, 2) > 0) w->group[i].bandwidth = spread(&seed, 30, 30000) / unit;
    }
    for (d = 0; d < devices; d++) {
        snprintf(w->place[d].profile, sizeof w->place[d].profile, "type%d", (int)(tables > 1 ? d : 0));
        w->place[d].speed = d > 0 && support_below(&seed, 3) == 0 ? w->place[d - 1].speed : spread(&seed, 0.125, 1);
        w->place[d].group = w->cluster.groups == 1 ? 0 : 1 + support_below(&seed, 2);
        if (capped && support_below(&seed, 3) > 0) w->place[d].memory = spread(&seed, 1.0 / 6, 1.2) * whole + 12000; /* for buffers */
    }
    return w;
}

/* Unlike the clock of a wall it costs a call of the kernel: user, where there is one, counts 64 calls for each. */
typedef struct processor_clock { int calls; double last; } processor_clock;
static double processor_seconds(void *user)
{
    processor_clock *every = (processor_clock *)user;
    if (every != NULL && every->calls++ % 64 != 0) return every->last;
    if (every == NULL) return (double)clock() / CLOCKS_PER_SEC;
    return every->last = (double)clock() / CLOCKS_PER_SEC;
}

/* The search against brute force that begins with what was found: nothing is better, but for 2 %. HETRAIN_TEST_PLANS: how many instances, from
   HETRAIN_TEST_FIRST_PLAN on; HETRAIN_TEST_PLAN_SECONDS: of processor time a search, in place of 40,000 evaluations; then brute force simulates ten
   times as many plans before it gives up. HETRAIN_TEST_VERBOSE: a line each. */
static void near_exhaustive_search(void **state)
{
    const int count = support_environment("HETRAIN_TEST_PLANS", 4), from = support_environment("HETRAIN_TEST_FIRST_PLAN", 0);
    const int seconds = support_environment("HETRAIN_TEST_PLAN_SECONDS", 0), most = seconds > 0 ? 200000 : 20000;
    int n, nothing = 0, far = 0, unproven = 0, complete = 0;
    double worst = 0, mean = 0, longest = 0;
    int64_t simulated = 0, evaluated = 0;
    (void)state;
    for (n = from; n < from + count; n++) {
        const char *schedules[6];
        world *w = hard_instance((uint64_t)n, schedules);
        het_search *search = NULL;
        het_error error;
        int64_t judged_here;
        processor_clock every = { 0, 0 };
        double best, loss, at = processor_seconds(NULL);
        het_result result;
        w->desc.evaluations = seconds > 0 ? 1000000000 : 40000;
        w->desc.seconds = seconds;
        w->desc.clock = seconds > 0 ? processor_seconds : NULL;
        w->desc.user = &every;
        result = het_plan_search(&w->desc, &search, &error);
        at = processor_seconds(NULL) - at;
        if (at > longest) longest = at;
        best = brute_force(w, most, result == HET_OK ? search->found[0].seconds : -1, &judged_here);
        simulated += judged_here;
        unproven += judged_here >= most;
        if (result != HET_OK) {
            EXPECT_ERROR(result, HET_ERR_LIMIT, error.text, "het_plan_search");
            nothing++;
            if (best >= 0) fail_msg("instance %d: %s; but there is a plan of %.9g", n, error.text, best);
            end(w);
            continue;
        }
        loss = search->found[0].seconds / best - 1;
        evaluated += search->evaluations;
        complete += search->exhaustive;
        mean += loss;
        far += loss > 0.02;
        if (loss > worst) worst = loss;
        if (loss > 0.02 || getenv("HETRAIN_TEST_VERBOSE") != NULL)
            print_message("instance %d: %d devices, %d units, %d granules: %.9g, %.2f %% above the best (%d simulated, %d by brute force, %s, "
                          "%.2f s)\n", n, (int)w->cluster.ranks, (int)w->profile.units, (int)w->desc.granules, search->found[0].seconds, 100 * loss,
                (int)search->evaluations, (int)judged_here, search->exhaustive ? "complete" : "stopped", at);
        if (search->exhaustive && loss > 1e-9) fail_msg("instance %d: all was searched, found %.17g, not %.17g", n, search->found[0].seconds, best);
        if (search->bound > best * (1 + 1e-9)) fail_msg("instance %d: the bound is %.17g, the best %.17g", n, search->bound, best);
        het_search_free(search);
        end(w);
    }
    print_message("%d instances, %d without a plan that fits: worst %.2f %%, mean %.3f %%, %d above 2 %%; %d searched completely, the longest "
                  "%.1f s; %lld plans simulated by the planner, %lld by brute force, which gave up %d times\n", count, nothing, 100 * worst,
        count > nothing ? 100 * mean / (count - nothing) : 0, far, complete, longest, (long long)evaluated, (long long)simulated, unproven);
    assert_int_equal(far, 0);
}

/* Four devices whose memory is so short that moves from one plan that fits to a better one lead through plans that do not. Brute force found the
   seconds. */
static void crosses_what_does_not_fit(void **state)
{
    static const struct { uint64_t number; double best; } cases[] = {
        { 20313, 792.176208 }, { 20293, 634.420755 }, { 20326, 610.356 }, { 20050, 488.379726 }, { 20112, 398.165666 } };
    const int count = support_environment("HETRAIN_TEST_ROUNDS", 60) > 60 ? (int)(sizeof cases / sizeof *cases) : 1;
    int i;
    (void)state;
    for (i = 0; i < count; i++) {
        const char *schedules[6];
        world *w = hard_instance(cases[i].number, schedules);
        het_search *search;
        w->desc.evaluations = 250000;
        search = find(w);
        if (search->found[0].seconds > 1.02 * cases[i].best)
            fail_msg("instance %d: found %.9g, the best is %.9g", (int)cases[i].number, search->found[0].seconds, cases[i].best);
        het_search_free(search);
        end(w);
    }
}

/* ---- what must come out ---- */

static void shares_follow_speeds(void **state)
{
    world *w = make(5, 2);
    het_search *search;
    (void)state;
    w->place[1].speed = 1.0 / 3;
    w->desc.schedule_count = 3; /* of no names: the usual ones */
    search = find(w);
    assert_int_equal(search->found[0].plan->pipelines, 2);
    assert_true(search->found[0].plan->share[0] / search->found[0].plan->share[1] > 2.99 && search->found[0].plan->share[0] /
        search->found[0].plan->share[1] < 3.01);
    assert_int_equal(search->exhaustive, 1);
    assert_true(search->found[0].seconds > 89.9 && search->found[0].seconds < 90.1); /* 6 granules of 15 s; 2 of 45 s */
    assert_true(search->bound > 89.9 && search->bound < 90.1 && search->distance < 1e-3);
    het_search_free(search);
    w->desc.trials = 2; /* what else there is was guessed */
    search = find(w);
    assert_int_equal(search->exhaustive, 0);
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
    w->group[0].latency = 0.05, w->group[0].bandwidth = 5e7;
    w->group[1].parent = w->group[2].parent = 0;
    w->group[1].bandwidth = w->group[2].bandwidth = 10e9;
    for (i = 0; i < 4; i++) {
        w->place[i].group = 1 + i / 2;
        w->place[i].memory = 90e6;
    }
    w->desc.granules = 96; /* enough that all four devices are worth the links */
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

/* Nodes of devices with slow links between them; what goes from stage to stage is more than the weights, so that the chain is not cut. */
static world *nodes(int64_t units, int64_t devices, int64_t of, double bandwidth)
{
    static const char *const gpipe[] = { "gpipe" };
    world *w = make(units, devices);
    int64_t i;
    for (i = 0; i < units; i++) {
        w->block[i].elements = 1000000;
        if (i + 1 < units) w->kind[i].output = w->kind[i + 1].input = 1e7;
    }
    w->cluster.groups = 1 + (devices + of - 1) / of;
    w->group[0].latency = 1e-4;
    w->group[0].bandwidth = bandwidth;
    for (i = 1; i < w->cluster.groups; i++) w->group[i].parent = 0, w->group[i].bandwidth = 1e11, w->group[i].uplink = bandwidth;
    for (i = 0; i < devices; i++) w->place[i].group = 1 + i / of;
    w->desc.granules = devices;
    w->desc.shard = HET_SHARD_WEIGHTS;
    w->desc.recompute = w->desc.uneven_state = HET_NO;
    w->desc.schedules = gpipe;
    w->desc.schedule_count = 1;
    return w;
}

/* Weights cross the slow link once a step where near ranks hold all of them: four devices, as brute force has it; eight that hold neither all weights
   nor can wait for all of them in every call. */
static void near_sets_lie_inside_nodes(void **state)
{
    int64_t judged_all = 0, evaluated = 0, found[FOUND] = { 0 }, i;
    het_shard shard;
    world *w = nodes(4, 4, 2, 2.5e6);
    het_search *search;
    (void)state;
    (void)compare(w, 0, &judged_all, &evaluated, &shard, found);
    assert_true(found[NEAR] == 1 && shard == HET_SHARD_WEIGHTS);
    end(w);
    w = nodes(12, 8, 4, 2.5e6);
    search = find(w);
    assert_int_equal(search->found[0].plan->shard, HET_SHARD_WEIGHTS);
    for (i = 0; i < 8; i++) assert_int_equal(search->found[0].plan->near[i] == search->found[0].plan->near[0], i < 4);
    het_search_free(search);
    end(w);
}

/* A slow device that has no room for the chain, beside one that has none for all of the optimizer's state, or whose own update takes long. */
static void a_keeper_where_a_stage_is_worth_less(void **state)
{
    int64_t judged_all = 0, evaluated = 0, found[FOUND] = { 0 }, i, u;
    het_shard shard;
    (void)state;
    for (i = 0; i < 2; i++) {
        world *w = nodes(4, 2, 2, 0);
        for (u = 0; u < 3; u++) w->kind[u].output = w->kind[u + 1].input = 4;
        w->desc.uneven_state = HET_YES;
        w->profile.devices = 2;
        memcpy(w->time[1], w->time[0], sizeof w->time[0]);
        strcpy(w->place[1].profile, "type1");
        w->place[1].speed = 0.01;
        w->place[1].memory = i == 0 ? 45e6 : 60e6;
        if (i == 0) w->place[0].memory = 76e6;
        else w->device[0].step_element = 1e-4;
        (void)compare(w, i, &judged_all, &evaluated, &shard, found);
        assert_int_equal(found[KEPT], i + 1);
        end(w);
    }
}

/* What is frozen has neither sums nor state, and in int8 68 bytes for 64 elements: so units are cut from the beginning, and errors say so. Two
   devices of 44 MB, the faster of which would have more than fits of the chain's 64. */
static void frozen_weights_count_as_they_lie(void **state)
{
    static const char *const only[] = { "1f1b" };
    world *w = make(8, 2);
    het_search *search = NULL;
    het_error error;
    int64_t i;
    (void)state;
    for (i = 0; i < 8; i++) {
        w->block[i].elements = 10000000;
        w->block[i].weights = 10625000;
        w->block[i].frozen = i > 0 && i < 7;
    }
    w->block[0].elements = w->block[7].elements = 1000;
    w->block[0].weights = w->block[7].weights = 0;
    w->place[1].speed = 0.3;
    w->place[0].memory = w->place[1].memory = 44e6;
    w->desc.recompute = w->desc.uneven_state = HET_NO;
    w->desc.schedules = only;
    w->desc.schedule_count = 1;
    w->desc.small = -1;
    w->desc.evaluations = 4;
    search = find(w);
    assert_true(search->found[0].plan->stages == 2 && search->found[0].plan->pipelines == 1);
    het_search_free(search);
    search = NULL;
    w->block[3].elements = 60000000;
    w->block[3].weights = 63750000;
    EXPECT_ERROR(het_plan_search(&w->desc, &search, &error), HET_ERR_LIMIT, error.text,
        "unit 3 (unit3) needs at least 63.7|19.75 MB more than|the 44 MB");
    assert_null(search);
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
        "unit 2 (unit2) needs at least 120 MB|, 70 MB more than|the 50 MB of device 1 (device1)");
    assert_null(search);
    w->block[2].elements = 1000;
    for (i = 0; i < 4; i++) w->block[i].elements = 1500000; /* each fits, but not all: 4 of 30 MB, and the state of one copy does not go away */
    w->place[0].memory = 40e6;
    EXPECT_ERROR(het_plan_search(&w->desc, &search, &error), HET_ERR_LIMIT, error.text, "nothing fits: at best unit| more than the |device");
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
        het_plan_micro_batches(plan, found->micro_batches, counts);
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
        w->kind[i].keep[HET_KEEP_WEIGHT][0] = 65536;
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
    for (n = 0; n < 6; n += 2) {
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
static double allocated(void *user) { return (double)((const support_memory *)user)->calls; }

static void budgets_end_it(void **state)
{
    world *w = mixed(16, 20, 3);
    het_search *short_one, *long_one;
    double now = 0;
    (void)state;
    w->desc.evaluations = 40;
    short_one = find(w);
    assert_int_equal(short_one->stopped, 1);
    assert_true(short_one->evaluations <= 2 * 40); /* without keepers, and with them */
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
    w->desc.evaluations = 1000000000; /* which time ends, before keepers are looked for as well */
    now = 0;
    short_one = find(w);
    w->desc.evaluations = INT64_MAX;
    now = 0;
    long_one = find(w);
    assert_int_equal(long_one->evaluations, short_one->evaluations);
    assert_true(long_one->found[0].seconds == short_one->found[0].seconds);
    het_search_free(short_one);
    het_search_free(long_one);
    end(w);
}

/* Where nothing that was found recomputes, nothing is simulated to recompute less. */
static void nothing_is_simulated_again(void **state)
{
    int64_t evaluations[2];
    int i;
    (void)state;
    for (i = 0; i < 2; i++) {
        world *w = make(8, 4);
        het_search *search;
        w->desc.evaluations = 200;
        w->desc.recompute_units = i == 0 ? HET_NO : HET_YES;
        search = find(w);
        assert_true(search->found_count > 1);
        evaluations[i] = search->evaluations;
        het_search_free(search);
        end(w);
    }
    assert_int_equal(evaluations[1], evaluations[0]);
}

/* A thousand nodes of two unlike devices: a plan comes soon, since what a pipeline takes in one node it takes in all; where time is
   over before it is simulated as well; and where there was no time at all the error does not speak of schedules. */
static void many_nodes_are_one_kind(void **state)
{
    enum { NODES = 1000, MOST = 3000 }; /* allocations, some for every simulation */
    static het_cluster_device device[2 * NODES];
    static het_group group[NODES + 1];
    world *w = make(20, 2);
    het_error error = { HET_OK, "" };
    het_search *search = NULL;
    int i;
    (void)state;
    for (i = 0; i < 2 * NODES; i++) {
        device[i] = w->place[i % 2];
        device[i].speed = i % 2 ? 0.5 : 1;
        device[i].memory = i % 2 ? 1e6 : 0;
        device[i].group = 1 + i / 2;
    }
    group[0].parent = -1;
    group[0].latency = 0.1;
    for (i = 1; i <= NODES; i++) group[i].bandwidth = 1e9;
    w->cluster.device = device;
    w->cluster.group = group;
    w->cluster.ranks = 2 * NODES;
    w->cluster.groups = NODES + 1;
    w->desc.granules = 64;
    w->desc.clock = allocated, w->desc.user = &w->memory;
    w->desc.seconds = MOST;
    EXPECT_ERROR(het_plan_search(&w->desc, &search, &error), HET_OK, error.text, "");
    assert_true(search->evaluations > 1);
    het_search_free(search);
    w->desc.seconds = 8; /* over before the first plan is simulated */
    EXPECT_ERROR(het_plan_search(&w->desc, &search, &error), HET_OK, error.text, "");
    assert_int_equal(search->evaluations, 1);
    het_search_free(search);
    w->desc.seconds = 1e-9;
    EXPECT_ERROR(het_plan_search(&w->desc, &search, &error), HET_ERR_LIMIT, error.text, "before a plan was found");
    end(w);
}

/* A micro-batch alone, four equal devices, 8 pieces of 512 tokens: unsliced no plan is faster than one device; in K slices four stages take 1 + 3 / K
   of its quarter. Slices that there may not be, a model that looks at whole sequences, memory that only slices keep. */
static void long_micro_batches_are_cut(void **state)
{
    static const char *const schedule = "1f1b";
    const double whole = 4 * 3 * 4096;
    int most, i;
    (void)state;
    for (most = 0; most <= 16; most = most ? 2 * most : 1) {
        const int slices = most < 2 ? 1 : most < 8 ? most : 8;
        world *w = make(4, 4);
        het_search *search;
        w->desc.granules = 1;
        w->desc.granule_tokens = 4096;
        w->desc.schedules = &schedule;
        w->desc.schedule_count = 1;
        w->desc.slices = most;
        search = find(w);
        assert_true(fabs(search->found[0].seconds - (slices > 1 ? whole / 4 * (1 + 3.0 / slices) : whole)) < 1e-9 * whole);
        assert_int_equal(search->found[0].plan->slices, slices);
        assert_true(search->bound <= search->found[0].seconds);
        for (i = 0; i < search->found_count; i++) {
            het_simulation *simulation;
            het_error error;
            EXPECT_ERROR(het_plan_predict(&w->desc, search->found[i].plan, 1, HET_NO, &simulation, &error), HET_OK, error.text, "");
            assert_true(fabs(simulation->makespan - search->found[i].seconds) < 1e-9 * whole);
            het_simulation_free(simulation);
        }
        het_search_free(search);
        for (i = 0; i < 4; i++) w->kind[i].whole = 1;
        search = find(w);
        assert_int_equal(search->found[0].plan->slices, 1);
        het_search_free(search);
        for (i = 0; i < 4; i++) w->kind[i].whole = 0;
        if (slices == 8) { /* four micro-batches: those in one piece fill the pipeline less */
            w->desc.granules = 4;
            for (i = 0; i < 4; i++) w->place[i].memory = 100e3 + 16 * 4096 * 2; /* a unit's weights, less than two micro-batches */
            search = find(w);
            assert_true(search->found[0].plan->slices > 1);
            het_search_free(search);
        }
        end(w);
    }
}

/* "timed" beside other names: never worse than without, now and then better; what it keeps fits; het_plan_predict makes the same lists again. */
static void lists_for_the_times_are_tried(void **state)
{
    static const char *const names[] = { "1f1b", "zb-h1", "timed" };
    int instance, better = 0, limited = 0;
    (void)state;
    for (instance = 0; instance < 12; instance++) {
        world *w = make(8, 4);
        het_search *plain, *timed;
        int64_t i;
        w->group[0].latency = 0.3 * (instance % 3);
        w->desc.granules = 4 + instance % 4;
        w->desc.evaluations = 2000;
        w->desc.schedules = names;
        w->desc.schedule_count = 2;
        for (i = 0; i < 8; i++) w->time[0][i].weight.token = 0.5 + 0.25 * (double)((i + instance) % 4), w->block[i].elements = 1000000;
        for (i = 0; i < 4; i++) w->place[i].speed = 1 - 0.15 * (double)i;
        for (i = 0; i < 4; i++) w->place[i].memory = instance % 2 ? 66e6 : 50e6; /* less than the chain and its state */
        if (instance % 2)
            for (i = 0; i < 8; i++) w->kind[i].keep[HET_KEEP_WEIGHT][0] = 3e6; /* so that few micro-batches fit beside it */
        plain = find(w);
        w->desc.schedule_count = 3;
        timed = find(w);
        assert_true(timed->found[0].seconds <= plain->found[0].seconds);
        for (i = 0; i < timed->found_count; i++) {
            const het_found *found = &timed->found[i];
            het_simulation *simulation;
            het_error error;
            int64_t r;
            if (strcmp(found->plan->schedule, "timed") != 0) continue;
            better += found->seconds < 0.99 * plain->found[0].seconds;
            limited += found->plan->memory_limit > 0;
            for (r = 0; r < 4; r++) assert_true(found->memory[r] <= w->place[r].memory);
            EXPECT_ERROR(het_plan_predict(&w->desc, found->plan, found->granules, HET_NO, &simulation, &error), HET_OK, error.text, "");
            assert_true(simulation->makespan >= found->seconds && simulation->makespan <= found->seconds);
            het_simulation_free(simulation);
        }
        het_search_free(plain);
        het_search_free(timed);
        end(w);
    }
    if (better < 3 || limited == 0) fail_msg("better in %d of 12, with a limit of what ranks keep in %d", better, limited);
}

/* Of the plan's split what is shortest when stage g's first 0, 1, ... or all units recompute, in every combination that fits. */
static double shortest_of_all(const world *w, het_plan *plan, int64_t granules, int64_t g)
{
    double least = 1e300;
    int64_t n;
    if (g == plan->stages) {
        const judged j = judge(w, plan, granules, -1);
        return j.fits ? j.seconds : least;
    }
    for (n = 0; n <= plan->stage[g].unit_end - plan->stage[g].unit_begin; n++) {
        double seconds;
        plan->stage[g].recompute = n > 0 ? HET_RECOMPUTE_UNIT : HET_RECOMPUTE_NONE;
        plan->stage[g].recompute_units = (int32_t)n;
        seconds = shortest_of_all(w, plan, granules, g + 1);
        least = seconds < least ? seconds : least;
    }
    return least;
}

/* As few units recompute as fit: shorter than where all of a stage do or none, and as short as the shortest of the split's combinations. */
static void as_few_units_recompute_as_fit(void **state)
{
    static const char *const names[] = { "1f1b", "gpipe" };
    int instance, better = 0, some = 0;
    (void)state;
    for (instance = 0; instance < 16; instance++) {
        world *w = make(8, 2 + instance % 2);
        het_search *all, *few;
        int64_t i;
        w->desc.granules = 6;
        w->desc.schedules = names + instance / 8;
        w->desc.schedule_count = 1;
        w->desc.most_granules = 1;
        for (i = 0; i < 8; i++) w->block[i].elements = 1000000, w->kind[i].keep[HET_KEEP_WEIGHT][0] = 3e6 + 1e5 * (double)((i * 3) % 5);
        for (i = 0; i < w->cluster.ranks; i++) w->place[i].speed = 1 - 0.1 * (double)i;
        for (i = 0; i < w->cluster.ranks; i++) w->place[i].memory = (w->cluster.ranks == 2 ? 90e6 : 64e6) + 8e6 * instance;
        all = find(w);
        w->desc.recompute_units = HET_DEFAULT;
        few = find(w);
        assert_true(few->found[0].seconds <= all->found[0].seconds);
        better += few->found[0].seconds < 0.99 * all->found[0].seconds;
        for (i = 0; i < few->found_count; i++) {
            het_found *found = &few->found[i];
            int64_t g, partly = 0;
            for (g = 0; g < found->plan->stages; g++) partly += found->plan->stage[g].recompute_units > 0;
            for (g = 0; g < w->cluster.ranks; g++) assert_true(found->memory[g] <= w->place[g].memory);
            if (partly == 0 || found->plan->stages > 3) continue;
            assert_true(found->seconds <= shortest_of_all(w, found->plan, found->granules, 0) * (1 + 1e-9));
            some++;
        }
        het_search_free(all);
        het_search_free(few);
        end(w);
    }
    if (better < 6 || some < 6) fail_msg("better in %d of 16, with some units in %d", better, some);
}

static void refusals(void **state)
{
    static const char *const unknown[] = { "1f1b", "bidirectional" };
    int i;
    (void)state;
    for (i = 0; i < 20; i++) {
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
        case 16: w->desc.granule_sequences = INT64_MAX; words = "9223372036854775807 sequences"; break;
        case 6: w->desc.schedules = unknown; w->desc.schedule_count = 2; words = "'bidirectional'|1f1b"; break;
        case 7: strcpy(w->place[1].profile, "h100"); words = "device 1 (device1)|'h100'"; break;
        case 8: w->place[1].speed = 0; words = "device 1 (device1)|speed is 0"; break;
        case 9: w->place[0].group = 1; words = "device 0|group 1 of 1"; break;
        case 10: w->time[0][1].forward.token = -1; words = "'unit1' on 'type0'"; break;
        case 11: w->desc.most_granules = 2; w->desc.most_micro_batches = 3; words = "8 granules|3 micro-batches of 2"; break;
        case 12: w->group[0].parent = 0; words = "group 0|parent 0"; break;
        case 13: w->profile.unit[1] = (int32_t)w->profile.kinds; words = "unit 1 of the profile|is of kind"; break;
        case 14: w->profile.use[0] = -1; words = "use 0 of the profile|unit -1"; break;
        case 15: w->profile.block[0].uses = 100; words = "block 0 of the profile|100 uses"; break;
        case 18: w->desc.trials = -1; words = "trials is -1"; break;
        case 17: w->profile.block[0].elements = 0; words = "block 0 of the profile|0 elements"; break;
        default: w->desc.granule_pairs = (double)NAN; words = "granule_pairs"; break;
        }
        EXPECT_ERROR(het_plan_search(&w->desc, &search, &error), HET_ERR_INVALID, error.text, words);
        assert_null(search);
        end(w);
    }
}

static void out_of_memory(void **state)
{
    static const char *const schedules[] = { "1f1b", "timed" };
    int64_t k, n;
    int sliced;
    (void)state;
    for (sliced = 0; sliced < 3; sliced++) {
        for (k = 0;; k++) {
            world *w = make(4, 2);
            het_search *search = NULL;
            het_error error;
            het_result result;
            w->desc.evaluations = 6;
            if (sliced) {
                w->desc.schedules = schedules, w->desc.schedule_count = sliced;
                w->place[0].memory = w->place[1].memory = 120e3; /* of half the units */
            }
            if (sliced == 1) w->desc.granules = 1, w->desc.granule_tokens = 1024, w->desc.slices = 2;
            if (sliced == 2) w->group[0].latency = 3, w->place[0].memory = w->place[1].memory = 50e3;
            w->memory.fail_at = k;
            result = het_plan_search(&w->desc, &search, &error);
            n = w->memory.calls;
            if (result == HET_OK && sliced == 1) assert_int_equal(search->found[0].plan->slices, 2);
            if (result == HET_OK && sliced == 2) assert_string_equal(search->found[0].plan->schedule, "timed");
            het_search_free(search);
            if (result == HET_OK) { end(w); break; }
            assert_int_equal(result, HET_ERR_OOM);
            assert_null(search);
            end(w);
        }
        assert_true(k > 30 && n == k);
    }
}

/* A rank alone is faster than beside others: the fast device alone, which half the time has nobody beside it, is better than both, and no bound says
   otherwise. Nothing is ruled out by times that only hold where all ranks are at work all the time. */
static void bounds_hold_beside_idle_ranks(void **state)
{
    static const double speeds[] = { 1, 0.5, 0.25, 0.1, 0.02 }, parts[] = { 0.5, 0.7, 0.9, 1.2 };
    het_unit_time alone[4];
    int64_t i, k, u;
    (void)state;
    for (i = 0; i < 5; i++)
        for (k = 0; k < 4; k++) {
            world *w = make(4, 2);
            het_search *search, *single;
            double fast;
            w->place[1].speed = speeds[i];
            for (u = 0; u < 4; u++) {
                alone[u] = w->time[0][u];
                alone[u].forward.token *= parts[k], alone[u].backward.token *= parts[k], alone[u].recompute.token *= parts[k];
                alone[u].input.token *= parts[k], alone[u].weight.token *= parts[k];
            }
            w->device[0].alone = alone;
            search = find(w);
            assert_true(search->exhaustive);
            fast = 8 * 4 * 3 * (parts[k] + 0.5 * (1 - parts[k])); /* half of the ranks at work */
            if (search->found[0].seconds > fast * (1 + 1e-9))
                fail_msg("speed %g, alone %g: found %g, the fast device alone takes %g", speeds[i], parts[k], search->found[0].seconds, fast);
            if (search->bound > search->found[0].seconds * (1 + 1e-9))
                fail_msg("speed %g, alone %g: the bound is %g, found %g", speeds[i], parts[k], search->bound, search->found[0].seconds);
            w->desc.small = -1; /* the climb alone finds nothing better than what was searched completely */
            w->desc.evaluations = 5000;
            single = find(w);
            if (search->found[0].seconds > single->found[0].seconds * (1 + 1e-9))
                fail_msg("speed %g, alone %g: complete %g, climbed %g", speeds[i], parts[k], search->found[0].seconds, single->found[0].seconds);
            het_search_free(search);
            het_search_free(single);
            end(w);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_brute_force),      cmocka_unit_test(cuts_as_brute_force), cmocka_unit_test(limits_as_brute_force),
        cmocka_unit_test(what_is_divided_makes_it_fit),
        cmocka_unit_test(a_cap_takes_twice_as_much),       cmocka_unit_test(near_exhaustive_search),
        cmocka_unit_test(crosses_what_does_not_fit),
        cmocka_unit_test(shares_follow_speeds),      cmocka_unit_test(memory_forces_a_pipeline),
        cmocka_unit_test(slow_links_get_the_cut),    cmocka_unit_test(what_does_not_fit_is_named),
        cmocka_unit_test(frozen_weights_count_as_they_lie),
        cmocka_unit_test(near_sets_lie_inside_nodes), cmocka_unit_test(a_keeper_where_a_stage_is_worth_less),
        cmocka_unit_test(bounds_hold_beside_idle_ranks),
        cmocka_unit_test(same_seed_same_plan),       cmocka_unit_test(budgets_end_it), cmocka_unit_test(nothing_is_simulated_again),
        cmocka_unit_test(many_nodes_are_one_kind),
        cmocka_unit_test(long_micro_batches_are_cut), cmocka_unit_test(lists_for_the_times_are_tried),
        cmocka_unit_test(as_few_units_recompute_as_fit), cmocka_unit_test(refusals),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
