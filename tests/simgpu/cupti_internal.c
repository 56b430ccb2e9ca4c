/* cupti_internal.c - a simulated CUPTI: its own calls of the driver, as the real one makes them, behind a switch.
 *
 * It asks dlsym for a function of the driver once, and calls it in a thread of its own, when a kind is enabled and while
 * that waits, and round the client's callbacks. Nobody may see these calls: they are not the program's.
 */
#include "cupti_sim.h"

static __thread bool calling;

bool sim_is_internal(void)
{
    return calling;
}

/* Any function that profilers wrap will do; it fails, and changes nothing. */
void sim_internal_call(void)
{
    static CUresult (*query)(CUevent);
    if (!sim_nasty(NASTY_internal) || calling || sim_nasty(NASTY_lock)) return;
    if (!query) *(void **)&query = sim_driver("cuEventQuery");
    calling = true;
    if (query) query(NULL);
    calling = false;
}

static void *in_thread(void *unused)
{
    sim_internal_call();
    return unused;
}

void sim_internal_enable(void)
{
    pthread_t thread;
    if (sim_nasty(NASTY_internal) && pthread_create(&thread, NULL, in_thread, NULL) == 0) pthread_join(thread, NULL);
}
