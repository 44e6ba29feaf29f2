/* A device whose queues run late, and groups of such devices, for tests of what the engine does with them. For one source file.

   The late device is the CPU with memory the host may not touch: what it is given is kept, with copies of the arguments, and runs some random time
   later, queue by queue in order, events between them, on the thread of the rank that uses the device. A queue that runs ahead of an event it should
   have waited for works on what was there before.
   The provider's ops are items of such queues. A collective happens when all members' queues have come to it, a message when both have; they must
   agree about it. Any call can be made to fail once, an op to be lost, a member never to join. */
#ifndef LATE_GROUPS_H
#define LATE_GROUPS_H

#include "support.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

/* ---- what is kept for later ---- */

typedef enum late_kind { LATE_OP, LATE_RECORD, LATE_WAIT, LATE_GROUP } late_kind;

struct het_event { uint64_t recorded, done; };

typedef struct late_item {
    struct late_item *next;
    late_kind kind;
    het_op op;
    het_view view;
    het_gradient gradient[6];
    int gradients;
    int64_t *bounds;                 /* host arrays of the view */
    het_event *event;
    uint64_t number;                 /* of a record, or the one waited for */
    struct fake_op *fake;
} late_item;

struct het_queue { het_queue *next; late_item *first, *last; };

typedef struct late_device {
    het_device cpu;
    het_queue *queues;
    uint64_t random;
    int32_t ordinal;
    het_result failed;
} late_device;

static int fake_run(struct fake_op *op);
static void fake_drop(struct fake_op *op);

static void late_nap(void)
{
    const struct timespec t = { 0, 20000 };
    nanosleep(&t, NULL);
}

static double late_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The item runs, or its queue must wait (0). */
static int late_run(late_device *d, late_item *i)
{
    het_result result = HET_OK;
    switch (i->kind) {
    case LATE_OP: result = d->cpu.iface->run(d->cpu.self, NULL, &i->op); break;
    case LATE_RECORD: if (i->event->done < i->number) i->event->done = i->number; break;
    case LATE_WAIT: return i->event->done >= i->number;
    case LATE_GROUP: return fake_run(i->fake);
    }
    if (result != HET_OK) d->failed = result;
    return 1;
}

static void late_drop(late_item *i)
{
    if (i->fake) fake_drop(i->fake);
    free(i->bounds);
    free(i);
}

/* The first item of a queue, if it can run; 0: nothing moved. */
static int late_turn(late_device *d, het_queue *q)
{
    late_item *i = q->first;
    if (!i || !late_run(d, i)) return 0;
    q->first = i->next;
    if (!q->first) q->last = NULL;
    late_drop(i);
    return 1;
}

/* Which queue goes first: 0: one drawn at random, 1: the oldest as far as it can, 2: the newest. */
static int late_first;

static int late_ordered(late_device *d, het_queue *q)
{
    if (!q) return 0;
    if (late_first == 2) return late_turn(d, q) || late_ordered(d, q->next);
    return late_ordered(d, q->next) || late_turn(d, q);
}

/* Up to `turns` turns of queues; 0: all queues stand still. */
static int late_pump(late_device *d, int64_t turns)
{
    het_queue *q;
    int64_t n = 0, k;
    int moved = 0;
    for (; turns > 0 && late_first; turns--) moved |= late_ordered(d, d->queues);
    for (q = d->queues; q; q = q->next) n++;
    for (; turns > 0 && n > 0; turns--) {
        for (k = support_below(&d->random, n), q = d->queues; k > 0; k--) q = q->next;
        moved |= late_turn(d, q);
    }
    for (q = d->queues; q && !moved; q = q->next) moved = late_turn(d, q);
    return moved;
}

static late_item *late_add(void *self, het_queue *queue, late_kind kind)
{
    late_device *d = self;
    late_item *i = support_alloc(1, sizeof *i);
    memset(i, 0, sizeof *i);
    i->kind = kind;
    if (support_below(&d->random, 4) == 0) (void)late_pump(d, support_below(&d->random, 16));
    if (queue->last) queue->last->next = i;
    else queue->first = i;
    queue->last = i;
    return i;
}

