/* The simulator against measured steps of other people's clusters: 33 plans of Sailor (SOSP 2025) with their times, of which eight ran on a mixed
   cluster; see data/sailor/README.md. What a step does is put together from what is published about it, nothing is fitted to these records:

   * Megatron-DeepSpeed runs a pipeline by DeepSpeed's TrainSchedule: in every tick a stage first exchanges what the tick before left, gradients
     before activations, then computes. Its sends and receives are blocking.
   * GPUs that share a layer (tensor parallelism) send a part of a boundary each and gather it behind the link (DeepSpeed: pipe_partitioned,
     grad_partitioned). A rank here is such a group of GPUs, its link what all their pairs carry together, as Sailor measured it.
   * NCCL's send returns once the rest fits into its buffer (NCCL_BUFFSIZE, 4 MiB by default), so that smaller messages keep only the receiver.
   * Gradients are 4 bytes a parameter. An embedding that the head has too is summed over both stages first; then each stage's replicas do an
     all-reduce, a ring of 2 (n - 1) steps; then the update. What a node's GPUs have to say to another node goes over its link together.
   * A layer's times, the exchanges of its GPUs included, and its update are the profile's. */
#include "support.h"

#include "hetrain_plan.h"

enum { PARAMETER_BYTES = 4, NCCL_BUFFER = 4 << 20, MOST = 512, MOST_RANKS = 64 };

/* ---- records ---- */

typedef struct model_row { char name[32]; int64_t layers; double tokens, width, elements[3]; } model_row;
/* time: of the first layer, the second, the others, the last; F, B, update. */
typedef struct profile_row { char model[32], gpu[32]; int64_t sequences, gpus; double time[4][3]; } profile_row;
typedef struct wire { char from[32], to[32]; int64_t gpus, others; double coefficient[3], most; } wire;
typedef struct node { char gpu[32]; int64_t gpus; } node;
typedef struct plan_row {
    char group[32], name[32], model[32];
    int64_t sequences, step, stages, replicas, begin[MOST_RANKS], end[MOST_RANKS];
    double measured, theirs;
    node place[MOST_RANKS]; /* [stages][replicas] */
} plan_row;

typedef struct records {
    model_row model[4];
    profile_row profile[32];
    wire inside[16], between[32];
    plan_row record[64];
    int64_t models, profiles, insides, betweens, count;
} records;

/* Words of a line, in place. */
static int64_t split(char *line, char **word)
{
    int64_t n = 0;
    for (word[n] = strtok(line, " \n"); word[n] != NULL && n + 1 < MOST; word[n] = strtok(NULL, " \n")) n++;
    return n;
}

static void copy_name(char to[32], const char *from)
{
    assert_true(strlen(from) < 32);
    strcpy(to, from);
}

static void read_wire(wire *w, char **word, int two)
{
    int i;
    copy_name(w->from, word[1]);
    w->gpus = strtol(word[2], NULL, 10);
    copy_name(w->to, word[two ? 3 : 1]);
    w->others = strtol(word[two ? 4 : 2], NULL, 10);
    for (i = 0; i < 3; i++) w->coefficient[i] = strtod(word[(two ? 5 : 3) + i], NULL);
    w->most = strtod(word[two ? 8 : 6], NULL);
}

static void read_plan(plan_row *p, char **word, int64_t words)
{
    int64_t s, r, at = 10;
    copy_name(p->group, word[1]);
    copy_name(p->name, word[2]);
    copy_name(p->model, word[3]);
    p->sequences = strtol(word[4], NULL, 10);
    p->step = strtol(word[5], NULL, 10);
    p->measured = strtod(word[6], NULL);
    p->theirs = strtod(word[7], NULL);
    p->stages = strtol(word[8], NULL, 10);
    p->replicas = strtol(word[9], NULL, 10);
    assert_true(p->stages * p->replicas <= MOST_RANKS && words == 10 + p->stages * (2 + p->replicas));
    for (s = 0; s < p->stages; s++) {
        p->begin[s] = strtol(word[at++], NULL, 10);
        p->end[s] = strtol(word[at++], NULL, 10);
        for (r = 0; r < p->replicas; r++, at++) {
            node *n = &p->place[s * p->replicas + r];
            char *slash = strchr(word[at], '/');
            assert_non_null(slash);
            *slash = 0;
            copy_name(n->gpu, word[at]);
            n->gpus = strtol(slash + 1, NULL, 10);
        }
    }
}

