/* het_pack against every grouping of small rows, every order of few micro-batches, and the definition of its estimate written out again; its
   limits, errors and promises on large ones; and the bits of training, which must not show how granules were grouped. */
#include "support.h"

#include "hetrain_search.h"

/* ---- jobs: a plan, costs and granules ---- */

#define MOST_STAGES 32
#define MOST_GRANULES 4096

typedef struct job {
    het_plan *plan;
    het_stage_cost stage[MOST_STAGES];
    het_rank_cost rank[MOST_STAGES];
    het_costs costs;
    het_pack_desc desc;
    int64_t tokens[MOST_GRANULES], sequences[MOST_GRANULES];
    double pairs[MOST_GRANULES], memory[MOST_STAGES];
} job;

static job *job_make(const char *plan, const char *schedule, int64_t ranks, int64_t slices)
{
    job *j = (job *)support_alloc(1, sizeof *j);
    memset(j, 0, sizeof *j);
    j->plan = support_plan(plan, schedule, 32, ranks, slices);
    assert_true(j->plan->stages <= MOST_STAGES);
    j->costs.stage = j->stage;
    j->desc.plan = j->plan;
    j->desc.costs = &j->costs;
    j->desc.tokens = j->tokens;
    j->desc.pairs = j->pairs;
    j->desc.sequences = j->sequences;
    return j;
}

static void job_end(job *j)
{
    het_plan_free(j->plan);
    free(j);
}

/* Whole numbers, so that sums are exact in any order. */
static void job_costs(job *j, uint64_t *random)
{
    int64_t g;
    const int64_t bases = support_below(random, 2) ? 200 : 1, pairs = support_below(random, 3);
    for (g = 0; g < j->plan->stages; g++) {
        het_stage_cost *c = &j->stage[g];
        c->forward.base = (double)support_below(random, bases);
        c->forward.token = (double)(1 + support_below(random, 9));
        c->forward.pair = (double)support_below(random, 1 + pairs);
        c->input.base = (double)support_below(random, bases);
        c->input.token = (double)(1 + support_below(random, 9));
        c->input.pair = (double)support_below(random, 1 + pairs);
        c->weight.token = (double)(1 + support_below(random, 9));
        c->backward.base = c->input.base + c->weight.base;
        c->backward.token = c->input.token + c->weight.token;
        c->backward.pair = c->input.pair + c->weight.pair;
        c->keep_weight = 2;
        c->bytes = 1;
    }
    j->costs.every_link.latency = (double)support_below(random, 30);
}

/* Many short ones and a few long ones. */
static int64_t long_tail(uint64_t *random, int64_t longest)
{
    const double u = 0.5 + 0.5 * support_uniform(random);
    const int64_t length = (int64_t)(4 / (0.002 + u * u * u));
    return length < 1 ? 1 : length > longest ? longest : length;
}

static void job_granules(job *j, int64_t count, int64_t longest, uint64_t *random)
{
    int64_t i;
    assert_true(count <= MOST_GRANULES);
    j->desc.granules = count;
    for (i = 0; i < count; i++) {
        j->sequences[i] = 1 + support_below(random, 3);
        j->tokens[i] = support_below(random, 4) == 0 ? 1 + support_below(random, longest) : long_tail(random, longest);
        j->pairs[i] = (double)(j->tokens[i] * (1 + support_below(random, 40)));
    }
}

static het_packing *pack(const job *j)
{
    het_packing *packing = NULL;
    het_error error;
    error.text[0] = 0;
    EXPECT_ERROR(het_pack(&j->desc, &packing, &error), HET_OK, error.text, "");
    assert_non_null(packing);
    return packing;
}

/* ---- the estimate, by its definition ---- */

static double at(const het_cost *c, double tokens, double pairs) { return c->base + c->token * tokens + c->pair * pairs; }

static double stage_seconds(const job *j, int64_t g, double tokens, double pairs, int split)
{
    const het_stage_cost *c = &j->stage[g];
    return at(&c->forward, tokens, pairs) + (split ? at(&c->input, tokens, pairs) + at(&c->weight, tokens, pairs) : at(&c->backward, tokens, pairs));
}

static int64_t ranks_of(const het_plan *plan, int64_t p)
{
    int64_t g, h, ranks = 0;
    for (g = plan->first_stage[p]; g < plan->first_stage[p + 1]; g++) {
        for (h = plan->first_stage[p]; h < g && plan->stage[h].rank != plan->stage[g].rank; h++) {}
        ranks += h == g;
    }
    return ranks;
}

/* w of a pipeline; several: more than one has micro-batches. */
static double weight_of(const het_plan *plan, int64_t p, int several) { return (double)(ranks_of(plan, p) - 1 + (several ? 1 : 0)); }

/* Pipelines with micro-batches when there are as many as can be. */
static int64_t busy_pipelines(const job *j)
{
    int64_t counts[8], p, n = 0;
    assert_true(j->plan->pipelines <= 8);
    het_plan_micro_batches(j->plan, j->desc.max_micro_batches > 0 ? j->desc.max_micro_batches : j->desc.granules, counts);
    for (p = 0; p < j->plan->pipelines; p++) n += counts[p] > 0;
    return n;
}

static double weighted(const job *j, double tokens, double pairs, int split)
{
    const int64_t busy = busy_pipelines(j);
    double most = 0;
    int64_t p, g, counts[8];
    het_plan_micro_batches(j->plan, j->desc.max_micro_batches > 0 ? j->desc.max_micro_batches : j->desc.granules, counts);
    for (p = 0; p < j->plan->pipelines; p++)
        for (g = j->plan->first_stage[p]; g < j->plan->first_stage[p + 1] && counts[p] > 0; g++) {
            const double t = weight_of(j->plan, p, busy > 1) * stage_seconds(j, g, tokens, pairs, split);
            if (t > most) most = t;
        }
    return most;
}

