/* Checkpoints on a disk in memory that fails, forgets what was not synced, and flips bits: whatever happens while one is written, the one before is
   there, byte for byte; nothing damaged is accepted; a run that was stopped and went on in another layout ends with the bits of one that was not.
   HETRAIN_TEST_EVERY: of all truncations and bit flips every so manieth (50; make soak: 1). HETRAIN_TEST_LOSSES: random losses of power for each
   prefix of the log of writes (2; soak: 40). HETRAIN_TEST_ROUNDS: changes of layout (10; soak: 120), from the one numbered
   HETRAIN_TEST_FIRST_ROUND (0) on. HETRAIN_TEST_CHAIN: links of a chain (5; 20). */
#include "support.h"

#include "hetrain_files.h"

#include <errno.h>

/* ---- a disk in memory -------------------------------------------------------------------------------------------------
   Directories and files are numbered; names are a list of (directory, name, number). Every change is an entry of a log, from which the disk as a loss
   of power leaves it can be made. Number 0 is the directory called "run". */

enum { NODES = 600, NAMES = 200, ITEMS = 1500 };
typedef enum item_kind { ITEM_LINK, ITEM_RENAME, ITEM_REMOVE, ITEM_WRITE, ITEM_SYNC, ITEM_SYNC_DIRECTORY } item_kind;
typedef struct item {
    item_kind kind;
    int directory, node;   /* of SYNC_DIRECTORY: the directory */
    char name[32], to[32];
    size_t begin, end;     /* WRITE: bytes of the file */
} item;
typedef struct node { int directory; support_buffer data; } node;
typedef struct entry { int directory, node; char name[32]; } entry;
typedef struct disk {
    node node[NODES];
    int nodes;
    entry entry[NAMES];
    int entries;
    item log[ITEMS];
    int items;
    int64_t calls, fail_at;   /* the call that fails, -1: none */
    int sticky, number;       /* and all after it; with which number. -1: it does a part of its work */
    int opened;
} disk;
typedef struct handle { int node; } handle;

static int find_name(const disk *d, int directory, const char *name) {
    int i;
    for (i = 0; i < d->entries; i++)
        if (d->entry[i].directory == directory && strcmp(d->entry[i].name, name) == 0) return i;
    return -1;
}

static void unlink_name(disk *d, int directory, const char *name) {
    const int i = find_name(d, directory, name);
    if (i >= 0) d->entry[i] = d->entry[--d->entries];
}

static void link_name(disk *d, int directory, const char *name, int child) {
    unlink_name(d, directory, name);
    assert_true(d->entries < NAMES);
    d->entry[d->entries].directory = directory;
    d->entry[d->entries].node = child;
    snprintf(d->entry[d->entries++].name, sizeof d->entry[0].name, "%s", name);
}

static int new_node(disk *d, int directory) {
    assert_true(d->nodes < NODES);
    memset(&d->node[d->nodes], 0, sizeof d->node[0]);
    d->node[d->nodes].directory = directory;
    support_buffer_start(&d->node[d->nodes].data);
    return d->nodes++;
}

/* The directory of a path's last name, which goes to *name; -1: there is none. "run" itself: 0 and "". */
static int walk(const disk *d, const char *path, const char **name) {
    int at = 0, i;
    const char *slash;
    assert_memory_equal(path, "run", 3);
    if (path[3] == 0) {
        *name = path + 3;
        return 0;
    }
    for (path += 4; (slash = strchr(path, '/')) != NULL; path = slash + 1) {
        char part[64];
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        i = find_name(d, at, part);
        if (i < 0 || !d->node[d->entry[i].node].directory) return -1;
        at = d->entry[i].node;
    }
    *name = path;
    return at;
}

/* The node of a path, -1: there is none. */
static int lookup(const disk *d, const char *path) {
    const char *name;
    const int directory = walk(d, path, &name), i = directory >= 0 && name[0] != 0 ? find_name(d, directory, name) : -1;
    return directory == 0 && name[0] == 0 ? 0 : i >= 0 ? d->entry[i].node : -1;
}

static item *log_item(disk *d, item_kind kind, int directory, int child, const char *name) {
    item *it = &d->log[d->items++];
    assert_true(d->items <= ITEMS);
    memset(it, 0, sizeof *it);
    it->kind = kind, it->directory = directory, it->node = child;
    snprintf(it->name, sizeof it->name, "%s", name);
    return it;
}

/* Counts a call: 0, or the number it fails with, or -1: it does half of its work. */
static int fault(disk *d) {
    const int64_t call = d->calls++;
    return d->fail_at >= 0 && (call == d->fail_at || (d->sticky && call > d->fail_at)) ? d->number : 0;
}

static int memory_open(void *user, const char *path, int writing, void **file) {
    disk *d = (disk *)user;
    const char *name;
    const int number = fault(d), directory = walk(d, path, &name);
    int found = lookup(d, path);
    handle *h;
    if (number > 0) return number;
    if (directory < 0 || (!writing && found < 0)) return ENOENT;
    if (found >= 0 && d->node[found].directory) return EISDIR;
    if (writing) {
        found = new_node(d, 0);
        link_name(d, directory, name, found);
        log_item(d, ITEM_LINK, directory, found, name);
    }
    h = (handle *)support_alloc(1, sizeof *h);
    h->node = found;
    d->opened++;
    *file = h;
    return 0;
}

static int memory_size(void *user, void *file, uint64_t *size) {
    disk *d = (disk *)user;
    const int number = fault(d);
    if (number > 0) return number;
    *size = d->node[((handle *)file)->node].data.size;
    return 0;
}

static int memory_read(void *user, void *file, uint64_t offset, void *to, size_t size, size_t *done) {
    disk *d = (disk *)user;
    const support_buffer *b = &d->node[((handle *)file)->node].data;
    const int number = fault(d);
    if (number > 0) return number;
    *done = offset >= b->size ? 0 : b->size - (size_t)offset < size ? b->size - (size_t)offset : size;
    if (number < 0) *done = (*done + 1) / 2;
    if (*done > 0) memcpy(to, b->data + offset, *done);
    return 0;
}

/* A write that fails has written a part. */
static int memory_write(void *user, void *file, const void *from, size_t size, size_t *done) {
    disk *d = (disk *)user;
    const int child = ((handle *)file)->node, number = fault(d);
    item *it = log_item(d, ITEM_WRITE, 0, child, "");
    *done = number != 0 && number != EINTR ? (size + 1) / 2 : number == EINTR ? 0 : size;
    it->begin = d->node[child].data.size;
    support_buffer_append(&d->node[child].data, from, *done);
    it->end = d->node[child].data.size;
    return number > 0 ? number : 0;
}

