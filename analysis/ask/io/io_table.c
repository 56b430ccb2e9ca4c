/* io_table.c - unites the calls on files of all processes into rows. */
#include "ask/io/io_table.h"

#include <stdlib.h>
#include <string.h>

enum { LATE_BATCHES = 100 }; /* late ones that are kept without --top */

/* ---- one rank ---- */

struct uniting {
    struct io_table *table;
    const struct options *options;
    const struct io_rank *rank;
    bool by_process;
    struct map touched; /* lines that have calls of this rank */
    uint32_t *line;
    size_t lines, capacity;
    uint32_t process; /* number of the current process in the whole run */
};

static struct io_line *line_of(struct uniting *u, const struct io_taken *taken, const struct io_row *row)
{
    struct io_table *t = u->table;
    uint64_t key = u->by_process ? u->process : (uint64_t)row->function << 32 | row->path;
    uint32_t at = map_get(&t->place, key);
    if (at == MAP_NONE) {
        map_put(&t->place, key, at = (uint32_t)t->lines);
        t->line = mem_grow(t->line, &t->capacity, t->lines + 1, sizeof *t->line);
        t->line[t->lines++] = (struct io_line){.row = {row->function, row->path, .smallest = -1, .largest = -1},
                                               .rank = u->by_process ? taken->rank : -1,
                                               .pid = u->by_process ? taken->pid : -1,
                                               .worker = u->by_process ? taken->worker : -1,
                                               .idle = -1};
    }
    if (map_get(&u->touched, at) == MAP_NONE) {
        map_put(&u->touched, at, 0);
        u->line = mem_grow(u->line, &u->capacity, u->lines + 1, sizeof *u->line);
        u->line[u->lines++] = at;
    }
    return &t->line[at];
}

static void add_rows(struct uniting *u, size_t process)
{
    const struct io_taken *taken = u->rank->taken[process];
    for (size_t i = 0; i < taken->rows; i++) {
        struct io_line *line = line_of(u, taken, &taken->row[i]);
        io_row_add(&line->row, &taken->row[i]);
        if (u->rank->has_device) line->idle = MAX(line->idle, 0) + io_rank_idle(u->rank, process, &taken->row[i]);
    }
}

/* Measures the lines of this rank, whose times are not needed for the next rank. */
static void measure_lines(struct uniting *u)
{
    for (size_t i = 0; i < u->lines; i++) {
        struct io_line *line = &u->table->line[u->line[i]];
        struct intervals *when = &line->row.when;
        intervals_merge(when);
        line->unoverlapped += intervals_total(when) - measure_overlap(&u->rank->computing, when);
        intervals_free(when);
    }
}

/* ---- sums ---- */

static void add_when(struct intervals *when, const struct io_taken *taken)
{
    for (size_t i = 0; i < taken->rows; i++)
        for (size_t k = 0; k < taken->row[i].when.count; k++)
            intervals_add(when, taken->row[i].when.interval[k].start, taken->row[i].when.interval[k].end);
}

static void add_counts(struct io_sums *sums, const struct io_taken *taken)
{
    for (size_t i = 0; i < taken->rows; i++) {
        sums->bytes += taken->row[i].bytes;
        sums->total = add_ns(sums->total, taken->row[i].total);
        sums->moving = add_ns(sums->moving, taken->row[i].moving);
    }
    sums->calls += taken->calls;
    sums->processes++;
}

static void add_paths(struct map *paths, const struct map *from)
{
    for (size_t i = 0; i < from->capacity; i++)
        if (from->values[i]) map_number(paths, from->keys[i]);
}

/* Sums up `processes` processes of the rank from the process `from` on. */
static struct io_sums sum_up(const struct io_rank *rank, size_t from, size_t processes)
{
    struct io_sums s = {.rank = rank->rank, .pid = -1, .worker = -1, .span = -1, .idle = -1};
    struct intervals io = {0}, asked = {0};
    struct map paths = {0};
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (size_t i = from; i < from + processes; i++) {
        const struct io_taken *t = rank->taken[i];
        add_counts(&s, t);
        add_paths(&paths, &t->paths);
        add_when(&io, t);
        for (size_t k = 0; k < t->asked.count; k++)
            intervals_add(&asked, t->asked.interval[k].start, t->asked.interval[k].end);
        first = MIN(first, t->first);
        last = MAX(last, t->last);
    }
    intervals_merge(&io);
    intervals_merge(&asked);
    struct intervals either = intervals_union(&io, &asked);
    s.files = paths.count;
    map_free(&paths);
    if (first <= last) s.span = last - first;
    if (rank->has_device) s.idle = io_rank_idle_time(rank, from, processes);
    s.io = intervals_total(&io);
    s.asked = intervals_total(&asked);
    s.compute = rank->computed;
    s.alone_io = s.io - measure_overlap(&rank->computing, &io);
    s.alone_asked = s.asked - measure_overlap(&rank->computing, &asked);
    s.alone_compute = s.compute - measure_overlap(&rank->computing, &either);
    intervals_free(&io);
    intervals_free(&asked);
    intervals_free(&either);
    return s;
}

