/* states.c - keeps the states of threads and their guards; thread.c fills them.
 *
 * The memory of states is never given back: after a fork at any point the child's thread still finds its own state,
 * whose generation is no longer valid.
 */
#include "record/thread.h"

#include "base/process.h"
#include "base/sys.h"

#define SLAB 32

__thread struct tfi_thread *tfi_self;
__thread uint32_t tfi_inside;

static struct tfi_lock lock;
static struct tfi_thread *all, *free_list, *slab;
static unsigned slab_left;
static uint32_t nr_threads;

struct tfi_thread *tfi_threads(void)
{
    return __atomic_load_n(&all, __ATOMIC_ACQUIRE);
}

struct tfi_thread *tfi_state_take(void)
{
    struct tfi_thread *t = NULL;
    if (!tfi_lock(&lock)) return NULL;
    if (free_list) {
        t = free_list;
        free_list = t->free;
    } else {
        if (!slab_left && (slab = tfi_map(SLAB * sizeof *slab)) != NULL) slab_left = SLAB;
        if (slab_left) {
            t = &slab[--slab_left];
            t->all = all;
            __atomic_store_n(&all, t, __ATOMIC_RELEASE);
        }
    }
    if (t) t->serial = ++nr_threads;
    tfi_unlock(&lock);
    return t;
}

void tfi_state_give(struct tfi_thread *t)
{
    if (!tfi_lock(&lock)) return; /* the state is lost */
    t->free = free_list;
    free_list = t;
    tfi_unlock(&lock);
}

void tfi_states_restart(void)
{
    lock = (struct tfi_lock){0};
    all = free_list = slab = NULL;
    slab_left = nr_threads = 0;
}

TFI_COLD bool tfi_guard_holds(struct tfi_thread *t, uintptr_t frame)
{
    if (!tfi_frame_is_left(t->guard, frame)) return true;
    tfi_jump_seen();
    tfi_count_drop(TFI_DROP_JUMPED, 1);
    int cancel = t->cancel;
    t->cancel = -1;
    t->nr_names = UINT32_MAX; /* the table may be half changed: this has it rebuilt */
    tfi_guard_clear(t);
    if (cancel >= 0) tfi_cancel_on(cancel);
    return false;
}

bool tfi_guard_may_hold(const struct tfi_thread *t)
{
    tfi_frame guard = *(const volatile tfi_frame *)&t->guard;
    return guard[0] != 0 && tfi_frame_may_stand(guard);
}
