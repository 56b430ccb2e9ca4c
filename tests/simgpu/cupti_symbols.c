/* cupti_symbols.c - symbols.c for the simulated CUPTI: SIMCUPTI_LACK and the version decide which names are missing.
 *
 * The constructor of symbols.c gets its list from getenv(), which this file replaces.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlfcn.h>
#include <stdbool.h>

bool sim_is_12(void); /* cupti_sim.h */
bool sim_is_12(void)
{
    Dl_info info;
    return dladdr((const void *)sim_is_12, &info) && strstr(info.dli_fname, "libcupti.so.12");
}

static char *lacking(void)
{
    static const struct {
        unsigned since;
        const char *name;
    } newer[] = {{1202, "cuptiGetErrorMessage"},
                 {1203, "cuptiGetGraphExecId,cuptiActivityEnableDeviceGraph"},
                 {1205, "cuptiActivityEnableDriverApi,cuptiActivityEnableRuntimeApi"},
                 {1206, "cuptiActivityEnableAllocationSource"},
                 {1208, "cuptiActivityEnableHWTrace,cuptiActivityEnableAllSyncRecords"},
                 {1300, "cuptiActivityEnableCudaEventDeviceTimestamps,cuptiSubscribe_v2"},
                 {1302, "cuptiActivityEnable_v2,cuptiActivityDisable_v2,cuptiActivityRegisterCallbacks_v2,"
                        "cuptiActivitySetAttribute_v2"},
                 {1303, "cuptiActivityGetNextRecord_v2,cuptiActivityGetNumDroppedRecords_v2,cuptiGetTimestamp_v2"}};
    static char list[4096];
    const char *asked = getenv("SIMCUPTI_LACK"), *version = getenv("SIMCUPTI_VERSION");
    unsigned major = 13, minor = 0;
    if (sim_is_12()) major = 12, minor = 8;
    if (version) sscanf(version, "%u.%u", &major, &minor);
    snprintf(list, sizeof list - 512, "%s", asked ? asked : "");
    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++)
        if (newer[i].since > major * 100 + minor) strcat(strcat(list, ","), newer[i].name);
    return list;
}

#define getenv(name) lacking()
#include "symbols.c"
