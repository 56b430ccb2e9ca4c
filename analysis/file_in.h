/* file_in.h - opens every file that the analyser reads; nothing else in analysis/ does.
 *
 * Only regular files are read: a FIFO would be waited for, and a device may do anything when it is opened. A path that
 * the user typed may be a link. A file that was found in a directory may not: its owner chose where a link points to.
 */
#ifndef TFA_FILE_IN_H
#define TFA_FILE_IN_H

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "util.h"

enum file_how {
    FILE_NAMED, /* by the user: links are followed */
    FILE_FOUND, /* in a directory: no link is followed */
};

/* A descriptor to read from, or -1, and then *why says the reason. `directory` is a descriptor or AT_FDCWD. */
int file_open_at(int directory, const char *name, enum file_how how, struct stat *status, const char **why);
int file_open(const char *path, enum file_how how, struct stat *status, const char **why);
/* Whether a directory holds, under its last name, the file that was read at that path: else somebody has exchanged it. */
bool file_is_in(int directory, const char *path, dev_t device, ino_t inode);
/* The first bytes of a file of /proc, with a zero behind them; returns how many, 0 where it can't be read. */
size_t file_of_proc(const char *path, char *to, size_t size);
/* The entries that `wanted` takes, in the order of their versions; -1: errno says why. To be freed, each and the list. */
int file_list(const char *directory, int (*wanted)(const struct dirent *entry), struct dirent ***entries);

#endif
