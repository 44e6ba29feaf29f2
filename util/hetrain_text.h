/* hetrain_text.h 0.1.0: numbers, messages and lists as text. A companion of hetrain.h that uses
   only its public API, and on which the other companions stand: hetrain_plan.h, hetrain_tokenizer.h
   and hetrain_files.h include it. Needs hetrain.h beside it.

   USE
       #include "hetrain_text.h"
   comes by itself with every other companion. Needs libc; no libm, no threads, no stdio.

   OPTIONS   (macros, defined before the include)
       macro                          default                     needed where, effect
       HETRAIN_STATIC                 not defined                 everywhere: all functions static,
                                                                  a private copy (hetrain.h defines
                                                                  what it means)
       HETRAIN_NO_DEFAULT_ALLOCATOR   not defined                 implementation: no malloc; calls
                                                                  that allocate must get an
                                                                  allocator

   MEMORY, ERRORS, THREADS
   Nothing here allocates by itself but lists, from the allocator they are given. No state is kept
   between calls: any thread may make any call at any time. Nothing is printed and nothing exits.

   DETERMINISM
   A function's output depends on its arguments alone, in any locale.

   FUNCTIONS
   CONTENTS   (tags to search for)
   implementation:
       >>shared_config   includes and compiler differences
       >>shared_text     text in memory or on its way to a writer, messages
       >>shared_memory   the allocator, one block for several arrays, growing lists
*/

#ifndef HETRAIN_TEXT_H
#define HETRAIN_TEXT_H

#ifndef HETRAIN_H
#include "hetrain.h"
#endif

#endif /* HETRAIN_TEXT_H ---- end of the API: to use hetrain_text.h you need nothing below ---- */
/* =================================================================================================
   >>shared_config  Compiler differences, in one place. From here to the end of >>shared_memory
   stands what the implementations of the companions share: static functions, in each file that
   has one of them.
   ============================================================================================== */
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
#else
#define HETI_T_CAST(type, value) ((type)(value))
#endif

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
    heti_t_text t;
    memset(&t, 0, sizeof t);
    t.to = to;
    t.capacity = capacity;
    t.result = HET_OK;
    if (to != NULL && capacity > 0) to[0] = 0;
    return t;
}

/* Goes on behind a text that is there. */
static inline heti_t_text heti_t_text_behind(char *to, size_t capacity) {
    heti_t_text t = heti_t_text_in(NULL, 0);
    t.to = to;
    t.capacity = capacity;
    t.length = strlen(to);
    return t;
}

