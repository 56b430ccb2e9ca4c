/* dftracer.h - reads a trace of dftracer (.pfw, .pfw.gz), event by event, and tells such files from Kineto traces.
 *
 * Each line is one event. Brackets around the lines, and commas between events, are optional. Numbers may be strings.
 * An event keeps its times in the unit of the file: whole nanoseconds need the unit that the file names (time_metric).
 * A sink gets the events in file order. Its arguments point into the reader's buffer: they are valid during the call.
 */
#ifndef TFA_READ_DFTRACER_H
#define TFA_READ_DFTRACER_H

#include <stdatomic.h>

#include "base/file_in.h"
#include "read/json/json.h"
#include "read/trace.h"

/* Recognises dftracer's file names, .pfw and .pfw.gz. */
bool is_dftracer_name(const char *name);
/* Recognises a dftracer trace by its content: its first event. */
bool is_dftracer_file(const char *path, enum file_how how);

/* Numbers of an event, and of its arguments. Sums have suffixes: `dur_sum` is the sum of `dur` over several calls. */
enum dftracer_number {
    DFT_ID,
    DFT_TYPE, /* layer that produced the event: enum dftracer_type */
    DFT_PID,
    DFT_TID,
    DFT_TS,
    DFT_DUR,
    DFT_RET,
    DFT_COUNT,
    DFT_SIZE,
    DFT_OFFSET,
    DFT_FD,
    DFT_CALLS, /* dft_cnt: the event stands for so many calls */
    DFT_ARG_DUR,
    DFT_DUR_SUM,
    DFT_DUR_MIN,
    DFT_DUR_MAX,
    DFT_RET_SUM,
    DFT_RET_MIN,
    DFT_RET_MAX,
    DFT_COUNT_SUM,
    NR_DFT_NUMBERS
};

/* Texts of an event, and of its arguments. A hash may be a number: its text is then the number as written. */
enum dftracer_text {
    DFT_NAME,
    DFT_CATEGORY,
    DFT_FILE,      /* fname */
    DFT_HOST,      /* hostname */
    DFT_FILE_HASH, /* fhash */
    DFT_HOST_HASH, /* hhash */
    DFT_META_NAME, /* args.name, args.value: of metadata */
    DFT_META_VALUE,
    NR_DFT_TEXTS
};

enum dftracer_type {
    DFT_OF_DFTRACER = 1,
    DFT_OF_C = 2,
    DFT_OF_LIBC = 3,
    DFT_OF_HIP = 4,
    DFT_OF_HDF5 = 5,
    DFT_OF_PYTHON = 6,
    DFT_OF_PSUTIL = 7,
    DFT_OF_FUNCTIONS = 8, /* -finstrument-functions */
    DFT_OF_CPP = 9,
    DFT_OF_MPI = 10,
    DFT_OF_CUDA = 11,
};

/* Units of a file's times, as powers of ten in nanoseconds. */
enum { UNIT_NS = 0, UNIT_US = 3, UNIT_MS = 6, UNIT_SEC = 9 };

struct dftracer_event {
    struct slice raw;  /* the object as it stands in the file */
    struct slice args; /* the same, of its arguments */
    char phase;        /* 'X', 'C', 'A' (several calls) or 'M', for a number too; another letter, or 0: none */
    uint32_t has;      /* bits of enum dftracer_number */
    int64_t number[NR_DFT_NUMBERS];
    struct slice text[NR_DFT_TEXTS]; /* unescaped, without quotes; .at is NULL if absent */
};

static inline bool dftracer_has(const struct dftracer_event *event, enum dftracer_number number)
{
    return (event->has >> number & 1) != 0;
}

struct dftracer_sink {
    void *context;
    void (*event)(void *context, const struct dftracer_event *event);
};

/* Result of reading, with the damage found. */
struct dftracer_damage {
    uint64_t events;   /* events read */
    uint64_t bad;      /* lines that are no events, which were left out */
    uint64_t bad_line; /* number of the first one */
    bool cut;          /* the last line is incomplete */
    bool broken;       /* the file is damaged in another way */
};

/* Returns false if the file is unusable (not a trace, cannot be opened); a note gives the reason. Damage adds notes
 * too, and the sink gets the valid part. `done` counts bytes of the file, for the progress line. */
bool dftracer_read(const char *path, enum file_how how, const struct dftracer_sink *sink,
                   struct dftracer_damage *damage, struct notes *notes, atomic_ullong *done);
/* Reads a trace in memory, in pieces of `piece` bytes. Lines longer than `longest` are left out. */
bool dftracer_read_bytes(const void *bytes, size_t length, size_t piece, size_t longest,
                         const struct dftracer_sink *sink, struct dftracer_damage *damage, struct notes *notes);

/* Converts a time or a duration in units of 10^unit nanoseconds; saturates. */
int64_t dftracer_ns(int64_t number, unsigned unit);
/* Returns the unit that a text of time_metric names, -1 for another text. */
int dftracer_unit(struct slice text);

#endif
