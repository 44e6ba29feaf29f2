/* A safetensors reader for the references of tests/oracle, which are trusted: it fails the test on anything unexpected.
   It is not the product's reader, so that a misreading there cannot agree with itself here. */
#ifndef HETRAIN_TEST_ORACLE_FILE_H
#define HETRAIN_TEST_ORACLE_FILE_H

#include "support.h"

#define ORACLE_MAX_TENSORS 256
#define ORACLE_MAX_TEXTS 32

typedef struct oracle_tensor {
    char *name;
    char type[4];    /* "F32", "F64", "I32", "I64" */
    int64_t count;
    void *data;      /* an aligned copy */
} oracle_tensor;

typedef struct oracle_text { char *name, *value; } oracle_text;

typedef struct oracle_file {
    int tensors, texts;
    oracle_tensor tensor[ORACLE_MAX_TENSORS];
    oracle_text text[ORACLE_MAX_TEXTS];
} oracle_file;

/* Skips spaces, then takes `wanted` if it is next. */
static int oracle_take(const char **at, char wanted)
{
    while (**at == ' ' || **at == '\n') (*at)++;
    if (**at != wanted) return 0;
    (*at)++;
    return 1;
}

static void oracle_need(const char **at, char wanted)
{
    if (!oracle_take(at, wanted)) fail_msg("reference header: '%c' expected before \"%.20s\"", wanted, *at);
}

/* A JSON string of ASCII characters, unescaped, to be freed. */
static char *oracle_string(const char **at)
{
    char *to, *text;
    oracle_need(at, '"');
    text = to = (char *)support_alloc(strlen(*at) + 1, 1);
    while (**at && **at != '"') {
        char c = *(*at)++;
        if (c == '\\') {
            c = *(*at)++;
            if (c == 'n') c = '\n';
            else if (c != '"' && c != '\\' && c != '/') fail_msg("reference header: escape \\%c", c);
        }
        *to++ = c;
    }
    oracle_need(at, '"');
    return text;
}

static int64_t oracle_integer(const char **at)
{
    char *end;
    long long value = strtoll(*at, &end, 10);
    if (end == *at || value < 0) fail_msg("reference header: a size expected before \"%.20s\"", *at);
    *at = end;
    return value;
}

/* {"dtype":"F32","shape":[2,3],"data_offsets":[0,24]} */
static void oracle_read_tensor(oracle_file *file, char *name, const char **at, const unsigned char *data, int64_t size)
{
    oracle_tensor *tensor = &file->tensor[file->tensors];
    int64_t width, offset[2] = { 0, 0 }, dimension;
    if (file->tensors++ == ORACLE_MAX_TENSORS) fail_msg("reference: more than %d tensors", ORACLE_MAX_TENSORS);
    tensor->name = name;
    tensor->count = 1;
    oracle_need(at, '{');
    do {
        char *key = oracle_string(at);
        oracle_need(at, ':');
        if (strcmp(key, "dtype") == 0) {
            char *type = oracle_string(at);
            if (strlen(type) != 3) fail_msg("reference: %s has type %s", name, type);
            memcpy(tensor->type, type, 4);
            free(type);
        } else if (strcmp(key, "shape") == 0) {
            oracle_need(at, '[');
            if (!oracle_take(at, ']')) {
                do { dimension = oracle_integer(at); tensor->count *= dimension; } while (oracle_take(at, ','));
                oracle_need(at, ']');
            }
        } else {
            oracle_need(at, '[');
            offset[0] = oracle_integer(at);
            oracle_need(at, ',');
            offset[1] = oracle_integer(at);
            oracle_need(at, ']');
        }
        free(key);
    } while (oracle_take(at, ','));
    oracle_need(at, '}');
    width = tensor->type[1] == '6' ? 8 : 4;
    if (offset[0] > offset[1] || offset[1] > size || offset[1] - offset[0] != width * tensor->count) fail_msg("reference: bounds of %s", name);
    tensor->data = support_alloc((size_t)tensor->count, (size_t)width);
    memcpy(tensor->data, data + offset[0], (size_t)(offset[1] - offset[0]));
}

static void oracle_read_texts(oracle_file *file, const char **at)
{
    oracle_need(at, '{');
    do {
        oracle_text *text = &file->text[file->texts];
        if (file->texts++ == ORACLE_MAX_TEXTS) fail_msg("reference: more than %d texts", ORACLE_MAX_TEXTS);
        text->name = oracle_string(at);
        oracle_need(at, ':');
        text->value = oracle_string(at);
    } while (oracle_take(at, ','));
    oracle_need(at, '}');
}

