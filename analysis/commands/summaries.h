/* summaries.h - the summaries of all processes, one for each question that has a reduction. */
#ifndef TFA_SUMMARIES_H
#define TFA_SUMMARIES_H

#include <pthread.h>

#include "ask/reduction.h"

struct summaries {
    const struct options *options;
    struct model *model;
    struct question_summaries {
        const struct command *command;
        const struct reduction *reduction; /* NULL: none, and no summaries */
        void **of_input;
    } * question; /* in the order of the options */
    size_t questions, inputs;
    pthread_mutex_t lock;
    struct selection *alone; /* selections of single processes that no thread uses */
    size_t alones, capacity;
};

/* True if all questions can be answered from summaries that stand alone. */
bool summaries_suffice(const struct options *options);

/* The model may be empty still. */
void summaries_init(struct summaries *summaries, const struct options *options, struct model *model, size_t inputs);
/* Summarises a process that was just read, for all questions; other threads read others. For struct reading. */
void summaries_take(void *summaries, size_t input, const struct process *process);
/* Returns the summaries of the current command by input. */
struct question_summaries *summaries_of_command(const struct summaries *summaries);
/* Summarises all chosen processes of a loaded model for one question, with up to --jobs threads. */
void summaries_take_all(const struct question_summaries *question, const struct selection *chosen);
void summaries_free(struct summaries *summaries);

#endif
