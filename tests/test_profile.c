/* Profiles: bytes against het_memory_estimate, times against units whose cost is known, files against what they were written from. */
#include "support.h"

#include "hetrain_plan.h"

/* ---- bytes ---- */

typedef struct shape {
    const char *model, *plan, *schedule;
    int64_t ranks, slices, micro_batches, tokens, sequences;
    het_choice recompute;
    het_reduce reduce;
    double state[4];
} shape;

static int64_t close_to(const char *what, const shape *s, int64_t rank, size_t got, size_t expected, int exact)
{
    const double difference = (double)got - (double)expected, relative = difference / (double)(expected > 0 ? expected : 1);
    if (exact ? got == expected : fabs(relative) <= 0.01) return 0;
    fprintf(stderr, "%s, %s, %s, %lld slices, recompute %d: rank %lld: %s: %lld, het_memory_estimate says %lld\n", s->model, s->plan, s->schedule,
        (long long)s->slices, (int)s->recompute, (long long)rank, what, (long long)got, (long long)expected);
    return 1;
}

/* The lists of all ranks as het_create makes them. */
static het_schedule *complete_lists(const het_profile *profile, const het_plan *plan, int64_t micro_batches)
{
    het_error error = { HET_OK, "" };
    het_schedule *compute = NULL, *whole = NULL;
    int64_t counts[8], *start = (int64_t *)support_alloc((size_t)profile->blocks + 1, sizeof(int64_t)), b;
    het_blocks blocks;
    het_plan_divide(plan, micro_batches, counts);
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

static het_plan *read_plan(const shape *s, int64_t units)
{
    het_error error = { HET_OK, "" };
    het_plan_desc desc;
    het_plan *plan = NULL;
    int64_t r;
    memset(&desc, 0, sizeof desc);
    desc.units = units;
    desc.ranks = s->ranks;
    desc.schedule = s->schedule;
    desc.slices = s->slices;
    desc.recompute = s->recompute;
    EXPECT_OK(het_plan_read(&desc, s->plan, strlen(s->plan), &plan, &error));
    for (r = 0; r < s->ranks && s->state[0] > 0; r++) plan->state_share[r] = s->state[r];
    return plan;
}

static int64_t check_shape(const shape *s)
{
    het_device_desc device[8];
    het_desc desc;
    het_error error = { HET_OK, "" };
    het_profile *profile = NULL;
    het_plan *plan;
    het_schedule *schedule;
    het_needs needs[8];
    het_shape most;
    het_memory got[8], expected;
    int64_t r, wrong = 0;
    memset(&desc, 0, sizeof desc);
    memset(device, 0, sizeof device);
    memset(&most, 0, sizeof most);
    EXPECT_OK(het_model_parse(s->model, &desc.model, &error));
    desc.devices = device;
    desc.device_count = s->ranks;
    desc.max_tokens = most.tokens = s->tokens;
    desc.max_sequences = most.sequences = s->sequences;
    desc.max_micro_batches = s->micro_batches;
    desc.reduce = s->reduce;
    EXPECT_OK(het_profile_describe(&desc, s->model, NULL, &profile, &error));
    plan = read_plan(s, profile->units);
    desc.plan = plan;
    schedule = complete_lists(profile, plan, s->micro_batches);
    EXPECT_OK(het_profile_needs(plan, schedule, NULL, needs, &error));
    EXPECT_OK(het_profile_memory(profile, plan, needs, &most, got, &error));
    for (r = 0; r < s->ranks; r++) {
        const int exact = s->tokens % 16 == 0 && s->slices == 1;
        EXPECT_OK(het_memory_estimate(&desc, r, &expected, &error));
        wrong += close_to("weights", s, r, got[r].weights, expected.weights, 1);
        wrong += close_to("gradients", s, r, got[r].gradients, expected.gradients, 0);
        wrong += close_to("optimizer", s, r, got[r].optimizer, expected.optimizer, s->ranks == 1);
        wrong += close_to("activations", s, r, got[r].activations, expected.activations, 0);
        wrong += close_to("workspace", s, r, got[r].workspace, expected.workspace, 0);
        wrong += close_to("communication", s, r, got[r].communication, expected.communication, 0);
        wrong += close_to("device", s, r, got[r].device, expected.device, 0);
        (void)exact;
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
        { "pp", "sliced-1f1b", 3, 2 }, { "pp", "v-min", 2, 1 } };
    size_t m, p;
    int64_t wrong = 0, checked = 0;
    int again;
    (void)state;
    for (m = 0; m < sizeof models / sizeof *models; m++)
        for (p = 0; p < sizeof plans / sizeof *plans; p++)
            for (again = 0; again < 2; again++) {
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
                s.recompute = again ? HET_YES : HET_NO;
                s.reduce = p % 4 == 3 ? HET_REDUCE_FAST : HET_REDUCE_EXACT;
                if (p % 2 == 1) s.state[0] = 3, s.state[1] = 1, s.state[2] = 2, s.state[3] = 1;
                wrong += check_shape(&s);
                checked++;
            }
    assert_int_equal(checked, 156);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
