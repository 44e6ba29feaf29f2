/* hetrain_text.h 0.2.0: JSON, numbers, settings and messages as text. A companion of hetrain.h that
   uses only its public API, and on which the other companions stand: hetrain_plan.h,
   hetrain_tokenizer.h and hetrain_files.h include it. Needs hetrain.h beside it.

   USE
       #include "hetrain_text.h"
   comes by itself with every other companion. Needs libc and fma; no threads, no stdio.

       het_model_parse("llama:layers=4,width=128", &desc.model, &error)   a model's settings
       json = het_json_start(text, length);                               a cursor over JSON

   OPTIONS   (macros, defined before the include)
       HETRAIN_TEXT_IMPLEMENTATION       one file of the program has the code: the one that defines
                                         HETRAIN_IMPLEMENTATION, where that one includes this
                                         header or a companion, else one that defines this
       HETRAIN_STATIC                    as in hetrain.h: all functions static, a private copy
       HETRAIN_NO_DEFAULT_ALLOCATOR      no malloc: calls that allocate must get an allocator

   MEMORY, ERRORS, THREADS
   Nothing here allocates by itself but lists, from the allocator they are given. No state is kept
   between calls: any thread may make any call at any time. Nothing is printed and nothing exits.

   DETERMINISM
   A function's output depends on its arguments alone, in any locale.

   FUNCTIONS
       >>json_api        het_json_start het_json_peek het_json_enter het_json_next het_json_string
                         het_json_integer het_json_real het_json_boolean het_json_null het_json_skip
                         het_json_end het_json_fail
       >>settings_api    het_model_parse het_model_format het_model_put

   CONTENTS   (tags to search for)
   public API:
       >>json_api        reading JSON
       >>settings_api    models by name and by key=value
   implementation:
       >>shared_config   includes and compiler differences
       >>shared_text     text in memory or on its way to a writer, numbers, messages
       >>shared_memory   the allocator, one block for several arrays, growing lists
       >>json            a strict JSON reader
       >>settings        models by name and by key=value
*/

#ifndef HETRAIN_TEXT_H
#define HETRAIN_TEXT_H

#ifndef HETRAIN_H
#include "hetrain.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- >>json_api: a strict reader of JSON text (RFC 8259) ----------------------------------------
   For the companions, and for programs that read the same files. A cursor walks the text once and
   allocates nothing. The first error sticks: it is kept with its byte offset, every later call does
   nothing and returns 0, so loops end by themselves and `rule` is looked at once, at the end. The
   text must outlive the cursor. Threads: any, one cursor at a time. */
typedef enum het_json_kind {
    HET_JSON_ERROR = 0, HET_JSON_NULL = 1, HET_JSON_BOOL = 2, HET_JSON_NUMBER = 3, HET_JSON_STRING = 4,
        HET_JSON_ARRAY = 5, HET_JSON_OBJECT = 6
} het_json_kind;
typedef struct het_json {
    const char *text;
    size_t length, at;                /* the cursor */
    int32_t depth;                    /* containers open: 32 at most */
    uint32_t objects;                 /* bit d: the container at depth d is an object */
    int32_t fresh;                    /* just opened: no comma before the next element */
    const char *rule;                 /* what the first error broke; NULL: none */
    size_t rule_at;                   /* its byte offset */
} het_json;
HETRAIN_API het_json het_json_start(const char *text, size_t length);                /* Threads: any. */
/* what stands at the cursor. Threads: any. */
HETRAIN_API het_json_kind het_json_peek(het_json *j);
/* opens the array or object there. Threads: any. */
HETRAIN_API int het_json_enter(het_json *j, het_json_kind kind);
/* 1: the cursor stands before the next value of the innermost container, and key holds its key if
   that is an object; 0: the container is closed, or there was an error. Equal keys are the caller's
   business. Threads: any. */
HETRAIN_API int het_json_next(het_json *j, char *key, size_t capacity, size_t *key_length);
/* *length: the decoded length, which may exceed what fits into `to` (and may count a \u0000).
   Threads: any. */
HETRAIN_API int het_json_string(het_json *j, char *to, size_t capacity, size_t *length);
/* never by way of a double. Threads: any. */
HETRAIN_API int het_json_integer(het_json *j, int64_t *value);
/* within a unit in the last place. Threads: any. */
HETRAIN_API int het_json_real(het_json *j, double *value);
HETRAIN_API int het_json_boolean(het_json *j, int *value);                           /* Threads: any. */
HETRAIN_API int het_json_null(het_json *j);                                          /* Threads: any. */
/* over one value of any kind, checked. Threads: any. */
HETRAIN_API int het_json_skip(het_json *j);
/* only white space is left. Threads: any. */
HETRAIN_API int het_json_end(het_json *j);
/* an error of the caller's own. Threads: any. */
HETRAIN_API int het_json_fail(het_json *j, const char *rule);

/* ---- >>settings_api: models by name and by key=value --------------------------------------------
   Keys are the fields of het_model_desc. */

/* Model settings: `name` is FAMILY:preset ("gpt2:124m", "llama3:8b", "qwen3:0.6b", ...) or
   FAMILY:key=value,... ("llama:layers=4,width=128"). Fills *model, completed. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_model_parse(const char *name, het_model_desc *model, het_error *error);
/* The inverse: "FAMILY:key=value,..." with every setting, which het_model_parse reads to the same
   model. *length gets the bytes needed (without the final 0), also when capacity is too small
   (HET_ERR_LIMIT). Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_model_format(const het_model_desc *model, char *text, size_t capacity,
                                                           size_t *length);
/* het_model_set with the value as text: an integer, a decimal number or a word. number: as in
   het_model_get. Threads: any. */
HETRAIN_API HETRAIN_MUST_CHECK het_result het_model_put(het_model_desc *model, int64_t number, const char *text,
                                                        const char *where, het_error *error);

#ifdef __cplusplus
}
#endif
#endif /* HETRAIN_TEXT_H ---- end of the API: to use hetrain_text.h you need nothing below ---- */
/* =================================================================================================
   >>shared_config  Compiler differences, in one place. From here to the end of >>shared_memory
   stands what the implementations of the companions share: static functions, in each file that
   has one of them.
   ============================================================================================== */
#if (defined(HETRAIN_IMPLEMENTATION) || defined(HETRAIN_TEXT_IMPLEMENTATION)) && \
    !defined(HETRAIN_TEXT_IMPLEMENTATION_DONE)
#define HETI_T_WANTED
#define HETI_T_OWN
#endif
#if defined(HETI_T_WANTED) && !defined(HETI_T_SHARED)
#define HETI_T_SHARED

#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#ifndef HETRAIN_NO_DEFAULT_ALLOCATOR
#include <stdlib.h>
#endif

#ifdef __cplusplus
#define HETI_T_CAST(type, value) static_cast<type>(value)
#define HETI_T_ZEROS {}    /* of a struct without unions, where it is declared */
#else
#define HETI_T_CAST(type, value) ((type)(value))
#define HETI_T_ZEROS { 0 }
#endif

/* `count` elements */
#define HETI_T_COPY(to, from, count) memcpy((to), (from), HETI_T_CAST(size_t, (count)) * sizeof *(to))
#define HETI_T_CLEAR(to, count) memset((to), 0, HETI_T_CAST(size_t, (count)) * sizeof *(to))

