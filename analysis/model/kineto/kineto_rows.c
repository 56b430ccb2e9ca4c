/* kineto_rows.c - divides the rows of a Kineto trace among the processes that it holds.
 *
 * A process is what a mark says: an entry of our merge's `inputs`, a label of SGLang's or of ours before a row's pid, a
 * rank that TraceLens wrote into the arguments. A row without a mark that has operators or calls is a process of its own.
 * Annotations and Python functions alone are none: torch writes some of them into other rows. Other rows are devices:
 * their works belong to the process that launched them.
 */
#include "model/kineto/kineto_rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "model/kineto/kineto_class.h"

/* ---- collecting ---- */

static inline bool is_of(const struct kineto_rows *rows, size_t row, const struct kineto_event *event)
{
    return rows->parts && row < rows->parts->rows && is_row_of(&rows->parts->row[row], event);
}

/* Finds the row of an event among the two latest. */
static bool find_latest(struct kineto_rows *rows, const struct kineto_event *event)
{
    if (is_of(rows, rows->last, event)) return true;
    size_t before = rows->last;
    rows->last = rows->other;
    rows->other = before;
    return is_of(rows, rows->last, event);
}

/* Reads what the row itself says of its process. */
static void read_marks(struct row_seen *seen, struct kineto_row *row, const struct kineto_event *event)
{
    int64_t raw;
    if (row->text) {
        row->label = rank_label((struct slice){row->text, row->length}, &seen->rank);
        const char *rest = row->text + row->label;
        size_t digits = strspn(rest, "0123456789");
        if (row->label && digits && digits < 19 && !rest[digits]) {
            row->has_number = true;
            row->number = strtoll(rest, NULL, 10);
        }
    } else if ((seen->rank = argument_rank(event)) >= 0) {
        seen->by_argument = true;
        row->has_number = json_int(json_member(event->args, "pid_raw"), &raw);
        row->number = raw;
    }
}

void rows_take(struct kineto_rows *rows, const struct kineto_event *event, enum event_class event_class)
{
    if (!find_latest(rows, event)) {
        if (!rows->parts) rows->parts = mem_zero(1, sizeof *rows->parts);
        size_t before = rows->parts->rows;
        struct kineto_row *row = parts_add_row(rows->parts, event);
        rows->last = (size_t)(row - rows->parts->row);
        if (rows->parts->rows > before) {
            rows->seen = mem_grow(rows->seen, &rows->capacity, rows->parts->rows, sizeof *rows->seen);
            rows->seen[rows->last] = (struct row_seen){.rank = -1};
            read_marks(&rows->seen[rows->last], row, event);
        }
    }
    rows->seen[rows->last].host += event_class == CLASS_OPERATOR || event_class == CLASS_API;
    rows->seen[rows->last].device += ON_DEVICE(event_class);
}

/* ---- our merge ---- */

static struct kineto_part *add_part(struct kineto_parts *parts, int64_t rank)
{
    parts->part = mem_grow(parts->part, &parts->capacity, parts->count + 1, sizeof *parts->part);
    struct kineto_part *part = &parts->part[parts->count++];
    *part = (struct kineto_part){.rank = rank, .pid = -1};
    return part;
}

/* Gives the rows that an entry of `inputs` lists to the last part. */
static void take_pids(struct kineto_parts *parts, struct slice pids)
{
    struct slice key, value;
    while (pids.length && json_next(&pids, &key, &value)) {
        struct kineto_event event = {0};
        char *text = json_text(value);
        if (json_int(value, &event.pid)) event.has |= HAS_PID;
        else if (text) event.pid_text = (struct slice){text, strlen(text)};
        struct kineto_row *row = parts_row(parts, &event);
        if (row) row->part = (uint32_t)parts->count - 1;
        free(text);
    }
}

/* The merge gave a pid that was taken another number: the row with most events of a host has the process's own. */
static void give_pids_back(struct kineto_rows *rows)
{
    struct kineto_parts *parts = rows->parts;
    uint32_t *most = no_places(parts->count);
    for (size_t i = 0; i < parts->rows; i++) {
        uint32_t *at = parts->row[i].part != PART_OPEN ? &most[parts->row[i].part] : NULL;
        if (at && rows->seen[i].host && (*at == NO_PLACE || rows->seen[i].host > rows->seen[*at].host))
            *at = (uint32_t)i;
    }
    for (size_t i = 0; i < parts->count; i++) {
        if (most[i] == NO_PLACE || parts->part[i].pid < 0) continue;
        parts->row[most[i]].has_number = true;
        parts->row[most[i]].number = parts->part[i].pid;
    }
    free(most);
}

