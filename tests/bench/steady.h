/* A device that takes what it says: the large ops of another one, the null device or the CPU, sleep until their multiply-adds have taken their time
   at STEADY_RATE a second, times the speed that `ordinal` gives with the form. What a machine does from second to second then hardly matters, so
   that predictions are held against what the engine does: order, waiting, messages. Memory, copies and sums between ranks are real. Included where
   seconds_now() is. */
#ifndef BENCH_STEADY_H
#define BENCH_STEADY_H

#ifdef __linux__
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define STEADY_RATE 4e10
#define STEADY_AWAKE 100e-6 /* seconds before an op's end */
#define STEADY_GIVES 0.03   /* of an op's time */

typedef struct steady {
    const het_device_iface *inner;
    int place, placed; /* threads that call it stay on this processor, of those there are; -1: anywhere */
    pthread_t thread;  /* if placed: the last one that was told */
    double rate, awake, owed; /* multiply-adds a second; before an op's end; seconds that it took too long, which the next ops give back */
    void *self;        /* the inner one's */
} steady;

enum { STEADY_SLEEPS, STEADY_COMPUTES, STEADY_FORMS }; /* the null device, the CPU */
/* An ordinal is form, speed, place, and whether each device has a processor. */
#define STEADY_PLACE (1 << 20)
#define STEADY_PLACES 64
static het_device_iface steady_iface[STEADY_FORMS];
static unsigned long steady_processors[16]; /* a bit each, of those there are */

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
    d->rate = STEADY_RATE * (config->ordinal % STEADY_PLACE / STEADY_FORMS) / 1000;
    d->place = form == STEADY_SLEEPS ? config->ordinal / STEADY_PLACE % STEADY_PLACES : -1;
    d->awake = config->ordinal / STEADY_PLACE >= STEADY_PLACES ? STEADY_AWAKE : 0;
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

/* Processor number `place` of those there are, a bit each in steady_processors; -1: there are fewer. */
static int steady_processor(int place) {
    const int bits = 8 * (int)sizeof steady_processors[0], all = (int)(8 * sizeof steady_processors);
    for (int i = 0; i < all; i++)
        if (steady_processors[i / bits] >> i % bits & 1 && place-- == 0) return i;
    return -1;
}

static int steady_count(void) {
    int count = 0;
    while (steady_processor(count) >= 0) count++;
    return count;
}

/* Threads that sleep most of the time Linux puts on one processor, and leaves them there, with others idle: two ranks that wait for each other then
   wait for the processor. */
static void steady_stay(steady *d) {
#ifdef __linux__
    const int bits = 8 * (int)sizeof steady_processors[0], count = steady_count(), to = count > 0 ? steady_processor(d->place % count) : -1;
    unsigned long one[16] = { 0 };
    if (d->place >= 0 && to >= 0 && syscall(SYS_gettid) != getpid()) { /* threads that the first one makes would stay beside it */
        one[to / bits] = 1ul << to % bits;
        (void)syscall(SYS_sched_setaffinity, 0, sizeof one, one);
    }
#endif
    d->placed = 1, d->thread = pthread_self();
}

/* To wake up takes a thread now 10 us and then 200: where each device has a processor it sleeps until shortly before the end, and then looks at the
   clock. What an op took too long the next ones have less: there each a little, for a profile believes the fastest. */
static het_result steady_run(void *self, het_queue *queue, const het_op *op) {
    steady *d = (steady *)self;
    const double seconds = steady_work(op) / d->rate, begin = seconds_now();
    const het_result result = d->inner->run(d->self, queue, op);
    const double end = begin + seconds - (d->awake > 0 ? fmin(d->owed, STEADY_GIVES * seconds) : d->owed), wanted = end - d->awake - seconds_now();
    struct timespec nap;
    if (!d->placed || !pthread_equal(d->thread, pthread_self())) steady_stay(d);
    if (!(seconds > 0)) return result;
    if (wanted > 0) {
#ifdef __linux__
        (void)prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
#endif
        nap.tv_sec = (time_t)wanted, nap.tv_nsec = (long)((wanted - (double)nap.tv_sec) * 1e9);
        (void)nanosleep(&nap, NULL);
    }
    while (d->awake > 0 && seconds_now() < end) {}
    d->owed += seconds_now() - begin - seconds;
    return result;
}

/* Of number `device` of so many. */
static int32_t steady_ordinal(double speed, int64_t device, int64_t devices, int form) {
    const int alone = form == STEADY_SLEEPS && devices <= steady_count();
    return STEADY_PLACE * (int32_t)(STEADY_PLACES * alone + device % STEADY_PLACES) + STEADY_FORMS * (int32_t)(1000 * speed + 0.5) + form;
}

/* These devices instead. Their speeds also slow down, as with other devices, what ranks do beside ops. */
static void steady_take(het_device_desc *device, int64_t devices, int form) {
    het_device_iface *table = &steady_iface[form];
#ifdef __linux__
    if (steady_processors[0] == 0) (void)syscall(SYS_sched_getaffinity, 0, sizeof steady_processors, steady_processors);
#endif
    *table = form == STEADY_SLEEPS ? *het_null_device() : *het_cpu_device();
    table->name = "steady", table->create = steady_create, table->destroy = steady_destroy;
    table->last_error = steady_last_error, table->alloc = steady_alloc, table->free = steady_free;
    table->supports = steady_supports, table->workspace = steady_workspace, table->run = steady_run;
    for (int64_t i = 0; i < devices; i++)
        device[i].iface = table, device[i].ordinal = steady_ordinal(device[i].speed > 0 ? device[i].speed : 1, i, devices, form);
}

#endif
