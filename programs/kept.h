/* kept.h: what stays with a model on its way: the other keys of its config.json, and the files of generation and tokenizer that lie beside it.
   Include it after common.h. */
#ifndef PROGRAMS_KEPT_H
#define PROGRAMS_KEPT_H

#include "common.h"
#include "files.h"
#include "text.h"

enum { KEPT_FILES = 9 };
typedef struct kept_files {
    char *config;                /* the config.json that the model was read from; NULL: it was described */
    size_t config_length;
    het_beside file[KEPT_FILES]; /* in memory of their own */
    int64_t files;
} kept_files;

/* Whether generation_config.json can be read: what transformers would stop at must not get lost. */
static inline int kept_check(const char *path, const char *text, size_t length) {
    het_error error = { HET_OK, "" };
    int64_t count;
    if (strstr(path, "generation_config.json") == NULL || het_ends_from_json(text, length, 1, NULL, 0, &count, &error) == HET_OK) return 0;
    return fail(BAD_INPUT, "--init %s: %s", path, error.text);
}

/* init: weights or their directory; spec: --model, or NULL; tokenizer: --tokenizer FILE, beside which its settings are, or NULL: beside the weights.
   whole: tokenizer.json too. */
static inline int kept_open(kept_files *k, const char *init, const char *spec, const char *tokenizer, int whole) {
    static const char *const names[KEPT_FILES] = { "generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                                                   "vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "tokenizer.json" };
    char path[1024];
    int i, status = 0;
    if (spec == NULL && init != NULL && beside_weights(init, "config.json", path, sizeof path)) {
        if ((k->config = read_found_file(path, &k->config_length)) == NULL) return fail(BAD_INPUT, "--init %s: %s", path, small_file_error());
    }
    for (i = 0; i < KEPT_FILES - !whole && status == 0; i++) {
        const char *where = i > 0 && tokenizer != NULL ? tokenizer : init;
        het_beside *f = &k->file[k->files];
        char *data = NULL;
        if (where == NULL || !beside_weights(where, names[i], path, sizeof path)) continue;
        if ((status = read_file("--init", path, &data, &f->size)) != 0) break;
        f->name = names[i], f->data = data;
        k->files++;
        status = kept_check(path, data, f->size);
    }
    return status;
}

/* The files into a directory. */
static inline int kept_write(const kept_files *k, const char *option_name, const char *directory) {
    char path[1024];
    int64_t i;
    int status = 0;
    for (i = 0; i < k->files && status == 0; i++) {
        if (!path_join(path, sizeof path, directory, k->file[i].name)) return fail(BAD_INPUT, "%s: path too long", option_name);
        status = write_file(option_name, path, (const char *)k->file[i].data, k->file[i].size);
    }
    return status;
}

/* A het_writer over a FILE that is read: fails at the first byte that is another. */
static inline int file_compare(void *user, const void *from, size_t size) {
    const unsigned char *byte = (const unsigned char *)from;
    while (size > 0 && fgetc((FILE *)user) == *byte) byte++, size--;
    return size > 0;
}

/* Whether the directory holds another file under one of their names, which nobody may lose unasked. tokenizer NULL: none is written. */
static inline int kept_spares(const kept_files *k, const het_tokenizer *tokenizer, const char *option_name, const char *directory) {
    char path[1024];
    int64_t i;
    for (i = 0; i < k->files + (tokenizer != NULL); i++) {
        const char *name = i < k->files ? k->file[i].name : "tokenizer.json";
        FILE *there = path_join(path, sizeof path, directory, name) && not_a_file(path) == NULL ? fopen(path, "rb") : NULL;
        const het_writer writer = { file_compare, there, path };
        int other;
        if (there == NULL) continue;
        other = (i < k->files ? file_compare(there, k->file[i].data, k->file[i].size) : het_tokenizer_write(tokenizer, &writer) != HET_OK) ||
                fgetc(there) != EOF;
        fclose(there);
        if (other) return fail(BAD_INPUT, "%s %s: holds another %s: --overwrite puts what is written in its place", option_name, directory, name);
    }
    return 0;
}

static inline void kept_close(kept_files *k) {
    while (k->files > 0) free((void *)(uintptr_t)k->file[--k->files].data);
    free(k->config);
    k->config = NULL;
}

#endif
