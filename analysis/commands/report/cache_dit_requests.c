/* cache_dit_requests.c - reads the arguments of cache-dit's contexts from a run's metadata `cache_dit.profile.NAME`.
 *
 * Contexts of one name share one file per rank, with all contents that any of them requested. Their directory is a
 * path on the machine that ran them. It counts only there, and only if the user gives no directory here: the program
 * has printed its files' paths.
 * A trace may come from anybody, and its directory is a place to write to. It is trusted only if the reader recorded
 * the trace.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "commands/report/report.h"

static bool has_word(const json_t *list, const char *word)
{
    const json_t *item;
    size_t i;
    json_array_foreach(list, i, item)
    {
        const char *text = json_string_value(item);
        if (text && strcmp(text, word) == 0) return true;
    }
    return false;
}

/* Returns the contents that a context's files leave out. */
static uint32_t left_out(const json_t *said)
{
    static const struct {
        const char *word;
        uint32_t bit;
    } words[] = {{"cpu", WITHOUT_CPU},
                 {"gpu", WITHOUT_GPU},
                 {"mem", WITHOUT_MEMORY},
                 {"stack", WITHOUT_STACKS},
                 {"shapes", WITHOUT_SHAPES}};
    const json_t *holds = json_object_get(said, "holds");
    uint32_t without = 0;
    for (size_t i = 0; i < ARRAY_SIZE(words) && json_is_array(holds); i++)
        without |= has_word(holds, words[i].word) ? 0 : words[i].bit;
    return without;
}

static void keep_directory(struct report_asked *asked, const char *directory, const struct process *p)
{
    if (!p->is_of_reader) {
        asked->distrusted = true;
        return;
    }
    free(asked->directory);
    asked->directory = string_format("%s", directory);
}

static void keep_asked(struct report *report, const uint32_t *one, size_t names, const struct process *p,
                       const char *text)
{
    json_t *said = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const char *name = json_string_value(json_object_get(said, "name"));
    const char *directory = json_string_value(json_object_get(said, "dir"));
    uint32_t number = name ? names_add(&report->session->model.names, name, strlen(name)) : NAME_NONE;
    struct report_asked *asked = number < names && one[number] ? &report->asked[one[number]] : NULL;
    if (asked && asked->is) {
        uint32_t without = left_out(said);
        asked->without = asked->known ? asked->without & without : without;
        asked->known = true;
        asked->ranked = json_is_true(json_object_get(said, "ranked"));
        if (directory && *directory == '/') keep_directory(asked, directory, p);
    }
    json_decref(said);
}

void report_find_asked(struct report *report, const uint32_t *one, size_t names)
{
    static const char key[] = "cache_dit.profile.";
    const struct session *session = report->session;
    report->asked_count = session->model.names.count;
    report->asked = mem_zero(report->asked_count, sizeof *report->asked);
    for (size_t i = 0; i < session->chosen.processes; i++) {
        const struct ranges *r = &session->chosen.process[i]->ranges;
        for (size_t k = 0; k < r->table.count; k++)
            if (r->flags[k] & TFI_RANGE_CACHE_DIT && one[r->name[k]] != NAME_NONE)
                report->asked[one[r->name[k]]].is = true;
    }
    for (size_t i = 0; i < session->chosen.processes; i++) {
        const struct process *p = session->chosen.process[i];
        for (size_t k = 0; !is_of_kineto(p) && k < p->metadata->count; k++) {
            const struct pair *pair = &p->metadata->pair[k];
            if (strncmp(pair->key, key, sizeof key - 1) == 0) keep_asked(report, one, names, p, pair->value);
        }
    }
}

/* Returns a flag per name: true for a reported stage. --stage may leave some out. */
static bool *are_reported(const struct report *report)
{
    bool *reported = mem_zero(report->asked_count, sizeof *reported);
    for (size_t u = 0; u < report->units; u++) {
        for (size_t i = 0; i < report->unit[u].stages; i++)
            if (report->unit[u].stage[i].name < report->asked_count) reported[report->unit[u].stage[i].name] = true;
    }
    return reported;
}

void report_choose_directories(struct report *report, const char *given)
{
    bool *reported = are_reported(report);
    for (size_t i = 0; i < report->asked_count; i++) {
        struct report_asked *asked = &report->asked[i];
        bool wanted = !given && reported[i];
        if (wanted && asked->distrusted && !asked->directory) {
            complain(NULL,
                     "cache-dit's files of %s are written beside the other files: the report uses the trace's own "
                     "directory only if you recorded the trace on this host since its last boot",
                     model_name(&report->session->model, (uint32_t)i));
        }
        if (asked->directory && !(wanted && report_add_place(report, asked->directory, REPORT_ASKED))) {
            free(asked->directory);
            asked->directory = NULL;
        }
    }
    free(reported);
}

void report_free_asked(struct report *report)
{
    for (size_t i = 0; i < report->asked_count; i++) free(report->asked[i].directory);
    free(report->asked);
}
