/* Activations on the host: lists with PUT and TAKE, what they need, bits, bytes, and stores that fail. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "support.h"

#include <pthread.h>
#include <unistd.h>

#include "hetrain_search.h"
#include "late_groups.h"

#define STEPS 3

static void store_all(het_plan *plan, int32_t store)
{
    int64_t s;
    for (s = 0; s < plan->stages; s++) plan->stage[s].store = store;
}

/* ---- lists ---- */

typedef support_layout layout;

/* Every name, and every placement that one needs. */
static const layout layouts[] = {
    { "pp", NULL, 1, 1 }, { "pp", "gpipe", 1, 1 }, { "pp", "gpipe", 3, 1 }, { "pp", "1f1b", 3, 1 }, { "pp", "1f1b", 2, 3 },
    { "pp", "interleaved", 2, 1 }, { "pp", "zb-h1", 3, 1 }, { "pp", "zb-h2", 3, 2 }, { "pp", "zb-v", 3, 1 }, { "pp", "v-half", 3, 1 },
    { "pp", "v-min", 3, 1 }, { "pp", "greedy", 3, 2 }, { "pp", "bidirectional", 2, 1 }, { "pp", "bitpipe", 2, 1 }, { "pp", "dualpipev", 2, 1 },
    { "pp", "terapipe", 3, 3 }, { "pp", "sliced-1f1b", 3, 3 }, { "dp2xpp2", "gpipe", 4, 1 }, { "pp2xcp2", "1f1b", 4, 1 },
    { "pp2xhp2", "zb-h1", 4, 2 },
};
#define LAYOUTS (int)(sizeof layouts / sizeof layouts[0])

static het_plan *plan_of(const layout *l, int64_t units)
{
    return support_plan_for(l->plan, l->schedule, units, l->ranks, l->slices, 2);
}

static het_schedule *lists_of(const het_plan *plan, int64_t micro_batches)
{
    het_schedule *schedule = NULL;
    int64_t counts[16];
    het_error error;
    het_plan_micro_batches(plan, micro_batches, counts);
    EXPECT_ERROR(het_schedule_make(plan, counts, NULL, &schedule, &error), HET_OK, error.text, "");
    return schedule;
}

/* The same as text: what a rank does, without the end of line. */
static const char *line_of(const het_schedule *schedule, int64_t rank)
{
    static char text[2000];
    support_buffer buffer;
    het_writer writer;
    char *at, *end;
    support_buffer_start(&buffer);
    writer = support_writer(&buffer);
    EXPECT_OK(het_schedule_write(schedule, &writer));
    support_buffer_append(&buffer, "", 1);
    for (at = (char *)buffer.data; rank > 0; rank--) at = strchr(at, '\n') + 1;
    end = strchr(at, '\n');
    snprintf(text, sizeof text, "%.*s", (int)(end - at), at);
    support_buffer_end(&buffer);
    return text;
}

static void lists_by_hand(void **state)
{
    static const struct { const char *plan, *schedule; int64_t ranks, slices, micro_batches; int32_t store; const char *line; } cases[] = {
        /* the first k stay, others come back one action before they are needed */
        { "pp", "gpipe", 1, 1, 4, 1, "0F0,0F1,0PUT1,0F2,0PUT2,0F3,0PUT3,0TAKE1,0B0,0TAKE2,0B1,0TAKE3,0B2,0B3" },
        { "pp", "gpipe", 1, 1, 4, 2, "0F0,0F1,0F2,0PUT2,0F3,0PUT3,0B0,0TAKE2,0B1,0TAKE3,0B2,0B3" },
        /* what is needed at once is not put away */
        { "pp", "gpipe", 1, 1, 2, 1, "0F0,0F1,0PUT1,0TAKE1,0B0,0B1" },
        { "pp", "1f1b", 1, 1, 3, 1, "0F0,0B0,0F1,0B1,0F2,0B2" },
        { "pp", "1f1b", 3, 1, 4, 1, "0F0,0F1,0PUT1,0F2,0PUT2,0B0,0TAKE1,0F3,0PUT3,0TAKE2,0B1,0TAKE3,0B2,0B3" },
        /* k micro-batches of two slices; backwards come last slice first */
        { "pp", "gpipe", 1, 2, 2, 1, "0F0,0F0.1,0F1,0PUT1,0F1.1,0PUT1.1,0B0.1,0TAKE1.1,0B0,0TAKE1,0B1.1,0B1" },
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        het_plan *plan = support_plan(cases[i].plan, cases[i].schedule, 4, cases[i].ranks, cases[i].slices);
        het_schedule *schedule;
        store_all(plan, cases[i].store);
        schedule = lists_of(plan, cases[i].micro_batches);
        assert_string_equal(line_of(schedule, 0), cases[i].line);
        het_schedule_free(schedule);
        het_plan_free(plan);
    }
}

