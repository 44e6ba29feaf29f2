/* mix.h: several files of tokens or text as one, each as often as its weight says. A file FILE.mix has a line a file, "WEIGHT PATH", the path
   from where FILE.mix lies: of one pass through the mix the file is WEIGHT passes, with 0.5 its first half. Nothing is copied: what is read of the
   mix is read from its files, so that the order of samples stays a function of seed and step (het_data_batch). Empty lines and lines that begin
   with # say nothing. */
#ifndef PROGRAMS_MIX_H
#define PROGRAMS_MIX_H

#include "loader.h"
#include "text.h"

enum { MIX_HEADER = 1024 /* bytes of llm.c's, which the mix has, too, where tokens have 32 bits */ };

typedef struct mix_file {
    char path[1024];
    het_reader opened, reader; /* reader: by `map`, where it can be mapped */
    mapped_file map;
    double weight;
    uint64_t first, bytes; /* its tokens: where they begin in it, how many bytes they take */
    uint64_t start, end;   /* where they are in the mix, WEIGHT times */
} mix_file;

typedef struct file_mix {
    mix_file *file;
    int64_t files;
    int text, mapped;      /* text: of all, or of none. mapped: all are memory, which many threads may read at once */
    uint64_t unit, size;   /* bytes of a token and of the mix */
    unsigned char header[MIX_HEADER];
} file_mix;

static inline int mix_is(const char *path) { return ends_with(path, ".mix"); }

static inline void mix_close(file_mix *m) {
    for (int64_t i = 0; i < m->files; i++) {
        mapped_close(&m->file[i].map);
        het_reader_close(&m->file[i].opened);
    }
    free(m->file);
    memset(m, 0, sizeof *m);
}

static inline int64_t mix_read(void *user, uint64_t offset, void *to, size_t size) {
    const file_mix *m = (const file_mix *)user;
    unsigned char *out = (unsigned char *)to;
    size_t done = 0;
    while (done < size && offset + done < m->size) {
        const uint64_t at = offset + done;
        const mix_file *f = m->file;
        const uint64_t begin = f->start;
        uint64_t inside, part = size - done;
        if (at < begin) { /* the header */
            if (part > begin - at) part = begin - at;
            memcpy(out + done, m->header + at, (size_t)part);
            done += (size_t)part;
            continue;
        }
        while (at >= f->end) f++;
        inside = (at - f->start) % f->bytes;
        if (part > f->bytes - inside) part = f->bytes - inside;
        if (part > f->end - at) part = f->end - at;
        if (f->reader.read(f->reader.user, f->first + inside, out + done, (size_t)part) != (int64_t)part) return -1;
        done += (size_t)part;
    }
    return (int64_t)done;
}

/* The first file that has lost its end since it was looked through; "": none, or there is no mix. */
static inline const char *mix_cut(const file_mix *m) {
    for (int64_t i = 0; i < m->files; i++) {
        const mix_file *f = &m->file[i];
        char last;
        if (f->reader.read(f->reader.user, f->first + f->bytes - 1, &last, 1) != 1) return f->path;
    }
    return "";
}

/* One line; 1 where it names a file. */
static inline int mix_line(const char *option_name, const char *path, int64_t number, char *line, mix_file *f, int *status) {
    const char *slash = strrchr(path, '/');
    char *behind, *end = line + strlen(line);
    int used;
    while (end > line && (end[-1] == '\r' || end[-1] == ' ' || end[-1] == '\t')) *--end = 0;
    while (*line == ' ' || *line == '\t') line++;
    if (*line == 0 || *line == '#') return 0;
    f->weight = strtod(line, &behind);
    if (behind == line || (*behind != ' ' && *behind != '\t') || !(f->weight > 0 && f->weight <= 1e6))
        *status = fail(BAD_INPUT, "%s %s: line %lld: expected WEIGHT PATH, a weight above 0 and at most 1000000: %s", option_name, path,
                       (long long)number, line);
    while (*behind == ' ' || *behind == '\t') behind++;
    used = *behind == '/' || slash == NULL ? 0 : (int)(slash + 1 - path);
    if (*status == 0 && snprintf(f->path, sizeof f->path, "%.*s%s", used, path, behind) >= (int)sizeof f->path)
        *status = fail(BAD_INPUT, "%s %s: line %lld: path too long", option_name, path, (long long)number);
    if (*status == 0 && mix_is(f->path))
        *status = fail(BAD_INPUT, "%s %s: line %lld: a mix has no mixes: %s", option_name, path, (long long)number, behind);
    return *status == 0;
}

