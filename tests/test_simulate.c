/* The simulator against closed forms, published figures and a second simulator that is slow and obvious; traces and pictures against the
   grammars of JSON and XML. Schedules are made here, so that nothing depends on the header's generators. */
#include "support.h"

#include <time.h>

#include "hetrain_plan.h"

/* ---- plans and lists made by hand ---- */

#define MOST_STAGES 64
#define MOST_ACTIONS 40000

typedef struct made {
    het_plan plan;
    het_schedule schedule;
    het_costs costs;
    het_stage stage[MOST_STAGES];
    int64_t first_stage[MOST_STAGES + 1], micro_batches[MOST_STAGES], start[MOST_STAGES + 1];
    double share[MOST_STAGES], state_share[MOST_STAGES], slice_share[8], scale[512];
    het_stage_cost stage_cost[MOST_STAGES];
    het_link_cost link[MOST_STAGES * MOST_STAGES];
    het_block_cost block_cost[MOST_STAGES];
    het_action action[MOST_ACTIONS];
    int64_t count;
} made;

/* Empty, with everything pointing where it belongs. The struct must not be copied afterwards. */
static made *make(int64_t ranks)
{
    made *m = (made *)support_alloc(1, sizeof *m);
    int64_t r;
    memset(m, 0, sizeof *m);
    m->plan.ranks = m->schedule.ranks = ranks;
    m->plan.slices = 1;
    m->plan.stage = m->stage;
    m->plan.first_stage = m->first_stage;
    m->plan.share = m->share;
    m->plan.state_share = m->state_share;
    m->plan.slice_share = m->slice_share;
    m->schedule.micro_batches = m->micro_batches;
    m->schedule.start = m->start;
    m->schedule.action = m->action;
    m->costs.stage = m->stage_cost;
    for (r = 0; r < ranks; r++) m->state_share[r] = 1;
    m->slice_share[0] = 1;
    return m;
}

/* Starts a pipeline, whose stages follow. */
static void add_pipeline(made *m, int64_t micro_batches)
{
    m->micro_batches[m->plan.pipelines++] = micro_batches;
    m->schedule.pipelines = m->plan.pipelines;
    m->first_stage[m->plan.pipelines] = m->plan.stages;
}

static void add_stage(made *m, int64_t rank, double forward, double input, double weight)
{
    const int64_t g = m->plan.stages++;
    m->stage[g].pipeline = m->plan.pipelines - 1;
    m->stage[g].rank = rank;
    m->stage[g].unit_begin = 2 * g;
    m->stage[g].unit_end = 2 * g + 2;
    m->stage_cost[g].forward = forward;
    m->stage_cost[g].input = input;
    m->stage_cost[g].weight = weight;
    m->stage_cost[g].backward = input + weight;
    m->first_stage[m->plan.pipelines] = m->plan.stages;
}

static void add(made *m, int32_t kind, int64_t stage, int64_t micro_batch)
{
    het_action *a = &m->action[m->count++];
    assert_true(m->count <= MOST_ACTIONS);
    memset(a, 0, sizeof *a);
    a->kind = kind;
    a->stage = (int32_t)stage;
    a->micro_batch = (int32_t)micro_batch;
}

/* One pipeline of `ranks` equal stages; the lists follow. */
static made *chain(int64_t ranks, int64_t micro_batches, double forward, double input, double weight)
{
    made *m = make(ranks);
    int64_t r;
    add_pipeline(m, micro_batches);
    for (r = 0; r < ranks; r++) add_stage(m, r, forward, input, weight);
    return m;
}

static made *gpipe(int64_t ranks, int64_t micro_batches, double forward, double input, double weight)
{
    made *m = chain(ranks, micro_batches, forward, input, weight);
    int64_t r, i;
    for (r = 0; r < ranks; r++) {
        for (i = 0; i < micro_batches; i++) add(m, HET_ACTION_F, r, i);
        for (i = 0; i < micro_batches; i++) add(m, HET_ACTION_B, r, i);
        m->start[r + 1] = m->count;
    }
    return m;
}

