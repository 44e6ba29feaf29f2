/* text.h: tokenizers of the programs: where they are, text to ids, ids to text as it is printed, and the ids that end a text.
   Include it after common.h. */
#ifndef PROGRAMS_TEXT_H
#define PROGRAMS_TEXT_H

#include "common.h"
#include "files.h"
#include "hetrain_tokenizer.h"

/* 1: a file's bytes are text. A *.bin file without one of llm.c's headers (which begin with a date) holds nanoGPT's uint16 tokens;
   het_data_open finds out the rest. */
static inline int text_is(const char *path, const het_reader *reader, het_data_format *format) {
    unsigned char head[4] = { 0, 0, 0, 0 };
    uint32_t magic = 0;
    if (reader->read(reader->user, 0, head, 4) >= 0)
        magic = (uint32_t)head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16 | (uint32_t)head[3] << 24;
    *format = HET_DATA_AUTO;
    if (magic >= 20240000 && magic < 20300000) return 0;
    if (!ends_with(path, ".bin")) return 1;
    *format = HET_DATA_UINT16;
    return 0;
}

/* unread: [UNREAD], or NULL. A tokenizer of a kind that is not supported, without which a model may still do, stays NULL, and this says why. */
enum { UNREAD = 800 };
static inline int tokenizer_open(const char *option_name, const char *path, het_tokenizer **tokenizer, char *unread) {
    het_error error = { HET_OK, "" };
    het_result result;
    char *json = NULL;
    size_t size = 0;
    int status = read_file(option_name, path, &json, &size);
    if (status != 0) return status;
    result = het_tokenizer_read(json, size, NULL, tokenizer, &error);
    free(json);
    if (result == HET_ERR_UNSUPPORTED && unread != NULL) {
        snprintf(unread, UNREAD, "%s %.200s: %s", option_name, path, error.text);
        return 0;
    }
    return result == HET_OK ? 0 : fail(status_of(result), "%s %s: %s", option_name, path, error.text);
}

/* A file beside the weights FILE, in DIR, or above it where DIR is a checkpoint of a run (step-...). 1: it is there, and `path` its name. */
static inline int beside_weights(const char *init, const char *name, char *path, size_t capacity) {
    char directory[1024];
    char *slash;
    int above;
    if ((size_t)snprintf(directory, sizeof directory, "%s", init) >= sizeof directory) return 0;
    slash = strrchr(directory, '/');
    if (!is_directory(init)) {
        if (slash != NULL) *slash = 0;
        else strcpy(directory, ".");
    }
    if (path_join(path, capacity, directory, name) && access(path, F_OK) == 0) return 1;
    slash = strrchr(directory, '/');
    above = strncmp(slash != NULL ? slash + 1 : directory, "step-", 5) == 0;
    if (!above) return 0;
    if (slash != NULL) *slash = 0;
    return path_join(path, capacity, slash != NULL ? directory : ".", name) && access(path, F_OK) == 0;
}

/* The ids of a text, to be freed; tokenizer NULL: its bytes. prefix: with the ids that the tokenizer puts before a text. */
static inline int text_encode(const char *option_name, const het_tokenizer *tokenizer, int prefix, const char *text, size_t length, int32_t **token,
                              int64_t *count) {
    het_tokenizer_info info;
    het_encode_desc desc;
    het_error error = { HET_OK, "" };
    het_result result = HET_OK;
    int64_t room = 0, i;
    memset(&info, 0, sizeof info);
    memset(&desc, 0, sizeof desc);
    desc.wrap = HET_NO;
    if (tokenizer != NULL && prefix) het_tokenizer_get_info(tokenizer, &info);
    *token = NULL;
    *count = tokenizer != NULL ? (int64_t)length / 2 + 1024 : (int64_t)length;
    do { /* a second time where the guess was too small */
        room = *count;
        free(*token);
        *token = (int32_t *)malloc((size_t)(info.prefixes + room + 1) * sizeof **token);
        if (*token == NULL) return fail(FAILED, "%s: no memory for %lld tokens", option_name, (long long)room);
        if (tokenizer != NULL) result = het_tokenizer_encode(tokenizer, &desc, text, length, *token + info.prefixes, room, count, &error);
    } while (result == HET_OK && *count > room);
    if (result != HET_OK) {
        free(*token);
        *token = NULL;
        return fail(status_of(result), "%s: %s", option_name, error.text);
    }
    for (i = 0; i < info.prefixes; i++) (*token)[i] = info.prefix[i];
    for (i = 0; i < room && tokenizer == NULL; i++) (*token)[i] = (unsigned char)text[i];
    *count += info.prefixes;
    return 0;
}