static int memory_sync(void *user, void *file) {
    disk *d = (disk *)user;
    const int number = fault(d);
    if (number <= 0) log_item(d, ITEM_SYNC, 0, ((handle *)file)->node, "");
    return number > 0 ? number : 0;
}

static int memory_close(void *user, void *file) {
    disk *d = (disk *)user;
    const int number = fault(d);
    d->opened--;
    free(file);
    return number > 0 && number != EINTR ? number : 0;
}

static int memory_sync_directory(void *user, const char *path) {
    disk *d = (disk *)user;
    const int number = fault(d), found = lookup(d, path);
    if (number > 0) return number;
    if (found < 0 || !d->node[found].directory) return ENOENT;
    log_item(d, ITEM_SYNC_DIRECTORY, found, found, "");
    return 0;
}

static int is_empty(const disk *d, int directory) {
    int i;
    for (i = 0; i < d->entries; i++)
        if (d->entry[i].directory == directory) return 0;
    return 1;
}

static int memory_rename(void *user, const char *from, const char *to) {
    disk *d = (disk *)user;
    const char *name, *new_name;
    const int number = fault(d), a = lookup(d, from), directory = walk(d, from, &name), other = walk(d, to, &new_name), b = lookup(d, to);
    item *it;
    if (number > 0) return number;
    if (a < 0 || other < 0) return ENOENT;
    assert_int_equal(directory, other);
    if (b >= 0 && d->node[b].directory && !is_empty(d, b)) return EEXIST;
    it = log_item(d, ITEM_RENAME, directory, a, name);
    snprintf(it->to, sizeof it->to, "%s", new_name);
    unlink_name(d, directory, name);
    link_name(d, directory, it->to, a);
    return 0;
}

static int memory_remove(void *user, const char *path) {
    disk *d = (disk *)user;
    const char *name;
    const int number = fault(d), found = lookup(d, path), directory = walk(d, path, &name);
    if (number > 0) return number;
    if (found < 0) return ENOENT;
    if (d->node[found].directory && !is_empty(d, found)) return ENOTEMPTY;
    log_item(d, ITEM_REMOVE, directory, found, name);
    unlink_name(d, directory, name);
    return 0;
}

static int memory_make(void *user, const char *path) {
    disk *d = (disk *)user;
    const char *name;
    const int number = fault(d), directory = walk(d, path, &name);
    int child;
    if (number > 0) return number;
    if (directory < 0) return ENOENT;
    if (lookup(d, path) >= 0) return EEXIST;
    child = new_node(d, 1);
    link_name(d, directory, name, child);
    log_item(d, ITEM_LINK, directory, child, name);
    return 0;
}

static int memory_list(void *user, const char *path, int (*each)(void *list, const char *name), void *list) {
    disk *d = (disk *)user;
    const int number = fault(d), found = lookup(d, path);
    int i, stop = 0;
    if (number > 0) return number;
    if (found < 0) return ENOENT;
    if (!d->node[found].directory) return ENOTDIR;
    if ((stop = each(list, ".")) != 0 || (stop = each(list, "..")) != 0) return stop;
    for (i = 0; i < d->entries && stop == 0; i++)
        if (d->entry[i].directory == found) stop = each(list, d->entry[i].name);
    return stop;
}

static const char *memory_text(void *user, int number) {
    (void)user;
    return strerror(number);
}

static het_disk table(disk *d) {
    het_disk t;
    memset(&t, 0, sizeof t);
    t.open = memory_open, t.size = memory_size, t.read = memory_read, t.write = memory_write, t.sync = memory_sync, t.close = memory_close;
    t.sync_directory = memory_sync_directory, t.rename = memory_rename, t.remove = memory_remove, t.make_directory = memory_make;
    t.list = memory_list, t.text = memory_text;
    t.again = EINTR, t.absent = ENOENT, t.exists = EEXIST, t.user = d;
    return t;
}

static disk *disk_start(void) {
    disk *d = (disk *)support_alloc(1, sizeof *d);
    memset(d, 0, sizeof *d);
    d->fail_at = -1;
    new_node(d, 1);
    return d;
}

static void disk_end(disk *d) {
    int i;
    assert_int_equal(d->opened, 0);
    for (i = 0; i < d->nodes; i++) support_buffer_end(&d->node[i].data);
    free(d);
}

static disk *disk_copy(const disk *from) {
    disk *d = (disk *)support_alloc(1, sizeof *d);
    int i;
    memcpy(d, from, sizeof *d);
    d->items = 0, d->calls = 0;
    for (i = 0; i < d->nodes; i++) {
        support_buffer_start(&d->node[i].data);
        support_buffer_append(&d->node[i].data, from->node[i].data.data, from->node[i].data.size);
    }
    return d;
}

/* XXH64 over names and bytes of a directory's files. 0: it is not there. */
static uint64_t directory_hash(const disk *d, const char *path) {
    const int found = lookup(d, path);
    uint64_t hash = found >= 0;
    int i;
    for (i = 0; i < d->entries && found >= 0; i++) { /* a sum: the order of names is nobody's business */
        const support_buffer *b = &d->node[d->entry[i].node].data;
        if (d->entry[i].directory == found) hash += het_xxh64(b->data, b->size, het_xxh64(d->entry[i].name, strlen(d->entry[i].name), 0));
    }
    return hash;
}

/* The disk after the first `items` entries of a log and a loss of power. policy 0: all has arrived; 1: only what was synced; else what was not synced
   arrives by chance, names and parts of files each for themselves. */
static disk *after_loss(const disk *from, int items, int policy, uint64_t *seed) {
    disk *d = disk_start();
    int i, k;
    for (i = 1; i < from->nodes; i++) new_node(d, from->node[i].directory);
    for (i = 0; i < items; i++) {
        const item *it = &from->log[i];
        int synced = 0;
        size_t size = it->end - it->begin;
        for (k = i + 1; k < items && !synced; k++)
            synced = it->kind == ITEM_WRITE ? from->log[k].kind == ITEM_SYNC && from->log[k].node == it->node
                                            : from->log[k].kind == ITEM_SYNC_DIRECTORY && from->log[k].directory == it->directory;
        if (!synced && policy == 1) continue;
        if (!synced && policy > 1 && support_below(seed, 2) == 0) continue;
        if (it->kind == ITEM_LINK) link_name(d, it->directory, it->name, it->node);
        else if (it->kind == ITEM_WRITE) {
            if (d->node[it->node].data.size < it->begin) continue; /* a hole: nothing behind it counts */
            if (!synced && policy > 1) size = (size_t)support_below(seed, (int64_t)size + 1);
            support_buffer_append(&d->node[it->node].data, from->node[it->node].data.data + it->begin, size);
        } else if (it->kind == ITEM_RENAME || it->kind == ITEM_REMOVE) {
            k = find_name(d, it->directory, it->name);
            if (k >= 0 && d->entry[k].node == it->node) unlink_name(d, it->directory, it->name);
            if (it->kind == ITEM_RENAME) link_name(d, it->directory, it->to, it->node);
        }
    }
    return d;
}

