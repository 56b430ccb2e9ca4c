/* op_table.c - prints operators as torch.autograd.profiler_util._build_table does (torch 2.15).
 *
 * Widths count characters, not bytes. Only names, shapes, modules and source locations are cut if they are too wide.
 * torch has no column of modules; it is there if rows are grouped by them. Shares refer to the sum over all rows,
 * including those not printed.
 */
#include "write/op_table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/frames.h"

enum {
    HOST_COLUMNS = 5,
    DEVICE_COLUMNS = 4,
    HEAD_MOST = 32,
    WIDTH = 12,
    NAME_MOST = 55,
    SHAPES_MOST = 80,
    SOURCE_MOST = 75,
    GAP = 2,
    COLUMNS_MOST = 1 + 5 + 4 + 4 + 1 + 4
};

struct op_column {
    const char *head;
    size_t width;
    bool left;
};

struct table_text {
    const struct op_rows *rows;
    const struct names *names;
    struct out *out;
    struct op_column column[COLUMNS_MOST];
    const char *device_word;
    char device_head[6][HEAD_MOST];
    size_t columns, device_heads, source_width;
    bool has_device, has_device_memory, has_shapes, has_modules, has_source;
    double own_us, own_device_us; /* sums of all rows, as torch adds them up */
    double flops_scale;           /* 0: no column */
};

/* ---- values in torch's format ---- */

static void put_time(struct text *text, double us)
{
    text_format(text,
                us >= 1e6   ? "%.3fs"
                : us >= 1e3 ? "%.3fms"
                            : "%.3fus",
                us >= 1e6   ? us / 1e6
                : us >= 1e3 ? us / 1e3
                            : us);
}

static void put_share(struct text *text, double us, double total)
{
    if (total < 0 || total > 0) text_format(text, "%.2f%%", us * 100.0 / total);
    else text_puts(text, "NaN");
}

static void put_memory(struct text *text, int64_t bytes)
{
    static const char *const units[] = {"GB", "MB", "KB"};
    double size = (double)bytes;
    for (int i = 0; i < 3; i++) {
        double unit = (double)(INT64_C(1) << (30 - 10 * i));
        if (fabs(size) >= unit) {
            text_format(text, "%.2f %s", size / unit, units[i]);
            return;
        }
    }
    text_format(text, "%lld B", (long long)bytes);
}

/* ---- cells ---- */

struct line {
    struct table_text *table;
    size_t column;
};

static void put_cell(struct line *line, const char *text, size_t length)
{
    struct out *out = line->table->out;
    const struct op_column *column = &line->table->column[line->column++];
    struct text shown = {0};
    text_visible(&shown, text, length);
    size_t width = characters(shown.data, shown.length), pad = column->width > width ? column->width - width : 0;
    out_spaces(out, column->left ? 0 : pad);
    out_write(out, shown.data, shown.length);
    out_spaces(out, (column->left ? pad : 0) + GAP);
    text_free(&shown);
}

static void put_text(struct line *line, struct text *text)
{
    put_cell(line, text->data ? text->data : "", text->length);
    text_free(text);
}

static void put_line_end(struct line *line)
{
    while (line->column < line->table->columns) put_cell(line, "", 0);
    out_write(line->table->out, "\n", 1);
    line->column = 0;
}

static void put_rule(const struct table_text *table)
{
    for (size_t i = 0; i < table->columns; i++) {
        for (size_t k = 0; k < table->column[i].width; k++) out_write(table->out, "-", 1);
        out_spaces(table->out, GAP);
    }
    out_write(table->out, "\n", 1);
}

/* ---- columns ---- */

static void add_column(struct table_text *t, const char *head, size_t width)
{
    t->column[t->columns++] = (struct op_column){head, width, false};
}

/* Adds a column whose head has the device's word. */
static void add_device_column(struct table_text *t, const char *form)
{
    char *head = t->device_head[t->device_heads++];
    const char *rest = strstr(form, "%s") + 2;
    snprintf(head, HEAD_MOST, "%.*s%s%s", (int)(rest - 2 - form), form, t->device_word, rest);
    add_column(t, head, WIDTH);
}

static size_t longest(const struct table_text *t, const uint32_t *text, size_t most)
{
    size_t width = 0;
    for (size_t i = 0; i < t->rows->count; i++) {
        const uint32_t *of_row = (const uint32_t *)((const char *)text + i * sizeof *t->rows->row);
        const struct name *name = names_get(t->names, *of_row);
        width = MAX(width, characters(name->text, name->length));
    }
    return MIN(width + 4, most);
}

