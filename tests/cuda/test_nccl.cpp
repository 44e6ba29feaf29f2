/* Groups of CUDA devices over NCCL (hetrain_nccl.c): the table by itself, then whole training steps against the CPU device, of cards alone and mixed
   with CPU ranks. make test runs it without a GPU, on the stand-ins for the CUDA runtime, cuBLASLt and NCCL (standin/standin.h); make test-cuda on
   real cards, where nothing can be made to fail; with fewer than two of them there is nothing to test. */
#ifndef __CUDACC__
#define HETC_EMULATED 1
#define HETRAIN_CUDA_DECLARATIONS 1 /* the stand-in's object is linked */
#endif
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <functional>
#include <string>
#include <vector>
#ifdef HETC_EMULATED
#include "emulator.h"
#endif
#include "hetrain_cuda.cu"
#include "hetrain_nccl.c"
extern "C" {
#include "support.h"
}
#include "training.h"

static het_result rig_copy(const het_device *d, het_op_kind kind, het_queue *queue, void *to, const void *from, size_t size)
{
    het_op op;
    op.bf16 = 0;
    op.kind = kind;
    op.u.copy.to = to;
    op.u.copy.from = from;
    op.u.copy.size = size;
    return d->iface->run(d->self, queue, &op);
}

static void wait_for(const het_device *d, het_queue *queue)
{
    het_event *event = NULL;
    EXPECT_OK(d->iface->queues->event_create(d->self, &event));
    EXPECT_OK(d->iface->queues->event_record(d->self, queue, event));
    EXPECT_OK(d->iface->queues->event_sync(d->self, event, 60.0));
    d->iface->queues->event_destroy(d->self, event);
}

/* ---- the table by itself: all members in one thread, which asks them in turn ---- */

enum { RIG_OPS = 3, RIG_BYTES = 12000 };

struct end { /* a member */
    het_device device;
    het_queue *queue;
    het_communicator *group;
    void *memory; /* [RIG_BYTES] device */
};

struct rig {
    support_memory memory;
    het_allocator allocator;
    het_parallel parallel;
    het_communicators groups;
    std::vector<end> ends;
    std::string text;
    int32_t exchanges = 0;

    rig() : memory(), allocator(support_allocator(&memory)), parallel(support_serial()), groups() { memory.fail_at = -1; }
};

#define RIG_TRY(call) do { const het_result tried = (call); if (tried != HET_OK) return tried; } while (0)

static het_result rig_fail(rig *r, het_result result, size_t m)
{
    if (result != HET_OK) r->text = r->groups.iface->last_error(r->groups.self, m < r->ends.size() ? r->ends[m].group : NULL);
    return result;
}

static het_result rig_device_fail(rig *r, het_result result, size_t m)
{
    if (result != HET_OK) r->text = r->ends[m].device.iface->last_error(r->ends[m].device.self);
    return result;
}

static het_result rig_open(rig *r)
{
    het_nccl_desc desc;
    het_error error;
    memset(&desc, 0, sizeof desc);
    memset(&error, 0, sizeof error);
    desc.allocator = r->allocator;
    desc.abort_seconds = desc.close_seconds = 0.2;
    const het_result result = het_nccl_open(&desc, &r->groups, &error);
    r->text = error.text;
    return result;
}

static het_result rig_devices(rig *r, size_t members)
{
    for (size_t m = 0; m < members; m++) {
        het_device_config config;
        het_error error;
        end one;
        memset(&config, 0, sizeof config);
        memset(&error, 0, sizeof error);
        memset(&one, 0, sizeof one);
        config.allocator = &r->allocator;
        config.parallel = &r->parallel;
        config.threads = 1;
        config.ordinal = static_cast<int32_t>(m);
        config.error = &error;
        one.device.iface = het_cuda_device();
        const het_result result = one.device.iface->create(&config, &one.device.self);
        r->text = error.text;
        RIG_TRY(result);
        r->ends.push_back(one);
        RIG_TRY(rig_device_fail(r, one.device.iface->queues->create(one.device.self, &r->ends[m].queue), m));
        r->ends[m].memory = one.device.iface->alloc(one.device.self, RIG_BYTES);
        if (r->ends[m].memory == NULL) return rig_device_fail(r, HET_ERR_DEVICE, m);
    }
    return HET_OK;
}

/* Starts all joins but those of the last `absent` members. */
static het_result rig_join(rig *r, size_t absent)
{
    const het_communicator_iface *t = r->groups.iface;
    const size_t members = r->ends.size();
    unsigned char id[HETRAIN_COMMUNICATOR_ID];
    char place[2][HETRAIN_COMMUNICATOR_PLACE];
    memset(place, 0, sizeof place);
    for (size_t m = 0; m < members; m++) {
        RIG_TRY(rig_fail(r, t->place(r->groups.self, &r->ends[m].device, place[m & 1], sizeof place[0]), members));
        assert_true(place[m & 1][0] != 0 && strcmp(place[0], place[1]) != 0);
    }
    assert_true(t->id_bytes <= sizeof id);
    RIG_TRY(rig_fail(r, t->identity(r->groups.self, id), members));
    for (size_t m = 0; m + absent < members; m++) {
        const int64_t all = static_cast<int64_t>(members);
        RIG_TRY(rig_fail(r, t->join(r->groups.self, &r->ends[m].device, id, all, static_cast<int64_t>(m), RIG_OPS, r->exchanges, &r->ends[m].group), members));
    }
    return HET_OK;
}

/* Asks `rounds` times whether all have joined. */
static het_result rig_joined(rig *r, int rounds, int *all)
{
    for (*all = 0; rounds > 0 && !*all; rounds--) {
        *all = 1;
        for (size_t m = 0; m < r->ends.size(); m++) {
            int32_t done = 0;
            if (r->ends[m].group == NULL) continue;
            RIG_TRY(rig_fail(r, r->groups.iface->joined(r->groups.self, r->ends[m].group, &done), m));
            *all &= done;
        }
    }
    return HET_OK;
}

