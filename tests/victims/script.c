/* script.c - runs its arguments as steps, in their order, whatever their thread: [THREAD.]VERB[=VALUE].
 *
 * THREAD is a letter a to d; its first step makes the thread. Steps without a letter run in the main thread. Verbs:
 * push, pop, start, end (VALUE is the number of the start, from 0), mark, nvtx_push, nvtx_pop, call (VALUE is
 * dummy_add's argument), sleep (in dummy_sleep, milliseconds), wait (outside it), exit (ends the thread), set, unset,
 * clear, chdir, system, child ... parent (a forked child runs the steps in between and ends), kill (SIGKILL), dlopen,
 * dlclose, inject, say, pid, until (VALUE is on or off: waits until the library records, or does not), read (a line).
 */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nvtx3/nvToolsExt.h>

#include "dummy.h"
#include "tfinject.h"

static uint64_t started[16];
static unsigned nr_started;
static void *handle;

static int inject(void)
{
    int (*initialize)(void) = (int (*)(void))dlsym(handle, "InitializeInjection");
    return initialize ? initialize() : -1;
}

static void say(const char *text)
{
    printf("%s\n", text);
    fflush(stdout);
}

extern bool tfi_test_is_recording(void) __attribute__((weak));

/* Waits until the library records, or does not: its background thread notices that by itself. */
static void wait_until(const char *state)
{
    bool on = strcmp(state, "on") == 0;
    while (tfi_test_is_recording && tfi_test_is_recording() != on) usleep(1000);
}

/* Waits for a line on stdin. */
static void wait_for_line(void)
{
    char c = 0;
    while (c != '\n' && read(0, &c, 1) == 1) continue;
}

static int ranges(const char *verb, const char *value)
{
    if (!strcmp(verb, "push")) tfi_range_push(value);
    else if (!strcmp(verb, "pop")) tfi_range_pop();
    else if (!strcmp(verb, "start")) started[nr_started++ % 16] = tfi_range_start(value);
    else if (!strcmp(verb, "end")) tfi_range_end(started[atoi(value) % 16]);
    else if (!strcmp(verb, "mark")) tfi_mark(value);
    else if (!strcmp(verb, "nvtx_push")) nvtxRangePushA(value);
    else if (!strcmp(verb, "nvtx_pop")) nvtxRangePop();
    else return 0;
    return 1;
}

static int environment(const char *verb, char *value)
{
    char *equals = strchr(value, '=');
    if (!strcmp(verb, "set") && equals) *equals = 0, setenv(value, equals + 1, 1);
    else if (!strcmp(verb, "unset")) unsetenv(value);
    else if (!strcmp(verb, "clear")) clearenv();
    else if (!strcmp(verb, "chdir")) return chdir(value) == 0;
    else if (!strcmp(verb, "system")) return system(value) == 0;
    else return 0;
    return 1;
}

static void step(const char *verb, char *value)
{
    char number[24];
    snprintf(number, sizeof number, "%d", (int)getpid());
    if (ranges(verb, value) || environment(verb, value)) return;
    if (!strcmp(verb, "call")) dummy_add(atol(value));
    else if (!strcmp(verb, "sleep")) dummy_sleep((unsigned)atoi(value));
    else if (!strcmp(verb, "wait")) usleep((useconds_t)atoi(value) * 1000);
    else if (!strcmp(verb, "until")) wait_until(value);
    else if (!strcmp(verb, "read")) wait_for_line();
    else if (!strcmp(verb, "kill")) raise(SIGKILL);
    else if (!strcmp(verb, "dlopen")) handle = dlopen(value, RTLD_NOW | RTLD_LOCAL);
    else if (!strcmp(verb, "dlclose")) dlclose(handle);
    else if (!strcmp(verb, "inject")) say(inject() == 1 ? "injected" : "not injected");
    else if (!strcmp(verb, "say")) say(value);
    else if (!strcmp(verb, "pid")) say(number);
    else {
        fprintf(stderr, "script: %s=%s failed\n", verb, value);
        exit(2);
    }
}

static struct worker {
    pthread_t thread;
    sem_t todo, done;
    const char *verb;
    char *value;
} workers[4];

static void *work(void *argument)
{
    struct worker *w = argument;
    while (sem_wait(&w->todo) != 0 || strcmp(w->verb, "exit") != 0) {
        step(w->verb, w->value);
        sem_post(&w->done);
    }
    return NULL;
}

static void step_in(struct worker *w, const char *verb, char *value)
{
    if (!w->thread) {
        sem_init(&w->todo, 0, 0);
        sem_init(&w->done, 0, 0);
        if (pthread_create(&w->thread, NULL, work, w) != 0) exit(3);
    }
    w->verb = verb;
    w->value = value;
    sem_post(&w->todo);
    if (strcmp(verb, "exit") == 0) {
        pthread_join(w->thread, NULL);
        w->thread = 0;
    } else
        while (sem_wait(&w->done) != 0) continue;
}

int main(int argc, char **argv)
{
    pid_t child = -1;
    for (int i = 1; i < argc; i++) {
        char *verb = argv[i], *equals = strchr(verb, '='), *value = equals ? equals + 1 : "";
        if (equals) *equals = 0;
        if (!strcmp(verb, "child")) {
            child = fork();
            while (child > 0 && i + 1 < argc && strcmp(argv[i + 1], "parent") != 0) i++;
        } else if (!strcmp(verb, "parent")) {
            if (child == 0) return 0;
            if (waitpid(child, NULL, 0) != child) return 4;
        } else if (verb[0] >= 'a' && verb[0] <= 'd' && verb[1] == '.') {
            step_in(&workers[verb[0] - 'a'], verb + 2, value);
        } else {
            step(verb, value);
        }
    }
    return 0;
}
