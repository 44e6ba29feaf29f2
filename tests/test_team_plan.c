/* Teams in the simulator, the allocator of shares and the planner: against closed forms by hand, an event loop and brute force. */
#include "support.h"

#include <time.h>

#include "hetrain_search.h"

static int near_to(double a, double b) { return fabs(a - b) <= 1e-9 * (fabs(a) + fabs(b)); }
#define NEARLY(a, b) do { if (!near_to(a, b)) fail_msg("line %d: %.12g is not %.12g", __LINE__, (double)(a), (double)(b)); } while (0)

/* ---- simulated teams ---- */

typedef struct made {
    het_plan *plan;
    het_schedule *schedule;
    het_costs costs;
    het_stage_cost stage[8], member[16];
    double tokens[8], pairs[8], sequences[8];
    het_rank_cost rank[8];
    het_block_cost block[8];
} made;

/* A token takes 1, a pair 1, B twice as much; keys are 4 bytes a token, queries 8, an activation 2. */
static void make(made *m, const char *plan, int64_t units, int64_t ranks, int64_t heads, int64_t slices, int64_t micro_batches)
{
    het_error error = { HET_OK, "" };
    het_plan_desc desc;
    int64_t i, counts[8];
    memset(m, 0, sizeof *m);
    memset(&desc, 0, sizeof desc);
    desc.units = units;
    desc.ranks = ranks;
    desc.heads = heads;
    desc.slices = slices;
    desc.schedule = "gpipe";
    EXPECT_OK(het_plan_read(&desc, plan, strlen(plan), &m->plan, &error));
    for (i = 0; i < m->plan->pipelines; i++) counts[i] = micro_batches;
    EXPECT_OK(het_schedule_make(m->plan, counts, NULL, &m->schedule, &error));
    for (i = 0; i < m->plan->stages; i++) {
        het_stage_cost *c = &m->stage[i];
        c->forward.token = c->forward.pair = 1;
        c->backward.token = c->backward.pair = c->input.token = c->input.pair = 2;
        c->bytes = 2;
        c->attentions = 1;
        c->query = 8;
        c->key = 4;
        c->keep_weight = 10;
    }
    for (i = 0; i < 8; i++) m->tokens[i] = 8, m->pairs[i] = 64, m->sequences[i] = 1;
    m->costs.stage = m->stage;
    m->costs.tokens = m->tokens;
    m->costs.pairs = m->pairs;
    m->costs.sequences = m->sequences;
}

static het_simulation *run(const made *m)
{
    het_error error = { HET_OK, "" };
    het_simulation *s = NULL;
    EXPECT_ERROR(het_simulate(m->plan, m->schedule, &m->costs, HET_YES, NULL, &s, &error), HET_OK, error.text, "");
    return s;
}

static void done(made *m)
{
    het_schedule_free(m->schedule);
    het_plan_free(m->plan);
}

static double makespan(const made *m)
{
    het_simulation *s = run(m);
    const double seconds = s->makespan;
    het_simulation_free(s);
    return seconds;
}

static double record_of(const het_simulation *s, int64_t rank, int32_t kind, const het_record **record)
{
    int64_t i;
    for (i = 0; i < s->timeline.records; i++) {
        const het_record *r = &s->timeline.record[i];
        if (r->rank != rank || r->action.kind != kind) continue;
        *record = r;
        return r->end - r->start;
    }
    fail_msg("rank %d has no action of kind %d", (int)rank, (int)kind);
    return 0;
}

/* latency 3, bandwidth 2 */
static void by_context(void **state)
{
    const het_record *r;
    het_simulation *s;
    made m;
    (void)state;
    make(&m, "cp2", 1, 2, 0, 1, 1);
    /* The second half of one sequence has 3/4 of the pairs: 4 + 48, twice that in B, and B waits for one core, 96. */
    NEARLY(makespan(&m), 52 + 104 + 96);
    /* K and V of 4 rows, 16 bytes each: 8 + 3 each; the same back in B. */
    m.costs.every_link.latency = 3;
    m.costs.every_link.bandwidth = 2;
    s = run(&m);
    NEARLY(s->makespan, 52 + 22 + 104 + 22 + 96);
    assert_int_equal(s->timeline.records, 4);
    NEARLY(record_of(s, 0, HET_ACTION_F, &r), 74);
    NEARLY(r->exchange, 74 - 4 - 16); /* the first half alone: 4 tokens, 16 pairs */
    NEARLY(record_of(s, 1, HET_ACTION_F, &r), 74);
    NEARLY(r->exchange, 22);
    NEARLY(record_of(s, 1, HET_ACTION_B, &r), 222);
    NEARLY(r->exchange, 222 - 104);
    NEARLY(s->rank[0].peak_bytes, 40);
    NEARLY(s->rank[1].peak_bytes, 40);
    NEARLY(s->rank[1].busy, s->makespan);
    het_simulation_free(s);
    /* Two sequences, one a member: no byte. */
    m.sequences[0] = 2;
    NEARLY(makespan(&m), 3 * (4 + 32));
    /* Three: the second one straddles, 4/3 rows of it lie before the cut. */
    m.sequences[0] = 3;
    NEARLY(makespan(&m), 3 * (4 + 64 * 7 / 12.0) + 2 * 64 * 7 / 12.0 + 4 * (3 + 4 * 4 / 3.0 / 2));
    done(&m);
}

/* Three: the first sends its keys twice, the last gets most; in B the one between has two neighbours, and the first waits for two attentions. */
static void by_context_of_three(void **state)
{
    made m;
    (void)state;
    make(&m, "cp3", 1, 3, 0, 1, 1);
    m.costs.every_link.bandwidth = 1;
    NEARLY(makespan(&m), 3 * (8 / 3.0 + 320 / 9.0) + 2 * 64 / 3.0 + 2 * (32 / 3.0 + 64 / 3.0) + 2 * 2 * 320 / 9.0);
    done(&m);
}

/* Heads 3:1 and rows 3:1 of four heads: what goes either way is rows of one and heads of the other. */
static void by_heads(void **state)
{
    made m;
    (void)state;
    make(&m, "hp:3,1", 1, 2, 4, 1, 1);
    m.costs.every_link.latency = 3;
    m.costs.every_link.bandwidth = 2;
    /* q, o: .75 x .25 of 64 bytes = 12; k, v: of 32 = 6; B: do, dq, dk, dv. */
    NEARLY(makespan(&m), 6 + 48 + 2 * 9 + 2 * 6 + 2 * 54 + 2 * 9 + 2 * 6);
    /* The first copies .75 x .75 of each that stay with it, and as much that goes as comes: 60 bytes and 30. */
    m.stage[0].columns.kept_byte = 0.125;
    NEARLY(makespan(&m), 6 + 48 + 2 * 9 + 2 * 6 + 2 * 54 + 2 * 9 + 2 * 6 + 4 * (60 + 30) / 8.0);
    m.stage[0].columns.kept_byte = 0;
    /* recomputed: queries and outputs once more */
    m.plan->stage[0].recompute = 1;
    NEARLY(makespan(&m), 54 + 30 + 108 + 30 + 18);
    done(&m);
    /* In two slices of equal lengths the second has 3/4 of the pairs; messages are half as long. */
    make(&m, "hp:3,1", 1, 2, 4, 2, 1);
    m.costs.every_link.latency = 3;
    m.costs.every_link.bandwidth = 2;
    NEARLY(makespan(&m), 3 * (6 + 48) + 4 * (2 * 6 + 2 * 4.5));
    done(&m);
}

/* Two halves of 64 rows in four blocks: rows are gathered, a chain of one product goes forward, of three backward. */
static void by_columns(void **state)
{
    const het_column_moves moves = { { 1, 1 }, { 8, 8 }, { 1, 1 }, { 8, 8 }, { 1, 3 }, { 8, 24 }, { 0.5, 1 }, 1, { 0, 0 }, { 0, 0 }, { 0, 0 }, 0 };
    double forward, backward;
    const het_record *r;
    het_simulation *s;
    made m;
    (void)state;
    make(&m, "tp2", 1, 2, 2, 1, 1);
    m.costs.every_link.latency = 3;
    m.costs.every_link.bandwidth = 2;
    m.tokens[0] = 64;
    m.stage[0].columns = moves;
    /* own work 32 + 32; gathered 3 + 64 x 8 / 2 / 2; B + R - 2 = 4 times a block of 128 bytes; half of the rows go on; the second member waits
       for one block of 16. */
    forward = 64 + (3 + 128) + 4 * (3 + 64) + (3 + 128) + 4;
    backward = 128 + (3 + 128) + 4 * (3 * 3 + 192) + (3 + 128) + 8;
    NEARLY(makespan(&m), forward + backward);
    /* recomputed: all of the forward's exchanges once more */
    m.plan->stage[0].recompute = 1;
    NEARLY(makespan(&m), forward + backward + forward - 64);
    m.plan->stage[0].recompute = 0;
    /* 3:1 by shares: the first one's rows are what most leaves, and all that the last one has not */
    m.plan->member[0].share = 3;
    m.plan->member[0].heads = 3;
    NEARLY(makespan(&m), 48 + 48 + (3 + 192) + 4 * 67 + (3 + 192) + 6 + 192 + (3 + 192) + 4 * 201 + (3 + 192) + 12);
    /* A block of a chain takes 1, backward 2, whatever its rows, of which a member has 3/4: once it is part of the call, and 4 times more. Rows of
       16 bytes go out and come back: 3/4 x 1/4 of them from each to the other. A byte that stays takes 1/8, of 16
       gathered and handed on. */
    m.stage[0].columns.linked_base[0] = 1;
    m.stage[0].columns.linked_base[1] = 2;
    m.stage[0].columns.kept_byte = 0.125;
    m.stage[0].columns.exchanges[0] = m.stage[0].columns.exchanges[1] = 2;
    m.stage[0].columns.exchange_bytes[0] = m.stage[0].columns.exchange_bytes[1] = 16;
    NEARLY(makespan(&m), 48 + 48 + (3 + 192) + 4 * 67 + (3 + 192) + 6 + 192 + (3 + 192) + 4 * 201 + (3 + 192) + 12 + 3 + 6 + 2 * (6 + 96) + 2 * 96);
    m.stage[0].attentions = m.stage[0].columns.divided = 0; /* what a member does not compute is exchange without attention as well */
    s = run(&m);
    NEARLY(record_of(s, 1, HET_ACTION_F, &r) - r->exchange, 16 + 16);
    het_simulation_free(s);
    done(&m);
}

/* Groups of rows 1/4 + 1/4 and 1/2, heads 1:3 in the first. */
static void by_both(void **state)
{
    made m;
    double first, second, forward, chain;
    (void)state;
    make(&m, "{\"teams\": [{\"ranks\": [0, 1, 2], \"shares\": [1, 1, 2], \"heads\": [[1, 3], [4]]}], \"pipelines\": [{\"stages\": ["
             "{\"rank\": 0, \"units\": [0, 1]}]}]}", 1, 3, 4, 1, 1);
    m.costs.every_link.bandwidth = 1;
    /* q: 0 gives 1 its rows of 3 heads, 1 gives 0 its rows of one: 64 / 4 x .75 = 12 is the most. */
    first = 12;
    /* k: 0 sends .25 x 32 x (.75 + 1) = 14, 1 sends .25 x 32 x (.25 + 1) = 10, 2 gets 16. */
    second = 16;
    forward = 4 + 48 + 2 * first + 2 * second;
    /* B: keys' gradients go back within the first group, 6 is the most; group 1 hands it 32 / 2 bytes of dk and of dv. */
    chain = 16;
    NEARLY(makespan(&m), forward + 2 * 52 + 2 * first + 2 * 6 + 2 * chain + 96);
    done(&m);
}

