/* Whole files in and out of memory, for the example programs. Include it after common.h. */
#ifndef EXAMPLES_FILES_H
#define EXAMPLES_FILES_H

/* The whole of a file in memory, with a byte of room behind it, so that an empty one is no special case. */
static inline int read_file(const char *name, const char *path, char **data, size_t *size) {
    FILE *file = fopen(path, "rb");
    struct stat about;
    int status = 0;
    size_t got;
    if (file == NULL || fstat(fileno(file), &about) != 0 || !S_ISREG(about.st_mode)) {
        status = fail(BAD_INPUT, "%s %s: %s", name, path, file != NULL ? "not a file" : strerror(errno));
        if (file != NULL) fclose(file);
        return status;
    }
    *size = (size_t)about.st_size;
    *data = (char *)malloc(*size + 1);
    got = *data != NULL ? fread(*data, 1, *size, file) : 0;
    fclose(file);
    if (*data == NULL) return fail(FAILED, "%s %s: no memory for %zu bytes", name, path, *size);
    if (got != *size) return fail(BAD_INPUT, "%s %s: %zu bytes could be read of %zu", name, path, got, *size);
    return 0;
}

/* Opens FILE.tmp; close_file makes it FILE, so that a file is there whole or not at all. */
static inline FILE *open_file(const char *path, char *temporary, size_t capacity) {
    int n = snprintf(temporary, capacity, "%s.tmp", path);
    if (n >= 0 && (size_t)n < capacity) return fopen(temporary, "wb");
    errno = ENAMETOOLONG;
    return NULL;
}

static inline int close_file(FILE *file, const char *temporary, const char *path) {
    int bad = (ferror(file) | fflush(file) | fsync(fileno(file))) != 0;
    bad |= fclose(file) != 0;
    if (!bad && rename(temporary, path) == 0) return 0;
    fail(BAD_INPUT, "%s: %s", path, strerror(errno));
    (void)remove(temporary);
    return BAD_INPUT;
}

#endif
