/* emit.c - prints rows of named values as text, JSON or csv. */
#include "write/emit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/command.h"
#include "model/names.h"
#include "write/event.h"
#include "write/rows/row_keys.h"
#include "write/short_names.h"

/* The number of the form of versioned answers: it rises when a key goes or changes its meaning, not when one is added. */
#define SCHEMA "1"

/* ---- formats of values ---- */

/* Answers in lines have millions of numbers, for which a format takes most of the time. */
static void add_number(struct text *text, uint64_t number)
{
    char digits[NUMBER_DIGITS];
    text_add(text, digits, number_write(digits, number));
}

static void add_us(struct text *text, int64_t ns)
{
    char digits[US_LENGTH];
    text_add(text, digits, us_write(digits, ns));
}

/* ---- JSON ---- */

/* Writes the text before a value: a comma if it is not the first, and its key. */
static void begin_json_value(struct emit *e, const char *key)
{
    if (e->filled[e->depth]) out_write(e->out, ", ", 2);
    e->filled[e->depth] = true;
    if (key && !e->list[e->depth]) {
        out_json_string(e->out, key, strlen(key));
        out_puts(e->out, ": ");
    }
}

/* ---- cells of text and csv ---- */

static void table_cell(struct emit *e, const char *text, bool right)
{
    e->cell = mem_grow(e->cell, &e->cell_capacity, e->cell_count + 1, sizeof *e->cell);
    e->cell[e->cell_count].text = string_format("%s", text);
    e->cell[e->cell_count++].right = right;
}

static void table_head(struct emit *e)
{
    for (const char *p = e->keys; *p;) {
        size_t length = strcspn(p, ",");
        char *key = mem_text(p, key_without_unit(e->keys, p, length));
        table_cell(e, key, false);
        e->columns++;
        free(key);
        p += length + (p[length] == ',');
    }
}

enum { BLOCK_KEY = 18 }; /* columns for a key: longer than every key of info */

static void block_cell(struct emit *e, const char *key, const char *text)
{
    if (e->cells == 0 && !e->totals) {
        out_puts(e->out, text);
        out_puts(e->out, "\n");
        return;
    }
    size_t length = key_without_unit(e->keys, key, strlen(key));
    out_puts(e->out, "  ");
    out_write(e->out, key, length);
    for (size_t i = length; i < BLOCK_KEY; i++) out_puts(e->out, " ");
    out_puts(e->out, text);
    out_puts(e->out, "\n");
}

/* Writes a complete value at the top level of a row. */
static void put_cell(struct emit *e, const char *key, const char *text, size_t length, bool right)
{
    if (e->totals && e->format == FORMAT_CSV) return;
    if (e->totals && e->style == STYLE_TABLE) {
        text_format(&e->total, "%s%.*s %s", e->total.length ? ", " : "",
                    (int)key_without_unit(e->keys, key, strlen(key)), key, text);
    } else if (e->format == FORMAT_CSV) {
        struct text quoted = {0};
        text_csv(&quoted, text, length, !right && is_formula(text, length));
        out_puts(e->out, e->cells ? "," : "");
        out_write(e->out, quoted.data ? quoted.data : "", quoted.length);
        text_free(&quoted);
    } else if (e->style == STYLE_TABLE) {
        table_cell(e, text, right);
    } else if (e->style == STYLE_BLOCKS) {
        block_cell(e, key, text);
    } else if (!e->totals) {
        out_puts(e->out, e->cells ? " " : "");
        out_write(e->out, text, length);
    }
    e->cells++;
}

/* Adds a nested value: "key value" in text tables and blocks, else key=value. Names have blanks, so that csv needs
 * another separator; lines put names in quotes. */
static void put_nested(struct emit *e, const char *key, const char *text, size_t length)
{
    bool people = e->format == FORMAT_TEXT && e->style != STYLE_LINES;
    if (e->filled[e->depth]) text_puts(&e->nested, people ? ", " : e->format == FORMAT_CSV ? ";" : " ");
    e->filled[e->depth] = true;
    if (key && !e->list[e->depth]) {
        text_visible(&e->nested, key, strlen(key));
        text_puts(&e->nested, people ? " " : "=");
    }
    text_add(&e->nested, text, length);
}

