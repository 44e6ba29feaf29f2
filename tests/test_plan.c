/* Plans and schedules: texts that come back as they went in, files written by PyTorch, every error by its message, and lists of random plans that
   a second, slow checker written from the rules judges too.

   Usage: test_plan [folder], the folder holds PyTorch's files and is tests/data/pytorch_pipelining unless given. */
#include "support.h"
#include "hetrain_plan.h"

static const char *folder = "tests/data/pytorch_pipelining";

/* ---- helpers ---- */

static het_plan_desc describe(int64_t units, int64_t ranks, const char *schedule)
{
    het_plan_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.units = units;
    desc.ranks = ranks;
    desc.schedule = schedule;
    return desc;
}

static het_plan *read_plan(const het_plan_desc *desc, const char *text)
{
    het_plan *plan = NULL;
    het_error error;
    error.text[0] = 0;
    EXPECT_ERROR(het_plan_read(desc, text, strlen(text), &plan, &error), HET_OK, error.text, "");
    assert_non_null(plan);
    return plan;
}

static het_schedule *read_schedule(const het_plan *plan, const char *text)
{
    het_schedule *schedule = NULL;
    het_error error;
    error.text[0] = 0;
    EXPECT_ERROR(het_schedule_read(plan, text, strlen(text), NULL, &schedule, &error), HET_OK, error.text, "");
    assert_non_null(schedule);
    return schedule;
}

static het_schedule *complete(const het_plan *plan, const het_blocks *blocks, const het_schedule *compute)
{
    het_schedule *schedule = NULL;
    het_error error;
    error.text[0] = 0;
    EXPECT_ERROR(het_schedule_complete(plan, blocks, compute, NULL, &schedule, &error), HET_OK, error.text, "");
    assert_non_null(schedule);
    return schedule;
}

static void check(const het_plan *plan, const het_blocks *blocks, const het_schedule *schedule, double *peak)
{
    het_error error;
    error.text[0] = 0;
    EXPECT_ERROR(het_schedule_check(plan, blocks, schedule, peak, &error), HET_OK, error.text, "");
}

/* Written text, ended by 0. */
static char *plan_text(const het_plan *plan, support_buffer *buffer)
{
    het_writer writer;
    support_buffer_start(buffer);
    writer = support_writer(buffer);
    EXPECT_OK(het_plan_write(plan, &writer));
    support_buffer_append(buffer, "", 1);
    return (char *)buffer->data;
}

static char *schedule_text(const het_schedule *schedule, support_buffer *buffer)
{
    het_writer writer;
    support_buffer_start(buffer);
    writer = support_writer(buffer);
    EXPECT_OK(het_schedule_write(schedule, &writer));
    support_buffer_append(buffer, "", 1);
    return (char *)buffer->data;
}

static void same_doubles(const double *a, const double *b, int64_t count)
{
    int64_t i;
    for (i = 0; i < count; i++) {
        if (memcmp(&a[i], &b[i], sizeof *a) != 0) fail_msg("%.17g came back as %.17g", a[i], b[i]);
    }
}

static void same_plans(const het_plan *a, const het_plan *b)
{
    int64_t i;
    assert_int_equal(a->units, b->units);
    assert_int_equal(a->ranks, b->ranks);
    assert_int_equal(a->pipelines, b->pipelines);
    assert_int_equal(a->stages, b->stages);
    assert_int_equal(a->slices, b->slices);
    assert_true(a->slice_tokens == b->slice_tokens);
    assert_string_equal(a->schedule, b->schedule);
    same_doubles(&a->memory_limit, &b->memory_limit, 1);
    assert_memory_equal(&a->step, &b->step, sizeof a->step);
    for (i = 0; i < a->stages; i++) {
        assert_int_equal(a->stage[i].pipeline, b->stage[i].pipeline);
        assert_int_equal(a->stage[i].rank, b->stage[i].rank);
        assert_int_equal(a->stage[i].unit_begin, b->stage[i].unit_begin);
        assert_int_equal(a->stage[i].unit_end, b->stage[i].unit_end);
        assert_int_equal(a->stage[i].recompute, b->stage[i].recompute);
        assert_int_equal(a->stage[i].recompute_units, b->stage[i].recompute_units);
        assert_true(a->stage[i].keep == b->stage[i].keep);
    }
    for (i = 0; i <= a->pipelines; i++) assert_int_equal(a->first_stage[i], b->first_stage[i]);
    same_doubles(a->share, b->share, a->pipelines);
    same_doubles(a->state_share, b->state_share, a->ranks);
    same_doubles(a->slice_share, b->slice_share, a->slices);
}

/* "rank:begin-last rank:begin-last | ...": pipelines between bars. */
static const char *shape(const het_plan *plan, char *to, size_t capacity)
{
    int64_t i;
    size_t length = 0;
    to[0] = 0;
    for (i = 0; i < plan->stages; i++) {
        const het_stage *stage = &plan->stage[i];
        const char *before = i == 0 ? "" : plan->first_stage[stage->pipeline] == i ? " | " : " ";
        length += (size_t)snprintf(to + length, capacity - length, "%s%d:%d-%d%s", before, (int)stage->rank, (int)stage->unit_begin,
                                   (int)stage->unit_end - 1, stage->recompute == HET_RECOMPUTE_STAGE ? "R" : stage->recompute ? "r" : "");
        assert_true(length < capacity);
    }
    return to;
}

/* ---- plans ---- */

static void json(void **state)
{
    static const char text[] =
        " {\"pipelines\":[{\"share\":0.25,\"stages\":[{\"rank\":2,\"units\":[0,3],\"recompute\":true,\"keep\":[0,1]},"
        "{\"units\":[3,8],\"rank\":0}]},\n"
        "{\"stages\":[{\"rank\":3,\"units\":[0,8]}]}],\"state_shares\":[1,0.5,0,2e0],\"slices\":[3,1],"
        "\"schedule\":\"gpipe\",\"step\":{\"micro_batch\":3,\"granules\":32,\"sequences\":2,\"length\":128},\"memory_limit\":3.5} \n";
    het_plan_desc desc = describe(8, 4, NULL);
    het_plan *plan = read_plan(&desc, text), *again;
    support_buffer buffer;
    char line[256];
    (void)state;
    assert_string_equal(shape(plan, line, sizeof line), "2:0-2r 0:3-7 | 3:0-7");
    assert_int_equal(plan->pipelines, 2);
    assert_int_equal(plan->stages, 3);
    assert_int_equal(plan->first_stage[1], 2);
    assert_int_equal(plan->slices, 2);
    assert_string_equal(plan->schedule, "gpipe");
    assert_true(plan->share[0] == 0.25 && plan->share[1] == 1.0 && plan->memory_limit == 3.5);
    assert_true(plan->state_share[0] == 1.0 && plan->state_share[1] == 0.5 && plan->state_share[2] == 0.0 && plan->state_share[3] == 2.0);
    assert_true(plan->slice_share[0] == 3.0 && plan->slice_share[1] == 1.0);
    assert_true(plan->stage[0].keep == 3 && plan->stage[1].keep == 0);
    assert_true(plan->step.granules == 32 && plan->step.sequences == 2 && plan->step.length == 128 && plan->step.micro_batch == 3);
    again = read_plan(&desc, plan_text(plan, &buffer));
    same_plans(plan, again);
    het_plan_free(plan);
    het_plan_free(again);
    support_buffer_end(&buffer);

    desc.recompute = HET_RECOMPUTE_UNIT; /* where the text says nothing; never the stage of the last unit */
    desc.slices = 3;
    desc.schedule = "zb-h1";
    plan = read_plan(&desc,
                     "{\"pipelines\":[{\"stages\":[{\"rank\":2,\"units\":[0,3]},{\"units\":[3,5],\"rank\":0,\"recompute\":false},"
                     "{\"rank\":0,\"units\":[5,8]}]}]}");
    assert_string_equal(shape(plan, line, sizeof line), "2:0-2r 0:3-4 0:5-7");
    assert_int_equal(plan->slices, 3);
    assert_string_equal(plan->schedule, "zb-h1");
    het_plan_free(plan);
    desc.recompute = HET_RECOMPUTE_STAGE; /* also the last one */
    plan = read_plan(&desc,
                     "{\"pipelines\":[{\"stages\":[{\"rank\":2,\"units\":[0,3]},{\"units\":[3,5],\"rank\":0,\"recompute\":true},"
                     "{\"rank\":0,\"units\":[5,6]},{\"rank\":1,\"units\":[6,8],\"recompute\":1}]}]}");
    assert_string_equal(shape(plan, line, sizeof line), "2:0-2R 0:3-4r 0:5-5R 1:6-7r");
    assert_true(plan->stage[1].recompute_units == 0 && plan->stage[3].recompute_units == 1);
    again = read_plan(&desc, plan_text(plan, &buffer));
    same_plans(plan, again);
    het_plan_free(plan);
    het_plan_free(again);
    support_buffer_end(&buffer);
    plan = read_plan(&desc,
                     "{\"pipelines\":[{\"stages\":[{\"rank\":2,\"units\":[0,8]}]}],"
                     "\"teams\":[{\"ranks\":[2],\"heads\":[[0]],\"split\":\"columns\"}]}"); /* a member alone has all heads */
    again = read_plan(&desc, plan_text(plan, &buffer));
    same_plans(plan, again);
    assert_true(again->members == 1 && again->member[0].heads == 0 && again->member[0].columns == 1);
    het_plan_free(plan);
    het_plan_free(again);
    support_buffer_end(&buffer);
    plan = read_plan(&desc, "{\"slices\":5,\"pipelines\":[{\"stages\":[{\"rank\":2,\"units\":[0,8]}]}]}");
    assert_int_equal(plan->slices, 5);
    assert_true(plan->slice_share[4] == 1.0);
    het_plan_free(plan);
    het_plan_free(NULL);
}

static double random_share(uint64_t *seed)
{
    const int64_t kind = support_below(seed, 6);
    if (kind == 0) return (double)(1 + support_below(seed, 1000));
    if (kind == 1) return (double)(1 + support_below(seed, 1000)) / 1000.0;
    if (kind == 2) return ldexp(1.0, (int)support_below(seed, 190) - 95);
    if (kind == 3) return nextafter(pow(10.0, (double)support_below(seed, 58) - 29.0), support_below(seed, 2) ? 1e31 : 0.0);
    return ldexp(1.0 + (support_uniform(seed) + 1.0) / 2.0, (int)support_below(seed, 190) - 95);
}

/* What is written is the same number for a reader made by others (strtod) and for ours. */
static void numbers(void **state)
{
    uint64_t seed = 1;
    int round, i;
    (void)state;
    for (round = 0; round < 200; round++) {
        het_plan_desc desc = describe(4, 32, NULL);
        het_plan *plan = read_plan(&desc, "dp"), *again;
        support_buffer buffer;
        const char *at;
        for (i = 0; i < 32; i++) plan->state_share[i] = random_share(&seed);
        at = strstr(plan_text(plan, &buffer), "state_shares\": [") + 16;
        for (i = 0; i < 32; i++) {
            char *end = NULL;
            if (strtod(at, &end) != plan->state_share[i]) fail_msg("%.17g is written %.30s", plan->state_share[i], at);
            if (end - at > 25) fail_msg("%.17g is written %.30s", plan->state_share[i], at);
            at = end + 2;
        }
        again = read_plan(&desc, (const char *)buffer.data);
        same_plans(plan, again);
        het_plan_free(plan);
        het_plan_free(again);
        support_buffer_end(&buffer);
    }
}

static void shortest(void **state)
{
    static const struct { double value; const char *text; } cases[] = {
        { 1.0, "1" }, { 0.1, "0.1" }, { 0.3, "0.3" }, { 1500.0, "1500" }, { 1e17, "100000000000000000" }, { 1e30, "1e30" }, { 1e-30, "1e-30" },
        { 0.00001, "0.00001" }, { 1.25e-7, "1.25e-7" }, { 123456.789, "123456.789" }, { 1.0 / 3.0, "0.3333333333333333" }, { 0.0, "0" },
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        het_plan_desc desc = describe(4, 1, NULL);
        het_plan *plan = read_plan(&desc, "pp");
        support_buffer buffer;
        char expected[64];
        plan->memory_limit = cases[i].value;
        snprintf(expected, sizeof expected, "\"memory_limit\": %s\n", cases[i].text);
        if (strstr(plan_text(plan, &buffer), expected) == NULL) fail_msg("%g: %s", cases[i].value, (const char *)buffer.data);
        het_plan_free(plan);
        support_buffer_end(&buffer);
    }
}

