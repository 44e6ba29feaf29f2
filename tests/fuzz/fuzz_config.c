/* The first byte says what the rest is: 0 JSON, 1 a config.json, 2 an adapter_config.json, 3 a description FAMILY:key=value,... What is read must be
   the same after writing and reading it again. `make fuzz` runs it, tests/test_fuzz.c replays the corpus. */
#include "fuzz.h"

#include "hetrain_files.h"

/* Walks a value by the calls for its kind. */
static void fuzz_config_value(het_json *j)
{
    char text[16];
    size_t length;
    int64_t integer;
    double real;
    int boolean;
    het_json before = *j;
    switch (het_json_peek(j)) {
    case HET_JSON_NULL: het_json_null(j); break;
    case HET_JSON_BOOL: het_json_boolean(j, &boolean); break;
    case HET_JSON_NUMBER:
        if (!het_json_integer(j, &integer)) {
            *j = before;
            het_json_real(j, &real);
        }
        break;
    case HET_JSON_STRING:
        memset(text, 'x', sizeof text);
        if (het_json_string(j, text, sizeof text, &length)) fuzz_check(memchr(text, 0, sizeof text) != NULL, "a string without its end");
        break;
    case HET_JSON_ARRAY:
    case HET_JSON_OBJECT:
        het_json_enter(j, het_json_peek(j));
        while (het_json_next(j, text, sizeof text, &length)) fuzz_config_value(j);
        break;
    case HET_JSON_ERROR: het_json_fail(j, "a value was expected"); break;
    }
}

/* Stepping over the whole and walking all of it find the same end, or both find an error inside the text. */
static void fuzz_config_json(const char *text, size_t length)
{
    het_json walked = het_json_start(text, length), stepped = walked;
    het_json_kind kind = het_json_peek(&walked);
    (void)kind;
    fuzz_config_value(&walked);
    het_json_end(&walked);
    het_json_skip(&stepped);
    het_json_end(&stepped);
    fuzz_check(stepped.rule == NULL || stepped.rule_at <= length, "an error outside the text");
    fuzz_check(walked.rule == NULL || walked.rule_at <= length, "an error outside the text");
    fuzz_check(walked.rule != NULL || stepped.rule == NULL, "walked and not stepped over");
}

static char *fuzz_config_format(const het_model_desc *model)
{
    size_t length = 0, again;
    char *text;
    fuzz_check(het_model_format(model, NULL, 0, &length) == HET_ERR_LIMIT, "a model that cannot be written");
    text = (char *)malloc(length + 1);
    if (text == NULL) abort();
    fuzz_check(het_model_format(model, text, length + 1, &again) == HET_OK && again == length, "a length that was wrong");
    return text;
}

/* Through config.json the settings come back, but those that only training knows. */
static void fuzz_config_model(het_model_desc *model)
{
    char json[16384], *first, *second;
    size_t length;
    het_model_desc back;
    het_error error;
    error.text[0] = 0;
    first = fuzz_config_format(model);
    fuzz_check(het_model_parse(first, &back, &error) == HET_OK, "a description that is not read again");
    second = fuzz_config_format(&back);
    fuzz_check(strcmp(first, second) == 0, "a description that changes on the way");
    free(second);
    free(first);
    if (het_model_to_json(model, json, sizeof json, &length) != HET_OK) return;
    fuzz_check(strlen(json) == length, "a length that was wrong");
    if (strstr(json, "\"hetrain_") != NULL) return; /* a model that transformers has no class for */
    fuzz_check(het_model_from_json(json, length, &back, &error) == HET_OK, "a config.json that is not read again");
    back.dropout = model->dropout, back.init_std = model->init_std;
    back.lora_rank = model->lora_rank, back.lora_alpha = model->lora_alpha, back.lora_targets = model->lora_targets;
    first = fuzz_config_format(model);
    second = fuzz_config_format(&back);
    fuzz_check(strcmp(first, second) == 0, "a config.json that changes the model");
    free(second);
    free(first);
}

static void fuzz_config_adapter(const char *text, size_t length)
{
    het_model_desc model, back;
    het_error error;
    char json[4096], base[32], other[4096];
    size_t written, again;
    het_result result;
    error.text[0] = 0;
    fuzz_check(het_model_parse("llama:layers=2,width=32,heads=4,kv_heads=2,vocab=61,context=8", &model, &error) == HET_OK, "the model");
    back = model;
    result = het_adapter_from_json(text, length, &model, base, sizeof base, &error);
    fuzz_error(result, &error);
    if (result != HET_OK) return;
    fuzz_check(memchr(base, 0, sizeof base) != NULL, "a name without its end");
    fuzz_check(het_adapter_to_json(&model, base, json, sizeof json, &written) == HET_OK, "an adapter that cannot be written");
    fuzz_check(het_adapter_from_json(json, written, &back, base, sizeof base, &error) == HET_OK, "an adapter that is not read again");
    fuzz_check(het_adapter_to_json(&back, base, other, sizeof other, &again) == HET_OK && again == written && memcmp(json, other, again) == 0,
               "an adapter that changes on the way");
}

static int fuzz_config(const uint8_t *data, size_t size)
{
    const int kind = size > 0 ? data[0] % 4 : 0;
    const size_t length = size > 0 ? size - 1 : 0;
    char *text = fuzz_copy(size > 0 ? data + 1 : data, length), *name;
    het_model_desc model;
    het_error error;
    het_result result = HET_ERR_INVALID;
    memset(&model, 0, sizeof model);
    error.text[0] = 0;
    if (kind == 0) fuzz_config_json(text, length);
    if (kind == 2) fuzz_config_adapter(text, length);
    if (kind == 1) result = het_model_from_json(text, length, &model, &error);
    if (kind == 3 && (name = (char *)malloc(length + 1)) != NULL) {
        if (length > 0) memcpy(name, text, length);
        name[length] = 0;
        result = het_model_parse(name, &model, &error);
        free(name);
    }
    if (kind == 1 || kind == 3) fuzz_error(result, &error);
    if (result == HET_OK) fuzz_config_model(&model);
    free(text);
    return 0;
}

FUZZ_ENTRY(fuzz_config)
