/* pictures.c - follows memory over time and keeps few points of it, with the peaks. */
#include "ask/memory/pictures.h"

#include <stdlib.h>
#include <string.h>

#include "ask/memory/categories.h"

enum { PARTS = PICTURE_POINTS / 4 };

/* ---- points ---- */

static void keep(struct picture *picture, const struct picture_point *point)
{
    picture->point = mem_grow(picture->point, &picture->capacity, picture->points + 1, sizeof *picture->point);
    picture->point[picture->points++] = *point;
}

/* Keeps the four points of a part in their order, each once. */
static void end_part(struct picture *p)
{
    const struct picture_extreme *inner[2] = {&p->low, &p->high};
    if (p->high.place < p->low.place) inner[0] = &p->high, inner[1] = &p->low;
    uint64_t kept = p->first.place;
    keep(p, &p->first.point);
    for (int i = 0; i < 2; i++) {
        if (inner[i]->place <= kept) continue;
        keep(p, &inner[i]->point);
        kept = inner[i]->place;
    }
    if (p->final.place > kept) keep(p, &p->final.point);
}

static int64_t part_of(const struct picture *p, int64_t time)
{
    double span = (double)p->to - (double)p->from;
    double at = span > 0 ? ((double)time - (double)p->from) / span : 0;
    return MIN((int64_t)(at * PARTS), PARTS - 1);
}

static void thin(struct picture *p, const struct picture_point *point)
{
    const struct picture_extreme now = {p->counted, *point};
    int64_t part = part_of(p, point->time);
    if (p->counted && part != p->part) end_part(p);
    if (!p->counted || part != p->part) {
        p->first = p->final = p->low = p->high = now;
        p->part = part;
    }
    p->final = now;
    if (point->total < p->low.point.total) p->low = now;
    if (point->total > p->high.point.total) p->high = now;
}

static void add_point(struct picture *p, struct picture_point point)
{
    bool is_first = !p->counted;
    if (!is_first) point.time = MAX(point.time, p->last.time); /* a damaged file may go back */
    for (int i = 0; i < (p->by_category ? MEMORY_CATEGORIES : 1); i++) {
        if (!is_first && point.bytes[i] <= p->largest[i]) continue;
        p->largest[i] = point.bytes[i];
        p->since[i] = point.time;
    }
    if (is_first || point.total > p->peak.total) p->peak = point;
    if (point.reserved != TOTAL_UNKNOWN)
        p->reserved_peak = p->reserved_peak == TOTAL_UNKNOWN ? point.reserved : MAX(p->reserved_peak, point.reserved);
    if (p->moments <= PICTURE_POINTS) keep(p, &point);
    else thin(p, &point);
    p->last = point;
    p->counted++;
}

static void end_picture(struct picture *p)
{
    if (p->moments > PICTURE_POINTS && p->counted) end_part(p);
}

static void count(struct picture *p, int64_t time)
{
    p->from = p->moments ? MIN(p->from, time) : time;
    p->to = p->moments ? MAX(p->to, time) : time;
    p->moments++;
}

static struct picture *add_picture(struct pictures *pictures, const struct picture *picture)
{
    pictures->picture =
        mem_grow(pictures->picture, &pictures->capacity, pictures->count + 1, sizeof *pictures->picture);
    struct picture *added = &pictures->picture[pictures->count++];
    *added = *picture;
    added->reserved_peak = TOTAL_UNKNOWN;
    return added;
}

/* ---- torch's rows ---- */

bool memory_row_chosen(const struct choice *choice, int64_t time)
{
    return choice_moment(choice, time, time) && choice->outside_wanted && !choice->options->device.count;
}

