/* The directory that a program fills: what may lie there already, and a lock, so that only one program writes into it. Include it after common.h. */
#ifndef PROGRAMS_FOLDER_H
#define PROGRAMS_FOLDER_H

#include "common.h"
#include "files.h"

/* A file or directory that the program reads; path NULL, or no path at all (gpt2:124m): there is none. whole: nothing may be written into its
   directory; otherwise it only must not be overwritten itself. */
typedef struct folder_input { const char *option, *path; int whole; } folder_input;

/* overwrite: what an earlier run left may be replaced. goes_on: it is the very run that goes on. runs: of train, which can go on with one, and in
   whose place a new one takes the checkpoints away, too. */
typedef struct folder_wish { const char *option, *path; const folder_input *input; int inputs, overwrite, goes_on, runs; } folder_wish;

typedef struct out_folder {
    char path[1000], lock[1016]; /* the second "": not locked */
    int handle;                  /* of the lock */
    size_t made;                 /* bytes of the path to the first directory that was not there; 0: all were */
} out_folder;

/* ---- what lies there ---- */

/* 1: step-N or step-N.old, N digits. */
static inline int is_step_name(const char *name) {
    const size_t digits = strncmp(name, "step-", 5) == 0 ? strspn(name + 5, "0123456789") : 0;
    return digits > 0 && (name[5 + digits] == 0 || strcmp(name + 5 + digits, ".old") == 0);
}

static inline int is_in_list(const char *name, const char *const *list) {
    for (; *list != NULL; list++)
        if (strcmp(name, *list) == 0) return 1;
    return 0;
}

/* Safetensors whose metadata say that hetrain made them. */
static inline int is_own_table(const char *path) {
    het_reader reader;
    het_safetensors *file = NULL;
    het_error error = { HET_OK, "" };
    int own = 0;
    if (het_reader_open(path, &reader, &error) != HET_OK) return 0;
    if (het_safetensors_read(&reader, 1000000, NULL, &file, &error) == HET_OK) own = het_safetensors_value(file, "hetrain_version", NULL) != NULL;
    het_safetensors_free(file);
    het_reader_close(&reader);
    return own;
}

/* 1: weights that hetrain did not make, told by the file's name and its first bytes. */
static inline int is_foreign(const char *name, const char *path) {
    static const char *const foreign[] = { ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx" };
    static const char mark[] = "hetrain.version";
    char head[256];
    size_t got, i;
    FILE *file;
    for (i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        if (ends_with(name, foreign[i])) return 1;
    if (ends_with(name, ".safetensors")) return !is_own_table(path);
    if ((!ends_with(name, ".bin") && !ends_with(name, ".gguf")) || (file = fopen(path, "rb")) == NULL) return 0;
    got = fread(head, 1, sizeof head, file);
    fclose(file);
    if (got < 4) return 0;
    if (memcmp(head, "GGUF", 4) == 0) {
        for (i = 0; i + sizeof mark - 1 <= got; i++)
            if (memcmp(head + i, mark, sizeof mark - 1) == 0) return 0;
        return 1;
    }
    /* torch, torch before, llm.c */
    return memcmp(head, "PK\003\004", 4) == 0 || memcmp(head, "\200\002", 2) == 0 || memcmp(head, "\206\333\064\001", 4) == 0;
}

/* What is written through a link, which stays. */
static const char *const behind_links[] = { "config.json", "model.safetensors", "adapter_config.json", "adapter_model.safetensors",
                                       "log.jsonl", "loss.svg", NULL };

/* 1: of an earlier run or a model, which a new one would write over or be taken for. */
static inline int is_left_over(const char *name) {
    static const char *const names[] = { "latest", "saving.tmp", "removing.tmp", "log.jsonl", "loss.svg", "config.json", "adapter_config.json",
                                         "model.safetensors.index.json", NULL };
    return is_step_name(name) || is_in_list(name, names) || ends_with(name, ".safetensors");
}

/* 1: it lies in the directory under a name that is written there, or read as a part of what is, or in a checkpoint there. directory NULL or "": there
   is none. */
static inline int is_own_file(const char *directory, const char *path) {
    static const char *const also[] = { "tokenizer.json", "generation_config.json", "hetrain.lock", NULL };
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    char folder[1024], *last;
    if (directory == NULL || directory[0] == 0) return 0;
    snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - path) + (slash == path) : 1, slash != NULL ? path : ".");
    last = strrchr(folder, '/');
    if (is_step_name(last != NULL ? last + 1 : folder)) strcpy(last != NULL ? last : folder, last == NULL ? "." : last == folder ? "/" : "");
    else if (!is_left_over(name) && !is_in_list(name, also)) return 0;
    return strcmp(folder, directory) == 0 || same_file(folder, directory);
}

