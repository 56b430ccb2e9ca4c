/* swept.h - the same rows for a process whose operators and blocks stay in its file, without holding them. */
#ifndef TFA_OPS_SWEPT_H
#define TFA_OPS_SWEPT_H

#include "ask/ops/op_rows.h"

void op_rows_sweep(struct op_rows *rows, struct scope *scope);

#endif
