/* hta_answer.h - what the answers with --rules hta share. Filters without a counterpart in HTA are refused. */
#ifndef TFA_HTA_ANSWER_H
#define TFA_HTA_ANSWER_H

#include "commands/session.h"
#include "compat/hta_frame.h"

/* Returns the parts of the model that the HTA rules need. */
struct needs hta_needs(const struct options *options);
/* Loads what the questions need. Returns false, after a message, if an option has no
 * counterpart in HTA or if there is nothing to answer. */
bool hta_load(struct session *session);
/* The same, and begins the answer: its numbers are unknown if work of a rank was left out of the traces. HTA would take what
 * is there for the whole. */
bool hta_begin(struct session *session);

#endif
