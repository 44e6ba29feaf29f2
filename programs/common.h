/* What the programs share: error lines, command line options, files, time, threads. None of it is part of hetrain.
   A program defines PROGRAM (its name in messages) and HETRAIN_IMPLEMENTATION, then includes this file. */
#ifndef PROGRAMS_COMMON_H
#define PROGRAMS_COMMON_H

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* syscall */
#endif
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* fsync, isatty, clock_gettime, sigaction under -std=c99 */
#endif

#ifdef HETRAIN_IMPLEMENTATION
#define HETRAIN_TOKENIZER_IMPLEMENTATION
#define HETRAIN_FILES_IMPLEMENTATION
#endif
#include "hetrain.h"
#include "hetrain_tokenizer.h"
#include "hetrain_files.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { DONE = 0, FAILED = 1, BAD_INPUT = 2 }; /* exit status of every program */

/* ---- words that are nearly right ----------------------------------------------------------------------------------- */

/* How many letters must be put in, taken out, changed or swapped with the next to make one word of the other; at most 99 for long ones. */
static inline int word_distance(const char *a, size_t length, const char *b, size_t size) {
    enum { MOST = 48 };
    int row[3][MOST + 1];
    size_t i, k;
    if (length > MOST || size > MOST) return 99;
    for (k = 0; k <= size; k++) row[0][k] = (int)k;
    for (i = 1; i <= length; i++) {
        int *now = row[i % 3], *above = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = (int)i;
        for (k = 1; k <= size; k++) {
            int best = above[k - 1] + (tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[k - 1]));
            if (above[k] + 1 < best) best = above[k] + 1;
            if (now[k - 1] + 1 < best) best = now[k - 1] + 1;
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1] && before[k - 2] + 1 < best) best = before[k - 2] + 1;
            now[k] = best;
        }
    }
    return row[length % 3][size];
}

/* Keeps in *best the word that is nearest to `text`, where a third of its letters or fewer are wrong, or it begins with `text`. */
typedef struct near_word { const char *word; size_t length; int distance; } near_word;
static inline void word_nearer(near_word *best, const char *text, size_t size, const char *word, size_t length) {
    int distance = word_distance(text, size, word, length);
    if (size >= 3 && length > size && memcmp(word, text, size) == 0) distance = 1;
    if (3 * distance > (int)length + 1 || (best->word != NULL && distance >= best->distance)) return;
    best->word = word, best->length = length, best->distance = distance;
}

/* "; did you mean WORD?", or "". */
static inline const char *did_you_mean(near_word best, char *to, size_t capacity) {
    to[0] = 0;
    if (best.word != NULL) snprintf(to, capacity, "; did you mean %.*s?", (int)best.length, best.word);
    return to;
}

/* Of the words of a list that stand between characters of `between`; none, if that is what was written. */
static inline near_word nearest_word(const char *text, size_t size, const char *list, const char *between) {
    near_word best = { NULL, 0, 0 };
    while (*list != 0) {
        const size_t length = strcspn(list, between);
        word_nearer(&best, text, size, list, length);
        list += length + (list[length] != 0);
    }
    if (best.word != NULL && best.length == size && memcmp(best.word, text, size) == 0) best.word = NULL;
    return best;
}

/* ---- errors: one line on standard error, whatever the values in it contain ---------------------------------------- */

static int program_is_mute; /* of several processes one speaks; the others only of what went wrong in them alone */
static char failure[1200] = "ended with an error"; /* why this process ends, for the others */
static char **command_words; /* of the command line, the last one NULL */

/* 1: a word of the command line has it, a path perhaps. */
static inline int user_said(const char *word, size_t length) {
    char copy[64];
    char **said = command_words;
    if (said == NULL || length >= sizeof copy) return 0;
    memcpy(copy, word, length);
    copy[length] = 0;
    while (*said != NULL && strstr(*said, copy) == NULL) said++;
    return *said != NULL;
}

/* The library's texts speak of functions and fields of C; a command line has options. Replaces in place, where there is room. */
static inline void tell_options(char *text, size_t capacity) {
    static const char *const told[][2] = {
        { "het_desc.emulate.links", "--links" }, { "het_desc.layout.devices", "--devices" }, { "het_desc.granule", "--granule" },
            { "het_desc.weights", "--weights" },
        { "het_desc.limits.max_tokens", "--sequences times --length" }, { "het_desc.limits.max_sequences", "--sequences" },
        { "het_desc.limits.max_slices", "--slices" },
        { "het_desc.limits.max_micro_batches", "--micro-batches" }, { "het_desc.layout.shard", "--shard" },
        { "reduce = exact", "--reduce exact" },
        { "clip must be negative, spike and skip_bad_steps off", "it wants --clip 0, no --spike and --on-bad-step stop" },
        { "the plan's `updates` is", "--updates is" },
        { "het_desc.model.lora_rank", "--lora" }, { "local_loss is", "--local-loss is" },
        { "and max_tokens of rank", "and --devices ...#TOKENS of rank" },
        { "its memory_limit of", "its limit (--devices .../SIZE) of" }, { "het_desc.", "" }
    };
    size_t i, length;
    char *at;
    for (i = 0; i < sizeof told / sizeof told[0]; i++)
        while ((at = strstr(text, told[i][0])) != NULL && strlen(text) + strlen(told[i][1]) < capacity) {
            memmove(at + strlen(told[i][1]), at + strlen(told[i][0]), strlen(at + strlen(told[i][0])) + 1);
            memcpy(at, told[i][1], strlen(told[i][1]));
        }
    for (at = text; (at = strstr(at, "het_")) != NULL;) { /* "het_create: " */
        length = strspn(at, "abcdefghijklmnopqrstuvwxyz_0123456789");
        if ((at == text || at[-1] == ' ' || at[-1] == '(') && strncmp(at + length, ": ", 2) == 0 && !user_said(at, length))
            memmove(at, at + length + 2, strlen(at + length + 2) + 1);
        else at += length;
    }
}

