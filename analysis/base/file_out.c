/* file_out.c - creates files under temporary names, renames them, and removes unfinished ones when a signal arrives.
 *
 * Only the main thread creates files. The signal handler reads the table of pending names. An entry is filled before
 * its `used` is set, and cleared only after the rename, so that at worst a name is removed twice.
 */
#include "base/file_out.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_in.h"

/* ---- unfinished files ---- */

enum { TEMPORARY = 40 };

static struct pending {
    volatile sig_atomic_t used;
    int directory;
    char name[TEMPORARY];
} pending[128]; /* a report writes 50 traces at once from one input */

static void end_by(int number)
{
    for (size_t i = 0; i < ARRAY_SIZE(pending); i++)
        if (pending[i].used) unlinkat(pending[i].directory, pending[i].name, 0);
    signal(number, SIG_DFL);
    raise(number);
}

/* Installs the handler that removes pending files. Signals that the caller ignores stay ignored. SIGXFSZ is ignored,
 * so that writing too large a file fails with an error. */
static void watch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXCPU};
    static bool watched;
    struct sigaction now, action = {.sa_handler = end_by};
    for (size_t i = 0; i < ARRAY_SIZE(numbers) && !watched; i++)
        if (sigaction(numbers[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL) sigaction(numbers[i], &action, NULL);
    if (!watched) signal(SIGXFSZ, SIG_IGN);
    watched = true;
}

/* ---- files ---- */

/* Returns false, with the reason, where nothing may be written. */
static bool may_write(const char **why)
{
    *why = "tfanalyze mcp writes no file";
    return !file_is_confined();
}

static int free_place(void)
{
    for (int i = 0; i < (int)ARRAY_SIZE(pending); i++)
        if (!pending[i].used) return i;
    return -1;
}

static bool random_name(char *name)
{
    uint64_t number[2];
    if (getrandom(number, sizeof number, 0) != (ssize_t)sizeof number) return false;
    snprintf(name, TEMPORARY, ".%016llx%016llx.tmp", (unsigned long long)number[0], (unsigned long long)number[1]);
    return true;
}

/* O_EXCL refuses a name that somebody guessed and already took, whatever it refers to. */
static bool create_temporary(struct file_out *file, unsigned mode)
{
    file->pending = free_place();
    if (file->pending < 0) {
        errno = EMFILE;
        return false;
    }
    struct pending *place = &pending[file->pending];
    watch_signals();
    place->directory = file->directory;
    if (random_name(place->name)) {
        place->used = 1;
        file->fd = openat(file->directory, place->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    }
    if (file->fd < 0) {
        place->used = 0;
        file->pending = -1;
    }
    return file->fd >= 0;
}

static const char *occupied(mode_t mode)
{
    return S_ISDIR(mode)    ? "a directory has that name; remove it, or choose another place"
           : S_ISLNK(mode)  ? "a symbolic link has that name, and tfanalyze writes through no link; remove it, or "
                              "choose another place"
           : S_ISFIFO(mode) ? "a FIFO has that name; remove it, or choose another place"
                            : "something other than a file has that name; remove it, or choose another place";
}

bool file_create_in(struct file_out *file, int directory, const char *name, unsigned mode, const char **why)
{
    struct stat status;
    *file = (struct file_out){.fd = -1, .pending = -1, .directory = fcntl(directory, F_DUPFD_CLOEXEC, 3)};
    file->name = string_format("%s", name);
    if (!may_write(why)) return false;
    if (tfi_fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(status.st_mode)) {
        *why = occupied(status.st_mode);
        return false;
    }
    if (file->directory < 0 || !create_temporary(file, mode)) {
        *why = strerror(errno);
        return false;
    }
    return true;
}

/* Opens the path itself. A dangling link creates its target: the user typed the path. */
static bool write_in_place(struct file_out *file, const char *path, const char **why)
{
    file->fd = open(path, O_WRONLY | O_CREAT | O_NOCTTY | O_CLOEXEC, FILE_SHARED);
    *why = strerror(errno);
    return file->fd >= 0;
}

static bool create_beside(struct file_out *file, const char *path, const char **why)
{
    char *copy = string_format("%s", path), *slash = strrchr(copy, '/');
    if (slash) *slash = 0;
    const char *directory = !slash ? "." : slash == copy ? "/" : copy;
    file->directory = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    file->name = string_format("%s", slash ? slash + 1 : copy);
    free(copy);
    if (file->directory >= 0 && !*file->name) errno = EISDIR;
    bool good = file->directory >= 0 && *file->name && create_temporary(file, FILE_SHARED);
    *why = strerror(errno);
    return good;
}

/* The first open leaves the check to the kernel, which refuses other users' links in world-writable directories. */
bool file_create(struct file_out *file, const char *path, const char **why)
{
    struct stat status;
    *file = (struct file_out){.fd = -1, .directory = -1, .pending = -1};
    if (!may_write(why)) return false;
    int there = open(path, O_PATH | O_CLOEXEC);
    bool known = there >= 0 && tfi_fstat(there, &status) == 0, dangling = false;
    *why = strerror(errno);
    if (there >= 0) {
        close(there);
    } else {
        struct stat link;
        dangling = tfi_lstat(path, &link) == 0;
        if (errno != ENOENT && !dangling) return false;
    }
    if (dangling || (known && !S_ISREG(status.st_mode))) return write_in_place(file, path, why);
    char *real = known ? realpath(path, NULL) : NULL;
    bool good = create_beside(file, real ? real : path, why);
    free(real);
    return good;
}

bool file_finish(struct file_out *file, const char **why)
{
    if (file->pending >= 0) {
        struct pending *place = &pending[file->pending];
        if (renameat(file->directory, place->name, file->directory, file->name) != 0) {
            *why = strerror(errno);
            return false;
        }
        place->used = 0;
        file->pending = -1;
    }
    return true;
}

void file_drop(struct file_out *file)
{
    if (file->pending >= 0) {
        unlinkat(file->directory, pending[file->pending].name, 0);
        pending[file->pending].used = 0;
    }
    if (file->directory >= 0) close(file->directory);
    free(file->name);
    *file = (struct file_out){.fd = -1, .directory = -1, .pending = -1};
}

/* ---- temporary files ---- */

const char *scratch_directory(void)
{
    const char *given = getenv("TMPDIR");
    return given && *given == '/' ? given : "/tmp";
}

int file_scratch(void)
{
    char *name = string_format("%s/tfanalyze.XXXXXX", scratch_directory());
    int fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0) unlink(name);
    free(name);
    return fd;
}

/* ---- directories ---- */

char *directory_above(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? mem_text(path, (size_t)MAX(slash - path, 1)) : string_format(".");
}

int directory_open(const char *path, const char **why)
{
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) *why = strerror(errno);
    return fd;
}

