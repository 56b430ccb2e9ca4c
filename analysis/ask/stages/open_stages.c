/* open_stages.c - keeps the counting stages that are open on a thread, and leaves out those that find no place among them. */
#include "ask/stages/open_stages.h"

#include <stdlib.h>

struct open {
    int64_t end;
    uint32_t row;
};

/* Drops the stages that have ended. */
static size_t still_open(struct open *open, size_t count, int64_t time)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (open[i].end > time) open[kept++] = open[i];
    return kept;
}

static enum stage_sums judge(const struct open *open, size_t count, uint32_t row)
{
    if (row == NO_PLACE) return STAGE_UNASKED;
    if (count < MOST_OPEN) return STAGE_COUNTS;
    for (size_t i = 0; i < count; i++)
        if (open[i].row == row) return STAGE_REPEATED;
    return STAGE_DEEP;
}

uint8_t *stages_deep(const struct ranges *r, const size_t *order, size_t count, const uint32_t *row)
{
    uint8_t *sums = mem_zero(r->table.count, sizeof *sums);
    struct open open[MOST_OPEN];
    size_t opened = 0;
    bool all = true;
    for (size_t i = 0; i < count; i++) {
        size_t at = order[i];
        if (i && r->thread[at] != r->thread[order[i - 1]]) opened = 0;
        opened = still_open(open, opened, r->start[at]);
        sums[at] = (uint8_t)judge(open, opened, row[at]);
        if (sums[at] == STAGE_COUNTS) open[opened++] = (struct open){r->end[at], row[at]};
        all &= sums[at] == STAGE_COUNTS;
    }
    if (!all) return sums;
    free(sums);
    return NULL;
}
