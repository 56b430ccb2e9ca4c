/* schema.h - the kinds of record a file describes, and where the columns this program knows stand in them.
 *
 * Kinds are known by their number, columns by their name in the file: a file may have more of both, or fewer.
 */
#ifndef TFA_SCHEMA_H
#define TFA_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tfi_trace.h"

/* COL_kind_column: a column of records.def by its place in this program's own copy. */
#define RECORD(number, kind, text)                                                                                     \
    enum column_##kind                                                                                                 \
    {
#define FIELD(kind, ctype, column, type, codec, text) COL_##kind##_##column,
#define LIST(kind, column, type, text) COL_##kind##_##column,
#define RECORD_END(kind)                                                                                               \
    NR_COLUMNS_##kind                                                                                                  \
    }                                                                                                                  \
    ;
#include "records.def"
#undef RECORD
#undef FIELD
#undef LIST
#undef RECORD_END

struct field {
    char *name;
    enum tfi_type type; /* TFI_TYPE_UINT for one that is not known */
    uint8_t size;       /* bytes in a row; 0 if the C type is not known, then nothing after it can be found in a row */
    bool is_signed;
    bool is_list;
    uint32_t offset; /* in a row; UINT32_MAX if it cannot be known */
};

struct kind {
    uint16_t number;
    char *name;
    unsigned fields;
    size_t capacity;
    struct field *field;
    int time;           /* the first moment of the counter among the fields, -1 if there is none */
    uint32_t row_bytes; /* a row of it without its list */
    unsigned own_count;
    int16_t *own; /* by COL_kind_column: index of the field, -1 if the file has none of that name */
};

struct schema {
    struct kind **kinds; /* sorted by number */
    size_t count, capacity;
};

/* Takes the lines of a SCHEMA payload; a kind that is there already is kept. Returns how many lines made no sense. */
unsigned schema_parse(struct schema *schema, const char *bytes, size_t length);
/* This program's own table, for a file whose SCHEMA is lost. */
void schema_builtin(struct schema *schema);
const struct kind *schema_kind(const struct schema *schema, uint16_t number); /* NULL if it is not there */
void schema_free(struct schema *schema);

const char *type_name(enum tfi_type type);
enum tfi_type type_by_name(const char *name, size_t length);

#endif