static made *one_f_one_b(int64_t ranks, int64_t micro_batches, double forward, double input, double weight)
{
    made *m = chain(ranks, micro_batches, forward, input, weight);
    int64_t r, i;
    for (r = 0; r < ranks; r++) {
        int64_t warm = ranks - r < micro_batches ? ranks - r : micro_batches;
        for (i = 0; i < warm; i++) add(m, HET_ACTION_F, r, i);
        for (i = 0; i < micro_batches; i++) {
            add(m, HET_ACTION_B, r, i);
            if (warm + i < micro_batches) add(m, HET_ACTION_F, r, warm + i);
        }
        m->start[r + 1] = m->count;
    }
    return m;
}

static het_simulation *run(const made *m, int keep)
{
    het_simulation *simulation = NULL;
    het_error error;
    error.text[0] = 0;
    EXPECT_ERROR(het_simulate(&m->plan, &m->schedule, &m->costs, keep ? HET_YES : HET_NO, NULL, &simulation, &error), HET_OK, error.text, "");
    assert_non_null(simulation);
    return simulation;
}

/* Whole numbers must come out exactly, so doubles are compared as they are. */
#define EXACTLY(a, b) assert_true((a) >= (b) && (a) <= (b))

/* ---- random schedules ---- */

typedef struct op { het_action action; int64_t rank, need[4]; int placed; } op;

static int64_t find_op(const op *ops, int64_t count, int kind, int kind2, const het_action *like, int64_t stage)
{
    int64_t i;
    for (i = 0; i < count; i++) {
        const het_action *a = &ops[i].action;
        if ((a->kind == kind || a->kind == kind2) && a->pipeline == like->pipeline && a->stage == stage && a->micro_batch == like->micro_batch && a->slice == like->slice) return i;
    }
    return -1;
}

static int64_t stages_of(const made *m, int64_t pipeline) { return m->first_stage[pipeline + 1] - m->first_stage[pipeline]; }
static int64_t rank_of(const made *m, int64_t pipeline, int64_t stage) { return stage < 0 || stage >= stages_of(m, pipeline) ? -1 : m->stage[m->first_stage[pipeline] + stage].rank; }

static int64_t put_op(made *m, op *ops, int64_t count, int32_t kind, int64_t pipeline, int64_t stage, int64_t micro_batch, int64_t slice)
{
    op *o = &ops[count];
    memset(o, 0, sizeof *o);
    o->action.kind = kind;
    o->action.pipeline = (int32_t)pipeline;
    o->action.stage = (int32_t)stage;
    o->action.micro_batch = (int32_t)micro_batch;
    o->action.slice = (int32_t)slice;
    o->rank = kind >= HET_ACTION_REDUCE ? -1 : rank_of(m, pipeline, stage);
    o->need[0] = o->need[1] = o->need[2] = o->need[3] = -1;
    return count + 1;
}

/* What has to come before what, in any order that is then drawn. */
static void link_ops(const made *m, op *ops, int64_t count)
{
    int64_t i;
    for (i = 0; i < count; i++) {
        op *o = &ops[i];
        const het_action *a = &o->action;
        const int64_t before = rank_of(m, a->pipeline, a->stage - 1), after = rank_of(m, a->pipeline, a->stage + 1);
        const int complete = m->schedule.complete;
        switch (a->kind) {
        case HET_ACTION_F:
            if (before >= 0) o->need[0] = complete && before != o->rank ? find_op(ops, count, HET_ACTION_SEND_F, -1, a, a->stage - 1) : find_op(ops, count, HET_ACTION_F, -1, a, a->stage - 1);
            break;
        case HET_ACTION_B: case HET_ACTION_I:
            o->need[0] = find_op(ops, count, HET_ACTION_F, -1, a, a->stage);
            if (after >= 0) o->need[1] = complete && after != o->rank ? find_op(ops, count, HET_ACTION_SEND_B, -1, a, a->stage + 1) : find_op(ops, count, HET_ACTION_B, HET_ACTION_I, a, a->stage + 1);
            break;
        case HET_ACTION_W: o->need[0] = find_op(ops, count, HET_ACTION_I, -1, a, a->stage); break;
        case HET_ACTION_SEND_F: o->need[0] = find_op(ops, count, HET_ACTION_F, -1, a, a->stage); break;
        case HET_ACTION_SEND_B: o->need[0] = find_op(ops, count, HET_ACTION_B, HET_ACTION_I, a, a->stage); break;
        default: break; /* a RECV may be anywhere */
        }
    }
}

