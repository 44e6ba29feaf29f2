/* Files beyond 4 GiB, sparse: tensors, shards, a checkpoint and a mix whose bytes lie on both sides of 2^32 are read right. Token files:
   tests/test_inside.c. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* syscall */
#endif
#define PROGRAM "test_far"
#include "programs/mix.h" /* before cmocka.h, which has another fail */
#include "support.h"

#include "hetrain_files.h"
#include "programs/disk.h"
#include "sparse.h"

/* ---- a directory of its own ---- */

static char root[64];

static int root_start(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/hetrain_far_XXXXXX");
    return mkdtemp(root) == NULL;
}

/* The directory and what is in it; one of another in it, too. */
static void root_remove(const char *path)
{
    char name[512];
    DIR *directory = opendir(path);
    struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "%.200s/%.200s", path, entry->d_name);
        if (unlink(name) != 0) root_remove(name);
    }
    if (directory != NULL) closedir(directory);
    rmdir(path);
}

static int root_end(void **state)
{
    (void)state;
    root_remove(root);
    return 0;
}

static const char *in_root(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%.60s/%.150s", root, name);
    return path;
}

static void little(unsigned char *to, uint64_t value, int bytes)
{
    int i;
    for (i = 0; i < bytes; i++) to[i] = (unsigned char)(value >> 8 * i & 255u);
}

static void load(support_buffer *to, const char *path)
{
    char block[4096];
    size_t got;
    FILE *file = fopen(path, "rb");
    support_buffer_start(to);
    if (file == NULL) fail_msg("%s cannot be opened", path);
    while ((got = fread(block, 1, sizeof block, file)) > 0) support_buffer_append(to, block, got);
    fclose(file);
}

/* ---- tensors ---- */

/* Element i of the wide tensor is far_value(i) near the places, else 0; as BF16 it is exact. */
static float far_value(int64_t i) { return (float)(i * 37 % 255 + 1); }

enum { REACH = 300 };

static void wide_tensor(const het_reader *from, int64_t elements)
{
    const int64_t places[] = { REACH, INT64_C(1) << 31, INT64_C(1) << 32, elements - REACH };
    static float value[2 * REACH];
    het_safetensors *file = NULL;
    const het_safetensor *wide, *last;
    het_error error = { HET_OK, "" };
    size_t p;
    int64_t i;
    support_expect(het_safetensors_read(from, 0, NULL, &file, &error), HET_OK, error.text, "", "read", __LINE__);
    wide = het_safetensors_find(file, "wide", 4), last = het_safetensors_find(file, "last", 4);
    assert_true(file->tensors == 3 && wide != NULL && wide->begin == 8 && wide->end == 8 + 2 * (uint64_t)elements);
    assert_true(last != NULL && last->begin == wide->end && last->end == from->size - file->data);
    for (p = 0; p < sizeof places / sizeof places[0]; p++) {
        support_expect(het_safetensors_get(file, from, wide, places[p] - REACH, 2 * REACH, value, &error), HET_OK, error.text, "", "get", __LINE__);
        for (i = 0; i < 2 * REACH; i++)
            if (support_bits(value[i]) != support_bits(far_value(places[p] - REACH + i)))
                fail_msg("element %.0f is %g", (double)(places[p] - REACH + i), (double)value[i]);
    }
    EXPECT_OK(het_safetensors_get(file, from, last, 1, 2, value, NULL));
    assert_true(support_bits(value[0]) == support_bits(-2.5f) && support_bits(value[1]) == support_bits(3.5f));
    EXPECT_ERROR(het_safetensors_get(file, from, wide, elements, 1, value, &error), HET_ERR_INVALID, error.text, "1 elements from 4294971392");
    het_safetensors_free(file);
}

