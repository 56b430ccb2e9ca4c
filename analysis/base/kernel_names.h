/* kernel_names.h - shortens kernel names for display, without template arguments and parameters. short_names.c makes
 * short names distinct. */
#ifndef TFA_KERNEL_NAMES_H
#define TFA_KERNEL_NAMES_H

#include "base/util.h"

/* Returns the C++ form of a mangled name, as in PyTorch's traces; NULL if the name is not mangled. The caller frees
 * it. */
char *demangled_name(const char *name);
/* A piece of a name that its short form omits, and its position in the short form. */
struct left_out {
    char bracket; /* '<' template arguments, '(' parameters, ' ' text behind the parameters */
    size_t at;
    const char *from, *to; /* in the name */
};

struct left_outs {
    struct left_out *item;
    size_t count, capacity;
};

/* Appends the short form of a name. A name that is not valid C++ is appended unchanged. Omitted pieces are added to
 * `left`. */
void short_name(const char *name, struct text *out, struct left_outs *left);
/* Returns the position behind the bracket pair that opens at `p`, nested ones included; NULL if it does not close.
 * `->` closes nothing. */
const char *after_brackets(const char *p);

#endif