/* Returns the width of the longest frame of all stacks; 0: there are none. */
static size_t longest_frame(const struct table_text *t)
{
    size_t width = 0;
    for (size_t i = 0; i < t->rows->count; i++) {
        const char *at = names_get(t->names, t->rows->row[i].stack)->text;
        for (size_t length; *at; at += length + (at[length] == '\n')) {
            length = strcspn(at, "\n");
            width = MAX(width, characters(at, length));
        }
    }
    return width;
}

static void measure(struct table_text *t)
{
    uint64_t least = 0;
    for (size_t i = 0; i < t->rows->count; i++) {
        const struct op_row *row = &t->rows->row[i];
        t->own_us += row->us.own;
        t->own_device_us += row->on_device && !row->is_annotation ? row->us.own_device : 0;
        t->has_device |= row->us.own_device > 0;
        t->has_device_memory |= row->own.device_bytes > 0;
        t->has_shapes |= row->shapes != NAME_NONE && strcmp(names_get(t->names, row->shapes)->text, "[]") != 0;
        t->has_modules |= row->modules != NAME_NONE;
        least = row->flops && (!least || row->flops < least) ? row->flops : least;
    }
    t->flops_scale = least ? pow(10, -3 * floor(MIN(log10((double)least) / 3, 5))) : 0;
}

static void choose_columns(struct table_text *t)
{
    static const char *const flops[] = {"Total FLOPs",  "Total KFLOPs", "Total MFLOPs",
                                        "Total GFLOPs", "Total TFLOPs", "Total PFLOPs"};
    static const char *const host[] = {"Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"};
    static const char *const device[] = {"Self %s", "Self %s %", "%s total", "%s time avg", "%s Mem", "Self %s Mem"};
    const struct op_rows *rows = t->rows;
    size_t frame = longest_frame(t);
    t->has_source = frame > 0;
    add_column(t, "Name", longest(t, &rows->row->name, NAME_MOST));
    for (size_t i = 0; i < ARRAY_SIZE(host); i++) add_column(t, host[i], WIDTH);
    for (size_t i = 0; i < DEVICE_COLUMNS && t->has_device; i++) add_device_column(t, device[i]);
    if (rows->has_memory) {
        add_column(t, "CPU Mem", WIDTH);
        add_column(t, "Self CPU Mem", WIDTH);
    }
    for (size_t i = DEVICE_COLUMNS; i < ARRAY_SIZE(device) && rows->has_memory && t->has_device_memory; i++)
        add_device_column(t, device[i]);
    add_column(t, "# of Calls", WIDTH);
    if (t->has_shapes) add_column(t, "Input Shapes", longest(t, &rows->row->shapes, SHAPES_MOST));
    if (t->has_modules) {
        add_column(t, "Module Hierarchy", longest(t, &rows->row->modules, SHAPES_MOST));
        t->column[t->columns - 1].left = true;
    }
    if (t->has_source) {
        t->source_width = MIN(frame + 4, SOURCE_MOST);
        add_column(t, "Source Location", t->source_width);
        t->column[t->columns - 1].left = true;
    }
    if (t->flops_scale > 0) add_column(t, flops[(size_t)lround(-log10(t->flops_scale) / 3)], WIDTH);
}

/* ---- rows ---- */

static void put_name(struct line *line, const struct name *name)
{
    struct text text = {0};
    if (characters(name->text, name->length) >= NAME_MOST - 3) {
        text_add(&text, name->text, characters_bytes(name->text, name->length, NAME_MOST - 3));
        text_puts(&text, "...");
    } else {
        text_add(&text, name->text, name->length);
    }
    put_text(line, &text);
}

/* Fills cells whose values are unknown. */
static void put_unknown(struct line *line, size_t count)
{
    while (count--) put_cell(line, "-", 1);
}

static void put_host_times(struct line *line, const struct op_row *row)
{
    const struct table_text *t = line->table;
    struct text text = {0};
    const struct op_us *us = &row->us;
    double calls = row->calls ? (double)row->calls : 1;
    put_share(&text, us->own, t->own_us);
    put_text(line, &text);
    put_time(&text, us->own);
    put_text(line, &text);
    if (row->is_async) text_puts(&text, "0"); /* torch prints 0 here too */
    else put_share(&text, us->all, t->own_us);
    put_text(line, &text);
    put_time(&text, us->all);
    put_text(line, &text);
    put_time(&text, us->all / calls);
    put_text(line, &text);
}