/* Lists of any order; what they had before is replaced. */
static void given_lists_get_them(void **state)
{
    static const char *const cases[][2] = {
        { "0F0,0F1,0B1,0B0", "0F0,0F1,0B1,0B0" }, /* what is needed at once is not put away */
        { "0F0,0PUT0,0F1,0TAKE0,0B0,0B1", "0F0,0F1,0PUT1,0TAKE1,0B0,0B1" },
        { "0F0,0F1,0I0,0I1,0W0,0W1", "0F0,0F1,0PUT1,0TAKE1,0I0,0PUT0,0TAKE0,0I1,0PUT1,0TAKE1,0W0,0W1" },
        { "0F0,0F1,0I0,0W0,0I1,0W1", "0F0,0F1,0PUT1,0I0,0TAKE1,0W0,0I1,0W1" },
    };
    het_plan *plan = support_plan("dp", NULL, 4, 1, 1);
    het_error error;
    size_t i;
    (void)state;
    store_all(plan, 1);
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        het_schedule *schedule = NULL;
        EXPECT_ERROR(het_schedule_read(plan, cases[i][0], strlen(cases[i][0]), NULL, &schedule, &error), HET_OK, error.text, "");
        EXPECT_ERROR(het_schedule_store(plan, &schedule, &error), HET_OK, error.text, "");
        assert_string_equal(line_of(schedule, 0), cases[i][1]);
        het_schedule_free(schedule);
    }
    het_plan_free(plan);
}

/* Slices of a stage on the device, counted action by action, never more than the rule says; what all stages of a rank have together is what the
   rank needs, and what check counts. */
static void check_counts(const het_plan *plan, const het_schedule *schedule, int32_t store, const char *what)
{
    int64_t kept[64], rank, i, s;
    double peak[16];
    het_needs needs[16];
    het_error error;
    EXPECT_ERROR(het_schedule_check(plan, NULL, schedule, peak, &error), HET_OK, error.text, "");
    EXPECT_ERROR(het_schedule_needs(plan, schedule, 0, plan->ranks, 0, NULL, needs, &error), HET_OK, error.text, "");
    for (rank = 0; rank < plan->ranks; rank++) {
        int64_t here = 0, away = 0, most = 0, most_away = 0, puts = 0;
        double tokens = 0, high = 0;
        memset(kept, 0, sizeof kept);
        for (i = schedule->start[rank]; i < schedule->start[rank + 1]; i++) {
            const het_action *a = &schedule->action[i];
            const int enters = a->kind == HET_ACTION_F || a->kind == HET_ACTION_TAKE;
            const int leaves = a->kind == HET_ACTION_B || a->kind == HET_ACTION_W || a->kind == HET_ACTION_PUT;
            int64_t sharing = 0;
            if (!enters && !leaves) continue;
            s = plan->first_stage[a->pipeline] + a->stage;
            kept[s] += enters - leaves;
            here += enters - leaves;
            away += (a->kind == HET_ACTION_PUT) - (a->kind == HET_ACTION_TAKE);
            puts += a->kind == HET_ACTION_PUT;
            if (here > most) most = here;
            if (away > most_away) most_away = away;
            if (kept[s] > store * plan->slices + 1)
                fail_msg("%s: rank %d, action %d: %d slices of stage %d", what, (int)rank, (int)i, (int)kept[s], (int)s);
            for (s = plan->first_stage[a->pipeline]; s < plan->first_stage[a->pipeline + 1]; s++) sharing += plan->stage[s].rank == rank;
            tokens += (enters - leaves) / (double)(plan->slices * sharing);
            if (tokens > high) high = tokens;
        }
        assert_int_equal(away, 0);
        if (most != needs[rank].slots || most_away != needs[rank].places) fail_msg("%s: rank %d needs %d and %d, not %d and %d", what, (int)rank,
            (int)needs[rank].slots, (int)needs[rank].places, (int)most, (int)most_away);
        assert_true((most_away > 0) == (puts > 0));
        assert_true(fabs(high - peak[rank]) < 1e-9);
    }
}

static void no_list_needs_more_than_it_stores(void **state)
{
    int i, chunk;
    int32_t store;
    (void)state;
    for (i = 0; i < LAYOUTS; i++)
        for (store = 1; store <= 3; store++)
            for (chunk = 1; chunk <= 9; chunk += 4) {
                het_plan *plan = plan_of(&layouts[i], 12);
                het_schedule *schedule;
                char what[200];
                store_all(plan, store);
                schedule = lists_of(plan, chunk);
                snprintf(what, sizeof what, "%s %s, %d slices, store %d", layouts[i].plan,
                         layouts[i].schedule ? layouts[i].schedule : "", (int)layouts[i].slices, (int)store);
                check_counts(plan, schedule, store, what);
                het_schedule_free(schedule);
                het_plan_free(plan);
            }
}