/* Rows are cut between granules, where the engine does: with fewer of them than members some have no rows. */
static void rows_between_granules(void **state)
{
    static const double granule[4] = { 8, 3, 4, 2 }, rows[4] = { 8, 16 / 3.0, 4, 4 };
    int i;
    made m;
    (void)state;
    make(&m, "hp2", 1, 2, 2, 1, 1);
    for (i = 0; i < 4; i++) {
        m.costs.granule = granule[i];
        NEARLY(makespan(&m), 3 * (rows[i] + 32));
    }
    m.costs.granule = 1e-300; /* more granules than can be counted: anywhere */
    NEARLY(makespan(&m), 3 * (4 + 32));
    m.sequences[0] = 2; /* of 4 tokens each */
    m.costs.granule = 8;
    NEARLY(makespan(&m), 3 * (4 + 32));
    done(&m);
    make(&m, "cp3", 1, 3, 0, 1, 1); /* as cp2 */
    m.costs.granule = 4;
    NEARLY(makespan(&m), 52 + 104 + 96);
    done(&m);
    make(&m, "tp2", 1, 2, 2, 1, 1); /* products are divided whatever the rows */
    m.tokens[0] = 64;
    m.costs.granule = 64;
    NEARLY(makespan(&m), 64 + 128);
    done(&m);
}

/* A member that is slower sets the pace, whichever it is; uneven shares make up for it. */
static void unequal_members(void **state)
{
    made m;
    (void)state;
    make(&m, "hp:3,1", 1, 2, 4, 1, 1);
    m.member[0] = m.member[1] = m.stage[0];
    m.member[1].forward.token = m.member[1].forward.pair = 3;
    m.member[1].backward.token = m.member[1].backward.pair = 6;
    m.costs.member = m.member;
    NEARLY(makespan(&m), 3 * 54);
    m.member[1].forward.token = 100;
    NEARLY(makespan(&m), 200 + 48 + 2 * 54);
    m.member[1].forward.token = -1;
    {
        het_error error = { HET_OK, "" };
        het_simulation *s = NULL;
        EXPECT_ERROR(het_simulate(m.plan, m.schedule, &m.costs, HET_NO, NULL, &s, &error), HET_ERR_INVALID, error.text, "cost of stage 0");
    }
    done(&m);
}

/* 16 bytes from stage to stage. */
static void between_teams(void **state)
{
    const het_record *r;
    het_simulation *s;
    made m;
    (void)state;
    make(&m, "pp2xcp2", 2, 4, 0, 1, 1);
    m.sequences[0] = 2;
    m.costs.every_link.latency = 3;
    m.costs.every_link.bandwidth = 2;
    /* each of the pairs 8 bytes: 4 + 3, there and back */
    NEARLY(makespan(&m), 2 * 3 * 36 + 2 * 7);
    s = run(&m);
    (void)record_of(s, 1, HET_ACTION_SEND_F, &r);
    assert_int_equal(r->bytes, 8);
    (void)record_of(s, 3, HET_ACTION_RECV_F, &r);
    assert_int_equal(r->bytes, 8);
    het_simulation_free(s);
    done(&m);
    /* 3:1 to a rank alone: 12 bytes are the longest piece. */
    make(&m, "{\"teams\": [{\"ranks\": [1, 2], \"shares\": [3, 1]}], \"pipelines\": [{\"stages\": [{\"rank\": 1, \"units\": [0, 1]}, "
             "{\"rank\": 0, \"units\": [1, 2]}]}]}", 2, 3, 0, 1, 1);
    m.sequences[0] = 4;
    m.costs.every_link.latency = 3;
    m.costs.every_link.bandwidth = 2;
    NEARLY(makespan(&m), 3 * (6 + 48) + 3 * 72 + 2 * (6 + 3));
    done(&m);
}

/* REDUCE, STEP and GATHER are all members', by their own shares of the state. */
static void updates_of_members(void **state)
{
    static const int64_t start[2] = { 0, 1 }, unit[1] = { 0 };
    const het_blocks blocks = { 1, start, unit };
    const het_record *r;
    het_error error = { HET_OK, "" };
    het_schedule *whole = NULL;
    het_simulation *s;
    made m;
    int i;
    (void)state;
    make(&m, "cp2", 1, 2, 0, 1, 1);
    EXPECT_OK(het_schedule_complete(m.plan, &blocks, m.schedule, NULL, &whole, &error));
    het_schedule_free(m.schedule);
    m.schedule = whole;
    m.plan->state_share[1] = 3;
    m.costs.block = m.block;
    m.costs.blocks = 1;
    m.block[0].reduce_bytes = 80;
    m.block[0].gather_bytes = 40;
    m.block[0].step = 400;
    m.costs.rank = m.rank;
    for (i = 0; i < 2; i++) m.rank[i].step = 1 + 9 * (i == 0), m.rank[i].begin = 5 + i, m.rank[i].verdict = 2;
    m.sequences[0] = 2;
    m.costs.every_link.bandwidth = 2;
    s = run(&m);
    /* begin of the slower; F, B; the ring moves 3/4 of 80 bytes; verdict; 100 elements at 10 or 300 at 1; 3/4 of 40 bytes */
    NEARLY(s->makespan, 6 + 3 * 36 + 30 + 2 + 1000 + 15);
    NEARLY(record_of(s, 0, HET_ACTION_STEP, &r), 1000);
    NEARLY(record_of(s, 1, HET_ACTION_STEP, &r), 300);
    (void)record_of(s, 1, HET_ACTION_COMMIT, &r);
    (void)record_of(s, 1, HET_ACTION_REDUCE, &r);
    NEARLY(r->end - r->start, 30);
    het_simulation_free(s);
    done(&m);
}

/* Layer by layer: a member's attention begins when the one behind has done that layer's. */
static void wavefront(void **state)
{
    static const double shares[3] = { 1, 0.41421356237309515, 0.31783724519578205 }; /* equal pairs: sqrt(i + 1) - sqrt(i) */
    enum { LAYERS = 12 };
    char text[400];
    double clock[4] = { 0, 0, 0, 0 }, end[4] = { 0, 0, 0, 0 }, most = 0;
    int layer, i;
    made m;
    (void)state;
    snprintf(text, sizeof text, "{\"teams\": [{\"ranks\": [0, 1, 2], \"shares\": [%.17g, %.17g, %.17g]}], \"pipelines\": [{\"stages\": "
             "[{\"rank\": 0, \"units\": [0, 1]}]}]}", shares[0], shares[1], shares[2]);
    make(&m, text, 1, 3, 0, 1, 1);
    memset(&m.stage[0].forward, 0, sizeof m.stage[0].forward);
    m.stage[0].backward.base = LAYERS * 5;
    m.stage[0].backward.token = 0;
    m.stage[0].backward.pair = LAYERS;
    m.stage[0].attentions = LAYERS;
    for (layer = 0; layer < LAYERS; layer++)
        for (i = 2; i >= 0; i--) {
            const double ready = clock[i] + 3; /* of the 5 of its products 3 lie before its attention */
            end[i] = (i < 2 && end[i + 1] > ready ? end[i + 1] : ready) + 64 / 3.0;
            clock[i] = end[i] + 2;
            if (clock[i] > most) most = clock[i];
        }
    NEARLY(makespan(&m), most);
    done(&m);
}

static void pictures_show_members(void **state)
{
    support_buffer text;
    het_svg_desc desc;
    het_simulation *s;
    het_writer to;
    made m;
    (void)state;
    make(&m, "pp2xcp2", 2, 4, 0, 1, 2);
    s = run(&m);
    memset(&desc, 0, sizeof desc);
    support_buffer_start(&text);
    to = support_writer(&text);
    EXPECT_OK(het_timeline_trace(&s->timeline, m.plan, &to));
    support_buffer_append(&text, "", 1);
    assert_non_null(strstr((const char *)text.data, "rank 3: unit 1"));
    assert_non_null(strstr((const char *)text.data, "\"exchange\""));
    support_buffer_end(&text);
    support_buffer_start(&text);
    to = support_writer(&text);
    EXPECT_OK(het_timeline_svg(&s->timeline, m.plan, &desc, &to));
    support_buffer_append(&text, "", 1);
    assert_non_null(strstr((const char *)text.data, "rank 3"));
    assert_non_null(strstr((const char *)text.data, ">exchange<"));
    support_buffer_end(&text);
    het_simulation_free(s);
    done(&m);
}

/* ---- shares ---- */

typedef struct brute {
    het_divide_desc d;
    het_stage_cost member[8];
    int64_t cut[9], heads[8];
    double best;
} brute;

static double pairs_before(double end, double length)
{
    const double whole = floor(end / length + 1e-9), rest = end - whole * length;
    return (whole * length * length + rest * rest) / length;
}

static double slowest(const brute *b)
{
    const double n = (double)b->d.granules, length = 1 / (b->d.sequences > 0 ? b->d.sequences : 1);
    double most = 0;
    int64_t m;
    for (m = 0; m < b->d.members; m++) {
        const het_cost *f = &b->member[m].forward, *w = &b->member[m].backward;
        const double low = (double)b->cut[m] / n, high = (double)b->cut[m + 1] / n;
        const double pairs = b->d.heads ? (double)b->heads[m] / (double)b->d.heads : pairs_before(high, length) - pairs_before(low, length);
        const double seconds = f->base + w->base + (f->token + w->token) * b->d.tokens * (high - low) + (f->pair + w->pair) * b->d.pairs * pairs;
        if (seconds > most) most = seconds;
    }
    return most;
}

static void every_cut(brute *b, int64_t m)
{
    if (m == b->d.members) {
        const double seconds = slowest(b);
        if (seconds < b->best) b->best = seconds;
        return;
    }
    b->cut[m] = b->cut[m - 1];
    for (; b->cut[m] <= b->d.granules; b->cut[m]++) every_cut(b, m + 1);
}

static void every_division(brute *b, int64_t m, int64_t left)
{
    if (b->d.heads == 0) every_cut(b, 1);
    else if (m + 1 == b->d.members) {
        b->heads[m] = left;
        if (left > 0) every_cut(b, 1);
    } else
        for (b->heads[m] = 1; b->heads[m] < left; b->heads[m]++) every_division(b, m + 1, left - b->heads[m]);
}