/* `room` collects. */
static inline heti_t_text heti_t_text_to(const het_writer *writer, char *room, size_t capacity) {
    heti_t_text t = heti_t_text_in(room, capacity);
    t.writer = writer;
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

static inline void heti_t_unsigned(heti_t_text *t, uint64_t value) {
    heti_t_digits(t, value, 10);
}

static inline void heti_t_integer(heti_t_text *t, int64_t value) {
    if (value < 0) heti_t_char(t, '-');
    heti_t_unsigned(t, value < 0 ? 0 - HETI_T_CAST(uint64_t, value) : HETI_T_CAST(uint64_t, value));
}

/* All 16 digits. */
static inline void heti_t_hex(heti_t_text *t, uint64_t value) {
    int shift;
    for (shift = 60; shift >= 0; shift -= 4) heti_t_char(t, "0123456789abcdef"[value >> shift & 15u]);
}

/* value with `decimals` digits behind the point, rounded half up, without trailing zeros; |value|
   10^decimals is cut at 9.2e18. */
static inline void heti_t_fixed(heti_t_text *t, double value, int decimals) {
    char digit[20];
    double scaled = value < 0 ? -value : value;
    uint64_t number, scale = 1, rest;
    int i, shown = decimals;
    if (value != value) { heti_t_put(t, "nan"); return; }
    for (i = 0; i < decimals; i++) scale *= 10;
    scaled = scaled * HETI_T_CAST(double, scale) + 0.5;
    number = scaled < 9.2e18 ? HETI_T_CAST(uint64_t, scaled) : HETI_T_CAST(uint64_t, 9200000000000000000);
    if (value < 0 && number > 0) heti_t_char(t, '-');
    heti_t_unsigned(t, number / scale);
    rest = number % scale;
    for (i = decimals; i-- > 0; rest /= 10) digit[i] = "0123456789"[rest % 10];
    while (shown > 0 && digit[shown - 1] == '0') shown--;
    if (shown > 0) heti_t_char(t, '.');
    for (i = 0; i < shown; i++) heti_t_char(t, digit[i]);
}

static inline void heti_t_bytes(heti_t_text *t, double bytes) {
    static const char *const heti_t_sizes[] = { " bytes", " kB", " MB", " GB", " TB", " PB", " EB" };
    int unit = 0;
    for (; bytes >= 1000 && unit < 6; unit++) bytes /= 1000;
    heti_t_fixed(t, bytes, 3);
    heti_t_put(t, heti_t_sizes[unit]);
}

/* A name or text from a file, for a message: at most 60 bytes of it, with '?' for what is not
   printable ASCII. */
static inline void heti_t_quoted(heti_t_text *t, const char *from, size_t length) {
    size_t i;
    heti_t_char(t, '"');
    for (i = 0; i < length && i < 60; i++)
        heti_t_char(t, HETI_T_CAST(char, from[i] >= ' ' && from[i] <= '~' ? from[i] : '?'));
    if (length > 60) heti_t_char(t, '~');
    heti_t_char(t, '"');
}

/* A JSON string with the escapes that Rust's serde_json uses. */
static inline void heti_t_json(heti_t_text *t, const char *from, size_t length) {
    static const char heti_t_from[] = "\"\\\b\f\n\r\t", heti_t_into[] = "\"\\bfnrt";
    size_t i;
    heti_t_char(t, '"');
    for (i = 0; i < length; i++) {
        const unsigned byte = HETI_T_CAST(unsigned char, from[i]);
        const char *found = byte != 0 ? strchr(heti_t_from, from[i]) : NULL;
        if (found != NULL) {
            heti_t_char(t, '\\');
            heti_t_char(t, heti_t_into[found - heti_t_from]);
        } else if (byte < 0x20) {
            heti_t_put(t, "\\u00");
            heti_t_char(t, "0123456789abcdef"[byte >> 4]);
            heti_t_char(t, "0123456789abcdef"[byte & 15]);
        } else {
            heti_t_char(t, from[i]);
        }
    }
    heti_t_char(t, '"');
}

static inline void heti_t_general(heti_t_text *t, double value);

/* Parts of a line: %s text, %d int64_t, %u and %x uint64_t, %g double with 3 decimals, %e double
   with 6 digits, %b double bytes, %q const char * and size_t. Arguments must have exactly these
   types. */
static inline void heti_t_format_list(heti_t_text *t, const char *format, va_list arguments) {
    const char *from;
    for (; *format != 0; format++) {
        if (*format != '%') { heti_t_char(t, *format); continue; }
        switch (*++format) {
        case 's': heti_t_put(t, va_arg(arguments, const char *)); break;
        case 'd': heti_t_integer(t, va_arg(arguments, int64_t)); break;
        case 'u': heti_t_unsigned(t, va_arg(arguments, uint64_t)); break;
        case 'x': heti_t_digits(t, va_arg(arguments, uint64_t), 16); break;
        case 'g': heti_t_fixed(t, va_arg(arguments, double), 3); break;
        case 'e': heti_t_general(t, va_arg(arguments, double)); break;
        case 'b': heti_t_bytes(t, va_arg(arguments, double)); break;
        case 'q':
            from = va_arg(arguments, const char *);
            heti_t_quoted(t, from, va_arg(arguments, size_t));
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
    size_t count, i;
    *size = 1;
    if (first < 0x80) return first;
    if (first < 0xC2 || first > 0xF4) return HETI_T_INVALID;
    count = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (count > length - at) return HETI_T_INVALID;
    if (first == 0xE0) least = 0xA0;      /* no overlong forms */
    else if (first == 0xED) most = 0x9F;  /* no surrogates */
    else if (first == 0xF0) least = 0x90;
    else if (first == 0xF4) most = 0x8F;  /* up to U+10FFFF */
    point = first & (count == 2 ? 0x1Fu : count == 3 ? 0x0Fu : 0x07u);
    for (i = 1; i < count; i++, least = 0x80, most = 0xBF) {
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
    size_t i;
    for (i = count; i-- > 1; point >>= 6)
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
    het_json json;
    double value = 0;
    heti_t_format(&t, "%ue%d", mantissa, HETI_T_CAST(int64_t, exponent));
    json = het_json_start(room, t.length);
    return het_json_real(&json, &value) ? value : 0;
}

/* The `digits` first digits of a value above 0, rounded: value is about mantissa 10^*exponent. */
static inline uint64_t heti_t_leading(double value, int digits, int *exponent) {
    uint64_t low = 1, mantissa;
    int i, e = 0;
    double scale = 1;
    for (i = 1; i < digits; i++) low *= 10;
    while (e > -320 && value < heti_t_decimal(1, e)) e -= 16; /* 10^e <= value < 10^(e + 1) in the end */
    while (e < 308 && value >= heti_t_decimal(1, e + 1)) e++;
    *exponent = e - digits + 1;
    if (*exponent < -300) { value *= 1e40; scale = 1e-40; }
    mantissa = HETI_T_CAST(uint64_t, *exponent > 0 ? value / heti_t_decimal(1, *exponent) + 0.5
        : value * heti_t_decimal(1, scale < 1 ? -*exponent - 40 : -*exponent) + 0.5);
    if (mantissa >= 10 * low) { mantissa = (mantissa + 5) / 10; ++*exponent; }
    return mantissa;
}

/* mantissa 10^exponent without trailing zeros: digits in place where the first of them stands for a
   power of ten from 10^least to 10^(most - 1), else d.ddde7, or d.ddde+07 as printf writes it. */
static inline void heti_t_layout(heti_t_text *t, uint64_t mantissa, int exponent, int least, int most, int padded) {
    char digit[20];
    int n = 0, i, point;
    while (mantissa % 10 == 0 && mantissa > 0) { mantissa /= 10; exponent++; }
    do {
        digit[n++] = "0123456789"[mantissa % 10];
        mantissa /= 10;
    } while (mantissa != 0);
    exponent += n - 1;
    point = exponent < least || exponent >= most ? 1 : exponent + 1; /* digits before the point */
    if (point < 1) heti_t_put(t, "0.");
    for (i = point; i < 0; i++) heti_t_char(t, '0');
    for (i = 0; i < n || i < point; i++) {
        if (i == point && i > 0) heti_t_char(t, '.');
        heti_t_char(t, HETI_T_CAST(char, i < n ? digit[n - 1 - i] : '0'));
    }
    if (exponent >= least && exponent < most) return;
    heti_t_char(t, 'e');
    if (padded) heti_t_put(t, exponent < 0 ? "-" : "+");
    if (padded && exponent < 0) exponent = -exponent;
    if (padded && exponent < 10) heti_t_char(t, '0');
    heti_t_integer(t, exponent);
}

/* 6 digits, as printf's %g. */
static inline void heti_t_general(heti_t_text *t, double value) {
    uint64_t mantissa = 0;
    int exponent = 0;
    if (value != value) { heti_t_put(t, "nan"); return; }
    if (value < 0) heti_t_char(t, '-');
    if (value < 0) value = -value;
    if (value > 1.7976931348623157e308) { heti_t_put(t, "inf"); return; }
    if (value > 0) mantissa = heti_t_leading(value, 6, &exponent);
    heti_t_layout(t, mantissa, exponent, -4, 6, 1);
}

/* The fewest digits that a reader turns back into a value above 0: mantissa 10^*exponent. */
static inline uint64_t heti_t_shortest(double value, int *exponent) {
    uint64_t mantissa = 0;
    int digits, near, found = 0;
    for (digits = 4; digits <= 18 && !found; digits++)
        for (near = 0; near < (digits < 16 ? 1 : 41) && !found; near++) {
            mantissa = heti_t_leading(value, digits, exponent);
            mantissa = near % 2 == 0 ? mantissa + HETI_T_CAST(uint64_t, near / 2) :
                mantissa - HETI_T_CAST(uint64_t, near / 2 + 1);
            found = !(heti_t_decimal(mantissa, *exponent) < value) && !(heti_t_decimal(mantissa, *exponent) > value);
        }
    return mantissa;
}

/* With as many digits as a reader needs to get the same number back. */
static inline void heti_t_real(heti_t_text *t, double value) {
    uint64_t mantissa;
    int exponent = 0;
    if (value != value || value > 1e308 || value < -1e308) { heti_t_put(t, "null"); return; }
    if (value < 0) heti_t_char(t, '-');
    if (value < 0) value = -value;
    if (value < 1e15 && value <= HETI_T_CAST(double, HETI_T_CAST(uint64_t, value))) {
        heti_t_unsigned(t, HETI_T_CAST(uint64_t, value));
        return;
    }
    mantissa = heti_t_shortest(value, &exponent);
    heti_t_layout(t, mantissa, exponent, 0, 1, 0);
}

/* Nine digits: as exact as any measurement, and what a file holds without loss. */
static inline double heti_t_short(double value) {
    int exponent;
    uint64_t mantissa;
    if (!(value > 1e-290 && value < 1e290)) return 0;
    mantissa = heti_t_leading(value, 9, &exponent);
    return heti_t_decimal(mantissa, exponent);
}

/* ---- actions ---- */

#define HETI_T_KINDS 12

static inline const char *heti_t_kind(int32_t kind) {
    static const char *const heti_t_kinds[HETI_T_KINDS] = { "F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B",
                                                            "REDUCE", "VERDICT", "STEP", "GATHER" };
    return heti_t_kinds[kind];
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
    if (a->kind == HET_ACTION_VERDICT) return;
    heti_t_integer(t, block ? a->stage : a->micro_batch);
    if (!block && a->slice != 0) heti_t_format(t, ".%d", HETI_T_CAST(int64_t, a->slice));
    if (!block && a->pipeline != 0) heti_t_format(t, "@%d", HETI_T_CAST(int64_t, a->pipeline));
    if (!block && a->version != 0) heti_t_format(t, "/%d", HETI_T_CAST(int64_t, a->version));
}

/* The same for messages. */
static inline const char *heti_t_action_text(char to[80], const het_action *a) {
    heti_t_text t = heti_t_text_in(to, 80);
    heti_t_action(&t, a);
    return to;
}

static inline double heti_t_timeline_end(const het_timeline *timeline) {
    double end = 0;
    int64_t i;
    for (i = 0; i < timeline->records; i++)
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

/* The caller's allocator, or malloc for NULL and for two NULLs; 0: it lacks a function. */
static inline int heti_t_allocator(const het_allocator *given, het_allocator *allocator) {
    memset(allocator, 0, sizeof *allocator);
    if (given != NULL && (given->alloc != NULL || given->free != NULL)) *allocator = *given;
#ifndef HETRAIN_NO_DEFAULT_ALLOCATOR
    else {
        allocator->alloc = heti_t_malloc;
        allocator->free = heti_t_malloc_free;
    }
#endif
    return allocator->alloc != NULL && allocator->free != NULL;
}

static inline het_result heti_t_need_allocator(const het_allocator *given, het_allocator *allocator, const char *call,
                                               het_error *error) {
    if (heti_t_allocator(given, allocator)) return HET_OK;
    return heti_t_fail(error, HET_ERR_INVALID, "%s: an allocator needs both alloc and free", call);
}

static inline het_result heti_t_choose(const het_allocator *given, het_allocator *allocator, het_error *error,
                                       const char *name) {
    if (heti_t_allocator(given, allocator)) return HET_OK;
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

/* Between the two passes: a block for what was counted, all bytes 0. */
static inline het_result heti_t_arena_start(heti_t_arena *arena, const het_allocator *allocator, const char *call,
                                            het_error *error) {
    void *block = NULL;
    arena->size = arena->used;
    arena->used = 0;
    HETI_T_TRY(heti_t_block(allocator, arena->size, call, &block, error));
    arena->base = HETI_T_CAST(char *, block);
    return HET_OK;
}

/* A list of bytes. */
typedef struct heti_t_list {
    char *data;
    size_t used, size;                /* bytes */
} heti_t_list;

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

/* ---- changes ------------------------------------------------------------------------------------
   0.1.0  The first version: out of hetrain.h, hetrain_plan.h and hetrain_files.h.

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
