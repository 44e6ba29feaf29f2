/* A device that takes what it says: ops compute nothing, and the large ones sleep for their multiply-adds at STEADY_RATE a second, times the
   speed that `ordinal` gives in thousandths. What a machine does from second to second then hardly matters, so that predictions are held against
   what the engine does: order, waiting, messages. Memory, copies and sums between ranks are real. */
#ifndef BENCH_STEADY_H
#define BENCH_STEADY_H

#ifdef __linux__
#include <sys/prctl.h>
#endif

#define STEADY_RATE 4e10

typedef struct steady {
    double rate, owed; /* multiply-adds a second; seconds that it slept too long */
    void *null;
} steady;

static het_device_iface steady_iface;

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
    steady *d = (steady *)calloc(1, sizeof *d);
    het_device_config first = *config;
    het_result result;
    if (d == NULL) return HET_ERR_OOM;
    d->rate = STEADY_RATE * config->ordinal / 1000;
    first.ordinal = 0;
    if ((result = het_null_device()->create(&first, &d->null)) != HET_OK) { free(d); return result; }
    *self = d;
    return HET_OK;
}

static void steady_destroy(void *self) {
    het_null_device()->destroy(((steady *)self)->null);
    free(self);
}

static const char *steady_last_error(void *self) { return het_null_device()->last_error(((steady *)self)->null); }
static void *steady_alloc(void *self, size_t size) { return het_null_device()->alloc(((steady *)self)->null, size); }
static void steady_free(void *self, void *pointer, size_t size) { het_null_device()->free(((steady *)self)->null, pointer, size); }
static int32_t steady_supports(void *self, const het_op *op) { return het_null_device()->supports(((steady *)self)->null, op); }
static size_t steady_workspace(void *self, const het_op *op) { return het_null_device()->workspace(((steady *)self)->null, op); }

/* The thread sleeps to a microsecond, and what it slept too long the next op has less. */
static het_result steady_run(void *self, het_queue *queue, const het_op *op) {
    steady *d = (steady *)self;
    const double seconds = steady_work(op) / d->rate, begin = seconds_now(), wanted = seconds - d->owed;
    struct timespec nap;
    if (seconds > 0 && wanted > 0) {
#ifdef __linux__
        (void)prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
#endif
        nap.tv_sec = (time_t)wanted, nap.tv_nsec = (long)((wanted - (double)nap.tv_sec) * 1e9);
        (void)nanosleep(&nap, NULL);
    }
    if (seconds > 0) d->owed = seconds_now() - begin - wanted;
    return het_null_device()->run(d->null, queue, op);
}

/* These devices instead. Their speeds also slow down, as with other devices, what ranks do beside ops. */
static void steady_take(het_device_desc *device, int64_t devices) {
    steady_iface = *het_null_device();
    steady_iface.name = "steady", steady_iface.create = steady_create, steady_iface.destroy = steady_destroy;
    steady_iface.last_error = steady_last_error, steady_iface.alloc = steady_alloc, steady_iface.free = steady_free;
    steady_iface.supports = steady_supports, steady_iface.workspace = steady_workspace, steady_iface.run = steady_run;
    for (int64_t i = 0; i < devices; i++)
        device[i].iface = &steady_iface, device[i].ordinal = device[i].speed > 0 ? (int32_t)(1000 * device[i].speed + 0.5) : 1000;
}

#endif
