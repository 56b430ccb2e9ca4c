/* paths.h - keeps each path of a file once, with the decision whether calls on it are recorded.
 *
 * A path is never freed, so a pointer to it may be read without a lock, also in forked children. It is absolute; "." and
 * ".." in its middle stay, for a symbolic link may lie before them.
 */
#ifndef TFI_PATHS_H
#define TFI_PATHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tfi_thread;

struct tfi_path {
    uint32_t hash, length;
    uint32_t wanted;      /* calls on it are recorded */
    uint32_t string, gen; /* number of its name in the trace `gen` */
    char text[];
};

/* The path that stands for files whose name cannot be found out. */
extern const struct tfi_path *const tfi_path_unknown;

/* The path of a name in the directory of `parent`; an absolute name ignores `parent`. */
const struct tfi_path *tfi_path_of(const struct tfi_path *parent, const char *name);

/* The target of the symbolic link `link`, as for the descriptors in /proc/self/fd. */
const struct tfi_path *tfi_path_of_link(const char *link);

/* The working directory. */
const struct tfi_path *tfi_path_here(void);

/* The working directory may have changed. */
void tfi_path_moved(void);

/* Number of the path's name in the trace; only with the thread's guard set. */
uint32_t tfi_path_string(const struct tfi_thread *thread, const struct tfi_path *path);

/* Makes the table; false if there is no memory. Called in the constructor. */
bool tfi_paths_init(void);

/* ---- selection.c ---- */

/* True if calls on this path are recorded, by TFI_IO_PATHS. */
bool tfi_path_wanted(const char *text, size_t length);

/* True if calls on files without a known name are recorded. */
bool tfi_path_unknown_wanted(void);

#endif