/* Of m micro-batches with these sums. */
static double estimate(const job *j, int64_t m, const double *tokens, const double *pairs, int split)
{
    double largest = 0, work = 0;
    int64_t counts[8], i, r, p, g;
    het_plan_micro_batches(j->plan, m, counts);
    for (i = 0; i < m; i++) {
        const double t = weighted(j, tokens[i], pairs[i], split);
        if (t > largest) largest = t;
    }
    for (r = 0; r < j->plan->ranks; r++) {
        double sum = 0;
        for (p = 0; p < j->plan->pipelines; p++)
            for (g = j->plan->first_stage[p]; g < j->plan->first_stage[p + 1]; g++) {
                double all = 0;
                if (j->plan->stage[g].rank != r) continue;
                for (i = 0; i < m; i++) all += stage_seconds(j, g, tokens[i], pairs[i], split);
                sum += (double)counts[p] / (double)m * all;
            }
        if (sum > work) work = sum;
    }
    return work + largest;
}

static int fits(const job *j, double tokens, int64_t sequences)
{
    return (j->desc.max_tokens == 0 || tokens <= (double)j->desc.max_tokens) &&
        (j->desc.max_sequences == 0 || sequences <= j->desc.max_sequences);
}

/* Granules by cost alone, then tokens, then number. */
static void sort_row(const job *j, int64_t *row, int split)
{
    const int one = j->plan->pipelines == 1 && ranks_of(j->plan, 0) == 1;
    int64_t i, k;
    for (i = 0; i < j->desc.granules; i++) {
        for (k = i; k > 0; k--) {
            const int64_t a = row[k - 1];
            const double ta = one ? stage_seconds(j, 0, (double)j->tokens[a], j->pairs[a], split) : weighted(j, (double)j->tokens[a], j->pairs[a],
                split);
            const double tb = one ? stage_seconds(j, 0, (double)j->tokens[i], j->pairs[i], split) : weighted(j, (double)j->tokens[i], j->pairs[i],
                split);
            if (ta > tb || (!(ta < tb) && j->tokens[a] >= j->tokens[i])) break;
            row[k] = a;
        }
        row[k] = i;
    }
}

/* The least estimate of all ways to cut the sorted row; negative: all break a limit. */
static double best_cut(const job *j, int split)
{
    int64_t row[16];
    const int64_t n = j->desc.granules, most = j->desc.max_micro_batches > 0 ? j->desc.max_micro_batches : n;
    double best = -1;
    uint64_t cuts;
    sort_row(j, row, split);
    for (cuts = 0; cuts < UINT64_C(1) << (n - 1); cuts++) {
        double tokens[16], pairs[16], e;
        int64_t sequences = 0, m = 0, i;
        int good = 1;
        for (i = 0; i < n; i++) {
            if (i == 0 || (cuts >> (i - 1) & 1u)) {
                if (m >= most) { good = 0; break; }
                tokens[m] = pairs[m] = 0;
                sequences = 0;
                m++;
            }
            tokens[m - 1] += (double)j->tokens[row[i]];
            pairs[m - 1] += j->pairs[row[i]];
            sequences += j->sequences[row[i]];
            if (!fits(j, tokens[m - 1], sequences)) { good = 0; break; }
        }
        if (!good) continue;
        e = estimate(j, m, tokens, pairs, split);
        if (best < 0 || e < best) best = e;
    }
    return best;
}

/* Of all ways to put granules into micro-batches at all: granule i joins one of those there are or begins another. */
static void all_partitions(const job *j, int64_t i, int64_t m, double *tokens, double *pairs, int64_t *sequences, double *best)
{
    int64_t k;
    if (i == j->desc.granules) {
        const double e = estimate(j, m, tokens, pairs, 0);
        if (*best < 0 || e < *best) *best = e;
        return;
    }
    for (k = 0; k <= m; k++) {
        if (k == m) {
            if (j->desc.max_micro_batches > 0 && m == j->desc.max_micro_batches) break;
            tokens[k] = pairs[k] = 0;
            sequences[k] = 0;
        }
        tokens[k] += (double)j->tokens[i];
        pairs[k] += j->pairs[i];
        sequences[k] += j->sequences[i];
        if (fits(j, tokens[k], sequences[k])) all_partitions(j, i + 1, k == m ? m + 1 : m, tokens, pairs, sequences, best);
        tokens[k] -= (double)j->tokens[i];
        pairs[k] -= j->pairs[i];
        sequences[k] -= j->sequences[i];
    }
}

/* Tokens of a micro-batch that a pipeline takes, by what its ranks do. */
static double limit_of(const job *j, int64_t p)
{
    double limit = 1e300;
    int64_t g, i, count;
    for (g = j->plan->first_stage[p]; g < j->plan->first_stage[p + 1] && j->costs.rank != NULL; g++) {
        const het_team_member *team = het_plan_team(j->plan, j->plan->stage[g].rank, &count);
        for (i = 0; i < count; i++) {
            const double own = j->rank[team != NULL ? team[i].rank : j->plan->stage[g].rank].max_tokens;
            if (own > 0 && own < limit) limit = own;
        }
    }
    return limit;
}

/* ---- what is always true of a packing ---- */

static void check_packing(const job *j, const het_packing *k)
{
    char *met = (char *)support_alloc((size_t)j->desc.granules, 1);
    int64_t counts[64], m, i, p, sum = 0;
    memset(met, 0, (size_t)j->desc.granules);
    assert_true(k->micro_batches >= 1 && k->micro_batches <= j->desc.granules);
    assert_true(j->desc.max_micro_batches == 0 || k->micro_batches <= j->desc.max_micro_batches);
    assert_int_equal(k->granules, j->desc.granules);
    assert_int_equal(k->start[0], 0);
    assert_int_equal(k->start[k->micro_batches], k->granules);
    for (m = 0; m < k->micro_batches; m++) {
        double tokens = 0, pairs = 0;
        int64_t sequences = 0;
        assert_true(k->start[m] < k->start[m + 1]);
        for (i = k->start[m]; i < k->start[m + 1]; i++) {
            const int64_t granule = k->order[i];
            assert_true(granule >= 0 && granule < k->granules && !met[granule]);
            assert_true(i == k->start[m] || granule > k->order[i - 1]);
            met[granule] = 1;
            tokens += (double)j->desc.tokens[granule];
            pairs += j->desc.pairs != NULL ? j->desc.pairs[granule] : (double)(j->tokens[granule] * (j->tokens[granule] + 1)) / 2;
            sequences += j->desc.sequences != NULL ? j->desc.sequences[granule] : 1;
        }
        assert_true(fits(j, tokens, sequences));
        assert_true(tokens >= k->tokens[m] && tokens <= k->tokens[m]);
        assert_true(pairs >= k->pairs[m] && pairs <= k->pairs[m]);
        assert_int_equal(sequences, (int64_t)k->sequences[m]);
    }
    assert_int_equal(k->pipelines, j->plan->pipelines);
    het_plan_micro_batches(j->plan, k->micro_batches, counts);
    for (p = 0; p < k->pipelines; p++) {
        if (j->desc.schedule == NULL && j->plan->pipelines == 1) assert_int_equal(k->counts[p], counts[p]);
        if (!(j->plan->share[p] > 0)) assert_int_equal(k->counts[p], 0);
        sum += k->counts[p];
    }
    assert_int_equal(sum, k->micro_batches);
    for (p = m = 0; p < k->pipelines; p++)
        for (i = 0; i < k->counts[p]; i++) assert_true(k->tokens[m++] <= limit_of(j, p));
    if (k->plain_seconds > 0) assert_true(k->seconds <= k->plain_seconds);
    assert_true(k->evaluations >= 1);
    free(met);
}

