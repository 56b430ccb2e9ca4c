/* load_device.c - what devices did, and the calls that launched it, from the records of our traces.
 *
 * Times of a device stay those of the device library's clock until all is read (process_finish). A call's id comes in a
 * record of its own, which knows the thread by the low half of pthread_self() alone: as threads may become known later, the
 * thread is looked up at the end.
 */
#include <stdio.h>
#include <string.h>

#include "load.h"

/* ---- calls ---- */

void load_correlations(struct load *load)
{
    struct spans *s = &load->process->spans;
    const uint64_t *id = load_column(load, COL_correlation_correlation),
                   *func = load_column(load, COL_correlation_func);
    const uint64_t *thread = load_column(load, COL_correlation_thread), *time = load_column(load, COL_correlation_time);
    const uint64_t *duration = load_column(load, COL_correlation_duration);
    spans_reserve(s, load->group->count);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        uint32_t place = load_func(load, func[i]); /* which may move the functions */
        const struct func *described = &load->process->func[place];
        size_t at = s->table.count++;
        uint64_t end;
        s->start[at] = (int64_t)time[i];
        s->end[at] = (int64_t)(__builtin_add_overflow(time[i], duration[i], &end) ? time[i] : end);
        s->id[at] = id[i];
        s->name[at] = names_add(load->names, described->name, strlen(described->name));
        s->thread[at] = (uint32_t)thread[i];
        s->class[at] = CLASS_API;
    }
}

/* ---- work ---- */

struct work_columns {
    const uint64_t *start, *duration, *correlation, *device, *stream;
};

static size_t add_work(struct load *load, const struct work_columns *from, uint32_t i, enum event_class class)
{
    struct process *p = load->process;
    struct works *w = &p->works;
    works_reserve(w, load->group->count);
    size_t at = w->table.count++;
    uint64_t end;
    w->start[at] = (int64_t)from->start[i];
    w->end[at] = (int64_t)(__builtin_add_overflow(from->start[i], from->duration[i], &end) ? from->start[i] : end);
    w->correlation[at] = from->correlation[i] ? from->correlation[i] : NO_ID;
    w->external[at] = NO_ID;
    w->lane[at] = process_lane(p, from->device ? (int64_t)from->device[i] : -1, (int64_t)from->stream[i], true);
    w->class[at] = (uint8_t) class;
    w->name[at] = NAME_NONE;
    return at;
}

static uint32_t fixed_name(struct load *load, const char *name)
{
    return names_add(load->names, name, strlen(name));
}

void load_kernels(struct load *load)
{
    const uint64_t *name = load_column(load, COL_kernel_name);
    const struct work_columns from = {load_column(load, COL_kernel_start), load_column(load, COL_kernel_duration),
                                      load_column(load, COL_kernel_correlation), load_column(load, COL_kernel_device),
                                      load_column(load, COL_kernel_stream)};
    for (uint32_t i = 0; i < load_rows(load); i++) {
        size_t at = add_work(load, &from, i, CLASS_KERNEL);
        load->process->works.name[at] = load_name(load, name[i]);
    }
}

/* CUpti_ActivityMemcpyKind, named as Kineto names its copies. */
static const char *copy_name(uint64_t direction)
{
    static const char *const names[] = {"Memcpy",      "Memcpy HtoD", "Memcpy DtoH", "Memcpy HtoA",
                                        "Memcpy AtoH", "Memcpy AtoA", "Memcpy AtoD", "Memcpy DtoA",
                                        "Memcpy DtoD", "Memcpy HtoH", "Memcpy PtoP"};
    return names[direction < ARRAY_SIZE(names) ? direction : 0];
}

void load_copies(struct load *load)
{
    const uint64_t *direction = load_column(load, COL_copy_direction);
    const struct work_columns from = {load_column(load, COL_copy_start), load_column(load, COL_copy_duration),
                                      load_column(load, COL_copy_correlation), load_column(load, COL_copy_device),
                                      load_column(load, COL_copy_stream)};
    for (uint32_t i = 0; i < load_rows(load); i++) {
        size_t at = add_work(load, &from, i, CLASS_MEMCPY);
        load->process->works.name[at] = fixed_name(load, copy_name(direction[i]));
    }
}

void load_sets(struct load *load)
{
    const struct work_columns from = {load_column(load, COL_set_start), load_column(load, COL_set_duration),
                                      load_column(load, COL_set_correlation), load_column(load, COL_set_device),
                                      load_column(load, COL_set_stream)};
    for (uint32_t i = 0; i < load_rows(load); i++) {
        size_t at = add_work(load, &from, i, CLASS_MEMSET);
        load->process->works.name[at] = fixed_name(load, "Memset (Device)");
    }
}

void load_syncs(struct load *load)
{
    const struct work_columns from = {load_column(load, COL_sync_start), load_column(load, COL_sync_duration),
                                      load_column(load, COL_sync_correlation), NULL,
                                      load_column(load, COL_sync_stream)};
    for (uint32_t i = 0; i < load_rows(load); i++) {
        size_t at = add_work(load, &from, i, CLASS_SYNC);
        load->process->works.name[at] = fixed_name(load, "Synchronization");
    }
}

/* With TFI_GRAPHS=graph a launch is one piece of work; its nodes have no records then. */
void load_graph_launches(struct load *load)
{
    const struct work_columns from = {
        load_column(load, COL_graph_launch_start), load_column(load, COL_graph_launch_duration),
        load_column(load, COL_graph_launch_correlation), load_column(load, COL_graph_launch_device),
        load_column(load, COL_graph_launch_stream)};
    const uint64_t *graph = load_column(load, COL_graph_launch_graph);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        size_t at = add_work(load, &from, i, CLASS_KERNEL);
        char name[32];
        int length = snprintf(name, sizeof name, "graph %u", (unsigned)graph[i]);
        load->process->works.name[at] = names_add(load->names, name, (size_t)length);
    }
}

/* ---- the end ---- */

void load_devices_end(struct load *load, struct notes *notes)
{
    struct spans *s = &load->process->spans;
    for (size_t i = 0; i < s->table.count; i++) {
        uint32_t serial = map_get(&load->thread_of_pthread, s->thread[i]);
        s->thread[i] = serial == MAP_NONE ? 0 : serial;
    }
    if (load->process->works.table.count && !load->process->clock.device.count) {
        notes_add(notes, LOSS,
                  "has device records and no reading of the device's clock: its work may lie at the wrong time");
    }
}
