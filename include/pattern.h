/* pattern.h - lists of names, whole numbers, globs and the distance between words: one meaning when recording and when analysing. */
#ifndef TFI_PATTERN_H
#define TFI_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The next entry of a list separated by commas, without blanks round it; false at the end. Longer entries are cut. */
bool tfi_next_name(const char **list, char *entry, size_t size);

/* The text is digits only, at least one, and the number lies from `low` to `high`. */
bool tfi_whole_number(const char *text, uint64_t low, uint64_t high, uint64_t *number);

/* Shell-like match of the whole text: * ? [set] [!set]. */
bool tfi_glob(const char *pattern, const char *text, size_t length, bool fold_case);

#define TFI_DISTANCE_LONGEST 63u
#define TFI_FAR 1000u

/* Edit distance: insertions, deletions, replacements and exchanges of two neighbours count 1 each; what a `*` of `a` stands
 * for counts nothing. TFI_FAR if either word is longer than TFI_DISTANCE_LONGEST bytes. */
unsigned tfi_distance(const char *a, size_t a_length, const char *b, size_t b_length);

#endif
