/* sweep.h - reads the operators and blocks of a trace once more, in order of time, and holds few of them at once.
 *
 * A process of a CPU may have tens of millions of them. Without STREAM_HELD its loading leaves them in the file, and notes
 * the first moment of each chunk. The sweep opens chunks in the order of these moments. A chunk is held until all of it
 * was given out: as long as an operator in it lasted. So memory grows with the depth of operators and the number of
 * threads, not with the length of the run.
 *
 * A question about a part of the run leaves the other chunks out (`when`). Of 5 million operators and as many blocks,
 * `ops --from 180 --to 180.1` then takes 0.62 s of user CPU instead of 1.81 s, and `info`, which only counts, 0.54 s. The
 * first reading stays whole, because info, losses and damage are about the file. `memory` needs all blocks before its
 * part. The text of a Kineto trace has to be unpacked and scanned in any case.
 */
#ifndef TFA_SWEEP_H
#define TFA_SWEEP_H

#include "base/sets/intervals.h"
#include "model/model.h"

struct swept_op {
    int64_t start, end;
    uint64_t flops;
    uint32_t order; /* its number in file order */
    uint32_t thread, name, shapes, modules, stack;
    uint32_t scope; /* enum tfi_scope */
};

struct swept_block {
    int64_t time, bytes, device;
    uint64_t address, allocated, reserved;
    uint64_t other; /* as in struct blocks; those in a file have none */
    uint32_t order; /* its number in file order */
    uint32_t thread, allocator, stack;
    uint8_t kind; /* BLOCK_*; of those in a file BLOCK_NONE or BLOCK_LIBC */
};

/* The sweep reads the values asked for here; the others are 0. */
struct sweep_wants {
    bool ops, op_shapes, op_modules, op_stacks, op_scopes;
    bool blocks, block_places, block_stacks; /* places: allocator, kind, address and totals */
    const struct intervals *when;            /* a merged set; chunks outside it are not read. NULL: all are */
};

struct swept {
    const struct swept_op *op; /* NULL: it is a block */
    const struct swept_block *block;
};

/* True if the process's operators and blocks can stay in the file: there is no work or call of a device to join them
 * with. Once it is false, no further record makes it true. */
bool can_sweep(const struct process *process, const struct trace *trace, struct needs needs);

/* Adds the times of all chunks that lie, at least partly, in `when`, a merged set: no operator of these begins earlier or
 * ends later. */
void sweep_widen(const struct process *process, struct intervals *when);

/* `ahead`: a thread of its own reads the file. */
struct sweep *sweep_open(const struct process *process, struct names *names, struct sweep_wants wants, bool ahead);
/* Gives the next operator or block, valid until the next call: by time, operators before blocks, of operators the outer
 * one first, then in file order. Returns false at the end. */
bool sweep_next(struct sweep *sweep, struct swept *swept);
/* Adds the records that could not be read, although the loading had counted them, to the trace's `unread`. */
void sweep_close(struct sweep *sweep);

#endif
