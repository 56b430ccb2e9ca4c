/* kineto_parts.c - tells the processes of a merged trace apart. */
#include "read/kineto_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* ---- labels ---- */

static size_t number_at(const char *at, size_t length, int64_t *number)
{
    size_t digits = 0;
    *number = 0;
    for (; digits < length && digits < 9 && at[digits] >= '0' && at[digits] <= '9'; digits++)
        *number = 10 * *number + (at[digits] - '0');
    return digits;
}

/* "[TP00-DP01] 83": words of letters and a number, as SGLang joins them. */
static size_t bracket_label(struct slice text)
{
    size_t at = 1;
    if (!text.length || *text.at != '[') return 0;
    while (at < text.length && text.at[at] != ']' && text.at[at] != '[' && (unsigned char)text.at[at] > ' ') at++;
    return at > 1 && at + 1 < text.length && text.at[at] == ']' && text.at[at + 1] == ' ' ? at + 2 : 0;
}

size_t rank_label(struct slice text, int64_t *rank)
{
    int64_t number;
    *rank = -1;
    size_t label = bracket_label(text), at = 4;
    if (label || text.length < 5 || strncasecmp(text.at, "rank", 4) != 0) return label;
    at += text.at[at] == ' ' || text.at[at] == '_' || text.at[at] == '-';
    size_t digits = number_at(text.at + at, text.length - at, &number);
    at += digits;
    if (!digits || (at < text.length && text.at[at] != ':' && text.at[at] != ' ')) return 0;
    *rank = number;
    if (text.length - at > 4 && memcmp(text.at + at, " on ", 4) == 0) /* the host, as our merge writes it */
        for (at += 4; at < text.length && text.at[at] != ':';) at++;
    at += at < text.length && text.at[at] == ':';
    at += at < text.length && text.at[at] == ' ';
    return at;
}

int64_t argument_rank(const struct kineto_event *event)
{
    int64_t rank;
    if (!event->args.at || !json_member(event->args, "pid_raw").at) return -1;
    return json_int(json_member(event->args, "rank"), &rank) && rank >= 0 && rank < INT32_MAX ? rank : -1;
}

/* ---- rows ---- */

static uint64_t key_of(const struct kineto_event *event)
{
    return event->has & HAS_PID ? hash_numbers((uint64_t)event->pid, 1)
                                : hash_text(event->pid_text.at ? event->pid_text.at : "", event->pid_text.length);
}

bool is_row_of_text(const struct kineto_row *row, struct slice pid)
{
    return row->text && row->length == pid.length && memcmp(row->text, pid.length ? pid.at : "", row->length) == 0;
}

static struct kineto_row *find_row(const struct kineto_parts *parts, const struct kineto_event *event, uint64_t *key)
{
    uint32_t at;
    for (*key = key_of(event); (at = map_get(&parts->row_of, *key)) != MAP_NONE; *key += 0x9e3779b97f4a7c15u)
        if (is_row_of(&parts->row[at], event)) return &parts->row[at];
    return NULL;
}

struct kineto_row *parts_row(const struct kineto_parts *parts, const struct kineto_event *event)
{
    uint64_t key;
    return find_row(parts, event, &key);
}

struct kineto_row *parts_add_row(struct kineto_parts *parts, const struct kineto_event *event)
{
    uint64_t key;
    struct kineto_row *row = find_row(parts, event, &key);
    if (row) return row;
    map_put(&parts->row_of, key, (uint32_t)parts->rows);
    parts->row = mem_grow(parts->row, &parts->row_capacity, parts->rows + 1, sizeof *parts->row);
    row = &parts->row[parts->rows++];
    *row = (struct kineto_row){.part = PART_OPEN, .pid = -1};
    if (event->has & HAS_PID) {
        row->pid = event->pid;
    } else {
        row->text = mem_text(event->pid_text.at ? event->pid_text.at : "", event->pid_text.length);
        row->length = event->pid_text.length;
    }
    return row;
}

/* ---- the process of an event ---- */

uint32_t parts_launcher(const struct kineto_parts *parts, uint64_t correlation, int64_t time)
{
    size_t low = 0, high = parts->launches;
    while (low < high) { /* the first one behind (correlation, time) */
        size_t middle = (low + high) / 2;
        const struct kineto_launch *l = &parts->launch[middle];
        if (l->correlation < correlation || (l->correlation == correlation && l->start <= time)) low = middle + 1;
        else high = middle;
    }
    if (low && parts->launch[low - 1].correlation == correlation) return parts->launch[low - 1].part;
    return low < parts->launches && parts->launch[low].correlation == correlation ? parts->launch[low].part : PART_OPEN;
}

static uint32_t open_part(const struct kineto_parts *parts, const struct kineto_row *row,
                          const struct kineto_event *event)
{
    int64_t rank = parts->has_ranks ? argument_rank(event) : -1;
    for (uint32_t i = 0; rank >= 0 && i < parts->count; i++)
        if (parts->part[i].rank == rank) return i;
    uint32_t part = event->has & HAS_CORRELATION ? parts_launcher(parts, event->correlation, event->ts) : PART_OPEN;
    return part != PART_OPEN ? part : row->fallback;
}

uint32_t kineto_part(const struct kineto_parts *parts, struct kineto_event *event)
{
    const struct kineto_row *row = parts_row(parts, event);
    if (!row) return 0;
    uint32_t part = row->part != PART_OPEN ? row->part : open_part(parts, row, event);
    if (row->has_number) {
        event->pid = row->number;
        event->has |= HAS_PID;
    } else if (row->label) {
        event->pid_text.at += row->label;
        event->pid_text.length -= row->label;
    }
    return part;
}

void parts_free(struct kineto_parts *parts)
{
    if (!parts) return;
    for (size_t i = 0; i < parts->rows; i++) free(parts->row[i].text);
    for (size_t i = 0; i < parts->count; i++) {
        free(parts->part[i].host);
        text_free(&parts->part[i].members);
    }
    free(parts->row);
    free(parts->part);
    free(parts->launch);
    map_free(&parts->row_of);
    free(parts);
}
