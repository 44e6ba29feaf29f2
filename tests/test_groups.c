/* Ranks whose devices reach each other without the host: the bits of one rank in every mixture with others, bytes as the formulas say, and errors
   that name rank and op whichever call of the provider fails, or never comes to an end. */
#define _POSIX_C_SOURCE 200809L
#include "late_groups.h"
#include "hetrain_plan.h"

#define STEPS 3
#define MOST 5

/* ---- layouts: a letter a rank. c: a CPU; 0 to 9: a late device at that place ---- */

typedef struct layout {
    support_run run;
    het_device_desc device[MOST];
} layout;

static void layout_ranks(layout *l, const char *ranks)
{
    const size_t count = strlen(ranks);
    size_t i;
    assert_true(count <= MOST);
    memset(l->device, 0, sizeof l->device);
    for (i = 0; i < count; i++) {
        if (ranks[i] == 'c') continue;
        l->device[i].iface = &late_table;
        l->device[i].ordinal = ranks[i] - '0';
    }
    l->run.desc.layout.devices = l->device;
    l->run.desc.layout.device_count = (int64_t)count;
}

static void layout_start(layout *l, het_family family)
{
    const het_model_desc model = support_deep_model(family);
    support_run_start(&l->run, &model, STEPS, SUPPORT_SHORT);
    l->run.desc.layout.deadline = l->run.desc.layout.stall_deadline = 300.0; /* nothing waits that long, on however slow a machine */
    fake_reset();
}

static void layout_group(layout *l, const char *ranks, const char *plan)
{
    layout_ranks(l, ranks);
    l->run.desc.layout.communicators.iface = &fake_iface;
    support_run_plan(&l->run, plan, NULL, 1);
}

static void layout_end(layout *l)
{
    support_run_end(&l->run);
    if (fake.wrong > 0) fail_msg("%d uses against the contract, the first: %s", (int)fake.wrong, fake.what);
    assert_int_equal(fake.live, 0);
    fake_reset();
}

/* ---- the same bits ---- */

typedef struct shape { const char *ranks, *plan, *schedule; int slices; int64_t joins; } shape; /* joins: members of all groups */
static const shape shapes[] = {
    { "01", "dp", NULL, 1, 2 }, { "012", "dp", NULL, 1, 3 }, { "01234", "dp", NULL, 1, 5 }, /* one group */
    { "01c", "dp", NULL, 1, 2 }, { "c0c1", "dp", NULL, 1, 2 }, { "0c12c", "dp", NULL, 1, 3 }, /* two levels */
    { "0011", "dp", NULL, 1, 4 }, { "010", "dp", NULL, 1, 2 }, { "00c", "dp", NULL, 1, 0 }, { "01010", "dp", NULL, 1, 4 }, /* places met twice */
    { "01", "pp", "1f1b", 1, 4 + 2 }, { "012", "pp", "zb-h1", 1, 8 + 2 }, { "0c1", "pp", "1f1b", 1, 2 }, /* tied ends are a group as well */
    { "c01", "pp", "gpipe", 2, 4 },
    { "0123", "dp2xpp2", "1f1b", 1, 8 + 4 + 4 }, { "01c2", "dp2xpp2", "zb-h1", 1, 4 + 3 + 2 }, { "0123", "pp", "interleaved", 1, -1 },
    { "012", "pp", "interleaved", 1, -1 }, { "0101", "pp", "zb-v", 1, -1 }, { "01", "pp", "sliced-1f1b", 3, 4 + 2 },
    { "0c1", "{\"schedule\":\"1f1b\",\"pipelines\":[{\"share\":2,\"stages\":[{\"rank\":0,\"units\":[0,3]},{\"rank\":1,\"units\":[3,5]},"
      "{\"rank\":2,\"units\":[5,8]}]},{\"share\":1,\"stages\":[{\"rank\":2,\"units\":[0,4]},{\"rank\":0,\"units\":[4,8]}]}],"
      "\"state_shares\":[1,0,3]}", NULL, 1, -1 },
    { "01", "cp2", NULL, 1, 2 + 2 }, { "012", "cp3", NULL, 1, 3 + 3 }, { "01", "hp2", NULL, 1, 2 + 2 }, { "01", "tp2", NULL, 1, -1 }, /* teams */
    { "0123", "dp2xhp2", NULL, 1, -1 }, { "0123", "pp2xtp2", "1f1b", 1, -1 }, { "0c12", "dp2xcp2", NULL, 1, -1 }, { "00", "cp2", NULL, 1, 0 },
    { "01", "tp:3,1", NULL, 1, -1 },
    { "012", "{\"schedule\":\"1f1b\",\"teams\":[{\"ranks\":[0,1],\"shares\":[3,1]},{\"ranks\":[2]}],\"pipelines\":[{\"share\":1,\"stages\":"
      "[{\"rank\":0,\"units\":[0,5]},{\"rank\":2,\"units\":[5,8]}]}]}", NULL, 1, -1 },
    { "01234", "{\"schedule\":\"1f1b\",\"teams\":[{\"ranks\":[0,1,2],\"shares\":[1,3,2]},{\"ranks\":[3,4],\"shares\":[2,1]}],\"pipelines\":"
      "[{\"share\":1,\"stages\":[{\"rank\":0,\"units\":[0,5]},{\"rank\":3,\"units\":[5,8]}]}]}", NULL, 1, -1 },
};

static void one_shape(int number, het_family family, int variant)
{
    const shape *s = &shapes[number];
    support_result base;
    char what[200];
    layout l;
    layout_start(&l, family);
    if (variant == 1) l.run.desc.dtype = HET_BF16;
    if (variant == 2) l.run.desc.layout.shard = HET_SHARD_GRADIENTS;
    base = support_train(&l.run, SUPPORT_TOGETHER);
    layout_ranks(&l, s->ranks);
    l.run.desc.layout.communicators.iface = &fake_iface;
    support_run_plan(&l.run, s->plan, s->schedule, s->slices);
    if (variant == 3) { /* uneven: some own nothing, one owns most */
        l.run.plan->state_share[0] = 0.0;
        l.run.plan->state_share[strlen(s->ranks) - 1] = 3.0;
    }
    snprintf(what, sizeof what, "%s over %s, family %d, variant %d", s->plan, s->ranks, (int)family, variant);
    support_train_same(&base, &l.run, SUPPORT_APART, what);
    if (s->joins >= 0 && family == HET_GPT2 && fake.joins != s->joins) fail_msg("%s: %d members joined", what, (int)fake.joins);
    if (fake.joins > 0) assert_true(fake.calls[FAKE_TEST] > 0 && fake.calls[FAKE_GATHER] + fake.calls[FAKE_EXCHANGE] > 0);
    layout_end(&l);
}

