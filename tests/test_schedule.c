/* Schedules by name, against a checker and a clock written apart from the generator: validity of all of them on random plans, closed forms
   of memory and idle time from the papers, Megatron's and PyTorch's published orders. */
#include "support.h"
#include "hetrain_plan.h"

/* ---- plans without a reader ---- */

#define MOST_STAGES 4096
typedef struct test_plan {
    het_plan plan;
    het_stage stage[MOST_STAGES];
    int64_t first_stage[MOST_STAGES + 1];
    int64_t counts[MOST_STAGES];
    double share[MOST_STAGES], state_share[MOST_STAGES], slice_share[8];
} test_plan;

static test_plan *plan_start(const char *schedule, int64_t ranks, int64_t slices)
{
    test_plan *made = (test_plan *)support_alloc(1, sizeof *made);
    int slice;
    memset(made, 0, sizeof *made);
    made->plan.ranks = ranks;
    made->plan.slices = slices;
    made->plan.stage = made->stage;
    made->plan.first_stage = made->first_stage;
    made->plan.share = made->share;
    made->plan.slice_share = made->slice_share;
    made->plan.state_share = made->state_share;
    made->state_share[0] = 1;
    for (slice = 0; slice < 8; slice++) made->slice_share[slice] = 1;
    strcpy(made->plan.schedule, schedule);
    return made;
}

static void plan_stage(test_plan *made, int64_t rank)
{
    het_stage *stage = &made->stage[made->plan.stages++];
    assert_true(made->plan.stages < MOST_STAGES);
    stage->pipeline = made->plan.pipelines;
    stage->rank = rank;
    stage->unit_begin = made->plan.stages - 1 - made->first_stage[made->plan.pipelines];
    stage->unit_end = stage->unit_begin + 1;
}

static void plan_pipeline(test_plan *made, int64_t count)
{
    int64_t p;
    made->counts[made->plan.pipelines] = count;
    made->share[made->plan.pipelines++] = 1;
    made->first_stage[made->plan.pipelines] = made->plan.stages;
    if (made->plan.stages > 0 && made->stage[made->plan.stages - 1].unit_end > made->plan.units)
        made->plan.units = made->stage[made->plan.stages - 1].unit_end;
    for (p = 0; p < made->plan.pipelines; p++) /* the last stage of a short pipeline has the rest of the chain */
        if (made->first_stage[p + 1] > made->first_stage[p]) made->stage[made->first_stage[p + 1] - 1].unit_end = made->plan.units;
}

/* One pipeline over ranks 0 .. ranks - 1: `chunks` times along them, or down and up again (chunks == 0). */
static test_plan *plan_simple(const char *schedule, int64_t ranks, int64_t chunks, int64_t count, int64_t slices)
{
    test_plan *made = plan_start(schedule, ranks, slices);
    int64_t c, r;
    for (c = 0; c < (chunks > 0 ? chunks : 2); c++)
        for (r = 0; r < ranks; r++) plan_stage(made, chunks == 0 && c == 1 ? ranks - 1 - r : r);
    plan_pipeline(made, count);
    return made;
}

/* Two pipelines in opposite directions. */
static test_plan *plan_both(const char *schedule, int64_t ranks, int64_t count0, int64_t count1, int64_t slices)
{
    test_plan *made = plan_start(schedule, ranks, slices);
    int64_t r;
    for (r = 0; r < ranks; r++) plan_stage(made, r);
    plan_pipeline(made, count0);
    for (r = 0; r < ranks; r++) plan_stage(made, ranks - 1 - r);
    plan_pipeline(made, count1);
    return made;
}

/* The same, each a V: down its ranks and up again. */
static test_plan *plan_both_v(const char *schedule, int64_t ranks, int64_t count0, int64_t count1, int64_t slices)
{
    test_plan *made = plan_start(schedule, ranks, slices);
    int64_t s, way;
    for (way = 0; way < 2; way++) {
        for (s = 0; s < 2 * ranks; s++) {
            const int64_t down = s < ranks ? s : 2 * ranks - 1 - s;
            plan_stage(made, way ? ranks - 1 - down : down);
        }
        plan_pipeline(made, way ? count1 : count0);
    }
    return made;
}

static het_schedule *make(const test_plan *made)
{
    het_schedule *schedule = NULL;
    het_error error;
    memset(&error, 0, sizeof error);
    if (het_schedule_make(&made->plan, made->counts, NULL, &schedule, &error) != HET_OK) fail_msg("%s: %s", made->plan.schedule, error.text);
    assert_non_null(schedule);
    assert_int_equal(schedule->ranks, made->plan.ranks);
    assert_int_equal(schedule->pipelines, made->plan.pipelines);
    assert_int_equal(schedule->complete, 0);
    assert_memory_equal(schedule->micro_batches, made->counts, (size_t)made->plan.pipelines * sizeof *made->counts);
    return schedule;
}

/* ---- the clock: executes lists in the order they have, and checks everything on the way ----
   What an action needs, by the definition of the chain: F of a slice the F of the stage before, and of the slice before (keys and values);
   a backward its own F, the backward of the stage after, and of the slice after; W its I. */

typedef struct test_clock {
    int64_t cost[4];                   /* of F, B, I, W */
    int64_t end;                       /* makespan */
    int64_t *first, *last, *busy;      /* [ranks] start of the first action, end of the last, time computing */
    double *peak;                      /* [ranks] as het_schedule_check defines it, the most over pipelines together */
    char wrong[200];                   /* "": all is well */
    int64_t ranks;
} test_clock;

static void clock_end(test_clock *clock)
{
    free(clock->first);
    free(clock->last);
    free(clock->busy);
    free(clock->peak);
}

typedef struct test_done { int64_t forward, input, weight; } test_done; /* when, -1: not yet */

typedef struct test_world {
    const test_plan *made;
    test_done **done;                  /* [stages] -> [count][slices] */
    int64_t stages_here[MOST_STAGES];  /* of a stage: how many stages its pipeline has on its rank */
} test_world;

static test_done *done_at(const test_world *world, int64_t stage, int64_t micro_batch, int64_t slice)
{
    return &world->done[stage][micro_batch * world->made->plan.slices + slice];
}