static void shuffle(int64_t *list, int64_t count, uint64_t *seed)
{
    int64_t i;
    for (i = count - 1; i > 0; i--) {
        int64_t j = support_below(seed, i + 1), kept = list[i];
        list[i] = list[j];
        list[j] = kept;
    }
}

/* A plan with ragged pipelines, whole numbers for all costs, and lists that are some linear order of what depends on what. */
static made *random_made(uint64_t *seed)
{
    static op ops[4000];
    static int64_t order[4000];
    const int64_t ranks = 1 + support_below(seed, 6), pipelines = 1 + support_below(seed, 3);
    made *m = make(ranks);
    int64_t p, r, i, k, b, count = 0, placed = 0, blocks, n;
    m->schedule.complete = (int32_t)support_below(seed, 2);
    m->plan.slices = 1 + support_below(seed, 3);
    m->slice_share[1] = 2;
    m->slice_share[2] = 1; /* sums of 1, 3, 4 */
    if (m->plan.slices == 2) m->slice_share[0] = 2;
    for (p = 0; p < pipelines; p++) {
        const int64_t stages = 1 + support_below(seed, 5);
        add_pipeline(m, support_below(seed, 5));
        for (i = 0; i < stages; i++) add_stage(m, support_below(seed, ranks), (double)(4 * support_below(seed, 20)), (double)(4 * support_below(seed, 20)), (double)(4 * support_below(seed, 20)));
    }
    for (i = 0; i < m->plan.stages; i++) m->stage_cost[i].bytes = (double)(64 * support_below(seed, 10));
    for (i = 0; i < ranks * ranks; i++) {
        m->link[i].latency = (double)support_below(seed, 7);
        m->link[i].bandwidth = support_below(seed, 3) == 0 ? 0 : (double)((int64_t)1 << support_below(seed, 5));
    }
    m->costs.link = m->link;
    for (i = 0; i < 512; i++) m->scale[i] = 0.5 * (double)(1 + support_below(seed, 3));
    if (support_below(seed, 2) == 0) m->costs.micro_batch_scale = m->scale;
    for (r = 0; r < ranks; r++) m->state_share[r] = (double)support_below(seed, 3);
    blocks = m->schedule.complete ? 1 + support_below(seed, 5) : 0;
    for (b = 0; b < blocks; b++) {
        m->block_cost[b].reduce_bytes = (double)(480 * support_below(seed, 9));
        m->block_cost[b].gather_bytes = (double)(240 * support_below(seed, 9));
        m->block_cost[b].step = (double)(60 * support_below(seed, 9));
    }
    m->costs.block = m->block_cost;
    m->costs.blocks = blocks;
    for (p = 0; p < pipelines; p++)
        for (i = 0; i < stages_of(m, p); i++)
            for (n = 0; n < m->micro_batches[p]; n++)
                for (k = 0; k < m->plan.slices; k++) {
                    const int64_t here = rank_of(m, p, i), before = rank_of(m, p, i - 1), after = rank_of(m, p, i + 1);
                    count = put_op(m, ops, count, HET_ACTION_F, p, i, n, k);
                    if (support_below(seed, 2) == 0) count = put_op(m, ops, count, HET_ACTION_B, p, i, n, k);
                    else {
                        count = put_op(m, ops, count, HET_ACTION_I, p, i, n, k);
                        count = put_op(m, ops, count, HET_ACTION_W, p, i, n, k);
                    }
                    if (!m->schedule.complete) continue;
                    if (before >= 0 && before != here) count = put_op(m, ops, count, HET_ACTION_SEND_B, p, i, n, k);
                    if (before >= 0 && before != here) count = put_op(m, ops, count, HET_ACTION_RECV_F, p, i, n, k);
                    if (after >= 0 && after != here) count = put_op(m, ops, count, HET_ACTION_SEND_F, p, i, n, k);
                    if (after >= 0 && after != here) count = put_op(m, ops, count, HET_ACTION_RECV_B, p, i, n, k);
                }
    link_ops(m, ops, count);
    for (b = 0; b < blocks; b++) { /* holders: at least one */
        const int64_t sure = support_below(seed, ranks);
        for (r = 0; r < ranks; r++)
            if (r == sure || support_below(seed, 2) == 0) {
                count = put_op(m, ops, count, HET_ACTION_REDUCE, 0, b, 0, 0);
                ops[count - 1].rank = r;
            }
    }
    for (i = 0; i < count; i++) order[i] = i;
    shuffle(order, count, seed);
    while (placed < count) /* the next of the shuffled ones whose needs are met */
        for (i = placed; i < count; i++) {
            const op *o = &ops[order[i]];
            int64_t kept = order[i], need = 0;
            while (need < 4 && (o->need[need] < 0 || ops[o->need[need]].placed)) need++;
            if (need < 4) continue;
            memmove(order + placed + 1, order + placed, (size_t)(i - placed) * sizeof *order);
            order[placed++] = kept;
            ops[kept].placed = 1;
            break;
        }
    for (r = 0; r < ranks; r++) {
        int64_t mine[MOST_STAGES], held = 0;
        for (i = 0; i < count; i++)
            if (ops[order[i]].rank == r) {
                m->action[m->count++] = ops[order[i]].action;
                if (ops[order[i]].action.kind == HET_ACTION_REDUCE) mine[held++] = ops[order[i]].action.stage;
            }
        if (m->schedule.complete) {
            add(m, HET_ACTION_VERDICT, 0, 0);
            shuffle(mine, held, seed);
            for (i = 0; i < held; i++) {
                add(m, HET_ACTION_STEP, mine[i], 0);
                if (support_below(seed, 2) == 0) add(m, HET_ACTION_GATHER, mine[i], 0);
                else mine[held + i] = -1;
            }
            for (i = 0; i < held; i++) {
                for (b = m->start[r]; b < m->count && !(m->action[b].kind == HET_ACTION_GATHER && m->action[b].stage == mine[i]); b++) {}
                if (b == m->count) add(m, HET_ACTION_GATHER, mine[i], 0);
            }
        }
        m->start[r + 1] = m->count;
    }
    return m;
}