/* Behind "... 'WORD', not one of A B C": the nearest of them. */
static inline void tell_nearest(char *text, size_t capacity) {
    static const char list[] = "', not one of ";
    char *at = strstr(text, list), *word = at;
    char meant[80];
    while (word != NULL && word > text && word[-1] != '\'') word--;
    if (word == NULL || word == text) return;
    did_you_mean(nearest_word(word, (size_t)(at - word), at + sizeof list - 1, " ,"), meant, sizeof meant);
    if (strlen(text) + strlen(meant) < capacity) strcat(text, meant);
}

/* A text that is too long loses its middle: its end says what is wrong. */
#if defined(__GNUC__) || defined(__clang__)
static inline int fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
#endif
static inline int fail(int status, const char *format, ...) {
    const size_t most = sizeof failure - 1, front = most / 3;
    char small[8192], *large = NULL, *whole = small;
    va_list list;
    size_t i, length, room = sizeof small;
    va_start(list, format);
    length = (size_t)vsnprintf(small, sizeof small, format, list);
    va_end(list);
    if (length >= sizeof small && (large = (char *)malloc(length + sizeof small)) != NULL) {
        whole = large, room = length + sizeof small;
        va_start(list, format);
        vsnprintf(whole, room, format, list);
        va_end(list);
    }
    tell_options(whole, room);
    tell_nearest(whole, room);
    length = strlen(whole);
    if (length > most) {
        memmove(whole + front + 3, whole + length - (most - front - 3), most - front - 2);
        memcpy(whole + front, "...", 3);
    }
    memcpy(failure, whole, strlen(whole) + 1);
    free(large);
    for (i = 0; failure[i] != 0; i++)
        if ((unsigned char)failure[i] < 32 || failure[i] == 127) failure[i] = '?';
    if (!program_is_mute || (status == FAILED && strstr(failure, " failed: ") == NULL)) fprintf(stderr, "%s: %s\n", PROGRAM, failure);
    return status;
}

/* Every program begins with this. The number of a standard stream that is closed would go to the next file opened, and what is printed into that
   file. A pipe that nobody reads, or a file that may not grow (ulimit -f), is an error of writing, not the program's end. */
static inline void program_begin(void) {
    int handle;
    for (handle = 0; handle < 3; handle++)
        if (fcntl(handle, F_GETFD) < 0) (void)open("/dev/null", handle == STDOUT_FILENO ? O_RDONLY : O_RDWR);
    signal(SIGPIPE, SIG_IGN), signal(SIGXFSZ, SIG_IGN);
}

/* And ends with this: the exit status, 1 where not all that was printed could be written. */
static inline int program_end(int status) {
    const int before = ferror(stdout), bad = fflush(stdout) != 0;
    if (status != 0 || (!before && !bad)) return status;
    return fail(FAILED, "standard output: %s", bad ? strerror(errno) : "not all of it could be written");
}

/* How many units a completed model's chain has. */
static inline int64_t model_units(const het_model_desc *model) {
    int64_t count = 0;
    return het_model_units(model, NULL, 0, &count, NULL) == HET_OK ? count : 0;
}

/* Exit status of a result: 2 where the user's arguments or files are at fault. */
static inline int status_of(het_result result) {
    switch (result) {
    case HET_OK: return DONE;
    case HET_ERR_INVALID: case HET_ERR_LIMIT: case HET_ERR_DATA: case HET_ERR_FORMAT: case HET_ERR_IO: case HET_ERR_UNSUPPORTED: return BAD_INPUT;
    default: return FAILED;
    }
}

/* ---- options: one table drives parsing, the help text and what is saved -------------------------------------------- */

typedef enum option_kind {
    OPTION_TEXT,    /* const char * */
    OPTION_INTEGER, /* int64_t in [low, high] */
    OPTION_SEED,    /* uint64_t */
    OPTION_REAL,    /* double in [low, high] */
    OPTION_MAYBE,   /* the same; alone, without a number behind it, it means what follows the = of `value` */
    OPTION_CHOICE,  /* int64_t: 1 for the first word of `value`, words separated by |; behind a = which it means alone */
    OPTION_FLAG,    /* int64_t: 1 */
    OPTION_GROUP,   /* no option: the title of those that follow */
    OPTION_HELP,    /* prints the table */
    OPTION_VERSION  /* prints the version */
} option_kind;

