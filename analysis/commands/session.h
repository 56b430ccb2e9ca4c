/* session.h - one run of tfanalyze: its options, its inputs, the processes chosen from them, and the output.
 *
 * A command loads the parts of the model that it needs, and prints. If summaries of the processes suffice, the session
 * has these instead of a model: `chosen` then describes the processes and has none of their events. The session alone
 * decides the exit status.
 */
#ifndef TFA_SESSION_H
#define TFA_SESSION_H

#include <pthread.h>
#include <stdatomic.h>

#include "advise/budget/wall.h"
#include "ask/reduction.h"
#include "model/replays/captures.h"
#include "write/emit.h"

/* The exit status, beside 0. */
enum {
    STATUS_NOTHING = 1, /* no input is usable, or the filters leave nothing */
    STATUS_USAGE = 2,   /* the rows have no such key */
    STATUS_PARTIAL = 3, /* there is an answer, but an input was damaged or lost records */
    STATUS_GATE = 4,    /* a budget or gate was exceeded, or could not be judged */
};

struct session {
    struct options options;
    bool borrows_options; /* another session frees them */
    struct inputs inputs;
    bool found_inputs; /* `inputs` has those of the command line */
    struct model model;
    struct captures captures; /* of the graphs that the inputs replay, in other files */
    struct selection chosen;  /* the part of `model` that `options` choose */
    size_t summary_room;      /* inputs that `taken` has room for */
    void ***taken;            /* summaries, by question and input; NULL: the question has no reduction */
    void **summary;           /* of the last session_summaries */
    pthread_mutex_t lock;     /* of `alone` */
    struct selection *alone;  /* selections of single processes that no thread uses */
    size_t alones, alone_capacity;
    atomic_size_t unreadable; /* summaries from files that could not be unpacked */
    struct walls *walls;      /* of session_walls; NULL: not made yet */
    struct out out;
    struct emit emit;
    enum { LOAD_FIRST, LOADED, LOAD_FAILED } loaded;
    size_t answers; /* number of answers begun */
    size_t found;   /* number of answers that are not empty */
    bool refused;   /* a question does not take an option: nothing is answered */
    bool collects;  /* each answer stays in `out`, an output in memory that the caller has begun */
    int status;
};

/* Finds the inputs without reading them. Returns their number. */
size_t session_inputs(struct session *session);
/* Reads what the questions need of all inputs, reports their faults and applies the selection. Returns false, after a
 * message, if there is nothing to answer. A question with a reduction then needs no more than session_summaries. */
bool session_load(struct session *session);
/* The same, and begins the answer. */
bool session_ask(struct session *session, enum emit_style style);
/* Loads no more than what describes the processes. */
bool session_describe(struct session *session);
/* Returns the summaries of the chosen processes for the current command, whose reduction made them. They are valid until
 * the next call. */
void *const *session_summaries(struct session *session);
/* Returns the walls of the chosen processes, made once for all questions. */
const struct walls *session_walls(struct session *session);
/* Opens the output for the first answer, and separates each of several answers from the one before. */
bool session_begin_text(struct session *session);
/* The same, and begins the answer with its list of inputs. */
bool session_begin(struct session *session, enum emit_style style);
/* Names the inputs of another session in this one's answer, before its first row. */
void session_name_inputs(struct session *session, const struct session *of);
/* Ends the answer. `found` is false if nothing is left: nothing is written then, and a message names the filters, if
 * there are any. A command whose question no filter can empty says itself why there is no answer. */
void session_end(struct session *session, bool found);
/* The same after a message of the command that no filter is to blame. */
void session_end_said(struct session *session, bool found);

/* How to read a process again. */
struct again {
    struct needs needs;
    struct clock_shift shift; /* moves the times of a trace of ours */
    int64_t start;            /* from which --from and --to count */
};
/* Receives the process, the only one of a selection. Returns false if its trace can't be read again. */
typedef bool session_taker(void *argument, const struct selection *chosen, const struct process *process);
/* Reads a process of the selection once more, hands it over and frees it. Returns false if it can't be read again. */
bool session_read_again(struct session *session, const struct process *process, const struct again *again,
                        session_taker *take, void *argument);
/* Marks the answer as partial: a command found damage in an input after loading. */
void session_spoil(struct session *session);
/* Ends with the status of wrong usage; call it after a message. What is not written yet is dropped. */
void session_refuse(struct session *session);

/* Ends a list of several answers, after the last command. */
void session_close(struct session *session);
void session_free(struct session *session); /* keeps the status */

#endif
