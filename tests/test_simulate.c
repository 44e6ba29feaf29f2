/* The simulator against closed forms, published figures and a second simulator that is slow and obvious; traces and pictures against the
   grammars of JSON and XML. Schedules are made here, so that nothing depends on the header's generators. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* popen */
#endif
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
    double share[MOST_STAGES], state_share[MOST_STAGES], slice_share[8], tokens[512];
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
    m->stage_cost[g].forward.token = forward;
    m->stage_cost[g].input.token = input;
    m->stage_cost[g].weight.token = weight;
    m->stage_cost[g].backward.token = input + weight;
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
        if ((a->kind == kind || a->kind == kind2) && a->pipeline == like->pipeline && a->stage == stage && a->micro_batch == like->micro_batch &&
            a->slice == like->slice) return i;
    }
    return -1;
}

static int64_t stages_of(const made *m, int64_t pipeline) { return m->first_stage[pipeline + 1] - m->first_stage[pipeline]; }
static int64_t rank_of(const made *m, int64_t pipeline, int64_t stage) { return stage < 0 || stage >= stages_of(m, pipeline) ? -1
    : m->stage[m->first_stage[pipeline] + stage].rank; }

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
            if (before >= 0)
                o->need[0] = complete && before != o->rank ? find_op(ops, count, HET_ACTION_SEND_F, -1, a, a->stage - 1)
                    : find_op(ops, count, HET_ACTION_F, -1, a, a->stage - 1);
            break;
        case HET_ACTION_B: case HET_ACTION_I:
            o->need[0] = find_op(ops, count, HET_ACTION_F, -1, a, a->stage);
            if (after >= 0)
                o->need[1] = complete && after != o->rank ? find_op(ops, count, HET_ACTION_SEND_B, -1, a, a->stage + 1)
                    : find_op(ops, count, HET_ACTION_B, HET_ACTION_I, a, a->stage + 1);
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
        for (i = 0; i < stages; i++)
            add_stage(m, support_below(seed, ranks), (double)(4 * support_below(seed, 20)), (double)(4 * support_below(seed, 20)),
                (double)(4 * support_below(seed, 20)));
    }
    for (i = 0; i < m->plan.stages; i++) m->stage_cost[i].bytes = (double)(64 * support_below(seed, 10));
    for (i = 0; i < ranks * ranks; i++) {
        m->link[i].latency = (double)support_below(seed, 7);
        m->link[i].bandwidth = support_below(seed, 3) == 0 ? 0 : (double)((int64_t)1 << support_below(seed, 5));
    }
    m->costs.link = m->link;
    for (i = 0; i < 512; i++) m->tokens[i] = 0.5 * (double)(1 + support_below(seed, 3));
    if (support_below(seed, 2) == 0) m->costs.tokens = m->tokens;
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
    if (m->costs.tokens != NULL) whole *= m->tokens[before + a->micro_batch];
    return m->plan.slices > 1 ? whole * m->slice_share[a->slice] / sum : whole;
}