static void shorthands(void **state)
{
    static const struct { int64_t units, ranks; const char *schedule; int64_t chunks; const char *text, *expected; } cases[] = {
        { 6, 3, NULL, 0, "dp", "0:0-5 | 1:0-5 | 2:0-5" },
        { 6, 3, NULL, 0, "dp3", "0:0-5 | 1:0-5 | 2:0-5" },
        { 6, 1, NULL, 0, " pp\n", "0:0-5" },
        { 8, 3, NULL, 0, "pp", "0:0-2 1:3-5 2:6-7" },
        { 7, 3, "gpipe", 0, "pp3", "0:0-2 1:3-4 2:5-6" },
        { 4, 4, NULL, 0, "dp2xpp2", "0:0-1 1:2-3 | 2:0-1 3:2-3" },
        { 4, 4, NULL, 0, "dp2xpp", "0:0-1 1:2-3 | 2:0-1 3:2-3" },
        { 4, 4, NULL, 0, "dpxpp2", "0:0-1 1:2-3 | 2:0-1 3:2-3" },
        { 13, 3, NULL, 0, "pp:0-5|6-8|9-12", "0:0-5 1:6-8 2:9-12" },
        { 4, 4, NULL, 0, "dp2xpp:0|1-3", "0:0-0 1:1-3 | 2:0-0 3:1-3" },
        { 4, 4, NULL, 0, "dpxpp:0|1-3", "0:0-0 1:1-3 | 2:0-0 3:1-3" },
        { 8, 2, "interleaved", 0, "pp", "0:0-1 1:2-3 0:4-5 1:6-7" },
        { 9, 2, "interleaved", 3, "pp", "0:0-1 1:2-3 0:4-5 1:6-6 0:7-7 1:8-8" },
        { 6, 4, "interleaved", 3, "dp2xpp2", "0:0-0 1:1-1 0:2-2 1:3-3 0:4-4 1:5-5 | 2:0-0 3:1-1 2:2-2 3:3-3 2:4-4 3:5-5" },
        { 6, 3, "zb-v", 0, "pp", "0:0-0 1:1-1 2:2-2 2:3-3 1:4-4 0:5-5" },
        { 4, 2, "v-half", 0, "pp:0|1|2|3", "0:0-0 1:1-1 1:2-2 0:3-3" },
        { 4, 2, "v-min", 0, "pp", "0:0-0 1:1-1 1:2-2 0:3-3" },
        { 4, 4, "dualpipev", 0, "dp2xpp", "0:0-0 1:1-1 1:2-2 0:3-3 | 2:0-0 3:1-1 3:2-2 2:3-3" },
        { 3, 2, "bidirectional", 0, "pp", "0:0-1 1:2-2 | 1:0-1 0:2-2" },
        { 6, 2, "bitpipe", 0, "pp", "0:0-1 1:2-3 1:4-4 0:5-5 | 1:0-1 0:2-3 0:4-4 1:5-5" },
        { 4, 4, "bidirectional", 0, "dp2xpp:0-2|3", "0:0-2 1:3-3 | 1:0-2 0:3-3 | 2:0-2 3:3-3 | 3:0-2 2:3-3" },
        { 8, 2, NULL, 0, "Et|ttL", "0:0-2 1:3-7" },
        { 10, 4, NULL, 0, "E, t*1 | (t|)*2 t L", "0:0-2 1:3-4 2:5-6 3:7-9" },
        { 126, 16, "interleaved", 2, "E t*3|(tt|)*29,t|L",
          "0:0-6 1:7-10 2:11-14 3:15-18 4:19-22 5:23-26 6:27-30 7:31-34 8:35-38 9:39-42 10:43-46 11:47-50 12:51-54 13:55-58 14:59-62 15:63-66"
          " 0:67-70 1:71-74 2:75-78 3:79-82 4:83-86 5:87-90 6:91-94 7:95-98 8:99-102 9:103-106 10:107-110 11:111-114 12:115-118 13:119-122 "
          "14:123-124 15:125-125" },
        { 10, 4, "v-half", 0, "dp2xEt|t|t|tL", "0:0-2 1:3-4 1:5-6 0:7-9 | 2:0-2 3:3-4 3:5-6 2:7-9" },
        { 4, 2, NULL, 0, "(E|t)*1L", "0:0-0 1:1-3" },
        { 2, 1, NULL, 0, "EL", "0:0-1" },
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        het_plan_desc desc = describe(cases[i].units, cases[i].ranks, cases[i].schedule);
        het_plan *plan, *again;
        support_buffer buffer;
        char line[1024];
        desc.chunks = cases[i].chunks;
        plan = read_plan(&desc, cases[i].text);
        if (strcmp(shape(plan, line, sizeof line), cases[i].expected) != 0) fail_msg("%s: %s, not %s", cases[i].text, line, cases[i].expected);
        again = read_plan(&desc, plan_text(plan, &buffer));
        same_plans(plan, again);
        support_buffer_end(&buffer);
        het_plan_free(plan);
        het_plan_free(again);
    }
}

