/* kernel_names.h - maps host functions and the handles of runtime and driver to names of kernels. */
#ifndef TFI_KERNEL_NAMES_H
#define TFI_KERNEL_NAMES_H

#include <stdbool.h>
#include <stdint.h>

struct tfi_kernel {
    uint64_t handle; /* 0: the place is free */
    const char *name;
    uint64_t string; /* low half: its number in the trace; high half: the generation that number is valid in */
    uint64_t kept;   /* 1: the name is a copy of ours */
};

/* Stores a kernel's name without copying it. The text has to stay valid as long as the handle does. Names that a
 * program registers at startup do. */
void tfi_kernel_register(uint64_t handle, const char *name);

/* The same for a name that has to be copied. */
void tfi_kernel_learn(uint64_t handle, const char *name);

/* Stores a second handle of the same kernel. */
void tfi_kernel_alias(uint64_t handle, uint64_t known);

/* NULL if the handle is unknown. The entry stays where it is, but its content may be replaced. */
struct tfi_kernel *tfi_kernel_find(uint64_t handle);

#endif