/* Arguments point to structs of the caller's, which need not outlive the call. */
static const het_view *late_view(late_item *i, const het_view *view)
{
    int64_t k;
    if (!view) return NULL;
    i->view = *view;
    i->bounds = support_alloc((size_t)(view->sequences + view->granules + 2), sizeof *i->bounds);
    for (k = 0; view->host_sequence_start && k <= view->sequences; k++) i->bounds[k] = view->host_sequence_start[k];
    for (k = 0; view->host_granule_start && k <= view->granules; k++) i->bounds[view->sequences + 1 + k] = view->host_granule_start[k];
    if (view->host_sequence_start) i->view.host_sequence_start = i->bounds;
    if (view->host_granule_start) i->view.host_granule_start = i->bounds + view->sequences + 1;
    return &i->view;
}

static const het_gradient *late_gradient(late_item *i, const het_gradient *gradient)
{
    if (!gradient) return NULL;
    i->gradient[i->gradients] = *gradient;
    return &i->gradient[i->gradients++];
}

static het_result late_do(void *self, het_queue *queue, const het_op *op)
{
    late_item *i = late_add(self, queue, LATE_OP);
    int64_t p;
    i->op = *op;
    switch (op->kind) {
    case HET_OP_NORM_FORWARD: case HET_OP_NORM_BACKWARD_INPUT: case HET_OP_NORM_BACKWARD_WEIGHT: {
        het_norm_args *a = &i->op.u.norm;
        const int weight = op->kind == HET_OP_NORM_BACKWARD_WEIGHT;
        a->view = late_view(i, a->view);
        a->dgain = weight ? late_gradient(i, a->dgain) : NULL;
        a->dbias = weight ? late_gradient(i, a->dbias) : NULL;
        break;
    }
    case HET_OP_LINEAR_FORWARD: case HET_OP_LINEAR_BACKWARD_INPUT: case HET_OP_LINEAR_BACKWARD_WEIGHT: {
        het_linear_args *a = &i->op.u.linear;
        const int weight = op->kind == HET_OP_LINEAR_BACKWARD_WEIGHT;
        a->view = late_view(i, a->view);
        for (p = 0; p < a->parts; p++) {
            a->part[p].dw = weight ? late_gradient(i, a->part[p].dw) : NULL;
            a->part[p].dbias = weight ? late_gradient(i, a->part[p].dbias) : NULL;
        }
        break;
    }
    case HET_OP_ROTARY_FORWARD: case HET_OP_ROTARY_BACKWARD: i->op.u.rotary.view = late_view(i, op->u.rotary.view); break;
    case HET_OP_ATTENTION_FORWARD: case HET_OP_ATTENTION_BACKWARD: i->op.u.attention.view = late_view(i, op->u.attention.view); break;
    case HET_OP_DROPOUT_FORWARD: case HET_OP_DROPOUT_BACKWARD: i->op.u.dropout.view = late_view(i, op->u.dropout.view); break;
    case HET_OP_EMBEDDING_FORWARD: case HET_OP_EMBEDDING_BACKWARD_WEIGHT: {
        het_embedding_args *a = &i->op.u.embedding;
        const int weight = op->kind == HET_OP_EMBEDDING_BACKWARD_WEIGHT;
        a->view = late_view(i, a->view);
        a->dtable = weight ? late_gradient(i, a->dtable) : NULL;
        a->dpositions = weight ? late_gradient(i, a->dpositions) : NULL;
        break;
    }
    case HET_OP_ACCUMULATE: i->op.u.accumulate.gradient = late_gradient(i, op->u.accumulate.gradient); break;
    case HET_OP_SUM_SQUARES: i->op.u.sum_squares.gradient = late_gradient(i, op->u.sum_squares.gradient); break;
    case HET_OP_ADAMW: i->op.u.adamw.gradient = late_gradient(i, op->u.adamw.gradient); break;
    case HET_OP_MUON_MOMENTUM: case HET_OP_MUON_UPDATE: i->op.u.muon.gradient = late_gradient(i, op->u.muon.gradient); break;
    default: break;
    }
    return HET_OK;
}

/* ---- the device's table ---- */