/* Whole heads by share: where that gives each member one or more, none has a whole head more or less. */
static void heads_by_share(void **state)
{
    uint64_t random = 12;
    int64_t k, m;
    (void)state;
    for (k = 0; k < 2000; k++) {
        const int64_t count = 2 + (int64_t)(support_random(&random) % 12);
        het_plan_desc desc = describe(4, count, NULL);
        char text[200] = "tp";
        double all = 0;
        int64_t given = 0;
        het_plan *plan;
        desc.heads = count * 9 + (int64_t)(support_random(&random) % 30);
        for (m = 0; m < count; m++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%c%d", m > 0 ? ',' : ':', 1 + (int)(support_random(&random) % 9));
        plan = read_plan(&desc, text);
        for (m = 0; m < count; m++) all += plan->member[m].share, given += plan->member[m].heads;
        assert_int_equal(given, desc.heads);
        for (m = 0; m < count; m++) {
            const double heads = plan->member[m].share / all * (double)desc.heads, more = (double)plan->member[m].heads - heads;
            if (!(more > -1.001 && more < 1.001))
                fail_msg("%s: member %d has %d heads, %.3f by share", text, (int)m, (int)plan->member[m].heads, heads);
        }
        het_plan_free(plan);
    }
}

static void plan_errors(void **state)
{
#define ONE(text) "{\"pipelines\":[{\"stages\":[" text "]}]}"
#define WITH(text) "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,8]}]}]," text "}"
    static const struct { const char *schedule, *text; het_result code; const char *words; } cases[] = {
        { NULL, "", HET_ERR_FORMAT, "empty" },
        { NULL, "  \n", HET_ERR_FORMAT, "empty" },
        { NULL, "{", HET_ERR_FORMAT, "byte 1|" },
        { NULL, "{}", HET_ERR_INVALID, "no pipelines" },
        { NULL, "{\"pipelines\":[]}", HET_ERR_INVALID, "no pipelines" },
        { NULL, "{\"pipelines\":[{}]}", HET_ERR_INVALID, "pipeline 0|no stages" },
        { NULL, "{\"pipelines\":[{\"stages\":[]}]}", HET_ERR_INVALID, "pipeline 0|no stages" },
        { NULL, ONE("{\"rank\":0,\"units\":[0,8]}") " x", HET_ERR_FORMAT, "byte 54" },
        { NULL, WITH("\"speed\":3"), HET_ERR_FORMAT, "unknown|speed" },
        { NULL, WITH("\"pipelines\":[]"), HET_ERR_FORMAT, "repeated|pipelines" },
        { NULL, ONE("{\"rank\":0,\"units\":[0,8],\"rank\":1}"), HET_ERR_FORMAT, "repeated|rank" },
        { NULL, ONE("{\"rank\":0,\"units\":[0,8],\"color\":1}"), HET_ERR_FORMAT, "unknown|color" },
        { NULL, ONE("{\"rank\":0}"), HET_ERR_INVALID, "pipeline 0, stage 0|units" },
        { NULL, ONE("{\"units\":[0,8]}"), HET_ERR_INVALID, "pipeline 0, stage 0|rank" },
        { NULL, ONE("{\"rank\":0,\"units\":[0]}"), HET_ERR_FORMAT, "two integers" },
        { NULL, ONE("{\"rank\":0,\"units\":[0,8,9]}"), HET_ERR_FORMAT, "two integers" },
        { NULL, ONE("{\"rank\":0,\"units\":[0,8.0]}"), HET_ERR_FORMAT, "integer" },
        { NULL, ONE("{\"rank\":4,\"units\":[0,8]}"), HET_ERR_INVALID, "pipeline 0, stage 0|rank 4|there are 4" },
        { NULL, ONE("{\"rank\":0,\"units\":[0,8],\"recompute\":true,\"keep\":[0,1]}"), HET_ERR_INVALID,
          "pipeline 0, stage 0|keep is 0x3|there are 1 slices" },
        { NULL, ONE("{\"rank\":0,\"units\":[0,8],\"keep\":[0,64]}"), HET_ERR_INVALID, "keep|slice 64|0 to 63" },
        { NULL, ONE("{\"rank\":0,\"units\":[0,8],\"keep\":[-1]}"), HET_ERR_INVALID, "keep|slice -1|0 to 63" },
        { NULL, ONE("{\"rank\":0,\"units\":[0,8],\"keep\":2}"), HET_ERR_FORMAT, "byte 56|an array" },
        { NULL, ONE("{\"rank\":0,\"units\":[0,8],\"keep\":[0.5]}"), HET_ERR_FORMAT, "integer" },
        { NULL, ONE("{\"rank\":0,\"units\":[0,8],\"recompute\":9}"), HET_ERR_INVALID, "pipeline 0, stage 0|9 of 8 units recompute" },
        { NULL, ONE("{\"rank\":0,\"units\":[0,8],\"recompute\":0}"), HET_ERR_FORMAT, "recompute is true, false, a number" },
        { NULL, ONE("{\"rank\":0,\"units\":[0,8],\"recompute\":1.5}"), HET_ERR_FORMAT, "integer" },
        { NULL, ONE("{\"rank\":0,\"units\":[0,8],\"recompute\":\"unit\"}"), HET_ERR_FORMAT, "recompute is true, false, a number" },
        { NULL, ONE("{\"rank\":-1,\"units\":[0,8]}"), HET_ERR_INVALID, "pipeline 0, stage 0|rank -1" },
        { NULL, ONE("{\"rank\":0,\"units\":[0,9]}"), HET_ERR_INVALID, "pipeline 0, stage 0|[0, 9)|chain of 8" },
        { NULL, ONE("{\"rank\":0,\"units\":[-1,8]}"), HET_ERR_INVALID, "pipeline 0, stage 0|[-1, 8)|chain of 8" },
        { NULL, ONE("{\"rank\":0,\"units\":[0,7]}"), HET_ERR_INVALID, "pipeline 0|unit 7 is not held" },
        { NULL, ONE("{\"rank\":0,\"units\":[0,3]},{\"rank\":1,\"units\":[4,8]}"), HET_ERR_INVALID, "pipeline 0|unit 3 is not held|stage 1" },
        { NULL, ONE("{\"rank\":0,\"units\":[0,5]},{\"rank\":1,\"units\":[4,8]}"), HET_ERR_INVALID, "pipeline 0|unit 4 is held twice|stage 1" },
        { NULL, ONE("{\"rank\":0,\"units\":[0,5]},{\"rank\":1,\"units\":[5,5]},{\"rank\":1,\"units\":[5,8]}"), HET_ERR_INVALID,
          "pipeline 0|stage 1|empty" },
        { NULL, "{\"pipelines\":[{\"share\":-1,\"stages\":[{\"rank\":0,\"units\":[0,8]}]}]}", HET_ERR_INVALID, "share of pipeline 0|-1" },
        { NULL, "{\"pipelines\":[{\"share\":1e999,\"stages\":[{\"rank\":0,\"units\":[0,8]}]}]}", HET_ERR_INVALID, "share of pipeline 0|not finite" },
        { NULL, "{\"pipelines\":[{\"share\":0,\"stages\":[{\"rank\":0,\"units\":[0,8]}]}]}", HET_ERR_INVALID, "all 1 pipelines" },
        { NULL, WITH("\"state_shares\":[1,1,1]"), HET_ERR_INVALID, "3 state shares|4 ranks" },
        { NULL, WITH("\"state_shares\":[1,1,1,1,1]"), HET_ERR_INVALID, "5 state shares|4 ranks" },
        { NULL, WITH("\"state_shares\":[1,-2,1,1]"), HET_ERR_INVALID, "state share of rank 1|-2" },
        { NULL, WITH("\"state_shares\":[0,0,0,0]"), HET_ERR_INVALID, "all 4 ranks" },
        { NULL, WITH("\"state_shares\":[1,1e31,1,1]"), HET_ERR_INVALID, "state share of rank 1|1e+31|1e30" },
        { NULL, WITH("\"slices\":0"), HET_ERR_INVALID, "0 slices" },
        { NULL, WITH("\"slices\":[]"), HET_ERR_INVALID, "0 slices" },
        { NULL, WITH("\"slices\":1000000000"), HET_ERR_INVALID, "1000000000 slices|65536" },
        { NULL, WITH("\"slices\":[1,0]"), HET_ERR_INVALID, "slice 1|0" },
        { NULL, WITH("\"memory_limit\":-0.5"), HET_ERR_INVALID, "memory limit|-0.5" },
        { NULL, WITH("\"step\":{\"granules\":4,\"sequences\":1,\"length\":8}"), HET_ERR_INVALID, "step|\"micro_batch\" is 0|2147483647" },
        { NULL, WITH("\"step\":{\"granules\":4,\"sequences\":-1,\"length\":8,\"micro_batch\":1}"), HET_ERR_INVALID, "step|\"sequences\" is -1" },
        { NULL, WITH("\"step\":{\"granules\":4,\"sequences\":1,\"length\":8,\"micro_batch\":5}"), HET_ERR_INVALID, "micro-batch of 5|step of 4" },
        { NULL, WITH("\"step\":{\"granules\":4,\"sequences\":1,\"length\":8,\"batch\":5}"), HET_ERR_FORMAT, "unknown key 'batch'" },
        { NULL, WITH("\"step\":{\"granules\":4,\"granules\":4}"), HET_ERR_FORMAT, "repeated key 'granules'" },
        { NULL, WITH("\"step\":{\"granules\":4.5}"), HET_ERR_FORMAT, "integer" },
        { NULL, WITH("\"step\":4"), HET_ERR_FORMAT, "object" },
        { NULL, WITH("\"schedule\":\"fast\""), HET_ERR_INVALID, "fast|1f1b|sliced-1f1b" },
        { NULL, WITH("\"schedule\":\"0123456789012345678901234567890123456789\""), HET_ERR_INVALID, "40 bytes" },
        { NULL, WITH("\"schedule\":1"), HET_ERR_FORMAT, "string" },
        { NULL, WITH("\"schedule\":\"1f1b\\u0000\""), HET_ERR_INVALID, "schedule|5 bytes|\"1f1b\"" },
        { NULL, WITH("\"shard\":\"state\\u0000\""), HET_ERR_INVALID, "\"shard\"|6 bytes|\"state\"" },
        { NULL, WITH("\"teams\":[{\"ranks\":[0,1],\"split\":\"rows\\u0000s\"}]"), HET_ERR_INVALID, "\"split\"|6 bytes|\"rows\"" },
        { NULL, ONE("{\"rank\":0,\"units\":[0,8],\"recompute\":\"stage\\u0000\"}"), HET_ERR_INVALID, "\"recompute\"|6 bytes|\"stage\"" },
        { NULL, "dpx", HET_ERR_FORMAT, "byte 3" },
        { NULL, "dp0", HET_ERR_FORMAT, "no pipelines" },
        { NULL, "pp0", HET_ERR_FORMAT, "no stages" },
        { NULL, "dp3", HET_ERR_INVALID, "3 pipelines|3 ranks|there are 4" },
        { NULL, "pp5", HET_ERR_INVALID, "5 ranks|there are 4" },
        { NULL, "dp3xpp", HET_ERR_INVALID, "there are 4" },
        { NULL, "dp99999999999999999999xpp3", HET_ERR_INVALID, "there are 4" },
        { NULL, "dpxpp", HET_ERR_INVALID, "one number" },
        { NULL, "pp4x", HET_ERR_FORMAT, "byte 3|unexpected" },
        { NULL, "xp4", HET_ERR_FORMAT, "byte 0|xp4" },
        { NULL, "pp:0-1|2-3|4-5|6-8", HET_ERR_INVALID, "stage 3|units 6-8|chain of 8" },
        { NULL, "pp:0-1|2-3|4-5|7", HET_ERR_INVALID, "pipeline 0|unit 6 is not held" },
        { NULL, "pp:0-1|2-3|3-5|6-7", HET_ERR_INVALID, "pipeline 0|unit 3 is held twice" },
        { NULL, "pp:0-1|2-3|4-7", HET_ERR_INVALID, "3 ranks|there are 4" },
        { NULL, "pp:0-1|3-2|4-7", HET_ERR_INVALID, "stage 1|3-2" },
        { NULL, "pp:0-1||4-7", HET_ERR_FORMAT, "byte 7" },
        { NULL, "pp:0-x", HET_ERR_FORMAT, "byte 3|0-x" },
        { "interleaved", "pp:0-1|2-3|4-7", HET_ERR_INVALID, "3 stages|interleaved|multiple of 2" },
        { "interleaved", "pp:0-1|2-3|4-5|6-7", HET_ERR_INVALID, "2 ranks|there are 4" },
        { "magic", "pp", HET_ERR_INVALID, "magic" },
        { NULL, "t|t|t|L", HET_ERR_INVALID, "E must come" },
        { NULL, "Et|t|t|EL", HET_ERR_INVALID, "E must come first" },
        { NULL, "Et|t|L", HET_ERR_INVALID, "all 3 layers|after 2" },
        { NULL, "Et|t*2|t|L", HET_ERR_INVALID, "more than 3 layers" },
        { NULL, "Et|t|t", HET_ERR_INVALID, "7 of 8 units" },
        { NULL, "E||ttt|L", HET_ERR_INVALID, "stage 1 is empty" },
        { NULL, "E|*2ttt|L", HET_ERR_INVALID, "stage 1 is empty" },
        { NULL, "Ettt|L|", HET_ERR_INVALID, "stage 2 is empty" },
        { NULL, "Et|t|tm|L", HET_ERR_UNSUPPORTED, "byte 6|multi-token" },
        { NULL, "E(t|)L", HET_ERR_FORMAT, "byte 1|no *n" },
        { NULL, "E(t|*3L", HET_ERR_FORMAT, "byte 1|')'" },
        { NULL, "cp:4294967296,2147483648,1,1", HET_ERR_FORMAT, "byte 13: no share below 2^31 at" },
        { NULL, "dp2147483648xpp2147483648xcp2", HET_ERR_INVALID, "2147483648 pipelines|4294967294 ranks|there are 4" },
        { NULL, "E((t|)*2)*2L", HET_ERR_FORMAT, "byte 2" },
        { NULL, "E()*3L", HET_ERR_FORMAT, "byte 1|empty group" },
        { NULL, "E( , )*3L", HET_ERR_FORMAT, "byte 1|empty group" },
        { NULL, "Et*0tttL", HET_ERR_INVALID, "byte 2|*0" },
        { NULL, "Et*tL", HET_ERR_FORMAT, "byte 2|number" },
        { NULL, "E(t|)*99999999999L", HET_ERR_INVALID, "byte 5|1 to 8" },
        { NULL, "Et|t|q|L", HET_ERR_FORMAT, "byte 5" },
    };
    het_plan_desc desc = describe(8, 4, NULL);
    het_plan *plan = NULL;
    het_error error;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        plan = (het_plan *)&desc;
        desc.schedule = cases[i].schedule;
        support_expect(het_plan_read(&desc, cases[i].text, strlen(cases[i].text), &plan, &error), cases[i].code, error.text, cases[i].words,
                       cases[i].text, __LINE__);
        assert_null(plan);
    }
    desc = describe(3, 4, NULL);
    EXPECT_ERROR(het_plan_read(&desc, "pp", 2, &plan, &error), HET_ERR_INVALID, error.text, "too many stages|4 for 3 units");
    EXPECT_ERROR(het_plan_read(&desc, "E|L", 3, &plan, &error), HET_ERR_INVALID, error.text, "chain has 3 units");
    desc.ranks = 0;
    EXPECT_ERROR(het_plan_read(&desc, "pp", 2, &plan, &error), HET_ERR_INVALID, error.text, "ranks is 0");
    desc = describe(8, 4, NULL);
    desc.end_canary = 0xCDCDCDCDu;
    EXPECT_ERROR(het_plan_read(&desc, "pp", 2, &plan, &error), HET_ERR_INVALID, error.text, "cdcdcdcd");
    desc.end_canary = 0;
    desc.slices = 65537;
    EXPECT_ERROR(het_plan_read(&desc, "pp", 2, &plan, &error), HET_ERR_INVALID, error.text, "slices is 65537");
    desc.slices = 1;
    desc.store = (INT64_C(1) << 32) + 1; /* a stage has 32 bits for it */
    EXPECT_ERROR(het_plan_read(&desc, "pp", 2, &plan, &error), HET_ERR_INVALID, error.text, "store is 4294967297");
    EXPECT_ERROR(het_plan_read(NULL, "pp", 2, &plan, &error), HET_ERR_INVALID, error.text, "desc is NULL");
}

/* ---- PyTorch's files ---- */

static char *load(const char *name)
{
    char path[512];
    FILE *file;
    long size;
    char *text;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "rb");
    if (file == NULL) fail_msg("cannot open %s", path);
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    text = support_alloc((size_t)size + 1, 1);
    assert_int_equal(fread(text, 1, (size_t)size, file), size);
    fclose(file);
    return text;
}

/* PyTorch's older names in ours: BW is B, B is I, empty cells go. */
static char *translate(const char *text)
{
    char *out = support_alloc(strlen(text) + 1, 1), *to = out;
    for (; *text; text++) {
        const int start = to == out || to[-1] == '\n';
        if (*text == ',' && (start || text[1] == ',' || text[1] == '\n')) continue;
        if (*text == 'B' && text[1] == 'W') *to++ = *text++;
        else if (*text == 'B' && text[-1] != '_') *to++ = 'I';
        else *to++ = *text;
    }
    return out;
}

static void pytorch(void **state)
{
    static const struct {
        const char *name;
        int64_t ranks;
        const char *schedule;
        int older, transfers;
        int64_t micro_batches;
        double peak;
    } cases[] = {
        { "dualpipev_4rank_10mb.csv", 4, "dualpipev", 0, 0, 10, 4.5 }, { "torchtitan_custom_schedule.csv", 2, "interleaved", 0, 0, 8, 8.0 },
        { "zb1p_2rank_2stagep_compute.csv", 2, "interleaved", 1, 0, 8, 0.0 }, { "zb1p_2rank_2stagep_comms.csv", 2, "interleaved", 1, 1, 8, 0.0 },
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        het_plan_desc desc = describe(8, cases[i].ranks, cases[i].schedule);
        het_plan *plan = read_plan(&desc, "pp");
        char *text = load(cases[i].name), *expected = cases[i].older ? translate(text) : NULL;
        het_schedule *schedule = read_schedule(plan, text), *whole;
        support_buffer buffer;
        double peak[4];
        assert_string_equal(schedule_text(schedule, &buffer), cases[i].older ? expected : text);
        assert_int_equal(schedule->micro_batches[0], cases[i].micro_batches);
        assert_int_equal(schedule->complete, 0);
        check(plan, NULL, schedule, peak);
        if (cases[i].peak > 0.0 && fabs(peak[0] - cases[i].peak) > 1e-9) fail_msg("%s: peak %g", cases[i].name, peak[0]);
        if (!cases[i].transfers) {
            whole = complete(plan, NULL, schedule);
            check(plan, NULL, whole, NULL);
            het_schedule_free(whole);
        }
        support_buffer_end(&buffer);
        het_schedule_free(schedule);
        het_plan_free(plan);
        free(text);
        free(expected);
    }
}

/* ---- texts of schedules ---- */

static void texts(void **state)
{
    static const struct { const char *text, *expected; } cases[] = {
        { "0F0,0B0\n1F0,1B0\n", "0F0,0B0\n1F0,1B0\n" },
        { "0F0,0B0\r\n1F0,1B0", "0F0,0B0\n1F0,1B0\n" },
        { " 0F0 ,\t0BW0, ,\n,,1F0,1B0,,\n\n \n", "0F0,0B0\n1F0,1B0\n" },
        { "\n\n", "\n\n" },
        { "0F0,0B0,0W0\n1F0,1I0,1W0\n", "0F0,0I0,0W0\n1F0,1I0,1W0\n" },
        { "0F0,0BW0,0W1\n1F0,1W0,1B0\n", "0F0,0B0,0W1\n1F0,1W0,1I0\n" },
        { "0F3.1@1/0,0F03.0@0\n0F12.1,0F1@1\n", "0F3.1@1,0F3\n0F12.1,0F1@1\n" },
        { "0B0,0W0.1,0W1,0W0@1\n0B1@1\n", "0B0,0W0.1,0W1,0W0@1\n0B1@1\n" }, /* no W of the same slice, micro-batch, pipeline */
        { "0B0,0W1.1\n0F0\n", "0B0,0W1.1\n0F0\n" }, /* another's W stands in its place of the table */
        { "(0F0;1B0)OVERLAP_F_B\n(0F1.1@1;0I2)OVERLAP_F_B,0SEND_F0\n", "(0F0;1B0)OVERLAP_F_B\n(0F1.1@1;0I2)OVERLAP_F_B,0SEND_F0\n" },
        { "0SEND_F0,1RECV_F2,1SEND_B3,0RECV_B4\nREDUCE5,VERDICT,STEP5,GATHER5\n",
          "0SEND_F0,1RECV_F2,1SEND_B3,0RECV_B4\nREDUCE5,VERDICT,STEP5,GATHER5\n" },
    };
    het_plan_desc desc = describe(8, 2, "bidirectional");
    het_plan *plan;
    size_t i;
    (void)state;
    desc.slices = 2;
    plan = read_plan(&desc, "pp");
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        het_schedule *schedule = read_schedule(plan, cases[i].text);
        support_buffer buffer;
        assert_string_equal(schedule_text(schedule, &buffer), cases[i].expected);
        assert_int_equal(schedule->complete, strstr(cases[i].text, "VERDICT") != NULL);
        support_buffer_end(&buffer);
        het_schedule_free(schedule);
    }
    het_plan_free(plan);
    het_schedule_free(NULL);
}

