/* ranges.c - keeps the recorded mappings in a sorted array, under a lock. */
#include "host/ranges.h"

#include <string.h>

#include "base/sys.h"

enum { MOST = 65536 };

static struct tfi_mapping *ranges;
static uint32_t count;
static struct tfi_lock lock; /* free again in the child of a fork */

/* Returns the first range that ends after the address. */
static uint32_t after(uint64_t address)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ranges[middle].end <= address) low = middle + 1;
        else high = middle;
    }
    return low;
}

bool tfi_mapping_add(uint64_t start, uint64_t end)
{
    bool added = false;
    if (!tfi_map_once(&ranges, MOST * sizeof *ranges) || !tfi_lock(&lock)) return false;
    if (count < MOST) {
        uint32_t at = after(start);
        memmove(&ranges[at + 1], &ranges[at], (count - at) * sizeof *ranges);
        ranges[at] = (struct tfi_mapping){start, end};
        count++;
        added = true;
    }
    tfi_unlock(&lock);
    return added;
}

bool tfi_mapping_take(uint64_t start, uint64_t end, struct tfi_mapping *range)
{
    bool found = false;
    if (!__atomic_load_n(&count, __ATOMIC_RELAXED) || !tfi_lock(&lock)) return false;
    uint32_t at = after(start);
    if (at < count && ranges[at].start < end) {
        *range = ranges[at];
        memmove(&ranges[at], &ranges[at + 1], (count - at - 1) * sizeof *ranges);
        count--;
        found = true;
    }
    tfi_unlock(&lock);
    return found;
}
