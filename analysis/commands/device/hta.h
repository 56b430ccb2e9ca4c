/* hta.h - answers with --rules hta, by the definitions of ask/hta.h. Filters without a counterpart in HTA are
 * refused. */
#ifndef TFA_COMMANDS_HTA_H
#define TFA_COMMANDS_HTA_H

#include "ask/hta.h"
#include "commands/session.h"

/* Loads the parts of the inputs that the HTA rules need. Returns false, after a message, if an option has no
 * counterpart in HTA or if there is nothing to answer. */
bool hta_load(struct session *session);
/* The same with more parts, WANT_*. */
bool hta_load_more(struct session *session, unsigned more);
void answer_hta_timeline(struct session *session);
void answer_hta_overlap(struct session *session);
void answer_hta_launches(struct session *session);
/* Has no row "others" as HTA does: --top N leaves the remaining kernels out instead. */
void answer_hta_breakdown(struct session *session);

#endif
