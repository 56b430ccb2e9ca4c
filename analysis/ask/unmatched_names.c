/* unmatched_names.c - compares the names the user asked for with the stages of all processes of a run.
 *
 * A rank may have stages that another one lacks, so a name is unmatched only if no process has it. A stage of a
 * function is named after the part behind the colon of its entry, or after the whole entry if two entries share that
 * part.
 *
 * All ranks of a run ask for the same names and have the same stages, so each name is compared with each stage only
 * once. A trace can ask for a million names and have as many stages. The comparisons are therefore counted; beyond
 * the limit, the remaining names are not judged.
 */
#include "ask/unmatched_names.h"

#include <stdlib.h>
#include <string.h>

#include "pattern.h"

enum { NAME_BYTES = 4096, CHARACTERS_OF_STEP = 64 };

#define MOST_STEPS (UINT64_C(1) << 23) /* takes most of a second */

/* Judgments of a wanted name. Any other value is the number of the nearest stage, or NAME_NONE if none is near. */
#define SEEN (UINT32_MAX - 1)
#define NOT_JUDGED (UINT32_MAX - 2)

struct search {
    const char *pattern;
    size_t length;
    bool has_wildcard, has_star;
    unsigned distance;
    uint32_t found; /* SEEN, or the nearest */
};

void unmatched_init(struct unmatched *u, const struct selection *chosen)
{
    *u = (struct unmatched){.chosen = chosen, .steps = MOST_STEPS};
    names_init(&u->asked);
    for (size_t i = 0; i < chosen->processes; i++) {
        const struct stage_names *names = &chosen->process[i]->stage_names;
        for (size_t k = 0; k < names->count; k++) {
            if (map_get(&u->known, names->name[k]) == MAP_NONE) {
                map_put(&u->known, names->name[k], 1);
                u->stage = mem_grow(u->stage, &u->capacity, u->stages + 1, sizeof *u->stage);
                u->stage[u->stages++] = names->name[k];
            }
        }
    }
}

static bool is_stage(const struct unmatched *u, const char *text)
{
    uint32_t name = names_find(&u->chosen->model->names, text, strlen(text));
    return name != UINT32_MAX && map_get(&u->known, name) != MAP_NONE;
}

/* Takes the steps that comparing `characters` needs; returns false if too few are left. */
static bool take_steps(struct unmatched *u, uint64_t characters)
{
    uint64_t steps = 1 + characters / CHARACTERS_OF_STEP;
    u->gave_up |= u->steps < steps;
    u->steps -= u->gave_up ? 0 : steps;
    return !u->gave_up;
}

/* Returns false if too few steps are left. */
static bool compare(struct unmatched *u, struct search *search, uint32_t stage)
{
    const struct name *name = names_get(&u->chosen->model->names, stage);
    if (search->has_wildcard) {
        if (!take_steps(u, (uint64_t)search->length * name->length)) return false;
        if (tfi_glob(search->pattern, name->text, name->length, false)) {
            search->found = SEEN;
            return true;
        }
    }
    size_t difference = search->length > name->length ? search->length - name->length : name->length - search->length;
    bool is_far = search->length > TFI_DISTANCE_LONGEST || name->length > TFI_DISTANCE_LONGEST ||
                  (!search->has_star && difference >= search->distance);
    if (!take_steps(u, is_far ? 0 : search->length * name->length)) return false;
    unsigned distance = is_far ? TFI_FAR : tfi_distance(search->pattern, search->length, name->text, name->length);
    if (distance < search->distance) {
        search->distance = distance;
        search->found = stage;
    }
    return true;
}

/* A name without wildcards that equals a stage's name is found in a map and costs no comparison. */
static uint32_t compare_all(struct unmatched *u, const char *pattern, const char *entry)
{
    struct search search = {.pattern = pattern,
                            .length = strlen(pattern),
                            .has_wildcard = strpbrk(pattern, "*?[") != NULL,
                            .has_star = strchr(pattern, '*') != NULL,
                            .distance = TFI_FAR,
                            .found = NAME_NONE};
    if ((!search.has_wildcard && is_stage(u, pattern)) || (pattern != entry && is_stage(u, entry))) return SEEN;
    for (size_t i = 0; i < u->stages && search.found != SEEN; i++)
        if (!compare(u, &search, u->stage[i])) return NOT_JUDGED;
    return search.found;
}

static uint32_t judge(struct unmatched *u, const char *pattern, const char *entry)
{
    uint32_t number = names_add(&u->asked, entry, strlen(entry));
    uint64_t key = (uint64_t)number << 1 | (pattern != entry); /* a function and a glob may be spelt alike */
    uint32_t judgment = map_get(&u->judgment, key);
    if (judgment == MAP_NONE) {
        judgment = u->gave_up ? NOT_JUDGED : compare_all(u, pattern, entry);
        map_put(&u->judgment, key, judgment);
    }
    return judgment;
}

static void find_names(struct unmatched *u, const char *variable, const char *list, bool functions)
{
    char entry[NAME_BYTES];
    while (list && tfi_next_name(&list, entry, sizeof entry)) {
        const char *colon = functions ? strchr(entry, ':') : NULL;
        const char *pattern = colon ? colon + 1 : entry;
        uint32_t found = colon || !functions ? judge(u, pattern, entry) : SEEN; /* `auto` names no function */
        if (found == SEEN || found == NOT_JUDGED) continue;
        u->name = mem_grow(u->name, &u->name_capacity, u->names + 1, sizeof *u->name);
        u->name[u->names++] = (struct unmatched_name){variable, names_add(&u->asked, entry, strlen(entry)), found};
    }
}

void unmatched_find(struct unmatched *u, const struct process *process)
{
    u->names = 0;
    find_names(u, "ENABLE_PROFILER_NAMES", process->names_asked, false);
    find_names(u, "TFI_STAGES", process->stages_asked, true);
}

void unmatched_free(struct unmatched *u)
{
    map_free(&u->known);
    map_free(&u->judgment);
    names_free(&u->asked);
    free(u->stage);
    free(u->name);
}