static void tensors_beyond_4_gib(void **state)
{
    static const float ends[5] = { 7.0f, 8.0f, -1.5f, -2.5f, 3.5f };
    const int64_t elements = (INT64_C(1) << 32) + 4096, places[] = { REACH, INT64_C(1) << 31, INT64_C(1) << 32, elements - REACH };
    const char *path = in_root("wide.safetensors");
    unsigned char bytes[4 * REACH];
    char text[400];
    uint64_t data, size;
    het_reader opened, mapped;
    mapped_file map;
    size_t p;
    int64_t i;
    int file;
    (void)state;
    snprintf(text, sizeof text, "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"wide\":{\"dtype\":\"BF16\",\"shape\":[4,%.0f],"
             "\"data_offsets\":[8,%.0f]},\"last\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[%.0f,%.0f]}}", (double)(elements / 4),
             8 + 2 * (double)elements, 8 + 2 * (double)elements, 20 + 2 * (double)elements);
    data = 8 + strlen(text), size = data + 20 + 2 * (uint64_t)elements;
    if ((file = sparse_open(path, size)) < 0) skip();
    little(bytes, data - 8, 8);
    sparse_put(file, 0, bytes, 8);
    sparse_put(file, 8, text, strlen(text));
    sparse_put(file, data, ends, 8);
    sparse_put(file, size - 12, ends + 2, 12);
    for (p = 0; p < sizeof places / sizeof places[0]; p++) {
        for (i = 0; i < 2 * REACH; i++) little(bytes + 2 * i, support_bits(far_value(places[p] - REACH + i)) >> 16, 2);
        sparse_put(file, data + 8 + 2 * (uint64_t)(places[p] - REACH), bytes, sizeof bytes);
    }
    close(file);
    EXPECT_OK(het_reader_open(path, &opened, NULL));
    mapped = opened;
    assert_true(mapped_open(&map, path, &mapped));
    unlink(path);
    wide_tensor(&opened, elements);
    wide_tensor(&mapped, elements);
    mapped_close(&map);
    het_reader_close(&opened);
}

/* Places in a table that is made: its tensors may have more bytes than there is memory. */
static void tables_beyond_4_gib(void **state)
{
    het_safetensor list[3];
    het_safetensors *table = NULL;
    het_error error = { HET_OK, "" };
    int i;
    (void)state;
    memset(list, 0, sizeof list);
    for (i = 0; i < 3; i++) {
        list[i].name = i == 0 ? "b" : i == 1 ? "a" : "c";
        list[i].name_length = 1;
        list[i].element = HET_ELEMENT_BF16;
        list[i].rank = 2;
        list[i].shape[0] = 65536;
        list[i].shape[1] = 65536 + i;
    }
    support_expect(het_safetensors_make(list, 3, NULL, 0, NULL, &table, &error), HET_OK, error.text, "", "make", __LINE__);
    assert_true(table->tensor[0].end == 131072 * UINT64_C(65537) && table->tensor[1].begin == table->tensor[0].end); /* a, b, c */
    assert_true(table->tensor[2].begin == 131072 * UINT64_C(131073) && table->size == table->data + 131072 * UINT64_C(196611));
    het_safetensors_free(table);
}

/* ---- weights ---- */

