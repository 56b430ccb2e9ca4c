/* hta_answer.h - what the answers with --rules hta share. Filters without a counterpart in HTA are refused. */
#ifndef TFA_HTA_ANSWER_H
#define TFA_HTA_ANSWER_H

#include "commands/session.h"
#include "compat/hta_frame.h"

/* Loads the parts of the inputs that the HTA rules need. Returns false, after a message, if an option has no
 * counterpart in HTA or if there is nothing to answer. */
bool hta_load(struct session *session);
/* The same with more parts, WANT_*. */
bool hta_load_more(struct session *session, unsigned more);

#endif