typedef struct option {
    const char *name, *value; /* "--steps", "N" */
    option_kind kind;
    size_t offset;            /* in the program's settings struct */
    double low, high;         /* of numbers; train, texts and flags: low says how processes must agree (option_agreement) */
    const char *help;
} option;

#define OPTION_TITLE(title) { title, NULL, OPTION_GROUP, 0, 0, 0, NULL }
#define OPTION_LAST_ROWS \
    { "--help", NULL, OPTION_HELP, 0, 0, 0, "this text; also -h" }, \
    { "--version", NULL, OPTION_VERSION, 0, 0, 0, "the version" }

/* Decimal digits only, the whole text, no overflow. */
static inline int parse_unsigned(const char *text, uint64_t *value) {
    uint64_t v = 0;
    if (*text == 0) return 0;
    for (; *text != 0; text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        if (*text < '0' || *text > '9' || v > (UINT64_MAX - digit) / 10) return 0;
        v = v * 10 + digit;
    }
    *value = v;
    return 1;
}

static inline int parse_integer(const char *text, double low, double high, int64_t *value) {
    int negative = text[0] == '-';
    uint64_t v;
    int64_t result;
    if (!parse_unsigned(text + negative, &v) || v > INT64_MAX) return 0;
    result = negative ? -(int64_t)v : (int64_t)v;
    if ((double)result < low || (double)result > high) return 0;
    *value = result;
    return 1;
}

/* Nearly every real number ends as a float: one that is not 0 must not become 0 there, nor infinite. */
static inline int fits_float(const char *text) {
    const double v = fabs(strtod(text, NULL));
    return v <= (double)FLT_MAX && ((float)v > 0) == (strspn(text, "+-0.") < strcspn(text, "eE"));
}

/* 0.001, 1e-3, -2.5; no white space, hexadecimal, inf or nan. */
static inline int parse_real(const char *text, double low, double high, double *value) {
    char *end;
    double v;
    if (*text == 0 || text[strspn(text, "0123456789.eE+-")] != 0) return 0;
    v = strtod(text, &end);
    if (*end != 0 || v < low || v > high || !fits_float(text)) return 0;
    *value = v;
    return 1;
}

/* 1 for the first word of "one|two|three"; 0 if `text` is none of them. */
static inline int64_t parse_choice(const char *words, const char *text) {
    int64_t index = 1;
    size_t length = strlen(text);
    for (; words != NULL; index++) {
        const char *bar = strchr(words, '|');
        size_t size = strcspn(words, "|=");
        if (size == length && memcmp(words, text, length) == 0) return index;
        words = bar != NULL ? bar + 1 : NULL;
    }
    return 0;
}

/* The value of an option as text; NULL if it has none. */
static inline const char *option_text(const void *settings, const option *o, char *buffer, size_t capacity) {
    const char *field = (const char *)settings + o->offset, *text;
    int64_t integer;
    uint64_t seed;
    double real;
    switch (o->kind) {
    case OPTION_TEXT: memcpy(&text, field, sizeof text); return text;
    case OPTION_INTEGER: memcpy(&integer, field, sizeof integer); snprintf(buffer, capacity, "%lld", (long long)integer); return buffer;
    case OPTION_SEED: memcpy(&seed, field, sizeof seed); snprintf(buffer, capacity, "%llu", (unsigned long long)seed); return buffer;
    case OPTION_REAL:
    case OPTION_MAYBE:
        memcpy(&real, field, sizeof real);
        snprintf(buffer, capacity, "%.15g", real);
        if (strtod(buffer, NULL) < real || strtod(buffer, NULL) > real) snprintf(buffer, capacity, "%.17g", real);
        return buffer;
    case OPTION_FLAG: memcpy(&integer, field, sizeof integer); return integer ? "yes" : NULL;
    case OPTION_CHOICE:
        memcpy(&integer, field, sizeof integer);
        for (text = o->value; integer > 1; integer--) text = strchr(text, '|') + 1;
        snprintf(buffer, capacity, "%.*s", (int)strcspn(text, "|="), text);
        return buffer;
    default: return NULL;
    }
}

/* Prints words, `text` and then [default] where there is one, in lines of at most 100 columns; all but the first are indented. */
static inline void print_wrapped(const char *text, const char *bracketed, int column, int indent) {
    char last[128];
    int first = 1, turn;
    snprintf(last, sizeof last, "[%s]", bracketed != NULL ? bracketed : "");
    for (turn = 0; turn < (bracketed != NULL ? 2 : 1); turn++) {
        const char *word = turn == 0 ? text : last;
        while (*word != 0) {
            const int length = (int)(turn == 0 ? strcspn(word, " ") : strlen(word));
            if (!first && column + 1 + length > 100) printf("\n%*s", column = indent, "");
            else if (!first) column += printf(" ");
            column += printf("%.*s", length, word);
            word += length + (word[length] == ' ');
            first = 0;
        }
    }
    printf("\n");
}