/* Writes the value in `scratch`, and empties it. */
static void put(struct emit *e, const char *key, bool right)
{
    const char *text = e->scratch.data ? e->scratch.data : "";
    if (e->depth) put_nested(e, key, text, e->scratch.length);
    else put_cell(e, key, text, e->scratch.length, right);
    e->scratch.length = 0;
    if (e->scratch.data) e->scratch.data[0] = 0;
}

static bool for_people(const struct emit *e)
{
    return e->format == FORMAT_TEXT && e->style != STYLE_LINES;
}

/* ---- values ---- */

/* Begins a value that needs no quotes, at the top level of a line. Returns false elsewhere. */
static bool begin_in_line(struct emit *e)
{
    bool is_csv = e->format == FORMAT_CSV, is_line = e->format == FORMAT_TEXT && e->style == STYLE_LINES;
    if (e->depth || e->totals || !(is_csv || is_line)) return false;
    if (e->cells++) out_write(e->out, is_csv ? "," : " ", 1);
    return true;
}

void emit_null(struct emit *e, const char *key)
{
    if (values_take(e->values, key, VALUE_NULL, 0)) return;
    if (e->format == FORMAT_JSON) {
        begin_json_value(e, key);
        out_puts(e->out, "null");
        return;
    }
    if (begin_in_line(e)) {
        out_write(e->out, "-", e->format == FORMAT_TEXT);
        return;
    }
    text_puts(&e->scratch, e->format == FORMAT_TEXT ? "-" : "");
    put(e, key, true);
}

void emit_hide(struct emit *e, bool hide)
{
    e->hides = hide;
}

void emit_hide_all(struct emit *e)
{
    e->hides_all = true;
}

static bool sorts(const struct emit *e)
{
    return e->sorted.key && e->begun && !e->depth;
}

static void sort_by_number(struct emit *e, const char *key, double number)
{
    if (sorts(e)) sorted_rows_number(&e->sorted, key, number);
}

static void sort_by_text(struct emit *e, const char *key, const char *text, size_t length)
{
    if (sorts(e)) sorted_rows_text(&e->sorted, key, text, length);
}

static bool hides_value(const struct emit *e, const char *key)
{
    return !e->depth && (e->hides || (e->hides_all && !key_is_place(key)));
}

/* Writes a number as unknown if it is. */
static bool is_hidden(struct emit *e, const char *key)
{
    if (!hides_value(e, key)) return false;
    emit_null(e, key);
    return true;
}

void emit_bool(struct emit *e, const char *key, bool value)
{
    if (values_take(e->values, key, VALUE_BOOL, value)) return;
    sort_by_number(e, key, value);
    if (e->format == FORMAT_JSON) {
        begin_json_value(e, key);
        out_puts(e->out, value ? "true" : "false");
        return;
    }
    text_puts(&e->scratch, for_people(e) ? (value ? "yes" : "no") : value ? "true" : "false");
    put(e, key, false);
}

void emit_count(struct emit *e, const char *key, uint64_t value)
{
    if (values_take(e->values, key, VALUE_COUNT, value)) return;
    if (is_hidden(e, key)) return;
    sort_by_number(e, key, (double)value);
    bool in_json = e->format == FORMAT_JSON;
    if (in_json) begin_json_value(e, key);
    if (in_json || begin_in_line(e)) {
        out_number(e->out, value);
        return;
    }
    add_number(&e->scratch, value);
    put(e, key, true);
}

