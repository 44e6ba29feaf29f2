/* Directories of Hugging Face: written and read by every family, in every type, in one file or in shards; a directory that transformers wrote
   (tests/oracle/files.py) with its logits; indexes that are bad in one place; failing memory and files. Directories are in memory here. */
#include "support.h"

#include <time.h>

#include "hetrain_files.h"
#include "programs/llmc.h"

/* ---- a folder in memory ---- */

enum { FILES = 40 };
typedef struct folder {
    struct { char name[64], temporary; support_buffer data; int used; } file[FILES];
    int64_t calls, fail_at, open; /* this call of open, create, finish (from 0) fails */
} folder;

static int folder_find(folder *f, const char *name)
{
    int i;
    for (i = 0; i < FILES && !(f->file[i].used && strcmp(f->file[i].name, name) == 0); i++) {}
    return i;
}

static int folder_fails(folder *f) { return f->calls++ == f->fail_at; }

static het_result folder_error(het_error *error, const char *name, const char *what)
{
    if (error) snprintf(error->text, sizeof error->text, "%s: %s", name, what);
    return HET_ERR_IO;
}

static het_result folder_open(void *user, const char *name, het_reader *reader, het_error *error)
{
    folder *f = (folder *)user;
    const int i = folder_find(f, name);
    if (i == FILES || folder_fails(f)) return folder_error(error, name, "cannot be opened");
    *reader = support_reader(&f->file[i].data);
    reader->name = f->file[i].name;
    f->open++;
    return HET_OK;
}

static void folder_close(void *user, het_reader *reader)
{
    (void)reader;
    ((folder *)user)->open--;
}

static het_result folder_create(void *user, const char *name, het_writer *writer, het_error *error)
{
    folder *f = (folder *)user;
    int i = 0;
    if (folder_fails(f)) return folder_error(error, name, "cannot be created");
    while (f->file[i].used) i++;
    assert_true(i < FILES);
    f->file[i].used = 1;
    snprintf(f->file[i].name, sizeof f->file[i].name, "%s.tmp", name);
    support_buffer_start(&f->file[i].data);
    *writer = support_writer(&f->file[i].data);
    writer->name = f->file[i].name;
    f->open++;
    return HET_OK;
}

static het_result folder_finish(void *user, het_writer *writer, int keep, het_error *error)
{
    folder *f = (folder *)user;
    char name[64];
    const int i = folder_find(f, writer->name);
    int old;
    assert_true(i < FILES);
    f->open--;
    snprintf(name, sizeof name, "%.*s", (int)strlen(f->file[i].name) - 4, f->file[i].name);
    if (!keep || folder_fails(f)) {
        support_buffer_end(&f->file[i].data);
        f->file[i].used = 0;
        return keep ? folder_error(error, name, "cannot be finished") : HET_OK;
    }
    old = folder_find(f, name);
    if (old < FILES) {
        support_buffer_end(&f->file[old].data);
        f->file[old].used = 0;
    }
    snprintf(f->file[i].name, sizeof f->file[i].name, "%s", name);
    return HET_OK;
}

static het_folder folder_start(folder *f)
{
    het_folder table;
    memset(f, 0, sizeof *f);
    f->fail_at = -1;
    table.open = folder_open;
    table.close = folder_close;
    table.create = folder_create;
    table.finish = folder_finish;
    table.user = f;
    return table;
}

static int folder_count(const folder *f)
{
    int i, count = 0;
    for (i = 0; i < FILES; i++) count += f->file[i].used;
    return count;
}

static void folder_end(folder *f)
{
    int i;
    assert_int_equal(f->open, 0);
    for (i = 0; i < FILES; i++)
        if (f->file[i].used) support_buffer_end(&f->file[i].data);
}

/* Puts a text in place of a file. */
static void folder_put(folder *f, const char *name, const char *text)
{
    int i = folder_find(f, name);
    if (i == FILES) {
        for (i = 0; f->file[i].used; i++) {}
        f->file[i].used = 1;
        snprintf(f->file[i].name, sizeof f->file[i].name, "%s", name);
        support_buffer_start(&f->file[i].data);
    }
    f->file[i].data.size = 0;
    support_buffer_append(&f->file[i].data, text, strlen(text));
}

/* ---- there and back ---- */

static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_QWEN2, HET_QWEN3, HET_NEOX };
static const char *const types[] = { "\"float32\"", "\"float16\"", "\"bfloat16\"" };

static het_ctx *context(het_family family, uint64_t seed)
{
    het_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.model = support_model(family);
    desc.limits.max_tokens = 20;
    desc.seed = seed;
    return support_create(&desc);
}