/* Makes the parts of our merge's `inputs`. Returns false if the file has none. */
static bool divide_ours(struct kineto_rows *rows, const struct kineto_info *info)
{
    struct kineto_parts *parts = rows->parts;
    struct slice at = {info->merged.data, info->merged.length}, key, value;
    int64_t number;
    if (!info->is_merge || !info->merged.length || *at.at != '[') return false;
    while (json_next(&at, &key, &value)) {
        if (!value.length || *value.at != '{') continue;
        struct kineto_part *part = add_part(parts, -1);
        struct slice members = json_member(value, "metadata"), host = json_member(value, "host");
        if (json_int(json_member(value, "rank"), &number) && number >= 0) part->rank = number;
        if (json_int(json_member(value, "pid"), &number) && number >= 0) part->pid = number;
        if (host.length && *host.at == '"') part->host = json_text(host);
        if (members.length) {
            text_add(&part->members, members.at, members.length);
            size_t length = part->members.length;
            json_padded(&part->members);
            part->members.length = length;
        }
        take_pids(parts, json_member(value, "pids"));
    }
    give_pids_back(rows);
    return parts->count > 0;
}

/* ---- marks of others ---- */

/* A label of a row, without spaces and colons at its end; NULL: none. */
static char *mark_of(const struct kineto_rows *rows, size_t place, const struct kineto_info *info)
{
    const struct kineto_row *row = &rows->parts->row[place];
    struct row_seen *seen = &rows->seen[place];
    int64_t rank = seen->rank;
    if (!row->text && rank < 0) { /* our merge names each row by its rank; its `inputs` may be cut */
        const char *label = info_process_name(info, row->pid);
        if (label && rank_label((struct slice){label, strlen(label)}, &rank)) seen->rank = rank;
    }
    if (rank >= 0) return string_format("rank %lld", (long long)rank);
    if (row->text && row->label) return mem_text(row->text, row->label);
    return NULL;
}

/* Returns the number behind a word of a label such as "[TP00-DP01] "; -1 if the word is not in it. */
static int64_t label_number(const char *label, const char *word)
{
    const char *at = strstr(label, word);
    return at ? strtoll(at + strlen(word), NULL, 10) : -1;
}

struct labelled {
    char *label;
    uint32_t part;
};

/* SGLang numbers the ranks of a replica by pipeline, then by tensor. */
static int by_label(const void *a, const void *b)
{
    static const char *const words[] = {"DP", "PP", "TP", "EP"};
    const struct labelled *x = a, *y = b;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        int order = by_number(label_number(x->label, words[i]), label_number(y->label, words[i]));
        if (order) return order;
    }
    return strcmp(x->label, y->label);
}

/* Numbers the parts whose labels state no rank: by the number of their tensor rank if no two have the same. */
static void rank_labels(struct kineto_parts *parts, struct labelled *labelled, size_t count)
{
    struct map used = {0};
    bool distinct = true;
    for (size_t i = 0; i < count; i++) {
        int64_t number = label_number(labelled[i].label, "TP");
        distinct &= number >= 0 && map_get(&used, (uint64_t)number) == MAP_NONE;
        map_put(&used, (uint64_t)number, 1);
    }
    map_free(&used);
    if (count) qsort(labelled, count, sizeof *labelled, by_label);
    for (size_t i = 0; i < count; i++)
        parts->part[labelled[i].part].rank = distinct ? label_number(labelled[i].label, "TP") : (int64_t)i;
}

/* Gives each part that no mark numbers a rank that no other part has: the first one what the file states, since tools that
 * join files keep the members of the first, and the others their places. */
static void rank_rest(struct kineto_parts *parts, int64_t stated)
{
    struct map used = {0};
    int64_t next = 0;
    for (size_t i = 0; i < parts->count; i++)
        if (parts->part[i].rank >= 0) map_put(&used, (uint64_t)parts->part[i].rank, 1);
    for (size_t i = 0; i < parts->count; i++) {
        struct kineto_part *part = &parts->part[i];
        if (part->rank >= 0) continue;
        if (stated >= 0 && map_get(&used, (uint64_t)stated) == MAP_NONE) {
            part->rank = stated;
            map_put(&used, (uint64_t)stated, 1);
            continue;
        }
        while (map_get(&used, (uint64_t)next) != MAP_NONE) next++;
        part->rank = next++;
        part->is_guessed = true;
    }
    map_free(&used);
}

