/* other_clients_v2.c - gives the device to clients of CUPTI's second interface while one has subscribed.
 *
 * CUPTI 13.2 brought an interface in which every client has kinds and buffers of its own (torch's cuspy uses it).
 * Such a subscription is refused while kinds of the first interface are enabled, as ours are. Before a subscription
 * is passed on, our kinds are therefore disabled and our records fetched. When the last client has unsubscribed, the
 * kinds are enabled again. The trace names the client and the time; stages go on.
 *
 * Exceptions. If the program's own client of the first interface records, nothing is given up: the subscription would
 * be refused without us as well. A release without cuptiActivityEnable_v2 has only one interface, and nothing
 * changes. If we have not started yet, we do so after the client has gone.
 *
 * Clients subscribe and unsubscribe in any thread. All of it is atomic words; a call keeps errno as CUPTI leaves it.
 */
#include <dlfcn.h>
#include <string.h>

#include "base/fmt.h"
#include "base/process.h"
#include "base/sys.h"
#include "cupti/other_clients.h"
#include "record/clock.h"
#include "record/log.h"
#include "record/strings.h"
#include "record/writer.h"

#define HOLDERS 8u

static struct {
    CUpti_SubscriberHandle handle; /* atomic; NULL: free */
} holders[HOLDERS];

static struct {
    uint64_t ticks; /* start of its ownership of the device */
    uint32_t gen;   /* of the trace that has the record */
    pid_t pid;
    char who[128];
} holder;

static void write_elsewhere(uint32_t state, uint64_t ticks)
{
    struct tfi_rec_elsewhere row = {
        .rec = {TFI_KIND_elsewhere, sizeof row},
        .state = state,
        .time = ticks,
        .who = tfi_string(holder.who, strlen(holder.who)),
    };
    tfi_signals_off();
    tfi_inside++;
    tfi_writer_append_own(&row, sizeof row);
    tfi_inside--;
    tfi_signals_on();
}

/* Writes the change into the open trace; tfi_v2_awake() writes it into a trace that is opened later. */
static void tell(uint32_t state, uint64_t ticks)
{
    uint32_t gen = __atomic_load_n(&tfi_process->gen, __ATOMIC_ACQUIRE);
    struct tfi_thread *t = tfi_self;
    if (!gen || (t && tfi_guarded(t))) return;
    if (state || holder.gen == gen) write_elsewhere(state, ticks);
    holder.gen = state ? gen : 0;
}

void tfi_v2_awake(void)
{
    if (!__atomic_load_n(&tfi_cupti_away, __ATOMIC_ACQUIRE) || !holder.ticks) return;
    write_elsewhere(1, holder.ticks);
    holder.gen = tfi_process->gen;
}

/* Forgets the parent's clients: a child cannot use its parent's CUPTI, and neither can a client it has inherited. */
void tfi_v2_restart(void)
{
    if (holder.pid == tfi_getpid()) return;
    memset(holders, 0, sizeof holders);
    memset(&holder, 0, sizeof holder);
    tfi_cupti_away = 0;
}

/* Names the client: by the name it gives itself, else by the library that calls. */
static void name_holder(const CUpti_SubscriberParams *params, const void *caller)
{
    size_t needed = offsetof(CUpti_SubscriberParams, subscriberName) + sizeof params->subscriberName;
    const char *name = params && params->structSize >= needed ? params->subscriberName : NULL;
    Dl_info info;
    if (!name && dladdr(caller, &info) && info.dli_fname) {
        const char *slash = strrchr(info.dli_fname, '/');
        name = slash ? slash + 1 : info.dli_fname;
    }
    tfi_fmt(holder.who, sizeof holder.who, "%s", name && *name ? name : "another client of CUPTI");
}

/* The first client takes the device. */
static void hand_over(const CUpti_SubscriberParams *params, const void *caller)
{
    if (__atomic_fetch_add(&tfi_cupti_away, 1, __ATOMIC_ACQ_REL)) return;
    name_holder(params, caller);
    holder.pid = tfi_getpid();
    holder.ticks = tfi_ticks();
    tfi_cupti_step_aside();
}

