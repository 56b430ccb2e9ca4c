/* spots.c - adds up the sampled periods of processes by function, line or stage.
 *
 * The innermost frame of a stack has the period's time, each function on it has the total once, however often it is on the
 * stack. Of a period without a stack the row is named for the reason.
 */
#include "ask/samples/spots.h"

#include <stdlib.h>
#include <string.h>

#include "model/frames.h"

void spots_init(struct spots *spots, enum spot_by by, struct names *names)
{
    *spots = (struct spots){.by = by, .names = names};
}

void spots_free(struct spots *spots)
{
    keyed_free(&spots->keyed);
    keyed_free(&spots->shared);
    map_free(&spots->frame_spot);
    *spots = (struct spots){0};
}

/* ---- rows ---- */

static uint32_t row_of(struct spots *spots, int64_t rank, uint32_t name, uint32_t file, uint32_t line)
{
    enum { KEY = offsetof(struct spot, line) + sizeof line };
    const struct {
        int64_t rank;
        uint32_t name, file, line;
    } key = {rank, name, file, spots->by == SPOT_LINE ? line : 0};
    struct spot *row = keyed_row(&spots->keyed, &key, KEY, sizeof *row);
    return (uint32_t)(row - spots->row);
}

static uint32_t text_name(struct spots *spots, const char *text)
{
    return names_add(spots->names, text, strlen(text));
}

static uint32_t row_of_frame(struct spots *spots, int64_t rank, uint32_t text)
{
    uint32_t known = map_get(&spots->frame_spot, text);
    if (known != MAP_NONE) return known;
    struct frame frame;
    const struct name *name = names_get(spots->names, text);
    uint32_t row;
    if (frame_parse(&frame, name->text, name->length)) {
        uint32_t line = (uint32_t)strtoul(frame.line, NULL, 10);
        uint32_t function = names_add(spots->names, frame.function, frame.function_length);
        row = row_of(spots, rank, function, names_add(spots->names, frame.file, frame.file_length), line);
    } else {
        row = row_of(spots, rank, text, NAME_NONE, 0);
    }
    map_put(&spots->frame_spot, text, row);
    return row;
}

static uint32_t line_of(const struct spots *spots, uint32_t text)
{
    struct frame frame;
    const struct name *name = names_get(spots->names, text);
    return frame_parse(&frame, name->text, name->length) ? (uint32_t)strtoul(frame.line, NULL, 10) : 0;
}

static const char *reason(uint32_t flags)
{
    return flags & TFI_SAMPLED_NO_PYTHON ? "(no Python code)"
           : flags & TFI_SAMPLED_FOREIGN ? "(no Python thread)"
                                         : "(unreadable)";
}

/* ---- shares ---- */

static void share_time(struct spots *spots, uint32_t row, enum spot_share kind, uint32_t what, int64_t wall)
{
    enum { KEY = offsetof(struct share, what) + sizeof what };
    const struct {
        uint32_t spot, kind, what;
    } key = {row, kind, what};
    struct share *share = keyed_row(&spots->shared, &key, KEY, sizeof *share);
    share->wall = add_ns(share->wall, wall);
}

uint32_t spot_most(const struct spots *spots, size_t row, enum spot_share kind)
{
    size_t low = 0, high = spots->shares;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct share *s = &spots->share[middle];
        if (s->spot < spots->row[row].stamp || (s->spot == spots->row[row].stamp && s->kind < kind)) low = middle + 1;
        else high = middle;
    }
    const struct share *found = low < spots->shares ? &spots->share[low] : NULL;
    return found && found->spot == spots->row[row].stamp && found->kind == kind ? found->what : NAME_NONE;
}

static int shares_by_spot(const void *a, const void *b)
{
    const struct share *x = a, *y = b;
    if (x->spot != y->spot) return by_number(x->spot, y->spot);
    if (x->kind != y->kind) return by_number(x->kind, y->kind);
    return x->wall != y->wall ? by_number(y->wall, x->wall) : by_number(x->what, y->what);
}

/* ---- adding ---- */

