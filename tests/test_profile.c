/* Profiles: bytes against het_memory_estimate, times against units whose cost is known, files against what they were written from. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#endif
#include "support.h"

#include <time.h>

#include "hetrain_search.h"

#define HETRAIN_EXPERTS_IMPLEMENTATION
#define HETRAIN_STATIC
#include "hetrain_experts.h"

/* ---- bytes ---- */

enum { MOST_RANKS = 40 };
typedef struct shape {
    const char *model, *plan, *schedule;
    int64_t ranks, slices, micro_batches, tokens, sequences, heads;
    het_recompute recompute;
    het_reduce reduce;
    het_dtype dtype, weights, streams;
    double state[MOST_RANKS];
    int mixed; /* I and W come apart in some of a rank's stages: an upper bound */
    het_shard shard;
    int64_t keepers, near[MOST_RANKS]; /* the last ranks */
    int muon;
    double cuts; /* bytes by which the places of two cuts may be off */
    int64_t updates, staleness;
    float feedback;
    het_experts experts; /* experts 0: none */
} shape;

static int64_t close_to(const char *what, const shape *s, int64_t rank, size_t got, size_t expected, int exact)
{
    const double difference = (double)got - (double)expected, relative = difference / (double)(expected > 0 ? expected : 1);
    if (exact ? got == expected : relative >= -0.01 && relative <= (s->mixed ? 0.2 : 0.01)) return 0;
    if (fabs(difference) <= s->cuts) return 0;
    fprintf(stderr, "%s, %s, %s, %lld slices, recompute %d: rank %lld: %s: %lld, het_memory_estimate says %lld\n", s->model, s->plan, s->schedule,
        (long long)s->slices, (int)s->recompute, (long long)rank, what, (long long)got, (long long)expected);
    return 1;
}

/* The lists of all ranks as het_create makes them. */
static het_schedule *complete_lists(const het_profile *profile, const het_plan *plan, int64_t micro_batches)
{
    het_error error = { HET_OK, "" };
    het_schedule *compute = NULL, *whole = NULL;
    int64_t counts[MOST_RANKS], *start = (int64_t *)support_alloc((size_t)profile->blocks + 1, sizeof(int64_t)), b;
    het_blocks blocks;
    het_plan_micro_batches(plan, micro_batches, counts);
    EXPECT_OK(het_schedule_make(plan, counts, NULL, &compute, &error));
    for (b = 0; b < profile->blocks; b++) start[b] = profile->block[b].first_use;
    start[b] = profile->uses;
    blocks.count = profile->blocks;
    blocks.start = start;
    blocks.unit = profile->use;
    EXPECT_OK(het_schedule_complete(plan, &blocks, compute, NULL, &whole, &error));
    EXPECT_OK(het_schedule_check(plan, &blocks, whole, NULL, &error));
    het_schedule_free(compute);
    free(start);
    return whole;
}

/* The same with keepers behind its ranks, near sets and what is divided. */
static het_plan *divided_plan(const shape *s, het_plan *from)
{
    het_error error = { HET_OK, "" };
    het_plan like = *from, *plan = NULL;
    int64_t r;
    like.ranks = s->ranks;
    EXPECT_OK(het_plan_new(&like, NULL, "test", &plan, &error));
    memcpy(plan->stage, from->stage, (size_t)from->stages * sizeof *from->stage);
    memcpy(plan->first_stage, from->first_stage, (size_t)(from->pipelines + 1) * sizeof *from->first_stage);
    memcpy(plan->share, from->share, (size_t)from->pipelines * sizeof *from->share);
    memcpy(plan->slice_share, from->slice_share, (size_t)from->slices * sizeof *from->slice_share);
    memcpy(plan->member, from->member, (size_t)from->members * sizeof *from->member);
    for (r = 0; r < s->ranks; r++) {
        plan->state_share[r] = s->state[r];
        plan->near[r] = s->near[r];
        plan->keeper[r] = r >= s->ranks - s->keepers;
    }
    plan->shard = s->shard;
    het_plan_free(from);
    return plan;
}

static het_plan *read_plan(const shape *s, int64_t units)
{
    het_error error = { HET_OK, "" };
    het_plan_desc desc;
    het_plan *plan = NULL;
    int64_t r;
    memset(&desc, 0, sizeof desc);
    desc.units = units;
    desc.ranks = s->ranks - s->keepers;
    desc.schedule = s->schedule;
    desc.slices = s->slices;
    desc.recompute = s->recompute;
    desc.heads = s->heads;
    EXPECT_OK(het_plan_read(&desc, s->plan, strlen(s->plan), &plan, &error));
    for (r = 0; r < s->ranks && s->state[0] > 0 && s->keepers == 0; r++) plan->state_share[r] = s->state[r];
    plan->updates = s->updates;
    if (s->slices > 1 && s->recompute == HET_RECOMPUTE_STAGE) plan->slice_tokens = 300;
    for (r = 0; r < plan->stages && s->slices > 1; r++) plan->stage[r].keep = (uint64_t)((r * 5 + 1) % (1 << s->slices));
    for (r = 0; r < plan->stages; r++) /* all of its units, or the first ones */
        if (plan->stage[r].recompute == HET_RECOMPUTE_UNIT)
            plan->stage[r].recompute_units = (int32_t)((r + s->micro_batches) % (plan->stage[r].unit_end - plan->stage[r].unit_begin + 1));
    plan->staleness = s->staleness;
    return s->shard > HET_SHARD_STATE || s->keepers > 0 ? divided_plan(s, plan) : plan;
}

static int64_t check_shape(const shape *s)
{
    het_device_desc device[MOST_RANKS];
    het_desc desc;
    het_error error = { HET_OK, "" };
    het_profile *profile = NULL;
    het_plan *plan;
    het_schedule *schedule;
    het_needs needs[MOST_RANKS];
    het_shape most;
    het_memory got[MOST_RANKS], expected;
    shape pieces = *s;
    het_unit units[8];
    int64_t r, wrong = 0;
    memset(&desc, 0, sizeof desc);
    memset(device, 0, sizeof device);
    memset(&most, 0, sizeof most);
    EXPECT_OK(het_model_parse(s->model, &desc.model, &error));
    desc.layout.devices = device;
    desc.layout.device_count = s->ranks;
    desc.limits.max_tokens = most.tokens = s->tokens;
    desc.limits.max_sequences = most.sequences = s->sequences;
    desc.limits.max_micro_batches = s->micro_batches;
    desc.dtype = s->dtype;
    desc.reduce = s->reduce;
    desc.weights = s->weights;
    desc.streams = s->streams;
    for (r = 0; r < s->ranks && s->streams == HET_BF16; r++) device[r].iface = support_narrow_device();
    if (s->updates > 1) desc.optimizer.clip = -1.0f;
    desc.optimizer.feedback = desc.optimizer.feedback_change = s->feedback;
    if (s->muon) desc.optimizer.iface = het_muon();
    if (s->experts.experts > 0) EXPECT_OK(het_experts_units(&desc, &s->experts, units, 8, &error));
    EXPECT_OK(het_profile_describe(&desc, s->model, NULL, &profile, &error));
    plan = read_plan(s, profile->units);
    EXPECT_OK(het_profile_cuts(profile, plan, &error));
    desc.layout.plan = plan;
    schedule = complete_lists(profile, plan, s->micro_batches);
    EXPECT_OK(het_schedule_needs(plan, schedule, 0, plan->ranks, 0, NULL, needs, &error));
    EXPECT_OK(het_profile_memory(profile, plan, needs, &most, got, &error));
    for (r = 0; r < s->ranks; r++) {
        EXPECT_ERROR(het_memory_estimate(&desc, r, &expected, &error), HET_OK, error.text, "");
        wrong += close_to("workspace", s, r, got[r].workspace, expected.workspace, 0);
        if (s->muon) continue; /* whose state is cut between matrices, not at any element */
        wrong += close_to("weights", s, r, got[r].weights, expected.weights, s->cuts < 1);
        wrong += close_to("gradients", s, r, got[r].gradients, expected.gradients, 0);
        wrong += close_to("optimizer", s, r, got[r].optimizer, expected.optimizer, s->ranks == 1);
        wrong += close_to("activations", s, r, got[r].activations, expected.activations, 0);
        pieces.cuts = s->cuts > 0 ? 2 * 8 * 4096 * (double)(s->ranks - 1) : 0; /* of two cuts, of what every other rank sends and gets */
        wrong += close_to("communication", &pieces, r, got[r].communication, expected.communication, 0);
        wrong += close_to("device", s, r, got[r].device, expected.device, 0);
        wrong += close_to("saving", s, r, got[r].saving, expected.saving, 1);
    }
    het_schedule_free(schedule);
    het_plan_free(plan);
    het_profile_free(profile);
    return wrong;
}

static void bytes_agree(void **state)
{
    static const char *const models[] = { "gpt2:layers=3,width=192,vocab=3000,context=256", "llama:layers=3,width=192,vocab=3000,context=256",
        "qwen3:layers=3,width=128,heads=4,kv_heads=2,vocab=2000,context=256", "neox:layers=3,width=128,vocab=2000,context=256",
        "llama:layers=3,width=128,vocab=3000,context=256,tied=yes", "gpt2:layers=3,width=128,vocab=3000,context=256,tied=no" };
    static const struct { const char *plan, *schedule; int64_t ranks, slices; } plans[] = { { "dp", "1f1b", 1, 1 }, { "dp", "gpipe", 2, 1 },
        { "pp", "1f1b", 4, 1 }, { "pp", "gpipe", 2, 1 }, { "pp", "zb-h1", 3, 1 }, { "pp", "zb-v", 2, 1 }, { "pp", "interleaved", 2, 1 },
        { "dp2xpp2", "1f1b", 4, 1 }, { "pp", "bidirectional", 2, 1 }, { "pp", "1f1b", 2, 4 }, { "dp2xpp2", "gpipe", 4, 2 },
        { "pp", "sliced-1f1b", 3, 2 }, { "pp", "v-min", 2, 1 }, { "pp", "zb-v", 1, 1 }, { "pp", "dualpipev", 4, 1 }, { "pp", "dualpipev", 2, 1 } };
    size_t m, p;
    int64_t wrong = 0, checked = 0;
    int again;
    (void)state;
    for (m = 0; m < sizeof models / sizeof *models; m++)
        for (p = 0; p < sizeof plans / sizeof *plans; p++)
            for (again = 0; again < 3; again++) {
                shape s;
                memset(&s, 0, sizeof s);
                s.model = models[m];
                s.plan = plans[p].plan;
                s.schedule = plans[p].schedule;
                s.ranks = plans[p].ranks;
                s.slices = plans[p].slices;
                s.micro_batches = 6;
                s.tokens = plans[p].slices > 1 ? 1024 : (m + p) % 3 == 0 ? 1000 : 512;
                s.sequences = 8;
                s.recompute = (het_recompute)again;
                s.reduce = p % 4 == 3 ? HET_REDUCE_FAST : HET_REDUCE_EXACT;
                if (p % 2 == 1) s.state[0] = 3, s.state[1] = 1, s.state[2] = 2, s.state[3] = 1;
                wrong += check_shape(&s);
                checked++;
            }
    assert_int_equal(checked, 288);
    assert_int_equal(wrong, 0);
}

