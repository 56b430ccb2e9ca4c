/* libawake.c - preloaded beside the library: opens a stage at the start of each process, so that none stays asleep. */
#include "tfinject.h"

__attribute__((constructor)) static void open_stage(void)
{
    (void)tfi_range_push("process");
}