/* Passes on an error: HETI_T_TRY(call). */
#define HETI_T_TRY(call) do { het_result heti_t_try_result = \
    (call); if (heti_t_try_result != HET_OK) return heti_t_try_result; } while (0)

/* =================================================================================================
   >>shared_text  Text in memory, or on its way to a writer. In memory what does not fit is counted,
   not stored, and what is there always ends in 0. For a writer text is collected, so that write()
   is called once in a few kilobytes; its first failure is kept and everything after it dropped, so
   that only heti_t_end has to be checked.
   ============================================================================================== */

typedef struct heti_t_text {
    char *to;
    size_t capacity, length;          /* with a writer: of what is collected and not yet written */
    const het_writer *writer;         /* NULL: text stays in memory */
    het_result result;                /* of the writer */
} heti_t_text;

static inline heti_t_text heti_t_text_in(char *to, size_t capacity) {
    const heti_t_text t = { to, capacity, 0, NULL, HET_OK };
    if (to != NULL && capacity > 0) to[0] = 0;
    return t;
}

/* Goes on behind a text that is there. */
static inline heti_t_text heti_t_text_behind(char *to, size_t capacity) {
    const heti_t_text t = { to, capacity, strlen(to), NULL, HET_OK };
    return t;
}

/* `room` collects. */
static inline heti_t_text heti_t_text_to(const het_writer *writer, char *room, size_t capacity) {
    const heti_t_text t = { room, capacity, 0, writer, HET_OK };
    return t;
}

static inline het_result heti_t_end(heti_t_text *t) {
    if (t->writer == NULL) return t->result;
    if (t->result == HET_OK && t->length > 0 && t->writer->write(t->writer->user, t->to, t->length) != 0)
        t->result = HET_ERR_IO;
    t->length = 0;
    return t->result;
}

static inline void heti_t_char(heti_t_text *t, char c) {
    if (t->writer != NULL) {
        if (t->length == t->capacity) (void)heti_t_end(t);
        t->to[t->length++] = c;
        return;
    }
    if (t->length + 1 < t->capacity) {
        t->to[t->length] = c;
        t->to[t->length + 1] = 0;
    }
    t->length++;
}

static inline void heti_t_put(heti_t_text *t, const char *from) {
    for (; *from != 0; from++) heti_t_char(t, *from);
}