/* What goes from unit to unit takes half, in slots and messages; no team can share units. */
static void bytes_of_bf16_streams_agree(void **state)
{
    static const char *const models[] = { "gpt2:layers=3,width=192,vocab=3000,context=256", "neox:layers=3,width=128,vocab=2000,context=256" };
    static const struct { const char *plan, *schedule; int64_t ranks; } plans[] = { { "dp", "gpipe", 2 }, { "pp", "1f1b", 4 }, { "pp", "zb-h1", 3 } };
    int64_t wrong = 0;
    int i;
    (void)state;
    for (i = 0; i < 18; i++) {
        het_profile *profile[2];
        het_device_desc device;
        het_error error;
        het_desc desc;
        shape s;
        int64_t half, k;
        memset(&s, 0, sizeof s);
        memset(&desc, 0, sizeof desc);
        memset(&device, 0, sizeof device);
        s.model = models[i % 2];
        s.plan = plans[i / 2 % 3].plan;
        s.schedule = plans[i / 2 % 3].schedule;
        s.ranks = plans[i / 2 % 3].ranks;
        s.slices = 1;
        s.micro_batches = 6;
        s.tokens = 512;
        s.sequences = 8;
        s.recompute = (het_recompute)(i / 6);
        s.dtype = s.streams = HET_BF16;
        wrong += check_shape(&s);
        EXPECT_OK(het_model_parse(s.model, &desc.model, &error));
        device.iface = support_narrow_device();
        desc.layout.devices = &device;
        desc.dtype = HET_BF16;
        for (half = 0; half < 2; half++) {
            desc.streams = half ? HET_BF16 : HET_F32;
            EXPECT_ERROR(het_profile_describe(&desc, s.model, NULL, &profile[half], &error), HET_OK, error.text, "");
        }
        for (k = 0; k < profile[0]->kinds; k++) {
            const het_unit_kind *floats = &profile[0]->kind[k], *halves = &profile[1]->kind[k];
            wrong += fabs(floats->output - 2 * halves->output) + fabs(floats->input - 2 * halves->input) > 0 || halves->alone < 1;
        }
        for (half = 0; half < 2; half++) het_profile_free(profile[half]);
    }
    assert_int_equal(wrong, 0);
}

/* Every member of a team, by its own rows, its group's and those before them. */
static void bytes_of_teams_agree(void **state)
{
    static const char *const models[] = { "gpt2:layers=3,width=192,heads=8,vocab=1000,context=64",
        "llama:layers=3,width=256,heads=16,kv_heads=8,vocab=1000,context=64",
        "qwen3:layers=3,width=128,heads=16,kv_heads=8,head_size=16,vocab=1000,context=64" };
    static const struct { const char *plan, *schedule; int64_t ranks, slices; } plans[] = { { "cp2", "1f1b", 2, 1 }, { "cp:5,3,2", "gpipe", 3, 1 },
        { "hp2", "1f1b", 2, 1 }, { "hp:3,1", "1f1b", 2, 1 }, { "hp:3,1", "gpipe", 2, 4 }, { "pp2xcp2", "1f1b", 4, 1 }, { "pp2xcp:3,1", "zb-h1", 4,
        1 },
        { "pp2xhp2", "zb-h1", 4, 2 }, { "pp2xcp2", "zb-v", 4, 1 }, { "dp2xcp2", "1f1b", 4, 1 }, { "cp:1,0,2", "1f1b", 3, 1 },
        { "{\"teams\": [{\"ranks\": [1, 0, 3], \"shares\": [5, 1, 2], \"heads\": [[6, 2], [8]]}], \"pipelines\": [{\"stages\": ["
          "{\"rank\": 1, \"units\": [0, 5]}, {\"rank\": 2, \"units\": [5, 8]}]}]}", "1f1b", 4, 1 } };
    size_t m, p;
    int64_t wrong = 0;
    int again;
    (void)state;
    for (m = 0; m < sizeof models / sizeof *models; m++)
        for (p = 0; p < sizeof plans / sizeof *plans; p++)
            for (again = 0; again < 3; again++) {
                shape s;
                memset(&s, 0, sizeof s);
                s.model = models[m];
                s.plan = plans[p].plan;
                s.schedule = plans[p].schedule;
                s.ranks = plans[p].ranks;
                s.slices = plans[p].slices;
                s.micro_batches = 6;
                s.tokens = 4096;
                s.sequences = 4;
                s.heads = 8;
                s.dtype = (p + m) % 2 == 1 ? HET_BF16 : HET_F32;
                s.recompute = (het_recompute)again;
                if (p % 2 == 1) s.state[0] = 3, s.state[1] = 1, s.state[2] = 2, s.state[3] = 1;
                wrong += check_shape(&s);
            }
    assert_int_equal(wrong, 0);
}

/* Boxes beside what is owned, values divided by heads and by share; where heads are normed attention stays by heads. */
static void bytes_of_teams_by_columns_agree(void **state)
{
    static const char *const models[] = { "gpt2:layers=3,width=192,heads=8,vocab=1000,context=64",
        "llama:layers=3,width=256,heads=16,kv_heads=8,mlp_width=1536,vocab=1000,context=64",
        "qwen3:layers=3,width=128,heads=16,kv_heads=8,head_size=16,mlp_width=512,vocab=1000,context=64",
        "neox:layers=3,width=192,heads=8,vocab=1000,context=64" };
    static const struct { const char *plan, *schedule; int64_t ranks, slices; } plans[] = { { "tp2", "1f1b", 2, 1 }, { "dp2xtp2", "1f1b", 4, 1 },
        { "pp2xtp:3,1", "zb-h1", 4, 1 }, { "tp4", "gpipe", 4, 2 }, { "tp:1,3", "gpipe", 2, 1 },
        { "{\"teams\": [{\"ranks\": [1, 2], \"split\": \"columns\"}], \"pipelines\": [{\"stages\": [{\"rank\": 0, \"units\": [0, 8]}]}, "
          "{\"stages\": [{\"rank\": 1, \"units\": [0, 5]}, {\"rank\": 3, \"units\": [5, 8]}]}]}", "1f1b", 4, 1 } };
    size_t m, p;
    int64_t wrong = 0;
    int round;
    (void)state;
    for (m = 0; m < sizeof models / sizeof *models; m++)
        for (p = 0; p < sizeof plans / sizeof *plans; p++)
            for (round = 0; round < 4; round++) {
                shape s;
                int64_t r;
                memset(&s, 0, sizeof s);
                s.model = models[m];
                s.plan = plans[p].plan;
                s.schedule = plans[p].schedule;
                s.ranks = plans[p].ranks;
                s.slices = plans[p].slices;
                s.micro_batches = 4;
                s.tokens = 4096;
                s.sequences = 4;
                s.heads = 8;
                s.dtype = (p + m) % 2 == 1 ? HET_BF16 : HET_F32;
                s.recompute = (het_recompute)(((int)p + (int)round) % 3);
                s.shard = round < 2 ? HET_SHARD_STATE : HET_SHARD_GRADIENTS;
                for (r = 0; r < s.ranks; r++) s.state[r] = (double)(1 + (r + round) % 3);
                s.cuts = 20 * 2048;
                wrong += check_shape(&s);
            }
    assert_int_equal(wrong, 0);
}

/* Versions of weights that several updates use, predictions, sums of blocks with one holder and with several. */
static void bytes_of_several_updates_agree(void **state)
{
    static const struct { const char *model, *plan, *schedule; int64_t ranks, updates, staleness; } cases[] = {
        { "llama:layers=3,width=192,vocab=3000,context=256", "pp", "2bw", 4, 2, 0 },
        { "llama:layers=3,width=192,vocab=3000,context=256", "pp", "xpipe", 4, 4, 0 },
        { "gpt2:layers=3,width=192,vocab=3000,context=256", "pp", "pipedream", 3, 4, 0 },
        { "llama:layers=3,width=128,vocab=3000,context=256", "dp", "hogbatch", 3, 6, 0 },
        { "neox:layers=3,width=128,vocab=2000,context=256", "dp2xpp2", "1f1b", 4, 4, 2 },
    };
    int64_t wrong = 0;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        shape s;
        memset(&s, 0, sizeof s);
        s.model = cases[i].model;
        s.plan = cases[i].plan;
        s.schedule = cases[i].schedule;
        s.ranks = cases[i].ranks;
        s.updates = cases[i].updates;
        s.staleness = cases[i].staleness;
        s.feedback = cases[i].schedule[0] == 'x' ? 0.0f : 1.0f; /* nothing is predicted with it */
        s.slices = 1;
        s.micro_batches = 12;
        s.tokens = 1024;
        s.sequences = 8;
        s.cuts = 20 * 2048;
        wrong += check_shape(&s);
    }
    assert_int_equal(wrong, 0);
}

/* Weights, sums and state in parts, by drawn shares, 0 among them, in near sets, and with keepers. A block is cut at multiples of 1,024 elements,
   and what a rank has lies between two cuts. */
static void bytes_of_divided_plans_agree(void **state)
{
    static const char *const models[] = { "gpt2:layers=3,width=192,vocab=3000,context=256", "llama:layers=3,width=192,vocab=3000,context=256",
        "qwen3:layers=3,width=128,heads=16,kv_heads=8,head_size=16,vocab=2000,context=256",
        "llama:layers=3,width=128,vocab=3000,context=256,tied=yes",
        "llama:layers=3,width=192,vocab=3000,context=256,lora_rank=32", "neox:layers=3,width=128,vocab=2000,context=256",
        "gpt2:layers=3,width=128,vocab=2000,context=256,local_loss=1" };
    static const struct { const char *plan, *schedule; int64_t slices; } plans[] = { { "dp", "1f1b", 1 }, { "dp", "gpipe", 2 },
        { "dp2xpp2", "1f1b", 1 }, { "dp2xpp2", "zb-h1", 1 }, { "pp", "interleaved", 1 }, { "cp:3,1,2,2", "1f1b", 1 }, { "pp2xcp2", "gpipe", 1 },
        { "{\"pipelines\": [{\"stages\": [{\"rank\": 0, \"units\": [0, 2]}, {\"rank\": 1, \"units\": [2, 8]}]}, {\"stages\": [{\"rank\": 2, "
          "\"units\": [0, 5]}, {\"rank\": 3, \"units\": [5, 8]}]}]}", "1f1b", 1 } };
    uint64_t seed = 5;
    int64_t wrong = 0, divided = 0;
    int round;
    (void)state;
    for (round = 0; round < 160; round++) {
        shape s;
        int64_t r;
        int64_t which = support_below(&seed, 8);
        memset(&s, 0, sizeof s);
        s.model = models[support_below(&seed, 7)];
        if (strstr(s.model, "local_loss") != NULL) which %= 7; /* it has more than 8 units */
        s.plan = plans[which].plan;
        s.schedule = plans[which].schedule;
        s.slices = plans[which].slices;
        s.keepers = support_below(&seed, 2) * (1 + support_below(&seed, 2));
        s.ranks = 4 + s.keepers;
        s.micro_batches = 4;
        s.tokens = 1024;
        s.sequences = 8;
        s.recompute = (het_recompute)support_below(&seed, 3);
        s.shard = (het_shard)(HET_SHARD_STATE + support_below(&seed, 3));
        s.weights = (het_dtype)(HET_F32 + round % 3);
        for (r = 0; r < s.ranks; r++) {
            s.state[r] = (double)support_below(&seed, 4) + (r >= 3);
            s.near[r] = round % 2 * support_below(&seed, 3);
        }
        s.cuts = 20 * 2048;
        divided += s.shard > HET_SHARD_STATE || s.keepers > 0;
        wrong += check_shape(&s);
        s.muon = 1;
        if (round % 4 == 3) wrong += check_shape(&s);
    }
    assert_true(divided >= 60);
    assert_int_equal(wrong, 0);
}