static void text_errors(void **state)
{
    static const struct { const char *text; het_result code; const char *words; } cases[] = {
        { "", HET_ERR_FORMAT, "0 lines|2 ranks" },
        { "0F0", HET_ERR_FORMAT, "1 lines|2 ranks" },
        { "0F0\n\n0F1", HET_ERR_FORMAT, "line 3|only 2 ranks" },
        { "0F0,0X1\n\n", HET_ERR_FORMAT, "line 1, column 5|0X1|no action" },
        { "0F0\n,,F1\n", HET_ERR_FORMAT, "line 2, column 3|F1" },
        { "0F\n\n", HET_ERR_FORMAT, "line 1, column 1|0F|micro-batch" },
        { "0F2147483647\n\n", HET_ERR_FORMAT, "0F2147483647|2^31" },
        { "99999999999F0\n\n", HET_ERR_FORMAT, "99999999999F0|2^31" },
        { "0F0.\n\n", HET_ERR_FORMAT, "0F0.|number" },
        { "0F0@1.1\n\n", HET_ERR_FORMAT, "0F0@1.1|unexpected" },
        { "0F0x\n\n", HET_ERR_FORMAT, "0F0x|unexpected" },
        { "0F0 1\n\n", HET_ERR_FORMAT, "0F0 1|unexpected" },
        { "0F0/\n\n", HET_ERR_FORMAT, "0F0/|a number must follow" }, { "VERDICT/1\n\n", HET_ERR_FORMAT, "VERDICT/1|unexpected" },
        { "0F0@2\n\n", HET_ERR_INVALID, "0F0@2|pipeline" },
        { "2F0\n\n", HET_ERR_INVALID, "2F0|stage" },
        { "0F0.2\n\n", HET_ERR_INVALID, "0F0.2|slice" },
        { "0F0,0UNSHARD\n\n", HET_ERR_UNSUPPORTED, "line 1, column 5|0UNSHARD" },
        { "0RESHARD\n\n", HET_ERR_UNSUPPORTED, "0RESHARD" },
        { "0REDUCE_GRAD\n\n", HET_ERR_UNSUPPORTED, "0REDUCE_GRAD" },
        { "0SEND_F1_1RECV_B0\n\n", HET_ERR_UNSUPPORTED, "0SEND_F1_1RECV_B0|batched" },
        { "0REDUCE1\n\n", HET_ERR_FORMAT, "0REDUCE1" },
        { "REDUCE\n\n", HET_ERR_FORMAT, "REDUCE|block" },
        { "STEP99999999999\n\n", HET_ERR_FORMAT, "STEP99999999999|2^31" },
        { "REDUCE1.1\n\n", HET_ERR_FORMAT, "REDUCE1.1|unexpected" },
        { "VERDICT1\n\n", HET_ERR_FORMAT, "VERDICT1|unexpected" },
        { "(0F0;0B0)\n\n", HET_ERR_FORMAT, "(0F0;0B0)|OVERLAP_F_B" },
        { "(0F0)OVERLAP_F_B\n\n", HET_ERR_FORMAT, "OVERLAP_F_B" },
        { "(0F0;0B0;0B1)OVERLAP_F_B\n\n", HET_ERR_FORMAT, "0B0;0B1|unexpected" },
        { "(0B0;0F0)OVERLAP_F_B\n\n", HET_ERR_INVALID, "an F and a B or I" },
        { "(0B0;0B1)OVERLAP_F_B\n\n", HET_ERR_INVALID, "an F and a B or I" },
        { "(0F0;VERDICT)OVERLAP_F_B\n\n", HET_ERR_INVALID, "an F and a B or I" },
        { "(\n\n", HET_ERR_FORMAT, "column 1" },
        { "0F0,0BW3.1@1,0W3.1@1\n1F0,1B0\n", HET_ERR_FORMAT, "stage 0, micro-batch 3, slice 1 of pipeline 1|BW|W" },
        { "0F0,0W0\n0BW0\n", HET_ERR_FORMAT, "stage 0, micro-batch 0, slice 0 of pipeline 0|BW|W" },
    };
    het_plan_desc desc = describe(8, 2, "bidirectional");
    het_schedule *schedule = NULL;
    het_plan *plan;
    het_error error;
    size_t i;
    (void)state;
    desc.slices = 2;
    plan = read_plan(&desc, "pp");
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        schedule = (het_schedule *)plan;
        support_expect(het_schedule_read(plan, cases[i].text, strlen(cases[i].text), NULL, &schedule, &error), cases[i].code, error.text,
                       cases[i].words, cases[i].text, __LINE__);
        assert_null(schedule);
    }
    EXPECT_ERROR(het_schedule_read(NULL, "", 0, NULL, &schedule, &error), HET_ERR_INVALID, error.text, "plan is NULL");
    het_plan_free(plan);
}

/* ---- what check says ---- */

static void check_errors(void **state)
{
#define TAIL "REDUCE0,REDUCE1,VERDICT,STEP0,STEP1"
#define R0 "0F0,0SEND_F0,0RECV_B0,0B0,"
#define R1 "1RECV_F0,1F0,1B0,1SEND_B0,"
#define T0 "REDUCE0,VERDICT,STEP0"
#define T1 "REDUCE1,VERDICT,STEP1"
    /* plan: two units on two ranks; "dp": the whole chain on both */
    static const struct { const char *plan, *schedule; int64_t slices; const char *text, *words; } cases[] = {
        { "pp", NULL, 1, "0F0,0B0\n1F0,1B0\n", NULL },
        { "pp", NULL, 1, "0F0,0I0,0W0\n1F0,1B0\n", NULL },
        { "pp", NULL, 1, R0 T0 "\n" R1 T1 "\n", NULL },
        { "pp", NULL, 1, R0 "\n" R1 "\n", NULL }, /* transfers alone */
        { "pp", NULL, 1, "0F0,0B0,1F0,1B0\n\n", "rank 0, position 2 (1F0)|on rank 1" },
        { "pp", NULL, 1, "0F0,0F0,0B0\n1F0,1B0\n", "rank 0, position 1 (0F0)|twice" },
        { "pp", NULL, 1, "0F0,0B0,0B0\n1F0,1B0\n", "rank 0, position 2 (0B0)|twice" },
        { "pp", NULL, 1, "0F0,0B0,0F2,0B2\n1F0,1B0,1F2,1B2\n", "rank 0|0F1 is missing" },
        { "pp", NULL, 1, "0F0,0B0\n1F0\n", "rank 1|1B0 is missing" },
        { "pp", NULL, 1, "0F0,0B0\n\n", "rank 1|1F0 is missing" },
        { "pp", NULL, 1, "0F0,0I0\n1F0,1B0\n", "rank 0|0W0 is missing" },
        { "pp", NULL, 1, "0F0,0W0\n1F0,1B0\n", "rank 0, position 1 (0W0)|must come after 0I0" },
        { "pp", NULL, 1, "0F0,0I0,0BW0\n1F0,1B0\n", "rank 0, position 2 (0B0)|comes beside 0I0" },
        { "pp", NULL, 1, "0B0,0F0\n1F0,1B0\n", "rank 0, position 0 (0B0)|must come after 0F0" },
        { "pp", NULL, 1, "0F0,0W0,0I0\n1F0,1B0\n", "rank 0, position 1 (0W0)|must come after 0I0" },
        { "pp", NULL, 1, "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n",
          "deadlock|rank 0, position 1 (0B0) waits for 1B0 of rank 1|rank 1, position 0 (1F1) waits for 0F1 of rank 0" },
        { "pp", NULL, 1, "0F0,0SEND_F0,0B0,0RECV_B0\n" R1 "\n", "rank 0, position 2 (0B0)|must come after 0RECV_B0" },
        { "pp", NULL, 1, "0SEND_F0,0F0,0RECV_B0,0B0\n" R1 "\n", "rank 0, position 0 (0SEND_F0)|must come after 0F0" },
        { "pp", NULL, 1, R0 "\n1F0,1RECV_F0,1B0,1SEND_B0\n", "rank 1, position 0 (1F0)|must come after 1RECV_F0" },
        { "pp", NULL, 1, R0 "\n1RECV_F0,1F0,1SEND_B0,1B0\n", "rank 1, position 2 (1SEND_B0)|must come after 1I0" },
        { "pp", NULL, 1, "0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n" R1 "\n", "rank 0, position 2 (0SEND_F0)|twice" },
        { "pp", NULL, 1, "0F0,0RECV_B0,0B0\n" R1 "\n", "rank 0|0SEND_F0 is missing" },
        { "pp", NULL, 1, R0 "0SEND_B0\n" R1 "\n", "rank 0, position 4 (0SEND_B0)|no stage on the other side" },
        { "pp", NULL, 1, R0 "\n" R1 "1SEND_F0\n", "rank 1, position 4 (1SEND_F0)|no stage on the other side" },
        { "pp", NULL, 1, "0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F1,1RECV_F0,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n",
          "deadlock|rank 0, position 2 (0SEND_F0)|waits for 1RECV_F0 of rank 1|behind 1RECV_F1|position 2 (1F0)|waits for 0SEND_F0 of rank 0" },
        { "pp", NULL, 1, "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n",
          "deadlock: rank 0, position 3 (0SEND_F1)" },
        { "pp", NULL, 1, "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1RECV_F1,1SEND_B0,1F1,1B1,1SEND_B1\n", NULL },
        { "pp", NULL, 1, R0 T0 "\n" R1 "REDUCE1,STEP1\n", "rank 1, position 5 (STEP1)|must come after VERDICT" },
        { "pp", NULL, 1, R0 T0 "\n" R1 "REDUCE1\n", "rank 1: VERDICT is missing" },
        { "pp", NULL, 1, R0 T0 "\n" R1 "VERDICT,STEP1\n", "rank 1: REDUCE1 is missing" },
        { "pp", NULL, 1, R0 T0 "\n" R1 "REDUCE1,VERDICT\n", "rank 1: STEP1 is missing" },
        { "pp", NULL, 1, R0 T0 "\n" R1 T1 ",GATHER1\n", "rank 1, position 7 (GATHER1)|only this holder" },
        { "pp", NULL, 1, R0 T0 ",STEP0\n" R1 T1 "\n", "rank 0, position 7 (STEP0)|twice" },
        { "pp", NULL, 1, R0 T0 ",VERDICT\n" R1 T1 "\n", "rank 0, position 7 (VERDICT)|twice" },
        { "pp", NULL, 1, R0 "REDUCE0," T0 "\n" R1 T1 "\n", "rank 0, position 5 (REDUCE0)|twice" },
        { "pp", NULL, 1, R0 "VERDICT,REDUCE0,STEP0\n" R1 T1 "\n", "rank 0, position 5 (REDUCE0)|before VERDICT" },
        { "pp", NULL, 1, R0 "REDUCE1," T0 "\n" R1 T1 "\n", "rank 0, position 4 (REDUCE1)|does not hold" },
        { "pp", NULL, 1, R0 "REDUCE2," T0 "\n" R1 T1 "\n", "rank 0, position 4 (REDUCE2)|no such block" },
        { "pp", NULL, 1, "0F0,0SEND_F0,0RECV_B0,REDUCE0,0B0,VERDICT,STEP0\n" R1 T1 "\n", "rank 0, position 3 (REDUCE0)|must come after|0B0" },
        { "dp", NULL, 1,
          "0F0,0B0,REDUCE0,REDUCE1,VERDICT,STEP0,GATHER0,STEP1,GATHER1\n0F0@1,0B0@1,REDUCE0,REDUCE1,VERDICT,STEP1,GATHER1,STEP0,GATHER0\n",
          "GATHER|order" },
        { "dp", NULL, 1,
          "0F0,0B0,REDUCE0,REDUCE1,VERDICT,STEP0,GATHER0,STEP1,GATHER1\n0F0@1,0B0@1,REDUCE0,REDUCE1,VERDICT,STEP1,STEP0,GATHER0,GATHER1\n", NULL },
        { "dp", NULL, 1,
          "0F0,0B0,REDUCE0,REDUCE1,VERDICT,STEP0,GATHER0,STEP1,GATHER1\n0F0@1,0B0@1,REDUCE1,REDUCE0,VERDICT,STEP0,GATHER0,STEP1,GATHER1\n",
          "REDUCE|order" },
        { "dp", NULL, 1, "0F0,0B0,REDUCE0,REDUCE1,VERDICT,STEP0,STEP1,GATHER1\n0F0@1,0B0@1,REDUCE0,REDUCE1,VERDICT,STEP0,GATHER0,STEP1,GATHER1\n",
          "rank 0: GATHER0 is missing" },
        { "dp", NULL, 1, "0F0,0B0,REDUCE0,REDUCE1,VERDICT,GATHER0,STEP0\n0F0@1,0B0@1\n", "rank 0, position 5 (GATHER0)|after its STEP" },
        { "pp", NULL, 2, "0F0,0F0.1,0B0.1,0B0\n1F0,1F0.1,1B0.1,1B0\n", NULL },
        { "pp", NULL, 2, "0F0.1,0F0,0B0.1,0B0\n1F0,1F0.1,1B0.1,1B0\n", "rank 0, position 0 (0F0.1)|must come after 0F0" },
        { "pp", NULL, 2, "0F0,0F0.1,0B0,0B0.1\n1F0,1F0.1,1B0.1,1B0\n", "rank 0, position 2 (0B0)|must come after 0B0.1" },
        { "pp", NULL, 2, "0F0,0B0\n1F0,1F0.1,1B0.1,1B0\n", "rank 0: 0F0.1 is missing" },
        { "pp2", "zb-v", 1, "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", NULL },
        { "pp2", "zb-v", 1, "0F0,3F0,3B0,0B0\n2F0,1F0,2B0,1B0\n", "rank 1, position 0 (2F0)|must come after 1F0" },
        { "pp2", "zb-v", 1, "0F0,3F0,3B0,0B0\n1F0,2F0,1B0,2B0\n", "rank 1, position 2 (1B0)|must come after 2B0" },
        { "pp2", "zb-v", 1, "0F0,(3F0;3B0)OVERLAP_F_B,0B0\n1F0,2F0,2B0,1B0\n", "rank 0, position 2 (3B0)|must come after 3F0" },
        { "pp2", "zb-v", 1, "0F0,3F0,3B0,0B0\n1F0,1SEND_F0,2F0,2B0,1B0\n", "rank 1, position 1 (1SEND_F0)|same rank" },
    };
    het_error error;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        het_plan_desc desc = describe(cases[i].schedule != NULL ? 4 : 2, 2, cases[i].schedule);
        het_schedule *schedule;
        het_plan *plan;
        desc.slices = cases[i].slices;
        plan = read_plan(&desc, cases[i].plan);
        schedule = read_schedule(plan, cases[i].text);
        error.text[0] = 0;
        support_expect(het_schedule_check(plan, NULL, schedule, NULL, &error), cases[i].words == NULL ? HET_OK : HET_ERR_INVALID, error.text,
                       cases[i].words == NULL ? "" : cases[i].words, cases[i].text, (int)i);
        if (cases[i].words != NULL && strstr(cases[i].text, "SEND") == NULL && strstr(cases[i].text, "VERDICT") == NULL) {
            het_schedule *whole = NULL;
            assert_int_equal(het_schedule_complete(plan, NULL, schedule, NULL, &whole, &error), HET_ERR_INVALID);
            assert_null(whole);
        }
        het_schedule_free(schedule);
        het_plan_free(plan);
    }
}

