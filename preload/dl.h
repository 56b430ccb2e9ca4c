/* dl.h - dlsym: the original, for the library itself. */
#ifndef TFI_DL_H
#define TFI_DL_H

#include <stdbool.h>

/* Everything in this library that looks a symbol up calls this one: dlsym would give it our own wrappers. */
void *tfi_dlsym(void *handle, const char *name);

/* To be called by the constructor: notes what was loaded with the program. */
void tfi_dl_constructor(void);

/* True if that is the path of a library of this name: libcupti.so.13, libcupti-1f2e.so.12. */
bool tfi_dl_is(const char *path, const char *library);

/* True if this library was loaded with the program, before the C library, as LD_PRELOAD does: calls come to its wrappers. */
bool tfi_dl_is_preloaded(void);

#endif
