/* page_lanes.c - makes the timeline of a page from ranges, works, samples, blocks and clocks of the first processes that have some. */
#include "commands/page/page_lanes.h"

#include <stdlib.h>
#include <string.h>

#include "ask/stages/order.h"
#include "commands/page/bins.h"
#include "commands/page/boxes.h"

enum { MOST_PROCESSES = 12, MOST_THREADS = 4, MOST_DEPTH = 4, MOST_STREAMS = 6, MOST_CELLS = 4000, LEAST_CELLS = 300 };

struct lanes {
    struct out *out;
    const struct selection *chosen;
    struct box_names names;
    int64_t from, to, cell;
    size_t most;   /* boxes of a row */
    uint64_t left; /* intervals that are in no box */
    bool more;     /* a row has been written */
};

static bool is_drawn(const struct process *p)
{
    return p->has_time && (p->ranges.table.count || p->works.table.count || p->looks.table.count);
}

static void put_boxes(struct lanes *l, const struct process *process, struct boxes *boxes, const char *kind,
                      const char *label, unsigned depth)
{
    struct out *out = l->out;
    l->left += boxes_thin(boxes, l->cell, l->most);
    out_puts(out, l->more ? ",\n" : "\n");
    l->more = true;
    out_puts(out, "{\"rank\": ");
    if (process->rank < 0) out_puts(out, "null");
    else out_int(out, process->rank);
    out_puts(out, ", \"pid\": ");
    out_int(out, process->pid);
    out_puts(out, ", \"kind\": \"");
    out_puts(out, kind);
    out_puts(out, "\", \"label\": ");
    out_json_string(out, label, strlen(label));
    out_puts(out, ", \"depth\": ");
    out_number(out, depth);
    out_puts(out, ", \"busy_us\": ");
    out_us(out, boxes->busy);
    out_puts(out, ", ");
    boxes_write(out, boxes, l->from, &l->names);
    out_puts(out, "}");
    boxes_free(boxes);
}

/* ---- stages of threads ---- */

static char *thread_label(const struct lanes *l, const struct process *process, uint32_t serial)
{
    uint32_t at = map_get(&process->thread_of, serial);
    if (at == MAP_NONE) return string_format("a thread");
    const struct thread *t = &process->thread[at];
    const char *name = t->name == NAME_NONE ? "" : model_name(l->chosen->model, t->name);
    if (strstr(name, "thread")) return string_format("%.60s", name); /* it has its number, as those of Kineto do */
    return string_format("thread %llu%s%.60s", (unsigned long long)t->tid, *name ? " " : "", name);
}

/* Draws the stages of one thread, by depth: `order` has them by start, the outer one first. */
static void put_thread(struct lanes *l, const struct process *process, const size_t *order, size_t count)
{
    const struct ranges *r = &process->ranges;
    struct boxes boxes[MOST_DEPTH] = {0};
    int64_t end[MOST_DEPTH];
    unsigned depth = 0;
    for (size_t i = 0; i < count; i++) {
        size_t range = order[i];
        while (depth && end[depth - 1] <= r->start[range]) depth--;
        if (depth == MOST_DEPTH) {
            l->left++;
            continue;
        }
        boxes_add(&boxes[depth], r->start[range], r->end[range], r->name[range]);
        end[depth++] = r->end[range];
    }
    char *label = thread_label(l, process, r->thread[order[0]]);
    for (unsigned d = 0; d < MOST_DEPTH; d++)
        if (boxes[d].count) put_boxes(l, process, &boxes[d], "stages", label, d);
    free(label);
}

static void put_threads(struct lanes *l, const struct process *process)
{
    const struct ranges *r = &process->ranges;
    size_t count, threads = 0, *order = stages_sorted(process, &count);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && r->thread[order[end]] == r->thread[order[first]];) end++;
        if (threads++ < MOST_THREADS) put_thread(l, process, order + first, end - first);
        else l->left += end - first;
    }
    free(order);
}

/* ---- work of streams ---- */

