/* leaked.c - leaked DEPTH [domain|outer|queue]: leaves DEPTH stages open, then opens and ends ten thousand.
 *
 * Prints the user CPU seconds of the ten thousand. `domain`: the open stages belong to a domain of NVTX. `outer`: they
 * also lie in one stage outside of the domain. `queue`: each stage is started, and each end is that of the oldest one.
 */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tfinject.h"

enum { MOST = 65000, TIMES = 10000 };
static uint64_t queue[MOST];

static double cpu(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6;
}

static void leak(nvtxDomainHandle_t domain, const char *name)
{
    nvtxEventAttributes_t event = {.version = NVTX_VERSION,
                                   .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                   .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                   .message.ascii = name};
    if (domain) nvtxDomainRangePushEx(domain, &event);
    else tfi_range_push(name);
}

int main(int argc, char **argv)
{
    char name[32];
    int depth = argc > 1 ? atoi(argv[1]) : 0;
    const char *mode = argc > 2 ? argv[2] : "";
    int queued = strcmp(mode, "queue") == 0 && depth <= MOST ? depth : 0;
    nvtxDomainHandle_t domain =
        strcmp(mode, "domain") == 0 || strcmp(mode, "outer") == 0 ? nvtxDomainCreateA("leaky") : NULL;
    if (strcmp(mode, "outer") == 0) tfi_range_push("outer");
    for (int i = 0; i < depth; i++) {
        snprintf(name, sizeof name, "leaked %d", i % 500);
        if (queued) queue[i] = tfi_range_start(name);
        else leak(domain, name);
    }
    double start = cpu();
    for (int i = 0; i < TIMES; i++) {
        snprintf(name, sizeof name, "stage %d", i % 100);
        if (queued) {
            tfi_range_end(queue[i % queued]);
            queue[i % queued] = tfi_range_start(name);
        } else {
            tfi_range_push(name);
            tfi_range_pop();
        }
    }
    printf("%.6f\n", cpu() - start);
    return 0;
}