void pictures_add_rows(struct pictures *pictures, const struct choice *choice)
{
    struct picture counted = {
        .process = choice->process, .device = DEVICE_OTHER, .allocator = NAME_NONE, .by_category = true};
    struct category_walk walk;
    category_walk_init(&walk, choice->process);
    while (category_walk_moment(&walk))
        if (memory_row_chosen(choice, walk.time)) count(&counted, walk.time);
    if (!counted.moments) return;
    if (pictures->count == pictures->most) {
        pictures->left_out++;
        return;
    }
    struct picture *picture = add_picture(pictures, &counted);
    category_walk_init(&walk, choice->process);
    while (category_walk_moment(&walk)) {
        if (!memory_row_chosen(choice, walk.time)) continue;
        struct picture_point point = {.time = walk.time, .total = walk.total, .reserved = TOTAL_UNKNOWN};
        for (int i = 0; i < MEMORY_CATEGORIES; i++) point.bytes[i] = walk.bytes[i];
        add_point(picture, point);
    }
    end_picture(picture);
}

/* ---- blocks ---- */

static bool is_drawn(const struct choice *choice, const struct memory_walk *changes, const struct memory_change *change)
{
    return change->allocated != TOTAL_UNKNOWN && memory_change_chosen(changes, choice, change);
}

/* A first walk finds for each pool its picture without points. */
struct counting {
    struct picture *counted;
    uint32_t *place; /* in `pictures`; NO_PLACE: it has no chosen changes */
    size_t pools, capacity;
};

static void count_changes(struct counting *c, const struct choice *choice, struct memory_walk *changes)
{
    const struct memory_change *change;
    while ((change = memory_walk_next(changes)) != NULL) {
        if (changes->pools > c->pools) {
            c->counted = mem_grow(c->counted, &c->capacity, changes->pools, sizeof *c->counted);
            memset(c->counted + c->pools, 0, (changes->pools - c->pools) * sizeof *c->counted);
            c->pools = changes->pools;
        }
        if (is_drawn(choice, changes, change)) count(&c->counted[change->pool], change->time);
    }
}

/* Adds an empty picture for each pool with chosen changes. */
static void add_pictures(struct pictures *pictures, struct counting *c, const struct choice *choice,
                         struct memory_reading *reading, bool by_category)
{
    struct memory_walk changes;
    memory_walk_init(&changes, reading);
    count_changes(c, choice, &changes);
    c->place = no_places(c->pools);
    for (size_t i = 0; i < c->pools; i++) {
        struct picture *counted = &c->counted[i];
        if (!counted->moments) continue;
        if (pictures->count == pictures->most) {
            pictures->left_out++;
            continue;
        }
        counted->process = choice->process;
        counted->device = changes.pool[i].device;
        counted->allocator = changes.pool[i].allocator;
        counted->by_category = by_category && memory_pool_has_categories(&changes.pool[i]);
        c->place[i] = (uint32_t)pictures->count;
        add_picture(pictures, counted);
    }
    memory_walk_free(&changes);
}

void pictures_add_changes(struct pictures *pictures, const struct choice *choice, struct memory_reading *reading,
                          struct assigned_walk *walk)
{
    struct counting counting = {0};
    struct memory_walk changes;
    const struct memory_change *change;
    add_pictures(pictures, &counting, choice, reading, walk != NULL);
    memory_walk_init(&changes, reading);
    while ((change = memory_walk_next(&changes)) != NULL) {
        const int64_t *bytes = walk ? assigned_walk_take(walk, &changes, change) : NULL;
        uint32_t place = change->pool < counting.pools ? counting.place[change->pool] : NO_PLACE;
        if (place == NO_PLACE || !is_drawn(choice, &changes, change)) continue;
        int64_t total = (int64_t)MIN(change->allocated, (uint64_t)INT64_MAX);
        struct picture_point point = {
            .time = change->time, .bytes = {total}, .total = total, .reserved = change->reserved};
        if (bytes) memcpy(point.bytes, bytes, sizeof point.bytes);
        add_point(&pictures->picture[place], point);
    }
    for (size_t i = 0; i < counting.pools; i++)
        if (counting.place[i] != NO_PLACE) end_picture(&pictures->picture[counting.place[i]]);
    memory_walk_free(&changes);
    free(counting.counted);
    free(counting.place);
}

void pictures_free(struct pictures *pictures)
{
    for (size_t i = 0; i < pictures->count; i++) free(pictures->picture[i].point);
    free(pictures->picture);
    *pictures = (struct pictures){0};
}
