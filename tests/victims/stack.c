/* stack.c - measures on a painted stack how much the library needs to wake, record, finish and wake again.
 *
 * stack: runs steps on a thread whose stack it owns, and prints for each step how many bytes below its own frame were
 * written to. An exec that fails finishes the trace and comes back. stack MODE BYTES: the first event, or the end,
 * happens on a stack of that many bytes: `thread`, `thread exit`, `awake exit` (the main thread has woken the library
 * before), `handler`, `handler exit` (on a sigaltstack), `coroutine` (of ucontext, with a guard page below its stack).
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "tfinject.h"

#define BYTES (256u << 10)
#define PAINT 0xa5

static char *stack;
static int ends;

static void stage(void)
{
    tfi_range_push("stage");
    tfi_range_pop();
}

static void finish(void)
{
    char *const arguments[] = {(char *)"no", NULL};
    execv("/no/such/program", arguments);
}

/* Gives each stage a name of its own, so that the library closes and writes chunks and strings. */
static void many(void)
{
    char name[16] = "n0000000";
    for (int i = 0; i < 20000; i++) {
        for (int k = 7, rest = i; k > 0; k--, rest /= 10) name[k] = (char)('0' + rest % 10);
        tfi_range_push(name);
        tfi_range_pop();
    }
}

static __attribute__((noinline)) size_t depth_of(void (*step)(void))
{
    char *here = __builtin_frame_address(0);
    char *top = here - 256; /* keeps this function's own frame */
    for (volatile char *p = stack; p < (volatile char *)top; p++) *p = (char)PAINT;
    step();
    char *low = stack;
    while (low < top && (unsigned char)*low == PAINT) low++;
    return (size_t)(here - low);
}

static void *measure(void *unused)
{
    static const struct {
        const char *name;
        void (*step)(void);
    } steps[] = {
        {"wake", stage}, {"record", many}, {"finish", finish}, {"wake again", stage}, {"finish again", finish}};
    size_t depths[sizeof steps / sizeof steps[0]];
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) depths[i] = depth_of(steps[i].step);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) printf("%s: %zu\n", steps[i].name, depths[i]);
    return unused;
}

static void *small(void *unused)
{
    stage();
    if (ends) _exit(7);
    return unused;
}

static void handler(int number)
{
    (void)number;
    small(NULL);
}

static int on_thread(size_t bytes, void *(*work)(void *))
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (stack) pthread_attr_setstack(&attributes, stack, bytes);
    else if (pthread_attr_setstacksize(&attributes, bytes)) return 3;
    if (pthread_create(&thread, &attributes, work, NULL)) return 3;
    pthread_join(thread, NULL);
    return 0;
}

static int on_handler(size_t bytes)
{
    stack_t alternative = {.ss_sp = malloc(bytes), .ss_size = bytes};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    if (sigaltstack(&alternative, NULL) || sigaction(SIGUSR1, &action, NULL)) return 3;
    raise(SIGUSR1);
    return 0;
}

static int on_coroutine(size_t bytes)
{
    enum { GUARD = 4096 };
    static ucontext_t back, there;
    char *room = mmap(NULL, GUARD + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED || mprotect(room, GUARD, PROT_NONE) || getcontext(&there)) return 3;
    there.uc_stack.ss_sp = room + GUARD;
    there.uc_stack.ss_size = bytes;
    there.uc_link = &back;
    makecontext(&there, stage, 0);
    return swapcontext(&back, &there) ? 3 : 0;
}

int main(int argc, char **argv)
{
    int failed;
    if (argc < 3) {
        stack = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        failed = stack == MAP_FAILED ? 3 : on_thread(BYTES, measure);
    } else {
        if (!strncmp(argv[1], "awake", 5)) stage();
        ends = strstr(argv[1], "exit") != NULL;
        size_t bytes = strtoul(argv[2], NULL, 10);
        if (!strncmp(argv[1], "handler", 7)) failed = on_handler(bytes);
        else failed = strcmp(argv[1], "coroutine") ? on_thread(bytes, small) : on_coroutine(bytes);
    }
    puts(failed ? "failed" : "done");
    return failed;
}