/* What an option means without a value behind it; NULL: it needs one. */
static inline const char *option_alone(const option *o) {
    const char *equals = o->kind == OPTION_MAYBE || o->kind == OPTION_CHOICE ? strchr(o->value, '=') : NULL;
    return equals != NULL ? equals + 1 : NULL;
}

/* The table, with the values that `settings` has in brackets where they are in range; a value that may be left out is in brackets too. */
static inline void options_help(const char *summary, const option *table, int count, const void *settings) {
    size_t size;
    int i;
    printf("%s\n", summary);
    if (table[0].kind != OPTION_GROUP) printf("\n");
    for (i = 0; i < count; i++) {
        const option *o = &table[i];
        char left[400], buffer[64], both[96], *at = left;
        const char *alone = option_alone(o);
        const int value = o->value == NULL ? 0 : (int)(alone != NULL ? strcspn(o->value, "=") : strlen(o->value));
        const char *text = o->kind < OPTION_FLAG ? option_text(settings, o, buffer, sizeof buffer) : NULL;
        if (o->kind == OPTION_GROUP) { printf("\n%s:\n", o->name); continue; }
        if ((o->kind == OPTION_INTEGER || o->kind == OPTION_REAL) && (strtod(text, NULL) < o->low || strtod(text, NULL) > o->high)) text = NULL;
        snprintf(left, sizeof left, alone != NULL ? "%s [%.*s]" : "%s %.*s", o->name, value, o->value != NULL ? o->value : "");
        if (alone != NULL) snprintf(both, sizeof both, "%s; alone: %s", text, alone), text = both;
        while (strlen(at) > 94) { /* a list of words is broken behind a | */
            for (size = 94; size > 1 && at[size - 1] != '|'; size--) {}
            printf("  %.*s\n    ", (int)size, at);
            at += size;
        }
        if (strlen(left) > 24) printf("  %s\n  %-24s ", at, "");
        else printf("  %-24s ", left);
        print_wrapped(o->help, text != NULL && text[0] != '\n' ? text : NULL, 27, 27);
    }
    printf("\nOptions may be written --name value or --name=value; of two equal ones the last counts.\n");
}

/* Sets one option. `where` stands before the message ("" on the command line, "FILE: " for options read from a file). */
static inline int option_set(const option *o, void *settings, const char *value, const char *where) {
    char *field = (char *)settings + o->offset;
    int64_t integer;
    double real;
    uint64_t seed;
    char meant[80];
    switch (o->kind) {
    case OPTION_TEXT:
        if (value[0] == 0) return fail(BAD_INPUT, "%s%s: empty", where, o->name);
        memcpy(field, &value, sizeof value);
        return 0;
    case OPTION_INTEGER:
        if (!parse_integer(value, o->low, o->high, &integer))
            return fail(BAD_INPUT, "%s%s %s: not an integer from %.15g to %.15g", where, o->name, value, o->low, o->high);
        memcpy(field, &integer, sizeof integer);
        return 0;
    case OPTION_SEED:
        if (!parse_unsigned(value, &seed)) return fail(BAD_INPUT, "%s%s %s: not an integer from 0 to 18446744073709551615", where, o->name, value);
        memcpy(field, &seed, sizeof seed);
        return 0;
    case OPTION_REAL:
    case OPTION_MAYBE:
        if (!parse_real(value, o->low, o->high, &real))
            return fail(BAD_INPUT, "%s%s %s: not a number from %g to %g that a float holds", where, o->name, value, o->low, o->high);
        memcpy(field, &real, sizeof real);
        return 0;
    case OPTION_CHOICE:
        integer = parse_choice(o->value, value);
        if (integer == 0)
            return fail(BAD_INPUT, "%s%s %s: not one of %.*s%s", where, o->name, value, (int)strcspn(o->value, "="), o->value,
                        did_you_mean(nearest_word(value, strlen(value), o->value, "|="), meant, sizeof meant));
        memcpy(field, &integer, sizeof integer);
        return 0;
    default: /* a flag */
        integer = 1;
        memcpy(field, &integer, sizeof integer);
        return 0;
    }
}

static inline int option_find(const option *table, int count, const char *name, size_t length) {
    int i;
    for (i = 0; i < count; i++)
        if (strlen(table[i].name) == length && memcmp(table[i].name, name, length) == 0 && table[i].kind != OPTION_GROUP) return i;
    return -1;
}

static inline int option_unknown(const option *table, int count, const char *name, size_t length) {
    near_word best = { NULL, 0, 0 };
    char meant[80];
    int i;
    for (i = 0; i < count && length > 1 && name[0] == '-'; i++)
        if (table[i].kind != OPTION_GROUP) word_nearer(&best, name, length, table[i].name, strlen(table[i].name));
    return fail(BAD_INPUT, "%s: %s%s; --help lists them", name, name[0] == '-' ? "no such option" : "belongs to no option",
                did_you_mean(best, meant, sizeof meant));
}