static void every_family_and_type(void **state)
{
    static const het_element elements[] = { HET_ELEMENT_F32, HET_ELEMENT_F16, HET_ELEMENT_BF16 };
    size_t f, e, shards;
    (void)state;
    for (f = 0; f < 5; f++) {
        het_ctx *ctx = context(families[f], 1);
        for (e = 0; e < 3; e++) {
            for (shards = 0; shards < 2; shards++) {
                het_ctx *other = context(families[f], 2);
                het_save_desc desc;
                het_model_desc model;
                het_error error;
                folder files;
                het_folder table = folder_start(&files);
                char *config, was[2][4000], now[4000];
                size_t length;
                int64_t i, k;
                memset(&desc, 0, sizeof desc);
                desc.element = elements[e];
                desc.shard_bytes = shards ? 9000 : 0;
                support_expect(het_save_folder(ctx, &table, &desc), HET_OK, het_last_error(ctx), "", "save", __LINE__);
                assert_true(shards ? folder_count(&files) > 5 : folder_count(&files) == 2);
                assert_int_equal(folder_find(&files, "model.safetensors.index.json") < FILES, shards);
                support_expect(het_load_folder(other, &table), HET_OK, het_last_error(other), "", "load", __LINE__);
                if (e == 0) assert_true(support_hash(ctx) == support_hash(other));
                for (i = 0; i < het_tensor_count(ctx); i++) {
                    het_tensor_info t;
                    float *a, *b;
                    EXPECT_OK(het_tensor_get_info(ctx, i, &t));
                    a = support_alloc((size_t)t.count, sizeof *a);
                    b = support_alloc((size_t)t.count, sizeof *b);
                    EXPECT_OK(het_tensor_read(ctx, i, HET_WEIGHT, a));
                    EXPECT_OK(het_tensor_read(other, i, HET_WEIGHT, b));
                    for (k = 0; k < t.count; k++) /* half a unit in the last place; halves below 2^-14 have steps of 2^-24 */
                        if (fabsf(a[k] - b[k]) > (e == 0 ? 0.0f : fabsf(a[k]) * (e == 1 ? 0x1p-11f : 0x1p-8f) + 0x1p-25f))
                            fail_msg("%s: %g became %g", t.name, (double)a[k], (double)b[k]);
                    free(a);
                    free(b);
                }
                EXPECT_OK(het_model_from_folder(&table, &model, &error));
                EXPECT_OK(het_model_format(&model, was[0], sizeof was[0], &length));
                EXPECT_OK(het_model_format(&het_get_desc(ctx)->model, was[1], sizeof was[1], &length));
                assert_string_equal(was[0], was[1]);
                config = (char *)files.file[folder_find(&files, "config.json")].data.data;
                length = files.file[folder_find(&files, "config.json")].data.size;
                assert_true(length < sizeof now);
                memcpy(now, config, length);
                now[length] = 0;
                assert_non_null(strstr(now, types[e]));
                folder_end(&files);
                het_destroy(other);
            }
        }
        EXPECT_OK(het_save_folder(ctx, NULL, NULL)); /* a process that only takes part */
        het_destroy(ctx);
    }
}

/* Models without a head, and GPT-2 of the hub, have no prefix before their names: here blanks stand in its place before the quote. */
static void names_without_prefix(void **state)
{
    static const char *const prefixes[] = { "transformer.", "model.", "model.", "model.", "gpt_neox." };
    size_t f, i;
    (void)state;
    for (f = 0; f < 5; f++) {
        het_ctx *ctx = context(families[f], 1), *other = context(families[f], 2);
        const size_t length = strlen(prefixes[f]);
        int count = 0;
        het_error error;
        folder files;
        het_folder table = folder_start(&files);
        support_buffer *file;
        EXPECT_OK(het_save_folder(ctx, &table, NULL));
        file = &files.file[folder_find(&files, "model.safetensors")].data;
        for (i = 8; i + length + 1 < file->size; i++) {
            unsigned char *at = (unsigned char *)file->data + i;
            if (at[0] != '"' || memcmp(at + 1, prefixes[f], length) != 0) continue;
            memset(at, ' ', length);
            at[length] = '"';
            count++;
        }
        assert_true(count > 10);
        support_expect(het_model_fits_folder(&het_get_desc(ctx)->model, &table, NULL, &error), HET_OK, error.text, "", prefixes[f], __LINE__);
        support_expect(het_load_folder(other, &table), HET_OK, het_last_error(other), "", prefixes[f], __LINE__);
        assert_true(support_hash(ctx) == support_hash(other));
        folder_end(&files);
        het_destroy(other);
        het_destroy(ctx);
    }
}

