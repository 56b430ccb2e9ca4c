/* row_order.c - sorts rows by rank and stage, the costliest first. */
#include "ask/row_order.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "model/names.h"

int row_group(const void *a, const void *b)
{
    const struct row_head *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return (x->stage > y->stage) - (x->stage < y->stage);
}

static int costly_first(const void *a, const void *b, void *context)
{
    const struct row_head *x = a, *y = b;
    const struct names *names = context;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->of_stage != y->of_stage) return x->of_stage > y->of_stage ? -1 : 1;
    if (x->stage != y->stage) return strcmp(names_get(names, x->stage)->text, names_get(names, y->stage)->text);
    if (x->time != y->time) return x->time > y->time ? -1 : 1;
    return strcmp(names_get(names, x->name)->text, names_get(names, y->name)->text);
}

static struct row_head *at(void *rows, size_t size, size_t i)
{
    return (struct row_head *)(void *)((char *)rows + i * size);
}

void rows_sort(void *rows, size_t count, size_t size, const struct names *names)
{
    if (!count) return;
    qsort(rows, count, size, row_group);
    for (size_t i = 0, from = 0; i <= count; i++) {
        if (i == count || row_group(at(rows, size, i), at(rows, size, from)) != 0) {
            int64_t total = 0;
            for (size_t k = from; k < i; k++) total = add_ns(total, at(rows, size, k)->time);
            for (; from < i; from++) at(rows, size, from)->of_stage = total;
        }
    }
    qsort_r(rows, count, size, costly_first, (void *)names);
}
