/* jobs.h - runs one piece of work on several threads. */
#ifndef TFA_JOBS_H
#define TFA_JOBS_H

#include <stddef.h>

/* Returns the number of threads: `asked`, or one for each processor if it is 0, but at most 256. */
size_t jobs_count(size_t asked);

/* Runs `work` on the calling thread and on others, and returns when all have ended. There are as many as
 * jobs_count says, but at most `most`. Fewer run if the system refuses some. `work` takes
 * its tasks from `argument` until none is left. */
void jobs_run(size_t asked, size_t most, void *(*work)(void *), void *argument);

#endif
