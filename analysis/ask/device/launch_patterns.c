/* launch_patterns.c - collects the sequences of kernels, copies and sets that an operator launches.
 *
 * Only the outermost operator that matches counts on its thread, so each launch is in one sequence at most, and the time
 * is N log N. A sequence is in the order of launches: the order of starts differs by chance if there are several streams.
 */
#include "ask/device/launch_patterns.h"

#include <stdlib.h>
#include <string.h>

#include "ask/scope.h"
#include "ask/stages/order.h"
#include "base/hash.h"

/* An operator or a stage that matches, or one piece of a stage that left its thread. */
struct place {
    int64_t start, end;
    uint32_t thread, name, range; /* range: index in process->ranges; NO_PLACE: an operator */
    uint32_t index;               /* in the table of operators or of ranges */
    uint32_t whole;               /* index of the place whose occurrence it is part of */
};

struct places {
    struct place *place;
    size_t count, capacity;
};

struct launched {
    uint32_t whole, work;
    int64_t at; /* start of the launch */
};

/* ---- names ---- */

void name_matches_init(struct name_matches *matches, const struct names *names, const char *text)
{
    *matches = (struct name_matches){.names = names, .text = text, .count = names->count};
    matches->known = mem_zero(matches->count, sizeof *matches->known);
}

bool name_matches(struct name_matches *matches, uint32_t name)
{
    const struct name *full = names_get(matches->names, name);
    if (name >= matches->count) return memmem(full->text, full->length, matches->text, strlen(matches->text)) != NULL;
    if (!matches->known[name])
        matches->known[name] = memmem(full->text, full->length, matches->text, strlen(matches->text)) ? 1 : 2;
    return matches->known[name] == 1;
}

/* ---- patterns ---- */

void patterns_add(struct patterns *patterns, int64_t rank, const uint32_t *name, size_t length, int64_t device,
                  int64_t host)
{
    uint64_t key = hash_numbers((uint64_t)rank, length);
    uint32_t place;
    for (size_t i = 0; i < length; i++) key = hash_numbers(key, name[i]);
    for (; (place = map_get(&patterns->place, key)) != MAP_NONE; key += 0x9e3779b97f4a7c15u) {
        const struct pattern *row = &patterns->row[place];
        if (row->rank == rank && row->length == length &&
            memcmp(&patterns->item[row->first], name, length * sizeof *name) == 0)
            break;
    }
    if (place == MAP_NONE) {
        place = (uint32_t)patterns->count;
        map_put(&patterns->place, key, place);
        patterns->item =
            mem_grow(patterns->item, &patterns->item_capacity, patterns->items + length, sizeof *patterns->item);
        memcpy(&patterns->item[patterns->items], name, length * sizeof *name);
        patterns->row = mem_grow(patterns->row, &patterns->capacity, patterns->count + 1, sizeof *patterns->row);
        patterns->row[patterns->count++] = (struct pattern){.rank = rank, .first = patterns->items, .length = length};
        patterns->items += length;
    }
    struct pattern *row = &patterns->row[place];
    row->count++;
    row->device = add_ns(row->device, device);
    row->host = add_ns(row->host, host);
}

static int by_count(const void *a, const void *b)
{
    const struct pattern *x = a, *y = b;
    return x->rank != y->rank       ? by_number(x->rank, y->rank)
           : x->count != y->count   ? (x->count < y->count ? 1 : -1)
           : x->device != y->device ? by_number(y->device, x->device)
                                    : (x->first > y->first) - (x->first < y->first);
}

void patterns_sort(struct patterns *patterns)
{
    if (patterns->count) qsort(patterns->row, patterns->count, sizeof *patterns->row, by_count);
}

void patterns_free(struct patterns *patterns)
{
    map_free(&patterns->place);
    left_rows_free(&patterns->left);
    free(patterns->item);
    free(patterns->row);
    *patterns = (struct patterns){0};
}

/* ---- operators ---- */

static void add_place(struct places *places, struct place place)
{
    places->place = mem_grow(places->place, &places->capacity, places->count + 1, sizeof *places->place);
    places->place[places->count++] = place;
}

/* Of equal ones a stage is outside of an operator, and an operator outside of those that follow it in the file. */
static int by_thread(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int outer = outer_first(x->start, x->end, y->start, y->end);
    bool stage_x = x->range != NO_PLACE, stage_y = y->range != NO_PLACE;
    return x->thread != y->thread ? by_number(x->thread, y->thread)
           : outer                ? outer
           : stage_x != stage_y   ? stage_y - stage_x
                                  : by_number(x->index, y->index);
}

/* Keeps the outermost ones of each thread. */
static void keep_outermost(struct places *places)
{
    size_t kept = 0;
    if (places->count) qsort(places->place, places->count, sizeof *places->place, by_thread);
    for (size_t i = 0; i < places->count; i++) {
        const struct place *place = &places->place[i], *last = kept ? &places->place[kept - 1] : NULL;
        if (!last || last->thread != place->thread || place->start >= last->end) places->place[kept++] = *place;
    }
    places->count = kept;
}