/* Lists that are wrong in one thing, and the error that says so. */
static void wrong_lists_are_named(void **state)
{
    static const struct { const char *line, *words; } cases[] = {
        { "0F0,0TAKE0,0B0", "rank 0, position 1 (0TAKE0)|must come after 0PUT0" },
        { "0PUT0,0F0,0B0", "position 0 (0PUT0)|must come after 0F0" },
        { "0F0,0PUT0,0B0", "position 2 (0B0)|must come after 0TAKE0" },
        { "0F0,0PUT0,0TAKE0,0TAKE0,0B0", "position 3 (0TAKE0)|must come after 0PUT0" },
        { "0F0,0PUT0,0PUT0,0TAKE0,0B0", "position 2 (0PUT0)|comes twice" },
        { "0F0,0B0,0PUT0,0TAKE0", "position 2 (0PUT0)|used up" },
        { "0F0,0I0,0W0,0PUT0", "position 3 (0PUT0)|used up" },
        { "0F0,0I0,0PUT0,0W0,0TAKE0", "position 3 (0W0)|must come after 0TAKE0" },
        { "0F0,0PUT0,0I0,0TAKE0,0W0", "position 2 (0I0)|must come after 0TAKE0" },
        { "0F0,0PUT0.1,0TAKE0,0B0", "no such slice" },
        { "0F0,0PUT0,0TAKE0,0I0,0PUT0,0TAKE0,0W0", NULL },
    };
    het_plan *plan = support_plan("dp", NULL, 4, 1, 1);
    het_error error;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        het_schedule *schedule = NULL;
        het_result result = het_schedule_read(plan, cases[i].line, strlen(cases[i].line), NULL, &schedule, &error);
        if (result == HET_OK) result = het_schedule_check(plan, NULL, schedule, NULL, &error);
        if (cases[i].words) support_expect(result, HET_ERR_INVALID, error.text, cases[i].words, cases[i].line, __LINE__);
        else support_expect(result, HET_OK, error.text, "", cases[i].line, __LINE__);
        if (!cases[i].words) assert_string_equal(line_of(schedule, 0), cases[i].line);
        het_schedule_free(schedule);
    }
    plan->stage[0].store = -1;
    EXPECT_ERROR(het_plan_check(plan, "here", &error), HET_ERR_INVALID, error.text, "here: pipeline 0, stage 0: store is -1");
    plan->stage[0].recompute = 3;
    EXPECT_ERROR(het_plan_check(plan, "here", &error), HET_ERR_INVALID, error.text, "here: pipeline 0, stage 0: recompute is 3");
    het_plan_free(plan);
}

static void plans_say_store(void **state)
{
    static const char text[] = "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,2],\"store\":3},{\"rank\":1,\"units\":[2,4]}]}]}";
    static const char *const bad[] = { "-1", "2147483648", "1.5", "true" };
    het_plan *plan = support_plan(text, NULL, 4, 2, 1), *again = NULL;
    support_buffer buffer;
    het_writer writer;
    het_plan_desc desc;
    het_error error;
    size_t i;
    (void)state;
    assert_true(plan->stage[0].store == 3 && plan->stage[1].store == 0);
    support_buffer_start(&buffer);
    writer = support_writer(&buffer);
    EXPECT_OK(het_plan_write(plan, &writer));
    memset(&desc, 0, sizeof desc);
    desc.units = 4;
    desc.ranks = 2;
    desc.store = 2; /* where the text says nothing */
    EXPECT_ERROR(het_plan_read(&desc, (const char *)buffer.data, buffer.size, &again, &error), HET_OK, error.text, "");
    assert_true(again->stage[0].store == 3 && again->stage[1].store == 2);
    het_plan_free(again);
    EXPECT_ERROR(het_plan_read(&desc, "pp", 2, &again, &error), HET_OK, error.text, "");
    assert_true(again->stage[0].store == 2 && again->stage[1].store == 2);
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char wrong[300];
        het_plan *none = NULL;
        snprintf(wrong, sizeof wrong, "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,4],\"store\":%s}]}]}", bad[i]);
        assert_int_not_equal(het_plan_read(&desc, wrong, strlen(wrong), &none, &error), HET_OK);
        assert_null(none);
    }
    support_buffer_end(&buffer);
    het_plan_free(again);
    het_plan_free(plan);
}

/* ---- bits ---- */

static void check_layout(const support_result *base, support_run *run, const layout *l, int32_t store, const char *blocks)
{
    char what[400];
    int64_t s;
    support_run_ranks(run, l->ranks);
    support_run_plan(run, l->plan, l->schedule, l->slices);
    store_all(run->plan, store);
    for (s = 0; s < run->plan->stages && run->desc.layout.recompute == HET_YES; s++)
        run->plan->stage[s].recompute = s % 2 == store % 2 ? HET_RECOMPUTE_STAGE : HET_RECOMPUTE_UNIT;
    snprintf(what, sizeof what, "%s %s, %d slices, store %d, backward %d, %s", l->plan, l->schedule ? l->schedule : "", (int)l->slices, (int)store,
             (int)run->desc.layout.backward, blocks);
    support_train_same(base, run, blocks, what);
}

static void any_schedule_has_the_bits_of_one_rank(void **state)
{
    const het_model_desc model = support_deep_model(HET_LLAMA);
    support_result base;
    support_run run;
    int i;
    (void)state;
    support_run_start(&run, &model, STEPS, SUPPORT_SHORT);
    base = support_train(&run, SUPPORT_APART);
    for (i = 0; i < LAYOUTS; i++) {
        const het_schedule_kind *kind = NULL;
        int64_t k;
        for (k = 0; layouts[i].schedule && het_schedule_kind_at(k); k++)
            if (strcmp(het_schedule_kind_at(k)->name, layouts[i].schedule) == 0) kind = het_schedule_kind_at(k);
        run.desc.layout.backward = kind && kind->split ? HET_BACKWARD_FUSED : (het_backward)(HET_BACKWARD_FUSED + i % 3);
        run.desc.layout.recompute = i % 4 == 3 ? HET_YES : HET_NO;
        check_layout(&base, &run, &layouts[i], 1 + i % 3, SUPPORT_APART);
        if (i % 3 > 0) check_layout(&base, &run, &layouts[i], 1, SUPPORT_APART);
    }
    support_run_end(&run);
}

