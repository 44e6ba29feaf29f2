/* programs/power.h: joules, clocks and machines from folders like Linux's. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* mkdtemp */
#endif
#include "support.h"

#include <sys/stat.h>
#include <unistd.h>

#include "programs/power.h"

static char root[] = "/tmp/hetrain_power_XXXXXX";

/* The file below the root, and the folders on its way. */
static void put(const char *name, const char *text)
{
    char path[300];
    char *slash;
    FILE *to;
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') *slash = 0, (void)mkdir(path, 0700);
    to = fopen(path, "wb");
    assert_non_null(to);
    fputs(text, to);
    assert_int_equal(fclose(to), 0);
}

static void zone(const char *number, const char *name, const char *energy, const char *range)
{
    char path[100];
    snprintf(path, sizeof path, "sys/class/powercap/%s/name", number);
    put(path, name);
    snprintf(path, sizeof path, "sys/class/powercap/%s/energy_uj", number);
    if (energy != NULL) put(path, energy);
    snprintf(path, sizeof path, "sys/class/powercap/%s/max_energy_range_uj", number);
    if (range != NULL) put(path, range);
}

static void begin(void)
{
    strcpy(root, "/tmp/hetrain_power_XXXXXX");
    assert_non_null(mkdtemp(root));
}

static void end(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

/* Packages and memory; not cores, which are in a package, nor a platform, which has packages in it, nor the same counter by another way. */
static void joules_of_packages_and_memory(void **state)
{
    power_meter m;
    het_error error;
    (void)state;
    begin();
    zone("intel-rapl:0", "package-0\n", "1000000\n", "262143328850\n");
    zone("intel-rapl:1", "package-1\n", "262143000000\n", "262143328850\n");
    zone("intel-rapl:0:0", "core\n", "5\n", "262143328850\n");
    zone("intel-rapl:0:1", "dram\n", "0\n", "65712999613\n");
    zone("intel-rapl:2", "psys\n", "7\n", "262143328850\n");
    zone("intel-rapl-mmio:0", "package-0\n", "1000000\n", "262143328850\n");
    zone("dtpm", "package\n", "1\n", "10\n");
    EXPECT_ERROR(power_open(&m, root, 1, &error), HET_OK, error.text, "");
    assert_int_equal(m.zones, 3);
    assert_string_equal(m.why, "");
    assert_true(fabs(power_joules(&m)) < 1e-9);
    zone("intel-rapl:0", "package-0\n", "3500000\n", NULL);
    zone("intel-rapl:0:0", "core\n", "900000000\n", NULL);
    zone("intel-rapl:0:1", "dram\n", "250000\n", NULL);
    zone("intel-rapl:2", "psys\n", "900000000\n", NULL);
    assert_true(fabs(power_joules(&m) - 2.75) < 1e-9);
    zone("intel-rapl:1", "package-1\n", "1000000\n", NULL); /* over its end: 0.32885 J to it, 1 J behind it */
    assert_true(fabs(power_joules(&m) - 1.32885) < 1e-9);
    assert_true(fabs(power_joules(&m)) < 1e-9);
    end();
}

static void a_counter_that_fails_says_nothing(void **state)
{
    power_meter m;
    het_error error;
    (void)state;
    begin();
    put("proc/cpuinfo", "processor\t: 0\ncpu MHz\t\t: 2400.125\n");
    zone("intel-rapl:0", "package-0\n", "1000000\n", NULL);
    EXPECT_OK(power_open(&m, root, 1, &error));
    zone("intel-rapl:0", "package-0\n", "1\n", NULL); /* it began again, nobody knows from where */
    assert_true(isnan(power_joules(&m)));
    zone("intel-rapl:0", "package-0\n", "2000001\n", NULL);
    assert_true(fabs(power_joules(&m) - 2) < 1e-9);
    zone("intel-rapl:0", "package-0\n", "lots\n", NULL);
    assert_true(isnan(power_joules(&m)));
    zone("intel-rapl:1", "package-1\n", NULL, NULL); /* of two one cannot be read: none counts */
    zone("intel-rapl:0", "package-0\n", "7\n", NULL);
    EXPECT_OK(power_open(&m, root, 1, &error));
    assert_true(isnan(power_joules(&m)));
    assert_non_null(strstr(m.why, "sys/class/powercap/intel-rapl:*/energy_uj: No such file"));
    assert_true(fabs(power_mhz(&m) - 2400.125) < 1e-9);
    end();
}

/* The mean of as many of the fastest as there are threads; offline processors have no file. */
static void clocks_of_the_fastest(void **state)
{
    power_meter m;
    het_error error;
    (void)state;
    begin();
    put("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "1200000\n");
    put("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "3400000\n");
    put("sys/devices/system/cpu/cpu10/cpufreq/scaling_cur_freq", "2600000\n");
    put("sys/devices/system/cpu/cpu11/online", "0\n");
    put("sys/devices/system/cpu/cpufreq/scaling_cur_freq", "9900000\n");
    put("proc/cpuinfo", "cpu MHz\t\t: 9999.000\n");
    put("proc/sys/kernel/random/boot_id", "a3b7\n");
    EXPECT_ERROR(power_open(&m, root, 2, &error), HET_OK, error.text, "");
    assert_true(fabs(power_mhz(&m) - 3000) < 1e-9);
    assert_true(m.machine != 0);
    EXPECT_OK(power_open(&m, root, 64, &error));
    assert_true(fabs(power_mhz(&m) - 2400) < 1e-9);
    EXPECT_OK(power_open(&m, root, 0, &error));
    assert_true(fabs(power_mhz(&m) - 3400) < 1e-9);
    end();
}

static void nothing_there_is_an_error(void **state)
{
    char path[400];
    power_meter m;
    het_error error;
    (void)state;
    begin();
    EXPECT_ERROR(power_open(&m, root, 1, &error), HET_ERR_IO, error.text, "intel-rapl|No such file|scaling_cur_freq|proc/cpuinfo");
    put("proc/cpuinfo", "processor\t: 0\ncpu MHz\t\t: -5\ncpu MHz\t\t: inf\ncpu MHz\t\t: nan\ncpu MHz : x\n");
    EXPECT_ERROR(power_open(&m, root, 1, &error), HET_ERR_IO, error.text, "proc/cpuinfo");
    memset(path, 'x', sizeof path - 1), path[sizeof path - 1] = 0;
    EXPECT_ERROR(power_open(&m, path, 1, &error), HET_ERR_INVALID, error.text, "too long");
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joules_of_packages_and_memory),
        cmocka_unit_test(a_counter_that_fails_says_nothing),
        cmocka_unit_test(clocks_of_the_fastest),
        cmocka_unit_test(nothing_there_is_an_error),
    };
    return cmocka_run_group_tests_name("power", tests, NULL, NULL);
}
