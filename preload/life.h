/* life.h - declares what constructor.c and tfinject.c share: the life of the library in a process. */
#ifndef TFI_LIFE_H
#define TFI_LIFE_H

#include <stdbool.h>
#include <sys/types.h>

/* Set by the constructor. */
struct tfi_life {
    pid_t started_as; /* the process that loaded the library; forked children have another pid */
    bool preloaded;   /* the wrappers get the program's calls */
};
extern struct tfi_life tfi_life;

/* End the trace, and make it possible to open another one after an exec that failed: see tfi_process_ends_by(). */
void tfi_life_end(const char *reason);
void tfi_life_resume(void);

/* The handlers of fork. Cancellation is off in the first: fork() is no cancellation point. */
void tfi_before_fork(void);
void tfi_after_fork_parent(void);
void tfi_after_fork_child(void);

#endif
