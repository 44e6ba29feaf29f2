/* The simulator against closed forms, published figures and a second simulator that is slow and obvious; traces and pictures against the
   grammars of JSON and XML. Schedules are made here, so that nothing depends on the header's generators. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* popen */
#endif
#include "support.h"

#include <time.h>

#include "hetrain_search.h"

/* ---- plans and lists made by hand ---- */

#define MOST_STAGES 64
#define MOST_ACTIONS 40000
#define MOST_GROUPS 8

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
    het_rank_cost rank_cost[MOST_STAGES];
    het_group group[MOST_GROUPS];
    int64_t rank_group[MOST_STAGES];
    double pairs[512], sequences[512];
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
    m->share[m->plan.pipelines] = 1;
    m->micro_batches[m->plan.pipelines++] = micro_batches;
    m->schedule.pipelines = m->plan.pipelines;
    m->first_stage[m->plan.pipelines] = m->plan.stages;
}

static void add_stage(made *m, int64_t rank, double forward, double input, double weight)
{
    const int64_t g = m->plan.stages++, unit = 2 * (g - m->first_stage[m->plan.pipelines - 1]);
    int64_t p;
    m->stage[g].pipeline = m->plan.pipelines - 1;
    m->stage[g].rank = rank;
    m->stage[g].unit_begin = unit;
    m->stage[g].unit_end = unit + 2;
    if (unit > 0) m->stage[g - 1].unit_end = unit; /* had the rest so far */
    m->first_stage[m->plan.pipelines] = m->plan.stages;
    if (m->plan.units < unit + 2) m->plan.units = unit + 2;
    for (p = 0; p < m->plan.pipelines; p++) /* the last stage of a short pipeline has the rest of the chain */
        if (m->first_stage[p + 1] > m->first_stage[p]) m->stage[m->first_stage[p + 1] - 1].unit_end = m->plan.units;
    m->stage_cost[g].forward.token = forward;
    m->stage_cost[g].input.token = input;
    m->stage_cost[g].weight.token = weight;
    m->stage_cost[g].backward.token = input + weight;
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
static int same(double a, double b) { return a >= b && a <= b; }
#define EXACTLY(a, b) assert_true(same((double)(a), (double)(b)))

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

/* Groups in place of the matrix: a tree in any order that has parents first, some of them processes, some with shared wires. */
static void random_groups(made *m, uint64_t *seed)
{
    int64_t i;
    m->costs.groups = 1 + support_below(seed, MOST_GROUPS);
    for (i = 0; i < m->costs.groups; i++) {
        het_group *g = &m->group[i];
        g->parent = i == 0 ? -1 : support_below(seed, 2) == 0 ? i - 1 : support_below(seed, i);
        g->latency = (double)(1 + support_below(seed, 7));
        g->bandwidth = support_below(seed, 2) == 0 ? 0 : (double)((int64_t)1 << support_below(seed, 7));
        g->uplink = support_below(seed, 4) == 0 ? 0 : (double)((int64_t)1 << support_below(seed, 7));
        g->bus = support_below(seed, 2) == 0 ? 0 : (double)((int64_t)1 << support_below(seed, 7));
        g->process = support_below(seed, 3) == 0;
    }
    for (i = 0; i < m->plan.ranks; i++) m->rank_group[i] = support_below(seed, m->costs.groups);
    if (m->costs.groups % 2) m->costs.link = NULL; /* else wires and processes are the groups', the rest is the matrix's */
    m->costs.group = m->group;
    m->costs.rank_group = m->rank_group;
}

/* Terms that do not grow with tokens, sequences that slices cut, ranks that work for what they move. */
static void random_details(made *m, uint64_t *seed)
{
    int64_t i;
    for (i = 0; i < m->plan.stages; i++) {
        het_stage_cost *c = &m->stage_cost[i];
        c->forward.base = (double)support_below(seed, 3);
        c->backward.base = (double)support_below(seed, 3);
        c->input.pair = (double)support_below(seed, 3);
        c->forward.pair = (double)support_below(seed, 3);
        c->weight.base = (double)support_below(seed, 3);
        c->keep_input = (double)support_below(seed, 9);
        c->keep_weight = (double)support_below(seed, 9);
        c->keep_gradient = (double)support_below(seed, 9);
    }
    for (i = 0; i < 512; i++) {
        m->pairs[i] = (double)(64 * support_below(seed, 3));
        m->sequences[i] = (double)((int64_t)1 << support_below(seed, 3));
    }
    if (support_below(seed, 3) > 0) m->costs.pairs = m->pairs;
    if (support_below(seed, 3) > 0) m->costs.sequences = m->sequences;
    for (i = 0; i < m->plan.ranks; i++) {
        m->rank_cost[i].begin = (double)support_below(seed, 3);
        m->rank_cost[i].ring_byte = (double)support_below(seed, 2) / 64;
        m->rank_cost[i].verdict = (double)support_below(seed, 4);
        m->rank_cost[i].step_base = (double)support_below(seed, 3);
        m->rank_cost[i].step = (double)support_below(seed, 3);
    }
    m->costs.rank = m->rank_cost;
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
    if (support_below(seed, 2) == 0) random_groups(m, seed);
    if (support_below(seed, 2) == 0) random_details(m, seed);
    for (i = 0; i < 512; i++) m->tokens[i] = 0.5 * (double)(1 + support_below(seed, 3));
    if (support_below(seed, 2) == 0) m->costs.tokens = m->tokens;
    for (r = 0; r < ranks; r++) m->state_share[r] = (double)support_below(seed, 3);
    for (r = 1; r < ranks && m->state_share[r] <= 0; r++) {}
    if (r == ranks && m->state_share[0] <= 0) m->state_share[0] = 1; /* all of them cannot be 0 */
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
            add(m, HET_ACTION_COMMIT, 0, 0);
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

/* Micro-batches that have rows in their last slices alone, slices that keep all in stages that recompute. */
static void random_slices(made *m, uint64_t *seed)
{
    int64_t i;
    m->plan.slice_tokens = support_below(seed, 3);
    if (m->plan.slices == 3) m->slice_share[0] = 2, m->slice_share[1] = 1; /* sums of 1, 2, 4 */
    for (i = 0; i < 512; i++) m->tokens[i] = (double)(1 + support_below(seed, 4) + support_below(seed, 4));
    if (m->plan.slice_tokens > 0) m->costs.tokens = m->tokens;
    for (i = 0; i < m->plan.stages; i++) {
        het_stage_cost *c = &m->stage_cost[i];
        m->stage[i].recompute = (int32_t)support_below(seed, 3);
        m->stage[i].keep = (uint64_t)support_below(seed, (int64_t)1 << m->plan.slices);
        c->again.base = (double)support_below(seed, 3);
        c->again.token = (double)(4 * support_below(seed, 20));
        c->again.pair = (double)support_below(seed, 3);
        c->keep_lean = (double)support_below(seed, 9);
    }
}

/* ---- the slow simulator: every time is written down as the maximum of what it waits for, and all are computed again until none changes ---- */

typedef struct slow {
    const made *m;
    double start[MOST_ACTIONS], end[MOST_ACTIONS]; /* of the rank's time */
    double leaves[MOST_ACTIONS];                   /* when the message of a SEND, or of a compute action in lists without, has left */
    double starts[MOST_ACTIONS], passed[MOST_ACTIONS]; /* when it began to leave; when it has passed all wires */
    double ring[MOST_ACTIONS];                     /* when the ring of a REDUCE or GATHER is done; 0: not timed yet */
    double done[MOST_ACTIONS];                     /* of compute actions: their work, before a buffer is free for their message */
    int64_t partner[MOST_ACTIONS];                 /* of SEND and RECV */
    double verdict[MOST_STAGES];
    double wire[3 * MOST_GROUPS];                  /* until when rings have it: out, in, bus of each group */
} slow;

static int64_t rank_at(const made *m, int64_t i)
{
    int64_t r = 0;
    while (i >= m->start[r + 1]) r++;
    return r;
}

static int is_forward(int kind) { return kind == HET_ACTION_F || kind == HET_ACTION_SEND_F || kind == HET_ACTION_RECV_F; }

static int64_t micro_batch_of(const made *m, const het_action *a)
{
    int64_t p, before = 0;
    for (p = 0; p < a->pipeline; p++) before += m->micro_batches[p];
    return before + a->micro_batch;
}

/* The first slice with rows: as many of the last ones have some as there are slice_tokens, but one at least. */
static int64_t slow_first(const made *m, const het_action *a)
{
    int64_t n = m->plan.slice_tokens > 0 ? 1 : m->plan.slices;
    while (n < m->plan.slices && (double)((n + 1) * m->plan.slice_tokens) <= m->tokens[micro_batch_of(m, a)]) n++;
    return m->plan.slices - n;
}

static int slow_is_lean(const made *m, const het_action *a)
{
    const het_stage *stage = &m->stage[m->first_stage[a->pipeline] + a->stage];
    int64_t k;
    int kept = 0;
    for (k = 0; k < m->plan.slices; k++) kept += (int)(stage->keep >> k & 1);
    return stage->recompute != HET_RECOMPUTE_NONE && kept > 0 && !(stage->keep >> a->slice & 1);
}

static double slow_part(const made *m, const het_action *a, double whole)
{
    int64_t k;
    double sum = 0;
    for (k = slow_first(m, a); k < m->plan.slices; k++) sum += m->slice_share[k];
    if (m->costs.tokens != NULL) whole *= m->tokens[micro_batch_of(m, a)];
    return m->plan.slices > 1 ? whole * m->slice_share[a->slice] / sum : whole;
}

/* Pairs (query, key) counted one by one: every sequence has 48 tokens, so that all shares and numbers of sequences cut at whole ones, and a query
   sees 2 k - 1 half-keys: their sum up to the k-th is k^2. */
static double slow_pairs(const made *m, const het_action *a, double whole)
{
    const int64_t n = micro_batch_of(m, a), tokens = 48;
    const int64_t sequences = m->costs.sequences != NULL ? (int64_t)m->sequences[n] : 1;
    int64_t k, q, begin = 0, end, sum = 0, seen = 0, all = 0;
    for (k = slow_first(m, a); k < m->plan.slices; k++) sum += (int64_t)m->slice_share[k];
    for (k = slow_first(m, a); k < a->slice; k++) begin += (int64_t)m->slice_share[k];
    end = begin + (int64_t)m->slice_share[a->slice];
    if (m->plan.slices == 1) return m->pairs[n] * whole;
    for (q = 0; q < tokens * sequences; q++) {
        const int64_t see = 2 * (q % tokens) + 1;
        all += see;
        if (q * sum >= begin * tokens * sequences && q * sum < end * tokens * sequences) seen += see;
    }
    return whole * m->pairs[n] * (double)seen / (double)all;
}

static double slow_curve(const made *m, const het_action *a, const het_cost *c)
{
    const double seconds = c->base + slow_part(m, a, c->token);
    return m->costs.pairs != NULL && c->pair > 0 ? seconds + slow_pairs(m, a, c->pair) : seconds;
}

/* The smallest group that has both: walks up from one, and from the other for each. */
static int64_t slow_common(const made *m, int64_t from, int64_t to)
{
    int64_t a, b;
    for (a = m->rank_group[from]; a >= 0; a = m->group[a].parent)
        for (b = m->rank_group[to]; b >= 0; b = m->group[b].parent)
            if (a == b) return a;
    fail();
    return -1;
}

static het_link_cost slow_link(const made *m, int64_t from, int64_t to)
{
    het_link_cost cost = { 0, 0 };
    if (m->costs.link != NULL) return m->link[from * m->plan.ranks + to];
    if (m->costs.group == NULL) return m->costs.every_link;
    cost.latency = m->group[slow_common(m, from, to)].latency;
    cost.bandwidth = m->group[slow_common(m, from, to)].bandwidth;
    return cost;
}

/* Wire number `which` on the way, out of groups from the inside, bus, into groups from the outside: 3 group + 0, 2 or 1; -1: no more. */
static int64_t slow_wire(const made *m, int64_t from, int64_t to, int64_t which)
{
    int64_t common, g, inwards[MOST_GROUPS], n = 0;
    if (m->costs.group == NULL) return -1;
    common = slow_common(m, from, to);
    for (g = m->rank_group[from]; g != common; g = m->group[g].parent)
        if (m->group[g].uplink > 0 && which-- == 0) return 3 * g;
    if (m->group[common].bus > 0 && which-- == 0) return 3 * common + 2;
    for (g = m->rank_group[to]; g != common; g = m->group[g].parent)
        if (m->group[g].uplink > 0) inwards[n++] = g;
    return which < n ? 3 * inwards[n - 1 - which] + 1 : -1;
}

static double slow_width(const made *m, int64_t wire) { return wire % 3 == 2 ? m->group[wire / 3].bus : m->group[wire / 3].uplink; }

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
        } else if (slow_to(m, i) == rank) return s->passed[i] + slow_link(m, from, rank).latency;
    }
    fail();
    return 0;
}

static double slow_moved(const made *m, int64_t at);

static double slow_seconds(const made *m, int64_t at)
{
    const het_action *a = &m->action[at];
    const het_stage_cost *c = &m->stage_cost[a->kind <= HET_ACTION_W ? m->first_stage[a->pipeline] + a->stage : 0];
    double sum = 0, held = 0;
    int64_t i;
    if (a->kind == HET_ACTION_F) return slow_curve(m, a, &c->forward);
    if (a->kind == HET_ACTION_B || a->kind == HET_ACTION_I) {
        het_cost both = a->kind == HET_ACTION_B ? c->backward : c->input;
        if (slow_is_lean(m, a)) both.base += c->again.base, both.token += c->again.token, both.pair += c->again.pair;
        return slow_curve(m, a, &both);
    }
    if (a->kind == HET_ACTION_W) return slow_curve(m, a, &c->weight);
    if (a->kind == HET_ACTION_REDUCE || a->kind == HET_ACTION_GATHER)
        return m->costs.rank != NULL ? m->rank_cost[rank_at(m, at)].ring_byte * slow_moved(m, at) : 0;
    if (a->kind != HET_ACTION_STEP) return 0;
    for (i = 0; i < m->count; i++)
        if (m->action[i].kind == HET_ACTION_STEP && m->action[i].stage == a->stage) {
            sum += m->state_share[rank_at(m, i)];
            held++;
        }
    sum = sum > 0 ? m->block_cost[a->stage].step * m->state_share[rank_at(m, at)] / sum : m->block_cost[a->stage].step / held;
    return m->costs.rank != NULL ? m->rank_cost[rank_at(m, at)].step_base + m->rank_cost[rank_at(m, at)].step * sum : sum;
}

