/* Schedules by name, against a checker and a clock written apart from the generator: validity of all of them on random plans, closed forms
   of memory and idle time from the papers, Megatron's and PyTorch's published orders. */
#include "support.h"

/* ---- plans without a reader ---- */

#define MOST_STAGES 4096
typedef struct test_plan {
    het_plan plan;
    het_stage stage[MOST_STAGES];
    int64_t first_stage[MOST_STAGES + 1];
    int64_t counts[MOST_STAGES];
    double share[MOST_STAGES];
} test_plan;

static test_plan *plan_start(const char *schedule, int64_t ranks, int64_t slices)
{
    test_plan *made = (test_plan *)support_alloc(1, sizeof *made);
    memset(made, 0, sizeof *made);
    made->plan.ranks = ranks;
    made->plan.slices = slices;
    made->plan.stage = made->stage;
    made->plan.first_stage = made->first_stage;
    made->plan.share = made->share;
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
    made->counts[made->plan.pipelines] = count;
    made->share[made->plan.pipelines++] = 1;
    made->first_stage[made->plan.pipelines] = made->plan.stages;
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

/* Time computing plus idle time between a rank's first and last action. */
static int64_t clock_span(const test_clock *clock)
{
    int64_t r, most = 0;
    for (r = 0; r < clock->ranks; r++)
        if (clock->first[r] >= 0 && clock->last[r] - clock->first[r] > most) most = clock->last[r] - clock->first[r];
    return most;
}

static int64_t clock_idle(const test_clock *clock)
{
    int64_t r, most = 0;
    for (r = 0; r < clock->ranks; r++)
        if (clock->first[r] >= 0 && clock->last[r] - clock->first[r] - clock->busy[r] > most) most = clock->last[r] - clock->first[r] - clock->busy[r];
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
            int n = sprintf(text, "%s%s%d%c%d", i > schedule->start[r] && !second ? "," : "", a->overlap ? "(" : "", a->stage, "FBIW"[a->kind], a->micro_batch);
            if (a->slice != 0) n += sprintf(text + n, ".%d", a->slice);
            if (a->pipeline != 0) n += sprintf(text + n, "@%d", a->pipeline);
            n += sprintf(text + n, "%s%s", a->overlap ? ";" : "", second ? ")OVERLAP_F_B" : "");
            support_buffer_append(to, text, (size_t)n);
        }
        support_buffer_append(to, "\n", r + 1 < schedule->ranks);
    }
}

/* ---- orders made by others ---- */

/* tests/oracle/data/dualpipev_4rank_10mb.csv: pytorch/pytorch test/distributed/pipelining/artifacts, commit a2af973f. */
static void dualpipev_of_pytorch(void **state)
{
    test_plan *made = plan_simple("dualpipev", 4, 0, 10, 1);
    het_schedule *schedule = make(made);
    FILE *file = fopen("tests/oracle/data/dualpipev_4rank_10mb.csv", "rb");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dualpipev_of_pytorch),
    };
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
