/* symbols.h - look-up in the library's own symbol table. */
#ifndef SIMGPU_SYMBOLS_H
#define SIMGPU_SYMBOLS_H

#include <string.h>

/* NULL where there is none, or where SIMGPU_LACK took it out. */
void *sim_symbol(const char *name);

#endif