/* het_model_format gives what het_model_parse reads. */
/* A matrix of one row or column is one in the file too, [1][D] or [D][1], by which the model's sizes are known. */
static void matrices_of_one_column(void **state)
{
    size_t f;
    (void)state;
    for (f = 0; f < 5; f++) {
        het_ctx *ctx, *other;
        het_model_desc model;
        het_error error;
        folder files;
        het_folder table = folder_start(&files);
        het_desc desc;
        int64_t i, matrices = 0;
        memset(&desc, 0, sizeof desc);
        desc.model = support_model(families[f]);
        desc.model.mlp_width = 1;
        desc.limits.max_tokens = 20;
        ctx = support_create(&desc);
        EXPECT_OK(het_save_folder(ctx, &table, NULL));
        EXPECT_OK(het_model_from_folder(&table, &model, &error));
        assert_int_equal(model.mlp_width, 1);
        for (i = 0; i < het_tensor_count(ctx); i++) {
            het_tensor_info t;
            EXPECT_OK(het_tensor_get_info(ctx, i, &t));
            if (strstr(t.name, "mlp") == NULL || strstr(t.name, ".bias") != NULL) continue;
            assert_int_equal(t.rank, 2);
            assert_int_equal(t.shape[0] * t.shape[1], desc.model.width);
            matrices++;
        }
        assert_true(matrices >= 2 * desc.model.layers);
        desc.seed = 2;
        other = support_create(&desc);
        support_expect(het_load_folder(other, &table), HET_OK, het_last_error(other), "", "load", __LINE__);
        assert_true(support_hash(ctx) == support_hash(other));
        folder_end(&files);
        het_destroy(other);
        het_destroy(ctx);
    }
}

static void settings_as_text(void **state)
{
    static const char *const names[] = {
        "gpt2:124m", "llama:tinyllama-1.1b", "llama3:3.2-1b", "qwen2:1.5b", "qwen3:0.6b", "neox:20b",
        "llama:window=7,norm_epsilon=3e-7,dropout=0.125",
        "gpt2:position=none,causal=no,activation=gelu_erf,tied=no,init_std=0.0123456789"
    };
    size_t i, length;
    (void)state;
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        het_model_desc model, back;
        het_error error;
        char text[2048], again[2048], json[8192];
        EXPECT_OK(het_model_parse(names[i], &model, &error));
        EXPECT_OK(het_model_format(&model, text, sizeof text, &length));
        assert_int_equal(length, strlen(text));
        support_expect(het_model_parse(text, &back, &error), HET_OK, error.text, "", text, __LINE__);
        EXPECT_OK(het_model_format(&back, again, sizeof again, &length));
        assert_string_equal(text, again);
        assert_int_equal(het_model_format(&model, again, length, &length), HET_ERR_LIMIT);
        EXPECT_OK(het_model_to_json(&model, json, sizeof json, &length));
        EXPECT_OK(het_model_from_json(json, length, &back, &error));
        EXPECT_OK(het_model_format(&back, again, sizeof again, &length));
        assert_string_equal(text, again);
    }
}

/* ---- transformers ---- */

/* A directory of transformers in two shards, and the logits that it computes for the tokens 3, 1, 4, 1, 5 after each of them. */
static void a_directory_of_transformers(void **state)
{
    static const int32_t tokens[] = { 3, 1, 4, 1, 5 };
    het_folder table;
    het_error error;
    het_desc desc;
    het_ctx *ctx;
    float logits[64], wanted[5 * 61], apart = 0.0f;
    FILE *file;
    int64_t i, k;
    (void)state;
    EXPECT_OK(het_folder_open("tests/oracle/data/files/qwen3", NULL, &table, &error));
    memset(&desc, 0, sizeof desc);
    support_expect(het_model_from_folder(&table, &desc.model, &error), HET_OK, error.text, "", "config.json", __LINE__);
    assert_int_equal(desc.model.vocab, 61);
    desc.inference = HET_YES;
    ctx = support_create(&desc);
    support_expect(het_load_folder(ctx, &table), HET_OK, het_last_error(ctx), "", "load", __LINE__);
    file = fopen("tests/oracle/data/files/qwen3/logits.f32", "rb");
    assert_non_null(file);
    assert_int_equal(fread(wanted, sizeof wanted[0], 5 * 61, file), 5 * 61);
    fclose(file);
    for (i = 0; i < 5; i++) {
        EXPECT_OK(het_infer(ctx, &tokens[i], 1, i, logits));
        for (k = 0; k < 61; k++) apart = fabsf(logits[k] - wanted[i * 61 + k]) > apart ? fabsf(logits[k] - wanted[i * 61 + k]) : apart;
    }
    print_message("logits differ by %.2g at most\n", (double)apart);
    assert_true(apart < 1e-5f);
    het_destroy(ctx);
    het_folder_close(&table);
}

/* ---- what is refused ---- */

/* The index with `from` replaced by `to`, once. */
static void change(folder *f, const char *index, const char *from, const char *to)
{
    char text[20000];
    const char *at = strstr(index, from);
    if (at == NULL) fail_msg("the index has no %s", from);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - index), index, to, at + strlen(from));
    folder_put(f, "model.safetensors.index.json", text);
}