/* ---- the slow simulator: every time is written down as the maximum of what it waits for, and all are computed again until none changes ---- */

typedef struct slow {
    const made *m;
    double start[MOST_ACTIONS], end[MOST_ACTIONS]; /* of the rank's time */
    double leaves[MOST_ACTIONS];                   /* when the message of a SEND, or of a compute action in lists without, has left */
    double ring[MOST_ACTIONS];                     /* when the ring of a REDUCE or GATHER is done; 0: not timed yet */
    double verdict;
} slow;

static int64_t rank_at(const made *m, int64_t i)
{
    int64_t r = 0;
    while (i >= m->start[r + 1]) r++;
    return r;
}

static int is_forward(int kind) { return kind == HET_ACTION_F || kind == HET_ACTION_SEND_F || kind == HET_ACTION_RECV_F; }

static double slow_part(const made *m, const het_action *a, double whole)
{
    int64_t p, before = 0, k;
    double sum = 0;
    for (p = 0; p < a->pipeline; p++) before += m->micro_batches[p];
    for (k = 0; k < m->plan.slices; k++) sum += m->slice_share[k];
    if (m->costs.micro_batch_scale != NULL) whole *= m->scale[before + a->micro_batch];
    return m->plan.slices > 1 ? whole * m->slice_share[a->slice] / sum : whole;
}

