/* The planner on clusters that nobody has: a Llama 8B on mixed GPUs in nodes of eight. Times of units are made from their parameters: 2 operations
   each and token forward, 4 back, at 40 % of what the data sheets say for dense bf16 (H100 SXM 989, A100 312, L4 121, T4 65 (fp16) Tflop/s); memory
   is the cards' 80, 40, 24 and 16 GB. Nodes are joined by 200 Gbit/s, devices in them by 400 GB/s or, L4 and T4, 16 GB/s. */

enum { PLAN_TYPES = 4, PLAN_MOST_UNITS = 128, PLAN_MOST_DEVICES = 1024 };

typedef struct plan_bench {
    het_profile *described, profile;
    het_device_profile device[PLAN_TYPES];
    het_unit_time time[PLAN_TYPES][PLAN_MOST_UNITS];
    het_cluster cluster;
    het_cluster_device place[PLAN_MOST_DEVICES];
    het_group group[1 + PLAN_MOST_DEVICES / 8];
} plan_bench;

/* Processor time, so that other programs do not count. */
static double plan_clock(void *user) {
    (void)user;
    return (double)clock() / CLOCKS_PER_SEC;
}

static void plan_bench_times(plan_bench *b) {
    static const double flops[PLAN_TYPES] = { 0.4 * 989e12, 0.4 * 312e12, 0.4 * 121e12, 0.4 * 65e12 };
    static const double bytes_a_second[PLAN_TYPES] = { 3.35e12, 1.55e12, 0.3e12, 0.32e12 }; /* memory: weights, gradients, two moments */
    static const char *const names[PLAN_TYPES] = { "h100", "a100", "l4", "t4" };
    const het_profile *p = b->described;
    int64_t u, k;
    int d;
    b->profile = *p;
    b->profile.devices = PLAN_TYPES;
    b->profile.device = b->device;
    for (d = 0; d < PLAN_TYPES; d++) {
        double elements[PLAN_MOST_UNITS];
        memset(elements, 0, sizeof elements);
        snprintf(b->device[d].name, sizeof b->device[d].name, "%s", names[d]);
        b->device[d].alone = b->device[d].together = b->time[d];
        b->device[d].step_element = 28 / bytes_a_second[d];
        for (k = 0; k < p->blocks; k++)
            for (u = 0; u < p->block[k].uses; u++) elements[p->use[p->block[k].first_use + u]] += (double)p->block[k].elements;
        for (u = 0; u < p->units; u++) {
            het_unit_time *t = &b->time[d][p->unit[u]];
            const double operations = u == 0 ? 0 : 2 * elements[u]; /* the embedding only looks up */
            t->forward.token = operations / flops[d];
            t->input.token = t->weight.token = t->forward.token;
            t->backward.token = 2 * t->forward.token;
            t->recompute.token = t->forward.token;
            t->forward.base = t->backward.base = t->input.base = t->weight.base = 2e-5;
        }
    }
}

/* Nodes of one type each, in an order drawn from a seed. */
static void plan_bench_cluster(plan_bench *b, int64_t devices) {
    static const double memory[PLAN_TYPES] = { 80e9, 40e9, 24e9, 16e9 }, inside[PLAN_TYPES] = { 400e9, 400e9, 16e9, 16e9 };
    uint64_t random = 12345;
    int64_t r, g;
    b->cluster.ranks = devices;
    b->cluster.device = b->place;
    b->cluster.group = b->group;
    b->cluster.groups = 1 + devices / 8;
    b->group[0].parent = -1;
    b->group[0].latency = 1e-5;
    b->group[0].bandwidth = 25e9;
    for (g = 1; g < b->cluster.groups; g++) {
        char name[sizeof b->device[0].name];
        int64_t type;
        random = random * 6364136223846793005u + 1442695040888963407u;
        type = (int64_t)(random >> 62);
        b->group[g].parent = 0;
        b->group[g].latency = 3e-6;
        b->group[g].bandwidth = inside[type];
        memcpy(name, b->device[type].name, sizeof name);
        for (r = 8 * (g - 1); r < 8 * g; r++) {
            snprintf(b->place[r].name, sizeof b->place[r].name, "%.20s-%lld", name, (long long)r);
            memcpy(b->place[r].profile, name, sizeof name);
            b->place[r].speed = 1;
            b->place[r].memory = memory[type];
            b->place[r].group = g;
        }
    }
}

/* One search of train's and plan's default time, and one ten times as long, from another seed, as what it is compared with. */
static int bench_plan_of(plan_bench *b, int64_t devices) {
    het_search_desc desc;
    het_error error = { HET_OK, "" };
    double best[2] = { 0, 0 }, at;
    int round, status = 0;
    plan_bench_cluster(b, devices);
    for (round = 0; round < 2 && status == 0; round++) {
        het_search *search = NULL;
        het_result result;
        memset(&desc, 0, sizeof desc);
        desc.profile = &b->profile;
        desc.cluster = &b->cluster;
        desc.granules = 8 * devices;
        desc.granule_tokens = 2048;
        desc.most_granules = 16;
        desc.seconds = round == 0 ? 5 : 50;
        desc.evaluations = 1000000000;
        desc.clock = plan_clock;
        desc.seed = (uint64_t)round;
        at = plan_clock(NULL);
        result = het_plan_search(&desc, &search, &error);
        at = plan_clock(NULL) - at;
        if (result != HET_OK) { status = fail(FAILED, "--what plan: %s", error.text); break; }
        best[round] = search->found[0].seconds;
        printf("{\"name\":\"plan\",\"devices\":%lld,\"budget_s\":%.1f,\"search_s\":%.2f,\"evaluations\":%lld,\"skipped\":%lld,\"step_s\":%.4f,"
               "\"bound_s\":%.4f,\"distance\":%.4f,\"pipelines\":%lld,\"stages\":%lld,\"schedule\":\"%s\",\"granules\":%lld", (long long)devices,
               desc.seconds, at, (long long)search->evaluations, (long long)search->skipped, best[round], search->bound, search->distance,
               (long long)search->found[0].plan->pipelines, (long long)search->found[0].plan->stages, search->found[0].plan->schedule,
               (long long)search->found[0].granules);
        if (round == 1) printf(",\"short_over_long\":%.4f", best[0] / best[1]);
        printf("}\n");
        fflush(stdout);
        het_search_free(search);
    }
    return status;
}

static int bench_plan(void) {
    static const int64_t sizes[] = { 8, 64, 1024 };
    plan_bench *b = (plan_bench *)calloc(1, sizeof *b);
    het_desc desc;
    het_error error = { HET_OK, "" };
    int i, status = 0;
    if (b == NULL) return fail(FAILED, "out of memory");
    memset(&desc, 0, sizeof desc);
    desc.limits.max_tokens = 2048;
    if (het_model_parse("llama3:8b", &desc.model, &error) != HET_OK ||
        het_profile_describe(&desc, "llama3:8b", NULL, &b->described, &error) != HET_OK)
        status = fail(FAILED, "--what plan: %s", error.text);
    else plan_bench_times(b);
    for (i = 0; i < 3 && status == 0; i++) status = bench_plan_of(b, sizes[i]);
    het_profile_free(b->described);
    free(b);
    return status;
}