/* -1: cannot start yet; else the earliest time its inputs exist. Sets `wrong` for actions that may never be. */
static int64_t clock_ready(const test_world *world, const het_action *a, char *wrong)
{
    const het_plan *plan = &world->made->plan;
    const int64_t first = plan->first_stage[a->pipeline], stages = plan->first_stage[a->pipeline + 1] - first, s = first + a->stage;
    int64_t needs[3], n = 0, i, latest = 0;
    test_done *own = done_at(world, s, a->micro_batch, a->slice);
    if (a->kind == HET_ACTION_F) {
        if (own->forward >= 0) { sprintf(wrong, "F twice"); return -1; }
        if (a->stage > 0) needs[n++] = done_at(world, s - 1, a->micro_batch, a->slice)->forward;
        if (a->slice > 0) needs[n++] = done_at(world, s, a->micro_batch, a->slice - 1)->forward;
    } else if (a->kind == HET_ACTION_W) {
        if (own->weight >= 0) { sprintf(wrong, "W twice"); return -1; }
        needs[n++] = own->input;
    } else {
        if (own->input >= 0) { sprintf(wrong, "backward twice"); return -1; }
        needs[n++] = own->forward;
        if (a->stage < stages - 1) needs[n++] = done_at(world, s + 1, a->micro_batch, a->slice)->input;
        if (a->slice < plan->slices - 1) needs[n++] = done_at(world, s, a->micro_batch, a->slice + 1)->input;
    }
    for (i = 0; i < n; i++) {
        if (needs[i] < 0) return -1;
        if (needs[i] > latest) latest = needs[i];
    }
    return latest;
}

static void clock_do(const test_world *world, const het_action *a, int64_t end, double *kept)
{
    const int64_t s = world->made->plan.first_stage[a->pipeline] + a->stage;
    const double unit = 1.0 / ((double)world->stages_here[s] * (double)world->made->plan.slices);
    test_done *own = done_at(world, s, a->micro_batch, a->slice);
    if (a->kind == HET_ACTION_F) { own->forward = end; *kept += unit; }
    if (a->kind == HET_ACTION_I || a->kind == HET_ACTION_B) own->input = end;
    if (a->kind == HET_ACTION_W || a->kind == HET_ACTION_B) { own->weight = end; *kept -= unit; }
}

static int action_possible(const test_world *world, int64_t rank, const het_action *a)
{
    const het_plan *plan = &world->made->plan;
    if (a->pipeline < 0 || a->pipeline >= plan->pipelines || a->kind < 0 || a->kind > HET_ACTION_W || a->version != 0) return 0;
    if (a->stage < 0 || a->stage >= plan->first_stage[a->pipeline + 1] - plan->first_stage[a->pipeline]) return 0;
    if (a->micro_batch < 0 || a->micro_batch >= world->made->counts[a->pipeline] || a->slice < 0 || a->slice >= plan->slices) return 0;
    return plan->stage[plan->first_stage[a->pipeline] + a->stage].rank == rank;
}

static void world_start(test_world *world, const test_plan *made)
{
    const het_plan *plan = &made->plan;
    int64_t p, s, t, i;
    world->made = made;
    world->done = (test_done **)support_alloc((size_t)plan->stages, sizeof *world->done);
    for (p = 0; p < plan->pipelines; p++)
        for (s = plan->first_stage[p]; s < plan->first_stage[p + 1]; s++) {
            const int64_t items = made->counts[p] * plan->slices;
            world->done[s] = (test_done *)support_alloc((size_t)items + 1, sizeof **world->done);
            for (i = 0; i < items; i++) world->done[s][i].forward = world->done[s][i].input = world->done[s][i].weight = -1;
            world->stages_here[s] = 0;
            for (t = plan->first_stage[p]; t < plan->first_stage[p + 1]; t++) world->stages_here[s] += plan->stage[t].rank == plan->stage[s].rank;
        }
}

static void world_end(test_world *world)
{
    int64_t s;
    for (s = 0; s < world->made->plan.stages; s++) free(world->done[s]);
    free(world->done);
}

static void run_lists(test_clock *clock, const test_world *world, const het_schedule *schedule)
{
    const int64_t ranks = schedule->ranks;
    int64_t *at = (int64_t *)support_alloc((size_t)ranks, sizeof *at);
    double *kept = (double *)support_alloc((size_t)ranks, sizeof *kept);
    int64_t r, i, moved = 1;
    for (r = 0; r < ranks; r++) { at[r] = schedule->start[r]; kept[r] = 0; }
    while (moved && clock->wrong[0] == 0) {
        moved = 0;
        for (r = 0; r < ranks && clock->wrong[0] == 0; r++)
            while (at[r] < schedule->start[r + 1] && clock->wrong[0] == 0) {
                const het_action *a = &schedule->action[at[r]];
                const int64_t together = a->overlap ? 2 : 1;
                int64_t start = clock->last[r], total = 0, ready = 0;
                if (at[r] + together > schedule->start[r + 1]) { sprintf(clock->wrong, "rank %d: half a pair", (int)r); break; }
                for (i = 0; i < together && ready >= 0; i++) {
                    if (!action_possible(world, r, &a[i])) { sprintf(clock->wrong, "rank %d: an action that is not its own", (int)r); break; }
                    ready = clock_ready(world, &a[i], clock->wrong);
                    if (ready > start) start = ready;
                    total += clock->cost[a[i].kind];
                }
                if (ready < 0 || clock->wrong[0] != 0) break;
                if (clock->first[r] < 0) clock->first[r] = start;
                for (i = 0; i < together; i++) {
                    clock_do(world, &a[i], start + total, &kept[r]);
                    if (kept[r] > clock->peak[r]) clock->peak[r] = kept[r];
                }
                clock->last[r] = start + total;
                clock->busy[r] += total;
                if (clock->last[r] > clock->end) clock->end = clock->last[r];
                at[r] += together;
                moved = 1;
            }
    }
    for (r = 0; r < ranks && clock->wrong[0] == 0; r++)
        if (at[r] < schedule->start[r + 1]) sprintf(clock->wrong, "rank %d waits for ever at action %d", (int)r, (int)(at[r] - schedule->start[r]));
    free(at);
    free(kept);
}

/* Costs in the order F, B, I, W. */
static test_clock clock_run(const test_plan *made, const het_schedule *schedule, int64_t f, int64_t b, int64_t i_, int64_t w)
{
    test_clock clock;
    test_world *world = (test_world *)support_alloc(1, sizeof *world);
    int64_t r, s, i, p;
    memset(&clock, 0, sizeof clock);
    clock.cost[HET_ACTION_F] = f;
    clock.cost[HET_ACTION_B] = b;
    clock.cost[HET_ACTION_I] = i_;
    clock.cost[HET_ACTION_W] = w;
    clock.ranks = schedule->ranks;
    clock.first = (int64_t *)support_alloc((size_t)clock.ranks, sizeof(int64_t));
    clock.last = (int64_t *)support_alloc((size_t)clock.ranks, sizeof(int64_t));
    clock.busy = (int64_t *)support_alloc((size_t)clock.ranks, sizeof(int64_t));
    clock.peak = (double *)support_alloc((size_t)clock.ranks, sizeof(double));
    for (r = 0; r < clock.ranks; r++) { clock.first[r] = -1; clock.last[r] = clock.busy[r] = 0; clock.peak[r] = 0; }
    world_start(world, made);
    run_lists(&clock, world, schedule);
    for (p = 0; p < made->plan.pipelines && clock.wrong[0] == 0; p++)
        for (s = made->plan.first_stage[p]; s < made->plan.first_stage[p + 1]; s++)
            for (i = 0; i < made->counts[p] * made->plan.slices; i++)
                if (world->done[s][i].forward < 0 || world->done[s][i].input < 0 || world->done[s][i].weight < 0)
                    sprintf(clock.wrong, "stage %d: item %d is missing", (int)s, (int)i);
    world_end(world);
    free(world);
    return clock;
}

