/* tracks.c - the tracks of a process: its threads, its devices with their streams, lanes, counters.
 *
 * A rank is a process track; its threads, devices and counters lie under it, and streams under their device. Device
 * rows are processes in a Chrome trace; their labels name the devices here.
 */
#include "write/pftrace/parts.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/escape.h"

enum { FREE_PID = 1 << 22, LABELS_MOST = 64, FEW_STREAMS = 8 };
static const int64_t TEXT_ROW = (int64_t)1 << 62; /* rows whose number is a text */

/* ---- rows ---- */

static int64_t row_number(struct pf *pf, bool known, int64_t number, struct slice text)
{
    if (known) return number;
    return text.at ? TEXT_ROW + names_add(&pf->texts, text.at, text.length) : 0;
}

int64_t pf_pid(struct pf *pf, const struct event *event)
{
    return row_number(pf, event->has & HAS_PID, event->pid, event->pid_text);
}

int64_t pf_tid(struct pf *pf, const struct event *event)
{
    return row_number(pf, event->has & HAS_TID, event->tid, event->tid_text);
}

static uint32_t group_at(struct pf *pf, int64_t pid, bool is_device)
{
    uint64_t key = hash_numbers((uint64_t)pid, is_device);
    uint32_t place = map_get(&pf->group_of, key);
    if (place != MAP_NONE) return place;
    pf->group = mem_grow(pf->group, &pf->group_capacity, pf->groups + 1, sizeof *pf->group);
    pf->group[pf->groups] = (struct pf_group){.pid = pid, .is_device = is_device};
    map_put(&pf->group_of, key, (uint32_t)pf->groups);
    return (uint32_t)pf->groups++;
}

/* Returns the process that devices and counters lie under. */
uint32_t pf_main_group(struct pf *pf)
{
    uint32_t place = map_get(&pf->group_of, hash_numbers((uint64_t)pf->main_pid, false));
    for (size_t i = 0; i < pf->groups && place == MAP_NONE; i++)
        if (!pf->group[i].is_device && pf->group[i].pid < TEXT_ROW) place = (uint32_t)i;
    return place == MAP_NONE ? group_at(pf, pf->main_pid, false) : place;
}

/* Returns the track with this key; a new one is a copy of `like`. */
static uint32_t track_at(struct pf *pf, uint64_t key, struct pf_track like)
{
    uint32_t place = map_get(&pf->track_of, key);
    if (place != MAP_NONE) return place;
    pf->track = mem_grow(pf->track, &pf->track_capacity, pf->tracks + 1, sizeof *pf->track);
    place = (uint32_t)pf->tracks++;
    like.last = NO_PLACE;
    if (!like.lane) like.of = place;
    pf->track[place] = like;
    map_put(&pf->track_of, key, place);
    return place;
}

static uint64_t key_of(enum pf_track_kind kind, uint32_t group, uint64_t number)
{
    return hash_numbers(hash_numbers(kind, group), number);
}

uint32_t pf_row(struct pf *pf, const struct event *event, bool on_device)
{
    enum pf_track_kind kind = on_device ? PF_STREAM : PF_THREAD;
    uint32_t group = group_at(pf, pf_pid(pf, event), on_device);
    int64_t tid = pf_tid(pf, event);
    return track_at(pf, key_of(kind, group, (uint64_t)tid),
                    (struct pf_track){.kind = kind, .group = group, .tid = tid});
}

static uint32_t find_row(const struct pf *pf, int64_t pid, int64_t tid, bool on_device)
{
    uint32_t group = map_get(&pf->group_of, hash_numbers((uint64_t)pid, on_device));
    if (group == MAP_NONE) return NO_PLACE;
    return map_get(&pf->track_of, key_of(on_device ? PF_STREAM : PF_THREAD, group, (uint64_t)tid));
}

uint32_t pf_find_row(const struct pf *pf, int64_t pid, int64_t tid, bool on_device)
{
    uint32_t place = find_row(pf, pid, tid, on_device);
    return place != NO_PLACE ? place : find_row(pf, pid, tid, !on_device);
}