/* ---- a small run ------------------------------------------------------------------------------------------------------ */

static void small_run(support_run *run) {
    het_model_desc model;
    memset(&model, 0, sizeof model);
    model.family = HET_GPT2;
    model.layers = 1, model.width = 8, model.heads = 1, model.vocab = 12, model.context = 48;
    EXPECT_OK(het_model_complete(&model, NULL));
    support_run_start(run, &model, 3, SUPPORT_SHORT);
}

static const het_pair options[] = { { "lr", "0.001", 2, 5 }, { "data", "caf\xE9 \"x\"\n", 4, 9 }, { "note", "\xC3\xA9\\", 4, 3 } };

static const het_beside beside[] = { { "notes.txt", "a\0b\nc", 5, 0 } }, more[] = { { "notes.txt", "a", 1, 0 }, { "more.bin", "a", 1, 1 } };

static het_checkpoint *checkpoint_of(disk *d, int64_t keep, const het_allocator *allocator) {
    const het_disk t = table(d);
    het_checkpoint_desc desc;
    het_checkpoint *c = NULL;
    memset(&desc, 0, sizeof desc);
    desc.disk = &t, desc.directory = "run", desc.keep = keep;
    if (allocator != NULL) desc.allocator = *allocator;
    EXPECT_OK(het_checkpoint_create(&desc, &c, NULL));
    return c;
}

static het_saved *find(disk *d, const char *path) {
    const het_disk t = table(d);
    het_saved *saved = NULL;
    het_error error = { HET_OK, "" };
    const het_result result = het_checkpoint_find(&t, path, NULL, &saved, &error);
    if (result != HET_OK) fail_msg("find %s: %s", path, error.text);
    return saved;
}

static void take(het_checkpoint *c, het_ctx *ctx) {
    EXPECT_OK(het_checkpoint_take(c, ctx, options, 3, beside, 1, NULL));
}

/* A context trained for `steps` steps. */
static het_ctx *trained(support_run *run, int steps) {
    het_ctx *ctx = support_create(&run->desc);
    int step;
    for (step = 0; step < steps; step++) support_step(ctx, &run->data, step, SUPPORT_TOGETHER);
    return ctx;
}

/* ---- what is written and found ---------------------------------------------------------------------------------------- */

static void round_trip(void **state) {
    disk *d = disk_start();
    support_run run;
    het_ctx *ctx, *other;
    het_checkpoint *c = checkpoint_of(d, 2, NULL);
    het_saved *saved;
    char text[4096];
    size_t length;
    int step;
    (void)state;
    small_run(&run);
    ctx = support_create(&run.desc);
    EXPECT_OK(het_checkpoint_write(c, NULL)); /* nothing taken: nothing written */
    assert_int_equal(d->entries, 0);
    for (step = 0; step < 4; step++) {
        support_step(ctx, &run.data, step, SUPPORT_TOGETHER);
        take(c, ctx);
        EXPECT_OK(het_checkpoint_write(c, NULL));
    }
    assert_int_equal(lookup(d, "run/step-00000002"), -1); /* two are kept */
    assert_int_equal(lookup(d, "run/saving.tmp"), -1);
    assert_int_equal(lookup(d, "run/removing.tmp"), -1);
    assert_true(lookup(d, "run/step-00000003") > 0);
    saved = find(d, "run");
    assert_int_equal(saved->step, 4);
    assert_string_equal(saved->path, "run/step-00000004");
    assert_string_equal(saved->damaged, "");
    assert_string_equal(het_checkpoint_option(saved, "lr"), "0.001");
    assert_string_equal(het_checkpoint_option(saved, "data"), "caf? ?x??");
    assert_string_equal(het_checkpoint_option(saved, "note"), "\xC3\xA9\\");
    assert_null(het_checkpoint_option(saved, "step"));
    EXPECT_OK(het_checkpoint_file(saved, "config.json", text, sizeof text, &length, NULL));
    assert_true(length > 10 && text[0] == '{');
    EXPECT_OK(het_checkpoint_file(saved, "notes.txt", text, sizeof text, &length, NULL));
    assert_true(length == 5 && memcmp(text, "a\0b\nc", 5) == 0);
    assert_int_equal(het_checkpoint_file(saved, "notes.txt", text, 4, &length, NULL), HET_ERR_LIMIT);
    assert_int_equal(het_checkpoint_file(saved, "nothing", text, 4, &length, NULL), HET_ERR_INVALID);
    other = support_create(&run.desc);
    EXPECT_OK(het_checkpoint_load(saved, other, HET_DEFAULT, NULL));
    assert_int_equal(het_get_step(other), 4);
    support_same_state(ctx, other, 0, "saved and loaded");
    EXPECT_OK(het_checkpoint_take(c, ctx, options, 3, more, 2, NULL));
    EXPECT_OK(het_checkpoint_export(c, NULL));
    assert_true(lookup(d, "run/model.safetensors") > 0 && lookup(d, "run/config.json") > 0 && lookup(d, "run/notes.txt") > 0);
    assert_true(lookup(d, "run/optimizer.safetensors") == -1 && lookup(d, "run/more.bin") == -1);
    het_checkpoint_free(saved);
    het_destroy(other);
    run.desc.optimizer.learning_rate = 0.25f; /* other options: refused, and allowed */
    other = support_create(&run.desc);
    saved = find(d, "run/step-00000003");
    {
        const uint64_t hash = support_hash(other);
        het_error error = { HET_OK, "" };
        EXPECT_ERROR(het_checkpoint_load(saved, other, HET_DEFAULT, &error), HET_ERR_INVALID, error.text, "learning_rate|file|context");
        assert_true(support_hash(other) == hash && het_get_status(other) == 0); /* the weights are not loaded either */
    }
    EXPECT_OK(het_checkpoint_load(saved, other, HET_YES, NULL));
    assert_int_equal(het_get_step(other), 3);
    het_checkpoint_free(saved);
    het_destroy(other);
    het_destroy(ctx);
    het_checkpoint_destroy(c);
    support_run_end(&run);
    disk_end(d);
}