/* Asks until every member has finished so many ops. */
static het_result rig_wait(rig *r, int64_t ops, int rounds)
{
    for (; rounds > 0; rounds--) {
        int all = 1;
        for (size_t m = 0; m < r->ends.size(); m++) {
            int64_t finished = 0;
            RIG_TRY(rig_fail(r, r->groups.iface->test(r->groups.self, r->ends[m].group, &finished), m));
            assert_true(finished <= ops);
            all &= finished == ops;
        }
        if (all) return HET_OK;
    }
    r->text = "ops did not end";
    return HET_ERR_TRANSPORT;
}

static het_result rig_start(rig *r, size_t members)
{
    int all = 0;
    RIG_TRY(rig_open(r));
    RIG_TRY(rig_devices(r, members));
    RIG_TRY(rig_join(r, 0));
    RIG_TRY(rig_joined(r, 100, &all));
    if (!all) r->text = "not all have joined";
    return all ? HET_OK : HET_ERR_TRANSPORT;
}

/* Everything that there is goes; the first error of closing. */
static het_result rig_end(rig *r, int abort_first)
{
    het_error error;
    het_result result = HET_OK;
    memset(&error, 0, sizeof error);
    for (end &one : r->ends)
        if (one.group != NULL && abort_first) r->groups.iface->abort(r->groups.self, one.group);
    for (end &one : r->ends) {
        if (one.group != NULL) r->groups.iface->leave(r->groups.self, one.group);
        one.group = NULL;
    }
    if (r->groups.iface != NULL) result = het_nccl_close(&r->groups, &error);
    if (result != HET_OK) r->text = error.text;
    for (end &one : r->ends) {
        if (one.memory != NULL) one.device.iface->free(one.device.self, one.memory, RIG_BYTES);
        if (one.queue != NULL) one.device.iface->queues->destroy(one.device.self, one.queue);
        one.device.iface->destroy(one.device.self);
    }
    r->ends.clear();
    assert_int_equal(r->memory.live, 0);
    assert_int_equal(r->memory.wrong, 0);
    return result;
}

static size_t bytes_of(het_communicator_element element) { return element == HET_COMMUNICATOR_F32 ? 4 : 8; }

static double number_of(const void *data, size_t i, het_communicator_element element)
{
    if (element == HET_COMMUNICATOR_F32) return static_cast<double>(static_cast<const float *>(data)[i]);
    return element == HET_COMMUNICATOR_F64 ? static_cast<const double *>(data)[i] : static_cast<double>(static_cast<const int64_t *>(data)[i]);
}

static void set_number(void *data, size_t i, het_communicator_element element, int64_t value)
{
    if (element == HET_COMMUNICATOR_F32) static_cast<float *>(data)[i] = static_cast<float>(value);
    else if (element == HET_COMMUNICATOR_F64) static_cast<double *>(data)[i] = static_cast<double>(value);
    else static_cast<int64_t *>(data)[i] = value;
}

/* What member m has at element i; sums of four are exact in every type. */
static int64_t value_at(size_t m, size_t i) { return static_cast<int64_t>((i * 7919 + m * 104729) % 100003) - 50000; }

