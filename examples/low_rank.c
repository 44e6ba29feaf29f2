/* Pre-training with narrow layers: every matrix W of attention and MLP, [out][in], is a product B A of two, [out][RANK] and [RANK][in], as in
   FinGPT-HPC (arXiv 2402.13533). The units are programs, lists of nodes: that is all there is to write, and splits between devices, recomputation
   and exact sums work with them. The program compares the gradients of all narrow matrices with finite differences of the loss, trains on a text
   with whole matrices and with narrow ones, and the narrow ones again by two ranks, whose weights have the same bits.
     build/low_rank [TEXT] */
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#include "hetrain.h"
#include "hetrain_plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS = 3, WIDTH = 64, HEADS = 4, MLP = 176, RANK = 12, LENGTH = 64, SEQUENCES = 4, TOKENS = LENGTH * SEQUENCES,
       UNITS = 2 * LAYERS + 2, STEPS = 80 };
#define TRY(call) do { het_result try_result = (call); if (try_result != HET_OK) return try_result; } while (0)

typedef struct trained { int64_t parameters; double first, last; uint64_t hash; } trained;
typedef struct text { unsigned char byte[1 << 20]; int64_t count; int32_t token[TOKENS], target[TOKENS]; int64_t start[SEQUENCES + 1]; } text;

/* y = W x, or B (A x), whose elements vary like those of W at first. */
static int layer(het_program *p, int x, int64_t in, const char *name, int64_t out) {
    const int64_t rank = *(const int64_t *)p->unit->settings;
    char down[64], up[64];
    if (rank == 0) return het_node_linear(p, x, name, out, 0.02f);
    snprintf(down, sizeof down, "%s.down", name);
    snprintf(up, sizeof up, "%s.up", name);
    x = het_node_linear(p, x, down, rank, (float)sqrt(1.0 / (double)in));
    return het_node_linear(p, x, up, out, 0.02f * (float)sqrt((double)in / (double)rank));
}

static het_result attention_describe(const het_unit *unit, het_unit_info *info) {
    het_program *p = het_program_begin(unit, info);
    const int x = het_node_input(p, 0, WIDTH), h = het_node_norm(p, x, "attention.#.norm");
    const int q = het_node_rotary(p, layer(p, h, WIDTH, "attention.#.q", WIDTH));
    const int k = het_node_rotary(p, layer(p, h, WIDTH, "attention.#.k", WIDTH));
    const int o = het_node_attention(p, q, k, layer(p, h, WIDTH, "attention.#.v", WIDTH));
    het_node_output(p, het_node_residual(p, x, layer(p, o, WIDTH, "attention.#.o", WIDTH)));
    return het_program_end(p);
}

static het_result mlp_describe(const het_unit *unit, het_unit_info *info) {
    het_program *p = het_program_begin(unit, info);
    const int x = het_node_input(p, 0, WIDTH), h = het_node_norm(p, x, "mlp.#.norm");
    const int gate = layer(p, h, WIDTH, "mlp.#.gate", MLP), up = layer(p, h, WIDTH, "mlp.#.up", MLP);
    const int a = het_node_activation(p, HET_SWIGLU, gate, up);
    het_node_output(p, het_node_residual(p, x, layer(p, a, MLP, "mlp.#.down", WIDTH)));
    return het_program_end(p);
}

#define CALLS het_program_forward, het_program_backward_input, het_program_backward_weight
static const het_unit_iface kinds[2] = { { HETRAIN_UNIT_VERSION, "narrow attention", attention_describe, CALLS },
                                         { HETRAIN_UNIT_VERSION, "narrow mlp", mlp_describe, CALLS } };

/* Windows of the text, drawn by the step. */
static het_batch batch_of(text *t, int64_t step) {
    uint64_t dice = (uint64_t)step * 2654435761u + 1;
    const unsigned char *at = NULL;
    het_batch b;
    memset(&b, 0, sizeof b);
    for (int64_t i = 0; i <= TOKENS; i++) {
        if (i % LENGTH == 0) {
            t->start[i / LENGTH] = i, dice = dice * 6364136223846793005u + 1442695040888963407u;
            at = t->byte + (int64_t)(dice >> 33) % (t->count - LENGTH - 1);
        }
        if (i < TOKENS) t->token[i] = at[i % LENGTH], t->target[i] = at[i % LENGTH + 1];
    }
    b.tokens = TOKENS, b.sequences = SEQUENCES, b.token = t->token, b.target = t->target, b.sequence_start = t->start;
    return b;
}