/* All messages cross their wires: always the one that comes first to its next. */
static void slow_wires(slow *s)
{
    const made *m = s->m;
    double wire[3 * MOST_GROUPS] = { 0 };
    int64_t *hop = (int64_t *)support_alloc((size_t)m->count + 1, sizeof *hop), i;
    double *time = (double *)support_alloc((size_t)m->count + 1, sizeof *time);
    for (i = 0; i < m->count; i++) {
        hop[i] = 0;
        time[i] = s->starts[i];
        s->passed[i] = s->leaves[i];
    }
    for (;;) {
        int64_t best = -1, w;
        for (i = 0; i < m->count; i++)
            if (slow_to(m, i) >= 0 && slow_wire(m, rank_at(m, i), slow_to(m, i), hop[i]) >= 0 && (best < 0 || time[i] < time[best])) best = i;
        if (best < 0) break;
        w = slow_wire(m, rank_at(m, best), slow_to(m, best), hop[best]++);
        if (wire[w] > time[best]) time[best] = wire[w];
        wire[w] = time[best] + slow_bytes(m, &m->action[best]) / slow_width(m, w);
        if (wire[w] > s->passed[best]) s->passed[best] = wire[w];
    }
    free(hop);
    free(time);
}

/* The RECV of a SEND, the SEND of a RECV; -1: none. */
static int64_t slow_partner(const made *m, int64_t at)
{
    const het_action *a = &m->action[at];
    int64_t i;
    if (a->kind < HET_ACTION_SEND_F || a->kind > HET_ACTION_RECV_B) return -1;
    for (i = 0; i < m->count; i++) {
        const het_action *b = &m->action[i];
        const int receives = a->kind == HET_ACTION_RECV_F || a->kind == HET_ACTION_RECV_B, up = is_forward(a->kind) != receives;
        if (b->kind == a->kind + (receives ? -1 : 1) && b->pipeline == a->pipeline && b->stage == a->stage + (up ? 1 : -1) &&
            b->micro_batch == a->micro_batch && b->slice == a->slice) return i;
    }
    fail();
    return -1;
}

/* The message of the SEND at `at`. */
static double slow_arrives(const slow *s, int64_t at) { return s->passed[at] + slow_link(s->m, rank_at(s->m, at), slow_to(s->m, at)).latency; }

static int slow_eager(const slow *s, int64_t at) { return slow_bytes(s->m, &s->m->action[at]) <= s->m->costs.eager; }

/* When the buffer of what the F, B or I at `at` makes is free: its SENDs come in the order of such actions. */
static double slow_buffer(const slow *s, int64_t at)
{
    const made *m = s->m;
    int64_t i, r = rank_at(m, at), made_before[MOST_ACTIONS], n = 0, k;
    for (i = m->start[r]; i <= at; i++) {
        const het_action *a = &m->action[i];
        const int forward = a->kind == HET_ACTION_F;
        int64_t to;
        if (a->kind > HET_ACTION_I) continue;
        to = rank_of(m, a->pipeline, a->stage + (forward ? 1 : -1));
        if (to < 0 || to == r) continue;
        for (k = m->start[r]; k < m->start[r + 1]; k++) {
            const het_action *b = &m->action[k];
            if (b->kind == (forward ? HET_ACTION_SEND_F : HET_ACTION_SEND_B) && b->pipeline == a->pipeline && b->stage == a->stage &&
                b->micro_batch == a->micro_batch && b->slice == a->slice) break;
        }
        made_before[n++] = k;
        if (i == at) return n > 2 ? slow_arrives(s, made_before[n - 3]) : 0;
    }
    return 0;
}

/* Both ends of a message's way through the lists, as costs.transfer says. */
static void slow_meet(slow *s, int64_t i, double start, double *starts, double *end)
{
    const made *m = s->m;
    const int receives = m->action[i].kind == HET_ACTION_RECV_F || m->action[i].kind == HET_ACTION_RECV_B;
    const int64_t j = s->partner[i], send = receives ? j : i;
    if (m->costs.transfer == HET_TRANSFER_FREE || j < 0) return;
    if (!receives && !slow_eager(s, i) && s->start[j] > *starts) *starts = s->start[j];
    if (m->costs.transfer == HET_TRANSFER_BLOCKING && (receives || !slow_eager(s, i)))
        *end = slow_arrives(s, send) > start ? slow_arrives(s, send) : start;
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
            double start = i > m->start[r] ? s->end[i - 1] : m->costs.rank != NULL ? m->rank_cost[r].begin : 0, end, leaves = 0, starts = 0;
            if (m->action[i].kind <= HET_ACTION_W && slow_there(s, i) > start) start = slow_there(s, i);
            end = start + slow_seconds(m, i);
            s->done[i] = end;
            if (m->costs.transfer == HET_TRANSFER_POSTED && m->action[i].kind <= HET_ACTION_I && slow_buffer(s, i) > end) end = slow_buffer(s, i);
            if (m->action[i].kind == HET_ACTION_COMMIT && s->verdict[r] > end) end = s->verdict[r];
            if (to >= 0) {
                const double bandwidth = slow_link(m, r, to).bandwidth;
                starts = end;
                for (j = m->start[r]; j < i; j++)
                    if (slow_to(m, j) == to && s->leaves[j] > starts) starts = s->leaves[j];
                slow_meet(s, i, start, &starts, &end);
                leaves = bandwidth > 0 ? starts + slow_bytes(m, &m->action[i]) / bandwidth : starts;
            } else slow_meet(s, i, start, &starts, &end);
            changed |= start < s->start[i] || start > s->start[i] || end < s->end[i] || end > s->end[i] || leaves < s->leaves[i] ||
                leaves > s->leaves[i];
            s->start[i] = start;
            s->end[i] = end;
            s->leaves[i] = leaves;
            s->starts[i] = starts;
            if (m->costs.group == NULL) s->passed[i] = leaves;
        }
        if (m->costs.group != NULL) slow_wires(s);
    }
}

/* ---- rings: who takes part, in which process, what each message takes ---- */

/* Ranks whose lists have the action, ascending. */
static int64_t slow_members(const made *m, int32_t kind, int64_t block, int64_t *member)
{
    int64_t q, i, n = 0;
    for (q = 0; q < m->plan.ranks; q++)
        for (i = m->start[q]; i < m->start[q + 1]; i++)
            if (m->action[i].kind == kind && m->action[i].stage == block) member[n++] = q;
    return n;
}

static int64_t slow_process(const made *m, int64_t rank)
{
    int64_t g, any = 0;
    if (m->costs.group == NULL) return 0;
    for (g = 0; g < m->costs.groups; g++) any |= m->group[g].process;
    for (g = m->rank_group[rank]; g >= 0; g = m->group[g].parent)
        if (m->group[g].process) return 1 + g;
    return any ? 1000 + rank : 0;
}

/* of[i]: the cluster of member i, that of its process where several have members; each its own where all are in one. */
static void slow_clusters(const made *m, const int64_t *member, int64_t n, int64_t *of)
{
    const int spread = slow_process(m, member[0]) != slow_process(m, member[n - 1]);
    int64_t i;
    assert_true(n <= HETRAIN_DIRECT); /* more: large_rings */
    for (of[0] = 0, i = 1; i < n; i++) of[i] = of[i - 1] + !(spread && slow_process(m, member[i]) == slow_process(m, member[i - 1]));
}

/* Whom member i sends what it has for member `other` of the block's sums: to it, if they are of one cluster; else to the one of its own cluster that
   collects for it, and this one to it. */
static int64_t slow_hop(const int64_t *of, int64_t n, int64_t i, int64_t other)
{
    int64_t k, own = 0, far = 0, place = 0, first = -1, turned;
    for (k = 0; k < n; k++) {
        if (of[k] == of[i]) own++, first = first < 0 ? k : first;
        if (of[k] == of[other]) far++, place += k < other;
    }
    if (of[i] == of[other]) return other;
    for (turned = of[other] - of[i]; turned < 0; turned += own) {}
    first += (place * own + turned % own) / far;
    return first == i ? other : first;
}

static double slow_share(const made *m, const int64_t *member, int64_t n, int64_t i, double *sum)
{
    int64_t k;
    for (*sum = 0, k = 0; k < n; k++) *sum += m->state_share[member[k]];
    if (*sum > 0) return m->state_share[member[i]];
    *sum = (double)n;
    return 1;
}

/* Bytes that leave a rank, of all parts but its own, and that come, of its own from everybody else; of a ring as many as leave. */
static double slow_moved(const made *m, int64_t at)
{
    const het_action *a = &m->action[at];
    const double whole = a->kind == HET_ACTION_REDUCE ? m->block_cost[a->stage].reduce_bytes : m->block_cost[a->stage].gather_bytes;
    int64_t member[MOST_STAGES], n = slow_members(m, a->kind, a->stage, member), me = 0;
    double sum, share;
    while (member[me] != rank_at(m, at)) me++;
    share = slow_share(m, member, n, me, &sum);
    return n > 1 ? whole * (sum - share + (m->costs.rings ? sum - share : share * (double)(n - 1))) / sum : 0;
}

/* One message of a ring; adds what its wires carry. */
static double slow_ring_message(const made *m, int64_t from, int64_t to, double bytes, double times, double *load, double *latency)
{
    const het_link_cost link = slow_link(m, from, to);
    double seconds = link.bandwidth > 0 ? bytes / link.bandwidth : 0;
    int64_t k, w;
    for (k = 0; (w = slow_wire(m, from, to, k)) >= 0; k++) {
        if (bytes / slow_width(m, w) > seconds) seconds = bytes / slow_width(m, w);
        load[w] += times * (bytes / slow_width(m, w));
    }
    *latency = link.latency;
    return seconds + link.latency;
}

/* What a reduction or gather takes by itself: every part goes from everybody hop by hop to its owner, or back, and what takes the same hop goes
   together. The slowest message inside of clusters and that between them, each with the other's latency, and no less than what one sends, or gets,
   one after the other. load: of each wire; latency: how much of it is latency; leaves: before the latency. */
static double slow_ring_seconds(const made *m, int32_t kind, int64_t block, double *load, double *latency, double *leaves)
{
    const double whole = kind == HET_ACTION_REDUCE ? m->block_cost[block].reduce_bytes : m->block_cost[block].gather_bytes;
    double share[MOST_STAGES][MOST_STAGES] = { { 0 } }, slowest[2] = { 0, 0 }, late[2] = { 0, 0 }, sum = 1, seconds = 0;
    double out[MOST_STAGES] = { 0 }, in[MOST_STAGES] = { 0 };
    int64_t member[MOST_STAGES], of[MOST_STAGES], n = slow_members(m, kind, block, member), i, j, k;
    slow_clusters(m, member, n, of);
    for (k = 0; k < n; k++) { /* each hop is counted once, whoever's sums come over it */
        const double own = slow_share(m, member, n, k, &sum);
        int used[MOST_STAGES][MOST_STAGES] = { { 0 } };
        for (i = 0; i < n; i++)
            for (j = i; j != k; j = slow_hop(of, n, j, k)) used[j][slow_hop(of, n, j, k)] = 1;
        for (i = 0; i < n; i++)
            for (j = 0; j < n; j++)
                if (used[i][j]) share[i][j] += own;
    }
    for (k = 1; k >= 0; k--) /* between clusters, inside */
        for (i = 0; i < n * n; i++) {
            const int64_t at = i % n, next = i / n, sums = kind == HET_ACTION_REDUCE, from = sums ? at : next, to = sums ? next : at;
            const double bandwidth = slow_link(m, member[from], member[to]).bandwidth;
            double one, link = 0;
            if (at == next || (of[at] != of[next]) != k || slow_hop(of, n, at, next) != next) continue;
            one = slow_ring_message(m, member[from], member[to], whole * share[at][next] / sum, 1, load, &link);
            if (one > slowest[k]) slowest[k] = one;
            if (link > late[k]) late[k] = link;
            one = slow_ring_message(m, member[from], member[to], whole * share[at][next] / sum, 0, load, &link) - link;
            if (one > *leaves) *leaves = one;
            if (bandwidth > 0) out[from] += whole * share[at][next] / sum / bandwidth, in[to] += whole * share[at][next] / sum / bandwidth;
        }
    *latency = late[0] + late[1];
    for (i = 0; i < 2; i++)
        if (slowest[i] + late[1 - i] > seconds) seconds = slowest[i] + late[1 - i];
    for (i = 0; i < n; i++) {
        const double port = out[i] > in[i] ? out[i] : in[i];
        if (port > *leaves) *leaves = port;
        if (port + *latency > seconds) seconds = port + *latency;
    }
    return seconds;
}

/* Rings of one kind: each rank's in the order of (ready, block), among those that can start the earliest. free_at: when a rank's last one has left;
   done: when it is there. */
static void slow_rings(slow *s, int32_t kind, double *free_at, double *done)
{
    const made *m = s->m;
    double ready[MOST_STAGES];
    int64_t member[MOST_STAGES], other[MOST_STAGES], b, c, i, j, k, n, count;
    int waiting[MOST_STAGES];
    for (b = 0; b < m->costs.blocks; b++) {
        ready[b] = waiting[b] = 0;
        for (i = 0; i < m->count; i++)
            if (m->action[i].kind == kind && m->action[i].stage == b) {
                waiting[b] = 1;
                if (s->start[i] > ready[b]) ready[b] = s->start[i];
            }
    }
    for (;;) {
        double load[3 * MOST_GROUPS] = { 0 }, best = 1e300, latency = 0, leaves = 0, end, left;
        int64_t block = -1;
        for (b = 0; b < m->costs.blocks; b++) {
            double start = ready[b];
            int first = waiting[b];
            n = slow_members(m, kind, b, member);
            for (i = 0; i < n; i++)
                if (free_at[member[i]] > start) start = free_at[member[i]];
            for (c = 0; c < m->costs.blocks && first; c++) {
                if (!waiting[c] || c == b || !(ready[c] < ready[b] || (ready[c] <= ready[b] && c < b))) continue;
                count = slow_members(m, kind, c, other);
                for (j = 0; j < n; j++)
                    for (k = 0; k < count; k++) first &= member[j] != other[k];
            }
            if (first && start < best) { best = start; block = b; }
        }
        if (block < 0) return;
        waiting[block] = 0;
        end = best + slow_ring_seconds(m, kind, block, load, &latency, &leaves);
        left = best + leaves;
        for (k = 0; k < 3 * MOST_GROUPS; k++) {
            if (load[k] <= 0) continue;
            if (s->wire[k] < best) s->wire[k] = best;
            s->wire[k] += load[k];
            if (s->wire[k] > left) left = s->wire[k];
            if (s->wire[k] + latency > end) end = s->wire[k] + latency;
        }
        for (i = 0; i < m->count; i++)
            if (m->action[i].kind == kind && m->action[i].stage == block) {
                free_at[rank_at(m, i)] = left;
                if (end > done[rank_at(m, i)]) done[rank_at(m, i)] = end;
                s->ring[i] = end > 0 ? end : 1e-300; /* timed */
            }
    }
}

