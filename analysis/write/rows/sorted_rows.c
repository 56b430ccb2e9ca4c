/* sorted_rows.c - keeps the rows of an answer until all are known, and orders them by one of their values. */
#include "write/rows/sorted_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void sorted_rows_begin(struct sorted_rows *sorted, const char *key, uint64_t top)
{
    *sorted = (struct sorted_rows){.key = key, .top = top};
    out_memory(&sorted->text);
}

void sorted_rows_say_lacking(const struct sorted_rows *sorted, const char *command, const char *keys)
{
    enum { MOST_KEYS = 64 };
    const char *names[MOST_KEYS];
    char *copy = string_format("%s", keys), *rest = copy, *name;
    size_t count = 0;
    while (count < MOST_KEYS && (name = strsep(&rest, ",")) != NULL) names[count++] = name;
    const char *meant = nearest(sorted->key, names, count);
    complain(NULL, "--sort-by: rows of %s have no key %s%s%s; they have %s", command, sorted->key,
             meant ? "; did you mean " : "", meant ? meant : "", keys);
    free(copy);
}

void sorted_rows_add(struct sorted_rows *sorted, size_t from)
{
    sorted->row = mem_grow(sorted->row, &sorted->capacity, sorted->count + 1, sizeof *sorted->row);
    sorted->row[sorted->count] = (struct sorted_row){.number = NAN, .from = from, .place = sorted->count};
}

void sorted_rows_end(struct sorted_rows *sorted, size_t to)
{
    sorted->row[sorted->count++].to = to;
}

void sorted_rows_number(struct sorted_rows *sorted, const char *key, double number)
{
    if (strcmp(key, sorted->key) == 0) sorted->row[sorted->count].number = number;
}

void sorted_rows_text(struct sorted_rows *sorted, const char *key, const char *text, size_t length)
{
    if (strcmp(key, sorted->key) == 0) sorted->row[sorted->count].text = mem_text(text, length);
}

static int by_value(const void *a, const void *b)
{
    const struct sorted_row *x = a, *y = b;
    bool in_x = x->text || !isnan(x->number), in_y = y->text || !isnan(y->number);
    int order = in_y - in_x;
    if (!order && x->text && y->text) order = strcmp(x->text, y->text);
    else if (!order && in_x) order = (y->number > x->number) - (y->number < x->number);
    return order ? order : (x->place > y->place) - (x->place < y->place);
}

static size_t shown_rows(const struct sorted_rows *sorted)
{
    return sorted->top ? MIN(sorted->top, sorted->count) : sorted->count;
}

size_t sorted_rows_order(struct sorted_rows *sorted)
{
    if (sorted->count) qsort(sorted->row, sorted->count, sizeof *sorted->row, by_value);
    return shown_rows(sorted);
}

struct cell *sorted_rows_cells(const struct sorted_rows *sorted, struct cell *cell, size_t *cells, size_t columns)
{
    size_t shown = shown_rows(sorted);
    struct cell *ordered = mem_resize(NULL, columns * (shown + 1), sizeof *ordered);
    memcpy(ordered, cell, columns * sizeof *cell);
    for (size_t i = 0; i < sorted->count; i++) {
        struct cell *of_row = cell + sorted->row[i].from;
        if (i < shown) memcpy(ordered + columns * (i + 1), of_row, columns * sizeof *cell);
        else
            for (size_t k = 0; k < columns; k++) free(of_row[k].text);
    }
    free(cell);
    *cells = columns * (shown + 1);
    return ordered;
}

void sorted_rows_free(struct sorted_rows *sorted)
{
    if (!sorted->key) return;
    for (size_t i = 0; i < sorted->count; i++) free(sorted->row[i].text);
    free(sorted->row);
    out_discard(&sorted->text);
    *sorted = (struct sorted_rows){0};
}