/* |g|^2 of one matrix against the slope of the loss along g: (L(w + h g) - L(w - h g)) / 2h. Returns how far they are apart. */
static het_result slope_of(het_ctx *ctx, const het_batch *b, int64_t index, double *apart) {
    static float w[MLP * WIDTH], g[MLP * WIDTH], moved[MLP * WIDTH];
    double square = 0, slope = 0, h;
    het_parameter_info p;
    het_step_info info;
    TRY(het_parameter_get_info(ctx, index, &p));
    if (p.columns == 1 || (strncmp(p.name, "mlp.", 4) != 0 && strncmp(p.name, "attention.", 10) != 0)) return HET_OK;
    TRY(het_gradients(ctx, b, 1, NULL));
    TRY(het_parameter_read(ctx, index, HET_WEIGHT, w));
    TRY(het_parameter_read(ctx, index, HET_GRADIENT, g));
    for (int64_t i = 0; i < p.count; i++) square += (double)g[i] * (double)g[i];
    h = 0.005 / sqrt(square);
    for (int side = -1; side <= 1; side += 2) {
        for (int64_t i = 0; i < p.count; i++) moved[i] = (float)((double)w[i] + side * h * (double)g[i]);
        TRY(het_parameter_write(ctx, index, HET_WEIGHT, moved));
        TRY(het_evaluate(ctx, b, 1, &info));
        slope += side * info.loss / (2 * h);
    }
    *apart = fmax(*apart, fabs(slope / square - 1));
    return het_parameter_write(ctx, index, HET_WEIGHT, w);
}

/* Trains on `ranks` devices by a plan. narrow: RANK, or 0: whole matrices. apart: NULL, or of the gradients the largest difference. */
static het_result train(text *t, int64_t narrow, const char *layout, int64_t ranks, trained *to, double *apart) {
    static het_desc desc; /* as the next two: what is not set is 0 */
    static het_plan_desc of_plan;
    static het_device_desc device[2];
    het_batch b = batch_of(t, 0);
    het_unit units[UNITS];
    het_error error = { HET_OK, "" };
    het_step_info info;
    het_plan *plan = NULL;
    het_ctx *ctx = NULL;
    desc.model.family = HET_LLAMA, desc.model.layers = LAYERS, desc.model.width = WIDTH, desc.model.heads = HEADS, desc.model.context = LENGTH;
    het_result result = het_model_complete(&desc.model, &error);
    if (result == HET_OK) result = het_model_units(&desc.model, units, UNITS, &desc.unit_count, &error);
    for (int64_t i = 1; i < UNITS - 1; i++) units[i].iface = &kinds[(i + 1) % 2], units[i].settings = &narrow;
    of_plan.units = UNITS, of_plan.ranks = ranks, of_plan.heads = HEADS;
    if (result == HET_OK) result = het_plan_read(&of_plan, layout, strlen(layout), &plan, &error);
    desc.units = units, desc.limits.max_tokens = TOKENS, desc.optimizer.learning_rate = 3e-3f;
    desc.layout.devices = device, desc.layout.device_count = ranks, desc.layout.plan = plan;
    if (result == HET_OK) result = het_create(&desc, &ctx, &error);
    to->parameters = 0;
    for (int64_t i = 0; result == HET_OK && i < het_parameter_count(ctx); i++) {
        het_parameter_info p;
        if (het_parameter_get_info(ctx, i, &p) == HET_OK) to->parameters += p.count;
        if (apart != NULL) result = slope_of(ctx, &b, i, apart);
    }
    for (int64_t i = 0; result == HET_OK && i < STEPS; i++) {
        b = batch_of(t, i);
        result = het_step(ctx, &b, 1, &info);
        *(i == 0 ? &to->first : &to->last) = info.loss;
    }
    if (result == HET_OK) result = het_hash(ctx, &to->hash);
    if (result != HET_OK) fprintf(stderr, "%s: %s\n", het_result_text(result), ctx != NULL ? het_last_error(ctx) : error.text);
    het_destroy(ctx);
    het_plan_free(plan);
    return result;
}

int main(int argc, char **argv) {
    static text t;
    FILE *file = fopen(argc > 1 ? argv[1] : __FILE__, "rb");
    trained whole, narrow, pp, cp, tp;
    double apart = 0;
    if (file != NULL) t.count = (int64_t)fread(t.byte, 1, sizeof t.byte, file), fclose(file);
    if (t.count < 2 * LENGTH) return fprintf(stderr, "low_rank [FILE]: no text of at least %d bytes could be read\n", 2 * LENGTH), 2;
    const int good = !train(&t, 0, "dp", 1, &whole, NULL) && !train(&t, RANK, "dp", 1, &narrow, &apart) &&
        !train(&t, RANK, "pp", 2, &pp, NULL) && !train(&t, RANK, "cp2", 2, &cp, NULL) && !train(&t, RANK, "tp2", 2, &tp, NULL);
    const int equal = good && pp.hash == narrow.hash && cp.hash == narrow.hash && tp.hash == narrow.hash;
    if (!good) return 1;
    printf("whole matrices:    %lld parameters, loss %.4f -> %.4f\n", (long long)whole.parameters, whole.first, whole.last);
    printf("products of rank %d: %lld parameters, loss %.4f -> %.4f\n", RANK, (long long)narrow.parameters, narrow.first, narrow.last);
    printf("gradients of the narrow matrices are within %.2f %% of finite differences, and weights of two ranks, as a pipeline and as teams "
           "that divide sequences and matrices, are %s\n", 100 * apart, equal ? "bit-equal" : "NOT equal");
    return apart > 0 && apart < 0.01 && equal && narrow.last < narrow.first - 1 ? 0 : 1;
}
