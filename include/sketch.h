/* sketch.h - the buckets in which durations are counted where single ones are not kept: what both programs agree on.
 *
 * Values below 128 have a bucket each. Above, each power of two is divided into 64 buckets, so that a bucket is 0.8 to 1.6 %
 * wide, and its middle is at most 0.8 % away from each value in it.
 */
#ifndef TFI_SKETCH_H
#define TFI_SKETCH_H

#include <stdint.h>

#define TFI_BUCKETS 3776u

static inline uint32_t tfi_bucket_of(uint64_t value)
{
    uint32_t shift = value < 128 ? 0 : 57u - (uint32_t)__builtin_clzll(value);
    return (shift << 6) + (uint32_t)(value >> shift);
}

/* The middle of a bucket. */
static inline uint64_t tfi_bucket_middle(uint32_t bucket)
{
    if (bucket < 128) return bucket;
    uint32_t shift = (bucket >> 6) - 1;
    return ((uint64_t)(64 + (bucket & 63)) << shift) + ((uint64_t)1 << shift >> 1);
}

#endif
