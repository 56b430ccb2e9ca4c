/* decode.h - the payload of one chunk as groups of columns, each decoded when somebody asks for it.
 *
 * Rows and columns look the same from outside. What a decoder hands out lives until its next chunk. All sizes in the
 * payload are checked against what is really there; a count is bounded by what the rows of it would take in memory.
 */
#ifndef TFA_DECODE_H
#define TFA_DECODE_H

#include "schema.h"

struct column {
    uint16_t field;
    uint16_t codec;
    uint32_t bytes;
    const uint8_t *data;
    uint64_t *values; /* NULL until it is decoded */
    uint32_t *first;  /* of a list: where the values of each record begin, one more than there are records */
};

struct group {
    uint16_t number;
    const struct kind *kind; /* NULL: not in the schema */
    uint32_t count;
    bool damaged; /* a column that was asked for makes no sense */
    unsigned columns;
    struct column *column;
    const uint8_t *rows;     /* NULL: it is stored as columns */
    const uint32_t *offsets; /* of each row */
};

struct run {
    uint32_t group;
    uint32_t count;
};

struct chunk {
    unsigned groups;
    struct group *group;
    size_t runs; /* how records of different kinds follow each other */
    struct run *run;
    uint32_t records;
    uint32_t bad_bytes; /* rows: what follows a row that makes no sense */
};

struct arena_block;
struct decoder {
    struct arena_block *blocks;
    size_t used;          /* of the newest block */
    const uint64_t *keys; /* the first column of a group, for codecs that go by it */
};

/* Both answer false, and the chunk is empty, if the payload makes no sense. It must stay where it is. */
bool decode_columns(struct decoder *d, const struct schema *schema, const uint8_t *payload, uint32_t bytes,
                    struct chunk *chunk);
bool decode_rows(struct decoder *d, const struct schema *schema, const uint8_t *payload, uint32_t bytes,
                 struct chunk *chunk);

/* The values of a field, one a record, or NULL if the group has none or (group->damaged) they make no sense. */
const uint64_t *group_values(struct decoder *d, struct group *group, int field);
/* The same by COL_kind_column, where the group's number is that of the kind. */
const uint64_t *group_own(struct decoder *d, struct group *group, unsigned own);
/* The values of a list; those of record i are values[(*first)[i]] to values[(*first)[i + 1]]. */
const uint64_t *group_list(struct decoder *d, struct group *group, int field, const uint32_t **first);

void decoder_free(struct decoder *d);

#endif
