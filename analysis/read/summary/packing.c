/* packing.c - implements packing and unpacking. */
#include "read/summary/packing.h"

#include <stdlib.h>
#include <string.h>

#include "base/varint.h"

/* ---- numbers and texts ---- */

void pack_number(struct text *to, uint64_t number)
{
    char byte[10];
    size_t length = 0;
    for (; number >= 128; number >>= 7) byte[length++] = (char)(number | 128);
    byte[length++] = (char)number;
    text_add(to, byte, length);
}

void pack_signed(struct text *to, int64_t number)
{
    pack_number(to, (uint64_t)number << 1 ^ (uint64_t)(number >> 63));
}

void pack_bytes(struct text *to, const char *bytes, size_t length)
{
    pack_number(to, length);
    text_add(to, bytes, length);
}

void pack_text(struct text *to, const char *text)
{
    pack_number(to, text ? strlen(text) + 1 : 0);
    if (text) text_add(to, text, strlen(text));
}

uint64_t unpack_number(struct unpacking *from)
{
    uint64_t number = 0;
    const uint8_t *behind = from->bad ? NULL : varint(from->at, from->end, &number);
    from->bad |= !behind;
    if (behind) from->at = behind;
    return from->bad ? 0 : number;
}

int64_t unpack_signed(struct unpacking *from)
{
    return (int64_t)unzigzag(unpack_number(from));
}

const char *unpack_bytes(struct unpacking *from, size_t *length)
{
    uint64_t bytes = unpack_number(from);
    const char *at = (const char *)from->at;
    from->bad |= bytes > (uint64_t)(from->end - from->at);
    *length = from->bad ? 0 : (size_t)bytes;
    from->at += *length;
    return at;
}

char *unpack_text(struct unpacking *from)
{
    uint64_t bytes = unpack_number(from);
    from->bad |= bytes > (uint64_t)(from->end - from->at) + 1;
    if (!bytes || from->bad) return NULL;
    char *text = mem_text((const char *)from->at, (size_t)bytes - 1);
    from->at += bytes - 1;
    return text;
}

size_t unpack_count(struct unpacking *from, size_t least)
{
    uint64_t count = unpack_number(from);
    from->bad |= count > (uint64_t)(from->end - from->at) / least;
    return from->bad ? 0 : (size_t)count;
}

/* ---- tables ---- */

static uint32_t place_of_name(struct packed_names *names, uint32_t name)
{
    uint32_t place = map_number(&names->place, name);
    if (place < names->count) return place;
    names->name = mem_grow(names->name, &names->capacity, names->count + 1, sizeof *names->name);
    names->name[names->count++] = name;
    return place;
}

static uint64_t value_of(const char *cell, enum packed_type type)
{
    uint32_t number;
    uint64_t value;
    if (type == PACKED_U8) return *(const uint8_t *)cell;
    if (type == PACKED_64) {
        memcpy(&value, cell, sizeof value);
        return value;
    }
    memcpy(&number, cell, sizeof number);
    return number;
}

void pack_rows(struct text *to, struct packed_names *names, const void *rows, size_t count, size_t size,
               const struct packed_column *column, size_t columns)
{
    pack_number(to, count);
    for (size_t c = 0; c < columns; c++) {
        const char *cell = (const char *)rows + column[c].offset;
        uint64_t before = 0;
        for (size_t i = 0; i < count; i++, cell += size) {
            uint64_t value = value_of(cell, column[c].type);
            if (column[c].type == PACKED_NAME) value = place_of_name(names, (uint32_t)value);
            pack_signed(to, (int64_t)(value - before));
            before = value;
        }
    }
}

/* Writes a value into its cell. Returns false if it has no room there. */
static bool set_value(char *cell, enum packed_type type, uint64_t value, const uint32_t *name, size_t names)
{
    uint64_t most = type == PACKED_64 ? UINT64_MAX : type == PACKED_U8 ? UINT8_MAX : UINT32_MAX;
    if (type == PACKED_NAME) most = names - 1;
    if (value > most || (type == PACKED_NAME && !names)) return false;
    uint32_t number = type == PACKED_NAME ? name[value] : (uint32_t)value;
    if (type == PACKED_U8) *(uint8_t *)cell = (uint8_t)value;
    else if (type == PACKED_64) memcpy(cell, &value, sizeof value);
    else memcpy(cell, &number, sizeof number);
    return true;
}

void *unpack_rows(struct unpacking *from, const uint32_t *name, size_t names, size_t *count, size_t size,
                  const struct packed_column *column, size_t columns)
{
    *count = unpack_count(from, columns);
    char *rows = mem_zero(*count, size);
    for (size_t c = 0; c < columns && !from->bad; c++) {
        char *cell = rows + column[c].offset;
        uint64_t value = 0;
        for (size_t i = 0; i < *count && !from->bad; i++, cell += size) {
            value += (uint64_t)unpack_signed(from);
            from->bad |= !set_value(cell, column[c].type, value, name, names);
        }
    }
    if (from->bad) *count = 0;
    return rows;
}
