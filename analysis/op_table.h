/* op_table.h - rows of operators as the table that torch prints. */
#ifndef TFA_OP_TABLE_H
#define TFA_OP_TABLE_H

#include "op_rows.h"

/* key_averages().table() to the byte, for the first `limit` of the rows in the order they have. Where both stand in it,
 * operations and source location are each below their own head, which torch has the wrong way round. */
void op_table_print(const struct op_rows *rows, size_t limit, struct out *out);

#endif
