/* diff_rows.c - unites the summaries of two runs by the text of names, as each run has numbers of its own. */
#include "ask/diff/diff_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const diff_state_names[NR_DIFF_STATES] = {[DIFF_ADDED] = "added",
                                                      [DIFF_REMOVED] = "removed",
                                                      [DIFF_INCREASED] = "increased",
                                                      [DIFF_DECREASED] = "decreased",
                                                      [DIFF_SAME] = "same"};

void diff_init(struct diff *diff)
{
    *diff = (struct diff){0};
    names_init(&diff->names);
}

void diff_free(struct diff *diff)
{
    names_free(&diff->names);
    map_free(&diff->places);
    free(diff->row);
    *diff = (struct diff){0};
}

size_t diff_place(struct diff *diff, const struct name *name, enum diff_kind kind)
{
    bool communicates = (unsigned)kind == WORK_COMMUNICATION;
    uint32_t number = names_add(&diff->names, name->text, name->length);
    uint64_t key = (uint64_t)(communicates ? WORK_COMPUTATION : (unsigned)kind) << 32 | number;
    uint32_t place = map_get(&diff->places, key);
    if (place == MAP_NONE) {
        diff->row = mem_grow(diff->row, &diff->capacity, diff->count + 1, sizeof *diff->row);
        diff->row[diff->count] = (struct diff_row){.name = number, .kind = (uint8_t)kind};
        place = (uint32_t)diff->count++;
        map_put(&diff->places, key, place);
    }
    if (communicates) diff->row[place].kind = WORK_COMMUNICATION;
    return place;
}

static struct diff_row *row_of(struct diff *diff, const struct name *name, enum diff_kind kind)
{
    size_t place = diff_place(diff, name, kind); /* moves the rows */
    return &diff->row[place];
}

void diff_add(struct diff *diff, int side, const struct name *name, enum diff_kind kind, uint64_t calls, int64_t time)
{
    struct diff_row *row = row_of(diff, name, kind);
    row->in[side] = true;
    row->calls[side] = calls == CALLS_UNKNOWN ? CALLS_UNKNOWN : row->calls[side] + calls;
    row->time[side] = add_ns(row->time[side], time);
}

/* ---- ranks ---- */

static int by_value(const void *a, const void *b)
{
    return by_number(*(const int64_t *)a, *(const int64_t *)b);
}

static void find_ranks(struct diff_ranks *ranks, int side, const struct selection *chosen)
{
    size_t kept = 0;
    int64_t *rank = mem_zero(chosen->processes + 1, sizeof *rank);
    for (size_t i = 0; i < chosen->processes; i++) rank[i] = chosen->process[i]->rank;
    if (chosen->processes) qsort(rank, chosen->processes, sizeof *rank, by_value);
    for (size_t i = 0; i < chosen->processes; i++)
        if (!kept || rank[i] != rank[kept - 1]) rank[kept++] = rank[i];
    ranks->rank[side] = rank;
    ranks->count[side] = kept;
}

static bool has_rank(const struct diff_ranks *ranks, int side, int64_t rank)
{
    return ranks->count[side] &&
           bsearch(&rank, ranks->rank[side], ranks->count[side], sizeof *ranks->rank[side], by_value) != NULL;
}

void diff_ranks_init(struct diff_ranks *ranks, const struct selection *a, const struct selection *b)
{
    *ranks = (struct diff_ranks){0};
    find_ranks(ranks, SIDE_A, a);
    find_ranks(ranks, SIDE_B, b);
    for (size_t i = 0; i < ranks->count[SIDE_A]; i++) ranks->common += has_rank(ranks, SIDE_B, ranks->rank[SIDE_A][i]);
    ranks->one_each = !ranks->common && ranks->count[SIDE_A] == 1 && ranks->count[SIDE_B] == 1;
}

void diff_ranks_free(struct diff_ranks *ranks)
{
    for (int side = 0; side < SIDES; side++) free(ranks->rank[side]);
}

bool diff_ranks_has(const struct diff_ranks *ranks, int side, int64_t rank)
{
    return has_rank(ranks, side, rank) && (ranks->one_each || has_rank(ranks, 1 - side, rank));
}

/* ---- collecting ---- */

/* Returns the ranks that have a process with stages. */
static struct map ranks_with_stages(const struct selection *chosen, void *const *taken)
{
    struct map ranks = {0};
    for (size_t i = 0; i < chosen->processes; i++)
        if (((const struct diff_taken *)taken[i])->has_stages) map_put(&ranks, (uint64_t)chosen->process[i]->rank, 1);
    return ranks;
}

