/* boxes.c - joins short intervals of a row of a timeline, and writes the row as columns. */
#include "commands/page/boxes.h"

#include <stdlib.h>

enum { LONGEST_NAME = 200 };

void boxes_add(struct boxes *boxes, int64_t start, int64_t end, uint32_t name)
{
    boxes->box = mem_grow(boxes->box, &boxes->capacity, boxes->count + 1, sizeof *boxes->box);
    boxes->box[boxes->count++] = (struct box){start, end, name, 1};
    boxes->busy = add_ns(boxes->busy, less_ns(end, start));
}

static int boxes_by_start(const void *a, const void *b)
{
    const struct box *x = a, *y = b;
    return outer_first(x->start, x->end, y->start, y->end);
}

static int longest_boxes_first(const void *a, const void *b)
{
    const struct box *x = a, *y = b;
    int order = by_number(less_ns(y->end, y->start), less_ns(x->end, x->start));
    return order ? order : by_number(x->start, y->start);
}

/* Leaves the longest `most` boxes. Returns the number of intervals in the others. */
static uint64_t leave_longest(struct boxes *boxes, size_t most)
{
    uint64_t left = 0;
    if (boxes->count <= most) return 0;
    qsort(boxes->box, boxes->count, sizeof *boxes->box, longest_boxes_first);
    for (size_t i = most; i < boxes->count; i++) left += boxes->box[i].count;
    boxes->count = most;
    qsort(boxes->box, boxes->count, sizeof *boxes->box, boxes_by_start);
    return left;
}

uint64_t boxes_thin(struct boxes *boxes, int64_t cell, size_t most)
{
    struct box *joined = NULL; /* the last box of short intervals; no other box is behind it */
    size_t kept = 0;
    int64_t longest = 0; /* of the intervals in it */
    if (boxes->count) qsort(boxes->box, boxes->count, sizeof *boxes->box, boxes_by_start);
    for (size_t i = 0; i < boxes->count; i++) {
        const struct box box = boxes->box[i];
        int64_t time = less_ns(box.end, box.start);
        if (time >= cell || !joined || less_ns(box.start, joined->start) >= cell) {
            boxes->box[kept] = box;
            joined = time < cell ? &boxes->box[kept] : NULL;
            longest = time;
            kept++;
            continue;
        }
        joined->end = MAX(joined->end, box.end);
        joined->count++;
        if (time <= longest) continue;
        longest = time;
        joined->name = box.name;
    }
    boxes->count = kept;
    return leave_longest(boxes, most);
}

static uint32_t number_of_name(struct box_names *names, uint32_t name)
{
    uint32_t number = map_number(&names->known, name);
    if (number < names->count) return number;
    names->name = mem_grow(names->name, &names->capacity, names->count + 1, sizeof *names->name);
    names->name[names->count++] = name;
    return number;
}

void boxes_write(struct out *out, const struct boxes *boxes, int64_t from, struct box_names *names)
{
    static const char *const keys[] = {"start", "time", "name", "count"};
    for (size_t column = 0; column < ARRAY_SIZE(keys); column++) {
        int64_t before = from;
        out_puts(out, column ? ", \"" : "\"");
        out_puts(out, keys[column]);
        out_puts(out, "\": [");
        for (size_t i = 0; i < boxes->count; i++) {
            const struct box *b = &boxes->box[i];
            if (i) out_puts(out, ",");
            if (column == 0) out_int(out, less_ns(b->start, before));
            else if (column == 1) out_int(out, less_ns(b->end, b->start));
            else out_number(out, column == 2 ? number_of_name(names, b->name) : b->count);
            before = b->start;
        }
        out_puts(out, "]");
    }
}

void boxes_free(struct boxes *boxes)
{
    free(boxes->box);
    *boxes = (struct boxes){0};
}

void box_names_write(struct out *out, const struct box_names *names, const struct names *of)
{
    out_puts(out, "[");
    for (size_t i = 0; i < names->count; i++) {
        const struct name *name = names_get(of, names->name[i]);
        if (i) out_puts(out, ",");
        out_json_string(out, name->text, MIN((size_t)name->length, LONGEST_NAME));
    }
    out_puts(out, "]");
}

void box_names_free(struct box_names *names)
{
    map_free(&names->known);
    free(names->name);
}
