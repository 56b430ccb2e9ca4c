/* open_names.h - tells whether a thread has an open stage of a name; asked at each beginning of a stage. */
#ifndef TFI_OPEN_NAMES_H
#define TFI_OPEN_NAMES_H

#include <stdbool.h>
#include <stdint.h>

struct tfi_thread;
struct tfi_open;

/* True if a stage of that name is open in the thread. */
bool tfi_open_already(const struct tfi_thread *thread, uint32_t name);

/* Add a range that comes onto the thread's stack, which has room for it, and remove one that leaves the stack. */
void tfi_open_name_add(struct tfi_thread *thread, const struct tfi_open *open);
void tfi_open_name_remove(struct tfi_thread *thread, const struct tfi_open *open);

/* Rebuilds the table from the open ranges, after the stack was moved or emptied, or when the table is full. */
void tfi_open_names_again(struct tfi_thread *thread);

#endif
