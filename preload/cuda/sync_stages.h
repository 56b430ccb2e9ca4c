/* sync_stages.h - TFI_SYNC_STAGES=1: waits for the device at the edges of stages. */
#ifndef TFI_SYNC_STAGES_H
#define TFI_SYNC_STAGES_H

#include "hooks/hooks.h"

/* Called in the constructor, once the configuration is known. */
void tfi_sync_constructor(void);

/* Called when the program calls this function of the driver or the runtime: a capture may begin or end. */
void tfi_cuda_sync_note(enum tfi_hook hook);

#endif