/* Bases of low-rank factors in bf16 and int8: whole, in parts by columns, and what calls make of int8. */
static void bytes_of_frozen_weights_agree(void **state)
{
    static const char *const models[] = { "gpt2:layers=3,width=192,heads=8,vocab=3000,context=256,lora_rank=8",
        "llama:layers=3,width=256,heads=16,kv_heads=8,mlp_width=1536,vocab=1000,context=64,lora_rank=8",
        "llama:layers=3,width=128,heads=8,mlp_width=512,vocab=3000,context=256,tied=yes,lora_rank=4" };
    static const struct { const char *plan; int64_t ranks; } plans[] = { { "dp", 1 }, { "dp", 2 }, { "pp", 3 }, { "cp2", 2 }, { "dp2xtp2", 4 },
        { "tp4", 4 }, { "pp2xtp:3,1", 4 } };
    size_t m, p;
    int64_t wrong = 0;
    int type;
    (void)state;
    for (m = 0; m < sizeof models / sizeof *models; m++)
        for (p = 0; p < sizeof plans / sizeof *plans; p++)
            for (type = HET_F32; type <= HET_INT8; type++) {
                shape s;
                memset(&s, 0, sizeof s);
                s.model = models[m];
                s.plan = plans[p].plan;
                s.schedule = "1f1b";
                s.ranks = plans[p].ranks;
                s.slices = 1;
                s.micro_batches = 4;
                s.tokens = 1024;
                s.sequences = 4;
                s.heads = 8;
                s.weights = (het_dtype)type;
                s.cuts = p == 0 ? 0 : 20 * 2048;
                wrong += check_shape(&s);
            }
    assert_int_equal(wrong, 0);
}

/* More copies than send to each other without clusters. */
static void bytes_of_many_copies_agree(void **state)
{
    static const int64_t ranks[] = { 16, 17, 18, 25, 30, 40 };
    int64_t wrong = 0, r;
    size_t i;
    int divided;
    (void)state;
    for (i = 0; i < sizeof ranks / sizeof *ranks; i++)
        for (divided = 0; divided < (ranks[i] > 25 ? 1 : 2); divided++) { /* what rounding adds to the last one's part would count for every rank */
            shape s;
            memset(&s, 0, sizeof s);
            s.model = "gpt2:layers=3,width=320,heads=8,vocab=3000,context=256";
            s.plan = "dp";
            s.schedule = "1f1b";
            s.ranks = ranks[i];
            s.slices = 1;
            s.micro_batches = 40;
            s.tokens = 256;
            s.sequences = 1;
            s.cuts = 40 * 2048;
            s.shard = divided ? HET_SHARD_GRADIENTS : HET_SHARD_STATE;
            for (r = 0; r < s.ranks; r++) s.state[r] = 1;
            wrong += check_shape(&s);
        }
    assert_int_equal(wrong, 0);
}

/* Experts, whole and divided by columns among members that have as many as a token uses. */
static void bytes_of_experts_agree(void **state)
{
    static const char *const models[] = { "llama:layers=3,width=128,heads=8,mlp_width=96,vocab=1000,context=64",
        "gpt2:layers=3,width=128,heads=8,mlp_width=64,vocab=1000,context=64" };
    static const struct { const char *plan; int64_t ranks; } plans[] = { { "dp", 1 }, { "pp", 3 }, { "cp2", 2 }, { "tp2", 2 }, { "dp2xtp2", 4 },
        { "tp4", 4 }, { "pp2xtp:3,1", 4 } };
    size_t m, p;
    int64_t wrong = 0;
    int again;
    (void)state;
    for (m = 0; m < sizeof models / sizeof *models; m++)
        for (p = 0; p < sizeof plans / sizeof *plans; p++)
            for (again = 0; again < 3; again++) {
                shape s;
                memset(&s, 0, sizeof s);
                s.model = models[m];
                s.plan = plans[p].plan;
                s.schedule = "1f1b";
                s.ranks = plans[p].ranks;
                s.slices = 1;
                s.micro_batches = 4;
                s.tokens = 4096;
                s.sequences = 64;
                s.heads = 8;
                s.recompute = (het_recompute)again;
                s.cuts = p == 0 ? 0 : 20 * 2048;
                s.experts.experts = 8;
                s.experts.used = 2 - (int64_t)m;
                s.experts.route = m == 0 ? HET_ROUTE_TOP : HET_ROUTE_HASH;
                wrong += check_shape(&s);
            }
    assert_int_equal(wrong, 0);
}

/* One granule, which rows and pipelines cannot divide: the planner shares experts among a team by columns, of as many members at most as there are
   experts, counts what rows take on their way, and a context runs its plan within what it says of memory. */
static void experts_are_planned(void **state)
{
    static const char devices[] = "{\"devices\": [{\"name\": \"d\", \"f32\": \"1T\", \"bandwidth\": \"1T\"}]}";
    het_error error = { HET_OK, "" };
    int64_t experts, r, members, largest;
    (void)state;
    for (experts = 8; experts >= 2; experts -= 6) {
        const int64_t start[2] = { 0, 64 };
        static int32_t token[64];
        het_hardware hardware;
        het_device_desc device[4];
        het_experts settings;
        het_search_desc search;
        het_cluster *cluster = NULL;
        het_profile *profile = NULL;
        het_search *found = NULL;
        het_ctx *ctx;
        het_unit units[4];
        het_batch batch;
        het_desc desc;
        memset(&desc, 0, sizeof desc);
        memset(device, 0, sizeof device);
        memset(&settings, 0, sizeof settings);
        memset(&search, 0, sizeof search);
        memset(&batch, 0, sizeof batch);
        EXPECT_OK(het_model_parse("llama:layers=1,width=64,heads=4,mlp_width=512,vocab=64,context=64", &desc.model, &error));
        settings.experts = experts;
        settings.used = 2;
        desc.limits.max_tokens = 64;
        desc.limits.max_sequences = 1;
        EXPECT_OK(het_experts_units(&desc, &settings, units, 4, &error));
        EXPECT_OK(het_hardware_read(devices, strlen(devices), &hardware, &error));
        EXPECT_OK(het_hardware_profile(&hardware, &desc, 64, "experts", NULL, &profile, &error));
        assert_true(profile->kind[2].most_members >= (double)experts && profile->kind[2].most_members <= (double)experts);
        assert_true(profile->kind[2].moves.exchange_bytes[0] >= 2 * 4 * 2 * 64 && profile->kind[2].moves.exchange_bytes[1] <= 2 * 4 * 2 * 64);
        EXPECT_OK(het_cluster_flat(4, NULL, 1e-9, 1e12, NULL, &cluster, &error));
        for (r = 0; r < 4; r++) snprintf(cluster->device[r].profile, sizeof cluster->device[r].profile, "d");
        search.profile = profile;
        search.cluster = cluster;
        search.granules = 1;
        search.granule_tokens = 64;
        search.evaluations = 2000;
        EXPECT_ERROR(het_plan_search(&search, &found, &error), HET_OK, error.text, "");
        for (r = largest = 0; r < 4; r++) {
            const het_team_member *team = het_plan_team(found->found[0].plan, r, &members);
            if (team != NULL && team->columns && members > largest) largest = members;
        }
        assert_int_equal(largest, experts == 8 ? 4 : 2);
        desc.layout.devices = device;
        desc.layout.device_count = 4;
        desc.layout.plan = found->found[0].plan;
        desc.limits.max_micro_batches = 1;
        for (r = 0; r < 4; r++) {
            het_memory memory;
            EXPECT_ERROR(het_memory_estimate(&desc, r, &memory, &error), HET_OK, error.text, "");
            if ((double)(memory.device + memory.communication) > 1.02 * found->found[0].memory[r] + 65536)
                fail_msg("rank %d: %lu bytes, %g planned", (int)r, (unsigned long)(memory.device + memory.communication), found->found[0].memory[r]);
        }
        EXPECT_ERROR(het_create(&desc, &ctx, &error), HET_OK, error.text, "");
        batch.tokens = 64;
        batch.sequences = 1;
        batch.sequence_start = start;
        batch.token = batch.target = token;
        EXPECT_OK(het_step(ctx, &batch, 1, NULL));
        het_destroy(ctx);
        het_search_free(found);
        het_cluster_free(cluster);
        het_profile_free(profile);
    }
}

/* A team's rows are cut between granules, and a context has room for those of 512 tokens, though these have 32: two devices that hold a micro-batch
   of 16 by context with half its rows each, but not with all, are not told that they do. */
static void teams_have_room_for_long_granules(void **state)
{
    static const char devices[] = "{\"devices\": [{\"name\": \"d\", \"f32\": \"10G\", \"bandwidth\": \"100G\"}]}";
    het_error error = { HET_OK, "" };
    het_hardware hardware;
    het_device_desc device[2];
    het_search_desc search;
    het_cluster *cluster = NULL;
    het_profile *profile = NULL;
    het_search *found = NULL;
    het_ctx *ctx = NULL;
    het_desc desc;
    int64_t r;
    (void)state;
    memset(&desc, 0, sizeof desc);
    memset(device, 0, sizeof device);
    memset(&search, 0, sizeof search);
    EXPECT_OK(het_model_parse("llama:layers=2,width=64,heads=4,vocab=64,context=32", &desc.model, &error));
    desc.granule = 1;
    desc.limits.max_tokens = 512;
    EXPECT_OK(het_hardware_read(devices, strlen(devices), &hardware, &error));
    EXPECT_OK(het_hardware_profile(&hardware, &desc, 32, "teams", NULL, &profile, &error));
    EXPECT_OK(het_cluster_flat(2, NULL, 1e-9, 1e12, NULL, &cluster, &error));
    for (r = 0; r < 2; r++) {
        snprintf(cluster->device[r].profile, sizeof cluster->device[r].profile, "d");
        cluster->device[r].memory = 8e6;
        device[r].memory_limit = 8000000;
    }
    search.profile = profile;
    search.cluster = cluster;
    search.granules = 16;
    search.granule_tokens = 32;
    search.most_micro_batches = 1;
    search.recompute = HET_NO;
    search.evaluations = 2000;
    EXPECT_ERROR(het_plan_search(&search, &found, &error), HET_OK, error.text, "");
    desc.layout.devices = device;
    desc.layout.device_count = 2;
    desc.layout.plan = found->found[0].plan;
    desc.limits.max_sequences = 16;
    desc.limits.max_micro_batches = 1;
    EXPECT_ERROR(het_create(&desc, &ctx, &error), HET_OK, error.text, "");
    het_destroy(ctx);
    het_search_free(found);
    het_cluster_free(cluster);
    het_profile_free(profile);
}