static void every_mixture_has_the_same_bits(void **state)
{
    const int rounds = support_environment("HETRAIN_TEST_ROUNDS", 1);
    int number, round;
    (void)state;
    for (round = 0; round < rounds; round++)
        for (number = 0; number < (int)(sizeof shapes / sizeof *shapes); number++) {
            one_shape(number, HET_GPT2, round + number % 2 * 3);
            if (number % 3 == 0 || round > 0) one_shape(number, HET_LLAMA, (number + round) % 4);
        }
}

static void narrow_types_and_sharded_gradients(void **state)
{
    (void)state;
    one_shape(0, HET_GPT2, 1);
    one_shape(3, HET_GPT2, 1);
    one_shape(10, HET_GPT2, 1);
    one_shape(1, HET_LLAMA, 2);
    one_shape(3, HET_GPT2, 2);
}

/* Blocks of the host with a fence behind them, that stays as it is: lanes between teams carry the rows of several members, and only their
   envelopes lie on the host. */
enum { FENCE = 1 << 16 };

static void *fenced_alloc(void *user, size_t size, size_t align)
{
    void *p = NULL;
    (void)user;
    return posix_memalign(&p, align, size + FENCE) == 0 ? memset(p, 0x5A, size + FENCE) : NULL;
}

static void fenced_free(void *user, void *p, size_t size)
{
    for (size_t i = 0; i < FENCE; i++) *(int *)user += ((unsigned char *)p)[size + i] != 0x5A;
    free(p);
}

static void lanes_between_teams_keep_to_their_memory(void **state)
{
    static const char *const plans[][2] = {
        { "012", "{\"teams\":[{\"ranks\":[0,1],\"shares\":[3,1]}],\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,5]},"
          "{\"rank\":2,\"units\":[5,8]}]}]}" },
        { "0123", "pp2xcp2" }
    };
    (void)state;
    for (int i = 0; i < 2; i++) {
        support_result base;
        int beyond = 0;
        layout l;
        layout_start(&l, HET_LLAMA);
        base = support_train(&l.run, SUPPORT_TOGETHER);
        layout_group(&l, plans[i][0], plans[i][1]);
        l.run.desc.host.allocator.alloc = fenced_alloc;
        l.run.desc.host.allocator.free = fenced_free;
        l.run.desc.host.allocator.user = &beyond;
        support_train_same(&base, &l.run, SUPPORT_TOGETHER, plans[i][1]);
        assert_int_equal(beyond, 0);
        layout_end(&l);
    }
}

/* Float sums: members are added in one order, so that two runs agree, and stay close to the exact one. */
static void fast_sums_repeat(void **state)
{
    support_result exact, fast, again;
    layout l;
    int i;
    (void)state;
    layout_start(&l, HET_LLAMA);
    exact = support_train(&l.run, SUPPORT_TOGETHER);
    layout_group(&l, "01c2", "dp");
    l.run.desc.reduce = HET_REDUCE_FAST;
    fast = support_train(&l.run, SUPPORT_APART);
    again = support_train(&l.run, SUPPORT_APART);
    assert_true(support_same(&fast, &again, "a second run"));
    for (i = 0; i < STEPS; i++) assert_true(fabs(fast.loss[i] - exact.loss[i]) <= 1e-4 * exact.loss[i]);
    layout_end(&l);
}

/* Evaluation, inference, reading: what is not a step. */
static void what_is_not_a_step(void **state)
{
    support_group group;
    het_step_info x, y;
    het_ctx *a, *b;
    float logits[2][700];
    const int32_t token[9] = { 1, 5, 7, 2, 9, 11, 3, 0, 4 };
    layout l;
    (void)state;
    layout_start(&l, HET_GPT2);
    a = support_create(&l.run.desc);
    layout_group(&l, "01c2", "dp2xpp2");
    b = support_create(&l.run.desc);
    support_group_start(&group, &l.run.data, 0, SUPPORT_APART);
    EXPECT_OK(het_step(a, group.batch, group.count, NULL));
    EXPECT_OK(het_step(b, group.batch, group.count, NULL));
    EXPECT_OK(het_evaluate(a, group.batch, group.count, &x));
    EXPECT_OK(het_evaluate(b, group.batch, group.count, &y));
    assert_true(x.loss == y.loss);
    EXPECT_OK(het_gradients(a, group.batch, group.count, &x));
    EXPECT_OK(het_gradients(b, group.batch, group.count, &y));
    assert_true(x.gradient_norm == y.gradient_norm);
    support_same_state(a, b, 1, "one rank and four");
    EXPECT_OK(het_infer(a, token, 9, 0, logits[0]));
    EXPECT_OK(het_infer(b, token, 4, 0, logits[1]));
    EXPECT_OK(het_infer(b, token + 4, 5, 4, logits[1]));
    assert_memory_equal(logits[0], logits[1], (size_t)l.run.desc.model.vocab * sizeof **logits);
    het_destroy(b);
    l.run.desc.inference = HET_YES; /* lanes in one direction, no reductions */
    fake.joins = 0;
    b = support_create(&l.run.desc);
    assert_int_equal(fake.joins, 2);
    het_destroy(b);
    het_destroy(a);
    support_group_end(&group);
    layout_end(&l);
}

/* ---- bytes ---- */

static int64_t padded_elements(het_ctx *ctx)
{
    int64_t p, elements = 0;
    for (p = 0; p < het_parameter_count(ctx); p++) {
        het_parameter_info info;
        EXPECT_OK(het_parameter_get_info(ctx, p, &info));
        elements += (info.count + 15) / 16 * 16;
    }
    return elements;
}

static int64_t sent(het_ctx *ctx, int64_t from, int64_t to, int transfers)
{
    het_timeline t;
    het_get_timeline(ctx, from, &t);
    return transfers ? t.traffic[to].transfer_bytes : t.traffic[to].reduction_bytes;
}

/* One group: each sends what it does not own, to its owner, and gets it back as floats. Two levels, ranks 0 and 1 in a cluster beside rank 2:
   1 collects for 2, which sends to both; weights go backwards. */