/* given[i] becomes 1 for every option met. Returns -1 to go on, or the status to exit with. */
static inline int options_parse(const char *summary, const option *table, int count, void *settings, unsigned char *given, int argc, char **argv) {
    int at;
    if (argc > 0) command_words = argv + 1;
    for (at = 1; at < argc; at++) {
        const char *name = strcmp(argv[at], "-h") == 0 ? "--help" : argv[at], *equals = strchr(name, '='), *value = NULL, *alone;
        const size_t length = equals != NULL ? (size_t)(equals - name) : strlen(name);
        int i = option_find(table, count, name, length), status, takes;
        if (i < 0) return option_unknown(table, count, name, length);
        if (table[i].kind > OPTION_GROUP) {
            if (table[i].kind == OPTION_HELP) options_help(summary, table, count, settings);
            else printf("%s of hetrain %d.%d.%d\n", PROGRAM, HETRAIN_VERSION_MAJOR, HETRAIN_VERSION_MINOR, HETRAIN_VERSION_PATCH);
            return DONE;
        }
        takes = table[i].kind != OPTION_FLAG;
        alone = option_alone(&table[i]);
        if (equals != NULL) value = equals + 1;
        else if (alone != NULL && (at + 1 == argc || (argv[at + 1][0] == '-' && !isdigit((unsigned char)argv[at + 1][1])))) value = alone;
        else if (takes && at + 1 < argc) value = argv[++at];
        if (takes && value == NULL) return fail(BAD_INPUT, "%s: needs a value (%s)", name, table[i].value);
        if (table[i].kind == OPTION_FLAG && value != NULL) return fail(BAD_INPUT, "%s: takes no value", name);
        status = option_set(&table[i], settings, value, "");
        if (status != 0) return status;
        given[i] = 1;
    }
    return -1;
}

/* Refuses the first option of "--a --b ..." that was given: one that has no effect `because`... */
static inline int options_idle(const option *table, int count, const unsigned char *given, const char *names, const char *because) {
    while (*names != 0) {
        const size_t length = strcspn(names, " ");
        const int i = option_find(table, count, names, length);
        if (i >= 0 && given[i]) return fail(BAD_INPUT, "%s: has no effect %s", table[i].name, because);
        names += length + (names[length] == ' ');
    }
    return 0;
}

/* Bytes of the character that begins here (RFC 3629): 0: it is not all there yet; -1: it is none. */
static inline int utf8_length(const unsigned char *at, size_t left) {
    const unsigned first = at[0];
    const int length = first < 0x80 ? 1 : first < 0xC2 || first > 0xF4 ? -1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    int i;
    for (i = 1; i < length && (size_t)i < left; i++) {
        const unsigned low = i > 1 ? 0x80 : first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
        const unsigned high = i > 1 ? 0xBF : first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
        if (at[i] < low || at[i] > high) return -1;
    }
    return length < 0 ? -1 : (size_t)length <= left ? length : 0;
}

/* A path need not be UTF-8: what is not becomes '?', as in checkpoints. */
static inline void write_json_string(FILE *file, const char *text) {
    fputc('"', file);
    while (*text != 0) {
        const int length = utf8_length((const unsigned char *)text, 4);
        if (length < 1) fputc('?', file);
        else if (*text == '"' || *text == '\\') fprintf(file, "\\%c", *text);
        else if ((unsigned char)*text < 32) fprintf(file, "\\u%04x", (unsigned)*text);
        else fwrite(text, 1, (size_t)length, file);
        text += length < 1 ? 1 : length;
    }
    fputc('"', file);
}

/* A word of a command line, quoted where a shell would read something else. */
static inline void print_word(const char *text) {
    const char *c;
    if (text[0] != 0 && text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-")] == 0) {
        printf("%s", text);
        return;
    }
    putchar('\'');
    for (c = text; *c != 0; c++) printf(*c == '\'' ? "'\\''" : "%c", *c);
    putchar('\'');
}

