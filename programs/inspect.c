/* What weight files hold: names, types, shapes, places and metadata of every tensor, after proving that the file is one.
     build/inspect model.safetensors          one file
     build/inspect build/run                  a directory: its config.json, every safetensors file in it, an index of shards
     build/inspect build/run/step-00000100    a checkpoint: also its step and options, and every byte against its checksums
     build/inspect --json DIR                 the same as one JSON object
   Exit status: 0 the files are good, 2 bad usage or a bad file (one line names the file, the byte and the rule), 1 anything else. */
#define PROGRAM "inspect"
#define HETRAIN_IMPLEMENTATION
#include "common.h"
#include "experts.h"
#include "disk.h"
#include "files.h"

enum { PATHS = 10000, MOST_TENSORS = 1000000 };

typedef struct settings {
    const char *path;
    int64_t json;
} settings;

#define AT(field) offsetof(settings, field)
static const option options[] = {
    OPTION_TITLE("Options"),
    { "--json", NULL, OPTION_FLAG, AT(json), 0, 0, "prints one JSON object" },
    OPTION_LAST_ROWS
};
enum { OPTIONS = sizeof options / sizeof options[0] };

static FILE *output; /* standard output; with --json memory: an object is printed whole or not at all */

/* ---- text ---- */

/* A name or value from a file: what is not printable ASCII is shown as \xNN, so that nothing reaches the terminal but text. */
static void print_plain(const char *text, size_t length) {
    size_t i;
    for (i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c >= ' ' && c <= '~' && c != '\\') fputc(c, output);
        else fprintf(output, "\\x%02x", c);
    }
}

/* A JSON string; bytes beyond ASCII are valid UTF-8 in a table that was read, and pass. */
static void print_quoted(const char *text, size_t length) {
    size_t i;
    fputc('"', output);
    for (i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\') fprintf(output, "\\%c", c);
        else if (c < ' ' || c == 127) fprintf(output, "\\u%04x", c);
        else fputc(c, output);
    }
    fputc('"', output);
}

static void print_shape(const het_safetensor *t, const char *between) {
    int i;
    fputc('[', output);
    for (i = 0; i < t->rank; i++) fprintf(output, "%s%lld", i > 0 ? between : "", (long long)t->shape[i]);
    fputc(']', output);
}

/* ---- one file ---- */

static void table_as_text(const char *path, const het_safetensors *file) {
    int64_t i;
    size_t widest = 4;
    fprintf(output, "%s: %llu bytes, header %llu, %lld tensors\n", path, (unsigned long long)file->size, (unsigned long long)file->data,
            (long long)file->tensors);
    for (i = 0; i < file->pairs; i++) {
        fprintf(output, "  ");
        print_plain(file->pair[i].key, file->pair[i].key_length);
        fprintf(output, " = ");
        print_plain(file->pair[i].value, file->pair[i].value_length);
        fputc('\n', output);
    }
    for (i = 0; i < file->tensors; i++)
        if (file->tensor[i].name_length > widest && file->tensor[i].name_length < 80) widest = file->tensor[i].name_length;
    for (i = 0; i < file->tensors; i++) {
        const het_safetensor *t = &file->tensor[i];
        fprintf(output, "  ");
        print_plain(t->name, t->name_length);
        fprintf(output, "%*s %-8s %12llu .. %-12llu ", (int)(t->name_length < widest ? widest - t->name_length : 0), "", het_element_name(t->element),
                (unsigned long long)(file->data + t->begin), (unsigned long long)(file->data + t->end));
        print_shape(t, ", ");
        fputc('\n', output);
    }
}