static void traffic_is_what_the_formulas_say(void **state)
{
    static const char *const ranks[] = { "012", "01c" };
    int which;
    (void)state;
    for (which = 0; which < 2; which++) {
        int64_t elements, own[3], i, j, records = 0, total = 0;
        layout l;
        het_ctx *ctx;
        layout_start(&l, HET_LLAMA);
        layout_group(&l, ranks[which], "dp");
        l.run.plan->state_share[1] = 2.0;
        l.run.desc.reduce = HET_REDUCE_EXACT;
        ctx = support_create(&l.run.desc);
        (void)support_step(ctx, &l.run.data, 0, SUPPORT_APART); /* measured, repeated: everything twice */
        elements = padded_elements(ctx);
        for (i = 0; i < 3; i++) {
            het_memory memory;
            het_timeline t;
            het_get_memory(ctx, i, &memory);
            own[i] = (int64_t)memory.optimizer / 8;
            het_get_timeline(ctx, i, &t);
            for (j = 0; j < t.records; j++)
                if (t.record[j].action.kind == HET_ACTION_REDUCE || t.record[j].action.kind == HET_ACTION_GATHER) records += t.record[j].bytes;
        }
        for (i = 0; i < 3; i++)
            for (j = 0; j < 3; j++) total += i == j ? 0 : sent(ctx, i, j, 0);
        assert_int_equal(total, 2 * records);
        if (which == 0) {
            for (i = 0; i < 3; i++)
                for (j = 0; j < 3; j++)
                    if (i != j) assert_int_equal(sent(ctx, i, j, 0), 2 * (8 * own[j] + 4 * own[i]));
        } else {
            assert_int_equal(sent(ctx, 1, 0, 0), 2 * (8 * own[0] + 4 * (own[1] + own[2])));
            assert_int_equal(sent(ctx, 0, 1, 0), 2 * (8 * (own[1] + own[2]) + 4 * own[0]));
            assert_int_equal(sent(ctx, 0, 2, 0), 2 * 4 * own[0]);
            assert_int_equal(sent(ctx, 1, 2, 0), 2 * (8 * own[2] + 4 * own[1]));
            assert_int_equal(sent(ctx, 2, 0, 0), 2 * 8 * own[0]);
            assert_int_equal(sent(ctx, 2, 1, 0), 2 * (8 * own[1] + 4 * own[2]));
            assert_int_equal(total, 2 * 2 * 12 * elements); /* as of one group */
        }
        het_destroy(ctx);
        layout_end(&l);
    }
}

/* Two messages a cut, counted once on the lane, with memory of the device for them, as het_memory_estimate said; no room on the host. */
static void messages_count_their_rows(void **state)
{
    het_memory planned, used, far;
    het_timeline t;
    int64_t rows, j, recorded = 0;
    het_error error;
    het_ctx *ctx;
    layout l;
    (void)state;
    layout_start(&l, HET_LLAMA);
    layout_group(&l, "01", "pp");
    l.run.desc.reduce = HET_REDUCE_FAST;
    EXPECT_OK(het_memory_estimate(&l.run.desc, 1, &planned, &error));
    ctx = support_create(&l.run.desc);
    het_get_memory(ctx, 1, &used);
    assert_memory_equal(&planned, &used, sizeof used);
    (void)support_step(ctx, &l.run.data, 0, SUPPORT_APART);
    rows = l.run.data.tokens * l.run.desc.model.width * 4;
    assert_int_equal(sent(ctx, 0, 1, 1), rows);
    assert_int_equal(sent(ctx, 1, 0, 1), rows);
    het_get_timeline(ctx, 0, &t);
    for (j = 0; j < t.records; j++)
        if (t.record[j].action.kind == HET_ACTION_SEND_F || t.record[j].action.kind == HET_ACTION_RECV_B) recorded += t.record[j].bytes;
    assert_int_equal(recorded, 2 * rows);
    het_destroy(ctx);
    l.run.desc.layout.communicators.iface = NULL;
    EXPECT_OK(het_memory_estimate(&l.run.desc, 1, &far, &error));
    assert_true(far.communication > used.communication && far.activations < used.activations);
    layout_end(&l);
}

/* An emulated link is emulated: its ranks are in no group. */
static void emulated_links_stay_on_the_host(void **state)
{
    support_result base;
    het_link link;
    layout l;
    (void)state;
    memset(&link, 0, sizeof link);
    link.to = 1;
    link.latency = 1e-4;
    layout_start(&l, HET_GPT2);
    base = support_train(&l.run, SUPPORT_TOGETHER);
    layout_group(&l, "012", "dp");
    l.run.desc.emulate.links = &link;
    l.run.desc.emulate.link_count = 1;
    support_train_same(&base, &l.run, SUPPORT_APART, "linked");
    assert_int_equal(fake.joins, 0);
    layout_end(&l);
}

/* Teams in groups move as many messages and bytes as through the host, which has no room for them then; memory is what was estimated. */
static void teams_count_as_on_the_host(void **state)
{
    het_traffic counted[2][4][4];
    het_memory planned, used[2];
    het_error error;
    layout l;
    int way, i, j;
    (void)state;
    layout_start(&l, HET_GPT2);
    layout_group(&l, "0123", "pp2xtp2");
    for (way = 0; way < 2; way++) {
        het_ctx *ctx;
        if (way == 1) l.run.desc.layout.communicators.iface = NULL;
        EXPECT_OK(het_memory_estimate(&l.run.desc, 3, &planned, &error));
        ctx = support_create(&l.run.desc);
        het_get_memory(ctx, 3, &used[way]);
        assert_memory_equal(&planned, &used[way], sizeof planned);
        (void)support_step(ctx, &l.run.data, 0, SUPPORT_APART);
        for (i = 0; i < 4; i++) {
            het_timeline t;
            het_get_timeline(ctx, i, &t);
            memcpy(counted[way][i], t.traffic, sizeof counted[way][i]);
        }
        het_destroy(ctx);
    }
    assert_true(used[0].communication < used[1].communication && used[0].activations > used[1].activations);
    for (i = 0; i < 4; i++)
        for (j = 0; j < 4; j++) {
            const het_traffic *a = &counted[0][i][j], *b = &counted[1][i][j];
            assert_true(a->exchanges == b->exchanges && a->exchange_bytes == b->exchange_bytes);
            assert_true(a->transfers == b->transfers && a->transfer_bytes == b->transfer_bytes);
            if (i / 2 == j / 2 && i != j) assert_true(a->exchanges > 0);
        }
    layout_end(&l);
}

/* ---- another plan ---- */