static double slow_end(const slow *s, const double *done)
{
    double end = 0;
    int64_t i;
    for (i = 0; i < s->m->count; i++)
        if (s->end[i] > end) end = s->end[i];
    for (i = 0; i < s->m->plan.ranks && s->m->costs.rank != NULL; i++)
        if (s->m->rank_cost[i].begin > end) end = s->m->rank_cost[i].begin;
    for (i = 0; i < s->m->plan.ranks; i++)
        if (done[i] > end) end = done[i];
    return end;
}

/* Adds members 1 .. count - 1 of a tree whose root is member 0 to an order of messages (to, from). Links known: each time whoever can hear first, the
   lower sender before the higher one. Else member k hears from (k - 1) / 16. */
static void slow_tree(const made *m, int64_t *member, int64_t count, int known, int64_t *order, int64_t *messages)
{
    double told[MOST_STAGES] = { 0 };
    int64_t k, to, from, i, j;
    for (k = 1; k < count; k++) {
        double best = HUGE_VAL;
        to = k;
        from = (k - 1) / 16;
        for (j = k; j < count && known; j++)
            for (i = 0; i < k; i++) {
                const double end = told[i] + slow_link(m, member[i], member[j]).latency + slow_link(m, member[j], member[i]).latency;
                if (end < best) { best = end; to = j; from = i; }
            }
        order[2 * *messages] = member[to];
        order[2 * (*messages)++ + 1] = member[from];
        i = member[k];
        member[k] = member[to];
        member[to] = i;
        told[k] = best;
    }
}

/* The scalars of the ranks with a stage: all messages in reverse, each from when both its ends are there, then all of them. at: [ranks] when each is
   ready, then when it has them. */
static void slow_join(const made *m, double *at)
{
    int64_t works[MOST_STAGES], member[MOST_STAGES], order[2 * MOST_STAGES], messages = 0, count = 0, n, r, s, i, k;
    double up[MOST_STAGES];
    for (r = 0; r < m->plan.ranks; r++) {
        int found = 0;
        for (s = 0; s < m->plan.stages; s++) found |= m->plan.stage[s].rank == r;
        if (found) works[count++] = r;
    }
    for (i = n = 0; i < count; i++)
        if (i == 0 || slow_process(m, works[i]) != slow_process(m, works[i - 1])) member[n++] = works[i];
    slow_tree(m, member, n, 0, order, &messages);
    for (i = 0; i < count; i = k) {
        for (k = i, n = 0; k < count && slow_process(m, works[k]) == slow_process(m, works[i]); k++) member[n++] = works[k];
        slow_tree(m, member, n, n <= 16, order, &messages);
    }
    memcpy(up, at, (size_t)m->plan.ranks * sizeof *up);
    for (i = messages - 1; i >= 0; i--) {
        const int64_t to = order[2 * i], from = order[2 * i + 1];
        up[from] = fmax(up[from], fmax(at[from], up[to]) + slow_link(m, to, from).latency);
    }
    at[works[0]] = up[works[0]];
    for (i = 0; i < messages; i++) {
        const int64_t to = order[2 * i], from = order[2 * i + 1];
        at[to] = at[from] + slow_link(m, from, to).latency;
    }
}

static double slow_simulate(slow *s, const made *m)
{
    double free_at[MOST_STAGES] = { 0 }, done[MOST_STAGES] = { 0 };
    int64_t i;
    memset(s, 0, sizeof *s);
    s->m = m;
    for (i = 0; i < m->count; i++) s->partner[i] = slow_partner(m, i);
    slow_settle(s);
    if (m->schedule.complete) { /* the first round ends at the verdict: what is behind it is computed again */
        double latest = 0;
        slow_rings(s, HET_ACTION_REDUCE, free_at, done);
        for (i = 0; i < m->count; i++)
            if (m->action[i].kind == HET_ACTION_COMMIT) {
                const int64_t r = rank_at(m, i);
                s->verdict[r] = (done[r] > s->start[i] ? done[r] : s->start[i]) + (m->costs.rank != NULL ? m->rank_cost[r].verdict : 0);
                if (s->verdict[r] > latest) latest = s->verdict[r];
            }
        if (m->costs.transfer == HET_TRANSFER_POSTED) slow_join(m, s->verdict);
        else
            for (i = 0; i < m->plan.ranks; i++) s->verdict[i] = latest;
        slow_settle(s);
        slow_rings(s, HET_ACTION_GATHER, free_at, done);
    }
    return slow_end(s, done);
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
    double peak = 0;
    int64_t i, j, k, g;
    *where = -1;
    for (i = m->start[rank]; i < m->start[rank + 1]; i++) {
        double kept = 0;
        for (j = m->start[rank]; j <= i; j++) {
            const het_action *a = &m->action[j];
            double n = 0, sum = 0;
            if (a->kind > HET_ACTION_W || a->kind == HET_ACTION_I) continue;
            for (k = slow_first(m, a); k < m->plan.slices; k++) sum += m->slice_share[k];
            for (g = m->first_stage[a->pipeline]; g < m->first_stage[a->pipeline + 1]; g++) n += m->stage[g].rank == rank;
            kept += (a->kind == HET_ACTION_F ? 1 : -1) * m->slice_share[a->slice] / sum / n;
        }
        if (kept > peak + 1e-9) { peak = kept; *where = i - m->start[rank]; }
    }
    return peak;
}

/* The same in bytes. A cell keeps its input bytes while it has had its F but neither B nor I, and so on. */
static double slow_peak_bytes(const made *m, int64_t rank, int64_t *where)
{
    double peak = 0;
    int64_t i, j, k;
    *where = -1;
    for (i = m->start[rank]; i < m->start[rank + 1]; i++) {
        double kept = 0;
        for (j = m->start[rank]; j <= i; j++) { /* every F, and what came after it */
            const het_action *a = &m->action[j];
            const het_stage_cost *c = &m->stage_cost[a->kind == HET_ACTION_F ? m->first_stage[a->pipeline] + a->stage : 0];
            int input = 0, weight = 0;
            double keeps, stays;
            if (a->kind != HET_ACTION_F) continue;
            keeps = slow_is_lean(m, a) ? 0 : c->keep_input, stays = slow_is_lean(m, a) ? c->keep_lean : c->keep_weight;
            for (k = j + 1; k <= i; k++) {
                const het_action *b = &m->action[k];
                if (b->kind > HET_ACTION_W || b->stage != a->stage || b->pipeline != a->pipeline || b->micro_batch != a->micro_batch ||
                    b->slice != a->slice) continue;
                input |= b->kind == HET_ACTION_B || b->kind == HET_ACTION_I;
                weight |= b->kind == HET_ACTION_B || b->kind == HET_ACTION_W;
            }
            kept += slow_part(m, a, (input ? 0 : keeps) + (weight ? 0 : stays) + (input && !weight ? c->keep_gradient : 0));
        }
        if (kept > peak + 1e-9) { peak = kept; *where = i - m->start[rank]; }
    }
    return peak;
}

/* What lists say of slices without rows leaves them; place: [actions] where the others were in their rank's list. */
static void drop_without_rows(made *m, int64_t *place)
{
    int64_t r, i, n = 0;
    for (r = 0; r < m->plan.ranks; r++) {
        const int64_t begin = m->start[r], first = n;
        for (i = begin; i < m->start[r + 1]; i++) {
            const het_action *a = &m->action[i];
            if (a->kind <= HET_ACTION_RECV_B && a->slice < slow_first(m, a)) continue;
            place[n] = i - begin;
            m->action[n++] = *a;
        }
        m->start[r] = first;
    }
    m->start[r] = m->count = n;
}

