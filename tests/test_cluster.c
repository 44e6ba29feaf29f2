/* Cluster files: what they hold against what was written down by hand, every broken file against the byte, key and rule that its error names. */
#include "support.h"

#include <time.h>

#include "hetrain_search.h"

static const char three_sites[] =
    "{ \"name\": \"three sites\", \"link\": { \"latency\": \"20ms\", \"bandwidth\": \"1G\" }, \"members\": [\n"
    "  { \"name\": \"site\", \"count\": 3, \"uplink\": \"10G\", \"link\": { \"latency\": 5e-5, \"bandwidth\": \"12G\" }, \"members\": [\n"
    "    { \"members\": [ { \"count\": 8, \"memory\": \"80G\", \"device\": \"h100\" } ], \"bus\": 1e12, \"name\": \"node\", \"count\": 400,\n"
    "      \"process\": true, \"link\": { \"bandwidth\": \"200G\", \"latency\": \"5us\" } },\n"
    "    { \"device\": \"cpu:64\", \"name\": \"spare\", \"count\": 2, \"speed\": 0.5 } ] } ] }\n";

static het_cluster *cluster_of(const char *text)
{
    het_cluster *cluster = NULL;
    het_error error;
    error.text[0] = 0;
    EXPECT_ERROR(het_cluster_read(text, strlen(text), NULL, &cluster, &error), HET_OK, error.text, "");
    assert_non_null(cluster);
    return cluster;
}

#define IS(value, expected) assert_true((value) >= (expected) && (value) <= (expected))

static void groups_within_groups(void **state)
{
    het_cluster *c = cluster_of(three_sites);
    int64_t site, node, i;
    (void)state;
    assert_string_equal(c->name, "three sites");
    assert_int_equal(c->ranks, 3 * (400 * 8 + 2));
    assert_int_equal(c->groups, 1 + 3 * (1 + 400));
    assert_int_equal(c->group[0].parent, -1);
    IS(c->group[0].latency, 0.02);
    IS(c->group[0].bandwidth, 1e9);
    for (site = 0; site < 3; site++) {
        const int64_t g = 1 + site * 401;
        char name[48];
        snprintf(name, sizeof name, "site#%d", (int)site);
        assert_string_equal(c->group[g].name, name);
        assert_int_equal(c->group[g].parent, 0);
        assert_int_equal(c->group[g].process, 0);
        IS(c->group[g].latency, 5e-5);
        IS(c->group[g].uplink, 1e10);
        for (node = 0; node < 400; node++) {
            snprintf(name, sizeof name, "node#%d", (int)node);
            assert_string_equal(c->group[g + 1 + node].name, name);
            assert_int_equal(c->group[g + 1 + node].parent, g);
            assert_int_equal(c->group[g + 1 + node].process, 1);
            IS(c->group[g + 1 + node].bus, 1e12);
            IS(c->group[g + 1 + node].latency, 5e-6);
            for (i = 0; i < 8; i++) {
                const het_cluster_device *d = &c->device[site * 3202 + node * 8 + i];
                snprintf(name, sizeof name, "h100#%d", (int)i);
                assert_string_equal(d->name, name);
                assert_string_equal(d->profile, "h100");
                assert_int_equal(d->group, g + 1 + node);
                IS(d->memory, 8e10);
                IS(d->speed, 1);
            }
        }
        assert_string_equal(c->device[site * 3202 + 3201].name, "spare#1");
        assert_string_equal(c->device[site * 3202 + 3201].profile, "cpu:64");
        assert_int_equal(c->device[site * 3202 + 3201].group, g);
        IS(c->device[site * 3202 + 3200].speed, 0.5);
    }
    het_cluster_free(c);
}

