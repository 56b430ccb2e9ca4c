/* stragglers_causes.h - prints why ranks hold the others up. */
#ifndef TFA_STRAGGLERS_CAUSES_H
#define TFA_STRAGGLERS_CAUSES_H

#include "ask/causes/causes.h"
#include "write/emit.h"

/* Adds the causes, and what was not judged, to the totals of JSON. */
void emit_causes(struct emit *e, const struct causes *causes, const struct places *places);
/* Writes a line for each, below the totals of text. */
void print_causes(struct out *out, const struct causes *causes, const struct places *places);

#endif
