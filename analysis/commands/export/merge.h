/* merge.h - writes all chosen processes of a session into one Chrome trace. */
#ifndef TFA_MERGE_H
#define TFA_MERGE_H

#include "commands/session.h"

/* Reads each input again, and writes it. The session needs no more than each_load (each.h). */
void merge_write(struct session *session, const char *artefact);

#endif