static void expect_same(const het_cluster *a, const het_cluster *b)
{
    int64_t i;
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->rings, b->rings);
    assert_int_equal(a->wires, b->wires);
    assert_int_equal(a->ranks, b->ranks);
    assert_int_equal(a->groups, b->groups);
    for (i = 0; i < a->ranks; i++) {
        assert_string_equal(a->device[i].name, b->device[i].name);
        assert_string_equal(a->device[i].profile, b->device[i].profile);
        assert_int_equal(a->device[i].group, b->device[i].group);
        IS(a->device[i].speed, b->device[i].speed);
        IS(a->device[i].memory, b->device[i].memory);
        IS(a->device[i].max_tokens, b->device[i].max_tokens);
    }
    for (i = 0; i < a->groups; i++) {
        assert_string_equal(a->group[i].name, b->group[i].name);
        assert_int_equal(a->group[i].parent, b->group[i].parent);
        assert_int_equal(a->group[i].process != 0, b->group[i].process != 0);
        IS(a->group[i].latency, b->group[i].latency);
        IS(a->group[i].bandwidth, b->group[i].bandwidth);
        IS(a->group[i].bus, b->group[i].bus);
        IS(a->group[i].uplink, b->group[i].uplink);
    }
    assert_int_equal(a->link != NULL, b->link != NULL);
    for (i = 0; i < a->ranks * a->ranks && a->link != NULL; i++) {
        IS(a->link[i].latency, b->link[i].latency);
        IS(a->link[i].bandwidth, b->link[i].bandwidth);
    }
}

/* Written, read and written again; returns the length of the text. */
static size_t round_trip(const het_cluster *cluster)
{
    support_buffer first, second;
    het_cluster *again;
    het_writer writer;
    size_t length;
    support_buffer_start(&first);
    support_buffer_start(&second);
    writer = support_writer(&first);
    EXPECT_OK(het_cluster_write(cluster, &writer));
    length = first.size;
    support_buffer_append(&first, "", 1);
    again = cluster_of((const char *)first.data);
    expect_same(cluster, again);
    writer = support_writer(&second);
    EXPECT_OK(het_cluster_write(again, &writer));
    support_buffer_append(&second, "", 1);
    assert_string_equal((const char *)first.data, (const char *)second.data);
    het_cluster_free(again);
    support_buffer_end(&first);
    support_buffer_end(&second);
    return length;
}

/* A group of random members; `room` says how deep it may go. */
static void random_group(support_buffer *to, uint64_t *seed, int room, int process)
{
    const int64_t members = 1 + support_below(seed, 4);
    const int here = !process && support_below(seed, 3) == 0;
    char text[300];
    int64_t i;
    snprintf(text, sizeof text,
        "{\"name\":\"g%d\",\"count\":%d,\"link\":{\"latency\":%d,\"bandwidth\":\"%dM\"},\"bus\":%d,\"uplink\":%d,\"process\":%s,\"members\":[",
        (int)support_below(seed, 3), room == 4 ? 1 : (int)(1 + support_below(seed, 3)), (int)support_below(seed, 3), (int)support_below(seed, 3),
        (int)support_below(seed, 2), (int)support_below(seed, 2), here ? "true" : "false");
    support_buffer_append(to, text, strlen(text));
    for (i = 0; i < members; i++) {
        if (i > 0) support_buffer_append(to, ",", 1);
        if (room > 0 && support_below(seed, 2) == 0) random_group(to, seed, room - 1, process || here);
        else {
            snprintf(text, sizeof text, "{\"device\":\"d%d\",\"speed\":%g,\"count\":%d,\"memory\":%d,\"max_tokens\":%d%s}",
                (int)support_below(seed, 2), 0.25 * (double)(1 + support_below(seed, 3)), (int)(1 + support_below(seed, 3)),
                (int)support_below(seed, 2), (int)support_below(seed, 2), support_below(seed, 2) ? ",\"name\":\"x#0\"" : "");
            support_buffer_append(to, text, strlen(text));
        }
    }
    support_buffer_append(to, "]}", 2);
}

