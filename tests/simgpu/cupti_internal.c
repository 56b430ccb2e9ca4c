/* cupti_internal.c - a simulated CUPTI: its own calls of the driver, as the real one makes them, behind a switch.
 *
 * CUPTI looks a driver function up once with dlsym. It calls the function around the client's callbacks, and in a
 * thread of its own while a client enables a kind and waits. No record may show these calls, because the program did
 * not make them.
 */
#include "cupti_sim.h"

static __thread bool calling;

bool sim_is_internal(void)
{
    return calling;
}

/* Calls a function that profilers wrap. The call fails and changes nothing. */
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