/* The rank this action sends a message to, or -1. */
static int64_t slow_to(const made *m, int64_t i)
{
    const het_action *a = &m->action[i];
    int64_t to = -1;
    if (m->schedule.complete ? a->kind == HET_ACTION_SEND_F : a->kind == HET_ACTION_F) to = rank_of(m, a->pipeline, a->stage + 1);
    if (m->schedule.complete ? a->kind == HET_ACTION_SEND_B : a->kind == HET_ACTION_B || a->kind == HET_ACTION_I)
        to = rank_of(m, a->pipeline, a->stage - 1);
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
        if (b->pipeline != a->pipeline || b->stage != stage || b->micro_batch != a->micro_batch || b->slice != a->slice ||
            b->kind > HET_ACTION_RECV_B || b->kind == HET_ACTION_W || is_forward(b->kind) != is_forward(a->kind)) continue;
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
    if (a->kind == HET_ACTION_F) return slow_part(m, a, c->forward.token);
    if (a->kind == HET_ACTION_B) return slow_part(m, a, c->backward.token);
    if (a->kind == HET_ACTION_I) return slow_part(m, a, c->input.token);
    if (a->kind == HET_ACTION_W) return slow_part(m, a, c->weight.token);
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
        double ready = 0, best = 1e300, sum = 0, largest = 0, seconds = 0, n = 0;
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
            for (i = q < m->plan.ranks ? m->start[q] : 0; q < m->plan.ranks && i < m->start[q + 1]; i++)
                holds |= m->action[i].kind == kind && m->action[i].stage == block;
            if (!holds) continue;
            if (last >= 0 && n > 1) {
                const het_link_cost *link = &m->link[last * m->plan.ranks + (q < m->plan.ranks ? q : first)];
                const double whole = kind == HET_ACTION_REDUCE ? m->block_cost[block].reduce_bytes : m->block_cost[block].gather_bytes;
                const double bytes = sum > 0 ? whole * largest / sum : whole / n,
                    time = link->latency + (link->bandwidth > 0 ? bytes / link->bandwidth : 0);
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

/* Zero bubble pipeline parallelism (arXiv 2401.10241): measured times in microseconds, and the bubbles of 1F1B that the authors' own simulation
   gives for them. */
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

/* ---- pairs, idle ranks, empty schedules ---- */

/* A pair sends when both are done, so 1F1 waits for the end of 0B0: 10, and not 7. */
static void pairs(void **state)
{
    static const struct { int32_t kind, stage, micro_batch; } lists[8] = {
        { HET_ACTION_F, 0, 0 }, { HET_ACTION_F, 0, 1 }, { HET_ACTION_B, 0, 0 }, { HET_ACTION_B, 0, 1 },
        { HET_ACTION_F, 1, 0 }, { HET_ACTION_B, 1, 0 }, { HET_ACTION_F, 1, 1 }, { HET_ACTION_B, 1, 1 },
    };
    made *m = chain(2, 2, 2, 1, 2);
    het_simulation *s;
    int i;
    (void)state;
    for (i = 0; i < 8; i++) {
        add(m, lists[i].kind, lists[i].stage, lists[i].micro_batch);
        if (i == 3) m->start[1] = m->count;
    }
    m->start[2] = m->count;
    s = run(m, 0);
    EXACTLY(s->makespan, 15);
    het_simulation_free(s);
    m->action[1].overlap = 1;
    s = run(m, 0);
    EXACTLY(s->makespan, 18);
    het_simulation_free(s);
    m->action[7].overlap = 1; /* the last of a list has no partner */
    m->action[3].overlap = 1;
    s = run(m, 0);
    EXACTLY(s->makespan, 18);
    het_simulation_free(s);
    free(m);
}

static void corners(void **state)
{
    made *m = make(3);
    het_simulation *s;
    (void)state;
    add_pipeline(m, 0); /* a pipeline without micro-batches, ranks without stages */
    add_stage(m, 1, 1, 1, 1);
    s = run(m, 1);
    EXACTLY(s->makespan, 0);
    EXACTLY(s->bubble, 0);
    assert_int_equal(s->timeline.records, 0);
    assert_int_equal(s->rank[1].peak_action, -1);
    het_simulation_free(s);
    m->micro_batches[0] = 1;
    add(m, HET_ACTION_F, 0, 0);
    add(m, HET_ACTION_B, 0, 0);
    m->start[2] = m->start[3] = m->count;
    s = run(m, 0);
    EXACTLY(s->makespan, 3);
    EXACTLY(s->rank[0].fill, 3);
    EXACTLY(s->rank[0].idle, 3);
    EXACTLY(s->rank[2].tail, 0);
    EXACTLY(s->rank[1].idle, 0);
    assert_true(fabs(s->bubble - 2.0 / 3) < 1e-15);
    assert_int_equal(s->timeline.records, 0);
    het_simulation_free(s);
    free(m);
}

/* Activation in units of one's own; a rank with two stages of one pipeline and one of another: 1/2 + 1/2 + 1. */
static void peaks(void **state)
{
    made *m = make(1);
    het_simulation *s;
    int i;
    (void)state;
    for (i = 0; i < 2; i++) {
        add_pipeline(m, 1);
        add_stage(m, 0, 1, 1, 1);
        if (i == 0) add_stage(m, 0, 1, 1, 1);
    }
    add(m, HET_ACTION_F, 0, 0);
    add(m, HET_ACTION_F, 0, 0);
    m->action[1].pipeline = 1;
    add(m, HET_ACTION_F, 1, 0);
    add(m, HET_ACTION_I, 1, 0);
    add(m, HET_ACTION_W, 1, 0);
    m->start[1] = m->count;
    s = run(m, 0);
    EXACTLY(s->rank[0].peak, 2);
    assert_int_equal(s->rank[0].peak_action, 2);
    het_simulation_free(s);
    for (i = 0; i < 3; i++) m->stage_cost[i].keep_weight = 100 + i;
    s = run(m, 0);
    EXACTLY(s->rank[0].peak, 2);
    EXACTLY(s->rank[0].peak_bytes, 303);
    assert_int_equal(s->rank[0].peak_bytes_action, 2);
    het_simulation_free(s);
    free(m);
}

static void write_text(support_buffer *buffer, const het_timeline *timeline, const het_plan *plan, const het_svg_desc *desc, int svg)
{
    het_writer writer;
    support_buffer_start(buffer);
    writer = support_writer(buffer);
    if (svg) EXPECT_OK(het_timeline_svg(timeline, plan, desc, &writer));
    else EXPECT_OK(het_timeline_trace(timeline, plan, &writer));
    support_buffer_append(buffer, "", 1);
}

/* ---- what is refused ---- */

static void refuse(const made *m, het_result code, const char *words, int line)
{
    het_simulation *simulation = (het_simulation *)(uintptr_t)8;
    support_memory memory;
    het_allocator allocator;
    het_error error;
    allocator = support_allocator(&memory);
    error.text[0] = 0;
    support_expect(het_simulate(&m->plan, &m->schedule, &m->costs, HET_YES, &allocator, &simulation, &error), code, error.text, words, "het_simulate",
        line);
    assert_null(simulation);
    assert_int_equal(memory.live, 0);
    assert_int_equal(memory.wrong, 0);
}
#define REFUSE(change, words) do { made *m = one_f_one_b(3, 4, 2, 1, 1); change; refuse(m, HET_ERR_INVALID, words, __LINE__); free(m); } while (0)

static void refusals(void **state)
{
    const double nan = (double)NAN;
    (void)state;
    REFUSE(m->action[0].kind = 12, "rank 0|action 0|12");
    REFUSE(m->action[1].kind = -1, "rank 0|action 1|-1");
    REFUSE(m->action[0].stage = 3, "rank 0|action 0|3F0|stage");
    REFUSE(m->action[0].stage = -1, "-1F0|stage");
    REFUSE(m->action[0].stage = 1, "rank 0|1F0|another rank");
    REFUSE(m->action[9].micro_batch = 4, "rank 1|action 1|1F4|micro-batch");
    REFUSE(m->action[9].micro_batch = -4, "1F-4|micro-batch");
    REFUSE(m->action[9].pipeline = 1, "1F1@1|pipeline");
    REFUSE(m->action[9].slice = 2, "1F1.2|slice");
    REFUSE(m->action[9].version = 1, "1F1/1|version");
    REFUSE(m->action[1].micro_batch = 0, "rank 0|action 1|0F0|twice");
    REFUSE(m->action[m->count - 1].micro_batch = 0, "rank 2|action 7|2B0|twice");
    REFUSE(m->action[0].kind = HET_ACTION_B, "0B0|F does not come");
    REFUSE(m->action[3].kind = HET_ACTION_W, "0W0|I does not come");
    REFUSE((m->action[17].kind = HET_ACTION_SEND_F, m->action[17].stage = 2), "2SEND_F0|no stage to send");
    REFUSE((m->action[0].kind = HET_ACTION_RECV_F), "0RECV_F0|receive");
    REFUSE((m->action[0].kind = HET_ACTION_SEND_F), "0SEND_F0|F does not come");
    REFUSE(m->schedule.complete = 1, "waits for ever"); /* nobody sends */
    REFUSE((m->action[8] = m->action[9], m->action[9].micro_batch = 0, m->action[16] = m->action[18], m->action[18].micro_batch = 0),
        "rank 2|2B0|its F does not");
    REFUSE((m->action[1] = m->action[3], m->action[3] = m->action[2], m->action[2] = m->action[0], m->action[2].micro_batch = 1), "waits for ever");
        /* in a circle */
    REFUSE(m->action[0].kind = HET_ACTION_REDUCE; m->action[0].stage = -1, "REDUCE-1|block");
    REFUSE(m->action[0].kind = HET_ACTION_GATHER; m->action[0].stage = 1 << 20, "GATHER1048576|block");
    REFUSE(m->stage_cost[1].forward.base = -1, "stage 1|negative");
    REFUSE(m->stage_cost[2].bytes = nan, "stage 2|finite");
    REFUSE(m->stage_cost[2].weight.pair = (double)INFINITY, "stage 2|finite");
    REFUSE(m->costs.every_link.latency = nan, "rank 0 to 1|finite");
    REFUSE(m->costs.every_link.bandwidth = -1, "link|negative");
    REFUSE((m->costs.tokens = m->tokens, m->tokens[3] = -2), "micro-batch 3|negative");
    REFUSE((m->costs.block = m->block_cost, m->costs.blocks = 2, m->block_cost[1].step = nan), "block 1|finite");
    REFUSE(m->costs.stage = NULL, "missing");
    REFUSE(m->costs.start_canary = 0xCDCDCDCDu, "cleared");
    REFUSE(m->costs.end_canary = 1, "cleared");
    REFUSE(m->plan.ranks = 2, "stage 2|rank 2 of 2");
    REFUSE(m->plan.ranks = 4, "3 ranks|4");
    REFUSE(m->stage[1].rank = 3, "stage 1|rank 3 of 3");
    REFUSE(m->plan.slices = 0, "0 slices");
    REFUSE((m->plan.slices = 2, m->slice_share[1] = nan), "slice 1|nan");
    REFUSE((m->plan.slices = 2, m->slice_share[0] = 0), "shares|0");
    REFUSE(m->first_stage[1] = 2, "first_stage");
    REFUSE(m->start[1] = -1, "start[1]|-1");
    REFUSE(m->schedule.pipelines = 2, "2 pipelines");
    {
        made *m = one_f_one_b(2, 2, 1, 1, 1);
        m->plan.slices = INT64_MAX;
        m->plan.slice_share = NULL;
        refuse(m, HET_ERR_INVALID, "slices", __LINE__);
        m->plan.slices = 1;
        m->micro_batches[0] = INT64_MAX / 2;
        refuse(m, HET_ERR_LIMIT, "pipeline 0|micro-batches", __LINE__);
        m->micro_batches[0] = INT32_MAX - 1;
        m->plan.slice_share = m->slice_share;
        free(m);
    }
    {
        het_simulation *simulation = NULL;
        het_error error;
        made *m = one_f_one_b(2, 2, 1, 1, 1);
        EXPECT_ERROR(het_simulate(NULL, &m->schedule, &m->costs, HET_NO, NULL, &simulation, &error), HET_ERR_INVALID, error.text, "plan|NULL");
        EXPECT_ERROR(het_simulate(&m->plan, NULL, &m->costs, HET_NO, NULL, &simulation, &error), HET_ERR_INVALID, error.text, "schedule|NULL");
        EXPECT_ERROR(het_simulate(&m->plan, &m->schedule, NULL, HET_NO, NULL, &simulation, &error), HET_ERR_INVALID, error.text, "costs|NULL");
        EXPECT_ERROR(het_simulate(&m->plan, &m->schedule, &m->costs, HET_NO, NULL, NULL, &error), HET_ERR_INVALID, error.text, "simulation|NULL");
        assert_int_equal(het_simulate(NULL, NULL, NULL, HET_NO, NULL, NULL, NULL), HET_ERR_INVALID);
        het_simulation_free(NULL);
        free(m);
    }
}

/* Lists with anything wrong with them end in an error or in a timeline that can be drawn; sanitizers look for the rest. */
static void damaged_lists(void **state)
{
    uint64_t seed = 4711;
    int64_t i, j, fine = 0;
    (void)state;
    for (i = 0; i < 1500; i++) {
        made *m = random_made(&seed);
        het_simulation *s = NULL;
        het_error error;
        for (j = support_below(&seed, 3); j >= 0 && m->count > 0; j--) {
            het_action *a = &m->action[support_below(&seed, m->count)];
            const int32_t value = (int32_t)support_below(&seed, 9) - 2;
            switch (support_below(&seed, 7)) {
            case 0: a->kind = value + 2; break;
            case 1: a->stage = value; break;
            case 2: a->micro_batch = value; break;
            case 3: a->pipeline = value; break;
            case 4: a->slice = value; break;
            case 5: a->overlap = 1; break;
            default: *a = m->action[support_below(&seed, m->count)]; break;
            }
        }
        error.text[0] = 0;
        if (het_simulate(&m->plan, &m->schedule, &m->costs, HET_YES, NULL, &s, &error) == HET_OK) {
            support_buffer text;
            write_text(&text, &s->timeline, &m->plan, NULL, (int)(i % 2));
            support_buffer_end(&text);
            fine++;
        } else assert_true(strlen(error.text) > 10);
        het_simulation_free(s);
        free(m);
    }
    print_message("%d of %d damaged lists still ran\n", (int)fine, (int)i);
}

/* A rank that never reaches its REDUCE behind a verdict, as lists cut by hand may have it. */
static void rings_that_wait(void **state)
{
    made *m = chain(2, 0, 1, 1, 1);
    (void)state;
    m->schedule.complete = 1;
    add(m, HET_ACTION_REDUCE, 3, 0);
    add(m, HET_ACTION_VERDICT, 0, 0);
    m->start[1] = m->count;
    add(m, HET_ACTION_VERDICT, 0, 0);
    add(m, HET_ACTION_REDUCE, 3, 0);
    m->start[2] = m->count;
    refuse(m, HET_ERR_INVALID, "REDUCE|block 3|1 of 2|waits", __LINE__);
    m->action[2] = m->action[0];
    m->action[3] = m->action[0];
    refuse(m, HET_ERR_INVALID, "rank 1|action 1|REDUCE3|twice", __LINE__);
    free(m);
}

static void out_of_memory(void **state)
{
    made *m = one_f_one_b(4, 6, 3, 2, 1);
    int64_t k, done = 0;
    (void)state;
    for (k = 0; !done; k++) {
        support_memory memory;
        het_simulation *s = (het_simulation *)(uintptr_t)8;
        het_allocator allocator;
        het_error error;
        het_result result;
        allocator = support_allocator(&memory);
        memory.fail_at = k;
        result = het_simulate(&m->plan, &m->schedule, &m->costs, HET_YES, &allocator, &s, &error);
        if (result == HET_OK) {
            done = 1;
            assert_int_equal(memory.live, 1); /* what is handed over is one block */
            assert_int_equal(memory.bytes, s->size);
            EXACTLY(s->makespan, 9 * 6);
            het_simulation_free(s);
        } else {
            assert_int_equal(result, HET_ERR_OOM);
            assert_null(s);
        }
        assert_int_equal(memory.live, 0);
        assert_int_equal(memory.wrong, 0);
    }
    assert_int_equal(k, 3);
    free(m);
}

/* ---- grammars ---- */

/* RFC 8259, as strict as can be. Returns what stands behind the value, or NULL. */
static const char *json_value(const char *s, int depth);

static const char *json_space(const char *s) { return s + strspn(s, " \t\r\n"); }

static const char *json_string(const char *s)
{
    if (*s++ != '"') return NULL;
    for (; *s != '"'; s++) {
        if ((unsigned char)*s < 32) return NULL;
        if (*s != '\\') continue;
        s++;
        if (*s == 'u') {
            if (strspn(s + 1, "0123456789abcdefABCDEF") < 4) return NULL;
            s += 4;
        } else if (*s == 0 || strchr("\"\\/bfnrt", *s) == NULL) return NULL;
    }
    return s + 1;
}

static const char *json_digits(const char *s)
{
    size_t n = strspn(s, "0123456789");
    return n == 0 ? NULL : s + n;
}

static const char *json_number(const char *s)
{
    if (*s == '-') s++;
    if (*s == '0' && s[1] >= '0' && s[1] <= '9') return NULL;
    s = json_digits(s);
    if (s != NULL && *s == '.') s = json_digits(s + 1);
    if (s != NULL && (*s == 'e' || *s == 'E')) s = json_digits(s + 1 + (s[1] == '-' || s[1] == '+'));
    return s;
}

static const char *json_list(const char *s, char close, int depth)
{
    s = json_space(s + 1);
    if (*s == close) return s + 1;
    for (;;) {
        if (close == '}') {
            s = json_string(s);
            if (s == NULL || *(s = json_space(s)) != ':') return NULL;
            s = json_space(s + 1);
        }
        s = json_value(s, depth - 1);
        if (s == NULL) return NULL;
        s = json_space(s);
        if (*s == close) return s + 1;
        if (*s != ',') return NULL;
        s = json_space(s + 1);
    }
}

static const char *json_value(const char *s, int depth)
{
    if (depth == 0) return NULL;
    if (*s == '{') return json_list(s, '}', depth);
    if (*s == '[') return json_list(s, ']', depth);
    if (*s == '"') return json_string(s);
    if (strncmp(s, "true", 4) == 0 || strncmp(s, "null", 4) == 0) return s + 4;
    if (strncmp(s, "false", 5) == 0) return s + 5;
    return json_number(s);
}

static int is_json(const char *s)
{
    s = json_value(json_space(s), 32);
    return s != NULL && *json_space(s) == 0;
}

/* Elements nest, attributes are quoted and come once, & starts one of the five entities or a number. Enough of XML for what is written here. */
static int is_xml(const char *s)
{
    char open[16][24];
    int depth = 0, seen = 0;
    while (*s != 0) {
        if (*s == '&') {
            size_t n = 1 + strcspn(s + 1, ";<& ");
            if (s[n] != ';' || (s[1] != '#' && strncmp(s, "&amp;", 5) != 0 && strncmp(s, "&lt;", 4) != 0 && strncmp(s, "&gt;", 4) != 0 &&
                strncmp(s, "&quot;", 6) != 0)) return 0;
        }
        if ((unsigned char)*s < 32 && *s != '\n') return 0;
        if (*s == '>' || (depth == 0 && *s != '<' && *s != '\n')) return 0;
        if (*s++ != '<') continue;
        if (*s == '/') {
            size_t n = strcspn(++s, ">");
            if (depth == 0 || strlen(open[--depth]) != n || memcmp(open[depth], s, n) != 0) return 0;
            s += n + 1;
            continue;
        }
        if ((depth == 0 && seen++ > 0) || depth == 16) return 0;
        {
            size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz"), q;
            char names[16][24];
            int attributes = 0, i;
            if (n == 0 || n > 23) return 0;
            memcpy(open[depth], s, n);
            open[depth][n] = 0;
            for (s += n; *s == ' '; s += q + 1) {
                s++;
                n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-");
                if (n == 0 || n > 23 || attributes == 16 || s[n] != '=' || s[n + 1] != '"') return 0;
                memcpy(names[attributes], s, n);
                names[attributes][n] = 0;
                for (i = 0; i < attributes; i++)
                    if (strcmp(names[i], names[attributes]) == 0) return 0;
                attributes++;
                s += n + 2;
                q = strcspn(s, "\"<");
                if (s[q] != '"') return 0;
            }
            if (s[0] == '/' && s[1] == '>') s += 2;
            else if (*s == '>') { depth++; s++; }
            else return 0;
        }
    }
    return depth == 0 && seen == 1;
}

static void grammars_can_refuse(void **state)
{
    static const char *const bad_json[] = { "", "{", "{\"a\":1,}", "[1 2]", "[01]", "[1.]", "[.5]", "[+1]", "[nan]", "[1e]", "{\"a\" 1}", "[\"\n\"]",
        "[\"\\x\"]", "[1]]", "{1:2}", "[inf]", "[-]" };
    static const char *const bad_xml[] = { "", "a", "<a>", "<a></b>", "<a b=1/>", "<a b=\"1\" b=\"2\"/>", "<a>&</a>", "<a>&x;</a>", "<a/><b/>",
        "<a b=\"<\"/>", "<a>\001</a>", "<a>></a>", "</a>" };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof bad_json / sizeof *bad_json; i++) assert_false(is_json(bad_json[i]));
    for (i = 0; i < sizeof bad_xml / sizeof *bad_xml; i++) assert_false(is_xml(bad_xml[i]));
    assert_true(is_json(" {\"a\":[1,-0.5e+3,\"\\u00e9\",null]} "));
    assert_true(is_xml("<a b=\"1\">x&amp;<c/></a>\n"));
}

/* ---- traces ---- */

static int count_words(const char *text, const char *word)
{
    int n = 0;
    for (text = strstr(text, word); text != NULL; text = strstr(text + 1, word)) n++;
    return n;
}

/* Runs a command that reads `text`, where the machine has its program. */
static void other_reader(const char *program, const char *command, const support_buffer *text)
{
    char line[400];
    FILE *file;
    sprintf(line, "command -v %s > /dev/null 2>&1", program);
    if (system(line) != 0) { print_message("%s is not installed\n", program); return; }
    sprintf(line, "%s > /dev/null", command);
    file = popen(line, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text->data, 1, text->size - 1, file), text->size - 1);
    assert_int_equal(pclose(file), 0);
}