static het_result late_create(const het_device_config *config, void **self)
{
    late_device *d = support_alloc(1, sizeof *d);
    het_device_config plain = *config;
    het_result result;
    memset(d, 0, sizeof *d);
    plain.ordinal = 0;
    d->ordinal = config->ordinal;
    d->random = (uint64_t)config->ordinal * 97 + 3;
    d->cpu.iface = het_cpu_device();
    result = d->cpu.iface->create(&plain, &d->cpu.self);
    if (result == HET_OK) *self = d;
    else free(d);
    return result;
}
static void late_destroy(void *self)
{
    late_device *d = self;
    d->cpu.iface->destroy(d->cpu.self);
    assert_null(d->queues);
    free(d);
}
static const char *late_last_error(void *self) { late_device *d = self; return d->cpu.iface->last_error(d->cpu.self); }
static void *late_alloc(void *self, size_t size) { late_device *d = self; return d->cpu.iface->alloc(d->cpu.self, size); }
/* May block, as >>device_api says: what still works on it runs before. */
static void late_free(void *self, void *p, size_t size)
{
    late_device *d = self;
    while (late_pump(d, 8)) {}
    d->cpu.iface->free(d->cpu.self, p, size);
}
static size_t late_workspace(void *self, const het_op *op)
{
    late_device *d = self;
    return d->cpu.iface->workspace(d->cpu.self, op);
}

static het_result late_queue_create(void *self, het_queue **queue)
{
    late_device *d = self;
    *queue = support_alloc(1, sizeof **queue);
    memset(*queue, 0, sizeof **queue);
    (*queue)->next = d->queues;
    d->queues = *queue;
    return HET_OK;
}
/* What is left in it never runs: it waited for what did not come. */
static void late_queue_destroy(void *self, het_queue *queue)
{
    late_device *d = self;
    het_queue **at = &d->queues;
    while (*at != queue) at = &(*at)->next;
    *at = queue->next;
    while (queue->first) {
        late_item *i = queue->first;
        queue->first = i->next;
        late_drop(i);
    }
    free(queue);
}
static het_result late_event_create(void *self, het_event **event)
{
    (void)self;
    *event = support_alloc(1, sizeof **event);
    memset(*event, 0, sizeof **event);
    return HET_OK;
}
static void late_event_destroy(void *self, het_event *event) { (void)self; free(event); }
static het_result late_event_record(void *self, het_queue *queue, het_event *event)
{
    late_item *i = late_add(self, queue, LATE_RECORD);
    i->event = event;
    i->number = ++event->recorded;
    return HET_OK;
}
static het_result late_event_wait(void *self, het_queue *queue, het_event *event)
{
    late_item *i = late_add(self, queue, LATE_WAIT);
    i->event = event;
    i->number = event->recorded;
    return HET_OK;
}
static het_result late_event_sync(void *self, het_event *event, double deadline)
{
    late_device *d = self;
    const double start = late_now();
    const uint64_t target = event->recorded;
    while (event->done < target) {
        if (!late_pump(d, 8)) late_nap();
        if (late_now() - start > deadline) return HET_ERR_DEVICE;
    }
    return d->failed;
}

static const het_queue_iface late_queues = { late_queue_create, late_queue_destroy, late_event_create, late_event_destroy,
                                             late_event_record, late_event_wait, late_event_sync };
static het_device_iface late_table; /* filled by late_start */
static void late_start(void)
{
    late_table = *het_cpu_device();
    late_table.name = "late";
    late_table.host_memory = 0;
    late_table.create = late_create;
    late_table.destroy = late_destroy;
    late_table.last_error = late_last_error;
    late_table.alloc = late_alloc;
    late_table.free = late_free;
    late_table.workspace = late_workspace;
    late_table.run = late_do;
    late_table.queues = &late_queues;
}

/* ---- the provider ---- */

typedef enum fake_call {
    FAKE_PLACE, FAKE_IDENTITY, FAKE_JOIN, FAKE_JOINED, FAKE_REDUCE, FAKE_GATHER, FAKE_EXCHANGE, FAKE_TEST, FAKE_CALLS
} fake_call;
static const char *const fake_names[FAKE_CALLS] = {
    "place", "identity", "join", "joined", "reduce_scatter", "all_gather", "exchange", "test"
};

#define FAKE_MEMBERS 8
typedef struct fake_group {         /* what its members share */
    struct fake_group *next;
    uint64_t id;
    int64_t members, joined, left;
    struct fake_op *front[FAKE_MEMBERS];
} fake_group;
struct het_communicator {                  /* one member */
    fake_group *shared;
    late_device *device;
    int64_t member, most, given, finished, polls;
    int aborted, failed, exchanges;
};
typedef struct fake_op {
    het_communicator *group;
    fake_call kind;
    char *data;
    int64_t start[FAKE_MEMBERS + 1];
    het_communicator_element element;
    het_communicator_piece out[FAKE_MEMBERS], in[FAKE_MEMBERS];
    int arrived, done;
} fake_op;

