/* stack_room.h - how much stack the calling thread has left where it runs now. */
#ifndef TFI_STACK_ROOM_H
#define TFI_STACK_ROOM_H

#include <stdbool.h>
#include <stddef.h>

struct tfi_thread;

/* True if at least so many bytes are proven to be left below the caller's frame. With the guard of the thread; keeps
 * errno. */
bool tfi_stack_has_room(struct tfi_thread *thread, size_t bytes);

#endif