static void replanning_keeps_groups_and_bits(void **state)
{
    static const char *const plans[] = { "pp", "pp", "dp2xpp2", "dp2xpp2", "dp", "pp2xcp2", "cp4" };
    static const char *const schedules[] = { "1f1b", "gpipe", NULL, NULL, NULL, NULL, NULL };
    /* three cuts both ways and the tied ends; nothing, but more messages under way; beside lanes that are there the other cut's owners and all for
       the tied ends; nothing; nothing; two teams, their holders and lanes; a team */
    static const int64_t joins[] = { 12 + 2, 0, 4 + 4, 0, 0, 4 + 4 + 8, 4 };
    het_ctx *one, *many;
    layout l, other;
    int k, step = 0;
    (void)state;
    layout_start(&l, HET_GPT2);
    one = support_create(&l.run.desc);
    layout_group(&l, "0123", "dp");
    many = support_create(&l.run.desc);
    for (k = 0; k < 8; k++) {
        if (k > 0) {
            het_replan_desc desc;
            const int64_t before = fake.joins;
            memset(&desc, 0, sizeof desc);
            other.run.plan = support_plan(plans[k - 1], schedules[k - 1], 8, 4, 1);
            desc.plan = other.run.plan;
            EXPECT_OK(het_replan(many, &desc));
            het_plan_free(other.run.plan);
            if (fake.joins - before != joins[k - 1]) fail_msg("%s: %d members joined", plans[k - 1], (int)(fake.joins - before));
        }
        (void)support_step(one, &l.run.data, step, SUPPORT_TOGETHER);
        (void)support_step(many, &l.run.data, step++, SUPPORT_APART);
        assert_true(support_hash(one) == support_hash(many));
        support_same_state(one, many, 0, plans[k > 0 ? k - 1 : 0]);
    }
    /* what fails leaves the old plan as it was: joining, then memory */
    for (k = 0; k < 3; k++) {
        het_replan_desc desc;
        memset(&desc, 0, sizeof desc);
        other.run.plan = support_plan("dp2xpp2", NULL, 8, 4, 1);
        desc.plan = other.run.plan;
        fake.fail = k == 0 ? FAKE_IDENTITY : k == 1 ? FAKE_JOIN : FAKE_JOINED;
        fake.fail_at = fake.calls[fake.fail] + 3;
        EXPECT_ERROR(het_replan(many, &desc), HET_ERR_TRANSPORT, het_last_error(many), k == 0 ? "het_replan|rank|identity|planted" :
                     k == 1 ? "het_replan|rank|fake join|planted" : "het_replan|rank|fake joined|planted");
        fake.fail_at = -1;
        het_plan_free(other.run.plan);
        (void)support_step(one, &l.run.data, step, SUPPORT_TOGETHER);
        (void)support_step(many, &l.run.data, step++, SUPPORT_APART);
        assert_true(support_hash(one) == support_hash(many));
    }
    het_destroy(one);
    het_destroy(many);
    layout_end(&l);
}

/* Lists in which more messages are under way, for the second rank is slower than the first: lanes are joined for more ops. */
static void lanes_are_joined_anew_for_more_messages(void **state)
{
    static const char *const lists[] = { "0F0,0B0\n1F0,1B0\n", "0F0,0F1,0F2,0F3,0F4,0F5,0F6,0F7,0B0,0B1,0B2,0B3,0B4,0B5,0B6,0B7\n"
                                         "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3,1F4,1B4,1F5,1B5,1F6,1B6,1F7,1B7\n" };
    static const int64_t batches[] = { 1, 8 }, joins[] = { 0, 4, 0 }; /* two ranks of a lane each way */
    het_error error = { HET_OK, { 0 } };
    het_ctx *one, *many;
    layout l;
    int k;
    (void)state;
    layout_start(&l, HET_LLAMA);
    l.run.desc.limits.max_micro_batches = 1;
    one = support_create(&l.run.desc);
    layout_group(&l, "01", "pp");
    many = support_create(&l.run.desc);
    for (k = 0; k < 3; k++) {
        const int64_t before = fake.joins;
        het_plan *plan = support_plan("pp", NULL, 8, 2, 1);
        het_schedule *schedule;
        het_replan_desc desc;
        memset(&desc, 0, sizeof desc);
        EXPECT_OK(het_schedule_read(plan, lists[k > 0], strlen(lists[k > 0]), NULL, &schedule, &error));
        desc.plan = plan;
        desc.schedule = schedule;
        desc.max_micro_batches = batches[k > 0];
        EXPECT_OK(het_replan(many, &desc));
        assert_int_equal(fake.joins - before, joins[k]);
        (void)support_step(one, &l.run.data, k, SUPPORT_TOGETHER);
        (void)support_step(many, &l.run.data, k, k == 0 ? SUPPORT_TOGETHER : SUPPORT_APART);
        assert_true(support_hash(one) == support_hash(many));
        het_schedule_free(schedule);
        het_plan_free(plan);
    }
    het_destroy(one);
    het_destroy(many);
    layout_end(&l);
}

/* No memory for another plan with other groups: the old one stays, its groups too. */
static void replanning_without_memory(void **state)
{
    support_memory memory;
    het_replan_desc desc;
    het_result result = HET_ERR_OOM;
    het_plan *plan;
    het_ctx *one, *many;
    int64_t k;
    layout l;
    (void)state;
    layout_start(&l, HET_GPT2);
    one = support_create(&l.run.desc);
    layout_group(&l, "01c", "dp");
    l.run.desc.host.allocator = support_allocator(&memory);
    many = support_create(&l.run.desc);
    memset(&desc, 0, sizeof desc);
    desc.plan = plan = support_plan("pp", NULL, 8, 3, 1);
    for (k = 0; result != HET_OK; k++) {
        memory.fail_at = memory.calls + k;
        result = het_replan(many, &desc);
        memory.fail_at = -1;
        if (result != HET_OK && result != HET_ERR_OOM) fail_msg("allocation %d: %s", (int)k, het_last_error(many));
        if (k > 0 && result != HET_OK) continue;
        (void)support_step(one, &l.run.data, k > 0, SUPPORT_TOGETHER);
        (void)support_step(many, &l.run.data, k > 0, SUPPORT_APART);
        assert_true(support_hash(one) == support_hash(many));
    }
    assert_true(k > 5);
    het_plan_free(plan);
    het_destroy(one);
    het_destroy(many);
    assert_int_equal(memory.live, 0);
    layout_end(&l);
}

/* ---- what fails ---- */

static het_result one_step(const layout *l, het_error *error)
{
    het_ctx *ctx = NULL;
    support_group group;
    het_result result = het_create(&l->run.desc, &ctx, error);
    if (result != HET_OK) {
        assert_null(ctx);
        return result;
    }
    fake.cancel = ctx;
    support_group_start(&group, &l->run.data, 0, SUPPORT_APART);
    result = het_step(ctx, group.batch, group.count, NULL);
    if (result != HET_OK) {
        snprintf(error->text, sizeof error->text, "%s", het_last_error(ctx));
        assert_int_equal(het_step(ctx, group.batch, group.count, NULL), HET_ERR_STATE);
    }
    support_group_end(&group);
    het_destroy(ctx);
    return result;
}

