/* encode.c - turns a chunk's rows into columns and deflates them.
 *
 * One pass sorts the rows by kind. Then each column is written by the codec of records.def, or as runs if it hardly
 * changes. Memory is taken once, from the kernel. An encoder has no locks and serves one caller at a time.
 * tfi_trace.h specifies the format. zlib runs at level 1: higher levels cost three times as much for a tenth fewer
 * bytes.
 */
#include "record/encode.h"

#include <string.h>
#include <zlib.h>

#include "base/fmt.h"
#include "base/sys.h"
#include "base/tfi.h"

struct field {
    uint16_t offset;
    uint8_t size;
    uint8_t is_signed;
    uint8_t codec;
};

struct kind {
    const struct field *fields;
    uint16_t nr_fields;
    uint16_t bytes;
};

#define RECORD(number, kind, text) static const struct field fields_##kind[] = {
#define FIELD(kind, ctype, column, type, codec, text)                                                                  \
    {offsetof(struct tfi_rec_##kind, column), sizeof(ctype), (ctype)-1 < (ctype)1, TFI_##codec},
#define LIST(kind, column, type, text) {offsetof(struct tfi_rec_##kind, column), 8, 0, TFI_LIST},
#define RECORD_END(kind)                                                                                               \
    }                                                                                                                  \
    ;
#include "records.def"
#undef RECORD
#undef FIELD
#undef LIST
#undef RECORD_END

#define RECORD(number, kind, text) [number] = {fields_##kind, TFI_COUNT(fields_##kind), sizeof(struct tfi_rec_##kind)},
#define FIELD(kind, ctype, column, type, codec, text)
#define LIST(kind, column, type, text)
#define RECORD_END(kind)
static const struct kind kinds[] = {
#include "records.def"
};
#undef RECORD
#undef FIELD
#undef LIST
#undef RECORD_END

#define MAX_GROUPS TFI_COUNT(kinds)
#define ZLIB_BYTES (400u << 10)
#define LITTLE 2048u /* fewer bytes of columns are not deflated: zlib's first use clears a hundred thousand bytes */
#define MAX_AGAIN (sizeof(struct tfi_rec_call) + 8 * TFI_AGAIN_ARGS) /* bytes of the largest repeatable call */

struct encoder_group {
    uint16_t kind;
    uint32_t count;
    uint32_t first; /* index of its first row in `sorted` */
};

struct tfi_encoder {
    size_t max_rows;
    uint8_t *whole; /* the rows with every repeated call written out */
    size_t max_whole;
    uint32_t *offsets; /* of each row, in order */
    uint32_t *sorted;  /* the same offsets, by group */
    uint8_t *group_of; /* of each row, in order */
    uint64_t *values;
    uint8_t *columns, *columns_end;
    uint8_t *packed;
    size_t packed_size;
    uint8_t *zlib_memory;
    size_t zlib_used;
    z_stream stream;
    struct encoder_group groups[MAX_GROUPS];
    unsigned nr_groups;
    /* The last value of a column by the row's key, and those of a list: too large for a small stack. */
    uint64_t last[TFI_KEYS];
    uint64_t last_list[TFI_KEYS][TFI_LIST_KEYED];
};

static void *zlib_alloc(void *opaque, unsigned items, unsigned size)
{
    struct tfi_encoder *e = opaque;
    size_t need = ((size_t)items * size + 15) & ~(size_t)15;
    if (need > ZLIB_BYTES - e->zlib_used) return NULL;
    e->zlib_used += need;
    return e->zlib_memory + e->zlib_used - need;
}

static void zlib_free(void *opaque, void *address)
{
    (void)opaque;
    (void)address;
}

/* The memory is sized for the worst chunk, which is rare: most of it is never touched and takes only address space. */
struct tfi_encoder *tfi_encoder_new(size_t rows)
{
    size_t max_rows = rows / 8 + 1, max_whole = rows / sizeof(struct tfi_again) * MAX_AGAIN;
    size_t column_bytes = max_whole * 2 + 65536, packed = column_bytes + column_bytes / 1000 + 256;
    struct tfi_encoder *e = tfi_map(sizeof *e + max_rows * 17 + 64 + max_whole + column_bytes + packed + ZLIB_BYTES);
    if (!e) return NULL;
    uint8_t *p = (uint8_t *)(e + 1);
    e->max_rows = max_rows;
    e->values = (uint64_t *)p;
    e->offsets = (uint32_t *)(p += max_rows * 8);
    e->sorted = (uint32_t *)(p += max_rows * 4);
    e->group_of = p += max_rows * 4;
    e->whole = (uint8_t *)(((uintptr_t)p + max_rows + 7) & ~(uintptr_t)7);
    p = e->whole;
    e->max_whole = max_whole;
    e->columns = p += max_whole;
    e->columns_end = p += column_bytes;
    e->packed = p;
    e->packed_size = packed;
    e->zlib_memory = (uint8_t *)(((uintptr_t)(p + packed) + 15) & ~(uintptr_t)15);
    e->stream.zalloc = zlib_alloc;
    e->stream.zfree = zlib_free;
    e->stream.opaque = e;
    return e;
}

static inline uint8_t *put_varint(uint8_t *p, uint64_t value)
{
    while (value >= 128) {
        *p++ = (uint8_t)(value | 128);
        value >>= 7;
    }
    *p++ = (uint8_t)value;
    return p;
}

static inline uint64_t zigzag(uint64_t value)
{
    return value << 1 ^ (uint64_t)((int64_t)value >> 63);
}

uint32_t tfi_count_rows(const void *rows, size_t bytes)
{
    uint32_t count = 0;
    for (size_t at = 0; at + sizeof(struct tfi_rec) <= bytes; count++) {
        const struct tfi_rec *rec = (const struct tfi_rec *)((const uint8_t *)rows + at);
        if (rec->size < 8) break;
        at += rec->size;
    }
    return count;
}

/* Writes out the call that a tfi_again row stands for; NULL if it refers to no call, or there is no room. */
static uint8_t *put_whole(const struct tfi_encoder *e, uint8_t *p, const uint8_t *rows, size_t at)
{
    const struct tfi_again *again = (const struct tfi_again *)(rows + at);
    size_t back = again->back * (size_t)8, value = 0;
    const struct tfi_rec_call *like = (const struct tfi_rec_call *)(rows + at - back);
    struct tfi_rec_call *call = (struct tfi_rec_call *)p;
    if (back > at || back < sizeof *like || like->rec.kind != TFI_KIND_call || like->rec.size > back) return NULL;
    if (like->rec.size > e->max_whole - (size_t)(p - e->whole)) return NULL;
    memcpy(call, like, like->rec.size);
    call->time = again->time;
    call->duration = again->duration;
    call->error = again->error;
    for (uint32_t i = 0; again->changed >> i; i++)
        if (again->changed >> i & 1) call->args[i] = again->args[value++];
    return p + like->rec.size;
}

/* Returns the rows with all repeated calls written out; `rows` itself if there is none, NULL if a row is malformed. */
static const uint8_t *write_out(const struct tfi_encoder *e, const uint8_t *rows, size_t *bytes)
{
    uint8_t *p = e->whole;
    bool any = false;
    const struct tfi_rec *rec;
    for (size_t at = 0; at < *bytes; at += rec->size) {
        rec = (const struct tfi_rec *)(rows + at);
        if (rec->size < 8 || rec->size > *bytes - at) return NULL;
        any |= rec->kind == TFI_ROW_AGAIN;
    }
    for (size_t at = 0; any && at < *bytes; at += rec->size) {
        rec = (const struct tfi_rec *)(rows + at);
        if (rec->kind == TFI_ROW_AGAIN) {
            p = put_whole(e, p, rows, at);
            if (!p) return NULL;
        } else {
            if (rec->size > e->max_whole - (size_t)(p - e->whole)) return NULL;
            memcpy(p, rec, rec->size);
            p += rec->size;
        }
    }
    if (!any) return rows;
    *bytes = (size_t)(p - e->whole);
    return e->whole;
}

/* Finds the rows and their groups and returns the number of rows; 0 if a row's kind or size is not ours. */
static uint32_t sort_rows(struct tfi_encoder *e, const uint8_t *rows, size_t bytes)
{
    uint8_t group_by_kind[TFI_COUNT(kinds)] = {0};
    uint32_t count = 0, next[MAX_GROUPS];
    e->nr_groups = 0;
    for (size_t at = 0; at < bytes; count++) {
        const struct tfi_rec *rec = (const struct tfi_rec *)(rows + at);
        if (rec->kind >= TFI_COUNT(kinds) || !kinds[rec->kind].fields || rec->size < kinds[rec->kind].bytes) return 0;
        if (rec->size > bytes - at || count >= e->max_rows) return 0;
        if (!group_by_kind[rec->kind]) {
            e->groups[e->nr_groups] = (struct encoder_group){rec->kind, 0, 0};
            group_by_kind[rec->kind] = (uint8_t)++e->nr_groups;
        }
        uint8_t group = group_by_kind[rec->kind] - 1;
        e->groups[group].count++;
        e->group_of[count] = group;
        e->offsets[count] = (uint32_t)at;
        at += rec->size;
    }
    for (unsigned g = 0, first = 0; g < e->nr_groups; g++) {
        e->groups[g].first = next[g] = first;
        first += e->groups[g].count;
    }
    for (uint32_t i = 0; i < count; i++) e->sorted[next[e->group_of[i]]++] = e->offsets[i];
    return count;
}

static uint8_t *put_order(const struct tfi_encoder *e, uint8_t *p, uint32_t count)
{
    for (uint32_t i = 0, run; i < count; i += run) {
        for (run = 1; i + run < count && e->group_of[i + run] == e->group_of[i];) run++;
        p = put_varint(p, e->group_of[i]);
        p = put_varint(p, run);
    }
    return p;
}

static inline uint64_t load(const uint8_t *p, const struct field *f)
{
    uint32_t half;
    uint64_t value;
    if (f->size == 8) {
        memcpy(&value, p, 8);
        return value;
    }
    memcpy(&half, p, 4);
    return f->is_signed ? (uint64_t)(int64_t)(int32_t)half : half;
}

static uint8_t *put_runs(uint8_t *p, const uint64_t *values, uint32_t count)
{
    for (uint32_t i = 0, run; i < count; i += run) {
        for (run = 1; i + run < count && values[i + run] == values[i];) run++;
        p = put_varint(p, zigzag(values[i]));
        p = put_varint(p, run);
    }
    return p;
}

/* Writes the first `count` of e->values by the field's codec; `keys` are the keys by row, from the group's first
 * column. */
static uint8_t *put_values(struct tfi_encoder *e, uint8_t *p, const uint8_t *keys, uint32_t count,
                           const struct field *f)
{
    const uint64_t *values = e->values;
    uint64_t *last = e->last, previous = 0;
    switch (f->codec) {
    case TFI_DELTA:
        for (uint32_t i = 0; i < count; previous = values[i++]) p = put_varint(p, zigzag(values[i] - previous));
        break;
    case TFI_KEYED:
        memset(last, 0, sizeof e->last);
        for (uint32_t i = 0; i < count; i++) {
            p = put_varint(p, zigzag(values[i] - last[keys[i]]));
            last[keys[i]] = values[i];
        }
        break;
    default:
        for (uint32_t i = 0; i < count; i++) p = put_varint(p, f->is_signed ? zigzag(values[i]) : values[i]);
    }
    return p;
}

static uint8_t *put_list(struct tfi_encoder *e, uint8_t *p, const uint8_t *rows, const uint32_t *sorted,
                         const uint8_t *keys, uint32_t count, uint32_t head)
{
    uint64_t value;
    memset(e->last_list, 0, sizeof e->last_list);
    for (uint32_t i = 0; i < count; i++) {
        const struct tfi_rec *rec = (const struct tfi_rec *)(rows + sorted[i]);
        uint32_t n = (rec->size - head) / 8;
        p = put_varint(p, n);
        for (uint32_t k = 0; k < n; k++) {
            memcpy(&value, rows + sorted[i] + head + 8 * (size_t)k, 8);
            uint64_t *before = &e->last_list[keys[i]][k < TFI_LIST_KEYED ? k : 0];
            p = put_varint(p, zigzag(k < TFI_LIST_KEYED ? value - *before : value));
            if (k < TFI_LIST_KEYED) *before = value;
        }
    }
    return p;
}

static uint8_t *put_column(struct tfi_encoder *e, uint8_t *p, const uint8_t *rows, const struct encoder_group *g,
                           uint16_t index, uint8_t *keys)
{
    const struct kind *kind = &kinds[g->kind];
    const struct field *f = &kind->fields[index];
    const uint32_t *sorted = e->sorted + g->first;
    struct tfi_column head = {index, f->codec, 0};
    uint8_t *start = p + sizeof head;
    if (f->codec == TFI_LIST) {
        p = put_list(e, start, rows, sorted, keys, g->count, kind->bytes);
    } else {
        uint32_t changes = 0;
        for (uint32_t i = 0; i < g->count; i++) {
            e->values[i] = load(rows + sorted[i] + f->offset, f);
            changes += i > 0 && e->values[i] != e->values[i - 1];
        }
        if (index == 0)
            for (uint32_t i = 0; i < g->count; i++) keys[i] = (uint8_t)(e->values[i] % TFI_KEYS);
        if (changes <= g->count / 8) {
            head.codec = TFI_RUNS;
            p = put_runs(start, e->values, g->count);
        } else {
            p = put_values(e, start, keys, g->count, f);
        }
    }
    head.bytes = (uint32_t)(p - start);
    memcpy(start - sizeof head, &head, sizeof head);
    return p;
}

/* Writes all columns and returns their end; NULL if they might not fit. */
static uint8_t *put_columns(struct tfi_encoder *e, const uint8_t *rows, size_t bytes, uint32_t count)
{
    struct tfi_columns head = {e->nr_groups, 0};
    uint8_t *p = put_order(e, e->columns + sizeof head, count);
    head.order_bytes = (uint32_t)(p - e->columns - sizeof head);
    memcpy(e->columns, &head, sizeof head);
    uint8_t *keys = e->group_of; /* the order is written: its memory is free */
    for (unsigned g = 0; g < e->nr_groups; g++) {
        const struct encoder_group *group = &e->groups[g];
        const struct kind *kind = &kinds[group->kind];
        struct tfi_group group_head = {group->kind, kind->nr_fields, group->count, 0};
        uint8_t *start = p;
        p += sizeof group_head;
        for (uint16_t f = 0; f < kind->nr_fields; f++) {
            size_t worst = sizeof(struct tfi_column) + (size_t)group->count * 11 +
                           (kind->fields[f].codec == TFI_LIST) * bytes / 8 * 10;
            if ((size_t)(e->columns_end - p) < worst) return NULL;
            p = put_column(e, p, rows, group, f, keys);
        }
        group_head.bytes = (uint32_t)(p - start - sizeof group_head);
        memcpy(start, &group_head, sizeof group_head);
    }
    return p;
}

/* Deflates the first `bytes` of e->columns; 0 if that gains nothing. */
static size_t pack(struct tfi_encoder *e, uint32_t bytes)
{
    bool ready = e->stream.state ? deflateReset(&e->stream) == Z_OK
                                 : deflateInit2(&e->stream, 1, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) == Z_OK;
    e->stream.next_in = e->columns;
    e->stream.avail_in = bytes;
    e->stream.next_out = e->packed;
    e->stream.avail_out = (unsigned)e->packed_size;
    if (!ready || deflate(&e->stream, Z_FINISH) != Z_STREAM_END) return 0;
    size_t packed = e->packed_size - e->stream.avail_out;
    return packed < bytes ? packed : 0;
}

size_t tfi_encode(struct tfi_encoder *e, const void *rows, size_t bytes, const uint8_t **payload, uint32_t *raw,
                  uint32_t *records)
{
    rows = write_out(e, rows, &bytes);
    *records = rows ? sort_rows(e, rows, bytes) : 0;
    if (!*records) return 0;
    uint8_t *end = put_columns(e, rows, bytes, *records);
    if (!end) return 0;
    *raw = (uint32_t)(end - e->columns);
    size_t packed = *raw < LITTLE ? 0 : pack(e, *raw);
    *payload = packed ? e->packed : e->columns;
    return packed ? packed : *raw;
}