/* Simulates micro-batches of a packing in some order, with lists that are made for exactly as many; memory: [ranks] or NULL gets the peaks. */
static double simulate_order(const job *j, const het_packing *k, const int64_t *order, double *memory)
{
    het_schedule *compute = NULL, *complete = NULL, *most = NULL;
    het_simulation *simulation = NULL;
    het_costs costs = j->costs;
    double *tokens = (double *)support_alloc((size_t)(3 * k->micro_batches), sizeof(double)), *pairs = tokens + k->micro_batches;
    double *sequences = pairs + k->micro_batches, seconds;
    int64_t counts[64], i, r, n = 0;
    for (i = 0; i < k->micro_batches; i++) {
        tokens[i] = k->tokens[order[i]];
        pairs[i] = k->pairs[order[i]];
        sequences[i] = k->sequences[order[i]];
    }
    costs.tokens = tokens;
    costs.pairs = pairs;
    costs.sequences = sequences;
    het_plan_micro_batches(j->plan, j->desc.max_micro_batches > 0 ? j->desc.max_micro_batches : j->desc.granules, counts);
    EXPECT_OK(het_schedule_make(j->plan, counts, NULL, &compute, NULL));
    EXPECT_OK(het_schedule_complete(j->plan, NULL, compute, NULL, &most, NULL));
    EXPECT_OK(het_schedule_complete(j->plan, NULL, compute, NULL, &complete, NULL));
    memcpy(complete->micro_batches, k->counts, (size_t)k->pipelines * sizeof(int64_t));
    for (r = 0; r < most->ranks; r++) { /* those that are not there are left out: hetrain.h, CONCEPTS */
        complete->start[r] = n;
        for (i = most->start[r]; i < most->start[r + 1]; i++)
            if (most->action[i].kind >= HET_ACTION_REDUCE || most->action[i].micro_batch < k->counts[most->action[i].pipeline])
                complete->action[n++] = most->action[i];
    }
    complete->start[most->ranks] = n;
    EXPECT_OK(het_simulate(j->plan, complete, &costs, HET_NO, NULL, &simulation, NULL));
    seconds = simulation->makespan;
    for (r = 0; r < j->plan->ranks && memory != NULL; r++) memory[r] = simulation->rank[r].peak_bytes;
    het_simulation_free(simulation);
    het_schedule_free(compute);
    het_schedule_free(complete);
    het_schedule_free(most);
    free(tokens);
    return seconds;
}

static void identity(int64_t *order, int64_t count)
{
    int64_t i;
    for (i = 0; i < count; i++) order[i] = i;
}

static int close_to(double a, double b) { return fabs(a - b) <= 1e-12 * fabs(b); }

/* ---- groupings ---- */

static const char *const plans[] = { "pp", "pp", "pp", "pp", "dp", "dp", "dp2xpp2", "dp2xpp2" };
static const int64_t plan_ranks[] = { 1, 2, 3, 4, 2, 3, 4, 4 };

static void random_limits(job *j, uint64_t *random)
{
    int64_t i, longest = 0, all = 0;
    for (i = 0; i < j->desc.granules; i++) {
        longest = j->tokens[i] > longest ? j->tokens[i] : longest;
        all += j->tokens[i];
    }
    if (support_below(random, 2)) j->desc.max_tokens = longest + support_below(random, all - longest + 1);
    if (support_below(random, 2)) j->desc.max_sequences = 3 + support_below(random, 8);
    if (support_below(random, 2)) j->desc.max_micro_batches = 1 + support_below(random, j->desc.granules);
}

static void test_runs(void **state)
{
    uint64_t random = 1;
    int round, refused = 0;
    (void)state;
    for (round = 0; round < 480; round++) {
        const int which = round % 8, split = round % 3 == 2;
        job *j = job_make(plans[which], split ? "zb-h1" : "1f1b", plan_ranks[which], 1);
        het_packing *packing = NULL;
        het_error error;
        double best;
        het_result result;
        job_costs(j, &random);
        job_granules(j, 1 + support_below(&random, round % 12 == 0 ? 12 : 9), 60, &random);
        random_limits(j, &random);
        if (which >= 5 && round % 5 == 0) j->plan->share[0] = 3;
        j->desc.neighbours = HET_YES;
        j->desc.plain = INT64_C(1) << 40; /* none */
        j->desc.evaluations = 20;
        best = best_cut(j, split);
        error.text[0] = 0;
        result = het_pack(&j->desc, &packing, &error);
        if (best < 0) {
            support_expect(result, HET_ERR_LIMIT, error.text, "het_pack: no grouping of|into at most", "het_pack", __LINE__);
            refused++;
        } else {
            support_expect(result, HET_OK, error.text, "", "het_pack", __LINE__);
            if (j->plan->pipelines == 1 ? packing->estimate < best || packing->estimate > best : !close_to(packing->estimate, best))
                fail_msg("round %d: %.17g, by all cuts %.17g", round, packing->estimate, best);
            check_packing(j, packing);
            assert_true(packing->plain_micro_batches == 0);
        }
        het_packing_free(packing);
        job_end(j);
    }
    assert_in_range(refused, 10, 240);
}

