/* The input is a model.safetensors.index.json beside two shards of a small model. No file is asked for that is not of the directory; an index that
   is accepted loads all weights, one that is refused changes none. `make fuzz` runs it, tests/test_fuzz.c replays the corpus. */
#include "fuzz.h"

#include "hetrain_files.h"

#define FUZZ_FILES 4

typedef struct fuzz_folder {
    char name[FUZZ_FILES][64];
    fuzz_bytes file[FUZZ_FILES];
    int files;
} fuzz_folder;

static het_result fuzz_folder_open(void *user, const char *name, het_reader *reader, het_error *error)
{
    fuzz_folder *f = (fuzz_folder *)user;
    int i;
    fuzz_check(het_folder_is_name(name, strlen(name)), "a name that leads out of the directory");
    for (i = 0; i < f->files && strcmp(f->name[i], name) != 0; i++) {}
    if (i == f->files) {
        if (error != NULL) snprintf(error->text, sizeof error->text, "%.200s: not there", name);
        return HET_ERR_IO;
    }
    *reader = fuzz_reader(&f->file[i]);
    reader->name = f->name[i];
    return HET_OK;
}

static void fuzz_folder_close(void *user, het_reader *reader)
{
    (void)user;
    (void)reader;
}

static het_result fuzz_folder_create(void *user, const char *name, het_writer *writer, het_error *error)
{
    fuzz_folder *f = (fuzz_folder *)user;
    int i;
    (void)error;
    for (i = 0; i < f->files && strcmp(f->name[i], name) != 0; i++) {}
    fuzz_check(i < FUZZ_FILES && strlen(name) < sizeof f->name[0], "more files than expected");
    memcpy(f->name[i], name, strlen(name) + 1);
    if (i == f->files) f->files++;
    free(f->file[i].data); /* of the one before */
    *writer = fuzz_writer(&f->file[i]);
    return HET_OK;
}

static het_result fuzz_folder_finish(void *user, het_writer *writer, int keep, het_error *error)
{
    (void)user;
    (void)writer;
    (void)keep;
    (void)error;
    return HET_OK;
}

/* Both live as long as the process: a model of one layer, and what it was saved as. */
typedef struct fuzz_saved { het_ctx *ctx; fuzz_folder files; het_folder folder; int index; uint64_t hash; } fuzz_saved;

static void fuzz_index_make(fuzz_saved *s)
{
    het_desc desc;
    het_save_desc save;
    het_error error;
    memset(&desc, 0, sizeof desc);
    memset(&save, 0, sizeof save);
    error.text[0] = 0;
    fuzz_check(het_model_parse("llama:layers=1,width=8,heads=2,vocab=11,context=4", &desc.model, &error) == HET_OK, "the model");
    desc.limits.max_tokens = desc.limits.max_sequences = 1;
    desc.inference = HET_YES;
    fuzz_check(het_create(&desc, &s->ctx, &error) == HET_OK, "the context");
    s->folder.open = fuzz_folder_open;
    s->folder.close = fuzz_folder_close;
    s->folder.create = fuzz_folder_create;
    s->folder.finish = fuzz_folder_finish;
    s->folder.user = &s->files;
    save.shard_bytes = 2500;
    fuzz_check(het_save_folder(s->ctx, &s->folder, &save) == HET_OK && s->files.files == FUZZ_FILES, "two shards, an index and config.json");
    for (s->index = 0; strstr(s->files.name[s->index], ".index.") == NULL; s->index++) {}
    fuzz_check(het_hash(s->ctx, &s->hash) == HET_OK, "the hash");
}

static int fuzz_index(const uint8_t *data, size_t size)
{
    static fuzz_saved saved;
    fuzz_bytes own;
    het_error error;
    het_result result;
    uint64_t hash;
    if (saved.ctx == NULL) fuzz_index_make(&saved);
    own = saved.files.file[saved.index];
    saved.files.file[saved.index].data = fuzz_copy(data, size);
    saved.files.file[saved.index].size = size;
    result = het_load_folder(saved.ctx, &saved.folder);
    if (result != HET_OK) {
        snprintf(error.text, sizeof error.text, "%s", het_last_error(saved.ctx));
        fuzz_error(result, &error);
    }
    fuzz_check(het_get_status(saved.ctx) == 0, "weights are torn");
    fuzz_check(het_hash(saved.ctx, &hash) == HET_OK && hash == saved.hash, "other weights");
    free(saved.files.file[saved.index].data);
    saved.files.file[saved.index] = own;
    return 0;
}

FUZZ_ENTRY(fuzz_index)
