/* unmatched.c - compares the names the user asked for with the stages of all processes of a run.
 *
 * A rank may have stages that another one lacks, so a name is unmatched only if no process has it. A stage of a function
 * is named after the part behind the colon of its entry, or after the whole entry where two entries share that part.
 *
 * All ranks of a run ask for the same names and have the same stages, so each name is compared once, with each stage once.
 * A trace can ask for a million names and have as many stages; the comparisons are therefore counted, and where there
 * are too many of them the names that are left are not judged.
 */
#include "unmatched.h"

#include <stdlib.h>
#include <string.h>

#include "pattern.h"

enum { NAME_BYTES = 4096, CHARACTERS_OF_STEP = 64 };

#define MOST_STEPS (UINT64_C(1) << 23) /* most of a second */

/* A wanted name is seen, or not judged; any other value is the number of the nearest stage, NAME_NONE if none is near. */
#define SEEN (UINT32_MAX - 1)
#define NOT_JUDGED (UINT32_MAX - 2)

struct search {
    const char *pattern;
    size_t length;
    bool has_wildcard, has_star;
    unsigned distance;
    uint32_t found; /* SEEN, or the nearest */
};

void unmatched_init(struct unmatched *u, struct session *session)
{
    *u = (struct unmatched){.session = session, .steps = MOST_STEPS};
    names_init(&u->asked);
    for (size_t i = 0; i < session->processes; i++) {
        const struct stage_names *names = &session->process[i]->stage_names;
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
    uint32_t name = names_find(&u->session->model.names, text, strlen(text));
    return name != UINT32_MAX && map_get(&u->known, name) != MAP_NONE;
}

/* Takes the steps that `characters` need; false if there are no more. */
static bool take_steps(struct unmatched *u, uint64_t characters)
{
    uint64_t steps = 1 + characters / CHARACTERS_OF_STEP;
    u->gave_up |= u->steps < steps;
    u->steps -= u->gave_up ? 0 : steps;
    return !u->gave_up;
}

/* False if there are no more steps. */
static bool compare(struct unmatched *u, struct search *search, uint32_t stage)
{
    const struct name *name = names_get(&u->session->model.names, stage);
    if (search->has_wildcard) {
        if (!take_steps(u, (uint64_t)search->length * name->length)) {
            return false;
        }
        if (tfi_glob(search->pattern, name->text, name->length, false)) {
            search->found = SEEN;
            return true;
        }
    }
    size_t difference = search->length > name->length ? search->length - name->length : name->length - search->length;
    bool is_far = search->length > TFI_DISTANCE_LONGEST || name->length > TFI_DISTANCE_LONGEST ||
                  (!search->has_star && difference >= search->distance);
    if (!take_steps(u, is_far ? 0 : search->length * name->length)) {
        return false;
    }
    unsigned distance = is_far ? TFI_FAR : tfi_distance(search->pattern, search->length, name->text, name->length);
    if (distance < search->distance) {
        search->distance = distance;
        search->found = stage;
    }
    return true;
}

/* A name without wildcards is a stage's or not, whatever its distance to others: that it is one costs no comparison. */
static uint32_t compare_all(struct unmatched *u, const char *pattern, const char *entry)
{
    struct search search = {.pattern = pattern,
                            .length = strlen(pattern),
                            .has_wildcard = strpbrk(pattern, "*?[") != NULL,
                            .has_star = strchr(pattern, '*') != NULL,
                            .distance = TFI_FAR,
                            .found = NAME_NONE};
    if ((!search.has_wildcard && is_stage(u, pattern)) || (pattern != entry && is_stage(u, entry))) {
        return SEEN;
    }
    for (size_t i = 0; i < u->stages && search.found != SEEN; i++) {
        if (!compare(u, &search, u->stage[i])) {
            return NOT_JUDGED;
        }
    }
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

static void emit_names(struct unmatched *u, const char *variable, const char *list, bool functions)
{
    struct emit *e = &u->session->emit;
    char entry[NAME_BYTES];
    while (list && tfi_next_name(&list, entry, sizeof entry)) {
        const char *colon = functions ? strchr(entry, ':') : NULL;
        const char *pattern = colon ? colon + 1 : entry;
        uint32_t found = colon || !functions ? judge(u, pattern, entry) : SEEN; /* `auto` names no function */
        if (found == SEEN || found == NOT_JUDGED) {
            continue;
        }
        emit_open(e, NULL, false);
        emit_text(e, "variable", variable);
        emit_text(e, "name", entry);
        if (found == NAME_NONE) {
            emit_null(e, "nearest");
        } else {
            const struct name *nearest = names_get(&u->session->model.names, found);
            emit_bytes_text(e, "nearest", nearest->text, nearest->length);
        }
        emit_close(e);
    }
}

void emit_unmatched(struct unmatched *u, const struct process *process)
{
    emit_open(&u->session->emit, "unmatched_names", true);
    emit_names(u, "ENABLE_PROFILER_NAMES", process->names_asked, false);
    emit_names(u, "TFI_STAGES", process->stages_asked, true);
    emit_close(&u->session->emit);
}

void unmatched_end(struct unmatched *u)
{
    if (u->gave_up) {
        complain(NULL,
                 "not all names of ENABLE_PROFILER_NAMES and TFI_STAGES were compared with the %zu stages: they "
                 "are too many",
                 u->stages);
        session_spoil(u->session);
    }
    map_free(&u->known);
    map_free(&u->judgment);
    names_free(&u->asked);
    free(u->stage);
}
