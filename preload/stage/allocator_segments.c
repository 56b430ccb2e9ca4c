/* allocator_segments.c - keeps the pieces of reserved memory that calls of CUDA gave to an allocator, by address.
 *
 * An allocator that needs memory gets it from CUDA and reports the block that needed it, with its new total. By then it
 * has either one piece of cudaMalloc that begins with the block, or mappings of cuMemMap, the last of which holds the
 * block's end. Mappings are therefore noted when they are made, without an owner. Those that add up to the growth are
 * the allocator's.
 *
 * All this happens in one thread, under the allocator's lock: the allocator changes its totals only after the call that
 * frees. An allocator reports its next total as a whole, so a piece that is not known here makes the total too high until
 * then, and no longer. Calls that free other memory find nothing in the table.
 */
#include "stage/allocator_segments.h"

#include "base/block_sizes.h"
#include "base/process.h"
#include "control/config.h"
#include "stage/allocator_totals.h"

enum { OWNER_SHIFT = 56, GRAIN_BITS = 21 }; /* mappings begin and end at multiples of 2 MiB */
#define BYTES_MASK (((uint64_t)1 << OWNER_SHIFT) - 1)

/* Values are bytes, with the number of the owning device, counted from 1, in the high byte. */
static struct tfi_blocks pieces;

static void put(uint64_t address, uint64_t bytes, uint32_t owner)
{
    if (address && bytes && bytes <= BYTES_MASK)
        tfi_block_put(&pieces, address, bytes | (uint64_t)owner << OWNER_SHIFT);
}

void tfi_segment_mapped(uint64_t address, uint64_t bytes)
{
    if (!__atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED) || !tfi_config_may_have(TFI_ACTIVITY_MEM)) return;
    put(address, bytes, 0);
}

/* Gives mappings of `bytes` in all, which end with the one that holds the address `last`, to an owner. Returns the bytes
 * that were found. */
static uint64_t own_mappings(uint64_t last, uint64_t bytes, uint32_t owner)
{
    uint64_t found = 0, at = last >> GRAIN_BITS << GRAIN_BITS, steps = (bytes >> GRAIN_BITS) + 1;
    for (; found < bytes && steps && at; steps--, at -= (uint64_t)1 << GRAIN_BITS) {
        uint64_t piece = tfi_block_take(&pieces, at);
        if (!piece) continue;
        bool is_free = piece <= BYTES_MASK;
        if (is_free) found += piece;
        put(at, piece & BYTES_MASK, is_free ? owner : (uint32_t)(piece >> OWNER_SHIFT));
    }
    return found;
}

void tfi_segment_grown(int32_t device, uint64_t block, uint64_t bytes, uint64_t grown)
{
    uint32_t owner = (uint32_t)device + 1;
    if (device < 0 || owner > UINT8_MAX || !bytes) return;
    if (!own_mappings(block + bytes - 1, grown, owner)) put(block, grown, owner);
}

/* A call may unmap several pieces, or the first part of what is held as one because its mappings were not noted. */
void tfi_segment_returned(uint64_t address, uint64_t bytes)
{
    bool whole = bytes == 0;
    do {
        uint64_t piece = address ? tfi_block_take(&pieces, address) : 0, size = piece & BYTES_MASK;
        uint32_t owner = (uint32_t)(piece >> OWNER_SHIFT);
        if (!piece) return;
        if (!whole && size > bytes) {
            put(address + bytes, size - bytes, owner);
            size = bytes;
        }
        if (owner) tfi_allocator_totals_returned((int32_t)owner - 1, size);
        address += size;
        bytes -= whole ? 0 : size;
    } while (bytes);
}
