/* memory.c - the library's own memcpy, memmove and memset, which no tool that replaces libc's sees.
 *
 * In a program built with ThreadSanitizer libc's functions report what they write. The library's locks are not among
 * those that it knows, so it took our own memory for a race of the program. What only reads needs no copy here.
 * The compiler's own calls come here too. They are hidden, so that the program keeps its functions.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#undef memcpy
#undef memmove
#undef memset

typedef unsigned __int128 __attribute__((may_alias, aligned(1))) block;
typedef uint64_t __attribute__((may_alias, aligned(1))) half;
typedef uint32_t __attribute__((may_alias, aligned(1))) quarter;

/* Keeps the compiler from making a call of memcpy or memset out of a loop. */
#define STEP(pointer) __asm__("" : "+r"(pointer))

/* Copies at most 16 bytes. All is read before anything is written, so the two may overlap. */
static inline void copy_few(char *to, const char *from, size_t bytes)
{
    if (bytes >= sizeof(half)) {
        half first = *(const half *)from, last = *(const half *)(from + bytes - sizeof(half));
        *(half *)to = first;
        *(half *)(to + bytes - sizeof(half)) = last;
    } else if (bytes >= sizeof(quarter)) {
        quarter first = *(const quarter *)from, last = *(const quarter *)(from + bytes - sizeof(quarter));
        *(quarter *)to = first;
        *(quarter *)(to + bytes - sizeof(quarter)) = last;
    } else if (bytes) {
        char first = from[0], middle = from[bytes / 2], last = from[bytes - 1];
        to[0] = first;
        to[bytes / 2] = middle;
        to[bytes - 1] = last;
    }
}

/* From the first byte to the last, for a target that lies below the source or apart from it. */
static inline void copy_upwards(char *to, const char *from, size_t bytes)
{
    char *end = to + bytes - sizeof(block);
    block last = *(const block *)(from + bytes - sizeof(block));
    for (; to < end; to += sizeof(block), from += sizeof(block)) {
        *(block *)to = *(const block *)from;
        STEP(from);
    }
    *(block *)end = last;
}

static void copy_downwards(char *to, const char *from, size_t bytes)
{
    block first = *(const block *)from;
    for (size_t left = bytes; left > sizeof(block); left -= sizeof(block)) {
        *(block *)(to + left - sizeof(block)) = *(const block *)(from + left - sizeof(block));
        STEP(from);
    }
    *(block *)to = first;
}

void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
    if (bytes <= sizeof(block)) copy_few(to, from, bytes);
    else copy_upwards(to, from, bytes);
    return to;
}

void *memmove(void *to, const void *from, size_t bytes)
{
    if (bytes <= sizeof(block)) copy_few(to, from, bytes);
    else if ((uintptr_t)to - (uintptr_t)from >= bytes) copy_upwards(to, from, bytes);
    else copy_downwards(to, from, bytes);
    return to;
}

void *memset(void *to, int byte, size_t bytes)
{
    half eight = (unsigned char)byte * (uint64_t)0x0101010101010101u;
    block all = (block)eight << 64 | eight;
    char *at = to, *end = at + bytes - sizeof(block);
    if (bytes < sizeof(block)) {
        copy_few(to, (const char *)&all, bytes);
        return to;
    }
    for (; at < end; at += sizeof(block)) {
        *(block *)at = all;
        STEP(at);
    }
    *(block *)end = all;
    return to;
}
