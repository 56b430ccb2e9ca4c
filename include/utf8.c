/* utf8.c - measures and writes UTF-8 sequences, and knows those that act on a terminal.
 *
 * Both programs compile this file. It runs inside the profiled process: it allocates nothing and keeps no state.
 */
#include "utf8.h"

size_t tfi_utf8_length(const char *bytes, size_t left)
{
    const unsigned char *u = (const unsigned char *)bytes;
    if (u[0] < 0x80) return 1;
    size_t length = u[0] >= 0xf0 ? 4 : u[0] >= 0xe0 ? 3 : 2;
    if (u[0] < 0xc2 || u[0] > 0xf4 || length > left) return 0;
    for (size_t i = 1; i < length; i++)
        if ((u[i] & 0xc0) != 0x80) return 0;
    if ((u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xed && u[1] > 0x9f)) return 0;
    if ((u[0] == 0xf0 && u[1] < 0x90) || (u[0] == 0xf4 && u[1] > 0x8f)) return 0;
    return length;
}

size_t tfi_utf8_put(char *to, uint32_t code)
{
    static const uint8_t lead[] = {0, 0xc0, 0xe0, 0xf0};
    size_t more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    for (size_t i = more; i > 0; i--, code >>= 6) to[i] = (char)(0x80 | (code & 0x3f));
    to[0] = (char)(lead[more] | code);
    return more + 1;
}

bool tfi_utf8_acts(const char *bytes, size_t left, size_t *length, uint32_t *code)
{
    const unsigned char *u = (const unsigned char *)bytes;
    *length = tfi_utf8_length(bytes, left);
    uint32_t c = *code = *length == 1   ? u[0]
                         : *length == 2 ? (u[0] & 31u) << 6 | (u[1] & 63u)
                         : *length == 3 ? (u[0] & 15u) << 12 | (u[1] & 63u) << 6 | (u[2] & 63u)
                                        : 0x10000; /* no character of four bytes acts */
    return !*length || c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}
