/* The first byte is the size of the vocabulary, the rest a generation_config.json, or the config.json that a model came from. Ids are those of
   tokens, each once; what is kept of a config.json changes no model and no end. `make fuzz` runs it, tests/test_fuzz.c replays the corpus. */
#include "fuzz.h"

#include "hetrain_files.h"

#define FUZZ_ENDS 5

static int fuzz_generation_ids(const char *text, size_t length, int64_t vocab, int32_t id[FUZZ_ENDS], int64_t *count)
{
    het_error error;
    int64_t i, k, whole = -1;
    het_result result;
    error.text[0] = 0;
    result = het_ends_from_json(text, length, vocab, id, FUZZ_ENDS, count, &error);
    fuzz_error(result, &error);
    fuzz_check(het_ends_from_json(text, length, vocab, NULL, 0, &whole, NULL) == result, "another result without room for ids");
    if (result != HET_OK) return 0;
    fuzz_check(*count >= 0 && whole >= *count, "fewer ids without room for them");
    for (i = 0; i < *count && i < FUZZ_ENDS; i++) {
        fuzz_check(id[i] >= 0 && id[i] < vocab, "an id that no token has");
        for (k = 0; k < i; k++) fuzz_check(id[k] != id[i], "an id twice");
    }
    return 1;
}

static int fuzz_generation(const uint8_t *data, size_t size)
{
    const int64_t vocab = size > 0 ? data[0] * 251 : 0;
    const size_t length = size > 0 ? size - 1 : 0;
    char *text = fuzz_copy(size > 0 ? data + 1 : data, length), *json = NULL;
    het_model_desc model, back;
    het_error error;
    int32_t id[2][FUZZ_ENDS];
    int64_t count[2] = { 0, 0 };
    het_json j;
    size_t needed = 0, written = 0;
    het_result result;
    const int ends = fuzz_generation_ids(text, length, vocab, id[0], &count[0]);
    fuzz_check(het_model_parse("llama:layers=1,width=8,heads=2,vocab=11,context=4", &model, &error) == HET_OK, "the model");
    result = het_model_to_config(&model, HET_ELEMENT_BF16, text, length, NULL, 0, &needed);
    fuzz_check(result == HET_ERR_LIMIT || result == HET_ERR_FORMAT, "neither too little room nor a bad text");
    fuzz_check(!ends || result == HET_ERR_LIMIT, "an object that is none");
    if (result == HET_ERR_LIMIT) {
        json = (char *)malloc(needed + 1);
        if (json == NULL) abort();
        result = het_model_to_config(&model, HET_ELEMENT_BF16, text, length, json, needed + 1, &written);
        fuzz_check(result == HET_OK && written == needed, "a wrong length");
        j = het_json_start(json, written);
        fuzz_check(het_json_skip(&j) && het_json_end(&j), "no JSON any more");
        if (het_model_from_json(json, written, &back, NULL) == HET_OK) fuzz_check(memcmp(&model, &back, sizeof model) == 0, "another model");
        if (ends) {
            fuzz_check(fuzz_generation_ids(json, written, vocab, id[1], &count[1]), "ends that cannot be read any more");
            fuzz_check(count[0] == count[1] && (count[0] > FUZZ_ENDS || memcmp(id[0], id[1], (size_t)count[0] * sizeof id[0][0]) == 0), "other ends");
        }
    }
    free(json);
    free(text);
    return 0;
}

FUZZ_ENTRY(fuzz_generation)
