/* api_calls.c - calls every function of tfinject.h and prints each result, with and without the library. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "tfinject.h"

#define MARKER 77 /* a value that no function sets */

static int evaluated;

static const char *name(const char *text)
{
    evaluated++;
    return text;
}

static void *end_it(void *id)
{
    tfi_range_end(*(uint64_t *)id);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    errno = MARKER;
    int outer = tfi_range_push(name("api outer")), inner = tfi_range_push(name("api inner"));
    tfi_mark(name("api mark"));
    int first = tfi_range_pop(), second = tfi_range_pop(), third = tfi_range_pop();
    uint64_t id = tfi_range_start(name("api across")), other = tfi_range_start(NULL);
    tfi_range_end(other);
    tfi_range_end(0);
    int error = errno;
    pthread_create(&thread, NULL, end_it, &id);
    pthread_join(thread, NULL);
    printf("push %d %d pop %d %d %d start %d evaluated %d errno %d\n", outer, inner, first, second, third,
           id != 0 && id != other, evaluated, error);
    return 0;
}
