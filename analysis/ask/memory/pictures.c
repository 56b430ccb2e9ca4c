/* pictures.c - follows memory over time and keeps few points of it, with the peaks. */
#include "ask/memory/pictures.h"

#include <stdlib.h>
#include <string.h>

#include "ask/memory/categories.h"

/* ---- parts ---- */

static void keep_point(struct picture *picture, const struct picture_point *point)
{
    picture->point = mem_grow(picture->point, &picture->capacity, picture->points + 1, sizeof *picture->point);
    picture->point[picture->points++] = *point;
}

/* Keeps the four points of a part in their order, each once. */
static void keep_part(struct picture *p, const struct picture_part *part)
{
    const struct picture_extreme *inner[2] = {&part->low, &part->high};
    if (part->high.place < part->low.place) inner[0] = &part->high, inner[1] = &part->low;
    uint64_t kept = part->first.place;
    keep_point(p, &part->first.point);
    for (int i = 0; i < 2; i++) {
        if (inner[i]->place <= kept) continue;
        keep_point(p, &inner[i]->point);
        kept = inner[i]->place;
    }
    if (part->final.place > kept) keep_point(p, &part->final.point);
}

static void join_picture_parts(struct picture_part *part, const struct picture_part *later)
{
    part->final = later->final;
    if (later->low.point.total < part->low.point.total) part->low = later->low;
    if (later->high.point.total > part->high.point.total) part->high = later->high;
}

/* Makes the parts twice as long. */
static void double_length(struct picture *p)
{
    size_t kept = 0;
    p->length *= 2;
    for (size_t i = 0; i < p->parts; i++) {
        struct picture_part *part = &p->part[i];
        part->number /= 2;
        if (kept && p->part[kept - 1].number == part->number) join_picture_parts(&p->part[kept - 1], part);
        else p->part[kept++] = *part;
    }
    p->parts = kept;
}

/* Returns the part of a moment, which is not before the last one. */
static uint32_t part_of(struct picture *p, int64_t time)
{
    uint64_t since = (uint64_t)time - (uint64_t)p->from;
    while (since / p->length >= PICTURE_PARTS) double_length(p);
    return (uint32_t)(since / p->length);
}

static void add_to_part(struct picture *p, uint64_t place, const struct picture_point *point)
{
    uint32_t number = part_of(p, point->time);
    struct picture_part *last = p->parts ? &p->part[p->parts - 1] : NULL;
    if (!last || last->number != number) {
        const struct picture_extreme only = {place, *point};
        p->part[p->parts++] = (struct picture_part){number, only, only, only, only};
        return;
    }
    last->final.place = place;
    last->final.point = *point;
    if (point->total < last->low.point.total) last->low = last->final;
    if (point->total > last->high.point.total) last->high = last->final;
}

/* Puts the points kept so far into parts. */
static void begin_parts(struct picture *p)
{
    p->part = mem_zero(PICTURE_PARTS, sizeof *p->part);
    p->length = MAX(((uint64_t)p->last.time - (uint64_t)p->from) / PICTURE_PARTS, 1);
    for (size_t i = 0; i < p->points; i++) add_to_part(p, i, &p->point[i]);
    p->points = 0;
}

/* ---- points ---- */

static void add_point(struct picture *p, struct picture_point point)
{
    bool is_first = !p->counted;
    if (!is_first) point.time = MAX(point.time, p->last.time); /* a damaged file may go back */
    for (int i = 0; i < (p->by_category ? MEMORY_CATEGORIES : 1); i++) {
        if (!is_first && point.bytes[i] <= p->largest[i]) continue;
        p->largest[i] = point.bytes[i];
        p->since[i] = point.time;
    }
    if (is_first) p->from = point.time;
    p->to = point.time;
    if (is_first || point.total > p->peak.total) p->peak = point;
    if (point.reserved != TOTAL_UNKNOWN)
        p->reserved_peak = p->reserved_peak == TOTAL_UNKNOWN ? point.reserved : MAX(p->reserved_peak, point.reserved);
    if (p->counted == PICTURE_POINTS) begin_parts(p);
    if (p->part) add_to_part(p, p->counted, &point);
    else keep_point(p, &point);
    p->last = point;
    p->counted++;
}

static void end_picture(struct picture *p)
{
    for (size_t i = 0; i < p->parts; i++) keep_part(p, &p->part[i]);
    free(p->part);
    p->part = NULL;
    p->parts = 0;
}