/* With few micro-batches some of a rank's stages do all backward passes in one piece: those need more scratch, the others more in a slot. */
static void bytes_of_mixed_ranks_suffice(void **state)
{
    static const char *const models[] = { "llama:layers=7,width=64,vocab=256,context=64", "gpt2:layers=7,width=64,vocab=256,context=64" };
    int64_t wrong = 0;
    int m, n, ranks;
    (void)state;
    for (m = 0; m < 2; m++)
        for (n = 2; n <= 4; n++)
            for (ranks = 2; ranks <= 4; ranks += 2) {
                shape s;
                memset(&s, 0, sizeof s);
                s.model = models[m];
                s.plan = "pp";
                s.schedule = "dualpipev";
                s.ranks = ranks;
                s.slices = 1;
                s.micro_batches = n;
                s.tokens = 512;
                s.sequences = 64;
                s.mixed = 1;
                wrong += check_shape(&s);
            }
    assert_int_equal(wrong, 0);
}

/* ---- times: units that take what they say, by a clock that only they move ---- */

static double clock_seconds;
static double clock_now(void *user) { (void)user; return clock_seconds; }

typedef struct toy { int64_t in, out; het_unit_time time; int last; } toy;

static het_result toy_describe(const het_unit *unit, het_unit_info *info)
{
    const toy *t = (const toy *)unit->settings;
    info->parameters = 1;
    snprintf(info->parameter[0].name, sizeof info->parameter[0].name, "toy.%d.%lld", t->last, (long long)unit->layer);
    info->parameter[0].rows = t->in + 1;
    info->parameter[0].columns = t->out + 1;
    info->out_streams = !t->last;
    info->out_width[0] = t->out;
    info->is_loss = t->last;
    info->input_keep = HET_KEEP_INPUT;
    info->flops_forward = (double)(t->in * t->out);
    return HET_OK;
}

static double pairs_of(const het_view *view)
{
    double pairs = 0;
    int64_t s;
    for (s = 0; s < view->sequences; s++) {
        const double length = (double)(view->sequence_start[s + 1] - view->sequence_start[s]);
        pairs += length * (length + 1) / 2;
    }
    return pairs;
}

static double value_of(const het_cost *c, double tokens, double pairs) { return c->base + c->token * tokens + c->pair * pairs; }

static void spend(const het_unit_call *call, const het_cost *curve) { clock_seconds += value_of(curve, (double)call->rows, pairs_of(call->view)); }
static int went_back; /* a forward from here on is a recomputation, until the first unit has gone back as well */
static het_result toy_forward(const het_unit_call *call)
{
    const toy *t = (const toy *)call->unit->settings;
    spend(call, went_back ? &t->time.recompute : &t->time.forward);
    return HET_OK;
}
static het_result toy_input(const het_unit_call *call)
{
    spend(call, &((const toy *)call->unit->settings)->time.input);
    went_back = call->index > 0;
    return HET_OK;
}
static het_result toy_weight(const het_unit_call *call)
{
    spend(call, &((const toy *)call->unit->settings)->time.weight);
    return HET_OK;
}
static const het_unit_iface toy_table = { HETRAIN_UNIT_VERSION, "toy", toy_describe, toy_forward, toy_input, toy_weight };

static void same_curve(const het_cost *got, const het_cost *expected, const char *what, int kind)
{
    double tokens, length;
    for (tokens = 64; tokens <= 4096; tokens *= 4)
        for (length = 16; length <= 256; length *= 4) {
            const double pairs = tokens * (length + 1) / 2, g = value_of(got, tokens, pairs), e = value_of(expected, tokens, pairs);
            if (fabs(g - e) > 1e-6 * e) fail_msg("%s of kind %d: %g at %g tokens of %g, not %g", what, kind, g, tokens, length, e);
        }
}

static void units_that_say_what_they_take(void **state)
{
    static const double costs[3][5][3] = {
        { { 1e-5, 2e-8, 0 }, { 0, 0, 0 }, { 3e-6, 5e-8, 0 }, { 0, 3e-8, 0 }, { 1e-5, 2e-8, 0 } },
        { { 0, 1e-7, 2e-9 }, { 0, 0, 0 }, { 1e-6, 1e-7, 4e-9 }, { 2e-6, 9e-8, 0 }, { 0, 1.1e-7, 2.2e-9 } },
        { { 0, 0, 0 }, { 0, 0, 0 }, { 2e-5, 3e-7, 0 }, { 0, 0, 0 }, { 0, 0, 0 } } };
    toy toys[3];
    het_unit unit[42];
    het_desc desc;
    het_measure_desc measure;
    het_device_desc device;
    het_error error = { HET_OK, "" };
    het_profile *profile = NULL;
    int64_t i, k;
    (void)state;
    memset(toys, 0, sizeof toys);
    memset(unit, 0, sizeof unit);
    memset(&desc, 0, sizeof desc);
    memset(&measure, 0, sizeof measure);
    memset(&device, 0, sizeof device);
    for (k = 0; k < 3; k++) {
        toys[k].in = k == 0 ? 0 : 8;
        toys[k].out = k == 2 ? 0 : 8;
        toys[k].last = k == 2;
        memcpy(&toys[k].time, costs[k], sizeof toys[k].time);
    }
    for (i = 0; i < 42; i++) {
        unit[i].iface = &toy_table;
        unit[i].layer = i;
        unit[i].settings = &toys[i == 0 ? 0 : i == 41 ? 2 : 1];
    }
    EXPECT_OK(het_model_parse("gpt2:layers=2,width=32,vocab=100,context=256", &desc.model, &error));
    device.iface = het_null_device();
    desc.units = unit;
    desc.unit_count = 42;
    desc.layout.devices = &device;
    desc.layout.device_count = 1;
    desc.limits.max_tokens = 2048;
    measure.desc = &desc;
    measure.model = "toys";
    measure.now = clock_now;
    clock_seconds = 0;
    went_back = 0;
    EXPECT_OK(het_profile_measure(&measure, &profile, &error));
    assert_int_equal(profile->kinds, 3);
    assert_int_equal(profile->units, 42);
    assert_int_equal(profile->blocks, 42);
    assert_string_equal(profile->kind[0].name, "toy");
    assert_string_equal(profile->kind[2].name, "toy#3");
    assert_string_equal(profile->device[0].name, "null:1");
    for (k = 0; k < 3; k++) {
        const het_unit_time *t = &profile->device[0].alone[k];
        het_cost backward = toys[k].time.input;
        backward.base += toys[k].time.weight.base;
        backward.token += toys[k].time.weight.token;
        backward.pair += toys[k].time.weight.pair;
        same_curve(&t->forward, &toys[k].time.forward, "forward", (int)k);
        same_curve(&t->backward, &backward, "backward", (int)k);
        same_curve(&t->input, &toys[k].time.input, "input", (int)k);
        same_curve(&t->weight, &toys[k].time.weight, "weight", (int)k);
        if (k < 2) same_curve(&t->recompute, &toys[k].time.recompute, "recompute", (int)k);
    }
    het_profile_free(profile);
}

