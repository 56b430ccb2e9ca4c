/* bins.h - values over time in a page's timeline: samples of threads, memory in use, clocks of devices. */
#ifndef TFA_BINS_H
#define TFA_BINS_H

#include "model/model.h"
#include "write/out.h"

enum { BINS = 400 };

/* Write the rows of a process, each behind a comma if `more`. Return whether there is a row now. */
bool bins_write(struct out *out, const struct process *process, int64_t from, int64_t to, bool more);

#endif