static void check_against_slow(made *m, slow *s)
{
    static int64_t place[MOST_ACTIONS];
    het_simulation *got = run(m, 1);
    double makespan, all = 0;
    int64_t r, i, where;
    drop_without_rows(m, place);
    makespan = slow_simulate(s, m);
    EXACTLY(got->makespan, makespan);
    for (r = 0; r < m->plan.ranks; r++) {
        const het_rank_time *t = &got->rank[r];
        double busy = m->costs.rank != NULL ? m->rank_cost[r].begin : 0, first = -1, last = 0;
        int extra = m->costs.rank != NULL;
        for (i = m->start[r]; i < m->start[r + 1]; i++) {
            const het_action *a = &m->action[i];
            const het_record *record = find_record(&got->timeline, r, a);
            const double seconds = slow_seconds(m, i);
            if ((a->kind == HET_ACTION_RECV_F || a->kind == HET_ACTION_RECV_B) && m->costs.transfer != HET_TRANSFER_BLOCKING)
                continue; /* recorded where it is waited for */
            assert_non_null(record);
            EXACTLY(record->start, s->start[i]);
            if (a->kind == HET_ACTION_SEND_F || a->kind == HET_ACTION_SEND_B) EXACTLY(record->end, s->passed[i]);
            else if (a->kind == HET_ACTION_REDUCE || a->kind == HET_ACTION_GATHER) assert_true(fabs(record->end - s->ring[i]) < 1e-200);
            else if (a->kind == HET_ACTION_COMMIT) EXACTLY(record->end, s->verdict[r]);
            else EXACTLY(record->end, a->kind <= HET_ACTION_W ? s->done[i] : s->end[i]);
            if (a->kind == HET_ACTION_COMMIT && m->costs.rank != NULL) busy += m->rank_cost[r].verdict;
            if (a->kind > HET_ACTION_W && a->kind != HET_ACTION_STEP) { extra = 1; busy += seconds; continue; }
            busy += seconds;
            if (first < 0) first = s->start[i];
            last = s->done[i];
        }
        all += busy;
        assert_true(fabs(t->busy - busy) < 1e-9);
        if (!extra) EXACTLY(t->start, first < 0 ? 0 : first);
        if (!extra) EXACTLY(t->end, last);
        assert_true(fabs(t->idle - (makespan - busy)) < 1e-9);
        assert_true(fabs(t->fill + t->wait + t->tail - t->idle) < 1e-9);
        assert_true(fabs(t->peak - slow_peak(m, r, &where)) < 1e-9);
        assert_int_equal(t->peak_action, where < 0 ? where : place[m->start[r] + where]);
        assert_true(fabs(t->peak_bytes - slow_peak_bytes(m, r, &where)) < 1e-9);
        assert_int_equal(t->peak_bytes_action, where < 0 ? where : place[m->start[r] + where]);
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
    int64_t n = rounds != NULL ? strtol(rounds, NULL, 10) * 4 : 1200, i;
    slow *s = (slow *)support_alloc(1, sizeof *s);
    uint64_t seed = 20260114;
    (void)state;
    for (i = 0; i < n; i++) {
        made *m = random_made(&seed);
        if (i % 2) random_slices(m, &seed);
        check_against_slow(m, s);
        free(m);
    }
    free(s);
}

static double length_of(const made *m)
{
    het_simulation *s = run(m, 0);
    const double makespan = s->makespan;
    het_simulation_free(s);
    return makespan;
}

/* All schedules by name: as long as lists without what they say of slices without rows, and not as long as where all are cut alike. */
static void named_schedules_with_short_micro_batches(void **state)
{
    static int64_t place[MOST_ACTIONS];
    uint64_t seed = 12;
    int64_t n, i, others = 0;
    const het_schedule_kind *kind;
    (void)state;
    for (n = 0; (kind = het_schedule_kind_at(n)) != NULL; n++) {
        het_plan *plan;
        het_schedule *schedule = NULL;
        het_plan_desc desc;
        het_error error;
        het_result result;
        double whole, bare, all;
        made *m = make(4);
        memset(&desc, 0, sizeof desc);
        desc.units = 16, desc.ranks = 4, desc.slices = 3, desc.schedule = kind->name;
        EXPECT_ERROR(het_plan_read(&desc, "pp", 2, &plan, &error), HET_OK, error.text, "");
        for (i = 0; i < plan->pipelines; i++) m->micro_batches[i] = 8 / plan->pipelines;
        plan->memory_limit = 4;
        result = het_schedule_make(plan, m->micro_batches, NULL, &schedule, &error);
        if (result == HET_ERR_INVALID) { /* several updates a step */
            assert_non_null(strstr(error.text, "updates"));
            het_plan_free(plan);
            free(m);
            continue;
        }
        EXPECT_ERROR(result, HET_OK, error.text, "");
        m->plan = *plan, m->plan.slice_share = m->slice_share;
        m->slice_share[0] = 2, m->slice_share[1] = m->slice_share[2] = 1;
        m->schedule = *schedule;
        m->schedule.action = m->action, m->schedule.start = m->start, m->schedule.micro_batches = m->micro_batches;
        memcpy(m->start, schedule->start, 5 * sizeof *m->start);
        memcpy(m->action, schedule->action, (size_t)schedule->start[4] * sizeof *m->action);
        memcpy(m->first_stage, plan->first_stage, (size_t)(plan->pipelines + 1) * sizeof *m->first_stage);
        memcpy(m->stage, plan->stage, (size_t)plan->stages * sizeof *m->stage);
        m->plan.stage = m->stage;
        random_slices(m, &seed);
        for (i = 0; i < plan->stages; i++)
            m->stage_cost[i].forward.token = m->stage_cost[i].input.token = m->stage_cost[i].weight.token = (double)(4 + support_below(&seed, 9)),
            m->stage_cost[i].backward.token = 9;
        m->costs.every_link.latency = 2;
        m->costs.tokens = m->tokens;
        m->plan.slice_tokens = 0;
        all = length_of(m);
        m->plan.slice_tokens = 2;
        whole = length_of(m);
        others += !same(whole, all);
        drop_without_rows(m, place);
        for (i = 0; i < m->count; i++)
            if (m->action[i].overlap && (i + 1 == m->start[rank_at(m, i) + 1] || place[i + 1] != place[i] + 1)) m->action[i].overlap = 0;
        bare = length_of(m);
        EXACTLY(whole, bare);
        het_schedule_free(schedule);
        het_plan_free(plan);
        free(m);
    }
    assert_true(n > 15 && others > n / 2);
}

/* `copies` of a plan of one pipeline side by side, that hold the same blocks. */
static made *copies_of(const made *one, int64_t copies, uint64_t *seed)
{
    const int64_t ranks = one->plan.ranks, stages = one->plan.stages, n = one->micro_batches[0];
    made *m = make(ranks * copies);
    int64_t c, g, r, i;
    m->schedule.complete = one->schedule.complete;
    m->plan.slices = one->plan.slices;
    m->plan.slice_tokens = one->plan.slice_tokens;
    memcpy(m->slice_share, one->slice_share, sizeof m->slice_share);
    memcpy(m->block_cost, one->block_cost, sizeof m->block_cost);
    for (i = 0; i < ranks * copies * ranks * copies; i++) m->link[i].latency = (double)support_below(seed, 9);
    for (c = 0; c < copies; c++) {
        add_pipeline(m, n);
        for (g = 0; g < stages; g++) {
            add_stage(m, c * ranks + one->stage[g].rank, 0, 0, 0);
            m->stage_cost[c * stages + g] = one->stage_cost[g];
            m->stage[c * stages + g].recompute = one->stage[g].recompute;
            m->stage[c * stages + g].keep = one->stage[g].keep;
        }
        for (i = 0; i < n; i++) {
            m->tokens[c * n + i] = one->tokens[i];
            m->pairs[c * n + i] = one->pairs[i];
            m->sequences[c * n + i] = one->sequences[i];
        }
        for (r = 0; r < ranks; r++) {
            m->state_share[c * ranks + r] = one->state_share[r];
            m->rank_cost[c * ranks + r] = one->rank_cost[r];
            for (i = 0; i < ranks && one->costs.link != NULL; i++)
                m->link[(c * ranks + r) * ranks * copies + c * ranks + i] = one->link[r * ranks + i];
            for (i = one->start[r]; i < one->start[r + 1]; i++) {
                m->action[m->count] = one->action[i];
                if (one->action[i].kind < HET_ACTION_REDUCE) m->action[m->count].pipeline = (int32_t)c;
                m->count++;
            }
            m->start[c * ranks + r + 1] = m->count;
        }
    }
    m->costs.link = m->link;
    m->costs.block = m->block_cost;
    m->costs.blocks = one->costs.blocks;
    m->costs.tokens = one->costs.tokens != NULL ? m->tokens : NULL;
    m->costs.pairs = one->costs.pairs != NULL ? m->pairs : NULL;
    m->costs.sequences = one->costs.sequences != NULL ? m->sequences : NULL;
    m->costs.rank = one->costs.rank != NULL ? m->rank_cost : NULL;
    return m;
}

/* Pipelines that are alike are simulated once: the slow simulator knows nothing of that. In every second plan one of them differs in one thing. */
static void pipelines_alike(void **state)
{
    slow *s = (slow *)support_alloc(1, sizeof *s);
    uint64_t seed = 4711;
    int64_t i, done = 0;
    (void)state;
    for (i = 0; done < 200; i++) {
        made *one = random_made(&seed), *m;
        if (i % 2) random_slices(one, &seed);
        if (one->plan.pipelines == 1 && one->micro_batches[0] > 0 && one->count < 150) {
            const int64_t copies = 2 + support_below(&seed, 3), last = one->plan.stages * copies - 1;
            m = copies_of(one, copies, &seed);
            if (support_below(&seed, 2) == 0) switch (support_below(&seed, 8)) {
                case 0: m->stage_cost[last].forward.token += 3; break;
                case 1: m->stage_cost[last].keep_weight += 3; break;
                case 2: m->link[(one->plan.ranks * copies - 1) * one->plan.ranks * copies + one->plan.ranks * copies - 2].latency += 5; break;
                case 3: m->tokens[copies * one->micro_batches[0] - 1] += 1; break;
                case 4: m->state_share[one->plan.ranks * copies - 1] += 1; break;
                case 5: m->rank_cost[one->plan.ranks * copies - 1].begin += 1; break;
                case 6: m->stage[last].keep ^= 1; break;
                default: m->block_cost[0].reduce_bytes += 480; break;
            }
            check_against_slow(m, s);
            free(m);
            done++;
        }
        free(one);
    }
    free(s);
}

/* What one rank sends to another is received in the same order, as het_schedule_check demands. */
static int in_order(const made *m)
{
    int64_t i, j;
    for (i = 0; i < m->count; i++)
        for (j = i + 1; j < m->start[rank_at(m, i) + 1] && m->schedule.complete; j++)
            if (slow_to(m, i) >= 0 && slow_to(m, i) == slow_to(m, j) && slow_partner(m, i) > slow_partner(m, j)) return 0;
    return 1;
}

/* Lists in a random order may wait for each other where messages meet: those are refused, and the others must agree. */
static void messages_that_meet(void **state)
{
    const char *rounds = getenv("HETRAIN_TEST_ROUNDS");
    int64_t n = rounds != NULL ? strtol(rounds, NULL, 10) * 16 : 4000, i, ran[3] = { 0, 0, 0 };
    slow *s = (slow *)support_alloc(1, sizeof *s);
    uint64_t seed = 77;
    (void)state;
    for (i = 0; i < n; i++) {
        made *m = random_made(&seed);
        het_simulation *simulation = NULL;
        het_error error;
        if (i % 2) random_slices(m, &seed);
        m->costs.transfer = support_below(&seed, 2) == 0 ? HET_TRANSFER_POSTED : HET_TRANSFER_BLOCKING;
        m->costs.eager = support_below(&seed, 2) == 0 ? 0 : 64 * (double)support_below(&seed, 12);
        if (m->schedule.complete && in_order(m) &&
            het_simulate(&m->plan, &m->schedule, &m->costs, HET_NO, NULL, &simulation, &error) == HET_OK) {
            ran[m->costs.transfer]++;
            het_simulation_free(simulation);
            check_against_slow(m, s);
        } else if (m->schedule.complete && in_order(m)) assert_non_null(strstr(error.text, "for ever"));
        free(m);
    }
    print_message("%d of %d lists ran with posted messages, %d with blocking ones\n", (int)ran[1], (int)n, (int)ran[2]);
    assert_true(ran[1] > n / 100 && ran[2] > n / 100);
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

/* (m - 1) max + sum + 2 sum of latencies is what several published planners count (Alpa, Metis, AMP, Sailor), max and sum over what stages take
   for F and B of one micro-batch. */
static double formula(const made *m, int64_t micro_batches, double latency)
{
    double sum = 0, most = 0;
    int64_t i;
    for (i = 0; i < m->plan.stages; i++) {
        const double time = m->stage_cost[i].forward.token + m->stage_cost[i].backward.token;
        sum += time;
        if (time > most) most = time;
    }
    return (double)(micro_batches - 1) * most + sum + 2 * (double)(m->plan.stages - 1) * latency;
}

/* It is exact for gpipe wherever B is the same multiple of F in all stages, however uneven they are. 1F1B waits for its links in every round, which
   it does not count: 8 ranks, 64 micro-batches, F 1, B 2, link 0.5 take 275, and it says 63 3 + 8 3 + 14 0.5 = 220, a fifth less. */
static void known_formula(void **state)
{
    uint64_t seed = 11;
    double largest = 0;
    int64_t round, i;
    (void)state;
    for (round = 0; round < 200; round++) {
        const int64_t ranks = 1 + support_below(&seed, 9), n = 1 + support_below(&seed, 40);
        const double latency = (double)support_below(&seed, 4), times = (double)(1 + support_below(&seed, 3));
        int kind;
        for (kind = 0; kind < 2; kind++) {
            made *m = kind == 0 ? gpipe(ranks, n, 1, 1, 1) : one_f_one_b(ranks, n, 1, 1, 1);
            het_simulation *s;
            double expected;
            for (i = 0; i < ranks; i++) {
                m->stage_cost[i].forward.token = kind == 0 ? (double)(1 + support_below(&seed, 9)) : 8;
                m->stage_cost[i].backward.token = times * m->stage_cost[i].forward.token;
            }
            m->costs.every_link.latency = latency;
            expected = formula(m, n, latency);
            s = run(m, 0);
            if (kind == 0) EXACTLY(s->makespan, expected);
            else {
                assert_true(s->makespan >= expected);
                if (1 - expected / s->makespan > largest) largest = 1 - expected / s->makespan;
            }
            het_simulation_free(s);
            free(m);
        }
    }
    print_message("(m - 1) max + sum of 1F1B falls short by up to %.1f %%\n", 100 * largest);
    assert_true(largest > 0.1);
    {
        made *m = one_f_one_b(8, 64, 1, 1, 1);
        het_simulation *s;
        m->costs.every_link.latency = 0.5;
        s = run(m, 0);
        EXACTLY(s->makespan, 275);
        EXACTLY(formula(m, 64, 0.5), 220);
        het_simulation_free(s);
        free(m);
    }
}

/* ---- groups ---- */

/* Ranks 0 and 1 in one group, 2 and 3 in another, a pipeline 0 -> 2 and one 1 -> 3, one micro-batch each. */
static made *two_pairs(double latency, double bandwidth)
{
    made *m = make(4);
    int64_t i;
    for (i = 0; i < 2; i++) {
        add_pipeline(m, 1);
        add_stage(m, i, 4, 1, 1);
        add_stage(m, i + 2, 4, 1, 1);
        m->stage_cost[2 * i].bytes = 64;
    }
    for (i = 0; i < 4; i++) {
        add(m, HET_ACTION_F, i / 2, 0);
        m->action[m->count - 1].pipeline = (int32_t)(i % 2);
        m->start[i + 1] = m->count;
        m->rank_group[i] = 1 + i / 2;
    }
    m->group[0].parent = -1;
    m->group[0].latency = latency;
    m->group[0].bandwidth = bandwidth;
    m->costs.group = m->group;
    m->costs.rank_group = m->rank_group;
    m->costs.groups = 3;
    return m;
}

static double makespan_of(made *m)
{
    const double makespan = length_of(m);
    free(m);
    return makespan;
}

static void shared_wires(void **state)
{
    made *m;
    (void)state;
    EXACTLY(makespan_of(two_pairs(3, 8)), 4 + 64 / 8 + 3 + 4); /* each its own link */
    m = two_pairs(3, 8);
    m->group[1].uplink = 8; /* both leave through it, one after the other */
    EXACTLY(makespan_of(m), 4 + 2 * 64 / 8 + 3 + 4);
    m = two_pairs(3, 0);
    m->group[2].uplink = 8; /* both come in through it */
    EXACTLY(makespan_of(m), 4 + 2 * 64 / 8 + 3 + 4);
    m = two_pairs(3, 8);
    m->group[0].bus = 8; /* both cross it */
    EXACTLY(makespan_of(m), 4 + 2 * 64 / 8 + 3 + 4);
    m = two_pairs(3, 8);
    m->group[1].bus = m->group[2].bus = 1; /* nobody talks inside */
    EXACTLY(makespan_of(m), 4 + 64 / 8 + 3 + 4);
    m = two_pairs(3, 8);
    m->group[1].uplink = 16; /* twice as wide: the slowest part counts, and the second waits 4 for the first */
    EXACTLY(makespan_of(m), 4 + 4 + 64 / 8 + 3 + 4 - 4);
    m = two_pairs(3, 32);
    m->group[1].uplink = 16;
    m->group[2].uplink = 4;
    EXACTLY(makespan_of(m), 4 + 2 * 64 / 4 + 3 + 4);
    m = two_pairs(3, 8);
    m->stage_cost[2].forward.token = 20; /* the first has left long before */
    m->group[1].uplink = 8;
    EXACTLY(makespan_of(m), 20 + 64 / 8 + 3 + 4);
    m = two_pairs(3, 8);
    m->rank_group[1] = 2; /* inside group 2, that has no link of its own: no time */
    m->group[1].uplink = 8;
    EXACTLY(makespan_of(m), 4 + 64 / 8 + 3 + 4);
}

/* Twelve ranks in three processes of four, one block of 1,200 bytes: each sends three others of its process a quarter, and gets one from each, then
   two twelfths to other processes. And the other way round for new weights. */
static void rings_in_two_levels(void **state)
{
    int kind;
    (void)state;
    for (kind = 0; kind < 4; kind++) {
        made *m = make(12);
        int64_t i;
        const int32_t kinds[4] = { HET_ACTION_REDUCE, HET_ACTION_GATHER, HET_ACTION_REDUCE, HET_ACTION_GATHER };
        for (i = 0; i < 12; i++) {
            add_pipeline(m, 1);
            add_stage(m, i, 1, 1, 1);
        }
        for (i = 0; i < 12; i++) {
            add(m, kinds[kind], 0, 0);
            m->start[i + 1] = m->count;
            m->rank_group[i] = 1 + i / 4;
        }
        m->group[0].parent = -1;
        m->group[0].latency = 100;
        m->group[0].bandwidth = 4;
        for (i = 1; i < 4; i++) {
            m->group[i].latency = 10;
            m->group[i].bandwidth = 12;
            m->group[i].process = kind != 2;
        }
        m->costs.group = m->group;
        m->costs.rank_group = m->rank_group;
        m->costs.groups = 4;
        m->costs.block = m->block_cost;
        m->costs.blocks = 1;
        m->block_cost[0].reduce_bytes = m->block_cost[0].gather_bytes = 1200;
        m->block_cost[0].windows = kind == 3 ? 60 : 0;
        if (kind == 3) EXACTLY(makespan_of(m), 10 + 4 * (100 + 25.0 / 5 / 4) + 5 + 100); /* of five windows between processes, four wait */
        else if (kind < 2) EXACTLY(makespan_of(m), 10 + 100 + 3 * 300 / 12 + 2 * 100 / 4);
        else EXACTLY(makespan_of(m), 100 + 3 * 100 / 12 + 8 * 100 / 4); /* one process: all at once */
    }
}

/* 800 bytes over links of 100 a second and a latency of 1, from 10 on: as much as the busiest sends or gets where a block has keepers or is divided
   otherwise; nothing where it left or comes beside calls. */
/* Two ranks with a copy each: their one backward takes 4, a unit of it 1, and so does a block's reduction, from the unit that uses it on. */
static void reductions_begin_inside_the_last_pass(void **state)
{
    static const struct { double chain[4], end; } cases[] = {
        { { 0, 0, 0, 0 }, 9 }, { { 0, 1, 2, 3 }, 6 }, { { 0, 0, 0, 3 }, 8 }, { { 2, 2, 2, 2 }, 7 },
    };
    size_t i;
    int64_t r, b;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        made *m = make(2);
        double got;
        for (r = 0; r < 2; r++) {
            m->state_share[r] = 1;
            add_pipeline(m, 1);
            add_stage(m, r, 1, 4, 0);
            add(m, HET_ACTION_F, 0, 0);
            m->action[m->count - 1].pipeline = (int32_t)r;
            add(m, HET_ACTION_B, 0, 0);
            m->action[m->count - 1].pipeline = (int32_t)r;
            m->stage_cost[r].chain[1] = 4;
            for (b = 0; b < 4; b++) add(m, HET_ACTION_REDUCE, 0, 0), m->action[m->count - 1].stage = (int32_t)b;
            m->start[r + 1] = m->count;
        }
        m->costs.every_link.bandwidth = 400;
        m->costs.block = m->block_cost;
        m->costs.blocks = 4;
        for (b = 0; b < 4; b++) m->block_cost[b].reduce_bytes = 800, m->block_cost[b].chain = cases[i].chain[b];
        got = makespan_of(m);
        if (!same(got, cases[i].end)) fail_msg("case %d: %g", (int)i, got);
    }
}

/* Two ranks in turn, each of which owns half of a block. Both have their gradients at 20. Rank 0's takes 2 to its owners, their update 1 (23), then
   comes rank 1's (25, 26); a copy of the new weights takes 1.5. Without costs of blocks complete lists are as long as their compute actions. */
static void several_updates(void **state)
{
    static const char *const names[] = { "2bw", "pipedream", "xpipe", "1f1b", "hogbatch" };
    static const int32_t kinds[2][7] = {
        { HET_ACTION_F, HET_ACTION_B, HET_ACTION_REDUCE, HET_ACTION_STEP, HET_ACTION_STEP, HET_ACTION_GATHER, HET_ACTION_COMMIT },
        { HET_ACTION_F, HET_ACTION_B, HET_ACTION_STEP, HET_ACTION_REDUCE, HET_ACTION_STEP, HET_ACTION_GATHER, HET_ACTION_COMMIT } };
    static const int32_t versions[2][7] = { { 0, 0, 0, 0, 1, 1, 0 }, { 0, 1, 0, 1, 1, 1, 0 } };
    made *m = make(2);
    size_t i;
    int64_t r, k;
    (void)state;
    for (r = 0; r < 2; r++) {
        add_pipeline(m, 1);
        add_stage(m, r, 10, 10, 0);
        for (k = 0; k < 7; k++) {
            add(m, kinds[r][k], 0, 0);
            m->action[m->count - 1].version = versions[r][k];
            if (k < 2) m->action[m->count - 1].pipeline = (int32_t)r;
        }
        m->start[r + 1] = m->count;
    }
    m->plan.updates = 2;
    m->costs.every_link.latency = 1;
    m->costs.every_link.bandwidth = 400;
    m->costs.block = m->block_cost;
    m->costs.blocks = 1;
    m->block_cost[0].reduce_bytes = 800;
    m->block_cost[0].gather_bytes = 400;
    m->block_cost[0].step = 2;
    m->schedule.complete = 1;
    assert_true(same(makespan_of(m), 27.5));
    for (i = 0; i < 5; i++)
        for (k = 2; k <= 4; k *= 2) {
            const int64_t counts[4] = { i < 4 ? 16 : 14, 0, 1, 1 }; /* hogbatch has updates without gradients */
            het_plan *plan = support_plan(i < 4 ? "pp" : k == 2 ? "dp2xpp2" : "dp", names[i], 8, 4, 1);
            het_schedule *lists = NULL, *complete = NULL;
            het_simulation *sim[2] = { NULL, NULL };
            het_stage_cost stage[4];
            het_costs costs;
            het_error error;
            int which;
            plan->updates = k;
            if (i == 3) plan->staleness = 3;
            memset(&costs, 0, sizeof costs);
            memset(stage, 0, sizeof stage);
            for (r = 0; r < 4; r++) stage[r].forward.base = (double)(1 + r % 2), stage[r].backward.base = (double)(2 + r % 3);
            costs.stage = stage;
            costs.every_link.latency = 0.25;
            EXPECT_ERROR(het_schedule_make(plan, counts, NULL, &lists, &error), HET_OK, error.text, "");
            EXPECT_ERROR(het_schedule_complete(plan, NULL, lists, NULL, &complete, &error), HET_OK, error.text, "");
            for (which = 0; which < 2; which++)
                EXPECT_ERROR(het_simulate(plan, which ? complete : lists, &costs, HET_NO, NULL, &sim[which], &error), HET_OK, error.text, "");
            if (!same(sim[0]->makespan, sim[1]->makespan))
                fail_msg("%s, %d updates: %g, complete %g", names[i], (int)k, sim[0]->makespan, sim[1]->makespan);
            het_simulation_free(sim[0]);
            het_simulation_free(sim[1]);
            het_schedule_free(lists);
            het_schedule_free(complete);
            het_plan_free(plan);
        }
}

/* A plan of three updates whose stages make one each means a synchronous step. */
static void one_update_of_three(void **state)
{
    static const int64_t counts[2] = { 4, 4 };
    het_plan *plan = support_plan("dp2xpp2", "1f1b", 8, 4, 1);
    double end[2] = { 0, 0 };
    int i, k;
    (void)state;
    for (k = 0; k < 2; k++) {
        het_schedule *lists = NULL, *complete = NULL;
        het_simulation *simulation = NULL;
        het_stage_cost stage[4];
        het_block_cost block[8];
        het_costs costs;
        het_error error;
        memset(&costs, 0, sizeof costs);
        memset(stage, 0, sizeof stage);
        memset(block, 0, sizeof block);
        plan->updates = 3 * k;
        for (i = 0; i < 4; i++) plan->stage[i].updates = k, stage[i].forward.base = 1, stage[i].backward.base = 2;
        for (i = 0; i < 8; i++) block[i].reduce_bytes = 8, block[i].gather_bytes = 4, block[i].step = 1;
        costs.stage = stage;
        costs.block = block;
        costs.blocks = 8;
        costs.every_link.latency = 0.25;
        costs.every_link.bandwidth = 2;
        EXPECT_ERROR(het_schedule_make(plan, counts, NULL, &lists, &error), HET_OK, error.text, "");
        EXPECT_ERROR(het_schedule_complete(plan, NULL, lists, NULL, &complete, &error), HET_OK, error.text, "");
        EXPECT_ERROR(het_simulate(plan, complete, &costs, HET_NO, NULL, &simulation, &error), HET_OK, error.text, "");
        end[k] = simulation->makespan;
        het_simulation_free(simulation);
        het_schedule_free(lists);
        het_schedule_free(complete);
    }
    EXACTLY(end[1], end[0]);
    het_plan_free(plan);
}

/* Pipelines with the same costs and lists, of which only the second recomputes: one of its two slices. */
static void twins_recompute_alike(void **state)
{
    static const int64_t counts[2] = { 1, 1 };
    het_plan *plan = support_plan("dp", "1f1b", 4, 2, 2);
    het_schedule *lists = NULL;
    het_simulation *simulation = NULL;
    het_stage_cost stage[2];
    het_costs costs;
    het_error error;
    int i;
    (void)state;
    memset(&costs, 0, sizeof costs);
    memset(stage, 0, sizeof stage);
    for (i = 0; i < 2; i++) {
        plan->stage[i].keep = 1;
        plan->stage[i].recompute = i;
        stage[i].forward.base = 1, stage[i].backward.base = 2, stage[i].again.base = 4;
    }
    costs.stage = stage;
    EXPECT_ERROR(het_schedule_make(plan, counts, NULL, &lists, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_simulate(plan, lists, &costs, HET_NO, NULL, &simulation, &error), HET_OK, error.text, "");
    EXACTLY(simulation->rank[0].busy, 6);
    EXACTLY(simulation->rank[1].busy, 10);
    het_simulation_free(simulation);
    het_schedule_free(lists);
    het_plan_free(plan);
}

/* Two workers of one rank, six updates of a micro-batch each: one takes 6 for any, the other 3 and, from the fourth on, 9. Gradients three updates
   late, neither waits: 36. One late, the fast start of the second ends at 12, where the first has its second update: 39. */
static void workers_get_ahead(void **state)
{
    static const struct { int64_t staleness; double end; } cases[] = { { 3, 36 }, { 1, 39 }, { 5, 36 } };
    static const double tokens[12] = { 2, 2, 2, 2, 2, 2, 1, 1, 1, 3, 3, 3 };
    static const int64_t counts[2] = { 6, 6 };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        het_plan *plan = support_plan("dp", "1f1b", 2, 2, 1);
        het_schedule *lists = NULL, *complete = NULL;
        het_simulation *sim = NULL;
        het_stage_cost stage[2];
        het_costs costs;
        het_error error;
        plan->updates = 6;
        plan->staleness = cases[i].staleness;
        memset(&costs, 0, sizeof costs);
        memset(stage, 0, sizeof stage);
        stage[0].forward.token = stage[1].forward.token = 1;
        stage[0].backward.token = stage[1].backward.token = 2;
        costs.stage = stage;
        costs.tokens = tokens;
        EXPECT_ERROR(het_schedule_make(plan, counts, NULL, &lists, &error), HET_OK, error.text, "");
        EXPECT_ERROR(het_schedule_complete(plan, NULL, lists, NULL, &complete, &error), HET_OK, error.text, "");
        EXPECT_ERROR(het_simulate(plan, complete, &costs, HET_NO, NULL, &sim, &error), HET_OK, error.text, "");
        if (!same(sim->makespan, cases[i].end)) fail_msg("%d late: %g, not %g", (int)cases[i].staleness, sim->makespan, cases[i].end);
        het_simulation_free(sim);
        het_schedule_free(lists);
        het_schedule_free(complete);
        het_plan_free(plan);
    }
}

static void divided_blocks(void **state)
{
    static const struct { het_shard shard; int64_t ranks, keepers; double share[4]; int64_t near[4]; double reduce, gather; } cases[] = {
        { HET_SHARD_STATE, 2, 1, { 0, 1 }, { 0 }, 9, 9 },
        { HET_SHARD_STATE, 3, 1, { 1, 1, 2 }, { 0 }, 9, 9 },         /* the keeper's half, of two */
        { HET_SHARD_STATE, 4, 1, { 0, 0, 0, 1 }, { 0 }, 25, 25 },
        { HET_SHARD_STATE, 4, 1, { 5, 1, 1, 1 }, { 0 }, 11, 11 },    /* rank 0's 500, of or to two others */
        { HET_SHARD_STATE, 4, 0, { 1, 1, 1, 1 }, { 0 }, 7, 7 },      /* a part to each other rank */
        { HET_SHARD_GRADIENTS, 4, 0, { 1, 1, 1, 1 }, { 0 }, 0, 7 },
        { HET_SHARD_GRADIENTS, 4, 1, { 1, 1, 1, 1 }, { 0 }, 0, 7 },
        { HET_SHARD_WEIGHTS, 4, 0, { 1, 2, 3, 4 }, { 0 }, 0, 0 },
        { HET_SHARD_WEIGHTS, 4, 1, { 1, 2, 3, 4 }, { 0 }, 0, 0 },
        { HET_SHARD_WEIGHTS, 4, 0, { 1, 1, 1, 1 }, { 0, 0, 1, 1 }, 0, 5 },
        { HET_SHARD_WEIGHTS, 4, 0, { 3, 1, 1, 1 }, { 0, 0, 1, 1 }, 0, 9 }, /* 400 to two sets; it holds 600 */
        { HET_SHARD_WEIGHTS, 4, 0, { 0, 0, 1, 1 }, { 0, 0, 1, 1 }, 0, 9 },
        { HET_SHARD_WEIGHTS, 4, 1, { 1, 1, 1, 1 }, { 0, 0, 1, 1 }, 0, 9 }, /* rank 2 is its set */
    };
    size_t i;
    int64_t r;
    int gather;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++)
        for (gather = 0; gather < 2; gather++) {
            made *m = make(cases[i].ranks);
            int64_t near[4];
            uint8_t keeper[4] = { 0 };
            double got;
            memcpy(near, cases[i].near, sizeof near);
            m->plan.shard = cases[i].shard;
            m->plan.near = near;
            m->plan.keeper = keeper;
            for (r = 0; r < m->plan.ranks; r++) {
                m->state_share[r] = cases[i].share[r];
                keeper[r] = r >= m->plan.ranks - cases[i].keepers;
                if (!keeper[r]) {
                    add_pipeline(m, 1);
                    add_stage(m, r, 10, 0, 0);
                    add(m, HET_ACTION_F, 0, 0);
                    m->action[m->count - 1].pipeline = (int32_t)r;
                }
                add(m, gather ? HET_ACTION_GATHER : HET_ACTION_REDUCE, 0, 0);
                m->start[r + 1] = m->count;
            }
            m->costs.every_link.latency = 1;
            m->costs.every_link.bandwidth = 100;
            m->costs.block = m->block_cost;
            m->costs.blocks = 1;
            m->block_cost[0].reduce_bytes = m->block_cost[0].gather_bytes = 800;
            got = makespan_of(m);
            if (!same(got, 10 + (gather ? cases[i].gather : cases[i].reduce)))
                fail_msg("case %d, %s: %g", (int)i, gather ? "GATHER" : "REDUCE", got);
        }
}