/* Joins the pieces of a stage that left its thread. */
static void join_pieces(struct places *places, const struct ranges *r)
{
    struct map first = {0};
    for (size_t i = 0; i < places->count; i++) {
        uint32_t range = places->place[i].range;
        places->place[i].whole = (uint32_t)i;
        if (range != NO_PLACE && !(r->flags[range] & RANGE_CONTINUED)) map_put(&first, r->id[range], (uint32_t)i);
    }
    for (size_t i = 0; i < places->count; i++) {
        uint32_t range = places->place[i].range;
        if (range == NO_PLACE || !(r->flags[range] & RANGE_CONTINUED)) continue;
        uint32_t whole = map_get(&first, r->id[range]);
        if (whole != MAP_NONE) places->place[i].whole = whole;
    }
    map_free(&first);
}

static void find_places(struct places *places, const struct process *p, struct name_matches *matches)
{
    const struct spans *s = &p->spans;
    const struct ranges *r = &p->ranges;
    for (size_t i = 0; i < s->table.count; i++)
        if (s->event_class[i] == CLASS_OPERATOR && name_matches(matches, s->name[i]))
            add_place(places,
                      (struct place){s->start[i], s->end[i], s->thread[i], s->name[i], NO_PLACE, (uint32_t)i, 0});
    for (size_t i = 0; i < r->table.count; i++)
        if (is_stage(r, i) && name_matches(matches, r->name[i]))
            add_place(places,
                      (struct place){r->start[i], r->end[i], r->thread[i], r->name[i], (uint32_t)i, (uint32_t)i, 0});
    keep_outermost(places);
    join_pieces(places, r);
}

/* Returns the place that is open at a moment; NULL: none. */
static const struct place *place_at(const struct places *places, uint32_t thread, int64_t time)
{
    size_t low = 0, high = places->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct place *place = &places->place[middle];
        if (place->thread < thread || (place->thread == thread && place->start <= time)) low = middle + 1;
        else high = middle;
    }
    const struct place *found = low ? &places->place[low - 1] : NULL;
    return found && found->thread == thread && time < found->end ? found : NULL;
}

/* ---- sequences ---- */

static int by_launch(const void *a, const void *b, void *context)
{
    const struct works *w = context;
    const struct launched *x = a, *y = b;
    return x->whole != y->whole                     ? by_number(x->whole, y->whole)
           : x->at != y->at                         ? by_number(x->at, y->at)
           : w->start[x->work] != w->start[y->work] ? by_number(w->start[x->work], w->start[y->work])
                                                    : by_number(x->work, y->work);
}

static void add_sequences(struct patterns *patterns, const struct process *p, const struct places *places,
                          const struct launched *list, size_t count)
{
    const struct works *w = &p->works;
    int64_t *host = mem_zero(places->count, sizeof *host);
    uint32_t *name = mem_zero(count + 1, sizeof *name);
    for (size_t i = 0; i < places->count; i++) {
        const struct place *place = &places->place[i];
        host[place->whole] = add_ns(host[place->whole], place->end - place->start);
        patterns->matches += place->whole == i;
    }
    for (size_t first = 0, end; first < count; first = end) {
        int64_t device = 0;
        uint32_t whole = list[first].whole;
        name[0] = places->place[whole].name;
        for (end = first; end < count && list[end].whole == whole; end++) {
            name[end - first + 1] = w->name[list[end].work];
            device = add_ns(device, w->end[list[end].work] - w->start[list[end].work]);
        }
        patterns_add(patterns, p->rank, name, end - first + 1, device, host[whole]);
    }
    free(name);
    free(host);
}

/* A call that ends later than this behind an operator is none of its own: times of one microsecond round as much. */
enum { ROUNDING_NS = 1000 };

static void add_process(struct patterns *patterns, struct scope *scope, struct name_matches *matches)
{
    const struct process *p = scope->process;
    const struct attribution *a = scope_attribute(scope);
    const struct choice *choice = &scope->choice;
    struct places places = {0};
    struct interval when;
    struct launched *list = mem_zero(p->works.table.count, sizeof *list);
    size_t count = 0;
    find_places(&places, p, matches);
    for (size_t i = 0; i < p->works.table.count; i++) {
        uint32_t launch = a->launch[i] != NO_PLACE ? a->launch[i] : a->op[i];
        if (launch == NO_PLACE || !choice_work(choice, i, &when) || !choice_in_stage(choice, &a->work[i])) continue;
        int64_t at = p->spans.start[launch];
        const struct place *place = place_at(&places, p->spans.thread[launch], at);
        bool is_overrun = place && place->range == NO_PLACE && p->spans.end[launch] - ROUNDING_NS > place->end;
        if (place && !is_overrun) list[count++] = (struct launched){place->whole, (uint32_t)i, at};
    }
    if (count) qsort_r(list, count, sizeof *list, by_launch, (void *)&p->works);
    add_sequences(patterns, p, &places, list, count);
    scope_left_rows(scope, &patterns->left);
    scope_end(scope);
    free(list);
    free(places.place);
}

void patterns_of(struct patterns *patterns, const struct selection *chosen, const char *operator)
{
    struct name_matches matches;
    *patterns = (struct patterns){0};
    name_matches_init(&matches, &chosen->model->names, operator);
    for (size_t i = 0; i < chosen->processes; i++) add_process(patterns, scope_begin(chosen, i), &matches);
    patterns_sort(patterns);
    free(matches.known);
}