#define RIG_EXPECT(r, call, code, words) do { const het_result got = (call); \
    support_expect(got, (code), (r)->text.c_str(), (words), #call, __LINE__); } while (0)
#define RIG_OK(r, call) RIG_EXPECT(r, call, HET_OK, "")

static int64_t exchanges(void)
{
#ifdef HETC_EMULATED
    return standin_counted().exchanges;
#else
    return 1;
#endif
}

/* A reduce-scatter and, given at once behind it, an all-gather: everybody has every sum. Returns how often cards met. */
static int64_t check_sums(size_t members, const std::vector<int64_t> &start, het_communicator_element element)
{
    const size_t count = static_cast<size_t>(start[members]) + 5, bytes = count * bytes_of(element), first = static_cast<size_t>(start[0]);
    rig r;
    std::vector<unsigned char> host(bytes);
    assert_true(bytes <= RIG_BYTES);
    stand_in(static_cast<int>(members));
    RIG_OK(&r, rig_start(&r, members));
    const int64_t before = exchanges();
    for (size_t m = 0; m < members; m++) {
        const het_device *d = &r.ends[m].device;
        for (size_t i = 0; i < count; i++) set_number(host.data(), i, element, value_at(m, i));
        EXPECT_OK(rig_copy(d, HET_OP_COPY_IN, r.ends[m].queue, r.ends[m].memory, host.data(), bytes));
        wait_for(d, r.ends[m].queue); /* host is used again */
    }
    for (size_t m = 0; m < members; m++) {
        std::vector<int64_t> passing = start; /* ranges are read before the call returns */
        EXPECT_OK(r.groups.iface->reduce_scatter(r.groups.self, r.ends[m].group, r.ends[m].queue, r.ends[m].memory, passing.data(), element));
        EXPECT_OK(r.groups.iface->all_gather(r.groups.self, r.ends[m].group, r.ends[m].queue, r.ends[m].memory, passing.data(), element));
        passing.assign(passing.size(), 0);
    }
    RIG_OK(&r, rig_wait(&r, 2, 100));
    for (size_t m = 0; m < members; m++) {
        const het_device *d = &r.ends[m].device;
        EXPECT_OK(rig_copy(d, HET_OP_COPY_OUT, r.ends[m].queue, host.data(), r.ends[m].memory, bytes));
        wait_for(d, r.ends[m].queue);
        for (size_t i = 0; i < count; i++) {
            const int summed = i >= first && i < count - 5;
            double expected = summed ? 0.0 : static_cast<double>(value_at(m, i));
            if (summed)
                for (size_t k = 0; k < members; k++) expected += static_cast<double>(value_at(k, i));
            if (!(fabs(number_of(host.data(), i, element) - expected) <= 0.0))
                fail_msg("element %d of member %d is %g, not %g", static_cast<int>(i), static_cast<int>(m), number_of(host.data(), i, element),
                         expected);
        }
    }
    const int64_t met = exchanges() - before;
    EXPECT_OK(rig_end(&r, 0));
    stand_down();
    return met;
}

static void sums_of_uneven_ranges(void **)
{
    const het_communicator_element elements[3] = { HET_COMMUNICATOR_F32, HET_COMMUNICATOR_F64, HET_COMMUNICATOR_I64 };
    for (const het_communicator_element element : elements) {
        check_sums(2, { 0, 700, 1000 }, element);
        check_sums(2, { 3, 3, 64 }, element);
        check_sums(2, { 3, 503, 1003 }, element); /* even */
        if (cards() >= 3) check_sums(3, { 0, 1, 1, 1029 }, element);
        if (cards() >= 4) check_sums(4, { 2, 2, 100, 1000, 1001 }, element);
        if (cards() >= 4) check_sums(4, { 0, 33, 66, 99, 132 }, element);
    }
    check_sums(2, { 4, 4, 4 }, HET_COMMUNICATOR_F32);
}

/* Ranges of one size are one meeting an op, others one for each range that is not empty. */
static void sums_of_even_ranges(void **)
{
    const het_communicator_element elements[3] = { HET_COMMUNICATOR_F32, HET_COMMUNICATOR_F64, HET_COMMUNICATOR_I64 };
    for (const het_communicator_element element : elements) {
        const int64_t met = check_sums(2, { 0, 500, 1000 }, element);
        assert_int_equal(check_sums(2, { 3, 4, 5 }, element), met);
        assert_int_equal(check_sums(2, { 0, 501, 1000 }, element), 2 * met);
        if (cards() >= 3) assert_int_equal(check_sums(3, { 1, 344, 687, 1030 }, element), met);
        if (cards() >= 4) assert_int_equal(check_sums(4, { 2, 252, 502, 752, 1002 }, element), met);
#ifdef HETC_EMULATED
        assert_int_equal(met, 2);
#endif
    }
}

/* One piece of a member's, to `peer` or from it. */
static het_result rig_pass(rig *r, size_t m, size_t peer, bool comes, void *data, size_t bytes)
{
    std::vector<het_communicator_piece> out(r->ends.size()), in(r->ends.size());
    (comes ? in : out)[peer] = { data, bytes };
    return rig_fail(r, r->groups.iface->exchange(r->groups.self, r->ends[m].group, r->ends[m].queue, out.data(), in.data()), m);
}

/* Several under way each way, as many as the group was joined for. */
static void messages_keep_their_order(void **)
{
    const size_t count = RIG_OPS, bytes = 1000 * sizeof(int32_t);
    rig r;
    std::vector<int32_t> from(1000 * count), to(1000 * count);
    stand_in(2);
    r.exchanges = 1;
    RIG_OK(&r, rig_start(&r, 2));
    for (size_t i = 0; i < from.size(); i++) from[i] = static_cast<int32_t>(i * i);
    const het_device *d = &r.ends[0].device;
    EXPECT_OK(rig_copy(d, HET_OP_COPY_IN, r.ends[0].queue, r.ends[0].memory, from.data(), count * bytes));
    for (size_t i = 0; i < count; i++) {
        char *out = static_cast<char *>(r.ends[0].memory) + i * bytes, *in = static_cast<char *>(r.ends[1].memory) + i * bytes;
        RIG_OK(&r, rig_pass(&r, 0, 1, false, out, bytes));
        RIG_OK(&r, rig_pass(&r, 1, 0, true, in, bytes));
    }
    RIG_OK(&r, rig_wait(&r, RIG_OPS, 100));
    d = &r.ends[1].device;
    EXPECT_OK(rig_copy(d, HET_OP_COPY_OUT, r.ends[1].queue, to.data(), r.ends[1].memory, count * bytes));
    wait_for(d, r.ends[1].queue);
    assert_true(from == to);
    EXPECT_OK(rig_end(&r, 0));
    stand_down();
}

/* All have something for all, of unequal lengths; then a chain from the last to the first, of which each first receives and then sends. */
static void exchanges_meet_piece_by_piece(void **)
{
    const size_t members = static_cast<size_t>(cards() < 4 ? cards() : 4), room = RIG_BYTES / 64 / sizeof(int32_t);
    rig r;
    stand_in(static_cast<int>(members));
    r.exchanges = 1;
    RIG_OK(&r, rig_start(&r, members));
    std::vector<int32_t> host(RIG_BYTES / sizeof(int32_t));
    const auto count = [&](size_t from, size_t to) { return from == to ? 0 : from * 5 + to * 3 + (from > to); };
    const auto at = [&](size_t m, bool comes, size_t peer) { /* of a member's 64 places: what leaves, what comes */
        return static_cast<char *>(r.ends[m].memory) + (comes ? members + peer : peer) * room * sizeof(int32_t);
    };
    for (size_t m = 0; m < members; m++) {
        for (size_t i = 0; i < host.size(); i++) host[i] = static_cast<int32_t>(m << 24 | i);
        EXPECT_OK(rig_copy(&r.ends[m].device, HET_OP_COPY_IN, r.ends[m].queue, r.ends[m].memory, host.data(), RIG_BYTES));
        wait_for(&r.ends[m].device, r.ends[m].queue);
    }
    for (size_t m = 0; m < members; m++) {
        std::vector<het_communicator_piece> out(members), in(members);
        for (size_t peer = 0; peer < members; peer++) {
            out[peer] = { at(m, false, peer), count(m, peer) * sizeof(int32_t) };
            in[peer] = { at(m, true, peer), count(peer, m) * sizeof(int32_t) };
        }
        RIG_OK(&r, rig_fail(&r, r.groups.iface->exchange(r.groups.self, r.ends[m].group, r.ends[m].queue, out.data(), in.data()), m));
    }
    RIG_OK(&r, rig_wait(&r, 1, 200));
    for (size_t m = 0; m < members; m++) {
        EXPECT_OK(rig_copy(&r.ends[m].device, HET_OP_COPY_OUT, r.ends[m].queue, host.data(), r.ends[m].memory, RIG_BYTES));
        wait_for(&r.ends[m].device, r.ends[m].queue);
        for (size_t peer = 0; peer < members; peer++)
            for (size_t i = 0; i < room; i++) {
                const size_t own = (members + peer) * room + i;
                assert_int_equal(host[own], i < count(peer, m) ? peer << 24 | (m * room + i) : m << 24 | own);
            }
    }
    for (size_t m = 0; m < members; m++) {
        char *const data = at(m, false, 0);
        if (m + 1 < members) RIG_OK(&r, rig_pass(&r, m, m + 1, true, data, 64));
        if (m > 0) RIG_OK(&r, rig_pass(&r, m, m - 1, false, data, 64));
    }
    for (int rounds = 0; rounds < 200; rounds++)
        for (size_t m = 0; m < members; m++) {
            int64_t finished = 0;
            RIG_OK(&r, rig_fail(&r, r.groups.iface->test(r.groups.self, r.ends[m].group, &finished), m));
            if (rounds == 199) assert_int_equal(finished, m == 0 || m + 1 == members ? 2 : 3);
        }
    EXPECT_OK(rig_copy(&r.ends[0].device, HET_OP_COPY_OUT, r.ends[0].queue, host.data(), at(0, false, 0), 64));
    wait_for(&r.ends[0].device, r.ends[0].queue);
    for (size_t i = 0; i < 16; i++) assert_int_equal(host[i], (members - 1) << 24 | i);
    EXPECT_OK(rig_end(&r, 0));
    stand_down();
}

static void other_devices_have_no_place(void **)
{
    het_nccl_desc desc;
    het_communicators groups;
    het_error error;
    het_device device;
    char place[HETRAIN_COMMUNICATOR_PLACE] = "x", id[HETRAIN_COMMUNICATOR_ID];
    het_communicator *group = NULL;
    std::string host(96, 'h');
    stand_in(1);
    memset(&desc, 0, sizeof desc);
    device.iface = het_cpu_device();
    device.self = NULL;
    EXPECT_OK(het_nccl_open(NULL, &groups, &error));
    EXPECT_OK(groups.iface->place(groups.self, &device, place, sizeof place));
    assert_string_equal(place, "");
    EXPECT_OK(groups.iface->identity(groups.self, id));
    const het_result joined = groups.iface->join(groups.self, &device, id, 2, 0, 1, 0, &group);
    EXPECT_ERROR(joined, HET_ERR_INVALID, groups.iface->last_error(groups.self, NULL), "\"cpu\"");
    EXPECT_OK(het_nccl_close(&groups, &error));
    EXPECT_OK(het_nccl_close(&groups, &error));
    desc.host = host.c_str();
    EXPECT_ERROR(het_nccl_open(&desc, &groups, &error), HET_ERR_LIMIT, error.text, "host|96|95");
    desc.host = NULL;
    desc.close_seconds = -1;
    EXPECT_ERROR(het_nccl_open(&desc, &groups, &error), HET_ERR_INVALID, error.text, "close_seconds|-1");
    desc.close_seconds = 0;
    desc.end_canary = 7;
    EXPECT_ERROR(het_nccl_open(&desc, &groups, &error), HET_ERR_INVALID, error.text, "cleared");
    stand_down();
}

/* Ops that cannot be: an error each, which is the group's last word. */
static void impossible_ops(void **)
{
    const int64_t descending[3] = { 0, 8, 4 }, empty[3] = { 0, 0, 0 };
    rig r;
    for (int which = 0; which < 5; which++) {
        stand_in(2);
        r.exchanges = which == 1 || which == 2 || which == 4;
        RIG_OK(&r, rig_start(&r, 2));
        const het_communicator_iface *t = r.groups.iface;
        het_communicator *group = r.ends[0].group;
        het_queue *queue = r.ends[0].queue;
        het_result result = HET_OK;
        if (which == 0) result = t->reduce_scatter(r.groups.self, group, queue, NULL, descending, HET_COMMUNICATOR_F32);
        if (which == 1) result = rig_pass(&r, 0, 0, false, NULL, 4);
        for (int i = 0; which == 2 && i <= RIG_OPS && result == HET_OK; i++)
            result = rig_pass(&r, 0, 1, false, r.ends[0].memory, 4);
        if (which == 3) result = rig_pass(&r, 0, 1, true, NULL, 4);
        if (which == 4) result = t->all_gather(r.groups.self, group, queue, NULL, empty, HET_COMMUNICATOR_F32);
        assert_int_equal(result, which == 2 ? HET_ERR_LIMIT : which > 2 ? HET_ERR_STATE : HET_ERR_INVALID);
        static const char *const expected[] = { "range 1|[8, 4)", "member 0 of 2|itself", "3 ops", "joined for reductions", "joined for exchanges" };
        EXPECT_ERROR(result, result, t->last_error(r.groups.self, group), expected[which]);
        EXPECT_OK(rig_end(&r, 1));
        stand_down();
    }
}

#ifdef HETC_EMULATED
/* ---- failures of the table ---- */

static void versions_are_compared(void **)
{
    rig r;
    stand_in(2);
    standin_nccl_version(21805);
    RIG_EXPECT(&r, rig_open(&r), HET_ERR_UNSUPPORTED, "2.18.5|2.28.9");
    standin_nccl_version(0);
    RIG_OK(&r, rig_open(&r));
    RIG_OK(&r, rig_devices(&r, 2));
    unsigned char id[HETRAIN_COMMUNICATOR_ID];
    het_communicators newer;
    het_error error;
    standin_nccl_version(23007);
    EXPECT_OK(het_nccl_open(NULL, &newer, &error));
    EXPECT_OK(newer.iface->identity(newer.self, id));
    EXPECT_OK(het_nccl_close(&newer, &error));
    het_result joined = rig_fail(&r, r.groups.iface->join(r.groups.self, &r.ends[1].device, id, 2, 1, RIG_OPS, 0, &r.ends[1].group), 2);
    EXPECT_ERROR(joined, HET_ERR_UNSUPPORTED, r.text.c_str(), "member 1 of 2|2.28.9|2.30.7");
    assert_null(r.ends[1].group);
    memset(id, 1, sizeof id);
    joined = rig_fail(&r, r.groups.iface->join(r.groups.self, &r.ends[1].device, id, 2, 1, RIG_OPS, 0, &r.ends[1].group), 2);
    EXPECT_ERROR(joined, HET_ERR_INVALID, r.text.c_str(), "not an identity");
    EXPECT_OK(rig_end(&r, 0));
    standin_nccl_version(0);
    stand_down();
}

/* One of three never joins: the others wait for as long as they like, then abort. */
static void a_member_that_never_joins(void **)
{
    rig r;
    int all = 0;
    stand_in(3);
    RIG_OK(&r, rig_open(&r));
    RIG_OK(&r, rig_devices(&r, 3));
    RIG_OK(&r, rig_join(&r, 1));
    RIG_OK(&r, rig_joined(&r, 50, &all));
    assert_false(all);
    EXPECT_ERROR(het_nccl_close(&r.groups, NULL), HET_ERR_STATE, "", "");
    EXPECT_OK(rig_end(&r, 1));
    stand_down();
}

/* One member dies with an op of the other under way: that ends behind its own abort, and not before. */
static void a_member_that_dies(void **)
{
    rig r;
    int64_t finished = 0;
    const int64_t start[3] = { 0, 100, 200 };
    stand_in(2);
    RIG_OK(&r, rig_start(&r, 2));
    for (int i = 0; i < 2; i++)
        EXPECT_OK(r.groups.iface->reduce_scatter(r.groups.self, r.ends[0].group, r.ends[0].queue, r.ends[0].memory, start, HET_COMMUNICATOR_I64));
    r.groups.iface->abort(r.groups.self, r.ends[1].group);
    for (int i = 0; i < 50; i++) EXPECT_OK(r.groups.iface->test(r.groups.self, r.ends[0].group, &finished));
    assert_int_equal(finished, 0);
    r.groups.iface->abort(r.groups.self, r.ends[0].group);
    EXPECT_ERROR(r.groups.iface->test(r.groups.self, r.ends[0].group, &finished), HET_ERR_STATE,
                 r.groups.iface->last_error(r.groups.self, r.ends[0].group), "aborted");
    r.groups.iface->leave(r.groups.self, r.ends[0].group); /* from now on the memory is the device's again */
    r.ends[0].group = NULL;
    EXPECT_OK(rig_end(&r, 1));
    stand_down();
}

/* One leaves, the other does not in time: closing says so, and nothing hangs. */
static void a_member_that_never_leaves(void **)
{
    rig r;
    het_error error;
    stand_in(2);
    RIG_OK(&r, rig_start(&r, 2));
    heti_nccl_group *other = heti_nccl_of(r.ends[1].group);
    ncclComm_t comm = other->comm;
    other->comm = NULL; /* it is a process that does nothing any more */
    r.groups.iface->leave(r.groups.self, r.ends[0].group);
    r.groups.iface->leave(r.groups.self, r.ends[1].group);
    r.ends[0].group = r.ends[1].group = NULL;
    EXPECT_ERROR(het_nccl_close(&r.groups, &error), HET_ERR_TRANSPORT, error.text, "other members of 1 did not leave");
    assert_int_equal(ncclCommAbort(comm), ncclSuccess);
    EXPECT_OK(rig_end(&r, 0));
    stand_down();
}

/* What NCCL finds while nobody calls it is told by `test`. */
static void errors_that_come_up_later(void **)
{
    rig r;
    stand_in(2);
    RIG_OK(&r, rig_start(&r, 2));
    standin_nccl_error(1, ncclRemoteError);
    RIG_EXPECT(&r, rig_wait(&r, 0, 5), HET_ERR_TRANSPORT, "cuda:1|member 1 of 2|ncclRemoteError|hetrain_nccl.c:");
    standin_nccl_error(1, 0);
    EXPECT_OK(rig_end(&r, 1));
    stand_down();
}

/* All the table does, once: of one kind of group. */
static het_result go_through(rig *r, int32_t exchanges)
{
    const int64_t start[3] = { 0, 30, 100 };
    r->exchanges = exchanges;
    RIG_TRY(rig_start(r, 2));
    for (size_t m = 0; m < 2 && exchanges; m++)
        for (int i = 0; i < 2; i++) RIG_TRY(rig_pass(r, m, 1 - m, (m == 1) != (i == 1), r->ends[m].memory, 800));
    if (exchanges) return rig_wait(r, 2, 200);
    for (size_t m = 0; m < 2; m++) {
        const het_communicator_iface *t = r->groups.iface;
        void *self = r->groups.self;
        het_communicator *group = r->ends[m].group;
        het_queue *queue = r->ends[m].queue;
        char *data = static_cast<char *>(r->ends[m].memory);
        RIG_TRY(rig_fail(r, t->reduce_scatter(self, group, queue, data, start, HET_COMMUNICATOR_F64), m));
        RIG_TRY(rig_fail(r, t->all_gather(self, group, queue, data, start, HET_COMMUNICATOR_F64), m));
    }
    return rig_wait(r, 2, 200);
}

/* Calls whose error nobody can be told: they give something back, or ask whether something has ended. */
static int may_be_lost(const char *call)
{
    static const char *const quiet[] = { "cudaFree", "cudaFreeHost", "cudaStreamDestroy", "cudaEventDestroy", "cudaStreamQuery", "cudaSetDevice",
                                         "cublasLtDestroy", "cublasLtMatmulDescDestroy", "cublasLtMatrixLayoutDestroy",
                                         "cublasLtMatmulPreferenceDestroy", "ncclCommFinalize", "ncclCommDestroy",
                                         "ncclCommAbort", "ncclCommGetAsyncError" };
    for (const char *name : quiet)
        if (strcmp(call, name) == 0) return 1;
    return 0;
}

/* Every call fails in turn: an error that names the call, its code, file and line, everything given back, no hang, no wrong call behind it. */
static void every_call_fails_in_turn(void **)
{
    int64_t tried = 0, nccl = 0, both = 0;
    for (int64_t n = 0; both < 2; n++) {
        rig r;
        stand_in(2);
        standin_skip(1);
        standin_fail(n);
        const het_result result = go_through(&r, both == 1);
        const std::string text = r.text;
        const het_result closed = rig_end(&r, result != HET_OK);
        const standin_count count = standin_counted();
        if (count.failed[0] == 0) {
            both++;
            n = -1;
            continue;
        }
        tried++;
        nccl += strncmp(count.failed, "nccl", 4) == 0;
        if (count.live != 0 || count.misuse != 0)
            fail_msg("call %d (%s) fails: %d things are not given back, %s", static_cast<int>(n), count.failed, static_cast<int>(count.live),
                     count.misused);
        if (closed != HET_OK && result == HET_OK && !may_be_lost(count.failed))
            fail_msg("call %d (%s) fails: %s", static_cast<int>(n), count.failed, r.text.c_str());
        if (result == HET_OK && may_be_lost(count.failed)) continue;
        if (result != HET_ERR_DEVICE && (result != HET_ERR_UNSUPPORTED || strcmp(count.failed, "ncclGetVersion") != 0))
            fail_msg("call %d (%s) fails: result %d, %s", static_cast<int>(n), count.failed, static_cast<int>(result), text.c_str());
        if (strstr(text.c_str(), count.failed) == NULL || (strstr(text.c_str(), "hetrain_nccl.c:") == NULL && strstr(text.c_str(), ".cu:") == NULL))
            fail_msg("call %d (%s) fails: call, file and line are not in \"%s\"", static_cast<int>(n), count.failed, text.c_str());
    }
    standin_fail(-1);
    print_message("%d calls failed in turn, %d of them NCCL's\n", static_cast<int>(tried), static_cast<int>(nccl));
    assert_true(tried > 100 && nccl > 40);
    stand_down();
}

static void memory_fails_in_turn(void **)
{
    int64_t n = 0;
    for (;; n++) {
        rig r;
        stand_in(2);
        r.memory.fail_at = n;
        const het_result result = go_through(&r, n % 2 == 1);
        const int64_t calls = r.memory.calls;
        EXPECT_OK(rig_end(&r, result != HET_OK));
        if (calls <= n) break;
        EXPECT_ERROR(result, HET_ERR_OOM, r.text.c_str(), "");
    }
    assert_true(n >= 5);
    stand_down();
}
#endif

/* ---- whole training steps ---- */

static void open_groups(support_run *run)
{
    het_nccl_desc desc;
    het_error error;
    memset(&desc, 0, sizeof desc);
    EXPECT_ERROR(het_nccl_open(&desc, &run->desc.layout.communicators, &error), HET_OK, error.text, "");
}

static void close_groups(support_run *run)
{
    het_error error;
    EXPECT_ERROR(het_nccl_close(&run->desc.layout.communicators, &error), HET_OK, error.text, "");
}

/* Trains on the CPU alone, then in a layout of ranks whose cards are in groups: a letter a rank, c a CPU, else the card. With exact sums the groups
   change no bit: the same ranks that go through the host end with the same. With sums that round, another run of the groups does. */
static void compare_groups(het_family family, het_dtype dtype, het_reduce reduce, const char *kinds, const char *plan, const char *schedule,
                           const char *what)
{
    support_run run;
    for (const char *kind = kinds; *kind != 0; kind++)
        if (*kind != 'c' && *kind - '0' >= cards()) return;
    stand_in(4);
    start(&run, family, dtype, reduce);
    const trained cpu = train(&run, LAYOUT);
    support_run_ranks(&run, static_cast<int64_t>(strlen(kinds)));
    for (size_t r = 0; kinds[r] != 0; r++) {
        run.device[r].iface = kinds[r] == 'c' ? het_cpu_device() : het_cuda_device();
        run.device[r].ordinal = kinds[r] == 'c' ? 0 : kinds[r] - '0';
    }
    support_run_plan(&run, plan, schedule, 1);
    const trained by_host = reduce == HET_REDUCE_EXACT ? train(&run, LAYOUT) : cpu;
    assert_true(exchanges() <= 1);
    open_groups(&run);
    const trained grouped = train(&run, LAYOUT);
    assert_true(exchanges() > 0);
    expect_same(cpu, grouped, limit_of(dtype), what);
    if (reduce == HET_REDUCE_EXACT) { /* a group gives parts to other owners, and cards and CPUs add up the squares of a part in orders of their own */
        trained same = by_host;
        for (size_t i = 0; i < same.norm.size(); i++)
            if (fabs(same.norm[i] - grouped.norm[i]) <= 1e-15 * grouped.norm[i]) same.norm[i] = grouped.norm[i];
        expect_equal(same, grouped);
    } else {
        expect_equal(grouped, train(&run, LAYOUT));
    }
    close_groups(&run);
    support_run_end(&run);
    stand_down();
}

static void cards_share_the_batch(void **)
{
    compare_groups(HET_GPT2, HET_F32, HET_REDUCE_EXACT, "01", "dp", NULL, "cuda:0,cuda:1 dp exact");
    compare_groups(HET_LLAMA, HET_F32, HET_REDUCE_FAST, "01", "dp", NULL, "cuda:0,cuda:1 dp fast");
    compare_groups(HET_GPT2, HET_BF16, HET_REDUCE_EXACT, "01", "dp", NULL, "cuda:0,cuda:1 dp bf16");
    compare_groups(HET_LLAMA, HET_F32, HET_REDUCE_FAST, "012", "dp", NULL, "three cards dp fast");
}

/* Uneven work and uneven state: the owners' ranges are 1 to 3, and 0 to 2 to 1. */
static void cards_share_the_batch_unevenly(void **)
{
    compare_groups(HET_GPT2, HET_F32, HET_REDUCE_EXACT, "01",
                   "{\"schedule\":\"1f1b\",\"pipelines\":[{\"share\":3,\"stages\":[{\"rank\":0,\"units\":[0,6]}]},"
                   "{\"share\":1,\"stages\":[{\"rank\":1,\"units\":[0,6]}]}],\"state_shares\":[1,3]}", NULL, "two cards, shares of 3 and 1");
    compare_groups(HET_GPT2, HET_F32, HET_REDUCE_FAST, "201",
                   "{\"schedule\":\"1f1b\",\"pipelines\":[{\"share\":2,\"stages\":[{\"rank\":0,\"units\":[0,6]}]},"
                   "{\"share\":1,\"stages\":[{\"rank\":1,\"units\":[0,4]},{\"rank\":2,\"units\":[4,6]}]}],\"state_shares\":[0,2,1]}", NULL,
                   "one card beside a pipeline of two");
}

static void cards_share_the_layers(void **)
{
    compare_groups(HET_LLAMA, HET_F32, HET_REDUCE_EXACT, "01", "pp", "1f1b", "cuda:0,cuda:1 pp");
    compare_groups(HET_GPT2, HET_F32, HET_REDUCE_FAST, "012", "pp", "zb-h1", "three cards pp zb-h1 fast");
    compare_groups(HET_LLAMA, HET_BF16, HET_REDUCE_EXACT, "10", "pp", "gpipe", "cuda:1,cuda:0 pp bf16");
}

static void cards_share_both(void **)
{
    compare_groups(HET_LLAMA, HET_F32, HET_REDUCE_EXACT, "0123", "dp2xpp2", "1f1b", "four cards dp2xpp2");
    compare_groups(HET_GPT2, HET_BF16, HET_REDUCE_FAST, "0123", "dp2xpp2", "1f1b", "four cards dp2xpp2 bf16 fast");
}

/* Two levels: inside the group, then its leader with the CPUs, then back. */
static void cards_and_cpus_share_the_batch(void **)
{
    compare_groups(HET_GPT2, HET_F32, HET_REDUCE_EXACT, "01c", "dp", NULL, "cuda:0,cuda:1,cpu dp exact");
    compare_groups(HET_LLAMA, HET_F32, HET_REDUCE_FAST, "c01", "dp", NULL, "cpu,cuda:0,cuda:1 dp fast");
    compare_groups(HET_GPT2, HET_BF16, HET_REDUCE_EXACT, "0c1", "dp", NULL, "cuda:0,cpu,cuda:1 dp bf16");
    compare_groups(HET_LLAMA, HET_F32, HET_REDUCE_EXACT, "001", "dp", NULL, "cuda:0 twice and cuda:1 dp");
}

/* By rows in a chain, by heads all to all, by columns; a team with a CPU goes through the host, one of cards does not. */
static void cards_share_units(void **)
{
    compare_groups(HET_LLAMA, HET_F32, HET_REDUCE_EXACT, "01", "hp2", NULL, "two cards hp2");
    compare_groups(HET_GPT2, HET_F32, HET_REDUCE_EXACT, "012", "cp3", NULL, "three cards cp3");
    compare_groups(HET_GPT2, HET_BF16, HET_REDUCE_EXACT, "01", "tp2", NULL, "two cards tp2 bf16");
    compare_groups(HET_GPT2, HET_F32, HET_REDUCE_EXACT, "0c12", "dp2xcp2", NULL, "a card and a CPU, two cards");
}

static void cards_and_cpus_share_the_layers(void **)
{
    compare_groups(HET_LLAMA, HET_F32, HET_REDUCE_EXACT, "01c", "pp", "1f1b", "cuda:0,cuda:1,cpu pp");
    compare_groups(HET_GPT2, HET_F32, HET_REDUCE_EXACT, "01cc", "dp2xpp2", "1f1b", "cuda:0,cuda:1,cpu,cpu dp2xpp2");
}

#ifdef HETC_EMULATED
/* ---- failures in steps ---- */

static void tiny(support_run *run, const char *plan)
{
    het_model_desc model;
    het_error error;
    memset(&model, 0, sizeof model);
    model.family = HET_GPT2;
    model.layers = 1, model.width = 8, model.heads = 2, model.vocab = 11, model.context = 8;
    support_expect(het_model_complete(&model, &error), HET_OK, error.text, "", "het_model_complete", __LINE__);
    support_run_start(run, &model, 1, "4,3");
    support_run_ranks(run, 2);
    for (int32_t r = 0; r < 2; r++) run->device[r].iface = het_cuda_device(), run->device[r].ordinal = r;
    run->desc.limits.max_micro_batches = 2;
    run->desc.layout.deadline = run->desc.layout.stall_deadline = 20.0;
    support_run_plan(run, plan, NULL, 1);
    open_groups(run);
}

static void tiny_end(support_run *run)
{
    close_groups(run);
    support_run_end(run);
}

/* Creates, makes a step and reads a parameter; the first error. */
static het_result try_all(const support_run *run, std::string *text)
{
    std::vector<float> values(4096);
    support_group batches;
    het_error error;
    het_ctx *ctx = NULL;
    memset(&error, 0, sizeof error);
    het_result result = het_create(&run->desc, &ctx, &error);
    *text = error.text;
    if (result != HET_OK) return result;
    support_group_start(&batches, &run->data, 0, "0");
    result = het_step(ctx, batches.batch, batches.count, NULL);
    if (result == HET_OK) result = het_parameter_read(ctx, 0, HET_WEIGHT, values.data());
    *text = het_last_error(ctx);
    support_group_end(&batches);
    het_destroy(ctx);
    return result;
}

/* Every step-th call of CUDA, cuBLASLt and NCCL fails: an error that says so, no hang, everything given back. */
static void fail_each(const char *plan, int64_t step, int64_t *tried)
{
    for (int64_t n = 0;; n += step) {
        std::string text;
        support_run run;
        het_error error;
        stand_in(2);
        tiny(&run, plan);
        run.desc.guard.skip_bad_steps = HET_YES; /* as nothing is computed, no step has a verdict */
        standin_skip(1);
        standin_fail(n);
        const het_result result = try_all(&run, &text);
        standin_count count = standin_counted();
        if (count.failed[0] == 0) standin_fail(-1);
        const het_result closed = het_nccl_close(&run.desc.layout.communicators, &error);
        support_run_end(&run);
        count = standin_counted();
        if (count.live != 0 || count.misuse != 0)
            fail_msg("call %d (%s) fails: %d things are not given back, %s", static_cast<int>(n), count.failed, static_cast<int>(count.live),
                     count.misused);
        if (count.failed[0] == 0) break;
        (*tried)++;
        if (closed != HET_OK && result == HET_OK && !may_be_lost(count.failed)) fail_msg("%s", error.text);
        if (result == HET_OK && may_be_lost(count.failed)) continue;
        if (result != HET_ERR_DEVICE && result != HET_ERR_OOM)
            fail_msg("call %d (%s) fails: result %d, %s", static_cast<int>(n), count.failed, static_cast<int>(result), text.c_str());
        if (result == HET_ERR_DEVICE && strstr(text.c_str(), ".cu:") == NULL && strstr(text.c_str(), "hetrain_nccl.c:") == NULL)
            fail_msg("call %d (%s) fails: no file and line in \"%s\"", static_cast<int>(n), count.failed, text.c_str());
    }
    standin_fail(-1);
}

static void calls_fail_in_steps(void **)
{
    int64_t tried = 0;
    const int step = support_environment("HETRAIN_TEST_EVERY", 17);
    fail_each("dp", step, &tried);
    fail_each("pp", step, &tried);
    print_message("%d calls failed in turn\n", static_cast<int>(tried));
    assert_true(tried > 50);
}

/* Makes a step that must end with an error soon. */
static void expect_end(support_run *run, het_result code, const char *words)
{
    support_group batches;
    het_ctx *ctx = support_create(&run->desc);
    support_group_start(&batches, &run->data, 0, "0");
    const het_result result = het_step(ctx, batches.batch, batches.count, NULL);
    const std::string text = het_last_error(ctx);
    support_group_end(&batches);
    standin_stall(0);
    het_destroy(ctx);
    support_expect(result, code, text.c_str(), words, "het_step", __LINE__);
}

static int silent(void *user, int64_t rank, int64_t step, int64_t position)
{
    (void)user, (void)step, (void)position;
    return rank == 1;
}

/* A rank stops answering in the middle of a step; what the other has given to the group ends with its abort. */
static void a_rank_that_falls_silent(void **)
{
    for (const char *plan : { "dp", "pp" }) {
        support_run run;
        stand_in(2);
        tiny(&run, plan);
        run.desc.emulate.test_hang = silent;
        run.desc.layout.deadline = run.desc.layout.stall_deadline = 1.0; /* how long a busy machine may hold up the other rank */
        expect_end(&run, HET_ERR_TRANSPORT, "rank 1");
        tiny_end(&run);
        stand_down();
    }
}

/* NCCL finds an error on one card in the middle of training. */
static void an_error_from_elsewhere(void **)
{
    for (const char *plan : { "dp", "pp" }) {
        support_run run;
        support_group batches;
        stand_in(2);
        tiny(&run, plan);
        het_ctx *ctx = support_create(&run.desc);
        support_group_start(&batches, &run.data, 0, "0");
        EXPECT_OK(het_step(ctx, batches.batch, batches.count, NULL));
        standin_nccl_error(1, ncclRemoteError);
        const het_result result = het_step(ctx, batches.batch, batches.count, NULL);
        const std::string text = het_last_error(ctx);
        standin_nccl_error(1, 0);
        support_group_end(&batches);
        het_destroy(ctx);
        support_expect(result, HET_ERR_TRANSPORT, text.c_str(), "rank 1|nccl|ncclRemoteError|hetrain_nccl.c:", plan, __LINE__);
        tiny_end(&run);
        stand_down();
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_uneven_ranges), cmocka_unit_test(sums_of_even_ranges), cmocka_unit_test(messages_keep_their_order), cmocka_unit_test(exchanges_meet_piece_by_piece), cmocka_unit_test(other_devices_have_no_place),
        cmocka_unit_test(impossible_ops), cmocka_unit_test(cards_share_the_batch), cmocka_unit_test(cards_share_the_batch_unevenly),
        cmocka_unit_test(cards_share_the_layers),
        cmocka_unit_test(cards_share_both), cmocka_unit_test(cards_and_cpus_share_the_batch), cmocka_unit_test(cards_and_cpus_share_the_layers), cmocka_unit_test(cards_share_units),
#ifdef HETC_EMULATED
        cmocka_unit_test(versions_are_compared), cmocka_unit_test(a_member_that_never_joins), cmocka_unit_test(a_member_that_dies),
        cmocka_unit_test(a_member_that_never_leaves), cmocka_unit_test(errors_that_come_up_later), cmocka_unit_test(every_call_fails_in_turn),
        cmocka_unit_test(memory_fails_in_turn), cmocka_unit_test(calls_fail_in_steps), cmocka_unit_test(a_rank_that_falls_silent),
        cmocka_unit_test(an_error_from_elsewhere),
#endif
    };
    (void)setenv("CUDA_MODULE_LOADING", "EAGER", 1); /* as a program does before CUDA starts */
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    if (cards() < 2) {
        printf("1..0 # skipped: there are %d CUDA devices, groups need two\n", cards());
        return 0;
    }
    if (getenv("HETRAIN_TEST_ONLY") != NULL) cmocka_set_test_filter(getenv("HETRAIN_TEST_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
