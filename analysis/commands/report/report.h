/* report.h - the contents of a report: a run's ranks, their stages, and the kernels launched in them.
 *
 * The processes of a rank form one unit. Each trace of another profiler is a separate unit: two files with one rank are
 * two recordings. Stages whose names differ only in the number of a trailing `#N` count as one stage.
 */
#ifndef TFA_REPORT_H
#define TFA_REPORT_H

#include "ask/stages/stage_table.h"
#include "commands/session.h"
#include "write/export/export_tfr.h"

struct report_stage {
    uint32_t name;
    int64_t first; /* INT64_MAX: it was not entered */
    const struct stage_row *sums;
    char *file;       /* path without suffix */
    char *trace_file; /* full path of its trace */
    uint32_t trace;   /* number among the stages that get a trace, or NO_PLACE */
};

struct unit {
    int64_t rank;
    const struct process **process;
    struct scope **scope; /* by process */
    size_t processes;
    bool has_device, has_stages;
    int64_t first, last;
    struct stage_table sums;
    struct report_stage *stage;
    size_t stages;
    const struct stage_row *outside; /* work in no stage; NULL: there is none */
};

/* The request of cache-dit's contexts of one name: the contents of their files, and where to put them. Contexts of the
 * same name share one entry: the files have all contents that any of them asked for, and the last directory that was
 * named. */
struct report_asked {
    bool is;          /* there was such a context */
    bool known;       /* the request is recorded; otherwise the files have all available contents */
    uint32_t without; /* WITHOUT_* of export_tfr.h */
    char *directory;  /* requested directory; NULL: beside the other files */
    bool ranked;      /* the trace's name includes the rank; valid if `known` */
    bool distrusted;  /* a trace that the reader did not record named a directory */
};

/* A directory that the report writes to. */
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
    uint32_t *one; /* by name: the stage it counts as; NAME_NONE: not a stage */
    size_t names;
    struct report_asked *asked; /* by name of a stage */
    size_t asked_count;
    uint32_t *chosen;          /* by name: the stage's number among those that get a trace, or NO_PLACE */
    size_t traces;             /* number of stages that get a trace */
    size_t left_out;           /* number of stages that get none */
    size_t untimed;            /* number of stages that timing.json leaves out */
    struct short_names shorts; /* with --names short */
    struct op_rows operators;  /* of the units without a device */
    char **file;               /* files written */
    size_t files, file_capacity;
    char **kept; /* files of others that have the name of one of the report's */
    size_t kepts, kept_capacity;
};

/* Marks a file as written by a report. */
#define REPORT_WRITER "\"writer\": \"tfanalyze " TFI_VERSION "\""

enum { MOST_TRACES = 50, MOST_KERNELS = 50 };

void report_collect(struct report *report, struct session *session);
void report_free(struct report *report);
/* Returns the window from the unit's first record to its last, cut to --from and --to; `to` is before `from` if
 * empty. */
struct window report_window(const struct unit *unit);

/* ---- cache_dit_requests.c ---- */
/* Reads the requests of cache-dit's contexts. `one`: the stage each of `names` names counts as. */
void report_find_asked(struct report *report, const uint32_t *one, size_t names);
/* Opens the requested directories. Uses none of them if the user has given a directory. */
void report_choose_directories(struct report *report, const char *given);
void report_free_asked(struct report *report);

/* ---- report_files.c ---- */
bool report_write(struct report *report, const char *directory); /* false, after a message, on failure */
/* ---- timing.c ---- */
bool report_write_timing(struct report *report, const char *directory);
/* Writes the members "request_id" and "timestamp". */
void report_put_moment(struct out *out, const struct report *report);
/* Returns the moment of the last reset of TeleFuser's registry in a process; `otherwise` if there was none. */
int64_t report_began(const struct process *process, int64_t otherwise);
/* True if the run has stages of TeleFuser. */
bool report_has_telefuser(const struct report *report);
/* ---- output_dirs.c ---- */
enum report_trust {
    REPORT_TYPED, /* the user named the directory: it may be a link */
    REPORT_ASKED, /* a trace named it: no link on its path is followed */
};
/* Opens a directory, and creates it if missing. Returns false, after a message, on failure. */
bool report_add_place(struct report *report, const char *path, enum report_trust trust);
/* True if the directory opened last contains that input. Returns false, after a message, if it was exchanged
 * meanwhile. */
bool report_is_beside(const struct report *report, const struct input *input);
void report_free_places(struct report *report);
/* Creates a file in one of the directories; the mode is FILE_PRIVATE or FILE_SHARED. */
bool report_open(const struct report *report, struct out *out, const char *path, unsigned mode);
/* Closes a file and lists it as written. Returns false, after a message, if it could not be written. */
bool report_finish(struct report *report, struct out *out, const char *path);
/* True if the path is free or is an earlier report's file. Otherwise the file there stays, and is listed as kept. */
bool report_may_take(struct report *report, const char *path);
bool report_may_take_script(struct report *report, const char *path);
/* Returns a path in a directory that may be taken: the plain one, else with ~2, ~3. The caller frees it. */
char *report_path(struct report *report, const char *directory, const char *name, const char *suffix);
/* ---- report_memory.c ---- */
bool report_write_memory(struct report *report, const char *directory, const struct unit *unit);
/* ---- signatures.c ---- */
bool report_write_signatures(struct report *report, const char *directory);
/* ---- line_parts.c ---- */
void report_put_time(struct out *out, int64_t ns, int width);
/* Writes as much of a name as fits beside `taken` columns of a line. Bytes that would move the cursor become question
 * marks. */
void report_put_name(struct out *out, const char *text, size_t length, size_t taken);
/* Returns the number of rows to show of a list: --top, or `usual`, which fits on one screen. */
size_t report_shown(const struct report *report, size_t usual);
/* ---- text.c ---- */
void report_print(struct report *report, const char *directory);
/* ---- report_host.c ---- */
/* Prints operators, dispatches and memory of a run without a device. */
void report_print_host(struct out *out, struct report *report);
/* Prints the requests that allocators refused, if any. report_refused() returns their number. */
void report_print_refused(struct out *out, const struct report *report);
uint64_t report_refused(const struct report *report);

#endif
