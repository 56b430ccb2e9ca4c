/* memory_snapshot.h - reads memory snapshots of torch: pickles of a dictionary with `segments` and `device_traces`.
 *
 * torch.cuda.memory._dump_snapshot() writes them, and torch::cuda::_memory_snapshot_pickled() of C++. Each dictionary
 * becomes a row of fixed size as soon as it is read, and texts, frames and stacks are kept once, so that a file of any
 * size takes about as much memory as it has events. A dictionary is known by its keys, wherever it is.
 */
#ifndef TFA_MEMORY_SNAPSHOT_H
#define TFA_MEMORY_SNAPSHOT_H

#include <stdatomic.h>

#include "read/stream/stream.h"
#include "read/torch/snapshot_pool.h"

#define SNAPSHOT_NONE UINT32_MAX    /* no text, no stack */
#define SNAPSHOT_UNKNOWN UINT64_MAX /* no such number in the file */

/* The actions of device_traces. */
enum snapshot_action {
    SNAPSHOT_OTHER, /* of a kind that this program does not know */
    SNAPSHOT_ALLOC,
    SNAPSHOT_FREE_REQUESTED,
    SNAPSHOT_FREE_COMPLETED,
    SNAPSHOT_SEGMENT_ALLOC,
    SNAPSHOT_SEGMENT_FREE,
    SNAPSHOT_SEGMENT_MAP,
    SNAPSHOT_SEGMENT_UNMAP,
    SNAPSHOT_OOM,
    SNAPSHOT_TAKEN,
    SNAPSHOT_ANNOTATE,
    SNAPSHOT_ACTIONS
};
extern const char *const snapshot_actions[SNAPSHOT_ACTIONS]; /* as torch names them */

struct snapshot_event {
    uint64_t address;      /* of SNAPSHOT_OOM: device_free */
    uint64_t size, stream; /* size: as it was requested */
    uint64_t time_us;      /* since 1970; SNAPSHOT_UNKNOWN: torch before 2.1 */
    uint32_t stack;
    uint8_t action;
};

enum snapshot_state { SNAPSHOT_INACTIVE, SNAPSHOT_ALLOCATED, SNAPSHOT_PENDING };

struct snapshot_block {
    uint64_t address, size;
    uint64_t requested; /* SNAPSHOT_UNKNOWN */
    uint32_t stack;
    uint8_t state;
};

/* Neighbours in the table of what a list holds. */
struct snapshot_span {
    uint32_t first, count;
};

/* A list: `spans` of them from snapshot->span[first] on. `items`: the sum of their counts. */
struct snapshot_list {
    size_t first, spans;
    uint64_t items;
};

struct snapshot_segment {
    int64_t device; /* -1: unknown */
    uint64_t address, total, stream;
    uint64_t allocated, active, requested; /* as the file states them; SNAPSHOT_UNKNOWN */
    uint64_t pool[2];                      /* 0, 0: the default pool */
    struct snapshot_list blocks;
    uint32_t stack;
    bool is_small, is_expandable;
};

/* An edge of a user's annotation. */
struct snapshot_mark {
    uint64_t time_us;
    int64_t device;
    uint32_t name;
    bool is_start;
};

struct snapshot_frame {
    uint32_t function, file; /* texts */
    int64_t line;
};

struct snapshot {
    struct snapshot_event *event;
    size_t events, event_capacity;
    struct snapshot_block *block;
    size_t blocks, block_capacity;
    struct snapshot_segment *segment;
    size_t segments, segment_capacity;
    struct snapshot_mark *mark;
    size_t marks, mark_capacity;
    struct snapshot_list *list;
    size_t lists, list_capacity;
    struct snapshot_span *span;
    size_t spans, span_capacity;
    /* A frame is a struct snapshot_frame; a stack is numbers of frames, uint32_t, the innermost first. */
    struct snapshot_pool texts, frames, stacks;
    struct snapshot_list all_segments, all_marks, traces; /* traces: spans of `list`, one list a device */
    struct snapshot_list host_segments, host_trace;       /* of pinned memory; host_trace: its events */
    uint64_t bad;  /* dictionaries and items of lists that are not valid, and were left out */
    uint64_t deep; /* stacks with more frames than a model has; the outermost are left out */
};

/* Recognises a snapshot by the first key of its dictionary. */
bool is_snapshot_file(const char *path, enum file_how how);
/* Returns false if the file is unusable; a note gives the reason. The caller frees the snapshot in every case. `done`
 * counts bytes of the file, for the progress line. */
bool snapshot_read(const char *path, const struct stream_way *way, struct snapshot *snapshot, struct notes *notes,
                   atomic_ullong *done);
void snapshot_free(struct snapshot *snapshot);

/* A place in a list, {0} at first. */
struct snapshot_cursor {
    size_t span;
    uint32_t next;
};
/* Sets `number` to the next row of a list. Returns false at its end. */
static inline bool snapshot_next(const struct snapshot *snapshot, const struct snapshot_list *list,
                                 struct snapshot_cursor *cursor, uint32_t *number)
{
    if (cursor->span == list->spans) return false;
    const struct snapshot_span *span = &snapshot->span[list->first + cursor->span];
    *number = span->first + cursor->next++;
    if (cursor->next == span->count) *cursor = (struct snapshot_cursor){cursor->span + 1, 0};
    return true;
}

#endif
