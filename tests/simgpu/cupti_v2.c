/* cupti_v2.c - a simulated CUPTI: its second interface, for one client at a time.
 *
 * Reports that come while such a client is subscribed belong to it. Their items carry the number of its session, go
 * into its own buffers, and disappear when it unsubscribes. With the switch `v2` the two interfaces exclude each other,
 * as in the real CUPTI: a subscription fails while kinds of the first are enabled, and the first fails while there is a
 * subscription. Records have all their fields: a selection of fields is not simulated.
 */
#include "cupti_v2.h"

#include "cupti_sim.h"

static CUpti_BuffersCallbackRequestFunc_v2 request_fn;
static CUpti_BuffersCallbackCompleteFunc_v2 complete_fn;
static uint32_t session, sessions; /* 0: no subscriber */

uint32_t sim_v2_session(void)
{
    return __atomic_load_n(&session, __ATOMIC_ACQUIRE);
}

bool sim_v2_registered(void)
{
    return sim_v2_session() && __atomic_load_n(&request_fn, __ATOMIC_ACQUIRE);
}

bool sim_v2_excludes(void)
{
    return sim_nasty(NASTY_v2) && sim_v2_session();
}

bool sim_v2_begin(void)
{
    if (sim_config()->version < 1302) return true; /* both names belong to one interface */
    if (sim_nasty(NASTY_v2) && sim_wants_anything()) return false;
    __atomic_store_n(&session, ++sessions, __ATOMIC_RELEASE);
    return true;
}

void sim_v2_end(void)
{
    if (!sim_v2_session()) return;
    sim_want_nothing();
    __atomic_store_n(&session, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&request_fn, NULL, __ATOMIC_RELEASE);
}

void sim_v2_request(uint32_t of, uint8_t **buffer, size_t *size, size_t *max)
{
    CUpti_BufferCallbackRequestInfo info = {sizeof info};
    if (of == sim_v2_session() && sim_v2_registered()) request_fn(buffer, size, max, &info);
}

void sim_v2_complete(uint32_t of, uint8_t *buffer, size_t size, size_t valid)
{
    CUpti_BufferCallbackCompleteInfo info = {.structSize = sizeof info};
    if (of == sim_v2_session() && sim_v2_registered()) complete_fn(buffer, size, valid, &info);
}

/* ---- the functions ---- */

static CUptiResult for_client(CUpti_SubscriberHandle subscriber)
{
    return sim_v2_session() && sim_is_subscriber(subscriber) ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiActivityEnable_v2(CUpti_SubscriberHandle subscriber, CUpti_ActivityKind kind,
                                   CUpti_ActivityConfig *config)
{
    BEGIN;
    (void)config;
    CUptiResult result = for_client(subscriber);
    return result == CUPTI_SUCCESS ? sim_want(kind, true) : result;
}

CUptiResult cuptiActivityDisable_v2(CUpti_SubscriberHandle subscriber, CUpti_ActivityKind kind,
                                    CUpti_ActivityConfig *config)
{
    BEGIN;
    (void)config;
    CUptiResult result = for_client(subscriber);
    return result == CUPTI_SUCCESS ? sim_want(kind, false) : result;
}

CUptiResult cuptiActivityRegisterCallbacks_v2(CUpti_SubscriberHandle subscriber,
                                              CUpti_BuffersCallbackRequestFunc_v2 request,
                                              CUpti_BuffersCallbackCompleteFunc_v2 complete)
{
    BEGIN;
    CUptiResult result = for_client(subscriber);
    if (result != CUPTI_SUCCESS || !request || !complete) return CUPTI_ERROR_INVALID_PARAMETER;
    __atomic_store_n(&complete_fn, complete, __ATOMIC_RELEASE);
    __atomic_store_n(&request_fn, request, __ATOMIC_RELEASE);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivitySetAttribute_v2(CUpti_SubscriberHandle subscriber, CUpti_ActivityAttribute attribute,
                                         size_t *size, void *value)
{
    BEGIN;
    (void)attribute;
    return size && value ? for_client(subscriber) : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiActivityGetNextRecord_v2(CUpti_SubscriberHandle subscriber, uint8_t *buffer, size_t valid,
                                          CUpti_Activity **record)
{
    BEGIN;
    CUptiResult result = for_client(subscriber);
    return result == CUPTI_SUCCESS ? cuptiActivityGetNextRecord(buffer, valid, record) : result;
}

CUptiResult cuptiActivityGetNumDroppedRecords_v2(CUpti_SubscriberHandle subscriber, CUcontext context, uint32_t stream,
                                                 size_t *dropped)
{
    BEGIN;
    (void)context, (void)stream;
    if (!dropped || for_client(subscriber) != CUPTI_SUCCESS) return CUPTI_ERROR_INVALID_PARAMETER;
    *dropped = sim_take_dropped();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp_v2(CUpti_SubscriberHandle subscriber, uint64_t *timestamp)
{
    BEGIN;
    if (!timestamp || for_client(subscriber) != CUPTI_SUCCESS) return CUPTI_ERROR_INVALID_PARAMETER;
    *timestamp = sim_stamp(sim_monotonic());
    return CUPTI_SUCCESS;
}