static void written_and_read(void **state)
{
    het_cluster *c = cluster_of(three_sites);
    uint64_t seed = 5;
    int round;
    (void)state;
    assert_in_range(round_trip(c), 100, 700); /* 9,606 devices, a page */
    het_cluster_free(c);
    for (round = 0; round < 300; round++) {
        support_buffer text;
        support_buffer_start(&text);
        random_group(&text, &seed, 4, 0);
        support_buffer_append(&text, "", 1);
        c = cluster_of((const char *)text.data);
        (void)round_trip(c);
        het_cluster_free(c);
        support_buffer_end(&text);
    }
}

static void flat(void **state)
{
    het_cluster_device device[2];
    het_cluster *c = NULL;
    het_error error;
    (void)state;
    memset(device, 0, sizeof device);
    strcpy(device[0].name, "a");
    strcpy(device[1].name, "b");
    strcpy(device[0].profile, "cpu:1");
    strcpy(device[1].profile, "cpu:1");
    device[0].speed = 1;
    device[1].speed = 0.5;
    device[1].memory = 1e9;
    device[1].max_tokens = 512;
    device[1].group = 99;
    EXPECT_OK(het_cluster_flat(2, device, 0.001, 1e9, NULL, &c, &error));
    assert_int_equal(c->groups, 1);
    assert_int_equal(c->device[1].group, 0);
    IS(c->device[1].speed, 0.5);
    IS(c->device[1].max_tokens, 512);
    IS(c->group[0].latency, 0.001);
    assert_int_equal(c->group[0].process, 1);
    (void)round_trip(c);
    het_cluster_free(c);
    EXPECT_OK(het_cluster_flat(300, NULL, 0, 0, NULL, &c, &error));
    assert_string_equal(c->device[299].name, "device#299");
    assert_in_range(round_trip(c), 10, 200);
    het_cluster_free(c);
    device[1].speed = 0;
    EXPECT_ERROR(het_cluster_flat(2, device, 0, 0, NULL, &c, &error), HET_ERR_INVALID, error.text, "device 1|speed 0");
    EXPECT_ERROR(het_cluster_flat(0, NULL, 0, 0, NULL, &c, &error), HET_ERR_INVALID, error.text, "0 devices");
    EXPECT_ERROR(het_cluster_flat(2, NULL, -1, 0, NULL, &c, &error), HET_ERR_INVALID, error.text, "latency -1");
    EXPECT_ERROR(het_cluster_flat(2, NULL, 1e301, 0, NULL, &c, &error), HET_ERR_INVALID, error.text, "latency 1e+301"); /* not cut */
}

/* A device that a program made may have no name, or one that is only a number; a file may say so too. */
static void without_names(void **state)
{
    static const char *const names[][3] = { { "", "", "" }, { "", "b", "" }, { "#0", "#1", "#2" }, { "#0", "", "x" }, { "#1", "#0", "#01" },
        { "cpu:1#0", "cpu:1#1", "cpu:1" } };
    het_cluster *c;
    size_t i, k;
    (void)state;
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        c = cluster_of("{\"name\":\"\",\"members\":[{\"device\":\"cpu:1\",\"name\":\"\",\"count\":3}]}");
        assert_string_equal(c->device[2].name, "#2");
        for (k = 0; k < 3; k++) strcpy(c->device[k].name, names[i][k]);
        (void)round_trip(c);
        het_cluster_free(c);
    }
}

