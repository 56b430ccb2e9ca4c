/* merge.h - writes all chosen processes of a session into one Chrome trace. */
#ifndef TFA_MERGE_H
#define TFA_MERGE_H

#include "commands/session.h"

/* Reads what the inputs are, which is all that merge_write needs. */
bool merge_load(struct session *session);
/* Reads each input again, and writes it. */
void merge_write(struct session *session, const char *artefact);

#endif
