/* thread.c - makes and ends the state of a thread.
 *
 * States live in memory that is never given back: a thread forked in the middle of anything still finds its own, whose
 * generation then no longer counts. A pthread key tells of the end of a thread; threads made by raw clone just stay.
 */
#include "thread.h"

#include <errno.h>
#include <pthread.h>
#include <sys/prctl.h>

#include "chunk.h"
#include "clock.h"
#include "stage.h"
#include "strings.h"
#include "sys.h"

#define SLAB 32

__thread struct tfi_thread *tfi_self;
__thread uint32_t tfi_inside;

static struct tfi_lock lock;
static struct tfi_thread *all, *free_list, *slab;
static unsigned slab_left;
static uint32_t nr_threads;
static pthread_key_t key;
static bool have_key;

struct tfi_thread *tfi_threads(void)
{
    return __atomic_load_n(&all, __ATOMIC_ACQUIRE);
}

static struct tfi_thread *take(void)
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

TFI_COLD bool tfi_guard_holds(struct tfi_thread *t, uintptr_t frame)
{
    if (!tfi_frame_is_left(t->guard, frame)) return true;
    tfi_jump_seen();
    tfi_count_drop(TFI_DROP_JUMPED, 1);
    int cancel = t->cancel;
    t->cancel = -1;
    t->nr_names = UINT32_MAX; /* the table may be half changed: it is made anew */
    tfi_guard_clear(t);
    if (cancel >= 0) tfi_cancel_on(cancel);
    return false;
}

bool tfi_guard_may_hold(const struct tfi_thread *t)
{
    tfi_frame guard = *(const volatile tfi_frame *)&t->guard;
    return guard[0] != 0 && tfi_frame_may_stand(guard);
}

static void fill_slot(struct tfi_thread *t, const char *name)
{
    struct tfi_slot *slot = tfi_slot_take();
    if (!slot) tfi_count_drop(TFI_DROP_NO_SLOT, 1);
    t->slot = slot ? slot : &t->own_slot;
    t->slot->thread = t->serial;
    t->slot->tid = t->tid;
    t->slot->calls = t->slot->stages = 0;
    t->slot->pthread = (uint64_t)pthread_self();
    t->slot->start = tfi_ticks();
    memcpy(t->slot->name, name, sizeof t->slot->name);
    __atomic_store_n(&t->slot->state, 1, __ATOMIC_RELEASE);
}

/* In place: a copy of the state would need more than a small stack has. */
static void clear_but_what_is_kept(struct tfi_thread *t)
{
    __typeof__(t->serial) serial = t->serial;
    __typeof__(t->all) next = t->all;
    __typeof__(t->open) open = t->open;
    __typeof__(t->names) names = t->names;
    __typeof__(t->nr_names) nr_names = t->nr_names;
    __typeof__(t->max_open) max_open = t->max_open;
    __typeof__(t->torch) torch = t->torch;
    memset(t, 0, sizeof *t);
    t->serial = serial;
    t->all = next;
    t->open = open;
    t->names = names;
    t->nr_names = nr_names;
    t->max_open = max_open;
    t->torch = torch;
}

struct tfi_thread *tfi_thread_attach(void)
{
    char name[16] = {0};
    struct tfi_thread *t = take();
    if (!t) return NULL;
    clear_but_what_is_kept(t);
    t->tid = (uint32_t)tfi_gettid();
    prctl(PR_GET_NAME, name, 0, 0, 0);
    fill_slot(t, name);
    t->cancel = -1;
    t->gen = tfi_process->gen;
    tfi_guard_set(t);
    tfi_self = t;
    if (have_key) pthread_setspecific(key, t);
    uint32_t text = tfi_string(name, strnlen(name, sizeof name));
    struct tfi_rec_thread *rec = TFI_RESERVE(t, thread);
    if (rec) {
        rec->serial = t->serial;
        rec->tid = t->tid;
        rec->name = text;
        rec->pthread = t->slot->pthread;
        rec->time = t->slot->start;
        tfi_commit(t, sizeof *rec);
    }
    tfi_guard_clear(t);
    return t;
}

/* Runs in the thread that ends. Whatever it records after this starts a new state. A guard that is still set belongs to
 * a record the thread was cancelled in, between two instructions: a row is committed whole or not at all, and locks are
 * only held with cancellation off, so nothing is left undone. */
static void ended(void *state)
{
    struct tfi_thread *t = state;
    int error = errno;
    if (t != tfi_self || t->gen != tfi_process->gen) return;
    tfi_signals_off();
    tfi_inside++;
    tfi_guard_set(t);
    struct tfi_rec_thread_end *rec = TFI_RESERVE(t, thread_end);
    if (rec) {
        rec->serial = t->serial;
        rec->time = tfi_ticks();
        tfi_commit(t, sizeof *rec);
    }
    tfi_stage_thread_end(t);
    tfi_chunk_close(t);
    tfi_slot_free(t->slot);
    tfi_self = NULL;
    t->gen = 0;
    tfi_guard_clear(t);
    if (tfi_lock(&lock)) {
        t->free = free_list;
        free_list = t;
        tfi_unlock(&lock);
    }
    tfi_inside--;
    tfi_signals_on();
    errno = error;
}

void tfi_threads_init(void)
{
    lock = (struct tfi_lock){0};
    all = free_list = slab = NULL;
    slab_left = nr_threads = 0;
    if (!have_key) have_key = pthread_key_create(&key, ended) == 0;
}