/* The file `path` with a buffer of 4 GiB that loading steps over put before everything else. 0: there are no such files here. */
static int behind_4_gib(const char *path, const char *buffer)
{
    support_buffer small, head;
    het_reader from;
    het_writer to;
    het_safetensors *was = NULL, *now = NULL;
    het_safetensor *list;
    int64_t i;
    int file;
    load(&small, path);
    from = support_reader(&small);
    EXPECT_OK(het_safetensors_read(&from, 0, NULL, &was, NULL));
    list = support_alloc((size_t)was->tensors + 1, sizeof *list);
    memcpy(list, was->tensor, (size_t)was->tensors * sizeof *list);
    memset(&list[was->tensors], 0, sizeof *list);
    list[was->tensors].name = buffer;
    list[was->tensors].name_length = strlen(buffer);
    list[was->tensors].element = HET_ELEMENT_U64; /* such come first */
    list[was->tensors].rank = 1;
    list[was->tensors].shape[0] = (INT64_C(1) << 29) + 5;
    EXPECT_OK(het_safetensors_make(list, was->tensors + 1, was->pair, was->pairs, NULL, &now, NULL));
    support_buffer_start(&head);
    to = support_writer(&head);
    EXPECT_OK(het_safetensors_write(now, &to, NULL));
    file = sparse_open(path, now->size);
    for (i = 0; file >= 0 && i <= was->tensors; i++) {
        const het_safetensor *t = &now->tensor[i], *old = het_safetensors_find(was, t->name, t->name_length);
        if (old == NULL) continue;
        assert_true(t->begin > SPARSE_4_GIB);
        sparse_put(file, now->data + t->begin, small.data + was->data + old->begin, (size_t)(old->end - old->begin));
    }
    if (file >= 0) sparse_put(file, 0, head.data, head.size);
    if (file >= 0) close(file);
    free(list);
    het_safetensors_free(was);
    het_safetensors_free(now);
    support_buffer_end(&small);
    support_buffer_end(&head);
    return file >= 0;
}

static het_ctx *context(uint64_t seed)
{
    het_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.model = support_model(HET_GPT2);
    desc.limits.max_tokens = 20;
    desc.seed = seed;
    return support_create(&desc);
}

/* Two shards of 4 GiB and more. */
static void shards_beyond_4_gib(void **state)
{
    static const char *const buffers[] = { "transformer.h.0.attn.bias", "transformer.h.1.attn.masked_bias" };
    static const char map[] = "\"weight_map\": {";
    const uint32_t nan = 0x7FC00000u;
    het_ctx *ctx = context(1), *other = context(2);
    const uint64_t hash = support_hash(ctx);
    het_save_desc desc;
    het_folder folder;
    support_buffer index;
    het_error error = { HET_OK, "" };
    char name[64], text[400], words[100];
    const char *at;
    FILE *out;
    het_reader from;
    het_safetensors *table = NULL;
    const het_safetensor *t;
    int i, file;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.shard_bytes = 100000;
    EXPECT_OK(het_folder_open(root, NULL, &folder, NULL));
    EXPECT_OK(het_save_folder(ctx, &folder, &desc));
    for (i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "model-0000%d-of-00002.safetensors", i + 1);
        if (!behind_4_gib(in_root(name), buffers[i])) skip();
    }
    load(&index, in_root("model.safetensors.index.json"));
    support_buffer_append(&index, "", 1);
    at = strstr((char *)index.data, map);
    assert_non_null(at);
    snprintf(text, sizeof text, "\"%s\":\"model-00001-of-00002.safetensors\",\"%s\":\"model-00002-of-00002.safetensors\",", buffers[0], buffers[1]);
    out = fopen(in_root("model.safetensors.index.json"), "wb");
    assert_non_null(out);
    fprintf(out, "%.*s%s%s", (int)(at + strlen(map) - (char *)index.data), (char *)index.data, text, at + strlen(map));
    fclose(out);
    support_expect(het_load_folder(other, &folder), HET_OK, het_last_error(other), "", "load", __LINE__);
    assert_true(support_hash(other) == hash);
    support_expect(het_model_fits_folder(&het_get_desc(ctx)->model, &folder, NULL, &error), HET_OK, error.text, "", "fits", __LINE__);
    /* an error names the byte */
    EXPECT_OK(het_reader_open(in_root(name), &from, NULL));
    EXPECT_OK(het_safetensors_read(&from, 0, NULL, &table, NULL));
    t = &table->tensor[table->tensors - 1];
    file = open(in_root(name), O_WRONLY);
    assert_true(file >= 0);
    sparse_put(file, table->data + t->begin + 4, &nan, 4);
    close(file);
    snprintf(words, sizeof words, "byte %.0f: |tensor %s: |element 1 is nan", (double)(table->data + t->begin + 4), t->name);
    EXPECT_ERROR(het_load_folder(other, &folder), HET_ERR_DATA, het_last_error(other), words);
    het_safetensors_free(table);
    het_reader_close(&from);
    het_folder_close(&folder);
    support_buffer_end(&index);
    het_destroy(ctx);
    het_destroy(other);
}

