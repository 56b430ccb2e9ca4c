/* report.h - what a report says of a run: its ranks, their stages, and the kernels that were launched in them.
 *
 * The processes of a rank are one unit, but each trace of another profiler is a unit of its own: two files with one rank are
 * two recordings. Stages whose names differ in the number of `#N` at their end only are one.
 */
#ifndef TFA_REPORT_H
#define TFA_REPORT_H

#include "attribute.h"
#include "choice.h"
#include "export_tfr.h"
#include "session.h"
#include "short_names.h"

struct report_kernel {
    uint32_t name;
    uint64_t calls;
    uint64_t launched; /* of these the launch is known */
    int64_t device;
    double host; /* ns of the calls that launched them; a call that launched several is divided */
};

/* What the allocator of one device had: at the end of the stage's last call, and the most in all of them. */
struct report_memory {
    bool known;
    int64_t device; /* -1: the host */
    uint64_t allocated, reserved, peak_allocated, peak_reserved;
};

struct report_stage {
    uint32_t name;
    uint64_t calls;
    int64_t first;
    int64_t host;    /* entry to exit; what lies inside the same stage on the same thread counts once */
    int64_t device;  /* the durations of kernels, copies and sets launched in it */
    int64_t kernels; /* of kernels alone */
    uint64_t launches;
    struct report_kernel *kernel;
    size_t kernel_count, kernel_capacity;
    size_t kernels_found; /* how many there are; `kernel` may have the longest MOST_KERNELS alone */
    struct map by_kernel;
    struct report_memory memory; /* of the device that had most; of the host where none is known */
    char *file;                  /* without suffix */
    char *trace_file;            /* of its trace, whole */
    uint32_t trace;              /* its number among those that get a trace, or NO_PLACE */
    int64_t covered;             /* while counting: up to where this thread's time is counted already */
    uint64_t epoch;              /* while counting: the thread that `covered` is of */
    uint64_t seen;               /* while counting: the work it has already */
};

struct unit {
    int64_t rank;
    const struct process **process;
    struct attribution *attribution; /* by process */
    struct choice *choice;           /* by process: what the filters leave */
    size_t processes;
    bool has_device, has_stages;
    int64_t first, last;
    int64_t in_stages; /* time in outermost stages */
    struct report_stage all;
    struct report_stage *stage;
    size_t stages, capacity;
    struct map by_name;
};

/* What contexts of cache-dit of one name were asked for; their files have that and nothing else. */
struct report_asked {
    bool is;          /* there was one */
    bool known;       /* it is said, below; else as much as there is */
    uint32_t without; /* WITHOUT_* of export_tfr.h */
    char *directory;  /* where they were to be; NULL: beside the other files */
    bool ranked;      /* its trace is named with its rank; known where the rest is */
    bool distrusted;  /* a trace that is not the reader's own named a directory */
};

/* A directory that is written to. */
struct report_place {
    char *path;
    int fd;
};

struct report {
    struct session *session;
    struct report_place *place;
    size_t places;
    struct unit *unit;
    size_t units;
    uint32_t *one; /* by name: the stage it counts as, NAME_NONE where it is none */
    size_t names;
    struct report_asked *asked; /* by name of a stage */
    size_t asked_count;
    uint32_t *chosen;          /* by name: the number of the stage among those that get a trace, or NO_PLACE */
    size_t traces;             /* how many get one */
    size_t left_out;           /* how many do not */
    struct short_names shorts; /* with --names short */
    uint64_t epoch;
    char **file; /* that were written */
    size_t files, file_capacity;
};

/* By this a file is known as a report's. */
#define REPORT_WRITER "\"writer\": \"tfanalyze " TFI_VERSION "\""

enum { MOST_TRACES = 50, MOST_KERNELS = 50 };

void report_collect(struct report *report, struct session *session);
void report_free(struct report *report);
/* From the unit's first record to its last, as far as --from and --to leave it; `to` before `from` where nothing is left. */
struct window report_window(const struct unit *unit);
/* By time; kernels that no stage has are in `all`. */
void report_sort_kernels(const struct report *report, struct report_stage *stage);

/* The unit's stage called `name`, a number of `one`; made if it is not there. */
struct report_stage *report_stage_of(struct unit *unit, uint32_t name);

/* ---- report_deep.c ---- */
/* The device work of all stages of a unit's one process; `chosen` and `when` by work, `works` by call: how many it
 * launched. */
void report_add_deep(struct report *report, struct unit *unit, const struct attribution *attribution,
                     const bool *chosen, const struct interval *when, const uint32_t *works);

/* ---- report_asked.c ---- */
/* Of `names` names: the stage each counts as. */
void report_find_asked(struct report *report, const uint32_t *one, size_t names);
/* Opens the directories that were asked for; nobody's are used if the user has given one. */
void report_choose_directories(struct report *report, const char *given);
void report_free_asked(struct report *report);

/* ---- report_files.c ---- */
bool report_write(struct report *report, const char *directory); /* false: it can't be, which is said */
/* Closes a file and lists it as written; false: it is not, which is said. */
bool report_finish(struct report *report, struct out *out, const char *path);
/* ---- report_timing.c ---- */
bool report_write_timing(struct report *report, const char *directory);
/* "request_id" and "timestamp". */
void report_put_moment(struct out *out, const struct report *report);
/* True if stages of TeleFuser's are in it. */
bool report_has_telefuser(const struct report *report);
/* ---- report_place.c ---- */
enum report_trust {
    REPORT_TYPED, /* the user has named it: it may be a link */
    REPORT_ASKED, /* a trace has: no link is followed on the way to it */
};
/* Opens a directory, which is made where it is missing. False: it can't be, which is said. */
bool report_add_place(struct report *report, const char *path, enum report_trust trust);
/* The directory that was opened last holds that input. False: it was exchanged meanwhile, which is said. */
bool report_is_beside(const struct report *report, const struct input *input);
void report_free_places(struct report *report);
/* Creates a file in one of them; the mode is FILE_PRIVATE or FILE_SHARED. */
bool report_open(const struct report *report, struct out *out, const char *path, unsigned mode);
/* Nothing is there, or an earlier report's file. */
bool report_may_take(const struct report *report, const char *path);
bool report_may_take_script(const struct report *report, const char *path);
/* A name in a directory that may be taken: as it is, else with ~2, ~3. To be freed. */
char *report_path(const struct report *report, const char *directory, const char *name, const char *suffix);
/* ---- report_memory.c ---- */
bool report_write_memory(struct report *report, const char *directory, const struct unit *unit);
/* ---- report_signatures.c ---- */
bool report_write_signatures(struct report *report, const char *directory);
/* ---- report_text.c ---- */
void report_print(const struct report *report, const char *directory);
void report_put_time(struct out *out, int64_t ns, int width);
/* Writes as much of a name as fits beside `taken` columns of a line; a byte that would move the cursor is a question mark. */
void report_put_name(struct out *out, const char *text, size_t length, size_t taken);
/* How many rows of a list are shown: --top, or as many as one screen has room for. */
size_t report_shown(const struct report *report, size_t usual);
/* ---- report_host.c ---- */
/* Operators, dispatches and memory of a run without a device. */
void report_print_host(struct out *out, const struct report *report);
/* Prints what the allocators refused, if anything. report_refused() counts how often they did. */
void report_print_refused(struct out *out, const struct report *report);
uint64_t report_refused(const struct report *report);

#endif
