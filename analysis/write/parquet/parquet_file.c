/* parquet_file.c - writes a table as a Parquet file. The numbers of fields, types and encodings are those of
 * parquet.thrift in Apache's parquet-format. */
#include "write/parquet/parquet_file.h"

#include <endian.h>
#include <stdlib.h>

#include "crc.h"

#define MAGIC "PAR1"
enum { TYPE_INT64 = 2, TYPE_BYTES = 6, OPTIONAL = 1, UTF8 = 0, GZIP = 2 };
enum { PLAIN = 0, RLE = 3, RLE_DICTIONARY = 8 };
enum { DATA_PAGE = 0, DICTIONARY_PAGE = 2 };

/* The footer says this of a column of a group. */
struct chunk {
    uint64_t data, dictionary, plain_bytes, packed_bytes; /* data, dictionary: offsets in the file; 0: no such page */
};

static void put_bytes(struct parquet *f, const char *bytes, size_t length)
{
    out_write(f->out, bytes, length);
    f->offset += length;
}

static void add_le32(struct text *text, uint32_t value)
{
    uint32_t le = htole32(value);
    text_add(text, (const char *)&le, sizeof le);
}

/* ---- pages ---- */

/* Makes the page a gzip member in `packed`. */
static void pack_page(struct parquet *f)
{
    static const char head[] = {0x1f, (char)0x8b, 8, 0, 0, 0, 0, 0, 0, (char)0xff};
    const struct text *page = &f->page;
    struct text *packed = &f->packed;
    size_t room = page->length + page->length / 8 + DEFLATER_SPARE;
    packed->length = 0;
    text_add(packed, head, sizeof head);
    packed->data = mem_grow(packed->data, &packed->capacity, sizeof head + room + 1, 1);
    const struct deflater_block block = {.data = (const uint8_t *)page->data,
                                         .length = page->length,
                                         .last = true,
                                         .out = (uint8_t *)packed->data + sizeof head,
                                         .room = room};
    size_t length = f->deflater ? deflater_run(f->deflater, &block) : 0;
    f->failed |= !length;
    packed->length += length;
    add_le32(packed, tfi_crc(0, page->data, page->length));
    add_le32(packed, (uint32_t)page->length);
}

static void write_page(struct parquet *f, int type, size_t values, int encoding, struct chunk *chunk)
{
    struct compact head = {0};
    pack_page(f);
    compact_int(&head, 1, COMPACT_I32, type);
    compact_int(&head, 2, COMPACT_I32, (int64_t)f->page.length);
    compact_int(&head, 3, COMPACT_I32, (int64_t)f->packed.length);
    compact_open(&head, type == DATA_PAGE ? 5 : 7);
    compact_int(&head, 1, COMPACT_I32, (int64_t)values);
    compact_int(&head, 2, COMPACT_I32, encoding);
    if (type == DATA_PAGE) {
        compact_int(&head, 3, COMPACT_I32, RLE); /* levels of nulls */
        compact_int(&head, 4, COMPACT_I32, RLE); /* levels of lists: there are none */
    }
    compact_close(&head);
    text_add(&head.bytes, "", 1);
    *(type == DATA_PAGE ? &chunk->data : &chunk->dictionary) = f->offset;
    put_bytes(f, head.bytes.data, head.bytes.length);
    put_bytes(f, f->packed.data, f->packed.length);
    chunk->plain_bytes += head.bytes.length + f->page.length;
    chunk->packed_bytes += head.bytes.length + f->packed.length;
    text_free(&head.bytes);
}

/* Adds numbers of `width` bits as one run of the hybrid of run lengths and packed bits. */
static void add_packed(struct text *page, const int64_t *value, size_t count, unsigned width)
{
    size_t groups = (count + 7) / 8;
    uint64_t bits = 0;
    unsigned held = 0;
    compact_varint(page, groups << 1 | 1);
    for (size_t i = 0; i < groups * 8; i++) {
        bits |= (i < count ? (uint64_t)value[i] : 0) << held;
        for (held += width; held >= 8; held -= 8, bits >>= 8) text_add(page, (const char[]){(char)bits}, 1);
    }
}

/* Adds for each row whether its value is known. */
static void add_levels(struct parquet *f, const struct table_column *c)
{
    struct text levels = {0};
    size_t rows = f->group_rows;
    if (c->values == rows || !c->values) {
        compact_varint(&levels, rows << 1);
        text_add(&levels, c->values ? "\1" : "", 1);
    } else {
        compact_varint(&levels, (rows + 7) / 8 << 1 | 1);
        for (size_t i = 0; i < rows; i += 8) {
            char byte = 0;
            for (size_t k = i; k < MIN(i + 8, rows); k++) byte = (char)(byte | c->known[k] << (k - i));
            text_add(&levels, &byte, 1);
        }
    }
    add_le32(&f->page, (uint32_t)levels.length);
    text_add(&f->page, levels.data, levels.length);
    text_free(&levels);
}

