/* Files of many GiB that take next to no disk: what was not written is a hole, which reads as zeros. Needs _POSIX_C_SOURCE 200809L. */
#ifndef HETRAIN_TEST_SPARSE_H
#define HETRAIN_TEST_SPARSE_H

#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#define SPARSE_4_GIB (UINT64_C(1) << 32)

/* A new file of this size: its descriptor, or -1 where there can be none, and the reason is told. */
static inline int sparse_open(const char *path, uint64_t size)
{
    struct stat now;
    int file;
    if (sizeof(off_t) < 8 || LONG_MAX == INT32_MAX || SIZE_MAX == UINT32_MAX) {
        print_message("skipped: files, addresses or long end at 4 GiB here\n");
        return -1;
    }
    file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0) fail_msg("%s cannot be made: %s", path, strerror(errno));
    errno = 0;
    if (ftruncate(file, (off_t)size) == 0 && pwrite(file, "", 1, (off_t)size - 1) == 1 && fstat(file, &now) == 0 && now.st_blocks < 1 << 16)
        return file;
    print_message("skipped: the file system of %s holds no sparse file of %.1f GiB (%s)\n", path, (double)size / 1073741824.0,
                  errno != 0 ? strerror(errno) : "it has no holes");
    close(file);
    unlink(path);
    return -1;
}

static inline void sparse_put(int file, uint64_t at, const void *from, size_t size)
{
    if (pwrite(file, from, size, (off_t)at) != (ssize_t)size) fail_msg("writing %d bytes at byte %.0f: %s", (int)size, (double)at, strerror(errno));
}

#endif
