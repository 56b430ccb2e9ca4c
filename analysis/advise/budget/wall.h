/* wall.h - the wall time of each rank as a budget: leaves that sum to it, because each moment belongs to one of them.
 *
 * A moment belongs to the first leaf that it fits, in the order of leaves.def. With device work that order begins with
 * what the devices do, by the kinds of `timeline`; the host explains only moments in which they are idle. Time that nothing
 * explains is a leaf too. A leaf that other facts explain later is a row of leaves.def and a call of
 * add_moment in wall.c.
 *
 * The wall time of a rank is the time from the first to the last record of its processes; each PyTorch trace is a piece of
 * its own, as in rank_times.h. Of a stage it is the time a call of it was open or work launched in it was not done, of a
 * step the time from the host's beginning of it to its end.
 * The host is all processes of the rank, without those that only serve another one: beside a process that launches device
 * work or waits for a DataLoader, others count no more.
 */
#ifndef TFA_WALL_H
#define TFA_WALL_H

#include "ask/reduction.h"
#include "ask/work_kinds.h"
#include "base/sets/intervals.h"

enum leaf {
#define LEAF(id, on_device, on_host, command, host_command, meaning) LEAF_##id,
#include "advise/budget/leaves.def"
    NR_LEAVES
};

struct leaf_row {
    const char *path[2], *command[2]; /* of ranks without and with device work */
};
extern const struct leaf_row leaf_rows[NR_LEAVES];

/* A part of a rank's time that has a budget. */
struct wall_part {
    uint32_t stage;                 /* its name; NAME_NONE: the whole rank */
    uint32_t step;                  /* the N of ProfilerStep#N; NO_PLACE: none */
    bool unknown;                   /* records of some of its time are not in the trace */
    struct intervals window;        /* merged by walls_collect */
    int64_t total, time[NR_LEAVES]; /* set by walls_collect; the times sum to total */
};

/* The summary of a process, and of a rank once united. */
struct wall {
    int64_t rank;
    uint64_t works;
    bool waits;          /* for a DataLoader */
    int64_t first, last; /* of our traces, whose time is one piece; first is above last: none */
    struct intervals
        happens[NR_LEAVES];     /* merged: when each leaf's events happen, exclusive of nothing; empty once divided */
    struct intervals explained; /* likewise, where there are samples: what these need not explain */
    struct intervals loading;   /* set by walls_collect: when a thread waits for a DataLoader */
    struct wall_part *part;     /* the first one is the whole rank unless --stage or --step is given */
    size_t parts, part_capacity;
    bool has_all; /* set by walls_collect: behind its parts stands one that is all of them together */
};

struct walls {
    struct wall *wall; /* by rank */
    size_t count;
    bool unknown; /* of some part */
};

/* Returns the time of a rank that is judged: the whole rank, or all that --stage or --step chooses. NULL: it is unknown. */
const struct wall_part *wall_judged(const struct wall *wall);
/* Returns its work: the time without that of the start. */
static inline int64_t wall_work(const struct wall_part *part)
{
    return part->total - part->time[LEAF_START];
}

struct needs wall_needs(const struct options *options);
/* Makes a struct wall of a process. */
extern const struct reduction wall_reduction;
/* Unites the summaries of the chosen processes by rank and fills the times. `taken` has a struct wall for each, which is
 * empty afterwards. */
void walls_collect(struct walls *walls, const struct selection *chosen, void *const *taken);
void walls_free(struct walls *walls);
void wall_free(struct wall *wall);

/* Return the leaf of a kernel or an operator by its name. */
enum leaf kernel_leaf(const struct name *name);
enum leaf operator_leaf(const struct name *name);

#endif
