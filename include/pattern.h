/* pattern.h - lists of names, whole numbers, globs and word distance, with one meaning in recorder and analyser. */
#ifndef TFI_PATTERN_H
#define TFI_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copies the next entry of a list separated by commas, without the blanks round it; false at the end of the list. An
 * entry longer than size - 1 bytes is cut. */
bool tfi_next_name(const char **list, char *entry, size_t size);

/* Reads a whole number; false unless the text is one or more digits and the number lies from `low` to `high`. */
bool tfi_whole_number(const char *text, uint64_t low, uint64_t high, uint64_t *number);

/* Shell-like match of the whole text: * ? [set] [!set]. */
bool tfi_glob(const char *pattern, const char *text, size_t length, bool fold_case);

#define TFI_DISTANCE_LONGEST 63u
#define TFI_FAR 1000u

/* Edit distance: insertions, deletions, replacements and exchanges of two neighbours count 1 each. A `*` in `a` stands
 * for any text at no cost. TFI_FAR if either word is longer than TFI_DISTANCE_LONGEST bytes. */
unsigned tfi_distance(const char *a, size_t a_length, const char *b, size_t b_length);

#endif
