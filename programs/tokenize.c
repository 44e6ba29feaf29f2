/* Turns text into token files with a tokenizer.json, trains tokenizers, and turns token files back into text.    build/tokenize --help

   build/tokenize --train 4096 --text book.txt --tokenizer tokenizer.json              a tokenizer of 4,096 ids
   build/tokenize --tokenizer tokenizer.json --text book.txt --out book.bin            a token file, for build/train --data
   build/tokenize --tokenizer tokenizer.json --decode book.bin                         and back again */
#define HETRAIN_IMPLEMENTATION
#define PROGRAM "tokenize"
#include "common.h"
#include "files.h"
#include "hetrain_tokenizer.h"

typedef struct settings {
    const char *tokenizer, *text, *decode, *out;
    int64_t train, split, nfc, format, wrap, special;
} settings;

static const option table[] = {
    OPTION_TITLE("Files"),
    { "--tokenizer", "FILE", OPTION_TEXT, offsetof(settings, tokenizer), 0, 0, "the tokenizer.json; with --train it is written" },
    { "--text", "FILE", OPTION_TEXT, offsetof(settings, text), 0, 0, "the text" },
    { "--out", "FILE", OPTION_TEXT, offsetof(settings, out), 0, 0, "the token file; with --decode the text, standard output if not given" },
    { "--decode", "FILE", OPTION_TEXT, offsetof(settings, decode), 0, 0, "a token file to turn into text" },
    { "--format", "llmc|nanogpt", OPTION_CHOICE, offsetof(settings, format), 0, 0, "llm.c's token file, in 16 bits where ids fit, or nanoGPT's" },
    OPTION_TITLE("Encoding"),
    { "--wrap", "no|yes", OPTION_CHOICE, offsetof(settings, wrap), 0, 0, "with the tokenizer's own beginning and end of a text" },
    { "--special", "yes|no", OPTION_CHOICE, offsetof(settings, special), 0, 0, "special tokens that are spelled out in the text become their ids" },
    OPTION_TITLE("A new tokenizer"),
    { "--train", "N", OPTION_INTEGER, offsetof(settings, train), 257, 16777216, "make a tokenizer of N ids from the text" },
    { "--split", "gpt2|llama3|qwen2", OPTION_CHOICE, offsetof(settings, split), 0, 0, "whose way to cut text into words it gets" },
    { "--nfc", "no|yes", OPTION_CHOICE, offsetof(settings, nfc), 0, 0, "whether it composes characters first" },
    OPTION_LAST_ROWS
};
enum { OPTIONS = sizeof table / sizeof table[0], HEADER = 1024 };

/* Little-endian numbers of 2 or 4 bytes. */
static void put(unsigned char *to, uint32_t value, int bytes) {
    for (; bytes-- > 0; value >>= 8) *to++ = (unsigned char)(value & 255);
}

static uint32_t get(const unsigned char *from, size_t bytes) {
    uint32_t value = 0;
    while (bytes-- > 0) value = value << 8 | from[bytes];
    return value;
}

/* ---- text to tokens ---- */

static int write_tokens(const settings *s, const int32_t *token, int64_t count, int bytes) {
    unsigned char header[HEADER] = { 0 }, number[4];
    write_target t;
    int64_t i;
    int status;
    if (s->format == 1 && count > INT32_MAX) return fail(BAD_INPUT, "--out %s: %lld tokens; the header holds 2147483647", s->out, (long long)count);
    if ((status = target_open(&t, "--out", s->out)) != 0) return status;
    put(header, bytes == 2 ? 20240520 : 20240801, 4);
    put(header + 4, bytes == 2 ? 1 : 7, 4);
    put(header + 8, (uint32_t)count, 4);
    if (s->format == 1) fwrite(header, 1, sizeof header, t.file);
    for (i = 0; i < count; i++) {
        put(number, (uint32_t)token[i], bytes);
        fwrite(number, 1, (size_t)bytes, t.file);
    }
    return target_close(&t, 0);
}

