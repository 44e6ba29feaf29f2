/* loaded.h: a trained model ready to be used: description, tokenizer, devices and plan, weights, adapter. Include it after common.h. */
#ifndef PROGRAMS_LOADED_H
#define PROGRAMS_LOADED_H

#include "common.h"
#include "adapter.h"
#include "experts.h"
#include "folder.h"
#include "layout.h"
#include "text.h"

/* What the options of a program say; NULL or 0: not given. */
typedef struct loaded_options {
    const char *init, *model, *adapter, *tokenizer, *devices, *links, *plan, *schedule;
    int64_t threads, weights, nonfinite, any_base;
} loaded_options;

/* Rows for a program's table of options; `field` is the loaded_options in its settings. */
#define LOADED_AT(field, member) (offsetof(settings, field) + offsetof(loaded_options, member))
#define LOADED_ROWS(field) \
    OPTION_TITLE("The model"), \
    { "--init", "FILE|DIR", OPTION_TEXT, LOADED_AT(field, init), 0, 0, "weights (safetensors)" }, \
    { "--model", "SPEC", OPTION_TEXT, LOADED_AT(field, model), 0, 0, "by default the config.json beside the weights" }, \
    { "--adapter", "DIR", OPTION_TEXT, LOADED_AT(field, adapter), 0, 0, "low-rank factors on top of the weights (PEFT's two files)" }, \
    { "--any-base", NULL, OPTION_FLAG, LOADED_AT(field, any_base), 0, 0, "also factors that were trained on other weights" }, \
    { "--tokenizer", "FILE", OPTION_TEXT, LOADED_AT(field, tokenizer), 0, 0, "by default the tokenizer.json beside the weights, else bytes" }, \
    { "--weights", "f32|bf16|int8", OPTION_CHOICE, LOADED_AT(field, weights), 0, 0, \
        "type of the matrices in memory; bf16: half the bytes; int8: a quarter, in blocks" }, \
    { "--allow-nonfinite", NULL, OPTION_FLAG, LOADED_AT(field, nonfinite), 0, 0, "also weights that hold nan or inf" }, \
    OPTION_TITLE("Devices"), \
    { "--devices", "LIST", OPTION_TEXT, LOADED_AT(field, devices), 0, 0, "a rank each: cpu:N,...: threads; default: one, all processors" }, \
    { "--links", "LIST", OPTION_TEXT, LOADED_AT(field, links), 0, 0, "A-B:LATENCY[:BYTES],...: emulated links between ranks" }, \
    { "--plan", "SPEC", OPTION_TEXT, LOADED_AT(field, plan), 0, 0, "dp, pp, pp:0-5|6-9 (units), ..., or a file of JSON [dp]" }, \
    { "--schedule", "NAME", OPTION_TEXT, LOADED_AT(field, schedule), 0, 0, "as for build/train" }, \
    { "--threads", "N", OPTION_INTEGER, LOADED_AT(field, threads), 1, 256, "of the one device, by default all processors" }

typedef struct loaded {
    het_desc desc;            /* model is filled by loaded_open; the program sets limits before loaded_create */
    experts_model experts;
    layout ranks;
    het_ctx *ctx;
    het_tokenizer *tokenizer; /* NULL: tokens are bytes */
    char unread[UNREAD];      /* not "": but for what lies beside the weights */
    char weights[1024];
} loaded;

static inline int loaded_open(loaded *l, const loaded_options *o) {
    het_tokenizer_info info;
    char path[1024];
    int status;
    if (o->init == NULL) return fail(BAD_INPUT, "--init: missing; --help lists the options");
    status = model_from_init(o->init, o->model, &l->desc.model, &l->experts.settings, l->weights, sizeof l->weights);
    if (status != 0) return status;
    if (o->any_base && o->adapter == NULL) return fail(BAD_INPUT, "--any-base: only with --adapter");
    if (o->adapter != NULL && (status = adapter_model("--adapter", o->adapter, &l->desc.model, NULL, 0)) != 0) return status;
    if (o->tokenizer != NULL) status = tokenizer_open("--tokenizer", o->tokenizer, &l->tokenizer, NULL);
    else if (beside_weights(o->init, "tokenizer.json", path, sizeof path)) status = tokenizer_open("--init", path, &l->tokenizer, l->unread);
    if (status != 0 || l->tokenizer == NULL) return status;
    het_tokenizer_get_info(l->tokenizer, &info);
    if (info.vocab <= l->desc.model.vocab) return 0;
    return fail(BAD_INPUT, "%s %s: %lld ids, the model's vocabulary is %lld", o->tokenizer != NULL ? "--tokenizer" : "--init",
                o->tokenizer != NULL ? o->tokenizer : path, (long long)info.vocab, (long long)l->desc.model.vocab);
}

