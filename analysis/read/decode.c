/* decode.c - decodes chunks: the structure at once, values on first use.
 *
 * Most questions need two or three columns of a kind, so the other columns are never decoded.
 */
#include "read/decode.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "base/varint.h"

/* ---- memory that lives for one chunk ---- */

enum { ARENA_BLOCK = 128 << 10, ARENA_MOST = 8 << 20 };

struct arena_block {
    struct arena_block *older;
    size_t size;
    _Alignas(16) uint8_t data[];
};

static void *arena(struct decoder *d, size_t count, size_t size)
{
    size_t bytes = (count * size + 15) & ~(size_t)15; /* counts are below 2^22, sizes are of small structs */
    if (!d->blocks || d->used + bytes > d->blocks->size) {
        size_t block = d->blocks ? MIN(2 * d->blocks->size, (size_t)ARENA_MOST) : (size_t)ARENA_BLOCK;
        block = MAX(block, bytes);
        struct arena_block *fresh = mem_resize(NULL, sizeof *fresh + block, 1);
        fresh->older = d->blocks;
        fresh->size = block;
        d->blocks = fresh;
        d->used = 0;
    }
    void *memory = d->blocks->data + d->used;
    d->used += bytes;
    return memory;
}

/* Frees all blocks but the newest, which has the size of the last chunk's needs or the default one. */
static void arena_reset(struct decoder *d)
{
    struct arena_block *older = d->blocks ? d->blocks->older : NULL;
    while (older) {
        struct arena_block *next = older->older;
        free(older);
        older = next;
    }
    if (d->blocks) d->blocks->older = NULL;
    d->used = 0;
    d->keys = NULL;
}

void decoder_free(struct decoder *d)
{
    arena_reset(d);
    free(d->blocks);
    *d = (struct decoder){0};
}

/* ---- columns: the structure ---- */

/* No writer makes a group whose rows exceed a block. */
static bool plausible(const struct group *group)
{
    uint32_t row = group->kind ? group->kind->row_bytes : 8;
    return (uint64_t)group->count * row <= TFI_BLOCK_MAX;
}

static const uint8_t *parse_group(struct decoder *d, const struct schema *schema, const uint8_t *p, const uint8_t *end,
                                  struct group *group)
{
    if (end - p < (ptrdiff_t)sizeof(struct tfi_group)) return NULL;
    *group = (struct group){.number = get16(p), .columns = get16(p + 2), .count = get32(p + 4)};
    uint32_t bytes = get32(p + 8);
    p += sizeof(struct tfi_group);
    group->kind = schema_kind(schema, group->number);
    if (bytes > (size_t)(end - p) || group->columns > bytes / sizeof(struct tfi_column) || !plausible(group))
        return NULL;
    end = p + bytes;
    group->column = arena(d, group->columns, sizeof *group->column);
    for (unsigned i = 0; i < group->columns; i++) {
        if (end - p < (ptrdiff_t)sizeof(struct tfi_column)) return NULL;
        struct column *column = &group->column[i];
        *column = (struct column){.field = get16(p), .codec = get16(p + 2), .bytes = get32(p + 4)};
        p += sizeof(struct tfi_column);
        if (column->bytes > (size_t)(end - p)) return NULL;
        column->data = p;
        p += column->bytes;
    }
    return end;
}

/* Parses the order of records, which must name every record of every group exactly once. */
static bool parse_order(struct decoder *d, const uint8_t *p, uint32_t bytes, struct chunk *chunk)
{
    const uint8_t *end = p + bytes;
    uint32_t *left = arena(d, chunk->groups, sizeof *left);
    for (unsigned g = 0; g < chunk->groups; g++) left[g] = chunk->group[g].count;
    chunk->run = arena(d, bytes / 2, sizeof *chunk->run);
    while (p < end) {
        uint64_t group, count;
        p = varint(p, end, &group);
        p = p ? varint(p, end, &count) : NULL;
        if (!p || group >= chunk->groups || count > left[group]) return false;
        left[group] -= (uint32_t)count;
        chunk->run[chunk->runs++] = (struct run){(uint32_t)group, (uint32_t)count};
    }
    for (unsigned g = 0; g < chunk->groups; g++)
        if (left[g]) return false;
    return true;
}