static struct {
    pthread_mutex_t lock;
    fake_group *groups;
    uint64_t identities;
    int64_t live;                    /* members that have not left */
    int64_t joins, aborts, calls[FAKE_CALLS];
    int64_t wrong;                   /* uses against the contract */
    char what[120];                  /* the first one */
    fake_call fail;                  /* its call number fail_at fails; negative: none does */
    int64_t fail_at;
    fake_call lose;                  /* ops of this kind never come to an end from number lose_at on; negative: none */
    int64_t lose_at;
    int never_join;                  /* this member number never comes; negative: all do */
    het_ctx *cancel;                 /* cancelled after 50 tests of a lost op */
    int64_t lost_tests;
} fake = { .lock = PTHREAD_MUTEX_INITIALIZER, .fail_at = -1, .lose_at = -1, .never_join = -1 };

static void fake_reset(void)
{
    assert_null(fake.groups);
    assert_int_equal(fake.live, 0);
    memset(fake.calls, 0, sizeof fake.calls);
    fake.joins = fake.aborts = fake.wrong = fake.lost_tests = 0;
    fake.fail_at = fake.lose_at = -1;
    fake.never_join = -1;
    fake.cancel = NULL;
    fake.what[0] = 0;
}

/* The rest runs under the lock. */
static void fake_wrong(const char *what)
{
    if (fake.wrong++ == 0) snprintf(fake.what, sizeof fake.what, "%s", what);
}

static int fake_fails(fake_call call) { return fake.calls[call]++ == fake.fail_at && fake.fail == call; }

#define FAKE_SUM(type) do { type sum = 0; for (k = 0; k < n; k++) sum += ((type *)(void *)front[k]->data)[e]; \
    ((type *)(void *)front[m]->data)[e] = sum; } while (0)

/* All members are there. Sums go over members ascending. */
static void fake_collect(fake_op *const *front, int64_t n)
{
    const size_t size = front[0]->element == HET_COMMUNICATOR_F32 ? 4 : 8;
    int64_t m, k, e;
    for (m = 0; m < n; m++) {
        const int64_t begin = front[0]->start[m], end = front[0]->start[m + 1];
        for (k = 0; k < n; k++)
            if (front[k]->start[m] != begin || front[k]->start[m + 1] != end || front[k]->element != front[0]->element || begin > end)
                fake_wrong("members give other ranges or elements");
        for (e = begin; e < end; e++) {
            if (front[0]->kind == FAKE_GATHER)
                for (k = 0; k < n; k++) memmove(front[k]->data + (size_t)e * size, front[m]->data + (size_t)e * size, size);
            else if (front[0]->element == HET_COMMUNICATOR_F32) FAKE_SUM(float);
            else if (front[0]->element == HET_COMMUNICATOR_F64) FAKE_SUM(double);
            else FAKE_SUM(int64_t);
        }
    }
    for (m = 0; m < n && front[0]->kind == FAKE_REDUCE; m++) { /* undefined afterwards: what another member's range held */
        const size_t at = (size_t)front[0]->start[m] * size, bytes = (size_t)(front[0]->start[m + 1] - front[0]->start[m]) * size;
        for (k = 0; k < n; k++)
            if (k != m) memset(front[k]->data + at, 0x7f, bytes);
    }
}

/* An op's pieces that meet those of another one; what has been moved is 0 bytes from then on. */
static void fake_trade(fake_op *from, fake_op *to)
{
    het_communicator_piece *out = &from->out[to->group->member], *in = &to->in[from->group->member];
    if (out->bytes == 0 || in->bytes == 0) return;
    if (out->bytes != in->bytes) fake_wrong("a piece of other length");
    else memcpy(in->data, out->data, out->bytes);
    out->bytes = in->bytes = 0;
}

static void fake_end_exchange(fake_group *g, int64_t m)
{
    int64_t k;
    for (k = 0; k < g->members; k++)
        if (g->front[m]->out[k].bytes + g->front[m]->in[k].bytes > 0) return;
    g->front[m]->done = 1;
    g->front[m] = NULL;
}

