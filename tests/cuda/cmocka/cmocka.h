/* What the suites of the CUDA device use of cmocka, for machines that have a card and not that library. Prints TAP. A test ends at its first check
   that fails; a signal fails it as well. Names are cmocka's. */
#ifndef HETRAIN_TEST_CMOCKA_H
#define HETRAIN_TEST_CMOCKA_H

#include <fnmatch.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As cmocka's, without set-ups of single tests. One without a name is left out; initial_state NULL: the group's. */
struct CMUnitTest { const char *name; void (*test_func)(void **state); void *initial_state; };
#define cmocka_unit_test(function) { #function, function, NULL }

#ifdef __cplusplus
extern "C" {
#endif
/* One of each for all files of a suite. */
__attribute__((weak)) sigjmp_buf cmocka_end; /* where a test that fails goes on */
__attribute__((weak)) const char *cmocka_filter = "*";
#ifdef __cplusplus
}
#endif

static inline void cmocka_set_test_filter(const char *pattern) { cmocka_filter = pattern; }
static inline void cmocka_fail(int signal_number) { siglongjmp(cmocka_end, signal_number); }

#define print_message(...) (void)(printf("# "), printf(__VA_ARGS__), fflush(stdout))
#define print_error print_message
#define fail_msg(...) (printf("# %s:%d: ", __FILE__, __LINE__), printf(__VA_ARGS__), printf("\n"), cmocka_fail(SIGUSR1))
#define fail() fail_msg("failed")
#define assert_true(x) do { if (!(x)) fail_msg("%s", #x); } while (0)
#define assert_false(x) assert_true(!(x))
#define assert_null(x) assert_true((x) == NULL)
#define assert_non_null(x) assert_true((x) != NULL)
#define assert_memory_equal(a, b, size) assert_true(memcmp(a, b, size) == 0)
#define assert_string_equal(a, b) do { if (strcmp(a, b) != 0) fail_msg("%s is \"%s\"", #a, (const char *)(a)); } while (0)
#define assert_int_equal(a, b) do { const long long cmocka_a = (long long)(a), cmocka_b = (long long)(b); \
        if (cmocka_a != cmocka_b) fail_msg("%s is %lld, not %lld", #a, cmocka_a, cmocka_b); } while (0)

static inline int cmocka_wants(const struct CMUnitTest *test) { return test->name && fnmatch(cmocka_filter, test->name, 0) == 0; }

static inline int cmocka_run_tests(const struct CMUnitTest *test, int tests, int (*setup)(void **), int (*teardown)(void **)) {
    static const int signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT };
    volatile int failed = 0, number = 0;
    volatile int i;
    void *state = NULL;
    if (setup && setup(&state) != 0) return printf("Bail out! no setup\n");
    for (i = 0; i < tests; i++) number = number + cmocka_wants(&test[i]);
    printf("1..%d\n", number);
    number = 0;
    for (i = 0; i < 5; i++) signal(signals[i], cmocka_fail);
    for (i = 0; i < tests; i++) {
        void *own = test[i].initial_state ? test[i].initial_state : state;
        int ended;
        if (!cmocka_wants(&test[i])) continue;
        number = number + 1;
        ended = sigsetjmp(cmocka_end, 1);
        if (ended == 0) test[i].test_func(&own);
        else if (ended != SIGUSR1) printf("# %s\n", strsignal(ended));
        if (ended != 0) failed = failed + 1;
        printf("%s %d - %s\n", ended ? "not ok" : "ok", number, test[i].name);
        fflush(stdout);
    }
    if (teardown && teardown(&state) != 0) failed = failed + 1;
    return failed;
}
#define cmocka_run_group_tests(tests, setup, teardown) cmocka_run_tests(tests, (int)(sizeof(tests) / sizeof *(tests)), setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown) cmocka_run_group_tests(tests, setup, teardown)

#endif
