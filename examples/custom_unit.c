/* A unit kind of one's own: an adapter y = x + B A x with a narrow middle, put behind every MLP of a small GPT. It is made of device
   ops only, so it runs wherever the model runs, and split backward, slices, recomputation and exact sums work with it. The program compares its
   gradients with finite differences of the loss, then trains the adapters alone, every other parameter frozen (a fine-tuning in small). */
#define HETRAIN_IMPLEMENTATION
#include "hetrain.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TRY(call) do { het_result try_result = (call); if (try_result != HET_OK) return try_result; } while (0)
enum { LAYERS = 2, WIDTH = 64, MIDDLE = 8, TOKENS = 96, UNITS = 3 * LAYERS + 2 };
enum { DOWN, UP };                    /* parameters: A [MIDDLE][WIDTH], B [WIDTH][MIDDLE] */
enum { A_X, D_Y, D_A };               /* tensors, rows of tokens */

/* One direction of one product; which of these pointers an op reads depends on its kind. c NULL: to ask for its workspace. */
static het_op product(const het_unit_info *info, const het_unit_call *c, het_op_kind kind, int which) {
    het_op op;
    het_linear_args *a = &op.u.linear;
    memset(&op, 0, sizeof op);
    op.kind = kind, a->compute = info->compute, a->rows = c != NULL ? c->rows : info->max_tokens, a->parts = 1;
    a->in = which == DOWN ? WIDTH : MIDDLE, a->part[0].out = which == DOWN ? MIDDLE : WIDTH;
    if (c == NULL) return op;
    a->view = c->view, a->workspace = c->workspace;
    a->x = which == DOWN ? c->in[0] : c->tensor[A_X];
    a->part[0].y = which == DOWN ? c->tensor[A_X] : c->out[0];
    a->part[0].dy = which == DOWN ? c->tensor[D_A] : c->tensor[D_Y];
    a->part[0].w = c->weight[which], a->part[0].dw = &c->gradient[which];
    a->dx = which == DOWN ? c->d_in[0] : c->tensor[D_A];
    return op;
}

static het_result adapter_describe(const het_unit *unit, het_unit_info *info) {
    static const het_tensor_desc tensors[3] = { /* ax is the input of B: kept until backward_weight */
        { "ax", MIDDLE, HET_KEEP_WEIGHT }, { "dy", WIDTH, HET_KEEP_GRADIENT }, { "da", MIDDLE, HET_KEEP_GRADIENT } };
    static const het_op_kind ops[3] = { HET_OP_LINEAR_FORWARD, HET_OP_LINEAR_BACKWARD_INPUT, HET_OP_LINEAR_BACKWARD_WEIGHT };
    int i;
    if (info->in_streams != 1 || info->in_width[0] != WIDTH) return HET_ERR_INVALID;
    info->out_streams = 1, info->out_width[0] = WIDTH, info->parameters = 2, info->tensors = 3;
    info->input_keep = HET_KEEP_WEIGHT; /* x is the input of A */
    memcpy(info->tensor, tensors, sizeof tensors);
    for (i = 0; i < 2; i++) {
        het_parameter_desc *p = &info->parameter[i];
        snprintf(p->name, sizeof p->name, "adapter.%d.%s.weight", (int)unit->layer, i == DOWN ? "down" : "up");
        p->rows = i == DOWN ? MIDDLE : WIDTH, p->columns = i == DOWN ? WIDTH : MIDDLE, p->init = HET_INIT_NORMAL, p->init_std = 0.05f, p->decay = 1;
    }
    info->flops_forward = info->flops_input = info->flops_weight = 4.0 * MIDDLE * WIDTH;
    for (i = 0; i < 6 && info->device != NULL; i++) { /* three ops of two shapes */
        const het_op op = product(info, NULL, ops[i / 2], i % 2);
        const size_t bytes = info->device->iface->workspace(info->device->self, &op);
        if (bytes > info->workspace) info->workspace = bytes;
    }
    return HET_OK;
}

static het_result run(const het_unit_call *c, het_op op) { return c->device->iface->run(c->device->self, c->queue, &op); }