uint32_t pf_async(struct pf *pf, const struct event *event)
{
    uint32_t group = group_at(pf, pf_pid(pf, event), false);
    uint32_t name = (uint32_t)(pf_intern(pf, SPACE_CATEGORY, event->category.at, event->category.length) - 1);
    return track_at(pf, key_of(PF_ASYNC, group, name),
                    (struct pf_track){.kind = PF_ASYNC, .group = group, .name = name});
}

uint32_t pf_counter(struct pf *pf, uint32_t group, const char *name, bool is_bytes)
{
    uint32_t text = names_add(&pf->texts, name, strlen(name));
    return track_at(pf, key_of(PF_COUNTER, group, text),
                    (struct pf_track){.kind = PF_COUNTER, .group = group, .name = text, .is_bytes = is_bytes});
}

uint32_t pf_lane(struct pf *pf, uint32_t track, uint32_t lane, bool crossing)
{
    if (!lane) return track;
    struct pf_track like = {.kind = pf->track[track].kind,
                            .group = pf->track[track].group,
                            .tid = pf->track[track].tid,
                            .name = pf->track[track].name,
                            .of = track,
                            .lane = lane,
                            .crossing = crossing};
    return track_at(pf, hash_numbers(hash_numbers(track, UINT64_MAX - crossing), lane), like);
}

/* Returns how many streams of each group run graphs alone, and marks these. The caller frees both. */
static uint32_t *count_streams(const struct pf *pf, bool *runs_graphs)
{
    uint32_t *count = mem_zero(pf->groups, sizeof *count);
    for (size_t i = 0; i < pf->keys; i++) runs_graphs[pf->key[i].track] |= pf->key[i].kind == KEY_NODE;
    for (size_t i = 0; i < pf->keys; i++)
        if (pf->key[i].kind != KEY_NODE) runs_graphs[pf->key[i].track] = false;
    for (size_t i = 0; i < pf->tracks; i++) count[pf->track[i].group] += runs_graphs[i];
    return count;
}

void pf_join_streams(struct pf *pf)
{
    size_t streams = pf->tracks;
    bool *runs_graphs = mem_zero(streams, sizeof *runs_graphs);
    uint32_t *count = count_streams(pf, runs_graphs);
    for (size_t i = 0; i < streams; i++) {
        uint32_t group = pf->track[i].group;
        if (!runs_graphs[i] || count[group] <= FEW_STREAMS) continue;
        uint32_t name = names_add(&pf->texts, "graphs", strlen("graphs"));
        uint32_t track = track_at(pf, key_of(PF_STREAM, group, UINT64_MAX),
                                  (struct pf_track){.kind = PF_STREAM, .group = group, .tid = INT64_MAX, .name = name});
        pf->track[i].drawn_on = track + 1;
    }
    free(runs_graphs);
    free(count);
}

/* ---- names ---- */

static uint64_t thread_key(int64_t pid, int64_t tid)
{
    return hash_numbers((uint64_t)pid, (uint64_t)tid);
}

static void keep_text(struct pf *pf, unsigned kind, uint64_t key, const struct value *value)
{
    char *text = value_text(value);
    if (text && *text) {
        pf->utf8.length = 0;
        text_utf8(&pf->utf8, text, strlen(text));
        map_put(&pf->names_of[kind], key, names_add(&pf->texts, pf->utf8.data, pf->utf8.length));
    }
    free(text);
}

void pf_describe(struct pf *pf, const struct event *event)
{
    uint64_t pid = (uint64_t)pf_pid(pf, event);
    if (!event->name.at) return;
    if (slice_is(event->name, "process_name")) keep_text(pf, NAME_OF_PROCESS, pid, event_argument(event, "name"));
    if (slice_is(event->name, "process_labels")) keep_text(pf, LABEL_OF_PROCESS, pid, event_argument(event, "labels"));
    if (slice_is(event->name, "thread_name"))
        keep_text(pf, NAME_OF_THREAD, thread_key((int64_t)pid, pf_tid(pf, event)), event_argument(event, "name"));
}

/* Returns the text of a row, or NULL. */
static const char *text_of(const struct pf *pf, unsigned kind, uint64_t key)
{
    uint32_t number = map_get(&pf->names_of[kind], key);
    return number == MAP_NONE ? NULL : names_get(&pf->texts, number)->text;
}