/* Numbers that lie, in lists that a program made: refused before they become indexes or sizes. */
static void wrong_structs(void **state)
{
    static const int64_t bad_units[][3] = { { 0, 0, 0 }, { 0, 2, 0 }, { 1, 1, 0 }, { 0, -1, 0 }, { 1, 0, 0 } };
    het_plan_desc desc = describe(2, 2, NULL);
    het_plan *plan = read_plan(&desc, "pp");
    het_schedule *schedule = read_schedule(plan, "0F0,0B0\n1F0,1B0\n"), *out = NULL, *again = schedule;
    het_error error;
    int64_t start[3] = { 0, 2, 3 }, one[2] = { 0, 1 }, unit = 0;
    het_blocks blocks;
    size_t i;
    (void)state;
    schedule->micro_batches[0] = INT64_C(1) << 40;
    EXPECT_ERROR(het_schedule_check(plan, NULL, schedule, NULL, &error), HET_ERR_INVALID, error.text, "pipeline 0|1099511627776");
    schedule->micro_batches[0] = 2000000000; /* no table of that size: the first missing is named */
    EXPECT_ERROR(het_schedule_check(plan, NULL, schedule, NULL, &error), HET_ERR_INVALID, error.text, "0F1 is missing");
    schedule->micro_batches[0] = 1;
    schedule->start[1] = 5;
    EXPECT_ERROR(het_schedule_check(plan, NULL, schedule, NULL, &error), HET_ERR_INVALID, error.text, "rank 1");
    schedule->start[1] = 2;
    schedule->action[3].kind = 14;
    EXPECT_ERROR(het_schedule_check(plan, NULL, schedule, NULL, &error), HET_ERR_INVALID, error.text, "rank 1, position 1|unknown kind");
    schedule->action[3].kind = HET_ACTION_B;
    schedule->action[3].overlap = 1;
    EXPECT_ERROR(het_schedule_check(plan, NULL, schedule, NULL, &error), HET_ERR_INVALID, error.text, "rank 1, position 1|pair");
    schedule->action[3].overlap = 0;
    schedule->action[2].overlap = 1; /* F and B of one micro-batch cannot run together */
    EXPECT_ERROR(het_schedule_check(plan, NULL, schedule, NULL, &error), HET_ERR_INVALID, error.text, "rank 1, position 1 (1B0)|1F0");
    schedule->action[2].overlap = 0;
    schedule->action[2].version = 1;
    EXPECT_ERROR(het_schedule_check(plan, NULL, schedule, NULL, &error), HET_ERR_INVALID, error.text, "rank 1, position 0|version");
    schedule->action[2].version = 0;
    schedule->ranks = 1;
    EXPECT_ERROR(het_schedule_check(plan, NULL, schedule, NULL, &error), HET_ERR_INVALID, error.text, "1 ranks");
    schedule->ranks = 2;
    schedule->action[0].kind = HET_ACTION_REDUCE;
    EXPECT_ERROR(het_schedule_check(plan, NULL, schedule, NULL, &error), HET_ERR_INVALID, error.text, "rank 0, position 0 (REDUCE0)|complete");
    schedule->action[0].kind = HET_ACTION_F;
    memset(&blocks, 0, sizeof blocks);
    blocks.count = 2;
    blocks.start = start;
    for (i = 0; i < sizeof bad_units / sizeof *bad_units; i++) {
        blocks.unit = bad_units[i];
        if (i < 4) EXPECT_ERROR(het_schedule_check(plan, &blocks, schedule, NULL, &error), HET_ERR_INVALID, error.text, "block 0|unit");
        else EXPECT_ERROR(het_schedule_check(plan, &blocks, schedule, NULL, &error), HET_ERR_INVALID, error.text, "block 0|ascending");
    }
    start[1] = 0;
    EXPECT_ERROR(het_schedule_check(plan, &blocks, schedule, NULL, &error), HET_ERR_INVALID, error.text, "block 0|no unit");
    blocks.count = 1; /* parameters of the second unit only elsewhere: rank 1 reduces nothing */
    blocks.start = one;
    blocks.unit = &unit;
    out = complete(plan, &blocks, schedule);
    check(plan, &blocks, out, NULL);
    het_schedule_free(out);
    blocks.count = 0;
    out = complete(plan, &blocks, schedule);
    check(plan, &blocks, out, NULL);
    EXPECT_ERROR(het_schedule_complete(plan, &blocks, out, NULL, &again, &error), HET_ERR_INVALID, error.text,
                 "rank 0, position 0 (0RECV_B0)|only compute");
    het_schedule_free(out);
    out = read_schedule(plan, "0F0,0I0,0W0\n1F0,1B0\n");
    out->action[1].kind = HET_ACTION_B; /* no text can say it */
    EXPECT_ERROR(het_schedule_check(plan, NULL, out, NULL, &error), HET_ERR_INVALID, error.text, "rank 0, position 2 (0W0)|comes beside 0B0");
    assert_null(again);
    het_schedule_free(out);
    het_schedule_free(schedule);
    het_plan_free(plan);
}

/* ---- a second checker: slow, written from the rules, knows only small schedules ---- */

typedef struct judge {
    const het_plan *plan;
    const het_blocks *blocks;
    const het_schedule *schedule;
    int transfers;
    uint8_t done[14][3][8][4][3];    /* [kind][pipeline][stage][micro-batch][slice]; of PUT, that it is on the host, of TAKE, that it was */
    uint8_t block_done[4][12][12];   /* REDUCE, VERDICT, STEP, GATHER: [kind - REDUCE][rank][block] */
} judge;

static int64_t rank_of(const judge *j, const het_action *a, int by)
{
    const int64_t first = j->plan->first_stage[a->pipeline], stage = first + a->stage + by;
    return stage < first || stage >= j->plan->first_stage[a->pipeline + 1] ? -1 : j->plan->stage[stage].rank;
}

/* kind B or I: either */
static int was_done(const judge *j, int kind, const het_action *a, int by, int slice)
{
    const int p = a->pipeline, s = a->stage + by, m = a->micro_batch, k = a->slice + slice;
    if (kind == HET_ACTION_B || kind == HET_ACTION_I) return j->done[HET_ACTION_B][p][s][m][k] || j->done[HET_ACTION_I][p][s][m][k];
    return j->done[kind][p][s][m][k];
}

static int uses_block(const judge *j, const het_stage *stage, int64_t block)
{
    int64_t i;
    if (j->blocks == NULL) return stage->unit_begin <= block && block < stage->unit_end;
    for (i = j->blocks->start[block]; i < j->blocks->start[block + 1]; i++) {
        if (stage->unit_begin <= j->blocks->unit[i] && j->blocks->unit[i] < stage->unit_end) return 1;
    }
    return 0;
}

static int holds(const judge *j, int64_t rank, int64_t block)
{
    int64_t i;
    for (i = 0; i < j->plan->stages; i++) {
        if (j->plan->stage[i].rank == rank && uses_block(j, &j->plan->stage[i], block)) return 1;
    }
    return 0;
}

static int64_t holders_of(const judge *j, int64_t block)
{
    int64_t r, count = 0;
    for (r = 0; r < j->plan->ranks; r++) count += holds(j, r, block);
    return count;
}

/* All backward passes of a block's stages on a rank are over. */
static int uses_over(const judge *j, int64_t rank, int64_t block)
{
    int64_t i, m, k;
    for (i = 0; i < j->plan->stages; i++) {
        const het_stage *stage = &j->plan->stage[i];
        const int64_t s = i - j->plan->first_stage[stage->pipeline];
        if (stage->rank != rank || !uses_block(j, stage, block)) continue;
        for (m = 0; m < j->schedule->micro_batches[stage->pipeline]; m++) {
            for (k = 0; k < j->plan->slices; k++) {
                if (!j->done[HET_ACTION_B][stage->pipeline][s][m][k] && !j->done[HET_ACTION_W][stage->pipeline][s][m][k]) return 0;
            }
        }
    }
    return 1;
}

/* The action may happen now on this rank, transfers and VERDICT aside. */
static int allowed(const judge *j, int64_t rank, const het_action *a)
{
    const int64_t next = a->kind < HET_ACTION_REDUCE ? rank_of(j, a, 1) : -1, previous = a->kind < HET_ACTION_REDUCE ? rank_of(j, a, -1) : -1;
    const int away = a->kind <= HET_ACTION_TAKE && j->done[HET_ACTION_PUT][a->pipeline][a->stage][a->micro_batch][a->slice];
    if (away && a->kind != HET_ACTION_TAKE) return 0;
    switch (a->kind) {
    case HET_ACTION_F:
        if (a->slice > 0 && !was_done(j, HET_ACTION_F, a, 0, -1)) return 0;
        if (previous < 0) return 1;
        if (previous != rank && j->transfers) return was_done(j, HET_ACTION_RECV_F, a, 0, 0) && was_done(j, HET_ACTION_SEND_F, a, -1, 0);
        return was_done(j, HET_ACTION_F, a, -1, 0);
    case HET_ACTION_B:
    case HET_ACTION_I:
        if (!was_done(j, HET_ACTION_F, a, 0, 0) || (a->slice + 1 < j->plan->slices && !was_done(j, HET_ACTION_B, a, 0, 1))) return 0;
        if (next < 0) return 1;
        if (next != rank && j->transfers) return was_done(j, HET_ACTION_RECV_B, a, 0, 0) && was_done(j, HET_ACTION_SEND_B, a, 1, 0);
        return was_done(j, HET_ACTION_B, a, 1, 0);
    case HET_ACTION_W: return j->done[HET_ACTION_I][a->pipeline][a->stage][a->micro_batch][a->slice];
    case HET_ACTION_PUT:
        return was_done(j, HET_ACTION_F, a, 0, 0) && !j->done[HET_ACTION_B][a->pipeline][a->stage][a->micro_batch][a->slice] &&
            !was_done(j, HET_ACTION_W, a, 0, 0);
    case HET_ACTION_TAKE: return away;
    case HET_ACTION_SEND_F: return was_done(j, HET_ACTION_F, a, 0, 0);
    case HET_ACTION_SEND_B: return was_done(j, HET_ACTION_B, a, 0, 0);
    case HET_ACTION_REDUCE: return uses_over(j, rank, a->stage) && !j->block_done[1][rank][0];
    case HET_ACTION_STEP: return j->block_done[1][rank][0];
    case HET_ACTION_GATHER: return j->block_done[2][rank][a->stage];
    default: return 1;
    }
}