static records *read_records(void)
{
    records *all = (records *)support_alloc(1, sizeof *all);
    FILE *file = fopen("tests/data/sailor/records.txt", "r");
    char line[4096], *word[MOST];
    memset(all, 0, sizeof *all);
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        const int64_t words = split(line, word);
        int i, j;
        assert_true(words > 5);
        if (strcmp(word[0], "model") == 0) {
            model_row *m = &all->model[all->models++];
            copy_name(m->name, word[1]);
            m->layers = strtol(word[2], NULL, 10);
            m->tokens = strtod(word[3], NULL);
            m->width = strtod(word[4], NULL);
            for (i = 0; i < 3; i++) m->elements[i] = strtod(word[5 + i], NULL);
        } else if (strcmp(word[0], "profile") == 0) {
            profile_row *p = &all->profile[all->profiles++];
            copy_name(p->model, word[1]);
            copy_name(p->gpu, word[2]);
            p->sequences = strtol(word[3], NULL, 10);
            p->gpus = strtol(word[4], NULL, 10);
            for (i = 0; i < 4; i++)
                for (j = 0; j < 3; j++) p->time[i][j] = strtod(word[5 + 3 * i + j], NULL);
        } else if (strcmp(word[0], "inside") == 0) read_wire(&all->inside[all->insides++], word, 0);
        else if (strcmp(word[0], "between") == 0) read_wire(&all->between[all->betweens++], word, 1);
        else read_plan(&all->record[all->count++], word, words);
    }
    fclose(file);
    return all;
}

static const model_row *find_model(const records *all, const char *name)
{
    int64_t i = 0;
    while (strcmp(all->model[i].name, name) != 0) assert_true(++i < all->models);
    return &all->model[i];
}

static const profile_row *find_profile(const records *all, const plan_row *p, const node *n)
{
    int64_t i;
    for (i = 0; i < all->profiles; i++) {
        const profile_row *f = &all->profile[i];
        if (strcmp(f->model, p->model) == 0 && strcmp(f->gpu, n->gpu) == 0 && f->sequences == p->sequences && f->gpus == n->gpus) return f;
    }
    fail();
    return NULL;
}

/* Bytes a second of all pairs together, where each pair moves `bytes`. */
static double rate(const wire *w, double bytes)
{
    const double x = log(bytes / 1e6) / log(2.0), value = 1e9 * ((w->coefficient[0] * x + w->coefficient[1]) * x + w->coefficient[2]);
    return value < w->most ? value : w->most;
}

static const wire *find_wire(const wire *list, int64_t count, const node *a, const node *b)
{
    int64_t i;
    for (i = 0; i < count; i++)
        if (strcmp(list[i].from, a->gpu) == 0 && strcmp(list[i].to, b->gpu) == 0 && list[i].gpus == a->gpus && list[i].others == b->gpus)
            return &list[i];
    return NULL;
}

/* Seconds of a message of `bytes` between two nodes, a part from each GPU. Where one way was not measured, the other is taken. */
static double message_seconds(const records *all, const node *a, const node *b, double bytes)
{
    const wire *w = find_wire(all->between, all->betweens, a, b);
    if (w == NULL) w = find_wire(all->between, all->betweens, b, a);
    assert_non_null(w);
    return bytes / rate(w, bytes / (double)a->gpus);
}

