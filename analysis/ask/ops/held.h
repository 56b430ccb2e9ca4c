/* held.h - the rows of a process whose events are in the model. */
#ifndef TFA_OPS_HELD_H
#define TFA_OPS_HELD_H

#include "ask/ops/op_rows.h"

void op_rows_hold(struct op_rows *rows, struct scope *scope);

#endif
