/* Megatron-LM's published weak scaling, up to 1,024 A100s, predicted with het_plan_predict for the published layouts: a device does about as much
   however many there are. tests/bench/scaling.h says what the devices are taken to do. */
#include "support.h"

#include "hetrain_search.h"

#include "bench/scaling.h"

/* The farthest of the rows up to 1,024 devices from their mean, in parts of it. */
static double unevenness(const double *value)
{
    double mean = 0, most = 0;
    int r;
    for (r = 0; r < SCALING_TO_1024; r++) mean += value[r] / SCALING_TO_1024;
    for (r = 0; r < SCALING_TO_1024; r++) most = fabs(value[r] / mean - 1) > most ? fabs(value[r] / mean - 1) : most;
    return most;
}

static void predict(double between, double tflops[SCALING_TO_1024])
{
    int r;
    for (r = 0; r < SCALING_TO_1024; r++) {
        scaling s = { between, 0, 0, 0, 0, { HET_OK, "" } };
        EXPECT_ERROR(scaling_predict(&s, r), HET_OK, s.error.text, "");
        tflops[r] = s.tflops;
    }
}

static void flat_where_the_published_is(void **state)
{
    double predicted[SCALING_TO_1024], published[SCALING_TO_1024], farthest = 0;
    int r;
    (void)state;
    predict(25e9, predicted);
    for (r = 0; r < SCALING_TO_1024; r++) {
        const double off = fabs(predicted[r] / (published[r] = scaling_row[r].published) - 1);
        print_message("%4d devices: %.1f Tflop/s each, published %.0f\n", (int)scaling_row[r].devices, predicted[r], published[r]);
        farthest = off > farthest ? off : farthest;
    }
    print_message("at most %.3f from the mean, published %.3f; at most %.3f from the published\n", unevenness(predicted), unevenness(published),
        farthest);
    assert_true(fabs(predicted[0] / published[0] - 1) < 0.01); /* what SCALING_DENSE is set by */
    assert_true(unevenness(published) < 0.05 && unevenness(predicted) < 0.05);
    assert_true(farthest < 0.06);
}

/* The same over links of 1 GB/s between nodes, which gradients cross: it is the links that are looked at. */
static void not_flat_over_slow_links(void **state)
{
    double tflops[SCALING_TO_1024];
    (void)state;
    predict(1e9, tflops);
    print_message("with 1 GB/s between nodes %.1f to %.1f Tflop/s, %.3f from the mean\n", tflops[0], tflops[SCALING_TO_1024 - 1], unevenness(tflops));
    assert_true(unevenness(tflops) > 0.2 && tflops[0] < 0.5 * scaling_row[0].published);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(flat_where_the_published_is), cmocka_unit_test(not_flat_over_slow_links) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
