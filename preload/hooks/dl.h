/* dl.h - wraps dlsym for the program. */
#ifndef TFI_DL_H
#define TFI_DL_H

#include <stdbool.h>

/* Notes which objects were loaded with the program. Called in the constructor. */
void tfi_dl_constructor(void);

/* True if this library was loaded with the program, before the C library, as by LD_PRELOAD: its wrappers then get the
 * calls. */
bool tfi_dl_is_preloaded(void);

/* Called at each look-up by dlsym if set: code that loads an object usually looks a symbol up next. */
extern void (*tfi_dl_looked_up)(void);

#endif
