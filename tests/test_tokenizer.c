/* Tokenizers of hetrain_tokenizer.h against ids from Hugging Face's tokenizers (tests/oracle/tokenizer_vectors.py), against the plainest way to do
   byte pair encoding, and against files that are bad in one place. tests/oracle/tokenizer_soak.py compares a million texts more. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* opendir */
#endif
#include "support.h"

#include <dirent.h>
#include <time.h>

#include "hetrain_tokenizer.h"

#define HETRAIN_FUZZ_REPLAY
#include "fuzz/fuzz_tokenizer.c"

#define FOLDER "tests/oracle/data/tokenizer/"
static const char *const kinds[] = { "gpt2", "llama3", "qwen2", "neox", "prefix", "whole" };
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* ---- files ---- */

/* A file of the folder; free it. */
static char *file_text(const char *name, size_t *length)
{
    char path[300];
    FILE *file;
    char *text = support_alloc(1 << 20, 1);
    snprintf(path, sizeof path, "%s%s", name[0] == '/' ? "" : FOLDER, name);
    file = fopen(path, "rb");
    if (!file) fail_msg("%s cannot be opened", path);
    *length = fread(text, 1, 1 << 20, file);
    fclose(file);
    return text;
}

static het_tokenizer *read_text(const char *text, size_t length, const het_allocator *allocator)
{
    het_tokenizer *t = NULL;
    het_error error = { HET_OK, "" };
    support_expect(het_tokenizer_read(text, length, allocator, &t, &error), HET_OK, error.text, "", "het_tokenizer_read", __LINE__);
    return t;
}

static het_tokenizer *read_kind(const char *kind)
{
    char name[64];
    size_t length;
    char *text;
    het_tokenizer *t;
    snprintf(name, sizeof name, "%s.json", kind);
    text = file_text(name, &length);
    t = read_text(text, length, NULL);
    free(text);
    return t;
}

/* ---- ids from Hugging Face ---- */

typedef struct expected {
    char *text, *decoded, *kept;
    size_t length, decoded_length, kept_length; /* SIZE_MAX: not given */
    int32_t *ids, *bare;
    int64_t count, bare_count;
} expected;

static int64_t read_ids(het_json *j, int32_t *to)
{
    int64_t count = 0, id;
    het_json_enter(j, HET_JSON_ARRAY);
    while (het_json_next(j, NULL, 0, NULL) && het_json_integer(j, &id)) to[count++] = (int32_t)id;
    return count;
}

/* The next case of the file into buffers of 64 KiB; 0: there is none. */
static int next_case(het_json *j, expected *e)
{
    char key[16];
    e->decoded_length = e->kept_length = SIZE_MAX;
    if (!het_json_next(j, NULL, 0, NULL)) return 0;
    het_json_enter(j, HET_JSON_OBJECT);
    while (het_json_next(j, key, sizeof key, NULL)) {
        if (strcmp(key, "text") == 0) het_json_string(j, e->text, 1 << 16, &e->length);
        else if (strcmp(key, "ids") == 0) e->count = read_ids(j, e->ids);
        else if (strcmp(key, "bare") == 0) e->bare_count = read_ids(j, e->bare);
        else if (strcmp(key, "decoded") == 0) het_json_string(j, e->decoded, 1 << 16, &e->decoded_length);
        else het_json_string(j, e->kept, 1 << 16, &e->kept_length);
    }
    return j->rule == NULL;
}

static void same_ids(const het_tokenizer *t, const het_encode_desc *desc, const expected *e, const int32_t *wanted, int64_t wanted_count,
                     const char *kind, int number)
{
    static int32_t got[1 << 16];
    int64_t count = -1, i;
    EXPECT_OK(het_tokenizer_encode(t, desc, e->text, e->length, got, 1 << 16, &count, NULL));
    for (i = 0; i < count && i < wanted_count && got[i] == wanted[i]; i++) {}
    if (i < count || i < wanted_count)
        fail_msg("%s, text %d: \"%s\": id %d of %d is %d, not %d of %d", kind, number, e->text, (int)i, (int)count, i < count ? (int)got[i] : -1,
                 i < wanted_count ? (int)wanted[i] : -1, (int)wanted_count);
}

static void same_text(const het_tokenizer *t, const expected *e, het_choice skip, const char *wanted, size_t wanted_length, const char *kind)
{
    static char got[1 << 17];
    size_t length;
    EXPECT_OK(het_tokenizer_decode(t, e->ids, e->count, skip, got, sizeof got, &length, NULL));
    if (wanted_length == SIZE_MAX) return;
    if (length != wanted_length || memcmp(got, wanted, length) != 0) fail_msg("%s: \"%s\" comes back as \"%.*s\"", kind, e->text, (int)length, got);
}

static void same_as_hugging_face(void **state)
{
    expected e;
    int k;
    (void)state;
    memset(&e, 0, sizeof e);
    e.text = support_alloc(1 << 16, 1);
    e.decoded = support_alloc(1 << 16, 1);
    e.kept = support_alloc(1 << 16, 1);
    e.ids = support_alloc(1 << 16, sizeof *e.ids);
    e.bare = support_alloc(1 << 16, sizeof *e.bare);
    for (k = 0; k < KINDS; k++) {
        char name[64];
        size_t length;
        char *text;
        het_json j;
        int number = 0;
        het_tokenizer *t = read_kind(kinds[k]);
        het_encode_desc bare;
        memset(&bare, 0, sizeof bare);
        bare.wrap = bare.special = HET_NO;
        snprintf(name, sizeof name, "%s.vectors.json", kinds[k]);
        text = file_text(name, &length);
        j = het_json_start(text, length);
        het_json_enter(&j, HET_JSON_ARRAY);
        for (; next_case(&j, &e); number++) {
            same_ids(t, NULL, &e, e.ids, e.count, kinds[k], number);
            same_ids(t, &bare, &e, e.bare, e.bare_count, kinds[k], number);
            same_text(t, &e, HET_NO, e.decoded, e.decoded_length, kinds[k]);
            same_text(t, &e, HET_YES, e.kept, e.kept_length, kinds[k]);
        }
        if (j.rule != NULL || number < 150) fail_msg("%s: %s at byte %d, %d texts", name, j.rule ? j.rule : "", (int)j.rule_at, number);
        free(text);
        het_tokenizer_free(t);
    }
    free(e.text), free(e.decoded), free(e.kept), free(e.ids), free(e.bare);
}

/* ---- bytes that are no UTF-8 ---- */

static int64_t encode(const het_tokenizer *t, const void *text, size_t length, int32_t *to, int64_t capacity)
{
    int64_t count = -1;
    het_error error = { HET_OK, "" };
    het_result result = het_tokenizer_encode(t, NULL, (const char *)text, length, to, capacity, &count, &error);
    support_expect(result, HET_OK, error.text, "", "het_tokenizer_encode", __LINE__);
    return count;
}

/* Ids of the pieces one by one equal ids of the whole. */
static void falls_apart(const het_tokenizer *t, const char *const *piece, int pieces)
{
    char whole[256] = { 0 };
    int32_t a[256], b[256];
    int64_t count = 0, total;
    size_t length = 0;
    int i;
    for (i = 0; i < pieces; i++) {
        memcpy(whole + length, piece[i], strlen(piece[i]));
        length += strlen(piece[i]);
        count += encode(t, piece[i], strlen(piece[i]), a + count, 256 - count);
    }
    total = encode(t, whole, length, b, 256);
    if (total != count || memcmp(a, b, (size_t)count * sizeof *a) != 0) fail_msg("\"%s\" is not cut as it should be", whole);
}

