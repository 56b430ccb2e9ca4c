/* kernel_names.h - what a kernel is called, for people: without template arguments and parameters. Short names that differ are
 * made of these in short_names.c. */
#ifndef TFA_KERNEL_NAMES_H
#define TFA_KERNEL_NAMES_H

#include "util.h"

/* What a mangled name says in C++, as PyTorch's traces have it; NULL if it is no mangled name. To be freed. */
char *demangled_name(const char *name);
/* A piece of a name that its short form leaves out, and the place in the short form where it stood. */
struct left_out {
    char bracket; /* '<' template arguments, '(' parameters, ' ' what follows parameters */
    size_t at;
    const char *from, *to; /* in the name */
};

struct left_outs {
    struct left_out *item;
    size_t count, capacity;
};

/* Appends the short form of a name; a name that is not C++, or makes no sense as such, as it is. What it leaves out is
 * added to `left`. */
void short_name(const char *name, struct text *out, struct left_outs *left);
/* The end of what opens at p, with all that is nested in it; NULL if it does not close. `->` closes nothing. */
const char *after_brackets(const char *p);

#endif