static void draw(brute *b, uint64_t *seed, int64_t members, int by_heads)
{
    int64_t m;
    memset(b, 0, sizeof *b);
    b->d.members = members;
    b->d.member = b->member;
    b->d.granules = 1 + support_below(seed, 12);
    b->d.tokens = 64.0 * (double)(1 + support_below(seed, 8));
    b->d.sequences = (double)support_below(seed, 4);
    b->d.pairs = b->d.tokens * (b->d.tokens / (b->d.sequences > 0 ? b->d.sequences : 1) + 1) / 2;
    b->d.heads = by_heads ? members + support_below(seed, 6) : 0;
    for (m = 0; m < members; m++) {
        const double slow = (double)(1 + support_below(seed, 8));
        b->member[m].forward.base = slow * (double)support_below(seed, 20);
        b->member[m].forward.token = slow * (double)(1 + support_below(seed, 4));
        b->member[m].backward.token = 2 * b->member[m].forward.token;
        b->member[m].forward.pair = slow * 0.02 * (double)support_below(seed, 4);
        b->member[m].backward.pair = 2.5 * b->member[m].forward.pair;
    }
    b->cut[members] = b->d.granules;
    b->best = 1e300;
}

static void shares_are_the_best_there_are(void **state)
{
    uint64_t seed = 1;
    int i;
    (void)state;
    for (i = 0; i < 1500; i++) {
        het_error error = { HET_OK, "" };
        het_team_member member[8];
        double seconds;
        int64_t m, left;
        brute b;
        draw(&b, &seed, 1 + support_below(&seed, 4), i % 2);
        every_division(&b, 0, b.d.heads);
        memset(member, 0, sizeof member);
        EXPECT_OK(het_team_divide(&b.d, member, &seconds, &error));
        NEARLY(seconds, b.best);
        for (m = 0, left = b.d.heads; m < b.d.members; m++) {
            b.cut[m + 1] = b.cut[m] + (int64_t)member[m].share;
            b.heads[m] = member[m].heads;
            left -= b.heads[m];
            assert_int_equal(member[m].group, i % 2 ? 0 : m);
        }
        assert_int_equal(b.cut[b.d.members], b.d.granules);
        assert_int_equal(left, 0);
        NEARLY(slowest(&b), seconds);
    }
}

/* More than four: found by moves, not proven; seldom far from the best. */
static void shares_of_many_are_good(void **state)
{
    uint64_t seed = 7;
    double worst = 1, sum = 0;
    int i;
    (void)state;
    for (i = 0; i < 40; i++) {
        het_error error = { HET_OK, "" };
        het_team_member member[8];
        double seconds;
        brute b;
        draw(&b, &seed, 5, 1);
        b.d.granules = 1 + support_below(&seed, 8);
        b.cut[5] = b.d.granules;
        every_division(&b, 0, b.d.heads);
        EXPECT_OK(het_team_divide(&b.d, member, &seconds, &error));
        if (seconds / b.best > worst) worst = seconds / b.best;
        sum += seconds / b.best;
    }
    print_message("5 members: %.3f times the best at worst, %.4f on average\n", worst, sum / 40);
    assert_true(worst < 1.5 && sum / 40 < 1.03);
}

/* What a file says of heads may be anything: the shares come soon, and add up. */
static void shares_of_very_many_heads(void **state)
{
    static const int64_t heads[] = { 300, 4096, 1 << 20, INT64_C(1) << 53 };
    uint64_t seed = 5;
    int i;
    (void)state;
    for (i = 0; i < 16; i++) {
        het_error error = { HET_OK, "" };
        het_team_member member[8];
        double seconds;
        int64_t m, left;
        brute b;
        draw(&b, &seed, i % 2 ? 4 : 6, 1);
        left = b.d.heads = heads[i / 4];
        EXPECT_OK(het_team_divide(&b.d, member, &seconds, &error));
        for (m = 0; m < b.d.members; m++) {
            b.cut[m + 1] = b.cut[m] + (int64_t)member[m].share;
            left -= b.heads[m] = member[m].heads;
            assert_true(member[m].heads > 0);
        }
        assert_int_equal(left, 0);
        NEARLY(slowest(&b), seconds);
    }
}

/* Alike members get as many heads each, also where attention takes no time, so that none needs more memory than another. */
static void alike_members_get_alike_shares(void **state)
{
    int64_t members, pairs, m;
    (void)state;
    for (members = 2; members <= 8; members *= 2)
        for (pairs = 0; pairs < 2; pairs++) {
            het_error error = { HET_OK, "" };
            het_stage_cost cost[8];
            het_team_member member[8];
            het_divide_desc d;
            memset(cost, 0, sizeof cost);
            memset(&d, 0, sizeof d);
            for (m = 0; m < members; m++) cost[m].forward.token = 1, cost[m].backward.token = 2, cost[m].forward.pair = 1e-3 * (double)pairs;
            d.member = cost, d.members = members, d.granules = 64, d.tokens = 64, d.pairs = 2080, d.heads = 16;
            EXPECT_OK(het_team_divide(&d, member, NULL, &error));
            for (m = 0; m < members; m++) assert_true(member[m].heads == 16 / members && member[m].share == 64.0 / (double)members);
        }
}

static void shares_refuse(void **state)
{
    het_error error = { HET_OK, "" };
    const double wrong[] = { -1, (double)NAN, (double)INFINITY };
    het_team_member member[8];
    uint64_t seed = 3;
    brute b;
    int i;
    (void)state;
    draw(&b, &seed, 4, 1);
    b.d.heads = 3;
    EXPECT_ERROR(het_team_divide(&b.d, member, NULL, &error), HET_ERR_INVALID, error.text, "4 members");
    b.d.heads = 4;
    b.d.granules = 0;
    EXPECT_ERROR(het_team_divide(&b.d, member, NULL, &error), HET_ERR_INVALID, error.text, "0 granules");
    EXPECT_ERROR(het_team_divide(&b.d, NULL, NULL, &error), HET_ERR_INVALID, error.text, "NULL");
    b.d.granules = INT64_MAX;
    EXPECT_ERROR(het_team_divide(&b.d, member, NULL, &error), HET_ERR_INVALID, error.text, "9223372036854775807 granules");
    b.d.granules = 8;
    for (i = 0; i < 3; i++) {
        b.member[1].forward.pair = wrong[i];
        EXPECT_ERROR(het_team_divide(&b.d, member, NULL, &error), HET_ERR_INVALID, error.text, "member 1");
    }
    b.member[1].forward.pair = b.member[1].backward.pair = 1e-310; /* one over it is no number */
    EXPECT_OK(het_team_divide(&b.d, member, NULL, &error));
    assert_int_equal(member[0].heads + member[1].heads + member[2].heads + member[3].heads, 4);
}

/* ---- the planner ---- */

enum { UNITS = 4, HEADS = 4 };

/* embed, attention, MLP, head; tokens cost alike everywhere, pairs only in attention. */
typedef struct world {
    support_memory memory;
    het_profile profile;
    het_cluster cluster;
    het_search_desc desc;
    het_unit_kind kind[UNITS];
    int32_t unit[UNITS];
    het_block_profile block[UNITS];
    int64_t use[UNITS];
    het_device_profile device[2];
    het_unit_time time[UNITS];
    het_cluster_device place[64];
    het_group group[16];
} world;

static const char *const only_1f1b[] = { "1f1b" };

static void world_make(world *w, int64_t devices, double length, double pair)
{
    int64_t i;
    memset(w, 0, sizeof *w);
    w->memory.fail_at = -1;
    w->profile.allocator = support_allocator(&w->memory);
    w->profile.kinds = w->profile.units = w->profile.blocks = w->profile.uses = UNITS;
    w->profile.devices = 1;
    w->profile.kind = w->kind;
    w->profile.unit = w->unit;
    w->profile.block = w->block;
    w->profile.use = w->use;
    w->profile.device = w->device;
    w->profile.weight_bytes = w->profile.gather_bytes = 4;
    w->profile.gradient_bytes = w->profile.state_bytes = w->profile.reduce_bytes = 8;
    snprintf(w->device[0].name, sizeof w->device[0].name, "type0");
    w->device[0].alone = w->device[0].together = w->time;
    for (i = 0; i < UNITS; i++) {
        het_unit_time *t = &w->time[i];
        snprintf(w->kind[i].name, sizeof w->kind[i].name, "unit%d", (int)i);
        w->unit[i] = (int32_t)i;
        w->kind[i].input = i > 0 ? 4 : 0;
        w->kind[i].output = i + 1 < UNITS ? 4 : 0;
        w->kind[i].keep[HET_KEEP_WEIGHT][0] = w->kind[i].divided[HET_KEEP_WEIGHT][0] = 16;
        w->kind[i].loss = i + 1 == UNITS;
        w->block[i].elements = 10;
        w->block[i].uses = 1;
        w->block[i].first_use = w->use[i] = i;
        t->forward.token = 1;
        t->backward.token = 2;
        t->input.token = t->weight.token = t->recompute.token = 1;
    }
    w->kind[1].attentions = 1;
    w->kind[1].heads = HEADS;
    w->kind[1].query = 8;
    w->kind[1].key = 4;
    w->time[1].forward.pair = w->time[1].recompute.pair = pair;
    w->time[1].backward.pair = 2.5 * pair;
    w->time[1].input.pair = 2.5 * pair;
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
    w->desc.granules = 4;
    w->desc.granule_tokens = 16;
    w->desc.granule_pairs = 16 * (length + 1) / 2;
    w->desc.schedules = only_1f1b;
    w->desc.schedule_count = 1;
    w->desc.recompute = w->desc.uneven_state = HET_NO;
    w->desc.evaluations = 1000;
}

/* What teams by columns move: q, k and v of attention, one product each way of the MLP; half of their time is in chains. */
static void world_columns(world *w)
{
    const het_column_moves attention = { { 1, 1 }, { 4, 4 }, { 1, 1 }, { 4, 4 }, { 1, 3 }, { 4, 12 }, { 0.25, 0.75 }, 1, { 0, 0 }, { 0, 0 },
        { 0, 0 }, 0 },
                           mlp = { { 1, 1 }, { 4, 4 }, { 1, 1 }, { 4, 4 }, { 1, 1 }, { 4, 4 }, { 0.5, 0.5 }, 0, { 0, 0 }, { 0, 0 }, { 0, 0 }, 0 };
    int64_t i;
    for (i = 1; i <= 2; i++) {
        w->kind[i].moves = i == 1 ? attention : mlp;
        w->kind[i].columns[HET_KEEP_WEIGHT][1] = 4;
        w->kind[i].columns[HET_KEEP_WEIGHT][i == 1 ? 2 : 3] = i == 1 ? 3 : 12;
        *(i == 1 ? &w->block[i].by_heads : &w->block[i].by_share) = 8;
    }
}

static het_search *search_of(const world *w, het_choice teams)
{
    het_error error = { HET_OK, "" };
    het_search_desc desc = w->desc;
    het_search *search = NULL;
    desc.teams = teams;
    EXPECT_ERROR(het_plan_search(&desc, &search, &error), HET_OK, error.text, "");
    assert_non_null(search);
    return search;
}

