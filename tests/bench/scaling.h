/* Weak scaling as published for Megatron-LM (Narayanan et al., SC 2021, arXiv 2104.04473, Table 1: GPT of 1.7 to 1,008 billion parameters on 32 to
   3,072 A100s, what a device reached in Tflop/s), against het_plan_predict for the same layouts. Times of units follow from counts: operations of
   the dense products at one part of what the data sheet says, SCALING_DENSE, bytes of everything else at the bandwidth of memory. The part is set
   so that the first row, which has neither teams nor pipelines, comes out; all else is a prediction. Forward, of a token, of h columns, a heads,
   in teams of t that repeat (2021) what is not in a product, 2 bytes a number:
       attention   8 h h operations; norm 4 h, bias, dropout and sum 7 h, each t times; scores and their use in sequences of s: 2 written, 4 softmax,
                   5 dropout with its mask, 2 read: 13 a s bytes
       MLP         16 h h operations; 11 h likewise, 16 h GELU
       head        2 V h operations, 12 V bytes of logits and loss
   Backward is twice that, and everything is recomputed. Nodes of 8: 235 GB/s inside, as all-reduces measure of NVLink's 300; 25 GB/s for each device
   between nodes. Gradients are reduced and handed round in 2 bytes each, behind the backward pass, as in 2021. */
#ifndef BENCH_SCALING_H
#define BENCH_SCALING_H

enum { SCALING_LENGTH = 2048, SCALING_VOCAB = 51200, SCALING_ROWS = 10, SCALING_TO_1024 = 6, SCALING_KINDS = 16 };
#define SCALING_DENSE 0.645

static const struct {
    double billions;
    int64_t heads, width, layers, team, stages, devices, sequences;
    double published;
} scaling_row[SCALING_ROWS] = {
    { 1.7, 24, 2304, 24, 1, 1, 32, 512, 137 },          { 3.6, 32, 3072, 30, 2, 1, 64, 512, 138 },
    { 7.5, 32, 4096, 36, 4, 1, 128, 512, 142 },         { 18.4, 48, 6144, 40, 8, 1, 256, 1024, 135 },
    { 39.1, 64, 8192, 48, 8, 2, 512, 1536, 138 },       { 76.1, 80, 10240, 60, 8, 4, 1024, 1792, 140 },
    { 145.6, 96, 12288, 80, 8, 8, 1536, 2304, 148 },    { 310.1, 128, 16384, 96, 8, 16, 1920, 2160, 155 },
    { 529.6, 128, 20480, 105, 8, 35, 2520, 2520, 163 }, { 1008.0, 160, 25600, 128, 8, 64, 3072, 3072, 163 } };

typedef struct scaling {
    double between;                   /* bytes a second from node to node, a device: 25e9 */
    int own;                          /* 1: teams by columns and sums as hetrain has them, f32 chains and exact sums, not Megatron's all-reduces */
    double seconds, tflops, idle;     /* (=) of a step; of a device; what of the step a device waits, on the average */
    het_error error;
} scaling;

/* What the profile says of units of row r on an A100. */
static void scaling_times(het_profile *p, int r, int own, het_device_profile *device, het_unit_time time[SCALING_KINDS])
{
    const double h = (double)scaling_row[r].width, a = (double)scaling_row[r].heads, t = (double)scaling_row[r].team;
    const double dense = SCALING_DENSE * 312e12, memory = 2.039e12;
    int64_t k;
    int way;
    memset(device, 0, sizeof *device);
    memset(time, 0, SCALING_KINDS * sizeof *time);
    snprintf(device->name, sizeof device->name, "a100");
    device->alone = device->together = time;
    device->step_element = 28 / memory; /* weights, gradients and two moments, read and, but for gradients, written */
    p->devices = 1;
    p->device = device;
    for (k = 0; k < p->kinds; k++) {
        het_unit_kind *u = &p->kind[k];
        double forward = 0; /* the embedding only looks up */
        if (u->attentions > 0) forward = 8 * h * h / dense + (11 * h * t + 13 * a * SCALING_LENGTH) / memory;
        else if (u->loss) forward = 2 * SCALING_VOCAB * h / dense + 12.0 * SCALING_VOCAB / memory;
        else if (u->moves.gathers[0] > 0) forward = 16 * h * h / dense + (11 * h * t + 16 * h) / memory;
        time[k].forward.token = time[k].recompute.token = time[k].input.token = time[k].weight.token = forward;
        time[k].backward.token = 2 * forward;
        if (own) continue;
        u->input /= 2, u->output /= 2; /* streams */
        if (!(u->moves.gathers[0] > 0)) continue;
        memset(&u->moves, 0, sizeof u->moves);
        u->moves.divided = u->attentions;
        for (way = 0; way < 2; way++) u->moves.gathers[way] = 2, u->moves.gather_bytes[way] = 4 * h; /* an all-reduce: sums to all, sums from all */
    }
    if (own) return;
    p->reduce_bytes = 0, p->gather_bytes = 4; /* all behind the backward pass, inside which reductions would begin */
    for (k = 0; k < p->blocks; k++) p->block[k].by_share = (double)p->block[k].elements - p->block[k].by_heads;
}

