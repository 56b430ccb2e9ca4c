/* libnvtxuser.c - a plugin with its own copy of NVTX; the program may close it while one of its ranges is open. */
#include <nvtx3/nvToolsExt.h>

void use_nvtx(int balanced)
{
    nvtxRangePushA("plugin");
    nvtxMarkA("plugin's mark");
    if (balanced) nvtxRangePop();
}