/* Checkpoints of later steps, which a run that was taken up again has left behind, go; of an equal step the new one counts. */
static void left_behind(void **state) {
    disk *d = disk_start();
    support_run run;
    het_ctx *early, *late;
    het_checkpoint *c = checkpoint_of(d, 3, NULL);
    het_saved *saved;
    uint64_t first;
    (void)state;
    small_run(&run);
    early = trained(&run, 2), late = trained(&run, 5);
    link_name(d, 0, "saving.tmp", new_node(d, 0)), link_name(d, 0, "removing.tmp", new_node(d, 0)); /* files, no directories */
    take(c, late);
    EXPECT_OK(het_checkpoint_write(c, NULL));
    take(c, early);
    EXPECT_OK(het_checkpoint_write(c, NULL));
    assert_int_equal(lookup(d, "run/removing.tmp"), -1);
    saved = find(d, "run");
    assert_int_equal(saved->step, 2);
    het_checkpoint_free(saved);
    assert_int_equal(lookup(d, "run/step-00000005"), -1);
    first = directory_hash(d, "run/step-00000002");
    EXPECT_OK(het_checkpoint_take(c, early, options, 1, NULL, 0, NULL));
    EXPECT_OK(het_checkpoint_write(c, NULL));
    assert_true(first != directory_hash(d, "run/step-00000002"));
    assert_int_equal(lookup(d, "run/step-00000002.old"), -1);
    het_destroy(early);
    het_destroy(late);
    het_checkpoint_destroy(c);
    support_run_end(&run);
    disk_end(d);
}

/* ---- damage ------------------------------------------------------------------------------------------------------------ */

/* Whatever a checkpoint has lost or gained in a bit, it is refused, and the one before is found with a line about it. */
static void damage(void **state) {
    static const char *const files[] = { "state.json", "config.json", "model.safetensors", "optimizer.safetensors", "notes.txt" };
    const int every = support_environment("HETRAIN_TEST_EVERY", 50);
    disk *d = disk_start();
    const het_disk t = table(d);
    support_run run;
    het_ctx *ctx;
    het_checkpoint *c = checkpoint_of(d, 2, NULL);
    het_saved *saved = NULL;
    het_error error = { HET_OK, "" };
    int64_t tried = 0, bit;
    int which;
    (void)state;
    small_run(&run);
    ctx = trained(&run, 1);
    take(c, ctx);
    EXPECT_OK(het_checkpoint_write(c, NULL));
    support_step(ctx, &run.data, 1, SUPPORT_TOGETHER);
    take(c, ctx);
    EXPECT_OK(het_checkpoint_write(c, NULL));
    for (which = 0; which < 5; which++) {
        char path[64];
        support_buffer *b;
        size_t size, length;
        snprintf(path, sizeof path, "run/step-00000002/%s", files[which]);
        b = &d->node[lookup(d, path)].data;
        size = b->size;
        for (bit = which % every; bit < 8 * (int64_t)size; bit += every, tried++) {
            b->data[bit / 8] = (unsigned char)(b->data[bit / 8] ^ 1u << bit % 8);
            if (het_checkpoint_find(&t, "run/step-00000002", NULL, &saved, &error) == HET_OK) fail_msg("%s: accepted, bit %d", path, (int)bit);
            b->data[bit / 8] = (unsigned char)(b->data[bit / 8] ^ 1u << bit % 8);
            if (strstr(error.text, "step-00000002") == NULL) fail_msg("bit %d: no place: %s", (int)bit, error.text);
        }
        for (length = (size_t)which; length < size; length += (size_t)every, tried++) {
            b->size = length;
            if (het_checkpoint_find(&t, "run/step-00000002", NULL, &saved, &error) == HET_OK) fail_msg("%s: accepted, %d bytes", path, (int)length);
        }
        b->size = size - 1; /* the one before is taken, and this one is named */
        saved = find(d, "run");
        assert_int_equal(saved->step, 1);
        assert_non_null(strstr(saved->damaged, which == 0 ? "step-00000002/state.json" : files[which]));
        het_checkpoint_free(saved);
        b->size = size;
    }
    print_message("# %d damaged checkpoints, all refused\n", (int)tried);
    saved = find(d, "run");
    assert_int_equal(saved->step, 2);
    het_checkpoint_free(saved);
    het_destroy(ctx);
    het_checkpoint_destroy(c);
    support_run_end(&run);
    disk_end(d);
}

/* A file that changes between finding and loading is found out while it is read. */
static void damage_later(void **state) {
    disk *d = disk_start();
    support_run run;
    het_ctx *ctx, *other;
    het_checkpoint *c = checkpoint_of(d, 2, NULL);
    het_saved *saved;
    het_error error = { HET_OK, "" };
    support_buffer *b;
    (void)state;
    small_run(&run);
    ctx = trained(&run, 2);
    take(c, ctx);
    EXPECT_OK(het_checkpoint_write(c, NULL));
    saved = find(d, "run");
    b = &d->node[lookup(d, "run/step-00000002/optimizer.safetensors")].data;
    b->data[b->size - 3] ^= 16;
    other = support_create(&run.desc);
    EXPECT_ERROR(het_checkpoint_load(saved, other, HET_DEFAULT, &error), HET_ERR_FORMAT, error.text, "optimizer.safetensors|XXH64|state.json says");
    b->data[b->size - 3] ^= 16;
    EXPECT_OK(het_checkpoint_load(saved, other, HET_DEFAULT, NULL));
    support_same_state(ctx, other, 0, "loaded at the second try");
    het_checkpoint_free(saved);
    het_destroy(other);
    het_destroy(ctx);
    het_checkpoint_destroy(c);
    support_run_end(&run);
    disk_end(d);
}

static uint64_t checksum_of(const char *text) { return het_xxh64(text, strlen(text), 0); }