static void bad_indexes_are_refused(void **state)
{
    static const struct { const char *from, *to, *words; } bad[] = {
        { "model-00001", "../model-00001", "../model-00001-of-|no name of a file in this directory" },
        { "model-00001", "/etc/model-00001", "/etc/model|no name of a file" },
        { "model-00001", "sub/model-00001", "sub/model|no name of a file" },
        { "model-00001", "sub\\\\model-00001", "sub\\model|no name of a file" },
        { "model-00001", "C:model-00001", "C:model|no name of a file" },
        { "\"model-00001-of-00002.safetensors\"", "\"..\"", "\"..\"|no name of a file" },
        { "\"model-00001-of-00002.safetensors\"", "\".\"", "\".\"|no name of a file" },
        { "\"model-00001-of-00002.safetensors\"", "\"\"", "\"\"|no name of a file" },
        { "\"model-00001-of-00002.safetensors\"", "\".hidden\"", "no name of a file" },
        { "\"model-00001-of-00002.safetensors\"", "\"model\\u0000.safetensors\"", "no name of a file" },
        { "\"model-00001-of-00002.safetensors\"", "\"model\\n.safetensors\"", "no name of a file" },
        { "\"model-00001-of-00002.safetensors\"", "7", "string was expected" },
        { "\"model-00001-of-00002.safetensors\"", "null", "string was expected" },
        { "\"model-00001-of-00002.safetensors\"", "[\"a\"]", "string was expected" },
        { "\"model-00001-of-00002.safetensors\"", "\"model-00003-of-00002.safetensors\"", "model-00003-of-00002.safetensors|cannot be opened" },
        { "model-00001", "model-00002", "is not in the file that the index names" },
        { "\"weight_map\"", "\"weights\"", "weight_map is missing or empty" },
        { "{\n  \"metadata\"", "{\n  \"weight_map\": {},\n  \"metadata\"", "weight_map occurs twice" },
        { "\"transformer.wte.weight\"", "\"transformer.wte.weigh\"", "\"transformer.wte.weigh\"|is not in the file" },
        { "\"weight_map\": {", "\"weight_map\": {\"transformer.wpe.weight\": \"model-00001-of-00002.safetensors\",", "wpe.weight|occurs twice" },
        { "  }\n}", "  }\n", "',' or '}'" },
        { "  }\n}", "  }\n}{", "something follows" },
    };
    static const char line[] = "\"transformer.wpe.weight\": \"model-00001-of-00002.safetensors\",";
    het_ctx *ctx = context(HET_GPT2, 1), *other = context(HET_GPT2, 2);
    const uint64_t hash = support_hash(other);
    char index[20000];
    het_save_desc desc;
    folder files;
    het_folder table = folder_start(&files);
    support_buffer *text;
    size_t i;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.shard_bytes = 100000;
    EXPECT_OK(het_save_folder(ctx, &table, &desc));
    assert_int_equal(folder_count(&files), 4);
    text = &files.file[folder_find(&files, "model.safetensors.index.json")].data;
    snprintf(index, sizeof index, "%.*s", (int)text->size, (char *)text->data);
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        change(&files, index, bad[i].from, bad[i].to);
        support_expect(het_load_folder(other, &table), strstr(bad[i].words, "cannot be opened") ? HET_ERR_IO : HET_ERR_FORMAT, het_last_error(other),
                       bad[i].words, bad[i].to, __LINE__);
        assert_true(support_hash(other) == hash);
    }
    change(&files, index, line, "");
    EXPECT_ERROR(het_load_folder(other, &table), HET_ERR_FORMAT, het_last_error(other), "wpe.weight|is not in model.safetensors.index.json");
    folder_put(&files, "model.safetensors.index.json", index);
    EXPECT_OK(het_load_folder(other, &table));
    assert_true(support_hash(other) == support_hash(ctx));
    folder_end(&files);
    het_destroy(ctx);
    het_destroy(other);
}

/* An index of half a million tensors in 10,000 files, which are taken in turn: every line asks which file it is. One file more is refused. */
static void many_shards(void **state)
{
    enum { LINES = 500000, SHARDS = 10000 };
    het_ctx *ctx = context(HET_LLAMA, 1);
    char *text = support_alloc((size_t)LINES * 24 + 100, 1), *at = text;
    folder files;
    het_folder table = folder_start(&files);
    clock_t begin;
    double took;
    int i, more;
    (void)state;
    for (more = 0; more < 2; more++) {
        at = text + sprintf(text, "{\"weight_map\":{");
        for (i = 0; i < LINES; i++) at += sprintf(at, "\"%x\":\"%d\",", i, i * 7 % (SHARDS + more));
        at[-1] = '}';
        strcpy(at, "}");
        folder_put(&files, "model.safetensors.index.json", text);
        begin = clock();
        if (more) EXPECT_ERROR(het_load_folder(ctx, &table), HET_ERR_FORMAT, het_last_error(ctx), "more than 10000 files");
        else EXPECT_ERROR(het_load_folder(ctx, &table), HET_ERR_IO, het_last_error(ctx), "0: cannot be opened");
        took = (double)(clock() - begin) / CLOCKS_PER_SEC;
        if (took > 3) fail_msg("an index of %d lines took %.1f s", LINES, took);
    }
    free(text);
    folder_end(&files);
    het_destroy(ctx);
}

