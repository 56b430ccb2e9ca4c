/* load.c - gives loaders the columns of the current group, and the names, functions and times that its records refer to.
 *
 * A column that the file lacks is all zeros. An invalid column (group->damaged) removes the whole group from the
 * answer; its records are counted as bad.
 */
#include "model/load/load.h"

#include <stdlib.h>
#include <string.h>

int64_t part_ns(struct part *part, uint64_t ticks)
{
    return clock_ns_near(&part->clock, &part->stretch, ticks);
}

/* The ends of an interval and of what lasts belong to them. */
bool part_has(struct part *part, uint64_t start, uint64_t end)
{
    size_t at = intervals_after(&part->when, part_ns(part, start));
    return at < part->when.count && part->when.interval[at].start <= part_ns(part, end);
}

const uint64_t *load_column(struct load *load, unsigned own)
{
    const uint64_t *values = group_own(&load->reader.decoder, load->group, own);
    if (values) return values;
    size_t had = load->zero_capacity;
    if (load->group->count > had) {
        load->zeros = mem_grow(load->zeros, &load->zero_capacity, load->group->count, sizeof *load->zeros);
        memset(load->zeros, 0, load->zero_capacity * sizeof *load->zeros);
    }
    return load->zeros;
}

const uint64_t *load_detail_column(struct load *load, unsigned own)
{
    return load->needs.details ? load_column(load, own) : NULL;
}

uint32_t load_rows(const struct load *load)
{
    return load->group->damaged ? 0 : load->group->count;
}

int64_t load_end(uint64_t start, uint64_t duration)
{
    uint64_t end;
    return (int64_t)(__builtin_add_overflow(start, duration, &end) ? start : end);
}

uint32_t load_name(struct load *load, uint64_t string)
{
    return strings_name(&load->trace->strings, load->names, string);
}

void add_filling(struct process *p, struct filling filling)
{
    p->filling = mem_grow(p->filling, &p->filling_capacity, p->fillings + 1, sizeof *p->filling);
    p->filling[p->fillings++] = filling;
}

uint32_t load_func(struct load *load, uint64_t string)
{
    uint32_t place = map_get(&load->process->func_of, string);
    if (place == MAP_NONE) {
        const struct string *text = strings_get(&load->trace->strings, string);
        const char *shown = text ? text->text : "\x1f\x1f(lost)";
        place = process_func(load->process, (uint32_t)string, shown, text ? text->length : strlen(shown));
    }
    return place;
}

int load_argument(const struct func *func, const char *name)
{
    for (unsigned i = 0; i < func->args; i++)
        if (strcmp(func->arg[i], name) == 0) return (int)i;
    return -1;
}

static void lifetimes_free(struct lifetimes *l)
{
    free(l->life);
    free(l->end);
    map_free(&l->end_of);
}

void load_free(struct load *load)
{
    reader_free(&load->reader);
    map_free(&load->name_of_tid);
    map_free(&load->silence_of);
    map_free(&load->look_stack);
    map_free(&load->device_of_thread);
    map_free(&load->shown);
    map_free(&load->stack_of);
    shown_frames_free(&load->shown_frames);
    map_free(&load->device_of);
    lifetimes_free(&load->lifetimes);
    free(load->sync);
    free(load->link);
    free(load->framework);
    free(load->plan);
    free(load->zeros);
}
