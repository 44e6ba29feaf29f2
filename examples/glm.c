/* Generalised linear models: ridge and logistic regression on random features, split by example (data parallelism), by feature (a team by columns,
   of which each rank has some of the features and their weights), and both ways. The gradient comes from the engine, so all ranks see the same one,
   to the last bit; the loop is conjugate gradients, and what the ranks found together is weighted by an exact line search. The weights must be
   those of one rank in every layout, and the objective that of the closed form (ridge) and of Newton's method (logistic), in double.
     cc -O2 -I. -Iutil examples/glm.c -o build/glm -lm -lpthread */
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#include "hetrain_plan.h"
#include "glm_unit.h"

#include <stdio.h>
#include <string.h>

#define TRY(call) do { het_result try_result = (call); if (try_result != HET_OK) return try_result; } while (0)
enum { BATCHES = 4, ROWS = EXAMPLES / BATCHES, GRANULES = 4 };

/* Of the objective, the mean loss + lambda / 2 |w|^2, at w: its gradient, by the engine. */
static het_result gradient_at(het_ctx *ctx, const problem *p, const het_batch *batch, int64_t index, const double *w, double *g) {
    float single[FEATURES];
    int i;
    for (i = 0; i < FEATURES; i++) single[i] = (float)w[i];
    TRY(het_parameter_write(ctx, index, HET_WEIGHT, single));
    TRY(het_gradients(ctx, batch, BATCHES, NULL));
    TRY(het_parameter_read(ctx, index, HET_GRADIENT, single));
    for (i = 0; i < FEATURES; i++) g[i] = (double)single[i] + p->lambda * (double)(float)w[i];
    return HET_OK;
}

static double dot(const double *a, const double *b) { double s = 0; int i; for (i = 0; i < FEATURES; i++) s += a[i] * b[i]; return s; }

/* Conjugate gradients (Polak, Ribiere); along a direction secants find where the slope is 0. */
static het_result minimise(het_ctx *ctx, const problem *p, const het_batch *batch, int64_t index, double *w) {
    double g[FEATURES], next[FEATURES], at[FEATURES], direction[FEATURES] = { 0 }, along = 0, before = 1;
    int k, i, s;
    TRY(gradient_at(ctx, p, batch, index, w, g));
    for (k = 0; k < 4 * FEATURES && dot(g, g) > 1e-10; k++) {
        double beta = k == 0 ? 0 : (dot(g, g) - along) / before, from = 0, step = 1, slope, at_step;
        for (i = 0; i < FEATURES; i++) direction[i] = (beta > 0 ? beta : 0) * direction[i] - g[i];
        for (slope = dot(g, direction), s = 0; s < 6; s++) {
            for (i = 0; i < FEATURES; i++) at[i] = w[i] + step * direction[i];
            TRY(gradient_at(ctx, p, batch, index, at, next));
            at_step = dot(next, direction);
            if (fabs(at_step) < 1e-4 * fabs(dot(g, direction)) || at_step == slope) break;
            beta = step - at_step * (step - from) / (at_step - slope), from = step, step = beta, slope = at_step;
        }
        along = dot(g, next), before = dot(g, g);
        memcpy(w, at, sizeof at), memcpy(g, next, sizeof g);
    }
    return HET_OK;
}

/* Newton's method in double, which for ridge is the closed form: the first step ends there. Returns the objective at w. */
static double newton(const problem *p, int steps, double *w) {
    static double a[FEATURES][FEATURES + 1];
    double sum, slope, bend;
    int k, e, i, j, n;
    for (k = 0; ; k++) {
        memset(a, 0, sizeof a);
        for (sum = p->lambda / 2 * dot(w, w), e = 0; e < EXAMPLES; e++) {
            sum += loss_of(p, dot(w, p->feature[e]), p->y[e], &slope, &bend) / EXAMPLES;
            for (i = 0; i < FEATURES; i++) {
                for (j = 0; j < FEATURES; j++) a[i][j] += bend * p->feature[e][i] * p->feature[e][j] / EXAMPLES;
                a[i][FEATURES] -= slope * p->feature[e][i] / EXAMPLES;
            }
        }
        if (k == steps) return sum;
        for (i = 0; i < FEATURES; i++) a[i][i] += p->lambda, a[i][FEATURES] -= p->lambda * w[i];
        for (n = 0; n < FEATURES; n++) /* positive definite: no pivots */
            for (i = 0; i < FEATURES; i++)
                for (j = FEATURES; j >= n && i != n; j--) a[i][j] -= a[n][j] * a[i][n] / a[n][n];
        for (i = 0; i < FEATURES; i++) w[i] += a[i][FEATURES] / a[i][i];
    }
}