/* Devices and groups in any order, as a program puts them together, are written with the ranks that they are. */
static void any_order(void **state)
{
    het_cluster *c = cluster_of("{\"members\":[{\"name\":\"a\",\"link\":{\"latency\":1},\"members\":[{\"device\":\"x\",\"count\":2}]},"
        "{\"name\":\"b\",\"link\":{\"latency\":2},\"members\":[{\"device\":\"y\"},{\"device\":\"z\",\"speed\":0.5}]}],\"ranks\":[2,0,3,1]}"), *large;
    (void)state;
    assert_string_equal(c->device[0].name, "x#1");
    assert_string_equal(c->device[1].name, "z");
    assert_string_equal(c->device[2].name, "x#0");
    assert_string_equal(c->device[3].name, "y");
    assert_int_equal(c->device[0].group, 1);
    assert_int_equal(c->device[1].group, 2);
    (void)round_trip(c);
    c->device[0].group = c->device[1].group = 1, c->device[2].group = c->device[3].group = 0; /* beside a group with nothing in it */
    c->device[3].group = 2;
    (void)round_trip(c);
    het_cluster_free(c);
    large = cluster_of(three_sites);
    large->device[0].group = 5;
    (void)round_trip(large);
    het_cluster_free(large);
}

/* Links that are no tree: what one of the matrices does not say is the groups'; rows are ranks, whichever devices these are. */
static void matrices(void **state)
{
    static const char *const bandwidths = "\"bandwidths\":[[0,\"1G\",2e9],[\"3M\",7,0],[4,\"5Ki\",6]]";
    static const double expected[9] = { 0, 1e9, 2e9, 3e6, 7, 0, 4, 5120, 6 };
    char text[600];
    int both, i;
    (void)state;
    for (both = 0; both < 3; both++) {
        het_cluster *c;
        snprintf(text, sizeof text, "{\"link\":{\"latency\":\"1ms\",\"bandwidth\":9},%s%s%s,\"members\":[{\"link\":{\"latency\":5},\"uplink\":3,"
            "\"members\":[{\"device\":\"x\",\"count\":2}]},{\"device\":\"y\"}]%s}", both < 2 ? bandwidths : "", both == 1 ? "," : "",
            both > 0 ? "\"latencies\":[[0,1,\"2us\"],[3,0,4],[5,6,0]]" : "",
            both == 0 ? ",\"wires\":true" : both == 1 ? ",\"ranks\":[2,0,1]" : ",\"rings\":true");
        c = cluster_of(text);
        assert_int_equal(c->rings, both == 2);
        assert_int_equal(c->wires, both == 0);
        assert_non_null(c->link);
        for (i = 0; i < 9 && both < 2; i++) IS(c->link[i].bandwidth, expected[i]);
        if (both == 0) { /* ranks 0 and 1 are in a group, 2 is not */
            IS(c->link[1].latency, 5);
            IS(c->link[2].latency, 1e-3);
        } else {
            IS(c->link[2].latency, 2e-6);
            IS(c->link[7].latency, 6);
        }
        if (both == 2) IS(c->link[2].bandwidth, 9);
        IS(c->group[1].uplink, 3);
        (void)round_trip(c);
        het_cluster_free(c);
    }
}

/* What is no tree of groups with devices is refused, not written wrongly. */
static void not_writable(void **state)
{
    het_cluster *c = cluster_of(three_sites);
    support_buffer buffer;
    het_writer writer;
    (void)state;
    support_buffer_start(&buffer);
    writer = support_writer(&buffer);
    c->device[0].group = -1;
    assert_int_equal(het_cluster_write(c, &writer), HET_ERR_INVALID);
    c->device[0].group = 2;
    c->group[3].parent = 7;
    assert_int_equal(het_cluster_write(c, &writer), HET_ERR_INVALID);
    c->group[3].parent = 0;
    c->device[7].speed = 0;
    assert_int_equal(het_cluster_write(c, &writer), HET_ERR_INVALID);
    c->device[7].speed = 1;
    c->device[9].profile[0] = 0;
    assert_int_equal(het_cluster_write(c, &writer), HET_ERR_INVALID);
    strcpy(c->device[9].profile, "h100");
    assert_int_equal(het_cluster_write(c, &writer), HET_OK);
    memset(c->group[1].name, 'x', sizeof c->group[1].name); /* without end */
    assert_int_equal(het_cluster_write(c, &writer), HET_ERR_INVALID);
    assert_int_equal(het_cluster_write(NULL, &writer), HET_ERR_INVALID);
    support_buffer_end(&buffer);
    het_cluster_free(c);
}