/* Without neighbours only: never worse than runs, never better than the best of all partitions. */
static void test_partitions(void **state)
{
    uint64_t random = 2;
    int round, better = 0, best_ones = 0;
    (void)state;
    for (round = 0; round < 200; round++) {
        job *j = job_make(plans[round % 8], "1f1b", plan_ranks[round % 8], 1);
        double tokens[8], pairs[8], best = -1, runs;
        int64_t sequences[8];
        het_packing *packing;
        job_costs(j, &random);
        job_granules(j, 3 + support_below(&random, 5), 60, &random);
        if (round % 2) j->desc.max_tokens = 120;
        if (round % 4 != 1) j->desc.max_micro_batches = 2 + round % 3;
        else job_granules(j, 7, 60, &random);
        j->desc.plain = INT64_C(1) << 40;
        j->desc.evaluations = 20;
        all_partitions(j, 0, 0, tokens, pairs, sequences, &best);
        runs = best_cut(j, 0);
        if (best < 0 || runs < 0) {
            job_end(j);
            continue;
        }
        packing = pack(j);
        check_packing(j, packing);
        assert_true(packing->estimate <= runs * (1 + 1e-12) && packing->estimate >= best * (1 - 1e-12));
        better += packing->estimate < runs * (1 - 1e-9);
        best_ones += close_to(packing->estimate, best);
        het_packing_free(packing);
        job_end(j);
    }
    print_message("%d better than the best runs, %d the best of all\n", better, best_ones);
    assert_true(better > 10);     /* than the best runs */
    assert_true(best_ones > 150);  /* of all partitions */
}

/* ---- orders ---- */

static int next_order(int64_t *a, int64_t n)
{
    int64_t i = n - 2, k = n - 1, swap;
    while (i >= 0 && a[i] > a[i + 1]) i--;
    if (i < 0) return 0;
    while (a[k] < a[i]) k--;
    swap = a[i], a[i] = a[k], a[k] = swap;
    for (i++, k = n - 1; i < k; i++, k--) swap = a[i], a[i] = a[k], a[k] = swap;
    return 1;
}

static void test_every_order(void **state)
{
    static const char *const schedules[] = { "1f1b", "gpipe", "zb-h1", "1f1b" };
    uint64_t random = 3;
    int round, gained = 0;
    (void)state;
    for (round = 0; round < 40; round++) {
        job *j = job_make(round % 4 == 3 ? "dp2xpp2" : "pp", schedules[round % 4], round % 4 == 3 ? 4 : 3, 1);
        int64_t order[6], n = 3 + round % 3;
        double first;
        het_packing *packing;
        job_costs(j, &random);
        job_granules(j, n, 100, &random);
        if (round % 3 == 0) j->desc.max_tokens = 100;
        if (round % 5 == 0) j->desc.max_micro_batches = n + 2;
        packing = pack(j);
        check_packing(j, packing);
        assert_int_equal(packing->stopped, 0);
        identity(order, packing->micro_batches);
        first = simulate_order(j, packing, order, NULL);
        assert_true(close_to(packing->seconds, first));
        do {
            const double seconds = simulate_order(j, packing, order, NULL);
            assert_true(seconds >= packing->seconds);
            gained += seconds > packing->seconds;
        } while (next_order(order, packing->micro_batches));
        het_packing_free(packing);
        job_end(j);
    }
    assert_true(gained > 100);
}

/* The eight micro-batches of DynaPipe's own test (optimizing-multitask-training-through-dynamic-pipelines, tests/test_scheduler): four devices of two
   layers, forward passes of 8, 8, 4 and 4 ms for size 1, backward passes of twice that, 2 MB at 100 Gbit/s between them. */
static void test_dynapipe(void **state)
{
    static const int64_t tenths[8] = { 10, 8, 12, 9, 11, 7, 14, 6 };
    int64_t order[8], i;
    double least = HUGE_VAL;
    job *j = job_make("pp", "1f1b", 4, 1);
    het_packing *packing;
    (void)state;
    for (i = 0; i < 4; i++) {
        het_stage_cost *c = &j->stage[i];
        c->forward.token = i < 2 ? 0.8 : 0.4, c->backward.token = 2 * c->forward.token, c->bytes = 0.2e6;
    }
    j->costs.every_link.bandwidth = 100e9 / 8 / 1e3; /* bytes a ms */
    for (i = 0; i < 8; i++) j->tokens[i] = tenths[i], j->sequences[i] = 1, j->pairs[i] = 0;
    j->desc.granules = 8, j->desc.max_sequences = 1;
    packing = pack(j);
    check_packing(j, packing);
    assert_int_equal(packing->micro_batches, 8);
    assert_true(packing->evaluations < 1000); /* of 40320 orders */
    identity(order, 8);
    do {
        const double seconds = simulate_order(j, packing, order, NULL);
        if (seconds < least) least = seconds;
    } while (next_order(order, 8));
    assert_true(fabs(least - 209.2) < 1e-9 && fabs(packing->seconds - least) < 1e-9 && fabs(packing->plain_seconds - 242.896) < 1e-9);
    het_packing_free(packing);
    job_end(j);
}

/* More micro-batches than all orders can be tried of: no exchange of two helps, and no move of one. */
static void test_exchanges(void **state)
{
    uint64_t random = 4;
    int round;
    (void)state;
    for (round = 0; round < 6; round++) {
        job *j = job_make(round % 2 ? "pp" : "dp2xpp2", "1f1b", 4, 1);
        int64_t order[16], a, b, i;
        het_packing *packing;
        job_costs(j, &random);
        job_granules(j, 12, 200, &random);
        j->desc.max_tokens = 210;
        j->desc.max_micro_batches = 12;
        j->desc.evaluations = 100000;
        for (a = 0; a < 12; a++) j->tokens[a] = 110 + 8 * a;
        packing = pack(j);
        check_packing(j, packing);
        assert_int_equal(packing->micro_batches, 12);
        assert_int_equal(packing->stopped, 0);
        identity(order, 12);
        assert_true(close_to(simulate_order(j, packing, order, NULL), packing->seconds));
        for (a = 0; a < 12; a++)
            for (b = a + 1; b < 12; b++) {
                identity(order, 12);
                order[a] = b;
                order[b] = a;
                assert_true(simulate_order(j, packing, order, NULL) >= packing->seconds);
                for (identity(order, 12), i = a; i < b; i++) order[i] = i + 1;
                order[b] = a;
                assert_true(simulate_order(j, packing, order, NULL) >= packing->seconds);
                for (identity(order, 12), i = b; i > a; i--) order[i] = i - 1;
                order[a] = b;
                assert_true(simulate_order(j, packing, order, NULL) >= packing->seconds);
            }
        het_packing_free(packing);
        job_end(j);
    }
}

