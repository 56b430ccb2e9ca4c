/* ranges.h - the mappings that were recorded, by address: a program may unmap parts of them, or several at once. */
#ifndef TFI_HOST_RANGES_H
#define TFI_HOST_RANGES_H

#include <stdbool.h>
#include <stdint.h>

struct tfi_mapping {
    uint64_t start, end;
};

/* Adds a range that overlaps no other; false if there is no room. Any thread. */
bool tfi_mapping_add(uint64_t start, uint64_t end);

/* Takes out one range that overlaps these addresses; false if there is none. */
bool tfi_mapping_take(uint64_t start, uint64_t end, struct tfi_mapping *range);

#endif
