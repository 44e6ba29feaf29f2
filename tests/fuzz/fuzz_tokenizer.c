/* `make fuzz` builds and runs it.

   The input is a tokenizer.json, a 0, and a text. What is read must encode and decode without a fault. Where the file is empty, trained
   tokenizers must give the text back, in the ids that the plainest implementation of byte pair encoding gives. tests/test_tokenizer.c replays the
   corpus. */
#if !defined(HETRAIN_FUZZ_REPLAY) && !defined(HETRAIN_FUZZ_LINKED)
#define HETRAIN_IMPLEMENTATION
#define HETRAIN_TOKENIZER_IMPLEMENTATION
#endif
#include "hetrain.h"
#include "hetrain_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_check(int condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "fuzz_tokenizer: %s\n", what);
    abort();
}

/* Encodes, decodes, and returns the ids in *ids (malloc). */
static int64_t fuzz_encode(const het_tokenizer *t, const het_encode_desc *desc, const char *text, size_t length, int32_t **ids)
{
    int64_t count = 0, again = 0;
    het_error error;
    het_result result = het_tokenizer_encode(t, desc, text, length, NULL, 0, &count, &error);
    *ids = NULL;
    if (result != HET_OK) {
        fuzz_check(result == HET_ERR_DATA && error.text[0] != 0, "encode failed in a way it should not");
        return -1;
    }
    *ids = (int32_t *)malloc(((size_t)count + 1) * sizeof **ids);
    if (*ids == NULL) abort();
    fuzz_check(het_tokenizer_encode(t, desc, text, length, *ids, count, &again, NULL) == HET_OK && again == count, "the same text in other ids");
    return count;
}

static char *fuzz_decode(const het_tokenizer *t, const int32_t *ids, int64_t count, size_t *length)
{
    char *text;
    fuzz_check(het_tokenizer_decode(t, ids, count, HET_NO, NULL, 0, length, NULL) == HET_OK, "own ids are not decoded");
    text = (char *)malloc(*length + 1);
    if (text == NULL) abort();
    fuzz_check(het_tokenizer_decode(t, ids, count, HET_NO, text, *length, length, NULL) == HET_OK, "decoded once and not again");
    return text;
}

/* Every merge of one word by looking through all of them: the pair of the lowest rank, the leftmost of equals. Returns how many ids are left. */
static size_t fuzz_merge(const het_tokenizer *t, int32_t *id, size_t count)
{
    het_tokenizer_info info;
    int32_t left, right;
    int64_t rank;
    size_t i;
    het_tokenizer_get_info(t, &info);
    for (rank = 0; rank < info.merges; rank++) {
        het_token a, b;
        char joined[512];
        if (!het_tokenizer_get_merge(t, rank, &left, &right)) abort();
        for (i = 0; i + 1 < count && (id[i] != left || id[i + 1] != right); i++) {}
        if (i + 1 >= count) continue;
        if (!het_tokenizer_get_token(t, left, &a) || !het_tokenizer_get_token(t, right, &b) || a.length + b.length > sizeof joined) abort();
        memcpy(joined, a.bytes, a.length);
        memcpy(joined + a.length, b.bytes, b.length);
        id[i] = het_tokenizer_find(t, joined, a.length + b.length);
        memmove(id + i + 1, id + i + 2, (count - i - 2) * sizeof *id);
        count--;
        rank = -1;
    }
    return count;
}

static const het_split fuzz_splits[4] = { HET_SPLIT_GPT2, HET_SPLIT_LLAMA3, HET_SPLIT_QWEN2, HET_SPLIT_WHOLE };

static het_tokenizer *fuzz_train(het_split split, int64_t vocab, const char *text, size_t length)
{
    het_tokenizer_desc desc;
    het_tokenizer *t = NULL;
    memset(&desc, 0, sizeof desc);
    desc.vocab = vocab;
    desc.split = split;
    fuzz_check(het_tokenizer_train(&desc, text, length, &t, NULL) == HET_OK, "training failed");
    return t;
}

/* The text comes back, and where it is one word, in the ids of the slow way. */
static void fuzz_text(const het_tokenizer *t, const char *text, size_t length)
{
    het_tokenizer_info info;
    het_encode_desc plain;
    int32_t *ids, slow[200];
    int64_t count;
    size_t back, i;
    char *decoded;
    memset(&plain, 0, sizeof plain);
    plain.special = HET_NO;
    het_tokenizer_get_info(t, &info);
    count = fuzz_encode(t, &plain, text, length, &ids);
    decoded = fuzz_decode(t, ids, count, &back);
    fuzz_check(back == length && memcmp(decoded, text, length) == 0, "the text did not come back");
    if (info.split == HET_SPLIT_WHOLE && length <= sizeof slow / sizeof slow[0]) {
        for (i = 0; i < length; i++) slow[i] = het_tokenizer_find(t, text + i, 1);
        fuzz_check((int64_t)fuzz_merge(t, slow, length) == count, "another number of ids than the slow way");
        fuzz_check(memcmp(slow, ids, (size_t)count * sizeof *ids) == 0, "other ids than the slow way");
    }
    free(decoded);
    free(ids);
}

#define FUZZ_TEXT 512 /* bytes: what a longer text does, its pieces do */

/* Through a tokenizer made once, of a text with many repeated letters; and, now and then, through one trained of the text itself, which takes
   longer. The length says which of the ways to split. */
static void fuzz_words(const char *text, size_t length)
{
    static het_tokenizer *made[4];
    static const char from[] =
        "abab aaab abba ba bb aab don't we'll 2024 1984 !! ?? .. \n\n  \t\xC3\xA9\xC3\xA9 \xE0\xA4\xBF\xE0\xA4\xBF aaaaaaaa bababababa abc cab";
    const int i = (int)(length % 4);
    if (made[i] == NULL) made[i] = fuzz_train(fuzz_splits[i], 300, from, sizeof from - 1);
    if (length > FUZZ_TEXT) length = FUZZ_TEXT;
    fuzz_text(made[i], text, length);
    if (length / 4 % 16 == 3) {
        het_tokenizer *t = fuzz_train(fuzz_splits[i], 257 + (int64_t)(length % 64), text, length);
        fuzz_text(t, text, length);
        het_tokenizer_free(t);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const void *zero = memchr(data, 0, size);
    const size_t json = zero != NULL ? (size_t)((const uint8_t *)zero - data) : size;
    const size_t at = json < size ? json + 1 : size;
    char *text = (char *)malloc(size + 1), *decoded;
    het_tokenizer *t = NULL;
    het_error error;
    int32_t *ids;
    int64_t count;
    size_t length;
    if (text == NULL) abort();
    if (size > 0) memcpy(text, data, size);
    error.text[0] = 0;
    if (het_tokenizer_read(text, json, NULL, &t, &error) != HET_OK) fuzz_check(t == NULL && error.text[0] != 0, "an error without a text");
    if (t != NULL) {
        het_tokenizer_info info;
        het_tokenizer_get_info(t, &info);
        count = fuzz_encode(t, NULL, text + at, size - at, &ids);
        if (count >= 0) {
            decoded = fuzz_decode(t, ids, count, &length);
            free(decoded);
        }
        free(ids);
        for (count = 0; count < info.vocab && count < 300; count++) {
            char spelled[64];
            (void)het_tokenizer_spell(t, (int32_t)count, spelled, sizeof spelled);
        }
        het_tokenizer_free(t);
    }
    if (json == 0) fuzz_words(text + at, size - at);
    free(text);
    return 0;
}