/* No granule is better off in another micro-batch, and none of these in another place, also where both had to change. */
static void test_moves(void **state)
{
    uint64_t random = 6;
    int tried = 0;
    (void)state;
    for (int round = 0; round < 8; round++) {
        job *j = job_make(round % 2 ? "pp" : "dp2xpp2", round % 3 ? "1f1b" : "zb-h1", 4, 1);
        het_packing *packing;
        int64_t order[16], from, to, i;
        job_costs(j, &random);
        job_granules(j, 16, 200, &random);
        j->desc.max_tokens = 400;
        j->desc.evaluations = 100000;
        packing = pack(j);
        check_packing(j, packing);
        assert_int_equal(packing->stopped, 0);
        identity(order, packing->micro_batches);
        for (from = 0; from < packing->micro_batches; from++)
            for (i = packing->start[from]; i < packing->start[from + 1] && packing->start[from + 1] - packing->start[from] > 1; i++)
                for (to = 0; to < packing->micro_batches; to++) {
                    const int64_t granule = packing->order[i];
                    double *of[3] = { packing->tokens, packing->pairs, packing->sequences };
                    const double own[3] = { (double)j->tokens[granule], j->pairs[granule], (double)j->sequences[granule] };
                    int k;
                    if (to == from || packing->tokens[to] + own[0] > (double)j->desc.max_tokens) continue;
                    for (k = 0; k < 3; k++) of[k][from] -= own[k], of[k][to] += own[k];
                    assert_true(simulate_order(j, packing, order, NULL) >= packing->seconds);
                    for (k = 0; k < 3; k++) of[k][from] += own[k], of[k][to] -= own[k];
                    tried++;
                }
        for (from = 0; from < packing->micro_batches; from++)
            for (to = 0; to < packing->micro_batches; to++) {
                identity(order, packing->micro_batches);
                order[from] = to, order[to] = from;
                assert_true(simulate_order(j, packing, order, NULL) >= packing->seconds);
                identity(order, packing->micro_batches);
                for (i = from; i != to; i += from < to ? 1 : -1) order[i] = order[i + (from < to ? 1 : -1)];
                order[to] = from;
                assert_true(simulate_order(j, packing, order, NULL) >= packing->seconds);
            }
        het_packing_free(packing);
        job_end(j);
    }
    assert_true(tried > 100);
}

/* Every generator's lists, interleaved, split, sliced and in pairs, with fewer micro-batches than they were made for. */
static void test_schedules(void **state)
{
    static const char *const schedules[] = { "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "greedy", "bidirectional",
        "dualpipev", "terapipe", "sliced-1f1b" };
    uint64_t random = 5;
    size_t s;
    (void)state;
    for (s = 0; s < sizeof schedules / sizeof *schedules; s++) {
        job *j = job_make("pp", schedules[s], 4, s >= 11 ? 2 : 1);
        int64_t order[16], counts[4], p;
        het_packing *packing;
        job_costs(j, &random);
        job_granules(j, 14, 50, &random);
        j->desc.max_tokens = 100;
        j->desc.max_micro_batches = 16;
        j->desc.evaluations = 60;
        packing = pack(j);
        check_packing(j, packing);
        identity(order, packing->micro_batches);
        het_plan_micro_batches(j->plan, packing->micro_batches, counts);
        for (p = 0; p < j->plan->pipelines; p++) assert_int_equal(packing->counts[p], counts[p]);
        if (strcmp(schedules[s], "dualpipev") != 0) assert_true(close_to(simulate_order(j, packing, order, NULL), packing->seconds));
        het_packing_free(packing);
        job_end(j);
    }
}

/* ---- pipelines that take unequal numbers of tokens ---- */

/* The shortest step of all partitions of the granules into micro-batches in all orders that pipelines take; negative: there is none. */
typedef struct best_order { const job *j; het_packing packing; double tokens[6], pairs[6], sequences[6], best; int64_t micro_batches; } best_order;

static void best_of_orders(best_order *b, int64_t m)
{
    int64_t order[6], counts[8], i, p;
    het_packing *k = &b->packing;
    memset(k, 0, sizeof *k);
    k->micro_batches = m, k->pipelines = b->j->plan->pipelines, k->counts = counts;
    k->tokens = b->tokens, k->pairs = b->pairs, k->sequences = b->sequences;
    het_plan_micro_batches(b->j->plan, m, counts);
    for (i = 0; i < m; i++) order[i] = i;
    do {
        int taken = 1;
        for (p = i = 0; p < k->pipelines; i += counts[p++])
            for (int64_t n = i; n < i + counts[p]; n++) taken &= b->tokens[order[n]] <= limit_of(b->j, p);
        if (taken) {
            const double seconds = simulate_order(b->j, k, order, NULL);
            if (b->best < 0 || seconds < b->best) b->best = seconds;
        }
    } while (next_order(order, m));
}

static void best_of_partitions(best_order *b, int64_t i, int64_t m)
{
    if (i == b->j->desc.granules) {
        best_of_orders(b, m);
        return;
    }
    for (int64_t k = 0; k <= m && k < b->j->desc.max_micro_batches; k++) {
        if (k == m) b->tokens[k] = b->pairs[k] = b->sequences[k] = 0;
        b->tokens[k] += (double)b->j->tokens[i], b->pairs[k] += b->j->pairs[i], b->sequences[k] += (double)b->j->sequences[i];
        best_of_partitions(b, i + 1, k == m ? m + 1 : m);
        b->tokens[k] -= (double)b->j->tokens[i], b->pairs[k] -= b->j->pairs[i], b->sequences[k] -= (double)b->j->sequences[i];
    }
}

/* Some ranks take small micro-batches only: none is ever given a larger one. Steps are about as near to the best of all ways as where ranks take any,
   which is 1.019 of it in the mean of these. */
