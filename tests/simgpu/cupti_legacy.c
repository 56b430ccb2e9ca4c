/* cupti_legacy.c - a simulated CUPTI: the event and metric functions, which no device since Volta supports.
 *
 * torch up to 2.6 is linked to some of them. They are declared without their parameters, which the calling convention
 * allows because none is read.
 */
#include <cupti_result.h>

#define LEGACY(name)                                                                                                   \
    __attribute__((visibility("default"))) int name(void);                                                             \
    int name(void)                                                                                                     \
    {                                                                                                                  \
        return CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED;                                                              \
    }
LEGACY(cuptiDeviceEnumEventDomains)
LEGACY(cuptiDeviceEnumMetrics)
LEGACY(cuptiDeviceGetAttribute)
LEGACY(cuptiDeviceGetEventDomainAttribute)
LEGACY(cuptiDeviceGetNumEventDomains)
LEGACY(cuptiDeviceGetNumMetrics)
LEGACY(cuptiDisableKernelReplayMode)
LEGACY(cuptiEnableKernelReplayMode)
LEGACY(cuptiEnumEventDomains)
LEGACY(cuptiEnumMetrics)
LEGACY(cuptiEventDomainEnumEvents)
LEGACY(cuptiEventDomainGetAttribute)
LEGACY(cuptiEventDomainGetNumEvents)
LEGACY(cuptiEventGetAttribute)
LEGACY(cuptiEventGetIdFromName)
LEGACY(cuptiEventGroupAddEvent)
LEGACY(cuptiEventGroupCreate)
LEGACY(cuptiEventGroupDestroy)
LEGACY(cuptiEventGroupDisable)
LEGACY(cuptiEventGroupEnable)
LEGACY(cuptiEventGroupGetAttribute)
LEGACY(cuptiEventGroupReadAllEvents)
LEGACY(cuptiEventGroupReadEvent)
LEGACY(cuptiEventGroupRemoveAllEvents)
LEGACY(cuptiEventGroupRemoveEvent)
LEGACY(cuptiEventGroupResetAllEvents)
LEGACY(cuptiEventGroupSetAttribute)
LEGACY(cuptiEventGroupSetDisable)
LEGACY(cuptiEventGroupSetEnable)
LEGACY(cuptiEventGroupSetsCreate)
LEGACY(cuptiEventGroupSetsDestroy)
LEGACY(cuptiGetNumEventDomains)
LEGACY(cuptiGetNumMetrics)
LEGACY(cuptiKernelReplaySubscribeUpdate)
LEGACY(cuptiMetricCreateEventGroupSets)
LEGACY(cuptiMetricEnumEvents)
LEGACY(cuptiMetricEnumProperties)
LEGACY(cuptiMetricGetAttribute)
LEGACY(cuptiMetricGetIdFromName)
LEGACY(cuptiMetricGetNumEvents)
LEGACY(cuptiMetricGetNumProperties)
LEGACY(cuptiMetricGetRequiredEventGroupSets)
LEGACY(cuptiMetricGetValue)
LEGACY(cuptiMetricGetValue2)
LEGACY(cuptiSetEventCollectionMode)
