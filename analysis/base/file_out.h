/* file_out.h - creates every file and directory that the analyser leaves; no other file in analysis/ creates one.
 *
 * A file has a temporary name with a random part until it is finished, then it is renamed. Unfinished files are
 * removed, also when a signal ends the program. A path that the user typed may be a link, a FIFO or a device. Inside
 * a directory of a report no link is followed, and anything but a regular file stays as it is.
 */
#ifndef TFA_FILE_OUT_H
#define TFA_FILE_OUT_H

#include "base/util.h"

enum { FILE_PRIVATE = 0600, FILE_SHARED = 0666 /* reduced by the umask */ };

struct file_out {
    int fd;        /* for writing; the caller closes it; -1: it could not be opened */
    int directory; /* the directory that holds it; -1: the file is written in place */
    char *name;    /* its final name in the directory */
    int pending;   /* entry of its temporary name in the table of pending names, or -1 */
};

/* Both return false with the reason in *why. */
bool file_create(struct file_out *file, const char *path, const char **why);
bool file_create_in(struct file_out *file, int directory, const char *name, unsigned mode, const char **why);
/* Renames a closed file to its final name. */
bool file_finish(struct file_out *file, const char **why);
/* Removes the file if it is unfinished, and frees the struct's memory in any case. */
void file_drop(struct file_out *file);

/* Creates a file without a name in $TMPDIR, or in /tmp. Returns its descriptor; -1: errno has the reason. */
int file_scratch(void);
const char *scratch_directory(void);

/* Returns the directory part of a path, "." if it has none. Looks at no file. The caller frees it. */
char *directory_above(const char *path);

/* Each returns a descriptor of a directory, for the caller to close. -1: *why has the reason. All but the first create
 * missing directories. */
int directory_open(const char *path, const char **why);                 /* typed by the user: links are followed */
int directory_make(const char *path, const char **why);                 /* typed by the user: links are followed */
int directory_walk(const char *path, const char **why);                 /* an absolute path without a link in it */
int directory_below(int directory, const char *name, const char **why); /* no link is followed */

#endif