static void fake_match(fake_group *g, fake_op *op)
{
    const int64_t me = op->group->member;
    int64_t m;
    if (op->kind == FAKE_EXCHANGE) {
        if (op->out[me].bytes + op->in[me].bytes > 0) fake_wrong("a piece for the member itself");
        for (m = 0; m < g->members; m++) {
            if (m == me || !g->front[m] || g->front[m]->kind != FAKE_EXCHANGE) continue;
            fake_trade(op, g->front[m]);
            fake_trade(g->front[m], op);
            fake_end_exchange(g, m);
        }
        fake_end_exchange(g, me);
        return;
    }
    for (m = 0; m < g->members; m++) {
        if (!g->front[m] || g->front[m]->kind == FAKE_EXCHANGE) return;
        if (g->front[m]->kind != op->kind) {
            fake_wrong("members give different collectives");
            return;
        }
    }
    fake_collect(g->front, g->members);
    for (m = 0; m < g->members; m++) {
        g->front[m]->done = 1;
        g->front[m] = NULL;
    }
}

/* A queue has come to an op; 0: it must wait. */
static int fake_run(fake_op *op)
{
    het_communicator *group = op->group;
    int done;
    pthread_mutex_lock(&fake.lock);
    if (!op->arrived && !group->aborted && (fake.lose_at < 0 || fake.lose != op->kind || fake.calls[op->kind] <= fake.lose_at)) {
        op->arrived = 1;
        if (group->shared->front[group->member]) fake_wrong("two ops at once");
        group->shared->front[group->member] = op;
        fake_match(group->shared, op);
    }
    done = op->done || group->aborted;
    if (group->aborted && group->shared->front[group->member] == op) group->shared->front[group->member] = NULL;
    if (done) group->finished++;
    pthread_mutex_unlock(&fake.lock);
    return done;
}

static void fake_drop(fake_op *op) { free(op); }

/* ---- its table ---- */

static het_result fake_place(void *self, const het_device *device, char *text, size_t capacity)
{
    int fails;
    (void)self;
    pthread_mutex_lock(&fake.lock);
    fails = fake_fails(FAKE_PLACE);
    pthread_mutex_unlock(&fake.lock);
    if (fails) return HET_ERR_TRANSPORT;
    if (device->iface == &late_table) snprintf(text, capacity, "place %d", (int)((late_device *)device->self)->ordinal);
    else text[0] = 0;
    return HET_OK;
}

static het_result fake_identity(void *self, void *id)
{
    int fails;
    (void)self;
    pthread_mutex_lock(&fake.lock);
    fails = fake_fails(FAKE_IDENTITY);
    fake.identities++;
    memcpy(id, &fake.identities, sizeof fake.identities);
    pthread_mutex_unlock(&fake.lock);
    return fails ? HET_ERR_TRANSPORT : HET_OK;
}

static het_result fake_join(void *self, const het_device *device, const void *id, int64_t members, int64_t member, int64_t ops,
                            int32_t exchanges, het_communicator **group) {
    fake_group *g;
    uint64_t number;
    (void)self;
    memcpy(&number, id, sizeof number);
    pthread_mutex_lock(&fake.lock);
    if (fake_fails(FAKE_JOIN)) {
        pthread_mutex_unlock(&fake.lock);
        return HET_ERR_TRANSPORT;
    }
    for (g = fake.groups; g && g->id != number; g = g->next) {}
    if (!g) {
        g = support_alloc(1, sizeof *g);
        memset(g, 0, sizeof *g);
        g->id = number;
        g->members = members;
        g->next = fake.groups;
        fake.groups = g;
    }
    if (g->members != members || member < 0 || member >= members || members > FAKE_MEMBERS) fake_wrong("members disagree about their number");
    *group = support_alloc(1, sizeof **group);
    memset(*group, 0, sizeof **group);
    (*group)->shared = g;
    (*group)->device = device->self;
    (*group)->member = member;
    (*group)->most = ops;
    (*group)->exchanges = exchanges;
    if (fake.never_join != member) g->joined++;
    fake.live++;
    fake.joins++;
    pthread_mutex_unlock(&fake.lock);
    return HET_OK;
}

static het_result fake_joined(void *self, het_communicator *group, int32_t *done)
{
    int fails;
    (void)self;
    pthread_mutex_lock(&fake.lock);
    fails = fake_fails(FAKE_JOINED);
    *done = group->shared->joined == group->shared->members && ++group->polls > 2;
    pthread_mutex_unlock(&fake.lock);
    return fails ? HET_ERR_TRANSPORT : HET_OK;
}