/* ---- a checkpoint ---- */

/* The hash of every MiB of a file that is one hole but for its first and its last. */
static uint64_t *hashes_of(const char *path, uint64_t size)
{
    const size_t mib = (size_t)1 << 20, blocks = (size_t)((size + mib - 1) / mib);
    uint64_t *hash = support_alloc(blocks, sizeof *hash);
    char *block = support_alloc(mib, 1);
    const int file = open(path, O_RDONLY);
    size_t i;
    assert_true(file >= 0);
    memset(block, 0, mib);
    for (i = 0; i < blocks; i++) hash[i] = i == 0 ? het_xxh64(block, mib, 0) : hash[0];
    for (i = 0; i < blocks; i += i == 0 ? blocks - 2 : 1) {
        const ssize_t got = pread(file, block, mib, (off_t)(i * mib));
        assert_true(got > 0);
        hash[i] = het_xxh64(block, (size_t)got, 0);
    }
    close(file);
    free(block);
    return hash;
}

/* The weights of a checkpoint lie behind 4 GiB. Finding one proves every byte, which takes a second for these: here only what is read is. */
static void checkpoint_beyond_4_gib(void **state)
{
    const het_disk d = disk_posix();
    het_checkpoint_desc desc;
    het_checkpoint *c = NULL;
    het_saved *saved = NULL, large;
    het_ctx *ctx = context(1), *other = context(1);
    const uint64_t hash = support_hash(ctx);
    het_error error = { HET_OK, "" };
    het_parameter_info info;
    float *zeros;
    struct stat now;
    char path[128], words[80];
    uint64_t *hashes;
    int file;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.disk = &d;
    desc.directory = root;
    EXPECT_OK(het_checkpoint_create(&desc, &c, NULL));
    EXPECT_OK(het_checkpoint_take(c, ctx, NULL, 0, NULL, 0, NULL));
    support_expect(het_checkpoint_write(c, &error), HET_OK, error.text, "", "write", __LINE__);
    het_checkpoint_destroy(c);
    support_expect(het_checkpoint_find(&d, root, NULL, &saved, &error), HET_OK, error.text, "", "find", __LINE__);
    assert_string_equal(saved->file[0].name, "model.safetensors");
    snprintf(path, sizeof path, "%.80s/model.safetensors", saved->path);
    if (!behind_4_gib(path, "transformer.h.0.attn.bias")) skip();
    assert_int_equal(stat(path, &now), 0);
    large = *saved;
    large.file[0].size = (uint64_t)now.st_size;
    large.file[0].hash = hashes = hashes_of(path, large.file[0].size);
    EXPECT_OK(het_parameter_get_info(other, 0, &info));
    zeros = support_floats(info.count, 0, 1);
    EXPECT_OK(het_parameter_write(other, 0, HET_WEIGHT, zeros));
    free(zeros);
    assert_true(support_hash(other) != hash);
    support_expect(het_checkpoint_load(&large, other, HET_NO, &error), HET_OK, error.text, "", "load", __LINE__);
    assert_true(support_hash(other) == hash);
    file = open(path, O_WRONLY);
    assert_true(file >= 0);
    sparse_put(file, large.file[0].size - 1, "\x55", 1);
    close(file);
    snprintf(words, sizeof words, "model.safetensors: |bytes %.0f to %.0f: XXH64 is", (double)(large.file[0].size >> 20 << 20),
             (double)large.file[0].size - 1);
    EXPECT_ERROR(het_checkpoint_load(&large, other, HET_NO, &error), HET_ERR_FORMAT, error.text, words);
    free(hashes);
    het_checkpoint_free(saved);
    het_destroy(ctx);
    het_destroy(other);
}

