/* The file work of checkpoints (het_disk of hetrain_files.h) on a POSIX system. Needs _POSIX_C_SOURCE 200809L and
   _DEFAULT_SOURCE before the first include. */
#ifndef PROGRAMS_DISK_H
#define PROGRAMS_DISK_H

#include "hetrain_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

/* An open file is its descriptor: that takes no memory, which a save may not find. */
static inline int disk_handle(const void *file) { return (int)(intptr_t)file; }
static inline int disk_open(void *user, const char *path, int writing, void **file) {
    const int how = writing ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY | O_NONBLOCK; /* no pipe is waited for */
    const int handle = open(path, how | O_CLOEXEC, 0666);
    (void)user;
    *file = (void *)(intptr_t)handle;
    return handle >= 0 ? 0 : errno;
}

static inline int disk_size(void *user, void *file, uint64_t *size) {
    struct stat s;
    (void)user;
    if (fstat(disk_handle(file), &s) != 0) return errno;
    if (!S_ISREG(s.st_mode)) return S_ISDIR(s.st_mode) ? EISDIR : ESPIPE;
    *size = (uint64_t)s.st_size;
    return 0;
}

static inline int disk_read(void *user, void *file, uint64_t offset, void *to, size_t size, size_t *done) {
    const ssize_t got = pread(disk_handle(file), to, size < (size_t)1 << 30 ? size : (size_t)1 << 30, (off_t)offset);
    (void)user;
    if (got < 0) return errno;
    *done = (size_t)got;
    return 0;
}

static inline int disk_write(void *user, void *file, const void *from, size_t size, size_t *done) {
    const ssize_t put = write(disk_handle(file), from, size < (size_t)1 << 30 ? size : (size_t)1 << 30);
    (void)user;
    if (put < 0) return errno;
    *done = (size_t)put;
    return 0;
}

static inline int disk_sync(void *user, void *file) {
    (void)user;
    return fsync(disk_handle(file)) == 0 ? 0 : errno;
}

static inline int disk_close(void *user, void *file) {
    const int bad = close(disk_handle(file));
    (void)user;
    return bad == 0 || errno == EINTR ? 0 : errno; /* after EINTR the descriptor is gone all the same */
}

/* Some file systems cannot sync a directory and say EINVAL: there is nothing to be done then. */
static inline int disk_sync_directory(void *user, const char *path) {
    const int handle = open(path, O_RDONLY | O_CLOEXEC);
    int number = 0;
    (void)user;
    if (handle < 0) return errno;
    if (fsync(handle) != 0 && errno != EINVAL) number = errno;
    close(handle);
    return number;
}

static inline int disk_rename(void *user, const char *from, const char *to) {
    (void)user;
    if (rename(from, to) == 0) return 0;
    return errno == ENOTEMPTY || errno == ENOTDIR ? EEXIST : errno; /* of a directory to a link or a file */
}

static inline int disk_remove(void *user, const char *path) {
    (void)user;
    return remove(path) == 0 ? 0 : errno;
}

static inline int disk_make_directory(void *user, const char *path) {
    (void)user;
    return mkdir(path, 0777) == 0 ? 0 : errno;
}

/* opendir() takes memory from the heap, which a save may not find: on Linux the kernel is asked itself, in records of inode (8 bytes), offset (8),
   length (2), type (1) and name. */
static inline int disk_list(void *user, const char *path, int (*each)(void *list, const char *name), void *list) {
    int number = 0;
#ifdef __linux__
    union { char byte[4096]; uint64_t aligned; } records;
    const int handle = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long got = 0, at;
    if (handle < 0) return errno;
    while (number == 0 && (got = syscall(SYS_getdents64, handle, &records, sizeof records)) > 0) {
        uint16_t length;
        for (at = 0; at < got && number == 0; at += length) {
            memcpy(&length, records.byte + at + 16, sizeof length);
            number = each(list, records.byte + at + 19);
        }
    }
    if (number == 0 && got < 0) number = errno;
    close(handle);
#else
    struct dirent *entry;
    DIR *directory = opendir(path);
    if (directory == NULL) return errno;
    errno = 0;
    while (number == 0 && (entry = readdir(directory)) != NULL) number = each(list, entry->d_name);
    if (number == 0) number = errno;
    closedir(directory);
#endif
    (void)user;
    return number;
}

/* The path that a row of links ends at, there or not. 0, or errno. */
static inline int follow_links(const char *path, char *to, size_t capacity) {
    char link[1024];
    int turn;
    if ((size_t)snprintf(to, capacity, "%s", path) >= capacity) return ENAMETOOLONG;
    for (turn = 0; turn < 40; turn++) {
        const ssize_t length = readlink(to, link, sizeof link);
        const char *slash = strrchr(to, '/');
        const size_t before = slash != NULL ? (size_t)(slash + 1 - to) : 0, at = length > 0 && link[0] == '/' ? 0 : before;
        if (length < 0) return 0;
        if (at + (size_t)length >= capacity || (size_t)length == sizeof link) return ENAMETOOLONG;
        memcpy(to + at, link, (size_t)length);
        to[at + (size_t)length] = 0;
    }
    return ELOOP;
}

/* To a regular file, or to none yet: nothing else is renamed over. */
static inline int disk_follow(void *user, const char *path, char *to, size_t capacity) {
    struct stat s;
    int number = follow_links(path, to, capacity);
    (void)user;
    if (number == 0 && stat(to, &s) == 0 && !S_ISREG(s.st_mode)) number = S_ISDIR(s.st_mode) ? EISDIR : EINVAL;
    return number;
}

static inline const char *disk_text(void *user, int number) {
    (void)user;
    return number == ESPIPE ? "a pipe or device, not a file" : strerror(number);
}

static inline het_disk disk_posix(void) {
    het_disk d;
    memset(&d, 0, sizeof d);
    d.open = disk_open, d.size = disk_size, d.read = disk_read, d.write = disk_write, d.sync = disk_sync, d.close = disk_close;
    d.sync_directory = disk_sync_directory, d.rename = disk_rename, d.remove = disk_remove, d.make_directory = disk_make_directory;
    d.list = disk_list, d.text = disk_text, d.follow = disk_follow;
    d.again = EINTR, d.absent = ENOENT, d.exists = EEXIST;
    return d;
}

#endif