static char *row_text(const struct pf *pf, const char *before, int64_t number)
{
    if (number >= TEXT_ROW) return string_format("%s", names_get(&pf->texts, (uint32_t)(number - TEXT_ROW))->text);
    return string_format("%s%lld", before, (long long)number);
}

static char *name_of_track(const struct pf *pf, const struct pf_track *track)
{
    const char *given = track->kind == PF_ASYNC || track->kind == PF_COUNTER || track->name
                            ? names_get(&pf->texts, track->name)->text
                            : text_of(pf, NAME_OF_THREAD, thread_key(pf->group[track->group].pid, track->tid));
    char *name =
        given ? string_format("%s", given) : row_text(pf, track->kind == PF_STREAM ? "stream " : "thread ", track->tid);
    if (track->lane) {
        char *with = string_format(track->crossing ? "%s, crossing %u" : "%s, lane %u", name,
                                   track->crossing ? track->lane : track->lane + 1);
        free(name);
        name = with;
    }
    return name;
}

/* ---- writing ---- */

static void put_string(struct proto *p, unsigned field, const char *text)
{
    struct text good = {0};
    text_utf8(&good, text, strlen(text));
    proto_bytes(p, field, good.length ? good.data : "", good.length);
    text_free(&good);
}

static void write_track(struct pf *pf, struct proto *track)
{
    struct proto packet = {0};
    proto_bytes(&packet, PACKET_TRACK_DESCRIPTOR, track->data, track->length);
    pf_write_packet(pf, &packet);
    free(packet.data);
    free(track->data);
}

/* Returns the pid, or a free number if it is not one or another process of the file has it. */
static int64_t free_pid(struct pftrace *file, int64_t pid)
{
    if (pid <= 0 || pid > INT32_MAX || map_get(&file->pids, (uint64_t)pid) != MAP_NONE)
        pid = FREE_PID + (int64_t)file->pids.count;
    map_put(&file->pids, (uint64_t)pid, 1);
    return pid;
}

/* Describes the rank: its host, its pid, and the run's metadata. */
static void put_description(struct proto *track, const struct process *p)
{
    struct text text = {0};
    if (p->rank >= 0) text_format(&text, "rank %lld", (long long)p->rank);
    else text_puts(&text, "no rank");
    if (p->world >= 0) text_format(&text, " of %lld", (long long)p->world);
    text_puts(&text, p->host ? " on " : "");
    text_puts(&text, p->host ? p->host : "");
    if (p->pid >= 0) text_format(&text, ", pid %lld", (long long)p->pid);
    for (size_t i = 0; p->metadata && i < p->metadata->count && i < LABELS_MOST; i++) {
        text_puts(&text, "\n");
        text_puts(&text, p->metadata->pair[i].key);
        text_puts(&text, "=");
        text_puts(&text, p->metadata->pair[i].value);
    }
    put_string(track, TRACK_DESCRIPTION, text.data);
    text_free(&text);
}

static void write_process(struct pf *pf, struct pf_group *group, bool is_main)
{
    const struct process *p = pf->process;
    struct proto track = {0};
    const char *given = text_of(pf, NAME_OF_PROCESS, (uint64_t)group->pid);
    const char *label = text_of(pf, LABEL_OF_PROCESS, (uint64_t)group->pid);
    char *plain = given ? string_format("%s", given) : row_text(pf, "process ", group->pid);
    bool has_rank = p->rank < 0 || strncmp(plain, "rank ", 5) == 0;
    char *name = has_rank ? string_format("%s", plain) : string_format("rank %lld: %s", (long long)p->rank, plain);
    group->uuid = ++pf->file->tracks;
    group->shown = free_pid(pf->file, group->pid);
    proto_uint(&track, TRACK_UUID, group->uuid);
    size_t place = proto_open(&track, TRACK_PROCESS);
    proto_uint(&track, PROCESS_PID, (uint64_t)group->shown);
    proto_uint(&track, PROCESS_SORT_INDEX, (uint64_t)MIN(MAX(p->rank, 0), INT32_MAX));
    put_string(&track, PROCESS_NAME, name);
    if (label) put_string(&track, PROCESS_LABELS, label);
    proto_close(&track, place);
    proto_uint(&track, TRACK_CHILD_ORDERING, CHILDREN_IN_GIVEN_ORDER);
    if (is_main) put_description(&track, p);
    write_track(pf, &track);
    free(name);
    free(plain);
}

