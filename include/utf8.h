/* utf8.h - the length of a UTF-8 sequence, and writing one: one meaning when recording and when analysing. */
#ifndef TFI_UTF8_H
#define TFI_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the UTF-8 sequence at `bytes`, of which `left` (at least 1) may be read; 0 if there is none. Over-long forms,
 * surrogates and code points beyond U+10FFFF are none. */
size_t tfi_utf8_length(const char *bytes, size_t left);

/* Writes `code` as at most four bytes and returns how many. A surrogate becomes three bytes that are no UTF-8. */
size_t tfi_utf8_put(char *to, uint32_t code);

#endif
