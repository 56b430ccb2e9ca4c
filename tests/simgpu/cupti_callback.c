/* cupti_callback.c - a simulated CUPTI: the callback API, with its one subscriber slot.
 *
 * It calls the subscriber at entry and exit of driver and runtime functions, and in the STATE domain when a client
 * refuses a buffer. A call comes with name, id, correlation, context id and result; the driver does not reveal
 * parameters and handles. The other domains can be enabled but never call.
 */
#include <string.h>

#include "cupti_sim.h"

struct CUpti_Subscriber_st {
    CUpti_CallbackFunc callback;
    void *user;
};
static struct CUpti_Subscriber_st slot;
static bool taken;
static uint8_t enabled[CUPTI_CB_DOMAIN_SIZE][SIM_CBIDS];
static uint32_t nr_enabled;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool sim_callbacks_on(void)
{
    return __atomic_load_n(&nr_enabled, __ATOMIC_RELAXED) != 0;
}

void sim_callback_forget(void)
{
    pthread_mutex_lock(&lock);
    taken = false;
    memset(enabled, 0, sizeof enabled);
    nr_enabled = 0;
    pthread_mutex_unlock(&lock);
}

static bool wanted(CUpti_CallbackDomain domain, uint32_t cbid)
{
    return cbid < SIM_CBIDS && __atomic_load_n(&enabled[domain][cbid], __ATOMIC_RELAXED);
}

void sim_callback(const struct simgpu_call *call, uint32_t cbid, struct sim_site *site)
{
    CUpti_CallbackDomain domain =
        call->domain == SIMGPU_DRIVER ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API;
    CUpti_CallbackFunc f = __atomic_load_n(&slot.callback, __ATOMIC_ACQUIRE);
    int32_t result = call->result;
    if (!f || !wanted(domain, cbid)) return;
    CUpti_CallbackData data = {.callbackSite = call->exit ? CUPTI_API_EXIT : CUPTI_API_ENTER,
                               .functionName = call->symbol,
                               .functionReturnValue = call->exit ? &result : NULL,
                               .contextUid = call->context,
                               .correlationData = &site->data,
                               .correlationId = call->correlation + sim_config()->correlation_offset};
    sim_internal_call();
    f(slot.user, domain, cbid, &data);
}

void sim_callback_state(CUptiResult result, const char *message)
{
    CUpti_CallbackFunc f = __atomic_load_n(&slot.callback, __ATOMIC_ACQUIRE);
    CUpti_StateData data = {.notification = {.result = result, .message = message}};
    if (f && wanted(CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_ERROR))
        f(slot.user, CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_ERROR, &data);
}

static CUptiResult subscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *user)
{
    if (!subscriber) return CUPTI_ERROR_INVALID_PARAMETER;
    CUptiResult result = sim_attach();
    if (result != CUPTI_SUCCESS) return result;
    pthread_mutex_lock(&lock);
    if (taken || sim_nasty(NASTY_slot)) {
        result = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    } else {
        taken = true;
        slot.user = user;
        __atomic_store_n(&slot.callback, callback, __ATOMIC_RELEASE);
        *subscriber = &slot;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *userdata)
{
    BEGIN;
    return subscribe(subscriber, callback, userdata);
}

CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *userdata,
                              CUpti_SubscriberParams *pParams)
{
    BEGIN;
    (void)pParams;
    if (!sim_v2_begin()) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    CUptiResult result = subscribe(subscriber, callback, userdata);
    if (result != CUPTI_SUCCESS) sim_v2_end();
    return result;
}

bool sim_is_subscriber(CUpti_SubscriberHandle subscriber)
{
    return subscriber == &slot && taken;
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber)
{
    BEGIN;
    if (!sim_is_subscriber(subscriber)) return CUPTI_ERROR_INVALID_PARAMETER;
    sim_v2_end();
    __atomic_store_n(&slot.callback, NULL, __ATOMIC_RELEASE);
    sim_callback_forget();
    return CUPTI_SUCCESS;
}

static void enable(CUpti_CallbackDomain domain, uint32_t cbid, uint8_t on)
{
    if (__atomic_exchange_n(&enabled[domain][cbid], on, __ATOMIC_RELAXED) != on)
        __atomic_add_fetch(&nr_enabled, on ? 1 : (uint32_t)-1, __ATOMIC_RELAXED);
}

static void enable_domain(CUpti_CallbackDomain domain, uint8_t on)
{
    for (uint32_t i = 1; i < SIM_CBIDS; i++) enable(domain, i, on);
}

static bool is_domain(CUpti_CallbackDomain domain)
{
    return domain > CUPTI_CB_DOMAIN_INVALID && domain < CUPTI_CB_DOMAIN_SIZE;
}

CUptiResult cuptiEnableCallback(uint32_t on, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                CUpti_CallbackId cbid)
{
    BEGIN;
    if (!sim_is_subscriber(subscriber) || !is_domain(domain) || cbid == 0 || cbid >= SIM_CBIDS)
        return CUPTI_ERROR_INVALID_PARAMETER;
    enable(domain, cbid, on != 0);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableDomain(uint32_t on, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain)
{
    BEGIN;
    if (!sim_is_subscriber(subscriber) || !is_domain(domain)) return CUPTI_ERROR_INVALID_PARAMETER;
    enable_domain(domain, on != 0);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableAllDomains(uint32_t on, CUpti_SubscriberHandle subscriber)
{
    BEGIN;
    if (!sim_is_subscriber(subscriber)) return CUPTI_ERROR_INVALID_PARAMETER;
    for (int d = CUPTI_CB_DOMAIN_INVALID + 1; d < CUPTI_CB_DOMAIN_SIZE; d++)
        enable_domain((CUpti_CallbackDomain)d, on != 0);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetCallbackState(uint32_t *on, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                  CUpti_CallbackId cbid)
{
    BEGIN;
    if (!on || !sim_is_subscriber(subscriber) || !is_domain(domain) || cbid >= SIM_CBIDS)
        return CUPTI_ERROR_INVALID_PARAMETER;
    *on = wanted(domain, cbid);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiSupportedDomains(size_t *domainCount, CUpti_DomainTable *domainTable)
{
    static CUpti_CallbackDomain domains[] = {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RUNTIME_API,
                                             CUPTI_CB_DOMAIN_RESOURCE,   CUPTI_CB_DOMAIN_SYNCHRONIZE,
                                             CUPTI_CB_DOMAIN_NVTX,       CUPTI_CB_DOMAIN_STATE};
    BEGIN;
    if (!domainCount || !domainTable) return CUPTI_ERROR_INVALID_PARAMETER;
    *domainCount = sizeof domains / sizeof *domains;
    *domainTable = domains;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid, const char **name)
{
    BEGIN;
    if (!name) return CUPTI_ERROR_INVALID_PARAMETER;
    *name = NULL;
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API) *name = sim_cbid_name(SIMGPU_DRIVER, cbid);
    if (domain == CUPTI_CB_DOMAIN_RUNTIME_API) *name = sim_cbid_name(SIMGPU_RUNTIME, cbid);
    return *name ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}
