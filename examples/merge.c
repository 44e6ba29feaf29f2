/* merge: puts low-rank factors into the weights they belong to: W + (alpha / r) B A.
     build/merge --init DIR --adapter DIR --out DIR      DIR then is a model like any other */
#define PROGRAM "merge"
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_FILES_IMPLEMENTATION
#include "common.h"
#include "loaded.h"

typedef struct settings {
    loaded_options from;
    const char *out;
} settings;

static const option options[] = {
    { "--init", "FILE|DIR", OPTION_TEXT, LOADED_AT(from, init), 0, 0, "weights (safetensors)" },
    { "--model", "SPEC", OPTION_TEXT, LOADED_AT(from, model), 0, 0, "by default the config.json beside the weights" },
    { "--adapter", "DIR", OPTION_TEXT, LOADED_AT(from, adapter), 0, 0, "factors (adapter_config.json, adapter_model.safetensors)" },
    { "--out", "DIR", OPTION_TEXT, offsetof(settings, out), 0, 0, "gets model.safetensors, config.json and the tokenizer's files" },
    { "--help", NULL, OPTION_HELP, 0, 0, 0, "this text" },
};
enum { OPTIONS = (int)(sizeof options / sizeof options[0]) };

typedef struct merging { settings set; unsigned char given[OPTIONS]; loaded model; } merging;

static int write_whole(const char *directory, const char *name, const char *text, size_t length) {
    char path[1024], temporary[1040];
    FILE *file;
    if (!path_join(path, sizeof path, directory, name)) return fail(BAD_INPUT, "--out: path too long");
    if ((file = open_file(path, temporary, sizeof temporary)) == NULL) return fail(BAD_INPUT, "--out %s: %s", path, strerror(errno));
    fwrite(text, 1, length, file);
    return close_file(file, temporary, path);
}

static int write_config(const merging *m) {
    het_model_desc model = m->model.desc.model;
    char text[8192];
    size_t length;
    het_result result;
    model.lora_rank = model.lora_targets = 0, model.lora_alpha = 0;
    result = het_model_to_json(&model, text, sizeof text, &length);
    return result == HET_OK ? write_whole(m->set.out, "config.json", text, length) : fail(FAILED, "config.json: %s", het_result_text(result));
}

/* Tokenizer files, byte by byte. */
static int copy_beside(const merging *m) {
    static const char *const names[] = { "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
                                         "merges.txt", "generation_config.json", "chat_template.jinja" };
    char path[1024];
    size_t i;
    int status = 0;
    for (i = 0; i < sizeof names / sizeof names[0] && status == 0; i++) {
        char *data = NULL;
        size_t size = 0;
        if (!beside_weights(m->set.from.init, names[i], path, sizeof path)) continue;
        status = read_file("--init", path, &data, &size);
        if (status == 0) status = write_whole(m->set.out, names[i], data, size);
        free(data);
    }
    return status;
}

static int write_weights(const merging *m) {
    char path[1024], temporary[1040];
    het_writer writer = { file_write, NULL, NULL };
    het_result result;
    int status;
    if (!path_join(path, sizeof path, m->set.out, "model.safetensors")) return fail(BAD_INPUT, "--out: path too long");
    if ((writer.user = open_file(path, temporary, sizeof temporary)) == NULL) return fail(BAD_INPUT, "--out %s: %s", path, strerror(errno));
    writer.name = path;
    result = het_save_weights(m->model.ctx, &writer);
    if (result != HET_OK) {
        fclose((FILE *)writer.user);
        (void)remove(temporary);
        return fail(status_of(result), "%s", het_last_error(m->model.ctx));
    }
    status = close_file((FILE *)writer.user, temporary, path);
    return status;
}

static int run(merging *m, int argc, char **argv) {
    settings *s = &m->set;
    het_error error = { HET_OK, "" };
    het_result result;
    int status = options_parse("build/merge --init DIR --adapter DIR --out DIR\n\nPuts low-rank factors into the weights they belong to.", options,
                               OPTIONS, s, m->given, argc, argv);
    if (status >= 0) return status;
    if (s->from.adapter == NULL || s->out == NULL)
        return fail(BAD_INPUT, "%s: missing; --help lists the options", s->out == NULL ? "--out" : "--adapter");
    if ((status = loaded_open(&m->model, &s->from)) != 0) return status;
    m->model.desc.max_tokens = m->model.desc.max_sequences = m->model.desc.max_micro_batches = 1;
    if ((status = loaded_create(&m->model, &s->from)) != 0) return status;
    result = het_adapter_merge(m->model.ctx, &error);
    if (result != HET_OK) return fail(status_of(result), "%s", error.text);
    if (mkdir(s->out, 0777) != 0 && errno != EEXIST) return fail(BAD_INPUT, "--out %s: %s", s->out, strerror(errno));
    if ((status = write_weights(m)) != 0 || (status = write_config(m)) != 0 || (status = copy_beside(m)) != 0) return status;
    printf("wrote    %s: model.safetensors config.json\n", s->out);
    return fflush(stdout) == 0 ? 0 : fail(FAILED, "standard output: %s", strerror(errno));
}

int main(int argc, char **argv) {
    merging *m = (merging *)calloc(1, sizeof *m);
    int status = m != NULL ? run(m, argc, argv) : fail(FAILED, "out of memory");
    if (m == NULL) return status;
    loaded_end(&m->model);
    free(m);
    return status;
}
