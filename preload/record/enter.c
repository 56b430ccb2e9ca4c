/* enter.c - enters and leaves the recorder: finds the thread's valid state and sets its guard.
 *
 * A thread's state is valid while its generation equals the process's: one compare covers asleep, forked and ended. For
 * an invalid state the slow path asks tfinject.c whether the process is awake or is to wake now. That is the only call
 * upward from this layer. It is a direct call, because constructors of other libraries may come here before our own
 * constructor has run and could have set a pointer.
 */
#include "record/enter.h"

#include <errno.h>

#include "base/process.h"
#include "base/sys.h"

/* Gives the calling thread a valid state; NULL if nothing is recorded or no state can be had. */
static TFI_COLD struct tfi_thread *attach(enum tfi_why why)
{
    int error = errno;
    struct tfi_thread *t = NULL;
    if (tfi_inside) {
        if (tfi_process->gen) tfi_count_drop(TFI_DROP_REENTRANT, 1); /* when asleep the counters may be a parent's */
        return NULL;
    }
    tfi_signals_off();
    tfi_inside++;
    if (tfi_wake(why)) {
        t = tfi_self;
        if (!t || t->gen != tfi_process->gen) t = tfi_thread_attach();
    }
    tfi_inside--;
    tfi_signals_on();
    errno = error;
    return t;
}

struct tfi_thread *tfi_enter_from(enum tfi_why why, tfi_frame frame)
{
    struct tfi_thread *t = tfi_self;
    int cancel;
    if (TFI_UNLIKELY(!t || t->gen != __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED))) {
        cancel = tfi_cancel_off();
        t = attach(why);
        tfi_cancel_on(cancel);
        if (!t) return NULL;
    }
    if (TFI_UNLIKELY(tfi_guard_frame(t) != 0) && tfi_guard_holds(t, frame[0])) {
        tfi_count_drop(TFI_DROP_REENTRANT, 1);
        return NULL;
    }
    cancel = tfi_cancel_off();
    tfi_guard_put(t, frame);
    t->cancel = cancel; /* after the guard: a signal handler that came before it has stored its own value here */
    if (TFI_LIKELY(t->gen == __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED))) return t;
    tfi_leave(t); /* the trace ended in between */
    return NULL;
}

void tfi_leave(struct tfi_thread *t)
{
    int cancel = t->cancel;
    t->cancel = -1;
    tfi_guard_clear(t);
    tfi_cancel_on(cancel);
}

void tfi_enter_awake(void)
{
    tfi_wake(TFI_WHY_CALL);
}

#ifdef TFI_TEST_HOOKS
TFI_EXPORT bool tfi_test_is_inside(void);

/* True if the calling thread is in the recorder, or wakes the process; tests/victims/libinside.c asks. */
TFI_EXPORT bool tfi_test_is_inside(void)
{
    return tfi_inside || (tfi_self && tfi_guarded(tfi_self));
}
#endif

void tfi_prepare(void)
{
    int error = errno;
    tfi_construct();
    errno = error;
}
