/* stage_tree.c - prints the stages of a run as a tree.
 *
 * A stage stands below the stage around its first call on the rank where it took longest. The times are done_us and
 * self_us of `stages`, added up over the ranks; the share is that of the time of all ranks. */
#include "commands/screen/stage_tree.h"

#include <stdlib.h>
#include <string.h>

#include "commands/screen/screen_lines.h"
#include "write/short_names.h"

struct tree_row {
    uint32_t name;   /* the key */
    uint32_t parent; /* NAME_NONE: none */
    uint64_t calls;
    int64_t all, self, least, most;
    size_t ranks;
    struct tree_row *around; /* the parent's row, once all are known; NULL: none */
    bool shown, printed;
};

struct stage_tree {
    KEYED_ROWS(struct tree_row);
    size_t ranks;
    struct tree_row **shown; /* in the order of the rows */
    size_t nr_shown;
};

struct needs stage_tree_needs(const struct options *options)
{
    return work_needs(options);
}

int64_t stage_time(const struct stage_row *row)
{
    return row->done_unknown ? row->wall : row->done;
}

bool stage_in_tree(const struct stage_row *row)
{
    return row->calls && row->name != NAME_OUTSIDE && row->name != NAME_RUN;
}

static int tree_rows_by_time(const void *a, const void *b)
{
    const struct tree_row *x = a, *y = b;
    return x->all != y->all ? by_number(y->all, x->all) : by_number(x->name, y->name);
}

static void collect_tree(struct stage_tree *tree, const struct stage_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct stage_row *row = &table->row[i];
        if (!stage_in_tree(row)) continue;
        struct tree_row *of = keyed_row(&tree->keyed, &row->name, sizeof row->name, sizeof *of);
        int64_t time = stage_time(row);
        if (!of->ranks || time > of->most) of->parent = row->parent;
        of->least = of->ranks ? MIN(of->least, time) : time;
        of->most = MAX(of->most, time);
        of->all = add_ns(of->all, time);
        of->self = add_ns(of->self, row->self);
        of->calls += row->calls;
        of->ranks++;
        tree->ranks = MAX(tree->ranks, of->ranks);
    }
    if (tree->count) qsort(tree->row, tree->count, sizeof *tree->row, tree_rows_by_time);
}

static void link_rows(struct stage_tree *tree)
{
    struct map place = {0};
    for (size_t i = 0; i < tree->count; i++) map_put(&place, tree->row[i].name, (uint32_t)i);
    for (size_t i = 0; i < tree->count; i++) {
        uint32_t parent = tree->row[i].parent, at = parent == NAME_NONE ? MAP_NONE : map_get(&place, parent);
        if (at != MAP_NONE) tree->row[i].around = &tree->row[at];
    }
    map_free(&place);
}

/* Chooses the rows with the most time. A row brings those around it, if all of them have room. */
static void choose_rows(struct stage_tree *tree, size_t most)
{
    size_t shown = 0;
    for (size_t i = 0; i < tree->count && shown < most; i++) {
        struct tree_row *chain[16];
        size_t length = 0;
        for (struct tree_row *row = &tree->row[i]; row && !row->shown && length < ARRAY_SIZE(chain); row = row->around)
            chain[length++] = row;
        if (shown + length > most) continue;
        for (size_t k = 0; k < length; k++) chain[k]->shown = true;
        shown += length;
    }
    tree->shown = mem_zero(shown, sizeof *tree->shown);
    for (size_t i = 0; i < tree->count && shown; i++)
        if (tree->row[i].shown) tree->shown[tree->nr_shown++] = &tree->row[i];
}

static void put_row(struct out *out, const struct session *session, const struct stage_tree *tree,
                    const struct tree_row *row, size_t depth)
{
    const struct name *name = names_get(&session->model.names, row->name);
    struct text line = {0};
    text_format(&line, "%12.3f", (double)row->all / 1e6);
    if (tree->ranks > 1) text_format(&line, " %12.3f ..%12.3f", (double)row->least / 1e6, (double)row->most / 1e6);
    text_format(&line, " %12.3f %9llu  %*s", (double)row->self / 1e6, (unsigned long long)row->calls,
                (int)MIN(2 * depth, 16), "");
    if (name->length) short_stage(name->text, name->length, &line);
    else text_puts(&line, "(no name)");
    screen_line(out, &line);
}

/* Prints the shown rows in `around`; NULL: those in no shown row. */
static void put_children(struct out *out, const struct session *session, struct stage_tree *tree,
                         const struct tree_row *around, size_t depth)
{
    for (size_t i = 0; i < tree->nr_shown; i++) {
        struct tree_row *row = tree->shown[i];
        const struct tree_row *of = row->around && row->around->shown ? row->around : NULL;
        if (row->printed || of != around) continue;
        row->printed = true;
        put_row(out, session, tree, row, depth);
        put_children(out, session, tree, row, depth + 1);
    }
}

static void put_tree(struct out *out, const struct session *session, struct stage_tree *tree, size_t most)
{
    struct text line = {0};
    if (!tree->count) return;
    choose_rows(tree, most);
    text_puts(&line, "stages, all ranks together");
    if (tree->ranks < 2) line.length = strlen("stages");
    if (tree->nr_shown < tree->count) {
        line.data[line.length] = 0;
        text_format(&line, "; %zu more in `tfanalyze stages`", tree->count - tree->nr_shown);
    }
    screen_gap(out, &line);
    text_puts(&line, tree->ranks > 1 ? "          ms       least ms ..     most ms      self ms     calls  stage"
                                     : "          ms      self ms     calls  stage");
    screen_line(out, &line);
    put_children(out, session, tree, NULL, 0);
    for (size_t i = 0; i < tree->nr_shown; i++) /* those around each other in a circle */
        if (!tree->shown[i]->printed) put_row(out, session, tree, tree->shown[i], 0);
}

void stage_tree_print(struct out *out, struct session *session, size_t most)
{
    struct stage_table table = {.since = INT64_MIN};
    struct stage_tree tree = {0};
    for (size_t i = 0; i < session->chosen.processes; i++) {
        struct scope *scope = scope_begin(&session->chosen, i);
        stages_add(&table, scope, scope->process->rank, false);
        scope_end(scope);
    }
    collect_tree(&tree, &table);
    link_rows(&tree);
    put_tree(out, session, &tree, most);
    free(tree.shown);
    keyed_free(&tree.keyed);
    stages_free(&table);
}
