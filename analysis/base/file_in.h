/* file_in.h - opens every file that the analyser reads; no other file in analysis/ opens one for reading.
 *
 * The analyser reads only regular files: opening a FIFO would wait, and opening a device may have any effect. A path
 * that the user typed may be a link. A file found in a directory may not be a link, because its owner chose the
 * target.
 */
#ifndef TFA_FILE_IN_H
#define TFA_FILE_IN_H

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/util.h"

enum file_how {
    FILE_NAMED, /* by the user: links are followed */
    FILE_FOUND, /* in a directory: no link is followed */
};

/* From here on only what lies below these directories is read, but for what the kernel says in /proc and /sys; no file is
 * written and no program is run. Their paths are absolute and without links. */
void file_confine(const char *const *directories, size_t count);
bool file_is_confined(void);
bool path_is_below(const char *path, const char *directory); /* or it is the directory */

/* Returns a descriptor to read from, or -1 with the reason in *why. `directory` is a descriptor or AT_FDCWD. */
int file_open_at(int directory, const char *name, enum file_how how, struct stat *status, const char **why);
int file_open(const char *path, enum file_how how, struct stat *status, const char **why);
/* Loads a library of the system by its soname, which the program itself knows: nothing that was read may name one.
 * Returns NULL if there is none. */
void *file_library(const char *soname);
/* Reads the first bytes of a file, up to `room`. Returns their number; -1: it cannot be read, errno has the reason. */
ssize_t file_read(int fd, char *to, size_t room);
/* Returns the bytes of a file that is no larger than `most`, with a zero behind them; the caller frees them. NULL:
 * *why has the reason, which the caller frees. */
char *file_whole(const char *path, size_t most, size_t *length, char **why);
/* Tells whether `directory` still holds the file that was read at `path`, under its last name. If not, somebody
 * replaced it. */
bool file_is_in(int directory, const char *path, dev_t device, ino_t inode);
/* Reads the start of a file of /proc and adds a zero. Returns the number of bytes, 0 if it cannot be read. */
size_t file_of_proc(const char *path, char *to, size_t size);
/* Lists the entries that `wanted` accepts, sorted by version. Returns -1 with errno set. The caller frees each entry
 * and the list. */
int file_list(const char *directory, int (*wanted)(const struct dirent *entry), struct dirent ***entries);

#endif
