/* last_thread.h - finds out whether the program's own threads have all ended while threads of the library still run. */
#ifndef TFI_LAST_THREAD_H
#define TFI_LAST_THREAD_H

#include <stdbool.h>
#include <stdint.h>

/* True if the process's first thread has ended and no other one is left but `own` threads of the library. `status` is
 * then the first thread's, as waitpid() reports it. Cheap while the first thread lives. */
bool tfi_program_has_ended(uint32_t own, int *status);

/* Ends the process with a status that tfi_program_has_ended() gave: by a signal or by exit_group. */
_Noreturn void tfi_end_with(int status);

#endif