static void add_sums(struct io_table *table, const struct io_sums *sums)
{
    table->sums = mem_grow(table->sums, &table->sum_capacity, table->sum_count + 1, sizeof *table->sums);
    table->sums[table->sum_count++] = *sums;
}

static void add_to_all(struct io_sums *all, const struct io_sums *s)
{
    all->processes += s->processes;
    all->calls += s->calls;
    all->bytes += s->bytes;
    all->total = add_ns(all->total, s->total);
    all->moving = add_ns(all->moving, s->moving);
    all->io = add_ns(all->io, s->io);
    all->alone_io = add_ns(all->alone_io, s->alone_io);
    all->compute = add_ns(all->compute, s->compute);
    if (s->idle >= 0) all->idle = MAX(all->idle, 0) + s->idle;
}

/* ---- all ranks ---- */

static void add_rank(struct io_table *table, const struct options *options, struct io_taken **taken, size_t processes)
{
    struct io_rank rank;
    bool by_process = options->layout != LAYOUT_FILES &&
                      (options->group_files == GROUP_PROCESS || options->group_files == GROUP_WORKER);
    struct uniting u = {.table = table, .options = options, .rank = &rank, .by_process = by_process};
    io_rank_init(&rank, taken, processes);
    for (size_t i = 0; i < processes; i++) {
        u.process = (uint32_t)table->all.processes + (uint32_t)i;
        add_rows(&u, i);
        io_buckets_add(&table->timeline, &taken[i]->timeline);
        if (!by_process || !taken[i]->calls) continue;
        struct io_sums one = sum_up(&rank, i, 1);
        one.pid = taken[i]->pid;
        one.worker = taken[i]->worker;
        add_sums(table, &one);
    }
    measure_lines(&u);
    io_lates_add(&table->lates, &rank);
    struct io_sums sums = sum_up(&rank, 0, processes);
    if (!by_process) add_sums(table, &sums);
    add_to_all(&table->all, &sums);
    map_free(&u.touched);
    free(u.line);
    io_rank_free(&rank);
}

static int by_rank(const void *a, const void *b)
{
    const struct io_taken *x = *(struct io_taken *const *)a, *y = *(struct io_taken *const *)b;
    if (x->rank != y->rank) return by_number(x->rank, y->rank);
    if (x->worker != y->worker) return by_number(x->worker, y->worker);
    return by_number(x->first, y->first);
}

void io_table_collect(struct io_table *table, const struct selection *chosen, void *const *taken)
{
    size_t count = 0, end;
    struct io_taken **sorted = mem_zero(chosen->processes, sizeof(struct io_taken *));
    *table = (struct io_table){.all = {.idle = -1}};
    if (chosen->options->layout == LAYOUT_BATCHES)
        table->lates =
            (struct io_lates){.most = chosen->options->top ? chosen->options->top : LATE_BATCHES, .idle = -1};
    for (size_t i = 0; i < chosen->processes; i++)
        if (taken[i]) sorted[count++] = taken[i];
    for (size_t i = 0; i < count; i++) table->lacks_calls |= sorted[i]->lacks_calls && !chosen->options->stage.count;
    if (count) qsort(sorted, count, sizeof(struct io_taken *), by_rank);
    for (size_t i = 0; i < count; i = end) {
        for (end = i + 1; end < count && sorted[end]->rank == sorted[i]->rank; end++) continue;
        add_rank(table, chosen->options, sorted + i, end - i);
    }
    for (size_t i = 0; i < table->lines; i++) sizes_settle(&table->line[i].row.sizes);
    io_lates_settle(&table->lates);
    free(sorted);
}

static int by_text(const struct names *names, uint32_t a, uint32_t b)
{
    return a == b ? 0 : strcmp(names_get(names, a)->text, names_get(names, b)->text);
}

static int by_idle(const void *a, const void *b, void *names)
{
    const struct io_line *x = a, *y = b;
    if (x->idle != y->idle) return by_number(y->idle, x->idle);
    if (x->row.total != y->row.total) return by_number(y->row.total, x->row.total);
    int order = by_text(names, x->row.function, y->row.function);
    order = order ? order : by_text(names, x->row.path, y->row.path);
    return order ? order : x->rank != y->rank ? by_number(x->rank, y->rank) : by_number(x->pid, y->pid);
}

void io_table_sort(struct io_table *table, const struct names *names)
{
    if (table->lines) qsort_r(table->line, table->lines, sizeof *table->line, by_idle, (void *)names);
}

void io_table_free(struct io_table *table)
{
    for (size_t i = 0; i < table->lines; i++) io_row_free(&table->line[i].row);
    free(table->line);
    map_free(&table->place);
    free(table->sums);
    io_buckets_free(&table->timeline);
    io_lates_free(&table->lates);
    *table = (struct io_table){0};
}