/* het_load_folder reads model.safetensors where there is one: shards beside an older one would not be seen. */
static void shards_do_not_hide_behind_one_file(void **state)
{
    het_ctx *old = context(HET_LLAMA, 1), *ctx = context(HET_LLAMA, 2);
    const uint64_t hash = support_hash(old);
    het_save_desc desc;
    folder files;
    het_folder table = folder_start(&files);
    (void)state;
    memset(&desc, 0, sizeof desc);
    EXPECT_OK(het_save_folder(old, &table, &desc));
    assert_int_equal(folder_count(&files), 2); /* with config.json */
    desc.shard_bytes = 20000;
    EXPECT_ERROR(het_save_folder(ctx, &table, &desc), HET_ERR_INVALID, het_last_error(ctx), "het_save_folder: |model.safetensors is there");
    assert_int_equal(folder_count(&files), 2);
    assert_int_equal(files.open, 0);
    desc.shard_bytes = (uint64_t)1 << 40; /* one file, which takes the older one's place */
    EXPECT_OK(het_save_folder(ctx, &table, &desc));
    EXPECT_OK(het_load_folder(old, &table));
    assert_true(support_hash(old) == support_hash(ctx) && support_hash(old) != hash);
    folder_end(&files);
    het_destroy(old);
    het_destroy(ctx);
}

/* Whichever call of the folder fails: what loads are the weights of one save. */
static void shards_of_two_saves_are_no_weights(void **state)
{
    het_ctx *old = context(HET_LLAMA, 1), *ctx = context(HET_LLAMA, 2), *loaded = context(HET_LLAMA, 3);
    const uint64_t before = support_hash(old), after = support_hash(ctx);
    het_result result = HET_ERR_IO;
    het_save_desc desc;
    folder files;
    het_folder table = folder_start(&files);
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.shard_bytes = 20000;
    for (int64_t k = 0; result != HET_OK; k++) {
        EXPECT_OK(het_save_folder(old, &table, &desc));
        files.calls = 0, files.fail_at = k;
        result = het_save_folder(ctx, &table, &desc);
        files.fail_at = -1;
        if (het_load_folder(loaded, &table) == HET_OK) {
            const uint64_t hash = support_hash(loaded);
            if (hash != after && (hash != before || result == HET_OK)) fail_msg("call %d: weights of two saves", (int)k);
        }
    }
    folder_end(&files);
    het_destroy(old);
    het_destroy(ctx);
    het_destroy(loaded);
}

static void misuse(void **state)
{
    het_ctx *ctx = context(HET_LLAMA, 1);
    folder files;
    het_folder table = folder_start(&files), broken = table;
    het_save_desc desc;
    het_model_desc model;
    het_allocator half;
    support_memory memory;
    het_error error;
    int64_t k;
    float *values;
    (void)state;
    memset(&desc, 0, sizeof desc);
    EXPECT_ERROR(het_load_folder(ctx, &table), HET_ERR_IO, het_last_error(ctx), "model.safetensors|nor is there an index");
    EXPECT_ERROR(het_model_fits_folder(&het_get_desc(ctx)->model, &table, NULL, &error), HET_ERR_IO, error.text,
                 "model.safetensors: cannot be opened; nor is there an index");
    EXPECT_ERROR(het_load_folder(ctx, NULL), HET_ERR_INVALID, het_last_error(ctx), "NULL");
    EXPECT_ERROR(het_model_from_folder(&table, &model, &error), HET_ERR_IO, error.text, "config.json");
    broken.close = NULL;
    EXPECT_ERROR(het_save_folder(ctx, &broken, NULL), HET_ERR_INVALID, het_last_error(ctx), "NULL");
    desc.end_canary = 1;
    EXPECT_ERROR(het_save_folder(ctx, &table, &desc), HET_ERR_INVALID, het_last_error(ctx), "canary");
    desc.end_canary = 0;
    desc.element = HET_ELEMENT_I8;
    EXPECT_ERROR(het_save_folder(ctx, &table, &desc), HET_ERR_INVALID, het_last_error(ctx), "F32, F16 or BF16");
    assert_int_equal(het_save_folder(NULL, &table, NULL), HET_ERR_INVALID);
    assert_int_equal(het_load_folder(NULL, &table), HET_ERR_INVALID);
    /* every call of the folder fails once; what was there stays */
    /* half an allocator: refused by the call that got it, before it is asked for anything */
    memset(&memory, 0, sizeof memory);
    memory.fail_at = -1;
    half = support_allocator(&memory);
    half.free = NULL;
    model = het_get_desc(ctx)->model;
    desc.element = HET_ELEMENT_F32, desc.allocator = &half;
    EXPECT_ERROR(het_save_folder(ctx, &table, &desc), HET_ERR_INVALID, het_last_error(ctx), "het_save_folder: |lacks alloc or free");
    EXPECT_ERROR(het_model_fits_folder(&model, &table, &half, &error), HET_ERR_INVALID, error.text, "het_model_fits_folder: |lacks");
    EXPECT_ERROR(het_model_fits(&model, NULL, &half, &error), HET_ERR_INVALID, error.text, "het_model_fits: |lacks alloc or free");
    EXPECT_ERROR(het_model_fits(&model, NULL, NULL, &error), HET_ERR_INVALID, error.text, "het_model_fits: the reader");
    EXPECT_ERROR(het_model_fits_folder(NULL, &table, NULL, &error), HET_ERR_INVALID, error.text, "het_model_fits_folder: model is NULL");
    assert_int_equal(memory.calls, 0);
    desc.allocator = NULL;
    desc.shard_bytes = 20000;
    EXPECT_OK(het_save_folder(ctx, &table, &desc));
    for (k = 0;; k++) {
        het_result result;
        const int count = folder_count(&files);
        files.calls = 0;
        files.fail_at = k;
        result = het_save_folder(ctx, &table, &desc);
        assert_int_equal(folder_count(&files), count);
        if (result == HET_OK) break;
        EXPECT_ERROR(result, HET_ERR_IO, het_last_error(ctx), "cannot be");
    }
    assert_true(k > 6);
    for (k = 0;; k++) {
        files.calls = 0;
        files.fail_at = k;
        if (het_load_folder(ctx, &table) == HET_OK) break;
        assert_int_equal(files.open, 0);
        assert_non_null(strstr(het_last_error(ctx), "cannot be"));
    }
    assert_true(k > 4);
    files.fail_at = -1;
    /* half has no room for this */
    values = support_alloc(40000, sizeof *values);
    EXPECT_OK(het_tensor_read(ctx, 0, HET_WEIGHT, values));
    values[3] = 70000.0f;
    EXPECT_OK(het_tensor_write(ctx, 0, HET_WEIGHT, values));
    desc.element = HET_ELEMENT_F16;
    EXPECT_ERROR(het_save_folder(ctx, &table, &desc), HET_ERR_DATA, het_last_error(ctx), "embed_tokens.weight|element 3|F16");
    free(values);
    folder_end(&files);
    het_destroy(ctx);
    assert_int_equal(het_folder_is_name("model.safetensors", 17), 1);
    assert_int_equal(het_folder_is_name("a b", 3), 1);
    assert_int_equal(het_folder_is_name("\xC3\xA9", 2), 0);
    assert_int_equal(het_folder_is_name("", 0), 0);
}

