/* files.h - handles our directories and files in places where other users may write as well. */
#ifndef TFI_FILES_H
#define TFI_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/uio.h>

#define TFI_PATH_BYTES 4096
#define TFI_NAME_BYTES 256

/* A directory that was opened once. In the program's table of descriptors it is open only while somebody uses it. Programs
 * close descriptors that are not theirs: each use checks that the number still means this directory. All zero: none. */
struct tfi_dir {
    int fd; /* O_PATH */
    uint32_t users;
    uint64_t device, inode;
    const void *mapped; /* a file in it, from its start; NULL: none */
    size_t mapped_bytes;
    char path[TFI_PATH_BYTES];
};

/* Makes a directory and its parents and opens it. `path` is absolute. A link on the way is followed only if our user or
 * root owns it. False with errno set, ELOOP for another user's link. The caller uses it until tfi_dir_rest(). */
bool tfi_dir_make(struct tfi_dir *dir, const char *path);
/* The same without making anything. */
bool tfi_dir_open(struct tfi_dir *dir, const char *path);

/* True if the calling thread's table has room for a file and its directory. */
bool tfi_has_descriptors(void);

/* Begins and ends a use, so that several calls open the directory once. The first is false with errno set if it cannot be
 * opened. */
bool tfi_dir_hold(struct tfi_dir *dir);
void tfi_dir_rest(struct tfi_dir *dir);
void tfi_dir_close(struct tfi_dir *dir);
/* Notes where a file of the directory is mapped, by which a directory is found that was moved. */
void tfi_dir_has_mapped(struct tfi_dir *dir, const void *start, size_t bytes);
/* Reads the status of its file system; false with errno set. */
bool tfi_dir_system(struct tfi_dir *dir, struct statfs *fs);
/* Calls `take` with each name in the directory. */
void tfi_dir_each(struct tfi_dir *dir, void (*take)(struct tfi_dir *dir, const char *name));

/* Creates a file in the directory with mode 0600, whatever the umask is; never opens an existing file or follows a
 * link.
 * -1 with errno set. The caller closes it soon. */
int tfi_dir_create(struct tfi_dir *dir, const char *name, int flags);
/* True if the name is taken, by any kind of file. */
bool tfi_dir_has(struct tfi_dir *dir, const char *name);
/* Reads the status of a name, without following a link; false with errno set. */
bool tfi_dir_look(struct tfi_dir *dir, const char *name, struct stat *st);
bool tfi_dir_remove(struct tfi_dir *dir, const char *name);
/* Renames a file, unless the new name is taken; false with errno set. */
bool tfi_dir_rename(struct tfi_dir *dir, const char *from, const char *to);
/* Opens a regular file that our user owns, and reads its status; -1 if it is no such file. The caller closes it soon. */
int tfi_dir_open_own(struct tfi_dir *dir, const char *name, int flags, struct stat *st);
/* Reads a small regular file that our user owns, as tfi_read_file() does; EPERM if it is no such file. */
ssize_t tfi_dir_read(struct tfi_dir *dir, const char *name, char *buf, size_t size);

/* Opens a small file of lines, which it makes if it is missing; -1 if it is not a regular file of our user. `size` gets its bytes.
 * The caller closes it soon. */
int tfi_dir_open_lines(struct tfi_dir *dir, const char *name, uint64_t *size);
/* Reads it from its start, zero-terminated; returns the bytes, or -1. */
ssize_t tfi_lines_read(int fd, char *buf, size_t size);
/* Appends a line to the file, which had `size` bytes. Lines that several processes add at once are all there, in one order. */
bool tfi_lines_add(int fd, const char *line, uint64_t size);

/* A file of ours. Each use checks it, as with a directory. */
struct tfi_file {
    int fd;      /* in the program's table of descriptors, until tfi_file_rest() */
    int bare_fd; /* in that of a bare thread: of one at a time */
    bool kept;   /* stays open in the program's table */
    uint64_t device, inode;
    struct tfi_dir *dir;
    char name[TFI_NAME_BYTES];
};

/* Creates a new file for appending; false with errno set. */
bool tfi_file_create(struct tfi_file *file, struct tfi_dir *dir, const char *name);
/* Opens it again if it is not open; false with errno set. Each use does that by itself. */
bool tfi_file_open(struct tfi_file *file);
/* Closes it in the program's table until the next use. */
void tfi_file_rest(struct tfi_file *file);
/* Opens it there, with its directory, until tfi_file_close(), because the program is about to lose the right or the way to the file. Bare threads
 * that begin later take it over. */
void tfi_file_keep(struct tfi_file *file);
/* False, with errno set, if a file of this size would pass RLIMIT_FSIZE. */
bool tfi_file_has_room(uint64_t size);
/* Appends all parts or nothing at `*size`; false with errno set. Checks RLIMIT_FSIZE first, because a write beyond it
 * kills the process. `parts` is modified. */
bool tfi_file_append(struct tfi_file *file, uint64_t *size, struct iovec *parts, int count);
/* True if the file's name is gone or belongs to another file: the file's content can't be found any more. */
bool tfi_file_is_gone(struct tfi_file *file);
/* Renames a finished file, unless the new name is taken, and closes it. On failure removes the file; false with errno
 * set. */
bool tfi_file_rename(struct tfi_file *file, const char *name);
/* Renames a finished file to the name of `old`, which it replaces: `old` becomes the finished file, and stays open. False
 * with errno set if the name is not `old`'s any more, or the rename fails. */
bool tfi_file_replace(struct tfi_file *old, const struct tfi_file *file);
void tfi_file_remove(struct tfi_file *file);
void tfi_file_close(struct tfi_file *file);

/* Reads a small regular file whole, zero-terminated. Returns the length, or -1 with errno set, EINVAL if it is not a
 * regular file. A FIFO does not make the caller wait. */
ssize_t tfi_read_file(const char *path, char *buf, size_t size);

#endif
