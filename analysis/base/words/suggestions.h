/* suggestions.h - what a mistyped command or option means: the nearest name, or what other tools call it. */
#ifndef TFA_SUGGESTIONS_H
#define TFA_SUGGESTIONS_H

#include "base/util.h"

/* Return what to type instead; NULL: nothing is near. `names` are those that exist. */
const char *command_meant(const char *word, const char *const *names, size_t count);
const char *option_meant(const char *word, const char *const *names, size_t count);

#endif