/* 93.3 MB, as everywhere: powers of 1,000. */
static inline const char *bytes_text(double bytes, char to[16]) {
    static const char *const units[] = { "bytes", "kB", "MB", "GB", "TB", "PB" };
    int unit = 0;
    for (; bytes >= 999.95 && unit < 5; unit++) bytes /= 1000;
    snprintf(to, 16, unit > 0 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return to;
}

/* ---- time and files ----------------------------------------------------------------------------------------------- */

static inline double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* That this process may run on: taskset, a container or a batch system may leave it few, on which more threads only take turns. */
static inline int processors(void) {
    long n = 0;
#ifdef __linux__
    unsigned char mask[1024];
    const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    for (long i = 0; i < 8 * bytes; i++) n += mask[i / 8] >> (i % 8) & 1;
#endif
#ifdef _SC_NPROCESSORS_ONLN
    if (n < 1) n = sysconf(_SC_NPROCESSORS_ONLN);
#endif
    return n < 1 ? 1 : n > 256 ? 256 : (int)n;
}

static inline int is_directory(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

#define A_PIPE "a pipe or device, not a file"
/* Why a path is no file that can be read at any place; NULL: it is one. A pipe that nobody writes to would be waited for. */
static inline const char *not_a_file(const char *path) {
    struct stat s;
    if (stat(path, &s) != 0 || access(path, R_OK) != 0) return strerror(errno);
    return S_ISREG(s.st_mode) ? NULL : S_ISDIR(s.st_mode) ? "is a directory" : A_PIPE;
}

static inline int ends_with(const char *text, const char *end) {
    const size_t a = strlen(text), b = strlen(end);
    return a > b && strcmp(text + a - b, end) == 0;
}

/* What to say behind "no such name" where there is a file of that name. */
static inline const char *lacks_csv(const char *path) { return access(path, F_OK) == 0 ? "; a file's name ends in .csv" : ""; }

static inline int path_join(char *to, size_t capacity, const char *directory, const char *name) {
    int n = snprintf(to, capacity, "%s/%s", directory, name);
    return n >= 0 && (size_t)n < capacity;
}

/* Behind an error: "; DIR/step-00000100 has one" where the newest checkpoint in the directory does and itself has none, as of a run that was stopped;
   or "". */
static inline const char *in_checkpoint(const char *directory, const char *name, char to[1300]) {
    const int error = errno; /* which the caller tells, too */
    unsigned long long step, newest = 0;
    struct dirent *entry;
    char path[1300];
    DIR *folder = path_join(path, sizeof path, directory, name) && access(path, F_OK) != 0 ? opendir(directory) : NULL;
    to[0] = 0;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        const char *number = strncmp(entry->d_name, "step-", 5) == 0 ? entry->d_name + 5 : "";
        if (number[0] == 0 || number[strspn(number, "0123456789")] != 0 || (step = strtoull(number, NULL, 10)) < newest) continue;
        if ((size_t)snprintf(path, sizeof path, "%s/%s/%s", directory, entry->d_name, name) >= sizeof path || access(path, F_OK) != 0) continue;
        newest = step;
        snprintf(to, 1300, "; %.*s has one", (int)(strlen(path) - strlen(name) - 1), path);
    }
    if (folder != NULL) closedir(folder);
    errno = error;
    return to;
}

/* A text file of at most SMALL_FILE bytes with a 0 behind it; NULL: small_file_error() says why. */
#define SMALL_FILE 1048576
static inline char *read_small_file(const char *path, size_t *length) {
    const size_t limit = SMALL_FILE;
    FILE *file = fopen(path, "rb");
    char *text = file != NULL ? (char *)malloc(limit + 1) : NULL;
    if (text != NULL) {
        *length = fread(text, 1, limit + 1, file);
        if (ferror(file) || *length > limit) {
            if (!ferror(file)) errno = EFBIG;
            free(text);
            text = NULL;
        } else text[*length] = 0;
    }
    if (file != NULL) fclose(file);
    return text;
}
static inline const char *small_file_error(void) {
    static char text[48];
    if (errno != EFBIG) return errno == ESPIPE ? A_PIPE : strerror(errno);
    snprintf(text, sizeof text, "more than %d bytes, the most that is read", SMALL_FILE);
    return text;
}

/* The same of a file that the program found beside others: nobody means a pipe there, which would be waited for. */
static inline int is_pipe(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISFIFO(s.st_mode);
}
static inline char *read_found_file(const char *path, size_t *length) {
    if (!is_pipe(path)) return read_small_file(path, length);
    errno = ESPIPE;
    return NULL;
}

/* A het_writer over a FILE. */
static inline int file_write(void *user, const void *from, size_t size) { return fwrite(from, 1, size, (FILE *)user) != size; }

/* ---- models: a name (gpt2:124m), a config.json or a directory that holds one ---------------------------------------- */

/* The text of the config.json that `spec` is, or that lies in it, to be freed; NULL: it is neither, or *status says. */
static inline char *config_text(const char *option_name, const char *spec, size_t *length, int *status) {
    char path[1024], other[1300];
    const char *from = is_directory(spec) ? path : spec;
    char *text;
    *status = 0;
    if (from == spec && !ends_with(spec, ".json")) return NULL;
    if (from == path && !path_join(path, sizeof path, spec, "config.json")) {
        *status = fail(BAD_INPUT, "%s: path too long", option_name);
        return NULL;
    }
    text = read_found_file(from, length);
    if (text == NULL) *status = fail(BAD_INPUT, "%s %s: %s%s", option_name, from, small_file_error(), in_checkpoint(spec, "config.json", other));
    return text;
}

static inline int model_from_spec(const char *option_name, const char *spec, het_model_desc *model) {
    het_error error = { HET_OK, "" };
    size_t length = 0;
    int status;
    char *text = config_text(option_name, spec, &length, &status);
    het_result result = HET_OK;
    if (text != NULL) result = het_model_from_json(text, length, model, &error);
    else if (status == 0) result = het_model_parse(spec, model, &error);
    free(text);
    return result == HET_OK ? status : fail(status_of(result), "%s %s: %s", option_name, spec, error.text);
}

/* The text of a plan: `spec` itself, or what the file of that path holds, which is then also *read, to be freed. Shorthands are never files, but a
   path with a slash or a dot always is. NULL: *status says. */
static inline const char *plan_text(const char *option_name, const char *spec, char **read, size_t *length, int *status) {
    const int name = strcmp(spec, "auto") == 0 || (strspn(spec, "dpcht") > 0 && spec[strspn(spec, "dpchtx0123456789:|,-")] == 0);
    *read = NULL, *status = 0, *length = strlen(spec);
    if (name || spec[0] == '{' || (strpbrk(spec, "/.") == NULL && access(spec, F_OK) != 0)) return spec;
    *read = read_small_file(spec, length);
    if (*read == NULL) *status = fail(BAD_INPUT, "%s %s: %s", option_name, spec, small_file_error());
    return *read;
}

/* The library's words without the name of the file, which the program has said. */
static inline const char *behind_name(const char *text, const char *name) {
    const size_t length = strlen(name);
    return strncmp(text, name, length) == 0 && strncmp(text + length, ": ", 2) == 0 ? text + length + 2 : text;
}

/* A file that is read at any place, for the library. */
static inline int read_from(const char *option_name, const char *path, het_reader *reader) {
    het_error error = { HET_OK, "" };
    const char *bad = not_a_file(path);
    if (bad == NULL && het_reader_open(path, reader, &error) != HET_OK) bad = behind_name(error.text, path);
    return bad == NULL ? 0 : fail(BAD_INPUT, "%s %s: %s", option_name, path, bad);
}

/* A directory of weights, none of whose files is a pipe. */
static inline het_result weights_folder(const char *path, het_folder *folder, het_error *error) {
    DIR *directory = opendir(path);
    struct dirent *entry;
    char file[1300], bad[1400] = "";
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        if (path_join(file, sizeof file, path, entry->d_name) && is_pipe(file)) snprintf(bad, sizeof bad, "%s: " A_PIPE, file);
    if (directory != NULL) closedir(directory);
    return bad[0] != 0 ? het_error_put(error, HET_ERR_IO, bad) : het_folder_open(path, NULL, folder, error);
}

/* A model against the shapes of its weights, a file or a directory, before memory is taken for it. */
static inline int model_fits(const char *option_name, const char *path, const het_model_desc *model) {
    het_reader reader;
    het_folder folder;
    het_error error = { HET_OK, "" };
    const int directory = is_directory(path);
    het_result result = directory ? weights_folder(path, &folder, &error) : het_reader_open(path, &reader, &error);
    if (result != HET_OK) return fail(BAD_INPUT, "%s %s: %s", option_name, path, behind_name(error.text, path));
    result = directory ? het_model_fits_folder(model, &folder, NULL, &error) : het_model_fits(model, &reader, NULL, &error);
    if (directory) het_folder_close(&folder);
    else het_reader_close(&reader);
    return result == HET_OK ? 0 : fail(status_of(result), "%s %s: %s", option_name, path, behind_name(error.text, path));
}

/* The plan `spec` was not read. */
static inline int plan_refused(const char *option_name, const char *spec, het_result result, const het_error *error) {
    const char *names = strcmp(PROGRAM, "train") == 0 && strcmp(option_name, "--plan") == 0 ? "dp pp auto" : "dp pp";
    char meant[80];
    return fail(status_of(result), "%s %s: %s%s", option_name, spec, error->text,
                did_you_mean(nearest_word(spec, strlen(spec), names, " "), meant, sizeof meant));
}

/* --init FILE|DIR: the weights' path (the directory itself if they are in shards), and the config.json beside them, which is there unless --model is
   given. */
static inline int weights_of_init(const char *init, const char *spec, char *weights, size_t capacity, char config[1024]) {
    char *slash, other[1300];
    const char *bad;
    const int fits = is_directory(init) ? path_join(weights, capacity, init, "model.safetensors")
                                          : (size_t)snprintf(weights, capacity, "%s", init) < capacity;
    if (!fits || (size_t)snprintf(config, 1024, "%s", weights) >= 1024 - 16) return fail(BAD_INPUT, "--init: path too long");
    if (is_directory(init) && access(weights, R_OK) != 0 && path_join(config, 1024, init, "model.safetensors.index.json") &&
        access(config, R_OK) == 0) snprintf(weights, capacity, "%s", init); /* shards: the directory stands for them */
    else if ((bad = not_a_file(weights)) != NULL) {
        in_checkpoint(init, "model.safetensors", other);
        if (access(weights, F_OK) != 0 && path_join(config, 1024, init, "adapter_config.json") && access(config, F_OK) == 0)
            strcpy(other, "; it holds low-rank factors, for --adapter (train: --init-adapter), which lie on the weights of another --init");
        return fail(BAD_INPUT, "--init %s: %s%s", weights, bad, other);
    }
    slash = strrchr(config, '/');
    strcpy(slash != NULL ? slash + 1 : config, "config.json");
    return spec != NULL || access(config, F_OK) == 0 ? 0 : fail(BAD_INPUT, "--init %s: no config.json beside it; give --model", init);
}

/* The option that helps where a file's weights were refused for their values. */
static inline const char *not_finite(het_result result, const char *text) {
    return result == HET_ERR_DATA && strstr(text, "not finite") != NULL ? " (--allow-nonfinite)" : "";
}

static inline int load_weights(het_ctx *ctx, const char *option_name, const char *path) {
    het_reader reader;
    het_folder folder;
    het_error error = { HET_OK, "" };
    het_result result = is_directory(path) ? weights_folder(path, &folder, &error) : het_reader_open(path, &reader, &error);
    if (result != HET_OK) return fail(BAD_INPUT, "%s %s: %s", option_name, path, behind_name(error.text, path));
    result = is_directory(path) ? het_load_folder(ctx, &folder) : het_load_weights(ctx, &reader);
    if (is_directory(path)) het_folder_close(&folder);
    else het_reader_close(&reader);
    return result == HET_OK ? 0 : fail(status_of(result), "%s: %s%s", option_name, het_last_error(ctx), /* names the file */
                                       not_finite(result, het_last_error(ctx)));
}

/* ---- the machine's product peak -------------------------------------------------------------------------------------
   Ops of the device table called directly need an allocator and a parallel-for of one's own: these are the simplest. */

static inline void *simple_alloc(void *user, size_t size, size_t align) {
    void *p = NULL;
    (void)user;
    return posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, size) == 0 ? p : NULL;
}
static inline void simple_free(void *user, void *pointer, size_t size) { (void)user; (void)size; free(pointer); }

