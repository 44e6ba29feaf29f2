/* The input is one file of a checkpoint on a disk in memory that holds an older, good one as well. Its first byte says which file, and whether
   checksums and sizes are made to fit, so that what stands behind them is reached. Something good is always found; what is loaded is what was found;
   a load that fails says so, and the older checkpoint mends the context. `make fuzz` runs it, tests/test_fuzz.c replays the corpus. */
#include "fuzz.h"

#include "hetrain_files.h"

#define FUZZ_DISK_FILES 32
#define FUZZ_DISK_BLOCK ((size_t)1 << 20)

/* Directories are not kept: the beginning of a path. */
typedef struct fuzz_disk {
    char path[FUZZ_DISK_FILES][64];
    fuzz_bytes file[FUZZ_DISK_FILES];
    int files;
} fuzz_disk;

static int fuzz_disk_find(const fuzz_disk *d, const char *path)
{
    int i;
    for (i = 0; i < d->files && strcmp(d->path[i], path) != 0; i++) {}
    return i;
}

static int fuzz_disk_open(void *user, const char *path, int writing, void **file)
{
    fuzz_disk *d = (fuzz_disk *)user;
    const int i = fuzz_disk_find(d, path);
    if (i == d->files && !writing) return 2;
    if (i == d->files) {
        fuzz_check(d->files++ < FUZZ_DISK_FILES && strlen(path) < sizeof d->path[0], "more files than expected");
        memcpy(d->path[i], path, strlen(path) + 1);
        d->file[i].data = NULL;
    }
    if (writing) d->file[i].size = 0;
    *file = &d->file[i];
    return 0;
}

static int fuzz_disk_size(void *user, void *file, uint64_t *size)
{
    (void)user;
    *size = ((const fuzz_bytes *)file)->size;
    return 0;
}

static int fuzz_disk_read(void *user, void *file, uint64_t offset, void *to, size_t size, size_t *done)
{
    const fuzz_bytes *b = (const fuzz_bytes *)file;
    (void)user;
    *done = offset >= b->size ? 0 : size < b->size - (size_t)offset ? size : b->size - (size_t)offset;
    if (*done > 0) memcpy(to, b->data + offset, *done);
    return 0;
}

static int fuzz_disk_write(void *user, void *file, const void *from, size_t size, size_t *done)
{
    (void)user;
    *done = size;
    return fuzz_write(file, from, size);
}

static int fuzz_disk_nothing(void *user, void *file) { (void)user; (void)file; return 0; }
static int fuzz_disk_path(void *user, const char *path) { (void)user; (void)path; return 0; }

static int fuzz_disk_rename(void *user, const char *from, const char *to)
{
    fuzz_disk *d = (fuzz_disk *)user;
    const size_t length = strlen(from);
    const int there = fuzz_disk_find(d, to);
    int i;
    if (there < d->files) { /* a file in place of another */
        free(d->file[there].data);
        d->files--;
        d->file[there] = d->file[d->files];
        memcpy(d->path[there], d->path[d->files], sizeof d->path[0]);
    }
    for (i = 0; i < d->files; i++) {
        char path[128];
        if (strncmp(d->path[i], from, length) != 0 || (d->path[i][length] != 0 && d->path[i][length] != '/')) continue;
        snprintf(path, sizeof path, "%.63s%.63s", to, d->path[i] + length);
        fuzz_check(strlen(path) < sizeof d->path[0], "a longer path than expected");
        memcpy(d->path[i], path, strlen(path) + 1);
    }
    return 0;
}

static int fuzz_disk_list(void *user, const char *path, int (*each)(void *list, const char *name), void *list)
{
    const fuzz_disk *d = (const fuzz_disk *)user;
    const size_t length = strlen(path);
    int i, k, stop = 0;
    for (i = 0; i < d->files && stop == 0; i++) {
        char name[64];
        if (strncmp(d->path[i], path, length) != 0 || d->path[i][length] != '/') continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(d->path[i] + length + 1, "/"), d->path[i] + length + 1);
        for (k = 0; k < i; k++)
            if (strncmp(d->path[k], d->path[i], length + 1 + strlen(name)) == 0 && strchr("/", d->path[k][length + 1 + strlen(name)]) != NULL) break;
        if (k == i) stop = each(list, name);
    }
    return stop;
}

static const char *fuzz_disk_text(void *user, int number) { (void)user; return number == 2 ? "not there" : "failed"; }

/* Blocks of a MiB come again and again: they are kept, so that an execution does not ask the system for pages. */
typedef struct fuzz_kept { void *block[4]; int blocks; } fuzz_kept;