static void invalid_bytes(void **state)
{
    /* each is a sign of its own kind: it ends a run of letters or digits, and joins one of signs */
    static const char *const bad[] = { "\x80", "\xBF", "\xC0", "\xC1", "\xF5", "\xFF", "\xC3", "\xE2\x82", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                                       "\xF0\x80\x80\x80", "\xE0\x80\xAF", "\xF0\x9F\x98" };
    uint64_t seed = 3;
    int k;
    (void)state;
    for (k = 0; k < KINDS; k++) {
        het_tokenizer *t = read_kind(kinds[k]);
        het_tokenizer_info info;
        size_t i;
        int round;
        het_tokenizer_get_info(t, &info);
        for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            if (info.split == HET_SPLIT_WHOLE || info.prefixes + info.suffixes > 0 || info.prefix_space) break;
            const char *letters[] = { "the", bad[i], " the" }, *digits[] = { "7", bad[i], " ", "\n" };
            if (info.split != HET_SPLIT_GPT2) letters[1] = " .", letters[2] = " the"; /* their words may begin with one sign */
            falls_apart(t, letters, 3);
            falls_apart(t, digits, 3);
        }
        for (round = 0; round < 400 && !info.nfc; round++) {
            unsigned char text[200];
            int32_t ids[512];
            char back[2048];
            size_t length = (size_t)support_below(&seed, 200), got;
            int64_t count;
            for (i = 0; i < length; i++)
                text[i] = support_below(&seed, 3) == 0 ? (unsigned char)support_below(&seed, 256) : (unsigned char)('`' + support_below(&seed, 8));
            count = encode(t, text, length, ids, 512);
            EXPECT_OK(het_tokenizer_decode(t, ids + info.prefixes, count - info.prefixes - info.suffixes, HET_NO, back, sizeof back, &got, NULL));
            if (info.prefix_space && length > 0 && text[0] != ' ') memmove(back, back + 1, --got);
            if (got != length || memcmp(text, back, length) != 0) fail_msg("%s: random bytes did not come back", kinds[k]);
        }
        het_tokenizer_free(t);
    }
}

/* ---- long words ---- */

/* A word of a megabyte: quadratic work would take hours. Memory grows with the word as the manual says. */
static void long_words(void **state)
{
    const size_t length = 1 << 20;
    char *text = support_alloc(length, 1);
    int32_t *ids = support_alloc(length + 8, sizeof *ids);
    int pattern;
    (void)state;
    for (pattern = 0; pattern < 5; pattern++) {
        support_memory memory;
        het_allocator allocator = support_allocator(&memory);
        het_encode_desc desc;
        het_tokenizer *t = read_kind(pattern < 4 ? "neox" : "llama3");
        uint64_t seed = 9;
        int64_t count = 0;
        size_t i, got;
        memset(&desc, 0, sizeof desc);
        desc.allocator = allocator;
        desc.wrap = HET_NO;
        for (i = 0; i < length; i++) {
            text[i] = (char)(pattern == 0 ? 'b' : pattern == 1 ? 'a' + (char)support_below(&seed, 2) : pattern == 2 ? ' '
                             : pattern == 3 ? "\xCC\x81\xCC\xA3"[i % 4] : "\n\t"[i % 2]);
        }
        EXPECT_OK(het_tokenizer_encode(t, &desc, text, length, ids, (int64_t)length, &count, NULL));
        assert_true(memory.live == 0 && memory.wrong == 0);
        if (memory.peak > 64 * length) fail_msg("pattern %d: %d bytes of memory for each of text", pattern, (int)(memory.peak / length));
        if (pattern != 3 && pattern != 1) {
            char *back = support_alloc(length, 1);
            EXPECT_OK(het_tokenizer_decode(t, ids, count, HET_NO, back, length, &got, NULL));
            assert_true(got == length && memcmp(text, back, length) == 0);
            free(back);
        }
        het_tokenizer_free(t);
    }
    free(text), free(ids);
}

/* ---- small tokenizers made of text ---- */

