/* summaries.h - the summaries of all processes, one for each question that has a reduction. */
#ifndef TFA_SUMMARIES_H
#define TFA_SUMMARIES_H

#include <pthread.h>

#include "ask/reduction.h"

struct summaries {
    const struct options *options;
    struct model *model;
    void **of_input[NR_COMMANDS]; /* by question and input; NULL: none */
    size_t inputs;
    pthread_mutex_t lock;
    struct selection *alone; /* selections of single processes that no thread uses */
    size_t alones, capacity;
};

/* True if all questions can be answered from summaries that stand alone. */
bool summaries_suffice(const struct options *options);
/* Returns the parts of the model that the questions' reductions need. */
unsigned summaries_want(const struct options *options);

/* The model may be empty still. */
void summaries_init(struct summaries *summaries, const struct options *options, struct model *model, size_t inputs);
/* Summarises a process that was just read, for all questions; other threads read others. For struct reading. */
void summaries_take(void *summaries, size_t input, const struct process *process);
/* Summarises all chosen processes of a loaded model for one question, with up to --jobs threads. */
void summaries_take_all(struct summaries *summaries, enum command_id question, const struct selection *chosen);
void summaries_free(struct summaries *summaries);

#endif
