/* report_memory.h - the allocations of one process in one stage, for the two memory files. */
#ifndef TFA_REPORT_MEMORY_H
#define TFA_REPORT_MEMORY_H

#include "ask/ops/grants.h"
#include "commands/report/report.h"

struct view {
    const struct report *report;
    const struct process *process;
    int64_t start, end;
    uint32_t *block;      /* indices into the process's blocks up to the stage's end, sorted by time */
    size_t blocks, first; /* first: index in `block` of the first one inside the stage */
    uint32_t *oom;        /* indices into the process's ooms inside the stage, sorted by time */
    size_t ooms;
    struct grants grants; /* up to the stage's end */
    int64_t devices;      /* highest device number + 1 */
    bool has_stacks, has_blocks, has_host;
    struct map stacks, frames; /* the pickle's memo numbers of stacks and frames */
};

static inline int64_t block_magnitude(int64_t bytes)
{
    return bytes >= 0 ? bytes : -MAX(bytes, -INT64_MAX);
}

/* Writes the snapshot that torch.cuda._memory_viz reads. */
void report_put_snapshot(struct out *out, struct view *view);

#endif
