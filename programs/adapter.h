/* adapter.h: low-rank adapters of the programs, a directory each: adapter_config.json and adapter_model.safetensors. */
#ifndef PROGRAMS_ADAPTER_H
#define PROGRAMS_ADAPTER_H

#include "common.h"
#include "hetrain_files.h"

/* Sets the model's low-rank settings from the directory's adapter_config.json. base: the model it belongs to, or NULL. */
static inline int adapter_model(const char *option_name, const char *directory, het_model_desc *model, char *base, size_t capacity) {
    char path[1024], other[1300], *text;
    het_error error = { HET_OK, "" };
    het_result result;
    size_t length;
    if (!path_join(path, sizeof path, directory, "adapter_config.json")) return fail(BAD_INPUT, "%s: path too long", option_name);
    text = read_found_file(path, &length);
    if (text == NULL)
        return fail(BAD_INPUT, "%s %s: %s%s", option_name, path, small_file_error(), in_checkpoint(directory, "adapter_config.json", other));
    result = het_adapter_from_json(text, length, model, base, capacity, &error);
    free(text);
    return result == HET_OK ? 0 : fail(status_of(result), "%s %s: %s", option_name, path, error.text);
}

/* `base`: where the weights below the factors come from; any_base: whatever the factors were trained on. */
static inline int adapter_load(const char *option_name, const char *directory, het_ctx *ctx, const char *base, int any_base) {
    const uint64_t fingerprint = het_get_base(ctx);
    char path[1024];
    het_error error = { HET_OK, "" };
    het_reader reader;
    het_result result;
    const char *why;
    int status;
    if (!path_join(path, sizeof path, directory, "adapter_model.safetensors")) return fail(BAD_INPUT, "%s: path too long", option_name);
    if ((status = read_from(option_name, path, &reader)) != 0) return status;
    if (any_base) het_set_base(ctx, 0);
    result = het_adapter_load(ctx, &reader, &error);
    het_set_base(ctx, fingerprint);
    het_reader_close(&reader);
    if (result == HET_OK) return 0;
    why = behind_name(error.text, path);
    if (result == HET_ERR_INVALID) return fail(BAD_INPUT, "%s %s: %s, from %s; --any-base allows it", option_name, path, why, base);
    return fail(status_of(result), "%s %s: %s%s", option_name, path, why, not_finite(result, why));
}

/* The adapter_config.json of a model, to be freed; NULL: out of memory. */
static inline char *adapter_json(const het_model_desc *model, const char *base, size_t *length) {
    char *text = NULL;
    if (het_adapter_to_json(model, base, NULL, 0, length) != HET_ERR_LIMIT) return NULL;
    text = (char *)malloc(*length + 1);
    if (text != NULL && het_adapter_to_json(model, base, text, *length + 1, length) != HET_OK) {
        free(text);
        text = NULL;
    }
    return text;
}

/* "q,v", "all": names of het_lora. 0: there is an unknown one. */
static inline int64_t adapter_targets(const char *list) {
    static const char *const names[] = { "q", "k", "v", "o", "gate", "up", "down", "all" };
    static const int64_t values[] = { HET_LORA_Q, HET_LORA_K, HET_LORA_V, HET_LORA_O, HET_LORA_GATE, HET_LORA_UP, HET_LORA_DOWN, HET_LORA_ALL };
    int64_t targets = 0;
    for (;;) {
        const size_t length = strcspn(list, ",");
        int i;
        for (i = 0; i < 8 && (strlen(names[i]) != length || memcmp(names[i], list, length) != 0); i++) {}
        if (i == 8) return 0;
        targets |= values[i];
        if (list[length] == 0) return targets;
        list += length + 1;
    }
}

#endif
