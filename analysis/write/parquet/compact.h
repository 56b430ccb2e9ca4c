/* compact.h - writes Thrift's compact protocol into memory: the headers and the footer of Parquet files. */
#ifndef TFA_COMPACT_H
#define TFA_COMPACT_H

#include "base/util.h"

enum compact_type { COMPACT_I32 = 5, COMPACT_I64 = 6, COMPACT_BINARY = 8, COMPACT_LIST = 9, COMPACT_STRUCT = 12 };
enum { COMPACT_DEEP = 8 };

struct compact {
    struct text bytes;
    unsigned last[COMPACT_DEEP]; /* by depth: the last field's number, from which the next one counts */
    size_t depth;
};

void compact_varint(struct text *bytes, uint64_t value);
void compact_int(struct compact *c, unsigned field, enum compact_type type, int64_t value);
void compact_binary(struct compact *c, unsigned field, const char *data, size_t length);
void compact_list(struct compact *c, unsigned field, enum compact_type of, size_t count);
/* An item of a list. */
void compact_item_int(struct compact *c, int64_t value);
void compact_item_text(struct compact *c, const char *text);
/* Begins a struct as a field, or as an item of a list: field 0. */
void compact_open(struct compact *c, unsigned field);
void compact_close(struct compact *c);

#endif
