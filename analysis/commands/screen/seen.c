/* seen.c - compares the stages of two drawings of a running job by name: each has read the run anew. */
#include "commands/screen/seen.h"

#include <stdlib.h>
#include <string.h>

#include "commands/screen/stage_tree.h"
#include "write/short_names.h"

/* ---- what a drawing shows ---- */

static int stages_by_name(const void *a, const void *b)
{
    const struct seen_stage *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Adds up the stages of one name, which are neighbours. */
static void unite_ranks(struct seen *seen)
{
    size_t kept = 0;
    for (size_t i = 0; i < seen->count; i++) {
        struct seen_stage *stage = &seen->stage[i], *last = kept ? &seen->stage[kept - 1] : NULL;
        if (!last || strcmp(last->name, stage->name) != 0) {
            seen->stage[kept++] = *stage;
            continue;
        }
        last->calls += stage->calls;
        last->time = add_ns(last->time, stage->time);
        free(stage->name);
    }
    seen->count = kept;
}

void seen_take(struct seen *seen, struct session *session)
{
    struct stage_table table = {.since = INT64_MIN};
    for (size_t i = 0; i < session->chosen.processes; i++) {
        struct scope *scope = scope_begin(&session->chosen, i);
        seen->events += scope->process->events;
        stages_add(&table, scope, scope->process->rank, false);
        scope_end(scope);
    }
    for (size_t i = 0; i < table.count; i++) {
        const struct stage_row *row = &table.row[i];
        if (!stage_in_tree(row)) continue;
        seen->stage = mem_grow(seen->stage, &seen->capacity, seen->count + 1, sizeof *seen->stage);
        seen->stage[seen->count++] = (struct seen_stage){string_format("%s", model_name(&session->model, row->name)),
                                                         row->calls, stage_time(row)};
    }
    if (seen->count) qsort(seen->stage, seen->count, sizeof *seen->stage, stages_by_name);
    unite_ranks(seen);
    stages_free(&table);
}

void seen_free(struct seen *seen)
{
    for (size_t i = 0; i < seen->count; i++) free(seen->stage[i].name);
    free(seen->stage);
    *seen = (struct seen){0};
}

/* ---- what is new ---- */

struct gain {
    const char *name;
    uint64_t calls;
    int64_t time;
};

static int gains_by_calls(const void *a, const void *b)
{
    const struct gain *x = a, *y = b;
    return x->calls != y->calls ? by_number((int64_t)y->calls, (int64_t)x->calls) : strcmp(x->name, y->name);
}

/* Returns the number of stages that have more calls or another time. */
static size_t find_gains(const struct seen *before, const struct seen *now, struct gain *gains)
{
    size_t count = 0, k = 0;
    for (size_t i = 0; i < now->count; i++) {
        const struct seen_stage *stage = &now->stage[i];
        struct gain gain = {stage->name, stage->calls, stage->time};
        while (k < before->count && strcmp(before->stage[k].name, stage->name) < 0) k++;
        if (k < before->count && strcmp(before->stage[k].name, stage->name) == 0) {
            gain.calls -= MIN(gain.calls, before->stage[k].calls);
            gain.time = add_ns(gain.time, -before->stage[k].time);
        }
        if (gain.calls || gain.time) gains[count++] = gain;
    }
    return count;
}

void seen_tell(struct text *line, const struct seen *before, const struct seen *now)
{
    enum { MOST_SHOWN = 3 };
    struct gain *gains = mem_zero(now->count, sizeof *gains);
    size_t count = find_gains(before, now, gains);
    uint64_t events = now->events - MIN(now->events, before->events);
    if (count) qsort(gains, count, sizeof *gains, gains_by_calls);
    text_format(line, "%llu event%s", (unsigned long long)events, events == 1 ? "" : "s");
    for (size_t i = 0; i < MIN(count, (size_t)MOST_SHOWN); i++) {
        text_puts(line, "; ");
        if (*gains[i].name) short_stage(gains[i].name, strlen(gains[i].name), line);
        else text_puts(line, "(no name)");
        if (gains[i].calls)
            text_format(line, " %llu call%s", (unsigned long long)gains[i].calls, gains[i].calls == 1 ? "" : "s");
        text_format(line, " %.3f ms", (double)gains[i].time / 1e6);
    }
    if (count > MOST_SHOWN) text_format(line, "; and %zu more stages", count - MOST_SHOWN);
    free(gains);
}
