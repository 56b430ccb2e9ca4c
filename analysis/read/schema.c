/* schema.c - parses the description of the record kinds that a trace carries. */
#include "read/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "pattern.h"

static const char *const type_names[] = {
    [TFI_TYPE_UINT] = "UINT",         [TFI_TYPE_INT] = "INT",
    [TFI_TYPE_HEX] = "HEX",           [TFI_TYPE_ADDRESS] = "ADDRESS",
    [TFI_TYPE_BYTES] = "BYTES",       [TFI_TYPE_TICKS] = "TICKS",
    [TFI_TYPE_DURATION] = "DURATION", [TFI_TYPE_DEVICE_NS] = "DEVICE_NS",
    [TFI_TYPE_STRING] = "STRING",     [TFI_TYPE_FUNC] = "FUNC",
    [TFI_TYPE_CLOCK] = "CLOCK",       [TFI_TYPE_DROP] = "DROP",
    [TFI_TYPE_PAYLOAD] = "PAYLOAD",   [TFI_TYPE_STACK] = "STACK",
};

/* The column names of each kind this program knows, zero-terminated and concatenated. */
#define RECORD(number, kind, text) static const char columns_##kind[] =
#define FIELD(kind, ctype, column, type, codec, text) #column "\0"
#define LIST(kind, column, type, text) #column "\0"
#define RECORD_END(kind) ;
#include "records.def"
#undef RECORD
#undef FIELD
#undef LIST
#undef RECORD_END

static const struct own {
    uint16_t number;
    uint16_t count;
    const char *columns;
} owns[] = {
#define RECORD(number, kind, text) {number, NR_COLUMNS_##kind, columns_##kind},
#define FIELD(kind, ctype, column, type, codec, text)
#define LIST(kind, column, type, text)
#define RECORD_END(kind)
#include "records.def"
#undef RECORD
#undef FIELD
#undef LIST
#undef RECORD_END
};

static const char builtin[] =
#define RECORD(number, kind, text) #number " " #kind
#define FIELD(kind, ctype, column, type, codec, text) " " #column ":" #ctype ":" #type ":" #codec
#define LIST(kind, column, type, text) " " #column ":uint64_t:" #type ":LIST"
#define RECORD_END(kind) "\n"
#include "records.def"
#undef RECORD
#undef FIELD
#undef LIST
#undef RECORD_END
    ;

enum tfi_type type_by_name(const char *name, size_t length)
{
    for (size_t i = 0; i < ARRAY_SIZE(type_names); i++)
        if (strlen(type_names[i]) == length && memcmp(type_names[i], name, length) == 0) return (enum tfi_type)i;
    return TFI_TYPE_UINT;
}

/* ---- parsing ---- */

struct word {
    const char *start;
    size_t length;
};

/* Returns the next word up to `separator` or the end, and moves `*at` behind it. */
static struct word next_word(const char **at, const char *end, char separator)
{
    const char *stop = memchr(*at, separator, (size_t)(end - *at));
    struct word word = {*at, (size_t)((stop ? stop : end) - *at)};
    *at = stop ? stop + 1 : end;
    return word;
}

static bool is_word(struct word word, const char *text)
{
    return word.length == strlen(text) && memcmp(word.start, text, word.length) == 0;
}

static void set_ctype(struct field *field, struct word ctype)
{
    static const struct {
        const char *name;
        uint8_t size;
        bool is_signed;
    } ctypes[] = {{"uint64_t", 8, false}, {"int64_t", 8, true}, {"uint32_t", 4, false}, {"int32_t", 4, true},
                  {"uint16_t", 2, false}, {"int16_t", 2, true}, {"uint8_t", 1, false},  {"int8_t", 1, true}};
    for (size_t i = 0; i < ARRAY_SIZE(ctypes); i++) {
        if (is_word(ctype, ctypes[i].name)) {
            field->size = ctypes[i].size;
            field->is_signed = ctypes[i].is_signed;
        }
    }
}

/* Parses "column:ctype:TYPE:CODEC"; a later version may append more parts. */
static bool parse_field(struct kind *kind, struct word text)
{
    const char *at = text.start, *end = text.start + text.length;
    struct word name = next_word(&at, end, ':'), ctype = next_word(&at, end, ':');
    struct word type = next_word(&at, end, ':'), codec = next_word(&at, end, ':');
    if (!name.length || !codec.length) return false;
    kind->field = mem_grow(kind->field, &kind->capacity, kind->fields + 1, sizeof *kind->field);
    struct field *field = &kind->field[kind->fields++];
    *field = (struct field){.name = mem_text(name.start, name.length)};
    field->type = type_by_name(type.start, type.length);
    field->is_list = is_word(codec, "LIST");
    set_ctype(field, ctype);
    return true;
}