/* The number behind `key` in one event. */
static double field(const char *event, const char *key)
{
    const char *at = strstr(event, key);
    assert_non_null(at);
    return strtod(at + strlen(key), NULL);
}

static void traces(void **state)
{
    uint64_t seed = 77;
    int i;
    (void)state;
    for (i = 0; i < 60; i++) {
        made *m = random_made(&seed);
        het_simulation *s = run(m, 1);
        support_buffer text;
        const char *event;
        int64_t sends = 0, receives = 0, n;
        write_text(&text, &s->timeline, i % 2 == 0 ? &m->plan : NULL, NULL, 0);
        assert_true(is_json((const char *)text.data));
        for (n = 0; n < s->timeline.records; n++) {
            const int kind = s->timeline.record[n].action.kind;
            sends += kind == HET_ACTION_SEND_F || kind == HET_ACTION_SEND_B;
            receives += kind == HET_ACTION_RECV_F || kind == HET_ACTION_RECV_B;
        }
        assert_int_equal(sends, receives);
        assert_int_equal(count_words((const char *)text.data, "\"ph\":\"X\""), s->timeline.records);
        assert_int_equal(count_words((const char *)text.data, "\"ph\":\"s\""), sends);
        assert_int_equal(count_words((const char *)text.data, "\"ph\":\"f\""), sends);
        assert_int_equal(count_words((const char *)text.data, "process_name"), m->plan.ranks);
        for (event = strstr((const char *)text.data, "\"ph\":\"s\""); event != NULL; event = strstr(event + 1, "\"ph\":\"s\"")) {
            char id[40], *end;
            const char *other;
            sprintf(id, "\"id\":%.0f,", field(event, "\"id\":"));
            assert_int_equal(count_words((const char *)text.data, id), 2); /* an arrow has one start and one end */
            other = strstr((const char *)text.data, id);
            if (other < event + 60) other = strstr(other + 1, id) != NULL && other > event ? strstr(other + 1, id) : other;
            (void)end;
            while (other[-1] != '\n') other--;
            assert_true(strstr(other, "\"ph\":\"f\"") == other + 1);
            assert_true(field(other, "\"ts\":") >= field(event, "\"ts\":") - 0.0011);
        }
        if (i == 0) other_reader("python3", "python3 -m json.tool", &text);
        support_buffer_end(&text);
        het_simulation_free(s);
        free(m);
    }
}