/* Seconds of a plan whose pipelines take count[] micro-batches of these sizes each. */
static double simulated_seconds(const world *w, const het_plan *plan, const int64_t *count, const double *tokens, const double *pairs,
                                const double *sequences)
{
    static const int64_t start[UNITS + 1] = { 0, 1, 2, 3, 4 };
    const het_blocks blocks = { UNITS, start, w->use };
    het_error error = { HET_OK, "" };
    het_schedule *compute = NULL, *lists = NULL;
    het_plan_costs *costs = NULL;
    het_simulation *result = NULL;
    double seconds;
    EXPECT_OK(het_schedule_make(plan, count, NULL, &compute, &error));
    EXPECT_OK(het_schedule_complete(plan, &blocks, compute, NULL, &lists, &error));
    EXPECT_OK(het_profile_costs(&w->profile, plan, &w->cluster, HET_YES, NULL, &costs, &error));
    costs->costs.tokens = tokens;
    costs->costs.pairs = pairs;
    costs->costs.sequences = sequences;
    EXPECT_OK(het_simulate_costs(plan, lists, costs, HET_NO, NULL, &result, &error));
    seconds = result->makespan;
    het_simulation_free(result);
    het_plan_costs_free(costs);
    het_schedule_free(lists);
    het_schedule_free(compute);
    return seconds;
}

/* Seconds of a plan of one or two pipelines over micro-batches of g granules, sizes as the search has them. */
static double seconds_of(const world *w, het_plan *plan, int64_t g)
{
    const int64_t n = (w->desc.granules + g - 1) / g;
    const double all = w->desc.granule_pairs > 0 ? w->desc.granule_pairs :
        0.5 * (double)w->desc.granule_tokens * (double)(w->desc.granule_tokens + 1);
    double tokens[16], pairs[16], sequences[16];
    int64_t count[2], i;
    for (i = 0; i < plan->pipelines; i++) count[i] = (int64_t)plan->share[i];
    for (i = 0; i < n; i++) {
        const double granules = (double)(i + 1 < n ? g : w->desc.granules - g * (n - 1)), each = (double)w->desc.granule_tokens;
        tokens[i] = granules * each;
        pairs[i] = granules * all;
        sequences[i] = tokens[i] / (2 * all / each - 1);
    }
    return simulated_seconds(w, plan, count, tokens, pairs, sequences);
}

typedef struct fusion_brute {
    const world *w;
    het_plan plan;
    het_stage stage[4];
    int64_t first_stage[3];
    double share[2], state_share[4], slice_share[1], best, best_divided;
    uint8_t keeper[4];
    het_team_member member[4];
    int64_t teams, first[5], device[4], g, judged;
} fusion_brute;

static void fusion_judge(fusion_brute *b)
{
    double seconds;
    int64_t i, k, count;
    for (i = 0; i < b->plan.stages; i++) { /* every device with a stage takes the micro-batches */
        const het_team_member *team = het_plan_team(&b->plan, b->stage[i].rank, &count);
        for (k = 0; k < count; k++) {
            const double limit = b->w->place[team != NULL ? team[k].rank : b->stage[i].rank].max_tokens;
            if (limit > 0 && (double)(b->g * b->w->desc.granule_tokens) > limit) return;
        }
    }
    seconds = seconds_of(b->w, &b->plan, b->g);
    b->judged++;
    if (seconds < b->best) b->best = seconds;
}

/* The other device keeps the state with the team's members, or all of it. */
static void fusion_keeper(fusion_brute *b, int64_t keeper)
{
    int64_t r;
    int all;
    b->plan.keeper = b->keeper;
    b->keeper[keeper] = 1;
    for (all = 0; all < 2; all++) {
        for (r = 0; r < b->plan.ranks; r++) b->state_share[r] = !all || r == keeper;
        fusion_judge(b);
    }
    for (r = 0; r < b->plan.ranks; r++) b->state_share[r] = 1;
    b->keeper[keeper] = 0;
}

/* Teams as they are now: one alone, both beside each other, one behind the other, cut anywhere. */
static void fusion_plans(fusion_brute *b)
{
    const int64_t n = (b->w->desc.granules + b->g - 1) / b->g;
    int64_t a, cut, k;
    for (a = 0; a < b->teams; a++) {
        b->plan.pipelines = b->plan.stages = b->first_stage[1] = 1;
        b->share[0] = (double)n;
        b->stage[0].rank = b->device[b->first[a]];
        b->stage[0].pipeline = 0;
        b->stage[0].unit_begin = 0;
        b->stage[0].unit_end = UNITS;
        fusion_judge(b);
        if (b->teams == 1) continue;
        if (b->w->desc.uneven_state == HET_YES && a == 0) fusion_keeper(b, b->device[b->first[1]]);
        b->plan.stages = b->first_stage[1] = 2;
        b->stage[1].pipeline = 0;
        b->stage[1].rank = b->device[b->first[1 - a]];
        for (cut = 1; cut < UNITS; cut++) {
            b->stage[0].unit_end = b->stage[1].unit_begin = cut;
            b->stage[1].unit_end = UNITS;
            fusion_judge(b);
        }
        b->stage[0].unit_end = UNITS;
        b->stage[1].unit_begin = 0;
        b->stage[1].pipeline = b->first_stage[1] = 1;
        b->plan.pipelines = b->first_stage[2] = 2;
        for (k = 0; k <= n; k++) {
            b->share[0] = (double)k;
            b->share[1] = (double)(n - k);
            fusion_judge(b);
        }
    }
}

/* Members' granules from member m of b->member on, then their heads. */
static void fusion_shares(fusion_brute *b, int64_t m, int64_t left, int64_t heads, int columns)
{
    het_team_member *to = &b->member[m];
    const int last = m + 1 == b->plan.members;
    int64_t k, h;
    if (m == b->plan.members) { fusion_plans(b); return; }
    for (k = last ? left : 0; k <= left; k++)
        for (h = heads < 0 ? -1 : last ? heads : 1; h <= heads - (last || heads < 0 ? 0 : 1); h++) {
            to->share = (double)k;
            to->group = heads < 0 ? m : 0;
            to->heads = heads < 0 ? 0 : h;
            to->columns = columns;
            fusion_shares(b, m + 1, left - k, heads < 0 ? -1 : heads - h, columns);
        }
}

/* One team of two or three of the devices; where one is left it is alone. */
static void fusion_try(fusion_brute *b, int64_t mask)
{
    int64_t r, i;
    for (b->first[0] = b->first[1] = r = 0; r < b->w->cluster.ranks; r++)
        if (mask >> r & 1) b->device[b->first[1]++] = r;
    b->teams = 1;
    b->plan.members = b->first[1];
    for (r = 0; r < b->w->cluster.ranks; r++)
        if (!(mask >> r & 1)) {
            b->device[b->first[1]] = r;
            b->first[2] = b->first[1] + 1;
            b->teams = 2;
        }
    for (i = 0; i < b->plan.members; i++) {
        b->member[i].rank = b->device[i];
        b->member[i].leader = b->device[0];
    }
    for (b->g = b->w->desc.most_micro_batches == 1 ? b->w->desc.granules : 1; b->g <= b->w->desc.granules; b->g++) {
        fusion_shares(b, 0, b->g, -1, 0);
        fusion_shares(b, 0, b->g, HEADS, 0);
        if (b->w->kind[1].moves.gathers[0] > 0) fusion_shares(b, 0, b->w->desc.uneven_state == HET_YES ? 64 : 8, HEADS, 1); /* finer than rows */
    }
}

static double fusion_brute_force(const world *w, int64_t *judged)
{
    fusion_brute b;
    int64_t r;
    memset(&b, 0, sizeof b);
    b.w = w;
    b.best = 1e300;
    b.plan.units = UNITS;
    b.plan.ranks = w->cluster.ranks;
    b.plan.slices = 1;
    b.plan.stage = b.stage;
    b.plan.first_stage = b.first_stage;
    b.plan.share = b.share;
    b.plan.state_share = b.state_share;
    b.plan.slice_share = b.slice_share;
    b.plan.member = b.member;
    b.plan.make = het_schedule_make;
    snprintf(b.plan.schedule, sizeof b.plan.schedule, "1f1b");
    b.slice_share[0] = 1;
    for (r = 0; r < 4; r++) b.state_share[r] = 1;
    for (r = 1; r < (int64_t)1 << w->cluster.ranks; r++)
        if ((r & (r - 1)) != 0) fusion_try(&b, r);
    *judged += b.judged;
    return b.best;
}

static void best_fusion(void **state)
{
    int i, with_teams = 0, with_columns = 0, exact = 0, limited = 0;
    uint64_t seed = 11;
    int64_t judged = 0;
    double worst = 1;
    (void)state;
    for (i = 0; i < 72; i++) { /* rows, columns, and devices that take small micro-batches */
        const int64_t devices = 2 + i % 2;
        het_search *search, *without;
        double least;
        int64_t r;
        world *w = (world *)support_alloc(1, sizeof *w);
        world_make(w, devices, 16.0 * (double)(1 << support_below(&seed, 3)), 0.05 * (double)support_below(&seed, 4));
        for (r = 0; r < devices; r++) w->place[r].speed = 1 + (double)support_below(&seed, 3);
        w->group[0].latency = (double)support_below(&seed, 3);
        w->group[0].bandwidth = (double)(1 + 20 * support_below(&seed, 3));
        if (i >= 24 && i < 48) world_columns(w);
        if (i >= 24 && i < 48) w->desc.granules = 1 + i % 2, w->desc.granule_tokens = 64, w->group[0].bandwidth *= 4;
        for (r = 0; r < devices && i >= 48; r++)
            if (r > 0 || support_below(&seed, 2)) w->place[r].max_tokens = 16 * (double)(1 + support_below(&seed, 4));
        if (i >= 48) w->group[0].bandwidth *= 40, w->group[0].latency = 0, w->time[0].forward.base = (double)support_below(&seed, 8);
        least = fusion_brute_force(w, &judged);
        search = search_of(w, HET_YES);
        without = search_of(w, HET_NO);
        assert_int_equal(without->found[0].plan->members, 0);
        assert_true(search->found[0].seconds <= without->found[0].seconds);
        assert_true(search->found[0].seconds >= search->bound * (1 - 1e-9));
        if (search->found[0].plan->members > 0) {
            with_teams++;
            with_columns += search->found[0].plan->member[0].columns != 0;
            NEARLY(seconds_of(w, search->found[0].plan, search->found[0].granules), search->found[0].seconds);
        } else NEARLY(search->found[0].seconds, without->found[0].seconds);
        if (without->found[0].seconds < least) least = without->found[0].seconds;
        limited += i >= 48 && search->found[0].plan->members > 0 && search->found[0].granules < w->desc.granules;
        if (search->found[0].seconds < least * (i < 24 || i >= 48 ? 1 - 1e-9 : 0.9))
            fail_msg("instance %d: %.9g, brute force %.9g", i, search->found[0].seconds, least);
        if (search->found[0].seconds > worst * least) worst = search->found[0].seconds / least;
        exact += search->found[0].seconds <= least * (i < 48 ? 1 + 1e-9 : 1.01);
        het_search_free(search);
        het_search_free(without);
        free(w);
    }
    print_message("%d of 72 instances with teams, %d by columns, %d of those with limits; %d as good as brute force among %lld plans, at worst %.4f "
        "times it\n", with_teams, with_columns, limited, exact, (long long)judged, worst);
    assert_true(with_teams > 8 && with_columns > 4 && limited > 2 && exact == 72);
}

/* One micro-batch, two devices whose update takes long, and a slow one that needs no time for it: the planner finds a team beside a keeper, by
   columns or by rows, as brute force does. */
