/* stages_slowest.h - `stages --slowest N`: single calls instead of sums. */
#ifndef TFA_STAGES_SLOWEST_ROWS_H
#define TFA_STAGES_SLOWEST_ROWS_H

struct session;

void stages_slowest(struct session *session);

#endif
