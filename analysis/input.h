/* input.h - what the words on the command line stand for, and reading all of it into a model.
 *
 * A run directory is its .tfr files, each with the .live beside it, and those .live files whose .tfr is missing; one
 * without any is its Kineto traces. Inputs are read in parallel; what there is to say about one is kept with it and said
 * in their order when all are read.
 */
#ifndef TFA_INPUT_H
#define TFA_INPUT_H

#include <stdatomic.h>
#include <sys/types.h>

#include "model.h"

struct input {
    char *path;
    enum file_how how; /* it is opened */
    char *live;        /* NULL: none beside it; the same as path: a live file alone */
    int64_t rank;      /* as given by rank=N:, or -1 */
    dev_t device;      /* of the file, to see that it is named twice; 0 if it is not there */
    ino_t inode;
    struct notes notes;
    struct trace trace;
    bool open; /* trace is */
    bool usable;
    bool starved;           /* there was no memory for it beside the others */
    bool is_kineto;         /* there is no struct trace of it */
    struct process process; /* moves into the model */
};

struct inputs {
    struct input *input;
    size_t count, capacity;
};

/* Adds what `word` stands for; what cannot be is an input that is unusable, with a note. */
void inputs_add(struct inputs *inputs, const char *word);
/* Reads them with up to `jobs` threads (0: one a processor). With `keep` the traces stay open. */
void inputs_read(struct inputs *inputs, struct model *model, unsigned want, unsigned jobs, bool keep);
void inputs_free(struct inputs *inputs);

#endif