/* The rank this action sends a message to, or -1. */
static int64_t slow_to(const made *m, int64_t i)
{
    const het_action *a = &m->action[i];
    int64_t to = -1;
    if (m->schedule.complete ? a->kind == HET_ACTION_SEND_F : a->kind == HET_ACTION_F) to = rank_of(m, a->pipeline, a->stage + 1);
    if (m->schedule.complete ? a->kind == HET_ACTION_SEND_B : a->kind == HET_ACTION_B || a->kind == HET_ACTION_I) to = rank_of(m, a->pipeline, a->stage - 1);
    return to == rank_at(m, i) ? -1 : to;
}

static double slow_bytes(const made *m, const het_action *a)
{
    return slow_part(m, a, m->stage_cost[m->first_stage[a->pipeline] + a->stage - (is_forward(a->kind) ? 0 : 1)].bytes);
}

/* When what an F, B or I needs is there. */
static double slow_there(const slow *s, int64_t at)
{
    const made *m = s->m;
    const het_action *a = &m->action[at];
    const int64_t stage = a->stage + (a->kind == HET_ACTION_F ? -1 : 1), rank = rank_at(m, at), from = rank_of(m, a->pipeline, stage);
    int64_t i;
    if (a->kind == HET_ACTION_W || from < 0) return 0;
    for (i = 0; i < m->count; i++) {
        const het_action *b = &m->action[i];
        if (b->pipeline != a->pipeline || b->stage != stage || b->micro_batch != a->micro_batch || b->slice != a->slice || b->kind > HET_ACTION_RECV_B || b->kind == HET_ACTION_W || is_forward(b->kind) != is_forward(a->kind)) continue;
        if (from == rank) {
            if (b->kind <= HET_ACTION_I) return s->end[i];
        } else if (slow_to(m, i) == rank) return s->leaves[i] + m->link[from * m->plan.ranks + rank].latency;
    }
    fail();
    return 0;
}

static double slow_seconds(const made *m, int64_t at)
{
    const het_action *a = &m->action[at];
    const het_stage_cost *c = &m->stage_cost[a->kind <= HET_ACTION_W ? m->first_stage[a->pipeline] + a->stage : 0];
    double sum = 0, held = 0;
    int64_t i;
    if (a->kind == HET_ACTION_F) return slow_part(m, a, c->forward);
    if (a->kind == HET_ACTION_B) return slow_part(m, a, c->backward);
    if (a->kind == HET_ACTION_I) return slow_part(m, a, c->input);
    if (a->kind == HET_ACTION_W) return slow_part(m, a, c->weight);
    if (a->kind != HET_ACTION_STEP) return 0;
    for (i = 0; i < m->count; i++)
        if (m->action[i].kind == HET_ACTION_STEP && m->action[i].stage == a->stage) {
            sum += m->state_share[rank_at(m, i)];
            held++;
        }
    return sum > 0 ? m->block_cost[a->stage].step * m->state_share[rank_at(m, at)] / sum : m->block_cost[a->stage].step / held;
}

static void slow_settle(slow *s)
{
    const made *m = s->m;
    int changed = 1;
    while (changed) {
        int64_t i, j;
        changed = 0;
        for (i = 0; i < m->count; i++) {
            const int64_t r = rank_at(m, i), to = slow_to(m, i);
            double start = i > m->start[r] ? s->end[i - 1] : 0, end, leaves = 0;
            if (m->action[i].kind <= HET_ACTION_W && slow_there(s, i) > start) start = slow_there(s, i);
            end = start + slow_seconds(m, i);
            if (m->action[i].kind == HET_ACTION_VERDICT && s->verdict > end) end = s->verdict;
            if (to >= 0) {
                const double bandwidth = m->link[r * m->plan.ranks + to].bandwidth;
                leaves = end;
                for (j = m->start[r]; j < i; j++)
                    if (slow_to(m, j) == to && s->leaves[j] > leaves) leaves = s->leaves[j];
                if (bandwidth > 0) leaves += slow_bytes(m, &m->action[i]) / bandwidth;
            }
            if (start > s->start[i] || end > s->end[i] || leaves > s->leaves[i]) changed = 1;
            s->start[i] = start;
            s->end[i] = end;
            s->leaves[i] = leaves;
        }
    }
}

