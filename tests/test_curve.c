/* programs/curve.h: pictures of few losses, and of ones that no tick of a usual size can be added to. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* alarm */
#endif
#include "support.h"

#include <unistd.h>

#include "programs/curve.h"

/* Whatever the losses, a picture comes to its end, with some ticks beside it. */
static void pictures_end(void **state)
{
    static const double losses[][2] = { { 0, 0 }, { 3, 3 }, { 3, 5 }, { -2, 1 }, { 1e17, 1e17 }, { 1e17, 1e17 + 16 }, { -1e300, -1e300 },
                                        { 1e-300, 2e-300 }, { 1e9, 1e9 + 1 } };
    static char text[1 << 16];
    size_t i;
    (void)state;
    for (i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        curve training, validation;
        FILE *file = tmpfile();
        size_t length;
        const char *at;
        int labels = 0;
        assert_non_null(file);
        memset(&training, 0, sizeof training);
        memset(&validation, 0, sizeof validation);
        curve_add(&training, 1, losses[i][0]);
        if (losses[i][1] > losses[i][0]) curve_add(&training, 2, losses[i][1]);
        (void)alarm(20); /* a tick that is lost in the sum makes endlessly many */
        assert_true(curve_svg(file, "losses", &training, &validation));
        (void)alarm(0);
        rewind(file);
        length = fread(text, 1, sizeof text - 1, file);
        text[length] = 0;
        assert_true(length < 30000);
        assert_non_null(strstr(text, "</svg>"));
        for (at = text; (at = strstr(at, "<text")) != NULL; at++) labels++;
        if (labels < 5 || labels > 60) fail_msg("losses %g and %g: %d labels", losses[i][0], losses[i][1], labels);
        (void)fclose(file);
        curve_free(&training);
        curve_free(&validation);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(pictures_end) };
    return cmocka_run_group_tests_name("curve", tests, NULL, NULL);
}