#define DEVICE "{\"device\":\"x\"}"

/* A '^' in the text marks the byte that the error must name, and is taken out. */
static void refuse(const char *marked, const char *words, int line)
{
    const char *mark = strchr(marked, '^');
    het_cluster *c = (het_cluster *)(uintptr_t)8;
    support_memory memory;
    het_allocator allocator = support_allocator(&memory);
    het_error error;
    char text[512], byte[32];
    size_t length = strlen(marked);
    assert_non_null(mark);
    assert_true(length < sizeof text);
    memcpy(text, marked, (size_t)(mark - marked));
    memcpy(text + (mark - marked), mark + 1, length - (size_t)(mark - marked));
    snprintf(byte, sizeof byte, "byte %d,", (int)(mark - marked));
    error.text[0] = 0;
    support_expect(het_cluster_read(text, length - 1, &allocator, &c, &error), HET_ERR_FORMAT, error.text, words, text, line);
    if (strstr(error.text, byte) == NULL) fail_msg("line %d: %s: not %s", line, error.text, byte);
    assert_null(c);
    assert_int_equal(memory.live, 0);
}
#define REFUSE(text, words) refuse(text, words, __LINE__)

static void broken_files(void **state)
{
    (void)state;
    REFUSE("^", "");
    REFUSE("^[]", "object");
    REFUSE("{\"members\":[" DEVICE "]} ^x", "members");
    REFUSE("{\"members\":[" DEVICE "^", "members");
    REFUSE("^{}", "members|missing");
    REFUSE("^" DEVICE, "the whole file is a group");
    REFUSE("^{\"count\":2,\"members\":[" DEVICE "]}", "count|2|outermost");
    REFUSE("{\"members\":^[]}", "members|at least one device");
    REFUSE("{\"members\":^{}}", "members|array");
    REFUSE("{\"members\":[^7]}", "object");
    REFUSE("{\"members\":[^{\"device\":\"x\",\"members\":[" DEVICE "]}]}", "device|no such key in what has");
    REFUSE("{\"members\":[^{\"device\":\"x\",\"uplink\":1}]}", "uplink|no such key in a device");
    REFUSE("{\"members\":[^{\"speed\":1,\"members\":[" DEVICE "]}]}", "speed|no such key");
    REFUSE("{\"members\":[{\"device\":\"x\",\"speeed\":^1}]}", "speeed|no such key");
    REFUSE("{\"name\":\"a\",\"name\":^\"b\",\"members\":[" DEVICE "]}", "name|twice");
    REFUSE("{\"ranks\":^0,\"members\":[" DEVICE "]}", "ranks|array of ranks");
    REFUSE("{\"ranks\":[^1],\"members\":[" DEVICE "]}", "ranks|1|from 0, each comes once");
    REFUSE("{\"ranks\":[^-1],\"members\":[" DEVICE "]}", "ranks|-1|from 0");
    REFUSE("{\"ranks\":[0,^0],\"members\":[" DEVICE "," DEVICE "]}", "ranks|0|each comes once");
    REFUSE("{\"ranks\":[1]^,\"members\":[" DEVICE "," DEVICE "]}", "ranks|fewer than there are devices");
    REFUSE("{\"members\":[" DEVICE "],\"ranks\":[0,^1]}", "ranks|more than there are devices");
    REFUSE("{\"ranks\":[^1.5],\"members\":[" DEVICE "]}", "ranks|integer");
    REFUSE("{\"members\":[^{\"ranks\":[0],\"members\":[" DEVICE "]}]}", "ranks|outermost");
    REFUSE("{\"members\":[^{\"rings\":true,\"members\":[" DEVICE "]}]}", "rings|outermost");
    REFUSE("{\"members\":[^{\"wires\":true,\"members\":[" DEVICE "]}]}", "wires|outermost");
    REFUSE("{\"bandwidths\":^7,\"members\":[" DEVICE "]}", "bandwidths|array of rows");
    REFUSE("{\"bandwidths\":[[0],^[0]],\"members\":[" DEVICE "]}", "bandwidths|more rows");
    REFUSE("{\"latencies\":[[0,^0]],\"members\":[" DEVICE "]}", "latencies|more numbers in a row");
    REFUSE("{\"latencies\":[[0,1],^[0]],\"members\":[" DEVICE "," DEVICE "]}", "latencies|fewer numbers in a row");
    REFUSE("{\"latencies\":[[0,1]]^,\"members\":[" DEVICE "," DEVICE "]}", "latencies|fewer rows");
    REFUSE("{\"bandwidths\":[[^-1]],\"members\":[" DEVICE "]}", "bandwidths|-1|K, M, G or T");
    REFUSE("{\"latencies\":[[^\"1G\"]],\"members\":[" DEVICE "]}", "latencies|1G|ms, us or ns");
    REFUSE("{\"latencies\":[^3],\"members\":[" DEVICE "]}", "latencies");
    REFUSE("{\"members\":[^{\"bandwidths\":[[0]],\"members\":[" DEVICE "]}]}", "bandwidths|outermost");
    REFUSE("{\"members\":[{\"device\":\"x\",\"speed\":^0}]}", "speed|0|from 1e-6 to 1e6");
    REFUSE("{\"members\":[{\"device\":\"x\",\"speed\":^-2.5}]}", "speed|-2.5|from 1e-6 to 1e6");
    REFUSE("{\"members\":[{\"device\":\"x\",\"speed\":^1e-30}]}", "speed|1e-30|from 1e-6 to 1e6");
    REFUSE("{\"members\":[{\"device\":\"x\",\"speed\":^\"1\"}]}", "speed|number");
    REFUSE("{\"members\":[{\"device\":\"x\",\"count\":^0}]}", "count|0|from 1");
    REFUSE("{\"members\":[{\"device\":\"x\",\"count\":^1048577}]}", "count|1048577|from 1");
    REFUSE("{\"members\":[{\"device\":\"x\",\"count\":^1.5}]}", "count|integer");
    REFUSE("{\"members\":[{\"device\":\"x\",\"count\":1000000},^{\"device\":\"y\",\"count\":1000000}]}", "count|more than 1048576 devices");
    REFUSE("{\"members\":[{\"device\":^\"\"}]}", "device|1 to 47");
    REFUSE("{\"members\":[{\"device\":^\"a\\u001b[1m\"}]}", "device|5 bytes|no control bytes");
    REFUSE("{\"members\":[{\"device\":\"a\",\"name\":^\"a\\u007f\"}]}", "name|2 bytes|no control bytes");
    REFUSE("{\"members\":[{\"device\":^\"0123456789012345678901234567890123456789012345678\"}]}", "device|1 to 47");
    REFUSE("{\"members\":[^{\"count\":2,\"device\":\"01234567890123456789012345678901234567890123456\"}]}", "name|more than 47");
    REFUSE("{\"members\":[{\"device\":\"x\",\"memory\":^\"80GB\"}]}", "memory|80GB|K, M, G");
    REFUSE("{\"members\":[{\"device\":\"x\",\"memory\":^\"G\"}]}", "memory|G|K, M, G");
    REFUSE("{\"members\":[{\"device\":\"x\",\"memory\":^-1}]}", "memory|-1|from 0");
    REFUSE("{\"members\":[{\"device\":\"x\",\"max_tokens\":^-1}]}", "max_tokens|-1|from 0");
    REFUSE("{\"bus\":^\"5ms\",\"members\":[" DEVICE "]}", "bus|5ms|K, M, G");
    REFUSE("{\"link\":{\"latency\":^\"5G\"},\"members\":[" DEVICE "]}", "latency|5G|ms");
    REFUSE("{\"link\":{\"latency\":^\"1.2.3ms\"},\"members\":[" DEVICE "]}", "latency|1.2.3ms|ms");
    REFUSE("{\"link\":{\"latency\":^true},\"members\":[" DEVICE "]}", "latency|number");
    REFUSE("{\"link\":{\"speed\":^1},\"members\":[" DEVICE "]}", "speed|latency, bandwidth");
    REFUSE("{\"link\":{\"latency\":1,\"latency\":^1},\"members\":[" DEVICE "]}", "latency|twice");
    REFUSE("{\"link\":^\"5ms\",\"members\":[" DEVICE "]}", "link");
    REFUSE("{\"process\":^1,\"members\":[" DEVICE "]}", "process");
    REFUSE("{\"process\":true,\"members\":[{\"members\":[^{\"process\":true,\"members\":[" DEVICE "]}]}]}", "process|inside another");
}

