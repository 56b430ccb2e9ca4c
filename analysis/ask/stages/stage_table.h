/* stage_table.h - the times, device work and memory of stages, by the group of their process (a rank) and name.
 *
 * `stages`, `diff` and `report` read these rows. A stage belongs to the thread that opened it. Its parent is the innermost
 * stage open on that thread when it began. Device work belongs to the stage of its launch (attribute.h), whenever it ran,
 * and to all stages around it. A stage that is too deep (open_stages.h) has its times, and no device work.
 * Times are clipped to a window. A stage outside the window is left out.
 * Sums of work whose records were left out count like work, but are not cut: where a filter would cut one, the stage's
 * work is unknown.
 */
#ifndef TFA_STAGE_TABLE_H
#define TFA_STAGE_TABLE_H

#include "ask/ops/op_rows.h"
#include "ask/scope.h"
#include "ask/stages/order.h"
#include "base/sets/intervals.h"
#include "base/sets/rows_by_key.h"
#include "base/statistics.h"
#include "write/short_names.h"

/* The times a device was busy for a stage. */
struct stage_device {
    int64_t device;
    const struct process *piece; /* set for a Kineto trace: the gap between two files of a rank is not idle time */
    struct intervals busy;
};

struct stage_kernel {
    uint32_t name; /* the key: the displayed name; that of an operator, where `operators` of the table is set */
    uint64_t calls;
    uint64_t launched; /* number of calls whose launch is known */
    int64_t device;
    double host; /* ns of the launching calls; one that launched several works is divided among them */
};

/* The last call of a stage, from entry until its work was done; one that waited for its work ends when it is left. */
struct stage_last {
    const struct process *process; /* NULL: there is none */
    uint64_t range;
    int64_t end, time;
};

struct stage_row {
    int64_t group;
    uint32_t name; /* with the group the key */
    uint64_t calls;
    uint32_t parent;    /* the chosen stage around its first call; NAME_NONE: none */
    int64_t first;      /* of its entries */
    struct values each; /* duration of each call from entry to exit; with `exclusive` less its children */
    int64_t host;       /* time it ran; stages of one name nested on one thread count once */
    int64_t wall;       /* time from entry to exit; larger than `host` for a call that left its thread in between */
    int64_t self;       /* time less its direct children */
    int64_t
        done; /* time from entry until its work was done (done_times.h); calls of one thread that overlap count once */
    bool done_unknown; /* of some call, which counts until its exit */
    int64_t cpu; /* processor time of its threads while it ran; calls nested in one of the same name count with that */
    bool cpu_unknown; /* of some call, or of a part of one */
    struct stage_last last;
    uint64_t told;     /* its calls since `since` of the table, of which `last` is one */
    int64_t told_time; /* the sum of what `last` has of one */
    int64_t covered;   /* while counting: this thread's time is counted up to here, `done` up to `done_covered` */
    int64_t done_covered;
    size_t open;         /* while counting: number of its calls open on this thread */
    uint64_t epoch;      /* while counting: the thread of `covered` and `open` */
    uint32_t elsewhere;  /* holder of the device during part of it (other_profilers.h), or NAME_NONE */
    bool by_events;      /* busy times come from CUDA events only */
    bool by_sums;        /* some work has only a sum: busy and idle times are unknown */
    bool work_unknown;   /* some work is unknown, or not known as the filters ask for it; see stage_work_known */
    int64_t work;        /* sum of the durations of the device work launched in it */
    int64_t kernel_time; /* the same of kernels */
    uint64_t launches;   /* number of kernels */
    struct {
        KEYED_ROWS(struct stage_kernel);
    } kernels; /* if the table wants them */
    struct stage_device *device;
    size_t devices, device_capacity;
    struct map device_of;          /* indices of all devices but the first FEW_DEVICES */
    uint64_t seen;                 /* while counting: number of the work added last */
    bool has_peaks, peaks_of_host; /* peaks_of_host: the peaks are the host's, as no device's are known */
    uint64_t peak_allocated, peak_reserved;
    size_t place;                  /* number in order of first appearance */
    bool of_whole_run;             /* by sums of the library: only calls, wall and times of single calls are known */
    const struct whole_sum *whole; /* then the last of the sums; other processes of the rank have further calls */
};

struct stage_table {
    KEYED_ROWS(struct stage_row);
    const uint32_t *one; /* by name: what it counts as, or NAME_NONE; NULL: what --stage chooses counts as itself */
    bool exclusive;
    const struct short_names *kernels; /* names by which kernels count; busy times then count in `all` alone */
    struct stage_row all;              /* with `kernels`: all work in chosen stages */
    struct op_rows *operators; /* set: the processes have no device. The rows get their operators, and a stage's kernels
                                  are its operators by their own time; a call recorded in part makes its work unknown */
    int64_t since; /* of the process that is added next: moment from which calls count for `told` and `last` */
    uint64_t epoch;
    uint64_t unfinished;
    uint64_t deep;            /* number of stages that are too deep */
    uint64_t calls_of_others; /* that are in no row, as there were too many stages for the library's sums */
};

/* Adds all that is known of a process's stages. A process without stages is one stage, NAME_RUN. Exception: a .tfr trace
 * without device work, if other processes of its rank have stages (`alone` is false), adds no times. Work in no stage
 * goes to NAME_OUTSIDE, whose calls are 0. */
void stages_add(struct stage_table *table, struct scope *scope, int64_t group, bool alone);
/* Adds the times alone; each call was done when it was left. */
void stages_add_times(struct stage_table *table, const struct scope *scope, int64_t group, bool alone);
/* True if a process has device work, or sums of it. */
bool stages_have_device(const struct process *process);
static inline bool stage_work_known(const struct stage_row *row)
{
    return !row->work_unknown && (row->elsewhere == NAME_NONE || row->work);
}
/* The same of its kernels, which no sum has. */
static inline bool stage_kernels_known(const struct stage_row *row)
{
    return stage_work_known(row) && !row->by_sums;
}
/* Sets `busy` to the union of a stage's work per device, summed over devices, and `idle` to the rest between first
 * start and last end, summed likewise. */
void stage_busy(struct stage_row *row, int64_t *busy, int64_t *idle);
/* Says on stderr how many stages were too deep, if any. */
void stages_tell_deep(const struct stage_table *table);
void stages_free(struct stage_table *table);

#endif
