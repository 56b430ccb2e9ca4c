/* cupti_traps.c - a simulated CUPTI: behaviour of real releases that surprises clients, each behind a switch.
 *
 * Most traps of cupti_nasty.def are here; those about queuing and handing over are where that happens. A real release
 * might overwrite memory, or write into a buffer that it has handed back. In these cases the run ends with a message.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cupti_sim.h"

static uint32_t reregistered;    /* number of repeated registrations */
static uint32_t spoilt;          /* kernels whose times will be reversed */
static uint32_t misdated;        /* kernels whose times will be early */
static uint64_t busy_until;      /* end of a flush, in sim_monotonic() */
static __thread bool am_flusher; /* this thread's own calls do not wait */

/* Crashes without a driver, as every function of NVIDIA's 13.2 does. */
void sim_trap_driverless(void)
{
    if (!sim_nasty(NASTY_driverless)) return;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!driver) raise(SIGSEGV);
    dlclose(driver);
}

/* CUPTI's documentation promises no check of ids. */
void sim_trap_cbid(uint32_t domain, uint32_t cbid)
{
    if (!sim_nasty(NASTY_cbids) || cbid < sim_cbid_limit(domain)) return;
    sim_say("simcupti: callback id %u of the %s exceeds %u: CUPTI would overwrite memory\n", cbid,
            domain == SIMGPU_DRIVER ? "driver" : "runtime", sim_cbid_limit(domain));
    abort();
}

void sim_trap_registered(bool before)
{
    __atomic_add_fetch(&misdated, sim_nasty(NASTY_misdate), __ATOMIC_RELAXED);
    if (!before || !sim_nasty(NASTY_reregister)) return;
    uint32_t again = __atomic_add_fetch(&reregistered, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&spoilt, again, __ATOMIC_RELAXED);
}

/* CUPTI has 250 pools of 100,000 kernels. A smaller limit makes the pools smaller. */
static enum sim_damage of_pool(const struct simgpu_activity *w)
{
    static uint64_t kernels;
    void (*hold)(unsigned, uint64_t);
    unsigned limit = sim_nasty(NASTY_pool), pool = limit / 250 ? limit / 250 : 1;
    if (!limit || !w->graph || ++kernels <= limit) return SIM_WHOLE;
    *(void **)&hold = sim_driver("simgpu_hold");
    if (hold && kernels % pool == 0) hold(w->device, 3200000);
    return kernels & 1 ? SIM_ZEROED : SIM_REVERSED;
}

/* Takes one from a number of kernels; false if it is 0. */
static bool take(uint32_t *kernels)
{
    if (!__atomic_load_n(kernels, __ATOMIC_RELAXED)) return false;
    __atomic_sub_fetch(kernels, 1, __ATOMIC_RELAXED);
    return true;
}

/* Needs the drain lock. */
enum sim_damage sim_trap_damage(const struct sim_item *item)
{
    if (item->type != ITEM_WORK || item->work.kind != SIMGPU_KERNEL) return SIM_WHOLE;
    enum sim_damage damage = of_pool(&item->work);
    if (damage != SIM_WHOLE) return damage;
    return take(&spoilt) ? SIM_REVERSED : take(&misdated) ? SIM_EARLY : SIM_WHOLE;
}

void sim_trap_twice(const uint8_t *given, const uint8_t *out)
{
    if (!sim_nasty(NASTY_twice) || !given || given != out) return;
    sim_say("simcupti: buffer %p was given twice: CUPTI still holds it\n", (const void *)given);
    abort();
}

static void nap_until(uint64_t until)
{
    uint64_t now;
    while ((now = sim_monotonic()) < until) {
        struct timespec rest = {(time_t)((until - now) / 1000000000), (long)((until - now) % 1000000000)};
        nanosleep(&rest, NULL);
    }
}

void sim_trap_flush(bool forced)
{
    if (!sim_nasty(NASTY_midway) || forced) return;
    uint64_t until = sim_monotonic() + (uint64_t)sim_nasty(NASTY_midway) * 1000000;
    am_flusher = true;
    __atomic_store_n(&busy_until, until, __ATOMIC_RELEASE);
    nap_until(until);
    am_flusher = false;
}

void sim_trap_launch(const char *symbol)
{
    uint64_t until = __atomic_load_n(&busy_until, __ATOMIC_ACQUIRE);
    if (!until || am_flusher || !strstr(symbol, "Launch") || sim_monotonic() >= until) return;
    __atomic_add_fetch(&sim_counts.blocked, 1, __ATOMIC_RELAXED);
    nap_until(until);
}