static const char small[] =
    "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":["
    "{\"id\":9,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true},"
    "{\"id\":10,\"content\":\"e\\u0301\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":true,\"special\":false}],"
    "\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
    "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|"
    "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"
    "\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]},"
    "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true},"
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"
    "\"pair\":[],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[9],\"tokens\":[\"<s>\"]}}}]},"
    "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":null,"
    "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,\"vocab\":{\"a\":0,\"b\":1,"
    "\"c\":2,\"ab\":3,\"abc\":4,\"\\u0120\":5,\"\\u0120a\":6,\"bc\":7,\"x y\":8},"
    "\"merges\":[[\"a\",\"b\"],[\"\\u0120\",\"a\"],\"ab c\",[\"b\",\"c\"]]}}";

/* `small` with the first `from` replaced by `to`, in `out`. */
static size_t changed(const char *from, const char *to, char *out)
{
    const char *at = strstr(small, from);
    if (!at) fail_msg("the small tokenizer has no %s", from);
    memcpy(out, small, (size_t)(at - small));
    strcpy(out + (at - small), to);
    strcat(out, at + strlen(from));
    return strlen(out);
}

static void small_one(void **state)
{
    het_tokenizer *t = read_text(small, sizeof small - 1, NULL);
    het_tokenizer_info info;
    het_token token;
    het_error error;
    support_buffer buffer;
    het_writer writer;
    char out[64];
    int32_t ids[32], left, right;
    int64_t count;
    size_t length;
    (void)state;
    het_tokenizer_get_info(t, &info);
    assert_true(info.vocab == 11 && info.tokens == 11 && info.added == 2 && info.merges == 4 && info.split == HET_SPLIT_QWEN2 && info.nfc == 1);
    assert_true(info.prefixes == 1 && info.prefix[0] == 9 && info.suffixes == 0);
    count = encode(t, "abc a abcb", 10, ids, 32); /* <s> abc _a _a bc b: the merge of _ and a comes before that of a and b, since b is joined first */
    {
        static const int32_t wanted[] = { 9, 4, 6, 5, 4, 1 };
        assert_true(count == 6 && memcmp(ids, wanted, sizeof wanted) == 0);
    }
    count = encode(t, "a\xC3\xA9<s>", 6, ids, 32); /* the composed letter is found where the file has the two */
    assert_true(count == 4 && ids[1] == 0 && ids[2] == 10 && ids[3] == 9);
    count = encode(t, "", 0, ids, 32);
    assert_true(count == 1 && ids[0] == 9);
    count = encode(t, "abc", 3, NULL, 0);
    assert_int_equal(count, 2);
    ids[1] = 77;
    assert_int_equal(encode(t, "abcabc", 6, ids, 1), 3);
    assert_true(ids[0] == 9 && ids[1] == 77);
    EXPECT_ERROR(het_tokenizer_encode(t, NULL, "abcz", 4, ids, 32, &count, &error), HET_ERR_DATA, error.text, "byte 0|byte 122");
    EXPECT_ERROR(het_tokenizer_encode(t, NULL, "<s>abcz", 7, ids, 32, &count, &error), HET_ERR_DATA, error.text, "byte 3|byte 122");
    assert_int_equal(count, 2); /* as it was */
    assert_int_equal(het_tokenizer_find(t, " a", 2), 6);
    assert_int_equal(het_tokenizer_find(t, "<s>", 3), 9);
    assert_int_equal(het_tokenizer_find(t, "x y", 3), 8);
    assert_int_equal(het_tokenizer_find(t, "ca", 2), -1);
    assert_int_equal(het_tokenizer_find(t, "", 0), -1);
    assert_true(het_tokenizer_get_token(t, 6, &token) && token.length == 2 && memcmp(token.bytes, " a", 2) == 0 && !token.added && !token.special);
    assert_true(het_tokenizer_get_token(t, 9, &token) && token.length == 3 && token.added && token.special);
    assert_true(!het_tokenizer_get_token(t, 11, &token) && !het_tokenizer_get_token(t, -1, &token));
    assert_int_equal(het_tokenizer_spell(t, 6, out, sizeof out), 3);
    assert_string_equal(out, "\xC4\xA0" "a");
    assert_int_equal(het_tokenizer_spell(t, 10, out, sizeof out), 3);
    assert_string_equal(out, "e\xCC\x81");
    assert_int_equal(het_tokenizer_spell(t, 9, out, 2), 3);
    assert_string_equal(out, "<");
    assert_int_equal(het_tokenizer_spell(t, 11, out, sizeof out), 0);
    assert_true(het_tokenizer_get_merge(t, 2, &left, &right) && left == 3 && right == 2);
    assert_true(!het_tokenizer_get_merge(t, 4, &left, &right) && !het_tokenizer_get_merge(t, -1, &left, &right));
    ids[0] = 4, ids[1] = 9, ids[2] = 6;
    EXPECT_OK(het_tokenizer_decode(t, ids, 3, HET_YES, out, 4, &length, NULL));
    assert_true(length == 5 && memcmp(out, "abc ", 4) == 0);
    ids[1] = 11;
    EXPECT_ERROR(het_tokenizer_decode(t, ids, 3, HET_NO, out, sizeof out, &length, &error), HET_ERR_DATA, error.text, "token[1]|11");
    support_buffer_start(&buffer);
    writer = support_writer(&buffer);
    EXPECT_OK(het_tokenizer_write(t, &writer));
    assert_true(buffer.size == sizeof small - 1 && memcmp(buffer.data, small, buffer.size) == 0);
    buffer.fail_after = 0;
    EXPECT_ERROR(het_tokenizer_write(t, &writer), HET_ERR_IO, NULL, "");
    support_buffer_end(&buffer);
    het_tokenizer_free(t);
    het_tokenizer_free(NULL);
}

/* The first added token takes white space behind it, the second is white space and wants more on both sides: what was taken is not there again. */
static void white_space_is_taken_once(void **state)
{
    char text[8192];
    const size_t length = changed(
        "{\"id\":9,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true},"
        "{\"id\":10,\"content\":\"e\\u0301\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":true,\"special\":false}",
        "{\"id\":9,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":true,\"normalized\":false,\"special\":true},"
        "{\"id\":10,\"content\":\"\\n\",\"single_word\":false,\"lstrip\":true,\"rstrip\":true,\"normalized\":false,\"special\":true}", text);
    het_tokenizer *t = read_text(text, length, NULL);
    static const struct { const char *text; int64_t count; int32_t ids[6]; } cases[] = {
        { "a\n\nb", 4, { 9, 0, 10, 1 } }, { "a<s>\nb", 4, { 9, 0, 9, 1 } }, { "a<s> \n\n b", 4, { 9, 0, 9, 1 } },
        { "\n", 2, { 9, 10 } }, { "a\n<s>b", 5, { 9, 0, 10, 9, 1 } }, { "a\nb\nc", 6, { 9, 0, 10, 1, 10, 2 } }
    };
    int32_t ids[32];
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(encode(t, cases[i].text, strlen(cases[i].text), ids, 32), cases[i].count);
        assert_memory_equal(ids, cases[i].ids, (size_t)cases[i].count * sizeof *ids);
    }
    het_tokenizer_free(t);
}

/* Letters of the byte-level alphabet in an added token are letters, unless the vocabulary has the token: its id is also that of other bytes. */
static void added_tokens_come_back(void **state)
{
    static const char *const texts[] = { "a\xC3\xA9<s>b", "\xC3\xA9", "\xC3\xA9\xC3\xA9" };
    char text[8192], back[64];
    het_tokenizer *t = read_text(small, sizeof small - 1, NULL);
    het_token token;
    int32_t ids[32];
    size_t i, length;
    (void)state;
    for (i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const int64_t count = encode(t, texts[i], strlen(texts[i]), ids, 32);
        EXPECT_OK(het_tokenizer_decode(t, ids + 1, count - 1, HET_NO, back, sizeof back, &length, NULL));
        if (length != strlen(texts[i]) || memcmp(back, texts[i], length) != 0) fail_msg("%s comes back as %.*s", texts[i], (int)length, back);
    }
    het_tokenizer_free(t);
    length = changed("{\"id\":10,\"content\":\"e\\u0301\"", "{\"id\":6,\"content\":\"\\u0120a\"", text);
    t = read_text(text, length, NULL);
    assert_int_equal(encode(t, "\xC4\xA0" "a a", 5, ids, 32), 3);
    assert_true(ids[1] == 6 && ids[2] == 6);
    assert_true(het_tokenizer_get_token(t, 6, &token) && token.added && token.length == 2 && memcmp(token.bytes, " a", 2) == 0);
    het_tokenizer_free(t);
}

/* A template of text, 64 pieces beside the text and then one more: each looks through the table of tokens. */
static void templates_have_few_pieces(void **state)
{
    static const char piece[] = "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},";
    char *to = support_alloc(16384, 1), *text = support_alloc(16384, 1);
    int pieces, i;
    (void)state;
    for (pieces = 64; pieces < 66; pieces++) {
        het_error error = { HET_OK, "" };
        het_tokenizer *t = NULL;
        size_t length;
        char *ids;
        to[0] = 0;
        for (i = 0; i < pieces; i++) strcat(to, piece);
        strcat(to, "{\"Sequence\"");
        /* no ids: it is not the number of tokens in front that is too large */
        length = changed("{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\"", to, text);
        ids = strstr(text, "\"ids\":[9]");
        assert_non_null(ids);
        ids[7] = ' ';
        support_expect(het_tokenizer_read(text, length, NULL, &t, &error), pieces == 64 ? HET_OK : HET_ERR_LIMIT, error.text,
                       pieces == 64 ? "" : "a template of more than 65 pieces", "pieces", pieces);
        het_tokenizer_free(t);
    }
    free(to);
    free(text);
}

/* `small` with a first added token of so many bytes, which the caller writes at *content. */
static char *with_added(size_t length, char **content, size_t *size)
{
    char *text = support_alloc(sizeof small + length, 1);
    const size_t front = (size_t)(strstr(small, "<s>") - small);
    memcpy(text, small, front);
    *content = text + front;
    memcpy(text + front + length, small + front + 3, sizeof small - front - 3);
    *size = sizeof small - 1 + length - 3;
    return text;
}

