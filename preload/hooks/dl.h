/* dl.h - wraps dlsym for the program. */
#ifndef TFI_DL_H
#define TFI_DL_H

#include <stdbool.h>

/* Notes which objects were loaded with the program. Called in the constructor. */
void tfi_dl_constructor(void);

/* True if this library was loaded with the program, before the C library, as by LD_PRELOAD: its wrappers then get the
 * calls. */
bool tfi_dl_is_preloaded(void);

#endif