static double real_now(void *user)
{
    struct timespec t;
    (void)user;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Three ranks of two kinds of devices, one slowed down, with real units: everything that takes time took some. */
static void ranks_together(void **state)
{
    het_desc desc;
    het_measure_desc measure;
    het_device_desc device[3];
    het_error error = { HET_OK, "" };
    het_profile *profile = NULL;
    int64_t k;
    (void)state;
    memset(&desc, 0, sizeof desc);
    memset(&measure, 0, sizeof measure);
    memset(device, 0, sizeof device);
    desc.model = support_model(HET_LLAMA);
    device[0].threads = 1;
    device[1].threads = 1;
    device[1].speed = 0.5;
    device[2].threads = 1;
    device[2].isa = HET_ISA_PLAIN;
    desc.layout.devices = device;
    desc.layout.device_count = 3;
    desc.limits.max_tokens = 192;
    measure.desc = &desc;
    measure.now = real_now;
    measure.seconds = 0.01;
    EXPECT_OK(het_profile_measure(&measure, &profile, &error));
    assert_int_equal(profile->devices, 2);
    assert_string_equal(profile->device[0].name, "cpu:1");
    assert_string_equal(profile->device[1].name, "cpu:1:plain");
    assert_int_equal(profile->links, 1);
    assert_string_equal(profile->link[0].name, "threads");
    for (k = 0; k < profile->kinds; k++) {
        const het_unit_time *alone = &profile->device[0].alone[k], *together = &profile->device[1].together[k];
        assert_true(value_of(&alone->backward, 192, 4704) > 0 && value_of(&together->backward, 192, 4704) > 0);
        assert_true(value_of(&alone->input, 192, 4704) > 0 && value_of(&together->input, 192, 4704) > 0);
        assert_true(profile->kind[k].loss || value_of(&together->forward, 192, 4704) > 0);
        assert_true(profile->kind[k].loss || value_of(&together->recompute, 192, 4704) > 0);
    }
    assert_true(profile->device[0].step_element > 0 && profile->device[0].action > 0 && profile->device[0].verdict_base > 0);
    het_profile_free(profile);
}

static het_result create_any(const het_device_config *config, void **self)
{
    het_device_config first = *config;
    first.ordinal = 0;
    return het_cpu_device()->create(&first, self);
}

/* Devices of one table that are two, or parts of one, are two kinds, each with its name. */
static void ordinals_have_names(void **state)
{
    static const char *const names[] = { "far:1", "far:0:96-131", "far:3:0-7", "far:0:2046-2046" };
    het_device_iface table = *het_cpu_device();
    het_desc desc;
    het_measure_desc measure;
    het_device_desc device[5];
    het_error error = { HET_OK, "" };
    het_profile *profile = NULL;
    int64_t i;
    char name[7];
    (void)state;
    memset(&desc, 0, sizeof desc);
    memset(&measure, 0, sizeof measure);
    memset(device, 0, sizeof device);
    table.name = "far", table.host_memory = 0, table.create = create_any;
    for (i = 0; i < 5; i++) device[i].iface = &table;
    device[0].ordinal = 1, device[1].ordinal = HET_PART(0, 96, 131), device[2].ordinal = HET_PART(3, 0, 7);
    device[3].ordinal = HET_PART(0, 2046, 2046), device[4].ordinal = 1;
    desc.model = support_model(HET_GPT2);
    desc.limits.max_tokens = 96;
    desc.layout.devices = device, desc.layout.device_count = 5;
    measure.desc = &desc, measure.now = real_now, measure.seconds = 0.01;
    EXPECT_OK(het_profile_measure(&measure, &profile, &error));
    assert_int_equal(profile->devices, 4);
    for (i = 0; i < 4; i++) assert_string_equal(profile->device[i].name, names[i]);
    het_profile_free(profile);
    het_device_name(&device[1], name, sizeof name);
    assert_string_equal(name, "far:0:");
    memset(device, 0, sizeof device);
    het_device_name(device, name, sizeof name);
    assert_string_equal(name, "cpu:1");
}

/* A millisecond later whenever it is asked. */
static double counted_time(void *user)
{
    static double now = 0;
    (void)user;
    return now += 1e-3;
}

/* Bad descriptions are refused by name; every allocation may fail. */
static void measuring_fails_well(void **state)
{
    het_desc desc;
    het_measure_desc measure;
    het_device_desc device[2];
    het_error error = { HET_OK, "" };
    het_profile *profile = NULL;
    support_memory memory;
    int64_t k;
    (void)state;
    memset(&desc, 0, sizeof desc);
    memset(&measure, 0, sizeof measure);
    memset(device, 0, sizeof device);
    EXPECT_ERROR(het_profile_measure(NULL, &profile, &error), HET_ERR_INVALID, error.text, "desc is NULL");
    measure.desc = &desc;
    EXPECT_ERROR(het_profile_measure(&measure, &profile, &error), HET_ERR_INVALID, error.text, "clock");
    measure.now = counted_time; /* only what is allocated matters here */
    measure.seconds = -1;
    EXPECT_ERROR(het_profile_measure(&measure, &profile, &error), HET_ERR_INVALID, error.text, "-1 seconds");
    measure.seconds = 1;
    measure.end_canary = 1;
    EXPECT_ERROR(het_profile_measure(&measure, &profile, &error), HET_ERR_INVALID, error.text, "cleared");
    measure.end_canary = 0;
    desc.model = support_model(HET_GPT2);
    desc.layout.device_count = INT64_MAX;
    EXPECT_ERROR(het_profile_measure(&measure, &profile, &error), HET_ERR_INVALID, error.text, "device_count|devices is NULL");
    desc.layout.device_count = 0;
    measure.length = 49;
    EXPECT_ERROR(het_profile_measure(&measure, &profile, &error), HET_ERR_INVALID, error.text, "49 tokens|context is 48");
    measure.length = 0;
    device[0].isa = (het_isa)42;
    desc.layout.devices = device;
    desc.layout.device_count = 1;
    EXPECT_ERROR(het_profile_measure(&measure, &profile, &error), HET_ERR_UNSUPPORTED, error.text, "instruction set 42");
    device[0].isa = HET_ISA_AUTO;
    device[0].iface = device[1].iface = het_null_device();
    desc.layout.device_count = 2;
    desc.limits.max_tokens = 96;
    for (k = 0; k < 1000; k++) {
        het_result result;
        measure.allocator = support_allocator(&memory);
        memory.fail_at = k;
        result = het_profile_measure(&measure, &profile, &error);
        if (result == HET_OK) break;
        assert_int_equal(result, HET_ERR_OOM);
        assert_null(profile);
        assert_int_equal(memory.live, 0);
    }
    if (!(k > 50 && k < 1000)) fail_msg("%lld allocations", (long long)k);
    het_profile_free(profile);
    assert_int_equal(memory.live, 0);
    assert_int_equal(memory.wrong, 0);
}

/* ---- files ---- */

static char *text_of(const het_profile *profile, size_t *length)
{
    support_buffer buffer;
    het_writer writer;
    char *text;
    support_buffer_start(&buffer);
    writer = support_writer(&buffer);
    EXPECT_OK(het_profile_write(profile, &writer));
    text = (char *)support_alloc(buffer.size + 1, 1);
    memcpy(text, buffer.data, buffer.size);
    *length = buffer.size;
    support_buffer_end(&buffer);
    return text;
}

static het_profile *read_text(const char *text)
{
    het_error error = { HET_OK, "" };
    het_profile *profile = NULL;
    if (het_profile_read(text, strlen(text), NULL, &profile, &error) != HET_OK) fail_msg("%s", error.text);
    return profile;
}

static const char small_profile[] =
    "{\"hetrain_profile\": 1, \"model\": \"a \\\"model\\\"\", \"dtype\": \"bf16\", \"reduce\": \"fast\", \"granule\": 512,\n"
    " \"bytes\": {\"weight\": 4, \"gradient\": 4, \"state\": 8, \"reduce\": 4, \"gather\": 4},\n"
    " \"kinds\": [{\"name\": \"first\", \"output\": 1024, \"keep_input\": 64}, {\"name\": \"last\", \"input\": 1024, \"loss\": true}],\n"
    " \"units\": [\"first\", \"last\"],\n"
    " \"blocks\": [{\"elements\": 4096, \"units\": [0, 1]}, {\"elements\": 64, \"units\": [1], \"frozen\": true}],\n"
    " \"devices\": [{\"name\": \"h100\", \"step_element\": 1e-12, \"alone\": {\"last\": {\"backward\": [1e-6, 2.5e-9, 0]},\n"
    "   \"first\": {\"forward\": [1e-6, 2e-9, 3e-12]}}}],\n"
    " \"links\": [{\"name\": \"wire\", \"latency\": 0.001, \"bandwidth\": 1e9}]}\n";

static void hand_written(void **state)
{
    het_profile *profile = read_text(small_profile), *again;
    size_t length, other;
    char *text, *second;
    (void)state;
    assert_string_equal(profile->model, "a \"model\"");
    assert_int_equal(profile->dtype, HET_BF16);
    assert_int_equal(profile->reduce, HET_REDUCE_FAST);
    assert_int_equal(profile->granule, 512);
    assert_int_equal(profile->uses, 3);
    assert_int_equal(profile->use[1], 1);
    assert_int_equal(profile->block[1].frozen, 1);
    assert_true(profile->device[0].together[0].forward.pair >= 3e-12 && profile->device[0].together[0].forward.pair <= 3e-12);
    assert_true(profile->device[0].alone[1].backward.token >= 2.5e-9 && profile->device[0].alone[1].backward.token <= 2.5e-9);
    text = text_of(profile, &length);
    again = read_text(text);
    second = text_of(again, &other);
    assert_int_equal(length, other);
    assert_string_equal(text, second);
    free(text);
    free(second);
    het_profile_free(profile);
    het_profile_free(again);
}

/* Any number from 1e-300 to 1e30 comes back to the bit. */
static void numbers_round_trip(void **state)
{
    het_profile *profile = read_text(small_profile), *again;
    uint64_t random = 7;
    size_t length;
    int round;
    (void)state;
    for (round = 0; round < 400; round++) {
        double *value[6], got[6], *other[6];
        char *text;
        int i;
        value[0] = &profile->device[0].alone[0].forward.base, value[1] = &profile->device[0].alone[0].forward.token;
        value[2] = &profile->device[0].together[1].weight.pair, value[3] = &profile->link[0].latency;
        value[4] = &profile->kind[0].keep[HET_KEEP_CALL][0], value[5] = &profile->rank_weights;
        for (i = 0; i < 6; i++) {
            do *value[i] = ldexp(1 + support_uniform(&random), (int)support_below(&random, round < 200 ? 60 : 1000) - (round < 200 ? 40 : 990));
            while (!(*value[i] <= 1e30 && *value[i] >= 1e-300));
            got[i] = *value[i];
        }
        text = text_of(profile, &length);
        again = read_text(text);
        other[0] = &again->device[0].alone[0].forward.base, other[1] = &again->device[0].alone[0].forward.token;
        other[2] = &again->device[0].together[1].weight.pair, other[3] = &again->link[0].latency;
        other[4] = &again->kind[0].keep[HET_KEEP_CALL][0], other[5] = &again->rank_weights;
        for (i = 0; i < 6; i++)
            if (memcmp(&got[i], other[i], sizeof got[i]) != 0) fail_msg("round %d, number %d: %.17g came back as %.17g", round, i, got[i], *other[i]);
        free(text);
        het_profile_free(again);
    }
    het_profile_free(profile);
}

/* The text with the first `from` replaced. */
static char *edited(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    char *made = (char *)support_alloc(strlen(text) + strlen(to) + 1, 1);
    if (at == NULL) fail_msg("%s is not in the text", from);
    memcpy(made, text, (size_t)(at - text));
    strcpy(made + (at - text), to);
    strcat(made, at + strlen(from));
    return made;
}

static void bad_files(void **state)
{
    static const struct { const char *from, *to, *words; } edits[] = {
        { "\"hetrain_profile\": 1", "\"hetrain_profile\": 2", "byte 20|\"hetrain_profile\" is 2, not from 1 to 1" },
        { "\"hetrain_profile\": 1, ", "", "\"hetrain_profile\": is missing" },
        { "\"model\": \"a \\\"model\\\"\"", "\"modell\": \"a\"", "\"modell\": no such key of a profile" },
        { "\"dtype\": \"bf16\"", "\"dtype\": \"f16\"", "\"dtype\" is \"f16\", not \"f32\" or \"bf16\"" },
        { "\"dtype\": \"bf16\"", "\"model\": \"b\"", "\"model\"|twice" },
        { "\"reduce\": \"fast\"", "\"reduce\": \"slow\"", "\"reduce\" is \"slow\", not \"exact\" or \"fast\"" },
        { "\"state\": 8", "\"state\": -8", "\"state\" is -8, not from 0 to 1e30" },
        { "\"state\": 8", "\"state\": \"8\"", "\"state\"" },
        { "\"state\": 8", "\"state\": 1e99", "\"state\" is 1e99, not from 0 to 1e30" },
        { "\"state\": 8", "\"estate\": 8", "\"estate\": no such key in \"bytes\"" },
        { "\"state\": 8", "\"weight\": 8", "\"weight\": this key comes twice" },
        { "\"name\": \"last\"", "\"name\": \"first\"", "\"first\": this name comes twice" },
        { "\"name\": \"last\", ", "", "kinds|without a name" },
        { "\"name\": \"last\"", "\"name\": \"\"", "\"name\" has 0 bytes; a name has 1 to 47" },
        { "\"keep_input\": 64", "\"keep_inputs\": 64", "\"keep_inputs\": no such key" },
        { "\"loss\": true", "\"loss\": 1", "\"loss\": true or false" },
        { "\"units\": [\"first\", \"last\"]", "\"units\": [\"first\", \"lasst\"]", "\"lasst\" is none of the 2 kinds" },
        { "\"units\": [\"first\", \"last\"]", "\"units\": []", "\"units\": there are none" },
        { "\"units\": [\"first\", \"last\"]", "\"units\": 2", "\"units\"|array" },
        { "\"units\": [0, 1]", "\"units\": [0, 2]", "\"units\" is 2, not from 0 to 1" },
        { "\"units\": [0, 1]", "\"units\": [1, 0]", "must rise" },
        { "\"units\": [0, 1]", "\"units\": []", "a block without units" },
        { "\"elements\": 4096", "\"elements\": 0", "\"elements\" is 0, not from 1" },
        { "\"elements\": 4096", "\"elements\": 4096.5", "\"elements\"|integer" },
        { "\"elements\": 4096", "\"elements\": 1125899906842625", "\"elements\" is 1125899906842625, not from 1 to 1125899906842624" },
        { "\"elements\": 4096, ", "", "a block needs elements and units" },
        { "\"frozen\": true", "\"thawed\": true", "\"thawed\": no such key in a block" },
        { "\"forward\": [1e-6, 2e-9, 3e-12]", "\"forward\": [1e-6, 2e-9]", "\"forward\": fewer than [base, token, pair]" },
        { "\"forward\": [1e-6, 2e-9, 3e-12]", "\"forward\": [1e-6, 2e-9, 0, 0]", "\"forward\": more than [base, token, pair]" },
        { "\"forward\": [1e-6, 2e-9, 3e-12]", "\"forward\": [1e-6, -2e-9, 0]", "\"forward\" is -2e-9, not from 0" },
        { "\"forward\": [1e-6", "\"forwards\": [1e-6", "\"forwards\": not forward, backward, input, weight or recompute" },
        { "\"last\": {\"backward\"", "\"lost\": {\"backward\"", "\"lost\" is none of the 2 kinds" },
        { "\"last\": {\"backward\": [1e-6, 2.5e-9, 0]},", "", "\"alone\": times of every kind are needed" },
        { "\"alone\": {", "\"together\": {", "a device needs a name and \"alone\"" },
        { "\"step_element\"", "\"step_elements\"", "\"step_elements\": no such key of a device" },
        { "\"latency\": 0.001", "\"latency\": nan", "\"latency\"" },
        { "\"latency\": 0.001", "\"latency\": 1e999", "\"latency\"|beyond double" },
        { "\"latency\"", "\"delay\"", "\"delay\": no such key" },
        { "1e9}]}", "1e9}]} x", "byte" },
        { "1e9}]}", "1e9}]", "byte" } };
    het_profile *profile = NULL;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof edits / sizeof *edits; i++) {
        char *text = edited(small_profile, edits[i].from, edits[i].to);
        het_error error = { HET_OK, "" };
        const het_result result = het_profile_read(text, strlen(text), NULL, &profile, &error);
        if (result != HET_ERR_FORMAT) fprintf(stderr, "%s -> %s: %s\n", edits[i].from, edits[i].to, error.text);
        EXPECT_ERROR(result, HET_ERR_FORMAT, error.text, edits[i].words);
        assert_null(profile);
        free(text);
    }
}

