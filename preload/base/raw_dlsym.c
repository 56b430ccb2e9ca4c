/* raw_dlsym.c - finds the original dlsym behind our own, and looks symbols up by it. */
#include "base/raw_dlsym.h"

#include <dlfcn.h>

tfi_dlsym_function *tfi_dlsym_real;

/* Looks for the old version first, because every glibc has it. A failed look-up would allocate, and another preloaded
 * library that is looking up malloc itself could not handle that. */
TFI_COLD tfi_dlsym_function *tfi_dlsym_find(void)
{
    void *found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (!found) found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    __atomic_store_n(&tfi_dlsym_real, (tfi_dlsym_function *)found, __ATOMIC_RELAXED);
    return (tfi_dlsym_function *)found;
}

void *tfi_dlsym(void *handle, const char *name)
{
    return tfi_dlsym_original()(handle, name);
}