/* The last client gives it back. */
static void take_back(void)
{
    if (__atomic_sub_fetch(&tfi_cupti_away, 1, __ATOMIC_ACQ_REL)) return;
    tfi_cupti_step_back();
    holder.ticks = 0;
}

static bool remember(CUpti_SubscriberHandle handle)
{
    for (unsigned i = 0; i < HOLDERS; i++) {
        CUpti_SubscriberHandle none = NULL;
        if (__atomic_compare_exchange_n(&holders[i].handle, &none, handle, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return true;
    }
    return false;
}

static bool forget(CUpti_SubscriberHandle handle)
{
    for (unsigned i = 0; i < HOLDERS && handle; i++) {
        CUpti_SubscriberHandle it = handle;
        if (__atomic_compare_exchange_n(&holders[i].handle, &it, NULL, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return true;
    }
    return false;
}

static void begin_client(CUpti_SubscriberHandle handle)
{
    if (handle) remember(handle); /* without room for its handle the client never gives the device back */
    if (__atomic_load_n(&tfi_cupti_away, __ATOMIC_ACQUIRE) != 1) return;
    tell(1, holder.ticks);
    tfi_log(TFI_LOG_INFO,
            "%s has taken the device: no device records until it gives the device back; stages are still recorded",
            holder.who);
}

static void end(void)
{
    bool last = __atomic_load_n(&tfi_cupti_away, __ATOMIC_ACQUIRE) == 1;
    take_back();
    if (!last) return;
    tell(0, tfi_ticks());
    tfi_log(TFI_LOG_INFO, "%s has given the device back; device records continue", holder.who);
}

CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *userdata,
                              CUpti_SubscriberParams *params)
{
    const void *caller = __builtin_return_address(0);
    CUptiResult (*real)(CUpti_SubscriberHandle *, CUpti_CallbackFunc, void *, CUpti_SubscriberParams *) =
        tfi_real(TFI_HOOK_cuptiSubscribe_v2);
    if (!real) return CUPTI_ERROR_NOT_INITIALIZED;
    const void *enable = tfi_hook_sibling(TFI_HOOK_cuptiSubscribe_v2, "cuptiActivityEnable_v2", caller);
    const void *first = tfi_hook_sibling(TFI_HOOK_cuptiSubscribe_v2, "cuptiActivityEnable", caller);
    bool other = __atomic_load_n(&tfi_cupti->on, __ATOMIC_ACQUIRE) && first != (void *)tfi_cupti_api.ActivityEnable;
    if (!enable || !subscriber || other || tfi_other_edges() & 1) return real(subscriber, callback, userdata, params);
    int error = errno;
    hand_over(params, caller);
    errno = error;
    CUptiResult result = real(subscriber, callback, userdata, params);
    error = errno;
    begin_client(result == CUPTI_SUCCESS ? *subscriber : NULL);
    if (result != CUPTI_SUCCESS) end(); /* the device was not ours meanwhile */
    errno = error;
    return result;
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber)
{
    CUptiResult (*real)(CUpti_SubscriberHandle) = tfi_real(TFI_HOOK_cuptiUnsubscribe);
    if (!real) return CUPTI_ERROR_NOT_INITIALIZED;
    CUptiResult result = real(subscriber);
    int error = errno;
    if (result == CUPTI_SUCCESS && forget(subscriber)) end();
    errno = error;
    return result;
}

void tfi_v2_finalize(CUptiResult (*unsubscribe)(CUpti_SubscriberHandle))
{
    for (unsigned i = 0; i < HOLDERS; i++) {
        CUpti_SubscriberHandle handle = __atomic_exchange_n(&holders[i].handle, NULL, __ATOMIC_ACQ_REL);
        if (!handle) continue;
        unsubscribe(handle);
        end();
    }
}
