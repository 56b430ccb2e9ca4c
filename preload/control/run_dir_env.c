/* run_dir_env.c - names the run directory in the environment, for the children of this process. */
#include <stdlib.h>
#include <string.h>

#include "control/rank.h"

void tfi_run_dir_pass_on(void)
{
    const char *entry = tfi_run_dir_entry(), *value = entry ? strchr(entry, '=') : NULL, *there = getenv("TFI_RUN_DIR");
    if (value && (!there || strcmp(there, value + 1) != 0)) setenv("TFI_RUN_DIR", value + 1, 1);
}
