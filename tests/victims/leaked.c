/* leaked.c - leaked DEPTH: opens so many stages that nobody ends, then opens and ends ten thousand; prints the user CPU
 * seconds of the ten thousand. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "tfinject.h"

static double cpu(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6;
}

int main(int argc, char **argv)
{
    char name[32];
    int depth = argc > 1 ? atoi(argv[1]) : 0;
    for (int i = 0; i < depth; i++) {
        snprintf(name, sizeof name, "leaked %d", i % 500);
        tfi_range_push(name);
    }
    double start = cpu();
    for (int i = 0; i < 10000; i++) {
        snprintf(name, sizeof name, "stage %d", i % 100);
        tfi_range_push(name);
        tfi_range_pop();
    }
    printf("%.6f\n", cpu() - start);
    return 0;
}
