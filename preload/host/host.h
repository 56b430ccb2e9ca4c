/* host.h - records what malloc, mmap and their relatives give to the program, above TFI_HOST_ALLOC_KB. */
#ifndef TFI_HOST_H
#define TFI_HOST_H

/* Called in the constructor: if such blocks are to be recorded, the calls of all loaded objects come here from now on. */
void tfi_host_constructor(void);

#endif
