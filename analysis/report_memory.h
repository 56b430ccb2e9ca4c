/* report_memory.h - what one process allocated in one stage, for the two files about it. */
#ifndef TFA_REPORT_MEMORY_H
#define TFA_REPORT_MEMORY_H

#include "report.h"

struct view {
    const struct report *report;
    const struct process *process;
    int64_t start, end;
    uint32_t *block;      /* places in the process's blocks, by time, up to the end */
    size_t blocks, first; /* the first one inside */
    uint32_t *oom;        /* places in the process's ooms, by time, inside */
    size_t ooms;
    int64_t devices; /* highest number of a device + 1 */
    bool has_stacks, has_blocks, has_host;
    struct map stacks, frames; /* what the pickle remembers them as, by their numbers */
};

static inline int64_t block_magnitude(int64_t bytes)
{
    return bytes >= 0 ? bytes : -MAX(bytes, -INT64_MAX);
}

/* Writes the snapshot that torch.cuda._memory_viz reads. */
void report_put_snapshot(struct out *out, struct view *view);

#endif