/* The most idle time between a rank's first and last action. */
static int64_t clock_idle(const test_clock *clock)
{
    int64_t r, most = 0;
    for (r = 0; r < clock->ranks; r++) {
        const int64_t idle = clock->first[r] >= 0 ? clock->last[r] - clock->first[r] - clock->busy[r] : 0;
        if (idle > most) most = idle;
    }
    return most;
}

/* Lists as text, in the form of PyTorch's CSV. */
static void print_lists(support_buffer *to, const het_schedule *schedule)
{
    int64_t r, i;
    for (r = 0; r < schedule->ranks; r++) {
        for (i = schedule->start[r]; i < schedule->start[r + 1]; i++) {
            const het_action *a = &schedule->action[i];
            const int second = i > schedule->start[r] && a[-1].overlap;
            char text[96];
            const char *comma = i > schedule->start[r] && !second ? "," : "";
            int n = sprintf(text, "%s%s%d%c%d", comma, a->overlap ? "(" : "", a->stage, "FBIW"[a->kind], a->micro_batch);
            if (a->slice != 0) n += sprintf(text + n, ".%d", a->slice);
            if (a->pipeline != 0) n += sprintf(text + n, "@%d", a->pipeline);
            n += sprintf(text + n, "%s%s", a->overlap ? ";" : "", second ? ")OVERLAP_F_B" : "");
            support_buffer_append(to, text, (size_t)n);
        }
        support_buffer_append(to, "\n", 1);
    }
}

/* ---- orders made by others ---- */

static int same_action(const het_action *a, int kind, int64_t stage, int64_t micro_batch)
{
    return a->kind == kind && a->stage == stage && a->micro_batch == micro_batch;
}

/* The list that PyTorch has: made again, byte for byte. */
static void dualpipev_of_pytorch(void **state)
{
    test_plan *made = plan_simple("dualpipev", 4, 0, 10, 1);
    het_schedule *schedule = make(made);
    FILE *file = fopen("tests/data/pytorch_pipelining/dualpipev_4rank_10mb.csv", "rb");
    support_buffer text;
    char expected[4096];
    size_t size;
    (void)state;
    assert_non_null(file);
    size = fread(expected, 1, sizeof expected, file);
    fclose(file);
    support_buffer_start(&text);
    print_lists(&text, schedule);
    assert_int_equal(text.size, size);
    assert_memory_equal(text.data, expected, size);
    support_buffer_end(&text);
    het_schedule_free(schedule);
    free(made);
}

/* 1F1B (Narayanan et al. 2021, figure 4): p - 1 - r forwards, then one forward and one backward in turn, then backwards. */
static void order_of_1f1b(void **state)
{
    int64_t p, m, r, f, b;
    (void)state;
    for (p = 1; p <= 16; p++)
        for (m = 0; m <= 2 * p + 1; m += p > 8 ? 5 : 1) {
            test_plan *made = plan_simple("1f1b", p, 1, m, 1);
            het_schedule *schedule = make(made);
            for (r = 0; r < p; r++) {
                const het_action *a = schedule->action + schedule->start[r];
                const int64_t warm_up = m < p - 1 - r ? m : p - 1 - r;
                assert_int_equal(schedule->start[r + 1] - schedule->start[r], 2 * m);
                for (f = 0; f < warm_up; f++) assert_true(same_action(a++, HET_ACTION_F, r, f));
                for (b = 0; b < m; b++) {
                    if (f < m) assert_true(same_action(a++, HET_ACTION_F, r, f++));
                    assert_true(same_action(a++, HET_ACTION_B, r, b));
                }
            }
            het_schedule_free(schedule);
            free(made);
        }
}

/* Interleaved 1F1B as in Megatron-LM's forward_backward_pipelining_with_interleaving, for counts that are multiples of p: the k-th forward of
   a rank is chunk (k mod p v) / p, backwards take the chunks from the last. */
static void order_of_interleaved(void **state)
{
    int64_t p, v, g, r, k, step;
    (void)state;
    for (p = 1; p <= 8; p++)
        for (v = 1; v <= 4; v++)
            for (g = 1; g <= 3; g++) {
                test_plan *made = plan_simple("interleaved", p, v, g * p, 1);
                het_schedule *schedule = make(made);
                for (r = 0; r < p; r++) {
                    const het_action *a = schedule->action + schedule->start[r];
                    const int64_t total = g * p * v;
                    int64_t warm_up = (p - r - 1) * 2 + (v - 1) * p, forwards = 0, backwards = 0;
                    if (warm_up > total) warm_up = total;
                    for (step = 0; step < 2 * total; step++) {
                        const int forward = step < warm_up || (forwards < total && (step - warm_up) % 2 == 0);
                        k = forward ? forwards++ : backwards++;
                        if (forward) assert_true(same_action(a++, HET_ACTION_F, k % (p * v) / p * p + r, k / (p * v) * p + k % p));
                        else assert_true(same_action(a++, HET_ACTION_B, (v - 1 - k % (p * v) / p) * p + r, k / (p * v) * p + k % p));
                    }
                }
                het_schedule_free(schedule);
                free(made);
            }
}

/* ---- memory: the papers' closed forms ---- */

static double most(const test_clock *clock)
{
    double peak = 0;
    int64_t r;
    for (r = 0; r < clock->ranks; r++)
        if (clock->peak[r] > peak) peak = clock->peak[r];
    return peak;
}

#define NEAR 1e-9