/* An added token whose edges in the automaton would lie side by side in a table with a seed that everybody knows: a minute to read it. */
static void collisions_need_the_seed(void **state)
{
    enum { LENGTH = 300000, SLOTS = 1 << 20 };
    char *content, *text;
    het_tokenizer *t;
    int32_t id[4];
    size_t size, i;
    clock_t start;
    (void)state;
    text = with_added(LENGTH, &content, &size);
    for (i = 0; i < LENGTH; i++) {
        uint64_t least = UINT64_MAX;
        int c;
        for (c = '#'; c <= '~'; c++) {
            uint64_t key = ((uint64_t)i << 8 | (uint64_t)c) + 1;
            key *= UINT64_C(0xBF58476D1CE4E5B9);
            key = (key ^ (key >> 29)) * UINT64_C(0x94D049BB133111EB);
            key = (key ^ (key >> 32)) & (SLOTS - 1);
            if (c != '\\' && key < least) least = key, content[LENGTH - 1 - i] = (char)c;
        }
    }
    start = clock();
    t = read_text(text, size, NULL);
    if (clock() - start > 10 * CLOCKS_PER_SEC) fail_msg("%d s to read it", (int)((clock() - start) / CLOCKS_PER_SEC));
    assert_int_equal(encode(t, content, LENGTH, id, 4), 2);
    assert_int_equal(id[1], 9);
    het_tokenizer_free(t);
    free(text);
}

/* Nodes of the automaton are counted in 31 bits: a limit keeps them there. */
static void added_tokens_have_a_limit(void **state)
{
    support_memory memory;
    het_allocator allocator = support_allocator(&memory);
    het_error error = { HET_OK, "" };
    het_tokenizer *t = NULL;
    size_t size;
    char *content, *text = with_added(1 << 24, &content, &size);
    (void)state;
    memset(content, 'a', 1 << 24);
    memory.fail_at = 0;
    support_expect(het_tokenizer_read(text, size, &allocator, &t, &error), HET_ERR_LIMIT, error.text, "added_tokens|16777219|16777216", "limit", 0);
    free(text);
}

/* ---- bad files ---- */

typedef struct bad_file { const char *from, *to; het_result code; const char *words; } bad_file;

