/* Which process of how many this one is, as told by the launcher in the environment: hetrain's own variables, torchrun, Open MPI, MPICH,
   MVAPICH, Slurm, in this order; the first set of which anything is there counts and must be whole. Not part of hetrain. */
#ifndef PROGRAMS_LAUNCH_H
#define PROGRAMS_LAUNCH_H

#include "hetrain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct het_launch {
    int64_t rank, size;             /* of all processes: 0 and 1 without a launcher */
    int64_t local_rank, local_size; /* of those on this machine; local_size 0: the launcher does not say */
    const char *launcher;           /* "" without one */
} het_launch;

typedef struct launch_set { const char *launcher, *rank, *size, *local_rank, *local_size; } launch_set;

/* The number in a variable: digits only, below 2^31. 0: not set; 1: *value is it; -1: not a number. */
static inline int launch_number(const char *name, int64_t *value) {
    const char *text = getenv(name);
    int64_t v = 0;
    if (text == NULL) return 0;
    if (*text == 0) return -1;
    for (; *text != 0; text++) {
        if (*text < '0' || *text > '9' || v > 214748363) return -1;
        v = v * 10 + (*text - '0');
    }
    *value = v;
    return 1;
}

/* "A=1, B (not set) what"; b may be NULL. */
static inline het_result launch_fail(het_error *error, const char *a, const char *b, const char *what) {
    char text[2][400], whole[1000];
    const char *name[2];
    int i;
    name[0] = a;
    name[1] = b;
    for (i = 0; i < 2; i++) {
        const char *value = name[i] != NULL ? getenv(name[i]) : NULL;
        text[i][0] = 0;
        if (name[i] == NULL) continue;
        snprintf(text[i], sizeof text[i], "%s%s%s%.300s", i > 0 ? ", " : "", name[i], value != NULL ? "=" : " (not set)", value != NULL ? value : "");
    }
    snprintf(whole, sizeof whole, "%s%s %s", text[0], text[1], what);
    return het_error_put(error, HET_ERR_INVALID, whole);
}

/* Tasks on node number `node` in Slurm's list: "2(x3),1" is 2, 2, 2, 1. 0: the list is shorter or not of this form. */
static inline int64_t launch_slurm_tasks(const char *list, int64_t node) {
    while (list != NULL && *list >= '0' && *list <= '9') {
        char *end;
        long tasks = strtol(list, &end, 10), times = 1;
        if (strncmp(end, "(x", 2) == 0) {
            times = strtol(end + 2, &end, 10);
            if (*end++ != ')' || times < 1) return 0;
        }
        if (node < times) return tasks;
        node -= times;
        if (*end != ',') return 0;
        list = end + 1;
    }
    return 0;
}

/* A batch script's own shell, and all it starts without srun, has the job's variables and task number 0, but no step. */
static inline het_result launch_slurm(het_launch *launch, const launch_set *s, het_error *error) {
    int64_t node = 0;
    if (launch->size > 1 && getenv("SLURM_STEP_ID") == NULL && getenv("SLURM_STEPID") == NULL)
        return launch_fail(error, s->size, "SLURM_STEP_ID", "(not by srun? use it, or set HETRAIN_RANK, HETRAIN_SIZE)");
    if (launch_number("SLURM_NODEID", &node) > 0) launch->local_size = launch_slurm_tasks(getenv(s->local_size), node);
    return HET_OK;
}

static inline het_result launch_check(const het_launch *launch, const launch_set *s, het_error *error) {
    const int64_t local_size = launch->local_size;
    if (launch->rank >= launch->size) return launch_fail(error, s->rank, s->size, "(a rank must be below the size)");
    if (launch->local_rank > launch->rank) return launch_fail(error, s->local_rank, s->rank, "(a local rank cannot be above the rank)");
    if (local_size > launch->size) return launch_fail(error, s->local_size, s->size, "(more on this machine than at all)");
    if (local_size > 0 && launch->local_rank >= local_size)
        return launch_fail(error, s->local_rank, s->local_size, "(a local rank must be below the local size)");
    return HET_OK;
}

/* Reads one set. *any stays 0 where neither rank nor size is there. */
static inline het_result launch_read(const launch_set *s, het_launch *launch, int *any, het_error *error) {
    const int slurm = strcmp(s->launcher, "Slurm") == 0;
    const int rank = launch_number(s->rank, &launch->rank), size = launch_number(s->size, &launch->size);
    int local_rank, local_size;
    *any = rank != 0 || size != 0;
    if (!*any) return HET_OK;
    if (rank == 0 || size == 0) return launch_fail(error, s->rank, s->size, "(one without the other)");
    local_rank = launch_number(s->local_rank, &launch->local_rank);
    local_size = slurm ? 0 : launch_number(s->local_size, &launch->local_size);
    if (rank < 0) return launch_fail(error, s->rank, NULL, "is not a number");
    if (size < 0) return launch_fail(error, s->size, NULL, "is not a number");
    if (local_rank < 0) return launch_fail(error, s->local_rank, NULL, "is not a number");
    if (local_size < 0) return launch_fail(error, s->local_size, NULL, "is not a number");
    launch->launcher = s->launcher;
    if (slurm) {
        const het_result result = launch_slurm(launch, s, error);
        if (result != HET_OK) return result;
    }
    return launch_check(launch, s, error);
}

/* An incomplete or impossible set is an error that names its variables, never a guess. */
static inline het_result het_launch_detect(het_launch *launch, het_error *error) {
    static const launch_set sets[] = {
        { "hetrain", "HETRAIN_RANK", "HETRAIN_SIZE", "HETRAIN_LOCAL_RANK", "HETRAIN_LOCAL_SIZE" },
        { "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE" },
        { "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE" },
        { "MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS" },
        { "MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE" },
        { "Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE" },
    };
    het_launch found;
    size_t i;
    for (i = 0; i < sizeof sets / sizeof *sets; i++) {
        int any;
        het_result result;
        memset(&found, 0, sizeof found);
        result = launch_read(&sets[i], &found, &any, error);
        if (result != HET_OK) return result;
        if (!any) continue;
        *launch = found;
        return HET_OK;
    }
    memset(&found, 0, sizeof found);
    found.size = found.local_size = 1;
    found.launcher = "";
    *launch = found;
    return HET_OK;
}

#endif