static void *fuzz_kept_alloc(void *user, size_t size, size_t align)
{
    fuzz_kept *k = (fuzz_kept *)user;
    (void)align;
    if (size == FUZZ_DISK_BLOCK && k->blocks > 0) return k->block[--k->blocks];
    return malloc(size > 0 ? size : 1);
}

static void fuzz_kept_free(void *user, void *pointer, size_t size)
{
    fuzz_kept *k = (fuzz_kept *)user;
    if (size == FUZZ_DISK_BLOCK && k->blocks < 4) k->block[k->blocks++] = pointer;
    else free(pointer);
}

/* Lives as long as the process: a trained model of one layer, checkpoints of its steps 1 and 2. */
typedef struct fuzz_run {
    fuzz_disk files;
    het_disk disk;
    fuzz_kept kept;
    het_allocator allocator;
    het_ctx *ctx;
    het_saved *older;
    uint64_t hash;                    /* of the older one's weights */
} fuzz_run;

static const char *const fuzz_run_names[] = { "state.json", "model.safetensors", "optimizer.safetensors", "config.json", "latest" };

static void fuzz_run_step(fuzz_run *r, het_checkpoint *checkpoint)
{
    static const int32_t token[] = { 1, 2, 3, 0 }, target[] = { 2, 3, 0, 4 };
    static const int64_t start[] = { 0, 4 };
    static const het_pair option = { "lr", "0.001", 2, 5 };
    het_batch batch;
    memset(&batch, 0, sizeof batch);
    batch.tokens = 4;
    batch.sequences = 1;
    batch.token = token;
    batch.target = target;
    batch.sequence_start = start;
    fuzz_check(het_step(r->ctx, &batch, 1, NULL) == HET_OK, "a step");
    fuzz_check(het_checkpoint_take(checkpoint, r->ctx, &option, 1, NULL, 0, NULL) == HET_OK, "a copy");
    fuzz_check(het_checkpoint_write(checkpoint, NULL) == HET_OK, "a checkpoint");
}

static void fuzz_run_make(fuzz_run *r)
{
    het_checkpoint_desc saving;
    het_checkpoint *checkpoint = NULL;
    het_desc desc;
    memset(&desc, 0, sizeof desc);
    memset(&saving, 0, sizeof saving);
    fuzz_check(het_model_parse("llama:layers=1,width=4,heads=1,vocab=5,context=4,mlp_width=4", &desc.model, NULL) == HET_OK, "the model");
    desc.limits.max_tokens = desc.limits.max_sequences = 4;
    desc.limits.max_micro_batches = 1;
    desc.host.allocator.alloc = r->allocator.alloc = fuzz_kept_alloc;
    desc.host.allocator.free = r->allocator.free = fuzz_kept_free;
    desc.host.allocator.user = r->allocator.user = &r->kept;
    fuzz_check(het_create(&desc, &r->ctx, NULL) == HET_OK, "the context");
    r->disk.open = fuzz_disk_open;
    r->disk.size = fuzz_disk_size;
    r->disk.read = fuzz_disk_read;
    r->disk.write = fuzz_disk_write;
    r->disk.sync = r->disk.close = fuzz_disk_nothing;
    r->disk.sync_directory = r->disk.remove = r->disk.make_directory = fuzz_disk_path;
    r->disk.rename = fuzz_disk_rename;
    r->disk.list = fuzz_disk_list;
    r->disk.text = fuzz_disk_text;
    r->disk.again = 4;
    r->disk.absent = 2;
    r->disk.exists = 17;
    r->disk.user = &r->files;
    saving.disk = &r->disk;
    saving.directory = "run";
    fuzz_check(het_checkpoint_create(&saving, &checkpoint, NULL) == HET_OK, "the writer");
    fuzz_run_step(r, checkpoint);
    fuzz_check(het_hash(r->ctx, &r->hash) == HET_OK, "the hash");
    fuzz_run_step(r, checkpoint);
    het_checkpoint_destroy(checkpoint);
    fuzz_check(het_checkpoint_find(&r->disk, "run/step-00000001", &r->allocator, &r->older, NULL) == HET_OK, "the older one");
}

static void fuzz_append(fuzz_bytes *to, const char *text) { (void)fuzz_write(to, text, strlen(text)); }

