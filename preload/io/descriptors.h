/* descriptors.h - knows which file each descriptor and each mapping of this process means. */
#ifndef TFI_DESCRIPTORS_H
#define TFI_DESCRIPTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/paths.h"

/* Positions that are no number. A shared one is moved by other descriptors or processes too, and stays unknown. */
#define TFI_POSITION_UNKNOWN (-1)
#define TFI_POSITION_SHARED (-2)

/* An open descriptor. */
struct tfi_fd {
    const struct tfi_path *file; /* NULL: not known */
    int64_t position;
};

/* Pages of descriptors, made at their first use; NULL before the first one. Other files only use tfi_fd_unwanted(). */
enum { TFI_FD_PAGE_BITS = 10, TFI_FD_PAGES = 1 << 20 };
extern struct tfi_fd **tfi_fd_pages;

/* True if the descriptor's file is known and not to be recorded. Inlined: it is all that a filtered call costs. */
static inline bool tfi_fd_unwanted(int fd)
{
    struct tfi_fd **pages = __atomic_load_n(&tfi_fd_pages, __ATOMIC_ACQUIRE);
    if (!pages || (unsigned)fd >> TFI_FD_PAGE_BITS >= TFI_FD_PAGES) return false;
    struct tfi_fd *page = __atomic_load_n(&pages[fd >> TFI_FD_PAGE_BITS], __ATOMIC_ACQUIRE);
    if (!page) return false;
    const struct tfi_path *file = __atomic_load_n(&page[fd % (1 << TFI_FD_PAGE_BITS)].file, __ATOMIC_ACQUIRE);
    return file && !file->wanted;
}

/* The file of a descriptor. One that no hook has seen is looked up in /proc/self/fd, once; then `looked_up` becomes
 * true. NULL if the descriptor is negative. */
const struct tfi_path *tfi_fd_file(int fd, bool *looked_up);

/* The position of a descriptor; negative if it is not known. */
int64_t tfi_fd_position(int fd);

void tfi_fd_set(int fd, const struct tfi_path *file, int64_t position);
void tfi_fd_forget(int fd);
void tfi_fd_forget_range(unsigned first, unsigned last);

/* `copy` means the same open file as `fd` from now on. */
void tfi_fd_copied(int fd, int copy);

/* Moves a known position by `step`, or to `position`. */
void tfi_fd_advance(int fd, int64_t step);
void tfi_fd_seek(int fd, int64_t position);

/* After a fork two processes share all positions. */
void tfi_fd_forked(void);

/* The file mapped at an address, NULL if no hook has seen a file mapped there. */
const struct tfi_path *tfi_mapped_file(const void *address);
void tfi_mapped(const void *address, size_t bytes, const struct tfi_path *file);
void tfi_unmapped(const void *address, size_t bytes);

#endif
