/* cupti_activity.c - a simulated CUPTI: the functions of the activity API, versions, and names of results. */
#include <string.h>

#include "cupti_sim.h"

/* ---- kinds ---- */

static CUptiResult want(CUpti_ActivityKind kind, bool on)
{
    CUptiResult result = on ? sim_attach() : CUPTI_SUCCESS;
    if (sim_v2_excludes()) return CUPTI_ERROR_NOT_COMPATIBLE;
    if (on && result == CUPTI_SUCCESS) sim_internal_enable();
    return result == CUPTI_SUCCESS ? sim_want(kind, on) : result;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind)
{
    BEGIN;
    return want(kind, true);
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind)
{
    BEGIN;
    return want(kind, false);
}

/* Dumps devices only: the driver does not list contexts and streams. */
CUptiResult cuptiActivityEnableAndDump(CUpti_ActivityKind kind)
{
    BEGIN;
    CUptiResult result = want(kind, true);
    if (result == CUPTI_SUCCESS && kind == CUPTI_ACTIVITY_KIND_DEVICE && sim_registered()) sim_dump_devices();
    return result;
}

static CUptiResult want_context(CUcontext context, CUpti_ActivityKind kind, bool on)
{
    uint32_t id = 0;
    CUptiResult result = sim_attach();
    if (result == CUPTI_SUCCESS) result = cuptiGetContextId(context, &id);
    return result == CUPTI_SUCCESS ? sim_want_context(id, kind, on) : result;
}

CUptiResult cuptiActivityEnableContext(CUcontext context, CUpti_ActivityKind kind)
{
    BEGIN;
    return want_context(context, kind, true);
}

CUptiResult cuptiActivityDisableContext(CUcontext context, CUpti_ActivityKind kind)
{
    BEGIN;
    return want_context(context, kind, false);
}

static CUptiResult want_api(uint32_t domain, CUpti_CallbackId cbid, uint8_t on)
{
    CUptiResult result = sim_attach();
    if (sim_v2_excludes()) return CUPTI_ERROR_NOT_COMPATIBLE;
    return result == CUPTI_SUCCESS ? sim_want_api(domain, cbid, on != 0) : result;
}

CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId cbid, uint8_t enable)
{
    BEGIN;
    return want_api(SIMGPU_DRIVER, cbid, enable);
}

CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId cbid, uint8_t enable)
{
    BEGIN;
    return want_api(SIMGPU_RUNTIME, cbid, enable);
}

/* ---- buffers ---- */

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc funcBufferRequested,
                                           CUpti_BuffersCallbackCompleteFunc funcBufferCompleted)
{
    BEGIN;
    CUptiResult result = sim_register(funcBufferRequested, funcBufferCompleted);
    if (result == CUPTI_SUCCESS) sim_worker_start();
    return result;
}