/* Names, times and bytes of a small one, in full. */
static void trace_by_heart(void **state)
{
    static const char *const expected[] = {
        "{\"ph\":\"M\",\"pid\":0,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"rank 0: units 0-1\"}}",
        "{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"rank 1: units 2-3\"}}",
        "\"ph\":\"X\",\"pid\":0,\"tid\":0,\"ts\":0,\"dur\":2000000,\"name\":\"0F0\",\"cat\":\"forward\"",
        "\"ph\":\"X\",\"pid\":0,\"tid\":1,\"ts\":2000000,\"dur\":1000000,\"name\":\"0SEND_F0\",\"cat\":\"transfer\"",
        "\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":0,\"dur\":3500000,\"name\":\"1RECV_F0\",\"cat\":\"transfer\"",
        "\"ph\":\"X\",\"pid\":1,\"tid\":0,\"ts\":3500000,\"dur\":2000000,\"name\":\"1F0\",\"cat\":\"forward\"",
        "\"ph\":\"X\",\"pid\":1,\"tid\":0,\"ts\":5500000,\"dur\":3000000,\"name\":\"1B0\",\"cat\":\"backward\"",
        "\"ph\":\"X\",\"pid\":0,\"tid\":0,\"ts\":10000000,\"dur\":3000000,\"name\":\"0B0\",\"cat\":\"backward\"",
        "\"args\":{\"pipeline\":0,\"stage\":0,\"micro_batch\":0,\"slice\":0,\"bytes\":100}",
    };
    made *m = one_f_one_b(2, 1, 2, 1, 2);
    het_simulation *s;
    support_buffer text;
    size_t i;
    (void)state;
    m->costs.every_link.latency = 0.5;
    m->costs.every_link.bandwidth = 100;
    m->stage_cost[0].bytes = 100;
    s = run(m, 1);
    write_text(&text, &s->timeline, &m->plan, NULL, 0);
    for (i = 0; i < sizeof expected / sizeof *expected; i++)
        if (strstr((const char *)text.data, expected[i]) == NULL) fail_msg("not in the trace: %s\n%s", expected[i], (const char *)text.data);
    support_buffer_end(&text);
    het_simulation_free(s);
    free(m);
}

