/* packing.h - writes and reads the numbers, texts and tables of a summary (.tfs).
 *
 * A number is a varint, signed ones in zigzag. A table is written column by column, each value as the difference from
 * the one before it, which deflate then makes small. A column of names has the places of texts in a list that the block
 * ends with. Reading checks every size against the bytes that are left: what is wrong makes `bad`, and all that follows
 * reads as zero.
 */
#ifndef TFA_PACKING_H
#define TFA_PACKING_H

#include "base/util.h"

struct unpacking {
    const uint8_t *at, *end;
    bool bad;
};

/* What a file of summaries has of a process. */
struct packed_block {
    uint8_t *bytes;        /* NULL: the process is of a trace */
    struct unpacking rest; /* behind what describes the process */
};

void pack_number(struct text *to, uint64_t number);
void pack_signed(struct text *to, int64_t number);
void pack_bytes(struct text *to, const char *bytes, size_t length);
/* NULL and "" are different. */
void pack_text(struct text *to, const char *text);

uint64_t unpack_number(struct unpacking *from);
int64_t unpack_signed(struct unpacking *from);
/* Returns the bytes, which stay where they are. */
const char *unpack_bytes(struct unpacking *from, size_t *length);
/* Returns a copy that the caller frees; NULL as it was packed. */
char *unpack_text(struct unpacking *from);
/* Returns a count of items that take at least `least` bytes each; 0 with `bad` if there can't be so many. */
size_t unpack_count(struct unpacking *from, size_t least);

enum packed_type { PACKED_U8, PACKED_U32, PACKED_64, PACKED_NAME };
struct packed_column {
    size_t offset; /* in the row */
    enum packed_type type;
};

/* The texts of names, in the order in which a block first uses them. */
struct packed_names {
    struct map place; /* by name */
    uint32_t *name;   /* by place */
    size_t count, capacity;
};

void pack_rows(struct text *to, struct packed_names *names, const void *rows, size_t count, size_t size,
               const struct packed_column *column, size_t columns);
/* Returns the rows, whose other members are zero; the caller frees them. A name is the entry of `name`, of which there
 * are `names`. */
void *unpack_rows(struct unpacking *from, const uint32_t *name, size_t names, size_t *count, size_t size,
                  const struct packed_column *column, size_t columns);

#endif
