/* work_rows.h - gives overlapping work of a stream rows of their own in Chrome traces.
 *
 * Kernels of one stream overlap under programmatic dependent launch. A viewer draws the boxes of a row inside each other
 * or drops some, so overlapping work moves to rows beside that of its stream. Arguments keep the stream.
 */
#ifndef TFA_WORK_ROWS_H
#define TFA_WORK_ROWS_H

#include "model/model.h"

struct work_rows {
    uint32_t *lane;   /* by work: 0 for the stream's own row */
    struct map rows;  /* numbers of the other rows, by stream and lane */
    uint64_t earlier; /* rows of the processes before, in a file of several */
};

/* `rows` is zeroed or keeps what work_rows_next left. */
void work_rows_init(struct work_rows *rows, const struct process *process);
/* Returns the tid of the work's row, which is the stream for lane 0. *is_new: this row comes for the first time. */
uint64_t work_row(struct work_rows *rows, const struct process *process, size_t work, bool *is_new);
/* Returns the place of a row among those of its device, for `thread_sort_index`. */
int64_t work_row_order(const struct work_rows *rows, const struct process *process, size_t work);
/* Forgets the process; numbers of rows stay unique. */
void work_rows_next(struct work_rows *rows);

#endif
