/* hash.c - draws the seed of a run, and hashes texts with SipHash-1-3. */
#include "base/hash.h"

#include <endian.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

uint64_t hash_seed[4];

/* The fallback mixes an address and the time: better than a constant while the kernel has no random bytes. */
__attribute__((constructor)) static void draw_seed(void)
{
    if (getrandom(hash_seed, sizeof hash_seed, GRND_NONBLOCK) != (ssize_t)sizeof hash_seed) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        for (size_t i = 0; i < 4; i++)
            hash_seed[i] ^= ((uint64_t)now.tv_nsec << 32 ^ (uintptr_t)&now) * (UINT64_C(0x9e3779b97f4a7c15) + 2 * i);
    }
    hash_seed[1] |= 1;
    hash_seed[2] |= 1;
}

static uint64_t rotate(uint64_t value, int by)
{
    return value << by | value >> (64 - by);
}

static inline void stir(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

uint64_t hash_text(const char *text, size_t length)
{
    const uint64_t key[2] = {hash_seed[0], hash_seed[3]};
    uint64_t v[4] = {key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                     key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)};
    size_t at = 0;
    uint64_t word = 0;
    for (; at + sizeof word <= length; at += sizeof word) {
        memcpy(&word, text + at, sizeof word);
        word = le64toh(word);
        v[3] ^= word;
        stir(v);
        v[0] ^= word;
    }
    word = 0;
    memcpy(&word, text + at, length - at);
    word = le64toh(word) | (uint64_t)length << 56;
    v[3] ^= word;
    stir(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) stir(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
