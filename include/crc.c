/* crc.c - computes CRC-32 by carry-less multiplication (PCLMULQDQ), 64 bytes at a time; by zlib where there is none.
 *
 * The method is Gopal and others', "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (2009):
 * four 128-bit remainders are folded forward over the data, then into one, then into 64 and 32 bits by Barrett's
 * reduction. The constants are powers of x modulo the polynomial 0x104c11db7, reflected, as that paper lists them.
 *
 * Both programs compile this file. Threads of the profiled program call it where the background thread is behind. With
 * zlib's CRC the analyser would spend a fifth of the time of reading a .json.gz in it.
 */
#include "crc.h"

#include <stdbool.h>
#include <zlib.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>

#define CLMUL __attribute__((target("pclmul,sse4.1")))

CLMUL static inline __m128i load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

/* Moves a remainder forward by the distance that the constants stand for, and adds the data found there. */
CLMUL static inline __m128i fold(__m128i remainder, __m128i constants, __m128i data)
{
    __m128i low = _mm_clmulepi64_si128(remainder, constants, 0x00);
    return _mm_xor_si128(_mm_xor_si128(low, _mm_clmulepi64_si128(remainder, constants, 0x11)), data);
}

/* Reduces 128 bits to 32. */
CLMUL static uint32_t reduce(__m128i x, __m128i by16)
{
    const __m128i low_words = _mm_setr_epi32(-1, 0, -1, 0), by8 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, by16, 0x10));
    x = _mm_xor_si128(_mm_srli_si128(x, 4), _mm_clmulepi64_si128(_mm_and_si128(x, low_words), by8, 0x00));
    __m128i q = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(x, low_words), barrett, 0x10), low_words);
    x = _mm_xor_si128(x, _mm_clmulepi64_si128(q, barrett, 0x00));
    return (uint32_t)_mm_extract_epi32(x, 1);
}

/* The CRC of `bytes` bytes, a multiple of 16 and at least 64. `crc` and the result lack the inversions at both ends. */
CLMUL static uint32_t crc_of_blocks(const uint8_t *p, size_t bytes, uint32_t crc)
{
    const __m128i by64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4), by16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    __m128i x[4] = {_mm_xor_si128(load(p), _mm_cvtsi32_si128((int)crc)), load(p + 16), load(p + 32), load(p + 48)};
    for (p += 64, bytes -= 64; bytes >= 64; p += 64, bytes -= 64)
#pragma GCC unroll 4 /* keeps the remainders in registers: in memory, each waits for its own store */
        for (int i = 0; i < 4; i++) x[i] = fold(x[i], by64, load(p + 16 * i));
    for (int i = 1; i < 4; i++) x[0] = fold(x[0], by16, x[i]);
    for (; bytes; p += 16, bytes -= 16) x[0] = fold(x[0], by16, load(p));
    return reduce(x[0], by16);
}

/* True if the processor is known to have PCLMULQDQ and SSE4.1. CPUID tells; in a virtual machine it takes 20 microseconds,
 * as long as zlib needs for 20 KB. So the first large piece asks, and a process with small ones only never does. The
 * compiler's own way would ask in a constructor, in each program that is started. */
static bool has_pclmul(size_t bytes)
{
    enum { WORTH_ASKING = 16 << 10 };
    static uint32_t answer; /* 1: no, 2: yes */
    uint32_t known = __atomic_load_n(&answer, __ATOMIC_RELAXED), a, b, c = 0, d;
    if (!known && bytes >= WORTH_ASKING) {
        known = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_PCLMUL) && (c & bit_SSE4_1) ? 2 : 1;
        __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
    }
    return known == 2;
}
#endif

uint32_t tfi_crc(uint32_t crc, const void *data, size_t bytes)
{
#ifdef __x86_64__
    size_t most = bytes & ~(size_t)15;
    if (most >= 64 && has_pclmul(most))
        return (uint32_t)crc32_z(~crc_of_blocks(data, most, ~crc), (const uint8_t *)data + most, bytes - most);
#endif
    return (uint32_t)crc32_z(crc, data, bytes);
}