static void a_team_beside_a_keeper(void **state)
{
    int i, kept = 0, exact = 0;
    uint64_t seed = 5;
    int64_t judged = 0;
    double worst = 1;
    (void)state;
    for (i = 0; i < 16; i++) {
        world *w = (world *)support_alloc(1, sizeof *w);
        het_search *search, *without;
        double least;
        int64_t u;
        world_make(w, 3, 64, 0.05 * (double)support_below(&seed, 3));
        if (i % 2) world_columns(w);
        w->desc.granules = i % 2 ? 1 : 4, w->desc.granule_tokens = i % 2 ? 64 : 16;
        w->desc.most_micro_batches = 1;
        w->desc.uneven_state = HET_YES;
        w->profile.devices = 2;
        w->device[1] = w->device[0];
        snprintf(w->device[1].name, sizeof w->device[1].name, "type1");
        snprintf(w->place[2].profile, sizeof w->place[2].profile, "type1");
        for (u = 0; u < UNITS; u++) w->block[u].elements = 1000;
        w->device[0].step_element = 0.02 * (double)(1 + support_below(&seed, 4));
        w->place[0].speed = 1 + (double)support_below(&seed, 2);
        w->place[2].speed = 0.02;
        w->group[0].bandwidth = 1e4 * (double)(1 + support_below(&seed, 9));
        least = fusion_brute_force(w, &judged);
        search = search_of(w, HET_YES);
        without = search_of(w, HET_NO);
        if (without->found[0].seconds < least) least = without->found[0].seconds;
        if (search->found[0].seconds > worst * least) worst = search->found[0].seconds / least;
        exact += near_to(search->found[0].seconds, least);
        if (search->found[0].seconds < least * (1 - 1e-9)) fail_msg("instance %d: %.9g, brute force %.9g", i, search->found[0].seconds, least);
        NEARLY(seconds_of(w, search->found[0].plan, search->found[0].granules), search->found[0].seconds);
        kept += search->found[0].plan->members == 2 && search->found[0].plan->keeper[2] != 0;
        het_search_free(search);
        het_search_free(without);
        free(w);
    }
    print_message("%d of 16 instances with a team and a keeper; %d as good as brute force among %lld plans, at worst %.4f times it\n", kept, exact,
        (long long)judged, worst);
    assert_true(kept > 8 && exact >= 8 && worst < 1.01); /* by rows all; shares of columns leave out what is exchanged */
}

/* Of five devices four work as a team, or as two, and the last keeps the state. */
static void the_best_teams_get_a_keeper(void **state)
{
    world *w = (world *)support_alloc(1, sizeof *w);
    het_search *search, *without;
    int64_t u;
    (void)state;
    world_make(w, 5, 64, 0.05);
    w->desc.most_micro_batches = 1;
    w->desc.uneven_state = HET_YES;
    w->profile.devices = 2;
    w->device[1] = w->device[0];
    snprintf(w->device[1].name, sizeof w->device[1].name, "type1");
    snprintf(w->place[4].profile, sizeof w->place[4].profile, "type1");
    for (u = 0; u < UNITS; u++) w->block[u].elements = 1000;
    w->device[0].step_element = 0.1;
    w->place[4].speed = 0.02;
    w->group[0].bandwidth = 1e5;
    search = search_of(w, HET_YES);
    without = search_of(w, HET_NO);
    assert_true(search->found[0].plan->members == 4 && search->found[0].plan->keeper[4] != 0);
    assert_true(search->found[0].seconds < 0.8 * without->found[0].seconds);
    NEARLY(seconds_of(w, search->found[0].plan, search->found[0].granules), search->found[0].seconds);
    het_search_free(search);
    het_search_free(without);
    free(w);
}

/* One sequence of 4,096 tokens: nothing to deal to pipelines, but 8 granules of 512 for a team; on 2 devices, and on 8. */
static void one_long_sequence(void **state)
{
    int64_t devices;
    (void)state;
    for (devices = 2; devices <= 8; devices *= 4) {
        world *w = (world *)support_alloc(1, sizeof *w);
        het_search *search, *without;
        world_make(w, devices, 4096, 1e-3);
        w->desc.granules = 1;
        w->desc.granule_tokens = 4096;
        w->desc.granule_pairs = 0;
        w->group[0].bandwidth = 1e6;
        search = search_of(w, HET_YES);
        without = search_of(w, HET_NO);
        print_message("%d devices: %.3f of the time without teams\n", (int)devices, search->found[0].seconds / without->found[0].seconds);
        assert_int_equal(search->found[0].plan->members, devices == 2 ? 2 : 4); /* of 8 the last would wait for too many attentions */
        assert_true(search->found[0].seconds < (devices == 2 ? 0.65 : 0.3) * without->found[0].seconds);
        NEARLY(seconds_of(w, search->found[0].plan, 1), search->found[0].seconds);
        het_search_free(search);
        het_search_free(without);
        free(w);
    }
}

/* Nodes of 8 with slow links between them: no team leaves its node, be it by rows or, where micro-batches have one granule, by columns. */
static void teams_stay_in_their_nodes(void **state)
{
    int columns;
    (void)state;
    for (columns = 0; columns < 2; columns++) {
        het_search *search;
        world *w = (world *)support_alloc(1, sizeof *w);
        const het_plan *plan;
        int64_t i;
        world_make(w, 16, 16 * 16, 0.1);
        w->desc.granules = columns ? 2 : 16;
        if (columns) world_columns(w), w->desc.granule_tokens = 512;
        w->desc.most_micro_batches = 2; /* so that pipelines alone leave devices idle */
        w->cluster.groups = 3;
        for (i = 1; i < 3; i++) w->group[i].parent = 0, w->group[i].bandwidth = 1e4;
        w->group[0].bandwidth = 2;
        w->group[0].latency = 5;
        for (i = 0; i < 16; i++) w->place[i].group = 1 + i / 8;
        w->desc.evaluations = 1000;
        search = search_of(w, HET_YES);
        plan = search->found[0].plan;
        print_message("%.6g, bound %.6g, %d members%s\n", search->found[0].seconds, search->bound, (int)plan->members, columns ? " by columns" : "");
        assert_true(plan->members > 1 && (plan->member[0].columns != 0) == columns);
        for (i = 0; i < plan->members; i++) assert_int_equal(plan->member[i].rank / 8, plan->member[i].leader / 8);
        het_search_free(search);
        free(w);
    }
}

/* A model whose layers 16 devices could share, on nodes of 8: seconds of the best plan, how many of its members are in teams by columns, and how
   many of these are in another node than their leader. */
static double columns_of(int64_t nodes, int64_t granules, het_link_cost inside, het_link_cost between, int64_t *columns, int64_t *crossing)
{
    world *w = (world *)support_alloc(1, sizeof *w);
    het_search *search;
    const het_plan *plan;
    double seconds;
    int64_t i;
    world_make(w, 8 * nodes, 64, 0.1);
    world_columns(w);
    w->kind[1].heads = 32;
    for (i = 0; i < 4; i++) w->kind[1 + i / 2].moves.linked[i % 2] = 0.1; /* else chains fill too long in teams beyond a node */
    w->desc.granules = granules;
    w->desc.granule_tokens = 512;
    w->cluster.groups = 1 + nodes;
    w->group[0].latency = between.latency;
    w->group[0].bandwidth = between.bandwidth;
    for (i = 1; i <= nodes; i++) w->group[i].parent = 0, w->group[i].latency = inside.latency, w->group[i].bandwidth = inside.bandwidth;
    for (i = 0; i < w->cluster.ranks; i++) w->place[i].group = 1 + i / 8;
    w->desc.evaluations = 600;
    search = search_of(w, HET_YES);
    plan = search->found[0].plan;
    seconds = search->found[0].seconds;
    for (*columns = *crossing = i = 0; i < plan->members; i++) {
        *columns += plan->member[i].columns;
        *crossing += plan->member[i].columns && plan->member[i].rank / 8 != plan->member[i].leader / 8;
    }
    het_search_free(search);
    free(w);
    return seconds;
}

/* Drawn clusters of nodes of 8 with links of unlike slowness between them: teams by columns stay inside. Where the links between nodes are as
   good as those inside some go across, so it is the price that keeps them, and what they gain says that they are wanted. */
static void columns_never_cross_slow_links(void **state)
{
    uint64_t seed = 26;
    int i, inside = 0, across = 0;
    (void)state;
    for (i = 0; i < 12; i++) {
        const int64_t nodes = 2 + support_below(&seed, 3), granules = 1 + support_below(&seed, 2);
        const het_link_cost fast = { 0.01 * (double)support_below(&seed, 4), 1e3 * (double)(1 + support_below(&seed, 20)) };
        het_link_cost slow;
        int64_t columns, crossing, level, level_crossing;
        double best;
        slow.latency = fast.latency + 0.5 * (double)(1 + support_below(&seed, 8));
        slow.bandwidth = fast.bandwidth / (double)(20 + support_below(&seed, 400));
        best = columns_of(nodes, granules, fast, slow, &columns, &crossing);
        assert_int_equal(crossing, 0);
        assert_true(columns_of(nodes, granules, fast, fast, &level, &level_crossing) <= best * (1 + 1e-9));
        inside += columns > 0;
        across += level_crossing > 0;
    }
    print_message("of 12 clusters %d have teams by columns inside nodes, with links as good between nodes %d across\n", inside, across);
    assert_true(inside >= 10 && across >= 6);
}

/* One granule has no rows to divide, and a layer's weights are more than a device holds: columns divide both. */
static void columns_where_rows_cannot_be_cut(void **state)
{
    int short_of_memory;
    (void)state;
    for (short_of_memory = 0; short_of_memory < 2; short_of_memory++) {
        het_error error = { HET_OK, "" };
        world *w = (world *)support_alloc(1, sizeof *w);
        het_search *search = NULL;
        int64_t i;
        world_make(w, short_of_memory ? 4 : 2, 64, 0.1);
        world_columns(w);
        w->desc.granules = 1;
        w->desc.granule_tokens = 64;
        w->group[0].bandwidth = 1e5;
        if (short_of_memory) {
            w->block[1].elements = 1000000, w->block[1].by_heads = 1000000, w->group[0].bandwidth = 1e9;
            for (i = 0; i < 4; i++) w->place[i].memory = 14.2e6; /* alone 20, four as data 14 and 1 of messages, by columns 3 + 5 and 6 */
            w->desc.teams = HET_NO;
            EXPECT_ERROR(het_plan_search(&w->desc, &search, &error), HET_ERR_LIMIT, error.text, "nothing fits");
        }
        search = search_of(w, HET_YES);
        assert_int_equal(search->found[0].plan->members, short_of_memory ? 4 : 2);
        assert_int_equal(search->found[0].plan->member[0].columns, 1);
        NEARLY(seconds_of(w, search->found[0].plan, 1), search->found[0].seconds);
        if (!short_of_memory) {
            het_search *without = search_of(w, HET_NO);
            print_message("%.3f of the time without teams\n", search->found[0].seconds / without->found[0].seconds);
            assert_true(search->found[0].seconds < 0.85 * without->found[0].seconds);
            het_search_free(without);
        }
        het_search_free(search);
        free(w);
    }
}