typedef struct simple_tasks { pthread_mutex_t lock; int64_t next, count; het_task task; void *arg; } simple_tasks;
static inline void *simple_worker(void *user) {
    simple_tasks *t = (simple_tasks *)user;
    for (;;) {
        int64_t i;
        pthread_mutex_lock(&t->lock);
        i = t->next++;
        pthread_mutex_unlock(&t->lock);
        if (i >= t->count) return NULL;
        t->task(t->arg, i);
    }
}
/* user: int *, number of threads. Starts them anew for every call: fine for tasks of milliseconds. */
static inline void simple_run(void *user, int64_t count, het_task task, void *arg) {
    pthread_t thread[256];
    simple_tasks t;
    int i, started = 0, wanted = *(int *)user - 1;
    pthread_mutex_init(&t.lock, NULL);
    t.next = 0, t.count = count, t.task = task, t.arg = arg;
    for (i = 0; i < wanted && i + 1 < count && i < 256; i++, started++)
        if (pthread_create(&thread[i], NULL, simple_worker, &t) != 0) break;
    simple_worker(&t);
    for (i = 0; i < started; i++) pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&t.lock);
}

/* GFLOP/s of the CPU device's linear_forward at rows x in x out on `threads` threads, with the instruction set that it takes for `isa` and such
   sums: the best of up to 5 blocks of 5 ms with pauses of 10 ms between them, so that another program that runs for a moment does not lower it; two
   that agree are enough. 0: could not measure. */