static void bf16_dropout_and_long_sequences_too(void **state)
{
    static const layout chosen[] = { { "pp", "gpipe", 1, 3 }, { "pp", "gpipe", 2, 1 }, { "pp", "zb-h2", 3, 2 }, { "pp2xhp2", "gpipe", 4, 1 } };
    int kind;
    size_t i;
    (void)state;
    for (kind = 0; kind < 2; kind++) {
        het_model_desc model = support_deep_model(kind ? HET_QWEN3 : HET_GPT2);
        support_result base;
        support_run run;
        model.context = 1200;
        if (!kind) model.dropout = 0.2f;
        support_run_start(&run, &model, 2, "1100|40,1|600|7");
        if (kind) run.desc.dtype = HET_BF16;
        base = support_train(&run, "0|1|2|3");
        for (i = 0; i < sizeof chosen / sizeof chosen[0]; i++) check_layout(&base, &run, &chosen[i], 1, "0|1|2|3");
        support_run_end(&run);
    }
}

/* A device whose queues run late, each by itself: whoever does not wait works on what was there before. */
static void copies_run_beside_what_is_computed(void **state)
{
    static const layout chosen[] = { { "pp", "gpipe", 1, 1 }, { "pp", "gpipe", 2, 2 }, { "pp", "1f1b", 3, 1 }, { "pp", "zb-v", 2, 1 } };
    const het_model_desc model = support_deep_model(HET_LLAMA);
    support_result base;
    support_run run;
    size_t i;
    int32_t store;
    int d;
    (void)state;
    late_start();
    fake_reset();
    support_run_start(&run, &model, STEPS, SUPPORT_SHORT);
    base = support_train(&run, SUPPORT_APART);
    for (d = 0; d < SUPPORT_MAX_RANKS; d++) {
        run.device[d].iface = &late_table;
        run.device[d].ordinal = d;
    }
    for (i = 0; i < 3 * sizeof chosen / sizeof chosen[0]; i++)
        for (store = 1; store <= 2; store++) {
            late_first = (int)(i % 3); /* what is computed comes first, or what is copied */
            run.desc.layout.recompute = i % 2 ? HET_YES : HET_NO;
            run.desc.layout.backward = i == 0 && store == 2 ? HET_BACKWARD_DEFERRED : HET_BACKWARD_FUSED;
            run.desc.layout.communicators.iface = store == 2 ? &fake_iface : NULL; /* neighbours reach each other without the host */
            check_layout(&base, &run, &chosen[i / 3], store, SUPPORT_APART);
        }
    late_first = 0;
    assert_true(fake.live == 0 && fake.wrong == 0);
    support_run_end(&run);
}

/* Lists of the user's: with `store` 0 their own PUT and TAKE are done. The only slot of a rank whose gradients could lie in it is used by both. */
static void lists_of_the_user_s_are_done(void **state)
{
    static const struct { const char *plan, *lines, *blocks; int64_t ranks; } cases[] = {
        { "dp", "0F0,0PUT0,0TAKE0,0B0\n", SUPPORT_TOGETHER, 1 },
        { "pp:0-3|4-7", "0F0,0PUT0,1F0,1B0,0TAKE0,0B0\n", SUPPORT_TOGETHER, 1 },
        { "dp", "0F0,0PUT0,0F1,0PUT1,0TAKE0,0I0,0PUT0,0TAKE1,0I1,0PUT1,0TAKE0,0W0,0TAKE1,0W1\n", "012|345", 1 },
    };
    const het_model_desc model = support_deep_model(HET_LLAMA);
    support_result base;
    support_run run;
    het_error error;
    size_t i;
    (void)state;
    support_run_start(&run, &model, STEPS, SUPPORT_SHORT);
    base = support_train(&run, SUPPORT_TOGETHER);
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        het_schedule *schedule = NULL;
        char text[500];
        support_run_ranks(&run, cases[i].ranks);
        if (i == 1) support_run_plan(&run, "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,4]},{\"rank\":0,\"units\":[4,8]}]}]}", NULL, 1);
        else support_run_plan(&run, cases[i].plan, NULL, 1);
        snprintf(text, sizeof text, "%s", cases[i].lines);
        EXPECT_ERROR(het_schedule_read(run.plan, text, strlen(text), NULL, &schedule, &error), HET_OK, error.text, "");
        run.desc.layout.schedule = schedule;
        run.desc.limits.max_micro_batches = i == 2 ? 2 : 1;
        support_train_same(&base, &run, cases[i].blocks, cases[i].lines);
        run.desc.layout.schedule = NULL;
        run.desc.limits.max_micro_batches = 0;
        het_schedule_free(schedule);
    }
    support_run_end(&run);
}

/* ---- bytes ---- */