static void memory(void **state)
{
    static const char *const names[] = { "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "sliced-1f1b", "dualpipev" };
    int64_t p, m, r, k;
    size_t n;
    (void)state;
    for (n = 0; n < sizeof names / sizeof *names; n++)
        for (p = 1; p <= 16; p++)
            for (m = p; m <= 4 * p; m += p + (p > 5)) {
                const char *name = names[n];
                const int is_v = name[strlen(name) - 1] == 'v' || name[0] == 'v';
                const int64_t v = strcmp(name, "interleaved") == 0 ? 3 : 1, slices = strcmp(name, "sliced-1f1b") == 0 ? 1 + (p + m) % 5 : 1;
                test_plan *made = plan_simple(name, p, is_v ? 0 : v, m, slices);
                het_schedule *schedule = make(made);
                test_clock clock = clock_run(made, schedule, 1, 2, 1, 1);
                assert_string_equal(clock.wrong, "");
                for (r = 0; r < p; r++) {
                    const double peak = clock.peak[r];
                    if (strcmp(name, "gpipe") == 0) assert_true(fabs(peak - (double)m) < NEAR);
                    if (strcmp(name, "1f1b") == 0) assert_true(fabs(peak - (double)(p - r)) < NEAR);
                    if (strcmp(name, "interleaved") == 0 && m % p == 0) {
                        k = 2 * (p - 1 - r) + (v - 1) * p + 1; /* warm-up and one more, in chunks */
                        if (k > m * v) k = m * v;
                        assert_true(fabs(peak - (double)k / (double)v) < NEAR);
                    }
                    if (strcmp(name, "sliced-1f1b") == 0) {
                        k = slices + 2 * (p - 1 - r);
                        if (k > m * slices) k = m * slices;
                        assert_true(fabs(peak - (double)k / (double)slices) < NEAR);
                    }
                    if (strcmp(name, "dualpipev") == 0) assert_true(peak <= (double)p + 0.5 + NEAR); /* 2 p + 1 chunks: DualPipe's table */
                }
                if (strcmp(name, "zb-h1") == 0) assert_true(fabs(most(&clock) - (double)p) < NEAR);
                if (strcmp(name, "zb-h2") == 0) assert_true(fabs(most(&clock) - (double)(m < 2 * p - 1 ? m : 2 * p - 1)) < NEAR);
                if (strcmp(name, "zb-v") == 0) assert_true(fabs(most(&clock) - (double)p) < NEAR);
                if (strcmp(name, "v-half") == 0) assert_true(most(&clock) <= (double)((p + 2) / 2) + NEAR);
                if (strcmp(name, "v-min") == 0) assert_true(most(&clock) <= (double)((p + 4) / 3) + NEAR);
                clock_end(&clock);
                het_schedule_free(schedule);
                free(made);
            }
}

/* Slices: K - 1 slices of a micro-batch more than without, not K times as much. 1f1b in slices is Seq1F1B (arXiv 2406.03488, section 3):
   p - r + K - 1 slices. */
static void memory_of_slices(void **state)
{
    static const struct { const char *name; int64_t chunks, most[3]; } cases[] = { /* (a p + b) / c micro-batches when they are whole */
        { "1f1b", 1, { 1, 0, 1 } }, { "zb-h1", 1, { 1, 0, 1 } },  { "zb-h2", 1, { 2, -1, 1 } },
        { "zb-v", 0, { 1, 0, 1 } }, { "v-half", 0, { 1, 2, 2 } }, { "v-min", 0, { 1, 4, 3 } },
    };
    int64_t p, k, r;
    size_t n;
    (void)state;
    for (n = 0; n < sizeof cases / sizeof *cases; n++)
        for (p = 1; p <= 12; p++)
            for (k = 1; k <= 5; k += 2) {
                const char *name = cases[n].name;
                test_plan *made = plan_simple(name, p, cases[n].chunks, 2 * p + 1, k);
                het_schedule *schedule = make(made);
                test_clock clock = clock_run(made, schedule, 1, 2, 1, 1);
                const int64_t whole = (cases[n].most[0] * p + cases[n].most[1]) / cases[n].most[2];
                assert_string_equal(clock.wrong, "");
                assert_true(most(&clock) <= (double)(whole + k - 1) / (double)k + NEAR);
                if (strcmp(name, "1f1b") == 0)
                    for (r = 0; r < p; r++) assert_true(fabs(clock.peak[r] - (double)(p - r + k - 1) / (double)k) < NEAR);
                clock_end(&clock);
                het_schedule_free(schedule);
                free(made);
            }
}

/* Greedy and timed keep to any limit, and never stop. */
static void memory_of_greedy(void **state)
{
    int64_t p, chunks, k;
    double limit;
    (void)state;
    for (p = 1; p <= 6; p++)
        for (chunks = 0; chunks <= 3; chunks++)
            for (k = 1; k <= 6; k++)
                for (limit = 1; limit < 5; limit += 0.4) {
                    test_plan *made = plan_simple(k > 3 ? "timed" : "greedy", p, chunks, 6, k > 3 ? k - 3 : k);
                    het_schedule *schedule;
                    test_clock clock;
                    made->plan.memory_limit = limit;
                    schedule = make(made);
                    clock = clock_run(made, schedule, 1, 2, 1, 1);
                    assert_string_equal(clock.wrong, "");
                    assert_true(most(&clock) <= limit + NEAR);
                    clock_end(&clock);
                    het_schedule_free(schedule);
                    free(made);
                }
}

/* ---- time: the papers' closed forms ---- */

typedef struct test_time { int64_t end, idle, work; } test_time;

static test_time time_of(test_plan *made, int64_t f, int64_t b, int64_t i, int64_t w)
{
    het_schedule *schedule = make(made);
    test_clock clock = clock_run(made, schedule, f, b, i, w);
    test_time time;
    assert_string_equal(clock.wrong, "");
    time.end = clock.end;
    time.idle = clock_idle(&clock);
    time.work = clock.busy[0];
    clock_end(&clock);
    het_schedule_free(schedule);
    free(made);
    return time;
}

/* For any costs: gpipe and 1f1b (m + p - 1)(F + B), in slices of a micro-batch (m K + p - 1)(F + B); interleaved idles (p - 1)(F + B) / v of
   a micro-batch's time, one chunk costs F + B here. */
static void time_of_unsplit(void **state)
{
    static const int64_t costs[][2] = { { 1, 2 }, { 1, 1 }, { 3, 7 }, { 5, 2 } };
    int64_t p, m, v, k;
    size_t c;
    (void)state;
    for (c = 0; c < sizeof costs / sizeof *costs; c++)
        for (p = 1; p <= 16; p += c == 0 ? 1 : 3) {
            const int64_t f = costs[c][0], b = costs[c][1];
            for (m = p; m <= 3 * p; m += p > 4 ? 7 : 1) {
                assert_int_equal(time_of(plan_simple("gpipe", p, 1, m, 1), f, b, 0, 0).end, (m + p - 1) * (f + b));
                assert_int_equal(time_of(plan_simple("1f1b", p, 1, m, 1), f, b, 0, 0).end, (m + p - 1) * (f + b));
            }
            for (k = 2; k <= 4; k++) {
                assert_int_equal(time_of(plan_simple("terapipe", p, 1, p, k), f, b, 0, 0).end, (p * k + p - 1) * (f + b));
                assert_int_equal(time_of(plan_simple("1f1b", p, 1, p, k), f, b, 0, 0).end, (p * k + p - 1) * (f + b));
                assert_int_equal(time_of(plan_simple("sliced-1f1b", p, 1, p, k), f, b, 0, 0).end, (p * k + p - 1) * (f + b));
            }
            for (v = 1; v <= 4; v++)
                for (m = p; m <= 3 * p; m += p) {
                    const test_time time = time_of(plan_simple("interleaved", p, v, m, 1), f, b, 0, 0);
                    assert_int_equal(time.end - time.work, (p - 1) * (f + b));
                }
        }
}

/* Where F = I = W = 1, with as many kept as v-half and v-min keep: never longer than these, whose closed forms time_of_split has, and shorter in 7
   of 33 cases. */
static void timed_on_a_v(void **state)
{
    int64_t p, which, shorter = 0;
    (void)state;
    for (p = 2; p <= 12; p++)
        for (which = 0; which < 3; which++) {
            const char *name = which == 0 ? "zb-v" : which == 1 ? "v-half" : "v-min";
            test_plan *made = plan_simple("timed", p, 0, 2 * p, 1);
            const int64_t end = time_of(plan_simple(name, p, 0, 2 * p, 1), 1, 2, 1, 1).end;
            int64_t own;
            made->plan.memory_limit = (double)(which == 0 ? p : which == 1 ? (p + 2) / 2 : (p + 4) / 3);
            own = time_of(made, 1, 2, 1, 1).end;
            if (own > end) fail_msg("timed, %d ranks: %d, %s %d", (int)p, (int)own, name, (int)end);
            shorter += own < end;
        }
    assert_int_equal(shorter, 7);
}

/* F = I = W = 1; a V's chunk is half a rank's layers, so its times are in halves. Exact figures of the zero bubble papers: zb-h1 idles
   (p - 1)(F + I - W); zb-h2 and zb-v never idle between a rank's first and last action (their makespan is p - 1 longer than the work, because the
   last rank begins at p - 1: nothing can be shorter). For v-half and v-min the papers give about 1/2 and 2/3 of 1F1B's
   6 (p - 1); ours idle 3 p - 6 (p even) or 3 p - 4 (odd), and 4 p - 5, or 4 p - 3 where 3 divides p. */
static void time_of_split(void **state)
{
    int64_t p, m;
    (void)state;
    for (p = 1; p <= 16; p++)
        for (m = 2 * p; m <= 6 * p; m += p > 4 ? 5 : 1) {
            test_time time = time_of(plan_simple("zb-h1", p, 1, m, 1), 1, 2, 1, 1);
            assert_int_equal(time.end, 3 * m + p - 1);
            time = time_of(plan_simple("zb-h2", p, 1, m, 1), 1, 2, 1, 1);
            assert_int_equal(time.idle, 0);
            assert_int_equal(time.end, 3 * m + p - 1);
            time = time_of(plan_simple("zb-v", p, 0, m, 1), 1, 2, 1, 1);
            assert_int_equal(time.idle, 0);
            assert_int_equal(time.end, 6 * m + p - 1);
            if (p == 1) continue;
            time = time_of(plan_simple("v-half", p, 0, m, 1), 1, 2, 1, 1);
            assert_int_equal(time.end - 6 * m, p % 2 == 0 && p > 2 ? 3 * p - 6 : p == 2 ? 2 : 3 * p - 4);
            time = time_of(plan_simple("v-min", p, 0, m, 1), 1, 2, 1, 1);
            assert_int_equal(time.end - 6 * m, p % 3 == 0 ? 4 * p - 3 : 4 * p - 5);
        }
}

/* Chimera, D = p even: each direction takes half of the micro-batches; idle 2 (p - 2) with F = 1, B = 2 for any number of whole units (16 slots
   for 12 of work at D = 4). DualPipeV: only a bound, 1F1B's, because nothing is gained here by running pairs together. */
static void time_of_both_ways(void **state)
{
    int64_t p, units;
    (void)state;
    for (p = 2; p <= 16; p += 2)
        for (units = 1; units <= 4; units++) {
            const test_time time = time_of(plan_both("bidirectional", p, units * p / 2, units * p / 2, 1), 1, 2, 1, 1);
            assert_int_equal(time.end - 3 * units * p, 2 * (p - 2));
        }
    for (p = 4; p <= 16; p += 2) /* BitPipe: less idle than 3 (p - 1), interleaved's with two stages a rank; at m = p its published 2 or 6 */
        for (units = 1; units <= 4; units++) {
            const int64_t idle = time_of(plan_both_v("bitpipe", p, units * p / 2, units * p / 2, 1), 1, 2, 1, 1).end - 6 * units * p;
            if (idle >= 3 * (p - 1)) fail_msg("bitpipe, %d ranks, %d micro-batches: idle for %d", (int)p, (int)(units * p), (int)idle);
            assert_true(p > 4 || units > 1 || idle == 2 * (p - 2));
        }
    for (p = 2; p <= 16; p++)
        assert_true(time_of(plan_simple("dualpipev", p, 0, 3 * p, 1), 1, 2, 1, 1).end - 6 * 3 * p <= 6 * (p - 1));
}

/* ---- every schedule on every kind of plan ---- */

static const struct { const char *name; int shape; } all[] = { /* shape: 0 any, 1 round, 2 V, 3 both ways, 4 two V */
    { "gpipe", 0 }, { "1f1b", 0 }, { "interleaved", 1 }, { "zb-h1", 0 }, { "zb-h2", 0 }, { "zb-v", 2 }, { "v-half", 2 }, { "v-min", 2 },
    { "greedy", 0 }, { "bidirectional", 3 }, { "bitpipe", 4 }, { "dualpipev", 2 }, { "terapipe", 0 }, { "sliced-1f1b", 0 },
    { "timed", 0 },
};
#define ALL (sizeof all / sizeof *all)

static test_plan *plan_of_shape(const char *name, int shape, int64_t ranks, int64_t count0, int64_t count1, int64_t slices)
{
    if (shape == 3) return plan_both(name, ranks, count0, count1, slices);
    if (shape == 4) return plan_both_v(name, ranks, count0, count1, slices);
    return plan_simple(name, ranks, shape == 2 ? 0 : shape == 1 ? 2 : 1, count0, slices);
}

/* Some ranks in random order. */
static int64_t some_ranks(uint64_t *random, int64_t ranks, int64_t *rank)
{
    const int64_t count = 1 + support_below(random, ranks);
    int64_t i;
    for (i = 0; i < ranks; i++) rank[i] = i;
    for (i = 0; i < count; i++) {
        const int64_t j = i + support_below(random, ranks - i), swap = rank[i];
        rank[i] = rank[j];
        rank[j] = swap;
    }
    return count;
}

static void add_random_pipeline(test_plan *made, int shape, uint64_t *random, int64_t most_count)
{
    int64_t rank[16], chunk, i, chunks = 1 + support_below(random, 3);
    const int64_t ranks = some_ranks(random, made->plan.ranks, rank);
    if (shape == 0 && support_below(random, 3) == 0) { /* ragged: any rank any number of times */
        for (i = support_below(random, 12); i >= 0; i--) plan_stage(made, support_below(random, made->plan.ranks));
    } else if (shape <= 1) {
        for (chunk = 0; chunk < (shape == 0 ? 1 : chunks); chunk++)
            for (i = 0; i < ranks; i++) plan_stage(made, rank[i]);
    } else {
        for (i = 0; i < ranks; i++) plan_stage(made, rank[i]);
        if (shape == 3) plan_pipeline(made, support_below(random, most_count));
        for (i = ranks; i-- > 0;) plan_stage(made, rank[i]);
        if (shape == 4) {
            plan_pipeline(made, support_below(random, most_count));
            for (i = ranks; i-- > 0;) plan_stage(made, rank[i]);
            for (i = 0; i < ranks; i++) plan_stage(made, rank[i]);
        }
    }
    plan_pipeline(made, support_below(random, most_count));
}

static void random_plans(void **state)
{
    uint64_t random = 20261121;
    int64_t round;
    size_t n;
    (void)state;
    for (n = 0; n < ALL; n++)
        for (round = 0; round < 400; round++) {
            test_plan *made = plan_start(all[n].name, 1 + support_below(&random, 9), 1 + (round % 3 == 0 ? support_below(&random, 4) : 0));
            int64_t pipelines = round % 2 == 0 ? 1 : 1 + support_below(&random, 4);
            het_schedule *schedule;
            test_clock clock;
            if (round % 5 == 0) made->plan.memory_limit = 1 + 0.1 * (double)support_below(&random, 40);
            while (pipelines-- > 0) add_random_pipeline(made, all[n].shape, &random, 14);
            schedule = make(made);
            clock = clock_run(made, schedule, 1, 2, 1, 1);
            if (clock.wrong[0] != 0) fail_msg("%s, round %d: %s", all[n].name, (int)round, clock.wrong);
            clock_end(&clock);
            het_schedule_free(schedule);
            free(made);
        }
}

/* Every p up to 16 and every count up to 2 p + 2, one pipeline: short groups, fewer micro-batches than ranks, none. */
static void small_counts(void **state)
{
    int64_t p, m;
    size_t n;
    (void)state;
    for (n = 0; n < ALL; n++)
        for (p = 1; p <= 16; p += p < 6 ? 1 : 2)
            for (m = 0; m <= 2 * p + 2; m++) {
                test_plan *made = plan_of_shape(all[n].name, all[n].shape, p, m, m / 2, 1);
                het_schedule *schedule = make(made);
                test_clock clock = clock_run(made, schedule, 1, 2, 1, 1);
                if (clock.wrong[0] != 0) fail_msg("%s, p %d, m %d: %s", all[n].name, (int)p, (int)m, clock.wrong);
                clock_end(&clock);
                het_schedule_free(schedule);
                free(made);
            }
}

/* ---- transfers: what generated lists become when every send waits for its receive ----
   In the order in which lists execute, each output that crosses ranks puts a send behind its producer and at the same moment a receive into
   the consumer's list. A blocking run of these lists must come to its end. */

typedef struct test_event { int64_t partner; int64_t message; int kind; } test_event; /* kind 0 compute, 1 send, 2 receive */

static void blocking(const test_plan *made, const het_schedule *schedule)
{
    const het_plan *plan = &made->plan;
    const int64_t ranks = plan->ranks, total = schedule->start[ranks];
    test_world *world = (test_world *)support_alloc(1, sizeof *world);
    test_event **list = (test_event **)support_alloc((size_t)ranks, sizeof *list);
    int64_t *at = (int64_t *)support_alloc((size_t)ranks, sizeof *at), *count = (int64_t *)support_alloc((size_t)ranks, sizeof *count);
    int64_t r, moved = 1, messages = 0;
    char wrong[100] = "";
    double kept = 0;
    world_start(world, made);
    for (r = 0; r < ranks; r++) {
        list[r] = (test_event *)support_alloc((size_t)(3 * total + 1), sizeof **list);
        at[r] = schedule->start[r];
        count[r] = 0;
    }
    while (moved)
        for (moved = 0, r = 0; r < ranks; r++)
            while (at[r] < schedule->start[r + 1] && clock_ready(world, &schedule->action[at[r]], wrong) >= 0) {
                const het_action *a = &schedule->action[at[r]++];
                const int64_t s = plan->first_stage[a->pipeline] + a->stage, next = a->kind == HET_ACTION_F ? s + 1 : s - 1;
                test_event event = { -1, -1, 0 };
                clock_do(world, a, 0, &kept);
                list[r][count[r]++] = event;
                moved = 1;
                if (a->kind == HET_ACTION_W || next < plan->first_stage[a->pipeline] || next >= plan->first_stage[a->pipeline + 1]) continue;
                if (plan->stage[next].rank == r) continue;
                event.message = messages++;
                event.kind = 1;
                event.partner = plan->stage[next].rank;
                list[r][count[r]++] = event;
                event.kind = 2;
                event.partner = r;
                list[plan->stage[next].rank][count[plan->stage[next].rank]++] = event;
            }
    for (r = 0; r < ranks; r++) { assert_int_equal(at[r], schedule->start[r + 1]); at[r] = 0; }
    for (moved = 1; moved;)
        for (moved = 0, r = 0; r < ranks; r++)
            while (at[r] < count[r]) {
                const test_event *event = &list[r][at[r]];
                if (event->kind != 0) {
                    const int64_t q = event->partner;
                    if (at[q] >= count[q] || list[q][at[q]].message != event->message) break;
                    at[q]++;
                }
                at[r]++;
                moved = 1;
            }
    for (r = 0; r < ranks; r++) {
        assert_int_equal(at[r], count[r]);
        free(list[r]);
    }
    world_end(world);
    free(world);
    free(list);
    free(at);
    free(count);
}

static void rendezvous(void **state)
{
    uint64_t random = 7;
    int64_t round;
    size_t n;
    (void)state;
    for (n = 0; n < ALL; n++)
        for (round = 0; round < 25; round++) {
            test_plan *made = plan_start(all[n].name, 1 + support_below(&random, 6), 1 + support_below(&random, 2));
            het_schedule *schedule;
            add_random_pipeline(made, all[n].shape, &random, 9);
            add_random_pipeline(made, all[n].shape, &random, 9);
            schedule = make(made);
            blocking(made, schedule);
            het_schedule_free(schedule);
            free(made);
        }
}

/* ---- shares ---- */

static void divide(void **state)
{
    static const struct { int64_t pipelines; double share[4]; int64_t micro_batches, counts[4]; } cases[] = {
        { 1, { 1 }, 7, { 7 } },
        { 3, { 1, 1, 1 }, 7, { 3, 2, 2 } },               /* a tie: the lower pipeline */
        { 3, { 0.1, 0.2, 0.3 }, 6, { 1, 2, 3 } },         /* 0.1 + 0.2 + 0.3 is not 0.6 */
        { 4, { 3, 1, 1, 1 }, 8, { 4, 2, 1, 1 } },         /* quotas 4, 4/3, 4/3, 4/3 */
        { 3, { 5, 3, 2 }, 7, { 4, 2, 1 } },               /* quotas 3.5, 2.1, 1.4 */
        { 2, { 0.5, 0.1 }, 9, { 8, 1 } },                 /* 7.5 and 1.5, but for rounding: a tie */
        { 3, { 1, 0, 1 }, 5, { 3, 0, 2 } },
        { 3, { 0, 0, 5 }, 5, { 0, 0, 5 } },
        { 2, { 0, 0 }, 5, { 3, 2 } },                     /* no shares: all alike */
        { 4, { 1, 1, 1, 1 }, 0, { 0, 0, 0, 0 } },
    };
    uint64_t random = 5;
    size_t c;
    int64_t p, q, round;
    (void)state;
    for (c = 0; c < sizeof cases / sizeof *cases; c++) {
        test_plan *made = plan_start("1f1b", 1, 1);
        for (p = 0; p < cases[c].pipelines; p++) { plan_pipeline(made, -1); made->share[p] = cases[c].share[p]; }
        het_plan_micro_batches(&made->plan, cases[c].micro_batches, made->counts);
        for (p = 0; p < cases[c].pipelines; p++) assert_int_equal(made->counts[p], cases[c].counts[p]);
        free(made);
    }
    for (round = 0; round < 300; round++) { /* sum, no more than one away from the quota, larger remainders first */
        test_plan *made = plan_start("1f1b", 1, 1);
        const int64_t pipelines = 1 + support_below(&random, 20), micro_batches = support_below(&random, 1000);
        double total = 0, rest[20];
        int64_t sum = 0;
        for (p = 0; p < pipelines; p++) { plan_pipeline(made, -1); total += made->share[p] = 0.01 + fabs(support_uniform(&random)); }
        het_plan_micro_batches(&made->plan, micro_batches, made->counts);
        for (p = 0; p < pipelines; p++) {
            const double quota = (double)micro_batches * made->share[p] / total;
            sum += made->counts[p];
            rest[p] = quota - floor(quota);
            assert_true(fabs((double)made->counts[p] - quota) < 1);
        }
        assert_int_equal(sum, micro_batches);
        for (p = 0; p < pipelines; p++)
            for (q = 0; q < pipelines; q++) {
                const double up = (double)made->counts[p] - floor((double)micro_batches * made->share[p] / total);
                const double other = (double)made->counts[q] - floor((double)micro_batches * made->share[q] / total);
                if (up > 0.5 && other < 0.5) assert_true(rest[p] > rest[q] - 1e-6);
            }
        free(made);
    }
}

/* ---- a rule of one's own ---- */

/* The oldest backward that is ready, else a forward; or, for a wrong rule, work of the next rank. */
static int oldest_first(void *user, const het_play *play, int64_t rank, int64_t stage[2], int32_t kind[2])
{
    const int64_t wrong = *(const int64_t *)user;
    int32_t k;
    int64_t s;
    for (k = HET_ACTION_B; k >= HET_ACTION_F; k--)
        for (s = 0; s < play->plan->stages; s++) {
            if (play->plan->stage[s].rank != (rank + wrong) % play->plan->ranks || !het_play_ready(play, s, k)) continue;
            stage[0] = s;
            kind[0] = k;
            return 1;
        }
    return 0;
}

/* Answers that a rule must not give. */
static int nonsense(void *user, const het_play *play, int64_t rank, int64_t stage[2], int32_t kind[2])
{
    const int64_t which = *(const int64_t *)user;
    (void)play;
    stage[0] = which == 1 ? -1 : which == 2 ? 4 : which == 3 ? INT64_MAX : rank;
    stage[1] = rank;
    kind[0] = kind[1] = which == 4 ? 77 : HET_ACTION_F;
    return which == 5 ? 2 : which == 4 ? 9 : 1;
}

static void a_rule_makes_lists(void **state)
{
    test_plan *made = plan_simple("", 4, 1, 6, 2);
    het_schedule *schedule = NULL;
    test_clock clock;
    het_rule rule;
    het_error error;
    int64_t wrong = 0;
    (void)state;
    memset(&rule, 0, sizeof rule);
    rule.user = &wrong;
    rule.choose = oldest_first;
    assert_int_equal(het_schedule_play(&made->plan, made->counts, &rule, NULL, &schedule, &error), HET_OK);
    clock = clock_run(made, schedule, 1, 2, 1, 1);
    assert_string_equal(clock.wrong, "");
    clock_end(&clock);
    het_schedule_free(schedule);
    wrong = 1; /* what is another rank's is never begun */
    assert_int_equal(het_schedule_play(&made->plan, made->counts, &rule, NULL, &schedule, &error), HET_OK);
    assert_int_equal(schedule->start[4], 0);
    het_schedule_free(schedule);
    for (rule.choose = nonsense; wrong < 6; wrong++) { /* nor what no stage has, or more than it has to do */
        assert_int_equal(het_schedule_play(&made->plan, made->counts, &rule, NULL, &schedule, &error), HET_OK);
        assert_int_equal(schedule->start[4], 0);
        het_schedule_free(schedule);
    }
    made->counts[0] = -1;
    assert_int_equal(het_schedule_play(&made->plan, made->counts, &rule, NULL, &schedule, &error), HET_ERR_INVALID);
    free(made);
}

/* ---- what does not fit ---- */

static void refuse(test_plan *made, const char *words)
{
    het_schedule *schedule = (het_schedule *)made;
    het_error error;
    error.text[0] = 0;
    support_expect(het_schedule_make(&made->plan, made->counts, NULL, &schedule, &error), HET_ERR_INVALID, error.text, words, words, __LINE__);
    assert_null(schedule);
    free(made);
}

static void misfits(void **state)
{
    test_plan *made;
    het_schedule *schedule = NULL;
    het_error error;
    (void)state;
    refuse(plan_simple("zb-w", 2, 1, 2, 1),
           "zb-w|gpipe, 1f1b, interleaved|zb-h1, zb-h2, zb-v, v-half, v-min|greedy, timed|bidirectional, bitpipe, dualpipev, terapipe, sliced-1f1b");
    refuse(plan_simple("", 2, 1, 2, 1), "1f1b");
    refuse(plan_simple("zb-v", 4, 1, 2, 1), "zb-v|two stages a rank|pipeline 0 has 4 stages on 4 ranks");
    refuse(plan_simple("v-min", 4, 2, 2, 1), "v-min|pipeline 0 has 8 stages on 4 ranks, stage 0 on rank 0");
    refuse(plan_simple("v-half", 1, 1, 2, 1), "v-half|1 stages on 1 ranks");
    refuse(plan_simple("dualpipev", 3, 1, 2, 1), "dualpipev|V shape");
    refuse(plan_simple("interleaved", 4, 0, 2, 1), "interleaved|same number of stages|pipeline 0 has 8 stages on 4 ranks");
    refuse(plan_simple("bidirectional", 4, 1, 2, 1), "bidirectional|opposite order|pipeline 0");
    made = plan_simple("bidirectional", 2, 1, 2, 1);
    plan_stage(made, 0);
    plan_stage(made, 1);
    plan_pipeline(made, 1);
    refuse(made, "bidirectional|pipeline 0");
    refuse(plan_simple("bitpipe", 2, 0, 2, 1), "bitpipe|opposite order|pipeline 0");
    refuse(plan_both("bitpipe", 2, 2, 2, 1), "bitpipe|V shape|2 stages on 2 ranks");
    made = plan_simple("zb-v", 2, 0, 2, 1); /* the second pipeline is the one that does not fit */
    plan_stage(made, 0);
    plan_pipeline(made, 0);
    refuse(made, "zb-v|pipeline 1 has 1 stages");
    made = plan_simple("greedy", 2, 1, 2, 1);
    made->plan.memory_limit = 0.9;
    refuse(made, "memory_limit is 0.9|greedy");
    made = plan_simple("greedy", 2, 1, 2, 1);
    made->plan.memory_limit = -1;
    refuse(made, "memory_limit is -1");
    refuse(plan_simple("1f1b", 2, 1, -1, 1), "pipeline 0|-1");
    refuse(plan_simple("1f1b", 2, 1, INT64_C(1) << 31, 1), "2147483648");
    refuse(plan_simple("1f1b", 2, 1, 1 << 20, 1 << 20), "1048576");
    refuse(plan_simple("1f1b", 2, 1, 1, 0), "0 slices");
    made = plan_simple("1f1b", 2, 1, 1, 1);
    made->stage[1].rank = 2;
    refuse(made, "stage 1|rank 2|2 ranks");
    made = plan_simple("1f1b", 2, 1, 1, 1);
    plan_pipeline(made, 1);
    refuse(made, "pipeline 1 has no stage");
    made = plan_simple("1f1b", 2, 1, 1, 1);
    memset(made->plan.schedule, 'x', sizeof made->plan.schedule);
    refuse(made, "no end");
    made = plan_simple("1f1b", 2, 1, 1, 1);
    assert_int_equal(het_schedule_make(NULL, made->counts, NULL, &schedule, &error), HET_ERR_INVALID);
    assert_int_equal(het_schedule_make(&made->plan, NULL, NULL, &schedule, &error), HET_ERR_INVALID);
    assert_int_equal(het_schedule_make(&made->plan, made->counts, NULL, NULL, NULL), HET_ERR_INVALID);
    free(made);
    het_schedule_free(NULL);
}

/* ---- memory that ends, and size ---- */

static void out_of_memory(void **state)
{
    size_t n;
    (void)state;
    for (n = 0; n < ALL; n++) {
        test_plan *made = plan_of_shape(all[n].name, all[n].shape, 4, 20, 20, 2);
        het_result result = HET_ERR_OOM;
        int64_t at;
        for (at = 0; result != HET_OK; at++) {
            support_memory memory_;
            het_allocator allocator = support_allocator(&memory_);
            het_schedule *schedule = NULL;
            het_error error;
            memory_.fail_at = at;
            result = het_schedule_make(&made->plan, made->counts, &allocator, &schedule, &error);
            if (result != HET_OK) {
                assert_int_equal(result, HET_ERR_OOM);
                assert_null(schedule);
                assert_non_null(strstr(error.text, "memory"));
            } else {
                assert_int_equal(memory_.live, 1); /* one block */
                assert_int_equal(memory_.bytes, schedule->size);
                het_schedule_free(schedule);
            }
            assert_int_equal(memory_.live, 0);
            assert_int_equal(memory_.wrong, 0);
        }
        assert_true(at >= 4);
        free(made);
    }
}

/* 2,000 ranks in a row and data parallelism of 2,000: far more actions than a quadratic generator would get through. */
static void many_ranks(void **state)
{
    test_plan *made = plan_simple("1f1b", 2000, 1, 64, 1);
    het_schedule *schedule = make(made);
    int64_t r;
    (void)state;
    assert_int_equal(schedule->start[2000], 2000 * 128);
    assert_int_equal(schedule->action[schedule->start[1999] + 1].kind, HET_ACTION_B);
    het_schedule_free(schedule);
    free(made);
    made = plan_start("zb-h1", 2000, 1);
    for (r = 0; r < 2000; r++) {
        plan_stage(made, 1999 - r);
        plan_pipeline(made, r % 7);
    }
    schedule = make(made);
    for (r = 0; r < 2000; r++) assert_int_equal(schedule->start[2000 - r] - schedule->start[1999 - r], 3 * (r % 7));
    het_schedule_free(schedule);
    free(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dualpipev_of_pytorch), cmocka_unit_test(order_of_1f1b),     cmocka_unit_test(order_of_interleaved),
        cmocka_unit_test(memory),               cmocka_unit_test(memory_of_slices),  cmocka_unit_test(memory_of_greedy),
        cmocka_unit_test(timed_on_a_v),
        cmocka_unit_test(time_of_unsplit),      cmocka_unit_test(time_of_split),     cmocka_unit_test(time_of_both_ways),
        cmocka_unit_test(random_plans),         cmocka_unit_test(small_counts),      cmocka_unit_test(rendezvous),
        cmocka_unit_test(divide),               cmocka_unit_test(misfits),           cmocka_unit_test(out_of_memory),
        cmocka_unit_test(many_ranks),           cmocka_unit_test(a_rule_makes_lists),
    };
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
