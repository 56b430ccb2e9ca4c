/* cuda_sync.h - TFI_SYNC_STAGES: the device is waited for at the edges of stages. */
#ifndef TFI_CUDA_SYNC_H
#define TFI_CUDA_SYNC_H

#include "config.h"
#include "hooks.h"

/* Waits until the current context's work has ended. Between tfi_enter() and tfi_leave(); keeps errno. */
void tfi_cuda_synchronize_now(void);

static inline void tfi_cuda_synchronize(void)
{
    if (__builtin_expect(tfi_config.sync_stages != 0, 0)) tfi_cuda_synchronize_now();
}

/* The program calls this function of the driver or the runtime: a capture may begin or end. */
void tfi_cuda_sync_note(enum tfi_hook hook);

#endif
