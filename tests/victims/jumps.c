/* jumps.c - a signal handler that jumps out of the main thread's work: jumps ranges|started|calls|stack|wake.
 *
 * All but wake: a loop makes calls of one kind, and a timer fires every few microseconds until there were enough jumps.
 * Then the program opens and closes a hundred stages named "after", each at another depth of the stack, so that none of
 * them lies where an abandoned one was. It prints `done` and exits with status 5. wake: each of many children jumps out
 * of its first stage at another moment, then opens three stages in another thread. Prints the number of children that
 * exit with status 5: their three stages took at most two seconds.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dummy.h"
#include "tfinject.h"

#define JUMPS 3000
#define CHILDREN 60

static sigjmp_buf back;
static volatile sig_atomic_t jumps;
static timer_t timer;

static void on_signal(int number)
{
    (void)number;
    jumps++;
    siglongjmp(back, 1);
}

static void set_timer(long first_ns, long next_ns)
{
    struct itimerspec times = {{0, next_ns}, {0, first_ns}};
    timer_settime(timer, 0, &times, NULL);
}

static void prepare(void)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    signal(SIGUSR1, on_signal);
    timer_create(CLOCK_MONOTONIC, &event, &timer);
}

static void ranges(long i)
{
    char name[32];
    snprintf(name, sizeof name, "name %ld", i % 3000);
    tfi_range_push(name);
    tfi_mark("mark");
    tfi_range_pop();
}

static void started(long i)
{
    uint64_t id = tfi_range_start(i % 2 ? "one" : "other");
    tfi_range_end(id);
}

static void calls(long i)
{
    uint64_t out;
    dummy_add(i);
    dummy_store(&out, (uint64_t)i);
    dummy_nested(i, 2);
}

/* Runs the same work at another depth of the stack each time. */
static void stack(long i)
{
    volatile char room[64 + 64 * (i % 50)];
    room[0] = (char)i;
    ranges(i + room[0]);
}

static void after(int depth)
{
    /* A large frame, so that few calls pass before the frame of the last jump is overwritten. */
    volatile char room[128] = {(char)depth};
    tfi_range_push("after");
    dummy_add(room[0]);
    tfi_range_pop();
    if (depth > 1) after(depth - 1);
    room[0] = 0;
}

static void storm(void (*once)(long))
{
    static volatile long count;
    once(0);
    prepare();
    if (sigsetjmp(back, 1) == 0) set_timer(20000, 20000);
    while (jumps < JUMPS && count < 20000000) once(count++);
    set_timer(0, 0);
    after(100);
    puts("done");
}

static void *three(void *slow)
{
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int i = 0; i < 3; i++) {
        tfi_range_push("after");
        tfi_range_pop();
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    *(volatile int *)slow = end.tv_sec - start.tv_sec > 2;
    return NULL;
}

static int child(long moment_ns)
{
    pthread_t thread;
    int slow = 1;
    prepare();
    if (sigsetjmp(back, 1) == 0) {
        set_timer(moment_ns, 0);
        tfi_range_push("first");
        tfi_range_pop();
    }
    set_timer(0, 0);
    if (pthread_create(&thread, NULL, three, &slow) != 0) return 1;
    pthread_join(thread, NULL);
    return slow ? 6 : 5;
}

static void wake(void)
{
    int good = 0, status;
    for (int i = 0; i < CHILDREN; i++) {
        pid_t pid = fork();
        if (pid == 0) exit(child(20000 + i * i * 500L));
        if (waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 5) good++;
    }
    printf("good %d of %d\n", good, CHILDREN);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*once)(long);
    } storms[] = {{"ranges", ranges}, {"started", started}, {"calls", calls}, {"stack", stack}};
    const char *mode = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < sizeof storms / sizeof storms[0]; i++)
        if (!strcmp(mode, storms[i].name)) storm(storms[i].once);
    if (!strcmp(mode, "wake")) wake();
    return 5;
}
