/* sixteen.h - looks at sixteen bytes of text at once, by the compiler's vectors, on any processor.
 *
 * `a == b` and `a < b` of two such values give a byte of ones where it is true. tfi_sixteen_bits makes a number of it.
 */
#ifndef TFI_SIXTEEN_H
#define TFI_SIXTEEN_H

#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

typedef signed char tfi_sixteen __attribute__((vector_size(16)));

/* The bytes at any address. */
static inline tfi_sixteen tfi_sixteen_at(const void *p)
{
    tfi_sixteen bytes;
    memcpy(&bytes, p, sizeof bytes);
    return bytes;
}

/* The same byte sixteen times. */
static inline tfi_sixteen tfi_sixteen_of(char c)
{
    return (tfi_sixteen){c, c, c, c, c, c, c, c, c, c, c, c, c, c, c, c};
}

/* A bit for each byte of a comparison's result, the lowest for the first one. */
static inline unsigned tfi_sixteen_bits(tfi_sixteen is)
{
#ifdef __SSE2__
    return (unsigned)_mm_movemask_epi8((__m128i)is);
#else
    uint64_t half[2]; /* the product brings bit 7 of each byte into the highest byte, each to a place of its own */
    memcpy(half, &is, sizeof half);
    for (int i = 0; i < 2; i++) half[i] = (half[i] & 0x8080808080808080) / 128 * 0x0102040810204080 >> 56;
    return (unsigned)(half[0] | half[1] << 8);
#endif
}

#endif