/* to = from, or to += from, all rows of a stream. */
static het_result stream(const het_unit_call *c, het_op_kind kind, float *to, const float *from) {
    het_op op;
    op.kind = kind;
    if (kind == HET_OP_ADD) op.u.elements.y = to, op.u.elements.x = from, op.u.elements.count = c->rows * WIDTH;
    else op.u.copy.to = to, op.u.copy.from = from, op.u.copy.size = (size_t)(c->rows * WIDTH) * sizeof *to;
    return run(c, op);
}

/* y = x + B A x */
static het_result adapter_forward(const het_unit_call *c) {
    TRY(run(c, product(c->info, c, HET_OP_LINEAR_FORWARD, DOWN)));
    TRY(run(c, product(c->info, c, HET_OP_LINEAR_FORWARD, UP)));
    return stream(c, HET_OP_ADD, c->out[0], c->in[0]);
}

/* da = dy B; dx = dy + da A. dy is kept for backward_weight: the stream's own buffer does not live as long. */
static het_result adapter_backward_input(const het_unit_call *c) {
    TRY(stream(c, HET_OP_COPY, c->tensor[D_Y], c->d_out[0]));
    TRY(run(c, product(c->info, c, HET_OP_LINEAR_BACKWARD_INPUT, UP)));
    TRY(run(c, product(c->info, c, HET_OP_LINEAR_BACKWARD_INPUT, DOWN)));
    return stream(c, HET_OP_ADD, c->d_in[0], c->tensor[D_Y]);
}

/* dB += dy^T (A x), dA += da^T x, one term a granule. */
static het_result adapter_backward_weight(const het_unit_call *c) {
    TRY(run(c, product(c->info, c, HET_OP_LINEAR_BACKWARD_WEIGHT, UP)));
    return run(c, product(c->info, c, HET_OP_LINEAR_BACKWARD_WEIGHT, DOWN));
}

static const het_unit_iface adapter = { HETRAIN_UNIT_VERSION, "adapter", adapter_describe, adapter_forward,
                                        adapter_backward_input, adapter_backward_weight };

static int not_an_adapter(void *user, const char *name) { (void)user; return strncmp(name, "adapter.", 8) != 0; }

/* The gradient g of one parameter against the slope of the loss along it: (L(w + h g) - L(w - h g)) / 2h = |g|^2. */
static het_result check_gradient(het_ctx *ctx, const het_batch *batch, int64_t index, const char *name, int *good) {
    float weight[MIDDLE * WIDTH], gradient[MIDDLE * WIDTH], moved[MIDDLE * WIDTH];
    double square = 0, slope = 0;
    int i, side;
    TRY(het_gradients(ctx, batch, 1, NULL));
    TRY(het_parameter_read(ctx, index, HET_WEIGHT, weight));
    TRY(het_parameter_read(ctx, index, HET_GRADIENT, gradient));
    for (i = 0; i < MIDDLE * WIDTH; i++) square += (double)gradient[i] * (double)gradient[i];
    const double h = 0.02 / sqrt(square);
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
    static const char text[] = "A unit kind is a table of four functions: describe, forward, backward_input, backward_weight. No more is needed.";
    int32_t token[TOKENS], target[TOKENS];
    int64_t start[3] = { 0, TOKENS / 2, TOKENS }, count = 0, i;
    int good = 1, checked = 0;
    het_unit plain[2 * LAYERS + 2], units[UNITS];
    static het_batch batch; /* zero */
    static het_desc desc;
    het_error error = { HET_OK, "" };
    het_step_info info, first;
    het_ctx *ctx = NULL;
    for (i = 0; i < TOKENS; i++) token[i] = text[i], target[i] = text[i + 1];
    batch.tokens = TOKENS, batch.sequences = 2, batch.token = token, batch.target = target, batch.sequence_start = start;
    desc.model.layers = LAYERS, desc.model.width = WIDTH, desc.model.context = TOKENS / 2;
    desc.max_tokens = TOKENS, desc.frozen = not_an_adapter, desc.optimizer.learning_rate = 1e-2f;
    het_result result = het_model_complete(&desc.model, &error);
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
