/* memory_snapshot.c - opens memory snapshots of torch, and checks that no part of them counts twice. */
#include "read/torch/memory_snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "read/torch/snapshot_build.h"

enum { HEAD = 4096, LONGEST_TEXT = 1 << 20 /* bytes */ };

const char *const snapshot_actions[SNAPSHOT_ACTIONS] = {[SNAPSHOT_OTHER] = "other",
                                                        [SNAPSHOT_ALLOC] = "alloc",
                                                        [SNAPSHOT_FREE_REQUESTED] = "free_requested",
                                                        [SNAPSHOT_FREE_COMPLETED] = "free_completed",
                                                        [SNAPSHOT_SEGMENT_ALLOC] = "segment_alloc",
                                                        [SNAPSHOT_SEGMENT_FREE] = "segment_free",
                                                        [SNAPSHOT_SEGMENT_MAP] = "segment_map",
                                                        [SNAPSHOT_SEGMENT_UNMAP] = "segment_unmap",
                                                        [SNAPSHOT_OOM] = "oom",
                                                        [SNAPSHOT_TAKEN] = "snapshot",
                                                        [SNAPSHOT_ANNOTATE] = "annotate"};

struct reading {
    struct snapshot *snapshot;
    struct snapshot_building building;
    struct pickle_builder builder;
    struct pickle_machine machine;
    struct stream stream;
};

void snapshot_free(struct snapshot *s)
{
    free(s->event);
    free(s->block);
    free(s->segment);
    free(s->mark);
    free(s->list);
    free(s->span);
    snapshot_pool_free(&s->texts);
    snapshot_pool_free(&s->frames);
    snapshot_pool_free(&s->stacks);
    *s = (struct snapshot){0};
}

/* ---- what is used twice ---- */

/* Returns the sum of the items of all lists that a list has. */
static uint64_t items_in(const struct snapshot *s, const struct snapshot_list *lists)
{
    struct snapshot_cursor cursor = {0};
    uint64_t items = 0;
    uint32_t at;
    while (snapshot_next(s, lists, &cursor, &at)) items += s->list[at].items;
    return items;
}

static uint64_t blocks_of(const struct snapshot *s, const struct snapshot_list *segments)
{
    struct snapshot_cursor cursor = {0};
    uint64_t blocks = 0;
    uint32_t at;
    while (snapshot_next(s, segments, &cursor, &at)) blocks += s->segment[at].blocks.items;
    return blocks;
}

/* A pickle may use one list any number of times, and would become larger than any memory. */
static bool is_used_once(const struct snapshot *s)
{
    return items_in(s, &s->traces) + s->host_trace.items <= s->events &&
           s->all_segments.items + s->host_segments.items <= s->segments && s->all_marks.items <= s->marks &&
           blocks_of(s, &s->all_segments) + blocks_of(s, &s->host_segments) <= s->blocks;
}

/* ---- reading ---- */

static void drop(void *context)
{
    struct reading *r = context;
    pickle_machine_free(&r->machine);
    snapshot_building_free(&r->building);
    snapshot_free(r->snapshot);
}

/* Tells what is wrong with the value of a whole pickle; NULL: nothing. */
static const char *judge(const struct reading *r, const struct pickle_item *result)
{
    if (!snapshot_is_built(&r->building, result))
        return "is no memory snapshot of torch: its value is no dictionary with the keys segments and device_traces";
    if (!is_used_once(r->snapshot))
        return "is refused: it uses an event, a segment or a block more than once; no snapshot of torch does";
    return NULL;
}

static bool read_pickle(void *context, struct notes *notes)
{
    struct reading *r = context;
    struct stream *s = &r->stream;
    struct pickle_item result = {0};
    char *why = pickle_execute(&r->machine, &result);
    const char *wrong = why ? NULL : judge(r, &result);
    bool has_more = !why && (s->at < s->end || stream_more(s));
    unsigned long long behind = has_more ? stream_offset(s, s->at) : 0;
    if (why) notes_add(notes, UNUSABLE, "%s; dump the snapshot again, or copy the whole file", why);
    else if (wrong) notes_add(notes, UNUSABLE, "%s", wrong);
    else if (has_more)
        notes_add(notes, LOSS, "goes on behind the end of its snapshot; the bytes from %llu on were left out", behind);
    while (has_more && (s->at = s->end, stream_more(s))) {
    } /* the faults of the file are known at its end */
    if (!why && !wrong) stream_judge(s, notes);
    free(why);
    pickle_machine_free(&r->machine);
    snapshot_building_free(&r->building);
    return !notes_have(notes, UNUSABLE);
}

static void begin_reading(struct reading *r, struct snapshot *snapshot)
{
    *snapshot = (struct snapshot){0};
    r->snapshot = snapshot;
    snapshot_building_init(&r->building, snapshot);
    r->builder = snapshot_builder(&r->building);
    r->machine = (struct pickle_machine){
        .stream = &r->stream, .builder = &r->builder, .most_values = UINT64_MAX, .longest_text = LONGEST_TEXT};
}

bool snapshot_read(const char *path, const struct stream_way *way, struct snapshot *snapshot, struct notes *notes,
                   atomic_ullong *done)
{
    struct reading r;
    begin_reading(&r, snapshot);
    bool usable = stream_read(&r.stream, path, &(struct stream_way){.how = way->how, .exact = true}, done,
                              &(struct stream_reading){read_pickle, drop, &r, NULL}, notes);
    snapshot_building_free(&r.building); /* of a file that could not be opened */
    return usable;
}

/* ---- detection ---- */

bool is_snapshot_file(const char *path, enum file_how how)
{
    static const char *const keys[] = {"segments",      "device_traces", "allocator_settings", "external_annotations",
                                       "host_segments", "host_traces"};
    char head[HEAD];
    size_t length = stream_head(path, how, head, sizeof head), key_length;
    const char *key = pickle_first_key(head, length, &key_length);
    for (size_t i = 0; key && i < ARRAY_SIZE(keys); i++)
        if (strlen(keys[i]) == key_length && memcmp(keys[i], key, key_length) == 0) return true;
    return false;
}