/* ---- pictures ---- */

static void pictures(void **state)
{
    uint64_t seed = 5;
    int i;
    (void)state;
    for (i = 0; i < 60; i++) {
        made *m = random_made(&seed);
        het_simulation *s = run(m, 1);
        het_svg_desc desc;
        support_buffer text;
        memset(&desc, 0, sizeof desc);
        desc.title = "<\"&'> caf\303\251 \377\n\355\240\200";
        desc.dark = i % 3 == 0 ? HET_YES : HET_DEFAULT;
        desc.width = i % 4 == 0 ? 400 : 0;
        desc.row_height = i % 5 == 0 ? 3 : 0;
        desc.transfers = i % 7 == 0 ? -1 : 0;
        write_text(&text, &s->timeline, i % 2 == 0 ? &m->plan : NULL, &desc, 1);
        if (!is_xml((const char *)text.data)) fail_msg("not XML: %s", (const char *)text.data);
        assert_non_null(strstr((const char *)text.data, "&lt;&quot;&amp;'&gt; caf\303\251 ????"));
        if (i < 2) {
            other_reader("xmllint", "xmllint --noout -", &text);
            other_reader("python3", "python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.stdin)'", &text);
        }
        support_buffer_end(&text);
        het_simulation_free(s);
        free(m);
    }
}

