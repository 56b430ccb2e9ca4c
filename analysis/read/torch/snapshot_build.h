/* snapshot_build.h - builds the rows of a memory snapshot from its pickle, container by container. */
#ifndef TFA_SNAPSHOT_BUILD_H
#define TFA_SNAPSHOT_BUILD_H

#include "read/torch/pickle_machine.h"
#include "read/torch/memory_snapshot.h"

#define WORD(name, text) WORD_##name,
enum {
#include "read/torch/snapshot_words.def"
    NR_WORDS,
    NR_KEYS = WORD_alloc
};
#undef WORD

/* Kinds of containers. */
enum {
    KIND_EMPTY,
    KIND_OTHER,
    KIND_NUMBERS, /* its id is the place of its first two numbers in `numbers` */
    KIND_FRAME,
    KIND_STACK, /* a list of frames */
    KIND_EVENT,
    KIND_BLOCK,
    KIND_SEGMENT,
    KIND_MARK,
    KIND_HISTORY, /* of a block, by torch 2.0; id: in `histories` */
    KIND_ROOT,
    KIND_LIST, /* as an item of a list: a list of events, or an empty one */
    LIST_OF = 16,
};

struct snapshot_building {
    struct snapshot *snapshot;
    uint8_t *kind; /* of each container */
    uint32_t *id;  /* number of its row, list or stack; of a list that is open: its place in `open` */
    size_t containers, kind_capacity, id_capacity;
    struct open_list {
        struct snapshot_span *span;
        size_t spans, capacity;
        uint64_t others;    /* items of another kind */
        uint64_t number[2]; /* the first two numbers among its items */
        uint8_t numbers, of;
        uint32_t next; /* in the list of free places */
    } * open;
    size_t opens, open_capacity;
    uint32_t free_open; /* SNAPSHOT_NONE: none */
    uint64_t (*numbers)[2];
    size_t number_count, number_capacity;
    struct {
        uint64_t size;
        uint32_t stack;
    } * history;
    size_t histories, history_capacity;
    uint64_t frame_bytes;
};

void snapshot_building_init(struct snapshot_building *building, struct snapshot *snapshot);
void snapshot_building_free(struct snapshot_building *building);
/* The functions of a builder (pickle_machine.h); `context` is the building. */
struct pickle_builder snapshot_builder(struct snapshot_building *building);
/* True if the value is a snapshot: its lists are in `building->snapshot` then. */
bool snapshot_is_built(const struct snapshot_building *building, const struct pickle_item *item);

/* ---- snapshot_rows.c ---- */
/* The values of a dictionary by the words that are keys; PICKLE_MARK: it has no such key. */
struct fields {
    struct pickle_item value[NR_KEYS];
};
/* Makes a row of a dictionary. Returns its kind, and sets `id`. */
uint8_t snapshot_row(struct snapshot_building *building, const struct fields *fields, uint32_t *id);

#endif