/* A process without stages is a stage of its own only if no process of its rank has stages. */
static bool is_left_out(const struct diff_taken *taken, const struct diff_item *item, const struct map *with_stages,
                        int64_t rank)
{
    return item->kind == DIFF_STAGE && !taken->has_stages && map_get(with_stages, (uint64_t)rank) != MAP_NONE;
}

void diff_collect(struct diff *diff, int side, const struct selection *chosen, void *const *taken,
                  const struct diff_ranks *ranks)
{
    struct map with_stages = ranks_with_stages(chosen, taken);
    diff->has_total[side] = diff_by(chosen->options) == BY_KERNEL;
    for (size_t i = 0; i < chosen->processes; i++) {
        const struct diff_taken *t = taken[i];
        int64_t rank = chosen->process[i]->rank;
        diff->unknown[side] |= t->unknown && diff_ranks_has(ranks, side, rank);
        for (size_t k = 0; diff_ranks_has(ranks, side, rank) && k < t->count; k++) {
            const struct diff_item *item = &t->item[k];
            if (is_left_out(t, item, &with_stages, rank)) continue;
            diff_add(diff, side, names_get(&chosen->model->names, item->name), item->kind, item->calls, item->time);
            diff->total[side] = add_ns(diff->total[side], item->time);
        }
    }
    map_free(&with_stages);
}

void diff_collect_timing(struct diff *diff, int side, const struct selection *chosen, void *const *taken)
{
    struct map with_stages = ranks_with_stages(chosen, taken), of_rank = {0};
    int64_t *total = mem_zero(chosen->processes + 1, sizeof *total);
    for (size_t i = 0; i < chosen->processes; i++) {
        const struct diff_taken *t = taken[i];
        int64_t rank = chosen->process[i]->rank, *sum = &total[map_number(&of_rank, (uint64_t)rank)];
        for (size_t k = 0; k < t->count; k++) {
            const struct diff_item *item = &t->item[k];
            if (is_left_out(t, item, &with_stages, rank)) continue;
            struct diff_row *row = row_of(diff, names_get(&chosen->model->names, item->name), DIFF_STAGE);
            row->in[side] = true;
            row->calls[side] = CALLS_UNKNOWN;
            row->time[side] = MAX(row->time[side], item->last);
            *sum = add_ns(*sum, item->time);
        }
    }
    for (size_t i = 0; i < of_rank.count; i++) diff->total[side] = MAX(diff->total[side], total[i]);
    diff->has_total[side] = true;
    free(total);
    map_free(&of_rank);
    map_free(&with_stages);
}

/* ---- comparing ---- */

static int by_change(const void *a, const void *b, void *context)
{
    const struct diff_row *x = a, *y = b;
    const struct names *names = context;
    int64_t change_x = llabs(add_ns(x->time[SIDE_B], -x->time[SIDE_A])),
            change_y = llabs(add_ns(y->time[SIDE_B], -y->time[SIDE_A]));
    if (change_x != change_y) return change_x > change_y ? -1 : 1;
    int order = strcmp(names_get(names, x->name)->text, names_get(names, y->name)->text);
    return order ? order : (int)x->kind - (int)y->kind;
}

void diff_sort(struct diff *diff)
{
    if (diff->count) qsort_r(diff->row, diff->count, sizeof *diff->row, by_change, &diff->names);
}

double diff_pct(int64_t a, int64_t b)
{
    return a ? ((double)b - (double)a) / (double)a * 100 : NAN;
}

enum diff_state diff_state(const struct diff_row *row)
{
    if (!row->in[SIDE_A]) return DIFF_ADDED;
    if (!row->in[SIDE_B]) return DIFF_REMOVED;
    double pct = diff_pct(row->time[SIDE_A], row->time[SIDE_B]);
    if (isnan(pct)) return row->time[SIDE_B] > 0 ? DIFF_INCREASED : DIFF_SAME;
    return pct > DIFF_SAME_PCT ? DIFF_INCREASED : pct < -DIFF_SAME_PCT ? DIFF_DECREASED : DIFF_SAME;
}

const char *diff_kind_name(const struct diff_row *row)
{
    return row->kind == DIFF_OPERATOR ? "operator"
           : row->kind == DIFF_STAGE  ? "stage"
           : row->kind == DIFF_CALL   ? "call"
                                      : work_kind_names[row->kind];
}