/* Each call of the provider fails once, at several moments. */
static void each_call_may_fail(void **state)
{
    static const char *const plans[] = { "dp", "dp2xpp2", "dp", "pp2xtp2" };
    static const char *const ranks[] = { "0123", "0123", "01c2", "0123" };
    int which, call, k;
    (void)state;
    for (which = 0; which < 4; which++)
        for (call = 0; call < FAKE_CALLS; call++) {
            layout l;
            int64_t calls;
            het_error error;
            layout_start(&l, HET_GPT2);
            layout_group(&l, ranks[which], plans[which]);
            EXPECT_OK(one_step(&l, &error));
            calls = fake.calls[call];
            for (k = 0; k < 3 && calls > 0; k++) {
                char words[80];
                fake_reset();
                fake.fail = (fake_call)call;
                /* how often a test is asked depends on the moment: an early one */
                fake.fail_at = k == 0 ? 0 : call == FAKE_TEST || call == FAKE_JOINED ? 3 * k : calls * k / 2 - 1;
                if (fake.fail_at < 0 || fake.fail_at >= calls) continue;
                snprintf(words, sizeof words, "rank|planted|%s", call == FAKE_TEST || call == FAKE_EXCHANGE ? "fake" : fake_names[call]);
                EXPECT_ERROR(one_step(&l, &error), HET_ERR_TRANSPORT, error.text, words);
                if (call > FAKE_JOINED && !strstr(error.text, "step 1")) fail_msg("no step in: %s", error.text);
                if (fake.wrong > 0) fail_msg("%s fails: %s", fake_names[call], fake.what);
                assert_int_equal(fake.live, 0);
            }
            layout_end(&l);
        }
}

static void who_never_joins_is_waited_for_in_vain(void **state)
{
    het_error error;
    layout l;
    (void)state;
    layout_start(&l, HET_GPT2);
    layout_group(&l, "012", "dp");
    l.run.desc.layout.stall_deadline = 0.2;
    fake.never_join = 1;
    EXPECT_ERROR(one_step(&l, &error), HET_ERR_TRANSPORT, error.text, "group of ranks 0 ... 2|stall deadline is 0.2");
    assert_int_equal(fake.aborts, 3);
    layout_end(&l);
}

static het_result fail_later(void *user, const het_hook_info *info)
{
    (void)user;
    return info->rank == 1 && info->micro_batch > 0 ? HET_ERR_CALLBACK : HET_OK; /* micro-batches of its pipeline */
}

/* An op that never comes to an end: the deadline, or a cancellation. All end what is under way before they leave. */
static void ops_without_end_are_aborted(void **state)
{
    static const fake_call lost[] = { FAKE_REDUCE, FAKE_GATHER, FAKE_EXCHANGE, FAKE_EXCHANGE };
    static const char *const plans[] = { "dp", "dp", "pp", "hp3" };
    int k;
    (void)state;
    for (k = 0; k < 4; k++) {
        het_error error;
        layout l;
        layout_start(&l, HET_GPT2);
        layout_group(&l, "012", plans[k]);
        fake.lose = lost[k];
        fake.lose_at = 1;
        EXPECT_ERROR(one_step(&l, &error), HET_ERR_CANCELLED, error.text, "step 1: cancelled");
        assert_true(fake.aborts > 0);
        fake_reset();
        l.run.desc.layout.stall_deadline = 0.5;
        fake.lose = lost[k];
        fake.lose_at = 1;
        fake.lost_tests = 100; /* nobody cancels */
        EXPECT_ERROR(one_step(&l, &error), HET_ERR_TRANSPORT, error.text, "waited|rank|stall deadline is 0.5");
        layout_end(&l);
    }
}

static int silent_after_one(void *user, int64_t rank, int64_t step, int64_t position) { (void)user, (void)step; return rank == 1 && position > 1; }

static void others_failures_end_what_is_under_way(void **state)
{
    static const char *const plans[] = { "pp", "dp" };
    int k;
    (void)state;
    for (k = 0; k < 2; k++) {
        het_error error;
        layout l;
        layout_start(&l, HET_GPT2);
        layout_group(&l, "012", plans[k]);
        l.run.desc.host.hook = fail_later;
        EXPECT_ERROR(one_step(&l, &error), HET_ERR_CALLBACK, error.text, "rank 1|action");
        l.run.desc.host.hook = NULL;
        l.run.desc.emulate.test_hang = silent_after_one;
        l.run.desc.layout.deadline = 0.2;
        EXPECT_ERROR(one_step(&l, &error), HET_ERR_TRANSPORT, error.text, "rank 1|no sign of life|0.2");
        assert_true(fake.aborts > 0);
        layout_end(&l);
    }
}

static void bad_tables_are_refused(void **state)
{
    het_communicator_iface table = fake_iface;
    het_error error;
    layout l;
    (void)state;
    layout_start(&l, HET_GPT2);
    layout_group(&l, "01", "dp");
    l.run.desc.layout.communicators.iface = &table;
    table.version = 9;
    EXPECT_ERROR(one_step(&l, &error), HET_ERR_INVALID, error.text, "communicators|version 9");
    table = fake_iface;
    table.id_bytes = HETRAIN_COMMUNICATOR_ID + 1;
    EXPECT_ERROR(one_step(&l, &error), HET_ERR_INVALID, error.text, "communicators|161|160");
    layout_end(&l);
}

static void every_allocation_may_fail(void **state)
{
    support_memory memory;
    het_error error;
    het_ctx *ctx = NULL;
    het_result result = HET_ERR_OOM;
    int64_t k;
    layout l;
    (void)state;
    layout_start(&l, HET_GPT2);
    layout_group(&l, "01c", "{\"pipelines\":[{\"share\":1,\"stages\":[{\"rank\":0,\"units\":[0,4]},{\"rank\":1,\"units\":[4,8]}]},"
                            "{\"share\":1,\"stages\":[{\"rank\":2,\"units\":[0,8]}]}]}");
    for (k = 0; result != HET_OK; k++) {
        l.run.desc.host.allocator = support_allocator(&memory);
        memory.fail_at = k;
        result = het_create(&l.run.desc, &ctx, &error);
        if (result != HET_OK && result != HET_ERR_OOM) fail_msg("allocation %d: %s", (int)k, error.text);
        if (result == HET_OK) het_destroy(ctx);
        assert_int_equal(memory.live, 0);
        assert_int_equal(memory.wrong, 0);
    }
    assert_true(k > 10);
    layout_end(&l);
}

/* ---- several processes: threads with a context each, and a transport of letters between them ---- */

