/* A unit kind of one's own: an adapter y = x + B A x with a narrow middle, put behind every MLP of a small GPT. It is a program, a list of
   nodes; its parameters, tensors, gradients and costs follow from the list, and split backward, slices, recomputation and exact sums work with
   it on any device. The program compares its gradients with finite differences of the loss, then trains the adapters alone, every other
   parameter frozen (a fine-tuning in small). */
#define HETRAIN_IMPLEMENTATION
#include "hetrain.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TRY(call) do { het_result try_result = (call); if (try_result != HET_OK) return try_result; } while (0)
enum { LAYERS = 2, WIDTH = 64, MIDDLE = 8, TOKENS = 96, UNITS = 3 * LAYERS + 2 };

static het_result adapter_describe(const het_unit *unit, het_unit_info *info) {
    het_program *p = het_program_begin(unit, info);
    const int x = het_node_input(p, 0, WIDTH);                                          /* [n][WIDTH] */
    const int narrow = het_node_linear(p, x, "adapter.#.down", MIDDLE, 0.05f);          /* A x, [n][MIDDLE] */
    het_node_output(p, het_node_residual(p, x, het_node_linear(p, narrow, "adapter.#.up", WIDTH, 0.05f)));
    return het_program_end(p);
}

static const het_unit_iface adapter = { HETRAIN_UNIT_VERSION, "adapter", adapter_describe, het_program_forward,
                                        het_program_backward_input, het_program_backward_weight };

static int not_an_adapter(void *user, const char *name) { (void)user; return strncmp(name, "adapter.", 8) != 0; }

/* The gradient g of one parameter against the slope of the loss along it: (L(w + h g) - L(w - h g)) / 2h = |g|^2. */
static het_result check_gradient(het_ctx *ctx, const het_batch *batch, int64_t index, const char *name, int *good) {
    float weight[MIDDLE * WIDTH], gradient[MIDDLE * WIDTH], moved[MIDDLE * WIDTH];
    double square = 0, h, slope = 0;
    int i, side;
    TRY(het_gradients(ctx, batch, 1, NULL));
    TRY(het_parameter_read(ctx, index, HET_WEIGHT, weight));
    TRY(het_parameter_read(ctx, index, HET_GRADIENT, gradient));
    for (i = 0; i < MIDDLE * WIDTH; i++) square += (double)gradient[i] * (double)gradient[i];
    h = 0.02 / sqrt(square);
    for (side = -1; side <= 1; side += 2) {
        het_step_info info;
        for (i = 0; i < MIDDLE * WIDTH; i++) moved[i] = (float)((double)weight[i] + side * h * (double)gradient[i]);
        TRY(het_parameter_write(ctx, index, HET_WEIGHT, moved));
        TRY(het_evaluate(ctx, batch, 1, &info));
        slope += side * info.loss / (2 * h);
    }
    printf("%-24s |gradient|^2 %.6f  finite difference %.6f\n", name, square, slope);
    *good = *good && fabs(slope - square) <= 0.01 * square;
    return het_parameter_write(ctx, index, HET_WEIGHT, weight);
}

int main(void) {
    static const char text[] =
        "A unit is a program, a list of nodes: from it follow its parameters, its gradients and what is kept for them.";
    int32_t token[TOKENS], target[TOKENS];
    int64_t start[3] = { 0, TOKENS / 2, TOKENS }, count = 0, i;
    int good = 1, checked = 0;
    het_unit plain[2 * LAYERS + 2], units[UNITS];
    static het_batch batch; /* zero */
    static het_desc desc;
    het_error error = { HET_OK, "" };
    het_step_info info, first;
    het_ctx *ctx = NULL;
    het_result result;
    for (i = 0; i < TOKENS; i++) token[i] = text[i], target[i] = text[i + 1];
    batch.tokens = TOKENS, batch.sequences = 2, batch.token = token, batch.target = target, batch.sequence_start = start;
    desc.model.layers = LAYERS, desc.model.width = WIDTH, desc.model.context = TOKENS / 2;
    desc.limits.max_tokens = TOKENS, desc.frozen = not_an_adapter, desc.optimizer.learning_rate = 1e-2f;
    result = het_model_complete(&desc.model, &error);
    if (result == HET_OK) result = het_model_units(&desc.model, plain, 2 * LAYERS + 2, &count, &error);
    for (i = 0; i < count; i++) { /* embed, (attention, mlp, adapter) x LAYERS, head */
        units[desc.unit_count++] = plain[i];
        if (i == 0 || i % 2 == 1) continue;
        units[desc.unit_count] = plain[i], units[desc.unit_count++].iface = &adapter;
    }
    desc.units = units;
    if (result == HET_OK) result = het_create(&desc, &ctx, &error);
    for (i = 0; result == HET_OK && i < het_parameter_count(ctx); i++) {
        het_parameter_info p;
        if (het_parameter_get_info(ctx, i, &p) == HET_OK && !p.frozen) result = check_gradient(ctx, &batch, i, p.name, &good), checked++;
    }
    if (result == HET_OK) result = het_step(ctx, &batch, 1, &first);
    for (i = 1; result == HET_OK && i < 60; i++) result = het_step(ctx, &batch, 1, &info);
    if (result == HET_OK) printf("training %d adapter matrices alone: loss %.4f -> %.4f\n", checked, first.loss, info.loss);
    else fprintf(stderr, "%s: %s\n", het_result_text(result), ctx != NULL ? het_last_error(ctx) : error.text);
    het_destroy(ctx);
    return result == HET_OK && good && checked == 2 * LAYERS && info.loss < first.loss - 0.3 ? 0 : 1;
}
