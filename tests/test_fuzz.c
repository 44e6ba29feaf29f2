/* The corpora of fuzz targets, replayed; and each input cut short at every eighth byte and with single bytes changed, by numbers that are always the
   same. tests/test_safetensors.c and tests/test_tokenizer.c replay two more. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* opendir, sockets */
#endif
#include "support.h"

#include <dirent.h>

#define HETRAIN_FUZZ_REPLAY
#include "fuzz/fuzz_checkpoint.c"
#include "fuzz/fuzz_config.c"
#include "fuzz/fuzz_data.c"
#include "fuzz/fuzz_generation.c"
#include "fuzz/fuzz_index.c"
#include "fuzz/fuzz_plan.c"
#include "fuzz/fuzz_shapes.c"
#include "fuzz/fuzz_tcp.c"

static void load_file(support_buffer *file, const char *path)
{
    char block[4096];
    size_t got;
    FILE *stream = fopen(path, "rb");
    support_buffer_start(file);
    if (stream == NULL) fail_msg("%s cannot be opened", path);
    while ((got = fread(block, 1, sizeof block, stream)) > 0) support_buffer_append(file, block, got);
    fclose(stream);
}

static void vary(int (*target)(const uint8_t *, size_t), const support_buffer *file)
{
    uint8_t *bytes = support_alloc(file->size + 1, 1);
    uint64_t random = file->size;
    size_t i;
    for (i = 0; i < file->size; i += 8) target(file->data, i);
    for (i = 0; i < 64 && file->size > 1; i++) {
        memcpy(bytes, file->data, file->size);
        bytes[1 + support_below(&random, (int64_t)file->size - 1)] ^= (uint8_t)(1 << support_below(&random, 8));
        target(bytes, file->size);
    }
    free(bytes);
}

static void replay(const char *name, int (*target)(const uint8_t *, size_t), int least)
{
    char folder[200], path[600];
    DIR *directory;
    struct dirent *entry;
    int files = 0;
    snprintf(folder, sizeof folder, "tests/fuzz/corpus/%s", name);
    directory = opendir(folder);
    if (directory == NULL) fail_msg("%s is missing", folder);
    while ((entry = readdir(directory)) != NULL) {
        support_buffer file;
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        load_file(&file, path);
        assert_int_equal(target(file.data, file.size), 0);
        if (file.size < 4096) vary(target, &file);
        support_buffer_end(&file);
        files++;
    }
    closedir(directory);
    assert_true(files >= least);
}

static void checkpoint(void **state) { (void)state; replay("checkpoint", fuzz_checkpoint, 9); }
static void config(void **state) { (void)state; replay("config", fuzz_config, 10); }
static void data(void **state) { (void)state; replay("data", fuzz_data, 6); }
static void generation(void **state) { (void)state; replay("generation", fuzz_generation, 10); }
static void index_of_shards(void **state) { (void)state; replay("index", fuzz_index, 3); }
static void plan(void **state) { (void)state; replay("plan", fuzz_plan, 10); }
static void shapes(void **state) { (void)state; replay("shapes", fuzz_shapes, 12); }
static void tcp(void **state) { (void)state; replay("tcp", fuzz_tcp, 7); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoint),
        cmocka_unit_test(config),
        cmocka_unit_test(data),
        cmocka_unit_test(generation),
        cmocka_unit_test(index_of_shards),
        cmocka_unit_test(plan),
        cmocka_unit_test(shapes),
        cmocka_unit_test(tcp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
