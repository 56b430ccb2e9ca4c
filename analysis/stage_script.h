/* stage_script.h - profile_{stage}.py: a script that runs one stage alone. */
#ifndef TFA_STAGE_SCRIPT_H
#define TFA_STAGE_SCRIPT_H

#include "signature.h"

/* The whole script. */
void stage_script(struct text *to, const struct report *report, const struct stage_signature *signature);

/* False for a script which somebody has changed since it was written: it is to stay. Closes the descriptor. */
bool stage_script_may_go(int fd);

#endif
