/* open_stack.h - keeps the ranges that are open in a thread, from the outermost to the innermost. */
#ifndef TFI_OPEN_STACK_H
#define TFI_OPEN_STACK_H

#include <stdbool.h>
#include <stdint.h>

struct tfi_thread;
struct tfi_open;

/* Puts a range on top and fills in `below`; false if there is no room. Its order is larger than all others': the
 * thread's next one. */
bool tfi_open_put(struct tfi_thread *thread, struct tfi_open *open);

/* Index of the innermost nested range of a domain, -1 if there is none. */
int64_t tfi_open_innermost(struct tfi_thread *thread, uint32_t domain);

/* Index of the range with this order and id, -1 if it is not on the stack. */
int64_t tfi_open_find(const struct tfi_thread *thread, uint64_t order, uint64_t id);

/* Removes the range at `index`. */
void tfi_open_take(struct tfi_thread *thread, uint32_t index);

/* Removes all ranges. */
void tfi_open_empty(struct tfi_thread *thread);

#endif