/* ---- values ---- */

/* Bits of nan, inf, -inf and the largest finite number, in F32, F16 and BF16. */
static const uint32_t values_of[3][4] = {
    { 0x7FC00001u, 0x7F800000u, 0xFF800000u, 0x7F7FFFFFu }, { 0x7E01u, 0x7C00u, 0xFC00u, 0x7BFFu }, { 0x7FC1u, 0x7F80u, 0xFF80u, 0x7F7Fu }
};
static const char *const names_of[] = { "nan", "inf", "-inf" };

static void poke(support_buffer *file, size_t at, uint32_t bits, int bytes)
{
    int i;
    for (i = 0; i < bytes; i++) file->data[at + (size_t)i] = (unsigned char)(bits >> 8 * i);
}

/* ---- llm.c ---- */

static void put_number(support_buffer *file, uint32_t value, int bytes)
{
    int i;
    for (i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)(value >> 8 * i);
        support_buffer_append(file, &byte, 1);
    }
}

/* The tensor of this name of every layer that has it, in table order, from Hugging Face's layout ([in][out], turned if `turn`). */
static void put_tensors(support_buffer *file, het_ctx *ctx, const char *end, int turn, int version)
{
    int64_t i, r, c;
    for (i = 0; i < het_tensor_count(ctx); i++) {
        het_tensor_info t;
        float *values;
        EXPECT_OK(het_tensor_get_info(ctx, i, &t));
        if (strlen(t.name) < strlen(end) || strcmp(t.name + strlen(t.name) - strlen(end), end) != 0) continue;
        values = support_alloc((size_t)t.count, sizeof *values);
        EXPECT_OK(het_tensor_read(ctx, i, HET_WEIGHT, values));
        for (r = 0; r < (turn ? t.shape[1] : t.count); r++)
            for (c = 0; c < (turn ? t.shape[0] : 1); c++) {
                const float value = turn ? values[c * t.shape[1] + r] : values[r];
                if (version == 3) put_number(file, support_bits(value), 4);
                else put_number(file, support_bits(support_bf16(value)) >> 16, 2);
            }
        free(values);
    }
}