/* A box an action, a number in each, a line a message, ticks, idle shares and the bubble. */
static void picture_of_a_small_one(void **state)
{
    made *m = one_f_one_b(2, 8, 0.018, 0.018, 0.009);
    het_simulation *s;
    support_buffer text;
    const char *svg;
    (void)state;
    m->costs.every_link.latency = 0.001;
    s = run(m, 1);
    write_text(&text, &s->timeline, &m->plan, NULL, 1);
    svg = (const char *)text.data;
    assert_int_equal(count_words(svg, "class=\"k0\""), 16 + 1); /* and one in the legend */
    assert_int_equal(count_words(svg, "class=\"k10\""), 16 + 1);
    assert_int_equal(count_words(svg, "class=\"k20\""), 0);
    assert_int_equal(count_words(svg, ">7</text>"), 4);
    assert_non_null(strstr(svg, ">units 0&#8211;1</text>"));
    assert_non_null(strstr(svg, "2 ranks &#183; 8 micro-batches"));
    assert_non_null(strstr(svg, ">0 ms</text>"));
    assert_int_equal(count_words(strstr(svg, "class=\"t\" d="), "M"), 16);
    assert_non_null(strstr(svg, ">400</text>"));
    support_buffer_end(&text);
    het_simulation_free(s);
    free(m);
}

