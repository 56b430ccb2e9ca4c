/* snapshot_trace.h - makes blocks of the events of a memory snapshot, device by device. */
#ifndef TFA_SNAPSHOT_TRACE_H
#define TFA_SNAPSHOT_TRACE_H

#include "model/model.h"
#include "read/torch/memory_snapshot.h"

/* Torch does not tell the thread of an event. */
#define SNAPSHOT_THREAD 1

/* A block from before the first event. */
struct older_block {
    uint64_t address, size, stream;
    uint32_t stack; /* of the snapshot; SNAPSHOT_NONE */
};

/* An event that allocates at an address in use: the end of the earlier block was not recorded. */
struct lost_end {
    uint32_t event;
    uint64_t size; /* of the earlier block */
};

/* The events of one device. */
struct device_trace {
    int64_t device; /* DEVICE_HOST: pinned memory */
    struct snapshot_list events;
    struct older_block *older;
    size_t olders, older_capacity;
    struct lost_end *lost;
    size_t losts, lost_capacity;
    size_t first_older; /* its first row in the model */
    uint64_t reserved;  /* by its segments: at the end, and before the first event once the events are judged */
    uint64_t bytes;     /* of the older blocks */
    uint64_t astray;    /* blocks that the segments and the events disagree about */
    bool is_doubted;    /* what is reserved contradicts what is allocated, so that it is unknown */
    bool has_requests;  /* the events tell when frees are requested */
    struct map live;    /* index of the event that allocated, by address */
    struct map pending; /* addresses whose free was requested and is not completed */
};

/* Judges the events in order, and collects the blocks that are older. Each event gets the action that it has in the model. */
void snapshot_trace_judge(struct device_trace *trace, struct snapshot *snapshot);
/* Takes a block that the segments have in use at the end. */
void snapshot_trace_in_use(struct device_trace *trace, const struct snapshot *snapshot,
                           const struct older_block *block);
/* Called after all blocks in use. */
void snapshot_trace_judged(struct device_trace *trace, const struct snapshot *snapshot);

/* Where the rows go. */
struct snapshot_rows {
    struct process *process;
    uint32_t allocator, pinned; /* names of the allocators of devices and of pinned memory */
    const uint32_t *stack;      /* the model's, by the snapshot's */
    bool keeps;                 /* else nothing is added, and the events are judged alone */
    bool has_time;              /* else the number of an event stands for its time */
};
/* Adds the older blocks; of all devices before any event. */
void snapshot_trace_add_older(struct device_trace *trace, const struct snapshot_rows *rows);
void snapshot_trace_add(struct device_trace *trace, const struct snapshot *snapshot, const struct snapshot_rows *rows);
void snapshot_trace_free(struct device_trace *trace);

#endif