static inline void heti_t_digits(heti_t_text *t, uint64_t value, unsigned base) {
    char digit[20];
    int n = 0;
    do {
        digit[n++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value != 0);
    while (n > 0) heti_t_char(t, digit[--n]);
}

static inline void heti_t_unsigned(heti_t_text *t, uint64_t value) { heti_t_digits(t, value, 10); }

static inline void heti_t_integer(heti_t_text *t, int64_t value) {
    if (value < 0) heti_t_char(t, '-');
    heti_t_unsigned(t, value < 0 ? 0 - HETI_T_CAST(uint64_t, value) : HETI_T_CAST(uint64_t, value));
}

/* All 16 digits. */
static inline void heti_t_hex(heti_t_text *t, uint64_t value) {
    for (int shift = 60; shift >= 0; shift -= 4) heti_t_char(t, "0123456789abcdef"[value >> shift & 15u]);
}

/* mantissa 10^exponent without trailing zeros: digits in place where the first of them stands for a
   power of ten from 10^least to 10^(most - 1), else d.ddde7, or d.ddde+07 as printf writes it. */
static inline void heti_t_layout(heti_t_text *t, uint64_t mantissa, int exponent, int least, int most, int padded) {
    char digit[24];
    heti_t_text digits = heti_t_text_in(digit, sizeof digit);
    int point;
    while (mantissa % 10 == 0 && mantissa > 0) { mantissa /= 10; exponent++; }
    heti_t_unsigned(&digits, mantissa);
    const int n = HETI_T_CAST(int, digits.length);
    exponent += n - 1;
    point = exponent < least || exponent >= most ? 1 : exponent + 1; /* digits before the point */
    if (point < 1) heti_t_put(t, "0.");
    for (int i = point; i < 0; i++) heti_t_char(t, '0');
    for (int i = 0; i < n || i < point; i++) {
        if (i == point && i > 0) heti_t_char(t, '.');
        heti_t_char(t, i < n ? digit[i] : '0');
    }
    if (exponent >= least && exponent < most) return;
    heti_t_char(t, 'e');
    if (padded) heti_t_put(t, exponent < 0 ? "-" : "+");
    if (padded && exponent < 0) exponent = -exponent;
    if (padded && exponent < 10) heti_t_char(t, '0');
    heti_t_integer(t, exponent);
}

/* value with `decimals` digits behind the point, rounded half up, without trailing zeros; |value|
   10^decimals is cut at 9.2e18. */
static inline void heti_t_fixed(heti_t_text *t, double value, int decimals) {
    double scaled = value < 0 ? -value : value;
    uint64_t number, scale = 1;
    if (value != value) { heti_t_put(t, "nan"); return; }
    for (int i = 0; i < decimals; i++) scale *= 10;
    scaled = scaled * HETI_T_CAST(double, scale) + 0.5;
    number = scaled < 9.2e18 ? HETI_T_CAST(uint64_t, scaled) : HETI_T_CAST(uint64_t, 9200000000000000000);
    if (value < 0 && number > 0) heti_t_char(t, '-');
    heti_t_layout(t, number, number > 0 ? -decimals : 0, -decimals, 19, 0);
}

static inline void heti_t_bytes(heti_t_text *t, double bytes) {
    static const char *const heti_t_sizes[] = { " bytes", " kB", " MB", " GB", " TB", " PB", " EB" };
    int unit = 0;
    for (; bytes >= 1000 && unit < 6; unit++) bytes /= 1000;
    heti_t_fixed(t, bytes, 3);
    heti_t_put(t, heti_t_sizes[unit]);
}

/* What a file says, for a message: at most `most` bytes of it, with '?' for what is not printable
   ASCII. */
static inline void heti_t_printable(heti_t_text *t, const char *from, size_t length, size_t most) {
    for (size_t i = 0; i < length && i < most; i++)
        heti_t_char(t, HETI_T_CAST(char, from[i] >= ' ' && from[i] <= '~' ? from[i] : '?'));
}

static inline void heti_t_quoted(heti_t_text *t, const char *from, size_t length) {
    heti_t_char(t, '"');
    heti_t_printable(t, from, length, 60);
    heti_t_put(t, length > 60 ? "~\"" : "\"");
}

/* A JSON string with the escapes that Rust's serde_json uses. */
static inline void heti_t_json(heti_t_text *t, const char *from, size_t length) {
    static const char heti_t_from[] = "\"\\\b\f\n\r\t", heti_t_into[] = "\"\\bfnrt";
    heti_t_char(t, '"');
    for (size_t i = 0; i < length; i++) {
        const unsigned byte = HETI_T_CAST(unsigned char, from[i]);
        const char *found = byte != 0 ? strchr(heti_t_from, from[i]) : NULL;
        if (found == NULL && byte >= 0x20) { heti_t_char(t, from[i]); continue; }
        heti_t_put(t, found != NULL ? "\\" : byte < 16 ? "\\u000" : "\\u00");
        if (found != NULL) heti_t_char(t, heti_t_into[found - heti_t_from]);
        else heti_t_digits(t, byte, 16);
    }
    heti_t_char(t, '"');
}

static inline void heti_t_general(heti_t_text *t, double value);
static inline void heti_t_real(heti_t_text *t, double value);
static inline void heti_t_plain(heti_t_text *t, double value);

/* Parts of a line; arguments must have exactly these types:
   %s text, %j the same as a JSON string; %p what a file says, const char * and size_t, at most 63
   bytes of it, %q the same in quotes, 60; %d int64_t, %i int32_t, %z size_t, %u and %x uint64_t;
   double: %g with 3 decimals, %1 and %2 with so many, %e with 6 digits, %r that reads back the
   same, %n the same of one >= 0, with digits in place from 1e-6 to 1e18, %b bytes. %% a percent
   sign. */
static inline void heti_t_format_list(heti_t_text *t, const char *format, va_list arguments) {
    const char *from;
    for (; *format != 0; format++) {
        if (*format != '%') { heti_t_char(t, *format); continue; }
        switch (*++format) {
        case 's': heti_t_put(t, va_arg(arguments, const char *)); break;
        case 'd': heti_t_integer(t, va_arg(arguments, int64_t)); break;
        case 'i': heti_t_integer(t, va_arg(arguments, int32_t)); break;
        case 'z': heti_t_unsigned(t, va_arg(arguments, size_t)); break;
        case 'u': heti_t_unsigned(t, va_arg(arguments, uint64_t)); break;
        case 'x': heti_t_digits(t, va_arg(arguments, uint64_t), 16); break;
        case 'g': heti_t_fixed(t, va_arg(arguments, double), 3); break;
        case '1':
        case '2': heti_t_fixed(t, va_arg(arguments, double), *format - '0'); break;
        case 'e': heti_t_general(t, va_arg(arguments, double)); break;
        case 'r': heti_t_real(t, va_arg(arguments, double)); break;
        case 'n': heti_t_plain(t, va_arg(arguments, double)); break;
        case 'b': heti_t_bytes(t, va_arg(arguments, double)); break;
        case 'p':
            from = va_arg(arguments, const char *);
            heti_t_printable(t, from, va_arg(arguments, size_t), 63);
            break;
        case 'q':
            from = va_arg(arguments, const char *);
            heti_t_quoted(t, from, va_arg(arguments, size_t));
            break;
        case 'j':
            from = va_arg(arguments, const char *);
            heti_t_json(t, from, strlen(from));
            break;
        default: heti_t_char(t, *format); break;
        }
    }
}

static inline void heti_t_format(heti_t_text *t, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    heti_t_format_list(t, format, arguments);
    va_end(arguments);
}

/* Fills *error (which may be NULL) and returns the code. */
static inline het_result heti_t_fail(het_error *error, het_result code, const char *format, ...) {
    char whole[4096];
    heti_t_text t = heti_t_text_in(whole, sizeof whole);
    va_list arguments;
    va_start(arguments, format);
    heti_t_format_list(&t, format, arguments);
    va_end(arguments);
    return het_error_put(error, code, whole);
}

/* `text` is `word`. */
static inline int heti_t_is(const char *text, size_t length, const char *word) {
    return length == strlen(word) && memcmp(text, word, length) == 0;
}

/* How many bytes there are of a text that may have been cut. */
static inline size_t heti_t_shown(size_t length, size_t capacity) {
    return length < capacity ? length : capacity - 1;
}

#define HETI_T_INVALID 0xFFFFFFFFu /* a byte that is not part of valid UTF-8 */

/* The code point at text[at], at < length, and how many bytes it has. */
static inline uint32_t heti_t_point(const unsigned char *text, size_t length, size_t at, size_t *size) {
    const uint32_t first = text[at];
    uint32_t point, least = 0x80, most = 0xBF;
    *size = 1;
    if (first < 0x80) return first;
    if (first < 0xC2 || first > 0xF4) return HETI_T_INVALID;
    const size_t count = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (count > length - at) return HETI_T_INVALID;
    if (first == 0xE0) least = 0xA0;      /* no overlong forms */
    else if (first == 0xED) most = 0x9F;  /* no surrogates */
    else if (first == 0xF0) least = 0x90;
    else if (first == 0xF4) most = 0x8F;  /* up to U+10FFFF */
    point = first & (count == 2 ? 0x1Fu : count == 3 ? 0x0Fu : 0x07u);
    for (size_t i = 1; i < count; i++, least = 0x80, most = 0xBF) {
        const uint32_t next = text[at + i];
        if (next < least || next > most) return HETI_T_INVALID;
        point = point << 6 | (next & 0x3Fu);
    }
    *size = count;
    return point;
}

/* UTF-8 of a code point; returns its bytes. */
static inline size_t heti_t_utf8(uint32_t point, char *to) {
    const size_t count = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const uint32_t heti_t_lead[5] = { 0, 0, 0xC0, 0xE0, 0xF0 };
    for (size_t i = count; i-- > 1; point >>= 6)
        to[i] = HETI_T_CAST(char, HETI_T_CAST(unsigned char, 0x80u | (point & 0x3Fu)));
    to[0] = HETI_T_CAST(char, HETI_T_CAST(unsigned char, heti_t_lead[count] | point));
    return count;
}

/* The alphabet of byte-level tokens (GPT-2's encoder.py): printable bytes of Latin-1 stand for
   themselves, the others for U+0100 and on, in their order. */
static inline uint32_t heti_t_letter_of_byte(unsigned char byte) {
    if (byte <= 32) return 256u + byte;
    if (byte == 127) return 289;
    if (byte >= 128 && byte <= 160) return 162u + byte;
    return byte == 173 ? 323 : byte;
}

/* mantissa 10^exponent, as a reader of the text takes it. */
static inline double heti_t_decimal(uint64_t mantissa, int exponent) {
    char room[40];
    heti_t_text t = heti_t_text_in(room, sizeof room);
    double value = 0;
    heti_t_format(&t, "%ue%d", mantissa, HETI_T_CAST(int64_t, exponent));
    het_json json = het_json_start(room, t.length);
    return het_json_real(&json, &value) ? value : 0;
}

/* The `digits` first digits of a value above 0, rounded: value is about mantissa 10^*exponent. */
static inline uint64_t heti_t_leading(double value, int digits, int *exponent) {
    uint64_t low = 1, mantissa;
    int e = 0;
    double scale = 1;
    for (int i = 1; i < digits; i++) low *= 10;
    while (e > -320 && value < heti_t_decimal(1, e)) e -= 16; /* 10^e <= value < 10^(e + 1) in the end */
    while (e < 308 && value >= heti_t_decimal(1, e + 1)) e++;
    *exponent = e - digits + 1;
    if (*exponent < -300) { value *= 1e40; scale = 1e-40; }
    mantissa = HETI_T_CAST(uint64_t, *exponent > 0 ? value / heti_t_decimal(1, *exponent) + 0.5
        : value * heti_t_decimal(1, scale < 1 ? -*exponent - 40 : -*exponent) + 0.5);
    if (mantissa >= 10 * low) { mantissa = (mantissa + 5) / 10; ++*exponent; }
    return mantissa;
}

/* The value without its sign, which is written. */
static inline double heti_t_sign(heti_t_text *t, double value) {
    if (value < 0) heti_t_char(t, '-');
    return value < 0 ? -value : value;
}

/* 6 digits, as printf's %g. */
static inline void heti_t_general(heti_t_text *t, double value) {
    uint64_t mantissa = 0;
    int exponent = 0;
    if (value != value) { heti_t_put(t, "nan"); return; }
    value = heti_t_sign(t, value);
    if (value > 1.7976931348623157e308) { heti_t_put(t, "inf"); return; }
    if (value > 0) mantissa = heti_t_leading(value, 6, &exponent);
    heti_t_layout(t, mantissa, exponent, -4, 6, 1);
}

/* The fewest digits that a reader turns back into a value above 0: mantissa 10^*exponent. */
static inline uint64_t heti_t_shortest(double value, int *exponent) {
    uint64_t mantissa = 0;
    int found = 0;
    for (int digits = 4; digits <= 18 && !found; digits++)
        for (int near = 0; near < (digits < 16 ? 1 : 41) && !found; near++) {
            mantissa = heti_t_leading(value, digits, exponent);
            mantissa = near % 2 == 0 ? mantissa + HETI_T_CAST(uint64_t, near / 2) :
                mantissa - HETI_T_CAST(uint64_t, near / 2 + 1);
            found = !(heti_t_decimal(mantissa, *exponent) < value) && !(heti_t_decimal(mantissa, *exponent) > value);
        }
    return mantissa;
}

static inline void heti_t_plain(heti_t_text *t, double value) {
    int exponent = 0;
    const uint64_t mantissa = value > 0 ? heti_t_shortest(value, &exponent) : 0;
    heti_t_layout(t, mantissa, exponent, -6, 18, 0);
}

/* The fewest digits that a reader turns back into a float above 0: mantissa 10^*exponent. */
static inline uint64_t heti_t_shortest_float(double value, int *exponent) {
    uint64_t mantissa = 0;
    double scaled = value;
    float back;
    int power = 0;
    for (; scaled >= 10.0; power++) scaled /= 10.0;
    for (; scaled < 1.0; power--) scaled *= 10.0;
    for (int digits = 1; digits <= 9; digits++, scaled *= 10.0) {
        mantissa = HETI_T_CAST(uint64_t, scaled + 0.5);
        *exponent = power - digits + 1;
        back = HETI_T_CAST(float, heti_t_decimal(mantissa, *exponent));
        if (back >= HETI_T_CAST(float, value) && back <= HETI_T_CAST(float, value)) break;
    }
    return mantissa;
}

/* A float by its fewest digits, as printf's %g lays them out, always with a point or an exponent so
   that it is no integer. */
static inline void heti_t_float(heti_t_text *t, double value) {
    char number[40];
    heti_t_text n = heti_t_text_in(number, sizeof number);
    uint64_t mantissa = 0;
    int exponent = 0, digits = 1;
    value = heti_t_sign(t, value);
    if (value > 0) mantissa = heti_t_shortest_float(value, &exponent);
    for (uint64_t part = mantissa; part >= 10; part /= 10) digits++;
    heti_t_layout(&n, mantissa, exponent, -4, digits, 1);
    heti_t_put(t, number);
    if (strcspn(number, ".e") == n.length) heti_t_put(t, ".0");
}

static inline void heti_t_setting_text(heti_t_text *t, const het_setting *s) {
    if (s->kind == HET_SETTING_INTEGER) heti_t_integer(t, s->integer);
    else if (s->kind == HET_SETTING_REAL) heti_t_float(t, s->real);
    else heti_t_put(t, s->word);
}

/* The error of a cursor, if it has one: "WHERE: byte n: rule". */
static inline het_result heti_t_json_result(const het_json *j, const char *where, het_error *error) {
    if (j->rule == NULL) return HET_OK;
    return heti_t_fail(error, HET_ERR_FORMAT, "%s: byte %z: %s", where, j->rule_at, j->rule);
}

/* The next of `keys`, which a NULL ends, in the object that *j has entered: its place in them, with
   the cursor at its value; what else there is is stepped over. -1: at the end, or on an error. */
static inline int heti_t_key(het_json *j, const char *const *keys) {
    char key[64];
    size_t length = 0;
    while (het_json_next(j, key, sizeof key, &length)) {
        for (int i = 0; keys[i] != NULL; i++)
            if (heti_t_is(key, length, keys[i])) return i;
        het_json_skip(j);
    }
    return -1;
}

/* With as many digits as a reader needs to get the same number back. */
static inline void heti_t_real(heti_t_text *t, double value) {
    int exponent = 0;
    if (value != value || value > 1e308 || value < -1e308) { heti_t_put(t, "null"); return; }
    value = heti_t_sign(t, value);
    const int whole = value < 1e15 && value <= HETI_T_CAST(double, HETI_T_CAST(uint64_t, value));
    const uint64_t mantissa = whole ? HETI_T_CAST(uint64_t, value) : heti_t_shortest(value, &exponent);
    heti_t_layout(t, mantissa, exponent, 0, whole ? 15 : 1, 0);
}

/* Nine digits: as exact as any measurement, and what a file holds without loss. */
static inline double heti_t_short(double value) {
    int exponent;
    if (!(value > 1e-290 && value < 1e290)) return 0;
    const uint64_t mantissa = heti_t_leading(value, 9, &exponent);
    return heti_t_decimal(mantissa, exponent);
}

/* ---- actions ---- */

#define HETI_T_KINDS 14

static inline const char *heti_t_kind(int32_t kind) {
    static const char *const heti_t_kinds[HETI_T_KINDS] = { "F", "B", "I", "W", "PUT", "TAKE", "SEND_F", "RECV_F",
                                                            "SEND_B", "RECV_B", "REDUCE", "VERDICT", "STEP",
                                                            "GATHER" };
    return kind >= 0 && kind < HETI_T_KINDS ? heti_t_kinds[kind] : "?";
}

static inline int heti_t_is_send(int32_t kind) { return kind == HET_ACTION_SEND_F || kind == HET_ACTION_SEND_B; }
static inline int heti_t_is_receive(int32_t kind) { return kind == HET_ACTION_RECV_F || kind == HET_ACTION_RECV_B; }
static inline int heti_t_is_time(double t) { return t >= 0 && t <= 1e300; }

/* "2F3.1@1/0" without the suffixes that are 0; "REDUCE5" and the like name a block, VERDICT
   nothing. */
static inline void heti_t_action(heti_t_text *t, const het_action *a) {
    int block = a->kind >= HET_ACTION_REDUCE;
    if (!block) heti_t_integer(t, a->stage);
    heti_t_put(t, heti_t_kind(a->kind));
    if (a->kind == HET_ACTION_COMMIT) return;
    heti_t_integer(t, block ? a->stage : a->micro_batch);
    if (a->slice != 0) heti_t_format(t, ".%i", a->slice);
    if (a->pipeline != 0) heti_t_format(t, "@%i", a->pipeline);
    if (a->version != 0) heti_t_format(t, "/%i", a->version);
}

/* The same for messages. */
static inline const char *heti_t_action_text(char to[80], const het_action *a) {
    heti_t_text t = heti_t_text_in(to, 80);
    heti_t_action(&t, a);
    return to;
}

static inline double heti_t_timeline_end(const het_timeline *timeline) {
    double end = 0;
    for (int64_t i = 0; i < timeline->records; i++)
        if (timeline->record[i].end > end) end = timeline->record[i].end;
    return end;
}

/* =================================================================================================
   >>shared_memory  The allocator, one block that several arrays are cut from, and lists that grow
   while a call runs.
   ============================================================================================== */

#ifndef HETRAIN_NO_DEFAULT_ALLOCATOR
static inline void *heti_t_malloc(void *user, size_t size, size_t align) {
    (void)user;
    (void)align; /* nothing here asks for more than malloc gives */
    return malloc(size);
}

static inline void heti_t_malloc_free(void *user, void *pointer, size_t size) {
    (void)user;
    (void)size;
    free(pointer);
}
#endif

/* The caller's allocator, or malloc for NULL and for two NULLs. */
static inline het_result heti_t_choose(const het_allocator *given, het_allocator *allocator, het_error *error,
                                       const char *name) {
    memset(allocator, 0, sizeof *allocator);
    if (given != NULL && (given->alloc != NULL || given->free != NULL)) *allocator = *given;
#ifndef HETRAIN_NO_DEFAULT_ALLOCATOR
    else {
        allocator->alloc = heti_t_malloc;
        allocator->free = heti_t_malloc_free;
    }
#endif
    if (allocator->alloc != NULL && allocator->free != NULL) return HET_OK;
    return heti_t_fail(error, HET_ERR_INVALID, "%s: the allocator lacks alloc or free", name);
}

/* With base NULL only sizes are added up: the same calls then cut the block. A sum that does not
   fit stays SIZE_MAX. */
typedef struct heti_t_arena { char *base; size_t used, size; } heti_t_arena;

static inline void *heti_t_take(heti_t_arena *arena, int64_t count, size_t size) {
    char *at = arena->base != NULL ? arena->base + arena->used : NULL;
    size_t n = HETI_T_CAST(size_t, count);
    if (count < 0 || HETI_T_CAST(uint64_t, count) > (SIZE_MAX - 16) / size || arena->used > SIZE_MAX - 16 - n * size)
        arena->used = SIZE_MAX;
    else arena->used += (n * size + 15) / 16 * 16;
    return at;
}

#define HETI_T_TAKE(arena, type, count) \
    HETI_T_CAST(type *, heti_t_take((arena), HETI_T_CAST(int64_t, (count)), sizeof(type)))

/* One block, cleared; the error names the call. */
static inline het_result heti_t_block(const het_allocator *allocator, size_t size, const char *call, void **block,
                                      het_error *error) {
    *block = size < SIZE_MAX ? allocator->alloc(allocator->user, size > 0 ? size : 1, 64) : NULL;
    if (*block == NULL)
        return heti_t_fail(error, HET_ERR_OOM, "%s: no memory for %d bytes", call, HETI_T_CAST(int64_t, size / 2 * 2));
    memset(*block, 0, size);
    return HET_OK;
}

/* Takes a struct's arrays from an arena. */
typedef void (*heti_t_cutter)(void *self, heti_t_arena *arena);

/* One block for `head` bytes and what `cut` takes behind them, cleared: it is called once to count
   and once to cut. */
static inline het_result heti_t_arrays(heti_t_arena *arena, size_t head, heti_t_cutter cut, void *self,
                                       const het_allocator *allocator, const char *call, het_error *error) {
    void *block = NULL;
    memset(arena, 0, sizeof *arena);
    (void)HETI_T_TAKE(arena, char, head);
    cut(self, arena);
    HETI_T_TRY(heti_t_block(allocator, arena->used, call, &block, error));
    arena->base = HETI_T_CAST(char *, block);
    arena->size = arena->used;
    arena->used = 0;
    (void)HETI_T_TAKE(arena, char, head);
    cut(self, arena);
    return HET_OK;
}

static inline void heti_t_arrays_free(heti_t_arena *arena, const het_allocator *allocator) {
    if (arena->base != NULL) allocator->free(allocator->user, arena->base, arena->size);
    arena->base = NULL;
}

/* A list of bytes. */
typedef struct heti_t_list {
    char *data;
    size_t used, size;                /* bytes */
} heti_t_list;

/* What a list is of, as an array and its length. */
#define HETI_T_ITEMS(list, type) HETI_T_CAST(type *, HETI_T_CAST(void *, (list).data))
#define HETI_T_COUNT(list, type) ((list).used / sizeof(type))

static inline void heti_t_list_free(heti_t_list *list, const het_allocator *allocator) {
    if (list->data != NULL) allocator->free(allocator->user, list->data, list->size);
    list->data = NULL;
    list->used = list->size = 0;
}

/* Makes room for `more` bytes behind those used. */
static inline het_result heti_t_list_room(heti_t_list *list, size_t more, const het_allocator *allocator,
                                          het_error *error) {
    char *data;
    size_t size = list->size;
    if (list->size - list->used >= more) return HET_OK;
    if (more > SIZE_MAX / 4 || list->used > SIZE_MAX / 4)
        return heti_t_fail(error, HET_ERR_OOM, "too much memory is needed");
    if (size < 1024) size = 1024;
    while (size - list->used < more) size *= 2;
    if (list->used == 0) heti_t_list_free(list, allocator);
    data = HETI_T_CAST(char *, allocator->alloc(allocator->user, size, 16));
    if (data == NULL)
        return heti_t_fail(error, HET_ERR_OOM, "the allocator gave no %d bytes", HETI_T_CAST(int64_t, size));
    if (list->used > 0) memcpy(data, list->data, list->used);
    if (list->data != NULL) allocator->free(allocator->user, list->data, list->size);
    list->data = data;
    list->size = size;
    return HET_OK;
}

static inline het_result heti_t_list_add(heti_t_list *list, const void *from, size_t size,
                                         const het_allocator *allocator, het_error *error) {
    HETI_T_TRY(heti_t_list_room(list, size, allocator, error));
    if (size > 0) memcpy(list->data + list->used, from, size);
    list->used += size;
    return HET_OK;
}

#endif /* HETI_T_WANTED */
#undef HETI_T_WANTED

/* =================================================================================================
   >>json  The reader of >>json_api. Integers never pass through double.
   ============================================================================================== */
#ifdef HETI_T_OWN

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HETI_T_DEPTH 32

HETRAIN_API het_json het_json_start(const char *text, size_t length) {
    het_json j = HETI_T_ZEROS;
    j.text = text;
    j.length = length;
    return j;
}

HETRAIN_API int het_json_fail(het_json *j, const char *rule) {
    if (!j->rule) {
        j->rule = rule;
        j->rule_at = j->at;
    }
    return 0;
}

/* The byte under the cursor, 0 at the end (a 0 in the text is no legal byte anywhere, so the two
   need no telling apart). */
static char heti_t_json_byte(const het_json *j) {
    return HETI_T_CAST(char, j->at < j->length ? j->text[j->at] : 0);
}

/* Steps over the byte under the cursor if it is this one. */
static int heti_t_json_take(het_json *j, char byte) {
    if (heti_t_json_byte(j) != byte) return 0;
    j->at++;
    return 1;
}

static void heti_t_json_space(het_json *j) {
    while (heti_t_json_byte(j) && strchr(" \t\n\r", heti_t_json_byte(j))) j->at++;
}

HETRAIN_API het_json_kind het_json_peek(het_json *j) {
    if (j->rule) return HET_JSON_ERROR;
    heti_t_json_space(j);
    const char c = heti_t_json_byte(j);
    if (c == '{') return HET_JSON_OBJECT;
    if (c == '[') return HET_JSON_ARRAY;
    if (c == '"') return HET_JSON_STRING;
    if (c == '-' || (c >= '0' && c <= '9')) return HET_JSON_NUMBER;
    if (c == 't' || c == 'f') return HET_JSON_BOOL;
    if (c == 'n') return HET_JSON_NULL;
    het_json_fail(j, j->at < j->length ? "a JSON value was expected" : "the JSON text ends too early");
    return HET_JSON_ERROR;
}

/* Four hexadecimal digits at the cursor, or -1. */
static int32_t heti_t_json_hex4(het_json *j) {
    static const char heti_t_hexes[] = "0123456789abcdef0123456789ABCDEF";
    int32_t value = 0;
    for (int i = 0; i < 4; i++, j->at++) {
        const char c = heti_t_json_byte(j), *found = c ? strchr(heti_t_hexes, c) : NULL;
        if (!found) { het_json_fail(j, "\\u needs four hexadecimal digits"); return -1; }
        value = value * 16 + HETI_T_CAST(int32_t, (found - heti_t_hexes) % 16);
    }
    return value;
}

/* The cursor stands behind a backslash. */
static int heti_t_json_escape(het_json *j, heti_t_text *to) {
    static const char heti_t_from[] = "\"\\/bfnrt", heti_t_into[] = "\"\\/\b\f\n\r\t";
    const char c = heti_t_json_byte(j);
    const char *found = c ? strchr(heti_t_from, c) : NULL;
    int32_t low;
    char point[4];
    if (found) {
        heti_t_char(to, heti_t_into[found - heti_t_from]);
        j->at++;
        return 1;
    }
    if (c != 'u') return het_json_fail(j, "unknown escape in a string");
    j->at++;
    int32_t high = heti_t_json_hex4(j);
    if (high < 0) return 0;
    if (high >= 0xDC00 && high < 0xE000) return het_json_fail(j, "lone surrogate in a string");
    if (high >= 0xD800 && high < 0xDC00) {
        if (j->length - j->at < 6 || j->text[j->at] != '\\' || j->text[j->at + 1] != 'u')
            return het_json_fail(j, "lone surrogate in a string");
        j->at += 2;
        low = heti_t_json_hex4(j);
        if (low < 0) return 0;
        if (low < 0xDC00 || low >= 0xE000) return het_json_fail(j, "lone surrogate in a string");
        high = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    }
    const size_t count = heti_t_utf8(HETI_T_CAST(uint32_t, high), point);
    for (size_t i = 0; i < count; i++) heti_t_char(to, point[i]);
    return 1;
}

HETRAIN_API int het_json_string(het_json *j, char *to, size_t capacity, size_t *length) {
    const unsigned char *text = HETI_T_CAST(const unsigned char *, HETI_T_CAST(const void *, j->text));
    heti_t_text t = heti_t_text_in(to, capacity);
    if (het_json_peek(j) != HET_JSON_STRING) return het_json_fail(j, "a string was expected");
    j->at++;
    for (;;) {
        size_t count, i;
        if (j->at >= j->length) return het_json_fail(j, "the JSON text ends inside a string");
        if (j->text[j->at] == '"') break;
        if (j->text[j->at] == '\\') {
            j->at++;
            if (!heti_t_json_escape(j, &t)) return 0;
            continue;
        }
        if (heti_t_point(text, j->length, j->at, &count) == HETI_T_INVALID)
            return het_json_fail(j, "a string is not valid UTF-8");
        if (count == 1 && HETI_T_CAST(unsigned char, j->text[j->at]) < 0x20)
            return het_json_fail(j, "control byte in a string");
        for (i = 0; i < count; i++) heti_t_char(&t, j->text[j->at + i]);
        j->at += count;
    }
    j->at++;
    if (length) *length = t.length;
    return 1;
}

static size_t heti_t_json_digits(het_json *j) {
    const size_t start = j->at;
    while (heti_t_json_byte(j) >= '0' && heti_t_json_byte(j) <= '9') j->at++;
    return j->at - start;
}

/* Takes a number and leaves it as text: [*start, j->at). */
static int heti_t_json_number_text(het_json *j, size_t *start) {
    if (het_json_peek(j) != HET_JSON_NUMBER) return het_json_fail(j, "a number was expected");
    *start = j->at;
    (void)heti_t_json_take(j, '-');
    if (!heti_t_json_take(j, '0') && !heti_t_json_digits(j)) return het_json_fail(j, "a number needs digits");
    if (heti_t_json_byte(j) >= '0' && heti_t_json_byte(j) <= '9') return het_json_fail(j, "a number starts with 0");
    if (heti_t_json_take(j, '.') && !heti_t_json_digits(j))
        return het_json_fail(j, "a number needs digits behind its point");
    if (!heti_t_json_take(j, 'e') && !heti_t_json_take(j, 'E')) return 1;
    if (!heti_t_json_take(j, '+')) (void)heti_t_json_take(j, '-');
    return heti_t_json_digits(j) > 0 || het_json_fail(j, "an exponent needs digits");
}

/* "-12" to an integer; 0: not written as an integer (2.0, 2e0, -0) or beyond int64. */
static int heti_t_integer_of(const char *text, size_t length, int64_t *value) {
    const int negative = length > 0 && text[0] == '-';
    const uint64_t limit = HETI_T_CAST(uint64_t, INT64_MAX);
    uint64_t sum = 0;
    if (length == HETI_T_CAST(size_t, negative) || (negative && text[1] == '0')) return 0;
    for (size_t i = HETI_T_CAST(size_t, negative); i < length; i++) {
        const uint64_t digit = HETI_T_CAST(uint64_t, HETI_T_CAST(unsigned char, text[i])) - '0';
        if (digit > 9 || sum > (limit - digit) / 10) return 0;
        sum = sum * 10 + digit;
    }
    *value = negative ? -HETI_T_CAST(int64_t, sum) : HETI_T_CAST(int64_t, sum);
    return 1;
}

HETRAIN_API int het_json_integer(het_json *j, int64_t *value) {
    size_t start;
    if (!heti_t_json_number_text(j, &start)) return 0;
    if (heti_t_integer_of(j->text + start, j->at - start, value)) return 1;
    j->at = start;
    return het_json_fail(j, "an integer was expected, written as one and below 2^63");
}

/* Behind a product: what follows must not be contracted with it. */
static double heti_t_round(double x) {
    volatile double rounded = x;
    return rounded;
}

/* Powers of ten that are exact in double. */
static const double heti_t_ten[23] = { 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14,
                                       1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };

/* digits * 10^scale with `high + low` carrying about 104 bits (double-double: T. J. Dekker 1971,
   products by fma), so that the one rounding that shows is the last. */
static double heti_t_scale_ten(uint64_t digits, int64_t scale) {
    double high = HETI_T_CAST(double, digits >> 11) * 2048.0, low = HETI_T_CAST(double, digits & 2047);
    double sum = high + low;
    low -= sum - high;
    high = sum;
    while (scale) {
        const int64_t size = scale < 0 ? -scale : scale, step = size < 22 ? size : 22;
        const double ten = heti_t_ten[step];
        double first, rest;
        if (scale > 0) {
            first = heti_t_round(high * ten);
            rest = fma(low, ten, fma(high, ten, -first));
        } else {
            first = high / ten;
            rest = (fma(-first, ten, high) + low) / ten;
        }
        sum = first + rest;
        low = rest - (sum - first);
        high = sum;
        scale += scale > 0 ? -step : step;
    }
    return high;
}

/* Text that follows the grammar of a JSON number to double, within one unit in the last place, in
   any locale; 0: beyond double. */
static int heti_t_double_of(const char *text, size_t length, double *value) {
    const int negative = text[0] == '-';
    uint64_t digits = 0;
    int64_t scale = 0, exponent = 0;
    int point = 0, sign = 1;
    size_t i;
    for (i = HETI_T_CAST(size_t, negative); i < length && text[i] != 'e' && text[i] != 'E'; i++) {
        if (text[i] == '.') point = 1;
        else if (digits < UINT64_C(1000000000000000000)) { /* 19 digits count: 2^-59 of the value is dropped at most */
            digits = digits * 10 + HETI_T_CAST(uint64_t, text[i] - '0');
            scale -= point;
        } else {
            scale += !point;
        }
    }
    for (i++; i < length; i++) {
        if (text[i] == '-') sign = -1;
        else if (text[i] != '+' && exponent < 1000000) exponent = exponent * 10 + (text[i] - '0');
    }
    scale += sign * exponent;
    if (!digits || scale < -400) *value = 0.0;
    else if (scale > 308) return 0;
    else *value = heti_t_scale_ten(digits, scale);
    if (!(*value <= 1.7976931348623157e308)) return 0;
    if (negative) *value = -*value;
    return 1;
}

HETRAIN_API int het_json_real(het_json *j, double *value) {
    size_t start;
    if (!heti_t_json_number_text(j, &start)) return 0;
    if (heti_t_double_of(j->text + start, j->at - start, value)) return 1;
    j->at = start;
    return het_json_fail(j, "a number beyond double");
}

/* Takes a word that stands at the cursor. */
static int heti_t_json_word(het_json *j, const char *word) {
    const size_t length = strlen(word);
    if (j->rule || j->length - j->at < length || memcmp(j->text + j->at, word, length) != 0) return 0;
    j->at += length;
    return 1;
}

HETRAIN_API int het_json_boolean(het_json *j, int *value) {
    const int word = het_json_peek(j) == HET_JSON_BOOL;
    *value = word && j->text[j->at] == 't';
    return (word && heti_t_json_word(j, *value ? "true" : "false")) || het_json_fail(j, "true or false was expected");
}

HETRAIN_API int het_json_null(het_json *j) {
    (void)het_json_peek(j);
    return heti_t_json_word(j, "null") || het_json_fail(j, "null was expected");
}

HETRAIN_API int het_json_enter(het_json *j, het_json_kind kind) {
    if (het_json_peek(j) != kind)
        return het_json_fail(j, kind == HET_JSON_OBJECT ? "an object was expected" : "an array was expected");
    if (j->depth == HETI_T_DEPTH) return het_json_fail(j, "nested deeper than 32");
    j->objects &= ~(UINT32_C(1) << j->depth);
    if (kind == HET_JSON_OBJECT) j->objects |= UINT32_C(1) << j->depth;
    j->depth++;
    j->fresh = 1;
    j->at++;
    return 1;
}

HETRAIN_API int het_json_next(het_json *j, char *key, size_t capacity, size_t *key_length) {
    if (j->rule) return 0;
    const int object = (j->objects >> (j->depth - 1)) & 1;
    heti_t_json_space(j);
    if (heti_t_json_take(j, object ? '}' : ']')) {
        j->depth--;
        j->fresh = 0;
        return 0;
    }
    if (!j->fresh && !heti_t_json_take(j, ','))
        return het_json_fail(j, object ? "',' or '}' was expected" : "',' or ']' was expected");
    j->fresh = 0;
    if (object) {
        if (!het_json_string(j, key, capacity, key_length)) return 0;
        heti_t_json_space(j);
        if (!heti_t_json_take(j, ':')) return het_json_fail(j, "':' was expected");
    }
    return het_json_peek(j) != HET_JSON_ERROR;
}

HETRAIN_API int het_json_skip(het_json *j) {
    const int depth = j->depth;
    do {
        const het_json_kind kind = het_json_peek(j);
        size_t start;
        int truth;
        if (kind == HET_JSON_OBJECT || kind == HET_JSON_ARRAY) het_json_enter(j, kind);
        else if (kind == HET_JSON_STRING) het_json_string(j, NULL, 0, NULL);
        else if (kind == HET_JSON_NUMBER) heti_t_json_number_text(j, &start);
        else if (kind == HET_JSON_BOOL) het_json_boolean(j, &truth);
        else het_json_null(j);
        while (!j->rule && j->depth > depth && !het_json_next(j, NULL, 0, NULL)) {}
    } while (!j->rule && j->depth > depth);
    return !j->rule;
}

HETRAIN_API int het_json_end(het_json *j) {
    if (j->rule) return 0;
    heti_t_json_space(j);
    return j->at == j->length ? 1 : het_json_fail(j, "something follows the JSON value");
}

/* =================================================================================================
   >>settings  Models by name and by key=value. A preset is a line of "key=value" text.
   ============================================================================================== */

typedef struct heti_t_family {
    const char *name;      /* in het_model_parse */
    het_family family;
    const char *settings;  /* that the name implies */
} heti_t_family;
static const heti_t_family heti_t_families[] = {
    { "gpt2", HET_GPT2, "" },
    { "llama", HET_LLAMA, "" },
    { "llama3", HET_LLAMA, "rotary_theta=500000" },
    { "qwen2", HET_QWEN2, "" },
    { "qwen3", HET_QWEN3, "" },
    { "neox", HET_NEOX, "" }
};
#define HETI_T_FAMILIES HETI_T_CAST(int, sizeof heti_t_families / sizeof heti_t_families[0])

typedef struct heti_t_preset { const char *family, *name, *settings; } heti_t_preset;
static const heti_t_preset heti_t_presets[] = {
    { "gpt2", "tiny", "" },
    { "gpt2", "124m", "layers=12,width=768,heads=12,vocab=50257,context=1024" },
    { "gpt2", "355m", "layers=24,width=1024,heads=16,vocab=50257,context=1024" },
    { "gpt2", "774m", "layers=36,width=1280,heads=20,vocab=50257,context=1024" },
    { "gpt2", "1558m", "layers=48,width=1600,heads=25,vocab=50257,context=1024" },
    { "llama", "tiny", "heads=4,kv_heads=2" },
    { "llama", "tinyllama-1.1b", "layers=22,width=2048,heads=32,kv_heads=4,mlp_width=5632,vocab=32000,context=2048" },
    { "llama3", "8b", "layers=32,width=4096,heads=32,kv_heads=8,mlp_width=14336,vocab=128256,context=8192" },
    { "llama3", "3.2-1b",
     "layers=16,width=2048,heads=32,kv_heads=8,mlp_width=8192,vocab=128256,context=131072,tied=yes,rotary_factor=32" },
    { "qwen2", "tiny", "heads=4,kv_heads=2,tied=yes" },
    { "qwen2", "0.5b", "layers=24,width=896,heads=14,kv_heads=2,mlp_width=4864,vocab=151936,context=32768,tied=yes" },
    { "qwen2", "1.5b", "layers=28,width=1536,heads=12,kv_heads=2,mlp_width=8960,vocab=151936,context=131072,tied=yes" },
    { "qwen3", "tiny", "heads=4,kv_heads=2,head_size=64,tied=yes" },
    { "qwen3", "0.6b",
     "layers=28,width=1024,heads=16,kv_heads=8,head_size=128,mlp_width=3072,vocab=151936,context=40960,tied=yes" },
    { "qwen3", "1.7b",
     "layers=28,width=2048,heads=16,kv_heads=8,head_size=128,mlp_width=6144,vocab=151936,context=40960,tied=yes" },
    { "neox", "tiny", "" },
    { "neox", "pythia-160m", "layers=12,width=768,heads=12,vocab=50304,context=2048" },
    { "neox", "20b", "layers=44,width=6144,heads=64,vocab=50432,context=2048,activation=gelu_tanh" }
};
#define HETI_T_PRESETS HETI_T_CAST(int, sizeof heti_t_presets / sizeof heti_t_presets[0])

/* Text that is a JSON number, as one that a float holds and that is not 0 without saying so. */
static int heti_t_float_of(const char *text, double *real) {
    const size_t length = strlen(text);
    het_json j = het_json_start(text, length);
    size_t start;
    if (!heti_t_json_number_text(&j, &start) || start != 0 || j.at != length) return 0;
    if (!heti_t_double_of(text, length, real) || *real < -3e38 || *real > 3e38) return 0;
    return *real >= 1.0 || *real <= -1.0 || HETI_T_CAST(float, *real) > 0.0f || HETI_T_CAST(float, *real) < 0.0f ||
        strspn(text, "-0.") >= strcspn(text, "eE");
}

HETRAIN_API het_result het_model_put(het_model_desc *model, int64_t number, const char *text, const char *where,
                                     het_error *error) {
    char word[64];
    heti_t_text shown = heti_t_text_in(word, sizeof word);
    het_setting s;
    int good = 1;
    if (!text) text = "";
    (void)het_model_get(model, number, &s);
    if (s.kind == HET_SETTING_INTEGER) good = heti_t_integer_of(text, strlen(text), &s.integer);
    if (s.kind == HET_SETTING_REAL) good = heti_t_float_of(text, &s.real);
    heti_t_format(&shown, "%p", text, strlen(text));
    s.word = word;
    if (good) return het_model_set(model, number, &s, where, error);
    return heti_t_fail(error, HET_ERR_INVALID, "%s: %s is '%s', not %s", where, s.name, s.word,
                       s.kind == HET_SETTING_INTEGER ? "an integer" : "a number that a float holds");
}

#define HETI_T_BAD(error, ...) heti_t_fail((error), HET_ERR_INVALID, "het_model_parse: " __VA_ARGS__)

/* Applies "key=value,key=value". A key may come once. */
static het_result heti_t_settings(het_model_desc *m, const char *text, het_error *error) {
    uint64_t seen = 0;
    while (*text) {
        const size_t item = strcspn(text, ","), name = strcspn(text, "=,");
        char value[64], list[400];
        heti_t_text l = heti_t_text_in(list, sizeof list);
        het_setting s;
        int64_t n;
        if (name == item)
            return HETI_T_BAD(error, "'%p' is not key=value", text, item);
        for (n = 0; het_model_get(m, n, &s) && !heti_t_is(text, name, s.name); n++) heti_t_format(&l, " %s", s.name);
        if (s.name == NULL)
            return HETI_T_BAD(error, "unknown key '%p', not one of%s", text, name, list);
        if (item - name - 1 >= sizeof value)
            return HETI_T_BAD(error, "the value of %s is longer than 63 bytes", s.name);
        if ((seen >> n) & 1)
            return HETI_T_BAD(error, "%s is given twice", s.name);
        seen |= UINT64_C(1) << n;
        memcpy(value, text + name + 1, item - name - 1);
        value[item - name - 1] = 0;
        HETI_T_TRY(het_model_put(m, n, value, "het_model_parse", error));
        text += item;
        if (*text == ',' && !*++text)
            return HETI_T_BAD(error, "nothing follows the last ','");
    }
    return HET_OK;
}

/* Applies the preset that starts `text`, or fails with a list of those there are. */
static het_result heti_t_preset_apply(het_model_desc *m, const char *family, const char *text, het_error *error) {
    const size_t length = strcspn(text, ",");
    char list[128];
    heti_t_text l = heti_t_text_in(list, sizeof list);
    for (int i = 0; i < HETI_T_PRESETS; i++) {
        if (strcmp(heti_t_presets[i].family, family) != 0) continue;
        if (heti_t_is(text, length, heti_t_presets[i].name))
            return heti_t_settings(m, heti_t_presets[i].settings, error);
        heti_t_format(&l, " %s", heti_t_presets[i].name);
    }
    return HETI_T_BAD(error, "%s: unknown preset '%p', not one of%s, and not key=value", family, text, length, list);
}

HETRAIN_API het_result het_model_parse(const char *name, het_model_desc *model, het_error *error) {
    het_model_desc m;
    het_error why;
    char list[128];
    heti_t_text l = heti_t_text_in(list, sizeof list);
    int i;
    if (!name || !model)
        return HETI_T_BAD(error, "%s is NULL", name ? "model" : "name");
    size_t length = strcspn(name, ":");
    for (i = 0; i < HETI_T_FAMILIES && !heti_t_is(name, length, heti_t_families[i].name); i++)
        heti_t_format(&l, " %s", heti_t_families[i].name);
    if (i == HETI_T_FAMILIES)
        return HETI_T_BAD(error, "unknown family '%p', not one of%s", name, length, list);
    name += length + (name[length] == ':');
    memset(&m, 0, sizeof m);
    m.family = heti_t_families[i].family;
    HETI_T_TRY(heti_t_settings(&m, heti_t_families[i].settings, error));
    length = strcspn(name, ",");
    if (strcspn(name, "=") >= length) {
        HETI_T_TRY(heti_t_preset_apply(&m, heti_t_families[i].name, name, error));
        name += length + (name[length] == ',' && name[length + 1]);
    }
    HETI_T_TRY(heti_t_settings(&m, name, error));
    if (het_model_complete(&m, &why) != HET_OK)
        return heti_t_fail(error, why.code, "het_model_parse%s", why.text + sizeof "het_model_complete" - 1);
    *model = m;
    return HET_OK;
}

HETRAIN_API het_result het_model_format(const het_model_desc *model, char *text, size_t capacity, size_t *length) {
    heti_t_text t = heti_t_text_in(text, capacity);
    het_setting s;
    int i;
    if (!model || !length || (!text && capacity)) return HET_ERR_INVALID;
    het_model_desc m = *model;
    HETI_T_TRY(het_model_complete(&m, NULL));
    for (i = 0; heti_t_families[i].family != m.family; i++) {}
    heti_t_put(&t, heti_t_families[i].name);
    for (i = 0; het_model_get(&m, i, &s); i++) {
        heti_t_format(&t, i == 0 ? ":%s=" : ",%s=", s.name);
        heti_t_setting_text(&t, &s);
    }
    *length = t.length;
    return t.length < capacity ? HET_OK : HET_ERR_LIMIT;
}

#ifdef __cplusplus
}
#endif
#define HETRAIN_TEXT_IMPLEMENTATION_DONE
#undef HETI_T_OWN
#endif /* HETI_T_OWN */

/* ---- changes ------------------------------------------------------------------------------------
   0.2.0  The first version: out of hetrain.h, hetrain_plan.h and hetrain_files.h.

   ---- licence: MIT-0 -----------------------------------------------------------------------------
   MIT No Attribution

   Copyright 2026 hetrain authors

   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
   associated documentation files (the "Software"), to deal in the Software without restriction,
   including without limitation the rights to use, copy, modify, merge, publish, distribute,
   sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
   furnished to do so.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
   NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
   NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
   DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
   OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
