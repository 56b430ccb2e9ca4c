/* communication.h - tells kernels and operators that communicate by their names (include/collectives.def). */
#ifndef TFA_COMMUNICATION_H
#define TFA_COMMUNICATION_H

#include "model/names.h"

/* True for the name of a kernel that communicates. `tracelens`: by TraceLens's words only. */
bool is_communication(const char *name, size_t length, bool tracelens);
/* The same by our words and by the user's globs, which match the whole name or its short form. */
bool names_communication(const struct names *names, const char *text, size_t length);
/* True if the user's globs match. */
bool user_communication(const struct names *names, const char *text, size_t length);
/* True for an operator whose own kernels communicate. */
bool is_communication_operator(const char *name, size_t length);

#endif
