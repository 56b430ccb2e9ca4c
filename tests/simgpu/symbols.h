/* symbols.h - looks names up in the library's own symbol table. */
#ifndef SIMGPU_SYMBOLS_H
#define SIMGPU_SYMBOLS_H

#include <string.h>

/* Returns NULL if there is no such function or SIMGPU_LACK removed it. */
void *sim_symbol(const char *name);

#endif
