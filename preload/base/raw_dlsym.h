/* raw_dlsym.h - gives the library itself the original dlsym. */
#ifndef TFI_RAW_DLSYM_H
#define TFI_RAW_DLSYM_H

#include "base/tfi.h"

typedef void *tfi_dlsym_function(void *handle, const char *name);

/* Looks a symbol up. Code of this library must call this one: dlsym would return our own wrappers. */
void *tfi_dlsym(void *handle, const char *name);

/* The original dlsym, NULL until tfi_dlsym_find() was called. hooks/dl.c jumps to it. */
extern tfi_dlsym_function *tfi_dlsym_real;
tfi_dlsym_function *tfi_dlsym_find(void);

static inline tfi_dlsym_function *tfi_dlsym_original(void)
{
    tfi_dlsym_function *known = __atomic_load_n(&tfi_dlsym_real, __ATOMIC_RELAXED);
    return TFI_LIKELY(known != NULL) ? known : tfi_dlsym_find();
}

#endif
