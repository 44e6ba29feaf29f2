/* Tables of safetensors files: against a file of the reference (tests/oracle/files.py), files that break one rule each, every cut and every
   changed byte of a small one, elements against arithmetic in double, failing memory and files. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* opendir */
#endif
#include "support.h"

#include <dirent.h>

#include "hetrain_files.h"

#define HETRAIN_FUZZ_REPLAY
#include "fuzz/fuzz_safetensors.c"

/* ---- building files ---- */

/* u64 length, text, `data` bytes 0, 1, 2, ... */
static void build(support_buffer *file, const char *text, size_t length, size_t data)
{
    size_t i;
    support_buffer_start(file);
    for (i = 0; i < 8; i++) {
        unsigned char byte = (unsigned char)((uint64_t)length >> 8 * i);
        support_buffer_append(file, &byte, 1);
    }
    support_buffer_append(file, text, length);
    for (i = 0; i < data; i++) {
        unsigned char byte = (unsigned char)i;
        support_buffer_append(file, &byte, 1);
    }
}

static het_result read_file(support_buffer *file, int64_t most, het_safetensors **table, het_error *error)
{
    het_reader from = support_reader(file);
    *table = NULL;
    error->text[0] = 0;
    return het_safetensors_read(&from, most, NULL, table, error);
}

/* ---- rules ---- */

#define A "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}"
#define D "\"dtype\":\"U8\""
#define S "\"shape\":[2]"
#define O "\"data_offsets\":[0,2]"
#define T(d, s, o) "{\"a\":{\"dtype\":" d ",\"shape\":" s ",\"data_offsets\":" o "}}"
#define TWO(first, second) "{\"a\":{" D "," S ",\"data_offsets\":" first "},\"b\":{" D "," S ",\"data_offsets\":" second "}}"