/* Every part of a file, and every file with one byte changed, is read or refused; nothing leaks and a failing allocation is only that. */
static void hostile_files(void **state)
{
    const size_t length = strlen(small_profile);
    support_memory memory;
    uint64_t random = 3;
    size_t cut;
    int round;
    (void)state;
    memset(&memory, 0, sizeof memory);
    memory.fail_at = -1;
    for (cut = 0; cut < length - 1; cut++) {
        const het_allocator allocator = support_allocator(&memory);
        het_profile *profile = NULL;
        assert_int_equal(het_profile_read(small_profile, cut, &allocator, &profile, NULL), HET_ERR_FORMAT);
        assert_null(profile);
    }
    for (round = 0; round < 4000; round++) {
        const het_allocator allocator = support_allocator(&memory);
        het_profile *profile = NULL;
        char *text = edited(small_profile, "e", "e");
        text[support_below(&random, (int64_t)length)] = (char)support_below(&random, 256);
        if (het_profile_read(text, length, &allocator, &profile, NULL) != HET_OK) assert_null(profile);
        het_profile_free(profile);
        free(text);
    }
    assert_int_equal(memory.live, 0);
    assert_int_equal(memory.wrong, 0);
    for (round = 0; round < 3; round++) {
        const het_allocator allocator = support_allocator(&memory);
        het_profile *profile = NULL;
        het_result result;
        memory.calls = 0;
        memory.fail_at = round;
        result = het_profile_read(small_profile, length, &allocator, &profile, NULL);
        assert_int_equal(result, round == 0 ? HET_ERR_OOM : HET_OK);
        het_profile_free(profile);
    }
    assert_int_equal(memory.live, 0);
}

/* Bytes of a plan are more where a block's weights are, whatever a file says of them. */
static void bytes_of_large_numbers(void **state)
{
    static const char *const weights[] = { "1e12", "1e22", "1e30" };
    const het_shape limits = { 64, 1, 64 };
    het_needs needs[2];
    size_t before = 0;
    int i;
    (void)state;
    memset(needs, 0, sizeof needs);
    for (i = 0; i < 3; i++) {
        het_error error = { HET_OK, "" };
        char *packed = edited(small_profile, "\"output\": 1024", "\"output\": 1024, \"packed\": 1");
        char *large;
        het_profile *profile;
        het_plan_desc desc;
        het_plan *plan;
        het_memory memory[2];
        char to[64];
        snprintf(to, sizeof to, "\"elements\": 4096, \"weights\": %s", weights[i]);
        large = edited(packed, "\"elements\": 4096", to);
        profile = read_text(large);
        memset(&desc, 0, sizeof desc);
        desc.units = desc.ranks = 2;
        EXPECT_OK(het_plan_read(&desc, "dp", 2, &plan, &error));
        EXPECT_OK(het_profile_memory(profile, plan, needs, &limits, memory, &error));
        if (memory[0].communication < before || memory[0].communication > 1 << 30) /* pieces of them: not all at once */
            fail_msg("%s: %zu bytes, %zu of less weights", to, memory[0].communication, before);
        before = memory[0].communication;
        het_plan_free(plan);
        het_profile_free(profile);
        free(large);
        free(packed);
    }
}

/* A long chain whose units all have a block in common takes a moment to read. */
static void long_chains_are_read_soon(void **state)
{
    enum { LONG = 1 << 17 };
    char *text = malloc(LONG * 16 + 256), *at = text;
    const clock_t start = clock();
    het_profile *profile;
    int i;
    (void)state;
    at += sprintf(at, "{\"hetrain_profile\": 1, \"kinds\": [{\"name\": \"a\"}], \"units\": [\"a\"");
    for (i = 1; i < LONG; i++) at += sprintf(at, ",\"a\"");
    at += sprintf(at, "], \"blocks\": [{\"elements\": 1, \"units\": [0");
    for (i = 1; i < LONG; i++) at += sprintf(at, ",%d", i);
    sprintf(at, "]}]}");
    profile = read_text(text);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 4);
    het_profile_free(profile);
    free(text);
}

static void merging(void **state)
{
    static const struct { const char *from, *to, *words; } edits[] = {
        { "a \\\"model\\\"", "another", "is of model \"a \"model\"\", the other of \"another\"" },
        { "\"granule\": 512", "\"granule\": 128", "granules of 512 tokens, the other of 128" },
        { "bf16", "f32", "dtype bf16, the other f32" }, { "fast", "exact", "reduce fast, the other exact" },
        { "\"state\": 8", "\"state\": 12", "bytes \"state\" are not the same" },
        { "\"output\": 1024", "\"output\": 512", "kind \"first\" is not the same|output" },
        { "\"elements\": 4096", "\"elements\": 4112", "block 0 has 4096 elements in one and 4112" },
        { "\"units\": [\"first\", \"last\"]", "\"units\": [\"last\", \"first\"]", "unit 0 is of another kind" },
        { "\"units\": [\"first\", \"last\"]", "\"units\": [\"first\", \"first\", \"last\"]", "2 units of 2 kinds and 2 blocks, the other 3" } };
    het_profile *first = read_text(small_profile), *second, *merged = NULL;
    het_error error = { HET_OK, "" };
    char *text = edited(small_profile, "\"h100\", \"step_element\": 1e-12", "\"a100\", \"step_element\": 2e-12"), *text2;
    size_t i;
    (void)state;
    second = read_text(text);
    EXPECT_OK(het_profile_merge(first, second, NULL, &merged, &error));
    assert_int_equal(merged->devices, 2);
    assert_int_equal(merged->links, 1);
    assert_string_equal(merged->device[1].name, "a100");
    assert_true(merged->device[1].step_element > 1.5e-12 && merged->device[0].step_element < 1.5e-12);
    assert_true(merged->device[1].alone[1].backward.token > 0);
    het_profile_free(merged);
    free(text);
    text = edited(small_profile, "\"step_element\": 1e-12", "\"step_element\": 2e-12");
    text2 = edited(text, "\"wire\"", "\"air\"");
    het_profile_free(second);
    second = read_text(text2);
    EXPECT_OK(het_profile_merge(first, second, NULL, &merged, &error));
    assert_int_equal(merged->devices, 1);
    assert_int_equal(merged->links, 2);
    assert_true(merged->device[0].step_element > 1.5e-12);
    het_profile_free(merged);
    free(text);
    free(text2);
    het_profile_free(second);
    for (i = 0; i < sizeof edits / sizeof *edits; i++) {
        text = edited(small_profile, edits[i].from, edits[i].to);
        second = read_text(text);
        EXPECT_ERROR(het_profile_merge(first, second, NULL, &merged, &error), HET_ERR_INVALID, error.text, edits[i].words);
        assert_null(merged);
        het_profile_free(second);
        free(text);
    }
    het_profile_free(first);
}

/* ---- costs of a plan ---- */

static const char chain_profile[] =
    "{\"hetrain_profile\": 1, \"model\": \"chain\", \"bytes\": {\"weight\": 4, \"gradient\": 8, \"state\": 8, \"reduce\": 8, \"gather\": 4},\n"
    " \"kinds\": [{\"name\": \"a\", \"output\": 16, \"keep_weight\": 4}, {\"name\": \"b\", \"input\": 16, \"output\": 16, \"keep_input\": 8,\n"
    "   \"keep_weight\": 32},\n"
    "   {\"name\": \"c\", \"input\": 16, \"loss\": true}],\n"
    " \"units\": [\"a\", \"b\", \"b\", \"c\"],\n"
    " \"blocks\": [{\"elements\": 1000, \"units\": [0, 3]}, {\"elements\": 2000, \"units\": [1]}, {\"elements\": 2000, \"units\": [2]},\n"
    "   {\"elements\": 500, \"units\": [3], \"frozen\": true}],\n"
    " \"devices\": [{\"name\": \"fast\", \"step_element\": 1e-6, \"begin_element\": 2e-6, \"verdict_base\": 1e-3, \"verdict_element\": 4e-6,\n"
    "   \"message_byte\": 1e-7, \"ring_byte\": 1e-8, \"action\": 1e-4, \"max_tokens\": 96,\n"
    "   \"alone\": {\"a\": {\"forward\": [0.001, 1e-5, 0], \"backward\": [0.002, 2e-5, 0]}, \"c\": {\"backward\": [0.003, 0, 0]},\n"
    "     \"b\": {\"forward\": [0.01, 1e-4, 1e-6], \"backward\": [0.02, 2e-4, 2e-6], \"input\": [0.01, 1e-4, 1e-6], \"weight\": [0.01, 1e-4, 0],\n"
    "       \"recompute\": [0.005, 1e-4, 1e-6]}},\n"
    "   \"together\": {\"a\": {\"forward\": [0.002, 2e-5, 0]}, \"b\": {\"forward\": [0.02, 2e-4, 2e-6]}, \"c\": {}}}],\n"
    " \"links\": [{\"name\": \"wire\", \"latency\": 0.001, \"bandwidth\": 1e9}]}\n";