/* The bytes of a token; tokenizer NULL: the token is a byte, kept in *byte. 0: there is no such token. */
static inline int token_bytes(const het_tokenizer *tokenizer, int32_t id, char *byte, const char **bytes, size_t *length) {
    het_token token;
    if (tokenizer == NULL) {
        *byte = (char)id, *bytes = byte, *length = 1;
        return 1;
    }
    if (!het_tokenizer_get_token(tokenizer, id, &token)) return 0;
    *bytes = token.bytes, *length = token.length;
    return 1;
}

/* The tokenizer as a tokenizer.json, byte by byte as it was read. */
static inline int write_tokenizer(const char *option_name, const char *path, const het_tokenizer *tokenizer) {
    write_target t;
    het_writer writer;
    const int status = target_open(&t, option_name, path);
    if (status != 0) return status;
    writer = target_writer(&t);
    return target_end(&t, het_tokenizer_write(tokenizer, &writer), NULL);
}

/* ---- text as it comes out ---------------------------------------------------------------------------------------------- */

typedef struct text_out {
    int terminal;          /* control characters could change its state, and it cannot show what is not UTF-8 */
    unsigned char held[4]; /* the beginning of a character */
    size_t count;
} text_out;

/* Prints the characters that are complete; with `last`, also what is left of one that never was. */
static inline void text_print(text_out *out, const char *bytes, size_t length, int last) {
    size_t i;
    for (i = 0; i <= length; i++) {
        int whole;
        if (i < length) out->held[out->count++] = (unsigned char)bytes[i];
        else if (!last || out->count == 0) break;
        while (out->count > 0 && (whole = utf8_length(out->held, out->count)) != 0) {
            const size_t used = whole > 0 ? (size_t)whole : 1;
            const int control = whole == 1 && out->held[0] != '\n' && out->held[0] != '\t' && (out->held[0] < 32 || out->held[0] == 127);
            if (whole < 0 && out->terminal) fputs("\357\277\275", stdout); /* U+FFFD */
            else if (control && out->terminal) putchar('?');
            else fwrite(out->held, 1, used, stdout);
            out->count -= used;
            memmove(out->held, out->held + used, out->count);
        }
        if (i == length && out->count > 0) {
            if (out->terminal) fputs("\357\277\275", stdout);
            else fwrite(out->held, 1, out->count, stdout);
            out->count = 0;
        }
    }
    fflush(stdout);
}

/* ---- where a text ends --------------------------------------------------------------------------------------------------- */

enum { END_TOKENS = 64 };
typedef struct end_tokens { int32_t id[END_TOKENS]; int count; } end_tokens;

static inline int end_is(const end_tokens *e, int32_t id) {
    int i;
    for (i = 0; i < e->count && e->id[i] != id; i++) {}
    return i < e->count;
}

/* What the files beside the weights say; where they say nothing, the usual names among the tokenizer's special tokens. Bytes end no text. */
static inline int end_find(end_tokens *e, const char *init, int64_t vocab, const het_tokenizer *tokenizer) {
    static const char *const files[] = { "generation_config.json", "config.json" };
    static const char *const names[] = { "<|endoftext|>", "</s>", "<|end_of_text|>", "<|eot_id|>", "<|im_end|>" };
    char path[1024];
    size_t i, length;
    e->count = 0;
    for (i = 0; i < 2; i++) {
        het_error error = { HET_OK, "" };
        int64_t count = 0;
        char *text;
        het_result result;
        if (!beside_weights(init, files[i], path, sizeof path)) continue;
        if ((text = read_found_file(path, &length)) == NULL) return fail(BAD_INPUT, "--init %s: %s", path, small_file_error());
        result = het_ends_from_json(text, length, vocab, e->id + e->count, END_TOKENS - e->count, &count, &error);
        free(text);
        if (result != HET_OK) return fail(BAD_INPUT, "--init %s: %s", path, error.text);
        if (count > END_TOKENS - e->count)
            return fail(BAD_INPUT, "--init %s: eos_token_id has %lld ids; %d are read", path, (long long)count, END_TOKENS);
        e->count += (int)count;
    }
    if (tokenizer == NULL) e->count = 0;
    for (i = 0; i < 5 && tokenizer != NULL && e->count == 0; i++) {
        het_token token;
        const int32_t id = het_tokenizer_find(tokenizer, names[i], strlen(names[i]));
        if (id >= 0 && het_tokenizer_get_token(tokenizer, id, &token) && token.special) e->id[e->count++] = id;
    }
    return 0;
}

#endif