static het_result scaling_plan(const het_profile *p, int r, het_plan **plan, het_error *error)
{
    het_plan_desc desc;
    char text[64];
    int length = snprintf(text, sizeof text, "dp%lldxpp%lld", (long long)(scaling_row[r].devices / scaling_row[r].team / scaling_row[r].stages),
                          (long long)scaling_row[r].stages);
    het_result result;
    int64_t g;
    if (scaling_row[r].team > 1) length += snprintf(text + length, sizeof text - (size_t)length, "xtp%lld", (long long)scaling_row[r].team);
    memset(&desc, 0, sizeof desc);
    desc.units = p->units;
    desc.ranks = scaling_row[r].devices;
    desc.heads = scaling_row[r].heads;
    result = het_plan_read(&desc, text, (size_t)length, plan, error);
    for (g = 0; result == HET_OK && g < (*plan)->stages; g++) (*plan)->stage[g].recompute = 1;
    return result;
}

/* Row r. */
static het_result scaling_predict(scaling *s, int r)
{
    const double h = (double)scaling_row[r].width, layers = (double)scaling_row[r].layers, devices = (double)scaling_row[r].devices;
    const int64_t nodes = scaling_row[r].devices / 8;
    het_profile *described = NULL, profile;
    het_device_profile device;
    het_unit_time time[SCALING_KINDS];
    het_cluster cluster;
    het_search_desc desc;
    het_desc model;
    het_plan *plan = NULL;
    het_simulation *made = NULL;
    het_result result;
    int64_t i;
    memset(&model, 0, sizeof model);
    model.limits.max_tokens = SCALING_LENGTH;
    model.dtype = HET_BF16;
    model.model.family = HET_GPT2;
    model.model.layers = scaling_row[r].layers;
    model.model.width = scaling_row[r].width;
    model.model.heads = scaling_row[r].heads;
    model.model.context = SCALING_LENGTH;
    model.model.vocab = SCALING_VOCAB;
    result = het_profile_describe(&model, "gpt", NULL, &described, &s->error);
    if (result != HET_OK) return result;
    memset(&cluster, 0, sizeof cluster);
    cluster.ranks = scaling_row[r].devices;
    cluster.groups = 1 + nodes;
    cluster.rings = 1;
    cluster.device = (het_cluster_device *)calloc((size_t)cluster.ranks, sizeof *cluster.device);
    cluster.group = (het_group *)calloc((size_t)cluster.groups, sizeof *cluster.group);
    if (described->kinds > SCALING_KINDS || cluster.device == NULL || cluster.group == NULL) result = HET_ERR_OOM;
    for (i = 0; i <= nodes && result == HET_OK; i++) {
        cluster.group[i].parent = i > 0 ? 0 : -1;
        cluster.group[i].latency = i > 0 ? 3e-6 : 1e-5;
        cluster.group[i].bandwidth = i > 0 ? 235e9 : s->between;
    }
    for (i = 0; i < cluster.ranks && result == HET_OK; i++) {
        snprintf(cluster.device[i].profile, sizeof cluster.device[i].profile, "a100");
        cluster.device[i].speed = 1;
        cluster.device[i].group = 1 + i / 8;
    }
    profile = *described;
    if (result == HET_OK) scaling_times(&profile, r, s->own, &device, time);
    memset(&desc, 0, sizeof desc);
    desc.profile = &profile;
    desc.cluster = &cluster;
    desc.granules = scaling_row[r].sequences;
    desc.granule_tokens = SCALING_LENGTH;
    if (result == HET_OK) result = scaling_plan(&profile, r, &plan, &s->error);
    if (result == HET_OK) result = het_plan_predict(&desc, plan, 1, HET_NO, &made, &s->error);
    if (result == HET_OK) {
        s->seconds = made->makespan;
        s->idle = made->bubble;
        s->tflops = 96e-12 * (double)desc.granules * SCALING_LENGTH * layers * h * h * (1 + SCALING_LENGTH / (6 * h) +
            SCALING_VOCAB / (16 * layers * h)) / made->makespan / devices; /* as the paper counts them, recomputation included */
    }
    het_simulation_free(made);
    het_plan_free(plan);
    free(cluster.device);
    free(cluster.group);
    het_profile_free(described);
    return result;
}

#endif
