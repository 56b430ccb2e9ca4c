/* emit.h - writes the answers of all commands: rows of named values, as text, JSON or csv.
 *
 * A command gives the type of a value (a time, bytes, a share); emit.c chooses the format. All rows of a command have
 * the same keys in the same order, those of commands.def. Unknown values are emit_null. JSON is written immediately.
 * A text table is kept until the end, as the widths of its columns depend on all rows.
 */
#ifndef TFA_EMIT_H
#define TFA_EMIT_H

#include "base/opts.h"
#include "write/rows/sorted_rows.h"
#include "write/table.h"

enum emit_style {
    STYLE_TABLE,  /* text: columns */
    STYLE_BLOCKS, /* text: one paragraph per row, headed by its first value */
    STYLE_LINES,  /* text: one line per row, written immediately, with unscaled numbers */
};

enum { EMIT_DEPTH = 4 };

struct event_values;
struct emit {
    struct out *out;
    struct event_values *values; /* receives all values (event.h), and nothing is written; NULL: they are written */
    enum format format;
    enum emit_style style;
    const char *command, *keys, *rules;
    bool inputs;             /* the list of inputs has begun */
    bool begun;              /* the rows have begun */
    bool totals;             /* the rows have ended */
    bool hides;              /* numbers are written as unknown */
    bool hides_all;          /* in all rows */
    unsigned depth;          /* nesting depth of values */
    bool list[EMIT_DEPTH];   /* by depth: the open value is a list, not an object */
    bool filled[EMIT_DEPTH]; /* by depth: the open value is not empty */
    size_t rows, cells;
    struct text scratch;
    struct text nested; /* csv and text: the open nested value */
    struct text total;  /* text: the line of the totals */
    char *nested_key;
    struct cell *cell; /* the cells of a table, row after row; the first row is the head */
    size_t cell_count, cell_capacity;
    size_t columns;
    struct sorted_rows sorted; /* its key NULL: the rows are written in the order in which they come */
    struct out *sorted_to;     /* where they go in the end */
    bool lacks_key;            /* the rows have no such key, which a message says */
};

void emit_begin(struct emit *e, struct out *out, enum format format, enum emit_style style,
                const struct command *command);
/* Sets the rules of an answer by other definitions than the exact ones. Call it before the first input. */
void emit_rules(struct emit *e, enum rules rules);
/* Sets keys other than those of commands.def. Call it before the first row. */
void emit_keys(struct emit *e, const char *keys);
/* Sorts the rows by a key of theirs, and shows the first `top` of them; 0: all. Call it before the first row. */
void emit_sort(struct emit *e, const char *key, uint64_t top);
void emit_input(struct emit *e, const char *path, const char *kind, int64_t rank, bool complete, int64_t events,
                int64_t lost, bool simulated); /* call it before the first row; -1: unknown */
void emit_row(struct emit *e);
void emit_row_end(struct emit *e);
/* With `hide` numbers are unknown from here to the end of the row, or of the totals, whatever they are. */
void emit_hide(struct emit *e, bool hide);
/* Numbers are unknown in all rows and totals, but for those that say whose a row is. */
void emit_hide_all(struct emit *e);
void emit_totals(struct emit *e); /* the following values are totals of all rows */
void emit_end(struct emit *e);

/* ---- values; the key is NULL in a list ---- */
void emit_null(struct emit *e, const char *key);
void emit_bool(struct emit *e, const char *key, bool value);
void emit_count(struct emit *e, const char *key, uint64_t value);
void emit_int(struct emit *e, const char *key, int64_t value);
void emit_known(struct emit *e, const char *key, int64_t value); /* negative: unknown */
void emit_us(struct emit *e, const char *key, int64_t ns);
void emit_bytes(struct emit *e, const char *key, uint64_t value);
void emit_pct(struct emit *e, const char *key, double value); /* not finite: unknown */
void emit_double(struct emit *e, const char *key, double value);
void emit_hex(struct emit *e, const char *key, uint64_t value);
void emit_text(struct emit *e, const char *key, const char *text); /* NULL: unknown */
void emit_bytes_text(struct emit *e, const char *key, const char *text, size_t length);
/* Writes the name of a stage under the key `stage`; in text tables and blocks its short_stage(). */
struct name;
void emit_stage(struct emit *e, const struct name *name);
struct names;
/* Writes a stage of the table in the same way under the key `parent`; NAME_NONE: none. */
void emit_parent(struct emit *e, const struct names *names, uint32_t number);
/* Writes a name of the table; NAME_NONE: unknown. */
void emit_name(struct emit *e, const struct names *names, const char *key, uint32_t number);
void emit_json(struct emit *e, const char *key, const char *json, size_t length); /* `json` is valid JSON */
void emit_open(struct emit *e, const char *key, bool list);
void emit_close(struct emit *e);

#endif
