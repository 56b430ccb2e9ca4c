/* spots.h - adds up the sampled periods of processes by function, line or stage. */
#ifndef TFA_SPOTS_H
#define TFA_SPOTS_H

#include "ask/samples/periods.h"
#include "base/sets/rows_by_key.h"

/* A function or line of a rank. The rank, name and file are its key. */
struct spot {
    int64_t rank;
    uint32_t name, file; /* NAME_NONE: none */
    uint32_t line;       /* with SPOT_LINE a part of the key; else 0 */
    uint64_t stamp;      /* of the last stack that it was on */
    uint64_t looks;
    int64_t wall, total, cpu, waiting, device_idle, weight;
};

/* Where a spot's time was: in a stage, on a thread, at a line, waiting in something. */
enum spot_share { SHARE_STAGE, SHARE_THREAD, SHARE_LINE, SHARE_WAIT };

struct share {
    uint32_t spot, kind, what;
    int64_t wall;
};

struct spots {
    enum spot_by by;
    struct names *names;
    KEYED_ROWS(struct spot);
    union {
        struct keyed shared;
        struct {
            struct share *share;
            size_t shares, share_capacity;
        };
    };
    struct map frame_spot; /* index of the row, by name of a frame's text; of the present rank */
    uint64_t stamp;
    uint64_t looks, cut, unreadable; /* counts of looks */
    int64_t wall, weight;
};

void spots_init(struct spots *spots, enum spot_by by, struct names *names);
/* Called before the periods of each process. */
void spots_begin_process(struct spots *spots);
/* Adds a period of the process. */
void spots_add(struct spots *spots, const struct scope *scope, const struct sampled *sampled);
/* Orders the rows, those that count most first. Shares are known by the row's index before. */
void spots_sort(struct spots *spots);
void spots_free(struct spots *spots);
/* Returns the name or number that has most of the row's time; NAME_NONE: none. Call spots_sort first. */
uint32_t spot_most(const struct spots *spots, size_t row, enum spot_share kind);

#endif