/* A layer's activations do not fit on one device, half of them do. */
static void teams_where_memory_is_short(void **state)
{
    het_error error = { HET_OK, "" };
    het_search *search = NULL;
    world *w = (world *)support_alloc(1, sizeof *w);
    int64_t i;
    (void)state;
    world_make(w, 2, 64, 0.1);
    w->kind[1].keep[HET_KEEP_WEIGHT][0] = w->kind[1].divided[HET_KEEP_WEIGHT][0] = 31250;
    w->desc.granule_tokens = 512;
    w->desc.most_micro_batches = 1; /* 2,048 tokens at once */
    for (i = 0; i < 2; i++) w->place[i].memory = 55e6;
    w->desc.teams = HET_NO;
    EXPECT_ERROR(het_plan_search(&w->desc, &search, &error), HET_ERR_LIMIT, error.text, "needs at least");
    search = search_of(w, HET_YES);
    assert_int_equal(search->found[0].plan->members, 2);
    for (i = 0; i < 2; i++) assert_true(search->found[0].memory[i] > 30e6 && search->found[0].memory[i] <= 55e6);
    het_search_free(search);
    free(w);
}

/* ---- sequences of unlike lengths on teams of unlike sizes ---- */

enum { MOST_SEQUENCES = 128, MOST_FEW = 7 };

typedef struct batch {
    het_pack_desc desc;
    int64_t tokens[MOST_SEQUENCES];
} batch;

/* Log-normal lengths, or 1 / u^(1/s) of Zipf's, up to `longest`. */
static void batch_make(batch *b, int64_t count, int64_t longest, uint64_t *seed)
{
    const int zipf = (int)support_below(seed, 2);
    int64_t i, k;
    memset(b, 0, sizeof *b);
    b->desc.granules = count;
    b->desc.tokens = b->tokens;
    for (i = 0; i < count; i++) {
        double u = 0.5 * (support_uniform(seed) + 1) + 1e-9, normal = 0;
        for (k = 0; k < 12; k++) normal += 0.5 * support_uniform(seed);
        u = zipf ? 200 * pow(u, -1 / 1.2) : 600 * exp(1.2 * normal);
        b->tokens[i] = u < 16 ? 16 : u > (double)longest ? longest : (int64_t)u;
    }
}

/* Devices with room for about `tokens` tokens of their own. */
static void flex_world(world *w, int64_t devices, double tokens, uint64_t *seed)
{
    int64_t i;
    world_make(w, devices, 64, 1e-3 * (double)(1 + support_below(seed, 4)));
    w->desc.granule_tokens = 64;
    w->desc.granule_pairs = 0;
    for (i = 0; i < UNITS; i++) {
        w->kind[i].keep[HET_KEEP_WEIGHT][0] = w->kind[i].divided[HET_KEEP_WEIGHT][0] = 1000;
        w->time[i].forward.base = (double)support_below(seed, 50);
    }
    for (i = 0; i < devices; i++) w->place[i].memory = 2.2e6 + 4200 * tokens;
    w->group[0].latency = (double)support_below(seed, 20);
    w->group[0].bandwidth = 4.0 * (double)(1 + support_below(seed, 20));
}

/* What a packing says holds: every sequence is there once, sizes are theirs, shares give each team its micro-batches, every team has room for its
   own, and the step takes as long. Returns the size of the largest team, 0 where all are alike. */
static int64_t check_mixed(const world *w, const batch *b, const het_plan *plan, const het_packing *k)
{
    static const int64_t start[UNITS + 1] = { 0, 1, 2, 3, 4 };
    het_error error;
    het_plan_costs *costs = NULL;
    het_schedule *compute = NULL, *lists = NULL;
    het_simulation *result = NULL;
    het_blocks blocks = { UNITS, start, w->use };
    het_needs needs[16];
    het_memory memory[16];
    int64_t counts[16], seen[MOST_SEQUENCES], p, m, i, at = 0, largest = 0, smallest = 99;
    memset(seen, 0, sizeof seen);
    assert_int_equal(k->granules, b->desc.granules);
    assert_int_equal(k->pipelines, plan->pipelines);
    het_plan_micro_batches(plan, k->micro_batches, counts);
    for (p = 0; p < plan->pipelines; p++) assert_int_equal(counts[p], k->counts[p]);
    EXPECT_OK(het_plan_check(plan, "test", &error));
    EXPECT_OK(het_schedule_make(plan, counts, NULL, &compute, &error));
    EXPECT_OK(het_schedule_complete(plan, &blocks, compute, NULL, &lists, &error));
    EXPECT_OK(het_schedule_needs(plan, lists, 0, plan->ranks, 0, NULL, needs, &error));
    for (p = 0; p < plan->pipelines; p++) {
        int64_t size;
        het_shape shape = { 1, 1, w->desc.granule_tokens };
        const het_team_member *team = het_plan_team(plan, plan->stage[p].rank, &size);
        largest = size > largest ? size : largest;
        smallest = size < smallest ? size : smallest;
        for (m = at; m < at + k->counts[p]; m++) {
            double tokens = 0, pairs = 0;
            for (i = k->start[m]; i < k->start[m + 1]; i++) {
                const double t = (double)b->tokens[k->order[i]];
                assert_int_equal(seen[k->order[i]]++, 0);
                tokens += t, pairs += t * (t + 1) / 2;
            }
            NEARLY(k->tokens[m], tokens);
            NEARLY(k->pairs[m], pairs);
            if (tokens > (double)shape.tokens) shape.tokens = (int64_t)tokens;
            if (k->start[m + 1] - k->start[m] > shape.sequences) shape.sequences = k->start[m + 1] - k->start[m];
        }
        at += k->counts[p];
        EXPECT_OK(het_profile_memory(&w->profile, plan, needs, &shape, memory, &error));
        for (i = 0; i < size; i++) {
            const int64_t r = team != NULL ? team[i].rank : plan->stage[p].rank;
            assert_true((double)memory[r].device + (double)memory[r].communication <= w->place[r].memory);
        }
    }
    assert_int_equal(k->start[k->micro_batches], b->desc.granules);
    EXPECT_OK(het_profile_costs(&w->profile, plan, &w->cluster, HET_YES, NULL, &costs, &error));
    costs->costs.tokens = k->tokens;
    costs->costs.pairs = k->pairs;
    costs->costs.sequences = k->sequences;
    EXPECT_OK(het_simulate_costs(plan, lists, costs, HET_NO, NULL, &result, &error));
    NEARLY(result->makespan, k->seconds);
    assert_true(k->estimate <= k->seconds);
    het_simulation_free(result);
    het_plan_costs_free(costs);
    het_schedule_free(lists);
    het_schedule_free(compute);
    return largest > smallest ? largest : 0;
}

static het_packing *pack_teams(const world *w, const batch *b, het_plan **plan)
{
    het_error error = { HET_OK, "" };
    het_packing *packing = NULL;
    EXPECT_ERROR(het_pack_teams(&w->desc, &b->desc, plan, &packing, &error), HET_OK, error.text, "");
    return packing;
}

/* Brute force: every set of team sizes, each team in one of four ways by itself, every micro-batch, every deal of sequences to teams, until the
   last team is done; of every set of teams the best deal with its reductions. */
enum { FLEX_WAYS = 4 };
typedef struct flex_brute {
    const world *w;
    const batch *b;
    het_plan plan;
    het_stage stage[8];
    int64_t first_stage[9];
    double share[8], state_share[8], slice_share[1];
    het_team_member member[8];
    int64_t size[8];
    double now[FLEX_WAYS][8][1 << MOST_FEW], several[FLEX_WAYS][8][1 << MOST_FEW], seconds[8][1 << MOST_FEW], last[8][1 << MOST_FEW], best;
} flex_brute;

/* Each team's way 0: by heads; 1: by context, even; 2 and 3: as het_team_divide has it for the longest sequence, for all of them. 0: there are no
   such teams. */
static int flex_plan(flex_brute *f, int64_t teams, const int *ways)
{
    const world *w = f->w;
    het_error error;
    int64_t p, i, at = 0;
    double longest = 0, all = 0, pairs = 0;
    memset(&f->plan, 0, sizeof f->plan);
    f->plan.units = UNITS;
    f->plan.ranks = w->cluster.ranks;
    f->plan.pipelines = f->plan.stages = teams;
    f->plan.slices = 1;
    f->plan.stage = f->stage;
    f->plan.first_stage = f->first_stage;
    f->plan.share = f->share;
    f->plan.state_share = f->state_share;
    f->plan.slice_share = f->slice_share;
    f->plan.member = f->member;
    f->plan.make = het_schedule_make;
    snprintf(f->plan.schedule, sizeof f->plan.schedule, "1f1b");
    f->slice_share[0] = 1;
    for (i = 0; i < f->b->desc.granules; i++) {
        const double tokens = (double)f->b->tokens[i];
        longest = tokens > longest ? tokens : longest;
        all += tokens;
        pairs += tokens * (tokens + 1) / 2;
    }
    for (p = 0; p < teams; p++) {
        het_stage_cost each[8];
        het_divide_desc divide;
        const int way = ways[p];
        f->first_stage[p + 1] = p + 1;
        f->share[p] = 2;
        memset(&f->stage[p], 0, sizeof f->stage[p]);
        f->stage[p].pipeline = p;
        f->stage[p].rank = at;
        f->stage[p].unit_end = UNITS;
        if (f->size[p] > (way == 0 ? HEADS : 8)) return 0;
        memset(&divide, 0, sizeof divide);
        memset(each, 0, sizeof each);
        for (i = 0; i < f->size[p]; i++) {
            each[i].forward.token = UNITS, each[i].backward.token = 2 * UNITS;
            each[i].forward.pair = w->time[1].forward.pair, each[i].backward.pair = w->time[1].backward.pair;
        }
        divide.member = each;
        divide.members = f->size[p];
        divide.granules = 64;
        divide.tokens = way == 3 ? all : longest;
        divide.pairs = way == 3 ? pairs : longest * (longest + 1) / 2;
        divide.sequences = way == 3 ? all / (2 * pairs / all - 1) : 1;
        if (f->size[p] > 1) EXPECT_OK(het_team_divide(&divide, &f->member[f->plan.members], NULL, &error));
        for (i = 0; i < f->size[p]; i++, at++) {
            het_team_member *m = &f->member[f->plan.members];
            f->state_share[at] = 1;
            if (f->size[p] == 1) continue;
            m->rank = at;
            m->leader = f->stage[p].rank;
            if (way < 2) m->share = 1;
            m->group = way == 0 ? 0 : i;
            m->heads = way == 0 ? HEADS / f->size[p] + (i < HEADS % f->size[p]) : 0;
            f->plan.members++;
        }
    }
    return 1;
}