static void table_as_json(const char *path, const het_safetensors *file) {
    int64_t i;
    fprintf(output, "{\"file\":");
    write_json_string(output, path);
    fprintf(output, ",\"bytes\":%llu,\"data\":%llu,\"metadata\":{", (unsigned long long)file->size, (unsigned long long)file->data);
    for (i = 0; i < file->pairs; i++) {
        if (i > 0) fputc(',', output);
        print_quoted(file->pair[i].key, file->pair[i].key_length);
        fputc(':', output);
        print_quoted(file->pair[i].value, file->pair[i].value_length);
    }
    fprintf(output, "},\"tensors\":[");
    for (i = 0; i < file->tensors; i++) {
        const het_safetensor *t = &file->tensor[i];
        fprintf(output, "%s\n{\"name\":", i > 0 ? "," : "");
        print_quoted(t->name, t->name_length);
        fprintf(output, ",\"dtype\":\"%s\",\"shape\":", het_element_name(t->element));
        print_shape(t, ",");
        fprintf(output, ",\"offsets\":[%llu,%llu]}", (unsigned long long)(file->data + t->begin), (unsigned long long)(file->data + t->end));
    }
    fprintf(output, "]}");
}

/* before: what JSON has in front of it. */
static int inspect_file(const settings *s, const char *path, const char *before) {
    het_reader reader;
    het_safetensors *file = NULL;
    het_error error = { HET_OK, "" };
    const char *bad = not_a_file(path);
    het_result result = bad == NULL ? het_reader_open(path, &reader, &error) : HET_ERR_IO;
    if (result != HET_OK) return fail(BAD_INPUT, "%s: %s", path, bad != NULL ? bad : behind_name(error.text, path));
    result = het_safetensors_read(&reader, MOST_TENSORS, NULL, &file, &error);
    if (result == HET_OK) {
        if (s->json) fprintf(output, "%s\n", before);
        if (s->json) table_as_json(path, file);
        else table_as_text(path, file);
    }
    het_safetensors_free(file);
    het_reader_close(&reader);
    return result == HET_OK ? 0 : fail(status_of(result), "%s", error.text); /* names the file */
}

/* ---- a directory ---- */

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The names of its safetensors files, in order. */
static int list_files(const char *path, char **name, int *count) {
    DIR *folder = opendir(path);
    struct dirent *entry;
    char other[1300];
    if (folder == NULL) return fail(BAD_INPUT, "%s: %s", path, strerror(errno));
    while ((entry = readdir(folder)) != NULL && *count < PATHS) {
        const size_t length = strlen(entry->d_name);
        if (length <= 12 || strcmp(entry->d_name + length - 12, ".safetensors") != 0) continue;
        name[*count] = (char *)malloc(length + 1);
        if (name[*count] == NULL) break;
        memcpy(name[(*count)++], entry->d_name, length + 1);
    }
    closedir(folder);
    qsort(name, (size_t)*count, sizeof *name, by_name);
    return *count > 0 ? 0 : fail(BAD_INPUT, "%s: holds no safetensors file%s", path, in_checkpoint(path, "state.json", other));
}

/* The model in config.json, where there is one. With `fits` it is not shown but, without experts, held against the weights beside it. */
static int inspect_config(const settings *s, int fits) {
    char path[1200], text[2048];
    het_model_desc model;
    het_experts experts;
    size_t length;
    int status;
    if (!path_join(path, sizeof path, s->path, "config.json")) return fail(BAD_INPUT, "%s: path too long", s->path);
    if (access(path, F_OK) != 0) return 0;
    status = model_or_experts("model", path, &model, &experts);
    if (status == 0 && fits) return experts.experts > 0 ? 0 : model_fits("config.json", s->path, &model);
    if (status != 0 || het_model_format(&model, text, sizeof text, &length) != HET_OK) return status;
    if (s->json) fprintf(output, "\"model\":\"%s\",", text);
    else fprintf(output, "model %s\n", text);
    if (experts.experts > 0 && s->json) fprintf(output, "\"experts\":\"%lld,%lld\",", (long long)experts.experts, (long long)experts.used);
    else if (experts.experts > 0)
        fprintf(output, "experts %lld of width %lld, %lld used\n", (long long)experts.experts, (long long)experts.width, (long long)experts.used);
    return 0;
}

