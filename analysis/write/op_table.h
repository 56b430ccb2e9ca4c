/* op_table.h - prints rows of operators as torch's table. */
#ifndef TFA_OP_TABLE_H
#define TFA_OP_TABLE_H

#include "ask/ops/op_rows.h"
#include "write/out.h"

/* Prints key_averages().table() byte for byte, for the first `limit` rows in their order. With both flops and source
 * locations, torch swaps these two columns but not their heads, and so does this table. */
void op_table_print(const struct op_rows *rows, size_t limit, struct out *out);

#endif