static void test_pipelines_that_take_less(void **state)
{
    static const char *const names[] = { "dp", "dp", "dp2xpp2", "pp", "dp2xcp2" };
    static const int64_t ranks[] = { 2, 3, 4, 2, 4 };
    uint64_t random = 8;
    double sum = 0, worst = 1;
    int found = 0, best = 0, none = 0, missed = 0;
    (void)state;
    for (int round = 0; round < 120; round++) {
        job *j = job_make(names[round % 5], "1f1b", ranks[round % 5], 1);
        het_packing *packing = NULL;
        het_error error;
        best_order b;
        int64_t r;
        memset(&b, 0, sizeof b);
        b.j = j, b.best = -1;
        job_costs(j, &random);
        job_granules(j, 3 + round % 4, 60, &random);
        j->costs.rank = j->rank;
        for (r = 0; r < ranks[round % 5]; r++) {
            j->rank[r].step = 1;
            if (support_below(&random, 3) < 2) j->rank[r].max_tokens = (double)(20 + support_below(&random, 100));
        }
        j->desc.max_micro_batches = 2 + support_below(&random, j->desc.granules - 1);
        best_of_partitions(&b, 0, 0);
        error.text[0] = 0;
        if (het_pack(&j->desc, &packing, &error) == HET_OK) {
            check_packing(j, packing);
            assert_true(packing->seconds >= b.best * (1 - 1e-12) && b.best > 0);
            sum += packing->seconds / b.best;
            if (packing->seconds > worst * b.best) worst = packing->seconds / b.best;
            best += close_to(packing->seconds, b.best);
            found++;
        } else {
            support_expect(error.code, HET_ERR_LIMIT, error.text, "max_tokens", "het_pack", __LINE__);
            none += b.best < 0;
            missed += b.best >= 0;
        }
        het_packing_free(packing);
        job_end(j);
    }
    print_message("%d packed, %d of them the best way, %.4f of it in the mean, %.3f at worst; %d have none, of %d none was found\n", found, best,
                  sum / found, worst, none, missed);
    assert_true(found > 60 && none > 10 && missed <= found / 40 && sum / found < 1.03);
}

/* ---- larger steps ---- */

static void test_limits(void **state)
{
    uint64_t random = 6;
    int round;
    (void)state;
    for (round = 0; round < 60; round++) {
        const int which = round % 8;
        job *j = job_make(plans[which], round % 3 ? "1f1b" : "zb-h1", plan_ranks[which], 1);
        het_packing *packing;
        job_costs(j, &random);
        job_granules(j, 20 + support_below(&random, 200), 500, &random);
        j->desc.max_tokens = 500 + support_below(&random, 1000);
        if (round % 2) j->desc.max_sequences = 8 + support_below(&random, 30);
        if (round % 4 == 1) j->desc.pairs = NULL;
        if (round % 4 == 2) j->desc.sequences = NULL;
        if (which >= 5) j->plan->share[round % j->plan->pipelines] = round % 2 ? 0 : 2.5;
        if (round >= 30) j->costs.rank = j->rank, j->rank[0].max_tokens = 500; /* the longest granule */
        j->desc.evaluations = 40;
        packing = pack(j);
        check_packing(j, packing);
        assert_true(packing->evaluations <= 40);
        het_packing_free(packing);
        job_end(j);
    }
}

static void test_memory(void **state)
{
    uint64_t random = 7;
    int round, bound = 0, near_limit = 0;
    (void)state;
    for (round = 0; round < 48; round++) {
        job *j = job_make(round % 2 ? "pp" : "dp2xpp2", "1f1b", 4, 1);
        double peak[4];
        int64_t order[64], r;
        het_packing *packing, *free_one;
        job_costs(j, &random);
        job_granules(j, 30, 200, &random);
        j->desc.max_micro_batches = 32;
        j->desc.evaluations = 60;
        free_one = pack(j);
        identity(order, free_one->micro_batches);
        (void)simulate_order(j, free_one, order, peak);
        for (r = 0; r < 4; r++) { /* enough for every granule alone, in any order */
            const double alone = 2 * 200 * (round % 2 ? (double)(4 - r) : (double)(2 - r % 2));
            j->memory[r] = alone * (1 + 0.05 * (double)(round % 24));
        }
        j->memory[round % 4] = 0; /* no limit */
        j->desc.memory = j->memory;
        packing = pack(j);
        check_packing(j, packing);
        identity(order, packing->micro_batches);
        assert_true(close_to(simulate_order(j, packing, order, peak), packing->seconds));
        for (r = 0; r < 4; r++) assert_true(j->memory[r] <= 0 || peak[r] <= j->memory[r]);
        for (r = 0; r < 4; r++) near_limit += j->memory[r] > 0 && peak[r] > 0.91 * j->memory[r];
        bound += packing->seconds > free_one->seconds;
        for (r = 0; r < 4; r++) j->memory[r] = 3;
        het_packing_free(packing);
        {
            het_error error;
            EXPECT_ERROR(het_pack(&j->desc, &packing, &error), HET_ERR_LIMIT, error.text,
                "het_pack: rank|keeps|bytes in the best grouping found|its limit is 3");
            assert_null(packing);
        }
        het_packing_free(free_one);
        job_end(j);
    }
    print_message("%d of 48 bound by memory, %d peaks near their limits\n", bound, near_limit);
    assert_true(bound > 5);
}

/* The same granules in their own order and equal numbers, simulated here with every number of micro-batches that limits allow. */
static double plain_seconds(const job *j, int64_t m)
{
    het_packing k;
    double *sums = (double *)support_alloc((size_t)(3 * m), sizeof(double)), seconds = -1;
    int64_t *order = (int64_t *)support_alloc((size_t)m, sizeof(int64_t)), counts[8], i, b, at_granule = 0;
    memset(&k, 0, sizeof k);
    k.micro_batches = m;
    k.pipelines = j->plan->pipelines;
    k.counts = counts;
    k.tokens = sums;
    k.pairs = sums + m;
    k.sequences = sums + 2 * m;
    het_plan_micro_batches(j->plan, m, counts);
    for (i = 0; i < m; i++) {
        const int64_t granules = j->desc.granules / m + (i < j->desc.granules % m);
        k.tokens[i] = k.pairs[i] = k.sequences[i] = 0;
        for (b = 0; b < granules; b++, at_granule++) {
            k.tokens[i] += (double)j->tokens[at_granule];
            k.pairs[i] += j->pairs[at_granule];
            k.sequences[i] += (double)j->sequences[at_granule];
        }
        if (!fits(j, k.tokens[i], (int64_t)k.sequences[i])) break;
    }
    identity(order, m);
    if (i == m) seconds = simulate_order(j, &k, order, NULL);
    free(sums);
    free(order);
    return seconds;
}

