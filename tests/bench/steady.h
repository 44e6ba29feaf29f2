/* A device that takes what it says: the large ops of another one, the null device or the CPU, sleep until their multiply-adds have taken their time
   at STEADY_RATE a second, times the speed that `ordinal` gives with the form. What a machine does from second to second then hardly matters, so
   that predictions are held against what the engine does: order, waiting, messages. Memory, copies and sums between ranks are real. Included where
   seconds_now() is. */
#ifndef BENCH_STEADY_H
#define BENCH_STEADY_H

#ifdef __linux__
#include <sys/prctl.h>
#endif

#define STEADY_RATE 4e10

typedef struct steady {
    const het_device_iface *inner;
    double rate, owed; /* multiply-adds a second; seconds that it took too long, which the next ops give back */
    void *self;        /* the inner one's */
} steady;

enum { STEADY_SLEEPS, STEADY_COMPUTES, STEADY_FORMS }; /* the null device, the CPU */
static het_device_iface steady_iface[STEADY_FORMS];

/* Pairs of a query and a key of the slice, as if there were no window, times the width. */
static double steady_pairs(const het_attention_args *a) {
    const het_view *v = a->view;
    double pairs = 0;
    for (int64_t s = 0; s < v->sequences; s++)
        for (int64_t r = v->host_sequence_start[s]; r < v->host_sequence_start[s + 1]; r++)
            if (r >= v->row_begin && r < v->row_end)
                pairs += (double)(a->causal ? r + 1 - v->host_sequence_start[s] : v->host_sequence_start[s + 1] - v->host_sequence_start[s]);
    return pairs * (double)(a->heads * a->head_size);
}

static double steady_updated(const het_adamw_args *a) {
    double count = 0;
    for (; a != NULL; a = a->next) count += (double)a->count;
    return count;
}

static double steady_products(const het_linear_args *a) {
    double out = 0;
    for (int64_t i = 0; i < a->parts; i++) out += (double)a->part[i].out;
    return (double)a->rows * (double)a->in * out;
}

/* Multiply-adds, or what takes as long. */
static double steady_work(const het_op *op) {
    switch (op->kind) {
    case HET_OP_LINEAR_FORWARD: case HET_OP_LINEAR_BACKWARD_INPUT: case HET_OP_LINEAR_BACKWARD_WEIGHT: return steady_products(&op->u.linear);
    case HET_OP_LINEAR_ACTIVATION_FORWARD: case HET_OP_LINEAR_ACTIVATION_BACKWARD: return steady_products(&op->u.linear_activation.linear);
    case HET_OP_ATTENTION_FORWARD: return 2 * steady_pairs(&op->u.attention);
    case HET_OP_ATTENTION_BACKWARD: return 5 * steady_pairs(&op->u.attention);
    case HET_OP_CROSS_ENTROPY: return 20 * (double)op->u.cross_entropy.rows * (double)op->u.cross_entropy.vocab;
    case HET_OP_ADAMW: return 20 * steady_updated(&op->u.adamw);
    default: return 0;
    }
}

static het_result steady_create(const het_device_config *config, void **self) {
    const int form = config->ordinal % STEADY_FORMS;
    steady *d = (steady *)calloc(1, sizeof *d);
    het_device_config inner = *config;
    het_result result;
    if (d == NULL) return HET_ERR_OOM;
    d->rate = STEADY_RATE * (config->ordinal / STEADY_FORMS) / 1000;
    d->inner = form == STEADY_SLEEPS ? het_null_device() : het_cpu_device(), inner.ordinal = 0;
    if ((result = d->inner->create(&inner, &d->self)) != HET_OK) { free(d); return result; }
    *self = d;
    return HET_OK;
}

static void steady_destroy(void *self) {
    ((steady *)self)->inner->destroy(((steady *)self)->self);
    free(self);
}

static const char *steady_last_error(void *self) { return ((steady *)self)->inner->last_error(((steady *)self)->self); }
static void *steady_alloc(void *self, size_t size) { return ((steady *)self)->inner->alloc(((steady *)self)->self, size); }
static void steady_free(void *self, void *pointer, size_t size) { ((steady *)self)->inner->free(((steady *)self)->self, pointer, size); }
static int32_t steady_supports(void *self, const het_op *op) { return ((steady *)self)->inner->supports(((steady *)self)->self, op); }
static size_t steady_workspace(void *self, const het_op *op) { return ((steady *)self)->inner->workspace(((steady *)self)->self, op); }

/* The thread sleeps to a microsecond, and what an op took too long the next one has less. */
static het_result steady_run(void *self, het_queue *queue, const het_op *op) {
    steady *d = (steady *)self;
    const double seconds = steady_work(op) / d->rate, begin = seconds_now();
    const het_result result = d->inner->run(d->self, queue, op);
    const double wanted = seconds - d->owed - (seconds_now() - begin);
    struct timespec nap;
    if (seconds > 0 && wanted > 0) {
#ifdef __linux__
        (void)prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
#endif
        nap.tv_sec = (time_t)wanted, nap.tv_nsec = (long)((wanted - (double)nap.tv_sec) * 1e9);
        (void)nanosleep(&nap, NULL);
    }
    if (seconds > 0) d->owed += seconds_now() - begin - seconds;
    return result;
}

static int32_t steady_ordinal(double speed, int form) { return STEADY_FORMS * (int32_t)(1000 * speed + 0.5) + form; }

/* These devices instead. Their speeds also slow down, as with other devices, what ranks do beside ops. */
static void steady_take(het_device_desc *device, int64_t devices, int form) {
    het_device_iface *table = &steady_iface[form];
    *table = form == STEADY_SLEEPS ? *het_null_device() : *het_cpu_device();
    table->name = "steady", table->create = steady_create, table->destroy = steady_destroy;
    table->last_error = steady_last_error, table->alloc = steady_alloc, table->free = steady_free;
    table->supports = steady_supports, table->workspace = steady_workspace, table->run = steady_run;
    for (int64_t i = 0; i < devices; i++)
        device[i].iface = table, device[i].ordinal = steady_ordinal(device[i].speed > 0 ? device[i].speed : 1, form);
}

#endif