/* --out DIR for a model made of this one. */
static inline int loaded_own(out_folder *folder, const loaded_options *o, const char *out, int64_t overwrite) {
    const folder_input inputs[] = { { "--init", o->init, 1 }, { "--model", o->model, 1 }, { "--adapter", o->adapter, 1 } };
    const folder_wish wish = { "--out", out, inputs, 3, overwrite != 0, 0, 0 };
    return folder_take(folder, &wish);
}

/* A file to be written is none of those that are read. */
static inline int loaded_spares(const loaded_options *o, const char *option_name, const char *path) {
    const folder_input inputs[] = { { "--init", o->init, 0 }, { "--model", o->model, 0 }, { "--adapter", o->adapter, 0 },
                                   { "--tokenizer", o->tokenizer, 0 } };
    struct stat about;
    int i;
    for (i = 0; i < 4 && stat(path, &about) == 0; i++)
        if (is_input(&inputs[i], &about)) return fail(BAD_INPUT, "%s %s: is a file of %s %s", option_name, path, inputs[i].option, inputs[i].path);
    return 0;
}

/* Of a model whose tokens are bytes, or that has a tokenizer: text goes in. */
static inline int loaded_takes_text(const loaded *l, const loaded_options *o) {
    if (l->unread[0] != 0) return fail(BAD_INPUT, "%s", l->unread);
    if (l->tokenizer != NULL || l->desc.model.vocab == 256) return 0;
    if (l->desc.model.vocab < 256) return fail(BAD_INPUT, "--init %s: vocabulary %lld holds no bytes", o->init, (long long)l->desc.model.vocab);
    return fail(BAD_INPUT, "--init %s: vocabulary %lld needs a tokenizer: no tokenizer.json beside it, give --tokenizer FILE", o->init,
                (long long)l->desc.model.vocab);
}

/* The context, without gradients, with its weights and factors. */
static inline int loaded_create(loaded *l, const loaded_options *o) {
    het_error error = { HET_OK, "" };
    het_result result;
    int64_t first;
    int status = layout_devices(&l->ranks, o->devices);
    if (status == 0) status = layout_take_part(&l->ranks, 0, 1, &first);
    if (status == 0) status = layout_links(&l->ranks, o->links);
    if (status != 0) return status;
    if (o->links != NULL && l->ranks.world == 1) return fail(BAD_INPUT, "--links: has no effect with one rank");
    if (o->threads > 0 && o->devices != NULL) return fail(BAD_INPUT, "--threads: --devices says how many");
    if (o->threads > 0) l->ranks.device[0].threads = (int32_t)o->threads;
    l->desc.layout.devices = l->ranks.device, l->desc.layout.device_count = l->ranks.devices;
    l->desc.emulate.links = l->ranks.link, l->desc.emulate.link_count = l->ranks.links;
    if ((status = experts_start(&l->experts, NULL, &l->desc)) != 0) return status;
    if (o->plan != NULL || o->schedule != NULL || l->ranks.world > 1) {
        status = layout_plan(&l->ranks, "--plan", o->plan, o->schedule, &l->desc.model, l->ranks.world, 1, 0, 0);
        if (status != 0) return status;
        l->desc.layout.plan = l->ranks.plan, l->desc.layout.schedule = l->ranks.schedule;
    }
    if (l->desc.limits.max_micro_batches == 0) l->desc.limits.max_micro_batches = l->ranks.world > 1 ? 4 * l->ranks.world : 1;
    if ((status = layout_check_lists(&l->ranks, o->schedule, l->desc.limits.max_micro_batches)) != 0) return status;
    l->desc.inference = HET_YES;
    l->desc.weights = (het_dtype)o->weights, l->desc.guard.nonfinite = o->nonfinite ? HET_YES : HET_NO;
    result = het_create(&l->desc, &l->ctx, &error);
    if (result != HET_OK) return fail(status_of(result), "%s", error.text);
    if ((status = load_weights(l->ctx, "--init", l->weights)) != 0 || o->adapter == NULL) return status;
    return adapter_load("--adapter", o->adapter, l->ctx, l->weights, o->any_base != 0);
}

static inline void loaded_end(loaded *l) {
    het_destroy(l->ctx);
    layout_free(&l->ranks);
    free(l->experts.units);
    het_tokenizer_free(l->tokenizer);
}

#endif
