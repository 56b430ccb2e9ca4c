/* step_ranges.c - recognises ProfilerStep#N, gives such ranges of our traces the stage name ANY_STEP, folds names with
 * numbers, and sorts steps by start. */
#include "model/ranges/step_ranges.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char STEP[] = "ProfilerStep#";

bool step_number(struct slice name, uint64_t *number)
{
    size_t at = sizeof STEP - 1;
    if (name.length <= at || name.length > at + 18 || memcmp(name.at, STEP, at) != 0) return false;
    for (*number = 0; at < name.length; at++) {
        unsigned digit = (unsigned)(unsigned char)name.at[at] - '0';
        if (digit > 9) return false;
        *number = 10 * *number + digit;
    }
    return true;
}

static struct slice text_of(const struct names *names, uint32_t number)
{
    const struct name *name = names_get(names, number);
    return (struct slice){name->text, name->length};
}

void name_steps(struct process *process, struct names *names)
{
    struct ranges *r = &process->ranges;
    struct map step_of = {0}; /* by name; NO_PLACE - 1: not a step */
    uint32_t any = NAME_NONE;
    for (size_t i = 0; i < r->table.count; i++) {
        uint32_t step = map_get(&step_of, r->name[i]);
        if (step == MAP_NONE) {
            uint64_t number;
            step =
                step_number(text_of(names, r->name[i]), &number) ? (uint32_t)MIN(number, NO_PLACE - 2) : NO_PLACE - 1;
            map_put(&step_of, r->name[i], step);
        }
        if (step == NO_PLACE - 1) continue;
        r->step[i] = step;
        if (names->full_stages) continue;
        any = any ? any : names_add(names, ANY_STEP, strlen(ANY_STEP));
        r->name[i] = any;
    }
    map_free(&step_of);
    fold_names(process, names);
}

/* ---- folded names ---- */

/* Puts `*` for each number that no letter touches. Returns false if there is none. */
static bool fold_text(const struct name *name, struct text *out)
{
    const unsigned char *at = (const unsigned char *)name->text;
    bool folded = false;
    out->length = 0;
    text_puts(out, "");
    for (size_t i = 0, end; i < name->length; i = end) {
        for (end = i; end < name->length && isdigit(at[end]);) end++;
        bool is_number = end > i && !(i && isalpha(at[i - 1])) && !(end < name->length && isalpha(at[end]));
        end = MAX(end, i + 1);
        folded |= is_number;
        if (is_number) text_add(out, "*", 1);
        else text_add(out, name->text + i, end - i);
    }
    return folded;
}

static bool globs_have_numbers(const struct strings_list *globs)
{
    struct text text = {0};
    bool found = false;
    for (size_t i = 0; i < globs->count && !found; i++) {
        const struct name glob = {globs->text[i], (uint32_t)strlen(globs->text[i]), 0};
        found = fold_text(&glob, &text);
    }
    text_free(&text);
    return found;
}

void names_choose(struct names *names, const struct options *options)
{
    names->are_mangled = options->names == NAMES_MANGLED;
    names->are_of_kineto = options->names == NAMES_MANGLED || options->rules != RULES_EXACT;
    names->full_stages = options->stage_names == STAGES_FULL || globs_have_numbers(&options->stage);
    names->communication = &options->communication;
}

void fold_names(struct process *process, struct names *names)
{
    struct ranges *r = &process->ranges;
    struct map seen = {0}, alike = {0}; /* the folded name of each name; how many names have it */
    struct text text = {0};
    size_t folds = 0;
    for (size_t i = 0; i < r->table.count && !names->full_stages; i++) {
        if (map_get(&seen, r->name[i]) != MAP_NONE) continue;
        struct name name = names_copy(names, r->name[i]);
        uint32_t folded = fold_text(&name, &text) ? names_add(names, text.data, text.length) : r->name[i];
        map_put(&seen, r->name[i], folded);
        if (folded == r->name[i]) continue;
        uint32_t before = map_get(&alike, folded);
        map_put(&alike, folded, before == MAP_NONE ? 1 : before + 1);
        folds += before == MOST_ALIKE;
    }
    for (size_t i = 0; i < r->table.count && folds; i++) {
        uint32_t folded = map_get(&seen, r->name[i]), count = map_get(&alike, folded);
        if (count == MAP_NONE || count <= MOST_ALIKE || folded == r->name[i]) continue;
        map_put(&process->folded, r->name[i], folded);
        map_put(&process->full_name, i, r->name[i]);
        r->name[i] = folded;
    }
    text_free(&text);
    map_free(&seen);
    map_free(&alike);
}

uint32_t range_full_name(const struct process *process, size_t range)
{
    uint32_t full = map_get(&process->full_name, range);
    return full == MAP_NONE ? process->ranges.name[range] : full;
}

/* ---- the steps of a process ---- */

static int steps_by_start(const void *a, const void *b, void *process)
{
    const struct ranges *r = &((const struct process *)process)->ranges;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return r->start[x] != r->start[y] ? (r->start[x] < r->start[y] ? -1 : 1) : (x > y) - (x < y);
}

void step_list_init(struct step_list *list, const struct process *process)
{
    const struct ranges *r = &process->ranges;
    size_t capacity = 0;
    *list = (struct step_list){.process = process};
    for (size_t i = 0; i < r->table.count; i++) {
        if (r->step[i] == NO_PLACE) continue;
        list->range = mem_grow(list->range, &capacity, list->count + 1, sizeof *list->range);
        list->range[list->count++] = i;
    }
    if (list->count) qsort_r(list->range, list->count, sizeof *list->range, steps_by_start, (void *)process);
}

size_t step_list_at(const struct step_list *list, int64_t time)
{
    if (!list->count) return 0;
    const struct ranges *r = &list->process->ranges;
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (r->start[list->range[middle]] <= time) low = middle + 1;
        else high = middle;
    }
    return low && time < r->end[list->range[low - 1]] ? low - 1 : list->count;
}

void step_list_free(struct step_list *list)
{
    free(list->range);
    *list = (struct step_list){0};
}
