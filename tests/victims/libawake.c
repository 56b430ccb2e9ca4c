/* libawake.c - preloaded beside the library, it opens a stage in each process as that begins, so that none is asleep. */
#include "tfinject.h"

__attribute__((constructor)) static void open_stage(void)
{
    (void)tfi_range_push("process");
}
