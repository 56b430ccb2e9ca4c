/* utf8.h - measures and writes UTF-8 sequences, with one meaning in recorder and analyser. */
#ifndef TFI_UTF8_H
#define TFI_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length in bytes of the UTF-8 sequence at `bytes`, 0 if there is no valid one. At most `left` bytes (at least 1) are
 * read. Over-long forms, surrogates and code points beyond U+10FFFF are invalid. */
size_t tfi_utf8_length(const char *bytes, size_t left);

/* Writes `code` as at most four bytes and returns how many. A surrogate becomes three bytes of invalid UTF-8. */
size_t tfi_utf8_put(char *to, uint32_t code);

/* True if the sequence at `bytes` is no valid one, or would act on a terminal or turn the direction of the text. Sets its
 * length, 0 if it is not valid, and its code. */
bool tfi_utf8_acts(const char *bytes, size_t left, size_t *length, uint32_t *code);

#endif