/* The file is looked through: its format, and that every token is below `vocab`. It lies behind byte m->size of the mix. `where` begins errors. */
static inline int mix_open_file(file_mix *m, mix_file *f, const char *where, int64_t vocab, int encoded) {
    het_data_desc desc;
    het_data_info info;
    het_data *data;
    het_error error = { HET_OK, "" };
    het_result result;
    uint64_t unit;
    int status = read_from(where, f->path, &f->opened), text;
    if (status != 0) return status;
    f->reader = f->opened;
    m->files++;
    memset(&desc, 0, sizeof desc);
    text = text_is(f->path, &f->reader, &desc.format);
    m->mapped &= mapped_open(&f->map, f->path, &f->reader);
    desc.reader = f->reader, desc.vocab = text && encoded ? 256 : vocab, desc.length = desc.sequences = desc.slots = 1;
    result = het_data_open(&desc, &data, &error);
    if (result != HET_OK)
        return fail(status_of(result), "%s %s%s", where, error.text, strstr(error.text, "vocabulary") != NULL ? " (--model)" : "");
    het_data_get_info(data, &info);
    het_data_close(data);
    f->first = info.format == HET_DATA_LLMC ? MIX_HEADER : 0;
    f->bytes = f->reader.size - f->first;
    unit = f->bytes / (uint64_t)info.tokens;
    if (f == m->file) m->text = text, m->unit = unit, m->size = unit == 4 ? MIX_HEADER : 0;
    if (text != m->text || unit != m->unit)
        return fail(BAD_INPUT, "%s %s: %s of %d bytes, in %s %s of %d; a mix has one kind", where, f->path, text ? "text" : "tokens", (int)unit,
                    m->file->path, m->text ? "text" : "tokens", (int)m->unit);
    f->start = m->size;
    f->end = m->size += (uint64_t)(f->weight * (double)info.tokens) * unit;
    return f->end > f->start ? 0 : fail(BAD_INPUT, "%s %s: a weight of %g leaves none of its %lld tokens", where, f->path, f->weight,
                                        (long long)info.tokens);
}

/* The header of 32-bit tokens, which says how many. */
static inline int mix_header(file_mix *m, const char *option_name, const char *path) {
    const uint64_t tokens = m->unit == 4 ? (m->size - MIX_HEADER) / 4 : 0, word[3] = { 20240801, 7, tokens };
    for (int i = 0; i < 12; i++) m->header[i] = (unsigned char)(word[i / 4] >> (8 * (i % 4)) & 255u);
    if (tokens <= INT32_MAX) return 0;
    return fail(BAD_INPUT, "%s %s: %llu tokens of 32 bits; at most 2147483647", option_name, path, (unsigned long long)tokens);
}

/* encoded: text will be, so that its bytes are no tokens. Close it in any case. *reader reads the mix, which must stay where it is; *format is that
   of its bytes. */
static inline int mix_open(file_mix *m, const char *option_name, const char *path, int64_t vocab, int encoded, het_reader *reader,
                           het_data_format *format) {
    size_t length = 0;
    char *text = read_small_file(path, &length), *line, *next;
    char where[4200]; /* a path of PATH_MAX and the words around it */
    int64_t lines = 1, number = 0, i;
    int status = 0;
    memset(m, 0, sizeof *m);
    if (text == NULL) return fail(BAD_INPUT, "%s %s: %s", option_name, path, small_file_error());
    for (line = text; *line != 0; line++) lines += *line == '\n';
    m->file = (mix_file *)calloc((size_t)lines, sizeof *m->file);
    if (m->file == NULL) status = fail(FAILED, "out of memory");
    m->mapped = 1;
    for (line = text, i = 0; status == 0 && line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) *next++ = 0;
        if (!mix_line(option_name, path, ++number, line, &m->file[i], &status)) continue;
        snprintf(where, sizeof where, "%s %s: line %lld:", option_name, path, (long long)number);
        status = mix_open_file(m, &m->file[i++], where, vocab, encoded);
    }
    free(text);
    if (status == 0 && m->files == 0) status = fail(BAD_INPUT, "%s %s: names no file", option_name, path);
    if (status == 0) status = mix_header(m, option_name, path);
    reader->read = mix_read, reader->user = m, reader->size = m->size, reader->name = path;
    *format = m->unit == 1 ? HET_DATA_BYTES : m->unit == 2 ? HET_DATA_UINT16 : HET_DATA_LLMC;
    return status;
}

/* All of a mix of text; freed by the caller. */
static inline int mix_text(file_mix *m, const char *option_name, const char *path, char **text, size_t *size) {
    *size = (size_t)m->size;
    *text = (char *)malloc(*size);
    if (*text == NULL) return fail(FAILED, "out of memory");
    return mix_read(m, 0, *text, *size) == (int64_t)m->size ? 0 : fail(BAD_INPUT, "%s %s: a file cannot be read", option_name, path);
}

#endif