/* What train_gpt2.py of llm.c writes for this model, the vocabulary padded by 3 rows of rubbish. */
static void llmc_file(support_buffer *file, het_ctx *ctx, int version)
{
    static const struct { const char *end; int turn; } kinds[] = {
        { "wte.weight", 0 }, { "wpe.weight", 0 }, { "ln_1.weight", 0 }, { "ln_1.bias", 0 }, { "attn.c_attn.weight", 1 }, { "attn.c_attn.bias", 0 },
        { "attn.c_proj.weight", 1 }, { "attn.c_proj.bias", 0 }, { "ln_2.weight", 0 }, { "ln_2.bias", 0 }, { "mlp.c_fc.weight", 1 },
        { "mlp.c_fc.bias", 0 }, { "mlp.c_proj.weight", 1 }, { "mlp.c_proj.bias", 0 }, { "ln_f.weight", 0 }, { "ln_f.bias", 0 }
    };
    const het_model_desc *m = &het_get_desc(ctx)->model;
    const int64_t numbers[] = { 20240326, version, m->context, m->vocab, m->layers, m->heads, m->width, m->vocab + 3 };
    size_t i;
    int64_t k;
    support_buffer_start(file);
    for (i = 0; i < 256; i++) put_number(file, i < 8 ? (uint32_t)numbers[i] : 0, 4);
    for (i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        put_tensors(file, ctx, kinds[i].end, kinds[i].turn, version);
        for (k = 0; k < 3 * m->width && i == 0; k++) put_number(file, 0x7FC1, version == 3 ? 4 : 2);
    }
}

static void weights_of_llmc(void **state)
{
    static const struct { size_t at; unsigned char byte; het_result code; const char *words; } bad[] = {
        { 0, 7, HET_ERR_FORMAT, "byte 0: |is not 20240326" }, { 4, 4, HET_ERR_UNSUPPORTED, "byte 4: version 4" },
        { 8, 0, HET_ERR_FORMAT, "byte 8: context 0" }, { 11, 0x80, HET_ERR_FORMAT, "byte 8: context 21" },
        { 15, 1, HET_ERR_FORMAT, "byte 12: vocab" },
        { 19, 1, HET_ERR_FORMAT, "byte 16: layers" }, { 20, 0, HET_ERR_FORMAT, "byte 20: heads 0" }, { 26, 9, HET_ERR_FORMAT, "byte 24: width" },
        { 28, 1, HET_ERR_FORMAT, "byte 28: padded vocabulary 1 is below" }, { 16, 9, HET_ERR_FORMAT, "bytes, its header asks for" },
        { 20, 4, HET_ERR_FORMAT, "heads is 4 in the file and 5 in the context" }, { 20, 7, HET_ERR_FORMAT, "width 40 is not a multiple of heads 7" }
    };
    het_ctx *ctx, *other = context(HET_GPT2, 2), *llama = context(HET_LLAMA, 1);
    het_desc plain;
    het_model_desc model;
    het_error error;
    support_buffer file;
    het_reader from;
    uint64_t hash;
    int64_t i, k;
    size_t size;
    unsigned char was[4];
    int version;
    (void)state;
    memset(&plain, 0, sizeof plain);
    plain.model = support_model(HET_GPT2);
    plain.limits.max_tokens = 20;
    plain.model.mlp_width = 4 * plain.model.width; /* all that llm.c knows */
    plain.seed = 1;
    ctx = support_create(&plain);
    het_destroy(other);
    plain.seed = 2;
    other = support_create(&plain);
    hash = support_hash(other);
    for (version = 3; version <= 5; version += 2) {
        llmc_file(&file, ctx, version);
        from = support_reader(&file);
        EXPECT_OK(llmc_model(&from, &model, &error));
        assert_int_equal(model.vocab, plain.model.vocab);
        assert_int_equal(model.layers, plain.model.layers);
        if (version == 3) {
            for (i = 0; i < (int64_t)(sizeof bad / sizeof bad[0]); i++) {
                const unsigned char byte = file.data[bad[i].at];
                file.data[bad[i].at] = bad[i].byte;
                EXPECT_ERROR(llmc_load(other, &from, &error), bad[i].code, error.text, bad[i].words);
                file.data[bad[i].at] = byte;
            }
            size = file.size;
            for (file.size = 0; file.size < size; file.size += 1 + file.size / 7) {
                from.size = file.size;
                EXPECT_ERROR(llmc_load(other, &from, &error), HET_ERR_FORMAT, error.text, "test.bin|bytes");
            }
            file.size = from.size = size;
            EXPECT_ERROR(llmc_load(llama, &from, &error), HET_ERR_FORMAT, error.text, "GPT-2");
            assert_true(support_hash(other) == hash);
            file.fail_after = (int64_t)size / 2;
            EXPECT_ERROR(llmc_load(other, &from, &error), HET_ERR_IO, error.text, "partly overwritten|test.bin");
            assert_int_equal(het_get_status(other), HET_WEIGHTS_INCOMPLETE);
            file.fail_after = -1;
        }
        size = 1024 + (size_t)((plain.model.vocab + 3) * plain.model.width + 7) * (version == 3 ? 4 : 2); /* behind the padded wte */
        memcpy(was, file.data + size, sizeof was);
        poke(&file, size, values_of[version == 3 ? 0 : 2][2], version == 3 ? 4 : 2);
        EXPECT_ERROR(llmc_load(other, &from, &error), HET_ERR_DATA, error.text, "wpe.weight|element 7 is -inf, not finite");
        memcpy(file.data + size, was, sizeof was);
        EXPECT_OK(llmc_load(other, &from, &error));
        assert_int_equal(het_get_status(other), 0);
        if (version == 3) assert_true(support_hash(other) == support_hash(ctx));
        for (i = 0; i < het_parameter_count(ctx); i++) {
            het_parameter_info p;
            float *a, *b;
            EXPECT_OK(het_parameter_get_info(ctx, i, &p));
            a = support_alloc((size_t)p.count, sizeof *a);
            b = support_alloc((size_t)p.count, sizeof *b);
            EXPECT_OK(het_parameter_read(ctx, i, HET_WEIGHT, a));
            EXPECT_OK(het_parameter_read(other, i, HET_WEIGHT, b));
            for (k = 0; k < p.count; k++) assert_true(b[k] == (version == 3 ? a[k] : support_bf16(a[k])));
            free(a);
            free(b);
        }
        support_buffer_end(&file);
    }
    het_destroy(ctx);
    het_destroy(other);
    het_destroy(llama);
}