/* state.json that somebody wrote by hand, checksum and all. */
static void bad_state(void **state) {
    static const struct { const char *text, *words; } bad[] = {
        { "", "0 bytes|few" },
        { "{\"format\":2,\"step\":1,\"options\":{},\"files\":{}", "format|byte" },
        { "{\"step\":1,\"options\":{},\"files\":{}", "lacks" },
        { "{\"format\":1,\"step\":-1,\"options\":{},\"files\":{\"model.safetensors\":{\"size\":0,\"xxh64\":[]},\"optimizer.safetensors\":"
          "{\"size\":0,\"xxh64\":[]},\"config.json\":{\"size\":0,\"xxh64\":[]}}", "negative" },
        { "{\"format\":1,\"format\":1,\"step\":1", "twice" },
        { "{\"format\":1,\"step\":1,\"options\":{\"a\":1}", "string" },
        { "{\"format\":1,\"step\":1,\"options\":[]", "byte 31" },
        { "{\"format\":1,\"step\":1,\"options\":{},\"files\":{\"a/b\":{}}", "not a name" },
        { "{\"format\":1,\"step\":1,\"options\":{},\"files\":{\"config.json\":{\"size\":0,\"xxh64\":[]},\"config.json\":{}}", "twice" },
        { "{\"format\":1,\"step\":1,\"options\":{},\"files\":{}", "lacks" },
        { "{\"format\":1,\"step\":1,\"options\":{},\"files\":{\"config.json\":{\"size\":5,\"xxh64\":[]}}", "every MiB" },
        { "{\"format\":1,\"step\":1,\"options\":{},\"files\":{\"config.json\":{\"size\":-5,\"xxh64\":[]}}", "every MiB" },
        { "{\"format\":1,\"step\":1,\"options\":{},\"files\":{\"config.json\":{\"size\":5,\"xxh64\":[\"123\"]}}", "16" },
        { "{\"format\":1,\"step\":1,\"options\":{},\"files\":{\"config.json\":{\"size\":5,\"xxh64\":[\"123456789ABCDEF0\"]}}", "lower-case" },
        { "{\"format\":1,\"step\":1,\"options\":{},\"files\":{\"config.json\":{\"size\":5,\"xxh64\":[7]}}", "string" },
        { "{\"format\":1,\"step\":1,\"options\":{},\"files\":{\"config.json\":{\"size\":99999999999999999999,\"xxh64\":[]}}", "byte" },
        { "{\"format\":1,\"step\":1,\"options\":{\"\xFF\":\"1\"}", "UTF-8" },
        { "[1", "byte 0" },
    };
    disk *d = disk_start();
    const het_disk t = table(d);
    het_saved *saved = NULL;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[600];
        het_error error = { HET_OK, "" };
        void *file;
        size_t done;
        if (bad[i].text[0] == 0) text[0] = 0;
        else snprintf(text, sizeof text, "%s,\n\"checksum\":\"%016llx\"}\n", bad[i].text, (unsigned long long)checksum_of(bad[i].text));
        assert_int_equal(memory_open(d, "run/state.json", 1, &file), 0);
        assert_int_equal(memory_write(d, file, text, strlen(text), &done), 0);
        memory_close(d, file);
        EXPECT_ERROR(het_checkpoint_find(&t, "run", NULL, &saved, &error), HET_ERR_FORMAT, error.text, bad[i].words);
        assert_null(saved);
    }
    disk_end(d);
}

/* ---- faults of the disk and of memory ----------------------------------------------------------------------------------- */

/* Every call of a write fails in every way, once and from then on. `same`: a checkpoint of the same step, but other options, is there already. */
static int64_t write_faults(int same, int64_t keep) {
    static const int numbers[] = { EIO, ENOSPC, EINTR, -1 };
    disk *base = disk_start(), *d;
    support_run run;
    het_ctx *ctx;
    het_checkpoint *c = checkpoint_of(base, keep, NULL);
    uint64_t before, after;
    int64_t points = 0, call;
    int kind, sticky, failed;
    small_run(&run);
    ctx = trained(&run, 2);
    take(c, ctx);
    EXPECT_OK(het_checkpoint_write(c, NULL));
    support_step(ctx, &run.data, 2, SUPPORT_TOGETHER);
    EXPECT_OK(het_checkpoint_take(c, ctx, options, 1, NULL, 0, NULL));
    EXPECT_OK(het_checkpoint_write(c, NULL));
    before = directory_hash(base, "run/step-00000003");
    if (!same) support_step(ctx, &run.data, 3, SUPPORT_TOGETHER);
    het_checkpoint_destroy(c);
    d = disk_copy(base);
    c = checkpoint_of(d, keep, NULL);
    take(c, ctx);
    EXPECT_OK(het_checkpoint_write(c, NULL));
    after = directory_hash(d, same ? "run/step-00000003" : "run/step-00000004");
    het_checkpoint_destroy(c);
    disk_end(d);
    for (kind = 0; kind < 4; kind++)
        for (sticky = 0; sticky < 2; sticky++)
            for (call = 0, failed = 1; failed; call++, points++) {
                het_saved *saved;
                het_result result;
                uint64_t found;
                d = disk_copy(base);
                c = checkpoint_of(d, keep, NULL);
                take(c, ctx);
                d->fail_at = call, d->sticky = sticky, d->number = numbers[kind];
                result = het_checkpoint_write(c, NULL);
                failed = d->calls > call;
                d->fail_at = -1;
                assert_int_equal(d->opened, 0);
                if (!sticky) assert_true(lookup(d, "run/saving.tmp") == -1 && lookup(d, "run/latest.tmp") == -1);
                if (!sticky && numbers[kind] == EINTR) assert_int_equal(result, HET_OK); /* it is done once more */
                if (numbers[kind] == -1) assert_int_equal(result, HET_OK);
                saved = find(d, "run");
                found = directory_hash(d, saved->path);
                if (found != before && found != after) fail_msg("call %d, kind %d: neither before nor after", (int)call, kind);
                if (result == HET_OK) assert_true(found == after);
                if (same && !sticky) assert_true(lookup(d, "run/step-00000003") != -1); /* under its own name */
                het_checkpoint_free(saved);
                if (!same && keep > 1) assert_true(directory_hash(d, "run/step-00000003") == before);
                EXPECT_OK(het_checkpoint_write(c, NULL)); /* the disk is well again */
                assert_true(directory_hash(d, same ? "run/step-00000003" : "run/step-00000004") == after);
                assert_int_equal(lookup(d, "run/saving.tmp"), -1);
                assert_int_equal(lookup(d, "run/removing.tmp"), -1);
                assert_int_equal(lookup(d, "run/step-00000003.old"), -1);
                saved = find(d, "run");
                assert_true(directory_hash(d, saved->path) == after);
                het_checkpoint_free(saved);
                het_checkpoint_destroy(c);
                disk_end(d);
            }
    het_destroy(ctx);
    support_run_end(&run);
    disk_end(base);
    return points;
}

static void faults_of_writing(void **state) {
    const int64_t points = write_faults(0, 2) + write_faults(1, 2) + write_faults(0, 1) + write_faults(1, 1);
    (void)state;
    print_message("# %d faults while writing\n", (int)points);
    assert_true(points >= 1000);
}

