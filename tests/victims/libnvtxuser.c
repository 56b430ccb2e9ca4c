/* libnvtxuser.c - a plugin with a copy of NVTX of its own; it may be closed with a range of its still open. */
#include <nvtx3/nvToolsExt.h>

void use_nvtx(int balanced)
{
    nvtxRangePushA("plugin");
    nvtxMarkA("plugin's mark");
    if (balanced) nvtxRangePop();
}
