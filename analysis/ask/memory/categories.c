/* categories.c - adds up the rows of torch's memory timeline by category. */
#include "ask/memory/categories.h"

const char *const memory_categories[MEMORY_CATEGORIES] = {
    "parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd_detail", "unknown"};
const char *const memory_kinds[BLOCK_KINDS] = {[BLOCK_NONE] = NULL,
                                               [BLOCK_DEVICE] = "device",
                                               [BLOCK_MANAGED] = "managed",
                                               [BLOCK_POOL] = "pool",
                                               [BLOCK_ARRAY] = "array",
                                               [BLOCK_PINNED] = "pinned",
                                               [BLOCK_PHYSICAL] = "physical",
                                               [BLOCK_MAPPED] = "mapped",
                                               [BLOCK_RESERVED] = "reserved",
                                               [BLOCK_REGISTERED] = "registered",
                                               [BLOCK_LIBC] = NULL};
const char *const memory_actions[NR_ACTIONS] = {[ACTION_PREEXISTING] = "preexisting",
                                                [ACTION_CREATE] = "create",
                                                [ACTION_INCREMENT_VERSION] = "increment_version",
                                                [ACTION_DESTROY] = "destroy"};

void category_walk_init(struct category_walk *walk, const struct process *process)
{
    *walk = (struct category_walk){.process = process};
}

bool category_walk_row(struct category_walk *walk)
{
    if (walk->next == walk->process->memory_rows) return false;
    const struct memory_row *row = &walk->process->memory_row[walk->next++];
    walk->time = row->time;
    walk->bytes[row->category] = add_ns(walk->bytes[row->category], row->bytes); /* saturates */
    walk->total = add_ns(walk->total, row->bytes);
    return true;
}

bool category_walk_moment(struct category_walk *walk)
{
    const struct process *p = walk->process;
    if (!category_walk_row(walk)) return false;
    while (walk->next < p->memory_rows && p->memory_row[walk->next].time == walk->time) category_walk_row(walk);
    if (walk->time < 0) walk->time = p->first;
    return true;
}
