/* deep.c - sums up the device work of each stage from the additions and removals that sets.h reports. */
#include "ask/stages/deep.h"

#include <stdlib.h>

#include "ask/stages/sets.h"
#include "base/sets/covered.h"

struct deep {
    struct stage_table *table;
    const struct process *process;
    const struct interval *when;
    struct map device_of;    /* index into `covered` by device */
    struct covered *covered; /* by device */
    size_t devices;
    __int128 work;
    int64_t busy, span;
};

static uint32_t device_of(struct deep *d, size_t work)
{
    int64_t device = d->process->lane[d->process->works.lane[work]].device;
    uint32_t place = map_get(&d->device_of, (uint64_t)device);
    if (place == MAP_NONE) {
        place = (uint32_t)d->devices++;
        map_put(&d->device_of, (uint64_t)device, place);
    }
    return place;
}

static void find_devices(struct deep *d, const bool *chosen)
{
    size_t works = d->process->works.table.count, capacity = 0;
    struct intervals *of_device = NULL;
    for (size_t i = 0; i < works; i++) {
        if (chosen[i]) {
            size_t had = d->devices, place = device_of(d, i);
            of_device = mem_grow(of_device, &capacity, d->devices, sizeof *of_device);
            if (d->devices > had) of_device[place] = (struct intervals){0};
            intervals_add(&of_device[place], d->when[i].start, d->when[i].end);
        }
    }
    d->covered = mem_zero(d->devices, sizeof *d->covered);
    for (size_t i = 0; i < d->devices; i++) {
        covered_init(&d->covered[i], of_device[i].interval, of_device[i].count);
        intervals_free(&of_device[i]);
    }
    free(of_device);
}

static int64_t span_of(const struct covered *covered)
{
    return covered->total ? covered->last - covered->first : 0;
}

static void change(void *context, uint32_t work, bool add)
{
    struct deep *d = context;
    struct covered *covered = &d->covered[device_of(d, work)];
    int64_t time = d->when[work].end - d->when[work].start;
    d->busy -= covered->total;
    d->span -= span_of(covered);
    covered_change(covered, d->when[work], add);
    d->busy += covered->total;
    d->span += span_of(covered);
    d->work += add ? time : -time;
}

static void end_name(void *context, uint32_t name)
{
    struct deep *d = context;
    struct stage_row *row = stages_row(d->table, d->process->rank, name);
    row->is_deep = true;
    row->work = add_ns(row->work, (int64_t)MIN(d->work, INT64_MAX));
    row->deep_busy = add_ns(row->deep_busy, d->busy);
    row->deep_idle = add_ns(row->deep_idle, d->span - d->busy);
}

void stages_add_deep(struct stage_table *table, const struct choice *choice, const bool *chosen,
                     const struct interval *when)
{
    struct deep d = {.table = table, .process = choice->process, .when = when};
    struct stage_sets sets = {
        .attribution = choice->attribution, .chosen = chosen, .context = &d, .change = change, .name = end_name};
    find_devices(&d, chosen);
    stage_sets_visit(&sets);
    for (size_t i = 0; i < d.devices; i++) covered_free(&d.covered[i]);
    free(d.covered);
    map_free(&d.device_of);
}
