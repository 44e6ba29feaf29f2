/* power.h: what Linux says of the machine's energy and clocks, which is only read: powercap's counters (Intel's and AMD's RAPL; mostly for root
   alone) and cpufreq's clocks, else those of /proc/cpuinfo. */
#ifndef POWER_H
#define POWER_H

#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* readdir */
#endif
#include "hetrain.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POWER_ZONES "sys/class/powercap"
#define POWER_PROCESSORS "sys/devices/system/cpu"
enum { POWER_MOST_ZONES = 64, POWER_MOST_CLOCKS = 4096 };

typedef struct power_meter {
    char root[200];                       /* below which the files lie: "/", or a folder with files like them */
    char zone[POWER_MOST_ZONES][40];
    double before[POWER_MOST_ZONES];      /* microjoules */
    int zones, threads;
    uint64_t machine;                     /* the same for all its processes; 0: not known */
    char why[300];                        /* there is no energy; "": there is */
} power_meter;

/* The file ROOT/FOLDER/NAME/FILE, of which the first `size` - 1 bytes are read. 0: errno says why not. */
static inline int power_read(const power_meter *m, const char *folder, const char *name, const char *file, char *to, size_t size) {
    char path[512];
    FILE *from;
    size_t length;
    snprintf(path, sizeof path, "%.200s/%.60s/%.60s/%.60s", m->root, folder, name, file);
    if ((from = fopen(path, "rb")) == NULL) return 0;
    length = fread(to, 1, size - 1, from);
    to[length] = 0;
    fclose(from);
    return length > 0;
}

/* Its number; negative: there is none. */
static inline double power_number(const power_meter *m, const char *folder, const char *name, const char *file) {
    char text[40];
    double value;
    return power_read(m, folder, name, file, text, sizeof text) && sscanf(text, "%39lf", &value) == 1 && value >= 0 && value <= 1e18 ? value : -1;
}

/* Counters of packages and of DRAM. Cores are part of a package, packages of a platform ("psys"). *why: errno of one that cannot be read, so that
   none counts. */
static inline void power_find_zones(power_meter *m, int *why) {
    char path[300], name[40];
    struct dirent *entry;
    DIR *folder;
    snprintf(path, sizeof path, "%.200s/%s", m->root, POWER_ZONES);
    if ((folder = opendir(path)) == NULL) return;
    while (m->zones < POWER_MOST_ZONES && (entry = readdir(folder)) != NULL) {
        double *before = &m->before[m->zones];
        if (strncmp(entry->d_name, "intel-rapl:", 11) != 0 || !power_read(m, POWER_ZONES, entry->d_name, "name", name, sizeof name) ||
            (strncmp(name, "package", 7) != 0 && strncmp(name, "dram", 4) != 0)) continue;
        errno = 0;
        if ((*before = power_number(m, POWER_ZONES, entry->d_name, "energy_uj")) < 0) *why = errno != 0 ? errno : EINVAL;
        else snprintf(m->zone[m->zones++], sizeof m->zone[0], "%.39s", entry->d_name);
    }
    closedir(folder);
    if (*why != 0) m->zones = 0;
}

/* Joules since the last call or power_open; NaN: not known. A counter begins again at its range; one that does twice in a step says too little. */
static inline double power_joules(power_meter *m) {
    double sum = m->zones > 0 ? 0 : (double)NAN;
    for (int i = 0; i < m->zones; i++) {
        const double now = power_number(m, POWER_ZONES, m->zone[i], "energy_uj");
        const double range = now < m->before[i] ? power_number(m, POWER_ZONES, m->zone[i], "max_energy_range_uj") : 0;
        sum += now < 0 || range < 0 ? (double)NAN : 1e-6 * (now - m->before[i] + range);
        m->before[i] = now;
    }
    return sum;
}

static inline int power_falling(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* The processors' clocks in MHz, the highest first. Returns how many. */
static inline int power_clocks(const power_meter *m, double mhz[POWER_MOST_CLOCKS]) {
    char path[300], line[256];
    struct dirent *entry;
    DIR *folder;
    FILE *file;
    int count = 0;
    snprintf(path, sizeof path, "%.200s/%s", m->root, POWER_PROCESSORS);
    if ((folder = opendir(path)) != NULL) {
        while (count < POWER_MOST_CLOCKS && (entry = readdir(folder)) != NULL) {
            if (strncmp(entry->d_name, "cpu", 3) != 0 || !isdigit((unsigned char)entry->d_name[3])) continue;
            mhz[count] = 1e-3 * power_number(m, POWER_PROCESSORS, entry->d_name, "cpufreq/scaling_cur_freq");
            count += mhz[count] > 0;
        }
        closedir(folder);
    }
    snprintf(path, sizeof path, "%.200s/proc/cpuinfo", m->root);
    if (count == 0 && (file = fopen(path, "rb")) != NULL) {
        while (count < POWER_MOST_CLOCKS && fgets(line, sizeof line, file) != NULL)
            if (sscanf(line, "cpu MHz : %39lf", &mhz[count]) == 1 && mhz[count] > 0 && mhz[count] <= 1e9) count++;
        fclose(file);
    }
    qsort(mhz, (size_t)count, sizeof *mhz, power_falling);
    return count;
}

/* MHz of the processors at work, which are taken to be the fastest ones, as many as there are threads; 0: not known. */
static inline double power_mhz(const power_meter *m) {
    double mhz[POWER_MOST_CLOCKS], sum = 0;
    const int all = power_clocks(m, mhz), count = all < m->threads ? all : m->threads;
    for (int i = 0; i < count; i++) sum += mhz[i];
    return count > 0 ? sum / count : 0;
}

/* threads: that this process keeps at work. An error where neither energy nor clocks are found; without energy m->why says so. */
static inline het_result power_open(power_meter *m, const char *root, int threads, het_error *error) {
    char text[64];
    int why = 0;
    memset(m, 0, sizeof *m);
    m->threads = threads > 0 ? threads : 1;
    if (strlen(root) >= sizeof m->root) return het_error_put(error, HET_ERR_INVALID, "path too long");
    snprintf(m->root, sizeof m->root, "%s", root);
    power_find_zones(m, &why);
    if (m->zones == 0) snprintf(m->why, sizeof m->why, "%s/intel-rapl:*/energy_uj: %s", POWER_ZONES, strerror(why != 0 ? why : ENOENT));
    if (m->zones == 0 && !(power_mhz(m) > 0)) {
        snprintf(m->why + strlen(m->why), sizeof m->why - strlen(m->why), "; and no clocks in %s/cpu*/cpufreq/scaling_cur_freq or proc/cpuinfo",
                 POWER_PROCESSORS);
        return het_error_put(error, HET_ERR_IO, m->why);
    }
    if (!power_read(m, "proc/sys/kernel", "random", "boot_id", text, sizeof text)) text[0] = 0;
    for (size_t i = 0; text[i] != 0; i++) m->machine = m->machine * 31 + (unsigned char)text[i];
    return HET_OK;
}

#endif