static const bad_file bad_files[] = {
    { "{\"version\"", "", HET_ERR_FORMAT, "byte 0|expected" },
    { "{\"version\"", "[\"version\"", HET_ERR_FORMAT, "byte 0|an object was expected" },
    { "\"1.0\"", "\"1.1\"", HET_ERR_UNSUPPORTED, "byte 11|version \"1.1\"|\"1.0\"" },
    { "\"1.0\"", "1.0", HET_ERR_FORMAT, "byte 11|string" },
    { "\"1.0\"", "\"1.0000000000000000000\"", HET_ERR_UNSUPPORTED, "byte 11|version" },
    { "\"truncation\":null", "\"truncation\":{}", HET_ERR_UNSUPPORTED, "truncation|null" },
    { "\"padding\":null", "\"padding\":{\"strategy\":\"BatchLongest\"}", HET_ERR_UNSUPPORTED, "padding|null" },
    { "\"padding\":null", "\"paddings\":null", HET_ERR_UNSUPPORTED, "the file|unknown key \"paddings\"" },
    { "\"padding\":null", "\"truncation\":null", HET_ERR_FORMAT, "the file|\"truncation\" twice" },
    { "\"padding\":null", "\"pad\\u0000ding\":null", HET_ERR_UNSUPPORTED, "unknown key \"pad?ding\"" },
    { "\"padding\":null", "\"pa\x1B[31mdding\":null", HET_ERR_FORMAT, "control byte" },
    { "\"padding\":null", "\"padd\xC3ing\":null", HET_ERR_FORMAT, "UTF-8" },
    { "\"merges\":[[\"a\",\"b\"]", "\"merges\":[[\"a\",\"b\"],", HET_ERR_FORMAT, "expected" },
    { "[\"b\",\"c\"]]}}", "[\"b\",\"c\"]]}} x", HET_ERR_FORMAT, "follows" },
    { "\"model\":", "\"model \":", HET_ERR_UNSUPPORTED, "the file|unknown key \"model \"" },
    { "\"NFC\"", "\"NFKC\"", HET_ERR_UNSUPPORTED, "normalizer|\"NFKC\"|NFC" },
    { "\"NFC\"", "3", HET_ERR_FORMAT, "string" },
    { "{\"type\":\"NFC\"}", "\"NFC\"", HET_ERR_FORMAT, "object" },
    { "{\"type\":\"NFC\"}", "{}", HET_ERR_UNSUPPORTED, "normalizer|\"\"" },
    { "{\"type\":\"NFC\"}", "{\"type\":\"NFC\",\"form\":1}", HET_ERR_UNSUPPORTED, "normalizer|\"form\"" },
    { "{\"type\":\"NFC\"}", "{\"type\":\"Sequence\",\"normalizers\":[]}", HET_ERR_UNSUPPORTED, "normalizer|\"Sequence\"" },
    { "\"Split\"", "\"Digits\"", HET_ERR_UNSUPPORTED, "\"Digits\"|Split" },
    { "\\\\p{N}|", "\\\\p{N}{1,2}|", HET_ERR_UNSUPPORTED, "pattern other than|GPT-2|\"(?i:'s" },
    { "{\"Regex\":\"(?i", "{\"String\":\"(?i", HET_ERR_UNSUPPORTED, "unknown key \"String\"" },
    { "\"pattern\":{", "\"patterns\":{", HET_ERR_UNSUPPORTED, "unknown key \"patterns\"" },
    { "\"behavior\":\"Isolated\",", "", HET_ERR_FORMAT, "lacks \"behavior\"" },
    { "\"Isolated\"", "\"Removed\"", HET_ERR_UNSUPPORTED, "behavior \"Removed\"|Isolated" },
    { "\"Isolated\"", "\"MergedWithPrevious\"", HET_ERR_UNSUPPORTED, "behavior \"MergedWithPrevious\"" },
    { "\"invert\":false", "\"invert\":0", HET_ERR_FORMAT, "true or false" },
    { "\"use_regex\":false}]}", "\"use_regex\":true}]}", HET_ERR_UNSUPPORTED, "use_regex true" },
    { "\"add_prefix_space\":false", "\"add_prefix_space\":true", HET_ERR_UNSUPPORTED, "add_prefix_space true" },
    { "\"use_regex\":false}]}", "\"use_regex\":false},{\"type\":\"ByteLevel\"}]}", HET_ERR_UNSUPPORTED, "3 members" },
    { "{\"type\":\"Split\"", "{\"type\":\"ByteLevel\"", HET_ERR_UNSUPPORTED, "\"ByteLevel\"|Split" },
    { "\"pretokenizers\":[", "\"pretokenizer\":[", HET_ERR_UNSUPPORTED, "unknown key \"pretokenizer\"" },
    { "{\"type\":\"Sequence\",\"pretok", "{\"type\":\"Metaspace\",\"pretok", HET_ERR_UNSUPPORTED, "pre_tokenizer|\"Metaspace\"" },
    { "\"pre_tokenizer\":{", "\"pre_tokenizer\":null,\"decoder\":{", HET_ERR_FORMAT, "\"decoder\" twice" },
    { "\"processors\":[", "\"processor\":[", HET_ERR_UNSUPPORTED, "unknown key \"processor\"" },
    { "\"TemplateProcessing\"", "\"BertProcessing\"", HET_ERR_UNSUPPORTED, "post_processor|\"BertProcessing\"" },
    { "\"TemplateProcessing\"", "\"Sequence\"", HET_ERR_UNSUPPORTED, "post_processor|\"Sequence\"" },
    { "\"ids\":[9]", "\"ids\":[11]", HET_ERR_FORMAT, "no token has" },
    { "\"ids\":[9]", "\"ids\":[-1]", HET_ERR_FORMAT, "no token has" },
    { "\"ids\":[9]", "\"ids\":[9223372036854775807]", HET_ERR_FORMAT, "no token has" },
    { "\"ids\":[9]", "\"ids\":[9.0]", HET_ERR_FORMAT, "integer" },
    { "\"ids\":[9],", "", HET_ERR_FORMAT, "lacks \"ids\"" },
    { "\"special_tokens\":{\"<s>\"", "\"special_tokens\":{\"</s>\"", HET_ERR_FORMAT, "\"<s>\"|special_tokens" },
    { "\"special_tokens\":{", "\"special_tokens\":{\"<s>\":{\"ids\":[10]},", HET_ERR_FORMAT, "special_tokens have \"<s>\" twice" },
    { "{\"id\":\"A\"", "{\"id\":\"B\"", HET_ERR_UNSUPPORTED, "sequence other than one A" },
    { ",{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}", "", HET_ERR_FORMAT, "no sequence A" },
    { "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}", "{}", HET_ERR_FORMAT, "not one of Sequence and SpecialToken" },
    { "\"single\":[", "\"singles\":[", HET_ERR_UNSUPPORTED, "unknown key \"singles\"" },
    { "\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"Metaspace\"", HET_ERR_UNSUPPORTED, "decoder|\"Metaspace\"" },
    { "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true}", "\"decoder\":null",
      HET_ERR_UNSUPPORTED, "decoder is null" },
    { "\"BPE\"", "\"Unigram\"", HET_ERR_UNSUPPORTED, "model|\"Unigram\"|: BPE" },
    { "\"type\":\"BPE\",\"dropout\":null", "\"type\":\"Unigram\",\"unk_id\":0", HET_ERR_UNSUPPORTED, "model|\"Unigram\"|: BPE" },
    { "\"type\":\"BPE\"", "\"max_input_chars_per_word\":100,\"type\":\"WordPiece\"", HET_ERR_UNSUPPORTED, "model|\"WordPiece\"|: BPE" },
    { "\"dropout\":null", "\"dropout\":0.1", HET_ERR_UNSUPPORTED, "dropout" },
    { "\"dropout\":null", "\"dropout\":\"0\"", HET_ERR_FORMAT, "number" },
    { "\"unk_token\":null", "\"unk_token\":\"<s>\"", HET_ERR_UNSUPPORTED, "unk_token|lacks byte 0" },
    { "\"unk_token\":null", "\"unk_token\":1", HET_ERR_FORMAT, "string" },
    { "\"byte_fallback\":false", "\"byte_fallback\":true", HET_ERR_UNSUPPORTED, "byte_fallback|lacks byte 0" },
    { "\"continuing_subword_prefix\":\"\"", "\"continuing_subword_prefix\":\"##\"", HET_ERR_UNSUPPORTED, "continuing_subword_prefix|\"##\"" },
    { "\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"", HET_ERR_UNSUPPORTED, "end_of_word_suffix|\"</w>\"" },
    { "\"ignore_merges\":false", "\"ignore_merges\":null", HET_ERR_FORMAT, "true or false" },
    { "\"vocab\":{", "\"vocabulary\":{", HET_ERR_UNSUPPORTED, "unknown key \"vocabulary\"" },
    { "\"vocab\":{\"a\":0,", "\"vocab\":{\"a\":0,\"a\":11,", HET_ERR_FORMAT, "\"a\" twice" },
    { "\"b\":1,", "\"\\u0061\":1,", HET_ERR_FORMAT, "\"a\" twice" },
    { "\"b\":1,", "\"b\":0,", HET_ERR_FORMAT, "id 0 twice" },
    { "\"b\":1,", "\"b\":-1,", HET_ERR_FORMAT, "id -1" },
    { "\"b\":1,", "\"b\":1.0,", HET_ERR_FORMAT, "integer" },
    { "\"b\":1,", "\"b\":4294967296,", HET_ERR_FORMAT, "id 4294967296" },
    { "\"b\":1,", "\"b\":65545,", HET_ERR_LIMIT, "id 65545|9 tokens|65536" },
    { "\"b\":1,", "\"b\":\"1\",", HET_ERR_FORMAT, "number" },
    { "\"merges\":[[\"a\",\"b\"]", "\"merges\":[[\"a\",\"d\"]", HET_ERR_FORMAT, "merges[0]|\"d\" is not in" },
    { "\"merges\":[[\"a\",\"b\"]", "\"merges\":[[\"c\",\"b\"]", HET_ERR_FORMAT, "merges[0]|\"cb\" is not in" },
    { "\"merges\":[[\"a\",\"b\"]", "\"merges\":[[\"a\",\"b\"],[\"a\",\"b\"]", HET_ERR_FORMAT, "merges[1]|\"ab\" again" },
    { "\"merges\":[[\"a\",\"b\"]", "\"merges\":[[\"a\"]", HET_ERR_FORMAT, "merges[0]|1 texts" },
    { "\"merges\":[[\"a\",\"b\"]", "\"merges\":[[\"a\",\"b\",\"c\"]", HET_ERR_FORMAT, "merges[0]|3 texts" },
    { "\"merges\":[[\"a\",\"b\"]", "\"merges\":[[]", HET_ERR_FORMAT, "merges[0]|0 texts" },
    { "\"merges\":[[\"a\",\"b\"]", "\"merges\":[[\"ab\",\"\"]", HET_ERR_FORMAT, "merges[0]|not two tokens" },
    { "\"ab c\"", "\"abc\"", HET_ERR_FORMAT, "merges[2]|not two tokens" },
    { "\"ab c\"", "\"a b c\"", HET_ERR_FORMAT, "merges[2]|not two tokens" },
    { "\"ab c\"", "\" abc\"", HET_ERR_FORMAT, "merges[2]|not two tokens" },
    { "\"ab c\"", "7", HET_ERR_FORMAT, "array" },
    { "\"ab c\"", "[\"ab\",7]", HET_ERR_FORMAT, "string" },
    { "\"id\":9,", "\"id\":10,", HET_ERR_FORMAT, "added_tokens[0] \"<s>\"|id 10|9" },
    { "\"id\":9,", "\"id\":9,\"rank\":1,", HET_ERR_UNSUPPORTED, "added token|unknown key \"rank\"" },
    { "\"id\":9,", "", HET_ERR_FORMAT, "lacks \"id\"" },
    { "\"id\":9,", "\"id\":\"9\",", HET_ERR_FORMAT, "number" },
    { "\"content\":\"<s>\",", "\"content\":\"\",", HET_ERR_FORMAT, "added_tokens[0]|no text" },
    { "\"content\":\"<s>\",", "\"content\":\"\\ud800\",", HET_ERR_FORMAT, "surrogate" },
    { "\"content\":\"e\\u0301\"", "\"content\":\"<s>\"", HET_ERR_FORMAT, "added_tokens[1] \"<s>\"|twice" },
    { "\"content\":\"e\\u0301\"", "\"content\":\"ab\"", HET_ERR_FORMAT, "added_tokens[1] \"ab\"|id 10|3" },
    { "\"single_word\":false,", "", HET_ERR_FORMAT, "lacks \"single_word\"" },
    { "\"lstrip\":false,", "", HET_ERR_FORMAT, "lacks \"lstrip\"" },
    { "\"lstrip\":false", "\"lstrip\":\"no\"", HET_ERR_FORMAT, "true or false" },
    { "\"added_tokens\":[", "\"added_tokens\":[[],", HET_ERR_FORMAT, "object" },
    { "{\"id\":9,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false",
      "{\"id\":9,\"content\":\"\\u00e9\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":true", HET_ERR_FORMAT,
      "added_tokens[0]|added_tokens[1]|same when normalized" }
};

