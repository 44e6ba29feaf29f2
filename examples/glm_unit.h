/* The units of examples/glm.c: a score that is linear in random features of an input, and the loss of it, squared or logistic. The score is a
   program, so that data parallelism, pipelines and teams by columns know it; the loss is a unit kind whose calls are written out. */
#ifndef GLM_UNIT_H
#define GLM_UNIT_H
#include "hetrain.h"

#include <math.h>
#include <string.h>

enum { EXAMPLES = 256, INPUTS = 16, FEATURES = 32 };
typedef struct problem { int logistic; double lambda, y[EXAMPLES], feature[EXAMPLES][FEATURES]; } problem; /* y is 0 or 1 where logistic */

/* The loss of a score z = w . features, *slope = d loss / dz and *bend = d slope / dz. */
static double loss_of(const problem *p, double z, double y, double *slope, double *bend) {
    const double q = 1 / (1 + exp(-z));
    *slope = (p->logistic ? q : z) - y, *bend = p->logistic ? q * (1 - q) : 1;
    return p->logistic ? log1p(exp(-fabs(z))) + (z > 0 ? z : 0) - y * z : (z - y) * (z - y) / 2;
}

/* Features are GELU(A x) with a random A, which stays; the score is w . features. */
static het_result score_describe(const het_unit *unit, het_unit_info *info) {
    het_program *p = het_program_begin(unit, info);
    const int x = het_node_input(p, 0, INPUTS), h = het_node_linear(p, x, "features", FEATURES, 0.25f);
    het_node_output(p, het_node_linear(p, het_node_activation(p, HET_GELU_ERF, h, -1), "score", 1, 0.0f));
    return het_program_end(p);
}
static const het_unit_iface score = { HETRAIN_UNIT_VERSION, "score", score_describe, het_program_forward, het_program_backward_input,
                                      het_program_backward_weight };

static het_result loss_describe(const het_unit *unit, het_unit_info *info) {
    (void)unit;
    info->is_loss = info->teams = 1, info->input_keep = HET_KEEP_INPUT;
    return info->in_streams == 1 && info->in_width[0] == 1 ? HET_OK : HET_ERR_INVALID;
}
static het_result loss_forward(const het_unit_call *c) { (void)c; return HET_OK; } /* a loss unit works in backward_input */
static het_result loss_backward(const het_unit_call *c) {
    const problem *p = (const problem *)c->unit->settings;
    int64_t r;
    int i;
    for (r = 0; r < c->rows; r++) {
        double slope, bend, loss = loss_of(p, (double)c->in[0][r], p->y[c->view->token[c->view->row_begin + r]], &slope, &bend);
        if (c->training) c->d_in[0][r] = (float)slope * c->scalars->inverse_weight;
        for (i = 18; i >= 0; i--) { /* limb i counts 2^(32 i - 320); what is below 2^-320 is none of a double's that matters */
            const double one = ldexp(1, 32 * i - 320), whole = trunc(loss / one);
            c->loss->limb[i] += (int64_t)whole, loss -= whole * one;
        }
    }
    return HET_OK;
}
static const het_unit_iface loss_unit = { HETRAIN_UNIT_VERSION, "loss", loss_describe, loss_forward, loss_backward, loss_forward };

static int is_frozen(void *user, const char *name) { (void)user; return strcmp(name, "score.weight") != 0; }
#endif
