/* tables_in_file.h - where a trace of ours has the operators and blocks that its process does not hold.
 *
 * model/sweep reads all of them in order of time; load_windows (sweep/load_windows.h) loads those of some times.
 */
#ifndef TFA_TABLES_IN_FILE_H
#define TFA_TABLES_IN_FILE_H

#include "model/needs/needs.h"
#include "read/trace.h"

/* Without STREAM_HELD: the chunks with operators and blocks that stay in the file, in file order. */
struct chunk_in_file {
    uint32_t piece;       /* index in trace->piece */
    uint32_t op, block;   /* number of operators and blocks in earlier chunks */
    uint64_t first, last; /* ticks: none of its operators and blocks begins earlier or ends later */
};

/* The tables of a process that stay in its file. */
struct tables_in_file {
    struct trace *trace; /* open; NULL: the process holds all of its operators and blocks */
    struct chunk_in_file *piece;
    size_t count, capacity;
    uint64_t ops, blocks;
    struct needs needs; /* of the loading */
    bool has_others;    /* some blocks do not count for the question */
    bool is_linked;     /* with STREAM_UNLINKED: some operators are backward ones */
};

/* Return the number of operators and of blocks that a chunk has. */
static inline uint32_t ops_in_chunk(const struct tables_in_file *u, size_t i)
{
    return (uint32_t)(i + 1 < u->count ? u->piece[i + 1].op : u->ops) - u->piece[i].op;
}
static inline uint32_t blocks_in_chunk(const struct tables_in_file *u, size_t i)
{
    return (uint32_t)(i + 1 < u->count ? u->piece[i + 1].block : u->blocks) - u->piece[i].block;
}

#endif