typedef struct letter {
    struct letter *next;
    int64_t from, to;
    uint32_t channel;
    size_t size;
    unsigned char data[];
} letter;
typedef struct post_office {
    pthread_mutex_t lock;
    letter *first;
    int64_t processes, posted[MOST][MOST]; /* letters so far, from and to whom */
    int aborted, by;
    char text[200];
} post_office;
typedef struct post_box { post_office *office; int64_t process; } post_box;
typedef struct wish { void *to; size_t size; int64_t from, tests; uint32_t channel; int open; } wish; /* lies in a het_request */
static int64_t box_starts, box_fails_at = -1, box_strays; /* sends and receives; the one that fails; tests of requests that are not open */
static int box_fails(post_box *box)
{
    int fails;
    pthread_mutex_lock(&box->office->lock);
    fails = box_starts++ == box_fails_at;
    pthread_mutex_unlock(&box->office->lock);
    return fails;
}

static int64_t box_processes(void *self) { return ((post_box *)self)->office->processes; }
static int64_t box_process(void *self) { return ((post_box *)self)->process; }
static het_result box_isend(void *self, int64_t to, uint32_t channel, const void *data, size_t size, het_request *request)
{
    post_box *box = self;
    letter **at, *l;
    wish w;
    if (box_fails(box)) return HET_ERR_TRANSPORT;
    l = support_alloc(1, sizeof *l + size);
    memset(&w, 0, sizeof w);
    w.open = 1;
    memset(request, 0, sizeof *request);
    memcpy(request, &w, sizeof w);
    l->next = NULL;
    l->from = box->process;
    l->to = to;
    l->channel = channel;
    l->size = size;
    memcpy(l->data, data, size);
    pthread_mutex_lock(&box->office->lock);
    box->office->posted[box->process][to]++;
    for (at = &box->office->first; *at; at = &(*at)->next) {}
    *at = l;
    pthread_mutex_unlock(&box->office->lock);
    return HET_OK;
}
static het_result box_irecv(void *self, int64_t from, uint32_t channel, void *data, size_t size, het_request *request)
{
    wish w;
    if (box_fails(self)) return HET_ERR_TRANSPORT;
    memset(&w, 0, sizeof w);
    w.open = 1;
    w.to = data;
    w.size = size;
    w.from = from;
    w.tests = 0;
    w.channel = channel;
    memset(data, 0xEE, size); /* it is the operation's until then */
    memset(request, 0, sizeof *request);
    memcpy(request, &w, sizeof w);
    return HET_OK;
}
static het_result box_test(void *self, het_request *request, int32_t *done)
{
    post_box *box = self;
    letter **at, *l;
    wish w;
    int aborted;
    memcpy(&w, request, sizeof w);
    *done = w.to == NULL;
    pthread_mutex_lock(&box->office->lock);
    box_strays += !w.open;
    pthread_mutex_unlock(&box->office->lock);
    if (*done) memset(request, 0, sizeof *request);
    if (*done) return HET_OK;
    pthread_mutex_lock(&box->office->lock);
    for (at = &box->office->first; *at && ((*at)->to != box->process || (*at)->from != w.from || (*at)->channel != w.channel); at = &(*at)->next) {}
    l = *at;
    if (l) *at = l->next;
    *done = l != NULL;
    aborted = box->office->aborted;
    if (aborted) w.tests++; /* what waits sees why */
    w.open = w.tests <= 2000;
    pthread_mutex_unlock(&box->office->lock);
    memcpy(request, &w, sizeof w);
    if (w.tests > 2000) return HET_ERR_TRANSPORT;
    if (l) {
        if (!aborted) assert_int_equal(l->size, w.size); /* then requests are let go in any order, and get each other's letters */
        memcpy(w.to, l->data, l->size < w.size ? l->size : w.size);
        free(l);
    }
    if (*done) memset(request, 0, sizeof *request);
    return HET_OK;
}
static double box_silence(void *self, int64_t process) { (void)self, (void)process; return 0.0; }
static void box_abort(void *self, het_result code, const char *text)
{
    post_box *box = self;
    pthread_mutex_lock(&box->office->lock);
    if (!box->office->aborted) {
        box->office->by = (int)box->process;
        snprintf(box->office->text, sizeof box->office->text, "%s", text);
        box->office->aborted = code;
    }
    pthread_mutex_unlock(&box->office->lock);
}
static het_result box_aborted(void *self, int64_t *process, char *text, size_t capacity)
{
    post_box *box = self;
    het_result result;
    pthread_mutex_lock(&box->office->lock);
    result = (het_result)box->office->aborted;
    *process = box->office->by;
    if (result != HET_OK) snprintf(text, capacity, "%s", box->office->text);
    pthread_mutex_unlock(&box->office->lock);
    return result;
}
static const char *box_last_error(void *self) { (void)self; return "another process aborted"; }
static const het_transport_iface box_iface = {
    HETRAIN_TRANSPORT_VERSION, "letters", box_processes, box_process, box_isend, box_irecv, box_test, box_silence, box_abort, box_aborted,
    box_last_error
};

typedef struct process {
    pthread_t thread;
    post_box box;
    const support_data *data;
    het_desc desc;
    het_device_desc device[MOST];
    het_plan *second;                /* from step 1 on; NULL: none, and no hash */
    int steps;
    het_result result;
    uint64_t hash;
    int64_t owned[MOST], reductions[MOST][MOST]; /* of its ranks: elements, bytes to whom */
    char text[500];
} process;

/* What the ranks of a context's process own and have sent. */
static void process_counts(process *p, het_ctx *ctx)
{
    int64_t r, to;
    for (r = 0; r < MOST; r++) {
        het_timeline t;
        het_memory memory;
        het_get_timeline(ctx, r, &t);
        het_get_memory(ctx, r, &memory);
        p->owned[r] = (int64_t)memory.optimizer / 8;
        for (to = 0; to < MOST && t.traffic; to++) p->reductions[r][to] = t.traffic[to].reduction_bytes;
    }
}

static void *process_run(void *arg)
{
    process *p = arg;
    het_ctx *ctx = NULL;
    het_error error;
    int step;
    p->result = het_create(&p->desc, &ctx, &error);
    if (p->result != HET_OK) snprintf(p->text, sizeof p->text, "%s", error.text);
    for (step = 0; step < p->steps && p->result == HET_OK; step++) {
        support_group group;
        het_replan_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.plan = p->second;
        if (step == 1 && p->second) p->result = het_replan(ctx, &desc);
        if (p->result != HET_OK) break;
        support_group_start(&group, p->data, step, SUPPORT_APART);
        p->result = het_step(ctx, group.batch, group.count, NULL);
        support_group_end(&group);
    }
    if (p->result == HET_OK && p->second) p->result = het_hash(ctx, &p->hash);
    else if (p->result == HET_OK) process_counts(p, ctx);
    if (p->result != HET_OK && ctx) snprintf(p->text, sizeof p->text, "%s", het_last_error(ctx));
    het_destroy(ctx);
    return NULL;
}

