/* dl.h - dlsym: the original, for the library itself. */
#ifndef TFI_DL_H
#define TFI_DL_H

/* Everything in this library that looks a symbol up calls this one: dlsym would give it our own wrappers. */
void *tfi_dlsym(void *handle, const char *name);

/* To be called by the constructor: notes what was loaded with the program. */
void tfi_dl_constructor(void);

#endif