static bool parse_columns(struct decoder *d, const struct schema *schema, const uint8_t *payload, uint32_t bytes,
                          struct chunk *chunk)
{
    const uint8_t *p = payload + sizeof(struct tfi_columns), *end = payload + bytes;
    if (bytes < sizeof(struct tfi_columns)) return false;
    uint32_t kinds = get32(payload), order_bytes = get32(payload + 4);
    if (order_bytes > (size_t)(end - p) || kinds > (size_t)(end - p) / sizeof(struct tfi_group)) return false;
    const uint8_t *order = p;
    uint64_t row_bytes = 0;
    chunk->group = arena(d, kinds, sizeof *chunk->group);
    p += order_bytes;
    for (; chunk->groups < kinds; chunk->groups++) {
        struct group *group = &chunk->group[chunk->groups];
        p = parse_group(d, schema, p, end, group);
        if (!p) return false;
        chunk->records += group->count;
        row_bytes += (uint64_t)group->count * (group->kind ? group->kind->row_bytes : 8);
    }
    return row_bytes <= TFI_BLOCK_MAX && (d->skips_order || parse_order(d, order, order_bytes, chunk));
}

bool decode_columns(struct decoder *d, const struct schema *schema, const uint8_t *payload, uint32_t bytes,
                    struct chunk *chunk)
{
    *chunk = (struct chunk){0};
    arena_reset(d);
    bool good = parse_columns(d, schema, payload, bytes, chunk);
    if (!good) *chunk = (struct chunk){0};
    return good;
}

/* ---- rows: the structure ---- */

/* Reads kind and size of the row at `p`; returns false if there is no valid row. */
static bool row_at(const uint8_t *p, const uint8_t *end, uint16_t *kind, uint16_t *size)
{
    if (end - p < (ptrdiff_t)sizeof(struct tfi_rec)) return false;
    *kind = get16(p);
    *size = get16(p + 2);
    return *kind && *size >= sizeof(struct tfi_rec) && *size % 8 == 0 && *size <= end - p;
}

/* Returns the earlier call row that the TFI_ROW_AGAIN row of `size` bytes at `p` refers to; NULL if it is missing or
 * does not match. */
static const uint8_t *row_before(const uint8_t *payload, const uint8_t *p, uint16_t size, uint16_t *before)
{
    uint16_t kind;
    if (size < sizeof(struct tfi_again)) return NULL;
    size_t back = get16(p + offsetof(struct tfi_again, back)) * (size_t)8;
    uint32_t changed = get32(p + offsetof(struct tfi_again, changed));
    size_t values = (size - sizeof(struct tfi_again)) / 8, args;
    if (back > (size_t)(p - payload) || !row_at(p - back, p, &kind, before) || kind != TFI_KIND_call ||
        *before < sizeof(struct tfi_rec_call))
        return NULL;
    args = (*before - sizeof(struct tfi_rec_call)) / 8;
    bool fits = (args >= 32 || !(changed >> args)) && (size_t)__builtin_popcount(changed) <= values;
    return fits ? p - back : NULL;
}

/* Returns the bytes of the rows before the first invalid one. *whole is their size with all calls expanded, 0 if no
 * row needs it. */
static size_t measure(const uint8_t *payload, uint32_t bytes, size_t *whole)
{
    const uint8_t *p = payload, *end = payload + bytes;
    uint16_t kind, size, full;
    bool again = false;
    *whole = 0;
    for (; row_at(p, end, &kind, &size); p += size) {
        full = size;
        if (kind == TFI_ROW_AGAIN && (!row_before(payload, p, size, &full) || *whole + full > TFI_BLOCK_MAX)) break;
        again |= kind == TFI_ROW_AGAIN;
        *whole += full;
    }
    if (!again) *whole = 0;
    return (size_t)(p - payload);
}

static void put(uint8_t *p, uint64_t value, size_t bytes)
{
    value = htole64(value);
    memcpy(p, &value, bytes);
}

