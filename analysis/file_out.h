/* file_out.h - creates every file and directory that the analyser leaves; nothing else in analysis/ does.
 *
 * A file has a temporary name with a random part until it is finished; then it is renamed. What is not finished is
 * removed, also when a signal ends the program. A path that the user typed may be a link, a FIFO or a device. Inside a
 * directory of a report no link is followed, and what is no regular file stays as it is.
 */
#ifndef TFA_FILE_OUT_H
#define TFA_FILE_OUT_H

#include "util.h"

enum { FILE_PRIVATE = 0600, FILE_SHARED = 0666 /* less the umask */ };

struct file_out {
    int fd;        /* to write to, and the caller's to close; -1: it could not be opened */
    int directory; /* where it lies; -1: it is written in place */
    char *name;    /* there */
    int pending;   /* the place of its temporary name among those to be removed, or -1 */
};

/* False: *why says the reason. */
bool file_create(struct file_out *file, const char *path, const char **why);
bool file_create_in(struct file_out *file, int directory, const char *name, unsigned mode, const char **why);
/* Gives a closed file its name. */
bool file_finish(struct file_out *file, const char **why);
/* Removes what is not finished, and frees what a file has, finished or not. */
void file_drop(struct file_out *file);

/* Descriptors of directories, to be closed; they are made where they are missing. -1: *why says the reason. */
int directory_make(const char *path, const char **why);                 /* that the user typed: links are followed */
int directory_walk(const char *path, const char **why);                 /* an absolute path without a link in it */
int directory_below(int directory, const char *name, const char **why); /* no link is followed */

#endif