static unsigned width_of(size_t entries)
{
    unsigned width = 1;
    while (entries > (size_t)1 << width) width++;
    return width;
}

static struct chunk write_column(struct parquet *f, struct table_column *c)
{
    struct chunk chunk = {0};
    f->page.length = 0;
    if (c->type == COLUMN_NAME) {
        text_add(&f->page, c->dictionary.data ? c->dictionary.data : "", c->dictionary.length);
        write_page(f, DICTIONARY_PAGE, c->places.count, PLAIN, &chunk);
        f->page.length = 0;
    }
    add_levels(f, c);
    if (c->type == COLUMN_NAME) {
        unsigned width = width_of(c->places.count);
        text_add(&f->page, (const char[]){(char)width}, 1);
        add_packed(&f->page, c->value, c->values, width);
        write_page(f, DATA_PAGE, f->group_rows, RLE_DICTIONARY, &chunk);
    } else {
        for (size_t i = 0; i < c->values; i++) {
            uint64_t le = htole64((uint64_t)c->value[i]);
            text_add(&f->page, (const char *)&le, sizeof le);
        }
        write_page(f, DATA_PAGE, f->group_rows, PLAIN, &chunk);
    }
    return chunk;
}

/* ---- groups ---- */

/* Says how many values are null, and of numbers the least and the largest. */
static void describe_values(struct parquet *f, const struct table_column *c)
{
    compact_open(&f->footer, 12);
    compact_int(&f->footer, 3, COMPACT_I64, (int64_t)(f->group_rows - c->values));
    if (c->type == COLUMN_NUMBER && c->values) {
        int64_t least = c->value[0], largest = c->value[0];
        for (size_t i = 1; i < c->values; i++) {
            least = MIN(least, c->value[i]);
            largest = MAX(largest, c->value[i]);
        }
        uint64_t le[2] = {htole64((uint64_t)largest), htole64((uint64_t)least)};
        compact_binary(&f->footer, 5, (const char *)&le[0], sizeof le[0]);
        compact_binary(&f->footer, 6, (const char *)&le[1], sizeof le[1]);
    }
    compact_close(&f->footer);
}

static void describe_column(struct parquet *f, const struct table_column *c, const struct chunk *chunk)
{
    struct compact *footer = &f->footer;
    bool is_name = c->type == COLUMN_NAME;
    compact_open(footer, 0);
    compact_int(footer, 2, COMPACT_I64, (int64_t)(is_name ? chunk->dictionary : chunk->data));
    compact_open(footer, 3);
    compact_int(footer, 1, COMPACT_I32, is_name ? TYPE_BYTES : TYPE_INT64);
    compact_list(footer, 2, COMPACT_I32, is_name ? 3 : 2);
    compact_item_int(footer, PLAIN);
    compact_item_int(footer, RLE);
    if (is_name) compact_item_int(footer, RLE_DICTIONARY);
    compact_list(footer, 3, COMPACT_BINARY, 1);
    compact_item_text(footer, c->name);
    compact_int(footer, 4, COMPACT_I32, GZIP);
    compact_int(footer, 5, COMPACT_I64, (int64_t)f->group_rows);
    compact_int(footer, 6, COMPACT_I64, (int64_t)chunk->plain_bytes);
    compact_int(footer, 7, COMPACT_I64, (int64_t)chunk->packed_bytes);
    compact_int(footer, 9, COMPACT_I64, (int64_t)chunk->data);
    if (is_name) compact_int(footer, 11, COMPACT_I64, (int64_t)chunk->dictionary);
    describe_values(f, c);
    compact_close(footer);
    compact_close(footer);
}

static void write_group(struct parquet *f)
{
    uint64_t bytes = 0;
    if (!f->group_rows) return;
    f->footer.depth = 0;
    compact_open(&f->footer, 0);
    compact_list(&f->footer, 1, COMPACT_STRUCT, f->columns);
    for (size_t i = 0; i < f->columns; i++) {
        struct table_column *c = &f->column[i];
        struct chunk chunk = write_column(f, c);
        describe_column(f, c, &chunk);
        bytes += chunk.plain_bytes;
        c->values = c->dictionary.length = 0;
        map_free(&c->places);
        c->places = (struct map){0};
    }
    compact_int(&f->footer, 2, COMPACT_I64, (int64_t)bytes);
    compact_int(&f->footer, 3, COMPACT_I64, (int64_t)f->group_rows);
    compact_close(&f->footer);
    f->group_rows = 0;
    f->groups++;
}

