/* programs/launch.h: every launcher's variables, their order, and what is wrong with a set named by its variables. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* setenv */
#endif
#include "support.h"

#include "programs/launch.h"

static const char *const all_names[] = {
    "HETRAIN_RANK", "HETRAIN_SIZE", "HETRAIN_LOCAL_RANK", "HETRAIN_LOCAL_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_RANK", "PMI_SIZE",
    "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_ID", "SLURM_STEPID",
    "SLURM_STEP_TASKS_PER_NODE"
};

/* "A=1 B=2": exactly these variables are set. */
static void environment(const char *settings)
{
    char copy[600], *word;
    size_t i;
    for (i = 0; i < sizeof all_names / sizeof *all_names; i++) unsetenv(all_names[i]);
    snprintf(copy, sizeof copy, "%s", settings);
    for (word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) {
        char *value = strchr(word, '=');
        assert_non_null(value);
        *value = 0;
        assert_int_equal(setenv(word, value + 1, 1), 0);
    }
}

static void found(const char *settings, const char *launcher, int64_t rank, int64_t size, int64_t local_rank, int64_t local_size)
{
    het_launch launch;
    het_error error;
    error.text[0] = 0;
    memset(&launch, 0xCD, sizeof launch);
    environment(settings);
    EXPECT_ERROR(het_launch_detect(&launch, &error), HET_OK, error.text, "");
    assert_string_equal(launch.launcher, launcher);
    assert_int_equal(launch.rank, rank);
    assert_int_equal(launch.size, size);
    assert_int_equal(launch.local_rank, local_rank);
    assert_int_equal(launch.local_size, local_size);
}

static void refused(const char *settings, const char *words)
{
    het_launch launch;
    het_error error;
    memset(&launch, 0xCD, sizeof launch);
    environment(settings);
    EXPECT_ERROR(het_launch_detect(&launch, &error), HET_ERR_INVALID, error.text, words);
    assert_int_equal(error.code, HET_ERR_INVALID);
    EXPECT_ERROR(het_launch_detect(&launch, NULL), HET_ERR_INVALID, NULL, "");
    assert_int_equal(((const unsigned char *)&launch)[0], 0xCD); /* outputs only on success */
}

static void launchers(void **state)
{
    (void)state;
    found("", "", 0, 1, 0, 1);
    found("LOCAL_RANK=5", "", 0, 1, 0, 1); /* a local rank alone is no set */
    found("HETRAIN_RANK=3 HETRAIN_SIZE=8", "hetrain", 3, 8, 0, 0);
    found("HETRAIN_RANK=3 HETRAIN_SIZE=8 HETRAIN_LOCAL_RANK=1 HETRAIN_LOCAL_SIZE=2", "hetrain", 3, 8, 1, 2);
    found("RANK=5 WORLD_SIZE=6 LOCAL_RANK=2 LOCAL_WORLD_SIZE=3", "torchrun", 5, 6, 2, 3);
    found("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=4", "Open MPI", 1, 4, 1, 4);
    found("PMI_RANK=2 PMI_SIZE=3 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=3", "MPICH", 2, 3, 2, 3);
    found("MV2_COMM_WORLD_RANK=0 MV2_COMM_WORLD_SIZE=2 MV2_COMM_WORLD_LOCAL_RANK=0 MV2_COMM_WORLD_LOCAL_SIZE=1", "MVAPICH", 0, 2, 0, 1);
    found("SLURM_PROCID=6 SLURM_NTASKS=7 SLURM_LOCALID=0 SLURM_NODEID=3 SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=2(x3),1", "Slurm", 6, 7, 0, 1);
    found("SLURM_PROCID=3 SLURM_NTASKS=7 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEPID=0 SLURM_STEP_TASKS_PER_NODE=2(x3),1", "Slurm", 3, 7, 1, 2);
    found("SLURM_PROCID=3 SLURM_NTASKS=7 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=2(y3)", "Slurm", 3, 7, 1, 0);
    found("SLURM_PROCID=3 SLURM_NTASKS=7 SLURM_LOCALID=1 SLURM_STEP_ID=4", "Slurm", 3, 7, 1, 0);
    found("SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0", "Slurm", 0, 1, 0, 0); /* a batch script of one task */
}

static void order(void **state)
{
    char line[600] = "";
    (void)state;
    /* each launcher put before the ones it wins over; what the later ones say does not matter */
    snprintf(line, sizeof line, "%s", "SLURM_PROCID=0 SLURM_NTASKS=9");
    refused(line, "SLURM_NTASKS|srun");
    snprintf(line + strlen(line), sizeof line - strlen(line), " MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=9");
    found(line, "MVAPICH", 1, 9, 0, 0);
    snprintf(line + strlen(line), sizeof line - strlen(line), " PMI_RANK=2 PMI_SIZE=9");
    found(line, "MPICH", 2, 9, 0, 0);
    snprintf(line + strlen(line), sizeof line - strlen(line), " OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=9");
    found(line, "Open MPI", 3, 9, 0, 0);
    snprintf(line + strlen(line), sizeof line - strlen(line), " RANK=4 WORLD_SIZE=9");
    found(line, "torchrun", 4, 9, 0, 0);
    snprintf(line + strlen(line), sizeof line - strlen(line), " HETRAIN_RANK=5 HETRAIN_SIZE=9");
    found(line, "hetrain", 5, 9, 0, 0);
}

static void inconsistent(void **state)
{
    (void)state;
    refused("HETRAIN_RANK=3", "HETRAIN_RANK=3|HETRAIN_SIZE|not set");
    refused("WORLD_SIZE=4", "RANK|not set|WORLD_SIZE=4");
    refused("RANK=4 WORLD_SIZE=4", "RANK=4|WORLD_SIZE=4|below");
    refused("RANK=-1 WORLD_SIZE=4", "RANK=-1|number");
    refused("RANK=1x WORLD_SIZE=4", "RANK=1x|number");
    refused("RANK=1 WORLD_SIZE=", "WORLD_SIZE=|number");
    refused("RANK=1 WORLD_SIZE=99999999999", "WORLD_SIZE=99999999999|number");
    refused("RANK=0 WORLD_SIZE=0", "WORLD_SIZE=0");
    refused("RANK=2 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", "LOCAL_RANK=2|LOCAL_WORLD_SIZE=2");
    refused("RANK=2 WORLD_SIZE=4 LOCAL_RANK=3 LOCAL_WORLD_SIZE=4", "LOCAL_RANK=3|RANK=2");
    refused("RANK=2 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=5", "LOCAL_WORLD_SIZE=5|WORLD_SIZE=4");
    refused("RANK=2 WORLD_SIZE=4 LOCAL_RANK=one", "LOCAL_RANK=one|number");
    refused("HETRAIN_SIZE=2 RANK=0 WORLD_SIZE=1", "HETRAIN_RANK|HETRAIN_SIZE=2"); /* half a set is not skipped */
    refused("SLURM_NTASKS=4", "SLURM_PROCID|SLURM_NTASKS=4");                      /* salloc's shell */
    refused("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_NODEID=0", "SLURM_NTASKS=4|SLURM_STEP_ID|srun"); /* sbatch's shell */
    refused("SLURM_PROCID=3 SLURM_NTASKS=7 SLURM_LOCALID=2 SLURM_NODEID=1 SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=2(x3),1",
            "SLURM_LOCALID=2|SLURM_STEP_TASKS_PER_NODE");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(launchers), cmocka_unit_test(order), cmocka_unit_test(inconsistent) };
    return cmocka_run_group_tests_name("launch", tests, NULL, NULL);
}