/* 1: the file is this input, or one in its directory. */
static inline int is_input(const folder_input *in, const struct stat *about) {
    char path[1300];
    struct stat s;
    struct dirent *entry;
    DIR *directory;
    int is;
    if (in->path == NULL || stat(in->path, &s) != 0) return 0;
    is = s.st_dev == about->st_dev && s.st_ino == about->st_ino;
    directory = !is && S_ISDIR(s.st_mode) ? opendir(in->path) : NULL;
    while (!is && directory != NULL && (entry = readdir(directory)) != NULL)
        is = entry->d_name[0] != '.' && path_join(path, sizeof path, in->path, entry->d_name) && stat(path, &s) == 0 && s.st_dev == about->st_dev &&
             s.st_ino == about->st_ino;
    if (directory != NULL) closedir(directory);
    return is;
}

/* 1: the directory is this input, or the file lies in it, by its own name or by that which its links lead to. */
static inline int is_input_directory(const folder_input *in, const char *path) {
    char places[2][1024];
    int i;
    if (in->path == NULL) return 0;
    if (is_directory(in->path)) return same_file(in->path, path);
    if (access(in->path, F_OK) != 0 || (size_t)snprintf(places[0], sizeof places[0], "%s", in->path) >= sizeof places[0] ||
        follow_links(in->path, places[1], sizeof places[1]) != 0) return 0;
    for (i = 0; i < 2; i++) {
        char *slash = strrchr(places[i], '/');
        if (slash != NULL) slash[slash == places[i]] = 0;
        if (same_file(slash != NULL ? places[i] : ".", path)) return 1;
    }
    return 0;
}

/* What is said of a file of an earlier run. */
static inline int refuse_left_over(const folder_wish *w, const char *name, int checkpoint) {
    if (!w->runs) return fail(BAD_INPUT, "%s %s: holds %s already: --overwrite puts what is written in its place", w->option, w->path, name);
    if (!checkpoint)
        return fail(BAD_INPUT, "%s %s: holds %s of an earlier run: --overwrite puts a new one in its place; --resume needs a "
                               "checkpoint, there is none", w->option, w->path, name);
    return fail(BAD_INPUT, "%s %s: holds a run (%s): --resume %s goes on with it, --overwrite puts a new one in its place", w->option, w->path, name,
                w->path);
}

/* Of a link: 0, errno, or -1 where it leads to what no file is renamed over. Log and picture are written in place, too. */
static inline int link_fails(const char *path) {
    write_target t;
    struct stat about;
    int bad;
    if (lstat(path, &about) != 0 || !S_ISLNK(about.st_mode)) return 0;
    bad = target_find(&t, "", path);
    return bad == 0 && t.temporary[0] == 0 && (ends_with(path, ".json") || ends_with(path, ".safetensors")) ? -1 : bad;
}

/* Whether that may be written into which is there. */
static inline int folder_check(const folder_wish *w) {
    static const char *const own[] = { "model.safetensors", "adapter_model.safetensors", NULL }; /* of runs before 0.2, too, which left no mark */
    char path[1300], found[256] = "";
    struct dirent *entry;
    struct stat about;
    DIR *directory;
    int i, bad, status = 0;
    if (stat(w->path, &about) == 0 && !S_ISDIR(about.st_mode)) return fail(BAD_INPUT, "%s %s: not a directory", w->option, w->path);
    for (i = 0; i < w->inputs; i++)
        if (w->input[i].whole && is_input_directory(&w->input[i], w->path))
            return fail(BAD_INPUT, "%s %s: is the directory of %s %s, which is not written over", w->option, w->path, w->input[i].option,
                        w->input[i].path);
    directory = opendir(w->path);
    while (status == 0 && directory != NULL && (entry = readdir(directory)) != NULL) {
        const char *name = entry->d_name;
        const int left = is_left_over(name);
        if (!path_join(path, sizeof path, w->path, name)) continue;
        if (is_in_list(name, behind_links) && (bad = link_fails(path)) != 0)
            status = fail(BAD_INPUT, "%s %s: its %s is a link, and nothing can be put where it leads: %s; remove the link or let it lead to a "
                                     "file", w->option, w->path, name, bad > 0 ? strerror(bad) : "no regular file");
        if (stat(path, &about) != 0) continue;
        for (i = 0; i < w->inputs && status == 0 && (left || ends_with(name, ".json")); i++)
            if (is_input(&w->input[i], &about) || (w->runs && !w->goes_on && is_step_name(name) && is_input_directory(&w->input[i], path)))
                status = fail(BAD_INPUT, "%s %s: its %s is a file of %s %s, which is not written over", w->option, w->path, name, w->input[i].option,
                              w->input[i].path);
        if (status == 0 && S_ISREG(about.st_mode) && is_foreign(name, path) && !(w->goes_on && is_in_list(name, own)))
            status = fail(BAD_INPUT, "%s %s: holds weights that hetrain did not make (%s); give another directory", w->option, w->path, name);
        if (S_ISREG(about.st_mode) && about.st_size == 0) continue; /* such as the log of a run that ended before its first line */
        if (left && (found[0] == 0 || (is_step_name(name) && (!is_step_name(found) || strcmp(name, found) > 0))))
            snprintf(found, sizeof found, "%s", name);
    }
    if (directory != NULL) closedir(directory);
    if (status != 0 || found[0] == 0 || w->overwrite || w->goes_on) return status;
    return refuse_left_over(w, found, is_step_name(found));
}