static void write_device(struct pf *pf, struct pf_group *group, uint64_t parent)
{
    struct proto track = {0};
    const char *label = text_of(pf, LABEL_OF_PROCESS, (uint64_t)group->pid);
    char *name = label ? string_format("%s", label) : row_text(pf, "GPU ", group->pid);
    group->uuid = ++pf->file->tracks;
    proto_uint(&track, TRACK_UUID, group->uuid);
    proto_uint(&track, TRACK_PARENT, parent);
    put_string(&track, TRACK_NAME, name);
    proto_uint(&track, TRACK_CHILD_ORDERING, CHILDREN_IN_GIVEN_ORDER);
    write_track(pf, &track);
    free(name);
}

static void write_row(struct pf *pf, struct pf_track *row, uint32_t rank)
{
    struct proto track = {0};
    const struct pf_group *group = &pf->group[row->group];
    char *name = name_of_track(pf, row);
    row->uuid = ++pf->file->tracks;
    proto_uint(&track, TRACK_UUID, row->uuid);
    proto_uint(&track, TRACK_PARENT, group->uuid);
    proto_uint(&track, TRACK_ORDER_RANK, rank);
    if (row->kind == PF_THREAD && !row->lane && row->tid > 0 && row->tid <= INT32_MAX) {
        size_t place = proto_open(&track, TRACK_THREAD);
        proto_uint(&track, THREAD_PID, (uint64_t)group->shown);
        proto_uint(&track, THREAD_TID, (uint64_t)row->tid);
        put_string(&track, THREAD_NAME, name);
        proto_close(&track, place);
    } else {
        put_string(&track, TRACK_NAME, name);
    }
    if (row->kind == PF_COUNTER) {
        size_t place = proto_open(&track, TRACK_COUNTER);
        proto_uint(&track, COUNTER_UNIT, row->is_bytes ? UNIT_BYTES : UNIT_COUNT);
        proto_close(&track, place);
    }
    write_track(pf, &track);
    free(name);
}

/* Sorts tracks by kind and row, lanes behind their row. */
static int by_place(const void *a, const void *b, void *context)
{
    const struct pf_track *track = ((const struct pf *)context)->track;
    const struct pf_track *x = &track[*(const uint32_t *)a], *y = &track[*(const uint32_t *)b];
    if (x->group != y->group) return by_number(x->group, y->group);
    if (x->kind != y->kind) return by_number(x->kind, y->kind);
    if (x->tid != y->tid) return by_number(x->tid, y->tid);
    if (x->of != y->of) return by_number(x->of, y->of);
    return x->crossing != y->crossing ? by_number(x->crossing, y->crossing) : by_number(x->lane, y->lane);
}

void pf_write_tracks(struct pf *pf)
{
    uint32_t main = pf_main_group(pf), *order = mem_zero(pf->tracks, sizeof *order);
    write_process(pf, &pf->group[main], true);
    for (size_t i = 0; i < pf->groups; i++)
        if (i != main && !pf->group[i].is_device) write_process(pf, &pf->group[i], false);
    for (size_t i = 0; i < pf->groups; i++)
        if (pf->group[i].is_device) write_device(pf, &pf->group[i], pf->group[main].uuid);
    for (size_t i = 0; i < pf->tracks; i++) order[i] = (uint32_t)i;
    if (pf->tracks) qsort_r(order, pf->tracks, sizeof *order, by_place, pf);
    for (size_t i = 0; i < pf->tracks; i++)
        if (!pf->track[order[i]].drawn_on) write_row(pf, &pf->track[order[i]], (uint32_t)i);
    free(order);
}

void pf_tracks_free(struct pf *pf)
{
    for (size_t i = 0; i < pf->tracks; i++) {
        free(pf->track[i].open);
        lanes_free(&pf->track[i].works);
        lanes_free(&pf->track[i].crossings);
    }
    for (size_t i = 0; i < ARRAY_SIZE(pf->names_of); i++) map_free(&pf->names_of[i]);
    map_free(&pf->track_of);
    map_free(&pf->group_of);
    free(pf->track);
    free(pf->group);
}