/* Many records, many ranks: still a file one can open. */
static void pictures_stay_small(void **state)
{
    static const int64_t ranks[] = { 1, 64, 3000 };
    const int64_t count = 600000;
    het_record *record = (het_record *)support_alloc((size_t)count, sizeof *record);
    size_t c;
    (void)state;
    for (c = 0; c < 3; c++) {
        het_timeline t;
        support_buffer text;
        int64_t i, each = count / ranks[c];
        memset(record, 0, (size_t)count * sizeof *record);
        for (i = 0; i < count; i++) {
            record[i].rank = (int32_t)(i / each < ranks[c] ? i / each : ranks[c] - 1);
            record[i].action.kind = (int32_t)(i * 7 % 4);
            record[i].action.stage = (int32_t)(i % 3);
            record[i].start = (double)(i % each) + (double)(i * 13 % 10) * 0.05;
            record[i].end = (double)(i % each) + 0.5 + (double)(i * 31 % 10) * 0.05;
        }
        t.ranks = ranks[c], t.records = count, t.record = record, t.dropped = 3;
        write_text(&text, &t, NULL, NULL, 1);
        print_message("%d ranks, %d records: %.2f MB\n", (int)ranks[c], (int)count, 1e-6 * (double)text.size);
        assert_true(text.size < 4000000);
        assert_true(is_xml((const char *)text.data));
        assert_non_null(strstr((const char *)text.data, "3 records were dropped"));
        support_buffer_end(&text);
    }
    free(record);
}