/* Writes into `row` the fields in which the call of the row `again` differs. */
static void put_changes(uint8_t *row, const uint8_t *again)
{
    const uint8_t *value = again + sizeof(struct tfi_again);
    uint32_t changed = get32(again + offsetof(struct tfi_again, changed));
    put(row + offsetof(struct tfi_rec_call, time), get64(again + offsetof(struct tfi_again, time)), 8);
    put(row + offsetof(struct tfi_rec_call, duration), get32(again + offsetof(struct tfi_again, duration)), 8);
    put(row + offsetof(struct tfi_rec_call, error), get16(again + offsetof(struct tfi_again, error)), 4);
    for (unsigned i = 0; i < 32; i++) {
        if (changed >> i & 1) {
            memcpy(row + sizeof(struct tfi_rec_call) + i * 8, value, 8);
            value += 8;
        }
    }
}

/* Returns the rows with all calls expanded; `good` bytes are valid and expand to `whole` bytes. */
static const uint8_t *write_out(struct decoder *d, const uint8_t *payload, size_t good, size_t whole)
{
    uint8_t *rows = arena(d, whole, 1), *to = rows;
    uint16_t kind, size, full;
    for (const uint8_t *p = payload; row_at(p, payload + good, &kind, &size); p += size, to += full) {
        const uint8_t *row = kind == TFI_ROW_AGAIN ? row_before(payload, p, size, &full) : p;
        full = row == p ? size : full;
        memcpy(to, row, full);
        if (row != p) put_changes(to, p);
    }
    return rows;
}

/* Counts the records, their kinds and the runs of one kind. `group_of` maps a kind's number to its group. */
static void count_rows(const uint8_t *payload, uint32_t bytes, struct chunk *chunk, struct map *group_of)
{
    const uint8_t *p = payload, *end = payload + bytes;
    uint16_t kind, size, last = 0;
    for (; row_at(p, end, &kind, &size); p += size) {
        if (kind != last) {
            chunk->runs++;
            if (map_get(group_of, kind) == MAP_NONE) map_put(group_of, kind, chunk->groups++);
        }
        last = kind;
        chunk->records++;
    }
}

static void fill_runs(const uint8_t *payload, struct chunk *chunk, const struct map *group_of)
{
    const uint8_t *p = payload;
    uint16_t last = 0;
    size_t run = 0;
    for (uint32_t i = 0; i < chunk->records; i++) {
        uint16_t kind = get16(p);
        if (kind != last) {
            uint32_t g = map_get(group_of, kind);
            chunk->group[g].number = kind;
            chunk->run[run++] = (struct run){g, 0};
        }
        last = kind;
        chunk->run[run - 1].count++;
        chunk->group[chunk->run[run - 1].group].count++;
        p += get16(p + 2);
    }
}

static void fill_offsets(const uint8_t *payload, struct chunk *chunk, uint32_t *offsets, uint32_t **next)
{
    uint32_t at = 0;
    for (unsigned g = 0; g < chunk->groups; g++) {
        chunk->group[g].offsets = next[g] = offsets;
        offsets += chunk->group[g].count;
    }
    for (size_t r = 0; r < chunk->runs; r++) {
        for (uint32_t i = 0; i < chunk->run[r].count; i++) {
            *next[chunk->run[r].group]++ = at;
            at += get16(payload + at + 2);
        }
    }
}