/* A call takes as long as what comes beside it, if that is longer. */
static void calls_wait_for_what_comes_beside(void **state)
{
    made *m = one_f_one_b(1, 3, 10, 20, 5);
    int i;
    (void)state;
    m->stage_cost[0].beside[HET_ACTION_F] = 12;
    m->stage_cost[0].beside[HET_ACTION_B] = 24;
    EXACTLY(makespan_of(m), 3 * (12 + 25));
    m = chain(1, 1, 10, 20, 5); /* two slices, of which the first recomputes */
    for (i = 0; i < 4; i++) {
        add(m, i < 2 ? HET_ACTION_F : HET_ACTION_B, 0, 0);
        m->action[i].slice = i == 1 || i == 2;
    }
    m->start[1] = m->count;
    m->plan.slices = 2, m->slice_share[1] = 1;
    m->stage_cost[0].beside[HET_ACTION_B] = 24;
    m->stage_cost[0].beside[4] = 4; /* of slices that recompute where others do not */
    m->stage[0].recompute = HET_RECOMPUTE_STAGE, m->stage[0].keep = 2;
    EXACTLY(makespan_of(m), 2 * 5 + 24 + 28);
    m = one_f_one_b(1, 3, 10, 20, 5);
    m->stage_cost[0].beside[4] = 30;
    EXACTLY(makespan_of(m), 3 * (10 + 25));
    m = one_f_one_b(1, 3, 10, 20, 5); /* of two units 1.25 of F's 10 beside moves of 4, of one 7.5 beside 3 */
    m->stage_cost[0].move[0][0].count = 2, m->stage_cost[0].move[0][0].seconds = 4, m->stage_cost[0].move[0][0].part = 0.125;
    m->stage_cost[0].move[0][1].count = 1, m->stage_cost[0].move[0][1].seconds = 3, m->stage_cost[0].move[0][1].part = 0.75;
    m->stage_cost[0].move[1][0].count = 1, m->stage_cost[0].move[1][0].seconds = 21, m->stage_cost[0].move[1][0].part = 1;
    memcpy(m->stage_cost[0].move[2], m->stage_cost[0].move[0], sizeof m->stage_cost[0].move[0]);
    EXACTLY(length_of(m), 3 * (2 * 4 + 7.5 + 25));
    m->stage_cost[0].move[2][0].seconds = 6; /* beside the two F behind a B */
    EXACTLY(length_of(m), 3 * (2 * 4 + 7.5 + 25) + 2 * 2 * 2);
    m->stage_cost[0].move[1][0].seconds = 30, m->stage_cost[0].move[2][0].seconds = 4;
    m->stage_cost[0].beside[HET_ACTION_F] = 16;
    EXACTLY(makespan_of(m), 3 * (16 + 30));
}

