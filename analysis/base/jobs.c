/* jobs.c - runs one piece of work on several threads. */
#include "base/jobs.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/util.h"

size_t jobs_count(size_t asked)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return MIN(asked ? asked : (size_t)MAX(processors, 1), (size_t)256);
}

void jobs_run(size_t asked, size_t most, void *(*work)(void *), void *argument)
{
    size_t jobs = MIN(jobs_count(asked), most), started = 0;
    pthread_t *thread = mem_zero(jobs, sizeof *thread);
    while (started + 1 < jobs && pthread_create(&thread[started], NULL, work, argument) == 0) started++;
    work(argument);
    while (started) pthread_join(thread[--started], NULL);
    free(thread);
}
