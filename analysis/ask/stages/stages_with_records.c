/* stages_with_records.c - tells of which calls of stages the records were kept. */
#include "ask/stages/stages_with_records.h"

#include <stdlib.h>
#include <string.h>

#include "pattern.h"

/* The comparisons take at most this many steps of 64 characters, about a second, because a hostile trace may have a
 * million names and stages. */
#define MOST_STEPS (UINT64_C(1) << 23)

static bool is_listed(struct selected_stages *selected, const struct name *name)
{
    const char *list = selected->list;
    char entry[4096];
    selected->steps += 1 + selected->length * name->length / 64;
    if (selected->steps > MOST_STEPS) return false;
    while (tfi_next_name(&list, entry, sizeof entry))
        if (tfi_glob(entry, name->text, name->length, false)) return true;
    return false;
}

void selected_stages_init(struct selected_stages *selected, const struct choice *choice, const struct names *names)
{
    const struct ranges *r = &choice->process->ranges;
    *selected = (struct selected_stages){.choice = choice, .list = choice->process->names_asked};
    if (!selected->list) return;
    selected->length = strlen(selected->list);
    uint32_t *of_name = mem_zero(names->count, sizeof *of_name);
    for (size_t i = 0; i < r->table.count; i++) {
        uint32_t *of = &of_name[r->name[i]];
        if (!*of) *of = is_listed(selected, names_get(names, r->name[i])) ? 1 : NO_PLACE;
    }
    selected->paths = chosen_paths(choice->attribution, of_name, 1);
    free(of_name);
}

void selected_stages_free(struct selected_stages *selected)
{
    stage_paths_free(&selected->paths);
}

bool is_selected(const struct selected_stages *selected, size_t range)
{
    int64_t start = selected->choice->process->ranges.start[range];
    return !selected->list || stage_or_around(&selected->paths, (uint32_t)range, start) != NO_PLACE;
}

static bool meets(const struct intervals *set, int64_t start, int64_t end)
{
    size_t next = intervals_after(set, start);
    return next < set->count && set->interval[next].start < end;
}

bool is_recorded_whole(const struct selected_stages *selected, size_t range)
{
    const struct choice *choice = selected->choice;
    const struct ranges *r = &choice->process->ranges;
    return is_selected(selected, range) && !meets(&choice->off, r->start[range], r->end[range]) &&
           !meets(&choice->warmup, r->start[range], r->end[range]);
}
