/* kineto.h - reads a PyTorch (Kineto) trace, .json or .json.gz, event by event.
 *
 * A sink gets the events in file order, and each other member of the outermost object. Its arguments point into the
 * reader's buffer and are valid only during the call. Times are integer nanoseconds, never a double.
 */
#ifndef TFA_READ_KINETO_H
#define TFA_READ_KINETO_H

#include <stdatomic.h>

#include "base/file_in.h"
#include "read/json/json.h"
#include "read/stream/stream.h"
#include "read/trace.h"

enum kineto_has {
    HAS_TS = 1,
    HAS_DUR = 2,
    HAS_PID = 4, /* a number, bare or in a string */
    HAS_TID = 8,
    HAS_CORRELATION = 16,
    HAS_EXTERNAL = 32,
    HAS_STREAM = 64,
    HAS_DEVICE = 128,
    HAS_ID = 256,
    HAS_FLOAT_TS = 512, /* the number has a point or an exponent */
    HAS_FLOAT_DUR = 1024,
    HAS_CLEAN = 2048,      /* strict_json would leave `raw` as it is; known only if the sink asks */
    HAS_COLLECTIVE = 4096, /* an argument names a collective */
    HAS_GRAPH = 8192,
    HAS_NODE = 16384,
};

struct kineto_event {
    struct slice raw;                /* the object as it stands in the file */
    struct slice category, name;     /* unescaped; .at is NULL if absent. A task of an NPU gets a category of ours */
    struct slice task;               /* torch_npu's "Task Type" of its arguments, as it stands in the file */
    struct slice kernel;             /* of a launching call: what it launches, as it stands in the file; ROCm has it */
    struct slice pid_text, tid_text; /* if they are strings ("stream 7") */
    struct slice args;               /* the object, as it stands in the file */
    unsigned has;                    /* enum kineto_has: the numbers below that are present */
    char phase;                      /* 0: none */
    int64_t ts, dur;                 /* nanoseconds, relative to the file's base */
    int64_t pid, tid;
    int64_t stream, device; /* of its arguments */
    uint64_t correlation, external, id;
    uint64_t graph, node; /* of work in a CUDA graph: the executable graph, and the node with its graph above it */
};

struct kineto_sink {
    void *context;
    void (*event)(void *context, const struct kineto_event *event);
    /* Gets a member of the outermost object, its value as it stands in the file. May be NULL. */
    void (*member)(void *context, struct slice key, struct slice value);
    bool ask_clean; /* the threads that scan ahead find out HAS_CLEAN; without it an event may still be clean */
};

/* Result of reading, with the damage found. */
struct kineto_damage {
    uint64_t events;        /* events read */
    uint64_t at;            /* offset in the JSON of the event that the sink gets */
    uint64_t bad;           /* invalid events, which were left out */
    uint64_t bad_at;        /* offset of the first one in the JSON */
    uint64_t impossible;    /* events beyond the limits of times, which were left out */
    uint64_t impossible_at; /* as bad_at */
    bool cut;               /* the file ends too early */
    uint64_t cut_at;        /* bytes of JSON read up to the cut */
    bool broken;            /* the file is damaged in another way */
    bool in_doubt;          /* read it again with way->exact: this reading does not count, and has added no notes */
};

/* Returns false if the file is unusable (not a trace, cannot be opened); a note gives the reason. Damage adds notes
 * too, and the sink gets the valid part. `done` counts bytes of the file, for the progress line. */
bool kineto_read(const char *path, const struct stream_way *way, const struct kineto_sink *sink,
                 struct kineto_damage *damage, struct notes *notes, atomic_ullong *done);

/* A trace in memory, read without a thread and in small pieces. */
struct kineto_bytes {
    const void *at;
    size_t length;
    size_t piece;   /* bytes read and inflated at once */
    size_t largest; /* largest event that is scanned */
};
bool kineto_read_bytes(const struct kineto_bytes *bytes, const struct kineto_sink *sink, struct kineto_damage *damage,
                       struct notes *notes);

/* Guesses the type of a file from its first bytes. */
enum kineto_look { LOOK_OTHER, LOOK_JSON }; /* gzip counts as JSON: no file of ours begins like it */
enum kineto_look kineto_look(const char *path, enum file_how how);
/* Determines the type of a file that looks like JSON; reads up to its first event. */
enum kineto_kind {
    KINETO_NONE,
    KINETO_TRACE,
    KINETO_STAGE,     /* one stage, as written by `tfanalyze report` */
    KINETO_UNREADABLE /* no JSON, or not up to its events: nobody can tell what it was */
};
enum kineto_kind kineto_probe(const char *path, enum file_how how);

#endif