bool decode_rows(struct decoder *d, const struct schema *schema, const uint8_t *payload, uint32_t bytes,
                 struct chunk *chunk)
{
    struct map group_of = {0};
    *chunk = (struct chunk){0};
    arena_reset(d);
    size_t whole, good = measure(payload, bytes, &whole);
    chunk->bad_bytes = bytes - (uint32_t)good;
    if (whole) payload = write_out(d, payload, good, whole);
    count_rows(payload, (uint32_t)(whole ? whole : good), chunk, &group_of);
    chunk->group = arena(d, chunk->groups, sizeof *chunk->group);
    chunk->run = arena(d, chunk->runs, sizeof *chunk->run);
    memset(chunk->group, 0, chunk->groups * sizeof *chunk->group);
    fill_runs(payload, chunk, &group_of);
    fill_offsets(payload, chunk, arena(d, chunk->records, sizeof(uint32_t)),
                 arena(d, chunk->groups, sizeof(uint32_t *)));
    for (unsigned g = 0; g < chunk->groups; g++) {
        struct group *group = &chunk->group[g];
        group->rows = payload;
        group->kind = schema_kind(schema, group->number);
        group->columns = group->kind ? group->kind->fields : 0;
        group->column = arena(d, group->columns, sizeof *group->column);
        memset(group->column, 0, group->columns * sizeof *group->column);
        for (unsigned i = 0; i < group->columns; i++) group->column[i].field = (uint16_t)i;
    }
    map_free(&group_of);
    return true;
}

/* ---- values out of rows ---- */

static uint64_t load(const uint8_t *p, const struct field *field)
{
    switch (field->size) {
    case 8: return get64(p);
    case 4: return field->is_signed ? (uint64_t)(int64_t)(int32_t)get32(p) : get32(p);
    case 2: return field->is_signed ? (uint64_t)(int64_t)(int16_t)get16(p) : get16(p);
    default: return field->is_signed ? (uint64_t)(int64_t)(int8_t)*p : *p;
    }
}

static bool row_values(struct decoder *d, const struct group *group, struct column *column, const struct field *field)
{
    if (field->offset == UINT32_MAX || !field->size) return false;
    column->values = arena(d, group->count, sizeof *column->values);
    for (uint32_t i = 0; i < group->count; i++) {
        const uint8_t *row = group->rows + group->offsets[i];
        bool there = field->offset + field->size <= get16(row + 2); /* a row of an older writer is shorter */
        column->values[i] = there ? load(row + field->offset, field) : 0;
    }
    return true;
}

static bool row_list(struct decoder *d, const struct group *group, struct column *column, const struct field *field)
{
    uint32_t total = 0;
    if (field->offset == UINT32_MAX) return false;
    column->first = arena(d, (size_t)group->count + 1, sizeof *column->first);
    for (uint32_t i = 0; i < group->count; i++) {
        uint16_t size = get16(group->rows + group->offsets[i] + 2);
        column->first[i] = total;
        total += size > field->offset ? (size - field->offset) / 8 : 0;
    }
    column->first[group->count] = total;
    column->values = arena(d, total, sizeof *column->values);
    for (uint32_t i = 0; i < group->count; i++) {
        const uint8_t *p = group->rows + group->offsets[i] + field->offset;
        for (uint32_t k = column->first[i]; k < column->first[i + 1]; k++, p += 8) column->values[k] = get64(p);
    }
    return true;
}

/* ---- values out of columns ---- */

static bool unpack_plain(const struct column *column, uint32_t count, bool is_signed)
{
    const uint8_t *p = column->data, *end = p + column->bytes;
    uint64_t value;
    for (uint32_t i = 0; i < count; i++) {
        p = varint(p, end, &value);
        if (!p) return false;
        column->values[i] = is_signed ? unzigzag(value) : value;
    }
    return p == end;
}

static bool unpack_delta(const struct column *column, uint32_t count)
{
    const uint8_t *p = column->data, *end = p + column->bytes;
    uint64_t value, last = 0;
    for (uint32_t i = 0; i < count; i++) {
        p = varint(p, end, &value);
        if (!p) return false;
        column->values[i] = last += unzigzag(value);
    }
    return p == end;
}

static bool unpack_keyed(const struct column *column, uint32_t count, const uint64_t *keys)
{
    const uint8_t *p = column->data, *end = p + column->bytes;
    uint64_t value, last[TFI_KEYS] = {0};
    for (uint32_t i = 0; i < count; i++) {
        p = varint(p, end, &value);
        if (!p) return false;
        column->values[i] = last[keys[i] % TFI_KEYS] += unzigzag(value);
    }
    return p == end;
}

