/* session.h - one run of tfanalyze: its options, its inputs, the processes chosen from them, and the output.
 *
 * A command loads the parts it needs and prints. The session alone decides the exit status.
 */
#ifndef TFA_SESSION_H
#define TFA_SESSION_H

#include "ask/selection.h"
#include "write/emit.h"

struct session {
    struct options options;
    struct inputs inputs;
    struct model model;
    struct selection chosen; /* the part of `model` that `options` choose */
    struct out out;
    struct emit emit;
    enum { LOAD_FIRST, LOADED, LOAD_FAILED } loaded;
    size_t answers; /* number of answers begun */
    size_t found;   /* number of answers that are not empty */
    int status;
};

/* Reads all inputs, reports their faults and applies the selection. Returns false, after a message, if there is
 * nothing to answer. */
bool session_load(struct session *session, unsigned want, bool keep);
/* Opens the output and begins the answer, with its list of inputs. */
bool session_begin(struct session *session, enum emit_style style);
/* Ends the answer. `found` is false if the filters left nothing: a message then names the filters, and nothing is
 * written. */
void session_end(struct session *session, bool found);

/* Marks the answer as partial: a command found damage in an input after loading. */
void session_spoil(struct session *session);

/* Ends a list of several answers, after the last command. */
void session_close(struct session *session);
void session_free(struct session *session); /* keeps the status */

/* The functions of the commands in commands.def. */
#define COMMAND(name, function, answers, keys, takes, refuses) void function(struct session *session);
#include "commands.def"
#undef COMMAND

#endif
