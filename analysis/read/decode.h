/* decode.h - decodes the payload of one chunk as groups of columns, each on first use.
 *
 * Chunks stored as rows and as columns have the same interface. Results of a decoder live until its next chunk. All
 * sizes in the payload are checked against the bytes present. A record count is bounded by the memory its rows would
 * take.
 */
#ifndef TFA_DECODE_H
#define TFA_DECODE_H

#include "read/schema.h"

struct column {
    uint16_t field;
    uint16_t codec;
    uint32_t bytes;
    const uint8_t *data;
    uint64_t *values; /* NULL until decoded */
    uint32_t *first;  /* list only: index of the first value of each record, plus one entry for the end */
};

struct group {
    uint16_t number;
    const struct kind *kind; /* NULL: not in the schema */
    uint32_t count;
    bool damaged; /* a requested column is invalid */
    unsigned columns;
    struct column *column;
    const uint8_t *rows;     /* NULL: stored as columns */
    const uint32_t *offsets; /* offset of each row */
};

struct run {
    uint32_t group;
    uint32_t count;
};

struct chunk {
    unsigned groups;
    struct group *group;
    size_t runs; /* the order of records of different kinds */
    struct run *run;
    uint32_t records;
    uint32_t bad_bytes; /* rows only: bytes from the first invalid row on */
};

struct arena_block;
struct decoder {
    struct arena_block *blocks;
    size_t used;          /* bytes used of the newest block */
    const uint64_t *keys; /* first column of a group, for the keyed codecs */
    bool skips_order;     /* set by a reader that does not use chunk->run, of chunks that another has checked */
};

/* Both return false with an empty chunk if the payload is invalid. The payload must stay in place while the chunk is
 * used. */
bool decode_columns(struct decoder *d, const struct schema *schema, const uint8_t *payload, uint32_t bytes,
                    struct chunk *chunk);
bool decode_rows(struct decoder *d, const struct schema *schema, const uint8_t *payload, uint32_t bytes,
                 struct chunk *chunk);

/* Returns the values of a field, one per record; NULL if the group lacks the field, or if they are invalid
 * (group->damaged). */
const uint64_t *group_values(struct decoder *d, struct group *group, int field);
/* The same by COL_kind_column; the group's number must be that of the kind. */
const uint64_t *group_own(struct decoder *d, struct group *group, unsigned own);
/* Returns the values of a list. Record i has values[(*first)[i]] up to, but not including, values[(*first)[i + 1]]. */
const uint64_t *group_list(struct decoder *d, struct group *group, int field, const uint32_t **first);

void decoder_free(struct decoder *d);

#endif