static inline double product_gflops(int threads, het_isa isa, int fast, het_dtype compute, int64_t rows, int64_t in, int64_t out) {
    const het_device_iface *cpu = het_cpu_device();
    het_allocator allocator = { simple_alloc, simple_free, NULL };
    het_parallel parallel;
    het_device_config config;
    het_op op;
    het_linear_args *a = &op.u.linear;
    void *self = NULL;
    size_t workspace = 0, floats = (size_t)(rows * in + out * in + rows * out), i;
    float *memory;
    const struct timespec pause = { 0, 10 * 1000 * 1000 };
    const double operations = 2e-9 * (double)rows * (double)in * (double)out;
    double best = 0, before = 0;
    int block;
    parallel.run = simple_run, parallel.user = &threads;
    memset(&config, 0, sizeof config);
    config.allocator = &allocator, config.parallel = &parallel, config.threads = threads, config.isa = isa, config.fast = fast;
    if (cpu->create(&config, &self) != HET_OK) return 0;
    memset(&op, 0, sizeof op);
    op.kind = HET_OP_LINEAR_FORWARD;
    a->compute = compute, a->rows = rows, a->in = in, a->parts = 1, a->part[0].out = out;
    workspace = cpu->workspace(self, &op);
    memory = (float *)cpu->alloc(self, floats * sizeof(float));
    a->workspace = workspace > 0 ? cpu->alloc(self, workspace) : NULL;
    if (memory != NULL && (workspace == 0 || a->workspace != NULL)) {
        for (i = 0; i < floats; i++) memory[i] = (float)(i % 17) * 0.0625f - 0.5f;
        a->x = memory, a->part[0].w = memory + rows * in, a->part[0].y = memory + rows * in + out * in;
        for (block = 0; block < 5 && (block < 2 || best > 1.02 * before); block++) {
            double begin = seconds_now(), start = begin, end = begin;
            before = best;
            for (; end - begin < 0.005; start = end) {
                if (cpu->run(self, NULL, &op) != HET_OK) break;
                end = seconds_now();
                if (operations > best * (end - start)) best = operations / (end - start);
            }
            nanosleep(&pause, NULL);
        }
    }
    if (a->workspace != NULL) cpu->free(self, a->workspace, workspace);
    if (memory != NULL) cpu->free(self, memory, floats * sizeof(float));
    cpu->destroy(self);
    return best;
}

#endif