/* Block 0 of ranks 0 and 2 is ready at 10, block 1 of ranks 1 and 3 at 2: that one has the uplink first, from 2 to 6, and is there at 9; the other
   from 10 to 14, there at 17. */
static void rings_share_wires(void **state)
{
    made *m = make(4);
    int64_t i;
    (void)state;
    for (i = 0; i < 4; i++) {
        add_pipeline(m, 1);
        add_stage(m, i, i % 2 == 0 ? 10 : 2, 0, 0);
        add(m, HET_ACTION_F, 0, 0);
        m->action[m->count - 1].pipeline = (int32_t)i;
        add(m, HET_ACTION_REDUCE, i % 2, 0);
        m->start[i + 1] = m->count;
        m->rank_group[i] = 1 + i / 2;
    }
    m->group[0].parent = -1;
    m->group[0].latency = 3;
    m->group[1].uplink = 8;
    m->costs.group = m->group;
    m->costs.rank_group = m->rank_group;
    m->costs.groups = 3;
    m->costs.block = m->block_cost;
    m->costs.blocks = 2;
    m->block_cost[0].reduce_bytes = m->block_cost[1].reduce_bytes = 64;
    EXACTLY(makespan_of(m), 17);
}

/* A sequence in four equal slices: the queries of slice k see 1, 3, 5, 7 sixteenths of the pairs; two sequences cut in four: 1, 3, 1, 3 eighths. */
static void pairs_of_slices(void **state)
{
    static const double expected[2][4] = { { 1, 3, 5, 7 }, { 2, 6, 2, 6 } };
    int kind, k;
    (void)state;
    for (kind = 0; kind < 2; kind++) {
        made *m = chain(1, 1, 0, 0, 0);
        het_simulation *s;
        m->plan.slices = 4;
        for (k = 0; k < 4; k++) {
            m->slice_share[k] = 5;
            add(m, HET_ACTION_F, 0, 0);
            m->action[k].slice = k;
        }
        m->start[1] = 4;
        m->stage_cost[0].forward.base = 1000;
        m->stage_cost[0].forward.token = 0.5;
        m->stage_cost[0].forward.pair = 2;
        m->tokens[0] = 800;
        m->pairs[0] = 8;
        m->sequences[0] = kind + 1;
        m->costs.tokens = m->tokens;
        m->costs.pairs = m->pairs;
        m->costs.sequences = m->sequences;
        s = run(m, 1);
        for (k = 0; k < 4; k++) EXACTLY(s->timeline.record[k].end - s->timeline.record[k].start, 1000 + 100 + expected[kind][k]);
        het_simulation_free(s);
        free(m);
    }
}