static het_result fake_put(het_communicator *group, het_queue *queue, const fake_op *given)
{
    const fake_call kind = given->kind;
    fake_op *op = support_alloc(1, sizeof *op);
    int fails;
    *op = *given;
    op->group = group;
    pthread_mutex_lock(&fake.lock);
    fails = fake_fails(kind);
    if (!fails) group->given++;
    if (group->given - group->finished > group->most) fake_wrong("more ops under way than were announced");
    if (group->exchanges != (kind == FAKE_EXCHANGE)) fake_wrong("an op of another kind than announced");
    if (group->shared->joined < group->shared->members) fake_wrong("an op before all have joined");
    if (group->aborted) fake_wrong("an op after abort");
    pthread_mutex_unlock(&fake.lock);
    if (fails) free(op);
    else late_add(group->device, queue, LATE_GROUP)->fake = op;
    return fails ? HET_ERR_TRANSPORT : HET_OK;
}
static het_result fake_give(het_communicator *group, het_queue *queue, fake_call kind, void *data, const int64_t *start,
                            het_communicator_element element)
{
    fake_op op;
    memset(&op, 0, sizeof op);
    op.kind = kind;
    op.data = data;
    op.element = element;
    memcpy(op.start, start, (size_t)(group->shared->members + 1) * sizeof *start);
    return fake_put(group, queue, &op);
}
static het_result fake_reduce(void *self, het_communicator *g, het_queue *q, void *data, const int64_t *start, het_communicator_element element)
{
    (void)self;
    return fake_give(g, q, FAKE_REDUCE, data, start, element);
}
static het_result fake_gather(void *self, het_communicator *g, het_queue *q, void *data, const int64_t *start, het_communicator_element element)
{
    (void)self;
    return fake_give(g, q, FAKE_GATHER, data, start, element);
}
static het_result fake_exchange(void *self, het_communicator *g, het_queue *q, const het_communicator_piece *out, const het_communicator_piece *in)
{
    const size_t bytes = (size_t)g->shared->members * sizeof *out;
    fake_op op;
    (void)self;
    memset(&op, 0, sizeof op);
    op.kind = FAKE_EXCHANGE;
    memcpy(op.out, out, bytes);
    memcpy(op.in, in, bytes);
    return fake_put(g, q, &op);
}

static het_result fake_test(void *self, het_communicator *group, int64_t *finished)
{
    het_ctx *cancel = NULL;
    int fails;
    (void)self;
    (void)late_pump(group->device, support_below(&group->device->random, 24));
    pthread_mutex_lock(&fake.lock);
    fails = fake_fails(FAKE_TEST);
    if (fake.lose_at >= 0 && fake.calls[fake.lose] > fake.lose_at && ++fake.lost_tests == 50) cancel = fake.cancel;
    *finished = group->finished;
    pthread_mutex_unlock(&fake.lock);
    if (cancel) het_cancel(cancel);
    return fails ? HET_ERR_TRANSPORT : HET_OK;
}

static void fake_abort(void *self, het_communicator *group)
{
    (void)self;
    pthread_mutex_lock(&fake.lock);
    if (group->aborted) fake_wrong("aborted twice");
    group->aborted = 1;
    fake.aborts++;
    pthread_mutex_unlock(&fake.lock);
}

static void fake_leave(void *self, het_communicator *group)
{
    fake_group **at = &fake.groups;
    int64_t tries = 0;
    (void)self;
    while (group->finished < group->given && tries++ < 100000) (void)late_pump(group->device, 8);
    pthread_mutex_lock(&fake.lock);
    if (group->finished < group->given) fake_wrong("left with ops under way");
    if (group->shared->joined < group->shared->members && !group->aborted) fake_wrong("left while joining");
    fake.live--;
    group->shared->left++;
    while (*at != group->shared) at = &(*at)->next;
    if (group->shared->left == group->shared->members || fake.live == 0) {
        *at = group->shared->next;
        free(group->shared);
    }
    while (fake.live == 0 && fake.groups) { /* members that never came cannot leave */
        fake_group *g = fake.groups;
        fake.groups = g->next;
        free(g);
    }
    pthread_mutex_unlock(&fake.lock);
    free(group);
}

static const char *fake_last_error(void *self, het_communicator *group) { (void)self, (void)group; return "planted"; }

static const het_communicator_iface fake_iface = {
    HETRAIN_COMMUNICATOR_VERSION, "fake", sizeof(uint64_t), fake_place, fake_identity, fake_join, fake_joined, fake_reduce, fake_gather,
    fake_exchange, fake_test, fake_abort, fake_leave, fake_last_error
};

#endif