static void kind_free(struct kind *kind)
{
    for (unsigned i = 0; i < kind->fields; i++) free(kind->field[i].name);
    free(kind->field);
    free(kind->own);
    free(kind->name);
    free(kind);
}

/* Returns the index of a field, -1 if absent. In a file of this version the field is at index `place`. */
static int16_t find_field(const struct kind *kind, unsigned place, const char *name)
{
    if (place < kind->fields && strcmp(kind->field[place].name, name) == 0) return (int16_t)place;
    for (unsigned i = MIN(kind->fields, INT16_MAX + 1u); i-- > 0;)
        if (strcmp(kind->field[i].name, name) == 0) return (int16_t)i;
    return -1;
}

/* Computes the offset of each field in a row, the time and duration fields, and the fields that this program knows. */
static void finish_kind(struct kind *kind)
{
    uint32_t offset = sizeof(struct tfi_rec);
    kind->time = kind->duration = -1;
    kind->time_is_end = kind->number == TFI_KIND_range_end;
    for (unsigned i = 0; i < kind->fields; i++) {
        struct field *field = &kind->field[i];
        field->offset = offset;
        if (field->is_list || !field->size) {
            offset = field->is_list ? offset : UINT32_MAX;
            field->offset = offset;
        } else if (offset != UINT32_MAX) {
            offset += field->size;
        }
        if (kind->time < 0 && field->type == TFI_TYPE_TICKS) kind->time = (int)i;
        if (field->type == TFI_TYPE_DURATION && strcmp(field->name, "duration") == 0) kind->duration = (int)i;
    }
    kind->row_bytes = offset == UINT32_MAX ? 8 : MAX((offset + 7) & ~7u, 8);
    for (size_t k = 0; k < ARRAY_SIZE(owns); k++) {
        if (owns[k].number != kind->number) continue;
        const char *column = owns[k].columns;
        kind->own_count = owns[k].count;
        kind->own = mem_zero(owns[k].count, sizeof *kind->own);
        for (unsigned c = 0; c < owns[k].count; c++, column += strlen(column) + 1)
            kind->own[c] = find_field(kind, c, column);
    }
}

/* Returns the index of a kind's number, or the index at which to insert it. */
static size_t index_of_kind(const struct schema *schema, uint16_t number)
{
    size_t low = 0, high = schema->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (schema->kinds[middle]->number < number) low = middle + 1;
        else high = middle;
    }
    return low;
}

static bool parse_line(struct schema *schema, struct word line)
{
    const char *at = line.start, *end = line.start + line.length;
    struct word number = next_word(&at, end, ' '), name = next_word(&at, end, ' ');
    char digits[8] = {0};
    uint64_t value;
    memcpy(digits, number.start, MIN(number.length, sizeof digits - 1));
    if (number.length >= sizeof digits || !tfi_whole_number(digits, 0, UINT64_MAX, &value) || value == 0 ||
        value > UINT16_MAX)
        return false;
    size_t place = index_of_kind(schema, (uint16_t)value);
    if (!name.length || (place < schema->count && schema->kinds[place]->number == value)) return name.length > 0;
    struct kind *kind = mem_zero(1, sizeof *kind);
    kind->number = (uint16_t)value;
    kind->name = mem_text(name.start, name.length);
    while (at < end) {
        struct word text = next_word(&at, end, ' ');
        if (text.length && !parse_field(kind, text)) {
            kind_free(kind);
            return false;
        }
    }
    finish_kind(kind);
    schema->kinds = mem_grow(schema->kinds, &schema->capacity, schema->count + 1, sizeof *schema->kinds);
    memmove(schema->kinds + place + 1, schema->kinds + place, (schema->count - place) * sizeof *schema->kinds);
    schema->kinds[place] = kind;
    schema->count++;
    return true;
}

unsigned schema_parse(struct schema *schema, const char *bytes, size_t length)
{
    const char *at = bytes, *end = bytes + length;
    unsigned bad = 0;
    while (at < end) {
        struct word line = next_word(&at, end, '\n');
        bad += line.length && !parse_line(schema, line);
    }
    return bad;
}

void schema_builtin(struct schema *schema)
{
    schema_parse(schema, builtin, sizeof builtin - 1);
}

const struct kind *schema_kind(const struct schema *schema, uint16_t number)
{
    size_t place = index_of_kind(schema, number);
    return place < schema->count && schema->kinds[place]->number == number ? schema->kinds[place] : NULL;
}

void schema_free(struct schema *schema)
{
    for (size_t i = 0; i < schema->count; i++) kind_free(schema->kinds[i]);
    free(schema->kinds);
    *schema = (struct schema){0};
}