/* Returns the number of the new picture; NO_PLACE if there are enough. */
static uint32_t add_picture(struct pictures *pictures, const struct picture *picture)
{
    if (pictures->count == pictures->most) {
        pictures->left_out++;
        return NO_PLACE;
    }
    pictures->picture =
        mem_grow(pictures->picture, &pictures->capacity, pictures->count + 1, sizeof *pictures->picture);
    pictures->picture[pictures->count] = *picture;
    pictures->picture[pictures->count].reserved_peak = TOTAL_UNKNOWN;
    return (uint32_t)pictures->count++;
}

/* ---- torch's rows ---- */

bool memory_row_chosen(const struct choice *choice, int64_t time)
{
    return choice_moment(choice, time, time) && choice->outside_wanted && !choice->options->device.count;
}

void pictures_add_rows(struct pictures *pictures, const struct choice *choice)
{
    const struct picture empty = {
        .process = choice->process, .device = DEVICE_OTHER, .allocator = NAME_NONE, .by_category = true};
    uint32_t place = NO_PLACE;
    struct category_walk walk;
    bool any = false;
    category_walk_init(&walk, choice->process);
    while (category_walk_moment(&walk)) {
        if (!memory_row_chosen(choice, walk.time)) continue;
        if (!any) place = add_picture(pictures, &empty);
        any = true;
        if (place == NO_PLACE) break;
        struct picture_point point = {.time = walk.time, .total = walk.total, .reserved = TOTAL_UNKNOWN};
        for (int i = 0; i < MEMORY_CATEGORIES; i++) point.bytes[i] = walk.bytes[i];
        add_point(&pictures->picture[place], point);
    }
    if (place != NO_PLACE) end_picture(&pictures->picture[place]);
}

/* ---- blocks ---- */

static bool is_drawn(const struct choice *choice, const struct memory_walk *changes, const struct memory_change *change)
{
    return change->allocated != TOTAL_UNKNOWN && memory_change_chosen(changes, choice, change);
}

/* The pictures of pools: an entry for each pool that the walk has seen. */
struct drawn {
    struct drawn_pool {
        bool is_known;
        uint32_t picture; /* NO_PLACE: there are enough pictures */
    } * pool;
    size_t pools, capacity;
};

/* Returns the picture of a pool that has a chosen change; NO_PLACE if there are enough. */
static uint32_t picture_of(struct drawn *drawn, struct pictures *pictures, const struct choice *choice,
                           const struct memory_walk *changes, uint32_t pool, bool by_category)
{
    if (changes->pools > drawn->pools) {
        drawn->pool = mem_grow(drawn->pool, &drawn->capacity, changes->pools, sizeof *drawn->pool);
        memset(drawn->pool + drawn->pools, 0, (changes->pools - drawn->pools) * sizeof *drawn->pool);
        drawn->pools = changes->pools;
    }
    struct drawn_pool *of = &drawn->pool[pool];
    if (!of->is_known) {
        const struct memory_pool *shown = &changes->pool[pool];
        const struct picture empty = {.process = choice->process,
                                      .device = shown->device,
                                      .allocator = shown->allocator,
                                      .by_category = by_category && memory_pool_has_categories(shown)};
        *of = (struct drawn_pool){true, add_picture(pictures, &empty)};
    }
    return of->picture;
}

void pictures_add_changes(struct pictures *pictures, const struct choice *choice, struct memory_reading *reading,
                          struct assigned_walk *walk)
{
    struct drawn drawn = {0};
    struct memory_walk changes;
    const struct memory_change *change;
    memory_walk_init(&changes, reading);
    while ((change = memory_walk_next(&changes)) != NULL) {
        const int64_t *bytes = walk ? assigned_walk_take(walk, &changes, change) : NULL;
        if (!is_drawn(choice, &changes, change)) continue;
        uint32_t place = picture_of(&drawn, pictures, choice, &changes, change->pool, walk != NULL);
        if (place == NO_PLACE) continue;
        int64_t total = (int64_t)MIN(change->allocated, (uint64_t)INT64_MAX);
        struct picture_point point = {
            .time = change->time, .bytes = {total}, .total = total, .reserved = change->reserved};
        if (bytes) memcpy(point.bytes, bytes, sizeof point.bytes);
        add_point(&pictures->picture[place], point);
    }
    for (size_t i = 0; i < drawn.pools; i++)
        if (drawn.pool[i].is_known && drawn.pool[i].picture != NO_PLACE)
            end_picture(&pictures->picture[drawn.pool[i].picture]);
    memory_walk_free(&changes);
    free(drawn.pool);
}

void pictures_free(struct pictures *pictures)
{
    for (size_t i = 0; i < pictures->count; i++) free(pictures->picture[i].point);
    free(pictures->picture);
    *pictures = (struct pictures){0};
}