static void put_stream(struct lanes *l, const struct process *process, uint32_t lane)
{
    const struct works *w = &process->works;
    const struct lane *of = &process->lane[lane];
    struct boxes boxes = {0};
    for (size_t i = 0; i < w->table.count; i++)
        if (w->lane[i] == lane && IS_WORK(w->event_class[i])) boxes_add(&boxes, w->start[i], w->end[i], w->name[i]);
    char *label = string_format("device %lld, stream %lld", (long long)of->device, (long long)of->stream);
    put_boxes(l, process, &boxes, "work", label, 0);
    free(label);
}

static void put_streams(struct lanes *l, const struct process *process)
{
    const struct works *w = &process->works;
    uint64_t *count = mem_zero(process->lanes + 1, sizeof *count);
    for (size_t i = 0; i < w->table.count; i++) count[w->lane[i]] += IS_WORK(w->event_class[i]);
    for (size_t drawn = 0; drawn < MOST_STREAMS; drawn++) {
        uint32_t most = 0;
        for (uint32_t i = 1; i < process->lanes; i++) most = count[i] > count[most] ? i : most;
        if (!count[most]) break;
        count[most] = 0;
        put_stream(l, process, most);
    }
    for (size_t i = 0; i < process->lanes; i++) l->left += count[i];
    free(count);
}

/* ---- all ---- */

/* Sets the window to the time of the processes that are drawn. Returns their number. */
static size_t choose_window(struct lanes *l)
{
    size_t count = 0;
    l->from = INT64_MAX;
    l->to = INT64_MIN;
    for (size_t i = 0; i < l->chosen->processes && count < MOST_PROCESSES; i++) {
        const struct process *p = l->chosen->process[i];
        if (!is_drawn(p)) continue;
        l->from = MIN(l->from, p->first);
        l->to = MAX(l->to, p->last);
        count++;
    }
    if (!count) l->from = l->to = 0;
    size_t cells = MIN(MAX(MOST_CELLS / MAX(count, (size_t)1), (size_t)LEAST_CELLS), (size_t)MOST_CELLS);
    l->cell = MAX(less_ns(l->to, l->from) / (int64_t)cells, (int64_t)1);
    l->most = 3 * cells;
    return count;
}

/* Calls `put` for each process that is drawn. Returns the number of those that are not. */
static size_t put_processes(struct lanes *l, void (*put)(struct lanes *l, const struct process *process))
{
    size_t drawn = 0, left = 0;
    for (size_t i = 0; i < l->chosen->processes; i++) {
        const struct process *p = l->chosen->process[i];
        if (!is_drawn(p)) continue;
        if (drawn++ < MOST_PROCESSES) put(l, p);
        else left++;
    }
    return left;
}

static void put_rows(struct lanes *l, const struct process *process)
{
    put_threads(l, process);
    put_streams(l, process);
}

static void put_values(struct lanes *l, const struct process *process)
{
    l->more = bins_write(l->out, process, l->from, l->to, l->more);
}

void lanes_write(struct out *out, const struct selection *chosen)
{
    struct lanes l = {.out = out, .chosen = chosen};
    size_t drawn = choose_window(&l);
    out_puts(out, "{\"span_us\": ");
    out_us(out, less_ns(l.to, l.from));
    out_puts(out, ", \"cell_us\": ");
    out_us(out, l.cell);
    out_puts(out, ", \"processes\": ");
    out_number(out, drawn);
    out_puts(out, ", \"lanes\": [");
    size_t left = put_processes(&l, put_rows);
    out_puts(out, "], \"values\": [");
    l.more = false;
    put_processes(&l, put_values);
    out_puts(out, "], \"left_processes\": ");
    out_number(out, left);
    out_puts(out, ", \"left_events\": ");
    out_number(out, l.left);
    out_puts(out, ", \"names\": ");
    box_names_write(out, &l.names, &chosen->model->names);
    out_puts(out, "}");
    box_names_free(&l.names);
}