/* Finding and loading: an error or the right bits, and nothing left open. */
static void faults_of_reading(void **state) {
    static const int numbers[] = { EIO, EINTR, -1 };
    disk *d = disk_start();
    const het_disk t = table(d);
    support_run run;
    het_ctx *ctx, *other;
    het_checkpoint *c = checkpoint_of(d, 2, NULL);
    int64_t points = 0, call;
    int kind, sticky, failed;
    (void)state;
    small_run(&run);
    ctx = trained(&run, 1);
    take(c, ctx);
    EXPECT_OK(het_checkpoint_write(c, NULL));
    support_step(ctx, &run.data, 1, SUPPORT_TOGETHER);
    take(c, ctx);
    EXPECT_OK(het_checkpoint_write(c, NULL));
    other = support_create(&run.desc);
    for (kind = 0; kind < 3; kind++)
        for (sticky = 0; sticky < 2; sticky++)
            for (call = 0, failed = 1; failed; call++, points++) {
                het_saved *saved = NULL;
                het_error error = { HET_OK, "" };
                het_result result;
                d->calls = 0, d->fail_at = call, d->sticky = sticky, d->number = numbers[kind];
                result = het_checkpoint_find(&t, "run", NULL, &saved, &error);
                if (result == HET_OK) result = het_checkpoint_load(saved, other, HET_DEFAULT, &error);
                failed = d->calls > call;
                d->fail_at = -1;
                assert_int_equal(d->opened, 0);
                if (result != HET_OK && error.text[0] == 0) fail_msg("call %d, kind %d: no message", (int)call, kind);
                if (!sticky && numbers[kind] == EINTR) assert_int_equal(result, HET_OK);
                if (numbers[kind] == -1) assert_int_equal(result, HET_OK);
                if (result == HET_OK && saved->step == 2) support_same_state(ctx, other, 0, "loaded");
                het_checkpoint_free(saved);
            }
    print_message("# %d faults while reading\n", (int)points);
    het_destroy(other);
    het_destroy(ctx);
    het_checkpoint_destroy(c);
    support_run_end(&run);
    disk_end(d);
}

/* Every allocation fails, once and from then on. */
static void faults_of_memory(void **state) {
    disk *d = disk_start();
    const het_disk t = table(d);
    support_run run;
    het_ctx *ctx;
    support_memory memory;
    het_result result = HET_ERR_OOM;
    int64_t call, points = 0;
    (void)state;
    small_run(&run);
    ctx = trained(&run, 1);
    for (call = 0; result != HET_OK; call++, points++) {
        het_checkpoint_desc desc;
        het_checkpoint *c = NULL;
        het_saved *saved = NULL;
        het_error error = { HET_OK, "" };
        memset(&memory, 0, sizeof memory);
        memset(&desc, 0, sizeof desc);
        desc.disk = &t, desc.directory = "run", desc.allocator = support_allocator(&memory);
        memory.fail_at = call;
        result = het_checkpoint_create(&desc, &c, &error);
        if (result == HET_OK) result = het_checkpoint_take(c, ctx, options, 3, beside, 1, &error);
        if (result == HET_OK) {
            const int64_t calls = memory.calls;
            result = het_checkpoint_write(c, &error);
            assert_int_equal(memory.calls, calls); /* writing allocates nothing */
        }
        if (result == HET_OK) result = het_checkpoint_find(&t, "run", &desc.allocator, &saved, &error);
        if (result == HET_OK) result = het_checkpoint_load(saved, ctx, HET_DEFAULT, &error);
        if (result != HET_OK) EXPECT_ERROR(result, HET_ERR_OOM, error.text, "allocator");
        het_checkpoint_free(saved);
        het_checkpoint_destroy(c);
        assert_int_equal(memory.live, 0);
        assert_int_equal(memory.wrong, 0);
        assert_int_equal(d->opened, 0);
    }
    print_message("# %d failed allocations\n", (int)points);
    assert_true(points > 8);
    het_destroy(ctx);
    support_run_end(&run);
    disk_end(d);
}

/* What was reserved is all that saving takes, of a context that trains on; less than that is refused, and the error says how many bytes are
   missing. */
static void reserved_for(int lora, het_family family) {
    disk *d = disk_start();
    const het_disk t = table(d);
    support_run run;
    support_memory memory, own;
    het_memory estimate;
    het_checkpoint_desc desc;
    het_checkpoint *c = NULL;
    het_ctx *ctx;
    het_model_desc model = support_deep_model(family);
    het_error error = { HET_OK, "" };
    het_result result = HET_ERR_OOM;
    int64_t calls, own_calls, call;
    size_t bytes = 0;
    int step;
    model.lora_rank = lora;
    if (lora > 0) EXPECT_OK(het_model_complete(&model, NULL));
    support_run_start(&run, &model, 6, SUPPORT_SHORT);
    memset(&own, 0, sizeof own);
    own.fail_at = -1;
    run.desc.host.allocator = support_allocator(&own);
    ctx = support_create(&run.desc);
    memset(&desc, 0, sizeof desc);
    desc.disk = &t, desc.directory = "run", desc.allocator = support_allocator(&memory);
    for (call = 1; result != HET_OK; call++) {
        het_checkpoint_destroy(c);
        memset(&memory, 0, sizeof memory);
        memory.fail_at = call;
        EXPECT_OK(het_checkpoint_create(&desc, &c, NULL));
        assert_int_equal(het_checkpoint_bytes(c), 0);
        result = het_checkpoint_reserve(c, ctx, options, 3, beside, 1, &error);
        if (result != HET_OK) EXPECT_ERROR(result, HET_ERR_OOM, error.text, "saving|bytes are missing");
    }
    bytes = het_checkpoint_bytes(c);
    assert_true(bytes > 0 && bytes <= memory.bytes);
    het_get_memory(ctx, 0, &estimate); /* the tensors of the files, which the copy has beside texts */
    assert_true(bytes > estimate.saving && estimate.saving > 0);
    assert_true(bytes < 2 * estimate.saving + 12 * (4096 + 128 * (size_t)het_parameter_count(ctx)));
    calls = memory.calls, own_calls = own.calls;
    for (step = 0; step < 12; step++) {
        support_step(ctx, &run.data, step, SUPPORT_TOGETHER);
        take(c, ctx);
        EXPECT_OK(het_checkpoint_write(c, NULL));
        EXPECT_OK(het_checkpoint_export(c, NULL));
    }
    assert_int_equal(memory.calls, calls);
    assert_int_equal(own.calls, own_calls);
    assert_int_equal(het_checkpoint_bytes(c), bytes);
    het_checkpoint_destroy(c);
    assert_int_equal(memory.live, 0);
    assert_int_equal(memory.wrong, 0);
    het_destroy(ctx);
    support_run_end(&run);
    disk_end(d);
}

static void reserved(void **state) {
    (void)state;
    reserved_for(0, HET_GPT2);
    reserved_for(0, HET_QWEN3);
    reserved_for(2, HET_GPT2);
    reserved_for(2, HET_LLAMA);
}

/* ---- loss of power -------------------------------------------------------------------------------------------------------- */

/* Five checkpoints, the third twice, one kept; power goes after each entry of the log. From the first complete one on, one is always found: the last
   that was complete, or the one being written. */
