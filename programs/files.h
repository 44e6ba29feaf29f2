/* Files of the programs: whole ones into memory, and how every file is written. Include it after common.h. */
#ifndef PROGRAMS_FILES_H
#define PROGRAMS_FILES_H

#include "common.h"
#include "disk.h"

#include <fcntl.h>

/* The whole of a file in memory, with a byte of room behind it, so that an empty one is no special case. */
static inline int read_file(const char *name, const char *path, char **data, size_t *size) {
    const char *bad = not_a_file(path);
    FILE *file = bad == NULL ? fopen(path, "rb") : NULL;
    struct stat about;
    size_t got;
    if (file == NULL || fstat(fileno(file), &about) != 0) {
        if (file != NULL) fclose(file);
        return fail(BAD_INPUT, "%s %s: %s", name, path, bad != NULL ? bad : strerror(errno));
    }
    *size = (size_t)about.st_size;
    *data = (char *)malloc(*size + 1);
    got = *data != NULL ? fread(*data, 1, *size, file) : 0;
    fclose(file);
    if (*data == NULL) return fail(FAILED, "%s %s: no memory for %zu bytes", name, path, *size);
    if (got != *size) return fail(BAD_INPUT, "%s %s: %zu bytes could be read of %zu", name, path, got, *size);
    return 0;
}

/* ---- files to be written ----------------------------------------------------------------------------------------------------
   A regular file, or one that is not there, is written beside and renamed: it is there whole or not at all. Links are followed to what they name.
   Devices, pipes and fifos are written in place, and so is what standard output goes to, behind what is printed. */

typedef struct write_target {
    FILE *file;
    const char *option, *name; /* of messages: both as the user gave them */
    char path[1024];           /* behind all links */
    char temporary[1060];      /* beside it; "": written in place */
    int there;                 /* the file that is replaced gives mode and owner */
    struct stat about;
} write_target;

/* 1: both are there and are one file or directory, whatever leads to them. */
static inline int same_file(const char *a, const char *b) {
    struct stat x, y;
    return a != NULL && b != NULL && stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* 1: a device that gives bytes for ever, as /dev/zero does. */
static inline int never_ends(const char *path) {
    struct stat about;
    char byte;
    int handle, endless;
    if (stat(path, &about) != 0 || !S_ISCHR(about.st_mode)) return 0;
    handle = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    endless = handle >= 0 && !isatty(handle) && read(handle, &byte, 1) > 0;
    if (handle >= 0) close(handle);
    return endless;
}

/* What standard output goes to has one position for all who write to it. */
static inline int is_standard_output(const struct stat *about) {
    struct stat out;
    return fstat(STDOUT_FILENO, &out) == 0 && out.st_dev == about->st_dev && out.st_ino == about->st_ino;
}

static inline int is_in_place(const struct stat *about) { return !S_ISREG(about->st_mode) || is_standard_output(about); }

/* Finds out where and how to write, and makes nothing yet. 0, or errno. */
static inline int target_find(write_target *t, const char *option_name, const char *path) {
    char directory[1024], *slash;
    int bad;
    memset(t, 0, sizeof *t);
    t->option = option_name, t->name = path;
    t->there = stat(path, &t->about) == 0;
    if (t->there && S_ISDIR(t->about.st_mode)) return EISDIR;
    if (t->there && is_in_place(&t->about)) {
        if ((size_t)snprintf(t->path, sizeof t->path, "%s", path) >= sizeof t->path) return ENAMETOOLONG;
        return access(path, W_OK) == 0 ? 0 : errno;
    }
    if ((bad = follow_links(path, t->path, sizeof t->path)) != 0) return bad;
    if (t->there && access(t->path, W_OK) != 0) return errno; /* a rename would not ask */
    memcpy(directory, t->path, sizeof directory);
    slash = strrchr(directory, '/');
    strcpy(slash == NULL ? directory : slash == directory ? slash + 1 : slash, slash == NULL ? "." : "");
    if (!t->there && (t->path[0] == 0 || t->path[strlen(t->path) - 1] == '/')) return EISDIR;
    snprintf(t->temporary, sizeof t->temporary, "%s.%ld.tmp", t->path, (long)getpid());
    if (access(directory, F_OK) == 0 && !is_directory(directory)) return ENOTDIR;
    return access(directory, W_OK | X_OK) == 0 ? 0 : errno;
}

/* Whether it could be written as things are; path NULL: nothing is asked for. */
static inline int target_check(const char *option_name, const char *path) {
    write_target t;
    const int bad = path != NULL ? target_find(&t, option_name, path) : 0;
    return bad == 0 ? 0 : fail(BAD_INPUT, "%s %s: %s", option_name, path, strerror(bad));
}

/* One file for two: the second would replace what the first has written there. What is written in place takes both. */
static inline int one_target(const char *a, const char *b) {
    struct stat about;
    if (a == NULL || b == NULL || (stat(a, &about) == 0 && is_in_place(&about))) return 0;
    return strcmp(a, b) == 0 || same_file(a, b);
}

/* Nothing that is written is a file that is read, or that an option before it writes. Paths may be NULL. */
typedef struct named_path { const char *option, *path; } named_path;
static inline int targets_differ(const named_path *writes, int count, const named_path *reads, int sources) {
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < sources; k++)
            if (same_file(writes[i].path, reads[k].path))
                return fail(BAD_INPUT, "%s %s: is the file of %s", writes[i].option, writes[i].path, reads[k].option);
        for (int k = 0; k < i; k++)
            if (one_target(writes[i].path, writes[k].path))
                return fail(BAD_INPUT, "%s %s: is the file of %s", writes[i].option, writes[i].path, writes[k].option);
    }
    return 0;
}

