/* background.h - declares the library's two threads, the background thread and the calling thread, and their jobs. */
#ifndef TFI_BACKGROUND_H
#define TFI_BACKGROUND_H

#include <stdbool.h>
#include <stdint.h>

/* A job that a thread does for a part of the library. */
struct tfi_job {
    /* Does one piece of the job's work; false if there was none. After a piece the thread asks the jobs from the first
     * again. */
    bool (*work)(void);
    /* Returns how many milliseconds the thread may sleep, at most `ms`; NULL: no limit. */
    unsigned (*wait)(unsigned ms);
    /* True while work() is in a call of another library that may hang: it holds no lock and no part of the trace then.
     * NULL: never. */
    bool (*calling)(void);
    /* Called when the thread ends; NULL: nothing. */
    void (*last)(void);
    /* Starts another thread again, which a fork has ended; NULL: there is none. Any thread of the program. */
    void (*again)(void);
};

/* For wait(): the milliseconds until `next`, a time of tfi_monotonic_ms(), at least 1 and at most `most`. */
unsigned tfi_job_wait(uint64_t next, unsigned most);

/* Names the jobs, in the order in which they are asked: those of the background thread, and those that call other
 * libraries. The arrays must stay valid. Called in the constructor. */
void tfi_background_init(const struct tfi_job *const *own, unsigned nr_own, const struct tfi_job *const *calling,
                         unsigned nr_calling);

/* Starts the background thread if it does not run; false if it can't be started now. Any thread, any time. */
bool tfi_background_start(void);

/* Starts it, and lets every clock record start it again after a fork has ended it: a job needs it all the time. */
void tfi_background_keep(void);

/* Called with each clock record, and when os.fork() has returned: starts the threads again that are to be kept, and the
 * jobs' own. */
void tfi_background_again(void);

/* Wakes the thread because there is work. Takes no lock. */
void tfi_background_signal(void);

/* Ends the thread; waits as tfi_worker_end(). True if it has ended. */
bool tfi_background_stop(unsigned ms);

/* The same for the calling thread. The first may only be called where no lock of libc can be held: in hooks of functions
 * that take such locks themselves. */
bool tfi_caller_start(void);
/* The same as tfi_background_keep(), for TFI_NVML_HZ only: the wake and the clock records of such a process may take locks
 * of libc. */
void tfi_caller_keep(void);
void tfi_caller_signal(void);
bool tfi_caller_stop(unsigned ms);
/* True if a job's calling() is true: the thread may hang and holds nothing; see struct tfi_job. */
bool tfi_caller_is_calling(void);

/* Called before and after a fork, for both threads; in between none is started. The second one starts the background thread
 * again if it is to be kept, and the jobs' own, whose tfi_worker_after_fork() comes first. */
void tfi_background_before_fork(void);
void tfi_background_after_fork(void);

/* Forgets the threads of a parent process. */
void tfi_background_restart(void);

#endif