static void do_it(judge *j, int64_t rank, const het_action *a)
{
    if (a->kind >= HET_ACTION_REDUCE) j->block_done[a->kind - HET_ACTION_REDUCE][rank][a->kind == HET_ACTION_COMMIT ? 0 : a->stage] = 1;
    else j->done[a->kind][a->pipeline][a->stage][a->micro_batch][a->slice] = 1;
    if (a->kind == HET_ACTION_TAKE) j->done[HET_ACTION_PUT][a->pipeline][a->stage][a->micro_batch][a->slice] = 0;
}

/* Numbers, ranks, pairs. */
static int well_formed(const judge *j)
{
    const het_schedule *s = j->schedule;
    int64_t r, i;
    for (r = 0; r < s->ranks; r++) {
        for (i = s->start[r]; i < s->start[r + 1]; i++) {
            const het_action *a = &s->action[i];
            int64_t other;
            if (a->kind < 0 || a->kind > HET_ACTION_GATHER || a->version != 0) return 0;
            if (a->overlap && (a->kind != HET_ACTION_F || i + 1 == s->start[r + 1] || a[1].overlap || (a[1].kind != HET_ACTION_B &&
                                                                                                       a[1].kind != HET_ACTION_I)))
                return 0;
            if (a->kind >= HET_ACTION_REDUCE && !s->complete) return 0;
            if (a->kind == HET_ACTION_COMMIT) continue;
            if (a->kind >= HET_ACTION_REDUCE) {
                if (a->stage < 0 || a->stage >= (j->blocks == NULL ? j->plan->units : j->blocks->count) || !holds(j, r, a->stage)) return 0;
                if (a->kind == HET_ACTION_GATHER && holders_of(j, a->stage) < 2) return 0;
                continue;
            }
            if (a->pipeline < 0 || a->pipeline >= s->pipelines || a->stage < 0 || rank_of(j, a, 0) != r || a->micro_batch < 0 ||
                a->micro_batch >= s->micro_batches[a->pipeline] || a->slice < 0 || a->slice >= j->plan->slices) return 0;
            if (a->kind < HET_ACTION_SEND_F) continue;
            other = rank_of(j, a, a->kind == HET_ACTION_SEND_F || a->kind == HET_ACTION_RECV_B ? 1 : -1);
            if (other < 0 || other == r) return 0;
        }
    }
    return 1;
}

/* How often the action is in the lists. */
static int64_t times(const judge *j, int kind, int64_t p, int64_t s, int64_t m, int64_t k)
{
    int64_t i, count = 0;
    for (i = 0; i < j->schedule->start[j->schedule->ranks]; i++) {
        const het_action *a = &j->schedule->action[i];
        count += a->kind == kind && a->pipeline == p && a->stage == s && a->micro_batch == m && a->slice == k;
    }
    return count;
}

/* Everything is there, once. */
static int whole(const judge *j)
{
    const het_schedule *schedule = j->schedule;
    int64_t i, m, k, r, block;
    for (i = 0; i < j->plan->stages; i++) {
        const het_stage *stage = &j->plan->stage[i];
        const int64_t p = stage->pipeline, s = i - j->plan->first_stage[p];
        const int after = i + 1 < j->plan->first_stage[p + 1] && stage[1].rank != stage->rank && j->transfers;
        const int before = s > 0 && j->plan->stage[i - 1].rank != stage->rank && j->transfers;
        for (m = 0; m < schedule->micro_batches[p]; m++) {
            for (k = 0; k < j->plan->slices; k++) {
                const int64_t b = times(j, HET_ACTION_B, p, s, m, k), in = times(j, HET_ACTION_I, p, s, m, k), w = times(j, HET_ACTION_W, p, s, m, k);
                if (times(j, HET_ACTION_F, p, s, m, k) != 1 || !((b == 1 && in == 0 && w == 0) || (b == 0 && in == 1 && w == 1))) return 0;
                if (times(j, HET_ACTION_SEND_F, p, s, m, k) != after || times(j, HET_ACTION_RECV_B, p, s, m, k) != after) return 0;
                if (times(j, HET_ACTION_RECV_F, p, s, m, k) != before || times(j, HET_ACTION_SEND_B, p, s, m, k) != before) return 0;
            }
        }
    }
    for (r = 0; r < schedule->ranks && schedule->complete; r++) {
        int64_t verdicts = 0;
        for (i = schedule->start[r]; i < schedule->start[r + 1]; i++) verdicts += schedule->action[i].kind == HET_ACTION_COMMIT;
        if (verdicts != 1) return 0;
        for (block = 0; block < (j->blocks == NULL ? j->plan->units : j->blocks->count); block++) {
            int64_t count[3] = { 0, 0, 0 };
            for (i = schedule->start[r]; i < schedule->start[r + 1]; i++) {
                const het_action *a = &schedule->action[i];
                if (a->stage != block) continue;
                count[0] += a->kind == HET_ACTION_REDUCE;
                count[1] += a->kind == HET_ACTION_STEP;
                count[2] += a->kind == HET_ACTION_GATHER;
            }
            if (count[0] != holds(j, r, block) || count[1] != holds(j, r, block)) return 0;
            if (count[2] != (holds(j, r, block) && holders_of(j, block) > 1)) return 0;
        }
    }
    return 1;
}

/* The rank that the message goes to has reached its receive, and all receives of earlier messages from here have them. */
static int is_expected(const judge *j, const int64_t *at, int64_t rank, const het_action *send)
{
    const het_schedule *s = j->schedule;
    const int by = send->kind == HET_ACTION_SEND_F ? 1 : -1;
    const int64_t other = rank_of(j, send, by);
    int64_t i;
    for (i = s->start[other]; i < s->start[other] + at[other]; i++) {
        const het_action *b = &s->action[i];
        const int back = b->kind == HET_ACTION_RECV_F ? -1 : 1;
        if ((b->kind != HET_ACTION_RECV_F && b->kind != HET_ACTION_RECV_B) || rank_of(j, b, back) != rank) continue;
        if (b->kind == send->kind + 1 && b->pipeline == send->pipeline && b->stage == send->stage + by && b->micro_batch == send->micro_batch &&
            b->slice == send->slice) return 1;
        if (!was_done(j, b->kind - 1, b, back, 0)) return 0;
    }
    return 0;
}

/* One pass over the ranks: how many actions went ahead. `collective`: only that kind counts, and it waits for all holders. */
static int64_t go_on(judge *j, int64_t *at, int collective)
{
    const het_schedule *s = j->schedule;
    int64_t r, q, moved = 0;
    for (r = 0; r < s->ranks; r++) {
        const het_action *a = &s->action[s->start[r] + at[r]];
        int64_t together = 0;
        if (s->start[r] + at[r] == s->start[r + 1]) continue;
        if (collective) {
            if (a->kind == collective) {
                for (q = 0; q < s->ranks; q++) {
                    const het_action *b = &s->action[s->start[q] + at[q]];
                    together += s->start[q] + at[q] < s->start[q + 1] && b->kind == collective && b->stage == a->stage;
                }
                if (together < holders_of(j, a->stage)) continue;
                for (q = 0; q < s->ranks; q++) {
                    const het_action *b = &s->action[s->start[q] + at[q]];
                    if (q != r && s->start[q] + at[q] < s->start[q + 1] && b->kind == collective && b->stage == a->stage) at[q]++;
                }
            }
            at[r]++;
            moved++;
            continue;
        }
        if (!allowed(j, r, a) || (a->overlap && !allowed(j, r, a + 1))) continue;
        if (a->kind == HET_ACTION_COMMIT) {
            for (q = 0; q < s->ranks; q++) together += s->start[q] + at[q] < s->start[q + 1] &&
                s->action[s->start[q] + at[q]].kind == HET_ACTION_COMMIT;
            if (together < s->ranks) continue;
            for (q = 0; q < s->ranks; q++) {
                do_it(j, q, a);
                at[q]++;
            }
            moved++;
            continue;
        }
        if ((a->kind == HET_ACTION_SEND_F || a->kind == HET_ACTION_SEND_B) && !is_expected(j, at, r, a)) continue;
        do_it(j, r, a);
        if (a->overlap) do_it(j, r, a + 1);
        at[r] += 1 + a->overlap;
        moved++;
    }
    return moved;
}

static int finishes(judge *j, int collective)
{
    int64_t at[12] = { 0 }, r;
    while (go_on(j, at, collective) > 0) {}
    for (r = 0; r < j->schedule->ranks; r++) {
        if (j->schedule->start[r] + at[r] < j->schedule->start[r + 1]) return 0;
    }
    return 1;
}

static int valid(const het_plan *plan, const het_blocks *blocks, const het_schedule *schedule)
{
    judge j;
    int64_t i;
    memset(&j, 0, sizeof j);
    j.plan = plan;
    j.blocks = blocks;
    j.schedule = schedule;
    j.transfers = schedule->complete;
    for (i = 0; i < schedule->start[schedule->ranks]; i++) j.transfers |= schedule->action[i].kind >= HET_ACTION_SEND_F &&
        schedule->action[i].kind <= HET_ACTION_RECV_B;
    return well_formed(&j) && whole(&j) && finishes(&j, 0) && finishes(&j, HET_ACTION_REDUCE) && finishes(&j, HET_ACTION_GATHER);
}

/* Peaks by counting at every position. */
static void naive_peaks(const het_plan *plan, const het_schedule *schedule, double *peak)
{
    int64_t r, i, k, n;
    double all = 0.0;
    for (i = 0; i < plan->slices; i++) all += plan->slice_share[i];
    for (r = 0; r < schedule->ranks; r++) {
        peak[r] = 0.0;
        for (i = schedule->start[r]; i < schedule->start[r + 1]; i++) {
            double kept = 0.0;
            for (k = schedule->start[r]; k <= i; k++) {
                const het_action *a = &schedule->action[k];
                int64_t same = 0;
                if (a->kind == HET_ACTION_I || a->kind > HET_ACTION_TAKE) continue;
                for (n = plan->first_stage[a->pipeline]; n < plan->first_stage[a->pipeline + 1]; n++) same += plan->stage[n].rank == r;
                kept += (a->kind == HET_ACTION_F || a->kind == HET_ACTION_TAKE ? 1.0 : -1.0) * plan->slice_share[a->slice] / all / (double)same;
            }
            if (kept > peak[r]) peak[r] = kept;
        }
    }
}

/* ---- random plans and lists ---- */

typedef struct lists {
    het_schedule schedule;
    het_action action[4][1200];
    int64_t count[4];
    het_action flat[4800];
    int64_t start[5], micro_batches[3];
} lists;

static void flatten(lists *l)
{
    int64_t r, n = 0;
    for (r = 0; r < l->schedule.ranks; r++) {
        l->start[r] = n;
        memcpy(l->flat + n, l->action[r], (size_t)l->count[r] * sizeof *l->flat);
        n += l->count[r];
    }
    l->start[r] = n;
    l->schedule.start = l->start;
    l->schedule.action = l->flat;
    l->schedule.micro_batches = l->micro_batches;
}

static void unflatten(lists *l, const het_schedule *from)
{
    int64_t r;
    for (r = 0; r < from->ranks; r++) {
        l->count[r] = from->start[r + 1] - from->start[r];
        assert_true(l->count[r] < 1190);
        memcpy(l->action[r], from->action + from->start[r], (size_t)l->count[r] * sizeof *l->flat);
    }
    l->schedule.complete = from->complete;
    flatten(l);
}