/* Rings of one kind, always the one that is ready first. */
static void slow_rings(slow *s, int32_t kind, double *free_at)
{
    const made *m = s->m;
    for (;;) {
        double ready = 0, best = INFINITY, sum = 0, largest = 0, seconds = 0, n = 0;
        int64_t block = -1, b, i, first = -1, last = -1, q;
        for (b = 0; b < m->costs.blocks; b++) {
            double latest = -1;
            for (i = 0; i < m->count; i++)
                if (m->action[i].kind == kind && m->action[i].stage == b && s->ring[i] <= 0 && s->start[i] > latest) latest = s->start[i];
            if (latest >= 0 && latest < best) { best = latest; block = b; }
        }
        if (block < 0) return;
        ready = best;
        for (q = 0; q < m->plan.ranks; q++)
            for (i = m->start[q]; i < m->start[q + 1]; i++)
                if (m->action[i].kind == kind && m->action[i].stage == block) {
                    if (free_at[q] > ready) ready = free_at[q];
                    sum += m->state_share[q];
                    if (m->state_share[q] > largest) largest = m->state_share[q];
                    n++;
                }
        for (q = 0; q <= m->plan.ranks; q++) { /* around, and from the last to the first */
            int holds = q == m->plan.ranks;
            for (i = q < m->plan.ranks ? m->start[q] : 0; q < m->plan.ranks && i < m->start[q + 1]; i++) holds |= m->action[i].kind == kind && m->action[i].stage == block;
            if (!holds) continue;
            if (last >= 0 && n > 1) {
                const het_link_cost *link = &m->link[last * m->plan.ranks + (q < m->plan.ranks ? q : first)];
                const double whole = kind == HET_ACTION_REDUCE ? m->block_cost[block].reduce_bytes : m->block_cost[block].gather_bytes;
                const double bytes = sum > 0 ? whole * largest / sum : whole / n, time = link->latency + (link->bandwidth > 0 ? bytes / link->bandwidth : 0);
                if (time > seconds) seconds = time;
            }
            if (first < 0) first = q;
            last = q;
        }
        ready += (n - 1) * seconds;
        for (i = 0; i < m->count; i++)
            if (m->action[i].kind == kind && m->action[i].stage == block) {
                free_at[rank_at(m, i)] = ready;
                s->ring[i] = ready > 0 ? ready : 1e-300; /* timed */
            }
    }
}

static double slow_end(const slow *s, const double *free_at)
{
    double end = 0;
    int64_t i;
    for (i = 0; i < s->m->count; i++)
        if (s->end[i] > end) end = s->end[i];
    for (i = 0; i < s->m->plan.ranks; i++)
        if (free_at[i] > end) end = free_at[i];
    return end;
}

static double slow_simulate(slow *s, const made *m)
{
    double free_at[MOST_STAGES] = { 0 };
    memset(s, 0, sizeof *s);
    s->m = m;
    slow_settle(s);
    if (m->schedule.complete) { /* the first round ends at the verdict: what is behind it is computed again */
        int64_t i;
        double latest = 0;
        slow_rings(s, HET_ACTION_REDUCE, free_at);
        for (i = 0; i < m->plan.ranks; i++)
            if (free_at[i] > latest) latest = free_at[i];
        for (i = 0; i < m->count; i++)
            if (m->action[i].kind == HET_ACTION_VERDICT && s->start[i] > latest) latest = s->start[i];
        s->verdict = latest;
        slow_settle(s);
        slow_rings(s, HET_ACTION_GATHER, free_at);
    }
    return slow_end(s, free_at);
}

static const het_record *find_record(const het_timeline *t, int64_t rank, const het_action *a)
{
    int64_t i;
    for (i = 0; i < t->records; i++)
        if (t->record[i].rank == rank && memcmp(&t->record[i].action, a, sizeof *a) == 0) return &t->record[i];
    return NULL;
}

