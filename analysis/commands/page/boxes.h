/* boxes.h - intervals with names in one row of a timeline, of which short neighbours are joined until a screen can show them. */
#ifndef TFA_BOXES_H
#define TFA_BOXES_H

#include "model/names.h"
#include "write/out.h"

struct box {
    int64_t start, end;
    uint32_t name;  /* of the longest interval in it */
    uint64_t count; /* intervals that are joined in it */
};

struct boxes {
    struct box *box;
    size_t count, capacity;
    int64_t busy; /* sum of the durations of all intervals */
};

/* The names of all boxes of a page, in order of first use. */
struct box_names {
    struct map known;
    uint32_t *name;
    size_t count, capacity;
};

void boxes_add(struct boxes *boxes, int64_t start, int64_t end, uint32_t name);
/* Joins what is shorter than `cell` with neighbours that begin less than `cell` later. Keeps the longest `most`. Returns the
 * number of intervals that it leaves out. */
uint64_t boxes_thin(struct boxes *boxes, int64_t cell, size_t most);
/* Writes the columns start (from the one before), duration, name and count, in nanoseconds; the first start counts from `from`. */
void boxes_write(struct out *out, const struct boxes *boxes, int64_t from, struct box_names *names);
void boxes_free(struct boxes *boxes);
/* Writes the names as a list of texts, of which long ones are cut. */
void box_names_write(struct out *out, const struct box_names *names, const struct names *of);
void box_names_free(struct box_names *names);

#endif