/* A directory of files, and the files. */
static inline void remove_directory(const char *path) {
    char file[1600];
    struct dirent *entry;
    DIR *directory = opendir(path);
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        if (entry->d_name[0] != '.' && path_join(file, sizeof file, path, entry->d_name)) (void)unlink(file);
    if (directory != NULL) closedir(directory);
    (void)rmdir(path);
}

/* --overwrite: what an earlier run left goes away before anything is written, of links that stay what they lead to; first the marker, so that
   nobody goes on with a part of it. runs 0: only a whole model's weights do. */
static inline void folder_clear(const char *where, int runs) {
    char path[1300], to[1300];
    struct dirent *entry;
    DIR *directory;
    if (runs && path_join(path, sizeof path, where, "latest")) (void)unlink(path);
    directory = opendir(where);
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        const char *name = entry->d_name;
        struct stat about;
        if (!is_left_over(name) || !path_join(path, sizeof path, where, name) || lstat(path, &about) != 0) continue;
        if (!runs && strncmp(name, "model", 5) != 0) continue;
        if (S_ISDIR(about.st_mode)) remove_directory(path);
        else if (!S_ISLNK(about.st_mode) || !is_in_list(name, behind_links)) (void)unlink(path);
        else if (stat(path, &about) == 0 && S_ISREG(about.st_mode) && follow_links(path, to, sizeof to) == 0) (void)unlink(to);
    }
    if (directory != NULL) closedir(directory);
}

/* ---- the lock: a file that names its process, host, and start. It is locked in the kernel as well, as long as the process lives ---- */

/* When a process of this machine began, in ticks of its kernel; 0: it is not told here. *ended: it is there in name only, until its parent asks. */
static inline unsigned long long process_birth(long process, int *ended) {
    char path[64], text[1024];
    const char *at;
    unsigned long long birth = 0;
    size_t length;
    int i;
    FILE *file;
    snprintf(path, sizeof path, "/proc/%ld/stat", process);
    if ((file = fopen(path, "rb")) == NULL) return 0;
    length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    at = strrchr(text, ')'); /* the name before it may hold anything */
    *ended = at != NULL && (at[2] == 'Z' || at[2] == 'X');
    for (i = 2; i < 22 && at != NULL; i++) at = strchr(at + 1, ' ');
    return at != NULL && sscanf(at, "%llu", &birth) == 1 ? birth : 0;
}

typedef struct lock_owner { long process; char host[256], start[32]; unsigned long long birth; } lock_owner;

