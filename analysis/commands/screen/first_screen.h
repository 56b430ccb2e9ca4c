/* first_screen.h - the first screen as a part of another command. */
#ifndef TFA_FIRST_SCREEN_H
#define TFA_FIRST_SCREEN_H

#include "commands/session.h"

/* Prints the first screen of a session, as the command `screen`. */
void cmd_screen(struct session *session);

#endif