static void divide_by_marks(struct kineto_rows *rows, const struct kineto_info *info)
{
    struct kineto_parts *parts = rows->parts;
    struct map of_mark = {0};
    struct labelled *labelled = mem_zero(parts->rows, sizeof *labelled);
    size_t labels = 0;
    for (size_t i = 0; i < parts->rows; i++) {
        char *mark = mark_of(rows, i, info);
        struct row_seen *seen = &rows->seen[i];
        uint32_t at = mark ? map_get(&of_mark, hash_text(mark, strlen(mark))) : MAP_NONE;
        bool is_new = at == MAP_NONE && (mark ? seen->host + seen->device > 0 : seen->host > 0);
        if (is_new) {
            at = (uint32_t)parts->count;
            add_part(parts, seen->rank);
            if (mark) map_put(&of_mark, hash_text(mark, strlen(mark)), at);
            if (mark && seen->rank < 0) labelled[labels++] = (struct labelled){mem_text(mark, strlen(mark)), at};
        }
        parts->row[i].part = at;
        parts->has_ranks |= seen->by_argument;
        free(mark);
    }
    for (size_t i = 0; i < parts->rows; i++) { /* rows that came before the first event of their process */
        char *mark = parts->row[i].part == PART_OPEN ? mark_of(rows, i, info) : NULL;
        if (mark) parts->row[i].part = map_get(&of_mark, hash_text(mark, strlen(mark)));
        free(mark);
    }
    rank_labels(parts, labelled, labels);
    for (size_t i = 0; i < labels; i++) free(labelled[i].label);
    free(labelled);
    map_free(&of_mark);
}

struct kineto_parts *rows_divide(struct kineto_rows *rows, const struct kineto_info *info)
{
    struct kineto_parts *parts = rows->parts;
    if (!parts) return NULL;
    if (!divide_ours(rows, info)) divide_by_marks(rows, info);
    if (parts->count < 2) return NULL;
    rank_rest(parts, info->rank - 1);
    rows->parts = NULL;
    return parts;
}

/* ---- launches ---- */

struct launch_search {
    struct kineto_parts *parts;
    struct launched {
        uint64_t correlation;
        int64_t start;
        uint32_t row;
    } * work;
    size_t works, capacity;
};

static void search_event(void *context, const struct kineto_event *event)
{
    struct launch_search *s = context;
    struct kineto_parts *parts = s->parts;
    if (event->phase != 'X' || !(event->has & HAS_CORRELATION) || !(event->has & HAS_TS)) return;
    enum event_class event_class = kineto_class(event->category, event->name);
    const struct kineto_row *row = parts_row(parts, event);
    if (!row) return;
    if (event_class == CLASS_API && row->part != PART_OPEN) {
        parts->launch = mem_grow(parts->launch, &parts->launch_capacity, parts->launches + 1, sizeof *parts->launch);
        parts->launch[parts->launches++] = (struct kineto_launch){event->correlation, event->ts, row->part};
    } else if (ON_DEVICE(event_class) && row->part == PART_OPEN) {
        s->work = mem_grow(s->work, &s->capacity, s->works + 1, sizeof *s->work);
        s->work[s->works++] = (struct launched){event->correlation, event->ts, (uint32_t)(row - parts->row)};
    }
}

static int by_launch(const void *a, const void *b)
{
    const struct kineto_launch *x = a, *y = b;
    if (x->correlation != y->correlation) return x->correlation < y->correlation ? -1 : 1;
    return x->start != y->start ? by_number(x->start, y->start) : by_number(x->part, y->part);
}

/* An open row falls back to the process that launched most of its works. */
static void find_fallbacks(struct launch_search *s)
{
    struct kineto_parts *parts = s->parts;
    struct map counts = {0}; /* by row and part */
    uint32_t *most = mem_zero(parts->rows, sizeof *most);
    for (size_t i = 0; i < s->works; i++) {
        uint32_t part = parts_launcher(parts, s->work[i].correlation, s->work[i].start), row = s->work[i].row;
        if (part == PART_OPEN) continue;
        uint64_t key = (uint64_t)row << 32 | part;
        uint32_t before = map_get(&counts, key), count = before == MAP_NONE ? 1 : before + 1;
        map_put(&counts, key, count);
        if (count <= most[row]) continue;
        most[row] = count;
        parts->row[row].fallback = part;
    }
    free(most);
    map_free(&counts);
}

void rows_find_launches(const struct kineto_rows *rows, struct kineto_parts *parts, const char *path,
                        const struct stream_way *way)
{
    struct launch_search search = {.parts = parts};
    const struct kineto_sink sink = {.context = &search, .event = search_event};
    struct kineto_damage damage;
    struct notes notes = {0};
    atomic_ullong done = 0;
    bool has_open = false;
    for (size_t i = 0; i < parts->rows; i++) has_open |= parts->row[i].part == PART_OPEN && rows->seen[i].device;
    if (!has_open) return;
    kineto_read(path, way, &sink, &damage, &notes, &done); /* the first reading reported the damage */
    notes_free(&notes);
    if (parts->launches) qsort(parts->launch, parts->launches, sizeof *parts->launch, by_launch);
    find_fallbacks(&search);
    free(search.work);
}

void rows_free(struct kineto_rows *rows)
{
    parts_free(rows->parts);
    free(rows->seen);
    *rows = (struct kineto_rows){0};
}
