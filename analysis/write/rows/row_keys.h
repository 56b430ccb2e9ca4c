/* row_keys.h - the keys of rows, as commands.def lists them: "rank,name,total_us". */
#ifndef TFA_ROW_KEYS_H
#define TFA_ROW_KEYS_H

#include <stdbool.h>
#include <stddef.h>

bool keys_have(const char *keys, const char *key, size_t length);
/* Returns the length of a key without its unit, as the values show the unit. The unit stays if the rest is a key of the
 * row too: `copies` and `copies_us`. */
size_t key_without_unit(const char *keys, const char *key, size_t length);
/* True for a number that says whose a row is. */
bool key_is_place(const char *key);

#endif