/* ---- an index of shards ---- */

#define INDEX "model.safetensors.index.json"

typedef struct shard { het_safetensors *file; unsigned char *listed; } shard;
typedef struct plain_name { char text[61]; } plain_name;

/* A name from a file for a message: its first 60 bytes, ? for what is not printable ASCII. */
static plain_name plain(const char *name) {
    plain_name shown;
    int i;
    for (i = 0; i < 60 && name[i] != 0; i++) shown.text[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?';
    shown.text[i] = 0;
    return shown;
}

/* One pair of the index: the file is a name of this directory, is there, holds the tensor, and the tensor has not been listed before. */
static int check_entry(const settings *s, char *const *name, shard *table, int count, const char *tensor, size_t tensor_length, const char *file,
                       size_t file_length, size_t at) {
    char path[1200];
    const plain_name shown = plain(tensor);
    const het_safetensor *found;
    het_error error = { HET_OK, "" };
    int i;
    if (!het_folder_is_name(file, file_length))
        return fail(BAD_INPUT, "%s/" INDEX ": byte %zu: the file of tensor %s is no name in this directory", s->path, at, shown.text);
    for (i = 0; i < count && strcmp(name[i], file) != 0; i++) {}
    if (i == count) return fail(BAD_INPUT, "%s/" INDEX ": byte %zu: tensor %s is put in %s, which is not there", s->path, at, shown.text, file);
    if (table[i].file == NULL) {
        het_reader reader;
        het_result result;
        if (!path_join(path, sizeof path, s->path, file)) return fail(BAD_INPUT, "%s: path too long", s->path);
        result = is_pipe(path) ? het_error_put(&error, HET_ERR_IO, A_PIPE) : het_reader_open(path, &reader, &error);
        if (result != HET_OK) return fail(BAD_INPUT, "%s: %s", path, behind_name(error.text, path));
        result = het_safetensors_read(&reader, MOST_TENSORS, NULL, &table[i].file, &error);
        het_reader_close(&reader);
        if (result != HET_OK) return fail(status_of(result), "%s", error.text);
        table[i].listed = (unsigned char *)calloc((size_t)table[i].file->tensors + 1, 1);
        if (table[i].listed == NULL) return fail(FAILED, "no memory for %lld tensors", (long long)table[i].file->tensors);
    }
    found = het_safetensors_find(table[i].file, tensor, tensor_length);
    if (found == NULL) return fail(BAD_INPUT, "%s/" INDEX ": byte %zu: tensor %s is not in %s", s->path, at, shown.text, file);
    if (table[i].listed[found - table[i].file->tensor]++)
        return fail(BAD_INPUT, "%s/" INDEX ": byte %zu: tensor %s comes twice", s->path, at, shown.text);
    return 0;
}

static int check_map(const settings *s, char *const *name, shard *table, int count, het_json *j, int64_t *tensors) {
    char tensor[256], file[256];
    size_t tensor_length, file_length;
    int status = 0;
    het_json_enter(j, HET_JSON_OBJECT);
    while (status == 0 && het_json_next(j, tensor, sizeof tensor, &tensor_length)) {
        const size_t at = j->at;
        if (!het_json_string(j, file, sizeof file, &file_length)) break;
        if (tensor_length >= sizeof tensor || file_length >= sizeof file)
            return fail(BAD_INPUT, "%s/" INDEX ": byte %zu: a name is longer than 255 bytes", s->path, at);
        status = check_entry(s, name, table, count, tensor, tensor_length, file, file_length, at);
        ++*tensors;
    }
    return status;
}

/* Tensors that the index leaves out of a file that it names. */
static int check_rest(const settings *s, char *const *name, const shard *table, int count) {
    int64_t t;
    int i;
    for (i = 0; i < count; i++)
        for (t = 0; table[i].file != NULL && t < table[i].file->tensors; t++)
            if (!table[i].listed[t]) {
                const plain_name shown = plain(table[i].file->tensor[t].name);
                return fail(BAD_INPUT, "%s/" INDEX ": lacks tensor %s of %s", s->path, shown.text, name[i]);
            }
    return 0;
}

static int read_index(const settings *s, const char *path, char *const *name, shard *table, int count) {
    char key[16], *text = NULL;
    size_t length = 0, key_length;
    int64_t tensors = 0;
    het_json j;
    int status = read_file(s->path, path, &text, &length), maps = 0;
    if (status != 0) return status;
    j = het_json_start(text, length);
    het_json_enter(&j, HET_JSON_OBJECT);
    while (status == 0 && het_json_next(&j, key, sizeof key, &key_length)) {
        if (key_length == 10 && memcmp(key, "weight_map", 10) == 0 && maps++ == 0) status = check_map(s, name, table, count, &j, &tensors);
        else het_json_skip(&j);
    }
    if (status == 0) het_json_end(&j);
    if (status == 0 && j.rule != NULL) status = fail(BAD_INPUT, "%s: byte %zu: %s", path, j.rule_at, j.rule);
    if (status == 0 && maps != 1) status = fail(BAD_INPUT, "%s: weight_map %s", path, maps == 0 ? "is missing" : "comes twice");
    if (status == 0) status = check_rest(s, name, table, count);
    if (status == 0 && s->json) fprintf(output, "\"index\":%lld,", (long long)tensors);
    else if (status == 0) fprintf(output, "index of %lld tensors\n", (long long)tensors);
    free(text);
    return status;
}

/* Where there is one, every tensor of every file that it names is in it once, under that file. */
static int inspect_index(const settings *s, char *const *name, int count) {
    char path[1200];
    shard *table;
    int i, status;
    if (!path_join(path, sizeof path, s->path, INDEX)) return fail(BAD_INPUT, "%s: path too long", s->path);
    if (access(path, F_OK) != 0) return 0;
    if ((table = (shard *)calloc((size_t)count + 1, sizeof *table)) == NULL) return fail(FAILED, "no memory");
    status = read_index(s, path, name, table, count);
    for (i = 0; i < count; i++) {
        het_safetensors_free(table[i].file);
        free(table[i].listed);
    }
    free(table);
    return status;
}

/* ---- a checkpoint ---- */

enum { SHOWN_HASHES = 2 };

static void checkpoint_as_text(const het_saved *saved) {
    int64_t i, k;
    fprintf(output, "state after step %lld\n", (long long)saved->step);
    for (i = 0; i < saved->options; i++) {
        fprintf(output, "  ");
        print_plain(saved->option[i].key, saved->option[i].key_length);
        fprintf(output, " = ");
        print_plain(saved->option[i].value, saved->option[i].value_length);
        fputc('\n', output);
    }
    for (i = 0; i < saved->files; i++) {
        const het_saved_file *f = &saved->file[i];
        const int64_t blocks = (int64_t)((f->size + 1048575) / 1048576);
        fprintf(output, "  %s: %llu bytes, XXH64 of %lld block%s good:", f->name, (unsigned long long)f->size, (long long)blocks,
                blocks == 1 ? "" : "s");
        for (k = 0; k < blocks && k < SHOWN_HASHES; k++) fprintf(output, " %016llx", (unsigned long long)f->hash[k]);
        fprintf(output, "%s\n", blocks > SHOWN_HASHES ? " ..." : "");
    }
}

static void checkpoint_as_json(const het_saved *saved) {
    int64_t i, k;
    fprintf(output, "\"step\":%lld,\"options\":{", (long long)saved->step);
    for (i = 0; i < saved->options; i++) {
        if (i > 0) fputc(',', output);
        print_quoted(saved->option[i].key, saved->option[i].key_length);
        fputc(':', output);
        print_quoted(saved->option[i].value, saved->option[i].value_length);
    }
    fprintf(output, "},\"checksums\":{");
    for (i = 0; i < saved->files; i++) {
        const het_saved_file *f = &saved->file[i];
        fprintf(output, "%s", i > 0 ? "," : "");
        print_quoted(f->name, strlen(f->name));
        fprintf(output, ":[");
        for (k = 0; k < (int64_t)((f->size + 1048575) / 1048576); k++)
            fprintf(output, "%s\"%016llx\"", k > 0 ? "," : "", (unsigned long long)f->hash[k]);
        fputc(']', output);
    }
    fprintf(output, "},");
}

/* Where there is a state.json the directory is a checkpoint: every byte of it is read and compared with its checksums. */
static int inspect_checkpoint(const settings *s) {
    const het_disk disk = disk_posix();
    het_saved *saved = NULL;
    het_error error = { HET_OK, "" };
    het_result result;
    char path[1200];
    if (!path_join(path, sizeof path, s->path, "state.json")) return fail(BAD_INPUT, "%s: path too long", s->path);
    if (access(path, F_OK) != 0) return 0;
    result = het_checkpoint_find(&disk, s->path, NULL, &saved, &error);
    if (result == HET_OK && s->json) checkpoint_as_json(saved);
    else if (result == HET_OK) checkpoint_as_text(saved);
    het_checkpoint_free(saved);
    return result == HET_OK ? 0 : fail(result == HET_ERR_OOM ? FAILED : BAD_INPUT, "%s", error.text);
}

static int inspect_directory(const settings *s) {
    char **name = (char **)calloc(PATHS, sizeof *name), path[1200];
    int count = 0, i, status = name != NULL ? inspect_checkpoint(s) : fail(FAILED, "no memory");
    if (status == 0) status = inspect_config(s, 0);
    if (status == 0) status = list_files(s->path, name, &count);
    if (status == 0) status = inspect_index(s, name, count);
    for (i = 0; i < 2 && status == 0; i++)
        if (path_join(path, sizeof path, s->path, i == 0 ? "model.safetensors" : INDEX) && access(path, F_OK) == 0) {
            status = inspect_config(s, 1);
            break;
        }
    for (i = 0; i < count && status == 0; i++) {
        if (!path_join(path, sizeof path, s->path, name[i])) status = fail(BAD_INPUT, "%s: path too long", s->path);
        else status = inspect_file(s, path, i == 0 ? "\"files\":[" : ",");
    }
    for (i = 0; i < count; i++) free(name[i]);
    free(name);
    return status;
}

static int program(int argc, char **argv) {
    static const char summary[] = "build/inspect FILE|DIR\n\nLists what weight files hold, after proving them.";
    settings s;
    unsigned char given[OPTIONS] = { 0 };
    char *object = NULL;
    size_t length = 0;
    int status, i, kept = 1;
    memset(&s, 0, sizeof s);
    for (i = 1; i < argc; i++) { /* what is no option is the path */
        if (argv[i][0] == '-') argv[kept++] = argv[i];
        else if (s.path == NULL) s.path = argv[i];
        else return fail(BAD_INPUT, "%s: one FILE or DIR is enough, and %s came before it", argv[i], s.path);
    }
    status = options_parse(summary, options, OPTIONS, &s, given, kept, argv);
    if (status >= 0) return status;
    if (s.path == NULL) return fail(BAD_INPUT, "FILE or DIR is missing; --help lists the options");
    output = s.json ? open_memstream(&object, &length) : stdout;
    if (output == NULL) return fail(FAILED, "no memory");
    if (is_directory(s.path)) {
        if (s.json) fprintf(output, "{");
        status = inspect_directory(&s);
    } else status = inspect_file(&s, s.path, "{\"files\":[");
    if (!s.json) return status;
    fprintf(output, "]}\n");
    if (fclose(output) != 0 && status == 0) status = fail(FAILED, "no memory");
    if (status == 0) fwrite(object, 1, length, stdout);
    free(object);
    return status;
}

int main(int argc, char **argv) {
    program_begin();
    return program_end(program(argc, argv));
}