static uint32_t stage_name(const struct scope *scope, const struct sampled *s)
{
    return s->stage == NO_PLACE ? scope->choice.outside : scope->process->ranges.name[s->stage];
}

static void share_all(struct spots *spots, const struct scope *scope, uint32_t row, const struct sampled *s,
                      uint32_t innermost)
{
    const struct looks *l = &scope->process->looks;
    char room[24];
    const char *wait = s->waiting > s->cpu ? sampled_wait(l, s->look, room) : NULL;
    share_time(spots, row, SHARE_STAGE, stage_name(scope, s), s->wall);
    share_time(spots, row, SHARE_THREAD, l->tid[s->look], s->wall);
    if (innermost != NAME_NONE) share_time(spots, row, SHARE_LINE, line_of(spots, innermost), s->wall);
    if (wait) share_time(spots, row, SHARE_WAIT, text_name(spots, wait), s->waiting);
}

static void add_self(struct spot *row, const struct looks *looks, const struct sampled *s)
{
    row->looks += looks->count[s->look];
    row->wall = add_ns(row->wall, s->wall);
    row->cpu = add_ns(row->cpu, s->cpu);
    row->waiting = add_ns(row->waiting, s->waiting);
    row->weight = add_ns(row->weight, s->weight);
    row->device_idle = add_ns(row->device_idle, MAX(s->device_idle, 0));
}

void spots_begin_process(struct spots *spots)
{
    map_free(&spots->frame_spot); /* rows of another rank */
}

void spots_add(struct spots *spots, const struct scope *scope, const struct sampled *s)
{
    const struct process *p = scope->process;
    uint32_t stack = p->looks.stack[s->look], flags = p->looks.flags[s->look], innermost = NAME_NONE, self;
    size_t depth = stack == NAME_NONE ? 0 : stack_depth(spots->names, stack);
    spots->stamp++;
    spots->looks += p->looks.count[s->look];
    spots->cut += flags & TFI_SAMPLED_INNER_CUT ? p->looks.count[s->look] : 0;
    spots->unreadable += flags & TFI_SAMPLED_UNREADABLE ? p->looks.count[s->look] : 0;
    spots->wall = add_ns(spots->wall, s->wall);
    spots->weight = add_ns(spots->weight, s->weight);
    for (size_t i = 0; i < depth && spots->by != SPOT_STAGE; i++) {
        uint32_t row = row_of_frame(spots, p->rank, stack_frame(spots->names, stack, i));
        if (spots->row[row].stamp == spots->stamp) continue;
        spots->row[row].stamp = spots->stamp;
        spots->row[row].total = add_ns(spots->row[row].total, s->wall);
    }
    if (spots->by == SPOT_STAGE) {
        self = row_of(spots, p->rank, stage_name(scope, s), NAME_NONE, 0);
    } else if (depth) {
        innermost = stack_frame(spots->names, stack, 0);
        self = row_of_frame(spots, p->rank, innermost);
    } else {
        self = row_of(spots, p->rank, text_name(spots, reason(flags)), NAME_NONE, 0);
    }
    if (!depth || spots->by == SPOT_STAGE) spots->row[self].total = add_ns(spots->row[self].total, s->wall);
    add_self(&spots->row[self], &p->looks, s);
    share_all(spots, scope, self, s, innermost);
}

static int spots_by_weight(const void *a, const void *b)
{
    const struct spot *x = a, *y = b;
    if (x->weight != y->weight) return by_number(y->weight, x->weight);
    if (x->wall != y->wall) return by_number(y->wall, x->wall);
    if (x->total != y->total) return by_number(y->total, x->total);
    return by_number((int64_t)x->stamp, (int64_t)y->stamp);
}

void spots_sort(struct spots *spots)
{
    for (size_t i = 0; i < spots->count; i++) spots->row[i].stamp = i; /* from here on its number among the shares */
    if (spots->shares) qsort(spots->share, spots->shares, sizeof *spots->share, shares_by_spot);
    if (spots->count) qsort(spots->row, spots->count, sizeof *spots->row, spots_by_weight);
}
