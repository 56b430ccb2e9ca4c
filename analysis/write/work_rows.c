/* work_rows.c - gives overlapping work of a stream rows of their own in Chrome traces. */
#include "write/work_rows.h"

#include <stdlib.h>

#include "base/sets/lanes.h"

enum { FIRST_ROW = 1 << 30, LANES_SHOWN = 1024 }; /* FIRST_ROW: above the numbers of streams */

static int works_by_start(const void *a, const void *b, void *context)
{
    const struct works *w = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    int nesting = outer_first(w->start[x], w->end[x], w->start[y], w->end[y]);
    return nesting ? nesting : by_number(x, y);
}

void work_rows_init(struct work_rows *rows, const struct process *process)
{
    struct works *w = (struct works *)&process->works;
    uint32_t *order = mem_zero(w->table.count, sizeof *order);
    struct lanes *lanes = mem_zero(process->lanes, sizeof *lanes);
    size_t count = 0;
    rows->lane = mem_zero(w->table.count, sizeof *rows->lane);
    for (size_t i = 0; i < w->table.count; i++)
        if (IS_WORK(w->event_class[i])) order[count++] = (uint32_t)i;
    if (count) qsort_r(order, count, sizeof *order, works_by_start, w);
    for (size_t i = 0; i < count; i++) {
        uint32_t work = order[i];
        rows->lane[work] = lanes_place(&lanes[w->lane[work]], w->start[work], w->end[work]);
    }
    for (size_t i = 0; i < process->lanes; i++) lanes_free(&lanes[i]);
    free(lanes);
    free(order);
}

uint64_t work_row(struct work_rows *rows, const struct process *process, size_t work, bool *is_new)
{
    uint32_t lane = rows->lane[work], stream = process->works.lane[work];
    size_t before = rows->rows.count;
    *is_new = false;
    if (!lane) return (uint64_t)process->lane[stream].stream;
    uint64_t number = map_number(&rows->rows, (uint64_t)stream << 32 | lane);
    *is_new = rows->rows.count > before;
    return FIRST_ROW + rows->earlier + number;
}

int64_t work_row_order(const struct work_rows *rows, const struct process *process, size_t work)
{
    int64_t stream = MIN(process->lane[process->works.lane[work]].stream, INT32_MAX / LANES_SHOWN - 1);
    return stream * LANES_SHOWN + MIN(rows->lane[work], LANES_SHOWN - 1);
}

void work_rows_next(struct work_rows *rows)
{
    rows->earlier += rows->rows.count;
    map_free(&rows->rows);
    free(rows->lane);
    rows->lane = NULL;
}