/* The same of the files of a list FILE,...; NULL: there is none. */
static inline int targets_spare_list(const named_path *writes, int count, const char *option_name, const char *list) {
    char file[1024];
    size_t length;
    int status = 0;
    for (; list != NULL && status == 0; list = list[length] != 0 ? list + length + 1 : NULL) {
        const named_path read = { option_name, file };
        length = strcspn(list, ",");
        snprintf(file, sizeof file, "%.*s", (int)length, list);
        status = targets_differ(writes, count, &read, 1);
    }
    return status;
}

static inline int target_in_place(const write_target *t) {
    if (!is_standard_output(&t->about)) return open(t->path, O_WRONLY | O_CLOEXEC);
    fflush(stdout);
    return dup(STDOUT_FILENO);
}

/* 0, or errno. */
static inline int target_begin(write_target *t, const char *option_name, const char *path) {
    int handle = -1, bad = target_find(t, option_name, path);
    if (bad != 0) return bad;
    if (t->temporary[0] == 0) handle = target_in_place(t);
    else {
        (void)unlink(t->temporary); /* of a process of this number that was killed */
        handle = open(t->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (handle >= 0 && t->there && (fchown(handle, t->about.st_uid, t->about.st_gid) != 0 || fchmod(handle, t->about.st_mode & 0777) != 0))
            bad = 0; /* it is readable all the same */
    }
    t->file = handle >= 0 ? fdopen(handle, "wb") : NULL;
    return t->file != NULL ? 0 : errno;
}

static inline int target_open(write_target *t, const char *option_name, const char *path) {
    const int bad = target_begin(t, option_name, path);
    return bad == 0 ? 0 : fail(BAD_INPUT, "%s %s: %s", option_name, path, strerror(bad));
}

static inline het_writer target_writer(const write_target *t) {
    het_writer writer = { file_write, NULL, NULL };
    writer.user = t->file, writer.name = t->name;
    return writer;
}

/* Why a file took no more, asked with one byte more: errno, or -1. */
static inline int file_refusal(FILE *file) {
    clearerr(file);
    return fputc('\n', file) == EOF || fflush(file) != 0 ? errno : -1;
}

/* keep 0 drops what was written. 0, errno, or -1: it cannot be written, and why is known no more. */
static inline int target_finish(write_target *t, int keep) {
    const int beside = t->temporary[0] != 0;
    int bad = ferror(t->file) ? file_refusal(t->file) : 0;
    if (fflush(t->file) != 0 || (bad == 0 && beside && fsync(fileno(t->file)) != 0)) bad = errno;
    if (fclose(t->file) != 0 && bad == 0) bad = errno;
    t->file = NULL;
    if (keep && bad == 0 && beside && rename(t->temporary, t->path) != 0) bad = errno;
    if (beside && (!keep || bad != 0)) (void)unlink(t->temporary);
    return keep ? bad : 0;
}

/* Ends it; a status that is not 0, which is returned, drops what was written. A device that takes nothing was a wrong argument; a full disk was
   not. */
static inline int target_close(write_target *t, int status) {
    const int bad = target_finish(t, status == 0), of_disk = t->temporary[0] != 0 || is_standard_output(&t->about);
    return bad == 0 ? status : fail(of_disk ? FAILED : BAD_INPUT, "%s %s: cannot be written%s%s", t->option, t->name, bad > 0 ? ": " : "",
                                    bad > 0 ? strerror(bad) : "");
}

/* The same behind a function of the library that wrote to it; why: its words, or NULL. */
static inline int target_end(write_target *t, het_result result, const char *why) {
    const int of_file = ferror(t->file) || result == HET_ERR_IO; /* then the file says why */
    const int status = result == HET_OK || of_file ? 0 : fail(status_of(result), "%s %s: %s", t->option, t->name,
                                                              why != NULL ? why : het_result_text(result));
    return target_close(t, status);
}

/* A directory to be filled by the library, one file after the other: a het_folder's create and finish. */
typedef struct filled_folder { const char *path; char file[1024]; int bad; write_target target; } filled_folder; /* bad: as of target_finish */

static inline het_result filled_fail(const filled_folder *f, int bad, het_error *error) {
    char text[1200];
    snprintf(text, sizeof text, "%s: cannot be written%s%s", f->file, bad > 0 ? ": " : "", bad > 0 ? strerror(bad) : "");
    return het_error_put(error, HET_ERR_IO, text);
}

static inline het_result filled_create(void *user, const char *name, het_writer *writer, het_error *error) {
    filled_folder *f = (filled_folder *)user;
    const int bad = path_join(f->file, sizeof f->file, f->path, name) ? target_begin(&f->target, "", f->file) : ENAMETOOLONG;
    if (bad != 0) return filled_fail(f, bad, error);
    *writer = target_writer(&f->target);
    return HET_OK;
}

static inline het_result filled_finish(void *user, het_writer *writer, int keep, het_error *error) {
    filled_folder *f = (filled_folder *)user;
    int bad;
    if (ferror(f->target.file)) f->bad = file_refusal(f->target.file);
    bad = target_finish(&f->target, keep);
    (void)writer;
    return bad == 0 ? HET_OK : filled_fail(f, bad, error);
}

/* Why writing failed, to stand behind the library's words. */
static inline const char *filled_why(const filled_folder *f, char *to, size_t capacity) {
    snprintf(to, capacity, f->bad > 0 ? ": %s" : "%s", f->bad > 0 ? strerror(f->bad) : "");
    return to;
}

/* Nothing is read there. */
static inline het_result filled_read(void *user, const char *name, het_reader *reader, het_error *error) {
    (void)user, (void)reader;
    return het_error_put(error, HET_ERR_STATE, name);
}
static inline void filled_unread(void *user, het_reader *reader) { (void)user, (void)reader; }

static inline het_folder filled_open(filled_folder *f, const char *path) {
    het_folder folder;
    memset(&folder, 0, sizeof folder);
    memset(f, 0, sizeof *f);
    f->path = path;
    folder.open = filled_read, folder.close = filled_unread, folder.create = filled_create, folder.finish = filled_finish, folder.user = f;
    return folder;
}

/* A whole file out of memory. */
static inline int write_file(const char *option_name, const char *path, const void *data, size_t size) {
    write_target t;
    const int status = target_open(&t, option_name, path);
    if (status != 0) return status;
    fwrite(data, 1, size, t.file);
    return target_close(&t, 0);
}

#endif
