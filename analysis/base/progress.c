/* progress.c - draws the line of progress in a thread of its own: what is read, what is written, and else for how long the
 * command has computed.
 *
 * One mutex covers the state and stderr, so a message and the line never mix. The thread exists between progress_begin and
 * progress_end only, and only where stderr is a terminal.
 */
#include "base/progress.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 200, FIRST_TICK = 5 }; /* the first line appears after FIRST_TICK ticks: a second */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    pthread_t thread;
    bool runs, shown;
    const char *command;
    size_t files; /* being read; 0: none */
    const atomic_size_t *finished;
    const atomic_ullong *bytes;
} line = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

static atomic_size_t written;

static void clear(void)
{
    if (line.shown) fputs("\r\033[K", stderr);
    line.shown = false;
}

static void draw(int ticks)
{
    size_t bytes = atomic_load_explicit(&written, memory_order_relaxed);
    fputs("\r\033[Ktfanalyze: ", stderr);
    if (line.files)
        fprintf(stderr, "%zu of %zu files read, %llu MB", atomic_load(line.finished), line.files,
                atomic_load(line.bytes) >> 20);
    else if (bytes >> 20) fprintf(stderr, "%s: %zu MB written", line.command, bytes >> 20);
    else fprintf(stderr, "%s: computing for %d s", line.command, ticks * TICK_MS / 1000);
    fflush(stderr);
    line.shown = true;
}

static struct timespec next_tick(void)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += TICK_MS * 1000000L;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

static void *show(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&line.lock);
    for (int ticks = 0; line.runs;) {
        struct timespec at = next_tick();
        if (pthread_cond_timedwait(&line.ended, &line.lock, &at) && line.runs && ++ticks >= FIRST_TICK) draw(ticks);
    }
    clear();
    pthread_mutex_unlock(&line.lock);
    return NULL;
}

void progress_begin(const char *command)
{
    if (!isatty(STDERR_FILENO)) return;
    pthread_mutex_lock(&line.lock);
    line.command = command;
    line.runs = pthread_create(&line.thread, NULL, show, NULL) == 0;
    pthread_mutex_unlock(&line.lock);
}

void progress_end(void)
{
    pthread_mutex_lock(&line.lock);
    bool ran = line.runs;
    line.runs = false;
    pthread_cond_signal(&line.ended);
    pthread_mutex_unlock(&line.lock);
    if (ran) pthread_join(line.thread, NULL);
}

void progress_reads(size_t files, const atomic_size_t *finished, const atomic_ullong *bytes)
{
    pthread_mutex_lock(&line.lock);
    line.files = files;
    line.finished = finished;
    line.bytes = bytes;
    pthread_mutex_unlock(&line.lock);
}

void progress_read(void)
{
    progress_reads(0, NULL, NULL);
}

void progress_wrote(size_t bytes)
{
    atomic_fetch_add_explicit(&written, bytes, memory_order_relaxed);
}

void progress_hold(void)
{
    pthread_mutex_lock(&line.lock);
    clear();
}

void progress_release(void)
{
    pthread_mutex_unlock(&line.lock);
}