/* ranks: processes one behind the other, '|' between them. Devices have the limits of the run's. */
static void processes_run(layout *l, post_office *office, process *run, const char *ranks, het_plan *second, int steps)
{
    size_t i, at = 0, n;
    memset(run, 0, MOST * sizeof *run);
    office->processes = 1;
    for (i = 0; ranks[i]; i++) office->processes += ranks[i] == '|';
    for (n = 0; n < (size_t)office->processes; n++) {
        layout own;
        char part[MOST + 1] = "";
        const size_t length = strcspn(ranks + at, "|"), first = at - n;
        memcpy(part, ranks + at, length);
        at += length + 1;
        own.run.desc = l->run.desc;
        layout_ranks(&own, part);
        memcpy(run[n].device, own.device, sizeof own.device);
        for (i = 0; i < length; i++) run[n].device[i].max_tokens = l->run.device[first + i].max_tokens;
        run[n].desc = own.run.desc;
        run[n].desc.layout.devices = run[n].device;
        run[n].desc.layout.plan = l->run.plan;
        run[n].desc.layout.transport.iface = &box_iface;
        run[n].desc.layout.transport.self = &run[n].box;
        run[n].box.office = office;
        run[n].box.process = (int64_t)n;
        run[n].data = &l->run.data;
        run[n].second = second;
        run[n].steps = steps;
        if (strchr(part, 'c') == NULL || strlen(part) > 1) run[n].desc.layout.communicators.iface = &fake_iface; /* one that has none */
    }
    for (i = 0; i < n; i++) assert_int_equal(pthread_create(&run[i].thread, NULL, process_run, &run[i]), 0);
    for (i = 0; i < n; i++) (void)pthread_join(run[i].thread, NULL);
    while (office->first) {
        letter *next = office->first->next;
        free(office->first);
        office->first = next;
    }
}

/* Returns how many failed; their texts in `texts`. */
static int processes_train(layout *l, const char *ranks, const char *plan, uint64_t hash, char *texts, size_t capacity)
{
    post_office office = { .lock = PTHREAD_MUTEX_INITIALIZER };
    process run[MOST];
    het_plan *second;
    int64_t i, count = 0;
    int failed = 0;
    for (i = 0; ranks[i]; i++) count += ranks[i] != '|';
    het_plan_free(l->run.plan);
    l->run.plan = support_plan(plan, NULL, 8, count, 1);
    second = support_plan(strcmp(plan, "pp") == 0 ? "dp" : "pp", NULL, 8, count, 1);
    processes_run(l, &office, run, ranks, second, STEPS);
    texts[0] = 0;
    for (i = 0; i < office.processes; i++) {
        if (run[i].result != HET_OK) {
            failed++;
            snprintf(texts + strlen(texts), capacity - strlen(texts), "process %d: %s\n", (int)i, run[i].text);
        } else if (run[i].hash != hash) fail_msg("%s, %s: process %d has other weights", ranks, plan, (int)i);
    }
    het_plan_free(second);
    return failed;
}

/* Letters of two steps behind the first one, of `from` to `to`. */
static void letters_of_two_steps(layout *l, const char *ranks, const char *plan, int64_t letters[MOST][MOST])
{
    int64_t i, k, count = 0;
    for (i = 0; ranks[i]; i++) count += ranks[i] != '|';
    het_plan_free(l->run.plan);
    l->run.plan = support_plan(plan, "1f1b", 8, count, 1);
    memset(letters, 0, MOST * sizeof letters[0]);
    for (k = 1; k <= 3; k += 2) {
        post_office office = { .lock = PTHREAD_MUTEX_INITIALIZER };
        process run[MOST];
        processes_run(l, &office, run, ranks, NULL, (int)k);
        for (i = 0; i < office.processes; i++) if (run[i].result != HET_OK) fail_msg("%s, process %d: %s", ranks, (int)i, run[i].text);
        for (i = 0; i < MOST * MOST; i++) letters[i / MOST][i % MOST] += (k - 2) * office.posted[i / MOST][i % MOST];
    }
}

/* Two processes of two and of three ranks, shares uneven: inside of m ranks (m - 1) / m of all that m have of sums goes to those who collect it, and
   new weights to all; between them go sums of all that the other's own, once, and once what the own have made. Every step the same. */
static void parts_cross_between_processes_once(void **state)
{
    post_office office = { .lock = PTHREAD_MUTEX_INITIALIZER };
    process run[MOST];
    int64_t bytes[2][2] = { { 0 } }, own[2] = { 0 }, elements = 0, r, to, steps = 3;
    layout l;
    (void)state;
    layout_start(&l, HET_LLAMA);
    het_plan_free(l.run.plan);
    l.run.plan = support_plan("dp", "1f1b", 8, MOST, 1);
    for (r = 0; r < MOST; r++) l.run.plan->state_share[r] = (double)(1 + r * r % 3);
    processes_run(&l, &office, run, "cc|ccc", NULL, (int)steps);
    for (r = 0; r < MOST; r++) {
        const process *p = &run[r > 1];
        if (p->result != HET_OK) fail_msg("%s", p->text);
        own[r > 1] += p->owned[r > 1 ? r - 2 : r];
        for (to = 0; to < MOST; to++) bytes[r > 1][to > 1] += p->reductions[r > 1 ? r - 2 : r][to];
    }
    elements = own[0] + own[1];
    steps++; /* the first one is measured and repeated */
    assert_int_equal(bytes[0][0], steps * 12 * (2 - 1) * elements);
    assert_int_equal(bytes[1][1], steps * 12 * (3 - 1) * elements);
    assert_int_equal(bytes[0][1], steps * (8 * own[1] + 4 * own[0]));
    assert_int_equal(bytes[1][0], steps * (8 * own[0] + 4 * own[1]));
    layout_end(&l);
}

/* A process without work posts nothing and hears of a step once, from the root, who waits for no answer; an idle rank of a process that works has
   no letters at all. The others post what they post without them. */
static void who_has_no_work_has_no_letters(void **state)
{
    static const char *const plans[] = {
        "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,4]},{\"rank\":1,\"units\":[4,8]}]}]}",
        "{\"pipelines\":[{\"stages\":[{\"rank\":1,\"units\":[0,4]},{\"rank\":2,\"units\":[4,8]}]}]}",
        "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,4]},{\"rank\":2,\"units\":[4,8]}]}]}",
    };
    int64_t without[MOST][MOST], with[MOST][MOST];
    layout l;
    (void)state;
    layout_start(&l, HET_GPT2);
    letters_of_two_steps(&l, "c|c", plans[0], without);
    assert_true(without[0][1] > 2 && without[1][0] > 2);
    letters_of_two_steps(&l, "cc|c", plans[1], with);
    assert_memory_equal(with, without, sizeof with);
    letters_of_two_steps(&l, "c|cc", plans[0], with);
    assert_memory_equal(with, without, sizeof with);
    letters_of_two_steps(&l, "c|c|c", plans[2], with);
    assert_int_equal(with[0][1], 2);
    assert_int_equal(with[2][1] + with[1][0] + with[1][2], 0);
    assert_int_equal(with[0][2], without[0][1]);
    assert_int_equal(with[2][0], without[1][0]);
    layout_end(&l);
}