/* Each subset of the sequences as one micro-batch of each team, where it has room. */
static void flex_seconds(flex_brute *f, int64_t teams, int way)
{
    static const int64_t start[UNITS + 1] = { 0, 1, 2, 3, 4 };
    const world *w = f->w;
    het_error error;
    het_plan_costs *costs = NULL;
    het_schedule *two = NULL, *complete = NULL, *one = NULL;
    het_blocks blocks = { UNITS, start, w->use };
    het_needs needs[8];
    het_memory memory[8];
    int64_t count[8], p, set, i;
    double tokens[8], pairs[8], sequences[8];
    EXPECT_OK(het_profile_costs(&w->profile, &f->plan, &w->cluster, HET_YES, NULL, &costs, &error));
    for (p = 0; p < teams; p++) count[p] = 2;
    EXPECT_OK(het_schedule_make(&f->plan, count, NULL, &two, &error));
    EXPECT_OK(het_schedule_complete(&f->plan, &blocks, two, NULL, &complete, &error));
    EXPECT_OK(het_schedule_needs(&f->plan, complete, 0, f->plan.ranks, 0, NULL, needs, &error));
    for (p = 0; p < teams; p++) count[p] = 1;
    EXPECT_OK(het_schedule_make(&f->plan, count, NULL, &one, &error));
    costs->costs.transfer = HET_TRANSFER_FREE;
    costs->costs.tokens = tokens;
    costs->costs.pairs = pairs;
    costs->costs.sequences = sequences;
    for (set = 1; set < (int64_t)1 << f->b->desc.granules; set++) {
        het_simulation *result = NULL;
        het_shape shape = { 0, f->b->desc.granules, w->desc.granule_tokens };
        tokens[0] = pairs[0] = sequences[0] = 0;
        for (i = 0; i < f->b->desc.granules; i++) {
            const double t = (double)f->b->tokens[i];
            if (!(set >> i & 1)) continue;
            tokens[0] += t, pairs[0] += t * (t + 1) / 2;
        }
        sequences[0] = tokens[0] / (2 * pairs[0] / tokens[0] - 1);
        for (p = 1; p < teams; p++) tokens[p] = tokens[0], pairs[p] = pairs[0], sequences[p] = sequences[0];
        shape.tokens = (int64_t)tokens[0];
        EXPECT_OK(het_profile_memory(&w->profile, &f->plan, needs, &shape, memory, &error));
        EXPECT_OK(het_simulate(&f->plan, one, &costs->costs, HET_NO, NULL, &result, &error));
        for (p = 0; p < teams; p++) {
            const int64_t leader = f->stage[p].rank;
            double seconds = result->rank[leader].end;
            for (i = leader; i < leader + f->size[p]; i++)
                if ((double)memory[i].device + (double)memory[i].communication > w->place[i].memory) seconds = 1e300;
            f->now[way][p][set] = seconds;
        }
        het_simulation_free(result);
    }
    het_plan_costs_free(costs);
    het_schedule_free(two);
    het_schedule_free(complete);
    het_schedule_free(one);
}

/* The whole step with this deal, each team in its best way. */
static double flex_step(flex_brute *f, int64_t teams, const int64_t *deal)
{
    int64_t count[8] = { 0 }, p, i, m = 0;
    int ways[8] = { 0 }, way;
    double tokens[MOST_FEW], pairs[MOST_FEW], sequences[MOST_FEW];
    for (p = 0; p < teams; p++) {
        for (way = 1; way < FLEX_WAYS; way++)
            if (f->several[way][p][deal[p]] < f->several[ways[p]][p][deal[p]]) ways[p] = way;
        for (i = deal[p]; i != 0; m++, count[p]++) { /* `here`: a micro-batch, with the lowest of those left */
            int64_t here = i, j;
            while ((here & i & -i) == 0 || f->now[ways[p]][p][here] + f->several[ways[p]][p][i ^ here] > f->several[ways[p]][p][i])
                here = (here - 1) & i;
            tokens[m] = pairs[m] = 0;
            for (j = 0; j < f->b->desc.granules; j++)
                if (here >> j & 1) tokens[m] += (double)f->b->tokens[j], pairs[m] += (double)f->b->tokens[j] * ((double)f->b->tokens[j] + 1) / 2;
            sequences[m] = tokens[m] / (2 * pairs[m] / tokens[m] - 1);
            i ^= here;
        }
    }
    assert_true(flex_plan(f, teams, ways));
    for (p = 0; p < teams; p++) f->share[p] = (double)count[p];
    return simulated_seconds(f->w, &f->plan, count, tokens, pairs, sequences);
}

static double flex_both(const flex_brute *f, int64_t p, int64_t set, int64_t sub)
{
    return f->seconds[p][sub] > f->last[p - 1][set ^ sub] ? f->seconds[p][sub] : f->last[p - 1][set ^ sub];
}

static void flex_teams(flex_brute *f, int64_t teams, int64_t left)
{
    const int64_t all = ((int64_t)1 << f->b->desc.granules) - 1;
    int64_t p, size, set, sub, deal[8];
    int way, ways[8];
    double whole;
    for (size = left; size >= 1; size--) {
        if (teams > 0 && size > f->size[teams - 1]) continue;
        f->size[teams] = size;
        flex_teams(f, teams + 1, left - size);
    }
    if (left > 0) return;
    for (p = 0; p < teams; p++)
        for (set = 0; set <= all; set++) f->seconds[p][set] = set > 0 ? 1e300 : 0;
    for (way = 0; way < FLEX_WAYS; way++) {
        int can;
        for (p = 0; p < teams; p++) ways[p] = way;
        can = flex_plan(f, teams, ways);
        if (can) flex_seconds(f, teams, way);
        for (p = 0; p < teams; p++) { /* several micro-batches: the one with the lowest number, and what is left */
            f->now[way][p][0] = f->several[way][p][0] = 0;
            for (set = 1; set <= all; set++) {
                const int64_t low = set & -set;
                double best = f->now[way][p][set] = can ? f->now[way][p][set] : 1e300;
                for (sub = (set - 1) & set; sub > 0; sub = (sub - 1) & set)
                    if ((sub & low) != 0 && f->now[way][p][sub] + f->several[way][p][set ^ sub] < best)
                        best = f->now[way][p][sub] + f->several[way][p][set ^ sub];
                f->several[way][p][set] = best;
                if (best < f->seconds[p][set]) f->seconds[p][set] = best;
            }
        }
    }
    memcpy(f->last[0], f->seconds[0], sizeof f->last[0]);
    for (p = 1; p < teams; p++)
        for (set = 0; set <= all; set++) {
            f->last[p][set] = f->last[p - 1][set];
            for (sub = set; sub > 0; sub = (sub - 1) & set)
                if (flex_both(f, p, set, sub) < f->last[p][set]) f->last[p][set] = flex_both(f, p, set, sub);
        }
    if (f->last[teams - 1][all] >= f->best) return;
    for (p = teams - 1, set = all; p >= 0; set ^= deal[p--]) {
        deal[p] = p > 0 ? 0 : set;
        for (sub = set; sub > 0 && p > 0 && f->last[p][set] < f->last[p - 1][set]; sub = (sub - 1) & set)
            if (flex_both(f, p, set, sub) <= f->last[p][set]) deal[p] = sub;
    }
    whole = flex_step(f, teams, deal);
    if (whole < f->best) f->best = whole;
}

/* Teams of one size by themselves: the longest sequence first, to the team that has the fewest tokens, pairs weighted; micro-batches within `room`
   tokens, in order. Seconds until the last is done, without reductions; 1e300: they cannot be. */
static double equal_teams(flex_brute *f, int64_t size, int way, double room)
{
    const int64_t teams = f->w->cluster.ranks / size, n = f->b->desc.granules;
    int64_t order[MOST_SEQUENCES], team[MOST_SEQUENCES], count[8], i, k, p, m = 0;
    int ways[8];
    double load[8] = { 0 }, tokens[MOST_SEQUENCES], pairs[MOST_SEQUENCES], sequences[MOST_SEQUENCES], end = 0;
    const double weight = 3.5 * f->w->time[1].forward.pair / (3 * UNITS); /* of a pair, in tokens */
    het_error error;
    het_plan_costs *costs = NULL;
    het_schedule *lists = NULL;
    het_simulation *result = NULL;
    for (p = 0; p < teams; p++) f->size[p] = size;
    for (p = 0; p < teams; p++) ways[p] = way;
    if (!flex_plan(f, teams, ways)) return 1e300;
    for (i = 0; i < n; i++) {
        for (k = i; k > 0 && f->b->tokens[order[k - 1]] < f->b->tokens[i]; k--) order[k] = order[k - 1];
        order[k] = i;
    }
    for (i = 0; i < n; i++) {
        const double t = (double)f->b->tokens[order[i]];
        int64_t to = 0;
        if (t > room * (double)size) return 1e300;
        for (p = 1; p < teams; p++) to = load[p] < load[to] ? p : to;
        team[order[i]] = to;
        load[to] += t + weight * t * t / 2;
    }
    for (p = 0; p < teams; p++)
        for (i = k = count[p] = 0; i < n; i++) {
            const double t = (double)f->b->tokens[order[i]];
            if (team[order[i]] != p) continue;
            if (count[p] == 0 || tokens[m - 1] + t > room * (double)size) tokens[m] = pairs[m] = 0, m++, count[p]++;
            tokens[m - 1] += t;
            pairs[m - 1] += t * (t + 1) / 2;
        }
    for (i = 0; i < m; i++) sequences[i] = tokens[i] / (2 * pairs[i] / tokens[i] - 1);
    EXPECT_OK(het_profile_costs(&f->w->profile, &f->plan, &f->w->cluster, HET_YES, NULL, &costs, &error));
    EXPECT_OK(het_schedule_make(&f->plan, count, NULL, &lists, &error));
    costs->costs.transfer = HET_TRANSFER_FREE;
    costs->costs.tokens = tokens;
    costs->costs.pairs = pairs;
    costs->costs.sequences = sequences;
    EXPECT_OK(het_simulate(&f->plan, lists, &costs->costs, HET_NO, NULL, &result, &error));
    end = result->makespan;
    het_simulation_free(result);
    het_schedule_free(lists);
    het_plan_costs_free(costs);
    return end;
}

/* Batches with long tails on 8 devices with too little memory for the longest: never slower than teams of one size, those that are looked at beside
   and those made here. */
static void mixed_teams_beat_equal_ones(void **state)
{
    const int batches = support_environment("HETRAIN_TEST_ROUNDS", 60) > 60 ? 100 : 20;
    double sum = 0, most = 0;
    int i, mixed = 0, better = 0, forced = 0;
    (void)state;
    for (i = 0; i < batches; i++) {
        uint64_t seed = (uint64_t)(1000 + i);
        het_plan *plan = NULL;
        het_packing *k;
        flex_brute *f = (flex_brute *)support_alloc(1, sizeof *f);
        batch b;
        int64_t size, n;
        int way;
        double gain;
        world *w = (world *)support_alloc(1, sizeof *w);
        memset(f, 0, sizeof *f);
        flex_world(w, 8, 4096, &seed);
        if (i % 4 == 0) world_columns(w);
        batch_make(&b, 32 + support_below(&seed, 33), 16384, &seed);
        for (n = 0; n < b.desc.granules && b.tokens[n] < 5000; n++) {}
        forced += n < b.desc.granules;
        k = pack_teams(w, &b, &plan);
        mixed += check_mixed(w, &b, plan, k) > 0;
        gain = k->plain_seconds / k->seconds;
        assert_true(gain >= 1);
        f->w = w;
        f->b = &b;
        for (size = 1; size <= 8; size *= 2)
            for (way = 0; way < 4; way++) assert_true(k->estimate <= equal_teams(f, size, way, 4096) * (1 + 1e-9));
        sum += gain;
        most = gain > most ? gain : most;
        better += gain > 1 + 1e-6;
        het_packing_free(k);
        het_plan_free(plan);
        free(f);
        free(w);
    }
    print_message("of %d batches, %d with sequences that no device alone holds, %d get unlike teams: %d faster than equal ones, %.3f times on "
        "average, at most %.3f\n", batches, forced, mixed, better, sum / batches, most);
    assert_true(2 * mixed >= batches && better == mixed && 5 * forced > batches);
}