/* Headers that must be refused, the bytes of data behind them, and what the message holds besides the file's name and "byte". */
typedef struct bad_header { const char *text; size_t data; const char *words; } bad_header;
static const bad_header bad_headers[] = {
    /* not JSON, or not an object */
    { "", 0, "byte 8: |ends too early" }, { " ", 0, "ends too early" }, { "{", 0, "byte 9: " }, { "}", 0, "byte 8: |value was expected" },
    { "[]", 0, "object was expected" }, { "null", 0, "object was expected" }, { "true", 0, "object was expected" },
    { "12", 0, "object was expected" },
    { "\"a\"", 0, "object was expected" }, { "{}x", 0, "byte 10: |something follows" }, { "{}{}", 0, "something follows" },
    { "{}\x01", 0, "something follows" }, { "\xEF\xBB\xBF{}", 0, "byte 8: |value was expected" }, { "//\n{}", 0, "value was expected" },
    { "{/**/}", 0, "byte 9: |value was expected" }, { "{" A ",}", 2, "byte 61: |value was expected" },
    { "{," A "}", 2, "byte 9: |value was expected" },
    { "{" A " " A "}", 2, "',' or '}' was expected" }, { "{'a':1}", 0, "byte 9: |value was expected" }, { "{a:1}", 0, "byte 9: |value was expected" },
    { "{\"a\"}", 0, "':' was expected" }, { "{\"a\":}", 0, "value was expected" }, { "{\"a\",1}", 0, "':' was expected" },
    { "{" A, 2, "',' or '}' was expected" }, { "{\"a", 0, "ends inside a string" }, { "{\"a\\", 0, "escape" }, { "{\"\\x\":1}", 0, "escape" },
    { "{\"\\u12g4\":1}", 0, "hexadecimal" }, { "{\"\\ud800\":1}", 0, "lone surrogate" }, { "{\"\\udc00\":1}", 0, "lone surrogate" },
    { "{\"\\ud800\\u0041\":1}", 0, "lone surrogate" }, { "{\"\xFF\":1}", 0, "not valid UTF-8" }, { "{\"\xC0\xAF\":1}", 0, "not valid UTF-8" },
    { "{\"\xED\xA0\x80\":1}", 0, "not valid UTF-8" }, { "{\"\xF4\x90\x80\x80\":1}", 0, "not valid UTF-8" },
    { "{\"\xE2\x82\":1}", 0, "not valid UTF-8" },
    { "{\"a\nb\":1}", 0, "control byte" }, { "{\"a\x7F\":1", 0, "',' or '}' was expected" },
    { "{\"x\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}", 0, "deeper than 32" },
    /* metadata */
    { "{\"__metadata__\":[]}", 0, "object was expected" }, { "{\"__metadata__\":\"a\"}", 0, "object was expected" },
    { "{\"__metadata__\":1}", 0, "object was expected" }, { "{\"__metadata__\":{\"a\":1}}", 0, "string was expected" },
    { "{\"__metadata__\":{\"a\":null}}", 0, "string was expected" }, { "{\"__metadata__\":{\"a\":{}}}", 0, "string was expected" },
    { "{\"__metadata__\":{\"a\":[\"b\"]}}", 0, "string was expected" }, { "{\"__metadata__\":{\"a\":\"b\",}}", 0, "byte 33: |value was expected" },
    { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ occurs twice" },
    { "{\"__metadata__\":null,\"__metadata__\":{}}", 0, "__metadata__ occurs twice" },
    { "{\"__metadata__\":{},\"\\u005f_metadata__\":{}}", 0, "__metadata__ occurs twice" }, { "{\"__metadata__\":nul}", 0, "null was expected" },
    { "{\"__metadata__\":{\"a\":\"\\q\"}}", 0, "escape" },
    /* descriptions */
    { "{\"a\":1}", 0, "\"a\": |object was expected" }, { "{\"a\":null}", 0, "\"a\": |object was expected" },
    { "{\"a\":[\"U8\",[2],[0,2]]}", 2, "\"a\": |object was expected" }, { "{\"a\":\"U8\"}", 2, "\"a\": |object was expected" },
    { "{\"a\":{}}", 0, "\"a\": |lacks \"dtype\"" }, { "{\"a\":{" S "," O "}}", 2, "lacks \"dtype\"" },
    { "{\"a\":{" D "," O "}}", 2, "lacks \"shape\"" },
    { "{\"a\":{" D "," S "}}", 2, "lacks \"data_offsets\"" }, { "{\"a\":{" D "," D "," S "," O "}}", 2, "dtype occurs twice" },
    { "{\"a\":{" D "," S "," S "," O "}}", 2, "shape occurs twice" }, { "{\"a\":{" D "," S "," O "," O "}}", 2, "data_offsets occurs twice" },
    { "{\"a\":{" D "," S "," O ",\"\\u0073hape\":[2]}}", 2, "shape occurs twice" },
    { "{\"a\":{" D "," S "," O ",\"note\":tru}}", 2, "true or false" },
    { "{\"a\":{\"Dtype\":\"U8\"," S "," O "}}", 2, "lacks \"dtype\"" }, { "{\"a\":{\"dtype \":\"U8\"," S "," O "}}", 2, "lacks \"dtype\"" },
    { "{\"a\":{\"dtype\\u0000\":\"U8\"," S "," O "}}", 2, "lacks \"dtype\"" },
    /* dtype */
    { T("\"u8\"", "[2]", "[0,2]"), 2, "unknown dtype \"u8\"" }, { T("\"\"", "[2]", "[0,2]"), 2, "unknown dtype \"\"" },
    { T("\"U8 \"", "[2]", "[0,2]"), 2, "unknown dtype \"U8 \"" }, { T("\"F8\"", "[2]", "[0,2]"), 2, "unknown dtype \"F8\"" },
    { T("\"F128\"", "[2]", "[0,32]"), 32, "unknown dtype \"F128\"" }, { T("\"U8\\u0000\"", "[2]", "[0,2]"), 2, "unknown dtype \"U8?\"" },
    { T("\"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF\"", "[2]", "[0,2]"), 2, "unknown dtype \"ABCDEFGHIJKLMNOPQRSTUVW\"" },
    { T("8", "[2]", "[0,2]"), 2, "string was expected" }, { T("null", "[2]", "[0,2]"), 2, "string was expected" },
    { T("{\"U8\":null}", "[2]", "[0,2]"), 2, "string was expected" },
    /* shape */
    { T("\"U8\"", "2", "[0,2]"), 2, "array was expected" }, { T("\"U8\"", "{}", "[0,2]"), 2, "array was expected" },
    { T("\"U8\"", "null", "[0,1]"), 1, "array was expected" }, { T("\"U8\"", "[2.0]", "[0,2]"), 2, "integer was expected" },
    { T("\"U8\"", "[2e0]", "[0,2]"), 2, "integer was expected" }, { T("\"U8\"", "[-0]", "[0,0]"), 0, "integer was expected" },
    { T("\"U8\"", "[02]", "[0,2]"), 2, "starts with 0" }, { T("\"U8\"", "[+2]", "[0,2]"), 2, "value was expected" },
    { T("\"U8\"", "[-2]", "[0,2]"), 2, "dimension 0 is -2" }, { T("\"U8\"", "[\"2\"]", "[0,2]"), 2, "number was expected" },
    { T("\"U8\"", "[[2]]", "[0,2]"), 2, "number was expected" }, { T("\"U8\"", "[null]", "[0,2]"), 2, "number was expected" },
    { T("\"U8\"", "[2,]", "[0,2]"), 2, "value was expected" }, { T("\"U8\"", "[2 2]", "[0,4]"), 4, "',' or ']'" },
    { T("\"U8\"", "[281474976710656]", "[0,2]"), 2, "dimension 0 is 281474976710656" },
    { T("\"U8\"", "[1,281474976710656]", "[0,2]"), 2, "dimension 1 is 281474976710656" },
    { T("\"U8\"", "[18446744073709551616]", "[0,0]"), 0, "below 2^63" }, { T("\"U8\"", "[9223372036854775808]", "[0,0]"), 0, "below 2^63" },
    { T("\"U8\"", "[0,18446744073709551615,18446744073709551615]", "[0,0]"), 0, "below 2^63" },
    { T("\"U8\"", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, "more than 8 dimensions" },
    { T("\"U8\"", "[65536,65536,65536,65536]", "[0,0]"), 0, "overflows" }, { T("\"U8\"", "[4294967296,4294967296]", "[0,0]"), 0, "overflows" },
    { T("\"U8\"", "[4294967296,4294967296,0]", "[0,0]"), 0, "overflows" }, { T("\"U64\"", "[2147483648,134217728]", "[0,0]"), 0, "overflows" },
    { T("\"U8\"", "[3]", "[0,2]"), 2, "need 3 bytes|[0, 2]" }, { T("\"U16\"", "[2]", "[0,2]"), 2, "need 4 bytes|[0, 2]" },
    { T("\"F64\"", "[2]", "[0,4]"), 4, "need 16 bytes|[0, 4]" }, { T("\"U8\"", "[]", "[0,2]"), 2, "need 1 bytes" },
    { T("\"U8\"", "[0]", "[0,2]"), 2, "need 0 bytes" }, { T("\"F4\"", "[1]", "[0,1]"), 1, "no whole number of bytes" },
    { T("\"F6_E2M3\"", "[2]", "[0,2]"), 2, "no whole number of bytes" }, { T("\"F6_E3M2\"", "[3]", "[0,3]"), 3, "no whole number of bytes" },
    /* data_offsets */
    { T("\"U8\"", "[2]", "[0]"), 2, "two integers" }, { T("\"U8\"", "[2]", "[]"), 2, "two integers" },
    { T("\"U8\"", "[2]", "[0,2,4]"), 2, "two integers" },
    { T("\"U8\"", "[2]", "[-1,1]"), 2, "two integers" }, { T("\"U8\"", "[2]", "[0,2.0]"), 2, "integer was expected" },
    { T("\"U8\"", "[2]", "{\"begin\":0,\"end\":2}"), 2, "array was expected" }, { T("\"U8\"", "[2]", "2"), 2, "array was expected" },
    { T("\"U8\"", "[2]", "[2,0]"), 2, "need 2 bytes|[2, 0]" }, { T("\"U8\"", "[0]", "[2,0]"), 2, "need 0 bytes|[2, 0]" },
    { T("\"U8\"", "[2]", "[0,18446744073709551618]"), 2, "below 2^63" }, { T("\"U8\"", "[2]", "[0,4294967298]"), 2, "need 2 bytes|[0, 4294967298]" },
    { T("\"U8\"", "[2]", "[1,3]"), 3, "start at byte 1, those before them end at 0" },
    { T("\"U8\"", "[2]", "[0,2]"), 1, "end at byte 2, the file holds 1 bytes" }, { T("\"U8\"", "[2]", "[0,2]"), 0, "the file holds 0 bytes" },
    { T("\"U8\"", "[2]", "[0,2]"), 3, "1 bytes follow" }, { T("\"U8\"", "[2]", "[0,2]"), 200, "198 bytes follow" }, { "{}", 1, "1 bytes follow" },
    { "{\"__metadata__\":{}}", 9, "9 bytes follow" }, { T("\"U8\"", "[281474976710655]", "[0,281474976710655]"), 2, "the file holds 2 bytes" },
    /* two tensors */
    { TWO("[0,2]", "[0,2]"), 2, "start at byte 0, those before them end at 2" },
    { TWO("[0,2]", "[1,3]"), 3, "start at byte 1, those before them end at 2" },
    { TWO("[0,2]", "[3,5]"), 5, "start at byte 3, those before them end at 2" }, { TWO("[2,4]", "[2,4]"), 4, "start at byte 2" },
    { TWO("[0,2]", "[2,4]"), 3, "\"b\"|the file holds 3 bytes" }, { TWO("[2,4]", "[0,2]"), 3, "\"a\"|the file holds 3 bytes" },
    { "{" A ",\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}", 4, "\"a\"|name occurs twice" },
    { "{" A ",\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}", 4, "\"a\"|name occurs twice" },
    { "{" A ",\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]}}", 2, "\"a\"|name occurs twice" },
    { "{" A ",\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]}}", 2, "\"b\"|start at byte 1" }
};
enum { BAD_HEADERS = sizeof bad_headers / sizeof bad_headers[0] };

static void one_broken_rule_each(void **state)
{
    int i;
    (void)state;
    for (i = 0; i < BAD_HEADERS; i++) {
        const bad_header *bad = &bad_headers[i];
        support_buffer file;
        het_safetensors *table;
        het_error error;
        het_result result;
        build(&file, bad->text, strlen(bad->text), bad->data);
        result = read_file(&file, 0, &table, &error);
        if (table != NULL) fail_msg("header %d was read: %s", i, bad->text);
        support_expect(result, HET_ERR_FORMAT, error.text, "test.bin: |byte ", bad->text, __LINE__);
        support_expect(result, HET_ERR_FORMAT, error.text, bad->words, bad->text, __LINE__);
        support_buffer_end(&file);
    }
    print_message("%d headers\n", (int)BAD_HEADERS);
}

/* Lengths of the header that lie, files too short for one, limits. */
static void lengths_and_limits(void **state)
{
    static const uint64_t lengths[] = { 3, 100000001, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63, (uint64_t)1 << 32 };
    support_buffer file;
    het_safetensors *table;
    het_error error;
    char name[400], text[600];
    size_t i, k;
    (void)state;
    for (k = 0; k < 8; k++) {
        support_buffer_start(&file);
        support_buffer_append(&file, "\2\0\0\0\0\0\0\0{}", k);
        EXPECT_ERROR(read_file(&file, 0, &table, &error), HET_ERR_FORMAT, error.text, "test.bin|too few");
        support_buffer_end(&file);
    }
    for (i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        build(&file, "{}", 2, 0);
        for (k = 0; k < 8; k++) file.data[k] = (unsigned char)(lengths[i] >> 8 * k);
        EXPECT_ERROR(read_file(&file, 0, &table, &error), HET_ERR_FORMAT, error.text, "byte 0: |over 2");
        support_buffer_end(&file);
    }
    memset(name, 'n', sizeof name);
    for (k = 254; k < 300; k++) { /* 255 bytes are the limit, escapes count as what they mean */
        snprintf(text, sizeof text, "{\"%.*s\\u0041\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", (int)k, name);
        build(&file, text, strlen(text), 1);
        if (k > 254) {
            EXPECT_ERROR(read_file(&file, 0, &table, &error), HET_ERR_FORMAT, error.text, "the limit is 255|nnn");
        } else {
            EXPECT_OK(read_file(&file, 0, &table, &error));
            assert_int_equal(table->tensor[0].name_length, 255);
            het_safetensors_free(table);
        }
        support_buffer_end(&file);
    }
    snprintf(text, sizeof text, "%s", TWO("[0,2]", "[2,4]"));
    build(&file, text, strlen(text), 4);
    EXPECT_ERROR(read_file(&file, 1, &table, &error), HET_ERR_FORMAT, error.text, "more than 1 tensors");
    EXPECT_OK(read_file(&file, 2, &table, &error));
    het_safetensors_free(table);
    EXPECT_ERROR(read_file(&file, -1, &table, &error), HET_ERR_INVALID, error.text, "negative");
    assert_int_equal(het_safetensors_read(NULL, 0, NULL, &table, NULL), HET_ERR_INVALID);
    support_buffer_end(&file);
}

/* ---- files that are fine ---- */

/* Everything that is legal and unusual: white space, unknown keys, escapes, zeros in names, empty tensors, any order, odd offsets. */
static void unusual_and_legal(void **state)
{
    static const char text[] = " \n\t\r{ \"z\\u0000y\":{\"extra\":[1,{\"x\":null}],\"data_offsets\":[1,5],\"shape\":[1 , 1],\"dtype\":\"F32\"},"
                               "\"\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]},\"empty\":{\"dtype\":\"F64\",\"shape\":[3,0,2],"
                               "\"data_offsets\":[1,1]},\"none\":{\"dtype\":\"F4\",\"shape\":[0],\"data_offsets\":[1,1]},"
                               "\"__metadata__\":{\"k\":\"1\",\"k\":\"2\\u00e9\",\"\":\"\"},\"deep\":{\"dtype\":\"U8\",\"shape\":"
                               "[1,1,1,1,1,1,1,1],\"data_offsets\":[5,6]}}  \n";
    support_buffer file;
    het_safetensors *table;
    het_error error;
    const het_safetensor *t;
    het_reader from;
    size_t length = 0;
    float value;
    uint32_t bits;
    (void)state;
    build(&file, text, sizeof text - 1, 6);
    support_expect(read_file(&file, 0, &table, &error), HET_OK, error.text, "", "unusual", __LINE__);
    assert_int_equal(table->tensors, 5);
    assert_int_equal(table->pairs, 3);
    assert_int_equal(table->data, 8 + sizeof text - 1);
    assert_int_equal(table->size, 8 + sizeof text - 1 + 6);
    assert_string_equal(het_safetensors_value(table, "k", &length), "2\xC3\xA9");
    assert_int_equal(length, 3);
    assert_string_equal(het_safetensors_value(table, "", NULL), "");
    assert_null(het_safetensors_value(table, "no", NULL));
    t = het_safetensors_find(table, "z\0y", 3);
    assert_non_null(t);
    assert_true(t == &table->tensor[3]); /* place 1, behind the empty ones */
    assert_int_equal(t->number, 0);
    assert_true(memcmp(file.data + t->at, "{\"extra\"", 8) == 0);
    from = support_reader(&file);
    EXPECT_OK(het_safetensors_get(table, &from, t, 0, 1, &value, &error));
    memcpy(&bits, &value, sizeof bits);
    assert_int_equal(bits, 0x04030201);
    EXPECT_ERROR(het_safetensors_get(table, &from, t, 1, 1, &value, &error), HET_ERR_INVALID, error.text, "1 elements from 1|which has 1");
    assert_null(het_safetensors_find(table, "z", 1));
    t = het_safetensors_find(table, "", 0);
    assert_non_null(t);
    assert_int_equal(t->element, HET_ELEMENT_I8);
    EXPECT_ERROR(het_safetensors_get(table, &from, t, 0, 1, &value, &error), HET_ERR_UNSUPPORTED, error.text, "I8|F32, F16 or BF16");
    assert_non_null(het_safetensors_find(table, "empty", 5));
    assert_non_null(het_safetensors_find(table, "none", 4));
    assert_int_equal(het_safetensors_find(table, "deep", 4)->rank, 8);
    het_safetensors_free(table);
    support_buffer_end(&file);
    build(&file, "{}", 2, 0);
    EXPECT_OK(read_file(&file, 0, &table, &error));
    assert_int_equal(table->tensors, 0);
    assert_null(het_safetensors_find(table, "a", 1));
    het_safetensors_free(table);
    support_buffer_end(&file);
    het_safetensors_free(NULL);
}

static void load_file(support_buffer *file, const char *path)
{
    char block[4096];
    size_t got;
    FILE *stream = fopen(path, "rb");
    support_buffer_start(file);
    if (!stream) fail_msg("%s cannot be opened", path);
    while ((got = fread(block, 1, sizeof block, stream)) > 0) support_buffer_append(file, block, got);
    fclose(stream);
}

/* A file that the reference wrote is read; a table made of the same tensors in any order is written as the reference wrote it. */
static void the_same_bytes_as_the_reference(void **state)
{
    support_buffer file, made;
    het_safetensors *table, *again;
    het_safetensor *shuffled;
    het_error error;
    het_writer to;
    uint64_t seed = 5;
    int64_t i, round;
    (void)state;
    load_file(&file, "tests/oracle/data/files/reference.safetensors");
    support_expect(read_file(&file, 0, &table, &error), HET_OK, error.text, "", "reference", __LINE__);
    assert_true(table->tensors > 15);
    shuffled = support_alloc((size_t)table->tensors, sizeof *shuffled);
    for (round = 0; round < 20; round++) {
        memcpy(shuffled, table->tensor, (size_t)table->tensors * sizeof *shuffled);
        for (i = table->tensors - 1; i > 0; i--) {
            const int64_t k = support_below(&seed, i + 1);
            het_safetensor swap = shuffled[i];
            shuffled[i] = shuffled[k];
            shuffled[k] = swap;
        }
        EXPECT_OK(het_safetensors_make(shuffled, table->tensors, table->pair, table->pairs, NULL, &again, &error));
        support_buffer_start(&made);
        to = support_writer(&made);
        EXPECT_OK(het_safetensors_write(again, &to, &error));
        assert_int_equal(made.size, table->data);
        assert_int_equal(again->data, table->data);
        assert_int_equal(again->size, file.size);
        assert_memory_equal(made.data, file.data, made.size);
        for (i = 0; i < again->tensors; i++) assert_string_equal(shuffled[again->tensor[i].number].name, again->tensor[i].name);
        support_buffer_end(&made);
        het_safetensors_free(again);
    }
    free(shuffled);
    het_safetensors_free(table);
    support_buffer_end(&file);
}

/* No prefix of a file is a file, and whatever a changed byte makes of it, names and places stay inside. */
static void every_cut_and_every_byte(void **state)
{
    support_buffer file;
    het_safetensors *table;
    het_error error;
    size_t i, size;
    int bit;
    (void)state;
    load_file(&file, "tests/oracle/data/files/reference.safetensors");
    size = file.size;
    for (file.size = 0; file.size < size; file.size++) {
        EXPECT_ERROR(read_file(&file, 0, &table, &error), HET_ERR_FORMAT, error.text, "test.bin");
        assert_null(table);
    }
    for (i = 0; i < 8 + (size_t)file.data[0] + 256 * (size_t)file.data[1]; i++) {
        for (bit = 0; bit < 8; bit++) {
            file.data[i] = (unsigned char)(file.data[i] ^ 1 << bit);
            LLVMFuzzerTestOneInput(file.data, file.size);
            file.data[i] = (unsigned char)(file.data[i] ^ 1 << bit);
        }
    }
    support_buffer_end(&file);
}

/* ---- tables to be written ---- */

static void bad_tables_are_refused(void **state)
{
    static const char long_name[] = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
                                    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
                                    "01234567890123456789012345678901234567890123456789012345";
    het_safetensor good[2], bad[2];
    het_pair pair = { "key", "value", 3, 5 }, wrong = { "key", "\xFF", 3, 1 };
    het_safetensors *table = NULL;
    het_error error;
    (void)state;
    memset(good, 0, sizeof good);
    good[0].name = "a";
    good[1].name = "b";
    good[0].name_length = good[1].name_length = 1;
    good[0].element = good[1].element = HET_ELEMENT_F32;
    good[0].rank = 1;
    good[0].shape[0] = 3;
#define BAD(change, words)                                                                                                     \
    do {                                                                                                                       \
        memcpy(bad, good, sizeof bad);                                                                                         \
        change;                                                                                                                \
        EXPECT_ERROR(het_safetensors_make(bad, 2, &pair, 1, NULL, &table, &error), HET_ERR_INVALID, error.text, words);        \
        assert_null(table);                                                                                                    \
    } while (0)
    BAD(bad[1].name = "a", "\"a\" occurs twice");
    BAD(bad[1].name = NULL, "tensor 1|name");
    BAD((bad[1].name = "\xC0", bad[1].name_length = 1), "tensor 1|UTF-8");
    BAD((bad[1].name = "__metadata__", bad[1].name_length = 12), "not __metadata__");
    BAD((bad[1].name = long_name, bad[1].name_length = 256), "0 .. 255");
    BAD(bad[0].element = HET_ELEMENTS, "\"a\"|type 22");
    BAD(bad[0].rank = 9, "\"a\"|rank 9");
    BAD(bad[0].rank = -1, "\"a\"|rank -1");
    BAD(bad[0].shape[0] = -1, "\"a\"|dimension 0 is -1");
    BAD(bad[0].shape[0] = (int64_t)1 << 48, "\"a\"|dimension 0");
    BAD(bad[0].element = HET_ELEMENT_F4, "whole number of bytes");
#undef BAD
    EXPECT_ERROR(het_safetensors_make(good, 2, &wrong, 1, NULL, &table, &error), HET_ERR_INVALID, error.text, "pair 0|UTF-8");
    EXPECT_ERROR(het_safetensors_make(NULL, 2, NULL, 0, NULL, &table, &error), HET_ERR_INVALID, error.text, "NULL");
    EXPECT_ERROR(het_safetensors_make(good, -1, NULL, 0, NULL, &table, &error), HET_ERR_INVALID, error.text, "negative");
    EXPECT_OK(het_safetensors_make(NULL, 0, NULL, 0, NULL, &table, &error));
    assert_int_equal(table->size, 16); /* "{}" and six spaces */
    het_safetensors_free(table);
    assert_string_equal(het_element_name(HET_ELEMENT_BF16), "BF16");
    assert_null(het_element_name(HET_ELEMENTS));
    assert_int_equal(het_element_bits(HET_ELEMENT_F6_E2M3), 6);
    assert_int_equal(het_element_bits(HET_ELEMENTS), 0);
}

static void every_allocation_and_byte_may_fail(void **state)
{
    support_memory memory;
    het_allocator allocator;
    support_buffer file, made;
    het_safetensors *table = NULL, *again = NULL;
    het_error error;
    het_reader from;
    het_writer to;
    het_result result = HET_ERR_OOM;
    int64_t k;
    (void)state;
    load_file(&file, "tests/oracle/data/files/reference.safetensors");
    for (k = 0; result != HET_OK; k++) {
        allocator = support_allocator(&memory);
        memory.fail_at = k;
        support_buffer_start(&made);
        from = support_reader(&file);
        to = support_writer(&made);
        result = het_safetensors_read(&from, 0, &allocator, &table, &error);
        if (result == HET_OK) {
            result = het_safetensors_make(table->tensor, table->tensors, table->pair, table->pairs, &allocator, &again, &error);
            if (result == HET_OK) {
                result = het_safetensors_write(again, &to, &error);
                het_safetensors_free(again);
            }
            het_safetensors_free(table);
        }
        if (result != HET_OK) EXPECT_ERROR(result, HET_ERR_OOM, error.text, "out of memory");
        assert_int_equal(memory.live, 0);
        assert_int_equal(memory.wrong, 0);
        support_buffer_end(&made);
    }
    assert_int_equal(k - 1, memory.calls);
    assert_true(k > 4);
    for (k = 0; k < 300; k += 7) {
        file.fail_after = k;
        EXPECT_ERROR(read_file(&file, 0, &table, &error), HET_ERR_IO, error.text, "test.bin|reading");
    }
    file.fail_after = -1;
    EXPECT_OK(read_file(&file, 0, &table, &error));
    EXPECT_OK(het_safetensors_make(table->tensor, table->tensors, NULL, 0, NULL, &again, &error));
    support_buffer_start(&made);
    to = support_writer(&made);
    made.fail_after = 10;
    EXPECT_ERROR(het_safetensors_write(again, &to, &error), HET_ERR_IO, error.text, "test.out|writing");
    het_safetensors_free(again);
    het_safetensors_free(table);
    support_buffer_end(&made);
    support_buffer_end(&file);
}

/* ---- elements ---- */

/* The element nearest to x with `mantissa` bits behind the point and least exponent `least`, by arithmetic in double. */
static double nearest(double x, int mantissa, int least, double beyond)
{
    int exponent;
    double unit, y;
    if (!(x - x == 0.0) || x == 0.0) return x;
    (void)frexp(x, &exponent);
    if (exponent < least) exponent = least;
    unit = ldexp(1.0, exponent - 1 - mantissa);
    y = rint(x / unit) * unit;
    if (fabs(y) >= beyond) return x > 0 ? HUGE_VAL : -HUGE_VAL;
    return y;
}

static void elements_there_and_back(void **state)
{
    static const het_element elements[] = { HET_ELEMENT_F32, HET_ELEMENT_F16, HET_ELEMENT_BF16 };
    enum { COUNT = 5000 };
    float *values = support_alloc(COUNT, sizeof *values), *back = support_alloc(COUNT, sizeof *back);
    uint64_t seed = 3;
    int64_t i;
    int e;
    (void)state;
    for (i = 0; i < COUNT; i++) {
        uint32_t bits = (uint32_t)support_random(&seed);
        if (i % 2) bits = (bits & 0x80FFFFFFu) | (uint32_t)(90 + i / 2 % 70) << 23; /* around half's range, subnormals included */
        if (i % 5 == 0) bits &= ~(uint32_t)0xFFF;                              /* ties */
        if (i % 15 == 0) bits &= ~(uint32_t)0x7FFF;
        memcpy(&values[i], &bits, sizeof bits);
    }
    for (e = 0; e < 3; e++) {
        het_safetensor t;
        het_safetensors *table;
        het_error error;
        support_buffer file;
        het_writer to;
        het_reader from;
        memset(&t, 0, sizeof t);
        t.name = "x";
        t.name_length = 1;
        t.element = elements[e];
        t.rank = 1;
        t.shape[0] = COUNT;
        EXPECT_OK(het_safetensors_make(&t, 1, NULL, 0, NULL, &table, &error));
        support_buffer_start(&file);
        to = support_writer(&file);
        EXPECT_OK(het_safetensors_write(table, &to, &error));
        EXPECT_OK(het_safetensors_put(&to, elements[e], values, COUNT, &error));
        assert_int_equal(file.size, table->size);
        from = support_reader(&file);
        het_safetensors_free(table);
        EXPECT_OK(het_safetensors_read(&from, 0, NULL, &table, &error));
        EXPECT_OK(het_safetensors_get(table, &from, &table->tensor[0], 0, 17, back, &error));
        EXPECT_OK(het_safetensors_get(table, &from, &table->tensor[0], 17, COUNT - 17, back + 17, &error));
        for (i = 0; i < COUNT; i++) {
            const double x = (double)values[i];
            const double want = e == 0 ? x : e == 1 ? nearest(x, 10, -13, 65520.0) : nearest(x, 7, -125, 3.5e38);
            if (x != x ? back[i] == back[i] : !((double)back[i] == want && signbit(back[i]) == signbit(values[i])))
                fail_msg("%s: %.9g became %.9g, expected %.9g", het_element_name(elements[e]), x, (double)back[i], want);
        }
        support_expect(het_safetensors_put(&to, HET_ELEMENT_U8, values, 1, &error), HET_ERR_INVALID, error.text, "F32, F16 or BF16", "put", __LINE__);
        het_safetensors_free(table);
        support_buffer_end(&file);
    }
    free(values);
    free(back);
}

/* ---- size ---- */

/* Many tensors in an order that sorts badly, found again; memory stays within the bound that the manual gives. */
static void many_tensors(void **state)
{
    enum { MANY = 200000 };
    support_memory memory;
    het_allocator allocator;
    support_buffer file;
    het_reader from;
    het_safetensors *table;
    het_error error;
    char *text = support_alloc((size_t)MANY * 80, 1), name[32];
    size_t length = 1;
    int64_t i;
    (void)state;
    text[0] = '{';
    for (i = 0; i < MANY; i++) {
        const int64_t k = i * 77773 % MANY;
        length += (size_t)snprintf(text + length, 100, "%s\"%x\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[%d,%d]}", i ? "," : "",
                                   (unsigned)(k * 7), (int)k, (int)k + 1);
    }
    text[length++] = '}';
    build(&file, text, length, MANY);
    EXPECT_ERROR(read_file(&file, 0, &table, &error), HET_ERR_FORMAT, error.text, "more than 65536 tensors");
    allocator = support_allocator(&memory);
    from = support_reader(&file);
    EXPECT_OK(het_safetensors_read(&from, MANY, &allocator, &table, &error));
    assert_true(memory.peak < 8 * length);
    for (i = 0; i < MANY; i++) {
        const het_safetensor *t;
        snprintf(name, sizeof name, "%x", (unsigned)(i * 7));
        t = het_safetensors_find(table, name, strlen(name));
        if (t == NULL || t->begin != (uint64_t)i || t != &table->tensor[i]) fail_msg("tensor %s was not found", name);
    }
    het_safetensors_free(table);
    assert_int_equal(memory.live, 0);
    support_buffer_end(&file);
    length = 17; /* the shortest pairs */
    memcpy(text, "{\"__metadata__\":{", 17);
    for (i = 0; i < MANY; i++, length += 6) memcpy(text + length, "\"\":\"\",", 6);
    memcpy(text + length - 1, "}}", 2);
    build(&file, text, ++length, 0);
    from = support_reader(&file);
    memory.peak = memory.bytes;
    EXPECT_OK(het_safetensors_read(&from, 0, &allocator, &table, &error));
    assert_int_equal(table->pairs, MANY);
    assert_true(memory.peak < 8 * length);
    het_safetensors_free(table);
    support_buffer_end(&file);
    free(text);
}

/* ---- the fuzzer's corpus ---- */

static void corpus(void **state)
{
    static const char folder[] = "tests/fuzz/corpus/safetensors";
    DIR *directory = opendir(folder);
    struct dirent *entry;
    int files = 0;
    (void)state;
    if (!directory) fail_msg("%s is missing", folder);
    while ((entry = readdir(directory)) != NULL) {
        char path[600];
        support_buffer file;
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        load_file(&file, path);
        assert_int_equal(LLVMFuzzerTestOneInput(file.data, file.size), 0);
        support_buffer_end(&file);
        files++;
    }
    closedir(directory);
    assert_true(files >= 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_broken_rule_each),
        cmocka_unit_test(lengths_and_limits),
        cmocka_unit_test(unusual_and_legal),
        cmocka_unit_test(the_same_bytes_as_the_reference),
        cmocka_unit_test(every_cut_and_every_byte),
        cmocka_unit_test(bad_tables_are_refused),
        cmocka_unit_test(every_allocation_and_byte_may_fail),
        cmocka_unit_test(elements_there_and_back),
        cmocka_unit_test(many_tensors),
        cmocka_unit_test(corpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
