/* varint.h - decodes the numbers of a trace: little-endian words, varints, zigzag.
 *
 * Decoding varints dominates the time of a question on a large trace. The common case, one byte, is tested first, and
 * the functions are inline for that reason.
 */
#ifndef TFA_VARINT_H
#define TFA_VARINT_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

/* Reads one varint of up to ten bytes. Returns NULL if it does not end. */
static inline const uint8_t *varint_long(const uint8_t *p, const uint8_t *end, uint64_t *value)
{
    uint64_t v = 0;
    for (unsigned shift = 0; p < end && shift < 64; shift += 7) {
        uint8_t byte = *p++;
        v |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *value = v;
            return p;
        }
    }
    return NULL;
}

static inline const uint8_t *varint(const uint8_t *p, const uint8_t *end, uint64_t *value)
{
    if (p < end && *p < 128) {
        *value = *p;
        return p + 1;
    }
    if (end - p >= 2 && p[1] < 128) {
        *value = (p[0] & 127u) | (uint64_t)p[1] << 7;
        return p + 2;
    }
    return varint_long(p, end, value);
}

static inline uint64_t unzigzag(uint64_t value)
{
    return value >> 1 ^ -(value & 1);
}

static inline uint16_t get16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return le16toh(v);
}

static inline uint32_t get32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return le32toh(v);
}

static inline uint64_t get64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return le64toh(v);
}

#endif