/* ---- rows ---- */

void parquet_begin(struct parquet *f, struct out *out, const struct names *names, const struct column_kind *kind,
                   size_t columns)
{
    *f = (struct parquet){.out = out, .names = names, .columns = columns, .deflater = deflater_open()};
    for (size_t i = 0; i < columns; i++) {
        f->column[i] = (struct table_column){.name = kind[i].name, .type = kind[i].type};
        f->column[i].value = mem_zero(GROUP_ROWS, sizeof *f->column[i].value);
        f->column[i].known = mem_zero(GROUP_ROWS, sizeof *f->column[i].known);
    }
    put_bytes(f, MAGIC, 4);
}

static void put_value(struct parquet *f, int64_t value)
{
    struct table_column *c = &f->column[f->at++];
    c->known[f->group_rows] = 1;
    c->value[c->values++] = value;
}

void parquet_null(struct parquet *f)
{
    f->column[f->at++].known[f->group_rows] = 0;
}

void parquet_number(struct parquet *f, int64_t value)
{
    put_value(f, value);
}

void parquet_name(struct parquet *f, uint32_t name)
{
    struct table_column *c = &f->column[f->at];
    if (name == NAME_NONE) {
        parquet_null(f);
        return;
    }
    size_t known = c->places.count, from = c->dictionary.length;
    uint32_t place = map_number(&c->places, name);
    if (place == known) {
        const struct name *of = names_get(f->names, name);
        add_le32(&c->dictionary, 0);
        text_utf8(&c->dictionary, of->text, of->length);
        uint32_t length = htole32((uint32_t)(c->dictionary.length - from - sizeof length));
        memcpy(c->dictionary.data + from, &length, sizeof length);
    }
    put_value(f, place);
}

void parquet_row_end(struct parquet *f)
{
    bool is_full = ++f->group_rows == GROUP_ROWS;
    for (size_t i = 0; i < f->columns; i++) is_full |= f->column[i].dictionary.length > GROUP_NAME_BYTES;
    f->at = 0;
    f->rows++;
    if (is_full) write_group(f);
}

/* ---- the footer ---- */

static void describe_schema(const struct parquet *f, struct compact *footer)
{
    compact_list(footer, 2, COMPACT_STRUCT, f->columns + 1);
    compact_open(footer, 0);
    compact_binary(footer, 4, "row", 3);
    compact_int(footer, 5, COMPACT_I32, (int64_t)f->columns);
    compact_close(footer);
    for (size_t i = 0; i < f->columns; i++) {
        const struct table_column *c = &f->column[i];
        compact_open(footer, 0);
        compact_int(footer, 1, COMPACT_I32, c->type == COLUMN_NAME ? TYPE_BYTES : TYPE_INT64);
        compact_int(footer, 3, COMPACT_I32, OPTIONAL);
        compact_binary(footer, 4, c->name, strlen(c->name));
        if (c->type == COLUMN_NAME) compact_int(footer, 6, COMPACT_I32, UTF8);
        compact_close(footer);
    }
}

static void write_footer(struct parquet *f, const char *left_out)
{
    struct compact footer = {0};
    struct text length = {0};
    compact_int(&footer, 1, COMPACT_I32, 1);
    describe_schema(f, &footer);
    compact_int(&footer, 3, COMPACT_I64, (int64_t)f->rows);
    compact_list(&footer, 4, COMPACT_STRUCT, f->groups);
    text_add(&footer.bytes, f->footer.bytes.data ? f->footer.bytes.data : "", f->footer.bytes.length);
    if (left_out) {
        compact_list(&footer, 5, COMPACT_STRUCT, 1);
        compact_open(&footer, 0);
        compact_binary(&footer, 1, "left_out", strlen("left_out"));
        compact_binary(&footer, 2, left_out, strlen(left_out));
        compact_close(&footer);
    }
    compact_binary(&footer, 6, "tfanalyze", 9);
    text_add(&footer.bytes, "", 1);
    add_le32(&length, (uint32_t)footer.bytes.length);
    put_bytes(f, footer.bytes.data, footer.bytes.length);
    put_bytes(f, length.data, length.length);
    put_bytes(f, MAGIC, 4);
    text_free(&footer.bytes);
    text_free(&length);
}

bool parquet_end(struct parquet *f, const char *left_out)
{
    write_group(f);
    write_footer(f, left_out);
    for (size_t i = 0; i < f->columns; i++) {
        free(f->column[i].value);
        free(f->column[i].known);
        map_free(&f->column[i].places);
        text_free(&f->column[i].dictionary);
    }
    if (f->deflater) deflater_close(f->deflater);
    text_free(&f->footer.bytes);
    text_free(&f->page);
    text_free(&f->packed);
    return !f->failed;
}