static void bad_files_are_refused(void **state)
{
    char text[8192];
    size_t i, count = sizeof bad_files / sizeof bad_files[0];
    (void)state;
    assert_true(count >= 60);
    for (i = 0; i < count; i++) {
        support_memory memory;
        het_allocator allocator = support_allocator(&memory);
        het_error error = { HET_OK, "" };
        het_tokenizer *t = NULL;
        size_t length = changed(bad_files[i].from, bad_files[i].to, text);
        char what[300];
        snprintf(what, sizeof what, "%s for %s", bad_files[i].to, bad_files[i].from);
        support_expect(het_tokenizer_read(text, length, &allocator, &t, &error), bad_files[i].code, error.text, bad_files[i].words, what, (int)i);
        assert_true(t == NULL && memory.live == 0 && memory.wrong == 0 && error.code == bad_files[i].code && strchr(error.text, '\n') == NULL);
        assert_true(het_tokenizer_read(text, length, &allocator, &t, NULL) == bad_files[i].code && t == NULL);
    }
}

/* What looks odd and is right. */
static void good_files_are_read(void **state)
{
    static const char *const good[][2] = {
        { "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,", " {" }, { "{\"type\":\"NFC\"}", "null" },
        { "\"invert\":false", "\"invert\":true" },
        { "\"behavior\":\"Isolated\",\"invert\":false", "\"invert\":true,\"behavior\":\"Removed\"" }, { "\"type\":\"BPE\",", "" },
        { "\"dropout\":null", "\"dropout\":0.0" }, { "\"ab c\"", "\"#version: 0.2\",\"ab c\"" }, { "\"b\":1,", "\"b\":65543,\"zz\":1," },
        { "[\"b\",\"c\"]]}}", "[\"b\",\"c\"]]}}\n\n" }, { "\"ids\":[9]", "\"ids\":[9,9,3]" }, { "\"ids\":[9]", "\"ids\":[]" },
        { "\"vocab\":{", "\"vocab\":{\"\":11," }, { "\"x y\":8", "\"x y\":8,\"\\ud83d\\ude00\":11" }
    };
    char text[8192];
    size_t i;
    (void)state;
    for (i = 0; i < sizeof good / sizeof good[0]; i++) {
        het_error error = { HET_OK, "" };
        het_tokenizer *t = NULL;
        size_t length = changed(good[i][0], good[i][1], text);
        het_result result = het_tokenizer_read(text, length, NULL, &t, &error);
        if (i >= 11 || i == 7) { /* their added tokens' ids no longer follow */
            support_expect(result, HET_ERR_FORMAT, error.text, "by its place it is", good[i][1], __LINE__);
            continue;
        }
        support_expect(result, HET_OK, error.text, "", good[i][1], __LINE__);
        het_tokenizer_free(t);
    }
}

/* A file cut short anywhere is an error; one with a byte changed is an error or a tokenizer that works. Nothing is left behind. */
static void damaged_files(void **state)
{
    char text[8192], back[4096];
    int32_t ids[256];
    size_t i, length = sizeof small - 1, got;
    uint64_t seed = 11;
    (void)state;
    for (i = 0; i <= length; i++) {
        support_memory memory;
        het_allocator allocator = support_allocator(&memory);
        het_error error = { HET_OK, "" };
        het_tokenizer *t = NULL;
        char *exact = support_alloc(i, 1); /* so that a sanitizer sees a read behind the end */
        memcpy(exact, small, i);
        if (i < length) EXPECT_ERROR(het_tokenizer_read(exact, i, &allocator, &t, &error), HET_ERR_FORMAT, error.text, "tokenizer: byte ");
        free(exact);
        assert_true(t == NULL && memory.live == 0 && memory.wrong == 0);
    }
    for (i = 0; i < 3 * length; i++) {
        support_memory memory;
        het_allocator allocator = support_allocator(&memory);
        het_error error = { HET_OK, "" };
        het_tokenizer *t = NULL;
        int64_t count;
        memcpy(text, small, length);
        text[i % length] = (char)(i < length ? (unsigned char)text[i] ^ 1u << support_below(&seed, 8) : support_below(&seed, 256));
        if (het_tokenizer_read(text, length, &allocator, &t, &error) != HET_OK) assert_true(t == NULL && error.text[0] != 0);
        else if (het_tokenizer_encode(t, NULL, "abc a<s>bcab e\xCC\x81", 17, ids, 256, &count, NULL) == HET_OK)
            EXPECT_OK(het_tokenizer_decode(t, ids, count, HET_NO, back, sizeof back, &got, NULL));
        het_tokenizer_free(t);
        assert_true(memory.live == 0 && memory.wrong == 0);
    }
}

/* ---- training ---- */

static void same_tokenizer(const het_tokenizer *a, const het_tokenizer *b, const char *what)
{
    het_tokenizer_info x, y;
    char one[300], other[300];
    int32_t left[2], right[2];
    int64_t i;
    het_tokenizer_get_info(a, &x);
    het_tokenizer_get_info(b, &y);
    if (x.vocab != y.vocab || x.merges != y.merges || x.split != y.split || x.nfc != y.nfc || x.added != y.added)
        fail_msg("%s: %d ids, %d merges and %d ids, %d merges", what, (int)x.vocab, (int)x.merges, (int)y.vocab, (int)y.merges);
    for (i = 0; i < x.vocab; i++) {
        het_tokenizer_spell(a, (int32_t)i, one, sizeof one);
        het_tokenizer_spell(b, (int32_t)i, other, sizeof other);
        if (strcmp(one, other) != 0) fail_msg("%s: token %d is %s and %s", what, (int)i, one, other);
    }
    for (i = 0; i < x.merges; i++) {
        assert_true(het_tokenizer_get_merge(a, i, &left[0], &right[0]) && het_tokenizer_get_merge(b, i, &left[1], &right[1]));
        if (left[0] != left[1] || right[0] != right[1]) fail_msg("%s: merge %d differs", what, (int)i);
    }
}