int directory_make(const char *path, const char **why)
{
    if (!may_write(why)) return -1;
    char *copy = string_format("%s", path);
    for (char *p = copy + 1; *copy && *p; p++) {
        if (*p == '/') {
            *p = 0;
            mkdir(copy, 0777);
            *p = '/';
        }
    }
    int error = mkdir(copy, 0777) == 0 ? 0 : errno;
    int fd = open(copy, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) *why = strerror(error && error != EEXIST ? error : errno);
    free(copy);
    return fd;
}

int directory_below(int directory, const char *name, const char **why)
{
    mkdirat(directory, name, 0777);
    int fd = openat(directory, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        *why = errno == ELOOP || errno == ENOTDIR ? "a component of the path is a symbolic link or a file"
                                                  : strerror(errno);
    return fd;
}

int directory_walk(const char *path, const char **why)
{
    char *copy = string_format("%s", path), *rest = copy, *name;
    int fd = *path == '/' ? open("/", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    *why = "it is not an absolute path";
    while (fd >= 0 && (name = strsep(&rest, "/")) != NULL) {
        if (!*name || strcmp(name, ".") == 0) continue;
        int below = strcmp(name, "..") == 0 ? -1 : directory_below(fd, name, why);
        close(fd);
        fd = below;
    }
    free(copy);
    return fd;
}