/* An all-gather of `bytes` among the GPUs of a node: a ring of g - 1 steps, each over the link of one of the g / 2 pairs that were measured. */
static double gather_seconds(const records *all, const node *n, double bytes)
{
    const wire *w = find_wire(all->inside, all->insides, n, n);
    const double gpus = (double)n->gpus, part = bytes / gpus;
    assert_non_null(w);
    return (gpus - 1) * part / (rate(w, part) / (gpus / 2));
}

/* ---- a step ---- */

typedef struct step {
    het_plan plan;
    het_schedule schedule;
    het_costs costs;
    het_stage stage[MOST_RANKS];
    int64_t first_stage[MOST_RANKS + 1], micro_batches[MOST_RANKS], start[MOST_RANKS + 1];
    double share[MOST_RANKS], state_share[MOST_RANKS], slice_share;
    het_stage_cost stage_cost[MOST_RANKS];
    het_rank_cost rank_cost[MOST_RANKS];
    het_link_cost link[MOST_RANKS * MOST_RANKS];
    het_block_cost block[MOST_RANKS];
    het_action *action;
    int64_t count;
} step;

static void add(step *t, int32_t kind, int64_t pipeline, int64_t stage, int64_t micro_batch)
{
    het_action *a = &t->action[t->count++];
    memset(a, 0, sizeof *a);
    a->kind = kind;
    a->pipeline = (int32_t)pipeline;
    a->stage = (int32_t)stage;
    a->micro_batch = (int32_t)micro_batch;
}

/* DeepSpeed's TrainSchedule: 2 (m + p - 1) ticks, forward in those whose number is even on even stages and odd on odd ones. */
static void train_schedule(step *t, int64_t pipeline, int64_t s, int64_t stages, int64_t micro_batches)
{
    int64_t tick, before = -1;
    for (tick = 0; tick < 2 * (micro_batches + stages - 1); tick++) {
        const int forward = tick % 2 == s % 2;
        const int64_t n = forward ? tick / 2 - s / 2 : tick % 2 == 0 ? tick / 2 - stages + (s + 1) / 2 : (tick - 1) / 2 - stages + 1 + s / 2;
        const int now = n >= 0 && n < micro_batches, last = before >= 0 && before < micro_batches;
        if (forward && s > 0 && last) add(t, HET_ACTION_SEND_B, pipeline, s, before);
        if (forward && s > 0 && now) add(t, HET_ACTION_RECV_F, pipeline, s, n);
        if (!forward && s + 1 < stages && now) add(t, HET_ACTION_RECV_B, pipeline, s, n);
        if (!forward && s + 1 < stages && last) add(t, HET_ACTION_SEND_F, pipeline, s, before);
        if (now) add(t, forward ? HET_ACTION_F : HET_ACTION_B, pipeline, s, n);
        before = n;
    }
}

/* A line through what a link takes for the sizes that it carries: latency + bytes / bandwidth. */
static void add_link(const records *all, const plan_row *p, step *t, int64_t from, int64_t to, double small, double large)
{
    het_link_cost *link = &t->link[from * t->plan.ranks + to];
    const double first = message_seconds(all, &p->place[from], &p->place[to], small);
    const double second = message_seconds(all, &p->place[from], &p->place[to], large);
    link->latency = large > small ? first - small * (second - first) / (large - small) : 0;
    if (link->latency < 0) link->latency = 0;
    link->bandwidth = large / (second - link->latency);
}

