/* compact.c - writes Thrift's compact protocol into memory. */
#include "write/parquet/compact.h"

#include <string.h>

void compact_varint(struct text *bytes, uint64_t value)
{
    char data[10];
    size_t length = 0;
    for (; value > 127; value >>= 7) data[length++] = (char)(value | 128);
    data[length++] = (char)value;
    text_add(bytes, data, length);
}

static void put_zigzag(struct compact *c, int64_t value)
{
    compact_varint(&c->bytes, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

/* Parquet's fields have numbers below 16, so the distance to the last one fits its four bits. */
static void put_field(struct compact *c, unsigned field, enum compact_type type)
{
    char head = (char)((field - c->last[c->depth]) << 4 | type);
    c->last[c->depth] = field;
    text_add(&c->bytes, &head, 1);
}

void compact_int(struct compact *c, unsigned field, enum compact_type type, int64_t value)
{
    put_field(c, field, type);
    put_zigzag(c, value);
}

static void put_binary(struct compact *c, const char *data, size_t length)
{
    compact_varint(&c->bytes, length);
    text_add(&c->bytes, data, length);
}

void compact_binary(struct compact *c, unsigned field, const char *data, size_t length)
{
    put_field(c, field, COMPACT_BINARY);
    put_binary(c, data, length);
}

void compact_list(struct compact *c, unsigned field, enum compact_type of, size_t count)
{
    char head = (char)(MIN(count, 15) << 4 | of);
    put_field(c, field, COMPACT_LIST);
    text_add(&c->bytes, &head, 1);
    if (count >= 15) compact_varint(&c->bytes, count);
}

void compact_item_int(struct compact *c, int64_t value)
{
    put_zigzag(c, value);
}

void compact_item_text(struct compact *c, const char *text)
{
    put_binary(c, text, strlen(text));
}

void compact_open(struct compact *c, unsigned field)
{
    if (field) put_field(c, field, COMPACT_STRUCT);
    c->last[++c->depth] = 0;
}

void compact_close(struct compact *c)
{
    text_add(&c->bytes, "", 1);
    c->depth--;
}
