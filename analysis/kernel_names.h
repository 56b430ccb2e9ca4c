/* kernel_names.h - what a kernel is called, for people: without template arguments and parameters. */
#ifndef TFA_KERNEL_NAMES_H
#define TFA_KERNEL_NAMES_H

#include "util.h"

/* What a mangled name says in C++, as PyTorch's traces have it; NULL if it is no mangled name. To be freed. */
char *demangled_name(const char *name);
/* Appends the short form of a name; a name that is not C++, or makes no sense as such, as it is. */
void short_name(const char *name, struct text *out);

#endif