static het_plan *random_plan(uint64_t *seed)
{
    const int64_t units = 2 + support_below(seed, 5), ranks = 1 + support_below(seed, 4), pipelines = 1 + support_below(seed, 3);
    het_plan_desc desc = describe(units, ranks, NULL);
    het_plan *plan;
    char text[2048];
    size_t n = (size_t)snprintf(text, sizeof text, "{\"pipelines\":[");
    int64_t p, u;
    desc.slices = 1 + support_below(seed, 3);
    for (p = 0; p < pipelines; p++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%s{\"stages\":[", p ? "," : "");
        for (u = 0; u < units;) {
            const int64_t end = u + 1 + support_below(seed, units - u);
            n += (size_t)snprintf(text + n, sizeof text - n, "%s{\"rank\":%d,\"units\":[%d,%d]}", u ? "," : "", (int)support_below(seed, ranks),
                                  (int)u, (int)end);
            u = end;
        }
        n += (size_t)snprintf(text + n, sizeof text - n, "]}");
    }
    snprintf(text + n, sizeof text - n, "]}");
    plan = read_plan(&desc, text);
    for (u = 0; u < plan->slices; u++) plan->slice_share[u] = (double)(1 + support_below(seed, 3));
    plan->slice_tokens = 100 * (plan->slices - 1);
    support_draw_recompute(plan, seed);
    return plan;
}

/* Blocks of random units; each unit in one of them at least, or NULL. */
static const het_blocks *random_blocks(uint64_t *seed, int64_t units, het_blocks *blocks, int64_t *start, int64_t *unit)
{
    int64_t b, u, n = 0;
    if (support_below(seed, 3) == 0) return NULL;
    blocks->count = support_below(seed, 6);
    blocks->start = start;
    blocks->unit = unit;
    for (b = 0; b < blocks->count; b++) {
        start[b] = n;
        for (u = 0; u < units; u++) {
            if (support_below(seed, 3) == 0 || (u == units - 1 && n == start[b])) unit[n++] = u;
        }
    }
    start[b] = n;
    return blocks;
}

/* All actions of a judge's schedule that are not done and may happen on this rank. */
static int64_t choices(const judge *j, int64_t rank, uint8_t (*split)[8][4][3], het_action *to)
{
    int64_t i, n = 0;
    het_action a;
    memset(&a, 0, sizeof a);
    for (i = 0; i < j->plan->stages; i++) {
        if (j->plan->stage[i].rank != rank) continue;
        a.pipeline = (int32_t)j->plan->stage[i].pipeline;
        a.stage = (int32_t)(i - j->plan->first_stage[a.pipeline]);
        for (a.micro_batch = 0; a.micro_batch < j->schedule->micro_batches[a.pipeline]; a.micro_batch++) {
            for (a.slice = 0; a.slice < j->plan->slices; a.slice++) {
                const int divided = split[a.pipeline][a.stage][a.micro_batch][a.slice];
                for (a.kind = 0; a.kind <= HET_ACTION_TAKE; a.kind++) {
                    if ((divided && a.kind == HET_ACTION_B) || (!divided && (a.kind == HET_ACTION_I || a.kind == HET_ACTION_W))) continue;
                    if (a.kind == HET_ACTION_PUT && j->done[HET_ACTION_TAKE][a.pipeline][a.stage][a.micro_batch][a.slice]) continue; /* once */
                    if (!j->done[a.kind][a.pipeline][a.stage][a.micro_batch][a.slice] && allowed(j, rank, &a)) to[n++] = a;
                }
            }
        }
    }
    return n;
}

/* A valid compute list: whatever may happen happens, in random order; sometimes two at once. */
static void random_lists(uint64_t *seed, const het_plan *plan, lists *l)
{
    uint8_t split[3][8][4][3];
    het_action ready[400];
    judge j;
    int64_t r, n, idle = 0;
    memset(&j, 0, sizeof j);
    memset(l, 0, sizeof *l);
    for (r = 0; r < (int64_t)sizeof split; r++) ((uint8_t *)split)[r] = (uint8_t)support_below(seed, 2);
    l->schedule.ranks = plan->ranks;
    l->schedule.pipelines = plan->pipelines;
    for (r = 0; r < plan->pipelines; r++) l->micro_batches[r] = support_below(seed, 4);
    flatten(l);
    j.plan = plan;
    j.schedule = &l->schedule;
    while (idle < 200) {
        r = support_below(seed, plan->ranks);
        n = choices(&j, r, split, ready);
        idle = n ? 0 : idle + 1;
        if (n) {
            const het_action *first = &ready[support_below(seed, n)], *second = &ready[support_below(seed, n)];
            l->action[r][l->count[r]] = *first;
            if (first->kind == HET_ACTION_F && (second->kind == HET_ACTION_B || second->kind == HET_ACTION_I)) {
                l->action[r][l->count[r]++].overlap = 1;
                l->action[r][l->count[r]] = *second;
                do_it(&j, r, second);
            }
            l->count[r]++;
            do_it(&j, r, first);
        }
    }
    flatten(l);
}

/* One random fault. */
static void spoil(uint64_t *seed, lists *l)
{
    const int64_t r = support_below(seed, l->schedule.ranks), q = support_below(seed, l->schedule.ranks);
    het_action *list = l->action[r], moved;
    int64_t i, k;
    if (l->count[r] == 0) return;
    i = support_below(seed, l->count[r]);
    k = support_below(seed, l->count[r]);
    if (support_below(seed, 2)) k = i + 1 < l->count[r] ? i + 1 : i; /* neighbours are the sharper test */
    moved = list[i];
    switch (support_below(seed, 6)) {
    case 0:
    case 1:
        list[i] = list[k];
        list[k] = moved;
        break;
    case 2: /* drop */
        memmove(list + i, list + i + 1, (size_t)(--l->count[r] - i) * sizeof *list);
        break;
    case 3: /* again, here or on another rank */
        k = support_below(seed, l->count[q] + 1);
        memmove(l->action[q] + k + 1, l->action[q] + k, (size_t)(l->count[q]++ - k) * sizeof *list);
        l->action[q][k] = moved;
        break;
    case 4: /* to another place of another rank */
        memmove(list + i, list + i + 1, (size_t)(--l->count[r] - i) * sizeof *list);
        k = support_below(seed, l->count[q] + 1);
        memmove(l->action[q] + k + 1, l->action[q] + k, (size_t)(l->count[q]++ - k) * sizeof *list);
        l->action[q][k] = moved;
        break;
    default: { /* another number */
        int32_t *const field[7] = { &list[i].kind, &list[i].overlap, &list[i].pipeline, &list[i].stage, &list[i].micro_batch, &list[i].slice,
                                    &list[i].version };
        const int64_t f = support_below(seed, 7);
        *field[f] += f == 0 ? (int32_t)support_below(seed, 5) - 2 : support_below(seed, 2) ? 1 : -1;
        if (f == 1) list[i].overlap = list[i].overlap != 0;
        break;
    }
    }
    flatten(l);
}

static void agree(const het_plan *plan, const het_blocks *blocks, const lists *l, int64_t *good, uint64_t seed)
{
    const int expected = valid(plan, blocks, &l->schedule);
    het_error error;
    error.text[0] = 0;
    if ((het_schedule_check(plan, blocks, &l->schedule, NULL, &error) == HET_OK) != expected) {
        support_buffer text;
        char line[256];
        fail_msg("seed %d: check says '%s', the judge %s\n%s\n%s", (int)seed, error.text, expected ? "valid" : "not valid", shape(plan, line,
                                                                                                                                  sizeof line),
                 schedule_text(&l->schedule, &text));
    }
    *good += expected;
}

/* REDUCE comes behind the last use, and not later than what must come before it: the use, transfers of it, or another REDUCE. */
static void reduce_soon(const het_schedule *schedule)
{
    int64_t r, i;
    for (r = 0; r < schedule->ranks; r++) {
        for (i = schedule->start[r] + 1; i < schedule->start[r + 1]; i++) {
            const int32_t before = schedule->action[i - 1].kind;
            if (schedule->action[i].kind == HET_ACTION_REDUCE && (before == HET_ACTION_F ||
                                                                  before == HET_ACTION_I)) fail_msg("rank %d: a REDUCE comes late", (int)r);
        }
    }
}

static void random_schedules(void **state)
{
    static lists made, bad;
    int64_t round, faults, good = 0, bad_and_good = 0, all = 0;
    uint64_t seed = 7;
    (void)state;
    for (round = 0; round < 300; round++) {
        int64_t start[8], unit[64];
        double peak[4], naive[4];
        het_blocks space;
        const het_blocks *blocks;
        het_schedule *full, *again;
        het_plan *plan = random_plan(&seed);
        support_buffer buffer, text_again;
        int64_t i;
        blocks = random_blocks(&seed, plan->units, &space, start, unit);
        random_lists(&seed, plan, &made);
        agree(plan, blocks, &made, &good, (uint64_t)round);
        assert_int_equal(good, round * 2 + 1);
        check(plan, blocks, &made.schedule, peak);
        naive_peaks(plan, &made.schedule, naive);
        for (i = 0; i < plan->ranks; i++) {
            if (fabs(peak[i] - naive[i]) > 1e-9) fail_msg("rank %d: peak %g, not %g", (int)i, peak[i], naive[i]);
        }
        full = complete(plan, blocks, &made.schedule);
        reduce_soon(full);
        for (faults = 0; faults < 30; faults++, all++) {
            bad = made;
            flatten(&bad);
            spoil(&seed, &bad);
            agree(plan, blocks, &bad, &bad_and_good, (uint64_t)round);
        }
        unflatten(&made, full);
        agree(plan, blocks, &made, &good, (uint64_t)round);
        assert_int_equal(good, round * 2 + 2);
        again = read_schedule(plan, schedule_text(full, &buffer)); /* text and back */
        assert_string_equal(schedule_text(again, &text_again), (const char *)buffer.data);
        support_buffer_end(&text_again);
        support_buffer_end(&buffer);
        het_schedule_free(again);
        for (faults = 0; faults < 60; faults++, all++) {
            bad = made;
            flatten(&bad);
            spoil(&seed, &bad);
            agree(plan, blocks, &bad, &bad_and_good, (uint64_t)round);
        }
        het_schedule_free(full);
        het_plan_free(plan);
    }
    assert_true(bad_and_good > all / 20 && bad_and_good < all * 19 / 20); /* both answers were asked for */
}

/* ---- peaks in closed form, and lists as they should come out ---- */

/* 1F1B: stage s of p runs min(m, p - s - 1) forwards ahead; p == 0 makes gpipe. */
static char *one_f_one_b(int64_t p, int64_t m, int gpipe, size_t *length)
{
    char *text = support_alloc((size_t)(p * m) * 32 + 64, 1);
    size_t n = 0;
    int64_t s, i;
    for (s = 0; s < p; s++) {
        const int64_t ahead = gpipe || m < p - s - 1 ? m : p - s - 1;
        for (i = 0; i < m + ahead; i++) {
            if (i < m) n += (size_t)sprintf(text + n, "%dF%d,", (int)s, (int)i);
            if (i >= ahead) n += (size_t)sprintf(text + n, "%dB%d,", (int)s, (int)(i - ahead));
        }
        text[n - 1] = '\n';
    }
    *length = n;
    return text;
}

static void peaks(void **state)
{
    int64_t p, m, s;
    int gpipe;
    (void)state;
    for (p = 1; p <= 5; p++) {
        for (m = 1; m <= 8; m++) {
            for (gpipe = 0; gpipe < 2; gpipe++) {
                het_plan_desc desc = describe(8, p, NULL);
                het_plan *plan = read_plan(&desc, "pp");
                size_t length;
                char *text = one_f_one_b(p, m, gpipe, &length);
                het_schedule *compute = read_schedule(plan, text), *full = complete(plan, NULL, compute);
                double peak[5];
                check(plan, NULL, full, peak);
                for (s = 0; s < p; s++) assert_true(fabs(peak[s] - (double)(gpipe || m < p - s ? m : p - s)) < 1e-12);
                het_schedule_free(full);
                het_schedule_free(compute);
                het_plan_free(plan);
                free(text);
            }
        }
    }
}