static int encode(const settings *s, const het_tokenizer *tokenizer) {
    het_encode_desc desc;
    het_tokenizer_info info;
    het_error error = { HET_OK, "" };
    het_result result;
    char *text = NULL;
    int32_t *token = NULL;
    size_t size;
    int64_t count = 0, room = 0;
    int status, bytes;
    het_tokenizer_get_info(tokenizer, &info);
    bytes = info.vocab <= 65536 ? 2 : 4;
    if (s->wrap == 2 && info.prefixes + info.suffixes == 0)
        return fail(BAD_INPUT, "--wrap yes: the template of %s puts nothing before or behind a text", s->tokenizer);
    if (s->format == 2 && bytes == 4)
        return fail(BAD_INPUT, "--format nanogpt: ids up to %lld, and it has 16 bits; use llmc", (long long)info.vocab - 1);
    memset(&desc, 0, sizeof desc);
    desc.wrap = s->wrap == 2 ? HET_YES : HET_NO;
    desc.special = s->special == 1 ? HET_YES : HET_NO;
    status = read_file("--text", s->text, &text, &size);
    for (count = status == 0 ? (int64_t)size / 2 + 1024 : 0; status == 0 && count > room;) { /* enough for most text */
        room = count;
        free(token);
        token = (int32_t *)malloc((size_t)room * sizeof *token);
        result = token != NULL ? het_tokenizer_encode(tokenizer, &desc, text, size, token, room, &count, &error) : HET_OK;
        if (token == NULL) status = fail(FAILED, "--text %s: no memory for %lld tokens", s->text, (long long)room);
        if (result != HET_OK) status = fail(status_of(result), "--text %s: %s", s->text, error.text);
    }
    free(text);
    if (status == 0) status = write_tokens(s, token, count, bytes);
    free(token);
    if (status == 0)
        printf("%s: %lld tokens of %d bits for %zu bytes of text, %.3f bytes a token\n", s->out, (long long)count, 8 * bytes, size,
               count > 0 ? (double)size / (double)count : 0.0);
    return status;
}

/* ---- tokens to text ---- */

static int decode(const settings *s, const het_tokenizer *tokenizer) {
    char *data = NULL;
    const unsigned char *from;
    size_t size, count, i, start = 0, bytes = 2;
    write_target t = { NULL, NULL, NULL, "", "", 0, { 0 } };
    FILE *file = stdout;
    int status = read_file("--decode", s->decode, &data, &size);
    uint32_t magic;
    from = (const unsigned char *)data;
    magic = status == 0 && size >= 4 ? get(from, 4) : 0;
    if (magic == 20240520 || magic == 20240801) {
        const unsigned version = magic == 20240520 ? 1 : 7;
        start = HEADER;
        bytes = magic == 20240520 ? 2 : 4;
        if (size < HEADER) status = fail(BAD_INPUT, "--decode %s: %zu bytes are too few for the header of %d", s->decode, size, (int)HEADER);
        else if (get(from + 4, 4) != version)
            status = fail(BAD_INPUT, "--decode %s: version %u at offset 4, where magic %u has version %u", s->decode, (unsigned)get(from + 4, 4),
                          (unsigned)magic, version);
        else if (size - start != get(from + 8, 4) * (uint64_t)bytes)
            status = fail(BAD_INPUT, "--decode %s: the header says %u tokens of %zu bytes, and %zu bytes follow it", s->decode,
                          (unsigned)get(from + 8, 4), bytes, size - start);
    } else if (status == 0 && size % 2 != 0) status = fail(BAD_INPUT, "--decode %s: %zu bytes are no row of 16-bit tokens", s->decode, size);
    count = status == 0 ? (size - start) / bytes : 0;
    if (status == 0 && s->out != NULL && (status = target_open(&t, "--out", s->out)) == 0) file = t.file;
    for (i = 0; status == 0 && i < count; i++) {
        const uint32_t id = get(from + start + i * bytes, bytes);
        het_token token;
        if (id > INT32_MAX || !het_tokenizer_get_token(tokenizer, (int32_t)id, &token))
            status = fail(BAD_INPUT, "--decode %s: token %zu is %u, which the tokenizer does not have", s->decode, i, (unsigned)id);
        else fwrite(token.bytes, 1, token.length, file);
    }
    free(data);
    return file != stdout ? target_close(&t, status) : status;
}

/* ---- training ---- */

