/* io.h - the end of an answer about calls on files. */
#ifndef TFA_COMMANDS_IO_H
#define TFA_COMMANDS_IO_H

#include "commands/session.h"

/* Ends the answer, with a message if no calls were recorded. */
void io_end(struct session *session, bool has_calls);

#endif