static void completed(void **state)
{
    static const struct { int64_t units, ranks; const char *schedule, *plan, *text, *expected; } cases[] = {
        { 2, 2, NULL, "pp", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
          "0F0,0SEND_F0,0RECV_B0,0F1,0SEND_F1,0RECV_B1,0B0,0B1,REDUCE0,VERDICT,STEP0\n"
          "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,REDUCE1,VERDICT,STEP1\n" },
        { 2, 3, NULL, "{\"pipelines\":[{\"stages\":[{\"rank\":0,\"units\":[0,2]}]},{\"stages\":[{\"rank\":2,\"units\":[0,2]}]}]}",
          "0F0,0B0\n\n0F0@1,0I0@1,0W0@1\n",
          "0F0,0B0,REDUCE0,REDUCE1,VERDICT,STEP0,GATHER0,STEP1,GATHER1\nVERDICT\n"
          "0F0@1,0I0@1,0W0@1,REDUCE0,REDUCE1,VERDICT,STEP0,GATHER0,STEP1,GATHER1\n" },
        { 4, 2, "zb-v", "pp", "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", /* first ready, first reduced; no transfer within a rank */
          "3RECV_F0,0F0,0SEND_F0,3F0,0RECV_B0,3B0,3SEND_B0,REDUCE3,0B0,REDUCE0,VERDICT,STEP0,STEP3\n"
          "1RECV_F0,1F0,2RECV_B0,2F0,2SEND_F0,2B0,REDUCE2,1B0,1SEND_B0,REDUCE1,VERDICT,STEP1,STEP2\n" },
        { 2, 2, "bidirectional", "pp", "0F0,1F0@1,1B0@1,0B0\n0F0@1,1F0,1B0,0B0@1\n",
          "1RECV_F0@1,0F0,0SEND_F0,1F0@1,0RECV_B0,1B0@1,1SEND_B0@1,REDUCE1,0B0,REDUCE0,VERDICT,STEP0,GATHER0,STEP1,GATHER1\n"
          "1RECV_F0,0F0@1,0SEND_F0@1,1F0,0RECV_B0@1,1B0,1SEND_B0,REDUCE1,0B0@1,REDUCE0,VERDICT,STEP0,GATHER0,STEP1,GATHER1\n" },
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        het_plan_desc desc = describe(cases[i].units, cases[i].ranks, cases[i].schedule);
        het_plan *plan = read_plan(&desc, cases[i].plan);
        het_schedule *compute = read_schedule(plan, cases[i].text), *full = complete(plan, NULL, compute);
        support_buffer buffer;
        assert_string_equal(schedule_text(full, &buffer), cases[i].expected);
        check(plan, NULL, full, NULL);
        support_buffer_end(&buffer);
        het_schedule_free(full);
        het_schedule_free(compute);
        het_plan_free(plan);
    }
}

/* ---- damaged texts, no memory, failing writers, size ---- */

static void mutate(uint64_t *seed, char *text, size_t *length, size_t capacity)
{
    static const char bytes[] = "0123456789FBIW,;()|{}[]\":.@/*-+eEtLmdpx\n\r \t_SENDRECVOLAPTGHU";
    int64_t count = 1 + support_below(seed, 4);
    while (count-- > 0) {
        const size_t at = (size_t)support_below(seed, (int64_t)*length + 1);
        const int64_t kind = support_below(seed, 4);
        if (kind == 0 && at < *length) text[at] = bytes[support_below(seed, (int64_t)sizeof bytes - 1)];
        else if (kind == 1 && at < *length) text[at] = (char)support_below(seed, 256);
        else if (kind == 2 && at < *length) memmove(text + at, text + at + 1, --*length - at);
        else if (*length < capacity) {
            memmove(text + at + 1, text + at, (*length)++ - at);
            text[at] = bytes[support_below(seed, (int64_t)sizeof bytes - 1)];
        }
    }
}

/* Texts that are almost right; every one in a block of exactly its size, for the sanitizer. */
static void damaged(void **state)
{
    static const char *const plans[] = {
        "{\"pipelines\":[{\"share\":0.25,\"stages\":[{\"rank\":1,\"units\":[0,3],\"recompute\":true,\"keep\":[1]},{\"units\":[3,8],\"rank\":0}]},"
        "{\"stages\":[{\"rank\":1,"
        "\"units\":[0,8]}]}],\"state_shares\":[1,0.5],\"slices\":[3,1],\"slice_tokens\":64,\"schedule\":\"gpipe\",\"memory_limit\":3.5,"
        "\"step\":{\"granules\":32,\"sequences\":2,\"length\":128,\"micro_batch\":3}}",
        "dp2xpp1", "pp:0-3|4-7", "E t*1 | (t)*2 L", "dp1xpp:0|1-7", "E(t)*2|tL",
    };
    static const char *const schedules[] = {
        "0F0,0F1,0B0,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1I1,1W1\n",
        "0F0,0SEND_F0,0RECV_B0,0B0,REDUCE0,VERDICT,STEP0\n1RECV_F0,1F0,1B0,1SEND_B0,REDUCE1,VERDICT,STEP1\n",
        "0F0.0@0/0,0B0,0W0\n1F0,1BW0\n",
    };
    uint64_t seed = 3;
    het_plan_desc desc = describe(8, 2, NULL);
    het_plan *plan = read_plan(&desc, "pp"), *read;
    het_schedule *schedule, *full;
    int64_t round, fine[2] = { 0, 0 };
    (void)state;
    for (round = 0; round < 30000; round++) {
        const int which = (int)(round % 2);
        const char *from = which ? schedules[support_below(&seed, 3)] : plans[support_below(&seed, 6)];
        char text[600], *exact;
        size_t length = strlen(from);
        het_error error;
        memcpy(text, from, length);
        mutate(&seed, text, &length, sizeof text);
        exact = support_alloc(length, 1);
        memcpy(exact, text, length);
        error.text[0] = 0;
        if (which == 0 && het_plan_read(&desc, exact, length, &read, &error) == HET_OK) {
            fine[0]++;
            het_plan_free(read);
        } else if (which == 1 && het_schedule_read(plan, exact, length, NULL, &schedule, &error) == HET_OK) {
            fine[1] += het_schedule_check(plan, NULL, schedule, NULL, &error) == HET_OK;
            if (het_schedule_complete(plan, NULL, schedule, NULL, &full, &error) == HET_OK) {
                check(plan, NULL, full, NULL);
                het_schedule_free(full);
            }
            het_schedule_free(schedule);
        } else {
            assert_true(strlen(error.text) > 10);
        }
        free(exact);
    }
    if (fine[0] < 100 || fine[1] < 100) fail_msg("%d plans and %d schedules were fine", (int)fine[0], (int)fine[1]);
    het_plan_free(plan);
}

static het_result everything(const het_allocator *allocator)
{
    het_plan_desc desc = describe(8, 2, NULL);
    static const char text[] = "0F0,0B0,0W0\n1F0,1B0\n";
    het_plan *plan = NULL;
    het_schedule *compute = NULL, *full = NULL;
    het_result result;
    desc.allocator = *allocator;
    result = het_plan_read(&desc, "pp", 2, &plan, NULL);
    if (result == HET_OK) result = het_schedule_read(plan, text, sizeof text - 1, allocator, &compute, NULL);
    if (result == HET_OK) result = het_schedule_complete(plan, NULL, compute, allocator, &full, NULL);
    if (result == HET_OK) result = het_schedule_check(plan, NULL, full, NULL, NULL);
    if (result == HET_OK) {
        compute->micro_batches[0] = 2;
        result = het_schedule_check(plan, NULL, compute, NULL, NULL) == HET_ERR_OOM ? HET_ERR_OOM : HET_OK;
    }
    het_schedule_free(full);
    het_schedule_free(compute);
    het_plan_free(plan);
    return result;
}

static void no_memory(void **state)
{
    support_memory memory;
    het_result result = HET_ERR_OOM;
    int64_t fail;
    (void)state;
    for (fail = 0; result == HET_ERR_OOM; fail++) {
        het_allocator allocator = support_allocator(&memory);
        memory.fail_at = fail;
        result = everything(&allocator);
        assert_int_equal(memory.live, 0);
        assert_int_equal(memory.wrong, 0);
        if (result != HET_ERR_OOM) assert_true(memory.calls <= fail);
    }
    assert_int_equal(result, HET_OK);
    assert_true(fail > 6);
}

static void writers(void **state)
{
    het_plan_desc desc = describe(8, 2, NULL);
    het_plan *plan = read_plan(&desc, "pp");
    het_schedule *schedule = read_schedule(plan, "0F0,0B0\n1F0,1B0\n");
    support_buffer buffer;
    het_writer writer;
    (void)state;
    support_buffer_start(&buffer);
    buffer.fail_after = 3;
    writer = support_writer(&buffer);
    assert_int_equal(het_plan_write(plan, &writer), HET_ERR_IO);
    assert_int_equal(het_schedule_write(schedule, &writer), HET_ERR_IO);
    assert_int_equal(het_plan_write(NULL, &writer), HET_ERR_INVALID);
    assert_int_equal(het_schedule_write(schedule, NULL), HET_ERR_INVALID);
    schedule->action[3].overlap = 1;
    buffer.fail_after = -1;
    assert_int_equal(het_schedule_write(schedule, &writer), HET_ERR_INVALID);
    support_buffer_end(&buffer);
    het_schedule_free(schedule);
    het_plan_free(plan);
}

/* Many ranks: what grows faster than the lists would not come to its end. */
static void large(void **state)
{
    const int64_t ranks = support_environment("HETRAIN_TEST_RANKS", 1500);
    het_plan_desc desc = describe(ranks, ranks, NULL);
    het_plan *plan = read_plan(&desc, "pp");
    size_t length;
    char *text = one_f_one_b(ranks, 64, 0, &length);
    het_schedule *compute, *full;
    double *peak = support_alloc((size_t)ranks, sizeof *peak);
    (void)state;
    compute = read_schedule(plan, text);
    full = complete(plan, NULL, compute);
    check(plan, NULL, full, peak);
    assert_true(peak[0] == 64.0 && peak[ranks - 1] == 1.0);
    het_schedule_free(full);
    het_schedule_free(compute);
    het_plan_free(plan);
    desc = describe(26, ranks, NULL); /* every block on every rank */
    plan = read_plan(&desc, "dp");
    het_plan_free(plan);
    free(text);
    free(peak);
}

/* Lengths of slices: what is refused, and a case by hand. Brute force: test_systems 1.3. */
static void lengths_of_slices(void **state)
{
    het_cost cost = { 0, 1, 0 };
    int64_t length[4], slices;
    double seconds;
    het_error error;
    (void)state;
    EXPECT_OK(het_slice_lengths(&cost, 4, 1, 3, 4, NULL, length, &slices, &seconds, &error)); /* 4 slices of 1: 4 + 2 */
    assert_true(slices == 4 && seconds == 6);
    cost.base = 10; /* 14 + 2 14 in one; 24 + 2 12 in two alike: one */
    EXPECT_OK(het_slice_lengths(&cost, 4, 1, 3, 4, NULL, length, &slices, &seconds, &error));
    assert_true(slices == 1 && length[0] == 4 && seconds == 42);
    EXPECT_ERROR(het_slice_lengths(&cost, 0, 1, 3, 4, NULL, length, &slices, &seconds, &error), HET_ERR_INVALID, error.text, "0 granules|4096");
    EXPECT_ERROR(het_slice_lengths(NULL, 4, 1, 3, 4, NULL, length, &slices, &seconds, &error), HET_ERR_INVALID, error.text, "NULL");
    cost.base = 1e300;
    EXPECT_ERROR(het_slice_lengths(&cost, 4, 1, 3, 4, NULL, length, &slices, &seconds, &error), HET_ERR_INVALID, error.text, "none below 1e300");
    cost.pair = -1;
    EXPECT_ERROR(het_slice_lengths(&cost, 4, 1, 3, 4, NULL, length, &slices, &seconds, &error), HET_ERR_INVALID, error.text, "-1");
}

/* Who is in no team, rank -1 too, is found nowhere. The table is a block of its own: the address sanitizer sees who looks beside it. */
static void ranks_without_a_team(void **state)
{
    het_team_member *table = (het_team_member *)calloc(2, sizeof *table);
    het_plan plan;
    int64_t count, i;
    (void)state;
    assert_non_null(table);
    memset(&plan, 0, sizeof plan);
    plan.ranks = 4, plan.member = table, plan.members = 2;
    table[0].rank = 3, table[1].rank = 1, table[0].leader = table[1].leader = 3;
    for (i = -2; i < 6; i++) {
        const het_team_member *team = het_plan_team(&plan, i, &count);
        assert_ptr_equal(team, i == 1 || i == 3 ? table : NULL);
        assert_int_equal(count, i == 1 || i == 3 ? 2 : 1);
    }
    free(table);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json),           cmocka_unit_test(numbers),       cmocka_unit_test(shortest),     cmocka_unit_test(shorthands),
        cmocka_unit_test(plan_errors),    cmocka_unit_test(heads_by_share), cmocka_unit_test(pytorch),       cmocka_unit_test(texts),
               cmocka_unit_test(text_errors),
        cmocka_unit_test(check_errors),   cmocka_unit_test(wrong_structs), cmocka_unit_test(completed),    cmocka_unit_test(peaks),
        cmocka_unit_test(random_schedules), cmocka_unit_test(damaged),     cmocka_unit_test(no_memory),    cmocka_unit_test(writers),
        cmocka_unit_test(lengths_of_slices), cmocka_unit_test(ranks_without_a_team),
        cmocka_unit_test(large),
    };
    if (argc > 1) folder = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
