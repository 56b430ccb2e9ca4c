/* budget_file.c - reads a budget. Nothing in the file is ignored: an unknown key may be a misspelt count. */
#include "ask/budget/budget_file.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_in.h"

bool budget_is_glob(const char *stage)
{
    return strpbrk(stage, "*?[") != NULL;
}

static const char *type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a text";
    case JSON_INTEGER: return "a whole number";
    case JSON_REAL: return "a fraction";
    case JSON_NULL: return "null";
    default: return "true or false";
    }
}

static bool is_note(const char *path, const char *where, const char *key, const json_t *value, bool *good)
{
    if (strcmp(key, "note") != 0) return false;
    *good = json_is_string(value);
    if (!*good) complain(path, "%s: the note is %s; write a text, or leave it out", where, type_of(value));
    return true;
}

/* Takes one member of a stage: a count or the note. */
static bool take_count(const struct budget *budget, struct budget_entry *entry, const char *key, const json_t *value)
{
    char *where = string_format("stage %s", entry->stage);
    bool good = false;
    size_t kind = 0;
    while (kind < NR_CALL_KINDS && strcmp(key, call_kind_keys[kind]) != 0) kind++;
    if (is_note(budget->path, where, key, value, &good)) goto out;
    if (kind == NR_CALL_KINDS) {
        const char *meant = nearest(key, call_kind_keys, NR_CALL_KINDS);
        complain(budget->path,
                 "%s: there is no count %s%s%s; the counts are launches, graph_launches, copies, memsets, syncs and "
                 "dispatches",
                 where, key, meant ? ", did you mean " : "", meant ? meant : "");
    } else if (!json_is_integer(value) || json_integer_value(value) < 0) {
        complain(budget->path, "%s: %s is %s; write the largest allowed number of calls, a whole number from 0 on",
                 where, key, json_is_integer(value) ? "negative" : type_of(value));
    } else {
        entry->has[kind] = good = true;
        entry->most[kind] = (uint64_t)json_integer_value(value);
    }
out:
    free(where);
    return good;
}

static bool take_stage(struct budget *budget, const char *stage, json_t *counts)
{
    struct budget_entry *entry = &budget->entry[budget->count++];
    const char *key;
    json_t *value;
    bool any = false;
    entry->stage = string_format("%s", stage);
    if (!json_is_object(counts)) {
        complain(budget->path, "stage %s: its counts are %s; write an object such as {\"launches\": 40}", stage,
                 type_of(counts));
        return false;
    }
    json_object_foreach(counts, key, value) if (!take_count(budget, entry, key, value)) return false;
    for (size_t i = 0; i < NR_CALL_KINDS; i++) any |= entry->has[i];
    if (!any)
        complain(budget->path, "stage %s: has no count, such as {\"launches\": 40}; add one, or remove it", stage);
    return any;
}

static bool take_stages(struct budget *budget, json_t *stages)
{
    size_t count = json_object_size(stages), globs = 0;
    const char *stage;
    json_t *counts;
    if (!count || count > BUDGET_STAGES) {
        complain(budget->path, "has %zu stages; a budget has 1 to %d", count, BUDGET_STAGES);
        return false;
    }
    budget->entry = mem_zero(count, sizeof *budget->entry);
    json_object_foreach(stages, stage, counts)
    {
        globs += budget_is_glob(stage);
        if (!take_stage(budget, stage, counts)) return false;
    }
    if (globs > BUDGET_GLOBS)
        complain(budget->path, "has %zu names with `*`, `?` or `[`; a budget has at most %d", globs, BUDGET_GLOBS);
    return globs <= BUDGET_GLOBS;
}

static bool is_right_version(const struct budget *budget, const json_t *version)
{
    if (json_is_integer(version) && json_integer_value(version) == BUDGET_VERSION) return true;
    if (json_is_integer(version) && json_integer_value(version) > BUDGET_VERSION)
        complain(budget->path, "is a budget of version %lld, and this tfanalyze reads version %d; use a newer one",
                 (long long)json_integer_value(version), BUDGET_VERSION);
    else
        complain(budget->path, "is no budget: it lacks \"version\": %d; `launches --write-budget FILE` makes one",
                 BUDGET_VERSION);
    return false;
}

static bool take_file(struct budget *budget, json_t *file)
{
    json_t *stages = json_object_get(file, "stages"), *value;
    const char *key;
    bool good = false;
    if (!json_is_object(file)) {
        complain(budget->path,
                 "is no budget: it holds %s instead of an object; `launches --write-budget FILE` makes one",
                 type_of(file));
        return false;
    }
    if (!is_right_version(budget, json_object_get(file, "version"))) return false;
    json_object_foreach(file, key, value)
    {
        if (strcmp(key, "version") == 0 || strcmp(key, "stages") == 0) continue;
        if (!is_note(budget->path, "the budget", key, value, &good))
            complain(budget->path, "there is no key %s; a budget has version, stages and note", key);
        if (!good) return false;
    }
    if (!json_is_object(stages)) {
        complain(budget->path, "\"stages\" is %s; write an object with the counts of each stage",
                 stages ? type_of(stages) : "missing");
        return false;
    }
    return take_stages(budget, stages);
}

bool budget_read(struct budget *budget, const char *path)
{
    json_error_t error;
    size_t length = 0;
    *budget = (struct budget){.path = path};
    char *why = NULL, *bytes = file_whole(path, BUDGET_LARGEST, &length, &why);
    if (!bytes) {
        complain(path, "cannot be read as a budget (%s); `launches --write-budget FILE` makes one", why);
        free(why);
        return false;
    }
    json_t *file = json_loadb(bytes, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!file)
        complain(path,
                 "is no budget: line %d, column %d: %s; correct it, or make one with `launches --write-budget FILE`",
                 error.line, error.column, error.text);
    bool good = file && take_file(budget, file);
    json_decref(file);
    free(bytes);
    return good;
}

void budget_free(struct budget *budget)
{
    for (size_t i = 0; i < budget->count; i++) free(budget->entry[i].stage);
    free(budget->entry);
    *budget = (struct budget){0};
}
