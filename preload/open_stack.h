/* open_stack.h - the ranges that are open in a thread, from the outermost to the innermost. */
#ifndef TFI_OPEN_STACK_H
#define TFI_OPEN_STACK_H

#include <stdbool.h>
#include <stdint.h>

struct tfi_thread;
struct tfi_open;

/* Puts a range on top and fills in `below`; false if there is no room. Its order is more than that of all others: the
 * thread's next one. */
bool tfi_open_put(struct tfi_thread *thread, struct tfi_open *open);

/* Where the innermost nested range of a domain lies, -1 if there is none. */
int64_t tfi_open_innermost(struct tfi_thread *thread, uint32_t domain);

/* Where a range lies, by its order and its id; -1 if it does not. */
int64_t tfi_open_find(const struct tfi_thread *thread, uint64_t order, uint64_t id);

/* Takes away what lies there. */
void tfi_open_take(struct tfi_thread *thread, uint32_t index);

/* Takes all away. */
void tfi_open_empty(struct tfi_thread *thread);

#endif
