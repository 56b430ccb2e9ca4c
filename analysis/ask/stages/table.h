/* table.h - the times, device work and memory of stages, by rank and name.
 *
 * A stage belongs to the thread that opened it. Its parent is the innermost stage open on that thread when it began.
 * Device work belongs to the stage of its launch (attribute.h), whenever it ran.
 * Times are clipped to a window. A stage outside the window is left out.
 * Sums of work whose records were left out count like work, but are not cut: where a filter would cut one, the stage's
 * work is unknown.
 */
#ifndef TFA_STAGE_TABLE_H
#define TFA_STAGE_TABLE_H

#include "ask/choice.h"
#include "ask/stages/order.h"
#include "base/sets/intervals.h"
#include "base/sets/keyed.h"
#include "base/statistics.h"

/* The times a device was busy for a stage. */
struct stage_device {
    int64_t device;
    const struct process *piece; /* set for a Kineto trace: the gap between two files of a rank is not idle time */
    struct intervals busy;
};

struct stage_row {
    int64_t rank;
    uint32_t name; /* with the rank the key */
    uint64_t calls;
    struct values each; /* duration of each call from entry to exit; with `exclusive` less its children */
    int64_t host;       /* time it ran; stages of one name nested on one thread count once */
    int64_t wall;       /* time from entry to exit; larger than `host` for a call that left its thread in between */
    int64_t self;       /* time less its direct children */
    int64_t done; /* time from entry until its work was done (done.h); calls of one thread that overlap count once */
    bool done_unknown; /* of some call */
    int64_t covered;   /* while counting: this thread's time is counted up to here, `done` up to `done_covered` */
    int64_t done_covered;
    size_t open;        /* while counting: number of its calls open on this thread */
    uint64_t epoch;     /* while counting: the thread of `covered` and `open` */
    uint32_t elsewhere; /* holder of the device during part of it (elsewhere.h), or NAME_NONE */
    bool by_events;     /* busy times come from CUDA events only */
    bool by_sums;       /* some work has only a sum: busy and idle times are unknown */
    bool work_unknown;  /* some work is unknown, or not known as the filters ask for it */
    int64_t work;       /* sum of the durations of the device work launched in it */
    struct stage_device *device;
    size_t devices, device_capacity;
    struct map device_of;          /* indices of all devices but the first FEW_DEVICES */
    uint64_t seen;                 /* while counting: number of the work added last */
    bool is_deep;                  /* the work of some process was summed up (deep.h) instead of kept, into these: */
    int64_t deep_busy, deep_idle;  /* see stage_busy */
    bool has_peaks, peaks_of_host; /* peaks_of_host: the peaks are the host's, as no device's are known */
    uint64_t peak_allocated, peak_reserved;
    size_t place; /* number in order of first appearance */
};

struct stage_table {
    KEYED_ROWS(struct stage_row);
    uint64_t epoch;
    uint64_t unfinished;
};

/* Adds the host times of a process's stages, and the times until they were done: `done` is what stages_done returns. A
 * process without stages is one stage, NAME_RUN. Exception: a .tfr trace without device work, if other processes of its
 * rank have stages (`alone` is false), adds nothing. */
void stages_add(struct stage_table *table, const struct choice *choice, const int64_t *done, bool exclusive,
                bool alone);
/* Adds a process's device work to its stage and all stages around it; with `exclusive` to the innermost only. Work in
 * no stage goes to NAME_OUTSIDE, whose calls are 0. `alone`: no other process adds work on the same devices. */
void stages_add_work(struct stage_table *table, const struct choice *choice, bool exclusive, bool alone);
/* Returns the row of a stage; creates it if needed, which may move the other rows. */
struct stage_row *stages_row(struct stage_table *table, int64_t rank, uint32_t name);
/* Adds device times of stages that come without records of the work. */
void stages_add_times(struct stage_table *table, const struct choice *choice, bool exclusive);
/* Adds the peak memory use during a process's stages: that of the device with the most, or of the host if no device's
 * is known. */
void stages_add_memory(struct stage_table *table, const struct choice *choice);
/* Sets `busy` to the union of a stage's work per device, summed over devices, and `idle` to the rest between first
 * start and last end, summed likewise. */
void stage_busy(struct stage_row *row, int64_t *busy, int64_t *idle);
void stages_free(struct stage_table *table);

#endif
