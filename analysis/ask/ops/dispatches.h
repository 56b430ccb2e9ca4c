/* dispatches.h - finds the operators that are calls into operator libraries other than torch. */
#ifndef TFA_DISPATCHES_H
#define TFA_DISPATCHES_H

#include "model/model.h"

/* True for the scope (enum tfi_scope) of a builtin of a module in TFI_NATIVE, and for an operator whose namespace is none
 * of torch's. `native` caches the answer by name: 1 if the namespace is none of torch's. */
bool is_dispatch(const struct model *model, uint32_t name, uint32_t scope, struct map *native);

#endif
