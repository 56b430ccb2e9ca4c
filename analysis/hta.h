/* hta.h - HolisticTraceAnalysis 0.5.0, as PyPI has it: its rules of loading, its definitions, its rounding.
 *
 * Each process is one of its ranks. Where HTA itself gives up (no device work: IndexError; idle and computing time that
 * add up to more than there was: its assertion) the values are unknown. Filters it has no counterpart for are refused.
 */
#ifndef TFA_HTA_H
#define TFA_HTA_H

#include "intervals.h"
#include "session.h"

/* session_load with what these rules need. False: there is nothing to answer, which is said. */
bool hta_load(struct session *session);
/* get_gpu_kernel_breakdown's first table, added to `total` by combination of kinds; returns how many rows it is of. */
uint64_t hta_kinds(const struct session *session, int64_t total[INTERVALS_COMBINATIONS]);
/* Its second table, as rows of `breakdown`. HTA's row "others" is not made: --top N leaves out instead. */
void hta_breakdown(struct session *session);
void hta_timeline(struct session *session); /* get_temporal_breakdown */
void hta_overlap(struct session *session);  /* get_comm_comp_overlap */
/* numpy.round */
double hta_round(double value, int digits);

#endif
