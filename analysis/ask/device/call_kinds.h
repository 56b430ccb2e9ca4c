/* call_kinds.h - the kinds of calls that start work of a device or wait for it, and the keys of their counts. */
#ifndef TFA_CALL_KINDS_H
#define TFA_CALL_KINDS_H

#include <stdbool.h>

/* A dispatch is a call into an operator library other than torch (ask/ops/dispatches.h). */
enum call_kind { LAUNCH, GRAPH_LAUNCH, COPY, MEMSET, SYNC, DISPATCH, NR_CALL_KINDS, NO_KIND = NR_CALL_KINDS };

extern const char *const call_kind_keys[NR_CALL_KINDS]; /* "launches", ... */

/* The kind by the name of a function, the only information in traces of other profilers. */
enum call_kind call_kind_of(const char *name);
/* True for a function that allocates, maps or frees memory of a device, or pinned memory. */
bool call_allocates(const char *name);

#endif
