/* parts.h - common state of the files of the writer of Perfetto traces.
 *
 * One process of the input is written at a time, as one packet sequence with interned names of its own. Its events are
 * collected first: 32 bytes an event (struct pf_key) stay in memory, the encoded arguments go to a temporary file.
 * Then all events are written in the order of their times.
 */
#ifndef TFA_PF_H
#define TFA_PF_H

#include "base/sets/lanes.h"
#include "base/scratch.h"
#include "model/names.h"
#include "write/pftrace/pftrace.h"
#include "write/pftrace/proto.h"

/* Field numbers of Perfetto's messages (perfetto_trace.proto). */
enum {
    TRACE_PACKET = 1,
    PACKET_CLOCK_SNAPSHOT = 6,
    PACKET_TIMESTAMP = 8,
    PACKET_SEQUENCE_ID = 10,
    PACKET_TRACK_EVENT = 11,
    PACKET_INTERNED_DATA = 12,
    PACKET_SEQUENCE_FLAGS = 13,
    PACKET_TIMESTAMP_CLOCK_ID = 58,
    PACKET_DEFAULTS = 59,
    PACKET_TRACK_DESCRIPTOR = 60,
    PACKET_FIRST_ON_SEQUENCE = 87,
    SNAPSHOT_CLOCKS = 1,
    SNAPSHOT_PRIMARY = 2,
    CLOCK_ID = 1,
    CLOCK_TIMESTAMP = 2,
    CLOCK_IS_INCREMENTAL = 3,
    EVENT_CATEGORY_IIDS = 3,
    EVENT_ANNOTATIONS = 4,
    EVENT_TYPE = 9,
    EVENT_NAME_IID = 10,
    EVENT_TRACK = 11,
    EVENT_COUNTER_VALUE = 30,
    EVENT_DOUBLE_COUNTER_VALUE = 44,
    EVENT_FLOW_IDS = 47,
    EVENT_TERMINATING_FLOW_IDS = 48,
    INTERNED_CATEGORIES = 1,
    INTERNED_NAMES = 2,
    INTERNED_ANNOTATION_NAMES = 3,
    INTERNED_STRINGS = 29,
    INTERNED_IID = 1,
    INTERNED_TEXT = 2,
    ANNOTATION_NAME_IID = 1,
    ANNOTATION_BOOL = 2,
    ANNOTATION_UINT = 3,
    ANNOTATION_INT = 4,
    ANNOTATION_DOUBLE = 5,
    ANNOTATION_STRING = 6,
    ANNOTATION_DICT_ENTRIES = 11,
    ANNOTATION_ARRAY_VALUES = 12,
    ANNOTATION_STRING_IID = 17,
    TRACK_UUID = 1,
    TRACK_NAME = 2,
    TRACK_PROCESS = 3,
    TRACK_THREAD = 4,
    TRACK_PARENT = 5,
    TRACK_COUNTER = 8,
    TRACK_CHILD_ORDERING = 11,
    TRACK_ORDER_RANK = 12,
    TRACK_DESCRIPTION = 14,
    PROCESS_PID = 1,
    PROCESS_SORT_INDEX = 3,
    PROCESS_NAME = 6,
    PROCESS_LABELS = 8,
    THREAD_PID = 1,
    THREAD_TID = 2,
    THREAD_NAME = 5,
    COUNTER_UNIT = 3,
};
enum { SEQUENCE_CLEARED = 1, SEQUENCE_NEEDS_STATE = 2 };
enum { TYPE_BEGIN = 1, TYPE_END = 2, TYPE_INSTANT = 3, TYPE_COUNTER = 4 };
enum { UNIT_COUNT = 2, UNIT_BYTES = 3 };
enum { CHILDREN_IN_GIVEN_ORDER = 3 };

/* Tables of interned texts; a text has the same number in each. */
enum pf_space { SPACE_CATEGORY = 1, SPACE_NAME = 2, SPACE_KEY = 4, SPACE_STRING = 8 };

enum pf_track_kind { PF_THREAD, PF_STREAM, PF_ASYNC, PF_COUNTER };

struct pf_track {
    enum pf_track_kind kind;
    uint32_t group;
    int64_t tid;       /* of a thread or stream */
    uint32_t name;     /* text; NAME_NONE: by its kind and tid */
    uint32_t drawn_on; /* of a stream of graphs alone: the track that has its work + 1; 0: itself */
    uint32_t of, lane; /* a lane: its first track and its number from 1; else `of` is the track itself */
    bool crossing;     /* a lane of events that cross others, not of overlapping work */
    bool is_bytes;     /* a counter of bytes */
    uint64_t uuid;
    uint32_t *open; /* the events open at this moment, the outer ones first: indices of keys */
    size_t depth, capacity;
    uint32_t last; /* the event that began last */
    struct lanes works, crossings;
    uint32_t queue;    /* of a stream: the counter of its launch queue + 1 */
    int64_t depth_now; /* of a launch queue: its depth at this moment */
    size_t sample;     /* of a launch queue: its last sample + 1 */
};

/* A process, or a device with its streams. */
struct pf_group {
    int64_t pid;
    bool is_device;
    uint64_t uuid;
    int64_t shown; /* the pid in the file, unique in it */
};