/* Any damage gives a cluster or an error, and every block comes back. */
static void damaged_files(void **state)
{
    uint64_t seed = 3;
    int64_t round, fine = 0;
    (void)state;
    for (round = 0; round < 3000; round++) {
        char text[sizeof three_sites];
        support_memory memory;
        het_allocator allocator = support_allocator(&memory);
        het_cluster *c = NULL;
        het_error error;
        int64_t i, n = 1 + support_below(&seed, 3);
        memcpy(text, three_sites, sizeof text);
        for (i = 0; i < n; i++) text[support_below(&seed, (int64_t)sizeof text - 1)] = (char)(32 + support_below(&seed, 95));
        if (het_cluster_read(text, sizeof text - 1, &allocator, &c, &error) == HET_OK) {
            fine++;
            het_cluster_free(c);
        } else assert_true(strlen(error.text) > 20);
        assert_int_equal(memory.live, 0);
        assert_int_equal(memory.wrong, 0);
    }
    print_message("%d of 3000 damaged files were still clusters\n", (int)fine);
}

static void memory_runs_out(void **state)
{
    int64_t k;
    (void)state;
    for (k = 0;; k++) {
        support_memory memory;
        het_allocator allocator = support_allocator(&memory);
        het_cluster *c = (het_cluster *)(uintptr_t)8;
        het_error error;
        het_result result;
        memory.fail_at = k;
        result = het_cluster_read(three_sites, sizeof three_sites - 1, &allocator, &c, &error);
        if (result == HET_OK) {
            het_cluster_free(c);
            assert_int_equal(memory.live, 0);
            break;
        }
        assert_int_equal(result, HET_ERR_OOM);
        assert_null(c);
        assert_int_equal(memory.live, 0);
    }
    assert_int_equal(k, 1); /* one block */
}