void emit_int(struct emit *e, const char *key, int64_t value)
{
    if (values_take(e->values, key, VALUE_INT, (uint64_t)value)) return;
    if (is_hidden(e, key)) return;
    sort_by_number(e, key, (double)value);
    bool in_json = e->format == FORMAT_JSON;
    if (in_json) begin_json_value(e, key);
    if (in_json || begin_in_line(e)) {
        out_int(e->out, value);
        return;
    }
    text_add(&e->scratch, "-", value < 0);
    add_number(&e->scratch, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
    put(e, key, true);
}

void emit_known(struct emit *e, const char *key, int64_t value)
{
    if (value < 0) emit_null(e, key);
    else emit_int(e, key, value);
}

void emit_us(struct emit *e, const char *key, int64_t ns)
{
    if (values_take(e->values, key, VALUE_US, (uint64_t)ns)) return;
    if (is_hidden(e, key)) return;
    sort_by_number(e, key, (double)ns);
    bool in_json = e->format == FORMAT_JSON;
    if (in_json) begin_json_value(e, key);
    if (in_json || begin_in_line(e)) {
        out_us(e->out, ns);
        return;
    }
    if (for_people(e)) human_time(&e->scratch, ns);
    else add_us(&e->scratch, ns);
    put(e, key, true);
}

void emit_bytes(struct emit *e, const char *key, uint64_t value)
{
    if (!for_people(e) || hides_value(e, key)) {
        emit_count(e, key, value);
        return;
    }
    sort_by_number(e, key, (double)value);
    human_bytes(&e->scratch, value);
    put(e, key, true);
}

void emit_pct(struct emit *e, const char *key, double value)
{
    bool unknown = !isfinite(value) || hides_value(e, key);
    if (!unknown) sort_by_number(e, key, value);
    if (unknown) {
        emit_null(e, key);
    } else if (e->format == FORMAT_JSON) {
        begin_json_value(e, key);
        out_format(e->out, "%.4f", value);
    } else {
        text_format(&e->scratch, for_people(e) ? "%.1f %%" : "%.4f", value);
        put(e, key, true);
    }
}

void emit_double(struct emit *e, const char *key, double value)
{
    if (values_take_double(e->values, key, value)) return;
    bool unknown = !isfinite(value) || hides_value(e, key);
    if (!unknown) sort_by_number(e, key, value);
    if (unknown) {
        emit_null(e, key);
    } else if (e->format == FORMAT_JSON) {
        begin_json_value(e, key);
        out_format(e->out, "%.17g", value);
    } else {
        text_format(&e->scratch, for_people(e) ? "%g" : "%.17g", value);
        put(e, key, true);
    }
}

void emit_hex(struct emit *e, const char *key, uint64_t value)
{
    if (values_take(e->values, key, VALUE_HEX, value)) return;
    if (e->format == FORMAT_JSON) {
        begin_json_value(e, key);
        out_write(e->out, "\"", 1);
        out_hex(e->out, value);
        out_write(e->out, "\"", 1);
        return;
    }
    if (begin_in_line(e)) {
        out_hex(e->out, value);
        return;
    }
    text_format(&e->scratch, "0x%llx", (unsigned long long)value);
    put(e, key, true);
}

void emit_bytes_text(struct emit *e, const char *key, const char *text, size_t length)
{
    if (values_take_text(e->values, key, VALUE_TEXT, text, length)) return;
    sort_by_text(e, key, text, length);
    if (e->format == FORMAT_JSON) {
        begin_json_value(e, key);
        out_json_string(e->out, text, length);
        return;
    }
    if (e->format == FORMAT_TEXT && e->style == STYLE_LINES) text_quoted(&e->scratch, text, length);
    else text_visible(&e->scratch, text, length);
    put(e, key, false);
}

void emit_text(struct emit *e, const char *key, const char *text)
{
    if (!text) {
        emit_null(e, key);
        return;
    }
    bool word = e->format == FORMAT_TEXT && e->style == STYLE_LINES && !e->depth;
    if (word) { /* words at the top level of a line come from the program itself: no quotes */
        sort_by_text(e, key, text, strlen(text));
        text_visible(&e->scratch, text, strlen(text));
        put(e, key, false);
    } else {
        emit_bytes_text(e, key, text, strlen(text));
    }
}

static void put_stage(struct emit *e, const char *key, const struct name *name)
{
    struct text text = {0};
    if (for_people(e)) {
        short_stage(name->text, name->length, &text);
        emit_bytes_text(e, key, text.data, text.length);
    } else {
        emit_bytes_text(e, key, name->text, name->length);
    }
    text_free(&text);
}

void emit_stage(struct emit *e, const struct name *name)
{
    put_stage(e, "stage", name);
}

void emit_parent(struct emit *e, const struct names *names, uint32_t number)
{
    if (number == NAME_NONE) emit_null(e, "parent");
    else put_stage(e, "parent", names_get(names, number));
}

void emit_name(struct emit *e, const struct names *names, const char *key, uint32_t number)
{
    const struct name *name = names_get(names, number);
    if (number == NAME_NONE) emit_null(e, key);
    else emit_bytes_text(e, key, name->text, name->length);
}

void emit_json(struct emit *e, const char *key, const char *json, size_t length)
{
    if (values_take_text(e->values, key, VALUE_JSON, json, length)) return;
    if (e->format == FORMAT_JSON) {
        begin_json_value(e, key);
        out_json_raw(e->out, json, length);
        return;
    }
    text_visible(&e->scratch, json, length);
    put(e, key, false);
}

void emit_open(struct emit *e, const char *key, bool list)
{
    if (values_take(e->values, key, list ? VALUE_LIST : VALUE_OBJECT, 0)) return;
    if (e->format == FORMAT_JSON) {
        begin_json_value(e, key);
        out_puts(e->out, list ? "[" : "{");
    } else if (e->depth == 0) {
        free(e->nested_key);
        e->nested_key = string_format("%s", key);
        e->nested.length = 0;
    } else {
        put_nested(e, key, "(", 1);
    }
    e->depth++;
    e->list[e->depth] = list;
    e->filled[e->depth] = false;
}

void emit_close(struct emit *e)
{
    if (values_take(e->values, NULL, VALUE_END, 0)) return;
    bool list = e->list[e->depth], empty = !e->filled[e->depth];
    e->depth--;
    if (e->format == FORMAT_JSON) {
        out_puts(e->out, list ? "]" : "}");
    } else if (e->depth == 0) {
        if (empty && e->format == FORMAT_TEXT) text_puts(&e->scratch, e->style == STYLE_LINES ? "" : "-");
        else text_add(&e->scratch, e->nested.data ? e->nested.data : "", e->nested.length);
        put(e, e->nested_key, false);
        e->nested.length = 0;
    } else {
        text_puts(&e->nested, ")");
    }
}

/* ---- answers and rows ---- */

void emit_begin(struct emit *e, struct out *out, enum format format, enum emit_style style,
                const struct command *command)
{
    *e = (struct emit){.out = out, .format = format, .style = style, .command = command->name, .keys = command->keys};
    e->rules = rules_names[RULES_EXACT];
    if (format == FORMAT_JSON) {
        out_puts(out, "{\"command\": ");
        out_json_string(out, command->name, strlen(command->name));
        out_puts(out, ", \"version\": ");
        out_json_string(out, TFI_VERSION, strlen(TFI_VERSION));
        if (command->takes & VERSIONED) out_puts(out, ", \"schema\": " SCHEMA);
    }
}

void emit_rules(struct emit *e, enum rules rules)
{
    e->rules = rules_names[rules];
}

void emit_keys(struct emit *e, const char *keys)
{
    e->keys = keys;
}

void emit_sort(struct emit *e, const char *key, uint64_t top)
{
    sorted_rows_begin(&e->sorted, key, top);
}

static void begin_inputs(struct emit *e)
{
    if (e->format == FORMAT_JSON && !e->inputs) out_format(e->out, ", \"rules\": \"%s\",\n\"inputs\": [", e->rules);
    e->inputs = true;
}

void emit_input(struct emit *e, const char *path, const char *kind, int64_t rank, bool complete, int64_t events,
                int64_t lost, bool simulated)
{
    if (e->format != FORMAT_JSON) return;
    begin_inputs(e);
    out_puts(e->out, e->rows++ ? ",\n  {" : "\n  {");
    e->filled[0] = false;
    emit_text(e, "path", path);
    emit_text(e, "kind", kind);
    emit_known(e, "rank", rank);
    emit_bool(e, "complete", complete);
    emit_known(e, "events", events);
    emit_known(e, "lost", lost);
    if (simulated) emit_bool(e, "simulated", true);
    out_puts(e->out, "}");
}

/* Ends the list of inputs and begins the rows. There may be no rows. */
static void begin_rows(struct emit *e)
{
    if (e->begun) return;
    e->begun = true;
    if (e->format == FORMAT_JSON) {
        begin_inputs(e);
        e->rows = 0;
        out_puts(e->out, "],\n\"rows\": [");
    } else if (e->format == FORMAT_CSV) {
        out_puts(e->out, e->keys);
        out_puts(e->out, "\n");
    } else if (e->style == STYLE_TABLE) {
        table_head(e);
    }
    if (!e->sorted.key) return;
    e->lacks_key = !keys_have(e->keys, e->sorted.key, strlen(e->sorted.key));
    if (e->lacks_key) {
        sorted_rows_say_lacking(&e->sorted, e->command, e->keys);
        out_forget(e->out);
    }
    e->sorted_to = e->out;
    e->out = &e->sorted.text;
}

/* Writes the text before a row. */
static void row_before(struct emit *e)
{
    if (e->format == FORMAT_JSON) out_puts(e->out, e->rows ? ",\n  {" : "\n  {");
    else if (e->style == STYLE_BLOCKS && e->format == FORMAT_TEXT && e->rows) out_puts(e->out, "\n");
}

static bool is_table(const struct emit *e)
{
    return e->format == FORMAT_TEXT && e->style == STYLE_TABLE;
}

void emit_row(struct emit *e)
{
    begin_rows(e);
    e->hides = false;
    e->cells = 0;
    e->filled[0] = false;
    if (e->sorted.key) sorted_rows_add(&e->sorted, is_table(e) ? e->cell_count : e->sorted.text.used);
    else row_before(e);
}

void emit_row_end(struct emit *e)
{
    if (e->format == FORMAT_JSON) out_puts(e->out, "}");
    else if (e->format == FORMAT_CSV || e->style == STYLE_LINES) out_puts(e->out, "\n");
    if (e->sorted.key) sorted_rows_end(&e->sorted, is_table(e) ? e->cell_count : e->sorted.text.used);
    else e->rows++;
}

/* Writes the rows in their order. */
static void emit_sorted(struct emit *e)
{
    size_t shown = sorted_rows_order(&e->sorted);
    e->out = e->sorted_to;
    if (is_table(e)) {
        e->cell = sorted_rows_cells(&e->sorted, e->cell, &e->cell_count, e->columns);
    } else {
        for (const struct sorted_row *row = e->sorted.row; e->rows < shown; e->rows++, row++) {
            row_before(e);
            out_write(e->out, e->sorted.text.buffer + row->from, row->to - row->from);
        }
    }
    sorted_rows_free(&e->sorted);
}

void emit_totals(struct emit *e)
{
    begin_rows(e);
    if (e->sorted.key) emit_sorted(e);
    e->filled[0] = false;
    if (e->format == FORMAT_JSON) {
        out_puts(e->out, e->rows ? "\n],\n\"totals\": {" : "],\n\"totals\": {");
    } else if (is_table(e)) {
        table_print(e->out, e->cell, e->cell_count, e->columns);
        free(e->cell);
        e->cell = NULL;
        e->cell_count = 0;
    } else if (e->format == FORMAT_TEXT && e->style == STYLE_BLOCKS) {
        out_puts(e->out, e->rows ? "\ntotal\n" : "total\n");
    }
    e->totals = true;
}

void emit_end(struct emit *e)
{
    if (e->format == FORMAT_JSON) {
        out_puts(e->out, "}}\n");
    } else if (e->format == FORMAT_TEXT && e->style == STYLE_TABLE && e->total.length) {
        out_puts(e->out, "total: ");
        out_write(e->out, e->total.data, e->total.length);
        out_puts(e->out, "\n");
    }
    text_free(&e->scratch);
    text_free(&e->nested);
    text_free(&e->total);
    free(e->nested_key);
    e->nested_key = NULL;
}
