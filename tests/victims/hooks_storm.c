/* hooks_storm.c - a handler of SIGALRM that makes calls, while a thread makes calls itself: hooks_storm main|threads.
 *
 * main: another thread interrupts the main thread every few microseconds, between and inside the recorder's own work.
 * threads: signals hit many short threads during their first calls, while the library sets up the thread's state.
 * Prints the number of calls made, and whether threads can still be cancelled.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "dummy.h"
#include "tfinject.h"

static atomic_ulong made, interrupted;
static atomic_int going;

static void on_alarm(int number)
{
    (void)number;
    dummy_add(1);
    atomic_fetch_add(&made, 1);
    atomic_fetch_add(&interrupted, 1);
}

static void call(long x)
{
    uint64_t out;
    dummy_add(x);
    dummy_store(&out, (uint64_t)x);
    atomic_fetch_add(&made, 2);
}

static void *alarms(void *thread)
{
    for (unsigned spin = 1; going; spin = spin * 5 % 997) {
        pthread_kill(*(pthread_t *)thread, SIGALRM);
        for (volatile unsigned i = 0; i < 20 * spin;) i++;
    }
    return NULL;
}

static void storm(void)
{
    pthread_t self = pthread_self(), thread;
    going = 1;
    if (pthread_create(&thread, NULL, alarms, &self) != 0) return;
    for (long i = 0; interrupted < 2000 && i < 2000000; i++) {
        call(i);
        if (i % 16 == 0) tfi_range_push("interrupted");
        if (i % 16 == 8) tfi_range_pop();
    }
    going = 0;
    pthread_join(thread, NULL);
}

static void *target(void *unused)
{
    going = 1;
    call(1);
    call(2);
    while (going) sched_yield();
    return unused;
}

static void shoot(void)
{
    pthread_t thread;
    for (int i = 0; i < 1000; i++) {
        if (pthread_create(&thread, NULL, target, NULL) != 0) return;
        while (!going) sched_yield();
        for (int k = 0; k < 8; k++) pthread_kill(thread, SIGALRM);
        going = 0;
        pthread_join(thread, NULL);
    }
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    int state;
    call(0); /* wakes the process */
    sigaction(SIGALRM, &action, NULL);
    if (argc > 1 && !strcmp(argv[1], "threads")) shoot();
    else storm();
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    printf("made %lu\ncan be cancelled %d\n", made, state == PTHREAD_CANCEL_ENABLE);
    return 0;
}