/* state.json whose sizes and hashes of one file are those of its bytes; without a name, as it is. The last line fits, too. */
static fuzz_bytes fuzz_repair(const char *state, size_t size, const char *name, const fuzz_bytes *file)
{
    fuzz_bytes to = { NULL, 0 };
    const char *end = state + size, *at = end;
    char text[100];
    if (name != NULL) {
        const size_t length = (size_t)snprintf(text, sizeof text, "\"%s\":{\"size\":", name);
        for (at = state; at + length <= end && memcmp(at, text, length) != 0; at++) {}
        fuzz_check(at + length <= end, "state.json does not name the file");
    }
    (void)fuzz_write(&to, state, (size_t)(at - state));
    if (name != NULL) {
        fuzz_append(&to, text);
        snprintf(text, sizeof text, file->size > 0 ? "%zu,\"xxh64\":[\"%016llx\"" : "%zu,\"xxh64\":[", file->size,
                 (unsigned long long)het_xxh64(file->data, file->size, 0));
        fuzz_append(&to, text);
        while (*at != ']') at++;
        (void)fuzz_write(&to, at, (size_t)(end - at));
    }
    snprintf(text, sizeof text, ",\n\"checksum\":\"%016llx\"}\n", (unsigned long long)het_xxh64(to.data, to.size, 0));
    fuzz_append(&to, text);
    return to;
}

#define FUZZ_TAIL 34 /* bytes of state.json's last line */

/* What was found loads, or says why not; then the older one must. */
static void fuzz_load_found(fuzz_run *r, const het_saved *saved)
{
    het_error error = { HET_OK, "" };
    het_result result;
    uint64_t hash;
    int64_t i;
    for (i = 0; i < saved->files; i++) {
        char path[100], *bytes = (char *)malloc((size_t)saved->file[i].size + 1);
        size_t length;
        const fuzz_bytes *file;
        if (bytes == NULL) abort();
        snprintf(path, sizeof path, "%.60s/%.30s", saved->path, saved->file[i].name);
        file = &r->files.file[fuzz_disk_find(&r->files, path)];
        fuzz_check(het_checkpoint_file(saved, saved->file[i].name, bytes, (size_t)saved->file[i].size, &length, NULL) == HET_OK, "a file is lost");
        fuzz_check(length == file->size && (length == 0 || memcmp(bytes, file->data, length) == 0), "a file of other bytes");
        free(bytes);
    }
    result = het_checkpoint_load(saved, r->ctx, HET_NO, &error);
    fuzz_error(result, &error);
    if (result == HET_OK) fuzz_check(het_get_status(r->ctx) == 0 && het_get_step(r->ctx) == saved->step, "loaded, but not the step");
    fuzz_check(het_checkpoint_load(r->older, r->ctx, HET_NO, NULL) == HET_OK, "the older checkpoint does not load");
    fuzz_check(het_get_status(r->ctx) == 0 && het_hash(r->ctx, &hash) == HET_OK && hash == r->hash, "the older checkpoint's weights are others");
}

static int fuzz_checkpoint(const uint8_t *data, size_t size)
{
    static fuzz_run run;
    const int which = size > 0 ? data[0] % 5 : 0, repair = size > 0 && (data[0] & 64) != 0;
    char path[64];
    int place, state, whole;
    fuzz_bytes kept, kept_state, own;
    het_saved *saved = NULL;
    het_error error = { HET_OK, "" };
    het_result result;
    if (size == 0 || size > FUZZ_DISK_BLOCK) return 0;
    if (run.ctx == NULL) fuzz_run_make(&run);
    snprintf(path, sizeof path, "run/%s%s", which == 4 ? "" : "step-00000002/", fuzz_run_names[which]);
    place = fuzz_disk_find(&run.files, path);
    state = fuzz_disk_find(&run.files, "run/step-00000002/state.json");
    fuzz_check(place < run.files.files && state < run.files.files, "a file is missing");
    kept = run.files.file[place];
    kept_state = run.files.file[state];
    own.data = fuzz_copy(data + 1, size - 1);
    own.size = size - 1;
    whole = own.size == kept.size && memcmp(own.data, kept.data, kept.size) == 0;
    run.files.file[place] = own;
    if (repair && which == 0) run.files.file[state] = fuzz_repair(own.data, own.size, NULL, NULL);
    else if (repair && which < 4) run.files.file[state] = fuzz_repair(kept_state.data, kept_state.size - FUZZ_TAIL, fuzz_run_names[which], &own);
    result = het_checkpoint_find(&run.disk, "run", &run.allocator, &saved, &error);
    fuzz_check(result == HET_OK && saved != NULL, "nothing good was found");
    fuzz_check(saved->step == 1 || saved->step == 2 || which == 0, "a checkpoint of another step");
    fuzz_check((!whole || repair) || (saved->step == 2 && saved->damaged[0] == 0), "the whole one was not taken");
    if (saved->step != 1) fuzz_load_found(&run, saved);
    het_checkpoint_free(saved);
    if (run.files.file[state].data != own.data && run.files.file[state].data != kept_state.data) free(run.files.file[state].data);
    free(own.data);
    run.files.file[place] = kept;
    run.files.file[state] = kept_state;
    return 0;
}

FUZZ_ENTRY(fuzz_checkpoint)
