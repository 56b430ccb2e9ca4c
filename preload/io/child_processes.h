/* child_processes.h - records the start and the end of processes, and knows whether a thread is in a child of vfork. */
#ifndef TFI_CHILD_PROCESSES_H
#define TFI_CHILD_PROCESSES_H

#include <stdbool.h>

/* Not 0 if this thread has called vfork since tfi_vforked_here() last answered no. */
extern __thread unsigned tfi_vforked __attribute__((tls_model("initial-exec")));

/* True in the child of vfork. */
bool tfi_vforked_here(void);

/* The process executes `path`; called before its trace ends. */
void tfi_io_exec(const char *path);

/* The process ends; `status` is -1 if it is not known. Called before its trace ends. */
void tfi_io_end(int status);

#endif