static void test_plain(void **state)
{
    uint64_t random = 8;
    double gain = 0, best_gain = 0;
    int round, compared = 0;
    (void)state;
    for (round = 0; round < 200; round++) {
        const int which = round % 8;
        job *j = job_make(plans[which], "1f1b", plan_ranks[which], 1);
        het_packing *packing;
        int64_t m;
        job_costs(j, &random);
        job_granules(j, 24, 256, &random);
        j->desc.max_tokens = 1024;
        j->desc.max_micro_batches = 16;
        j->desc.evaluations = 200;
        if (round % 4 == 0) j->desc.plain = 12;
        packing = pack(j);
        check_packing(j, packing);
        if (packing->plain_micro_batches > 0) {
            double best = -1;
            assert_true(close_to(plain_seconds(j, packing->plain_micro_batches), packing->plain_seconds));
            for (m = 1; m <= 16; m++) {
                const double seconds = plain_seconds(j, m);
                if (seconds >= 0 && (best < 0 || seconds < best)) best = seconds;
            }
            assert_true(packing->plain_seconds >= best * (1 - 1e-12));
            assert_true(round % 4 != 0 || packing->plain_micro_batches == 12);
            if (which >= 1) {
                gain += packing->plain_seconds / packing->seconds;
                best_gain += best / packing->seconds;
                compared++;
            }
        }
        het_packing_free(packing);
        job_end(j);
    }
    print_message("plain / packed: %.3f on average, %.3f with the best number of plain micro-batches\n", gain / compared, best_gain / compared);
    assert_true(compared > 100);
    assert_true(best_gain / compared > 1.1);
}

static void test_large(void **state)
{
    uint64_t random = 9;
    job *j = job_make("pp", "1f1b", 4, 1);
    het_packing *a, *b;
    int64_t i;
    (void)state;
    job_costs(j, &random);
    job_granules(j, MOST_GRANULES, 512, &random);
    j->desc.max_tokens = 8192;
    j->desc.max_micro_batches = 128;
    a = pack(j);
    b = pack(j);
    check_packing(j, a);
    assert_int_equal(a->micro_batches, b->micro_batches);
    assert_memory_equal(a->order, b->order, (size_t)a->granules * sizeof *a->order);
    assert_memory_equal(a->start, b->start, (size_t)(a->micro_batches + 1) * sizeof *a->start);
    assert_memory_equal(&a->seconds, &b->seconds, sizeof a->seconds);
    het_packing_free(a);
    het_packing_free(b);
    j->desc.max_micro_batches = 0; /* as many as granules: numbers above 256 in steps */
    j->desc.evaluations = 3;
    j->desc.max_tokens = 512;
    a = pack(j);
    check_packing(j, a);
    assert_true(a->micro_batches > 64);
    het_packing_free(a);
    for (i = 0; i < MOST_GRANULES; i++) j->tokens[i] = 300, j->pairs[i] = 0, j->sequences[i] = 1; /* alike: nothing to be exchanged */
    j->desc.evaluations = 1000000;
    a = pack(j);
    check_packing(j, a);
    assert_true(a->micro_batches == MOST_GRANULES && a->evaluations < 10 && a->stopped == 0);
    het_packing_free(a);
    job_end(j);
}

/* ---- errors and memory ---- */

static void refuse(const job *j, het_result code, const char *words)
{
    het_packing other, *packing = &other;
    het_error error;
    error.text[0] = 0;
    EXPECT_ERROR(het_pack(&j->desc, &packing, &error), code, error.text, words);
    assert_null(packing);
    assert_int_equal(het_pack(&j->desc, &packing, NULL), code);
}

static void test_errors(void **state)
{
    uint64_t random = 10;
    job *j = job_make("pp", "1f1b", 2, 1);
    het_packing *packing = NULL;
    het_error error;
    het_schedule *schedule = NULL;
    int64_t count = 3;
    double saved;
    (void)state;
    job_costs(j, &random);
    job_granules(j, 6, 50, &random);
    EXPECT_ERROR(het_pack(NULL, &packing, &error), HET_ERR_INVALID, error.text, "het_pack: the description or packing is NULL");
    EXPECT_ERROR(het_pack(&j->desc, NULL, &error), HET_ERR_INVALID, error.text, "het_pack: the description or packing is NULL");
#define REFUSE(field, value, code, words) do { const het_pack_desc kept = j->desc; j->desc.field = value; \
    refuse(j, code, words); j->desc = kept; } while (0)
    REFUSE(start_canary, 7, HET_ERR_INVALID, "het_pack: the description was not cleared");
    REFUSE(end_canary, 7, HET_ERR_INVALID, "not cleared");
    REFUSE(plan, NULL, HET_ERR_INVALID, "het_pack: plan, costs, costs->stage|or tokens is NULL");
    REFUSE(costs, NULL, HET_ERR_INVALID, "is NULL");
    REFUSE(tokens, NULL, HET_ERR_INVALID, "is NULL");
    REFUSE(granules, 0, HET_ERR_INVALID, "het_pack: 0 granules");
    REFUSE(max_tokens, -5, HET_ERR_INVALID, "max_tokens -5");
    REFUSE(max_sequences, -1, HET_ERR_INVALID, "max_sequences -1");
    REFUSE(max_micro_batches, -2, HET_ERR_INVALID, "max_micro_batches -2");
    REFUSE(evaluations, -3, HET_ERR_INVALID, "evaluations -3");
    REFUSE(plain, -1, HET_ERR_INVALID, "plain -1");
    REFUSE(max_sequences, 1, HET_ERR_LIMIT, "sequences, max_sequences is 1");
    j->tokens[3] = 77;
    REFUSE(max_tokens, 76, HET_ERR_LIMIT, "het_pack: granule 3 has 77 tokens, max_tokens is 76");
    j->tokens[2] = -1;
    refuse(j, HET_ERR_INVALID, "het_pack: granule 2 has -1 tokens");
    j->tokens[2] = 40;
    j->sequences[1] = -4;
    refuse(j, HET_ERR_INVALID, "het_pack: granule 1 has -4 sequences");
    j->sequences[1] = 1;
    saved = j->pairs[5];
    j->pairs[5] = -1;
    refuse(j, HET_ERR_INVALID, "het_pack: the pairs of granule 5|are negative or not finite");
    j->pairs[5] = (double)NAN;
    refuse(j, HET_ERR_INVALID, "het_pack: the pairs of granule 5|are negative or not finite");
    j->pairs[5] = saved;
    j->memory[1] = -1;
    REFUSE(memory, j->memory, HET_ERR_INVALID, "het_pack: memory[1] is negative or not finite");
    j->stage[1].forward.token = -2;
    refuse(j, HET_ERR_INVALID, "a cost of stage 1 is negative or not finite");
    j->stage[1].forward.token = 2;
    EXPECT_OK(het_schedule_make(j->plan, &count, NULL, &schedule, NULL));
    j->desc.schedule = schedule;
    REFUSE(max_micro_batches, 4, HET_ERR_INVALID, "het_pack: the schedule has 3 micro-batches|max_micro_batches is 4");
    packing = pack(j); /* lists given, their number taken from them */
    assert_in_range(packing->micro_batches, 1, 3);
    het_packing_free(packing);
    memset(j->tokens, 0, sizeof j->tokens);
    j->tokens[0] = j->tokens[1] = j->tokens[2] = j->tokens[3] = 60;
    REFUSE(max_tokens, 100, HET_ERR_LIMIT, "het_pack: no grouping of 6 granules|with 240 tokens and|into at most 3 micro-batches|max_tokens 100");
    het_schedule_free(schedule);
    het_packing_free(NULL);