static void put_device_times(struct line *line, const struct op_row *row)
{
    struct text text = {0};
    const struct op_us *us = &row->us;
    put_time(&text, us->own_device);
    put_text(line, &text);
    put_share(&text, us->own_device, line->table->own_device_us);
    put_text(line, &text);
    put_time(&text, us->device);
    put_text(line, &text);
    put_time(&text, us->device / (row->calls ? (double)row->calls : 1));
    put_text(line, &text);
}

static void put_bytes(struct line *line, const struct op_row *row)
{
    struct text text = {0};
    const int64_t bytes[] = {row->all.host_bytes, row->own.host_bytes, row->all.device_bytes, row->own.device_bytes};
    size_t count = !line->table->rows->has_memory ? 0 : line->table->has_device_memory ? 4 : 2;
    if (line->table->rows->left.any) {
        put_unknown(line, count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        put_memory(&text, bytes[i]);
        put_text(line, &text);
    }
}

/* Writes a frame, or modules. A long text is cut at the front, as the end of a path is more useful. */
static void put_path(struct line *line, const char *frame, size_t length, size_t width)
{
    size_t has = characters(frame, length);
    struct text text = {0};
    if (has > width) {
        size_t skip = characters_bytes(frame, length, has - width + (width > 3 ? 3 : 0));
        text_puts(&text, width > 3 ? "..." : "");
        text_add(&text, frame + skip, length - skip);
    } else {
        text_add(&text, frame, length);
    }
    put_text(line, &text);
}

static void put_row(struct table_text *t, const struct op_row *row)
{
    struct line line = {t, 0};
    struct text text = {0};
    const char *at = names_get(t->names, row->stack)->text;
    put_name(&line, names_get(t->names, row->name));
    bool unknown = t->rows->left.any, all_unknown = unknown && !row->is_annotation;
    if (all_unknown) put_unknown(&line, HOST_COLUMNS);
    else put_host_times(&line, row);
    if (t->has_device && unknown) put_unknown(&line, DEVICE_COLUMNS);
    else if (t->has_device) put_device_times(&line, row);
    put_bytes(&line, row);
    if (all_unknown) text_puts(&text, "-");
    else text_format(&text, "%llu", (unsigned long long)row->calls);
    put_text(&line, &text);
    if (t->has_shapes) {
        const struct name *shapes = names_get(t->names, row->shapes);
        put_cell(&line, shapes->text, characters_bytes(shapes->text, shapes->length, t->column[line.column].width));
    }
    if (t->has_modules) {
        const struct name *modules = names_get(t->names, row->modules);
        put_path(&line, modules->text, modules->length, t->column[line.column].width);
    }
    size_t length = strcspn(at, "\n");
    if (t->flops_scale > 0 &&
        row->flops) { /* before the stack although its head comes after the stack's head, as in torch */
        text_format(&text, "%8.3f", (double)row->flops * t->flops_scale);
        put_text(&line, &text);
    } else if (t->flops_scale > 0) {
        put_cell(&line, "--", 2);
    }
    if (t->has_source) put_path(&line, at, length, t->source_width);
    put_line_end(&line);
    for (at += length; *at; at += length) { /* torch puts the other frames into the last column, whatever it is */
        length = strcspn(++at, "\n");
        while (line.column + 1 < t->columns) put_cell(&line, "", 0);
        put_path(&line, at, length, t->source_width);
        put_line_end(&line);
    }
    if (t->has_source) put_line_end(&line);
}

void op_table_print(const struct op_rows *rows, size_t limit, struct out *out)
{
    struct table_text t = {.rows = rows, .names = &rows->chosen->model->names, .out = out};
    t.device_word = rows->device_word ? rows->device_word : "CUDA";
    struct line line = {&t, 0};
    struct text text = {0};
    if (!rows->count) return;
    measure(&t);
    choose_columns(&t);
    put_rule(&t);
    for (size_t i = 0; i < t.columns; i++) put_cell(&line, t.column[i].head, strlen(t.column[i].head));
    put_line_end(&line);
    put_rule(&t);
    for (size_t i = 0; i < MIN(limit, rows->count); i++) put_row(&t, &rows->row[i]);
    put_rule(&t);
    text_puts(&text, "Self CPU time total: ");
    if (rows->left.any) text_puts(&text, "-");
    else put_time(&text, t.own_us);
    if (t.has_device) {
        text_format(&text, "\nSelf %s time total: ", t.device_word);
        if (rows->left.any) text_puts(&text, "-");
        else put_time(&text, t.own_device_us);
    }
    text_puts(&text, "\n");
    out_write(out, text.data, text.length);
    text_free(&text);
}