CUptiResult cuptiActivityFlushAll(uint32_t flag)
{
    BEGIN;
    return sim_flush((flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != 0);
}

CUptiResult cuptiActivityFlush(CUcontext context, uint32_t streamId, uint32_t flag)
{
    BEGIN;
    (void)context, (void)streamId;
    return sim_flush((flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != 0);
}

CUptiResult cuptiActivityFlushPeriod(uint32_t time)
{
    BEGIN;
    sim_flush_period(time);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t streamId, size_t *dropped)
{
    BEGIN;
    (void)context, (void)streamId;
    if (!dropped) return CUPTI_ERROR_INVALID_PARAMETER;
    *dropped = sim_take_dropped();
    return CUPTI_SUCCESS;
}

/* ---- attributes: one has an effect, the others are only stored ---- */

static struct attribute {
    size_t size;
    uint64_t value;
} attributes[] = {
    [CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE] = {8, 3200000},
    [CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE_CDP] = {8, 8388608},
    [CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT] = {8, 250},
    [CUPTI_ACTIVITY_ATTR_PROFILING_SEMAPHORE_POOL_SIZE] = {8, 25000},
    [CUPTI_ACTIVITY_ATTR_PROFILING_SEMAPHORE_POOL_LIMIT] = {8, 250},
    [CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER] = {1, 0},
    [CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE] = {8, 3},
    [CUPTI_ACTIVITY_ATTR_PROFILING_SEMAPHORE_PRE_ALLOCATE_VALUE] = {8, 3},
    [CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED] = {1, 0},
    [CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER] = {1, 0},
    [CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE_DEVICE_GRAPHS] = {8, 16777216},
};

static CUptiResult attribute(CUpti_ActivityAttribute attr, const size_t *size, const void *value,
                             struct attribute **found)
{
    if (!size || !value || (unsigned)attr >= sizeof attributes / sizeof *attributes)
        return CUPTI_ERROR_INVALID_PARAMETER;
    *found = &attributes[attr];
    return *size < (*found)->size ? CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT : CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetAttribute(CUpti_ActivityAttribute attr, size_t *valueSize, void *value)
{
    struct attribute *a;
    BEGIN;
    attributes[CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER].value = sim_thread_buffers;
    CUptiResult result = attribute(attr, valueSize, value, &a);
    if (result != CUPTI_SUCCESS) return result;
    *valueSize = a->size;
    memcpy(value, &a->value, a->size);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attr, size_t *valueSize, void *value)
{
    struct attribute *a;
    BEGIN;
    CUptiResult result = attribute(attr, valueSize, value, &a);
    if (result != CUPTI_SUCCESS) return result;
    memcpy(&a->value, value, a->size);
    if (attr == CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER) sim_thread_buffers = a->value != 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableLatencyTimestamps(uint8_t enable)
{
    BEGIN;
    sim_latency_stamps = enable;
    return CUPTI_SUCCESS;
}

/* Switches of features that are not simulated. */
#define IGNORED(name, result)                                                                                          \
    CUptiResult name(uint8_t enable)                                                                                   \
    {                                                                                                                  \
        BEGIN;                                                                                                         \
        (void)enable;                                                                                                  \
        return result;                                                                                                 \
    }
IGNORED(cuptiActivityEnableLaunchAttributes, CUPTI_SUCCESS)
IGNORED(cuptiActivityEnableDeviceGraph, CUPTI_SUCCESS)
IGNORED(cuptiActivityEnableAllocationSource, CUPTI_SUCCESS)
IGNORED(cuptiActivityEnableAllSyncRecords, CUPTI_SUCCESS)
IGNORED(cuptiActivityEnableCudaEventDeviceTimestamps, CUPTI_SUCCESS)
IGNORED(cuptiActivityEnableHWTrace, sim_nasty(NASTY_hes) ? CUPTI_SUCCESS : CUPTI_ERROR_NOT_SUPPORTED)

/* ---- correlation, time, threads ---- */

static bool is_external(CUpti_ExternalCorrelationKind kind)
{
    return kind > CUPTI_EXTERNAL_CORRELATION_KIND_INVALID && kind < CUPTI_EXTERNAL_CORRELATION_KIND_SIZE;
}

CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id)
{
    BEGIN;
    if (!is_external(kind)) return CUPTI_ERROR_INVALID_PARAMETER;
    sim_external(kind, true, &id);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t *lastId)
{
    uint64_t id = 0;
    BEGIN;
    if (!is_external(kind)) return CUPTI_ERROR_INVALID_PARAMETER;
    if (sim_external(kind, false, &id) != 0) return CUPTI_ERROR_QUEUE_EMPTY;
    if (lastId) *lastId = id;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc funcTimestamp)
{
    BEGIN;
    return sim_clock_register(funcTimestamp);
}

CUptiResult cuptiGetTimestamp(uint64_t *timestamp)
{
    BEGIN;
    if (!timestamp) return CUPTI_ERROR_INVALID_PARAMETER;
    if (sim_v2_excludes()) return CUPTI_ERROR_NOT_COMPATIBLE;
    CUptiResult result = sim_attach();
    if (result == CUPTI_SUCCESS) *timestamp = sim_stamp(sim_monotonic());
    return result;
}

CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType type)
{
    BEGIN;
    if ((unsigned)type >= CUPTI_ACTIVITY_THREAD_ID_TYPE_SIZE) return CUPTI_ERROR_INVALID_PARAMETER;
    sim_thread_id_type = (uint32_t)type;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetThreadIdType(CUpti_ActivityThreadIdType *type)
{
    BEGIN;
    if (!type) return CUPTI_ERROR_INVALID_PARAMETER;
    *type = (CUpti_ActivityThreadIdType)sim_thread_id_type;
    return CUPTI_SUCCESS;
}

/* ---- version, names of results, end ---- */

CUptiResult cuptiGetVersion(uint32_t *version)
{
    BEGIN;
    if (!version) return CUPTI_ERROR_INVALID_PARAMETER;
    *version = sim_config()->api_version;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **str)
{
    BEGIN;
    if (!str) return CUPTI_ERROR_INVALID_PARAMETER;
    *str = sim_result_name(result);
    return *str ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiGetErrorMessage(CUptiResult result, const char **str)
{
    BEGIN;
    return cuptiGetResultString(result, str);
}

CUptiResult cuptiGetLastError(void)
{
    return CUPTI_SUCCESS;
}

CUptiResult cuptiFinalize(void)
{
    BEGIN;
    sim_detach();
    sim_want_nothing();
    sim_callback_forget();
    sim_queue_forget();
    return CUPTI_SUCCESS;
}
