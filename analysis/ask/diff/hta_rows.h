/* hta_rows.h - the rows of HTA 0.5.0's TraceDiff: all events of a PyTorch trace by name, device and step. */
#ifndef TFA_DIFF_HTA_ROWS_H
#define TFA_DIFF_HTA_ROWS_H

#include "ask/diff/taken.h"

/* Reads the file of the process once more, and adds its rows; does nothing for a trace of another kind. */
void hta_rows_take(struct diff_taken *taken, struct names *names, const struct process *process);

#endif