static void power(void **state) {
    enum { WRITES = 6 };
    const int losses = support_environment("HETRAIN_TEST_LOSSES", 2);
    disk *d = disk_start();
    support_run run;
    het_ctx *ctx;
    het_checkpoint *c = checkpoint_of(d, 1, NULL);
    uint64_t hash[WRITES + 1], seed = 5;
    int end[WRITES], w, items, policy, points = 0, done = 0;
    (void)state;
    small_run(&run);
    ctx = trained(&run, 1);
    for (w = 0; w < WRITES; w++) {
        char path[64];
        if (w > 0 && w != 3) support_step(ctx, &run.data, w, SUPPORT_TOGETHER);
        EXPECT_OK(het_checkpoint_take(c, ctx, options, w % 3, beside, w % 2, NULL));
        EXPECT_OK(het_checkpoint_write(c, NULL));
        snprintf(path, sizeof path, "run/step-%08d", (int)het_get_step(ctx));
        hash[w] = directory_hash(d, path);
        end[w] = d->items;
    }
    hash[WRITES] = 0;
    for (items = 0; items <= d->items; items++) {
        while (done < WRITES && end[done] <= items) done++;
        for (policy = 0; policy < 2 + losses; policy++, points++) {
            disk *left = after_loss(d, items, policy, &seed);
            const het_disk t = table(left);
            het_saved *saved = NULL;
            het_error error = { HET_OK, "" };
            const het_result result = het_checkpoint_find(&t, "run", NULL, &saved, &error);
            if (result != HET_OK && done > 0) fail_msg("%d entries, policy %d, %d complete: %s", items, policy, done, error.text);
            if (result == HET_OK) {
                const uint64_t found = directory_hash(left, saved->path);
                if (found != hash[done] && (done == 0 || found != hash[done - 1]))
                    fail_msg("%d entries, policy %d, %d complete: %s is neither the last nor the next", items, policy, done, saved->path);
            }
            het_checkpoint_free(saved);
            disk_end(left);
        }
    }
    print_message("# %d losses of power\n", points);
    het_destroy(ctx);
    het_checkpoint_destroy(c);
    support_run_end(&run);
    disk_end(d);
}

/* ---- other layouts -------------------------------------------------------------------------------------------------------- */

static const char *const layouts[] = { NULL, SUPPORT_TOGETHER, "012|345", "01|23|45", "01|2|34|5", "01|2|3|4|5", SUPPORT_APART };

/* What the runs of a chain train. */
static void start_training(support_run *run, int round) {
    static const het_family families[] = { HET_GPT2, HET_LLAMA, HET_QWEN3, HET_NEOX };
    const het_model_desc model = support_deep_model(families[round % 4]);
    uint64_t seed = (uint64_t)round;
    support_run_start(run, &model, 6, SUPPORT_SHORT);
    if (round % 2) support_draw_training(run, &seed);
}

/* One of them in a layout drawn from `seed`: ranks, plan, schedule, threads, gradients whole or in parts. */
static void draw_layout(support_run *run, int round, uint64_t *seed) {
    static const char *const schedules[] = { "1f1b", "gpipe", "zb-h1", "interleaved", "zb-v", "zb-h2" };
    static const char *const shapes[] = { "pp", "dp", "dp2xpp2", "pp:0-0|1-1|2-2|3-$", "dp2xpp:0-5|6-$" };
    const char *schedule = schedules[support_below(seed, 6)];
    const int v = schedule[0] == 'i' || strcmp(schedule, "zb-v") == 0;
    char shape[40];
    start_training(run, round);
    if (support_below(seed, 4) == 0) return;
    support_run_ranks(run, 4);
    support_run_mixed(run, (int)support_below(seed, 5), seed);
    support_last_unit(shape, sizeof shape, v ? "pp" : shapes[support_below(seed, 5)], run);
    support_run_plan(run, shape, schedule, 1);
    run->desc.layout.shard = (het_shard)(HET_SHARD_STATE + support_below(seed, 3));
}

/* `links` times: some steps, a checkpoint, and on in another layout. */
static void chain(int round, int links) {
    uint64_t seed = (uint64_t)round * 1000003 + 17;
    support_run whole, run;
    disk *d = disk_start();
    het_checkpoint *c = checkpoint_of(d, 2, NULL);
    het_ctx *straight, *ctx = NULL;
    het_saved *saved;
    int link, step = 0, last;
    start_training(&whole, round);
    straight = support_create(&whole.desc);
    for (link = 0; link <= links; link++) {
        draw_layout(&run, round, &seed);
        ctx = support_create(&run.desc);
        if (link > 0) {
            saved = find(d, "run");
            EXPECT_OK(het_checkpoint_load(saved, ctx, HET_DEFAULT, NULL));
            het_checkpoint_free(saved);
        }
        for (last = step + 1 + (int)support_below(&seed, 2); step < last; step++) {
            support_step(straight, &whole.data, step, SUPPORT_TOGETHER);
            support_step(ctx, &run.data, step, layouts[1 + support_below(&seed, 6)]);
        }
        if (link < links) {
            take(c, ctx);
            EXPECT_OK(het_checkpoint_write(c, NULL));
            het_destroy(ctx);
            support_run_end(&run);
        }
    }
    support_same_state(straight, ctx, 0, "a run that was stopped");
    assert_true(support_hash(straight) == support_hash(ctx));
    het_destroy(straight);
    het_destroy(ctx);
    het_checkpoint_destroy(c);
    support_run_end(&run);
    support_run_end(&whole);
    disk_end(d);
}

static void transitions(void **state) {
    const int first = support_environment("HETRAIN_TEST_FIRST_ROUND", 0), rounds = support_environment("HETRAIN_TEST_ROUNDS", 10);
    int round;
    (void)state;
    for (round = first; round < first + rounds; round++) chain(round, 1);
}

static void long_chain(void **state) {
    (void)state;
    chain(1000, support_environment("HETRAIN_TEST_CHAIN", 5));
}

/* ---- misuse --------------------------------------------------------------------------------------------------------------- */