/* One element of one tensor of a directory is not finite: every type, in one file or in shards, of joined and of plain tensors. */
static void values_that_are_not_finite(void **state)
{
    static const het_family of[] = { HET_GPT2, HET_QWEN3 };
    static const char *const tensors[] = { "transformer.h.1.attn.c_attn.weight", "model.layers.1.mlp.up_proj.weight" };
    static const het_element elements[] = { HET_ELEMENT_F32, HET_ELEMENT_F16, HET_ELEMENT_BF16 };
    int f, e, shards, kind, i;
    (void)state;
    for (f = 0; f < 2; f++)
        for (e = 0; e < 3; e++)
            for (shards = 0; shards < 2; shards++) {
                het_ctx *ctx = context(of[f], 1), *takes, *refuses = context(of[f], 2);
                const int bytes = e == 0 ? 4 : 2;
                het_desc desc;
                het_save_desc save;
                folder files;
                het_folder table = folder_start(&files);
                memset(&desc, 0, sizeof desc);
                desc.model = support_model(of[f]), desc.limits.max_tokens = 20, desc.guard.nonfinite = HET_YES;
                takes = support_create(&desc);
                memset(&save, 0, sizeof save);
                save.element = elements[e], save.shard_bytes = shards ? 9000 : 0;
                support_expect(het_save_folder(ctx, &table, &save), HET_OK, het_last_error(ctx), "", "save", __LINE__);
                for (i = 0; i < FILES; i++) {
                    const het_safetensor *t;
                    het_safetensors *list = NULL;
                    het_error error;
                    het_reader from;
                    size_t at;
                    if (!files.file[i].used || strcmp(strchr(files.file[i].name, '.'), ".safetensors") != 0) continue;
                    from = support_reader(&files.file[i].data);
                    EXPECT_OK(het_safetensors_read(&from, 0, NULL, &list, &error));
                    assert_non_null(het_safetensors_value(list, "hetrain_version", NULL));
                    t = het_safetensors_find(list, tensors[f], strlen(tensors[f]));
                    at = t != NULL ? (size_t)(list->data + t->begin) + 17 * (size_t)bytes : 0;
                    het_safetensors_free(list);
                    if (at == 0) continue;
                    for (kind = 0; kind < 4; kind++) {
                        char words[200];
                        snprintf(words, sizeof words, "%s|byte %zu|%s|element 17 is %s, not finite", files.file[i].name, at, tensors[f],
                                 kind < 3 ? names_of[kind] : "");
                        poke(&files.file[i].data, at, values_of[e][kind], bytes);
                        if (kind < 3) EXPECT_ERROR(het_load_folder(refuses, &table), HET_ERR_DATA, het_last_error(refuses), words);
                        else support_expect(het_load_folder(refuses, &table), HET_OK, het_last_error(refuses), "", "the largest", __LINE__);
                        assert_int_equal(het_get_status(refuses), kind < 3 ? HET_WEIGHTS_INCOMPLETE : 0);
                        support_expect(het_load_folder(takes, &table), HET_OK, het_last_error(takes), "", "taken", __LINE__);
                        assert_true((support_hash(takes) == support_hash(refuses)) == (kind == 3));
                    }
                }
                assert_int_equal(het_get_status(refuses), 0);
                folder_end(&files);
                het_destroy(ctx);
                het_destroy(takes);
                het_destroy(refuses);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_without_prefix), cmocka_unit_test(every_family_and_type),
        cmocka_unit_test(matrices_of_one_column),
        cmocka_unit_test(settings_as_text),
        cmocka_unit_test(a_directory_of_transformers),
        cmocka_unit_test(bad_indexes_are_refused),
        cmocka_unit_test(many_shards),
        cmocka_unit_test(shards_do_not_hide_behind_one_file), cmocka_unit_test(shards_of_two_saves_are_no_weights),
        cmocka_unit_test(misuse),
        cmocka_unit_test(weights_of_llmc),
        cmocka_unit_test(values_that_are_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
