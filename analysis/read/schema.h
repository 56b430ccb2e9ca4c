/* schema.h - holds the record kinds that a file describes, and the positions of the columns this program knows.
 *
 * Kinds are identified by number, columns by name. A file may have more or fewer of both than this program.
 */
#ifndef TFA_SCHEMA_H
#define TFA_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tfi_trace.h"

/* COL_kind_column: index of a column of records.def in this program's own copy. */
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
    enum tfi_type type; /* TFI_TYPE_UINT if the type is unknown */
    uint8_t size;       /* bytes in a row; 0: unknown C type, so the offsets of later fields in a row are unknown too */
    bool is_signed;
    bool is_list;
    uint32_t offset; /* in a row; UINT32_MAX: unknown */
};

struct kind {
    uint16_t number;
    char *name;
    unsigned fields;
    size_t capacity;
    struct field *field;
    int time;           /* index of the first field in ticks, -1: none */
    int duration;       /* index of the field `duration`, in ticks, -1: none */
    bool time_is_end;   /* the record ends at `time`; otherwise it begins there */
    uint32_t row_bytes; /* bytes of a row without its list */
    unsigned own_count;
    int16_t *own; /* by COL_kind_column: index of the field, -1: the file has no such column */
};

struct schema {
    struct kind **kinds; /* sorted by number */
    size_t count, capacity;
};

/* Parses the lines of a SCHEMA payload. A kind that is already known keeps its first description. Returns the number
 * of invalid lines. */
unsigned schema_parse(struct schema *schema, const char *bytes, size_t length);
/* Loads this program's own description, for a file whose SCHEMA is lost. */
void schema_builtin(struct schema *schema);
const struct kind *schema_kind(const struct schema *schema, uint16_t number); /* NULL if absent */
void schema_free(struct schema *schema);

enum tfi_type type_by_name(const char *name, size_t length);

#endif