/* A model with factors whose own chain has none: each call says its own name. */
static void no_factors(void **state) {
    disk *d = disk_start();
    het_checkpoint *c = checkpoint_of(d, 2, NULL);
    het_saved *saved;
    support_run run;
    het_unit unit[4];
    het_ctx *ctx;
    het_error e = { HET_OK, "" };
    int64_t count;
    (void)state;
    small_run(&run);
    run.desc.model.lora_rank = 2;
    EXPECT_OK(het_model_complete(&run.desc.model, &e));
    ctx = support_create(&run.desc);
    take(c, ctx);
    EXPECT_OK(het_checkpoint_write(c, &e));
    het_destroy(ctx);
    EXPECT_OK(het_model_units(&run.desc.model, unit, 4, &count, &e));
    unit[1] = unit[2], unit[2] = unit[3]; /* embed, mlp, head: no attention, whose q, k and v have the factors */
    run.desc.units = unit, run.desc.unit_count = 3, run.desc.inference = HET_YES; /* nothing could be trained */
    ctx = support_create(&run.desc);
    saved = find(d, "run");
    EXPECT_ERROR(het_checkpoint_reserve(c, ctx, NULL, 0, NULL, 0, &e), HET_ERR_STATE, e.text, "het_checkpoint_reserve: |no factors (lora_rank is 2)");
    EXPECT_ERROR(het_checkpoint_take(c, ctx, NULL, 0, NULL, 0, &e), HET_ERR_STATE, e.text, "het_checkpoint_take: |no factors");
    EXPECT_ERROR(het_checkpoint_load(saved, ctx, HET_NO, &e), HET_ERR_STATE, e.text, "het_checkpoint_load: |no factors");
    het_checkpoint_free(saved);
    het_checkpoint_destroy(c);
    het_destroy(ctx);
    support_run_end(&run);
    disk_end(d);
}

/* What could be written, but not be found again, or has no bytes. */
static void options_and_files_that_are_none(void **state) {
    disk *d = disk_start();
    het_checkpoint *c = checkpoint_of(d, 0, NULL);
    support_run run;
    het_error e = { HET_OK, "" };
    het_beside none = { "tokenizer.json", NULL, 3, 0 };
    char key[257];
    het_pair pair = { key, "value", 256, 5 };
    het_ctx *ctx;
    (void)state;
    memset(key, 'k', sizeof key);
    key[256] = 0;
    small_run(&run);
    ctx = trained(&run, 0);
    EXPECT_ERROR(het_checkpoint_take(c, ctx, &pair, 1, NULL, 0, &e), HET_ERR_INVALID, e.text, "option 0|256 bytes");
    pair.key_length = 255;
    key[255] = 0;
    pair.value = NULL;
    EXPECT_ERROR(het_checkpoint_reserve(c, ctx, &pair, 1, NULL, 0, &e), HET_ERR_INVALID, e.text, "het_checkpoint_reserve|option 0|NULL");
    pair.value = "value";
    EXPECT_ERROR(het_checkpoint_take(c, ctx, &pair, 1, &none, 1, &e), HET_ERR_INVALID, e.text, "file 0|NULL");
    EXPECT_OK(het_checkpoint_take(c, ctx, &pair, 1, NULL, 0, &e));
    EXPECT_OK(het_checkpoint_write(c, &e));
    {
        het_saved *saved = find(d, "run");
        assert_string_equal(het_checkpoint_option(saved, key), "value");
        het_checkpoint_free(saved);
    }
    het_checkpoint_destroy(c);
    het_destroy(ctx);
    support_run_end(&run);
    disk_end(d);
}

static void misuse(void **state) {
    disk *d = disk_start();
    const het_disk t = table(d);
    het_checkpoint_desc desc;
    het_checkpoint *c = NULL;
    het_saved *saved = NULL;
    het_error e = { HET_OK, "" };
    char name[1100];
    size_t length;
    (void)state;
    memset(&desc, 0, sizeof desc);
    EXPECT_ERROR(het_checkpoint_create(NULL, &c, &e), HET_ERR_INVALID, e.text, "het_checkpoint_create|NULL");
    EXPECT_ERROR(het_checkpoint_create(&desc, &c, &e), HET_ERR_INVALID, e.text, "disk");
    desc.disk = &t, desc.directory = "run";
    EXPECT_ERROR(het_checkpoint_create(&desc, NULL, &e), HET_ERR_INVALID, e.text, "NULL");
    desc.keep = -1;
    EXPECT_ERROR(het_checkpoint_create(&desc, &c, &e), HET_ERR_INVALID, e.text, "keep");
    desc.keep = 0, desc.end_canary = 3;
    EXPECT_ERROR(het_checkpoint_create(&desc, &c, &e), HET_ERR_INVALID, e.text, "cleared");
    desc.end_canary = 0;
    memset(name, 'x', sizeof name);
    name[1001] = 0;
    desc.directory = name;
    EXPECT_ERROR(het_checkpoint_create(&desc, &c, &e), HET_ERR_LIMIT, e.text, "1001|1000");
    EXPECT_ERROR(het_checkpoint_find(&t, name, NULL, &saved, &e), HET_ERR_LIMIT, e.text, "1001|1000");
    EXPECT_ERROR(het_checkpoint_find(&t, "run", NULL, &saved, &e), HET_ERR_IO, e.text, "run|no checkpoint");
    EXPECT_ERROR(het_checkpoint_find(&t, "run/nothing", NULL, &saved, &e), HET_ERR_IO, e.text, "run/nothing|No such file");
    EXPECT_ERROR(het_checkpoint_find(NULL, "run", NULL, &saved, &e), HET_ERR_INVALID, e.text, "NULL");
    EXPECT_ERROR(het_checkpoint_take(NULL, NULL, NULL, 0, NULL, 0, &e), HET_ERR_INVALID, e.text, "het_checkpoint_take");
    EXPECT_ERROR(het_checkpoint_reserve(NULL, NULL, NULL, 0, NULL, 0, &e), HET_ERR_INVALID, e.text, "het_checkpoint_reserve");
    assert_int_equal(het_checkpoint_bytes(NULL), 0);
    EXPECT_ERROR(het_checkpoint_write(NULL, &e), HET_ERR_INVALID, e.text, "het_checkpoint_write");
    EXPECT_ERROR(het_checkpoint_export(NULL, &e), HET_ERR_INVALID, e.text, "het_checkpoint_export");
    EXPECT_ERROR(het_checkpoint_load(NULL, NULL, HET_DEFAULT, &e), HET_ERR_INVALID, e.text, "het_checkpoint_load");
    EXPECT_ERROR(het_checkpoint_file(NULL, "x", NULL, 0, &length, &e), HET_ERR_INVALID, e.text, "het_checkpoint_file");
    assert_null(het_checkpoint_option(NULL, "x"));
    het_checkpoint_destroy(NULL);
    het_checkpoint_free(NULL);
    disk_end(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_and_files_that_are_none),
        cmocka_unit_test(round_trip), cmocka_unit_test(left_behind), cmocka_unit_test(damage), cmocka_unit_test(damage_later),
        cmocka_unit_test(bad_state), cmocka_unit_test(faults_of_writing), cmocka_unit_test(faults_of_reading), cmocka_unit_test(faults_of_memory),
        cmocka_unit_test(reserved),
        cmocka_unit_test(power), cmocka_unit_test(transitions), cmocka_unit_test(long_chain), cmocka_unit_test(no_factors),
        cmocka_unit_test(misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
