/* device.c - loads device work, and the calls that launched it, from the records of our traces.
 *
 * Times of device work stay in the device library's clock until process_finish. A call's correlation id is in a
 * record of its own, which has only the low half of pthread_self() for its thread. Threads may become known later, so
 * the thread is resolved at the end.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kernel_names.h"
#include "model/load/load.h"

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
        uint32_t place = load_func(load, func[i]); /* this call may move process->func */
        const struct func *described = &load->process->func[place];
        size_t at = s->table.count++;
        s->start[at] = (int64_t)time[i];
        s->end[at] = load_end(time[i], duration[i]);
        s->id[at] = id[i];
        s->name[at] = names_add(load->names, described->name, strlen(described->name));
        s->thread[at] = (uint32_t)thread[i];
        s->event_class[at] = CLASS_API;
    }
}

/* ---- devices ---- */

void load_device(struct load *load)
{
    struct process *p = load->process;
    const uint64_t *number = load_column(load, COL_device_device), *name = load_column(load, COL_device_name);
    const uint64_t *high = load_column(load, COL_device_uuid_high), *low = load_column(load, COL_device_uuid_low);
    const uint64_t *pci = load_column(load, COL_device_pci), *memory = load_column(load, COL_device_memory);
    const uint64_t *units = load_column(load, COL_device_units), *capability = load_column(load, COL_device_capability);
    const uint64_t *simulated = load_column(load, COL_device_simulated);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        if (find_device(p, (uint32_t)number[i])) continue;
        map_put(&p->device_of, (uint32_t)number[i], (uint32_t)p->devices);
        p->device = mem_grow(p->device, &p->device_capacity, p->devices + 1, sizeof *p->device);
        p->device[p->devices++] = (struct device){.number = (uint32_t)number[i],
                                                  .name = load_name(load, name[i]),
                                                  .units = (uint32_t)units[i],
                                                  .capability = (uint32_t)capability[i],
                                                  .uuid = {high[i], low[i]},
                                                  .pci = pci[i],
                                                  .memory = memory[i],
                                                  .simulated = simulated[i] != 0};
    }
}

/* ---- samples ---- */

void load_samples(struct load *load)
{
    struct process *p = load->process;
    const uint64_t *device = load_column(load, COL_device_sample_device);
    const uint64_t *time = load_column(load, COL_device_sample_time);
    const uint64_t *reasons = load_column(load, COL_device_sample_reasons);
    const uint64_t *sm = load_column(load, COL_device_sample_sm_mhz);
    const uint64_t *memory = load_column(load, COL_device_sample_memory_mhz);
    const uint64_t *power = load_column(load, COL_device_sample_power_mw);
    const uint64_t *temperature = load_column(load, COL_device_sample_temperature);
    const uint64_t *busy = load_column(load, COL_device_sample_busy);
    const uint64_t *memory_busy = load_column(load, COL_device_sample_memory_busy);
    const uint64_t *known = load_column(load, COL_device_sample_known);
    const uint64_t *flags = load_column(load, COL_device_sample_flags);
    p->sample = mem_grow(p->sample, &p->sample_capacity, p->samples + load_rows(load), sizeof *p->sample);
    for (uint32_t i = 0; i < load_rows(load); i++)
        p->sample[p->samples++] = (struct device_sample){.time = (int64_t)time[i],
                                                         .reasons = reasons[i],
                                                         .device = (uint32_t)device[i],
                                                         .known = (uint32_t)known[i],
                                                         .flags = (uint32_t)flags[i],
                                                         .sm_mhz = (uint32_t)sm[i],
                                                         .memory_mhz = (uint32_t)memory[i],
                                                         .power_mw = (uint32_t)power[i],
                                                         .busy = (uint32_t)busy[i],
                                                         .memory_busy = (uint32_t)memory_busy[i],
                                                         .temperature = (int32_t)temperature[i]};
}

static int sample_by_time(const void *a, const void *b)
{
    const struct device_sample *x = a, *y = b;
    if (x->time != y->time) return by_number(x->time, y->time);
    return by_number(x->device, y->device);
}

void load_samples_end(struct load *load)
{
    struct process *p = load->process;
    if (p->samples) qsort(p->sample, p->samples, sizeof *p->sample, sample_by_time);
}

/* ---- work ---- */

struct work_columns {
    const uint64_t *start, *duration, *correlation, *device, *context, *stream;
};