/* Rank s replicas + r holds stage s of pipeline r. Blocks: each stage's, then an embedding that first and last stage of a pipeline have both. */
static step *make_step(const records *all, const plan_row *p, int64_t buffers)
{
    step *t = (step *)support_alloc(1, sizeof *t);
    const model_row *m = find_model(all, p->model);
    const double boundary = (double)p->sequences * m->tokens * m->width * PARAMETER_BYTES;
    /* the embedding is a matrix and a row a position; a head with fewer parameters than the matrix uses that */
    const double matrix = m->elements[0] - m->tokens * m->width, tied = p->stages > 1 && m->elements[2] < matrix ? matrix * PARAMETER_BYTES : 0;
    const int64_t n = p->step / (p->sequences * p->replicas);
    double bytes[MOST_RANKS];
    int64_t s, r, l;
    memset(t, 0, sizeof *t);
    assert_int_equal(n * p->sequences * p->replicas, p->step);
    t->action = (het_action *)support_alloc((size_t)(p->stages * p->replicas * (6 * n + 8)), sizeof *t->action);
    t->plan.ranks = t->schedule.ranks = p->stages * p->replicas;
    t->plan.slices = 1;
    t->plan.slice_share = &t->slice_share;
    t->slice_share = 1;
    t->plan.units = p->stages;
    t->plan.stage = t->stage;
    t->plan.first_stage = t->first_stage;
    t->plan.share = t->share;
    t->plan.state_share = t->state_share;
    t->schedule.micro_batches = t->micro_batches;
    t->schedule.start = t->start;
    t->schedule.action = t->action;
    t->schedule.complete = 1;
    t->plan.pipelines = t->schedule.pipelines = p->replicas;
    for (r = 0; r < p->replicas; r++) {
        t->micro_batches[r] = n;
        t->share[r] = 1;
        for (s = 0; s < p->stages; s++) {
            t->stage[t->plan.stages].pipeline = r;
            t->stage[t->plan.stages].unit_begin = s;
            t->stage[t->plan.stages].unit_end = s + 1;
            t->stage[t->plan.stages++].rank = s * p->replicas + r;
        }
        t->first_stage[r + 1] = t->plan.stages;
    }
    for (s = 0; s < p->stages; s++) {
        for (bytes[s] = 0, l = p->begin[s]; l < p->end[s]; l++)
            bytes[s] += PARAMETER_BYTES * m->elements[l == 0 ? 0 : l + 1 == m->layers ? 2 : 1];
        t->block[s].reduce_bytes = t->block[s].gather_bytes = bytes[s];
        for (r = 0; r < p->replicas; r++) {
            const int64_t rank = s * p->replicas + r;
            const node *here = &p->place[rank];
            const profile_row *f = find_profile(all, p, here);
            het_stage_cost *c = &t->stage_cost[r * p->stages + s];
            for (l = p->begin[s]; l < p->end[s]; l++) {
                const double *time = f->time[l + 1 == m->layers ? 3 : l < 2 ? l : 2];
                c->forward.token += time[0];
                c->backward.token += time[1];
                t->rank_cost[rank].step_base += time[2];
            }
            if (s > 0) c->forward.base = gather_seconds(all, here, boundary);
            if (s + 1 < p->stages) c->backward.base = gather_seconds(all, here, boundary);
            c->bytes = boundary;
            t->state_share[rank] = 1;
            train_schedule(t, r, s, p->stages, n);
            if (tied > 0 && (s == 0 || s + 1 == p->stages)) add(t, HET_ACTION_REDUCE, 0, p->stages + r, 0);
            add(t, HET_ACTION_REDUCE, 0, s, 0);
            add(t, HET_ACTION_COMMIT, 0, 0, 0);
            add(t, HET_ACTION_STEP, 0, s, 0);
            if (tied > 0 && (s == 0 || s + 1 == p->stages)) add(t, HET_ACTION_GATHER, 0, p->stages + r, 0);
            add(t, HET_ACTION_GATHER, 0, s, 0);
            t->start[rank + 1] = t->count;
        }
    }
    for (s = 0; s < p->stages; s++)
        for (r = 0; r < p->replicas; r++) {
            const int64_t rank = s * p->replicas + r, next = s * p->replicas + (r + 1) % p->replicas, part = p->replicas;
            const double ring = bytes[s] / (double)part;
            if (p->replicas > 1) add_link(all, p, t, rank, next, ring, ring);
            if (s + 1 == p->stages) continue;
            add_link(all, p, t, rank, rank + part, boundary, p->stages == 2 && tied > 0 ? tied / 2 : boundary);
            add_link(all, p, t, rank + part, rank, boundary, p->stages == 2 && tied > 0 ? tied / 2 : boundary);
            if (s > 0 || p->stages == 2 || !(tied > 0)) continue;
            add_link(all, p, t, rank, (p->stages - 1) * part + r, tied / 2, tied / 2);
            add_link(all, p, t, (p->stages - 1) * part + r, rank, tied / 2, tied / 2);
        }
    for (r = 0; r < p->replicas; r++) t->block[p->stages + r].reduce_bytes = t->block[p->stages + r].gather_bytes = tied;
    t->costs.stage = t->stage_cost;
    t->costs.rank = t->rank_cost;
    t->costs.link = t->link;
    t->costs.block = t->block;
    t->costs.blocks = p->stages + p->replicas;
    t->costs.transfer = HET_TRANSFER_BLOCKING;
    t->costs.rings = 1;
    t->costs.eager = (double)NCCL_BUFFER * (double)buffers;
    return t;
}

