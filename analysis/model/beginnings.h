/* beginnings.h - what completes ranges once all beginnings are read, and frees the table of beginnings. */
#ifndef TFA_BEGINNINGS_H
#define TFA_BEGINNINGS_H

#include "model/model.h"

/* Completes the ranges whose end was read before their beginning. */
void begins_meet_early(struct process *process, bool details);
void begins_free(struct begins *begins);

#endif
