/* dfanalyzer.h - the summary of calls on files by dftracer-analyzer 0.0.9. */
#ifndef TFA_DFANALYZER_H
#define TFA_DFANALYZER_H

#include "ask/reduction.h"

/* Sums up the calls on files of a process. */
extern const struct reduction dfanalyzer_calls;

#endif
