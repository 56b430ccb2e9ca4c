/* posix.h - prepares the hooks of posix.def. */
#ifndef TFI_POSIX_H
#define TFI_POSIX_H

/* Looks up what a hook may not look up when it is called. Called in the constructor. */
void tfi_posix_constructor(void);

#endif