/* The most that a prefix of the list keeps. */
static double slow_peak(const made *m, int64_t rank, int64_t *where)
{
    double peak = 0, sum = 0;
    int64_t i, j, k, g;
    *where = -1;
    for (k = 0; k < m->plan.slices; k++) sum += m->slice_share[k];
    for (i = m->start[rank]; i < m->start[rank + 1]; i++) {
        double kept = 0;
        for (j = m->start[rank]; j <= i; j++) {
            const het_action *a = &m->action[j];
            double n = 0;
            if (a->kind > HET_ACTION_W || a->kind == HET_ACTION_I) continue;
            for (g = m->first_stage[a->pipeline]; g < m->first_stage[a->pipeline + 1]; g++) n += m->stage[g].rank == rank;
            kept += (a->kind == HET_ACTION_F ? 1 : -1) * m->slice_share[a->slice] / sum / n;
        }
        if (kept > peak + 1e-9) { peak = kept; *where = i - m->start[rank]; }
    }
    return peak;
}

static void check_against_slow(const made *m, slow *s)
{
    const double makespan = slow_simulate(s, m);
    het_simulation *got = run(m, 1);
    double all = 0;
    int64_t r, i, where;
    EXACTLY(got->makespan, makespan);
    for (r = 0; r < m->plan.ranks; r++) {
        const het_rank_time *t = &got->rank[r];
        double busy = 0, first = -1, last = 0;
        for (i = m->start[r]; i < m->start[r + 1]; i++) {
            const het_action *a = &m->action[i];
            const het_record *record = find_record(&got->timeline, r, a);
            const double seconds = slow_seconds(m, i);
            if (a->kind == HET_ACTION_RECV_F || a->kind == HET_ACTION_RECV_B) continue; /* recorded where it is waited for */
            assert_non_null(record);
            EXACTLY(record->start, s->start[i]);
            if (a->kind == HET_ACTION_SEND_F || a->kind == HET_ACTION_SEND_B) EXACTLY(record->end, s->leaves[i]);
            else if (a->kind == HET_ACTION_REDUCE || a->kind == HET_ACTION_GATHER) assert_true(fabs(record->end - s->ring[i]) < 1e-200);
            else EXACTLY(record->end, s->end[i]);
            if (a->kind > HET_ACTION_W && a->kind != HET_ACTION_STEP) continue;
            busy += seconds;
            if (first < 0) first = s->start[i];
            last = s->end[i];
        }
        all += busy;
        EXACTLY(t->busy, busy);
        EXACTLY(t->start, first < 0 ? 0 : first);
        EXACTLY(t->end, last);
        EXACTLY(t->idle, makespan - busy);
        assert_true(fabs(t->fill + t->wait + t->tail - t->idle) < 1e-9);
        assert_true(fabs(t->peak - slow_peak(m, r, &where)) < 1e-9);
        assert_int_equal(t->peak_action, where);
    }
    if (makespan > 0) assert_true(fabs(got->bubble - (1 - all / ((double)m->plan.ranks * makespan))) < 1e-12);
    for (i = 0; i < got->timeline.records; i++) {
        const het_record *record = &got->timeline.record[i];
        assert_true(record->start >= 0 && record->end >= record->start && record->end <= makespan);
        if (i > 0) assert_true(record->rank > record[-1].rank || (record->rank == record[-1].rank && record->start >= record[-1].start));
    }
    het_simulation_free(got);
}

static void same_as_the_slow_simulator(void **state)
{
    const char *rounds = getenv("HETRAIN_TEST_ROUNDS");
    int64_t n = rounds != NULL ? strtol(rounds, NULL, 10) * 4 : 400, i;
    slow *s = (slow *)support_alloc(1, sizeof *s);
    uint64_t seed = 20260114;
    (void)state;
    for (i = 0; i < n; i++) {
        made *m = random_made(&seed);
        check_against_slow(m, s);
        free(m);
    }
    free(s);
}

/* ---- closed forms ---- */