static int64_t records_of(het_ctx *ctx, int64_t ranks, int32_t kind, int64_t *bytes)
{
    het_timeline t;
    int64_t r, i, count = 0;
    *bytes = 0;
    for (r = 0; r < ranks; r++) {
        het_get_timeline(ctx, r, &t);
        for (i = 0; i < t.records; i++) {
            if (t.record[i].action.kind != kind) continue;
            count++;
            *bytes += t.record[i].bytes;
        }
    }
    return count;
}

/* gpipe on one rank, 6 micro-batches: k + 1 slots and 6 - k places; a slot's bytes are what one micro-batch more takes. What is estimated is
   what is allocated, on the host as well. */
static void bytes_are_what_was_estimated(void **state)
{
    const het_model_desc model = support_deep_model(HET_LLAMA);
    het_memory keeps, memory, estimate;
    support_memory counted;
    support_run run;
    het_error error;
    size_t slot = 0, last = 0;
    int32_t store;
    int recompute;
    (void)state;
    memset(&keeps, 0, sizeof keeps);
    for (recompute = 0; recompute < 2; recompute++)
        for (store = 0; store <= 6; store++) {
            het_ctx *ctx;
            int64_t put, taken;
            support_run_start(&run, &model, 1, SUPPORT_SHORT);
            support_run_ranks(&run, 1);
            support_run_plan(&run, "pp", "gpipe", 1);
            store_all(run.plan, store);
            memset(&counted, 0, sizeof counted);
            counted.fail_at = -1;
            run.desc.host.allocator = support_allocator(&counted);
            run.desc.limits.max_micro_batches = 6;
            run.desc.layout.recompute = recompute ? HET_YES : HET_NO;
            EXPECT_ERROR(het_memory_estimate(&run.desc, 0, &estimate, &error), HET_OK, error.text, "");
            assert_int_equal(counted.bytes, 0);
            ctx = support_create(&run.desc);
            het_get_memory(ctx, 0, &memory);
            assert_memory_equal(&memory, &estimate, sizeof memory);
            assert_int_equal(counted.bytes, memory.host + memory.device);
            if (store == 0) keeps = memory;
            else if (store == 1) slot = (keeps.activations - memory.activations) / 4;
            else assert_int_equal(memory.activations - last, store < 6 ? slot : 0);
            if (store > 0 && store < 6) {
                assert_int_equal(keeps.activations - memory.activations, (size_t)(6 - (store + 1)) * slot);
                assert_int_equal(memory.stored, (size_t)(6 - store) * slot);
            } else assert_int_equal(memory.stored, 0);
            last = memory.activations;
            (void)support_step(ctx, &run.data, 0, SUPPORT_APART);
            assert_int_equal(records_of(ctx, 1, HET_ACTION_PUT, &put), store > 0 && store < 6 ? 6 - store : 0);
            assert_int_equal(records_of(ctx, 1, HET_ACTION_TAKE, &taken), store > 0 && store < 6 ? 6 - store : 0);
            assert_true((size_t)put == memory.stored && put == taken);
            assert_int_equal(counted.bytes, memory.host + memory.device);
            het_destroy(ctx);
            assert_true(counted.live == 0 && counted.wrong == 0);
            support_run_end(&run);
        }
}

/* What the profile says of a plan is what the engine will ask for. */
static void profiles_say_the_same_bytes(void **state)
{
    const het_model_desc model = support_deep_model(HET_LLAMA);
    int i;
    (void)state;
    for (i = 0; i < LAYOUTS; i++) {
        het_profile *profile = NULL;
        het_memory memory[8], estimate;
        het_schedule *lists, *full = NULL;
        het_needs needs[8];
        het_shape shape;
        het_error error;
        support_run run;
        int64_t r;
        support_run_start(&run, &model, 1, SUPPORT_SHORT);
        support_run_ranks(&run, layouts[i].ranks);
        support_run_plan(&run, layouts[i].plan, layouts[i].schedule, layouts[i].slices);
        store_all(run.plan, 1 + i % 2);
        run.desc.limits.max_tokens = 512;
        run.desc.limits.max_sequences = 16;
        run.desc.limits.max_micro_batches = 6;
        run.desc.granule = 1;
        EXPECT_ERROR(het_profile_describe(&run.desc, NULL, NULL, &profile, &error), HET_OK, error.text, "");
        lists = lists_of(run.plan, 6);
        EXPECT_ERROR(het_schedule_complete(run.plan, NULL, lists, NULL, &full, &error), HET_OK, error.text, "");
        EXPECT_ERROR(het_schedule_needs(run.plan, full, 0, run.plan->ranks, 0, NULL, needs, &error), HET_OK, error.text, "");
        memset(&shape, 0, sizeof shape);
        shape.tokens = 512;
        shape.sequences = 16;
        EXPECT_ERROR(het_profile_memory(profile, run.plan, needs, &shape, memory, &error), HET_OK, error.text, "");
        for (r = 0; r < run.plan->ranks; r++) {
            const double slack = 0.01;
            EXPECT_ERROR(het_memory_estimate(&run.desc, r, &estimate, &error), HET_OK, error.text, "");
            if (fabs((double)memory[r].activations - (double)estimate.activations) > slack * (double)estimate.activations ||
                (double)memory[r].stored < (double)estimate.stored * (1 - slack) || (memory[r].stored > 0) != (estimate.stored > 0))
                fail_msg("%s %s, rank %d: activations %d and %d, stored %d and %d", layouts[i].plan, layouts[i].schedule ? layouts[i].schedule : "",
                    (int)r, (int)memory[r].activations, (int)estimate.activations, (int)memory[r].stored, (int)estimate.stored);
        }
        het_schedule_free(full);
        het_schedule_free(lists);
        het_profile_free(profile);
        support_run_end(&run);
    }
}