/* buffers: of NCCL, that a message between two nodes has. */
static double simulated(const records *all, const plan_row *p, int64_t buffers)
{
    step *t = make_step(all, p, buffers);
    het_simulation *s = NULL;
    het_error error;
    double seconds;
    error.text[0] = 0;
    EXPECT_ERROR(het_simulate(&t->plan, &t->schedule, &t->costs, HET_NO, NULL, &s, &error), HET_OK, error.text, "");
    seconds = s->makespan;
    het_simulation_free(s);
    free(t->action);
    free(t);
    return seconds;
}

/* Mean absolute error of each of the three groups, beside that of Sailor's own simulator. */
static void closer_than_its_own_simulator(void **state)
{
    static const struct { const char *name; int64_t plans; } groups[3] = { { "mit", 8 }, { "clariden/OPT-350", 15 }, { "clariden/GPT-NEO", 10 } };
    records *all = read_records();
    int64_t g, i;
    (void)state;
    assert_int_equal(all->count, 33);
    print_message("constants: %d bytes a parameter (llm_info.json: params_bytes / params_floats), tokens %g and widths %g, %g "
                  "(its training configs), %d bytes NCCL buffers (NCCL_BUFFSIZE's default in NVIDIA's documentation); "
                  "all other numbers are profiles and bandwidths\n",
        (int)PARAMETER_BYTES, all->model[0].tokens, all->model[0].width, all->model[1].width, (int)NCCL_BUFFER);
    for (g = 0; g < 3; g++) {
        double ours = 0, theirs = 0, once = 0;
        int64_t n = 0;
        for (i = 0; i < all->count; i++) {
            const plan_row *p = &all->record[i];
            double seconds;
            if (strcmp(p->group, groups[g].name) != 0) continue;
            seconds = simulated(all, p, p->place[0].gpus);
            print_message("%-18s %-12s measured %8.4f s, simulated %8.4f (%+5.1f %%), by Sailor %8.4f (%+5.1f %%)\n", p->group, p->name, p->measured,
                seconds, 100 * (seconds / p->measured - 1), p->theirs, 100 * (p->theirs / p->measured - 1));
            ours += fabs(seconds / p->measured - 1);
            theirs += fabs(p->theirs / p->measured - 1);
            once += fabs(simulated(all, p, 1) / p->measured - 1);
            n++;
        }
        print_message("%-18s %d plans: mean error %.2f %%, with one buffer a node in place of one a GPU %.2f %%, Sailor's %.2f %%\n", groups[g].name,
            (int)n, 100 * ours / (double)n, 100 * once / (double)n, 100 * theirs / (double)n);
        assert_int_equal(n, groups[g].plans);
        assert_true(ours <= theirs);
    }
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(closer_than_its_own_simulator) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
