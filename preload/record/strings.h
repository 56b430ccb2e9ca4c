/* strings.h - numbers the names of this process and keeps each once. */
#ifndef TFI_STRINGS_H
#define TFI_STRINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Number of a string, which its first use stores in the trace. TFI_STRING_LOST if the table is full, 0 for NULL.
 * Strings longer than TFI_STRING_MAX are cut. Only between tfi_enter() and tfi_leave(). */
uint32_t tfi_string(const char *text, size_t length);

/* Text of a number, without a final zero; valid until the process ends. NULL and length 0 for 0 and TFI_STRING_LOST. */
const char *tfi_string_text(uint32_t number, size_t *length);

/* Prepares an empty table at wake; false if there is no memory. */
bool tfi_strings_init(void);

uint32_t tfi_strings_count(void);

/* Bytes of all strings, as they take in a file. */
uint64_t tfi_strings_bytes(void);

#endif
