/* timing_file.c - takes durations and calls of the stages in a timing.json.
 *
 * The keys are those that TeleFuser's compare_timing_reports reads: total_stages_ms or total_ms, and of each stage
 * duration_ms. A file of ours has the number of calls too.
 */
#include "ask/diff/timing_file.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_in.h"

enum { HEAD = 4096, LARGEST = 16 << 20 /* bytes: some hundred thousand stages */ };
#define LONGEST_MS 9e12 /* fits into nanoseconds */

static bool holds(const char *bytes, size_t length, const char *word)
{
    return memmem(bytes, length, word, strlen(word)) != NULL;
}

bool is_timing_file(const char *path)
{
    char head[HEAD];
    struct stat status;
    const char *why;
    int fd = file_open(path, FILE_NAMED, &status, &why);
    ssize_t got = fd < 0 ? -1 : file_read(fd, head, sizeof head);
    size_t length = (size_t)MAX(got, 0), at = 0;
    if (fd >= 0) close(fd);
    while (at < length && strchr(" \t\r\n", head[at])) at++;
    return at < length && head[at] == '{' && !holds(head, length, "\"traceEvents\"") &&
           (holds(head, length, "\"total_stages_ms\"") || holds(head, length, "\"total_ms\"") ||
            (holds(head, length, "\"stages\"") && holds(head, length, "\"duration_ms\"")));
}

/* Sets `ns` to a time in milliseconds; 0 if it is absent. Returns false if it is no time. */
static bool take_ms(const json_t *value, int64_t *ns)
{
    double ms = json_number_value(value);
    *ns = 0;
    if (!value) return true;
    if (!json_is_number(value) || !(ms >= 0 && ms < LONGEST_MS)) return false;
    *ns = llround(ms * 1e6);
    return true;
}

static bool take_stages(struct diff *diff, int side, const char *path, json_t *file)
{
    const json_t *total = json_object_get(file, "total_stages_ms");
    json_t *stages = json_object_get(file, "stages"), *stage;
    const char *name;
    total = total ? total : json_object_get(file, "total_ms");
    diff->has_total[side] = total != NULL;
    if (!take_ms(total, &diff->total[side]) || (stages && !json_is_object(stages))) {
        complain(path, "is no timing.json: %s",
                 stages && !json_is_object(stages) ? "`stages` is not an object"
                                                   : "the total is not a time in milliseconds");
        return false;
    }
    json_object_foreach(stages, name, stage)
    {
        int64_t time;
        const json_t *calls = json_object_get(stage, "calls");
        bool known = json_is_integer(calls) && json_integer_value(calls) >= 0;
        if (!json_is_object(stage) || !take_ms(json_object_get(stage, "duration_ms"), &time)) {
            complain(path, "is no timing.json: duration_ms of stage %s is not a time in milliseconds", name);
            return false;
        }
        const struct name text = {.text = (char *)name, .length = (uint32_t)strlen(name)};
        diff_add(diff, side, &text, DIFF_STAGE, known ? (uint64_t)json_integer_value(calls) : CALLS_UNKNOWN, time);
    }
    return true;
}

bool timing_file_add(struct diff *diff, int side, const char *path)
{
    json_error_t error;
    size_t length;
    char *why = NULL, *bytes = file_whole(path, LARGEST, &length, &why);
    if (!bytes) {
        complain(path, "cannot be read as a timing.json (%s)", why);
        free(why);
        return false;
    }
    json_t *file = json_loadb(bytes, length, JSON_REJECT_DUPLICATES, &error);
    if (!file) complain(path, "is no timing.json: line %d, column %d: %s", error.line, error.column, error.text);
    bool good = file && take_stages(diff, side, path, file);
    json_decref(file);
    free(bytes);
    return good;
}
