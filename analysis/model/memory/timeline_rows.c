/* timeline_rows.c - loads the raw rows of torch's memory timeline.
 *
 * The file names no process and no device. Rows without a time are older than the profile.
 */
#include "model/load/load_kineto.h"

struct counting {
    struct process *process;
    uint64_t of_action[NR_ACTIONS];
    bool keeps; /* rows are wanted */
};

static void on_row(void *context, const struct memory_row *row)
{
    struct counting *counting = context;
    struct process *p = counting->process;
    counting->of_action[row->action]++;
    if (row->time >= 0) {
        p->first = p->has_time ? MIN(p->first, row->time) : row->time;
        p->last = p->has_time ? MAX(p->last, row->time) : row->time;
        p->has_time = true;
    }
    if (!counting->keeps) return;
    p->memory_row = mem_grow(p->memory_row, &p->memory_row_capacity, p->memory_rows + 1, sizeof *p->memory_row);
    p->memory_row[p->memory_rows++] = *row;
}

bool load_memory_rows(const char *path, const struct stream_way *way, struct names *names, struct needs needs,
                      struct process *process, struct notes *notes, atomic_ullong *done)
{
    static const char *const actions[NR_ACTIONS] = {[ACTION_PREEXISTING] = "preexisting",
                                                    [ACTION_CREATE] = "create",
                                                    [ACTION_INCREMENT_VERSION] = "increment_version",
                                                    [ACTION_DESTROY] = "destroy"};
    struct counting counting = {.process = process, .keeps = needs.all_blocks};
    const struct memory_rows_sink sink = {&counting, on_row};
    struct memory_rows_damage damage;
    (void)names; /* rows have no names */
    bool usable = memory_rows_read(path, way->how, &sink, &damage, notes, done);
    for (unsigned i = ACTION_PREEXISTING; i < NR_ACTIONS; i++)
        if (counting.of_action[i]) process_count(process, i, actions[i], counting.of_action[i]);
    process->clock.has_axis = true;
    if (damage.bad) process_lose(process, "damaged", damage.bad, true);
    process->complete = usable && !notes_have(notes, LOSS);
    return usable;
}
