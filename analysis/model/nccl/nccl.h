/* nccl.h - finds the collectives, or the group of them, that a thread was calling at some time.
 *
 * The collectives of a process are sorted by thread and call meanwhile, and their times are nanoseconds.
 */
#ifndef TFA_NCCL_H
#define TFA_NCCL_H

#include "model/model.h"

/* The outermost group of a thread: its members are called after `from` and before `to`, and launched until `until`. The
 * groups of a thread do not overlap, so all members together are no more than the collectives. */
struct group_span {
    uint32_t thread;
    int64_t from, to, until;
};

struct nccl_calls {
    struct process *process;
    struct map span_of; /* index of the span, by correlation id */
    struct group_span *group;
    size_t groups, group_capacity;
};

/* A kernel, or a node of a graph, that the end of a group launched. */
struct group_launch {
    size_t group;
    int64_t time;
    uint32_t id; /* of the kernel or the node: its index */
};

struct group_launches {
    struct group_launch *launch;
    size_t count, capacity;
};

#define NO_CALL SIZE_MAX

/* Returns the index of the collective in whose call the thread launched something at `time`. NO_CALL: in none; the
 * launch is added to `launches` if it was at the end of a group. */
size_t nccl_call_at(const struct nccl_calls *calls, struct group_launches *launches, uint32_t thread, int64_t time,
                    uint32_t id);
/* Puts the launches of each group together, in the order of time. */
void group_launches_sort(struct group_launches *launches);
/* Returns the index behind the last launch with the group of launch `first`. */
size_t group_launches_end(const struct group_launches *launches, size_t first);
/* Sets `*first` and `*last` to the first collective of a group, and to the one behind the last. */
void nccl_members(const struct nccl_calls *calls, size_t group, size_t *first, size_t *last);
/* Returns a number of the communicator on this rank: a process may hold several ranks of a communicator. */
uint64_t nccl_rank_key(const struct collective *collective);

/* ---- load_replays.c ---- */
/* Puts the runs of captured calls in the place of these. */
void load_replays(const struct nccl_calls *calls);

#endif