#undef REFUSE
    job_end(j);
}

static void test_allocations(void **state)
{
    uint64_t random = 11;
    job *j = job_make("dp2xpp2", "1f1b", 4, 1);
    support_memory memory;
    het_packing *packing = NULL;
    int64_t k;
    (void)state;
    job_costs(j, &random);
    job_granules(j, 10, 50, &random);
    j->desc.evaluations = 5;
    for (k = 0;; k++) {
        het_error error;
        het_result result;
        error.text[0] = 0;
        j->desc.allocator = support_allocator(&memory);
        memory.fail_at = k;
        result = het_pack(&j->desc, &packing, &error);
        assert_int_equal(memory.wrong, 0);
        if (result == HET_OK) break;
        support_expect(result, HET_ERR_OOM, error.text, "no memory", "het_pack", __LINE__);
        assert_null(packing);
        assert_int_equal(memory.live, 0);
    }
    assert_true(k >= 10);
    assert_int_equal(memory.live, 1);
    check_packing(j, packing);
    het_packing_free(packing);
    assert_int_equal(memory.live, 0);
    memset(&j->desc.allocator, 0, sizeof j->desc.allocator);
    j->desc.allocator.alloc = support_allocator(&memory).alloc;
    refuse(j, HET_ERR_INVALID, "het_pack: the allocator lacks alloc or free");
    job_end(j);
}

/* ---- training ---- */

/* "20|31": the blocks of each micro-batch. */
static void layout_of(const het_packing *k, char *layout)
{
    int64_t m, i;
    for (m = 0; m < k->micro_batches; m++) {
        if (m > 0) *layout++ = '|';
        for (i = k->start[m]; i < k->start[m + 1]; i++) *layout++ = (char)('0' + k->order[i]);
    }
    *layout = 0;
}

static void test_bits(void **state)
{
    static const char *const blocks = "17|600|5,0,9|48|1|30,2|3,3,3|160";
    static const char *const layouts[] = { "pp", "pp", "dp", "dp", "dp", "dp" };
    het_model_desc model = support_model(HET_LLAMA);
    support_run base;
    support_result expected;
    int round;
    (void)state;
    model.context = 640;
    support_run_start(&base, &model, 2, blocks);
    base.desc.limits.max_micro_batches = 8;
    expected = support_train(&base, "0|1|2|3|4|5|6|7");
    for (round = 0; round < 6; round++) { /* at last with a rank that takes 50 tokens */
        support_run run;
        het_packing *packing;
        char layout[32];
        uint64_t random = 12 + (uint64_t)round;
        int64_t b, g, s;
        job *j;
        support_run_start(&run, &model, 2, blocks);
        run.desc.limits.max_micro_batches = 8;
        support_run_ranks(&run, round == 4 ? 1 : 2);
        if (round == 5) run.device[1].max_tokens = 50;
        support_run_plan(&run, layouts[round], round == 1 ? "zb-h1" : "1f1b", 1);
        if (round == 3) run.plan->share[0] = 0;
        j = job_make(layouts[round], "1f1b", round == 4 ? 1 : 2, 1);
        job_costs(j, &random);
        if (round == 5) j->costs.rank = j->rank, j->rank[1].max_tokens = 50;
        for (g = 0; g < j->plan->stages; g++) j->stage[g].forward.base = 100 * round;
        j->desc.plan = run.desc.layout.plan;
        j->desc.granules = run.data.blocks;
        for (b = 0; b < run.data.blocks; b++) {
            const het_batch *batch = &run.data.block[0][b].batch;
            j->tokens[b] = batch->tokens;
            j->sequences[b] = batch->sequences;
            j->pairs[b] = 0;
            for (s = 0; s < batch->sequences; s++) {
                const double length = (double)(batch->sequence_start[s + 1] - batch->sequence_start[s]);
                j->pairs[b] += length * (length + 1) / 2;
            }
        }
        j->desc.max_micro_batches = 8;
        j->desc.max_tokens = round == 0 ? 600 : 0;
        packing = pack(j);
        if (round == 0) assert_true(packing->micro_batches > 1);
        layout_of(packing, layout);
        {
            const support_result result = support_train(&run, layout);
            assert_true(support_same(&expected, &result, layout));
        }
        het_packing_free(packing);
        job_end(j);
        support_run_end(&run);
    }
    support_run_end(&base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_partitions),
        cmocka_unit_test(test_every_order),
        cmocka_unit_test(test_dynapipe),
        cmocka_unit_test(test_exchanges),
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_pipelines_that_take_less),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_allocations),
        cmocka_unit_test(test_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