#define WORK_COLUMNS(kind)                                                                                             \
    {                                                                                                                  \
        load_column(load, COL_##kind##_start), load_column(load, COL_##kind##_duration),                               \
            load_column(load, COL_##kind##_correlation), load_column(load, COL_##kind##_device),                       \
            load_column(load, COL_##kind##_context), load_column(load, COL_##kind##_stream)                            \
    }

/* True if the work cannot have run when its times say: long before the device's clock was first read. CUPTI gives such
 * times after its timestamp callback was registered again, and older releases of the library recorded them. */
static bool is_impossible(struct load *load, const struct work_columns *from, uint32_t i)
{
    const int64_t margin = 3600000000000; /* an hour: a lost part of the trace may have had the first readings */
    const struct clock_points *device = &load->process->clock.device;
    if (!device->count || (int64_t)from->start[i] >= device->point[0].value - margin) return false;
    load->drops[TFI_DROP_DEVICE_TIMELESS]++;
    return true;
}

static size_t add_work(struct load *load, const struct work_columns *from, uint32_t i, enum event_class event_class,
                       struct work_detail **detail)
{
    struct process *p = load->process;
    struct works *w = &p->works;
    works_reserve(w, load->group->count);
    size_t at = w->table.count++;
    w->start[at] = (int64_t)from->start[i];
    w->end[at] = load_end(from->start[i], from->duration[i]);
    w->correlation[at] = from->correlation[i] ? from->correlation[i] : NO_ID;
    w->external[at] = NO_ID;
    w->lane[at] = from->device ? process_lane(p, (int64_t)from->device[i], (int64_t)from->stream[i], true) : NO_PLACE;
    w->event_class[at] = (uint8_t)event_class;
    w->name[at] = NAME_NONE;
    *detail = works_detail(w, load->needs.details);
    if (*detail) (*detail)->context = (uint32_t)from->context[i];
    if (from->device) map_put(&load->device_of, from->context[i], (uint32_t)from->device[i]);
    return at;
}

static uint32_t fixed_name(struct load *load, const char *name)
{
    return names_add(load->names, name, strlen(name));
}

/* Returns the demangled name of a kernel, as in a PyTorch trace; each string is demangled once. */
static uint32_t kernel_name(struct load *load, uint64_t string)
{
    uint32_t name = map_get(&load->shown, string);
    if (name != MAP_NONE) return name;
    const struct string *text = strings_get(&load->trace->strings, string);
    char *shown = text && !load->names->are_mangled ? demangled_name(text->text) : NULL;
    name = shown ? fixed_name(load, shown) : load_name(load, string);
    free(shown);
    map_put(&load->shown, string, name);
    return name;
}

struct kernel_columns {
    const uint64_t *grid[3], *block[3], *registers, *static_shared, *dynamic_shared, *queued;
};

static void detail_kernel(struct work_detail *detail, const struct kernel_columns *from, uint32_t i)
{
    for (size_t k = 0; k < ARRAY_SIZE(detail->grid); k++) {
        detail->grid[k] = (uint32_t)from->grid[k][i];
        detail->block[k] = (uint32_t)from->block[k][i];
    }
    detail->registers = (uint32_t)from->registers[i];
    detail->static_shared = (uint32_t)from->static_shared[i];
    detail->dynamic_shared = (uint32_t)from->dynamic_shared[i];
    detail->queued = (int64_t)from->queued[i];
}

/* Returns a column that both the details and `filling` need. */
static const uint64_t *launch_column(struct load *load, unsigned own)
{
    return load->needs.filling ? load_column(load, own) : load_detail_column(load, own);
}

static void fill_kernel(struct load *load, size_t work, const struct kernel_columns *from, uint32_t i)
{
    double blocks = 1;
    uint64_t threads = 1;
    for (size_t k = 0; k < ARRAY_SIZE(from->grid); k++) {
        blocks *= (double)from->grid[k][i];
        threads *= MIN(from->block[k][i], UINT16_MAX); /* no product of three overflows */
    }
    add_filling(load->process, (struct filling){.work = (uint32_t)work,
                                                .blocks = blocks,
                                                .occupancy = NAN,
                                                .threads = threads,
                                                .registers = from->registers[i],
                                                .shared = from->static_shared[i] + from->dynamic_shared[i]});
}

void load_kernels(struct load *load)
{
    const uint64_t *name = load_column(load, COL_kernel_name);
    const uint64_t *graph = load_column(load, COL_kernel_graph), *node = load_column(load, COL_kernel_node);
    const struct work_columns from = WORK_COLUMNS(kernel);
    const struct kernel_columns more = {{launch_column(load, COL_kernel_grid_x), launch_column(load, COL_kernel_grid_y),
                                         launch_column(load, COL_kernel_grid_z)},
                                        {launch_column(load, COL_kernel_block_x),
                                         launch_column(load, COL_kernel_block_y),
                                         launch_column(load, COL_kernel_block_z)},
                                        launch_column(load, COL_kernel_registers),
                                        launch_column(load, COL_kernel_static_shared),
                                        launch_column(load, COL_kernel_dynamic_shared),
                                        load_detail_column(load, COL_kernel_queued)};
    for (uint32_t i = 0; i < load_rows(load); i++) {
        if (is_impossible(load, &from, i)) continue;
        struct work_detail *detail;
        size_t at = add_work(load, &from, i, CLASS_KERNEL, &detail);
        load->process->works.name[at] = kernel_name(load, name[i]);
        graphs_add_work(&load->process->graphs, at, graph[i], node[i]);
        if (load->needs.filling) fill_kernel(load, at, &more, i);
        if (detail) {
            detail_kernel(detail, &more, i);
            detail->graph = (uint32_t)graph[i];
            detail->node = node[i];
        }
    }
}

/* Names a copy from CUpti_ActivityMemcpyKind and CUpti_ActivityMemoryKind, as Kineto does. */
static uint32_t copy_name(struct load *load, uint64_t direction, uint64_t source, uint64_t destination)
{
    static const char *const directions[] = {"",      " HtoD", " DtoH", " HtoA", " AtoH", " AtoA",
                                             " AtoD", " DtoA", " DtoD", " HtoH", " PtoP"};
    static const char *const kinds[] = {"Unknown", "Pageable", "Pinned",        "Device",
                                        "Array",   "Managed",  "Device Static", "Managed Static"};
    char name[64];
    const char *way = directions[direction < ARRAY_SIZE(directions) ? direction : 0];
    if (source || destination) {
        snprintf(name, sizeof name, "Memcpy%s (%s -> %s)", way, kinds[source < ARRAY_SIZE(kinds) ? source : 0],
                 kinds[destination < ARRAY_SIZE(kinds) ? destination : 0]);
    } else {
        snprintf(name, sizeof name, "Memcpy%s", way);
    }
    return fixed_name(load, name);
}

static void detail_bytes(struct load *load, size_t work, struct work_detail *detail, uint64_t bytes, uint64_t graph,
                         uint64_t node)
{
    if (load->needs.copied)
        process_copied(load->process, (struct copied){.work = (uint32_t)work, .has_bytes = true, .bytes = bytes});
    if (!detail) return;
    detail->bytes = bytes;
    detail->graph = (uint32_t)graph;
    detail->node = node;
}

void load_copies(struct load *load)
{
    const uint64_t *direction = load_column(load, COL_copy_direction), *bytes = load_column(load, COL_copy_bytes);
    const uint64_t *source = load_column(load, COL_copy_source_kind);
    const uint64_t *destination = load_column(load, COL_copy_destination_kind);
    const uint64_t *graph = load_column(load, COL_copy_graph), *node = load_column(load, COL_copy_node);
    const struct work_columns from = WORK_COLUMNS(copy);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        if (is_impossible(load, &from, i)) continue;
        struct work_detail *detail;
        size_t at = add_work(load, &from, i, CLASS_MEMCPY, &detail);
        load->process->works.name[at] = copy_name(load, direction[i], source[i], destination[i]);
        detail_bytes(load, at, detail, bytes[i], graph[i], node[i]);
        graphs_add_work(&load->process->graphs, at, graph[i], node[i]);
    }
}

void load_sets(struct load *load)
{
    const uint64_t *bytes = load_column(load, COL_set_bytes);
    const uint64_t *graph = load_column(load, COL_set_graph), *node = load_column(load, COL_set_node);
    const struct work_columns from = WORK_COLUMNS(set);
    uint32_t name = fixed_name(load, "Memset (Device)");
    for (uint32_t i = 0; i < load_rows(load); i++) {
        if (is_impossible(load, &from, i)) continue;
        struct work_detail *detail;
        size_t at = add_work(load, &from, i, CLASS_MEMSET, &detail);
        load->process->works.name[at] = name;
        detail_bytes(load, at, detail, bytes[i], graph[i], node[i]);
        graphs_add_work(&load->process->graphs, at, graph[i], node[i]);
    }
}

/* With TFI_GRAPHS=graph a launch is one piece of work, and its nodes have no records. */
void load_graph_launches(struct load *load)
{
    const struct work_columns from = WORK_COLUMNS(graph_launch);
    const uint64_t *graph = load_column(load, COL_graph_launch_graph);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        if (is_impossible(load, &from, i)) continue;
        struct work_detail *detail;
        size_t at = add_work(load, &from, i, CLASS_KERNEL, &detail);
        char name[32];
        int length = snprintf(name, sizeof name, "graph %u", (unsigned)graph[i]);
        load->process->works.name[at] = names_add(load->names, name, (size_t)length);
        if (detail) detail->graph = (uint32_t)graph[i];
        load_graph_run(load, at, graph[i]);
    }
}

/* Adds times of stages that come without records of the work; `busy`: NULL if it is not known. */
static void add_stage_times(struct load *load, const uint64_t *id, const uint64_t *start, const uint64_t *duration,
                            const uint64_t *busy, const uint64_t *device, const uint64_t *stream)
{
    struct stage_times *t = &load->process->stage_times;
    stage_times_reserve(t, load->group->count);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        size_t at = t->table.count++;
        t->range[at] = id[i];
        t->start[at] = (int64_t)start[i];
        t->end[at] = load_end(start[i], duration[i]);
        t->busy[at] = busy ? (int64_t)MIN(busy[i], (uint64_t)INT64_MAX) : -1;
        t->lane[at] = process_lane(load->process, (int64_t)device[i], (int64_t)stream[i], true);
    }
}

