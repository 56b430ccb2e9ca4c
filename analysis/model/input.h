/* input.h - resolves the words on the command line to inputs, and reads all of them into a model.
 *
 * A run directory stands for its .tfr files, each with its .live file, and for the .live files whose .tfr is missing.
 * A directory without any stands for its Kineto traces and those of dftracer. Inputs are read in parallel. Notes are kept with their input
 * and printed in the order of the inputs once all are read.
 */
#ifndef TFA_INPUT_H
#define TFA_INPUT_H

#include <stdatomic.h>
#include <sys/types.h>

#include "model/model.h"

enum input_kind { INPUT_OURS, INPUT_KINETO, INPUT_DFTRACER, INPUT_FLIGHT, INPUT_MEMORY, INPUT_SNAPSHOT, INPUT_SUMMARY };

struct input {
    char *path;
    enum file_how how;        /* how to open it */
    char *live;               /* NULL: no live file; same as path: a live file alone */
    int64_t rank;             /* given with rank=N:, or -1 */
    struct clock_shift shift; /* moves the times of a trace of ours */
    dev_t device;             /* of the file, to detect duplicates; 0 if it does not exist */
    ino_t inode;
    struct notes notes;
    struct trace trace;
    bool open; /* `trace` is open */
    bool usable;
    bool left_out;    /* has no meaning for the question: it is not read, and that is no loss */
    bool starved;     /* memory ran out while other inputs were read */
    bool open_rank;   /* its rank depends on other inputs */
    bool is_numbered; /* it does no more: it is `number`, -1 if it has none */
    int64_t number;
    enum input_kind kind;       /* except of a trace of ours, `trace` is unused */
    struct kineto_parts *parts; /* of a file that holds several processes: each of them is an input */
    struct summary_file
        *file;              /* of summaries of several processes: each of them is an input, and the first one owns it */
    uint32_t part;          /* of `parts`; that of the first one owns it */
    bool is_again;          /* of another reading: `parts` is borrowed */
    size_t next_part;       /* index of the input of the next process of the file; 0: none */
    struct process process; /* moved into the model */
};

struct inputs {
    struct input *input;
    size_t count, capacity;
    struct map of_file; /* index by a hash of device and inode */
    char **capture;     /* traces of captures in a directory: they are no inputs (model/replays/capture_files.h) */
    size_t captures;
};

/* Adds the inputs that `word` names. A word that names none becomes an unusable input with a note. */
void inputs_add(struct inputs *inputs, const char *word);
bool inputs_are_in(const char *directory); /* it holds files with the names of traces */
/* Adds an input whose path is copied. */
struct input *inputs_append(struct inputs *inputs, const char *path, enum file_how how, int64_t rank);
/* Adds a copy of an input that is not read yet. */
struct input *inputs_add_again(struct inputs *inputs, const struct input *input);

struct reading {
    struct needs needs;
    unsigned jobs; /* threads; 0: one per processor */
    /* Takes a process on the thread that read it; only its description is kept then. NULL: the process is kept. The
     * process may turn out later to be a copy of another one that is left out. */
    void (*take)(void *argument, const struct process *process);
    void *argument;
    const struct captures *captures; /* of other files, with the needs `captures`; NULL: none */
};
void inputs_read(struct inputs *inputs, struct model *model, const struct reading *reading);
void inputs_free(struct inputs *inputs);

#endif
