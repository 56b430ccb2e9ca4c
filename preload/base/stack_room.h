/* stack_room.h - tells how much stack the calling thread has left where it runs now. */
#ifndef TFI_STACK_ROOM_H
#define TFI_STACK_ROOM_H

#include <stdbool.h>
#include <stddef.h>

struct tfi_thread;

/* True if at least `bytes` bytes are proven to be left below the caller's frame. The thread's guard is set. Keeps
 * errno. */
bool tfi_stack_has_room(struct tfi_thread *thread, size_t bytes);

#endif
