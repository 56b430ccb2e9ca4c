/* order.h - finds the ranges of a process that are stages, and sorts them by opening. */
#ifndef TFA_STAGE_ORDER_H
#define TFA_STAGE_ORDER_H

#include "base/sets/intervals.h"
#include "model/model.h"

/* A range of unknown beginning is not a stage: nothing belongs to it. */
static inline bool is_stage(const struct ranges *ranges, size_t range)
{
    return ranges->flags[range] & TFI_RANGE_STAGE && !(ranges->flags[range] & TFI_RANGE_UNTRACKED);
}
bool has_stages(const struct process *process);
/* True if a process without stages counts as one stage. `alone`: no other process of its rank has stages. */
bool is_one_stage(const struct process *process, bool alone);
/* Returns the stages of a process as indices into process->ranges, by thread, then by start, the outer one first. */
size_t *stages_sorted(const struct process *process, size_t *count);
/* Maps range ids to indices into process->ranges. For a range in pieces it is the first piece. */
void ranges_by_id(struct map *map, const struct process *process);
/* Maps the ids of ranges in pieces to indices into process->wholes. */
void wholes_by_id(struct map *map, const struct process *process);
/* Returns the time of the call that a range, or a piece of one, belongs to; `whole` is in process->wholes or MAP_NONE. */
struct interval call_time(const struct process *process, size_t range, uint32_t whole);

#endif