static void pictures_refuse(void **state)
{
    het_record record[2];
    het_timeline t;
    het_svg_desc desc;
    support_buffer buffer;
    het_writer writer;
    int i;
    (void)state;
    support_buffer_start(&buffer);
    writer = support_writer(&buffer);
    for (i = 0; i < 12; i++) {
        memset(record, 0, sizeof record);
        t.ranks = 2, t.records = 2, t.record = record, t.dropped = 0;
        record[0].end = record[1].start = 1, record[1].end = 2, record[1].rank = 1;
        if (i == 0) record[1].rank = 2;
        if (i == 1) record[0].rank = -1;
        if (i == 2) record[0].rank = 1, record[1].rank = 0;
        if (i == 3) record[0].start = 2;
        if (i == 4) record[0].start = -1;
        if (i == 5) record[1].end = (double)NAN;
        if (i == 6) record[1].end = (double)INFINITY;
        if (i == 7) record[1].action.kind = 12;
        if (i == 8) record[1].action.kind = -1;
        if (i == 9) t.record = NULL;
        if (i == 10) t.records = -1;
        assert_int_equal(het_timeline_trace(&t, NULL, &writer), i == 11 ? HET_OK : HET_ERR_INVALID);
        assert_int_equal(het_timeline_svg(&t, NULL, NULL, &writer), i == 11 ? HET_OK : HET_ERR_INVALID);
        if (i < 11) assert_int_equal(buffer.size, 0);
    }
    for (i = 0; i < 7; i++) {
        memset(&desc, 0, sizeof desc);
        if (i == 0) desc.start_canary = 1;
        if (i == 1) desc.end_canary = 1;
        if (i == 2) desc.width = 399;
        if (i == 3) desc.width = (double)NAN;
        if (i == 4) desc.row_height = 201;
        if (i == 5) desc.row_height = -1;
        if (i == 6) desc.width = 20001;
        assert_int_equal(het_timeline_svg(&t, NULL, &desc, &writer), HET_ERR_INVALID);
    }
    assert_int_equal(het_timeline_svg(&t, NULL, NULL, NULL), HET_ERR_INVALID);
    assert_int_equal(het_timeline_trace(NULL, NULL, &writer), HET_ERR_INVALID);
    t.records = 0;
    EXPECT_OK(het_timeline_svg(&t, NULL, NULL, &writer)); /* an empty one is a picture too */
    t.records = 2;
    for (i = 0; i < 300; i += 50) {
        buffer.fail_after = i;
        buffer.size = 0;
        assert_int_equal(het_timeline_trace(&t, NULL, &writer), HET_ERR_IO);
        assert_int_equal(het_timeline_svg(&t, NULL, NULL, &writer), HET_ERR_IO);
    }
    support_buffer_end(&buffer);
}

/* ---- speed, for information ---- */

static void speed(void **state)
{
    static const int64_t sizes[2][2] = { { 8, 2400 }, { 64, 300 } };
    int c;
    (void)state;
    for (c = 0; c < 2; c++) {
        made *m = one_f_one_b(sizes[c][0], sizes[c][1], 3, 2, 1);
        clock_t start = clock();
        int64_t actions = 0;
        double seconds;
        while (clock() - start < CLOCKS_PER_SEC / 5) {
            het_simulation *s = run(m, 0);
            actions += s->actions;
            het_simulation_free(s);
        }
        seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        print_message("%d ranks: %.1f million actions a second\n", (int)sizes[c][0], 1e-6 * (double)actions / seconds);
        free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fill_and_drain),      cmocka_unit_test(rounds_wait_for_links), cmocka_unit_test(published_bubbles),
            cmocka_unit_test(same_as_the_slow_simulator),
        cmocka_unit_test(corners),             cmocka_unit_test(peaks),                 cmocka_unit_test(refusals),
            cmocka_unit_test(rings_that_wait),
        cmocka_unit_test(out_of_memory),       cmocka_unit_test(grammars_can_refuse),   cmocka_unit_test(traces),
            cmocka_unit_test(trace_by_heart),
        cmocka_unit_test(pictures),            cmocka_unit_test(picture_of_a_small_one), cmocka_unit_test(pictures_stay_small),
            cmocka_unit_test(pictures_refuse),
        cmocka_unit_test(speed),                cmocka_unit_test(pairs),                 cmocka_unit_test(damaged_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
