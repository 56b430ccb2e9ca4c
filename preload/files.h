/* files.h - directories and files of ours in places that others may write to as well. */
#ifndef TFI_FILES_H
#define TFI_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define TFI_PATH_BYTES 4096
#define TFI_NAME_BYTES 256

/* A directory that was walked to once. Programs close descriptors that are not theirs: each use checks that the number
 * still means this directory, and walks there again if it does not. All zero: none. */
struct tfi_dir {
    int fd; /* O_PATH */
    uint64_t device, inode;
    char path[TFI_PATH_BYTES];
};

/* Makes a directory and its parents and opens it. A link on the way is followed only if it is ours or root's; false with
 * errno set, ELOOP for somebody else's. `path` is absolute. */
bool tfi_dir_make(struct tfi_dir *dir, const char *path);
/* Its descriptor; -1 with errno set, ESTALE if its path leads elsewhere now. Any thread. */
int tfi_dir_fd(struct tfi_dir *dir);
void tfi_dir_close(struct tfi_dir *dir);

/* Opens a new file in the directory with mode 0600 whatever the umask says: never an existing one, never through a link.
 * -1 with errno set. The number is out of the range that programs use. */
int tfi_dir_create(struct tfi_dir *dir, const char *name, int flags);
/* True if the name is taken, by whatever kind of file. */
bool tfi_dir_has(struct tfi_dir *dir, const char *name);
/* Tells what a name is, without following a link; false with errno set. */
bool tfi_dir_look(struct tfi_dir *dir, const char *name, struct stat *st);
bool tfi_dir_remove(struct tfi_dir *dir, const char *name);
/* Reads a small regular file of our own, as tfi_read_file; EPERM if it is something else or somebody else's. */
ssize_t tfi_dir_read(struct tfi_dir *dir, const char *name, char *buf, size_t size);

/* A file of ours, checked before each use as a directory is. */
struct tfi_file {
    int fd;
    uint64_t device, inode;
    struct tfi_dir *dir;
    char name[TFI_NAME_BYTES];
};

/* Creates a new file for appending; false with errno set. */
bool tfi_file_create(struct tfi_file *file, struct tfi_dir *dir, const char *name);
/* False, with errno set, if a file of this size would pass RLIMIT_FSIZE. */
bool tfi_file_has_room(uint64_t size);
/* Appends all parts or nothing at `*size`; looks at RLIMIT_FSIZE first, because passing it kills. False with errno set.
 * The parts are used up. */
bool tfi_file_append(struct tfi_file *file, uint64_t *size, struct iovec *parts, int count);
/* True if its name is gone or stands for another file: what is in it can't be found any more. */
bool tfi_file_is_gone(struct tfi_file *file);
/* Gives a finished file the name it is to have, unless that is taken, and closes it; false with errno set, the file then
 * is removed. */
bool tfi_file_rename(struct tfi_file *file, const char *name);
void tfi_file_remove(struct tfi_file *file);
void tfi_file_close(struct tfi_file *file);

/* Reads a small regular file whole, zero-terminated; returns the length or -1, with errno EINVAL if it is no regular file.
 * A FIFO does not make the caller wait. */
ssize_t tfi_read_file(const char *path, char *buf, size_t size);

#endif
