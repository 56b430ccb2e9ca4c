/* session_notes.h - says what is known of the inputs of a session, and sets its status by it. */
#ifndef TFA_SESSION_NOTES_H
#define TFA_SESSION_NOTES_H

#include "commands/session.h"

/* Says the notes of the chosen processes. */
void session_say_notes(struct session *session);
/* Says those of the inputs that give no process. A process that was killed before it recorded anything has no result
 * either, but nothing of it is missing. */
void session_say_unusable(struct session *session);
/* Returns the number of inputs that could not be read. */
size_t session_unread(const struct session *session);

#endif