/* The simulator counts what check counts, and its copies take the rank's time or run beside it: gpipe of four, one kept. F and B take 10 and 20,
   a copy 4: alone each of the three copies out and three back adds 4; beside, only what
   nothing hides: with 20 each F3 waits for the first PUT, B1, B2 and B3 for their TAKE, one behind the other. */
static void the_simulator_moves_them_too(void **state)
{
    static const struct { double byte; int64_t beside; double makespan; } cases[] = {
        { 0, 0, 120 }, { 1, 0, 120 + 6 * 4 }, { 1, 1, 120 }, { 5, 1, 160 }
    };
    static const double tokens[4] = { 0.5, 0.5, 0.5, 0.5 };
    het_plan *plan = support_plan("pp", "gpipe", 4, 1, 1);
    het_schedule *schedule;
    het_stage_cost stage;
    het_rank_cost rank;
    size_t i;
    (void)state;
    store_all(plan, 1);
    schedule = lists_of(plan, 4);
    memset(&stage, 0, sizeof stage);
    stage.forward.token = 10;
    stage.backward.token = 20;
    stage.keep_weight = 3;
    stage.keep_input = 1;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        het_simulation *simulation = NULL;
        het_costs costs;
        het_error error;
        int64_t k, moved = 0;
        memset(&costs, 0, sizeof costs);
        memset(&rank, 0, sizeof rank);
        rank.host_byte = cases[i].byte;
        rank.beside = cases[i].beside;
        costs.stage = &stage;
        costs.rank = &rank;
        EXPECT_ERROR(het_simulate(plan, schedule, &costs, HET_YES, NULL, &simulation, &error), HET_OK, error.text, "");
        assert_true(simulation->makespan == cases[i].makespan);
        assert_true(simulation->rank[0].peak == 2 && simulation->rank[0].peak_bytes == 8);
        for (k = 0; k < simulation->timeline.records; k++) moved += simulation->timeline.record[k].action.kind == HET_ACTION_PUT ||
            simulation->timeline.record[k].action.kind == HET_ACTION_TAKE ? simulation->timeline.record[k].bytes : 0;
        assert_int_equal(moved, 6 * 4);
        het_simulation_free(simulation);
        costs.tokens = tokens;
        EXPECT_ERROR(het_simulate(plan, schedule, &costs, HET_NO, NULL, &simulation, &error), HET_OK, error.text, "");
        assert_true(simulation->rank[0].peak == 2 && simulation->rank[0].peak_bytes == 0.5 * 8);
        het_simulation_free(simulation);
    }
    het_schedule_free(schedule);
    het_plan_free(plan);
}

/* ---- stores of the user's ---- */

typedef struct tape {
    FILE *file;
    int64_t calls, fail_at, places, bytes, inside; /* places: the most of a rank */
    size_t room;
    pthread_mutex_t lock;
    het_ctx *ctx;
    int scribbles;  /* what is read is not what was written */
    int slow;       /* a call of rank 0 takes a second */
} tape;

static het_result tape_move(void *user, int64_t rank, int64_t place, size_t offset, const void *from, void *to, size_t size)
{
    tape *t = user;
    const long at = (long)((size_t)(rank * 32 + place) * t->room + offset);
    het_result result = HET_OK;
    if (t->slow && rank == 0) (void)sleep(1);
    pthread_mutex_lock(&t->lock);
    if (t->calls++ == t->fail_at) result = HET_ERR_IO;
    else if (fseek(t->file, at, SEEK_SET) != 0) result = HET_ERR_IO;
    else if (from ? fwrite(from, 1, size, t->file) != size : fread(to, 1, size, t->file) != size) result = HET_ERR_IO;
    if (to && result == HET_OK && t->scribbles) ((unsigned char *)to)[2] ^= 0x40; /* of the first number */
    if (place + 1 > t->places) t->places = place + 1;
    t->bytes += (int64_t)size;
    assert_true(offset + size <= t->room && place < 32);
    pthread_mutex_unlock(&t->lock);
    return result;
}
static het_result tape_put(void *user, int64_t rank, int64_t place, size_t offset, const void *from, size_t size)
{
    return tape_move(user, rank, place, offset, from, NULL, size);
}
static het_result tape_get(void *user, int64_t rank, int64_t place, size_t offset, void *to, size_t size)
{
    return tape_move(user, rank, place, offset, NULL, to, size);
}

static void tape_start(tape *t, support_run *run)
{
    memset(t, 0, sizeof *t);
    t->fail_at = -1;
    t->room = (size_t)1 << 24;
    t->file = tmpfile();
    assert_non_null(t->file);
    pthread_mutex_init(&t->lock, NULL);
    run->desc.host.store.put = tape_put;
    run->desc.host.store.get = tape_get;
    run->desc.host.store.user = t;
}

