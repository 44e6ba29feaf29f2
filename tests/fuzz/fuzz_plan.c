/* The first byte says what the rest is: 0 a plan, 1 a schedule for a plan of three stages, 2 a cluster file, 3 a profile, 4 a hardware file. What
   is read must be written, read again and written as the same text; a schedule that passes the check must be completed, and then pass again.
   `make fuzz` runs it, tests/test_fuzz.c replays the corpus. */
#include "fuzz.h"

#include "hetrain_search.h"

#define FUZZ_UNITS 6
#define FUZZ_RANKS 3

static het_plan *fuzz_plan_of(const char *text, size_t length, het_error *error)
{
    het_plan_desc desc;
    het_plan *plan = NULL;
    het_result result;
    memset(&desc, 0, sizeof desc);
    desc.units = FUZZ_UNITS;
    desc.ranks = FUZZ_RANKS;
    desc.heads = 3;
    error->text[0] = 0;
    result = het_plan_read(&desc, text, length, &plan, error);
    fuzz_error(result, error);
    fuzz_check((result == HET_OK) == (plan != NULL), "a plan and an error");
    return plan;
}

static void fuzz_plan_text(const char *text, size_t length)
{
    het_error error;
    het_plan *plan = fuzz_plan_of(text, length, &error), *again;
    fuzz_bytes a, b;
    het_writer to = fuzz_writer(&a);
    if (plan == NULL) return;
    fuzz_check(het_plan_write(plan, &to) == HET_OK, "a plan that cannot be written");
    again = fuzz_plan_of(a.data, a.size, &error);
    fuzz_check(again != NULL, "a plan that is not read again");
    to = fuzz_writer(&b);
    fuzz_check(het_plan_write(again, &to) == HET_OK, "a plan that cannot be written");
    fuzz_same(&a, &b, "a plan that changes on the way");
    het_plan_free(again);
    het_plan_free(plan);
}

static void fuzz_schedule_again(const het_plan *plan, const het_schedule *schedule)
{
    het_schedule *again = NULL;
    het_error error;
    fuzz_bytes a, b;
    het_writer to = fuzz_writer(&a);
    fuzz_check(het_schedule_write(schedule, &to) == HET_OK, "a schedule that cannot be written");
    error.text[0] = 0;
    fuzz_check(het_schedule_read(plan, a.data, a.size, NULL, &again, &error) == HET_OK, "a schedule that is not read again");
    to = fuzz_writer(&b);
    fuzz_check(het_schedule_write(again, &to) == HET_OK, "a schedule that cannot be written");
    fuzz_same(&a, &b, "a schedule that changes on the way");
    het_schedule_free(again);
}

static void fuzz_schedule(const char *text, size_t length)
{
    static const char shape[] = "pp:0-1|2-3|4-5";
    het_schedule *schedule = NULL, *whole = NULL;
    het_error error;
    het_plan *plan = fuzz_plan_of(shape, sizeof shape - 1, &error);
    het_result result;
    double peak[FUZZ_RANKS];
    fuzz_check(plan != NULL, "the plan of three stages");
    error.text[0] = 0;
    result = het_schedule_read(plan, text, length, NULL, &schedule, &error);
    fuzz_error(result, &error);
    if (result == HET_OK) {
        fuzz_schedule_again(plan, schedule);
        error.text[0] = 0;
        result = het_schedule_check(plan, NULL, schedule, peak, &error);
        fuzz_error(result, &error);
        error.text[0] = 0;
        if (result == HET_OK) result = het_schedule_complete(plan, NULL, schedule, NULL, &whole, &error);
        if (whole != NULL) {
            fuzz_check(het_schedule_check(plan, NULL, whole, peak, &error) == HET_OK, "a completed schedule that is refused");
            fuzz_schedule_again(plan, whole);
        }
    }
    het_schedule_free(whole);
    het_schedule_free(schedule);
    het_plan_free(plan);
}

static void fuzz_cluster(const char *text, size_t length)
{
    het_cluster *cluster = NULL, *again = NULL;
    het_error error;
    het_result result;
    fuzz_bytes a, b;
    het_writer to;
    error.text[0] = 0;
    result = het_cluster_read(text, length, NULL, &cluster, &error);
    fuzz_error(result, &error);
    if (result != HET_OK || cluster->ranks > 10000) { het_cluster_free(cluster); return; }
    to = fuzz_writer(&a);
    fuzz_check(het_cluster_write(cluster, &to) == HET_OK, "a cluster that cannot be written");
    fuzz_check(het_cluster_read(a.data, a.size, NULL, &again, &error) == HET_OK, "a cluster that is not read again");
    to = fuzz_writer(&b);
    fuzz_check(het_cluster_write(again, &to) == HET_OK, "a cluster that cannot be written");
    fuzz_same(&a, &b, "a cluster that changes on the way");
    het_cluster_free(again);
    het_cluster_free(cluster);
}

static void fuzz_profile(const char *text, size_t length)
{
    het_profile *profile = NULL, *again = NULL;
    het_error error;
    het_result result;
    fuzz_bytes a, b;
    het_writer to;
    error.text[0] = 0;
    result = het_profile_read(text, length, NULL, &profile, &error);
    fuzz_error(result, &error);
    if (result != HET_OK) return;
    to = fuzz_writer(&a);
    fuzz_check(het_profile_write(profile, &to) == HET_OK, "a profile that cannot be written");
    fuzz_check(het_profile_read(a.data, a.size, NULL, &again, &error) == HET_OK, "a profile that is not read again");
    to = fuzz_writer(&b);
    fuzz_check(het_profile_write(again, &to) == HET_OK, "a profile that cannot be written");
    fuzz_same(&a, &b, "a profile that changes on the way");
    het_profile_free(again);
    het_profile_free(profile);
}

static void fuzz_hardware(const char *text, size_t length)
{
    het_hardware hardware;
    het_error error;
    het_result result;
    int64_t i;
    error.text[0] = 0;
    result = het_hardware_read(text, length, &hardware, &error);
    fuzz_error(result, &error);
    for (i = 0; result == HET_OK && i < hardware.devices; i++)
        fuzz_check(hardware.device[i].f32 > 0 && hardware.device[i].bandwidth > 0 && hardware.device[i].launch >= 0, "hardware that takes no time");
}

static int fuzz_plan(const uint8_t *data, size_t size)
{
    static void (*const what[5])(const char *, size_t) = { fuzz_plan_text, fuzz_schedule, fuzz_cluster, fuzz_profile, fuzz_hardware };
    const size_t length = size > 0 ? size - 1 : 0;
    char *text = fuzz_copy(size > 0 ? data + 1 : data, length);
    what[size > 0 ? data[0] % 5 : 0](text, length);
    free(text);
    return 0;
}

FUZZ_ENTRY(fuzz_plan)