static void near(double got, double expected, const char *what)
{
    if (fabs(got - expected) > 1e-12 * fabs(expected)) fail_msg("%s is %.15g, not %.15g", what, got, expected);
}

/* What comes and leaves beside calls: of four units, whose blocks have 1000, 2000, 2000 and 1000 + 500 (frozen) elements, of which rank 0 of shares
   1:3 fetches, and does not own, three quarters; in near sets of two it fetches a half over the inner link, and sums go everywhere. */
static void flows_of_a_plan(void **state)
{
    static const char *const texts[2] = { "{\"pipelines\": [{\"stages\": [{\"rank\": 0, \"units\": [0, 4]}]}, {\"stages\": [{\"rank\": 1, "
        "\"units\": [0, 4]}]}], \"state_shares\": [1, 3], \"shard\": \"weights\"}",
        "{\"pipelines\": [{\"stages\": [{\"rank\": 0, \"units\": [0, 4]}]}, "
        "{\"stages\": [{\"rank\": 1, \"units\": [0, 4]}]}, {\"stages\": [{\"rank\": 2, \"units\": [0, 4]}]}, {\"stages\": [{\"rank\": 3, \"units\": "
        "[0, 4]}]}], \"near\": [0, 0, 1, 1], \"shard\": \"weights\"}" };
    static const char nodes[] = "{\"link\": {\"latency\": 0.5, \"bandwidth\": 1000}, \"members\": [{\"count\": 2, \"link\": {\"latency\": 0.25, "
        "\"bandwidth\": 8000}, \"members\": [{\"device\": \"fast\", \"count\": 2}]}]}";
    het_profile *profile = read_text(chain_profile);
    int i;
    (void)state;
    for (i = 0; i < 2; i++) {
        const double part = i == 0 ? 4 * 0.75 : 4 * 0.5, sums = 8 * 0.75; /* bytes an element; latency, slowness */
        const double late = i == 0 ? 0.5 : 0.25, slow = i == 0 ? 1e-3 : 1 / 8000.0, own = 1250;
        double again;
        het_cluster *cluster = NULL;
        het_cluster_device device[2];
        het_plan_costs *costs = NULL;
        het_error error = { HET_OK, "" };
        het_plan *plan;
        const het_stage_cost *c;
        shape s;
        memset(&s, 0, sizeof s);
        memset(device, 0, sizeof device);
        s.plan = texts[i], s.schedule = "1f1b", s.ranks = i == 0 ? 2 : 4, s.slices = 1;
        plan = read_plan(&s, 4);
        strcpy(device[0].profile, "fast"), strcpy(device[1].profile, "fast");
        device[0].speed = device[1].speed = 1;
        device[0].max_tokens = 64, device[1].max_tokens = 128;
        if (i == 0) EXPECT_OK(het_cluster_flat(2, device, 0.5, 1000, NULL, &cluster, &error));
        else EXPECT_OK(het_cluster_read(nodes, strlen(nodes), NULL, &cluster, &error));
        EXPECT_OK(het_profile_costs(profile, plan, cluster, HET_NO, NULL, &costs, &error));
        near(costs->costs.rank[0].max_tokens, i == 0 ? 64 : 96, "the most tokens of rank 0, by the cluster or the profile");
        near(costs->costs.rank[1].max_tokens, 96, "the most tokens of rank 1, by its profile");
        c = &costs->costs.stage[0];
        near(c->beside[HET_ACTION_F], 3 * late + part * 5000 * slow, "beside F");
        near(c->beside[HET_ACTION_I], 4 * late + part * 6500 * slow, "beside I");
        near(c->beside[HET_ACTION_W], 4 * 0.5 + sums * 6000 * 1e-3, "beside W");
        near(c->beside[HET_ACTION_B], 4 * late + part * 6500 * slow + 4 * 0.5 + sums * 6000 * 1e-3, "beside B");
        near(c->forward.base, 1e-4 + 0.001 + 2 * 0.01 + part * 5000 * 1e-7, "forward.base");
        near(c->backward.base, 1e-4 + 0.002 + 0.003 + 2 * 0.02 + part * 6500 * 1e-7 + 2 * sums * 6000 * 1e-8, "backward.base");
        near(costs->costs.rank[0].begin, 1e-4 + 2e-6 * own + late + part * 1000 * slow, "begin");
        near(costs->costs.rank[0].verdict, 1e-3 + 4e-6 * own + 2 * 0.5 + sums * 3000 * 1e-3, "verdict");
        near(c->move[0][0].seconds, late + part * 2000 * slow, "what comes beside a");
        near(c->move[0][0].part, 1e-5 / 2.1e-4, "a's part of F"); /* granules of 0 tokens: nothing is known of pairs */
        near(c->move[0][1].seconds, late + part * 2000 * slow, "what comes beside b");
        near(c->move[0][2].seconds, late + part * 1500 * slow, "what comes beside the other b");
        near(c->move[0][2].part, 1e-4 / 2.1e-4, "b's part of F");
        near(c->move[0][3].count, 0, "what has no F");
        near(c->move[1][0].seconds, 0.5 + sums * 2000 * 1e-3, "what leaves beside a");
        near(c->move[1][1].seconds, late + part * 1000 * slow + 0.5 + sums * 2000 * 1e-3, "what comes and leaves beside b");
        near(c->move[1][3].seconds, late + part * 2000 * slow, "what comes beside c");
        near(c->move[2][0].seconds, late + part * 2000 * slow + 0.5 + sums * 1000 * 1e-3, "what leaves beside a behind a backward pass as well");
        near(c->move[2][1].seconds, late + part * 2000 * slow, "what comes beside b there");
        het_plan_costs_free(costs);
        plan->stage[0].recompute = HET_RECOMPUTE_STAGE, plan->stage[0].keep = 1; /* slices that recompute fetch once more */
        EXPECT_OK(het_profile_costs(profile, plan, cluster, HET_NO, NULL, &costs, &error));
        c = &costs->costs.stage[0];
        near(c->beside[HET_ACTION_I], 4 * late + part * 6500 * slow, "beside I of slices that keep all");
        near(c->beside[HET_ACTION_B], 4 * late + part * 6500 * slow + 4 * 0.5 + sums * 6000 * 1e-3, "beside B of slices that keep all");
        near(c->beside[4], 3 * late + part * 5000 * slow, "beside it of others");
        near(c->backward.base, 1e-4 + 0.005 + 2 * 0.02 + part * 6500 * 1e-7 + 2 * sums * 6000 * 1e-8, "backward.base where all is kept");
        again = c->again.base;
        het_plan_costs_free(costs);
        plan->shard = HET_SHARD_GRADIENTS;
        EXPECT_OK(het_profile_costs(profile, plan, cluster, HET_NO, NULL, &costs, &error));
        near(costs->costs.stage[0].beside[HET_ACTION_F], 0, "beside F, of gradients");
        near(again, costs->costs.stage[0].again.base + part * 5000 * 1e-7, "again.base");
        het_plan_costs_free(costs);
        het_cluster_free(cluster);
        het_plan_free(plan);
    }
    het_profile_free(profile);
}

/* A plan with a stage of a rank, of a pipeline or of units that there are not. */
static void plans_are_proven_first(void **state)
{
    int64_t i;
    (void)state;
    for (i = 0; i < 3; i++) {
        het_profile *profile = read_text(chain_profile);
        het_cluster *cluster = NULL;
        het_plan_costs *costs = NULL;
        het_simulation *simulation = NULL;
        het_search_desc search;
        het_adapt_desc adapting;
        het_adapt *adapt = NULL;
        het_error error = { HET_OK, "" };
        const het_shape most = { 10, 1, 0 };
        het_needs needs[2];
        het_memory memory[2];
        het_plan *plan;
        shape s;
        memset(needs, 0, sizeof needs);
        memset(&s, 0, sizeof s);
        memset(&search, 0, sizeof search);
        memset(&adapting, 0, sizeof adapting);
        s.plan = "pp";
        s.schedule = "1f1b";
        s.ranks = 2;
        s.slices = 1;
        plan = read_plan(&s, profile->units);
        if (i == 0) plan->stage[0].rank = -1;
        else if (i == 1) plan->stage[1].pipeline = INT64_C(1) << 40;
        else plan->stage[1].unit_end = INT64_MIN;
        EXPECT_OK(het_cluster_flat(2, NULL, 0, 0, NULL, &cluster, &error));
        search.profile = profile;
        search.cluster = cluster;
        search.granules = search.granule_tokens = 4;
        adapting.search = &search;
        EXPECT_ERROR(het_profile_costs(profile, plan, NULL, HET_DEFAULT, NULL, &costs, &error), HET_ERR_INVALID, error.text, "het_profile_costs: ");
        EXPECT_ERROR(het_profile_memory(profile, plan, needs, &most, memory, &error), HET_ERR_INVALID, error.text, "het_profile_memory: ");
        EXPECT_ERROR(het_plan_predict(&search, plan, 1, HET_NO, &simulation, &error), HET_ERR_INVALID, error.text, "het_plan_predict: ");
        EXPECT_OK(het_adapt_create(&adapting, &adapt, &error));
        EXPECT_ERROR(het_adapt_start(adapt, plan, 1, &error), HET_ERR_INVALID, error.text, "het_adapt_start: ");
        het_adapt_destroy(adapt);
        het_plan_free(plan);
        het_cluster_free(cluster);
        het_profile_free(profile);
    }
}