/* On disk, from devices whose memory the host sees and from one that it does not; nothing of it is allocated. */
static void activations_may_lie_on_disk(void **state)
{
    static const layout chosen[] = { { "pp", "gpipe", 1, 1 }, { "pp", "gpipe", 2, 2 }, { "pp", "zb-v", 2, 1 } };
    const het_model_desc model = support_deep_model(HET_LLAMA);
    support_result base;
    support_run run;
    uint64_t seed = 5;
    size_t i;
    int far;
    (void)state;
    support_run_start(&run, &model, STEPS, SUPPORT_SHORT);
    base = support_train(&run, SUPPORT_APART);
    for (far = 0; far < 3; far++)
        for (i = 0; i < sizeof chosen / sizeof chosen[0]; i++) {
            het_memory memory, here;
            het_error error;
            tape t;
            int d;
            if (far) support_run_mixed(&run, 0, &seed);
            late_start();
            for (d = 0; far == 2 && d < SUPPORT_MAX_RANKS; d++) run.device[d].iface = &late_table;
            tape_start(&t, &run);
            check_layout(&base, &run, &chosen[i], 1, SUPPORT_APART);
            EXPECT_ERROR(het_memory_estimate(&run.desc, 0, &memory, &error), HET_OK, error.text, "");
            memset(&run.desc.host.store, 0, sizeof run.desc.host.store);
            EXPECT_ERROR(het_memory_estimate(&run.desc, 0, &here, &error), HET_OK, error.text, "");
            assert_true(memory.stored > 0 && memory.stored == here.stored && here.host == memory.host + here.stored);
            assert_true(t.bytes > 0 && t.places > 0);
            fclose(t.file);
        }
    support_run_end(&run);
}

/* A bit that the store changes changes the bits of the step: what is read is what is used. */
static void what_is_read_is_used(void **state)
{
    const het_model_desc model = support_deep_model(HET_LLAMA);
    support_result base, other;
    support_run run;
    tape t;
    (void)state;
    support_run_start(&run, &model, 1, SUPPORT_SHORT);
    base = support_train(&run, SUPPORT_APART);
    support_run_ranks(&run, 1);
    support_run_plan(&run, "pp", "gpipe", 1);
    store_all(run.plan, 1);
    tape_start(&t, &run);
    t.scribbles = 1;
    other = support_train(&run, SUPPORT_APART);
    assert_int_not_equal(base.weights, other.weights);
    fclose(t.file);
    support_run_end(&run);
}

/* Each call fails once: the step ends with an error that names rank, action and reason, and nothing hangs or leaks. */
static void a_store_that_fails_is_named(void **state)
{
    static const layout chosen[] = { { "pp", "gpipe", 1, 1 }, { "pp", "1f1b", 3, 1 } };
    const het_model_desc model = support_deep_model(HET_LLAMA);
    size_t i;
    int far;
    (void)state;
    for (far = 0; far < 2; far++)
        for (i = 0; i < sizeof chosen / sizeof chosen[0]; i++) {
            int64_t fail, calls = 1;
            for (fail = 0; fail < calls; fail++) {
                support_memory counted;
                support_group group;
                support_run run;
                uint64_t seed = 1;
                het_ctx *ctx;
                het_result result;
                tape t;
                memset(&counted, 0, sizeof counted);
                counted.fail_at = -1;
                support_run_start(&run, &model, 1, SUPPORT_SHORT);
                if (far) support_run_mixed(&run, 0, &seed);
                support_run_ranks(&run, chosen[i].ranks);
                support_run_plan(&run, chosen[i].plan, chosen[i].schedule, 1);
                store_all(run.plan, 1);
                tape_start(&t, &run);
                if (chosen[i].ranks == 1) run.desc.host.allocator = support_allocator(&counted);
                ctx = support_create(&run.desc);
                support_group_start(&group, &run.data, 0, SUPPORT_APART);
                if (fail == 0) {
                    EXPECT_OK(het_step(ctx, group.batch, group.count, NULL));
                    calls = t.calls;
                    assert_true(calls > 4);
                    t.calls = 0;
                }
                t.fail_at = fail;
                result = het_step(ctx, group.batch, group.count, NULL);
                support_expect(result, HET_ERR_IO, het_last_error(ctx), "rank |step |het_desc.host.store.|place |callback failed", "a store",
                               __LINE__);
                assert_true(strstr(het_last_error(ctx), "PUT") || strstr(het_last_error(ctx), "TAKE"));
                assert_true(het_get_status(ctx) & HET_FAILED);
                support_group_end(&group);
                het_destroy(ctx);
                assert_int_equal(counted.live, 0);
                fclose(t.file);
                support_run_end(&run);
            }
        }
}

/* A call that does not come back in time: the other rank names the one that it waits for. */
static void a_store_that_stalls_is_named(void **state)
{
    const het_model_desc model = support_deep_model(HET_LLAMA);
    support_group group;
    support_run run;
    het_ctx *ctx;
    tape t;
    (void)state;
    support_run_start(&run, &model, 2, SUPPORT_SHORT);
    run.desc.layout.stall_deadline = 0.3;
    support_run_ranks(&run, 2);
    support_run_plan(&run, "pp", "gpipe", 1);
    run.plan->stage[0].store = 1;
    tape_start(&t, &run);
    ctx = support_create(&run.desc);
    (void)support_step(ctx, &run.data, 0, SUPPORT_APART);
    t.slow = 1;
    support_group_start(&group, &run.data, 1, SUPPORT_APART);
    EXPECT_ERROR(het_step(ctx, group.batch, group.count, NULL), HET_ERR_TRANSPORT, het_last_error(ctx),
                 "rank 1, step 2|of rank 0|stall deadline is 0.3");
    support_group_end(&group);
    het_destroy(ctx);
    fclose(t.file);
    support_run_end(&run);
}

