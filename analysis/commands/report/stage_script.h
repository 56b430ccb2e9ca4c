/* stage_script.h - writes profile_{stage}.py, a script that runs one stage alone. */
#ifndef TFA_STAGE_SCRIPT_H
#define TFA_STAGE_SCRIPT_H

#include "commands/report/signature.h"

/* Writes the whole script. */
void stage_script(struct text *to, const struct report *report, const struct stage_signature *signature);

/* True if a script may be overwritten; false if it was edited since it was written. Closes the descriptor. */
bool stage_script_may_go(int fd);

#endif
