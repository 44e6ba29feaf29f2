/* convert: a model for other programs.
     build/convert --init DIR --gguf model.gguf --save-dtype f16                 one file for llama.cpp
     build/convert --init DIR --out DIR2 --save-dtype bf16 --shard 4000000000    a directory for transformers, in files of at most 4 GB
   Factors of --adapter are added to the weights. */
#define PROGRAM "convert"
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_PLAN_IMPLEMENTATION
#define HETRAIN_EXPERTS_IMPLEMENTATION
#include "common.h"
#include "folder.h"
#include "kept.h"
#include "loaded.h"

typedef struct settings {
    loaded_options from;
    const char *out, *gguf, *name;
    int64_t dtype, shard, overwrite;
} settings;

#define AT(field) offsetof(settings, field)
static const option options[] = {
    OPTION_TITLE("The model"),
    { "--init", "FILE|DIR", OPTION_TEXT, LOADED_AT(from, init), 0, 0, "weights (safetensors)" },
    { "--model", "SPEC", OPTION_TEXT, LOADED_AT(from, model), 0, 0, "by default the config.json beside the weights" },
    { "--adapter", "DIR", OPTION_TEXT, LOADED_AT(from, adapter), 0, 0, "low-rank factors to be added to the weights (PEFT's two files)" },
    { "--any-base", NULL, OPTION_FLAG, LOADED_AT(from, any_base), 0, 0, "also factors that were trained on other weights" },
    { "--allow-nonfinite", NULL, OPTION_FLAG, LOADED_AT(from, nonfinite), 0, 0, "also weights that hold nan or inf" },
    { "--tokenizer", "FILE", OPTION_TEXT, LOADED_AT(from, tokenizer), 0, 0, "by default the tokenizer.json beside the weights, else bytes" },
    OPTION_TITLE("What is written"),
    { "--gguf", "FILE", OPTION_TEXT, AT(gguf), 0, 0, "writes weights, settings and tokenizer for llama.cpp" },
    { "--name", "TEXT", OPTION_TEXT, AT(name), 0, 0, "the model's name in that file" },
    { "--out", "DIR", OPTION_TEXT, AT(out), 0, 0, "writes config.json and weights for transformers" },
    { "--overwrite", NULL, OPTION_FLAG, AT(overwrite), 0, 0, "puts them in place of weights that hetrain wrote there" },
    { "--shard", "BYTES", OPTION_INTEGER, AT(shard), 0, 1e15, "of tensors in a file there; 0: one file" },
    { "--save-dtype", "f32|f16|bf16", OPTION_CHOICE, AT(dtype), 0, 0, "type of the weights" },
    OPTION_LAST_ROWS
};
enum { OPTIONS = (int)(sizeof options / sizeof options[0]) };

typedef struct converting {
    settings set;
    unsigned char given[OPTIONS];
    loaded model;
    kept_files kept;
    out_folder folder;
    het_element element;
} converting;

static int write_gguf(converting *c) {
    write_target t;
    het_writer writer;
    het_gguf_desc desc;
    end_tokens end;
    het_result result;
    int status;
    memset(&desc, 0, sizeof desc);
    if ((status = end_find(&end, c->set.from.init, c->model.desc.model.vocab, c->model.tokenizer)) != 0) return status;
    desc.element = c->element, desc.tokenizer = c->model.tokenizer, desc.name = c->set.name;
    desc.end = end.id, desc.ends = end.count;
    if ((status = target_open(&t, "--gguf", c->set.gguf)) != 0) return status;
    writer = target_writer(&t);
    result = het_save_gguf(c->model.ctx, &writer, &desc);
    return target_end(&t, result, het_last_error(c->model.ctx));
}

/* The tokenizer, byte by byte, and settings of it and of generation. */
static int save_tokenizer(const converting *c) {
    char path[1024];
    const int status = kept_write(&c->kept, "--out", c->set.out);
    if (status != 0 || c->model.tokenizer == NULL) return status;
    if (!path_join(path, sizeof path, c->set.out, "tokenizer.json")) return fail(BAD_INPUT, "--out: path too long");
    return write_tokenizer("--out", path, c->model.tokenizer);
}

static int write_directory(converting *c) {
    filled_folder filled;
    const het_folder folder = filled_open(&filled, c->set.out);
    het_save_desc desc;
    het_result result;
    char why[128];
    memset(&desc, 0, sizeof desc);
    desc.element = c->element;
    desc.shard_bytes = (uint64_t)c->set.shard;
    desc.base = c->kept.config, desc.base_length = c->kept.config_length;
    if (c->set.overwrite) folder_clear(c->set.out, 0);
    result = het_save_folder(c->model.ctx, &folder, &desc);
    if (result == HET_OK) return save_tokenizer(c);
    return fail(result == HET_ERR_IO ? FAILED : status_of(result), "--out: %s%s", het_last_error(c->model.ctx), filled_why(&filled, why, sizeof why));
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
    status = s->gguf == NULL ? options_idle(options, OPTIONS, c->given, "--name", "without --gguf") : 0;
    if (status == 0 && s->out == NULL) status = options_idle(options, OPTIONS, c->given, "--shard --overwrite", "without --out");
    if (status != 0 || (status = loaded_open(&c->model, &s->from)) != 0) return status;
    if (s->gguf != NULL && c->model.unread[0] != 0) return fail(BAD_INPUT, "%s", c->model.unread);
    if ((status = kept_open(&c->kept, s->from.init, s->from.model, s->from.tokenizer, c->model.unread[0] != 0)) != 0) return status;
    if (c->kept.config == NULL) c->kept.config = experts_json(&c->model.experts, &c->model.desc.model, &c->kept.config_length);
    if (s->gguf != NULL && (status = loaded_spares(&s->from, "--gguf", s->gguf)) != 0) return status;
    if (s->out != NULL && (status = loaded_own(&c->folder, &s->from, s->out, s->overwrite)) != 0) return status;
    if (s->out != NULL && !s->overwrite && (status = kept_spares(&c->kept, c->model.tokenizer, "--out", s->out)) != 0) return status;
    if (s->gguf != NULL && is_own_file(s->out, s->gguf))
        return fail(BAD_INPUT, "--gguf %s: --out %s writes a file of that name", s->gguf, s->out);
    c->model.desc.limits.max_tokens = c->model.desc.limits.max_sequences = c->model.desc.limits.max_micro_batches = 1;
    if ((status = loaded_create(&c->model, &s->from)) != 0) return status;
    result = s->from.adapter != NULL ? het_adapter_merge(c->model.ctx, &error) : HET_OK;
    if (result != HET_OK) return fail(status_of(result), "--adapter: %s", error.text);
    if (s->gguf != NULL && (status = write_gguf(c)) != 0) return status;
    if (s->out != NULL && (status = write_directory(c)) != 0) return status;
    if (s->gguf != NULL) printf("wrote    %s\n", s->gguf);
    if (s->out != NULL) printf("wrote    %s\n", s->out);
    return 0;
}

static int program(int argc, char **argv) {
    converting *c = (converting *)calloc(1, sizeof *c);
    int status = c != NULL ? run(c, argc, argv) : fail(FAILED, "out of memory");
    if (c == NULL) return status;
    folder_close(&c->folder);
    loaded_end(&c->model);
    kept_close(&c->kept);
    free(c);
    return status;
}

int main(int argc, char **argv) {
    program_begin();
    return program_end(program(argc, argv));
}