/* ---- a mix ---- */

static unsigned char mix_byte(int which, uint64_t at) { return (unsigned char)(at % 251 + (uint64_t)which + 1); }

/* 8 bytes of the mix around a place: those of file `which` from byte `at` of it on, of which the last `behind` are file `next`'s from its first. */
static void mix_place(file_mix *m, uint64_t place, int which, uint64_t at, int behind, int next)
{
    unsigned char got[8];
    int i;
    assert_int_equal(mix_read(m, place, got, 8), 8);
    for (i = 0; i < 8; i++) {
        const unsigned char want = i < 8 - behind ? mix_byte(which, at + (uint64_t)i) : mix_byte(next, (uint64_t)(i - 8 + behind));
        if (got[i] != want) fail_msg("byte %.0f of the mix is %d, not %d", (double)(place + (uint64_t)i), got[i], want);
    }
}

/* One file 1.5 times, one twice. */
static void mixes_beyond_4_gib(void **state)
{
    const uint64_t bytes[2] = { SPARSE_4_GIB + 1000, SPARSE_4_GIB + 4000 };
    mix_file two[2];
    file_mix m;
    int k, mapped;
    (void)state;
    memset(two, 0, sizeof two);
    memset(&m, 0, sizeof m);
    m.file = two, m.files = 2, m.unit = 1;
    for (k = 0; k < 2; k++) {
        const uint64_t places[] = { 0, bytes[0] / 2 - 8, SPARSE_4_GIB - 8, bytes[k] - 16 };
        const char *path = in_root(k == 0 ? "a" : "b");
        const int file = sparse_open(path, bytes[k]);
        size_t p;
        if (file < 0) skip();
        for (p = 0; p < 4; p++) {
            unsigned char put[16];
            int i;
            for (i = 0; i < 16; i++) put[i] = mix_byte(k, places[p] + (uint64_t)i);
            sparse_put(file, places[p], put, 16);
        }
        close(file);
        EXPECT_OK(het_reader_open(path, &two[k].opened, NULL));
        two[k].reader = two[k].opened;
        two[k].bytes = bytes[k];
        two[k].start = m.size;
        two[k].end = m.size += k == 0 ? bytes[0] + bytes[0] / 2 : 2 * bytes[1];
    }
    for (mapped = 0; mapped < 2; mapped++) {
        mix_place(&m, SPARSE_4_GIB - 4, 0, SPARSE_4_GIB - 4, 0, 0);
        mix_place(&m, bytes[0] - 5, 0, bytes[0] - 5, 3, 0);              /* begins again */
        mix_place(&m, two[1].start - 3, 0, bytes[0] / 2 - 3, 5, 1);      /* its second pass ends in the middle */
        mix_place(&m, two[1].start + SPARSE_4_GIB - 1, 1, SPARSE_4_GIB - 1, 0, 0);
        mix_place(&m, two[1].start + bytes[1] - 6, 1, bytes[1] - 6, 2, 1);
        mix_place(&m, m.size - 8, 1, bytes[1] - 8, 0, 0);
        for (k = 0; k < 2 && mapped == 0; k++) assert_true(mapped_open(&two[k].map, in_root(k == 0 ? "a" : "b"), &two[k].reader));
    }
    for (k = 0; k < 2; k++) {
        mapped_close(&two[k].map);
        het_reader_close(&two[k].opened);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tensors_beyond_4_gib, root_start, root_end),
        cmocka_unit_test(tables_beyond_4_gib),
        cmocka_unit_test_setup_teardown(shards_beyond_4_gib, root_start, root_end),
        cmocka_unit_test_setup_teardown(checkpoint_beyond_4_gib, root_start, root_end),
        cmocka_unit_test_setup_teardown(mixes_beyond_4_gib, root_start, root_end),
    };
    return cmocka_run_group_tests_name("far", tests, NULL, NULL);
}
