/* definitions.h - keeps the rows that later rows need to be understood: threads, devices, graphs. */
#ifndef TFI_DEFINITIONS_H
#define TFI_DEFINITIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes room for them, none yet; without memory none are kept. */
void tfi_definitions_begin(void);

/* Keeps the definitions among the rows, which lie in the part `part` of the trace. */
void tfi_definitions_note(const void *rows, size_t bytes, uint64_t part);

/* Forgets threads that ended before the part `first`, if there are many. */
void tfi_definitions_forget(uint64_t first);

/* Copies the definitions whose part `is_gone` into `to`, which has room for all. Returns the bytes; `count` gets their
 * number. */
#define TFI_DEFINITIONS_BYTES (1u << 20)
size_t tfi_definitions_copy(uint8_t *to, bool (*is_gone)(uint64_t part), uint32_t *count);

#endif