static void mixed_teams_are_the_best_of_few(void **state)
{
    static const int hard[] = { 794, 870, 232, 261 }; /* each team in a way of its own, or many deals that nothing small makes better */
    const int instances = support_environment("HETRAIN_TEST_ROUNDS", 60) > 60 ? 1000 : 40;
    double worst = 0;
    int at, i, exact = 0, split = 0, over = 0;
    (void)state;
    for (at = 0; at < instances + 4; at++) {
        uint64_t seed = (uint64_t)(5000 + (i = at < instances ? at : hard[at - instances]));
        het_plan *plan = NULL;
        het_packing *k;
        batch b;
        world *w = (world *)support_alloc(1, sizeof *w);
        flex_brute *f = (flex_brute *)support_alloc(1, sizeof *f);
        memset(f, 0, sizeof *f);
        flex_world(w, i % 8 == 0 ? 8 : 4, i % 2 == 0 ? 4096 : 1500, &seed);
        batch_make(&b, MOST_FEW, i % 2 == 0 ? 12000 : 4000, &seed);
        f->w = w;
        f->b = &b;
        f->best = 1e300;
        flex_teams(f, 0, w->cluster.ranks);
        assert_true(f->best < 1e300);
        k = pack_teams(w, &b, &plan);
        (void)check_mixed(w, &b, plan, k);
        if (k->seconds > worst * f->best) worst = k->seconds / f->best;
        exact += k->seconds <= f->best * (1 + 1e-9);
        split += k->micro_batches > k->pipelines;
        over += k->seconds > f->best * 1.02;
        het_packing_free(k);
        het_plan_free(plan);
        free(f);
        free(w);
    }
    print_message("%d of %d as good as brute force, %d more than 2 %% off, %d with several micro-batches a team; at worst %.4f times it\n", exact,
        instances + 4, over, split, worst);
    assert_true(200 * over <= instances && 10 * exact >= 9 * instances && 8 * split >= instances);
}

/* Devices that take small micro-batches: all alike they do what het_pack_desc.max_tokens does; unlike ones are never given more than they take. */
static void mixed_teams_that_take_less(void **state)
{
    int64_t i, r, mixed = 0, few = 0;
    (void)state;
    for (i = 0; i < 24; i++) {
        uint64_t seed = 700 + (uint64_t)i;
        het_plan *plan[2] = { NULL, NULL };
        het_packing *k[2];
        batch b;
        world *w = (world *)support_alloc(1, sizeof *w);
        flex_world(w, 4, 4096, &seed);
        batch_make(&b, 8, 3000, &seed);
        b.desc.max_tokens = 3000 + support_below(&seed, 2000);
        k[0] = pack_teams(w, &b, &plan[0]);
        for (r = 0; r < 4; r++) *(i % 2 ? &w->place[r].max_tokens : &w->device[0].max_tokens) = (double)b.desc.max_tokens;
        b.desc.max_tokens = 0;
        k[1] = pack_teams(w, &b, &plan[1]);
        assert_true(k[0]->seconds >= k[1]->seconds && k[0]->seconds <= k[1]->seconds && k[0]->micro_batches == k[1]->micro_batches);
        assert_memory_equal(k[0]->order, k[1]->order, (size_t)b.desc.granules * sizeof *k[0]->order);
        het_packing_free(k[1]);
        het_plan_free(plan[1]);
        for (r = 1, plan[1] = NULL; r < 4; r++) w->place[r].max_tokens = 300 + (double)support_below(&seed, 2700);
        k[1] = pack_teams(w, &b, &plan[1]);
        mixed += check_mixed(w, &b, plan[1], k[1]) > 0;
        few += k[1]->seconds > k[0]->seconds;
        for (r = 0; r < 2; r++) het_packing_free(k[r]), het_plan_free(plan[r]);
        free(w);
    }
    print_message("of 24 batches on devices of which three take less, %d get unlike teams, %d take longer\n", (int)mixed, (int)few);
    assert_true(few > 12);
}

/* Granules that come the shortest first take as long to sort as the longest first. */
static void many_granules(void **state)
{
    enum { MANY = 60000 };
    int64_t *tokens = (int64_t *)support_alloc(MANY, sizeof *tokens), i, micro_batches = 0;
    world *w = (world *)support_alloc(1, sizeof *w);
    double seconds[2];
    uint64_t seed = 3;
    batch b;
    int falls;
    (void)state;
    flex_world(w, 2, 1 << 20, &seed);
    batch_make(&b, 2, 100, &seed);
    b.desc.tokens = tokens, b.desc.pairs = NULL, b.desc.granules = MANY, b.desc.evaluations = 1;
    for (falls = 0; falls < 2; falls++) {
        const clock_t before = clock();
        het_plan *plan = NULL;
        het_packing *k;
        for (i = 0; i < MANY; i++) tokens[i] = 1 + (falls ? MANY - i : i) / 100;
        k = pack_teams(w, &b, &plan);
        seconds[falls] = (double)(clock() - before) / CLOCKS_PER_SEC;
        if (falls) assert_int_equal(k->micro_batches, micro_batches);
        micro_batches = k->micro_batches;
        het_packing_free(k);
        het_plan_free(plan);
    }
    print_message("%d granules: %.2f s the shortest first, %.2f s the longest first\n", (int)MANY, seconds[0], seconds[1]);
    assert_true(seconds[0] < 2 * seconds[1] + 0.5);
    free(tokens);
    free(w);
}

/* More devices than all sets of teams are tried of; unlike devices; a batch that fits nowhere; memory that ends. */
static void mixed_teams_of_many(void **state)
{
    het_error error = { HET_OK, "" };
    uint64_t seed;
    int64_t i, limit;
    static const int numbers[] = { 1, 3, 0, 2, 4, 5 };
    int turn, mixed = 0;
    het_plan *plan = NULL;
    het_packing *k = NULL;
    batch b;
    world *w;
    (void)state;
    for (turn = 0; turn < (support_environment("HETRAIN_TEST_ROUNDS", 60) > 60 ? 6 : 3); turn++) {
        const int number = numbers[turn];
        seed = (uint64_t)(700 + number);
        w = (world *)support_alloc(1, sizeof *w);
        flex_world(w, 16, 4096, &seed);
        w->cluster.groups = 3;
        for (i = 1; i < 3; i++) w->group[i].parent = 0, w->group[i].bandwidth = 100;
        w->group[0].bandwidth = 2;
        for (i = 0; i < 16; i++) w->place[i].group = 1 + i / 8, w->place[i].speed = i < 8 || number % 2 == 0 ? 1 : 0.5;
        batch_make(&b, MOST_SEQUENCES, number < 3 ? 3000 : 16000, &seed);
        b.tokens[5] = 6000;
        k = pack_teams(w, &b, &plan);
        mixed += check_mixed(w, &b, plan, k) > 0;
        print_message("16 devices: %d teams, %.3f of the time of equal ones, %d simulations\n", (int)plan->pipelines, k->seconds / k->plain_seconds,
            (int)k->evaluations);
        assert_true(k->seconds <= k->plain_seconds);
        for (i = 0; i < plan->members; i++) assert_int_equal(plan->member[i].rank / 8, plan->member[i].leader / 8);
        het_packing_free(k);
        het_plan_free(plan);
        free(w);
    }
    assert_true(mixed >= 2);

    w = (world *)support_alloc(1, sizeof *w);
    flex_world(w, 4, 4096, &seed);
    b.tokens[5] = 100000;
    EXPECT_ERROR(het_pack_teams(&w->desc, &b.desc, &plan, &k, &error), HET_ERR_LIMIT, error.text, "the longest of 100000 tokens");
    assert_null(plan);
    b.desc.max_tokens = 50000;
    EXPECT_ERROR(het_pack_teams(&w->desc, &b.desc, &plan, &k, &error), HET_ERR_LIMIT, error.text, "max_tokens is 50000");
    b.desc.max_tokens = -1;
    EXPECT_ERROR(het_pack_teams(&w->desc, &b.desc, &plan, &k, &error), HET_ERR_INVALID, error.text, "max_tokens -1");
    EXPECT_ERROR(het_pack_teams(&w->desc, NULL, &plan, &k, &error), HET_ERR_INVALID, error.text, "NULL");
    free(w);

    w = (world *)support_alloc(1, sizeof *w);
    flex_world(w, 3, 4096, &seed);
    batch_make(&b, 4, 8000, &seed);
    b.desc.evaluations = 2;
    b.desc.allocator = support_allocator(&w->memory);
    for (limit = 0; limit < 100000; limit += 1 + limit / 4) {
        het_result result;
        w->memory.calls = 0;
        w->memory.fail_at = limit;
        result = het_pack_teams(&w->desc, &b.desc, &plan, &k, &error);
        if (result == HET_OK) break;
        assert_int_equal(result, HET_ERR_OOM);
        assert_null(plan);
        assert_int_equal(w->memory.live, 0);
    }
    assert_true(limit > 20 && limit < 100000);
    het_packing_free(k);
    het_plan_free(plan);
    assert_int_equal(w->memory.live, 0);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_context), cmocka_unit_test(by_context_of_three),
        cmocka_unit_test(by_heads), cmocka_unit_test(rows_between_granules), cmocka_unit_test(by_columns), cmocka_unit_test(by_both),
        cmocka_unit_test(unequal_members),
        cmocka_unit_test(between_teams), cmocka_unit_test(updates_of_members), cmocka_unit_test(wavefront), cmocka_unit_test(pictures_show_members),
        cmocka_unit_test(shares_are_the_best_there_are), cmocka_unit_test(shares_of_many_are_good),
        cmocka_unit_test(shares_of_very_many_heads), cmocka_unit_test(alike_members_get_alike_shares), cmocka_unit_test(shares_refuse),
        cmocka_unit_test(best_fusion), cmocka_unit_test(a_team_beside_a_keeper),
        cmocka_unit_test(the_best_teams_get_a_keeper), cmocka_unit_test(one_long_sequence), cmocka_unit_test(teams_stay_in_their_nodes),
        cmocka_unit_test(columns_never_cross_slow_links), cmocka_unit_test(mixed_teams_beat_equal_ones),
        cmocka_unit_test(mixed_teams_are_the_best_of_few), cmocka_unit_test(mixed_teams_of_many),
        cmocka_unit_test(mixed_teams_that_take_less), cmocka_unit_test(many_granules),
        cmocka_unit_test(teams_where_memory_is_short), cmocka_unit_test(columns_where_rows_cannot_be_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
