/* occupancy.c - estimates which share of a device's warps a kernel keeps busy, from its launch.
 *
 * A multiprocessor holds as many blocks at once as its warps, places for blocks, registers and shared memory allow. Kineto
 * takes the smaller of that number and the blocks of the grid by multiprocessor, times the threads of a block, divided by the
 * threads that the multiprocessor holds, in whole percent.
 *
 * Kineto says 0 for a block of more than 48 KiB of shared memory, which a kernel must ask for: such a kernel has run, and here
 * its memory counts as it is.
 */
#include "ask/device/occupancy.h"

#include <math.h>
#include <stddef.h>

#include "base/util.h"

enum {
    WARP = 32,
    REGISTERS = 65536,
    REGISTERS_GRANULARITY = 256,
    CHECKED_PARTS = 4, /* a launch must fit these, also on 6.0, which has two */
    RESERVED = 1024    /* bytes of shared memory that the driver takes of a block, from 8.0 on */
};

static const struct multiprocessor {
    uint32_t capability, warps, blocks, shared, granularity, parts;
} multiprocessors[] = {
#define MULTIPROCESSOR(major, minor, warps, blocks, kib, granularity, parts)                                           \
    {(major)*100 + (minor), warps, blocks, (kib)*1024, granularity, parts},
#include "ask/device/occupancy.def"
};

static uint64_t round_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

/* Returns the number of blocks that one multiprocessor holds at once. */
static uint64_t blocks_at_once(const struct multiprocessor *m, const struct block_needs *block)
{
    uint64_t warps = round_up(block->threads, WARP) / WARP;
    uint64_t registers = round_up(block->registers * WARP, REGISTERS_GRANULARITY); /* of a warp */
    uint64_t shared = round_up(block->shared + (m->capability >= 800 ? RESERVED : 0), m->granularity);
    uint64_t most = MIN(m->warps / warps, m->blocks);
    if (registers * round_up(warps, CHECKED_PARTS) > REGISTERS) return 0;
    if (registers) most = MIN(most, REGISTERS / m->parts / registers * m->parts / warps);
    if (shared) most = MIN(most, m->shared / shared);
    return most;
}

double occupancy_estimate(uint32_t capability, const struct block_needs *block, double blocks)
{
    const struct multiprocessor *m = multiprocessors, *end = m + ARRAY_SIZE(multiprocessors);
    const uint64_t sensible = 1 << 20;
    while (m < end && m->capability != capability) m++;
    if (m == end || !block->threads || block->threads > sensible || block->registers > sensible ||
        block->shared > sensible || !(blocks > 0))
        return NAN;
    uint64_t most = blocks_at_once(m, block);
    if (!most) return NAN;                             /* no such launch succeeds */
    float at_once = fminf((float)blocks, (float)most); /* as in Kineto, where halves of a percent round as floats do */
    float share = at_once * (float)block->threads / (float)(m->warps * WARP);
    return floor(0.5 + (double)share * 100);
}