/* FLAT: never drawn inside another one: work, coroutines. NODE: such work of a CUDA graph. */
enum pf_key_kind { KEY_SLICE, KEY_FLAT, KEY_INSTANT, KEY_NODE };
#define IS_FLAT(kind) ((kind) == KEY_FLAT || (kind) == KEY_NODE)

struct pf_key {
    int64_t start, end;
    uint64_t offset : 62, kind : 2; /* offset of the encoded event in `scratch`: 4 bytes of length, then the event */
    uint32_t track;
    uint32_t link; /* its first flow + 1 */
};

struct pf_arrow {
    int64_t time;
    int64_t pid, tid;
    uint32_t id; /* number of its category and id, in the order of appearance */
    uint32_t track;
    uint32_t key; /* its event; NO_PLACE until pf_place if the event did not come just before it */
    bool is_end;
};

struct pf_flow {
    uint64_t number;
    uint32_t next; /* flow of the same event + 1 */
    bool is_end;
};

/* A value of a counter. */
struct pf_sample {
    int64_t time;
    uint64_t order; /* of samples at the same time */
    int64_t value;
    double real;
    uint32_t track;
    bool is_real;
    bool is_change; /* `value` is added to the counter */
};

struct pf {
    struct pftrace *file;
    const struct process *process;
    bool knows_queues; /* no launch was left out of the trace: else there are no counters of launch queues */
    int64_t main_pid;
    struct names texts;
    uint32_t recent[1024]; /* numbers of texts, by a hash of parts of the text */
    uint8_t *spaces;       /* by text: the tables it is in */
    size_t spaces_capacity;
    size_t interned; /* bytes of texts of SPACE_STRING */
    struct scratch scratch;
    struct proto event;      /* the event that is encoded */
    struct text plain, utf8; /* an unescaped text, and its valid form */
    struct pf_key *key;
    uint32_t *order; /* of the keys, by time */
    size_t keys, key_capacity;
    struct pf_arrow *arrow;
    size_t arrows, arrow_capacity;
    struct pf_flow *flow;
    size_t flows, flow_capacity;
    struct pf_sample *sample;
    size_t samples, sample_capacity;
    struct pf_track *track;
    size_t tracks, track_capacity;
    struct map track_of; /* by hash of what a track is for */
    struct pf_group *group;
    size_t groups, group_capacity;
    struct map group_of;
    struct map names_of[3]; /* texts by row: NAME_OF_PROCESS and so on */
    struct map totals;      /* counters of allocators' totals, by hash of device and total */
    struct map arrow_ids;   /* numbers of arrows, by hash of category and id */
    struct map pairs;       /* keys of asynchronous events without an end, by hash of category, id and process */
};
enum { NAME_OF_PROCESS, LABEL_OF_PROCESS, NAME_OF_THREAD };

/* ---- args.c ---- */
/* Returns the text's number + 1 in a table of interned texts. */
uint64_t pf_intern(struct pf *pf, enum pf_space space, const char *text, size_t length);
/* Encodes the event's arguments. */
void pf_put_args(struct pf *pf, const struct event *event);
/* Writes all interned texts, in packets of bounded size. */
void pf_write_texts(struct pf *pf);

/* ---- tracks.c ---- */
uint32_t pf_row(struct pf *pf, const struct event *event, bool on_device); /* the event's thread or stream */
/* Returns the thread or stream with these numbers, the stream if `on_device` and both exist; NO_PLACE if none does. */
uint32_t pf_find_row(const struct pf *pf, int64_t pid, int64_t tid, bool on_device);
uint32_t pf_async(struct pf *pf, const struct event *event);
uint32_t pf_counter(struct pf *pf, uint32_t group, const char *name, bool is_bytes);
uint32_t pf_lane(struct pf *pf, uint32_t track, uint32_t lane, bool crossing);
/* Draws the work of the streams that run graphs alone on a track of the device, where there are many of them. */
void pf_join_streams(struct pf *pf);
uint32_t pf_main_group(struct pf *pf);
int64_t pf_pid(struct pf *pf, const struct event *event);
int64_t pf_tid(struct pf *pf, const struct event *event);
/* Takes an event that describes a row (phase M). */
void pf_describe(struct pf *pf, const struct event *event);
void pf_write_tracks(struct pf *pf);
void pf_tracks_free(struct pf *pf);

/* ---- pf_rows.c ---- */
/* Gives each event its lane, and each arrow its event. */
void pf_place(struct pf *pf);

/* ---- arrows.c ---- */
void pf_take_arrow(struct pf *pf, const struct event *event);
/* Joins beginnings and ends of arrows to flows, and computes the depth of the launch queues. */
void pf_link(struct pf *pf);
/* Takes the totals of an allocator from a [memory] event. */
void pf_take_memory(struct pf *pf, const struct event *event);
/* Takes the values of a counter event (phase C). */
void pf_take_counter(struct pf *pf, const struct event *event);
void pf_sort_samples(struct pf *pf);

/* ---- packet.c ---- */
void pf_write_packet(struct pf *pf, struct proto *packet);

#endif