static inline lock_owner lock_self(void) {
    const time_t now = time(NULL);
    struct tm utc;
    lock_owner o;
    int ended;
    memset(&o, 0, sizeof o);
    o.process = (long)getpid();
    o.birth = process_birth(o.process, &ended);
    if (gethostname(o.host, sizeof o.host - 1) != 0 || o.host[0] == 0) snprintf(o.host, sizeof o.host, "unknown");
    if (gmtime_r(&now, &utc) != NULL) strftime(o.start, sizeof o.start, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return o;
}

/* 1: *o is what the lock says; 0: it says nothing; -1: it is no lock. */
static inline int lock_read(int handle, lock_owner *o) {
    char text[512];
    const ssize_t length = pread(handle, text, sizeof text - 1, 0);
    memset(o, 0, sizeof *o);
    if (length <= 0) return length == 0 ? 0 : -1;
    text[length] = 0;
    return sscanf(text, "process %ld\nhost %255s\nstart %31s\nbirth %llu", &o->process, o->host, o->start, &o->birth) == 4 && o->process > 0 ? 1 : -1;
}

/* 1: that process is there no more, or is another one with its number. Of other hosts nobody knows. */
static inline int lock_is_stale(const lock_owner *o, const lock_owner *self) {
    unsigned long long birth;
    int ended = 0;
    if (strcmp(o->host, self->host) != 0) return 0;
    if (kill((pid_t)o->process, 0) != 0 && errno == ESRCH) return 1;
    birth = process_birth(o->process, &ended);
    return ended || (o->birth > 0 && birth > 0 && o->birth != birth);
}

static inline int lock_refuse(const out_folder *f, const char *option_name, const lock_owner *o, const lock_owner *self) {
    if (o->process == 0) return fail(BAD_INPUT, "%s %s: another process writes there (%s)", option_name, f->path, f->lock);
    return fail(BAD_INPUT, "%s %s: process %ld on %s has been writing there since %s%s%s", option_name, f->path, o->process, o->host, o->start,
                strcmp(o->host, self->host) != 0 ? "; if it ended, remove " : "", strcmp(o->host, self->host) != 0 ? f->lock : "");
}

/* One attempt: 0 or a status; -1: the lock that was opened is gone, as its owner ended. */
static inline int lock_try(out_folder *f, const char *option_name) {
    struct flock whole;
    struct stat opened, named;
    lock_owner owner, self = lock_self();
    char text[512];
    int length, said, status = 0;
    memset(&whole, 0, sizeof whole);
    whole.l_type = F_WRLCK, whole.l_whence = SEEK_SET;
    f->handle = open(f->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (f->handle < 0) return fail(BAD_INPUT, "%s %s: cannot make %s: %s", option_name, f->path, f->lock, strerror(errno));
    length = fcntl(f->handle, F_SETLK, &whole) != 0 && (errno == EACCES || errno == EAGAIN); /* file systems without locks: the text alone counts */
    if (fstat(f->handle, &opened) != 0 || stat(f->lock, &named) != 0 || opened.st_ino != named.st_ino) status = -1;
    else {
        said = lock_read(f->handle, &owner);
        if (length || (said > 0 && !lock_is_stale(&owner, &self))) status = lock_refuse(f, option_name, &owner, &self);
        else if (said < 0) status = fail(BAD_INPUT, "%s %s: %s is no lock of hetrain's", option_name, f->path, f->lock);
    }
    if (status == 0) {
        length = snprintf(text, sizeof text, "process %ld\nhost %s\nstart %s\nbirth %llu\n", self.process, self.host, self.start, self.birth);
        if (ftruncate(f->handle, 0) != 0 || pwrite(f->handle, text, (size_t)length, 0) != length) {
            status = fail(FAILED, "%s %s: cannot write %s: %s", option_name, f->path, f->lock, strerror(errno));
            (void)unlink(f->lock);
        }
    }
    if (status != 0) close(f->handle);
    return status;
}

/* The directory, with those above it, and its lock. */
static inline int folder_open(out_folder *f, const char *option_name, const char *path) {
    size_t i;
    int turn, bad, status = -1;
    memset(f, 0, sizeof *f);
    if (strlen(path) >= sizeof f->path - 64) return fail(BAD_INPUT, "%s: path too long", option_name);
    for (i = 1; i <= strlen(path); i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        snprintf(f->path, sizeof f->path, "%.*s", (int)i, path);
        bad = mkdir(f->path, 0777) == 0 ? 0 : errno;
        if (bad == 0) f->made = f->made == 0 ? i : f->made;
        else if (bad != EEXIST && !is_directory(f->path)) /* which changes errno */
            return fail(BAD_INPUT, "%s %s: cannot make %s: %s", option_name, path, f->path, strerror(bad));
    }
    if (!is_directory(path)) return fail(BAD_INPUT, "%s %s: not a directory", option_name, path);
    snprintf(f->lock, sizeof f->lock, "%s/hetrain.lock", path);
    for (turn = 0; turn < 100 && status < 0; turn++) status = lock_try(f, option_name);
    if (status != 0) f->lock[0] = 0;
    return status >= 0 ? status : fail(BAD_INPUT, "%s %s: others come and go there", option_name, path);
}

/* The lock goes, and so do directories that were made for nothing. */
static inline void folder_close(out_folder *f) {
    if (f->lock[0] != 0) {
        (void)unlink(f->lock);
        close(f->handle);
    }
    f->lock[0] = 0;
    while (f->made > 0 && strlen(f->path) >= f->made && rmdir(f->path) == 0) {
        char *slash = strrchr(f->path, '/');
        if (slash == NULL) break;
        *slash = 0;
    }
    f->made = 0;
}

/* Both, for a directory that must not hold what a new run or model would replace. */
static inline int folder_take(out_folder *f, const folder_wish *w) {
    int status = folder_check(w);
    if (status == 0) status = folder_open(f, w->option, w->path);
    return status == 0 ? folder_check(w) : status; /* once more: another one may have ended here in between */
}

#endif