/* The features, in double, from the frozen weights; y are those of drawn weights and noise. */
static het_result draw(het_ctx *ctx, problem *p) {
    static float table[EXAMPLES][INPUTS], mix[FEATURES][INPUTS];
    uint64_t state = 1;
    int e, i, j;
    TRY(het_parameter_read(ctx, 0, HET_WEIGHT, &table[0][0]));
    TRY(het_parameter_read(ctx, 1, HET_WEIGHT, &mix[0][0]));
    for (e = 0; e < EXAMPLES; e++)
        for (p->y[e] = 0, i = 0; i < FEATURES; i++) {
            double x = 0;
            for (j = 0; j < INPUTS; j++) x += (double)table[e][j] * (double)mix[i][j];
            p->feature[e][i] = x / 2 * (1 + erf(x * sqrt(0.5)));
            state = state * 6364136223846793005u + 1442695040888963407u;
            p->y[e] += sin(i) * p->feature[e][i] + ((double)(state >> 40) / (1 << 24) - 0.5) / 4;
        }
    for (e = 0; e < EXAMPLES && p->logistic; e++) p->y[e] = p->y[e] > 0;
    return HET_OK;
}

/* The weights that so many ranks find in a layout. */
static het_result fit(problem *p, const char *layout, int64_t ranks, double *w, het_error *error) {
    static int32_t token[EXAMPLES], target[EXAMPLES];
    static const int64_t start[2] = { 0, ROWS }, granule[GRANULES + 1] = { 0, ROWS / 4, ROWS / 2, ROWS * 3 / 4, ROWS };
    het_device_desc device[4];
    het_batch batch[BATCHES];
    het_unit unit[4];
    het_plan_desc of_plan;
    het_plan *plan = NULL;
    het_desc desc;
    het_ctx *ctx = NULL;
    het_result result;
    int64_t units, i;
    memset(&desc, 0, sizeof desc), memset(&of_plan, 0, sizeof of_plan), memset(device, 0, sizeof device), memset(batch, 0, sizeof batch);
    for (i = 0; i < EXAMPLES; i++) token[i] = (int32_t)i;
    for (i = 0; i < BATCHES; i++) {
        batch[i].tokens = ROWS, batch[i].sequences = 1, batch[i].token = token + i * ROWS, batch[i].target = target;
        batch[i].sequence_start = start, batch[i].granules = GRANULES, batch[i].granule_start = granule;
    }
    desc.model.family = HET_LLAMA, desc.model.layers = 1, desc.model.width = INPUTS, desc.model.heads = 4, desc.model.context = ROWS;
    desc.model.vocab = EXAMPLES, desc.model.init_std = 1, desc.limits.max_tokens = ROWS, desc.limits.max_micro_batches = BATCHES;
    desc.layout.devices = device, desc.layout.device_count = ranks, desc.units = unit, desc.unit_count = 3, desc.frozen = is_frozen;
    of_plan.units = 3, of_plan.ranks = ranks, of_plan.heads = 4;
    result = het_model_complete(&desc.model, error);
    if (result == HET_OK) result = het_model_units(&desc.model, unit, 4, &units, error); /* embed, and what these two replace */
    unit[1].iface = &score, unit[2].iface = &loss_unit, unit[2].settings = p;
    if (result == HET_OK) result = het_plan_read(&of_plan, layout, strlen(layout), &plan, error);
    if (desc.layout.plan = plan, result == HET_OK) result = het_create(&desc, &ctx, error);
    if (result == HET_OK) result = draw(ctx, p);
    if (result == HET_OK) result = minimise(ctx, p, batch, 2, w);
    if (result != HET_OK && ctx != NULL) het_error_put(error, result, het_last_error(ctx));
    het_destroy(ctx);
    het_plan_free(plan);
    return result;
}

int main(void) {
    static const struct { const char *plan; int64_t ranks; } layout[] = { { "dp", 1 }, { "dp", 4 }, { "tp4", 4 }, { "dp2xtp2", 4 } };
    static problem p = { 0, 1e-3, { 0 }, { { 0 } } };
    het_error error = { HET_OK, "" };
    int good = 1, same, l;
    for (p.logistic = 0; p.logistic < 2; p.logistic++) {
        double w[4][FEATURES] = { { 0 } }, best[FEATURES] = { 0 }, least, found;
        for (same = l = 0; l < 4; l++) {
            if (fit(&p, layout[l].plan, layout[l].ranks, w[l], &error) != HET_OK) {
                fprintf(stderr, "glm: %s on %d ranks: %s\n", layout[l].plan, (int)layout[l].ranks, error.text);
                return 1;
            }
            same += memcmp(w[l], w[0], sizeof w[0]) == 0;
        }
        least = newton(&p, p.logistic ? 20 : 1, best), found = newton(&p, 0, w[0]);
        good = good && same == 4 && fabs(found - least) <= 1e-6 * least;
        printf("%s  objective %.9f, %s %.9f; by example, by feature, both: %d of 3 with the weights of one rank\n",
               p.logistic ? "logistic" : "ridge   ", found, p.logistic ? "Newton" : "closed form", least, same - 1);
    }
    return good ? 0 : 1;
}