static void half_a_store_is_refused(void **state)
{
    het_desc desc;
    het_ctx *ctx;
    het_error error;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.host.store.put = tape_put;
    assert_int_equal(het_create(&desc, &ctx, &error), HET_ERR_INVALID);
    assert_non_null(strstr(error.text, "het_desc.host.store needs both put and get"));
}

/* The k-th allocation fails: OOM, and nothing is left. */
static void allocations_that_fail_leave_nothing(void **state)
{
    const het_model_desc model = support_deep_model(HET_LLAMA);
    int64_t k;
    (void)state;
    for (k = 0;; k++) {
        support_memory counted;
        support_run run;
        het_ctx *ctx = NULL;
        het_error error;
        het_result result;
        support_run_start(&run, &model, 1, SUPPORT_SHORT);
        support_run_ranks(&run, 1);
        support_run_plan(&run, "pp", "gpipe", 1);
        store_all(run.plan, 1);
        memset(&counted, 0, sizeof counted);
        run.desc.host.allocator = support_allocator(&counted);
        counted.fail_at = k;
        result = het_create(&run.desc, &ctx, &error);
        if (result != HET_OK) assert_true(result == HET_ERR_OOM && ctx == NULL);
        het_destroy(ctx);
        assert_true(counted.live == 0 && counted.wrong == 0);
        support_run_end(&run);
        if (result == HET_OK) break;
    }
    assert_true(k > 10);
}

/* Other plans while training, evaluation and generation between steps. */
static void replanning_and_evaluating(void **state)
{
    const het_model_desc model = support_deep_model(HET_LLAMA);
    static const layout both[2] = { { "pp", "gpipe", 2, 1 }, { "pp", "zb-v", 2, 2 } };
    het_replan_desc other;
    support_group group;
    support_run run, plain;
    het_ctx *ctx, *base;
    het_step_info here, there;
    float logits[2][300];
    const int32_t token[3] = { 1, 2, 3 };
    int step;
    (void)state;
    support_run_start(&plain, &model, STEPS, SUPPORT_SHORT);
    support_run_start(&run, &model, STEPS, SUPPORT_SHORT);
    support_run_ranks(&run, 2);
    support_run_plan(&run, both[0].plan, both[0].schedule, 1);
    store_all(run.plan, 1);
    ctx = support_create(&run.desc);
    base = support_create(&plain.desc);
    assert_true(model.vocab <= 300);
    for (step = 0; step < STEPS; step++) {
        (void)support_step(base, &plain.data, step, SUPPORT_APART);
        (void)support_step(ctx, &run.data, step, SUPPORT_APART);
        support_group_start(&group, &run.data, step, SUPPORT_APART);
        EXPECT_OK(het_evaluate(base, group.batch, group.count, &there));
        EXPECT_OK(het_evaluate(ctx, group.batch, group.count, &here));
        assert_true(here.loss == there.loss);
        support_group_end(&group);
        EXPECT_OK(het_infer(base, token, 3, 0, logits[0]));
        EXPECT_OK(het_infer(ctx, token, 3, 0, logits[1]));
        assert_memory_equal(logits[0], logits[1], (size_t)model.vocab * sizeof(float));
        het_plan_free(run.plan);
        run.plan = plan_of(&both[1 - step % 2], 8);
        store_all(run.plan, 1 + step);
        memset(&other, 0, sizeof other);
        other.plan = run.plan;
        EXPECT_OK(het_replan(ctx, &other));
    }
    assert_true(support_hash(ctx) == support_hash(base));
    het_destroy(ctx);
    het_destroy(base);
    support_run_end(&run);
    support_run_end(&plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_by_hand),
        cmocka_unit_test(given_lists_get_them),
        cmocka_unit_test(no_list_needs_more_than_it_stores),
        cmocka_unit_test(wrong_lists_are_named),
        cmocka_unit_test(plans_say_store),
        cmocka_unit_test(any_schedule_has_the_bits_of_one_rank),
        cmocka_unit_test(bf16_dropout_and_long_sequences_too),
        cmocka_unit_test(copies_run_beside_what_is_computed),
        cmocka_unit_test(lists_of_the_user_s_are_done),
        cmocka_unit_test(bytes_are_what_was_estimated),
        cmocka_unit_test(profiles_say_the_same_bytes),
        cmocka_unit_test(the_simulator_moves_them_too),
        cmocka_unit_test(activations_may_lie_on_disk),
        cmocka_unit_test(what_is_read_is_used),
        cmocka_unit_test(a_store_that_fails_is_named),
        cmocka_unit_test(a_store_that_stalls_is_named),
        cmocka_unit_test(half_a_store_is_refused),
        cmocka_unit_test(allocations_that_fail_leave_nothing),
        cmocka_unit_test(replanning_and_evaluating),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
