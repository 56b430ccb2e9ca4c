/* read_kineto.h - reads a PyTorch (Kineto) trace, .json or .json.gz, event by event.
 *
 * A sink gets the events in the order of the file, and each other member of the outermost object. What it is given lies in
 * the reader's buffer and is gone when it returns. Times are whole nanoseconds, never a double.
 */
#ifndef TFA_READ_KINETO_H
#define TFA_READ_KINETO_H

#include <stdatomic.h>

#include "file_in.h"
#include "json.h"
#include "trace.h"

enum kineto_has {
    HAS_TS = 1,
    HAS_DUR = 2,
    HAS_PID = 4, /* a number, or a string that is one */
    HAS_TID = 8,
    HAS_CORRELATION = 16,
    HAS_EXTERNAL = 32,
    HAS_STREAM = 64,
    HAS_DEVICE = 128,
    HAS_ID = 256,
    HAS_FLOAT_TS = 512, /* written with a point or an exponent */
    HAS_FLOAT_DUR = 1024,
};

struct kineto_event {
    struct slice raw;                /* the object as it stands in the file */
    struct slice category, name;     /* without escapes; .at is NULL if it has none */
    struct slice pid_text, tid_text; /* where they are strings ("stream 7") */
    struct slice args;               /* the object, as it stands in the file */
    unsigned has;                    /* enum kineto_has: which of the numbers below there are */
    char phase;                      /* 0: none */
    int64_t ts, dur;                 /* nanoseconds, relative to the file's base */
    int64_t pid, tid;
    int64_t stream, device; /* of its arguments */
    uint64_t correlation, external, id;
};

struct kineto_sink {
    void *context;
    void (*event)(void *context, const struct kineto_event *event);
    /* A member of the outermost object, its value as it stands in the file. May be NULL. */
    void (*member)(void *context, struct slice key, struct slice value);
};

/* What could not be read. */
struct kineto_damage {
    uint64_t events; /* read */
    uint64_t bad;    /* events that make no sense and were left out */
    bool cut;        /* the file ends too early, or makes no sense from there on */
    uint64_t cut_at; /* bytes of JSON that were read up to there */
    bool broken;     /* the file is damaged in another way */
};

/* False: unusable (not a trace, cannot be opened), and a note says why. Damage gives notes too, and the valid part was
 * handed on. `done` counts bytes of the file, for the progress line. */
bool kineto_read(const char *path, enum file_how how, const struct kineto_sink *sink, struct kineto_damage *damage,
                 struct notes *notes, atomic_ullong *done);

/* Bytes in memory, read without a thread and in small pieces. */
struct kineto_bytes {
    const void *at;
    size_t length;
    size_t piece;   /* of what is read and inflated at once */
    size_t largest; /* event that is looked at */
};
bool kineto_read_bytes(const struct kineto_bytes *bytes, const struct kineto_sink *sink, struct kineto_damage *damage,
                       struct notes *notes);

/* What a file is, as far as its first bytes tell. */
enum kineto_look { LOOK_OTHER, LOOK_JSON }; /* gzip is taken for JSON: none of ours begins like it */
enum kineto_look kineto_look(const char *path, enum file_how how);
/* What a file that looks like JSON is, read up to its first event. */
enum kineto_kind { KINETO_NONE, KINETO_TRACE, KINETO_STAGE /* one stage, as `tfanalyze report` writes them */ };
enum kineto_kind kineto_probe(const char *path, enum file_how how);

#endif