/* The whole file as bytes, with a 0 behind them. */
static unsigned char *oracle_bytes(const char *path, int64_t *size)
{
    unsigned char *bytes = NULL;
    FILE *from = fopen(path, "rb");
    long length = -1;
    if (from && fseek(from, 0, SEEK_END) == 0) length = ftell(from);
    if (length < 8 || fseek(from, 0, SEEK_SET) != 0) fail_msg("cannot read %s", path);
    bytes = (unsigned char *)support_alloc((size_t)length + 1, 1);
    if (fread(bytes, 1, (size_t)length, from) != (size_t)length) fail_msg("cannot read %s", path);
    fclose(from);
    *size = length;
    return bytes;
}

static void oracle_file_open(oracle_file *file, const char *path)
{
    int64_t size, header = 0;
    int i;
    const char *at;
    char *text;
    unsigned char *bytes = oracle_bytes(path, &size);
    memset(file, 0, sizeof *file);
    for (i = 7; i >= 0; i--) header = header * 256 + bytes[i];
    if (header < 2 || header > size - 8) fail_msg("%s: header of %lld bytes", path, (long long)header);
    text = (char *)support_alloc((size_t)header + 1, 1);
    memcpy(text, bytes + 8, (size_t)header);
    at = text;
    oracle_need(&at, '{');
    do {
        char *name = oracle_string(&at);
        oracle_need(&at, ':');
        if (strcmp(name, "__metadata__") == 0) {
            oracle_read_texts(file, &at);
            free(name);
        } else {
            oracle_read_tensor(file, name, &at, bytes + 8 + header, size - 8 - header);
        }
    } while (oracle_take(&at, ','));
    oracle_need(&at, '}');
    free(text);
    free(bytes);
}

static void oracle_file_close(oracle_file *file)
{
    int i;
    for (i = 0; i < file->tensors; i++) {
        free(file->tensor[i].name);
        free(file->tensor[i].data);
    }
    for (i = 0; i < file->texts; i++) {
        free(file->text[i].name);
        free(file->text[i].value);
    }
}

/* Metadata, or NULL. */
static const char *oracle_find_text(const oracle_file *file, const char *name)
{
    int i;
    for (i = 0; i < file->texts; i++) if (strcmp(file->text[i].name, name) == 0) return file->text[i].value;
    return NULL;
}

static const char *oracle_get_text(const oracle_file *file, const char *name)
{
    const char *text = oracle_find_text(file, name);
    if (!text) fail_msg("reference: no \"%s\"", name);
    return text;
}

static double oracle_get_number(const oracle_file *file, const char *name)
{
    return strtod(oracle_get_text(file, name), NULL);
}

/* The tensor called KIND/NAME or, with kind "", NAME; NULL where there is none. */
static const oracle_tensor *oracle_find(const oracle_file *file, const char *kind, const char *name)
{
    size_t length = strlen(kind);
    int i;
    for (i = 0; i < file->tensors; i++) {
        const char *candidate = file->tensor[i].name;
        if (length == 0 && strcmp(candidate, name) == 0) return &file->tensor[i];
        if (length == 0 || strncmp(candidate, kind, length) != 0 || candidate[length] != '/') continue;
        if (strcmp(candidate + length + 1, name) == 0) return &file->tensor[i];
    }
    return NULL;
}

/* Values of the tensor, which must have this type and this many elements. */
static void *oracle_get(const oracle_file *file, const char *kind, const char *name, const char *type, int64_t count)
{
    const oracle_tensor *tensor = oracle_find(file, kind, name);
    if (!tensor) fail_msg("reference: no tensor %s/%s", kind, name);
    else if (strcmp(tensor->type, type) != 0) fail_msg("reference: %s/%s is %s, not %s", kind, name, tensor->type, type);
    else if (tensor->count != count) fail_msg("reference: %s/%s has %lld elements, not %lld", kind, name, (long long)tensor->count, (long long)count);
    else return tensor->data;
    return NULL;
}

static const float *oracle_f32(const oracle_file *file, const char *kind, const char *name, int64_t count)
{
    return (const float *)oracle_get(file, kind, name, "F32", count);
}

static const double *oracle_f64(const oracle_file *file, const char *name, int64_t count)
{
    return (const double *)oracle_get(file, "", name, "F64", count);
}

static const int32_t *oracle_i32(const oracle_file *file, const char *name, int64_t count)
{
    return (const int32_t *)oracle_get(file, "", name, "I32", count);
}

static const int64_t *oracle_i64(const oracle_file *file, const char *name, int64_t count)
{
    return (const int64_t *)oracle_get(file, "", name, "I64", count);
}

#endif
