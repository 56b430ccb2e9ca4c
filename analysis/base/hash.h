/* hash.h - hashes for tables whose keys a trace chooses.
 *
 * Each run draws its own seed, so that nobody can write a file whose keys all collide. No answer may depend on a
 * hash: tables are only looked up, never iterated.
 */
#ifndef TFA_HASH_H
#define TFA_HASH_H

#include <stddef.h>
#include <stdint.h>

extern uint64_t hash_seed[4]; /* written once, before main; two of them are odd */

static inline uint64_t hash_number(uint64_t number)
{
    uint64_t hash = (number ^ hash_seed[0]) * hash_seed[1];
    hash = (hash ^ hash >> 32) * hash_seed[2];
    return hash ^ hash >> 32;
}

static inline uint64_t hash_numbers(uint64_t a, uint64_t b)
{
    return hash_number(hash_number(a) + b);
}

uint64_t hash_text(const char *text, size_t length);

#endif