/* Places of ranks: what talks most lies together; devices that differ stay where they are; 27 ranks by exchanges. Brute force: test_systems 3.21. */
static void ranks_that_talk_lie_together(void **state)
{
    static const char pairs[] = "{\"members\":[{\"count\":2,\"members\":[{\"device\":\"a\",\"count\":2}]}]}";
    static const char unlike[] = "{\"members\":[{\"count\":2,\"members\":[{\"device\":\"a\"},{\"device\":\"b\"}]}]}";
    static const char nine[] = "{\"members\":[{\"count\":9,\"members\":[{\"device\":\"a\",\"count\":3}]}]}";
    const int64_t start[3] = { 0, 2, 4 }, falling[3] = { 0, 4, 2 }, rank[4] = { 0, 2, 1, 3 };
    int64_t starts[10], ranks[27], device[27], i;
    double weight[9] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 }, spread;
    het_blocks talk = { 2, NULL, NULL };
    het_cluster *c = NULL;
    het_error error;
    (void)state;
    talk.start = start, talk.unit = rank;
    EXPECT_OK(het_cluster_read(pairs, strlen(pairs), NULL, &c, &error));
    EXPECT_OK(het_cluster_place(c, &talk, weight, 0, 0, NULL, device, &spread, &error));
    assert_true(spread == 0 && device[0] / 2 == device[2] / 2 && device[1] / 2 == device[3] / 2);
    EXPECT_ERROR(het_cluster_place(c, &talk, NULL, 0, 0, NULL, device, &spread, &error), HET_ERR_INVALID, error.text, "NULL");
    weight[1] = -1;
    EXPECT_ERROR(het_cluster_place(c, &talk, weight, 0, 0, NULL, device, &spread, &error), HET_ERR_INVALID, error.text, "weight 1 is -1");
    weight[1] = 1, c->ranks = 3;
    EXPECT_ERROR(het_cluster_place(c, &talk, weight, 0, 0, NULL, device, &spread, &error), HET_ERR_INVALID, error.text, "rank 3 of 3");
    c->ranks = 4;
    talk.start = falling;
    EXPECT_ERROR(het_cluster_place(c, &talk, weight, 0, 0, NULL, device, &spread, &error), HET_ERR_INVALID, error.text,
                 "set 1 begins at 4 and ends at 2");
    talk.start = start;
    c->device[2].group = 9;
    EXPECT_ERROR(het_cluster_place(c, &talk, weight, 0, 0, NULL, device, &spread, &error), HET_ERR_INVALID, error.text, "device 2|group 9");
    het_cluster_free(c);
    EXPECT_OK(het_cluster_read(unlike, strlen(unlike), NULL, &c, &error)); /* a and b in each pair: 0 and 2 are both a */
    EXPECT_OK(het_cluster_place(c, &talk, weight, 0, 0, NULL, device, &spread, &error));
    assert_true(spread == 4 && device[0] % 2 == 0 && device[1] % 2 == 1);
    het_cluster_free(c);
    EXPECT_OK(het_cluster_read(nine, strlen(nine), NULL, &c, &error));
    for (i = 0; i < 27; i++) starts[i / 3] = i / 3 * 3, ranks[i] = i / 3 + i % 3 * 9; /* each set is spread over three groups */
    starts[9] = 27;
    talk.count = 9, talk.start = starts, talk.unit = ranks;
    EXPECT_OK(het_cluster_place(c, &talk, weight, 0, 0, NULL, device, &spread, &error));
    if (spread > 0) fail_msg("27 ranks: spread %g", spread);
    het_cluster_free(c);
}