void load_stage_devices(struct load *load)
{
    add_stage_times(load, load_column(load, COL_stage_device_id), load_column(load, COL_stage_device_start),
                    load_column(load, COL_stage_device_duration), NULL, load_column(load, COL_stage_device_device),
                    load_column(load, COL_stage_device_stream));
}

void load_stage_works(struct load *load)
{
    add_stage_times(load, load_column(load, COL_stage_work_id), load_column(load, COL_stage_work_start),
                    load_column(load, COL_stage_work_duration), load_column(load, COL_stage_work_busy),
                    load_column(load, COL_stage_work_device), load_column(load, COL_stage_work_stream));
}

/* ---- waits ---- */

/* Names a CUpti_ActivitySynchronizationType, as Kineto does. */
static const char *sync_name(uint64_t type)
{
    static const char *const names[] = {"Unknown Sync", "Event Sync", "Stream Wait Event", "Stream Sync",
                                        "Context Sync"};
    return names[type < ARRAY_SIZE(names) ? type : 0];
}

/* A record of a wait has a context but no device; load_devices_end resolves the device. */
void load_syncs(struct load *load)
{
    const uint64_t *type = load_column(load, COL_sync_type), *context = load_column(load, COL_sync_context);
    const uint64_t *stream = load_column(load, COL_sync_stream), *event = load_column(load, COL_sync_event);
    const struct work_columns from = {load_column(load, COL_sync_start),
                                      load_column(load, COL_sync_duration),
                                      load_column(load, COL_sync_correlation),
                                      NULL,
                                      context,
                                      stream};
    for (uint32_t i = 0; i < load_rows(load); i++) {
        if (is_impossible(load, &from, i)) continue;
        struct work_detail *detail;
        size_t at = add_work(load, &from, i, CLASS_SYNC, &detail);
        load->process->works.name[at] = fixed_name(load, sync_name(type[i]));
        load->sync = mem_grow(load->sync, &load->sync_capacity, load->syncs + 1, sizeof *load->sync);
        load->sync[load->syncs++] = (struct sync_place){(uint32_t)at, (uint32_t)context[i], (int64_t)stream[i]};
        if (detail) detail->sync_event = (uint32_t)event[i];
    }
}

static void find_devices_of_syncs(struct load *load)
{
    struct process *p = load->process;
    for (size_t i = 0; i < load->syncs; i++) {
        const struct sync_place *sync = &load->sync[i];
        uint32_t device = map_get(&load->device_of, sync->context);
        p->works.lane[sync->work] = process_lane(p, device == MAP_NONE ? -1 : (int64_t)device, sync->stream, true);
    }
}

/* ---- the end ---- */

void load_devices_end(struct load *load, struct notes *notes)
{
    struct spans *s = &load->process->spans;
    lifetimes_sort(&load->lifetimes);
    for (size_t i = 0; i < s->table.count; i++)
        if (s->event_class[i] == CLASS_API)
            s->thread[i] = lifetimes_find(&load->lifetimes, s->thread[i], (uint64_t)s->start[i]);
    find_devices_of_syncs(load);
    if (load->process->works.table.count && !load->process->clock.device.count) {
        notes_add(notes, LOSS,
                  "has device records but no record of the device's clock: device work may be at the wrong time");
    }
}