static int train(const settings *s) {
    het_tokenizer_desc desc;
    het_tokenizer_info info;
    het_tokenizer *tokenizer = NULL;
    het_error error = { HET_OK, "" };
    het_result result;
    het_writer writer;
    write_target t;
    char *text = NULL;
    size_t size;
    int status = read_file("--text", s->text, &text, &size);
    memset(&desc, 0, sizeof desc);
    desc.vocab = s->train;
    desc.split = s->split == 1 ? HET_SPLIT_GPT2 : s->split == 2 ? HET_SPLIT_LLAMA3 : HET_SPLIT_QWEN2;
    desc.nfc = s->nfc == 2 ? HET_YES : HET_NO;
    result = status == 0 ? het_tokenizer_train(&desc, text, size, &tokenizer, &error) : HET_OK;
    free(text);
    if (status == 0 && result != HET_OK) status = fail(status_of(result), "--train: %s", error.text);
    if (status != 0) return status;
    het_tokenizer_get_info(tokenizer, &info);
    if (info.merges == 0 && s->train > 257)
        status = fail(BAD_INPUT, "--train: no pair of bytes comes twice in the %zu of --text %s; 257 ids are those of bytes alone", size, s->text);
    else if ((status = target_open(&t, "--tokenizer", s->tokenizer)) == 0) {
        writer = target_writer(&t);
        status = target_end(&t, het_tokenizer_write(tokenizer, &writer), NULL);
    }
    het_tokenizer_free(tokenizer);
    if (status != 0) return status;
    printf("%s: %lld ids, %lld merges", s->tokenizer, (long long)info.vocab, (long long)info.merges);
    if (info.vocab < s->train) printf("; the text has no more pairs, so there are no %lld ids", (long long)s->train);
    printf("\n");
    return status;
}

static int program(int argc, char **argv) {
    static const char summary[] = "build/tokenize --tokenizer FILE [options]\n\n"
                                  "Turns text into token files, trains tokenizers, and turns token files back into text.";
    settings s;
    unsigned char given[OPTIONS] = { 0 };
    het_tokenizer *tokenizer = NULL;
    het_error error = { HET_OK, "" };
    het_result result;
    char *json = NULL;
    size_t size;
    int status;
    memset(&s, 0, sizeof s);
    s.format = s.wrap = s.special = s.split = s.nfc = 1;
    status = options_parse(summary, table, OPTIONS, &s, given, argc, argv);
    if (status >= 0) return status;
    if (s.tokenizer == NULL) return fail(BAD_INPUT, "--tokenizer is missing; --help lists the options");
    if (s.decode != NULL && (s.text != NULL || s.train != 0)) return fail(BAD_INPUT, "--decode goes with neither --text nor --train");
    if (s.decode == NULL && s.text == NULL) return fail(BAD_INPUT, "--text FILE or --decode FILE is missing");
    if (s.train == 0) status = options_idle(table, OPTIONS, given, "--split --nfc", "without --train");
    else status = options_idle(table, OPTIONS, given, "--format --wrap --special", "with --train");
    if (status == 0 && s.decode != NULL) status = options_idle(table, OPTIONS, given, "--format --wrap --special", "with --decode");
    if (status != 0) return status;
    {
        const named_path reads[] = { { "--text", s.text }, { "--decode", s.decode }, { "--tokenizer", s.train == 0 ? s.tokenizer : NULL } };
        const named_path writes = { s.train != 0 ? "--tokenizer" : "--out", s.train != 0 ? s.tokenizer : s.out };
        if ((status = targets_differ(&writes, 1, reads, 3)) != 0) return status;
    }
    if (s.train != 0) return s.out == NULL ? train(&s) : fail(BAD_INPUT, "--train writes --tokenizer, not --out");
    if (s.decode == NULL && s.out == NULL) return fail(BAD_INPUT, "--out FILE is missing");
    status = read_file("--tokenizer", s.tokenizer, &json, &size);
    result = status == 0 ? het_tokenizer_read(json, size, NULL, &tokenizer, &error) : HET_OK;
    free(json);
    if (result != HET_OK) status = fail(status_of(result), "--tokenizer %s: %s", s.tokenizer, error.text);
    if (status == 0) status = s.decode != NULL ? decode(&s, tokenizer) : encode(&s, tokenizer);
    het_tokenizer_free(tokenizer);
    return status;
}

int main(int argc, char **argv) {
    program_begin();
    return program_end(program(argc, argv));
}
