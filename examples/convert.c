/* convert: a model for other programs.
     build/convert --init DIR --gguf model.gguf --save-dtype f16                 one file for llama.cpp
     build/convert --init DIR --out DIR2 --save-dtype bf16 --shard 4000000000    a directory for transformers, in files of at most 4 GB
   Factors of --adapter are added to the weights. */
#define PROGRAM "convert"
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_FILES_IMPLEMENTATION
#include "common.h"
#include "loaded.h"

typedef struct settings {
    loaded_options from;
    const char *out, *gguf, *name;
    int64_t dtype, shard;
} settings;

#define AT(field) offsetof(settings, field)
static const option options[] = {
    { "--init", "FILE|DIR", OPTION_TEXT, LOADED_AT(from, init), 0, 0, "weights (safetensors)" },
    { "--model", "SPEC", OPTION_TEXT, LOADED_AT(from, model), 0, 0, "by default the config.json beside the weights" },
    { "--adapter", "DIR", OPTION_TEXT, LOADED_AT(from, adapter), 0, 0, "low-rank factors to be added to the weights (PEFT's two files)" },
    { "--tokenizer", "FILE", OPTION_TEXT, LOADED_AT(from, tokenizer), 0, 0, "by default the tokenizer.json beside the weights, else bytes" },
    { "--gguf", "FILE", OPTION_TEXT, AT(gguf), 0, 0, "writes weights, settings and tokenizer for llama.cpp" },
    { "--name", "TEXT", OPTION_TEXT, AT(name), 0, 0, "the model's name in that file" },
    { "--out", "DIR", OPTION_TEXT, AT(out), 0, 0, "writes config.json and weights for transformers" },
    { "--shard", "BYTES", OPTION_INTEGER, AT(shard), 0, 1e15, "of tensors in a file there; 0: one file" },
    { "--save-dtype", "f32|f16|bf16", OPTION_CHOICE, AT(dtype), 0, 0, "type of the weights" },
    { "--help", NULL, OPTION_HELP, 0, 0, 0, "this text" },
};
enum { OPTIONS = (int)(sizeof options / sizeof options[0]) };

typedef struct converting { settings set; unsigned char given[OPTIONS]; loaded model; het_element element; } converting;

static int write_gguf(converting *c) {
    char temporary[1040];
    het_writer writer = { file_write, NULL, NULL };
    het_gguf_desc desc;
    end_tokens end;
    het_result result;
    memset(&desc, 0, sizeof desc);
    end_find(&end, c->set.from.init, c->model.tokenizer);
    desc.element = c->element, desc.tokenizer = c->model.tokenizer, desc.name = c->set.name;
    desc.end = end.id, desc.ends = end.count;
    if ((writer.user = open_file(c->set.gguf, temporary, sizeof temporary)) == NULL)
        return fail(BAD_INPUT, "--gguf %s: %s", c->set.gguf, strerror(errno));
    writer.name = c->set.gguf;
    result = het_save_gguf(c->model.ctx, &writer, &desc);
    if (result == HET_OK) return close_file((FILE *)writer.user, temporary, c->set.gguf);
    fclose((FILE *)writer.user);
    (void)remove(temporary);
    return fail(status_of(result), "--gguf %s: %s", c->set.gguf, het_last_error(c->model.ctx));
}

/* The tokenizer, byte by byte. */
static int write_tokenizer(const converting *c) {
    char path[1024], temporary[1040];
    het_writer writer = { file_write, NULL, NULL };
    if (c->model.tokenizer == NULL) return 0;
    if (!path_join(path, sizeof path, c->set.out, "tokenizer.json")) return fail(BAD_INPUT, "--out: path too long");
    if ((writer.user = open_file(path, temporary, sizeof temporary)) == NULL) return fail(BAD_INPUT, "--out %s: %s", path, strerror(errno));
    if (het_tokenizer_write(c->model.tokenizer, &writer) == HET_OK) return close_file((FILE *)writer.user, temporary, path);
    fclose((FILE *)writer.user);
    (void)remove(temporary);
    return fail(BAD_INPUT, "--out %s: cannot be written", path);
}

static int write_directory(converting *c) {
    het_folder folder;
    het_save_desc desc;
    het_error error = { HET_OK, "" };
    het_result result;
    memset(&desc, 0, sizeof desc);
    desc.element = c->element;
    desc.shard_bytes = (uint64_t)c->set.shard;
    if (mkdir(c->set.out, 0777) != 0 && errno != EEXIST) return fail(BAD_INPUT, "--out %s: %s", c->set.out, strerror(errno));
    if (het_folder_open(c->set.out, NULL, &folder, &error) != HET_OK) return fail(BAD_INPUT, "--out %s", error.text);
    result = het_save_folder(c->model.ctx, &folder, &desc);
    het_folder_close(&folder);
    return result == HET_OK ? write_tokenizer(c) : fail(status_of(result), "--out: %s", het_last_error(c->model.ctx));
}

static int run(converting *c, int argc, char **argv) {
    static const het_element elements[] = { HET_ELEMENT_F32, HET_ELEMENT_F16, HET_ELEMENT_BF16 };
    settings *s = &c->set;
    het_error error = { HET_OK, "" };
    het_result result;
    int status;
    s->dtype = 1;
    status = options_parse("build/convert --init DIR --gguf FILE | --out DIR\n\nWrites a model for other programs.", options, OPTIONS, s, c->given,
                           argc, argv);
    if (status >= 0) return status;
    c->element = elements[s->dtype - 1];
    if (s->out == NULL && s->gguf == NULL) return fail(BAD_INPUT, "--gguf or --out: missing; --help lists the options");
    if ((status = loaded_open(&c->model, &s->from)) != 0) return status;
    c->model.desc.max_tokens = c->model.desc.max_sequences = c->model.desc.max_micro_batches = 1;
    if ((status = loaded_create(&c->model, &s->from)) != 0) return status;
    result = s->from.adapter != NULL ? het_adapter_merge(c->model.ctx, &error) : HET_OK;
    if (result != HET_OK) return fail(status_of(result), "--adapter: %s", error.text);
    if (s->gguf != NULL && (status = write_gguf(c)) != 0) return status;
    if (s->out != NULL && (status = write_directory(c)) != 0) return status;
    if (s->gguf != NULL) printf("wrote    %s\n", s->gguf);
    if (s->out != NULL) printf("wrote    %s\n", s->out);
    return fflush(stdout) == 0 ? 0 : fail(FAILED, "standard output: %s", strerror(errno));
}

int main(int argc, char **argv) {
    converting *c = (converting *)calloc(1, sizeof *c);
    int status = c != NULL ? run(c, argc, argv) : fail(FAILED, "out of memory");
    if (c == NULL) return status;
    loaded_end(&c->model);
    free(c);
    return status;
}