/* 3,000 members, in 55 clusters of 54 or 55, or in one ring, reached in any order, and one that comes twice. */
static void large_rings(void **state)
{
    enum { RANKS = 3000, CLUSTERS = 55 };
    static int64_t cluster[CLUSTERS + 1], collected[RANKS];
    int64_t c, d, most = 0, longest = 0;
    het_plan plan;
    het_schedule schedule;
    het_costs costs;
    het_block_cost block;
    het_stage_cost cost;
    het_simulation *s = NULL;
    het_error error;
    het_stage *stage = (het_stage *)support_alloc(RANKS, sizeof *stage);
    int64_t *first = (int64_t *)support_alloc(RANKS + 1, sizeof *first), *start = (int64_t *)support_alloc(RANKS + 1, sizeof *start);
    int64_t *micro_batches = (int64_t *)support_alloc(RANKS, sizeof *micro_batches), r;
    het_action *action = (het_action *)support_alloc(RANKS + 1, sizeof *action);
    double share = 1, *even = (double *)support_alloc(RANKS, sizeof *even);
    (void)state;
    memset(&plan, 0, sizeof plan);
    memset(&schedule, 0, sizeof schedule);
    memset(&costs, 0, sizeof costs);
    memset(&block, 0, sizeof block);
    memset(&cost, 0, sizeof cost);
    memset(stage, 0, RANKS * sizeof *stage);
    memset(action, 0, (RANKS + 1) * sizeof *action);
    plan.ranks = schedule.ranks = RANKS;
    plan.slices = plan.pipelines = plan.stages = plan.units = stage->unit_end = schedule.pipelines = 1;
    plan.stage = stage;
    plan.first_stage = first;
    plan.share = plan.slice_share = &share;
    plan.state_share = even;
    for (r = 0; r < RANKS; r++) even[r] = 1;
    first[0] = 0;
    first[1] = 1;
    micro_batches[0] = 0;
    for (r = 0; r <= RANKS; r++) {
        action[r].kind = HET_ACTION_REDUCE;
        start[r] = r;
    }
    schedule.micro_batches = micro_batches;
    schedule.start = start;
    schedule.action = action;
    costs.stage = &cost;
    costs.block = &block;
    costs.blocks = 1;
    costs.every_link.latency = 2;
    costs.every_link.bandwidth = 1;
    costs.rings = 1;
    block.reduce_bytes = RANKS;
    EXPECT_OK(het_simulate(&plan, &schedule, &costs, HET_NO, NULL, &s, &error));
    EXACTLY(s->makespan, (RANKS - 1) * 3);
    het_simulation_free(s);
    costs.rings = 0;
    for (c = 0; c <= CLUSTERS; c++) cluster[c] = c * RANKS / CLUSTERS;
    for (r = 0; r < RANKS; r++) collected[r] = 1;
    for (c = 0; c < CLUSTERS; c++)
        for (d = 0; d < CLUSTERS; d++)
            for (r = cluster[d]; r < cluster[d + 1] && c != d; r++)
                collected[cluster[c] + HETRAIN_COLLECTOR(cluster[c + 1] - cluster[c], c, r - cluster[d], cluster[d + 1] - cluster[d], d)]++;
    for (c = 0; c < CLUSTERS; c++)
        for (r = cluster[c]; r < cluster[c + 1]; r++) /* what comes: from its cluster what it collects, from others what it owns */
            most = (cluster[c + 1] - cluster[c] - 1) * collected[r] + CLUSTERS - 1 > most
                       ? (cluster[c + 1] - cluster[c] - 1) * collected[r] + CLUSTERS - 1 : most;
    assert_true(most < RANKS + RANKS / 20);
    EXPECT_OK(het_simulate(&plan, &schedule, &costs, HET_NO, NULL, &s, &error));
    EXACTLY(s->makespan, most + 4);
    het_simulation_free(s);
    costs.wires = 1; /* the longest message */
    for (r = 0; r < RANKS; r++) longest = collected[r] > longest ? collected[r] : longest;
    EXPECT_OK(het_simulate(&plan, &schedule, &costs, HET_NO, NULL, &s, &error));
    EXACTLY(s->makespan, longest + 4);
    het_simulation_free(s);
    start[RANKS] = RANKS + 1;
    EXPECT_ERROR(het_simulate(&plan, &schedule, &costs, HET_NO, NULL, &s, &error), HET_ERR_INVALID, error.text, "rank 2999|action 1|REDUCE0|twice");
    free(even);
    free(stage);
    free(first);
    free(start);
    free(micro_batches);
    free(action);
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

/* ---- schedules for given times ---- */

static het_schedule *timed(const made *m)
{
    het_schedule *schedule = NULL;
    het_error error;
    error.text[0] = 0;
    EXPECT_ERROR(het_schedule_timed(&m->plan, m->micro_batches, &m->costs, NULL, &schedule, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_schedule_check(&m->plan, NULL, schedule, NULL, &error), HET_OK, error.text, "");
    return schedule;
}

/* Makespan, and the most that a rank keeps, of a schedule: by name, or NULL: the one for these times. */
static het_simulation *run_named(made *m, const char *name)
{
    het_schedule *schedule = NULL, own = m->schedule;
    het_simulation *s;
    het_error error;
    error.text[0] = 0;
    strcpy(m->plan.schedule, name != NULL ? name : "");
    if (name == NULL) schedule = timed(m);
    else EXPECT_ERROR(het_schedule_make(&m->plan, m->micro_batches, NULL, &schedule, &error), HET_OK, error.text, "");
    m->schedule = *schedule;
    s = run(m, 0);
    m->schedule = own;
    het_schedule_free(schedule);
    return s;
}

static double most_kept(const het_simulation *s)
{
    double most = 0;
    int64_t r;
    for (r = 0; r < s->ranks; r++) most = s->rank[r].peak > most ? s->rank[r].peak : most;
    return most;
}

/* The paper's automatic schedules, ZB-1p and ZB-2p, whose limits are 1F1B's activations and twice as many. They count what W needs, 32 of
   34 + 5 a s / h, until W: a heads, sequences of s = 1024, width h. */
static void timed_reaches_published_bubbles(void **state)
{
    static const struct { int64_t ranks, micro_batches; double f, b, w, link, heads, width, bubble[2]; } cases[] = {
        { 8, 24, 18522, 18086, 9337, 601, 24, 2304, { 0.1585, 0.0433 } },  { 8, 32, 18513, 18086, 9331, 626, 24, 2304, { 0.1242, 0.0039 } },
        { 8, 64, 18546, 18097, 9321, 762, 24, 2304, { 0.0674, 0.0026 } },  { 8, 24, 29718, 29444, 19927, 527, 32, 4096, { 0.1323, 0.0029 } },
        { 8, 32, 29802, 29428, 19530, 577, 32, 4096, { 0.1045, 0.0022 } }, { 8, 64, 29935, 29621, 19388, 535, 32, 4096, { 0.0554, 0.0010 } },
        { 16, 48, 11347, 11248, 8132, 377, 40, 5120, { 0.1397, 0.0066 } }, { 16, 64, 11307, 11254, 8101, 379, 40, 5120, { 0.1088, 0.0054 } },
        { 16, 128, 11325, 11308, 8109, 378, 40, 5120, { 0.0576, 0.0028 } }, { 32, 96, 10419, 10207, 7715, 408, 48, 6144, { 0.1421, 0.0038 } },
        { 32, 128, 10408, 10204, 7703, 408, 48, 6144, { 0.1106, 0.0029 } }, { 32, 256, 10402, 10248, 7698, 460, 48, 6144, { 0.0594, 0.0018 } },
    };
    double worst = 0;
    size_t c;
    int limit, r;
    (void)state;
    for (c = 0; c < sizeof cases / sizeof *cases; c++)
        for (limit = 0; limit < 2; limit++) {
            made *m = chain(cases[c].ranks, cases[c].micro_batches, cases[c].f, cases[c].b, cases[c].w);
            const double kept = 34 + 5 * 1024 * cases[c].heads / cases[c].width;
            het_simulation *s;
            m->costs.every_link.latency = cases[c].link;
            m->plan.memory_limit = (double)((limit + 1) * cases[c].ranks);
            for (r = 0; r < cases[c].ranks; r++) m->stage_cost[r].keep_input = kept - 32, m->stage_cost[r].keep_weight = 32;
            s = run_named(m, NULL);
            if (fabs(s->span_bubble - cases[c].bubble[limit]) > worst) worst = fabs(s->span_bubble - cases[c].bubble[limit]);
            for (r = 0; r < cases[c].ranks; r++) assert_true(s->rank[r].peak_bytes <= m->plan.memory_limit * kept * (1 + 1e-9));
            het_simulation_free(s);
            free(m);
        }
    print_message("bubbles within %.4f of ZB-1p and ZB-2p, %d cases\n", worst, 2 * (int)c);
    assert_true(worst < 0.001);
}

/* The shortest of all orders, one stage a rank, by branch and bound (Giffler and Thompson): of all actions that could begin the one that would
   end first names a rank, and one of those that this rank could begin before that end comes next. What is not earlier in anything than what
   was met with the same actions done is left. */
#define ORDER_ITEMS 7
#define ORDER_RANKS 6
typedef struct order {
    int64_t done[ORDER_RANKS][3];
    double clock[ORDER_RANKS], there[ORDER_RANKS][2][ORDER_ITEMS]; /* inputs, gradients */
} order;
typedef struct order_search {
    const made *m;
    double best;
    order *met;
    int64_t count, room;
} order_search;

static double order_cost(const made *m, int64_t g, int k)
{
    const het_stage_cost *c = &m->stage_cost[g];
    return k == 0 ? c->forward.token : k == 1 ? c->input.token : c->weight.token;
}

static double order_link(const made *m, int64_t from, int64_t to)
{
    const het_link_cost *link = &m->link[from * m->plan.ranks + to];
    const double bytes = m->stage_cost[from < to ? from : to].bytes; /* of stage `from`, or of the gradient of what it got */
    return link->latency + (link->bandwidth > 0 ? bytes / link->bandwidth : 0); /* no message waits for another */
}

static int order_met(order_search *s, const order *now)
{
    const int64_t p = s->m->plan.ranks, items = s->m->micro_batches[0];
    int64_t i, g, n;
    for (i = 0; i < s->count; i++) {
        const order *met = &s->met[i];
        int earlier = memcmp(met->done, now->done, sizeof now->done) == 0;
        for (g = 0; g < p && earlier; g++) {
            earlier = met->clock[g] <= now->clock[g];
            for (n = now->done[g][0]; n < items; n++) earlier &= met->there[g][0][n] <= fmax(now->there[g][0][n], now->clock[g]);
            for (n = now->done[g][1]; n < items; n++) earlier &= met->there[g][1][n] <= fmax(now->there[g][1][n], now->clock[g]);
        }
        if (earlier) return 1;
    }
    if (s->count == s->room) {
        s->room = 2 * s->room + 64;
        s->met = (order *)realloc(s->met, (size_t)s->room * sizeof *s->met);
        assert_non_null(s->met);
    }
    s->met[s->count++] = *now;
    return 0;
}

/* What is left to do on some rank, or on the way of what it has not yet sent, is too much. */
static int order_hopeless(const order_search *s, const order *now, int *done)
{
    const made *m = s->m;
    const int64_t p = m->plan.ranks, items = m->micro_batches[0];
    int64_t g, u;
    int k;
    *done = 1;
    for (g = 0; g < p; g++) {
        double left = now->clock[g], way = left;
        for (k = 0; k < 3; k++) {
            left += (double)(items - now->done[g][k]) * order_cost(m, g, k);
            if (k < 2) way = left;
        }
        if (now->done[g][2] < items) *done = 0;
        for (u = g; u > 0 && now->done[g][1] < items; u--) way += order_link(m, u, u - 1) + order_cost(m, u - 1, 1);
        if (now->done[g][1] < items) way += order_cost(m, 0, 2);
        if (left >= s->best - 1e-9 || way >= s->best - 1e-9) return 1;
    }
    return 0;
}

static void order_next(order_search *s, const order *now)
{
    const made *m = s->m;
    const int64_t p = m->plan.ranks, items = m->micro_batches[0];
    double begin[ORDER_RANKS][3], end = 1e300;
    int64_t g, rank = -1;
    int k, done;
    if (order_hopeless(s, now, &done)) return;
    if (done) {
        for (s->best = 0, g = 0; g < p; g++) s->best = fmax(s->best, now->clock[g]);
        return;
    }
    if (order_met(s, now)) return;
    for (g = 0; g < p; g++) {
        const int64_t *n = now->done[g];
        begin[g][0] = n[0] < items && (double)(n[0] - n[2] + 1) <= m->plan.memory_limit ? fmax(now->clock[g], now->there[g][0][n[0]]) : 1e300;
        begin[g][1] = n[1] < n[0] ? fmax(now->clock[g], now->there[g][1][n[1]]) : 1e300;
        begin[g][2] = n[2] < n[1] ? now->clock[g] : 1e300;
        for (k = 0; k < 3; k++)
            if (begin[g][k] + order_cost(m, g, k) < end) end = begin[g][k] + order_cost(m, g, k), rank = g;
    }
    for (k = 0; k < 3 && rank >= 0; k++) {
        order next = *now;
        const int64_t n = next.done[rank][k]++;
        if (begin[rank][k] >= end) continue;
        next.clock[rank] = begin[rank][k] + order_cost(m, rank, k);
        if (k == 0 && rank + 1 < p) next.there[rank + 1][0][n] = next.clock[rank] + order_link(m, rank, rank + 1);
        if (k == 0 && rank + 1 == p) next.there[rank][1][n] = next.clock[rank];
        if (k == 1 && rank > 0) next.there[rank - 1][1][n] = next.clock[rank] + order_link(m, rank, rank - 1);
        order_next(s, &next);
    }
}

/* No longer than `known`. */
static double shortest_order(const made *m, double known)
{
    order_search s;
    order start;
    int64_t g, n;
    memset(&s, 0, sizeof s);
    memset(&start, 0, sizeof start);
    for (g = 0; g < m->plan.ranks; g++)
        for (n = 0; n < m->micro_batches[0]; n++) start.there[g][0][n] = g == 0 ? 0 : 1e300, start.there[g][1][n] = 1e300;
    s.m = m;
    s.best = known + 1e-6;
    order_next(&s, &start);
    free(s.met);
    return fmin(s.best, known);
}

/* Two sites: nothing, half a forward or two forwards between two neighbouring ranks. At every limit within a tenth of the shortest order,
   and never longer than 1f1b and zb-h1 where these keep to the limit. In random cases all times differ. */
static void timed_is_near_the_shortest_order(void **state)
{
    static const double costs[4][3] = { { 2, 2, 2 }, { 2, 2, 1 }, { 2, 3, 2 }, { 4, 5, 3 } }, delays[3] = { 0, 0.5, 2 };
    uint64_t random = 117;
    double worst = 1, sum = 0;
    int round, optimal = 0;
    (void)state;
    for (round = 0; round < 1200; round++) {
        const int drawn = round >= 600;
        const int64_t p = 2 + support_below(&random, 3), items = 2 + support_below(&random, p == 2 ? 6 : 6 - p), site = support_below(&random, p - 1);
        const double *c = costs[round % 4];
        made *m = chain(p, items, c[0], c[1], c[2]);
        het_simulation *s, *other;
        double shortest;
        int64_t g;
        int which;
        m->costs.link = m->link;
        for (g = 0; g < p; g++) {
            const double scale = drawn ? 1 + 0.5 * support_uniform(&random) : round % 8 >= 4 && g == site ? 1.5 : 1;
            m->stage_cost[g].forward.token *= scale;
            m->stage_cost[g].input.token *= scale;
            m->stage_cost[g].weight.token *= drawn ? 1 + 0.9 * support_uniform(&random) : scale;
            m->stage_cost[g].backward.token = m->stage_cost[g].input.token + m->stage_cost[g].weight.token;
            if (g + 1 < p && (drawn || g == site))
                m->link[g * p + g + 1].latency = m->link[(g + 1) * p + g].latency =
                    c[0] * (drawn ? 1.25 + 1.25 * support_uniform(&random) : delays[round / 8 % 3]);
        }
        m->plan.memory_limit = (double)(1 + support_below(&random, 2 * p));
        s = run_named(m, NULL);
        assert_true(most_kept(s) <= m->plan.memory_limit);
        for (which = 0; which < 2; which++) {
            other = run_named(m, which == 0 ? "1f1b" : "zb-h1");
            if (most_kept(other) <= m->plan.memory_limit) assert_true(s->makespan <= other->makespan * (1 + 1e-8));
            het_simulation_free(other);
        }
        shortest = shortest_order(m, s->makespan);
        sum += s->makespan / shortest;
        optimal += s->makespan <= shortest * (1 + 1e-6);
        if (s->makespan > worst * shortest) worst = s->makespan / shortest;
        het_simulation_free(s);
        free(m);
    }
    print_message("%d of %d as short as the shortest order, on average %.4f, at most %.4f of it\n", optimal, round, sum / round, worst);
    assert_true(worst < 1.1);
}

/* Layers of any times on up to 6 devices of any speeds, links by any matrix, other there than back. */
enum { PLACED_RANKS = 6, PLACED_UNITS = 6 };
typedef struct placed {
    int64_t ranks, units, items;
    double speed[PLACED_RANKS], time[PLACED_UNITS][3], bytes[PLACED_UNITS];
    het_link_cost link[PLACED_RANKS * PLACED_RANKS];
    int64_t device[PLACED_RANKS], end[PLACED_RANKS]; /* of the stages of the plan that is looked at */
    int used[PLACED_RANKS];
    double best;
} placed;

/* The first `stages` stages as a chain of that many ranks. */
static made *placed_chain(const placed *t, int64_t stages)
{
    made *m = chain(stages, t->items, 0, 0, 0);
    int64_t g, h, u;
    m->costs.link = m->link;
    m->plan.memory_limit = (double)t->items;
    for (g = 0; g < stages; g++) {
        het_stage_cost *c = &m->stage_cost[g];
        double time[3] = { 0, 0, 0 };
        for (u = g > 0 ? t->end[g - 1] : 0; u < t->end[g]; u++)
            for (h = 0; h < 3; h++) time[h] += t->time[u][h] / t->speed[t->device[g]];
        c->forward.token = time[0], c->input.token = time[1], c->weight.token = time[2], c->backward.token = time[1] + time[2];
        c->bytes = t->bytes[t->end[g] - 1];
        for (h = 0; h < stages; h++) m->link[g * stages + h] = t->link[t->device[g] * t->ranks + t->device[h]];
    }
    return m;
}

/* Every order of every devices, every cut, and of each the shortest order of its actions, where no bound says that it is longer. */
static void placed_all(placed *t, int64_t stages)
{
    int64_t r, end;
    const int64_t begin = stages > 0 ? t->end[stages - 1] : 0;
    if (begin == t->units) {
        made *m = placed_chain(t, stages);
        double reach = 0, back = 0, least = 0;
        int64_t g;
        for (g = 0; g < stages; g++) {
            least = fmax(least, reach + (double)t->items * (order_cost(m, g, 0) + order_cost(m, g, 1) + order_cost(m, g, 2)));
            reach += order_cost(m, g, 0);
            if (g + 1 < stages) reach += order_link(m, g, g + 1), back += order_link(m, g + 1, g);
            back += order_cost(m, g, 1);
        }
        if (fmax(least, reach + back) < t->best) t->best = shortest_order(m, t->best);
        free(m);
        return;
    }
    for (r = 0; r < t->ranks; r++)
        for (end = begin + 1; end <= t->units && !t->used[r]; end++) {
            t->used[r] = 1;
            t->device[stages] = r;
            t->end[stages] = end;
            placed_all(t, stages + 1);
            t->used[r] = 0;
        }
}

/* The planner's plan with a list for measured times; *named: with the schedule that it chose. */
static double placed_found(placed *t, uint64_t seed, double *named)
{
    static const char *const schedules[] = { "1f1b", "gpipe", "zb-h1", "greedy" };
    het_unit_kind kind[PLACED_UNITS];
    het_block_profile block[PLACED_UNITS];
    het_device_profile device;
    het_unit_time time[PLACED_UNITS];
    het_cluster_device place[PLACED_RANKS];
    het_group group;
    het_profile profile;
    het_cluster cluster;
    het_search_desc desc;
    support_memory memory;
    het_search *search = NULL;
    het_simulation *one;
    het_error error;
    made *m;
    int32_t unit[PLACED_UNITS];
    int64_t use[PLACED_UNITS], u;
    double seconds;
    memset(kind, 0, sizeof kind), memset(block, 0, sizeof block), memset(&device, 0, sizeof device), memset(time, 0, sizeof time);
    memset(place, 0, sizeof place), memset(&group, 0, sizeof group), memset(&profile, 0, sizeof profile), memset(&cluster, 0, sizeof cluster);
    memset(&desc, 0, sizeof desc), memset(&memory, 0, sizeof memory);
    for (u = 0; u < t->units; u++) {
        snprintf(kind[u].name, sizeof kind[u].name, "unit%d", (int)u);
        unit[u] = (int32_t)u, use[u] = block[u].first_use = u, block[u].uses = block[u].elements = 1;
        kind[u].loss = u + 1 == t->units;
        if (u + 1 < t->units) kind[u].output = kind[u + 1].input = t->bytes[u];
        time[u].forward.token = t->time[u][0], time[u].input.token = t->time[u][1], time[u].weight.token = t->time[u][2];
        time[u].backward.token = t->time[u][1] + t->time[u][2];
    }
    snprintf(device.name, sizeof device.name, "x");
    device.alone = device.together = time;
    for (u = 0; u < t->ranks; u++) memcpy(place[u].profile, "x", 2), place[u].speed = t->speed[u];
    group.parent = -1;
    profile.kinds = profile.units = profile.blocks = profile.uses = t->units, profile.devices = 1;
    profile.kind = kind, profile.unit = unit, profile.block = block, profile.use = use, profile.device = &device;
    memory.fail_at = -1;
    profile.allocator = support_allocator(&memory);
    profile.reduce_bytes = 1e12; /* one pipeline: two would take years to reduce */
    cluster.ranks = t->ranks, cluster.groups = 1, cluster.device = place, cluster.group = &group, cluster.link = t->link;
    desc.profile = &profile, desc.cluster = &cluster, desc.granules = t->items, desc.granule_tokens = desc.most_granules = 1;
    desc.schedules = schedules, desc.schedule_count = 4, desc.recompute = desc.teams = HET_NO, desc.seed = seed, desc.evaluations = 4000;
    EXPECT_ERROR(het_plan_search(&desc, &search, &error), HET_OK, error.text, "");
    assert_int_equal(search->found[0].plan->pipelines, 1);
    for (u = 0; u < search->found[0].plan->stages; u++) {
        t->device[u] = search->found[0].plan->stage[u].rank;
        t->end[u] = search->found[0].plan->stage[u].unit_end;
    }
    m = placed_chain(t, u);
    m->plan.memory_limit = search->found[0].plan->memory_limit;
    one = run_named(m, search->found[0].plan->schedule);
    *named = one->makespan;
    het_simulation_free(one);
    m->plan.memory_limit = (double)t->items;
    one = run_named(m, NULL);
    seconds = one->makespan;
    het_simulation_free(one);
    free(m);
    het_search_free(search);
    return seconds;
}

static double between(uint64_t *seed, double low, double high) { return low + (high - low) * 0.5 * (support_uniform(seed) + 1); }

static void plans_on_matrices_are_near_the_best(void **state)
{
    uint64_t seed = 8;
    double worst = 0, sum = 0, worst_named = 0;
    int round, best = 0, rounds = support_environment("HETRAIN_TEST_ROUNDS", 60) > 60 ? 40 : 24;
    (void)state;
    for (round = 0; round < rounds; round++) {
        placed t;
        double found, named;
        int64_t i, k;
        memset(&t, 0, sizeof t);
        t.ranks = 3 + round % 4;
        t.units = 4 + support_below(&seed, 3);
        t.items = 2 + support_below(&seed, 3);
        for (i = 0; i < t.ranks; i++) t.speed[i] = between(&seed, 0.5, 1.5);
        for (i = 0; i < t.units; i++) {
            for (k = 0; k < 3; k++) t.time[i][k] = between(&seed, 0.5, 2);
            t.bytes[i] = between(&seed, 0, 100);
        }
        for (i = 0; i < t.ranks * t.ranks; i++) t.link[i].latency = between(&seed, 0, 0.5), t.link[i].bandwidth = between(&seed, 50, 1000);
        found = placed_found(&t, (uint64_t)round, &named);
        t.best = found;
        placed_all(&t, 0);
        worst = fmax(worst, found / t.best);
        worst_named = fmax(worst_named, named / t.best);
        sum += found / t.best;
        best += found <= t.best * (1 + 1e-6);
    }
    print_message("%d of %d plans on 3 to 6 devices as short as the best of all, on average %.4f, at most %.4f of it (%.4f in a named "
        "schedule's order)\n", best, rounds, sum / rounds, worst, worst_named);
    assert_true(worst < 1.1);
}

/* Drawn plans that no order can be looked for in: unequal stages, several a rank, slow links, slices, stores and unequal micro-batches. Never
   longer than any schedule that suits the plan and keeps to the limit; the same every time. */
static void timed_is_never_longer_than_named(void **state)
{
    uint64_t random = 20261125;
    int round;
    (void)state;
    for (round = 0; round < 60; round++) {
        const int64_t ranks = 2 + support_below(&random, 6), stages = ranks * (1 + (round % 3 == 2)), items = support_below(&random, 20);
        made *m = make(ranks);
        const het_schedule_kind *kind;
        het_schedule *one, *two;
        het_simulation *s;
        int64_t g, i;
        add_pipeline(m, items);
        for (g = 0; g < stages; g++)
            add_stage(m, round % 2 && g >= ranks ? stages - 1 - g : g % ranks, 2 + support_uniform(&random), 2 + support_uniform(&random),
                1.1 + support_uniform(&random));
        for (g = 0; g < stages; g++) m->stage_cost[g].bytes = 3, m->stage[g].store = round % 10 == 9 ? 2 : 0;
        m->plan.slices = round % 4 == 3 ? 2 : 1;
        m->slice_share[1] = 1;
        for (i = 0; i < items; i++) m->tokens[i] = 1.5 + support_uniform(&random);
        m->costs.tokens = m->tokens;
        m->costs.every_link.latency = support_uniform(&random) + 1;
        m->costs.every_link.bandwidth = 2 + support_uniform(&random);
        m->plan.memory_limit = round % 5 == 0 ? 0 : (double)(1 + support_below(&random, 2 * ranks));
        s = run_named(m, NULL);
        assert_true(m->plan.memory_limit < 1 || most_kept(s) <= m->plan.memory_limit + 1e-9);
        for (i = 0; (kind = het_schedule_kind_at(i)) != NULL; i++) {
            het_schedule *schedule = NULL;
            het_simulation *other;
            het_error error;
            strcpy(m->plan.schedule, kind->name);
            if (het_schedule_make(&m->plan, m->micro_batches, NULL, &schedule, &error) != HET_OK) continue;
            het_schedule_free(schedule);
            other = run_named(m, kind->name);
            if ((m->plan.memory_limit < 1 || most_kept(other) <= m->plan.memory_limit) && s->makespan > other->makespan * (1 + 1e-8))
                fail_msg("round %d: %.6f, %s %.6f", round, s->makespan, kind->name, other->makespan);
            het_simulation_free(other);
        }
        one = timed(m);
        two = timed(m);
        assert_int_equal(one->start[ranks], two->start[ranks]);
        assert_memory_equal(one->action, two->action, (size_t)one->start[ranks] * sizeof *one->action);
        het_schedule_free(one);
        het_schedule_free(two);
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
    int i;
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
    m = chain(1, 1, 3, 1, 1); /* a last slice of next to nothing: with few tokens it has them all */
    for (i = 0; i < 6; i++) add(m, i < 3 ? HET_ACTION_F : HET_ACTION_B, 0, 0), m->action[i].slice = i < 3 ? i : 5 - i;
    m->start[1] = m->count;
    m->plan.slices = 3, m->slice_share[1] = 1, m->slice_share[2] = 1e-17;
    m->costs.tokens = m->tokens, m->costs.pairs = m->pairs;
    m->stage_cost[0].forward.pair = 1, m->pairs[0] = 4;
    for (i = 0; i < 2; i++) { /* or more tokens than an integer holds, in two slices */
        m->plan.slice_tokens = i == 0 ? 4 : INT64_C(4000000000000000000);
        m->tokens[0] = i == 0 ? 5 : 9.5e18;
        s = run(m, 1);
        assert_true(fabs(s->makespan - 5 * m->tokens[0] - 4) <= 1e-15 * s->makespan);
        assert_int_equal(s->timeline.records, i == 0 ? 2 : 4);
        het_simulation_free(s);
    }
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
    REFUSE(m->action[0].kind = 14, "rank 0|action 0|14");
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
    REFUSE((m->costs.every_link.bandwidth = 1e-310, m->stage_cost[0].bytes = 1), "the step takes inf|1e300");
    REFUSE((m->costs.tokens = m->tokens, m->tokens[3] = -2), "micro-batch 3|negative");
    REFUSE((m->costs.pairs = m->pairs, m->pairs[3] = nan), "pairs|micro-batch 3|finite");
    REFUSE((m->costs.sequences = m->sequences, m->sequences[0] = 0), "micro-batch 0|0 sequences");
    REFUSE((m->costs.rank = m->rank_cost, m->rank_cost[2].verdict = -1), "rank 2|negative");
    REFUSE((m->costs.group = m->group, m->costs.groups = 1, m->group[0].parent = -1), "rank_group is NULL");
    REFUSE((m->costs.group = m->group, m->costs.rank_group = m->rank_group), "0 groups");
    REFUSE((m->costs.group = m->group, m->costs.rank_group = m->rank_group, m->costs.groups = 1), "group 0|parent 0");
    REFUSE((m->costs.group = m->group, m->costs.rank_group = m->rank_group, m->costs.groups = 2, m->group[0].parent = m->group[1].parent = -1,
        m->rank_group[2] = 2), "rank 2|group 2 of 2");
    REFUSE((m->costs.group = m->group, m->costs.rank_group = m->rank_group, m->costs.groups = 2, m->group[0].parent = m->group[1].parent = -1,
        m->rank_group[2] = 1), "ranks 1 and 2|no group in common");
    REFUSE((m->costs.group = m->group, m->costs.rank_group = m->rank_group, m->costs.groups = 1, m->group[0].parent = -1, m->group[0].bus = nan),
        "group 0|finite");
    REFUSE((m->costs.block = m->block_cost, m->costs.blocks = 2, m->block_cost[1].step = nan), "block 1|finite");
    REFUSE(m->costs.stage = NULL, "missing");
    REFUSE(m->costs.start_canary = 0xCDCDCDCDu, "cleared");
    REFUSE(m->costs.end_canary = 1, "cleared");
    REFUSE(m->plan.ranks = 2, "stage 2|on rank 2|2 ranks");
    REFUSE(m->plan.ranks = 4, "3 ranks|4");
    REFUSE(m->stage[1].rank = 3, "stage 1|on rank 3|3 ranks");
    REFUSE(m->stage[1].pipeline = 7, "pipeline 0, stage 1|of pipeline 7");
    REFUSE(m->plan.slices = 0, "0 slices");
    REFUSE((m->plan.slices = 2, m->slice_share[1] = nan), "slices|number 1|nan");
    REFUSE((m->plan.slices = 2, m->slice_share[1] = 0), "slices|number 1 is 0|1e-30");
    REFUSE(m->first_stage[1] = 2, "stages 0 to 2|has 3");
    REFUSE(m->start[1] = -1, "start[1]|-1");
    REFUSE(m->schedule.pipelines = 2, "2 pipelines");
    {
        made *m = one_f_one_b(3, 4, 2, 1, 1);
        m->costs.rank = m->rank_cost, m->costs.tokens = m->tokens;
        m->rank_cost[2].max_tokens = m->tokens[3] = 7;
        m->tokens[1] = 7.5;
        refuse(m, HET_ERR_LIMIT, "micro-batch 1: 7.5 tokens|pipeline 0|rank 2 there is 7", __LINE__);
        free(m);
    }
    {
        made *m = one_f_one_b(2, 2, 1, 1, 1);
        m->plan.slices = INT64_MAX;
        m->plan.slice_share = NULL;
        refuse(m, HET_ERR_INVALID, "slices", __LINE__);
        m->plan.slices = 1;
        refuse(m, HET_ERR_INVALID, "slices|NULL", __LINE__);
        m->plan.slice_share = m->slice_share;
        m->micro_batches[0] = INT64_MAX / 2;
        refuse(m, HET_ERR_LIMIT, "pipeline 0|micro-batches", __LINE__);
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
    add(m, HET_ACTION_COMMIT, 0, 0);
    m->start[1] = m->count;
    add(m, HET_ACTION_COMMIT, 0, 0);
    add(m, HET_ACTION_REDUCE, 3, 0);
    m->start[2] = m->count;
    refuse(m, HET_ERR_INVALID, "REDUCE|block 3|1 of 2|waits", __LINE__);
    m->action[2] = m->action[0];
    m->action[3] = m->action[0];
    refuse(m, HET_ERR_INVALID, "rank 1|action 1|REDUCE3|twice", __LINE__);
    free(m);
}

/* What a VERDICT of four ranks takes among links of 1. Rank 4 has no stage and is `idle` away; messages from ranks a to b take `forth`, from b to a
   `back`. */
static double verdict_of_four(double idle, int64_t a, int64_t b, double forth, double back)
{
    made *m = chain(4, 0, 1, 1, 1);
    het_simulation *s;
    double time;
    int64_t r, i;
    m->plan.ranks = m->schedule.ranks = 5;
    m->schedule.complete = 1;
    for (r = 0; r < 5; r++) {
        add(m, HET_ACTION_COMMIT, 0, 0);
        m->start[r + 1] = m->count;
    }
    for (i = 0; i < 25; i++) m->link[i].latency = i / 5 == 4 || i % 5 == 4 ? idle : 1;
    m->link[5 * a + b].latency = forth;
    m->link[5 * b + a].latency = back;
    m->costs.link = m->link;
    m->costs.transfer = HET_TRANSFER_POSTED;
    s = run(m, 0);
    time = s->makespan;
    het_simulation_free(s);
    free(m);
    return time;
}

/* A message up and one down, whatever the links of a rank without work take. A slow link is gone around, be it slow up or down: where it is one of
   the root's, scalars take two messages up and two down. */
static void verdicts_cost_what_they_must(void **state)
{
    int64_t a, b, way;
    (void)state;
    EXACTLY(verdict_of_four(1, 0, 1, 1, 1), 2);
    EXACTLY(verdict_of_four(1000, 0, 1, 1, 1), 2);
    for (a = 0; a < 4; a++)
        for (b = a + 1; b < 4; b++)
            for (way = 1; way < 4; way++)
                EXACTLY(verdict_of_four(1000, a, b, way & 1 ? 1000 : 1, way & 2 ? 1000 : 1), a == 0 ? 4 : 2);
}

/* A REDUCE of two ranks, a half of the block each. */
static double ring_of_two(double bytes, double windows, double latency, double bandwidth)
{
    made *m = chain(2, 0, 1, 1, 1);
    het_simulation *s;
    double time;
    int64_t r;
    m->schedule.complete = 1;
    for (r = 0; r < 2; r++) {
        add(m, HET_ACTION_REDUCE, 0, 0);
        m->start[r + 1] = m->count;
    }
    m->block_cost[0].reduce_bytes = bytes;
    m->block_cost[0].windows = windows;
    m->costs.block = m->block_cost;
    m->costs.blocks = 1;
    m->costs.every_link.latency = latency;
    m->costs.every_link.bandwidth = bandwidth;
    s = run(m, 0);
    time = s->makespan;
    het_simulation_free(s);
    free(m);
    return time;
}

/* Quarters of a window, one after the other: the fifth leaves when the first is there. */
static void slow_links_are_met_once_a_window(void **state)
{
    (void)state;
    EXACTLY(ring_of_two(64, 0, 7, 4), 8 + 7);
    EXACTLY(ring_of_two(64, 2, 7, 4), 8 + 7);           /* one window, of 8 */
    EXACTLY(ring_of_two(64, 4, 2, 4), 8 + 2);           /* two, of 4: the first quarter is there at 3 */
    EXACTLY(ring_of_two(64, 4, 7, 4), 1 + 7 + 4 + 7);
    EXACTLY(ring_of_two(80, 5, 7, 4), 2 * (1 + 7) + 2 + 7); /* two and a half */
    EXACTLY(ring_of_two(80, 5, 7, 0), 3 * 7);
    EXACTLY(ring_of_two(80, 1e18, 7, 4), 10 + 7);
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

/* Every text that begins somewhere ends inside the picture: 7 pixels a letter, 12 of a title, are more than common fonts need. */
static void texts_end_inside(const char *svg, double width)
{
    const char *at = svg;
    double high = 0;
    if (sscanf(strstr(svg, "height=\""), "height=\"%lf", &high) != 1) fail_msg("no height: %.200s", svg);
    while ((at = strstr(at, "<text")) != NULL) {
        const char *end = strchr(at, '>'), *c;
        double x = 0, y = 0, letters = 0;
        if (strstr(at, " x=\"") == NULL || sscanf(strstr(at, " x=\""), " x=\"%lf\" y=\"%lf\"", &x, &y) != 2) fail_msg("no place: %.100s", at);
        for (c = end + 1; *c != '<'; letters++) {
            if (*c == '&') c = strchr(c, ';');
            for (c++; ((unsigned char)*c & 0xC0u) == 0x80u; c++) {}
        }
        if (x > width || y > high) fail_msg("width %g: %.100s", width, at);
        if (y < 60 ? strncmp(at, "<text class=\"h\"", 15) == 0 && x + 12 * letters > width : strstr(at, "fill") == NULL && y < 160 &&
            strncmp(at, "<text x=", 8) == 0 && letters > 3 && x + 7 * letters > width) fail_msg("width %g: %.100s", width, at);
        if (strncmp(at, "<text class=\"q\" ", 17) == 0 && x + (width < 480 && y < 60 ? 6 : 7) * letters > width)
            fail_msg("width %g: %.100s", width, at);
        at = end;
    }
}

static void legends_stay_inside(void **state)
{
    static const double widths[] = { 400, 480, 700, 900, 1200 };
    uint64_t seed = 9;
    int i, k;
    (void)state;
    for (i = 0; i < 30; i++)
        for (k = 0; k < 5; k++) {
            made *m = random_made(&seed);
            het_simulation *s = run(m, 1);
            het_svg_desc desc;
            support_buffer text;
            memset(&desc, 0, sizeof desc);
            desc.title = "A long name of a file with lists of actions, which somebody wrote, \303\244\303\266\303\274 and so on, and on, and on";
            desc.width = widths[k];
            s->timeline.dropped = i % 2 == 0 ? 123456789 : 0;
            write_text(&text, &s->timeline, &m->plan, &desc, 1);
            texts_end_inside((const char *)text.data, desc.width);
            if (widths[k] < 900) assert_non_null(strstr((const char *)text.data, "&#8230;</text>"));
            support_buffer_end(&text);
            het_simulation_free(s);
            free(m);
        }
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
        if (i == 7) record[1].action.kind = 14;
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
        cmocka_unit_test(messages_that_meet),  cmocka_unit_test(pipelines_alike), cmocka_unit_test(fill_and_drain), cmocka_unit_test(known_formula),
        cmocka_unit_test(shared_wires), cmocka_unit_test(rings_in_two_levels),
        cmocka_unit_test(rings_share_wires),
        cmocka_unit_test(pairs_of_slices), cmocka_unit_test(large_rings), cmocka_unit_test(published_bubbles),
        cmocka_unit_test(timed_reaches_published_bubbles), cmocka_unit_test(timed_is_near_the_shortest_order),
        cmocka_unit_test(plans_on_matrices_are_near_the_best),
        cmocka_unit_test(timed_is_never_longer_than_named),
            cmocka_unit_test(same_as_the_slow_simulator), cmocka_unit_test(named_schedules_with_short_micro_batches),
        cmocka_unit_test(corners),             cmocka_unit_test(peaks),                 cmocka_unit_test(refusals),
            cmocka_unit_test(rings_that_wait), cmocka_unit_test(verdicts_cost_what_they_must),
            cmocka_unit_test(slow_links_are_met_once_a_window),
        cmocka_unit_test(out_of_memory),       cmocka_unit_test(grammars_can_refuse),   cmocka_unit_test(traces),
            cmocka_unit_test(trace_by_heart),
        cmocka_unit_test(pictures),            cmocka_unit_test(picture_of_a_small_one), cmocka_unit_test(pictures_stay_small),
            cmocka_unit_test(pictures_refuse),
        cmocka_unit_test(legends_stay_inside),
        cmocka_unit_test(divided_blocks), cmocka_unit_test(several_updates), cmocka_unit_test(workers_get_ahead),
        cmocka_unit_test(one_update_of_three), cmocka_unit_test(twins_recompute_alike),
        cmocka_unit_test(reductions_begin_inside_the_last_pass),
        cmocka_unit_test(calls_wait_for_what_comes_beside),
        cmocka_unit_test(speed),                cmocka_unit_test(pairs),                 cmocka_unit_test(damaged_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
