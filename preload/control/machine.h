/* machine.h - finds the facts of the machine that a process runs on: processors, limits of its cgroup, thread settings. */
#ifndef TFI_MACHINE_H
#define TFI_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

struct tfi_text;

/* Adds the facts to the header of a trace, as pairs with the prefix "machine."; a fact that is unknown is left out. */
void tfi_machine_header(struct tfi_text *text);

/* Finds the file that tells how much memory the process's cgroup uses; false if there is none. */
bool tfi_machine_cgroup_memory(char *path, size_t size);

#endif
