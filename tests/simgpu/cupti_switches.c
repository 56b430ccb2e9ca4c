/* cupti_switches.c - a simulated CUPTI: the kinds and functions that clients enabled, in general and by context. */
#include <string.h>

#include "cupti_sim.h"

#define MAX_KINDS 64
#define MAX_CONTEXTS 1024
static uint8_t wanted[MAX_KINDS];
static uint8_t by_context[MAX_CONTEXTS][MAX_KINDS]; /* 0: as in general, 1: no, 2: yes */
static uint8_t apis[2][SIM_CBIDS];
static uint32_t nr_apis;

static bool known(CUpti_ActivityKind kind)
{
    unsigned v = sim_config()->version, last = v >= 1301 ? 59 : v >= 1209 ? 55 : v >= 1208 ? 54 : 52;
    return kind > CUPTI_ACTIVITY_KIND_INVALID && (unsigned)kind <= last;
}

bool sim_wants(CUpti_ActivityKind kind, uint32_t context)
{
    uint8_t own = context < MAX_CONTEXTS ? by_context[context][kind] : 0;
    return own ? own == 2 : wanted[kind];
}

CUpti_ActivityKind sim_kernel_kind(uint32_t context)
{
    if (sim_wants(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, context)) return CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    return sim_wants(CUPTI_ACTIVITY_KIND_KERNEL, context) ? CUPTI_ACTIVITY_KIND_KERNEL : CUPTI_ACTIVITY_KIND_INVALID;
}

bool sim_wants_api(uint32_t domain, uint32_t cbid)
{
    return cbid < SIM_CBIDS && apis[domain][cbid];
}

bool sim_wants_any_api(void)
{
    return __atomic_load_n(&nr_apis, __ATOMIC_RELAXED) != 0;
}

static void switch_api(uint32_t domain, uint32_t cbid, bool on)
{
    if (__atomic_exchange_n(&apis[domain][cbid], on, __ATOMIC_RELAXED) != on)
        __atomic_add_fetch(&nr_apis, on ? 1 : (uint32_t)-1, __ATOMIC_RELAXED);
}

CUptiResult sim_want_api(uint32_t domain, uint32_t cbid, bool on)
{
    sim_trap_cbid(domain, cbid);
    if (cbid == 0 || cbid >= SIM_CBIDS) return CUPTI_ERROR_INVALID_PARAMETER;
    switch_api(domain, cbid, on);
    return CUPTI_SUCCESS;
}

/* Switching an API's kind switches all its functions and overrides earlier switches of single ones. */
CUptiResult sim_want(CUpti_ActivityKind kind, bool on)
{
    if (!known(kind)) return CUPTI_ERROR_INVALID_KIND;
    bool same = __atomic_exchange_n(&wanted[kind], on, __ATOMIC_RELAXED) == on;
    if (same && on && sim_nasty(NASTY_sticky)) return CUPTI_SUCCESS;
    if (kind == CUPTI_ACTIVITY_KIND_DRIVER || kind == CUPTI_ACTIVITY_KIND_RUNTIME)
        for (uint32_t i = 1; i < SIM_CBIDS; i++)
            switch_api(kind == CUPTI_ACTIVITY_KIND_DRIVER ? SIMGPU_DRIVER : SIMGPU_RUNTIME, i, on);
    return CUPTI_SUCCESS;
}

CUptiResult sim_want_context(uint32_t context, CUpti_ActivityKind kind, bool on)
{
    if (!known(kind)) return CUPTI_ERROR_INVALID_KIND;
    if (context >= MAX_CONTEXTS) return CUPTI_ERROR_INVALID_CONTEXT;
    by_context[context][kind] = on ? 2 : 1;
    return CUPTI_SUCCESS;
}

bool sim_wants_anything(void)
{
    bool any = sim_wants_any_api();
    for (unsigned i = 0; i < MAX_KINDS; i++) any |= wanted[i] != 0;
    return any;
}

void sim_want_nothing(void)
{
    memset(wanted, 0, sizeof wanted);
    memset(by_context, 0, sizeof by_context);
    memset(apis, 0, sizeof apis);
    nr_apis = 0;
}
