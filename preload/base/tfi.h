/* tfi.h - defines the attributes and the frame type that every file of the library needs.
 *
 * The library runs inside somebody else's process, so these rules hold for all of its code:
 * no exit, abort or assert; no stdio and no malloc; errno is unchanged on return; every lock is a tfi_lock (a forked
 * child can reset it, and waiting for it has a limit); after every error the program runs on.
 */
#ifndef TFI_H
#define TFI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tfi_trace.h"

#define TFI_EXPORT __attribute__((visibility("default")))
#define TFI_LIKELY(x) __builtin_expect(!!(x), 1)
#define TFI_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define TFI_COLD __attribute__((cold, noinline))
#define TFI_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The frame address of a function of ours and its return address, which lies above the frame until the function is
 * left. One store writes the pair: see tfi_guard_set(). */
typedef uintptr_t tfi_frame __attribute__((vector_size(16)));
#define TFI_FRAME ((tfi_frame){(uintptr_t)__builtin_frame_address(0), (uintptr_t)__builtin_return_address(0)})

#endif
