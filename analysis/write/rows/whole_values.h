/* whole_values.h - the keys of single calls or kernels in a row whose values are those of the whole run. */
#ifndef TFA_WHOLE_VALUES_H
#define TFA_WHOLE_VALUES_H

#include "model/host/whole_run.h"
#include "write/emit.h"

/* Prints median_us, p95_us, min_us and max_us; each is null where `sum` is NULL or does not tell it. */
void emit_whole_values(struct emit *e, const struct whole_sum *sum);

#endif