static void fill_and_drain(void **state)
{
    int64_t p, n;
    (void)state;
    for (p = 1; p <= 9; p++)
        for (n = 1; n <= 20; n += 3) {
            const double f = 18522, b = 27423;
            int kind;
            for (kind = 0; kind < 2; kind++) {
                made *m = kind == 0 ? gpipe(p, n, f, 18086, 9337) : one_f_one_b(p, n, f, 18086, 9337);
                het_simulation *s = run(m, 0);
                int64_t r;
                EXACTLY(s->makespan, (double)(n + p - 1) * (f + b));
                EXACTLY(s->span, s->makespan);
                assert_true(fabs(s->bubble - (double)(p - 1) / (double)(n + p - 1)) < 1e-15);
                assert_int_equal(s->ranks, p);
                assert_int_equal(s->actions, 2 * p * n);
                for (r = 0; r < p; r++) {
                    const het_rank_time *t = &s->rank[r];
                    EXACTLY(t->busy, (double)n * (f + b));
                    EXACTLY(t->fill, (double)r * f);
                    EXACTLY(t->tail, (double)r * b);
                    EXACTLY(t->wait, (double)(p - 1 - r) * (f + b));
                    EXACTLY(t->idle, (double)(p - 1) * (f + b));
                    EXACTLY(t->start, t->fill);
                    EXACTLY(t->end, s->makespan - t->tail);
                    EXACTLY(t->peak, (double)(kind == 0 ? n : p - r < n ? p - r : n));
                    assert_int_equal(t->peak_action, (int64_t)t->peak - 1);
                }
                het_simulation_free(s);
                free(m);
            }
        }
}

/* Where communication is not free, 1F1B waits for it in every round: 8 ranks, 64 micro-batches, F 1, B 2, link 0.5. The formula
   (m - 1) max + sum + communication gives 63 3 + 8 3 + 14 0.5 = 220. */
static void rounds_wait_for_links(void **state)
{
    made *m = one_f_one_b(8, 64, 1, 1, 1);
    het_simulation *s;
    (void)state;
    m->costs.every_link.latency = 0.5;
    s = run(m, 0);
    EXACTLY(s->makespan, 275);
    het_simulation_free(s);
    free(m);
}

/* Zero bubble pipeline parallelism (arXiv 2401.10241), tables 5 and 8: measured times in milliseconds, and the bubbles of 1F1B that the
   authors' own simulation gives for them. */
static void published_bubbles(void **state)
{
    static const struct { int64_t ranks, micro_batches; double f, b, w, link, bubble; } cases[] = {
        { 8, 24, 18522, 18086, 9337, 601, 0.2431 },    { 8, 32, 18513, 18086, 9331, 626, 0.1985 },    { 8, 64, 18546, 18097, 9321, 762, 0.1240 },
        { 8, 24, 29718, 29444, 19927, 527, 0.2347 },   { 8, 32, 29802, 29428, 19530, 577, 0.1898 },   { 8, 64, 29935, 29621, 19388, 535, 0.1091 },
        { 16, 48, 11347, 11248, 8132, 377, 0.2552 },   { 16, 64, 11307, 11254, 8101, 379, 0.2082 },   { 16, 128, 11325, 11308, 8109, 378, 0.1251 },
        { 32, 96, 10419, 10207, 7715, 408, 0.2646 },   { 32, 128, 10408, 10204, 7703, 408, 0.2168 },  { 32, 256, 10402, 10248, 7698, 460, 0.1352 },
    };
    size_t c;
    (void)state;
    for (c = 0; c < sizeof cases / sizeof *cases; c++) {
        made *m = one_f_one_b(cases[c].ranks, cases[c].micro_batches, cases[c].f, cases[c].b, cases[c].w);
        het_simulation *s;
        m->costs.every_link.latency = cases[c].link;
        s = run(m, 0);
        assert_true(fabs(s->span_bubble - cases[c].bubble) < 5.001e-5);
        assert_true(fabs(s->bubble - cases[c].bubble) < 5.001e-5); /* the first rank of 1F1B is there from the start to the end */
        het_simulation_free(s);
        free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fill_and_drain), cmocka_unit_test(rounds_wait_for_links), cmocka_unit_test(published_bubbles),
        cmocka_unit_test(same_as_the_slow_simulator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
