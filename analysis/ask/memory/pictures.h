/* pictures.h - memory over time in few points, with exact peaks: what a page can draw of a trace of any size.
 *
 * A picture shows one allocator of one device of a process, or all of torch's memory rows. Up to PICTURE_POINTS moments
 * are kept as they are. Of more, each of PICTURE_PARTS equal parts of the time keeps four: the first, the last, the
 * lowest and the highest one. The last moment is not known while moments are collected, so all parts become twice as
 * long when a moment lies beyond them. In the end at least half of the parts are in use. The peaks are taken from all
 * moments.
 */
#ifndef TFA_MEMORY_PICTURES_H
#define TFA_MEMORY_PICTURES_H

#include "ask/choice.h"
#include "ask/memory/assign.h"

enum { PICTURE_POINTS = 2400, PICTURE_PARTS = PICTURE_POINTS / 4, MOST_PICTURES = 32 };

struct picture_point {
    int64_t time;
    int64_t bytes[MEMORY_CATEGORIES]; /* without categories only the first one, which is the total */
    int64_t total;
    uint64_t reserved; /* TOTAL_UNKNOWN */
};

/* A point of a part of the time, and its place among all moments. */
struct picture_extreme {
    uint64_t place;
    struct picture_point point;
};

struct picture_part {
    uint32_t number;
    struct picture_extreme first, final, low, high;
};

struct picture {
    const struct process *process;
    int64_t device;     /* DEVICE_OTHER: unknown */
    uint32_t allocator; /* NAME_NONE: unknown */
    bool by_category;
    int64_t from, to; /* the first and the last moment */
    struct picture_point *point;
    size_t points, capacity;
    struct picture_point peak, last;                              /* the highest and the last moment */
    int64_t largest[MEMORY_CATEGORIES], since[MEMORY_CATEGORIES]; /* the most of each category, and from when */
    uint64_t reserved_peak;                                       /* TOTAL_UNKNOWN */
    /* while collecting */
    uint64_t counted; /* moments */
    uint64_t length;  /* nanoseconds, of a part */
    struct picture_part *part;
    size_t parts;
};

struct pictures {
    struct picture *picture;
    size_t count, capacity, most;
    uint64_t left_out; /* pictures beyond `most` */
};

/* Adds the pictures of a process: of its memory rows, or of its blocks. `walk` has the categories of blocks; NULL: they are
 * unknown. */
void pictures_add_rows(struct pictures *pictures, const struct choice *choice);
void pictures_add_changes(struct pictures *pictures, const struct choice *choice, struct memory_reading *reading,
                          struct assigned_walk *walk);
void pictures_free(struct pictures *pictures);
/* True if the filters choose torch's rows of that moment. These rows name neither a stage nor a device. */
bool memory_row_chosen(const struct choice *choice, int64_t time);

#endif
