/* injection_path.c - tells every NVTX copy of the process, and of its children, that this library is its tool. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "control/config.h"
#include "nvtx/nvtx.h"

void tfi_nvtx_constructor(void)
{
    static const char here;
    static char path[PATH_MAX];
    Dl_info self;
    int saved = errno;
    if (!tfi_config.secure && !getenv("NVTX_INJECTION64_PATH") && dladdr(&here, &self) && self.dli_fname &&
        realpath(self.dli_fname, path))
        setenv("NVTX_INJECTION64_PATH", path, 0);
    errno = saved;
}