static void costs_of_a_plan(void **state)
{
    het_profile *profile = read_text(chain_profile);
    het_cluster_device device[2];
    het_cluster *cluster = NULL;
    het_plan *plan;
    het_plan_costs *costs = NULL;
    het_simulation *simulation = NULL;
    het_schedule *schedule;
    het_error error = { HET_OK, "" };
    double tokens[3] = { 10, 20, 30 }, pairs[3] = { 55, 210, 465 }, sum = 0;
    shape s;
    int64_t i;
    (void)state;
    memset(&s, 0, sizeof s);
    memset(device, 0, sizeof device);
    s.plan = "pp:0-1|2-3", s.schedule = "1f1b", s.ranks = 2, s.slices = 1, s.recompute = HET_RECOMPUTE_UNIT;
    plan = read_plan(&s, 4);
    for (i = 0; i < 2; i++) {
        strcpy(device[i].profile, "fast");
        device[i].speed = i == 0 ? 1 : 0.5;
    }
    EXPECT_OK(het_cluster_flat(2, device, 0.5, 100, NULL, &cluster, &error));
    profile->granule = 512;
    EXPECT_OK(het_profile_costs(profile, plan, cluster, HET_NO, NULL, &costs, &error));
    near(costs->costs.granule, 512, "tokens between which rows are cut");
    /* rank 0: a and b, recomputed; copies of its output */
    near(costs->costs.stage[0].forward.base, 1e-4 + 0.001 + 0.01, "forward.base");
    near(costs->costs.stage[0].forward.token, 1e-5 + 1e-4 + 16e-7, "forward.token");
    near(costs->costs.stage[0].forward.pair, 1e-6, "forward.pair");
    near(costs->costs.stage[0].backward.base, 1e-4 + 0.002 + 0.02 + 0.005, "backward.base");
    near(costs->costs.stage[0].input.pair, 2e-6, "input.pair");
    near(costs->costs.stage[0].weight.token, 1e-4, "weight.token");
    near(costs->costs.stage[0].bytes, 16, "bytes");
    near(costs->costs.stage[0].keep_weight, 16 + 16, "kept where recomputed: the streams");
    /* rank 1 at half the speed: b, recomputed or not, and c */
    near(costs->costs.stage[1].forward.base, 2 * (1e-4 + 0.01), "forward.base at half the speed");
    near(costs->costs.stage[1].backward.token, 2 * (2e-4 + (plan->stage[1].recompute ? 1e-4 : 0) + 16e-7), "backward.token at half the speed");
    near(costs->costs.stage[1].backward.base, 2 * (1e-4 + 0.02 + 0.003 + (plan->stage[1].recompute ? 0.005 : 0)), "backward.base at half the speed");
    /* rank 0 holds blocks 0 and 1, rank 1 blocks 0, 2 and 3, which is frozen; block 0 is owned by halves */
    near(costs->costs.rank[0].begin, 1e-4 + 2e-6 * 3000, "begin");
    near(costs->costs.rank[1].begin, 2 * (1e-4 + 2e-6 * 3000), "begin at half the speed");
    near(costs->costs.rank[0].verdict, 1e-3 + 4e-6 * 2500, "verdict");
    near(costs->costs.rank[1].step, 2e-6, "step");
    near(costs->costs.block[0].reduce_bytes, 8000, "reduce_bytes");
    near(costs->costs.block[0].gather_bytes, 4000, "gather_bytes");
    near(costs->costs.block[0].windows * HETRAIN_FLOW_WINDOW, 1000, "windows");
    near(costs->costs.block[3].step, 0, "a frozen block");
    assert_int_equal(costs->costs.blocks, 4);
    assert_int_equal(costs->costs.groups, 1);
    het_plan_costs_free(costs);
    plan->stage[1].rank = 0, plan->state_share[1] = 0; /* rank 1 is idle */
    EXPECT_OK(het_profile_costs(profile, plan, cluster, HET_NO, NULL, &costs, &error));
    near(costs->costs.rank[0].begin, 1e-4 + 2e-6 * 5000, "begin with all blocks");
    near(costs->costs.rank[1].begin, 0, "begin of an idle rank");
    near(costs->costs.rank[1].verdict, 0, "verdict of an idle rank");
    plan->stage[1].rank = 1, plan->state_share[1] = 1;
    het_plan_costs_free(costs);
    plan->stage[0].keep = 1; /* what recomputation takes stands apart */
    EXPECT_OK(het_profile_costs(profile, plan, cluster, HET_NO, NULL, &costs, &error));
    near(costs->costs.stage[0].backward.base, 1e-4 + 0.002 + 0.02, "backward.base without it");
    near(costs->costs.stage[0].input.pair, 1e-6, "input.pair without it");
    near(costs->costs.stage[0].again.base, 0.005, "again.base");
    near(costs->costs.stage[0].again.token, 1e-4, "again.token");
    near(costs->costs.stage[0].again.pair, 1e-6, "again.pair");
    near(costs->costs.stage[0].keep_lean, 16 + 16, "kept where recomputed: the streams");
    near(costs->costs.stage[0].keep_weight, 16 + 16 + 4 + 8 + 32, "kept where all is");
    plan->stage[0].keep = 0;
    het_plan_costs_free(costs);
    plan->stage[0].recompute_units = 1; /* a alone */
    EXPECT_OK(het_profile_costs(profile, plan, cluster, HET_NO, NULL, &costs, &error));
    near(costs->costs.stage[0].backward.base, 1e-4 + 0.002 + 0.02, "backward.base where only a recomputes");
    near(costs->costs.stage[0].keep_weight, 16 + 16 + 8 + 32, "kept where only a recomputes: all but its 4 bytes");
    plan->stage[0].recompute_units = 0;
    het_plan_costs_free(costs);
    strcpy(cluster->device[1].profile, "slow");
    EXPECT_ERROR(het_profile_costs(profile, plan, cluster, HET_NO, NULL, &costs, &error), HET_ERR_INVALID, error.text, "rank 1|\"slow\"|1");
    assert_null(costs);
    het_cluster_free(cluster);
    het_plan_free(plan);
    /* one rank: everything one after the other */
    s.plan = "dp", s.ranks = 1, s.recompute = HET_RECOMPUTE_NONE;
    plan = read_plan(&s, 4);
    schedule = complete_lists(profile, plan, 3);
    EXPECT_OK(het_profile_costs(profile, plan, NULL, HET_NO, NULL, &costs, &error));
    costs->costs.tokens = tokens, costs->costs.pairs = pairs;
    EXPECT_OK(het_simulate(plan, schedule, &costs->costs, HET_NO, NULL, &simulation, &error));
    for (i = 0; i < 3; i++) sum += 2e-4 + 0.001 + 0.002 + 0.003 + 2 * (0.01 + 0.02) + tokens[i] * (3e-5 + 6e-4) + pairs[i] * 6e-6;
    sum += 1e-4 + 2e-6 * 5000 + 1e-3 + 4e-6 * 5000 + 1e-6 * 5000;
    for (i = schedule->start[0]; i < schedule->start[1]; i++) sum += schedule->action[i].kind == HET_ACTION_STEP ? 1e-4 : 0;
    if (fabs(simulation->makespan - sum) > 1e-9) fail_msg("one rank takes %.12g, not %.12g", simulation->makespan, sum);
    het_simulation_free(simulation);
    het_plan_costs_free(costs);
    EXPECT_OK(het_profile_costs(profile, plan, NULL, HET_YES, NULL, &costs, &error));
    near(costs->costs.stage[0].forward.pair, 4e-6, "with all ranks at work");
    near(costs->costs.every_link.latency, 0.001, "the profile's link");
    het_plan_costs_free(costs);
    het_schedule_free(schedule);
    het_plan_free(plan);
    het_profile_free(profile);
}

/* Two equal stages in gpipe with m micro-batches are at work m / (m + 1) of the time, whatever they take: so far are they from alone to together. */
static void between_alone_and_together(void **state)
{
    het_profile *profile = read_text(chain_profile);
    het_plan *plan;
    het_plan_costs *costs = NULL;
    het_simulation *simulation = NULL;
    het_schedule *schedule;
    het_error error = { HET_OK, "" };
    shape s;
    int64_t g, m;
    (void)state;
    memset(&s, 0, sizeof s);
    s.plan = "pp:0-1|2-3", s.schedule = "gpipe", s.ranks = 2, s.slices = 1, s.recompute = HET_RECOMPUTE_NONE;
    plan = read_plan(&s, 4);
    for (m = 1; m <= 5; m += 2) {
        const double part = (double)m / (double)(m + 1);
        schedule = complete_lists(profile, plan, m);
        EXPECT_OK(het_profile_costs(profile, plan, NULL, HET_YES, NULL, &costs, &error));
        costs->costs.rank = NULL, costs->costs.block = NULL, costs->costs.blocks = 0;
        costs->costs.every_link.latency = costs->costs.every_link.bandwidth = 0;
        for (g = 0; g < 2; g++) {
            memset(&costs->alone[g], 0, sizeof costs->alone[g]);
            costs->alone[g].forward.base = 1, costs->alone[g].backward.base = 2;
            costs->together[g] = costs->stage[g] = costs->alone[g];
        }
        EXPECT_OK(het_simulate_costs(plan, schedule, costs, HET_NO, NULL, &simulation, &error));
        near(simulation->makespan, 3 * (double)(m + 1), "nothing between them");
        het_simulation_free(simulation);
        for (g = 0; g < 2; g++) costs->together[g].forward.base = 2, costs->together[g].backward.base = 4;
        EXPECT_OK(het_simulate_costs(plan, schedule, costs, HET_NO, NULL, &simulation, &error));
        near(simulation->makespan, 3 * (1 + part) * (double)(m + 1), "between");
        near(costs->stage[1].backward.base, 2 * (1 + part), "backward.base");
        het_simulation_free(simulation);
        het_plan_costs_free(costs);
        het_schedule_free(schedule);
    }
    EXPECT_ERROR(het_simulate_costs(plan, NULL, NULL, HET_NO, NULL, &simulation, &error), HET_ERR_INVALID, error.text, "costs is NULL");
    het_plan_free(plan);
    het_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_agree), cmocka_unit_test(bytes_of_bf16_streams_agree),
        cmocka_unit_test(bytes_of_teams_agree), cmocka_unit_test(bytes_of_teams_by_columns_agree),
        cmocka_unit_test(bytes_of_many_copies_agree), cmocka_unit_test(bytes_of_experts_agree), cmocka_unit_test(experts_are_planned),
        cmocka_unit_test(teams_have_room_for_long_granules),
        cmocka_unit_test(bytes_of_divided_plans_agree), cmocka_unit_test(bytes_of_frozen_weights_agree),
        cmocka_unit_test(bytes_of_several_updates_agree),
        cmocka_unit_test(flows_of_a_plan),
        cmocka_unit_test(bytes_of_mixed_ranks_suffice),
        cmocka_unit_test(units_that_say_what_they_take),
        cmocka_unit_test(ranks_together),
        cmocka_unit_test(ordinals_have_names), cmocka_unit_test(measuring_fails_well),
        cmocka_unit_test(hand_written),
        cmocka_unit_test(numbers_round_trip),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(hostile_files), cmocka_unit_test(bytes_of_large_numbers), cmocka_unit_test(long_chains_are_read_soon),
        cmocka_unit_test(merging),
        cmocka_unit_test(plans_are_proven_first),
        cmocka_unit_test(costs_of_a_plan),
        cmocka_unit_test(between_alone_and_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
