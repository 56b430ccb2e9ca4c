/* stages.h - which stage lies in which, and how long each took.
 *
 * A stage belongs to the thread that opened it; its parent is the innermost stage open on that thread when it began. The
 * device's work belongs to the stage it was launched in (attribute.h), whenever it ran.
 * Times are clipped to a window, and a stage that does not touch it is left out.
 */
#ifndef TFA_STAGES_H
#define TFA_STAGES_H

#include "by_rank.h"
#include "choice.h"
#include "intervals.h"
#include "statistics.h"

/* When a device was at work for a stage. */
struct stage_device {
    int64_t device;
    const struct process *piece; /* of a Kineto trace: what lies between two files of a rank is not idle */
    struct intervals busy;
};

struct stage_row {
    uint32_t name;
    int64_t rank;
    uint64_t calls;
    struct values each; /* from entry to exit, one a call; with `exclusive` less its children */
    int64_t host;       /* while it ran; what lies inside the same stage on the same thread counts once */
    int64_t wall;       /* entry to exit: more for what left its thread in between */
    int64_t self;       /* less its direct children */
    int64_t covered;    /* while counting: up to where this thread's time is counted already */
    size_t open;        /* while counting: how many of its calls are open in this thread */
    uint64_t epoch;     /* while counting: the thread that `covered` and `open` are of */
    uint32_t elsewhere; /* who had the device during some of it (elsewhere.h), or NAME_NONE */
    bool by_events;     /* nothing but events tells when a device was busy for it */
    int64_t work;       /* the durations of the device work that was launched in it */
    struct stage_device *device;
    size_t devices, device_capacity;
    struct map device_of; /* places of all but the first of them */
    uint64_t seen;        /* while counting: the work it has already */
    bool is_deep;         /* the work of some process was not kept but summed up (stages_deep.h), and that is: */
    int64_t deep_busy, deep_idle;  /* see stage_busy */
    bool has_peaks, peaks_of_host; /* of the host, as no device's are known */
    uint64_t peak_allocated, peak_reserved;
    size_t place; /* in the order in which the stages were seen */
};

struct stage_table {
    struct stage_row *row;
    size_t count, capacity;
    struct by_rank names; /* places of rows */
    uint64_t epoch;
    uint64_t unfinished;
};

/* Host times of a process's stages. One without any is one stage, NAME_RUN, unless it is of ours, has no device work and
 * others of its rank have stages (`alone` is false). */
void stages_add(struct stage_table *table, const struct choice *choice, bool exclusive, bool alone);
/* The device work of a process, for its stage and all around it. With `exclusive` for the innermost only. What is in no
 * stage goes to NAME_OUTSIDE, whose calls are 0. `alone`: no other process adds to the work on the same devices. */
void stages_add_work(struct stage_table *table, const struct choice *choice, bool exclusive, bool alone);
/* The row of a stage; made if it is not there. Others may move. */
struct stage_row *stages_row(struct stage_table *table, int64_t rank, uint32_t name);
/* Where a process has no device work but times by events: when the devices were busy for its stages. */
void stages_add_events(struct stage_table *table, const struct choice *choice);
/* The most memory that was in use during its stages: of the device that had most, or of the host where none is known. */
void stages_add_memory(struct stage_table *table, const struct choice *choice);
/* The union of a stage's work on each device, summed; and the rest between first start and last end, likewise. */
void stage_busy(struct stage_row *row, int64_t *busy, int64_t *idle);
void stages_free(struct stage_table *table);

/* Places of ranges by their ids. */
void ranges_by_id(struct map *map, const struct process *process);

bool has_stages(const struct process *process);
/* Whether a process without stages is one stage. */
bool is_one_stage(const struct process *process, bool alone);
/* The stages of a process, as places in process->ranges, sorted by thread, then by start, the outer one first. */
size_t *stages_sorted(const struct process *process, size_t *count);

#endif
