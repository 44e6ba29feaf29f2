/* Threads: contexts on several threads at once, het_cancel from another thread, a parallel-for of the caller's, the pool under every layout.
   Built with -fsanitize=thread by `make sanitize`. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <time.h>

#include "support.h"

static het_desc describe(het_family family, het_device_desc *device, int32_t threads)
{
    het_desc desc;
    memset(&desc, 0, sizeof desc);
    memset(device, 0, sizeof *device);
    desc.model = support_model(family);
    device->threads = threads;
    desc.layout.devices = device;
    desc.layout.device_count = 1;
    desc.limits.max_tokens = 80;
    return desc;
}

typedef struct job {
    het_family family;
    uint64_t hash;
    int failed;
} job;

/* No cmocka assertion outside the main thread: they are not made for it. */
static void *train_three_steps(void *arg)
{
    job *j = arg;
    het_device_desc device;
    het_desc desc = describe(j->family, &device, 3);
    support_batch batch;
    het_ctx *ctx = NULL;
    int step;
    j->failed = 1;
    support_batch_start(&batch);
    support_batch_sequence(&batch, 40, 61, 0, 3);
    support_batch_sequence(&batch, 13, 61, 1, 4);
    if (het_create(&desc, &ctx, NULL) == HET_OK) {
        j->failed = 0;
        for (step = 0; step < 3; step++) j->failed |= het_step(ctx, &batch.batch, 1, NULL) != HET_OK;
        j->failed |= het_hash(ctx, &j->hash) != HET_OK;
    }
    het_destroy(ctx);
    support_batch_end(&batch);
    return NULL;
}

static void contexts_on_their_own_threads(void **state)
{
    static const het_family families[4] = { HET_GPT2, HET_LLAMA, HET_QWEN3, HET_NEOX };
    pthread_t thread[4];
    job together[4], alone[4];
    int i;
    (void)state;
    memset(together, 0, sizeof together);
    memset(alone, 0, sizeof alone);
    for (i = 0; i < 4; i++) {
        alone[i].family = together[i].family = families[i];
        (void)train_three_steps(&alone[i]);
        assert_int_equal(alone[i].failed, 0);
    }
    for (i = 0; i < 4; i++) assert_int_equal(pthread_create(&thread[i], NULL, train_three_steps, &together[i]), 0);
    for (i = 0; i < 4; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
    for (i = 0; i < 4; i++) {
        assert_int_equal(together[i].failed, 0);
        assert_true(together[i].hash == alone[i].hash);
    }
}

/* ---- cancelling ---- */

typedef struct endless {
    het_ctx *ctx;
    support_batch batch;
    het_result result;
    int64_t steps;
} endless;

static void *train_until_stopped(void *arg)
{
    endless *e = arg;
    do {
        e->result = het_step(e->ctx, &e->batch.batch, 1, NULL);
        e->steps++;
    } while (e->result == HET_OK && e->steps < 1000000);
    return NULL;
}

static void cancel_from_another_thread(void **state)
{
    het_device_desc device;
    het_desc desc = describe(HET_LLAMA, &device, 2);
    pthread_t thread;
    endless e;
    struct timespec pause = { 0, 20 * 1000 * 1000 };
    (void)state;
    memset(&e, 0, sizeof e);
    support_batch_start(&e.batch);
    support_batch_sequence(&e.batch, 48, 61, 0, 3);
    e.ctx = support_create(&desc);
    assert_int_equal(pthread_create(&thread, NULL, train_until_stopped, &e), 0);
    nanosleep(&pause, NULL);
    het_cancel(e.ctx);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(e.result, HET_ERR_CANCELLED);
    assert_non_null(strstr(het_last_error(e.ctx), "cancel"));
    het_destroy(e.ctx);
    support_batch_end(&e.batch);
}

/* ---- a parallel-for of the caller's: one fresh thread an index ---- */

typedef struct call {
    het_task task;
    void *arg;
    int64_t index;
} call;

static void *run_call(void *arg)
{
    call *c = arg;
    c->task(c->arg, c->index);
    return NULL;
}

static void thread_each(void *user, int64_t count, het_task task, void *arg)
{
    pthread_t thread[64];
    call calls[64];
    int64_t i, n, done;
    (void)user;
    for (done = 0; done < count; done += n) {
        n = count - done < 64 ? count - done : 64;
        for (i = 0; i < n; i++) {
            calls[i].task = task;
            calls[i].arg = arg;
            calls[i].index = done + i;
            if (pthread_create(&thread[i], NULL, run_call, &calls[i]) != 0) abort();
        }
        for (i = 0; i < n; i++) pthread_join(thread[i], NULL);
    }
}

static void parallel_of_the_caller(void **state)
{
    het_device_desc device;
    het_desc desc = describe(HET_GPT2, &device, 4);
    support_batch batch;
    uint64_t hash[2];
    int i, step;
    (void)state;
    support_batch_start(&batch);
    support_batch_sequence(&batch, 40, 61, 0, 3);
    for (i = 0; i < 2; i++) {
        het_ctx *ctx;
        if (i) desc.host.parallel.run = thread_each;
        ctx = support_create(&desc);
        for (step = 0; step < 2; step++) EXPECT_OK(het_step(ctx, &batch.batch, 1, NULL));
        hash[i] = support_hash(ctx);
        het_destroy(ctx);
    }
    assert_true(hash[0] == hash[1]);
    support_batch_end(&batch);
}

/* Many threads, many short jobs: every layout of the backward pass on one pool. */
static void pools(void **state)
{
    static const int32_t threads[] = { 1, 2, 3, 7, 16 };
    support_batch batch;
    uint64_t hash = 0;
    int i;
    (void)state;
    support_batch_start(&batch);
    support_batch_sequence(&batch, 40, 61, 0, 3);
    support_batch_sequence(&batch, 1, 61, 1, 4);
    for (i = 0; i < 5; i++) {
        het_device_desc device;
        het_desc desc = describe(HET_QWEN3, &device, threads[i]);
        het_ctx *ctx;
        int step;
        desc.layout.backward = (het_backward)(HET_BACKWARD_FUSED + i % 3);
        desc.limits.max_slices = 1 + i % 2;
        ctx = support_create(&desc);
        for (step = 0; step < 3; step++) EXPECT_OK(het_step(ctx, &batch.batch, 1, NULL));
        if (i == 0) hash = support_hash(ctx);
        assert_true(support_hash(ctx) == hash);
        het_destroy(ctx);
    }
    for (i = 0; i < 40; i++) { /* pools come and go */
        het_device_desc device;
        het_desc desc = describe(HET_GPT2, &device, 5);
        het_destroy(support_create(&desc));
    }
    support_batch_end(&batch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contexts_on_their_own_threads),
        cmocka_unit_test(cancel_from_another_thread),
        cmocka_unit_test(parallel_of_the_caller),
        cmocka_unit_test(pools),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