/* Trained by Hugging Face's BpeTrainer, and here: the same tokens and merges in the same order. */
static void trained_as_by_hugging_face(void **state)
{
    static const struct { const char *file; het_split split; } cases[3] = {
        { "train_gpt2.json", HET_SPLIT_DEFAULT }, { "train_llama3.json", HET_SPLIT_LLAMA3 }, { "train_qwen2.json", HET_SPLIT_QWEN2 } };
    size_t length, json_length;
    char *text = file_text("train.txt", &length);
    int c;
    (void)state;
    for (c = 0; c < 3; c++) {
        het_tokenizer_desc desc;
        het_tokenizer *ours = NULL;
        het_error error = { HET_OK, "" };
        char *json = file_text(cases[c].file, &json_length);
        het_tokenizer *theirs = read_text(json, json_length, NULL);
        memset(&desc, 0, sizeof desc);
        desc.vocab = 900;
        desc.split = cases[c].split;
        support_expect(het_tokenizer_train(&desc, text, length, &ours, &error), HET_OK, error.text, "", cases[c].file, __LINE__);
        same_tokenizer(ours, theirs, cases[c].file);
        het_tokenizer_free(ours);
        het_tokenizer_free(theirs);
        free(json);
    }
    free(text);
}

/* Words that lie side by side in a table with a seed that everybody knows: to look each up goes over all before it. */
static void words_collide_on_purpose(void **state)
{
    enum { WORDS = 120000, LETTERS = 10, SLOTS = 1 << 18 };
    char *text = support_alloc(WORDS * LETTERS, 1);
    het_tokenizer_desc desc;
    het_tokenizer *t = NULL;
    uint64_t number = 0;
    clock_t start;
    int w, i;
    (void)state;
    for (w = 0; w < WORDS; w++) {
        char *word = text + w * LETTERS;
        do {
            uint64_t rest = number++;
            word[0] = ' ';
            for (i = 1; i < LETTERS; i++, rest /= 26) word[i] = (char)('a' + rest % 26);
        } while ((het_xxh64(word, LETTERS, 0) & (SLOTS - 1)) > SLOTS / 256);
    }
    memset(&desc, 0, sizeof desc);
    desc.vocab = 257;
    start = clock();
    EXPECT_OK(het_tokenizer_train(&desc, text, WORDS * LETTERS, &t, NULL));
    if (clock() - start > 10 * CLOCKS_PER_SEC) fail_msg("%d s to train", (int)((clock() - start) / CLOCKS_PER_SEC));
    het_tokenizer_free(t);
    free(text);
}

/* Counts all pairs anew for every merge, and joins them in every word: what the trainer does with lists and a heap. Words are cut at blanks. */
static void trained_as_the_slow_way(void **state)
{
    uint64_t seed = 21;
    int round;
    (void)state;
    for (round = 0; round < 60; round++) {
        char text[240];
        int32_t id[240];
        const int64_t letters = 1 + support_below(&seed, 3);
        size_t length = (size_t)support_below(&seed, sizeof text), i, count = length;
        het_tokenizer_desc desc;
        het_tokenizer *t = NULL;
        het_tokenizer_info info;
        int64_t step;
        memset(&desc, 0, sizeof desc);
        desc.vocab = 290;
        desc.min_count = 1 + support_below(&seed, 3);
        desc.specials = -1;
        desc.split = HET_SPLIT_WHOLE;
        for (i = 0; i < length; i++) text[i] = (char)('a' + support_below(&seed, letters));
        EXPECT_OK(het_tokenizer_train(&desc, text, length, &t, NULL));
        het_tokenizer_get_info(t, &info);
        assert_int_equal(info.added, 0);
        for (i = 0; i < length; i++) id[i] = het_tokenizer_find(t, text + i, 1);
        for (step = 0;; step++) {
            int64_t best = 0, times;
            int32_t left = 0, right = 0, made[2];
            size_t k, kept = 0;
            for (i = 0; i + 1 < count; i++) {
                for (times = 0, k = 0; k + 1 < count; k++) times += id[k] == id[i] && id[k + 1] == id[i + 1];
                if (times < best || (times == best && (id[i] > left || (id[i] == left && id[i + 1] >= right)))) continue;
                best = times, left = id[i], right = id[i + 1];
            }
            if (best < desc.min_count || best == 0 || step == 290 - 256) break;
            if (!het_tokenizer_get_merge(t, step, &made[0], &made[1]) || made[0] != left || made[1] != right)
                fail_msg("round %d, merge %d of %.*s", round, (int)step, (int)length, text);
            for (i = 0; i < count; i++, kept++) {
                if (i + 1 < count && id[i] == left && id[i + 1] == right) id[kept] = (int32_t)(256 + step), i++;
                else id[kept] = id[i];
            }
            count = kept;
        }
        /* two pairs that spell one token share its id: from there on the simple count above no longer holds */
        if (info.vocab == 256 + info.merges) assert_int_equal(info.merges, step);
        het_tokenizer_free(t);
    }
}

static void training_corners(void **state)
{
    static const char *const special[] = { "<|a|>", "<|b\"\\|>" };
    static const char text[] = "ab<|a|>ab<|a|>ab ab ab";
    const char *const bad[] = { "<|a|>", "<|a|>" }, *const blank[] = { "a b" };
    het_tokenizer_desc desc;
    het_tokenizer *t = NULL, *again = NULL;
    het_tokenizer_info info;
    het_error error;
    support_buffer buffer;
    het_writer writer;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.vocab = 300;
    desc.special = special;
    desc.specials = 2;
    desc.nfc = HET_YES;
    desc.split = HET_SPLIT_WHOLE;
    EXPECT_OK(het_tokenizer_train(&desc, text, sizeof text - 1, &t, NULL));
    assert_int_equal(het_tokenizer_find(t, "<|a|>", 5), 0);
    assert_int_equal(het_tokenizer_find(t, "<|b\"\\|>", 7), 1);
    assert_true(het_tokenizer_find(t, "|>", 2) == -1 && het_tokenizer_find(t, "ab", 2) == 258);
    support_buffer_start(&buffer);
    writer = support_writer(&buffer);
    EXPECT_OK(het_tokenizer_write(t, &writer));
    again = read_text((const char *)buffer.data, buffer.size, NULL);
    same_tokenizer(t, again, "written and read");
    support_buffer_end(&buffer);
    het_tokenizer_free(again);
    het_tokenizer_free(t);
    desc.vocab = 258; /* no room for merges */
    EXPECT_OK(het_tokenizer_train(&desc, text, sizeof text - 1, &t, NULL));
    het_tokenizer_get_info(t, &info);
    assert_true(info.vocab == 258 && info.merges == 0 && info.nfc == 1 && info.split == HET_SPLIT_WHOLE && info.added == 2);
    het_tokenizer_free(t);
    EXPECT_OK(het_tokenizer_train(&desc, NULL, 0, &t, NULL));
    het_tokenizer_free(t);
    desc.vocab = 257;
    EXPECT_ERROR(het_tokenizer_train(&desc, text, 4, &t, &error), HET_ERR_INVALID, error.text, "vocab 257|258");
    desc.vocab = 20000000;
    EXPECT_ERROR(het_tokenizer_train(&desc, text, 4, &t, &error), HET_ERR_INVALID, error.text, "vocab 20000000|16777216");
    desc.vocab = 300;
    desc.special = bad;
    EXPECT_ERROR(het_tokenizer_train(&desc, text, 4, &t, &error), HET_ERR_INVALID, error.text, "special[1] \"<|a|>\"|twice");
    desc.special = blank;
    desc.specials = 1;
    EXPECT_ERROR(het_tokenizer_train(&desc, text, 4, &t, &error), HET_ERR_INVALID, error.text, "special[0]");
    desc.special = NULL;
    EXPECT_ERROR(het_tokenizer_train(&desc, text, 4, &t, &error), HET_ERR_INVALID, error.text, "special");
    desc.specials = 0;
    desc.min_count = -1;
    EXPECT_ERROR(het_tokenizer_train(&desc, text, 4, &t, &error), HET_ERR_INVALID, error.text, "min_count");
    memset(&desc, 0xCD, sizeof desc);
    EXPECT_ERROR(het_tokenizer_train(&desc, text, 4, &t, &error), HET_ERR_INVALID, error.text, "het_tokenizer_train");
    EXPECT_ERROR(het_tokenizer_train(NULL, text, 4, &t, &error), HET_ERR_INVALID, error.text, "NULL");
}