/* Each run goes over to another plan behind its first step. */
static void groups_reach_over_processes(void **state)
{
    static const char *const ranks[] = { "0|1", "0c|1c", "0|1|c", "01|23", "c01|2", "01|01" };
    static const char *const plans[] = { "dp", "dp", "dp", "dp2xpp2", "dp", "pp" };
    support_result base;
    char texts[1200];
    layout l;
    int k;
    (void)state;
    layout_start(&l, HET_GPT2);
    base = support_train(&l.run, SUPPORT_TOGETHER);
    for (k = 0; k < 6; k++) {
        fake_reset();
        if (processes_train(&l, ranks[k], plans[k], base.weights, texts, sizeof texts) != 0) fail_msg("%s, %s: %s", ranks[k], plans[k], texts);
        assert_true(fake.joins >= 2);
        if (fake.wrong > 0) fail_msg("%s, %s: %s", ranks[k], plans[k], fake.what);
    }
    layout_end(&l);
}

/* Each process knows by itself what the devices of others take: as dp the second rank's largest micro-batch has 32 tokens, as a pipeline one of
   48 comes. */
static void limits_reach_over_processes(void **state)
{
#define SAID "micro-batch 2: 48 tokens; it falls to pipeline 0, and max_tokens of rank 1 there is 32\n"
    char texts[1200];
    layout l;
    (void)state;
    layout_start(&l, HET_GPT2);
    l.run.device[1].max_tokens = 32;
    assert_int_equal(processes_train(&l, "c|c", "dp", 0, texts, sizeof texts), 2);
    assert_string_equal(texts, "process 0: " SAID "process 1: " SAID);
    layout_end(&l);
}

/* One process fails; the others say which one, and why. */
static void a_failing_process_is_named(void **state)
{
    static const fake_call calls[] = { FAKE_PLACE, FAKE_IDENTITY, FAKE_JOIN, FAKE_REDUCE, FAKE_GATHER, FAKE_TEST };
    char texts[1200];
    layout l;
    int k;
    (void)state;
    layout_start(&l, HET_GPT2);
    for (k = 0; k < 6; k++) {
        fake_reset();
        fake.fail = calls[k];
        fake.fail_at = 0;
        if (processes_train(&l, "0c|1", "dp", 0, texts, sizeof texts) != 2) fail_msg("%s: not both failed: %s", fake_names[calls[k]], texts);
        if (!strstr(texts, "planted")) fail_msg("%s: no reason in %s", fake_names[calls[k]], texts);
        if (!strstr(texts, "failed: ") && calls[k] != FAKE_IDENTITY) fail_msg("%s: nobody names the other: %s", fake_names[calls[k]], texts);
        if (fake.wrong > 0) fail_msg("%s", fake.what);
        assert_int_equal(fake.live, 0);
    }
    layout_end(&l);
}

/* A send or receive that could not be started, and one that has ended with an error, is not asked for again. */
static void requests_end_once(void **state)
{
    char texts[1200];
    layout l;
    int64_t starts;
    (void)state;
    layout_start(&l, HET_GPT2);
    fake_reset();
    box_starts = box_strays = 0;
    assert_int_equal(processes_train(&l, "c|c", "pp", support_train(&l.run, SUPPORT_APART).weights, texts, sizeof texts), 0);
    starts = box_starts;
    for (box_fails_at = 3; box_fails_at < starts / 2; box_fails_at += starts / 16 + 1) { /* later ones may end one process alone */
        box_starts = 0;
        if (processes_train(&l, "c|c", "pp", 0, texts, sizeof texts) != 2) fail_msg("start %d: not both failed: %s", (int)box_fails_at, texts);
        if (box_strays > 0) fail_msg("start %d of %d fails: %d tests of requests that are not open", (int)box_fails_at, (int)starts, (int)box_strays);
    }
    box_fails_at = -1;
    layout_end(&l);
}

/* A member of one process does not join in a replan: the other process does not wait for it until the stall deadline. */
static void a_failed_join_in_a_replan_holds_up_nobody(void **state)
{
    char texts[1200];
    layout l;
    double begin;
    (void)state;
    layout_start(&l, HET_GPT2);
    fake_reset();
    l.run.desc.layout.stall_deadline = 8.0;
    fake.fail = FAKE_JOIN;
    fake.fail_at = 2; /* "dp" has one group of two members; the first lane of "pp" */
    begin = late_now();
    assert_int_equal(processes_train(&l, "0|1", "dp", 0, texts, sizeof texts), 2);
    print_message("# after %.1f s: %s", late_now() - begin, texts);
    assert_true(late_now() - begin < 4.0);
    layout_end(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_join_in_a_replan_holds_up_nobody),
        cmocka_unit_test(every_mixture_has_the_same_bits),
        cmocka_unit_test(narrow_types_and_sharded_gradients),
        cmocka_unit_test(lanes_between_teams_keep_to_their_memory),
        cmocka_unit_test(fast_sums_repeat),
        cmocka_unit_test(what_is_not_a_step),
        cmocka_unit_test(traffic_is_what_the_formulas_say),
        cmocka_unit_test(messages_count_their_rows),
        cmocka_unit_test(emulated_links_stay_on_the_host), cmocka_unit_test(teams_count_as_on_the_host),
        cmocka_unit_test(replanning_keeps_groups_and_bits),
        cmocka_unit_test(lanes_are_joined_anew_for_more_messages),
        cmocka_unit_test(replanning_without_memory),
        cmocka_unit_test(each_call_may_fail),
        cmocka_unit_test(who_never_joins_is_waited_for_in_vain),
        cmocka_unit_test(ops_without_end_are_aborted),
        cmocka_unit_test(others_failures_end_what_is_under_way),
        cmocka_unit_test(bad_tables_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(groups_reach_over_processes), cmocka_unit_test(parts_cross_between_processes_once),
        cmocka_unit_test(who_has_no_work_has_no_letters),
        cmocka_unit_test(limits_reach_over_processes),
        cmocka_unit_test(a_failing_process_is_named), cmocka_unit_test(requests_end_once),
    };
    late_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
