/* dispatches.h - which operators are calls into libraries of operators that are not torch's own. */
#ifndef TFA_DISPATCHES_H
#define TFA_DISPATCHES_H

#include "model.h"

/* A builtin of a module in TFI_NATIVE, or an operator whose namespace is none of torch's. `native` remembers the names: 1
 * by the name of one. */
bool is_dispatch(const struct model *model, const struct spans *spans, size_t span, struct map *native);

#endif
