/* session.h - one run of tfanalyze: its options, its inputs, the processes chosen from them, and where the answer goes.
 *
 * A command loads what it wants, prints, and is done; which exit status that gives is decided here, in one place.
 */
#ifndef TFA_SESSION_H
#define TFA_SESSION_H

#include "emit.h"
#include "input.h"

struct session {
    struct options options;
    struct inputs inputs;
    struct model model;
    const struct process **process; /* those that --rank and --pid choose */
    size_t processes;
    uint32_t *stages; /* by name of a range: 0 if --stage wants it, else NO_PLACE; NULL: it is not given */
    struct out out;
    struct emit emit;
    enum { LOAD_FIRST, LOADED, LOAD_FAILED } loaded;
    size_t answers; /* begun, of several questions */
    size_t found;   /* of them those that did not come out empty */
    int status;
};

/* Reads all inputs, says what is wrong with them and chooses. False: there is nothing to answer, which is said. */
bool session_load(struct session *session, unsigned want, bool keep);
/* Opens the output and begins the answer, with its list of inputs. */
bool session_begin(struct session *session, enum emit_style style);
/* Finishes it. `found` is false if a filter left nothing: then it is said by what, and nothing is written. */
void session_end(struct session *session, bool found);

/* Something of an input turned out to make no sense after all were loaded: the answer covers the rest. */
void session_spoil(struct session *session);

/* After the last question: the end of a list of answers. */
void session_close(struct session *session);
void session_free(struct session *session); /* the status stays */

/* The window of --from and --to, in nanoseconds of the model; all of time if they are not given. */
void session_window(const struct session *session, int64_t *from, int64_t *to);
bool session_wants_stage(const struct session *session, const char *name);
/* The same of the name of a range, NAME_RUN or NAME_OUTSIDE, without comparing texts. */
static inline bool session_wants_range(const struct session *session, uint32_t name)
{
    return !session->stages || session->stages[name] == 0;
}

/* What a command of commands.def is. */
#define COMMAND(name, function, answers, keys) void function(struct session *session);
#include "commands.def"
#undef COMMAND

#endif
