/* emit.h - one way in which every command answers: rows of named values, as text, JSON or csv.
 *
 * A command says what a value is (a time, bytes, a share), never how it is printed. All rows of a command have the same
 * keys in the same order, those of commands.def. Unknown values are emit_null. JSON is written as it comes; a table of
 * text is kept until the end, as the widths of its columns depend on all rows.
 */
#ifndef TFA_EMIT_H
#define TFA_EMIT_H

#include "opts.h"
#include "table.h"

enum emit_style {
    STYLE_TABLE,  /* text: columns */
    STYLE_BLOCKS, /* text: a paragraph for each row, headed by its first value */
    STYLE_LINES,  /* text: a line for each row, written at once, numbers as they are */
};

enum { EMIT_DEPTH = 4 };

struct emit {
    struct out *out;
    enum format format;
    enum emit_style style;
    const char *keys, *rules;
    bool inputs;             /* their list was begun */
    bool begun;              /* the rows were */
    bool totals;             /* the rows are over */
    unsigned depth;          /* of values within values */
    bool list[EMIT_DEPTH];   /* what is open is a list, not an object */
    bool filled[EMIT_DEPTH]; /* it has something in it */
    size_t rows, cells;
    struct text scratch;
    struct text nested; /* csv and text: what is open */
    char *nested_key;
    struct cell *cell; /* a table's, row after row; the first row is the head */
    size_t cell_count, cell_capacity;
    size_t columns;
};

void emit_begin(struct emit *e, struct out *out, enum format format, enum emit_style style, enum command_id command);
/* Answers by other definitions than ours; before the first input. */
void emit_rules(struct emit *e, enum rules rules);
/* Rows with other keys than those of commands.def; before the first row. */
void emit_keys(struct emit *e, const char *keys);
void emit_input(struct emit *e, const char *path, const char *kind, int64_t rank, bool complete, int64_t events,
                int64_t lost); /* before the first row; -1 is not known */
void emit_row(struct emit *e);
void emit_row_end(struct emit *e);
void emit_totals(struct emit *e); /* the values that follow are of all rows */
void emit_end(struct emit *e);

/* ---- values; the key is NULL in a list ---- */
void emit_null(struct emit *e, const char *key);
void emit_bool(struct emit *e, const char *key, bool value);
void emit_count(struct emit *e, const char *key, uint64_t value);
void emit_int(struct emit *e, const char *key, int64_t value);
void emit_known(struct emit *e, const char *key, int64_t value); /* unknown if it is negative */
void emit_us(struct emit *e, const char *key, int64_t ns);
void emit_bytes(struct emit *e, const char *key, uint64_t value);
void emit_pct(struct emit *e, const char *key, double value); /* unknown if it is not finite */
void emit_double(struct emit *e, const char *key, double value);
void emit_hex(struct emit *e, const char *key, uint64_t value);
void emit_text(struct emit *e, const char *key, const char *text); /* NULL: unknown */
void emit_bytes_text(struct emit *e, const char *key, const char *text, size_t length);
/* The name of a stage, under the key `stage`; for people short_stage() of it. */
struct name;
void emit_stage(struct emit *e, const struct name *name);
void emit_json(struct emit *e, const char *key, const char *json, size_t length); /* what is valid JSON already */
void emit_open(struct emit *e, const char *key, bool list);
void emit_close(struct emit *e);

/* For people: "12.345 ms". */
void human_time(struct text *text, int64_t ns);
/* "1.5 MiB" */
void human_bytes(struct text *text, uint64_t bytes);

#endif
