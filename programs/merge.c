/* merge: puts low-rank factors into the weights they belong to: W + (alpha / r) B A.
     build/merge --init DIR --adapter DIR --out DIR      DIR then is a model like any other */
#define PROGRAM "merge"
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#define HETRAIN_EXPERTS_IMPLEMENTATION
#include "common.h"
#include "folder.h"
#include "kept.h"
#include "loaded.h"

typedef struct settings {
    loaded_options from;
    const char *out;
    int64_t overwrite;
} settings;

static const option options[] = {
    OPTION_TITLE("Files"),
    { "--init", "FILE|DIR", OPTION_TEXT, LOADED_AT(from, init), 0, 0, "weights (safetensors)" },
    { "--model", "SPEC", OPTION_TEXT, LOADED_AT(from, model), 0, 0, "by default the config.json beside the weights" },
    { "--adapter", "DIR", OPTION_TEXT, LOADED_AT(from, adapter), 0, 0, "factors (adapter_config.json, adapter_model.safetensors)" },
    { "--any-base", NULL, OPTION_FLAG, LOADED_AT(from, any_base), 0, 0, "also factors that were trained on other weights" },
    { "--allow-nonfinite", NULL, OPTION_FLAG, LOADED_AT(from, nonfinite), 0, 0, "also weights that hold nan or inf" },
    { "--out", "DIR", OPTION_TEXT, offsetof(settings, out), 0, 0, "gets model.safetensors, config.json and the tokenizer's files" },
    { "--overwrite", NULL, OPTION_FLAG, offsetof(settings, overwrite), 0, 0, "puts them in place of weights that hetrain wrote there" },
    OPTION_LAST_ROWS
};
enum { OPTIONS = (int)(sizeof options / sizeof options[0]) };

typedef struct merging { settings set; unsigned char given[OPTIONS]; loaded model; kept_files kept; out_folder folder; } merging;

static int write_whole(const char *directory, const char *name, const char *text, size_t length) {
    char path[1024];
    return path_join(path, sizeof path, directory, name) ? write_file("--out", path, text, length) : fail(BAD_INPUT, "--out: path too long");
}

static int write_config(const merging *m) {
    het_model_desc model = m->model.desc.model;
    const size_t capacity = m->kept.config_length + 8192;
    char *text = (char *)malloc(capacity);
    size_t length;
    het_result result;
    int status;
    if (text == NULL) return fail(FAILED, "out of memory");
    model.lora_rank = model.lora_targets = 0, model.lora_alpha = 0;
    result = het_model_to_config(&model, HET_ELEMENT_F32, m->kept.config, m->kept.config_length, text, capacity, &length);
    status = result == HET_OK ? write_whole(m->set.out, "config.json", text, length) : fail(FAILED, "config.json: %s", het_result_text(result));
    free(text);
    return status;
}

static int write_weights(const merging *m) {
    char path[1024];
    write_target t;
    het_writer writer;
    het_result result;
    int status;
    if (!path_join(path, sizeof path, m->set.out, "model.safetensors")) return fail(BAD_INPUT, "--out: path too long");
    if ((status = target_open(&t, "--out", path)) != 0) return status;
    writer = target_writer(&t);
    result = het_save_weights(m->model.ctx, &writer);
    return target_end(&t, result, het_last_error(m->model.ctx));
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
    if ((status = kept_open(&m->kept, s->from.init, s->from.model, NULL, 1)) != 0) return status;
    if (m->kept.config == NULL) m->kept.config = experts_json(&m->model.experts, &m->model.desc.model, &m->kept.config_length);
    if ((status = loaded_own(&m->folder, &s->from, s->out, s->overwrite)) != 0) return status;
    if (!s->overwrite && (status = kept_spares(&m->kept, NULL, "--out", s->out)) != 0) return status;
    m->model.desc.limits.max_tokens = m->model.desc.limits.max_sequences = m->model.desc.limits.max_micro_batches = 1;
    if ((status = loaded_create(&m->model, &s->from)) != 0) return status;
    result = het_adapter_merge(m->model.ctx, &error);
    if (result != HET_OK) return fail(status_of(result), "%s", error.text);
    if (s->overwrite) folder_clear(s->out, 0);
    if ((status = write_weights(m)) != 0 || (status = write_config(m)) != 0 || (status = kept_write(&m->kept, "--out", s->out)) != 0) return status;
    printf("wrote    %s: model.safetensors config.json\n", s->out);
    return 0;
}

static int program(int argc, char **argv) {
    merging *m = (merging *)calloc(1, sizeof *m);
    int status = m != NULL ? run(m, argc, argv) : fail(FAILED, "out of memory");
    if (m == NULL) return status;
    folder_close(&m->folder);
    loaded_end(&m->model);
    kept_close(&m->kept);
    free(m);
    return status;
}

int main(int argc, char **argv) {
    program_begin();
    return program_end(program(argc, argv));
}