/* Of a thousand devices no two are alike: what cannot be exchanged takes no longer than what can. */
static void unlike_devices_stay(void **state)
{
    enum { MANY = 1000 };
    int64_t start[2] = { 0, MANY }, ranks[MANY], device[MANY], i;
    double weight[1] = { 1 };
    het_blocks talk = { 1, NULL, NULL };
    const clock_t before = clock();
    het_cluster *c = NULL;
    het_error error;
    (void)state;
    EXPECT_OK(het_cluster_flat(MANY, NULL, 0, 0, NULL, &c, &error));
    for (i = 0; i < MANY; i++) c->device[i].speed = 1 + 1e-3 * (double)i, ranks[i] = i;
    talk.start = start, talk.unit = ranks;
    EXPECT_OK(het_cluster_place(c, &talk, weight, 3000, 0, NULL, device, NULL, &error));
    for (i = 0; i < MANY; i++) assert_int_equal(device[i], i);
    assert_true((double)(clock() - before) < 2.0 * CLOCKS_PER_SEC); /* 3,000,000 exchanges, not 1,500,000,000 */
    het_cluster_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_within_groups), cmocka_unit_test(written_and_read), cmocka_unit_test(flat), cmocka_unit_test(any_order),
        cmocka_unit_test(without_names), cmocka_unit_test(matrices),
        cmocka_unit_test(not_writable), cmocka_unit_test(broken_files), cmocka_unit_test(damaged_files), cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(ranks_that_talk_lie_together), cmocka_unit_test(unlike_devices_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