static bool unpack_runs(const struct column *column, uint32_t count)
{
    const uint8_t *p = column->data, *end = p + column->bytes;
    uint64_t value, length;
    for (uint32_t i = 0; i < count;) {
        p = varint(p, end, &value);
        p = p ? varint(p, end, &length) : NULL;
        if (!p || !length || length > count - i) return false;
        for (value = unzigzag(value); length; length--) column->values[i++] = value;
    }
    return p == end;
}

static bool unpack_list(struct decoder *d, struct column *column, uint32_t count, const uint64_t *keys)
{
    const uint8_t *p = column->data, *end = p + column->bytes;
    uint64_t(*last)[TFI_LIST_KEYED] = arena(d, TFI_KEYS, sizeof *last);
    uint64_t length, value;
    uint32_t at = 0;
    memset(last, 0, TFI_KEYS * sizeof *last);
    column->first = arena(d, (size_t)count + 1, sizeof *column->first);
    column->values = arena(d, column->bytes, sizeof *column->values); /* a value takes at least a byte */
    for (uint32_t i = 0; i < count; i++) {
        p = varint(p, end, &length);
        if (!p || length > (size_t)(end - p)) return false;
        column->first[i] = at;
        for (uint64_t k = 0; k < length; k++) {
            p = varint(p, end, &value);
            if (!p) return false;
            value = unzigzag(value);
            column->values[at++] = k < TFI_LIST_KEYED ? last[keys[i] % TFI_KEYS][k] += value : value;
        }
    }
    column->first[count] = at;
    return p == end;
}

static bool unpack(struct decoder *d, struct group *group, struct column *column, const struct field *field)
{
    const uint64_t *keys = NULL;
    uint32_t count = group->count;
    if (field->is_list != (column->codec == TFI_LIST)) return false;
    if (column->codec == TFI_KEYED || column->codec == TFI_LIST) {
        bool scalar = group->column[0].codec != TFI_KEYED && group->column[0].codec != TFI_LIST;
        keys = scalar ? group_values(d, group, group->column[0].field) : NULL;
        if (!keys) return false;
    }
    if (column->codec == TFI_LIST) return unpack_list(d, column, count, keys);
    column->values = arena(d, count, sizeof *column->values);
    switch (column->codec) {
    case TFI_PLAIN: return unpack_plain(column, count, field->is_signed);
    case TFI_DELTA: return unpack_delta(column, count);
    case TFI_KEYED: return unpack_keyed(column, count, keys);
    case TFI_RUNS: return unpack_runs(column, count);
    default: return false;
    }
}

/* ---- interface ---- */

static struct column *find_column(const struct group *group, int field)
{
    for (unsigned i = 0; i < group->columns; i++)
        if (group->column[i].field == field) return &group->column[i];
    return NULL;
}

/* Returns the column with its values decoded, or NULL. */
static const struct column *decoded_column(struct decoder *d, struct group *group, int field)
{
    if (!group->kind || field < 0 || (unsigned)field >= group->kind->fields) return NULL;
    const struct field *is = &group->kind->field[field];
    struct column *column = find_column(group, field);
    if (!column || group->damaged || column->values) return group->damaged ? NULL : column;
    bool good;
    if (!group->rows) good = unpack(d, group, column, is);
    else good = is->is_list ? row_list(d, group, column, is) : row_values(d, group, column, is);
    if (!good) {
        group->damaged |= !group->rows;
        column->values = NULL;
        column->first = NULL;
        return NULL;
    }
    return column;
}

const uint64_t *group_values(struct decoder *d, struct group *group, int field)
{
    const struct column *column = decoded_column(d, group, field);
    return column && !column->first ? column->values : NULL;
}

const uint64_t *group_own(struct decoder *d, struct group *group, unsigned own)
{
    return group->kind && own < group->kind->own_count ? group_values(d, group, group->kind->own[own]) : NULL;
}

const uint64_t *group_list(struct decoder *d, struct group *group, int field, const uint32_t **first)
{
    const struct column *column = decoded_column(d, group, field);
    *first = column ? column->first : NULL;
    return column && column->first ? column->values : NULL;
}