/* ---- memory and misuse ---- */

static void out_of_memory(void **state)
{
    size_t json_length, length;
    char *json = file_text("neox.json", &json_length), *text = file_text("train.txt", &length);
    int what;
    (void)state;
    for (what = 0; what < 4; what++) {
        het_tokenizer *t = what == 1 ? read_text(json, json_length, NULL) : what == 2 ? read_kind("prefix") : NULL;
        int64_t k;
        for (k = 0;; k++) {
            support_memory memory;
            het_allocator allocator = support_allocator(&memory);
            het_error error = { HET_OK, "" };
            het_result result;
            het_tokenizer *made = NULL;
            het_encode_desc encoding;
            het_tokenizer_desc training;
            int64_t count = -5;
            memset(&encoding, 0, sizeof encoding);
            memset(&training, 0, sizeof training);
            encoding.allocator = training.allocator = allocator;
            training.vocab = 400;
            memory.fail_at = k;
            if (what == 0) result = het_tokenizer_read(json, json_length, &allocator, &made, &error);
            else if (what < 3) result = het_tokenizer_encode(t, &encoding, text, length, NULL, 0, &count, &error);
            else result = het_tokenizer_train(&training, text, length, &made, &error);
            if (result == HET_OK) {
                het_tokenizer_free(made);
                assert_true(memory.live == 0 && memory.wrong == 0 && memory.calls <= k);
                break;
            }
            support_expect(result, HET_ERR_OOM, error.text, "allocator", "out of memory", (int)k);
            assert_true(made == NULL && count == -5 && memory.live == 0 && memory.wrong == 0);
        }
        assert_true(k > (what == 0 ? 1 : 5));
        het_tokenizer_free(t);
    }
    free(json), free(text);
}

static void misuse(void **state)
{
    het_tokenizer *t = read_text(small, sizeof small - 1, NULL), *other = NULL;
    het_encode_desc desc;
    het_allocator half;
    support_memory memory;
    het_error error;
    het_writer writer = { NULL, NULL, NULL };
    int32_t ids[8] = { 0 };
    int64_t count;
    size_t length;
    char text[8];
    (void)state;
    EXPECT_ERROR(het_tokenizer_read(NULL, 0, NULL, &other, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_tokenizer_read(small, 5, NULL, NULL, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_tokenizer_read(small, (size_t)1 << 31, NULL, &other, &error), HET_ERR_LIMIT, error.text, "2147483648|1073741824");
    memset(&half, 0, sizeof half);
    half.user = &half;
    half.alloc = support_allocator(&memory).alloc;
    EXPECT_ERROR(het_tokenizer_read(small, sizeof small - 1, &half, &other, &error), HET_ERR_INVALID, error.text, "alloc or free");
    EXPECT_ERROR(het_tokenizer_encode(NULL, NULL, "a", 1, ids, 8, &count, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_tokenizer_encode(t, NULL, NULL, 1, ids, 8, &count, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_tokenizer_encode(t, NULL, "a", 1, NULL, 8, &count, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_tokenizer_encode(t, NULL, "a", 1, ids, -1, &count, &error), HET_ERR_INVALID, error.text, "negative");
    EXPECT_ERROR(het_tokenizer_encode(t, NULL, "a", 1, ids, 8, NULL, &error), HET_ERR_INVALID, error.text, "NULL");
    memset(&desc, 0xCD, sizeof desc);
    EXPECT_ERROR(het_tokenizer_encode(t, &desc, "a", 1, ids, 8, &count, &error), HET_ERR_INVALID, error.text, "cleared");
    EXPECT_ERROR(het_tokenizer_decode(t, NULL, 1, HET_NO, text, 8, &length, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_tokenizer_decode(t, ids, -1, HET_NO, text, 8, &length, &error), HET_ERR_INVALID, error.text, "negative");
    EXPECT_ERROR(het_tokenizer_decode(t, ids, 1, HET_NO, NULL, 8, &length, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_tokenizer_write(t, NULL), HET_ERR_INVALID, NULL, "");
    EXPECT_ERROR(het_tokenizer_write(t, &writer), HET_ERR_INVALID, NULL, "");
    het_tokenizer_free(t);
}

/* ---- the fuzzer's corpus ---- */

static void corpus(void **state)
{
    static const char folder[] = "tests/fuzz/corpus/tokenizer";
    DIR *directory = opendir(folder);
    struct dirent *entry;
    int files = 0;
    (void)state;
    if (!directory) fail_msg("%s is missing", folder);
    while ((entry = readdir(directory)) != NULL) {
        char path[600];
        unsigned char *data = support_alloc(1 << 16, 1), *exact;
        FILE *file;
        size_t size;
        if (entry->d_name[0] == '.') { free(data); continue; }
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        file = fopen(path, "rb");
        if (!file) fail_msg("%s cannot be opened", path);
        size = fread(data, 1, 1 << 16, file);
        fclose(file);
        exact = support_alloc(size, 1);
        memcpy(exact, data, size);
        assert_int_equal(LLVMFuzzerTestOneInput(exact, size), 0);
        free(exact), free(data);
        files++;
    }
    closedir(directory);
    assert_true(files >= 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_hugging_face),   cmocka_unit_test(invalid_bytes),           cmocka_unit_test(long_words),
        cmocka_unit_test(white_space_is_taken_once), cmocka_unit_test(added_tokens_come_back), cmocka_unit_test(collisions_need_the_seed),
        cmocka_unit_test(added_tokens_have_a_limit), cmocka_unit_test(templates_have_few_pieces),
        cmocka_unit_test(small_one),              cmocka_unit_test(bad_files_are_refused),   cmocka_unit_test(good_files_are_read),
        cmocka_unit_test(damaged_files),          cmocka_unit_test(trained_as_by_hugging_face), cmocka_unit_test(trained_as_the_slow_way),
        cmocka_unit_test(words_collide_on_purpose),
        cmocka_unit_test(training_corners),       cmocka_unit_test(out_of_memory),           cmocka_unit_test(misuse),
        cmocka_unit_test(corpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
