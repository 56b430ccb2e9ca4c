/* nccl.h - gives look-ups of NCCL's functions our wrappers. */
#ifndef TFI_NCCL_H
#define TFI_NCCL_H

#include "hooks/hooks.h"

/* Returns the wrapper of a row. */
void *tfi_nccl_wrapper(enum tfi_hook hook);

#endif
